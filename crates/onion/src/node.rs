//! The code that client and relay share: links, circuits, sets of parallel circuits with their
//! streams, and outputs.
//!
//! [`Node`] is this shared core. Links, the padding of links, and streams are in separate files.
//! [`NodeRole`] is the interface of the two roles. Methods that only one role has are in that
//! role's files, in `impl Relay` and `impl Client`.

use std::collections::{BTreeSet, VecDeque};

use anabranch_multipath::{Core, Time};
use anabranch_tcp::Congestion;
use rand_core::CryptoRng;

use crate::channel::{self, Channel, Start};
use crate::channels::{Channels, LinkCircuit, LinkId, Owner, PopOutcome};
use crate::circuitmux;
use crate::crypto::Keys;
use crate::ending::{Carrier, Ending};
use crate::event::{CircuitFault, Event, LinkFault, Neighbour, Violation};
use crate::io::{LinkCore, LinkInput, LinkOutput, StreamOutput};
use crate::padding::Rules;
use crate::set::{CircuitSets, QUEUE_LOW};
use crate::stream::StreamKey;
use crate::table::{Dialling, SetId, Slab, StreamTable};
use crate::wire::cell::{BODY, Body, Cell, Command};
use crate::wire::conflux::SetNonce;
use crate::wire::extend::UNKNOWN_RSA;
use crate::wire::message::{self, Message, RelayCommand};

mod dedicated;
mod detour;
mod links;
mod lossy;
mod memory;
mod padding;
mod quic_offers;
mod several;
mod streams;
mod trunk;

pub(crate) use dedicated::NextLink;
pub use lossy::{LossyStats, LossyTraffic};
use memory::{Memory, MemoryUse};

/// Timer of a node, with the link or circuit set that the timer concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Time limit of the link's handshake. When it expires, an incomplete link is closed.
    Handshake(LinkId),
    /// Time at which a stream of the circuit set may send again, after a rate limit has delayed
    /// it.
    Streams(SetId),
    /// Time limit for the other end to accept a new leg (parallel circuit) of the circuit set.
    Linking(SetId),
    /// Next action on the legs (parallel circuits) of a resilient circuit set, which survives the
    /// loss of legs. An example is the retransmission of messages on another leg.
    LegActions(SetId),
    /// Next check whether the link has been idle for long enough to send padding.
    Padding(LinkId),
    /// Next check whether the link has been without circuits for long enough to be closed.
    IdleCheck(LinkId),
    /// Next attempt to open a QUIC link alongside this link.
    QuicRetry(LinkId),
    /// Time at which the node acknowledges the cells that arrived on the QUIC link.
    Arrived(LinkId),
    /// Time limit for the neighbour to list all circuits that move from this QUIC link to the TLS
    /// link alongside it.
    Moving(LinkId),
    /// Next timeout of a stream that uses lossy cells (sent in datagrams) of the circuit set.
    Segments(SetId),
    /// Next check for circuits that have waited too long for a link that carries lossy cells (sent
    /// in datagrams).
    LossyLinks,
    /// Time limit for the other end to accept a parallel circuit (leg) of a circuit set whose
    /// cells travel in datagrams.
    LossyLegs(SetId),
}

/// Reason for which this node closes a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// The link that the circuit needs cannot be opened.
    Unreached,
    /// The link that the circuit needs was opened, but another relay is at its other end.
    WrongIdentity,
    /// The other end of the circuit violated the protocol.
    Fault(CircuitFault),
    /// The memory for cells is full, and this circuit's cells have waited longest.
    Memory,
    /// The set of parallel circuits that this circuit belongs to has ended.
    Set,
    /// The other end did not accept the circuit in time as a leg (parallel circuit) of a set.
    Unlinked,
    /// The other end has stopped acknowledging cells on the circuit, although the parallel
    /// circuits of the same set continue.
    Silent,
    /// No link to the next relay can carry the circuit's lossy cells (sent in datagrams).
    NoLossyLink,
    /// The circuit has used up the counters of its lossy cells (sent in datagrams), which must not
    /// repeat.
    Exhausted,
}

/// The role of a node: client or relay.
pub trait NodeRole: Sized {
    /// The type of the role's circuits.
    type Circuit: Ending;
    /// The type of the role's inputs, other than events of links.
    type Input;
    /// The type of the role's outputs.
    type Output: From<LinkOutput> + From<StreamOutput> + From<Event>;

    /// Handles an input other than an event of a link.
    fn handle(node: &mut Node<Self>, now: Time, input: Self::Input);

