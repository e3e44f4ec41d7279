//! A relay on real sockets.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use anabranch_links::tls::Context;
use anabranch_multipath::Time;
use anabranch_onion::channel::{Credentials, Role};
use anabranch_onion::directory::descriptor::Description;
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_onion::relay::{Config, Input, Output, Relay, Stats};
use anabranch_onion::wire::keys::{RelayKeys, link_key};
use anabranch_onion::{Event, StreamKey, schedule};
use sd_notify::NotifyState;

use super::keyring::KeyRing;
use super::office::{News, Office, unix};
use super::outside::Stir;
use super::station::{Station, TICK, Token};
use crate::clock::Clock;
use crate::manager::tell;
use crate::poller::Ready;
use exits::Exits;
use observed::Observed;

mod answers;
mod exits;
mod observed;

/// Tokens of the single files.
const STOP: u64 = 0;
const NAMES: u64 = 1;
const DIRECTORY: u64 = 2;
/// Certificates of links hold for two days.
const RECERTIFY: Duration = Duration::from_secs(12 * 3600);
/// How often we are described anew; what is no news is published only when it is due.
const DESCRIBE: Duration = Duration::from_secs(3600);

/// How a relay is to run.
pub struct Settings {
    /// Where links come in.
    pub listen: Vec<SocketAddr>,
    /// The addresses that we call ours.
    pub own: Vec<IpAddr>,
    /// The relay's keys.
    pub keys: KeyRing,
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
    /// What is published of us; uptime is filled in, and what we were seen to carry once that is more than it says. Links are held to its
    /// bandwidth.
    pub description: Description,
    /// How long circuits may go on after the end was asked for.
    pub grace: Duration,
}

/// Numbers for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The core's.
    pub stats: Stats,
    /// Links that are there, open or not.
    pub links: usize,
    /// Bytes that links received and sent since the beginning.
    pub carried: [u64; 2],
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
}

/// Runs a relay until `stop` is readable, and then until its circuits are gone or the time of grace is
/// over: no new links are taken meanwhile. What makes `stop` readable once more ends it at once.
///
/// # Errors
/// An address cannot be listened on, or the kernel has no files left at the start.
pub fn run(settings: Settings, stop: &UnixStream, watch: &mut dyn Watch) -> io::Result<()> {
    stop.set_nonblocking(true)?;
    let mut shard = Shard::new(settings, stop)?;
    watch.listening(&shard.station.addresses()?);
    tell(&[NotifyState::Ready, NotifyState::Status("links may come")]);
    if let Some(trouble) = shard.exits.trouble() {
        watch.note(trouble);
    }
    while shard.turn(stop, watch)? {}
    Ok(())
}

/// A core and its sockets: what one thread runs.
struct Shard {
    station: Station<Relay>,
    exits: Exits,
    settings: Settings,
    observed: Observed,
    /// The TLS certificate that we show.
    certificate: Vec<u8>,
    ticked: Time,
    /// When certificates of links were last made anew, and when we were last described.
    certified: Time,
    described: Time,
    /// Set when the end was asked for.
    ends: Option<Time>,
}

impl Shard {
    fn new(settings: Settings, stop: &UnixStream) -> io::Result<Shard> {
        let unix = unix();
        let key = link_key(&mut super::generator()?, unix).map_err(io::Error::other)?;
        let context =
            Context::with_certificate(&key.certificate, &key.key).map_err(io::Error::other)?;
        let credentials = credentials(settings.keys.keys(), &key.certificate, unix)?;
        let config = config(&settings, &credentials);
        let (responder, initiator) = roles(credentials);
        let core = Relay::new(config, responder, initiator, Box::new(super::generator()?));
        let (at, own) = (&settings.listen, settings.own.clone());
        let mut station = Station::new(Clock::start(), core, context, at, own)?;
        let [rate, burst, _] = settings.description.bandwidth;
        station.links.limit(Time::ZERO, rate, burst);
        let exits = Exits::new(settings.policy.clone())?;
        station.watch(stop, STOP)?;
        station.watch(exits.waker(), NAMES)?;
        station.watch(settings.office.waker(), DIRECTORY)?;
        settings.office.publish(settings.description.clone());
        Ok(Shard {
            station,
            exits,
            settings,
            observed: Observed::default(),
            certificate: key.certificate,
            ticked: Time::ZERO,
            certified: Time::ZERO,
            described: Time::ZERO,
            ends: None,
        })
    }

