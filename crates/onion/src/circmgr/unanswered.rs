//! Streams that the exit has not answered (path-spec 2.3). After a timeout, such a stream tries
//! another circuit. The circuit without an answer takes no new streams, but keeps its open
//! streams.
//!
//! A relay of that circuit may be down. Each of its relays through which no answer arrived in the
//! meantime is a suspect for a minute. During this time, other circuits through a suspect take no
//! new streams, and new circuits avoid the suspect while other relays are available. Without this
//! rule, each stream on a circuit with a failed relay would wait for 10 s. Streams of a set of
//! several circuits would wait whenever the scheduler changes to a circuit with such a relay.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anabranch_multipath::Time;

use super::{Circuit, CircuitManager, Demand, Order};
use crate::client::CircuitKey;

/// Timeout for an exit's answer on a stream's first attempts.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);
/// Timeout for an exit's answer on a stream's later attempts (C tor's `compute_retry_timeout`).
const LATER_PATIENCE: Duration = Duration::from_secs(15);
/// Number of a stream's attempts that have the timeout [`FIRST_PATIENCE`].
const FIRST_ATTEMPTS: u32 = 2;
/// Time for which silent relays are avoided, unless an answer arrives through them.
pub(super) const SUSPICION: Duration = Duration::from_secs(60);

/// A demand (request for a circuit) that has no circuit yet.
#[derive(Clone, Debug)]
pub(super) struct PendingDemand {
    pub(super) demand: Demand,
    /// Number of circuits that carried the stream of the demand (request for a circuit) without an
    /// answer in time.
    pub(super) silences: u32,
}

/// A demand (request for a circuit) that is attached to a circuit whose exit has not answered yet.
#[derive(Clone, Debug)]
struct Unanswered {
    pending: PendingDemand,
    circuit: CircuitKey,
    since: Time,
    deadline: Time,
}

/// Relays that may be down. Guards are never suspects: all circuits share the guards, and building
/// a circuit shows whether its guard works.
#[derive(Debug, Default)]
pub(super) struct SuspectRelays {
    /// Time of the last answer through each relay; entries older than [`LATER_PATIENCE`] are
    /// dropped.
    last_answer: BTreeMap<[u8; 20], Time>,
    /// Time until which each relay is avoided.
    until: BTreeMap<[u8; 20], Time>,
}

impl SuspectRelays {
    /// Records that an answer arrived through `relays`.
    pub(super) fn record_answers(&mut self, now: Time, relays: &[[u8; 20]]) {
        self.last_answer.retain(|_, at| now < *at + LATER_PATIENCE);
        self.last_answer.extend(relays.iter().map(|id| (*id, now)));
        self.until.retain(|id, _| !relays.contains(id));
    }

    /// Marks as suspects the relays among `relays` through which no answer has arrived since
    /// `since`. Returns these suspects.
    fn suspect(
        &mut self,
        now: Time,
        since: Time,
        relays: impl Iterator<Item = [u8; 20]>,
    ) -> BTreeSet<[u8; 20]> {
        let silent = |id: &[u8; 20]| self.last_answer.get(id).is_none_or(|at| *at <= since);
        let suspects: BTreeSet<[u8; 20]> = relays.filter(silent).collect();
        self.until.retain(|_, until| now < *until);
        self.until.extend(suspects.iter().map(|id| (*id, now + SUSPICION)));
        suspects
    }

    /// Returns the relays that are avoided at `now`.
    pub(super) fn at(&self, now: Time) -> Vec<[u8; 20]> {
        self.until.iter().filter(|(_, until)| now < **until).map(|(id, _)| *id).collect()
    }
}

/// All demands (requests for a circuit) that wait for an exit's answer, by their identifiers.
#[derive(Debug, Default)]
pub(super) struct UnansweredDemands {
    demands: BTreeMap<u64, Unanswered>,
    deadlines: BTreeSet<(Time, u64)>,
}

impl UnansweredDemands {
    /// Adds a demand (request for a circuit) that was attached to `circuit`.
    pub(super) fn add(&mut self, now: Time, pending: PendingDemand, circuit: CircuitKey) {
        let is_early = pending.silences < FIRST_ATTEMPTS;
        let deadline = now + if is_early { FIRST_PATIENCE } else { LATER_PATIENCE };
        let number = pending.demand.number;
        self.remove(number);
        self.deadlines.insert((deadline, number));
        self.demands.insert(number, Unanswered { pending, circuit, since: now, deadline });
    }

