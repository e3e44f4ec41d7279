//! The relay (guard, middle and exit) as one protocol state machine without I/O (core). A process
//! may run several cores of the same relay in parallel; each core is a shard.
//!
//! [`Relay`] is a [`Core`](anabranch_multipath::Core) that takes [`Input`]s and returns
//! [`Output`]s. The trait [`LinkCore`](crate::LinkCore) is the interface that relay and client
//! share: links, queued cells and bytes of streams. The driver (I/O code) fetches cells only when
//! a link can send them. The choice of the next circuit is thus made as late as possible.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;
use rand_core::CryptoRng;

use crate::channel::{Role, Start};
use crate::channels::{LinkCircuit, LinkId, Owner};
use crate::circuitmux;
use crate::conflux::{ConfluxFault, ConfluxParams, LegScheduler};
use crate::congestion::Params;
use crate::ending::Ending;
use crate::event::{CircuitFault, Event, LinkFault};
use crate::io::{LinkOutput, StreamOutput};
use crate::leg::Leg;
use crate::node::{CloseCause, LossyStats, Node, NodeRole};
use crate::padding::PaddingParams;
use crate::points::{PointTable, Points};
use crate::set::numbers::NumberSpread;
use crate::set_table::{SetLocation, SetTable, Sets};
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
mod lossy;
mod merge;
mod services;

/// Protocol versions that a relay with this software lists in its descriptor (tor-spec,
/// "Subprotocol versioning"). `Anabranch` is this project's own protocol. Version 1 supports sets
/// (parallel circuits) in designs older than proposal 329. Version 2 adds sets that survive the
/// failure of a circuit, and version 3 adds sets whose circuits join at a middle relay.
pub const PROTOCOLS: &str = "Anabranch=1-3 Conflux=1 Cons=2 Desc=2 DirCache=2 FlowCtrl=1-2 HSDir=2 \
     HSIntro=4-5 HSRend=2 Link=3-5 LinkAuth=3 Microdesc=2 Relay=2-6";

/// Returns the protocol versions of a relay: those of [`PROTOCOLS`], and version 4 of `Anabranch`
/// if `lossy` is true. In version 4, the relay accepts lossy circuits, whose cells travel in
/// datagrams.
#[must_use]
pub fn protocols(lossy: bool) -> String {
    match lossy {
        true => PROTOCOLS.replacen("Anabranch=1-3", "Anabranch=1-4", 1),
        false => PROTOCOLS.to_owned(),
    }
}

/// Configuration of a relay.
#[derive(Clone)]
pub struct Config {
    /// The relay's identity.
    pub identity: Identity,
    /// The relay's onion keys: the present one first, then older ones that are still accepted.
    pub onion_keys: Vec<CurveKeys>,
    /// Consensus parameters of congestion and flow control.
    pub params: Arc<Params>,
    /// Consensus parameters of onion services.
    pub services: ServiceParams,
    /// Scheduler that chooses the circuit of a link's next cell.
    pub policy: circuitmux::Kind,
    /// True if streams may connect to destinations outside the network through this relay.
    pub exit: bool,
    /// Consensus parameters for sets of several circuits.
    pub conflux: ConfluxParams,
    /// Scheduler that distributes messages among the circuits of a set; `None` if the client
    /// chooses it.
    pub dealing: Option<LegScheduler>,
    /// True if the relay accepts BEGIN_DIR, which opens a stream to its directory.
    pub directory: bool,
    /// True if the relay may extend circuits to private and loopback addresses. This is for
    /// private networks only.
    pub allow_private: bool,
    /// Maximum number of queued cells of all circuits together.
    pub max_cells: usize,
    /// Maximum number of queued cells of one circuit for one link.
    pub max_queue: usize,
    /// Maximum number of links from one address with an incomplete handshake.
    pub max_half_open: usize,
    /// Maximum number of streams on one circuit.
    pub max_streams: usize,
    /// True if the relay lets clients use lossy cells (sent in datagrams; see
    /// `docs/spec/lossy-circuits.md`).
    pub lossy: bool,
}

/// Consensus parameters for a relay.
#[derive(Clone, Debug)]
pub struct NetworkParams {
    /// Parameters of congestion and flow control.
    pub circuits: Arc<Params>,
    /// Parameters of padding and closing links.
    pub padding: PaddingParams,
    /// Parameters of onion services.
    pub services: ServiceParams,
    /// Parameters for sets of several circuits.
    pub conflux: ConfluxParams,
}

