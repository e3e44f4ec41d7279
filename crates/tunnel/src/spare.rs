//! A store of buffers that are reused for datagrams.

/// Maximum number of stored buffers, enough for the datagrams of a few system calls.
const KEPT: usize = 256;
/// Maximum size of a stored buffer, in bytes: longer datagrams are rare.
const LONGEST: usize = 2_048;

/// Stored buffers for datagrams, which still contain old bytes.
#[derive(Default)]
pub(crate) struct SpareBuffers {
    buffers: Vec<Vec<u8>>,
}

impl SpareBuffers {
    /// Returns a stored buffer with its old content, or a new empty buffer.
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
        let mut spare = SpareBuffers::default();
        spare.give(vec![7; LONGEST]);
        assert_eq!(spare.take().len(), LONGEST);
        assert!(spare.take().is_empty());
        spare.give(vec![7; LONGEST + 1]);
        (0..2 * KEPT).for_each(|_| spare.give(vec![7; 3]));
        assert_eq!(spare.buffers.len(), KEPT);
    }
}
