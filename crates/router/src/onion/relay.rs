//! A relay on real sockets.

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
use anabranch_os::files::{self, FileWatch};
use anabranch_os::manager::tell;
use sd_notify::NotifyState;

use super::dirclient::{DirClient, News, unix};
use super::keyring::KeyRing;
use super::links::quic::{self, QuicCounts, QuicLinking};
use super::links::ring::{self, Siblings};
use super::meter::Meter;
use super::mptcp::{self, MptcpCounts, TcpKind};
use super::newcomers::Entrance;
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
pub use live::{Changes, Live};
use self_test::{SelfTest, Tested};
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

/// Tokens of the first shard's single files, beside those of each.
const STOP: u64 = 0;
const DIRECTORY: u64 = 2;
const HANGUP: u64 = 3;
/// What a service manager is told of a relay that runs.
const READY: &str = "accepting links";
/// Certificates of links hold for two days.
const RECERTIFY: Duration = Duration::from_secs(12 * 3600);
/// How often we are described anew; what is no news is published only when it is due.
const DESCRIBE: Duration = Duration::from_secs(60);
/// Links of one address whose handshake is not done, of all shards together.
const MOST_HALF_OPEN: usize = 64;
/// Links to one relay, where each circuit has its own: a relay of ours takes as many at a time, and
/// C tor more (DoSConnectionMaxConcurrentCount is 100, and for clients alone).
const MOST_DEDICATED: usize = MOST_HALF_OPEN;
/// After this time a rate that was seen is part of the history.
const SETTLED: Duration = Duration::from_secs(12);

/// How a relay is to run.
pub struct Settings {
    /// Where links come in.
    pub listen: Vec<SocketAddr>,
    /// The relay's keys.
    pub keys: KeyRing,
    /// Whether directory requests are answered.
    pub directory: bool,
    /// The order among the circuits of a link.
    pub circuitmux: circuitmux::Kind,
    /// Who talks to authorities.
    pub dirclient: DirClient,
    /// What may change while it runs.
    pub live: Live,
    /// For each event loop what shows segments before their turn ([`Tap::open_all`]); where there
    /// is none, links are in order.
    pub taps: Vec<Tap>,
    /// The kind of links over TCP.
    pub links: &'static StreamFamily,
    /// Whether there are QUIC links beside others, and if, whether beside unordered ones, too.
    pub quic: Option<QuicLinking>,
    /// Whether each circuit that goes on has a link of its own to the next relay.
    pub dedicated_links: bool,
    /// Whether sockets for links, those that come and those that are opened, are of MPTCP where the
    /// kernel has it. The tap that shows segments before their turn does not know such.
    pub mptcp: bool,
    /// Event loops, each with a core of its own and its share of the links and of the memory; 0
    /// counts as 1.
    pub threads: usize,
    /// What makes it a bridge, if it is one. `dirclient` keeps its descriptors unpublished then.
    pub bridge: Option<BridgeSettings>,
}

impl Settings {
    /// As the description says, with one event loop and no time of grace; private addresses are
    /// nobody's business.
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
            live: Live::new(description),
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

/// Sets whose numbers are told.
const SETS: usize = 16;

/// Numbers for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The core's.
    pub stats: Stats,
    /// Links that are there, open or not.
    pub links: usize,
    /// Bytes that links received and sent since the beginning.
    pub carried: [u64; 2],
    /// Connections refused because their address had too many.
    pub refused: u64,
    /// Connections closed at once for want of file descriptors.
    pub turned_away: u64,
    /// Tap that shows segments before their turn, if links may be unordered.
    pub tap: Option<TapKind>,
    /// Records opened before their turn.
    pub early: EarlyCounts,
    /// What came of QUIC links, if there may be any.
    pub quic: Option<QuicCounts>,
    /// Over how many paths links go, if there may be several.
    pub mptcp: Option<MptcpCounts>,
    /// Whether each circuit that goes on has a link of its own.
    pub dedicates_links: bool,
    /// Sets that end here, those first in which most waits; so many that a line holds them.
    pub sets: Vec<SetNumbers>,
}

