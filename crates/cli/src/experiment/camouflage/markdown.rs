//! Results of the experiment `camouflage` as Markdown.

use super::super::common::{markdown_table, origin};
use super::super::numbers::owned;
use super::judged;
use super::words::{self, Subject};

/// Returns all results of the experiment as Markdown.
pub(super) fn text(subject: &Subject<'_>) -> String {
    let rows = |head: &[String], rows: &[Vec<String>]| {
        markdown_table(head, rows.iter().map(Vec::as_slice))
    };
    format!(
        "{}.\n\n{}\n\n{}\n\n{}\n\n### Limits of our profiles\n\n{}\n\n{}\n\
         ### Claims of the paper\n\n{}\n\n{}\n### Bytes (Table 3)\n\n{}\n\n{}\n\
         ### Goodput (Figure 7)\n\nkB/s, means with 95 % intervals (Student's t).\n\n{}\n\
         ### Streams (Figure 6)\n\n{}\n\n{}",
        words::description(),
        words::how_often(subject),
        words::machine(subject),
        origin(subject.header),
        judged::held(),
        rows(&owned(&judged::BAR_HEAD), &judged::bar_rows(subject)),
        judged::judged(),
        rows(&owned(&judged::CLAIM_HEAD), &judged::claim_rows(subject)),
        words::table_3(),
        rows(&owned(&words::TABLE_HEAD), &words::table_rows(subject)),
        rows(&words::curve_head(), &words::curve_rows(subject)),
        words::figure_6(),
        rows(&words::box_head(subject), &words::box_rows(subject)),
    )
}
