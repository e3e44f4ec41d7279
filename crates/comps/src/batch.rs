//! Batches: several datagrams of one sender, which the kernel delivers together (GRO).

use std::ops::Range;

/// Consecutive datagrams of one sender in one buffer. Each datagram has `stride` bytes; the last
/// one may be shorter.
///
/// Generic receive offload (GRO) delivers datagrams in this form, and generic segmentation offload
/// (GSO) accepts it, so the splitter forwards them without a copy.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The datagrams, one after the other.
    pub bytes: &'a [u8],
    /// Length in bytes of each datagram but the last. If `bytes` is empty, the batch is one empty
    /// datagram, and `stride` is ignored.
    pub stride: usize,
    /// The two ECN bits of the IP header; all datagrams of the batch have the same bits.
    pub ecn: u8,
}

impl<'a> Batch<'a> {
    /// Returns a batch of one datagram.
    pub fn single(bytes: &'a [u8], ecn: u8) -> Batch<'a> {
        Batch { bytes, stride: bytes.len(), ecn }
    }

    /// Returns the number of datagrams, at least 1.
    pub fn count(&self) -> u64 {
        self.bytes.len().div_ceil(self.stride.max(1)).max(1) as u64
    }

    /// Returns the byte range in `bytes` of `count` datagrams, beginning with the datagram at
    /// index `first`.
    pub fn part(&self, first: u64, count: u64) -> Range<usize> {
        let at = |number: u64| (number as usize).saturating_mul(self.stride).min(self.bytes.len());
        at(first)..at(first + count)
    }

    /// Returns the datagram at position `index` of the batch, counted from 0.
    pub fn datagram(&self, index: u64) -> &'a [u8] {
        &self.bytes[self.part(index, 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_datagram_may_be_shorter() {
        let batch = Batch { bytes: &[1, 1, 2, 2, 3], stride: 2, ecn: 0 };
        assert_eq!(batch.count(), 3);
        assert_eq!(batch.datagram(1), [2, 2]);
        assert_eq!(batch.datagram(2), [3]);
        assert_eq!(batch.part(1, 2), 2..5);
    }

    #[test]
    fn an_empty_datagram_is_one_datagram() {
        let batch = Batch::single(&[], 0);
        assert_eq!(batch.count(), 1);
        assert_eq!(batch.part(0, 1), 0..0);
    }
}
