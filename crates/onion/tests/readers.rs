//! Parsers of data from peers, with valid bytes that were changed at random. No parser panics.
//! Data that is still accepted can be written and parsed again.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_multipath::seed;
use anabranch_onion::handshake::extension::{HopRequest, SupportedFeatures};
use anabranch_onion::handshake::{Kind, extension, fast, ntor, ntor_v3};
use anabranch_onion::wire::cell::{self, Cells, Command, Width};
use anabranch_onion::wire::crypto::CurveKeys;
use anabranch_onion::wire::extend::{self, Extend, Target};
use anabranch_onion::wire::link::{self, Info};
use anabranch_onion::wire::message::{self, Answer, Begin};
use rand::RngExt;

/// Returns copies of `sample` with a few bytes changed or inserted, or with the end removed.
fn bent(sample: &[u8], purpose: &str) -> Vec<Vec<u8>> {
    let mut rng = seed::stream(1, sample.len() as u64, purpose);
    let mut one = || {
        let mut bytes = sample.to_vec();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..bytes.len().max(1)).min(bytes.len().saturating_sub(1));
            match rng.random_range(0..4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at.min(bytes.len()), rng.random()),
                _ if bytes.is_empty() => {}
                _ => bytes[at] = rng.random(),
            }
        }
        bytes
    };
    (0..2000).map(|_| one()).collect()
}

fn wish() -> Extend {
    let addresses = vec!["192.0.2.7:9001".parse().unwrap(), "[2001:db8::7]:9001".parse().unwrap()];
    let target = Target { addresses, rsa: [3; 20], ed25519: Some([4; 32]) };
    Extend { target, kind: Kind::NTOR, handshake: vec![5; 84] }
}

#[test]
fn circuits() {
    for data in bent(&wish().write(), "extend") {
        if let Some(wish) = Extend::read(&data) {
            let again = Extend::read(&wish.write()).unwrap();
            assert_eq!((again.target.rsa, again.kind), (wish.target.rsa, wish.kind));
        }
    }
    for body in bent(&extend::put_create2(Kind::NTOR, &[5; 84]), "create") {
        if let Some((kind, handshake)) = extend::read_create2(&body) {
            assert!(body.starts_with(&extend::put_create2(kind, handshake)));
        }
    }
}

#[test]
fn streams() {
    let begin = Begin { host: "example.com".into(), port: 443, flags: 1 };
    for data in bent(&begin.write().unwrap(), "begin") {
        if let Some(begin) = Begin::read(&data) {
            let again = Begin::read(&begin.write().unwrap()).unwrap();
            assert!(again.host.eq_ignore_ascii_case(&begin.host));
        }
    }
    let answers = [(Answer::Address("192.0.2.1".parse().unwrap()), 60), (Answer::Later, 1)];
    for data in bent(&message::put_resolved(&answers), "resolved") {
        if let Some(answers) = message::read_resolved(&data) {
            assert_eq!(message::read_resolved(&message::put_resolved(&answers)), Some(answers));
        }
    }
    for data in bent(&[&[1, 0, 20][..], &[9; 20]].concat(), "sendme") {
        let _ = (message::read_sendme(&data), message::read_xon(&data), message::is_xoff(&data));
        let _ = (message::is_connected(&data), message::read_resolve(&data));
    }
}

#[test]
fn links() {
    let info = Info {
        unix: Some(1_800_000_000),
        seen: Some("192.0.2.1".parse().unwrap()),
        own: vec!["2001:db8::1".parse().unwrap()],
    };
    for body in bent(&link::put_netinfo(&info), "netinfo") {
        if let Some(info) = link::read_netinfo(&body) {
            assert_eq!(link::read_netinfo(&link::put_netinfo(&info)), Some(info));
        }
    }
    for body in bent(&link::put_certs(&[(2, vec![0x30; 200]), (4, vec![1; 140])]), "certs") {
        assert!(link::read_certs(&body, 1_800_000_000).is_err(), "nobody signed it");
    }
    for body in bent(&link::put_challenge(&[7; 32]), "challenge") {
        let _ = (link::read_challenge(&body), link::read_versions(&body, &[4, 5]));
        let _ = link::read_padding(&body);
    }
}

#[test]
fn handshakes() {
    let mut rng = seed::stream(1, 0, "handshakes");
    let keys = [CurveKeys::from([7; 32])];
    let (_, create) = ntor::Client::start(&mut rng, [1; 20], *keys[0].public());
    for bytes in bent(&create, "ntor").into_iter().take(200) {
        // ntor does not authenticate the client's part. So a changed key of the client is
        // accepted.
        let named = bytes.starts_with(&create[..52]);
        assert!(named || ntor::accept(&mut rng, &[1; 20], &keys, &bytes).is_err());
        let _ = fast::accept(&mut rng, &bytes);
    }
    let message = extension::request(HopRequest::Cgo);
    let start =
        ntor_v3::Client::start(&mut rng, [1; 32], *keys[0].public(), &message, ntor_v3::CIRCUIT);
    let (_, create) = start.unwrap();
    for bytes in bent(&create, "ntor v3").into_iter().take(200) {
        let read = ntor_v3::read(&[1; 32], &keys, ntor_v3::CIRCUIT, &bytes);
        assert_eq!(read.is_ok(), bytes == create);
    }
    for bytes in bent(&[2, 1, 0, 2, 1, 31], "extensions") {
        let _ = extension::answer(&bytes, SupportedFeatures { sendme_inc: Some(31), lossy: true });
        let _ = extension::read_answer(&bytes, HopRequest::Cgo, 31);
    }
}

#[test]
fn cells() {
    let mut bytes = Vec::new();
    cell::put_variable(&mut bytes, Width::Four, Command::CERTS, &[0; 40]);
    cell::put_fixed(&mut bytes, 7, Command::RELAY, &[1; 500]);
    for mut bytes in bent(&bytes, "cells") {
        let whole = bytes.len();
        let mut cells = Cells::new(&mut bytes, Width::Four, 1000);
        while let Ok(Some(cell)) = cells.next_cell() {
            assert!(cell.command.is_variable() || cell.body.len() == cell::BODY);
        }
        assert!(cells.taken() <= whole);
    }
}
