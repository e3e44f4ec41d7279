//! Tests of early decryption (of records before their turn) with a peer that has the keys and
//! sends forbidden records. Such a record only prevents early decryption, or ends the link once
//! its turn has come.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

use std::ops::Range;

use anabranch_links::{EarlyCounts, EarlyRecords, Fault, Link, State, StreamLink, Tls};
use anabranch_multipath::Time;
use anabranch_testkit::tls_peer::{RawTlsPeer, Role, SUITE_COUNT, open_link};

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// Bytes of content in a record. `RECORD` is the length of the whole record.
const UNIT: usize = 40;
const RECORD: usize = UNIT + 22;
/// A KeyUpdate that requests a KeyUpdate in return.
const UPDATE: [u8; 5] = [24, 0, 0, 1, 1];
/// Number of records that may fail to decrypt at the same time.
const AT_ONCE: u64 = 1_024;

/// A server, a client that has the keys, and the client's stream.
struct Play {
    link: Tls,
    peer: RawTlsPeer,
    stream: Vec<u8>,
    head: usize,
    now: Time,
}

/// Calls `check` for each cipher suite.
fn each(mut check: impl FnMut(Play)) {
    for suite in 0..SUITE_COUNT {
        let mut link = open_link(Role::Server, suite, None);
        link.open_early(Time::ZERO, UNIT).unwrap();
        let mut peer = RawTlsPeer::new(Role::Client, suite);
        peer.pad_updates(UNIT);
        check(Play { link, peer, stream: Vec::new(), head: 0, now: Time::ZERO });
    }
}

impl Play {
    /// Appends a record of the agreed size with this content to the stream.
    fn send_message(&mut self, kind: u8, content: &[u8]) {
        self.say_padded(kind, content, UNIT - content.len());
    }

    fn say_padded(&mut self, kind: u8, content: &[u8], padding: usize) {
        let record = self.peer.record(kind, content, padding);
        self.stream.extend(record);
    }

    fn say_units(&mut self, numbers: Range<u8>) {
        numbers.for_each(|number| self.send_message(DATA, &[number; UNIT]));
    }

    /// Appends a KeyUpdate of the peer to the stream. The record has the agreed size if
    /// `is_padded`, and is shorter otherwise.
    fn update(&mut self, is_padded: bool) {
        self.peer.pad_updates(if is_padded { UNIT } else { 0 });
        let record = self.peer.update(true);
        self.stream.extend(record);
    }

    /// Passes the bytes after the next record to the link, as a tap would if that record were
    /// lost. Returns the units that arrive.
    fn show(&mut self) -> Vec<u8> {
        let from = self.head + RECORD;
        self.link.receive_early(self.now, from as u64, &self.stream[from..]);
        self.units()
    }

    /// Delivers the rest of the stream in order. Returns the units that arrive.
    fn deliver(&mut self) -> Result<Vec<u8>, Fault> {
        let result = self.link.receive(self.now, &self.stream[self.head..]);
        self.head = self.stream.len();
        let units = self.units();
        result.map(|()| units)
    }

    /// Returns the numbers of the units that have arrived, in order.
    fn units(&mut self) -> Vec<u8> {
        let mut received = Vec::new();
        self.link.read(&mut received).unwrap();
        assert!(received.len().is_multiple_of(UNIT), "units come whole");
        assert!(received.chunks(UNIT).all(|unit| unit.iter().all(|byte| *byte == unit[0])));
        received.chunks(UNIT).map(|unit| unit[0]).collect()
    }

    /// Returns the number of bytes that the link sends.
    fn answer(&mut self) -> usize {
        let mut wire = Vec::new();
        self.link.transmit(self.now, &mut wire);
        wire.len()
    }

    fn counts(&self) -> EarlyCounts {
        self.link.early_counts().unwrap()
    }

    /// Checks that, of two more units, the second arrives early.
    fn is_early_again(&mut self) {
        self.say_units(70..72);
        assert_eq!(self.show(), [71]);
        assert_eq!(self.deliver().unwrap(), [70]);
        assert_eq!(self.link.state(), State::Open);
    }

