//! Clients that create background load in the network during a measurement.

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_emulator::Namespace;
use anabranch_multipath::seed;
use rand::RngExt;

use super::super::onions::fetch::{Fetch, FetchTimes};
use super::plan::Pace;

/// Interval at which an idle load client checks whether the measurement has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Counts of the fetches so far by all load clients (clients that only create load).
#[derive(Default)]
pub(super) struct LoadCounters {
    pub(super) fetches: AtomicU64,
    pub(super) failures: AtomicU64,
}

impl LoadCounters {
    /// Counts a fetch that has ended.
    pub(super) fn count(&self, is_complete: bool) {
        let counter = if is_complete { &self.fetches } else { &self.failures };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A load client (a client that only creates load in the network): its host, its proxy, its index,
/// and the seed of the times of its fetches.
pub(in super::super) struct Loader<'a> {
    pub(in super::super) host: &'a Namespace,
    pub(in super::super) proxy: SocketAddr,
    pub(in super::super) number: u8,
    pub(in super::super) seed: u64,
    /// Rule for the times at which this client fetches.
    pub(in super::super) pace: Pace,
    /// Number of bytes in each fetch.
    pub(in super::super) length: usize,
    /// Timeout of each fetch.
    pub(in super::super) patience: Duration,
}

/// A fetch that has ended: its start, its end, and its times or the reason why it failed.
pub(in super::super) struct Fetched {
    pub(in super::super) began: Instant,
    pub(in super::super) ended: Instant,
    pub(in super::super) times: io::Result<FetchTimes>,
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
    /// `stop` is set. Calls `on_fetch` after each fetch.
    ///
    /// # Errors
    /// No thread can be started on the client's host.
    pub(in super::super) fn run(
        &self,
        servers: &[SocketAddrV4],
        stop: &AtomicBool,
        mut on_fetch: impl FnMut(Fetched) + Send,
    ) -> io::Result<()> {
        let mut dice = seed::stream(self.seed, self.number.into(), "pauses");
        let mut turn = usize::from(self.number);
        let mut lasted = Duration::ZERO;
        self.host.run(|| {
            loop {
                sleep(self.pace.next(&mut dice, lasted), stop);
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let fetched = self.fetch(servers[turn % servers.len()]);
                turn += 1;
                lasted = fetched.ended - fetched.began;
                on_fetch(fetched);
            }
        })
    }

    fn fetch(&self, server: SocketAddrV4) -> Fetched {
        let fetch = Fetch::new(self.proxy, server, self.length);
        let began = Instant::now();
        let times = Fetch { patience: self.patience, ..fetch }.run();
        Fetched { began, ended: Instant::now(), times }
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
