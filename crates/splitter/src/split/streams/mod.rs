//! Paths that are streams: one connection to the far end for each, dialled again when it ends.
//!
//! A path is down while it has no connection. Dials block, so each has a thread for as long as it
//! lasts; the connection itself is in the loop. After a dial that failed the next one waits, twice
//! as long each time, and a random part of that: paths that broke together do not come back
//! together.
//!
//! A circuit that stays slow is left for another one (`slow`): it carries until that is open.

mod dial;
mod slow;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use anabranch_comps::{DownReason, StreamCounters};
use anabranch_multipath::seed::{Stream as Dice, stream};
use anabranch_multipath::{PathId, Time};
use anabranch_os::poller::Poller;
use anabranch_os::target::Target;
use anabranch_tunnel::carrier::{LONGEST, LONGEST_FIRST};
use rand::RngExt;

use self::dial::{DialFault, Dialled, Line, Order, Ssh, dial};
use self::slow::Slow;
use super::ways::{Look, Ways};
use crate::paths::{Egress, PathSpec, StreamKind};
use crate::socks::Reach;
use crate::streams::{Connection, Ending, TlsEnd};

/// Token of a path's stream, to which the path's number is added.
pub(super) const STREAMS: u64 = 1 << 62;
/// Time before the first dial after an end; it doubles with each dial that fails, up to the
/// longest.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A connection that lasted this long was one: the next dial is the first.
const LASTING: Duration = Duration::from_secs(10);
/// Time in which a far end answers on a new connection. A far end closes those of strangers after
/// 20 s.
const SILENCE: Duration = Duration::from_secs(15);
/// Bytes read from a stream at once.
const BUFFER: usize = 64 << 10;

/// All paths that are streams.
pub(super) struct Streams {
    places: BTreeMap<PathId, Place>,
    /// Ways out so far, of all paths: each has another number.
    eras: u64,
    /// The far end, as proxies are to find it.
    far: Option<Target>,
    terms: Terms,
    dice: Dice,
    answers: Receiver<Answer>,
    sender: Sender<Answer>,
    bell: UnixStream,
    ring: Arc<UnixStream>,
    buffer: Vec<u8>,
    /// Paths with packets that were not given to the socket yet.
    touched: Vec<PathId>,
}

/// What holds for all streams.
#[derive(Clone)]
pub(super) struct Terms {
    /// The mark of our sockets.
    pub(super) fwmark: Option<u32>,
    /// What paths in TLS need.
    pub(super) tls: Option<Arc<dyn TlsEnd>>,
    /// Time that packets wait for room, at most.
    pub(super) age: Duration,
}

type Answer = (PathId, u64, Result<Dialled, DialFault>);

/// One path.
struct Place {
    name: String,
    kind: StreamKind,
    state: State,
    /// Dials of an earlier era lead by another way out.
    era: u64,
    /// What is wrong with the way to the first hop.
    way: Option<DownReason>,
    /// Dials that failed since the last connection that lasted.
    failures: u32,
    /// The fault that the user was told of last.
    told: Option<String>,
    /// How slow its circuit is, where it is one.
    slow: Slow,
    /// Whether another connection is dialled while the present one still carries.
    replaces: bool,
    /// Of connections that have ended.
    past: StreamCounters,
}

enum State {
    /// The next dial begins then.
    Waiting(Time),
    Dialling,
    Open(Box<Wire>),
}

/// An open connection.
struct Wire {
    connection: Connection,
    since: Time,
    /// Whether the far end has been heard by it.
    is_heard: bool,
    ssh: Option<Ssh>,
}

/// A path has a connection now; with the bytes that were read with a proxy's answer.
pub(super) struct Opened {
    pub(super) path: PathId,
    pub(super) rest: Vec<u8>,
}

/// What came of dials.
pub(super) enum Outcome {
    Opened(Opened),
    /// A path has none; the warning to give, if it is another than the last one.
    Failed(Option<String>),
    /// The name of a path's first hop leads elsewhere now.
    Moved(PathId, Vec<SocketAddr>),
}

impl Streams {
    /// The streams among the paths `specs`; nothing is dialled yet.
    ///
    /// # Errors
    /// The system has no socket left.
    pub(super) fn new(
        specs: &[PathSpec],
        far: Option<&Target>,
        terms: Terms,
        seed: u64,
    ) -> io::Result<Streams> {
        let (sender, answers) = mpsc::channel();
        let (bell, ring) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ring.set_nonblocking(true)?;
        let numbered = (0..).map(PathId).zip(specs);
        let places = numbered
            .filter_map(|(path, spec)| Some((path, Place::new(spec, spec.stream.clone()?))));
        Ok(Streams {
            places: places.collect(),
            eras: 0,
            far: far.cloned(),
            terms,
            dice: stream(seed, 0, "streams"),
            answers,
            sender,
            bell,
            ring: Arc::new(ring),
            buffer: vec![0; BUFFER],
            touched: Vec::new(),
        })
    }

