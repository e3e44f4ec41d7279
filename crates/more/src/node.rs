//! A node of a MORE network: relay, client and exit in one.

mod packets;
mod streams;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_multipath::{Core, Time};
use rand_core::CryptoRng;

use crate::config::{Config, MAX_HOPS, MIN_PAYLOAD};
use crate::counters::{DropReason, NodeCounters};
use crate::header::KeyTables;
use crate::network::Network;
use crate::secrets::IDENTIFIER;
use crate::sphinx::{Content, Data, OVERHEAD, ReplyKeys, SecretKey, unwrap};
use crate::stream::{Event, Stream, StreamId};
use crate::tags::{Tags, Verdict, tick};
use crate::wire::{Flow, ForwardContent, ReplyContent};

/// Maximum number of packets in a node's send queue: relayed packets, and TCP resets for unknown
/// streams. Further packets are dropped.
const MAX_QUEUE: usize = 4_096;

/// The reason why a node cannot be created with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeError {
    /// The network does not list the node's key.
    NotListed,
    /// A path needs more relays than the network has in addition to this node and the exit. The
    /// field is the number of relays that a path needs.
    TooFewRelays(usize),
    /// The setting [`Config::hops`], the number of nodes on a path, is not in `2..=5`.
    Hops,
    /// The setting [`Config::payload`], the size of packets' content, is below the minimum
    /// ([`MIN_PAYLOAD`]).
    Payload,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::NotListed => f.write_str("the network does not list this node's key"),
            NodeError::TooFewRelays(needed) => {
                write!(f, "a path needs {needed} relays other than this node and the exit")
            }
            NodeError::Hops => write!(f, "a path has 2 to {MAX_HOPS} hops"),
            NodeError::Payload => write!(
                f,
                "the payload is too small: a packet must have at least \
                                             {MIN_PAYLOAD} bytes of content"
            ),
        }
    }
}

impl std::error::Error for NodeError {}

/// Error for a stream that cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The network has no exit other than this node.
    NoExit,
    /// The maximum number of streams ([`Config::streams`]) is open.
    TooMany,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OpenError::NoExit => "the network has no exit other than this node",
            OpenError::TooMany => "this node has too many streams",
        })
    }
}

impl std::error::Error for OpenError {}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The source address of the datagram, which must belong to a node of the network.
    pub from: SocketAddr,
    /// The packet.
    pub bytes: &'a [u8],
}

/// An output of a [`MoreNode`].
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// A datagram to send.
    Send {
        /// The address of the node that receives the datagram.
        to: SocketAddr,
        /// The packet.
        bytes: Vec<u8>,
    },
    /// An event of one of this node's streams.
    Event(Event),
}

/// How an accepted packet was handled: relayed to the next hop, or delivered here. The packet
/// counters distinguish the two.
enum Handled {
    Relayed,
    Delivered,
}

/// The client's record of a reply block that was sent to an exit, and whose reply has not arrived.
struct Outstanding {
    keys: ReplyKeys,
    stream: StreamId,
    expiry: u64,
}

/// A node of a MORE network, without I/O: it relays packets, and is a client and an exit of
/// streams.
pub struct MoreNode {
    config: Config,
    network: Arc<Network>,
    key: SecretKey,
    /// Index of this node in the network's list of nodes.
    me: usize,
    rng: Box<dyn CryptoRng + Send>,
    tags: Tags,
    /// Tables of multiples of the hops' public keys, which accelerate the making of headers.
    tables: KeyTables,
    /// Reply blocks that this node has sent to exits, and whose replies have not arrived, by
    /// identifier.
    outstanding: BTreeMap<[u8; IDENTIFIER], Outstanding>,
    /// Identifiers of the reply blocks in `outstanding`, oldest first. Identifiers of blocks that
    /// were used may still be present.
    order: VecDeque<[u8; IDENTIFIER]>,
    streams: BTreeMap<StreamId, Stream>,
    next_stream: u64,
    /// The streams for which this node is the exit, by flow (the random name in the client's
    /// packets).
    flows: BTreeMap<Flow, StreamId>,
    /// Flows (random names of streams) that ended recently at this exit, as a set and as a queue,
    /// oldest first. A late SYN of such a flow must not open a connection to the destination
    /// again.
    recent: (BTreeSet<Flow>, VecDeque<Flow>),
    /// Queue of the streams that may have something to send. They take turns, with one packet
    /// each.
    due: VecDeque<StreamId>,
    timers: BTreeSet<(Time, StreamId)>,
    packets: VecDeque<Output>,
    events: VecDeque<Event>,
    counters: NodeCounters,
}

