//! One end of a stream, a TCP connection whose segments travel in Sphinx packets: connection
//! state, the first message of each direction, and reply blocks.
//!
//! The client's first bytes are the stream's destination. The exit's first byte reports that the
//! destination is connected, or the reason why it is not.

use std::net::SocketAddr;

use anabranch_multipath::{Core as _, Time};
use anabranch_tcp::{Config as TcpConfig, Connection, Ending as TcpEnding, Ports, Segment, Seq};
use rand_core::Rng;

use crate::config::Config;
use crate::supply::{Stock, Supply};
use crate::wire::{Flow, PORT, TARGET, mss, put_target, read_target};

/// Identifier of a stream, valid at one node only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// The reason why an exit has not connected a stream to its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The exit does not allow the destination.
    NotAllowed,
    /// The destination refused the connection.
    ConnectionRefused,
    /// The destination cannot be reached, or the exit cannot open further connections.
    Unreachable,
}

impl Refusal {
    const ALL: [Refusal; 3] =
        [Refusal::NotAllowed, Refusal::ConnectionRefused, Refusal::Unreachable];

    fn byte(self) -> u8 {
        self as u8 + 1
    }

    fn from_byte(byte: u8) -> Refusal {
        let known = Refusal::ALL.into_iter().find(|refusal| refusal.byte() == byte);
        known.unwrap_or(Refusal::Unreachable)
    }
}

/// First byte that an exit sends on a stream if it has connected to the destination. Other values
/// are reasons of a failure.
const CONNECTED: u8 = 0;

/// The reason why a stream ended, as reported to its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The other end has closed the stream, and all of its bytes were read.
    Closed,
    /// The exit did not open a connection to the destination, for this reason.
    Refused(Refusal),
    /// The other end has aborted the stream, or does not know the stream.
    Reset,
    /// The other end has not answered in time.
    TimedOut,
}

/// An event of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// At an exit: a client requests a connection to this destination. The caller must answer with
    /// [`MoreNode::connected`](crate::MoreNode::connected) or
    /// [`MoreNode::refuse`](crate::MoreNode::refuse).
    Begun(StreamId, SocketAddr),
    /// At a client: the stream's destination is connected.
    Connected(StreamId),
    /// The stream has bytes to read again, after all earlier bytes had been read.
    Readable(StreamId),
    /// The send buffer of the stream has room again, after
    /// [`MoreNode::write`](crate::MoreNode::write) had filled it.
    Writable(StreamId),
    /// The stream has ended. Its ID is no longer valid.
    Ended(StreamId, Ending),
}

/// The part of a stream's state that differs between client and exit.
#[derive(Debug)]
pub(crate) enum Role {
    /// This end is the client's. The fields are the exit's index in the network, and the account
    /// of the exit's reply blocks.
    Client(usize, Supply),
    /// This end is the exit's. The field is its stock of reply blocks.
    Exit(Stock),
}

/// One end of a stream: the TCP connection, and the state of the first messages and of reply
/// blocks.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) flow: Flow,
    pub(crate) role: Role,
    pub(crate) tcp: Connection,
    /// True once the caller no longer uses the stream: it has closed the stream, or was notified
    /// of the end.
    pub(crate) left: bool,
    /// True once the first message of the other end has arrived: the destination at an exit, the
    /// result of the connection at a client.
    has_head: bool,
    /// True if the destination is connected, so that bytes may flow.
    is_open: bool,
    /// True if [`Stream::write`] has filled the send buffer. The caller must be notified once
    /// there is room again.
    starved: bool,
    /// True while the stream is in the node's queue of streams that may send.
    pub(crate) is_due: bool,
    /// Time of the stream's entry in the node's table of timers; `None` if it has no entry.
    pub(crate) timer: Option<Time>,
    /// Time of the last packet from the other end.
    pub(crate) last_arrival: Time,
}

impl Stream {
    /// Returns a client's new stream to `target`.
    pub(crate) fn connect(
        now: Time,
        config: &Config,
        (flow, exit): (Flow, usize),
        target: SocketAddr,
        rng: &mut dyn Rng,
    ) -> Stream {
        let ports = Ports { local: PORT, remote: PORT };
        let mut tcp = Connection::connect(now, &tcp_config(config, rng), ports, iss(rng));
        tcp.write(&put_target(target));
        Stream::new(now, flow, Role::Client(exit, Supply::new(now)), tcp)
    }

    /// Returns an exit's new stream. Returns `None` if `segment` is not a SYN.
    pub(crate) fn accept(
        now: Time,
        config: &Config,
        (flow, stock): (Flow, Stock),
        segment: &Segment,
        rng: &mut dyn Rng,
    ) -> Option<Stream> {
        let tcp = Connection::accept(now, &tcp_config(config, rng), iss(rng), segment)?;
        Some(Stream::new(now, flow, Role::Exit(stock), tcp))
    }

    fn new(now: Time, flow: Flow, role: Role, tcp: Connection) -> Stream {
        let [left, has_head, is_open, starved, is_due] = [false; 5];
        let (timer, last_arrival) = (None, now);
        Stream { flow, role, tcp, left, has_head, is_open, starved, is_due, timer, last_arrival }
    }

