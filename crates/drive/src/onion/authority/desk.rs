//! The authority's thread: its directory port, its probes, and its clock.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use anabranch_links::tls::Context;
use anabranch_multipath::Time;
use anabranch_onion::authority::prober::{Output, Prober};
use anabranch_onion::authority::{Taken, measured};
use anabranch_onion::directory::descriptor::Description;
use anabranch_onion::directory::reply::Answers;
use anabranch_onion::wire::keys::RelayKeys;

use super::bureau::{Bureau, State};
use super::counter::Counter;
use super::keys::Cabinet;
use super::wall::{Step, Wall, steady};
use super::{Settings, Told};
use crate::clock::Clock;
use crate::onion::office::{self, News, Order, REPUBLISH_S, unix};
use crate::onion::station::{Station, TICK, Token};
use crate::poller::Ready;

/// Relays that are probed at once: half of these links are kept for those that run, so that the others have to be enough for many that do not.
const PROBES: usize = 400;
/// A relay's port has so long to answer.
const OPENING: Duration = Duration::from_secs(10);
/// Between two tries of what did not work, in seconds.
const RETRY: u64 = 60;

/// The thread's state.
pub(super) struct Desk {
    station: Station<Prober>,
    counter: Counter,
    bureau: Arc<Bureau>,
    cabinet: Cabinet,
    orders: Receiver<Order>,
    news: office::Desk,
    relay: Arc<RelayKeys>,
    bandwidths: Option<PathBuf>,
    /// What is published of us, and when it was.
    description: Option<Description>,
    published: u64,
    /// Whether we are listed: a consensus of nobody at all is malformed.
    listed: bool,
    /// When what failed is tried again.
    retry: u64,
    ticked: Time,
    wall: Wall,
}

impl Desk {
    /// Listens, and opens the counter for the relay's side; with the addresses that are listened at.
    ///
    /// # Errors
    /// An address cannot be listened on, or the kernel has nothing left.
    pub(super) fn new(
        settings: Settings,
        cabinet: Cabinet,
        bureau: Arc<Bureau>,
        mut news: office::Desk,
        orders: Receiver<Order>,
    ) -> io::Result<(Desk, Vec<SocketAddr>)> {
        let context = Context::new(unix()).map_err(io::Error::other)?;
        let prober = Prober::new(PROBES, Box::new(crate::onion::generator()?));
        let clock = Clock::start();
        let wall = Wall::new(clock.now(), steady(), unix(), settings.core.interval);
        let mut station = Station::new(clock, prober, context, &settings.listen, Vec::new())?;
        station.links.patience = OPENING;
        let at = station.addresses()?;
        news.tell(News::Cache(Arc::clone(&bureau) as Arc<dyn Answers>));
        let desk = Desk {
            station,
            counter: Counter::default(),
            bureau,
            cabinet,
            orders,
            news,
            relay: settings.relay,
            bandwidths: settings.bandwidths,
            description: None,
            published: 0,
            listed: false,
            retry: 0,
            ticked: Time::ZERO,
            wall,
        };
        Ok((desk, at))
    }

