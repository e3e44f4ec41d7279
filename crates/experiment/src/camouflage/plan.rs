//! The measurements of the camouflage experiment, and their order.

use std::time::Duration;

use anabranch_multipath::seed;
use rand_chacha::rand_core::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::named::named;
use super::super::runner;

/// Round-trip time of the access line in the StegoTorus paper, in ms.
pub const RTT: u32 = 85;
/// Size in bytes of the downloads of the StegoTorus paper's Table 3, and of the longest downloads
/// of Figure 7.
pub const LONGEST: u32 = 1_000_000;
/// Number of downloads of [`LONGEST`] bytes in a measurement of downloads.
pub const DOWNLOADS: usize = 4;
/// Sizes in bytes of the downloads of the StegoTorus paper's Figure 7. A measurement has one
/// download of each size below the longest.
pub const LENGTHS: [u32; 10] =
    [100_000, 200_000, 300_000, 400_000, 500_000, 600_000, 700_000, 800_000, 900_000, LONGEST];
/// Approximate time to start a bridge and a client, for the estimate of the remaining time.
const STARTING: Duration = Duration::from_secs(20);
/// Total length of the pauses in a measurement, for the estimate of the remaining time.
const PAUSES: Duration = Duration::from_secs(12);

/// The client's method of fetching: directly, through Tor, or through Tor with a pluggable
/// transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Arm {
    /// TCP to the web server, without Tor.
    Direct,
    /// C tor over a C tor bridge, without a transport.
    Tor,
    /// C tor through `obfs4proxy`.
    Obfs4,
    /// C tor through webtunnel, a transport whose server has nginx with TLS in front of it.
    Webtunnel,
    /// C tor through our transport with the profile `nosteg`. It corresponds to StegoTorus's
    /// chopper alone, which cuts traffic into blocks without camouflage.
    Nosteg,
    /// C tor through our transport with the profile `nosteg-rr`: each connection carries one
    /// request and one response, as in the original StegoTorus.
    NostegRr,
    /// C tor through our transport with the profile `nosteg-short`: many short connections.
    NostegShort,
    /// C tor through our transport: camouflage as HTTP whose bodies are random-looking bytes.
    Opaque,
    /// C tor through our transport: camouflage as HTTP whose bodies are random-looking bytes, over
    /// many short connections.
    OpaqueShort,
    /// C tor through our transport: camouflage as HTTP whose bodies are printable text.
    Text,
    /// C tor through our transport: camouflage as HTTP with printable bodies, over many short
    /// connections.
    TextShort,
    /// C tor through our transport: camouflage as HTTP, with data hidden in JPEG files towards the
    /// client.
    Image,
    /// C tor through our transport: camouflage as HTTP, with data hidden in the files of a
    /// recorded web site, whose content stays meaningful.
    Site,
    /// C tor through our transport, whose connections have the sizes and pauses of recorded
    /// traffic.
    Embed,
}

/// Kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MeasurementKind {
    /// Downloads one after another (StegoTorus paper's Table 3 and Figure 7).
    Downloads,
    /// Streams (downloads at fixed rates) one after another (StegoTorus paper's Figure 6).
    Streams,
    /// Downloads of [`LONGEST`] bytes one after another through our transport, without Tor inside.
    Bare,
}

named!(Arm: Direct "direct", Tor "tor", Obfs4 "obfs4", Webtunnel "webtunnel", Nosteg "nosteg",
    NostegRr "nosteg-rr", NostegShort "nosteg-short", Opaque "http-opaque",
    OpaqueShort "http-opaque-short", Text "http-text", TextShort "http-text-short",
    Image "http-image", Site "http-site", Embed "embed");
named!(MeasurementKind: Downloads "downloads", Streams "streams", Bare "bare");

impl Arm {
    /// Returns whether this method uses our transport. If so, the method has the same name as the
    /// transport's profile.
    #[must_use]
    pub fn is_ours(self) -> bool {
        !matches!(self, Arm::Direct | Arm::Tor | Arm::Obfs4 | Arm::Webtunnel)
    }

    /// Returns whether this method uses an HTTP profile of our transport.
    #[must_use]
    pub fn is_http(self) -> bool {
        let arms =
            [Arm::Opaque, Arm::OpaqueShort, Arm::Text, Arm::TextShort, Arm::Image, Arm::Site];
        arms.contains(&self)
    }

