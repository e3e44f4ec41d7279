//! The measurements of the splitting overhead, and their order.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anabranch_multipath::schedule::Weighted;
use anabranch_multipath::seed;
use rand_chacha::rand_core::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::quic::QuicLibrary;
use super::super::runner;
use super::Limit;

/// Times between two random choices of the path in the CoMPS paper's Figure 8, in milliseconds; 0
/// means that the path never changes.
pub const EVERY: [u32; 10] = [10, 20, 30, 40, 50, 100, 200, 500, 1000, 0];

/// Approximate time to build the network and start the programs of a measurement, for the estimate
/// of the remaining time.
const SETTING_UP: Duration = Duration::from_secs(2);

/// Software whose traffic is split and measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum System {
    /// `wireguard-go` at both ends, and one TCP connection (cubic) in the tunnel.
    WireGuard,
    /// `mosh-server` and `mosh-client`; a file is displayed repeatedly.
    Mosh,
    /// quic-go's HTTP/3 server.
    QuicGo,
    /// A server built with quinn and its defaults.
    Quinn,
    /// A server built with s2n-quic and its defaults.
    S2n,
    /// ngtcp2's `gtlsserver`.
    Ngtcp2,
    /// A server built with aioquic and its defaults.
    Aioquic,
}

/// Protocol of the measured software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// WireGuard.
    WireGuard,
    /// Mosh.
    Mosh,
    /// QUIC, with any of the servers.
    Quic,
}

/// An emulated network with three paths of 100 Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Net {
    /// Three paths with a round-trip time of 20 ms.
    Equal,
    /// Paths with round-trip times of 20, 35 and 60 ms.
    Unequal,
}

/// The settings of the experiment about the splitting overhead: software, networks and switching
/// intervals.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Software to measure.
    pub systems: Vec<System>,
    /// Emulated networks on which to measure.
    pub nets: Vec<Net>,
    /// Numbers of paths over which to measure: 2, 3 or both.
    pub paths: Vec<usize>,
    /// Times between two random choices of the path, in milliseconds; 0 means that the path never
    /// changes.
    pub every: Vec<u32>,
    /// Number of repetitions of each combination of settings.
    pub repetitions: u32,
    /// Duration or number of bytes after which a transfer ends.
    pub limit: Limit,
    /// Seed of the order of measurements, of the paths' weights, and of the splitter's random
    /// choices.
    pub seed: u64,
    /// Additional arguments for `anabranch split`.
    pub splitter: Vec<String>,
}

/// One measurement of the splitting overhead: a data transfer with one combination of settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    /// Software to measure.
    pub system: System,
    /// Emulated network on which to measure.
    pub net: Net,
    /// Number of paths.
    pub paths: usize,
    /// Time between two random choices of the path, in milliseconds; 0 means that the path never
    /// changes.
    pub every: u32,
    /// Index of the repetition, from 0.
    pub repetition: u32,
    lasts: Duration,
}

impl System {
    /// All software that can be measured.
    pub const ALL: [System; 7] = [
        System::WireGuard,
        System::Mosh,
        System::QuicGo,
        System::Quinn,
        System::S2n,
        System::Ngtcp2,
        System::Aioquic,
    ];
    /// Software that is measured by default.
    pub const USUAL: [System; 4] = [System::WireGuard, System::Mosh, System::QuicGo, System::Quinn];

