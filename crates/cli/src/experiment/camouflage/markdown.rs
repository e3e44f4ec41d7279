//! Results of the experiment `camouflage` as Markdown.

use super::super::common::{markdown_table, origin};
use super::super::numbers::owned;
use super::judged;
use super::words::{self, ReportData};

/// Returns all results of the experiment as Markdown.
pub(super) fn text(report_data: &ReportData<'_>) -> String {
    let rows = |head: &[String], rows: &[Vec<String>]| {
        markdown_table(head, rows.iter().map(Vec::as_slice))
    };
    format!(
        "{}.\n\n{}\n\n{}\n\n{}\n\n### Limits of our profiles\n\n{}\n\n{}\n\
         ### Claims of the paper\n\n{}\n\n{}\n### Bytes (Table 3)\n\n{}\n\n{}\n\
         ### Goodput (Figure 7)\n\nkB/s, means with 95 % intervals (Student's t).\n\n{}\n\
         ### Streams (Figure 6)\n\n{}\n\n{}",
        words::description(),
        words::how_often(report_data),
        words::machine(report_data),
        origin(report_data.header),
        judged::held(),
        rows(&owned(&judged::BAR_HEAD), &judged::bar_rows(report_data)),
        judged::judged(),
        rows(&owned(&judged::CLAIM_HEAD), &judged::claim_rows(report_data)),
        words::table_3(),
        rows(&owned(&words::TABLE_HEAD), &words::table_rows(report_data)),
        rows(&words::curve_head(), &words::curve_rows(report_data)),
        words::figure_6(),
        rows(&words::box_head(report_data), &words::box_rows(report_data)),
    )
}
