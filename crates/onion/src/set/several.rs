//! State of a circuit set that may have several parallel circuits (legs): the legs, the scheduler
//! that distributes messages among them, and limits on waiting messages.

use std::time::Duration;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Assignment, LegView, PathId, PathView, Splitter, Time, seed};

use super::QUEUE_HIGH;
use super::numbers::{LegNumbers, SetNumbers};
use super::trunk::TrunkState;
use crate::channels::Channels;
use crate::conflux::legs::Legs;
use crate::conflux::{
    ConfluxEnd, ConfluxFault, Design, Fate, LegScheduler, Mark, Retransmitter, SentMessage,
};
use crate::ending::Ending;
use crate::leg::Leg;
use crate::table::Slab;
use crate::wire::cell::{Body, Command};
use crate::wire::conflux::DesiredUx;
use crate::wire::message::{Format, Message, RelayCommand};

/// Maximum number of messages that the first SWITCH on a leg (parallel circuit) may skip before
/// the client has acknowledged any data. If more are skipped before any message was delivered,
/// Arti closes the leg, although a larger number may be correct.
const FIRST: u64 = 124;
/// Minimum period over which arrived cells are counted, to estimate the peer's window. The
/// round-trip times measured when circuits join the set may be too short a period: they exclude
/// the queues of a busy circuit.
const LEAST_PERIOD: Duration = Duration::from_millis(200);

/// The parallel circuits (legs) of a set, and the scheduler that distributes messages among them.
pub(crate) struct SetLegs {
    pub(crate) end: ConfluxEnd,
    pub(crate) design: Design,
    /// The trunk (the circuit that continues from the relay at which the legs join) and its
    /// waiting cells. `None` if the legs do not join at a middle relay.
    pub(crate) trunk_state: Option<TrunkState>,
    /// The parallel circuits of the set, by slot.
    circuits: Legs<u32>,
    /// Cells that arrived recently on any leg (parallel circuit).
    arrivals: Arrivals,
    /// Scheduler that distributes messages; `None` if the other end requests the scheduler.
    dealing: Option<LegScheduler>,
    splitter: Option<(DesiredUx, Splitter)>,
    seed: u64,
    views: Vec<PathView>,
    /// Copy of `views`, the state of each leg (parallel circuit) as the scheduler sees it. In this
    /// copy, the window of a leg is 0 if no stream has room on the leg.
    narrowed: Vec<PathView>,
    /// True if the other end has acknowledged data on any leg (parallel circuit).
    has_acknowledgement: bool,
    /// True if the circuit set's streams are paused.
    paused: bool,
    /// The leg (parallel circuit) on which the most recent message with a sequence number arrived;
    /// `None` before the first.
    lively: Option<PathId>,
    /// Number of buffered bytes ([`SetLegs::held`]) at the last count.
    counted: usize,
    /// Format of messages in the cells of the legs (parallel circuits). All legs have the same
    /// format, so that a message that was sent on one leg can be sent again on any other. `None`
    /// before the first leg.
    format: Option<Format>,
    /// Expiry time of the timer for actions on the set's parallel circuits; `None` if the timer is
    /// not set.
    leg_timer: Option<Time>,
}

/// A cell of the trunk (the circuit that continues where the set's legs join) that is to be sent
/// on a leg.
pub(crate) struct TrunkCell {
    /// The cell's sequence number in the circuit set if the cell is retransmitted; `None` if it is
    /// new.
    again: Option<u64>,
    pub(crate) command: Command,
    pub(crate) body: Vec<u8>,
}

/// Count of the DATA cells that arrived since `since`. It is a lower bound of the peer's total
/// window: the counting period is about the longest round-trip time of a leg (parallel circuit).
/// In this time, a sender sends at most as many cells as its windows allow.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    since: Time,
    cells: u64,
}

impl SetLegs {
    /// Returns a state without legs (parallel circuits). `seed` is the scheduler's only source of
    /// randomness. `dealing` is the scheduler that the user or the other end requests; if it is
    /// `None`, the design determines the scheduler.
    pub(crate) fn new(
        end: ConfluxEnd,
        design: Design,
        dealing: Option<LegScheduler>,
        seed: u64,
    ) -> SetLegs {
        let dealing = dealing.or_else(|| design.dealing());
        SetLegs {
            end,
            design,
            trunk_state: design.is_merged().then(TrunkState::default),
            circuits: Legs::default(),
            arrivals: Arrivals::default(),
            dealing,
            splitter: None,
            seed,
            views: Vec::new(),
            narrowed: Vec::new(),
            has_acknowledgement: false,
            paused: false,
            lively: None,
            counted: 0,
            format: None,
            leg_timer: None,
        }
    }

