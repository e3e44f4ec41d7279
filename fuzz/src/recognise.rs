//! The table of protocols: one result, which is that of the first matching entry; a recogniser
//! that is never certain after one datagram.

use anabranch_comps::Protocol;
use anabranch_comps::protocol::{Confidence, FAMILIES, HEAD, Mark, Recogniser, Side};

/// Checks that the named protocol is the first with a mark in the table, and that every entry
/// accepts any two datagrams in sequence. A session must not be certain before its second
/// datagram.
pub fn check(datagram: &[u8]) {
    let (named, mark) = Protocol::recognise(datagram);
    let first = FAMILIES.iter().find(|family| (family.mark)(datagram) != Mark::None);
    assert_eq!(first.map_or(Protocol::Other, |family| family.protocol), named, "{datagram:02x?}");
    assert_eq!(mark == Mark::None, named == Protocol::Other);
    // A record of DTLS is a header of 13 bytes and at least one more byte.
    assert!(mark == Mark::None || datagram.len() >= 14, "none of them is so short");
    let (one, other) = datagram.split_at(datagram.len() / 2);
    for bytes in [datagram, one, other] {
        follow(bytes, [datagram, one, other]);
    }
    session([datagram, one, other]);
}

/// Checks each of `others` in a session after `first`, for each family with a mark in `first`.
fn follow(first: &[u8], others: [&[u8]; 3]) {
    let head = &first[..first.len().min(HEAD)];
    for family in FAMILIES.iter().filter(|family| (family.mark)(first) != Mark::None) {
        for other in others {
            (family.follow)(head, other, Side::Client);
            (family.follow)(head, other, Side::Server);
        }
    }
}

fn session(datagrams: [&[u8]; 3]) {
    let mut recogniser = Recogniser::default();
    for (index, datagram) in datagrams.into_iter().enumerate() {
        let is_certain = |recogniser: &Recogniser| {
            recogniser.finding().is_some_and(|finding| finding.confidence == Confidence::Certain)
        };
        recogniser.on_client(datagram);
        assert!(index > 0 || !is_certain(&recogniser), "certain of {datagram:02x?}");
        let found = recogniser.finds_numbers(datagram);
        assert!(!found || is_certain(&recogniser), "three datagrams make no counter");
        recogniser.on_server(datagrams[2 - index]);
    }
}
