//! Networks by counts.

use std::num::NonZeroU64;
use std::time::Duration;

use anabranch_multipath::Time;

use super::client::{ClientLoad, DownloadRecord};
use super::documents::{MAX_RELAYS, NetworkDocuments, RelayDescription};
use super::world::{ClientHostSettings, Common, OnionNetwork, Scenario};
use crate::latency::Latencies;
use crate::line::LineSettings;
use crate::network::HostSettings;

/// A network in which all relays have lines of one kind, and so have all servers and all clients.
#[derive(Clone, Debug)]
pub struct NetworkPlan {
    /// What all nodes have in common. Its seed is replaced by that of each run.
    pub common: Common,
    /// Relays that are no exits.
    pub relays: usize,
    /// Exits.
    pub exits: usize,
    /// Web servers.
    pub servers: usize,
    /// Clients with the load [`ClientLoad::web`]. They come first.
    pub web: usize,
    /// Clients with the load [`ClientLoad::bulk`].
    pub bulk: usize,
    /// Rates of lines in bits per second: of relays, servers, clients.
    pub rates: [NonZeroU64; 3],
    /// The longest time that a packet waits in the queue of a line.
    pub queue: Duration,
    /// One-way delay between any two hosts.
    pub delay: Duration,
    /// How long a run is, in simulated time.
    pub duration: Duration,
    /// Downloads that end before this do not count.
    pub warm_up: Duration,
}

/// Why a [`NetworkPlan`] makes no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// Circuits need three relays, one of them an exit, and as many more as a set has circuits.
    TooFewRelays {
        /// Relays that are no exits, at least.
        needed: usize,
    },
    /// There is no exit.
    NoExit,
    /// There are more than [`MAX_RELAYS`].
    TooManyRelays,
    /// There is no web server.
    NoServer,
    /// There is no client.
    NoClient,
    /// The warm-up is not shorter than the run.
    WarmUp,
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PlanError::TooFewRelays { needed } => {
                write!(out, "these circuits need at least {needed} relays that are no exits")
            }
            PlanError::NoExit => out.write_str("circuits end at an exit; there must be one"),
            PlanError::TooManyRelays => write!(out, "there may be at most {MAX_RELAYS} relays"),
            PlanError::NoServer => out.write_str("clients download from a server; add one"),
            PlanError::NoClient => out.write_str("nothing happens without clients; add one"),
            PlanError::WarmUp => out.write_str("the warm-up must be shorter than the duration"),
        }
    }
}

impl std::error::Error for PlanError {}

/// A network of a [`NetworkPlan`] after its run.
pub struct PlannedRun {
    /// The network.
    pub network: OnionNetwork,
    web: usize,
    warm_up: Time,
}

impl NetworkPlan {
    /// Checks that the plan makes a network.
    ///
    /// # Errors
    /// [`PlanError`]
    pub fn check(&self) -> Result<(), PlanError> {
        // Each circuit of a set has a guard and a middle of its own.
        let needed = 2 * self.common.legs.max(1);
        if self.relays < needed {
            return Err(PlanError::TooFewRelays { needed });
        }
        let faults = [
            (self.exits == 0, PlanError::NoExit),
            (self.relays.saturating_add(self.exits) > MAX_RELAYS, PlanError::TooManyRelays),
            (self.servers == 0, PlanError::NoServer),
            (self.web.saturating_add(self.bulk) == 0, PlanError::NoClient),
            (self.warm_up >= self.duration, PlanError::WarmUp),
        ];
        faults.into_iter().find(|(is_so, _)| *is_so).map_or(Ok(()), |(_, fault)| Err(fault))
    }

    /// Makes the documents of the relays, which serve all runs. It takes seconds.
    pub fn documents(&self) -> NetworkDocuments {
        let bandwidth = self.rates[0].get() / 8;
        let describe = |exit| RelayDescription { exit, bandwidth };
        let relays = std::iter::repeat_n(describe(false), self.relays);
        let exits = std::iter::repeat_n(describe(true), self.exits);
        let described: Vec<RelayDescription> = relays.chain(exits).collect();
        NetworkDocuments::new(&described, &Default::default())
    }

    /// The network as a scenario.
    pub fn scenario(&self, seed: u64, documents: &NetworkDocuments) -> Scenario {
        let host = |rate| HostSettings::symmetric(LineSettings::with_queue(rate, self.queue));
        let [relay, server, client] = self.rates.map(host);
        let loads = std::iter::repeat_n(ClientLoad::web(), self.web);
        let loads = loads.chain(std::iter::repeat_n(ClientLoad::bulk(), self.bulk));
        Scenario {
            common: Common { seed, ..self.common.clone() },
            documents: documents.clone(),
            relays: vec![relay; self.relays + self.exits],
            servers: vec![server; self.servers],
            clients: loads.map(|load| ClientHostSettings { host: client, load }).collect(),
            latencies: Latencies::uniform(self.delay),
        }
    }

    /// Runs the network from its beginning to its end; `progress` is called with the time, once
    /// for each simulated second.
    pub fn run(
        &self,
        seed: u64,
        documents: &NetworkDocuments,
        progress: &mut dyn FnMut(Duration),
    ) -> PlannedRun {
        let mut network = OnionNetwork::new(&self.scenario(seed, documents));
        let mut passed = Duration::ZERO;
        while passed < self.duration {
            passed = (passed + Duration::from_secs(1)).min(self.duration);
            network.run_until(Time::ZERO + passed);
            progress(passed);
        }
        PlannedRun { network, web: self.web, warm_up: Time::ZERO + self.warm_up }
    }
}

impl PlannedRun {
    /// Downloads that ended after the warm-up: the number of the client, whether it is a bulk
    /// client, and the download.
    pub fn downloads(&self) -> impl Iterator<Item = (usize, bool, &DownloadRecord)> {
        let counted = |download: &&DownloadRecord| download.ended >= self.warm_up;
        self.network.clients().enumerate().flat_map(move |(client, host)| {
            let downloads = host.downloads().iter().filter(counted);
            downloads.map(move |download| (client, client >= self.web, download))
        })
    }
}

/// Quantiles of times, each the smallest that at least this share of `times` does not exceed.
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
        let rate = NonZeroU64::new(10_000_000).unwrap();
        NetworkPlan {
            common: Common::default(),
            relays: 4,
            exits: 1,
            servers: 1,
            web: 1,
            bulk: 0,
            rates: [rate; 3],
            queue: Duration::from_millis(50),
            delay: Duration::from_millis(10),
            duration: Duration::from_secs(10),
            warm_up: Duration::ZERO,
        }
    }

    #[test]
    fn what_makes_no_network_is_refused() {
        assert_eq!(plan().check(), Ok(()));
        type Spoil = fn(&mut NetworkPlan);
        let bad: [(Spoil, PlanError); 6] = [
            (|plan| plan.relays = 1, PlanError::TooFewRelays { needed: 2 }),
            (|plan| plan.common.legs = 3, PlanError::TooFewRelays { needed: 6 }),
            (|plan| plan.exits = 0, PlanError::NoExit),
            (|plan| plan.servers = 0, PlanError::NoServer),
            (|plan| plan.web = 0, PlanError::NoClient),
            (|plan| plan.warm_up = plan.duration, PlanError::WarmUp),
        ];
        for (spoil, wanted) in bad {
            let mut plan = plan();
            spoil(&mut plan);
            assert_eq!(plan.check(), Err(wanted));
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
