//! What a set has besides its streams when several legs may join it: who its legs are, how messages
//! are dealt among them, and how much of what comes may wait.

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

/// Messages that an exit sends at first before a client has acknowledged any: Arti closes a leg
/// whose first SWITCH says more before anything was delivered, though its sender may be right.
const FIRST: u64 = 124;
/// A round trip is taken to be at least as long: what waits on the way is not in what linking
/// measures.
const UNMEASURED: Duration = Duration::from_millis(200);

/// The legs of a set, and the policy among them.
pub(crate) struct Several {
    pub(crate) end: ConfluxEnd,
    pub(crate) design: Design,
    /// Cells that go by the legs, and the circuit that they are of, where legs join at a middle.
    pub(crate) passing: Option<Passing>,
    /// The circuits that are its legs.
    circuits: Legs<u32>,
    /// What came lately, by all legs.
    arrivals: Arrivals,
    /// How messages are dealt, if that does not follow the other end's wish.
    dealing: Option<Dealing>,
    splitter: Option<(DesiredUx, Splitter)>,
    seed: u64,
    views: Vec<PathView>,
    /// The same as one stream sees them.
    narrowed: Vec<PathView>,
    /// The other end has acknowledged something.
    opened: bool,
    /// Its streams were told to rest.
    resting: bool,
    /// The leg by which something came last that has a number.
    lively: Option<PathId>,
    /// Bytes that wait for others, or are kept, as its core counts them.
    counted: usize,
    /// How messages lie in cells of its legs: what went by one must go by another.
    format: Option<Format>,
    /// When its core looks after it next.
    tends_at: Option<Time>,
}

/// A cell that is to pass.
pub(crate) struct PassingCell {
    /// Its number, if it is sent again.
    again: Option<u64>,
    pub(crate) command: Command,
    pub(crate) body: Vec<u8>,
}

/// DATA that came within the longest round trip of a leg: the windows had room for so many.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    since: Time,
    cells: u64,
}

impl Several {
    /// Without legs. `seed` is all the chance of its scheduler, `dealing` is what the user, or the
    /// other end, wants instead of the design's own.
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

    /// Whether a circuit whose messages lie so in cells may join, if that matters. Where legs join
    /// at a middle, it does not: whole cells go by them.
    pub(crate) fn takes_format(&mut self, format: Format) -> bool {
        !self.design.is_resilient()
            || self.passing.is_some()
            || *self.format.get_or_insert(format) == format
    }

    /// The time at which the core is to look after the set, if that is sooner than is known.
    pub(crate) fn tends_sooner(&mut self, streams: bool) -> Option<Time> {
        let due = self.end.retransmitter()?.next_timeout(streams)?;
        let sooner = self.tends_at.is_none_or(|at| due < at);
        sooner.then(|| *self.tends_at.insert(due))
    }

    /// The core looks after the set now.
    pub(crate) fn tends(&mut self) {
        self.tends_at = None;
    }

    /// Bytes that wait for others or are kept: as counted last, and now.
    pub(crate) fn recount(&mut self) -> [usize; 2] {
        let now = self.held();
        [std::mem::replace(&mut self.counted, now), now]
    }

    /// Bytes that wait for others, for a leg, or for their acknowledgement.
    pub(crate) fn held(&self) -> usize {
        self.end.held() + self.passing.as_ref().map_or(0, Passing::bytes)
    }

    /// The set ends: nothing waits any more.
    pub(crate) fn die(&mut self) {
        self.end.die();
        self.passing.iter_mut().for_each(Passing::clear);
    }

    /// A cell is to pass, by whichever leg.
    pub(crate) fn push_cell(&mut self, command: Command, body: &Body) {
        let (Some(passing), Some(retransmitter)) =
            (&mut self.passing, self.end.retransmitter_mut())
        else {
            return;
        };
        passing.push(command, retransmitter.copy_of(body));
    }

