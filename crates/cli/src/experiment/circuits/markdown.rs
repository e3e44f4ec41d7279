//! Results of the experiment `circuits` as Markdown.

use super::super::common::{markdown_table, origin};
use super::super::numbers::owned;
use super::words::{self, Subject};

/// Returns all results of the experiment as Markdown.
pub(super) fn text(subject: &Subject<'_>) -> String {
    format!(
        "{}.\n\n{}\n\n{}\n\n### The paper's claims\n\n{}\n\n{}\n### All designs\n\n{}\n\n{}",
        words::description(subject),
        words::machine(subject),
        origin(subject.header),
        words::judged(),
        markdown_table(
            &owned(&words::HEAD),
            words::verdict_rows(subject).iter().map(Vec::as_slice)
        ),
        words::intervals(subject),
        markdown_table(
            &words::cell_head(subject),
            words::cell_rows(subject).iter().map(Vec::as_slice)
        ),
    )
}
