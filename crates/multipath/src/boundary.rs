//! The rule for when a run ends. A run is a group of consecutive units (such as packets) on one
//! path.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::RngExt;
use rand_distr::{Distribution, Exp1, Geometric};

use crate::seed::Stream;
use crate::{Time, growth};

/// The length of a run (a group of consecutive units on one path), in a user's notation: `50p`,
/// `100ms`, `~50p`, `~1s`, `50-70p`, `80-120ms`, `grow:10-100ms`, `never`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Every {
    /// Runs (groups of units, such as packets, on one path) do not end: all units take the path
    /// that is chosen first, as long as it is usable.
    Never,
    /// A run (consecutive packets on one path) has `mean` packets, or, if `random` is true, a
    /// geometric random number of packets with this mean.
    Packets {
        /// Mean number of packets in a run (consecutive packets on one path), at least 1.
        mean: u64,
        /// True if the number of packets is drawn at random for each run (consecutive packets on
        /// one path).
        random: bool,
    },
    /// A run (consecutive packets on one path) lasts for the time `mean`, or, if `random` is true,
    /// for an exponential random time with this mean.
    Time {
        /// Mean duration of a run (consecutive packets on one path), above zero.
        mean: Duration,
        /// True if the duration of each run (consecutive packets on one path) is drawn at random.
        random: bool,
    },
    /// A run (consecutive packets on one path) has a random number of packets. All numbers from
    /// `least` to `most` have the same probability.
    PacketRange {
        /// Minimum number of packets in a run (consecutive packets on one path), at least 1.
        least: u64,
        /// Maximum number of packets in a run (consecutive packets on one path), at least `least`.
        most: u64,
    },
    /// A run (consecutive packets on one path) lasts for a random time, uniformly distributed from
    /// `least` to `most`.
    TimeRange {
        /// Minimum duration of a run (consecutive packets on one path), above zero.
        least: Duration,
        /// Maximum duration of a run (consecutive packets on one path), at least `least`.
        most: Duration,
    },
    /// Runs (consecutive packets on one path) are short after a pause in the traffic, and become
    /// longer while the traffic continues (`growth.rs` has the formula).
    Growing {
        /// Mean duration of the first runs (consecutive packets on one path) after a pause, above
        /// zero.
        least: Duration,
        /// Mean duration that later runs (consecutive packets on one path) reach, at least
        /// `least`.
        most: Duration,
    },
}

/// Error of parsing an [`Every`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EveryError {
    /// The text does not have the form `50p`, `100ms`, `~50p`, `~100ms`, `50-70p`, `80-120ms`,
    /// `grow:10-100ms` or `never`.
    Form(String),
    /// The length is 0, so that a run (consecutive packets on one path) could never carry
    /// anything.
    Zero(String),
    /// The range's minimum is greater than its maximum.
    Backwards(String),
    /// The length is a time above 24 hours.
    TooLong(String),
}

/// Longest run (consecutive packets on one path) that a user may request: 24 hours.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl fmt::Display for EveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EveryError::Form(text) => write!(
                f,
                "'{text}' is not the length of a run (consecutive packets on one path): write a \
                 number of packets (50p), a time (100ms, 2s, 5m), a random length by its mean \
                 (~50p, ~100ms) or by its range (50-70p, 80-120ms), a length that grows from 10 \
                 to 100 ms after each pause in the traffic (grow:10-100ms), or never (the path \
                 does not change)"
            ),
            EveryError::Zero(text) => {
                write!(
                    f,
                    "'{text}' is too short for a run (consecutive packets on one path): write 1p, \
                     1us or more"
                )
            }
            EveryError::TooLong(text) => {
                write!(
                    f,
                    "'{text}' is too long for a run (consecutive packets on one path): write 24h \
                     or less, or never to keep one path"
                )
            }
            EveryError::Backwards(text) => {
                write!(f, "'{text}' begins with the longer length: write the shorter first")
            }
        }
    }
}

impl std::error::Error for EveryError {}

impl FromStr for Every {
    type Err = EveryError;

    fn from_str(text: &str) -> Result<Every, EveryError> {
        if text == "never" {
            return Ok(Every::Never);
        }
        if let Some(rest) = text.strip_prefix("grow:") {
            return growing(text, rest);
        }
        let (random, length) = match text.strip_prefix('~') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        match length.split_once('-') {
            Some(_) if random => Err(EveryError::Form(text.into())),
            Some((least, rest)) => range(text, least, rest),
            None => one(text, length, random),
        }
    }
}

/// A parsed length of runs (consecutive packets on one path): a number of packets, or a time.
enum Length {
    Packets(u64),
    Time(Duration),
}

