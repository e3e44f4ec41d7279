//! Parser of the unencrypted headers of QUIC packets (RFC 8999, RFC 9000 section 17, RFC 9369
//! section 3.2).
//!
//! Nothing is decrypted. The splitter needs only the types and connection IDs of the packets with
//! a long header in a datagram.

use std::fmt;

use super::{Counter, Family, Mark, Protocol, Side, Verdict};

/// Description of QUIC in the list of protocols, [`FAMILIES`](super::FAMILIES).
pub const FAMILY: Family = Family {
    protocol: Protocol::Quic,
    name: "quic",
    title: "QUIC",
    selectable: true,
    mark: |datagram| Mark::strong(is_first(datagram)),
    follow,
    one_path: None,
    counter: Counter::Never,
    guide: "quic",
};

/// QUIC version 1.
pub const VERSION_1: u32 = 0x0000_0001;
/// QUIC version 2.
pub const VERSION_2: u32 = 0x6b33_43cf;

/// Length of the longest connection ID of versions 1 and 2, in bytes.
const LONGEST_CID: usize = 20;
/// Minimum length of a client's first datagram, in bytes (RFC 9000, section 14.1).
const SMALLEST_INITIAL: usize = 1200;

/// A connection ID of 0-20 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cid {
    length: u8,
    bytes: [u8; LONGEST_CID],
}

impl Cid {
    /// Returns a connection ID of the bytes `from`; `None` if there are more bytes than versions 1
    /// and 2 allow.
    pub fn new(from: &[u8]) -> Option<Cid> {
        let mut bytes = [0; LONGEST_CID];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Cid { length: from.len() as u8, bytes })
    }

    /// Returns the bytes of the ID.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Returns whether a packet with a short header carries this ID. A short header does not state
    /// the length of its ID. So this ID is compared with the same number of bytes of the packet.
    pub fn leads(&self, short_packet: &[u8]) -> bool {
        short_packet.get(1..).is_some_and(|after| after.starts_with(self.bytes()))
    }
}

impl fmt::Debug for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The type of a packet with a long header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Packet with the first flight. All observers can compute its keys.
    Initial,
    /// Packet with early data (0-RTT).
    ZeroRtt,
    /// Packet with the encrypted part of the handshake.
    Handshake,
    /// Packet with which the server requests proof of the client's address.
    Retry,
    /// Packet that states that the server supports none of the client's versions.
    VersionNegotiation,
}

/// The fields of a QUIC long header that the splitter uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Long {
    /// Type of the packet.
    pub kind: Kind,
    /// The receiver's connection ID.
    pub destination: Cid,
    /// The sender's connection ID.
    pub source: Cid,
}

/// Returns whether the first packet in a datagram has a long header.
pub fn has_long_header(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|byte| byte & 0x80 != 0)
}

/// Returns whether `datagram` can be a client's first datagram: it has at least 1,200 bytes, and
/// begins with an Initial packet of a known version.
pub fn is_first(datagram: &[u8]) -> bool {
    datagram.len() >= SMALLEST_INITIAL
        && packets(datagram).next().is_some_and(|packet| packet.kind == Kind::Initial)
}

/// Returns whether `datagram` begins with a packet that a client sends during its handshake. Only
/// servers send Retry and Version Negotiation (RFC 9000, sections 17.2.1 and 17.2.5).
pub fn is_of_a_client(datagram: &[u8]) -> bool {
    let of_both = [Kind::Initial, Kind::ZeroRtt, Kind::Handshake];
    packets(datagram).next().is_some_and(|packet| of_both.contains(&packet.kind))
}

/// Returns whether `next` belongs to the same QUIC connection as `first`. A client's handshake
/// packet agrees, and so does a server's long header with the client's connection ID. Other QUIC
/// packets are no evidence: they may belong to an older connection on the same ports, or to
/// another version.
fn follow(first: &[u8], next: &[u8], side: Side) -> Verdict {
    let is_short = next.first().is_some_and(|byte| byte & 0xc0 == 0x40);
    let agrees = match side {
        Side::Client => is_of_a_client(next),
        Side::Server => {
            let ours = ids(first).map(|(_, source)| source);
            has_long_header(next) && ours.is_some() && ids(next).map(|ids| ids.0) == ours
        }
    };
    match agrees {
        true => Verdict::Agrees,
        false if is_short || has_long_header(next) => Verdict::Open,
        false => Verdict::Contradicts,
    }
}

