//! The chopper (a term of the StegoTorus paper): a byte stream in each direction, cut into
//! encrypted blocks that any connection may carry.
//!
//! A [`Link`] has a fixed number of paths, each for one connection at a time, and seals the bytes
//! for each connection. A `Slot` (see `slot`) decides how these bytes look on the wire.
//! `connections` has the state of the paths, `chunks` has the schedule of chunks, and `acks` has
//! the schedule of acknowledgements. `send` seals blocks, and `receive` opens them.

mod acks;
mod chunks;
mod connections;
mod receive;
mod send;

use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_multipath::schedule::Spec;
use rand_core::CryptoRng;

use crate::block::{BadBlock, Opener, Sealer};
use crate::budget::Budget;
use crate::frame::{BadFrame, Frame};
use crate::handshake::HelloRefusal;
use crate::inbox::{Inbox, Overrun};
use crate::outbox::Outbox;
use crate::recovery::{DEFAULT_RTT, Recovery};
use crate::secrets::LinkSecrets;
use crate::slot::Profile;
use acks::Acks;
use chunks::ChunkSchedule;
use connections::Connections;

/// Time for which a link counts as active after data were last transferred. An idle link has fewer
/// connections.
const ACTIVE: Duration = Duration::from_secs(5);

/// Error: the other end violates the protocol, or a third party wrote the bytes.
///
/// The other end must not learn the cause. Therefore all violations have the same effect: a client
/// closes the connection, and a server treats the connection as a stranger's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkViolation {
    /// A block (the unit of encryption) cannot be decrypted.
    Block(BadBlock),
    /// The frames of a block are malformed.
    Frame,
    /// The other end has sent more data than flow control permits.
    Overrun(Overrun),
    /// The server sent a SLOT frame, which only a client may send, to give an index to a
    /// connection.
    SlotFromServer,
    /// The other end acknowledges chunks (parts of the stream) that this end has not sent.
    AckOfUnsent,
    /// The client's part of an exchange (usually a request and its answer) ended before a token or
    /// a HELLO was complete. So its link is unknown.
    Unidentified,
    /// The server refuses the client's HELLO.
    Hello(HelloRefusal),
    /// A client's HELLO arrived when the server had its maximum number of links (sessions of
    /// clients).
    Full,
    /// The ANSWER to the client's HELLO is not from this server.
    Answer,
    /// The link (client's session) that the connection wants to join has ended, or has its maximum
    /// number of connections.
    NoLink,
}

impl From<BadBlock> for LinkViolation {
    fn from(cause: BadBlock) -> LinkViolation {
        LinkViolation::Block(cause)
    }
}

impl From<BadFrame> for LinkViolation {
    fn from(_: BadFrame) -> LinkViolation {
        LinkViolation::Frame
    }
}

impl From<Overrun> for LinkViolation {
    fn from(cause: Overrun) -> LinkViolation {
        LinkViolation::Overrun(cause)
    }
}

impl From<HelloRefusal> for LinkViolation {
    fn from(cause: HelloRefusal) -> LinkViolation {
        LinkViolation::Hello(cause)
    }
}

/// The role of this end of a link: client or server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// The control frame, if any, that this end sends first on a new connection of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// A SLOT frame, which contains the client's index of the connection. The other end has to
    /// answer, and may delay its answer by this time.
    Asks(Duration),
    /// A PONG frame, which is sent at once.
    Answers,
    /// No control frame, because this end sends a first message anyway, such as the handshake's
    /// ANSWER.
    Waits,
}

/// The number of bytes that the next message of a connection can hide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Maximum number of hidden bytes in the message.
    pub(crate) bytes: usize,
    /// The part of `bytes` that is reserved for control frames and acknowledgements.
    pub(crate) reserved: usize,
}

/// The amount of waiting data and acknowledgements for which new messages, usually requests, have
/// to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Number of bytes to send; at least 1 if a message is needed.
    pub(crate) bytes: usize,
    /// Minimum number of bytes that each of the new messages must be able to hide.
    pub(crate) least_room: usize,
}