/// Parses `length`, such as `50p` or `100ms`. `length` is `text` without its leading tilde;
/// `random` is true if there was a tilde.
fn one(text: &str, length: &str, random: bool) -> Result<Every, EveryError> {
    Ok(match parse_length(text, length)? {
        Length::Packets(mean) => Every::Packets { mean, random },
        Length::Time(mean) => Every::Time { mean, random },
    })
}

/// Parses a range such as `50-70p` or `80-120ms`. The unit, such as `p` or `ms`, is written once,
/// at the end.
fn range(text: &str, least: &str, rest: &str) -> Result<Every, EveryError> {
    if !least.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(EveryError::Form(text.into()));
    }
    let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    match (parse_length(text, &format!("{least}{unit}"))?, parse_length(text, rest)?) {
        (Length::Packets(least), Length::Packets(most)) if least <= most => {
            Ok(Every::PacketRange { least, most })
        }
        (Length::Time(least), Length::Time(most)) if least <= most => {
            Ok(Every::TimeRange { least, most })
        }
        _ => Err(EveryError::Backwards(text.into())),
    }
}

/// Parses `rest`, such as `10-100ms`, which is `text` without its prefix `grow:`.
fn growing(text: &str, rest: &str) -> Result<Every, EveryError> {
    let form = || EveryError::Form(text.into());
    let (least, most) = rest.split_once('-').ok_or_else(form)?;
    match range(text, least, most)? {
        Every::TimeRange { least, most } => Ok(Every::Growing { least, most }),
        _ => Err(form()),
    }
}

fn parse_length(text: &str, length: &str) -> Result<Length, EveryError> {
    let digits = length.find(|c: char| !c.is_ascii_digit()).unwrap_or(length.len());
    let (number, unit) = length.split_at(digits);
    let number: u64 = number.parse().map_err(|_| EveryError::Form(text.into()))?;
    let length = match unit {
        "p" => Length::Packets(number),
        _ => Length::Time(span(number, unit).ok_or_else(|| EveryError::Form(text.into()))?),
    };
    if matches!(length, Length::Time(time) if time > LONGEST) {
        return Err(EveryError::TooLong(text.into()));
    }
    if number == 0 { Err(EveryError::Zero(text.into())) } else { Ok(length) }
}

pub(crate) fn span(number: u64, unit: &str) -> Option<Duration> {
    match unit {
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tilde = |random: bool| if random { "~" } else { "" };
        match *self {
            Every::Never => f.write_str("never"),
            Every::Packets { mean, random } => write!(f, "{}{mean}p", tilde(random)),
            Every::PacketRange { least, most } => write!(f, "{least}-{most}p"),
            Every::Time { mean, random } => {
                let (unit, micros) = unit(&[mean]);
                write!(f, "{}{}{unit}", tilde(random), mean.as_micros() / micros)
            }
            Every::TimeRange { least, most } => write_range(f, least, most),
            Every::Growing { least, most } => {
                f.write_str("grow:")?;
                write_range(f, least, most)
            }
        }
    }
}

/// Writes a range such as `80-120ms`.
pub(crate) fn write_range(
    f: &mut fmt::Formatter<'_>,
    least: Duration,
    most: Duration,
) -> fmt::Result {
    let (unit, micros) = unit(&[least, most]);
    write!(f, "{}-{}{unit}", least.as_micros() / micros, most.as_micros() / micros)
}

/// Returns the longest time unit (`s`, `ms` or `us`) in which all `spans` are whole numbers, and
/// the number of microseconds in that unit.
fn unit(spans: &[Duration]) -> (&'static str, u128) {
    let whole = |micros| spans.iter().all(|span| span.as_micros() % micros == 0);
    let units = [("s", 1_000_000), ("ms", 1_000)];
    units.into_iter().find(|&(_, micros)| whole(micros)).unwrap_or(("us", 1))
}

/// State that determines when the present run (a group of consecutive units on one path) ends: the
/// number of packets that may still follow in the run, and the time of its end.
///
/// A run of fixed duration T ends at a point of a grid: at the start of the first run + T, + 2 T,
/// and so on. So a late packet does not shift the ends of all later runs. If several grid points
/// pass while nothing is sent, the scheduler is called only once.
#[derive(Debug)]
pub struct Boundary {
    every: Every,
    stream: Stream,
    packets_left: u64,
    ends: Time,
    origin: Option<Time>,
}

impl Boundary {
    /// Returns the state before the first run (group of units on one path), which
    /// [`Boundary::begin`] begins. `every` is the length of runs. Random lengths are drawn from
    /// `stream`.
    pub fn new(every: Every, stream: Stream) -> Boundary {
        Boundary { every, stream, packets_left: 0, ends: Time::ZERO, origin: None }
    }

