//! One end of a set of legs: who may join it, what comes by a leg, and what a leg's loss means.

use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use super::fault::ConfluxFault;
use super::legs::Legs;
use super::numbering::{Bases, Mark, Numbering, is_counted};
use super::reorder::{Held, Offer, ReorderQueue};
use super::retransmitter::Retransmitter;
use crate::wire::conflux::{ConfluxLink, DesiredUx, SetNonce, read_switch};
use crate::wire::message::{Message, RelayCommand};
use crate::wire::resilient::LegSwitch;

/// What an end allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Legs of a set at once (`cfx_max_legs_set`).
    pub legs: usize,
    /// How long the other end may take to answer LINK, or LINKED. C tor has a timer for neither.
    pub answer: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { legs: 8, answer: Duration::from_secs(60) }
    }
}

/// What the loss of a leg means for the set (C tor's `cfx_del_leg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The others go on.
    Lives,
    /// What was on that leg is lost: the set and all its streams end.
    Dies,
}

/// What becomes of a message that came by a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival<'d> {
    /// It is to be taken now, with this data; then what [`ConfluxEnd::pop`] gives.
    Now(&'d [u8]),
    /// Nothing is to be taken now: it waits, or it was SWITCH.
    Later,
    /// Never: it was sent again, and has been taken.
    Known,
}

/// How far a leg is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// LINK was said at that time (client).
    Launched(Time),
    /// LINKED was said at that time; LINKED_ACK is owed (exit).
    Linked(Time),
    /// Measured: it may carry data.
    Ready(Duration),
}

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Client,
    Exit,
}

/// One end of a set.
#[derive(Debug)]
pub struct ConfluxEnd {
    role: Role,
    nonce: SetNonce,
    limits: Limits,
    numbering: Box<dyn Numbering>,
    queue: ReorderQueue,
    legs: Legs<State>,
    /// The leg that was sent by last.
    current: Option<PathId>,
    desired: DesiredUx,
    /// A leg was lost, perhaps with messages that nobody misses yet.
    maimed: bool,
    gone: bool,
    /// What was sent, where it is sent again if a leg dies with it.
    retransmitter: Option<Retransmitter>,
}

impl ConfluxEnd {
    /// A client's, without legs.
    #[must_use]
    pub fn client(nonce: SetNonce, numbering: Box<dyn Numbering>, limits: Limits) -> ConfluxEnd {
        ConfluxEnd::new(Role::Client, nonce, numbering, limits)
    }

