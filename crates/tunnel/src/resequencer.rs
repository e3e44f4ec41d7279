//! A buffer that restores the order in which the other end sent the packets, and releases them as
//! evenly as the paths deliver them.
//!
//! A plain reorder queue breaks a bulk transfer. Three rules prevent that (`tests/goodput.rs`
//! measures them together):
//!
//! * A run is a series of packets with consecutive packet numbers on one path. A packet missing
//!   from a run counts as lost once later packets of that run have arrived. A missing packet also
//!   counts as lost once every path has delivered later packets. Thus only packets at the end of a
//!   run need a wait.
//! * Each datagram of a faster path is held back until it would have arrived on the slowest path.
//!   Otherwise round-trip times would jump with every run, and delayed datagrams would leave as
//!   one burst.
//! * Datagrams that waited for a missing datagram leave with the spacing of their arrival
//!   ([`Pacer`]).

use std::ops::Range;
use std::time::Duration;

use anabranch_multipath::{Insertion, Merger, PathId, Time};

use crate::delays::Delays;
use crate::pacer::Pacer;

/// Maximum number of datagrams that wait for missing earlier datagrams. Beyond this number, the
/// missing datagrams count as lost.
const WAITING: usize = 4_096;
/// Number of later packets of the same path after which a missing packet counts as lost (QUIC's
/// `kPacketThreshold`: RFC 9002, section 6.1.1).
const DISORDER: u64 = 3;

/// An arrived packet: its content, and the fields that determine its position in the order.
pub(crate) struct Arrival<T> {
    pub(crate) path: PathId,
    pub(crate) number: u64,
    /// The sender's timestamp, if the packet has one.
    pub(crate) stamp: Option<u32>,
    /// Number of packets sent on the same path directly before this packet, with consecutive
    /// packet numbers.
    pub(crate) run: u16,
    /// The datagram in the packet; `None` if it has none.
    pub(crate) content: Option<T>,
}

/// A datagram that waits for missing datagrams: its path, its time of arrival, its timestamp and
/// its content.
type Waiting<T> = (PathId, Time, u32, T);

/// A resequencer for the packets of one session.
pub(crate) struct Resequencer<T> {
    merger: Merger<Option<Waiting<T>>>,
    ready: Pacer<T>,
    delays: Delays,
    /// For each path, a packet number below which no packet of the path has to be checked for
    /// losses again.
    checked: Vec<u64>,
    /// For each path, the greatest packet number that arrived, plus 1.
    newest: Vec<u64>,
    missed: u64,
}

impl<T> Resequencer<T> {
    /// Returns a resequencer for `paths` paths, numbered from 0.
    pub(crate) fn new(paths: usize) -> Resequencer<T> {
        let merger = Merger::new(paths, 0, WAITING, Some(Duration::ZERO));
        let (ready, delays) = (Pacer::default(), Delays::default());
        let (checked, newest) = (vec![0; paths], vec![0; paths]);
        Resequencer { merger, ready, delays, checked, newest, missed: 0 }
    }

    /// Restarts with the packet number `first`. Drops the waiting datagrams. Forgets the delays of
    /// the paths, because the other end's clock may have changed.
    pub(crate) fn begin_at(&mut self, first: u64) {
        self.delays = Delays::default();
        let patience = Some(self.delays.patience());
        self.merger = Merger::new(self.checked.len(), first, WAITING, patience);
        self.checked.fill(first);
        self.newest.fill(first);
    }

    /// Processes a packet that arrived at `now`. No packet with the same number may have been
    /// processed before.
    pub(crate) fn take(&mut self, now: Time, arrival: Arrival<T>) {
        let Arrival { path, number, stamp, run, content } = arrival;
        let received = stamp.map_or(now, |stamp| self.delays.note(now, path, stamp));
        if let Some(newest) = self.newest.get_mut(path.index()) {
            *newest = (number + 1).max(*newest);
        }
        if self.merger.has_seen(number) {
            // The number was given up, but the datagram is still useful, so it leaves at once.
            content.into_iter().for_each(|content| self.ready.push_first(now, content));
            return;
        }
        if self.merger.pass(path, number) {
            let steady = (now + self.delays.shorter(path), stamp.unwrap_or_default());
            content.into_iter().for_each(|content| self.ready.push(now, steady, content));
            return;
        }
        self.merger.set_patience(Some(self.delays.patience()));
        if self.merger.is_full() {
            // The buffer has no room for further packets, so the missing packet is given up.
            self.merger.skip_missing();
            self.collect(now);
        }
        let waiting = content.map(|content| (path, now, stamp.unwrap_or_default(), content));
        let _ = self.merger.handle(received, path, number, waiting);
        self.miss(now, path, number, run);
        self.collect(now);
    }

    /// Marks as lost the missing packets among the `run` packets directly before packet `number`,
    /// except the two newest, which may only be late ([`DISORDER`]). Also marks earlier missing
    /// packets as lost if every path has delivered later ones.
    fn miss(&mut self, now: Time, path: PathId, number: u64, run: u16) {
        let Some(checked) = self.checked.get_mut(path.index()) else { return };
        let begin = number.saturating_sub(run.into()).max(self.merger.next_number()).max(*checked);
        let end = (number + 1).saturating_sub(DISORDER);
        *checked = end.max(*checked);
        self.lose(now, path, begin..end);
        // Every path has delivered later packets, so the earlier ones are lost, whichever path
        // they took.
        let passed = self.newest.iter().min().copied().unwrap_or_default();
        let passed = passed.saturating_sub(DISORDER * self.newest.len() as u64);
        let next = self.merger.next_number();
        if next < passed {
            self.lose(now, path, next..passed);
        }
    }

