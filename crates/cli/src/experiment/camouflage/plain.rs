//! Results of the experiment `camouflage` for a terminal.

use super::super::numbers::owned;
use super::judged;
use super::words::{self, ReportData};
use crate::text::table;

/// Returns all results of the experiment as text.
pub(super) fn text(report_data: &ReportData<'_>) -> String {
    let rows = |head: Vec<String>, rows: Vec<Vec<String>>| match rows.len() {
        0 => String::new(),
        _ => table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()) + "\n",
    };
    format!(
        "{}\n{}\n{}\n{}\n{}\n{}",
        rows(owned(&judged::BAR_HEAD), judged::bar_rows(report_data)),
        rows(owned(&words::TABLE_HEAD), words::table_rows(report_data)),
        rows(words::curve_head(), words::curve_rows(report_data)),
        rows(words::box_head(report_data), words::box_rows(report_data)),
        rows(owned(&judged::CLAIM_HEAD), judged::claim_rows(report_data)),
        words::machine(report_data)
    )
}
