//! Results of the experiment `circuits` as Markdown.

use super::super::common::{markdown_table, origin};
use super::super::numbers::owned;
use super::words::{self, ReportData};

/// Returns all results of the experiment as Markdown.
pub(super) fn text(report_data: &ReportData<'_>) -> String {
    format!(
        "{}.\n\n{}\n\n{}\n\n### The paper's claims\n\n{}\n\n{}\n### All designs\n\n{}\n\n{}",
        words::description(report_data),
        words::machine(report_data),
        origin(report_data.header),
        words::judged(),
        markdown_table(
            &owned(&words::HEAD),
            words::verdict_rows(report_data).iter().map(Vec::as_slice)
        ),
        words::intervals(report_data),
        markdown_table(
            &words::cell_head(report_data),
            words::cell_rows(report_data).iter().map(Vec::as_slice)
        ),
    )
}
