//! The programs of a network: our authority, seven relays and clients, of ours or of C tor's.

use std::io;
use std::net::SocketAddr;

use super::super::onions::{Makers, Node, OnionNetwork, RelaySeat, SOCKS};
use super::place::Role;
use super::plan::{Design, Place};

/// A network that clients can use.
pub(super) struct Nodes<'a> {
    makers: Makers<'a>,
    place: Place,
    network: OnionNetwork<'a>,
}

impl<'a> Nodes<'a> {
    /// Starts authority and relays, and waits until the consensus has them all.
    ///
    /// # Errors
    /// A program ends, or takes too long.
    pub(super) fn start(makers: Makers<'a>, place: Place, stock: bool) -> io::Result<Nodes<'a>> {
        let relays = Role::RELAYS.map(|role| RelaySeat {
            seat: role.seat(place, makers.stage),
            is_exit: role == Role::Exit,
            words: &[],
        });
        let authority = Role::Authority.seat(place, makers.stage);
        let network = OnionNetwork::start(makers, &authority, &relays, stock)?;
        Ok(Nodes { makers, place, network })
    }

    /// The relays that may be at each of the three places of a circuit.
    fn pins(&self) -> [String; 3] {
        let of = |from: usize, to: usize| self.network.fingerprints[from..to].join(",");
        [of(0, 3), of(3, 6), of(6, 7)]
    }

    /// Starts a client; it is ready by [`Nodes::wait_ready`].
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn client(&self, role: Role, design: Design, legs: u32) -> io::Result<Node<'a>> {
        let seat = role.seat(self.place, self.makers.stage);
        if design.is_stock() {
            return self.network.stock_client(&seat, &self.rules(role, design));
        }
        let legs = legs.to_string();
        let mut words = vec!["--legs", &legs];
        words.extend(words_of(design));
        self.network.our_client(&seat, self.proxy(role), &self.pins(), &words)
    }

    /// Waits until a client can fetch, by circuits of the relays that belong to each place.
    ///
    /// # Errors
    /// It ends, or takes too long.
    pub(super) fn wait_ready(
        &self,
        role: Role,
        node: &mut Node<'a>,
        design: Design,
    ) -> io::Result<()> {
        self.network.wait_ready(node, &self.pins(), &self.rules(role, design))
    }

    /// Where a client's SOCKS port is.
    pub(super) fn proxy(&self, role: Role) -> SocketAddr {
        let number = if let Role::Load(number) = role { u16::from(number) + 1 } else { 0 };
        SocketAddr::from((role.address(self.place), SOCKS + number))
    }

    /// CPU seconds that each relay has taken so far.
    pub(super) fn cpu(&self) -> [f64; 7] {
        let mut cpu = [0.0; 7];
        cpu.iter_mut().zip(&self.network.relays).for_each(|(cpu, node)| *cpu = node.cpu());
        cpu
    }

    fn rules(&self, role: Role, design: Design) -> String {
        let conflux = u8::from(design == Design::StockConflux);
        // On loopback it learns to give circuits 26 ms, and a busy machine then costs connections.
        format!(
            "SocksPort {}\nConfluxEnabled {conflux}\nLearnCircuitBuildTimeout 0\n",
            self.proxy(role)
        )
    }
}

/// What a client of ours is told of a design.
fn words_of(design: Design) -> &'static [&'static str] {
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
        Design::Tor | Design::Conflux | Design::Stock | Design::StockConflux => &[],
    }
}
