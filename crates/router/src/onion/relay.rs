//! A relay on real sockets. A relay has one or several shards: a shard is an event loop on its own
//! thread with its own protocol core.

use std::cmp::Reverse;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use anabranch_links::tls::Context;
use anabranch_links::{EarlyCounts, StreamFamily};
use anabranch_multipath::Time;
use anabranch_onion::channel::{Credentials, Role};
use anabranch_onion::conflux::ConfluxParams;
use anabranch_onion::directory::descriptor::Description;
use anabranch_onion::directory::network::Network;
use anabranch_onion::relay::{Behaviour, Config, NetworkParams, Relay, ServiceParams, Stats};
use anabranch_onion::wire::keys::{LinkKey, RelayKeys};
use anabranch_onion::{Event, SetNumbers, circuitmux};
use anabranch_os::clock::Clock;
use anabranch_os::files::{self, RejectionReporter};
use anabranch_os::manager::notify;
use sd_notify::NotifyState;

use super::dirclient::{DirClient, News, unix};
use super::keyring::KeyRing;
use super::links::quic::{self, QuicCounts, QuicLinking};
use super::links::ring::{self, ShardRings};
use super::meter::Meter;
use super::mptcp::{self, MptcpCounts, TcpKind};
use super::newcomers::ConnectionLimits;
use super::reload::{Outcome, Reload, in_words};
use super::skew::Skew;
use super::station::{TICK, Token};
use super::tap::{Tap, TapKind};
pub use bridge::BridgeSettings;
use bridge::{BridgeSide, EXTENDED, TRANSPORTS};
use clocked::Clocked;
pub use extended::ExtendedPort;
use history::HistoryFile;
use hsdir::SharedHsDir;
use limiter::Limiter;
use linkkeys::{LinkKeys, link_key};
pub use live::{Changes, LiveSettings};
use self_test::{SelfTest, TestedRelay};
use shard::{Newcomer, Parts, QuicSide, Shard};
use workers::{WorkerOrder, Workers};

mod answers;
mod bridge;
mod clocked;
mod exits;
mod extended;
mod history;
mod hsdir;
mod limiter;
mod linkkeys;
mod live;
mod self_test;
mod shard;
mod workers;

/// Poller token of the socket that becomes readable when the relay must stop. Only the first event
/// loop has this socket.
const STOP: u64 = 0;
/// Poller token of the socket that becomes readable when the directory client has messages. Only
/// the first event loop has this socket.
const DIRECTORY: u64 = 2;
/// Poller token of the file that becomes readable after SIGHUP. Only the first event loop has it.
const HANGUP: u64 = 3;
/// Status text for the service manager once the relay is ready.
const READY: &str = "accepting links";
/// Interval at which link certificates are renewed; they are valid for two days.
const RECERTIFY: Duration = Duration::from_secs(12 * 3600);
/// Interval at which the relay updates its description, from which it makes its descriptor. If no
/// setting has changed, the descriptor is published only when publishing is due.
const DESCRIBE: Duration = Duration::from_secs(60);
/// Maximum number of incomplete handshakes from one address, over all of the relay's event loops.
const MOST_HALF_OPEN: usize = 64;
/// Maximum number of links to one relay, if each circuit has its own link. Relays of this project
/// accept the same number of handshakes from one address ([`MOST_HALF_OPEN`]). C tor accepts more,
/// because its limit `DoSConnectionMaxConcurrentCount` is 100 and applies only to clients.
const MOST_DEDICATED: usize = MOST_HALF_OPEN;
/// Time from the end of a bandwidth self-test to the update of the relay's description. Rates are
/// averages over ten whole seconds, so after this time they include the test's traffic.
const SETTLED: Duration = Duration::from_secs(12);

