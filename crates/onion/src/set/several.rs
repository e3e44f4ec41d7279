//! Multi-leg state of a set that several legs may join: its legs, the dealing of messages among
//! them, and limits of waiting messages.

use std::time::Duration;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Assignment, LegView, PathId, PathView, Splitter, Time, seed};

use super::QUEUE_HIGH;
use super::numbers::{LegNumbers, SetNumbers};
use super::passing::Passing;
use crate::channels::Channels;
use crate::conflux::legs::Legs;
use crate::conflux::{
    ConfluxEnd, ConfluxFault, Dealing, Design, Fate, Mark, Retransmitter, SentMessage,
};
use crate::ending::Ending;
use crate::leg::Leg;
use crate::table::Slab;
use crate::wire::cell::{Body, Command};
use crate::wire::conflux::DesiredUx;
use crate::wire::message::{Format, Message, RelayCommand};

/// Messages that an exit sends at first, before a client has acknowledged any. Arti closes a leg
/// whose first SWITCH counts more before anything was delivered, although such a sender may be
/// right.
const FIRST: u64 = 124;
/// Minimum assumed round-trip time: queues on the path are not in the times that linking measures.
const UNMEASURED: Duration = Duration::from_millis(200);

/// The legs of a set, and the scheduler among them.
pub(crate) struct Several {
    pub(crate) end: ConfluxEnd,
    pub(crate) design: Design,
    /// Passing cells and their circuit, where legs join at a middle.
    pub(crate) passing: Option<Passing>,
    /// Circuits of its legs.
    circuits: Legs<u32>,
    /// Cells that arrived recently on all legs.
    arrivals: Arrivals,
    /// How messages are dealt, unless that follows the other end's wish.
    dealing: Option<Dealing>,
    splitter: Option<(DesiredUx, Splitter)>,
    seed: u64,
    views: Vec<PathView>,
    /// The same views, as one stream sees them.
    narrowed: Vec<PathView>,
    /// The other end has acknowledged something.
    opened: bool,
    /// Its streams are paused.
    resting: bool,
    /// The leg on which the last numbered message arrived.
    lively: Option<PathId>,
    /// Bytes that wait for others, or are kept, at the last recount.
    counted: usize,
    /// Format of messages in cells of its legs: messages of one leg must fit another.
    format: Option<Format>,
    /// Time of the next timer for its leg actions.
    tends_at: Option<Time>,
}

/// A cell of the trunk to send.
pub(crate) struct PassingCell {
    /// Its number, if it is sent again.
    again: Option<u64>,
    pub(crate) command: Command,
    pub(crate) body: Vec<u8>,
}

/// DATA cells that arrived within the longest round-trip time of a leg: the windows had room for
/// these.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    since: Time,
    cells: u64,
}

impl Several {
    /// Returns the state without legs. `seed` is the only source of randomness of its scheduler;
    /// `dealing` is what the user, or the other end, wants instead of the design's own.
    pub(crate) fn new(
        end: ConfluxEnd,
        design: Design,
        dealing: Option<Dealing>,
        seed: u64,
    ) -> Several {
        let dealing = dealing.or_else(|| design.dealing());
        Several {
            end,
            design,
            passing: design.is_merged().then(Passing::default),
            circuits: Legs::default(),
            arrivals: Arrivals::default(),
            dealing,
            splitter: None,
            seed,
            views: Vec::new(),
            narrowed: Vec::new(),
            opened: false,
            resting: false,
            lively: None,
            counted: 0,
            format: None,
            tends_at: None,
        }
    }

    /// Returns true if a circuit with this message format may join. Where legs join at a middle the
    /// format is irrelevant: they carry whole cells.
    pub(crate) fn takes_format(&mut self, format: Format) -> bool {
        !self.design.is_resilient()
            || self.passing.is_some()
            || *self.format.get_or_insert(format) == format
    }

    /// Returns the time of the next timer for leg actions, if it is earlier than the one already
    /// set.
    pub(crate) fn tends_sooner(&mut self, streams: bool) -> Option<Time> {
        let due = self.end.retransmitter()?.next_timeout(streams)?;
        let sooner = self.tends_at.is_none_or(|at| due < at);
        sooner.then(|| *self.tends_at.insert(due))
    }

    /// Notes that the timer for leg actions has run.
    pub(crate) fn tends(&mut self) {
        self.tends_at = None;
    }

    /// Returns the bytes that wait for others or are kept: at the last call, and now.
    pub(crate) fn recount(&mut self) -> [usize; 2] {
        let now = self.held();
        [std::mem::replace(&mut self.counted, now), now]
    }

