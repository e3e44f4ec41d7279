//! Memory use of a node's queues, and its limit.

use crate::wire::cell::CELL;

/// Memory use of a node, apart from the cells that wait for links.
///
/// Methods that need the number of those cells take it as `queued`, from
/// [`Channels::used`](crate::channels::Channels::used).
pub(crate) struct Memory {
    /// Maximum number of queued cells of all circuits together. The bytes in `reordered` and
    /// `lossy_held` count as cells too.
    most_cells: usize,
    /// Bytes buffered in all circuit sets: messages that wait for earlier messages or for an
    /// acknowledgement, and cells of other circuits that wait for one of the set's circuits.
    reordered: usize,
    /// Bytes that wait in streams over lossy cells (sent in datagrams), for a program or for the
    /// other end.
    lossy_held: usize,
    /// True if the streams of circuit sets must pause ([`Memory::is_scarce`]).
    scarce: bool,
}

/// A kind of memory use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryUse {
    /// Cells in the queues of links.
    Cells,
    /// Bytes buffered in circuit sets.
    Sets,
    /// Bytes in streams over lossy cells (sent in datagrams).
    LossyStreams,
}

impl Memory {
    pub(super) fn new(most_cells: usize) -> Memory {
        Memory { most_cells, reordered: 0, lossy_held: 0, scarce: false }
    }

    /// Sets the maximum number of queued cells.
    pub(crate) fn set_limit(&mut self, most_cells: usize) {
        self.most_cells = most_cells;
    }

    /// Returns the number of bytes buffered in all circuit sets.
    pub(crate) fn reordered(&self) -> usize {
        self.reordered
    }

    /// Returns the number of bytes in streams over lossy cells (sent in datagrams).
    pub(crate) fn lossy_held(&self) -> usize {
        self.lossy_held
    }

    /// Notes that the number of bytes buffered in a circuit set has changed from `before` to `now`.
    pub(super) fn recount_set(&mut self, [before, now]: [usize; 2]) {
        self.reordered = self.reordered + now - before;
    }

    /// Notes that the number of bytes in a circuit set's streams over lossy cells (sent in
    /// datagrams) has changed from `before` to `now`.
    pub(super) fn recount_lossy(&mut self, [before, now]: [usize; 2]) {
        self.lossy_held = self.lossy_held + now - before;
    }

    /// Returns the number of cells that wait for links, plus the buffered bytes of circuit sets
    /// and of streams over lossy cells (sent in datagrams), converted to cells.
    fn waiting_cells(&self, queued: usize) -> usize {
        queued + (self.reordered + self.lossy_held).div_ceil(CELL)
    }

    /// Returns true if more cells wait than the limit allows.
    pub(super) fn is_exceeded(&self, queued: usize) -> bool {
        self.waiting_cells(queued) > self.most_cells
    }

    /// Returns the kind of memory use with the most bytes. If two kinds are equal, prefers the
    /// queued cells.
    pub(super) fn largest(&self, queued: usize) -> MemoryUse {
        if self.lossy_held > self.reordered.max(queued * CELL) {
            MemoryUse::LossyStreams
        } else if self.reordered / CELL > queued {
            MemoryUse::Sets
        } else {
            MemoryUse::Cells
        }
    }

    /// Returns true if the queues are so full that the streams of circuit sets must pause. This
    /// state begins above half of the maximum, and ends at a quarter.
    pub(super) fn is_scarce(&mut self, queued: usize) -> bool {
        let most = self.most_cells / if self.scarce { 4 } else { 2 };
        self.scarce = self.waiting_cells(queued) > most;
        self.scarce
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_all_kinds_count_towards_the_limit() {
        let mut memory = Memory::new(10);
        assert!(!memory.is_exceeded(10) && memory.is_exceeded(11));
        memory.recount_set([0, 1]);
        memory.recount_lossy([0, CELL]);
        assert!(!memory.is_exceeded(8) && memory.is_exceeded(9), "a byte more than a cell");
        memory.recount_set([1, 0]);
        memory.recount_lossy([CELL, 0]);
        assert!(!memory.is_exceeded(10));
        memory.set_limit(5);
        assert!(memory.is_exceeded(10));
    }

    #[test]
    fn the_largest_kind_is_found() {
        let mut memory = Memory::new(10);
        assert_eq!(memory.largest(0), MemoryUse::Cells);
        memory.recount_set([0, 4 * CELL]);
        assert_eq!([3, 4].map(|cells| memory.largest(cells)), [MemoryUse::Sets, MemoryUse::Cells]);
        memory.recount_lossy([0, 4 * CELL + 1]);
        assert_eq!(memory.largest(4), MemoryUse::LossyStreams);
        assert_eq!(memory.largest(5), MemoryUse::Cells);
    }

    #[test]
    fn a_pause_begins_above_half_and_ends_at_a_quarter() {
        let mut memory = Memory::new(100);
        let scarce = [50, 51, 26, 25, 50].map(|cells| memory.is_scarce(cells));
        assert_eq!(scarce, [false, true, true, false, false]);
    }
}
