//! Streams over a lossy circuit, whose cells travel in datagrams and may be lost (the published
//! design UDP-OR). Each stream is a TCP connection between client and exit. Lossy cells carry the
//! TCP segments (`docs/spec/lossy-circuits.md#streams`).
//!
//! The bytes of each direction begin with one message: BEGIN from the client, and CONNECTED or END
//! from the exit. The connection's ports are the stream's ID.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use anabranch_multipath::{Core as _, PathView, Time};
use anabranch_tcp::{Config, Congestion, Connection, Ending, Ports, Segment, Seq, State};
use rand_core::CryptoRng;

use super::lossy_legs::{LossyLegs, MOST_LEGS};
use crate::stream::{Side, StreamKey};
use crate::streams::StreamEvent;
use crate::wire::cell::Body;
use crate::wire::lossy::{HEAD, MSS, TooLong, put_head, put_segment, read_head, read_segment};
use crate::wire::message::{EndReason, RelayCommand, is_connected, read_end};

/// Size in bytes of a stream's receive buffer, and of its send buffer.
const BUFFER: usize = 512 << 10;
/// Number of recently closed streams whose IDs are not accepted again. A repeated SYN can arrive
/// after its stream has ended. If this SYN were accepted, the exit would connect to the
/// destination twice.
const RECENT: usize = 1_024;
/// Initial window of BBR, in segments: 10 datagrams of two cells each (RFC 6928 allows 10 packets,
/// and 14,600 bytes).
const INITIAL: u32 = 20;

/// Length in bytes of the start of each direction of a stream. TCP segments that begin within this
/// length are sent twice, to survive a loss. At the exit, these are the segment with CONNECTED and
/// the segment after it.
const DOUBLED: u64 = 400;

/// Error for input that cannot be parsed: the content of a cell, or the first message from the
/// other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl From<TooLong> for Malformed {
    fn from(_: TooLong) -> Malformed {
        Malformed
    }
}

/// An event of a stream over a lossy circuit (whose cells travel in datagrams).
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LossyEvent {
    /// At the exit: the client has opened the stream with this ID. The bytes are the data of its
    /// BEGIN message.
    Begun(u16, Vec<u8>),
    /// At the client: the stream is connected to its destination.
    Connected(StreamKey),
    /// An event that also occurs for streams over ordinary cells.
    StreamEvent(StreamEvent),
}

/// A lossy cell (for a datagram) that a stream sends.
pub(crate) struct LossyCell {
    /// Body of the cell before its encryption: zeros, then the content.
    pub(crate) body: Body,
    /// Slot (index) of the parallel circuit to use. `None` for a reset segment, and if each TCP
    /// connection has one window for all circuits of the set.
    pub(crate) leg: Option<usize>,
    /// Number of bytes of the stream in the cell.
    pub(crate) payload: usize,
}

impl LossyCell {
    fn new(segment: &Segment, leg: Option<usize>) -> LossyCell {
        LossyCell { body: put_segment(segment), leg, payload: segment.payload.len() }
    }
}

/// One end of a stream over lossy cells (sent in datagrams).
struct LossyStream {
    /// Key that identifies the stream to its local program. `None` at the exit until a key is
    /// assigned, and once `left` is true.
    key: Option<StreamKey>,
    /// True once the stream's local program has closed the stream, or has been notified of its
    /// end.
    left: bool,
    tcp: Connection,
    /// True once the stream's first message from the other end (BEGIN, CONNECTED or END) has
    /// arrived.
    has_head: bool,
    /// True if the exit is connected to the destination, so that bytes from the stream's local
    /// program may be sent.
    is_open: bool,
    /// True while the stream's local program waits for room to write more bytes.
    starved: bool,
    /// Time at which the stream's timer expires; `None` if the timer is not set. The table of all
    /// streams' timers has the same time.
    timer: Option<Time>,
    /// Number of bytes that the stream had in memory when they were last counted.
    held: usize,
}

