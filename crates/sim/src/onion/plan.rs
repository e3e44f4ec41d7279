//! Plans of networks. A plan contains the number of hosts of each kind. The properties of the
//! hosts and of the network between them are drawn at random.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::conflux::Design;

use super::client::{ClientLoad, DownloadRecord, Pause};
use super::documents::{Keyring, MAX_RELAYS, MAX_SERVERS, NetworkDocuments, RelayDescription};
use super::sample::{ConsensusRelays, ListedRelay};
use super::tables::{self, LineRates, QuantileTable};
use super::world::{ClientHostSettings, Common, OnionNetwork, Scenario};
use crate::line::LineSettings;
use crate::network::HostSettings;
use crate::queue::HostId;

/// Plan of a network: the numbers of its hosts of each kind, and its settings. The rates of the
/// hosts' access lines, and the delays between hosts, are drawn from tables. `network` is the seed
/// of these draws. Each simulation has a second seed, which determines its events.
#[derive(Clone, Debug)]
pub struct NetworkPlan {
    /// Settings that all nodes share. Each simulation replaces the seed in these settings.
    pub common: Common,
    /// Number of relays that are not exits.
    pub relays: usize,
    /// Number of exits.
    pub exits: usize,
    /// Consensus from which the relays are sampled, with the seed [`NetworkPlan::network`]. The
    /// fields `relays` and `exits` must then have the values that [`ConsensusRelays::counts`]
    /// returns. If `None`, relays are not sampled: exits differ from each other only in their
    /// rates, and so do the other relays.
    pub sample: Option<RelaySample>,
    /// Number of web servers.
    pub servers: usize,
    /// Number of clients whose program behaves as in [`ClientLoad::web`]. Their indexes precede
    /// those of bulk clients.
    pub web: usize,
    /// Number of clients whose program behaves as in [`ClientLoad::bulk`].
    pub bulk: usize,
    /// Seed for the random properties of the network: relays, rates and delays.
    pub network: u64,
    /// Rates of the hosts' access lines.
    pub rates: LineRates,
    /// Maximum time for which a packet waits in the queue of an access line.
    pub queue: Duration,
    /// One-way delays between hosts, in nanoseconds.
    pub delays: QuantileTable,
    /// True if circuits have the congestion control of proposal 324 (`cc_alg` is 2, Vegas). If
    /// false, circuits have fixed windows of 1,000 cells.
    pub congestion_control: bool,
    /// Simulated duration of one simulation.
    pub duration: Duration,
    /// Duration of the warm-up. Downloads that end during the warm-up do not count.
    pub warm_up: Duration,
}

/// Maximum number of clients. Each has an address in 10.0.0.0/8.
pub const MAX_CLIENTS: usize = 1_000_000;

/// Relays sampled from a consensus, with their flags, exit policies and weights in that consensus.
#[derive(Clone, Debug)]
pub struct RelaySample {
    /// The relays of the consensus.
    pub consensus: Arc<ConsensusRelays>,
    /// True if the rate of each relay's access line is the relay's weight in the consensus. If
    /// false, the rate is drawn from [`NetworkPlan::rates`].
    pub lines_by_weight: bool,
}

/// Reason why a [`NetworkPlan`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// There are too few relays. A circuit needs three relays, including an exit. A set of
    /// circuits (Conflux) needs two more relays for each further circuit.
    TooFewRelays {
        /// Minimum number of relays that are not exits.
        needed: usize,
    },
    /// There is no exit.
    NoExit,
    /// There are more than [`MAX_RELAYS`] relays.
    TooManyRelays,
    /// There is no web server.
    NoServer,
    /// There is no client.
    NoClient,
    /// There are more than [`MAX_SERVERS`] web servers.
    TooManyServers,
    /// There are more than [`MAX_CLIENTS`] clients.
    TooManyClients,
    /// The duration of the simulation is zero.
    NoDuration,
    /// The warm-up is not shorter than the simulation.
    WarmUp,
    /// This multipath design (a protocol for sets of circuits) needs congestion control, which
    /// measures the round-trip times of the circuits.
    NoCongestionControl(Design),
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PlanError::TooFewRelays { needed } => {
                write!(
                    out,
                    "these circuits need at least {needed} relays that are not exits: add relays"
                )
            }
            PlanError::NoExit => {
                out.write_str("circuits end at an exit relay, but there is none: add one")
            }
            PlanError::TooManyRelays => write!(out, "there may be at most {MAX_RELAYS} relays"),
            PlanError::NoServer => {
                out.write_str("there is no web server from which clients download; add one")
            }
            PlanError::NoClient => {
                out.write_str("there is no client, so nothing would be simulated; add one")
            }
            PlanError::TooManyServers => {
                write!(out, "there may be at most {MAX_SERVERS} web servers")
            }
            PlanError::TooManyClients => {
                write!(out, "there may be at most {MAX_CLIENTS} clients, web and bulk together")
            }
            PlanError::NoDuration => {
                out.write_str("the duration of the simulation must be above zero")
            }
            PlanError::WarmUp => out.write_str("the warm-up must be shorter than the duration"),
            PlanError::NoCongestionControl(design) => write!(
                out,
                "the design `{}` needs the circuits' round-trip times, which only congestion \
                 control measures; write `congestion-control = \"vegas\"`, `multipath = \
                 \"conflux-2013\"` or `multipath = \"mtor\"`",
                design.name()
            ),
        }
    }
}

