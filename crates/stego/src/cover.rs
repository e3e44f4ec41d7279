//! The cover of a connection: its slot, and the free space in its socket's send buffer.

use anabranch_multipath::Time;

use crate::link::Link;
use crate::slot::Slot;

/// Identifier of a connection. A client assigns it in
/// [`ClientOutput::Dial`](crate::ClientOutput::Dial); at a server, the driver assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// An event of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The connection is open: a client has dialled it, or a server has accepted it.
    Opened(ConnId),
    /// Bytes were received over the connection.
    Bytes(ConnId, &'a [u8]),
    /// The socket's send buffer has this many free bytes. Keep the buffer small: its content is
    /// lost if the connection fails.
    Room(ConnId, usize),
    /// The connection is closed, or failed to open.
    Closed(ConnId),
}

/// The cover of one connection.
pub(crate) struct Cover {
    pub(crate) slot: Box<dyn Slot>,
    pub(crate) socket: usize,
    /// Time before which the connection may not send; `None` if it may send now.
    waits: Option<Time>,
}

impl Cover {
    pub(crate) fn new(slot: Box<dyn Slot>) -> Cover {
        Cover { slot, socket: 0, waits: None }
    }

    /// Returns the number of hidden bytes for which the connection's next message has room, in
    /// addition to the `held` ones.
    pub(crate) fn room(&mut self, now: Time, held: usize) -> usize {
        self.waits = self.slot.wait(now);
        self.slot.room(self.socket).saturating_sub(held)
    }

    /// Returns the time at which the connection has to send a message, even without hidden bytes.
    pub(crate) fn due(&self) -> Option<Time> {
        // A message that waits for room in its socket is sent when the socket has room.
        let due = self.slot.due().filter(|_| self.socket >= self.slot.needs());
        [self.waits, due].into_iter().flatten().min()
    }

    /// Returns the message that is due now, and whether it ends the exchange. If `forced`, returns
    /// a message even if none is due.
    pub(crate) fn emit(
        &mut self,
        now: Time,
        link: &mut Link,
        (place, forced): (usize, bool),
    ) -> Option<(Vec<u8>, bool)> {
        let held = link.held_at(place);
        let due = forced || self.slot.due().is_some_and(|due| now >= due);
        if held == 0 && !due || self.slot.room(self.socket) == 0 {
            return None;
        }
        let length = self.slot.fit(held);
        link.pad(now, place, length);
        let (hidden, mut out) = (link.take(place), Vec::new());
        let over = self.append_message(now, &hidden, &mut out);
        Some((out, over))
    }

    /// Appends the message that contains the `hidden` bytes. Returns whether the message ends the
    /// exchange.
    pub(crate) fn append_message(&mut self, now: Time, hidden: &[u8], out: &mut Vec<u8>) -> bool {
        let before = out.len();
        let over = self.slot.send(now, hidden, out);
        self.socket = self.socket.saturating_sub(out.len() - before);
        over
    }
}
