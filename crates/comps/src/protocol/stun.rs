//! Recognition of STUN messages (RFC 8489, section 5) by type, length and magic cookie. Calls
//! (WebRTC) and sessions with TURN servers begin with such messages.
//!
//! The ends of a call agree on pairs of addresses, and a TURN server identifies its client by its
//! address.

use super::{Counter, Family, Mark, Protocol, Side, Verdict, dtls};

/// Description of STUN in the list of protocols, [`FAMILIES`](super::FAMILIES).
pub const FAMILY: Family = Family {
    protocol: Protocol::Stun,
    name: "stun",
    title: "STUN (calls, TURN)",
    selectable: false,
    mark: |datagram| Mark::strong(is_message(datagram)),
    follow,
    one_path: Some("both ends of a call recognise each other by their addresses"),
    counter: Counter::Looked,
    guide: "any-program",
};

const HEADER: usize = 20;
/// The magic cookie of each STUN message (RFC 8489, section 5).
const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

/// Returns whether `datagram` is a STUN message.
pub fn is_message(datagram: &[u8]) -> bool {
    let Some((header, rest)) = datagram.split_at_checked(HEADER) else { return false };
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    header[0] < 0x40 && header[4..8] == COOKIE && length == rest.len() && length % 4 == 0
}

/// Returns whether `next` belongs to the same call as `first`. A call's media and DTLS packets
/// share the ports of its STUN messages. The first byte of a datagram distinguishes these
/// protocols (RFC 7983, section 7).
fn follow(first: &[u8], next: &[u8], side: Side) -> Verdict {
    let is_answer = side == Side::Client || next.get(8..HEADER) == first.get(8..HEADER);
    match next.first() {
        _ if is_message(next) && is_answer => Verdict::Agrees,
        _ if dtls::is_record(next) => Verdict::Agrees,
        Some(0..=3 | 16..=79 | 128..=191) => Verdict::Open,
        _ => Verdict::Contradicts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a binding request with `attributes` bytes of attributes.
    fn request(attributes: u8) -> Vec<u8> {
        let head = [&[0, 1, 0, attributes][..], &COOKIE, &[7; 12]].concat();
        [head, vec![0xa5; usize::from(attributes)]].concat()
    }

    #[test]
    fn a_message_fills_its_datagram() {
        assert!(is_message(&request(0)) && is_message(&request(88)));
        let sound = request(8);
        assert!((0..sound.len()).all(|length| !is_message(&sound[..length])));
        assert!(!is_message(&[&sound[..], &[0]].concat()));
    }

    #[test]
    fn other_types_lengths_and_numbers_are_none() {
        assert!(!is_message(&request(6)), "attributes are padded to four bytes");
        let changed = |at: usize, byte: u8| {
            let mut message = request(8);
            message[at] = byte;
            message
        };
        assert!(!is_message(&changed(0, 0x40)), "ChannelData");
        assert!(!is_message(&changed(4, 0x20)));
    }

    #[test]
    fn a_retry_an_answer_and_dtls_agree_and_media_may_follow() {
        let first = request(8);
        let agrees = |next: &[u8], side| follow(&first, next, side);
        assert_eq!(agrees(&first, Side::Client), Verdict::Agrees);
        let answer = [&[1, 1], &request(12)[2..]].concat();
        assert_eq!(agrees(&answer, Side::Server), Verdict::Agrees);
        let other = [&answer[..8], &[9; 12], &answer[20..]].concat();
        assert_eq!(agrees(&other, Side::Server), Verdict::Open, "another transaction");
        assert_eq!(agrees(&[0x80; 60], Side::Client), Verdict::Open, "RTP");
        assert_eq!(agrees(&[0x55; 60], Side::Client), Verdict::Contradicts);
    }
}
