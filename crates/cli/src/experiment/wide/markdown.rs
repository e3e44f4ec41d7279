//! Results of the experiment `wide` as Markdown.

use anabranch_experiment::wide::claims::rules;

use super::super::common::{markdown_table, origin};
use super::super::numbers::owned;
use super::words::{self, ReportData};

/// Returns all results as Markdown.
pub(super) fn text(report_data: &ReportData<'_>) -> String {
    let claims = words::claim_rows(report_data.claims);
    let arms = words::arm_rows(report_data);
    let growth = words::growth_rows(report_data);
    let rules = rules(report_data.claims).into_iter();
    let rules: String =
        rules.map(|(statement, rule)| format!("* {statement}: {rule}.\n")).collect();
    format!(
        "{}.\n\n{}.\n\n{}\n\n### The paper's claims\n\n{}\n\n{}\nThe ratios:\n\n{rules}\n\
         ### All designs, {} clients (Figures 2 and 3)\n\n{}\n### Growth (Figure 4)\n\n{}",
        words::description(report_data),
        words::reduced(report_data),
        origin(report_data.header),
        words::counts(report_data.claims),
        markdown_table(&owned(&words::CLAIM_HEAD), claims.iter().map(Vec::as_slice)),
        report_data.clients,
        markdown_table(&words::arm_head("design"), arms.iter().map(Vec::as_slice)),
        markdown_table(&words::arm_head("design, clients"), growth.iter().map(Vec::as_slice)),
    )
}
