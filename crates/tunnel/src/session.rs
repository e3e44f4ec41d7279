//! One session, as either end has it: numbers of what is sent, order of what comes, epochs of keys,
//! and which paths answer.

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
use crate::spare::Spare;
use crate::window::{Receipt, Tally, Window};

/// Bytes that a packet has more than the datagram in it where it is not padded.
pub const OVERHEAD: usize = epoch::OVERHEAD + frame::PLAIN;
/// How often paths are asked while there is traffic, and otherwise: NATs forget flows that are
/// silent for 30 s.
const ASK_BUSY: Duration = Duration::from_secs(1);
const ASK_IDLE: Duration = Duration::from_secs(20);
/// The same after a question that was not answered: a path's death is to be found out soon.
const ASK_AGAIN: Duration = Duration::from_millis(300);
/// Questions that come by several paths within this time are one.
const ROUND: Duration = Duration::from_millis(150);
/// After this silence there is no traffic.
const IDLE: Duration = Duration::from_secs(5);
/// A path that has not answered so many questions in a row is silent.
const UNANSWERED: u32 = 3;
/// Epochs whose packets are opened: the present one, the one before, and one that is not confirmed.
const EPOCHS: usize = 3;

/// Either end's part of a session.
pub struct Session {
    /// Whether this end asks the paths; the other one answers.
    asks: bool,
    sizes: Vec<usize>,
    epochs: VecDeque<(u32, Epoch)>,
    /// The epoch that we send by.
    current: Option<u32>,
    /// The number of the next packet, and the present path's packets before it.
    number: u64,
    run: Run,
    replay: Replay,
    order: Resequencer<Datagram>,
    joiner: Joiner,
    paths: Vec<Path>,
    words: VecDeque<(PathId, Word)>,
    /// Whether each path has a window: then our data are acknowledged.
    has_windows: bool,
    /// What goes by paths that rest, where that is wanted.
    decoys: Option<Decoys>,
    decoys_sent: DecoyCount,
    decoys_came: DecoyCount,
    /// When there was traffic last, and when paths are asked next.
    busy: Option<Time>,
    ask: Time,
    /// When the other end's last questions began to come.
    asked: Option<Time>,
    closed: bool,
    spare: Spare,
}

/// Decoys, and the bytes of the datagrams that they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecoyCount {
    /// Packets.
    pub packets: u64,
    /// Bytes of content.
    pub bytes: u64,
}

impl DecoyCount {
    fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// Packets of one path with consecutive numbers.
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
enum Word {
    Ping { deaf: bool },
    Pong { echo: u32 },
    Close,
}

#[derive(Default)]
struct Path {
    rtt: RoundTrip,
    heard: Option<Time>,
    /// Questions since it was heard last: our own, or those that came by other paths. Only those
    /// count that came after the time in which the first of them is answered.
    unanswered: u32,
    /// When the first of them was asked.
    asked: Time,
    /// Whether the other end has said that nothing comes by it.
    deaf: bool,
    /// How long packets may be that go by it, in bytes, as far as anybody knows.
    room: Option<u16>,
    /// What is under way by it, and what came by it.
    window: Window,
    tally: Tally,
}

impl Path {
    /// Whether it answers, and the other end hears us by it.
    fn is_usable(&self) -> bool {
        self.unanswered <= UNANSWERED && !self.deaf
    }

    /// Notes a question at `now`. On a slow path the answer to an earlier one may be under way.
    fn ask(&mut self, now: Time) {
        if self.unanswered == 0 {
            self.asked = now;
        } else if now.since(self.asked) < self.rtt.timeout() {
            return;
        }
        self.unanswered = self.unanswered.saturating_add(1);
    }
}

impl Session {
    /// Without keys. `asks` is whether this end asks the paths whether they live; packets are as
    /// long as the least of `sizes` that they fit into, or as long as they are.
    #[must_use]
    pub fn new(paths: u16, asks: bool, sizes: &[usize]) -> Session {
        Session {
            asks,
            sizes: sizes.iter().filter_map(|size| size.checked_sub(epoch::OVERHEAD)).collect(),
            epochs: VecDeque::new(),
            current: None,
            number: 0,
            run: Run::default(),
            replay: Replay::new(),
            order: Resequencer::new(paths.into()),
            joiner: Joiner::default(),
            paths: (0..paths).map(|_| Path::default()).collect(),
            words: VecDeque::new(),
            has_windows: false,
            decoys: None,
            decoys_sent: DecoyCount::default(),
            decoys_came: DecoyCount::default(),
            busy: None,
            ask: Time::ZERO,
            asked: None,
            closed: false,
            spare: Spare::default(),
        }
    }

    /// The number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.number
    }

