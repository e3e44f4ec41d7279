//! Encoding of the content of packets (`docs/spec/more.md#content`). Integers are big-endian.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anabranch_tcp::Segment;

use crate::sphinx::{ReplyBlock, SURB_LENGTH};

/// Number of bytes before the reply blocks of a forward packet: the count of blocks, the flow
/// (name of the stream), and the sequence number of the packet.
pub const FORWARD_HEAD: usize = 1 + FLOW + 4;
/// Number of bytes before the segment of a reply: the reply's sequence number, the highest
/// sequence number of received forward packets, and the count of wanted reply blocks.
pub const REPLY_HEAD: usize = 4 + 4 + 2;
/// Number of bytes of a TCP header without options (RFC 9293, section 3.1).
const TCP_HEADER: usize = 20;
/// Length in bytes of a stream's random name ([`Flow`]).
const FLOW: usize = 8;
/// TCP port of both ends in segments. It is constant, because connections are distinguished by
/// their flow (random name).
pub(crate) const PORT: u16 = 1;
/// IP address of both ends for TCP's checksum, because segments carry no addresses.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The random name of a stream in its forward packets. It must remain secret between the stream's
/// two ends, because any node that knows it can send packets of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow(pub [u8; FLOW]);

/// The content of a packet from client to exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardContent {
    /// The random name of the packet's stream.
    pub flow: Flow,
    /// Sequence number of the packet within its stream, from 0.
    pub number: u32,
    /// Reply blocks, with which the exit can send replies.
    pub blocks: Vec<ReplyBlock>,
    /// A segment of the stream's TCP connection; `None` if the packet contains only reply blocks.
    pub segment: Option<Segment>,
}

impl ForwardContent {
    /// Parses the content of a forward packet. Returns `None` if the content is truncated, or ends
    /// with bytes that are not a segment.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<ForwardContent> {
        let (&[count], rest) = bytes.split_first_chunk()?;
        let (&flow, rest) = rest.split_first_chunk::<FLOW>()?;
        let (&number, rest) = rest.split_first_chunk::<4>()?;
        let (blocks, segment) = rest.split_at_checked(usize::from(count) * SURB_LENGTH)?;
        let blocks = blocks.chunks_exact(SURB_LENGTH).map(|block| ReplyBlock(block.into()));
        Some(ForwardContent {
            flow: Flow(flow),
            number: u32::from_be_bytes(number),
            blocks: blocks.collect(),
            segment: parse_segment(segment)?,
        })
    }

    /// Returns the content's bytes.
    ///
    /// # Panics
    /// If there are more than 255 reply blocks.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let count =
            u8::try_from(self.blocks.len()).expect("a packet has room for at most 2 reply blocks");
        let mut out = vec![count];
        out.extend(self.flow.0);
        out.extend(self.number.to_be_bytes());
        self.blocks.iter().for_each(|block| out.extend(&block.0));
        self.segment.iter().for_each(|segment| segment.write(NOWHERE, NOWHERE, &mut out));
        out
    }
}

/// The content of a packet from exit to client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyContent {
    /// Sequence number of the reply within its stream, from 0.
    pub serial: u32,
    /// Highest sequence number of the stream's forward packets that have arrived.
    pub seen: u32,
    /// Number of reply blocks that the exit lacks; negative if it has more than it needs.
    pub wanted: i16,
    /// A segment of the stream's TCP connection; `None` if the reply has none.
    pub segment: Option<Segment>,
}

impl ReplyContent {
    /// Parses the content of a reply. Returns `None` if the content is truncated, or ends with
    /// bytes that are not a segment.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<ReplyContent> {
        let (&serial, rest) = bytes.split_first_chunk::<4>()?;
        let (&seen, rest) = rest.split_first_chunk::<4>()?;
        let (&wanted, rest) = rest.split_first_chunk::<2>()?;
        Some(ReplyContent {
            serial: u32::from_be_bytes(serial),
            seen: u32::from_be_bytes(seen),
            wanted: i16::from_be_bytes(wanted),
            segment: parse_segment(rest)?,
        })
    }

    /// Returns the content's bytes.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = self.serial.to_be_bytes().to_vec();
        out.extend(self.seen.to_be_bytes());
        out.extend(self.wanted.to_be_bytes());
        self.segment.iter().for_each(|segment| segment.write(NOWHERE, NOWHERE, &mut out));
        out
    }
}

/// Returns the maximum segment size of TCP in packets with `payload` bytes of content.
pub(crate) fn mss(payload: usize) -> u16 {
    let room = payload.saturating_sub(FORWARD_HEAD.max(REPLY_HEAD) + TCP_HEADER);
    u16::try_from(room).unwrap_or(u16::MAX)
}

/// Parses the rest of a packet's content as a segment. Returns `Some(None)` if there are no bytes,
/// and `None` if the bytes are not a segment.
fn parse_segment(bytes: &[u8]) -> Option<Option<Segment>> {
    if bytes.is_empty() {
        return Some(None);
    }
    let segment = Segment::parse(bytes).ok()?;
    (segment.source == PORT && segment.destination == PORT).then_some(Some(segment))
}

