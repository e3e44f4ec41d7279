//! Parts that the commands of all experiments share: options, the folder of results and its files.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anabranch_experiment::sweep::RUNS;
use anabranch_experiment::{Disturbance, Journal, Origin, Programs, Record, Spread, built, table};
use anabranch_os::shell;
use clap::Args;
use serde_json::Value;

use super::allowed::{Folder, need_root};
use super::marks;
use crate::failure::Failure;

/// Name of an experiment's journal. After its first line, the journal has one line for each
/// measurement (unit), or for each attempt at a measurement.
pub(crate) const JOURNAL: &str = "units.jsonl";

/// Options of every experiment: the seed, and the folder and formats of the results.
#[derive(Args)]
pub(super) struct Results {
    /// Keep the measurements and results in this folder, which is created if it is missing.
    #[arg(value_name = "FOLDER")]
    pub(super) folder: PathBuf,
    /// Use N as the seed of all random choices of the experiment. The same N and the same options
    /// give the same choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Do not measure. Write the tables and pages again from the measurements in FOLDER.
    #[arg(long)]
    pub(super) report: bool,
    /// Also write the results into this Markdown file, between two comment lines that mark their
    /// place. If the file lacks these lines, the command fails and prints them.
    #[arg(long, value_name = "FILE.md")]
    into: Option<PathBuf>,
    /// Print events as JSON on standard output, one object per line.
    #[arg(long)]
    pub(super) json: bool,
}

/// Options of every experiment on a network.
#[derive(Args)]
pub(super) struct Common {
    #[command(flatten)]
    pub(super) results: Results,
    /// Look for the programs that are measured (servers, clients, browsers) in this folder.
    ///
    /// By default they are looked for in the folder where tests/interop/setup builds them, then in
    /// PATH.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// Option of every experiment that runs `anabranch split`.
#[derive(Args)]
pub(super) struct SplitWords {
    /// Pass one more argument to `anabranch split`, such as --split=--quic-tuples=3 (repeatable).
    /// Measurements without splitting are not affected.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(super) split: Vec<String>,
}

impl Common {
    /// Returns the program under test (this executable) and the folder of the third-party programs
    /// (servers, clients, browsers), if the user gives one. Fails if the user is not root; the
    /// error proposes a `sudo` command. That command names the folder of the third-party programs
    /// and the folders `others` explicitly, because root has other default folders.
    ///
    /// # Errors
    /// Misuse (exit code 2): the user is not root. Trouble (exit code 1): the system does not
    /// reveal the executable's path.
    pub(super) fn programs(
        &self,
        others: impl IntoIterator<Item = Folder>,
    ) -> Result<(PathBuf, Option<&Path>), Failure> {
        let programs = built().filter(|_| self.programs.is_none());
        let mut folders: Vec<_> =
            programs.map(|folder| ("--programs", folder)).into_iter().collect();
        folders.extend(others);
        need_root(&folders)?;
        let own = std::env::current_exe().map_err(Failure::trouble)?;
        Ok((own, self.programs.as_deref()))
    }
}

impl Results {
    /// Opens the journal in the folder of results to continue it, or creates both. The journal's
    /// header has `settings`, the build of this program, and the third-party programs `peers`.
    ///
    /// # Errors
    /// Misuse (exit code 2): the journal has another header, or the folder cannot be created or
    /// has other files.
    pub(super) fn journal<R: Record>(
        &self,
        settings: Value,
        peers: &Programs,
    ) -> Result<Journal<R>, Failure> {
        let own = std::env::current_exe().map_err(Failure::trouble)?;
        let origin =
            Origin::of(anabranch_pages::GENERATOR, &own, peers).map_err(Failure::misuse)?;
        make_results(&self.folder, &[])?;
        Journal::open(&self.folder.join(JOURNAL), &origin.join(settings)).map_err(Failure::misuse)
    }

