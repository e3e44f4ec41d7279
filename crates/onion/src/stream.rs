//! One end of a stream: bytes to send in cells, received bytes for the local program, and the flow
//! control for both.

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

/// A stream's identifier within its node. Identifiers count up from 1 and are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey(pub u64);

/// Maximum number of bytes of a stream that wait to be sent in cells.
const OUTGOING: usize = 128 * DATA;

/// Role of this end of a stream: client or exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Exit,
}

/// A violation by the peer on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// More data than the flow-control window allows.
    Flood,
    /// A message that is not allowed on this stream at this point.
    OutOfPlace,
    /// A malformed message.
    Malformed,
}

/// A message of a stream without data, such as SENDME or XOFF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlMessage {
    pub(crate) command: RelayCommand,
    pub(crate) stream: u16,
    pub(crate) data: Vec<u8>,
    /// The leg (parallel circuit) on which the message must be sent, because it concerns this leg;
    /// `None` for any leg.
    pub(crate) by: Option<PathId>,
}

/// One end of a stream.
pub(crate) struct Stream {
    pub(crate) key: StreamKey,
    /// True if the stream is open: at a client, if the exit has accepted the stream; at an exit,
    /// if the destination is connected.
    pub(crate) open: bool,
    side: Side,
    id: u16,
    outgoing: VecDeque<u8>,
    /// Reason in the END message that follows the outgoing bytes; `None` while the local program
    /// has not closed the stream.
    ending: Option<EndReason>,
    pub(crate) incoming: VecDeque<u8>,
    flow: Box<dyn Flow>,
    /// True if the local program waits for room in the send buffer to write more bytes.
    starved: bool,
}

/// Kind of flow control of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFlow {
    /// Windows of a fixed size, reopened by SENDMEs.
    Windows(StreamWindows),
    /// XON and XOFF, in addition to congestion control.
    Rates,
}

/// Flow control of a stream in both directions, and the messages with which it controls the peer's
/// sending. [`Windows`], [`LegWindows`] and [`Rates`] implement it, each in a separate file.
/// Received cells must be passed in without loss and in order.
trait Flow: Send {
    /// Returns true if a DATA cell may be sent now on at least one of the legs (parallel circuits)
    /// `by`. Only [`LegWindows`] distinguishes the legs.
    fn may_send(&mut self, now: Time, by: &[PathId]) -> bool;

    /// Returns the time at which to check again whether the stream may send, if a rate limit
    /// delays it. Otherwise returns `None`.
    fn wake_at(&self) -> Option<Time>;

    /// Counts a DATA cell with `bytes` bytes that was sent on the leg (parallel circuit) `by`.
    fn sent(&mut self, by: PathId, bytes: usize);

    /// Handles a received DATA cell.
    ///
    /// # Errors
    /// Returns [`Broken`] if the peer sent more data than the flow control allows.
    fn received(
        &mut self,
        now: Time,
        arrived: ArrivedCell,
        replies: &mut Replies<'_>,
    ) -> Result<(), Broken>;

    /// Handles a DATA cell that arrived before earlier messages of its circuit set. Once the
    /// earlier messages have arrived, [`Flow::received`] is called for the same cell.
    ///
    /// # Errors
    /// Returns the same errors as [`Flow::received`].
    fn received_early(
        &mut self,
        _: Time,
        _: ArrivedCell,
        _: &mut Replies<'_>,
    ) -> Result<(), Broken> {
        Ok(())
    }

