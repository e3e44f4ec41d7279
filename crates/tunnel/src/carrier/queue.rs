//! A queue of packets that wait for room in a stream.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::Time;

use super::{LONGEST, PREFIX, SHORTEST};
use crate::spare::SpareBuffers;

/// A queue of packets that a stream has not accepted yet. This includes the rest of a packet that
/// the stream accepted in part.
///
/// A stream that loses a segment, or whose window is full, accepts nothing for a while. Packets
/// older than the queue's `age` are then dropped: the program in the tunnel has given them up by
/// then, or retransmits them. A packet that the stream has accepted in part is never dropped.
/// Otherwise the receiver could not find the beginning of the next packet.
pub struct PacketQueue {
    waiting: VecDeque<Waiting>,
    /// Number of bytes of the first packet that the stream has accepted so far.
    begun: usize,
    /// Total bytes of the queued packets, with their length prefixes.
    bytes: usize,
    age: Duration,
    most: usize,
    count: QueueCount,
    spare: SpareBuffers,
}

struct Waiting {
    /// Time at which the packet was queued; `None` for a packet that does not age.
    since: Option<Time>,
    /// The packet, with its length prefix.
    bytes: Vec<u8>,
}

/// Counters of a queue, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCount {
    /// Packets that the stream has accepted completely.
    pub sent: u64,
    /// Packets dropped because they waited too long.
    pub aged: u64,
    /// Packets dropped because the queue had no room, or because their stream ended.
    pub dropped: u64,
}

impl PacketQueue {
    /// Returns an empty queue. A packet is dropped after it has waited for `age`. The packets have
    /// at most `most` bytes in total.
    #[must_use]
    pub fn new(age: Duration, most: usize) -> PacketQueue {
        let (waiting, count, spare) =
            (VecDeque::new(), QueueCount::default(), SpareBuffers::default());
        PacketQueue { waiting, begun: 0, bytes: 0, age, most, count, spare }
    }

    /// Appends a packet. Returns false, and counts the packet as dropped, if the queue has no room
    /// or the packet's length is not allowed.
    pub fn push(&mut self, now: Time, packet: &[u8]) -> bool {
        self.put(Some(now), packet)
    }

    /// Appends a packet that never becomes too old: a handshake, or a probe that shows the other
    /// end that the path works. Otherwise works like [`PacketQueue::push`].
    pub fn push_lasting(&mut self, packet: &[u8]) -> bool {
        self.put(None, packet)
    }

    fn put(&mut self, since: Option<Time>, packet: &[u8]) -> bool {
        let fits = self.bytes + PREFIX + packet.len() <= self.most;
        let prefix = u16::try_from(packet.len()).ok();
        let prefix = prefix.filter(|_| (SHORTEST..=LONGEST).contains(&packet.len()) && fits);
        let Some(prefix) = prefix else {
            self.count.dropped += 1;
            return false;
        };
        let mut bytes = self.spare.take();
        bytes.clear();
        bytes.extend_from_slice(&prefix.to_be_bytes());
        bytes.extend_from_slice(packet);
        self.bytes += bytes.len();
        self.waiting.push_back(Waiting { since, bytes });
        true
    }

    /// Drops the packets that have waited too long. Returns their number.
    pub fn drop_aged(&mut self, now: Time) -> u64 {
        let (mut place, mut aged) = (usize::from(self.begun > 0), 0);
        while let Some(next) = self.waiting.get(place) {
            match next.since {
                None => place += 1,
                Some(since) if now.since(since) > self.age => {
                    let old = self.waiting.remove(place).expect("the packet was found above");
                    self.forget(old);
                    aged += 1;
                }
                Some(_) => break,
            }
        }
        self.count.aged += aged;
        aged
    }

