//! Two QUIC endpoints in memory, with a line each way. What they carry is units of [`UNIT`] bytes:
//! a lane, a command, and a number.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anabranch_links::quic::{Arrival, Congestion, ConnId, Endpoint, Head, Place, QuicLink, Units};
use anabranch_links::{Context, Link, State};
use anabranch_multipath::Time;
use anabranch_multipath::seed::stream;
use anabranch_netem::{self as netem, LinkSettings};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::every_link::{self, LinkEnds};
pub use crate::every_link::{DATA, MAKES};

/// When certificates are made, in seconds since 1970.
pub const NOW: u64 = 1_800_000_000;
/// Bytes of a unit.
pub const UNIT: usize = 514;
/// The command that ends a lane.
pub const ENDS: u8 = 4;

/// Reads a unit's head: a lane, a command, and from 128 on a length.
pub fn head(bytes: &[u8], _: bool) -> Option<Head> {
    let (lane, rest) = bytes.split_first_chunk()?;
    let command = *rest.first()?;
    let length = match command {
        128.. => 7 + usize::from(u16::from_be_bytes(*rest.get(1..)?.first_chunk()?)),
        _ => UNIT,
    };
    let lane = u32::from_be_bytes(*lane);
    Some(Head { lane, length, makes: command == MAKES, ends: command == ENDS })
}

/// How such units are read.
pub const UNITS: Units = Units { head, end, longest: 4_000, longest_of_lane: UNIT, lossy: 0 };
/// Bytes of a lossy unit.
pub const LOSSY: usize = 518;
/// How such units are read where there are lossy ones too.
pub const WITH_LOSSY: Units = Units { lossy: LOSSY, ..UNITS };

fn end(lane: u32) -> Vec<u8> {
    unit(lane, ENDS, 0)
}

/// A unit that tells itself from others.
pub fn unit(lane: u32, command: u8, number: u32) -> Vec<u8> {
    every_link::unit(lane, command, number, UNIT)
}

/// Lane, command and number of each unit.
pub fn units_of(came: &[u8]) -> Vec<(u32, u8, u32)> {
    assert_eq!(came.len() % UNIT, 0, "units come whole");
    let read = |unit: &[u8]| {
        let number = |at: usize| u32::from_be_bytes(*unit[at..].first_chunk().unwrap());
        let (lane, command) = (number(0), unit[4]);
        let found = (lane, command, number(5));
        assert!(unit == self::unit(found.0, found.1, found.2), "a unit that nobody sent");
        found
    };
    came.chunks(UNIT).map(read).collect()
}

/// A lossy unit that tells itself from others.
pub fn lossy_unit(number: u32) -> Vec<u8> {
    every_link::unit(0, DATA, number, LOSSY)
}

/// The number of each lossy unit.
pub fn lossy_units_of(came: &[u8]) -> Vec<u32> {
    assert_eq!(came.len() % LOSSY, 0, "units come whole");
    let read = |unit: &[u8]| {
        let number = u32::from_be_bytes(*unit[5..].first_chunk().unwrap());
        assert!(unit == lossy_unit(number), "a unit that nobody sent");
        number
    };
    came.chunks(LOSSY).map(read).collect()
}

/// A datagram under way: from whom, and its bytes.
type Way = netem::Link<(SocketAddr, Vec<u8>)>;

/// One opens a link to the other.
pub struct QuicPair {
    /// The time of both.
    pub now: Time,
    /// The endpoints; links are opened by the first.
    pub ends: [Endpoint; 2],
    /// The lines, by the end that sends.
    pub ways: [Way; 2],
    /// The link at either end, once it is there.
    pub ids: [Option<ConnId>; 2],
    /// What came to each.
    pub came: [Vec<u8>; 2],
    /// What came to each by datagrams.
    pub came_lossy: [Vec<u8>; 2],
    /// Nobody reads what comes by datagrams.
    pub is_unread: bool,
    /// Datagrams that each has sent.
    pub sent: [u64; 2],
    /// Datagrams to lose: the end, and the number.
    pub lose: Vec<(usize, u64)>,
    /// Bytes that each has sent.
    pub bytes: [u64; 2],
    /// Every datagram comes twice.
    pub doubles: bool,
    /// Of a thousand datagrams, these come with a byte changed.
    pub changed: u32,
    dice: ChaCha8Rng,
}

/// The address of an end.
pub fn address(end: usize) -> SocketAddr {
    (IpAddr::from(Ipv4Addr::new(192, 0, 2, 1 + end as u8)), 9001).into()
}

/// A line with this delay.
pub fn line(delay: Duration) -> LinkSettings {
    LinkSettings { delay, ..LinkSettings::default() }
}

impl QuicPair {
    /// Two ends whose lines are like this.
    pub fn new(settings: &LinkSettings, seed: u64) -> QuicPair {
        QuicPair::with_units([UNITS, UNITS], settings, seed)
    }

    /// The same, and both send as fast as this says.
    pub fn by(congestion: Congestion, settings: &LinkSettings, seed: u64) -> QuicPair {
        QuicPair::with([UNITS, UNITS], congestion, settings, seed)
    }

    /// The same, of which each end reads units in its own way.
    pub fn with_units(units: [Units; 2], settings: &LinkSettings, seed: u64) -> QuicPair {
        QuicPair::with(units, Congestion::default(), settings, seed)
    }

