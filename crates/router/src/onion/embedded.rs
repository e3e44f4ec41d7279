//! A whole onion network in one process: an authority, relays and a client. Each node has its own
//! threads, keys, state and loopback address. Nodes share no state and are connected only over
//! loopback.
//!
//! The nodes' addresses are `127.N.0.1`. No two nodes share a /16 network, so a path may use any
//! three nodes.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use anabranch_multipath::Time;
use anabranch_onion::authority::{self as core, First, Judgement, Rules};
use anabranch_onion::conflux::Design;
use anabranch_onion::directory::descriptor::Description;
use anabranch_onion::directory::network::RelayRestrictions;
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_onion::padding::Amount;
use anabranch_onion::relay::protocols;
use anabranch_onion::{Event, LossyCongestion, circuitmux};

use super::authorities::Authority;
use super::authority::{self, AuthorityError, AuthorityEvent, Running};
use super::client;
use super::dirclient::{self, DirClient, unix};
use super::keyring::KeyRing;
use super::links::quic::QuicLinking;
use super::relay::{self, Numbers, Watch};
use super::reload::Reload;
use super::store::{StoreError, claim};

/// OR port of every node in the embedded network.
const OR_PORT: u16 = 9001;
/// Directory port of the embedded network's authority.
const DIR_PORT: u16 = 9030;
/// Identifier of the authority, which is also the second byte of its address `127.N.0.1`. The
/// relays have the identifiers from 2.
const AUTHORITY: u8 = 1;
/// Maximum memory for queued cells in the client, in bytes.
const MEMORY: usize = 128 << 20;
/// Consensus weight of each relay in kilobytes per second. The value is C tor's maximum for
/// unmeasured relays, so that other relays that join the network have about the same chance to be
/// chosen.
const EVEN: u32 = 20;

/// Settings of an onion network in one process.
pub struct Settings {
    /// Folder with a subfolder for each node's keys and state. It is created if it is missing.
    pub data: PathBuf,
    /// Addresses at which local programs connect to the client.
    pub listen: Vec<SocketAddr>,
    /// Exit policy of the network's exits.
    pub policy: ExitPolicy,
    /// Number of relays in addition to the authority, at most 250.
    pub relays: u8,
    /// Number of exits among the relays. The relays with the highest identifiers are exits.
    pub exits: u8,
    /// Interval between consensuses of the network, in seconds.
    pub interval: u64,
    /// Platform string in the nodes' descriptors.
    pub platform: String,
    /// Number of circuits among which the data of each of the client's streams is distributed;
    /// `None` for the network's recommendation.
    pub legs: Option<usize>,
    /// Multipath design: the protocol that lets several circuits carry the same stream.
    pub design: Design,
    /// True if the relays support lossy circuits (whose cells may get lost) and the client uses
    /// them. The client's streams then travel as UDP-OR, or as mUDP-OR with several circuits.
    pub udp_or: bool,
}

/// Event of an onion network in one process.
#[derive(Clone, Debug)]
pub enum EmbeddedEvent {
    /// The authority and all relays listen now. The field is the `DirAuthority` line that
    /// configures C tor to use this network.
    Up(String),
    /// The authority has made a consensus. The field is the number of relays in it.
    Consensus(usize),
    /// The network's client has reported this event.
    Client(client::ClientEvent),
    /// Something failed or is unusual. The fields are the node's name and the message.
    Trouble(String, String),
}

/// Reason why an onion network in one process cannot run.
#[derive(Debug)]
pub enum EmbeddedError {
    /// The network's authority cannot start.
    Authority(AuthorityError),
    /// Keys or state of a node cannot be read or written.
    Store(StoreError),
    /// A port of the named node cannot be bound, or a system call of that node fails.
    Node(String, io::Error),
}

impl fmt::Display for EmbeddedError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmbeddedError::Authority(error) => error.fmt(out),
            EmbeddedError::Store(error) => error.fmt(out),
            EmbeddedError::Node(name, error) => write!(out, "{name}: {error}"),
        }
    }
}

impl std::error::Error for EmbeddedError {}

impl From<StoreError> for EmbeddedError {
    fn from(error: StoreError) -> EmbeddedError {
        EmbeddedError::Store(error)
    }
}

