//! Paths that are streams. Each has one connection to the far end, which is opened again (dialled)
//! when it ends.
//!
//! A path is down while it has no connection. Dials block, so each has its own thread; the
//! splitter's event loop serves the open connections. A pause precedes each dial after a failure,
//! and doubles with each failure. A random factor from 0.5 to 1.5 spreads the dials of paths that
//! failed together.
//!
//! For captures, the bytes sent and received by the sockets can be recorded (`record`).
//!
//! A circuit that stays slow is replaced (`slow`). The slow circuit remains in use until the new
//! circuit is open.

mod dial;
mod record;
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
use anabranch_multipath::seed::{Stream as LossState, stream};
use anabranch_multipath::{PathId, Time};
use anabranch_os::poller::Poller;
use anabranch_os::target::Target;
use anabranch_tunnel::carrier::{LONGEST, LONGEST_FIRST};
use rand::RngExt;

use self::dial::{DialFault, DialOutcome, Line, Order, Ssh, dial};
pub(super) use self::record::StreamBytes;
use self::slow::DelayRecord;
use super::egress_table::{EgressTable, RouteLookup};
use crate::paths::{Egress, PathSpec, StreamKind};
use crate::socks::ConnectSettings;
use crate::streams::{Connection, Ending, TlsEnd};

/// Lowest poller token of streams. A stream's token is the sum of this number and its path's
/// index.
pub(super) const STREAMS: u64 = 1 << 62;
/// Pause between the end of a connection and the first attempt to connect again. The pause doubles
/// with each failed attempt, up to `LONGEST_PAUSE`.
const PAUSE: Duration = Duration::from_millis(250);
/// Maximum pause before an attempt to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Minimum duration for an answered connection to count as successful. After a successful
/// connection, failures are counted from 0.
const LASTING: Duration = Duration::from_secs(10);
/// Timeout for a far end to answer on a new connection. A far end closes streams of unknown peers
/// after 20 s.
const SILENCE: Duration = Duration::from_secs(15);
/// Maximum bytes read from a stream at once.
const BUFFER: usize = 64 << 10;

/// The table of all paths that are streams.
pub(super) struct Streams {
    places: BTreeMap<PathId, StreamPath>,
    /// Number of eras so far. Each change of a path's route begins a new era. Results of dials
    /// (connection attempts) from an earlier era are ignored.
    eras: u64,
    /// Address or name of the far end, which is sent to proxies as the destination; `None` without
    /// a far end.
    far: Option<Target>,
    terms: Terms,
    dice: LossState,
    answers: Receiver<Answer>,
    sender: Sender<Answer>,
    wake_receiver: UnixStream,
    wake_sender: Arc<UnixStream>,
    buffer: Vec<u8>,
    /// Paths with packets that were not written to the socket yet.
    touched: Vec<PathId>,
    /// Bytes sent and received by the sockets, if they are recorded.
    recorded: Vec<StreamBytes>,
}

/// Settings that all streams share.
#[derive(Clone)]
pub(super) struct Terms {
    /// The mark of our sockets (`SO_MARK`); `None` if the user set none.
    pub(super) fwmark: Option<u32>,
    /// TLS settings for paths over TLS; `None` if such paths cannot be used.
    pub(super) tls: Option<Arc<dyn TlsEnd>>,
    /// Maximum time for which a packet waits for room in a stream before it is dropped.
    pub(super) age: Duration,
    /// Whether the bytes sent and received by the sockets are recorded, for captures.
    pub(super) records: bool,
}

type Answer = (PathId, u64, Result<DialOutcome, DialFault>);

/// The state of a path that is a stream.
struct StreamPath {
    name: String,
    kind: StreamKind,
    state: State,
    /// Sequence number of the present era. Results of dials (connection attempts) that began in an
    /// earlier era are ignored, because they used another route.
    era: u64,
    /// Reason why the path's first hop (proxy or far end) cannot be reached now; `None` if no
    /// reason is known.
    down_reason: Option<DownReason>,
    /// Number of failures since the last successful connection: failed attempts to connect, and
    /// connections that ended early.
    failures: u32,
    /// The fault that was last reported to the user; `None` if a connection has worked since.
    reported: Option<String>,
    /// Record of how slow the path's circuit is, for a path through an onion network.
    slow: DelayRecord,
    /// Whether a new connection, which replaces the present one, is being opened while the present
    /// one is still in use.
    replaces: bool,
    /// Sums of the counters of the path's connections that have ended.
    ended_counters: StreamCounters,
}