    /// Checks that the link has ended, and accepts no more bytes from the stream or the tap.
    fn is_over(&mut self) {
        assert_eq!(self.link.state(), State::Ended);
        let counts = self.counts();
        self.say_units(80..83);
        assert!(self.show().is_empty());
        assert!(self.deliver().unwrap_or_default().is_empty());
        assert_eq!((self.link.state(), self.counts()), (State::Ended, counts));
    }
}

#[test]
fn records_that_hold_nothing_cost_earliness_at_most() {
    each(|mut play| {
        play.say_units(0..1);
        play.send_message(DATA, b"");
        play.say_units(1..4);
        assert_eq!(play.show(), [1, 2, 3]);
        assert_eq!(play.deliver().unwrap(), [0]);
        // A shorter record shifts the records after it. They are not found at the expected offsets
        // until the shorter one was read in order.
        play.say_units(4..5);
        play.say_padded(DATA, b"", 0);
        play.say_units(5..9);
        assert!(play.show().is_empty());
        assert!(play.counts().failed > 0);
        assert_eq!(play.deliver().unwrap(), [4, 5, 6, 7, 8]);
        play.is_early_again();
    });
}

#[test]
fn an_alert_waits_for_its_turn_whatever_came_before_it() {
    for (description, padding) in [(0, UNIT - 2), (0, 0), (40, UNIT - 2), (40, 0)] {
        each(|mut play| {
            play.say_units(0..1);
            play.say_padded(ALERT, &[1, description], padding);
            play.say_units(1..3);
            // Data after the closing alert may arrive early, and then arrives once.
            let early: &[u8] = if padding == 0 { &[] } else { &[1, 2] };
            assert_eq!(play.show(), early);
            assert_eq!((play.link.state(), play.answer()), (State::Open, 0));
            match play.deliver() {
                Ok(units) => assert_eq!((description, units), (0, vec![0])),
                Err(fault) => {
                    assert_eq!(description, 40);
                    assert!(fault.to_string().contains("fatal alert"), "{fault}");
                }
            }
            assert_eq!(play.answer(), 0, "none answers an alert");
            play.is_over();
        });
    }
}

#[test]
fn what_is_no_data_waits_for_its_turn_and_ends_the_link_then() {
    let hello = [1, 0, 0, 2, 3, 3];
    let cases: [(u8, &[u8]); 9] = [
        (0, b""),
        (1, b"old"),
        (20, b"\x01"),
        (24, b"beat"),
        (255, b"?"),
        (HANDSHAKE, b""),
        (HANDSHAKE, &hello),
        // Data of another length.
        (DATA, &[7; UNIT - 1]),
        (DATA, &[7]),
    ];
    for (kind, content) in cases {
        each(|mut play| {
            play.say_units(0..1);
            play.send_message(kind, content);
            play.say_units(1..3);
            assert_eq!(play.show(), [1, 2], "{kind}");
            assert_eq!((play.link.state(), play.answer()), (State::Open, 0), "{kind}");
            assert_eq!(play.counts(), EarlyCounts { opened: 2, failed: 0 }, "{kind}");
            // If the tap shows the record again, it is known already.
            for _ in 0..10 {
                assert!(play.show().is_empty());
            }
            assert_eq!(play.counts().failed, 0, "{kind}");
            assert!(matches!(play.deliver(), Err(Fault::Peer(_))), "{kind}");
            assert_eq!(play.answer(), 24, "{kind}: an alert");
            play.is_over();
        });
    }
}

#[test]
fn half_a_message_has_no_data_behind_it_though_that_came_early() {
    each(|mut play| {
        play.say_units(0..1);
        play.send_message(HANDSHAKE, &UPDATE[..3]);
        play.say_units(1..2);
        assert_eq!(play.show(), [1]);
        play.send_message(HANDSHAKE, &UPDATE[3..]);
        assert!(matches!(play.deliver(), Err(Fault::Peer(_))));
        play.is_over();
    });
}

