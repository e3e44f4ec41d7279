//! Cells that wait for their link: many queues in one pool, so that a cell costs no allocation and
//! all of them together have a ceiling.

use anabranch_multipath::Time;

use crate::wire::cell::CELL;

/// Cells in a piece of the pool.
const CHUNK: usize = 64;
/// The index of no cell.
const NONE: u32 = u32::MAX;

/// All cells that wait.
#[derive(Default)]
pub(crate) struct Pool {
    chunks: Vec<Box<[Slot]>>,
    free: Vec<u32>,
}

struct Slot {
    cell: [u8; CELL],
    next: u32,
    came: Time,
}

/// The cells of one circuit towards one link, first in, first out.
#[derive(Debug)]
pub(crate) struct Queue {
    head: u32,
    tail: u32,
    length: usize,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { head: NONE, tail: NONE, length: 0 }
    }
}

impl Queue {
    /// Cells that wait.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Whether none does.
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl Pool {
    /// Puts a cell at the end of a queue; `fill` writes all of it.
    pub(crate) fn push(
        &mut self,
        queue: &mut Queue,
        now: Time,
        fill: impl FnOnce(&mut [u8; CELL]),
    ) {
        let index = self.take();
        let slot = self.slot(index);
        (slot.next, slot.came) = (NONE, now);
        fill(&mut slot.cell);
        match queue.tail {
            NONE => queue.head = index,
            tail => self.slot(tail).next = index,
        }
        queue.tail = index;
        queue.length += 1;
    }

    /// Appends a queue's first cell to `out`; false if there is none.
    pub(crate) fn pop(&mut self, queue: &mut Queue, out: &mut Vec<u8>) -> bool {
        if queue.head == NONE {
            return false;
        }
        let index = queue.head;
        let slot = self.slot(index);
        out.extend_from_slice(&slot.cell);
        queue.head = slot.next;
        queue.length -= 1;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        self.free.push(index);
        true
    }

    /// Drops all cells of a queue.
    pub(crate) fn clear(&mut self, queue: &mut Queue) {
        while queue.head != NONE {
            self.free.push(queue.head);
            queue.head = self.slot(queue.head).next;
        }
        *queue = Queue::default();
    }

    /// Since when a queue's first cell waits.
    pub(crate) fn oldest(&self, queue: &Queue) -> Option<Time> {
        let index = queue.head as usize;
        (queue.head != NONE).then(|| self.chunks[index / CHUNK][index % CHUNK].came)
    }

    /// Cells that wait in all queues.
    pub(crate) fn used(&self) -> usize {
        self.chunks.len() * CHUNK - self.free.len()
    }

    fn take(&mut self) -> u32 {
        if let Some(index) = self.free.pop() {
            return index;
        }
        let first = (self.chunks.len() * CHUNK) as u32;
        let empty = || Slot { cell: [0; CELL], next: NONE, came: Time::ZERO };
        self.chunks.push((0..CHUNK).map(|_| empty()).collect());
        self.free.extend((first + 1..first + CHUNK as u32).rev());
        first
    }

    fn slot(&mut self, index: u32) -> &mut Slot {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_keeps_its_own_order() {
        let (mut pool, mut a, mut b) = (Pool::default(), Queue::default(), Queue::default());
        for n in 0..200u8 {
            let queue = if n % 3 == 0 { &mut a } else { &mut b };
            pool.push(queue, Time::from_micros(u64::from(n)), |cell| cell.fill(n));
        }
        assert_eq!((a.len(), b.len(), pool.used()), (67, 133, 200));
        assert_eq!(pool.oldest(&b), Some(Time::from_micros(1)));
        let mut out = Vec::new();
        while pool.pop(&mut a, &mut out) {}
        let firsts: Vec<u8> = out.chunks(CELL).map(|cell| cell[0]).collect();
        assert_eq!(firsts, (0..200).step_by(3).collect::<Vec<u8>>());
        pool.clear(&mut b);
        assert_eq!((b.len(), pool.used(), pool.oldest(&b)), (0, 0, None));
    }

    #[test]
    fn what_was_sent_makes_room_for_what_comes() {
        let (mut pool, mut queue) = (Pool::default(), Queue::default());
        for _ in 0..10_000 {
            pool.push(&mut queue, Time::ZERO, |_| {});
            assert!(pool.pop(&mut queue, &mut Vec::new()));
        }
        assert_eq!(pool.chunks.len(), 1);
    }
}
