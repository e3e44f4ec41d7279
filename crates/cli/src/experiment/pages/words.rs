//! What is said of the loads in words and numbers.

use std::collections::BTreeSet;

use anabranch_experiment::Spread;
use anabranch_experiment::pages::summary::{
    Cell, Counts, Evenness, NEARLY_ALL, Page, counts, evenness, shares,
};
use anabranch_experiment::pages::{Loaded, RATE, RTTS};
use anabranch_os::shell;
use serde_json::Value;

use super::super::common::{disturbance, splitter};
use super::super::numbers::between;
use crate::html::figures::{grouped, percent};

/// All that the page, the data sheet and the terminal tell.
pub(super) struct Subject<'a> {
    /// The journal's first line.
    pub(super) header: &'a Value,
    pub(super) records: &'a [Loaded],
    pub(super) pages: &'a [Page],
}

impl Subject<'_> {
    pub(super) fn counts(&self) -> Counts {
        counts(self.records)
    }

    /// The words that the splitter was given, and its default.
    pub(super) fn schedule(&self) -> String {
        let default = self.header["default"].as_str().unwrap_or("not noted");
        let words = splitter(self.header);
        let words = if words.is_empty() { words } else { words + "; where that leaves it open, " };
        format!("{words}the splitter's default, {default}")
    }

    /// What each path carries, in megabits a second.
    pub(super) fn rate(&self) -> f64 {
        self.header["rate"].as_f64().unwrap_or(RATE)
    }

    /// Who splits what the server sends.
    pub(super) fn far_end(&self) -> String {
        let Some(words) = self.header["far_end"].as_array() else {
            return "none: the tunnel's server is unaltered, and follows the client".to_owned();
        };
        let words = shell::line(words.iter().filter_map(Value::as_str));
        let command = format!("anabranch merge {words}");
        let command = command.trim_end();
        format!(
            "where it splits, `{command}` stands before the tunnel's server, and splits by a \
             schedule of its own"
        )
    }
}

/// What came of a load.
pub(super) fn outcome(load: &Loaded) -> String {
    if load.error.is_empty() {
        format!("{:.2} s, {} kB", load.seconds, grouped(load.bytes() / 1000))
    } else {
        format!("given up: {}", load.error)
    }
}

/// The median over pages of the time split by the time undefended; `None` without a page in both
/// modes.
pub(super) fn slower(pages: &[Page], of: fn(&Cell) -> f64) -> Option<Spread> {
    let ratio = |page: &Page| {
        let (split, plain) = (page.split.as_ref()?, page.undefended.as_ref()?);
        Some(of(split) / of(plain)).filter(|ratio| ratio.is_finite())
    };
    Spread::of(pages.iter().filter_map(ratio))
}

/// How many loads there are and how they fared.
pub(super) fn loads(counts: &Counts) -> String {
    let Counts { good: [split, undefended], failed, without } = counts;
    format!(
        "{split} loads split and {undefended} undefended; {failed} attempts failed, {without} loads have no good attempt"
    )
}

/// The shares of the paths of the downlink.
pub(super) fn path_shares(records: &[Loaded]) -> String {
    let told = shares(records).into_iter().zip(RTTS);
    let told: Vec<_> =
        told.map(|(share, rtt)| format!("{} by the path of {rtt} ms", percent(share))).collect();
    told.join(", ")
}

/// How the paths share single loads; empty without split loads.
pub(super) fn sharing(records: &[Loaded]) -> String {
    let Some(Evenness { by_paths, nearly_one, seconds, largest }) = evenness(records) else {
        return String::new();
    };
    let told: Vec<_> =
        (1..).zip(by_paths).map(|(paths, loads)| format!("{loads} by {paths}")).collect();
    let [lower, median, upper] = largest.map(percent);
    format!(
        "Single loads are shared less evenly than all together: they are short (median {:.2} s until the load event). Loads by the \
         number of paths that brought something: {}. The path that brought most of a load brought {median} of its downlink (median; \
         quartiles {lower} and {upper}), in {nearly_one} of {} loads {:.0} % or more: its observer saw those nearly whole.",
        seconds.median,
        told.join(", "),
        seconds.count,
        NEARLY_ALL * 100.0,
    )
}

/// The attempts that failed: reason, and how often.
pub(super) fn failures(records: &[Loaded]) -> Vec<(String, usize)> {
    let mut reasons = std::collections::BTreeMap::<&str, usize>::new();
    for load in records.iter().filter(|load| !load.error.is_empty()) {
        *reasons.entry(&load.error).or_default() += 1;
    }
    let mut all: Vec<_> = reasons.into_iter().map(|(why, n)| (why.to_owned(), n)).collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all
}

/// How disturbed the machine was, and how long loads took.
pub(super) fn machine(records: &[Loaded]) -> String {
    let Some(took) = Spread::of(records.iter().map(|record| record.took)) else {
        return "Nothing was loaded yet.".to_owned();
    };
    let browsers: BTreeSet<_> = records.iter().map(|record| record.browsers).collect();
    let browsers: Vec<_> = browsers.into_iter().map(|n| n.to_string()).collect();
    format!(
        "{} A load took {:.1} s ({:.1} s), its browser's start included; browsers at once: {}.",
        disturbance(records.iter().map(|record| record.machine)),
        took.median,
        took.most,
        browsers.join(", "),
    )
}

/// The results for a terminal.
pub(super) fn plain(subject: &Subject<'_>) -> String {
    let mut text = format!("{}.", loads(&subject.counts()));
    if let Some(ratio) = slower(subject.pages, |cell| cell.seconds.median) {
        let of = between(ratio, 1.0, 2);
        text += &format!("\nLoad times split by undefended, over pages: {of}.");
    }
    if subject.counts().good[0] > 0 {
        text += &format!("\nOf the split downlink: {}.", path_shares(subject.records));
        text += &format!("\n{}", sharing(subject.records));
    }
    text
}