/// Settings of an onion relay.
pub struct Settings {
    /// Addresses at which the relay listens for links.
    pub listen: Vec<SocketAddr>,
    /// The relay's keys. They are replaced when they are too old.
    pub keys: KeyRing,
    /// True if the relay answers directory requests.
    pub directory: bool,
    /// Scheduler that chooses which circuit on a link sends the next cell.
    pub circuitmux: circuitmux::Kind,
    /// Handle of the thread that fetches documents and publishes the relay's descriptor.
    pub dirclient: DirClient,
    /// Settings that may change while the relay runs.
    pub live: LiveSettings,
    /// Packet taps, which deliver TCP segments out of order: one for each event loop
    /// ([`Tap::open_all`]). An event loop without a tap uses ordered links.
    pub taps: Vec<Tap>,
    /// Protocol of links over TCP connections, such as TLS.
    pub links: &'static StreamFamily,
    /// Settings of QUIC links, which are opened in addition to TLS links; `None` to use no QUIC.
    pub quic: Option<QuicLinking>,
    /// True if each circuit gets its own link to the next relay. Otherwise circuits to the same
    /// relay share a link.
    pub dedicated_links: bool,
    /// True to use MPTCP for incoming and outgoing links, if the kernel supports it. Packet
    /// taps do not work with MPTCP.
    pub mptcp: bool,
    /// Number of event loops, each with its own thread, protocol core and share of links and
    /// memory. A value of 0 counts as 1.
    pub threads: usize,
    /// Settings of a bridge; `None` if the relay is not a bridge. If it is, `dirclient` must not
    /// publish descriptors.
    pub bridge: Option<BridgeSettings>,
}

impl Settings {
    /// Creates settings from `description`, with one event loop and the defaults of
    /// [`LiveSettings::new`].
    #[must_use]
    pub fn new(
        listen: Vec<SocketAddr>,
        keys: KeyRing,
        dirclient: DirClient,
        description: Description,
    ) -> Settings {
        Settings {
            listen,
            keys,
            directory: description.directory_cache,
            circuitmux: circuitmux::Kind::default(),
            dirclient,
            live: LiveSettings::new(description),
            taps: Vec::new(),
            links: Default::default(),
            quic: None,
            dedicated_links: false,
            mptcp: false,
            threads: 1,
            bridge: None,
        }
    }
}

/// Maximum number of sets (circuits that carry the same streams) that [`Numbers`] describes.
const SETS: usize = 16;

/// A relay's counters and the state of its largest buffers, for observers ([`Watch::numbers`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Counters of the protocol core.
    pub stats: Stats,
    /// Number of links, including those being opened.
    pub links: usize,
    /// Bytes received and sent on links since the start.
    pub transferred: [u64; 2],
    /// Number of connections that were refused because their source address had too many
    /// connections.
    pub refused: u64,
    /// Number of connections that were accepted and at once closed, because file descriptors had
    /// run out.
    pub turned_away: u64,
    /// Kind of the packet tap that delivers TCP segments out of order; `None` if all links are
    /// ordered.
    pub tap: Option<TapKind>,
    /// Number of TLS records that were decrypted before earlier records had arrived, and number of
    /// failed attempts.
    pub early: EarlyCounts,
    /// Counters of QUIC links; `None` if QUIC is disabled.
    pub quic: Option<QuicCounts>,
    /// True if the relay allows lossy circuits, whose cells may get lost.
    pub grants_lossy: bool,
    /// Counts of MPTCP links and subflows; `None` if MPTCP is disabled.
    pub mptcp: Option<MptcpCounts>,
    /// True if each circuit gets its own link to the next relay.
    pub dedicates_links: bool,
    /// Sets (circuits that carry the same streams) that end at this relay, the sets with the
    /// fullest reordering buffers first. At most `SETS` are listed.
    pub sets: Vec<SetNumbers>,
}

