//! A simulated network of a client and relays. Their protocol cores (state machines without I/O)
//! are connected by reliable pipes with a delay and a rate. A run depends only on its seed.
#![allow(missing_docs, reason = "helpers of tests, named by what they do")]

mod pipe;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use anabranch_multipath::conformance::check_at_rest;
use anabranch_multipath::{Core as _, Time, seed};
use anabranch_onion::Event;
use anabranch_onion::channel::{Capabilities, Credentials, QuicPreferences, Role, Start};
use anabranch_onion::claims::Claims;
use anabranch_onion::client::{self, CircuitKey, Client, Hop, HopKey};
use anabranch_onion::conflux::{ConfluxParams, Design, LegScheduler};
use anabranch_onion::congestion::Params;
use anabranch_onion::handshake::extension::HopRequest;
use anabranch_onion::padding::{Amount, PaddingParams};
use anabranch_onion::points::{Point, PointLocation, PointTable, Points};
use anabranch_onion::relay::{self, Relay, ServiceParams};
use anabranch_onion::set_table::{OpaqueLeg, SetLocation, SetTable, Sets};
use anabranch_onion::wire::cell::CELL;
use anabranch_onion::wire::conflux::SetNonce;
use anabranch_onion::wire::crypto::{CurveKeys, Sha256};
use anabranch_onion::wire::extend::Target;
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_onion::{
    LinkCore, LinkId, LinkInput, LinkOutput, LossyCongestion, StreamKey, StreamOutput, circuitmux,
};
use digest::Digest;
use pipe::Pipe;
pub use server::Server;

/// Wall-clock time at the start of a simulation, in seconds since 1970.
pub const UNIX: u64 = 1_800_000_000;
/// Number of bytes that are taken from a relay's or client's core at once. No more are taken while
/// this number of bytes waits in the pipe (the simulated connection).
const BATCH: usize = 32 * CELL;

/// A relay with its keys and addresses, and the simulated servers at the other end of its streams.
pub struct RelayNode {
    pub core: Relay,
    pub target: Target,
    pub onion_key: [u8; 32],
    pub tls_certificate: [u8; 32],
    pub servers: BTreeMap<StreamKey, Server>,
    pub violations: Vec<anabranch_onion::Violation>,
    /// Whether the servers at this relay's streams leave all received data unread, so that the
    /// streams stall.
    pub stalled: bool,
}

/// Settings of a simulated network in memory.
#[derive(Clone)]
pub struct Setting {
    pub seed: u64,
    /// Whether bytes arrive in pieces of random length, and all arrivals are hashed to compare
    /// runs. Tests need both. Measurements disable both, because they cost time.
    pub pieces: bool,
    pub relays: usize,
    /// Whether the relays are exits.
    pub exit: bool,
    /// Whether relays extend circuits to private addresses. If not, circuits fail, because all
    /// relays here have private addresses.
    pub allow_private: bool,
    /// Number of cores (event loops, each for a part of the circuits) of each relay.
    pub shards: usize,
    pub rate: u64,
    pub delay: Duration,
    /// Rate (bits per second) and delay of the links to single relays, by the relay's index. For
    /// these relays they replace `rate` and `delay`.
    pub lines: BTreeMap<usize, (u64, Duration)>,
    /// Multipath design: the protocol with which several circuits carry the same streams (Conflux
    /// or another).
    pub design: Design,
    /// Scheduler that distributes data among the circuits of a set, at exit and client; `None` for
    /// the default.
    pub dealing: Option<LegScheduler>,
    /// Scheduler at the client; `None` if it is the same as the exit's scheduler.
    pub client_dealing: Option<LegScheduler>,
    pub policy: circuitmux::Kind,
    pub max_cells: usize,
    pub params: Params,
    pub padding: PaddingParams,
    pub services: ServiceParams,
    /// Amount of link padding (dummy cells that hide idle times) that the client's user has
    /// chosen.
    pub amount: Amount,
    /// Whether links may deliver data out of order. Nodes in `stock`, which model relays without
    /// this feature, have only ordered links.
    pub unordered: bool,
    pub stock: Vec<usize>,
    /// Whether nodes open QUIC links in addition to their first links. Nodes in `stock`, which
    /// model relays without this feature, have no QUIC links.
    pub quic: bool,
    /// Whether a QUIC link's packets reach the core of the relay that the packets' connection ID
    /// encodes. If not, the packets reach any core of the relay.
    pub steered: bool,
    /// Whether QUIC links cannot be opened, as if a firewall blocked UDP.
    pub blocked: bool,
    /// Number of cells per thousand that arrive one round trip late, on links that may deliver
    /// data out of order. The delay stands for a retransmission.
    pub late_per_mille: u32,
    /// Whether QUIC links carry lossy cells (cells that may get lost), and relays allow them. The
    /// relays in `ungranting` (numbered as in `stock`) do not allow them.
    pub lossy: bool,
    pub ungranting: Vec<usize>,
    /// Number of lossy cells (sent in datagrams) per thousand that each link loses.
    pub dropped_per_mille: u32,
    /// Jitter of the delay of lossy cells.
    pub jitter: Duration,
    /// Congestion control of the TCP streams over lossy cells (cells that may get lost), at all
    /// nodes.
    pub lossy_congestion: LossyCongestion,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            seed: 1,
            pieces: true,
            relays: 3,
            exit: true,
            allow_private: true,
            shards: 1,
            rate: 100_000_000,
            delay: Duration::from_millis(5),
            lines: BTreeMap::new(),
            design: Design::default(),
            dealing: None,
            client_dealing: None,
            policy: circuitmux::Kind::Ewma,
            max_cells: 100_000,
            params: Params::default(),
            padding: PaddingParams::default(),
            services: ServiceParams::default(),
            amount: Amount::Full,
            unordered: false,
            quic: false,
            steered: true,
            blocked: false,
            stock: Vec::new(),
            late_per_mille: 0,
            lossy: false,
            ungranting: Vec::new(),
            dropped_per_mille: 0,
            jitter: Duration::ZERO,
            lossy_congestion: LossyCongestion::BBR,
        }
    }
}

