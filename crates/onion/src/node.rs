//! What a client and a relay have in common: links, circuits, the sets of streams that go by them,
//! and what is to be done outside.
//!
//! [`Node`] has all of it, with a file each for its links, for when they are padded, and for its
//! streams. [`NodeRole`] is what a role adds to make that work, and seals it: there are two. A
//! role's own verbs stand in its own files, in `impl Relay` and `impl Client`.

use std::collections::{BTreeSet, VecDeque};

use anabranch_multipath::Time;
use rand_core::CryptoRng;

use crate::channel::{self, Channel, Start};
use crate::channels::{Channels, Lane, LinkId, Owner, Popped};
use crate::circuitmux;
use crate::crypto::Keys;
use crate::ending::{Carrier, Ending};
use crate::event::{CircuitFault, Event, LinkFault, Neighbour, Violation};
use crate::io::{Core, LinkInput, LinkOutput, StreamOutput};
use crate::padding::Rules;
use crate::set::{QUEUE_LOW, Set};
use crate::stream::StreamKey;
use crate::table::{Dialling, SetId, Slab, StreamTable};
use crate::wire::cell::{BODY, Body, CELL, Cell, Command};
use crate::wire::conflux::SetNonce;
use crate::wire::extend::ANYBODY;
use crate::wire::message::{self, Message, RelayCommand};

mod beside;
mod dedicated;
mod detour;
mod links;
mod padding;
mod passing;
mod several;
mod streams;

pub(crate) use dedicated::Way;

/// When a core wants to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The link's handshake must be done.
    Handshake(LinkId),
    /// A stream of the set that keeps to a rate may send again.
    Streams(SetId),
    /// A leg of the set may have waited for its other end for too long.
    Linking(SetId),
    /// Something is to be said by the legs of a set that outlives them, or one is to be closed.
    LegActions(SetId),
    /// The link may have been silent for long enough to be padded.
    Padding(LinkId),
    /// The link may have been without circuits for too long.
    Rest(LinkId),
    /// A QUIC link beside this one may be tried again.
    Beside(LinkId),
    /// The neighbour is to know what came by the QUIC link.
    Arrived(LinkId),
    /// Circuits may have waited for too long to move from the QUIC link.
    Moving(LinkId),
}

/// Why a circuit is torn down that did not ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A link that it needs cannot be had.
    Unreached,
    /// The link that it needs leads to somebody else.
    WrongIdentity,
    /// Somebody broke the rules on it.
    Fault(CircuitFault),
    /// The memory for cells is full, and its cells waited longest.
    Memory,
    /// The set of which it is a leg has ended.
    Set,
    /// The other end did not answer in time that it is to be a leg.
    Unlinked,
    /// Nothing is acknowledged by it any more, while other legs of its set go on.
    Silent,
}

/// A role: what makes a node a client or a relay.
pub trait NodeRole: Sized {
    /// Its circuits.
    type Circuit: Ending;
    /// What is to be done outside.
    type Output: From<LinkOutput> + From<StreamOutput> + From<Event>;

    /// How the node speaks on a link that it opened, or that came; `None` if that one may not come.
    fn channel_role(node: &Node<Self>, dialled: bool, start: &Start) -> Option<channel::Role>;

    /// Whether a link that is opened is for one circuit alone.
    fn dedicates_links(_: &Node<Self>) -> bool {
        false
    }

    /// A cell that the channel left to circuits.
    ///
    /// # Errors
    /// A fault that ends the link.
    fn take_cell(
        node: &mut Node<Self>,
        now: Time,
        link: LinkId,
        cell: Cell<'_>,
    ) -> Result<(), LinkFault>;

    /// A cell of a circuit was handed to its link.
    fn sent_cell(_: &mut Node<Self>, _: Time, _: Owner) {}

    /// A link that a circuit waited for is open.
    fn reached(node: &mut Node<Self>, now: Time, circuit: u32, link: LinkId);

    /// A circuit's lane is gone with its link.
    fn lost(node: &mut Node<Self>, now: Time, owner: Owner);

    /// A circuit is to be torn down.
    fn give_up(node: &mut Node<Self>, circuit: u32, why: Why);

    /// A message of a stream whose turn has come; it came by this circuit.
    ///
    /// # Errors
    /// What the other end did that it may not do.
    fn take_set_message(
        node: &mut Node<Self>,
        now: Time,
        circuit: u32,
        message: Message<'_>,
    ) -> Result<(), CircuitFault>;

    /// A cell whose turn has come, of the circuit beyond a set whose legs join at a middle.
    fn take_passing_cell(
        node: &mut Node<Self>,
        now: Time,
        trunk: u32,
        command: Command,
        body: &mut Body,
    );

    /// A leg does not answer any more, and no other of its set does.
    fn fell_silent(_: &mut Node<Self>, _circuit: u32) {}

