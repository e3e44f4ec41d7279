//! Summary of all measurements of the camouflage experiment.

use std::collections::BTreeMap;

use super::super::{Mean, Median, average, by_round, middle, quartiles, spread};
use super::measured::{Download, Measured, Stream};
use super::plan::{Arm, LENGTHS, LONGEST, MeasurementKind};

/// Measured quantity of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Goodput from the request to the last byte, in kB/s.
    Goodput,
    /// Time to the first byte, in seconds.
    FirstByte,
    /// Bytes of IP packets that the client sent over its access line.
    Up,
    /// Bytes of IP packets that the client received over its access line.
    Down,
}

/// A row as in the StegoTorus paper's Table 3: downloads of [`LONGEST`] bytes by one method of
/// fetching.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Method of fetching in this row.
    pub arm: Arm,
    /// Number of all downloads, and number of downloads that were cut off or failed.
    pub counts: (usize, usize),
    /// Bytes of IP packets that the client sent and received for a completed download. Each value
    /// is averaged within each round, then over the rounds. `None` if no download completed.
    pub bytes: [Option<Mean>; 2],
    /// The values of `bytes` as multiples of the bytes of a direct download; `None` if one of the
    /// two is missing.
    pub to_direct: [Option<f64>; 2],
    /// Time to the first byte, in seconds; `None` if there are no downloads.
    pub first_byte: Option<Median>,
    /// Goodput in kB/s from the request to the last byte; `None` if there are no downloads.
    pub goodput: Option<Median>,
    /// Goodput divided by the goodput of Tor alone in the same round; `None` if the rounds allow
    /// no comparison.
    pub to_tor: Option<Median>,
    /// Maximum share of the machine's CPUs that was in use.
    pub busy: f64,
}

/// A curve as in the StegoTorus paper's Figure 7: the goodputs of one method of fetching.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Method of fetching of this curve.
    pub arm: Arm,
    /// For each download size in [`LENGTHS`]: the mean of the rounds' mean goodputs in kB/s, and
    /// the number of rounds. A download that was cut off counts as 0. `None` if there are no
    /// downloads of this size.
    pub points: Vec<Option<(Mean, usize)>>,
}

/// A box of a box plot as in the StegoTorus paper's Figure 6: streams of one rate by one method of
/// fetching, at one round-trip time.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamBox {
    /// Method by which the streams are fetched.
    pub arm: Arm,
    /// Rate of the streams in kB/s.
    pub rate: u32,
    /// Round-trip time of the client's access line, in ms.
    pub rtt: u32,
    /// Number of all streams, and number of streams that did not arrive completely.
    pub counts: (usize, usize),
    /// Lower quartile, median and upper quartile of the bytes that the client received on the wire
    /// per second, in kB/s, over all seconds of all rounds.
    pub down: [f64; 3],
    /// Bytes that the client received on the wire per second, in kB/s. The value is the median of
    /// the rounds' medians.
    pub level: Option<Median>,
    /// Median of the bytes that the client sent on the wire per second, in kB/s.
    pub up: f64,
    /// Payload that the client received per second, divided by the stream's rate. The value is the
    /// median of the rounds' medians.
    pub held: Option<Median>,
}

impl Quantity {
    /// Returns the value of this quantity for the download `one`. If the download was cut off or
    /// failed, returns the worst possible value: 0 for goodput, otherwise infinity.
    #[must_use]
    pub fn of(self, one: &Download) -> f64 {
        let crossed = |bytes: u64| one.whole.map(|_| bytes as f64);
        let value = match self {
            Quantity::Goodput => one.goodput(),
            Quantity::FirstByte => one.first_byte,
            Quantity::Up => crossed(one.up),
            Quantity::Down => crossed(one.down),
        };
        value.unwrap_or_else(|| self.worst())
    }

    fn worst(self) -> f64 {
        if self == Quantity::Goodput { 0.0 } else { f64::INFINITY }
    }
}

/// Returns the downloads of `bytes` bytes by the method `arm` in measurements of the kind `what`.
/// Each item is the index of the measurement's round, and a download.
fn of(
    records: &[Measured],
    (what, arm): (MeasurementKind, Arm),
    bytes: u32,
) -> impl Iterator<Item = (u32, &Download)> {
    let of_arm = records.iter().filter(move |record| (record.what, record.arm) == (what, arm));
    let each = of_arm.flat_map(|r| r.downloads.iter().map(move |one| (r.round, one)));
    each.filter(move |(_, one)| one.bytes == bytes)
}

/// Returns, for each round, the median of `quantity` over one method's downloads of [`LONGEST`]
/// bytes.
#[must_use]
pub fn rounds(
    records: &[Measured],
    which: (MeasurementKind, Arm),
    quantity: Quantity,
) -> BTreeMap<u32, f64> {
    let values = of(records, which, LONGEST).map(|(round, one)| (round, quantity.of(one)));
    by_round(values, middle)
}

