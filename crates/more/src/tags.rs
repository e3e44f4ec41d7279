//! Replay protection with bounded memory.
//!
//! Each packet contains, for each hop, the last tick (period of 30 s) in which the packet is
//! valid. A relay stores the tag (hash) of each accepted packet until the end of this tick. Ticks
//! are long, so that the expiry hardly reveals when a packet was made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anabranch_multipath::Time;

/// Length of a tick, the time unit in which packets state their expiry.
pub const TICK: Duration = Duration::from_secs(30);
/// Number of ticks (30 s each) for which a packet, or a reply block, is valid after the tick of
/// its creation.
pub const LIFETIME: u64 = 4;
/// Tolerated difference of two nodes' clocks, in ticks of 30 s.
pub const SKEW: u64 = 1;

/// Returns the index of the tick (period of 30 s) that contains `now`.
#[must_use]
pub fn tick(now: Time) -> u64 {
    now.nanos() / TICK.as_nanos() as u64
}

/// Result of the check of a packet against the stored tags (hashes of accepted packets).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The packet's tag is new, and is now stored.
    Fresh,
    /// The packet has expired, or expires more than [`LIFETIME`] + [`SKEW`] ticks from now.
    Expired,
    /// The packet's tag is stored already, so that the packet is a replay.
    Replayed,
    /// There is no room for another tag (hash of an accepted packet).
    Full,
}

/// The tags (identifying hashes) of accepted packets, by the tick of the packets' expiry.
#[derive(Debug)]
pub(crate) struct Tags {
    by_expiry: BTreeMap<u64, BTreeSet<u64>>,
    count: usize,
    limit: usize,
}

impl Tags {
    /// Returns an empty store with room for `limit` tags.
    pub(crate) fn new(limit: usize) -> Tags {
        Tags { by_expiry: BTreeMap::new(), count: 0, limit }
    }

    /// Returns true if `tag` is stored.
    pub(crate) fn contains(&self, tag: u64) -> bool {
        self.by_expiry.values().any(|tags| tags.contains(&tag))
    }

    /// Checks a packet at the tick `now`. Stores its tag if the result is [`Verdict::Fresh`]. If
    /// there is no room for another tag, accepts no packet until some tags have expired.
    pub(crate) fn insert(&mut self, now: u64, expiry: u64, tag: u64) -> Verdict {
        self.expire(now);
        if expiry < now || expiry > now + LIFETIME + SKEW {
            return Verdict::Expired;
        }
        if self.contains(tag) {
            return Verdict::Replayed;
        }
        if self.count >= self.limit {
            return Verdict::Full;
        }
        self.by_expiry.entry(expiry).or_default().insert(tag);
        self.count += 1;
        Verdict::Fresh
    }

    /// Returns the number of stored tags.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Removes the tags of packets that expired before the tick `now`.
    pub(crate) fn expire(&mut self, now: u64) {
        while let Some(entry) = self.by_expiry.first_entry().filter(|entry| *entry.key() < now) {
            self.count -= entry.remove().len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_accepted_once_until_its_packet_expires() {
        let mut tags = Tags::new(10);
        assert_eq!(tags.insert(7, 9, 1), Verdict::Fresh);
        assert_eq!(tags.insert(7, 9, 1), Verdict::Replayed);
        assert_eq!(tags.insert(9, 10, 1), Verdict::Replayed, "under another expiry, too");
        assert_eq!(tags.insert(10, 9, 1), Verdict::Expired);
        assert_eq!(tags.len(), 0, "the tag has gone with its packet");
    }

    #[test]
    fn an_expiry_beyond_the_lifetime_is_refused() {
        let mut tags = Tags::new(10);
        let last = 7 + LIFETIME + SKEW;
        assert_eq!(tags.insert(7, last, 1), Verdict::Fresh);
        assert_eq!(tags.insert(7, last + 1, 2), Verdict::Expired);
        assert_eq!(tags.insert(7, u64::MAX, 3), Verdict::Expired);
        assert_eq!(tags.insert(7, 6, 4), Verdict::Expired);
    }

    #[test]
    fn a_full_set_refuses_new_packets_and_forgets_none() {
        let mut tags = Tags::new(2);
        assert_eq!(tags.insert(0, 0, 1), Verdict::Fresh);
        assert_eq!(tags.insert(0, 1, 2), Verdict::Fresh);
        assert_eq!(tags.insert(0, 1, 3), Verdict::Full);
        assert_eq!(tags.insert(0, 0, 1), Verdict::Replayed);
        assert_eq!(tags.insert(1, 1, 3), Verdict::Fresh, "the first has expired");
        assert_eq!(tags.insert(1, 1, 2), Verdict::Replayed);
    }
}