    /// Marks the missing packets with the packet numbers `numbers` as lost. Stops when the buffer
    /// of waiting packets is full. Without this limit, a gap of billions of packet numbers would
    /// need billions of steps.
    fn lose(&mut self, now: Time, path: PathId, numbers: Range<u64>) {
        for missing in numbers {
            if self.merger.holds(missing) {
                continue;
            }
            match self.merger.handle(now, path, missing, None) {
                Insertion::Taken => self.missed += 1,
                Insertion::Full => break,
                Insertion::Duplicate => {}
            }
        }
    }

    fn collect(&mut self, now: Time) {
        while let Some((_, unit)) = self.merger.poll(now) {
            if let Some((path, received, stamp, content)) = unit {
                let steady = received + self.delays.shorter(path);
                self.ready.push(now, (steady, stamp), content);
            }
        }
    }

    /// Returns the next datagram that is due at `now`; `None` if none is due.
    pub(crate) fn poll(&mut self, now: Time) -> Option<T> {
        self.collect(now);
        self.ready.pop(now)
    }

    /// Returns the time at which [`Resequencer::poll`] will have a datagram, if no packet arrives
    /// before; `None` if no datagram waits.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        [self.merger.next_timeout(), self.ready.next_timeout()].into_iter().flatten().min()
    }

    /// Returns the maximum time for which a datagram waits for an older one.
    pub(crate) fn patience(&self) -> Duration {
        self.delays.patience()
    }

    /// Returns the number of packets that count as lost.
    pub(crate) fn lost(&self) -> u64 {
        self.merger.lost() + self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delays::micros;

    const MS: Duration = Duration::from_millis(1);

    /// Packets of two paths: the first takes 10 ms, the second 40 ms.
    struct Ends {
        resequencer: Resequencer<u64>,
        received: Vec<u64>,
    }

    impl Ends {
        fn new() -> Ends {
            let mut ends = Ends { resequencer: Resequencer::new(2), received: Vec::new() };
            for number in 0..200 {
                ends.send(Time::from_millis(number), (number % 2) as usize, number, 0);
            }
            ends.poll(Time::from_secs(1));
            ends.received.clear();
            ends
        }

        /// Sends a packet, which arrives after the delay of its path. Returns the time of its
        /// arrival.
        fn send(&mut self, sent: Time, path: usize, number: u64, run: u16) -> Time {
            let now = sent + MS * [10, 40][path];
            let (path, stamp) = (PathId::at(path), Some(micros(sent)));
            let content = Some(number);
            self.resequencer.take(now, Arrival { path, number, stamp, run, content });
            now
        }

        fn poll(&mut self, now: Time) -> Vec<u64> {
            self.received.extend(std::iter::from_fn(|| self.resequencer.poll(now)));
            std::mem::take(&mut self.received)
        }
    }

    #[test]
    fn a_faster_path_waits_for_the_slowest_and_no_longer() {
        let mut ends = Ends::new();
        let now = ends.send(Time::from_secs(2), 0, 200, 0);
        assert_eq!(ends.poll(now + MS * 28), []);
        assert_eq!(ends.poll(now + MS * 30), [200]);
        let now = ends.send(Time::from_secs(3), 1, 201, 0);
        assert_eq!(ends.poll(now), [201]);
    }

    /// Checks packets after a gap of 2^60 numbers. Without the limit on lost numbers, this test
    /// would take years.
    #[test]
    fn billions_of_numbers_that_all_paths_leave_out_are_not_looked_at_one_by_one() {
        let (mut ends, start) = (Ends::new(), Time::from_secs(2));
        for path in 0..2 {
            ends.send(start, path, (1 << 60) + path as u64, 0);
        }
        assert_eq!(ends.poll(start + MS * 500), [1 << 60, (1 << 60) + 1]);
    }

    #[test]
    fn a_loss_within_a_run_is_not_waited_for() {
        let mut ends = Ends::new();
        let start = Time::from_secs(2);
        ends.send(start, 1, 200, 0);
        for run in [2, 3, 4] {
            ends.send(start + MS * run, 1, 200 + u64::from(run), run as u16);
        }
        let now = start + MS * 44;
        assert_eq!(ends.poll(now), [200, 202, 203, 204], "201 is known to be lost");
        assert_eq!(ends.resequencer.lost(), 1);
        ends.send(start + MS * 5, 1, 201, 1);
        assert_eq!(ends.poll(start + MS * 45), [201], "late is better than never");
    }

    #[test]
    fn the_end_of_a_run_is_waited_for_as_long_as_paths_differ() {
        let mut ends = Ends::new();
        let start = Time::from_secs(2);
        // Packet 200, which was sent on the slow path, is lost.
        let now = ends.send(start, 0, 201, 0);
        assert_eq!(ends.poll(now + MS * 29), []);
        let due = ends.resequencer.next_timeout().unwrap();
        assert!((now + MS * 30..now + MS * 34).contains(&due), "{due:?}");
        assert_eq!(ends.poll(due), [201]);
    }

    #[test]
    fn what_waited_for_a_queue_leaves_as_it_came() {
        let mut ends = Ends::new();
        let start = Time::from_secs(2);
        // The last packet of the slow path waited 20 ms in a queue.
        for number in 201..221 {
            ends.send(start + MS * (number - 200) as u32, 0, number, (number - 201) as u16);
        }
        let drained = start + MS * 60;
        let stamp = Some(micros(start));
        let (path, number, content) = (PathId(1), 200, Some(200));
        ends.resequencer.take(drained, Arrival { path, number, stamp, run: 0, content });
        assert!(ends.poll(drained).len() < 4, "no burst");
        assert!((8..13).contains(&ends.poll(drained + MS * 10).len()));
        let all = ends.poll(drained + MS * 30);
        assert_eq!(all.last(), Some(&220));
    }
}
