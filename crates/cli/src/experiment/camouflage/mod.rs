//! `anabranch experiment camouflage`: the cost of camouflage on an emulated access line like the
//! line in the paper (Weinberg et al., CCS 2012).

mod judged;
mod markdown;
mod page;
mod picture;
mod plain;
mod words;

use std::fs;
use std::io::{self, Write as _};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anabranch_experiment::camouflage::{
    Arm, Bench, Folders, Measured, Settings, Unit, bars, claims, columns, plan, stream_columns,
    summary,
};
use clap::Args;
use clap::builder::TypedValueParser;
use serde_json::Value;

use super::common::{Common, Results};
use super::frame::{Experiment, Run};
use crate::failure::Failure;

/// File name of the table of measurements.
const TABLE: &str = "camouflage.parquet";
/// File name of the table of streams, which are transfers at a constant rate.
const STREAMS: &str = "camouflage-streams.parquet";
/// File name of the page with the results.
const PAGE: &str = "camouflage.html";
/// File names of the pictures that repeat Figures 6 and 7 of Weinberg et al. (CCS 2012).
const PICTURES: [&str; 2] = ["figure-6.svg", "figure-7.svg"];

/// Measure how much slower camouflage makes Tor, and how many bytes it adds (Weinberg et al., CCS
/// 2012, Table 3, Figures 6 and 7).
///
/// The client has an emulated internet access with 0.7 Mbit/s up, 5.6 Mbit/s down, and a
/// round-trip time of 85 ms. At the other end of this line are a bridge, a private network of C
/// tor (the Tor project's 'tor' program) and a web server, whose rates have no limit. The client
/// downloads files of 100 kB to 1 MB. It also receives streams (transfers at a constant rate) of
/// 50, 150 and 300 kB/s for 20 s, at round-trip times of 100 to 450 ms. Its connections to the web
/// server are direct, through Tor alone, and through Tor over obfs4proxy, webtunnel and each
/// profile of `anabranch pt`. The profiles are also measured without Tor. The experiment counts
/// the IP packets on the client's line.
///
/// The command writes units.jsonl (one line for each completed measurement), camouflage.parquet,
/// camouflage-streams.parquet, camouflage.html, figure-6.svg and figure-7.svg into FOLDER. Run the
/// same command again to continue an experiment that was stopped. It needs root and C tor (package
/// tor); other transports are measured if they are installed.
#[derive(Args)]
pub(crate) struct CamouflageArgs {
    #[command(flatten)]
    common: Common,
    /// Measure these kinds of connections: direct, tor (C tor alone), obfs4, webtunnel, and the
    /// profiles of `anabranch pt`: nosteg, nosteg-rr, nosteg-short, http-opaque,
    /// http-opaque-short, http-text, http-text-short, http-image, http-site, embed [default: all
    /// whose programs are installed].
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    arms: Vec<Arm>,
    /// Measure N rounds of downloads. In each round, each kind of connection of --arms makes four
    /// downloads of 1 MB, and one download of each of the lengths 100, 200, 300, ... and 900 kB.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = number(0..=1000))]
    rounds: u32,
    /// Measure N rounds of downloads through `anabranch pt` without Tor. In each round, each of
    /// its profiles makes four downloads of 1 MB.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = number(0..=1000))]
    bare_rounds: u32,
    /// Measure N rounds of streams (transfers at a constant rate). Each round has one stream for
    /// each rate of --rates and each round-trip time of --rtts.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = number(0..=1000))]
    stream_rounds: u32,
    /// Measure streams (transfers at a constant rate) at these round-trip times, in milliseconds.
    #[arg(
        long,
        value_name = "MS,...",
        value_delimiter = ',',
        default_value = "100,150,200,250,300,350,400,450",
        value_parser = number(2..=2000)
    )]
    rtts: Vec<u32>,
    /// Measure streams (transfers at a constant rate) of these rates, in kB/s.
    #[arg(
        long,
        value_name = "KB,...",
        value_delimiter = ',',
        default_value = "50,150,300",
        value_parser = number(1..=600)
    )]
    rates: Vec<u32>,
    /// Let each stream (a transfer at a constant rate) last N seconds.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = number(1..=600))]
    seconds: u32,
    /// Abort a download that is not complete after SECONDS.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = number(1..=3600))]
    cut: u32,
    /// Let the profile http-image hide data in the JPEG files of this folder. Without this option
    /// http-image is not measured.
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// Let the profile http-site hide data in the web files of this folder, which `anabranch pt
    /// crawl` makes. Without this option http-site is not measured.
    #[arg(long, value_name = "DIR")]
    covers: Option<PathBuf>,
    /// Measure less, in about twenty minutes: the connections direct, tor, nosteg and http-opaque,
    /// with two rounds of downloads, and one round of streams at 100 and 450 ms.
    #[arg(long, conflicts_with_all = ["arms", "rounds", "bare_rounds", "stream_rounds", "rtts"])]
    short: bool,
}

