//! Parts that all figures share: rows with the name of a path, axes, and scales with round values.

use maud::{Markup, PreEscaped, html};

/// Number of path colours in the style sheet. With more paths the colours repeat; only the paths'
/// names then distinguish the paths.
const COLOURS: i16 = 8;

/// Returns the CSS class for the colour of the path with the index `path`. The index -1 stands for
/// all paths together, which are grey.
pub fn colour(path: i16) -> String {
    if path < 0 { "whole".to_owned() } else { format!("p{}", path % COLOURS) }
}

/// Renders a path's name next to a patch of the path's colour.
pub fn named(path: i16, name: &str) -> Markup {
    html! { span.name { span.swatch.(colour(path)) aria-hidden="true" {} bdi { (name) } } }
}

/// Renders one row of a figure: the path's name, a remark, and the drawing.
pub fn figure_row(path: i16, name: &str, remark: &str, drawing: &Markup) -> Markup {
    html! {
        div.figure-row {
            div.figure-row-head { (named(path, name)) span.muted { (remark) } }
            (drawing)
        }
    }
}

/// Renders a drawing that fills the available width. Its coordinate system has `width` by 100
/// units. `title` is a tooltip, and `grid` has the positions of vertical lines. `shapes` are SVG
/// elements; they contain only numbers and escaped text.
pub fn drawing(class: &str, width: f64, title: &str, grid: &[f64], shapes: &str) -> Markup {
    html! {
        svg.plot.(class) role="img" preserveAspectRatio="none" viewBox={ "0 0 " (number(width)) " 100" } {
            title { (title) }
            @for x in grid { line.grid x1=(number(*x)) x2=(number(*x)) y1="0" y2="100" {} }
            (PreEscaped(shapes))
            line.base x1="0" x2=(number(width)) y1="100" y2="100" {}
        }
    }
}

/// Renders a bar that stands on the base line of a [`drawing`] and starts at `x`. A bar of
/// `height` 100 is as high as the drawing. `title` is an optional tooltip.
pub fn bar(path: i16, (x, width): (f64, f64), height: f64, title: Option<&str>) -> String {
    let top = number(100.0 - height);
    html! {
        rect.(colour(path)) x=(number(x)) y=(top) width=(number(width)) height=(number(height)) {
            @if let Some(title) = title { title { (title) } }
        }
    }
    .into_string()
}

/// Renders an axis. `ticks` are its labels, each with its position as a share of the axis's width.
pub fn axis(ticks: &[(f64, String)]) -> Markup {
    html! {
        svg.axis aria-hidden="true" {
            @for (at, label) in ticks {
                text x={ (number(at * 100.0)) "%" } y="13" text-anchor=(anchor(*at)) { (label) }
            }
        }
    }
}

/// Returns the SVG `text-anchor` of the label at position `at`, a share of the axis's width. The
/// first label extends to the right and the last to the left, so that both stay inside the figure.
fn anchor(at: f64) -> &'static str {
    match at {
        ..0.04 => "start",
        0.94.. => "end",
        _ => "middle",
    }
}

/// Renders a table. The first cell of each row is the row's header.
pub fn table<'a>(
    class: &str,
    title: &str,
    head: &[impl AsRef<str>],
    rows: impl Iterator<Item = &'a [String]>,
) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(title) {
            table.(class) {
                caption { (title) }
                thead { tr { @for cell in head { th scope="col" { bdi { (cell.as_ref()) } } } } }
                tbody {
                    @for row in rows {
                        tr { @for (at, cell) in row.iter().enumerate() {
                            @if at == 0 { th scope="row" { (cell) } } @else { td { bdi { (cell) } } }
                        } }
                    }
                }
            }
        }
    }
}

/// Renders a table with the numbers of a figure. The table is collapsed until the reader opens it.
pub fn numbers(title: &str, head: &[String], rows: &[Vec<String>]) -> Markup {
    html! {
        details {
            summary { "The values of this figure as a table" }
            (table("numbers", title, head, rows.iter().map(Vec::as_slice)))
        }
    }
}

/// Formats a coordinate with at most three decimals, without trailing zeros.
pub fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short.is_empty() || short == "-0" { "0".to_owned() } else { short.to_owned() }
}

