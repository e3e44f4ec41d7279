//! A network of nodes in virtual time. Each pair of nodes has a link in each direction.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anabranch_more::{
    Config, Datagram, DropReason, Ending, Event, MoreNode, Network, NodeCounters, Output, Peer,
    SecretKey, StreamId,
};
use anabranch_multipath::conformance::check_at_rest;
use anabranch_multipath::{Core as _, Time};
use anabranch_netem::{Link, LinkSettings};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

pub const MS: Duration = Duration::from_millis(1);
/// Port of the first transfer's destination.
const PORT: u16 = 1_000;

/// Returns `length` bytes of the stream of `seed`, beginning at the offset `from`.
pub fn pattern(seed: u64, from: u64, length: usize) -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed) >> 29) as u8;
    (from..from + length as u64).map(byte).collect()
}

/// Returns the FNV-1a hash `state` extended by `bytes`.
pub fn hash(mut state: u64, bytes: &[u8]) -> u64 {
    for &byte in bytes {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    state
}

/// A program at one end of a stream.
#[derive(Clone, Debug)]
pub struct Program {
    pub node: usize,
    pub id: Option<StreamId>,
    seed: u64,
    pub total: u64,
    pub written: u64,
    /// True if the stream has no room for bytes.
    blocked: bool,
    pub received: u64,
    pub hash: u64,
    pub ending: Option<Ending>,
}

impl Program {
    fn new(node: usize, seed: u64, total: u64) -> Program {
        Program {
            node,
            id: None,
            seed,
            total,
            written: 0,
            blocked: false,
            received: 0,
            hash: 1,
            ending: None,
        }
    }

    fn work(&mut self, nodes: &mut [MoreNode]) {
        let Some(id) = self.id.filter(|_| self.ending.is_none()) else { return };
        let node = &mut nodes[self.node];
        while self.written < self.total && !self.blocked {
            let length = (self.total - self.written).min(16_384);
            let taken = node.write(id, &pattern(self.seed, self.written, length as usize));
            self.written += taken as u64;
            self.blocked = (taken as u64) < length;
        }
        let (front, back) = node.peek(id);
        let bytes = [front, back].concat();
        self.received += bytes.len() as u64;
        self.hash = hash(self.hash, &bytes);
        if !bytes.is_empty() {
            node.consume(id, bytes.len());
        }
    }
}

/// A transfer between two programs: one at the client, and one at the destination beyond the exit.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub ends: [Program; 2],
    /// Number of times that the exit was requested to connect to the destination.
    pub begun: u32,
    /// True if the client closes the stream after it has received all bytes.
    pub closes: bool,
}

impl Transfer {
    pub fn is_done(&self) -> bool {
        let [client, server] = &self.ends;
        client.received == server.total && server.received == client.total
    }

    pub fn assert_whole(&self) {
        let [client, server] = &self.ends;
        for (from, to) in [(client, server), (server, client)] {
            assert_eq!(to.received, from.total);
            let sent = hash(1, &pattern(from.seed, 0, from.total as usize));
            assert_eq!(to.hash, sent, "the bytes are those that were sent");
        }
    }
}

/// A datagram in the network.
#[derive(Clone, Debug)]
pub struct SeenDatagram {
    pub from: usize,
    pub to: usize,
    pub bytes: Vec<u8>,
}

/// Function that may change a datagram, and returns false if the datagram is to be dropped.
pub type Tamper = Box<dyn FnMut(&mut SeenDatagram) -> bool>;

pub struct World {
    pub now: Time,
    pub nodes: Vec<MoreNode>,
    pub network: Arc<Network>,
    pub keys: Vec<SecretKey>,
    links: BTreeMap<(usize, usize), Link<Vec<u8>>>,
    pub link: LinkSettings,
    seed: u64,
    pub transfers: Vec<Transfer>,
    /// Hash of the time, ends, length and group element of each datagram.
    pub trace: u64,
    pub sent: u64,
    /// Datagrams sent; `None` if they are not recorded.
    pub seen: Option<Vec<SeenDatagram>>,
    /// Function that may change or drop each datagram before it is sent.
    pub tamper: Option<Tamper>,
}

impl World {
    /// Creates a network of a client and seven other nodes. The last two nodes are exits.
    pub fn new(link: LinkSettings, config: &Config, seed: u64) -> World {
        World::of(8, link, config, seed)
    }

    /// Creates a network of `size` nodes. Node 0 is the client of all transfers, and the last two
    /// nodes are exits.
    pub fn of(size: usize, link: LinkSettings, config: &Config, seed: u64) -> World {
        let keys: Vec<_> =
            (0..size as u8).map(|number| SecretKey::from_bytes([number + 1; 32])).collect();
        let peer = |(at, key): (usize, &SecretKey)| Peer {
            key: key.public(),
            address: address(at),
            weight: 1 + at as u32,
            is_exit: at + 2 >= size,
        };
        let peers = keys.iter().enumerate().map(peer).collect();
        let network = Arc::new(Network::new(peers).expect("no two are equal"));
        let node = |(at, key): (usize, &SecretKey)| {
            let rng = Box::new(ChaCha20Rng::seed_from_u64(seed * 100 + at as u64));
            MoreNode::new(config.clone(), network.clone(), key.clone(), rng).expect("it is listed")
        };
        World {
            now: Time::from_secs(100),
            nodes: keys.iter().enumerate().map(node).collect(),
            network,
            keys,
            links: BTreeMap::new(),
            link,
            seed,
            transfers: Vec::new(),
            trace: 1,
            sent: 0,
            seen: None,
            tamper: None,
        }
    }