/// One end of a link: an encrypted byte stream in each direction over several connections.
pub(crate) struct Link {
    side: Side,
    sealer: Sealer,
    opener: Opener,
    outbox: Outbox,
    inbox: Inbox,
    connections: Connections,
    chunks: ChunkSchedule,
    acks: Acks,
    /// The frames of the block that was decrypted last. The buffer is reused.
    frames: Vec<u8>,
    /// Time at which data were last sent or received.
    active: Time,
    reset: Reset,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reset {
    Not,
    Ours,
    Theirs,
}

impl Link {
    /// Creates a link with the keys in `secrets` for up to `paths` simultaneous connections.
    /// `schedule` chooses the connection of each chunk.
    pub(crate) fn new(
        secrets: &LinkSecrets,
        side: Side,
        paths: usize,
        profile: Profile,
        schedule: &Spec,
        rng: &mut impl CryptoRng,
    ) -> Link {
        let family = profile.family();
        let mut inbox = Inbox::new(paths);
        if family.coalesces && side == Side::Client {
            inbox.delay_acks();
        }
        let (out, back) = match side {
            Side::Client => (&secrets.up, &secrets.down),
            Side::Server => (&secrets.down, &secrets.up),
        };
        let awaits_end = !family.streams && side == Side::Client;
        Link {
            side,
            sealer: Sealer::new(out, secrets.aes),
            opener: Opener::new(back, secrets.aes),
            outbox: Outbox::new(family.chunk),
            inbox,
            connections: Connections::new(paths, awaits_end),
            chunks: ChunkSchedule::new(schedule, paths, family, rng),
            acks: Acks::new(family, side),
            frames: Vec::new(),
            active: Time::ZERO,
            reset: Reset::Not,
        }
    }

    /// Sets the maximum time for which an end may be silent although its connection works.
    pub(crate) fn allow_pauses(&mut self, longest: Duration) {
        self.connections.allow_pauses(longest);
    }

    /// Records the round-trip time that was measured during the handshake.
    pub(crate) fn measured(&mut self, rtt: Duration) {
        self.connections.measured(rtt);
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

    /// Resets the link at once, and queues a RESET frame on every connection, to inform the other
    /// end.
    pub(crate) fn reset(&mut self) {
        if self.reset == Reset::Not {
            self.reset = Reset::Ours;
            for connection in self.connections.iter_mut() {
                connection.control = Some(Frame::Reset);
            }
        }
    }

    /// Returns the next bytes from the other end's program; `None` if there are none.
    pub(crate) fn read(&mut self, now: Time, budget: &mut Budget) -> Option<Vec<u8>> {
        let bytes = self.inbox.read()?;
        let rtt = self.connections.srtt().unwrap_or(DEFAULT_RTT);
        self.inbox.raise_limit(now, rtt, budget);
        Some(bytes)
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
        let sealed = || self.connections.iter().all(|connection| connection.control.is_none());
        self.reset == Reset::Theirs || self.reset == Reset::Ours && sealed()
    }

    /// Returns whether data were transferred recently, or are waiting to be sent at either end. An
    /// active link keeps more connections open.
    pub(crate) fn is_active(&self, now: Time) -> bool {
        now.since(self.active) < ACTIVE || !self.outbox.is_empty() || self.backlog() > 0
    }

    /// Returns the number of bytes that have not been acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.outbox.unacknowledged()
    }

    /// Returns the number of bytes of the other end's stream, as advertised, that have not
    /// arrived: they wait at the other end, or are in flight.
    pub(crate) fn backlog(&self) -> u64 {
        self.inbox.backlog()
    }

    /// Returns the data and acknowledgements that need new messages now.
    pub(crate) fn demand(&mut self, now: Time) -> Demand {
        let least_room = self.acks.least_room;
        if let Some(room) = self.chunks.wanted_room(now, &self.outbox, self.inbox.backlog()) {
            let bytes = self.outbox.sendable().max(1);
            return Demand { bytes, least_room: room + least_room };
        }
        let due = self.inbox.ack_due(now).is_some_and(|due| now >= due);
        Demand { bytes: usize::from(due), least_room }
    }

    /// Returns the approximate memory in bytes used by received data, and by data to be sent.
    pub(crate) fn memory(&self) -> (usize, usize) {
        let (partial, sealed) = self.connections.buffered();
        (self.inbox.memory() + partial, self.outbox.memory() + sealed)
    }

    /// Returns how many bytes of memory the link uses beyond its allowance: all received data, and
    /// the data to be sent that exceed the bytes that it may store.
    pub(crate) fn excess(&self, budget: &Budget) -> usize {
        let (received, unsent) = self.memory();
        received + unsent.saturating_sub(self.outbox.allowed(budget))
    }

