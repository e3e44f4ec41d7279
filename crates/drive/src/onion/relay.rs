//! A relay on real sockets.

use std::collections::BTreeMap;
use std::io;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anabranch_links::tls::Context;
use anabranch_multipath::Time;
use anabranch_onion::channel::{Credentials, Role, Start};
use anabranch_onion::congestion::Params;
use anabranch_onion::directory::cache::Cache;
use anabranch_onion::directory::descriptor::Description;
use anabranch_onion::directory::http::RequestReader;
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_onion::relay::{Config, Input, Output, Relay, Stats};
use anabranch_onion::wire::crypto::CurveKeys;
use anabranch_onion::wire::keys::{RelayKeys, link_key, sha256};
use anabranch_onion::wire::message::{Answer, Begin, EndReason};
use anabranch_onion::{Event, LinkId, StreamKey, schedule};

use super::dns::{Question, Resolver, TTL};
use super::links::{LINKS, Links};
use super::office::{News, Office};
use super::outside::{Inside, Outside, Told, reason};
use crate::clock::Clock;
use crate::poller::{Poller, Ready};

/// Tokens of the single files; listeners count on from the last.
const STOP: u64 = 0;
const NAMES: u64 = 1;
const DIRECTORY: u64 = 2;
const LISTENERS: u64 = 16;
/// The least token of a stream's socket: its key added to this.
const STREAMS: u64 = 1 << 61;
/// Between two looks at what is not told by any file.
const TICK: Duration = Duration::from_secs(1);
/// Certificates of links hold for two days.
const RECERTIFY: Duration = Duration::from_secs(12 * 3600);
/// How often we are described anew; what is no news is published only when it is due.
const DESCRIBE: Duration = Duration::from_secs(3600);
/// The longest directory request.
const LONGEST_REQUEST: usize = 32 << 10;

/// How a relay is to run.
pub struct Settings {
    /// Where links come in.
    pub listen: Vec<SocketAddr>,
    /// The addresses that we call ours.
    pub own: Vec<IpAddr>,
    /// The relay's keys.
    pub keys: Arc<RelayKeys>,
    /// Where streams may go.
    pub policy: ExitPolicy,
    /// Whether directory requests are answered.
    pub directory: bool,
    /// Whether circuits and streams may lead to private addresses.
    pub allow_private: bool,
    /// Bytes of cells that may wait.
    pub memory: usize,
    /// The order among the circuits of a link.
    pub schedule: schedule::Kind,
    /// Who talks to authorities.
    pub office: Office,
    /// What is published of us; uptime is filled in.
    pub description: Description,
    /// How long circuits may go on after the end was asked for.
    pub grace: Duration,
}

/// Who watches a relay.
pub trait Watch {
    /// It listens, at these addresses.
    fn listening(&mut self, at: &[SocketAddr]);
    /// Something happened.
    fn event(&mut self, now: Time, event: &Event);
    /// Numbers, about once a second.
    fn stats(&mut self, now: Time, stats: &Stats, links: usize);
    /// A line for the log.
    fn note(&mut self, text: &str);
}

/// Runs a relay until `stop` is readable, and then until its circuits are gone or the time of grace is
/// over: no new links are taken meanwhile. What makes `stop` readable once more ends it at once.
///
/// # Errors
/// An address cannot be listened on, or the kernel has no files left at the start.
pub fn run(settings: Settings, stop: &UnixStream, watch: &mut dyn Watch) -> io::Result<()> {
    stop.set_nonblocking(true)?;
    let clock = Clock::start();
    let mut shard = Shard::new(settings, clock, stop)?;
    let at: io::Result<Vec<SocketAddr>> =
        shard.listeners.iter().map(TcpListener::local_addr).collect();
    watch.listening(&at?);
    if let Some(trouble) = shard.names.trouble() {
        watch.note(trouble);
    }
    while shard.turn(stop, watch)? {}
    Ok(())
}

