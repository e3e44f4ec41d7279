//! `anabranch experiment anonymity`: the complete anonymity analysis of "Analysis of Multi-path
//! Onion Routing".

mod markdown;
mod page;
mod picture;
mod words;

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use anabranch_experiment::Programs;
use anabranch_experiment::anonymity::claims::claims;
use anabranch_experiment::anonymity::summary::{Summary, values};
use anabranch_experiment::anonymity::{
    Bench, NamedConsensus, Settings, Unit, UnitResult, columns, open, plan,
};
use clap::Args;
use serde_json::Value;

use super::common::Results;
use super::frame::{Experiment, Run};
use crate::anonymity::source::{Choice, read_file};
use crate::failure::Failure;

/// File name of the table of measurements.
const TABLE: &str = "anonymity.parquet";
/// File name of the page with the results.
const PAGE: &str = "anonymity.html";
/// File name of the picture with the shares of compromised clients in a year (Figure 5 of the
/// paper).
const PICTURE: &str = "year.svg";

/// Compute what hostile relays learn about clients that use several circuits, from consensuses of
/// the Tor network ("Analysis of Multi-path Onion Routing", section 6).
///
/// A consensus is the list of all relays at one time. For each consensus the experiment computes
/// the probability that hostile relays see both ends of a stream. It counts the clients that have
/// the same guards (the first relays of circuits). It also simulates clients for a year, against
/// adversaries that run random relays, the relays that clients choose most often, and few or many
/// additional relays. The adversaries are simulated with and without replacement of relays during
/// the year. For the second and later consensuses, only adversaries with random relays are
/// simulated. Then it checks whether the results agree with the paper's claims. It sends nothing,
/// and needs neither root nor a network.
///
/// The command writes units.jsonl (one line for each completed part), anonymity.parquet, year.svg
/// and anonymity.html into FOLDER. Run the same command again to continue an experiment that was
/// stopped. To compute only one of these analyses, use `anabranch anonymity`.
#[derive(Args)]
pub(crate) struct AnonymityArgs {
    #[command(flatten)]
    results: Results,
    /// Read this Tor consensus (list of all relays), plain or compressed (xz, gzip): a document of
    /// Tor's directory protocol, or a table (docs/formats.md). Repeat the option for several
    /// consensuses. Only for the first of them, a year is simulated against all adversaries.
    ///
    /// FILE@TIME reads one consensus from the archive FILE, such as a month's archive of
    /// CollecTor. TIME is the hour (UTC) from which the consensus is valid, as in
    /// 2024-05.tar.xz@2024-05-17T17.
    #[arg(long, value_name = "FILE[@TIME]", required_unless_present = "report")]
    consensus: Vec<PathBuf>,
    /// Simulate N clients for a year, for each number of entry relays (first relays of circuits)
    /// that a client uses [default: 500000]. For each consensus after the first, N/10 clients are
    /// simulated. Some adversaries influence which relays clients choose. For these adversaries,
    /// N/50 clients are simulated for each choice of hostile relays (--draws).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(50..=100_000_000))]
    clients: Option<u32>,
    /// Choose the relays of each adversary at random N times. The results are means over these
    /// choices [default: 50].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    draws: Option<u16>,
    /// Simulate N clients, and count how many of them have the same guards (first relays of
    /// circuits).
    #[arg(
        long,
        value_name = "N",
        default_value_t = 83_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000_000)
    )]
    fingerprints: u32,
    /// Compute less, in one or two minutes: 10,000 clients, and 10 random choices of hostile
    /// relays.
    #[arg(long, conflicts_with_all = ["clients", "draws"])]
    short: bool,
    /// Use N threads [default: one for each processor]. The results do not depend on N.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl Experiment for AnonymityArgs {
    const NAME: &'static str = "anonymity";
    type Unit = Unit;
    type Record = UnitResult;

    fn results(&self) -> &Results {
        &self.results
    }

    fn outcome(record: &UnitResult) -> String {
        words::outcome(record)
    }

    fn measure(&self) -> Result<(), Failure> {
        let settings = self.settings(self.named()?);
        let bench = Bench::new(&settings, read);
        let plan = (settings.header(), plan(&settings));
        Run::begin(self, plan, &Programs::new(None))?.carry_out(|unit, _| bench.analyse(unit))
    }

    fn write_results(&self, header: &Value, records: &[UnitResult]) -> Result<(), Failure> {
        let summary = Summary::of(records);
        let claims = claims(&summary);
        let report_data = words::ReportData { header, summary: &summary, claims: &claims };
        self.results.table(TABLE, header, &columns(&values(&summary)))?;
        if let Some(picture) = picture::year(&report_data) {
            self.results.write(PICTURE, &picture)?;
        }
        self.results.write(PAGE, &page::page(&report_data))?;
        self.results.write_markdown("anonymity", || markdown::text(&report_data))?;
        self.results.conclude(&words::plain(&report_data), PAGE);
        Ok(())
    }
}

