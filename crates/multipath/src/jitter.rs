//! A random delay of each unit (such as a packet) before the splitter chooses the unit's path.
//!
//! A split randomises the share of a page that each path carries. A random delay also randomises
//! the times of the page's packets. The delay is applied before the scheduler, so that one delayed
//! sequence is split over all paths.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::RngExt;

use crate::boundary::write_range;
use crate::seed::Stream;
use crate::{Every, Time};

/// Maximum number of units (such as packets) that wait.
const MOST: usize = 4_096;
/// Maximum number of bytes that wait in a delay queue, if memory is not divided among several
/// queues: 20 ms of traffic at 1.6 Gbit/s.
pub const DELAYED_BYTES: usize = 4 << 20;

/// A random delay, drawn uniformly from a range for each unit (packet), for example from `0-20ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter {
    least: Duration,
    most: Duration,
}

/// Error of parsing a [`Jitter`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JitterError {
    /// The text does not have the form `0-20ms`.
    Form(String),
    /// The two ends of the range are equal. A constant delay hides nothing.
    Fixed(String),
    /// The range's minimum is greater than its maximum.
    Backwards(String),
}

impl Jitter {
    /// A delay of zero.
    pub const NONE: Jitter = Jitter { least: Duration::ZERO, most: Duration::ZERO };

    /// Returns the maximum delay: no unit (such as a packet) waits longer.
    pub const fn most(self) -> Duration {
        self.most
    }

    /// Returns the mean of the random delays. Units (such as packets) in close succession wait
    /// longer than their own delay, because each unit also waits for the units before it.
    pub fn mean(self) -> Duration {
        (self.least + self.most) / 2
    }
}

impl FromStr for Jitter {
    type Err = JitterError;

    /// Parses a range of delays, such as `0-20ms` or `500-1500us`. The range may begin at 0.
    fn from_str(text: &str) -> Result<Jitter, JitterError> {
        let form = || JitterError::Form(text.into());
        let Some((least, rest)) = text.split_once('-') else {
            let fixed = matches!(text.parse(), Ok(Every::Time { random: false, .. }));
            return Err(if fixed { JitterError::Fixed(text.into()) } else { form() });
        };
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let (least, most) = (length(least, unit), length(&rest[..rest.len() - unit.len()], unit));
        let (least, most) = (least.ok_or_else(form)?, most.ok_or_else(form)?);
        match least.cmp(&most) {
            std::cmp::Ordering::Less => Ok(Jitter { least, most }),
            std::cmp::Ordering::Equal => Err(JitterError::Fixed(text.into())),
            std::cmp::Ordering::Greater => Err(JitterError::Backwards(text.into())),
        }
    }
}

/// Returns the duration of `digits` and `unit`, such as `20` and `ms`. It may be 0. Returns `None`
/// if `digits` or `unit` is malformed.
fn length(digits: &str, unit: &str) -> Option<Duration> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    crate::boundary::span(digits.parse().ok().filter(|_| is_number)?, unit)
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_range(f, self.least, self.most)
    }
}

impl fmt::Display for JitterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JitterError::Form(text) => {
                write!(
                    f,
                    "'{text}' is not a range of delays: write two times with a unit (us, ms or \
                     s), such as 0-20ms"
                )
            }
            JitterError::Fixed(text) => write!(
                f,
                "'{text}' delays all datagrams equally, which hides nothing: write a range, such \
                 as 0-20ms"
            ),
            JitterError::Backwards(text) => {
                write!(f, "'{text}' begins with the longer delay: write the shorter first")
            }
        }
    }
}

impl std::error::Error for JitterError {}

/// A queue of delayed units (such as packets), in the order of their arrival.
///
/// A delay is drawn for each unit, and no unit overtakes another. A unit leaves when its own delay
/// is over and all units before it have left. So units in close succession wait nearly as long as
/// the maximum delay, and leave in clusters of random size. Departure times are not aligned to a
/// timer.
///
/// At most 4,096 units wait, and at most `most` bytes ([`DelayQueue::push`]). Beyond either limit,
/// the oldest units leave early ([`DelayQueue::take_hurried`] counts them). No unit is lost.
#[derive(Debug)]
pub struct DelayQueue<T> {
    jitter: Jitter,
    stream: Stream,
    /// The time at which each unit (such as a packet) leaves, its size in bytes, and the unit
    /// itself.
    units: VecDeque<(Time, usize, T)>,
    bytes: usize,
    most_bytes: usize,
    last: Time,
    hurried: u64,
}

