//! Texts about the results of the experiment `wide`, shared by the HTML page, the Markdown file
//! and the terminal output.

use std::collections::BTreeSet;

use anabranch_experiment::Mean;
use anabranch_experiment::wide::claims::{Claim, MEASURES, Verdict};
use anabranch_experiment::wide::summary::{Ratio, by_run, mean, of};
use anabranch_experiment::wide::{Arm, Measured, arms};
use anabranch_pages::figures::grouped;
use serde_json::Value;

/// Data for the HTML page, the SVG files, the Markdown file and the terminal output.
pub(super) struct ReportData<'a> {
    /// First line of the journal `units.jsonl`: the settings, and the program of the simulations.
    pub(super) header: &'a Value,
    /// Results of all simulations.
    pub(super) records: &'a [Measured],
    /// Claims of "Analysis of Multi-path Onion Routing", each with its verdict.
    pub(super) claims: &'a [Claim],
    /// Number of simulated clients in the networks for which Figures 2 and 3 are drawn.
    pub(super) clients: usize,
}

impl ReportData<'_> {
    /// Returns the arms (designs with schedule and number of paths) that were simulated.
    pub(super) fn arms(&self) -> Vec<Arm> {
        let has = |arm: &Arm| of(self.records, arm, self.clients).next().is_some();
        arms().into_iter().filter(has).collect()
    }

    /// Returns the counts of clients for which the network was simulated.
    pub(super) fn steps(&self) -> BTreeSet<usize> {
        self.records.iter().map(|run| run.clients).collect()
    }
}

/// Describes a simulation in a few words.
pub(super) fn outcome(run: &Measured) -> String {
    let (web, bulk) = (&run.web, &run.bulk);
    let speed = run.bulk.last_median().map_or("–".to_owned(), |time| format!("{time:.1} s"));
    format!(
        "{} downloads, {} failed; the median bulk download took {speed}; exits used {:.0} % of \
         the capacity of their network connections",
        web.downloads + bulk.downloads,
        web.failed + bulk.failed,
        run.loads[1] * 100.0
    )
}

/// Describes the experiment in a few sentences.
pub(super) fn description(report_data: &ReportData<'_>) -> String {
    let number = |key: &str| grouped(report_data.header[key].as_u64().unwrap_or(0));
    let seconds = |key: &str| report_data.header[key].as_u64().unwrap_or(0);
    let lines = match report_data.header["lines"].as_str() {
        Some("tor-2018") => "the whole bandwidth of Tor relays of 2018",
        _ => "the bandwidth that Tor relays of 2018 left unused",
    };
    let events: u64 = report_data.records.iter().map(|run| run.events).sum();
    format!(
        "There were {} simulations of {} randomly drawn networks, with {} {} each and up to {} \
         clients. Each simulation covers {} seconds after a warm-up of {} s. Relays have {lines}. \
         In total {} events were simulated",
        grouped(report_data.records.len() as u64),
        number("networks"),
        number("seeds"),
        if number("seeds") == "1" { "seed" } else { "seeds" },
        number("clients"),
        grouped(seconds("seconds").saturating_sub(seconds("warm_up"))),
        number("warm_up"),
        grouped(events),
    )
}

/// Lists the settings that are smaller than in the paper or in the default experiment.
pub(super) fn reduced(report_data: &ReportData<'_>) -> String {
    let of = |key: &str| report_data.header[key].as_u64().unwrap_or(0);
    let measured = of("seconds").saturating_sub(of("warm_up"));
    let all = [
        (of("clients") < 228, format!("{} instead of 228 clients", of("clients"))),
        (
            measured < 7200,
            format!("{measured} simulated seconds instead of two hours for each simulation"),
        ),
        (of("warm_up") < 300, format!("a warm-up of {} s instead of 300 s", of("warm_up"))),
        (of("networks") < 5, format!("{} instead of 5 drawn networks", of("networks"))),
        (of("seeds") < 2, format!("{} instead of 2 seeds", of("seeds"))),
        (report_data.header["three_paths"] == false, "no designs with three paths".to_owned()),
    ];
    let parts: Vec<String> = all.into_iter().filter(|(is, _)| *is).map(|(_, text)| text).collect();
    format!("This measurement is smaller than the full one: {}", parts.join("; "))
}

fn interval(mean: Mean, digits: usize) -> String {
    match mean.half.is_finite() {
        true => format!("{:.digits$} ± {:.digits$}", mean.mean, mean.half),
        false => format!("{:.digits$}", mean.mean),
    }
}

