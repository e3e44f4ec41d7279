//! The streams of one set (parallel circuits between the same two ends). The streams take turns to
//! send cells.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use anabranch_multipath::{PathId, Time};
use rand_core::CryptoRng;

use crate::conflux::{Design, StreamWindows, is_counted};
use crate::congestion::Params;
use crate::stream::{Broken, ControlMessage, Side, Stream, StreamFlow, StreamKey};
use crate::wire::cell::Body;
use crate::wire::message::{
    EndReason, Format, Message, RelayCommand, data_of, is_xoff, read_end, read_xon, write_header,
};
use turns::Turns;

mod turns;

/// An event of a stream, reported to the stream's local program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamEvent {
    /// The stream has bytes to read, after it had none before.
    Readable(StreamKey),
    /// The stream has room for bytes from the program, after it was full before.
    Room(StreamKey),
    /// The peer closed the stream. Contains the reason, the destination's address if the peer's
    /// exit policy refuses it, and the bytes that the program has not read yet.
    Ended(StreamKey, EndReason, Option<IpAddr>, VecDeque<u8>),
    /// Our END message of the stream has been sent.
    Finished(StreamKey),
}

/// Kind of a message that was written into a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilledMessage {
    /// A DATA message, which counts for the flow-control window.
    Data,
    /// A message that does not count for the flow-control window.
    Control,
}

/// Kind of the next message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A DATA message. It counts for the flow-control window. In a set of several parallel
    /// circuits, it gets a sequence number.
    Data,
    /// A message other than DATA. `counted` is true if it gets a sequence number in a set of
    /// several parallel circuits. `by` is the leg (parallel circuit) on which it must be sent;
    /// `None` for any leg.
    Control { counted: bool, by: Option<PathId> },
    /// A message that was sent on a lost leg (parallel circuit) and must be sent again.
    Again,
}

/// The index of the leg (circuit) in a circuit set with only one leg.
pub(crate) const ONLY: PathId = PathId(0);

/// The leg (parallel circuit) on which a message is sent.
#[derive(Clone, Copy)]
pub(crate) struct OutLeg<'a> {
    /// The slot of the leg (parallel circuit) in the circuit set.
    pub(crate) by: PathId,
    /// Format of relay messages in the cells of the leg (parallel circuit).
    pub(crate) format: Format,
    /// True if the leg (parallel circuit) has room for a DATA cell.
    pub(crate) has_room: bool,
    /// Bytes that some designs of circuit sets place before the message's data: the sequence
    /// number.
    pub(crate) prefix: &'a [u8],
}

/// The streams of one circuit set.
pub(crate) struct Streams {
    side: Side,
    flow: StreamFlow,
    /// True if the circuit set ever had a stream.
    used: bool,
    params: Arc<Params>,
    streams: BTreeMap<u16, Stream>,
    turns: Turns,
    /// The last ID that this end assigned to a stream.
    last_id: u16,
    control: VecDeque<ControlMessage>,
    happened: VecDeque<StreamEvent>,
    /// Maximum number of bytes that a stream may receive beyond its window. When a missing message
    /// arrives on another leg (parallel circuit), the data that waited for it is delivered at
    /// once.
    burst: usize,
    /// The legs (parallel circuits) on which data may be sent now. Used only if streams have a
    /// window on each leg.
    open: Vec<PathId>,
    /// The leg (parallel circuit) on which the message being handled arrived; `None` if that leg
    /// is closed.
    arrival_leg: Option<PathId>,
    /// Total bytes of stream data received, and total sent.
    pub(crate) transferred: [u64; 2],
}