impl<T> DelayQueue<T> {
    /// Returns an empty queue. Delays are drawn from `stream`.
    pub fn new(jitter: Jitter, stream: Stream) -> DelayQueue<T> {
        DelayQueue {
            jitter,
            stream,
            units: VecDeque::new(),
            bytes: 0,
            most_bytes: usize::MAX,
            last: Time::ZERO,
            hurried: 0,
        }
    }

    /// Adds `unit`, which has `bytes` bytes and arrived at `now`. If more than `most` bytes wait,
    /// the oldest units (such as packets) leave early. [`DelayQueue::pop`] returns the units that
    /// leave.
    pub fn push(&mut self, now: Time, (unit, bytes): (T, usize), most: usize) {
        let Jitter { least, most: longest } = self.jitter;
        self.last = self.last.max(now + self.stream.random_range(least..=longest));
        self.units.push_back((self.last, bytes, unit));
        self.bytes += bytes;
        self.most_bytes = most;
    }

    /// Returns the oldest unit (such as a packet) if it leaves by `now`, else `None`.
    pub fn pop(&mut self, now: Time) -> Option<T> {
        let is_full = self.is_full();
        let (due, bytes, unit) = self.units.pop_front_if(|(due, ..)| is_full || *due <= now)?;
        self.bytes -= bytes;
        self.hurried += u64::from(due > now);
        Some(unit)
    }

    /// Returns the time at which [`DelayQueue::pop`] will return a unit (such as a packet), unless
    /// another unit arrives earlier. Returns `None` if no unit waits.
    pub fn next_due(&self) -> Option<Time> {
        let (due, ..) = self.units.front()?;
        Some(if self.is_full() { Time::ZERO } else { *due })
    }

    fn is_full(&self) -> bool {
        self.units.len() > MOST || self.bytes > self.most_bytes
    }

    /// Changes the delay of units (such as packets) that are added later. Waiting units keep their
    /// time.
    pub fn set(&mut self, jitter: Jitter) {
        self.jitter = jitter;
    }

    /// Returns the number of waiting units (such as packets).
    pub fn len(&self) -> usize {
        self.units.len()
    }

