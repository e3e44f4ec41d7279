//! Two endpoints in memory, with a line each way.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anabranch_links::quic::{Arrival, Congestion, ConnId, Endpoint, Head, Place, QuicLink, Units};
use anabranch_links::{Context, State};
use anabranch_multipath::Time;
use anabranch_multipath::seed::stream;
use anabranch_netem::{Link, LinkSettings};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

pub(crate) const NOW: u64 = 1_800_000_000;
pub(crate) const UNIT: usize = 514;
pub(crate) const MAKES: u8 = 10;
pub(crate) const ENDS: u8 = 4;
pub(crate) const DATA: u8 = 3;

/// Cells: a lane, a command, and from 128 on a length.
pub(crate) fn head(bytes: &[u8], _: bool) -> Option<Head> {
    let (lane, rest) = bytes.split_first_chunk()?;
    let command = *rest.first()?;
    let length = match command {
        128.. => 7 + usize::from(u16::from_be_bytes(*rest.get(1..)?.first_chunk()?)),
        _ => UNIT,
    };
    let lane = u32::from_be_bytes(*lane);
    Some(Head { lane, length, makes: command == MAKES, ends: command == ENDS })
}

pub(crate) const UNITS: Units = Units { head, end, longest: 4_000, longest_of_lane: UNIT };

fn end(lane: u32) -> Vec<u8> {
    unit(lane, ENDS, 0)
}

/// A unit that tells itself from others.
pub(crate) fn unit(lane: u32, command: u8, number: u32) -> Vec<u8> {
    let mut bytes = vec![(number % 251) as u8; UNIT];
    bytes[..4].copy_from_slice(&lane.to_be_bytes());
    bytes[4] = command;
    bytes[5..9].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Lane, command and number of each unit.
pub(crate) fn units_of(came: &[u8]) -> Vec<(u32, u8, u32)> {
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

/// A datagram under way: from whom, and its bytes.
type Way = Link<(SocketAddr, Vec<u8>)>;

/// One opens a link to the other.
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) ends: [Endpoint; 2],
    pub(crate) ways: [Way; 2],
    /// The link at either end, once it is there.
    pub(crate) ids: [Option<ConnId>; 2],
    /// What came to each.
    pub(crate) came: [Vec<u8>; 2],
    /// Datagrams that each has sent; those whose numbers are here were lost.
    pub(crate) sent: [u64; 2],
    pub(crate) lose: Vec<(usize, u64)>,
    /// Bytes that each has sent.
    pub(crate) bytes: [u64; 2],
    /// Every datagram comes twice.
    pub(crate) doubles: bool,
    /// Of a thousand datagrams, these come with a byte changed.
    pub(crate) changed: u32,
    dice: ChaCha8Rng,
}

pub(crate) fn address(end: usize) -> SocketAddr {
    (IpAddr::from(Ipv4Addr::new(192, 0, 2, 1 + end as u8)), 9001).into()
}

pub(crate) fn line(delay: Duration) -> LinkSettings {
    LinkSettings { delay, ..LinkSettings::default() }
}

impl World {
    pub(crate) fn new(settings: &LinkSettings, seed: u64) -> World {
        World::with_units([UNITS, UNITS], settings, seed)
    }

    /// The same, and both send as fast as this says.
    pub(crate) fn by(congestion: Congestion, settings: &LinkSettings, seed: u64) -> World {
        World::with([UNITS, UNITS], congestion, settings, seed)
    }

    pub(crate) fn with_units(units: [Units; 2], settings: &LinkSettings, seed: u64) -> World {
        World::with(units, Congestion::default(), settings, seed)
    }

    fn with(
        units: [Units; 2],
        congestion: Congestion,
        settings: &LinkSettings,
        seed: u64,
    ) -> World {
        let context = Context::new(NOW).unwrap();
        let make = |end: usize| {
            let (seed, takes) = ([seed as u8 + end as u8; 32], (end == 1).then_some(Place::ONLY));
            Endpoint::new(&context, units[end], seed, takes, congestion).unwrap()
        };
        let ways = [0, 1].map(|way| Link::new(settings.clone(), seed, way));
        World {
            now: Time::from_secs(1),
            ends: [make(0), make(1)],
            ways,
            ids: [None, None],
            came: [Vec::new(), Vec::new()],
            sent: [0; 2],
            lose: Vec::new(),
            bytes: [0; 2],
            doubles: false,
            changed: 0,
            dice: stream(seed, 0, "changes"),
        }
    }

    /// The same with a link that is open.
    pub(crate) fn open(settings: &LinkSettings, seed: u64) -> World {
        World::new(settings, seed).opened()
    }

    pub(crate) fn opened(mut self) -> World {
        self.ids[0] = Some(self.ends[0].connect(self.now, address(1), None).unwrap());
        self.run(Duration::from_secs(5));
        for end in 0..2 {
            assert_eq!(self.state(end), Some(State::Open), "end {end}");
            self.link(end).admit_lanes();
        }
        self
    }

    pub(crate) fn link(&mut self, end: usize) -> &mut QuicLink {
        self.ends[end].link(self.ids[end].unwrap()).unwrap()
    }

    pub(crate) fn state(&mut self, end: usize) -> Option<State> {
        let id = self.ids[end]?;
        self.ends[end].link(id).map(|link| link.state())
    }

    pub(crate) fn write(&mut self, end: usize, units: &[u8]) {
        self.link(end).write(units).unwrap();
        self.send(end, self.ids[end].unwrap());
    }

    /// Sends what a link has, and what answers strangers.
    pub(crate) fn send(&mut self, end: usize, id: ConnId) {
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
    pub(crate) fn run(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            (0..2).for_each(|end| self.look(end));
            let lines = self.ways.iter().map(Link::next_timeout);
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

    pub(crate) fn deliver(&mut self, end: usize, from: SocketAddr, bytes: &[u8]) {
        let arrival = Arrival { from, to: None, ecn: 0, bytes };
        self.ends[end].receive(self.now, arrival, &mut |_, _| true);
    }

    /// Reads what came to the links of an end, and sends what they have.
    pub(crate) fn look(&mut self, end: usize) {
        while let Some(id) = self.ends[end].next_touched() {
            self.ids[end].get_or_insert(id);
            let mut over = false;
            if let Some(link) = self.ends[end].link(id) {
                over = link.read(&mut self.came[end]).is_err();
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