    /// Returns whether downloads by this method take several times as long as others, because the
    /// camouflage is many times as large as the payload.
    fn is_slow(self) -> bool {
        matches!(self, Arm::Image | Arm::Site | Arm::Embed)
    }
}

/// The settings of the camouflage experiment: methods of fetching, numbers of rounds, and streams.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Methods of fetching to measure.
    pub arms: Vec<Arm>,
    /// Number of rounds (passes over all settings) of downloads through Tor and directly.
    pub rounds: u32,
    /// Number of rounds (passes over all settings) of downloads through our transport without Tor
    /// inside.
    pub bare_rounds: u32,
    /// Number of rounds (passes over all settings) in which streams are measured.
    pub stream_rounds: u32,
    /// Round-trip times at which streams are measured, in ms.
    pub rtts: Vec<u32>,
    /// Rates of the streams, in kB/s.
    pub rates: Vec<u32>,
    /// Nominal duration of each stream, in seconds.
    pub seconds: u32,
    /// Time after which a download is cut off, in seconds.
    pub cut: u32,
    /// Number and total bytes of the JPEG files for the profile `http-image`; `None` without them.
    pub pictures: Option<[u64; 2]>,
    /// Number and total bytes of the recorded site's files for the profile `http-site`; `None`
    /// without them.
    pub covers: Option<[u64; 2]>,
    /// Seed of the random orders of measurements, downloads and streams.
    pub seed: u64,
}

/// One measurement of the camouflage experiment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    /// Kind of measurement.
    pub what: MeasurementKind,
    /// Method of fetching to measure.
    pub arm: Arm,
    /// Round-trip time of the client's access line, in ms.
    pub rtt: u32,
    /// Index of the round (a pass over all settings), from 0.
    pub round: u32,
    lasts: Duration,
}

impl Settings {
    /// Returns the settings that must not change when the experiment is resumed. Other settings,
    /// such as the number of rounds, may be increased.
    #[must_use]
    pub fn header(&self) -> Value {
        let mut header = json!({
            "experiment": "camouflage",
            "version": 1,
            "seed": self.seed,
            "rates": self.rates,
            "seconds": self.seconds,
            "cut": self.cut,
            "pictures": self.pictures,
        });
        // A journal of an earlier version lacks this setting. It can still be resumed.
        if let Some(covers) = self.covers {
            header["covers"] = json!(covers);
        }
        header
    }

    fn unit(&self, what: MeasurementKind, arm: Arm, rtt: u32, round: u32) -> Unit {
        let is_tor = arm != Arm::Direct && what != MeasurementKind::Bare;
        let starting = if is_tor { STARTING } else { Duration::ZERO };
        let lasts = match what {
            MeasurementKind::Downloads if arm.is_slow() => Duration::from_secs(60),
            MeasurementKind::Downloads => Duration::from_secs(25),
            MeasurementKind::Bare if arm.is_slow() => Duration::from_secs(24),
            MeasurementKind::Bare => Duration::from_secs(10),
            MeasurementKind::Streams => Duration::from_secs(u64::from(self.seconds) + 1)
                .saturating_mul(self.rates.len() as u32),
        };
        Unit { what, arm, rtt, round, lasts: starting + PAUSES + lasts }
    }
}

impl Unit {
    /// Returns the sizes of the measurement's downloads in bytes, in order. Within a round, all
    /// methods of fetching have the same sizes in the same order.
    #[must_use]
    pub fn lengths(&self, seed: u64) -> Vec<u32> {
        if self.what == MeasurementKind::Bare {
            return vec![LONGEST; DOWNLOADS];
        }
        let mut lengths = LENGTHS.to_vec();
        lengths.extend([LONGEST; DOWNLOADS - 1]);
        self.shuffled(seed, "lengths", lengths)
    }

    /// Returns the rates of the measurement's streams in kB/s, in the order in which they are
    /// measured. The order is random, but equal for all transports of a round.
    #[must_use]
    pub fn rates(&self, settings: &Settings) -> Vec<u32> {
        self.shuffled(settings.seed, "rates", settings.rates.clone())
    }

    fn shuffled(&self, seed: u64, what: &str, all: Vec<u32>) -> Vec<u32> {
        let mut dice = seed::stream(seed, self.round.into(), what);
        let mut drawn: Vec<(u64, u32)> =
            all.into_iter().map(|one| (dice.next_u64(), one)).collect();
        drawn.sort_unstable();
        drawn.into_iter().map(|(_, one)| one).collect()
    }

