//! `anabranch experiment pages`: a data set of page loads, as observers of paths see them.

mod page;
mod sheet;
mod words;

use std::path::PathBuf;

use anabranch_experiment::pages::{
    Bench, Http, LoadResult, Mode, RATE, Set, Settings, TRIES, Unit, Web, columns, plan, summary,
};
use anabranch_experiment::{Turns, Unit as _, cache, carry_out_together};
use clap::Args;
use serde_json::Value;

use super::common::{Common, JOURNAL, Results, SplitWords, make, patience};
use super::frame::{Experiment, Run};
use crate::failure::Failure;

/// File name of the table of measurements.
const TABLE: &str = "loads.parquet";
/// File name of the page with the results.
const PAGE: &str = "pages.html";
/// File name of the data sheet, which describes how the data set was made.
const SHEET: &str = "DATASHEET.md";
/// Default counts of monitored pages, of unmonitored pages, and of loads of each monitored page.
const USUAL: (usize, usize, u32) = (40, 300, 30);
/// Counts with `--short`, in the order of [`USUAL`].
const SHORT: (usize, usize, u32) = (5, 4, 2);
/// Name of the folder that has one trace file for each page load.
const TRACES: &str = "loads";

/// Load web pages from a local web server in Chromium, split and unsplit (undefended), and record
/// the packets that an observer of each path sees.
///
/// Headless Chromium loads each page with an empty cache through WireGuard (wireguard-go at both
/// ends). `anabranch split` sends the WireGuard packets over three emulated paths of 100 Mbit/s
/// (--rate) with round-trip times of 20, 35 and 60 ms. An undefended load uses only the first
/// path. Caddy serves the web sites over HTTP/2 and HTTP/3, each site at its own address. Split
/// and undefended loads are mixed in a random order (--seed). A load that fails is recorded, and
/// repeated at the end, up to three times.
///
/// The command writes units.jsonl (one line for each attempt) and the folder loads (the trace of
/// each load) into FOLDER. At its end it also writes split.parquet and undefended.parquet (traces
/// of all loads, docs/formats.md), loads.parquet, pages.html and DATASHEET.md. Run the same
/// command again to continue an experiment that was stopped. It needs root, local web sites (`make
/// web`), Chromium, Caddy, and what `tests/interop/setup --area experiments` installs.
#[derive(Args)]
pub(crate) struct PagesArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    words: SplitWords,
    /// Load the web pages in folder DIR, which `make web` creates and which contains a file
    /// sites.toml [default: ~/.cache/anabranch/web].
    #[arg(long, value_name = "DIR")]
    web: Option<PathBuf>,
    /// Load the first N monitored pages in the file sites.toml of --web. Monitored pages are the
    /// pages that an attack learns to recognise [default: 40].
    #[arg(long, value_name = "N")]
    monitored: Option<usize>,
    /// Load the first N unmonitored pages in the file sites.toml of --web. An attack does not
    /// learn these pages. Each is loaded once split and once over one path (undefended) [default:
    /// 300].
    #[arg(long, value_name = "N")]
    unmonitored: Option<usize>,
    /// Load each monitored page (a page that an attack learns) N times split and N times over one
    /// path (undefended) [default: 30].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    loads: Option<u32>,
    /// Load fewer pages, in about one minute: 5 monitored pages, twice each, and 4 unmonitored
    /// pages.
    #[arg(long, conflicts_with_all = ["monitored", "unmonitored", "loads"])]
    short: bool,
    /// Run N browsers at the same time, each in its own emulated network. If the machine is too
    /// slow for N browsers, the measured times are wrong.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    browsers: u32,
    /// Choose the browser's protocol: both (HTTP/3 with one half of the sites, HTTP/2 with the
    /// other), h2 (HTTP/2), h3 (HTTP/3).
    #[arg(long, value_name = "NAME", default_value = "both")]
    http: Http,
    /// Put a far end (`anabranch merge`) in front of the WireGuard server. The far end and the
    /// splitter hide the packet numbers of WireGuard from observers.
    #[arg(long)]
    far_end: bool,
    /// Use three circuits of an onion network as the three paths. All its relays run on the
    /// client's host (`anabranch up`). The exits send all traffic to the far end (`anabranch
    /// merge`) over the first emulated path; the other two emulated paths are not used.
    #[arg(long, requires = "far_end")]
    onion: bool,
    /// Pass one more argument to the far end (`anabranch merge`), such as --merge=--every=20ms
    /// (repeatable).
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true, requires = "far_end")]
    merge: Vec<String>,
    /// Set the rate of each emulated path, in Mbit/s. With 0.5 the load of a page takes seconds,
    /// as over a slow internet access, so that the splitter changes the path more often during a
    /// load.
    #[arg(long, value_name = "MBIT/S", default_value_t = RATE, value_parser = rate)]
    rate: f64,
    /// Abort the load of a page if the browser has not loaded all of it (load event) after
    /// SECONDS.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = patience)]
    patience: f64,
}

