//! TCP segments in wire format (RFC 9293, section 3.1).

use std::fmt;
use std::net::IpAddr;

use crate::Seq;
use crate::options::Options;

/// Length of a TCP header without options, in bytes.
const HEADER: usize = 20;
/// Protocol number of TCP in IP headers, which is part of the checksum.
const PROTOCOL: u8 = 6;

/// A TCP segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number of the first byte, or of the SYN.
    pub seq: Seq,
    /// Next sequence number that the sender of this segment expects; valid with [`Flags::ACK`].
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Receive window, as in the header: before it is shifted by the window scale.
    pub window: u16,
    /// Options.
    pub options: Options,
    /// SACK blocks for which the options have no room: for each, its first sequence number and the
    /// sequence number after its last. They are not part of TCP's format: [`Segment::write`] omits
    /// them.
    pub more_blocks: Vec<(Seq, Seq)>,
    /// Payload.
    pub payload: Vec<u8>,
}

/// The control bits (SYN, FIN, ACK, ...) of a TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender has no more data.
    pub const FIN: Flags = Flags(1);
    /// The segment synchronises sequence numbers.
    pub const SYN: Flags = Flags(2);
    /// The segment resets (aborts) the connection.
    pub const RST: Flags = Flags(4);
    /// The receiver should deliver the data to the application without delay.
    pub const PSH: Flags = Flags(8);
    /// The acknowledgement field is valid.
    pub const ACK: Flags = Flags(16);

    /// Returns whether all bits of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// Reason why bytes cannot be parsed as a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// There are fewer bytes than the header needs.
    Short,
    /// The header's length is below 20 bytes.
    HeaderLength,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::Short => "the segment is shorter than its header",
            Malformed::HeaderLength => "the header's length is below 20 bytes",
        })
    }
}

impl std::error::Error for Malformed {}

impl Segment {
    /// Parses a segment from the payload of an IP packet. The checksum is not verified
    /// ([`checksum`] does that). Unknown and malformed options are ignored.
    ///
    /// # Errors
    /// [`Malformed`] if the header is truncated or invalid.
    pub fn parse(bytes: &[u8]) -> Result<Segment, Malformed> {
        let header: &[u8; HEADER] = bytes.first_chunk().ok_or(Malformed::Short)?;
        let length = usize::from(header[12] >> 4) * 4;
        if length < HEADER {
            return Err(Malformed::HeaderLength);
        }
        let options = bytes.get(HEADER..length).ok_or(Malformed::Short)?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let long = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
        Ok(Segment {
            source: word(0),
            destination: word(2),
            seq: Seq(long(4)),
            ack: Seq(long(8)),
            flags: Flags(header[13]),
            window: word(14),
            options: Options::parse(options),
            more_blocks: Vec::new(),
            payload: bytes[length..].to_vec(),
        })
    }

    /// Adds a SACK block: to the options or, if they have no room, to `more_blocks`.
    pub(crate) fn add_block(&mut self, block: (Seq, Seq)) {
        if !self.options.has_room_for_block() || !self.options.sack.push(block.0, block.1) {
            self.more_blocks.push(block);
        }
    }

    /// Returns all SACK blocks: those in the options, and [`more_blocks`](Segment::more_blocks).
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &(Seq, Seq)> {
        self.options.sack.as_slice().iter().chain(&self.more_blocks)
    }

    /// Appends the segment to `out`, with its checksum for the addresses `from` and `to`.
    pub fn write(&self, from: IpAddr, to: IpAddr, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend(self.source.to_be_bytes());
        out.extend(self.destination.to_be_bytes());
        out.extend(self.seq.0.to_be_bytes());
        out.extend(self.ack.0.to_be_bytes());
        out.extend([0, self.flags.0]);
        out.extend(self.window.to_be_bytes());
        out.extend([0; 4]);
        self.options.write(out);
        // A header has at most 60 bytes, so its length fits into four bits.
        out[start + 12] = ((out.len() - start) / 4 * 16) as u8;
        out.extend(&self.payload);
        let sum = checksum(from, to, &out[start..]);
        out[start + 16..start + 18].copy_from_slice(&sum.to_be_bytes());
    }