    /// Returns whether the present run (group of units on one path) is over at `now`.
    pub fn over(&self, now: Time) -> bool {
        self.packets_left == 0 || now >= self.ends
    }

    /// Begins a run (a group of units on one path) at `now`.
    #[inline]
    pub fn begin(&mut self, now: Time) {
        let origin = *self.origin.get_or_insert(now);
        self.packets_left = u64::MAX;
        self.ends = Time::MAX;
        match self.every {
            Every::Never => {}
            Every::Packets { mean, random: false } => self.packets_left = mean,
            Every::Packets { mean, random: true } => {
                self.packets_left = geometric(mean, &mut self.stream)
            }
            Every::Time { mean, random: false } => self.ends = next_on_grid(origin, now, mean),
            Every::Time { mean, random: true } => {
                let factor: f64 = Exp1.sample(&mut self.stream);
                self.ends = now + growth::times(mean, factor);
            }
            Every::PacketRange { least, most } => {
                self.packets_left = self.stream.random_range(least..=most)
            }
            Every::TimeRange { least, most } => {
                self.ends = now + self.stream.random_range(least..=most)
            }
            Every::Growing { least, most } => {
                self.ends = now + growth::length(least, most, now.since(origin), &mut self.stream)
            }
        }
    }

    /// Begins a run (a group of units on one path) at `now`. Later runs of fixed duration end at
    /// multiples of this duration after `now`.
    pub fn restart(&mut self, now: Time) {
        self.origin = None;
        self.begin(now);
    }

    /// Records the end of a pause in the traffic. With [`Every::Growing`], this ends the present
    /// run (group of units on one path), and the next runs are short again. Other kinds of run
    /// continue.
    pub fn after_silence(&mut self) {
        if matches!(self.every, Every::Growing { .. }) {
            self.origin = None;
            self.packets_left = 0;
        }
    }

    /// Counts `units` units (such as packets) as sent in the present run, which reduces the number
    /// that may still follow in this run.
    pub fn spend(&mut self, units: u64) {
        self.packets_left = self.packets_left.saturating_sub(units);
    }

    /// Returns the number of further units (such as packets) that the present run may have; close
    /// to [`u64::MAX`] if no number of units ends the run, and 0 before the first run.
    pub fn packets_left(&self) -> u64 {
        self.packets_left
    }

    /// Returns the time at which the present run (group of units on one path) ends: [`Time::MAX`]
    /// if no time ends it, and [`Time::ZERO`] before the first run.
    pub fn ends(&self) -> Time {
        self.ends
    }
}

/// Returns the first time after `now` on the grid `origin` + `step`, `origin` + 2 `step`, ….
fn next_on_grid(origin: Time, now: Time, step: Duration) -> Time {
    let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
    let elapsed = now.nanos().saturating_sub(origin.nanos());
    origin + Duration::from_nanos((elapsed / step).saturating_add(1).saturating_mul(step))
}