    /// Returns true if a circuit with this message format may join the set. Any format may join if
    /// the circuits carry whole cells to or from a middle relay at which they join.
    pub(crate) fn takes_format(&mut self, format: Format) -> bool {
        !self.design.is_resilient()
            || self.trunk_state.is_some()
            || *self.format.get_or_insert(format) == format
    }

    /// Sets the timer for actions on legs (parallel circuits) if the next action is due before the
    /// timer expires. `streams` is true if the circuit set has streams. Returns the timer's new
    /// time, or `None` if the timer does not change.
    pub(crate) fn arm_leg_timer(&mut self, streams: bool) -> Option<Time> {
        let due = self.end.retransmitter()?.next_timeout(streams)?;
        let sooner = self.leg_timer.is_none_or(|at| due < at);
        sooner.then(|| *self.leg_timer.insert(due))
    }

    /// Notes that the timer for actions on legs (parallel circuits) has expired.
    pub(crate) fn leg_timer_expired(&mut self) {
        self.leg_timer = None;
    }

    /// Counts the buffered bytes again ([`SetLegs::held`]). Returns the previous count and the new
    /// count.
    pub(crate) fn recount(&mut self) -> [usize; 2] {
        let now = self.held();
        [std::mem::replace(&mut self.counted, now), now]
    }

    /// Returns the number of queued bytes. They are received messages that wait for earlier ones,
    /// messages to send that wait for a leg (parallel circuit), and sent ones that are not yet
    /// acknowledged.
    pub(crate) fn held(&self) -> usize {
        self.end.held() + self.trunk_state.as_ref().map_or(0, TrunkState::bytes)
    }

    /// Marks the circuit set as ended, and drops all waiting messages and cells.
    pub(crate) fn die(&mut self) {
        self.end.die();
        self.trunk_state.iter_mut().for_each(TrunkState::clear);
    }

    /// Queues a cell of the trunk (the circuit that continues where the set's legs join), to be
    /// sent on any leg.
    pub(crate) fn push_cell(&mut self, command: Command, body: &Body) {
        let (Some(trunk_state), Some(retransmitter)) =
            (&mut self.trunk_state, self.end.retransmitter_mut())
        else {
            return;
        };
        trunk_state.push(command, retransmitter.copy_of(body));
    }

    /// Returns true if cells of the trunk (the circuit that continues where the set's legs join)
    /// are waiting.
    pub(crate) fn has_cells(&self) -> bool {
        let new = self.trunk_state.as_ref().is_some_and(|trunk_state| trunk_state.len() > 0);
        new || self.trunk_state.is_some() && self.to_send_again() > 0
    }

    /// Returns the leg for the next cells of the trunk (the circuit that continues where the set's
    /// legs join), and how many cells to send on it. Returns `None` if there are no cells, or if
    /// no leg has room.
    pub(crate) fn choose_cells(&mut self, now: Time) -> Option<(PathId, u64)> {
        let again = self.to_send_again();
        let new = self.trunk_state.as_ref().map_or(0, |trunk_state| trunk_state.len() as u64);
        let new = if self.is_full() { 0 } else { new };
        (again + new > 0).then(|| self.assign(now, again + new))?
    }

    /// Returns the next cell of the trunk (the circuit that continues where the set's legs join)
    /// to send. Retransmissions come first. Returns `None` if there is nothing to send.
    pub(crate) fn next_cell(&mut self) -> Option<TrunkCell> {
        let retransmitter = self.end.retransmitter_mut()?;
        if let Some(SentMessage { number, command, data, .. }) = retransmitter.take_again() {
            return Some(TrunkCell {
                again: Some(number),
                command: Command(command.0),
                body: data,
            });
        }
        if self.is_full() {
            return None;
        }
        let (command, body) = self.trunk_state.as_mut()?.pop()?;
        Some(TrunkCell { again: None, command, body })
    }

