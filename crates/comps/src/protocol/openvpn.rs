//! Recognition of OpenVPN by the opcodes, session IDs and packet IDs of versions 2.4 to 2.6.
//!
//! Each packet begins with a 5-bit opcode and a 3-bit key ID. Data packets with a peer ID
//! (`P_DATA_V2`) carry a packet ID in clear if the cipher is an AEAD. Data packets without a peer
//! ID belong to a server that identifies each client by its address.

use super::{Counter, Family, Mark, Protocol, Side, Verdict, be32, goes_on};

/// Description of OpenVPN in the list of protocols, [`FAMILIES`](super::FAMILIES).
pub const FAMILY: Family = Family {
    protocol: Protocol::OpenVpn,
    name: "openvpn",
    title: "OpenVPN",
    selectable: false,
    mark,
    follow,
    one_path: None,
    counter: Counter::Looked,
    guide: "any-program",
};

/// Opcode P_CONTROL_SOFT_RESET_V1.
const SOFT_RESET: u8 = 3;
/// Opcode P_CONTROL_V1.
const CONTROL: u8 = 4;
/// Opcode P_ACK_V1.
const ACK: u8 = 5;
/// Opcode P_CONTROL_HARD_RESET_CLIENT_V2.
const HARD_RESET_CLIENT: u8 = 7;
/// Opcode P_CONTROL_HARD_RESET_SERVER_V2.
const HARD_RESET_SERVER: u8 = 8;
/// Opcode P_DATA_V2.
const DATA: u8 = 9;
/// Opcode P_CONTROL_HARD_RESET_CLIENT_V3.
const HARD_RESET_CLIENT_V3: u8 = 10;

/// Length in bytes of a plain reset packet: opcode, session ID, an empty list of acknowledgements,
/// message number.
const PLAIN: usize = 1 + 8 + 1 + 4;
/// Length in bytes of a reset packet with `--tls-crypt`, which adds a packet ID, a time and a tag
/// of 32 bytes.
const WRAPPED: usize = PLAIN + 4 + 4 + 32;
/// Lengths in bytes of a reset packet with `--tls-auth` by SHA-1, SHA-256 and SHA-512. This option
/// adds a tag (20, 32 or 64 bytes), a packet ID and a time (4 bytes each).
const SIGNED: [usize; 3] = [PLAIN + 20 + 8, PLAIN + 32 + 8, PLAIN + 64 + 8];
/// Length in bytes of the shortest data packet: opcode, peer ID, packet ID, and the tag of an
/// AEAD.
const SHORTEST_DATA: usize = 1 + 3 + 4 + 16;
/// Packet IDs that a client's first packet may have. In the second value, the upper byte asks the
/// server to answer without storing state.
const FIRST: [u32; 2] = [0x0000_0001, 0x0f00_0001];

fn mark(datagram: &[u8]) -> Mark {
    match (opcode(datagram), datagram.len()) {
        (Some(HARD_RESET_CLIENT), length) => Mark::strong(is_reset(datagram, length)),
        (Some(HARD_RESET_CLIENT_V3), length) => {
            Mark::strong(length > WRAPPED && is_wrapped(datagram))
        }
        (Some(DATA), length) => Mark::weak(length >= SHORTEST_DATA),
        _ => Mark::None,
    }
}

/// Returns whether `datagram`, of `length` bytes, is a client's first packet: a reset that is
/// plain, or protected by `--tls-crypt` or `--tls-auth`.
fn is_reset(datagram: &[u8], length: usize) -> bool {
    let ends_plain = || datagram.ends_with(&[0; 5]);
    let is_first = |at: usize| be32(datagram, at).is_some_and(|id| FIRST.contains(&id));
    length == PLAIN && ends_plain()
        || length == WRAPPED && is_wrapped(datagram)
        || SIGNED.contains(&length) && ends_plain() && is_first(length - 13)
}

fn is_wrapped(datagram: &[u8]) -> bool {
    be32(datagram, 9).is_some_and(|id| FIRST.contains(&id))
}

fn opcode(datagram: &[u8]) -> Option<u8> {
    datagram.first().map(|first| first >> 3)
}