    /// What the other end sends begins with this number: it knows nothing of what was before.
    pub(crate) fn begin_at(&mut self, first: u64) {
        self.replay = Replay::new();
        self.order.begin_at(first);
        self.joiner = Joiner::default();
        self.closed = false;
        for path in &mut self.paths {
            (path.window, path.tally) = (Window::default(), Tally::default());
        }
    }

    /// Whether each path has a window, for a schedule that needs them: from now on the other end
    /// acknowledges our data, and [`Session::view`] tells what a path takes.
    pub fn keep_windows(&mut self, keep: bool) {
        self.has_windows = keep;
    }

    /// Whether each path has a window.
    #[must_use]
    pub fn has_windows(&self) -> bool {
        self.has_windows
    }

    /// What goes by paths that rest, from now on; `None` for nothing.
    pub fn send_decoys(&mut self, decoys: Option<Decoys>) {
        self.decoys = decoys;
    }

    /// Decoys that this end has sent, and those that came to it and were dropped.
    #[must_use]
    pub fn decoys(&self) -> [DecoyCount; 2] {
        [self.decoys_sent, self.decoys_came]
    }

    /// Packets by `path` may have so many bytes: longer ones are lost there. The other end is told.
    pub fn set_room(&mut self, path: PathId, room: usize) {
        let room = u16::try_from(room).unwrap_or(u16::MAX);
        let path = self.paths.get_mut(path.index());
        path.into_iter().for_each(|path| path.room = Some(room));
    }

    /// How long packets may be that go by `path`, in bytes, as this end was told or the other one
    /// says; for [`pieces`](crate::pieces).
    #[must_use]
    pub fn room(&self, path: PathId) -> Option<usize> {
        self.paths.get(path.index())?.room.map(usize::from)
    }

    /// Whether no path has answered for so long that the other end may have forgotten us.
    pub(crate) fn is_deaf(&self) -> bool {
        self.paths.iter().all(|path| path.unanswered > UNANSWERED)
    }

    /// The paths are asked at this time, and not later.
    pub(crate) fn ask_at(&mut self, now: Time) {
        self.ask = self.ask.min(now);
    }

    /// Takes the keys of a handshake. `confirmed` is whether the other end has them for sure: then
    /// we send by them. IDs that are no longer awaited come back.
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

    /// IDs that packets of the other end bear, with the epoch and the path of each.
    pub(crate) fn ids(&self) -> impl Iterator<Item = (Id, u32, PathId)> {
        self.epochs.iter().flat_map(|(generation, epoch)| {
            let ids = epoch.ids().iter().enumerate();
            ids.map(|(path, id)| (*id, *generation, PathId::at(path)))
        })
    }

