//! The programs of a run: our authority, and the relays and clients, which are ours or C tor's.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use super::super::circuits::nodes::{stock_rules, words_of};
use super::super::circuits::simulated::Combination;
use super::super::onions::{Node, OnionNetwork, RelaySlot, SOCKS, TestPrograms};
use super::place::{self, Role};
use super::scenario::WideNetwork;

/// SOCKS port of each client, on its own host.
pub(super) const PROXY: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), SOCKS);

/// The running programs of one emulated run.
pub(super) struct Programs<'a> {
    // Clients end before the relays.
    pub(super) clients: Vec<Node<'a>>,
    network: OnionNetwork<'a>,
}

impl<'a> Programs<'a> {
    /// Starts the network and all clients, and waits until all clients have circuits.
    ///
    /// # Errors
    /// A program ends, or takes too long.
    pub(super) fn start(
        makers: TestPrograms<'a>,
        drawn: &WideNetwork,
        arm: Combination,
    ) -> io::Result<Programs<'a>> {
        let relay = |relay| RelaySlot {
            slot: Role::Relay(relay).slot(makers.stage),
            is_exit: drawn.position(relay) == "exit",
            words: &[],
        };
        let relays: Vec<RelaySlot<'_>> = (0..drawn.relays.len()).map(relay).collect();
        let authority = place::authority(makers.stage);
        let network = OnionNetwork::start(makers, &authority, &relays, arm.design.is_stock())?;
        let starting = Starting { makers, network: &network, drawn, arm };
        let clients = (0..drawn.clients.len()).map(|number| starting.client(number));
        let mut clients = clients.collect::<io::Result<Vec<_>>>()?;
        for (number, client) in clients.iter_mut().enumerate() {
            starting.wait(number, client)?;
        }
        Ok(Programs { clients, network })
    }

    /// Returns the CPU time in seconds that each relay has used since its start.
    pub(super) fn relays_cpu(&self) -> Vec<f64> {
        self.network.relays.iter().map(Node::cpu).collect()
    }

    /// Returns the CPU time in seconds that all clients together have used since their start.
    pub(super) fn clients_cpu(&self) -> f64 {
        self.clients.iter().map(Node::cpu).sum()
    }
}

/// An onion network that runs, while its clients are being started.
struct Starting<'a, 'b> {
    makers: TestPrograms<'a>,
    network: &'b OnionNetwork<'a>,
    drawn: &'b WideNetwork,
    arm: Combination,
}

impl<'a> Starting<'a, '_> {
    /// Returns the fingerprints of the relays that the client with the index `number` uses at each
    /// position of a circuit.
    fn pins(&self, number: usize) -> [String; 3] {
        let of = |relays: Vec<usize>| {
            let names = relays.into_iter().map(|relay| &*self.network.fingerprints[relay]);
            names.collect::<Vec<_>>().join(",")
        };
        self.drawn.clients[number].pins(self.arm.legs).map(of)
    }

    fn client(&self, number: usize) -> io::Result<Node<'a>> {
        let slot = Role::Client(number).slot(self.makers.stage);
        if self.arm.design.is_stock() {
            return self.network.stock_client(&slot, &stock_rules(self.arm.design, PROXY));
        }
        let legs = self.arm.legs.to_string();
        let words = words_of(self.arm.design, &legs);
        self.network.our_client(&slot, PROXY, &self.pins(number), &words)
    }

    fn wait(&self, number: usize, client: &mut Node<'a>) -> io::Result<()> {
        let rules = stock_rules(self.arm.design, PROXY);
        self.network.wait_ready(client, &self.pins(number), &rules)
    }
}