    /// A set that several circuits could join is ending.
    fn set_ended(node: &mut Node<Self>, set: SetId, nonce: &SetNonce);
}

/// A client's or a relay's core: what both have, and what its role has besides.
pub struct Node<R: NodeRole> {
    pub(crate) role: R,
    pub(crate) rng: Box<dyn CryptoRng + Send>,
    pub(crate) crypto: RelayCrypto,
    pub(crate) channels: Channels,
    pub(crate) circuits: Slab<R::Circuit>,
    pub(crate) sets: Slab<Set>,
    pub(crate) streams: StreamTable,
    /// Relays that we are reaching, and which circuits wait for them.
    pub(crate) dialling: Dialling,
    pub(crate) timers: BTreeSet<(Time, Timer)>,
    /// Sets with cells that pass, to whose legs somebody must see ([`Node::deal_undealt`]).
    pub(crate) undealt: Vec<SetId>,
    pub(crate) outputs: VecDeque<R::Output>,
    /// Cells that may wait, of all circuits together, with what waits in sets.
    pub(crate) max_cells: usize,
    /// Bytes that wait in sets for messages of other legs.
    pub(crate) reordered: usize,
    /// The most that any set that is gone had at a time.
    pub(crate) most_reordered: usize,
    /// So many cells wait that sets which hold some rest.
    pub(crate) scarce: bool,
    /// Protocol violations by neighbours.
    pub(crate) violations: u64,
    /// When links are padded and closed.
    pub(crate) rules: Rules,
    /// Cells of padding: received, sent.
    pub(crate) padding: [u64; 2],
}

/// Whether the layers of circuits encrypt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RelayCrypto {
    #[cfg(any(test, feature = "elide"))]
    elided: bool,
}

impl RelayCrypto {
    /// The keys of a circuit's layer, where a handshake has agreed on `keys`.
    pub(crate) fn in_use(self, keys: Keys) -> Keys {
        #[cfg(any(test, feature = "elide"))]
        if self.elided {
            return keys.elided();
        }
        keys
    }
}

impl<R: NodeRole> Node<R> {
    /// From now on the layers of new circuits do not encrypt: in simulations, where all nodes do
    /// the same.
    #[cfg(any(test, feature = "elide"))]
    pub fn elide_crypto(&mut self) {
        self.crypto.elided = true;
    }