impl Experiment for PagesArgs {
    const NAME: &'static str = "pages";
    type Unit = Unit;
    type Record = LoadResult;

    fn results(&self) -> &Results {
        &self.common.results
    }

    fn outcome(record: &LoadResult) -> String {
        words::outcome(record)
    }

    fn measure(&self) -> Result<(), Failure> {
        let others = self.web.is_none().then(|| ("--web", self.web_folder()));
        let programs = self.common.programs(others)?;
        let web = Web::read(&self.web_folder()).map_err(Failure::misuse)?;
        let settings = self.settings(&web)?;
        let traces = &self.common.results.folder.join(TRACES);
        let traces = std::path::absolute(traces).map_err(Failure::misuse)?;
        let files = (traces.clone(), self.browsers);
        let bench = Bench::new(settings.clone(), web, programs, files).map_err(Failure::misuse)?;
        let plan = (settings.header(), plan(&settings));
        let run = Run::on_networks(self, plan, bench.programs())?;
        make(&traces)?;
        let limits = (self.browsers, TRIES);
        run.carry_out_by(|units, journal, stop, on_event| {
            let work = |turns: &Turns<'_, Unit, LoadResult>| bench.work(turns, stop);
            carry_out_together(units, journal, stop, limits, work, on_event)
        })
    }

    fn write_results(&self, header: &Value, records: &[LoadResult]) -> Result<(), Failure> {
        let seed = header["seed"].as_u64().unwrap_or_default();
        let traces = self.common.results.folder.join(TRACES);
        let set = Set { traces: &traces, records, seed };
        for mode in Mode::ALL {
            let target = self.common.results.folder.join(format!("{}.parquet", mode.name()));
            set.write(mode, &target).map_err(Failure::trouble)?;
        }
        self.common.results.table(TABLE, header, &columns(records))?;
        let pages = summary::pages(records);
        let report_data = words::ReportData { header, records, pages: &pages };
        self.common.results.write(SHEET, &sheet::text(&report_data))?;
        self.common.results.write(PAGE, &page::page(&report_data))?;
        self.common.results.write_markdown("pages", || sheet::part(&report_data))?;
        self.common.results.conclude(&words::plain(&report_data), PAGE);
        Ok(())
    }

    fn verdict(whole: bool, units: &[Unit], records: &[LoadResult]) -> Result<(), Failure> {
        let good: std::collections::BTreeSet<_> =
            records.iter().filter(|r| r.error.is_empty()).map(|r| r.unit.as_str()).collect();
        let without: Vec<String> =
            units.iter().map(|unit| unit.id()).filter(|id| !good.contains(id.as_str())).collect();
        let all = units.len();
        match (whole, without.len()) {
            (false, count) => Err(Failure::trouble(format!(
                "stopped with {} of {all} page loads done; run the same command again to continue",
                all - count
            ))),
            (true, 0) => Ok(()),
            (true, count) => Err(Failure::trouble(format!(
                "{count} of {all} page loads failed {TRIES} times each: {}; the reasons are in \
                 {JOURNAL} and on the results page",
                without.join(", ")
            ))),
        }
    }
}

impl PagesArgs {
    fn web_folder(&self) -> PathBuf {
        self.web.clone().unwrap_or_else(|| cache().unwrap_or_default().join("web"))
    }

    fn settings(&self, web: &Web) -> Result<Settings, Failure> {
        let (monitored, unmonitored, loads) = if self.short { SHORT } else { USUAL };
        let monitored = self.monitored.unwrap_or(monitored);
        let unmonitored = self.unmonitored.unwrap_or(unmonitored);
        let sites = web.choose(monitored, unmonitored).map_err(Failure::misuse)?;
        if sites.is_empty() {
            return Err(Failure::misuse(
                "there are no pages to load: give --monitored or --unmonitored a number above 0",
            ));
        }
        Ok(Settings {
            sites,
            web: web.digest.clone(),
            loads: self.loads.unwrap_or(loads),
            seed: self.common.results.seed,
            http: self.http,
            splitter: self.words.split.clone(),
            far_end: self.far_end.then(|| self.merge.clone()),
            onion: self.onion,
            rate: self.rate,
            patience: self.patience,
        })
    }
}

/// Parses a rate in megabits per second.
fn rate(text: &str) -> Result<f64, String> {
    let rate: Result<f64, _> = text.parse();
    let valid = rate.ok().filter(|rate| (0.1..=1_000.0).contains(rate));
    valid.ok_or_else(|| "expected megabits per second, from 0.1 to 1000".to_owned())
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
        for words in [
            "--loads 0",
            "--browsers 0",
            "--http 1",
            "--patience 0",
            "--rate 0",
            "--rate -1",
            "--rate 2mbit",
            "--seed x",
            "--short --loads 2",
            "--onion",
        ] {
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
        for (words, wanted) in
            [(&["x", "folder"][..], "40 are"), (&["x", "folder", "--short"], "5 are")]
        {
            let refused = Line::try_parse_from(words).unwrap().args.settings(&web);
            assert!(refused.unwrap_err().to_string().contains(wanted));
        }
    }
}
