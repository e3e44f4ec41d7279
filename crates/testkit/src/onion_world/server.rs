//! Destinations of streams in tests: servers whose names describe their behaviour.

use std::net::{IpAddr, Ipv4Addr};

use anabranch_multipath::{Core as _, Time};
use anabranch_onion::relay::{Input, Relay};
use anabranch_onion::wire::message::{Answer, Begin, EndReason};
use anabranch_onion::{LinkCore, StreamKey};

/// A destination of streams, named after its behaviour: `source-N` sends N bytes and closes; `fed`
/// sends the bytes that the test provides and does not close; `sink` reads everything; `refuse`
/// refuses the connection; `deny-ADDRESS` has that address, which the exit's policy rejects;
/// `silent` never answers.
pub struct Server {
    kind: Kind,
    pub received: usize,
    pub ended: Option<EndReason>,
}

enum Kind {
    Source { left: usize, position: usize, ends: bool },
    Sink,
    Refuse,
    Deny(IpAddr),
    Silent,
}

impl Server {
    /// Returns the byte at `position` of every test stream. Senders and receivers compute the byte
    /// from its position, so tests can check all data without storing it.
    pub fn byte(position: usize) -> u8 {
        (position.wrapping_mul(2_654_435_761) >> 13) as u8
    }

    pub fn new(begin: &Begin) -> Server {
        let source = begin.host.strip_prefix("source-").and_then(|n| n.parse().ok());
        let denied = begin.host.strip_prefix("deny-").and_then(|address| address.parse().ok());
        let kind = match (source, begin.host.as_str()) {
            (Some(left), _) => Kind::Source { left, position: 0, ends: true },
            (_, "fed") => Kind::Source { left: 0, position: 0, ends: false },
            (_, "refuse") => Kind::Refuse,
            (_, "silent") => Kind::Silent,
            _ => denied.map_or(Kind::Sink, Kind::Deny),
        };
        Server { kind, received: 0, ended: None }
    }

    pub fn directory() -> Server {
        let kind = Kind::Source { left: 5000, position: 0, ends: true };
        Server { kind, received: 0, ended: None }
    }

    pub fn connect(&mut self, now: Time, relay: &mut Relay, stream: StreamKey) {
        let reached = Some((Ipv4Addr::new(192, 0, 2, 1).into(), 60));
        match self.kind {
            Kind::Silent => {}
            Kind::Refuse => {
                relay.handle(now, Input::Ended { stream, reason: EndReason::REFUSED });
            }
            Kind::Deny(address) => {
                relay.handle(now, Input::Refused { stream, address: (address, 60) });
            }
            _ => {
                relay.handle(now, Input::Connected { stream, reached });
                self.send(now, relay, stream);
            }
        }
    }

    pub fn work(&mut self, now: Time, relay: &mut Relay, stream: StreamKey) {
        let (first, second) = relay.read(stream);
        for &found in first.iter().chain(second) {
            assert_eq!(found, Server::byte(self.received), "byte {}", self.received);
            self.received += 1;
        }
        let bytes = first.len() + second.len();
        relay.consume(now, stream, bytes);
        self.send(now, relay, stream);
    }

    /// Gives a `fed` server more bytes to send.
    pub fn feed(&mut self, now: Time, relay: &mut Relay, stream: StreamKey, bytes: usize) {
        if let Kind::Source { left, ends: false, .. } = &mut self.kind {
            *left += bytes;
        }
        self.send(now, relay, stream);
    }

    fn send(&mut self, now: Time, relay: &mut Relay, stream: StreamKey) {
        let Kind::Source { left, position, ends } = &mut self.kind else { return };
        while *left > 0 {
            let piece: Vec<u8> =
                (*position..*position + (*left).min(10_000)).map(Server::byte).collect();
            let taken = relay.write(now, stream, &piece);
            (*left, *position) = (*left - taken, *position + taken);
            if taken < piece.len() {
                return;
            }
        }
        if !*ends {
            return;
        }
        self.kind = Kind::Sink;
        relay.handle(now, Input::Ended { stream, reason: EndReason::DONE });
    }
}

pub(super) fn resolve(now: Time, relay: &mut Relay, stream: StreamKey, name: &str) {
    let answer = match name {
        "known" => Answer::Address(Ipv4Addr::new(192, 0, 2, 7).into()),
        _ => Answer::Never,
    };
    relay.handle(now, Input::Resolved { stream, answers: vec![(answer, 60)] });
}
