//! Controlled delay (CoDel, RFC 8289): drops units (such as packets) from a queue that never
//! empties, and tolerates bursts.

use std::time::Duration;

use crate::Time;

/// A rule that keeps the *standing* queue (a queue that never empties) short.
///
/// Once units have waited longer than `target` for a whole `interval`, the rule drops the unit at
/// the head of the queue. Further drops follow at shrinking intervals (`interval / sqrt(n)` after
/// the drop with the number n), until a unit has waited less than `target`. ECN marks are not
/// supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// Acceptable wait in a standing queue. RFC 8289, section 4.3, recommends 5 to 10 % of
    /// `interval`.
    pub target: Duration,
    /// Approximately the longest round-trip time of the connections.
    pub interval: Duration,
}

impl Default for Codel {
    /// Returns the rule with a target of 5 ms and an interval of 100 ms, as in RFC 8289, sections
    /// 4.2 and 4.3.
    fn default() -> Codel {
        Codel { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

/// The content of a queue at the time when its head may be sent.
pub struct Queue<I> {
    /// The arrival time and the size in bytes of each unit (such as a packet), beginning with the
    /// head.
    pub units: I,
    /// Total bytes of the units (such as packets).
    pub bytes: usize,
    /// Limit in bytes: the queue counts as standing (never empty) only if more bytes than this
    /// follow its head.
    pub max_unit: usize,
}

/// The state of CoDel's control law. The fields have the names of the pseudocode in RFC 8289,
/// section 5.
#[derive(Clone, Debug, Default)]
pub struct Law {
    /// Time at which the waits will have been longer than `target` for a whole `interval`; `None`
    /// while a wait is shorter than `target` or the queue is not a standing queue.
    first_above: Option<Time>,
    drop_next: Time,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl Law {
    /// Returns how many units (such as packets) to drop from the head of the queue, now that the
    /// head may be sent (`dequeue` in RFC 8289, section 5.6). The caller sends the unit after the
    /// dropped units.
    pub fn drops<I>(&mut self, rule: &Codel, now: Time, mut queue: Queue<I>) -> usize
    where
        I: Iterator<Item = (Time, usize)>,
    {
        let too_long = self.waits_too_long(rule, now, &mut queue);
        if self.dropping {
            self.dropping = too_long;
            return self.catch_up(rule, now, &mut queue);
        }
        if !too_long {
            return 0;
        }
        self.start(rule, now);
        // As in the RFC, the next unit is examined, too. It may end the dropping state, but is not
        // dropped yet.
        self.waits_too_long(rule, now, &mut queue);
        1
    }

    /// Records that the queue is empty, which ends the dropping state. If dropping starts again
    /// soon, it starts at the present drop rate.
    pub fn empty(&mut self) {
        (self.first_above, self.dropping) = (None, false);
    }

    /// Removes the head of `queue`, and returns whether CoDel may drop this unit: `dodequeue` in
    /// RFC 8289.
    fn waits_too_long<I>(&mut self, rule: &Codel, now: Time, queue: &mut Queue<I>) -> bool
    where
        I: Iterator<Item = (Time, usize)>,
    {
        let Some((received, bytes)) = queue.units.next() else {
            self.first_above = None;
            return false;
        };
        queue.bytes -= bytes;
        if now.since(received) < rule.target || queue.bytes <= queue.max_unit {
            self.first_above = None;
            return false;
        }
        let since = *self.first_above.get_or_insert(now + rule.interval);
        now >= since
    }

    /// Returns the number of drops due by `now`. At a high rate several may be due at once.
    fn catch_up<I>(&mut self, rule: &Codel, now: Time, queue: &mut Queue<I>) -> usize
    where
        I: Iterator<Item = (Time, usize)>,
    {
        let mut drops = 0;
        while self.dropping && now >= self.drop_next {
            drops += 1;
            self.count = self.count.saturating_add(1);
            self.dropping = self.waits_too_long(rule, now, queue);
            if self.dropping {
                self.drop_next += rule.spacing(self.count);
            }
        }
        drops
    }

    /// Enters the dropping state. If the previous dropping state ended recently, the drop rate
    /// starts where that state left it.
    fn start(&mut self, rule: &Codel, now: Time) {
        let last_rate = self.count - self.last_count;
        let recent = now < self.drop_next + 16 * rule.interval;
        self.dropping = true;
        self.count = if last_rate > 1 && recent { last_rate } else { 1 };
        self.last_count = self.count;
        self.drop_next = now + rule.spacing(self.count);
    }
}

impl Codel {
    /// Returns the time between drop number `count` and the next drop (`control_law` in RFC 8289).
    fn spacing(&self, count: u32) -> Duration {
        self.interval.div_f64(f64::from(count).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const RULE: Codel =
        Codel { target: Duration::from_millis(5), interval: Duration::from_millis(100) };

    /// Returns the drops at `now` from a long queue of 1,000-byte units that have all waited
    /// `wait`.
    fn ask(law: &mut Law, now: Time, wait: Duration) -> usize {
        let received = Time::from_nanos(now.nanos() - wait.as_nanos() as u64);
        let units = std::iter::repeat_n((received, 1_000), 1_000);
        law.drops(&RULE, now, Queue { units, bytes: 1_000_000, max_unit: 1_500 })
    }

    /// Applies the law in each millisecond of `span`. Returns the milliseconds with drops, each
    /// with the number of drops.
    fn drops(law: &mut Law, span: std::ops::Range<u64>, wait: Duration) -> Vec<(u64, usize)> {
        let asked = span.map(|ms| (ms, ask(law, Time::from_millis(ms), wait)));
        asked.filter(|&(_, drops)| drops > 0).collect()
    }

    #[test]
    fn waits_below_the_target_are_never_punished() {
        assert_eq!(drops(&mut Law::default(), 100..5_000, 5 * MS - Duration::from_nanos(1)), []);
    }

    #[test]
    fn drops_follow_each_other_by_the_interval_over_the_root_of_their_number() {
        let seen = drops(&mut Law::default(), 1_000..2_000, 5 * MS);
        // The first drop comes after one interval above the target. The times between drops are
        // then 100/√1, 100/√2, 100/√3, ... ms.
        let mut due = 1_100.0;
        for (number, (at, count)) in (1..).zip(&seen) {
            assert_eq!((*at, *count), (f64::ceil(due - 1e-6) as u64, 1), "drop {number}");
            due += 100.0 / f64::from(number).sqrt();
        }
        // Drop number n comes 100 * (1 + the sum of 1/√k for k < n) ms after the start. The sum up
        // to k = 26 is 8.84, and up to k = 27 it is 9.03. So drop 27 is the last one within a
        // second.
        assert_eq!(seen.len(), 27);
    }

    #[test]
    fn one_short_wait_ends_the_dropping() {
        let mut law = Law::default();
        assert_eq!(drops(&mut law, 1_000..1_250, 20 * MS), [(1_100, 1), (1_200, 1)]);
        assert_eq!(ask(&mut law, Time::from_millis(1_250), MS), 0);
        // Another whole interval above the target has to pass.
        assert_eq!(drops(&mut law, 1_251..1_352, 20 * MS), [(1_351, 1)]);
    }

    #[test]
    fn a_soon_relapse_goes_on_at_the_last_rate_and_a_late_one_begins_anew() {
        for (pause, second) in [(100, 100.0 / f64::sqrt(9.0)), (5_000, 100.0)] {
            let mut law = Law::default();
            let first = drops(&mut law, 1_000..1_600, 20 * MS);
            assert_eq!(first.len(), 10, "{first:?}");
            let again = 1_600 + pause;
            assert_eq!(drops(&mut law, 1_600..again, MS), []);
            let relapse = drops(&mut law, again..again + 250, 20 * MS);
            assert_eq!(relapse[0], (again + 100, 1));
            // The count has risen from 1 to 10. A dropping state that follows soon starts with the
            // difference, 9.
            assert_eq!(relapse[1].0, again + 100 + second.ceil() as u64, "pause {pause} ms");
        }
    }

    #[test]
    fn a_short_queue_is_left_alone_however_old() {
        let mut law = Law::default();
        for ms in 1_000..3_000 {
            let units = std::iter::repeat_n((Time::ZERO, 1_000), 2);
            let queue = Queue { units, bytes: 2_000, max_unit: 1_500 };
            assert_eq!(law.drops(&RULE, Time::from_millis(ms), queue), 0);
        }
    }

    #[test]
    fn a_long_pause_of_the_wire_is_made_up_for_at_once() {
        let mut law = Law::default();
        drops(&mut law, 1_000..1_150, 20 * MS);
        // Drops are due at 1,200, 1,271, 1,328 and 1,378 ms.
        assert_eq!(ask(&mut law, Time::from_millis(1_400), 20 * MS), 4);
    }
}