/// Returns the receiver's and the sender's connection ID of a long header of any version; `None`
/// if there is no such header.
fn ids(datagram: &[u8]) -> Option<(Cid, Cid)> {
    let mut reader = Reader(datagram);
    reader.take(5)?;
    Some((reader.cid()?, reader.cid()?))
}

/// Returns the packets with long headers in a datagram, in order. Stops at the first packet that
/// has a short header or is malformed.
///
/// Coalesced packets (RFC 9000, section 12.2) are separated by their length fields. A packet with
/// a short header can only be the last.
pub fn packets(datagram: &[u8]) -> impl Iterator<Item = Long> + '_ {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let (packet, after) = long(rest)?;
        rest = after;
        Some(packet)
    })
}

/// Returns whether a datagram ends with a packet with a short header, after packets with long
/// headers.
///
/// After the last packet, some stacks put zero bytes as padding. These are no packet, because the
/// fixed bit (RFC 9000, section 17.3.1) is 0 there.
pub fn ends_short(datagram: &[u8]) -> bool {
    let mut rest = datagram;
    while let Some((_, after)) = long(rest) {
        rest = after;
    }
    rest.first().is_some_and(|first| first & 0xc0 == 0x40)
}

/// Reads one packet with a long header. Returns the packet and the rest of the datagram. Returns
/// `None` if the packet has a short header, an unknown version or a wrong length.
fn long(datagram: &[u8]) -> Option<(Long, &[u8])> {
    let mut reader = Reader(datagram);
    let first = reader.byte()?;
    if first & 0x80 == 0 {
        return None;
    }
    let version = u32::from_be_bytes(*reader.0.first_chunk()?);
    reader.take(4)?;
    let destination = reader.cid()?;
    let source = reader.cid()?;
    let kind = kind(first, version)?;
    let rest = match kind {
        Kind::VersionNegotiation | Kind::Retry => &[],
        Kind::Initial => {
            let token = reader.varint()?;
            reader.take(token)?;
            reader.after_payload()?
        }
        Kind::ZeroRtt | Kind::Handshake => reader.after_payload()?,
    };
    Some((Long { kind, destination, source }, rest))
}

/// Returns the type of a packet from its `first` byte; `None` if the version is unknown. The type
/// bits differ between versions on purpose (RFC 9369, section 3.2).
fn kind(first: u8, version: u32) -> Option<Kind> {
    let bits = first >> 4 & 0b11;
    match version {
        0 => Some(Kind::VersionNegotiation),
        VERSION_1 => {
            Some([Kind::Initial, Kind::ZeroRtt, Kind::Handshake, Kind::Retry][usize::from(bits)])
        }
        VERSION_2 => {
            Some([Kind::Retry, Kind::Initial, Kind::ZeroRtt, Kind::Handshake][usize::from(bits)])
        }
        _ => None,
    }
}

