//! `anabranch anonymity`: computes from a consensus what hostile relays learn about clients that
//! use several circuits for a stream.

pub(crate) mod source;
mod tables;

use std::io::{self, Write as _};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use anabranch_anonymity::consensus::{ListedConsensus, decode};
use anabranch_anonymity::fingerprints::{FingerprintSettings, fingerprints};
use anabranch_anonymity::hostile::Spread;
use anabranch_anonymity::paths::{PathSettings, paths};
use anabranch_anonymity::population::entries;
use anabranch_anonymity::year::{Adversary, YearSettings, year};
use anabranch_anonymity::{BadSetting, Workers};
use anabranch_onion::guards::GuardParams;
use anabranch_os::threads::share_out;
use clap::{Args, Subcommand, ValueEnum};

use self::source::Choice;
use crate::failure::Failure;

/// Compute what hostile Tor relays learn about clients that split streams over several circuits.
///
/// There are three analyses, each a sub-command. 'paths' computes the probability that hostile
/// relays see both ends of a stream. 'year' computes the share of clients that use a hostile entry
/// relay within a year. 'fingerprints' computes how many clients have exactly the same guards,
/// because rare guards identify a client. A guard is the first relay of a circuit, also called
/// entry relay.
///
/// The analyses are those of "Analysis of Multi-path Onion Routing" (DBSec 2019, section 6), with
/// the guards and path selection of this program. They read a consensus (the list of all relays):
/// a document of Tor's directory protocol (ns or microdesc flavour), or a table with one relay per
/// row (docs/formats.md). Signatures are not checked. The results depend only on the consensus,
/// the options and --seed.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct AnonymityArgs {
    #[command(subcommand)]
    what: AnonymityCommand,
}

#[derive(Subcommand, Debug)]
enum AnonymityCommand {
    Paths(PathsArgs),
    Year(YearArgs),
    Fingerprints(FingerprintsArgs),
}

/// Options of all analyses.
#[derive(Args, Debug)]
struct Common {
    /// Read this Tor consensus (list of all relays), plain or compressed (xz, gzip). The file may
    /// be an archive of several consensuses, such as a month's archive of CollecTor. Write - to
    /// read standard input.
    consensus: PathBuf,
    /// If the file is an archive of several consensuses (lists of relays), use the consensus that
    /// is valid from this hour (UTC) on, such as 2024-05-17T17. Each consensus has this time in
    /// its line 'valid-after'.
    #[arg(long, value_name = "TIME")]
    valid_after: Option<String>,
    /// Use N as the seed of all random choices. The same N gives the same results.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Let each client use N guards (first relays of circuits) at a time. A client that splits a
    /// stream over more than N circuits uses one guard for each of these circuits [default: the
    /// number in the consensus, which is 1 before 2022, and 2 since then].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=8))]
    guards_in_use: Option<u16>,
    /// Use N threads [default: one for each processor]. The results do not depend on N.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print the results as one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum HostileChoice {
    /// Relays chosen at random.
    Random,
    /// The relays that clients choose most often.
    Heaviest,
}

/// Compute the probability that a stream over several circuits has a hostile entry (first relay)
/// and a hostile exit (last relay), by formula and by simulation.
///
/// The circuits over which a stream is split are called legs. Each leg has its own entry; all legs
/// of a stream have the same exit.
#[derive(Args, Debug)]
struct PathsArgs {
    #[command(flatten)]
    common: Common,
    /// Set the probability that a client chooses a relay of the adversary as entry (first relay),
    /// from 0 to 1.
    #[arg(long, default_value_t = 0.1, value_name = "SHARE")]
    entries: f64,
    /// Set the probability, from 0 to 1, that a client chooses a relay of the adversary as exit
    /// (last relay). Exits that do not allow the port in --port are ignored.
    #[arg(long, default_value_t = 0.1, value_name = "SHARE")]
    exits: f64,
    /// Choose the relays that the adversary runs.
    #[arg(long, value_enum, default_value = "random")]
    hostile: HostileChoice,
    /// Compute the results for streams with 1 circuit, 2 circuits, and so on up to M circuits.
    #[arg(long, default_value_t = 3, value_name = "M")]
    legs: usize,
    /// Count as exits (last relays) only the relays that allow this destination port.
    #[arg(long, default_value_t = 443)]
    port: u16,
    /// Simulate N streams, each with its own circuits. They are simulated again for each number of
    /// circuits from 1 to --legs, and for each choice of the adversary's relays (--draws).
    #[arg(long, default_value_t = 5000, value_name = "N")]
    circuits: u64,
    /// Choose the adversary's relays at random N times. The results are means over these choices.
    #[arg(long, default_value_t = 20, value_name = "N")]
    draws: u64,
}

