//! STUN messages (RFC 8489, section 5), with which calls (WebRTC) and TURN begin: a type, a length,
//! and a number that is always the same.
//!
//! A call's ends agree on pairs of addresses, and a TURN server knows its client by his.

const HEADER: usize = 20;
/// The magic cookie.
const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

/// Whether `datagram` is a message.
pub fn is_message(datagram: &[u8]) -> bool {
    let Some((header, rest)) = datagram.split_at_checked(HEADER) else { return false };
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    header[0] < 0x40 && header[4..8] == COOKIE && length == rest.len() && length % 4 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A binding request with attributes of so many bytes.
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
}