/// Settings of [`Config`] that may change while the relay is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// See [`Config::exit`].
    pub exit: bool,
    /// See [`Config::allow_private`].
    pub allow_private: bool,
    /// See [`Config::max_cells`].
    pub max_cells: usize,
}

/// An event for the relay, other than events of links.
#[derive(Debug)]
pub enum Input {
    /// A stream is connected to its destination, or to this relay's directory.
    Connected {
        /// The stream.
        stream: StreamKey,
        /// The destination's address, and the time-to-live of its name in seconds; `None` for a
        /// stream to a directory.
        reached: Option<(IpAddr, u32)>,
    },
    /// A stream's destination has closed the connection, or cannot be reached. Data that has
    /// already arrived from the destination is sent to the client first.
    Ended {
        /// The stream.
        stream: StreamKey,
        /// Reason of the end.
        reason: EndReason,
    },
    /// The exit policy does not allow the address of a stream's destination.
    Refused {
        /// The stream.
        stream: StreamKey,
        /// The refused address, and the time-to-live of its name in seconds.
        address: (IpAddr, u32),
    },
    /// The answers to the lookup that [`Output::Resolve`] requested.
    Resolved {
        /// The stream on which the client requested the lookup.
        stream: StreamKey,
        /// Answers, each with its time-to-live in seconds.
        answers: Vec<(Answer, u32)>,
    },
}

/// An action that the driver (I/O code) must perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// An action on a link.
    Link(LinkOutput),
    /// A notification about a stream, for the code that handles the connection to its destination.
    Stream(StreamOutput),
    /// Connect a stream to its destination.
    Connect {
        /// The stream.
        stream: StreamKey,
        /// The destination, as the client named it.
        begin: Begin,
    },
    /// Open a stream from a client to the relay's directory.
    Directory {
        /// The stream.
        stream: StreamKey,
        /// True if the circuit comes from another relay, so that this relay does not know the
        /// client's address.
        by_relay: bool,
    },
    /// Look up the addresses of a name for a client. If `name` is under in-addr.arpa, look up the
    /// host name of that address instead.
    Resolve {
        /// The stream on which the client requested the lookup.
        stream: StreamKey,
        /// The name.
        name: String,
    },
    /// An event to report to the user.
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

/// Statistics of a relay, or of one of its shards (parallel cores), for display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of circuits created since the start.
    pub circuits_made: u64,
    /// Number of circuits created since the start that use Counter Galois Onion.
    pub circuits_cgo: u64,
    /// Number of circuits created since the start that can carry lossy cells (sent in datagrams).
    pub circuits_lossy: u64,
    /// Counters of lossy cells (sent in datagrams).
    pub lossy: LossyStats,
    /// Number of open circuits.
    pub circuits: usize,
    /// Number of circuit IDs in use on all links of this shard (parallel core of the relay). The
    /// count includes circuits of other shards that continue on links of this shard.
    pub link_circuits: usize,
    /// Number of open streams.
    pub streams: usize,
    /// Number of sets that may have several circuits.
    pub sets: usize,
    /// Number of circuits in sets that may have several circuits.
    pub legs: usize,
    /// Bytes buffered in circuit sets: messages that wait for earlier ones or for their
    /// acknowledgement, and cells that wait for a leg (a circuit of the set) with room.
    pub reordered: usize,
    /// Largest number of bytes that ever waited in one circuit set for earlier messages.
    pub most_reordered: usize,
    /// Bytes that wait in streams over lossy cells (sent in datagrams), for a destination or for
    /// the client.
    pub lossy_kept: usize,
    /// Smoothed round-trip times of legs (parallel circuits) that both ends have linked, in
    /// microseconds.
    pub leg_rtts: NumberSpread,
    /// Congestion windows of legs (parallel circuits), in cells.
    pub leg_windows: NumberSpread,
    /// Number of cells in flight on all legs (parallel circuits).
    pub legs_inflight: u64,
    /// Number of queued cells.
    pub cells: usize,
    /// Largest congestion window of open circuits, in cells.
    pub window: u64,
    /// Number of RELAY and RELAY_EARLY cells received, including cells addressed to this relay.
    pub relayed: u64,
    /// Number of protocol violations by neighbours.
    pub violations: u64,
    /// Number of circuits closed because the memory for cells was full.
    pub out_of_memory: u64,
    /// Number of PADDING cells received, and number sent.
    pub padding: [u64; 2],
    /// Number of unordered links, whose cells have sequence numbers and may arrive in any order.
    pub unordered_links: usize,
    /// Number of cells that arrived on unordered links before an earlier cell of their circuit,
    /// since the start.
    pub early_cells: u64,
    /// Number of open QUIC links.
    pub quic_links: usize,
    /// Number of circuits on open QUIC links.
    pub quic_circuits: usize,
    /// Number of circuits that have moved from a QUIC link to the TLS link alongside it, since the
    /// start.
    pub moved_circuits: u64,
    /// Number of open dedicated links (each was opened for one circuit).
    pub dedicated_links: usize,
    /// Number of circuits since the start that had to share another circuit's link, because the
    /// maximum number of links to their next relay was open.
    pub shared_circuits: u64,
}