    /// Returns this node's role on a new link, such as initiator, with its credentials. `dialled`
    /// is true if the node opened the link. `start` describes the link after its TLS handshake.
    /// Returns `None` if the link must be refused.
    fn channel_role(node: &Node<Self>, dialled: bool, start: &Start) -> Option<channel::Role>;

    /// Returns true if every new link that the node opens serves only one circuit.
    fn dedicates_links(_: &Node<Self>) -> bool {
        false
    }

    /// Handles a RELAY cell that arrived on `link_circuit`. Cells of closed circuits are dropped,
    /// because they were sent before the other end knew of the closing.
    fn take_relay_cell(
        node: &mut Node<Self>,
        now: Time,
        link_circuit: LinkCircuit,
        body: &mut Body,
    );

    /// Handles a cell of a circuit.
    ///
    /// # Errors
    /// Returns the neighbour's violation of the protocol. The link must then be closed.
    fn take_cell(
        node: &mut Node<Self>,
        now: Time,
        link: LinkId,
        cell: Cell<'_>,
    ) -> Result<(), LinkFault>;

    /// Handles a lossy cell (sent in a datagram) of a circuit. `cell` contains the cell's counter
    /// and its body.
    fn take_lossy(node: &mut Node<Self>, now: Time, owner: Owner, cell: (u32, &mut Body));

    /// Handles the data of a BEGIN message, with which the client opens the stream `id` over lossy
    /// cells (sent in datagrams) of `circuit`.
    fn lossy_begun(_: &mut Node<Self>, _: Time, _circuit: u32, _id: u16, _data: &[u8]) {}

    /// Notes that a stream over lossy cells (sent in datagrams) is connected to its destination.
    fn lossy_connected(_: &mut Node<Self>, _: StreamKey) {}

    /// Notes that a cell of a circuit was passed to its link.
    fn sent_cell(_: &mut Node<Self>, _: Time, _: Owner) {}

    /// Notes that `link`, for which `circuit` waited, is open now.
    fn reached(node: &mut Node<Self>, now: Time, circuit: u32, link: LinkId);

    /// Notes that a link of a circuit has closed. `owner` names the circuit and the side of the
    /// closed link: towards the client or away from the client.
    fn lost(node: &mut Node<Self>, now: Time, owner: Owner);

    /// Closes `circuit` for the reason `why`.
    fn close_circuit(node: &mut Node<Self>, circuit: u32, why: CloseCause);

    /// Handles a message of a stream, which arrived on `circuit`. The caller has already handled
    /// all earlier messages of the circuit set.
    ///
    /// # Errors
    /// Returns the violation if the other end broke the protocol.
    fn take_set_message(
        node: &mut Node<Self>,
        now: Time,
        circuit: u32,
        message: Message<'_>,
    ) -> Result<(), CircuitFault>;

    /// Forwards a cell from the legs of a circuit set along its trunk, the circuit that continues
    /// from the relay where the legs join. The caller forwards the trunk's cells in order.
    fn take_trunk_cell(
        node: &mut Node<Self>,
        now: Time,
        trunk: u32,
        command: Command,
        body: &mut Body,
    );

    /// Notes that all legs (parallel circuits) of the set of `circuit` have stopped answering. The
    /// set needs a new leg.
    fn fell_silent(_: &mut Node<Self>, _circuit: u32) {}

    /// Notes that the set `set` of several circuits is ending. `nonce` is the secret that
    /// identifies this set at both ends.
    fn set_ended(node: &mut Node<Self>, set: SetId, nonce: &SetNonce);
}

/// A client's or a relay's protocol state machine: the state that both roles have, and the state
/// of its role.
pub struct Node<R: NodeRole> {
    pub(crate) role: R,
    pub(crate) rng: Box<dyn CryptoRng + Send>,
    pub(crate) crypto: RelayCrypto,
    pub(crate) channels: Channels,
    pub(crate) circuits: Slab<R::Circuit>,
    pub(crate) sets: CircuitSets,
    pub(crate) streams: StreamTable,
    /// Relays with links being opened, and the circuits that wait for these links.
    pub(crate) dialling: Dialling,
    pub(crate) timers: BTreeSet<(Time, Timer)>,
    /// Circuit sets whose legs (parallel circuits) join at a relay, where one circuit, the trunk,
    /// continues. [`Node::deal_undealt`] must distribute the trunk's queued cells among the legs.
    pub(crate) undealt: Vec<SetId>,
    pub(crate) outputs: VecDeque<R::Output>,
    /// Memory use of the queues, and its limit.
    pub(crate) memory: Memory,
    /// Number of protocol violations by neighbours.
    pub(crate) violations: u64,
    /// Rules for padding and closing links.
    pub(crate) rules: Rules,
    /// Number of PADDING cells received, and number sent.
    pub(crate) padding: [u64; 2],
    /// Counters of lossy cells (sent in datagrams). They do not include the cells that
    /// [`Channels`] has dropped.
    pub(crate) lossy: LossyStats,
    lossy_traffic: LossyTraffic,
    /// Congestion control of streams over lossy cells (sent in datagrams).
    pub(crate) lossy_congestion: Congestion,
}

