//! Tests of our record layer with a peer that has the keys and sends forbidden records.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

use anabranch_links::{Fault, Link, State, StreamLink, Tls};
use anabranch_multipath::Time;
use anabranch_testkit::tls_peer::{RawTlsPeer, Role, SUITE_COUNT, open_link};

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const FULL: usize = 16_384;

fn arrived(link: &mut Tls) -> Vec<u8> {
    let mut bytes = Vec::new();
    link.read(&mut bytes).unwrap();
    bytes
}

/// Calls `check` for each cipher suite, with a server and a client that has the keys.
fn each(mut check: impl FnMut(Tls, RawTlsPeer)) {
    for suite in 0..SUITE_COUNT {
        check(open_link(Role::Server, suite, None), RawTlsPeer::new(Role::Client, suite));
    }
}

#[test]
fn padding_of_any_length_is_taken_off() {
    each(|mut link, mut peer| {
        for padding in [0, 1, 2, 255, 4_000, FULL - 3] {
            link.receive(Time::ZERO, &peer.record(DATA, b"abc", padding)).unwrap();
            assert_eq!(arrived(&mut link), b"abc", "{padding}");
            // Zeros of the content itself stay.
            link.receive(Time::ZERO, &peer.record(DATA, &[0; 3], padding)).unwrap();
            assert_eq!(arrived(&mut link), [0; 3], "{padding}");
        }
    });
}

#[test]
fn records_that_hold_nothing_are_allowed_of_data_alone() {
    each(|mut link, mut peer| {
        for padding in [0, 700] {
            link.receive(Time::ZERO, &peer.record(DATA, b"", padding)).unwrap();
        }
        link.receive(Time::ZERO, &peer.record(DATA, b"a", 0)).unwrap();
        assert_eq!(arrived(&mut link), b"a");
        assert!(link.receive(Time::ZERO, &peer.record(HANDSHAKE, b"", 0)).is_err());
    });
}

#[test]
fn a_full_record_is_read_and_one_byte_more_refused() {
    for (content, padding, is_read) in
        [(FULL, 0, true), (0, FULL, true), (FULL + 1, 0, false), (0, FULL + 1, false)]
    {
        each(|mut link, mut peer| {
            let answer = link.receive(Time::ZERO, &peer.record(DATA, &vec![7; content], padding));
            assert_eq!(answer.is_ok(), is_read, "{content} and {padding} zeros");
            let wanted = if is_read { content } else { 0 };
            assert_eq!(arrived(&mut link).len(), wanted);
        });
    }
}

#[test]
fn a_longer_record_is_refused_by_its_header() {
    let mut link = open_link(Role::Server, 0, None);
    link.receive(Time::ZERO, &[23, 3, 3, 0x41, 0]).unwrap();
    let mut link_of_long = open_link(Role::Server, 0, None);
    assert!(link_of_long.receive(Time::ZERO, &[23, 3, 3, 0x41, 1]).is_err());
    for length in 0..16 {
        let mut link = open_link(Role::Server, 0, None);
        assert!(link.receive(Time::ZERO, &[23, 3, 3, 0, length]).is_err(), "no tag fits");
    }
}

#[test]
fn content_of_no_type_or_a_forbidden_one_is_refused() {
    for kind in [0, 1, 20, 24, 255] {
        each(|mut link, mut peer| {
            let answer = link.receive(Time::ZERO, &peer.record(kind, b"", 9));
            assert!(matches!(answer, Err(Fault::Peer(_))), "{kind}");
            assert_eq!(link.state(), State::Ended);
        });
    }
}

#[test]
fn a_fatal_alert_ends_the_link_and_gets_no_answer() {
    each(|mut link, mut peer| {
        let error = link.receive(Time::ZERO, &peer.record(ALERT, &[2, 40], 0)).unwrap_err();
        assert!(error.to_string().contains("fatal alert"), "{error}");
        assert!(!link.transmit(Time::ZERO, &mut Vec::new()));
    });
}

#[test]
fn our_keys_change_before_they_have_sealed_too_much_and_the_peer_follows() {
    const LIMIT: u64 = 7;
    for suite in 0..SUITE_COUNT {
        let mut client = open_link(Role::Client, suite, Some(LIMIT));
        let mut server = open_link(Role::Server, suite, None);
        let (mut updates, mut wire) = (0, Vec::new());
        for turn in 0u32..200 {
            client.write(&turn.to_be_bytes()).unwrap();
            wire.clear();
            client.transmit(Time::ZERO, &mut wire);
            updates += usize::from(wire.len() > 4 + 22);
            server.receive(Time::ZERO, &wire).unwrap();
            assert_eq!(arrived(&mut server), turn.to_be_bytes());
            // The server must also send data: too many KeyUpdates without data between them are a
            // fault.
            server.write(b"more").unwrap();
            wire.clear();
            server.transmit(Time::ZERO, &mut wire);
            client.receive(Time::ZERO, &wire).unwrap();
        }
        // Each key encrypts six records of data and the KeyUpdate.
        assert_eq!(updates, 200 / (LIMIT as usize - 1), "suite {suite}");
    }
}

#[test]
fn a_batch_beyond_a_keys_limit_is_one_write() {
    let mut client = open_link(Role::Client, 0, Some(3));
    let mut server = open_link(Role::Server, 0, None);
    let bytes: Vec<u8> = (0..20 * FULL).map(|at| (at / 7) as u8).collect();
    let mut wire = Vec::new();
    client.write(&bytes).unwrap();
    client.transmit(Time::ZERO, &mut wire);
    server.receive(Time::ZERO, &wire).unwrap();
    assert!(arrived(&mut server) == bytes);
}

#[test]
fn many_requests_for_new_keys_get_one_answer_and_a_storm_an_alert() {
    each(|mut link, mut peer| {
        let storm: Vec<u8> = (0..32).flat_map(|_| peer.update(true)).collect();
        link.receive(Time::ZERO, &storm).unwrap();
        let mut wire = Vec::new();
        link.transmit(Time::ZERO, &mut wire);
        assert_eq!(wire.len(), 27, "one KeyUpdate");
        assert!(link.receive(Time::ZERO, &peer.update(true)).is_err());
    });
}

#[test]
fn a_server_takes_no_ticket_and_a_client_does() {
    let ticket = [&[4, 0, 0, 40][..], &[3; 40]].concat();
    let mut client = open_link(Role::Client, 0, None);
    let mut peer = RawTlsPeer::new(Role::Server, 0);
    client.receive(Time::ZERO, &peer.record(HANDSHAKE, &ticket, 0)).unwrap();
    client.receive(Time::ZERO, &peer.record(DATA, b"a", 0)).unwrap();
    assert_eq!(arrived(&mut client), b"a");
    let mut server = open_link(Role::Server, 0, None);
    let mut peer = RawTlsPeer::new(Role::Client, 0);
    assert!(server.receive(Time::ZERO, &peer.record(HANDSHAKE, &ticket, 0)).is_err());
}