    /// Works until the relay's side is gone.
    pub(super) fn run(mut self) {
        loop {
            match self.turn() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.bureau.state().tell(Told::Trouble(format!("the authority ends: {error}")));
                    break;
                }
            }
        }
        self.bureau.state().keep(unix());
    }

    fn turn(&mut self) -> io::Result<bool> {
        let ready = self.station.wait(None)?;
        let now = self.station.clock.now();
        for event in ready {
            self.take(now, event);
        }
        self.station.resume(now);
        if self.station.is_due(now) {
            self.station.core.expire(now);
        }
        self.obey(now);
        if now.since(self.ticked) < TICK {
            return Ok(true);
        }
        self.ticked = now;
        self.counter.expire(now);
        let goes_on = self.take_orders();
        if self.tick(now, unix()) {
            self.counter.call(now, &self.station.poller, &*self.bureau);
            self.news.tell(News::Cache(Arc::clone(&self.bureau) as Arc<dyn Answers>));
        }
        self.obey(now);
        Ok(goes_on)
    }

    fn take(&mut self, now: Time, ready: Ready) {
        match Token::of(ready.token) {
            Token::File(_) => {}
            Token::Listener(place) => self.accept(now, place),
            Token::Link(link) => self.station.take_link(now, link, ready),
            Token::Stream(number) => {
                self.counter.serve(now, &self.station.poller, number, ready, &*self.bureau);
            }
        }
        self.obey(now);
    }

    fn accept(&mut self, now: Time, place: usize) {
        let Station { listeners, poller, .. } = &self.station;
        let Some(listener) = listeners.get(place) else { return };
        while let Ok(visitor) = listener.accept() {
            // One that the kernel cannot watch is closed.
            let _ = self.counter.enter(now, poller, visitor, self.bureau.longest());
        }
    }

    /// Does what the prober says.
    fn obey(&mut self, now: Time) {
        while let Some(output) = self.station.core.poll() {
            match output {
                Output::Link(output) => self.station.obey(now, output),
                Output::Probed { target, answers } => {
                    self.bureau.state().authority.probed(unix(), &target, answers);
                }
            }
        }
    }

    /// What the relay's side wants; false once it is gone.
    fn take_orders(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Publish(description)) => {
                    let old = self.description.replace(*description);
                    let new = self.description.as_ref();
                    if old.zip(new).is_none_or(|(old, new)| new.differs_from(&old)) {
                        self.published = 0;
                    }
                }
                Ok(Order::Sign(keys)) => (self.relay, self.published) = (keys, 0),
                // We run no errands.
                Ok(Order::Report(_)) => {}
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Once a second: what is due; whether there is a new consensus.
    fn tick(&mut self, now: Time, unix: u64) -> bool {
        let bureau = Arc::clone(&self.bureau);
        self.note_steps(now, unix, &mut bureau.state());
        // What bears a time that may be wrong is not made.
        let trusted = self.wall.is_trusted(steady());
        if trusted && (unix >= self.retry || self.retry > unix + RETRY) {
            self.renew_keys(unix, &bureau);
            self.publish_ourselves(unix, &mut bureau.state());
        }
        let mut state = bureau.state();
        for probe in state.authority.probes(unix, self.station.core.room()) {
            self.station.core.probe(probe);
        }
        if !self.listed || !trusted || state.authority.due(unix) > unix || self.retry > unix {
            return false;
        }
        self.measure(unix, &mut state);
        let published = state.publish(unix);
        if let Err(error) = &published {
            self.fail(unix, &mut state, &format!("no consensus: {error}"));
        }
        published.is_ok()
    }

    /// A clock that was set anew makes nobody older.
    fn note_steps(&mut self, now: Time, unix: u64, state: &mut State) {
        let Some(Step { by, set }) = self.wall.look(now, steady(), unix) else { return };
        (self.published, self.retry) = (0, 0);
        state.shift(unix, by);
        if set != 0 {
            let way = if set > 0 { "forward" } else { "back" };
            let wait = self.wall.settling();
            state.tell(Told::Trouble(format!(
                "the machine's clock was set {way} by {} s: no consensus is made for {wait} s, or until it is set to what it was",
                set.abs()
            )));
        }
    }

    fn renew_keys(&mut self, unix: u64, bureau: &Bureau) {
        if !self.cabinet.is_old(unix) {
            return;
        }
        let renewed =
            crate::onion::generator().map_err(|error| error.to_string()).and_then(|mut rng| {
                self.cabinet.renew(&mut rng, unix).map_err(|error| error.to_string())
            });
        let mut state = bureau.state();
        match renewed {
            Ok(keys) => {
                state.authority.set_keys(keys);
                state.certify(self.cabinet.certificates());
                // What lies on disk for a restart is signed by the key that is there then.
                let there = state.authority.documents().times.is_some();
                if there && let Err(error) = state.publish(unix) {
                    self.fail(unix, &mut state, &format!("no consensus: {error}"));
                }
            }
            Err(error) => {
                let left = self.cabinet.ends().saturating_sub(unix) / 86_400;
                let told =
                    format!("the certificate ends in {left} days and is not renewed: {error}");
                self.fail(unix, &mut state, &told);
            }
        }
    }

    /// Publishes our own descriptor where that is due.
    fn publish_ourselves(&mut self, unix: u64, state: &mut State) {
        let Some(description) = &self.description else { return };
        if self.published <= unix && unix - self.published < REPUBLISH_S {
            return;
        }
        let taken = match description.sign(&self.relay, unix) {
            Ok(text) => match state.own_descriptor(unix, text) {
                // It was published before the clock was set back, and still holds.
                Err(refusal) if refusal.is_no_news() => Ok(Taken::Known),
                taken => taken.map_err(|refusal| refusal.to_string()),
            },
            Err(error) => Err(error.to_string()),
        };
        match taken {
            Ok(_) => (self.published, self.listed) = (unix, true),
            Err(error) => self.fail(unix, state, &format!("our own descriptor: {error}")),
        }
    }

    fn measure(&mut self, unix: u64, state: &mut State) {
        let Some(path) = &self.bandwidths else { return };
        let read = fs::read_to_string(path).map_err(|error| error.to_string());
        let read =
            read.and_then(|text| measured::read(&text, unix).map_err(|error| error.to_string()));
        match read {
            Ok(measured) => state.authority.measure(measured),
            Err(error) => {
                let told =
                    format!("{}: {error}; what was measured before counts on", path.display());
                state.tell(Told::Trouble(told));
            }
        }
    }

    fn fail(&mut self, unix: u64, state: &mut State, what: &str) {
        self.retry = unix + RETRY;
        state.tell(Told::Trouble(what.to_owned()));
    }
}
