//! Our record layer of TLS 1.3 under a peer that has the keys: what it seals in order arrives in
//! order and once, what it must not say ends the link, and what we say to it can be read.

use anabranch_links::tls::testing::{Forger, Role, SUITE_COUNT, open_link};
use anabranch_links::{Link, State, Tls};
use anabranch_multipath::Time;

use crate::input::Input;

const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;
const DATA: u8 = 23;

/// A link, the peer that attacks it, and what must have come of both.
struct Play<'a> {
    input: Input<'a>,
    link: Tls,
    forger: Forger,
    /// An honest end that reads what the link says.
    reader: Tls,
    /// Data that was sealed as it should be.
    sealed: Vec<u8>,
    arrived: Vec<u8>,
    /// Something was said that may end the link.
    spoilt: bool,
    /// Something was said that is no record: nothing behind it may come.
    lost: bool,
}

/// The first bytes choose the suite and who is attacked; then come steps.
pub fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let suite = input.below(SUITE_COUNT);
    let (own, other) = match input.coin() {
        true => (Role::Client, Role::Server),
        false => (Role::Server, Role::Client),
    };
    let mut play = Play {
        input,
        link: open_link(own, suite, Some(5)),
        forger: Forger::new(other, suite),
        reader: open_link(other, suite, None),
        sealed: Vec::new(),
        arrived: Vec::new(),
        spoilt: false,
        lost: false,
    };
    while !play.input.is_empty() && play.link.state() == State::Open {
        play.step();
    }
    assert!(play.spoilt || play.arrived == play.sealed, "honest data is missing");
}

impl Play<'_> {
    fn step(&mut self) {
        let what = self.input.below(8);
        let length = self.input.below(200);
        match what {
            0 | 1 => {
                let content = self.input.take(length);
                let padding = self.input.below(256);
                self.say(DATA, content, padding);
            }
            2 => {
                let record = self.forger.update(length % 2 == 1);
                self.deliver(&record);
            }
            3 => self.odd(HANDSHAKE, length),
            4 => self.odd(ALERT, length % 4),
            5 => {
                let kind = self.input.byte();
                self.odd(kind, length);
            }
            6 => {
                let garbage = self.input.take(length);
                if !garbage.is_empty() {
                    (self.spoilt, self.lost) = (true, true);
                }
                self.deliver(garbage);
            }
            _ => self.corrupt(length),
        }
        // Each side speaks, so that honest KeyUpdates are no storm.
        self.say(DATA, b"", 0);
        self.answer();
    }

    /// Seals a record in order, and notes the data that it is: the type is the last byte that is
    /// not zero, be it the content's own.
    fn say(&mut self, kind: u8, content: &[u8], padding: usize) {
        let inner = [content, &[kind]].concat();
        let end = inner.iter().rposition(|byte| *byte != 0);
        if let Some(end) = end.filter(|end| inner[*end] == DATA && !self.lost) {
            self.sealed.extend_from_slice(&inner[..end]);
        }
        let record = self.forger.record(kind, content, padding);
        self.deliver(&record);
    }

    /// A record whose content is the input's: it may be legal, and may be no end of a message.
    fn odd(&mut self, kind: u8, length: usize) {
        let content = self.input.take(length);
        self.spoilt = true;
        self.say(kind, content, 0);
    }

    /// An honest record with one byte changed: nothing behind it may arrive.
    fn corrupt(&mut self, length: usize) {
        (self.spoilt, self.lost) = (true, true);
        let mut record = self.forger.record(DATA, &vec![7; length], 0);
        let place = self.input.below(256) % record.len();
        // The version is not looked at, but authenticated.
        record[place] ^= self.input.byte().max(1);
        let before = self.arrived.len();
        self.deliver(&record);
        assert_eq!(self.arrived.len(), before, "a changed record was read");
    }

    fn deliver(&mut self, mut bytes: &[u8]) {
        let piece = 1 + self.input.below(256);
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(piece.min(bytes.len()));
            bytes = rest;
            let open = self.link.state() == State::Open;
            let faulty = self.link.receive(Time::ZERO, now).is_err();
            assert!(!faulty || self.link.state() == State::Ended, "a fault ends the link");
            assert!(!faulty || self.spoilt, "an honest peer was refused");
            let came = self.link.read(&mut self.arrived);
            assert!(open || came == 0, "data from a link that has ended");
        }
        assert!(self.sealed.starts_with(&self.arrived), "not what was sealed");
    }

    /// What the link says opens at the peer: one byte of data, behind KeyUpdates.
    fn answer(&mut self) {
        self.link.write(b"x").expect("the link is not closed by us");
        let (mut wire, mut plain) = (Vec::new(), Vec::new());
        self.link.transmit(Time::ZERO, &mut wire);
        let answer = self.reader.receive(Time::ZERO, &wire);
        self.reader.read(&mut plain);
        if self.link.state() == State::Open {
            answer.expect("what we say can be read");
            assert_eq!(plain, b"x");
        }
    }
}
