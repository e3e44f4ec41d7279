//! The small protocols: datagrams that a recogniser claims, and changed ones that it must not
//! claim.

use anabranch_comps::protocol::wireguard::Message;
use anabranch_comps::protocol::{dns, mosh};

/// Checks that each recogniser keeps to its protocol's marks.
pub fn check(datagram: &[u8]) {
    if let Some(message) = Message::of(datagram) {
        wireguard(datagram, message);
    }
    if dns::is_query(datagram) {
        query(datagram);
    }
    if mosh::is_from_client(datagram) {
        client_of_mosh(datagram);
    }
}

fn wireguard(datagram: &[u8], message: Message) {
    let lengths = match message {
        Message::Initiation => 148..=148,
        Message::Response => 92..=92,
        Message::CookieReply => 64..=64,
        Message::Keepalive => 32..=32,
        Message::Data => 33..=65_535,
    };
    assert!(lengths.contains(&datagram.len()), "{message:?} of {} bytes", datagram.len());
    let is_handshake = !matches!(message, Message::Keepalive | Message::Data);
    assert_eq!(message.is_handshake(), is_handshake);
    for reserved in 1..4 {
        let changed = with(datagram, reserved, 0x80);
        assert_eq!(Message::of(&changed), Some(message), "reserved byte {reserved}");
    }
    let shorter = Message::of(&datagram[..datagram.len() - 1]);
    let is_data = message == Message::Data;
    assert!(is_data || shorter.is_none(), "one byte less is {shorter:?}");
}

fn query(datagram: &[u8]) {
    assert!(!dns::is_query(&with(datagram, 2, 0x80)), "a response");
    assert!(!dns::is_query(&with(datagram, 5, 0x02)), "other than one question");
    let has_more = datagram[10..12] != [0, 0];
    let ends_right = |bytes: &[u8]| has_more || !dns::is_query(bytes);
    assert!(ends_right(&datagram[..datagram.len() - 1]), "cut short");
    assert!(ends_right(&[datagram, &[0]].concat()), "with something behind it");
}

fn client_of_mosh(datagram: &[u8]) {
    assert!((38..=1400).contains(&datagram.len()), "{} bytes", datagram.len());
    assert!(!mosh::is_from_client(&with(datagram, 0, 0x80)), "from the server");
}

/// Returns the datagram with the bits `bits` of one byte flipped.
fn with(datagram: &[u8], at: usize, bits: u8) -> Vec<u8> {
    let mut changed = datagram.to_vec();
    changed[at] ^= bits;
    changed
}