impl MoreNode {
    /// Creates the node of `network` that has the private key `key`. The times passed to all nodes
    /// must count from the same moment, so that nodes agree on the current tick (a period of 30 s)
    /// and on expiry.
    ///
    /// # Errors
    /// [`NodeError`] if a setting is invalid, or if the network does not list `key` or has too few
    /// relays.
    pub fn new(
        config: Config,
        network: Arc<Network>,
        key: SecretKey,
        rng: Box<dyn CryptoRng + Send>,
    ) -> Result<MoreNode, NodeError> {
        let me = network.find(&key.public()).ok_or(NodeError::NotListed)?;
        if !(2..=MAX_HOPS).contains(&config.hops) {
            return Err(NodeError::Hops);
        }
        if config.payload < MIN_PAYLOAD {
            return Err(NodeError::Payload);
        }
        // A path needs `hops - 1` relays besides this node and an exit, which may also be relays.
        if network.relays() < config.hops + 1 {
            return Err(NodeError::TooFewRelays(config.hops - 1));
        }
        Ok(MoreNode {
            tags: Tags::new(config.tags),
            tables: KeyTables::default(),
            config,
            network,
            key,
            me,
            rng,
            outstanding: BTreeMap::new(),
            order: VecDeque::new(),
            streams: BTreeMap::new(),
            next_stream: 0,
            flows: BTreeMap::new(),
            recent: Default::default(),
            due: VecDeque::new(),
            timers: BTreeSet::new(),
            packets: VecDeque::new(),
            events: VecDeque::new(),
            counters: NodeCounters::default(),
        })
    }

    /// Returns the packet counters.
    #[must_use]
    pub fn counters(&self) -> &NodeCounters {
        &self.counters
    }

    /// Returns the number of streams that end at this node.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns the number of stored tags (hashes against replay), and the number of reply blocks
    /// whose replies have not arrived.
    #[must_use]
    pub fn stored(&self) -> [usize; 2] {
        [self.tags.len(), self.outstanding.len()]
    }

    fn take(&mut self, now: Time, datagram: Datagram<'_>) -> Result<Handled, DropReason> {
        let Datagram { from, bytes } = datagram;
        let neighbour = self.network.find_address(from).ok_or(DropReason::UnknownSource)?;
        if bytes.len() != OVERHEAD + self.config.payload {
            return Err(DropReason::Malformed);
        }
        self.tags.expire(tick(now));
        let unwrapped = unwrap(&self.key, bytes, |tag| self.tags.contains(tag))?;
        match self.tags.insert(tick(now), unwrapped.expiry, unwrapped.tag) {
            Verdict::Fresh => {}
            Verdict::Expired => return Err(DropReason::Expired),
            Verdict::Replayed => return Err(DropReason::Replayed),
            Verdict::Full => return Err(DropReason::Full),
        }
        match unwrapped.data {
            Data::Onward(next, bytes) => {
                let next = self.network.find(&next).ok_or(DropReason::NoRoute)?;
                if next == self.me || next == neighbour {
                    return Err(DropReason::Looped);
                }
                if self.packets.len() >= MAX_QUEUE {
                    return Err(DropReason::Queue);
                }
                let to = self.network.peers()[next].address;
                self.packets.push_back(Output::Send { to, bytes });
                Ok(Handled::Relayed)
            }
            Data::Here(content) => self.deliver(now, content).map(|()| Handled::Delivered),
        }
    }

    /// Handles the content of a packet whose last hop is this node.
    fn deliver(&mut self, now: Time, content: Content) -> Result<(), DropReason> {
        match content {
            Content::Forward(bytes) => {
                let forward = ForwardContent::parse(&bytes).ok_or(DropReason::Malformed)?;
                self.take_forward(now, forward)
            }
            Content::Reply(identifier, payload) => {
                let used = self.outstanding.remove(&identifier).ok_or(DropReason::UnknownReply)?;
                let reply =
                    ReplyContent::parse(&used.keys.open(payload)?).ok_or(DropReason::Malformed)?;
                self.take_reply(now, used.stream, reply)
            }
        }
    }

    /// Queues the stream `id` for its turn to send.
    fn wake(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if !std::mem::replace(&mut stream.is_due, true) {
            self.due.push_back(id);
        }
    }
}

impl Core for MoreNode {
    type In<'a> = Datagram<'a>;
    type Out = Output;

    fn handle(&mut self, now: Time, datagram: Datagram<'_>) {
        self.counters.received += 1;
        match self.take(now, datagram) {
            Ok(Handled::Relayed) => self.counters.relayed += 1,
            Ok(Handled::Delivered) => self.counters.delivered += 1,
            Err(reason) => self.counters.drop(reason),
        }
    }

    fn poll(&mut self, now: Time) -> Option<Output> {
        if let Some(event) = self.events.pop_front() {
            return Some(Output::Event(event));
        }
        if let Some(packet) = self.packets.pop_front() {
            return Some(packet);
        }
        while let Some(&(time, id)) = self.timers.first().filter(|(time, _)| *time <= now) {
            self.timers.remove(&(time, id));
            self.wake(id);
        }
        while let Some(id) = self.due.pop_front() {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.is_due = false;
            }
            if self.expire(now, id) {
                continue;
            }
            if let Some(packet) = self.next_packet(now, id) {
                self.counters.sent += 1;
                self.wake(id);
                return Some(packet);
            }
            self.rest(id);
        }
        self.events.pop_front().map(Output::Event)
    }

    fn next_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| *time)
    }
}
