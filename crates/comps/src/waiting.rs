//! Datagrams that wait because no path is usable, or because the server's name is not resolved
//! yet.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::Time;

use crate::Batch;

/// Maximum number of datagrams that a session queues.
const LIMIT: usize = 128;

/// Maximum time that a datagram may wait in the queue. Then it is dropped, because all protocols
/// have retransmitted it by then.
const PATIENCE: Duration = Duration::from_secs(3);

/// A datagram in a queue, with its arrival time and ECN bits.
#[derive(Debug)]
pub(crate) struct QueuedDatagram {
    pub(crate) since: Time,
    pub(crate) bytes: Box<[u8]>,
    pub(crate) ecn: u8,
}

impl QueuedDatagram {
    /// Returns a copy of the datagram at position `index` of `batch`, which arrived at `since`.
    pub(crate) fn new(since: Time, batch: &Batch<'_>, index: u64) -> QueuedDatagram {
        QueuedDatagram { since, bytes: batch.datagram(index).into(), ecn: batch.ecn }
    }
}

/// The queue of a session's datagrams that wait for a usable path, or for the server's address.
/// The oldest datagram leaves first: it is sent, or it is dropped if the queue is full or the
/// datagram has waited too long.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    kept: VecDeque<QueuedDatagram>,
    bytes: usize,
}

impl WaitQueue {
    /// Appends `count` datagrams of `batch`, from index `first` on, with arrival time `since`. If
    /// the queue then has more than `limit` bytes or [`LIMIT`] datagrams, drops its oldest
    /// datagrams. Returns the number of dropped datagrams.
    pub(crate) fn keep(
        &mut self,
        since: Time,
        batch: &Batch<'_>,
        first: u64,
        count: u64,
        limit: usize,
    ) -> u64 {
        let mut dropped = 0;
        for index in first..first + count {
            let queued = QueuedDatagram::new(since, batch, index);
            self.bytes += queued.bytes.len();
            self.kept.push_back(queued);
            while self.kept.len() > LIMIT || self.bytes > limit {
                self.take();
                dropped += 1;
            }
        }
        dropped
    }

    /// Removes and returns the oldest datagram; `None` if the queue is empty.
    pub(crate) fn take(&mut self) -> Option<QueuedDatagram> {
        let kept = self.kept.pop_front()?;
        self.bytes -= kept.bytes.len();
        Some(kept)
    }

    /// Drops the datagrams that have waited too long. Returns their number.
    pub(crate) fn expire(&mut self, now: Time) -> u64 {
        let mut dropped = 0;
        while self.next_timeout().is_some_and(|due| now >= due) {
            self.take();
            dropped += 1;
        }
        dropped
    }

    /// Returns when the oldest datagram will have waited too long; `None` if the queue is empty.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        Some(self.kept.front()?.since + PATIENCE)
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_in_datagrams_and_bytes_and_drops_the_oldest() {
        let mut waiting = WaitQueue::default();
        let small: Vec<u8> = (0..=255).collect();
        let batch = Batch { bytes: &small, stride: 1, ecn: 0 };
        assert_eq!(waiting.keep(Time::ZERO, &batch, 0, 256, 9999), 128);
        assert_eq!(waiting.take().unwrap().bytes[..], [128]);
        let large = vec![0; 65_000];
        (0..4).for_each(|_| _ = waiting.keep(Time::ZERO, &Batch::single(&large, 0), 0, 1, 200_000));
        assert_eq!(waiting.len(), 3);
        assert!(waiting.bytes <= 200_000);
    }

    #[test]
    fn what_waited_too_long_is_dropped() {
        let mut waiting = WaitQueue::default();
        waiting.keep(Time::ZERO, &Batch::single(b"a", 0), 0, 1, 99);
        waiting.keep(Time::from_secs(1), &Batch::single(b"b", 0), 0, 1, 99);
        assert_eq!(waiting.next_timeout(), Some(Time::from_secs(3)));
        assert_eq!(waiting.expire(Time::from_secs(3)), 1);
        assert_eq!(waiting.take().unwrap().bytes[..], *b"b");
    }
}