impl std::error::Error for PlanError {}

/// The network of a [`NetworkPlan`] after its simulation.
pub struct PlannedRun {
    /// The network at the end of the simulation.
    pub network: OnionNetwork,
    web: usize,
    warm_up: Time,
    /// Two lists: relays that are not exits, and exits. Each relay is given by its host and the
    /// rate of its access line in bits per second.
    relays: [Vec<(HostId, u64)>; 2],
}

impl NetworkPlan {
    /// Checks that the plan is valid.
    ///
    /// # Errors
    /// Returns the [`PlanError`] of the first fault found.
    pub fn check(&self) -> Result<(), PlanError> {
        // Each circuit of a set has its own guard and middle.
        let needed = 2 * self.common.legs.max(1);
        if self.relays < needed {
            return Err(PlanError::TooFewRelays { needed });
        }
        let faults = [
            (self.exits == 0, PlanError::NoExit),
            (self.relays.saturating_add(self.exits) > MAX_RELAYS, PlanError::TooManyRelays),
            (self.servers == 0, PlanError::NoServer),
            (self.web.saturating_add(self.bulk) == 0, PlanError::NoClient),
            (self.servers > MAX_SERVERS, PlanError::TooManyServers),
            (self.web.saturating_add(self.bulk) > MAX_CLIENTS, PlanError::TooManyClients),
            (self.duration.is_zero(), PlanError::NoDuration),
            (self.warm_up >= self.duration, PlanError::WarmUp),
            (self.lacks_congestion_control(), PlanError::NoCongestionControl(self.common.design)),
        ];
        faults.into_iter().find(|(is_so, _)| *is_so).map_or(Ok(()), |(_, fault)| Err(fault))
    }

    fn lacks_congestion_control(&self) -> bool {
        let is_set = self.common.legs > 1 && self.common.udp_or.is_none();
        let needs = self.common.design.has_congestion_control() && is_set;
        needs && !self.congestion_control
    }

    /// Returns the sampled relays; `None` if the plan has no sample.
    fn sampled(&self) -> Option<(&RelaySample, Vec<&ListedRelay>)> {
        let sample = self.sample.as_ref()?;
        Some((sample, sample.consensus.draw(self.relays + self.exits, self.network)))
    }

    /// Returns the rate of the access line of each relay. Relays that are not exits come first.
    fn relay_rates(&self) -> Vec<NonZeroU64> {
        let rates = &self.rates;
        if let Some((_, relays)) = self.sampled().filter(|(sample, _)| sample.lines_by_weight) {
            return relays.into_iter().map(ListedRelay::rate).collect();
        }
        let of = |place| tables::rate(&rates.relays, (self.network, place), "relay line");
        let exit = |place| tables::rate(&rates.exits, (self.network, place), "exit line");
        (0..self.relays).map(of).chain((0..self.exits).map(exit)).collect()
    }

    /// Creates keys for the relays. This takes seconds.
    pub fn keyring(&self) -> Keyring {
        Keyring::new(self.relays + self.exits)
    }

