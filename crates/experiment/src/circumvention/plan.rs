//! The measurements of the circumvention experiment, and their order.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anabranch_multipath::seed;
use rand_chacha::rand_core::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::quic::QuicLibrary;
use super::super::runner;
use super::{RATES, RTTS};

/// Approximate duration of a measurement, including the set-up of its network.
const LASTS: Duration = Duration::from_millis(3500);

/// Server that the client fetches from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Server {
    /// quic-go's HTTP/3 server.
    QuicGo,
    /// A server built with quinn and its defaults.
    Quinn,
    /// ngtcp2's `gtlsserver`.
    Ngtcp2,
    /// A server built with aioquic and its defaults.
    Aioquic,
    /// OpenSSL's server over TCP. Our splitter does not split TCP, so fetches from this server
    /// only show how the censor treats TLS over TCP.
    Tls,
}

/// The route from the client to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// The direct path, without a censor and without a splitter.
    Open,
    /// The direct path through the censor, without a splitter.
    Direct,
    /// The VPN for all packets, without a splitter.
    Vpn,
    /// The direct path through the censor, with a splitter that sends the handshake through the
    /// VPN.
    Handshake,
}

/// The settings of the circumvention experiment: servers, number of repetitions, and timeouts.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Servers to fetch from.
    pub servers: Vec<Server>,
    /// Number of repetitions for each server and route.
    pub repetitions: u32,
    /// Number of bytes that a QUIC server sends.
    pub bytes: u64,
    /// Timeout of a fetch, in seconds.
    pub patience: f64,
    /// Seed of the order of the measurements.
    pub seed: u64,
    /// Additional arguments for `anabranch split`.
    pub splitter: Vec<String>,
}

/// One measurement: a fetch from one server over one route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    /// Server to fetch from.
    pub server: Server,
    /// Route to the server.
    pub access: Access,
    /// Index of the repetition, from 0.
    pub repetition: u32,
}

impl Server {
    /// All servers that can be measured.
    pub const ALL: [Server; 5] =
        [Server::QuicGo, Server::Quinn, Server::Ngtcp2, Server::Aioquic, Server::Tls];

    /// Returns the server's name on the command line.
    pub fn name(self) -> &'static str {
        self.maker().map_or("tls", QuicLibrary::name)
    }

    /// Returns the routes to measure for this server. For TCP, routes with a splitter are left
    /// out.
    pub fn accesses(self) -> &'static [Access] {
        match self {
            Server::Tls => &[Access::Open, Access::Direct, Access::Vpn],
            _ => &Access::ALL,
        }
    }

    /// Returns the QUIC library of this server; `None` for TLS over TCP.
    pub(super) fn maker(self) -> Option<QuicLibrary> {
        match self {
            Server::QuicGo => Some(QuicLibrary::QuicGo),
            Server::Quinn => Some(QuicLibrary::Quinn),
            Server::Ngtcp2 => Some(QuicLibrary::Ngtcp2),
            Server::Aioquic => Some(QuicLibrary::Aioquic),
            Server::Tls => None,
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Server, String> {
        let names = Server::ALL.map(Server::name).join(", ");
        let found = Server::ALL.into_iter().find(|server| server.name() == text);
        found.ok_or_else(|| format!("`{text}` is not a server: write one of {names}"))
    }
}

impl TryFrom<String> for Server {
    type Error = String;

    fn try_from(text: String) -> Result<Server, String> {
        text.parse()
    }
}

impl From<Server> for String {
    fn from(server: Server) -> String {
        server.name().to_owned()
    }
}

impl Access {
    /// All routes that can be measured.
    pub const ALL: [Access; 4] = [Access::Open, Access::Direct, Access::Vpn, Access::Handshake];

    /// Returns the route's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Access::Open => "open",
            Access::Direct => "direct",
            Access::Vpn => "vpn",
            Access::Handshake => "handshake",
        }
    }
}

impl Settings {
    /// Returns the settings that must not change when the experiment is resumed. Others, such as
    /// the number of repetitions, may be increased.
    pub fn header(&self) -> Value {
        json!({
            "experiment": "circumvention",
            "version": 1,
            "seed": self.seed,
            "bytes": self.bytes,
            "patience": self.patience,
            "rtts": RTTS,
            "rates": RATES,
            "splitter": self.splitter,
        })
    }
}

impl Unit {
    /// Returns the seed of the splitter's random choices in this measurement, derived from `seed`.
    /// It differs between measurements.
    pub fn seed(&self, seed: u64) -> u64 {
        seed::stream(seed, 0, &runner::Unit::id(self)).next_u64()
    }
}

impl runner::Unit for Unit {
    fn id(&self) -> String {
        format!("{}/{}/{}", self.server, self.access.name(), self.repetition)
    }

    fn lasts(&self) -> Duration {
        LASTS
    }
}

/// Returns all measurements in the order of execution: repetition by repetition, each in an order
/// shuffled with the seed. Measurements that are compared are therefore close in time, and a
/// temporarily busy machine does not disturb the same setting in all repetitions.
pub fn plan(settings: &Settings) -> Vec<Unit> {
    let round = |repetition| {
        let of = |&server: &Server| {
            let all = server.accesses().iter();
            all.map(move |&access| Unit { server, access, repetition })
        };
        let mut round: Vec<Unit> = settings.servers.iter().flat_map(of).collect();
        // Each measurement has its own random number, so that adding servers does not change the
        // order of the others.
        round.sort_by_cached_key(|unit| {
            seed::stream(settings.seed, 1, &runner::Unit::id(unit)).next_u64()
        });
        round
    };
    (0..settings.repetitions).flat_map(round).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::runner::Unit as _;
    use super::*;
    use std::collections::BTreeSet;

    pub(in super::super) fn settings() -> Settings {
        Settings {
            servers: vec![Server::QuicGo, Server::Tls],
            repetitions: 5,
            bytes: 10_000_000,
            patience: 20.0,
            seed: 1,
            splitter: Vec::new(),
        }
    }

    #[test]
    fn each_repetition_has_every_way_once_and_an_order_of_its_own() {
        let units = plan(&settings());
        assert_eq!(units.len(), 5 * (4 + 3));
        let ids: BTreeSet<_> = units.iter().map(|unit| unit.id()).collect();
        assert_eq!(ids.len(), units.len());
        let order = |n: usize| -> Vec<_> {
            units[7 * n..7 * n + 7].iter().map(|unit| (unit.server, unit.access)).collect()
        };
        assert!(units.iter().enumerate().all(|(at, unit)| unit.repetition as usize == at / 7));
        assert_ne!(order(0), order(1));
        assert_eq!(plan(&settings()), units);
        assert!(!units.iter().any(|u| u.server == Server::Tls && u.access == Access::Handshake));
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for server in Server::ALL {
            assert_eq!(server.name().parse(), Ok(server));
        }
        assert!("http".parse::<Server>().unwrap_err().contains("quic-go"));
    }
}
