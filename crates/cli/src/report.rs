//! `anabranch report`: what the observer of each path saw, from a trace, as a page or as tables.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anabranch_capture::{Summary, Trace, TraceError, TraceTimeSeries};
use anabranch_pages::tables;
use anabranch_pages::trace::{self, ReportData};
use clap::Args;

use crate::failure::Failure;

/// Text for error messages: the files that `report` can read.
const READS: &str = "report reads files that 'anabranch split --trace FILE' wrote";

/// Number of sessions that are shown individually without `--all`.
const SHOWN: usize = 20;

/// Maximum number of sessions on a page, which limits the memory that a browser needs.
const MOST: usize = 1000;

/// Write an HTML page that shows what the observer of each path saw. For each direction the page
/// shows the rate of the path, its share of the traffic, and how often and for how long the path
/// was used.
///
/// The page is a single file without scripts, and needs no network. It has the same numbers as the
/// output of --text and --json. The trace can be larger than this machine's memory.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Read this trace: a file that 'anabranch split', 'anabranch mosh' or 'anabranch client'
    /// wrote with its option --trace.
    trace: PathBuf,
    /// Write the page to this file; - is standard output [default: the name of TRACE with the
    /// ending .html].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print tables instead of writing a page. With --output, do both.
    #[arg(long)]
    text: bool,
    /// Print one JSON object instead of writing a page. With --output, do both.
    #[arg(long, conflicts_with = "text")]
    json: bool,
    /// Show all sessions instead of only 20. A session is the traffic of one program with one
    /// server. Without this option, tables have the first 20 sessions of the trace, and pages the
    /// 20 sessions with most traffic.
    #[arg(long)]
    all: bool,
}