    /// Whether cells wait that are to pass.
    pub(crate) fn has_cells(&self) -> bool {
        let new = self.passing.as_ref().is_some_and(|passing| passing.len() > 0);
        new || self.passing.is_some() && self.to_send_again() > 0
    }

    /// The leg of the next cells that pass, and how many of them; `None` if there are none, or no
    /// leg takes one.
    pub(crate) fn choose_cells(&mut self, now: Time) -> Option<(PathId, u64)> {
        let again = self.to_send_again();
        let new = self.passing.as_ref().map_or(0, |passing| passing.len() as u64);
        let new = if self.is_full() { 0 } else { new };
        (again + new > 0).then(|| self.assign(now, again + new))?
    }

    /// The next cell that is to pass: those first that are to be sent again.
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

    /// A cell is sent by a leg: what is to be said before, and it is kept.
    ///
    /// # Errors
    /// The leg or its set is gone.
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

    /// A circuit is this leg of the set.
    pub(crate) fn add(&mut self, leg: PathId, circuit: u32) {
        self.circuits.set(leg, circuit);
        let under_way = self.design.under_way(self.circuits.iter().count());
        self.end.queue().saw_window(under_way);
    }

    /// A circuit is no leg any more: what that means for the set.
    pub(crate) fn lose(&mut self, circuit: u32, unacknowledged: bool) -> Fate {
        let Some(leg) = self.leg(circuit) else { return Fate::Lives };
        self.circuits.remove(leg);
        let fate = self.end.lose(leg, unacknowledged);
        let alone = self.circuits.iter().next().is_none() && !self.design.is_resilient();
        if alone { Fate::Dies } else { fate }
    }

    /// Which leg a circuit is.
    pub(crate) fn leg(&self, circuit: u32) -> Option<PathId> {
        self.circuits.iter().find(|(_, other)| **other == circuit).map(|(leg, _)| leg)
    }

    /// The circuit that is a leg.
    pub(crate) fn circuit(&self, leg: PathId) -> Option<u32> {
        self.circuits.get(leg).ok().copied()
    }

    /// All of its circuits.
    pub(crate) fn circuits(&self) -> impl Iterator<Item = u32> {
        self.circuits.iter().map(|(_, circuit)| *circuit)
    }

    /// The other end has acknowledged something.
    pub(crate) fn opened(&mut self) {
        self.opened = true;
    }

    /// Looks at all legs.
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

    /// Looks at one leg again.
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

    /// A leg as schedulers see it. Before its first SENDME the round-trip time is that of linking.
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

    /// Whether its scheduler asks for looks at the links below.
    pub(crate) fn sees_links(&self) -> bool {
        self.splitter.as_ref().is_some_and(|(_, of)| of.sees_links())
    }

    /// Whether the window of any leg takes data.
    pub(crate) fn has_window<C: Ending>(&self, circuits: &Slab<C>) -> bool {
        let has_room =
            |circuit: &u32| circuits.get(*circuit).and_then(Ending::leg).is_some_and(Leg::has_room);
        self.circuits.iter().any(|(_, circuit)| has_room(circuit))
    }

    /// What a leg may carry before anything was acknowledged.
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

    /// The leg of the next `cells` of data, and how many of them.
    pub(crate) fn assign(&mut self, now: Time, cells: u64) -> Option<(PathId, u64)> {
        self.renew_splitter();
        let (_, splitter) = self.splitter.as_mut()?;
        assigned(splitter.assign(now, &self.views, cells.max(1)))
    }

    /// The leg of the next cell of data, among those on which its stream has room.
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

    /// What is to be sent again first, if anything is: whether it is data.
    pub(crate) fn next_again(&self) -> Option<bool> {
        let next = self.end.retransmitter()?.next_again()?;
        Some(next.command == RelayCommand::DATA)
    }

    /// A message was written for a leg, with what the mark says before its data: it is kept, if
    /// anything is.
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

