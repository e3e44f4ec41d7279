//! The chopper: a byte stream in each direction, cut into blocks that any connection may carry.
//!
//! A [`Link`] has a fixed number of places for connections, and seals the bytes for each
//! connection. A slot decides how these bytes look on the wire.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_multipath::{Assignment, LegView, PathId, PathView, Splitter, Time};

use crate::block::{self, BadSeal, Opener, Sealer};
use crate::budget::Budget;
use crate::carrier::{Carrier, RoundTrip};
use crate::frame::{Ack, BadFrame, DATA_OVERHEAD, Frame};
use crate::inbox::{Inbox, Overrun};
use crate::outbox::Outbox;
use crate::secrets::LinkSecrets;
use crate::slot::Profile;

/// Maximum length of a control frame, in bytes.
const WORD: usize = 9;
/// Room for a block that contains only a control frame, in bytes.
const WORD_ROOM: usize = block::OVERHEAD + WORD;
/// Number of new bytes after which the server advertises its backlog again, while the client knows
/// of less than [`MANY`] bytes.
const NEWS: u64 = 16 << 10;
/// Advertised backlog in bytes above which the server sends no updates.
const MANY: u64 = 256 << 10;
/// Coalescing delay for less than [`FEW`] bytes on an idle link.
const GATHERS: Duration = Duration::from_millis(5);
/// Coalescing delay for less than [`FEW`] bytes, while messages are frequent.
const GATHERS_BUSY: Duration = Duration::from_millis(20);
/// Number of waiting bytes that are sent without a coalescing delay.
const FEW: usize = 16 << 10;
/// Round-trip time that is assumed before one was measured.
const UNKNOWN_TRIP: Duration = Duration::from_millis(100);
/// Time for which a link counts as active after data were transferred.
const ACTIVE: Duration = Duration::from_secs(5);

/// Error: the other end violates the protocol, or a third party wrote the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkViolation;

impl From<BadSeal> for LinkViolation {
    fn from(_: BadSeal) -> LinkViolation {
        LinkViolation
    }
}

impl From<BadFrame> for LinkViolation {
    fn from(_: BadFrame) -> LinkViolation {
        LinkViolation
    }
}

impl From<Overrun> for LinkViolation {
    fn from(_: Overrun) -> LinkViolation {
        LinkViolation
    }
}

/// The end of the link at which this program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// The first control frame of this end on a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// A SEAT. The other end has to answer, and may delay its answer by this time.
    Asks(Duration),
    /// A PONG, which is sent at once.
    Answers,
    /// None: the first message is sent for another reason.
    Waits,
}

/// Room for hidden bytes in the next message of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Maximum number of hidden bytes in the message.
    pub(crate) bytes: usize,
    /// The part of `bytes` that is reserved for control frames and acknowledgements.
    pub(crate) reserved: usize,
}

/// One end of a link.
pub(crate) struct Link {
    aes: bool,
    sealer: Sealer,
    opener: Opener,
    outbox: Outbox,
    inbox: Inbox,
    splitter: Splitter,
    chunk: usize,
    /// Connections by their numbers, including closed ones that still have debts.
    carriers: BTreeMap<u64, Carrier>,
    /// The connection at each place. Most places are free, so each connection has a box.
    places: Vec<Option<Box<PlacedConn>>>,
    /// The frames of the block that was opened last.
    frames: Vec<u8>,
    trip: RoundTrip,
    /// Send time of the most recently sent block that has arrived over any connection.
    later: Time,
    /// Index of the place that last received something to be acknowledged.
    last: usize,
    /// Total bytes of the other end's stream, as it last advertised.
    written: u64,
    /// Number of the connection that carried the last acknowledgement.
    acknowledged_by: u64,
    /// Time at which data were last sent or received.
    active: Time,
    reset: Reset,
    /// Whether the other end has to send more bytes once it has begun an answer, until the exchange
    /// ends.
    awaits_ends: bool,
    /// Whether the other end has to know of waiting data before it can fetch them.
    advertises_written: bool,
    /// Total bytes of the stream that were advertised to the other end.
    advertised_written: u64,
    /// Whether messages are costly and should therefore be few. Waiting data then go into as few
    /// messages as can hold them.
    gathers: bool,
    /// Time since which a small number of bytes has been waiting for more; `None` if none wait.
    waits: Option<Time>,
    /// Maximum time for which an end may be silent although its connection works.
    pauses: Duration,
    /// Minimum room that an acknowledgement needs.
    ack_room: usize,
    /// Places whose connections were replaced since the last call of [`Link::evicted`].
    evicted: Vec<usize>,
    /// Views of all places for the scheduler; a buffer.
    views: Vec<PathView>,
    /// Places in the order in which [`Link::gather`] fills them; a buffer.
    order: Vec<usize>,
}