    /// Assigns a sequence number to a cell of the trunk (the circuit that continues where the
    /// set's legs join) that is sent on `leg`, and stores a copy. Returns the [`Mark`] that
    /// conveys the sequence number to the other end. The caller must send the mark before the
    /// cell.
    ///
    /// # Errors
    /// The leg is closed, or its set has ended.
    pub(crate) fn send_cell(
        &mut self,
        now: Time,
        leg: PathId,
        cell: TrunkCell,
    ) -> Result<Mark, ConfluxFault> {
        let TrunkCell { again, command, body: data } = cell;
        let mark = match again {
            Some(number) => self.end.again(leg, number, 0)?,
            None => self.end.send(leg)?,
        };
        let number = again.unwrap_or_else(|| self.end.last_sent());
        let (command, stream) = (RelayCommand(command.0), 0);
        if let Some(retransmitter) = self.end.retransmitter_mut() {
            retransmitter.sent(now, leg, SentMessage { number, command, stream, data });
        }
        Ok(mark)
    }

    /// Adds `circuit` to the set as a leg (parallel circuit), in the slot `leg`.
    pub(crate) fn add(&mut self, leg: PathId, circuit: u32) {
        self.circuits.set(leg, circuit);
        let under_way = self.design.under_way(self.circuits.iter().count());
        self.end.queue().saw_window(under_way);
    }

    /// Removes `circuit` from the legs (parallel circuits) of the set. `unacknowledged` is true if
    /// many cells were in flight on the leg: at least the number that one SENDME acknowledges.
    /// Returns whether the set continues.
    pub(crate) fn lose(&mut self, circuit: u32, unacknowledged: bool) -> Fate {
        let Some(leg) = self.leg(circuit) else { return Fate::Lives };
        self.circuits.remove(leg);
        let fate = self.end.lose(leg, unacknowledged);
        let alone = self.circuits.iter().next().is_none() && !self.design.is_resilient();
        if alone { Fate::Dies } else { fate }
    }

    /// Returns the slot (index) of the circuit `circuit` in the set; `None` if the circuit is not
    /// in the set.
    pub(crate) fn leg(&self, circuit: u32) -> Option<PathId> {
        self.circuits.iter().find(|(_, other)| **other == circuit).map(|(leg, _)| leg)
    }

    /// Returns the circuit in the slot `leg` of the set; `None` if the slot is empty.
    pub(crate) fn circuit(&self, leg: PathId) -> Option<u32> {
        self.circuits.get(leg).ok().copied()
    }

    /// Iterates over the circuits of the set.
    pub(crate) fn circuits(&self) -> impl Iterator<Item = u32> {
        self.circuits.iter().map(|(_, circuit)| *circuit)
    }

    /// Notes that the other end has acknowledged data on some leg (parallel circuit).
    pub(crate) fn note_acknowledgement(&mut self) {
        self.has_acknowledgement = true;
    }

    /// Updates the scheduler's views of all legs (parallel circuits).
    pub(crate) fn look<C: Ending>(
        &mut self,
        now: Time,
        circuits: &Slab<C>,
        channels: &mut Channels,
    ) {
        let mut views = std::mem::take(&mut self.views);
        views.clear();
        for (leg, circuit) in self.circuits.iter() {
            let circuit = circuits.get(*circuit);
            let view = circuit.map(|circuit| self.view(now, leg, circuit, channels));
            views.resize(views.len().max(leg.index() + 1), PathView::dead());
            views[leg.index()] = view.unwrap_or(PathView::dead());
        }
        self.views = views;
    }

    /// Updates the scheduler's view of `leg` (a parallel circuit).
    pub(crate) fn look_at<C: Ending>(
        &mut self,
        now: Time,
        leg: PathId,
        circuit: &C,
        channels: &mut Channels,
    ) {
        let view = self.view(now, leg, circuit, channels);
        self.views.iter_mut().for_each(|view| view.leg.current = false);
        self.views[leg.index()] = view;
    }

    /// Returns a scheduler's view of `leg` (a parallel circuit). Before the leg's first SENDME,
    /// the view has the round-trip time that was measured when the leg was linked.
    fn view<C: Ending>(
        &self,
        now: Time,
        leg: PathId,
        circuit: &C,
        channels: &mut Channels,
    ) -> PathView {
        let linking = self.end.rtt(leg).filter(|_| !self.end.is_silent(leg));
        let (Some(link_circuit), Some(control), Some(linking)) =
            (circuit.link_circuit(), circuit.leg(), linking)
        else {
            return PathView::dead();
        };
        let seen = control.view();
        let queued = channels.waiting(link_circuit);
        let rtt = seen.rtt.unwrap_or(linking);
        let room = seen.window.unwrap_or(0).min(QUEUE_HIGH.saturating_sub(queued) as u64);
        let least_rtt = if seen.rtt.is_none() { rtt } else { seen.leg.least_rtt };
        let current = self.end.current() == Some(leg);
        let link = if self.sees_links() { channels.look(now, link_circuit) } else { None };
        let (queued, switch_cost) = (queued as u64, self.end.turn());
        let known = LegView { least_rtt, queued, current, switch_cost, link, ..seen.leg };
        PathView::leg(Some(rtt), room.min(self.first_room(leg)), known)
    }

