//! What a client and a relay have in common: links, circuits, the sets of streams that go by them,
//! and what is to be done outside.

use std::collections::{BTreeSet, VecDeque};

use anabranch_multipath::Time;
use rand_core::CryptoRng;

use crate::channels::{Channels, Lane, LinkId, Popped};
use crate::circuitmux;
use crate::crypto::{ClientLayer, RelayLayer, Tag};
use crate::event::{CircuitFault, Event, Violation};
use crate::leg::Leg;
use crate::node::{LinkOutput, StreamOutput};
use crate::padding::{Amount, Rules, Silence, Usage};
use crate::set::{QUEUE_HIGH, QUEUE_LOW, Set, SetId};
use crate::stream::StreamKey;
use crate::streams::{Filled, Happened};
use crate::table::{Dialling, Slab, StreamTable};
use crate::wire::cell::{BODY, Body, Command};
use crate::wire::extend::Target;
use crate::wire::link::Padding;
use crate::wire::message::{
    self, EndReason, Format, Message, RelayCommand, put_sendme, read_sendme,
};

/// When a core wants to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The link's handshake must be done.
    Handshake(LinkId),
    /// A stream of the set that keeps to a rate may send again.
    Streams(SetId),
    /// The link may have been silent for long enough to be padded.
    Padding(LinkId),
    /// The link may have been without circuits for too long.
    Rest(LinkId),
}

/// Puts our layers on a cell that starts here.
pub(crate) trait Seal {
    /// Seals it, for the other end of the circuit; its tag, if there is a layer.
    fn seal(&mut self, command: Command, body: &mut Body) -> Option<Tag>;

    /// How a message lies in it.
    fn format(&self) -> Format;
}

impl Seal for Box<dyn RelayLayer> {
    fn seal(&mut self, command: Command, body: &mut Body) -> Option<Tag> {
        Some(self.originate(command, body))
    }

    fn format(&self) -> Format {
        RelayLayer::format(&**self)
    }
}

/// For the last hop, by all others.
impl Seal for Vec<Box<dyn ClientLayer>> {
    fn seal(&mut self, command: Command, body: &mut Body) -> Option<Tag> {
        let (last, before) = self.split_last_mut()?;
        let tag = last.originate(command, body);
        before.iter_mut().rev().for_each(|layer| layer.outbound(command, body));
        Some(tag)
    }

    fn format(&self) -> Format {
        self.last().map(|layer| layer.format()).unwrap_or_default()
    }
}

/// A circuit as seen from its end, where it may be a leg of a set.
pub(crate) trait Ending {
    /// Whether what the end sends leads away from the client.
    const OUTWARD: bool;

    /// The circuit's place on the link that leads to its other end, or on towards it.
    fn lane(&self) -> Option<Lane>;

    /// The set that it is a leg of, once it is one.
    fn set(&self) -> Option<SetId>;

    /// Its flow control, once it is a leg.
    fn leg(&self) -> Option<&Leg>;

    /// Where the end's cells go, their flow control, and the layers.
    fn parts(&mut self) -> Option<(Lane, Option<&mut Leg>, &mut dyn Seal)>;
}

/// The state that both roles have. `C` is a circuit, `O` what is to be done outside.
pub(crate) struct Base<C, O> {
    pub(crate) rng: Box<dyn CryptoRng + Send>,
    pub(crate) channels: Channels,
    pub(crate) circuits: Slab<C>,
    pub(crate) sets: Slab<Set>,
    pub(crate) streams: StreamTable,
    /// Relays that we are reaching, and which circuits wait for them.
    pub(crate) dialling: Dialling,
    pub(crate) timers: BTreeSet<(Time, Timer)>,
    pub(crate) outputs: VecDeque<O>,
    /// Cells that may wait, of all circuits together.
    pub(crate) max_cells: usize,
    /// What neighbours did that no honest one does.
    pub(crate) violations: u64,
    /// When links are padded and closed.
    pub(crate) rules: Rules,
    /// Cells of padding: received, sent.
    pub(crate) padding: [u64; 2],
}

