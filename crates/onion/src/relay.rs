//! The relay: guard, middle and exit, as one core. It is one shard; a process may have several.
//!
//! [`Relay::handle`] takes an [`Input`], then [`Relay::poll`] gives [`Output`]s until there is
//! none. What it has in common with a client is its [`Core`](crate::Core): links, cells to send
//! (fetched when a link has room, so that the order among circuits is decided as late as can be),
//! bytes of streams, time.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;
use rand_core::CryptoRng;

use crate::channel::{Role, Start};
use crate::channels::{LinkId, Owner};
use crate::circuitmux;
use crate::conflux::{ConfluxFault, ConfluxParams, Dealing};
use crate::congestion::Params;
use crate::ending::Ending;
use crate::event::{CircuitFault, Event, LinkFault};
use crate::io::{LinkOutput, StreamOutput};
use crate::leg::Leg;
use crate::node::{Node, NodeRole, Why};
use crate::padding::PaddingParams;
use crate::points::{PointTable, Points};
use crate::set::numbers::NumberSpread;
use crate::set_table::{SetPlace, SetTable, Sets};
use crate::stream::StreamKey;
use crate::table::SetId;
use crate::wire::cell::{Body, Cell, Command};
use crate::wire::conflux::SetNonce;
use crate::wire::crypto::CurveKeys;
use crate::wire::link::Identity;
use crate::wire::message::{Answer, Begin, DestroyReason, EndReason, Message};
use circuit::Circuit;

pub use extend::is_public;
pub use services::ServiceParams;

mod circuit;
mod conflux;
mod exit;
mod extend;
mod merge;
mod services;

/// What a relay of ours speaks, and a descriptor says (tor-spec, "Subprotocol versioning"). The
/// first is ours: 1 links sets of the designs that are older than Conflux as C tor has it, 2 those
/// whose legs may die, 3 those whose legs join at a middle.
pub const PROTOCOLS: &str = "Anabranch=1-3 Conflux=1 Cons=2 Desc=2 DirCache=2 FlowCtrl=1-2 HSDir=2 \
     HSIntro=4-5 HSRend=2 Link=3-5 LinkAuth=3 Microdesc=2 Relay=2-6";

/// How a relay behaves.
#[derive(Clone)]
pub struct Config {
    /// Who we are.
    pub identity: Identity,
    /// Our onion keys: the present one first, then those that are still honoured.
    pub onion_keys: Vec<CurveKeys>,
    /// The consensus' parameters.
    pub params: Arc<Params>,
    /// What the consensus says of onion services.
    pub services: ServiceParams,
    /// The order among the circuits of a link.
    pub policy: circuitmux::Kind,
    /// Whether streams are let out.
    pub exit: bool,
    /// What the consensus says of sets of several circuits.
    pub conflux: ConfluxParams,
    /// How messages are dealt among the circuits of a set; `None`: as the client wishes.
    pub dealing: Option<Dealing>,
    /// Whether BEGIN_DIR is answered.
    pub directory: bool,
    /// Whether circuits are extended to private and loopback addresses: in private networks alone.
    pub allow_private: bool,
    /// Cells that may wait, of all circuits together.
    pub max_cells: usize,
    /// Cells of one circuit that may wait for one link.
    pub max_queue: usize,
    /// Links of one address whose handshake is not done.
    pub max_half_open: usize,
    /// Streams on one circuit.
    pub max_streams: usize,
}

/// What a consensus tells a relay.
#[derive(Clone, Debug)]
pub struct NetworkParams {
    /// Congestion and flow control.
    pub circuits: Arc<Params>,
    /// When links are padded and closed.
    pub padding: PaddingParams,
    /// Onion services.
    pub services: ServiceParams,
    /// Sets of several circuits.
    pub conflux: ConfluxParams,
}

/// What of [`Config`] may change while a relay runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// As [`Config::exit`].
    pub exit: bool,
    /// As [`Config::allow_private`].
    pub allow_private: bool,
    /// As [`Config::max_cells`].
    pub max_cells: usize,
}