    /// Starts a transfer of `up` bytes from node 0, and `down` bytes to it.
    pub fn start(&mut self, up: u64, down: u64) {
        self.start_at(0, up, down);
    }

    /// Starts a transfer of `up` bytes from a client at `node`, and `down` bytes to it.
    pub fn start_at(&mut self, node: usize, up: u64, down: u64) {
        let number = self.transfers.len();
        let mut client = Program::new(node, 2 * number as u64, up);
        client.id = Some(self.nodes[node].open(self.now, target(number)).expect("there is room"));
        let server = Program::new(0, 2 * number as u64 + 1, down);
        self.transfers.push(Transfer { ends: [client, server], begun: 0, closes: true });
    }

    /// Runs until all transfers are complete, or for `limit`.
    pub fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        loop {
            self.turn();
            if self.transfers.iter().all(Transfer::is_done) || !self.advance(end) {
                break;
            }
        }
    }

    /// Runs for `time`.
    pub fn rest(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.turn();
            if !self.advance(end) {
                break;
            }
        }
        self.now = end;
    }

    /// Handles what is due now.
    fn turn(&mut self) {
        self.work();
        self.poll();
        self.work();
    }

    /// Advances the time to the next event, and delivers the datagrams that arrive then. Returns
    /// false if that time is after `end`.
    fn advance(&mut self, end: Time) -> bool {
        let arrivals = self.links.values().filter_map(Link::next_timeout);
        let timers = self.nodes.iter().filter_map(MoreNode::next_timeout);
        let Some(next) = arrivals.chain(timers).min().filter(|next| *next <= end) else {
            return false;
        };
        self.now = self.now.max(next);
        let now = self.now;
        for (&(from, to), link) in &mut self.links {
            while let Some(bytes) = link.pop(now) {
                self.nodes[to].handle(now, Datagram { from: address(from), bytes: &bytes });
            }
        }
        true
    }

    fn work(&mut self) {
        for transfer in &mut self.transfers {
            transfer.ends.iter_mut().for_each(|end| end.work(&mut self.nodes));
            let done = transfer.is_done() && transfer.closes;
            let client = &mut transfer.ends[0];
            if let Some(id) = client.id.filter(|_| done && client.ending.is_none()) {
                self.nodes[client.node].close(id);
                client.id = None;
            }
        }
    }

    fn poll(&mut self) {
        for at in 0..self.nodes.len() {
            while let Some(output) = self.nodes[at].poll(self.now) {
                match output {
                    Output::Send { to, bytes } => self.send(at, to, bytes),
                    Output::Event(event) => self.event(at, event),
                }
                self.work();
            }
            check_at_rest(&mut self.nodes[at], self.now);
        }
    }

    fn send(&mut self, from: usize, to: SocketAddr, bytes: Vec<u8>) {
        let to = self.network.peers().iter().position(|peer| peer.address == to).expect("a node");
        let mut seen = SeenDatagram { from, to, bytes };
        if self.tamper.as_mut().is_some_and(|tamper| !tamper(&mut seen)) {
            return;
        }
        self.push(seen);
    }

    /// Puts a datagram on its link.
    pub fn push(&mut self, seen: SeenDatagram) {
        let SeenDatagram { from, to, bytes } = &seen;
        let about = format!("{:?} {from} {to} {}", self.now, bytes.len());
        self.trace = hash(self.trace, about.as_bytes());
        self.trace = hash(self.trace, &bytes[..bytes.len().min(32)]);
        self.sent += 1;
        let (entity, length) = ((from * 64 + to) as u64, bytes.len() + 28);
        let link = self.links.entry((*from, *to));
        let link = link.or_insert_with(|| Link::new(self.link.clone(), self.seed, entity));
        let _ = link.push(self.now, bytes.clone(), length);
        if let Some(all) = &mut self.seen {
            all.push(seen);
        }
    }

    fn event(&mut self, at: usize, event: Event) {
        match event {
            Event::Begun(id, target) => {
                let transfer = &mut self.transfers[usize::from(target.port() - PORT)];
                transfer.begun += 1;
                (transfer.ends[1].node, transfer.ends[1].id) = (at, Some(id));
                self.nodes[at].connected(id);
            }
            Event::Ended(id, ending) => {
                let ends = self.transfers.iter_mut().flat_map(|transfer| &mut transfer.ends);
                for end in ends.filter(|end| end.node == at && end.id == Some(id)) {
                    end.ending = Some(ending);
                }
            }
            Event::Writable(id) => {
                let ends = self.transfers.iter_mut().flat_map(|transfer| &mut transfer.ends);
                for end in ends.filter(|end| end.node == at && end.id == Some(id)) {
                    end.blocked = false;
                }
            }
            Event::Connected(_) | Event::Readable(_) => {}
        }
    }

    /// Returns the sum of a counter over all nodes.
    pub fn count(&self, counter: impl Fn(&NodeCounters) -> u64) -> u64 {
        self.nodes.iter().map(|node| counter(node.counters())).sum()
    }

    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.count(|counters| counters.dropped(reason))
    }
}

pub fn address(at: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, at as u8 + 1], 9_000))
}

pub fn target(number: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], PORT + number as u16))
}
