//! The simulations of the DBSec 2019 paper's larger network: designs, schedules and numbers of
//! clients.

use std::fmt;
use std::time::Duration;

use anabranch_onion::LossyCongestion;
use anabranch_onion::conflux::{Design, LegScheduler};
use anabranch_sim::onion::{
    Common, Crypto, LineRates, NetworkPlan, PublicRates, QuantileTable, planetlab_delays,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::{runner, sweep};

/// Numbers of relays that are not exits, of exits, and of servers in the DBSec 2019 paper's
/// network (section 5).
const RELAYS: [usize; 3] = [59, 14, 14];
/// Number of clients in the whole network: 206 web clients and 22 bulk clients (DBSec 2019 paper,
/// section 5).
pub const MOST_CLIENTS: usize = 228;
/// Numbers of clients in the DBSec 2019 paper's Figure 4. The paper's text mentions only 140 and
/// the last number.
pub const STEPS: [usize; 6] = [20, 60, 100, 140, 180, MOST_CLIENTS];
/// Queue length of a network line, as the time for which a full queue delays a packet.
const QUEUE: Duration = Duration::from_millis(50);
/// Rates of the servers' network lines and of the clients' network lines, in bits per second.
const OTHERS: [u64; 2] = [1_000_000_000, 50_000_000];

/// Rule that assigns cells to the paths of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// No rule: there is only one path.
    None,
    /// Rule that assigns one cell to each path in turn.
    RoundRobin,
    /// Rule of the design's own scheduler, which considers congestion windows or round-trip times.
    Own,
    /// Rule that assigns a cell to the path on which the cell is expected to arrive first.
    Eta,
}

impl Schedule {
    const DEALT: [Schedule; 3] = [Schedule::RoundRobin, Schedule::Own, Schedule::Eta];

    /// Returns the schedule's name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Schedule::None => "–",
            Schedule::RoundRobin => "round robin",
            Schedule::Own => "own",
            Schedule::Eta => "eta",
        }
    }

    fn dealing(self, legs: usize) -> Option<LegScheduler> {
        let text = match self {
            Schedule::None | Schedule::Own => return None,
            Schedule::RoundRobin => "round-robin 1p",
            Schedule::Eta => "eta 1p",
        };
        Some(LegScheduler::read(text, legs).expect("the schedule is valid for any number of paths"))
    }
}

/// A setting to simulate: a design with a number of paths and a schedule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Arm {
    /// Name of the design:
    ///
    /// * `tor`: one circuit with the congestion control of proposal 324;
    /// * `tor-fixed`: one circuit without congestion control, as Tor was in 2019;
    /// * a design that splits streams over a set of circuits, such as `conflux`;
    /// * `udp-or` and `mudp-or`: UDP designs, whose TCP between client and exit uses BBR;
    /// * `udp-or-cubic` and `mudp-or-cubic`: the same UDP designs with CUBIC, as published.
    pub design: String,
    /// Number of paths over which a stream is split.
    pub legs: usize,
    /// Rule that assigns cells to the paths.
    pub schedule: Schedule,
}

impl Arm {
    /// Returns the setting with a single path and the congestion control of proposal 324.
    #[must_use]
    pub fn tor() -> Arm {
        Arm { design: "tor".to_owned(), legs: 1, schedule: Schedule::None }
    }

    /// Returns the setting with a single path and fixed windows of 1,000 cells.
    #[must_use]
    pub fn tor_fixed() -> Arm {
        Arm { design: "tor-fixed".to_owned(), legs: 1, schedule: Schedule::None }
    }

    /// Returns the setting with UDP-OR (one circuit whose cells may get lost), with CUBIC or with
    /// BBR.
    #[must_use]
    pub fn udp_or(is_cubic: bool) -> Arm {
        Arm::of(if is_cubic { "udp-or-cubic" } else { "udp-or" }, 1, Schedule::None)
    }

    /// Returns the setting with mUDP-OR over `legs` paths: as published (CUBIC and round robin),
    /// or in this project's form (BBR and [`Schedule::Eta`]).
    #[must_use]
    pub fn mudp_or(legs: usize, is_published: bool) -> Arm {
        match is_published {
            true => Arm::of("mudp-or-cubic", legs, Schedule::RoundRobin),
            false => Arm::of("mudp-or", legs, Schedule::Eta),
        }
    }

    /// Returns the congestion control of the end-to-end TCP connections of a UDP design; `None`
    /// for other designs.
    fn lossy_congestion(&self) -> Option<LossyCongestion> {
        match self.design.as_str() {
            "udp-or" | "mudp-or" => Some(LossyCongestion::BBR),
            "udp-or-cubic" | "mudp-or-cubic" => Some(LossyCongestion::CUBIC),
            _ => None,
        }
    }

    /// Returns the setting with `design`, `legs` paths and `schedule`.
    #[must_use]
    pub fn of(design: &str, legs: usize, schedule: Schedule) -> Arm {
        Arm { design: design.to_owned(), legs, schedule }
    }