/// A core and its sockets: what one thread runs.
struct Shard {
    clock: Clock,
    core: Relay,
    poller: Poller,
    links: Links,
    listeners: Vec<TcpListener>,
    outsides: BTreeMap<StreamKey, Outside>,
    /// Streams whose destination's name is being looked up.
    sought: BTreeMap<StreamKey, Option<Begin>>,
    requests: BTreeMap<StreamKey, Answering>,
    names: Resolver,
    cache: Arc<Cache>,
    settings: Settings,
    /// The TLS certificate that we show.
    certificate: Vec<u8>,
    ticked: Time,
    /// When certificates of links were last made anew, and when we were last described.
    certified: Time,
    described: Time,
    /// Set when the end was asked for.
    ends: Option<Time>,
    ready: Vec<Ready>,
}

/// A directory request, and what of its answer has not found room.
enum Answering {
    Reading(RequestReader),
    Saying(Vec<u8>),
}

impl Shard {
    fn new(settings: Settings, clock: Clock, stop: &UnixStream) -> io::Result<Shard> {
        let unix = unix(&clock, Time::ZERO);
        let key = link_key(&mut super::generator()?, unix).map_err(io::Error::other)?;
        let context =
            Context::with_certificate(&key.certificate, &key.key).map_err(io::Error::other)?;
        let credentials = credentials(&settings.keys, &key.certificate, unix)?;
        let config = config(&settings, &credentials);
        let credentials = Arc::new(credentials);
        let responder = Role::Responder(Arc::clone(&credentials));
        let core = Relay::new(
            config,
            responder,
            Role::Initiator(credentials),
            Box::new(super::generator()?),
        );
        let poller = Poller::new(1024)?;
        let names = Resolver::start()?;
        let listeners: io::Result<Vec<TcpListener>> = settings.listen.iter().map(listen).collect();
        let listeners = listeners?;
        poller.add(stop, STOP)?;
        poller.add(names.waker(), NAMES)?;
        for (token, listener) in (LISTENERS..).zip(&listeners) {
            poller.add(listener, token)?;
        }
        poller.add(settings.office.waker(), DIRECTORY)?;
        settings.office.publish(settings.description.clone());
        Ok(Shard {
            clock,
            core,
            poller,
            links: Links::new(context),
            listeners,
            outsides: BTreeMap::new(),
            sought: BTreeMap::new(),
            requests: BTreeMap::new(),
            names,
            cache: Arc::default(),
            settings,
            certificate: key.certificate,
            ticked: Time::ZERO,
            certified: Time::ZERO,
            described: Time::ZERO,
            ends: None,
            ready: Vec::new(),
        })
    }

    /// Waits, takes what is ready to the core, does what the core says; false if it is time to end.
    fn turn(&mut self, mut stop: &UnixStream, watch: &mut dyn Watch) -> io::Result<bool> {
        let now = self.clock.now();
        let next = self.core.next_timeout().map_or(TICK, |time| time.since(now).min(TICK));
        let mut ready = std::mem::take(&mut self.ready);
        ready.extend(self.poller.wait(Some(next))?);
        let now = self.clock.now();
        for event in ready.drain(..) {
            self.take(now, event, watch);
        }
        self.ready = ready;
        let mut signals = [0; 16];
        let asked = stop.read(&mut signals).unwrap_or(0);
        if asked > 1 || (asked > 0 && self.ends.is_some()) {
            return Ok(false);
        }
        if asked > 0 {
            self.begin_to_end(now, watch);
        }
        if self.core.next_timeout().is_some_and(|time| time <= now) {
            self.core.handle(now, Input::Timeout);
        }
        self.obey(now, watch);
        if now.since(self.ticked) >= TICK {
            self.ticked = now;
            watch.stats(now, &self.core.stats(), self.links.len());
            self.renew(now, watch);
        }
        let drained = || self.core.stats().circuits == 0;
        Ok(!self.ends.is_some_and(|end| now >= end || drained()))
    }

    /// Takes no new links, and lets circuits finish.
    fn begin_to_end(&mut self, now: Time, watch: &mut dyn Watch) {
        self.ends = Some(now + self.settings.grace);
        self.listeners.clear();
        let circuits = self.core.stats().circuits;
        watch.note(&format!("ending: {circuits} circuits may go on for a while"));
    }

