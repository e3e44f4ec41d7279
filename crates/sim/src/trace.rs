//! The hash of all events of a simulation.

use anabranch_multipath::Time;

use crate::queue::HostId;

/// A hash of the events of a simulation: their times, kinds, hosts and lengths, but no payload.
/// Simulations with and without encryption of cells can therefore have the same hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash {
    hash: u64,
    events: u64,
}

/// Kind of an event of a simulation. [`TraceHash`] is a hash over all events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A packet arrived at its destination host.
    Arrival = 1,
    /// A packet was dropped because a queue was full.
    QueueFull = 2,
    /// A packet was lost at random.
    Lost = 3,
    /// A timer of a host expired.
    Timer = 4,
}

impl Default for TraceHash {
    fn default() -> TraceHash {
        // This number is FNV's offset basis.
        TraceHash { hash: 0xcbf2_9ce4_8422_2325, events: 0 }
    }
}

impl TraceHash {
    /// Adds an event to the hash: its time, kind and host, and two further values of the event
    /// (`facts`), for example a packet's length.
    pub fn note(&mut self, time: Time, kind: Kind, host: HostId, facts: [u64; 2]) {
        let [first, second] = facts;
        for word in [time.nanos(), u64::from(host.0) << 8 | kind as u64, first, second] {
            // The multiplier is that of MMIX. The shift feeds high bits back into low ones.
            self.hash = (self.hash ^ word).wrapping_mul(0x5851_f42d_4c95_7f2d);
            self.hash ^= self.hash >> 32;
        }
        self.events += 1;
    }

    /// Returns the hash.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the number of events in the hash.
    pub fn events(&self) -> u64 {
        self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(events: &[(u64, Kind, u32, [u64; 2])]) -> u64 {
        let mut trace = TraceHash::default();
        for &(time, kind, host, facts) in events {
            trace.note(Time::from_nanos(time), kind, HostId(host), facts);
        }
        trace.hash()
    }

    #[test]
    fn each_fact_and_the_order_of_events_change_the_hash() {
        let (first, second) = ((1, Kind::Arrival, 3, [4, 5]), (2, Kind::Timer, 3, [0, 0]));
        let base = hash(&[first, second]);
        assert_eq!(base, hash(&[first, second]));
        let others = [
            hash(&[second, first]),
            hash(&[first]),
            hash(&[(9, Kind::Arrival, 3, [4, 5]), second]),
            hash(&[(1, Kind::Lost, 3, [4, 5]), second]),
            hash(&[(1, Kind::Arrival, 9, [4, 5]), second]),
            hash(&[(1, Kind::Arrival, 3, [9, 5]), second]),
            hash(&[(1, Kind::Arrival, 3, [4, 9]), second]),
        ];
        assert!(others.iter().all(|other| *other != base), "{others:x?}");
    }
}
