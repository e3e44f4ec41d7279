//! Splits the bytes of a stream into packets.

use std::fmt;

use super::{LONGEST, PREFIX, SHORTEST};

/// The receiving side of a stream, which splits it into packets. It stores at most one unfinished
/// packet.
#[derive(Debug)]
pub struct Unframer {
    /// The beginning of an unfinished packet, with its length prefix.
    begun: Vec<u8>,
    longest: usize,
    fault: Option<LengthError>,
}

/// Error: a length prefix is below or above the lengths that a packet of a session may have. The
/// rest of the stream cannot be split into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthError {
    /// The length in the prefix, in bytes.
    pub length: u16,
    /// The maximum length that was allowed, in bytes.
    pub longest: usize,
}

impl Default for Unframer {
    fn default() -> Unframer {
        Unframer::new(LONGEST)
    }
}

impl Unframer {
    /// Returns the receiving side of a new stream whose packets have at most `longest` bytes.
    #[must_use]
    pub fn new(longest: usize) -> Unframer {
        Unframer { begun: Vec::new(), longest: longest.clamp(SHORTEST, LONGEST), fault: None }
    }

    /// Allows packets of at most `longest` bytes, beginning with the next length prefix.
    pub fn allow(&mut self, longest: usize) {
        self.longest = longest.clamp(SHORTEST, LONGEST);
    }

    /// Processes the next bytes of the stream, and calls `each` with every packet that these bytes
    /// complete.
    ///
    /// # Errors
    /// A length is out of bounds. All later calls return the same error.
    pub fn take(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), LengthError> {
        let mut rest = bytes;
        while !rest.is_empty() && self.fault.is_none() {
            rest = match self.begun.is_empty() {
                true => self.begin(rest, &mut each),
                false => self.complete_packet(rest, &mut each),
            };
        }
        self.fault.map_or(Ok(()), Err)
    }

    /// Returns the number of stored bytes of the unfinished packet.
    #[must_use]
    pub fn held(&self) -> usize {
        self.begun.len()
    }

    /// Passes the packet at the front of `bytes` to `each` without a copy, and returns the bytes
    /// after it. Stores the packet if it is unfinished.
    fn begin<'b>(&mut self, bytes: &'b [u8], each: &mut impl FnMut(&[u8])) -> &'b [u8] {
        if let Some((prefix, rest)) = bytes.split_first_chunk() {
            let Some(length) = self.length(*prefix) else { return &[] };
            if let Some((packet, rest)) = rest.split_at_checked(length) {
                each(packet);
                return rest;
            }
        }
        self.begun.extend_from_slice(bytes);
        &[]
    }

    /// Appends `bytes` to the unfinished packet, up to the end of that packet. If the packet is
    /// now complete, passes it to `each`. Returns the bytes after the packet.
    fn complete_packet<'b>(&mut self, bytes: &'b [u8], each: &mut impl FnMut(&[u8])) -> &'b [u8] {
        let whole = match self.begun.first_chunk() {
            Some(prefix) => {
                // The length was checked when its two bytes were complete. A later call of `allow`
                // does not affect it.
                PREFIX + usize::from(u16::from_be_bytes(*prefix))
            }
            None => PREFIX,
        };
        let (taken, rest) = bytes.split_at(bytes.len().min(whole - self.begun.len()));
        let had_prefix = self.begun.len() >= PREFIX;
        self.begun.extend_from_slice(taken);
        if self.begun.len() < whole {
            return rest;
        }
        if had_prefix {
            each(&self.begun[PREFIX..]);
            self.begun.clear();
        } else {
            let prefix = [self.begun[0], self.begun[1]];
            self.length(prefix);
        }
        rest
    }

    fn length(&mut self, prefix: [u8; PREFIX]) -> Option<usize> {
        let length = u16::from_be_bytes(prefix);
        if (SHORTEST..=self.longest).contains(&usize::from(length)) {
            return Some(length.into());
        }
        self.fault = Some(LengthError { length, longest: self.longest });
        self.begun = Vec::new();
        None
    }
}