/// Returns a ratio for each round: `quantity` of `arm` through Tor, divided by `quantity` of
/// `other`. If both values are the worst possible one (0 for goodput, otherwise infinity), the
/// ratio is also this value. If only the value of `other` is 0, the round has no ratio.
#[must_use]
pub fn ratios(records: &[Measured], [arm, other]: [Arm; 2], quantity: Quantity) -> Vec<f64> {
    let of = |arm| rounds(records, (MeasurementKind::Downloads, arm), quantity);
    let others = of(other);
    let ratio = |(round, value): (u32, f64)| {
        let other = *others.get(&round)?;
        let both_are_worst = [value, other] == [quantity.worst(); 2];
        spread::ratio(value, other).or(both_are_worst.then(|| quantity.worst()))
    };
    of(arm).into_iter().filter_map(ratio).collect()
}

/// Returns the number of one method's downloads of [`LONGEST`] bytes, and the number of those
/// downloads that were cut off or failed.
#[must_use]
pub fn counts(records: &[Measured], which: (MeasurementKind, Arm)) -> (usize, usize) {
    let cut = of(records, which, LONGEST).filter(|(_, one)| one.whole.is_none()).count();
    (of(records, which, LONGEST).count(), cut)
}

/// Returns our rows for the StegoTorus paper's Table 3, one for each method of fetching.
#[must_use]
pub fn table(records: &[Measured]) -> Vec<Row> {
    Arm::ALL.iter().filter_map(|arm| row(records, *arm)).collect()
}

fn row(records: &[Measured], arm: Arm) -> Option<Row> {
    let which = (MeasurementKind::Downloads, arm);
    let median = |quantity| {
        let rounds = rounds(records, which, quantity);
        Median::of(&rounds.into_values().collect::<Vec<_>>())
    };
    let bytes = [Quantity::Up, Quantity::Down].map(|way| bytes(records, arm, way));
    let to_direct = [Quantity::Up, Quantity::Down].map(|way| {
        let direct = self::bytes(records, Arm::Direct, way)?;
        spread::ratio(self::bytes(records, arm, way)?.mean, direct.mean)
    });
    let counts = counts(records, which);
    let busy = records.iter().filter(|record| record.arm == arm).map(|record| record.busy);
    (counts.0 > 0).then(|| Row {
        arm,
        counts,
        bytes,
        to_direct,
        first_byte: median(Quantity::FirstByte),
        goodput: median(Quantity::Goodput),
        to_tor: Median::of(&ratios(records, [arm, Arm::Tor], Quantity::Goodput)),
        busy: busy.fold(0.0, f64::max),
    })
}

/// Returns the mean over rounds of the bytes of completed downloads by the method `arm`. `way` is
/// the direction. Returns `None` if no download completed.
fn bytes(records: &[Measured], arm: Arm, way: Quantity) -> Option<Mean> {
    let all = of(records, (MeasurementKind::Downloads, arm), LONGEST);
    let ended = all.filter(|(_, one)| one.whole.is_some());
    let rounds = by_round(ended.map(|(round, one)| (round, way.of(one))), average);
    Mean::of(&rounds.into_values().collect::<Vec<_>>())
}

/// Returns our curves for the StegoTorus paper's Figure 7, one for each method of fetching.
#[must_use]
pub fn curves(records: &[Measured]) -> Vec<Curve> {
    let point = |arm: Arm, bytes: u32| {
        let goodputs = of(records, (MeasurementKind::Downloads, arm), bytes)
            .map(|(round, one)| (round, Quantity::Goodput.of(one)));
        let rounds: Vec<f64> = by_round(goodputs, average).into_values().collect();
        Some((Mean::of(&rounds)?, rounds.len()))
    };
    let curve = |&arm: &Arm| Curve { arm, points: LENGTHS.map(|bytes| point(arm, bytes)).to_vec() };
    let curves = Arm::ALL.iter().map(curve);
    curves.filter(|curve| curve.points.iter().any(Option::is_some)).collect()
}

/// Returns our boxes (quartiles) for the StegoTorus paper's Figure 6, sorted by method of
/// fetching, rate and round-trip time.
#[must_use]
pub fn boxes(records: &[Measured]) -> Vec<StreamBox> {
    let mut keys: Vec<(Arm, u32, u32)> = records
        .iter()
        .flat_map(|r| r.streams.iter().map(move |one| (r.arm, one.rate, r.rtt)))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter().filter_map(|key| stream_box(records, key)).collect()
}