    /// Returns whether no unit (such as a packet) waits.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Returns the number of units (such as packets) that left before their delay was over, since
    /// the last call of this function. They leave early if the queue is full.
    pub fn take_hurried(&mut self) -> u64 {
        std::mem::take(&mut self.hurried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::stream;

    fn delayed<T>(jitter: &str) -> DelayQueue<T> {
        DelayQueue::new(jitter.parse().unwrap(), stream(1, 0, "jitter"))
    }

    /// Delays units that arrive at `times`. Returns each unit's number, arrival and departure.
    fn carry(jitter: &str, times: &[Time]) -> Vec<(usize, Time, Time)> {
        let mut queue = delayed(jitter);
        let mut left = Vec::new();
        let leave = |queue: &mut DelayQueue<(usize, Time)>, until: Time, left: &mut Vec<_>| {
            while let Some(due) = queue.next_due().filter(|due| *due <= until) {
                let (number, received) = queue.pop(due).unwrap();
                left.push((number, received, due));
            }
        };
        for (number, &now) in times.iter().enumerate() {
            leave(&mut queue, now, &mut left);
            queue.push(now, ((number, now), 1_000), usize::MAX);
        }
        leave(&mut queue, Time::MAX, &mut left);
        assert_eq!((queue.len(), queue.take_hurried()), (0, 0));
        left
    }

    #[test]
    fn every_unit_leaves_in_order_and_within_the_range() {
        let times: Vec<Time> =
            (0..5_000).map(|n| Time::from_micros(n * n % 700 + n * 900)).collect();
        let mut sorted = times;
        sorted.sort_unstable();
        let left = carry("3-20ms", &sorted);
        assert!(left.iter().map(|each| each.0).eq(0..5_000), "the order is kept");
        for (_, received, went) in left {
            let delay = went.since(received);
            let range = Duration::from_millis(3)..=Duration::from_millis(20);
            assert!(range.contains(&delay), "{delay:?}");
        }
    }

    #[test]
    fn lone_units_are_delayed_evenly_and_dense_ones_nearly_as_long_as_may_be() {
        let mean = |spacing: Duration| {
            let times: Vec<Time> = (0..20_000).map(|n| Time::ZERO + spacing * n).collect();
            let left = carry("0-20ms", &times);
            left.iter().map(|(_, received, went)| went.since(*received).as_secs_f64()).sum::<f64>()
                / 2e4
        };
        let lone = mean(Duration::from_secs(1));
        assert!((lone - 0.010).abs() < 2.1e-4, "five standard errors: {lone}");
        let dense = mean(Duration::from_micros(100));
        assert!((0.0175..0.02).contains(&dense), "{dense}");
    }

    #[test]
    fn nothing_leaves_on_a_grid() {
        let times: Vec<Time> = (0..2_000).map(|n| Time::from_millis(50 * n)).collect();
        let mut phases: Vec<u64> =
            carry("0-20ms", &times).iter().map(|each| each.2.nanos() % 1_000_000).collect();
        phases.sort_unstable();
        phases.dedup();
        assert!(phases.len() > 1_990, "{} phases of a millisecond", phases.len());
        // The times are spread evenly over the millisecond: each tenth of it has about a tenth of
        // them.
        for part in 0..10 {
            let own = phases.iter().filter(|phase| *phase / 100_000 == part).count();
            assert!((130..270).contains(&own), "{own} in part {part}");
        }
    }

    #[test]
    fn what_is_more_than_may_wait_leaves_at_once_in_order_and_is_counted() {
        let mut queue = delayed("9000-9001ms");
        (0..MOST + 3).for_each(|unit| queue.push(Time::ZERO, (unit, 1), usize::MAX));
        assert_eq!(queue.next_due(), Some(Time::ZERO));
        let early: Vec<usize> = std::iter::from_fn(|| queue.pop(Time::ZERO)).collect();
        assert_eq!((early, queue.len(), queue.take_hurried()), (vec![0, 1, 2], MOST, 3));
        queue.push(Time::ZERO, (9_999, 1_000), MOST);
        assert_eq!(std::iter::from_fn(|| queue.pop(Time::ZERO)).count(), 1_000);
        assert_eq!(queue.take_hurried(), 1_000);
        assert!(queue.next_due().is_some_and(|due| due >= Time::from_secs(9)));
    }

    #[test]
    fn other_settings_hold_for_what_comes_and_the_order_stays() {
        let mut queue = delayed("900-901ms");
        queue.push(Time::ZERO, ('a', 1), 99);
        queue.set("0-1ms".parse().unwrap());
        queue.push(Time::ZERO, ('b', 1), 99);
        assert_eq!(queue.pop(Time::from_millis(899)), None);
        let late = Time::from_millis(901);
        assert_eq!([queue.pop(late), queue.pop(late)], [Some('a'), Some('b')]);
    }

    #[test]
    fn what_is_written_reads_back_and_each_mistake_has_its_own_error() {
        for text in ["0-20ms", "5-6s", "500-1500us"] {
            assert_eq!(text.parse::<Jitter>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "20",
            "0-20",
            "0-20p",
            "-5ms",
            "-5-20ms",
            "0--20ms",
            "0ms-20ms",
            "+0-20ms",
            "~20ms",
            "0-+20ms",
            "0-99999999999999999999ms",
            "grow:0-20ms",
            "never",
            "0-",
        ] {
            assert_eq!(text.parse::<Jitter>(), Err(JitterError::Form(text.into())), "{text}");
        }
        for text in ["20ms", "20-20ms", "0-0ms"] {
            assert_eq!(text.parse::<Jitter>(), Err(JitterError::Fixed(text.into())), "{text}");
        }
        assert_eq!("20-0ms".parse::<Jitter>(), Err(JitterError::Backwards("20-0ms".into())));
    }
}