/// Maximum length in bytes of the destination that a client sends first on a stream
/// ([`put_target`]).
pub const TARGET: usize = 1 + 16 + 2;

/// Encodes the destination that a client sends first on a stream.
#[must_use]
pub fn put_target(target: SocketAddr) -> Vec<u8> {
    let mut out = match target.ip() {
        IpAddr::V4(ip) => [&[4][..], &ip.octets()].concat(),
        IpAddr::V6(ip) => [&[6][..], &ip.octets()].concat(),
    };
    out.extend(target.port().to_be_bytes());
    out
}

/// Error: the first bytes of a client's stream are not a valid destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTarget;

/// Parses the destination at the beginning of a client's stream. Returns the destination and its
/// encoded length; `None` if more bytes are needed.
///
/// # Errors
/// [`NoTarget`]: the type of the address is unknown, or the port is 0.
pub fn read_target(bytes: &[u8]) -> Result<Option<(SocketAddr, usize)>, NoTarget> {
    let Some((&kind, rest)) = bytes.split_first() else { return Ok(None) };
    let found = match kind {
        4 => rest.split_first_chunk::<4>().map(|(ip, rest)| (Ipv4Addr::from(*ip).into(), rest)),
        6 => rest.split_first_chunk::<16>().map(|(ip, rest)| (Ipv6Addr::from(*ip).into(), rest)),
        _ => return Err(NoTarget),
    };
    let found =
        found.and_then(|(ip, rest): (IpAddr, _)| Some((ip, rest.split_first_chunk::<2>()?)));
    let Some((ip, (&port, rest))) = found else { return Ok(None) };
    let target = SocketAddr::new(ip, u16::from_be_bytes(port));
    if target.port() == 0 {
        return Err(NoTarget);
    }
    Ok(Some((target, bytes.len() - rest.len())))
}

#[cfg(test)]
mod tests {
    use anabranch_tcp::{Flags, Seq};

    use super::*;

    fn segment(payload: usize) -> Segment {
        Segment {
            source: PORT,
            destination: PORT,
            seq: Seq(7),
            flags: Flags::ACK,
            payload: vec![3; payload],
            ..Segment::default()
        }
    }

    fn forward(blocks: usize, segment: Option<Segment>) -> ForwardContent {
        let blocks = (0..blocks).map(|byte| ReplyBlock(vec![byte as u8; SURB_LENGTH].into()));
        ForwardContent { flow: Flow([5; FLOW]), number: 9, blocks: blocks.collect(), segment }
    }

    #[test]
    fn contents_are_read_as_they_were_written() {
        for (blocks, payload) in [(0, None), (2, None), (0, Some(0)), (1, Some(300))] {
            let forward = forward(blocks, payload.map(segment));
            assert_eq!(ForwardContent::parse(&forward.write()), Some(forward));
            let reply =
                ReplyContent { serial: 1, seen: 2, wanted: -3, segment: payload.map(segment) };
            assert_eq!(ReplyContent::parse(&reply.write()), Some(reply));
        }
    }

    #[test]
    fn truncated_contents_and_other_ports_are_refused() {
        let bytes = forward(1, Some(segment(3))).write();
        let header = bytes.len() - 3;
        let without = header - TCP_HEADER;
        assert!(
            (0..header).all(|cut| cut == without || ForwardContent::parse(&bytes[..cut]).is_none())
        );
        let other = Segment { source: 2, ..segment(3) };
        assert_eq!(ForwardContent::parse(&forward(0, Some(other.clone())).write()), None);
        let reply = ReplyContent { serial: 1, seen: 2, wanted: 3, segment: Some(other) };
        assert_eq!(ReplyContent::parse(&reply.write()), None);
        assert!((0..REPLY_HEAD).all(|cut| ReplyContent::parse(&reply.write()[..cut]).is_none()));
    }

    #[test]
    fn two_blocks_and_an_acknowledgement_fit_795_bytes() {
        assert_eq!(SURB_LENGTH, 372);
        let acknowledgement = TCP_HEADER + 12;
        assert!(FORWARD_HEAD + 2 * SURB_LENGTH + acknowledgement <= 795);
        assert!(FORWARD_HEAD + SURB_LENGTH + acknowledgement <= 498);
        assert_eq!([mss(795), mss(498)], [762, 465]);
    }

    #[test]
    fn targets_are_read_as_they_were_written_and_once_complete() {
        for text in ["192.0.2.1:80", "[2001:db8::1]:443"] {
            let target = text.parse().unwrap();
            let mut bytes = put_target(target);
            let length = bytes.len();
            assert!(length <= TARGET);
            bytes.extend(b"more");
            assert_eq!(read_target(&bytes), Ok(Some((target, length))));
            assert!((0..length).all(|cut| read_target(&bytes[..cut]) == Ok(None)));
        }
        assert_eq!(read_target(&[5, 1]), Err(NoTarget));
        assert_eq!(read_target(&[4, 1, 2, 3, 4, 0, 0]), Err(NoTarget));
    }
}
