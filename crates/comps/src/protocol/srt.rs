//! Recognition of SRT by a caller's first handshake packet (draft-sharabayko-srt-01, section
//! 3.2.1): a control packet of 64 bytes whose destination socket ID is 0.

use super::{Counter, Family, Mark, Protocol, Side, Verdict, be32};

/// Description of SRT in the list of protocols, [`FAMILIES`](super::FAMILIES).
pub const FAMILY: Family = Family {
    protocol: Protocol::Srt,
    name: "srt",
    title: "SRT",
    selectable: false,
    mark: |datagram| Mark::strong(is_induction(datagram)),
    follow,
    one_path: Some(
        "its server sends only to the address from which the client began the connection",
    ),
    counter: Counter::Looked,
    guide: "any-program",
};

/// Length of the header of every packet, in bytes.
const HEADER: usize = 16;
/// Length of a handshake packet without extensions, in bytes.
const HANDSHAKE: usize = HEADER + 48;
/// First bytes of a control packet of type 0 (handshake), without subtype.
const CONTROL: [u8; 4] = [0x80, 0, 0, 0];
/// Value of the version field in a caller's (client's) first handshake packet.
const VERSION: u32 = 4;
/// Value of the handshake type field in a caller's (client's) first handshake packet.
const INDUCTION: u32 = 1;
/// Offset of the type in a handshake packet.
const TYPE: usize = HEADER + 20;
/// Offset of the sender's socket ID in a handshake packet.
const SOCKET: usize = HEADER + 24;

/// Returns whether `datagram` is the first handshake packet of a caller.
pub fn is_induction(datagram: &[u8]) -> bool {
    datagram.len() == HANDSHAKE
        && datagram.starts_with(&CONTROL)
        && be32(datagram, 4) == Some(0)
        && be32(datagram, 12) == Some(0)
        && be32(datagram, HEADER) == Some(VERSION)
        && be32(datagram, TYPE) == Some(INDUCTION)
}

fn follow(first: &[u8], next: &[u8], side: Side) -> Verdict {
    let is_handshake = next.len() >= HANDSHAKE && next.starts_with(&CONTROL);
    Verdict::whether(match side {
        Side::Client => is_handshake && be32(next, SOCKET) == be32(first, SOCKET),
        Side::Server => is_handshake && be32(next, 12) == be32(first, SOCKET),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a handshake from the socket ID `socket` to the socket ID `to`, with `more` bytes of
    /// extensions.
    fn handshake(to: u8, socket: u8, more: usize) -> Vec<u8> {
        let mut bytes = vec![0; HANDSHAKE + more];
        (bytes[0], bytes[15], bytes[HEADER + 3]) = (0x80, to, 4);
        (bytes[TYPE + 3], bytes[SOCKET]) = (1, socket);
        bytes[SOCKET + 3] = socket;
        bytes
    }

    #[test]
    fn a_callers_first_packet_is_known() {
        let first = handshake(0, 7, 0);
        assert!(is_induction(&first));
        assert_eq!(Protocol::recognise(&first), (Protocol::Srt, Mark::Strong));
        assert!((0..first.len()).all(|length| !is_induction(&first[..length])));
        assert!(!is_induction(&handshake(9, 7, 0)) && !is_induction(&handshake(0, 7, 16)));
    }

    #[test]
    fn the_handshake_goes_on_between_the_same_sockets() {
        let first = handshake(0, 7, 0);
        assert_eq!(follow(&first, &handshake(0, 7, 16), Side::Client), Verdict::Agrees);
        assert_eq!(follow(&first, &handshake(0, 8, 16), Side::Client), Verdict::Contradicts);
        let mut answer = handshake(7, 3, 0);
        answer[12] = 7;
        assert_eq!(follow(&first, &answer, Side::Server), Verdict::Agrees);
        assert_eq!(follow(&first, &[0x16; 1472], Side::Server), Verdict::Contradicts);
    }
}