    /// Returns the corresponding setting with a single path, as a baseline. It has the same kind
    /// of congestion window as this setting.
    #[must_use]
    pub fn alone(&self) -> Arm {
        if let Some(congestion) = self.lossy_congestion().filter(|_| self.legs > 1) {
            return Arm::udp_or(congestion == LossyCongestion::CUBIC);
        }
        let ancestor = ["tor-fixed", "conflux-2013", "mtor"].contains(&self.design.as_str());
        if ancestor { Arm::tor_fixed() } else { Arm::tor() }
    }

    fn common(&self) -> Common {
        let udp_or = self.lossy_congestion();
        let is_usual = self.legs == 1 || udp_or.is_some();
        let design = if is_usual { Ok(Design::default()) } else { self.design.parse() };
        Common {
            design: design.expect("the designs of the plan exist"),
            legs: self.legs,
            dealing: self.schedule.dealing(self.legs),
            udp_or,
            crypto: Crypto::Elided,
            first_pause: Duration::from_secs(20),
            ..Common::default()
        }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.legs {
            1 => out.write_str(&self.design),
            legs => write!(out, "{} × {legs}, {}", self.design, self.schedule.name()),
        }
    }
}

/// Designs that split streams over sets of circuits.
const DESIGNS: [&str; 5] = ["conflux", "conflux-2013", "mtor", "merged", "anabranch"];
/// Designs of the DBSec 2019 paper's Figure 4, in which the number of clients grows. They have two
/// paths, and are also simulated with round robin.
pub const ARMS_GROWN: [&str; 4] = ["conflux", "conflux-2013", "mtor", "anabranch"];

/// Returns all settings for the DBSec 2019 paper's Figures 2 and 3. The settings [`Arm::tor`] and
/// [`Arm::tor_fixed`] differ only in their congestion windows.
#[must_use]
pub fn arms() -> Vec<Arm> {
    let sets = DESIGNS.iter().flat_map(|design| [2, 3].map(|legs| (design, legs)));
    let sets = sets
        .flat_map(|(design, legs)| Schedule::DEALT.map(|schedule| Arm::of(design, legs, schedule)));
    let udp = [2, 3].into_iter().flat_map(|legs| [true, false].map(|it| Arm::mudp_or(legs, it)));
    let udp = [true, false].map(Arm::udp_or).into_iter().chain(udp);
    [Arm::tor(), Arm::tor_fixed()].into_iter().chain(sets).chain(udp).collect()
}

/// Returns all settings for the DBSec 2019 paper's Figure 4.
fn grown() -> Vec<Arm> {
    let sets = ARMS_GROWN.iter().flat_map(|design| {
        [Schedule::RoundRobin, Schedule::Own].map(|schedule| Arm::of(design, 2, schedule))
    });
    let udp = [true, false].map(|is_published| Arm::mudp_or(2, is_published));
    [Arm::tor(), Arm::tor_fixed()].into_iter().chain(sets).chain(udp).collect()
}

/// The settings of the experiment: numbers of clients, networks and seeds, and simulated time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of clients for the DBSec 2019 paper's Figures 2 and 3, and for the last step of its
    /// Figure 4.
    pub clients: usize,
    /// Simulated time, including the warm-up phase.
    pub duration: Duration,
    /// Simulated duration of the warm-up phase. Downloads that end in it do not count.
    pub warm_up: Duration,
    /// Number of random networks.
    pub networks: u64,
    /// Number of seeds (simulations) for each random network.
    pub seeds: u64,
    /// True if relays have the whole capacity that their network lines have in the public Tor
    /// network. If false, they have only the part of this capacity that was unused in the public
    /// network.
    pub whole_lines: bool,
    /// True if settings with three paths are also simulated.
    pub three_paths: bool,
    /// Index of the first random network, which is also the first seed. Further indices and seeds
    /// count up from it.
    pub seed: u64,
}

/// A planned simulation, with its design, number of clients, network and seed.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Design, number of paths and schedule to simulate.
    pub arm: Arm,
    /// Number of clients in the network.
    pub clients: usize,
    /// Index of the random network to simulate.
    pub network: u64,
    /// Seed of the simulation.
    pub seed: u64,
    pub(super) plan: NetworkPlan,
}

impl Settings {
    /// Returns the settings that must not change when the experiment is resumed.
    #[must_use]
    pub fn header(&self) -> Value {
        json!({
            "experiment": "wide",
            "version": 2,
            "seed": self.seed,
            "clients": self.clients,
            "seconds": self.duration.as_secs(),
            "warm_up": self.warm_up.as_secs(),
            "networks": self.networks,
            "seeds": self.seeds,
            "lines": self.rates().name(),
            "three_paths": self.three_paths,
        })
    }

    fn rates(&self) -> PublicRates {
        if self.whole_lines { PublicRates::Tor2018 } else { PublicRates::Tor2018Spare }
    }

