//! Streams whose exit has not answered (path-spec 2.3): each is given up after a while, and tries
//! another circuit. The one that was silent takes no new streams; those that are open on it stay.
//!
//! One of its relays may have fallen silent. A relay by which no answer came meanwhile is a suspect
//! for a minute: no other circuit by it takes new streams, and new circuits avoid it as long as
//! there are others. Without that, each user whose circuit has such a relay waits for
//! 10 s, and of a set of several legs at whatever time its scheduler changes to that leg.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anabranch_multipath::Time;

use super::{Circuit, CircuitManager, Demand, Order};
use crate::client::CircuitKey;

/// Time that an exit has to answer a stream's first attempts; and all later ones (C tor's
/// `compute_retry_timeout`).
const FIRST_PATIENCE: Duration = Duration::from_secs(10);
const LATER_PATIENCE: Duration = Duration::from_secs(15);
/// Attempts for which [`FIRST_PATIENCE`] holds.
const FIRST_ATTEMPTS: u32 = 2;
/// Time for which relays are avoided that did not answer, unless they are heard of.
pub(super) const SUSPICION: Duration = Duration::from_secs(60);

/// A demand that waits for a circuit.
#[derive(Clone, Debug)]
pub(super) struct PendingDemand {
    pub(super) demand: Demand,
    /// Circuits that did not answer it.
    pub(super) silences: u32,
}

/// A demand that has a circuit, whose exit has not answered.
#[derive(Clone, Debug)]
struct Unanswered {
    pending: PendingDemand,
    circuit: CircuitKey,
    since: Time,
    deadline: Time,
}

/// Relays that may have fallen silent. Guards are shared by all circuits, and judged when circuits
/// are built.
#[derive(Debug, Default)]
pub(super) struct SuspectRelays {
    /// When an answer last came through a relay; older ones than [`LATER_PATIENCE`] are dropped.
    heard: BTreeMap<[u8; 20], Time>,
    /// Until when a relay is avoided.
    until: BTreeMap<[u8; 20], Time>,
}

impl SuspectRelays {
    /// Notes that an answer came through these relays.
    pub(super) fn hear(&mut self, now: Time, relays: &[[u8; 20]]) {
        self.heard.retain(|_, at| now < *at + LATER_PATIENCE);
        self.heard.extend(relays.iter().map(|id| (*id, now)));
        self.until.retain(|id, _| !relays.contains(id));
    }

    /// Suspects each of these relays by which no answer came after `since`. Returns the suspects.
    fn suspect(
        &mut self,
        now: Time,
        since: Time,
        relays: impl Iterator<Item = [u8; 20]>,
    ) -> BTreeSet<[u8; 20]> {
        let silent = |id: &[u8; 20]| self.heard.get(id).is_none_or(|at| *at <= since);
        let suspects: BTreeSet<[u8; 20]> = relays.filter(silent).collect();
        self.until.retain(|_, until| now < *until);
        self.until.extend(suspects.iter().map(|id| (*id, now + SUSPICION)));
        suspects
    }

    /// Returns those that are avoided at `now`.
    pub(super) fn at(&self, now: Time) -> Vec<[u8; 20]> {
        self.until.iter().filter(|(_, until)| now < **until).map(|(id, _)| *id).collect()
    }
}

/// All demands that wait for an exit's answer, by their numbers.
#[derive(Debug, Default)]
pub(super) struct UnansweredDemands {
    demands: BTreeMap<u64, Unanswered>,
    deadlines: BTreeSet<(Time, u64)>,
}

impl UnansweredDemands {
    /// Adds a demand that was attached to `circuit`.
    pub(super) fn add(&mut self, now: Time, pending: PendingDemand, circuit: CircuitKey) {
        let is_early = pending.silences < FIRST_ATTEMPTS;
        let deadline = now + if is_early { FIRST_PATIENCE } else { LATER_PATIENCE };
        let number = pending.demand.number;
        self.remove(number);
        self.deadlines.insert((deadline, number));
        self.demands.insert(number, Unanswered { pending, circuit, since: now, deadline });
    }

    /// Removes a demand: it was answered, or is not wanted any more.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some(unanswered) = self.demands.remove(&number) {
            self.deadlines.remove(&(unanswered.deadline, number));
        }
    }

    /// Returns when the next demand is to be given up.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Removes the demand that is due by `now` and has waited longest.
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
    /// Exits that its circuit must not end at.
    pub(super) fn avoided(&self) -> Vec<[u8; 20]> {
        self.demand.avoid.iter().chain(&self.demand.shun).copied().collect()
    }
}

impl CircuitManager {
    /// The exit has answered the stream of a demand, in whatever way, or the stream has ended.
    pub fn answered(&mut self, number: u64) {
        self.unanswered.remove(number);
    }

    /// An answer came by this circuit: its relays live. Of a set of several legs nobody knows by
    /// which leg it came, but all end at one relay.
    pub fn heard(&mut self, now: Time, circuit: CircuitKey) {
        let head = self.head_of(circuit);
        let is_alone = self.further(head).next().is_none();
        let Some(path) = self.path(head) else { return };
        self.suspects.hear(now, if is_alone { &path[1..] } else { &path[2..] });
    }

    /// A circuit was built, or linked at its last relay: its relays live.
    pub(super) fn heard_all(&mut self, now: Time, key: CircuitKey) {
        if let Some(circuit) = self.circuits.get(&key) {
            self.suspects.hear(now, &circuit.path[1..]);
        }
    }

    /// Takes streams off circuits that do not answer, and looks for others.
    pub(super) fn give_up_silent(&mut self, now: Time) {
        while let Some(Unanswered { mut pending, circuit, since, .. }) =
            self.unanswered.pop_due(now)
        {
            self.orders.push_back(Order::Detach(pending.demand.number));
            pending.demand.shun.extend(self.path(circuit).map(|path| path[2]));
            pending.silences += 1;
            self.stream_ended(circuit);
            self.retire(circuit);
            self.leave_suspects((now, since), circuit);
            self.demands.push(pending);
        }
    }

    /// Whoever came next on a circuit that shares a middle or an exit with one that was silent
    /// since a time would wait as long. Such circuits are dropped if nobody uses them yet: those
    /// built in their place show that their relays answer. Those in use take no new streams.
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

    /// The circuits of a set, its head first.
    fn legs_of(&self, head: CircuitKey) -> impl Iterator<Item = &Circuit> {
        let further = self.further(head).map(|(_, leg)| leg);
        self.circuits.get(&head).into_iter().chain(further)
    }
}

impl Circuit {
    /// Whether it is built and nobody has used it yet.
    fn is_spare(&self) -> bool {
        self.built && self.first_used.is_none() && self.leg.head.is_none()
    }
}