    /// An exit's, without legs: a LINK came with a nonce that no set has. Give that to
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
            maimed: false,
            gone: false,
            retransmitter: None,
        }
    }

    /// The same, where what is lost with a leg is sent again: the set outlives its legs.
    #[must_use]
    pub fn keeping(self) -> ConfluxEnd {
        let retransmitter = Some(Retransmitter::new(self.role == Role::Client));
        ConfluxEnd { retransmitter, ..self }
    }

    /// What was sent and is not acknowledged, if that is kept.
    pub const fn retransmitter_mut(&mut self) -> Option<&mut Retransmitter> {
        self.retransmitter.as_mut()
    }

    /// The same to look at.
    #[must_use]
    pub const fn retransmitter(&self) -> Option<&Retransmitter> {
        self.retransmitter.as_ref()
    }

    /// A circuit of the client's is to be a leg: its place, and the LINK to say. It says (0, 0),
    /// and counts from there: so stock exits let legs join a set in use.
    ///
    /// # Errors
    /// The set is full or gone.
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

    /// LINK came: the leg's place, and the LINKED to say. `clean` says that the circuit never had a
    /// stream or a look-up. The leg receives at once, and is sent data by once LINKED_ACK has come.
    ///
    /// LINKED mirrors the numbers of LINK, so that C tor, Arti and legs that join late all count
    /// alike.
    ///
    /// # Errors
    /// It may not join.
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

    /// A leg that was linked has this number, where legs have one.
    pub fn name(&mut self, leg: PathId, serial: u32) {
        if let Some(retransmitter) = &mut self.retransmitter {
            retransmitter.join(leg, serial);
            retransmitter.linked(leg);
        }
    }

    /// LINKED came by a leg: LINKED_ACK is to be said at once.
    ///
    /// # Errors
    /// It is not owed, or of another set.
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
            // C tor's exits say the numbers of a set in use; a leg counts from (0, 0) all the same,
            // as they do.
            State::Launched(said) => {
                self.desired = linked.ux;
                self.legs.set(leg, State::Ready(now.since(said)));
                if let Some(retransmitter) = &mut self.retransmitter {
                    retransmitter.linked(leg);
                    retransmitter.measured(leg, now.since(said));
                }
                Ok(())
            }
            State::Linked(_) | State::Ready(_) => Err(ConfluxFault::Twice),
        }
    }

    /// LINKED_ACK came by a leg.
    ///
    /// # Errors
    /// It is not owed.
    pub fn acknowledged(&mut self, now: Time, leg: PathId) -> Result<(), ConfluxFault> {
        self.check(Role::Exit)?;
        match self.state(leg)? {
            State::Linked(said) => {
                self.legs.set(leg, State::Ready(now.since(said)));
                if let Some(retransmitter) = &mut self.retransmitter {
                    retransmitter.measured(leg, now.since(said));
                }
                Ok(())
            }
            State::Launched(_) | State::Ready(_) => Err(ConfluxFault::Twice),
        }
    }

    /// A message came by a leg, which has a number, or is SWITCH.
    ///
    /// # Errors
    /// What it may not do: [`ConfluxFault::closes`] says what is to be closed.
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

    /// A cell came by a leg that passes: as a message, all of which is its data.
    ///
    /// # Errors
    /// As [`ConfluxEnd::receive`].
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

    /// Takes a message that has a number, or keeps it for its turn.
    fn take<'d>(&mut self, leg: PathId, message: Message<'d>) -> Result<Arrival<'d>, ConfluxFault> {
        let Message { command, stream, data } = message;
        let next = self.queue.next_number();
        let (number, data) = self.numbering.received(leg, data, next)?;
        let held = || Held { leg, command, stream, data: data.to_vec() };
        match self.queue.offer(number, held) {
            Offer::Next => Ok(Arrival::Now(data)),
            Offer::Waits if self.misses_what_is_lost() => Err(ConfluxFault::DataLoss),
            Offer::Waits => Ok(Arrival::Later),
            Offer::Repeated if self.numbering.resends() => Ok(Arrival::Known),
            Offer::Repeated => Err(ConfluxFault::Repeated),
            Offer::Full => Err(ConfluxFault::Full),
        }
    }

    /// The next message of those that waited, if its turn has come and the set still is.
    pub fn pop(&mut self) -> Option<Held> {
        self.queue.pop()
    }

    /// A message that has a number is sent by this leg, behind what the mark says.
    ///
    /// # Errors
    /// The set is gone, the leg is not linked, or the number cannot be told.
    pub fn send(&mut self, leg: PathId) -> Result<Mark, ConfluxFault> {
        self.alive()?;
        if matches!(self.state(leg)?, State::Launched(_)) {
            return Err(ConfluxFault::NotLinked);
        }
        let mark = self.numbering.send(leg)?;
        self.current = Some(leg);
        Ok(mark)
    }

    /// A message that went by a leg which is gone is sent again by this one; its data leaves so
    /// many bytes of the cell's free.
    ///
    /// # Errors
    /// As [`ConfluxEnd::send`].
    pub fn again(&mut self, leg: PathId, number: u64, spare: usize) -> Result<Mark, ConfluxFault> {
        self.alive()?;
        if matches!(self.state(leg)?, State::Launched(_)) {
            return Err(ConfluxFault::NotLinked);
        }
        self.numbering.again(leg, number, spare)
    }

    /// A leg is gone. `unacknowledged` says that data was under way on it that a SENDME would have
    /// covered.
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
        self.maimed |= was_linked;
        // Legs that are being linked do not keep a set whose last linked leg has closed: who came
        // to it then would find another set (TROVE-2026-026).
        let alone = was_linked && self.linked_legs() == 0;
        if lost || alone || self.misses_what_is_lost() {
            self.die();
        }
        self.fate()
    }

    /// Whether the message that the others wait for went by a leg that is no more. The rules of C
    /// tor let a set live that lost fewer cells than one SENDME covers; its streams would hang.
    fn misses_what_is_lost(&self) -> bool {
        self.maimed && self.bytes() > 0 && self.numbering.passed(self.queue.next_number())
    }

    /// The set ends: nothing waits any more, and whatever comes is refused.
    pub fn die(&mut self) {
        self.gone = true;
        self.legs.clear();
        self.queue.clear();
        self.retransmitter.iter_mut().for_each(Retransmitter::clear);
    }

    /// The legs whose other end has not answered in time. They are to be closed.
    pub fn late(&self, now: Time) -> impl Iterator<Item = PathId> + '_ {
        let due = move |state: &State| self.due(state).is_some_and(|due| due <= now);
        self.legs.iter().filter(move |(_, state)| due(state)).map(|(leg, _)| leg)
    }

    /// When the first leg will be late.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.legs.iter().filter_map(|(_, state)| self.due(state)).min()
    }

    fn due(&self, state: &State) -> Option<Time> {
        match state {
            State::Launched(said) | State::Linked(said) => Some(*said + self.limits.answer),
            State::Ready(_) => None,
        }
    }

    /// The round-trip time that linking measured; `None` before that, when a leg carries no data.
    #[must_use]
    pub fn rtt(&self, leg: PathId) -> Option<Duration> {
        match self.state(leg) {
            Ok(State::Ready(rtt)) => Some(rtt),
            _ => None,
        }
    }

    /// The longest of what linking measured.
    #[must_use]
    pub fn longest_rtt(&self) -> Duration {
        self.legs.iter().filter_map(|(leg, _)| self.rtt(leg)).max().unwrap_or_default()
    }

    /// How the other end wants to be sent to.
    #[must_use]
    pub const fn desired(&self) -> DesiredUx {
        self.desired
    }

    /// Whether a leg may be sent messages that are no data: it is linked.
    #[must_use]
    pub fn may_send(&self, leg: PathId) -> bool {
        let is_linked = matches!(self.state(leg), Ok(State::Linked(_) | State::Ready(_)));
        is_linked && !self.is_silent(leg)
    }

    /// Legs that are measured: they may carry data.
    #[must_use]
    pub fn measured_legs(&self) -> usize {
        self.legs.iter().filter(|(_, state)| matches!(state, State::Ready(_))).count()
    }

    /// Legs of a set at once.
    #[must_use]
    pub const fn most_legs(&self) -> usize {
        self.limits.legs
    }

    /// Whether this is the exit's end.
    #[must_use]
    pub fn is_exit(&self) -> bool {
        self.role == Role::Exit
    }

    /// What the set's circuits have in common.
    #[must_use]
    pub const fn nonce(&self) -> &SetNonce {
        &self.nonce
    }

    /// The number of our last message.
    #[must_use]
    pub fn last_sent(&self) -> u64 {
        self.numbering.last_sent()
    }

    /// By how much SWITCH would bring a leg forward.
    #[must_use]
    pub fn behind(&self, leg: PathId) -> u64 {
        self.numbering.behind(leg)
    }

    /// The leg that was sent by last.
    #[must_use]
    pub const fn current(&self) -> Option<PathId> {
        self.current
    }

    /// Bytes by which a message's data is shorter than a cell's.
    #[must_use]
    pub fn overhead(&self) -> usize {
        self.numbering.overhead()
    }

    /// Legs that are linked.
    #[must_use]
    pub fn linked_legs(&self) -> usize {
        let launched = |state: &State| matches!(state, State::Launched(_));
        self.legs.iter().filter(|(_, state)| !launched(state)).count()
    }

    /// Messages that wait for others.
    pub const fn queue(&mut self) -> &mut ReorderQueue {
        &mut self.queue
    }

    /// The same to look at.
    #[must_use]
    pub const fn waiting(&self) -> &ReorderQueue {
        &self.queue
    }

    /// How messages are numbered, by name.
    #[must_use]
    pub fn design(&self) -> &'static str {
        self.numbering.name()
    }

    /// Cells that a change of leg costs.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.numbering.turn()
    }

    /// Bytes that wait.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Bytes that wait for others, or for their acknowledgement.
    #[must_use]
    pub fn held(&self) -> usize {
        self.queue.bytes() + self.retransmitter.as_ref().map_or(0, Retransmitter::bytes)
    }

    /// Whether a leg does not answer any more.
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

    /// Takes the first free place.
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

/// Whether a circuit that is a leg, or is being linked, may carry this message. Directory requests
/// are answered with END (reason 14), and the circuit stays; a leg is not extended.
#[must_use]
pub const fn may_carry(command: RelayCommand) -> bool {
    !matches!(command, RelayCommand::BEGIN_DIR | RelayCommand::EXTEND | RelayCommand::EXTEND2)
}
