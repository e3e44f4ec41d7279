//! The chopper: a byte stream each way, cut in blocks that go by whichever connection takes them.
//!
//! A [`Link`] knows places, at each of which a connection may stand, and seals for each what is to
//! go by it. What these bytes look like on the wire is the affair of a slot.

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

/// Bytes of a word at most, and room that it needs in a block of its own.
const WORD: usize = 9;
const WORD_ROOM: usize = block::OVERHEAD + WORD;
/// A server tells of so many bytes more that wait, as long as its client knows of fewer than many.
const NEWS: u64 = 16 << 10;
const MANY: u64 = 256 << 10;
/// A few bytes wait so long for others that go by the same message: alone, and while messages go
/// often. As many as these wait for none.
const GATHERS: Duration = Duration::from_millis(5);
const GATHERS_BUSY: Duration = Duration::from_millis(20);
const FEW: usize = 16 << 10;
/// Before a round trip was measured.
const UNKNOWN_TRIP: Duration = Duration::from_millis(100);
/// A link is active for so long after it carried data.
const ACTIVE: Duration = Duration::from_secs(5);

/// The other end does not keep to the protocol, or somebody else speaks.
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

/// Which end of a link this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// What is to be heard first of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// We wait for a sign of the other end, which may keep it back so long.
    Asks(Duration),
    /// We give one at once.
    Answers,
    /// We give one with the first message that there is.
    Waits,
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
    /// Connections by their numbers, and those that are over and owe something.
    carriers: BTreeMap<u64, Carrier>,
    places: Vec<Option<Place>>,
    /// The frames of a block that was opened.
    frames: Vec<u8>,
    trip: RoundTrip,
    /// When the youngest block was sent that has come.
    later: Time,
    /// Where something came last that is to be acknowledged.
    last: usize,
    /// Bytes of the other end's stream, as far as it told.
    written: u64,
    /// The connection by which the last acknowledgement went.
    told_by: u64,
    /// When data came or went last.
    active: Time,
    reset: Reset,
    /// Whether what stands at a place is an exchange, and the other end's part of it ends: then one
    /// that began has to go on.
    awaits_ends: bool,
    /// Whether the other end has to know what waits here before it can come; and how many bytes of
    /// the stream it was told of.
    tells_written: bool,
    told_written: u64,
    /// Whether a message has its price, so that there are to be few: what there is to say goes by
    /// as few as take it; and since when a few bytes wait for others.
    gathers: bool,
    waits: Option<Time>,
    /// How long an end is silent at most though its connection goes on.
    pauses: Duration,
    /// Room that an acknowledgement takes at least.
    ack_room: usize,
    /// Places that others have taken since [`Link::evicted`] was asked.
    evicted: Vec<usize>,
}

/// What stands at a place.
struct Place {
    id: u64,
    /// What came by it and is not a whole block yet.
    partial: Vec<u8>,
    /// What is to go by it.
    hidden: Vec<u8>,
    /// The client's own number of the place.
    seat: Option<u64>,
    word: Option<Word>,
}

/// A word that is to go by this connection.
#[derive(Clone, Copy)]
enum Word {
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
    /// A link of these keys, whose connections stand at the places of the splitter.
    pub(crate) fn new(
        secrets: &LinkSecrets,
        side: Side,
        (splitter, places): (Splitter, usize),
        profile: Profile,
    ) -> Link {
        let (chunk, exchanges) = (profile.chunk(), !profile.streams());
        let mut inbox = Inbox::new(places);
        if profile.gathers() && side == Side::Client {
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
            told_by: 0,
            active: Time::ZERO,
            reset: Reset::Not,
            awaits_ends: exchanges && side == Side::Client,
            tells_written: exchanges && side == Side::Server,
            told_written: 0,
            gathers: profile.gathers(),
            waits: None,
            pauses: Duration::ZERO,
            ack_room: profile.ack_room(),
            evicted: Vec::new(),
        }
    }

    /// An end may be silent for so long though its connection goes on.
    pub(crate) fn allow_pauses(&mut self, longest: Duration) {
        self.pauses = longest;
    }

    /// A round trip that was measured elsewhere.
    pub(crate) fn measured(&mut self, trip: Duration) {
        self.trip.measured(trip);
    }