    /// Answers, at the exit, the client's request for a connection. `refusal` is `None` if the
    /// destination is connected; a refusal closes the stream.
    pub(crate) fn answer(&mut self, refusal: Option<Refusal>) {
        self.tcp.write(&[refusal.map_or(CONNECTED, Refusal::byte)]);
        self.is_open = refusal.is_none();
        if !self.is_open {
            self.leave();
        }
    }

    /// Appends `bytes` to the send buffer. Returns the number of bytes that were accepted.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = self.tcp.write(bytes);
        self.starved = taken < bytes.len() || self.tcp.room() == 0;
        taken
    }

    /// Returns the bytes that can be read, in two consecutive parts.
    pub(crate) fn peek(&self) -> (&[u8], &[u8]) {
        if self.is_open { self.tcp.peek() } else { (&[], &[]) }
    }

    /// Closes this end. Bytes that were written before are sent first.
    pub(crate) fn leave(&mut self) {
        self.left = true;
        self.tcp.close();
    }

    /// Ends the stream at once.
    pub(crate) fn abort(&mut self) {
        self.left = true;
        self.tcp.abort();
    }

    /// Handles a segment. Returns the events of [`Stream::progress`].
    pub(crate) fn arrive(
        &mut self,
        now: Time,
        id: StreamId,
        segment: Segment,
    ) -> [Option<Event>; 2] {
        let was_empty = self.peek().0.is_empty();
        self.tcp.handle(now, segment);
        self.progress(id, was_empty)
    }

    /// Returns up to two events that result from received bytes: for the first message of the
    /// other end, and for bytes to read. `was_empty` is true if no bytes could be read before
    /// these bytes arrived.
    pub(crate) fn progress(&mut self, id: StreamId, was_empty: bool) -> [Option<Event>; 2] {
        let first = match self.has_head || self.left {
            true => None,
            false => self.take_head(id),
        };
        let wakes = was_empty && !self.left && !self.peek().0.is_empty();
        [first, wakes.then_some(Event::Readable(id))]
    }

    /// Parses and removes the first message from the other end (a destination, or the result of
    /// connecting). Returns the event to report. Returns `None` if the message is incomplete. If
    /// the message is invalid, aborts the stream and returns `None`.
    fn take_head(&mut self, id: StreamId) -> Option<Event> {
        let (front, back) = self.tcp.peek();
        let bytes: Vec<u8> = front.iter().chain(back).take(TARGET).copied().collect();
        match self.role {
            Role::Exit(_) => match read_target(&bytes) {
                Ok(None) => None,
                Ok(Some((target, length))) => {
                    self.head_read(length);
                    Some(Event::Begun(id, target))
                }
                Err(_) => {
                    self.abort();
                    None
                }
            },
            Role::Client(..) => {
                let &answer = bytes.first()?;
                self.head_read(1);
                self.is_open = answer == CONNECTED;
                if self.is_open {
                    return Some(Event::Connected(id));
                }
                self.leave();
                Some(Event::Ended(id, Ending::Refused(Refusal::from_byte(answer))))
            }
        }
    }

    fn head_read(&mut self, length: usize) {
        self.tcp.consume(length);
        self.has_head = true;
    }

    /// Returns up to two events to report: room in the send buffer after it was full, and the end
    /// of the stream. If the caller has closed the stream, drops the bytes that arrived.
    pub(crate) fn settle(&mut self, id: StreamId) -> [Option<Event>; 2] {
        if self.left {
            self.tcp.consume(usize::MAX);
            return [None, None];
        }
        let has_room = self.starved && self.tcp.room() > 0;
        self.starved &= !has_room;
        let finished = self.tcp.is_finished() && self.tcp.readable() == 0;
        let ending = self.tcp.ending().and_then(failure).or(finished.then_some(Ending::Closed));
        if ending.is_some() {
            self.leave();
        }
        let ended = ending.filter(|_| self.is_known()).map(|ending| Event::Ended(id, ending));
        [has_room.then_some(Event::Writable(id)), ended]
    }

    /// Returns true if events of the stream may be reported, because the caller knows the stream.
    /// This is always so at a client. At an exit, this is so once the client's first message,
    /// which names the destination, has arrived.
    pub(crate) fn is_known(&self) -> bool {
        self.has_head || matches!(self.role, Role::Client(..))
    }
}

fn iss(rng: &mut dyn Rng) -> Seq {
    Seq(rng.next_u32())
}

/// Returns the settings of a stream's TCP connection. The segment size follows from the packets'
/// content.
fn tcp_config(config: &Config, rng: &mut dyn Rng) -> TcpConfig {
    TcpConfig {
        mss: mss(config.payload),
        receive_buffer: config.buffer,
        send_buffer: config.buffer,
        fast_open: true,
        timestamp_offset: rng.next_u32(),
        ..TcpConfig::default()
    }
}

/// Returns the reason to report if a stream's TCP connection failed; `None` if it was closed or
/// aborted on purpose.
fn failure(ending: TcpEnding) -> Option<Ending> {
    match ending {
        TcpEnding::Finished | TcpEnding::Aborted => None,
        TcpEnding::TimedOut => Some(Ending::TimedOut),
        _ => Some(Ending::Reset),
    }
}
