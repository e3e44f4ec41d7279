//! Tables of a node: circuits by reusable index, streams by keys that are never reused, and relays
//! with the links being opened to them.

use std::collections::{BTreeMap, VecDeque};

use anabranch_multipath::Time;

use crate::stream::StreamKey;
use crate::wire::extend::Target;
use crate::wire::message::EndReason;

/// A circuit set's identifier within its node. The identifier is reused after the set has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetId(pub(crate) u32);

/// A table of values by index. Indexes of removed values are reused.
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
    /// Returns the index that the next inserted value will get.
    pub(crate) fn next_index(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.values.len() as u32)
    }

    /// Adds a value and returns its index: the index that [`Slab::next_index`] returned before
    /// this call.
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

    /// Iterates over all values with their indexes.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u32, &T)> {
        self.values.iter().zip(0..).filter_map(|(value, index)| Some((index, value.as_ref()?)))
    }

    /// Iterates over all values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter().flatten()
    }
}

/// Table of streams by key: the circuit set of each stream, and the stream's ID in that set.
#[derive(Default)]
pub(crate) struct StreamTable {
    places: BTreeMap<StreamKey, StreamState>,
    last: u64,
}

/// State of a stream in the table.
pub(crate) enum StreamState {
    /// The stream is open. It belongs to this circuit set, with this ID.
    Live { set: SetId, id: u16 },
    /// The peer has closed the stream, and the program has not read all of its bytes yet.
    Left { bytes: VecDeque<u8>, reason: EndReason },
}

impl StreamTable {
    /// Adds the stream that has the ID `id` in `set`, and returns its key.
    pub(crate) fn add(&mut self, set: SetId, id: u16) -> StreamKey {
        self.last += 1;
        let key = StreamKey(self.last);
        self.places.insert(key, StreamState::Live { set, id });
        key
    }

    /// Returns the circuit set and the ID of the stream `key` if it is open.
    pub(crate) fn live(&self, key: StreamKey) -> Option<(SetId, u16)> {
        match self.places.get(&key)? {
            StreamState::Live { set, id } => Some((*set, *id)),
            StreamState::Left { .. } => None,
        }
    }

    /// Returns the unread bytes of the stream `key`, if the peer has closed it.
    pub(crate) fn left(&self, key: StreamKey) -> Option<&VecDeque<u8>> {
        match self.places.get(&key)? {
            StreamState::Left { bytes, .. } => Some(bytes),
            StreamState::Live { .. } => None,
        }
    }

    /// Notes that the peer closed the stream `key`. Returns the reason of the closing if the
    /// program has already read all bytes, otherwise `None`.
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
        self.places.insert(key, StreamState::Left { bytes, reason });
        None
    }

    /// Removes the first `bytes` unread bytes of the closed stream `key`, because the local
    /// program has read them. If no bytes are left, returns the reason for the closing, otherwise
    /// `None`.
    pub(crate) fn consumed(&mut self, key: StreamKey, bytes: usize) -> Option<EndReason> {
        let Some(StreamState::Left { bytes: left, reason }) = self.places.get_mut(&key) else {
            return None;
        };
        left.drain(..bytes.min(left.len()));
        let (empty, reason) = (left.is_empty(), *reason);
        if empty {
            self.places.remove(&key);
        }
        empty.then_some(reason)
    }

    /// Removes the stream `key`.
    pub(crate) fn remove(&mut self, key: StreamKey) {
        self.places.remove(&key);
    }

    /// Returns the number of streams.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }
}

/// The relays that this node opens links to, and the circuits that wait for each relay.
#[derive(Default)]
pub(crate) struct Dialling {
    targets: Vec<DialledRelay>,
    /// Circuits that wait for a link that carries lossy cells (sent in datagrams).
    lossy: Vec<LossyWait>,
}

/// A circuit that waits until a link to a relay carries lossy cells (sent in datagrams).
struct LossyWait {
    target: Target,
    circuit: u32,
    until: Time,
}