    /// Asks the peer to pause sending if `pause` is true, and to resume otherwise. `waiting` is the
    /// number of bytes that wait for the local program.
    fn set_paused(&mut self, now: Time, pause: bool, waiting: usize, replies: &mut Replies<'_>);

    /// Notes that the local program has read `bytes` bytes, and that `waiting` bytes are left.
    fn consumed(&mut self, now: Time, bytes: usize, waiting: usize, replies: &mut Replies<'_>);

    /// Handles a SENDME that arrived on the leg (parallel circuit) `by`.
    ///
    /// # Errors
    /// Returns [`Broken`] if no SENDME was expected.
    fn acknowledged(&mut self, by: PathId) -> Result<(), Broken>;

    /// Handles XOFF (`rate` is `None`), or XON with a rate in kilobytes a second (0 means no
    /// limit).
    ///
    /// # Errors
    /// Returns [`Broken`] if the message is not allowed at this point.
    fn set_rate(&mut self, now: Time, rate: Option<u32>) -> Result<(), Broken>;

    /// Removes the state of a lost leg (parallel circuit).
    fn lost(&mut self, _leg: PathId) {}
}

/// Facts about a received DATA cell; sizes are in bytes.
#[derive(Clone, Copy, Debug)]
struct ArrivedCell {
    /// Length of the cell's data.
    bytes: usize,
    /// Number of received bytes that wait for the local program, including this cell's data.
    waiting: usize,
    /// Maximum number of bytes received beyond the flow-control window. When a missing message
    /// arrives, all data that waited for it in the circuit set is delivered at once.
    burst: usize,
    /// The leg (parallel circuit) on which the cell arrived; `None` if that leg is closed.
    by: Option<PathId>,
}

/// The queue through which a stream's flow control sends messages to the peer.
struct Replies<'a> {
    stream: u16,
    by: Option<PathId>,
    control: &'a mut VecDeque<ControlMessage>,
}

impl Replies<'_> {
    fn push(&mut self, command: RelayCommand, data: Vec<u8>) {
        self.control.push_back(ControlMessage { command, stream: self.stream, data, by: self.by });
    }

    /// Returns the queue for messages that must be sent on the leg (parallel circuit) `leg`.
    fn by(&mut self, leg: PathId) -> Replies<'_> {
        Replies { stream: self.stream, by: Some(leg), control: self.control }
    }
}

impl Stream {
    /// Returns a stream that is not open yet.
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

