//! A simulated splitter with its paths, clients and server in memory. There are no sockets and no
//! clock, and every run is reproducible.
//!
//! The datagrams of the splitter's core pass through a `netem::Link` for each path and direction.
//! Clients and the server are small models of how real programs use addresses.

#![allow(missing_docs, reason = "helpers of tests, named by what they do")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anabranch_comps::{Batch, Config, Core, Event, Input, Output, Payload, SessionId, TupleId};
use anabranch_multipath::conformance::check_at_rest;
use anabranch_multipath::{Core as _, PathId, Time};
use anabranch_netem::{Link, LinkSettings, Loss};

pub mod holding;
pub mod moving;

/// Default one-way delay of a path.
pub const DELAY: Duration = Duration::from_millis(10);

/// A client's address as a server sees it: a socket of the splitter. It is represented by the
/// identifiers of the session and of the socket's tuple (a path with one of its source ports).
pub type SeenAddress = (SessionId, TupleId);

/// A model of a server. `receive` returns the server's answers to a datagram, each with its
/// destination address.
pub trait Server {
    fn receive(
        &mut self,
        now: Time,
        from: SeenAddress,
        datagram: &[u8],
    ) -> Vec<(SeenAddress, Vec<u8>)>;
}

/// A datagram that the splitter has sent on a path.
#[derive(Clone, Debug)]
pub struct Sent {
    pub time: Time,
    pub session: SessionId,
    pub tuple: TupleId,
    pub path: PathId,
    pub datagram: Vec<u8>,
}

struct InFlightDatagram {
    seen: SeenAddress,
    datagram: Vec<u8>,
}

pub struct World<S> {
    pub core: Core,
    pub server: S,
    pub now: Time,
    pub up: Vec<Link<Sent>>,
    down: Vec<Link<InFlightDatagram>>,
    paths: BTreeMap<SeenAddress, PathId>,
    pub sent: Vec<Sent>,
    pub events: Vec<(Time, Event)>,
    /// Datagrams that the splitter has returned to each client, with their times.
    pub returned: BTreeMap<SocketAddr, Vec<(Time, Vec<u8>)>>,
    /// For each session, the server that the client chose; `None` if the listener has a single
    /// server.
    pub wanted: BTreeMap<SessionId, Option<SocketAddr>>,
    /// For each batch of datagrams returned to a client, in order: the client, and the source
    /// address of the datagrams. The address is `None` if the client chose no server.
    pub seems: Vec<(SocketAddr, Option<SocketAddr>)>,
    /// Paths that cannot reach the server. The world reports them to the core when it resolves the
    /// server's name.
    pub barred: Vec<PathId>,
    /// Whether the paths deliver each datagram twice, in both directions.
    pub duplicate: bool,
    unresolved: Vec<SessionId>,
    pub resolves: bool,
    /// For each path, the index of its emulated link.
    lines: Vec<usize>,
    /// For each tuple (a path with one of its source ports), the name of its socket, which the
    /// server sees as the client's address. The name is the tuple that first used the socket or,
    /// if that tuple is already a name, a later tuple. A socket keeps its name when the splitter
    /// is reconfigured.
    sockets: BTreeMap<SeenAddress, SeenAddress>,
}

pub fn client(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 10_000 + number))
}

pub fn config(paths: usize, schedule: &str, every: &str) -> Config {
    Config {
        schedule: schedule.parse().unwrap(),
        every: every.parse().unwrap(),
        seed: 7,
        ..Config::of(paths)
    }
}

pub fn link() -> LinkSettings {
    LinkSettings { delay: DELAY, ..LinkSettings::with_rate(100_000_000) }
}

pub fn lossy(loss: f64) -> LinkSettings {
    LinkSettings { loss: Loss::Bernoulli(loss), ..link() }
}

impl<S: Server> World<S> {
    pub fn new(config: Config, server: S) -> World<S> {
        let links = vec![link(); config.ports.len()];
        World::with_links(config, server, &links)
    }

    pub fn with_links(config: Config, server: S, links: &[LinkSettings]) -> World<S> {
        let entity = |index: usize, back: u64| 2 * index as u64 + back;
        let seed = config.seed;
        World {
            core: Core::new(config).unwrap(),
            server,
            now: Time::ZERO,
            up: links
                .iter()
                .enumerate()
                .map(|(i, link)| Link::new(link.clone(), seed, entity(i, 0)))
                .collect(),
            down: links
                .iter()
                .enumerate()
                .map(|(i, link)| Link::new(link.clone(), seed, entity(i, 1)))
                .collect(),
            paths: BTreeMap::new(),
            sent: Vec::new(),
            events: Vec::new(),
            returned: BTreeMap::new(),
            wanted: BTreeMap::new(),
            seems: Vec::new(),
            barred: Vec::new(),
            duplicate: false,
            unresolved: Vec::new(),
            resolves: true,
            lines: (0..links.len()).collect(),
            sockets: BTreeMap::new(),
        }
    }