    /// Returns the software's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            System::WireGuard => "wireguard",
            System::Mosh => "mosh",
            System::QuicGo => QuicLibrary::QuicGo.name(),
            System::Quinn => QuicLibrary::Quinn.name(),
            System::S2n => QuicLibrary::S2n.name(),
            System::Ngtcp2 => QuicLibrary::Ngtcp2.name(),
            System::Aioquic => QuicLibrary::Aioquic.name(),
        }
    }

    /// Returns the QUIC library of the server to start; `None` for other protocols.
    pub(super) fn maker(self) -> Option<QuicLibrary> {
        match self {
            System::WireGuard | System::Mosh => None,
            System::QuicGo => Some(QuicLibrary::QuicGo),
            System::Quinn => Some(QuicLibrary::Quinn),
            System::S2n => Some(QuicLibrary::S2n),
            System::Ngtcp2 => Some(QuicLibrary::Ngtcp2),
            System::Aioquic => Some(QuicLibrary::Aioquic),
        }
    }

    /// Returns the protocol of this software.
    pub fn kind(self) -> Kind {
        match self {
            System::WireGuard => Kind::WireGuard,
            System::Mosh => Kind::Mosh,
            _ => Kind::Quic,
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(text: &str) -> Result<System, String> {
        let names = System::ALL.map(System::name).join(", ");
        let found = System::ALL.into_iter().find(|system| system.name() == text);
        found.ok_or_else(|| {
            format!("`{text}` is not a program that can be measured: write one of {names}")
        })
    }
}

impl TryFrom<String> for System {
    type Error = String;

    fn try_from(text: String) -> Result<System, String> {
        text.parse()
    }
}

impl From<System> for String {
    fn from(system: System) -> String {
        system.name().to_owned()
    }
}

impl Net {
    /// Both emulated networks.
    pub const ALL: [Net; 2] = [Net::Equal, Net::Unequal];

    /// Returns the network's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Net::Equal => "equal",
            Net::Unequal => "unequal",
        }
    }

    /// Returns the round-trip times of the network's paths, in milliseconds.
    pub fn rtts(self) -> [u32; 3] {
        match self {
            Net::Equal => [20, 20, 20],
            Net::Unequal => [20, 35, 60],
        }
    }
}

impl FromStr for Net {
    type Err = String;

    fn from_str(text: &str) -> Result<Net, String> {
        let found = Net::ALL.into_iter().find(|net| net.name() == text);
        found.ok_or_else(|| {
            format!(
                "`{text}` is not a kind of network: write equal (all paths have the same delay) or \
                 unequal"
            )
        })
    }
}

impl Settings {
    /// Returns the settings that must not change when the experiment is resumed. Other settings,
    /// such as the number of repetitions, may be increased.
    pub fn header(&self) -> Value {
        json!({
            "experiment": "overhead",
            "version": 2,
            "seed": self.seed,
            "seconds": self.limit.seconds,
            "bytes": self.limit.bytes,
            "splitter": self.splitter,
        })
    }
}

impl Unit {
    /// Returns the probabilities (weights) with which the splitter chooses the paths. They are
    /// drawn from the flat Dirichlet distribution, and are the same for all software and intervals
    /// of a repetition.
    ///
    /// If the drawn weights leave a path nearly unused, they are drawn again. Such uneven
    /// splitting costs hardly anything, so the result would be too good. Of three paths, each has
    /// a weight of 25 to 45 %; of two paths, each has 35 to 65 %.
    pub fn weights(&self, seed: u64) -> Vec<f64> {
        let (least, most) = if self.paths > 2 { (0.25, 0.45) } else { (0.35, 0.65) };
        let purpose = format!("overhead weights {} {}", self.net.name(), self.paths);
        let draw = |attempt: u64| {
            let stream = seed::stream(seed, u64::from(self.repetition) << 32 | attempt, &purpose);
            let drawn = Weighted::dirichlet(1.0, self.paths, stream);
            drawn
                .expect("the concentration 1 is valid for a Dirichlet distribution")
                .weights()
                .to_vec()
        };
        (0..)
            .map(draw)
            .find(|weights| weights.iter().all(|weight| (least..=most).contains(weight)))
            .expect("about one draw in twenty is accepted, and draws never end")
    }

    /// Returns the seed of the splitter's random choices in this measurement, derived from `seed`.
    /// Each measurement has another seed.
    pub fn seed(&self, seed: u64) -> u64 {
        seed::stream(seed, 0, &runner::Unit::id(self)).next_u64()
    }
}

impl runner::Unit for Unit {
    fn id(&self) -> String {
        let Unit { system, net, paths, every, repetition, .. } = self;
        let every = if *every == 0 { "never".to_owned() } else { format!("{every}ms") };
        format!("{system}/{}/{paths}/{every}/{repetition}", net.name())
    }

