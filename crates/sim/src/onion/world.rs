//! A whole onion network of relays, clients and web servers.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::circmgr::Selection;
use anabranch_onion::conflux::{Design, LegScheduler};
use anabranch_onion::{LossyCongestion, circuitmux};
use anabranch_tcp::Config;

use super::client::{ClientHost, ClientLoad, DownloadRecord};
use super::documents::{NetworkDocuments, web_address};
use super::hosts::{Hosts, LinkLayer};
use super::quic::{self, QuicCongestion};
use super::records::RECORD;
use super::relay::{Cpu, RelayHost};
use super::web::{WebServer, WebTimes};
use crate::latency::Latencies;
use crate::network::HostSettings;
use crate::path::CoreImpairment;
use crate::queue::HostId;
use crate::simulation::{HostProgram, Io, Simulation};
use crate::stack::TcpEvent;
use crate::trace::TraceHash;

/// Mode of the cells' encryption: encrypted, or left in plaintext to save real time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crypto {
    /// Cells are encrypted, as in a real network.
    #[default]
    Full,
    /// Cells are not encrypted. A simulation has the same events as with [`Crypto::Full`], but
    /// takes less real time.
    Elided,
}

/// Settings that all nodes of a network share.
#[derive(Clone, Debug)]
pub struct Common {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Type of the links between relays, and between clients and relays.
    pub link: LinkLayer,
    /// Congestion control of QUIC links ([`LinkLayer::Quic`]).
    pub quic_congestion: QuicCongestion,
    /// Scheduling policy for the circuits of a link.
    pub policy: circuitmux::Kind,
    /// Multipath design: the protocol that lets the circuits of a set carry the same streams, such
    /// as Conflux.
    pub design: Design,
    /// Number of circuits in each set; 1 for single circuits.
    pub legs: usize,
    /// Scheduler that distributes messages among the circuits of a set. `None` selects the
    /// scheduler of the design.
    pub dealing: Option<LegScheduler>,
    /// Congestion control of streams over lossy circuits: each stream is a TCP connection between
    /// client and exit. This is UDP-OR, or mUDP-OR if there are several circuits per set. `None`
    /// selects ordinary streams as in Tor.
    pub udp_or: Option<LossyCongestion>,
    /// Criterion for clients' selection of the circuit of a stream.
    pub selection: Selection,
    /// Time after a circuit's first stream during which the circuit takes new streams; `None`
    /// selects the client's default.
    pub dirtiness: Option<Duration>,
    /// Age at which a circuit of a set is replaced while the set has streams (dynamic attachment).
    /// `None` if streams stay on their circuits.
    pub leg_age: Option<Duration>,
    /// CPU time that relays take for their work; `None` if they take no time.
    pub cpu: Option<Cpu>,
    /// Mode of the cells' encryption: encrypted, or left in plaintext to save real time.
    pub crypto: Crypto,
    /// Maximum of the random pause before a client's first download. The pause keeps clients from
    /// starting at the same time. If the maximum of the program's own [`Pause::UpTo`] is longer,
    /// that maximum applies. For other distributions, this setting has no effect.
    ///
    /// [`Pause::UpTo`]: super::Pause::UpTo
    pub first_pause: Duration,
    /// Maximum length of the pause of web clients after a download.
    pub web_pause: Duration,
    /// Maximum bytes of content in a TLS record of relays and clients.
    pub record: usize,
    /// Times that web servers take for their work.
    pub web: WebTimes,
    /// TCP settings of all hosts.
    pub tcp: Config,
}

impl Default for Common {
    fn default() -> Common {
        Common {
            seed: 1,
            link: LinkLayer::default(),
            quic_congestion: QuicCongestion::default(),
            policy: circuitmux::Kind::Kist,
            design: Design::default(),
            legs: 1,
            dealing: None,
            udp_or: None,
            selection: Selection::default(),
            dirtiness: None,
            leg_age: None,
            cpu: Some(Cpu::default()),
            crypto: Crypto::default(),
            first_pause: Duration::ZERO,
            web_pause: Duration::from_secs(20),
            record: RECORD,
            web: WebTimes::default(),
            tcp: Config::default(),
        }
    }
}

/// Settings of a client: its access line, its programs and the relays that it may use.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientHostSettings {
    /// Access line of the client, and the place at which it joins the core network.
    pub host: HostSettings,
    /// The behaviour of each of the client's programs, which run at the same time. Streams of
    /// different programs use different circuits.
    pub loads: Vec<ClientLoad>,
    /// Relays that the client may use as first, middle and last hops, by index; `None` for all.
    pub pins: Option<[Vec<usize>; 3]>,
}

/// The description of a network: the relays of its [`NetworkDocuments`], servers and clients.
#[derive(Clone)]
pub struct Scenario {
    /// Settings that all nodes share.
    pub common: Common,
    /// Documents that describe the relays of the network.
    pub documents: NetworkDocuments,
    /// Access line of each relay, and the place at which it joins the core network.
    pub relays: Vec<HostSettings>,
    /// Access line of each web server, and the place at which it joins the core network.
    pub servers: Vec<HostSettings>,
    /// Settings of each client.
    pub clients: Vec<ClientHostSettings>,
    /// Latencies of the core network, which connects all access lines.
    pub latencies: Latencies,
    /// Impairments of the core network, each for the direction from one place to another. A place
    /// is a point at which access lines join the core network.
    pub paths: Vec<([usize; 2], CoreImpairment)>,
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