    /// Returns true if the circuit set's scheduler uses statistics of the links.
    pub(crate) fn sees_links(&self) -> bool {
        self.splitter.as_ref().is_some_and(|(_, of)| of.sees_links())
    }

    /// Returns true if the window of any leg (parallel circuit) has room for data.
    pub(crate) fn has_window<C: Ending>(&self, circuits: &Slab<C>) -> bool {
        let has_room =
            |circuit: &u32| circuits.get(*circuit).and_then(Ending::leg).is_some_and(Leg::has_room);
        self.circuits.iter().any(|(_, circuit)| has_room(circuit))
    }

    /// Returns the number of cells that `leg` (a parallel circuit) may carry now. Until the other
    /// end has acknowledged data, an exit that uses proposal 329 limits the number, so that no
    /// leg's first SWITCH exceeds [`FIRST`].
    fn first_room(&self, leg: PathId) -> u64 {
        let is_stock = self.design == Design::Conflux && self.end.is_exit();
        if self.has_acknowledgement || !is_stock || self.end.measured_legs() < 2 {
            return u64::MAX;
        }
        match self.end.backlog(leg) {
            0 => match FIRST.saturating_sub(self.end.last_sent()) {
                0 => u64::MAX,
                left => left,
            },
            backlog if backlog <= FIRST => u64::MAX,
            _ => 0,
        }
    }

    /// Returns the leg (parallel circuit) for the next data cells, and how many of the `cells`
    /// pending cells to send on it. Returns `None` if no leg can take a cell.
    pub(crate) fn assign(&mut self, now: Time, cells: u64) -> Option<(PathId, u64)> {
        self.renew_splitter();
        let (_, splitter) = self.splitter.as_mut()?;
        assigned(splitter.assign(now, &self.views, cells.max(1)))
    }

    /// Returns the leg (parallel circuit) for the next data cell, and the number of cells to send
    /// on it, which is 1. Considers only legs for which `has_room` returns true: legs on which the
    /// window of a stream with data has room. Returns `None` if no leg can take a cell.
    pub(crate) fn assign_one(
        &mut self,
        now: Time,
        mut has_room: impl FnMut(PathId) -> bool,
    ) -> Option<(PathId, u64)> {
        self.renew_splitter();
        self.narrowed.clone_from(&self.views);
        for (leg, _) in self.circuits.iter() {
            if let Some(view) = self.narrowed.get_mut(leg.index()).filter(|_| !has_room(leg)) {
                view.window = Some(0);
            }
        }
        let (_, splitter) = self.splitter.as_mut()?;
        assigned(splitter.assign(now, &self.narrowed, 1))
    }

    /// Returns true if the first message to retransmit is a DATA message, and false if it is
    /// another message. Returns `None` if there is nothing to retransmit.
    pub(crate) fn next_again(&self) -> Option<bool> {
        let next = self.end.retransmitter()?.next_again()?;
        Some(next.command == RelayCommand::DATA)
    }

    /// Stores a copy of `message`, which was sent on `leg` (a parallel circuit), for
    /// retransmission. The copy lacks the prefix that `mark` placed before the data. Does nothing
    /// if `message` is `None`, or if the design does not retransmit.
    pub(crate) fn keep(
        &mut self,
        now: Time,
        leg: PathId,
        mark: &Mark,
        message: Option<Message<'_>>,
    ) {
        let number = self.end.last_sent();
        let (Some(retransmitter), Some(message)) = (self.end.retransmitter_mut(), message) else {
            return;
        };
        let Message { command, stream, data } = message;
        let data = retransmitter.copy_of(&data[mark.prefix().len()..]);
        retransmitter.sent(now, leg, SentMessage { number, command, stream, data });
    }