    /// Makes certificates of links anew before they end, and says how long we have run.
    fn renew(&mut self, now: Time, watch: &mut dyn Watch) {
        if now.since(self.certified) >= RECERTIFY {
            self.certified = now;
            let unix = unix(&self.clock, now);
            match credentials(&self.settings.keys, &self.certificate, unix) {
                Ok(credentials) => {
                    let credentials = Arc::new(credentials);
                    let responder = Role::Responder(Arc::clone(&credentials));
                    self.core.set_roles(responder, Role::Initiator(credentials));
                }
                Err(error) => watch.note(&error.to_string()),
            }
        }
        if now.since(self.described) >= DESCRIBE {
            self.described = now;
            let uptime = now.since(Time::ZERO).as_secs();
            let description = Description { uptime, ..self.settings.description.clone() };
            self.settings.office.publish(description);
        }
    }

    fn take(&mut self, now: Time, ready: Ready, watch: &mut dyn Watch) {
        match ready.token {
            STOP => {}
            NAMES => self.take_names(now),
            DIRECTORY => self.take_news(watch),
            token if token >= STREAMS => self.take_stream(now, StreamKey(token - STREAMS), ready),
            token if token >= LINKS => self.take_link(now, LinkId(token - LINKS), ready, watch),
            token => self.accept((token - LISTENERS) as usize, watch),
        }
        self.obey(now, watch);
    }

    fn accept(&mut self, listener: usize, watch: &mut dyn Watch) {
        let Some(listener) = self.listeners.get(listener) else { return };
        while let Ok((socket, peer)) = listener.accept() {
            if let Err(error) = self.links.accept(&self.poller, socket, peer) {
                watch.note(&format!("a link could not be taken: {error}"));
            }
        }
    }

    fn take_link(&mut self, now: Time, link: LinkId, ready: Ready, watch: &mut dyn Watch) {
        let Some(conn) = self.links.get(link) else { return };
        let (peer, target) = (conn.peer, conn.target.clone());
        let news = self.links.read(link, ready);
        let ended = news.ended;
        if news.opened {
            let bytes = news.bytes.to_vec();
            let start = self.start(now, link, peer);
            self.core.handle(now, Input::Opened { link, target, start });
            self.core.handle(now, Input::Bytes { link, bytes: &bytes });
        } else if !news.bytes.is_empty() {
            self.core.handle(now, Input::Bytes { link, bytes: news.bytes });
        }
        self.obey(now, watch);
        self.flush(now, link);
        if ended {
            self.gone(now, link);
        }
    }

    fn start(&self, now: Time, link: LinkId, peer: SocketAddr) -> Start {
        let shown = self.links.get(link).and_then(|conn| {
            conn.target.as_ref()?;
            conn.tls().peer_certificate().map(sha256)
        });
        let unix = unix(&self.clock, now);
        Start {
            now,
            unix,
            peer: peer.ip(),
            own: self.settings.own.clone(),
            peer_certificate: shown,
        }
    }

    fn flush(&mut self, now: Time, link: LinkId) {
        let core = &mut self.core;
        let fetch = |out: &mut Vec<u8>, limit| core.transmit(now, link, out, limit);
        if !self.links.flush(&self.poller, link, fetch) {
            self.gone(now, link);
        }
    }

    fn gone(&mut self, now: Time, link: LinkId) {
        match self.links.remove(link) {
            Some(target) => self.core.handle(now, Input::Unreachable { target }),
            None => self.core.handle(now, Input::Closed { link }),
        }
    }

    /// Does what the core says.
    fn obey(&mut self, now: Time, watch: &mut dyn Watch) {
        while let Some(output) = self.core.poll() {
            match output {
                Output::Dial { target } => {
                    let dialled = self.links.dial(&self.poller, target.clone());
                    if dialled.is_err() {
                        self.core.handle(now, Input::Unreachable { target });
                    }
                }
                Output::Export { link, context } => self.export(now, link, &context),
                Output::Transmit { link } => {
                    self.links.wants(link);
                    self.flush(now, link);
                }
                Output::Close { link } => {
                    self.links.close(link);
                    self.flush(now, link);
                }
                Output::Connect { stream, begin } => self.connect(now, stream, begin),
                Output::Directory { stream } => {
                    let reader = RequestReader::new(LONGEST_REQUEST);
                    self.requests.insert(stream, Answering::Reading(reader));
                    self.core.handle(now, Input::Connected { stream, reached: None });
                }
                Output::Resolve { stream, name } => self.seek(now, stream, None, name),
                Output::Readable { stream } => self.readable(now, stream),
                Output::Room { stream } => self.room(now, stream),
                Output::Ended { stream, .. } => self.forget(stream),
                Output::Event(event) => watch.event(now, &event),
            }
        }
    }