impl Numbers {
    /// Adds the counters of another of the relay's event loops.
    fn with(self, other: &Numbers) -> Numbers {
        let [received, sent] = [0, 1].map(|way| self.transferred[way] + other.transferred[way]);
        let mut sets = [self.sets, other.sets.clone()].concat();
        sets.sort_by_key(|set| Reverse(set.reordered));
        sets.truncate(SETS);
        Numbers {
            sets,
            stats: self.stats.with(&other.stats),
            links: self.links + other.links,
            transferred: [received, sent],
            refused: self.refused + other.refused,
            turned_away: self.turned_away + other.turned_away,
            tap: self.tap.or(other.tap),
            early: self.early.with(other.early),
            quic: both(self.quic, other.quic, QuicCounts::with),
            grants_lossy: self.grants_lossy || other.grants_lossy,
            mptcp: both(self.mptcp, other.mptcp, MptcpCounts::with),
            dedicates_links: self.dedicates_links || other.dedicates_links,
        }
    }
}

/// Combines the values of two event loops with the function `with`. If only one event loop has a
/// value, returns that value. Returns `None` if neither has one.
fn both<T>(one: Option<T>, other: Option<T>, with: impl Fn(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(with(one, other)),
        (one, other) => one.or(other),
    }
}

/// Observer of a running relay, for logs and displays.
pub trait Watch {
    /// Called once the relay listens. `at` are the addresses.
    fn listening(&mut self, at: &[SocketAddr]);
    /// Called for each event of the relay's protocol core.
    fn event(&mut self, now: Time, event: &Event);
    /// Called about once a second with the current counters.
    fn numbers(&mut self, now: Time, numbers: &Numbers);
    /// Called with a message for the log.
    fn note(&mut self, text: &str);
    /// Called with the result of reading the settings again after SIGHUP.
    fn reloaded(&mut self, outcome: &Outcome) {
        self.note(&in_words(outcome));
    }
    /// Called when a relay's or this machine's clock is wrong, or this machine's clock is right
    /// again.
    fn clock(&mut self, skew: &Skew) {
        self.note(&skew.to_string());
    }
}

/// Runs a relay until `stop` is readable. Then it accepts no new links, and continues until its
/// circuits are closed or the grace period is over. A second byte on `stop` ends the relay at
/// once.
///
/// # Errors
/// The process cannot listen on an address, or file descriptors run out at the start.
pub fn run(settings: Settings, stop: &UnixStream, watch: &mut dyn Watch) -> io::Result<()> {
    run_rereading(settings, stop, None, watch)
}

/// Runs a relay as [`run`] does. If `reload` is given, SIGHUP makes the relay read its settings
/// again, and links and circuits continue under the new settings.
///
/// # Errors
/// The errors of [`run`].
pub fn run_rereading(
    settings: Settings,
    stop: &UnixStream,
    reload: Option<Reload<'_, Changes>>,
    watch: &mut dyn Watch,
) -> io::Result<()> {
    files::raise_limit();
    stop.set_nonblocking(true)?;
    let watch = &mut Limiter::new(watch);
    let watch = &mut Clocked::new(watch, settings.dirclient.authorities());
    let mut main = MainShard::start(settings, stop, reload)?;
    watch.listening(&main.shard.station.addresses()?);
    main.take_transports(watch);
    notify(&[NotifyState::Ready, NotifyState::Status(READY)]);
    if let Some(trouble) = main.shard.trouble() {
        watch.note(trouble);
    }
    if let Some(warning) = main.settings.live.warning() {
        watch.note(&warning);
    }
    if let Some(trouble) = main.history_file.trouble.take() {
        watch.note(&trouble);
    }
    if main.settings.mptcp && !mptcp::is_there() {
        watch.note("--mptcp: links use TCP, because MPTCP is off: set sysctl net.mptcp.enabled=1");
    }
    while main.turn(stop, watch)? {}
    if let Err(error) = main.history_file.write() {
        watch.note(&format!("{error}; the history of recent traffic is lost"));
    }
    Ok(())
}

