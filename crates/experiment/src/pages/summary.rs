//! Summary of the page loads, by page.

use std::collections::BTreeMap;

use super::super::together::Attempt as _;
use super::super::{Spread, quartiles};
use super::{LoadResult, Mode};

/// Minimum share of the bytes to the client on a single path for a page load to count as nearly
/// unsplit.
pub const NEARLY_ALL: f64 = 0.95;

/// Summary of all successful loads of one page, either split or unsplit.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Time from the first request to the page's load event, in seconds, over the successful
    /// loads.
    pub seconds: Spread,
    /// Bytes of all IP packets in a page load, in both directions and on all paths.
    pub bytes: Spread,
    /// Number of packets in a page load, in both directions and on all paths.
    pub packets: Spread,
}

/// Results for one page, split and unsplit.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Name of the site.
    pub site: String,
    /// True if the attacker monitors the site.
    pub monitored: bool,
    /// HTTP version, `h2` or `h3`.
    pub http: String,
    /// Summary of the split loads of the page; `None` if none was successful.
    pub split: Option<Cell>,
    /// Summary of the unsplit loads of the page; `None` if none was successful.
    pub undefended: Option<Cell>,
}

/// Counts of attempts and page loads by their result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Counts of successful page loads: split, and unsplit.
    pub good: [usize; 2],
    /// Number of failed attempts.
    pub failed: usize,
    /// Number of planned page loads without a successful attempt so far.
    pub without: usize,
}

/// Distribution of each page load's bytes over the paths, for all successful split loads. A short
/// load changes its path only a few times. The paths' shares in one load may therefore be very
/// uneven, even if all loads together use the paths evenly.
#[derive(Clone, Debug, PartialEq)]
pub struct Evenness {
    /// Counts of page loads whose data to the client used exactly one path, two paths, and so on.
    pub by_paths: Vec<usize>,
    /// Number of page loads in which one path carried at least the share [`NEARLY_ALL`] of the
    /// bytes to the client.
    pub nearly_one: usize,
    /// Time from the first request to a page's load event, in seconds.
    pub seconds: Spread,
    /// Lower quartile, median and upper quartile, over all page loads, of the share of bytes to
    /// the client that the busiest path carried.
    pub largest: [f64; 3],
}

/// Returns the results of all pages: monitored pages first, then by name.
pub fn pages(records: &[LoadResult]) -> Vec<Page> {
    let mut by_site: BTreeMap<(bool, &str), Vec<&LoadResult>> = BTreeMap::new();
    for load in records {
        by_site.entry((!load.monitored, &load.site)).or_default().push(load);
    }
    let page = |((other, site), loads): ((bool, &str), Vec<&LoadResult>)| Page {
        site: site.to_owned(),
        monitored: !other,
        http: loads.first().map(|load| load.http.clone()).unwrap_or_default(),
        split: cell(&loads, Mode::Split),
        undefended: cell(&loads, Mode::Undefended),
    };
    by_site.into_iter().map(page).collect()
}

/// Counts the page loads by their result.
pub fn counts(records: &[LoadResult]) -> Counts {
    let mut open = std::collections::BTreeSet::new();
    let mut counts = Counts::default();
    for load in records.iter().filter(|load| load.failed().is_some()) {
        counts.failed += 1;
        open.insert(load.unit.as_str());
    }
    for load in records.iter().filter(|load| load.failed().is_none()) {
        counts.good[usize::from(load.mode == Mode::Undefended)] += 1;
        open.remove(load.unit.as_str());
    }
    counts.without = open.len();
    counts
}

/// Returns how the bytes of single page loads are distributed over the paths; `None` without a
/// successful split page load.
pub fn evenness(records: &[LoadResult]) -> Option<Evenness> {
    let largest: Vec<f64> = split(records).map(LoadResult::largest_share).collect();
    let by = |paths| split(records).filter(|load| load.used() == paths).count();
    Some(Evenness {
        by_paths: (1..=Mode::Split.paths()).map(by).collect(),
        nearly_one: largest.iter().filter(|&&share| share >= NEARLY_ALL).count(),
        seconds: Spread::of(split(records).map(|load| load.seconds))?,
        largest: quartiles(largest)?,
    })
}

