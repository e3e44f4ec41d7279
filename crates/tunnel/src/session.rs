//! The state of a session at either end: packet numbers, the order of received packets, keys, and
//! the paths on which the other end answers.

use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use anabranch_multipath::{Decoys, PathId, PathView, Replay, Time};

use crate::datagram::Datagram;
use crate::delays::micros;
use crate::disguise::Disguise;
use crate::epoch::{self, Epoch, Id};
use crate::frame::{self, Frame, ZEROS};
use crate::parts::Joiner;
use crate::piece::{PLACE, Piece};
use crate::resequencer::{Arrival, Resequencer};
use crate::round_trip::RoundTrip;
use crate::spare::SpareBuffers;
use crate::window::{Receipt, Tally, Window};

/// Bytes of an unpadded packet in addition to its datagram.
pub const OVERHEAD: usize = epoch::OVERHEAD + frame::PLAIN;
/// Interval between probes of the paths while there is traffic.
const ASK_BUSY: Duration = Duration::from_secs(1);
/// Interval between probes of the paths while there is no traffic: NATs forget flows that are
/// silent for 30 s.
const ASK_IDLE: Duration = Duration::from_secs(20);
/// Interval between probes of the paths after an unanswered probe. It is short, so that a path's
/// failure is detected soon.
const ASK_AGAIN: Duration = Duration::from_millis(300);
/// Time within which probes that arrive on several paths count as one round of probes, sent at the
/// same time.
const ROUND: Duration = Duration::from_millis(150);
/// Time without datagrams after which paths are probed at [`ASK_IDLE`].
const IDLE: Duration = Duration::from_secs(5);
/// Maximum number of consecutive rounds of probes without an answer after which a path still
/// counts as usable.
const UNANSWERED: u32 = 3;
/// Number of handshakes whose keys are kept to decrypt packets: the keys that this end sends with,
/// and two older or newer ones.
const EPOCHS: usize = 3;
/// Number of newest handshakes whose keys the far end keeps, even if it does not send with them
/// yet.
pub(crate) const UNCONFIRMED: usize = EPOCHS - 1;

/// The state of a session at either end.
pub struct Session {
    /// Whether this end probes the paths. If so, the other end answers.
    sends_probes: bool,
    sizes: Vec<usize>,
    epochs: VecDeque<(u32, Epoch)>,
    /// Identifier of the epoch (set of keys) that encrypts this end's packets; `None` before the
    /// first handshake.
    current: Option<u32>,
    /// Packet number of the next packet that this end sends.
    number: u64,
    /// The series of latest packets of this end that have consecutive packet numbers and were sent
    /// on one path.
    run: Run,
    replay: Replay,
    order: Resequencer<Datagram>,
    joiner: Joiner,
    paths: Vec<Path>,
    control_queue: VecDeque<(PathId, ControlMessage)>,
    /// Whether the data in flight on each path are limited by a window. If so, the other end
    /// acknowledges our data.
    has_windows: bool,
    /// The plan of decoys (dummy packets) on idle paths; `None` if no decoys are sent.
    decoys: Option<Decoys>,
    decoys_sent: DecoyCount,
    decoys_received: DecoyCount,
    /// Time at which a datagram was last sent or received; `None` if there was none.
    busy: Option<Time>,
    /// Time at which the paths are probed next.
    next_probe: Time,
    /// Time at which the last round of probes from the other end began to arrive; `None` if none
    /// has arrived.
    probe_round_began: Option<Time>,
    closed: bool,
    spare: SpareBuffers,
}

/// Counters of decoys (dummy packets): their number, and the bytes of the datagrams that they
/// imitate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecoyCount {
    /// Number of decoys.
    pub packets: u64,
    /// Total bytes of the imitated datagrams.
    pub bytes: u64,
}

impl DecoyCount {
    fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// A series of packets with consecutive packet numbers that were sent on one path.
#[derive(Clone, Default)]
struct Run {
    path: Option<PathId>,
    numbers: Range<u64>,
}

impl Run {
    fn before(&self, path: PathId, number: u64) -> u16 {
        let goes_on = self.path == Some(path) && self.numbers.end == number;
        let length = self.numbers.end - self.numbers.start;
        if goes_on { u16::try_from(length).unwrap_or(u16::MAX) } else { 0 }
    }

