//! Does the downlink follow the uplink? A server that keeps answering on one path is to be
//! reported, not hidden.

use std::time::Duration;

use anabranch_multipath::{PathId, Time};

/// Downlink datagrams between two looks, at least.
const SAMPLE: u64 = 512;
/// Fewer do if all of them came by one path, and took so long.
const FEW: (u64, Duration) = (64, Duration::from_secs(10));
/// Time between two looks, at least.
const SPAN: Duration = Duration::from_secs(1);
/// Round trips between two looks, at least, so that answers on their way to the path before weigh
/// little.
const ROUND_TRIPS: u32 = 10;
/// A look is put off for at most so many times that.
const LONGEST: u32 = 10;

/// Counts both directions since the last verdict.
#[derive(Debug)]
pub(super) struct Share {
    since: Time,
    heard: u64,
    up: Box<[u64]>,
    down: Box<[u64]>,
    /// Where the uplink is.
    at: Option<PathId>,
    /// Bytes of the downlink that came by another path than the uplink was on.
    away: u64,
    reported: Option<PathId>,
}

impl Share {
    pub(super) fn new(now: Time, paths: usize) -> Share {
        let none = || vec![0; paths].into();
        Share { since: now, heard: 0, up: none(), down: none(), at: None, away: 0, reported: None }
    }

    pub(super) fn on_sent(&mut self, path: PathId, bytes: u64) {
        self.up[path.index()] += bytes;
        self.at = Some(path);
    }

    /// Counts what the server sent, as (datagrams, bytes). Names a path, with its share of the
    /// downlink's bytes in percent, if 95 % of them stay on it although at most 80 % of the
    /// uplink's went by any one path, and if a tenth came while the uplink was elsewhere: a
    /// download that begins and ends within one run says nothing. Each path is named once in a row.
    /// A slow session is judged by [`FEW`]. `rtt` is the longest round-trip time of the paths.
    pub(super) fn on_heard(
        &mut self,
        now: Time,
        path: PathId,
        (datagrams, bytes): (u64, u64),
        rtt: Option<Duration>,
    ) -> Option<(PathId, u8)> {
        self.heard += datagrams;
        self.down[path.index()] += bytes;
        self.away += if self.at == Some(path) { 0 } else { bytes };
        let span = rtt.map_or(SPAN, |rtt| SPAN.max(rtt * ROUND_TRIPS));
        let age = now.since(self.since);
        if age < span || self.heard < FEW.0 {
            return None;
        }
        let (favourite, percent) = largest(&self.down);
        if self.heard < SAMPLE && (age < FEW.1 || percent < 100) {
            return None;
        }
        let spread = largest(&self.up).1 <= 80;
        let away = self.away * 10 >= self.down.iter().sum();
        // An uplink that stays on one path is no ground for a verdict; but what it did long ago
        // says nothing of now.
        if spread || age >= span * LONGEST {
            self.begin(now);
        }
        if !spread || !away || percent < 95 || self.reported == Some(favourite) {
            return None;
        }
        self.reported = Some(favourite);
        Some((favourite, percent))
    }

    fn begin(&mut self, now: Time) {
        (self.since, self.heard, self.away) = (now, 0, 0);
        self.up.fill(0);
        self.down.fill(0);
    }
}

/// The place of the largest count, and its share in percent (100 of nothing).
fn largest(counts: &[u64]) -> (PathId, u8) {
    let sum: u64 = counts.iter().sum();
    let (index, &count) =
        counts.iter().enumerate().max_by_key(|(_, count)| **count).expect("a session has a path");
    let percent = (count * 100).checked_div(sum).unwrap_or(100);
    (PathId::at(index), percent as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The uplink is on each path once; half of what comes does so in either run.
    fn run_until(now: Time, up: [u64; 2], down: [u64; 2]) -> Option<(PathId, u8)> {
        let mut share = Share::new(Time::ZERO, 2);
        let mut named = None;
        for (path, &bytes) in up.iter().enumerate() {
            share.on_sent(PathId::at(path), bytes);
            for (by, &all) in down.iter().enumerate() {
                let part = all / 2 + all % 2 * path as u64;
                named = named.or(share.on_heard(now, PathId::at(by), (part, part), None));
            }
        }
        named
    }

    fn run(up: [u64; 2], down: [u64; 2]) -> Option<(PathId, u8)> {
        run_until(Time::ZERO + SPAN, up, down)
    }

    #[test]
    fn a_downlink_that_stays_while_the_uplink_moves_is_named() {
        assert_eq!(run([500, 500], [10, 990]), Some((PathId(1), 99)));
    }

    #[test]
    fn a_downlink_that_follows_is_not() {
        assert_eq!(run([500, 500], [300, 700]), None);
        assert_eq!(run([1000, 10], [990, 10]), None, "the uplink stays there too");
        assert_eq!(run([500, 500], [0, 100]), None, "too few to judge");
    }

    #[test]
    fn a_slow_session_is_judged_late_and_only_if_all_comes_by_one_path() {
        let judged = |seconds, down| run_until(Time::from_secs(seconds), [500, 500], down);
        assert_eq!(judged(10, [0, 64]), Some((PathId(1), 100)));
        assert_eq!(judged(9, [0, 64]), None);
        assert_eq!(judged(10, [0, 63]), None);
        assert_eq!(judged(10, [1, 300]), None);
    }

    #[test]
    fn a_download_within_one_run_is_no_server_that_stays() {
        let mut share = Share::new(Time::ZERO, 2);
        share.on_sent(PathId(0), 500);
        assert_eq!(share.on_heard(Time::ZERO, PathId(0), (10, 10), None), None);
        share.on_sent(PathId(1), 500);
        assert_eq!(share.on_heard(Time::ZERO + SPAN, PathId(1), (1000, 1000), None), None);
    }

    #[test]
    fn a_downlink_that_follows_by_a_round_trip_is_not_named_while_a_switch_is_under_way() {
        let mut share = Share::new(Time::ZERO, 2);
        share.on_sent(PathId(0), 750);
        share.on_sent(PathId(1), 250);
        assert_eq!(share.on_heard(Time::from_millis(125), PathId(0), (1000, 1000), None), None);
    }
}
