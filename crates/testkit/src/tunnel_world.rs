//! A near end, a far end and the paths between them, in memory.

#![allow(missing_docs, reason = "helpers of tests, named by what they do")]

pub mod tcp;

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::seed::{Stream, stream};
use anabranch_multipath::{Assignment, Backlog, Boundary, PathId, PathView, Splitter, Time};
use anabranch_netem::{Link, LinkSettings};
use anabranch_tunnel::keys::{KeyPair, Psk, PublicKey};
use anabranch_tunnel::{ClientId, Far, Near, PacketKind, Peer, pieces};

/// Label of the server behind the far end.
pub const LABEL: &str = "home";
/// Flow of the program whose datagrams are sent.
const FLOW: u16 = 0xfffe;
/// Wall clock of the client at the start, in milliseconds since 1970.
const WALL: u64 = 1_800_000_000_000;

/// One direction of a path.
type Wire = Link<Vec<u8>>;

pub struct World {
    pub now: Time,
    pub near: Near<Stream>,
    pub far: Far<Stream>,
    pub client: Option<ClientId>,
    /// Address of the near end on each path.
    pub addresses: Vec<SocketAddr>,
    pub up: Vec<Wire>,
    pub down: Vec<Wire>,
    pub cut: Vec<bool>,
    /// Paths that lose the downlink but deliver the uplink.
    pub cut_down: Vec<bool>,
    /// Number of handshakes that the far end has answered.
    pub handshakes: usize,
    /// Number of sessions opened at the far end.
    pub begun: usize,
    splitters: [Splitter; 2],
    /// Whether the schedule uses windows; `backlogs` are the datagrams that wait for them, up and
    /// down.
    windows: bool,
    pub backlogs: [Backlog<Vec<u8>>; 2],
    /// Datagrams delivered at the far end and at the near end, with their times.
    pub out: [Vec<(Time, Vec<u8>)>; 2],
    /// All packets that the observer of each path saw.
    pub seen: Vec<Vec<Vec<u8>>>,
    seed: u64,
}

pub fn pair(seed: u64) -> (KeyPair, KeyPair) {
    let made = |entity| KeyPair::generate(&mut stream(seed, entity, "keys"));
    (made(1), made(2))
}

pub fn near(seed: u64, far: PublicKey, own: KeyPair, psk: Psk, paths: u16) -> Near<Stream> {
    let near = Near::new(own, (far, psk), LABEL, paths, &[], stream(seed, 7, "near"));
    let mut near = near.unwrap();
    near.prefer_aes(true);
    near
}

impl World {
    /// Creates a world with paths of these settings in both directions.
    pub fn new(seed: u64, paths: &[LinkSettings], every: &str) -> World {
        World::scheduled(seed, paths, "uniform", every)
    }

    /// Creates such a world with another schedule.
    pub fn scheduled(seed: u64, paths: &[LinkSettings], schedule: &str, every: &str) -> World {
        let spec = Spec::over_windows(schedule).unwrap();
        let windows = spec.family().needs_windows;
        let (near_keys, far_keys) = pair(seed);
        let psk = [9; 32];
        let clients = [(near_keys.public, psk)];
        let far_public = far_keys.public;
        let wires = |way: u64| {
            let wire = |(place, one): (usize, &LinkSettings)| {
                Link::new(one.clone(), seed, 2 * place as u64 + way)
            };
            paths.iter().enumerate().map(wire).collect()
        };
        let splitter = |entity| {
            let scheduler = spec.build(paths.len(), stream(seed, entity, "schedule")).unwrap();
            let boundary = Boundary::new(every.parse().unwrap(), stream(seed, entity, "runs"));
            Splitter::new(scheduler, boundary)
        };
        let mut near = near(seed, far_public, near_keys, psk, paths.len() as u16);
        if windows {
            near.session().keep_windows(true);
        }
        World {
            now: Time::from_millis(10),
            near,
            far: Far::new(far_keys, &clients, &[], stream(seed, 8, "far")),
            client: None,
            addresses: (0..paths.len()).map(address).collect(),
            up: wires(0),
            down: wires(1),
            cut: vec![false; paths.len()],
            cut_down: vec![false; paths.len()],
            handshakes: 0,
            begun: 0,
            splitters: [splitter(3), splitter(4)],
            windows,
            backlogs: Default::default(),
            out: [Vec::new(), Vec::new()],
            seen: vec![Vec::new(); paths.len()],
            seed,
        }
    }

