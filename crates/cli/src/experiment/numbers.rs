//! Formats of numbers for pages, Markdown and terminals.

use anabranch_experiment::{Mean, Median, Spread};

/// Text for a value that was not measured.
pub(super) const NONE: &str = "–";

/// Formats the median and the range of measured values, multiplied by `scale`, with `digits`
/// digits after the decimal point. If there is only one value, formats only this value.
pub(super) fn between(spread: Spread, scale: f64, digits: usize) -> String {
    let [median, least, most] = [spread.median, spread.least, spread.most].map(|v| v * scale);
    match spread.count {
        1 => format!("{median:.digits$}"),
        _ => format!("{median:.digits$} ({least:.digits$}–{most:.digits$})"),
    }
}

/// Formats a mean and, if its confidence interval is known, half the width of the interval.
/// Numbers are multiplied by `scale`.
pub(super) fn mean(mean: Option<Mean>, scale: f64, digits: usize) -> String {
    let number = |value: f64| format!("{:.digits$}", value * scale);
    with_half(mean, number)
}

/// Formats a mean as [`mean`] does, with another format for the numbers.
pub(super) fn with_half(mean: Option<Mean>, number: impl Fn(f64) -> String) -> String {
    match mean {
        None => NONE.to_owned(),
        Some(Mean { mean, half }) if half.is_infinite() => number(mean),
        Some(Mean { mean, half }) => format!("{} ± {}", number(mean), number(half)),
    }
}

/// Formats a median and, if it is known, its confidence interval.
pub(super) fn median(median: Option<Median>, digits: usize) -> String {
    match median {
        None => NONE.to_owned(),
        Some(Median { median, interval: None, .. }) => value(median, digits),
        Some(Median { median, interval: Some(interval), .. }) => {
            format!("{} {}", value(median, digits), span(interval, digits))
        }
    }
}

/// Formats an interval as its lower and upper end.
pub(super) fn span([low, high]: [f64; 2], digits: usize) -> String {
    format!("[{}, {}]", value(low, digits), value(high, digits))
}

/// Formats a number. Infinity becomes `∞`.
pub(super) fn value(value: f64, digits: usize) -> String {
    if value.is_infinite() { "∞".to_owned() } else { format!("{value:.digits$}") }
}

/// Copies column headings into the type that the table functions take.
pub(super) fn owned<const N: usize>(heads: &[&str; N]) -> Vec<String> {
    heads.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_spread_where_there_is_one() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied()).unwrap();
        assert_eq!(between(spread(&[0.0021]), 1e3, 1), "2.1");
        assert_eq!(between(spread(&[1.0, 2.0, 4.0]), 1.0, 0), "2 (1–4)");
        assert_eq!(mean(Mean::of(&[5.0]), 2.0, 1), "10.0");
        assert_eq!(mean(Some(Mean { mean: 2.0, half: 0.25 }), 1.0, 2), "2.00 ± 0.25");
        assert_eq!((mean(None, 1.0, 0), median(None, 0)), (NONE.to_owned(), NONE.to_owned()));
    }

    #[test]
    fn what_never_ended_is_endless() {
        let median_of = |values: &[f64]| median(Median::of(values), 1);
        assert_eq!(median_of(&[1.0, 2.0]), "1.5");
        assert_eq!(median_of(&[1.0, 2.0, 3.0, 4.0, 5.0, f64::INFINITY]), "3.5 [1.0, ∞]");
    }
}
