//! [`Protocol::recognise`]: one answer, and the one that the protocols' own modules give.

use anabranch_comps::Protocol;
use anabranch_comps::protocol::{dns, dtls, mosh, quic, stun, wireguard};

/// The protocol that is named claims the datagram, and none that is asked before it does.
pub fn check(datagram: &[u8]) {
    let claims = [
        (Protocol::WireGuard, wireguard::Message::of(datagram).is_some()),
        (Protocol::Quic, quic::is_first(datagram)),
        (Protocol::Dtls, dtls::is_record(datagram)),
        (Protocol::Stun, stun::is_message(datagram)),
        (Protocol::Dns, dns::is_query(datagram)),
        (Protocol::Mosh, mosh::is_from_client(datagram)),
        (Protocol::Other, true),
    ];
    let first = claims.iter().find(|(_, claimed)| *claimed).map(|(protocol, _)| *protocol);
    let named = Protocol::recognise(datagram);
    assert_eq!(Some(named), first, "{datagram:02x?}");
    // A record of DTLS is a header of 13 bytes and at least one more.
    let least = if named == Protocol::Dtls { 14 } else { 17 };
    assert!(named == Protocol::Other || datagram.len() >= least, "none of them is so short");
}
