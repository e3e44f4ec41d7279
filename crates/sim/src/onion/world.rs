//! A whole network.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::circuitmux;
use anabranch_onion::conflux::{Dealing, Design};
use anabranch_tcp::Config;

use super::client::{ClientHost, ClientLoad, DownloadRecord};
use super::documents::{NetworkDocuments, web_address};
use super::links::Hosts;
use super::relay::{Cpu, RelayHost};
use super::web::WebServer;
use crate::latency::Latencies;
use crate::network::HostSettings;
use crate::simulation::{HostProgram, Io, Simulation};
use crate::stack::TcpEvent;
use crate::trace::TraceHash;

/// Whether the layers of circuits encrypt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crypto {
    /// As in any relay.
    #[default]
    Full,
    /// Not: the run has the same events, and takes less time.
    Elided,
}

/// What all nodes of a network have in common.
#[derive(Clone, Debug)]
pub struct Common {
    /// The seed of all chance.
    pub seed: u64,
    /// The order among the circuits of a link.
    pub policy: circuitmux::Kind,
    /// The design of sets of several circuits.
    pub design: Design,
    /// Circuits of a set; 1 for circuits alone.
    pub legs: usize,
    /// How messages are dealt among the circuits of a set; `None`: as the design has it.
    pub dealing: Option<Dealing>,
    /// CPU time of relays; `None`: they take none.
    pub cpu: Option<Cpu>,
    /// Whether circuits are encrypted.
    pub crypto: Crypto,
    /// First downloads begin after a random pause of up to this, or of their load's where that is
    /// longer, so that clients are not synchronised.
    pub first_pause: Duration,
    /// TCP of all hosts.
    pub tcp: Config,
}

impl Default for Common {
    fn default() -> Common {
        Common {
            seed: 1,
            policy: circuitmux::Kind::Kist,
            design: Design::default(),
            legs: 1,
            dealing: None,
            cpu: Some(Cpu::default()),
            crypto: Crypto::default(),
            first_pause: Duration::ZERO,
            tcp: Config::default(),
        }
    }
}

/// A client's line and load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientHostSettings {
    /// Its line.
    pub host: HostSettings,
    /// Its downloads.
    pub load: ClientLoad,
}

/// A network: the relays of its [`NetworkDocuments`], servers and clients.
#[derive(Clone)]
pub struct Scenario {
    /// What all nodes have in common.
    pub common: Common,
    /// Who the relays are.
    pub documents: NetworkDocuments,
    /// The line of each relay.
    pub relays: Vec<HostSettings>,
    /// The line of each web server.
    pub servers: Vec<HostSettings>,
    /// The clients.
    pub clients: Vec<ClientHostSettings>,
    /// The core between all lines.
    pub latencies: Latencies,
}

/// A host of the network.
pub enum OnionHost {
    /// A relay.
    Relay(Box<RelayHost>),
    /// A client.
    Client(Box<ClientHost>),
    /// A web server.
    Web(WebServer),
}

impl HostProgram for OnionHost {
    fn start(&mut self, io: &mut Io<'_>) {
        match self {
            OnionHost::Relay(relay) => relay.start(io),
            OnionHost::Client(client) => client.start(io),
            OnionHost::Web(server) => server.start(io),
        }
    }