/// Introduction and rendezvous points of onion services, which all cores of one relay share.
#[derive(Clone, Default)]
struct SharedPoints(Arc<Mutex<Points>>);

/// Conflux sets (circuits that carry the same streams), which all cores of one relay share.
#[derive(Clone, Default)]
struct SharedSets(Arc<Mutex<Sets>>);

impl SetTable for SharedSets {
    fn enter(&mut self, nonce: &SetNonce, place: SetLocation) -> Option<SetLocation> {
        self.0.lock().unwrap().enter(nonce, place)
    }

    fn find(&self, nonce: &SetNonce) -> Option<SetLocation> {
        self.0.lock().unwrap().find(nonce)
    }

    fn leave(&mut self, nonce: &SetNonce, place: SetLocation) {
        self.0.lock().unwrap().leave(nonce, place);
    }

    fn hand_over(&mut self, leg: OpaqueLeg) -> u64 {
        self.0.lock().unwrap().hand_over(leg)
    }

    fn take_over(&mut self, number: u64) -> Option<OpaqueLeg> {
        self.0.lock().unwrap().take_over(number)
    }
}

impl PointTable for SharedPoints {
    fn enter(&mut self, point: Point, place: PointLocation) -> Option<PointLocation> {
        self.0.lock().unwrap().enter(point, place)
    }

    fn find(&self, point: &Point) -> Option<PointLocation> {
        self.0.lock().unwrap().find(point)
    }

    fn leave(&mut self, point: &Point, place: PointLocation) {
        self.0.lock().unwrap().leave(point, place);
    }
}

/// All nodes and links of a simulated network. Node 0 is the client, and node `n` is `relays[n -
/// 1]`. If a relay has several cores, each core is a node, and these nodes have successive
/// numbers.
pub struct World {
    pub setting: Setting,
    pub now: Time,
    pub client: Client,
    pub relays: Vec<RelayNode>,
    pub outputs: Vec<client::Output>,
    /// Data that [`World::run_for`] has read from the client's streams.
    pub received: BTreeMap<StreamKey, Vec<u8>>,
    /// Streams of the client that [`World::run_for`] does not read.
    pub unread: Vec<StreamKey>,
    pub pipes: BTreeMap<LinkId, Pipe>,
    /// For each link, the times at which data arrived at either end.
    pub moves: BTreeMap<LinkId, Vec<Time>>,
    pub trace: u64,
    /// Index in `relays` of the core whose time is measured; `None` for no measurement.
    pub timed: Option<usize>,
    /// Real time that the core `timed` has used.
    pub spent: Duration,
    links: u64,
    /// Links that the simulation treats as QUIC links.
    pub quic: BTreeSet<LinkId>,
    /// Number of failed attempts to open a QUIC link.
    pub failed_quic: usize,
    /// For each relay, the table of its links, which shows the core that has the link to each
    /// neighbour.
    claims: Vec<Claims>,
    /// The links in `claims`: for each link and node, the RSA identity of the neighbour at the
    /// other end.
    reached: BTreeMap<(LinkId, usize), [u8; 20]>,
    /// Number of links that each relay has accepted.
    accepted: Vec<usize>,
    /// Links in memory between the cores of one relay, by their two nodes.
    siblings: BTreeMap<[usize; 2], LinkId>,
}