    fn export(&mut self, now: Time, link: LinkId, context: &[u8; 32]) {
        match self.links.export(link, context) {
            Some(secret) => self.core.handle(now, Input::Exported { link, secret }),
            None => self.gone(now, link),
        }
    }

    fn connect(&mut self, now: Time, stream: StreamKey, begin: Begin) {
        match begin.host.parse::<IpAddr>() {
            Ok(address) => self.go(now, stream, &[address], begin.port),
            Err(_) if !self.settings.policy.may_allow(begin.port) => {
                let reason = EndReason::EXIT_POLICY;
                self.core.handle(now, Input::Ended { stream, reason });
            }
            Err(_) => {
                let name = begin.host.clone();
                self.seek(now, stream, Some(begin), name);
            }
        }
    }

    fn seek(&mut self, now: Time, stream: StreamKey, begin: Option<Begin>, name: String) {
        let is_question = begin.is_none();
        if self.names.ask(Question { stream, name }).is_ok() {
            self.sought.insert(stream, begin);
        } else if is_question {
            let answers = vec![(Answer::Later, 0)];
            self.core.handle(now, Input::Resolved { stream, answers });
        } else {
            let reason = EndReason::RESOURCES;
            self.core.handle(now, Input::Ended { stream, reason });
        }
    }

    fn take_names(&mut self, now: Time) {
        for found in self.names.take() {
            let stream = found.stream;
            match self.sought.remove(&stream) {
                None => {}
                Some(None) => {
                    let answers = found.answers.into_iter().map(|answer| (answer, TTL)).collect();
                    self.core.handle(now, Input::Resolved { stream, answers });
                }
                Some(Some(begin)) => {
                    let addresses: Vec<IpAddr> = found.answers.iter().filter_map(address).collect();
                    let addresses = begin.acceptable(addresses);
                    self.go(now, stream, &addresses, begin.port);
                }
            }
        }
    }

    /// Connects a stream to the first of the addresses that the policy lets through.
    fn go(&mut self, now: Time, stream: StreamKey, addresses: &[IpAddr], port: u16) {
        let allowed = |address: &&IpAddr| self.settings.policy.allows(**address, port);
        let Some(&address) = addresses.iter().find(allowed) else {
            let known = !addresses.is_empty();
            let reason = if known { EndReason::EXIT_POLICY } else { EndReason::RESOLVE_FAILED };
            return self.core.handle(now, Input::Ended { stream, reason });
        };
        let outside = Outside::connect(stream, (address, port).into()).and_then(|outside| {
            let token = STREAMS + stream.0;
            self.poller.add_for(outside.socket(), token, outside.interest())?;
            Ok(outside)
        });
        match outside {
            Ok(outside) => {
                self.outsides.insert(stream, outside);
            }
            Err(error) => {
                self.core.handle(now, Input::Ended { stream, reason: reason(&error) });
            }
        }
    }

    fn take_stream(&mut self, now: Time, stream: StreamKey, ready: Ready) {
        let Some(outside) = self.outsides.get_mut(&stream) else { return };
        let mut inside = Within { core: &mut self.core, now };
        let told = outside.ready(ready.read, ready.write, &mut inside);
        self.tell(now, stream, told);
    }

    fn readable(&mut self, now: Time, stream: StreamKey) {
        if self.requests.contains_key(&stream) {
            return self.serve(now, stream);
        }
        let Some(outside) = self.outsides.get_mut(&stream) else { return };
        let mut inside = Within { core: &mut self.core, now };
        let told = match outside.drain(&mut inside) {
            Ok(()) => Told::Nothing,
            Err(error) => Told::Ended(reason(&error)),
        };
        self.tell(now, stream, told);
    }

    fn room(&mut self, now: Time, stream: StreamKey) {
        if self.requests.contains_key(&stream) {
            return self.serve(now, stream);
        }
        let Some(outside) = self.outsides.get_mut(&stream) else { return };
        let mut inside = Within { core: &mut self.core, now };
        let told = outside.has_room(&mut inside);
        self.tell(now, stream, told);
    }