    /// Returns the numbers of clients for the DBSec 2019 paper's Figure 4.
    #[must_use]
    pub fn steps(&self) -> Vec<usize> {
        let smaller = STEPS.into_iter().filter(|step| *step < self.clients);
        smaller.chain([self.clients]).collect()
    }

    fn network(&self, arm: &Arm, (clients, network): (usize, u64)) -> NetworkPlan {
        let [relays, exits] = self.rates().tables();
        let [servers, others] = OTHERS.map(QuantileTable::one);
        // The paper has 10 % bulk clients: 22 of 228 clients.
        let bulk = clients / 10;
        NetworkPlan {
            common: arm.common(),
            relays: RELAYS[0],
            exits: RELAYS[1],
            sample: None,
            servers: RELAYS[2],
            web: clients - bulk,
            bulk,
            network,
            rates: LineRates { relays, exits, servers, clients: others },
            queue: QUEUE,
            delays: planetlab_delays(),
            congestion_control: arm.design != "tor-fixed",
            duration: self.duration,
            warm_up: self.warm_up,
        }
    }

    fn round(&self, (network, seed): (u64, u64)) -> Vec<Unit> {
        let unit = |arm: &Arm, clients: usize| Unit {
            arm: arm.clone(),
            clients,
            network,
            seed,
            plan: self.network(arm, (clients, network)),
        };
        let wanted = |arm: &Arm| self.three_paths || arm.legs < 3;
        let mut units: Vec<Unit> =
            arms().iter().filter(|arm| wanted(arm)).map(|arm| unit(arm, self.clients)).collect();
        let steps = self.steps();
        for clients in &steps[..steps.len() - 1] {
            units.extend(grown().iter().map(|arm| unit(arm, *clients)));
        }
        units
    }
}

/// Returns all planned simulations. Simulations with the same network and seed are consecutive.
/// They have the same network lines, delays and clients' pauses, so that designs can be compared.
#[must_use]
pub fn plan(settings: &Settings) -> Vec<Unit> {
    let first = settings.seed;
    let networks = first..first + settings.networks;
    let rounds = networks
        .flat_map(|network| (first..first + settings.seeds).map(move |seed| (network, seed)));
    rounds.flat_map(|round| settings.round(round)).collect()
}

impl runner::Unit for Unit {
    fn id(&self) -> String {
        format!(
            "{}, {} clients, network {}, seed {}",
            self.arm, self.clients, self.network, self.seed
        )
    }

    fn lasts(&self) -> Duration {
        sweep::cost(&self.plan)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use super::super::super::runner::Unit as _;
    use super::*;

    pub(in super::super) fn settings() -> Settings {
        Settings {
            clients: MOST_CLIENTS,
            duration: Duration::from_secs(1500),
            warm_up: Duration::from_secs(300),
            networks: 5,
            seeds: 2,
            whole_lines: false,
            three_paths: true,
            seed: 1,
        }
    }

    #[test]
    fn the_whole_network_has_the_paper_s_counts() {
        let units = plan(&settings());
        let first = &units[0].plan;
        assert_eq!((first.web, first.bulk), (206, 22));
        assert_eq!((first.relays, first.exits, first.servers), (59, 14, 14));
        let nodes = first.web + first.bulk + first.relays + first.exits + first.servers;
        assert_eq!(nodes, 315, "the paper writes 303");
        assert!(units.iter().all(|unit| unit.plan.check().is_ok()));
        let ids: BTreeSet<String> = units.iter().map(Unit::id).collect();
        assert_eq!(ids.len(), units.len());
        // There are 38 settings. 12 of them also have 5 smaller numbers of clients. All run on 10
        // combinations of network and seed.
        assert_eq!(units.len(), (38 + 12 * 5) * 10);
        let bulk = |clients| units.iter().find(|unit| unit.clients == clients).unwrap().plan.bulk;
        assert_eq!([20, 140, 228].map(bulk), [2, 14, 22]);
    }

    #[test]
    fn a_smaller_experiment_has_fewer_steps_and_arms() {
        let small =
            Settings { clients: 60, networks: 1, seeds: 1, three_paths: false, ..settings() };
        assert_eq!(small.steps(), [20, 60]);
        assert_eq!(plan(&small).len(), 2 + 15 + 4 + 12);
        assert!(plan(&small).iter().all(|unit| unit.arm.legs < 3));
    }

    #[test]
    fn a_design_is_compared_with_one_path_of_the_same_windows() {
        let alone = |design| Arm::of(design, 2, Schedule::Own).alone().design;
        assert_eq!(["conflux", "merged", "anabranch"].map(alone), ["tor"; 3]);
        assert_eq!(["conflux-2013", "mtor"].map(alone), ["tor-fixed"; 2]);
        assert_eq!(["mudp-or", "mudp-or-cubic"].map(alone), ["udp-or", "udp-or-cubic"]);
        assert_eq!(Arm::udp_or(true).alone(), Arm::tor());
    }
}
