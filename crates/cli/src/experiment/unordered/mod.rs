//! `anabranch experiment unordered`: compares links between relays. On unordered links, a lost TCP
//! segment delays only the circuits whose data it carries.

mod markdown;
mod page;
mod picture;
mod words;

use std::path::Path;

use anabranch_experiment::Programs;
use anabranch_experiment::unordered::{
    Arm, Bench, Congestion, Direction, Measured, SegmentOrder, Settings, Simulator, Unit,
    cell_columns, claims, columns, plan, summary,
};
use clap::Args;
use serde_json::{Value, json};

use super::common::{Common, Results};
use super::frame::{Experiment, Run};
use crate::failure::Failure;

/// File name of the table of measurements.
const TABLE: &str = "unordered.parquet";
/// File name of the table of the delays of cells (Tor's packets).
const CELLS: &str = "unordered-cells.parquet";
/// File name of the page with the results.
const PAGE: &str = "unordered.html";
/// File name of the picture that repeats Figure 3 of Nowlan et al. (FOCI 2013).
const PICTURE: &str = "figure-3.svg";
/// Key of the journal's header (its first line, a JSON object) that marks results of simulations.
const SIMULATED: &str = "simulated";

/// Measure how much faster downloads are when a packet loss on one Tor circuit does not delay the
/// other circuits (Nowlan, Wolinsky and Ford, FOCI 2013, Figure 3).
///
/// A link is a connection between two relays that carries many circuits. All circuits use the same
/// three relays. 40 downloads of 10 to 400 KB start together, each on its own circuit. The client,
/// the three relays and the web server are connected by emulated lines with a delay of 50 ms. The
/// last line, between the middle relay and the exit, loses TCP segments. Links deliver bytes in
/// order (with C tor, the Tor project's program, and with our relays) or unordered (only with our
/// relays). One unordered link with ten circuits is also measured alone, without relays. On an
/// unordered link, each cell (Tor's packet) waits only for earlier cells of its own circuit. The
/// report compares this delay with the delay of cells on a link that delivers all bytes in order.
///
/// The command writes units.jsonl (one line for each completed measurement), unordered.parquet,
/// unordered-cells.parquet, unordered.html and figure-3.svg into FOLDER. Run the same command
/// again to continue an experiment that was stopped. It needs root; C tor (package tor) is
/// measured if it is installed.
#[derive(Args)]
pub(crate) struct UnorderedArgs {
    #[command(flatten)]
    common: Common,
    /// Measure these kinds of links between relays [default: all; stock only if C tor is
    /// installed]. With C tor (the Tor project's program): stock. With our relays: tls (bytes in
    /// order), utls (a loss delays only circuits whose data was lost), tls-kist and utls-kist (tls
    /// and utls with `relay --circuit-policy kist`), quic (a QUIC stream for each circuit),
    /// tls-per-circuit (a TLS connection for each circuit), mptcp (Multipath TCP, for which two
    /// network lines instead of one connect the middle relay and the exit). Without relays: cells
    /// (the delay of each cell over a single utls link).
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    arms: Vec<Arm>,
    /// Measure with these percentages of lost TCP segments on the last line, which is between the
    /// middle relay and the exit (last relay).
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_value = "0,1,5", value_parser = clap::value_parser!(u32).range(0..=50))]
    losses: Vec<u32>,
    /// Lose TCP segments in these directions between the middle relay and the exit (last relay):
    /// to-exit (towards the exit, as Nowlan, Wolinsky and Ford measured), from-exit (away from it)
    /// [default: both].
    #[arg(long, value_name = "DIRECTION,...", value_delimiter = ',')]
    directions: Vec<Direction>,
    /// Let the delay of all lines vary with these standard deviations, in milliseconds; 0 means a
    /// constant delay. The mean delay is 50 ms.
    #[arg(long, value_name = "MS,...", value_delimiter = ',', default_value = "0,5,10", value_parser = clap::value_parser!(u32).range(0..=50))]
    deviations: Vec<u32>,
    /// Measure with these TCP congestion controls of the kernel: cubic, bbr [default: both].
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    congestions: Vec<Congestion>,
    /// Choose the order of TCP segments on lines whose delay varies (--deviations): kept (segments
    /// keep their order), or reordered (segments overtake others, as on links of Linux's netem).
    #[arg(long, value_name = "ORDER,...", value_delimiter = ',', default_value = "kept")]
    orders: Vec<SegmentOrder>,
    /// Measure N rounds, each with different random choices [default: 10].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Start N downloads at the same time.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=120))]
    downloads: u32,
    /// Abort downloads that are not complete SECONDS after their start.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=3600))]
    cut: u32,
    /// Measure the kind cells of --arms (one link without relays) for N seconds.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Measure less, in about five minutes: two rounds of tls, utls and cells, with a loss of 5 %
    /// of the segments that the exit (last relay) sends, with bbr, and with a constant delay.
    #[arg(long, conflicts_with_all = ["arms", "losses", "directions", "deviations", "congestions", "rounds"])]
    short: bool,
    /// Do not run the real programs: simulate the relays, the clients and the network between them
    /// in virtual time. This needs no root. With this option, --arms accepts only these kinds of
    /// links between relays: tls, utls, tls-kist, utls-kist, quic.
    #[arg(long, conflicts_with_all = ["short", "programs"])]
    simulated: bool,
}

