//! One end of a set of circuits (legs): it links legs, receives messages, and handles the loss of
//! legs.

use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use super::fault::ConfluxFault;
use super::legs::Legs;
use super::numbering::{Bases, Mark, Numbering, is_counted};
use super::reorder::{HeldMessage, Offer, ReorderQueue};
use super::retransmitter::Retransmitter;
use crate::wire::conflux::{ConfluxLink, DesiredUx, SetNonce, read_switch};
use crate::wire::message::{Message, RelayCommand};
use crate::wire::resilient::LegSwitch;

/// Limits on a set of circuits that carry the same streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of circuits (legs) that a set has at a time (`cfx_max_legs_set`).
    pub legs: usize,
    /// Maximum time to wait for the answer to LINK, or to LINKED. C tor has no timer for either.
    pub answer: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { legs: 8, answer: Duration::from_secs(60) }
    }
}

/// Consequence that the loss of a leg (parallel circuit) has for its set (C tor's `cfx_del_leg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The set continues on its other legs (circuits).
    Lives,
    /// Messages on the lost leg (parallel circuit) cannot be recovered. The set and all its
    /// streams end.
    Dies,
}

/// Outcome of the arrival of a message on a leg (parallel circuit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival<'d> {
    /// The caller must handle the message now, with this data, and then the messages that
    /// [`ConfluxEnd::pop`] returns.
    Now(&'d [u8]),
    /// The caller has nothing to handle now. The message waits for earlier messages, or it is a
    /// SWITCH message.
    Later,
    /// A duplicate: the message was received before, and the caller ignores it.
    Known,
}

/// State of a leg (parallel circuit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The client sent LINK on the leg (parallel circuit) at this time.
    Launched(Time),
    /// The exit sent LINKED on the leg (parallel circuit) at this time, and expects LINKED_ACK.
    Linked(Time),
    /// Both ends have linked the leg (parallel circuit), and it may carry data. The value is the
    /// round-trip time that was measured during linking.
    Ready(Duration),
}

/// The role of this end: client or exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Client,
    Exit,
}

/// One end (the client's or the exit's) of a set of circuits that carry the same streams.
#[derive(Debug)]
pub struct ConfluxEnd {
    role: Role,
    nonce: SetNonce,
    limits: Limits,
    numbering: Box<dyn Numbering>,
    queue: ReorderQueue,
    legs: Legs<State>,
    /// The leg (parallel circuit) on which the last message was sent; `None` before the first
    /// message, and after the loss of that leg if the set continues.
    current: Option<PathId>,
    desired: DesiredUx,
    /// True if a linked leg (parallel circuit) was lost. Its messages may be missing even if no
    /// gap in the sequence numbers has appeared yet.
    lost_linked_leg: bool,
    gone: bool,
    /// State for retransmission, in designs that send messages again when a leg (parallel circuit)
    /// fails; `None` in other designs.
    retransmitter: Option<Retransmitter>,
}

impl ConfluxEnd {
    /// Returns the client's end of a circuit set, without legs (parallel circuits) yet.
    #[must_use]
    pub fn client(nonce: SetNonce, numbering: Box<dyn Numbering>, limits: Limits) -> ConfluxEnd {
        ConfluxEnd::new(Role::Client, nonce, numbering, limits)
    }

    /// Returns the exit's end of a circuit set, without legs (parallel circuits) yet. Create it
    /// for a LINK message with an unknown nonce, and then pass that message to
    /// [`ConfluxEnd::link`].
    #[must_use]
    pub fn exit(nonce: SetNonce, numbering: Box<dyn Numbering>, limits: Limits) -> ConfluxEnd {
        ConfluxEnd::new(Role::Exit, nonce, numbering, limits)
    }

    fn new(
        role: Role,
        nonce: SetNonce,
        numbering: Box<dyn Numbering>,
        limits: Limits,
    ) -> ConfluxEnd {
        ConfluxEnd {
            role,
            nonce,
            limits,
            numbering,
            queue: ReorderQueue::new(),
            legs: Legs::default(),
            current: None,
            desired: DesiredUx::None,
            lost_linked_leg: false,
            gone: false,
            retransmitter: None,
        }
    }

    /// Returns this end with retransmission switched on. Messages that are lost with a leg
    /// (parallel circuit) are then sent again, so that the set continues without the leg.
    #[must_use]
    pub fn keeping(self) -> ConfluxEnd {
        let retransmitter = Some(Retransmitter::new(self.role == Role::Client));
        ConfluxEnd { retransmitter, ..self }
    }

