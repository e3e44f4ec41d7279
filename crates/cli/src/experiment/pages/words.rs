//! Texts and numbers that describe the page loads, with and without splitting.

use std::collections::BTreeSet;

use anabranch_experiment::Spread;
use anabranch_experiment::pages::summary::{
    Cell, Counts, Evenness, NEARLY_ALL, Page, counts, evenness, shares,
};
use anabranch_experiment::pages::{LoadResult, RATE, RTTS};
use anabranch_os::shell;
use anabranch_pages::figures::{grouped, percent};
use serde_json::Value;

use super::super::common::{disturbance, splitter};
use super::super::numbers::between;

/// Data for the HTML page, the data sheet and the terminal output.
pub(super) struct ReportData<'a> {
    /// First line of the journal `units.jsonl`: the settings, and the program and machine of the
    /// measurements.
    pub(super) header: &'a Value,
    pub(super) records: &'a [LoadResult],
    pub(super) pages: &'a [Page],
}

impl ReportData<'_> {
    pub(super) fn counts(&self) -> Counts {
        counts(self.records)
    }

    /// Describes how the splitter chose paths: the additional arguments of `anabranch split`, and
    /// the splitter's default schedule.
    pub(super) fn schedule(&self) -> String {
        let default = self.header["default"].as_str().unwrap_or("not noted");
        let words = splitter(self.header);
        let words = if words.is_empty() { words } else { words + "; for all else " };
        format!("{words}the splitter's default, {default}")
    }

    /// Returns the rate of each path in Mbit/s.
    pub(super) fn rate(&self) -> f64 {
        self.header["rate"].as_f64().unwrap_or(RATE)
    }

    /// Returns the names of the paths over which page loads are split.
    pub(super) fn paths(&self) -> [String; RTTS.len()] {
        std::array::from_fn(|path| match self.has_circuits() {
            true => format!("circuit {}", path + 1),
            false => format!("the path with a round-trip time of {} ms", RTTS[path]),
        })
    }

    /// Returns whether page loads are split over circuits of an onion network instead of the
    /// emulated paths.
    pub(super) fn has_circuits(&self) -> bool {
        self.header["onion"] == true
    }

    /// Describes the circuits over which page loads are split. Returns an empty text if the loads
    /// are split over the emulated paths.
    pub(super) fn circuits(&self) -> &'static str {
        match self.has_circuits() {
            true => {
                " Split loads use three circuits of an onion network on the client's host \
                 (anabranch up: seven relays on its loopback interface) and no other path. The \
                 exits of these circuits reach the far end over the first emulated path, which \
                 has no other traffic then."
            }
            false => "",
        }
    }

    /// Describes the far end (`anabranch merge` in front of the server), which splits the
    /// downlink. Without a far end, describes the unmodified server.
    pub(super) fn far_end(&self) -> String {
        let Some(words) = self.header["far_end"].as_array() else {
            return "none: the tunnel's server is unmodified, and answers on the path of the \
                    client's most recent packet"
                .to_owned();
        };
        let words = shell::line(words.iter().filter_map(Value::as_str));
        let command = format!("anabranch merge {words}");
        let command = command.trim_end();
        format!(
            "in split loads, `{command}` runs in front of the tunnel's server, and splits the \
             server's packets by a schedule of its own"
        )
    }
}

/// Describes the result of a load in a few words.
pub(super) fn outcome(load: &LoadResult) -> String {
    if load.error.is_empty() {
        format!("{:.2} s, {} kB", load.seconds, grouped(load.bytes() / 1000))
    } else {
        format!("failed: {}", load.error)
    }
}

/// Returns the ratio of a page's value with splitting to its value without splitting, as median
/// and range over pages. `of` selects the value: load time or size. Returns `None` if no page has
/// loads in both modes.
pub(super) fn slower(pages: &[Page], of: fn(&Cell) -> f64) -> Option<Spread> {
    let ratio = |page: &Page| {
        let (split, plain) = (page.split.as_ref()?, page.undefended.as_ref()?);
        Some(of(split) / of(plain)).filter(|ratio| ratio.is_finite())
    };
    Spread::of(pages.iter().filter_map(ratio))
}