impl fmt::Display for LengthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LengthError { length, longest } = self;
        write!(
            f,
            "announces a packet of {length} bytes, but packets of the far end's protocol have \
             {SHORTEST} to {longest} bytes"
        )
    }
}

impl std::error::Error for LengthError {}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;
    use rand::RngExt;

    use super::*;

    fn framed(packets: &[Vec<u8>]) -> Vec<u8> {
        let each = packets.iter().flat_map(|packet| {
            let length = u16::try_from(packet.len()).unwrap();
            [&length.to_be_bytes()[..], packet].concat()
        });
        each.collect()
    }

    fn packets(lengths: &[usize]) -> Vec<Vec<u8>> {
        (0..).zip(lengths).map(|(n, &length)| vec![n; length]).collect()
    }

    fn read(unframer: &mut Unframer, bytes: &[u8]) -> Result<Vec<Vec<u8>>, LengthError> {
        let mut found = Vec::new();
        unframer.take(bytes, |packet| found.push(packet.to_vec()))?;
        Ok(found)
    }

    #[test]
    fn packets_come_out_whole_however_the_stream_is_cut() {
        let rng = &mut stream(1, 0, "unframer");
        let sent = packets(&[SHORTEST, 1_400, 33, LONGEST, 40, SHORTEST]);
        let bytes = framed(&sent);
        for longest_piece in [1, 2, 3, 26, 1_000, 70_000] {
            let (mut unframer, mut found, mut rest) = (Unframer::default(), Vec::new(), &bytes[..]);
            while !rest.is_empty() {
                let length = rng.random_range(1..=longest_piece).min(rest.len());
                let (piece, after) = rest.split_at(length);
                found.extend(read(&mut unframer, piece).unwrap());
                rest = after;
            }
            assert!(found == sent, "pieces of up to {longest_piece} bytes");
            assert_eq!(unframer.held(), 0);
        }
    }

    #[test]
    fn lengths_that_no_packet_has_are_refused_for_good() {
        for length in [0, 1, SHORTEST as u16 - 1, LONGEST as u16 + 1, u16::MAX] {
            for cut in [1, 2] {
                let mut unframer = Unframer::default();
                let prefix = length.to_be_bytes();
                let (one, other) = prefix.split_at(cut);
                let fault = read(&mut unframer, one).and(read(&mut unframer, other));
                let expected = LengthError { length, longest: LONGEST };
                assert!(fault.is_err() || cut == 2);
                let good = framed(&packets(&[30]));
                assert_eq!(read(&mut unframer, &good), Err(expected), "{length} cut at {cut}");
                assert_eq!(unframer.held(), 0);
            }
        }
    }

    #[test]
    fn a_packet_before_a_lie_still_comes_out() {
        let mut bytes = framed(&packets(&[40]));
        bytes.extend([0, 0]);
        let (mut unframer, mut found) = (Unframer::default(), 0);
        assert!(unframer.take(&bytes, |_| found += 1).is_err());
        assert_eq!(found, 1);
    }

    #[test]
    fn a_stranger_makes_nobody_hold_more_than_the_longest_first_packet() {
        let longest = super::super::LONGEST_FIRST;
        let mut unframer = Unframer::new(longest);
        let length = u16::try_from(longest).unwrap().to_be_bytes();
        assert_eq!(read(&mut unframer, &length), Ok(vec![]));
        assert_eq!(read(&mut unframer, &vec![7; longest - 1]), Ok(vec![]));
        assert_eq!(unframer.held(), PREFIX + longest - 1);
        assert_eq!(read(&mut unframer, &[7]).unwrap().len(), 1);
        assert_eq!(
            read(&mut unframer, &framed(&packets(&[longest + 1]))).unwrap_err().longest,
            longest
        );
        assert_eq!(unframer.held(), 0);
    }

    #[test]
    fn a_stream_that_is_trusted_may_have_longer_packets() {
        let mut unframer = Unframer::new(100);
        assert_eq!(read(&mut unframer, &framed(&packets(&[100]))).unwrap().len(), 1);
        unframer.allow(LONGEST);
        assert_eq!(read(&mut unframer, &framed(&packets(&[101]))).unwrap().len(), 1);
    }
}