    /// Removes a demand (request for a circuit) that was answered or withdrawn.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some(unanswered) = self.demands.remove(&number) {
            self.deadlines.remove(&(unanswered.deadline, number));
        }
    }

    /// Returns the earliest time at which an exit's answer to a demand (request for a circuit) is
    /// overdue; `None` if no answer is awaited.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Removes and returns a demand (request for a circuit) whose answer is overdue at `now`;
    /// `None` if there is none. If several are overdue, takes the earliest.
    fn pop_due(&mut self, now: Time) -> Option<Unanswered> {
        let &(deadline, number) = self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        self.deadlines.pop_first();
        self.demands.remove(&number)
    }
}

impl PendingDemand {
    /// Returns the exits that a circuit for this demand (request for a circuit) must avoid.
    pub(super) fn avoided(&self) -> Vec<[u8; 20]> {
        self.demand.avoid.iter().chain(&self.demand.failed_exits).copied().collect()
    }
}

impl CircuitManager {
    /// Records that the exit has accepted or refused the stream of a demand (request for a
    /// circuit), or that the stream has ended.
    pub fn answered(&mut self, number: u64) {
        self.unanswered.remove(number);
    }

    /// Records that an answer arrived on `circuit`, which shows that the circuit's relays work. In
    /// a set of several circuits, it is unknown which circuit carried the answer. The answer then
    /// only shows that the last relay works, at which all circuits of the set end.
    pub fn last_answer(&mut self, now: Time, circuit: CircuitKey) {
        let head = self.head_of(circuit);
        let is_alone = self.further(head).next().is_none();
        let Some(path) = self.path(head) else { return };
        self.suspects.record_answers(now, if is_alone { &path[1..] } else { &path[2..] });
    }

    /// Records that the circuit `key` was built, or was linked at its last relay. Both show that
    /// all relays of the circuit work.
    pub(super) fn note_all_answered(&mut self, now: Time, key: CircuitKey) {
        if let Some(circuit) = self.circuits.get(&key) {
            self.suspects.record_answers(now, &circuit.path[1..]);
        }
    }

    /// Detaches streams from circuits whose exit has not answered in time, and queues their
    /// demands (requests for a circuit) again.
    pub(super) fn give_up_silent(&mut self, now: Time) {
        while let Some(Unanswered { mut pending, circuit, since, .. }) =
            self.unanswered.pop_due(now)
        {
            self.orders.push_back(Order::Detach(pending.demand.number));
            pending.demand.failed_exits.extend(self.path(circuit).map(|path| path[2]));
            pending.silences += 1;
            self.stream_ended(circuit);
            self.retire(circuit);
            self.leave_suspects((now, since), circuit);
            self.demands.push(pending);
        }
    }

    /// Stops the use of circuits that share a suspect middle or exit with the circuit `silent`,
    /// which has not answered since the time `since`, because the next stream on them would also
    /// wait for a timeout. Circuits in use take no new streams. Unused circuits are dropped, and
    /// their replacements show whether the relays answer.
    fn leave_suspects(&mut self, (now, since): (Time, Time), silent: CircuitKey) {
        let head = self.head_of(silent);
        let of_silent: Vec<[u8; 20]> =
            self.legs_of(head).flat_map(|leg| [leg.path[1], leg.path[2]]).collect();
        let suspects = self.suspects.suspect(now, since, of_silent.into_iter());
        let is_by = |circuit: &Circuit| circuit.path[1..].iter().any(|id| suspects.contains(id));
        let unbuilt = self.circuits.iter().filter(|(_, one)| !one.built && is_by(one));
        let unbuilt: Vec<CircuitKey> = unbuilt.map(|(key, _)| *key).collect();
        unbuilt.into_iter().for_each(|key| self.drop_circuit(key));
        let heads = self.circuits.iter().filter(|(_, one)| one.built && one.leg.head.is_none());
        let others = heads.filter(|(key, _)| **key != head && self.legs_of(**key).any(is_by));
        let (spare, used): (Vec<_>, Vec<_>) =
            others.map(|(key, one)| (*key, one.is_spare())).partition(|(_, spare)| *spare);
        spare.into_iter().for_each(|(key, _)| self.drop_circuit(key));
        used.into_iter().for_each(|(key, _)| self.retire(key));
    }

    /// Iterates over the circuits of a set, its head (the circuit that represents the set) first.
    fn legs_of(&self, head: CircuitKey) -> impl Iterator<Item = &Circuit> {
        let further = self.further(head).map(|(_, leg)| leg);
        self.circuits.get(&head).into_iter().chain(further)
    }
}

impl Circuit {
    /// Returns true if the circuit is built and unused.
    fn is_spare(&self) -> bool {
        self.built && self.first_used.is_none() && self.leg.head.is_none()
    }
}
