//! `anabranch experiment overhead`: the cost of splitting in throughput.

mod markdown;
mod page;
mod words;

use anabranch_experiment::overhead::{
    Bench, EVERY, Limit, Measured, Net, Settings, System, Unit, columns, plan, summary,
};
use clap::Args;
use serde_json::Value;

use super::common::{Common, Results, SplitWords};
use super::frame::{Experiment, Run};
use crate::failure::Failure;

/// File name of the table of measurements.
const TABLE: &str = "overhead.parquet";
/// File name of the page with the results.
const PAGE: &str = "overhead.html";

/// Measure how much slower downloads are when they are split over several paths (CoMPS, section 6,
/// Figure 8).
///
/// The experiment downloads files through `anabranch split`, over two and three emulated paths of
/// 100 Mbit/s. After each interval of --every, the splitter chooses a path at random, with a
/// probability for each path. The downloads are compared with downloads that stay on one path. All
/// downloads use unmodified programs: WireGuard (wireguard-go at both ends, one TCP connection
/// with cubic), Mosh (a file of 10 MB, displayed again and again), and QUIC servers. Each download
/// lasts ten seconds; if it stalls, only the bytes that arrived count. The order of all downloads
/// is random (--seed), so that a disturbance of the machine affects all kinds alike.
///
/// The command writes units.jsonl (one line for each completed measurement), overhead.parquet and
/// overhead.html into FOLDER. Run the same command again to continue an experiment that was
/// stopped. It needs root, and the programs that `tests/interop/setup --area experiments`
/// installs.
#[derive(Args)]
pub(crate) struct OverheadArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    words: SplitWords,
    /// Measure downloads with these programs: wireguard, mosh, quic-go, quinn, s2n-quic, ngtcp2,
    /// aioquic.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "wireguard,mosh,quic-go,quinn"
    )]
    peers: Vec<System>,
    /// Measure downloads whose path changes after each of these intervals, in milliseconds. With
    /// `never` a download stays on one path; the other downloads are compared with it [default:
    /// all intervals of the paper CoMPS, and never].
    #[arg(long, value_name = "MS,...", value_delimiter = ',', value_parser = interval)]
    every: Vec<u32>,
    /// Measure downloads over these numbers of paths: 2, 3 [default: both].
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(2..=3))]
    paths: Vec<u8>,
    /// Measure on these networks: equal (each path has a round-trip time of 20 ms), unequal (20,
    /// 35 and 60 ms).
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "equal,unequal")]
    networks: Vec<Net>,
    /// Repeat each measurement N times [default: 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// Stop each download after SECONDS [default: 10].
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["full", "short"], value_parser = duration)]
    seconds: Option<f64>,
    /// Measure as the authors of the paper CoMPS did, which takes days. Each download then ends
    /// after 1 GB instead of ten seconds; with Mosh it lasts one minute. Each measurement is
    /// repeated ten times.
    #[arg(long)]
    full: bool,
    /// Measure less, in about three minutes: over three paths, with a change of the path every 100
    /// ms and without changes. Each measurement is one download of six seconds.
    #[arg(long, conflicts_with = "full")]
    short: bool,
}

impl Experiment for OverheadArgs {
    const NAME: &'static str = "overhead";
    type Unit = Unit;
    type Record = Measured;

    fn results(&self) -> &Results {
        &self.common.results
    }

    fn outcome(record: &Measured) -> String {
        words::outcome(record)
    }

    fn measure(&self) -> Result<(), Failure> {
        let (own, programs) = self.common.programs([])?;
        let settings = self.settings();
        let bench = Bench::new(&settings, own, programs).map_err(Failure::misuse)?;
        let plan = (settings.header(), plan(&settings));
        Run::on_networks(self, plan, bench.programs())?
            .carry_out(|unit, stop| bench.measure(unit, stop))
    }

    fn write_results(&self, header: &Value, records: &[Measured]) -> Result<(), Failure> {
        self.common.results.table(TABLE, header, &columns(records))?;
        let cells = summary::cells(records);
        let report_data = words::ReportData { header, records, cells: &cells };
        self.common.results.write(PAGE, &page::page(&report_data))?;
        self.common.results.write_markdown("overhead", || markdown::text(&report_data))?;
        self.common.results.conclude(&words::plain(&cells), PAGE);
        Ok(())
    }
}

impl OverheadArgs {
    fn settings(&self) -> Settings {
        let (seconds, bytes) = match (self.full, self.short) {
            (true, _) => (600.0, Some(1_000_000_000)),
            (_, true) => (6.0, None),
            _ => (self.seconds.unwrap_or(10.0), None),
        };
        let paths: &[usize] = if self.short { &[3] } else { &[2, 3] };
        let every: &[u32] = if self.short { &[100, 0] } else { &EVERY };
        let usual = if self.full {
            10
        } else if self.short {
            1
        } else {
            3
        };
        let or = |given: Vec<usize>, usual: &[usize]| match given.is_empty() {
            true => usual.to_vec(),
            false => given,
        };
        Settings {
            systems: self.peers.clone(),
            nets: self.networks.clone(),
            paths: or(self.paths.iter().map(|&n| usize::from(n)).collect(), paths),
            every: if self.every.is_empty() { every.to_vec() } else { self.every.clone() },
            repetitions: self.repetitions.unwrap_or(usual),
            limit: Limit { seconds, bytes },
            seed: self.common.results.seed,
            splitter: self.words.split.clone(),
        }
    }
}

fn interval(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("ms").unwrap_or(text).parse();
    match (text, number) {
        ("never", _) => Ok(0),
        (_, Ok(ms @ 1..=60_000)) => Ok(ms),
        _ => Err("expected a number of milliseconds from 1 to 60000, or never".to_owned()),
    }
}

fn duration(text: &str) -> Result<f64, String> {
    let seconds: Result<f64, _> = text.parse();
    let valid = seconds.ok().filter(|seconds| (1.0..=3600.0).contains(seconds));
    valid.ok_or_else(|| "expected a number of seconds from 1 to 3600".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_experiment::Unit as _;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: OverheadArgs,
    }

    fn settings(words: &str) -> Settings {
        let line = Line::try_parse_from(format!("x folder {words}").split_whitespace()).unwrap();
        line.args.settings()
    }

    #[test]
    fn the_forms_have_the_plans_that_they_promise() {
        assert_eq!(plan(&settings("")).len(), 480);
        let full = settings("--full");
        assert_eq!((full.repetitions, full.limit.bytes), (10, Some(1_000_000_000)));
        let short = plan(&settings("--short"));
        assert_eq!(short.len(), 4 * 2 * 2);
        let lasts: f64 = short.iter().map(|unit| unit.lasts().as_secs_f64()).sum();
        assert!((100.0..180.0).contains(&lasts), "{lasts} s");
        let own =
            settings("--peers quinn --every 100,never --paths 3 --networks equal --seconds 5");
        assert_eq!((plan(&own).len(), own.limit.seconds), (6, 5.0));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in [
            "--peers quick",
            "--every 0",
            "--every 1s",
            "--paths 4",
            "--seconds 0",
            "--full --short",
            "--networks flat",
            "--repetitions 0",
            "--seconds 5 --full",
        ] {
            let line = format!("x folder {words}");
            assert!(Line::try_parse_from(line.split_whitespace()).is_err(), "{words}");
        }
    }
}