    fn datagram(&mut self, io: &mut Io<'_>, from: HostId, content: Vec<u8>) {
        match self {
            OnionHost::Relay(relay) => relay.datagram(io, from, content),
            OnionHost::Client(client) => client.datagram(io, from, content),
            OnionHost::Web(server) => server.datagram(io, from, content),
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

/// A network during its simulation. The events depend only on the scenario, which contains the
/// seed.
pub struct OnionNetwork {
    simulation: Simulation<OnionHost>,
}

impl OnionNetwork {
    /// Creates a network at time zero.
    ///
    /// # Panics
    /// If the number of relays differs from the number in the documents, if there is no server, or
    /// if the latencies lack the place of some host.
    pub fn new(scenario: &Scenario) -> OnionNetwork {
        let Scenario { common, documents, relays, servers, clients, latencies, paths } = scenario;
        assert_eq!(relays.len(), documents.relays.len(), "a line for each relay");
        assert!(!servers.is_empty(), "clients need a server");
        let web: Arc<Vec<Ipv4Addr>> = Arc::new((0..servers.len()).map(web_address).collect());
        let hosts = Arc::new(hosts(scenario, &web));
        let params = &documents.network.consensus().params;
        let mut simulation = Simulation::new(latencies.clone(), common.seed);
        paths.iter().for_each(|(places, settings)| simulation.set_path(*places, *settings));
        let linked = Config { out_of_order: common.link == LinkLayer::Utls, ..common.tcp.clone() };
        let mut add = |settings: HostSettings, node: OnionHost| {
            let is_server = matches!(node, OnionHost::Web(_));
            let tcp = if is_server { &common.tcp } else { &linked };
            simulation.add_host(settings, tcp.clone(), node);
        };
        for (place, (settings, papers)) in relays.iter().zip(&documents.relays).enumerate() {
            let exit = documents.descriptions[place].exit;
            let relay = RelayHost::new(common, (place, papers, exit), params, &hosts);
            add(*settings, OnionHost::Relay(Box::new(relay)));
        }
        for settings in servers {
            add(*settings, OnionHost::Web(WebServer::new(common.web)));
        }
        for (place, client) in clients.iter().enumerate() {
            let network = (&documents.network, documents.restrictions(client.pins.as_ref()));
            let node = ClientHost::new(common, (place, &client.loads), network, (&hosts, &web));
            add(client.host, OnionHost::Client(Box::new(node)));
        }
        OnionNetwork { simulation }
    }

    /// Simulates the network until the time `until`.
    pub fn run_until(&mut self, until: Time) {
        self.simulation.run_until(until);
    }

    /// Returns the current time.
    pub fn now(&self) -> Time {
        self.simulation.now()
    }

    /// Returns the hash of all events so far.
    pub fn trace(&self) -> TraceHash {
        self.simulation.trace()
    }

    /// Returns the simulation, which has all hosts and their access lines.
    pub fn simulation(&self) -> &Simulation<OnionHost> {
        &self.simulation
    }

    /// Returns the relays.
    pub fn relays(&self) -> impl Iterator<Item = &RelayHost> {
        self.simulation.programs().filter_map(|node| match node {
            OnionHost::Relay(relay) => Some(&**relay),
            _ => None,
        })
    }

    /// Returns the clients.
    pub fn clients(&self) -> impl Iterator<Item = &ClientHost> {
        self.simulation.programs().filter_map(|node| match node {
            OnionHost::Client(client) => Some(&**client),
            _ => None,
        })
    }

    /// Returns the records of all clients' downloads that have ended.
    pub fn downloads(&self) -> impl Iterator<Item = &DownloadRecord> {
        self.clients().flat_map(ClientHost::downloads)
    }
}

/// Returns the addresses of all hosts, in the order in which the hosts are added: relays, servers,
/// clients.
fn hosts(scenario: &Scenario, web: &[Ipv4Addr]) -> Hosts {
    let has_quic = scenario.common.link == LinkLayer::Quic;
    let mut hosts = Hosts { quic: has_quic.then(quic::context), ..Hosts::default() };
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
    use super::super::{MAX_CLIENTS, MAX_SERVERS};
    use super::*;

    #[test]
    fn clients_and_servers_have_addresses_of_their_own() {
        assert_eq!(client_address(65_537), Ipv4Addr::new(10, 1, 0, 1));
        assert_eq!(
            [0, 251].map(web_address),
            [[192, 88, 0, 0], [192, 88, 1, 1]].map(Ipv4Addr::from)
        );
        // The directory authority has the address 192.88.255.1.
        assert_eq!(web_address(MAX_SERVERS - 1), Ipv4Addr::new(192, 88, 249, 249));
        assert_eq!(client_address(MAX_CLIENTS - 1).octets()[0], 10);
    }
}