/// The streams of one end of a lossy circuit (whose cells travel in datagrams).
pub(crate) struct LossyStreams {
    side: Side,
    streams: BTreeMap<u16, LossyStream>,
    /// IDs of the streams that may have a segment to send.
    due: BTreeSet<u16>,
    timers: BTreeSet<(Time, u16)>,
    /// Time at which the node's one timer for all these streams expires; `None` if the timer is
    /// not set.
    armed: Option<Time>,
    /// Reset segments to send, as answers to segments of unknown streams.
    resets: VecDeque<Segment>,
    recent: VecDeque<u16>,
    events: VecDeque<LossyEvent>,
    /// Total bytes that wait in all streams, for a program or for the other end.
    held: usize,
    /// Value of `held` at the last call of [`LossyStreams::recount`].
    counted: usize,
    congestion: Congestion,
    /// The legs (circuits of the set), if each stream's TCP connection has a separate window on
    /// each leg. `None` if each connection has one window for all legs.
    legs: Option<Legs>,
    /// Round-trip time that new TCP connections with one window for all legs (parallel circuits)
    /// assume; `None` if unknown. It is first that of the circuit or of the slowest leg, then the
    /// last measurement by any such connection.
    rtt: Option<Duration>,
}

/// The parallel circuits (legs) of a set in which each TCP connection has a separate window on
/// each leg.
#[derive(Clone, Copy, Default)]
struct Legs {
    /// Bit mask of the slots whose legs (parallel circuits) both ends have linked: bit `n` stands
    /// for slot `n`.
    open: u8,
    /// Round-trip time of the leg (parallel circuit) in each slot, from the last measurement by
    /// any TCP connection. `None` if it is unknown.
    rtts: [Option<Duration>; MOST_LEGS],
}

impl LossyStreams {
    /// Returns the empty set of streams of a new circuit.
    pub(crate) fn new(side: Side) -> LossyStreams {
        LossyStreams {
            side,
            streams: BTreeMap::new(),
            due: BTreeSet::new(),
            timers: BTreeSet::new(),
            armed: None,
            resets: VecDeque::new(),
            recent: VecDeque::new(),
            events: VecDeque::new(),
            held: 0,
            counted: 0,
            congestion: Congestion::BBR,
            legs: None,
            rtt: None,
        }
    }

    /// Sets the congestion control of streams that begin from now on.
    pub(crate) fn set_congestion(&mut self, congestion: Congestion) {
        self.congestion = congestion;
    }

    /// Sets the expected round-trip time of new TCP connections to that of the circuit. The first
    /// measurement by a connection replaces it.
    pub(crate) fn expect_rtt(&mut self, rtt: Duration) {
        self.rtt = Some(rtt);
    }

    /// Passes the legs (parallel circuits) to all TCP connections that have a separate window on
    /// each leg. Cells in flight on a removed leg count as lost. New connections with one window
    /// for all legs then assume the round-trip time of the slowest leg.
    pub(crate) fn set_legs(&mut self, legs: &LossyLegs) {
        if !legs.have_windows() {
            self.rtt = legs.rtts().into_iter().flatten().max().max(self.rtt);
            return;
        }
        let known = self.legs.get_or_insert_default();
        known.open = legs.linked();
        for (known, measured) in known.rtts.iter_mut().zip(legs.rtts()) {
            *known = known.or(measured);
        }
        for (id, stream) in &mut self.streams {
            stream.tcp.set_legs(known.open);
            self.due.insert(*id);
        }
    }

    /// Returns the settings of a new TCP connection.
    fn config(&self, rng: &mut dyn CryptoRng) -> Config {
        let is_bbr = self.congestion == Congestion::BBR || self.legs.is_some();
        let usual = Config::default();
        Config {
            mss: MSS,
            congestion: if is_bbr { Congestion::BBR } else { self.congestion },
            initial_window: if is_bbr { INITIAL } else { usual.initial_window },
            receive_buffer: BUFFER,
            send_buffer: BUFFER,
            fast_open: true,
            syn_copy: true,
            doubled: DOUBLED,
            sparse_acks: true,
            timestamp_offset: rng.next_u32(),
            // Old duplicates are recognised by the counters of cells.
            paws: false,
            legs: if self.legs.is_some() { MOST_LEGS } else { 1 },
            ..usual
        }
    }

