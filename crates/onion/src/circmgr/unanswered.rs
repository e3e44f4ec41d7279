//! Streams whose exit has not answered (path-spec 2.3): each is given up after a while, and tries
//! another circuit. The one that was silent takes no new streams; those that are open on it stay.

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
    deadline: Time,
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
        self.demands.insert(number, Unanswered { pending, circuit, deadline });
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

    /// Takes streams off circuits that do not answer, and looks for others.
    pub(super) fn give_up_silent(&mut self, now: Time) {
        while let Some(Unanswered { mut pending, circuit, .. }) = self.unanswered.pop_due(now) {
            self.orders.push_back(Order::Detach(pending.demand.number));
            pending.demand.shun.extend(self.path(circuit).map(|path| path[2]));
            pending.silences += 1;
            self.stream_ended(circuit);
            self.retire(circuit);
            self.drop_suspects(circuit);
            self.demands.push(pending);
        }
    }

    /// Drops spare circuits that share a middle or an exit with one that was silent: whoever came
    /// next would wait as long. Those built in their place show that their relays answer. Guards
    /// are shared by all circuits, and judged when circuits are built.
    fn drop_suspects(&mut self, silent: CircuitKey) {
        let head = self.head_of(silent);
        let relays: BTreeSet<[u8; 20]> =
            self.legs_of(head).flat_map(|leg| [leg.path[1], leg.path[2]]).collect();
        let is_suspect = |key: CircuitKey| {
            self.legs_of(key).any(|leg| leg.path[1..].iter().any(|id| relays.contains(id)))
        };
        let spare = self.circuits.iter().filter(|(key, one)| **key != head && one.is_spare());
        let suspects: Vec<CircuitKey> =
            spare.map(|(key, _)| *key).filter(|key| is_suspect(*key)).collect();
        suspects.into_iter().for_each(|key| self.drop_circuit(key));
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