/// Encryption setting: whether the layers of new circuits encrypt cells.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RelayCrypto {
    #[cfg(any(test, feature = "elide"))]
    elided: bool,
}

impl RelayCrypto {
    /// Returns the keys for a circuit's layer: the negotiated `keys`, or keys that do not encrypt
    /// if encryption is disabled.
    pub(crate) fn in_use(self, keys: Keys) -> Keys {
        #[cfg(any(test, feature = "elide"))]
        if self.elided {
            return keys.elided();
        }
        keys
    }
}

impl<R: NodeRole> Node<R> {
    /// Disables encryption in the layers of new circuits. This is for simulations only, and all
    /// nodes of the simulation must do the same.
    #[cfg(any(test, feature = "elide"))]
    pub fn elide_crypto(&mut self) {
        self.crypto.elided = true;
    }

    /// Returns a node without links. `rng` is its only source of randomness.
    pub(crate) fn with_role(
        role: R,
        policy: circuitmux::Kind,
        max_cells: usize,
        rng: Box<dyn CryptoRng + Send>,
    ) -> Node<R> {
        Node {
            role,
            rng,
            crypto: RelayCrypto::default(),
            channels: Channels::new(policy),
            circuits: Slab::default(),
            sets: CircuitSets::default(),
            streams: StreamTable::default(),
            dialling: Dialling::default(),
            timers: BTreeSet::new(),
            undealt: Vec::new(),
            outputs: VecDeque::new(),
            memory: Memory::new(max_cells),
            violations: 0,
            rules: Rules::default(),
            padding: [0; 2],
            lossy: LossyStats::default(),
            lossy_traffic: LossyTraffic::default(),
            lossy_congestion: Congestion::BBR,
        }
    }

    /// Sets the congestion control for streams of new lossy circuits (whose cells travel in
    /// datagrams). The default is [`Congestion::BBR`]. A circuit set whose scheduler needs
    /// congestion windows always uses BBR.
    pub fn set_lossy_congestion(&mut self, congestion: Congestion) {
        self.lossy_congestion = congestion;
    }

    /// Queues an output for the driver (I/O code).
    pub(crate) fn put(&mut self, output: impl Into<R::Output>) {
        self.outputs.push_back(output.into());
    }

    /// Counts a neighbour's violation of the protocol, and reports it to the operator.
    pub(crate) fn violated(&mut self, link: LinkId, violation: impl Into<Violation>) {
        let violation = violation.into();
        self.violations += 1;
        let neighbour = self.neighbour(link);
        self.put(Event::Violation { link, neighbour, violation });
    }

    /// Returns the relay at the other end of `link`.
    fn neighbour(&mut self, link: LinkId) -> Neighbour {
        let Some(link) = self.channels.link(link) else { return Neighbour::default() };
        let wanted = link.wanted.as_ref();
        let named = wanted.map(|target| target.rsa).filter(|rsa| *rsa != UNKNOWN_RSA);
        Neighbour {
            rsa: link.channel.identity().map(|identity| identity.rsa).or(named),
            address: wanted.and_then(|target| target.addresses.first().copied()),
        }
    }

    /// Runs the timers that are due.
    pub(crate) fn timeout(&mut self, now: Time) {
        while let Some(&(time, timer)) = self.timers.first() {
            if time > now {
                break;
            }
            self.timers.pop_first();
            match timer {
                Timer::Streams(set) => self.pump(now, set),
                Timer::Linking(set) => self.look_for_late_legs(now, set),
                Timer::LegActions(set) => self.tend(now, set),
                Timer::Padding(id) => self.look(now, id),
                Timer::QuicRetry(id) => self.offer_due(now, id),
                Timer::Arrived(id) => self.channels.arrived_due(id),
                Timer::Moving(id) => self.moving_due(now, id),
                Timer::Segments(set) => self.segments_due(now, set),
                Timer::LossyLinks => self.lossy_links_due(now),
                Timer::LossyLegs(set) => self.lossy_legs_due(now, set),
                Timer::IdleCheck(id) => {
                    if self.is_spare(now, id) {
                        self.closed(now, id);
                        self.put(LinkOutput::Close { link: id });
                    }
                }
                Timer::Handshake(id) => {
                    if self.channels.link(id).is_some_and(|link| !link.channel.is_open()) {
                        self.fail(now, id, LinkFault::HandshakeTimeout);
                    }
                }
            }
        }
    }

