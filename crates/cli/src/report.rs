//! `anabranch report`: what each observer saw, from a trace.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;

use anabranch_drive::capture::{Flow, PathSummary, Session, Summary, Trace, TraceFacts};
use clap::Args;
use serde_json::json;

use crate::failure::Failure;

/// Sessions shown without `--all`.
const SHOWN: usize = 20;

/// Columns of a table.
const WIDTH: usize = 11;

/// Two lines: the second says which of the first's.
const HEADER: [[&str; WIDTH]; 2] = [
    ["", "", "", "", "", "", "burst", "packets", "burst", "ms", "longest"],
    [
        "path", "way", "packets", "bytes", "share", "bursts", "median", "longest", "median",
        "longest", "gap ms",
    ],
];

/// Says what each observer saw: packets, bytes, shares, bursts and gaps per path and direction
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// The trace, as `anabranch split --trace` writes it
    trace: PathBuf,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Show every session, not only the first 20
    #[arg(long)]
    all: bool,
}

impl ReportArgs {
    /// Prints the report.
    ///
    /// # Errors
    /// Misuse if the file is not a trace (the message says why), trouble if nothing can be printed.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let refuse = |e| Failure::misuse(format!("{}: {e}", self.trace.display()));
        let trace = Trace::open(&self.trace).map_err(refuse)?;
        let summary = Summary::of_trace(&trace).map_err(refuse)?;
        let text = match self.json {
            true => as_json(trace.facts(), &summary),
            false => as_tables(trace.facts(), &summary, if self.all { usize::MAX } else { SHOWN }),
        };
        print(&text).map_err(|e| Failure::trouble(format!("cannot print the report: {e}")))
    }
}

/// A reader that has seen enough (`| head`) is no error.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn as_json(facts: &TraceFacts, summary: &Summary) -> String {
    let report = json!({
        "names": facts.paths,
        "seed": facts.seed,
        "schedule": facts.schedule,
        "size": facts.unit.name(),
        "summary": summary,
    });
    format!("{report}\n")
}

fn as_tables(facts: &TraceFacts, summary: &Summary, shown: usize) -> String {
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
        out += &format!("\n{hidden} more sessions; --all shows them\n");
    }
    out
}

fn heading(facts: &TraceFacts, summary: &Summary) -> String {
    let Summary { datagrams, seconds, sessions, .. } = summary;
    let mut out = format!("{datagrams} datagrams in {seconds:.3} s, sessions: {}", sessions.len());
    if let Some(schedule) = &facts.schedule {
        out += &format!(", schedule {schedule}");
    }
    if let Some(seed) = facts.seed {
        out += &format!(", seed {seed}");
    }
    out + "\n"
}

fn title(session: &Session) -> String {
    let mut title = format!("session {}", session.load);
    if session.run != 0 {
        title += &format!(", run {}", session.run);
    }
    if !session.label.is_empty() {
        title += &format!(": {}", session.label);
    }
    title
}

/// A table with two lines for each path, and two for the whole.
fn section(facts: &TraceFacts, title: &str, paths: &[PathSummary], whole: &PathSummary) -> String {
    let mut rows = HEADER.map(|line| line.map(str::to_owned)).to_vec();
    for path in paths.iter().chain([whole]) {
        let name = facts.path_name(path.path);
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

/// Columns as wide as their widest cell: names to the left, numbers to the right.
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
    use anabranch_drive::capture::{Row, TraceWriter};
    use std::fs;

    /// A trace of `sessions` sessions: each ten datagrams up on two paths in turn, one down.
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

    /// The lines of the tables, with single spaces.
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
            "burst packets burst ms longest",
            "path way packets bytes share bursts median longest median longest gap ms",
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
    fn many_sessions_are_summed_and_cut() {
        let lines = lines(25, 2);
        assert!(lines.contains(&"wlan up 125 12500 50.0 % 25 5.0 5 4.0 4.0 1.0".to_owned()));
        assert_eq!(lines.iter().filter(|line| line.starts_with("session ")).count(), 2);
        assert_eq!(lines.last().unwrap(), "23 more sessions; --all shows them");
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

    #[test]
    fn what_is_no_trace_is_refused_by_name() {
        let run = |path: PathBuf| {
            format!("{:?}", ReportArgs { trace: path, json: false, all: false }.run().unwrap_err())
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "time,size\n").unwrap();
        let refused = run(file.path().to_owned());
        let name = file.path().display().to_string();
        assert!(refused.contains("code: 2") && refused.contains(&name), "{refused}");
        assert!(refused.contains("not a readable Parquet file"), "{refused}");
        let refused = run(PathBuf::from("/nowhere"));
        assert!(refused.contains("/nowhere: No such file"), "{refused}");
    }
}
