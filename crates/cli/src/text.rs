//! Formats of numbers and tables for people.

use std::borrow::Cow;
use std::time::Duration;

use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

/// Formats `rows` as a table. Each column is as wide as its widest cell, and columns are two
/// spaces apart. No line ends in spaces.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let widths: Vec<_> = (0..columns)
        .map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    let lines: Vec<_> = rows.iter().map(|row| line(row, &widths)).collect();
    lines.join("\n")
}

fn line(row: &[String], widths: &[usize]) -> String {
    let padded: Vec<_> =
        row.iter().zip(widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
    padded.join("  ").trim_end().to_owned()
}

/// Wraps `text` between words to at most `width` columns. All lines but the first are indented. A
/// word longer than a line is broken at the end of the line.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let options = Options::new(width.max(2 * INDENT.len()))
        .subsequent_indent(INDENT)
        .word_splitter(WordSplitter::NoHyphenation)
        .word_separator(WordSeparator::AsciiSpace)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    textwrap::wrap(text, options).into_iter().map(Cow::into_owned).collect()
}

/// Indentation of all lines but the first of a wrapped text.
const INDENT: &str = "  ";

/// Draws the last `columns` values of `numbers` as bars, one per column, with the newest at the
/// right. A bar of full height stands for `most`.
pub(crate) fn sparks(
    numbers: impl DoubleEndedIterator<Item = f64> + ExactSizeIterator,
    most: f64,
    columns: usize,
) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |number: f64| match number > 0.0 {
        true => BARS[((number / most * 8.0) as usize).min(7)],
        false => ' ',
    };
    let skipped = numbers.len().saturating_sub(columns);
    let bars: String = numbers.skip(skipped).map(bar).collect();
    format!("{bars:>columns$}")
}

/// Draws `share`, from 0 to 1, as a bar of `columns` columns in steps of an eighth of a column.
/// Any share above 0 is visible.
pub(crate) fn bar(share: f64, columns: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = share.clamp(0.0, 1.0);
    let eighths = ((share * columns as f64 * 8.0).round() as usize).max(usize::from(share > 0.0));
    let text = "█".repeat(eighths / 8) + PARTS[eighths % 8];
    format!("{text:<columns$}")
}

/// Formats `share`, from 0 to 1, as a bar of four columns followed by a percentage. The text has
/// ten columns.
pub(crate) fn share(share: f64) -> String {
    format!("{}{:>6}", bar(share, 4), percent(share))
}

/// Formats `share`, from 0 to 1, as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Formats a round-trip time. An unknown time becomes a dash.
pub(crate) fn millis(span: Option<Duration>) -> String {
    let Some(span) = span else { return "-".to_owned() };
    let millis = span.as_secs_f64() * 1e3;
    let digits = if millis < 1.0 { 2 } else { 1 };
    format!("{millis:.digits$} ms")
}

/// Formats a duration in a unit that suits its size.
#[cfg(feature = "onion")]
pub(crate) fn age(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_break_between_words_and_keep_every_letter() {
        let text = "    1.234  warning: two words";
        assert_eq!(wrapped(text, 80), [text]);
        assert_eq!(wrapped(text, 20), ["    1.234  warning:", "  two words"]);
        assert_eq!(wrapped("a bcdefghijk l", 6), ["a bcde", "  fghi", "  jk l"]);
        assert_eq!(wrapped("", 20), [""]);
        for width in 1..30 {
            let letters = |text: &str| text.replace(' ', "");
            assert_eq!(letters(&wrapped(text, width).concat()), letters(text), "{width}");
        }
    }

    #[test]
    fn sparks_are_as_high_as_their_share_of_the_greatest_and_end_at_the_right() {
        let numbers = [0.0, 1.0, 4.0, 8.0];
        let sparks = |columns| sparks(numbers.into_iter(), 8.0, columns);
        assert_eq!([sparks(4), sparks(6), sparks(2)], [" ▂▅█", "   ▂▅█", "▅█"]);
        assert_eq!(super::sparks([0.0, 0.0].into_iter(), 0.0, 2), "  ");
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        let bars = [0.0, 0.001, 0.5, 0.75, 1.0, 7.0].map(|share| bar(share, 4));
        assert_eq!(bars, ["    ", "▏   ", "██  ", "███ ", "████", "████"]);
        assert_eq!(bar(0.4, 4), "█▋  ");
    }

    #[test]
    #[cfg(feature = "onion")]
    fn ages_are_told_in_the_unit_that_suits_them() {
        let ages = [5, 119, 120, 7199, 7200].map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(ages, ["5 s", "119 s", "2 min", "119 min", "2 h"]);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["path".into(), "MTU".into()], vec!["ä".into(), "1500".into()]];
        assert_eq!(table(&rows), "path  MTU\nä     1500");
    }
}
