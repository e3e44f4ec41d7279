//! What one end of a set sent and the other has not acknowledged: kept, and sent again by another
//! leg if its own dies (`docs/spec/resilient-legs.md#acknowledgements`).
//!
//! It knows no circuit and no bytes of cells. It is told what was sent, what came and what
//! was acknowledged by which leg, and says what is to be done when ([`LegAction`]).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use super::fault::ConfluxFault;
use super::legs::Legs;
use crate::wire::message::RelayCommand;
use crate::wire::resilient::Received;

/// So many messages are acknowledged together, as cells are by SENDME.
const EVERY: u32 = 31;
/// Fewer are after this time.
const DELAY: Duration = Duration::from_millis(50);
/// A leg is silent that has been owing an acknowledgement for so long, or for three round trips.
const SILENCE: Duration = Duration::from_secs(1);
/// A further leg is silent whose LINK has no answer after this time, or after three of the longest
/// round trips of the set. (The first has the 60 s of `Limits`: nothing is lost with it.)
const LINKING: Duration = Duration::from_secs(2);
/// A client that nothing reaches any more asks after this time, or after two round trips.
const QUIET: Duration = Duration::from_secs(1);
/// A client's set lives so long without a leg that answers; an exit's twice as long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a set that are kept before it sends nothing new: 1.3 s of 100 Mbit/s.
const MOST: usize = 16 << 20;
/// Bytes that a kept message costs besides its data.
const BESIDES: usize = 96;
/// Buffers of acknowledged messages that are kept for the next: of two acknowledgements.
const SPARE: usize = 2 * EVERY as usize;
/// Dead legs that the other end is told of together.
const MOST_GONE: usize = 64;
/// So many messages at most that other legs owe are sent again by one that lives, before these are
/// known to be dead.
const MOST_REPEATED: usize = EVERY as usize;

/// A message that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentMessage {
    /// Its number in the set.
    pub number: u64,
    /// What it is.
    pub command: RelayCommand,
    /// The stream that it is of.
    pub stream: u16,
    /// Its data, without a number.
    pub data: Vec<u8>,
}

impl SentMessage {
    fn cost(&self) -> usize {
        self.data.len() + BESIDES
    }
}

/// What is to be done, because time has passed or a leg has come or gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegAction {
    /// Say [`Retransmitter::told`] by this leg.
    Tell(PathId),
    /// Say PROBE by this leg.
    Probe(PathId),
    /// The leg answers no more, and no other does: another is to be built.
    Silent(PathId),
    /// The leg answers no more, and another does: it is to be closed.
    GiveUp(PathId),
    /// Say by any leg that this one is gone.
    Gone(u32),
    /// No leg has answered for too long: the set ends.
    Over,
}

/// What RECEIVED told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// Messages that were not acknowledged before.
    pub messages: u64,
    /// How long ago the last of them was sent, if as many are acknowledged as are without waiting
    /// for time to pass.
    pub rtt: Option<Duration>,
}

/// What is known of a leg.
#[derive(Debug)]
struct OnLeg {
    serial: u32,
    /// Both ends have it: it may be sent by.
    linked: bool,
    /// When a client said LINK.
    launched: Option<Time>,
    /// What went by it and is not acknowledged, oldest first, and when it went.
    kept: VecDeque<(Time, SentMessage)>,
    /// Messages that the other end has got by it, as it says.
    acknowledged: u32,
    /// Messages that came by it, and how many of them the other end was told of.
    came: u32,
    told: u32,
    tell_at: Option<Time>,
    /// When something of ours was acknowledged last.
    progress: Time,
    /// From a message to its acknowledgement, smoothed.
    rtt: Duration,
    probed: Option<Time>,
    silent: bool,
}

impl OnLeg {
    /// When it will have been silent for too long, if it owes an answer. `longest` is the longest
    /// round trip of the set's legs; `None` where the set has none yet, and waits for its first.
    fn silent_at(&self, longest: Option<Duration>) -> Option<Time> {
        if !self.linked {
            return Some(self.launched? + LINKING.max(3 * longest?));
        }
        let sent = self.kept.front().map(|(sent, _)| (*sent).max(self.progress));
        let asked = [sent, self.probed].into_iter().flatten().min()?;
        // What was on its way back while the leg died counts as an answer: a round trip less.
        Some(asked + (SILENCE.max(3 * self.rtt) - self.rtt.min(SILENCE)))
    }

