//! A download at a fixed rate (stream), and the traffic on the client's access line meanwhile.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::super::onions::fetch::{Fetch, FetchTimes};
use super::measured::Stream;
use super::test_network::TestNetwork;

/// Interval between checks of whether the stream's first byte has arrived.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum duration of a stream, as a multiple of its nominal duration.
const SLACK: u32 = 3;

/// Parameters of a stream.
#[derive(Clone, Copy)]
pub(super) struct Pace<'a> {
    /// Parameters for fetching the stream. The length, rate and timeout in them are ignored: the
    /// fields `rate` and `seconds` determine these values.
    pub(super) fetch: Fetch<'a>,
    /// Round-trip time of the client's access line, in ms.
    pub(super) rtt: u32,
    /// Rate of the stream in kB/s.
    pub(super) rate: u32,
    pub(super) seconds: u32,
}

/// Fetches one stream (a download at a fixed rate). Returns the measured stream, and the reason
/// why it did not complete; the reason is empty if the stream completed.
pub(super) fn carry(
    test_network: &TestNetwork,
    pace: Pace<'_>,
    stop: &AtomicBool,
) -> io::Result<(Stream, String)> {
    let (rate, received) = (pace.rate * 1_000, AtomicU64::new(0));
    let patience = Duration::from_secs(u64::from(pace.seconds * SLACK));
    let length = (rate * pace.seconds) as usize;
    let fetch =
        Fetch { rate: Some(rate), length, received: Some(&received), patience, ..pace.fetch };
    thread::scope(|scope| {
        let fetching = scope.spawn(|| test_network.stage.client().run(|| Ok(fetch.run())));
        let begun = || received.load(Ordering::Relaxed) > 0;
        while !begun() && !fetching.is_finished() && !stop.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
        }
        let seconds = if stop.load(Ordering::Relaxed) { 0 } else { pace.seconds };
        let each = sampled(seconds, || {
            let [up, down] = test_network.traffic(pace.rtt);
            [received.load(Ordering::Relaxed), up, down]
        });
        let fetched = fetching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let times: Option<FetchTimes> = fetched.as_ref().ok().copied();
        let of = |at: usize| each.iter().map(|one| one[at]).collect();
        let stream = Stream {
            rate: pace.rate,
            first_byte: times.map(|times| times.first_byte),
            whole: times.map(|times| times.whole),
            received: of(0),
            up: of(1),
            down: of(2),
        };
        Ok((stream, fetched.err().map(|error| error.to_string()).unwrap_or_default()))
    })
}

/// Calls `counters` once a second for `seconds` seconds. Returns how much each of the three
/// counters grew in each second.
fn sampled(seconds: u32, mut counters: impl FnMut() -> [u64; 3]) -> Vec<[u64; 3]> {
    let (began, mut before) = (Instant::now(), counters());
    let second = |turn: u32| {
        thread::sleep((Duration::from_secs(1) * turn).saturating_sub(began.elapsed()));
        let now = counters();
        let grown = [0, 1, 2].map(|at| now[at].saturating_sub(before[at]));
        before = now;
        grown
    };
    (1..=seconds).map(second).collect()
}
