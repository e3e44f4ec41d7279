//! Storage for messages that one end of a set of circuits has sent and the other end has not
//! acknowledged. If a circuit (leg) fails, its messages are sent again on another leg
//! (`docs/spec/resilient-legs.md#acknowledgements`).
//!
//! The module is independent of circuits and of cell formats. The caller reports messages that
//! were sent, received and acknowledged on each leg. The module returns the actions that are due
//! ([`LegAction`]).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use super::fault::ConfluxFault;
use super::legs::Legs;
use crate::wire::message::RelayCommand;
use crate::wire::resilient::Received;

/// Number of messages after which an acknowledgement is due: as many as the cells that one SENDME
/// acknowledges by default.
const EVERY: u32 = 31;
/// Maximum delay of an acknowledgement while fewer than `EVERY` messages are unacknowledged.
const DELAY: Duration = Duration::from_millis(50);
/// Minimum time without an acknowledgement after which a leg (parallel circuit) counts as silent.
/// The time is three round trips if that is longer.
const SILENCE: Duration = Duration::from_secs(1);
/// Minimum timeout for the answer to LINK on a leg (parallel circuit) other than the first. The
/// leg counts as silent once the timeout has expired. The timeout is three times the longest
/// round-trip time of the set if that is longer. For the first leg, [`Limits`](super::Limits) has
/// a longer timeout, because no data is lost with that leg.
const LINKING: Duration = Duration::from_secs(2);
/// Minimum time without a received message after which a client sends PROBE. The time is two round
/// trips if that is longer.
const QUIET: Duration = Duration::from_secs(1);
/// Time for which a client keeps a set of circuits while no circuit answers. An exit keeps it
/// twice as long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum unacknowledged bytes of a set of circuits: 1.3 s at 100 Mbit/s. At this limit the set
/// sends no new messages.
const MOST: usize = 16 << 20;
/// Memory in bytes that a stored message takes in addition to its data.
const BESIDES: usize = 96;
/// Maximum number of free buffers that are stored for reuse: the buffers of the messages that two
/// acknowledgements cover.
const SPARE: usize = 2 * EVERY as usize;
/// Maximum number of failed legs (parallel circuits) that wait to be reported to the other end.
const MOST_GONE: usize = 64;
/// Maximum number of messages that [`Retransmitter::repeat`] schedules on a working leg. They were
/// sent on other legs (parallel circuits), which are not known to have failed.
const MOST_REPEATED: usize = EVERY as usize;

/// A message that was sent and is stored until it is acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentMessage {
    /// The message's sequence number among all messages of the set of circuits.
    pub number: u64,
    /// The message's command.
    pub command: RelayCommand,
    /// ID of the message's stream; 0 if the message belongs to no stream.
    pub stream: u16,
    /// The message's data, without its sequence number.
    pub data: Vec<u8>,
}

impl SentMessage {
    fn cost(&self) -> usize {
        self.data.len() + BESIDES
    }
}

/// An action that is due after some time, or because a leg (parallel circuit) was added or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegAction {
    /// Send RECEIVED on this leg (parallel circuit). [`Retransmitter::take_received`] returns its
    /// content.
    SendReceived(PathId),
    /// Send PROBE on this leg (parallel circuit), which asks the other end for an acknowledgement.
    Probe(PathId),
    /// The other end answers on no leg (parallel circuit), including this one: build another leg.
    Silent(PathId),
    /// The other end no longer answers on this leg (parallel circuit), but answers on another:
    /// close this leg.
    GiveUp(PathId),
    /// Report the closing of a leg (parallel circuit) to the other end, on any other leg. The
    /// value is the closed leg's serial number.
    Gone(u32),
    /// The other end has not answered on any leg for too long: end the set of circuits.
    Over,
}

/// Result of handling a RECEIVED message, which acknowledges messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// Number of newly acknowledged messages.
    pub messages: u64,
    /// Time from sending the newest acknowledged message to its acknowledgement. `None` if the
    /// acknowledgement was delayed because fewer than `EVERY` messages had arrived.
    pub rtt: Option<Duration>,
}

