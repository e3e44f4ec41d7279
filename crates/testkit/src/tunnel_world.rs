//! Both ends of a tunnel (near end and far end), and the paths between them, in memory.

#![allow(missing_docs, reason = "helpers of tests, named by what they do")]

pub mod bulk;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::seed::{Stream, stream};
use anabranch_multipath::{Assignment, Backlog, Boundary, PathId, PathView, Splitter, Time};
use anabranch_netem::{Link, LinkSettings};
use anabranch_tunnel::keys::{KeyPair, Psk, PublicKey};
use anabranch_tunnel::{ClientId, FarSide, NearEnd, PacketKind, Peer, pieces};
use rand::RngExt;

/// Name of the server that receives the tunnel's datagrams. The near end selects the server with
/// this name.
pub const LABEL: &str = "home";
/// Identifier of the flow (datagrams between one program and one server) that the test sends.
const FLOW: u16 = 0xfffe;
/// Wall-clock time of the client at the start of a run, in milliseconds since 1970.
const WALL: u64 = 1_800_000_000_000;

/// One direction of a simulated path.
type Wire = Link<Vec<u8>>;

pub struct World {
    pub now: Time,
    pub near: NearEnd<Stream>,
    pub far: FarSide<Stream>,
    pub client: Option<ClientId>,
    /// Address of the near end of the tunnel on each path.
    pub addresses: Vec<SocketAddr>,
    pub up: Vec<Wire>,
    pub down: Vec<Wire>,
    pub cut: Vec<bool>,
    /// For each path, whether it loses everything towards the near end. It still delivers
    /// everything to the far end.
    pub cut_down: Vec<bool>,
    /// Number of handshakes that the far end of the tunnel has answered.
    pub handshakes: usize,
    /// Number of sessions that were opened at the far end of the tunnel.
    pub begun: usize,
    splitters: [Splitter; 2],
    /// Whether the scheduler uses congestion windows.
    windows: bool,
    /// Datagrams that wait for room in congestion windows: those of the near end, and those of the
    /// far end.
    pub backlogs: [Backlog<Vec<u8>>; 2],
    /// Datagrams that the far end (first element) and the near end (second) have delivered, with
    /// their times.
    pub out: [Vec<(Time, Vec<u8>)>; 2],
    /// For each path, all packets that an observer of the path saw.
    pub seen: Vec<Vec<Vec<u8>>>,
    seed: u64,
    /// Model of the CPU cores that both ends share with other programs; `None` if each end has a
    /// CPU core of its own.
    cores: Option<Cores>,
}

/// A machine with fewer CPU cores than busy programs, on which both ends of the tunnel wait for a
/// core. After waiting, an end reads everything that has arrived in the meantime.
struct Cores {
    dice: Stream,
    /// For each end: the time since which it waits, and the time at which it gets a core; `None`
    /// if the end has nothing to do.
    turns: [Option<(Time, Time)>; 2],
    /// For each end, the datagrams of its program that the end has not read yet, with their times.
    unread: [VecDeque<(Time, Vec<u8>)>; 2],
}

impl Cores {
    fn new(seed: u64) -> Cores {
        Cores {
            dice: stream(seed, 9, "cores"),
            turns: [None; 2],
            unread: [VecDeque::new(), VecDeque::new()],
        }
    }

    /// Draws the time for which an end waits for a CPU core after it wakes up. In 80 % of cases, a
    /// core is free within 0.2 ms. Otherwise one or several other programs first use up their time
    /// slices (3 ms in Linux 6).
    fn wait(&mut self) -> Duration {
        let longest = match self.dice.random_range(0..100) {
            0..80 => 200,
            80..98 => 3_000,
            _ => 10_000,
        };
        Duration::from_micros(self.dice.random_range(20..longest))
    }

    /// Returns the time at which `end` gets a CPU core, if it has something to do at `due`.
    fn turn(&mut self, now: Time, end: usize, due: Time) -> Time {
        match self.turns[end] {
            Some((since, runs)) if since <= due => runs,
            _ => {
                let runs = due.max(now) + self.wait();
                self.turns[end] = Some((due, runs));
                runs
            }
        }
    }
}

/// Index of the client's end of the tunnel.
const NEAR: usize = 0;
/// Index of the server's end of the tunnel.
const FAR: usize = 1;

pub fn pair(seed: u64) -> (KeyPair, KeyPair) {
    let made = |entity| KeyPair::generate(&mut stream(seed, entity, "keys"));
    (made(1), made(2))
}

pub fn near(seed: u64, far: PublicKey, own: KeyPair, psk: Psk, paths: u16) -> NearEnd<Stream> {
    let near = NearEnd::new(own, (far, psk), LABEL, paths, &[], stream(seed, 7, "near"));
    let mut near = near.unwrap();
    near.prefer_aes(true);
    near
}

impl World {
    /// Creates a tunnel over paths with these settings in both directions. `every` is the interval
    /// between changes of the path.
    pub fn new(seed: u64, paths: &[LinkSettings], every: &str) -> World {
        World::scheduled(seed, paths, "uniform", every)
    }