#[test]
fn new_keys_that_come_by_a_short_record_cost_earliness() {
    for is_padded in [true, false] {
        each(|mut play| {
            play.say_units(0..1);
            play.update(is_padded);
            play.say_units(1..4);
            // The records have new keys. After a short record, they are also not at the expected
            // offsets.
            assert!(play.show().is_empty());
            assert_eq!(play.counts().opened, 0);
            assert_eq!(play.answer(), 0, "it is not its turn");
            assert_eq!(play.deliver().unwrap(), [0, 1, 2, 3], "{is_padded}");
            assert_eq!(play.answer(), 27, "a KeyUpdate");
            play.is_early_again();
        });
    }
}

#[test]
fn data_under_keys_that_have_passed_ends_the_link() {
    each(|mut play| {
        play.say_units(0..1);
        // The peer announces new keys, but continues with the old ones.
        play.send_message(HANDSHAKE, &UPDATE);
        play.say_units(1..3);
        assert_eq!(play.show(), [1, 2]);
        assert!(matches!(play.deliver(), Err(Fault::Peer(_))));
        play.is_over();
    });
}

#[test]
fn a_record_that_came_early_is_passed_over_whatever_the_stream_has_in_its_place() {
    each(|mut play| {
        play.say_units(0..1);
        let other = {
            // No honest peer encrypts two records under the same number.
            let mut twin = RawTlsPeer::new(Role::Client, 0);
            twin.record(DATA, &[0; UNIT], 0);
            twin.record(DATA, &[9; UNIT], 0)
        };
        play.send_message(HANDSHAKE, &UPDATE);
        play.link.receive_early(play.now, RECORD as u64, &other);
        let early = play.units();
        let answer = play.deliver().unwrap();
        assert_eq!(answer, [0]);
        assert_eq!(play.link.state(), State::Open);
        if early == [9] {
            // The KeyUpdate was never read. Records encrypted with the old keys therefore still
            // arrive.
            assert_eq!(play.answer(), 0);
            play.is_early_again();
        } else {
            assert!(early.is_empty(), "another suite's");
            assert_eq!(play.answer(), 27);
        }
    });
}

#[test]
fn a_storm_of_key_updates_is_none_before_its_turn() {
    each(|mut play| {
        play.say_units(0..1);
        (0..33).for_each(|_| play.update(true));
        for _ in 0..20 {
            assert!(play.show().is_empty());
        }
        assert_eq!((play.link.state(), play.answer()), (State::Open, 0));
        // All KeyUpdates except the first are encrypted with later keys.
        let failed = play.counts().failed;
        assert_eq!(failed, 20 * 32);
        // In order, 32 KeyUpdates get a single answer. One more is a violation.
        let last = play.stream.len() - RECORD;
        play.link.receive(play.now, &play.stream[..last]).unwrap();
        play.head = last;
        assert_eq!((play.units(), play.answer()), (vec![0], 27));
        assert!(matches!(play.deliver(), Err(Fault::Peer(_))));
        play.is_over();
    });
    // All KeyUpdates have the same key, so the second can no longer be decrypted.
    each(|mut play| {
        play.say_units(0..1);
        (0..40).for_each(|_| play.send_message(HANDSHAKE, &UPDATE));
        assert!(play.show().is_empty());
        assert_eq!((play.counts().failed, play.answer()), (0, 0));
        assert!(matches!(play.deliver(), Err(Fault::Peer(_))));
        play.is_over();
    });
}

#[test]
fn new_keys_buy_no_more_failures_in_a_second() {
    each(|mut play| {
        for number in 0..3 {
            play.say_units(number..number + 1);
            for _ in 0..2 * AT_ONCE {
                play.link.receive_early(play.now, play.stream.len() as u64, &[7; RECORD]);
            }
            assert_eq!(play.counts().failed, AT_ONCE, "{number}");
            play.update(true);
            play.deliver().unwrap();
        }
        // Records in order are still read. After a second, records are also decrypted early again.
        play.say_units(10..14);
        assert!(play.show().is_empty());
        assert_eq!(play.deliver().unwrap(), [10, 11, 12, 13]);
        play.now = Time::from_secs(1);
        play.is_early_again();
    });
}
