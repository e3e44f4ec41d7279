//! The table of one node's circuit sets.

use super::lossy::LossyStreams;
use super::{Route, Set, SetLegs};
use crate::stream::StreamKey;
use crate::table::{SetId, Slab};

/// All circuit sets of a node, by identifier. The identifiers of ended sets are reused.
#[derive(Default)]
pub(crate) struct CircuitSets {
    sets: Slab<Set>,
    /// Largest number of bytes that waited for earlier messages in any ended set.
    most_reordered: usize,
}

impl CircuitSets {
    /// Adds a circuit set, and returns its identifier.
    pub(crate) fn insert(&mut self, set: Set) -> SetId {
        SetId(self.sets.insert(set))
    }

    /// Removes and returns the circuit set `id`; `None` if there is none.
    pub(crate) fn remove(&mut self, id: SetId) -> Option<Set> {
        let mut set = self.sets.remove(id.0)?;
        let most = set.several().map_or(0, |several| several.end.waiting().most());
        self.most_reordered = self.most_reordered.max(most);
        Some(set)
    }

    pub(crate) fn get(&self, id: SetId) -> Option<&Set> {
        self.sets.get(id.0)
    }

    pub(crate) fn get_mut(&mut self, id: SetId) -> Option<&mut Set> {
        self.sets.get_mut(id.0)
    }

    /// Iterates over all circuit sets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Set> {
        self.sets.iter()
    }

    /// Returns the state of the set `id` for several legs (parallel circuits); `None` if the set
    /// can have only one leg.
    pub(crate) fn several(&mut self, id: SetId) -> Option<&mut SetLegs> {
        self.get_mut(id).and_then(Set::several)
    }

    /// Iterates over all sets that may have several legs (parallel circuits).
    pub(crate) fn all_several(&self) -> impl Iterator<Item = (SetId, &SetLegs)> {
        self.sets.numbered().filter_map(|(id, set)| match &set.route {
            Route::One(_) => None,
            Route::Several(several) => Some((SetId(id), &**several)),
        })
    }

    /// Returns the trunk of the set `id` (the circuit that continues where its legs join), if it
    /// has one.
    pub(crate) fn trunk_of(&self, id: SetId) -> Option<u32> {
        match &self.get(id)?.route {
            Route::One(_) => None,
            Route::Several(several) => several.trunk_state.as_ref()?.trunk,
        }
    }

    /// Returns the streams that use lossy cells (sent in datagrams) of the circuit set `id`.
    /// Returns `None` if the stream with the ID `stream` and the key `key` is not one of them.
    pub(crate) fn lossy_of(
        &mut self,
        id: SetId,
        stream: u16,
        key: StreamKey,
    ) -> Option<&mut LossyStreams> {
        let lossy = self.get_mut(id)?.lossy.as_deref_mut();
        lossy.filter(|lossy| lossy.has(stream, key))
    }

    /// Returns the circuit set with the most buffered bytes ([`SetLegs::held`]); `None` if no set
    /// can have several circuits.
    pub(crate) fn fullest(&self) -> Option<SetId> {
        let held = self.all_several().map(|(id, several)| (several.held(), id));
        held.max().map(|(_, id)| id)
    }

    /// Returns the circuit set whose streams over lossy cells (sent in datagrams) have the most
    /// bytes in memory; `None` if no set has lossy cells.
    pub(crate) fn fullest_lossy(&self) -> Option<SetId> {
        let held = |(id, set): (u32, &Set)| Some((set.lossy.as_ref()?.held(), SetId(id)));
        self.sets.numbered().filter_map(held).max().map(|(_, id)| id)
    }

    /// Returns the largest number of bytes that ever waited in one set for earlier messages on
    /// other legs (parallel circuits).
    pub(crate) fn most_reordered(&self) -> usize {
        let most = self.all_several().map(|(_, several)| several.end.waiting().most());
        most.max().unwrap_or_default().max(self.most_reordered)
    }
}