    /// Returns the bytes that wait for other messages, for a leg, or for their acknowledgement.
    pub(crate) fn held(&self) -> usize {
        self.end.held() + self.passing.as_ref().map_or(0, Passing::bytes)
    }

    /// Ends the set: waiting messages and cells are dropped.
    pub(crate) fn die(&mut self) {
        self.end.die();
        self.passing.iter_mut().for_each(Passing::clear);
    }

    /// Queues a cell of the trunk for any leg.
    pub(crate) fn push_cell(&mut self, command: Command, body: &Body) {
        let (Some(passing), Some(retransmitter)) =
            (&mut self.passing, self.end.retransmitter_mut())
        else {
            return;
        };
        passing.push(command, retransmitter.copy_of(body));
    }

    /// Returns true if cells of the trunk are waiting.
    pub(crate) fn has_cells(&self) -> bool {
        let new = self.passing.as_ref().is_some_and(|passing| passing.len() > 0);
        new || self.passing.is_some() && self.to_send_again() > 0
    }

    /// Returns the leg for the next cells of the trunk, and their number; `None` if there are none,
    /// or no leg takes one.
    pub(crate) fn choose_cells(&mut self, now: Time) -> Option<(PathId, u64)> {
        let again = self.to_send_again();
        let new = self.passing.as_ref().map_or(0, |passing| passing.len() as u64);
        let new = if self.is_full() { 0 } else { new };
        (again + new > 0).then(|| self.assign(now, again + new))?
    }

    /// Returns the next cell of the trunk to send, beginning with those to send again.
    pub(crate) fn next_cell(&mut self) -> Option<PassingCell> {
        let retransmitter = self.end.retransmitter_mut()?;
        if let Some(SentMessage { number, command, data, .. }) = retransmitter.take_again() {
            return Some(PassingCell {
                again: Some(number),
                command: Command(command.0),
                body: data,
            });
        }
        if self.is_full() {
            return None;
        }
        let (command, body) = self.passing.as_mut()?.pop()?;
        Some(PassingCell { again: None, command, body })
    }