impl Streams {
    /// Returns a state without streams. `congestion_control` is true if the circuits of the set
    /// have congestion control.
    pub(crate) fn new(side: Side, congestion_control: bool, params: &Arc<Params>) -> Streams {
        let flow = match congestion_control {
            true => StreamFlow::Rates,
            false => StreamFlow::Windows(StreamWindows::One),
        };
        Streams {
            side,
            flow,
            used: false,
            params: Arc::clone(params),
            streams: BTreeMap::new(),
            turns: Turns::default(),
            last_id: 0,
            control: VecDeque::new(),
            happened: VecDeque::new(),
            burst: 0,
            open: Vec::new(),
            arrival_leg: Some(ONLY),
            transferred: [0; 2],
        }
    }

    /// Adds a stream with the ID `id` and the key `key`. Returns false if the ID is in use.
    pub(crate) fn add(&mut self, id: u16, key: StreamKey) -> bool {
        if id == 0 || self.streams.contains_key(&id) {
            return false;
        }
        let stream = Stream::new(key, id, self.side, self.flow, &self.params);
        self.streams.insert(id, stream);
        self.used = true;
        true
    }

    /// Returns true if there ever was a stream or a name lookup in the circuit set.
    pub(crate) fn were_used(&self) -> bool {
        self.used
    }

    /// Returns true if there are no streams, and no messages or events of streams are pending.
    pub(crate) fn are_idle(&self) -> bool {
        self.streams.is_empty() && self.control.is_empty() && self.happened.is_empty()
    }

    /// Returns true if the circuits of these streams have congestion control. There are then no
    /// SENDMEs for streams.
    pub(crate) fn have_congestion_control(&self) -> bool {
        self.flow == StreamFlow::Rates
    }

    /// Sets the kind of flow-control windows that the circuit set's `design` needs. Must be called
    /// before the set has a stream.
    pub(crate) fn adopt(&mut self, design: Design) {
        if let StreamFlow::Windows(windows) = &mut self.flow {
            *windows = design.stream_windows();
        }
    }

    /// Returns true if each stream has a window on each leg (parallel circuit).
    pub(crate) fn have_leg_windows(&self) -> bool {
        self.flow == StreamFlow::Windows(StreamWindows::EachLeg)
    }

    /// Sets the legs (parallel circuits) on which data may be sent now.
    pub(crate) fn may_go_by(&mut self, legs: impl Iterator<Item = PathId>) {
        self.open.clear();
        self.open.extend(legs);
    }

    /// Returns true if at least one stream may send data on `leg` (a parallel circuit) now.
    pub(crate) fn may_send_by(&mut self, now: Time, leg: PathId) -> bool {
        self.turns.wake(now);
        self.next_on(now, leg).is_some()
    }

    /// Sets the leg (parallel circuit) on which the next messages to handle arrived; `None` if
    /// that leg is closed.
    pub(crate) fn set_arrival_leg(&mut self, leg: Option<PathId>) {
        self.arrival_leg = leg;
    }

    /// Notes that `message` arrived on `leg` (a parallel circuit), but waits for earlier messages.
    /// `much_waits` is true if the queue of waiting messages is at least half full.
    ///
    /// # Errors
    /// Returns [`Broken`] if the peer sent more data than a window allows.
    pub(crate) fn received_early(
        &mut self,
        now: Time,
        leg: PathId,
        message: Message<'_>,
        much_waits: bool,
    ) -> Result<(), Broken> {
        let stream = self.streams.get_mut(&message.stream);
        let stream = stream.filter(|_| message.command == RelayCommand::DATA);
        let received = (message.data.len(), leg);
        stream.map_or(Ok(()), |stream| {
            stream.received_early(now, received, much_waits, &mut self.control)
        })
    }

    /// Removes a lost leg (parallel circuit), and the messages that could only be sent on that
    /// leg.
    pub(crate) fn lost(&mut self, leg: PathId) {
        self.control.retain(|control| control.by != Some(leg));
        self.streams.values_mut().for_each(|stream| stream.lost(leg));
        if self.have_leg_windows() {
            self.turns.lost(leg);
        }
    }

    /// Sets the ID after which [`Streams::next_id`] starts its search for a free ID.
    pub(crate) fn number_from(&mut self, last_id: u16) {
        self.last_id = last_id;
    }