impl Experiment for CamouflageArgs {
    const NAME: &'static str = "camouflage";
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
        let settings = self.settings(programs)?;
        let folder = |given: &Option<PathBuf>| given.as_deref().map(absolute).transpose();
        let folders = Folders { pictures: folder(&self.pictures)?, covers: folder(&self.covers)? };
        let bench = Bench::new(&settings, own, programs, folders).map_err(Failure::misuse)?;
        let plan = (settings.header(), plan(&settings));
        let run = Run::on_networks(self, plan, bench.programs())?;
        let test_network = bench.test_network().map_err(Failure::trouble)?;
        let servers = bench.servers(&test_network);
        run.carry_out(|unit, stop| servers.measure(unit, stop))
    }

    fn write_results(&self, header: &Value, records: &[Measured]) -> Result<(), Failure> {
        let results = &self.common.results;
        results.table(TABLE, header, &columns(records))?;
        results.table(STREAMS, header, &stream_columns(records))?;
        let boxes = summary::boxes(records);
        let claims = claims::judge(records, &boxes);
        let report_data = words::ReportData {
            header,
            records,
            table: &summary::table(records),
            curves: &summary::curves(records),
            boxes: &boxes,
            claims: &claims,
            bars: &bars::hold(records, &claims),
        };
        let figures = [picture::figure_6(&report_data), picture::figure_7(&report_data)];
        for (file, figure) in PICTURES.iter().zip(&figures) {
            results.write(file, figure)?;
        }
        results.write(PAGE, &page::page(&report_data, &figures))?;
        results.write_markdown("camouflage", || markdown::text(&report_data))?;
        results.conclude(&plain::text(&report_data), PAGE);
        Ok(())
    }
}

impl CamouflageArgs {
    fn settings(&self, programs: Option<&Path>) -> Result<Settings, Failure> {
        let pictures = self.pictures.as_deref().map(contents).transpose()?;
        let covers = self.covers.as_deref().map(contents).transpose()?;
        let usual = Settings {
            arms: self.arms(programs)?,
            rounds: self.rounds,
            bare_rounds: self.bare_rounds,
            stream_rounds: self.stream_rounds,
            rtts: self.rtts.clone(),
            rates: self.rates.clone(),
            seconds: self.seconds,
            cut: self.cut,
            pictures,
            covers,
            seed: self.common.results.seed,
        };
        if !self.short {
            return Ok(usual);
        }
        Ok(Settings {
            arms: vec![Arm::Direct, Arm::Tor, Arm::Nosteg, Arm::Opaque],
            rounds: 2,
            bare_rounds: 2,
            stream_rounds: 1,
            rtts: vec![100, 450],
            ..usual
        })
    }