    /// Processes everything that is due by `until`.
    pub fn run_until(&mut self, until: Time) {
        loop {
            self.speak();
            let wires = self.up.iter().chain(&self.down).filter_map(Link::next_timeout).min();
            let far = self.client.and_then(|client| self.far.session(client)?.next_timeout());
            let next = [wires, far, Some(self.near.next_timeout())].into_iter().flatten().min();
            let next = next.unwrap_or(until).max(self.now);
            if next > until {
                self.now = until;
                return;
            }
            // `speak` handles timeouts that have passed.
            self.now = next.max(self.now + Duration::from_micros(1));
            self.arrive();
        }
    }

    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Sends a datagram of the program; returns false if it has to wait or was lost.
    pub fn send_up(&mut self, datagram: &[u8]) -> bool {
        if self.windows {
            self.backlogs[0].push(self.now, (datagram.to_vec(), datagram.len()), 2 << 20);
            self.drain_up();
            return self.backlogs[0].is_empty();
        }
        let views = self.views_up();
        let assigned = self.splitters[0].assign(self.now, &views, 1);
        let Assignment::Send { path, .. } = assigned else { return false };
        self.seal_up(path, datagram)
    }

    /// Sends a datagram of the server; returns false if it has to wait or was lost.
    pub fn send_down(&mut self, datagram: &[u8]) -> bool {
        if self.windows {
            self.backlogs[1].push(self.now, (datagram.to_vec(), datagram.len()), 2 << 20);
            self.drain_down();
            return self.backlogs[1].is_empty();
        }
        let Some(client) = self.client else { return false };
        let assigned = self.splitters[1].assign(self.now, &self.views_down(client), 1);
        let Assignment::Send { path, .. } = assigned else { return false };
        self.seal_down(client, path, datagram)
    }

    pub fn views_up(&mut self) -> Vec<PathView> {
        let now = self.now;
        (0..self.up.len()).map(|path| self.near.session().view(now, PathId::at(path))).collect()
    }

    pub fn views_down(&self, client: ClientId) -> Vec<PathView> {
        (0..self.up.len()).map(|path| self.far.view(self.now, client, PathId::at(path))).collect()
    }

    fn seal_up(&mut self, path: PathId, datagram: &[u8]) -> bool {
        let room = self.near.session().room(path);
        pieces(datagram, room).all(|piece| {
            let mut packet = Vec::new();
            let sealed = self.near.seal(self.now, path, (FLOW, piece), &mut packet);
            if sealed {
                self.carry(path, packet, true);
            }
            sealed
        })
    }

    fn seal_down(&mut self, client: ClientId, path: PathId, datagram: &[u8]) -> bool {
        let room = self.far.session(client).and_then(|session| session.room(path));
        pieces(datagram, room).all(|piece| {
            let mut packet = Vec::new();
            let to = self.far.seal(self.now, client, path, (FLOW, piece), &mut packet);
            let Some(to) = to else { return false };
            let path = self.addresses.iter().position(|address| *address == to.remote);
            if let Some(path) = path {
                self.carry(PathId::at(path), packet, false);
            }
            true
        })
    }

