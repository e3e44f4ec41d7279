//! Mosh datagrams (State Synchronization Protocol): an 8-byte nonce in clear, then AES-128-OCB
//! ciphertext.
//!
//! The nonce is a direction bit (0 from the client) and a 63-bit sequence number that starts at 0.
//! The plaintext has at least two 16-bit timestamps, and a fragment's header (64-bit identifier
//! and 16-bit index). The authentication tag has 16 bytes.

use super::{Counter, Family, Mark, Protocol, Side, Verdict, be64};

/// Description of Mosh in the list of protocols, [`FAMILIES`](super::FAMILIES).
pub const FAMILY: Family = Family {
    protocol: Protocol::Mosh,
    name: "mosh",
    title: "Mosh",
    selectable: true,
    mark: |datagram| Mark::weak(is_from_client(datagram)),
    follow,
    one_path: None,
    counter: Counter::Always,
    guide: "mosh",
};

/// Length of the shortest datagram, in bytes: nonce, timestamps, fragment header and tag.
const SHORTEST: usize = 8 + 4 + 10 + 16;
/// Maximum length of a datagram, in bytes. Mosh sends less, because it assumes an MTU of 1,280
/// bytes.
const LONGEST: usize = 1400;

/// Returns whether `datagram` may come from a Mosh client: its sequence number is below 2^24 and
/// its length is possible.
///
/// Mosh has no other fixed field, so a datagram is compared with the other protocols first.
pub fn is_from_client(datagram: &[u8]) -> bool {
    let length = datagram.len();
    (SHORTEST..=LONGEST).contains(&length) && datagram[..5] == [0; 5]
}

/// Returns whether `next` belongs to the same Mosh session as `first`. A client's datagram agrees
/// if it has the next sequence number, because Mosh numbers each datagram. In other protocols the
/// same bytes increase by other steps, such as by 2 in fastd. A server's datagram agrees if it has
/// the direction bit and a sequence number below 2^24.
fn follow(first: &[u8], next: &[u8], side: Side) -> Verdict {
    let nonce = |bytes| be64(bytes, 0).unwrap_or_default();
    Verdict::whether(match side {
        Side::Client => is_from_client(next) && nonce(next) == nonce(first) + 1,
        Side::Server => next.len() >= SHORTEST && next[..5] == [0x80, 0, 0, 0, 0],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(nonce: u64, length: usize) -> Vec<u8> {
        let mut bytes = nonce.to_be_bytes().to_vec();
        bytes.resize(length, 0xa5);
        bytes
    }

    #[test]
    fn a_young_counter_and_a_fitting_length_make_a_client() {
        assert!(is_from_client(&datagram(0, 70)));
        assert!(is_from_client(&datagram(100_000, 38)));
        assert!(!is_from_client(&datagram(0, 37)));
        assert!(!is_from_client(&datagram(0, 1401)));
        assert!(!is_from_client(&datagram(1 << 63, 70)), "from the server");
        assert!(!is_from_client(&datagram(1 << 40, 70)), "too old to tell from noise");
    }

    #[test]
    fn the_next_number_or_a_young_one_of_the_server_agrees() {
        let first = datagram(7, 70);
        assert_eq!(follow(&first, &datagram(8, 38), Side::Client), Verdict::Agrees);
        for other in [7, 6, 9, 4711] {
            let verdict = follow(&first, &datagram(other, 70), Side::Client);
            assert_eq!(verdict, Verdict::Contradicts, "{other}");
        }
        assert_eq!(follow(&first, &datagram(1 << 63, 70), Side::Server), Verdict::Agrees);
        assert_eq!(follow(&first, &datagram(9, 70), Side::Server), Verdict::Contradicts);
        assert_eq!(follow(&first, &[0x80], Side::Server), Verdict::Contradicts);
    }
}