    /// Returns the retransmission state. Returns `None` if this end does not send lost messages
    /// again.
    pub const fn retransmitter_mut(&mut self) -> Option<&mut Retransmitter> {
        self.retransmitter.as_mut()
    }

    /// Returns the retransmission state for reading. Returns `None` if this end does not send lost
    /// messages again.
    #[must_use]
    pub const fn retransmitter(&self) -> Option<&Retransmitter> {
        self.retransmitter.as_ref()
    }

    /// Adds one of the client's circuits as a leg. Returns the leg's slot (its index in the set)
    /// and the LINK message to send. The leg counts from the sequence numbers (0, 0), which LINK
    /// contains. With these values, exits that run C tor let the leg join a set that is already in
    /// use.
    ///
    /// # Errors
    /// The set is full or has ended.
    pub fn launch(
        &mut self,
        now: Time,
        ux: DesiredUx,
    ) -> Result<(PathId, ConfluxLink), ConfluxFault> {
        self.check(Role::Client)?;
        let leg = self.add(State::Launched(now), Bases::default())?;
        if let Some(retransmitter) = &mut self.retransmitter {
            retransmitter.launch(now, leg);
        }
        Ok((leg, ConfluxLink { nonce: self.nonce, sent: 0, received: 0, ux }))
    }

    /// Handles LINK. Returns the leg's slot (its index in the set) and the LINKED message to send.
    /// `clean` is true if the circuit never had a stream or a lookup. The leg may receive data at
    /// once. It may send data once LINKED_ACK has arrived.
    ///
    /// LINKED repeats the sequence numbers in LINK, so that both ends count from the same values.
    /// This holds with C tor, with Arti, and for legs that join a set in use.
    ///
    /// # Errors
    /// The leg may not join.
    pub fn link(
        &mut self,
        now: Time,
        link: &ConfluxLink,
        clean: bool,
        ux: DesiredUx,
    ) -> Result<(PathId, ConfluxLink), ConfluxFault> {
        self.check(Role::Exit)?;
        if !clean {
            return Err(ConfluxFault::Streams);
        }
        if link.nonce != self.nonce {
            return Err(ConfluxFault::Nonce);
        }
        let delivered = self.queue.next_number() - 1;
        if link.sent > delivered || link.received > self.numbering.last_sent() {
            return Err(ConfluxFault::DataLoss);
        }
        let bases = Bases { sent: link.received, received: link.sent };
        let leg = self.add(State::Linked(now), bases)?;
        self.desired = link.ux;
        let (sent, received) = (link.received, link.sent);
        Ok((leg, ConfluxLink { nonce: self.nonce, sent, received, ux }))
    }

    /// Sets the serial number of the linked leg `leg` (parallel circuit), in designs whose legs
    /// have serial numbers.
    pub fn name(&mut self, leg: PathId, serial: u32) {
        if let Some(retransmitter) = &mut self.retransmitter {
            retransmitter.join(leg, serial);
            retransmitter.linked(leg);
        }
    }

    /// Handles LINKED, received on the leg `leg` (a parallel circuit). The caller must send
    /// LINKED_ACK at once.
    ///
    /// # Errors
    /// LINKED is not expected, or belongs to another set.
    pub fn linked(
        &mut self,
        now: Time,
        leg: PathId,
        linked: &ConfluxLink,
    ) -> Result<(), ConfluxFault> {
        self.check(Role::Client)?;
        if linked.nonce != self.nonce {
            return Err(ConfluxFault::Nonce);
        }
        match self.state(leg)? {
            // For a set in use, C tor's exits send the set's numbers in LINKED. Ignore them: both
            // ends count on a new leg from (0, 0).
            State::Launched(sent) => {
                self.desired = linked.ux;
                self.legs.set(leg, State::Ready(now.since(sent)));
                if let Some(retransmitter) = &mut self.retransmitter {
                    retransmitter.linked(leg);
                    retransmitter.measured(leg, now.since(sent));
                }
                Ok(())
            }
            State::Linked(_) | State::Ready(_) => Err(ConfluxFault::Twice),
        }
    }

