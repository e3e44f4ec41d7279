//! `anabranch experiment circuits`: one circuit compared with several, in our implementation and
//! in C tor.

mod markdown;
mod page;
mod words;

use anabranch_experiment::circuits::{
    Bench, Design, Layout, Load, Measured, Settings, Unit, columns, plan, summary,
};
use clap::Args;
use serde_json::Value;

use super::common::{Common, Results, patience};
use super::frame::{Experiment, Run};
use crate::failure::Failure;

/// File name of the table of measurements.
const TABLE: &str = "circuits.parquet";
/// File name of the page with the results.
const PAGE: &str = "circuits.html";

/// Measure how much faster a download is over several Tor circuits than over one, in a small
/// network (de la Cadena et al., DBSec 2019, Table 1).
///
/// The network has seven relays, four web servers, 30 clients whose downloads load the network,
/// and one client that measures: the time to the first byte and to the last byte of downloads of
/// 320 KiB and of 1 MiB. The experiment also measures the CPU time of every relay. The experiment
/// compares Tor with one circuit; Conflux, Conflux 2013, mTor, our own design and mUDP-OR over two
/// and three circuits; UDP-OR; MORE; and C tor with and without Conflux. It measures on loopback,
/// as in the paper, and with guards (the first relays of circuits) whose emulated network
/// connections have different rates and delays.
///
/// The command writes units.jsonl (one line for each completed network), circuits.parquet and
/// circuits.html into FOLDER. Run the same command again to continue an experiment that was
/// stopped. It needs root and C tor (the Tor project's 'tor' program; package tor).
#[derive(Args)]
pub(crate) struct CircuitsArgs {
    #[command(flatten)]
    common: Common,
    /// Compare these designs (programs and protocols that carry a download) [default: all].
    ///
    /// One circuit for each download: tor (this program), stock (C tor, the Tor project's
    /// program), udp-or (this program; the circuit may lose data, and TCP runs between client and
    /// exit).
    ///
    /// Several circuits: conflux, conflux-2013, mtor, anabranch (this program, each by the method
    /// of the same name), stock-conflux (C tor), mudp-or (udp-or over several circuits), merged
    /// (the circuits join at a middle relay), merged-batches (merged, in batches of 50 to 70
    /// cells).
    ///
    /// Several circuits that take turns (round robin): conflux-2013-turns, mtor-turns,
    /// anabranch-turns, mudp-or-turns. mudp-or-turns uses the congestion control CUBIC.
    ///
    /// No circuits: more (MORE, which draws a new path for each packet). On loopback only.
    #[arg(long, value_name = "DESIGN,...", value_delimiter = ',')]
    designs: Vec<Design>,
    /// Use N circuits for each download in designs that use several circuits. C tor (the Tor
    /// project's program) always uses two.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "2,3", value_parser = clap::value_parser!(u32).range(1..=3))]
    legs: Vec<u32>,
    /// Measure on these networks [default: loopback,lines]. 'loopback': all programs run on one
    /// host. 'lines': the three guards (first relays of circuits) have network connections of
    /// different rates and delays. 'line': each guard has a network connection of 20 Mbit/s, and
    /// other clients load these connections to the levels of --levels.
    #[arg(long, value_name = "NETWORK,...", value_delimiter = ',')]
    places: Vec<Layout>,
    /// Measure each design N times, each time in a new network of relays with new keys and
    /// circuits [default: 10].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Repeat each download N times in each network [default: 20]. Every second repetition uses
    /// optimistic data: the client sends its request before the connection is confirmed.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// Set the size of the large download, in MiB. The paper of de la Cadena et al. used 1 MiB.
    /// Results for other sizes are not compared with this paper.
    #[arg(long, value_name = "MIB", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    bulk: u32,
    /// Load the network with the downloads of N clients, in addition to the client that measures.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(0..=200))]
    clients: u32,
    /// Let each client that loads the network pause for SECONDS on average between two pages. The
    /// first value is for the network 'loopback' of --places, the second for the network 'lines'.
    #[arg(long, value_name = "SECONDS,SECONDS", value_delimiter = ',', num_args = 1, default_value = "6,12", value_parser = patience)]
    pauses: Vec<f64>,
    /// Choose the relays of the clients that load the network: spread (all guards and middle
    /// relays), or employed (the same relays as the client that measures, as in the paper of de la
    /// Cadena et al.).
    #[arg(long, value_name = "CIRCUITS", default_value = "spread")]
    load: Load,
    /// In the network 'line' of --places, let the clients that load the network use N percent of
    /// the rate of each guard's network connection. A guard is the first relay of a circuit. If
    /// circuits are too slow, these clients use less.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "0,30,58,90", value_parser = clap::value_parser!(u32).range(0..=100))]
    levels: Vec<u32>,
    /// Measure less, in about a quarter of an hour: on loopback, with two circuits, in two
    /// networks with six repetitions each. Designs whose names end in -turns or -batches are left
    /// out.
    #[arg(long, conflicts_with_all = ["rounds", "repetitions", "places"])]
    short: bool,
}

