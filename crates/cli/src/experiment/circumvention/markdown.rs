//! Results of the experiment `circumvention` as Markdown.

use super::super::common::{and_splitter, markdown_table, origin};
use super::words::{self, ReportData};

/// Returns all results of the experiment as Markdown.
pub(super) fn text(report_data: &ReportData<'_>) -> String {
    let verdicts = words::verdict_rows(report_data.verdicts, report_data.cells);
    let head = words::HEAD.map(str::to_owned);
    let cell_head = words::CELL_HEAD.map(str::to_owned);
    format!(
        "{}{}.\n\n{}\n\n{}\n\n### In short\n\n{}\n\n{}\n### All fetches\n\nMedian (least–most) of \
         the fetches that succeeded.\n\n{}",
        words::description(report_data),
        and_splitter(report_data.header),
        words::machine(report_data.records),
        origin(report_data.header),
        words::judged(),
        markdown_table(&head, verdicts.iter().map(<[String; 6]>::as_slice)),
        markdown_table(&cell_head, words::cell_rows(report_data.cells).iter().map(Vec::as_slice)),
    )
}