    /// Returns, in order, the bytes to send next: the part of each queued packet that the stream
    /// has not accepted yet.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let skip = std::iter::once(self.begun).chain(std::iter::repeat(0));
        self.waiting.iter().zip(skip).map(|(one, skip)| &one.bytes[skip..])
    }

    /// Records that the stream has accepted the next `count` bytes.
    pub fn advance(&mut self, count: usize) {
        self.begun += count;
        while let Some(first) = self.waiting.front()
            && self.begun >= first.bytes.len()
        {
            self.begun -= first.bytes.len();
            let sent = self.waiting.pop_front().expect("the packet was found above");
            self.forget(sent);
            self.count.sent += 1;
        }
    }

    /// Empties the queue, for use with another stream.
    pub fn clear(&mut self) {
        self.count.dropped += self.waiting.len() as u64;
        while let Some(lost) = self.waiting.pop_front() {
            self.forget(lost);
        }
        self.begun = 0;
    }

    /// Returns whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the number of queued bytes, with length prefixes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes - self.begun
    }

    /// Returns the counters since the queue was created.
    #[must_use]
    pub fn count(&self) -> QueueCount {
        self.count
    }

    fn forget(&mut self, one: Waiting) {
        self.bytes -= one.bytes.len();
        self.spare.give(one.bytes);
    }
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;
    use rand::RngExt;

    use super::super::Unframer;
    use super::*;

    const AGE: Duration = Duration::from_millis(100);
    const MOST: usize = 10_000;

    fn queue() -> PacketQueue {
        PacketQueue::new(AGE, MOST)
    }

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// Returns the bytes that the stream accepts: the first `most` bytes that wait.
    fn take(queue: &mut PacketQueue, most: usize) -> Vec<u8> {
        let bytes: Vec<u8> = queue.chunks().flatten().copied().take(most).collect();
        queue.advance(bytes.len());
        bytes
    }

    fn packets(unframer: &mut Unframer, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        unframer.take(bytes, |packet| found.push(packet.to_vec())).expect("sound lengths");
        found
    }

    #[test]
    fn what_waits_too_long_is_dropped_and_counted() {
        let mut queue = queue();
        assert!(queue.push(at(0), &[1; 50]) && queue.push(at(60), &[2; 50]));
        assert_eq!(queue.drop_aged(at(100)), 0, "exactly the age is not too long");
        assert_eq!(queue.drop_aged(at(101)), 1);
        assert_eq!(packets(&mut Unframer::default(), &take(&mut queue, MOST)), [vec![2; 50]]);
        assert_eq!(queue.count(), QueueCount { sent: 1, aged: 1, dropped: 0 });
        assert!(queue.is_empty() && queue.bytes() == 0);
    }

    #[test]
    fn a_packet_that_is_sent_in_part_is_never_dropped() {
        let (mut queue, mut unframer) = (queue(), Unframer::default());
        (1..=3).for_each(|n| assert!(queue.push(at(0), &[n; 50])));
        let mut bytes = take(&mut queue, 10);
        assert_eq!(queue.drop_aged(at(5_000)), 2);
        assert!(queue.push(at(5_000), &[4; 30]));
        bytes.extend(take(&mut queue, MOST));
        assert_eq!(packets(&mut unframer, &bytes), [vec![1; 50], vec![4; 30]]);
    }

    #[test]
    fn probes_and_handshakes_do_not_age_and_hold_up_nobody_who_does() {
        let mut queue = queue();
        assert!(queue.push_lasting(&[1; 40]) && queue.push(at(0), &[2; 50]));
        assert!(queue.push_lasting(&[3; 40]));
        assert_eq!(queue.drop_aged(at(500)), 1);
        let left = packets(&mut Unframer::default(), &take(&mut queue, MOST));
        assert_eq!(left, [vec![1; 40], vec![3; 40]]);
    }

    #[test]
    fn memory_is_bounded_and_no_packet_passes_that_the_other_end_refuses() {
        let mut queue = queue();
        let room = MOST / (100 + PREFIX);
        assert_eq!((0..1_000).filter(|_| queue.push(at(0), &[0; 100])).count(), room);
        assert_eq!(queue.count().dropped, 1_000 - room as u64);
        let mut wide = PacketQueue::new(AGE, 1 << 20);
        assert!(!wide.push(at(0), &[0; SHORTEST - 1]) && !wide.push(at(0), &[]));
        assert!(!wide.push(at(0), &vec![0; LONGEST + 1]) && !wide.push(at(0), &vec![0; 70_000]));
        assert!(wide.push(at(0), &vec![0; LONGEST]));
    }

    #[test]
    fn another_stream_begins_with_a_whole_packet() {
        let mut queue = queue();
        assert!(queue.push(at(0), &[1; 50]) && queue.push(at(0), &[2; 50]));
        take(&mut queue, 60);
        queue.clear();
        assert_eq!(queue.count(), QueueCount { sent: 1, aged: 0, dropped: 1 });
        assert!(queue.push(at(1), &[3; 50]));
        assert_eq!(packets(&mut Unframer::default(), &take(&mut queue, MOST)), [vec![3; 50]]);
    }

    /// Checks that the other end reads, in order and exactly once, each packet that was not
    /// dropped. The stream accepts random numbers of bytes at random times.
    #[test]
    fn any_stream_carries_what_is_not_dropped() {
        for seed in 0..50 {
            let rng = &mut stream(seed, 0, "queue");
            let (mut queue, mut unframer, mut found) = (queue(), Unframer::default(), Vec::new());
            let (mut now, mut pushed) = (at(0), 0u16);
            for _ in 0..400 {
                now += Duration::from_millis(rng.random_range(0..30));
                for _ in 0..rng.random_range(0..5) {
                    let mut packet = vec![7; rng.random_range(SHORTEST..2_000)];
                    packet[..2].copy_from_slice(&pushed.to_be_bytes());
                    pushed += u16::from(queue.push(now, &packet));
                }
                queue.drop_aged(now);
                let most = rng.random_range(0..3_000);
                found.extend(packets(&mut unframer, &take(&mut queue, most)));
                assert!(queue.bytes() <= MOST);
            }
            found.extend(packets(&mut unframer, &take(&mut queue, MOST)));
            let numbers: Vec<u16> =
                found.iter().map(|packet| u16::from_be_bytes([packet[0], packet[1]])).collect();
            assert!(numbers.is_sorted_by(|one, other| one < other), "seed {seed}");
            let count = queue.count();
            assert_eq!(count.sent, found.len() as u64);
            assert_eq!(count.sent + count.aged, u64::from(pushed), "seed {seed}: {count:?}");
            assert!(count.aged > 0 && count.dropped > 0, "seed {seed} tests nothing: {count:?}");
        }
    }
}
