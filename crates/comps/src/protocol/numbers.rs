//! Detection of packet numbers in clear, without knowledge of the protocol.
//!
//! A field counts as a packet number if it increases by one from each datagram of the client to the
//! next, several times in a row. Timestamps increase by other steps; masked or encrypted numbers do
//! not increase regularly.

/// Number of bytes inspected at the front of each datagram. The value covers the headers of the
/// known tunnels, and the padding that AmneziaWG puts before WireGuard's header (at most 32 bytes
/// with its own tools).
const LOOKED: usize = 64;
/// Width of an inspected field, in bytes. A wider packet number is found by its lower half, a
/// narrower packet number together with neighbouring bytes.
const WIDTH: usize = 4;
/// Number of consecutive datagrams in which a field must rise by one to count as a packet number.
/// Each of the 122 fields of a random datagram rises that often with a probability of 2^-224.
const STEPS: u8 = 7;
/// Maximum number of inspected datagrams per session. A few datagrams would not suffice, because a
/// handshake precedes the data, and control packets without the field interrupt a sequence.
const LOOKS: u16 = 512;

/// The search for an unencrypted packet number in the datagrams of one session.
#[derive(Debug)]
pub struct PacketNumberSearch {
    last: [u8; LOOKED],
    length: usize,
    /// Bit sets of the fields, by position, whose values have risen by one at each datagram since
    /// the last restart. The first set is for big-endian fields, the second for little-endian
    /// fields.
    rising: [u64; 2],
    steps: u8,
    left: u16,
}

impl Default for PacketNumberSearch {
    fn default() -> PacketNumberSearch {
        PacketNumberSearch {
            last: [0; LOOKED],
            length: 0,
            rising: [u64::MAX; 2],
            steps: 0,
            left: LOOKS,
        }
    }
}

impl PacketNumberSearch {
    /// Inspects the client's next datagram. Returns true when a field is found to be a packet
    /// number, once per session.
    pub fn look(&mut self, datagram: &[u8]) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let length = datagram.len().min(LOOKED);
        let fields = length.min(self.length).saturating_sub(WIDTH - 1);
        let risen = self.risen(&datagram[..length], fields);
        let both = [self.rising[0] & risen[0], self.rising[1] & risen[1]];
        (self.rising, self.steps) = match (both, risen) {
            ([0, 0], [0, 0]) => ([u64::MAX; 2], 0),
            ([0, 0], _) => (risen, 1),
            _ => (both, self.steps + 1),
        };
        self.last[..length].copy_from_slice(&datagram[..length]);
        self.length = length;
        let found = self.steps == STEPS;
        self.left = if found { 0 } else { self.left };
        found
    }

    /// Ends the search for a packet number in this session. Returns whether the search was still
    /// in progress.
    pub fn end(&mut self) -> bool {
        std::mem::take(&mut self.left) > 0
    }

    /// Returns whether the search for a packet number is over, with or without success.
    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Returns which of the first `fields` fields of `datagram` are greater by one than in the
    /// previous datagram, as bit sets like [`PacketNumberSearch::rising`].
    fn risen(&self, datagram: &[u8], fields: usize) -> [u64; 2] {
        let word = |bytes: &[u8], at: usize| {
            *bytes[at..].first_chunk().expect("the datagram contains the whole field")
        };
        let mut risen = [0; 2];
        for at in 0..fields {
            let (before, now) = (word(&self.last, at), word(datagram, at));
            let big = u32::from_be_bytes(now).wrapping_sub(u32::from_be_bytes(before)) == 1;
            let little = u32::from_le_bytes(now).wrapping_sub(u32::from_le_bytes(before)) == 1;
            risen[0] |= u64::from(big) << at;
            risen[1] |= u64::from(little) << at;
        }
        risen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the index of the datagram at which a counter is found.
    fn found(datagrams: impl IntoIterator<Item = Vec<u8>>) -> Option<usize> {
        let mut numbers = PacketNumberSearch::default();
        datagrams.into_iter().position(|datagram| numbers.look(&datagram))
    }

    /// Returns bytes without a pattern, which differ for each `seed`.
    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    }

    fn with(seed: u64, at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut datagram = noise(seed, 120);
        datagram[at..at + bytes.len()].copy_from_slice(bytes);
        datagram
    }

    #[test]
    fn counters_of_any_place_and_order_are_found() {
        for at in [0, 1, 4, 8, 25, 40, 56] {
            let big = (0..20).map(|n| with(n, at, &(0xfa + n).to_be_bytes()));
            assert_eq!(found(big), Some(7), "big-endian at {at}");
            let little = (0..20).map(|n| with(n, at, &(0xfa + n).to_le_bytes()));
            assert_eq!(found(little), Some(7), "little-endian at {at}");
        }
    }

    #[test]
    fn a_counter_is_found_between_other_packets() {
        let mixed = (0..40u64).map(|n| match n {
            0..=5 | 9 => noise(n, 90),
            _ => with(n, 4, &(n as u32).to_be_bytes()),
        });
        assert_eq!(found(mixed), Some(10 + 7));
    }

    #[test]
    fn noise_constants_and_timestamps_are_no_counters() {
        assert_eq!(found((0..600).map(|n| noise(n, 200))), None);
        assert_eq!(found((0..600).map(|_| noise(1, 200))), None);
        let clock = (0..600u64).map(|n| with(n, 4, &(n * 20 + n % 3).to_be_bytes()));
        assert_eq!(found(clock), None);
    }

    #[test]
    fn the_search_ends_and_short_datagrams_are_survived() {
        let mut numbers = PacketNumberSearch::default();
        for length in [0, 1, 3, 4, 5, 64, 65, 2, 0] {
            assert!(!numbers.look(&noise(3, length)));
        }
        assert!((0..u64::from(LOOKS)).all(|n| !numbers.look(&noise(n, 40))));
        assert!(numbers.is_done());
        let late = (0..20).any(|n: u32| numbers.look(&with(1, 4, &n.to_be_bytes())));
        assert!(!late);
    }
}
