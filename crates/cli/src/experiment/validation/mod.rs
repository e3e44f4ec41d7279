//! `anabranch experiment validation`: a wide network in the emulator, compared with simulations.

mod page;
mod words;

use anabranch_experiment::circuits::Design;
use anabranch_experiment::validation::{
    Bench, Counts, Measured, Settings, Unit, columns, plan, relay_columns, summary,
};
use clap::Args;
use serde_json::Value;

use super::common::{Common, Results, patience};
use super::frame::{Experiment, Run};
use crate::failure::Failure;

/// File name of the table of downloads.
const TABLE: &str = "validation.parquet";
/// File name of the table of relays.
const RELAYS: &str = "validation-relays.parquet";
/// File name of the page with the results.
const PAGE: &str = "validation.html";
/// Number of web servers in the measured network.
const SERVERS: usize = 4;

/// Measure a network of 24 relays and 66 clients on emulated lines, and compare its downloads with
/// simulations of the same network.
///
/// The network has 60 clients that load pages of 320 KiB with random pauses, and 6 clients that
/// download one file of 1 MiB after another. Each relay and client is a process of its own; the
/// web servers are part of this program. Each relay, client and web server has its own host with
/// its own network connection. The rates and delays of these connections are drawn from tables of
/// the public Tor network and of PlanetLab; all rates are divided by 8. The relays of each client
/// are drawn at random, in proportion to their rates. The network is measured with three designs:
/// this program with one circuit for a stream, this program with two circuits, and C tor (the Tor
/// project's 'tor' program). The simulator runs the same network, host by host
/// (docs/simulator.md).
///
/// The command writes units.jsonl (one line for each measurement and simulation),
/// validation.parquet (downloads), validation-relays.parquet (relays, with their CPU times) and
/// validation.html into FOLDER. Run the same command again to continue an experiment that was
/// stopped. It needs root and C tor (package tor), 20 minutes, and a machine without other work.
#[derive(Args)]
pub(crate) struct ValidationArgs {
    #[command(flatten)]
    common: Common,
    /// Compare these designs (programs and protocols that carry streams). With one circuit for a
    /// stream: tor (this program), stock (C tor). With two circuits: anabranch (our own design),
    /// conflux, stock-conflux (C tor), and the other designs of 'anabranch experiment circuits'
    /// without UDP. C tor is compared with simulations of this program.
    #[arg(
        long,
        value_name = "DESIGN,...",
        value_delimiter = ',',
        default_value = "tor,stock,anabranch"
    )]
    designs: Vec<Design>,
    /// Use N relays. A quarter of them are exits; the others are guards and middles [default: 24].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(3..=80))]
    relays: Option<u8>,
    /// Let N clients load web pages [default: 60].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8))]
    clients: Option<u8>,
    /// Let N clients download one file after another [default: 6].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8))]
    bulk: Option<u8>,
    /// Let each web client pause for SECONDS on average between two pages.
    #[arg(long, value_name = "SECONDS", default_value = "8", value_parser = patience)]
    pause: f64,
    /// Measure each design N times, each time with new keys and circuits [default: 2].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Simulate each design N times, each time with different random choices [default: 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Ignore downloads in the first N seconds after the clients began [default: 20].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=3600))]
    warm_up: Option<u32>,
    /// Count downloads for N seconds after the time of --warm-up [default: 120].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(5..=3600))]
    seconds: Option<u32>,
    /// Measure less, in about five minutes: 12 relays, 12 web clients and 2 bulk clients, one round
    /// and one simulation of 30 seconds.
    #[arg(
        long,
        conflicts_with_all = ["relays", "clients", "bulk", "rounds", "runs", "warm_up", "seconds"]
    )]
    short: bool,
}

impl Experiment for ValidationArgs {
    const NAME: &'static str = "validation";
    type Unit = Unit;
    type Record = Measured;

    fn results(&self) -> &Results {
        &self.common.results
    }

    fn outcome(record: &Measured) -> String {
        words::outcome(record)
    }

    fn measure(&self) -> Result<(), Failure> {
        let settings = self.settings();
        settings.check().map_err(Failure::misuse)?;
        let (own, programs) = self.common.programs([])?;
        let bench = Bench::new(&settings, own, programs).map_err(Failure::misuse)?;
        let plan = (settings.header(), plan(&settings));
        Run::on_networks(self, plan, bench.programs())?
            .carry_out(|unit, stop| bench.measure(unit, stop))
    }

    fn write_results(&self, header: &Value, records: &[Measured]) -> Result<(), Failure> {
        let results = &self.common.results;
        results.table(TABLE, header, &columns(records))?;
        results.table(RELAYS, header, &relay_columns(records))?;
        let compared = summary::compare(records);
        let report_data = words::ReportData { header, records, compared: &compared };
        results.write(PAGE, &page::page(&report_data))?;
        results.write_markdown("validation", || words::markdown(&report_data))?;
        results.conclude(&words::plain(&report_data), PAGE);
        Ok(())
    }
}

impl ValidationArgs {
    fn settings(&self) -> Settings {
        let usual = |whole: u32, short: u32| if self.short { short } else { whole };
        let number = |given: Option<u8>, whole: u32, short: u32| {
            given.map_or(usual(whole, short) as usize, usize::from)
        };
        let clients = [number(self.clients, 60, 12), number(self.bulk, 6, 2)];
        Settings {
            designs: self.designs.clone(),
            counts: Counts::of(number(self.relays, 24, 12), [SERVERS, clients[0], clients[1]]),
            rounds: self.rounds.unwrap_or(usual(2, 1)),
            seeds: self.runs.unwrap_or(usual(3, 1)),
            warm_up: self.warm_up.unwrap_or(usual(20, 10)),
            seconds: self.seconds.unwrap_or(usual(120, 30)),
            pause: self.pause,
            seed: self.common.results.seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_experiment::Unit as _;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ValidationArgs,
    }

    fn parsed(words: &str) -> Result<Settings, clap::Error> {
        let line = Line::try_parse_from(format!("x folder {words}").split_whitespace());
        line.map(|line| line.args.settings())
    }

    fn lasts(settings: &Settings) -> f64 {
        plan(settings).iter().map(|unit| unit.lasts().as_secs_f64()).sum()
    }

    #[test]
    fn the_forms_have_the_sizes_that_they_promise() {
        let usual = parsed("").unwrap();
        assert_eq!(usual.counts, Counts::of(24, [SERVERS, 60, 6]));
        assert_eq!((usual.rounds, usual.seeds, usual.warm_up, usual.seconds), (2, 3, 20, 120));
        assert!(lasts(&usual) < 1300.0, "{} s", lasts(&usual));
        let short = parsed("--short").unwrap();
        assert_eq!(short.counts, Counts::of(12, [SERVERS, 12, 2]));
        assert!(lasts(&short) < 300.0, "{} s", lasts(&short));
        assert!(usual.check().is_ok() && short.check().is_ok());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in [
            "--designs moon",
            "--relays 2",
            "--clients 256",
            "--pause 0",
            "--rounds 0",
            "--runs 0",
            "--seconds 4",
            "--short --rounds 2",
        ] {
            assert!(parsed(words).is_err(), "{words}");
        }
        for words in ["--designs more", "--relays 3", "--clients 0 --bulk 0", "--clients 255"] {
            assert!(parsed(words).unwrap().check().is_err(), "{words}");
        }
    }
}
