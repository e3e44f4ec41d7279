//! Detection of our own datagrams that return to us, because a route, a NAT or another forwarder
//! leads our traffic into our listener.
//!
//! A loop is detected in two ways. If no other host is in the loop, the address of a new client is
//! the address of one of our sockets. If another host is in the loop, the first datagram of a new
//! session equals a datagram that was sent a moment ago for another session.
//!
//! Encrypted protocols never send the same datagram twice, but a test program may. So only a
//! *chain* of sessions counts as a loop. In a chain, each session after the first was opened by a
//! copy of a datagram of the previous session.

use std::time::Duration;

use anabranch_multipath::Time;

/// Maximum number of fingerprints (hashes of datagrams) stored.
const RING: usize = 256;
/// Age above which a fingerprint (hash of a datagram) is ignored.
const FRESH: Duration = Duration::from_secs(2);
/// Length of a chain of sessions from which it counts as a loop that returns our traffic to us. In
/// a chain, a copy of a datagram of each session has opened the next session.
pub(crate) const CHAIN: u8 = 8;
/// Length in bytes of the shortest datagram that is compared. Shorter datagrams of different
/// sessions are too often equal.
const SHORTEST: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Fingerprint {
    at: Time,
    hash: u64,
    chain: u8,
}

/// Fingerprints (hashes) of the datagrams sent last.
#[derive(Debug)]
pub(crate) struct Fingerprints {
    ring: Vec<Fingerprint>,
    next: usize,
}

impl Fingerprints {
    pub(crate) fn new() -> Fingerprints {
        Fingerprints { ring: Vec::with_capacity(RING), next: 0 }
    }

    /// Stores the hash of `datagram`, which is sent for the session at position `chain` of a
    /// chain. In a chain, a copy of a datagram of each session has opened the next session.
    pub(crate) fn remember(&mut self, now: Time, datagram: &[u8], chain: u8) {
        if datagram.len() < SHORTEST {
            return;
        }
        let fingerprint = Fingerprint { at: now, hash: hash(datagram), chain };
        if self.ring.len() < RING {
            self.ring.push(fingerprint);
        } else {
            self.ring[self.next] = fingerprint;
        }
        self.next = (self.next + 1) % RING;
    }

    /// Returns the position in a chain of the session that `datagram` opens. It is one more than
    /// the position of the session that sent the same datagram, and 0 if no session did so lately.
    pub(crate) fn chain(&self, now: Time, datagram: &[u8]) -> u8 {
        if datagram.len() < SHORTEST {
            return 0;
        }
        let wanted = hash(datagram);
        let fresh = |fingerprint: &&Fingerprint| {
            fingerprint.hash == wanted && now.since(fingerprint.at) < FRESH
        };
        self.ring
            .iter()
            .filter(fresh)
            .map(|fingerprint| fingerprint.chain.saturating_add(1))
            .max()
            .unwrap_or(0)
    }
}

/// Returns the FNV-1a hash of the datagram's length, head and tail. This distinguishes
/// ciphertexts, and is cheap on a large datagram.
fn hash(datagram: &[u8]) -> u64 {
    let (head, tail) = (&datagram[..SHORTEST], &datagram[datagram.len() - 16..]);
    let length = (datagram.len() as u64).to_le_bytes();
    let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    head.iter().chain(tail).chain(&length).fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_grows_with_each_return_and_is_forgotten_in_time() {
        let mut fingerprints = Fingerprints::new();
        let datagram = [7u8; 100];
        for depth in 0..CHAIN {
            assert_eq!(fingerprints.chain(Time::ZERO, &datagram), depth);
            fingerprints.remember(Time::ZERO, &datagram, depth);
        }
        assert_eq!(fingerprints.chain(Time::ZERO, &datagram), CHAIN);
        assert_eq!(fingerprints.chain(Time::ZERO + FRESH, &datagram), 0);
    }

    #[test]
    fn another_datagram_and_a_short_one_are_no_return() {
        let mut fingerprints = Fingerprints::new();
        fingerprints.remember(Time::ZERO, &[7; 100], 0);
        fingerprints.remember(Time::ZERO, &[7; 8], 0);
        assert_eq!(fingerprints.chain(Time::ZERO, &[7; 101]), 0);
        assert_eq!(fingerprints.chain(Time::ZERO, &[7; 8]), 0);
    }
}