/// What happened outside, but for links.
#[derive(Debug)]
pub enum Input {
    /// A stream's destination is reached, or its directory server ready.
    Connected {
        /// The stream.
        stream: StreamKey,
        /// The destination's address, and seconds for which its name holds; `None` for a directory.
        reached: Option<(IpAddr, u32)>,
    },
    /// A stream's destination has ended it, or cannot be reached. What was written before goes
    /// first.
    Ended {
        /// The stream.
        stream: StreamKey,
        /// Why.
        reason: EndReason,
    },
    /// The policy does not let a stream go to the address of its destination.
    Refused {
        /// The stream.
        stream: StreamKey,
        /// That address, and seconds for which its name holds.
        address: (IpAddr, u32),
    },
    /// The answer to [`Output::Resolve`].
    Resolved {
        /// The question.
        stream: StreamKey,
        /// Answers, each with the seconds for which it holds.
        answers: Vec<(Answer, u32)>,
    },
    /// The time that [`Core::next_timeout`](crate::Core::next_timeout) named has come.
    Timeout,
}

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Something is to be done with a link.
    Link(LinkOutput),
    /// A stream's destination is to be given bytes, or asked for some, or left.
    Stream(StreamOutput),
    /// Connect a stream to its destination.
    Connect {
        /// The stream.
        stream: StreamKey,
        /// The destination, as the client named it.
        begin: Begin,
    },
    /// A client wants the directory.
    Directory {
        /// The stream.
        stream: StreamKey,
        /// Whether the circuit comes from a relay: then who asks cannot be seen here.
        by_relay: bool,
    },
    /// A client asks for a name or, by in-addr.arpa, for an address.
    Resolve {
        /// The question.
        stream: StreamKey,
        /// The name.
        name: String,
    },
    /// Tell the user.
    Event(Event),
}

impl From<LinkOutput> for Output {
    fn from(output: LinkOutput) -> Output {
        Output::Link(output)
    }
}

impl From<StreamOutput> for Output {
    fn from(output: StreamOutput) -> Output {
        Output::Stream(output)
    }
}

impl From<Event> for Output {
    fn from(event: Event) -> Output {
        Output::Event(event)
    }
}

/// Numbers for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Circuits made since the beginning.
    pub circuits_made: u64,
    /// Of these with Counter Galois Onion.
    pub circuits_cgo: u64,
    /// Open circuits.
    pub circuits: usize,
    /// Their places on links, and those of other shards' circuits that go on from here.
    pub lanes: usize,
    /// Open streams.
    pub streams: usize,
    /// Sets that several circuits can join.
    pub sets: usize,
    /// Circuits that are legs of these.
    pub legs: usize,
    /// Bytes that wait in sets for messages of other legs.
    pub reordered: usize,
    /// Most bytes that ever waited in one set.
    pub most_reordered: usize,
    /// Round-trip times of legs that are linked, in microseconds, smoothed.
    pub leg_rtts: NumberSpread,
    /// Congestion windows of legs, in cells.
    pub leg_windows: NumberSpread,
    /// Cells of legs in flight.
    pub legs_inflight: u64,
    /// Cells that wait.
    pub cells: usize,
    /// The widest congestion window of circuits that live, in cells.
    pub window: u64,
    /// RELAY cells that came, and were passed on.
    pub relayed: u64,
    /// Protocol violations by neighbours.
    pub violations: u64,
    /// Circuits closed for want of memory.
    pub out_of_memory: u64,
    /// Cells of padding: received, sent.
    pub padding: [u64; 2],
    /// Links whose cells bear numbers, so that they may come in any order.
    pub unordered_links: usize,
    /// Cells that came by them before their turn, since the beginning.
    pub early_cells: u64,
    /// Open QUIC links, and circuits on them.
    pub quic_links: usize,
    /// See [`Stats::quic_links`].
    pub quic_circuits: usize,
    /// Circuits that moved from a QUIC link to the one beside it, since the beginning.
    pub moved_circuits: u64,
    /// Open links that were each opened for one circuit.
    pub dedicated_links: usize,
    /// Circuits that went by another's, since the beginning: there were as many links as may be.
    pub shared_circuits: u64,
}