    /// Returns the segment's length in the sequence space: its bytes, and one each for SYN and
    /// FIN.
    pub fn length(&self) -> u64 {
        let controls = [Flags::SYN, Flags::FIN].iter().filter(|&&bit| self.flags.has(bit)).count();
        (self.payload.len() + controls) as u64
    }

    /// Returns the segment's length on the wire in bytes, with header and options, without the IP
    /// header.
    pub fn wire_length(&self) -> usize {
        HEADER + self.options.length() + self.payload.len()
    }

    /// Returns the reset with which to answer this segment if it belongs to no connection (RFC
    /// 9293, section 3.10.7.1). Returns `None` if the segment is a reset itself.
    pub fn reset(&self) -> Option<Segment> {
        if self.flags.has(Flags::RST) {
            return None;
        }
        let (source, destination) = (self.destination, self.source);
        let ports = Segment { source, destination, ..Segment::default() };
        Some(if self.flags.has(Flags::ACK) {
            Segment { seq: self.ack, flags: Flags::RST, ..ports }
        } else {
            Segment { ack: self.seq.at(self.length()), flags: Flags::RST | Flags::ACK, ..ports }
        })
    }
}

/// Returns the checksum of a segment between two addresses (RFC 9293, section 3.1). It is 0 if the
/// segment contains the correct checksum.
pub fn checksum(from: IpAddr, to: IpAddr, segment: &[u8]) -> u16 {
    let address = |address: IpAddr| match address {
        IpAddr::V4(v4) => sum(&v4.octets()),
        IpAddr::V6(v6) => sum(&v6.octets()),
    };
    let length = segment.len() as u64;
    let mut total = address(from) + address(to) + u64::from(PROTOCOL) + length + sum(segment);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

/// Returns the sum of the 16-bit words in network order.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map_or(0, |&byte| u64::from(byte) << 8);
    words.iter().map(|&word| u64::from(u16::from_be_bytes(word))).sum::<u64>() + last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Timestamps;

    const ENDS: [IpAddr; 2] = [
        IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    ];

    fn segment() -> Segment {
        let mut options = Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            ..Options::default()
        };
        options.sack.push(Seq(5), Seq(9));
        Segment {
            source: 1,
            destination: 2,
            seq: Seq(u32::MAX),
            ack: Seq(7),
            flags: Flags::ACK | Flags::PSH,
            window: 500,
            options,
            more_blocks: Vec::new(),
            payload: b"odd".to_vec(),
        }
    }

    #[test]
    fn a_segment_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        segment().write(ENDS[0], ENDS[1], &mut bytes);
        assert_eq!(Segment::parse(&bytes), Ok(segment()));
        assert_eq!(bytes.len(), segment().wire_length());
        assert_eq!(checksum(ENDS[0], ENDS[1], &bytes), 0);
        bytes[30] ^= 1;
        assert_ne!(checksum(ENDS[0], ENDS[1], &bytes), 0);
    }

    #[test]
    fn a_cut_header_is_no_segment() {
        let mut bytes = Vec::new();
        segment().write(ENDS[0], ENDS[1], &mut bytes);
        let header = bytes.len() - 3;
        assert!((0..header).all(|cut| Segment::parse(&bytes[..cut]) == Err(Malformed::Short)));
        assert!(Segment::parse(&bytes[..header]).is_ok());
        bytes[12] = 0x40;
        assert_eq!(Segment::parse(&bytes), Err(Malformed::HeaderLength));
    }

    #[test]
    fn a_stray_segment_is_answered_by_a_reset_that_its_sender_accepts() {
        let reset = segment().reset().unwrap();
        assert_eq!((reset.seq, reset.flags, reset.source), (Seq(7), Flags::RST, 2));
        let syn = Segment { flags: Flags::SYN, payload: Vec::new(), ..segment() };
        let reset = syn.reset().unwrap();
        assert_eq!((reset.seq, reset.ack), (Seq(0), Seq(0)));
        assert_eq!(reset.reset(), None);
    }
}
