//! Limits of data transfers, and the measurement of the data that arrive.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Duration or number of bytes after which a transfer ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Maximum duration in seconds.
    pub seconds: f64,
    /// Number of bytes after which a transfer ends, even before `seconds`; `None` if it lasts for
    /// the full time.
    pub bytes: Option<u64>,
}

/// Rate of the emulated links in bytes per second, which no transfer can exceed.
pub(super) const BYTES_PER_SECOND: f64 = 100e6 / 8.0;

impl Limit {
    /// Returns the approximate duration of a transfer with this limit.
    pub fn about(&self) -> Duration {
        let bytes = self.bytes.map(|bytes| 1.3 * bytes as f64 / BYTES_PER_SECOND);
        Duration::from_secs_f64(bytes.unwrap_or(self.seconds).min(self.seconds))
    }

    /// Returns the number of bytes that a server must send: the limit, or more than can arrive
    /// within `seconds`.
    pub(super) fn enough(&self) -> u64 {
        self.bytes.unwrap_or((self.seconds * BYTES_PER_SECOND * 1.1) as u64)
    }
}

/// Data of a transfer that arrived at the client.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Arrival {
    /// Bytes of content that arrived.
    pub(super) bytes: u64,
    /// Duration of the transfer in seconds.
    pub(super) seconds: f64,
    /// Longest interval in seconds between the arrival of two pieces of data. The interval from
    /// the last piece to the end of the transfer counts, too.
    pub(super) longest_gap: f64,
    /// Reason why the transfer was interrupted before its end; `None` if it was not.
    pub(super) error: Option<String>,
}

/// Meter for the arriving data of a transfer: it counts bytes and finds the longest pause.
#[derive(Debug)]
pub(super) struct Meter<'a> {
    limit: Limit,
    stop: &'a AtomicBool,
    begun: Instant,
    latest: Instant,
    arrived: Arrival,
}

impl<'a> Meter<'a> {
    /// Starts to measure a transfer with this limit. The transfer also ends when `stop` is set.
    pub(super) fn start(limit: Limit, stop: &'a AtomicBool) -> Meter<'a> {
        let begun = Instant::now();
        Meter { limit, stop, begun, latest: begun, arrived: Arrival::default() }
    }

    /// Records that a total of `bytes` bytes have arrived so far.
    pub(super) fn at(&mut self, bytes: u64) {
        if bytes > self.arrived.bytes {
            let now = Instant::now();
            self.gap(now);
            (self.latest, self.arrived.bytes) = (now, bytes);
        }
    }

    /// Returns whether the transfer is over: its time or its number of bytes is reached, or the
    /// experiment was stopped.
    pub(super) fn is_over(&self) -> bool {
        self.begun.elapsed().as_secs_f64() >= self.limit.seconds
            || self.limit.bytes.is_some_and(|bytes| self.arrived.bytes >= bytes)
            || self.stop.load(Ordering::Relaxed)
    }

    /// Ends the measurement, and returns the data that arrived. An interrupted transfer of fixed
    /// duration counts with the full duration of the limit, so that the interruption lowers the
    /// goodput.
    pub(super) fn finish(mut self, error: Option<String>) -> Arrival {
        let now = Instant::now();
        self.gap(now);
        let elapsed = now.duration_since(self.begun).as_secs_f64();
        let cut_short = error.is_some() && self.limit.bytes.is_none();
        self.arrived.seconds = if cut_short { elapsed.max(self.limit.seconds) } else { elapsed };
        self.arrived.error = error;
        self.arrived
    }

    /// Reads from the connection `from`, which has a short read timeout, until the transfer is
    /// over. Returns the measured values of the data that arrived.
    pub(super) fn drain(mut self, mut from: impl Read) -> Arrival {
        let mut buffer = vec![0; 1 << 17];
        let mut total = 0;
        let mut error = None;
        while !self.is_over() && error.is_none() {
            match from.read(&mut buffer) {
                Ok(0) => error = Some("the server closed the connection".to_owned()),
                Ok(read) => {
                    total += read as u64;
                    self.at(total);
                }
                Err(waiting) if is_waiting(&waiting) => {}
                Err(broken) => error = Some(broken.to_string()),
            }
        }
        self.finish(error)
    }

    fn gap(&mut self, now: Instant) {
        let gap = now.duration_since(self.latest).as_secs_f64();
        self.arrived.longest_gap = self.arrived.longest_gap.max(gap);
    }
}

fn is_waiting(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    static GO: AtomicBool = AtomicBool::new(false);

    /// A reader whose reads return the given sizes, from the last to the first. After that, it
    /// returns the error, or the end of the data if there is no error.
    struct Source(Vec<usize>, Option<io::ErrorKind>);

    impl Read for Source {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match (self.0.pop(), self.1) {
                (Some(size), _) => Ok(size.min(buffer.len())),
                (None, Some(kind)) => {
                    std::thread::sleep(Duration::from_millis(5));
                    Err(kind.into())
                }
                (None, None) => Ok(0),
            }
        }
    }

    #[test]
    fn a_transfer_that_stalls_counts_with_what_arrived() {
        let limit = Limit { seconds: 0.2, bytes: None };
        let source = Source(vec![1000, 500], Some(io::ErrorKind::WouldBlock));
        let arrived = Meter::start(limit, &GO).drain(source);
        assert_eq!((arrived.bytes, &arrived.error), (1500, &None));
        assert!(arrived.seconds >= 0.2 && arrived.longest_gap > 0.15, "{arrived:?}");
    }

    #[test]
    fn one_that_breaks_off_has_had_all_its_time() {
        let limit = Limit { seconds: 10.0, bytes: None };
        let arrived = Meter::start(limit, &GO).drain(Source(vec![1000], None));
        assert_eq!((arrived.bytes, arrived.seconds), (1000, 10.0));
        assert_eq!(arrived.error.as_deref(), Some("the server closed the connection"));
        let reset = Source(vec![7], Some(io::ErrorKind::ConnectionReset));
        assert!(Meter::start(limit, &GO).drain(reset).error.is_some());
    }

    #[test]
    fn one_that_has_all_its_bytes_is_over() {
        let limit = Limit { seconds: 10.0, bytes: Some(1500) };
        let arrived = Meter::start(limit, &GO).drain(Source(vec![9, 1000, 500], None));
        assert_eq!((arrived.bytes, &arrived.error), (1500, &None));
        assert!(arrived.seconds < 5.0);
    }

    #[test]
    fn limits_say_how_long_and_how_much() {
        let timed = Limit { seconds: 10.0, bytes: None };
        assert_eq!((timed.about(), timed.enough()), (Duration::from_secs(10), 137_500_000));
        let sized = Limit { seconds: 600.0, bytes: Some(1_000_000_000) };
        assert_eq!((sized.about(), sized.enough()), (Duration::from_secs(104), 1_000_000_000));
    }
}