/// Describes how many loads were made and how many failed.
pub(super) fn loads(counts: &Counts) -> String {
    let Counts { good: [split, undefended], failed, without } = counts;
    format!(
        "{split} split loads and {undefended} undefended loads; {failed} attempts failed, and \
         {without} loads failed in all attempts"
    )
}

/// Formats the share of the downlink bytes that each path carried.
pub(super) fn path_shares(report_data: &ReportData<'_>) -> String {
    let shares = shares(report_data.records).into_iter().zip(report_data.paths());
    let shares: Vec<_> =
        shares.map(|(share, path)| format!("{} over {path}", percent(share))).collect();
    shares.join(", ")
}

/// Describes how evenly the paths share the traffic of a single load. The text is empty if no load
/// was split.
pub(super) fn sharing(records: &[LoadResult]) -> String {
    let Some(Evenness { by_paths, nearly_one, seconds, largest }) = evenness(records) else {
        return String::new();
    };
    let parts: Vec<_> =
        (1..).zip(by_paths).map(|(paths, loads)| format!("{loads} over {paths}")).collect();
    let [lower, median, upper] = largest.map(percent);
    format!(
        "The bytes of a single page load are spread over the paths less evenly than those of all \
         loads together, because loads are short (median {:.2} s until the load event). Number of \
         loads by the number of paths that carried any of their bytes: {}. The busiest path of a \
         load carried {median} of the load's downlink bytes (median over loads; quartiles {lower} \
         and {upper}). In {nearly_one} of {} loads the busiest path carried {:.0} % or more, so \
         that its observer saw nearly the whole load.",
        seconds.median,
        parts.join(", "),
        seconds.count,
        NEARLY_ALL * 100.0,
    )
}

/// Returns the reasons of failed attempts, each with its number of attempts.
pub(super) fn failures(records: &[LoadResult]) -> Vec<(String, usize)> {
    let mut reasons = std::collections::BTreeMap::<&str, usize>::new();
    for load in records.iter().filter(|load| !load.error.is_empty()) {
        *reasons.entry(&load.error).or_default() += 1;
    }
    let mut all: Vec<_> = reasons.into_iter().map(|(why, n)| (why.to_owned(), n)).collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all
}

/// Describes the load of the machine by other work, the durations of page loads in seconds, and
/// the number of simultaneous loads.
pub(super) fn machine(records: &[LoadResult]) -> String {
    let Some(elapsed) = Spread::of(records.iter().map(|record| record.elapsed)) else {
        return "No page was loaded yet.".to_owned();
    };
    let browsers: BTreeSet<_> = records.iter().map(|record| record.browsers).collect();
    let browsers: Vec<_> = browsers.into_iter().map(|n| n.to_string()).collect();
    format!(
        "{} The median load took {:.1} s (longest: {:.1} s), including the start of its browser. \
         Number of browsers that ran at the same time: {}.",
        disturbance(records.iter().map(|record| record.machine)),
        elapsed.median,
        elapsed.most,
        browsers.join(", "),
    )
}

/// Returns the results as text for a terminal.
pub(super) fn plain(report_data: &ReportData<'_>) -> String {
    let mut text = format!("{}.", loads(&report_data.counts()));
    if let Some(ratio) = slower(report_data.pages, |cell| cell.seconds.median) {
        let of = between(ratio, 1.0, 2);
        text += &format!(
            "\nLoad time of split loads divided by that of undefended loads, median over pages \
             (lowest–highest): {of}."
        );
    }
    if report_data.counts().good[0] > 0 {
        text += &format!("\nDownlink bytes of split loads: {}.", path_shares(report_data));
        text += &format!("\n{}", sharing(report_data.records));
    }
    text
}