    fn sent(&mut self, path: PathId, number: u64) {
        if self.path != Some(path) || self.numbers.end != number {
            *self = Run { path: Some(path), numbers: number..number };
        }
        self.numbers.end += 1;
    }
}

#[derive(Clone, Copy)]
enum ControlMessage {
    Ping { deaf: bool },
    Pong { echo: u32 },
    Close,
}

#[derive(Default)]
struct Path {
    rtt: RoundTrip,
    last_arrival: Option<Time>,
    /// Number of unanswered rounds of probes since a packet last arrived on this path. The near
    /// end counts the rounds that it sent. The far end counts the rounds that it received on other
    /// paths. After the first round, further rounds count only once the path's timeout has passed.
    unanswered: u32,
    /// Time of the first of the `unanswered` rounds of probes.
    unanswered_since: Time,
    /// Whether the other end has reported that it receives nothing on this path.
    deaf: bool,
    /// Whether this machine cannot send on this path now.
    is_cut: bool,
    /// Maximum length of packets on this path in bytes; `None` if unknown.
    room: Option<u16>,
    /// The packets in flight on this path.
    window: Window,
    /// The packets that arrived on this path and have to be acknowledged.
    tally: Tally,
}

impl Path {
    /// Returns whether the path answers, and the other end receives our packets on it.
    fn is_usable(&self) -> bool {
        self.unanswered <= UNANSWERED && !self.deaf
    }

    /// Counts a round of probes at `now`, unless an earlier round may still be answered in time.
    fn count_probe(&mut self, now: Time) {
        if self.unanswered == 0 {
            self.unanswered_since = now;
        } else if now.since(self.unanswered_since) < self.rtt.timeout() {
            return;
        }
        self.unanswered = self.unanswered.saturating_add(1);
    }
}

impl Session {
    /// Creates a session without keys. If `sends_probes` is true, this end probes the paths. Each
    /// packet is padded to the smallest of `sizes` that is large enough. A packet larger than all
    /// `sizes` keeps its length.
    #[must_use]
    pub fn new(paths: u16, sends_probes: bool, sizes: &[usize]) -> Session {
        Session {
            sends_probes,
            sizes: sizes.iter().filter_map(|size| size.checked_sub(epoch::OVERHEAD)).collect(),
            epochs: VecDeque::new(),
            current: None,
            number: 0,
            run: Run::default(),
            replay: Replay::new(),
            order: Resequencer::new(paths.into()),
            joiner: Joiner::default(),
            paths: (0..paths).map(|_| Path::default()).collect(),
            control_queue: VecDeque::new(),
            has_windows: false,
            decoys: None,
            decoys_sent: DecoyCount::default(),
            decoys_received: DecoyCount::default(),
            busy: None,
            next_probe: Time::ZERO,
            probe_round_began: None,
            closed: false,
            spare: SpareBuffers::default(),
        }
    }

    /// Returns the packet number of the next packet that this end sends.
    pub(crate) fn next_number(&self) -> u64 {
        self.number
    }

    /// Restarts the receiving side: the other end has forgotten all earlier packets, and its next
    /// packet has the packet number `first`.
    pub(crate) fn begin_at(&mut self, first: u64) {
        self.replay = Replay::new();
        self.order.begin_at(first);
        self.joiner = Joiner::default();
        self.closed = false;
        for path in &mut self.paths {
            (path.window, path.tally) = (Window::default(), Tally::default());
        }
    }

    /// Sets whether a window limits the data in flight on each path, which some schedules need. If
    /// so, the other end acknowledges our data, and [`Session::view`] reports the room in each
    /// path's window.
    pub fn keep_windows(&mut self, keep: bool) {
        self.has_windows = keep;
    }

    /// Returns whether a window limits the data in flight on each path.
    #[must_use]
    pub fn has_windows(&self) -> bool {
        self.has_windows
    }

    /// Sets the plan of decoys (dummy packets) on idle paths; with `None`, no decoys are sent.
    pub fn send_decoys(&mut self, decoys: Option<Decoys>) {
        self.decoys = decoys;
    }