    /// Other certificates are accepted from the next dial on.
    pub(super) fn set_tls(&mut self, tls: Option<Arc<dyn TlsEnd>>) {
        self.terms.tls = tls;
    }

    /// `path` leads another way from now on, which may be a stream or not. Its connection ends.
    pub(super) fn replace(&mut self, now: Time, path: PathId, spec: &PathSpec) {
        self.places.remove(&path);
        let Some(kind) = spec.stream.clone() else { return };
        self.eras += 1;
        let place = Place { era: self.eras, state: State::Waiting(now), ..Place::new(spec, kind) };
        self.places.insert(path, place);
    }

    /// The paths that are streams.
    pub(super) fn paths(&self) -> Vec<PathId> {
        self.places.keys().copied().collect()
    }

    pub(super) fn has(&self, path: PathId) -> bool {
        self.places.contains_key(&path)
    }

    /// Whether a path is a circuit, which can give way to another.
    pub(super) fn is_circuit(&self, path: PathId) -> bool {
        self.places.get(&path).is_some_and(|place| matches!(place.kind, StreamKind::Onion(_)))
    }

    /// What is wrong with `path`, as far as this machine can tell.
    pub(super) fn broken(&self, path: PathId) -> Option<DownReason> {
        let place = self.places.get(&path)?;
        let is_open = matches!(place.state, State::Open(_));
        place.way.or((!is_open).then_some(DownReason::Dialling))
    }

