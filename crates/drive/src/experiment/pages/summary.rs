//! What the loads amount to, page by page.

use std::collections::BTreeMap;

use super::super::Spread;
use super::super::together::Attempt as _;
use super::{Loaded, Mode};

/// All good loads of a page in one mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Until the load event, in seconds.
    pub seconds: Spread,
    /// Bytes of IP packets, both directions, all paths.
    pub bytes: Spread,
    /// Packets.
    pub packets: Spread,
}

/// A page, split and undefended.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The site's name.
    pub site: String,
    /// Whether it is monitored.
    pub monitored: bool,
    /// `h2` or `h3`.
    pub http: String,
    /// Split; `None` without a good load.
    pub split: Option<Cell>,
    /// Undefended.
    pub undefended: Option<Cell>,
}

/// How often loads fared how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Good loads, split and undefended.
    pub good: [usize; 2],
    /// Attempts that failed.
    pub failed: usize,
    /// Loads that failed and have no good attempt (yet).
    pub without: usize,
}

/// All pages: monitored first, then by name.
pub fn pages(records: &[Loaded]) -> Vec<Page> {
    let mut by_site: BTreeMap<(bool, &str), Vec<&Loaded>> = BTreeMap::new();
    for load in records {
        by_site.entry((!load.monitored, &load.site)).or_default().push(load);
    }
    let page = |((other, site), loads): ((bool, &str), Vec<&Loaded>)| Page {
        site: site.to_owned(),
        monitored: !other,
        http: loads.first().map(|load| load.http.clone()).unwrap_or_default(),
        split: cell(&loads, Mode::Split),
        undefended: cell(&loads, Mode::Undefended),
    };
    by_site.into_iter().map(page).collect()
}

/// How many loads there are.
pub fn counts(records: &[Loaded]) -> Counts {
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

/// The share of the downlink's bytes that each path carried, over all good split loads.
pub fn shares(records: &[Loaded]) -> Vec<f64> {
    let mut sums = vec![0u64; Mode::Split.paths()];
    for load in records.iter().filter(|l| l.mode == Mode::Split && l.failed().is_none()) {
        sums.iter_mut().zip(&load.down).for_each(|(sum, bytes)| *sum += bytes);
    }
    let whole: u64 = sums.iter().sum();
    sums.into_iter().map(|sum| sum as f64 / whole.max(1) as f64).collect()
}

fn cell(loads: &[&Loaded], mode: Mode) -> Option<Cell> {
    let good: Vec<_> =
        loads.iter().filter(|load| load.mode == mode && load.failed().is_none()).collect();
    let of = |value: fn(&Loaded) -> f64| Spread::of(good.iter().map(|load| value(load)));
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

    fn records() -> Vec<Loaded> {
        vec![
            Loaded { error: "no".into(), ..loaded(Mode::Split, "b", 0) },
            Loaded { attempt: 2, ..loaded(Mode::Split, "b", 0) },
            Loaded { seconds: 1.5, down: vec![40_000, 0, 0], ..loaded(Mode::Split, "b", 1) },
            loaded(Mode::Undefended, "b", 0),
            Loaded { monitored: false, ..loaded(Mode::Undefended, "a", 0) },
            Loaded { error: "no".into(), ..loaded(Mode::Undefended, "c", 0) },
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
}