    fn handle(&mut self, io: &mut Io<'_>, event: TcpEvent) {
        match self {
            OnionHost::Relay(relay) => relay.handle(io, event),
            OnionHost::Client(client) => client.handle(io, event),
            OnionHost::Web(server) => server.handle(io, event),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        match self {
            OnionHost::Relay(relay) => relay.next_timeout(),
            OnionHost::Client(client) => client.next_timeout(),
            OnionHost::Web(server) => server.next_timeout(),
        }
    }

    fn expire(&mut self, io: &mut Io<'_>) {
        match self {
            OnionHost::Relay(relay) => relay.expire(io),
            OnionHost::Client(client) => client.expire(io),
            OnionHost::Web(server) => server.expire(io),
        }
    }
}

/// A network that runs. A run is a function of the scenario, which has the seed.
pub struct OnionNetwork {
    simulation: Simulation<OnionHost>,
}

impl OnionNetwork {
    /// A network at the beginning of its time.
    ///
    /// # Panics
    /// The scenario has another number of relays than its documents, no server, or a place that
    /// its latencies do not have.
    pub fn new(scenario: &Scenario) -> OnionNetwork {
        let Scenario { common, documents, relays, servers, clients, latencies } = scenario;
        assert_eq!(relays.len(), documents.relays.len(), "a line for each relay");
        assert!(!servers.is_empty(), "clients need a server");
        let web: Arc<Vec<Ipv4Addr>> = Arc::new((0..servers.len()).map(web_address).collect());
        let hosts = Arc::new(hosts(scenario, &web));
        let params = &documents.network.consensus().params;
        let mut simulation = Simulation::new(latencies.clone(), common.seed);
        let mut add = |settings: HostSettings, node: OnionHost| {
            simulation.add_host(settings, common.tcp.clone(), node);
        };
        for (place, (settings, papers)) in relays.iter().zip(&documents.relays).enumerate() {
            let exit = documents.descriptions[place].exit;
            let relay = RelayHost::new(common, (place, papers, exit), params, &hosts);
            add(*settings, OnionHost::Relay(Box::new(relay)));
        }
        for settings in servers {
            add(*settings, OnionHost::Web(WebServer::default()));
        }
        for (place, client) in clients.iter().enumerate() {
            let network = &documents.network;
            let node = ClientHost::new(common, (place, client.load), network, (&hosts, &web));
            add(client.host, OnionHost::Client(Box::new(node)));
        }
        OnionNetwork { simulation }
    }

    /// Runs until a time.
    pub fn run_until(&mut self, until: Time) {
        self.simulation.run_until(until);
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.simulation.now()
    }

    /// The hash of all events so far.
    pub fn trace(&self) -> TraceHash {
        self.simulation.trace()
    }

    /// The hosts and their lines.
    pub fn simulation(&self) -> &Simulation<OnionHost> {
        &self.simulation
    }

    /// The relays.
    pub fn relays(&self) -> impl Iterator<Item = &RelayHost> {
        self.simulation.programs().filter_map(|node| match node {
            OnionHost::Relay(relay) => Some(&**relay),
            _ => None,
        })
    }

    /// The clients.
    pub fn clients(&self) -> impl Iterator<Item = &ClientHost> {
        self.simulation.programs().filter_map(|node| match node {
            OnionHost::Client(client) => Some(&**client),
            _ => None,
        })
    }

    /// The downloads of all clients that have ended.
    pub fn downloads(&self) -> impl Iterator<Item = &DownloadRecord> {
        self.clients().flat_map(ClientHost::downloads)
    }
}

/// All hosts in the order in which they are added: relays, servers, clients.
fn hosts(scenario: &Scenario, web: &[Ipv4Addr]) -> Hosts {
    let mut hosts = Hosts::default();
    for papers in &scenario.documents.relays {
        hosts.add(papers.address, Some(papers.credentials.tls_certificate));
    }
    web.iter().for_each(|&address| hosts.add(address.into(), None));
    for place in 0..scenario.clients.len() {
        hosts.add(client_address(place).into(), None);
    }
    hosts
}

fn client_address(place: usize) -> Ipv4Addr {
    let [_, a, b, c] = (place as u32).to_be_bytes();
    Ipv4Addr::new(10, a, b, c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_servers_have_addresses_of_their_own() {
        assert_eq!(client_address(65_537), Ipv4Addr::new(10, 1, 0, 1));
        assert_eq!(
            [0, 251].map(web_address),
            [[192, 88, 0, 0], [192, 88, 1, 1]].map(Ipv4Addr::from)
        );
    }
}