/// Returns whether `next` belongs to the same OpenVPN session as `first`. A handshake continues
/// with its session ID. Data packets continue with the same peer ID and the next packet ID. The
/// packet ID is in clear only with an AEAD cipher.
fn follow(first: &[u8], next: &[u8], side: Side) -> Verdict {
    let packet_id = |bytes| u64::from(be32(bytes, 4).unwrap_or_default());
    match (opcode(first), side, opcode(next)) {
        (Some(DATA), Side::Client, Some(DATA)) => Verdict::whether(
            next[..4.min(next.len())] == first[..4] && goes_on(packet_id(first), packet_id(next)),
        ),
        (Some(DATA), _, Some(SOFT_RESET | CONTROL | ACK | DATA)) => Verdict::Open,
        (Some(DATA), _, _) => Verdict::Contradicts,
        (_, Side::Server, Some(HARD_RESET_SERVER)) => Verdict::Agrees,
        (_, Side::Server, _) => Verdict::Contradicts,
        (_, Side::Client, Some(CONTROL | ACK | HARD_RESET_CLIENT | HARD_RESET_CLIENT_V3)) => {
            Verdict::whether(next.get(1..9) == first.get(1..9))
        }
        (_, Side::Client, _) => Verdict::Contradicts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a packet with the opcode `opcode`, a session ID, and then the bytes `rest`.
    fn packet(opcode: u8, rest: &[u8]) -> Vec<u8> {
        [&[opcode << 3], &[0xb5; 8][..], rest].concat()
    }

    fn data(peer: u8, number: u32) -> Vec<u8> {
        [&[DATA << 3, 0, 0, peer][..], &number.to_be_bytes(), &[0xa5; 90]].concat()
    }

    #[test]
    fn first_packets_are_known_plain_wrapped_and_signed() {
        assert_eq!(mark(&packet(7, &[0; 5])), Mark::Strong, "plain");
        let wrapped = [&[0, 0, 0, 1][..], &[0x6b; 41]].concat();
        assert_eq!(mark(&packet(7, &wrapped)), Mark::Strong, "tls-crypt");
        let asking = [&[0x0f, 0, 0, 1][..], &[0x6b; 300]].concat();
        assert_eq!(mark(&packet(10, &asking)), Mark::Strong, "tls-crypt-v2");
        for tag in [20, 32, 64] {
            let signed = [&vec![0x11; tag][..], &[0, 0, 0, 1, 9, 9, 9, 9], &[0; 5]].concat();
            assert_eq!(mark(&packet(7, &signed)), Mark::Strong, "tls-auth, {tag} bytes");
        }
    }

    #[test]
    fn other_packets_are_none_or_weak() {
        assert_eq!(mark(&data(0, 4)), Mark::Weak);
        for other in
            [packet(7, &[1; 5]), packet(7, &[0; 6]), packet(7, &[2; 45]), packet(4, &[0; 5])]
        {
            assert_eq!(mark(&other), Mark::None, "{other:02x?}");
        }
        assert_eq!(mark(&[]), Mark::None);
    }

    #[test]
    fn a_handshake_goes_on_under_its_session_id() {
        let first = packet(7, &[0; 5]);
        assert_eq!(follow(&first, &packet(4, &[0; 200]), Side::Client), Verdict::Agrees);
        let other = [&[CONTROL << 3], &[0xb6; 30][..]].concat();
        assert_eq!(follow(&first, &other, Side::Client), Verdict::Contradicts);
        assert_eq!(follow(&first, &packet(8, &[1; 17]), Side::Server), Verdict::Agrees);
        assert_eq!(follow(&first, &[0x17; 30], Side::Server), Verdict::Contradicts);
    }

    #[test]
    fn data_go_on_by_their_packet_id() {
        let first = data(3, 4);
        assert_eq!(follow(&first, &data(3, 5), Side::Client), Verdict::Agrees);
        for other in [data(3, 4), data(2, 5), data(3, 900), vec![DATA << 3]] {
            let verdict = follow(&first, &other, Side::Client);
            assert_eq!(verdict, Verdict::Contradicts, "{other:02x?}");
        }
        assert_eq!(follow(&first, &packet(5, &[0; 20]), Side::Client), Verdict::Open);
        assert_eq!(follow(&first, &data(0, 77), Side::Server), Verdict::Open);
    }
}