/// Compute the share of clients that have used a hostile entry relay (first relay of a circuit)
/// within a year.
///
/// The share is computed separately for clients that use one, two and three entry relays at a
/// time, and for a mixture of them called COMB. In COMB 60 % of the clients use one entry relay,
/// 20 % use two, and 20 % use three.
#[derive(Args, Debug)]
struct YearArgs {
    #[command(flatten)]
    common: Common,
    /// Simulate N clients for each choice of the adversary's relays (--draws).
    #[arg(long, default_value_t = 500_000, value_name = "N")]
    clients: usize,
    /// Choose the adversary's relays at random N times. The results are means over these choices.
    #[arg(long, default_value_t = 50, value_name = "N")]
    draws: usize,
    /// Set the probability that a client chooses a relay of the adversary as entry (first relay),
    /// from 0 to 1.
    #[arg(long, default_value_t = 0.1, value_name = "SHARE")]
    share: f64,
    /// Choose the relays of the consensus (list of all relays) that the adversary runs.
    #[arg(long, value_enum, default_value = "random")]
    hostile: HostileChoice,
    /// Let the adversary add N new relays to the network, instead of running relays of the
    /// consensus (list of all relays). Clients choose each of the N relays with the same
    /// probability.
    #[arg(long, value_name = "N", conflicts_with = "hostile")]
    add: Option<usize>,
    /// Replace each relay by another relay after DAYS on average. Hostile relays are replaced only
    /// with --hostile-churn [default: relays are never replaced].
    #[arg(long, value_name = "DAYS")]
    churn: Option<f64>,
    /// Also replace hostile relays at the rate of --churn. Without this option, --churn replaces
    /// only the other relays.
    #[arg(long, requires = "churn")]
    hostile_churn: bool,
    /// Print the results for these days of the simulated year.
    #[arg(long, value_delimiter = ',', default_value = "30,90,182,365", value_name = "DAY,...")]
    days: Vec<u64>,
}

/// Compute how many clients use exactly the same guards (first relays of circuits), for 1 to M
/// guards.
///
/// If few clients have the same guards, the guards identify them. Two cases are compared: each
/// client chooses its own guards at random, or it gets one of several predefined sets of guards.
#[derive(Args, Debug)]
struct FingerprintsArgs {
    #[command(flatten)]
    common: Common,
    /// Simulate N clients, each with its own guards (first relays of circuits).
    #[arg(long, default_value_t = 83_000, value_name = "N")]
    clients: usize,
    /// Compute the results for clients that use 1 to M guards (first relays of circuits) at a
    /// time.
    #[arg(long, default_value_t = 3, value_name = "M")]
    legs: usize,
    /// Simulate N times, each time with different random choices. The results are means over these
    /// simulations.
    #[arg(long, default_value_t = 10, value_name = "N")]
    draws: usize,
}

impl AnonymityArgs {
    /// Runs the analysis, and prints the results.
    ///
    /// # Errors
    /// Misuse (exit code 2): the file is not a complete consensus, or a setting is invalid.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match &self.what {
            AnonymityCommand::Paths(args) => args.run(),
            AnonymityCommand::Year(args) => args.run(),
            AnonymityCommand::Fingerprints(args) => args.run(),
        }
    }
}

