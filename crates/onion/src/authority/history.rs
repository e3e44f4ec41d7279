//! The reliability of a relay (dir-spec 3.4.2). Older observations weigh less than recent ones. In
//! this module, a run is a period of uninterrupted uptime.

/// Interval in seconds after which the weights of all past observations shrink by the factor
/// `FADING` (C tor's value).
const INTERVAL: u64 = 12 * 3600;
/// Factor that multiplies the weights of all past observations after each `INTERVAL` (C tor's
/// value).
const FADING: f64 = 0.95;

/// A record of the periods in which a relay was up (answered probes) and was down. Times are
/// seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Sum of the weighted lengths, in seconds, of all completed runs (periods of uninterrupted
    /// uptime).
    runs: f64,
    /// Sum of the weights of all completed runs (periods of uninterrupted uptime).
    run_weight: f64,
    /// Weighted number of seconds in which the relay was up.
    up: f64,
    /// Weighted number of seconds for which the relay was known to this authority.
    known: f64,
    /// The time of the last observation; `None` before the first. The sums `up` and `known` extend
    /// to this time.
    reckoned: Option<u64>,
    /// The time at which the relay last started to answer; `None` if it is down.
    up_since: Option<u64>,
    /// The time of the last application of `FADING` to the sums.
    faded: u64,
}

/// The fields of a history as they are stored, in the order of [`History::fields`].
pub type Fields = [f64; 7];

impl History {
    /// Records whether the relay answers at `now`.
    pub fn observe(&mut self, now: u64, answers: bool) {
        self.reckon(now);
        match (self.up_since, answers) {
            (None, true) => self.up_since = Some(now),
            (Some(since), false) => {
                self.runs += now.saturating_sub(since) as f64;
                self.run_weight += 1.0;
                self.up_since = None;
            }
            _ => {}
        }
    }

