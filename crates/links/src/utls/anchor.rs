//! Conversions from TCP sequence numbers to offsets in the stream, and from offsets to TLS record
//! numbers.

use std::ops::RangeInclusive;

/// Relation between the 32-bit sequence numbers of one direction of a TCP connection and the
/// 64-bit offsets in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Sequence number of the first byte of the stream.
    first: u32,
}

impl Origin {
    /// Returns the origin of a stream whose SYN segment has the sequence number `number`. The
    /// stream's first byte has the next number.
    #[must_use]
    pub fn of_syn(number: u32) -> Origin {
        Origin { first: number.wrapping_add(1) }
    }

    /// Returns the sequence number of the byte at `offset`.
    #[must_use]
    pub fn number(self, offset: u64) -> u32 {
        self.first.wrapping_add(offset as u32)
    }

    /// Returns the offset of the byte with the sequence number `number`. Of the possible offsets,
    /// returns the one nearest to `head`, the stream's read position. Returns `None` if it would
    /// be before the beginning of the stream.
    #[must_use]
    pub fn offset(self, number: u32, head: u64) -> Option<u64> {
        // A sequence number is only the low half of an offset.
        let distance = number.wrapping_sub(self.number(head)) as i32;
        head.checked_add_signed(i64::from(distance))
    }
}

/// A position in a stream of TLS records: record `number` begins at `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Number of bytes of the stream before the position.
    pub offset: u64,
    /// Number of records before the position that were encrypted under the present key. It is the
    /// number of the next record.
    pub number: u64,
}

impl Anchor {
    /// Returns the numbers of the records that have a byte in `from..to`, if each record from this
    /// position on has `size` bytes. Returns `None` if there is no such record.
    #[must_use]
    pub fn numbers(self, from: u64, to: u64, size: usize) -> Option<RangeInclusive<u64>> {
        let size = size as u64;
        let (from, to) = (from.max(self.offset), to.max(self.offset));
        if from == to {
            return None;
        }
        let at = |offset: u64| self.number.checked_add((offset - self.offset) / size);
        Some(at(from)?..=at(to - 1)?)
    }

    /// Returns the offset at which record `number` begins, if each record has `size` bytes.
    /// Returns `None` if the record is before this position, or if the offset exceeds 64 bits.
    #[must_use]
    pub fn start(self, number: u64, size: usize) -> Option<u64> {
        let before = number.checked_sub(self.number)?.checked_mul(size as u64)?;
        self.offset.checked_add(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_follow_sequence_numbers_over_their_wrap() {
        for syn in [0, 1, 77, u32::MAX - 1, u32::MAX] {
            let origin = Origin::of_syn(syn);
            for head in [0u64, 5_000, (1 << 31) - 1, 1 << 31, (1 << 32) - 3, (7 << 32) + 12] {
                for ahead in [0u64, 1, 1_448, 3_000_000] {
                    let number = syn.wrapping_add(1).wrapping_add((head + ahead) as u32);
                    assert_eq!(origin.offset(number, head), Some(head + ahead));
                    let tail = head.checked_sub(ahead);
                    let number = syn.wrapping_add(1).wrapping_add(head as u32);
                    let number = number.wrapping_sub(ahead as u32);
                    assert_eq!(origin.offset(number, head), tail, "{head} less {ahead}");
                }
            }
        }
    }

    #[test]
    fn a_byte_is_in_the_record_that_begins_before_it() {
        let anchor = Anchor { offset: 1_000, number: 7 };
        for (from, to, numbers) in [
            (1_000, 1_001, Some(7..=7)),
            (1_000, 1_540, Some(7..=7)),
            (1_539, 1_541, Some(7..=8)),
            (900, 1_001, Some(7..=7)),
            (2_080, 4_000, Some(9..=12)),
            (900, 1_000, None),
            (1_200, 1_200, None),
        ] {
            assert_eq!(anchor.numbers(from, to, 540), numbers, "{from}..{to}");
        }
        assert_eq!(anchor.start(7, 540), Some(1_000));
        assert_eq!(anchor.start(9, 540), Some(2_080));
        assert_eq!(anchor.start(6, 540), None);
        assert_eq!(anchor.start(u64::MAX, 540), None);
    }
}
