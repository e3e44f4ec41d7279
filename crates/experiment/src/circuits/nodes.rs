//! The programs of a measured network. A Tor network has our authority, seven relays, and clients;
//! the relays and clients are ours or C tor's. A MORE network has only nodes of MORE, an onion
//! network that needs no authority.

use std::io;
use std::net::SocketAddr;

use super::super::onions::{
    MoreNetwork, MoreSlot, Node, ONION, OnionNetwork, RelaySlot, SOCKS, TestPrograms,
};
use super::place::Role;
use super::plan::{Design, Layout, Load, Unit};

/// The running programs of a measured network.
pub(super) struct Nodes<'a> {
    makers: TestPrograms<'a>,
    place: Layout,
    network: Running<'a>,
}

/// A running network of Tor relays, or of the nodes of MORE, an onion network in which each packet
/// takes its own path.
enum Running<'a> {
    Onion(OnionNetwork<'a>),
    /// A network of MORE. Its clients are nodes like its relays, and are the first nodes in it.
    More(MoreNetwork<'a>),
}

impl<'a> Nodes<'a> {
    /// Starts the network of `unit`, and waits until it can be used. `roles` has the clients: in a
    /// MORE network, they start together with the relays.
    ///
    /// # Errors
    /// A program ends, or takes too long.
    pub(super) fn start(
        makers: TestPrograms<'a>,
        unit: &Unit,
        roles: &[Role],
    ) -> io::Result<Nodes<'a>> {
        let place = unit.place;
        if unit.design == Design::More {
            let network = Running::More(more(makers, place, roles)?);
            return Ok(Nodes { makers, place, network });
        }
        let relays = Role::RELAYS.map(|role| RelaySlot {
            slot: role.slot(place, makers.stage),
            is_exit: role == Role::Exit,
            words: unit.design.relay_words(),
        });
        let authority = Role::Authority.slot(place, makers.stage);
        let stock = unit.design.is_stock();
        let network = OnionNetwork::start(makers, &authority, &relays, stock)?;
        Ok(Nodes { makers, place, network: Running::Onion(network) })
    }

    /// Returns the fingerprints of the relays that the client `role` may use: one list for each of
    /// the three positions in a circuit.
    fn pins(network: &OnionNetwork<'_>, role: Role, unit: &Unit, load: Load) -> [String; 3] {
        let of = |relays: &[usize]| -> String {
            let names = relays.iter().map(|&relay| &*network.fingerprints[relay]);
            names.collect::<Vec<_>>().join(",")
        };
        positions(role, unit, load).map(|relays| of(&relays))
    }

    /// Starts the client `role`. Does not wait until the client is ready; [`Nodes::wait_ready`]
    /// does. Returns `None` if the client runs already.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn client(
        &self,
        role: Role,
        unit: &Unit,
        load: Load,
    ) -> io::Result<Option<Node<'a>>> {
        let Running::Onion(network) = &self.network else { return Ok(None) };
        let slot = role.slot(self.place, self.makers.stage);
        if unit.design.is_stock() {
            return network.stock_client(&slot, &self.rules(role, unit.design)).map(Some);
        }
        let legs = unit.legs.to_string();
        let words = words_of(unit.design, &legs);
        let pins = Nodes::pins(network, role, unit, load);
        network.our_client(&slot, self.proxy(role), &pins, &words).map(Some)
    }

    /// Waits until the client `node` can fetch through circuits that use only the relays allowed
    /// for `role` at each position.
    ///
    /// # Errors
    /// The client ends, or takes too long.
    pub(super) fn wait_ready(
        &self,
        role: Role,
        node: &mut Node<'a>,
        unit: &Unit,
        load: Load,
    ) -> io::Result<()> {
        let Running::Onion(network) = &self.network else { return Ok(()) };
        let pins = Nodes::pins(network, role, unit, load);
        network.wait_ready(node, &pins, &self.rules(role, unit.design))
    }

    /// Returns the address of the SOCKS port of the client `role`.
    pub(super) fn proxy(&self, role: Role) -> SocketAddr {
        SocketAddr::from((role.address(self.place), SOCKS + number(role)))
    }

    /// Returns the CPU time in seconds that each relay has used since its start.
    pub(super) fn cpu(&self) -> [f64; 7] {
        let mut cpu = [0.0; 7];
        let relays = match &self.network {
            Running::Onion(network) => &network.relays[..],
            Running::More(network) => &network.nodes[network.nodes.len() - cpu.len()..],
        };
        cpu.iter_mut().zip(relays).for_each(|(cpu, node)| *cpu = node.cpu());
        cpu
    }

    fn rules(&self, role: Role, design: Design) -> String {
        stock_rules(design, self.proxy(role))
    }
}

