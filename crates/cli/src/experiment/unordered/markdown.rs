//! Results of the experiment `unordered` as Markdown.

use super::super::common::{markdown_table, origin};
use super::super::numbers::owned;
use super::words::{self, ReportData};

/// Returns all results of the experiment as Markdown.
pub(super) fn text(report_data: &ReportData<'_>) -> String {
    format!(
        "{}.\n\n{}\n\n{}\n\n### The downloads (Figure 3)\n\n{}\n\n### Comparison of the \
         variants\n\n{}\n\n{}\n### The paper's claims\n\n{}\n\n{}\n### A link alone\n\n{}\n\n{}",
        words::description(report_data),
        words::machine(report_data),
        origin(report_data.header),
        markdown_table(
            &owned(&words::CURVE_HEAD),
            words::curve_rows(report_data).iter().map(Vec::as_slice)
        ),
        words::compared(),
        markdown_table(
            &owned(&words::PAIR_HEAD),
            words::pair_rows(report_data).iter().map(Vec::as_slice)
        ),
        words::judged(),
        markdown_table(
            &owned(&words::CLAIM_HEAD),
            words::claim_rows(report_data).iter().map(Vec::as_slice)
        ),
        words::alone(report_data),
        markdown_table(
            &owned(&words::LINK_HEAD),
            words::link_rows(report_data).iter().map(Vec::as_slice)
        ),
    )
}