/// OR port of all relays, which is also the port for QUIC links.
const ORPORT: u16 = 9001;

fn address(relay: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, relay as u8 + 1).into()
}

/// Keys and certificates of a relay, which are expensive to generate and can be used in any number
/// of worlds.
#[derive(Clone)]
pub struct RelayIdentity {
    credentials: Arc<Credentials>,
    onion_secret: [u8; 32],
    onion_key: [u8; 32],
}

impl RelayIdentity {
    /// Returns the keys of the relay with the index `relay`. They are generated only once for each
    /// `seed`, because RSA keys take most of the time of a short test.
    pub fn new(seed: u64, relay: usize) -> RelayIdentity {
        type IdentityCache = BTreeMap<(u64, usize), Arc<OnceLock<RelayIdentity>>>;
        static KEPT: Mutex<IdentityCache> = Mutex::new(BTreeMap::new());
        let kept = Arc::clone(KEPT.lock().unwrap().entry((seed, relay)).or_default());
        kept.get_or_init(|| RelayIdentity::made(seed, relay)).clone()
    }

    fn made(seed: u64, relay: usize) -> RelayIdentity {
        let mut rng = seed::stream(seed, relay as u64, "relay keys");
        let keys = RelayKeys::generate(&mut rng, UNIX).unwrap();
        let (onion_secret, onion_key) = keys.ntor();
        RelayIdentity {
            credentials: Arc::new(credentials(&keys, seed, relay)),
            onion_secret,
            onion_key,
        }
    }
}

impl World {
    pub fn new(setting: Setting) -> World {
        let identities: Vec<RelayIdentity> =
            (0..setting.relays).map(|relay| RelayIdentity::new(setting.seed, relay)).collect();
        World::of(setting, &identities)
    }

    /// Creates a simulated network whose relays have the keys in `identities`.
    pub fn of(setting: Setting, identities: &[RelayIdentity]) -> World {
        let nodes = 0..setting.relays * setting.shards;
        let paper = |node: usize| &identities[node / setting.shards];
        let mut relays: Vec<RelayNode> =
            nodes.map(|node| new_relay(&setting, node, paper(node))).collect();
        for one in relays.chunks_mut(setting.shards) {
            let (points, sets) = (SharedPoints::default(), SharedSets::default());
            let share = |(shard, node): (usize, &mut RelayNode)| {
                node.core.share(shard, Box::new(points.clone()), Box::new(sets.clone()));
            };
            one.iter_mut().enumerate().for_each(share);
        }
        let config = client::Config {
            params: Arc::new(setting.params.clone()),
            policy: setting.policy,
            max_cells: setting.max_cells,
            padding: setting.amount,
            design: setting.design,
            dealing: setting.client_dealing.clone().or_else(|| setting.dealing.clone()),
        };
        let rng = Box::new(seed::stream(setting.seed, 1000, "client"));
        let mut client = Client::new(config, rng);
        client.set_padding(setting.padding);
        client.set_lossy_congestion(setting.lossy_congestion);
        let mut world = World {
            now: Time::ZERO,
            client,
            relays,
            outputs: Vec::new(),
            received: BTreeMap::new(),
            unread: Vec::new(),
            pipes: BTreeMap::new(),
            moves: BTreeMap::new(),
            trace: 0xcbf2_9ce4_8422_2325,
            timed: None,
            spent: Duration::ZERO,
            links: 0,
            quic: BTreeSet::new(),
            failed_quic: 0,
            claims: (0..setting.relays).map(|_| Claims::default()).collect(),
            reached: BTreeMap::new(),
            accepted: vec![0; setting.relays],
            siblings: BTreeMap::new(),
            setting,
        };
        world.join_shards();
        world
    }