    fn order(&self, seed: u64) -> u64 {
        seed::stream(seed, 0, &runner::Unit::id(self)).next_u64()
    }
}

impl runner::Unit for Unit {
    fn id(&self) -> String {
        let Unit { what, arm, rtt, round, .. } = self;
        match what {
            MeasurementKind::Downloads | MeasurementKind::Bare => format!("{what}/{arm}/{round}"),
            MeasurementKind::Streams => format!("{what}/{arm}/{rtt}/{round}"),
        }
    }

    fn lasts(&self) -> Duration {
        self.lasts
    }
}

/// Returns all measurements in the order of execution: round by round, each round shuffled.
/// Without the shuffle, a temporarily busy machine could disturb the same setting in all rounds.
#[must_use]
pub fn plan(settings: &Settings) -> Vec<Unit> {
    let mut units = Vec::new();
    let rounds = [settings.rounds, settings.bare_rounds, settings.stream_rounds];
    for round in 0..rounds.into_iter().max().unwrap_or_default() {
        let mut of_round = Vec::new();
        for &arm in &settings.arms {
            if round < settings.rounds {
                of_round.push(settings.unit(MeasurementKind::Downloads, arm, RTT, round));
            }
            if round < settings.bare_rounds && arm.is_ours() {
                of_round.push(settings.unit(MeasurementKind::Bare, arm, RTT, round));
            }
            if round < settings.stream_rounds {
                let stream = |&rtt| settings.unit(MeasurementKind::Streams, arm, rtt, round);
                of_round.extend(settings.rtts.iter().map(stream));
            }
        }
        // Each measurement has its own random number, so that adding settings does not change the
        // order of the others.
        of_round.sort_by_cached_key(|unit| unit.order(settings.seed));
        units.extend(of_round);
    }
    units
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use super::super::super::runner::Unit as _;
    use super::*;

    pub(in super::super) fn settings() -> Settings {
        Settings {
            arms: Arm::ALL.to_vec(),
            rounds: 8,
            bare_rounds: 8,
            stream_rounds: 3,
            rtts: vec![100, 150, 200, 250, 300, 350, 400, 450],
            rates: vec![50, 150, 300],
            seconds: 20,
            cut: 120,
            pictures: None,
            covers: None,
            seed: 1,
        }
    }

    #[test]
    fn each_arm_has_32_long_downloads_and_three_streams_at_each_round_trip() {
        let settings = settings();
        let units = plan(&settings);
        assert_eq!(units.len(), 14 * (8 + 3 * 8) + 10 * 8, "those of ours once more without Tor");
        let ids: BTreeSet<_> = units.iter().map(|unit| unit.id()).collect();
        assert_eq!(ids.len(), units.len(), "each id once");
        assert!(units.is_sorted_by_key(|unit| unit.round));
        let of_tor = units
            .iter()
            .filter(|unit| (unit.what, unit.arm) == (MeasurementKind::Downloads, Arm::Tor));
        let lengths: Vec<u32> = of_tor.flat_map(|unit| unit.lengths(1)).collect();
        let count = |length| lengths.iter().filter(|one| **one == length).count();
        assert_eq!((count(LONGEST), count(100_000), count(900_000)), (32, 8, 8));
    }

    #[test]
    fn arms_of_a_round_share_an_order_that_no_other_round_has() {
        let units = plan(&settings());
        let of_tor = units.iter().filter(|unit| unit.what == MeasurementKind::Downloads);
        let orders: BTreeSet<Vec<u32>> = of_tor.map(|unit| unit.lengths(1)).collect();
        assert_eq!(orders.len(), 8);
        let few = Settings { arms: vec![Arm::Opaque], ..settings() };
        let mut all = units;
        all.retain(|unit| unit.arm == Arm::Opaque);
        assert_eq!(all, plan(&few), "the order of one arm does not depend on other arms");
    }

    #[test]
    fn other_covers_are_another_journal_and_none_are_the_old_one() {
        let none = settings().header();
        assert!(none.get("covers").is_none());
        let some = Settings { covers: Some([3, 9]), ..settings() }.header();
        assert_eq!(some["covers"], json!([3, 9]));
    }

    #[test]
    fn names_are_those_of_the_profiles() {
        for arm in Arm::ALL {
            assert_eq!(arm.name().parse(), Ok(*arm));
            assert_eq!(arm.is_http(), arm.name().starts_with("http-"));
        }
        assert!(!Arm::Obfs4.is_ours() && Arm::NostegRr.is_ours());
    }
}