    /// Accepts the program's `bytes`, up to the free room in the send buffer. Returns the number
    /// of bytes accepted.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let room =
            if self.ending.is_some() { 0 } else { OUTGOING.saturating_sub(self.outgoing.len()) };
        let taken = room.min(bytes.len());
        self.outgoing.extend(&bytes[..taken]);
        self.starved = taken < bytes.len() || self.outgoing.len() >= OUTGOING;
        taken
    }

    /// Returns true if the local program waits for room in the send buffer to write more bytes.
    pub(crate) fn has_more(&self) -> bool {
        look();
        self.starved && self.ending.is_none()
    }

    /// Closes the stream for the local program. An END message with `reason` follows the outgoing
    /// bytes.
    pub(crate) fn end(&mut self, reason: EndReason) {
        self.ending = Some(reason);
    }

    /// Returns true if there is data to send, and a DATA cell may be sent now on at least one of
    /// the legs (parallel circuits) `by`.
    pub(crate) fn has_data(&mut self, now: Time, by: &[PathId]) -> bool {
        self.is_wanting() && self.flow.may_send(now, by)
    }

    /// Returns true if there are bytes to send, even if they may not be sent now.
    pub(crate) fn is_wanting(&self) -> bool {
        look();
        self.may_begin() && !self.outgoing.is_empty()
    }

    /// Returns true if the stream's state allows sending bytes. A client may send bytes directly
    /// after BEGIN, without waiting for the exit's answer.
    fn may_begin(&self) -> bool {
        self.open || self.side == Side::Client
    }

    /// Returns the time at which to check again whether the stream may send, if a rate limit
    /// delays it. Otherwise returns `None`.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        if self.is_wanting() { self.flow.wake_at() } else { None }
    }

    /// Writes the stream's next bytes into `data`, for a DATA cell on the leg (parallel circuit)
    /// `by`. Returns the number of bytes written, and `true` if the program may write again.
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

    /// Returns the number of bytes that wait to be sent in cells.
    pub(crate) fn unsent(&self) -> usize {
        look();
        if self.may_begin() { self.outgoing.len() } else { 0 }
    }

    /// Asks the peer to pause if `pause` is true, and to resume otherwise.
    pub(crate) fn set_paused(
        &mut self,
        now: Time,
        pause: bool,
        control: &mut VecDeque<ControlMessage>,
    ) {
        let waiting = self.incoming.len();
        self.flow.set_paused(
            now,
            pause,
            waiting,
            &mut Replies { stream: self.id, by: None, control },
        );
    }

    /// Returns the reason of the END message to send now. Returns `None` while bytes must be sent
    /// before END, or if the program has not closed the stream.
    pub(crate) fn due_end(&self) -> Option<EndReason> {
        look();
        self.ending.filter(|_| self.outgoing.is_empty())
    }

    /// Queues the data of a received DATA cell for the local program. `by` is the leg (parallel
    /// circuit) on which the cell arrived; `None` if that leg is closed. Returns true if the
    /// program had nothing to read before.
    pub(crate) fn received(
        &mut self,
        now: Time,
        (data, by): (&[u8], Option<PathId>),
        burst: usize,
        control: &mut VecDeque<ControlMessage>,
    ) -> Result<bool, Broken> {
        let bytes = data.len();
        let arrived = ArrivedCell { bytes, waiting: self.incoming.len() + bytes, burst, by };
        self.flow.received(now, arrived, &mut Replies { stream: self.id, by: None, control })?;
        let woke = self.incoming.is_empty() && !data.is_empty();
        self.incoming.extend(data);
        Ok(woke)
    }

    /// Notes a DATA cell with `bytes` bytes that arrived on the leg `by` (a parallel circuit)
    /// before earlier messages of its circuit set. `much_waits` is true if the set's queue of
    /// waiting messages is at least half full.
    pub(crate) fn received_early(
        &mut self,
        now: Time,
        (bytes, by): (usize, PathId),
        much_waits: bool,
        control: &mut VecDeque<ControlMessage>,
    ) -> Result<(), Broken> {
        let waiting = if much_waits { usize::MAX } else { self.incoming.len() };
        let arrived = ArrivedCell { bytes, waiting, burst: 0, by: Some(by) };
        self.flow.received_early(now, arrived, &mut Replies { stream: self.id, by: None, control })
    }

    /// Removes `bytes` received bytes, because the local program has read them.
    pub(crate) fn consumed(
        &mut self,
        now: Time,
        bytes: usize,
        control: &mut VecDeque<ControlMessage>,
    ) {
        self.incoming.drain(..bytes.min(self.incoming.len()));
        let waiting = self.incoming.len();
        self.flow.consumed(
            now,
            bytes,
            waiting,
            &mut Replies { stream: self.id, by: None, control },
        );
    }

    /// Handles a SENDME for the stream that arrived on the leg (parallel circuit) `by`.
    pub(crate) fn acknowledged(&mut self, by: PathId) -> Result<(), Broken> {
        self.flow.acknowledged(by)
    }

    /// Removes the state of a lost leg (parallel circuit).
    pub(crate) fn lost(&mut self, leg: PathId) {
        self.flow.lost(leg);
    }

    /// Handles XOFF (`rate` is `None`), or XON with a rate in kilobytes a second (0 means no
    /// limit).
    pub(crate) fn set_rate(&mut self, now: Time, rate: Option<u32>) -> Result<(), Broken> {
        self.flow.set_rate(now, rate)
    }
}

/// Counts an access to a stream, in tests.
fn look() {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + 1);
}

#[cfg(test)]
thread_local! {
    static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns the number of accesses to streams that this thread has made so far, in tests.
#[cfg(test)]
pub(crate) fn looks() -> u64 {
    LOOKS.get()
}