    fn tell(&mut self, now: Time, stream: StreamKey, told: Told) {
        match told {
            Told::Nothing => {}
            Told::Connected(address) => {
                let reached = Some((address, TTL));
                self.core.handle(now, Input::Connected { stream, reached });
            }
            Told::Ended(reason) => {
                self.forget(stream);
                return self.core.handle(now, Input::Ended { stream, reason });
            }
        }
        if let Some(outside) = self.outsides.get(&stream) {
            // It is watched, as long as it is in the table.
            let _ = self.poller.change(outside.socket(), STREAMS + stream.0, outside.interest());
        }
    }

    fn forget(&mut self, stream: StreamKey) {
        self.outsides.remove(&stream);
        self.sought.remove(&stream);
        self.requests.remove(&stream);
    }

    /// Reads a directory request, and says its answer as there is room.
    fn serve(&mut self, now: Time, stream: StreamKey) {
        let (first, second) = self.core.read(stream);
        let (bytes, length) = ([first, second].concat(), first.len() + second.len());
        self.core.consume(now, stream, length);
        let Some(answering) = self.requests.get_mut(&stream) else { return };
        if let Answering::Reading(reader) = answering {
            *answering = match reader.push(&bytes) {
                Ok(None) => return,
                Ok(Some(request)) => Answering::Saying(self.cache.answer(&request)),
                Err(_) => Answering::Saying(Vec::new()),
            };
        }
        if let Answering::Saying(left) = answering {
            let taken = self.core.write(now, stream, left);
            left.drain(..taken);
            if left.is_empty() {
                self.requests.remove(&stream);
                self.core.handle(now, Input::Ended { stream, reason: EndReason::DONE });
            }
        }
    }

    fn take_news(&mut self, watch: &mut dyn Watch) {
        for news in self.settings.office.take() {
            match news {
                News::Network(network) => {
                    let mut params = Params::default();
                    let given = &network.consensus().params;
                    given.iter().for_each(|(name, value)| params.set(name, *value));
                    self.core.set_params(Arc::new(params));
                }
                News::Cache(cache) => self.cache = cache,
                News::Ready => {}
                News::Published(name) => {
                    watch.note(&format!("authority {name} took our descriptor"))
                }
                News::Trouble(text) => watch.note(&text),
            }
        }
    }
}

/// The core's side of a stream.
struct Within<'a> {
    core: &'a mut Relay,
    now: Time,
}

impl Inside for Within<'_> {
    fn waiting(&self, stream: StreamKey) -> (&[u8], &[u8]) {
        self.core.read(stream)
    }

    fn took(&mut self, stream: StreamKey, bytes: usize) {
        self.core.consume(self.now, stream, bytes);
    }

    fn give(&mut self, stream: StreamKey, bytes: &[u8]) -> usize {
        self.core.write(self.now, stream, bytes)
    }
}

fn address(answer: &Answer) -> Option<IpAddr> {
    match answer {
        Answer::Address(address) => Some(*address),
        _ => None,
    }
}

fn listen(at: &SocketAddr) -> io::Result<TcpListener> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{at}: {error}"));
    let listener = TcpListener::bind(at).map_err(named)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn config(settings: &Settings, credentials: &Credentials) -> Config {
    Config {
        identity: credentials.identity,
        onion_keys: vec![CurveKeys::from(settings.keys.ntor().0)],
        params: Arc::new(Params::default()),
        policy: settings.schedule,
        exit: !settings.policy.rejects_all(),
        directory: settings.directory,
        allow_private: settings.allow_private,
        max_cells: settings.memory / anabranch_onion::wire::cell::CELL,
        max_queue: 50_000,
        max_half_open: 64,
        max_streams: 10_000,
    }
}

/// What a relay proves itself with on links that show this TLS certificate.
fn credentials(keys: &RelayKeys, certificate: &[u8], unix: u64) -> io::Result<Credentials> {
    keys.credentials(&mut super::generator()?, certificate, unix).map_err(io::Error::other)
}

fn unix(clock: &Clock, now: Time) -> u64 {
    clock.wall(now).duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
