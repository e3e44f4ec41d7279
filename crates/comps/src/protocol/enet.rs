//! Recognition of ENet by its connection request: a header without a peer ID, and one command of
//! 48 bytes.

use super::{Counter, Family, Mark, Protocol, Side, Verdict, be32};

/// Description of ENet in the list of protocols, [`FAMILIES`](super::FAMILIES).
pub const FAMILY: Family = Family {
    protocol: Protocol::Enet,
    name: "enet",
    title: "ENet",
    selectable: false,
    mark: |datagram| Mark::strong(request(datagram).is_some()),
    follow,
    one_path: Some("its server drops packets from another address of the client"),
    counter: Counter::Looked,
    guide: "any-program",
};

/// First bytes of the header of a connection request: no peer ID yet (0xfff), and the flag for a
/// time of sending.
const NOBODY: [u8; 2] = [0x8f, 0xff];
/// Lengths of a header in bytes: with the time of sending, and with time and checksum.
const HEADERS: [usize; 2] = [4, 8];
/// Length of the connect command, in bytes.
const COMMAND: usize = 48;
/// First bytes of a CONNECT command: its type with the flag that requests an acknowledgement, no
/// channel (255), and sequence number 1.
const CONNECT: [u8; 4] = [0x82, 0xff, 0, 1];
/// First bytes of a VERIFY_CONNECT command, with the same fields as [`CONNECT`].
const VERIFY: [u8; 4] = [0x83, 0xff, 0, 1];
/// Packet sizes in bytes that a peer may request (ENet's own limits).
const SIZES: std::ops::RangeInclusive<u32> = 576..=4096;

/// Returns the offset of the command in `datagram` if `datagram` is a connection request, else
/// `None`.
fn request(datagram: &[u8]) -> Option<usize> {
    let at = HEADERS.into_iter().find(|header| datagram.len() == header + COMMAND)?;
    let is_request = datagram.starts_with(&NOBODY)
        && datagram[at..].starts_with(&CONNECT)
        && be32(datagram, at + 8).is_some_and(|size| SIZES.contains(&size));
    is_request.then_some(at)
}

fn follow(_: &[u8], next: &[u8], side: Side) -> Verdict {
    let verifies = |at: &usize| next.get(*at..).is_some_and(|rest| rest.starts_with(&VERIFY));
    Verdict::whether(match side {
        Side::Client => request(next).is_some(),
        Side::Server => HEADERS.iter().any(verifies),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(nobody: [u8; 2], command: [u8; 4], checksum: usize) -> Vec<u8> {
        let head = [&nobody[..], &[0x3d, 0xea], &vec![7; checksum], &command].concat();
        let mut bytes = [&head[..], &[0, 0, 0xff, 0xff, 0, 0, 5, 0x78]].concat();
        bytes.resize(4 + checksum + COMMAND, 0);
        bytes
    }

    #[test]
    fn a_request_is_known_with_and_without_a_checksum() {
        for checksum in [0, 4] {
            let first = packet(NOBODY, CONNECT, checksum);
            assert_eq!(Protocol::recognise(&first), (Protocol::Enet, Mark::Strong));
            assert!((0..first.len()).all(|length| request(&first[..length]).is_none()));
            assert_eq!(follow(&first, &first, Side::Client), Verdict::Agrees);
            let answer = packet([0x80, 0], VERIFY, checksum);
            assert_eq!(follow(&first, &answer, Side::Server), Verdict::Agrees);
        }
        let mut odd = packet(NOBODY, CONNECT, 0);
        odd[12] = 1;
        assert_eq!(request(&odd), None, "packets of 16 MB");
        assert_eq!(follow(&odd, &[0x80, 0, 1], Side::Server), Verdict::Contradicts);
    }
}