    /// Numbers and keeps a cell that is sent on `leg`. Returns the mark to send before it.
    ///
    /// # Errors
    /// The leg is closed, or its set has ended.
    pub(crate) fn send_cell(
        &mut self,
        now: Time,
        leg: PathId,
        cell: PassingCell,
    ) -> Result<Mark, ConfluxFault> {
        let PassingCell { again, command, body: data } = cell;
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

    /// Makes `circuit` the leg `leg` of the set.
    pub(crate) fn add(&mut self, leg: PathId, circuit: u32) {
        self.circuits.set(leg, circuit);
        let under_way = self.design.under_way(self.circuits.iter().count());
        self.end.queue().saw_window(under_way);
    }

    /// Removes `circuit` from the legs, and returns the consequence for the set.
    pub(crate) fn lose(&mut self, circuit: u32, unacknowledged: bool) -> Fate {
        let Some(leg) = self.leg(circuit) else { return Fate::Lives };
        self.circuits.remove(leg);
        let fate = self.end.lose(leg, unacknowledged);
        let alone = self.circuits.iter().next().is_none() && !self.design.is_resilient();
        if alone { Fate::Dies } else { fate }
    }

    /// Returns the leg of `circuit`.
    pub(crate) fn leg(&self, circuit: u32) -> Option<PathId> {
        self.circuits.iter().find(|(_, other)| **other == circuit).map(|(leg, _)| leg)
    }

    /// Returns the circuit of `leg`.
    pub(crate) fn circuit(&self, leg: PathId) -> Option<u32> {
        self.circuits.get(leg).ok().copied()
    }

    /// Iterates over all of its circuits.
    pub(crate) fn circuits(&self) -> impl Iterator<Item = u32> {
        self.circuits.iter().map(|(_, circuit)| *circuit)
    }

    /// Notes that the other end has acknowledged something.
    pub(crate) fn opened(&mut self) {
        self.opened = true;
    }

    /// Updates the views of all legs.
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

    /// Updates the view of one leg.
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

    /// Returns a scheduler's view of `leg`. Before its first SENDME the round-trip time is that of
    /// linking.
    fn view<C: Ending>(
        &self,
        now: Time,
        leg: PathId,
        circuit: &C,
        channels: &mut Channels,
    ) -> PathView {
        let linking = self.end.rtt(leg).filter(|_| !self.end.is_silent(leg));
        let (Some(lane), Some(control), Some(linking)) = (circuit.lane(), circuit.leg(), linking)
        else {
            return PathView::dead();
        };
        let seen = control.view();
        let queued = channels.waiting(lane);
        let rtt = seen.rtt.unwrap_or(linking);
        let room = seen.window.unwrap_or(0).min(QUEUE_HIGH.saturating_sub(queued) as u64);
        let least_rtt = if seen.rtt.is_none() { rtt } else { seen.leg.least_rtt };
        let current = self.end.current() == Some(leg);
        let link = if self.sees_links() { channels.look(now, lane) } else { None };
        let (queued, turn) = (queued as u64, self.end.turn());
        let known = LegView { least_rtt, queued, current, turn, link, ..seen.leg };
        PathView::leg(Some(rtt), room.min(self.first_room(leg)), known)
    }

    /// Returns true if its scheduler wants statistics of the links.
    pub(crate) fn sees_links(&self) -> bool {
        self.splitter.as_ref().is_some_and(|(_, of)| of.sees_links())
    }

    /// Returns true if the window of any leg has room for data.
    pub(crate) fn has_window<C: Ending>(&self, circuits: &Slab<C>) -> bool {
        let has_room =
            |circuit: &u32| circuits.get(*circuit).and_then(Ending::leg).is_some_and(Leg::has_room);
        self.circuits.iter().any(|(_, circuit)| has_room(circuit))
    }

    /// Returns the number of cells that `leg` may carry before the first acknowledgement.
    fn first_room(&self, leg: PathId) -> u64 {
        let is_stock = self.design == Design::Conflux && self.end.is_exit();
        if self.opened || !is_stock || self.end.measured_legs() < 2 {
            return u64::MAX;
        }
        match self.end.behind(leg) {
            0 => match FIRST.saturating_sub(self.end.last_sent()) {
                0 => u64::MAX,
                left => left,
            },
            behind if behind <= FIRST => u64::MAX,
            _ => 0,
        }
    }

    /// Returns the leg for the next `cells` of data, and how many of them it takes.
    pub(crate) fn assign(&mut self, now: Time, cells: u64) -> Option<(PathId, u64)> {
        self.renew_splitter();
        let (_, splitter) = self.splitter.as_mut()?;
        assigned(splitter.assign(now, &self.views, cells.max(1)))
    }

    /// Returns the leg for the next data cell, among those on which its stream has room.
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

    /// Returns whether the first message to send again is data; `None` if there is none.
    pub(crate) fn next_again(&self) -> Option<bool> {
        let next = self.end.retransmitter()?.next_again()?;
        Some(next.command == RelayCommand::DATA)
    }

    /// Keeps a message that was written for `leg`, without its mark's prefix, if messages are kept.
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

    /// Returns the leg of `circuit`, if it owes an acknowledgement.
    pub(crate) fn leg_that_owes(&self, circuit: u32) -> Option<PathId> {
        let leg = self.leg(circuit)?;
        self.end.retransmitter()?.owes(leg).then_some(leg)
    }

    /// Returns the number of messages to send again.
    pub(crate) fn to_send_again(&self) -> u64 {
        self.end.retransmitter().map_or(0, |retransmitter| retransmitter.to_send_again() as u64)
    }

    /// Returns true if the kept bytes have reached their limit, so that nothing new is to be sent.
    pub(crate) fn is_full(&self) -> bool {
        self.end.retransmitter().is_some_and(Retransmitter::is_full)
    }

    /// Iterates over the legs that take data now, as far as their own windows allow.
    pub(crate) fn open(&self) -> impl Iterator<Item = PathId> + '_ {
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

    /// Returns how messages are dealt: as configured for this end, or else as the other end wishes.
    fn dealing(&self, desired: DesiredUx) -> Dealing {
        self.dealing.clone().unwrap_or_else(|| Dealing::as_desired(desired))
    }

    fn make_splitter(&self, desired: DesiredUx) -> Splitter {
        let Dealing { schedule, every, redraw } = self.dealing(desired);
        let (seed, most) = (self.seed, self.end.most_legs());
        let splitter = |schedule: &Spec| {
            let dice = move |purpose: &str| seed::stream(seed, 0, purpose);
            Splitter::drawn(schedule, most, every, redraw, dice)
        };
        let drawn = splitter(&schedule).or_else(|_| splitter(&Dealing::usual()));
        drawn.expect("the usual scheduler takes no argument")
    }

    /// Returns the leg for messages other than data: the leg of the last message, as no SWITCH is
    /// needed there. Before that it is the fastest, and before one is measured any linked leg.
    /// While streams are paused, in designs whose legs may fail, it is the leg on which waiting
    /// messages arrive. The missing ones are on another leg, which may have failed unnoticed and
    /// would lose XOFF.
    pub(crate) fn control(&self) -> Option<PathId> {
        self.takes_control(self.preferred()?)
    }

    /// Returns the leg for a numbered message other than data. A client's uses the scheduler's leg,
    /// unless that has no room or streams are paused. An exit's uses the leg used last: the client
    /// has just been heard on it, or waits for it.
    pub(crate) fn counted_control(&mut self, now: Time) -> Option<PathId> {
        let by_last = self.resting || self.end.is_exit();
        let assigned = if by_last { None } else { self.assign(now, 1) };
        let leg = assigned.and_then(|(leg, _)| self.takes_control(leg));
        leg.or_else(|| self.control())
    }

    /// Returns the leg for messages other than data, whether its queue has room or not.
    pub(crate) fn preferred(&self) -> Option<PathId> {
        let rests = self.resting && self.design.is_resilient();
        let lively = self.lively.filter(|leg| rests && self.end.may_send(*leg));
        let current = self.end.current().filter(|leg| !self.end.is_silent(*leg));
        let usable = || {
            let legs = self.circuits.iter().map(|(leg, _)| leg);
            legs.filter(|leg| self.end.may_send(*leg))
        };
        let measured = usable().filter_map(|leg| Some((self.end.rtt(leg)?, leg)));
        let quickest = measured.min().map(|(_, leg)| leg);
        lively.or(current).or(quickest).or_else(|| usable().next())
    }

    /// Returns `leg`, if its queue has room.
    pub(crate) fn takes_control(&self, leg: PathId) -> Option<PathId> {
        let queued = self.views.get(leg.index()).map_or(0, |view| view.leg.queued);
        (queued < QUEUE_HIGH as u64).then_some(leg)
    }

    /// Returns statistics for display, except those of its streams.
    pub(crate) fn numbers<C: Ending>(&self, circuits: &Slab<C>, channels: &Channels) -> SetNumbers {
        let Dealing { schedule, every, .. } = self.dealing(self.end.desired());
        let waiting = self.end.waiting();
        SetNumbers {
            design: self.end.design(),
            schedule: format!("{schedule} --every {every}"),
            streams: 0,
            carried: [0; 2],
            reordered: waiting.bytes(),
            kept: self.end.retransmitter().map_or(0, Retransmitter::bytes),
            most_reordered: waiting.most(),
            budget: waiting.budget(),
            resting: self.resting,
            legs: self.legs(circuits, channels).collect(),
        }
    }

    /// Returns statistics of each of its legs.
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
            queued: circuit.lane().map_or(0, |lane| channels.waiting(lane)) as u64,
        }
    }

    /// Notes that a numbered message arrived on `leg`.
    pub(crate) fn came_by(&mut self, leg: PathId) {
        self.lively = Some(leg);
    }

    /// Repeats unacknowledged messages on the working leg, as streams are being paused: the peer
    /// must receive them before XOFF.
    pub(crate) fn hurry(&mut self) {
        let (Some(leg), Some(retransmitter)) = (self.lively, self.end.retransmitter_mut()) else {
            return;
        };
        retransmitter.repeat(leg);
    }

    /// Notes a DATA cell, and the window that can be inferred from it. Returns how many bytes may
    /// wait.
    pub(crate) fn came(&mut self, now: Time) -> usize {
        if now.since(self.arrivals.since) > self.end.longest_rtt().max(UNMEASURED) {
            self.arrivals = Arrivals { since: now, cells: 0 };
        }
        self.arrivals.cells += 1;
        let queue = self.end.queue();
        queue.saw_window(self.arrivals.cells);
        queue.budget()
    }

    /// Returns true if the streams are to be paused, false if they are to be resumed, and `None`
    /// without a change. Where memory is `scarce`, a set with any waiting message pauses, until the
    /// missing one arrives or ends the set.
    pub(crate) fn rest_changed(&mut self, scarce: bool) -> Option<bool> {
        let waits = scarce && self.end.bytes() > 0;
        let pressed = self.end.queue().is_pressed() || waits;
        (std::mem::replace(&mut self.resting, pressed) != pressed).then_some(pressed)
    }
}

/// Returns the assigned leg, and how many cells it takes.
fn assigned(assignment: Assignment) -> Option<(PathId, u64)> {
    match assignment {
        Assignment::Send { path, units, .. } => Some((path, units)),
        Assignment::Hold | Assignment::Nowhere => None,
    }
}