/// State of a relay's main thread: its own event loop, the handles of the other event loops, and
/// the state that exists only once in a relay.
struct MainShard<'r> {
    shard: Shard,
    workers: Workers,
    connection_limits: ConnectionLimits,
    settings: Settings,
    history_file: HistoryFile,
    self_test: SelfTest,
    bridge: Option<BridgeSide>,
    network: Option<Arc<Network>>,
    /// Rate limits for receiving and for sending. All of the relay's event loops share them.
    meters: [Meter; 2],
    reload: Option<Reload<'r, Changes>>,
    /// Current TLS certificate of the relay's links.
    certificate: Vec<u8>,
    /// Generator of the next TLS key and its certificate.
    link_keys: LinkKeys,
    ticked: Time,
    /// Time at which the certificates of links were last renewed.
    certified: Time,
    /// Time at which the relay's description is to be updated next.
    describe_at: Time,
    /// True if it was logged that several circuits share a link, although the settings require a
    /// link for each circuit.
    warned_shared: bool,
    rejection_reporter: RejectionReporter,
    /// Latest time at which the relay ends; `None` if it was not asked to stop. The relay ends
    /// earlier if no circuit is left.
    ends: Option<Time>,
}

impl<'r> MainShard<'r> {
    fn start(
        mut settings: Settings,
        stop: &UnixStream,
        reload: Option<Reload<'r, Changes>>,
    ) -> io::Result<MainShard<'r>> {
        let key = link_key(settings.keys.keys())?;
        let [rate, burst, _] = settings.live.description.bandwidth;
        let meters = [Meter::full(rate, burst), Meter::full(rate, burst)];
        let connection_limits = ConnectionLimits::default();
        let mut parts = shards(&mut settings, &meters, &key, &connection_limits)?;
        let first = parts.remove(0);
        let waker = Arc::clone(first.siblings.waker());
        let mut shard = Shard::new(first)?;
        if settings.quic.is_some() {
            take_quic(&mut shard, &mut parts, &connection_limits)?;
        }
        shard.station.watch(stop, STOP)?;
        shard.station.watch(settings.dirclient.waker(), DIRECTORY)?;
        reload.iter().try_for_each(|reload| shard.station.watch(&reload.hangup, HANGUP))?;
        let workers = Workers::start(parts, &waker)?;
        let bridge = settings.bridge.take();
        let bridge = bridge.map(|bridge| BridgeSide::start(bridge, &shard, settings.keys.data()));
        let bridge = bridge.transpose()?;
        let history_file = HistoryFile::read(settings.keys.data()).map_err(io::Error::other)?;
        let main = MainShard {
            shard,
            workers,
            connection_limits,
            settings,
            history_file,
            self_test: SelfTest::default(),
            bridge,
            network: None,
            meters,
            reload,
            certificate: key.certificate,
            link_keys: LinkKeys::default(),
            ticked: Time::ZERO,
            certified: Time::ZERO,
            describe_at: Time::ZERO + DESCRIBE,
            warned_shared: false,
            rejection_reporter: RejectionReporter::default(),
            ends: None,
        };
        main.describe();
        Ok(main)
    }

    /// Waits for socket events and services the protocol core. Returns false when the relay must
    /// end.
    fn turn(&mut self, stop: &UnixStream, watch: &mut Clocked<'_>) -> io::Result<bool> {
        let (now, ready) = self.shard.turn(watch)?;
        let mut is_signalled = false;
        for token in ready {
            match token {
                // Signals are read below, after all other events.
                Token::File(STOP) => is_signalled = true,
                Token::File(DIRECTORY) => self.take_news(now, watch),
                Token::File(TRANSPORTS) => self.take_transports(watch),
                Token::File(EXTENDED) => self.take_transported(watch),
                Token::File(HANGUP) if !self.on_hangup(watch) => return Ok(false),
                Token::Listener(place) => self.accept(place, watch),
                _ => {}
            }
        }
        self.shard.execute(now, watch);
        if is_signalled && self.must_end(now, stop, watch) {
            return Ok(false);
        }
        if now.since(self.ticked) >= TICK {
            self.ticked = now;
            self.workers.listen(watch)?;
            let numbers = self.numbers();
            self.history_file.note(now, unix(), numbers.transferred);
            watch.numbers(now, &numbers);
            let want = self.rejection_reporter.report(now, numbers.turned_away, numbers.links);
            want.into_iter().for_each(|text| watch.note(&text));
            if numbers.stats.shared_circuits > 0 && !self.warned_shared {
                self.warned_shared = true;
                watch.note(
                    "this relay has reached the maximum number of links to another relay: \
                     further circuits to that relay share the existing links",
                );
            }
            self.renew(now, watch);
            self.test(now, watch);
        }
        if self.ends.is_some() {
            self.workers.listen(watch)?;
        }
        let drained = || self.shard.is_drained() && self.workers.are_drained();
        Ok(!self.ends.is_some_and(|end| now >= end || drained()))
    }

    fn numbers(&self) -> Numbers {
        let mut numbers = self.workers.numbers().with(&self.shard.numbers());
        let of_tests = self.self_test.transferred();
        (0..2).for_each(|way| numbers.transferred[way] += of_tests[way]);
        Numbers { refused: self.connection_limits.refused(), ..numbers }
    }

    /// Reads the stop signals in `stop`. Returns true if the relay must end at once.
    fn must_end(&mut self, now: Time, mut stop: &UnixStream, watch: &mut dyn Watch) -> bool {
        let asked = stop.read(&mut [0; 16]).unwrap_or(0);
        if asked > 1 || (asked > 0 && self.ends.is_some()) {
            return true;
        }
        if asked > 0 {
            self.begin_to_end(now, watch);
        }
        false
    }

    /// Stops accepting links, and cancels a self-test. Other circuits continue until the end.
    fn begin_to_end(&mut self, now: Time, watch: &mut dyn Watch) {
        notify(&[NotifyState::Stopping]);
        self.ends = Some(now + self.settings.live.grace);
        self.shard.refuse();
        self.workers.send(|| WorkerOrder::Refuse);
        self.bridge.iter_mut().for_each(|bridge| bridge.extended = None);
        self.self_test.cancel();
        watch.note(&match self.numbers().stats.circuits {
            0 => "stopping: no circuits to wait for".to_owned(),
            1 => "stopping: waiting for 1 circuit to finish".to_owned(),
            circuits => format!("stopping: waiting for {circuits} circuits to finish"),
        });
    }

    /// Renews keys and link certificates before they expire, and updates the relay's description.
    fn renew(&mut self, now: Time, watch: &mut dyn Watch) {
        if now.since(self.certified) >= RECERTIFY {
            self.certified = now;
            self.renew_keys(watch);
            self.certify(watch);
        }
        if let Some(made) = self.link_keys.made(now, self.settings.keys.keys()) {
            let adopted = made.and_then(|key| self.show(&key, watch));
            adopted.unwrap_or_else(|error| {
                watch.note(&format!(
                    "cannot renew the TLS key of this relay's links, so the earlier key stays in \
                     use: {error}"
                ))
            });
        }
        self.describe_in_time(now);
    }

    /// Starts the bandwidth self-test if it is due, and processes its result.
    fn test(&mut self, now: Time, watch: &mut dyn Watch) {
        // A bridge does not test itself, because other relays must not learn of it.
        let is_tested = self.ends.is_none() && self.bridge.is_none();
        let Some(network) = self.network.as_deref().filter(|_| is_tested) else { return };
        let relay = TestedRelay {
            network,
            keys: self.settings.keys.keys(),
            description: &self.settings.live.description,
            clock: self.shard.station.clock,
            meters: &self.meters,
        };
        let observed = self.history_file.history.observed();
        if let Some(message) = self.self_test.turn(now, observed, &relay) {
            watch.note(&message);
            // The next description includes the test's rate.
            self.describe_at = self.describe_at.min(now + SETTLED);
        }
    }

    /// Renews the certificates that links exchange in CERTS cells, for the current TLS
    /// certificate.
    fn certify(&mut self, watch: &mut dyn Watch) {
        match credentials(self.settings.keys.keys(), &self.certificate, unix()) {
            Ok(credentials) => {
                let (responder, initiator) = roles(credentials);
                self.workers.send(|| WorkerOrder::Roles(responder.clone(), initiator.clone()));
                self.shard.station.core.set_roles(responder, initiator);
            }
            Err(error) => watch.note(&error.to_string()),
        }
    }

    /// Uses another TLS certificate for new links. Links that are being opened keep the old
    /// certificate.
    fn show(&mut self, key: &LinkKey, watch: &mut dyn Watch) -> io::Result<()> {
        let context = Context::with_certificate(&key.certificate, &key.key);
        let context = context.map_err(io::Error::other)?;
        self.certificate.clone_from(&key.certificate);
        self.certify(watch);
        self.workers.send(|| WorkerOrder::Tls(context.clone()));
        self.shard.station.set_context(&context)
    }

    /// Replaces the relay's keys that are too old.
    fn renew_keys(&mut self, watch: &mut dyn Watch) {
        let keys = &mut self.settings.keys;
        let renewed = anabranch_os::entropy::generator()
            .map_err(|error| error.to_string())
            .and_then(|mut rng| keys.renew(&mut rng, unix()).map_err(|error| error.to_string()));
        match renewed {
            Ok(false) => {}
            Ok(true) => {
                self.workers.send(|| WorkerOrder::OnionKeys(keys.onion_keys()));
                self.shard.station.core.set_onion_keys(keys.onion_keys());
                self.settings.dirclient.sign_with(Arc::clone(keys.keys()));
            }
            Err(error) => watch.note(&format!("cannot renew this relay's keys: {error}")),
        }
    }

    fn accept(&mut self, place: usize, watch: &mut dyn Watch) {
        let now = self.shard.station.clock.now();
        while let Some((socket, peer)) = self.shard.station.accept(place) {
            // Connections beyond the limits are closed before they cause any work.
            let Some(place) = self.connection_limits.admit(now, peer.ip()) else { continue };
            if let Some(newcomer) =
                self.workers.hand(Newcomer { socket, peer, place, by_transport: false })
            {
                self.shard.accept(newcomer, watch);
            }
        }
    }

    fn take_news(&mut self, now: Time, watch: &mut dyn Watch) {
        for news in self.settings.dirclient.take() {
            match news {
                News::Network(network) => {
                    self.connection_limits.set_network(&network);
                    let consensus_params = &network.consensus().params;
                    let params = NetworkParams {
                        circuits: super::params(&network),
                        padding: network.params().padding,
                        services: ServiceParams::new(consensus_params),
                        conflux: ConfluxParams::new(consensus_params),
                    };
                    self.workers.send(|| WorkerOrder::Params(params.clone()));
                    self.shard.station.core.set_network_params(&params);
                    self.network = Some(network);
                }
                News::Cache(cache) => {
                    self.workers.send(|| WorkerOrder::Cache(Arc::clone(&cache)));
                    self.shard.set_cache(now, cache);
                }
                News::Ready | News::Bridge(..) | News::DirRequest(_) | News::Fetched(_) => {}
                News::Published(name) => {
                    watch.note(&format!("authority {name} accepted this relay's descriptor"))
                }
                News::Trouble(text) => watch.note(&text),
            }
        }
    }
}