/// Draws a geometric random number of packets, at least 1, with the given mean.
fn geometric(mean: u64, stream: &mut Stream) -> u64 {
    let failures =
        Geometric::new(1.0 / mean as f64).expect("1/mean lies in (0, 1] because mean >= 1");
    failures.sample(stream).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::stream;

    #[test]
    fn what_is_written_reads_back() {
        for text in [
            "50p",
            "~50p",
            "100ms",
            "~100ms",
            "2s",
            "250us",
            "never",
            "50-70p",
            "1-2s",
            "80-1200ms",
            "grow:10-100ms",
            "grow:500-1500us",
        ] {
            assert_eq!(text.parse::<Every>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn empty_and_malformed_intervals_are_told_apart() {
        for text in ["0p", "0ms", "~0p", "0-70p", "grow:0-9ms"] {
            assert_eq!(text.parse::<Every>(), Err(EveryError::Zero(text.into())));
        }
        for text in ["70-50p", "2-1ms", "grow:9-8ms"] {
            assert_eq!(text.parse::<Every>(), Err(EveryError::Backwards(text.into())));
        }
        for text in ["100000h", "90000s", "1-25h", "~99999999999s"] {
            assert_eq!(text.parse::<Every>(), Err(EveryError::TooLong(text.into())));
        }
        assert_eq!("5m".parse::<Every>(), "300s".parse());
        for text in [
            "",
            "p",
            "50",
            "50x",
            "-1p",
            "~",
            "1.5ms",
            "99999999999999999999p",
            "1u-5s",
            "~5-7p",
            "5-7",
            "5p-7p",
            "5-",
            "5-7-9p",
            "grow:",
            "grow:10ms",
            "grow:5-7p",
            "grow:~5-7ms",
            "grow:never",
            "~grow:5-7ms",
        ] {
            assert_eq!(text.parse::<Every>(), Err(EveryError::Form(text.into())), "{text}");
        }
    }

    #[test]
    fn a_fixed_time_run_ends_on_its_grid_even_if_it_began_late() {
        let mut boundary = Boundary::new("100ms".parse().unwrap(), stream(1, 0, "boundary"));
        boundary.begin(Time::from_millis(7));
        assert!(boundary.over(Time::from_millis(137)));
        boundary.begin(Time::from_millis(137));
        assert!(!boundary.over(Time::from_millis(206)));
        assert!(boundary.over(Time::from_millis(207)));
    }

    #[test]
    fn random_packet_runs_have_the_mean_that_was_asked() {
        let mut boundary = Boundary::new("~50p".parse().unwrap(), stream(1, 0, "boundary"));
        let runs = 20_000;
        let total: u64 = (0..runs).map(|_| length_of_a_packet_run(&mut boundary)).sum();
        let mean = total as f64 / f64::from(runs);
        assert!((mean - 50.0).abs() < 1.5, "mean {mean}, standard error 0.35");
    }

    fn length_of_a_packet_run(boundary: &mut Boundary) -> u64 {
        boundary.begin(Time::ZERO);
        boundary.packets_left()
    }

    #[test]
    fn a_run_of_any_length_that_can_be_written_begins() {
        for length in ["~24h", "~18446744073709551615p", "24h"] {
            let mut boundary = Boundary::new(length.parse().unwrap(), stream(1, 0, "boundary"));
            (0..50).for_each(|second| boundary.begin(Time::from_secs(second)));
            assert!(!boundary.over(Time::from_secs(60)), "{length}");
        }
    }

    #[test]
    fn random_time_runs_have_the_mean_that_was_asked() {
        let mut boundary = Boundary::new("~100ms".parse().unwrap(), stream(1, 0, "boundary"));
        let mut now = Time::ZERO;
        for _ in 0..20_000 {
            boundary.begin(now);
            now = boundary.ends;
        }
        let mean = now.secs_f64() / 20_000.0;
        assert!((mean - 0.1).abs() < 0.003, "mean {mean}, standard error 0.0007");
    }

    #[test]
    fn growing_runs_begin_short_again_after_a_silence_and_no_others_do() {
        let begun = |every: &str, silence: bool| {
            let mut boundary = Boundary::new(every.parse().unwrap(), stream(1, 0, "boundary"));
            boundary.begin(Time::ZERO);
            let later = Time::from_secs(5);
            if silence {
                boundary.after_silence();
            }
            let over = boundary.over(Time::from_millis(1));
            boundary.begin(later);
            (over, boundary.ends().since(later))
        };
        let (short, long) = (Duration::from_millis(15), Duration::from_millis(50));
        assert!(matches!(begun("grow:10-100ms", true), (true, length) if length <= short));
        assert!(matches!(begun("grow:10-100ms", false), (false, length) if length >= long));
        for other in ["never", "50p", "~50p", "100ms", "~100ms", "50-70p", "80-120ms"] {
            assert_eq!(begun(other, true), begun(other, false), "{other}");
            assert!(!begun(other, true).0, "{other}");
        }
    }

    #[test]
    fn a_range_of_packets_gives_each_length_its_equal_share() {
        let mut boundary = Boundary::new("50-70p".parse().unwrap(), stream(1, 0, "boundary"));
        let mut counts = [0u32; 71];
        for _ in 0..21_000 {
            counts[length_of_a_packet_run(&mut boundary) as usize] += 1;
        }
        assert_eq!(counts[..50].iter().sum::<u32>(), 0);
        let far = counts[50..].iter().find(|&&count| count.abs_diff(1_000) > 155);
        assert_eq!(far, None, "five standard deviations of a binomial: {counts:?}");
    }

    #[test]
    fn a_range_of_times_stays_in_it_and_reaches_both_ends() {
        let mut boundary = Boundary::new("80-120ms".parse().unwrap(), stream(1, 0, "boundary"));
        let mut length = || {
            boundary.begin(Time::from_secs(1));
            boundary.ends().since(Time::from_secs(1)).as_secs_f64()
        };
        let lengths: Vec<f64> = (0..10_000).map(|_| length()).collect();
        let least = lengths.iter().copied().fold(f64::MAX, f64::min);
        let most = lengths.iter().copied().fold(0.0, f64::max);
        assert!(
            (0.08..0.0802).contains(&least) && (0.1198..=0.12).contains(&most),
            "{least} {most}"
        );
    }
}
