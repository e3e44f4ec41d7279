//! The options in the header of a TCP segment.

use crate::Seq;

/// Kind of the option for the maximum segment size, and its length in bytes.
const MSS: (u8, u8) = (2, 4);
/// Kind of the window scale option, and its length in bytes.
const WINDOW_SCALE: (u8, u8) = (3, 3);
/// Kind of the option that permits selective acknowledgements, and its length in bytes.
const SACK_PERMITTED: (u8, u8) = (4, 2);
/// Kind of the option with selective acknowledgements, whose length varies.
const SACK: u8 = 5;
/// Kind of the timestamps option, and its length in bytes.
const TIMESTAMPS: (u8, u8) = (8, 10);
/// Kind of the option that ends the list of options.
const END: u8 = 0;
/// Kind of the option that only fills one byte, to align other options.
const NO_OPERATION: u8 = 1;
/// Maximum total length of a segment's options, in bytes.
const ROOM: usize = 40;

/// The options of a TCP segment; `None` for an option that the segment does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size in bytes, on SYNs (RFC 9293, section 3.7.1).
    pub mss: Option<u16>,
    /// Window scale, on SYNs: the shift of windows in bits (RFC 7323, section 2).
    pub window_scale: Option<u8>,
    /// Whether selective acknowledgements are permitted (RFC 2018, section 2), on SYNs.
    pub sack_permitted: bool,
    /// Timestamps (RFC 7323, section 3).
    pub timestamps: Option<Timestamps>,
    /// Selective acknowledgements (RFC 2018, section 3).
    pub sack: SackBlocks,
}

/// The timestamps option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// Value of the sender's clock, in milliseconds.
    pub value: u32,
    /// Value that the sender last received from the other end; valid only with an acknowledgement.
    pub echo: u32,
}

/// The blocks of a SACK option, at most four.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(Seq, Seq); 4],
    count: usize,
}

impl SackBlocks {
    /// Adds the block of the sequence numbers from `start` up to, but not including, `end`.
    /// Returns false if there are already four blocks.
    pub fn push(&mut self, start: Seq, end: Seq) -> bool {
        let free = self.blocks.get_mut(self.count);
        let added = free.map(|block| *block = (start, end)).is_some();
        self.count += usize::from(added);
        added
    }

    /// Returns the SACK blocks: for each, its first sequence number and the sequence number after
    /// its last.
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        &self.blocks[..self.count]
    }

    /// Drops all SACK blocks except the first `count`.
    pub fn truncate(&mut self, count: usize) {
        self.count = self.count.min(count);
        self.blocks[self.count..].fill((Seq(0), Seq(0)));
    }
}

impl Options {
    /// Parses the options of a segment. Skips unknown options, and stops at the first malformed
    /// one.
    pub(crate) fn parse(mut bytes: &[u8]) -> Options {
        let mut options = Options::default();
        while let Some((&kind, rest)) = bytes.split_first() {
            if kind == END {
                break;
            }
            if kind == NO_OPERATION {
                bytes = rest;
                continue;
            }
            let length = rest.first().map_or(0, |&length| usize::from(length));
            let Some((body, next)) = bytes.split_at_checked(length).filter(|_| length >= 2) else {
                break;
            };
            options.take(kind, length as u8, &body[2..]);
            bytes = next;
        }
        options
    }

    fn take(&mut self, kind: u8, length: u8, body: &[u8]) {
        let long = |at: usize| body[at..].first_chunk().map_or(0, |four| u32::from_be_bytes(*four));
        match (kind, length) {
            MSS => self.mss = Some(u16::from_be_bytes([body[0], body[1]])),
            WINDOW_SCALE => self.window_scale = Some(body[0]),
            SACK_PERMITTED => self.sack_permitted = true,
            TIMESTAMPS => self.timestamps = Some(Timestamps { value: long(0), echo: long(4) }),
            (SACK, _) => {
                for block in body.as_chunks::<8>().0 {
                    let (start, end) = (&block[..4], &block[4..]);
                    let seq = |four: &[u8]| Seq(four.iter().fold(0, |n, &b| n << 8 | u32::from(b)));
                    self.sack.push(seq(start), seq(end));
                }
            }
            _ => {}
        }
    }

    /// Returns the length of the options on the wire in bytes, a multiple of 4.
    pub fn length(&self) -> usize {
        match self.written_blocks() {
            0 => self.fixed_length(),
            blocks => self.fixed_length() + 4 + 8 * blocks,
        }
    }

    /// Returns the length of all options except SACK, in bytes.
    fn fixed_length(&self) -> usize {
        let words = [self.mss.is_some(), self.window_scale.is_some(), self.sack_permitted];
        let words = words.iter().filter(|&&present| present).count();
        4 * words + 12 * usize::from(self.timestamps.is_some())
    }

    /// Returns whether the option space has room for another SACK block.
    pub(crate) fn has_room_for_block(&self) -> bool {
        self.sack.count < self.most_blocks()
    }

    /// Returns the maximum number of SACK blocks for which the option space has room, after the
    /// other options.
    fn most_blocks(&self) -> usize {
        (ROOM - 4 - self.fixed_length()) / 8
    }

    /// Returns how many of the stored SACK blocks fit into the option space.
    fn written_blocks(&self) -> usize {
        self.sack.count.min(self.most_blocks())
    }

    /// Appends the options, each aligned to 4 bytes as RFC 7323, appendix A, recommends.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        if let Some(mss) = self.mss {
            out.extend([MSS.0, MSS.1]);
            out.extend(mss.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            out.extend([NO_OPERATION, WINDOW_SCALE.0, WINDOW_SCALE.1, shift]);
        }
        if self.sack_permitted {
            out.extend([NO_OPERATION, NO_OPERATION, SACK_PERMITTED.0, SACK_PERMITTED.1]);
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            out.extend([NO_OPERATION, NO_OPERATION, TIMESTAMPS.0, TIMESTAMPS.1]);
            out.extend(value.to_be_bytes());
            out.extend(echo.to_be_bytes());
        }
        let blocks = self.written_blocks();
        if blocks > 0 {
            out.extend([NO_OPERATION, NO_OPERATION, SACK, 2 + 8 * blocks as u8]);
            for (start, end) in &self.sack.as_slice()[..blocks] {
                out.extend(start.0.to_be_bytes());
                out.extend(end.0.to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_options_are_skipped_and_malformed_ones_end_the_list() {
        let bytes = [1, 254, 4, 9, 9, 2, 4, 5, 180, 3, 0, 8];
        let options = Options::parse(&bytes);
        assert_eq!((options.mss, options.window_scale), (Some(1460), None));
        assert_eq!(Options::parse(&[2, 40, 1, 1]), Options::default());
        assert_eq!(Options::parse(&[2]), Options::default());
        assert_eq!(Options::parse(&[0, 2, 4, 5, 180]), Options::default());
    }

    #[test]
    fn no_more_blocks_are_written_than_fit() {
        let mut options = Options { timestamps: Some(Timestamps::default()), ..Options::default() };
        (0..5).for_each(|n| assert_eq!(options.sack.push(Seq(n), Seq(n + 1)), n < 4));
        let mut bytes = Vec::new();
        options.write(&mut bytes);
        assert_eq!((bytes.len(), options.length()), (40, 40));
        assert_eq!(Options::parse(&bytes).sack.as_slice().len(), 3);
    }
}
