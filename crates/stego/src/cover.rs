//! A connection's cover: its slot, and the room of its socket.

use anabranch_multipath::Time;

use crate::link::Link;
use crate::slot::Slot;

/// Identifier of a connection, which its driver keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// An event of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// It is open: a client's was dialled, a server's was accepted.
    Opened(ConnId),
    /// Bytes were received over it.
    Bytes(ConnId, &'a [u8]),
    /// Free bytes in the socket's send buffer. Keep the buffer small: what it holds is lost if the
    /// connection dies.
    Room(ConnId, usize),
    /// It is closed, or failed to open.
    Closed(ConnId),
}

/// The cover of one connection.
pub(crate) struct Cover {
    pub(crate) slot: Box<dyn Slot>,
    pub(crate) socket: usize,
    /// Time until which it may not send.
    waits: Option<Time>,
}

impl Cover {
    pub(crate) fn new(slot: Box<dyn Slot>) -> Cover {
        Cover { slot, socket: 0, waits: None }
    }

    /// Hidden bytes that its next message has room for, in addition to the `held` ones.
    pub(crate) fn room(&mut self, now: Time, held: usize) -> usize {
        self.waits = self.slot.wait(now);
        self.slot.room(self.socket).saturating_sub(held)
    }

    /// Time at which it has to send, even without hidden bytes.
    pub(crate) fn due(&self) -> Option<Time> {
        // A message that waits for its socket is sent when the socket has room.
        let due = self.slot.due().filter(|_| self.socket >= self.slot.needs());
        [self.waits, due].into_iter().flatten().min()
    }

    /// Returns the message that is due now, and whether it ends the exchange. If `forced`, there is
    /// a message even if nothing is due.
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
        let over = self.say(now, &hidden, &mut out);
        Some((out, over))
    }

    /// Appends the message with these `hidden` bytes. Returns whether it ends the exchange.
    pub(crate) fn say(&mut self, now: Time, hidden: &[u8], out: &mut Vec<u8>) -> bool {
        let before = out.len();
        let over = self.slot.send(now, hidden, out);
        self.socket = self.socket.saturating_sub(out.len() - before);
        over
    }
}
