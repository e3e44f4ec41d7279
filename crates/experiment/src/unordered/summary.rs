//! Summary of all measurements of the experiment with unordered links.

use super::super::{Mean, Spread, quartiles, spread};
use super::measured::{CellDelays, Measured};
use super::paper;
use super::plan::{Arm, Line};

/// Summary of the downloads over one kind of link and one kind of network line, in all rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Kind of link, and relays, of the downloads.
    pub arm: Arm,
    /// Properties of the emulated network lines that connect the relays of the path.
    pub line: Line,
    /// Number of rounds (passes over all settings), and number of downloads in all rounds
    /// together.
    pub counts: (usize, usize),
    /// Number of downloads that were cut off or failed.
    pub unfinished: usize,
    /// Times of completed downloads in seconds, sorted from the shortest.
    pub times: Vec<f64>,
    /// Share of downloads that are complete at the paper's [`paper::MOMENT`]: the mean over the
    /// rounds.
    pub done: Option<Mean>,
    /// CPU time that guard, middle and exit used per round, in seconds.
    pub cpu: [f64; 3],
    /// Maximum, over the rounds, of the share of the machine's CPU time that was in use.
    pub busy: f64,
}

/// Comparison of one kind of link with ordered links, over the same network lines with the same
/// random numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairing {
    /// Kind of link that is compared with ordered links of our relays.
    pub arm: Arm,
    /// Properties of the emulated network lines that connect the relays of the path.
    pub line: Line,
    /// Share of this kind's downloads that are complete at the time at which [`paper::ORDERED`] of
    /// the downloads over ordered links are complete: at most one value per round.
    pub done: Vec<f64>,
    /// Median over downloads of the time over this kind of link, divided by the time over ordered
    /// links: at most one value per round.
    pub ratios: Vec<f64>,
}

/// Summary of the measurements of a single link over one kind of network line.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkRow {
    /// Properties of the network line: loss, delay variation and congestion control.
    pub line: Line,
    /// Number of rounds (passes over all settings).
    pub rounds: usize,
    /// Number of cells that the sender was to send, and number of cells that arrived.
    pub cells: (u64, u64),
    /// Share of cells that arrived before TCP delivered them in order ([`CellDelays::early`]);
    /// `None` if no cells were measured.
    pub early: Option<Mean>,
    /// Mean delays of cells in ms for three rules of delivery: in the order of sending, in the
    /// order within each circuit, and immediately on arrival.
    pub delays: [Option<Mean>; 3],
    /// The 90 % quantiles of the delays in ms, for the same three rules of delivery as in
    /// `delays`.
    pub p90: [Option<Mean>; 3],
    /// Mean delay if only the order within each circuit is kept, divided by the mean delay in the
    /// order of sending, in the same round.
    pub ratio: Option<Mean>,
}

impl Curve {
    /// Returns the share of all downloads that completed within `seconds` seconds.
    #[must_use]
    pub fn done(&self, seconds: f64) -> f64 {
        let done = self.times.partition_point(|time| *time <= seconds);
        done as f64 / self.counts.1.max(1) as f64
    }

    /// Returns lower quartile, median and upper quartile of the times of completed downloads;
    /// `None` if none completed.
    #[must_use]
    pub fn quartiles(&self) -> Option<[f64; 3]> {
        quartiles(self.times.iter().copied())
    }
}