/// State of one leg (parallel circuit), kept so that its messages can be sent again.
#[derive(Debug)]
struct OnLeg {
    serial: u32,
    /// True if both ends have linked the leg. Messages may then be sent on it.
    linked: bool,
    /// Time at which a client sent LINK on the leg (parallel circuit); `None` if we are the exit.
    launched: Option<Time>,
    /// Unacknowledged messages sent on the leg (parallel circuit), oldest first, each with the
    /// time at which it was sent.
    kept: VecDeque<(Time, SentMessage)>,
    /// Number of acknowledged messages that were sent on the leg (parallel circuit).
    acknowledged: u32,
    /// Number of messages received on the leg (parallel circuit).
    received: u32,
    /// Number of messages received on the leg (parallel circuit) that we have acknowledged.
    receipts_sent: u32,
    /// Time at which we must send the next acknowledgement; `None` if none is due.
    acknowledge_at: Option<Time>,
    /// Time at which the other end last acknowledged messages that we sent on the leg (parallel
    /// circuit).
    progress: Time,
    /// Smoothed time from sending a message to its acknowledgement, on this leg (parallel
    /// circuit).
    rtt: Duration,
    probed: Option<Time>,
    silent: bool,
}

impl OnLeg {
    /// Returns the time at which the leg (parallel circuit) counts as silent, if an answer of the
    /// other end is due on it. `longest` is the longest round-trip time of all legs; `None` while
    /// the set waits for its first leg.
    fn silent_at(&self, longest: Option<Duration>) -> Option<Time> {
        if !self.linked {
            return Some(self.launched? + LINKING.max(3 * longest?));
        }
        let sent = self.kept.front().map(|(sent, _)| (*sent).max(self.progress));
        let since = [sent, self.probed].into_iter().flatten().min()?;
        // The last answer may have been in transit when the leg failed. Subtract one round trip,
        // because that answer arrived up to one round trip after the failure.
        Some(since + (SILENCE.max(3 * self.rtt) - self.rtt.min(SILENCE)))
    }

    fn is_living(&self) -> bool {
        self.linked && !self.silent
    }
}

/// Storage for unacknowledged messages at one end of a set of circuits, and the state of each
/// circuit (leg).
#[derive(Debug)]
pub struct Retransmitter {
    is_client: bool,
    legs: Legs<OnLeg>,
    last_serial: u32,
    /// Messages that must be sent again, by sequence number.
    again: BTreeMap<u64, SentMessage>,
    bytes: usize,
    /// Empty buffers for reuse.
    spare: Vec<Vec<u8>>,
    /// Serial numbers of closed legs (parallel circuits) that must be reported to the other end.
    gone: VecDeque<u32>,
    /// Time of the last received message; `None` before the first.
    last_received: Option<Time>,
    /// True if PROBE has been sent on the legs (circuits) since the last received message.
    probing: bool,
    /// True if a leg (parallel circuit) was ever linked.
    was_linked: bool,
    /// Time since which the other end has answered on no leg (circuit); `None` while it answers on
    /// one.
    alone: Option<Time>,
}