/// Returns each path's share of the bytes to the client, over all successful split page loads.
pub fn shares(records: &[LoadResult]) -> Vec<f64> {
    let mut sums = vec![0u64; Mode::Split.paths()];
    for load in split(records) {
        sums.iter_mut().zip(&load.down).for_each(|(sum, bytes)| *sum += bytes);
    }
    let whole: u64 = sums.iter().sum();
    sums.into_iter().map(|sum| sum as f64 / whole.max(1) as f64).collect()
}

fn split(records: &[LoadResult]) -> impl Iterator<Item = &LoadResult> {
    records.iter().filter(|load| load.mode == Mode::Split && load.failed().is_none())
}

fn cell(loads: &[&LoadResult], mode: Mode) -> Option<Cell> {
    let good: Vec<_> =
        loads.iter().filter(|load| load.mode == mode && load.failed().is_none()).collect();
    let of = |value: fn(&LoadResult) -> f64| Spread::of(good.iter().map(|load| value(load)));
    Some(Cell {
        seconds: of(|load| load.seconds)?,
        bytes: of(|load| load.bytes() as f64)?,
        packets: of(|load| load.up_packets.iter().chain(&load.down_packets).sum::<u64>() as f64)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::loaded::tests::loaded;
    use super::*;

    fn records() -> Vec<LoadResult> {
        vec![
            LoadResult { error: "no".into(), ..loaded(Mode::Split, "b", 0) },
            LoadResult { attempt: 2, ..loaded(Mode::Split, "b", 0) },
            LoadResult { seconds: 1.5, down: vec![40_000, 0, 0], ..loaded(Mode::Split, "b", 1) },
            loaded(Mode::Undefended, "b", 0),
            LoadResult { monitored: false, ..loaded(Mode::Undefended, "a", 0) },
            LoadResult { error: "no".into(), ..loaded(Mode::Undefended, "c", 0) },
        ]
    }

    #[test]
    fn pages_have_the_medians_of_their_good_loads() {
        let pages = pages(&records());
        let names: Vec<_> = pages.iter().map(|page| (page.site.as_str(), page.monitored)).collect();
        assert_eq!(names, [("b", true), ("c", true), ("a", false)]);
        let split = pages[0].split.as_ref().unwrap();
        assert_eq!((split.seconds.median, split.seconds.count), (1.0, 2));
        assert_eq!(pages[0].undefended.as_ref().unwrap().bytes.median, 21_000.0);
        assert_eq!((&pages[1].split, &pages[1].undefended), (&None, &None));
    }

    #[test]
    fn failures_are_counted_and_what_they_left_open() {
        assert_eq!(counts(&records()), Counts { good: [2, 2], failed: 2, without: 1 });
        let shares = shares(&records());
        assert_eq!(shares, [0.6, 0.2, 0.2]);
    }

    #[test]
    fn loads_that_nearly_one_path_carries_are_told() {
        let down =
            |bytes: [u64; 3]| LoadResult { down: bytes.to_vec(), ..loaded(Mode::Split, "a", 0) };
        let failed = LoadResult { error: "no".into(), ..down([1, 0, 0]) };
        let undefended = loaded(Mode::Undefended, "a", 0);
        let split = [down([0, 10, 0]), down([40, 60, 0]), down([96, 2, 2]), down([50, 30, 20])];
        let seen = evenness(&[&split[..], &[failed, undefended.clone()]].concat()).unwrap();
        assert_eq!((seen.by_paths, seen.nearly_one), (vec![1, 1, 2], 2));
        assert_eq!(seen.largest, [0.575, 0.78, 0.97]);
        assert_eq!(seen.seconds.count, 4);
        assert_eq!(evenness(&[undefended]), None);
    }
}