/// Runs an onion network until `stop` is readable, and then stops all nodes. If `reload` is given,
/// the client reads its settings again on SIGHUP.
///
/// # Errors
/// [`EmbeddedError`]; all nodes are stopped then.
pub fn run(
    settings: Settings,
    stop: &UnixStream,
    reload: Option<Reload<'_, client::Changes>>,
    watch: &mut dyn FnMut(EmbeddedEvent),
) -> Result<(), EmbeddedError> {
    let (reporter, inbox) = channel();
    // The folder is reserved before any key is touched, because another network may be using the
    // keys.
    let claim = claim(&settings.data)?;
    for text in &claim.tightened {
        watch(EmbeddedEvent::Trouble("up".to_owned(), text.clone()));
    }
    let rings = keys(&settings)?;
    let mut network = Network { nodes: Vec::new(), authority: None };
    let line = network.start(&settings, rings, &reporter)?;
    await_all(&inbox, network.nodes.len(), watch)?;
    watch(EmbeddedEvent::Up(line.clone()));
    let client = client(&settings, &line)?;
    let rng = anabranch_os::entropy::generator().map_err(of("client"))?;
    let mut notify = |event: client::ClientEvent| {
        inbox.try_iter().for_each(|(name, report)| pass_on(name, report, watch));
        watch(EmbeddedEvent::Client(event));
    };
    client::run_rereading(client, rng, stop, reload, &mut notify).map_err(of("client"))
}

/// Returns the `DirAuthority` line of the network whose state is in the folder `data`. No file is
/// changed, so the network may be running.
///
/// # Errors
/// No network has run in this folder.
pub fn line(data: &Path) -> Result<String, EmbeddedError> {
    authority::announced(&data.join(name(AUTHORITY))).map_err(EmbeddedError::Authority)
}

/// Returns the name of `node`, which is used in messages and for the folder of its state.
fn name(node: u8) -> String {
    match node {
        AUTHORITY => "authority".to_owned(),
        relay => format!("relay{}", relay - AUTHORITY),
    }
}

fn address(node: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, node, 0, 1)
}

fn of<E: fmt::Display>(name: &str) -> impl Fn(E) -> EmbeddedError + use<E> {
    let name = name.to_owned();
    move |error| EmbeddedError::Node(name.clone(), io::Error::other(error.to_string()))
}

/// Reads the keys of the authority and of the relays, in this order. Missing keys are generated in
/// parallel, because key generation takes most of the time of a first start.
fn keys(settings: &Settings) -> Result<Vec<KeyRing>, EmbeddedError> {
    let open = |node: u8| {
        let mut rng = anabranch_os::entropy::generator().map_err(of(&name(node)))?;
        Ok(KeyRing::open(&settings.data.join(name(node)), &mut rng, unix())?)
    };
    thread::scope(|scope| {
        let nodes = AUTHORITY..=AUTHORITY + settings.relays;
        let threads: Vec<_> = nodes.map(|node| scope.spawn(move || open(node))).collect();
        let joined = |thread: thread::ScopedJoinHandle<'_, Result<KeyRing, EmbeddedError>>| {
            let panicked = |_| of("keys")(io::Error::other("a thread panicked"));
            thread.join().map_err(panicked)?
        };
        threads.into_iter().map(joined).collect()
    })
}

/// Message from a node's thread to the thread that runs the network.
enum NodeReport {
    Listens,
    Consensus(usize),
    Trouble(String),
    Ended(io::Result<()>),
}

/// Handles of the authority and all relays, which are stopped when this value is dropped.
struct Network {
    nodes: Vec<Node>,
    authority: Option<Running>,
}

struct Node {
    /// Socket to the node's event loop. Writing to it stops the node.
    stop: UnixStream,
    thread: JoinHandle<()>,
}

impl Network {
    /// Starts the authority and the relays. Returns the authority's `DirAuthority` line.
    fn start(
        &mut self,
        settings: &Settings,
        rings: Vec<KeyRing>,
        reporter: &Sender<(String, NodeReport)>,
    ) -> Result<String, EmbeddedError> {
        let even = rings.iter().map(|ring| (ring.keys().rsa_identity(), EVEN)).collect();
        let mut rings = (AUTHORITY..).zip(rings);
        let Some((_, ring)) = rings.next() else { return Ok(String::new()) };
        let (dirclient, running) = authority(settings, &ring, even, reporter.clone())?;
        let line = running.line.clone();
        self.authority = Some(running);
        self.nodes.push(Node::start(settings, AUTHORITY, ring, dirclient, reporter)?);
        for (node, ring) in rings {
            let dirclient = relay_dirclient(settings, node, &ring, &line)?;
            self.nodes.push(Node::start(settings, node, ring, dirclient, reporter)?);
        }
        Ok(line)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // A node ends at once after two bytes. If it has ended already, writing fails
            // harmlessly.
            let _ = node.stop.write_all(&[0; 2]);
        }
        for node in self.nodes.drain(..) {
            // If the thread has panicked, the panic message was printed already.
            let _ = node.thread.join();
        }
        if let Some(authority) = self.authority.take() {
            authority.join();
        }
    }
}