impl Retransmitter {
    /// Returns an empty state without legs (parallel circuits) or messages.
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
            last_received: None,
            probing: false,
            was_linked: false,
            alone: None,
        }
    }

    /// Adds the next leg (parallel circuit) of a client that has sent LINK at `now`. Returns the
    /// leg's serial number.
    pub fn launch(&mut self, now: Time, leg: PathId) -> u32 {
        let serial = self.last_serial.saturating_add(1);
        self.join(leg, serial);
        self.legs.get_mut(leg).into_iter().for_each(|on| on.launched = Some(now));
        serial
    }

    /// Adds the leg `leg` (a parallel circuit), which has the serial number `serial`.
    pub fn join(&mut self, leg: PathId, serial: u32) {
        self.last_serial = self.last_serial.max(serial);
        let joined = OnLeg {
            serial,
            linked: false,
            launched: None,
            kept: VecDeque::new(),
            acknowledged: 0,
            received: 0,
            receipts_sent: 0,
            acknowledge_at: None,
            progress: Time::ZERO,
            rtt: Duration::ZERO,
            probed: None,
            silent: false,
        };
        self.legs.set(leg, joined);
    }

    /// Records that the leg `leg` (a parallel circuit) is linked, so that messages may be sent on
    /// it.
    pub fn linked(&mut self, leg: PathId) {
        self.was_linked = true;
        if let Ok(on) = self.legs.get_mut(leg) {
            (on.linked, on.silent) = (true, false);
        }
    }

    /// Stores the round-trip time of the leg `leg` (a parallel circuit), as measured while the leg
    /// was linked.
    pub fn measured(&mut self, leg: PathId, rtt: Duration) {
        self.legs.get_mut(leg).into_iter().for_each(|on| on.rtt = rtt);
    }

    /// Returns true if a leg (parallel circuit) was ever linked.
    #[must_use]
    pub const fn was_linked(&self) -> bool {
        self.was_linked
    }

    /// Returns the serial number of the leg `leg` (a parallel circuit); `None` if its slot is
    /// empty.
    #[must_use]
    pub fn serial(&self, leg: PathId) -> Option<u32> {
        self.legs.get(leg).ok().map(|on| on.serial)
    }

    /// Returns the leg (parallel circuit) with the serial number `serial`; `None` if there is
    /// none.
    #[must_use]
    pub fn leg(&self, serial: u32) -> Option<PathId> {
        self.legs.iter().find(|(_, on)| on.serial == serial).map(|(leg, _)| leg)
    }

    /// Handles the other end's report that the leg (parallel circuit) with the serial number
    /// `serial` is closed. The report arrived on the leg `by`. Returns the reported leg, or `None`
    /// if it is already closed here.
    ///
    /// # Errors
    /// There never was such a leg, or the report arrived on that leg itself.
    pub fn leg_reported_closed(
        &self,
        serial: u32,
        by: PathId,
    ) -> Result<Option<PathId>, ConfluxFault> {
        let leg = self.leg(serial);
        if serial > self.last_serial || leg == Some(by) {
            return Err(ConfluxFault::NotLinked);
        }
        Ok(leg)
    }

    /// Returns true if the other end has not answered on the leg `leg` (parallel circuit) for too
    /// long.
    #[must_use]
    pub fn is_silent(&self, leg: PathId) -> bool {
        self.legs.get(leg).is_ok_and(|on| on.silent)
    }

    /// Returns the total size in bytes of messages that are stored until they are acknowledged.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if new messages must wait for an acknowledgement.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.bytes >= MOST
    }

    /// Returns true if no message is stored: the other end has acknowledged all of them.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns a copy of `data`, in a reused buffer if one is free.
    #[must_use]
    pub fn copy_of(&mut self, data: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(data);
        buffer
    }

    /// Stores a message that was sent on the leg `leg` (a parallel circuit).
    pub fn sent(&mut self, now: Time, leg: PathId, kept: SentMessage) {
        self.bytes += kept.cost();
        if let Ok(on) = self.legs.get_mut(leg) {
            on.kept.push_back((now, kept));
        }
    }

    /// Returns the next message that must be sent again; `None` if there is none.
    #[must_use]
    pub fn next_again(&self) -> Option<&SentMessage> {
        self.again.values().next()
    }

    /// Removes and returns the next message that must be sent again; `None` if there is none.
    /// After sending it, the caller calls [`Retransmitter::sent`].
    pub fn take_again(&mut self) -> Option<SentMessage> {
        let (_, kept) = self.again.pop_first()?;
        self.bytes -= kept.cost();
        Some(kept)
    }

    /// Schedules the unacknowledged messages of other legs (parallel circuits) for sending on the
    /// working leg `lively`, if there are at most `MOST_REPEATED`. The caller does this before it
    /// sends XOFF. The other end handles XOFF only after these messages, and would wait for them
    /// if one of the other legs has failed unnoticed. The originals stay stored, and the other end
    /// drops duplicates.
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

    /// Returns the number of messages that must be sent again.
    #[must_use]
    pub fn to_send_again(&self) -> usize {
        self.again.len()
    }

    /// Records that a message with a sequence number was received on the leg `leg` (a parallel
    /// circuit).
    pub fn note_received(&mut self, now: Time, leg: PathId) {
        (self.last_received, self.probing) = (Some(now), false);
        if let Ok(on) = self.legs.get_mut(leg) {
            on.received = on.received.wrapping_add(1);
            on.acknowledge_at.get_or_insert(now + DELAY);
        }
    }

    /// Returns true if at least `EVERY` messages received on `leg` (a parallel circuit) are
    /// unacknowledged, so that a RECEIVED message is due.
    #[must_use]
    pub fn owes(&self, leg: PathId) -> bool {
        self.legs.get(leg).is_ok_and(|on| on.received.wrapping_sub(on.receipts_sent) >= EVERY)
    }

    /// Returns the RECEIVED message to send on `leg` (a parallel circuit); `None` if there is no
    /// such leg. `answers_probe` is true if the message answers PROBE.
    pub fn take_received(&mut self, leg: PathId, answers_probe: bool) -> Option<Received> {
        let on = self.legs.get_mut(leg).ok()?;
        (on.receipts_sent, on.acknowledge_at) = (on.received, None);
        Some(Received { answers_probe, count: on.received })
    }

    /// Handles `received`, a RECEIVED message that arrived on the leg `leg` (parallel circuit).
    ///
    /// # Errors
    /// The message acknowledges messages that were never sent, or it acknowledges no new messages
    /// and answers no PROBE of ours.
    pub fn acknowledged(
        &mut self,
        now: Time,
        leg: PathId,
        received: Received,
    ) -> Result<Acknowledged, ConfluxFault> {
        let on = self.legs.get_mut(leg)?;
        let fresh = received.count.wrapping_sub(on.acknowledged) as usize;
        let is_due = if received.answers_probe { on.probed.is_some() } else { fresh > 0 };
        if fresh > on.kept.len() || !is_due {
            return Err(ConfluxFault::Unsent);
        }
        if received.answers_probe {
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
        self.last_received = self.last_received.max(Some(now));
        let at_once = last.filter(|_| fresh >= EVERY as usize);
        let rtt = at_once.map(|sent| now.since(sent));
        Ok(Acknowledged { messages: fresh as u64, rtt })
    }

    /// Removes a closed leg (parallel circuit), and schedules its unacknowledged messages for
    /// retransmission. Returns false if the set cannot continue, because it has no leg now and
    /// none was ever linked.
    pub fn lose(&mut self, leg: PathId) -> bool {
        if let Ok(on) = self.legs.get_mut(leg) {
            let (serial, linked) = (on.serial, on.linked);
            for (_, kept) in std::mem::take(&mut on.kept) {
                let cost = kept.cost();
                // The message already waits to be repeated. Count its bytes only once.
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

    /// Drops all legs (parallel circuits) and all messages.
    pub fn clear(&mut self) {
        *self = Retransmitter { was_linked: self.was_linked, ..Retransmitter::new(self.is_client) };
    }

    fn has_living(&self) -> bool {
        self.legs.iter().any(|(_, on)| on.is_living())
    }

    /// Returns the time at which a client sends PROBE on its legs (circuits): after `QUIET`
    /// without a message. Returns `None` at an exit, while no stream is open, while no leg
    /// answers, and before the first message. After a PROBE, returns `None` until a message
    /// arrives.
    fn quiet_at(&self, streams: bool) -> Option<Time> {
        let asks = self.is_client && streams && !self.probing && self.has_living();
        self.last_received
            .filter(|_| asks)
            .map(|last_received| last_received + QUIET.max(2 * self.longest()))
    }

    /// Returns the longest round-trip time of all legs (parallel circuits).
    fn longest(&self) -> Duration {
        self.legs.iter().map(|(_, on)| on.rtt).max().unwrap_or_default()
    }

    fn over_at(&self) -> Option<Time> {
        let most = if self.is_client { PATIENCE } else { 2 * PATIENCE };
        self.alone.map(|since| since + most)
    }

    /// Returns the time of the next action, provided that no message is sent or received before
    /// it. [`Time::ZERO`] means now, and `None` that no action is due at any time. `streams` is
    /// true if the circuit set has streams.
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
        let legs =
            legs.flat_map(|on| [on.acknowledge_at, on.silent_at(longest).filter(|_| !on.silent)]);
        legs.chain([self.quiet_at(streams), self.over_at()]).flatten().min()
    }

    /// Returns true at a client if the circuit set has no leg, no stream (`streams`) and no data.
    /// Returns false at an exit: a set that seems unused there may still receive the first message
    /// of a stream. The client retransmits this message if it was lost.
    fn is_idle(&self, streams: bool) -> bool {
        self.is_client && !streams && self.is_empty() && self.legs.iter().next().is_none()
    }

    /// Returns the actions that are due at `now`. `streams` is true if the circuit set has
    /// streams.
    pub fn actions(&mut self, now: Time, streams: bool) -> Vec<LegAction> {
        let mut actions = Vec::new();
        let quiet = self.quiet_at(streams).is_some_and(|at| at <= now);
        self.probing |= quiet;
        let longest = self.was_linked.then(|| self.longest());
        for (leg, on) in self.legs.iter_mut() {
            if on.acknowledge_at.is_some_and(|at| at <= now) {
                actions.push(LegAction::SendReceived(leg));
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

    /// Returns a state with two linked legs.
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
        Received { answers_probe: false, count }
    }

    #[test]
    fn what_is_acknowledged_is_forgotten_and_what_was_not_sent_is_refused() {
        let mut retransmitter = linked(false);
        (1..=5).for_each(|number| retransmitter.sent(at(0), ONE, message(number)));
        assert_eq!(retransmitter.bytes(), 5 * 496);
        assert_eq!(
            retransmitter.acknowledged(at(100), ONE, own(3)).map(|report| report.messages),
            Ok(3)
        );
        assert_eq!(retransmitter.bytes(), 2 * 496);
        for (leg, count) in [(ONE, 3), (ONE, 2), (ONE, 6), (ONE, 1 << 31), (TWO, 1)] {
            let refused = retransmitter.acknowledged(at(100), leg, own(count));
            assert_eq!(refused, Err(ConfluxFault::Unsent), "{count}");
        }
        let answer = Received { answers_probe: true, count: 5 };
        assert_eq!(retransmitter.acknowledged(at(100), ONE, answer), Err(ConfluxFault::Unsent));
        assert_eq!(
            retransmitter.acknowledged(at(100), PathId(7), own(1)),
            Err(ConfluxFault::NotLinked)
        );
        assert_eq!(
            retransmitter.acknowledged(at(100), ONE, own(5)).map(|report| report.messages),
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
            retransmitter.note_received(at(0), ONE);
            assert_eq!(retransmitter.owes(ONE), number % 31 == 0, "{number}");
            if retransmitter.owes(ONE) {
                assert_eq!(retransmitter.take_received(ONE, false), Some(own(number)));
            }
        }
        assert_eq!(retransmitter.next_timeout(true), None);
        retransmitter.note_received(at(10), TWO);
        assert_eq!(retransmitter.next_timeout(true), Some(at(60)));
        assert_eq!(retransmitter.actions(at(60), true), [LegAction::SendReceived(TWO)]);
        assert_eq!(retransmitter.take_received(TWO, false), Some(own(1)));
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
            retransmitter.acknowledged(at(101), TWO, own(3)).map(|report| report.messages),
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
        // If more than `MOST_REPEATED` messages are unacknowledged, they are sent again only after
        // the leg has been silent for long enough.
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
            // If one leg answers before the timeout is handled, the set continues.
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
        retransmitter.note_received(at(0), ONE);
        retransmitter.take_received(ONE, false);
        assert_eq!(retransmitter.next_timeout(false), None, "nobody waits for anything");
        assert_eq!(retransmitter.next_timeout(true), Some(at(1_000)));
        let asks = [LegAction::Probe(ONE), LegAction::Probe(TWO)];
        assert_eq!(retransmitter.actions(at(1_000), true), asks);
        let answer = Received { answers_probe: true, count: 0 };
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