impl PathsArgs {
    fn run(&self) -> Result<(), Failure> {
        let settings = PathSettings {
            entry_share: self.entries,
            exit_share: self.exits,
            spread: self.hostile.into(),
            legs: self.legs,
            port: self.port,
            circuits: self.circuits,
            draws: self.draws,
            seed: self.common.seed,
            workers: self.common.workers(),
        };
        let listed = self.common.read()?;
        let (holding, rows) = paths(&listed.network, &settings).map_err(refused)?;
        self.common.print(
            || tables::paths_text(&listed, &settings, &holding, &rows),
            || tables::paths_json(&listed, &settings, &holding, &rows),
        )
    }
}

impl YearArgs {
    fn run(&self) -> Result<(), Failure> {
        let settings = YearSettings {
            clients: self.clients,
            draws: self.draws,
            share: self.share,
            adversary: match self.add {
                Some(relays) => Adversary::Adds(relays),
                None => Adversary::Replaces(self.hostile.into()),
            },
            churn: self.churn,
            hostile_churn: self.hostile_churn,
            days: self.days.clone(),
            seed: self.common.seed,
            workers: self.common.workers(),
        };
        let listed = self.common.read()?;
        let rows = year(&weights(&listed), &self.common.params(&listed), &settings);
        let rows = rows.map_err(refused)?;
        self.common.print(
            || tables::year_text(&listed, &settings, &rows),
            || tables::year_json(&listed, &settings, &rows),
        )
    }
}

impl FingerprintsArgs {
    fn run(&self) -> Result<(), Failure> {
        let settings = FingerprintSettings {
            clients: self.clients,
            legs: self.legs,
            draws: self.draws,
            seed: self.common.seed,
            workers: self.common.workers(),
        };
        let listed = self.common.read()?;
        let rows = fingerprints(&weights(&listed), &self.common.params(&listed), &settings);
        let rows = rows.map_err(refused)?;
        self.common.print(
            || tables::fingerprints_text(&listed, &settings, &rows),
            || tables::fingerprints_json(&listed, &settings, &rows),
        )
    }
}

impl Common {
    fn workers(&self) -> Workers {
        let all = || thread::available_parallelism().map_or(1, NonZero::get);
        let threads = self.threads.map_or_else(all, usize::from);
        Workers { threads, run: share_out }
    }

    fn params(&self, listed: &ListedConsensus) -> GuardParams {
        let params = listed.network.params().guards.clone();
        let primary_to_use = self.guards_in_use.map_or(params.primary_to_use, usize::from);
        GuardParams { primary_to_use, ..params }
    }

    fn read(&self) -> Result<ListedConsensus, Failure> {
        let shown = self.consensus.display();
        let refuse = |why: &dyn std::fmt::Display| Failure::misuse(format!("{shown}: {why}"));
        let choice = Choice { hour: self.valid_after.as_deref(), written: "--valid-after " };
        let bytes = match self.consensus == Path::new("-") {
            true => source::read(io::stdin().lock(), choice),
            false => source::read_file(&self.consensus, choice),
        };
        decode(&bytes.map_err(|why| refuse(&why))?).map_err(|error| refuse(&error))
    }

    fn print(
        &self,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> serde_json::Value,
    ) -> Result<(), Failure> {
        let out = if self.json { format!("{}\n", json()) } else { text() };
        io::stdout().write_all(out.as_bytes()).map_err(Failure::trouble)
    }
}

impl From<HostileChoice> for Spread {
    fn from(whose: HostileChoice) -> Spread {
        match whose {
            HostileChoice::Random => Spread::Random,
            HostileChoice::Heaviest => Spread::Heaviest,
        }
    }
}

fn refused(error: BadSetting) -> Failure {
    Failure::misuse(error)
}

fn weights(listed: &ListedConsensus) -> Vec<u64> {
    entries(&listed.network).into_iter().map(|(_, weight)| weight).collect()
}