    /// Creates the documents of the relays. All simulations of this network share them. A relay's
    /// weight in clients' choices is its weight in the consensus if relays are sampled, otherwise
    /// the rate of its access line.
    ///
    /// # Panics
    /// If `keys` has too few relays.
    pub fn documents(&self, keys: &Keyring) -> NetworkDocuments {
        // In `cc_alg`, 2 is Vegas and 0 means fixed windows (proposal 324).
        let algorithm = if self.congestion_control { 2 } else { 0 };
        let params = BTreeMap::from([("cc_alg".to_owned(), algorithm)]);
        if let Some((sample, relays)) = self.sampled() {
            let (weights, lossy) = (&sample.consensus.weights, self.common.udp_or.is_some());
            return NetworkDocuments::of_sample(keys, &relays, weights, &params, lossy);
        }
        let rates = self.relay_rates();
        let describe = |(place, rate): (usize, &NonZeroU64)| RelayDescription {
            exit: place >= self.relays,
            bandwidth: rate.get() / 8,
            lossy: self.common.udp_or.is_some(),
        };
        let described: Vec<RelayDescription> = rates.iter().enumerate().map(describe).collect();
        NetworkDocuments::with_keys(keys, &described, &params)
    }

    /// Returns the scenario for a simulation of this network with the seed `seed`.
    pub fn scenario(&self, seed: u64, documents: &NetworkDocuments) -> Scenario {
        let clients = self.web + self.bulk;
        let relays = self.relays + self.exits;
        let (core, places) =
            tables::core(&self.delays, self.network, relays + self.servers + clients);
        let host = |rate, place: usize| HostSettings {
            place: places[place],
            ..HostSettings::symmetric(LineSettings::with_queue(rate, self.queue))
        };
        let server =
            |place| tables::rate(&self.rates.servers, (self.network, place), "server line");
        let client =
            |place| tables::rate(&self.rates.clients, (self.network, place), "client line");
        let web = ClientLoad { pause: Pause::UpTo(self.common.web_pause), ..ClientLoad::web() };
        let load = |place| if place < self.web { web } else { ClientLoad::bulk() };
        let rates = self.relay_rates();
        Scenario {
            common: Common { seed, ..self.common.clone() },
            documents: documents.clone(),
            relays: rates.iter().enumerate().map(|(place, rate)| host(*rate, place)).collect(),
            servers: (0..self.servers).map(|place| host(server(place), relays + place)).collect(),
            clients: (0..clients)
                .map(|place| ClientHostSettings {
                    host: host(client(place), relays + self.servers + place),
                    loads: vec![load(place)],
                    pins: None,
                })
                .collect(),
            latencies: core,
            paths: Vec::new(),
        }
    }

    /// Simulates the network for the planned duration. Calls `progress` with the time after each
    /// simulated second.
    pub fn run(
        &self,
        seed: u64,
        documents: &NetworkDocuments,
        progress: &mut dyn FnMut(Duration),
    ) -> PlannedRun {
        let run = self.run_while(seed, documents, &mut |passed| {
            progress(passed);
            true
        });
        run.expect("this run is never stopped early")
    }

    /// Simulates the network as [`NetworkPlan::run`] does. Calls `goes_on` with the time after
    /// each simulated second. If `goes_on` returns false, stops the simulation and returns `None`.
    pub fn run_while(
        &self,
        seed: u64,
        documents: &NetworkDocuments,
        goes_on: &mut dyn FnMut(Duration) -> bool,
    ) -> Option<PlannedRun> {
        let mut network = OnionNetwork::new(&self.scenario(seed, documents));
        let mut passed = Duration::ZERO;
        while passed < self.duration {
            passed = (passed + Duration::from_secs(1)).min(self.duration);
            network.run_until(Time::ZERO + passed);
            if !goes_on(passed) {
                return None;
            }
        }
        let rates = self.relay_rates();
        let hosts = rates.iter().enumerate();
        let mut relays: Vec<_> =
            hosts.map(|(place, rate)| (HostId(place as u32), rate.get())).collect();
        let exits = relays.split_off(self.relays);
        let warm_up = Time::ZERO + self.warm_up;
        Some(PlannedRun { network, web: self.web, warm_up, relays: [relays, exits] })
    }
}

impl PlannedRun {
    /// Returns the downloads that ended after the warm-up. Each has the index of its client, and
    /// whether the client is a bulk client.
    pub fn downloads(&self) -> impl Iterator<Item = (usize, bool, &DownloadRecord)> {
        let counted = |download: &&DownloadRecord| download.ended >= self.warm_up;
        self.network.clients().enumerate().flat_map(move |(client, host)| {
            let downloads = host.downloads().iter().filter(counted);
            downloads.map(move |download| (client, client >= self.web, download))
        })
    }

