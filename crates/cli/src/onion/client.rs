//! `anabranch client`: programs to the onion network by SOCKS and HTTP CONNECT.

use std::net::SocketAddr;

use anabranch_drive::onion::client::{self, Happening, Settings};
use anabranch_drive::onion::office::{self, Office};
use anabranch_drive::onion::{generator, stop_signals};
use anabranch_onion::directory::network::Wishes;
use anabranch_onion::padding::Amount;
use anabranch_onion::schedule;
use clap::{Args, ValueEnum};
use serde::Deserialize;

use super::screen::Screen;
use super::{Common, either, fingerprints, read};
use crate::failure::Failure;

/// Where programs come in if nobody says: as at C tor, on another port, so that both may run.
const LISTEN: &str = "127.0.0.1:9250";
const MEMORY: usize = 256 << 20;
const KEYS: &[&str] = &[
    "listen",
    "entry",
    "middle",
    "exit",
    "exclude",
    "share-subnets",
    "padding",
    "extended-errors",
];

/// Carry programs' connections through the onion network: a SOCKS and HTTP CONNECT proxy
///
/// Speaks the Tor protocol with the network that its authorities describe. SOCKS5 and SOCKS4a take
/// names (socks5h in curl), Tor's RESOLVE and RESOLVE_PTR; streams with different users or
/// passwords never share a circuit. Guards, the consensus and microdescriptors are kept in --data.
///
/// On a terminal it shows its guards and circuits; elsewhere it writes lines.
///
/// Everything can stand in a TOML file, by the flags' names.
#[derive(Args, Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct ClientArgs {
    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
    /// Where programs come in, by SOCKS5, SOCKS4a or HTTP CONNECT (repeatable) [default:
    /// 127.0.0.1:9250]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// Only these first hops, by fingerprint
    #[arg(long, value_name = "FINGERPRINT", value_delimiter = ',')]
    entry: Vec<String>,
    /// Only these middle hops
    #[arg(long, value_name = "FINGERPRINT", value_delimiter = ',')]
    middle: Vec<String>,
    /// Only these exits
    #[arg(long, value_name = "FINGERPRINT", value_delimiter = ',')]
    exit: Vec<String>,
    /// Never these relays
    #[arg(long, value_name = "FINGERPRINT", value_delimiter = ',')]
    exclude: Vec<String>,
    /// What silent links to guards carry, so that routers' records do not tell when you pause:
    /// as much as the network wants, less of it, or nothing [default: full]
    #[arg(long, value_enum, value_name = "AMOUNT")]
    padding: Option<Padding>,
    /// Let relays of one /16 share a path: for networks on one machine
    #[arg(long)]
    share_subnets: bool,
    /// Tell SOCKS5 programs what is wrong with an onion service in Tor's own codes (F0): browsers
    /// made for it know them
    #[arg(long)]
    extended_errors: bool,
}

/// How much padding a user wants.
#[derive(Clone, Copy, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Padding {
    Full,
    Reduced,
    Off,
}

impl From<Padding> for Amount {
    fn from(padding: Padding) -> Amount {
        match padding {
            Padding::Full => Amount::Full,
            Padding::Reduced => Amount::Reduced,
            Padding::Off => Amount::Off,
        }
    }
}

impl ClientArgs {
    /// Runs until SIGINT or SIGTERM.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let args = self.merged()?;
        let stop = stop_signals().map_err(Failure::trouble)?;
        let rng = generator().map_err(Failure::trouble)?;
        let data = args.common.data("client")?;
        let office = office::Settings {
            authorities: args.common.authorities()?,
            data: data.clone(),
            share_subnets: args.share_subnets,
            keys: None,
            cache: false,
            errands: true,
        };
        let wishes = Wishes {
            entry: fingerprints("--entry", &args.entry)?,
            middle: fingerprints("--middle", &args.middle)?,
            exit: fingerprints("--exit", &args.exit)?,
            exclude: fingerprints("--exclude", &args.exclude)?,
        };
        let usual = LISTEN.parse().expect("a socket address");
        let listen = if args.listen.is_empty() { vec![usual] } else { args.listen };
        let office_rng = generator().map_err(Failure::trouble)?;
        let office = Office::start(office, office_rng).map_err(Failure::misuse)?;
        let settings = Settings {
            listen,
            office,
            data,
            wishes,
            extended_errors: args.extended_errors,
            padding: args.padding.map(Amount::from).unwrap_or_default(),
            memory: MEMORY,
            schedule: schedule::Kind::default(),
        };
        let mut screen =
            Screen::of(args.common.json, args.common.quiet).map_err(Failure::trouble)?;
        let mut tell = |happening: Happening| screen.tell(happening);
        client::run(settings, rng, &stop, &mut tell).map_err(Failure::misuse)
    }

    /// The flags, and what the file says where they are silent.
    fn merged(mut self) -> Result<ClientArgs, Failure> {
        let Some(path) = self.common.file.take() else { return Ok(self) };
        let file: ClientArgs = read(&path, KEYS)?;
        Ok(ClientArgs {
            common: self.common.or(file.common),
            listen: either(self.listen, file.listen),
            entry: either(self.entry, file.entry),
            middle: either(self.middle, file.middle),
            exit: either(self.exit, file.exit),
            exclude: either(self.exclude, file.exclude),
            share_subnets: self.share_subnets || file.share_subnets,
            extended_errors: self.extended_errors || file.extended_errors,
            padding: self.padding.or(file.padding),
        })
    }
}