    /// Whether there are keys to send by.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.current.is_some() && !self.closed
    }

    /// Whether the other end has ended it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Appends the packet that carries a datagram of a flow, or a part of one, by a path. False,
    /// and nothing is appended, if there are no keys yet or the path is not one of the session.
    pub(crate) fn seal(
        &mut self,
        now: Time,
        disguise: &Disguise,
        path: PathId,
        (flow, piece): (u16, Piece<'_>),
        out: &mut Vec<u8>,
    ) -> bool {
        if self.busy.is_none_or(|last| now.since(last) >= IDLE) {
            self.ask = now;
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
                path.is_usable() && path.heard.is_some()
            };
            decoys.carried(now, (path, bytes), paths.len(), usable);
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

    /// Appends a packet with this frame under the next number, after leaving out `skip` of them.
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

    /// Takes a packet that bears this ID, of this epoch and path. Its number if it is one of the
    /// other end's that has not come before.
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
            // The other end has these keys: it sends by them.
            self.current = Some(generation);
        }
        let frame = Frame::read(&room[..length]);
        self.hear(now, path, matches!(frame, Some(Frame::Ping { .. })));
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

    fn hear(&mut self, now: Time, path: PathId, is_ping: bool) {
        // Each path is asked at once: the first question of a round counts for all.
        let begins = is_ping && self.asked.is_none_or(|asked| now.since(asked) >= ROUND);
        if begins {
            self.asked = Some(now);
        }
        for (place, other) in self.paths.iter_mut().enumerate() {
            if place == path.index() {
                (other.heard, other.unanswered) = (Some(now), 0);
            } else if begins {
                other.ask(now);
            }
        }
    }

    /// Does what a frame says; the flow of the datagram in it, which part it is, and where that
    /// lies in `bytes`.
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
                self.words.push_back((path, Word::Pong { echo: stamp }));
            }
            Frame::Pong { echo, .. } => {
                let rtt = Duration::from_micros(micros(now).wrapping_sub(echo).into());
                if let Some(path) = self.paths.get_mut(path.index()) {
                    path.rtt.note(rtt);
                }
            }
            Frame::Ack(receipt) => self.acknowledged(now, path, receipt),
            Frame::Decoy { bytes, .. } => self.decoys_came.add(bytes),
            Frame::Close => self.closed = true,
        }
        None
    }

    fn acknowledged(&mut self, now: Time, path: PathId, receipt: Receipt) {
        let path = self.paths.get_mut(path.index()).filter(|_| self.has_windows);
        path.into_iter().for_each(|path| path.window.acknowledged(now, receipt));
    }

    /// The next datagram, in the order in which the other end sent them.
    pub fn poll(&mut self, now: Time) -> Option<Datagram> {
        loop {
            let whole = self.joiner.take(self.order.poll(now)?);
            if whole.is_some() {
                return whole;
            }
        }
    }

    /// Gives a datagram's memory back, to be used for others.
    pub fn recycle(&mut self, datagram: Datagram) {
        self.spare.give(datagram.frame);
    }

    /// Appends the next packet that this end has to say by itself; the path that it goes by.
    pub(crate) fn say(
        &mut self,
        now: Time,
        disguise: &Disguise,
        out: &mut Vec<u8>,
    ) -> Option<PathId> {
        if self.asks && self.is_up() && now >= self.ask {
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
        let Some((path, word)) = self.words.pop_front() else {
            return self.send_decoy(now, disguise, out);
        };
        let stamp = micros(now);
        let frame = match word {
            Word::Ping { deaf } => {
                let known = self.paths.get(path.index());
                let rtt = known.and_then(|path| path.rtt.last());
                let rtt = rtt.map_or(0, |rtt| u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX));
                let room = known.and_then(|path| path.room).unwrap_or_default();
                Frame::Ping { stamp, deaf, rtt, room }
            }
            Word::Pong { echo } => Frame::Pong { echo, stamp },
            Word::Close => Frame::Close,
        };
        self.put(disguise, path, &frame, &[], out).then_some(path)
    }

    /// Appends the next decoy that is due; the path that it goes by.
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
        let any = |range: RangeInclusive<u32>| {
            self.paths.iter().any(|path| range.contains(&path.unanswered))
        };
        let pause = match () {
            () if any(1..=UNANSWERED) => ASK_AGAIN,
            () if busy || any(1..=u32::MAX) => ASK_BUSY,
            () => ASK_IDLE,
        };
        self.ask = now + pause;
        for (place, path) in self.paths.iter_mut().enumerate() {
            path.ask(now);
            let deaf = path.unanswered > UNANSWERED;
            self.words.push_back((PathId::at(place), Word::Ping { deaf }));
        }
    }

    /// Says farewell by every path: the other end need not find out by waiting.
    pub fn close(&mut self) {
        let farewell = (0..self.paths.len()).map(|place| (PathId::at(place), Word::Close));
        self.words.extend(farewell);
    }

    /// When [`Session::poll`] or a word of ours is due next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        let ask = (self.asks && self.is_up()).then_some(self.ask);
        let windows = self.paths.iter().filter_map(|path| {
            [path.tally.due(), path.window.next_timeout()].into_iter().flatten().min()
        });
        let decoy = self.decoys.as_ref().and_then(Decoys::next_due);
        [self.order.next_timeout(), ask, decoy].into_iter().flatten().chain(windows).min()
    }

    /// The state of a path at `now`, for a scheduler.
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
        // The other end delays each datagram as if it had come by the slowest path.
        let usable = self.paths.iter().filter(|path| path.is_usable());
        let slowest = usable.filter_map(|path| path.window.least_rtt()).max();
        view.leg.least_rtt = slowest.unwrap_or(view.leg.least_rtt);
        view
    }

    /// How long a datagram waits at most for one that was sent before it.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.order.patience()
    }

    /// The round trip of a path is not what it was.
    pub(crate) fn forget_round_trip(&mut self, path: PathId) {
        let path = self.paths.get_mut(path.index());
        path.into_iter().for_each(|path| path.rtt = RoundTrip::default());
    }

    /// How much later than on the fastest usable path datagrams arrive on `path`, taken as half of
    /// what its smoothed round trip is longer; `None` if it is not usable, or not measured yet.
    #[must_use]
    pub fn lag(&self, path: PathId) -> Option<Duration> {
        let own = self.paths.get(path.index()).filter(|path| path.is_usable())?.rtt.smoothed()?;
        let usable = self.paths.iter().filter(|path| path.is_usable());
        let least = usable.filter_map(|path| path.rtt.smoothed()).min()?;
        Some(own.saturating_sub(least) / 2)
    }

    /// Packets that never arrived, or known to be lost; some may have come late.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.order.lost()
    }
}