    /// Waits, takes what is ready to the core, does what the core says; false if it is time to end.
    fn turn(&mut self, stop: &UnixStream, watch: &mut dyn Watch) -> io::Result<bool> {
        let ready = self.station.wait(None)?;
        let now = self.station.clock.now();
        for event in ready {
            self.take(now, event, watch);
        }
        if self.was_told_to_end(now, stop, watch) {
            return Ok(false);
        }
        self.station.resume(now);
        if self.station.is_due(now) {
            self.station.core.handle(now, Input::Timeout);
        }
        self.obey(now, watch);
        if now.since(self.ticked) >= TICK {
            self.ticked = now;
            let carried = self.station.links.carried();
            self.observed.note(carried);
            let (stats, links) = (self.station.core.stats(), self.station.links.len());
            watch.numbers(now, &Numbers { stats, links, carried });
            self.renew(now, watch);
        }
        let drained = || self.station.core.stats().circuits == 0;
        Ok(!self.ends.is_some_and(|end| now >= end || drained()))
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
        self.ends = Some(now + self.settings.grace);
        self.station.listeners.clear();
        let circuits = self.station.core.stats().circuits;
        watch.note(&format!("ending: {circuits} circuits may go on for a while"));
    }

    /// Makes certificates of links anew before they end, and says how long we have run.
    fn renew(&mut self, now: Time, watch: &mut dyn Watch) {
        if now.since(self.certified) >= RECERTIFY {
            self.certified = now;
            self.renew_keys(watch);
            match credentials(self.settings.keys.keys(), &self.certificate, unix()) {
                Ok(credentials) => {
                    let (responder, initiator) = roles(credentials);
                    self.station.core.set_roles(responder, initiator);
                }
                Err(error) => watch.note(&error.to_string()),
            }
        }
        if now.since(self.described) >= DESCRIBE {
            self.described = now;
            let uptime = now.since(Time::ZERO).as_secs();
            let mut description = Description { uptime, ..self.settings.description.clone() };
            let [.., observed] = &mut description.bandwidth;
            *observed = self.observed.most().max(*observed);
            self.settings.office.publish(description);
        }
    }

    /// Uses new keys where the present ones have grown old.
    fn renew_keys(&mut self, watch: &mut dyn Watch) {
        let keys = &mut self.settings.keys;
        let renewed = super::generator()
            .map_err(|error| error.to_string())
            .and_then(|mut rng| keys.renew(&mut rng, unix()).map_err(|error| error.to_string()));
        match renewed {
            Ok(false) => {}
            Ok(true) => {
                self.station.core.set_onion_keys(keys.onion_keys());
                self.settings.office.sign_with(Arc::clone(keys.keys()));
            }
            Err(error) => watch.note(&format!("keys could not be renewed: {error}")),
        }
    }

    fn take(&mut self, now: Time, ready: Ready, watch: &mut dyn Watch) {
        match Token::of(ready.token) {
            Token::File(NAMES) => self.exits.take_names(now, &mut self.station),
            Token::File(DIRECTORY) => self.take_news(watch),
            // Signals are read behind all else.
            Token::File(_) => {}
            Token::Listener(place) => self.accept(place, watch),
            Token::Link(link) => self.station.take_link(now, link, ready),
            Token::Stream(key) => {
                let stream = StreamKey(key);
                self.exits.stir(now, &mut self.station, stream, Stir::Socket(ready));
            }
        }
        self.obey(now, watch);
    }

    fn accept(&mut self, place: usize, watch: &mut dyn Watch) {
        let Station { listeners, links, poller, .. } = &mut self.station;
        let Some(listener) = listeners.get(place) else { return };
        while let Ok((socket, peer)) = listener.accept() {
            if let Err(error) = links.accept(poller, socket, peer) {
                watch.note(&format!("a link could not be taken: {error}"));
            }
        }
    }

    /// Does what the core says.
    fn obey(&mut self, now: Time, watch: &mut dyn Watch) {
        let (station, exits) = (&mut self.station, &mut self.exits);
        while let Some(output) = station.core.poll() {
            match output {
                Output::Link(output) => station.obey(now, output),
                Output::Stream(output) => exits.take(now, station, output),
                Output::Connect { stream, begin } => exits.connect(now, station, stream, begin),
                Output::Directory { stream } => exits.serve(now, station, stream),
                Output::Resolve { stream, name } => exits.seek(now, station, stream, None, name),
                Output::Event(event) => watch.event(now, &event),
            }
        }
    }

    fn take_news(&mut self, watch: &mut dyn Watch) {
        for news in self.settings.office.take() {
            match news {
                News::Network(network) => {
                    self.station.core.set_params(super::params(&network));
                }
                News::Cache(cache) => self.exits.cache = cache,
                News::Ready => {}
                News::Published(name) => {
                    watch.note(&format!("authority {name} took our descriptor"))
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

fn config(settings: &Settings, credentials: &Credentials) -> Config {
    Config {
        identity: credentials.identity,
        onion_keys: settings.keys.onion_keys(),
        params: Arc::default(),
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
