//! `anabranch experiment pages`: page loads as observers see them, a data set.

mod page;
mod sheet;
mod words;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anabranch_drive::experiment::pages::{
    Bench, Http, Loaded, Mode, Set, Settings, TRIES, Unit, Web, columns, plan, summary,
};
use anabranch_drive::experiment::{
    Event, Journal, Progress, Turns, Unit as _, carry_out_together, table,
};
use clap::Args;

use super::allowed::{need_networks, need_root};
use super::bar::Bar;
use super::telling::{object, say, told_to_stop};
use crate::failure::Failure;
use crate::html;

/// What was loaded, a line for each attempt.
const JOURNAL: &str = "units.jsonl";
const TABLE: &str = "loads.parquet";
const PAGE: &str = "pages.html";
const SHEET: &str = "DATASHEET.md";
/// The folder of the traces of single loads.
const TRACES: &str = "loads";

/// Load pages of a local web in Chromium, split and undefended, and record what observers see
///
/// Headless Chromium loads a page with an empty cache through WireGuard (wireguard-go at both ends) through
/// `anabranch split` over three emulated paths of 100 Mbit/s and 20, 35 and 60 ms; its undefended twin is another load
/// by the first path alone. Caddy serves the sites over HTTP/2 and HTTP/3, an address for each. All loads are made in a
/// seeded, interleaved order; one that fails is recorded, and tried again at the end, three times at most.
///
/// FOLDER gets units.jsonl (each attempt when it is done), loads/ (the trace of each load), and, at the end of each run,
/// split.parquet and undefended.parquet (traces of all loads, docs/formats.md), loads.parquet, pages.html and DATASHEET.md.
/// The same command goes on where it was stopped. It takes root, a local web (`make web`), Chromium, Caddy,
/// and what `tests/interop/setup --area experiments` installs.
#[derive(Args)]
pub(crate) struct PagesArgs {
    /// Where the data set goes; made if it is not there
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// The local web: a folder with sites.toml, as `make web` makes it [default: ~/.cache/anabranch/web]
    #[arg(long, value_name = "DIR")]
    web: Option<PathBuf>,
    /// Monitored pages, the first of the list
    #[arg(long, value_name = "N", default_value_t = 40)]
    monitored: usize,
    /// Other pages, each loaded once split and once undefended
    #[arg(long, value_name = "N", default_value_t = 300)]
    unmonitored: usize,
    /// How often each monitored page is loaded, split and as often undefended
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    loads: u32,
    /// Browsers at once, each in a network of its own; more than the machine bears distort the times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    browsers: u32,
    /// What the browser speaks: both (HTTP/3 with one half of the sites, HTTP/2 with the other), h2, h3
    #[arg(long, value_name = "NAME", default_value = "both")]
    http: Http,
    /// How long a page may take until its load event
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = patience)]
    patience: f64,
    /// Of the order, the sites' protocols and the splitter's choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A further word for `anabranch split` where it splits, such as --split=--schedule=hywf; repeat for more
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    split: Vec<String>,
    /// Where the programs are, if not where tests/interop/setup builds them or in PATH
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Load nothing: make the data set of what is there
    #[arg(long)]
    report: bool,
    /// Tell what happens as JSON, one object a line, on standard output
    #[arg(long)]
    json: bool,
}