    /// Passes the legs (parallel circuits) to a new TCP connection `tcp`. The connection sends its
    /// first segments on `leg`, or on the leg with the lowest round-trip time if `leg` is `None`.
    fn equip(&self, tcp: &mut Connection, leg: Option<usize>) {
        let Some(legs) = &self.legs else {
            self.rtt.into_iter().for_each(|rtt| tcp.expect_rtt(0, rtt));
            return;
        };
        tcp.set_legs(legs.open);
        let measured = legs.rtts.iter().enumerate();
        let measured = measured.filter_map(|(place, rtt)| Some((place, (*rtt)?)));
        let measured: Vec<(usize, Duration)> = measured.collect();
        for &(place, rtt) in &measured {
            tcp.expect_rtt(place, rtt);
        }
        let is_open = |place: usize| legs.open >> place & 1 == 1;
        let quickest = measured.iter().filter(|(place, _)| is_open(*place));
        let quickest = quickest.min_by_key(|(_, rtt)| *rtt).map(|(place, _)| *place);
        let first = (0..MOST_LEGS).find(|place| is_open(*place));
        tcp.answer_by(leg.or(quickest).or(first).unwrap_or(0));
    }

    /// Returns the number of bytes in all streams that wait for a program or for the other end.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Returns two values of [`held`](LossyStreams::held): the value at the previous call of
    /// `recount`, then the present value.
    pub(crate) fn recount(&mut self) -> [usize; 2] {
        [std::mem::replace(&mut self.counted, self.held), self.held]
    }