    /// Returns whether the relay answered at the last observation.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up_since.is_some()
    }

    /// Returns whether the relay has ever been up.
    #[must_use]
    pub fn was_up(&self) -> bool {
        self.is_up() || self.run_weight > 0.0
    }

    /// Returns the number of seconds for which the relay has been up without interruption; 0 if it
    /// is down.
    #[must_use]
    pub fn up_for(&self, now: u64) -> u64 {
        self.up_since.map_or(0, |since| now.saturating_sub(since))
    }

    /// Returns the mean time between failures in seconds, in which older runs (periods of
    /// uninterrupted uptime) weigh less. If the relay is up, its present uptime counts as a run
    /// that ends `now`.
    #[must_use]
    pub fn mtbf(&self, now: u64) -> f64 {
        let present = self.up_since.map_or(0.0, |since| now.saturating_sub(since) as f64);
        let weight = self.run_weight + f64::from(u8::from(self.up_since.is_some()));
        if weight < 1e-9 { 0.0 } else { (self.runs + present) / weight }
    }

    /// Returns the fraction of time in which the relay was up, and the number of seconds in which
    /// it was known. Older times weigh less in both.
    #[must_use]
    pub fn uptime(&self, now: u64) -> (f64, f64) {
        let mut until_now = self.clone();
        until_now.reckon(now);
        let known = until_now.known;
        (if known < 1.0 { 0.0 } else { until_now.up / known }, known)
    }

    /// Returns the fields for storage. A missing time is -1.
    #[must_use]
    pub fn fields(&self) -> Fields {
        let time = |time: Option<u64>| time.map_or(-1.0, |time| time as f64);
        let (reckoned, since) = (time(self.reckoned), time(self.up_since));
        [self.runs, self.run_weight, self.up, self.known, reckoned, since, self.faded as f64]
    }

    /// Restores a history from stored fields. Returns `None` if a value is invalid.
    #[must_use]
    pub fn from_fields(fields: Fields) -> Option<History> {
        let [runs, run_weight, up, known, reckoned, since, faded] = fields;
        let sound = fields.iter().all(|number| number.is_finite())
            && [runs, run_weight, up, known, faded].iter().all(|&number| number >= 0.0);
        let time = |number: f64| (number >= 0.0).then_some(number as u64);
        let (reckoned, up_since, faded) = (time(reckoned), time(since), faded as u64);
        sound.then_some(History { runs, run_weight, up, known, reckoned, up_since, faded })
    }

    /// Shifts all times by `by` seconds, because the machine's clock was changed by this amount.
    pub(super) fn shift(&mut self, by: i64) {
        let times = [&mut self.reckoned, &mut self.up_since].into_iter().flatten();
        let faded = (self.faded > 0).then_some(&mut self.faded);
        times.chain(faded).for_each(|time| *time = time.saturating_add_signed(by));
    }

    /// Adds the time since the last observation to `up` and `known`, and applies `FADING`. Adds
    /// nothing if the clock went back.
    fn reckon(&mut self, now: u64) {
        let since = self.reckoned.replace(now).unwrap_or(now);
        let passed = now.saturating_sub(since) as f64;
        self.known += passed;
        if self.up_since.is_some() {
            self.up += passed;
        }
        if self.faded == 0 || self.faded > now {
            self.faded = now;
        }
        let intervals = (now - self.faded) / INTERVAL;
        self.faded += intervals * INTERVAL;
        let factor = FADING.powi(i32::try_from(intervals).unwrap_or(i32::MAX));
        for counted in [&mut self.runs, &mut self.run_weight, &mut self.up, &mut self.known] {
            *counted *= factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const HOUR: u64 = 3600;

    #[test]
    fn a_relay_that_fails_each_day_has_a_day_between_failures() {
        let mut history = History::default();
        for day in 0..60 {
            history.observe(NOW + day * 24 * HOUR, true);
            history.observe(NOW + day * 24 * HOUR + 18 * HOUR, false);
        }
        let now = NOW + 60 * 24 * HOUR;
        assert!((history.mtbf(now) / 3600.0 - 18.0).abs() < 0.1, "{}", history.mtbf(now));
        let (uptime, known) = history.uptime(now);
        assert!((uptime - 0.75).abs() < 0.02, "{uptime}");
        assert!((5.0..12.0).contains(&(known / 86_400.0)), "what is long ago hardly counts");
        assert!(!history.is_up());
    }

    #[test]
    fn the_present_run_counts_and_a_clock_that_goes_back_does_not() {
        let mut history = History::default();
        history.observe(NOW, true);
        assert_eq!(history.up_for(NOW + 90), 90);
        assert!((history.mtbf(NOW + 90) - 90.0).abs() < 1.0);
        history.observe(NOW - 1_000, true);
        history.observe(NOW + 10, true);
        let (uptime, _) = history.uptime(NOW + 100);
        assert!((uptime - 1.0).abs() < 1e-9);
        assert_eq!(History::default().uptime(NOW), (0.0, 0.0));
    }

    #[test]
    fn a_clock_that_is_set_anew_makes_nobody_older_or_younger() {
        let mut history = History::default();
        history.observe(NOW, true);
        history.observe(NOW + HOUR, true);
        for by in [-86_400 * 400, 86_400 * 400] {
            let mut moved = history.clone();
            moved.shift(by);
            let now = (NOW + HOUR).saturating_add_signed(by);
            moved.observe(now, true);
            assert_eq!(moved.up_for(now), HOUR);
            assert_eq!(moved.uptime(now), history.uptime(NOW + HOUR));
        }
    }

    #[test]
    fn numbers_come_back_and_nonsense_does_not() {
        let mut history = History::default();
        history.observe(NOW, true);
        history.observe(NOW + HOUR, false);
        assert_eq!(History::from_fields(history.fields()), Some(history));
        assert_eq!(History::from_fields([f64::NAN; 7]), None);
        assert_eq!(History::from_fields([-5.0; 7]), None);
    }
}
