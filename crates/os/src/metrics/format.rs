//! The two formats that Prometheus reads, and the content negotiation between them.

use std::borrow::Cow;

/// The format of a metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Prometheus' own text format, 0.0.4, which browsers can display
    /// (<https://prometheus.io/docs/instrumenting/exposition_formats/>). It is the default for
    /// clients without a preference.
    Text,
    /// OpenMetrics 1.0: with units, `info`, and an end marker, which reveals a truncated page
    /// (<https://github.com/OpenObservability/OpenMetrics>).
    OpenMetrics,
}

impl Format {
    /// Chooses the format from the `Accept` values `accepts` (RFC 9110, section 12.5.1). The
    /// format with the higher quality (`q`) is chosen. If the qualities are equal, OpenMetrics is
    /// chosen if a value names it, and text otherwise.
    pub(super) fn wanted<'a>(accepts: impl Iterator<Item = &'a str>) -> Format {
        let ranges: Vec<Range<'_>> =
            accepts.flat_map(|value| value.split(',')).filter_map(Range::parse).collect();
        let text = liking(&ranges, "text", "plain", &["0.0.4"]);
        let open = liking(&ranges, "application", "openmetrics-text", &["1.0.0", "1.0"]);
        let is_named = open.closeness >= Closeness::Named;
        match open.quality.total_cmp(&text.quality) {
            std::cmp::Ordering::Greater => Format::OpenMetrics,
            std::cmp::Ordering::Equal if is_named && open.quality > 0.0 => Format::OpenMetrics,
            _ => Format::Text,
        }
    }

    /// Returns the `Content-Type` of the format.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Converts a page from the OpenMetrics format into this format.
    pub(super) fn of(self, page: &str) -> Cow<'_, str> {
        match self {
            Format::Text => text(page).into(),
            Format::OpenMetrics => page.into(),
        }
    }
}

/// Precision of the match between a media range of an `Accept` header and a media type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Closeness {
    /// The media range does not match the media type.
    #[default]
    None,
    /// The media range is `*/*`.
    All,
    /// The media range names only the main type, such as `text/*`.
    Kind,
    /// The media range names the whole type, such as `text/plain`.
    Named,
    /// The media range names type and version, such as `text/plain;version=0.0.4`.
    Version,
}

/// A client's preference for a media type: the quality (`q`) of the most specific media range that
/// matches the type.
#[derive(Clone, Copy, Debug, Default)]
struct Preference {
    closeness: Closeness,
    quality: f64,
}

/// A media range of an `Accept` header, such as `text/*;q=0.5`.
#[derive(Debug)]
struct Range<'a> {
    kind: &'a str,
    name: &'a str,
    version: Option<&'a str>,
    /// Quality (`q`) of the media range, from 0 (not acceptable) to 1.
    quality: f64,
}

impl<'a> Range<'a> {
    /// Parses a media range such as `type/name;parameter=value;q=0.5`. Returns `None` if the text
    /// has another form. Other parameters, such as `charset` and `escaping`, are ignored, because
    /// all names of our metrics are plain.
    fn parse(text: &'a str) -> Option<Range<'a>> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, name) = parts.next()?.split_once('/')?;
        let mut range = Range { kind, name, version: None, quality: 1.0 };
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match key.trim().to_ascii_lowercase().as_str() {
                "q" => range.quality = quality(value.trim())?,
                "version" => range.version = Some(value.trim().trim_matches('"')),
                _ => {}
            }
        }
        Some(range)
    }

    fn closeness(&self, kind: &str, name: &str, versions: &[&str]) -> Closeness {
        let is = |ours: &str, theirs: &str| ours.eq_ignore_ascii_case(theirs);
        match (self.kind, self.name) {
            ("*", "*") => Closeness::All,
            (of, "*") if is(kind, of) => Closeness::Kind,
            (of, called) if is(kind, of) && is(name, called) => match self.version {
                None => Closeness::Named,
                Some(version) if versions.contains(&version) => Closeness::Version,
                Some(_) => Closeness::None,
            },
            _ => Closeness::None,
        }
    }
}

/// Parses the quality (`q`) of a media range; `None` if it is not a number from 0 to 1.
fn quality(text: &str) -> Option<f64> {
    text.parse().ok().filter(|quality| (0.0..=1.0).contains(quality))
}