impl Numbers {
    /// Those of two shards together.
    fn with(self, other: &Numbers) -> Numbers {
        let [received, sent] = [0, 1].map(|way| self.carried[way] + other.carried[way]);
        let mut sets = [self.sets, other.sets.clone()].concat();
        sets.sort_by_key(|set| Reverse(set.reordered));
        sets.truncate(SETS);
        Numbers {
            sets,
            stats: self.stats.with(&other.stats),
            links: self.links + other.links,
            carried: [received, sent],
            refused: self.refused + other.refused,
            turned_away: self.turned_away + other.turned_away,
            tap: self.tap.or(other.tap),
            early: self.early.with(other.early),
            quic: both(self.quic, other.quic, QuicCounts::with),
            mptcp: both(self.mptcp, other.mptcp, MptcpCounts::with),
            dedicates_links: self.dedicates_links || other.dedicates_links,
        }
    }
}

/// What two shards have together of what either may have.
fn both<T>(one: Option<T>, other: Option<T>, with: impl Fn(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(with(one, other)),
        (one, other) => one.or(other),
    }
}

/// Who watches a relay.
pub trait Watch {
    /// It listens, at these addresses.
    fn listening(&mut self, at: &[SocketAddr]);
    /// Something happened.
    fn event(&mut self, now: Time, event: &Event);
    /// Numbers, about once a second.
    fn numbers(&mut self, now: Time, numbers: &Numbers);
    /// A line for the log.
    fn note(&mut self, text: &str);
    /// SIGHUP has come, and settings were read again.
    fn reloaded(&mut self, outcome: &Outcome) {
        self.note(&in_words(outcome));
    }
    /// A clock is wrong, or ours is right again.
    fn clock(&mut self, skew: &Skew) {
        self.note(&skew.to_string());
    }
}

/// Runs a relay until `stop` is readable, and then until its circuits are gone or the time of grace
/// is over: no new links are taken meanwhile. What makes `stop` readable once more ends it at once.
///
/// # Errors
/// An address cannot be listened on, or the kernel has no files left at the start.
pub fn run(settings: Settings, stop: &UnixStream, watch: &mut dyn Watch) -> io::Result<()> {
    run_rereading(settings, stop, None, watch)
}

/// The same for a relay that reads its settings again on SIGHUP. Links and circuits go on under the
/// new ones.
///
/// # Errors
/// As [`run`].
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
    tell(&[NotifyState::Ready, NotifyState::Status(READY)]);
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

