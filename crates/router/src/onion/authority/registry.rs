//! The authority's registry: a thread that owns all mutable state. It processes messages
//! ([`RegistryMessage`]) in order, and does the work that is due, such as making a consensus. Only
//! this thread waits for the disk.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::authority::reachability::Probe;
use anabranch_onion::authority::{Refusal, UploadOutcome, measured};
use anabranch_onion::directory::descriptor::{Description, RelayDocuments};
use anabranch_onion::directory::reply::Reply;
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_os::clock::Clock;
use rand_core::Rng;

use super::keys::AuthorityKeyStore;
use super::ledger::Ledger;
use super::shared_answers::{RegistryMessage, SharedAnswers};
use super::wall_clock::{Step, WallClock, steady};
use super::{AuthorityEvent, Changes};
use crate::onion::answers::Promise;
use crate::onion::dirclient::{DirCommand, REPUBLISH_S, unix};

/// Interval at which the authority's main thread checks whether a consensus, a publication or a
/// new key is due.
const TICK: Duration = Duration::from_secs(1);
/// Pause after a failed attempt to make a consensus, to publish our own descriptor or to renew
/// keys, in seconds.
const RETRY: u64 = 60;
/// Maximum number of messages that the registry processes before the changed documents are served
/// and the senders of the messages get their replies.
const BATCH: usize = 100;

/// The registry's ends of the channels to other threads. The registry is the authority's main
/// thread, which owns all mutable state.
pub(super) struct RegistryChannels {
    pub(super) messages: Receiver<RegistryMessage>,
    pub(super) orders: Receiver<DirCommand>,
    pub(super) probes: Sender<Vec<Probe>>,
}

/// State of the authority's main thread.
pub(super) struct Registry {
    ledger: Ledger,
    shared_answers: Arc<SharedAnswers>,
    channels: RegistryChannels,
    key_store: AuthorityKeyStore,
    relay: Arc<RelayKeys>,
    bandwidths: Option<PathBuf>,
    /// Description of the authority's own relay, to be published; `None` until the relay has sent
    /// it.
    description: Option<Description>,
    /// Time of the last publication of `description`, in seconds since 1970; 0 to publish at once.
    published: u64,
    /// True if the authority has its own relay's descriptor. Until then, the authority makes no
    /// consensus, because without any relay the consensus would be malformed.
    listed: bool,
    /// Time, in seconds since 1970, of the next attempt to make a consensus, to publish our own
    /// descriptor or to renew keys after such an attempt has failed.
    retry: u64,
    clock: Clock,
    ticked: Time,
    wall: WallClock,
    /// Replies to uploads of descriptors, with the promises through which the uploading clients
    /// wait for them. They are sent once the changed documents are served.
    verdicts: Vec<(Promise, Reply)>,
}

impl Registry {
    /// Creates the state of the authority's main thread. The authority's relay has the keys
    /// `settings.relay`.
    pub(super) fn new(
        ledger: Ledger,
        shared_answers: Arc<SharedAnswers>,
        channels: RegistryChannels,
        key_store: AuthorityKeyStore,
        settings: &super::Settings,
    ) -> Registry {
        let clock = Clock::start();
        let wall = WallClock::new(clock.now(), steady(), unix(), settings.core.interval);
        let mut registry = Registry {
            ledger,
            shared_answers,
            channels,
            key_store,
            relay: Arc::clone(&settings.relay),
            bandwidths: settings.bandwidths.clone(),
            description: None,
            published: 0,
            listed: false,
            retry: 0,
            clock,
            ticked: Time::ZERO,
            wall,
            verdicts: Vec::new(),
        };
        registry.give_out();
        registry
    }