    /// Applies another configuration of the splitter. `before` has, for each path in `config`, the
    /// path's former index, or `None` for a new path, which gets a new link. The sockets of
    /// remaining paths are kept.
    pub fn reconfigure(&mut self, config: Config, before: &[Option<usize>]) {
        let places: Vec<_> = before.iter().map(|path| path.map(PathId::at)).collect();
        let seed = config.seed;
        let numbers = self.core.reconfigure(self.now, config, &places).unwrap();
        let lines = std::mem::take(&mut self.lines);
        for path in before {
            self.lines.push(path.map_or(self.up.len(), |path| lines[path]));
            if path.is_none() {
                let entity = 2 * self.up.len() as u64;
                self.up.push(Link::new(link(), seed, entity));
                self.down.push(Link::new(link(), seed, entity + 1));
            }
        }
        let sockets = std::mem::take(&mut self.sockets).into_iter();
        self.sockets = sockets
            .filter_map(|((session, tuple), name)| {
                numbers.tuple(tuple).map(|(_, tuple)| ((session, tuple), name))
            })
            .collect();
        let barred = self.barred.clone();
        for session in self.wanted.keys().copied().collect::<Vec<_>>() {
            self.feed(Input::Resolved { session, found: true, barred: &barred });
        }
    }

    /// Returns the name of the socket that `tuple` uses. Assigns a name if there is none.
    fn socket(&mut self, tuple: SeenAddress) -> SeenAddress {
        if let Some(name) = self.sockets.get(&tuple) {
            return *name;
        }
        let free = |name: &SeenAddress| !self.paths.contains_key(name);
        let mut names = (tuple.1.0..).map(|number| (tuple.0, TupleId(number)));
        let name = names.find(free).unwrap();
        self.sockets.insert(tuple, name);
        name
    }

    /// Sends one datagram from the client at `from` to the splitter.
    pub fn client(&mut self, from: SocketAddr, datagram: &[u8]) {
        self.client_batch(from, Batch::single(datagram, 0));
    }

    /// Sends a batch of datagrams from the client at `from` to the splitter.
    pub fn client_batch(&mut self, from: SocketAddr, batch: Batch<'_>) {
        self.client_to(from, None, batch);
    }

    /// Sends a batch of datagrams from the client at `from` to the splitter, to be forwarded to
    /// `server`. `None` stands for the splitter's default server.
    pub fn client_to(&mut self, from: SocketAddr, server: Option<SocketAddr>, batch: Batch<'_>) {
        self.core.handle(self.now, Input::Client { client: from, server, local: None, batch });
        self.drain(&batch);
    }

    /// Sends numbered datagrams from the client at `from`, one after each interval `every`, until
    /// `end`.
    pub fn stream(&mut self, from: SocketAddr, every: Duration, end: Time) {
        while self.now < end {
            let number = self.now.nanos();
            self.client(from, &numbered(number));
            let next = self.now + every;
            self.run_until(next.min(end));
        }
    }

    /// Interrupts the path with this index if `down`; otherwise restores it. The splitter must
    /// find this out by itself.
    pub fn cut(&mut self, path: usize, down: bool) {
        self.up[path].change(self.now, |settings| settings.down = down);
        self.down[path].change(self.now, |settings| settings.down = down);
    }

    /// Passes an input without datagrams to the splitter's core.
    pub fn feed(&mut self, input: Input<'_>) {
        self.core.handle(self.now, input);
        self.drain(&Batch::single(&[], 0));
    }

    /// Advances the simulated time to `end`, and processes everything that happens until then.
    pub fn run_until(&mut self, end: Time) {
        while let Some(next) = self.next_time().filter(|&next| next <= end) {
            self.now = self.now.max(next);
            self.deliver_up();
            self.deliver_down();
            self.drain(&Batch::single(&[], 0));
        }
        self.now = end;
    }

    /// Counts the datagrams sent on each path from `from` to `to`.
    pub fn counts(&self, from: Time, to: Time) -> Vec<usize> {
        let on = |path: usize| {
            self.sent
                .iter()
                .filter(|s| s.path.index() == path && s.time >= from && s.time < to)
                .count()
        };
        (0..self.up.len()).map(on).collect()
    }

    pub fn has_event(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(|(_, event)| wanted(event))
    }

    /// Returns a log of all sent datagrams and all events. Equal logs show that two runs were
    /// equal.
    pub fn trace(&self) -> String {
        let sent = self
            .sent
            .iter()
            .map(|s| format!("{:?} {:?} {:?} {}\n", s.time, s.session, s.tuple, s.datagram.len()));
        let events = self.events.iter().map(|(time, event)| format!("{time:?} {event:?}\n"));
        sent.chain(events).collect()
    }

    fn next_time(&self) -> Option<Time> {
        let links = self
            .up
            .iter()
            .filter_map(Link::next_timeout)
            .chain(self.down.iter().filter_map(Link::next_timeout));
        links.chain(self.core.next_timeout()).min()
    }

    fn deliver_up(&mut self) {
        for path in 0..self.up.len() {
            while let Some(sent) = self.up[path].pop(self.now) {
                for (seen, datagram) in
                    self.server.receive(self.now, (sent.session, sent.tuple), &sent.datagram)
                {
                    self.answer(seen, datagram);
                }
            }
        }
    }