    /// Returns the arms (kinds of connections, such as Tor over obfs4) to measure: the arms in
    /// `--arms` or, without this option, all arms whose programs and files are available. Without
    /// `--arms` and `--short`, prints for each other arm why it is not measured.
    fn arms(&self, programs: Option<&Path>) -> Result<Vec<Arm>, Failure> {
        if !self.arms.is_empty() {
            let bare = self.arms.iter().find_map(|arm| Some((arm, self.lacks(*arm)?)));
            return match bare {
                Some((arm, option)) => {
                    Err(Failure::misuse(format!("--arms {arm} needs {option}: add this option")))
                }
                None => Ok(self.arms.clone()),
            };
        }
        let mut arms = Arm::ALL.to_vec();
        arms.retain(|&arm| {
            let reason = match self.lacks(arm) {
                Some(option) => Some(format!("{option} is not given")),
                None => Bench::lacks(arm, programs).map(|missing| missing.to_string()),
            };
            if let (Some(reason), false) = (&reason, self.short) {
                // A failure means that standard error is closed, so nobody reads the line.
                let _ = writeln!(
                    io::stderr(),
                    "connections of the kind '{arm}' are not measured: {reason}"
                );
            }
            reason.is_none()
        });
        Ok(arms)
    }
}

impl CamouflageArgs {
    /// Returns the option that names the cover files for `arm` (a kind of connection), if `arm`
    /// needs such files and the option is not given.
    fn lacks(&self, arm: Arm) -> Option<&'static str> {
        match arm {
            Arm::Image => self.pictures.is_none().then_some("--pictures"),
            Arm::Site => self.covers.is_none().then_some("--covers"),
            _ => None,
        }
    }
}

/// Returns a parser of a number in `range`.
fn number(range: RangeInclusive<i64>) -> impl TypedValueParser<Value = u32> {
    clap::value_parser!(u32).range(range)
}

/// Returns the absolute path of `folder`, for programs with another working directory.
fn absolute(folder: &Path) -> Result<PathBuf, Failure> {
    fs::canonicalize(folder).map_err(|e| Failure::misuse(format!("{}: {e}", folder.display())))
}

/// Returns the number of files in `folder` and their total size in bytes. A stopped experiment can
/// be continued only if both are unchanged.
fn contents(folder: &Path) -> Result<[u64; 2], Failure> {
    let listed = fs::read_dir(folder).and_then(|entries| {
        entries.map(|entry| Ok(entry?.metadata()?.len())).collect::<std::io::Result<Vec<u64>>>()
    });
    let sizes = listed.map_err(|e| Failure::misuse(format!("{}: {e}", folder.display())))?;
    Ok([sizes.len() as u64, sizes.iter().sum()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_experiment::Unit as _;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: CamouflageArgs,
    }

    fn settings(words: &str) -> Result<Settings, Failure> {
        let line = Line::try_parse_from(format!("x folder {words}").split_whitespace()).unwrap();
        line.args.settings(None)
    }

    #[test]
    fn the_forms_have_the_plans_that_they_promise() {
        let all = plan(&settings("--arms direct,tor,nosteg").unwrap());
        assert_eq!(all.len(), 3 * (8 + 6 * 8) + 8);
        let short = plan(&settings("--short").unwrap());
        assert_eq!(short.len(), 4 * (2 + 2) + 2 * 2);
        let lasts: f64 = short.iter().map(|unit| unit.lasts().as_secs_f64()).sum();
        assert!((900.0..1500.0).contains(&lasts), "some twenty minutes: {lasts} s");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in ["--arms meek", "--rtts 1", "--rates 0", "--short --rounds 3"] {
            let line = format!("x folder {words}");
            assert!(Line::try_parse_from(line.split_whitespace()).is_err(), "{words}");
        }
        assert!(settings("--arms http-image").is_err());
        assert!(settings("--arms http-site").is_err() && settings("--arms embed").is_ok());
        assert!(settings("--arms direct --pictures /no/where").is_err());
    }

    #[test]
    fn other_pictures_are_another_journal() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.jpg"), [0; 7]).unwrap();
        assert_eq!(contents(folder.path()).unwrap(), [1, 7]);
        let covers = format!("--arms http-site --covers {}", folder.path().display());
        assert_eq!(settings(&covers).unwrap().covers, Some([1, 7]));
    }
}