    /// Returns the counters of decoys that this end has sent, and of decoys that it has received
    /// and dropped.
    #[must_use]
    pub fn decoys(&self) -> [DecoyCount; 2] {
        [self.decoys_sent, self.decoys_received]
    }

    /// Sets the maximum length of packets on `path` to `room` bytes, because longer packets are
    /// lost there. The next probe reports the length to the other end.
    pub fn set_room(&mut self, path: PathId, room: usize) {
        let room = u16::try_from(room).unwrap_or(u16::MAX);
        let path = self.paths.get_mut(path.index());
        path.into_iter().for_each(|path| path.room = Some(room));
    }

    /// Returns the maximum length of packets on `path` in bytes, as set here or reported by the
    /// other end; `None` if unknown. [`pieces`](crate::pieces) uses this length.
    #[must_use]
    pub fn room(&self, path: PathId) -> Option<usize> {
        self.paths.get(path.index())?.room.map(usize::from)
    }

    /// Sets whether this machine can send on `path` now. Returns the previous value; `None` if
    /// there is no such path.
    pub(crate) fn set_carries(&mut self, path: PathId, carries: bool) -> Option<bool> {
        let path = self.paths.get_mut(path.index())?;
        Some(!std::mem::replace(&mut path.is_cut, !carries))
    }

    /// Returns whether this machine can send on `path` now.
    pub(crate) fn carries(&self, path: PathId) -> bool {
        self.paths.get(path.index()).is_some_and(|path| !path.is_cut)
    }

    /// Returns the time at which a packet last arrived on `path`; `None` if none has.
    pub(crate) fn last_arrival(&self, path: PathId) -> Option<Time> {
        self.paths.get(path.index())?.last_arrival
    }

    /// Returns whether no path answers. If so, the other end may have forgotten this session.
    pub(crate) fn is_deaf(&self) -> bool {
        self.paths.iter().all(|path| path.unanswered > UNANSWERED)
    }

    /// Schedules the next probes for `now`, unless probes are due earlier.
    pub(crate) fn ask_at(&mut self, now: Time) {
        self.next_probe = self.next_probe.min(now);
    }

    /// Adds the keys of a handshake. If `confirmed` is true, the other end has these keys, and
    /// this end encrypts with them at once. Otherwise, this end uses them once it receives a
    /// packet that was encrypted with them. Returns the packet IDs of the keys that are dropped.
    pub(crate) fn renew(&mut self, generation: u32, epoch: Epoch, confirmed: bool) -> Vec<Id> {
        self.epochs.push_back((generation, epoch));
        if confirmed {
            self.current = Some(generation);
        }
        let mut gone = Vec::new();
        while self.epochs.len() > EPOCHS {
            let oldest = self.epochs.iter().position(|(one, _)| Some(*one) != self.current);
            let Some((_, epoch)) = oldest.and_then(|place| self.epochs.remove(place)) else {
                break;
            };
            gone.extend_from_slice(epoch.ids());
        }
        gone
    }

    /// Returns the IDs that the other end's packets may have, with the epoch (set of keys) and the
    /// path that belong to each ID.
    pub(crate) fn ids(&self) -> impl Iterator<Item = (Id, u32, PathId)> {
        self.epochs.iter().flat_map(|(generation, epoch)| {
            let ids = epoch.ids().iter().enumerate();
            ids.map(|(path, id)| (*id, *generation, PathId::at(path)))
        })
    }

    /// Returns whether this end has keys to send with.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.current.is_some() && !self.closed
    }