/// A relay that this node opens one or more links to.
struct DialledRelay {
    target: Target,
    /// Circuits that wait for a link, longest waiting first.
    waiting: VecDeque<u32>,
    /// Number of links to the relay that are being opened.
    dials: usize,
}

impl Dialling {
    /// Adds a circuit that waits for the relay `target`. At most `most` links to the relay are
    /// opened at the same time. Returns true if the caller must open a link for this circuit.
    pub(crate) fn add(&mut self, target: &Target, circuit: u32, most: usize) -> bool {
        let place = self.place(target).unwrap_or_else(|| {
            let (target, waiting) = (target.clone(), VecDeque::new());
            self.targets.push(DialledRelay { target, waiting, dials: 0 });
            self.targets.len() - 1
        });
        let reached = &mut self.targets[place];
        reached.waiting.push_back(circuit);
        let is_dialled = reached.dials < most.max(1);
        reached.dials += usize::from(is_dialled);
        is_dialled
    }

    /// Notes that an attempt to open a link to the relay `target` has succeeded or failed. Removes
    /// and returns this attempt's share of the waiting circuits: their number divided by the
    /// number of pending attempts, including this one, rounded up.
    pub(crate) fn take(&mut self, target: &Target) -> Vec<u32> {
        let Some(place) = self.place(target) else { return Vec::new() };
        let DialledRelay { waiting, dials, .. } = &mut self.targets[place];
        let part = waiting.len().div_ceil((*dials).max(1));
        let taken = waiting.drain(..part).collect();
        *dials = dials.saturating_sub(1);
        if *dials == 0 {
            self.targets.swap_remove(place);
        }
        taken
    }

    /// Returns the number of links to the relay `target` that are being opened.
    pub(crate) fn dials(&self, target: &Target) -> usize {
        self.place(target).map_or(0, |place| self.targets[place].dials)
    }

    /// Adds a circuit that waits, until `until`, for a link with lossy cells (sent in datagrams)
    /// to the relay `target`.
    pub(crate) fn await_lossy(&mut self, target: Target, circuit: u32, until: Time) {
        self.lossy.push(LossyWait { target, circuit, until });
    }

    /// Returns true if a circuit waits for a link with lossy cells (sent in datagrams) to the
    /// relay `target`.
    pub(crate) fn awaits_lossy(&self, target: &Target) -> bool {
        self.lossy.iter().any(|wait| wait.target == *target)
    }

    /// Removes and returns the circuits that wait for a link with lossy cells (sent in datagrams)
    /// to any relay for which `is_it` returns true.
    pub(crate) fn take_lossy(&mut self, is_it: impl Fn(&Target) -> bool) -> Vec<u32> {
        let taken = self.lossy.extract_if(.., |wait| is_it(&wait.target));
        taken.map(|wait| wait.circuit).collect()
    }

    /// Removes and returns the circuits that have waited too long for a link with lossy cells
    /// (sent in datagrams).
    pub(crate) fn late_lossy(&mut self, now: Time) -> Vec<u32> {
        let late = self.lossy.extract_if(.., |wait| wait.until <= now);
        late.map(|wait| wait.circuit).collect()
    }

    /// Removes the waiting circuit `circuit`.
    pub(crate) fn forget(&mut self, circuit: u32) {
        self.lossy.retain(|wait| wait.circuit != circuit);
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
    fn circuits_wait_for_lossy_cells_until_their_time_is_over() {
        let (mut dialling, target) = (Dialling::default(), Target::default());
        for circuit in 0..3 {
            let until = Time::from_secs(10 + u64::from(circuit));
            dialling.await_lossy(target.clone(), circuit, until);
        }
        assert!(dialling.awaits_lossy(&target));
        dialling.forget(1);
        assert_eq!(dialling.late_lossy(Time::from_secs(9)), [0; 0]);
        assert_eq!(dialling.late_lossy(Time::from_secs(11)), [0]);
        assert_eq!(dialling.take_lossy(|other| *other != target), [0; 0]);
        assert_eq!(dialling.take_lossy(|other| *other == target), [2]);
        assert_eq!(dialling.take_lossy(|_| true), [0; 0]);
    }

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