    /// Without links; `rng` is all the chance that it takes.
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
            sets: Slab::default(),
            streams: StreamTable::default(),
            dialling: Dialling::default(),
            timers: BTreeSet::new(),
            undealt: Vec::new(),
            outputs: VecDeque::new(),
            max_cells,
            reordered: 0,
            most_reordered: 0,
            scarce: false,
            violations: 0,
            rules: Rules::default(),
            padding: [0; 2],
        }
    }

    /// The next thing to do, or to know.
    pub fn poll(&mut self) -> Option<R::Output> {
        let link = || self.channels.next_ready().map(|link| LinkOutput::Transmit { link }.into());
        self.outputs.pop_front().or_else(link)
    }

    /// Something is to be done outside.
    pub(crate) fn put(&mut self, output: impl Into<R::Output>) {
        self.outputs.push_back(output.into());
    }

    /// A neighbour did what no honest one does.
    pub(crate) fn violated(&mut self, link: LinkId, violation: impl Into<Violation>) {
        let violation = violation.into();
        self.violations += 1;
        let neighbour = self.neighbour(link);
        self.put(Event::Violation { link, neighbour, violation });
    }

    /// The relay at the other end of a link.
    fn neighbour(&mut self, link: LinkId) -> Neighbour {
        let Some(link) = self.channels.link(link) else { return Neighbour::default() };
        let wanted = link.wanted.as_ref();
        let named = wanted.map(|target| target.rsa).filter(|rsa| *rsa != ANYBODY);
        Neighbour {
            rsa: link.channel.identity().map(|identity| identity.rsa).or(named),
            address: wanted.and_then(|target| target.addresses.first().copied()),
        }
    }

    /// The time of a timer has come.
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
                Timer::Beside(id) => self.beside_due(now, id),
                Timer::Arrived(id) => self.channels.arrived_due(id),
                Timer::Moving(id) => self.moving_due(now, id),
                Timer::Rest(id) => {
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

    /// Closes the circuits whose cells have waited longest while too many wait (as C tor does).
    /// What waits in sets counts: where it is more than half, the fullest set is closed. (C tor
    /// counts it and frees none of it.) Copies go first: without, circuits of a QUIC link cannot
    /// move, and that is all.
    pub(crate) fn relieve(&mut self) {
        loop {
            if self.waiting_cells() <= self.max_cells {
                return;
            }
            if self.channels.renounce_most() {
                continue;
            }
            if self.reordered / CELL > self.channels.used() {
                let Some(set) = self.fullest_set() else { return };
                self.put(Event::OutOfMemory);
                self.end_set(set, Why::Memory);
                continue;
            }
            let Some(owner) = self.channels.oldest() else { return };
            self.put(Event::OutOfMemory);
            R::give_up(self, owner.circuit, Why::Memory);
        }
    }

    /// Cells that wait, for links and for those of other legs.
    pub(crate) fn waiting_cells(&self) -> usize {
        self.channels.used() + self.reordered.div_ceil(CELL)
    }

    /// Whether so many cells wait that sets are to rest: from half of what may on, until a quarter
    /// is left. (C tor looks at what waits only when it is too much.)
    pub(crate) fn is_scarce(&mut self) -> bool {
        let most = self.max_cells / if self.scarce { 4 } else { 2 };
        self.scarce = self.waiting_cells() > most;
        self.scarce
    }

    /// Closes a circuit on which somebody broke the rules.
    pub(crate) fn break_off(&mut self, index: u32, fault: CircuitFault) {
        let Some(circuit) = self.circuits.get(index) else { return };
        let lane = match circuit.carrier() {
            Some(Carrier::Link(lane)) => Some(lane),
            Some(Carrier::Legs(set)) => self.lane_of_leg(set),
            None => None,
        };
        lane.into_iter().for_each(|lane| self.violated(lane.link, fault));
        R::give_up(self, index, Why::Fault(fault));
    }

    /// Ends a set for what somebody did beyond its legs.
    pub(crate) fn break_set(&mut self, id: SetId, fault: CircuitFault) {
        let lane = self.lane_of_leg(id);
        lane.into_iter().for_each(|lane| self.violated(lane.link, fault));
        self.end_set(id, Why::Fault(fault));
    }

    /// The lane of one of a set's legs.
    fn lane_of_leg(&mut self, id: SetId) -> Option<Lane> {
        let leg = self.several(id)?.circuits().next()?;
        self.circuits.get(leg)?.lane()
    }

    /// Appends cells for a link until `out` has `limit` bytes or nothing is left; false if nothing
    /// is left.
    pub(crate) fn fill_link(
        &mut self,
        now: Time,
        link: LinkId,
        out: &mut Vec<u8>,
        limit: usize,
    ) -> bool {
        while out.len() < limit {
            match self.channels.pop(now, link, out) {
                Popped::Nothing => return false,
                Popped::Cell { owner, left } => {
                    R::sent_cell(self, now, owner);
                    if left < QUEUE_LOW && owner.outward == R::Circuit::OUTWARD {
                        self.pump_by(now, owner.circuit);
                    }
                }
                Popped::Own => {
                    self.fix_records(link);
                    self.let_go(now, link);
                }
            }
        }
        true
    }

    /// Sends `message` by the `nth` circuit that ends here, whatever it says: for relay commands
    /// that this crate does not know. The other end may close the circuit for it. Returns false if
    /// fewer circuits end here.
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

    /// Sends a message of the circuit itself to its other end.
    pub(crate) fn say(
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
            Carrier::Link(lane) => {
                self.channels.push(now, lane, command, &body);
            }
            Carrier::Legs(legs) => self.pass(now, legs, command, &body),
        }
    }
}

impl<R: NodeRole> Core for Node<R> {
    fn handle_link(&mut self, now: Time, input: LinkInput<'_>) {
        match input {
            LinkInput::Opened { link, target, start } => self.open(now, link, target, start),
            LinkInput::Bytes { link, bytes } => self.receive(now, link, bytes),
            LinkInput::Exported { link, secret } => self.exported(now, link, secret),
            LinkInput::RecordsFixed { link } => self.records_fixed(link),
            LinkInput::NoneBeside { link } => self.none_beside(now, link),
            LinkInput::Seen { link, view } => self.channels.saw(now, link, view),
            LinkInput::Closed { link } => self.carrier_closed(now, link),
            LinkInput::Broken { link, fault } => self.carrier_broke(now, link, fault),
            LinkInput::Lost { link } => self.carrier_lost(now, link),
            LinkInput::Sibling { link, first, shard } => {
                self.channels.join(link, Channel::sibling(first), shard);
            }
            LinkInput::Elsewhere { target, link } => self.found(now, &target, link),
            LinkInput::Unreachable { target } => self.unreachable(&target, Why::Unreached),
        }
        self.deal_undealt(now);
        while let Some(id) = self.channels.take_deaf() {
            self.fail(now, id, LinkFault::Deaf);
        }
        self.relieve();
    }

    fn next_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| *time)
    }

    fn transmit(&mut self, now: Time, link: LinkId, out: &mut Vec<u8>, limit: usize) -> bool {
        self.fill_link(now, link, out, limit)
    }

    fn wants_look(&self, link: LinkId) -> bool {
        self.channels.wants_look(link)
    }

    fn rest(&mut self, link: LinkId) -> usize {
        self.channels.link(link).map_or(0, |link| link.rest())
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