/// Returns our roles in link handshakes, with the certificates in `credentials`: first the
/// responder's role for incoming links, then the initiator's role for outgoing links.
fn roles(credentials: Credentials) -> (Role, Role) {
    let credentials = Arc::new(credentials);
    (Role::Responder(Arc::clone(&credentials)), Role::Initiator(credentials))
}

/// Creates the input of [`Shard::new`] for each of the relay's event loops (shards): its protocol
/// core and its settings. Only the first event loop listens.
fn shards(
    settings: &mut Settings,
    meters: &[Meter; 2],
    key: &LinkKey,
    connection_limits: &ConnectionLimits,
) -> io::Result<Vec<Parts>> {
    let clock = Clock::start();
    let credentials = credentials(settings.keys.keys(), &key.certificate, unix())?;
    let config = config(settings, &credentials);
    let (responder, initiator) = roles(credentials);
    let (hsdir, mut taps) =
        (SharedHsDir::default(), std::mem::take(&mut settings.taps).into_iter());
    let make = |(number, siblings): (usize, ShardRings)| {
        let (config, rng) = (config.clone(), Box::new(anabranch_os::entropy::generator()?));
        let context = Context::with_certificate(&key.certificate, &key.key);
        let mut core = Relay::new(config, responder.clone(), initiator.clone(), rng);
        let lossy = settings.quic.and_then(|linking| linking.lossy);
        lossy.into_iter().for_each(|congestion| core.set_lossy_congestion(congestion));
        Ok(Parts {
            clock,
            core,
            context: context.map_err(io::Error::other)?,
            listen: if number == 0 { settings.listen.clone() } else { Vec::new() },
            own: settings.live.own.clone(),
            meters: meters.clone(),
            policy: settings.live.exit_policy(),
            siblings,
            hsdir: hsdir.clone(),
            tap: taps.next(),
            links: settings.links,
            by_room: settings.circuitmux.waits_for_room(),
            tcp: if settings.mptcp { TcpKind::Multipath } else { TcpKind::Single },
            dedicated: settings.dedicated_links.then(|| shared_out(MOST_DEDICATED, settings)),
            quic: settings.quic.map(|linking| QuicSide {
                sockets: None,
                connection_limits: connection_limits.clone(),
                linking,
            }),
        })
    };
    ring::shards(settings.threads.max(1))?.into_iter().enumerate().map(make).collect()
}