    /// Returns the next free ID for a stream that is opened at this end; `None` if all IDs are in
    /// use.
    pub(crate) fn next_id(&mut self) -> Option<u16> {
        let mut ids = (1..=u16::MAX).map(|step| self.last_id.wrapping_add(step));
        let id = ids.find(|id| *id != 0 && !self.streams.contains_key(id))?;
        self.last_id = id;
        Some(id)
    }

    /// Calls `act` with the stream that has the ID `id`, if there is one. Returns the result of
    /// `act`.
    pub(crate) fn with<T>(&mut self, id: u16, act: impl FnOnce(&mut Stream) -> T) -> Option<T> {
        let stream = self.streams.get_mut(&id)?;
        let done = act(stream);
        self.turns.note(id, Some(stream));
        Some(done)
    }

    /// Returns a shared reference to the stream with the ID `id`; `None` if there is none.
    pub(crate) fn peek(&self, id: u16) -> Option<&Stream> {
        self.streams.get(&id)
    }

    /// Returns the number of streams.
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Removes and returns the stream `id`, without sending a message. Returns `None` if there is
    /// none.
    pub(crate) fn remove(&mut self, id: u16) -> Option<Stream> {
        self.turns.note(id, None);
        self.streams.remove(&id)
    }

    /// Removes and returns all streams.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Stream> {
        self.turns = Turns::default();
        std::mem::take(&mut self.streams).into_values()
    }

    /// Queues a message other than DATA.
    pub(crate) fn queue_control(&mut self, command: RelayCommand, stream: u16, data: Vec<u8>) {
        self.control.push_back(ControlMessage { command, stream, data, by: None });
    }

    /// Removes and returns the next event of the streams; `None` if no event waits.
    pub(crate) fn happened(&mut self) -> Option<StreamEvent> {
        self.happened.pop_front()
    }

    /// Returns true if a stream has bytes to send.
    pub(crate) fn is_wanting(&self) -> bool {
        self.turns.is_wanting()
    }

    /// Returns the earliest time after `now` at which a stream with a limited rate may send again;
    /// `None` if no rate limit delays a stream.
    pub(crate) fn wake_at(&mut self, now: Time) -> Option<Time> {
        self.turns.wake(now)
    }

    /// Notes that the program of the stream `id` has read `bytes` bytes.
    pub(crate) fn consumed(&mut self, now: Time, id: u16, bytes: usize) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.consumed(now, bytes, &mut self.control);
        }
    }

    /// Handles a message of a stream, with a command that both clients and exits may receive.
    /// Messages of a closed stream are ignored, because the peer may have sent them before it knew
    /// of the closing.
    pub(crate) fn take(&mut self, now: Time, message: Message<'_>) -> Result<(), Broken> {
        let id = message.stream;
        if message.command == RelayCommand::END {
            if let Some(Stream { key, incoming, .. }) = self.remove(id) {
                let (reason, refused) = read_end(message.data);
                self.happened.push_back(StreamEvent::Ended(key, reason, refused, incoming));
            }
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        match message.command {
            RelayCommand::DATA if stream.open || self.side == Side::Exit => {
                self.transferred[0] += message.data.len() as u64;
                let received = (message.data, self.arrival_leg);
                if stream.received(now, received, self.burst, &mut self.control)? && stream.open {
                    self.happened.push_back(StreamEvent::Readable(stream.key));
                }
                Ok(())
            }
            RelayCommand::SENDME => {
                let by = self.arrival_leg.unwrap_or(ONLY);
                self.with(id, |stream| stream.acknowledged(by)).unwrap_or(Ok(()))
            }
            RelayCommand::XOFF if is_xoff(message.data) => self.set_rate(now, id, None),
            RelayCommand::XON => {
                let rate = read_xon(message.data).ok_or(Broken::Malformed)?;
                self.set_rate(now, id, Some(rate))
            }
            RelayCommand::XOFF => Err(Broken::Malformed),
            _ => Err(Broken::OutOfPlace),
        }
    }

    fn set_rate(&mut self, now: Time, id: u16, rate: Option<u32>) -> Result<(), Broken> {
        self.with(id, |stream| stream.set_rate(now, rate)).unwrap_or(Ok(()))
    }

    /// Returns the number of data cells to send in this `format`. Returns `u64::MAX` if a program
    /// has more bytes to write than fit into a stream's send buffer.
    pub(crate) fn waiting(&self, format: Format) -> u64 {
        let bytes = self.turns.unsent();
        bytes.map_or(u64::MAX, |bytes| bytes.div_ceil(format.data()) as u64)
    }

    /// Asks the peer to pause all streams if `pause` is true, and to resume them otherwise. Streams
    /// pause while too many bytes wait for earlier messages on other legs (parallel circuits).
    pub(crate) fn set_paused(&mut self, now: Time, pause: bool) {
        for stream in self.streams.values_mut() {
            stream.set_paused(now, pause, &mut self.control);
        }
    }

    /// Sets the maximum number of bytes that a stream may receive beyond its flow-control window,
    /// because a missing message releases all data that waited for it.
    pub(crate) fn allow_burst(&mut self, bytes: usize) {
        self.burst = bytes;
    }

    /// Returns the kind of message that [`Streams::fill`] would write now. Returns [`Next::Data`]
    /// only if `data` is true. Returns `None` if there is nothing to send.
    pub(crate) fn next(&mut self, now: Time, data: bool) -> Option<Next> {
        if let Some(ControlMessage { command, stream, by, .. }) = self.control.front() {
            return Some(Next::Control { counted: is_counted(*command, *stream), by: *by });
        }
        let (_, end) = self.next_in_turn(now, data)?;
        Some(if end.is_some() { Next::Control { counted: true, by: None } } else { Next::Data })
    }

    /// Writes the next message into the body of a cell for this leg (parallel circuit). Writes
    /// DATA only if the leg has room for data. Returns the kind of the message; `None` if there is
    /// nothing to send.
    pub(crate) fn fill(
        &mut self,
        now: Time,
        OutLeg { by, format, has_room, prefix }: OutLeg<'_>,
        body: &mut Body,
        rng: &mut dyn CryptoRng,
    ) -> Option<FilledMessage> {
        if let Some(control) = self.control.pop_front() {
            let ControlMessage { command, stream, data, .. } = &control;
            write_pieces(format, body, (*command, *stream), [prefix, data], rng);
            return Some(FilledMessage::Control);
        }
        self.may_go_by(std::iter::once(by));
        let (id, due) = self.next_in_turn(now, has_room)?;
        if let Some(reason) = due {
            let stream = self.remove(id).expect("the stream was found above");
            self.happened.push_back(StreamEvent::Finished(stream.key));
            write_pieces(format, body, (RelayCommand::END, id), [prefix, &[reason.0]], rng);
            return Some(FilledMessage::Control);
        }
        let (before, data) = data_of(format, RelayCommand::DATA, body).split_at_mut(prefix.len());
        before.copy_from_slice(prefix);
        let filled = self.with(id, |stream| (stream.fill(by, data), stream.key));
        let ((length, fed), key) = filled.expect("the stream was found above");
        if fed {
            self.happened.push_back(StreamEvent::Room(key));
        }
        self.turns.sent(self.queue_of(by), id);
        self.transferred[1] += length as u64;
        write_header(format, body, RelayCommand::DATA, id, prefix.len() + length, rng);
        Some(FilledMessage::Data)
    }

    /// Returns the ID of the next stream that may send; `None` if no stream may. Streams with only
    /// data to send count only if `data` is true. If the stream must send END instead of data,
    /// also returns the reason. END messages come first, because each stream has only one, and
    /// both ends keep state for the stream until END is sent.
    fn next_in_turn(&mut self, now: Time, data: bool) -> Option<(u16, Option<EndReason>)> {
        self.turns.wake(now);
        if let Some(id) = self.turns.next_ending() {
            return Some((id, self.streams.get(&id)?.due_end()));
        }
        let id = if data { self.next_sending(now) } else { None };
        id.map(|id| (id, None))
    }

    /// Returns the ID of the next stream that may send data; `None` if no stream may. If streams
    /// have a window on each leg (parallel circuit), uses the first leg of `open` on which any
    /// stream may send.
    fn next_sending(&mut self, now: Time) -> Option<u16> {
        match self.have_leg_windows() {
            true => (0..self.open.len()).find_map(|place| self.next_on(now, self.open[place])),
            false => self.next_on(now, ONLY),
        }
    }

    /// Returns the ID of the next stream that may send data on `leg`; `None` if no stream may.
    /// Streams that may not send on this leg (parallel circuit) are skipped until their state
    /// changes.
    fn next_on(&mut self, now: Time, leg: PathId) -> Option<u16> {
        let queue = self.queue_of(leg);
        let Streams { streams, turns, .. } = self;
        while let Some(id) = turns.next_ready(queue) {
            let stream = streams.get_mut(&id)?;
            if stream.has_data(now, &[leg]) {
                return Some(id);
            }
            turns.park(queue, id, stream.wake_at());
        }
        None
    }

    /// Returns the leg (parallel circuit) whose queue of streams serves cells on `leg`. It is
    /// `leg` itself if streams have a window on each leg. Otherwise all legs share one queue.
    fn queue_of(&self, leg: PathId) -> PathId {
        if self.have_leg_windows() { leg } else { ONLY }
    }
}

