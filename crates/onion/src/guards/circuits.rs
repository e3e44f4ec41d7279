//! The state of circuits, as far as it depends on their guards (guard-spec 4.6 to 4.9).

use std::collections::BTreeMap;

use super::sample::Rank;
use super::{Choice, Name};

/// State that decides whether a circuit may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The circuit may be used as soon as it is built, because its guard is primary.
    OnCompletion,
    /// After completion, the circuit may be used only if there is no circuit through a better
    /// guard.
    IfNoBetter,
    /// The circuit is built, but waits because a circuit through a better guard may still be
    /// built.
    Waiting,
    /// The circuit may be used now.
    Complete,
}

/// States of all circuits whose use depends on their guards, by circuit key.
#[derive(Clone, Debug)]
pub(super) struct Circuits<I> {
    all: BTreeMap<u64, Circuit<I>>,
}

#[derive(Clone, Debug)]
struct Circuit<I> {
    guard: I,
    readiness: Readiness,
    /// Start of the circuit's present state, in seconds since 1970.
    since: u64,
    /// Guards that this circuit must not use.
    avoided: Vec<I>,
}

impl<I> Default for Circuits<I> {
    fn default() -> Circuits<I> {
        Circuits { all: BTreeMap::new() }
    }
}

impl<I: Name> Circuits<I> {
    pub(super) fn began(&mut self, key: u64, choice: Choice<I>, now: u64, avoided: Vec<I>) {
        let (guard, readiness) = (choice.id, choice.readiness);
        self.all.insert(key, Circuit { guard, readiness, since: now, avoided });
    }

    pub(super) fn guard(&self, key: u64) -> Option<I> {
        self.all.get(&key).map(|circuit| circuit.guard)
    }

    /// Removes a circuit. Returns whether it was built.
    pub(super) fn closed(&mut self, key: u64) -> bool {
        let gone = self.all.remove(&key);
        gone.is_some_and(|gone| matches!(gone.readiness, Readiness::Waiting | Readiness::Complete))
    }

    /// Records that the circuit `key` is built. Returns true if it must wait for circuits through
    /// better guards. A circuit through a primary guard need not wait.
    pub(super) fn built(&mut self, now: u64, key: u64, is_primary: bool) -> bool {
        let Some(circuit) = self.all.get_mut(&key) else { return false };
        let waits =
            matches!(circuit.readiness, Readiness::IfNoBetter | Readiness::Waiting) && !is_primary;
        circuit.readiness = if waits { Readiness::Waiting } else { Readiness::Complete };
        circuit.since = now;
        waits
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.all.values().any(|circuit| circuit.readiness == Readiness::Waiting)
    }

    /// Marks each waiting circuit as usable unless a circuit through a better guard blocks it.
    /// Returns the keys of the circuits that became usable. A circuit under construction blocks
    /// other circuits for `patience` seconds.
    pub(super) fn upgrade(
        &mut self,
        now: u64,
        patience: u64,
        rank: &dyn Fn(I) -> Option<Rank>,
    ) -> Vec<u64> {
        let waits = |circuit: &Circuit<I>| circuit.readiness == Readiness::Waiting;
        let free = |circuit: &Circuit<I>| {
            !self.all.values().any(|other| other.blocks(circuit, now, patience, rank))
        };
        let ready = self.all.iter().filter(|(_, circuit)| waits(circuit) && free(circuit));
        let ready: Vec<u64> = ready.map(|(&key, _)| key).collect();
        for key in &ready {
            if let Some(circuit) = self.all.get_mut(key) {
                (circuit.readiness, circuit.since) = (Readiness::Complete, now);
            }
        }
        ready
    }

    /// Removes circuits that have waited longer than `patience` seconds, and returns their keys.
    pub(super) fn outdated(&mut self, now: u64, patience: u64) -> Vec<u64> {
        let over = |circuit: &Circuit<I>| {
            circuit.readiness == Readiness::Waiting && now > circuit.since.saturating_add(patience)
        };
        let gone: Vec<u64> =
            self.all.iter().filter(|(_, circuit)| over(circuit)).map(|(&key, _)| key).collect();
        gone.iter().for_each(|key| drop(self.all.remove(key)));
        gone
    }
}

impl<I: Name> Circuit<I> {
    /// Returns true if the circuit `other` must wait for this circuit. This is the case if this
    /// circuit has a better guard, and is built or may still be built in time.
    fn blocks(
        &self,
        other: &Circuit<I>,
        now: u64,
        patience: u64,
        rank: &dyn Fn(I) -> Option<Rank>,
    ) -> bool {
        let hopeful = match self.readiness {
            Readiness::Complete | Readiness::Waiting => true,
            Readiness::IfNoBetter => now <= self.since.saturating_add(patience),
            Readiness::OnCompletion => false,
        };
        let better = match (rank(self.guard), rank(other.guard)) {
            (Some(ours), Some(theirs)) => ours < theirs,
            (ours, _) => ours.is_some(),
        };
        hopeful && better && !other.avoided.contains(&self.guard)
    }
}