    fn lasts(&self) -> Duration {
        self.lasts + SETTING_UP
    }
}

/// Returns all measurements in the order of execution: repetition by repetition, each in a
/// shuffled order. Without the shuffle, a temporarily busy machine could disturb the same setting
/// in all repetitions.
pub fn plan(settings: &Settings) -> Vec<Unit> {
    let lasts = settings.limit.about();
    let mut units = Vec::new();
    for repetition in 0..settings.repetitions {
        let mut round = Vec::new();
        for &system in &settings.systems {
            for &net in &settings.nets {
                for &paths in &settings.paths {
                    round.extend(settings.every.iter().map(|&every| Unit {
                        system,
                        net,
                        paths,
                        every,
                        repetition,
                        lasts,
                    }));
                }
            }
        }
        // Each measurement has its own random number, so that adding settings does not change the
        // order of the others.
        round.sort_by_cached_key(|unit| {
            seed::stream(settings.seed, 1, &runner::Unit::id(unit)).next_u64()
        });
        units.extend(round);
    }
    units
}

#[cfg(test)]
mod tests {
    use super::super::super::runner::Unit as _;
    use super::*;
    use std::collections::BTreeSet;

    fn settings() -> Settings {
        Settings {
            systems: System::USUAL.to_vec(),
            nets: Net::ALL.to_vec(),
            paths: vec![2, 3],
            every: EVERY.to_vec(),
            repetitions: 3,
            limit: Limit { seconds: 10.0, bytes: None },
            seed: 1,
            splitter: Vec::new(),
        }
    }

    #[test]
    fn the_usual_plan_has_every_setting_in_every_repetition() {
        let units = plan(&settings());
        assert_eq!(units.len(), 4 * 2 * 2 * 10 * 3);
        let ids: BTreeSet<_> = units.iter().map(|unit| unit.id()).collect();
        assert_eq!(ids.len(), units.len(), "each id once");
        let round = units.len() / 3;
        for (at, unit) in units.iter().enumerate() {
            assert_eq!(unit.repetition as usize, at / round, "repetition after repetition");
        }
        let order = |of: &[Unit]| -> Vec<Unit> {
            of.iter().map(|unit| Unit { repetition: 0, ..unit.clone() }).collect()
        };
        assert_ne!(order(&units[..round]), order(&units[round..2 * round]), "in another order");
        assert_eq!(plan(&settings()), units, "a plan is a function of its settings");
        assert_ne!(plan(&Settings { seed: 2, ..settings() }), units);
    }

    #[test]
    fn further_settings_leave_the_others_in_their_order() {
        let few = plan(&Settings { systems: vec![System::Quinn], ..settings() });
        let mut all = plan(&settings());
        all.retain(|unit| unit.system == System::Quinn);
        assert_eq!(all, few);
    }

    #[test]
    fn each_path_has_a_good_share_that_is_a_repetitions_own() {
        let mut seen = BTreeSet::new();
        for repetition in 0..20 {
            for paths in [2, 3] {
                let unit = |system, every| Unit {
                    system,
                    net: Net::Equal,
                    paths,
                    every,
                    repetition,
                    lasts: Duration::ZERO,
                };
                let weights = unit(System::Quinn, 10).weights(1);
                assert_eq!(weights.len(), paths);
                assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
                assert!(weights.iter().all(|w| (0.25..=0.65).contains(w)), "{weights:?}");
                assert_eq!(weights, unit(System::Mosh, 1000).weights(1), "the same for all");
                seen.insert(format!("{weights:?}"));
                assert_ne!(unit(System::Quinn, 10).seed(1), unit(System::Quinn, 20).seed(1));
            }
        }
        assert_eq!(seen.len(), 40);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for system in System::ALL {
            assert_eq!(system.name().parse(), Ok(system));
        }
        assert!("quick".parse::<System>().unwrap_err().contains("quic-go"));
        assert!("same".parse::<Net>().is_err());
    }
}