impl Stats {
    /// Those of two shards together.
    #[must_use]
    pub fn with(self, other: &Stats) -> Stats {
        Stats {
            circuits_made: self.circuits_made + other.circuits_made,
            circuits_cgo: self.circuits_cgo + other.circuits_cgo,
            circuits: self.circuits + other.circuits,
            lanes: self.lanes + other.lanes,
            streams: self.streams + other.streams,
            sets: self.sets + other.sets,
            legs: self.legs + other.legs,
            reordered: self.reordered + other.reordered,
            most_reordered: self.most_reordered.max(other.most_reordered),
            leg_rtts: self.leg_rtts.with(other.leg_rtts),
            leg_windows: self.leg_windows.with(other.leg_windows),
            legs_inflight: self.legs_inflight + other.legs_inflight,
            cells: self.cells + other.cells,
            window: self.window.max(other.window),
            relayed: self.relayed + other.relayed,
            violations: self.violations + other.violations,
            out_of_memory: self.out_of_memory + other.out_of_memory,
            padding: [0, 1].map(|way| self.padding[way] + other.padding[way]),
            unordered_links: self.unordered_links + other.unordered_links,
            early_cells: self.early_cells + other.early_cells,
            quic_links: self.quic_links + other.quic_links,
            quic_circuits: self.quic_circuits + other.quic_circuits,
            moved_circuits: self.moved_circuits + other.moved_circuits,
            dedicated_links: self.dedicated_links + other.dedicated_links,
            shared_circuits: self.shared_circuits + other.shared_circuits,
        }
    }
}

/// A relay's core.
pub type Relay = Node<RelayRole>;

/// What makes a node a relay.
pub struct RelayRole {
    config: Config,
    /// By the TLS certificates that links show: the present one first, then the one before.
    responders: Vec<Role>,
    initiator: Role,
    stats: Stats,
    /// Which of the relay's shards this is.
    shard: usize,
    /// Introduction and rendezvous points of all shards.
    points: Box<dyn PointTable>,
    /// Sets of several circuits of all shards.
    sets: Box<dyn SetTable>,
    /// Each circuit that goes on has a link of its own, up to so many to one relay.
    dedicated: Option<usize>,
}

impl Relay {
    /// A relay without links. `responder` and `initiator` say how it proves itself on links that
    /// came and that it opened; `rng` is all the chance that it takes.
    pub fn new(
        config: Config,
        responder: Role,
        initiator: Role,
        rng: Box<dyn CryptoRng + Send>,
    ) -> Relay {
        let (policy, max_cells, responders) = (config.policy, config.max_cells, vec![responder]);
        let role = RelayRole {
            config,
            responders,
            initiator,
            stats: Stats::default(),
            shard: 0,
            points: Box::<Points>::default(),
            sets: Box::<Sets>::default(),
            dedicated: None,
        };
        Node::with_role(role, policy, max_cells, rng)
    }

    /// Takes what happened.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Connected { stream, reached } => self.connected(now, stream, reached),
            Input::Ended { stream, reason } => self.end(now, stream, reason),
            Input::Refused { stream, address } => self.refused(now, stream, address),
            Input::Resolved { stream, answers } => self.resolved(now, stream, &answers),
            Input::Timeout => self.timeout(now),
        }
        self.relieve();
    }

    /// The keys that circuits are made with, from now on.
    pub fn set_onion_keys(&mut self, onion_keys: Vec<CurveKeys>) {
        self.role.config.onion_keys = onion_keys;
    }

    /// The consensus' parameters, for circuits, points and sets that are made from now on.
    pub fn set_network_params(&mut self, params: &NetworkParams) {
        let NetworkParams { circuits, padding, services, conflux } = params;
        self.role.config.params = Arc::clone(circuits);
        (self.role.config.services, self.role.config.conflux) = (*services, *conflux);
        self.set_padding(*padding);
    }

    /// Before anything happens, at a relay of several shards: the number of this one, and the
    /// tables that all share.
    pub fn share(&mut self, shard: usize, points: Box<dyn PointTable>, sets: Box<dyn SetTable>) {
        self.role.shard = shard;
        (self.role.points, self.role.sets) = (points, sets);
    }

    /// From now on each circuit that goes on has a link of its own to the next relay. There are
    /// `most` to one relay: further circuits share them.
    pub fn dedicate_links(&mut self, most: usize) {
        self.role.dedicated = Some(most);
    }

    /// Other settings, for what comes from now on. If more cells wait than may, the longest waiting
    /// circuits go.
    pub fn set_behaviour(&mut self, behaviour: Behaviour) {
        let Behaviour { exit, allow_private, max_cells } = behaviour;
        (self.role.config.exit, self.role.config.allow_private) = (exit, allow_private);
        self.max_cells = max_cells;
        self.relieve();
    }

    /// How we prove ourselves on links from now on: the TLS certificate or the signing key has
    /// changed.
    pub fn set_roles(&mut self, responder: Role, initiator: Role) {
        self.role.initiator = initiator;
        self.role.responders.insert(0, responder);
        self.role.responders.truncate(2);
    }

    /// Circuits that were made since the beginning, as in [`Relay::stats`], but at no cost.
    pub fn circuits_made(&self) -> u64 {
        self.role.stats.circuits_made
    }

    /// Numbers for people.
    pub fn stats(&self) -> Stats {
        // Those of other shards are counted there.
        let legs = || self.circuits.iter().filter_map(Ending::leg);
        let windows = legs().map(Leg::window);
        let sets = || self.sets.iter().filter_map(|set| set.linked());
        let linked: Vec<_> = self.legs_of_sets().filter(|leg| leg.is_linked).collect();
        let (unordered_links, early_cells) = self.channels.unordered();
        let [quic_links, quic_circuits] = self.channels.quic();
        let micros = |rtt: Duration| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
        Stats {
            sets: sets().count(),
            legs: sets().sum(),
            reordered: self.reordered,
            most_reordered: self.most_reordered(),
            leg_rtts: linked.iter().filter_map(|leg| leg.rtt.map(micros)).collect(),
            leg_windows: linked.iter().map(|leg| leg.window).collect(),
            legs_inflight: linked.iter().map(|leg| leg.inflight).sum(),
            circuits: legs().count(),
            lanes: self.channels.iter().map(|(_, link)| link.circuits()).sum(),
            streams: self.streams.len(),
            cells: self.channels.used(),
            window: windows.max().unwrap_or_default(),
            violations: self.violations,
            padding: self.padding,
            unordered_links,
            early_cells,
            quic_links,
            quic_circuits,
            moved_circuits: self.channels.moved_circuits(),
            dedicated_links: self.channels.all_dedicated(),
            ..self.role.stats
        }
    }
}