enum State {
    /// No connection. The field is the time of the next attempt to connect.
    Waiting(Time),
    Dialling,
    Open(Box<Wire>),
}

/// An open connection.
struct Wire {
    connection: Connection,
    since: Time,
    /// Whether a packet of the far end has arrived on this connection.
    has_received: bool,
    ssh: Option<Ssh>,
}

/// A path with a new connection, and the first bytes of its stream, which arrived together with
/// the proxy's answer.
pub(super) struct ConnectedPath {
    pub(super) path: PathId,
    pub(super) rest: Vec<u8>,
}

/// Outcome of a dial (an attempt to open the stream of a path).
pub(super) enum Outcome {
    Opened(ConnectedPath),
    /// The attempt to connect failed. The field is the warning to show; `None` if there is none,
    /// or it was shown before.
    Failed(Option<String>),
    /// The name of the path's first hop (proxy or far end) now resolves to these addresses.
    Moved(PathId, Vec<SocketAddr>),
}

impl Streams {
    /// Creates the state of the paths in `specs` that are streams. No connection is opened yet.
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
        let (wake_receiver, wake_sender) = UnixStream::pair()?;
        wake_receiver.set_nonblocking(true)?;
        wake_sender.set_nonblocking(true)?;
        let numbered = (0..).map(PathId).zip(specs);
        let places = numbered
            .filter_map(|(path, spec)| Some((path, StreamPath::new(spec, spec.stream.clone()?))));
        Ok(Streams {
            places: places.collect(),
            eras: 0,
            far: far.cloned(),
            terms,
            dice: stream(seed, 0, "streams"),
            answers,
            sender,
            wake_receiver,
            wake_sender: Arc::new(wake_sender),
            buffer: vec![0; BUFFER],
            touched: Vec::new(),
            recorded: Vec::new(),
        })
    }

    /// Sets the TLS settings of future connections.
    pub(super) fn set_tls(&mut self, tls: Option<Arc<dyn TlsEnd>>) {
        self.terms.tls = tls;
    }

    /// Closes the connection of `path`, and replaces the path with `spec`, which may be a stream
    /// or a path of datagrams.
    pub(super) fn replace(&mut self, now: Time, path: PathId, spec: &PathSpec) {
        self.places.remove(&path);
        let Some(kind) = spec.stream.clone() else { return };
        self.eras += 1;
        let place = StreamPath {
            era: self.eras,
            state: State::Waiting(now),
            ..StreamPath::new(spec, kind)
        };
        self.places.insert(path, place);
    }

    /// Returns the paths that are streams.
    pub(super) fn paths(&self) -> Vec<PathId> {
        self.places.keys().copied().collect()
    }

    pub(super) fn has(&self, path: PathId) -> bool {
        self.places.contains_key(&path)
    }

    /// Returns whether a path is a circuit of an onion network, which another circuit can replace.
    pub(super) fn is_circuit(&self, path: PathId) -> bool {
        self.places.get(&path).is_some_and(|place| matches!(place.kind, StreamKind::Onion(_)))
    }

    /// Returns the reason why `path` is down, as found on this machine; `None` if no reason was
    /// found.
    pub(super) fn broken(&self, path: PathId) -> Option<DownReason> {
        let place = self.places.get(&path)?;
        let is_open = matches!(place.state, State::Open(_));
        place.down_reason.or((!is_open).then_some(DownReason::Dialling))
    }

    /// Returns the time of the next dial (connection attempt) or timeout; `None` if there is none.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.places.values().filter_map(StreamPath::due).min()
    }

    /// Begins the dials (connection attempts) that are due. Closes connections on which no far end
    /// has answered in time, and returns their paths. Each path has the warning to show, or `None`
    /// if it was shown before.
    pub(super) fn on_time(
        &mut self,
        now: Time,
        egress_table: &EgressTable,
    ) -> Vec<(PathId, Option<String>)> {
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
                State::Waiting(_) => self.begin(path, egress_table.of(path)),
                State::Dialling => {}
            }
        }
        ended
    }

    /// Starts a thread that opens the connection of `path`.
    fn begin(&mut self, path: PathId, egress: &Egress) {
        let (Some(place), Some(far)) = (self.places.get_mut(&path), &self.far) else { return };
        if !place.replaces {
            place.state = State::Dialling;
        }
        let order = order(place, egress, far, &self.terms);
        let (era, sender, wake_sender) =
            (place.era, self.sender.clone(), Arc::clone(&self.wake_sender));
        let work = move || {
            // The splitter may have stopped meanwhile. If the wake-up socket's buffer is full, the
            // loop is already notified.
            let _ = sender.send((path, era, dial(&order)));
            let _ = (&*wake_sender).write(&[0]);
        };
        if let Err(error) = thread::Builder::new().name("dial".into()).spawn(work) {
            let _ = self.sender.send((path, era, Err(DialFault::System(error))));
            let _ = (&*self.wake_sender).write(&[0]);
        }
    }

    /// Returns the outcome of the next dial (connection attempt) that has ended; `None` if there
    /// is none.
    pub(super) fn answer(&mut self, now: Time, poller: &Poller) -> Option<Outcome> {
        let mut wake_ups = [0; 64];
        let _ = self.wake_receiver.read(&mut wake_ups);
        loop {
            let (path, era, outcome) = self.answers.try_recv().ok()?;
            if self.places.get(&path).is_none_or(|place| place.era != era) {
                continue;
            }
            return Some(match outcome {
                Ok(DialOutcome::Open(line)) => self.open(now, path, line, poller),
                Ok(DialOutcome::Moved(found)) => Outcome::Moved(path, found),
                Err(fault) => Outcome::Failed(self.refused(now, path, &fault.to_string())),
            });
        }
    }

    /// Handles a failed attempt to connect `path`. If the path still has an open connection, keeps
    /// this connection. Returns the warning to show; `None` if there is none, or it was shown
    /// before.
    fn refused(&mut self, now: Time, path: PathId, fault: &str) -> Option<String> {
        match self.places.get_mut(&path) {
            Some(place) if place.replaces => {
                place.replaces = false;
                None
            }
            _ => self.fail(now, path, fault),
        }
    }

    /// Records that the onion network's circuit of `path` is slower than the fastest path by
    /// `lag`. A `lag` of `None` means that it is unknown. If the circuit has been slow for too
    /// long, connects through another circuit, under a new SOCKS user name, and returns the
    /// warning to show. Otherwise returns `None`.
    pub(super) fn note_lag(
        &mut self,
        now: Time,
        path: PathId,
        lag: Option<Duration>,
        egress_table: &EgressTable,
    ) -> Option<String> {
        let place = self.places.get_mut(&path)?;
        let StreamKind::Onion(circuits) = &mut place.kind else { return None };
        if place.replaces || !matches!(place.state, State::Open(_)) {
            return None;
        }
        let lag = place.slow.note(now, lag)?;
        circuits.renew(&mut self.dice);
        place.ended_counters.replaced += 1;
        place.replaces = true;
        let text = format!(
            "path '{}' ({}): its circuit has been {} ms slower than the fastest path for {} s, so \
             the splitter replaces this circuit",
            place.name,
            place.kind.word(),
            lag.as_millis(),
            place.slow.patience().as_secs()
        );
        place.slow.replaced();
        self.begin(path, egress_table.of(path));
        Some(text)
    }

    fn open(&mut self, now: Time, path: PathId, line: Line, poller: &Poller) -> Outcome {
        let Line { socket, rest, ssh, tls } = line;
        let limits = (LONGEST, self.terms.age);
        let made = Connection::new(socket, tls, limits).and_then(|mut connection| {
            poller.add(&connection, token(path))?;
            if self.terms.records {
                connection.wire().record();
            }
            Ok(connection)
        });
        match (made, self.places.get_mut(&path)) {
            (Ok(connection), Some(place)) => {
                let wire = Wire { connection, since: now, has_received: false, ssh };
                place.leave();
                place.state = State::Open(Box::new(wire));
                Outcome::Opened(ConnectedPath { path, rest })
            }
            (Err(error), _) => Outcome::Failed(self.fail(now, path, &error.to_string())),
            (Ok(_), None) => Outcome::Failed(None),
        }
    }

    /// Handles a failed attempt to connect `path`: the name of its first hop (proxy or far end)
    /// has only addresses that this machine cannot reach. Returns the warning to show; `None` if
    /// there is none, or it was shown before.
    pub(super) fn fail_move(&mut self, now: Time, path: PathId) -> Option<String> {
        self.fail(
            now,
            path,
            "the addresses of its proxy or far end changed, and no new address can be reached",
        )
    }

    /// Closes the connection of `path`, and opens another one now, because the route has changed.
    pub(super) fn dial_now(&mut self, now: Time, path: PathId) {
        if let Some(place) = self.places.get_mut(&path) {
            place.leave();
            self.eras += 1;
            place.era = self.eras;
            place.state = State::Waiting(now);
        }
    }

    /// Handles a failed attempt to connect or the end of a connection, and schedules the next
    /// attempt. Returns the warning to show; `None` if it was shown before.
    fn fail(&mut self, now: Time, path: PathId, fault: &str) -> Option<String> {
        let place = self.places.get_mut(&path)?;
        if let State::Open(wire) = &mut place.state {
            let words = wire.ssh.as_mut().and_then(Ssh::last_words);
            let lasted = now.since(wire.since) >= LASTING && wire.has_received;
            let fault = words.map_or_else(|| fault.to_owned(), |words| format!("ssh: {words}"));
            if lasted {
                (place.failures, place.reported) = (0, None);
            }
            return self.wait(now, path, &fault);
        }
        self.wait(now, path, fault)
    }

    fn wait(&mut self, now: Time, path: PathId, fault: &str) -> Option<String> {
        let place = self.places.get_mut(&path)?;
        // If a dial is already under way, no further dial is scheduled.
        let is_dialled = place.replaces;
        place.leave();
        let pause = (PAUSE * (1 << place.failures.min(7))).min(LONGEST_PAUSE);
        place.failures = place.failures.saturating_add(1);
        place.state = match is_dialled {
            true => State::Dialling,
            false => State::Waiting(now + pause.mul_f64(self.dice.random_range(0.5..1.5))),
        };
        let text = format!("path '{}' ({}): {fault}", place.name, place.kind.word());
        let is_fresh = place.reported.as_ref() != Some(&text);
        place.reported = Some(text.clone());
        is_fresh.then_some(text)
    }

    /// Appends a packet to the connection of `path`. If `lasts` is true, the packet is not
    /// dropped, however long it waits. Returns false if there is no connection, its queue is full,
    /// or the packet is too long for a connection on which the far end has not answered yet.
    pub(super) fn push(&mut self, now: Time, path: PathId, packet: &[u8], lasts: bool) -> bool {
        let Some(State::Open(wire)) = self.places.get_mut(&path).map(|place| &mut place.state)
        else {
            return false;
        };
        // A far end accepts only short packets until it has bound the stream to a client.
        if !wire.has_received && packet.len() > LONGEST_FIRST {
            return false;
        }
        if self.touched.last() != Some(&path) {
            self.touched.push(path);
        }
        wire.connection.push(now, packet, lasts)
    }

    /// Writes the queued packets of all streams to the sockets. Returns the paths whose
    /// connections failed. Each path has the warning to show, or `None` if it was shown before.
    pub(super) fn flush(&mut self, now: Time, poller: &Poller) -> Vec<(PathId, Option<String>)> {
        let touched = std::mem::take(&mut self.touched);
        let ended = touched.iter().filter_map(|&path| self.flush_one(now, path, poller));
        let ended = ended.collect();
        self.touched = touched;
        self.touched.clear();
        ended
    }

    /// Writes the queued packets of `path` to its socket. If the connection has failed, returns
    /// the path, and the warning to show (`None` if it was shown before). Otherwise returns an
    /// outer `None`.
    pub(super) fn flush_one(
        &mut self,
        now: Time,
        path: PathId,
        poller: &Poller,
    ) -> Option<(PathId, Option<String>)> {
        let State::Open(wire) = &mut self.places.get_mut(&path)?.state else { return None };
        let flushed = wire.connection.flush(now, poller, token(path));
        let ended = flushed.err().map(|ending| {
            // A read may reveal the reason for the end better than the failed write.
            wire.connection.read(&mut self.buffer, |_| {}).err().unwrap_or(ending)
        });
        self.recorded.extend(StreamBytes::of(path, wire.connection.wire()));
        let ending = ended?;
        Some((path, self.fail(now, path, &ending.to_string())))
    }

    /// Reads from the connection of `path`, and calls `each` with every packet. `each` returns
    /// whether the packet was really sent by the far end.
    ///
    /// # Errors
    /// The connection has ended. The error is the warning to show; `None` if it was shown before.
    pub(super) fn read(
        &mut self,
        now: Time,
        path: PathId,
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Option<String>> {
        self.with(now, path, |connection, buffer, received| {
            connection.read(buffer, |packet| *received |= each(packet))
        })
    }

    /// Processes `bytes` of the stream of `path`, which arrived together with a proxy's answer, as
    /// [`Streams::read`] does.
    ///
    /// # Errors
    /// The errors of [`Streams::read`].
    pub(super) fn take(
        &mut self,
        now: Time,
        path: PathId,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Option<String>> {
        self.with(now, path, |connection, _, received| {
            connection.take(bytes, |packet| *received |= each(packet))
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
        let taken = take(&mut wire.connection, &mut self.buffer, &mut wire.has_received);
        self.recorded.extend(StreamBytes::of(path, wire.connection.wire()));
        taken.map_err(|ending| self.fail(now, path, &ending.to_string()))
    }

    /// Returns the bytes that the sockets have sent and received since the last call, if they are
    /// recorded.
    pub(super) fn take_recorded(&mut self) -> Vec<StreamBytes> {
        std::mem::take(&mut self.recorded)
    }

    /// Applies the result of a check of the machine's network. Returns the reason why the path is
    /// down, as found on this machine; `None` if no reason was found.
    pub(super) fn on_look(&mut self, now: Time, look: &RouteLookup) -> Option<DownReason> {
        let Some(place) = self.places.get_mut(&look.path) else { return look.broken };
        let is_back = place.down_reason.is_some() && look.broken.is_none();
        place.down_reason = look.broken;
        if look.moved.is_some() || is_back {
            self.dial_now(now, look.path);
        }
        self.broken(look.path)
    }

    /// Returns the counters of `path`; `None` if it is not a stream.
    pub(super) fn counters(&self, path: PathId) -> Option<StreamCounters> {
        let place = self.places.get(&path)?;
        let mut counters = place.ended_counters;
        if let State::Open(wire) = &place.state {
            counters.aged += wire.connection.count().aged;
            counters.queued = wire.connection.queued() as u64;
        }
        Some(StreamCounters { kind: place.kind.word(), ..counters })
    }
}

impl AsFd for Streams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake_receiver.as_fd()
    }
}

impl StreamPath {
    fn new(spec: &PathSpec, kind: StreamKind) -> StreamPath {
        StreamPath {
            name: spec.name.clone(),
            ended_counters: StreamCounters::default(),
            kind,
            state: State::Waiting(Time::ZERO),
            era: 0,
            down_reason: None,
            failures: 0,
            reported: None,
            slow: DelayRecord::default(),
            replaces: false,
        }
    }

    fn due(&self) -> Option<Time> {
        match &self.state {
            State::Waiting(due) if self.down_reason.is_none() => Some(*due),
            State::Open(wire) if !wire.has_received => Some(wire.since + SILENCE),
            _ => None,
        }
    }

    /// Ends the use of the present connection: adds its counters to those of past connections, and
    /// resets the record of the circuit's delay.
    fn leave(&mut self) {
        self.replaces = false;
        self.slow.forget();
        if let State::Open(wire) = &self.state {
            self.ended_counters.aged += wire.connection.count().aged;
            self.ended_counters.ended += 1;
        }
    }
}

fn token(path: PathId) -> u64 {
    STREAMS + path.index() as u64
}

fn order(place: &StreamPath, egress: &Egress, far: &Target, terms: &Terms) -> Order {
    let Terms { fwmark, tls, .. } = terms.clone();
    let reach = egress.proxy.map(|hop| {
        let at = egress.remote(hop);
        ConnectSettings {
            proxy: at,
            local: egress.local(at),
            device: egress.device.clone(),
            mark: fwmark,
        }
    });
    Order { kind: place.kind.clone(), reach, far: far.clone(), afresh: place.failures > 0, tls }
}
