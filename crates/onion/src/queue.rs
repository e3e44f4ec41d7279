//! Queues of cells that wait for their link. All cells are in one pool that grows in chunks.
//! Queueing a cell therefore rarely allocates memory, and the total number of cells is known.

use anabranch_multipath::Time;

use crate::wire::cell::CELL;

/// Number of cells for which the pool allocates memory at once.
const CHUNK: usize = 64;
/// Value of an index that stands for no cell.
const NONE: u32 = u32::MAX;

/// Storage of all queued cells.
#[derive(Default)]
pub(crate) struct Pool {
    chunks: Vec<Box<[Slot]>>,
    free: Vec<u32>,
}

struct Slot {
    cell: [u8; CELL],
    next: u32,
    queued_at: Time,
}

/// Queue of one circuit's cells for one link, in the order of arrival.
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
    /// Returns the number of queued cells.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns true if the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl Pool {
    /// Appends a cell to `queue`. `fill` must write the whole cell.
    pub(crate) fn push(
        &mut self,
        queue: &mut Queue,
        now: Time,
        fill: impl FnOnce(&mut [u8; CELL]),
    ) {
        let index = self.take();
        let slot = self.slot(index);
        (slot.next, slot.queued_at) = (NONE, now);
        fill(&mut slot.cell);
        match queue.tail {
            NONE => queue.head = index,
            tail => self.slot(tail).next = index,
        }
        queue.tail = index;
        queue.length += 1;
    }

    /// Moves the first cell of `queue` to the end of `out`. Returns false if the queue is empty.
    pub(crate) fn pop(&mut self, queue: &mut Queue, out: &mut Vec<u8>) -> bool {
        let Some(index) = self.unlink_first(queue) else { return false };
        out.extend_from_slice(&self.slot(index).cell);
        self.free.push(index);
        true
    }

    /// Removes the first cell of `queue`, and returns the cell's index in the pool. Returns `None`
    /// if the queue is empty.
    fn unlink_first(&mut self, queue: &mut Queue) -> Option<u32> {
        let index = Some(queue.head).filter(|head| *head != NONE)?;
        queue.head = std::mem::replace(&mut self.slot(index).next, NONE);
        queue.length -= 1;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        Some(index)
    }

    /// Appends the first cell of `from` to `out`, and moves the cell to the end of the queue `to`.
    /// The cell's waiting time in `to` starts at `now`. Returns false if `from` is empty.
    pub(crate) fn pass(
        &mut self,
        from: &mut Queue,
        to: &mut Queue,
        now: Time,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(index) = self.unlink_first(from) else { return false };
        let slot = self.slot(index);
        out.extend_from_slice(&slot.cell);
        slot.queued_at = now;
        self.join(to, Queue { head: index, tail: index, length: 1 });
        true
    }

    /// Appends all cells of the queue `more` to `queue`.
    pub(crate) fn join(&mut self, queue: &mut Queue, more: Queue) {
        if more.head == NONE {
            return;
        }
        match queue.tail {
            NONE => queue.head = more.head,
            tail => self.slot(tail).next = more.head,
        }
        queue.tail = more.tail;
        queue.length += more.length;
    }

    /// Drops the first `cells` cells of `queue`, or all cells if there are fewer.
    pub(crate) fn skip(&mut self, queue: &mut Queue, cells: usize) {
        for _ in 0..cells {
            let Some(index) = self.unlink_first(queue) else { return };
            self.free.push(index);
        }
    }

    /// Drops all cells of `queue`.
    pub(crate) fn clear(&mut self, queue: &mut Queue) {
        while queue.head != NONE {
            self.free.push(queue.head);
            queue.head = self.slot(queue.head).next;
        }
        *queue = Queue::default();
    }

    /// Returns the time at which the first cell of `queue` began to wait; `None` if the queue is
    /// empty.
    pub(crate) fn oldest(&self, queue: &Queue) -> Option<Time> {
        let index = queue.head as usize;
        (queue.head != NONE).then(|| self.chunks[index / CHUNK][index % CHUNK].queued_at)
    }

    /// Returns the number of cells in all queues.
    pub(crate) fn used(&self) -> usize {
        self.chunks.len() * CHUNK - self.free.len()
    }

    fn take(&mut self) -> u32 {
        if let Some(index) = self.free.pop() {
            return index;
        }
        let first = (self.chunks.len() * CHUNK) as u32;
        let empty = || Slot { cell: [0; CELL], next: NONE, queued_at: Time::ZERO };
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
    fn cells_that_are_kept_go_back_before_those_that_wait() {
        let (mut pool, mut queue, mut kept) = (Pool::default(), Queue::default(), Queue::default());
        for n in 0..100u8 {
            pool.push(&mut queue, Time::ZERO, |cell| cell.fill(n));
        }
        let mut out = Vec::new();
        (0..60)
            .for_each(|_| assert!(pool.pass(&mut queue, &mut kept, Time::from_secs(1), &mut out)));
        assert_eq!((queue.len(), kept.len(), pool.used(), out.len()), (40, 60, 100, 60 * CELL));
        assert_eq!(pool.oldest(&kept), Some(Time::from_secs(1)));
        pool.skip(&mut kept, 25);
        pool.join(&mut kept, std::mem::take(&mut queue));
        assert_eq!((kept.len(), pool.used()), (75, 75));
        out.clear();
        while pool.pop(&mut kept, &mut out) {}
        let firsts: Vec<u8> = out.chunks(CELL).map(|cell| cell[0]).collect();
        assert_eq!(firsts, (25..100).collect::<Vec<u8>>());
        assert_eq!(pool.used(), 0);
        // Either queue may be empty, and `skip` may get a larger number than there are cells.
        pool.push(&mut queue, Time::ZERO, |_| {});
        pool.join(&mut queue, Queue::default());
        pool.join(&mut kept, queue);
        pool.skip(&mut kept, 9);
        assert_eq!((kept.len(), pool.used(), pool.oldest(&kept)), (0, 0, None));
        assert!(!pool.pass(&mut kept, &mut Queue::default(), Time::ZERO, &mut out));
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