    /// Connects the cores of each relay with each other by links in memory.
    fn join_shards(&mut self) {
        let shards = self.setting.shards;
        let same = |a: usize, b: usize| (a - 1) / shards == (b - 1) / shards;
        let nodes = self.relays.len();
        let pairs = (1..=nodes).flat_map(|a| (a + 1..=nodes).map(move |b| [a, b]));
        for pair in pairs.filter(|&[a, b]| same(a, b)) {
            self.links += 1;
            let link = LinkId::new(0, self.links);
            self.pipes.insert(link, Pipe::sibling(&self.setting, self.links, pair));
            self.siblings.insert(pair, link);
            let [a, b] = pair;
            let [first, second] = pair.map(|node| (node - 1) % shards);
            self.feed(a, LinkInput::Sibling { link, first: true, shard: second });
            self.feed(b, LinkInput::Sibling { link, first: false, shard: first });
        }
    }

    /// Returns the index of a node's relay, and the index of the node among the relay's cores.
    /// Returns `None` for the client.
    fn shard(&self, node: usize) -> Option<(usize, usize)> {
        let place = node.checked_sub(1)?;
        Some((place / self.setting.shards, place % self.setting.shards))
    }

    /// Returns the hop of a circuit through the relay with the index `relay`. `wish` is the set of
    /// features that the client requests in the handshake with this hop.
    pub fn hop(&self, relay: usize, wish: HopRequest) -> Hop {
        let node = &self.relays[relay * self.setting.shards];
        let key = HopKey::NtorV3 { onion_key: node.onion_key, wish };
        Hop { target: node.target.clone(), key }
    }

    /// Builds a circuit of the client over `hops`. Returns whether this succeeded.
    pub fn build(&mut self, key: u64, hops: Vec<Hop>) -> bool {
        let circuit = CircuitKey(key);
        self.client.handle(self.now, client::Input::Build { circuit, hops });
        self.run_for(Duration::from_secs(5));
        let is_it = |output: &client::Output| matches!(output, client::Output::Built { circuit: built, .. } if *built == circuit);
        self.outputs.iter().any(is_it)
    }

    /// Builds a circuit of the client over all relays, with the request `wish` for the last relay.
    pub fn build_through_all(&mut self, key: u64, wish: HopRequest) -> CircuitKey {
        let last = self.setting.relays - 1;
        let asked = |n| if n == last { wish } else { HopRequest::Plain };
        let hops = (0..=last).map(|n| self.hop(n, asked(n))).collect();
        assert!(self.build(key, hops), "{:?}", self.outputs);
        CircuitKey(key)
    }

    /// Returns the number of links between two relays.
    pub fn links_between(&self, relays: [usize; 2]) -> usize {
        let ends = |pipe: &Pipe| pipe.nodes.map(|node| self.shard(node).map(|(relay, _)| relay));
        let fits = |pipe: &&Pipe| {
            let [a, b] = ends(pipe);
            [a, b] == relays.map(Some) || [b, a] == relays.map(Some)
        };
        self.pipes.values().filter(fits).count()
    }

    /// Returns the links of a node, except those to cores of the same relay.
    pub fn links_of(&self, node: usize) -> Vec<LinkId> {
        let is_sibling = |id: &LinkId| self.siblings.values().any(|sibling| sibling == id);
        let of =
            self.pipes.iter().filter(|(id, pipe)| pipe.nodes.contains(&node) && !is_sibling(id));
        of.map(|(id, _)| *id).collect()
    }

    /// Returns the number of bytes sent between cores of the same relay.
    pub fn crossed(&self) -> u64 {
        self.siblings.values().map(|id| self.pipes[id].bytes_sent).sum()
    }