    fn is_living(&self) -> bool {
        self.linked && !self.silent
    }
}

/// What is kept of one end of a set.
#[derive(Debug)]
pub struct Retransmitter {
    is_client: bool,
    legs: Legs<OnLeg>,
    last_serial: u32,
    /// What is to be sent again, by number.
    again: BTreeMap<u64, SentMessage>,
    bytes: usize,
    /// Buffers for what is sent next.
    spare: Vec<Vec<u8>>,
    /// Legs that the other end is to be told of.
    gone: VecDeque<u32>,
    /// When something came last, and whether the legs were asked for an answer since.
    heard: Option<Time>,
    probing: bool,
    /// A leg was linked once.
    was_linked: bool,
    /// Since when no leg answers.
    alone: Option<Time>,
}

impl Retransmitter {
    /// Without legs.
    #[must_use]
    pub fn new(is_client: bool) -> Retransmitter {
        Retransmitter {
            is_client,
            legs: Legs::default(),
            last_serial: 0,
            again: BTreeMap::new(),
            bytes: 0,
            spare: Vec::new(),
            gone: VecDeque::new(),
            heard: None,
            probing: false,
            was_linked: false,
            alone: None,
        }
    }

    /// The client's next leg: its number.
    pub fn launch(&mut self, now: Time, leg: PathId) -> u32 {
        let serial = self.last_serial.saturating_add(1);
        self.join(leg, serial);
        self.legs.get_mut(leg).into_iter().for_each(|on| on.launched = Some(now));
        serial
    }

    /// A leg of this number is there.
    pub fn join(&mut self, leg: PathId, serial: u32) {
        self.last_serial = self.last_serial.max(serial);
        let joined = OnLeg {
            serial,
            linked: false,
            launched: None,
            kept: VecDeque::new(),
            acknowledged: 0,
            came: 0,
            told: 0,
            tell_at: None,
            progress: Time::ZERO,
            rtt: Duration::ZERO,
            probed: None,
            silent: false,
        };
        self.legs.set(leg, joined);
    }

    /// A leg may be sent by.
    pub fn linked(&mut self, leg: PathId) {
        self.was_linked = true;
        if let Ok(on) = self.legs.get_mut(leg) {
            (on.linked, on.silent) = (true, false);
        }
    }

    /// The round trip that linking measured.
    pub fn measured(&mut self, leg: PathId, rtt: Duration) {
        self.legs.get_mut(leg).into_iter().for_each(|on| on.rtt = rtt);
    }

    /// Whether a leg was linked once.
    #[must_use]
    pub const fn was_linked(&self) -> bool {
        self.was_linked
    }

    /// The number of a leg.
    #[must_use]
    pub fn serial(&self, leg: PathId) -> Option<u32> {
        self.legs.get(leg).ok().map(|on| on.serial)
    }

    /// The leg of this number.
    #[must_use]
    pub fn leg(&self, serial: u32) -> Option<PathId> {
        self.legs.iter().find(|(_, on)| on.serial == serial).map(|(leg, _)| leg)
    }

    /// The other end says by leg `by` that the leg of this number is gone; `None` if it is here
    /// as well.
    ///
    /// # Errors
    /// There never was such a leg, or it speaks itself.
    pub fn leg_said_gone(&self, serial: u32, by: PathId) -> Result<Option<PathId>, ConfluxFault> {
        let leg = self.leg(serial);
        if serial > self.last_serial || leg == Some(by) {
            return Err(ConfluxFault::NotLinked);
        }
        Ok(leg)
    }

    /// Whether a leg owes an answer for too long.
    #[must_use]
    pub fn is_silent(&self, leg: PathId) -> bool {
        self.legs.get(leg).is_ok_and(|on| on.silent)
    }

