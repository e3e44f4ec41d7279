//! A stream at either end of a circuit: bytes that wait for cells, bytes that wait for a program,
//! and what keeps both few.

use std::collections::VecDeque;
use std::sync::Arc;

use anabranch_multipath::{PathId, Time};

use crate::conflux::StreamWindows;
use crate::congestion::Params;
use crate::wire::message::{DATA, EndReason, RelayCommand};
use leg_windows::LegWindows;
use rates::Rates;
use windows::Windows;

mod leg_windows;
mod rates;
mod windows;

/// A stream's number in its core: counts up from 1, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey(pub u64);

/// Bytes that may wait for cells.
const OUTGOING: usize = 128 * DATA;

/// Which end of the circuit the stream has here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Exit,
}

/// What the peer did that no honest one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// More data than any window allows.
    Flood,
    /// A message that this stream cannot have at this point.
    OutOfPlace,
    /// A message that cannot be read.
    Malformed,
}

/// A message that does not count as data, to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Say {
    pub(crate) command: RelayCommand,
    pub(crate) stream: u16,
    pub(crate) data: Vec<u8>,
    /// The leg that it is about, and must go by.
    pub(crate) by: Option<PathId>,
}

/// One end of a stream.
pub(crate) struct Stream {
    pub(crate) key: StreamKey,
    /// Whether the peer agreed to it (client), or its destination was reached (exit).
    pub(crate) open: bool,
    side: Side,
    id: u16,
    outgoing: VecDeque<u8>,
    /// The END that follows the outgoing bytes.
    ending: Option<EndReason>,
    pub(crate) incoming: VecDeque<u8>,
    flow: Box<dyn Flow>,
    /// The program heard "no room" and waits.
    starved: bool,
}

/// What bounds the data of streams that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFlow {
    /// Windows of a fixed size, opened by SENDMEs.
    Windows(StreamWindows),
    /// XON and XOFF, beside congestion control.
    Rates,
}

/// How much a stream may carry each way, and what it tells its peer of that. One file each:
/// [`Windows`], [`LegWindows`] and [`Rates`], all over cells that arrive all and in order.
trait Flow: Send {
    /// Whether a DATA cell may go now, by one of these legs; only [`LegWindows`] looks at them.
    fn may_send(&mut self, now: Time, by: &[PathId]) -> bool;

    /// When a stream that may not send now should be asked again, if time alone changes that.
    fn wake_at(&self) -> Option<Time>;

    /// A DATA cell with this many bytes was sent by a leg.
    fn sent(&mut self, by: PathId, bytes: usize);

    /// A DATA cell came.
    ///
    /// # Errors
    /// More came than the peer may send.
    fn received(
        &mut self,
        now: Time,
        arrived: Arrived,
        replies: &mut Replies<'_>,
    ) -> Result<(), Broken>;

    /// A DATA cell came before its turn: [`Flow::received`] follows when that comes.
    ///
    /// # Errors
    /// As that.
    fn came_early(&mut self, _: Time, _: Arrived, _: &mut Replies<'_>) -> Result<(), Broken> {
        Ok(())
    }

    /// The peer is to rest, or may go on; `waiting` bytes wait for the program.
    fn rest(&mut self, now: Time, rest: bool, waiting: usize, replies: &mut Replies<'_>);

    /// The program took bytes; `waiting` are left.
    fn consumed(&mut self, now: Time, bytes: usize, waiting: usize, replies: &mut Replies<'_>);

    /// A SENDME came by a leg.
    ///
    /// # Errors
    /// None is owed.
    fn acknowledged(&mut self, by: PathId) -> Result<(), Broken>;

    /// XOFF (`None`) or XON with a rate in kilobytes a second (0: no limit) came.
    ///
    /// # Errors
    /// It may not come.
    fn told_rate(&mut self, now: Time, rate: Option<u32>) -> Result<(), Broken>;

    /// A leg is gone.
    fn lost(&mut self, _leg: PathId) {}
}

/// A DATA cell that came. All in bytes.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    /// Its data.
    bytes: usize,
    /// What waits for the program, with it.
    waiting: usize,
    /// What may have come at once, besides a window's.
    burst: usize,
    /// The leg that it came by; `None` if that is gone.
    by: Option<PathId>,
}

/// Where a stream's flow control leaves messages for the peer.
struct Replies<'a> {
    stream: u16,
    by: Option<PathId>,
    say: &'a mut VecDeque<Say>,
}

impl Replies<'_> {
    fn say(&mut self, command: RelayCommand, data: Vec<u8>) {
        self.say.push_back(Say { command, stream: self.stream, data, by: self.by });
    }

    /// Those that must go by a leg.
    fn by(&mut self, leg: PathId) -> Replies<'_> {
        Replies { stream: self.stream, by: Some(leg), say: self.say }
    }
}

impl Stream {
    /// A stream that is being opened.
    pub(crate) fn new(
        key: StreamKey,
        id: u16,
        side: Side,
        flow: StreamFlow,
        params: &Arc<Params>,
    ) -> Stream {
        let flow: Box<dyn Flow> = match flow {
            StreamFlow::Rates => Box::new(Rates::new(side, params)),
            StreamFlow::Windows(StreamWindows::One) => Box::new(Windows::new()),
            StreamFlow::Windows(StreamWindows::EachLeg) => Box::new(LegWindows::default()),
        };
        Stream {
            key,
            id,
            open: false,
            side,
            outgoing: VecDeque::new(),
            ending: None,
            incoming: VecDeque::new(),
            flow,
            starved: false,
        }
    }