impl Node {
    /// Starts a relay on a new thread. The relay sends its events to `reporter`.
    fn start(
        settings: &Settings,
        node: u8,
        keys: KeyRing,
        dirclient: DirClient,
        reporter: &Sender<(String, NodeReport)>,
    ) -> Result<Node, EmbeddedError> {
        let name = name(node);
        let failed = of::<io::Error>(&name);
        let (stop, stopped) = UnixStream::pair().map_err(&failed)?;
        let settings = relay_settings(settings, node, keys, dirclient);
        let mut watch = EventForwarder { name: name.clone(), reporter: reporter.clone() };
        let work = move || {
            let done = relay::run(settings, &stopped, &mut watch);
            watch.send(NodeReport::Ended(done));
        };
        let thread = thread::Builder::new().name(name).spawn(work).map_err(&failed)?;
        Ok(Node { stop, thread })
    }
}

/// Waits until `nodes` nodes have reported that they listen. Passes all other messages of nodes to
/// `watch`.
fn await_all(
    inbox: &Receiver<(String, NodeReport)>,
    nodes: usize,
    watch: &mut dyn FnMut(EmbeddedEvent),
) -> Result<(), EmbeddedError> {
    let mut listening = 0;
    while listening < nodes {
        match inbox.recv() {
            Ok((_, NodeReport::Listens)) => listening += 1,
            Ok((name, NodeReport::Ended(done))) => {
                let ended = io::Error::other("this node has stopped");
                return Err(EmbeddedError::Node(name, done.err().unwrap_or(ended)));
            }
            Ok((name, other)) => pass_on(name, other, watch),
            Err(gone) => return Err(of("nodes")(gone)),
        }
    }
    Ok(())
}

fn pass_on(name: String, report: NodeReport, watch: &mut dyn FnMut(EmbeddedEvent)) {
    match report {
        NodeReport::Consensus(relays) => watch(EmbeddedEvent::Consensus(relays)),
        NodeReport::Trouble(text) => watch(EmbeddedEvent::Trouble(name, text)),
        NodeReport::Ended(Err(error)) => watch(EmbeddedEvent::Trouble(name, error.to_string())),
        NodeReport::Listens | NodeReport::Ended(Ok(())) => {}
    }
}

/// Observer that forwards a relay's events to the thread that runs the network.
struct EventForwarder {
    name: String,
    reporter: Sender<(String, NodeReport)>,
}

impl EventForwarder {
    fn send(&self, report: NodeReport) {
        // If there is no receiver, the network is ending.
        let _ = self.reporter.send((self.name.clone(), report));
    }
}

impl Drop for EventForwarder {
    fn drop(&mut self) {
        if thread::panicking() {
            self.send(NodeReport::Ended(Err(io::Error::other(
                "the thread of this node has panicked",
            ))));
        }
    }
}

impl Watch for EventForwarder {
    fn listening(&mut self, _: &[SocketAddr]) {
        self.send(NodeReport::Listens);
    }

    fn event(&mut self, _: Time, event: &Event) {
        match event {
            Event::LinkOpen { .. } => {}
            Event::Violation { violation, .. } => {
                self.send(NodeReport::Trouble(format!(
                    "a relay or a client at the other end of a link broke the protocol: \
                     {violation}"
                )));
            }
            Event::OutOfMemory => {
                self.send(NodeReport::Trouble(
                    "queued cells reached the memory limit: a circuit was closed".into(),
                ));
            }
        }
    }

    fn numbers(&mut self, _: Time, _: &Numbers) {}

    // Notes are dropped, because some report conditions that are normal during the start, such as
    // an authority that does not answer yet.
    fn note(&mut self, _: &str) {}
}

fn authority(
    settings: &Settings,
    ring: &KeyRing,
    measured: BTreeMap<[u8; 20], u32>,
    reporter: Sender<(String, NodeReport)>,
) -> Result<(DirClient, Running), EmbeddedError> {
    let node = name(AUTHORITY);
    let notify = move |event| {
        let report = match event {
            AuthorityEvent::Consensus(relays, _) => NodeReport::Consensus(relays),
            AuthorityEvent::Trouble(text) | AuthorityEvent::Refused(text) => {
                NodeReport::Trouble(text)
            }
            AuthorityEvent::Line(_) | AuthorityEvent::Relay(..) => return,
        };
        let _ = reporter.send((node.clone(), report));
    };
    let (relays, interval) = (usize::from(settings.relays), settings.interval);
    let listen = vec![SocketAddr::from((address(AUTHORITY), DIR_PORT))];
    let data = settings.data.join(name(AUTHORITY));
    let how = authority::Settings::new(
        &description(settings, AUTHORITY),
        Arc::clone(ring.keys()),
        listen,
        data,
        core::Settings { measured, ..judge(relays, interval) },
    );
    authority::start(how, Box::new(notify)).map_err(EmbeddedError::Authority)
}