/// The first shard with the others at hand, and what there is but once.
struct MainShard<'r> {
    shard: Shard,
    workers: Workers,
    entrance: Entrance,
    settings: Settings,
    history_file: HistoryFile,
    self_test: SelfTest,
    bridge: Option<BridgeSide>,
    network: Option<Arc<Network>>,
    /// Those of all shards: received, sent.
    meters: [Meter; 2],
    reload: Option<Reload<'r, Changes>>,
    /// The TLS certificate that we show, and who makes the next.
    certificate: Vec<u8>,
    link_keys: LinkKeys,
    ticked: Time,
    /// When certificates of links were last made anew.
    certified: Time,
    /// When we are to be described next.
    describe_at: Time,
    /// It was said that circuits share links, though each should have its own.
    told_shared: bool,
    file_watch: FileWatch,
    /// Set when the end was asked for: from when on it ends once there are no circuits, and when it
    /// ends in any case.
    ends: Option<[Time; 2]>,
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
        let entrance = Entrance::default();
        let mut parts = shards(&mut settings, &meters, &key, &entrance)?;
        let mut shard = Shard::new(parts.remove(0))?;
        if settings.quic.is_some() {
            take_quic(&mut shard, &mut parts, &entrance)?;
        }
        shard.station.watch(stop, STOP)?;
        shard.station.watch(settings.dirclient.waker(), DIRECTORY)?;
        reload.iter().try_for_each(|reload| shard.station.watch(&reload.hangup, HANGUP))?;
        let workers = Workers::start(parts)?;
        let bridge = settings.bridge.take();
        let bridge = bridge.map(|bridge| BridgeSide::start(bridge, &shard, settings.keys.data()));
        let bridge = bridge.transpose()?;
        let history_file = HistoryFile::read(settings.keys.data()).map_err(io::Error::other)?;
        let main = MainShard {
            shard,
            workers,
            entrance,
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
            told_shared: false,
            file_watch: FileWatch::default(),
            ends: None,
        };
        main.describe();
        Ok(main)
    }

    /// Waits, takes what is ready to the core, does what the core says; false if it is time to end.
    fn turn(&mut self, stop: &UnixStream, watch: &mut Clocked<'_>) -> io::Result<bool> {
        let (now, ready) = self.shard.turn(watch)?;
        for token in ready {
            match token {
                Token::File(DIRECTORY) => self.take_news(now, watch),
                Token::File(TRANSPORTS) => self.take_transports(watch),
                Token::File(EXTENDED) => self.take_brought(watch),
                Token::File(HANGUP) if !self.on_hangup(watch) => return Ok(false),
                Token::Listener(place) => self.accept(place, watch),
                // Signals are read behind all else.
                _ => {}
            }
        }
        self.shard.obey(now, watch);
        if self.was_told_to_end(now, stop, watch) {
            return Ok(false);
        }
        if now.since(self.ticked) >= TICK {
            self.ticked = now;
            self.workers.listen(watch)?;
            let numbers = self.numbers();
            self.history_file.note(now, unix(), numbers.carried);
            watch.numbers(now, &numbers);
            let want = self.file_watch.look(now, numbers.turned_away, numbers.links);
            want.into_iter().for_each(|text| watch.note(&text));
            if numbers.stats.shared_circuits > 0 && !self.told_shared {
                self.told_shared = true;
                watch.note(
                    "the limit of links to one relay is reached: further circuits to it share \
                     these links",
                );
            }
            self.renew(now, watch);
            self.test(now, watch);
        }
        let drained = || self.numbers().stats.circuits == 0;
        Ok(!self.ends.is_some_and(|[from, end]| now >= end || now >= from && drained()))
    }

    fn numbers(&self) -> Numbers {
        let mut numbers = self.workers.numbers().with(&self.shard.numbers());
        let of_tests = self.self_test.carried();
        (0..2).for_each(|way| numbers.carried[way] += of_tests[way]);
        Numbers { refused: self.entrance.refused(), ..numbers }
    }

    /// Reads signals; true if it is to end at once.
    fn was_told_to_end(&mut self, now: Time, mut stop: &UnixStream, watch: &mut dyn Watch) -> bool {
        let asked = stop.read(&mut [0; 16]).unwrap_or(0);
        if asked > 1 || (asked > 0 && self.ends.is_some()) {
            return true;
        }
        if asked > 0 {
            self.begin_to_end(now, watch);
        }
        false
    }

    /// Takes no new links, and lets circuits finish.
    fn begin_to_end(&mut self, now: Time, watch: &mut dyn Watch) {
        tell(&[NotifyState::Stopping]);
        // What other shards have is told each second.
        let from = if self.settings.threads > 1 { now + 2 * TICK } else { now };
        self.ends = Some([from, now + self.settings.live.grace]);
        self.shard.station.listeners.clear();
        self.shard.station.refuse_quic();
        self.workers.tell(|| WorkerOrder::Refuse);
        self.bridge.iter_mut().for_each(|bridge| bridge.extended = None);
        let circuits = self.numbers().stats.circuits;
        watch.note(&format!("stopping: waiting for {circuits} circuits to finish"));
    }

    /// Makes certificates of links anew before they end, and says how long we have run.
    fn renew(&mut self, now: Time, watch: &mut dyn Watch) {
        if now.since(self.certified) >= RECERTIFY {
            self.certified = now;
            self.renew_keys(watch);
            self.certify(watch);
        }
        if let Some(made) = self.link_keys.made(now, self.settings.keys.keys()) {
            let adopted = made.and_then(|key| self.show(&key, watch));
            adopted
                .unwrap_or_else(|error| watch.note(&format!("cannot renew the TLS key: {error}")));
        }
        self.describe_in_time(now);
    }

    /// Has us tested by a circuit of our own, if that is due.
    fn test(&mut self, now: Time, watch: &mut dyn Watch) {
        // Nobody is to hear of a bridge who does not need to.
        let is_tested = self.ends.is_none() && self.bridge.is_none();
        let Some(network) = self.network.as_deref().filter(|_| is_tested) else { return };
        let relay = Tested {
            network,
            keys: self.settings.keys.keys(),
            description: &self.settings.live.description,
            clock: self.shard.station.clock,
            meters: &self.meters,
        };
        let observed = self.history_file.history.observed();
        if let Some(said) = self.self_test.turn(now, observed, &relay) {
            watch.note(&said);
            // Soon, and once what came is part of ten whole seconds.
            self.describe_at = self.describe_at.min(now + SETTLED);
        }
    }

    /// Makes the certificates of CERTS cells anew, for the TLS certificate that we show.
    fn certify(&mut self, watch: &mut dyn Watch) {
        match credentials(self.settings.keys.keys(), &self.certificate, unix()) {
            Ok(credentials) => {
                let (responder, initiator) = roles(credentials);
                self.workers.tell(|| WorkerOrder::Roles(responder.clone(), initiator.clone()));
                self.shard.station.core.set_roles(responder, initiator);
            }
            Err(error) => watch.note(&error.to_string()),
        }
    }

    /// Shows another TLS certificate from now on. Links that are being opened go on with the one
    /// before.
    fn show(&mut self, key: &LinkKey, watch: &mut dyn Watch) -> io::Result<()> {
        let context = Context::with_certificate(&key.certificate, &key.key);
        let context = context.map_err(io::Error::other)?;
        self.certificate.clone_from(&key.certificate);
        self.certify(watch);
        self.workers.tell(|| WorkerOrder::Tls(context.clone()));
        self.shard.station.set_context(&context)
    }

    /// Uses new keys where the present ones have grown old.
    fn renew_keys(&mut self, watch: &mut dyn Watch) {
        let keys = &mut self.settings.keys;
        let renewed = anabranch_os::entropy::generator()
            .map_err(|error| error.to_string())
            .and_then(|mut rng| keys.renew(&mut rng, unix()).map_err(|error| error.to_string()));
        match renewed {
            Ok(false) => {}
            Ok(true) => {
                self.workers.tell(|| WorkerOrder::OnionKeys(keys.onion_keys()));
                self.shard.station.core.set_onion_keys(keys.onion_keys());
                self.settings.dirclient.sign_with(Arc::clone(keys.keys()));
            }
            Err(error) => watch.note(&format!("cannot renew this relay's keys: {error}")),
        }
    }

    fn accept(&mut self, place: usize, watch: &mut dyn Watch) {
        let now = self.shard.station.clock.now();
        while let Some((socket, peer)) = self.shard.station.accept(place) {
            // Whoever has too many is closed, before anything is done for it.
            let Some(place) = self.entrance.admit(now, peer.ip()) else { continue };
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
                    self.entrance.set_network(&network);
                    let said = &network.consensus().params;
                    let params = NetworkParams {
                        circuits: super::params(&network),
                        padding: network.params().padding,
                        services: ServiceParams::new(said),
                        conflux: ConfluxParams::new(said),
                    };
                    self.workers.tell(|| WorkerOrder::Params(params.clone()));
                    self.shard.station.core.set_network_params(&params);
                    self.network = Some(network);
                }
                News::Cache(cache) => {
                    self.workers.tell(|| WorkerOrder::Cache(Arc::clone(&cache)));
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

/// On links that came, and on those that we opened.
fn roles(credentials: Credentials) -> (Role, Role) {
    let credentials = Arc::new(credentials);
    (Role::Responder(Arc::clone(&credentials)), Role::Initiator(credentials))
}

/// All shards, the first of which listens.
fn shards(
    settings: &mut Settings,
    meters: &[Meter; 2],
    key: &LinkKey,
    entrance: &Entrance,
) -> io::Result<Vec<Parts>> {
    let clock = Clock::start();
    let credentials = credentials(settings.keys.keys(), &key.certificate, unix())?;
    let config = config(settings, &credentials);
    let (responder, initiator) = roles(credentials);
    let (hsdir, mut taps) =
        (SharedHsDir::default(), std::mem::take(&mut settings.taps).into_iter());
    let make = |(number, siblings): (usize, Siblings)| {
        let (config, rng) = (config.clone(), Box::new(anabranch_os::entropy::generator()?));
        let context = Context::with_certificate(&key.certificate, &key.key);
        Ok(Parts {
            clock,
            core: Relay::new(config, responder.clone(), initiator.clone(), rng),
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
                entrance: entrance.clone(),
                linking,
            }),
        })
    };
    ring::shards(settings.threads.max(1))?.into_iter().enumerate().map(make).collect()
}

/// All shards take QUIC links where the first takes others.
fn take_quic(first: &mut Shard, others: &mut [Parts], entrance: &Entrance) -> io::Result<()> {
    let at = first.station.addresses()?;
    let mut sockets = quic::sockets(&at, 1 + others.len())?.into_iter();
    if let Some(sockets) = sockets.next() {
        first.station.listen_quic(sockets, entrance.clone())?;
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
    }
}

/// A shard's part of what all have together.
fn shared_out(most: usize, settings: &Settings) -> usize {
    (most / settings.threads.max(1)).max(1)
}

/// What a relay proves itself with on links that show this TLS certificate.
fn credentials(keys: &RelayKeys, certificate: &[u8], unix: u64) -> io::Result<Credentials> {
    keys.credentials(&mut anabranch_os::entropy::generator()?, certificate, unix)
        .map_err(io::Error::other)
}