impl Experiment for UnorderedArgs {
    const NAME: &'static str = "unordered";
    type Unit = Unit;
    type Record = Measured;

    fn results(&self) -> &Results {
        &self.common.results
    }

    fn outcome(record: &Measured) -> String {
        words::outcome(record)
    }

    fn measure(&self) -> Result<(), Failure> {
        if self.simulated {
            return self.simulate();
        }
        let (own, programs) = self.common.programs([])?;
        let settings = self.settings(programs);
        let bench = Bench::new(&settings, own, programs).map_err(Failure::misuse)?;
        let plan = (settings.header(), plan(&settings));
        Run::on_networks(self, plan, bench.programs())?
            .carry_out(|unit, stop| bench.measure(unit, stop))
    }

    fn write_results(&self, header: &Value, records: &[Measured]) -> Result<(), Failure> {
        let results = &self.common.results;
        results.table(TABLE, header, &columns(records))?;
        results.table(CELLS, header, &cell_columns(records))?;
        let report_data = words::ReportData {
            header,
            records,
            curves: &summary::curves(records),
            pairings: &summary::pairings(records),
            links: &summary::links(records),
            claims: &claims::judge(records),
        };
        results.write(PICTURE, &picture::figure(&report_data))?;
        results.write(PAGE, &page::page(&report_data))?;
        results.write_markdown("unordered", || markdown::text(&report_data))?;
        results.conclude(&words::plain(&report_data), PAGE);
        Ok(())
    }
}

impl UnorderedArgs {
    fn simulate(&self) -> Result<(), Failure> {
        let settings = self.settings(None);
        let names = || Simulator::ARMS.map(|arm| arm.to_string()).join(", ");
        if let Some(arm) = settings.arms.iter().find(|arm| !Simulator::ARMS.contains(arm)) {
            return Err(Failure::misuse(format!(
                "--simulated cannot simulate the kind `{arm}` of --arms: write only kinds from \
                 this list: {}",
                names()
            )));
        }
        if settings.orders.contains(&SegmentOrder::Reordered) {
            return Err(Failure::misuse(
                "--simulated cannot simulate network connections on which TCP segments overtake \
                 others: leave out --orders reordered",
            ));
        }
        let mut header = settings.header();
        header[SIMULATED] = json!(true);
        let run = Run::begin(self, (header, plan(&settings)), &Programs::new(None))?;
        let simulator = Simulator::new(&settings);
        run.carry_out(|unit, stop| simulator.measure(unit, stop))
    }

    fn settings(&self, programs: Option<&Path>) -> Settings {
        let or_all = |given: &[Arm]| match given {
            [] if self.simulated => Simulator::ARMS.to_vec(),
            [] => {
                let mut all = Arm::ALL.to_vec();
                all.retain(|arm| *arm != Arm::Stock || Bench::has_stock(programs));
                all
            }
            given => given.to_vec(),
        };
        let usual = Settings {
            arms: or_all(&self.arms),
            losses: self.losses.clone(),
            directions: or(&self.directions, Direction::ALL),
            deviations: self.deviations.clone(),
            congestions: or(&self.congestions, Congestion::ALL),
            orders: self.orders.clone(),
            rounds: self.rounds.unwrap_or(10),
            downloads: self.downloads,
            lengths: [10_000, 400_000],
            cut: self.cut,
            seconds: self.seconds,
            seed: self.common.results.seed,
        };
        if !self.short {
            return usual;
        }
        Settings {
            arms: vec![Arm::Ordered, Arm::Unordered, Arm::Cells],
            losses: vec![5],
            directions: vec![Direction::FromExit],
            deviations: vec![0],
            congestions: vec![Congestion::Bbr],
            orders: vec![SegmentOrder::Kept],
            rounds: 2,
            ..usual
        }
    }
}

fn or<T: Copy>(given: &[T], all: &[T]) -> Vec<T> {
    if given.is_empty() { all.to_vec() } else { given.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_experiment::Unit as _;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: UnorderedArgs,
    }

    fn settings(words: &str) -> Settings {
        let line = Line::try_parse_from(format!("x folder {words}").split_whitespace()).unwrap();
        line.args.settings(None)
    }

    #[test]
    fn the_forms_have_the_plans_that_they_promise() {
        let all = plan(&settings("--arms stock,tls,utls,quic,tls-per-circuit,mptcp,cells"));
        assert_eq!(all.len(), 10 * 2 * 3 * (5 * 6 + 3));
        let short = plan(&settings("--short"));
        assert_eq!(short.len(), 2 * 3);
        let lasts: f64 = short.iter().map(|unit| unit.lasts().as_secs_f64()).sum();
        assert!((200.0..400.0).contains(&lasts), "{lasts} s");
        let one = "--arms cells --losses 5 --deviations 0 --congestions bbr --rounds 5";
        assert_eq!(plan(&settings(one)).len(), 5);
        let papers = "--arms stock,tls,utls --losses 0,5 --directions to-exit --deviations 0,10 \
                      --orders kept,reordered --congestions cubic";
        // Segments of equal delays do not overtake others.
        assert_eq!(plan(&settings(papers)).len(), 10 * 3 * 2 * 3);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in
            ["--arms quick", "--losses 101", "--rounds 0", "--short --rounds 3", "--orders none"]
        {
            let line = format!("x folder {words}");
            assert!(Line::try_parse_from(line.split_whitespace()).is_err(), "{words}");
        }
    }
}
