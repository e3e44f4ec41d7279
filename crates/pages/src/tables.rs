//! Tables and JSON with the summary of a trace, for terminals and for other programs.

use std::fmt::Write as _;

use anabranch_capture::{Flow, PathSummary, Session, Summary, TraceFacts};
use anabranch_comps::protocol::FAMILIES;
use serde_json::json;

use crate::legible;

/// Number of columns of each table.
const WIDTH: usize = 11;

/// Header of the tables in two lines. The first line groups the columns of the second.
const HEADER: [[&str; WIDTH]; 2] = [
    ["", "", "", "", "", "", "run", "packets", "run", "ms", "longest"],
    [
        "path",
        "direction",
        "packets",
        "bytes",
        "share",
        "runs",
        "median",
        "longest",
        "median",
        "longest",
        "gap ms",
    ],
];

/// Formats the `summary` of a trace and its metadata (`facts`, such as paths and seed) as one line
/// of JSON, in the format of `docs/formats.md`.
pub fn as_json(facts: &TraceFacts, summary: &Summary) -> String {
    let report = json!({
        "names": facts.paths,
        "seed": facts.seed,
        "schedule": facts.schedule,
        "size": facts.unit.name(),
        "numbers": facts.numbers,
        "summary": summary,
    });
    format!("{report}\n")
}

/// Formats the `summary` of a trace as text: a table for all sessions together, and a table for
/// each of the first `shown` sessions.
pub fn as_tables(facts: &TraceFacts, summary: &Summary, shown: usize) -> String {
    let mut out = heading(facts, summary);
    if let [session] = summary.sessions.as_slice() {
        out += &section(facts, &title(session), &session.paths, &session.whole);
        return out;
    }
    out += &section(facts, "all sessions", &summary.paths, &summary.whole);
    for session in summary.sessions.iter().take(shown) {
        out += &section(facts, &title(session), &session.paths, &session.whole);
    }
    let hidden = summary.sessions.len().saturating_sub(shown);
    if hidden > 0 {
        out += &format!("\n{hidden} more sessions are not shown; --all shows them\n");
    }
    out
}

fn heading(facts: &TraceFacts, summary: &Summary) -> String {
    let Summary { datagrams, seconds, sessions, .. } = summary;
    let lasts = match summary.is_data_set() {
        true => format!("loads of up to {:.3} s", summary.longest()),
        false => format!("{seconds:.3} s"),
    };
    let mut out = format!("{datagrams} datagrams in {lasts}, sessions: {}", sessions.len());
    if let Some(schedule) = &facts.schedule {
        out += &format!(", schedule {}", legible(schedule));
    }
    if let Some(seed) = facts.seed {
        out += &format!(", seed {seed}");
    }
    out += "\n";
    out.extend(in_clear(facts).map(|text| text + "\n"));
    out
}

/// Returns the paragraph that explains what unencrypted packet numbers reveal to an observer;
/// `None` if the trace's packets have no such numbers.
pub(crate) fn in_clear(facts: &TraceFacts) -> Option<String> {
    let title = |name: &String| {
        let known = FAMILIES.iter().find(|family| family.name == name);
        known.map_or_else(|| legible(name), |family| family.title.to_owned())
    };
    let titles = facts.numbers.iter().map(title).collect::<Vec<_>>().join(", ");
    (!titles.is_empty()).then(|| {
        format!(
            "Packets of {titles} have unencrypted numbers: from gaps in the numbers, the observer \
             of one path learns how many packets all paths carried in each direction, and when."
        )
    })
}

/// Returns the title of a session: its number, the number of the experiment's repetition (`run`)
/// unless it is 0, and the label of the loaded page if known.
pub(crate) fn title(session: &Session) -> String {
    let mut title = format!("session {}", session.load);
    if session.run != 0 {
        title += &format!(", run {}", session.run);
    }
    if !session.label.is_empty() {
        title += &format!(": {}", legible(&session.label));
    }
    title
}

/// Formats a table with a line for each direction of each path, and two lines for all paths
/// together.
fn section(facts: &TraceFacts, title: &str, paths: &[PathSummary], whole: &PathSummary) -> String {
    let mut rows = HEADER.map(|line| line.map(str::to_owned)).to_vec();
    for path in paths.iter().chain([whole]) {
        let name = legible(&facts.path_name(path.path));
        rows.push(line(&name, "up", &path.up));
        rows.push(line("", "down", &path.down));
    }
    format!("\n{title}\n{}", aligned(&rows))
}

fn line(name: &str, way: &str, flow: &Flow) -> [String; WIDTH] {
    [
        name.to_owned(),
        way.to_owned(),
        flow.packets.to_string(),
        flow.bytes.to_string(),
        format!("{:.1} %", flow.share * 100.0),
        flow.bursts.to_string(),
        format!("{:.1}", flow.burst_packets.median),
        format!("{:.0}", flow.burst_packets.longest),
        format!("{:.1}", flow.burst_ms.median),
        format!("{:.1}", flow.burst_ms.longest),
        format!("{:.1}", flow.longest_gap_ms),
    ]
}