impl NodeRole for RelayRole {
    type Circuit = Circuit;
    type Output = Output;

    fn dedicates_links(node: &Relay) -> bool {
        node.role.dedicated.is_some()
    }

    fn channel_role(node: &Relay, dialled: bool, start: &Start) -> Option<Role> {
        if dialled {
            return Some(node.role.initiator.clone());
        }
        let crowded = node.channels.half_open(start.peer) >= node.role.config.max_half_open;
        if crowded {
            return None;
        }
        let is_shown = |role: &&Role| role.shows(start.own_certificate);
        node.role.responders.iter().find(is_shown).or_else(|| node.role.responders.first()).cloned()
    }

    fn take_cell(
        node: &mut Relay,
        now: Time,
        link: LinkId,
        cell: Cell<'_>,
    ) -> Result<(), LinkFault> {
        node.take_circuit_cell(now, link, cell)
    }

    fn reached(node: &mut Relay, now: Time, circuit: u32, link: LinkId) {
        node.go_on(now, circuit, link);
    }

    fn lost(node: &mut Relay, now: Time, owner: Owner) {
        node.left_by(now, owner, DestroyReason::LINK_CLOSED);
    }

    fn give_up(node: &mut Relay, circuit: u32, why: Why) {
        let reason = match why {
            Why::Unreached => DestroyReason::CONNECT_FAILED,
            Why::WrongIdentity => DestroyReason::WRONG_IDENTITY,
            Why::Fault(CircuitFault::Conflux(ConfluxFault::Full | ConfluxFault::TooManyLegs)) => {
                DestroyReason::RESOURCES
            }
            Why::Fault(_) => DestroyReason::PROTOCOL,
            Why::Set => DestroyReason::FINISHED,
            Why::Unlinked | Why::Silent => DestroyReason::TIMEOUT,
            Why::Memory => {
                node.role.stats.out_of_memory += 1;
                DestroyReason::RESOURCES
            }
        };
        node.tear_down(circuit, reason);
    }

    fn take_passing_cell(
        node: &mut Relay,
        now: Time,
        trunk: u32,
        command: Command,
        body: &mut Body,
    ) {
        node.pass_on(now, trunk, command, body);
    }

    fn take_set_message(
        node: &mut Relay,
        now: Time,
        circuit: u32,
        message: Message<'_>,
    ) -> Result<(), CircuitFault> {
        node.take_turn(now, circuit, message)
    }

    fn set_ended(node: &mut Relay, set: SetId, nonce: &SetNonce) {
        let place = SetPlace { shard: node.role.shard, set: set.0 };
        node.role.sets.leave(nonce, place);
        node.leave_trunk(set, DestroyReason::FINISHED);
    }
}
