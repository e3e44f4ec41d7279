//! The cover of a connection, which is the ordinary-looking traffic that hides the data. It also
//! tracks the free space in the send buffer of the connection's socket.

use anabranch_multipath::Time;

use crate::link::Room;
use crate::slot::Slot;

/// Identifier of a connection. A client assigns it in
/// [`ClientOutput::Dial`](crate::ClientOutput::Dial); at a server, the driver assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// An event of a connection, which the driver (the code that owns the sockets) reports.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The connection is open: a client has dialled it, or a server has accepted it.
    Opened(ConnId),
    /// Bytes were received over the connection.
    Bytes(ConnId, &'a [u8]),
    /// The socket's send buffer has this number of free bytes. Keep the buffer small: its content
    /// is lost if the connection fails.
    Room(ConnId, usize),
    /// The connection is closed, or failed to open.
    Closed(ConnId),
}

/// The cover of one connection: the ordinary-looking traffic that hides the link's data.
pub(crate) struct Cover<S: ?Sized> {
    pub(crate) slot: Box<S>,
    /// Free bytes in the send buffer of the connection's socket.
    pub(crate) socket: usize,
    /// Number of bytes that the next message can hide, as [`Cover::room`] last returned it.
    room: usize,
    /// Time before which the connection may not send; `None` if it may send now.
    waits: Option<Time>,
}

impl<S: Slot + ?Sized> Cover<S> {
    pub(crate) fn new(slot: Box<S>) -> Cover<S> {
        Cover { slot, socket: 0, room: 0, waits: None }
    }

    /// Returns how many bytes the connection's next message can hide, and stores this number for
    /// [`Cover::fit`].
    pub(crate) fn room(&mut self, now: Time) -> Room {
        self.waits = self.slot.wait(now);
        self.room = self.slot.room(self.socket);
        Room { bytes: self.room, reserved: self.slot.spare() }
    }

    /// Returns whether the next message could hide bytes at the last call of [`Cover::room`].
    pub(crate) fn has_room(&self) -> bool {
        self.room > 0
    }

    /// Returns the time at which the connection may send again after a pause, or has to send a
    /// message even without hidden bytes; `None` if there is no such time.
    pub(crate) fn due(&self) -> Option<Time> {
        // A message that waits for room in its socket is sent when the socket has room.
        let due = self.slot.due().filter(|_| self.has_room());
        [self.waits, due].into_iter().flatten().min()
    }

    /// Returns the number of hidden bytes in the message to send now: the `waiting` encrypted
    /// bytes, and padding. Returns `None` if [`Cover::room`] last returned no room. Also returns
    /// `None` if no message is due and `forced` is false.
    pub(crate) fn fit(&mut self, now: Time, waiting: usize, forced: bool) -> Option<usize> {
        let due = forced || self.slot.due().is_some_and(|due| now >= due);
        let sends = (waiting > 0 || due) && self.has_room();
        sends.then(|| self.slot.fit(waiting))
    }

    /// Returns the message that contains the `hidden` bytes.
    pub(crate) fn send(&mut self, now: Time, hidden: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.slot.send(now, hidden, &mut out);
        self.socket = self.socket.saturating_sub(out.len());
        out
    }
}