    /// Counts the bytes that the stream `id` has in memory now, and updates `held`.
    fn count(&mut self, id: u16) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let now = stream.tcp.held();
        self.held = self.held + now - std::mem::replace(&mut stream.held, now);
    }

    /// Returns true if there ever was a stream over lossy cells (sent in datagrams).
    pub(crate) fn were_used(&self) -> bool {
        !self.streams.is_empty() || !self.recent.is_empty()
    }

    /// Returns the number of streams, including streams that are closed at this end and still wait
    /// for the other end.
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns true if a stream with this ID exists, or was closed recently.
    pub(crate) fn knows(&self, id: u16) -> bool {
        self.streams.contains_key(&id) || self.recent.contains(&id)
    }

    /// Returns true if the stream `id` of this circuit has the key `key`.
    pub(crate) fn has(&self, id: u16, key: StreamKey) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.key == Some(key))
    }

    /// Opens a stream at the client, with the data of BEGIN. Bytes that are written before the
    /// next [`LossyStreams::poll`] are sent in the same cell if they fit.
    pub(crate) fn connect(
        &mut self,
        now: Time,
        (id, key): (u16, StreamKey),
        begin: &[u8],
        rng: &mut dyn CryptoRng,
    ) {
        let ports = Ports { local: id, remote: id };
        let config = self.config(rng);
        let mut tcp = Connection::connect(now, &config, ports, Seq(rng.next_u32()));
        self.equip(&mut tcp, None);
        tcp.write(&put_head(RelayCommand::BEGIN, begin));
        self.insert(id, Some(key), tcp);
    }

    fn insert(&mut self, id: u16, key: Option<StreamKey>, tcp: Connection) {
        let [left, has_head, is_open, starved] = [false; 4];
        let (timer, held) = (None, 0);
        let stream = LossyStream { key, left, tcp, has_head, is_open, starved, timer, held };
        self.streams.insert(id, stream);
        self.count(id);
        self.due.insert(id);
    }

    /// Assigns the key `key` to the stream `id`, which the client has opened.
    pub(crate) fn name(&mut self, id: u16, key: StreamKey) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.key = Some(key);
        }
    }

    /// Sends the exit's answer to BEGIN. CONNECTED allows the stream's bytes to be sent; END
    /// closes the stream.
    pub(crate) fn answer(&mut self, id: u16, command: RelayCommand, data: &[u8]) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.tcp.write(&put_head(command, data));
        stream.is_open = command == RelayCommand::CONNECTED;
        if !stream.is_open {
            stream.leave();
        }
        self.due.insert(id);
        self.wake_reader(id, true);
        self.settle(id);
    }

    /// Accepts `bytes` from the local program of the stream `id`, up to the free room in its send
    /// buffer. Returns the number of bytes accepted. If the stream is unknown, the bytes are
    /// discarded and count as accepted.
    pub(crate) fn write(&mut self, id: u16, bytes: &[u8]) -> usize {
        let Some(stream) = self.streams.get_mut(&id) else { return bytes.len() };
        let taken = stream.tcp.write(bytes);
        stream.starved = taken < bytes.len() || stream.tcp.room() == 0;
        self.count(id);
        self.due.insert(id);
        taken
    }

    /// Returns the bytes that wait for the program of the stream `id`, in two consecutive parts.
    pub(crate) fn peek(&self, id: u16) -> (&[u8], &[u8]) {
        let stream = self.streams.get(&id).filter(|stream| stream.is_open);
        stream.map_or((&[], &[]), |stream| stream.tcp.peek())
    }

    /// Removes the first `bytes` bytes that [`LossyStreams::peek`] returns, because the program
    /// has consumed them.
    pub(crate) fn consume(&mut self, id: u16, bytes: usize) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.tcp.consume(bytes);
        self.due.insert(id);
        self.settle(id);
    }

    /// Closes the stream `id` on behalf of its program. Bytes that the program has written are
    /// sent first. At the exit, sends END on a stream that is not open yet. If the destination of
    /// an open stream has failed, removes the stream at once and returns the reason. The exit must
    /// then send END in ordinary cells of the circuit. Otherwise returns `None`.
    pub(crate) fn end(&mut self, id: u16, reason: EndReason) -> Option<EndReason> {
        let stream = self.streams.get_mut(&id)?;
        if self.side == Side::Exit && !stream.is_open {
            self.answer(id, RelayCommand::END, &[reason.0]);
            return None;
        }
        if self.side == Side::Exit && reason != EndReason::DONE {
            self.remove(id);
            return Some(reason);
        }
        stream.leave();
        self.due.insert(id);
        None
    }

    /// Handles END for the stream `id` that arrived in an ordinary cell of the circuit. Returns
    /// false if no stream over lossy cells (sent in datagrams) has or recently had this ID.
    pub(crate) fn ended(&mut self, id: u16, reason: EndReason) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return self.recent.contains(&id) };
        if let Some(key) = stream.key.take() {
            let happened = StreamEvent::Ended(key, reason, None, stream.unread());
            self.events.push_back(LossyEvent::StreamEvent(happened));
        }
        self.remove(id);
        true
    }

    /// Handles the decrypted body of a cell that arrived on the leg (parallel circuit) in slot
    /// `leg`. `has_room` is true if a further stream may be opened.
    ///
    /// # Errors
    /// Returns [`Malformed`] if the other end broke the protocol.
    pub(crate) fn arrive(
        &mut self,
        now: Time,
        (leg, body): (usize, &Body),
        has_room: bool,
        rng: &mut dyn CryptoRng,
    ) -> Result<(), Malformed> {
        let segment = read_segment(body).ok_or(Malformed)?;
        let id = segment.source;
        if let Some(stream) = self.streams.get_mut(&id) {
            let was_empty = !stream.is_open || stream.tcp.readable() == 0;
            stream.tcp.handle_by(now, leg, segment);
            let measured = |leg| stream.tcp.leg_rtt(leg);
            match &mut self.legs {
                Some(legs) => {
                    let known = legs.rtts.get_mut(leg);
                    known.into_iter().for_each(|rtt| *rtt = measured(leg).or(*rtt));
                }
                None => self.rtt = measured(0).or(self.rtt),
            }
            return self.progress(id, was_empty);
        }
        let may_begin = self.side == Side::Exit && has_room && !self.recent.contains(&id);
        let iss = Seq(rng.next_u32());
        let config = self.config(rng);
        let tcp = may_begin.then(|| Connection::accept(now, &config, iss, &segment)).flatten();
        match tcp {
            Some(mut tcp) => {
                self.equip(&mut tcp, Some(leg));
                self.insert(id, None, tcp);
                self.progress(id, true)
            }
            None => {
                self.resets.extend(segment.reset());
                Ok(())
            }
        }
    }

    /// Processes the bytes that the stream `id` has received. `was_empty` is true if the stream's
    /// local program had no bytes to read before.
    fn progress(&mut self, id: u16, was_empty: bool) -> Result<(), Malformed> {
        self.due.insert(id);
        // After the program has left, received bytes are discarded, perhaps before the first
        // message is complete.
        if self.streams.get(&id).is_some_and(|stream| !stream.has_head && !stream.left) {
            self.take_head(id)?;
        }
        self.wake_reader(id, was_empty);
        self.settle(id);
        Ok(())
    }

    /// Parses and removes the other end's first message (BEGIN, CONNECTED or END) on the stream
    /// `id`, if it has arrived completely.
    fn take_head(&mut self, id: u16) -> Result<(), Malformed> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let Some((command, data)) = read_head(stream.tcp.peek())? else { return Ok(()) };
        stream.tcp.consume(HEAD + data.len());
        stream.has_head = true;
        let key = stream.key;
        match (self.side, command, key) {
            (Side::Exit, RelayCommand::BEGIN, _) => {
                self.events.push_back(LossyEvent::Begun(id, data));
            }
            (Side::Client, RelayCommand::CONNECTED, _) if is_connected(&data) => {
                stream.is_open = true;
                self.events.extend(key.map(LossyEvent::Connected));
            }
            (Side::Client, RelayCommand::END, _) => {
                let (reason, refused) = read_end(&data);
                stream.leave();
                let ended = |key| {
                    LossyEvent::StreamEvent(StreamEvent::Ended(
                        key,
                        reason,
                        refused,
                        <_>::default(),
                    ))
                };
                self.events.extend(key.map(ended));
            }
            _ => return Err(Malformed),
        }
        Ok(())
    }

    /// Notifies the local program of the stream `id` that it can read, if it had nothing to read
    /// before (`was_empty`).
    fn wake_reader(&mut self, id: u16, was_empty: bool) {
        let Some(stream) = self.streams.get(&id).filter(|stream| stream.is_open) else { return };
        let wakes = was_empty && stream.tcp.readable() > 0;
        if let Some(key) = stream.key.filter(|_| wakes) {
            self.events.push_back(LossyEvent::StreamEvent(StreamEvent::Readable(key)));
        }
    }

    /// Notifies the local program of the stream `id` that there is room to write, or that the
    /// stream has ended. Drops received bytes if the program has closed the stream.
    fn settle(&mut self, id: u16) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.left && stream.tcp.readable() > 0 {
            stream.tcp.consume(usize::MAX);
            self.due.insert(id);
        }
        self.count(id);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(key) = stream.key else {
            // The client has closed the stream before all of its BEGIN arrived.
            if !stream.has_head && !stream.left && stream.tcp.is_finished() {
                stream.leave();
                self.due.insert(id);
            }
            return;
        };
        if stream.starved && stream.tcp.room() >= BUFFER / 2 {
            stream.starved = false;
            self.events.push_back(LossyEvent::StreamEvent(StreamEvent::Room(key)));
        }
        let failed = stream.tcp.ending().and_then(reason);
        let is_over = stream.tcp.is_finished() && stream.tcp.readable() == 0;
        let finished =
            is_over.then_some(if stream.is_open { EndReason::DONE } else { EndReason::MISC });
        if let Some(reason) = failed.or(finished) {
            let happened = StreamEvent::Ended(key, reason, None, stream.unread());
            stream.leave();
            self.due.insert(id);
            self.events.push_back(LossyEvent::StreamEvent(happened));
        }
    }

    /// Returns true if an event of a stream waits to be fetched.
    pub(crate) fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// Removes and returns the next event of a stream; `None` if there is none.
    pub(crate) fn event(&mut self) -> Option<LossyEvent> {
        self.events.pop_front()
    }

    /// Returns the next cell to send now. `legs` are the legs (parallel circuits) of the circuit
    /// set; `None` if the set can have only one circuit. Returns `None` if nothing can be sent
    /// now.
    pub(crate) fn poll(&mut self, now: Time, legs: Option<&mut LossyLegs>) -> Option<LossyCell> {
        if let Some(reset) = self.resets.pop_front() {
            return Some(LossyCell::new(&reset, None));
        }
        let mut legs = legs.filter(|_| self.legs.is_some());
        let knows_legs = legs.is_some();
        let mut choose = |views: &[PathView], waiting: u64| {
            legs.as_mut().and_then(|legs| legs.choose_by(now, views, waiting))
        };
        while let Some(&(time, id)) = self.timers.first().filter(|(time, _)| *time <= now) {
            self.timers.remove(&(time, id));
            self.due.insert(id);
        }
        while let Some(&id) = self.due.first() {
            let stream = self.streams.get_mut(&id);
            let next = stream.and_then(|stream| stream.tcp.poll_by(now, &mut choose));
            if let Some((leg, segment)) = next {
                return Some(LossyCell::new(&segment, knows_legs.then_some(leg)));
            }
            self.due.remove(&id);
            self.rest(id);
        }
        None
    }

    /// Sets the timer of the stream `id`, which has nothing to send. If the stream has ended,
    /// removes the stream instead.
    fn rest(&mut self, id: u16) {
        self.settle(id);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let has_ended = matches!(stream.tcp.state(), State::Closed | State::TimeWait);
        if has_ended && stream.key.is_none() {
            return self.remove(id);
        }
        let next = stream.tcp.next_timeout();
        if let Some(before) = std::mem::replace(&mut stream.timer, next) {
            self.timers.remove(&(before, id));
        }
        self.timers.extend(next.map(|time| (time, id)));
    }

    fn remove(&mut self, id: u16) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.held -= stream.held;
        self.due.remove(&id);
        if let Some(time) = stream.timer {
            self.timers.remove(&(time, id));
        }
        let excess = (self.recent.len() + 1).saturating_sub(RECENT);
        self.recent.drain(..excess);
        self.recent.push_back(id);
    }

    /// Returns the new time for the node's one timer for all these streams. Returns `None` if the
    /// timer is already set for an earlier time, or if no timer is needed.
    pub(crate) fn alarm(&mut self) -> Option<Time> {
        let (next, _) = *self.timers.first()?;
        let is_earlier = self.armed.is_none_or(|armed| next < armed);
        is_earlier.then(|| *self.armed.insert(next))
    }

    /// Notes that the node's timer for all these streams has expired.
    pub(crate) fn expired(&mut self) {
        self.armed = None;
    }

    /// Removes all streams, because the circuit is closed. Returns the streams that programs still
    /// use, with their unread bytes.
    pub(crate) fn take_all(&mut self) -> Vec<(StreamKey, VecDeque<u8>)> {
        self.held = 0;
        let streams = std::mem::take(&mut self.streams).into_values();
        streams.filter_map(|stream| Some((stream.key?, stream.unread()))).collect()
    }
}

impl LossyStream {
    /// Closes this end of the stream, after sending the bytes that the program has written.
    fn leave(&mut self) {
        (self.key, self.left) = (None, true);
        self.tcp.close();
    }

    /// Returns the received bytes that the stream's local program has not read.
    fn unread(&self) -> VecDeque<u8> {
        let (front, back) = if self.is_open { self.tcp.peek() } else { (&[][..], &[][..]) };
        front.iter().chain(back).copied().collect()
    }
}

/// Returns the reason to report for a TCP connection that has failed; `None` if the connection has
/// ended normally.
fn reason(ending: Ending) -> Option<EndReason> {
    match ending {
        Ending::Finished | Ending::Aborted => None,
        Ending::TimedOut => Some(EndReason::TIMEOUT),
        // The other end no longer knows the stream.
        _ => Some(EndReason::DESTROY),
    }
}