    /// Runs until the thread of the authority's relay has ended. Then writes all state to disk.
    pub(super) fn run(mut self) {
        loop {
            let passed = self.clock.now().since(self.ticked);
            let letter = self.channels.messages.recv_timeout(TICK.saturating_sub(passed));
            // Steps of the clock are handled first. Otherwise events would be recorded with a
            // wrong time.
            self.note_steps(self.clock.now(), unix());
            match letter {
                Ok(letter) => self.open_some(letter),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = self.clock.now();
            if now.since(self.ticked) >= TICK {
                self.ticked = now;
                if !self.take_orders() {
                    break;
                }
                self.tick(unix());
            }
            self.give_out();
        }
        self.ledger.keep(unix());
    }

    fn open_some(&mut self, first: RegistryMessage) {
        self.open(first);
        for _ in 1..BATCH {
            let Ok(letter) = self.channels.messages.try_recv() else { return };
            self.open(letter);
        }
    }

    fn open(&mut self, letter: RegistryMessage) {
        match letter {
            RegistryMessage::Upload { body, from, promise } => {
                let reply = match std::str::from_utf8(&body) {
                    Ok(text) => verdict(&self.ledger.upload(unix(), text, from)),
                    Err(_) => Reply::new(400, "A descriptor is text"),
                };
                self.verdicts.push((promise, reply));
            }
            RegistryMessage::Probed { target, answers, at } => {
                self.ledger.authority.probed(at, &target, answers);
            }
            RegistryMessage::Room(room) => {
                let probes = self.ledger.authority.probes(unix(), room);
                // The directory port's thread checks for probes when it is woken.
                if !probes.is_empty() && self.channels.probes.send(probes).is_ok() {
                    self.shared_answers.wake();
                }
            }
            RegistryMessage::Settings(changes) => self.adopt(*changes, unix()),
            RegistryMessage::Ends(why) => {
                self.ledger.report(AuthorityEvent::Trouble(format!(
                    "this authority's directory port has failed and stays closed until a restart: \
                     {why}"
                )));
            }
        }
    }

    fn adopt(&mut self, changes: Changes, unix: u64) {
        let Changes { core, contact, bandwidths, certified_for } = changes;
        self.bandwidths = bandwidths;
        self.key_store.set_certified_for(certified_for);
        self.ledger.adopt(unix, core, contact);
    }

    /// Starts to serve the changed documents. Then wakes the threads whose clients wait for these
    /// documents.
    fn give_out(&mut self) {
        let changed = self.ledger.changed();
        let anything = changed.is_some() || !self.verdicts.is_empty();
        changed.into_iter().for_each(|cache| self.shared_answers.show(cache));
        self.verdicts.drain(..).for_each(|(promise, reply)| promise.keep(reply));
        if anything {
            self.shared_answers.wake();
        }
    }

    /// Processes the commands that the authority's relay has sent through its directory client.
    /// Returns false once that relay has ended.
    fn take_orders(&mut self) -> bool {
        loop {
            match self.channels.orders.try_recv() {
                Ok(DirCommand::Publish(description)) => {
                    let old = self.description.replace(*description);
                    let new = self.description.as_ref();
                    if old.zip(new).is_none_or(|(old, new)| new.differs_from(&old)) {
                        self.published = 0;
                    }
                }
                Ok(DirCommand::Sign(keys)) => (self.relay, self.published) = (keys, 0),
                // An authority makes no directory requests, has no bridges, and trusts itself.
                Ok(DirCommand::Report(_) | DirCommand::Trust(..) | DirCommand::AskBridges) => {}
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Does the work that is due at the time `unix`, in seconds since 1970, such as making a
    /// consensus.
    fn tick(&mut self, unix: u64) {
        // While the clock may be wrong, no document is made, because its date would be wrong, too.
        if !self.wall.is_trusted(steady()) {
            return;
        }
        if unix >= self.retry || self.retry > unix + RETRY {
            self.renew_keys(unix);
            self.publish_ourselves(unix);
        }
        if self.listed && self.retry <= unix && self.ledger.authority.due(unix) <= unix {
            self.measure(unix);
            self.publish(unix);
        }
    }

    /// Shifts all recorded times if the machine's clock was changed. The shift keeps the computed
    /// age and downtime of relays correct.
    fn note_steps(&mut self, now: Time, unix: u64) {
        let Some(Step { by, set }) = self.wall.look(now, steady(), unix) else { return };
        (self.published, self.retry) = (0, 0);
        self.ledger.shift(unix, by);
        if set != 0 {
            let way = if set > 0 { "forward" } else { "back" };
            let wait = self.wall.settling();
            self.ledger.report(AuthorityEvent::Trouble(format!(
                "this machine's clock was set {way} by {} s: this authority publishes no consensus \
                 for {wait} s, or until the change is undone",
                set.abs()
            )));
        }
    }

    fn publish(&mut self, unix: u64) {
        // Without randomness, only the new shared random value is missing from the consensus.
        if let Ok(mut rng) = anabranch_os::entropy::generator() {
            let mut random = [0; 32];
            rng.fill_bytes(&mut random);
            self.ledger.authority.set_entropy(random);
        }
        if let Err(error) = self.ledger.publish(unix) {
            self.fail(unix, &format!("could not publish a consensus: {error}"));
        }
    }

    fn renew_keys(&mut self, unix: u64) {
        if !self.key_store.is_old(unix) {
            return;
        }
        let renewed =
            anabranch_os::entropy::generator().map_err(|error| error.to_string()).and_then(
                |mut rng| self.key_store.renew(&mut rng, unix).map_err(|error| error.to_string()),
            );
        match renewed {
            Ok(keys) => {
                self.ledger.authority.set_keys(keys);
                self.ledger.certify(self.key_store.certificates());
                // A new consensus is made and signed with the new key now, because after a restart
                // only that key is available.
                if self.ledger.authority.documents().times.is_some() {
                    self.publish(unix);
                }
            }
            Err(error) => {
                let left = self.key_store.ends().saturating_sub(unix) / 86_400;
                let days = if left == 1 { "day" } else { "days" };
                let message = format!(
                    "cannot renew the certificate of this authority's signing key, which expires \
                     in {left} {days}: {error}"
                );
                self.fail(unix, &message);
            }
        }
    }

    /// Publishes the descriptor of the authority's own relay if that is due.
    fn publish_ourselves(&mut self, unix: u64) {
        let Some(description) = &self.description else { return };
        if self.published <= unix && unix - self.published < REPUBLISH_S {
            return;
        }
        let taken = match description.publish(&self.relay, unix) {
            Ok(RelayDocuments { server, extra }) => {
                match self.ledger.upload(unix, &(server + &extra), None) {
                    // The clock was set back, and our descriptor from before is still valid.
                    Err(refusal) if refusal.is_no_news() => Ok(UploadOutcome::Known),
                    taken => taken.map_err(|refusal| refusal.to_string()),
                }
            }
            Err(error) => Err(error.to_string()),
        };
        match taken {
            Ok(_) => (self.published, self.listed) = (unix, true),
            Err(error) => {
                self.fail(
                    unix,
                    &format!(
                        "this authority refuses its own descriptor and will try again: {error}"
                    ),
                );
            }
        }
    }

    fn measure(&mut self, unix: u64) {
        let Some(path) = &self.bandwidths else { return };
        let read = fs::read_to_string(path).map_err(|error| error.to_string());
        let read =
            read.and_then(|text| measured::read(&text, unix).map_err(|error| error.to_string()));
        match read {
            Ok(measured) => self.ledger.authority.measure(measured),
            Err(error) => {
                let message = format!(
                    "{}: {error}; the relay bandwidths that were read earlier stay in use",
                    path.display()
                );
                self.ledger.report(AuthorityEvent::Trouble(message));
            }
        }
    }

    fn fail(&mut self, unix: u64, what: &str) {
        self.retry = unix + RETRY;
        self.ledger.report(AuthorityEvent::Trouble(what.to_owned()));
    }
}

/// Returns the HTTP reply to an upload. `taken` is the result of processing the upload.
fn verdict(taken: &Result<UploadOutcome, Refusal>) -> Reply {
    // C tor's relays understand this reply as "descriptor without news".
    let no_news = || Reply::new(200, "OK").header("X-Descriptor-Not-New", "Yes");
    match taken {
        Ok(UploadOutcome::New(_)) => Reply::new(200, "OK"),
        Ok(UploadOutcome::Known) => no_news(),
        Err(refusal) if refusal.is_no_news() => no_news(),
        Err(refusal) => Reply::new(400, &refusal.to_string()),
    }
}