/// Returns the configuration text of a client of C tor with the SOCKS port `proxy`.
pub(in super::super) fn stock_rules(design: Design, proxy: SocketAddr) -> String {
    let conflux = u8::from(design == Design::StockConflux);
    // On loopback, C tor would learn a timeout of 26 ms for building circuits. Circuits would then
    // fail whenever the machine is busy.
    format!("SocksPort {proxy}\nConfluxEnabled {conflux}\nLearnCircuitBuildTimeout 0\n")
}

/// Returns the offset of a client's ports, which is different for each client.
fn number(role: Role) -> u16 {
    if let Role::Load(number) = role { u16::from(number) + 1 } else { 0 }
}

/// Starts a network of MORE with the clients `roles` and seven relays. The exit is the last relay.
fn more<'a>(
    makers: TestPrograms<'a>,
    place: Layout,
    roles: &[Role],
) -> io::Result<MoreNetwork<'a>> {
    let slot = |role: &Role| {
        let ip = role.address(place);
        let is_client = roles.contains(role);
        MoreSlot {
            slot: role.slot(place, makers.stage),
            address: SocketAddr::from((ip, ONION + number(*role))),
            proxy: is_client.then(|| SocketAddr::from((ip, SOCKS + number(*role)))),
        }
    };
    let slots: Vec<MoreSlot<'_>> = roles.iter().chain(&Role::RELAYS).map(slot).collect();
    MoreNetwork::start(makers, &slots)
}

/// Returns the indices, in [`Role::RELAYS`], of the guards, the middles and the exit that a client
/// uses. The number of guards and of middles equals the client's number of circuits. With
/// [`Load::Spread`], a client that creates load uses all guards and middles.
fn positions(role: Role, unit: &Unit, load: Load) -> [Vec<usize>; 3] {
    let spread = load == Load::Spread && role != Role::Client;
    let count = if spread { 3 } else { unit.legs as usize };
    let guards: Vec<usize> = unit.order()[..count].to_vec();
    let middles = guards.iter().map(|guard| guard + 3).collect();
    [guards, middles, vec![6]]
}

/// Returns the command-line arguments that make our client use `design` with `legs` circuits for
/// each stream.
pub(in super::super) fn words_of(design: Design, legs: &str) -> Vec<&str> {
    [&["--legs", legs][..], design_words(design)].concat()
}

fn design_words(design: Design) -> &'static [&'static str] {
    match design {
        Design::Conflux2013 => &["--multipath", "conflux-2013"],
        Design::Conflux2013Turns => &["--multipath", "conflux-2013", "--schedule", "round-robin"],
        Design::MTor => &["--multipath", "mtor"],
        Design::MTorTurns => &["--multipath", "mtor", "--schedule", "round-robin"],
        Design::Ours => &["--multipath", "anabranch"],
        Design::OursTurns => &["--multipath", "anabranch", "--schedule", "round-robin"],
        Design::Merged => &["--multipath", "merged"],
        Design::MergedBatches => {
            &["--multipath", "merged", "--schedule", "weighted:4", "--every", "50-70p"]
        }
        Design::UdpOr => &["--design", "udp-or"],
        Design::MudpOr => &["--design", "mudp-or", "--schedule", "eta"],
        Design::MudpOrTurns => {
            &["--design", "mudp-or", "--schedule", "round-robin", "--udp-or-congestion", "cubic"]
        }
        Design::Tor | Design::Conflux | Design::More | Design::Stock | Design::StockConflux => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Settings, plan};
    use super::*;

    #[test]
    fn employed_circuits_are_those_of_the_client_that_measures() {
        let settings = Settings {
            designs: vec![Design::Tor, Design::MTor],
            legs: vec![2],
            places: vec![Layout::Line],
            rounds: 2,
            repetitions: 1,
            bulk: 1,
            clients: 30,
            pauses: [6.0, 12.0],
            load: Load::ClientRelays,
            levels: vec![58],
            seed: 1,
        };
        let units = plan(&settings);
        for unit in &units {
            let client = positions(Role::Client, unit, Load::ClientRelays);
            assert_eq!(client[0].len(), unit.legs as usize);
            assert_eq!(positions(Role::Load(7), unit, Load::ClientRelays), client);
            assert_eq!(positions(Role::Client, unit, Load::Spread), client);
            let spread = positions(Role::Load(7), unit, Load::Spread);
            assert_eq!(spread.map(|relays| relays.len()), [3, 3, 1]);
        }
        let second = units.iter().find(|unit| (unit.round, unit.legs) == (1, 2)).unwrap();
        let expected = [vec![1, 2], vec![4, 5], vec![6]];
        assert_eq!(positions(Role::Client, second, Load::ClientRelays), expected);
    }
}
