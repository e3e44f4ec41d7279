//! A table with the state of each leg of a set of circuits, by the leg's slot (index in the set).

use anabranch_multipath::PathId;

use super::fault::ConfluxFault;

/// A table of legs (parallel circuits) by slot (index in the set). Slots of removed legs are
/// reused.
#[derive(Debug)]
pub(crate) struct Legs<T>(Vec<Option<T>>);

impl<T> Default for Legs<T> {
    fn default() -> Legs<T> {
        Legs(Vec::new())
    }
}

impl<T> Legs<T> {
    /// Returns the first free slot (index of a parallel circuit in the set).
    pub(crate) fn free(&self) -> PathId {
        PathId::at(self.0.iter().position(Option::is_none).unwrap_or(self.0.len()))
    }

    /// Sets the state of the leg `leg` (a parallel circuit) to `known`. Adds the leg if its slot
    /// is empty.
    pub(crate) fn set(&mut self, leg: PathId, known: T) {
        if leg.index() >= self.0.len() {
            self.0.resize_with(leg.index() + 1, || None);
        }
        self.0[leg.index()] = Some(known);
    }

    /// Returns the mutable state of the leg `leg` (a parallel circuit). If its slot is empty,
    /// first sets the state to the result of `new`.
    pub(crate) fn get_or_insert_with(&mut self, leg: PathId, new: impl FnOnce() -> T) -> &mut T {
        if leg.index() >= self.0.len() {
            self.0.resize_with(leg.index() + 1, || None);
        }
        self.0[leg.index()].get_or_insert_with(new)
    }

    /// Removes the state of the leg `leg` (a parallel circuit).
    pub(crate) fn remove(&mut self, leg: PathId) {
        self.0.get_mut(leg.index()).into_iter().for_each(|place| *place = None);
    }

    /// Removes the states of all legs (parallel circuits).
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the state of the leg `leg` (a parallel circuit).
    ///
    /// # Errors
    /// The leg's slot is empty.
    pub(crate) fn get(&self, leg: PathId) -> Result<&T, ConfluxFault> {
        let known = self.0.get(leg.index()).and_then(Option::as_ref);
        known.ok_or(ConfluxFault::NotLinked)
    }

    /// Returns the mutable state of the leg `leg` (a parallel circuit).
    ///
    /// # Errors
    /// The leg's slot is empty.
    pub(crate) fn get_mut(&mut self, leg: PathId) -> Result<&mut T, ConfluxFault> {
        let known = self.0.get_mut(leg.index()).and_then(Option::as_mut);
        known.ok_or(ConfluxFault::NotLinked)
    }

    /// Iterates over all legs (parallel circuits), each with its slot and its mutable state.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (PathId, &mut T)> {
        let places = self.0.iter_mut().enumerate();
        places.filter_map(|(at, leg)| Some((PathId::at(at), leg.as_mut()?)))
    }

    /// Iterates over all legs (parallel circuits), each with its slot and its state.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PathId, &T)> {
        let places = self.0.iter().enumerate();
        places.filter_map(|(at, leg)| Some((PathId::at(at), leg.as_ref()?)))
    }
}
