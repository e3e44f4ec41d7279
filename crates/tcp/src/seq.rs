//! TCP sequence numbers.

use std::ops::Add;

/// A sequence number on the wire, modulo 2^32 (RFC 9293, section 3.4).
///
/// Inside a connection, positions are `u64` offsets from the initial sequence number, so that they
/// never wrap. Offset 0 is the SYN, and offset 1 the first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// Returns the sequence number at `offset` in a stream whose initial sequence number is
    /// `self`.
    pub const fn at(self, offset: u64) -> Seq {
        // The truncation implements the arithmetic modulo 2^32.
        Seq(self.0.wrapping_add(offset as u32))
    }

    /// Returns the offset of this sequence number in a stream with the initial sequence number
    /// `isn`. Of the possible offsets, returns the offset closest to `near`. Returns `None` if
    /// this offset would be before the stream's start.
    pub(crate) fn offset(self, isn: Seq, near: u64) -> Option<u64> {
        let expected = isn.at(near);
        let ahead = self.0.wrapping_sub(expected.0) as i32;
        near.checked_add_signed(i64::from(ahead))
    }
}

impl Add<u32> for Seq {
    type Output = Seq;
    fn add(self, count: u32) -> Seq {
        Seq(self.0.wrapping_add(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_go_on_where_sequence_numbers_wrap() {
        let isn = Seq(u32::MAX - 10);
        for near in [0, 5, 1 << 20, (1 << 32) - 3, (1 << 40) + 7] {
            for step in [0, 1, 100, 1 << 20] {
                assert_eq!(isn.at(near + step).offset(isn, near), Some(near + step));
                let before = near.checked_sub(step);
                assert_eq!(
                    (isn + (near as u32).wrapping_sub(step as u32)).offset(isn, near),
                    before
                );
            }
        }
    }
}
