//! What all measurements of a plan amount to.

use super::super::{Mean, Spread, median_interval, quartiles};
use super::measured::{Download, Measured, Stream};
use super::plan::{Arm, LENGTHS, LONGEST, What};

/// The median of several values with its interval ([`median_interval`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The median.
    pub median: f64,
    /// With 95 %, whatever the distribution; `None` of less than six values.
    pub interval: Option<[f64; 2]>,
    /// How many there are.
    pub count: usize,
}

/// Table 3: an arm's downloads of [`LONGEST`].
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The arm.
    pub arm: Arm,
    /// Downloads, and those that did not end.
    pub counts: (usize, usize),
    /// Bytes of those that ended, from the client and to it.
    pub bytes: [Option<Mean>; 2],
    /// The same in multiples of what a direct download costs.
    pub to_direct: [Option<f64>; 2],
    /// Seconds to the first byte.
    pub first_byte: Option<Median>,
    /// kB/s.
    pub goodput: Option<Median>,
    /// The goodput over that of Tor alone, of downloads of the same place in the same round.
    pub to_tor: Option<Median>,
    /// The greatest share of the machine that was in use.
    pub busy: f64,
}

/// Figure 7: an arm's goodputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The arm.
    pub arm: Arm,
    /// For each of [`LENGTHS`], the mean in kB/s, and of how many downloads.
    pub points: Vec<Option<(Mean, usize)>>,
}

/// A box of Figure 6: streams of a rate by an arm at a round trip.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamBox {
    /// The arm.
    pub arm: Arm,
    /// kB/s.
    pub rate: u32,
    /// ms.
    pub rtt: u32,
    /// Streams, and those of which not all bytes came.
    pub counts: (usize, usize),
    /// Hinges and median of what came to the client on the wire in a second, kB/s; all seconds of
    /// all rounds.
    pub down: [f64; 3],
    /// The median's interval.
    pub interval: Option<[f64; 2]>,
    /// The median of what left the client in a second, kB/s.
    pub up: f64,
    /// What came of the stream in a second, over its rate.
    pub held: Option<Median>,
}

impl Median {
    /// Of these; `None` of none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Median> {
        let median = Spread::of(values.iter().copied())?.median;
        Some(Median { median, interval: median_interval(values), count: values.len() })
    }
}

/// A download, and where it stands among those of its length in its round.
struct Placed<'a> {
    round: u32,
    place: usize,
    one: &'a Download,
}

/// An arm's downloads of a length, those without Tor inside left out.
fn of(records: &[Measured], arm: Arm, bytes: u32) -> Vec<Placed<'_>> {
    let of_arm = records.iter().filter(|r| (r.what, r.arm) == (What::Downloads, arm));
    of_arm
        .flat_map(|record| {
            let of_length = record.downloads.iter().filter(move |one| one.bytes == bytes);
            let round = record.round;
            of_length.enumerate().map(move |(place, one)| Placed { round, place, one })
        })
        .collect()
}

/// What `value` is of an arm's downloads of [`LONGEST`] over what it is of another arm's, download
/// by download.
#[must_use]
pub fn ratios(
    records: &[Measured],
    [arm, other]: [Arm; 2],
    value: impl Fn(&Download) -> Option<f64>,
) -> Vec<f64> {
    let others = of(records, other, LONGEST);
    let ratio = |one: Placed<'_>| {
        let twin = others.iter().find(|o| (o.round, o.place) == (one.round, one.place))?;
        Some(value(one.one)? / value(twin.one)?)
    };
    of(records, arm, LONGEST).into_iter().filter_map(ratio).collect()
}

/// Bytes of a download that ended, from the client (0) or to it (1).
pub fn crossed(way: usize) -> impl Fn(&Download) -> Option<f64> {
    move |one| one.whole.map(|_| [one.up, one.down][way] as f64)
}

/// Table 3, arm after arm.
#[must_use]
pub fn table(records: &[Measured]) -> Vec<Row> {
    Arm::ALL.iter().filter_map(|arm| row(records, *arm)).collect()
}