fn lines(records: &[Measured]) -> Vec<Line> {
    let mut lines: Vec<Line> = records.iter().map(|record| record.line).collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

fn of(records: &[Measured], arm: Arm, line: Line) -> Vec<&Measured> {
    records.iter().filter(|record| (record.arm, record.line) == (arm, line)).collect()
}

/// Returns a summary of the downloads for each kind of network line and kind of link, sorted by
/// line, then by kind of link.
#[must_use]
pub fn curves(records: &[Measured]) -> Vec<Curve> {
    let keys = lines(records).into_iter();
    let keys = keys.flat_map(|line| Arm::DOWNLOADS.map(|arm| (arm, line)));
    keys.filter_map(|(arm, line)| curve(&of(records, arm, line), arm, line)).collect()
}

fn curve(of: &[&Measured], arm: Arm, line: Line) -> Option<Curve> {
    let mut times: Vec<f64> = of.iter().flat_map(|record| record.times()).collect();
    times.sort_by(f64::total_cmp);
    let all = of.iter().map(|record| record.downloads.len()).sum();
    let done: Vec<f64> = of.iter().map(|record| record.done(paper::MOMENT)).collect();
    let mean = |at: usize| of.iter().map(|r| r.cpu[at]).sum::<f64>() / of.len() as f64;
    (!of.is_empty()).then(|| Curve {
        arm,
        line,
        counts: (of.len(), all),
        unfinished: all - times.len(),
        times,
        done: Mean::of(&done),
        cpu: [0, 1, 2].map(mean),
        busy: of.iter().map(|record| record.busy).fold(0.0, f64::max),
    })
}

/// Compares each kind of link with ordered links ([`Arm::Ordered`]), over all network lines on
/// which both were measured.
#[must_use]
pub fn pairings(records: &[Measured]) -> Vec<Pairing> {
    let arms = Arm::DOWNLOADS.into_iter().filter(|arm| *arm != Arm::Ordered);
    let keys = lines(records).into_iter().flat_map(|line| arms.clone().map(move |arm| (arm, line)));
    let pairing = |(arm, line)| {
        let ordered = of(records, Arm::Ordered, line);
        let twin = |one: &&Measured| ordered.iter().find(|other| other.round == one.round).copied();
        let pairs: Vec<_> =
            of(records, arm, line).into_iter().filter_map(|one| Some((one, twin(&one)?))).collect();
        let done = pairs
            .iter()
            .filter_map(|(one, ordered)| Some(one.done(ordered.moment(paper::ORDERED)?)))
            .collect();
        let ratios = pairs.iter().filter_map(|(one, ordered)| ratio(one, ordered)).collect();
        (!pairs.is_empty()).then_some(Pairing { arm, line, done, ratios })
    };
    keys.filter_map(pairing).collect()
}

/// Returns the median, over the downloads, of a download's time in `one` divided by its time in
/// `ordered`. The ratio is infinite for a download that is incomplete only in `one`, and 0 for a
/// download that is incomplete only in `ordered`. Returns `None` if the median is infinite or no
/// download completed.
fn ratio(one: &Measured, ordered: &Measured) -> Option<f64> {
    let pairs = one.downloads.iter().zip(&ordered.downloads);
    let ratios = pairs.filter_map(|(one, ordered)| match (one.whole, ordered.whole) {
        (Some(one), Some(ordered)) => spread::ratio(one, ordered),
        (Some(_), None) => Some(0.0),
        (None, Some(_)) => Some(f64::INFINITY),
        (None, None) => None,
    });
    Spread::of(ratios).map(|spread| spread.median).filter(|median| median.is_finite())
}

/// Returns the mean delay of cells if only the order within each circuit is kept, divided by their
/// mean delay in the order of sending. Returns `None` if the latter is 0.
fn slower(cells: &CellDelays) -> Option<f64> {
    spread::ratio(cells.by_circuit.mean, cells.in_order.mean)
}

/// Summarises all measurements of single links, by kind of network line.
#[must_use]
pub fn links(records: &[Measured]) -> Vec<LinkRow> {
    let row = |line| {
        let of: Vec<CellDelays> =
            of(records, Arm::Cells, line).iter().filter_map(|record| record.cells).collect();
        let mean = |value: &dyn Fn(&CellDelays) -> f64| {
            Mean::of(&of.iter().map(value).collect::<Vec<_>>())
        };
        let orders = |value: &dyn Fn(&super::Delays) -> f64| {
            [
                mean(&|cells| value(&cells.in_order)),
                mean(&|cells| value(&cells.by_circuit)),
                mean(&|cells| value(&cells.unordered)),
            ]
        };
        let sum =
            |count: fn(&CellDelays) -> u32| of.iter().map(|cells| u64::from(count(cells))).sum();
        (!of.is_empty()).then(|| LinkRow {
            line,
            rounds: of.len(),
            cells: (sum(|cells| cells.wanted), sum(|cells| cells.received)),
            early: mean(&|cells| cells.early),
            delays: orders(&|delays| delays.mean),
            p90: orders(&|delays| delays.ranks[1]),
            ratio: Mean::of(&of.iter().filter_map(slower).collect::<Vec<_>>()),
        })
    };
    lines(records).into_iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::Median;
    use super::super::measured::tests::{LINE, link, measured};
    use super::*;

    /// Returns ten rounds in which downloads over unordered links take half as long, and five
    /// rounds of a single link.
    fn records() -> Vec<Measured> {
        let times = |factor: f64, round: u32| {
            (1..40).map(|at| f64::from(at * (round + 1)) * factor).collect::<Vec<_>>()
        };
        let both = |round| {
            let ordered = measured(Arm::Ordered, round, &times(1.0, round));
            [ordered, measured(Arm::Unordered, round, &times(0.5, round))]
        };
        (0..10).flat_map(both).chain((0..5).map(|round| link(round, 100.0, 60.0))).collect()
    }

    #[test]
    fn curves_count_what_was_cut() {
        let curves = curves(&records());
        assert_eq!(curves.len(), 2);
        let ordered = &curves[0];
        assert_eq!(
            (ordered.arm, ordered.counts, ordered.unfinished),
            (Arm::Ordered, (10, 400), 10)
        );
        assert_eq!(ordered.done(f64::MAX), 390.0 / 400.0);
        assert!(ordered.done(5.0) < curves[1].done(5.0));
        assert!((ordered.done.unwrap().mean - ordered.done(5.0)).abs() < 1e-9);
    }

    #[test]
    fn arms_are_compared_round_by_round() {
        let pairings = pairings(&records());
        assert_eq!(pairings.len(), 1, "there is no stock arm");
        let done = Median::of(&pairings[0].done).unwrap();
        // The 12th of 40 ordered downloads (30 %) sets the time. At this time, 24 unordered
        // downloads are complete.
        assert_eq!((done.median, done.interval, done.count), (0.6, Some([0.6, 0.6]), 10));
        let ratio = Median::of(&pairings[0].ratios).unwrap();
        assert_eq!((ratio.median, pairings[0].line), (0.5, LINE));
    }

    #[test]
    fn a_download_that_was_cut_on_one_side_counts_for_the_other() {
        let mut ordered = measured(Arm::Ordered, 0, &[1.0, 1.0, 1.0]);
        let mut faster = measured(Arm::Unordered, 0, &[0.5, 0.5, 0.5]);
        ordered.downloads[..2].iter_mut().for_each(|one| one.whole = None);
        assert_eq!(ratio(&faster, &ordered), Some(0.0));
        assert_eq!(ratio(&ordered, &faster), None, "endless");
        faster.downloads.iter_mut().for_each(|one| one.whole = None);
        assert_eq!(pairings(&[faster])[..], []);
    }

    #[test]
    fn a_link_is_compared_with_itself() {
        let rows = links(&records());
        let ratio = rows[0].ratio.unwrap();
        assert_eq!((rows.len(), rows[0].rounds, rows[0].cells), (1, 5, (500, 495)));
        assert!((ratio.mean - 0.6).abs() < 1e-9 && ratio.half < 1e-9);
    }
}
