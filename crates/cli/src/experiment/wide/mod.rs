//! `anabranch experiment wide`: the larger network of "Analysis of Multi-path Onion Routing", in
//! simulation.

mod markdown;
mod page;
mod picture;
mod words;

use std::num::NonZero;
use std::thread;
use std::time::Duration;

use anabranch_experiment::wide::claims::claims;
use anabranch_experiment::wide::{Bench, MOST_CLIENTS, Measured, Settings, Unit, columns, plan};
use anabranch_experiment::{Programs, Turns, carry_out_together};
use clap::Args;
use serde_json::Value;

use super::common::Results;
use super::frame::{Experiment, Run};
use crate::failure::Failure;

/// File name of the table of measurements.
const TABLE: &str = "wide.parquet";
/// File name of the page with the results.
const PAGE: &str = "wide.html";

/// Compare protocols that split streams over several circuits, in a simulated network of 315 nodes
/// ("Analysis of Multi-path Onion Routing", Figures 2 to 4).
///
/// 206 web clients, 22 bulk clients, 73 relays (14 of them exits) and 14 servers run in virtual
/// time (docs/simulator.md). The rates and delays of their network connections are drawn from
/// tables of the public Tor network and of PlanetLab. Each protocol is simulated with 2 and 3
/// circuits for a stream, each with three schedules (rules that choose the circuit of a packet).
/// All simulations use the same networks and seeds. Then the simulations are repeated with
/// different numbers of clients, from 20 up to --clients. The experiment sends nothing, and needs
/// neither root nor a network.
///
/// The command writes units.jsonl (one line for each simulation), wide.parquet, figure-2.svg,
/// figure-3.svg, figure-4.svg and wide.html into FOLDER. Run the same command again to continue an
/// experiment that was stopped.
#[derive(Args)]
pub(crate) struct WideArgs {
    #[command(flatten)]
    results: Results,
    /// Simulate at most N clients. A tenth of them are bulk clients, which download one file after
    /// another; the others load web pages.
    #[arg(
        long,
        value_name = "N",
        default_value_t = MOST_CLIENTS as u16,
        value_parser = clap::value_parser!(u16).range(10..=10_000)
    )]
    clients: u16,
    /// Measure N simulated seconds in each simulation, after the time that --warm-up sets.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1200,
        value_parser = clap::value_parser!(u32).range(10..=86_400)
    )]
    seconds: u32,
    /// Begin to measure after N simulated seconds. Downloads that end earlier are not measured.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 300,
        value_parser = clap::value_parser!(u32).range(0..=86_400)
    )]
    warm_up: u32,
    /// Simulate N networks whose rates and delays are chosen at random. Confidence intervals need
    /// at least three networks.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    networks: u16,
    /// Simulate each network N times, each time with different random choices.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    runs: u16,
    /// Let each relay use the whole rate of a relay of the public Tor network of 2018. By default
    /// each relay has only the part of this rate that the traffic of the public network left
    /// unused.
    #[arg(long)]
    whole_lines: bool,
    /// Leave out the simulations in which a stream uses three circuits.
    #[arg(long)]
    two_paths: bool,
    /// Run N simulations at the same time [default: one for each processor]. The results do not
    /// depend on N.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
}

impl Experiment for WideArgs {
    const NAME: &'static str = "wide";
    type Unit = Unit;
    type Record = Measured;

    fn results(&self) -> &Results {
        &self.results
    }

    fn outcome(record: &Measured) -> String {
        words::outcome(record)
    }

    fn measure(&self) -> Result<(), Failure> {
        let settings = self.settings();
        let all = || thread::available_parallelism().map_or(1, NonZero::get) as u32;
        let workers = self.workers.unwrap_or_else(all);
        let plan = (settings.header(), plan(&settings));
        let run = Run::begin(self, plan, &Programs::new(None))?;
        run.carry_out_by(|units, journal, stop, on_event| {
            let bench = Bench::new(units);
            let work = |turns: &Turns<'_, Unit, Measured>| bench.work(turns, stop);
            carry_out_together(units, journal, stop, (workers, 1), work, on_event)
        })
    }

    fn write_results(&self, header: &Value, records: &[Measured]) -> Result<(), Failure> {
        let clients = header["clients"].as_u64().unwrap_or_default() as usize;
        let claims = claims(records, clients);
        let report_data = words::ReportData { header, records, claims: &claims, clients };
        self.results.table(TABLE, header, &columns(records))?;
        for (file, picture) in picture::all(&report_data) {
            self.results.write(file, &picture)?;
        }
        self.results.write(PAGE, &page::page(&report_data))?;
        self.results.write_markdown("wide", || markdown::text(&report_data))?;
        self.results.conclude(&words::plain(&report_data), PAGE);
        Ok(())
    }
}

impl WideArgs {
    fn settings(&self) -> Settings {
        let warm_up = Duration::from_secs(self.warm_up.into());
        Settings {
            clients: self.clients.into(),
            duration: warm_up + Duration::from_secs(self.seconds.into()),
            warm_up,
            networks: self.networks.into(),
            seeds: self.runs.into(),
            whole_lines: self.whole_lines,
            three_paths: !self.two_paths,
            seed: self.results.seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: WideArgs,
    }

    fn parsed(words: &str) -> Result<Settings, clap::Error> {
        let line = Line::try_parse_from(format!("x folder {words}").split_whitespace());
        line.map(|line| line.args.settings())
    }

    #[test]
    fn the_usual_size_is_that_of_the_issue() {
        let usual = parsed("").unwrap();
        assert_eq!((usual.clients, usual.networks, usual.seeds), (228, 5, 2));
        assert_eq!([usual.duration, usual.warm_up].map(|time| time.as_secs()), [1500, 300]);
        assert!(usual.three_paths && !usual.whole_lines);
        let small = parsed("--clients 60 --seconds 60 --warm-up 0 --two-paths").unwrap();
        assert_eq!((small.clients, small.duration.as_secs()), (60, 60));
        assert!(!small.three_paths);
    }

    #[test]
    fn zero_clients_seconds_networks_and_runs_are_refused() {
        let none = ["--clients 0", "--seconds 0", "--networks 0", "--runs 0", "--workers 0"];
        assert!(none.into_iter().all(|words| parsed(words).is_err()));
    }
}
