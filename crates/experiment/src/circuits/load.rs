//! Clients that create load in the network during a measurement.

use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_emulator::Namespace;
use anabranch_multipath::seed;
use rand::RngExt;

use super::super::onions::fetch::Fetch;
use super::plan::{Pace, WEB};

/// Interval at which an idle client that creates load checks whether the measurement has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Counts of the fetches so far by all clients that create load.
#[derive(Default)]
pub(super) struct LoadCounters {
    pub(super) fetches: AtomicU64,
    pub(super) failures: AtomicU64,
}

/// A client that creates load in the network: its host, its proxy, its number, and the seed of the
/// times of its fetches.
pub(super) struct Loader<'a> {
    pub(super) host: &'a Namespace,
    pub(super) proxy: SocketAddr,
    pub(super) number: u8,
    pub(super) seed: u64,
    /// Rule for the times at which this client fetches.
    pub(super) pace: Pace,
}

impl Pace {
    /// Draws the random time from the end of a fetch to the start of the next one. `fetched` is
    /// the duration of the fetch that has ended.
    fn next(self, dice: &mut impl RngExt, fetched: Duration) -> Duration {
        let (Pace::Pause(mean) | Pace::Period(mean)) = self;
        let drawn = Duration::from_secs_f64(-mean * (1.0 - dice.random::<f64>()).ln());
        match self {
            Pace::Pause(_) => drawn,
            Pace::Period(_) => drawn.saturating_sub(fetched),
        }
    }
}

impl Loader<'_> {
    /// Fetches web pages from the `servers` one after another, at times according to `pace`, until
    /// `stop` is set.
    pub(super) fn run(&self, servers: &[SocketAddrV4], done: &LoadCounters, stop: &AtomicBool) {
        let mut dice = seed::stream(self.seed, self.number.into(), "pauses");
        let mut turn = usize::from(self.number);
        let mut fetched = Duration::ZERO;
        let looped = self.host.run(|| {
            while !stop.load(Ordering::Relaxed) {
                sleep(self.pace.next(&mut dice, fetched), stop);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let server = servers[turn % servers.len()];
                turn += 1;
                let began = Instant::now();
                let count = match Fetch::new(self.proxy, server, WEB).run() {
                    Ok(_) => &done.fetches,
                    Err(_) => &done.failures,
                };
                fetched = began.elapsed();
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        if looped.is_err() {
            done.failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn sleep(time: Duration, stop: &AtomicBool) {
    let until = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) && Instant::now() < until {
        thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_counts_the_fetch_and_a_pause_does_not() {
        let mean = |pace: Pace, fetched: f64| {
            let mut dice = seed::stream(1, 0, "times");
            let fetched = Duration::from_secs_f64(fetched);
            let times = (0..4000).map(|_| pace.next(&mut dice, fetched).as_secs_f64());
            times.sum::<f64>() / 4000.0
        };
        assert!((mean(Pace::Pause(6.0), 2.0) - 6.0).abs() < 0.4);
        // Of exponential times with a mean of 6 s, the part above 2 s has a mean of 6 exp(-1/3) s.
        assert!((mean(Pace::Period(6.0), 2.0) - 4.3).abs() < 0.4);
        assert!(mean(Pace::Period(6.0), 1e3) == 0.0);
    }
}