impl ReportArgs {
    /// Writes the page, or prints the tables.
    ///
    /// # Errors
    /// Misuse (exit code 2): the page cannot be written, or the file is not a trace (the message
    /// gives the reason). Trouble (exit code 1): writing to standard output fails.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let refuse = |e| Failure::misuse(format!("{}: {e}", self.trace.display()));
        let trace = Trace::open(&self.trace).map_err(|error| {
            let name = self.trace.display();
            match error {
                TraceError::Foreign if is_capture(&self.trace) => Failure::misuse(format!(
                    "{name} is a capture (for Wireshark and tcpdump); {READS}"
                )),
                TraceError::Directory | TraceError::Foreign => {
                    Failure::misuse(format!("{name}: {error}; {READS}"))
                }
                error => refuse(error),
            }
        })?;
        // The target is checked before the trace is read, so that the user learns of an invalid
        // target at once.
        let target = self.target()?;
        let summary = Summary::of_trace(&trace).map_err(refuse)?;
        if let Some(target) = &target {
            let chosen = self.chosen(&summary)?;
            let time_series = TraceTimeSeries::of_trace(&trace, &summary, &chosen, trace::MAX_ROWS);
            let time_series = time_series.map_err(refuse)?;
            let name = self.trace.file_name().unwrap_or_default().to_string_lossy();
            let facts = trace.facts();
            let report_data = ReportData {
                name: &name,
                facts,
                summary: &summary,
                time_series: &time_series,
                chosen: &chosen,
            };
            write(target, &trace::page(&report_data))?;
        }
        let shown = if self.all { usize::MAX } else { SHOWN };
        match target {
            _ if self.text => print(&tables::as_tables(trace.facts(), &summary, shown)),
            _ if self.json => print(&tables::as_json(trace.facts(), &summary)),
            Some(page) if page != Path::new("-") => {
                print(&format!("wrote the report to {}\n", page.display()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the file for the page; `None` if no page is wanted.
    ///
    /// # Errors
    /// The file is the trace itself. Or `--output` was not given, and a file with the default name
    /// exists that is not a page of this program. Or page and tables would both go to standard
    /// output.
    fn target(&self) -> Result<Option<PathBuf>, Failure> {
        if self.output.is_none() && (self.text || self.json) {
            return Ok(None);
        }
        let default_target = || self.trace.with_extension("html");
        let target = self.output.clone().unwrap_or_else(default_target);
        if target == Path::new("-") {
            if self.text || self.json {
                return Err(Failure::misuse(
                    "the page (--output -) and the tables (--text, --json) cannot both go to \
                     standard output: give --output a file name",
                ));
            }
            return Ok(Some(target));
        }
        let shown = target.display();
        if is_same(&target, &self.trace) {
            return Err(Failure::misuse(format!(
                "the report cannot be written to {shown}, because this file is the trace: choose \
                 another file with --output"
            )));
        }
        if self.output.is_none() && target.exists() && !anabranch_pages::is_ours(&target) {
            let why = "already exists and is not a report: choose another file with --output";
            return Err(Failure::misuse(format!("{shown} {why}")));
        }
        Ok(Some(target))
    }

    /// Returns the indices of the sessions with most traffic, in increasing order. The page shows
    /// these sessions individually.
    fn chosen(&self, summary: &Summary) -> Result<Vec<usize>, Failure> {
        let count = summary.sessions.len();
        if self.all && count > MOST {
            let remedy = "remove --all, or print all of them as tables with --text --all";
            return Err(Failure::misuse(format!(
                "the trace has {count} sessions, but a page shows at most {MOST}: {remedy}"
            )));
        }
        let bytes = |&at: &usize| {
            let whole = &summary.sessions[at].whole;
            std::cmp::Reverse(whole.up.bytes + whole.down.bytes)
        };
        let mut places: Vec<usize> = (0..count).collect();
        places.sort_by_key(bytes);
        places.truncate(if self.all { MOST } else { SHOWN });
        places.sort_unstable();
        Ok(places)
    }
}

/// Returns whether the file at `path` begins like a pcapng or pcap file, in either byte order.
fn is_capture(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    let number = u32::from_be_bytes(magic);
    read.is_ok()
        && [0x0a0d_0d0a, 0xa1b2_c3d4, 0xa1b2_3c4d]
            .iter()
            .any(|known| number == *known || number.swap_bytes() == *known)
}

/// Writes the page atomically to the file `target`, or prints it if `target` is `-`.
fn write(target: &Path, page: &str) -> Result<(), Failure> {
    if target == Path::new("-") {
        return print(page);
    }
    anabranch_pages::write(target, page)
        .map_err(|e| Failure::misuse(format!("cannot write the page: {e}")))
}

/// Prints `text`. If the reader closes the pipe early (`| head`), that is not an error.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|e| Failure::trouble(format!("cannot print the report: {e}"))),
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).ok();
    real(one).is_some() && real(one) == real(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_capture::{Row, TraceFacts, TraceWriter};

    /// Writes a trace of `sessions` sessions. Each session has one packet, which is larger than
    /// the packet of the previous session.
    fn trace(sessions: i32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.parquet");
        let mut writer = TraceWriter::create(&path, &TraceFacts::default()).unwrap();
        for n in 0..sessions {
            let (load, label, monitored, run, path, time) =
                (n.into(), "", false, 0, 0, f64::from(n));
            writer.push(&Row { load, label, monitored, run, path, time, size: n + 1 }).unwrap();
        }
        writer.finish().unwrap();
        (folder, path)
    }

    fn args(trace: &Path) -> ReportArgs {
        ReportArgs { trace: trace.to_owned(), output: None, text: false, json: false, all: false }
    }

    fn refusal(args: &ReportArgs) -> String {
        let message = format!("{:?}", args.run().unwrap_err());
        assert!(message.contains("code: 2"), "{message}");
        message
    }

    fn names(folder: &tempfile::TempDir) -> Vec<String> {
        let entries = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_page_lies_beside_the_trace_and_may_be_made_again() {
        let (folder, path) = trace(3);
        args(&path).run().unwrap();
        args(&path).run().unwrap();
        assert_eq!(names(&folder), ["run.html", "run.parquet"]);
        let page = fs::read_to_string(folder.path().join("run.html")).unwrap();
        assert!(page.contains("run.parquet") && page.ends_with("</html>"), "{page}");
    }

    #[test]
    fn what_is_no_page_of_ours_is_kept() {
        let (folder, path) = trace(1);
        fs::write(folder.path().join("run.html"), "<p>mine").unwrap();
        assert!(refusal(&args(&path)).contains("run.html already exists and is not a report"));
        assert_eq!(fs::read_to_string(folder.path().join("run.html")).unwrap(), "<p>mine");
        let output = Some(path.clone());
        assert!(refusal(&ReportArgs { output, ..args(&path) }).contains("is the trace"));
        Trace::open(&path).unwrap();
    }

    #[test]
    fn tables_alone_leave_no_file_behind() {
        let (folder, path) = trace(1);
        ReportArgs { text: true, ..args(&path) }.run().unwrap();
        assert_eq!(names(&folder), ["run.parquet"]);
    }

    #[test]
    fn what_is_no_trace_is_refused_by_name_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        fs::write(&path, "time,size\n").unwrap();
        let refused = refusal(&args(&path));
        assert!(
            refused.contains("a.parquet")
                && refused.contains("not a trace, because it is not a Parquet file"),
            "{refused}"
        );
        assert_eq!(names(&folder), ["a.parquet"]);
        assert!(refusal(&args(Path::new("/nowhere"))).contains("/nowhere: No such file"));
    }

    #[test]
    fn a_trace_that_breaks_off_leaves_no_page() {
        let (folder, path) = trace(3);
        let mut bytes = fs::read(&path).unwrap();
        bytes[4..40].fill(0xff);
        fs::write(&path, bytes).unwrap();
        refusal(&args(&path));
        assert_eq!(names(&folder), ["run.parquet"]);
    }

    #[test]
    fn a_place_that_takes_no_file_is_refused() {
        let (folder, path) = trace(1);
        for output in [folder.path().to_owned(), folder.path().join("nowhere/a.html")] {
            let refused = refusal(&ReportArgs { output: Some(output), ..args(&path) });
            assert!(refused.contains("cannot write the page"), "{refused}");
        }
        assert_eq!(names(&folder), ["run.parquet"]);
    }

    #[test]
    fn the_busiest_sessions_are_chosen_in_their_order() {
        let (_folder, path) = trace(25);
        let summary = Summary::of_trace(&Trace::open(&path).unwrap()).unwrap();
        assert_eq!(args(&path).chosen(&summary).unwrap(), (5..25).collect::<Vec<_>>());
        let all = ReportArgs { all: true, ..args(&path) };
        assert_eq!(all.chosen(&summary).unwrap().len(), 25);
    }

    #[test]
    fn more_sessions_than_a_browser_holds_are_refused() {
        let (folder, path) = trace(1001);
        assert!(
            refusal(&ReportArgs { all: true, ..args(&path) })
                .contains("the trace has 1001 sessions")
        );
        assert_eq!(names(&folder), ["run.parquet"]);
    }
}