/// Returns the preference that the media ranges `ranges` express for the media type `kind`/`name`,
/// in one of `versions`.
fn liking(ranges: &[Range<'_>], kind: &str, name: &str, versions: &[&str]) -> Preference {
    let each = ranges.iter().map(|range| Preference {
        closeness: range.closeness(kind, name, versions),
        quality: range.quality,
    });
    let matching = each.filter(|liking| liking.closeness > Closeness::None);
    let closest =
        matching.max_by(|a, b| a.closeness.cmp(&b.closeness).then(a.quality.total_cmp(&b.quality)));
    closest.unwrap_or_default()
}

/// Converts a page into the older text format, which has no units, no end marker and no type
/// `info`. In that format, the `HELP` and `TYPE` lines of a counter contain the name of its
/// samples, which ends in `_total`.
fn text(page: &str) -> String {
    let kinds: Vec<(&str, &str)> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let kind = |name: &str| kinds.iter().find(|(of, _)| *of == name).map_or("", |(_, kind)| kind);
    let mut text = String::new();
    for line in page.lines() {
        let comment = line.strip_prefix("# ").and_then(|rest| rest.split_once(' '));
        let line = match comment {
            None if line == "# EOF" => continue,
            None => line.to_owned(),
            Some(("UNIT", _)) => continue,
            Some((what, rest)) => {
                let (name, about) = rest.split_once(' ').unwrap_or((rest, ""));
                let (ending, about) = match (kind(name), what) {
                    ("counter", _) => ("_total", about),
                    ("info", "TYPE") => ("_info", "gauge"),
                    ("info", _) => ("_info", about),
                    _ => ("", about),
                };
                format!("# {what} {name}{ending} {about}")
            }
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_no_units_no_end_and_names_a_counter_as_its_samples_do() {
        let page = "# HELP a_b Bytes.\n# TYPE a_b counter\n# UNIT a_b bytes\na_b_total{p=\"x\"} 7\n\
                    # HELP a Build.\n# TYPE a info\na_info{version=\"1\"} 1\n\
                    # HELP g Up.\n# TYPE g gauge\ng 1\n# EOF\n";
        let wanted = "# HELP a_b_total Bytes.\n# TYPE a_b_total counter\na_b_total{p=\"x\"} 7\n\
                      # HELP a_info Build.\n# TYPE a_info gauge\na_info{version=\"1\"} 1\n\
                      # HELP g Up.\n# TYPE g gauge\ng 1\n";
        assert_eq!(Format::Text.of(page), wanted);
        assert_eq!(Format::OpenMetrics.of(page), page);
    }

    /// Checks the formats chosen for the `Accept` headers of curl, a browser, Prometheus 2 and 3,
    /// and others.
    #[test]
    fn each_client_gets_the_format_that_it_likes_best() {
        use Format::{OpenMetrics, Text};
        for (accept, format) in [
            ("*/*", Text),
            ("", Text),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Text),
            ("image/png", Text),
            ("text/plain;version=0.0.4", Text),
            ("text/plain", Text),
            ("application/openmetrics-text", OpenMetrics),
            ("Application/OpenMetrics-Text; Version=\"1.0.0\"; charset=utf-8", OpenMetrics),
            ("application/openmetrics-text, text/plain", OpenMetrics),
            ("text/plain;q=0.5, application/openmetrics-text;q=0.4", Text),
            ("application/openmetrics-text;q=0, text/plain;q=0", Text),
            ("application/openmetrics-text;q=0, */*", Text),
            ("application/openmetrics-text, */*", OpenMetrics),
            ("text/plain, */*", Text),
            ("application/*", OpenMetrics),
            ("application/openmetrics-text;version=0.0.1", Text),
            ("application/openmetrics-text;q=2, text/plain;q=0.1", Text),
            (
                "application/openmetrics-text;version=1.0.0;q=0.75,\
                 application/openmetrics-text;version=0.0.1;q=0.5,\
                 text/plain;version=0.0.4;q=0.25,*/*;q=0.1",
                OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/openmetrics-text;version=0.0.1;q=0.5,\
                 text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                OpenMetrics,
            ),
        ] {
            assert_eq!(Format::wanted([accept].into_iter()), format, "{accept}");
        }
        assert_eq!(Format::wanted([].into_iter()), Text, "no header at all");
        let apart = ["text/plain;q=0.3", "application/openmetrics-text"];
        assert_eq!(Format::wanted(apart.into_iter()), OpenMetrics, "two headers are one list");
    }
}