    /// Creates a tunnel like [`World::new`], with the scheduler `schedule` instead of `uniform`.
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
            far: FarSide::new(far_keys, &clients, &[], stream(seed, 8, "far")),
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
            cores: None,
        }
    }

    /// Makes both ends of the tunnel wait for a CPU core from now on, for times drawn with `seed`.
    #[must_use]
    pub fn on_busy_cores(mut self, seed: u64) -> World {
        self.cores = Some(Cores::new(seed));
        self
    }

    /// Processes all events until the simulated time `until`.
    pub fn run_until(&mut self, until: Time) {
        while self.step(until) {}
    }

    /// Processes the next event. If there is none before `until`, advances the time to `until` and
    /// returns false.
    pub fn step(&mut self, until: Time) -> bool {
        if self.cores.is_some() {
            return self.step_on_busy_cores(until);
        }
        self.speak();
        let next = [self.due(NEAR), self.due(FAR)].into_iter().flatten().min();
        let next = next.unwrap_or(Time::MAX).max(self.now);
        if next > until {
            self.now = until;
            return false;
        }
        // `speak` handles timeouts that have passed.
        self.now = next.max(self.now + Duration::from_micros(1));
        self.arrive_far();
        self.arrive_near();
        self.drain(NEAR);
        self.drain(FAR);
        self.speak();
        true
    }

    fn step_on_busy_cores(&mut self, until: Time) -> bool {
        let turns = [NEAR, FAR].map(|end| {
            let unread = |cores: &Cores| cores.unread[end].front().map(|(received, _)| *received);
            let due = [self.due(end), self.cores.as_ref().and_then(unread)];
            let due = due.into_iter().flatten().min()?;
            self.cores.as_mut().map(|cores| cores.turn(self.now, end, due))
        });
        let next = turns.iter().flatten().min().copied().unwrap_or(Time::MAX);
        if next > until {
            self.now = until;
            return false;
        }
        self.now = next.max(self.now);
        for end in [NEAR, FAR] {
            if turns[end].is_some_and(|runs| runs <= self.now) {
                self.take_turn(end);
            }
        }
        true
    }

    /// Executes all outputs of the tunnel's end `end`.
    fn take_turn(&mut self, end: usize) {
        let unread = self.cores.as_mut().map(|cores| {
            cores.turns[end] = None;
            std::mem::take(&mut cores.unread[end])
        });
        let unread = unread.into_iter().flatten().map(|(_, datagram)| datagram);
        if end == NEAR {
            self.arrive_near();
            unread.for_each(|datagram| _ = self.take_up(&datagram));
            self.speak_near();
        } else {
            self.arrive_far();
            unread.for_each(|datagram| _ = self.take_down(&datagram));
            self.speak_far();
        }
        self.drain(end);
    }

    /// Returns the time at which the tunnel's end `end` has something to do; `None` if there is no
    /// such time.
    fn due(&mut self, end: usize) -> Option<Time> {
        let (wires, timeout) = match end {
            NEAR => (&self.down, Some(self.near.next_timeout())),
            _ => {
                let client = self.client;
                let far = client.and_then(|client| self.far.session(client)?.next_timeout());
                (&self.up, far)
            }
        };
        wires.iter().filter_map(Link::next_timeout).chain(timeout).min()
    }

    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Sends a datagram from the client's program. Returns false if it must wait or was lost.
    pub fn send_up(&mut self, datagram: &[u8]) -> bool {
        if let Some(cores) = &mut self.cores {
            cores.unread[NEAR].push_back((self.now, datagram.to_vec()));
            return false;
        }
        self.take_up(datagram)
    }

    fn take_up(&mut self, datagram: &[u8]) -> bool {
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

    /// Sends a datagram from the server. Returns false if it must wait or was lost.
    pub fn send_down(&mut self, datagram: &[u8]) -> bool {
        if let Some(cores) = &mut self.cores {
            cores.unread[FAR].push_back((self.now, datagram.to_vec()));
            return false;
        }
        self.take_down(datagram)
    }

    fn take_down(&mut self, datagram: &[u8]) -> bool {
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

    /// Sends the queued datagrams of the tunnel's end `end`, as far as congestion windows have
    /// room.
    fn drain(&mut self, end: usize) {
        match end {
            _ if !self.windows => {}
            NEAR => self.drain_up(),
            _ => self.drain_down(),
        }
    }

    fn drain_up(&mut self) {
        // Like the splitter, this loop counts what it sends, but does not ask the windows again.
        let mut views = self.views_up();
        loop {
            let next = self.backlogs[0].assign(self.now, &mut self.splitters[0], &views);
            let Some((path, units, _)) = next else { return };
            views[path.index()].sent(units);
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

    /// Restarts the far end of the tunnel. After the restart, it has only its keys.
    pub fn restart_far(&mut self) {
        let (near_keys, far_keys) = pair(self.seed);
        let rng = stream(self.seed + 1, 8, "far");
        self.far = FarSide::new(far_keys, &[(near_keys.public, [9; 32])], &[], rng);
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
        self.speak_near();
        self.speak_far();
    }

    fn speak_near(&mut self) {
        loop {
            let mut packet = Vec::new();
            let wall = WALL + self.now.nanos() / 1_000_000;
            let Some(path) = self.near.poll_transmit(self.now, wall, &mut packet) else { break };
            self.carry(path, packet, true);
        }
        while let Some(datagram) = self.near.session().poll(self.now) {
            assert_eq!(datagram.flow, FLOW);
            self.out[1].push((self.now, datagram.bytes().to_vec()));
            self.near.session().recycle(datagram);
        }
    }

    fn speak_far(&mut self) {
        let Some(client) = self.client else { return };
        loop {
            let mut packet = Vec::new();
            let Some(to) = self.far.poll_transmit(self.now, client, &mut packet) else { break };
            self.answer(to, packet);
        }
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

    fn arrive_far(&mut self) {
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
        }
    }

    fn arrive_near(&mut self) {
        for place in 0..self.down.len() {
            while let Some(packet) = self.down[place].pop(self.now) {
                self.near.open(self.now, PathId::at(place), &packet);
            }
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
