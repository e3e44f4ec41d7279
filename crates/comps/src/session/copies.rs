//! Copies of live datagrams: the only thing that the splitter ever adds.
//!
//! We cannot make a packet of the session's own (we have no keys), so a path that is down is tried with a copy of one that
//! passes, and a path that lies idle is kept open at NATs by a copy of a keep-alive that the session sends anyway.

use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use super::pins::Lane;
use super::{Common, Session};
use crate::Batch;
use crate::waiting::Kept;

/// A client that was quiet for so long and speaks now sends a keep-alive, or something that serves as one.
const QUIET: Duration = Duration::from_secs(2);
/// A path idle for so long gets a copy of it: NATs forget UDP after 30 s (RFC 4787 asks for 120 s, many give 30).
const IDLE: Duration = Duration::from_secs(15);
/// How long the original of a copy is held at the second try; doubled at each further one.
const FIRST_LAG: Duration = Duration::from_millis(5);
/// The longest that it is held.
const LONGEST_LAG: Duration = Duration::from_millis(80);

/// A datagram held back so that its copy arrives first.
#[derive(Debug)]
pub(super) struct Held {
    due: Time,
    kept: Kept,
}

impl Held {
    pub(super) fn due(&self) -> Time {
        self.due
    }
}

impl Session {
    /// Sends copies of the first datagram of a batch where they are due. Returns how many datagrams of the batch (0 or 1)
    /// are held back for it.
    ///
    /// A server that filters replays answers the copy only if it comes before the original. So from the second try on the
    /// original is held, longer each time: a path slower than the others gets its chance too.
    pub(super) fn send_copies(
        &mut self,
        now: Time,
        quiet: Duration,
        batch: &Batch<'_>,
        common: &mut Common<'_>,
    ) -> u64 {
        let is_due = |session: &Session, index: usize| session.copy_due(now, quiet, index);
        if !(0..self.health.len()).any(|index| is_due(self, index)) {
            return 0;
        }
        let lane = self.lane(now, batch.datagram(0), common);
        let mut lag = Duration::ZERO;
        for index in 0..self.health.len() {
            let path = PathId::at(index);
            if !is_due(self, index) || !self.takes_copy(path, lane, common) {
                continue;
            }
            lag = lag.max(self.health[index].due_try(now).map_or(Duration::ZERO, lag_of));
            self.push(self.tuples.current(path), path, batch, 0, 1, common);
            common.counters[index].copies += 1;
            self.health[index].on_copy(now);
        }
        if lag.is_zero() || self.held.is_some() {
            return 0;
        }
        let kept = Kept { since: now, bytes: batch.datagram(0).into(), ecn: batch.ecn };
        self.held = Some(Held { due: now + lag, kept });
        1
    }

    /// Sends a held datagram whose time has come.
    pub(super) fn release_held(&mut self, now: Time, common: &mut Common<'_>) {
        let Some(held) = self.held.take_if(|held| now >= held.due) else { return };
        let outer = std::mem::replace(&mut common.kept, true);
        self.route(now, &Batch::single(&held.kept.bytes, held.kept.ecn), 0, common);
        common.kept = outer;
    }

    fn copy_due(&self, now: Time, quiet: Duration, index: usize) -> bool {
        let health = &self.health[index];
        let idle = || health.sent().is_some_and(|sent| now.since(sent) >= IDLE);
        health.due_try(now).is_some() || (quiet >= QUIET && !health.is_down() && idle())
    }

    /// A copy leaves only where its original might: handshakes not by the schedule's paths, nothing else by the
    /// handshake path, and nothing by a path that this machine knows to be broken.
    fn takes_copy(&self, path: PathId, lane: Lane, common: &Common<'_>) -> bool {
        let belongs = match (lane, common.handshake()) {
            (Lane::Free, _) => common.is_scheduled(path),
            (Lane::Pinned, Some(handshake)) => path == handshake,
            (Lane::Pinned, None) => self.health[path.index()].is_down() && self.pinned_to.is_none(),
        };
        belongs && common.broken[path.index()].is_none() && self.tuples.allows(path)
    }
}

/// How long an original is held after so many tries.
fn lag_of(tries: u32) -> Duration {
    match tries {
        0 => Duration::ZERO,
        _ => (FIRST_LAG * (1 << (tries - 1).min(8))).min(LONGEST_LAG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_grows_from_nothing_to_its_bound() {
        let lags: Vec<_> = (0..7).map(|tries| lag_of(tries).as_millis()).collect();
        assert_eq!(lags, [0, 5, 10, 20, 40, 80, 80]);
        assert_eq!(lag_of(u32::MAX), LONGEST_LAG);
    }
}
