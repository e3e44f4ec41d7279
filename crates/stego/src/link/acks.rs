//! The rules for acknowledgements: when one is sent, over which connection, and which backlog it
//! advertises.

use anabranch_multipath::Time;

use super::Side;
use super::connections::Connections;
use crate::frame::Ack;
use crate::inbox::Inbox;
use crate::outbox::Outbox;
use crate::slot::Family;

/// Number of new bytes after which the server advertises its backlog (the bytes that wait to be
/// sent) again. The server does this only while the client knows of fewer than
/// [`ADVERTISED_BELOW`] waiting bytes.
const ADVERTISED_STEP: u64 = 16 << 10;
/// Advertised backlog (bytes that wait to be sent) from which on the server advertises no
/// increase.
const ADVERTISED_BELOW: u64 = 256 << 10;

/// State of the acknowledgements that this end of a link sends.
pub(super) struct Acks {
    /// Minimum number of bytes that a message must be able to hide if it is to carry an
    /// acknowledgement.
    pub(super) least_room: usize,
    /// Whether data that are sent anyway also carry an acknowledgement, before it is due.
    coalesces: bool,
    /// Whether the other end must request data, so that this end has to advertise how many bytes
    /// wait.
    advertises: bool,
    /// Length of this end's stream, as it was last advertised to the other end.
    advertised: u64,
    /// Path (place of a connection) on which the last block that needs an acknowledgement arrived.
    latest_path: usize,
    /// Identifier of the connection that carried the last acknowledgement.
    sent_on: u64,
}

impl Acks {
    pub(super) fn new(family: &Family, side: Side) -> Acks {
        Acks {
            least_room: family.ack_room,
            coalesces: family.coalesces,
            advertises: !family.streams && side == Side::Server,
            advertised: 0,
            latest_path: 0,
            sent_on: 0,
        }
    }

    /// Makes `path` the path of the next acknowledgement, for example because a block that needs
    /// an acknowledgement arrived on it.
    pub(super) fn prefer(&mut self, path: usize) {
        self.latest_path = path;
    }

    /// Returns whether to send an acknowledgement now: it is due, it can accompany data, or the
    /// backlog has to be advertised. `room` is the number of bytes that the connections can carry.
    pub(super) fn is_due(&self, now: Time, inbox: &Inbox, outbox: &Outbox, room: usize) -> bool {
        let along = self.coalesces && room > 0 && outbox.least_room().is_some();
        let due = inbox.ack_due(now).is_some_and(|due| along || due <= now);
        due || self.must_advertise(outbox, room)
    }

    /// Returns whether the server must advertise its backlog again. It must if two conditions hold
    /// after `room` bytes are sent. First, the client knows of less than [`ADVERTISED_BELOW`]
    /// bytes of the backlog. Second, [`ADVERTISED_STEP`] further bytes remain; a single byte
    /// suffices if the client knows of none.
    fn must_advertise(&self, outbox: &Outbox, room: usize) -> bool {
        let (written, left) = (outbox.written(), outbox.unsent().saturating_sub(room) as u64);
        let known = left.saturating_sub(written - self.advertised.min(written));
        let news = left - known;
        let few = known < ADVERTISED_BELOW && (news >= ADVERTISED_STEP || known == 0 && news > 0);
        self.advertises && few
    }

    /// Returns the path for an acknowledgement: the path set by [`Acks::prefer`] if it has room
    /// and is not silent. Otherwise returns another path that has room and is not silent, or else
    /// any path with room; `None` if no path has room.
    pub(super) fn path(&self, connections: &Connections) -> Option<usize> {
        let fits = |path: &usize| connections.room(*path) >= self.least_room;
        let works = |path: &usize| {
            let connection = connections.get(*path);
            connection.is_some_and(|connection| connection.recovery.silent_since().is_none())
        };
        let all = || std::iter::once(self.latest_path).chain(0..connections.len());
        all().find(|path| fits(path) && works(path)).or_else(|| all().find(fits))
    }

    /// Builds an acknowledgement of at most `room` bytes, to be sent over the connection with the
    /// identifier `number`.
    pub(super) fn build(
        &mut self,
        inbox: &mut Inbox,
        outbox: &Outbox,
        room: usize,
        number: u64,
    ) -> Ack {
        self.advertised = outbox.written();
        self.sent_on = number;
        inbox.ack(outbox.written(), room)
    }

    /// Handles the loss or silence of the connection with the identifier `number`. If it carried
    /// the last acknowledgement, makes another acknowledgement due.
    pub(super) fn connection_lost(&mut self, now: Time, number: u64, inbox: &mut Inbox) {
        if number == self.sent_on {
            inbox.repeat_ack(now);
            self.advertised = 0;
        }
    }
}