impl Experiment for CircuitsArgs {
    const NAME: &'static str = "circuits";
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
        let settings = self.settings()?;
        let bench = Bench::new(&settings, own, programs).map_err(Failure::misuse)?;
        let plan = (settings.header(), plan(&settings));
        Run::on_networks(self, plan, bench.programs())?
            .carry_out(|unit, stop| bench.measure(unit, stop))
    }

    fn write_results(&self, header: &Value, records: &[Measured]) -> Result<(), Failure> {
        self.common.results.table(TABLE, header, &columns(records))?;
        let (cells, mut verdicts) = (summary::cells(records), summary::verdicts(records));
        let as_paper = header["bulk"] == 1;
        verdicts.retain(|verdict| as_paper || !verdict.claim.is_about_bulk());
        let report_data = words::ReportData { header, records, cells: &cells, verdicts: &verdicts };
        self.common.results.write(PAGE, &page::page(&report_data))?;
        self.common.results.write_markdown("circuits", || markdown::text(&report_data))?;
        self.common.results.conclude(&words::plain(&report_data), PAGE);
        Ok(())
    }
}

impl CircuitsArgs {
    fn settings(&self) -> Result<Settings, Failure> {
        let places: &[Layout] = match (&*self.places, self.short) {
            ([], true) => &[Layout::Loopback],
            ([], false) => &Layout::USUAL,
            (given, _) => given,
        };
        let mut designs = match self.designs.is_empty() {
            true => Design::ALL.to_vec(),
            false => self.designs.clone(),
        };
        designs.retain(|design| !(self.short && self.designs.is_empty() && design.is_variant()));
        let (rounds, repetitions) = if self.short { (2, 6) } else { (10, 20) };
        let pauses = <[f64; 2]>::try_from(&*self.pauses);
        let pauses = pauses.map_err(|_| {
            Failure::misuse("--pauses: expected two numbers of seconds, such as 6,12")
        })?;
        Ok(Settings {
            designs,
            legs: if self.short { vec![2] } else { self.legs.clone() },
            places: places.to_vec(),
            rounds: self.rounds.unwrap_or(rounds),
            repetitions: self.repetitions.unwrap_or(repetitions),
            bulk: self.bulk,
            clients: self.clients,
            pauses,
            load: self.load,
            levels: self.levels.clone(),
            seed: self.common.results.seed,
        })
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
        args: CircuitsArgs,
    }

    fn settings(words: &str) -> Result<Settings, Failure> {
        let line = Line::try_parse_from(format!("x folder {words}").split_whitespace()).unwrap();
        line.args.settings()
    }

    #[test]
    fn the_forms_have_the_plans_that_they_promise() {
        // MORE has a single row, on loopback.
        assert_eq!(plan(&settings("").unwrap()).len(), 10 * (2 * 26 + 1));
        let short = plan(&settings("--short").unwrap());
        assert_eq!(short.len(), 2 * 11);
        let lasts: f64 = short.iter().map(|unit| unit.lasts().as_secs_f64()).sum();
        assert!((300.0..900.0).contains(&lasts), "{lasts} s");
        assert_eq!(plan(&settings("--designs mtor --legs 3 --places lines").unwrap()).len(), 10);
        let line = settings("--designs tor,mtor --places line --load employed").unwrap();
        assert_eq!((plan(&line).len(), line.load), (10 * 4 * 3, Load::ClientRelays));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in [
            "--designs tors",
            "--legs 4",
            "--rounds 0",
            "--pauses 0,1",
            "--places moon",
            "--load all",
            "--levels 101",
        ] {
            let line = format!("x folder {words}");
            assert!(Line::try_parse_from(line.split_whitespace()).is_err(), "{words}");
        }
        assert!(settings("--pauses 3").is_err());
    }
}