    /// When something is due.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.places.values().filter_map(Place::due).min()
    }

    /// Begins the dials that are due, and ends connections by which no far end was heard. Those
    /// paths, and the warnings to give.
    pub(super) fn on_time(&mut self, now: Time, ways: &Ways) -> Vec<(PathId, Option<String>)> {
        let due = self.places.iter().filter(|(_, place)| place.due().is_some_and(|due| due <= now));
        let due: Vec<PathId> = due.map(|(&path, _)| path).collect();
        let mut ended = Vec::new();
        for path in due {
            match self.places[&path].state {
                State::Open(_) => {
                    let fault = "no answer from a far end on this connection for 15 s: check \
                                 address, port and key";
                    ended.push((path, self.fail(now, path, fault)));
                }
                State::Waiting(_) => self.begin(path, ways.of(path)),
                State::Dialling => {}
            }
        }
        ended
    }

    /// Dials on a thread of its own.
    fn begin(&mut self, path: PathId, egress: &Egress) {
        let (Some(place), Some(far)) = (self.places.get_mut(&path), &self.far) else { return };
        if !place.replaces {
            place.state = State::Dialling;
        }
        let order = order(place, egress, far, &self.terms);
        let (era, sender, ring) = (place.era, self.sender.clone(), Arc::clone(&self.ring));
        let work = move || {
            // The run may have ended meanwhile. A bell that is full has rung.
            let _ = sender.send((path, era, dial(&order)));
            let _ = (&*ring).write(&[0]);
        };
        if let Err(error) = thread::Builder::new().name("dial".into()).spawn(work) {
            let _ = self.sender.send((path, era, Err(DialFault::System(error))));
            let _ = (&*self.ring).write(&[0]);
        }
    }

    /// What came of the next dial that has ended.
    pub(super) fn answer(&mut self, now: Time, poller: &Poller) -> Option<Outcome> {
        let mut rings = [0; 64];
        let _ = self.bell.read(&mut rings);
        loop {
            let (path, era, outcome) = self.answers.try_recv().ok()?;
            if self.places.get(&path).is_none_or(|place| place.era != era) {
                continue;
            }
            return Some(match outcome {
                Ok(Dialled::Open(line)) => self.open(now, path, line, poller),
                Ok(Dialled::Moved(found)) => Outcome::Moved(path, found),
                Err(fault) => Outcome::Failed(self.refused(now, path, &fault.to_string())),
            });
        }
    }

    /// A dial has failed. Where another connection is open, that stays.
    fn refused(&mut self, now: Time, path: PathId, fault: &str) -> Option<String> {
        match self.places.get_mut(&path) {
            Some(place) if place.replaces => {
                place.replaces = false;
                None
            }
            _ => self.fail(now, path, fault),
        }
    }

    /// A circuit is this much slower than the fastest path, as far as that is known. Where it has
    /// been too slow for too long, another one is dialled by a new user of the SOCKS port; the
    /// warning to give.
    pub(super) fn note_lag(
        &mut self,
        now: Time,
        path: PathId,
        lag: Option<Duration>,
        ways: &Ways,
    ) -> Option<String> {
        let place = self.places.get_mut(&path)?;
        let StreamKind::Onion(circuits) = &mut place.kind else { return None };
        if place.replaces || !matches!(place.state, State::Open(_)) {
            return None;
        }
        let lag = place.slow.note(now, lag)?;
        circuits.renew(&mut self.dice);
        place.past.replaced += 1;
        place.replaces = true;
        let text = format!(
            "path '{}' ({}): its circuit has been {} ms slower than the fastest path for {} s: \
             another circuit replaces it",
            place.name,
            place.kind.word(),
            lag.as_millis(),
            place.slow.patience().as_secs()
        );
        place.slow.replaced();
        self.begin(path, ways.of(path));
        Some(text)
    }

    fn open(&mut self, now: Time, path: PathId, line: Line, poller: &Poller) -> Outcome {
        let Line { socket, rest, ssh, tls } = line;
        let made = Connection::new(socket, tls, (LONGEST, self.terms.age)).and_then(|connection| {
            poller.add(&connection, token(path))?;
            Ok(connection)
        });
        match (made, self.places.get_mut(&path)) {
            (Ok(connection), Some(place)) => {
                let wire = Wire { connection, since: now, is_heard: false, ssh };
                place.leave();
                place.state = State::Open(Box::new(wire));
                Outcome::Opened(Opened { path, rest })
            }
            (Err(error), _) => Outcome::Failed(self.fail(now, path, &error.to_string())),
            (Ok(_), None) => Outcome::Failed(None),
        }
    }

    /// The name of a path's first hop leads nowhere that this machine reaches.
    pub(super) fn fail_move(&mut self, now: Time, path: PathId) -> Option<String> {
        self.fail(now, path, "the addresses of its first hop changed, and none can be reached")
    }

    /// The next dial of a path may begin now: its way out changed.
    pub(super) fn dial_now(&mut self, now: Time, path: PathId) {
        if let Some(place) = self.places.get_mut(&path) {
            place.leave();
            self.eras += 1;
            place.era = self.eras;
            place.state = State::Waiting(now);
        }
    }

    /// A path has no connection; the next dial follows. The warning to give, if it is another than
    /// the last one.
    fn fail(&mut self, now: Time, path: PathId, fault: &str) -> Option<String> {
        let place = self.places.get_mut(&path)?;
        if let State::Open(wire) = &mut place.state {
            let words = wire.ssh.as_mut().and_then(Ssh::last_words);
            let lasted = now.since(wire.since) >= LASTING && wire.is_heard;
            let fault = words.map_or_else(|| fault.to_owned(), |words| format!("ssh: {words}"));
            if lasted {
                (place.failures, place.told) = (0, None);
            }
            return self.wait(now, path, &fault);
        }
        self.wait(now, path, fault)
    }

    fn wait(&mut self, now: Time, path: PathId, fault: &str) -> Option<String> {
        let place = self.places.get_mut(&path)?;
        // The dial that is under way already is the next one.
        let is_dialled = place.replaces;
        place.leave();
        let pause = (PAUSE * (1 << place.failures.min(7))).min(LONGEST_PAUSE);
        place.failures = place.failures.saturating_add(1);
        place.state = match is_dialled {
            true => State::Dialling,
            false => State::Waiting(now + pause.mul_f64(self.dice.random_range(0.5..1.5))),
        };
        let text = format!("path '{}' ({}): {fault}", place.name, place.kind.word());
        let is_fresh = place.told.as_ref() != Some(&text);
        place.told = Some(text.clone());
        is_fresh.then_some(text)
    }

    /// Appends a packet to a path's connection. False if it has none, or takes no more.
    pub(super) fn push(&mut self, now: Time, path: PathId, packet: &[u8], lasts: bool) -> bool {
        let Some(State::Open(wire)) = self.places.get_mut(&path).map(|place| &mut place.state)
        else {
            return false;
        };
        // A far end that knows nothing of the stream yet takes short packets only.
        if !wire.is_heard && packet.len() > LONGEST_FIRST {
            return false;
        }
        if self.touched.last() != Some(&path) {
            self.touched.push(path);
        }
        wire.connection.push(now, packet, lasts)
    }

    /// Gives the sockets what was appended. The paths whose connection ended by that, and the
    /// warnings to give.
    pub(super) fn flush(&mut self, now: Time, poller: &Poller) -> Vec<(PathId, Option<String>)> {
        let touched = std::mem::take(&mut self.touched);
        let ended = touched.iter().filter_map(|&path| self.flush_one(now, path, poller));
        let ended = ended.collect();
        self.touched = touched;
        self.touched.clear();
        ended
    }

    /// As [`Streams::flush`], for one path.
    pub(super) fn flush_one(
        &mut self,
        now: Time,
        path: PathId,
        poller: &Poller,
    ) -> Option<(PathId, Option<String>)> {
        let State::Open(wire) = &mut self.places.get_mut(&path)?.state else { return None };
        let ending = wire.connection.flush(now, poller, token(path)).err()?;
        Some((path, self.fail(now, path, &ending.to_string())))
    }

    /// Reads from a path's connection; calls `each` with every packet.
    ///
    /// # Errors
    /// It has ended: the warning to give.
    pub(super) fn read(
        &mut self,
        now: Time,
        path: PathId,
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Option<String>> {
        self.with(now, path, |connection, buffer, heard| {
            connection.read(buffer, |packet| *heard |= each(packet))
        })
    }

    /// As [`Streams::read`], for bytes that were read with a proxy's answer.
    ///
    /// # Errors
    /// As there.
    pub(super) fn take(
        &mut self,
        now: Time,
        path: PathId,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Option<String>> {
        self.with(now, path, |connection, _, heard| {
            connection.take(bytes, |packet| *heard |= each(packet))
        })
    }

    fn with(
        &mut self,
        now: Time,
        path: PathId,
        take: impl FnOnce(&mut Connection, &mut [u8], &mut bool) -> Result<(), Ending>,
    ) -> Result<(), Option<String>> {
        let Some(State::Open(wire)) = self.places.get_mut(&path).map(|place| &mut place.state)
        else {
            return Ok(());
        };
        let taken = take(&mut wire.connection, &mut self.buffer, &mut wire.is_heard);
        taken.map_err(|ending| self.fail(now, path, &ending.to_string()))
    }

    /// What a look at the machine's network told; what is wrong with the path all in all.
    pub(super) fn on_look(&mut self, now: Time, look: &Look) -> Option<DownReason> {
        let Some(place) = self.places.get_mut(&look.path) else { return look.broken };
        let is_back = place.way.is_some() && look.broken.is_none();
        place.way = look.broken;
        if look.moved.is_some() || is_back {
            self.dial_now(now, look.path);
        }
        self.broken(look.path)
    }

    /// A path's counters; `None` for a path of datagrams.
    pub(super) fn counters(&self, path: PathId) -> Option<StreamCounters> {
        let place = self.places.get(&path)?;
        let mut counters = place.past;
        if let State::Open(wire) = &place.state {
            counters.aged += wire.connection.count().aged;
            counters.queued = wire.connection.queued() as u64;
        }
        Some(StreamCounters { kind: place.kind.word(), ..counters })
    }
}

impl AsFd for Streams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Place {
    fn new(spec: &PathSpec, kind: StreamKind) -> Place {
        Place {
            name: spec.name.clone(),
            past: StreamCounters::default(),
            kind,
            state: State::Waiting(Time::ZERO),
            era: 0,
            way: None,
            failures: 0,
            told: None,
            slow: Slow::default(),
            replaces: false,
        }
    }

    fn due(&self) -> Option<Time> {
        match &self.state {
            State::Waiting(due) if self.way.is_none() => Some(*due),
            State::Open(wire) if !wire.is_heard => Some(wire.since + SILENCE),
            _ => None,
        }
    }

    /// Counts what the connection did, if there is one: it ends.
    fn leave(&mut self) {
        self.replaces = false;
        self.slow.forget();
        if let State::Open(wire) = &self.state {
            self.past.aged += wire.connection.count().aged;
            self.past.ended += 1;
        }
    }
}

fn token(path: PathId) -> u64 {
    STREAMS + path.index() as u64
}

fn order(place: &Place, egress: &Egress, far: &Target, terms: &Terms) -> Order {
    let Terms { fwmark, tls, .. } = terms.clone();
    let reach = egress.proxy.map(|hop| {
        let at = egress.remote(hop);
        Reach { proxy: at, local: egress.local(at), device: egress.device.clone(), mark: fwmark }
    });
    Order { kind: place.kind.clone(), reach, far: far.clone(), afresh: place.failures > 0, tls }
}