    /// Takes bytes of the program's: how many.
    pub(crate) fn write(&mut self, bytes: &[u8], budget: &mut Budget) -> usize {
        self.outbox.write(bytes, budget)
    }

    /// Bytes that [`Link::write`] takes now.
    pub(crate) fn room(&self, budget: &Budget) -> usize {
        self.outbox.room(budget)
    }

    /// The program's stream ends.
    pub(crate) fn finish(&mut self) {
        self.outbox.finish();
    }

    /// The link ends at once; the other end is told by all connections there are.
    pub(crate) fn reset(&mut self) {
        if self.reset == Reset::Not {
            self.reset = Reset::Ours;
            let places = self.places.iter_mut().flatten();
            places.for_each(|place| place.word = Some(Word::Reset));
        }
    }

    /// The next bytes of the other end's program.
    pub(crate) fn read(&mut self, now: Time, budget: &mut Budget) -> Option<Vec<u8>> {
        let bytes = self.inbox.read();
        let trip = self.trip.smooth().unwrap_or(UNKNOWN_TRIP);
        if bytes.is_some() {
            self.inbox.raise(now, trip, budget);
        }
        bytes
    }

    /// Whether the other end's stream has ended and was read.
    pub(crate) fn has_ended(&self) -> bool {
        self.inbox.is_done()
    }

    /// Whether both streams have ended, and both ends know.
    pub(crate) fn is_done(&self) -> bool {
        self.outbox.is_done() && self.inbox.has_told_end()
    }

    /// Whether either end has reset the link; if it was ours, all have been told that can be.
    pub(crate) fn is_reset(&self) -> bool {
        let told = || self.places.iter().flatten().all(|place| place.word.is_none());
        self.reset == Reset::Theirs || self.reset == Reset::Ours && told()
    }

    /// Whether data came or went lately, or wait on either side.
    pub(crate) fn is_active(&self, now: Time) -> bool {
        now.since(self.active) < ACTIVE || !self.outbox.is_empty() || self.backlog() > 0
    }

