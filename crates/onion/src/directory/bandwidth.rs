//! A relay's bandwidth history: the bytes carried on each of the last days, and the maximum rate
//! over ten seconds (dir-spec, "bandwidth" and "write-history").

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::Time;

use super::civil::utc;

/// Length of a period of the history, in seconds (C tor's value).
pub const PERIOD_S: u64 = 86_400;
/// Number of complete periods in the history.
const PERIODS: usize = 5;
/// Time over which rates are measured. Shorter bursts do not count.
const SPAN: Duration = Duration::from_secs(10);
/// Maximum time between two calls of `note`. After a longer gap the machine has stalled, and the
/// measurement of the rate starts again.
const STALL: Duration = Duration::from_secs(60);
/// Granularity of published byte counts, in bytes. Counts are rounded down to a multiple of this
/// value.
const ROUNDED: u64 = 1024;

/// One value for each direction: first received, then sent.
pub type ByDirection = [u64; 2];

/// A relay's traffic in one period of the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    /// Total bytes received and sent in the period.
    pub transferred: ByDirection,
    /// Maximum rate in the period, in bytes per second, sustained for ten seconds.
    pub most: ByDirection,
}

/// The bandwidth history, and the state needed to continue it.
#[derive(Clone, Debug, Default)]
pub struct BandwidthHistory {
    /// The end of the present period, in seconds since 1970; 0 before the first call of `note`.
    ends: u64,
    present: Period,
    /// Past periods (days), oldest first.
    past: VecDeque<Period>,
    /// Byte counters of the last `SPAN`, each with its time, oldest first.
    span: VecDeque<(Time, ByDirection)>,
}

impl BandwidthHistory {
    /// Restores a history that was stored when the relay last stopped: the `present` period, which
    /// ends at `ends`, and the periods before it, oldest first.
    #[must_use]
    pub fn kept(ends: u64, present: Period, past: &[Period]) -> BandwidthHistory {
        let past = past[past.len().saturating_sub(PERIODS)..].iter().copied().collect();
        BandwidthHistory { ends, present, past, span: VecDeque::new() }
    }

    /// Returns the values to store; [`BandwidthHistory::kept`] restores the history from them.
    #[must_use]
    pub fn fields(&self) -> (u64, Period, Vec<Period>) {
        (self.ends, self.present, self.past.iter().copied().collect())
    }

    /// Records `total`, the bytes carried since the relay started. The caller must do this about
    /// once per second. `now` never goes back; `unix_now` may.
    pub fn note(&mut self, now: Time, unix_now: u64, total: ByDirection) {
        self.start_due_periods(unix_now);
        let Some(&(last, before)) = self.span.back() else {
            return self.span.push_back((now, total));
        };
        for way in 0..2 {
            self.present.transferred[way] += total[way].saturating_sub(before[way]);
        }
        if now.since(last) > STALL {
            self.span.clear();
        }
        self.span.push_back((now, total));
        self.measure();
    }

    /// Returns the observed bandwidth in bytes per second (dir-spec, "bandwidth"). It is the
    /// smaller of the maximum receive rate and the maximum send rate in the history, because data
    /// that was only received or only sent was not relayed.
    #[must_use]
    pub fn observed(&self) -> u64 {
        let most = |way: usize| self.periods().map(|period| period.most[way]).max().unwrap_or(0);
        most(0).min(most(1))
    }

    /// Returns the `write-history` and `read-history` lines for an extra-info document; empty
    /// before the first period has ended. The bytes of a period are limited to what `rate`, in
    /// bytes per second, allows.
    #[must_use]
    pub fn lines(&self, rate: u64) -> String {
        if self.past.is_empty() {
            return String::new();
        }
        let end = utc(self.ends - PERIOD_S);
        let rounded = |period: &Period, way: usize| {
            (period.transferred[way] / ROUNDED * ROUNDED).min(rate.saturating_mul(PERIOD_S))
        };
        let line = |name: &str, way: usize| {
            let values: Vec<String> =
                self.past.iter().map(|period| rounded(period, way).to_string()).collect();
            format!("{name}-history {end} ({PERIOD_S} s) {}\n", values.join(","))
        };
        line("write", 1) + &line("read", 0)
    }

    fn periods(&self) -> impl Iterator<Item = &Period> {
        self.past.iter().chain([&self.present])
    }

    /// Starts a new period for each period that has ended by `unix_now`.
    fn start_due_periods(&mut self, unix_now: u64) {
        if self.ends == 0 || self.ends > unix_now + PERIOD_S {
            // This is the first period. Or the clock was set back, and the present period starts
            // again.
            self.ends = unix_now + PERIOD_S;
        }
        for _ in 0..=PERIODS {
            if unix_now < self.ends {
                return;
            }
            self.past.push_back(std::mem::take(&mut self.present));
            self.ends += PERIOD_S;
            while self.past.len() > PERIODS {
                self.past.pop_front();
            }
        }
        if unix_now >= self.ends {
            // Nothing is known about the time of such a long gap.
            (self.past, self.ends) = (VecDeque::new(), unix_now + PERIOD_S);
        }
    }

