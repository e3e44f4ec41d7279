//! `anabranch experiment circumvention`: measures whether a client evades a censor if only its
//! handshakes take a VPN.

mod markdown;
mod page;
mod words;

use anabranch_experiment::circumvention::{
    Bench, FetchResult, Server, Settings, Unit, columns, plan, summary,
};
use clap::Args;
use serde_json::Value;

use super::common::{Common, Results, SplitWords, patience};
use super::frame::{Experiment, Run};
use crate::failure::Failure;

/// File name of the table of measurements.
const TABLE: &str = "circumvention.parquet";
/// File name of the page with the results.
const PAGE: &str = "circumvention.html";

/// Measure what it costs to evade a censor by sending only the handshake through a VPN (CoMPS,
/// section 3.3, Figure 4).
///
/// A censor on the direct path cuts TLS and QUIC connections whose ClientHello names a blocked
/// host. A client fetches a file from unmodified QUIC servers in four ways: without censor and
/// splitter; through the censor; with all traffic through a slow VPN with long delays
/// (wireguard-go); and through `anabranch split --handshake vpn`, which sends only handshakes
/// through the VPN. From a TLS server (OpenSSL), which uses TCP, it fetches a file in the first
/// three ways only. The report shows which fetches succeed, the time to the first byte, and how
/// much of the data takes the direct path.
///
/// The command writes units.jsonl (one line for each completed measurement), circumvention.parquet
/// and circumvention.html into FOLDER. Run the same command again to continue an experiment that
/// was stopped. It needs root, nftables, and what `tests/interop/setup --area experiments`
/// installs.
#[derive(Args)]
pub(crate) struct CircumventionArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    words: SplitWords,
    /// Fetch a file from servers with these programs: quic-go, quinn, ngtcp2 and aioquic (QUIC),
    /// tls (OpenSSL over TCP).
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "quic-go,quinn,ngtcp2,tls"
    )]
    peers: Vec<Server>,
    /// Repeat each fetch of a file N times [default: 10].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// Fetch a file of N bytes from each QUIC server.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    bytes: u64,
    /// Measure less, in about three minutes: fetch each file three times.
    #[arg(long, conflicts_with = "repetitions")]
    short: bool,
    /// Abort the fetch of a file after SECONDS.
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, value_parser = patience)]
    patience: f64,
}

impl Experiment for CircumventionArgs {
    const NAME: &'static str = "circumvention";
    type Unit = Unit;
    type Record = FetchResult;

    fn results(&self) -> &Results {
        &self.common.results
    }

    fn outcome(record: &FetchResult) -> String {
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

    fn write_results(&self, header: &Value, records: &[FetchResult]) -> Result<(), Failure> {
        self.common.results.table(TABLE, header, &columns(records))?;
        let (cells, verdicts) = (summary::cells(records), summary::verdicts(records));
        let report_data = words::ReportData { header, records, cells: &cells, verdicts: &verdicts };
        self.common.results.write(PAGE, &page::page(&report_data))?;
        self.common.results.write_markdown("circumvention", || markdown::text(&report_data))?;
        self.common.results.conclude(&words::plain(&report_data), PAGE);
        Ok(())
    }
}

impl CircumventionArgs {
    fn settings(&self) -> Settings {
        let usual = if self.short { 3 } else { 10 };
        Settings {
            servers: self.peers.clone(),
            repetitions: self.repetitions.unwrap_or(usual),
            bytes: self.bytes,
            patience: self.patience,
            seed: self.common.results.seed,
            splitter: self.words.split.clone(),
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
        args: CircumventionArgs,
    }

    fn settings(words: &str) -> Settings {
        let line = Line::try_parse_from(format!("x folder {words}").split_whitespace()).unwrap();
        line.args.settings()
    }

    #[test]
    fn the_forms_have_the_plans_that_they_promise() {
        assert_eq!(plan(&settings("")).len(), 10 * (3 * 4 + 3));
        let short = plan(&settings("--short"));
        let lasts: f64 = short.iter().map(|unit| unit.lasts().as_secs_f64()).sum();
        assert!((60.0..240.0).contains(&lasts), "{lasts} s");
        assert_eq!(plan(&settings("--peers tls --repetitions 2")).len(), 6);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in ["--peers http", "--bytes 0", "--repetitions 0", "--patience 0"] {
            let line = format!("x folder {words}");
            assert!(Line::try_parse_from(line.split_whitespace()).is_err(), "{words}");
        }
    }
}
