//! Two connections over two links in virtual time.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::time::Duration;

use anabranch_multipath::seed::Stream;
use anabranch_multipath::{Core as _, Time};
use anabranch_netem::{Link, LinkSettings};
use anabranch_tcp::{Config, Connection, Ports, Segment, Seq};
use rand::RngExt;

pub const MS: Duration = Duration::from_millis(1);
/// Bytes of an IPv4 header.
pub const IP: usize = 20;

/// Returns `length` bytes of the pseudorandom stream of `seed`, beginning at the offset `from`.
pub fn pattern(seed: u64, from: u64, length: usize) -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed) >> 29) as u8;
    (from..from + length as u64).map(byte).collect()
}

/// Continues the FNV-1a hash `state` with `bytes`.
pub fn hash(mut state: u64, bytes: &[u8]) -> u64 {
    for &byte in bytes {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    state
}

/// One side: the data to send, and the data received so far.
pub struct Side {
    pub tcp: Option<Connection>,
    config: Config,
    iss: Seq,
    /// Total number of bytes that this side sends before it closes.
    pub total: u64,
    seed: u64,
    pub written: u64,
    pub received: u64,
    pub hash: u64,
    /// Whether this side reads nothing at present.
    pub deaf: bool,
    pub closes: bool,
}

/// The client and the server, and the links between them. Link 0 leads from the client to the
/// server.
pub struct Pair {
    pub now: Time,
    pub sides: [Side; 2],
    pub ways: [Link<Segment>; 2],
    /// Hash of all segments that were sent.
    pub trace: u64,
    pub seen: Vec<(Time, usize, Segment)>,
    pub keeps: bool,
    /// Random generator that selects the segments to send twice; `None` if no segment is sent
    /// twice.
    pub duplicates: Option<Stream>,
}

impl Pair {
    pub fn new(config: [Config; 2], links: [LinkSettings; 2], seed: u64) -> Pair {
        let [there, back] = links;
        let side = |config: Config, number: u64| Side {
            tcp: None,
            config,
            // Sequence numbers wrap early.
            iss: Seq(u32::MAX - 40_000 * number as u32),
            total: 0,
            seed: seed * 2 + number,
            written: 0,
            received: 0,
            hash: 1,
            deaf: false,
            closes: true,
        };
        let [client, server] = config;
        let mut pair = Pair {
            now: Time::from_millis(1),
            sides: [side(client, 0), side(server, 1)],
            ways: [Link::new(there, seed, 0), Link::new(back, seed, 1)],
            trace: 1,
            seen: Vec::new(),
            keeps: false,
            duplicates: None,
        };
        let client = &mut pair.sides[0];
        let ports = Ports { local: 1, remote: 2 };
        client.tcp = Some(Connection::connect(pair.now, &client.config, ports, client.iss));
        pair
    }

    /// Returns two sides with the default settings, connected by equal links.
    pub fn over(link: &LinkSettings, seed: u64) -> Pair {
        let config = Config::default();
        Pair::new([config.clone(), config], [link.clone(), link.clone()], seed)
    }

    pub fn client(&mut self) -> &mut Connection {
        self.sides[0].tcp.as_mut().expect("the client connects at once")
    }

    pub fn server(&mut self) -> &mut Connection {
        self.sides[1].tcp.as_mut().expect("it has accepted")
    }

    /// Runs until `until`, or until no event remains. Returns false in the latter case.
    pub fn run(&mut self, until: Time) -> bool {
        loop {
            self.turn();
            let links = self.ways.iter().filter_map(Link::next_timeout);
            let sides = self.sides.iter().filter_map(|side| side.tcp.as_ref()?.next_timeout());
            let Some(next) = links.chain(sides).min() else { return false };
            assert!(next > self.now || self.pops(next), "a timeout that passes nothing: {next:?}");
            if next > until {
                self.now = until;
                return true;
            }
            self.now = self.now.max(next);
        }
    }

    fn pops(&self, next: Time) -> bool {
        self.ways.iter().any(|way| way.next_timeout() == Some(next))
    }

    /// Runs until both sides have received everything and closed, or `limit` is over.
    pub fn run_to_end(&mut self, limit: Duration) {
        let end = self.now + limit;
        while self.now < end && !self.is_done() {
            let step = self.now + 50 * MS;
            if !self.run(step.min(end)) {
                break;
            }
        }
    }

    pub fn is_done(&self) -> bool {
        let done = |side: &Side, other: &Side| side.received == other.total;
        let [client, server] = &self.sides;
        let closed = |side: &Side| {
            side.tcp.as_ref().is_some_and(|tcp| {
                tcp.ending().is_some() || tcp.state() == anabranch_tcp::State::TimeWait
            })
        };
        done(client, server) && done(server, client) && closed(client) && closed(server)
    }

    fn turn(&mut self) {
        let now = self.now;
        for way in 0..2 {
            while let Some(segment) = self.ways[way].pop(now) {
                self.sides[1 - way].handle(now, segment);
                self.sides[1 - way].work();
                self.send(1 - way);
            }
        }
        for side in 0..2 {
            self.sides[side].work();
            self.send(side);
        }
    }

    fn send(&mut self, side: usize) {
        let now = self.now;
        while let Some(segment) = self.sides[side].tcp.as_mut().and_then(|tcp| tcp.poll(now)) {
            let length = segment.wire_length() + IP;
            let what = format!("{now:?} {side} {:?} {:?} {length}", segment.seq, segment.ack);
            self.trace = hash(self.trace, what.as_bytes());
            if self.keeps {
                self.seen.push((now, side, segment.clone()));
            }
            if self.duplicates.as_mut().is_some_and(|dice| dice.random_bool(0.1)) {
                let _ = self.ways[side].push(now, segment.clone(), length);
            }
            let _ = self.ways[side].push(now, segment, length);
        }
    }

    /// Asserts that both sides received what the other sent.
    pub fn assert_whole(&self) {
        for (side, other) in [(0, 1), (1, 0)] {
            let (side, other) = (&self.sides[side], &self.sides[other]);
            assert_eq!(side.received, other.total, "bytes received at {:?}", self.now);
            let sent = hash(1, &pattern(other.seed, 0, other.total as usize));
            assert_eq!(side.hash, sent, "the bytes are those that were sent");
        }
    }
}

impl Side {
    fn handle(&mut self, now: Time, segment: Segment) {
        match &mut self.tcp {
            Some(tcp) => tcp.handle(now, segment),
            None => self.tcp = Connection::accept(now, &self.config, self.iss, &segment),
        }
    }

    /// Writes, reads and closes.
    fn work(&mut self) {
        let Some(tcp) = &mut self.tcp else { return };
        while self.written < self.total {
            let length = (self.total - self.written).min(16_384).min(tcp.room() as u64);
            let taken = tcp.write(&pattern(self.seed, self.written, length as usize));
            self.written += taken as u64;
            if taken == 0 {
                break;
            }
        }
        if self.written == self.total && self.closes && tcp.is_open() {
            tcp.close();
        }
        if !self.deaf {
            let mut bytes = Vec::new();
            tcp.read_all(&mut bytes);
            self.received += bytes.len() as u64;
            self.hash = hash(self.hash, &bytes);
        }
    }
}
