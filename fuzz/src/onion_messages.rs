//! Messages of neighbours and of far ends of circuits: nothing panics, and a parsed message has
//! the same meaning when it is written again.

use anabranch_onion::crypto::Tag;
use anabranch_onion::crypto::lossy::ZEROS;
use anabranch_onion::handshake::extension::{HopRequest, SupportedFeatures};
use anabranch_onion::handshake::{extension, fast, ntor, ntor_v3};
use anabranch_onion::wire::cell::BODY;
use anabranch_onion::wire::crypto::CurveKeys;
use anabranch_onion::wire::extend::{self, Extend};
use anabranch_onion::wire::message::{self, Begin, Format, Sendme};
use anabranch_onion::wire::{link, lossy};

/// Checks an input; the first byte selects the parser of the rest.
pub fn check(input: &[u8]) {
    let Some((&which, data)) = input.split_first() else { return };
    match which % 9 {
        0 => circuits(data),
        1 => streams(data),
        2 => links(data),
        3 => certificates(data),
        4 => relays(data),
        5 => clients(data),
        6 => extensions(data),
        8 => lossy(data),
        _ => cells(data),
    }
}

fn circuits(data: &[u8]) {
    if let Some(wish) = Extend::read(data) {
        assert!(!wish.target.addresses.is_empty());
        let again = Extend::read(&wish.write()).expect("what was understood can be said");
        assert_eq!(again.target.rsa, wish.target.rsa);
        assert_eq!((again.kind, again.handshake), (wish.kind, wish.handshake));
    }
    if let Some((kind, handshake)) = extend::read_create2(data) {
        let body = extend::put_create2(kind, handshake);
        assert_eq!(body, data[..body.len()]);
    }
}

fn streams(data: &[u8]) {
    // A cell holds no more, and everything that a cell holds can be written again.
    let data = &data[..data.len().min(message::DATA)];
    if let Some(begin) = Begin::read(data) {
        assert!(!begin.host.contains(char::is_whitespace));
        let again = begin.write().and_then(|data| Begin::read(&data)).expect("sayable");
        assert_eq!((again.port, again.flags), (begin.port, begin.flags));
        assert!(again.host.eq_ignore_ascii_case(&begin.host));
    }
    if let Some(answers) = message::read_resolved(data) {
        assert_eq!(message::read_resolved(&message::put_resolved(&answers)), Some(answers));
    }
    if let Some(Sendme::Tagged(tag)) = message::read_sendme(data) {
        assert_eq!(message::read_sendme(&message::put_sendme(&tag)), Some(Sendme::Tagged(tag)));
        assert_eq!(Tag::from_bytes(tag.bytes()), Some(tag));
    }
    if let Some(rate) = message::read_xon(data) {
        assert_eq!(message::put_xon(rate), data[..5]);
    }
    let _ = (message::read_resolve(data), message::is_connected(data), message::is_xoff(data));
}

fn links(data: &[u8]) {
    if let Some(info) = link::read_netinfo(data) {
        assert_eq!(link::read_netinfo(&link::put_netinfo(&info)), Some(info));
    }
    if let Some(wanted) = link::read_padding(data) {
        assert_eq!(link::read_padding(&link::put_padding(wanted)), Some(wanted));
    }
    if let Some(version) = link::read_versions(data, &[4, 5]) {
        assert!(version == 4 || version == 5);
    }
    let _ = link::read_challenge(data);
}

/// Checks that nobody without the keys can create certificates that are accepted.
fn certificates(data: &[u8]) {
    let believed = link::read_certs(data, 1_800_000_000);
    assert!(believed.is_err() || data.len() > 500, "{believed:?}");
    assert!(!link::Binding::default().proves(data, &[9; 32]));
}

fn relays(data: &[u8]) {
    let keys = [CurveKeys::from([7; 32])];
    let mut rng = anabranch_multipath::seed::stream(1, 0, "fuzz");
    let _ = fast::accept(&mut rng, data);
    let _ = ntor::accept(&mut rng, &[1; 20], &keys, data);
    let _ = ntor_v3::read(&[1; 32], &keys, ntor_v3::CIRCUIT, data);
}

/// Checks that nobody without the onion key can convince a client.
fn clients(data: &[u8]) {
    let key = *CurveKeys::from([7; 32]).public();
    let mut rng = anabranch_multipath::seed::stream(1, 0, "fuzz");
    assert!(ntor::Client::start(&mut rng, [1; 20], key).0.finish(data).is_err());
    let started = ntor_v3::Client::start(&mut rng, [1; 32], key, b"", ntor_v3::CIRCUIT);
    assert!(started.expect("a sound key").0.finish(data).is_err());
    let _ = fast::Client::start(&mut rng).0.finish(data);
}

fn extensions(data: &[u8]) {
    if let Ok((_, agreed)) =
        extension::answer(data, SupportedFeatures { sendme_inc: Some(31), lossy: true })
    {
        assert!(agreed.sendme_inc.is_none_or(|inc| inc == 31));
    }
    if let Ok(agreed) = extension::read_answer(data, HopRequest::Cgo, 31) {
        assert!(agreed.sendme_inc.is_none_or(|inc| (16..=62).contains(&inc)));
    }
}

fn lossy(data: &[u8]) {
    let mut body = [0; BODY];
    let length = data.len().min(BODY - ZEROS);
    body[ZEROS..][..length].copy_from_slice(&data[..length]);
    // Options may be longer when they are written again, each aligned to four bytes.
    let segment = lossy::read_segment(&body).filter(|segment| segment.payload.len() < 400);
    if let Some(segment) = segment {
        let again = lossy::read_segment(&lossy::put_segment(&segment)).expect("it was a segment");
        assert_eq!((again.seq, again.flags), (segment.seq, segment.flags));
        assert_eq!(again.payload, segment.payload);
    }
    let (front, back) = data.split_at(data.len() / 2);
    if let Ok(Some((command, first))) = lossy::read_head((front, back)) {
        let head = lossy::put_head(command, &first);
        assert_eq!(head, data[..head.len()]);
    }
}

fn cells(data: &[u8]) {
    let mut body = [0; BODY];
    let length = data.len().min(BODY);
    body[..length].copy_from_slice(&data[..length]);
    for format in [Format::V0, Format::V1] {
        if let Some(message) = message::read(format, &body) {
            assert!(message.data.len() <= message::DATA);
        }
    }
}