/// A place with its connection.
struct PlacedConn {
    id: u64,
    /// Received bytes that are not a complete block yet.
    partial: Vec<u8>,
    /// Sealed bytes that are to be sent over the connection.
    hidden: Vec<u8>,
    /// Room of the next message, without the sealed bytes.
    room: Room,
    /// The client's index of the connection; `None` if it is not known.
    seat: Option<u64>,
    control: Option<ControlFrame>,
}

/// A control frame that is to be sent over a connection.
#[derive(Clone, Copy)]
enum ControlFrame {
    Ping,
    Pong,
    Reset,
    Seat(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reset {
    Not,
    Ours,
    Theirs,
}

impl Link {
    /// Creates a link with the keys in `secrets` and `places` places for connections, which is the
    /// number that the splitter assumes.
    pub(crate) fn new(
        secrets: &LinkSecrets,
        side: Side,
        (splitter, places): (Splitter, usize),
        profile: Profile,
    ) -> Link {
        let (chunk, exchanges) = (profile.family().chunk, !profile.family().streams);
        let mut inbox = Inbox::new(places);
        if profile.family().gathers && side == Side::Client {
            inbox.be_patient();
        }
        let (out, back) = match side {
            Side::Client => (&secrets.up, &secrets.down),
            Side::Server => (&secrets.down, &secrets.up),
        };
        Link {
            aes: secrets.aes,
            sealer: Sealer::new(out, secrets.aes),
            opener: Opener::new(back, secrets.aes),
            outbox: Outbox::new(chunk),
            inbox,
            splitter,
            chunk,
            carriers: BTreeMap::new(),
            places: (0..places).map(|_| None).collect(),
            frames: Vec::new(),
            trip: RoundTrip::default(),
            later: Time::ZERO,
            last: 0,
            written: 0,
            acknowledged_by: 0,
            active: Time::ZERO,
            reset: Reset::Not,
            awaits_ends: exchanges && side == Side::Client,
            advertises_written: exchanges && side == Side::Server,
            advertised_written: 0,
            gathers: profile.family().gathers,
            waits: None,
            pauses: Duration::ZERO,
            ack_room: profile.family().ack_room,
            evicted: Vec::new(),
            views: Vec::new(),
            order: Vec::new(),
        }
    }

    /// Sets the maximum time for which an end may be silent although its connection works.
    pub(crate) fn allow_pauses(&mut self, longest: Duration) {
        self.pauses = longest;
    }

    /// Records a round-trip time that the handshake has measured.
    pub(crate) fn measured(&mut self, trip: Duration) {
        self.trip.measured(trip);
    }

    /// Accepts bytes from the program. Returns how many were accepted.
    pub(crate) fn write(&mut self, bytes: &[u8], budget: &mut Budget) -> usize {
        self.outbox.write(bytes, budget)
    }

    /// Returns the number of bytes that [`Link::write`] accepts now.
    pub(crate) fn room(&self, budget: &Budget) -> usize {
        self.outbox.room(budget)
    }

    /// Ends the stream that this end sends.
    pub(crate) fn finish(&mut self) {
        self.outbox.finish();
    }

    /// Resets the link at once, and queues a RESET on every connection.
    pub(crate) fn reset(&mut self) {
        if self.reset == Reset::Not {
            self.reset = Reset::Ours;
            let places = self.places.iter_mut().flatten();
            places.for_each(|place| place.control = Some(ControlFrame::Reset));
        }
    }

    /// Returns the next bytes from the other end's program.
    pub(crate) fn read(&mut self, now: Time, budget: &mut Budget) -> Option<Vec<u8>> {
        let bytes = self.inbox.read();
        let trip = self.trip.smooth().unwrap_or(UNKNOWN_TRIP);
        if bytes.is_some() {
            self.inbox.raise(now, trip, budget);
        }
        bytes
    }

    /// Returns whether the other end's stream has ended and has been read completely.
    pub(crate) fn has_ended(&self) -> bool {
        self.inbox.is_done()
    }

    /// Returns whether both streams have ended, and both ends know this.
    pub(crate) fn is_done(&self) -> bool {
        self.outbox.is_done() && self.inbox.has_acknowledged_end()
    }

    /// Returns whether either end has reset the link. After a reset by this end, returns true only
    /// once every RESET frame has been sealed.
    pub(crate) fn is_reset(&self) -> bool {
        let told = || self.places.iter().flatten().all(|place| place.control.is_none());
        self.reset == Reset::Theirs || self.reset == Reset::Ours && told()
    }

    /// Returns whether data were transferred recently, or wait at either end.
    pub(crate) fn is_active(&self, now: Time) -> bool {
        now.since(self.active) < ACTIVE || !self.outbox.is_empty() || self.backlog() > 0
    }

    /// Returns the number of bytes that have not been acknowledged.
    pub(crate) fn waiting(&self) -> usize {
        self.outbox.held()
    }

    /// Returns the number of bytes that the other end has advertised and that have not arrived:
    /// they wait at the other end, or are in flight.
    pub(crate) fn backlog(&self) -> u64 {
        self.written.saturating_sub(self.inbox.received_bytes())
    }

    /// Returns the number of bytes that need new messages now, and the minimum room of each of
    /// these messages.
    pub(crate) fn wants(&mut self, now: Time) -> (usize, usize) {
        if let Some(least) = self.outbox.least_room() {
            let since = *self.waits.get_or_insert(now);
            if now >= since + self.patience() {
                let bytes = self.outbox.sendable().max(1);
                return (bytes, least + block::OVERHEAD + self.ack_room);
            }
        }
        let due = self.inbox.ack_due(now).is_some_and(|due| now >= due);
        (usize::from(due), self.ack_room)
    }

    /// Returns the coalescing delay of waiting data.
    fn patience(&self) -> Duration {
        let few = self.outbox.sendable() < FEW && !self.outbox.is_urgent();
        match (self.gathers && few, self.backlog()) {
            (false, _) => Duration::ZERO,
            (true, 0) => GATHERS,
            (true, _) => GATHERS_BUSY,
        }
    }

    /// Returns the approximate bytes of memory for received data, and for data to be sent.
    pub(crate) fn kept(&self) -> (usize, usize) {
        let places = || self.places.iter().flatten();
        let partial: usize = places().map(|place| place.partial.len()).sum();
        let hidden: usize = places().map(|place| place.hidden.len()).sum();
        (self.inbox.kept() + partial, self.outbox.kept() + hidden)
    }

    /// Returns how many bytes of [`Link::kept`] exceed the link's allowance, which covers only data
    /// to be sent.
    pub(crate) fn excess(&self, budget: &Budget) -> usize {
        let (came, goes) = self.kept();
        came + goes.saturating_sub(self.outbox.allowed(budget))
    }

    /// Returns to the budget the memory of data that have arrived at the other end.
    pub(crate) fn settle(&mut self, budget: &mut Budget) {
        self.outbox.settle(budget);
    }

    /// Frees unused buffer capacity after both streams have ended.
    pub(crate) fn shrink(&mut self) {
        self.frames = Vec::new();
        self.outbox.shrink();
        self.inbox.shrink();
        for place in self.places.iter_mut().flatten() {
            place.partial.shrink_to_fit();
            place.hidden.shrink_to_fit();
        }
    }

    /// Returns all memory of a link that is over to the budget.
    pub(crate) fn release(&mut self, budget: &mut Budget) {
        self.inbox.release(budget);
        self.outbox.release(budget);
    }

    /// Adds connection `id` at a place, in which it replaces any earlier one. `first` are the bytes
    /// to send before all blocks: a token or an ANSWER.
    pub(crate) fn open(
        &mut self,
        now: Time,
        (place, id): (usize, u64),
        opening: Opening,
        first: &[u8],
    ) {
        self.lost(now, place);
        let hold = if let Opening::Asks(hold) = opening { hold } else { self.pauses };
        let mut carrier = Carrier::new(now, place, self.trip, hold);
        if matches!(opening, Opening::Asks(_)) {
            carrier.asked(now);
            // Earlier connections may have stopped working together with the last acknowledgement.
            // It is repeated here before any byte of the other end arrives: this connection may
            // stop working, too, once some have arrived.
            self.inbox.repeat_ack(now);
            self.last = place;
        }
        let control = match opening {
            Opening::Asks(_) => Some(ControlFrame::Seat(place as u64)),
            Opening::Answers => Some(ControlFrame::Pong),
            Opening::Waits => None,
        };
        self.carriers.insert(id, carrier);
        let hidden = first.to_vec();
        let (partial, room) = (Vec::new(), Room::default());
        let held = PlacedConn { id, partial, hidden, room, seat: None, control };
        self.places[place] = Some(Box::new(held));
    }

    /// Removes the connection from a place after its end. Its unacknowledged blocks may still have
    /// arrived.
    pub(crate) fn over(&mut self, place: usize) {
        let Some(gone) = self.places[place].take() else { return };
        if let Some(carrier) = self.carriers.get_mut(&gone.id) {
            carrier.over();
        }
    }

    /// Removes a lost connection from its place. Its unacknowledged chunks have to be sent again,
    /// and so does an acknowledgement that it carried.
    pub(crate) fn lost(&mut self, now: Time, place: usize) {
        let Some(gone) = self.places[place].take() else { return };
        if gone.id == self.acknowledged_by {
            self.inbox.repeat_ack(now);
            self.advertised_written = 0;
        }
        if let Some(carrier) = self.carriers.remove(&gone.id) {
            carrier.debts().for_each(|chunk| self.outbox.failed(gone.id, chunk));
        }
    }

    /// Returns the connection at `place`; `None` if the place is free.
    pub(crate) fn carrier(&self, place: usize) -> Option<&Carrier> {
        self.carriers.get(&self.places.get(place)?.as_ref()?.id)
    }

    /// Returns the place whose connection has been silent for the longest time.
    pub(crate) fn longest_silent(&self) -> Option<usize> {
        let held = self.carriers.values().filter_map(|one| Some((one.heard(), one.place?)));
        held.min().map(|(_, place)| place)
    }

    /// Probes the connection at `place` with a PING.
    pub(crate) fn ping(&mut self, now: Time, place: usize) {
        let Some(held) = self.places.get_mut(place).and_then(Option::as_mut) else { return };
        held.control = Some(held.control.unwrap_or(ControlFrame::Ping));
        if let Some(carrier) = self.carriers.get_mut(&held.id) {
            carrier.asked(now);
        }
    }

    /// Records that bytes were received at `place`, hidden or not.
    pub(crate) fn note_activity(&mut self, now: Time, place: usize) {
        let more = self.awaits_ends.then_some(self.pauses);
        let held = self.places.get(place).and_then(Option::as_ref);
        if let Some(carrier) = held.and_then(|held| self.carriers.get_mut(&held.id)) {
            carrier.note_activity(now, more);
        }
    }

    /// Processes bytes received at `place`. Returns the number of blocks that they complete.
    ///
    /// # Errors
    /// The other end did not send the bytes, so the connection is unusable.
    pub(crate) fn receive(
        &mut self,
        now: Time,
        place: usize,
        bytes: &[u8],
    ) -> Result<usize, LinkViolation> {
        let held = self.places.get_mut(place).and_then(Option::as_mut);
        let Some(held) = held else { return Ok(0) };
        let (id, mut partial) = (held.id, std::mem::take(&mut held.partial));
        let more = self.awaits_ends.then_some(self.pauses);
        if let Some(carrier) = self.carriers.get_mut(&id) {
            carrier.note_activity(now, more);
        }
        partial.extend_from_slice(bytes);
        let (mut start, mut blocks) = (0, 0);
        while let Some(length) = self.opener.open(&partial[start..], &mut self.frames)? {
            start += length;
            blocks += 1;
            self.block(now, place, id)?;
        }
        partial.drain(..start);
        if let Some(held) = &mut self.places[place] {
            held.partial = partial;
        }
        Ok(blocks)
    }

    /// Processes the frames of a block that was just opened.
    fn block(&mut self, now: Time, place: usize, id: u64) -> Result<(), LinkViolation> {
        let frames = std::mem::take(&mut self.frames);
        let (mut rest, mut asks) = (&frames[..], false);
        while let Some(frame) = Frame::read(&mut rest)? {
            asks |= self.frame(now, place, &frame)?;
        }
        self.frames = frames;
        let Some(carrier) = self.carriers.get_mut(&id) else { return Ok(()) };
        carrier.came += 1;
        self.inbox.block(now, id, carrier.came, asks);
        if asks {
            self.last = place;
        }
        Ok(())
    }

    /// Processes a frame. Returns whether the frame needs an acknowledgement.
    fn frame(&mut self, now: Time, place: usize, frame: &Frame<'_>) -> Result<bool, LinkViolation> {
        match frame {
            Frame::Data { chunk, bytes } => {
                self.active = now;
                self.inbox.chunk(now, PathId::at(place), *chunk, Some(bytes))?;
            }
            Frame::Fin { chunk } => self.inbox.chunk(now, PathId::at(place), *chunk, None)?,
            Frame::Reset => self.reset = Reset::Theirs,
            Frame::Ack(ack) => self.acknowledged(now, ack)?,
            Frame::Ping => {
                if let Some(held) = &mut self.places[place] {
                    held.control = Some(held.control.unwrap_or(ControlFrame::Pong));
                }
            }
            Frame::Pong => {}
            Frame::Seat(seat) => self.set_seat(now, place, *seat),
        }
        Ok(matches!(frame, Frame::Data { .. } | Frame::Fin { .. } | Frame::Ping))
    }

    /// Records the client's index of the connection at `place`. Evicts an earlier connection with
    /// the same index, whose end may not have been noticed here.
    fn set_seat(&mut self, now: Time, place: usize, seat: u64) {
        let had = |held: &Option<Box<PlacedConn>>| {
            held.as_ref().is_some_and(|held| held.seat == Some(seat))
        };
        let stale = self.places.iter().position(had).filter(|&stale| stale != place);
        if let Some(stale) = stale {
            self.lost(now, stale);
            self.evicted.push(stale);
        }
        if let Some(held) = &mut self.places[place] {
            held.seat = Some(seat);
        }
    }

    /// Removes and returns the list of places whose connections have to be closed.
    pub(crate) fn evicted(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.evicted)
    }

    fn acknowledged(&mut self, now: Time, ack: &Ack) -> Result<(), LinkViolation> {
        if !self.outbox.acknowledged(ack) {
            return Err(LinkViolation);
        }
        self.written = self.written.max(ack.written);
        for (id, blocks) in &ack.receipts {
            let carrier = self.carriers.get_mut(id);
            if let Some(sent) = carrier.and_then(|carrier| carrier.receipt(now, *blocks)) {
                self.trip.measured(now.since(sent));
                self.later = self.later.max(sent);
            }
        }
        Ok(())
    }

    /// Processes timeouts. Marks the unacknowledged chunks of connections that have become silent
    /// for retransmission.
    pub(crate) fn tick(&mut self, now: Time) {
        for carrier in self.carriers.values_mut() {
            let sent = carrier.settle(now, |chunk| self.outbox.has_arrived(chunk));
            self.later = self.later.max(sent.unwrap_or(Time::ZERO));
        }
        let later = self.later;
        self.carriers.retain(|&id, carrier| {
            if carrier.falls_silent(now, later) {
                if id == self.acknowledged_by {
                    self.inbox.repeat_ack(now);
                    self.advertised_written = 0;
                }
                carrier.debts().for_each(|chunk| self.outbox.failed(id, chunk));
            }
            carrier.place.is_some() || !(carrier.is_even() || carrier.silent().is_some())
        });
    }

    /// Returns the time at which [`Link::tick`] or [`Link::deal`] has work to do.
    pub(crate) fn next_timeout(&self, now: Time) -> Option<Time> {
        let silence = self.carriers.values().filter_map(|one| one.deadline(self.later)).min();
        let ack = self.inbox.ack_due(now).filter(|&due| due > now);
        let waits = self.waits.map(|since| since + self.patience()).filter(|&due| due > now);
        [silence, ack, waits].into_iter().flatten().min()
    }

    /// Seals the acknowledgements, control frames and chunks that have to be sent now, for the next
    /// messages at the places in `rooms`. Each place has the room of its next message.
    pub(crate) fn deal(&mut self, now: Time, rooms: impl Iterator<Item = (usize, Room)>) {
        self.set_rooms(rooms);
        self.deal_ack(now);
        self.deal_control_frames(now);
        for held in self.places.iter_mut().flatten() {
            held.room.bytes = held.room.bytes.saturating_sub(held.room.reserved);
        }
        if self.gathers {
            self.gather();
        }
        while self.deal_chunk(now) {}
        self.waits = self.waits.filter(|_| self.outbox.least_room().is_some());
    }

    fn set_rooms(&mut self, rooms: impl Iterator<Item = (usize, Room)>) {
        self.places.iter_mut().flatten().for_each(|held| held.room = Room::default());
        for (place, room) in rooms {
            if let Some(held) = &mut self.places[place] {
                let bytes = room.bytes.saturating_sub(held.hidden.len());
                held.room = Room { bytes, ..room };
            }
        }
    }

    fn room_at(&self, place: usize) -> usize {
        self.places[place].as_ref().map_or(0, |held| held.room.bytes)
    }

    /// Sets the room to zero at every place that the waiting data do not need. Keeps places that
    /// have to send a message anyway, and then those with the most room.
    fn gather(&mut self) {
        let bytes = self.outbox.sendable();
        let mut needs = bytes + (bytes / self.chunk + 1) * (block::OVERHEAD + DATA_OVERHEAD);
        let mut order = std::mem::take(&mut self.order);
        order.extend((0..self.places.len()).filter(|&place| self.room_at(place) > 0));
        order.sort_by_key(|&place| Reverse((self.sealed(place) > 0, self.room_at(place))));
        for place in order.drain(..) {
            let Some(held) = &mut self.places[place] else { continue };
            let takes = held.room.bytes.min(needs);
            needs -= takes;
            held.room.bytes = if takes > 0 { held.room.bytes } else { 0 };
        }
        self.order = order;
    }

    fn deal_control_frames(&mut self, now: Time) {
        for place in 0..self.places.len() {
            if self.room_at(place) < WORD_ROOM {
                continue;
            }
            let Some((frame, asks)) = self.take_control_frame(place) else { continue };
            self.put(now, place, asks, |_, out| {
                frame.write(out);
                None
            });
        }
    }

    /// Removes and returns the control frame of a place, with whether it needs an acknowledgement.
    fn take_control_frame(&mut self, place: usize) -> Option<(Frame<'static>, bool)> {
        let control = self.places[place].as_mut()?.control.take()?;
        Some(match control {
            ControlFrame::Ping => (Frame::Ping, true),
            ControlFrame::Pong => (Frame::Pong, false),
            ControlFrame::Reset => (Frame::Reset, false),
            ControlFrame::Seat(seat) => (Frame::Seat(seat), false),
        })
    }

    /// Returns whether the backlog has to be advertised: once `goes` bytes are sent, more bytes are
    /// left than the other end knows of.
    fn must_advertise(&self, goes: usize) -> bool {
        let (written, left) = (self.outbox.written(), self.outbox.unsent().saturating_sub(goes));
        let known = (left as u64).saturating_sub(written - self.advertised_written.min(written));
        let news = left as u64 - known;
        let few = known < MANY && (news >= NEWS || known == 0 && news > 0);
        self.advertises_written && few
    }

    /// Returns whether to send an acknowledgement now: it is due, it can accompany data, or the
    /// backlog has to be advertised. `goes` is the number of bytes for which the connections have
    /// room.
    fn acks(&self, now: Time, goes: usize) -> bool {
        let along = self.gathers && goes > 0 && self.outbox.least_room().is_some();
        let due = self.inbox.ack_due(now).is_some_and(|due| along || due <= now);
        due || self.must_advertise(goes)
    }

    fn deal_ack(&mut self, now: Time) {
        let rooms = self.places.iter().flatten().map(|held| held.room);
        let goes = rooms.map(|room| room.bytes.saturating_sub(room.reserved)).sum();
        if !self.acks(now, goes) {
            return;
        }
        let takes = |place: &usize| self.room_at(*place) >= self.ack_room;
        let carries = |place: &usize| {
            takes(place) && self.carrier(*place).is_some_and(|one| one.silent().is_none())
        };
        let all = || std::iter::once(self.last).chain(0..self.places.len());
        let Some(place) = all().find(carries).or_else(|| all().find(takes)) else { return };
        // A waiting control frame is put into the same block: the overhead of another block is
        // half a request.
        let control = self.take_control_frame(place);
        let room = self.room_at(place).saturating_sub(WORD);
        let ack = Frame::Ack(self.inbox.ack(self.outbox.written(), room));
        self.advertised_written = self.outbox.written();
        self.acknowledged_by = self.places[place].as_ref().map_or(0, |held| held.id);
        let asks = control.as_ref().is_some_and(|(_, asks)| *asks);
        self.put(now, place, asks, |_, out| {
            control.iter().for_each(|(frame, _)| frame.write(out));
            ack.write(out);
            None
        });
    }

    /// Seals one chunk at a place that the scheduler chooses. Returns false if there is no chunk
    /// to send, or no place for it.
    fn deal_chunk(&mut self, now: Time) -> bool {
        let Some(least) = self.outbox.least_room() else { return false };
        let least = least + block::OVERHEAD;
        let mut views = std::mem::take(&mut self.views);
        views.clear();
        views.extend((0..self.places.len()).map(|place| self.view(place, least)));
        let assigned = self.splitter.assign(now, &views, self.outbox.waiting().max(1));
        self.views = views;
        let Assignment::Send { path, .. } = assigned else { return false };
        self.active = now;
        let place = path.index();
        let Some(held) = &self.places[place] else { return false };
        let (id, room) = (held.id, (held.room.bytes - block::OVERHEAD).min(block::MOST));
        let mut dealt = None;
        self.put(now, place, true, |outbox, out| {
            dealt = outbox.next(id, room, out);
            dealt
        });
        dealt.is_some()
    }

    /// Returns the scheduler's view of a place, with its window in chunks.
    fn view(&self, place: usize, least: usize) -> PathView {
        let Some(carrier) = self.carrier(place) else { return PathView::dead() };
        if carrier.silent().is_some() {
            return PathView::dead();
        }
        let room = self.room_at(place);
        let chunks = (room / self.chunk).max(1);
        let window = if room < least { 0 } else { chunks as u64 };
        let trip = carrier.trip().smooth().or(self.trip.smooth()).unwrap_or(UNKNOWN_TRIP);
        PathView::leg(Some(trip), window, LegView::NOTHING)
    }

    /// Seals a block at a place, with the frames that `write` appends. `write` returns the number
    /// of the block's chunk, if it has one.
    fn put(
        &mut self,
        now: Time,
        place: usize,
        asks: bool,
        write: impl FnOnce(&mut Outbox, &mut Vec<u8>) -> Option<u64>,
    ) {
        let Some(held) = &mut self.places[place] else { return };
        let (outbox, before, mut chunk) = (&mut self.outbox, held.hidden.len(), None);
        self.sealer.seal(self.aes, &mut held.hidden, |out| chunk = write(outbox, out));
        held.room.bytes = held.room.bytes.saturating_sub(held.hidden.len() - before);
        if let Some(carrier) = self.carriers.get_mut(&held.id) {
            carrier.sent(now, chunk, asks);
        }
    }

    /// Returns the number of sealed bytes that wait at a place.
    pub(crate) fn sealed(&self, place: usize) -> usize {
        self.places[place].as_ref().map_or(0, |held| held.hidden.len())
    }

    /// Removes and returns the sealed bytes of a place, padded to `length`. `length` is at most
    /// [`Link::sealed`], or exceeds that by at least [`block::OVERHEAD`].
    pub(crate) fn take(&mut self, now: Time, place: usize, length: usize) -> Vec<u8> {
        while let Some(held) = &mut self.places[place] {
            let missing = length.saturating_sub(held.hidden.len());
            if missing < block::OVERHEAD {
                return std::mem::take(&mut held.hidden);
            }
            let most = block::MOST + block::OVERHEAD;
            // The remainder has to be long enough for another block.
            let part = if missing > most { most - block::OVERHEAD } else { missing };
            self.put(now, place, false, |_, out| {
                out.resize(out.len() + part - block::OVERHEAD, 0);
                None
            });
        }
        Vec::new()
    }
}
