//! Load of the machine by other programs during a measurement. It shows which repetitions were
//! disturbed.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Requested duration of each sleep of the thread that measures how late it wakes up.
const NAP: Duration = Duration::from_millis(5);

/// Load of the machine by other programs during a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Share of CPU time that the hypervisor gave to other virtual machines (`steal` of proc(5)).
    pub steal: f64,
    /// Share of the time during which some task waited for a CPU (`some` of `/proc/pressure/cpu`).
    /// The tasks of the measured programs are included.
    pub pressure: f64,
    /// Number of processes that ran or waited to run, averaged over the last minute of the
    /// measurement.
    pub load: f64,
    /// Delay with which a thread wakes up after a sleep of 5 ms, in milliseconds: the 99th
    /// percentile.
    pub late: f64,
}

/// An observer of the machine's load by other programs during a measurement.
pub struct Probe {
    before: Counters,
    began: Instant,
    stop: Arc<AtomicBool>,
    sampler: Option<JoinHandle<Vec<f64>>>,
}

/// The machine's CPU times at one moment, as a start point for [`Cores::busy_since`].
#[derive(Clone, Copy)]
pub(crate) struct Cores {
    worked: f64,
    ticks: f64,
}

impl Cores {
    pub(crate) fn now() -> Cores {
        let stat = read("/proc/stat");
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<f64> = line.split_whitespace().skip(1).take(8).map(number).collect();
        // The fields in order are user, nice, system, idle, iowait, ... (proc(5)).
        let idle: f64 = ticks.iter().skip(3).take(2).sum();
        let all: f64 = ticks.iter().sum();
        Cores { worked: all - idle, ticks: all }
    }

    /// Returns the share of all processors' time that was in use since `self` was read.
    pub(crate) fn busy_since(self) -> f64 {
        let now = Cores::now();
        (now.worked - self.worked) / (now.ticks - self.ticks).max(1.0)
    }
}

/// Values of the kernel's counters of CPU use, in the kernel's own units.
#[derive(Clone, Copy, Default)]
struct Counters {
    stolen: f64,
    ticks: f64,
    waited: Duration,
}

impl Probe {
    /// Starts to observe the machine's load.
    pub fn start() -> Probe {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let sampler = thread::spawn(move || nap(&flag));
        Probe { before: Counters::now(), began: Instant::now(), stop, sampler: Some(sampler) }
    }

    /// Ends the observation, and returns the machine's load since the observation started.
    pub fn finish(mut self) -> Disturbance {
        let (after, lasted) = (Counters::now(), self.began.elapsed().as_secs_f64());
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let waited = after.waited.saturating_sub(self.before.waited).as_secs_f64();
        Disturbance {
            steal: share(after.stolen - self.before.stolen, after.ticks - self.before.ticks),
            pressure: share(waited, lasted).min(1.0),
            load: read("/proc/loadavg").split(' ').next().map_or(0.0, number),
            late: percentile(self.naps(), 0.99),
        }
    }

    fn naps(&mut self) -> Vec<f64> {
        self.stop.store(true, Ordering::Relaxed);
        self.sampler.take().and_then(|sampler| sampler.join().ok()).unwrap_or_default()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.naps();
    }
}

impl Counters {
    /// Reads the kernel's counters. Counters that this kernel lacks are zero.
    fn now() -> Counters {
        let stat = read("/proc/stat");
        let cpu: Vec<f64> = stat
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .map(number)
            .collect();
        let pressure = read("/proc/pressure/cpu");
        let total = pressure.split("total=").nth(1).and_then(|rest| rest.lines().next());
        Counters {
            stolen: cpu.get(7).copied().unwrap_or(0.0),
            // The fields `guest` and `guest_nice` are left out, because they are included in
            // `user` and `nice`.
            ticks: cpu.iter().take(8).sum(),
            waited: Duration::from_secs_f64(total.map_or(0.0, number) * 1e-6),
        }
    }
}

/// Sleeps repeatedly, at least once, until `stop` is set. Returns the excess duration of each
/// sleep in milliseconds.
fn nap(stop: &AtomicBool) -> Vec<f64> {
    let mut late = Vec::new();
    loop {
        let asleep = Instant::now();
        thread::sleep(NAP);
        late.push(asleep.elapsed().saturating_sub(NAP).as_secs_f64() * 1e3);
        if stop.load(Ordering::Relaxed) {
            return late;
        }
    }
}

/// Returns a quantile of `values`: the value at `rank`, which is from 0 to 1. Returns 0 if there
/// are no values.
fn percentile(mut values: Vec<f64>, rank: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * rank) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn number(text: &str) -> f64 {
    text.trim().parse().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_shares_and_sleeps_are_late() {
        let probe = Probe::start();
        thread::sleep(Duration::from_millis(100));
        let seen = probe.finish();
        for share in [seen.steal, seen.pressure] {
            assert!((0.0..=1.0).contains(&share), "{seen:?}");
        }
        assert!(seen.late > 0.0 && seen.load >= 0.0, "{seen:?}");
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        assert_eq!(percentile((0..100).map(f64::from).collect(), 0.99), 99.0);
        assert_eq!(percentile(vec![3.0], 0.99), 3.0);
        assert_eq!(percentile(Vec::new(), 0.99), 0.0);
    }
}