fn row(records: &[Measured], arm: Arm) -> Option<Row> {
    let all = of(records, arm, LONGEST);
    let values = |value: &dyn Fn(&Download) -> Option<f64>| -> Vec<f64> {
        all.iter().filter_map(|placed| value(placed.one)).collect()
    };
    let straight = of(records, Arm::Direct, LONGEST);
    let bytes = |way: usize| Mean::of(&values(&crossed(way)));
    let to_direct = |way: usize| {
        let direct: Vec<f64> = straight.iter().filter_map(|p| crossed(way)(p.one)).collect();
        Some(bytes(way)?.mean / Mean::of(&direct)?.mean)
    };
    let to_tor = ratios(records, [arm, Arm::Tor], Download::goodput);
    let busy = records.iter().filter(|record| record.arm == arm).map(|record| record.busy);
    (!all.is_empty()).then(|| Row {
        arm,
        counts: (all.len(), all.iter().filter(|placed| placed.one.whole.is_none()).count()),
        bytes: [0, 1].map(bytes),
        to_direct: [0, 1].map(to_direct),
        first_byte: Median::of(&values(&|one| one.first_byte)),
        goodput: Median::of(&values(&Download::goodput)),
        to_tor: Median::of(&to_tor),
        busy: busy.fold(0.0, f64::max),
    })
}

/// Figure 7, arm after arm.
#[must_use]
pub fn curves(records: &[Measured]) -> Vec<Curve> {
    let point = |arm: Arm, bytes: u32| {
        let all = of(records, arm, bytes);
        let goodputs: Vec<f64> = all.iter().filter_map(|placed| placed.one.goodput()).collect();
        Some((Mean::of(&goodputs)?, goodputs.len()))
    };
    let curve = |&arm: &Arm| Curve { arm, points: LENGTHS.map(|bytes| point(arm, bytes)).to_vec() };
    let curves = Arm::ALL.iter().map(curve);
    curves.filter(|curve| curve.points.iter().any(Option::is_some)).collect()
}

/// Figure 6: arm after arm, in each rate after rate, and in these all round trips.
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
    let all: Vec<&Stream> =
        there.flat_map(|record| &record.streams).filter(|one| one.rate == rate).collect();
    let seconds = |of: fn(&Stream) -> &Vec<u64>| -> Vec<f64> {
        all.iter().flat_map(|one| of(one)).map(|bytes| *bytes as f64 / 1e3).collect()
    };
    let down = seconds(|one| &one.down);
    let held: Vec<f64> =
        seconds(|one| &one.came).into_iter().map(|came| came / f64::from(rate)).collect();
    Some(StreamBox {
        arm,
        rate,
        rtt,
        counts: (all.len(), all.iter().filter(|one| one.whole.is_none()).count()),
        interval: median_interval(&down),
        down: quartiles(down)?,
        up: Spread::of(seconds(|one| &one.up))?.median,
        held: Median::of(&held),
    })
}

#[cfg(test)]
mod tests {
    use super::super::measured::tests::{measured, streamed};
    use super::*;

    #[test]
    fn a_row_is_of_all_that_ended_and_beside_tor_of_the_same_round() {
        let mut records = vec![
            measured(Arm::Direct, 0, &[(1.0, 1_000_000); 4]),
            measured(Arm::Tor, 0, &[(2.0, 1_100_000); 4]),
            measured(Arm::Opaque, 0, &[(4.0, 1_200_000); 4]),
            // No Tor stands beside this round.
            measured(Arm::Opaque, 1, &[(8.0, 1_200_000); 4]),
        ];
        records[2].downloads[3].whole = None;
        let table = table(&records);
        let row = table.iter().find(|row| row.arm == Arm::Opaque).unwrap();
        assert_eq!(row.counts, (8, 1));
        let down = row.bytes[1].unwrap();
        assert_eq!((down.mean, down.half), (1_200_000.0, 0.0));
        assert_eq!(row.to_direct, [Some(1.2), Some(1.2)]);
        let to_tor = row.to_tor.unwrap();
        assert_eq!((to_tor.median, to_tor.interval, to_tor.count), (0.5, None, 3));
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn a_curve_has_a_point_where_something_came() {
        let curves = curves(&[measured(Arm::Tor, 0, &[(2.0, 1_100_000), (4.0, 1_100_000)])]);
        assert_eq!((curves.len(), curves[0].points.len()), (1, 10));
        let (mean, count) = curves[0].points[9].unwrap();
        assert_eq!((mean.mean, count), (375.0, 2));
        assert!(curves[0].points[..9].iter().all(Option::is_none));
    }

    #[test]
    fn a_box_is_of_all_seconds() {
        let boxes = boxes(&[streamed(Arm::Text, 200, 50, 50), streamed(Arm::Text, 100, 50, 25)]);
        assert_eq!(boxes.iter().map(|one| one.rtt).collect::<Vec<_>>(), [100, 200]);
        let [low, median, high] = boxes[1].down;
        assert!((54.9..55.1).contains(&median) && low <= median && median <= high);
        let held = boxes[0].held.unwrap();
        assert!((held.median - 0.5).abs() < 0.01 && held.count == 20, "{held:?}");
    }
}
