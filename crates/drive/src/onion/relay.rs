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
use anabranch_onion::relay::{Config, Relay, Stats};
use anabranch_onion::wire::keys::{LinkKey, RelayKeys, link_key};
use anabranch_onion::{Event, schedule};
use sd_notify::NotifyState;

use super::keyring::KeyRing;
use super::meter::Meter;
use super::office::{News, Office, unix};
use super::siblings::{self, Siblings};
use super::station::{TICK, Token};
use crate::clock::Clock;
use crate::files;
use crate::manager::tell;
use hands::{Hands, Order};
use observed::Observed;
use shard::{Parts, Shard};

mod answers;
mod exits;
mod hands;
mod observed;
mod shard;

/// Tokens of the first shard's single files, beside those of each.
const STOP: u64 = 0;
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
    /// Event loops, each with a core of its own and its share of the links and of the memory; 0 counts as 1.
    pub threads: usize,
}

/// Bytes of cells that may wait if nobody says.
const MEMORY: usize = 128 << 20;

impl Settings {
    /// As the description says, with one event loop and no time of grace; private addresses are nobody's business.
    #[must_use]
    pub fn new(
        listen: Vec<SocketAddr>,
        keys: KeyRing,
        office: Office,
        description: Description,
    ) -> Settings {
        let v6 = description.v6.map(|v6| IpAddr::from(*v6.ip()));
        Settings {
            listen,
            own: [IpAddr::from(description.address)].into_iter().chain(v6).collect(),
            keys,
            policy: description.policy.clone(),
            directory: description.directory_cache,
            allow_private: false,
            memory: MEMORY,
            schedule: schedule::Kind::default(),
            office,
            description,
            grace: Duration::ZERO,
            threads: 1,
        }
    }
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

impl Numbers {
    /// Those of two shards together.
    fn with(self, other: &Numbers) -> Numbers {
        let [received, sent] = [0, 1].map(|way| self.carried[way] + other.carried[way]);
        Numbers {
            stats: self.stats.with(&other.stats),
            links: self.links + other.links,
            carried: [received, sent],
        }
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
}

/// Runs a relay until `stop` is readable, and then until its circuits are gone or the time of grace is
/// over: no new links are taken meanwhile. What makes `stop` readable once more ends it at once.
///
/// # Errors
/// An address cannot be listened on, or the kernel has no files left at the start.
pub fn run(settings: Settings, stop: &UnixStream, watch: &mut dyn Watch) -> io::Result<()> {
    files::raise_limit();
    stop.set_nonblocking(true)?;
    let mut head = Head::start(settings, stop)?;
    watch.listening(&head.shard.station.addresses()?);
    tell(&[NotifyState::Ready, NotifyState::Status("links may come")]);
    if let Some(trouble) = head.shard.trouble() {
        watch.note(trouble);
    }
    while head.turn(stop, watch)? {}
    Ok(())
}

/// The first shard with the others at hand, and what there is but once.
struct Head {
    shard: Shard,
    hands: Hands,
    settings: Settings,
    observed: Observed,
    /// The TLS certificate that we show.
    certificate: Vec<u8>,
    ticked: Time,
    /// When certificates of links were last made anew, and when we were last described.
    certified: Time,
    described: Time,
    /// Set when the end was asked for: from when on it ends once there are no circuits, and when it ends in any case.
    ends: Option<[Time; 2]>,
}

impl Head {
    fn start(settings: Settings, stop: &UnixStream) -> io::Result<Head> {
        let key = link_key(&mut super::generator()?, unix()).map_err(io::Error::other)?;
        let mut parts = shards(&settings, &key)?;
        let shard = Shard::new(parts.remove(0))?;
        shard.station.watch(stop, STOP)?;
        shard.station.watch(settings.office.waker(), DIRECTORY)?;
        let hands = Hands::start(parts)?;
        settings.office.publish(settings.description.clone());
        Ok(Head {
            shard,
            hands,
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
        let (now, ready) = self.shard.turn(watch)?;
        for token in ready {
            match token {
                Token::File(DIRECTORY) => self.take_news(now, watch),
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
            self.hands.listen(watch)?;
            let numbers = self.numbers();
            self.observed.note(numbers.carried);
            watch.numbers(now, &numbers);
            self.renew(now, watch);
        }
        let drained = || self.numbers().stats.circuits == 0;
        Ok(!self.ends.is_some_and(|[from, end]| now >= end || now >= from && drained()))
    }

    fn numbers(&self) -> Numbers {
        self.hands.numbers().with(&self.shard.numbers())
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
        self.ends = Some([from, now + self.settings.grace]);
        self.shard.station.listeners.clear();
        let circuits = self.numbers().stats.circuits;
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
                    self.hands.tell(|| Order::Roles(responder.clone(), initiator.clone()));
                    self.shard.station.core.set_roles(responder, initiator);
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
                self.hands.tell(|| Order::OnionKeys(keys.onion_keys()));
                self.shard.station.core.set_onion_keys(keys.onion_keys());
                self.settings.office.sign_with(Arc::clone(keys.keys()));
            }
            Err(error) => watch.note(&format!("keys could not be renewed: {error}")),
        }
    }

    fn accept(&mut self, place: usize, watch: &mut dyn Watch) {
        while let Some((socket, peer)) = self.shard.station.accept(place) {
            if let Some((socket, peer)) = self.hands.hand(socket, peer) {
                self.shard.accept(socket, peer, watch);
            }
        }
    }

    fn take_news(&mut self, now: Time, watch: &mut dyn Watch) {
        for news in self.settings.office.take() {
            match news {
                News::Network(network) => {
                    let params = super::params(&network);
                    let padding = network.params().padding;
                    self.hands.tell(|| Order::Params(Arc::clone(&params), padding));
                    self.shard.station.core.set_params(params);
                    self.shard.station.core.set_padding(padding);
                }
                News::Cache(cache) => {
                    self.hands.tell(|| Order::Cache(Arc::clone(&cache)));
                    self.shard.set_cache(now, cache);
                }
                News::Ready | News::Errand(_) | News::Fetched(_) => {}
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

/// All shards, the first of which listens.
fn shards(settings: &Settings, key: &LinkKey) -> io::Result<Vec<Parts>> {
    let clock = Clock::start();
    let credentials = credentials(settings.keys.keys(), &key.certificate, unix())?;
    let config = config(settings, &credentials);
    let (responder, initiator) = roles(credentials);
    let [rate, burst, _] = settings.description.bandwidth;
    let meters = [Meter::full(rate, burst), Meter::full(rate, burst)];
    let make = |(number, siblings): (usize, Siblings)| {
        let (config, rng) = (config.clone(), Box::new(super::generator()?));
        let context = Context::with_certificate(&key.certificate, &key.key);
        Ok(Parts {
            clock,
            core: Relay::new(config, responder.clone(), initiator.clone(), rng),
            context: context.map_err(io::Error::other)?,
            listen: if number == 0 { settings.listen.clone() } else { Vec::new() },
            own: settings.own.clone(),
            meters: meters.clone(),
            policy: settings.policy.clone(),
            siblings,
        })
    };
    siblings::shards(settings.threads.max(1))?.into_iter().enumerate().map(make).collect()
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
        max_cells: settings.memory / anabranch_onion::wire::cell::CELL / settings.threads.max(1),
        max_queue: 50_000,
        max_half_open: (64 / settings.threads.max(1)).max(4),
        max_streams: 10_000,
    }
}

/// What a relay proves itself with on links that show this TLS certificate.
fn credentials(keys: &RelayKeys, certificate: &[u8], unix: u64) -> io::Result<Credentials> {
    keys.credentials(&mut super::generator()?, certificate, unix).map_err(io::Error::other)
}