    /// Gives back to the memory budget the bytes that were reserved for data that have since
    /// arrived at the other end.
    pub(crate) fn update_budget(&mut self, budget: &mut Budget) {
        self.outbox.update_budget(budget);
    }

    /// Frees unused buffer capacity after both streams have ended.
    pub(crate) fn shrink(&mut self) {
        self.frames = Vec::new();
        self.outbox.shrink();
        self.inbox.shrink();
        self.connections.shrink();
    }

    /// Gives back to the memory budget all bytes that a finished link has reserved.
    pub(crate) fn release(&mut self, budget: &mut Budget) {
        self.inbox.release(budget);
        self.outbox.release(budget);
    }

    /// Adds a connection with the identifier `number` on `path`, where it replaces any earlier
    /// connection. `first` contains the bytes to send before all blocks: a token, or the ANSWER of
    /// the handshake.
    pub(crate) fn open(
        &mut self,
        now: Time,
        path: usize,
        number: u64,
        opening: Opening,
        first: &[u8],
    ) {
        self.lost(now, path);
        if matches!(opening, Opening::Asks(_)) {
            // The last acknowledgement may be lost with an earlier connection that failed. It is
            // repeated before the other end sends anything. This connection may fail, too, after
            // the first bytes from the other end.
            self.inbox.repeat_ack(now);
            self.acks.prefer(path);
        }
        self.connections.add(now, path, number, opening, first);
    }

    /// Removes a closed connection from its path. Its unacknowledged blocks may still have
    /// arrived, so they are not sent again at once.
    pub(crate) fn close(&mut self, path: usize) {
        self.connections.close(path);
    }

    /// Removes a lost connection from its path. Its unacknowledged chunks have to be sent again,
    /// and so does an acknowledgement that it carried.
    pub(crate) fn lost(&mut self, now: Time, path: usize) {
        let Some(lost) = self.connections.remove(path) else { return };
        self.acks.connection_lost(now, lost.number, &mut self.inbox);
        for chunk in lost.recovery.chunks() {
            self.outbox.lost(lost.number, chunk);
        }
    }

    /// Returns the recovery state of the connection on `path`; `None` if the path is free.
    pub(crate) fn recovery(&self, path: usize) -> Option<&Recovery> {
        Some(&self.connections.get(path)?.recovery)
    }

    /// Returns the path whose connection has been silent for the longest time; `None` without
    /// connections.
    pub(crate) fn longest_silent(&self) -> Option<usize> {
        self.connections.longest_silent()
    }

    /// Removes and returns the list of paths whose connections were replaced, and now have to be
    /// closed.
    pub(crate) fn evicted(&mut self) -> Vec<usize> {
        self.connections.evicted()
    }

    /// Probes the connection on `path` with a PING.
    pub(crate) fn ping(&mut self, now: Time, path: usize) {
        if let Some(connection) = self.connections.get_mut(path) {
            connection.control.get_or_insert(Frame::Ping);
            connection.recovery.expect_answer(now);
        }
    }

    /// Records that bytes were received on `path`, whether they hide data or not.
    pub(crate) fn note_activity(&mut self, now: Time, path: usize) {
        self.connections.note_activity(now, path);
    }

    /// Processes timeouts. If a connection has become silent, marks its unacknowledged chunks to
    /// be sent again.
    pub(crate) fn tick(&mut self, now: Time) {
        let (outbox, inbox, acks) = (&mut self.outbox, &mut self.inbox, &mut self.acks);
        self.connections.remove_arrived(now, |chunk| outbox.has_arrived(chunk));
        self.connections.detect_silence(now, |number, recovery| {
            acks.connection_lost(now, number, inbox);
            recovery.chunks().for_each(|chunk| outbox.lost(number, chunk));
        });
    }

    /// Returns the time at which [`Link::tick`] or [`Link::deal`] has work to do; `None` if there
    /// is no such time.
    pub(crate) fn next_timeout(&self, now: Time) -> Option<Time> {
        let ack = self.inbox.ack_due(now).filter(|&due| due > now);
        let chunks = self.chunks.due(&self.outbox, self.backlog()).filter(|&due| due > now);
        [self.connections.next_timeout(), ack, chunks].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