impl Stats {
    /// Returns the combined statistics of two shards (parallel cores of one relay).
    #[must_use]
    pub fn with(self, other: &Stats) -> Stats {
        Stats {
            circuits_made: self.circuits_made + other.circuits_made,
            circuits_cgo: self.circuits_cgo + other.circuits_cgo,
            circuits_lossy: self.circuits_lossy + other.circuits_lossy,
            lossy: self.lossy.with(&other.lossy),
            circuits: self.circuits + other.circuits,
            link_circuits: self.link_circuits + other.link_circuits,
            streams: self.streams + other.streams,
            sets: self.sets + other.sets,
            legs: self.legs + other.legs,
            reordered: self.reordered + other.reordered,
            most_reordered: self.most_reordered.max(other.most_reordered),
            lossy_kept: self.lossy_kept + other.lossy_kept,
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

/// A relay's protocol state machine, without I/O.
pub type Relay = Node<RelayRole>;

/// The part of the state of a [`Node`] that only a relay has.
pub struct RelayRole {
    config: Config,
    /// Roles of the relay on links that it accepts: first the role with the present TLS
    /// certificate, then the role with the previous certificate.
    responders: Vec<Role>,
    initiator: Role,
    stats: Stats,
    /// Index of this parallel core (shard) of the relay.
    shard: usize,
    /// Introduction and rendezvous points, shared by all parallel cores (shards) of the relay.
    points: Box<dyn PointTable>,
    /// Sets of several circuits, shared by all parallel cores (shards) of the relay.
    sets: Box<dyn SetTable>,
    /// Maximum number of links to any one relay, if each circuit has a separate link to its next
    /// relay. `None` if circuits share links.
    dedicated: Option<usize>,
}

impl Relay {
    /// Returns a relay without links. The relay authenticates itself with `responder` on links
    /// that it accepts, and with `initiator` on links that it opens. `rng` is its only source of
    /// randomness.
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

    /// Sets the onion keys for new circuits.
    pub fn set_onion_keys(&mut self, onion_keys: Vec<CurveKeys>) {
        self.role.config.onion_keys = onion_keys;
    }

    /// Sets the consensus parameters. They apply to new circuits, new introduction and rendezvous
    /// points, and new circuit sets.
    pub fn set_network_params(&mut self, params: &NetworkParams) {
        let NetworkParams { circuits, padding, services, conflux } = params;
        self.role.config.params = Arc::clone(circuits);
        (self.role.config.services, self.role.config.conflux) = (*services, *conflux);
        self.set_padding(*padding);
    }

    /// Sets the index of this shard, and the tables that all shards (parallel cores) of the relay
    /// share. If the relay has several shards, call this before any other method.
    pub fn share(&mut self, shard: usize, points: Box<dyn PointTable>, sets: Box<dyn SetTable>) {
        self.role.shard = shard;
        (self.role.points, self.role.sets) = (points, sets);
    }

    /// Opens a separate link to the next relay for each circuit from now on. At most `most` links
    /// lead to one relay; further circuits share these links.
    pub fn dedicate_links(&mut self, most: usize) {
        self.role.dedicated = Some(most);
    }

    /// Changes the settings that may change while the relay is running. If more than `max_cells`
    /// cells are queued, closes the circuits whose cells have waited longest.
    pub fn set_behaviour(&mut self, behaviour: Behaviour) {
        let Behaviour { exit, allow_private, max_cells } = behaviour;
        (self.role.config.exit, self.role.config.allow_private) = (exit, allow_private);
        self.memory.set_limit(max_cells);
        self.relieve();
    }

    /// Sets the credentials for new links. Call this after the TLS certificate or the signing key
    /// has changed. The previous `responder` stays in use on links that were opened with its
    /// certificate.
    pub fn set_roles(&mut self, responder: Role, initiator: Role) {
        self.role.initiator = initiator;
        self.role.responders.insert(0, responder);
        self.role.responders.truncate(2);
    }

    /// Returns the number of circuits created since the start. This call is faster than
    /// [`Relay::stats`].
    pub fn circuits_made(&self) -> u64 {
        self.role.stats.circuits_made
    }

    /// Returns statistics for display.
    pub fn stats(&self) -> Stats {
        // Each shard counts its own circuits only.
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
            reordered: self.memory.reordered(),
            most_reordered: self.sets.most_reordered(),
            lossy_kept: self.memory.lossy_held(),
            leg_rtts: linked.iter().filter_map(|leg| leg.rtt.map(micros)).collect(),
            leg_windows: linked.iter().map(|leg| leg.window).collect(),
            legs_inflight: linked.iter().map(|leg| leg.inflight).sum(),
            lossy: self.lossy(),
            circuits: legs().count(),
            link_circuits: self.channels.iter().map(|(_, link)| link.circuits()).sum(),
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
    type Input = Input;
    type Output = Output;

    /// Handles an event.
    fn handle(node: &mut Relay, now: Time, input: Input) {
        match input {
            Input::Connected { stream, reached } => node.connected(now, stream, reached),
            Input::Ended { stream, reason } => node.end(now, stream, reason),
            Input::Refused { stream, address } => node.refused(now, stream, address),
            Input::Resolved { stream, answers } => node.resolved(now, stream, &answers),
        }
    }

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

    fn take_relay_cell(node: &mut Relay, now: Time, link_circuit: LinkCircuit, body: &mut Body) {
        node.relay(now, link_circuit, Command::RELAY, body);
    }

    fn take_cell(
        node: &mut Relay,
        now: Time,
        link: LinkId,
        cell: Cell<'_>,
    ) -> Result<(), LinkFault> {
        node.take_circuit_cell(now, link, cell)
    }

    fn take_lossy(node: &mut Relay, now: Time, owner: Owner, cell: (u32, &mut Body)) {
        node.take_lossy_cell(now, owner, cell);
    }

    fn lossy_begun(node: &mut Relay, now: Time, circuit: u32, id: u16, data: &[u8]) {
        node.begin_lossy(now, circuit, id, data);
    }

    fn reached(node: &mut Relay, now: Time, circuit: u32, link: LinkId) {
        node.resume_on_link(now, circuit, link);
    }

    fn lost(node: &mut Relay, now: Time, owner: Owner) {
        node.left_by(now, owner, DestroyReason::LINK_CLOSED);
    }

    fn close_circuit(node: &mut Relay, circuit: u32, why: CloseCause) {
        let reason = match why {
            CloseCause::Unreached => DestroyReason::CONNECT_FAILED,
            CloseCause::WrongIdentity => DestroyReason::WRONG_IDENTITY,
            CloseCause::Fault(CircuitFault::Conflux(
                ConfluxFault::Full | ConfluxFault::TooManyLegs,
            )) => DestroyReason::RESOURCES,
            CloseCause::Fault(_) => DestroyReason::PROTOCOL,
            CloseCause::Set | CloseCause::Exhausted => DestroyReason::FINISHED,
            CloseCause::NoLossyLink => DestroyReason::CONNECT_FAILED,
            CloseCause::Unlinked | CloseCause::Silent => DestroyReason::TIMEOUT,
            CloseCause::Memory => {
                node.role.stats.out_of_memory += 1;
                DestroyReason::RESOURCES
            }
        };
        node.tear_down(circuit, reason);
    }

    fn take_trunk_cell(node: &mut Relay, now: Time, trunk: u32, command: Command, body: &mut Body) {
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
        let place = SetLocation { shard: node.role.shard, set: set.0 };
        node.role.sets.leave(nonce, place);
        node.leave_trunk(set, DestroyReason::FINISHED);
    }
}