    /// Bytes that wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.outbox.held()
    }

    /// Bytes that have not come, of those that the other end told of: they wait there, or are under
    /// way.
    pub(crate) fn backlog(&self) -> u64 {
        self.written.saturating_sub(self.inbox.came())
    }

    /// Bytes for which messages are to be begun now, and the room that each of these has to have.
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

    /// How long what waits to be sent waits for more that goes by the same message.
    fn patience(&self) -> Duration {
        let few = self.outbox.sendable() < FEW && !self.outbox.is_urgent();
        match (self.gathers && few, self.backlog()) {
            (false, _) => Duration::ZERO,
            (true, 0) => GATHERS,
            (true, _) => GATHERS_BUSY,
        }
    }

    /// Bytes of memory for what waits at this end, about: what came, and what is to go.
    pub(crate) fn kept(&self) -> (usize, usize) {
        let places = || self.places.iter().flatten();
        let partial: usize = places().map(|place| place.partial.len()).sum();
        let hidden: usize = places().map(|place| place.hidden.len()).sum();
        (self.inbox.kept() + partial, self.outbox.kept() + hidden)
    }

    /// Bytes of these beyond what it may keep for what is to go.
    pub(crate) fn excess(&self, budget: &Budget) -> usize {
        let (came, goes) = self.kept();
        came + goes.saturating_sub(self.outbox.allowed(budget))
    }

    /// Gives back memory for what has come at the other end.
    pub(crate) fn settle(&mut self, budget: &mut Budget) {
        self.outbox.settle(budget);
    }

    /// Frees buffers that are empty: both streams are done.
    pub(crate) fn shrink(&mut self) {
        self.frames = Vec::new();
        self.outbox.shrink();
        self.inbox.shrink();
        for place in self.places.iter_mut().flatten() {
            place.partial.shrink_to_fit();
            place.hidden.shrink_to_fit();
        }
    }

    /// Gives back all memory: the link is over.
    pub(crate) fn release(&mut self, budget: &mut Budget) {
        self.inbox.release(budget);
        self.outbox.release(budget);
    }

    /// Connection `id` stands at a place; `first` goes before all blocks.
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
            // The connections before may have frozen with what was last told. It goes by this one,
            // before any byte of the other end's: it may freeze by the time that some have come.
            self.inbox.tell_again(now);
            self.last = place;
        }
        let word = match opening {
            Opening::Asks(_) => Some(Word::Seat(place as u64)),
            Opening::Answers => Some(Word::Pong),
            Opening::Waits => None,
        };
        self.carriers.insert(id, carrier);
        let hidden = first.to_vec();
        self.places[place] = Some(Place { id, partial: Vec::new(), hidden, seat: None, word });
    }

    /// What stood at a place is over; what it still owes may have come.
    pub(crate) fn over(&mut self, place: usize) {
        let Some(gone) = self.places[place].take() else { return };
        if let Some(carrier) = self.carriers.get_mut(&gone.id) {
            carrier.over();
        }
    }

    /// What stood at a place is lost, and what it owed and was told with it.
    pub(crate) fn lost(&mut self, now: Time, place: usize) {
        let Some(gone) = self.places[place].take() else { return };
        if gone.id == self.told_by {
            self.inbox.tell_again(now);
            self.told_written = 0;
        }
        if let Some(carrier) = self.carriers.remove(&gone.id) {
            carrier.debts().for_each(|chunk| self.outbox.failed(gone.id, chunk));
        }
    }

    /// The connection at a place.
    pub(crate) fn carrier(&self, place: usize) -> Option<&Carrier> {
        self.carriers.get(&self.places.get(place)?.as_ref()?.id)
    }

    /// The place whose connection was heard longest ago.
    pub(crate) fn stalest(&self) -> Option<usize> {
        let held = self.carriers.values().filter_map(|one| Some((one.heard(), one.place?)));
        held.min().map(|(_, place)| place)
    }

    /// Asks the connection at a place whether it carries anything.
    pub(crate) fn ping(&mut self, now: Time, place: usize) {
        let Some(held) = self.places.get_mut(place).and_then(Option::as_mut) else { return };
        held.word = Some(held.word.unwrap_or(Word::Ping));
        if let Some(carrier) = self.carriers.get_mut(&held.id) {
            carrier.asked(now);
        }
    }

    /// Something came by a place, hidden bytes or not.
    pub(crate) fn hears(&mut self, now: Time, place: usize) {
        let more = self.awaits_ends.then_some(self.pauses);
        let held = self.places.get(place).and_then(Option::as_ref);
        if let Some(carrier) = held.and_then(|held| self.carriers.get_mut(&held.id)) {
            carrier.hears(now, more);
        }
    }

    /// Bytes came by a place: how many blocks they ended.
    ///
    /// # Errors
    /// They are none of the other end's: the connection is of no use.
    pub(crate) fn came(
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
            carrier.hears(now, more);
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

    /// Takes a block that was opened.
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

    /// Takes a frame: whether it is to be acknowledged.
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
                    held.word = Some(held.word.unwrap_or(Word::Pong));
                }
            }
            Frame::Pong => {}
            Frame::Seat(seat) => self.sit(now, place, *seat),
        }
        Ok(matches!(frame, Frame::Data { .. } | Frame::Fin { .. } | Frame::Ping))
    }

    /// The connection at a place has this seat: another that had it is gone, though we may not have
    /// been told.
    fn sit(&mut self, now: Time, place: usize, seat: u64) {
        let had = |held: &Option<Place>| held.as_ref().is_some_and(|held| held.seat == Some(seat));
        let stale = self.places.iter().position(had).filter(|&stale| stale != place);
        if let Some(stale) = stale {
            self.lost(now, stale);
            self.evicted.push(stale);
        }
        if let Some(held) = &mut self.places[place] {
            held.seat = Some(seat);
        }
    }

    /// Places whose connections are to be closed.
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

    /// Time passes: what silent connections owe has to go by others.
    pub(crate) fn tick(&mut self, now: Time) {
        for carrier in self.carriers.values_mut() {
            let sent = carrier.settle(now, |chunk| self.outbox.has_come(chunk));
            self.later = self.later.max(sent.unwrap_or(Time::ZERO));
        }
        let later = self.later;
        self.carriers.retain(|&id, carrier| {
            if carrier.falls_silent(now, later) {
                if id == self.told_by {
                    self.inbox.tell_again(now);
                    self.told_written = 0;
                }
                carrier.debts().for_each(|chunk| self.outbox.failed(id, chunk));
            }
            carrier.place.is_some() || !(carrier.is_even() || carrier.silent().is_some())
        });
    }

    /// When [`Link::tick`] or [`Link::deal`] has something to do.
    pub(crate) fn next_timeout(&self, now: Time) -> Option<Time> {
        let silence = self.carriers.values().filter_map(|one| one.deadline(self.later)).min();
        let ack = self.inbox.ack_due(now).filter(|&due| due > now);
        let waits = self.waits.map(|since| since + self.patience()).filter(|&due| due > now);
        [silence, ack, waits].into_iter().flatten().min()
    }

    /// Seals what is to be sent now. `rooms` are the bytes that each place takes, less what it
    /// holds; they shrink. `spares` are those of them that chunks do not get.
    pub(crate) fn deal(&mut self, now: Time, rooms: &mut [usize], spares: &[usize]) {
        self.deal_ack(now, rooms, spares);
        self.deal_words(now, rooms);
        for (room, spare) in rooms.iter_mut().zip(spares) {
            *room = room.saturating_sub(*spare);
        }
        if self.gathers {
            self.gather(rooms);
        }
        while self.deal_chunk(now, rooms) {}
        self.waits = self.waits.filter(|_| self.outbox.least_room().is_some());
    }

    /// Leaves room where what waits takes it, and no other: at those places first by which
    /// something goes anyway, and then at those that have most.
    fn gather(&self, rooms: &mut [usize]) {
        let bytes = self.outbox.sendable();
        let mut needs = bytes + (bytes / self.chunk + 1) * (block::OVERHEAD + DATA_OVERHEAD);
        let mut places: Vec<usize> = (0..rooms.len()).filter(|&place| rooms[place] > 0).collect();
        places.sort_by_key(|&place| Reverse((self.held_at(place) > 0, rooms[place])));
        for place in places {
            let takes = rooms[place].min(needs);
            needs -= takes;
            rooms[place] = if takes > 0 { rooms[place] } else { 0 };
        }
    }

    fn deal_words(&mut self, now: Time, rooms: &mut [usize]) {
        for place in 0..self.places.len() {
            if rooms[place] < WORD_ROOM {
                continue;
            }
            let Some((frame, asks)) = self.take_word(place) else { continue };
            self.put(now, (place, rooms), asks, |_, out| {
                frame.write(out);
                None
            });
        }
    }

    /// The word that is to go by a place, and whether it is to be answered.
    fn take_word(&mut self, place: usize) -> Option<(Frame<'static>, bool)> {
        let word = self.places[place].as_mut()?.word.take()?;
        Some(match word {
            Word::Ping => (Frame::Ping, true),
            Word::Pong => (Frame::Pong, false),
            Word::Reset => (Frame::Reset, false),
            Word::Seat(seat) => (Frame::Seat(seat), false),
        })
    }

    /// Whether more is left here than the other end knows of, once these many bytes have gone.
    fn has_to_tell(&self, goes: usize) -> bool {
        let (written, left) = (self.outbox.written(), self.outbox.unsent().saturating_sub(goes));
        let known = (left as u64).saturating_sub(written - self.told_written.min(written));
        let news = left as u64 - known;
        let few = known < MANY && (news >= NEWS || known == 0 && news > 0);
        self.tells_written && few
    }

    /// Whether an acknowledgement has to go, or goes along with what goes anyway.
    fn acks(&self, now: Time, goes: usize) -> bool {
        let along = self.gathers && goes > 0 && self.outbox.least_room().is_some();
        let due = self.inbox.ack_due(now).is_some_and(|due| along || due <= now);
        due || self.has_to_tell(goes)
    }

    fn deal_ack(&mut self, now: Time, rooms: &mut [usize], spares: &[usize]) {
        let goes = rooms.iter().zip(spares).map(|(room, spare)| room.saturating_sub(*spare)).sum();
        if !self.acks(now, goes) {
            return;
        }
        let takes = |place: &usize| self.places[*place].is_some() && rooms[*place] >= self.ack_room;
        let carries = |place: &usize| {
            takes(place) && self.carrier(*place).is_some_and(|one| one.silent().is_none())
        };
        let all = || std::iter::once(self.last).chain(0..self.places.len());
        let Some(place) = all().find(carries).or_else(|| all().find(takes)) else { return };
        // What else is to go there goes in the same block: another's overhead is half a request.
        let word = self.take_word(place);
        let room = rooms[place].saturating_sub(WORD);
        let ack = Frame::Ack(self.inbox.ack(self.outbox.written(), room));
        self.told_written = self.outbox.written();
        self.told_by = self.places[place].as_ref().map_or(0, |held| held.id);
        let asks = word.as_ref().is_some_and(|(_, asks)| *asks);
        self.put(now, (place, rooms), asks, |_, out| {
            word.iter().for_each(|(frame, _)| frame.write(out));
            ack.write(out);
            None
        });
    }

    /// Deals one chunk; false if there is none, or no place for it.
    fn deal_chunk(&mut self, now: Time, rooms: &mut [usize]) -> bool {
        let Some(least) = self.outbox.least_room() else { return false };
        let least = least + block::OVERHEAD;
        let views: Vec<PathView> =
            (0..self.places.len()).map(|place| self.view(place, rooms[place], least)).collect();
        let assigned = self.splitter.assign(now, &views, self.outbox.waiting().max(1));
        let Assignment::Send { path, .. } = assigned else { return false };
        self.active = now;
        let place = path.index();
        let Some(id) = self.places[place].as_ref().map(|held| held.id) else { return false };
        let room = (rooms[place] - block::OVERHEAD).min(block::MOST);
        let mut dealt = None;
        self.put(now, (place, rooms), true, |outbox, out| {
            dealt = outbox.next(id, room, out);
            dealt
        });
        dealt.is_some()
    }

    /// A place as a scheduler sees it; its window is in chunks.
    fn view(&self, place: usize, room: usize, least: usize) -> PathView {
        let Some(carrier) = self.carrier(place) else { return PathView::dead() };
        if carrier.silent().is_some() {
            return PathView::dead();
        }
        let chunks = (room / self.chunk).max(1);
        let window = if room < least { 0 } else { chunks as u64 };
        let trip = carrier.trip().smooth().or(self.trip.smooth()).unwrap_or(UNKNOWN_TRIP);
        PathView::leg(Some(trip), window, LegView::NOTHING)
    }

    /// Seals a block for a place with what `write` gives: the chunk in it, if there is one.
    fn put(
        &mut self,
        now: Time,
        (place, rooms): (usize, &mut [usize]),
        asks: bool,
        write: impl FnOnce(&mut Outbox, &mut Vec<u8>) -> Option<u64>,
    ) {
        let Some(held) = &mut self.places[place] else { return };
        let (outbox, before, mut chunk) = (&mut self.outbox, held.hidden.len(), None);
        self.sealer.seal(self.aes, &mut held.hidden, |out| chunk = write(outbox, out));
        rooms[place] = rooms[place].saturating_sub(held.hidden.len() - before);
        if let Some(carrier) = self.carriers.get_mut(&held.id) {
            carrier.sent(now, chunk, asks);
        }
    }

    /// What is to go by a place: [`Link::take`] has it.
    pub(crate) fn held_at(&self, place: usize) -> usize {
        self.places[place].as_ref().map_or(0, |held| held.hidden.len())
    }

    /// Fills what is to go by a place with padding until it has `length` bytes: no more than it
    /// has, or at least [`block::OVERHEAD`] more.
    pub(crate) fn pad(&mut self, now: Time, place: usize, length: usize) {
        loop {
            let missing = length.saturating_sub(self.held_at(place));
            if missing < block::OVERHEAD {
                return;
            }
            let most = block::MOST + block::OVERHEAD;
            // What is left has to be a block, too.
            let part = if missing > most { most - block::OVERHEAD } else { missing };
            let mut no_rooms = vec![0; self.places.len()];
            self.put(now, (place, &mut no_rooms), false, |_, out| {
                out.resize(out.len() + part - block::OVERHEAD, 0);
                None
            });
        }
    }

    /// Takes what is to go by a place.
    pub(crate) fn take(&mut self, place: usize) -> Vec<u8> {
        let held = self.places[place].as_mut();
        held.map(|held| std::mem::take(&mut held.hidden)).unwrap_or_default()
    }
}