    /// Returns whether the other end has ended the session.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Encrypts a datagram, or a part of one, and appends the packet for `path`. The datagram
    /// belongs to a flow (one program at the near end). Returns false, and appends nothing, if
    /// there are no keys yet or the session has no such path.
    pub(crate) fn seal(
        &mut self,
        now: Time,
        disguise: &Disguise,
        path: PathId,
        (flow, piece): (u16, Piece<'_>),
        out: &mut Vec<u8>,
    ) -> bool {
        if self.busy.is_none_or(|last| now.since(last) >= IDLE) {
            self.next_probe = now;
        }
        self.busy = Some(now);
        let run = self.run.before(path, self.number);
        let counted = self.has_windows;
        let frame = Frame::Data { stamp: micros(now), flow, run, counted, piece };
        let (number, start) = (self.number, out.len());
        let sealed = self.put(disguise, path, &frame, piece.bytes, out);
        if let Some(path) = self.paths.get_mut(path.index()).filter(|_| sealed && counted) {
            path.window.sent(now, number, out.len() - start);
        }
        if let Some(decoys) = self.decoys.as_mut().filter(|_| sealed) {
            let bytes = piece.bytes.len() + piece.place.map_or(0, |_| PLACE);
            let paths = &self.paths;
            let usable = |path: PathId| {
                let path = &paths[path.index()];
                path.is_usable() && path.last_arrival.is_some() && !path.is_cut
            };
            decoys.on_sent(now, (path, bytes), paths.len(), usable);
        }
        sealed
    }

    fn put(
        &mut self,
        disguise: &Disguise,
        path: PathId,
        frame: &Frame<'_>,
        datagram: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        let parts = frame.parts(&self.sizes);
        let sealed = self.seal_frame(disguise, path, 0, &parts.around(datagram), out);
        if sealed {
            self.run.sent(path, self.number - 1);
        }
        sealed
    }

    /// Encrypts `frame` as a packet, after skipping `skip` packet numbers, and appends the packet.
    /// Returns false if there are no keys, or no such path.
    pub(crate) fn seal_frame(
        &mut self,
        disguise: &Disguise,
        path: PathId,
        skip: u64,
        frame: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> bool {
        let current = self.epochs.iter().find(|(one, _)| Some(*one) == self.current);
        let Some((_, epoch)) = current else { return false };
        let number = self.number + skip;
        let sealed = epoch.seal(disguise, path, number, frame, out).is_some();
        if sealed {
            self.number = number + 1;
        }
        sealed
    }

    /// Decrypts and processes `packet`. The tuple has the packet's ID, and the epoch (set of keys)
    /// and the path that belong to this ID. Returns the packet number; `None` if the other end did
    /// not send the packet, or if the packet arrived before.
    pub(crate) fn open(
        &mut self,
        now: Time,
        (id, generation, path): (Id, u32, PathId),
        packet: &[u8],
    ) -> Option<u64> {
        let (_, epoch) = self.epochs.iter().find(|(one, _)| *one == generation)?;
        let mut room = self.spare.take();
        let opened = epoch.open(id, self.replay.next(), packet, &mut room);
        let Some((number, length)) = opened.filter(|(number, _)| self.replay.accept(*number))
        else {
            self.spare.give(room);
            return None;
        };
        if self.current.is_none_or(|current| current < generation) {
            // The other end has these keys, because it sends with them.
            self.current = Some(generation);
        }
        let frame = Frame::read(&room[..length]);
        self.record_arrival(now, path, matches!(frame, Some(Frame::Ping { .. })));
        let (stamp, run) = (frame.and_then(Frame::stamp), frame.map_or(0, Frame::run));
        if let Some(Frame::Data { counted: true, .. }) = frame {
            let path = self.paths.get_mut(path.index());
            path.into_iter().for_each(|path| path.tally.note(now, number));
        }
        let carried = frame.and_then(|frame| self.take(now, path, frame, &room));
        let content = match carried {
            Some((flow, part, place)) => {
                Some(Datagram { path, flow, number, part, frame: room, place })
            }
            None => {
                self.spare.give(room);
                None
            }
        };
        self.order.take(now, Arrival { path, number, stamp, run, content });
        Some(number)
    }

    fn record_arrival(&mut self, now: Time, path: PathId, is_ping: bool) {
        // The other end probes all paths at once, so the first probe of a round counts for all.
        let is_new_round =
            is_ping && self.probe_round_began.is_none_or(|began| now.since(began) >= ROUND);
        if is_new_round {
            self.probe_round_began = Some(now);
        }
        for (place, other) in self.paths.iter_mut().enumerate() {
            if place == path.index() {
                (other.last_arrival, other.unanswered) = (Some(now), 0);
            } else if is_new_round {
                other.count_probe(now);
            }
        }
    }

    /// Processes `bytes`, the decrypted content of a packet. If it is data, returns the flow (one
    /// program at the near end), the index of the part (if the packet has only a part of a
    /// datagram), and the range of the data in `bytes`. Otherwise returns `None`.
    fn take(
        &mut self,
        now: Time,
        path: PathId,
        frame: Frame<'_>,
        bytes: &[u8],
    ) -> Option<(u16, Option<u8>, Range<usize>)> {
        match frame {
            Frame::Data { flow, piece, .. } => {
                self.busy = Some(now);
                return Some((flow, piece.place, Frame::place(bytes, piece.bytes)));
            }
            Frame::Ping { stamp, deaf, rtt, room } => {
                if let Some(path) = self.paths.get_mut(path.index()) {
                    path.deaf = deaf;
                    path.room = Some(room).filter(|room| *room > 0).or(path.room);
                    if rtt > 0 {
                        path.rtt.note(Duration::from_micros(rtt.into()));
                    }
                }
                self.control_queue.push_back((path, ControlMessage::Pong { echo: stamp }));
            }
            Frame::Pong { echo, .. } => {
                let rtt = Duration::from_micros(micros(now).wrapping_sub(echo).into());
                if let Some(path) = self.paths.get_mut(path.index()) {
                    path.rtt.note(rtt);
                }
            }
            Frame::Ack(receipt) => self.acknowledged(now, path, receipt),
            Frame::Decoy { bytes, .. } => self.decoys_received.add(bytes),
            Frame::Close => self.closed = true,
        }
        None
    }

    fn acknowledged(&mut self, now: Time, path: PathId, receipt: Receipt) {
        let path = self.paths.get_mut(path.index()).filter(|_| self.has_windows);
        path.into_iter().for_each(|path| path.window.acknowledged(now, receipt));
    }

    /// Returns the next datagram that is due, in the order in which the other end sent the
    /// datagrams; `None` if none is due.
    pub fn poll(&mut self, now: Time) -> Option<Datagram> {
        loop {
            let whole = self.joiner.take(self.order.poll(now)?);
            if whole.is_some() {
                return whole;
            }
        }
    }

    /// Takes back the memory of a datagram, to reuse it for other datagrams.
    pub fn recycle(&mut self, datagram: Datagram) {
        self.spare.give(datagram.frame);
    }

    /// Appends the next packet that carries no datagram of a program or server: an
    /// acknowledgement, a control message or a decoy (dummy packet). Returns its path; `None` if
    /// there is no such packet.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Time,
        disguise: &Disguise,
        out: &mut Vec<u8>,
    ) -> Option<PathId> {
        if self.sends_probes && self.is_up() && now >= self.next_probe {
            self.question(now);
        }
        self.paths.iter_mut().for_each(|path| _ = path.window.expire(now));
        let receipt =
            self.paths.iter_mut().zip(0..).find_map(|(path, place)| {
                path.tally.take(now).map(|receipt| (PathId(place), receipt))
            });
        if let Some((path, receipt)) = receipt {
            return self.put(disguise, path, &Frame::Ack(receipt), &[], out).then_some(path);
        }
        let Some((path, word)) = self.control_queue.pop_front() else {
            return self.send_decoy(now, disguise, out);
        };
        let stamp = micros(now);
        let frame = match word {
            ControlMessage::Ping { deaf } => {
                let known = self.paths.get(path.index());
                let rtt = known.and_then(|path| path.rtt.last());
                let rtt = rtt.map_or(0, |rtt| u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX));
                let room = known.and_then(|path| path.room).unwrap_or_default();
                Frame::Ping { stamp, deaf, rtt, room }
            }
            ControlMessage::Pong { echo } => Frame::Pong { echo, stamp },
            ControlMessage::Close => Frame::Close,
        };
        self.put(disguise, path, &frame, &[], out).then_some(path)
    }