impl AnonymityArgs {
    /// Opens the consensuses that the user has named. Fails if one of the files is not a
    /// consensus.
    fn named(&self) -> Result<Vec<NamedConsensus>, Failure> {
        let all = self.consensus.iter().map(|given| {
            let (file, hour) = parts(given);
            open(file, hour, read).map(|(named, _)| named)
        });
        let all = all.collect::<Result<Vec<NamedConsensus>, String>>().map_err(Failure::misuse)?;
        let mut names = BTreeSet::new();
        match all.iter().find(|one| !names.insert(one.name.clone())) {
            Some(twice) => Err(Failure::misuse(format!(
                "--consensus: two files hold the same consensus, {}; remove one of them",
                twice.name
            ))),
            None => Ok(all),
        }
    }

    fn settings(&self, consensuses: Vec<NamedConsensus>) -> Settings {
        let all = || thread::available_parallelism().map_or(1, NonZero::get);
        let of = |usual: usize, short: usize| if self.short { short } else { usual };
        Settings {
            consensuses,
            clients: self.clients.map_or(of(500_000, 10_000), |clients| clients as usize),
            draws: self.draws.map_or(of(50, 10), usize::from),
            circuits: of(2000, 500) as u64,
            fingerprints: self.fingerprints as usize,
            populations: of(10, 2),
            seed: self.results.seed,
            threads: self.threads.map_or_else(all, usize::from),
        }
    }
}

/// Splits an argument into a file and, after its last `@`, the hour of a consensus in an archive.
fn parts(given: &Path) -> (&Path, Option<&str>) {
    let split = given.to_str().and_then(|text| text.rsplit_once('@'));
    match split {
        Some((file, hour)) if !given.exists() => (Path::new(file), Some(hour)),
        _ => (given, None),
    }
}

fn read(file: &Path, hour: Option<&str>) -> Result<Vec<u8>, String> {
    read_file(file, Choice { hour, written: "@" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: AnonymityArgs,
    }

    fn parsed(words: &str) -> Result<AnonymityArgs, clap::Error> {
        let line = Line::try_parse_from(format!("x folder {words}").split_whitespace());
        line.map(|line| line.args)
    }

    #[test]
    fn the_forms_have_the_sizes_that_they_promise() {
        let of = |words: &str| parsed(words).unwrap().settings(Vec::new());
        let usual = of("--consensus a");
        assert_eq!((usual.clients, usual.draws, usual.fingerprints), (500_000, 50, 83_000));
        let short = of("--consensus a --short");
        assert_eq!((short.clients, short.draws), (10_000, 10));
        let own = of("--consensus a --clients 1000 --draws 3 --threads 1");
        assert_eq!((own.clients, own.draws, own.threads), (1000, 3, 1));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in [
            "",
            "--consensus a --clients 0",
            "--consensus a --draws 0",
            "--consensus a --threads 0",
        ] {
            assert!(parsed(words).is_err(), "{words}");
        }
        assert!(parsed("--report").is_ok());
    }
}