    /// Runs the simulation until no event is left, for at most `span`.
    pub fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            self.settle();
            let Some(next) = self.next_event().filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            self.arrivals();
        }
        self.now = self.now.max(until.min(self.next_event().unwrap_or(self.now)));
    }

    /// Breaks a link at both ends.
    pub fn cut(&mut self, id: LinkId) {
        let Some(mut pipe) = self.pipes.remove(&id) else { return };
        match pipe.unopened() {
            // The end that opened the link is notified that the target is unreachable. The other
            // end never knew of the link.
            Some(target) => {
                let [from, _] = pipe.nodes;
                self.forget(from, id);
                self.feed(from, LinkInput::Unreachable { target });
            }
            None => pipe.nodes.into_iter().for_each(|node| self.close(node, id)),
        }
    }

    /// Makes a QUIC link deliver nothing more to `side`. The driver (network loop) at this side
    /// reports to the core that the link is lost.
    pub fn lose(&mut self, id: LinkId, side: usize) {
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        pipe.swallow_to(side);
        let node = pipe.nodes[side];
        self.forget(node, id);
        self.feed(node, LinkInput::Lost { link: id });
    }

    /// Delivers `bytes` on `link` to a node, as if its neighbour had sent them.
    pub fn forge(&mut self, node: usize, link: LinkId, bytes: &[u8]) {
        self.feed(node, LinkInput::Bytes { link, bytes });
    }

    /// Returns a link between two ends: relays by their indices, or `None` for the client. Returns
    /// `None` if there is no link.
    pub fn link_between(&self, ends: [Option<usize>; 2]) -> Option<LinkId> {
        let [one, other] = ends;
        let of = |node| self.shard(node).map(|(relay, _)| relay);
        let joins = |pipe: &Pipe| [[one, other], [other, one]].contains(&pipe.nodes.map(of));
        self.pipes.iter().find(|(_, pipe)| joins(pipe)).map(|(id, _)| *id)
    }

    /// Returns the core of a node.
    fn core(&mut self, node: usize) -> &mut dyn LinkCore {
        match node {
            0 => &mut self.client,
            n => &mut self.relays[n - 1].core,
        }
    }

    fn feed(&mut self, node: usize, input: LinkInput<'_>) {
        let now = self.now;
        self.taking_time(node, |core| core.handle_link(now, input));
    }

    /// Calls `act` on a core. If this core's time is measured, adds the duration of the call to
    /// `spent`.
    fn taking_time<T>(&mut self, node: usize, act: impl FnOnce(&mut dyn LinkCore) -> T) -> T {
        if self.timed.is_none_or(|timed| timed + 1 != node) {
            return act(self.core(node));
        }
        let begun = Instant::now();
        let done = act(self.core(node));
        self.spent += begun.elapsed();
        done
    }

    fn close(&mut self, node: usize, link: LinkId) {
        self.forget(node, link);
        self.feed(node, LinkInput::Closed { link });
    }

    fn next_event(&self) -> Option<Time> {
        let pipes = self.pipes.values().filter_map(Pipe::next_timeout);
        let relays = self.relays.iter().filter_map(|relay| relay.core.next_timeout());
        pipes.chain(relays).chain(self.client.next_timeout()).min()
    }

    fn arrivals(&mut self) {
        let ids: Vec<LinkId> = self.pipes.keys().copied().collect();
        for id in ids {
            for side in [0, 1] {
                while let Some(bytes) = self.arrival(id, side) {
                    let node = self.pipes[&id].nodes[side];
                    self.note(node, &bytes);
                    self.moves.entry(id).or_default().push(self.now);
                    self.feed(node, LinkInput::Bytes { link: id, bytes: &bytes });
                }
                while let Some(cell) = self.lossy_arrival(id, side) {
                    let node = self.pipes[&id].nodes[side];
                    self.note(node, &cell);
                    self.feed(node, LinkInput::Lossy { link: id, cells: &cell });
                }
            }
            self.opening(id);
        }
    }

    fn arrival(&mut self, id: LinkId, side: usize) -> Option<Vec<u8>> {
        self.pipes.get_mut(&id)?.arrival(self.now, side)
    }

    fn lossy_arrival(&mut self, id: LinkId, side: usize) -> Option<Vec<u8>> {
        self.pipes.get_mut(&id)?.lossy_arrival(self.now, side)
    }

    /// Reports a new link to the cores at both ends, once the handshakes of TCP and TLS are
    /// complete.
    fn opening(&mut self, id: LinkId) {
        let Some(target) = self.pipes.get_mut(&id).and_then(|pipe| pipe.opening(self.now)) else {
            return;
        };
        let [from, to] = self.pipes[&id].nodes;
        let certificate = self.relays[to - 1].tls_certificate;
        let unix = UNIX + self.now.secs_f64() as u64;
        let [opener, taker] = [from, to].map(|node| self.shard(node));
        let setting = &self.setting;
        let speaks = |node| setting.unordered && !setting.stock.contains(&node);
        let [opener_speaks, taker_speaks] = [from, to].map(speaks);
        let made = match self.quic.contains(&id) {
            true => Capabilities::STREAM_PER_CIRCUIT,
            false => Capabilities::ORDERED,
        };
        let wants = |node| setting.quic && !setting.stock.contains(&node);
        let lossy = |node| wants(node) && setting.lossy;
        let first_byte = |node| self.shard(node).map_or(0, |(_, shard)| shard as u8);
        let preferences = |node, port| QuicPreferences {
            port,
            first_byte: first_byte(node),
            unless_unordered: false,
        };
        let lossy = [from, to].map(lossy);
        let start = |peer: Option<_>, own: Option<_>, (unordered, has_quic, preferences), lossy| {
            let peer = peer.map_or(Ipv4Addr::new(10, 9, 9, 9).into(), |(relay, _)| address(relay));
            Start {
                own: own.map(|(relay, _)| address(relay)).into_iter().collect(),
                capabilities: Capabilities { unordered, parallel_quic: has_quic, lossy, ..made },
                quic_preferences: preferences,
                ..Start::new(self.now, unix, peer)
            }
        };
        let ours = Start {
            peer_certificate: Some(certificate),
            ..start(taker, opener, (opener_speaks, wants(from), preferences(from, 0)), lossy[0])
        };
        let theirs =
            start(opener, taker, (taker_speaks, wants(to), preferences(to, ORPORT)), lossy[1]);
        self.feed(from, LinkInput::Opened { link: id, target: Some(target), start: ours });
        self.feed(to, LinkInput::Opened { link: id, target: None, start: theirs });
    }

    /// Executes the outputs of all cores until there are none.
    fn settle(&mut self) {
        loop {
            let mut quiet = true;
            while let Some(output) = self.client.poll(self.now) {
                quiet = false;
                self.on_client_output(output);
            }
            for relay in 0..self.relays.len() {
                while let Some(output) = self.relays[relay].core.poll(self.now) {
                    quiet = false;
                    self.on_relay_output(relay, output);
                }
            }
            quiet &= !self.fill_pipes();
            if quiet {
                break;
            }
        }
        check_at_rest(&mut self.client, self.now);
        self.relays.iter_mut().for_each(|relay| check_at_rest(&mut relay.core, self.now));
    }

    fn fill_pipes(&mut self) -> bool {
        let mut moved = false;
        let ids: Vec<LinkId> = self.pipes.keys().copied().collect();
        for id in ids {
            for side in [0, 1] {
                moved |= self.fill(id, side);
            }
        }
        moved
    }

    /// Fetches data from a core for a link, if the pipe has room. Returns whether the core had
    /// data.
    fn fill(&mut self, id: LinkId, side: usize) -> bool {
        let Some(pipe) = self.pipes.get_mut(&id).filter(|pipe| pipe.wants(side, BATCH)) else {
            return false;
        };
        let (node, now, mut out) = (pipe.nodes[side], self.now, Vec::new());
        let more = self.taking_time(node, |core| core.transmit(now, id, &mut out, BATCH));
        let Some(pipe) = self.pipes.get_mut(&id) else { return false };
        let moved = pipe.push(now, side, out, more);
        let view = pipe.view(side);
        if self.core(node).wants_look(id) {
            self.core(node).handle_link(now, LinkInput::Seen { link: id, view });
        }
        moved
    }

    fn on_link_output(&mut self, node: usize, output: LinkOutput) {
        match output {
            LinkOutput::Dial { target } => self.dial(node, target),
            LinkOutput::DialOwn { target } => self.connect(node, target, None),
            LinkOutput::Transmit { link } => self.ready(node, link),
            LinkOutput::Close { link } => self.hang_up(node, link),
            LinkOutput::Export { link, context } => {
                let secret =
                    Sha256::new().chain_update(link.bits().to_be_bytes()).chain_update(context);
                let secret = secret.finalize().into();
                self.feed(node, LinkInput::Exported { link, secret });
            }
            LinkOutput::OpenQuic { link, .. } if self.setting.blocked => {
                self.failed_quic += 1;
                self.feed(node, LinkInput::QuicFailed { link });
            }
            LinkOutput::OpenQuic { target, first_byte, .. } => {
                if let Some((relay, shard)) = self.shard(node) {
                    self.claims[relay].link_opened(target.rsa, shard);
                }
                self.quic.insert(LinkId::new(0, self.links + 1));
                let first_byte = first_byte.filter(|_| self.setting.steered);
                self.connect(node, target, first_byte);
            }
            // Pipes keep all cells in order, so there is nothing to admit.
            LinkOutput::AdmitCircuits { .. } => {}
            LinkOutput::FixRecords { link, content } => {
                if let Some(pipe) = self.pipes.get_mut(&link) {
                    pipe.fix(node, content);
                }
                self.feed(node, LinkInput::RecordsFixed { link });
            }
        }
    }

    fn on_client_output(&mut self, output: client::Output) {
        match output {
            client::Output::Link(output) => self.on_link_output(0, output),
            client::Output::Stream(StreamOutput::Readable { stream })
                if !self.unread.contains(&stream) =>
            {
                self.read(stream);
            }
            other => self.outputs.push(other),
        }
    }

    /// Reads all available data of one of the client's streams.
    pub fn read(&mut self, stream: StreamKey) {
        let (first, second) = self.client.read(stream);
        let got = self.received.entry(stream).or_default();
        got.extend_from_slice(first);
        got.extend_from_slice(second);
        let bytes = first.len() + second.len();
        self.client.consume(self.now, stream, bytes);
    }

    fn on_relay_output(&mut self, relay: usize, output: relay::Output) {
        use relay::Output;
        let (now, node) = (self.now, &mut self.relays[relay]);
        match output {
            Output::Link(output) => self.on_link_output(relay + 1, output),
            Output::Connect { stream, begin } => {
                let mut server = Server::new(&begin);
                server.connect(now, &mut node.core, stream);
                node.servers.insert(stream, server);
            }
            Output::Directory { stream, .. } => {
                let mut server = Server::directory();
                server.connect(now, &mut node.core, stream);
                node.servers.insert(stream, server);
            }
            Output::Resolve { stream, name } => server::resolve(now, &mut node.core, stream, &name),
            Output::Stream(StreamOutput::Readable { stream } | StreamOutput::Room { stream })
                if !node.stalled =>
            {
                if let Some(server) = node.servers.get_mut(&stream) {
                    server.work(now, &mut node.core, stream);
                }
            }
            Output::Stream(StreamOutput::Ended { stream, reason, .. }) => {
                if let Some(server) = node.servers.get_mut(&stream) {
                    server.ended = Some(reason);
                }
            }
            Output::Event(Event::Violation { violation, .. }) => node.violations.push(violation),
            Output::Event(Event::LinkOpen { link, identity: Some(identity), .. })
                if self.pipes.get(&link).is_some_and(|pipe| pipe.nodes[1] == relay + 1) =>
            {
                let (of, shard) = self.shard(relay + 1).unwrap();
                self.claims[of].link_opened(identity.rsa, shard);
                self.reached.insert((link, relay + 1), identity.rsa);
            }
            _ => {}
        }
    }

    fn dial(&mut self, from: usize, target: Target) {
        if let Some((relay, shard)) = self.shard(from) {
            let has = self.claims[relay].claim(target.rsa, shard);
            if has != shard {
                let other = relay * self.setting.shards + has + 1;
                let link = self.siblings[&[from.min(other), from.max(other)]];
                return self.feed(from, LinkInput::Elsewhere { target, link });
            }
        }
        self.connect(from, target, None);
    }

    fn connect(&mut self, from: usize, target: Target, first_byte: Option<u8>) {
        self.links += 1;
        self.reached.insert((LinkId::new(0, self.links), from), target.rsa);
        let found = self.relays.iter().position(|relay| relay.target.addresses == target.addresses);
        let Some(to) = found else {
            self.forget(from, LinkId::new(0, self.links));
            return self.feed(from, LinkInput::Unreachable { target });
        };
        // Accepted links go to the relay's cores in rotation. A QUIC link that names its core goes
        // to that core.
        let turn = &mut self.accepted[to / self.setting.shards];
        let shard = first_byte.map_or(*turn, usize::from) % self.setting.shards;
        let nodes = [from, to + 1 + shard];
        *turn += usize::from(first_byte.is_none());
        let relay = to / self.setting.shards;
        let usual = (self.setting.rate, self.setting.delay);
        let (rate, delay) = self.setting.lines.get(&relay).copied().unwrap_or(usual);
        let line = Setting { rate, delay, ..self.setting.clone() };
        let pipe = Pipe::new(&line, self.links, nodes, self.now, target);
        self.pipes.insert(LinkId::new(0, self.links), pipe);
    }

    /// Removes a node's link from the table of its relay.
    fn forget(&mut self, node: usize, link: LinkId) {
        if let (Some(rsa), Some((relay, shard))) =
            (self.reached.remove(&(link, node)), self.shard(node))
        {
            self.claims[relay].gone(rsa, shard);
        }
    }

    /// Opens a link to a relay without a node at the other end. With [`World::forge`], a test
    /// sends the bytes of a hostile neighbour on it.
    pub fn raw_link(&mut self, relay: usize, peer: IpAddr) -> LinkId {
        self.raw_link_that_is([true, false], relay, peer)
    }

    /// Opens a link like [`World::raw_link`]. If `reliable` is false, the link may lose lossy
    /// cells. If `unordered` is true, cells may overtake each other.
    pub fn raw_link_that_is(
        &mut self,
        [reliable, unordered]: [bool; 2],
        relay: usize,
        peer: IpAddr,
    ) -> LinkId {
        self.links += 1;
        let id = LinkId::new(0, self.links);
        let capabilities = Capabilities { reliable, unordered, ..Capabilities::ORDERED };
        let start = Start { capabilities, ..Start::new(self.now, UNIX, peer) };
        self.feed(relay + 1, LinkInput::Opened { link: id, target: None, start });
        id
    }

    fn ready(&mut self, node: usize, link: LinkId) {
        let mut cells = Vec::new();
        self.core(node).transmit_lossy(link, &mut cells);
        let now = self.now;
        if let Some(pipe) = self.pipes.get_mut(&link) {
            let side = usize::from(pipe.nodes[0] != node);
            pipe.push_lossy(now, side, &cells);
            pipe.ready(node);
        }
    }

    fn hang_up(&mut self, node: usize, link: LinkId) {
        let Some(pipe) = self.pipes.remove(&link) else { return };
        self.forget(node, link);
        let others: Vec<usize> = pipe.nodes.into_iter().filter(|&other| other != node).collect();
        others.into_iter().for_each(|other| self.close(other, link));
    }

    /// Adds the arrival of `bytes` at a node to the hash over all arrivals, which tests use to
    /// compare runs.
    fn note(&mut self, node: usize, bytes: &[u8]) {
        if !self.setting.pieces {
            return;
        }
        let facts = [self.now.nanos(), node as u64, bytes.len() as u64];
        let mut digest = Sha256::new();
        digest.update(bytes);
        let content = u64::from_be_bytes(digest.finalize()[..8].try_into().unwrap());
        for fact in facts.into_iter().chain([content]) {
            self.trace = (self.trace ^ fact).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

fn new_relay(setting: &Setting, place: usize, identities: &RelayIdentity) -> RelayNode {
    let credentials = Arc::clone(&identities.credentials);
    let onion_key = identities.onion_key;
    let tls_certificate = credentials.tls_certificate;
    let target = Target {
        addresses: vec![SocketAddr::new(address(place / setting.shards), ORPORT)],
        rsa: credentials.identity.rsa,
        ed25519: Some(credentials.identity.ed25519),
    };
    let config = relay::Config {
        identity: credentials.identity,
        onion_keys: vec![CurveKeys::from(identities.onion_secret)],
        params: Arc::new(setting.params.clone()),
        services: setting.services,
        policy: setting.policy,
        exit: setting.exit,
        conflux: ConfluxParams::default(),
        dealing: setting.dealing.clone(),
        directory: true,
        allow_private: setting.allow_private,
        max_cells: setting.max_cells,
        max_queue: 50_000,
        max_half_open: 4,
        max_streams: 1000,
        lossy: setting.lossy && !setting.ungranting.contains(&(place / setting.shards + 1)),
    };
    let (responder, initiator) =
        (Role::Responder(Arc::clone(&credentials)), Role::Initiator(credentials));
    let rng = Box::new(seed::stream(setting.seed, place as u64, "relay"));
    let mut core = Relay::new(config, responder, initiator, rng);
    core.set_padding(setting.padding);
    core.set_lossy_congestion(setting.lossy_congestion);
    RelayNode {
        core,
        target,
        onion_key,
        tls_certificate,
        servers: BTreeMap::new(),
        violations: Vec::new(),
        stalled: false,
    }
}

fn credentials(keys: &RelayKeys, seed: u64, n: usize) -> Credentials {
    let mut rng = seed::stream(seed, n as u64, "relay certificates");
    keys.credentials(&mut rng, format!("the TLS certificate of relay {n}").as_bytes(), UNIX)
        .unwrap()
}