    /// Appends the next decoy (dummy packet) that is due. Returns its path; `None` if none is due.
    fn send_decoy(&mut self, now: Time, disguise: &Disguise, out: &mut Vec<u8>) -> Option<PathId> {
        let (path, bytes) = self.decoys.as_mut()?.poll(now)?;
        let bytes = bytes.min(ZEROS.len());
        let run = self.run.before(path, self.number);
        let frame = Frame::Decoy { stamp: micros(now), run, bytes };
        let sealed = self.put(disguise, path, &frame, &ZEROS[..bytes], out);
        sealed.then(|| {
            self.decoys_sent.add(bytes);
            path
        })
    }

    fn question(&mut self, now: Time) {
        let busy = self.busy.is_some_and(|last| now.since(last) < IDLE);
        // The caller reports when a cut path works again, so probes of cut paths are not needed.
        let all_cut = self.paths.iter().all(|path| path.is_cut);
        let any = |range: RangeInclusive<u32>| {
            let mut probed = self.paths.iter().filter(|path| all_cut || !path.is_cut);
            probed.any(|path| range.contains(&path.unanswered))
        };
        let pause = match () {
            () if any(1..=UNANSWERED) => ASK_AGAIN,
            () if busy || any(1..=u32::MAX) => ASK_BUSY,
            () => ASK_IDLE,
        };
        self.next_probe = now + pause;
        for (place, path) in self.paths.iter_mut().enumerate() {
            path.count_probe(now);
            let deaf = path.unanswered > UNANSWERED;
            // A probe that cannot be sent would use up a packet number, and the other end would
            // wait for that number.
            if !path.is_cut {
                self.control_queue.push_back((PathId::at(place), ControlMessage::Ping { deaf }));
            }
        }
    }

