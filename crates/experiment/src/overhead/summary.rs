//! Summary of the measurements of the splitting overhead.

use super::super::Spread;
use super::{Kind, Measured, Net, System, paper};

/// Summary of all repetitions with the same settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Software that was measured.
    pub system: System,
    /// Emulated network on which the measurements were made.
    pub net: Net,
    /// Number of paths.
    pub paths: usize,
    /// Time between two random choices of the path, in milliseconds; 0 means that the path never
    /// changes.
    pub every: u32,
    /// Goodput in Mbit/s, over all repetitions.
    pub goodput: Spread,
    /// Goodput in Mbit/s of the repetitions in which each path carried enough traffic
    /// ([`Measured::counts`]); `None` if there are none.
    pub counted: Option<Spread>,
    /// Median, minimum and maximum of the paths' shares of the bytes to the client, over all paths
    /// of the repetitions in which some path carried too little ([`Measured::counts`]). `None` if
    /// there are none.
    pub uncounted: Option<Spread>,
    /// Goodput divided by the median goodput without switching; `None` if nothing was measured
    /// without switching. Includes only repetitions in which each path carried enough traffic
    /// ([`Measured::counts`]) or, if there are none, all repetitions. For QUIC, the value is then
    /// `None`, because splitting has no cost until a server follows the client to another path.
    pub kept: Option<Spread>,
    /// Longest time without arriving data in any repetition, in seconds.
    pub longest_gap: f64,
    /// Number of interrupted transfers.
    pub broken: usize,
    /// Number of repetitions that other work on the machine disturbed ([`Measured::disturbed`]).
    pub disturbed: usize,
}

/// Comparison of one program's measured splitting cost with the target. It applies to a new choice
/// of the path every 100 ms, among three paths with equal round-trip times.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Software whose measured cost is compared with the target.
    pub system: System,
    /// Minimum share of the unsplit goodput that the target requires.
    pub wanted: f64,
    /// Loss of throughput that the CoMPS paper states for this software, in the paper's words.
    pub paper: &'static str,
    /// Measured share of the unsplit goodput ([`Cell::kept`]); `None` if it is not known.
    pub kept: Option<Spread>,
    /// True if the target is reached. The value is true if at least two repetitions were made and
    /// all of them reach the target, and false if none reaches it. It is `None` if only some reach
    /// it, or if there are too few repetitions.
    pub reached: Option<bool>,
}

/// Returns a summary for each measured combination of settings, sorted by software, network,
/// number of paths and interval, with 0 (never) last.
pub fn cells(records: &[Measured]) -> Vec<Cell> {
    let key = |r: &Measured| (r.system, r.net, r.paths, r.every.wrapping_sub(1), r.every);
    let mut keys: Vec<_> = records.iter().map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    let of = |wanted: (System, Net, usize, u32, u32)| -> Vec<&Measured> {
        records.iter().filter(|r| key(r) == wanted).collect()
    };
    keys.into_iter().filter_map(|key| cell(&of(key), records)).collect()
}

/// Returns the comparison with the target for each measured software.
pub fn verdicts(cells: &[Cell]) -> Vec<Verdict> {
    let mut systems: Vec<System> = cells.iter().map(|cell| cell.system).collect();
    systems.dedup();
    systems.into_iter().map(|system| verdict(system, cells)).collect()
}

/// Returns the summary for these settings; `None` if they were not measured.
pub fn find(cells: &[Cell], system: System, net: Net, paths: usize, every: u32) -> Option<&Cell> {
    cells
        .iter()
        .find(|cell| (cell.system, cell.net, cell.paths, cell.every) == (system, net, paths, every))
}