    /// Frees memory while more cells are queued than allowed. First drops the copies of cells that
    /// allow circuits to move from a QUIC link to the TLS link alongside it. The circuits of that
    /// QUIC link can then no longer move. If this is not enough, closes the circuit whose cells
    /// have waited longest, as C tor does.
    ///
    /// Bytes buffered in sets and in streams over lossy cells (sent in datagrams) count as cells.
    /// If the sets, or these streams, use more memory than the queued cells, closes the set with
    /// the most such bytes instead. C tor counts such bytes and never frees them.
    pub(crate) fn relieve(&mut self) {
        while self.memory.is_exceeded(self.channels.used()) {
            if self.channels.renounce_most() {
                continue;
            }
            match self.memory.largest(self.channels.used()) {
                MemoryUse::LossyStreams => {
                    let Some(set) = self.sets.fullest_lossy() else { return };
                    self.put(Event::OutOfMemory);
                    self.end_lossy_set(set, CloseCause::Memory);
                }
                MemoryUse::Sets => {
                    let Some(set) = self.sets.fullest() else { return };
                    self.put(Event::OutOfMemory);
                    self.end_set(set, CloseCause::Memory);
                }
                MemoryUse::Cells => {
                    let Some(owner) = self.channels.oldest() else { return };
                    self.put(Event::OutOfMemory);
                    R::close_circuit(self, owner.circuit, CloseCause::Memory);
                }
            }
        }
    }

    /// Closes the circuit `index` because of a violation.
    pub(crate) fn break_off(&mut self, index: u32, fault: CircuitFault) {
        let Some(circuit) = self.circuits.get(index) else { return };
        let link_circuit = match circuit.carrier() {
            Some(Carrier::Link(link_circuit)) => Some(link_circuit),
            Some(Carrier::Legs(set)) => self.link_circuit_of_leg(set),
            None => None,
        };
        link_circuit.into_iter().for_each(|link_circuit| self.violated(link_circuit.link, fault));
        R::close_circuit(self, index, CloseCause::Fault(fault));
    }

    /// Ends the set `id` because of a violation on its trunk (the circuit that continues where the
    /// set's legs join).
    pub(crate) fn break_set(&mut self, id: SetId, fault: CircuitFault) {
        let link_circuit = self.link_circuit_of_leg(id);
        link_circuit.into_iter().for_each(|link_circuit| self.violated(link_circuit.link, fault));
        self.end_set(id, CloseCause::Fault(fault));
    }

    /// Returns the link and circuit ID of one of the set's legs (parallel circuits); `None` if the
    /// set has no leg.
    fn link_circuit_of_leg(&mut self, id: SetId) -> Option<LinkCircuit> {
        let leg = self.sets.several(id)?.circuits().next()?;
        self.circuits.get(leg)?.link_circuit()
    }

    /// Appends cells for `link` to `out` until `out` has at least `limit` bytes or no cells are
    /// left. Returns false if none are left.
    pub(crate) fn fill_link(
        &mut self,
        now: Time,
        link: LinkId,
        out: &mut Vec<u8>,
        limit: usize,
    ) -> bool {
        while out.len() < limit {
            match self.channels.pop(now, link, out) {
                PopOutcome::Nothing => return false,
                PopOutcome::Cell { owner, left } => {
                    R::sent_cell(self, now, owner);
                    if left < QUEUE_LOW && owner.outward == R::Circuit::OUTWARD {
                        self.pump_by(now, owner.circuit);
                    }
                }
                PopOutcome::Own => {
                    self.fix_records(link);
                    self.let_go(now, link);
                }
            }
        }
        true
    }

    /// Sends `message`, without checking it, on the `nth` circuit that ends at this node. This
    /// allows relay commands that this crate does not know. The other end may close the circuit
    /// because of the message. Returns false if fewer circuits end here.
    pub fn send_message(&mut self, now: Time, nth: usize, message: Message<'_>) -> bool {
        let ends_here = |circuit: &mut R::Circuit| R::Circuit::parts(circuit).is_some();
        let indices: Vec<u32> = self.circuits.numbered().map(|(index, _)| index).collect();
        let mut here = indices
            .into_iter()
            .filter(|index| self.circuits.get_mut(*index).is_some_and(ends_here));
        let Some(index) = here.nth(nth) else { return false };
        self.send(now, index, Command::RELAY, message);
        true
    }