    /// Queues a closing message for every path. The other end then notices the end of the session
    /// at once. Otherwise it would wait for a timeout.
    pub fn close(&mut self) {
        let open = self.paths.iter().enumerate().filter(|(_, path)| !path.is_cut);
        self.control_queue
            .extend(open.map(|(place, _)| (PathId::at(place), ControlMessage::Close)));
    }

    /// Returns the next time at which [`Session::poll`] has a datagram, or this end has to send a
    /// probe, an acknowledgement or a decoy (dummy packet); `None` if there is no such time.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        let probe = (self.sends_probes && self.is_up()).then_some(self.next_probe);
        let windows = self.paths.iter().filter_map(|path| {
            [path.tally.due(), path.window.next_timeout()].into_iter().flatten().min()
        });
        let decoy = self.decoys.as_ref().and_then(Decoys::next_due);
        [self.order.next_timeout(), probe, decoy].into_iter().flatten().chain(windows).min()
    }

    /// Returns the state of a path at `now`, for a scheduler.
    #[must_use]
    pub fn view(&self, now: Time, path: PathId) -> PathView {
        let known = self.paths.get(path.index());
        let usable = known.is_some_and(Path::is_usable);
        let Some(known) = known.filter(|_| usable && self.has_windows) else {
            return PathView {
                usable,
                rtt: known.and_then(|path| path.rtt.last()),
                ..PathView::open()
            };
        };
        let mut view = known.window.view(now, known.rtt.last(), self.run.path == Some(path));
        // The other end delays each datagram as if it had arrived on the slowest path.
        let usable = self.paths.iter().filter(|path| path.is_usable());
        let slowest = usable.filter_map(|path| path.window.least_rtt()).max();
        view.leg.least_rtt = slowest.unwrap_or(view.leg.least_rtt);
        view
    }

    /// Returns the maximum time for which a datagram waits for an older one.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.order.patience()
    }

    /// Forgets the round-trip time of `path`, which now leads to the far end by another route.
    pub(crate) fn forget_round_trip(&mut self, path: PathId) {
        let path = self.paths.get_mut(path.index());
        path.into_iter().for_each(|path| path.rtt = RoundTrip::default());
    }

    /// Returns the additional delay of datagrams on `path`, compared with the fastest usable path:
    /// half the difference of the smoothed round-trip times. `None` if `path` is not usable, or
    /// not measured yet.
    #[must_use]
    pub fn lag(&self, path: PathId) -> Option<Duration> {
        let own = self.paths.get(path.index()).filter(|path| path.is_usable())?.rtt.smoothed()?;
        let usable = self.paths.iter().filter(|path| path.is_usable());
        let least = usable.filter_map(|path| path.rtt.smoothed()).min()?;
        Some(own.saturating_sub(least) / 2)
    }

    /// Returns the number of the other end's packets that counted as lost. Some of them may have
    /// arrived late.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.order.lost()
    }
}
