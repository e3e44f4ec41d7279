//! The queue of lossy cells (cells in DATAGRAM frames) that wait for a link's congestion window.
//! Circuits take turns, and each circuit has its own CoDel (RFC 8289). This is FQ-CoDel (RFC 8290)
//! without the quantum, because all cells have the same length.

use std::collections::{BTreeMap, VecDeque};

use anabranch_multipath::Time;
use anabranch_multipath::codel::{Codel, Law, Queue};
use bytes::Bytes;

/// Maximum number of queued cells, which matters only in bursts. CoDel (RFC 8289) keeps the queue
/// far shorter if more cells arrive than can be sent for a long time.
pub(super) const MOST_WAITING: usize = 256;

/// Queued cells of one circuit.
#[derive(Debug, Default)]
struct CircuitQueue {
    cells: VecDeque<(Time, Bytes)>,
    law: Law,
}

/// Queue of one link for lossy cells, which are sent in DATAGRAM frames and never retransmitted.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    circuits: BTreeMap<u32, CircuitQueue>,
    /// IDs of the circuits that have queued cells. The first circuit sends the next cell.
    turns: VecDeque<u32>,
    /// Number of queued cells.
    len: usize,
    /// Number of cells dropped so far.
    pub(super) dropped: u64,
}

impl FairQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Queues a cell, which begins with the ID of its circuit (4 bytes). If the queue is full,
    /// drops the oldest cell of the circuit with the most queued cells (RFC 8290, section 4.1.1).
    pub(super) fn push(&mut self, now: Time, cell: Bytes) {
        if self.len >= MOST_WAITING {
            self.drop_of_longest();
        }
        let number = cell.first_chunk().map_or(0, |number| u32::from_be_bytes(*number));
        let circuit = self.circuits.entry(number).or_default();
        if circuit.cells.is_empty() {
            self.turns.push_back(number);
        }
        circuit.cells.push_back((now, cell));
        self.len += 1;
    }

    fn drop_of_longest(&mut self) {
        let longest = self.circuits.iter_mut().max_by_key(|(_, circuit)| circuit.cells.len());
        let Some((&number, circuit)) = longest else { return };
        circuit.cells.pop_front();
        (self.len, self.dropped) = (self.len - 1, self.dropped + 1);
        if circuit.cells.is_empty() {
            self.circuits.remove(&number);
            self.turns.retain(|turn| *turn != number);
        }
    }

    /// Removes and returns the next cell; `None` if the queue is empty. CoDel may first drop cells
    /// of the same circuit. Call this only when the cell can be sent. `together` is the number of
    /// cells that fit into a datagram. CoDel drops nothing while at most this number of cells is
    /// queued.
    pub(super) fn pop(&mut self, now: Time, together: usize) -> Option<Bytes> {
        let number = self.turns.pop_front()?;
        let circuit = self.circuits.get_mut(&number)?;
        let length = circuit.cells.front().map_or(0, |(_, cell)| cell.len());
        let cells = circuit.cells.iter().map(|(received, cell)| (*received, cell.len()));
        let queue = Queue {
            units: cells,
            bytes: circuit.cells.len() * length,
            max_unit: together * length,
        };
        let drops = circuit.law.drops(&Codel::default(), now, queue).min(circuit.cells.len() - 1);
        circuit.cells.drain(..drops);
        let cell = circuit.cells.pop_front().map(|(_, cell)| cell);
        (self.len, self.dropped) = (self.len - drops - 1, self.dropped + drops as u64);
        match circuit.cells.is_empty() {
            true => drop(self.circuits.remove(&number)),
            false => self.turns.push_back(number),
        }
        cell
    }

    /// Drops all queued cells.
    pub(super) fn clear(&mut self) {
        self.dropped += self.len as u64;
        (self.len, self.circuits, self.turns) = <_>::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn cell(circuit: u32, number: u8) -> Bytes {
        Bytes::from([&circuit.to_be_bytes()[..], &[number]].concat())
    }

    fn popped(queue: &mut FairQueue, now: Time) -> Vec<(u32, u8)> {
        let pop = || queue.pop(now, 2).map(|cell| (u32::from(cell[3]), cell[4]));
        std::iter::from_fn(pop).collect()
    }

    #[test]
    fn circuits_take_turns_whatever_waits_of_each() {
        let (mut queue, now) = (FairQueue::default(), Time::from_secs(1));
        (0..4).for_each(|number| queue.push(now, cell(1, number)));
        queue.push(now, cell(2, 9));
        queue.push(now, cell(3, 8));
        let wanted = [(1, 0), (2, 9), (3, 8), (1, 1), (1, 2), (1, 3)];
        assert_eq!(popped(&mut queue, now), wanted);
        assert!(queue.is_empty() && queue.dropped == 0);
    }

    #[test]
    fn a_full_queue_drops_the_oldest_of_the_longest_circuit() {
        let (mut queue, now) = (FairQueue::default(), Time::from_secs(1));
        queue.push(now, cell(2, 7));
        (0..=255).for_each(|number| queue.push(now, cell(1, number)));
        assert_eq!(queue.dropped, 1);
        let popped = popped(&mut queue, now);
        assert_eq!(popped.len(), MOST_WAITING);
        assert_eq!(popped[..3], [(2, 7), (1, 1), (1, 2)]);
    }

    #[test]
    fn only_a_circuit_that_waits_too_long_loses_cells() {
        let (mut queue, mut now) = (FairQueue::default(), Time::from_secs(1));
        let mut of_quiet = 0;
        for round in 0..2_000 {
            // One circuit sends twice as many cells as the queue serves. The other circuit sends
            // one now and then.
            queue.push(now, cell(1, 0));
            queue.push(now, cell(1, 1));
            if round % 20 == 0 {
                queue.push(now, cell(2, 0));
                of_quiet += usize::from(queue.pop(now, 2).is_some());
            }
            drop(queue.pop(now, 2));
            now += Duration::from_millis(1);
        }
        assert!(queue.dropped > 200, "{}", queue.dropped);
        assert_eq!(of_quiet, 100);
        let left = popped(&mut queue, now).into_iter().filter(|(circuit, _)| *circuit == 2).count();
        assert!(left <= 1, "the quiet circuit has its turns: {left} wait");
    }

    #[test]
    fn what_is_cleared_counts_as_dropped() {
        let (mut queue, now) = (FairQueue::default(), Time::from_secs(1));
        (0..5).for_each(|number| queue.push(now, cell(number, 0)));
        queue.clear();
        assert!(queue.is_empty() && queue.pop(now, 2).is_none());
        assert_eq!(queue.dropped, 5);
    }
}