    /// Takes bytes of the program, as many as there is room for.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let room =
            if self.ending.is_some() { 0 } else { OUTGOING.saturating_sub(self.outgoing.len()) };
        let taken = room.min(bytes.len());
        self.outgoing.extend(&bytes[..taken]);
        self.starved = taken < bytes.len() || self.outgoing.len() >= OUTGOING;
        taken
    }

    /// Whether the program has more bytes than there was room for.
    pub(crate) fn has_more(&self) -> bool {
        look();
        self.starved && self.ending.is_none()
    }

    /// No more bytes will come from the program.
    pub(crate) fn end(&mut self, reason: EndReason) {
        self.ending = Some(reason);
    }

    /// Whether a DATA cell may go now, by one of these legs.
    pub(crate) fn has_data(&mut self, now: Time, by: &[PathId]) -> bool {
        self.is_wanting() && self.flow.may_send(now, by)
    }

    /// Whether bytes wait that will go sooner or later.
    pub(crate) fn is_wanting(&self) -> bool {
        look();
        self.may_begin() && !self.outgoing.is_empty()
    }

    /// A client's bytes need not wait for the exit's answer: they follow BEGIN.
    fn may_begin(&self) -> bool {
        self.open || self.side == Side::Client
    }

    /// When a stream that may not send now should be asked again.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        if self.is_wanting() { self.flow.wake_at() } else { None }
    }

    /// Writes a DATA cell's data, for a leg, and returns its length; `true` if the program may
    /// write again.
    pub(crate) fn fill(&mut self, by: PathId, data: &mut [u8]) -> (usize, bool) {
        let length = self.outgoing.len().min(data.len());
        let (front, back) = self.outgoing.as_slices();
        let first = front.len().min(length);
        data[..first].copy_from_slice(&front[..first]);
        data[first..length].copy_from_slice(&back[..length - first]);
        self.outgoing.drain(..length);
        self.flow.sent(by, length);
        let fed = self.starved && self.outgoing.len() <= OUTGOING / 2;
        self.starved &= !fed;
        (length, fed)
    }

    /// Bytes that wait for cells.
    pub(crate) fn unsent(&self) -> usize {
        look();
        if self.may_begin() { self.outgoing.len() } else { 0 }
    }

    /// The peer is to rest, or may go on.
    pub(crate) fn rest(&mut self, now: Time, rest: bool, say: &mut VecDeque<Say>) {
        let waiting = self.incoming.len();
        self.flow.rest(now, rest, waiting, &mut Replies { stream: self.id, by: None, say });
    }

    /// The END that is due: all bytes before it have gone.
    pub(crate) fn due_end(&self) -> Option<EndReason> {
        look();
        self.ending.filter(|_| self.outgoing.is_empty())
    }

    /// Takes the data of a DATA cell, which came by a leg, or one that is gone; returns whether the
    /// program had nothing to read before.
    pub(crate) fn received(
        &mut self,
        now: Time,
        (data, by): (&[u8], Option<PathId>),
        burst: usize,
        say: &mut VecDeque<Say>,
    ) -> Result<bool, Broken> {
        let bytes = data.len();
        let arrived = Arrived { bytes, waiting: self.incoming.len() + bytes, burst, by };
        self.flow.received(now, arrived, &mut Replies { stream: self.id, by: None, say })?;
        let woke = self.incoming.is_empty() && !data.is_empty();
        self.incoming.extend(data);
        Ok(woke)
    }

    /// A DATA cell of so many bytes came by a leg before its turn. `much_waits` says that little
    /// more may.
    pub(crate) fn came_early(
        &mut self,
        now: Time,
        (bytes, by): (usize, PathId),
        much_waits: bool,
        say: &mut VecDeque<Say>,
    ) -> Result<(), Broken> {
        let waiting = if much_waits { usize::MAX } else { self.incoming.len() };
        let arrived = Arrived { bytes, waiting, burst: 0, by: Some(by) };
        self.flow.came_early(now, arrived, &mut Replies { stream: self.id, by: None, say })
    }

    /// The program took bytes.
    pub(crate) fn consumed(&mut self, now: Time, bytes: usize, say: &mut VecDeque<Say>) {
        self.incoming.drain(..bytes.min(self.incoming.len()));
        let waiting = self.incoming.len();
        self.flow.consumed(now, bytes, waiting, &mut Replies { stream: self.id, by: None, say });
    }

    /// A stream's SENDME came by a leg.
    pub(crate) fn acknowledged(&mut self, by: PathId) -> Result<(), Broken> {
        self.flow.acknowledged(by)
    }

    /// A leg is gone.
    pub(crate) fn lost(&mut self, leg: PathId) {
        self.flow.lost(leg);
    }

    /// XOFF (`None`) or XON with a rate in kilobytes a second (0: no limit) came.
    pub(crate) fn told_rate(&mut self, now: Time, rate: Option<u32>) -> Result<(), Broken> {
        self.flow.told_rate(now, rate)
    }
}

/// Counts a look at a stream, in tests.
fn look() {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + 1);
}

#[cfg(test)]
thread_local! {
    static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Looks at streams so far, by this thread.
#[cfg(test)]
pub(crate) fn looks() -> u64 {
    LOOKS.get()
}