    /// Returns two values of utilisation: for the access lines of relays that are not exits, and
    /// for the access lines of exits. Utilisation is the number of carried bytes divided by the
    /// capacity, over the whole simulation. Only the busier direction of each line counts.
    pub fn loads(&self) -> [f64; 2] {
        self.relays.each_ref().map(|lines| used(&self.network, lines))
    }
}

/// Returns the utilisation of `lines`, as defined for [`PlannedRun::loads`].
fn used(network: &OnionNetwork, lines: &[(HostId, u64)]) -> f64 {
    let sent = |(host, _): &(HostId, u64)| {
        network.simulation().stats(*host).map(|line| line.bytes).into_iter().max().unwrap_or(0)
    };
    let bits = 8.0 * lines.iter().map(sent).sum::<u64>() as f64;
    bits / (lines.iter().map(|(_, rate)| *rate as f64).sum::<f64>() * network.now().secs_f64())
}

/// Returns the quantiles of `times` at `shares`, which are in `0.0..=1.0`. Each quantile is the
/// smallest time that at least this share of `times` does not exceed. Returns zero if `times` is
/// empty.
pub fn quantiles<const N: usize>(mut times: Vec<Duration>, shares: [f64; N]) -> [Duration; N] {
    times.sort_unstable();
    shares.map(|share| {
        let place = (share * times.len() as f64).ceil() as usize;
        times.get(place.saturating_sub(1)).copied().unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> NetworkPlan {
        let rate = || QuantileTable::one(10_000_000);
        NetworkPlan {
            common: Common::default(),
            relays: 4,
            exits: 1,
            sample: None,
            servers: 1,
            web: 1,
            bulk: 0,
            network: 1,
            rates: LineRates { relays: rate(), exits: rate(), servers: rate(), clients: rate() },
            queue: Duration::from_millis(50),
            delays: QuantileTable::one(10_000_000),
            congestion_control: true,
            duration: Duration::from_secs(10),
            warm_up: Duration::ZERO,
        }
    }

    #[test]
    fn what_makes_no_network_is_refused() {
        assert_eq!(plan().check(), Ok(()));
        type SpoilFn = fn(&mut NetworkPlan);
        let bad: [(SpoilFn, PlanError); 10] = [
            (|plan| plan.relays = 1, PlanError::TooFewRelays { needed: 2 }),
            (|plan| plan.common.legs = 3, PlanError::TooFewRelays { needed: 6 }),
            (|plan| plan.exits = 0, PlanError::NoExit),
            (|plan| plan.servers = 0, PlanError::NoServer),
            (|plan| plan.servers = MAX_SERVERS + 1, PlanError::TooManyServers),
            (|plan| plan.web = 0, PlanError::NoClient),
            (|plan| plan.web = usize::MAX, PlanError::TooManyClients),
            (|plan| plan.duration = Duration::ZERO, PlanError::NoDuration),
            (|plan| plan.warm_up = plan.duration, PlanError::WarmUp),
            (
                |plan| {
                    (plan.common.legs, plan.congestion_control) = (2, false);
                },
                PlanError::NoCongestionControl(Design::Conflux),
            ),
        ];
        for (spoil, wanted) in bad {
            let mut plan = plan();
            spoil(&mut plan);
            assert_eq!(plan.check(), Err(wanted));
        }
    }

    #[test]
    fn designs_with_windows_and_circuits_alone_need_no_congestion_control() {
        let ancestor: Design = "mtor".parse().unwrap();
        for (legs, design) in [(1, Design::Conflux), (2, ancestor)] {
            let mut plan = plan();
            plan.congestion_control = false;
            (plan.common.legs, plan.common.design) = (legs, design);
            assert_eq!(plan.check(), Ok(()), "{legs} legs");
        }
    }

    #[test]
    fn quantiles_are_among_the_times() {
        let times: Vec<Duration> = (1..=10).rev().map(Duration::from_secs).collect();
        let found = quantiles(times, [0.0, 0.1, 0.5, 0.91, 1.0]).map(|time| time.as_secs());
        assert_eq!(found, [1, 1, 5, 10, 10]);
        assert_eq!(quantiles(Vec::new(), [0.5]), [Duration::ZERO]);
    }
}
