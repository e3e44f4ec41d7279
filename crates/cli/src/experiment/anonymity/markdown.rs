//! Results of the experiment `anonymity` as Markdown.

use super::super::common::markdown_table;
use super::words::{self, KINDS, ReportData};

/// Returns all results of the experiment as Markdown.
pub(super) fn text(report_data: &ReportData<'_>) -> String {
    let summary = report_data.summary;
    let mut text =
        format!("{}.\n\n{}\n", words::description(report_data), words::origin(report_data.header));
    let claims = words::claim_rows(report_data.claims);
    text +=
        &part("The paper's claims", &words::CLAIM_HEAD, claims.iter().map(<[String; 4]>::as_slice));
    text += "\nWhen a claim holds:\n\n";
    for claim in report_data.claims {
        text += &format!("* {}: {}.\n", claim.statement, claim.rule);
    }
    let rows = words::path_rows(&summary.paths);
    text += &part("Circuits", &words::PATH_HEAD, rows.iter().map(Vec::as_slice));
    if let Some(table) = summary.figure_5() {
        for kind in &KINDS {
            let rows = words::day_rows(table, kind);
            let head = words::day_head(table);
            text += &part(kind.name, &head, rows.iter().map(Vec::as_slice));
        }
    }
    let rows = words::last_rows(&summary.years);
    text += &part(
        "All adversaries and networks, after a year",
        &words::LAST_HEAD,
        rows.iter().map(Vec::as_slice),
    );
    let rows = words::variant_rows();
    text += &part(
        "What the adversaries do",
        &["adversary", "what it does"],
        rows.iter().map(Vec::as_slice),
    );
    let rows = words::sharing_rows(&summary.fingerprints, |row| &row.own);
    text += &part("Guard fingerprints", &words::SHARING_HEAD, rows.iter().map(Vec::as_slice));
    let rows = words::sharing_rows(&summary.fingerprints, |row| &row.fixed);
    text += &part("Fixed sets of guards", &words::SHARING_HEAD, rows.iter().map(Vec::as_slice));
    text
}

fn part<'a>(
    title: &str,
    head: &[impl AsRef<str>],
    rows: impl Iterator<Item = &'a [String]>,
) -> String {
    let head: Vec<String> = head.iter().map(|cell| cell.as_ref().to_owned()).collect();
    format!("\n### {title}\n\n{}", markdown_table(&head, rows))
}