fn cell(of: &[&Measured], all: &[Measured]) -> Option<Cell> {
    let Measured { system, net, paths, every, .. } = **of.first()?;
    let goodput = Spread::of(of.iter().map(|r| r.goodput()))?;
    let (good, bad): (Vec<&Measured>, Vec<&Measured>) = of.iter().partition(|r| r.counts());
    let counted = Spread::of(good.iter().map(|r| r.goodput()));
    let unsplit = all
        .iter()
        .filter(|r| (r.system, r.net, r.paths, r.every) == (system, net, paths, 0))
        .map(Measured::goodput);
    let unsplit = Spread::of(unsplit).map(|spread| spread.median).filter(|&median| median > 0.0);
    let judged = counted.or((system.kind() != Kind::Quic).then_some(goodput));
    let kept = judged.zip(unsplit).map(|(judged, unsplit)| scale(judged, 1.0 / unsplit));
    Some(Cell {
        system,
        net,
        paths,
        every,
        goodput,
        counted,
        uncounted: Spread::of(bad.iter().flat_map(|r| r.shares())),
        kept,
        longest_gap: of.iter().map(|r| r.longest_gap).fold(0.0, f64::max),
        broken: of.iter().filter(|r| !r.error.is_empty()).count(),
        disturbed: of.iter().filter(|r| r.disturbed()).count(),
    })
}

fn verdict(system: System, cells: &[Cell]) -> Verdict {
    let (wanted, paper) = paper::target(system.kind());
    let kept = find(cells, system, Net::Equal, 3, 100).and_then(|cell| cell.kept);
    let reached = kept.filter(|kept| kept.count > 1).and_then(|kept| {
        let (all, none) = (kept.least >= wanted, kept.most < wanted);
        (all || none).then_some(all)
    });
    Verdict { system, wanted, paper, kept, reached }
}

fn scale(spread: Spread, by: f64) -> Spread {
    let Spread { median, least, most, count } = spread;
    Spread { median: median * by, least: least * by, most: most * by, count }
}

#[cfg(test)]
mod tests {
    use super::super::measured::tests::measured;
    use super::*;

    fn quinn(every: u32, mbits: &[f64]) -> Vec<Measured> {
        mbits.iter().map(|&mbits| measured(System::Quinn, every, mbits)).collect()
    }

    #[test]
    fn what_is_kept_is_a_share_of_the_unsplit_median() {
        let cells = cells(&[quinn(0, &[90.0, 100.0, 80.0]), quinn(100, &[70.0, 72.0])].concat());
        assert_eq!(cells.iter().map(|cell| cell.every).collect::<Vec<_>>(), [100, 0]);
        let kept = cells[0].kept.unwrap();
        assert!((kept.median - 71.0 / 90.0).abs() < 1e-6, "{kept:?}");
        assert_eq!((kept.count, cells[1].goodput.count), (2, 3));
    }

    #[test]
    fn a_target_is_reached_by_all_runs_or_missed_by_all() {
        let reached = |mbits: &[f64]| {
            let records = [quinn(0, &[100.0]), quinn(100, mbits)].concat();
            verdicts(&cells(&records)).remove(0).reached
        };
        assert_eq!(reached(&[81.0, 99.0]), Some(true));
        assert_eq!(reached(&[60.0, 79.0]), Some(false));
        assert_eq!(reached(&[79.0, 81.0, 90.0]), None, "runs on both sides");
        assert_eq!(reached(&[95.0]), None, "one run is not a run");
        assert_eq!(reached(&[]), None);
    }

    #[test]
    fn of_quic_only_what_counts_has_a_share_and_is_judged() {
        let mut records = [quinn(0, &[100.0]), quinn(100, &[90.0, 91.0])].concat();
        assert_eq!(verdicts(&cells(&records))[0].reached, Some(true));
        assert_eq!(cells(&records)[0].uncounted, None);
        let unsplit = |record: &mut Measured| record.down = vec![80, 19, 1];
        records.iter_mut().filter(|r| r.every == 100).for_each(unsplit);
        let cells = cells(&records);
        let verdict = verdicts(&cells).remove(0);
        assert_eq!((verdict.kept, verdict.reached), (None, None));
        assert_eq!((cells[0].kept, cells[0].counted), (None, None));
        let shares = cells[0].uncounted.unwrap();
        assert_eq!((shares.least, shares.most, cells[0].goodput.count), (0.01, 0.8, 2));
    }

    #[test]
    fn what_is_no_quic_has_a_share_although_it_was_split_unevenly() {
        let mosh = |every, mbits| measured(System::Mosh, every, mbits);
        let uneven = Measured { down: vec![80, 19, 1], ..mosh(100, 0.9) };
        let cells = cells(&[mosh(0, 1.0), uneven]);
        assert_eq!((cells[0].counted, cells[0].kept.unwrap().count), (None, 1));
    }
}