/// Writes a message of a stream into the body of a cell. `data` is the message's data in two
/// parts.
pub(crate) fn write_pieces(
    format: Format,
    body: &mut Body,
    (command, stream): (RelayCommand, u16),
    data: [&[u8]; 2],
    rng: &mut dyn CryptoRng,
) {
    let [before, rest] = data;
    let (front, back) = data_of(format, command, body).split_at_mut(before.len());
    front.copy_from_slice(before);
    back[..rest.len()].copy_from_slice(rest);
    write_header(format, body, command, stream, before.len() + rest.len(), rng);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::looks;
    use crate::wire::cell::BODY;
    use crate::wire::message;
    use anabranch_multipath::seed;

    fn end(congestion_control: bool) -> Streams {
        let mut end = Streams::new(Side::Exit, congestion_control, &Arc::new(Params::default()));
        for id in [1, 2] {
            assert!(end.add(id, StreamKey(id.into())));
            end.with(id, |stream| stream.open = true).unwrap();
        }
        end
    }

    fn filled(end: &mut Streams) -> Option<(RelayCommand, u16, usize)> {
        let mut body = [0; BODY];
        let onto = OutLeg { by: ONLY, format: Format::V0, has_room: true, prefix: &[] };
        end.fill(Time::ZERO, onto, &mut body, &mut seed::stream(1, 0, "end"))?;
        let message = message::read(Format::V0, &body).unwrap();
        Some((message.command, message.stream, message.data.len()))
    }

    fn data(end: &mut Streams, id: u16) -> Result<(), Broken> {
        end.take(Time::ZERO, Message { command: RelayCommand::DATA, stream: id, data: &[1; 498] })
    }

    #[test]
    fn streams_send_in_turn_and_end_behind_their_last_byte() {
        let mut end = end(true);
        end.with(1, |stream| stream.write(&[1; 70 * 498]));
        end.with(2, |stream| stream.write(&[2; 100]));
        end.with(2, |stream| stream.end(EndReason::DONE));
        let (d, e) = (RelayCommand::DATA, RelayCommand::END);
        let run = std::iter::repeat_n((d, 1, 498), usize::from(turns::RUN));
        let rest = std::iter::repeat_n((d, 1, 498), 70 - usize::from(turns::RUN));
        let expected = run.chain([(d, 2, 100), (e, 2, 1)]).chain(rest);
        expected.for_each(|cell| assert_eq!(filled(&mut end), Some(cell)));
        assert_eq!(filled(&mut end), None);
        assert_eq!(end.happened(), Some(StreamEvent::Finished(StreamKey(2))));
    }

    /// Sends `count` cells, and returns the stream of each cell in order. Writes more data to each
    /// stream in `busy` before each cell, so that these streams can always send.
    fn streams_of(end: &mut Streams, busy: &[u16], count: usize) -> Vec<u16> {
        let cell = |_| {
            for id in busy {
                end.with(*id, |stream| stream.write(&[1; 498])).unwrap();
            }
            filled(end).unwrap().1
        };
        (0..count).map(cell).collect()
    }

    #[test]
    fn a_stream_sends_a_run_of_cells_and_each_gets_the_same_share() {
        let mut end = busy_end(8);
        let busy: Vec<u16> = (1..=10).collect();
        let sent = streams_of(&mut end, &busy, 10 * 10 * usize::from(turns::RUN));
        let changes = sent.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert_eq!(changes, 10 * 10 - 1);
        for id in busy {
            assert_eq!(sent.iter().filter(|it| **it == id).count(), 10 * usize::from(turns::RUN));
        }
    }

    #[test]
    fn a_request_does_not_wait_for_a_run_of_each_download() {
        let mut end = busy_end(98);
        let busy: Vec<u16> = (1..=99).collect();
        // Each download has one turn.
        streams_of(&mut end, &busy, 99 * usize::from(turns::RUN));
        end.with(100, |stream| stream.write(&[1; 100])).unwrap();
        let sent = streams_of(&mut end, &busy, 1 + usize::from(turns::RUN));
        assert!(sent.contains(&100), "at most one run goes before it");
    }

    #[test]
    fn a_stream_that_writes_again_and_again_gets_no_more_than_its_share() {
        let mut end = busy_end(2);
        let mut sent = [0; 5];
        for _ in 0..4000 {
            for id in 1..=3 {
                end.with(id, |stream| stream.write(&[1; 498])).unwrap();
            }
            // Stream 4 always has one cell to send, and never more.
            if end.peek(4).unwrap().unsent() == 0 {
                end.with(4, |stream| stream.write(&[1; 498])).unwrap();
            }
            sent[usize::from(filled(&mut end).unwrap().1)] += 1;
        }
        assert!(sent[4] <= 1000 + usize::from(turns::RUN), "{sent:?}");
    }

    #[test]
    fn a_window_that_is_not_opened_is_not_to_be_exceeded() {
        let mut end = end(false);
        (0..500).for_each(|_| data(&mut end, 1).unwrap());
        assert_eq!(data(&mut end, 1), Err(Broken::Flood));
    }

    #[test]
    fn a_program_that_reads_opens_the_window() {
        let mut end = end(false);
        for _ in 0..100 {
            (0..50).for_each(|_| data(&mut end, 1).unwrap());
            end.consumed(Time::ZERO, 1, 50 * 498);
            while filled(&mut end).is_some() {}
        }
    }

    #[test]
    fn with_congestion_control_a_flood_is_what_exceeds_window_and_xoff() {
        let mut end = end(true);
        let mut cells = 0;
        while data(&mut end, 1).is_ok() {
            cells += 1;
        }
        assert_eq!(cells, 5500);
        assert_eq!(filled(&mut end), Some((RelayCommand::XOFF, 1, 1)));
        assert_eq!(filled(&mut end), None, "said once");
    }

    #[test]
    fn acknowledgements_that_are_not_owed_are_broken() {
        let sendme = Message { command: RelayCommand::SENDME, stream: 1, data: &[] };
        assert_eq!(end(false).take(Time::ZERO, sendme), Err(Broken::OutOfPlace));
        assert_eq!(end(true).take(Time::ZERO, sendme), Err(Broken::OutOfPlace));
    }

    #[test]
    fn a_program_is_told_when_there_is_room_again() {
        let mut end = end(true);
        let mut write = |bytes: &[u8]| end.with(1, |stream| stream.write(bytes)).unwrap();
        assert_eq!((write(&[0; 1 << 20]), write(&[0; 1])), (128 * 498, 0));
        while filled(&mut end).is_some() {}
        assert_eq!(end.happened(), Some(StreamEvent::Room(StreamKey(1))));
        assert_eq!(end.happened(), None);
    }

    /// Returns the streams of an exit: the streams 1 and 2, and `idle` additional ones. All are
    /// open and have no data.
    fn busy_end(idle: u16) -> Streams {
        let mut end = end(true);
        for id in 3..idle + 3 {
            assert!(end.add(id, StreamKey(id.into())));
            end.with(id, |stream| stream.open = true).unwrap();
        }
        end
    }

    #[test]
    fn a_cell_costs_no_more_where_there_are_60_000_idle_streams() {
        let looked = |idle| {
            let mut end = busy_end(idle);
            let before = looks();
            for _ in 0..100 {
                end.with(1, |stream| stream.write(&[7; 498]));
                assert_eq!(filled(&mut end), Some((RelayCommand::DATA, 1, 498)));
                assert_eq!(end.wake_at(Time::ZERO), None);
                assert!(!end.is_wanting() && end.waiting(Format::V0) == 0);
            }
            looks() - before
        };
        assert_eq!(looked(60_000), looked(0));
    }

    #[test]
    fn streams_that_were_stopped_are_not_looked_at_until_they_may_go_on() {
        let mut end = busy_end(400);
        for id in 3..403 {
            end.with(id, |stream| stream.write(&[1; 498])).unwrap();
        }
        let xoff = Message { command: RelayCommand::XOFF, stream: 1, data: &[0] };
        // A peer may pause a stream that has sent enough data.
        end.with(1, |stream| stream.write(&[1; 127 * 498])).unwrap();
        let mut sent = 0;
        while sent < 600 {
            end.with(1, |stream| stream.write(&[1; 498])).unwrap();
            sent += usize::from(matches!(filled(&mut end), Some((_, 1, _))));
        }
        end.take(Time::ZERO, xoff).unwrap();
        assert_eq!(filled(&mut end), None, "the others have sent all that they had");
        assert!(end.is_wanting() && end.turns.next_ready(ONLY).is_none());
        let data = message::put_xon(0);
        let xon = Message { command: RelayCommand::XON, stream: 1, data: &data };
        end.take(Time::ZERO, xon).unwrap();
        assert_eq!(filled(&mut end), Some((RelayCommand::DATA, 1, 498)));
    }

    #[test]
    fn a_stream_that_keeps_to_a_rate_is_waited_for_and_goes_on_in_time() {
        let mut end = end(true);
        let data = message::put_xon(498);
        let xon = Message { command: RelayCommand::XON, stream: 1, data: &data };
        end.take(Time::ZERO, xon).unwrap();
        let mut now = Time::ZERO;
        let mut sent = 0;
        let onto = |end: &mut Streams, now| {
            let onto = OutLeg { by: ONLY, format: Format::V0, has_room: true, prefix: &[] };
            end.fill(now, onto, &mut [0; BODY], &mut seed::stream(1, 0, "end")).is_some()
        };
        while now < Time::from_secs(3) {
            end.with(1, |stream| stream.write(&[1; 20_000])).unwrap();
            if onto(&mut end, now) {
                sent += 1;
                continue;
            }
            let wake = end.wake_at(now).unwrap();
            assert!(wake > now, "it may not send before");
            now = wake;
        }
        // The bytes that the rate allows in the first second may be sent at once.
        assert!((3999..=4001).contains(&sent), "{sent} cells in 3 s");
    }

    #[test]
    fn with_a_window_on_each_leg_a_stream_that_one_leg_does_not_take_goes_by_another() {
        let mut end = Streams::new(Side::Exit, false, &Arc::new(Params::default()));
        end.flow = StreamFlow::Windows(StreamWindows::EachLeg);
        assert!(end.add(1, StreamKey(1)));
        end.with(1, |stream| stream.open = true).unwrap();
        let mut by = |leg, count: usize| {
            let sent = (0..count).filter(|_| {
                end.with(1, |stream| stream.write(&[1; 498])).unwrap();
                let onto = OutLeg { by: leg, format: Format::V0, has_room: true, prefix: &[] };
                let rng = &mut seed::stream(1, 0, "end");
                end.fill(Time::ZERO, onto, &mut [0; BODY], rng).is_some()
            });
            sent.count()
        };
        assert_eq!([by(PathId(0), 600), by(PathId(1), 600)], [500, 500]);
    }

    /// Sends at most `cells` cells on `leg`, and returns their streams. Stops if the leg (parallel
    /// circuit) accepts no more.
    fn sent_by(end: &mut Streams, leg: PathId, cells: usize) -> Vec<u16> {
        let sent = |_| {
            let onto = OutLeg { by: leg, format: Format::V0, has_room: true, prefix: &[] };
            let mut body = [0; BODY];
            end.fill(Time::ZERO, onto, &mut body, &mut seed::stream(1, 0, "end"))?;
            Some(message::read(Format::V0, &body).unwrap().stream)
        };
        (0..cells).map_while(sent).collect()
    }

    #[test]
    fn with_a_window_on_each_leg_a_cell_costs_no_more_where_a_leg_takes_no_other_stream() {
        let looked = |others: u16| {
            let mut end = busy_end(others);
            end.flow = StreamFlow::Windows(StreamWindows::EachLeg);
            let ids: Vec<u16> = end.streams.keys().copied().collect();
            let (side, params) = (end.side, Arc::clone(&end.params));
            for &id in &ids {
                let stream = end.streams.get_mut(&id).unwrap();
                *stream = Stream::new(StreamKey(id.into()), id, side, end.flow, &params);
                stream.open = true;
            }
            let (slow, quick) = (PathId(0), PathId(1));
            // Every stream but the first uses up its window on the slow leg, and has more to send.
            for &id in &ids[1..] {
                for _ in 0..5 {
                    end.with(id, |stream| stream.write(&[1; 100 * 498])).unwrap();
                    assert_eq!(sent_by(&mut end, slow, 100), vec![id; 100]);
                }
                end.with(id, |stream| stream.write(&[1; 100 * 498])).unwrap();
            }
            assert_eq!(sent_by(&mut end, slow, 1), [0; 0]);
            let before = looks();
            for _ in 0..100 {
                end.with(1, |stream| stream.write(&[1; 498])).unwrap();
                end.may_go_by([slow, quick].into_iter());
                assert_eq!(end.next(Time::ZERO, true), Some(Next::Data));
                assert!(end.may_send_by(Time::ZERO, slow));
                assert_eq!(sent_by(&mut end, slow, 1), [1]);
                assert!(!end.may_send_by(Time::ZERO, slow));
            }
            let looked = looks() - before;
            // The other leg takes them all in turn, and a SENDME puts one back on the slow leg.
            let sent = sent_by(&mut end, quick, usize::from(others) * 100);
            assert_eq!(sent.iter().collect::<std::collections::BTreeSet<_>>().len(), ids.len() - 1);
            end.with(2, |stream| stream.write(&[1; 498])).unwrap();
            assert_eq!(sent_by(&mut end, slow, 1), [0; 0]);
            end.set_arrival_leg(Some(slow));
            let sendme = Message { command: RelayCommand::SENDME, stream: 2, data: &[] };
            end.take(Time::ZERO, sendme).unwrap();
            assert_eq!(sent_by(&mut end, slow, 1), [2]);
            looked
        };
        assert_eq!(looked(400), looked(4));
    }
}