    /// Returns the leg (parallel circuit) that is `circuit`, if we must send an acknowledgement on
    /// it. Otherwise returns `None`.
    pub(crate) fn leg_that_owes(&self, circuit: u32) -> Option<PathId> {
        let leg = self.leg(circuit)?;
        self.end.retransmitter()?.owes(leg).then_some(leg)
    }

    /// Returns the number of messages to retransmit.
    pub(crate) fn to_send_again(&self) -> u64 {
        self.end.retransmitter().map_or(0, |retransmitter| retransmitter.to_send_again() as u64)
    }

    /// Returns true if the stored copies of unacknowledged messages have reached their size limit.
    /// Then no new messages may be sent.
    pub(crate) fn is_full(&self) -> bool {
        self.end.retransmitter().is_some_and(Retransmitter::is_full)
    }

    /// Iterates over the legs (parallel circuits) that can take data now: their windows and queues
    /// have room.
    pub(crate) fn legs_with_room(&self) -> impl Iterator<Item = PathId> + '_ {
        let is_open = |view: &&PathView| view.usable && view.window.is_none_or(|room| room > 0);
        let views = self.views.iter().enumerate();
        views.filter(move |(_, view)| is_open(view)).map(|(at, _)| PathId::at(at))
    }

    fn renew_splitter(&mut self) {
        let desired = self.end.desired();
        if self.splitter.as_ref().is_none_or(|(of, _)| *of != desired && self.dealing.is_none()) {
            self.splitter = Some((desired, self.make_splitter(desired)));
        }
    }

    /// Returns the scheduler and its settings. This end's configuration has priority over the
    /// other end's request.
    fn dealing(&self, desired: DesiredUx) -> LegScheduler {
        self.dealing.clone().unwrap_or_else(|| LegScheduler::as_desired(desired))
    }

    fn make_splitter(&self, desired: DesiredUx) -> Splitter {
        let LegScheduler { schedule, every, redraw } = self.dealing(desired);
        let (seed, most) = (self.seed, self.end.most_legs());
        let splitter = |schedule: &Spec| {
            let dice = move |purpose: &str| seed::stream(seed, 0, purpose);
            Splitter::drawn(schedule, most, every, redraw, dice)
        };
        let drawn = splitter(&schedule).or_else(|_| splitter(&LegScheduler::usual()));
        drawn.expect("the default scheduler fits any number of circuits")
    }

    /// Returns the leg (parallel circuit) for messages other than data. Returns `None` if that
    /// leg's queue is full, or no leg is linked.
    ///
    /// Usually it is the leg of the last sent message, because no SWITCH is needed on it. Before
    /// the first message, it is the leg with the shortest round-trip time, or any linked leg if
    /// none is measured.
    ///
    /// While streams are paused in a design that retransmits lost messages, it is the leg on which
    /// messages arrive. The missing messages were sent on another leg, which may have failed
    /// unnoticed. An XOFF on that other leg would be lost.
    pub(crate) fn control(&self) -> Option<PathId> {
        self.takes_control(self.preferred()?)
    }

    /// Returns the leg (parallel circuit) for a message other than data that has a sequence
    /// number. A client uses the leg that the scheduler chooses, unless that leg has no room or
    /// the streams are paused. An exit uses the leg of its last message, because the client has
    /// just sent on that leg or waits for data on it. Returns `None` if the chosen leg's queue is
    /// full.
    pub(crate) fn counted_control(&mut self, now: Time) -> Option<PathId> {
        let by_last = self.paused || self.end.is_exit();
        let assigned = if by_last { None } else { self.assign(now, 1) };
        let leg = assigned.and_then(|(leg, _)| self.takes_control(leg));
        leg.or_else(|| self.control())
    }

    /// Returns the leg (parallel circuit) for messages other than data, even if the leg's queue is
    /// full. Returns `None` if no leg is linked, or if all legs have stopped answering.
    pub(crate) fn preferred(&self) -> Option<PathId> {
        let is_paused = self.paused && self.design.is_resilient();
        let lively = self.lively.filter(|leg| is_paused && self.end.may_send(*leg));
        let current = self.end.current().filter(|leg| !self.end.is_silent(*leg));
        let usable = || {
            let legs = self.circuits.iter().map(|(leg, _)| leg);
            legs.filter(|leg| self.end.may_send(*leg))
        };
        let measured = usable().filter_map(|leg| Some((self.end.rtt(leg)?, leg)));
        let quickest = measured.min().map(|(_, leg)| leg);
        lively.or(current).or(quickest).or_else(|| usable().next())
    }

    /// Returns `leg` (a parallel circuit) if its queue has room, else `None`.
    pub(crate) fn takes_control(&self, leg: PathId) -> Option<PathId> {
        let queued = self.views.get(leg.index()).map_or(0, |view| view.leg.queued);
        (queued < QUEUE_HIGH as u64).then_some(leg)
    }

    /// Returns statistics of the circuit set for display, without the values about its streams.
    pub(crate) fn numbers<C: Ending>(&self, circuits: &Slab<C>, channels: &Channels) -> SetNumbers {
        let LegScheduler { schedule, every, .. } = self.dealing(self.end.desired());
        let waiting = self.end.waiting();
        SetNumbers {
            design: self.end.design(),
            schedule: format!("{schedule} --every {every}"),
            streams: 0,
            transferred: [0; 2],
            reordered: waiting.bytes(),
            kept: self.end.retransmitter().map_or(0, Retransmitter::bytes),
            most_reordered: waiting.most(),
            budget: waiting.budget(),
            paused: self.paused,
            legs: self.legs(circuits, channels).collect(),
        }
    }

    /// Returns statistics of each parallel circuit (leg) of the set.
    pub(crate) fn legs<C: Ending>(
        &self,
        circuits: &Slab<C>,
        channels: &Channels,
    ) -> impl Iterator<Item = LegNumbers> {
        self.circuits.iter().filter_map(|(leg, circuit)| {
            Some(self.leg_numbers(leg, circuits.get(*circuit)?, channels))
        })
    }

    fn leg_numbers<C: Ending>(&self, leg: PathId, circuit: &C, channels: &Channels) -> LegNumbers {
        let linking = self.end.rtt(leg);
        let seen = circuit.leg().map(Leg::view).unwrap_or(PathView::dead());
        LegNumbers {
            circuit: circuit.number(),
            is_linked: linking.is_some(),
            cells: circuit.cells(),
            rtt: seen.rtt.or(linking),
            least_rtt: seen.rtt.map_or(linking, |_| Some(seen.leg.least_rtt)),
            window: seen.leg.size,
            inflight: seen.leg.inflight,
            queued: circuit.link_circuit().map_or(0, |link_circuit| channels.waiting(link_circuit))
                as u64,
        }
    }

    /// Notes that a message with a sequence number arrived on `leg` (a parallel circuit).
    pub(crate) fn note_arrived_on(&mut self, leg: PathId) {
        self.lively = Some(leg);
    }

    /// Schedules the unacknowledged messages of other legs (parallel circuits) for retransmission
    /// on the leg on which messages arrive. Called when streams are paused, because the peer must
    /// receive these messages before XOFF.
    pub(crate) fn hurry(&mut self) {
        let (Some(leg), Some(retransmitter)) = (self.lively, self.end.retransmitter_mut()) else {
            return;
        };
        retransmitter.repeat(leg);
    }

    /// Counts a received DATA cell, and estimates the peer's window from this count. Returns the
    /// maximum number of bytes that may wait for earlier messages on other legs (parallel
    /// circuits).
    pub(crate) fn count_received(&mut self, now: Time) -> usize {
        if now.since(self.arrivals.since) > self.end.longest_rtt().max(LEAST_PERIOD) {
            self.arrivals = Arrivals { since: now, cells: 0 };
        }
        self.arrivals.cells += 1;
        let queue = self.end.queue();
        queue.saw_window(self.arrivals.cells);
        queue.budget()
    }

    /// Returns true if the streams must be paused, and false if they must be resumed. Returns
    /// `None` if nothing changes. If memory is `scarce`, the streams are paused as soon as any
    /// message waits for an earlier one. They stay paused until the missing message arrives, or
    /// its loss ends the circuit set.
    pub(crate) fn pause_changed(&mut self, scarce: bool) -> Option<bool> {
        let waits = scarce && self.end.bytes() > 0;
        let pressed = self.end.queue().is_pressed() || waits;
        (std::mem::replace(&mut self.paused, pressed) != pressed).then_some(pressed)
    }
}

/// Returns the assigned leg (parallel circuit) and the number of cells to send on it; `None` if no
/// leg can take a cell.
fn assigned(assignment: Assignment) -> Option<(PathId, u64)> {
    match assignment {
        Assignment::Send { path, units, .. } => Some((path, units)),
        Assignment::Hold | Assignment::Nowhere => None,
    }
}