impl<C, O> Base<C, O>
where
    C: Ending,
    O: From<LinkOutput> + From<StreamOutput> + From<Event>,
{
    /// Without links; `rng` is all the chance that it takes.
    pub(crate) fn new(
        policy: circuitmux::Kind,
        max_cells: usize,
        rng: Box<dyn CryptoRng + Send>,
    ) -> Base<C, O> {
        Base {
            rng,
            channels: Channels::new(policy),
            circuits: Slab::default(),
            sets: Slab::default(),
            streams: StreamTable::default(),
            dialling: Dialling::default(),
            timers: BTreeSet::new(),
            outputs: VecDeque::new(),
            max_cells,
            violations: 0,
            rules: Rules::default(),
            padding: [0; 2],
        }
    }

    /// The next thing to do.
    pub(crate) fn poll(&mut self) -> Option<O> {
        let link = || self.channels.next_ready().map(|link| LinkOutput::Transmit { link }.into());
        self.outputs.pop_front().or_else(link)
    }

    /// Something is to be done outside.
    pub(crate) fn put(&mut self, output: impl Into<O>) {
        self.outputs.push_back(output.into());
    }

    /// A neighbour did what no honest one does.
    pub(crate) fn violated(&mut self, link: LinkId, violation: impl Into<Violation>) {
        let violation = violation.into();
        self.violations += 1;
        self.put(Event::Violation { link, violation });
    }

    /// The consensus says something else of padding. Links that are padded from now on are watched.
    pub(crate) fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        let links: Vec<LinkId> = self.channels.iter().map(|(id, _)| id).collect();
        links.into_iter().for_each(|id| self.watch(id));
    }

    /// A client's user wants another amount of padding. Neighbours that were told to send none, or
    /// are to be, are told.
    pub(crate) fn set_amount(&mut self, amount: Amount) {
        let before = self.rules.amount;
        self.set_rules(Rules { amount, ..self.rules });
        if (before == Amount::Full) == (amount == Amount::Full) {
            return;
        }
        let wanted = if amount == Amount::Full { Padding::Nothing } else { Padding::Stop };
        let open = self
            .channels
            .iter()
            .filter(|(_, link)| link.channel.is_open() && link.channel.has_padding());
        let open: Vec<LinkId> = open.map(|(id, _)| id).collect();
        for id in open {
            if let Some(link) = self.channels.link(id) {
                link.channel.ask_padding(wanted);
                self.channels.wake(id);
            }
        }
    }

    /// A link is used for this, at least.
    pub(crate) fn mark(&mut self, id: LinkId, usage: Usage) {
        if let Some(link) = self.channels.link(id).filter(|link| link.quiet.usage < usage) {
            link.quiet.usage = usage;
            self.watch(id);
        }
    }

    /// The silence after which a link is padded, if it is.
    pub(crate) fn silence(&mut self, id: LinkId) -> Option<Silence> {
        let link = self.channels.link(id).filter(|link| link.channel.has_padding())?;
        self.rules.silence(link.seen())
    }

    /// Sets the timer of a link that is padded, if it is not set.
    pub(crate) fn watch(&mut self, id: LinkId) {
        let Some(silence) = self.silence(id) else { return };
        let Some(link) = self.channels.link(id) else { return };
        if link.quiet.watched.is_none() {
            let first = link.quiet.first_look(silence);
            link.quiet.watched = Some(first);
            self.timers.insert((first, Timer::Padding(id)));
        }
    }

    /// Looks whether a link has been silent for long enough.
    pub(crate) fn look(&mut self, now: Time, id: LinkId) {
        let silence = self.silence(id);
        let Some(link) = self.channels.link(id) else { return };
        let Some(silence) = silence else {
            link.quiet.watched = None;
            return;
        };
        let (due, next) = link.quiet.look(now, silence, &mut *self.rng);
        link.quiet.watched = Some(next);
        self.timers.insert((next, Timer::Padding(id)));
        if due && self.channels.pad(id) {
            self.padding[1] += 1;
        }
    }

    /// Whether a link has been without circuits for so long that it is to be closed.
    pub(crate) fn is_spare(&mut self, now: Time, id: LinkId) -> bool {
        let Some(link) = self.channels.link(id) else { return false };
        let until = match link.circuits() {
            0 => link.quiet.rests_until(),
            _ => now + link.quiet.rest,
        };
        if until > now {
            self.rest(id, until);
        }
        until <= now
    }

    /// Sets the timer that asks whether a link is spare.
    pub(crate) fn rest(&mut self, id: LinkId, until: Time) {
        let Some(link) = self.channels.link(id) else { return };
        link.quiet.resting = Some(until);
        self.timers.insert((until, Timer::Rest(id)));
    }

    /// Forgets the timers of a link that closes: links that come and go must not leave an hour's
    /// worth of them.
    pub(crate) fn disarm(&mut self, id: LinkId) {
        let Some(link) = self.channels.link(id) else { return };
        let watched = link.quiet.watched.take().map(|time| (time, Timer::Padding(id)));
        let resting = link.quiet.resting.take().map(|time| (time, Timer::Rest(id)));
        for timer in watched.into_iter().chain(resting) {
            self.timers.remove(&timer);
        }
    }

    /// A circuit waits for a link to this relay.
    pub(crate) fn dial(&mut self, target: Target, circuit: u32) {
        if self.dialling.add(&target, circuit) {
            self.put(LinkOutput::Dial { target });
        }
    }

    /// Appends cells for a link until `out` has `limit` bytes or nothing is left; false if nothing
    /// is left.
    pub(crate) fn transmit(
        &mut self,
        now: Time,
        link: LinkId,
        out: &mut Vec<u8>,
        limit: usize,
    ) -> bool {
        while out.len() < limit {
            match self.channels.pop(now, link, out) {
                Popped::Nothing => return false,
                Popped::Cell { owner, left } if left < QUEUE_LOW && owner.outward == C::OUTWARD => {
                    self.pump_by(now, owner.circuit);
                }
                Popped::Own | Popped::Cell { .. } => {}
            }
        }
        true
    }

    /// Takes bytes of a stream's program; returns how many.
    pub(crate) fn write(&mut self, now: Time, stream: StreamKey, bytes: &[u8]) -> usize {
        let Some((set, id)) = self.streams.live(stream) else { return bytes.len() };
        let stream = self.set_mut(set).and_then(|set| set.streams.stream(id));
        let taken = stream.map_or(bytes.len(), |stream| stream.write(bytes));
        self.pump(now, set);
        taken
    }

    /// The bytes that wait for a stream's program: two pieces, in order.
    pub(crate) fn read(&self, stream: StreamKey) -> (&[u8], &[u8]) {
        if let Some((set, id)) = self.streams.live(stream) {
            let stream = self.sets.get(set.0).and_then(|set| set.streams.peek(id));
            return stream.map_or((&[], &[]), |stream| stream.incoming.as_slices());
        }
        self.streams.left(stream).map_or((&[], &[]), VecDeque::as_slices)
    }

    /// The program took the first `bytes` of [`Base::read`].
    pub(crate) fn consume(&mut self, now: Time, stream: StreamKey, bytes: usize) {
        let Some((key, id)) = self.streams.live(stream) else {
            if let Some(reason) = self.streams.consumed(stream, bytes) {
                self.put(StreamOutput::Ended { stream, reason, refused: None });
            }
            return;
        };
        if let Some(set) = self.set_mut(key) {
            set.streams.consumed(now, id, bytes);
            self.pump(now, key);
        }
    }

    /// The program has ended a stream; what it wrote before goes first.
    pub(crate) fn end(&mut self, now: Time, key: StreamKey, reason: EndReason) {
        let Some((set, id)) = self.streams.live(key) else { return self.streams.remove(key) };
        if let Some(stream) = self.set_mut(set).and_then(|set| set.streams.stream(id)) {
            stream.end(reason);
        }
        self.pump(now, set);
    }

    /// The streams of a set.
    pub(crate) fn set_mut(&mut self, set: SetId) -> Option<&mut Set> {
        self.sets.get_mut(set.0)
    }

    /// A circuit's queue has room again: sends what the set has that it is a leg of.
    fn pump_by(&mut self, now: Time, circuit: u32) {
        if let Some(set) = self.circuits.get(circuit).and_then(C::set) {
            self.pump(now, set);
        }
    }

    /// Sends what the set's streams have, as far as window and queue of its leg allow.
    pub(crate) fn pump(&mut self, now: Time, id: SetId) {
        let Some(set) = self.sets.get_mut(id.0) else { return };
        let parts = self.circuits.get_mut(set.leg).and_then(C::parts);
        let Some((lane, Some(leg), layers)) = parts else { return };
        let format = layers.format();
        for _ in self.channels.waiting(lane)..QUEUE_HIGH {
            let mut body = [0; BODY];
            let filled = set.streams.fill(now, format, leg.has_room(), &mut body, &mut *self.rng);
            let Some(filled) = filled else { break };
            let tag = layers.seal(Command::RELAY, &mut body);
            if let (Filled::Data, Some(tag)) = (filled, tag) {
                leg.sent(now, tag);
            }
            self.channels.push(now, lane, Command::RELAY, &body);
        }
        self.timers.extend(set.streams.wake_at().map(|time| (time, Timer::Streams(id))));
        self.tell(id);
    }

    /// Passes on what happened to streams.
    fn tell(&mut self, id: SetId) {
        let Some(set) = self.sets.get_mut(id.0) else { return };
        while let Some(happened) = set.streams.happened() {
            let told = match happened {
                Happened::Readable(stream) => Some(StreamOutput::Readable { stream }),
                Happened::Room(stream) => Some(StreamOutput::Room { stream }),
                Happened::Ended(stream, reason, refused, bytes) => {
                    let reason = self.streams.ended(stream, reason, bytes);
                    reason.map(|reason| StreamOutput::Ended { stream, reason, refused })
                }
                Happened::Finished(stream) => {
                    self.streams.remove(stream);
                    None
                }
            };
            self.outputs.extend(told.map(O::from));
        }
    }

    /// The only leg of a set is gone: so are its streams.
    pub(crate) fn dissolve(&mut self, id: SetId) {
        let Some(mut set) = self.sets.remove(id.0) else { return };
        for stream in set.streams.take_all() {
            let (key, reason) = (stream.key, EndReason::DESTROY);
            if let Some(reason) = self.streams.ended(key, reason, stream.incoming) {
                self.put(StreamOutput::Ended { stream: key, reason, refused: None });
            }
        }
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
        let parts = self.circuits.get_mut(index).and_then(C::parts);
        let Some((lane, _, layers)) = parts else { return };
        let mut body = [0; BODY];
        let message = Message { command: what, stream: 0, data };
        message::write(layers.format(), &mut body, message, &mut *self.rng);
        layers.seal(command, &mut body);
        self.channels.push(now, lane, command, &body);
    }

    /// A message that comes at either end of a circuit: DATA, END, flow control.
    ///
    /// # Errors
    /// What the other end did that it may not do.
    pub(crate) fn take_message(
        &mut self,
        now: Time,
        index: u32,
        message: Message<'_>,
        tag: Tag,
    ) -> Result<(), CircuitFault> {
        let circuit = self.circuits.get_mut(index).ok_or(CircuitFault::Message)?;
        let id = circuit.set().ok_or(CircuitFault::Message)?;
        let Some((lane, Some(leg), _)) = circuit.parts() else { return Err(CircuitFault::Message) };
        let Some(set) = self.sets.get_mut(id.0) else { return Err(CircuitFault::Message) };
        if (message.command, message.stream) == (RelayCommand::SENDME, 0) {
            let outlet = set.outlet(self.channels.waiting(lane));
            let tag = read_sendme(message.data).ok_or(CircuitFault::Sendme)?;
            leg.acknowledged(now, tag, outlet).map_err(|_| CircuitFault::Sendme)?;
            self.pump(now, id);
            return Ok(());
        }
        let is_data = message.command == RelayCommand::DATA;
        let due = if is_data { leg.received(tag) } else { None };
        let taken = set.take(now, message);
        if let Some(tag) = due {
            self.say(now, index, Command::RELAY, RelayCommand::SENDME, &put_sendme(&tag));
        }
        self.pump(now, id);
        taken
    }
}
