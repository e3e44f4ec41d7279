//! Reused memory of datagrams.

/// Most buffers kept: as many as arrive in a few calls to the kernel.
const KEPT: usize = 256;
/// Largest buffer kept, in bytes: longer datagrams are rare.
const LONGEST: usize = 2_048;

/// Buffers with any content.
#[derive(Default)]
pub(crate) struct Spare {
    buffers: Vec<Vec<u8>>,
}

impl Spare {
    /// Returns a kept buffer with its old content, or an empty one.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        if self.buffers.len() < KEPT && buffer.capacity() <= LONGEST {
            self.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_buffers_are_kept_and_no_long_ones() {
        let mut spare = Spare::default();
        spare.give(vec![7; LONGEST]);
        assert_eq!(spare.take().len(), LONGEST);
        assert!(spare.take().is_empty());
        spare.give(vec![7; LONGEST + 1]);
        (0..2 * KEPT).for_each(|_| spare.give(vec![7; 3]));
        assert_eq!(spare.buffers.len(), KEPT);
    }
}
