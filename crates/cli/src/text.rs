//! Numbers and tables for people.

use std::borrow::Cow;
use std::time::Duration;

use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

/// Columns two spaces apart, as wide as their widest cell; no line ends in spaces.
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

/// `text` in lines of at most `width` columns, broken between words; further lines are indented.
/// Only a word that has no room in any line is broken, where the line that it begins in is full.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let options = Options::new(width.max(2 * INDENT.len()))
        .subsequent_indent(INDENT)
        .word_splitter(WordSplitter::NoHyphenation)
        .word_separator(WordSeparator::AsciiSpace)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    textwrap::wrap(text, options).into_iter().map(Cow::into_owned).collect()
}

/// What a further line of a wrapped text begins with.
const INDENT: &str = "  ";

/// Numbers as bars of one height, the greatest of all being `most`.
pub(crate) fn bars(numbers: impl Iterator<Item = f64>, most: f64) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |number: f64| match number > 0.0 {
        true => BARS[((number / most * 8.0) as usize).min(7)],
        false => ' ',
    };
    numbers.map(bar).collect()
}

/// `number` with three digits at least and one of the prefixes k, M, G, T (steps of 1000).
pub(crate) fn scaled(number: f64, unit: &str) -> String {
    let mut number = number;
    for prefix in ["", "k", "M", "G"] {
        if number < 999.5 {
            let digits = if prefix.is_empty() || number >= 99.95 { 0 } else { 1 };
            return format!("{number:.digits$} {prefix}{unit}").trim_end().to_owned();
        }
        number /= 1000.0;
    }
    format!("{number:.1} T{unit}")
}

/// A share of 1 in percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A round-trip time, or a dash where none is known.
pub(crate) fn millis(span: Option<Duration>) -> String {
    let Some(span) = span else { return "-".to_owned() };
    let millis = span.as_secs_f64() * 1e3;
    let digits = if millis < 1.0 { 2 } else { 1 };
    format!("{millis:.digits$} ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_two_or_three_digits() {
        let cases = [(0.0, "0 B"), (999.0, "999 B"), (999.6, "1.0 kB"), (12_345.0, "12.3 kB")];
        for (number, text) in cases {
            assert_eq!(scaled(number, "B"), text);
        }
        assert_eq!(scaled(123_456_789.0, "bit/s"), "123 Mbit/s");
        assert_eq!(scaled(5e12, "B"), "5.0 TB");
        assert_eq!(scaled(7.0, ""), "7");
    }

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
    fn bars_are_as_high_as_their_share_of_the_greatest() {
        assert_eq!(bars([0.0, 1.0, 4.0, 8.0].into_iter(), 8.0), " ▂▅█");
        assert_eq!(bars([0.0, 0.0].into_iter(), 0.0), "  ");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["path".into(), "MTU".into()], vec!["ä".into(), "1500".into()]];
        assert_eq!(table(&rows), "path  MTU\nä     1500");
    }
}