    /// Reads the header and the records of the journal. Unlike [`Results::journal`], accepts a
    /// journal that another build of this program has written.
    ///
    /// # Errors
    /// Misuse (exit code 2): the journal does not exist or is invalid.
    pub(super) fn read<R: Record>(&self) -> Result<(Value, Vec<R>), Failure> {
        Journal::read(&self.folder.join(JOURNAL)).map_err(Failure::misuse)
    }

    /// Writes `columns` as a Parquet table to `file` in the folder of results. The table's
    /// metadata is taken from `header`, the first line of the journal.
    ///
    /// # Errors
    /// Misuse (exit code 2): the file cannot be written.
    pub(super) fn table(
        &self,
        file: &str,
        header: &Value,
        columns: &[table::Column],
    ) -> Result<(), Failure> {
        let header_text = |key: &str| header[key].as_str().map(str::to_owned);
        let facts = [
            ("anabranch.experiment", header_text("experiment").unwrap_or_default()),
            ("anabranch.schema", "1".to_owned()),
            ("anabranch.seed", header["seed"].to_string()),
            ("anabranch.splitter", splitter(header)),
            // Journals written before this field existed have none.
            ("anabranch.program", header_text("program").unwrap_or_else(|| "not noted".to_owned())),
        ];
        let target = self.folder.join(file);
        table::write(&target, columns, &facts).map_err(|e| cannot_write(&target, &e))
    }

    /// Writes `text` to `file` in the folder of results, atomically.
    ///
    /// # Errors
    /// Misuse (exit code 2): the file cannot be written.
    pub(super) fn write(&self, file: &str, text: &str) -> Result<(), Failure> {
        let target = self.folder.join(file);
        anabranch_pages::write(&target, text).map_err(|e| cannot_write(&target, &e))
    }

    /// Writes the results of the experiment `name` into the Markdown file, if one is given.
    ///
    /// # Errors
    /// Misuse (exit code 2): the file cannot be written, or lacks the two comment lines (marks)
    /// between which the results belong.
    pub(super) fn write_markdown(
        &self,
        name: &str,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let Some(file) = &self.into else { return Ok(()) };
        let written = marks::replace(file, &format!("anabranch experiment {name}"), &text());
        written.map_err(|e| cannot_write(file, &e))
    }

    /// Prints a short result and the path of the page, unless `--json` is given.
    pub(super) fn conclude(&self, text: &str, page: &str) {
        if !self.json {
            // Standard output may be closed.
            let page = self.folder.join(page);
            let _ = writeln!(std::io::stdout(), "{text}\n{}", page.display());
        }
    }
}

/// Returns the failure that reports that the file `what` cannot be written.
fn cannot_write(what: &Path, error: &dyn Display) -> Failure {
    Failure::misuse(format!("cannot write {}: {error}", what.display()))
}

/// Creates a folder that only its owner may read, if it is missing.
///
/// # Errors
/// Misuse (exit code 2): the folder cannot be created.
pub(crate) fn make(folder: &Path) -> Result<(), Failure> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|e| no_folder(folder, &e))
}

/// Creates a folder of results as [`make`] does. Refuses a folder that has files and no journal,
/// because these files do not belong to an earlier execution of the command. Also without a
/// journal, the folder may contain the folders `own` with Parquet tables.
///
/// # Errors
/// Misuse (exit code 2): the folder cannot be created, or has other files.
pub(crate) fn make_results(folder: &Path, own: &[&str]) -> Result<(), Failure> {
    make(folder)?;
    if folder.join(JOURNAL).exists() {
        return Ok(());
    }
    let (tables, mut others): (Vec<_>, Vec<_>) =
        names_in(folder)?.into_iter().partition(|name| own.contains(&&**name));
    for tables in tables {
        // A hidden file is a table that was not completed.
        let is_other = |name: &String| !name.ends_with(".parquet") && !name.starts_with('.');
        let names = names_in(&folder.join(&tables))?.into_iter().filter(is_other);
        others.extend(names.map(|name| format!("{tables}/{name}")));
    }
    // Sweeps make the folder `runs`, so any other name shows better that the folder is not ours.
    match others.into_iter().min_by_key(|name| (name == RUNS, name.clone())) {
        None => Ok(()),
        Some(other) => Err(Failure::misuse(format!(
            "{}: the folder contains {other:?} but no {JOURNAL}, so it is not a folder of results: \
             choose a new or an empty folder",
            folder.display()
        ))),
    }
}