/// Returns the authority's settings for `relays` relays and a consensus every `interval` seconds.
fn judge(relays: usize, interval: u64) -> core::Settings {
    core::Settings {
        interval,
        valid_intervals: 3,
        first: First { relays, seconds: interval.min(60) },
        running_for: interval.max(60),
        probe_every: (interval / 3).max(5),
        // All relays are as young as the network itself, so a young age must not count against a
        // relay.
        judgement: Judgement { young: true, ..Judgement::default() },
        // Other relays that join the network are also on this machine, with private addresses.
        rules: Rules { allow_private: true, per_address: 0, ..Rules::default() },
        ..core::Settings::default()
    }
}

fn authorities(line: &str) -> Result<Vec<Authority>, EmbeddedError> {
    Ok(vec![Authority::parse(line).map_err(of("authority"))?])
}

fn relay_dirclient(
    settings: &Settings,
    node: u8,
    ring: &KeyRing,
    line: &str,
) -> Result<DirClient, EmbeddedError> {
    let name = name(node);
    let dirclient = dirclient::Settings {
        authorities: authorities(line)?,
        data: settings.data.join(&name),
        share_subnets: false,
        keys: Some(Arc::clone(ring.keys())),
        cache: true,
        dir_requests: false,
        bridges: Vec::new(),
        unpublished: false,
    };
    Ok(DirClient::start(dirclient, anabranch_os::entropy::generator().map_err(of(&name))?)?)
}

fn relay_settings(
    settings: &Settings,
    node: u8,
    keys: KeyRing,
    dirclient: DirClient,
) -> relay::Settings {
    let listen = vec![SocketAddr::from((address(node), OR_PORT))];
    let policy =
        if is_exit(settings, node) { settings.policy.clone() } else { ExitPolicy::reject_all() };
    let description = description(settings, node);
    let usual = relay::Settings::new(listen, keys, dirclient, description);
    let live = relay::LiveSettings { policy, allow_private: true, ..usual.live };
    relay::Settings { live, quic: quic(settings), ..usual }
}

/// Returns the settings of the nodes' QUIC links; `None` if the network uses no QUIC.
fn quic(settings: &Settings) -> Option<QuicLinking> {
    let lossy = Some(LossyCongestion::BBR);
    settings.udp_or.then(|| QuicLinking { lossy, ..QuicLinking::default() })
}

fn is_exit(settings: &Settings, node: u8) -> bool {
    node > AUTHORITY + settings.relays.saturating_sub(settings.exits)
}

/// Returns the description of `node` (address, ports, policy), from which it makes its descriptor.
fn description(settings: &Settings, node: u8) -> Description {
    // The advertised policy is wider than the enforced policy, because relays that allow only
    // loopback would not be listed as exits.
    let policy = match is_exit(settings, node) {
        true => ExitPolicy::parse(&["accept *:*".to_owned()])
            .unwrap_or_else(|_| ExitPolicy::reject_all()),
        false => ExitPolicy::reject_all(),
    };
    let at = SocketAddrV4::new(address(node), OR_PORT);
    Description {
        dir_port: if node == AUTHORITY { DIR_PORT } else { 0 },
        policy,
        protocols: protocols(settings.udp_or),
        ..Description::new(name(node), at, settings.platform.clone())
    }
}

fn client(settings: &Settings, line: &str) -> Result<client::Settings, EmbeddedError> {
    let data = settings.data.join("client");
    let dirclient = dirclient::Settings {
        authorities: authorities(line)?,
        data: data.clone(),
        share_subnets: false,
        keys: None,
        cache: false,
        dir_requests: true,
        bridges: Vec::new(),
        unpublished: false,
    };
    Ok(client::Settings {
        listen: settings.listen.clone(),
        dirclient: DirClient::start(
            dirclient,
            anabranch_os::entropy::generator().map_err(of("client"))?,
        )?,
        data,
        restrictions: RelayRestrictions::default(),
        routes: None,
        extended_errors: false,
        padding: Amount::Full,
        memory: MEMORY,
        circuitmux: circuitmux::Kind::default(),
        legs: settings.legs,
        design: settings.design,
        dealing: None,
        tap: None,
        links: Default::default(),
        quic: quic(settings),
        udp_or: settings.udp_or,
        trace: None,
    })
}