    /// Bytes that are kept.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing new is to be sent before something is acknowledged.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.bytes >= MOST
    }

    /// Whether nothing is kept: the other end has all that was sent.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// A copy of data that is to be sent, in a buffer that was in use before if there is one.
    #[must_use]
    pub fn copy_of(&mut self, data: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(data);
        buffer
    }

    /// A message went by a leg.
    pub fn sent(&mut self, now: Time, leg: PathId, kept: SentMessage) {
        self.bytes += kept.cost();
        if let Ok(on) = self.legs.get_mut(leg) {
            on.kept.push_back((now, kept));
        }
    }

    /// The next message that is to be sent again.
    #[must_use]
    pub fn next_again(&self) -> Option<&SentMessage> {
        self.again.values().next()
    }

    /// Takes it: [`Retransmitter::sent`] follows.
    pub fn take_again(&mut self) -> Option<SentMessage> {
        let (_, kept) = self.again.pop_first()?;
        self.bytes -= kept.cost();
        Some(kept)
    }

    /// What other legs than this one owe is to be sent again by it, if it is little: what comes
    /// behind it is to be heard soon, and must not wait for a leg that may have died unnoticed. It
    /// stays kept; the other end drops what it has.
    pub fn repeat(&mut self, lively: PathId) {
        let others = self.legs.iter().filter(|(leg, _)| *leg != lively);
        let owed = others.flat_map(|(_, on)| &on.kept).map(|(_, kept)| kept.clone());
        let owed: Vec<SentMessage> = owed.take(MOST_REPEATED + 1).collect();
        if owed.len() > MOST_REPEATED {
            return;
        }
        for kept in owed {
            let cost = kept.cost();
            if self.again.insert(kept.number, kept).is_none() {
                self.bytes += cost;
            }
        }
    }

    /// Messages that are to be sent again.
    #[must_use]
    pub fn to_send_again(&self) -> usize {
        self.again.len()
    }

    /// A message with a number came by a leg.
    pub fn came(&mut self, now: Time, leg: PathId) {
        (self.heard, self.probing) = (Some(now), false);
        if let Ok(on) = self.legs.get_mut(leg) {
            on.came = on.came.wrapping_add(1);
            on.tell_at.get_or_insert(now + DELAY);
        }
    }

    /// Whether so many came by a leg that they are to be acknowledged now.
    #[must_use]
    pub fn owes(&self, leg: PathId) -> bool {
        self.legs.get(leg).is_ok_and(|on| on.came.wrapping_sub(on.told) >= EVERY)
    }

    /// What is said of how much came by a leg.
    pub fn told(&mut self, leg: PathId, asked: bool) -> Option<Received> {
        let on = self.legs.get_mut(leg).ok()?;
        (on.told, on.tell_at) = (on.came, None);
        Some(Received { asked, count: on.came })
    }

    /// RECEIVED came by a leg.
    ///
    /// # Errors
    /// It acknowledges what was not sent, or nothing more than before, or was not asked for.
    pub fn acknowledged(
        &mut self,
        now: Time,
        leg: PathId,
        received: Received,
    ) -> Result<Acknowledged, ConfluxFault> {
        let on = self.legs.get_mut(leg)?;
        let fresh = received.count.wrapping_sub(on.acknowledged) as usize;
        let is_due = if received.asked { on.probed.is_some() } else { fresh > 0 };
        if fresh > on.kept.len() || !is_due {
            return Err(ConfluxFault::Unsent);
        }
        if received.asked {
            on.probed = None;
        }
        let mut last = None;
        for (sent, mut kept) in on.kept.drain(..fresh) {
            self.bytes -= kept.cost();
            last = Some(sent);
            if self.spare.len() < SPARE {
                kept.data.clear();
                self.spare.push(kept.data);
            }
        }
        on.acknowledged = received.count;
        if let Some(sent) = last {
            on.rtt =
                if on.rtt.is_zero() { now.since(sent) } else { (3 * on.rtt + now.since(sent)) / 4 };
            on.progress = now;
        }
        on.silent = false;
        self.heard = self.heard.max(Some(now));
        let at_once = last.filter(|_| fresh >= EVERY as usize);
        let rtt = at_once.map(|sent| now.since(sent));
        Ok(Acknowledged { messages: fresh as u64, rtt })
    }

    /// A leg is gone: what it owes is to be sent again. False if the set cannot go on: no leg was
    /// ever linked, and this was the last.
    pub fn lose(&mut self, leg: PathId) -> bool {
        if let Ok(on) = self.legs.get_mut(leg) {
            let (serial, linked) = (on.serial, on.linked);
            for (_, kept) in std::mem::take(&mut on.kept) {
                let cost = kept.cost();
                // A repetition that waits is the same message.
                if self.again.insert(kept.number, kept).is_some() {
                    self.bytes -= cost;
                }
            }
            self.legs.remove(leg);
            if linked && self.gone.len() < MOST_GONE {
                self.gone.push_back(serial);
            }
        }
        self.was_linked || self.legs.iter().next().is_some()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Retransmitter { was_linked: self.was_linked, ..Retransmitter::new(self.is_client) };
    }

    fn has_living(&self) -> bool {
        self.legs.iter().any(|(_, on)| on.is_living())
    }

    /// When a client asks whether anybody is there: nothing has come for so long while streams
    /// are open. It asks once, until something comes.
    fn quiet_at(&self, streams: bool) -> Option<Time> {
        let asks = self.is_client && streams && !self.probing && self.has_living();
        self.heard.filter(|_| asks).map(|heard| heard + QUIET.max(2 * self.longest()))
    }

    /// The longest round trip of its legs.
    fn longest(&self) -> Duration {
        self.legs.iter().map(|(_, on)| on.rtt).max().unwrap_or_default()
    }

    fn over_at(&self) -> Option<Time> {
        let most = if self.is_client { PATIENCE } else { 2 * PATIENCE };
        self.alone.map(|since| since + most)
    }

    /// When there will be something to do, though nothing happens; [`Time::ZERO`] for at once.
    /// `streams` says whether the set has any.
    #[must_use]
    pub fn next_timeout(&self, streams: bool) -> Option<Time> {
        let living = self.has_living();
        let at_once = self.was_linked && (living == self.alone.is_some() || self.is_idle(streams))
            || living && (!self.gone.is_empty() || self.legs.iter().any(|(_, on)| on.silent));
        if at_once {
            return Some(Time::ZERO);
        }
        let longest = self.was_linked.then(|| self.longest());
        let legs = self.legs.iter().map(|(_, on)| on);
        let legs = legs.flat_map(|on| [on.tell_at, on.silent_at(longest).filter(|_| !on.silent)]);
        legs.chain([self.quiet_at(streams), self.over_at()]).flatten().min()
    }

    /// Whether nobody needs the set, and it has no leg. An exit cannot know: a stream may have been
    /// lost on its way, which is sent again.
    fn is_idle(&self, streams: bool) -> bool {
        self.is_client && !streams && self.is_empty() && self.legs.iter().next().is_none()
    }

    /// What is to be done now. A leg that is to be told is, by [`Retransmitter::told`].
    pub fn actions(&mut self, now: Time, streams: bool) -> Vec<LegAction> {
        let mut actions = Vec::new();
        let quiet = self.quiet_at(streams).is_some_and(|at| at <= now);
        self.probing |= quiet;
        let longest = self.was_linked.then(|| self.longest());
        for (leg, on) in self.legs.iter_mut() {
            if on.tell_at.is_some_and(|at| at <= now) {
                actions.push(LegAction::Tell(leg));
            }
            if quiet && on.is_living() && on.probed.is_none() {
                on.probed = Some(now);
                actions.push(LegAction::Probe(leg));
            }
            if !on.silent && on.silent_at(longest).is_some_and(|at| at <= now) {
                on.silent = true;
                actions.push(LegAction::Silent(leg));
            }
        }
        self.alone = if self.has_living() { None } else { self.alone.or(Some(now)) };
        if self.alone.is_none() {
            let silent = self.legs.iter().filter(|(_, on)| on.silent).map(|(leg, _)| leg);
            actions.retain(|action| !matches!(action, LegAction::Silent(_)));
            actions.extend(silent.map(LegAction::GiveUp));
            actions.extend(self.gone.drain(..).map(LegAction::Gone));
        }
        let over = self.over_at().is_some_and(|at| at <= now) || self.is_idle(streams);
        if self.was_linked && over {
            actions.push(LegAction::Over);
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PathId = PathId(0);
    const TWO: PathId = PathId(1);
    const RTT: Duration = Duration::from_millis(100);

    fn at(millis: u64) -> Time {
        Time::from_millis(1_000 + millis)
    }

    fn message(number: u64) -> SentMessage {
        SentMessage { number, command: RelayCommand::DATA, stream: 1, data: vec![0; 400] }
    }

    /// Two linked legs.
    fn linked(is_client: bool) -> Retransmitter {
        let mut retransmitter = Retransmitter::new(is_client);
        for leg in [ONE, TWO] {
            retransmitter.launch(at(0), leg);
            retransmitter.linked(leg);
            retransmitter.measured(leg, RTT);
        }
        assert_eq!(retransmitter.actions(at(0), true), []);
        retransmitter
    }

    fn own(count: u32) -> Received {
        Received { asked: false, count }
    }

    #[test]
    fn what_is_acknowledged_is_forgotten_and_what_was_not_sent_is_refused() {
        let mut retransmitter = linked(false);
        (1..=5).for_each(|number| retransmitter.sent(at(0), ONE, message(number)));
        assert_eq!(retransmitter.bytes(), 5 * 496);
        assert_eq!(
            retransmitter.acknowledged(at(100), ONE, own(3)).map(|told| told.messages),
            Ok(3)
        );
        assert_eq!(retransmitter.bytes(), 2 * 496);
        for (leg, count) in [(ONE, 3), (ONE, 2), (ONE, 6), (ONE, 1 << 31), (TWO, 1)] {
            let refused = retransmitter.acknowledged(at(100), leg, own(count));
            assert_eq!(refused, Err(ConfluxFault::Unsent), "{count}");
        }
        let asked = Received { asked: true, count: 5 };
        assert_eq!(retransmitter.acknowledged(at(100), ONE, asked), Err(ConfluxFault::Unsent));
        assert_eq!(
            retransmitter.acknowledged(at(100), PathId(7), own(1)),
            Err(ConfluxFault::NotLinked)
        );
        assert_eq!(
            retransmitter.acknowledged(at(100), ONE, own(5)).map(|told| told.messages),
            Ok(2)
        );
        assert!(retransmitter.is_empty());
    }

    #[test]
    fn buffers_of_two_acknowledgements_are_used_again() {
        let mut retransmitter = linked(false);
        (1..=100).for_each(|number| retransmitter.sent(at(0), ONE, message(number)));
        retransmitter.acknowledged(at(100), ONE, own(100)).unwrap();
        assert!((0..62).all(|_| retransmitter.copy_of(b"abc").capacity() >= 400));
        let fresh = retransmitter.copy_of(b"abc");
        assert!(fresh == b"abc" && fresh.capacity() < 400);
    }

    #[test]
    fn every_31st_message_is_acknowledged_at_once_and_fewer_after_50_ms() {
        let mut retransmitter = linked(false);
        for number in 1..=62 {
            retransmitter.came(at(0), ONE);
            assert_eq!(retransmitter.owes(ONE), number % 31 == 0, "{number}");
            if retransmitter.owes(ONE) {
                assert_eq!(retransmitter.told(ONE, false), Some(own(number)));
            }
        }
        assert_eq!(retransmitter.next_timeout(true), None);
        retransmitter.came(at(10), TWO);
        assert_eq!(retransmitter.next_timeout(true), Some(at(60)));
        assert_eq!(retransmitter.actions(at(60), true), [LegAction::Tell(TWO)]);
        assert_eq!(retransmitter.told(TWO, false), Some(own(1)));
        assert_eq!(retransmitter.next_timeout(true), None);
    }

    #[test]
    fn what_went_by_a_dead_leg_is_sent_again_in_its_order_and_the_other_end_is_told() {
        let mut retransmitter = linked(false);
        for (leg, number) in [(ONE, 1), (TWO, 2), (ONE, 3)] {
            retransmitter.sent(at(0), leg, message(number));
        }
        assert!(retransmitter.lose(ONE));
        assert_eq!((retransmitter.to_send_again(), retransmitter.bytes()), (2, 3 * 496));
        assert_eq!(retransmitter.next_timeout(true), Some(Time::ZERO));
        assert_eq!(retransmitter.actions(at(1), true), [LegAction::Gone(1)]);
        for number in [1, 3] {
            assert_eq!(retransmitter.next_again().map(|kept| kept.number), Some(number));
            let kept = retransmitter.take_again().unwrap();
            retransmitter.sent(at(1), TWO, kept);
        }
        assert_eq!((retransmitter.take_again(), retransmitter.bytes()), (None, 3 * 496));
        assert_eq!(
            retransmitter.acknowledged(at(101), TWO, own(3)).map(|told| told.messages),
            Ok(3)
        );
        assert!(retransmitter.is_empty());
    }

    #[test]
    fn what_little_others_owe_is_repeated_by_a_leg_that_lives_and_counted_once() {
        let mut retransmitter = linked(true);
        retransmitter.sent(at(0), ONE, message(1));
        retransmitter.sent(at(0), TWO, message(2));
        retransmitter.repeat(TWO);
        assert_eq!((retransmitter.to_send_again(), retransmitter.bytes()), (1, 3 * 496));
        retransmitter.repeat(TWO);
        assert!(retransmitter.lose(ONE));
        assert_eq!((retransmitter.to_send_again(), retransmitter.bytes()), (1, 2 * 496));
        let kept = retransmitter.take_again().unwrap();
        assert_eq!(kept.number, 1);
        retransmitter.sent(at(1), TWO, kept);
        retransmitter.acknowledged(at(101), TWO, own(2)).unwrap();
        assert!(retransmitter.is_empty());
        // More than that is sent again when the leg has been silent for long enough.
        let mut retransmitter = linked(true);
        for number in 1..=32 {
            retransmitter.sent(at(0), ONE, message(number));
        }
        retransmitter.repeat(TWO);
        assert_eq!(retransmitter.to_send_again(), 0);
    }

    #[test]
    fn a_leg_that_owes_an_answer_for_a_second_is_given_up_while_another_answers() {
        let mut retransmitter = linked(false);
        retransmitter.sent(at(0), ONE, message(1));
        assert_eq!(retransmitter.next_timeout(true), Some(at(900)), "a round trip less");
        retransmitter.sent(at(500), ONE, message(2));
        retransmitter.acknowledged(at(600), ONE, own(1)).unwrap();
        let due = retransmitter.next_timeout(true).unwrap();
        assert!(at(1_300) < due && due < at(1_600), "it counts from the last answer");
        assert_eq!(retransmitter.actions(due, true), [LegAction::GiveUp(ONE)]);
        assert!(retransmitter.is_silent(ONE) && !retransmitter.is_silent(TWO));
    }

    #[test]
    fn three_long_round_trips_are_waited_for() {
        let mut retransmitter = linked(false);
        retransmitter.measured(ONE, Duration::from_millis(600));
        retransmitter.sent(at(0), ONE, message(1));
        assert_eq!(retransmitter.next_timeout(true), Some(at(1_200)));
    }

    #[test]
    fn legs_that_are_all_silent_stay_and_the_set_ends_after_ten_seconds() {
        for (is_client, ends) in [(true, 10_900), (false, 20_900)] {
            let mut retransmitter = linked(is_client);
            [ONE, TWO].iter().for_each(|leg| retransmitter.sent(at(0), *leg, message(1)));
            let silent = [LegAction::Silent(ONE), LegAction::Silent(TWO)];
            assert_eq!(retransmitter.actions(at(900), true), silent);
            assert_eq!(retransmitter.next_timeout(true), Some(at(ends)));
            assert_eq!(retransmitter.actions(at(ends), true), [LegAction::Over]);
            // Before that, one that answers again is enough.
            retransmitter.acknowledged(at(ends), TWO, own(1)).unwrap();
            assert_eq!(retransmitter.next_timeout(true), Some(Time::ZERO));
            assert_eq!(retransmitter.actions(at(ends), true), [LegAction::GiveUp(ONE)]);
        }
    }

    #[test]
    fn a_set_without_legs_waits_for_a_new_one_unless_nobody_needs_it() {
        let mut retransmitter = linked(false);
        retransmitter.sent(at(0), ONE, message(1));
        assert!(retransmitter.lose(ONE) && retransmitter.lose(TWO));
        assert_eq!(retransmitter.actions(at(1), false), [], "the last message is not acknowledged");
        retransmitter.join(TWO, 3);
        assert_eq!(retransmitter.next_timeout(false), Some(at(20_001)), "it is not linked");
        retransmitter.linked(TWO);
        let gone = [LegAction::Gone(1), LegAction::Gone(2)];
        assert_eq!(retransmitter.actions(at(2), false), gone);
        let again = retransmitter.take_again().unwrap();
        retransmitter.sent(at(2), TWO, again);
        retransmitter.acknowledged(at(3), TWO, own(1)).unwrap();
        assert!(retransmitter.lose(TWO));
        assert_eq!(retransmitter.actions(at(4), true), []);
        assert_eq!(retransmitter.actions(at(4), false), [], "a stream may be on its way");
        assert_eq!(retransmitter.actions(at(20_004), false), [LegAction::Over]);
        let mut client = linked(true);
        assert!(client.lose(ONE) && client.lose(TWO));
        assert_eq!(client.actions(at(4), true), []);
        assert_eq!(client.actions(at(4), false), [LegAction::Over]);
    }

    #[test]
    fn a_set_that_never_had_a_linked_leg_goes_with_its_last() {
        let mut retransmitter = Retransmitter::new(true);
        [ONE, TWO].iter().for_each(|leg| assert!(retransmitter.launch(at(0), *leg) > 0));
        assert!(retransmitter.lose(ONE));
        assert!(!retransmitter.lose(TWO));
    }

    #[test]
    fn a_further_leg_whose_link_nobody_answers_is_silent_and_the_first_is_not() {
        let mut retransmitter = Retransmitter::new(true);
        retransmitter.launch(at(0), ONE);
        assert_eq!(retransmitter.next_timeout(true), None, "the set waits for its first");
        retransmitter.linked(ONE);
        retransmitter.measured(ONE, 8 * RTT);
        retransmitter.launch(at(100), TWO);
        assert_eq!(retransmitter.actions(at(100), true), []);
        assert_eq!(retransmitter.next_timeout(true), Some(at(2_500)), "three round trips");
        assert_eq!(retransmitter.actions(at(2_500), true), [LegAction::GiveUp(TWO)]);
        retransmitter.lose(TWO);
        retransmitter.launch(at(3_000), TWO);
        retransmitter.lose(ONE);
        assert_eq!(retransmitter.actions(at(3_000), true), []);
        assert_eq!(retransmitter.next_timeout(true), Some(at(5_000)));
        let alone = retransmitter.actions(at(5_000), true);
        assert_eq!(alone, [LegAction::Silent(TWO)], "it is kept, and another is to be built");
        retransmitter.linked(TWO);
        assert!(!retransmitter.is_silent(TWO), "its answer came late");
    }

    #[test]
    fn a_client_that_nothing_reaches_asks_once_and_an_answer_is_an_answer() {
        let mut retransmitter = linked(true);
        assert_eq!(retransmitter.next_timeout(true), None, "nothing came yet");
        retransmitter.came(at(0), ONE);
        retransmitter.told(ONE, false);
        assert_eq!(retransmitter.next_timeout(false), None, "nobody waits for anything");
        assert_eq!(retransmitter.next_timeout(true), Some(at(1_000)));
        let asks = [LegAction::Probe(ONE), LegAction::Probe(TWO)];
        assert_eq!(retransmitter.actions(at(1_000), true), asks);
        let answer = Received { asked: true, count: 0 };
        retransmitter.acknowledged(at(1_100), ONE, answer).unwrap();
        assert_eq!(retransmitter.acknowledged(at(1_100), ONE, answer), Err(ConfluxFault::Unsent));
        assert_eq!(retransmitter.next_timeout(true), Some(at(1_900)));
        assert_eq!(retransmitter.actions(at(1_900), true), [LegAction::GiveUp(TWO)]);
        retransmitter.lose(TWO);
        retransmitter.actions(at(1_900), true);
        assert_eq!(retransmitter.next_timeout(true), None, "it asks no more until something comes");
    }

    #[test]
    fn nothing_new_is_sent_while_too_much_is_kept() {
        let mut retransmitter = linked(false);
        let most = (16 << 20) / 496;
        (0..most).for_each(|number| retransmitter.sent(at(0), ONE, message(number)));
        assert!(!retransmitter.is_full());
        retransmitter.sent(at(0), ONE, message(most));
        assert!(retransmitter.is_full());
        retransmitter.clear();
        assert!(retransmitter.is_empty() && retransmitter.was_linked());
    }
}