/// Returns at most seven ticks for a time axis of `lasts` seconds, at round values in the unit that
/// suits `lasts`.
pub fn times(lasts: f64) -> Vec<(f64, String)> {
    if lasts <= 0.0 {
        return vec![(0.0, "0 s".to_owned())];
    }
    let (unit, seconds) = unit_of(lasts);
    let step = round(lasts / seconds / 6.0);
    let count = (lasts / seconds / step) as usize;
    let tick = |n: usize| {
        let value = n as f64 * step;
        (value * seconds / lasts, format!("{} {unit}", number(value)))
    };
    (0..=count).map(tick).collect()
}

/// Formats a time span in the unit that suits its size: `h`, `min`, `s`, `ms` or `µs`.
pub fn span(seconds: f64) -> String {
    if seconds == 0.0 {
        return "0 s".to_owned();
    }
    let (unit, size) = unit_of(seconds);
    let value = seconds / size;
    let whole = (value - value.round()).abs() < 1e-6;
    let digits = if whole || value >= 99.95 { 0 } else { 1 + usize::from(value < 9.995) };
    format!("{value:.digits$} {unit}")
}

fn unit_of(seconds: f64) -> (&'static str, f64) {
    match seconds {
        7200.0.. => ("h", 3600.0),
        120.0.. => ("min", 60.0),
        1.0.. => ("s", 1.0),
        0.001.. => ("ms", 1e-3),
        _ => ("µs", 1e-6),
    }
}

/// Returns the smallest round value that is at least `value`. Round values are 1, 2, 5, 10, 20, …
/// (and 0.5, 0.2, …).
pub fn round(value: f64) -> f64 {
    if !(value > 0.0 && value.is_finite()) {
        return 1.0;
    }
    let ten = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0]
        .map(|digit| digit * ten)
        .into_iter()
        .find(|&r| r >= value * 0.999_999)
        .unwrap_or(10.0 * ten)
}

/// Formats an integer with a comma between groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats `number` with about three digits and one of the prefixes k, M, G, T (steps of 1000).
pub fn scaled(number: f64, unit: &str) -> String {
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

/// Formats `share`, from 0 to 1, as a percentage with one decimal. A share that is not exactly 0 or
/// 1 is never displayed as 0 % or 100 %.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        100.0 => "100 %".to_owned(),
        p if p < 0.1 => "< 0.1 %".to_owned(),
        p if p > 99.9 => "> 99.9 %".to_owned(),
        p => format!("{p:.1} %"),
    }
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
    fn axes_have_few_round_times() {
        let labels = |lasts| times(lasts).into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(labels(12.3), ["0 s", "5 s", "10 s"]);
        assert_eq!(labels(0.45), ["0 ms", "100 ms", "200 ms", "300 ms", "400 ms"]);
        assert_eq!(labels(0.0), ["0 s"]);
        for lasts in [1e-9, 0.3, 5.0, 119.0, 120.0, 1e5, 1e9] {
            let ticks = times(lasts);
            assert!((2..=7).contains(&ticks.len()), "{lasts}: {ticks:?}");
            assert!(
                ticks.iter().all(|(at, _)| (0.0..=1.000_001).contains(at)),
                "{lasts}: {ticks:?}"
            );
        }
    }

    #[test]
    fn numbers_are_short() {
        let all: Vec<_> = [0.0, -0.0, 1.5, 100.0, 1e9, 0.0004].map(number).to_vec();
        assert_eq!(all, ["0", "0", "1.5", "100", "1000000000", "0"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0.0, 0.0001, 0.4567, 0.9999, 1.0].map(percent).join(" "),
            "0 % < 0.1 % 45.7 % > 99.9 % 100 %"
        );
        assert_eq!(
            [0.0, 0.1, 1.0, 12.345, 150.0].map(span).join(", "),
            "0 s, 100 ms, 1 s, 12.3 s, 2.50 min"
        );
    }

    #[test]
    fn round_numbers_are_not_below() {
        let all: Vec<_> = [1.0, 1.1, 3.0, 6.0, 0.03, 0.0, f64::NAN]
            .map(round)
            .iter()
            .map(|&r| number(r))
            .collect();
        assert_eq!(all, ["1", "2", "5", "10", "0.05", "1", "1"]);
    }
}