    /// Handles LINKED_ACK, received on the leg `leg` (a parallel circuit).
    ///
    /// # Errors
    /// LINKED_ACK is not expected.
    pub fn acknowledged(&mut self, now: Time, leg: PathId) -> Result<(), ConfluxFault> {
        self.check(Role::Exit)?;
        match self.state(leg)? {
            State::Linked(sent) => {
                self.legs.set(leg, State::Ready(now.since(sent)));
                if let Some(retransmitter) = &mut self.retransmitter {
                    retransmitter.measured(leg, now.since(sent));
                }
                Ok(())
            }
            State::Launched(_) | State::Ready(_) => Err(ConfluxFault::Twice),
        }
    }

    /// Handles `message`, received on `leg`. The message is SWITCH or belongs to a stream.
    /// Messages without a sequence number ([`is_counted`]) do not wait for earlier messages.
    ///
    /// # Errors
    /// Returns the violation. [`ConfluxFault::closes`] returns whether the violation closes the
    /// leg or the whole set of circuits.
    pub fn receive<'d>(
        &mut self,
        leg: PathId,
        message: Message<'d>,
    ) -> Result<Arrival<'d>, ConfluxFault> {
        let Message { command, stream, data } = message;
        self.alive()?;
        if matches!(self.state(leg)?, State::Launched(_)) {
            return Err(ConfluxFault::NotLinked);
        }
        let next = self.queue.next_number();
        if command == RelayCommand::CONFLUX_SWITCH {
            let by = read_switch(data).ok_or(ConfluxFault::Unreadable)?;
            return self.numbering.switched(leg, by, next).map(|()| Arrival::Later);
        }
        if command == RelayCommand::RESILIENT_SWITCH {
            let switch = LegSwitch::read(data).ok_or(ConfluxFault::Unreadable)?;
            return self.numbering.renumbered(leg, switch, next).map(|()| Arrival::Later);
        }
        if !is_counted(command, stream) {
            return Ok(Arrival::Now(data));
        }
        self.take(leg, message)
    }

    /// Handles a cell of the trunk (the circuit that continues from the relay where the legs
    /// join), received on `leg`. The whole cell is treated as the data of a message.
    ///
    /// # Errors
    /// See [`ConfluxEnd::receive`].
    pub fn receive_cell<'d>(
        &mut self,
        leg: PathId,
        cell: Message<'d>,
    ) -> Result<Arrival<'d>, ConfluxFault> {
        if matches!(self.state(leg)?, State::Launched(_)) {
            return Err(ConfluxFault::NotLinked);
        }
        self.take(leg, cell)
    }

    /// Handles a message that has a sequence number. Stores it if earlier messages have not
    /// arrived yet.
    fn take<'d>(&mut self, leg: PathId, message: Message<'d>) -> Result<Arrival<'d>, ConfluxFault> {
        let Message { command, stream, data } = message;
        let next = self.queue.next_number();
        let (number, data) = self.numbering.received(leg, data, next)?;
        let held = || HeldMessage { leg, command, stream, data: data.to_vec() };
        match self.queue.offer(number, held) {
            Offer::Next => Ok(Arrival::Now(data)),
            Offer::Waits if self.misses_what_is_lost() => Err(ConfluxFault::DataLoss),
            Offer::Waits => Ok(Arrival::Later),
            Offer::Repeated if self.numbering.resends() => Ok(Arrival::Known),
            Offer::Repeated => Err(ConfluxFault::Repeated),
            Offer::Full => Err(ConfluxFault::Full),
        }
    }

    /// Removes and returns the next stored message. Returns `None` if no stored message is next in
    /// order, or if the set of circuits has ended.
    pub fn pop(&mut self) -> Option<HeldMessage> {
        self.queue.pop()
    }

    /// Assigns a sequence number to a message to send on `leg` (a parallel circuit). The caller
    /// sends the message together with the returned [`Mark`].
    ///
    /// # Errors
    /// The set has ended, the leg is not linked, or the sequence number cannot be conveyed.
    pub fn send(&mut self, leg: PathId) -> Result<Mark, ConfluxFault> {
        self.alive()?;
        if matches!(self.state(leg)?, State::Launched(_)) {
            return Err(ConfluxFault::NotLinked);
        }
        let mark = self.numbering.send(leg)?;
        self.current = Some(leg);
        Ok(mark)
    }

    /// Returns the encoding of the sequence number `number`, for sending a message again on `leg`
    /// (a parallel circuit) after it was lost with another leg. The message's data leaves `spare`
    /// bytes of the cell free.
    ///
    /// # Errors
    /// See [`ConfluxEnd::send`].
    pub fn again(&mut self, leg: PathId, number: u64, spare: usize) -> Result<Mark, ConfluxFault> {
        self.alive()?;
        if matches!(self.state(leg)?, State::Launched(_)) {
            return Err(ConfluxFault::NotLinked);
        }
        self.numbering.again(leg, number, spare)
    }

    /// Removes the closed leg `leg` (parallel circuit), and returns the consequence for the set.
    /// `unacknowledged` is true if many cells were in flight on the leg: at least the number that
    /// one SENDME acknowledges.
    pub fn lose(&mut self, leg: PathId, unacknowledged: bool) -> Fate {
        let Ok(state) = self.state(leg) else { return self.fate() };
        let was_linked = !matches!(state, State::Launched(_));
        let lost = was_linked
            && (unacknowledged || self.current == Some(leg) || self.numbering.leads(leg));
        self.legs.remove(leg);
        self.numbering.leave(leg);
        if let Some(retransmitter) = &mut self.retransmitter {
            self.current.take_if(|current| *current == leg);
            if !retransmitter.lose(leg) {
                self.die();
            }
            return self.fate();
        }
        self.lost_linked_leg |= was_linked;
        // A set whose last linked leg has closed must end, even if further legs are being linked.
        // They would join a different set (TROVE-2026-026).
        let alone = was_linked && self.linked_legs() == 0;
        if lost || alone || self.misses_what_is_lost() {
            self.die();
        }
        self.fate()
    }

    /// Returns true if later messages wait for a message that was lost with a leg (parallel
    /// circuit). C tor lets a set continue if fewer cells are lost than one SENDME acknowledges.
    /// The streams of that set then wait forever.
    fn misses_what_is_lost(&self) -> bool {
        self.lost_linked_leg && self.bytes() > 0 && self.numbering.passed(self.queue.next_number())
    }

    /// Ends the set of circuits: drops stored messages, and refuses later ones.
    pub fn die(&mut self) {
        self.gone = true;
        self.legs.clear();
        self.queue.clear();
        self.retransmitter.iter_mut().for_each(Retransmitter::clear);
    }

    /// Iterates over the legs (parallel circuits) on which the other end has not answered LINK or
    /// LINKED in time. The caller must close them.
    pub fn late(&self, now: Time) -> impl Iterator<Item = PathId> + '_ {
        let due = move |state: &State| self.due(state).is_some_and(|due| due <= now);
        self.legs.iter().filter(move |(_, state)| due(state)).map(|(leg, _)| leg)
    }

    /// Returns the earliest time at which a leg (parallel circuit) must be closed because LINK or
    /// LINKED was not answered; `None` if no such answer is awaited.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.legs.iter().filter_map(|(_, state)| self.due(state)).min()
    }

    fn due(&self, state: &State) -> Option<Time> {
        match state {
            State::Launched(sent) | State::Linked(sent) => Some(*sent + self.limits.answer),
            State::Ready(_) => None,
        }
    }

    /// Returns the round-trip time of `leg` (a parallel circuit) that was measured when the leg
    /// was linked. Returns `None` before that; the leg then carries no data.
    #[must_use]
    pub fn rtt(&self, leg: PathId) -> Option<Duration> {
        match self.state(leg) {
            Ok(State::Ready(rtt)) => Some(rtt),
            _ => None,
        }
    }

    /// Returns the longest round-trip time of all legs (parallel circuits), as measured when they
    /// were linked.
    #[must_use]
    pub fn longest_rtt(&self) -> Duration {
        self.legs.iter().filter_map(|(leg, _)| self.rtt(leg)).max().unwrap_or_default()
    }

    /// Returns the other end's preference for the scheduling of the data that we send to it.
    #[must_use]
    pub const fn desired(&self) -> DesiredUx {
        self.desired
    }

    /// Returns true if messages other than stream data may be sent on `leg` (a parallel circuit).
    /// The leg must be linked, and the other end must be answering on it.
    #[must_use]
    pub fn may_send(&self, leg: PathId) -> bool {
        let is_linked = matches!(self.state(leg), Ok(State::Linked(_) | State::Ready(_)));
        is_linked && !self.is_silent(leg)
    }

    /// Returns the number of legs (parallel circuits) that may carry data. Their round-trip times
    /// were measured when they were linked.
    #[must_use]
    pub fn measured_legs(&self) -> usize {
        self.legs.iter().filter(|(_, state)| matches!(state, State::Ready(_))).count()
    }

    /// Returns the maximum number of legs (parallel circuits) that the set has at a time.
    #[must_use]
    pub const fn most_legs(&self) -> usize {
        self.limits.legs
    }

    /// Returns true if this is the exit's end of the set, false if it is the client's end.
    #[must_use]
    pub fn is_exit(&self) -> bool {
        self.role == Role::Exit
    }

    /// Returns the nonce that identifies the set. All its circuits carry the same nonce.
    #[must_use]
    pub const fn nonce(&self) -> &SetNonce {
        &self.nonce
    }

    /// Returns the sequence number of the last message that this end sent.
    #[must_use]
    pub fn last_sent(&self) -> u64 {
        self.numbering.last_sent()
    }

    /// Returns the lag of `leg` (a parallel circuit) in messages, as SWITCH conveys it: the
    /// difference between the last sequence number sent on any leg and the last sent on `leg`.
    #[must_use]
    pub fn backlog(&self, leg: PathId) -> u64 {
        self.numbering.backlog(leg)
    }

    /// Returns the leg (parallel circuit) on which the last message was sent. Returns `None`
    /// before the first message, and after the loss of that leg if the set continues.
    #[must_use]
    pub const fn current(&self) -> Option<PathId> {
        self.current
    }

    /// Returns the number of bytes that a message's sequence number takes in each cell.
    #[must_use]
    pub fn overhead(&self) -> usize {
        self.numbering.overhead()
    }

    /// Returns the number of legs (parallel circuits) that are linked.
    #[must_use]
    pub fn linked_legs(&self) -> usize {
        let launched = |state: &State| matches!(state, State::Launched(_));
        self.legs.iter().filter(|(_, state)| !launched(state)).count()
    }

    /// Returns the queue of received messages that wait for earlier ones.
    pub const fn queue(&mut self) -> &mut ReorderQueue {
        &mut self.queue
    }

    /// Returns the queue of received messages that wait for earlier ones, for reading.
    #[must_use]
    pub const fn waiting(&self) -> &ReorderQueue {
        &self.queue
    }

    /// Returns the name of the set's scheme of sequence numbers. In statistics, this name stands
    /// for the set's design.
    #[must_use]
    pub fn design(&self) -> &'static str {
        self.numbering.name()
    }

    /// Returns the number of extra cells that a change from one leg (parallel circuit) to another
    /// costs.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.numbering.turn()
    }

    /// Returns the total size in bytes of received messages that wait for earlier ones.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Returns the total size in bytes of stored messages: received ones that wait for earlier
    /// messages, and sent ones that wait for their acknowledgement.
    #[must_use]
    pub fn held(&self) -> usize {
        self.queue.bytes() + self.retransmitter.as_ref().map_or(0, Retransmitter::bytes)
    }

    /// Returns true if the other end no longer answers on `leg` (a parallel circuit).
    #[must_use]
    pub fn is_silent(&self, leg: PathId) -> bool {
        self.retransmitter.as_ref().is_some_and(|retransmitter| retransmitter.is_silent(leg))
    }

    const fn fate(&self) -> Fate {
        if self.gone { Fate::Dies } else { Fate::Lives }
    }

    const fn alive(&self) -> Result<(), ConfluxFault> {
        if self.gone { Err(ConfluxFault::Gone) } else { Ok(()) }
    }

    fn check(&self, role: Role) -> Result<(), ConfluxFault> {
        self.alive()?;
        if self.role == role { Ok(()) } else { Err(ConfluxFault::Role) }
    }

    fn state(&self, leg: PathId) -> Result<State, ConfluxFault> {
        self.alive()?;
        self.legs.get(leg).copied()
    }

    /// Adds a leg (parallel circuit) in the first free slot (index in the set). The leg's sequence
    /// numbers continue from `bases`.
    fn add(&mut self, state: State, bases: Bases) -> Result<PathId, ConfluxFault> {
        if self.legs.iter().count() >= self.limits.legs {
            return Err(ConfluxFault::TooManyLegs);
        }
        let leg = self.legs.free();
        self.numbering.join(leg, bases)?;
        self.legs.set(leg, state);
        Ok(leg)
    }
}

/// Returns true if a circuit may carry messages with this command while it is a leg of a set, or
/// is being linked. Directory requests and requests to extend the circuit are not allowed. A
/// directory request is answered with END (reason 14, NOTDIRECTORY), and the circuit stays open. A
/// request to extend the circuit is a violation.
#[must_use]
pub const fn may_carry(command: RelayCommand) -> bool {
    !matches!(command, RelayCommand::BEGIN_DIR | RelayCommand::EXTEND | RelayCommand::EXTEND2)
}