/// Pads each column to its widest cell. Names are aligned left, numbers right.
fn aligned(rows: &[[String; WIDTH]]) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; WIDTH] = std::array::from_fn(width);
    let mut out = String::new();
    for row in rows {
        let mut text = String::new();
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            let written = match at {
                0 | 1 => write!(text, "{cell:<width$}  "),
                _ => write!(text, "{cell:>width$}  "),
            };
            written.expect("writing to a string does not fail");
        }
        out += text.trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_capture::{Row, Trace, TraceWriter};

    const SHOWN: usize = 20;

    /// Returns a trace of `sessions` sessions. Each has ten datagrams up, on two paths in turn, and
    /// one down.
    fn trace(sessions: i64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let facts = TraceFacts {
            paths: vec!["wlan".into(), "lte".into()],
            seed: Some(7),
            schedule: Some("round-robin --every 5p".into()),
            ..TraceFacts::default()
        };
        let mut writer = TraceWriter::create(file.path(), &facts).unwrap();
        for load in 0..sessions {
            for n in 0..11 {
                let (path, time) = ((n / 5 % 2) as i16, f64::from(n) / 1e3);
                let size = if n == 10 { -1500 } else { 100 };
                let (label, monitored, run) = ("a.example", false, 0);
                writer.push(&Row { load, label, monitored, run, path, time, size }).unwrap();
            }
        }
        writer.finish().unwrap();
        file
    }

    fn load(file: &tempfile::NamedTempFile) -> (TraceFacts, Summary) {
        let trace = Trace::open(file.path()).unwrap();
        (trace.facts().clone(), Summary::of_trace(&trace).unwrap())
    }

    /// Returns the lines of the tables, with single spaces.
    fn lines(sessions: i64, shown: usize) -> Vec<String> {
        let (facts, summary) = load(&trace(sessions));
        let text = as_tables(&facts, &summary, shown);
        text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn the_table_tells_paths_and_directions_apart() {
        let wanted = [
            "11 datagrams in 0.010 s, sessions: 1, schedule round-robin --every 5p, seed 7",
            "",
            "session 0: a.example",
            "run packets run ms longest",
            "path direction packets bytes share runs median longest median longest gap ms",
            "wlan up 5 500 50.0 % 1 5.0 5 4.0 4.0 1.0",
            "down 1 1500 100.0 % 1 1.0 1 0.0 0.0 0.0",
            "lte up 5 500 50.0 % 1 5.0 5 4.0 4.0 1.0",
            "down 0 0 0.0 % 0 0.0 0 0.0 0.0 0.0",
            "whole up 10 1000 100.0 % 2 5.0 5 4.0 4.0 1.0",
            "down 1 1500 100.0 % 1 1.0 1 0.0 0.0 0.0",
        ];
        assert_eq!(lines(1, SHOWN), wanted);
    }

    #[test]
    fn numbers_in_clear_are_told_above_the_tables() {
        let (facts, summary) = load(&trace(1));
        assert_eq!(in_clear(&facts), None);
        let facts = TraceFacts { numbers: vec!["mosh".into(), "\u{1b}x".into()], ..facts };
        let text = as_tables(&facts, &summary, SHOWN);
        let line = text.lines().nth(1).unwrap();
        assert!(
            line.starts_with("Packets of Mosh, ") && line.contains("one path learns"),
            "{line}"
        );
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn many_sessions_are_summed_and_cut() {
        let lines = lines(25, 2);
        assert!(lines.contains(&"wlan up 125 12500 50.0 % 25 5.0 5 4.0 4.0 1.0".to_owned()));
        assert_eq!(lines.iter().filter(|line| line.starts_with("session ")).count(), 2);
        assert_eq!(lines.last().unwrap(), "23 more sessions are not shown; --all shows them");
    }

    #[test]
    fn numbers_stand_under_each_other() {
        let (facts, summary) = load(&trace(1));
        let text = as_tables(&facts, &summary, SHOWN);
        let ends: Vec<usize> =
            text.lines().skip(3).map(|line| line.trim_end().chars().count()).collect();
        assert!(ends.iter().all(|&end| end == ends[0]), "{text}");
    }

    #[test]
    fn machines_get_one_object() {
        let (facts, summary) = load(&trace(2));
        let report: serde_json::Value = serde_json::from_str(&as_json(&facts, &summary)).unwrap();
        assert_eq!(report["names"], json!(["wlan", "lte"]));
        assert_eq!(report["summary"]["sessions"][1]["paths"][0]["up"]["bytes"], 500);
        assert_eq!(report["summary"]["whole"]["down"]["packets"], 2);
    }
}
