//! Copies of live datagrams. The splitter adds no other packets to a session.
//!
//! Without the session's keys the splitter cannot make packets of its own. To test a path that is
//! down, it sends a copy of a live datagram. To preserve the NAT mappings of an idle path, it
//! sends a copy of a keep-alive that the client sends anyway.

use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use super::pins::PathRule;
use super::send::Run;
use super::{Common, Session};
use crate::Batch;

/// Silence of a client after which its next datagram counts as a keep-alive.
const QUIET: Duration = Duration::from_secs(2);
/// Idle time of a path after which it carries a copy of a keep-alive. Many NATs drop UDP mappings
/// after 30 s, although RFC 4787 requires 120 s.
const IDLE: Duration = Duration::from_secs(15);
/// Additional time for which the session's traffic is held in the second round of copies on a path
/// that is down, so that a copy overtakes the traffic. The first round holds traffic only for the
/// difference between the one-way delays of this path and the fastest path. Each further round
/// doubles the additional time.
const FIRST_LAG: Duration = Duration::from_millis(5);
/// Maximum time for which one round of attempts (copies of datagrams) holds the session's traffic.
const LONGEST_LAG: Duration = Duration::from_millis(100);
/// Minimum ratio of the pause between two rounds of copies on a path that is down to the time for
/// which a round holds the session's traffic. So the tests of one path hold traffic for at most 4
/// % of the time.
const RARITY: u32 = 25;
/// Maximum bytes of held datagrams. If more arrive, all are released early.
const HELD_BYTES: usize = 512 * 1024;

/// A session's traffic that is held for a short time, so that a copy of its first datagram arrives
/// first. The copy tests a path that is down.
#[derive(Debug)]
pub(super) struct HeldTraffic {
    due: Time,
    bytes: usize,
    /// Each datagram with its ECN bits.
    datagrams: Vec<(Box<[u8]>, u8)>,
}

impl HeldTraffic {
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// Appends the datagrams of a batch. If more than [`HELD_BYTES`] are then held, the hold ends.
    fn add(&mut self, now: Time, batch: &Batch<'_>) {
        self.bytes += batch.bytes.len();
        if self.bytes > HELD_BYTES {
            self.due = now;
        }
        let each = (0..batch.count()).map(|index| (batch.datagram(index).into(), batch.ecn));
        self.datagrams.extend(each);
    }
}

impl Session {
    /// Sends a copy of a batch's first datagram on each path that is down and is due to be tested.
    ///
    /// A server follows its client to the source address of the newest packet, and drops replays.
    /// So it answers the copy only if the copy arrives before the original and all later
    /// datagrams. Therefore, at the first copy of a round, the session's traffic is held for the
    /// difference between the one-way delays of this path and the fastest path. Each further round
    /// holds it longer, so that the copy arrives first even if the path has become slower.
    pub(super) fn try_down_paths(&mut self, now: Time, batch: &Batch<'_>, common: &mut Common) {
        if self.queues.held.is_some()
            || !self.paths.health.iter().any(|health| health.due_try(now).is_some())
        {
            return;
        }
        let rule = self.path_rule(now, batch.datagram(0), common);
        let mut lag = Duration::ZERO;
        for index in 0..self.paths.len() {
            let path = PathId::at(index);
            let Some((tries, opens_round)) = self.paths.health[index].due_try(now) else {
                continue;
            };
            if self.takes_copy(path, rule, common) {
                let its_lag = self.lag(index, tries);
                // One hold per round suffices: later datagrams of the round are sent at once,
                // copied or not.
                lag = lag.max(if opens_round { its_lag } else { Duration::ZERO });
                self.copy(now, path, its_lag * RARITY, batch, common);
            }
        }
        if !lag.is_zero() {
            self.queues.held =
                Some(HeldTraffic { due: now + lag, bytes: 0, datagrams: Vec::new() });
        }
    }

    /// Holds a batch if a copy of an earlier datagram, which tests a path, is in flight and must
    /// arrive first. Returns whether the batch is held.
    pub(super) fn hold_back(&mut self, now: Time, batch: &Batch<'_>) -> bool {
        let Some(held) = &mut self.queues.held else { return false };
        held.add(now, batch);
        true
    }

    /// Sends the datagrams that were held for a copy, once they have been held long enough.
    pub(super) fn release_held(&mut self, now: Time, common: &mut Common) {
        let Some(held) = self.queues.held.take_if(|held| now >= held.due) else { return };
        let outer = common.queued_at.replace(now);
        for (datagram, ecn) in &held.datagrams {
            self.route(now, &Batch::single(datagram, *ecn), common);
        }
        common.queued_at = outer;
    }

    /// Sends copies of a keep-alive on the paths that have been idle for [`IDLE`]. A path that the
    /// session never used carries no copy, because no NAT has a mapping for it.
    pub(super) fn keep_paths_open(
        &mut self,
        now: Time,
        quiet: Duration,
        batch: &Batch<'_>,
        common: &mut Common,
    ) {
        if quiet < QUIET || common.config.far_end {
            return;
        }
        let rule = self.path_rule(now, batch.datagram(0), common);
        for index in 0..self.paths.len() {
            let (path, health) = (PathId::at(index), &self.paths.health[index]);
            let idle = health.sent().is_some_and(|sent| now.since(sent) >= IDLE);
            if idle && !health.is_down() && self.takes_copy(path, rule, common) {
                self.copy(now, path, Duration::ZERO, batch, common);
            }
        }
    }

    fn copy(
        &mut self,
        now: Time,
        path: PathId,
        pause: Duration,
        batch: &Batch<'_>,
        common: &mut Common,
    ) {
        self.push(self.paths.current(path), Run { batch, at: 0, count: 1 }, common);
        common.counters[path.index()].copies += 1;
        let asks = self.recognition.is_answered(batch.datagram(0));
        self.paths.health_of(path).on_copy(now, pause, asks);
    }

    /// Returns how long the session's traffic is held for a copy on path `index`, after `tries`
    /// completed rounds of copies on that path.
    fn lag(&self, index: usize, tries: u32) -> Duration {
        (self.paths.lag(index) + patience(tries)).min(LONGEST_LAG)
    }

    /// Returns whether `path` may carry a copy of a datagram: the path has no error that concerns
    /// all sessions, and the datagram itself could be sent on it. If the user named a handshake
    /// path, only that path may carry handshakes.
    fn takes_copy(&self, path: PathId, rule: PathRule, common: &Common) -> bool {
        let belongs = match (rule, common.handshake()) {
            (PathRule::Free, _) => common.is_scheduled(path),
            (PathRule::Pinned, Some(handshake)) => path == handshake,
            (PathRule::Pinned, None) => {
                self.paths.health[path.index()].is_down() && self.handshakes.pinned_to().is_none()
            }
        };
        belongs && common.broken[path.index()].is_none() && self.paths.tuples.allows(path)
    }
}

/// Returns the time for which traffic is held in addition to the difference between the one-way
/// delays of the path and the fastest path. It grows with `tries`, the number of completed rounds
/// of copies on the path.
fn patience(tries: u32) -> Duration {
    match tries {
        0 => Duration::ZERO,
        _ => (FIRST_LAG * (1 << (tries - 1).min(8))).min(LONGEST_LAG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_from_nothing_to_its_bound() {
        let lags: Vec<_> = (0..7).map(|tries| patience(tries).as_millis()).collect();
        assert_eq!(lags, [0, 5, 10, 20, 40, 80, 100]);
        assert_eq!(patience(u32::MAX), LONGEST_LAG);
    }
}