fn stream_box(records: &[Measured], (arm, rate, rtt): (Arm, u32, u32)) -> Option<StreamBox> {
    let there = records.iter().filter(|record| (record.arm, record.rtt) == (arm, rtt));
    let all: Vec<(u32, &Stream)> = there
        .flat_map(|record| record.streams.iter().map(|one| (record.round, one)))
        .filter(|(_, one)| one.rate == rate)
        .collect();
    // Each entry is one second of a stream, in kB, with the number of the stream's round.
    let seconds = |of: fn(&Stream) -> &Vec<u64>| -> Vec<(u32, f64)> {
        let each = |&(round, one)| of(one).iter().map(move |bytes| (round, *bytes as f64 / 1e3));
        all.iter().flat_map(each).collect()
    };
    let plain = |seconds: Vec<(u32, f64)>| -> Vec<f64> {
        seconds.into_iter().map(|(_, value)| value).collect()
    };
    let of_rounds = |seconds: Vec<(u32, f64)>| {
        Median::of(&by_round(seconds, middle).into_values().collect::<Vec<_>>())
    };
    let received = seconds(|one| &one.received).into_iter();
    Some(StreamBox {
        arm,
        rate,
        rtt,
        counts: (all.len(), all.iter().filter(|(_, one)| one.whole.is_none()).count()),
        down: quartiles(plain(seconds(|one| &one.down)))?,
        level: of_rounds(seconds(|one| &one.down)),
        up: middle(&plain(seconds(|one| &one.up)))?,
        held: of_rounds(
            received.map(|(round, received)| (round, received / f64::from(rate))).collect(),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::measured::tests::{measured, streamed};
    use super::*;

    #[test]
    fn a_row_counts_rounds_and_stands_beside_tor_of_the_same_round() {
        let records = [
            measured(Arm::Direct, 0, &[(1.0, 1_000_000); 4]),
            measured(Arm::Tor, 0, &[(2.0, 1_100_000); 4]),
            measured(Arm::Opaque, 0, &[(4.0, 1_200_000); 4]),
            // This round has no downloads through Tor to compare with.
            measured(Arm::Opaque, 1, &[(8.0, 1_300_000); 4]),
        ];
        let table = table(&records);
        let row = table.iter().find(|row| row.arm == Arm::Opaque).unwrap();
        assert_eq!(row.counts, (8, 0));
        assert_eq!(row.bytes[1].unwrap().mean, 1_250_000.0);
        assert_eq!(row.to_direct, [Some(1.25), Some(1.25)]);
        let goodput = row.goodput.unwrap();
        assert_eq!((goodput.median, goodput.interval, goodput.count), (187.5, None, 2));
        let to_tor = row.to_tor.unwrap();
        assert_eq!((to_tor.median, to_tor.count), (0.5, 1));
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn a_download_that_was_cut_counts_as_the_worst() {
        let mut cut = measured(Arm::Opaque, 0, &[(4.0, 1_200_000); 4]);
        for one in &mut cut.downloads[..3] {
            (one.first_byte, one.whole) = (None, None);
        }
        let mut records = vec![measured(Arm::Tor, 0, &[(2.0, 1_100_000); 4]), cut];
        let of = |records: &[Measured]| {
            table(records).into_iter().find(|row| row.arm == Arm::Opaque).unwrap()
        };
        let row = of(&records);
        assert_eq!(row.counts, (4, 3));
        assert_eq!(row.goodput.unwrap().median, 0.0);
        assert_eq!(row.first_byte.unwrap().median, f64::INFINITY);
        assert_eq!(row.bytes[1].unwrap().mean, 1_200_000.0, "of what ended");
        assert_eq!(row.to_tor.unwrap().median, 0.0);
        let down = |records: &[Measured]| ratios(records, [Arm::Opaque, Arm::Tor], Quantity::Down);
        assert_eq!(down(&records), [f64::INFINITY]);
        records[0].downloads.iter_mut().for_each(|one| one.whole = None);
        assert_eq!(of(&records).to_tor.unwrap().median, 0.0, "none of both is no good sign");
        assert_eq!(down(&records), [f64::INFINITY]);
        assert_eq!(curves(&records)[1].points[9].unwrap().0.mean, 62.5, "cut ones have 0");
    }

    #[test]
    fn a_curve_has_a_point_where_something_came() {
        let curves = curves(&[measured(Arm::Tor, 0, &[(2.0, 1_100_000), (4.0, 1_100_000)])]);
        assert_eq!((curves.len(), curves[0].points.len()), (1, 10));
        let (mean, count) = curves[0].points[9].unwrap();
        assert_eq!((mean.mean, count), (375.0, 1), "both are of one round");
        assert!(curves[0].points[..9].iter().all(Option::is_none));
    }

    #[test]
    fn a_box_is_of_all_seconds_and_its_interval_of_rounds() {
        let mut records: Vec<Measured> = (0..6)
            .map(|round| streamed(Arm::Text, (200, round), 50, 50 + u64::from(round)))
            .collect();
        records.push(streamed(Arm::Text, (100, 0), 50, 25));
        let boxes = boxes(&records);
        assert_eq!(boxes.iter().map(|one| one.rtt).collect::<Vec<_>>(), [100, 200]);
        let [low, median, high] = boxes[1].down;
        assert!((55.0..61.0).contains(&median) && low <= median && median <= high);
        let [low, high] = boxes[1].level.unwrap().interval.unwrap();
        assert!((low - 55.0).abs() < 0.1 && (high - 60.5).abs() < 0.1, "{low} {high}");
        let held = boxes[0].held.unwrap();
        assert!((held.median - 0.5).abs() < 0.01, "{held:?}");
        assert_eq!((held.count, held.interval), (1, None));
    }
}