impl PagesArgs {
    /// Loads, and makes the data set of what there is then.
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.report {
            let read = Journal::<Loaded>::read(&self.folder.join(JOURNAL));
            let (header, records) = read.map_err(Failure::misuse)?;
            return self.tell(&header, &records);
        }
        need_root(&format!("anabranch experiment pages {}", self.folder.display()))?;
        let web = Web::read(&self.web_folder()).map_err(Failure::misuse)?;
        let settings = self.settings(&web)?;
        let header = settings.header();
        let traces = std::path::absolute(self.folder.join(TRACES)).map_err(Failure::misuse)?;
        let own = std::env::current_exe().map_err(Failure::trouble)?;
        let programs = (own, self.programs.as_deref());
        let bench = Bench::new(settings.clone(), web, programs, (traces.clone(), self.browsers));
        let bench = bench.map_err(Failure::misuse)?;
        need_networks()?;
        make(&self.folder)?;
        let journal = Journal::open(&self.folder.join(JOURNAL), &header);
        let mut journal = journal.map_err(Failure::misuse)?;
        make(&traces)?;
        let units = plan(&settings);
        let whole = self.load(&units, &bench, &mut journal);
        self.tell(&header, journal.records())?;
        verdict(whole?, &units, journal.records())
    }

    fn web_folder(&self) -> PathBuf {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
        let usual = cache.or_else(home).unwrap_or_default().join("anabranch/web");
        self.web.clone().unwrap_or(usual)
    }

    fn settings(&self, web: &Web) -> Result<Settings, Failure> {
        let sites = web.choose(self.monitored, self.unmonitored).map_err(Failure::misuse)?;
        if sites.is_empty() {
            return Err(Failure::misuse("no pages: give --monitored or --unmonitored"));
        }
        Ok(Settings {
            sites,
            web: web.digest.clone(),
            loads: self.loads,
            seed: self.seed,
            http: self.http,
            splitter: self.split.clone(),
            patience: self.patience,
        })
    }

    /// True if all is loaded or given up, false if somebody said stop.
    fn load(
        &self,
        units: &[Unit],
        bench: &Bench,
        journal: &mut Journal<Loaded>,
    ) -> Result<bool, Failure> {
        let stop = told_to_stop()?;
        let mut bar = Bar::new();
        let tell = |progress: &Progress, event: Event<'_, Unit, Loaded>| match event {
            _ if self.json => say(&object(progress, event)),
            Event::Begun(unit) => bar.begun(progress, &unit.id()),
            Event::Done(unit, record) => {
                bar.done(progress, &format!("{} {}", unit.id(), words::outcome(record)));
            }
            Event::Again(unit, why) => bar.note(&format!("{}: again later, as {why}", unit.id())),
        };
        let work = |turns: &Turns<'_, Unit, Loaded>| bench.work(turns, &stop);
        let whole = carry_out_together(units, journal, &stop, (self.browsers, TRIES), work, tell);
        bar.end();
        whole.map_err(Failure::trouble)
    }

    /// Makes traces, table, page and data sheet of what was loaded, and says in short what came of it.
    fn tell(&self, header: &serde_json::Value, records: &[Loaded]) -> Result<(), Failure> {
        let seed = header["seed"].as_u64().unwrap_or_default();
        let traces = self.folder.join(TRACES);
        let set = Set { traces: &traces, records, seed };
        for mode in Mode::ALL {
            let target = self.folder.join(format!("{}.parquet", mode.name()));
            set.write(mode, &target).map_err(Failure::trouble)?;
        }
        let cannot = |what: &Path, error: &dyn std::fmt::Display| {
            Failure::misuse(format!("cannot write {}: {error}", what.display()))
        };
        let facts = [
            ("anabranch.experiment", "pages".to_owned()),
            ("anabranch.schema", "1".to_owned()),
            ("anabranch.seed", seed.to_string()),
            ("anabranch.program", html::GENERATOR.to_owned()),
        ];
        let target = self.folder.join(TABLE);
        table::write(&target, &columns(records), &facts).map_err(|e| cannot(&target, &e))?;
        let pages = summary::pages(records);
        let subject = words::Subject { header, records, pages: &pages };
        let target = self.folder.join(SHEET);
        html::write(&target, &sheet::text(&subject)).map_err(|e| cannot(&target, &e))?;
        let target = self.folder.join(PAGE);
        html::write(&target, &page::page(&subject)).map_err(|e| cannot(&target, &e))?;
        if !self.json {
            let text = words::plain(&subject);
            let _ = writeln!(std::io::stdout(), "{text}\n{}", target.display());
        }
        Ok(())
    }
}

/// A folder that its owner alone may read, if it is not there yet.
fn make(folder: &Path) -> Result<(), Failure> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|e| Failure::misuse(format!("{}: {e}", folder.display())))
}

/// What the end of a run means for whoever started it.
fn verdict(whole: bool, units: &[Unit], records: &[Loaded]) -> Result<(), Failure> {
    let good: std::collections::BTreeSet<_> =
        records.iter().filter(|r| r.error.is_empty()).map(|r| r.unit.as_str()).collect();
    let without: Vec<String> =
        units.iter().map(|unit| unit.id()).filter(|id| !good.contains(id.as_str())).collect();
    let all = units.len();
    match (whole, without.len()) {
        (false, count) => Err(Failure::trouble(format!(
            "stopped with {} of {all} loads done; the same command goes on",
            all - count
        ))),
        (true, 0) => Ok(()),
        (true, count) => Err(Failure::trouble(format!(
            "{count} of {all} loads failed {TRIES} times each: {}; why is in {JOURNAL} and on the page",
            without.join(", ")
        ))),
    }
}

fn patience(text: &str) -> Result<f64, String> {
    let seconds: Result<f64, _> = text.parse();
    let valid = seconds.ok().filter(|seconds| (1.0..=600.0).contains(seconds));
    valid.ok_or_else(|| "a number of seconds from 1 to 600".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PagesArgs,
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in ["--loads 0", "--browsers 0", "--http 1", "--patience 0", "--seed x"] {
            let line = format!("x folder {words}");
            assert!(Line::try_parse_from(line.split_whitespace()).is_err(), "{words}");
        }
    }

    #[test]
    fn a_set_needs_pages() {
        let line = "x folder --monitored 0 --unmonitored 0".split_whitespace();
        let web = Web { folder: PathBuf::new(), sites: Vec::new(), digest: String::new() };
        let none = Line::try_parse_from(line).unwrap().args.settings(&web);
        assert!(none.unwrap_err().to_string().contains("--monitored"));
        let usual = Line::try_parse_from(["x", "folder"]).unwrap().args.settings(&web);
        assert!(usual.unwrap_err().to_string().contains("40 are wanted"));
    }
}