/// A datagram that is read from its front. Every read returns `None` if the datagram ends too
/// soon.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn cid(&mut self) -> Option<Cid> {
        let length = self.byte()?;
        self.take(usize::from(length)).and_then(Cid::new)
    }

    /// Reads a variable-length integer (RFC 9000, section 16). Returns `None` if it does not fit
    /// `usize`.
    fn varint(&mut self) -> Option<usize> {
        let first = self.byte()?;
        let more = self.take((1 << (first >> 6)) - 1)?;
        let value =
            more.iter().fold(u64::from(first & 0x3f), |value, &byte| value << 8 | u64::from(byte));
        usize::try_from(value).ok()
    }

    /// Reads the packet's length field, skips the payload of that length, and returns the bytes
    /// after the payload. Returns `None` if the datagram ends before that.
    fn after_payload(&mut self) -> Option<&'a [u8]> {
        let length = self.varint()?;
        self.take(length)?;
        Some(self.0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Builds a packet with a long header for tests, with `length` bytes after the length field.
    pub(crate) fn long_packet(
        bits: u8,
        version: u32,
        destination: &[u8],
        source: &[u8],
        length: u16,
    ) -> Vec<u8> {
        let mut packet = vec![0xc0 | bits << 4];
        packet.extend(version.to_be_bytes());
        packet.push(destination.len() as u8);
        packet.extend(destination);
        packet.push(source.len() as u8);
        packet.extend(source);
        let is_initial = bits == u8::from(version == VERSION_2);
        packet.extend(is_initial.then_some(0));
        packet.extend((0x4000 | length).to_be_bytes());
        packet.resize(packet.len() + usize::from(length), 0);
        packet
    }

    fn kinds(datagram: &[u8]) -> Vec<Kind> {
        packets(datagram).map(|packet| packet.kind).collect()
    }

    #[test]
    fn coalesced_packets_are_all_found() {
        let mut datagram = long_packet(0, VERSION_1, b"server__", b"cli", 100);
        datagram.extend(long_packet(2, VERSION_1, b"server__", b"cli", 50));
        datagram.extend([0x40; 30]);
        assert_eq!(kinds(&datagram), [Kind::Initial, Kind::Handshake]);
    }

    #[test]
    fn version_2_numbers_its_types_differently() {
        assert_eq!(kinds(&long_packet(1, VERSION_2, b"s", b"c", 10)), [Kind::Initial]);
        assert_eq!(kinds(&long_packet(3, VERSION_2, b"s", b"c", 10)), [Kind::Handshake]);
        assert_eq!(kinds(&long_packet(0, VERSION_2, b"s", b"c", 10)), [Kind::Retry]);
    }

    #[test]
    fn connection_ids_are_read() {
        let datagram = long_packet(2, VERSION_1, b"server__", b"", 10);
        let packet = packets(&datagram).next().unwrap();
        assert_eq!(
            (packet.destination.bytes(), packet.source.bytes()),
            (&b"server__"[..], &b""[..])
        );
    }

    #[test]
    fn a_first_datagram_is_a_padded_initial() {
        assert!(is_first(&long_packet(0, VERSION_1, b"12345678", b"", 1200)));
        assert!(!is_first(&long_packet(0, VERSION_1, b"12345678", b"", 1000)), "not padded");
        assert!(
            !is_first(&long_packet(2, VERSION_1, b"12345678", b"", 1200)),
            "a Handshake packet"
        );
        assert!(
            !is_first(&long_packet(0, 0xdead_beef, b"12345678", b"", 1200)),
            "an unknown version"
        );
    }

    #[test]
    fn every_truncation_is_survived() {
        let datagram = long_packet(0, VERSION_1, b"server__", b"client__", 60);
        for length in 0..datagram.len() {
            assert_eq!(kinds(&datagram[..length]), [], "cut to {length}");
        }
        assert_eq!(kinds(&datagram), [Kind::Initial]);
    }

    #[test]
    fn a_short_header_may_carry_an_id_that_leads_it() {
        let cid = Cid::new(b"abcd").unwrap();
        assert!(cid.leads(b"\x40abcdefgh"));
        assert!(!cid.leads(b"\x40abc"));
        assert!(Cid::new(b"").unwrap().leads(b"\x40"));
        assert_eq!(Cid::new(&[0; 21]), None);
    }

    #[test]
    fn what_only_servers_send_is_of_no_client() {
        assert!(is_of_a_client(&long_packet(2, VERSION_1, b"server__", b"cli", 50)));
        assert!(!is_of_a_client(&long_packet(3, VERSION_1, b"server__", b"cli", 50)), "Retry");
        assert!(!is_of_a_client(&long_packet(0, 0, b"server__", b"cli", 50)), "negotiation");
        let mut srt = vec![0x80, 0, 0, 0, 0, 0, 0, 0];
        srt.resize(64, 0);
        assert!(!is_of_a_client(&srt), "SRT's handshake");
    }

    #[test]
    fn an_answer_bears_the_clients_id_and_no_short_header_comes_before_it() {
        let first = &long_packet(0, VERSION_1, b"invented", b"client__", 1200)[..64];
        let verdict = |next: &[u8], side| follow(first, next, side);
        let answer = |id: &[u8]| long_packet(0, VERSION_1, id, b"server__", 1200);
        assert_eq!(verdict(&answer(b"client__"), Side::Server), Verdict::Agrees);
        assert_eq!(verdict(&answer(b"another_"), Side::Server), Verdict::Open);
        assert_eq!(verdict(&[0x40; 60], Side::Server), Verdict::Open, "another connection");
        assert_eq!(verdict(&[0x02; 60], Side::Server), Verdict::Contradicts);
        assert_eq!(verdict(first, Side::Client), Verdict::Open, "cut short");
        assert_eq!(verdict(&answer(b"x"), Side::Client), Verdict::Agrees);
        assert_eq!(verdict(&[0x40; 60], Side::Client), Verdict::Open);
        assert_eq!(verdict(&[0x17; 60], Side::Client), Verdict::Contradicts);
    }
}