/// Makes all event loops listen for QUIC links, at the TCP addresses of the event loop `first`.
fn take_quic(
    first: &mut Shard,
    others: &mut [Parts],
    connection_limits: &ConnectionLimits,
) -> io::Result<()> {
    let at = first.station.addresses()?;
    let mut sockets = quic::sockets(&at, 1 + others.len())?.into_iter();
    if let Some(sockets) = sockets.next() {
        first.station.listen_quic(sockets, connection_limits.clone())?;
    }
    let sides = others.iter_mut().filter_map(|parts| parts.quic.as_mut());
    sides.zip(sockets).for_each(|(side, sockets)| side.sockets = Some(sockets));
    Ok(())
}

fn config(settings: &Settings, credentials: &Credentials) -> Config {
    let Behaviour { exit, allow_private, max_cells } = settings.live.behaviour(settings.threads);
    Config {
        identity: credentials.identity,
        onion_keys: settings.keys.onion_keys(),
        params: Arc::default(),
        services: ServiceParams::default(),
        policy: settings.circuitmux,
        exit,
        conflux: ConfluxParams::default(),
        dealing: None,
        directory: settings.directory,
        allow_private,
        max_cells,
        max_queue: 50_000,
        max_half_open: shared_out(MOST_HALF_OPEN, settings).max(4),
        max_streams: 10_000,
        lossy: settings.quic.is_some_and(|linking| linking.lossy.is_some()),
    }
}

/// Returns the share of each event loop in `most`, a limit for the whole relay: `most` divided by
/// the number of event loops, but at least 1.
fn shared_out(most: usize, settings: &Settings) -> usize {
    (most / settings.threads.max(1)).max(1)
}

/// Returns the certificates that prove the relay's identity on links with the TLS `certificate`.
/// `unix` is the current time in seconds since 1970.
fn credentials(keys: &RelayKeys, certificate: &[u8], unix: u64) -> io::Result<Credentials> {
    keys.credentials(&mut anabranch_os::entropy::generator()?, certificate, unix)
        .map_err(io::Error::other)
}
