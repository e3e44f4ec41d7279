//! The emulated network of a run: a host with an access line for each program.

use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;

use super::super::onions::HostSlot;
use super::super::stage::Stage;
use super::scenario::{HostLine, WideNetwork};

/// Address of the directory authority, which runs on the core host, where all access lines meet.
const AUTHORITY: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
/// Name of the core host, where all access lines meet. It forwards all packets.
const CORE: &str = "core";

/// A host of the network, with its index among the hosts of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A relay.
    Relay(usize),
    /// A web server.
    Server(usize),
    /// A client.
    Client(usize),
}

impl Role {
    /// Returns the name of the host, which is also the name of its access line.
    pub(super) fn name(self) -> String {
        match self {
            Role::Relay(number) => format!("relay{number}"),
            Role::Server(number) => format!("server{number}"),
            Role::Client(number) => format!("client{number}"),
        }
    }

    /// Returns the address of the host. Each relay is in a different /16 network, because a
    /// circuit may not contain two relays of one such network.
    pub(super) fn address(self) -> Ipv4Addr {
        match self {
            Role::Relay(number) => Ipv4Addr::new(10, 10 + number as u8, 0, 1),
            Role::Server(number) => Ipv4Addr::new(10, 100, number as u8, 1),
            Role::Client(number) => Ipv4Addr::new(10, 200, number as u8, 1),
        }
    }

    /// Returns the place for the program with this role: its name, address and host.
    pub(super) fn slot(self, stage: &Stage) -> HostSlot<'_> {
        let name = self.name();
        let host = stage.host(&name);
        HostSlot { name, ip: self.address(), host }
    }
}

/// Returns the place for the authority: its name, address and host.
pub(super) fn authority(stage: &Stage) -> HostSlot<'_> {
    HostSlot { name: "authority".to_owned(), ip: AUTHORITY, host: stage.host(CORE) }
}

/// Builds the hosts and lines of `network`. [`Stage::traffic`] counts the lines of the relays.
///
/// # Errors
/// A step of the set-up fails.
pub(super) fn build(network: &WideNetwork) -> io::Result<Stage> {
    let counted = (0..network.relays.len()).map(|relay| Role::Relay(relay).name()).collect();
    Stage::of(&topology(network), counted)
}

/// Returns the network as the text of a topology file. The network is a star: a line leads from
/// each host to the core host.
fn topology(network: &WideNetwork) -> String {
    let mut text =
        format!("[[host]]\nname = '{CORE}'\nforward = true\naddress = ['{AUTHORITY}/32']\n");
    for (role, line) in hosts(network) {
        let (name, own) = (role.name(), role.address());
        let HostLine { rate, delay } = line;
        write!(
            text,
            "[[host]]\nname = '{name}'\naddress = ['{own}/32']\n\
             [[link]]\nname = '{name}'\nends = [\n\
             {{ host = '{name}', routes = ['10.0.0.0/8'], prefsrc = ['{own}'] }},\n\
             {{ host = '{CORE}', routes = ['{own}/32'], prefsrc = ['{AUTHORITY}'] }},\n]\n\
             rate = '{rate}bit'\ndelay = '{}ns'\nqueue = '{}B'\n",
            delay.as_nanos(),
            line.queue(),
        )
        .expect("writing to a string does not fail");
    }
    text
}

/// Returns all hosts that have an access line, each with this line.
fn hosts(network: &WideNetwork) -> impl Iterator<Item = (Role, HostLine)> {
    let relays = network.relays.iter().enumerate().map(|(n, line)| (Role::Relay(n), *line));
    let servers = network.servers.iter().enumerate().map(|(n, line)| (Role::Server(n), *line));
    let clients = network.clients.iter().enumerate();
    relays.chain(servers).chain(clients.map(|(n, client)| (Role::Client(n), client.line)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use anabranch_emulator::Topology;

    use super::super::scenario::tests::network;
    use super::*;

    #[test]
    fn each_host_has_a_line_of_its_own_as_drawn() {
        let network = network();
        let topology = Topology::parse(&topology(&network), "t").unwrap();
        assert_eq!((topology.hosts.len(), topology.links.len()), (1 + 24 + 4 + 66, 24 + 4 + 66));
        for (link, (role, line)) in topology.links.iter().zip(hosts(&network)) {
            assert_eq!((&link.name, &link.forward), (&role.name(), &link.back));
            assert_eq!((link.forward.rate, link.forward.delay), (Some(line.rate), line.delay));
            assert_eq!(link.forward.queue as u64, line.queue());
        }
    }

    #[test]
    fn addresses_differ_and_relays_are_of_different_networks() {
        let all: Vec<Ipv4Addr> = hosts(&network()).map(|(role, _)| role.address()).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        let relays = all[..24].iter().map(|one| [one.octets()[0], one.octets()[1]]);
        assert_eq!(relays.collect::<BTreeSet<_>>().len(), 24);
    }
}