    fn with(
        units: [Units; 2],
        congestion: Congestion,
        settings: &LinkSettings,
        seed: u64,
    ) -> QuicPair {
        let context = Context::new(NOW).unwrap();
        let make = |end: usize| {
            let (seed, takes) = ([seed as u8 + end as u8; 32], (end == 1).then_some(Place::ONLY));
            Endpoint::new(&context, units[end], seed, takes, congestion).unwrap()
        };
        let ways = [0, 1].map(|way| netem::Link::new(settings.clone(), seed, way));
        QuicPair {
            now: Time::from_secs(1),
            ends: [make(0), make(1)],
            ways,
            ids: [None, None],
            came: [Vec::new(), Vec::new()],
            came_lossy: [Vec::new(), Vec::new()],
            is_unread: false,
            sent: [0; 2],
            lose: Vec::new(),
            bytes: [0; 2],
            doubles: false,
            changed: 0,
            dice: stream(seed, 0, "changes"),
        }
    }

    /// The same with a link that is open.
    pub fn open(settings: &LinkSettings, seed: u64) -> QuicPair {
        QuicPair::new(settings, seed).opened()
    }

    /// The same with a link that is open.
    pub fn opened(mut self) -> QuicPair {
        self.ids[0] = Some(self.ends[0].connect(self.now, address(1), None).unwrap());
        self.run(Duration::from_secs(5));
        for end in 0..2 {
            assert_eq!(self.state(end), Some(State::Open), "end {end}");
            self.link(end).admit_lanes();
        }
        self
    }

    /// The link at an end.
    pub fn link(&mut self, end: usize) -> &mut QuicLink {
        self.ends[end].link(self.ids[end].unwrap()).unwrap()
    }

    /// The state of the link at an end, if it is there.
    pub fn state(&mut self, end: usize) -> Option<State> {
        let id = self.ids[end]?;
        self.ends[end].link(id).map(|link| link.state())
    }

    /// Writes units at an end, and sends them.
    pub fn write(&mut self, end: usize, units: &[u8]) {
        self.link(end).write(units).unwrap();
        self.send(end, self.ids[end].unwrap());
    }

    /// Writes a lossy unit at an end, and sends it.
    pub fn write_lossy(&mut self, end: usize, number: u32) {
        let now = self.now;
        self.link(end).write_lossy(now, &lossy_unit(number)).unwrap();
        self.send(end, self.ids[end].unwrap());
    }

    /// Sends what a link has, and what answers strangers.
    pub fn send(&mut self, end: usize, id: ConnId) {
        let mut bytes = Vec::new();
        while let Some(packets) = self.ends[end].transmit(self.now, id, &mut bytes) {
            if packets.to != address(1 - end) {
                continue;
            }
            let stride = if packets.stride == 0 { bytes.len() } else { packets.stride };
            bytes.chunks(stride).for_each(|datagram| self.push(end, datagram));
        }
        while let Some((_, bytes)) = self.ends[end].answer() {
            self.push(end, &bytes);
        }
    }

    fn push(&mut self, end: usize, datagram: &[u8]) {
        let number = self.sent[end];
        self.sent[end] += 1;
        self.bytes[end] += datagram.len() as u64;
        if self.lose.contains(&(end, number)) {
            return;
        }
        for _ in 0..1 + usize::from(self.doubles) {
            let mut bytes = datagram.to_vec();
            if self.dice.random_range(0..1_000) < self.changed {
                let place = self.dice.random_range(0..bytes.len());
                bytes[place] ^= self.dice.random_range(1..=255u8);
            }
            // A line that drops it has lost it.
            let _ = self.ways[end].push(self.now, (address(end), bytes), datagram.len());
        }
    }

    /// Lets time pass.
    pub fn run(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            (0..2).for_each(|end| self.look(end));
            let lines = self.ways.iter().map(netem::Link::next_timeout);
            let ends = self.ends.iter().map(Endpoint::next_timeout);
            let next = lines.chain(ends).flatten().min().filter(|next| *next <= until);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            for end in 0..2 {
                while let Some((from, bytes)) = self.ways[1 - end].pop(self.now) {
                    self.deliver(end, from, &bytes);
                }
                self.ends[end].expire(self.now);
            }
        }
        self.now = until;
    }

    /// Gives an end a datagram.
    pub fn deliver(&mut self, end: usize, from: SocketAddr, bytes: &[u8]) {
        let arrival = Arrival { from, to: None, ecn: 0, bytes };
        self.ends[end].receive(self.now, arrival, &mut |_, _| true);
    }

    /// Reads what came to the links of an end, and sends what they have.
    pub fn look(&mut self, end: usize) {
        while let Some(id) = self.ends[end].next_touched() {
            self.ids[end].get_or_insert(id);
            let mut over = false;
            if let Some(link) = self.ends[end].link(id) {
                over = link.read(&mut self.came[end]).is_err();
                if !self.is_unread {
                    over |= link.read_lossy(&mut self.came_lossy[end]).is_err();
                }
            }
            if over {
                self.ends[end].close(self.now, id);
            }
            self.send(end, id);
        }
        while let Some((_, bytes)) = self.ends[end].answer() {
            self.push(end, &bytes);
        }
    }
}

impl LinkEnds for QuicPair {
    fn link(&mut self, end: usize) -> &mut dyn Link {
        QuicPair::link(self, end)
    }

    fn unit(&self) -> usize {
        UNIT
    }

    fn shakes_hands(&self) -> bool {
        true
    }

    fn settle(&mut self, came: &mut [Vec<u8>; 2]) {
        for end in 0..2 {
            if let Some(id) = self.ids[end] {
                self.send(end, id);
            }
        }
        self.run(Duration::from_secs(60));
        for (came, new) in came.iter_mut().zip(&mut self.came) {
            came.append(new);
        }
    }
}