    /// Sends a datagram from the server to `seen`, a client address from which the server has
    /// received datagrams.
    pub fn answer(&mut self, seen: SeenAddress, datagram: Vec<u8>) {
        let path = self.paths[&seen].index();
        for _ in 0..1 + usize::from(self.duplicate) {
            let bytes = datagram.len() + 28;
            let _ = self.down[path].push(
                self.now,
                InFlightDatagram { seen, datagram: datagram.clone() },
                bytes,
            );
        }
    }

    fn deliver_down(&mut self) {
        for path in 0..self.down.len() {
            while let Some(InFlightDatagram { seen: (session, tuple), datagram }) =
                self.down[path].pop(self.now)
            {
                let batch = Batch::single(&datagram, 0);
                let of_socket = self.sockets.iter().find(|(_, name)| **name == (session, tuple));
                self.core.handle(
                    self.now,
                    match of_socket.map(|(tuple, _)| tuple.1) {
                        Some(tuple) => Input::Server { session, tuple, batch },
                        None => Input::Late { session, batch },
                    },
                );
                self.drain(&batch);
            }
        }
    }

    fn drain(&mut self, batch: &Batch<'_>) {
        while let Some(output) = self.core.poll(self.now) {
            match output {
                Output::Send { session, tuple, path, payload } => {
                    self.leave(session, tuple, path, payload, batch)
                }
                Output::SendToClient { client, server, held, .. } => {
                    self.seems.push((client, server));
                    let bytes = held.map_or(batch.bytes.to_vec(), |held| held.bytes.into_vec());
                    self.returned.entry(client).or_default().push((self.now, bytes));
                }
                Output::Resolve { session, server } => self.resolve(session, server),
                Output::Close { .. } => {}
                Output::Event(event) => self.events.push((self.now, event)),
            }
        }
        check_at_rest(&mut self.core, self.now);
    }

    fn resolve(&mut self, session: SessionId, server: Option<SocketAddr>) {
        self.wanted.insert(session, server);
        if !self.resolves {
            return self.unresolved.push(session);
        }
        let barred = self.barred.clone();
        self.core.handle(self.now, Input::Resolved { session, found: true, barred: &barred });
    }

    fn leave(
        &mut self,
        session: SessionId,
        tuple: TupleId,
        path: PathId,
        payload: Payload,
        batch: &Batch<'_>,
    ) {
        let (bytes, stride) = match payload {
            Payload::Live(part) => (batch.bytes[part].to_vec(), batch.stride),
            Payload::Kept { bytes, .. } => (bytes.to_vec(), bytes.len()),
        };
        let (_, tuple) = self.socket((session, tuple));
        let path = PathId::at(self.lines[path.index()]);
        self.paths.insert((session, tuple), path);
        for datagram in bytes.chunks(stride.max(1)) {
            let sent = Sent { time: self.now, session, tuple, path, datagram: datagram.to_vec() };
            self.sent.push(sent.clone());
            for _ in 0..1 + usize::from(self.duplicate) {
                let _ = self.up[path.index()].push(self.now, sent.clone(), datagram.len() + 28);
            }
        }
    }
}

/// Returns a datagram of no known protocol. It contains the last seven bytes of `number`.
pub fn numbered(number: u64) -> Vec<u8> {
    let mut datagram = vec![0x55; 200];
    datagram[..8].copy_from_slice(&number.to_be_bytes());
    datagram[0] = 0x55;
    datagram
}

/// A server that answers every datagram, like WireGuard and Mosh. It sends to the source address
/// of the newest datagram, and drops replayed datagrams.
#[derive(Default)]
pub struct Follower {
    newest: BTreeMap<SessionId, (Vec<u8>, SeenAddress)>,
    pub accepted: usize,
    pub replays: usize,
}

impl Server for Follower {
    fn receive(
        &mut self,
        _now: Time,
        from: SeenAddress,
        datagram: &[u8],
    ) -> Vec<(SeenAddress, Vec<u8>)> {
        let newest = self.newest.entry(from.0).or_insert_with(|| (Vec::new(), from));
        if datagram == newest.0 {
            self.replays += 1;
            return Vec::new();
        }
        if datagram > newest.0.as_slice() {
            *newest = (datagram.to_vec(), from);
        }
        self.accepted += 1;
        vec![(newest.1, datagram.to_vec())]
    }
}

/// A server that answers every datagram, but always to the session's first client address, like
/// Caddy 2.6.
#[derive(Default)]
pub struct Stubborn {
    first: BTreeMap<SessionId, SeenAddress>,
}

impl Server for Stubborn {
    fn receive(
        &mut self,
        _now: Time,
        from: SeenAddress,
        datagram: &[u8],
    ) -> Vec<(SeenAddress, Vec<u8>)> {
        vec![(*self.first.entry(from.0).or_insert(from), datagram.to_vec())]
    }
}

/// A server that never answers.
pub struct Mute;

impl Server for Mute {
    fn receive(
        &mut self,
        _now: Time,
        _from: SeenAddress,
        _datagram: &[u8],
    ) -> Vec<(SeenAddress, Vec<u8>)> {
        Vec::new()
    }
}
