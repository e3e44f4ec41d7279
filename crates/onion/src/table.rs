//! Tables of a core: circuits by small numbers that are used again, streams by numbers that are
//! not.

use std::collections::{BTreeMap, VecDeque};

use crate::stream::StreamKey;
use crate::wire::extend::Target;
use crate::wire::message::EndReason;

/// A set's number in its core; used again once the set is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetId(pub(crate) u32);

/// Values by small numbers.
pub(crate) struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// The number of the next value.
    pub(crate) fn next_index(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.values.len() as u32)
    }

    /// Adds a value under [`Slab::next_index`].
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let index = self.next_index();
        match self.free.pop() {
            Some(index) => self.values[index as usize] = Some(value),
            None => self.values.push(Some(value)),
        }
        index
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.values.get(index as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.values.get_mut(index as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.values.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(value)
    }

    /// All of them, with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u32, &T)> {
        self.values.iter().zip(0..).filter_map(|(value, index)| Some((index, value.as_ref()?)))
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter().flatten()
    }
}

/// Where each stream is.
#[derive(Default)]
pub(crate) struct StreamTable {
    places: BTreeMap<StreamKey, Place>,
    last: u64,
}

/// Where a stream is.
pub(crate) enum Place {
    /// Of a set.
    Live { set: SetId, id: u16 },
    /// Ended by the peer; its program has not read all of it.
    Left { bytes: VecDeque<u8>, reason: EndReason },
}

impl StreamTable {
    /// A new stream's key.
    pub(crate) fn add(&mut self, set: SetId, id: u16) -> StreamKey {
        self.last += 1;
        let key = StreamKey(self.last);
        self.places.insert(key, Place::Live { set, id });
        key
    }

    /// Set and ID of a stream that lives.
    pub(crate) fn live(&self, key: StreamKey) -> Option<(SetId, u16)> {
        match self.places.get(&key)? {
            Place::Live { set, id } => Some((*set, *id)),
            Place::Left { .. } => None,
        }
    }

    /// What the program has not read of a stream that has ended.
    pub(crate) fn left(&self, key: StreamKey) -> Option<&VecDeque<u8>> {
        match self.places.get(&key)? {
            Place::Left { bytes, .. } => Some(bytes),
            Place::Live { .. } => None,
        }
    }

    /// The peer ended a stream: the reason, if nothing is left to read.
    pub(crate) fn ended(
        &mut self,
        key: StreamKey,
        reason: EndReason,
        bytes: VecDeque<u8>,
    ) -> Option<EndReason> {
        if bytes.is_empty() {
            self.places.remove(&key);
            return Some(reason);
        }
        self.places.insert(key, Place::Left { bytes, reason });
        None
    }

    /// The program read what was left: the reason of the end, if that was all.
    pub(crate) fn consumed(&mut self, key: StreamKey, bytes: usize) -> Option<EndReason> {
        let Some(Place::Left { bytes: left, reason }) = self.places.get_mut(&key) else {
            return None;
        };
        left.drain(..bytes.min(left.len()));
        let (empty, reason) = (left.is_empty(), *reason);
        if empty {
            self.places.remove(&key);
        }
        empty.then_some(reason)
    }

    /// Forgets a stream.
    pub(crate) fn remove(&mut self, key: StreamKey) {
        self.places.remove(&key);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }
}

/// Relays that are being reached, and the circuits that wait for each.
#[derive(Default)]
pub(crate) struct Dialling {
    targets: Vec<Reached>,
}

/// A relay that is being reached.
struct Reached {
    target: Target,
    /// Circuits that wait, first come first.
    waiting: VecDeque<u32>,
    /// Links that are being opened.
    dials: usize,
}

impl Dialling {
    /// A circuit waits for a relay, to which up to so many links are opened at a time; true if one
    /// is to be opened for it.
    pub(crate) fn add(&mut self, target: &Target, circuit: u32, most: usize) -> bool {
        let place = self.place(target).unwrap_or_else(|| {
            let (target, waiting) = (target.clone(), VecDeque::new());
            self.targets.push(Reached { target, waiting, dials: 0 });
            self.targets.len() - 1
        });
        let reached = &mut self.targets[place];
        reached.waiting.push_back(circuit);
        let is_dialled = reached.dials < most.max(1);
        reached.dials += usize::from(is_dialled);
        is_dialled
    }

    /// A link to a relay is open, or cannot be had: whom that concerns of the circuits that wait
    /// for the relay, in even parts among the links that are being opened. They wait no more.
    pub(crate) fn take(&mut self, target: &Target) -> Vec<u32> {
        let Some(place) = self.place(target) else { return Vec::new() };
        let Reached { waiting, dials, .. } = &mut self.targets[place];
        let part = waiting.len().div_ceil((*dials).max(1));
        let taken = waiting.drain(..part).collect();
        *dials = dials.saturating_sub(1);
        if *dials == 0 {
            self.targets.swap_remove(place);
        }
        taken
    }

    /// Links to a relay that are being opened.
    pub(crate) fn dials(&self, target: &Target) -> usize {
        self.place(target).map_or(0, |place| self.targets[place].dials)
    }

    /// A circuit waits no more.
    pub(crate) fn forget(&mut self, circuit: u32) {
        let all = self.targets.iter_mut();
        all.for_each(|reached| reached.waiting.retain(|&other| other != circuit));
    }

    fn place(&self, target: &Target) -> Option<usize> {
        self.targets.iter().position(|reached| reached.target == *target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_link_takes_all_who_wait_and_several_share_them() {
        let (mut dialling, target) = (Dialling::default(), Target::default());
        let added = [0, 1, 2].map(|circuit| dialling.add(&target, circuit, 1));
        assert_eq!((added, dialling.dials(&target)), ([true, false, false], 1));
        assert_eq!(dialling.take(&target), [0, 1, 2]);
        assert_eq!(dialling.take(&target), [0; 0], "nobody waits for it any more");

        let added = [0, 1, 2, 3, 4].map(|circuit| dialling.add(&target, circuit, 3));
        assert_eq!(added, [true, true, true, false, false]);
        assert_eq!(dialling.take(&target), [0, 1], "more wait than links are being opened");
        dialling.forget(2);
        assert_eq!(dialling.take(&target), [3]);
        assert!(dialling.add(&target, 5, 3));
        assert_eq!((dialling.take(&target), dialling.take(&target)), (vec![4], vec![5]));
        assert_eq!(dialling.dials(&target), 0);
    }
}