    /// Updates the maximum of the present period with the rate of the last ten seconds.
    fn measure(&mut self) {
        let Some(&(now, total)) = self.span.back() else { return };
        while self.span.get(1).is_some_and(|(then, _)| now.since(*then) >= SPAN) {
            self.span.pop_front();
        }
        let Some(&(then, before)) = self.span.front() else { return };
        let nanos = now.since(then).as_nanos();
        if nanos < SPAN.as_nanos() {
            return;
        }
        for way in 0..2 {
            let bytes = u128::from(total[way].saturating_sub(before[way]));
            let rate = u64::try_from(bytes * 1_000_000_000 / nanos).unwrap_or(u64::MAX);
            self.present.most[way] = self.present.most[way].max(rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2027-01-15 08:00:00.
    const NOW: u64 = 1_800_000_000;

    /// A history, and the time and the byte counters that the test passes to it each second. The
    /// rates passed to `run` are in bytes per second: received, then sent.
    struct Meter {
        history: BandwidthHistory,
        second: u64,
        total: ByDirection,
    }

    impl Meter {
        fn new(history: BandwidthHistory) -> Meter {
            Meter { history, second: 0, total: [0; 2] }
        }

        fn run(&mut self, seconds: u64, rate: ByDirection) {
            for _ in 0..seconds {
                let now = Time::from_millis(self.second * 1000);
                self.history.note(now, NOW + self.second, self.total);
                self.second += 1;
                (0..2).for_each(|way| self.total[way] += rate[way]);
            }
        }
    }

    #[test]
    fn ten_busy_seconds_count_the_lesser_way() {
        let mut meter = Meter::new(BandwidthHistory::default());
        assert_eq!(meter.history.observed(), 0, "nothing is claimed");
        meter.run(10, [500, 300]);
        assert_eq!(meter.history.observed(), 0, "nine seconds");
        meter.run(2, [500, 300]);
        assert_eq!(meter.history.observed(), 300);
        meter.run(50, [9000, 0]);
        assert_eq!(meter.history.observed(), 300, "it stays the most");
        meter.run(20, [0, 4000]);
        assert_eq!(meter.history.observed(), 4000, "ways need not be busy at once");
    }

    #[test]
    fn five_days_are_remembered_and_told_in_kibibytes() {
        let mut meter = Meter::new(BandwidthHistory::default());
        meter.run(PERIOD_S, [10, 0]);
        assert_eq!(meter.history.lines(1 << 30), "", "the first day is not over");
        meter.run(1, [0, 0]);
        let line = |name: &str, day: u32, values: &str| {
            format!("{name}-history 2027-01-{day} 08:00:00 (86400 s) {values}\n")
        };
        let lines = meter.history.lines(1 << 30);
        assert_eq!(lines, line("write", 16, "0") + &line("read", 16, "863232"));
        assert!(meter.history.lines(9).contains(" 777600\n"), "no more than the rate");
        (0..6).for_each(|_| meter.run(PERIOD_S, [0, 20]));
        let lines = meter.history.lines(1 << 30);
        let days = ["1727488"; 5].join(",");
        assert_eq!(lines, line("write", 22, &days) + &line("read", 22, "0,0,0,0,0"));
        assert_eq!(meter.history.observed(), 0, "what came was more than five days ago");
    }

    #[test]
    fn a_restart_goes_on_where_the_history_ended() {
        let mut meter = Meter::new(BandwidthHistory::default());
        meter.run(PERIOD_S + 100, [5, 7]);
        let (ends, present, past) = meter.history.fields();
        let kept = BandwidthHistory::kept(ends, present, &past);
        assert_eq!((kept.observed(), kept.lines(99)), (5, meter.history.lines(99)));
        let mut again = Meter::new(kept);
        again.second = PERIOD_S + 200;
        again.run(PERIOD_S, [0; 2]);
        let (_, _, past) = again.history.fields();
        assert_eq!(past.iter().map(|one| one.transferred[1]).collect::<Vec<_>>(), [604_793, 700]);
        assert_eq!(again.history.observed(), 5);
    }

    #[test]
    fn a_clock_that_is_set_neither_hangs_nor_forgets_the_most() {
        let mut history = BandwidthHistory::default();
        (0..20).for_each(|n| history.note(Time::from_millis(n * 1000), NOW, [n * 8, n * 8]));
        history.note(Time::from_millis(20_000), NOW - 400 * PERIOD_S, [160, 160]);
        assert_eq!((history.observed(), history.fields().0), (8, NOW - 399 * PERIOD_S));
        history.note(Time::from_millis(21_000), u64::MAX / 2, [160, 160]);
        assert_eq!(
            (history.observed(), history.lines(1)),
            (7, String::new()),
            "of the last seconds"
        );
    }
}