fn ratio(ratio: Option<Ratio>) -> String {
    match ratio {
        None => "–".to_owned(),
        Some(ratio) if ratio.networks < 2 => format!("{:.2}", ratio.ratio),
        Some(Ratio { ratio, low, high, .. }) => format!("{ratio:.2} ({low:.2} to {high:.2})"),
    }
}

/// Column headings of the table of the paper's claims.
pub(super) const CLAIM_HEAD: [&str; 5] =
    ["claim of the paper", "figure", "design", "our ratio", "verdict"];

/// Returns the paper's claims as rows of a table. The headings are [`CLAIM_HEAD`].
pub(super) fn claim_rows(claims: &[Claim]) -> Vec<Vec<String>> {
    let row = |claim: &Claim| {
        vec![
            claim.statement.to_owned(),
            claim.figure.to_owned(),
            claim.design.clone(),
            ratio(claim.ours),
            claim.verdict.words(),
        ]
    };
    claims.iter().map(row).collect()
}

/// Returns a sentence with the number of claims for each verdict: claims that hold, that do not
/// hold, and that cannot be judged.
pub(super) fn counts(claims: &[Claim]) -> String {
    let count = |is: fn(Verdict) -> bool| claims.iter().filter(|one| is(one.verdict)).count();
    format!(
        "Of {} rows (claims of the paper, each for one design), {} hold, {} do not hold, and {} \
         cannot be judged.",
        claims.len(),
        count(|one| one == Verdict::Holds),
        count(|one| one == Verdict::HoldsNot),
        count(|one| matches!(one, Verdict::Open(_)))
    )
}

/// Returns the column headings of a table of arms (designs with schedule and number of paths).
/// `first` is the first heading.
pub(super) fn arm_head(first: &str) -> Vec<String> {
    let measures = MEASURES.map(|(name, _)| name.to_owned());
    let head = [first.to_owned()].into_iter().chain(measures);
    head.chain(["failed", "load of exits", "simulations"].map(str::to_owned)).collect()
}

fn row(report_data: &ReportData<'_>, (arm, clients): (&Arm, usize), first: String) -> Vec<String> {
    let runs = || of(report_data.records, arm, clients);
    let cells = MEASURES.map(|(name, measure)| {
        let digits = if name.starts_with("first") { 2 } else { 0 };
        let found = mean(&by_run(report_data.records, (arm, clients), measure));
        found.map_or("–".to_owned(), |mean| interval(mean, digits))
    });
    let all: usize = runs().map(|run| run.web.downloads + run.bulk.downloads).sum();
    let failed: usize = runs().map(|run| run.web.failed + run.bulk.failed).sum();
    let count = runs().count();
    let load = runs().map(|run| run.loads[1]).sum::<f64>() / count.max(1) as f64;
    let failed = format!("{:.1} %", 100.0 * failed as f64 / all.max(1) as f64);
    let rest = [failed, format!("{:.0} %", load * 100.0), count.to_string()];
    [first].into_iter().chain(cells).chain(rest).collect()
}

/// Returns the rows for Figures 2 and 3: the results of each arm (design with schedule and number
/// of paths) in the simulations with [`ReportData::clients`] clients.
pub(super) fn arm_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    let arms = report_data.arms();
    arms.iter().map(|arm| row(report_data, (arm, report_data.clients), arm.to_string())).collect()
}

/// Returns the rows for Figure 4: the results of each arm (design with schedule and number of
/// paths) for each simulated number of clients.
pub(super) fn growth_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    let (arms, steps) = (report_data.arms(), report_data.steps());
    let has = |arm: &Arm, step: usize| of(report_data.records, arm, step).next().is_some();
    let grown = |arm: &&Arm| steps.iter().filter(|step| has(arm, **step)).count() > 1;
    let each = arms.iter().filter(grown).flat_map(|arm| steps.iter().map(move |step| (arm, *step)));
    each.filter(|(arm, step)| has(arm, *step))
        .map(|(arm, step)| row(report_data, (arm, step), format!("{arm}: {step} clients")))
        .collect()
}

/// Returns the results as text for a terminal.
pub(super) fn plain(report_data: &ReportData<'_>) -> String {
    let line = |claim: &Claim| {
        format!(
            "{} [{}]: {}, {}\n",
            claim.statement,
            claim.design,
            ratio(claim.ours),
            claim.verdict.words()
        )
    };
    let claims: String = report_data.claims.iter().map(line).collect();
    format!("{claims}{}\n{}", counts(report_data.claims), description(report_data))
}