    /// The leg that a circuit is, if so much came by it that it is to be acknowledged.
    pub(crate) fn leg_that_owes(&self, circuit: u32) -> Option<PathId> {
        let leg = self.leg(circuit)?;
        self.end.retransmitter()?.owes(leg).then_some(leg)
    }

    /// Messages that are to be sent again.
    pub(crate) fn to_send_again(&self) -> u64 {
        self.end.retransmitter().map_or(0, |retransmitter| retransmitter.to_send_again() as u64)
    }

    /// Whether so much is kept that nothing new is to be sent.
    pub(crate) fn is_full(&self) -> bool {
        self.end.retransmitter().is_some_and(Retransmitter::is_full)
    }

    /// The legs that take data now, as far as their own windows go.
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

    /// How messages are dealt: as this end was told, or else as the other end wishes.
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

    /// The leg of what is no data: the one that carried the last message, for there no SWITCH is
    /// needed; before that the quickest, and before one is measured any that is linked. While
    /// streams rest, where legs may die, it is the leg that brings what has to wait: what waits is
    /// missing on another, which may have died unnoticed, and would swallow XOFF.
    pub(crate) fn control(&self) -> Option<PathId> {
        self.takes_control(self.preferred()?)
    }

    /// The leg of a message that is numbered and is no data: a client's goes by the scheduler's, as
    /// long as that has room and streams do not rest. An exit's goes by the leg used last: the
    /// client has just been heard by it, or waits for it.
    pub(crate) fn counted_control(&mut self, now: Time) -> Option<PathId> {
        let by_last = self.resting || self.end.is_exit();
        let assigned = if by_last { None } else { self.assign(now, 1) };
        let leg = assigned.and_then(|(leg, _)| self.takes_control(leg));
        leg.or_else(|| self.control())
    }

    /// The same, whether its queue has room or not.
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

    /// This leg, if its queue has room.
    pub(crate) fn takes_control(&self, leg: PathId) -> Option<PathId> {
        let queued = self.views.get(leg.index()).map_or(0, |view| view.leg.queued);
        (queued < QUEUE_HIGH as u64).then_some(leg)
    }

    /// Numbers for people, but for those of its streams.
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

    /// The same of each of its legs.
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

    /// Something that has a number came by this leg.
    pub(crate) fn came_by(&mut self, leg: PathId) {
        self.lively = Some(leg);
    }

    /// Streams are told to rest: what must be heard before XOFF goes again by the leg that lives.
    pub(crate) fn hurry(&mut self) {
        let (Some(leg), Some(retransmitter)) = (self.lively, self.end.retransmitter_mut()) else {
            return;
        };
        retransmitter.repeat(leg);
    }

    /// DATA came: notes what window that tells of, and says how many bytes may wait.
    pub(crate) fn came(&mut self, now: Time) -> usize {
        if now.since(self.arrivals.since) > self.end.longest_rtt().max(UNMEASURED) {
            self.arrivals = Arrivals { since: now, cells: 0 };
        }
        self.arrivals.cells += 1;
        let queue = self.end.queue();
        queue.saw_window(self.arrivals.cells);
        queue.budget()
    }

    /// Whether the streams are to be told something: to rest, or that they may go on. Where memory
    /// is `scarce`, a set with anything that waits rests: what it waits for comes, or ends it.
    pub(crate) fn rest_changed(&mut self, scarce: bool) -> Option<bool> {
        let waits = scarce && self.end.bytes() > 0;
        let pressed = self.end.queue().is_pressed() || waits;
        (std::mem::replace(&mut self.resting, pressed) != pressed).then_some(pressed)
    }
}

/// The leg that was named, and how many cells it takes.
fn assigned(assignment: Assignment) -> Option<(PathId, u64)> {
    match assignment {
        Assignment::Send { path, units, .. } => Some((path, units)),
        Assignment::Hold | Assignment::Nowhere => None,
    }
}
