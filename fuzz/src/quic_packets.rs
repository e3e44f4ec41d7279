//! QUIC headers: the fields found lie in the datagram, the search ends, and the result does not
//! depend on later bytes.

use anabranch_comps::protocol::quic::{self, Cid, Kind, Long, VERSION_1};

/// Size of the shortest long header: form, version and two empty connection IDs.
const SHORTEST: usize = 1 + 4 + 1 + 1;

/// Checks that the walk over coalesced packets ends and finds nothing that is not there, and that
/// bytes before or after a packet do not change it.
pub fn check(datagram: &[u8]) {
    let packets: Vec<Long> = quic::packets(datagram).take(datagram.len() + 1).collect();
    assert!(packets.len() <= datagram.len() / SHORTEST, "{} packets", packets.len());
    assert!(packets.is_empty() || quic::has_long_header(datagram), "long headers are marked");
    packets.iter().for_each(|packet| lies_in(packet, datagram));
    nothing_follows_a_retry(&packets);
    let is_first = datagram.len() >= 1200
        && packets.first().is_some_and(|packet| packet.kind == Kind::Initial);
    assert_eq!(quic::is_first(datagram), is_first);
    a_shorter_datagram_holds_no_other_packets(datagram, &packets);
    a_packet_in_front_adds_itself(datagram, &packets);
}

fn lies_in(packet: &Long, datagram: &[u8]) {
    for cid in [packet.destination, packet.source] {
        let bytes = cid.bytes();
        assert!(bytes.len() <= 20, "RFC 9000, section 17.2");
        let is_there = bytes.is_empty() || datagram.windows(bytes.len()).any(|part| part == bytes);
        assert!(is_there, "{cid:?} is nowhere in the datagram");
    }
}

/// Checks that nothing follows a Retry or Version Negotiation packet, which have no length.
fn nothing_follows_a_retry(packets: &[Long]) {
    let open = |packet: &Long| matches!(packet.kind, Kind::Retry | Kind::VersionNegotiation);
    let at = packets.iter().position(open).unwrap_or(packets.len());
    assert!(at + 1 >= packets.len(), "{packets:?}");
}

fn a_shorter_datagram_holds_no_other_packets(datagram: &[u8], packets: &[Long]) {
    for cut in [datagram.len() / 2, datagram.len().saturating_sub(1)] {
        let fewer: Vec<Long> = quic::packets(&datagram[..cut]).collect();
        assert!(packets.starts_with(&fewer), "{fewer:?} is no beginning of {packets:?}");
    }
}

fn a_packet_in_front_adds_itself(datagram: &[u8], packets: &[Long]) {
    let payload = &datagram[..datagram.len().min(63)];
    let front = handshake(b"destination", b"source", payload);
    let both = [&front, datagram].concat();
    let found: Vec<Long> = quic::packets(&both).collect();
    let (first, rest) = found.split_first().expect("a valid packet is found");
    assert_eq!(first.kind, Kind::Handshake);
    assert_eq!(Some(first.destination), Cid::new(b"destination"));
    assert_eq!(Some(first.source), Cid::new(b"source"));
    assert_eq!(rest, packets);
    assert_eq!(quic::ends_short(&both), quic::ends_short(datagram));
}

/// Returns a Handshake packet of version 1 with a payload of less than 64 bytes.
fn handshake(destination: &[u8], source: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xe0];
    packet.extend(VERSION_1.to_be_bytes());
    for part in [destination, source, payload] {
        packet.push(part.len() as u8);
        packet.extend(part);
    }
    packet
}
