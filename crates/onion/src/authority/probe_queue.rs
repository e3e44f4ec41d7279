//! The order in which relays are probed. Anybody can publish descriptors of any number of
//! non-existent relays. A probe of such a relay takes long to fail. Running relays are therefore
//! probed first.

use std::collections::{BTreeMap, BTreeSet};

/// Counts of the additional probes that may start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Number of probes that may start in total, whatever the states of their relays.
    pub running: usize,
    /// Number of probes, out of those in `running`, that may be for relays that are not known to
    /// be running.
    pub others: usize,
}

/// The state of a relay, as far as probes have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeState {
    /// The relay is running.
    Up,
    /// The relay was running before, but is not running now.
    Away,
    /// The relay was not probed yet.
    New,
    /// The relay was probed, and has never answered.
    Silent,
}

/// The states other than [`ProbeState::Up`]. Relays in these states get only the probes that
/// running relays leave unused.
const OTHERS: [ProbeState; 3] = [ProbeState::Away, ProbeState::New, ProbeState::Silent];

/// Queues of the relays to probe, one for each [`ProbeState`]. A relay is identified by its RSA
/// identity. Each queue is sorted by the time at which a probe is due. Relays that were never
/// probed are always due; their queue is sorted by a turn number, which takes the place of the
/// time. All operations take logarithmic time, except [`ProbeQueue::least_of`].
#[derive(Clone, Debug, Default)]
pub(super) struct ProbeQueue {
    queues: [BTreeSet<(u64, [u8; 20])>; 4],
    places: BTreeMap<[u8; 20], (ProbeState, u64)>,
    /// The index in [`OTHERS`] of the state whose relay is probed next.
    next: usize,
}

impl ProbeQueue {
    /// Puts a relay into the queue of `probe_state`, and removes it from any other queue.
    pub(super) fn put(&mut self, id: [u8; 20], probe_state: ProbeState, due: u64) {
        self.remove(&id);
        self.places.insert(id, (probe_state, due));
        self.queues[probe_state as usize].insert((due, id));
    }

    /// Removes a relay.
    pub(super) fn remove(&mut self, id: &[u8; 20]) {
        if let Some((probe_state, due)) = self.places.remove(id) {
            self.queues[probe_state as usize].remove(&(due, *id));
        }
    }

    /// Returns a relay's state, and the time at which its probe is due; `None` if the relay is in
    /// no queue.
    pub(super) fn place(&self, id: &[u8; 20]) -> Option<(ProbeState, u64)> {
        self.places.get(id).copied()
    }

    /// Returns the running relay whose probe has been due for longest; `None` if no running
    /// relay's probe is due. The relay stays in its queue until [`ProbeQueue::put`] moves it.
    pub(super) fn next_up(&self, now: u64) -> Option<[u8; 20]> {
        self.first(ProbeState::Up, now)
    }

    /// Returns a relay that is not running and whose probe is due; `None` if there is none. The
    /// three states of such relays are served in turn, so that relays of one state cannot use up
    /// all probes.
    pub(super) fn next_other(&mut self, now: u64) -> Option<[u8; 20]> {
        let kinds = (0..OTHERS.len()).map(|step| (self.next + step) % OTHERS.len());
        let (kind, id) =
            kinds.filter_map(|kind| Some((kind, self.first(OTHERS[kind], now)?))).next()?;
        self.next = (kind + 1) % OTHERS.len();
        Some(id)
    }

    /// Returns the known relay to remove in favour of a new relay whose turn (place in the order
    /// of probes) is `due`. The first choice is a relay that was probed and never answered: among
    /// these, the relay whose next probe is due earliest. The second choice is the unprobed relay
    /// with the last turn, if this turn is after `due`. Returns `None` if there is no such relay.
    pub(super) fn least(&self, due: u64) -> Option<[u8; 20]> {
        let [silent, new] =
            [ProbeState::Silent, ProbeState::New].map(|one| &self.queues[one as usize]);
        let last = || new.last().filter(|(last, _)| *last > due);
        silent.first().or_else(last).map(|(_, id)| *id)
    }

    /// Returns the relay to remove among `these`, by the rule of [`ProbeQueue::least`]; `None` if
    /// none of them may be removed.
    pub(super) fn least_of(&self, these: &BTreeSet<[u8; 20]>, due: u64) -> Option<[u8; 20]> {
        let places = || these.iter().filter_map(|id| Some((self.place(id)?, *id)));
        let of = |wanted| places().filter(move |((probe_state, _), _)| *probe_state == wanted);
        let silent = of(ProbeState::Silent).map(|((_, due), id)| (due, id)).min();
        let new = of(ProbeState::New).map(|((_, due), id)| (due, id)).max();
        silent.or(new.filter(|(last, _)| *last > due)).map(|(_, id)| id)
    }

    fn first(&self, probe_state: ProbeState, now: u64) -> Option<[u8; 20]> {
        let (due, id) = self.queues[probe_state as usize].first()?;
        (probe_state == ProbeState::New || *due <= now).then_some(*id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_due_longest_comes_first_and_kinds_take_turns() {
        let mut probe_queue = ProbeQueue::default();
        probe_queue.put([1; 20], ProbeState::Up, 7);
        probe_queue.put([2; 20], ProbeState::Up, 5);
        assert_eq!((probe_queue.next_up(4), probe_queue.next_up(9)), (None, Some([2; 20])));
        probe_queue.put([2; 20], ProbeState::Away, 5);
        assert_eq!(
            (probe_queue.next_up(9), probe_queue.place(&[2; 20])),
            (Some([1; 20]), Some((ProbeState::Away, 5)))
        );
        (10..40).for_each(|id| probe_queue.put([id; 20], ProbeState::New, 0));
        (40..70).for_each(|id| probe_queue.put([id; 20], ProbeState::Silent, 0));
        let kinds: Vec<ProbeState> = (0..6)
            .map(|_| {
                let id = probe_queue.next_other(9).unwrap();
                let (probe_state, _) = probe_queue.place(&id).unwrap();
                probe_queue.put(id, probe_state, 9);
                probe_state
            })
            .collect();
        let expected = OTHERS;
        assert_eq!(kinds, [expected, expected].concat());
        probe_queue.remove(&[2; 20]);
        assert_eq!(probe_queue.place(&[2; 20]), None);
    }

    #[test]
    fn who_was_asked_makes_way_and_else_who_is_to_be_asked_later() {
        let mut probe_queue = ProbeQueue::default();
        probe_queue.put([1; 20], ProbeState::Up, 0);
        probe_queue.put([2; 20], ProbeState::New, 5);
        probe_queue.put([3; 20], ProbeState::New, 8);
        let all: BTreeSet<[u8; 20]> = [1, 2, 3, 4].map(|id| [id; 20]).into();
        let least = |probe_queue: &ProbeQueue, due| {
            assert_eq!(probe_queue.least(due), probe_queue.least_of(&all, due));
            probe_queue.least(due)
        };
        assert_eq!((least(&probe_queue, 8), least(&probe_queue, 7)), (None, Some([3; 20])));
        probe_queue.put([4; 20], ProbeState::Silent, 9);
        assert_eq!(least(&probe_queue, 9), Some([4; 20]));
    }
}