    /// Sends a message about the circuit `index` itself, not about a stream, to the circuit's
    /// other end.
    pub(crate) fn send_relay_cell(
        &mut self,
        now: Time,
        index: u32,
        command: Command,
        what: RelayCommand,
        data: &[u8],
    ) {
        self.send(now, index, command, Message { command: what, stream: 0, data });
    }

    fn send(&mut self, now: Time, index: u32, command: Command, message: Message<'_>) {
        let parts = self.circuits.get_mut(index).and_then(R::Circuit::parts);
        let Some((carrier, _, layers)) = parts else { return };
        let mut body = [0; BODY];
        message::write(layers.format(), &mut body, message, &mut *self.rng);
        layers.seal(command, &mut body);
        match carrier {
            Carrier::Link(link_circuit) => {
                self.channels.push(now, link_circuit, command, &body);
            }
            Carrier::Legs(legs) => self.send_on_legs(now, legs, command, &body),
        }
    }
}

impl<R: NodeRole> Core for Node<R> {
    type In<'a> = R::Input;
    type Out = R::Output;

    fn handle(&mut self, now: Time, input: R::Input) {
        R::handle(self, now, input);
        self.relieve();
    }

    fn poll(&mut self, now: Time) -> Option<R::Output> {
        if self.next_timeout().is_some_and(|due| due <= now) {
            self.timeout(now);
        }
        // The last input may have filled the memory with bytes from a program.
        self.relieve();
        let link = || self.channels.next_ready().map(|link| LinkOutput::Transmit { link }.into());
        self.outputs.pop_front().or_else(link)
    }

    fn next_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| *time)
    }
}

impl<R: NodeRole> LinkCore for Node<R> {
    fn handle_link(&mut self, now: Time, input: LinkInput<'_>) {
        match input {
            LinkInput::Opened { link, target, start } => self.open(now, link, target, start),
            LinkInput::Bytes { link, bytes } => self.receive(now, link, bytes),
            LinkInput::Lossy { link, cells } => self.receive_lossy(now, link, cells),
            LinkInput::Exported { link, secret } => self.exported(now, link, secret),
            LinkInput::RecordsFixed { link } => self.records_fixed(link),
            LinkInput::QuicFailed { link } => self.offer_failed(now, link),
            LinkInput::Seen { link, view } => self.channels.saw(now, link, view),
            LinkInput::Closed { link } => self.carrier_closed(now, link),
            LinkInput::Broken { link, fault } => self.carrier_broke(now, link, fault),
            LinkInput::Lost { link } => self.carrier_lost(now, link),
            LinkInput::Sibling { link, first, shard } => {
                self.channels.join(link, Channel::sibling(first), shard);
            }
            LinkInput::Elsewhere { target, link } => self.found(now, &target, link),
            LinkInput::Unreachable { target } => {
                self.unreachable(&target, CloseCause::Unreached);
                for circuit in self.dialling.take_lossy(|wanted| *wanted == target) {
                    R::close_circuit(self, circuit, CloseCause::Unreached);
                }
            }
        }
        self.deal_undealt(now);
        while let Some(id) = self.channels.take_stalled() {
            self.fail(now, id, LinkFault::Deaf);
        }
        self.relieve();
    }

    fn transmit(&mut self, now: Time, link: LinkId, out: &mut Vec<u8>, limit: usize) -> bool {
        self.fill_link(now, link, out, limit)
    }

    fn transmit_lossy(&mut self, link: LinkId, out: &mut Vec<u8>) {
        self.channels.take_lossy(link, out);
    }

    fn wants_look(&self, link: LinkId) -> bool {
        self.channels.wants_look(link)
    }

    fn shrink_buffers(&mut self, link: LinkId) -> usize {
        self.channels.link(link).map_or(0, |link| link.shrink_buffers())
    }

    fn write(&mut self, now: Time, stream: StreamKey, bytes: &[u8]) -> usize {
        self.write_stream(now, stream, bytes)
    }

    fn read(&self, stream: StreamKey) -> (&[u8], &[u8]) {
        self.read_stream(stream)
    }

    fn consume(&mut self, now: Time, stream: StreamKey, bytes: usize) {
        self.consume_stream(now, stream, bytes);
    }
}