/// Returns the names of the entries of `folder`.
fn names_in(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(|e| no_folder(folder, &e))?.into_iter();
    Ok(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

fn no_folder(folder: &Path, error: &io::Error) -> Failure {
    Failure::misuse(format!("{}: {error}: choose another folder", folder.display()))
}

/// Returns the additional arguments of `anabranch split` in the journal's `header`, quoted for a
/// shell; empty if there are none.
pub(super) fn splitter(header: &Value) -> String {
    let words = header["splitter"].as_array().into_iter().flatten();
    shell::line(words.filter_map(Value::as_str))
}

/// Returns `words` (a command line of a splitter) with the additional arguments of the splitter
/// from the journal's `header`. A page shows the result as a heading.
pub(super) fn command(words: &str, header: &Value) -> String {
    format!("{words} {}", splitter(header)).trim_end().to_owned()
}

/// Returns a clause, to be appended to a sentence, about the additional arguments of `anabranch
/// split` in the journal's `header`; empty if there are none.
pub(super) fn and_splitter(header: &Value) -> String {
    let words = splitter(header);
    if words.is_empty() {
        words
    } else {
        format!("; in split measurements `anabranch split` also had the arguments `{words}`")
    }
}

/// Returns a sentence that names the programs and the machine of the measurements, from the
/// journal's first line.
pub(super) fn origin(header: &Value) -> String {
    let header_text = |key: &str| header[key].as_str().unwrap_or("not noted").to_owned();
    let peers = header["programs"].as_object().into_iter().flatten();
    let peers: Vec<_> =
        peers.map(|(name, print)| format!("{name} {}", print.as_str().unwrap_or("?"))).collect();
    let peers = if peers.is_empty() { "not noted".to_owned() } else { peers.join(", ") };
    format!(
        "Program: {}. Machine: {}. Other programs: {peers}.",
        header_text("program"),
        header_text("machine")
    )
}

/// Describes the load of the machine by other work: median and maximum of each field of
/// [`Disturbance`].
pub(super) fn disturbance(all: impl Iterator<Item = Disturbance> + Clone) -> String {
    let of = |value: fn(Disturbance) -> f64| Spread::of(all.clone().map(value));
    let (Some(load), Some(steal), Some(late), Some(pressure)) =
        (of(|d| d.load), of(|d| d.steal), of(|d| d.late), of(|d| d.pressure))
    else {
        return "Nothing was measured yet.".to_owned();
    };
    let two = |spread: Spread, scale: f64, digits: usize, unit: &str| {
        let [median, worst] = [spread.median, spread.most].map(|value| value * scale);
        format!("{median:.digits$}{unit} ({worst:.digits$}{unit})")
    };
    format!(
        "State of the machine during the measurements, as median (worst): the load was {}. The \
         hypervisor took {} of the CPU time. At least one task waited for a CPU in {} of the time. \
         One in a hundred wake-ups of a sleeping thread was late by {} or more.",
        two(load, 1.0, 1, ""),
        two(steal, 100.0, 1, " %"),
        two(pressure, 100.0, 0, " %"),
        two(late, 1.0, 1, " ms"),
    )
}

/// Returns a table in Markdown.
pub(super) fn markdown_table<'a>(
    head: &[String],
    rows: impl Iterator<Item = &'a [String]>,
) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = vec!["---".to_owned(); head.len()];
    line(head) + &line(&rule) + &rows.map(line).collect::<String>()
}

/// Parses a number of seconds from 1 to 600.
///
/// # Errors
/// The text is not a number, or it is out of range.
pub(super) fn patience(text: &str) -> Result<f64, String> {
    let seconds: Result<f64, _> = text.parse();
    let valid = seconds.ok().filter(|seconds| (1.0..=600.0).contains(seconds));
    valid.ok_or_else(|| "expected a number of seconds from 1 to 600".to_owned())
}