    /// Sends queued datagrams of the uplink as far as windows have room.
    fn drain_up(&mut self) {
        loop {
            let views = self.views_up();
            let next = self.backlogs[0].assign(self.now, &mut self.splitters[0], &views);
            let Some((path, units, _)) = next else { return };
            for _ in 0..units {
                let Some(datagram) = self.backlogs[0].pop() else { break };
                self.seal_up(path, &datagram);
            }
        }
    }

    fn drain_down(&mut self) {
        while let Some(client) = self.client {
            let views = self.views_down(client);
            let next = self.backlogs[1].assign(self.now, &mut self.splitters[1], &views);
            let Some((path, units, _)) = next else { return };
            for _ in 0..units {
                let Some(datagram) = self.backlogs[1].pop() else { break };
                self.seal_down(client, path, &datagram);
            }
        }
    }

    /// Restarts the far end: it keeps its keys, and nothing else.
    pub fn restart_far(&mut self) {
        let (near_keys, far_keys) = pair(self.seed);
        let rng = stream(self.seed + 1, 8, "far");
        self.far = Far::new(far_keys, &[(near_keys.public, [9; 32])], &[], rng);
        self.client = None;
    }

    fn carry(&mut self, path: PathId, packet: Vec<u8>, up: bool) {
        let place = path.index();
        self.seen[place].push(packet.clone());
        if !self.cut[place] && (up || !self.cut_down[place]) {
            let length = packet.len() + 28;
            let wire = if up { &mut self.up[place] } else { &mut self.down[place] };
            let _ = wire.push(self.now, packet, length);
        }
    }

    fn speak(&mut self) {
        loop {
            let mut packet = Vec::new();
            let wall = WALL + self.now.nanos() / 1_000_000;
            let Some(path) = self.near.say(self.now, wall, &mut packet) else { break };
            self.carry(path, packet, true);
        }
        while let Some(client) = self.client {
            let mut packet = Vec::new();
            let Some(to) = self.far.say(self.now, client, &mut packet) else { break };
            self.answer(to, packet);
        }
        while let Some(datagram) = self.near.session().poll(self.now) {
            assert_eq!(datagram.flow, FLOW);
            self.out[1].push((self.now, datagram.bytes().to_vec()));
            self.near.session().recycle(datagram);
        }
        let Some(client) = self.client else { return };
        while let Some(datagram) =
            self.far.session(client).and_then(|session| session.poll(self.now))
        {
            assert_eq!(datagram.flow, FLOW);
            self.out[0].push((self.now, datagram.bytes().to_vec()));
        }
    }

    fn answer(&mut self, to: Peer, packet: Vec<u8>) {
        if let Some(place) = self.addresses.iter().position(|address| *address == to.remote) {
            self.carry(PathId::at(place), packet, false);
        }
    }

    fn arrive(&mut self) {
        for place in 0..self.up.len() {
            while let Some(packet) = self.up[place].pop(self.now) {
                match self.far.receive(self.now, self.addresses[place].into(), &packet) {
                    PacketKind::Handshake(answer, accepted) => {
                        self.handshakes += 1;
                        if let Some(accepted) = accepted {
                            assert_eq!(accepted.label, LABEL);
                            self.client = Some(accepted.client);
                            if self.windows {
                                let session = self.far.session(accepted.client).unwrap();
                                session.keep_windows(true);
                            }
                            self.begun += 1;
                        }
                        self.answer(self.addresses[place].into(), answer);
                    }
                    PacketKind::Session(_) | PacketKind::Nothing => {}
                }
            }
            while let Some(packet) = self.down[place].pop(self.now) {
                self.near.open(self.now, &packet);
            }
        }
        if self.windows {
            self.drain_up();
            self.drain_down();
        }
    }
}

pub fn address(place: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, place as u8 + 1], 40_000))
}

/// Returns a path of 100 Mbit/s with a one-way delay of `delay_ms` and an unlimited queue.
pub fn path(delay_ms: u64) -> LinkSettings {
    LinkSettings { delay: Duration::from_millis(delay_ms), ..LinkSettings::with_rate(100_000_000) }
}
