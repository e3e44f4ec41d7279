//! Results of the experiment `camouflage` for a terminal.

use super::super::numbers::owned;
use super::judged;
use super::words::{self, Subject};
use crate::text::table;

/// Returns all results of the experiment as text.
pub(super) fn text(subject: &Subject<'_>) -> String {
    let rows = |head: Vec<String>, rows: Vec<Vec<String>>| match rows.len() {
        0 => String::new(),
        _ => table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()) + "\n",
    };
    format!(
        "{}\n{}\n{}\n{}\n{}\n{}",
        rows(owned(&judged::BAR_HEAD), judged::bar_rows(subject)),
        rows(owned(&words::TABLE_HEAD), words::table_rows(subject)),
        rows(words::curve_head(), words::curve_rows(subject)),
        rows(words::box_head(subject), words::box_rows(subject)),
        rows(owned(&judged::CLAIM_HEAD), judged::claim_rows(subject)),
        words::machine(subject)
    )
}
