//! A connection's slot, and what its socket takes.

use anabranch_multipath::Time;

use crate::link::Link;
use crate::slot::Slot;

/// A connection, by a number that its driver keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// What happened to a connection.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// It is open: a client's has been dialled, a server's was accepted.
    Opened(ConnId),
    /// Bytes came by it.
    Bytes(ConnId, &'a [u8]),
    /// Its socket takes so many bytes now, those that wait in it taken off. What it takes is not
    /// more than is on its way at once, or a dead connection swallows as much.
    Room(ConnId, usize),
    /// It is gone, or came to nothing.
    Closed(ConnId),
}

/// One connection's cover.
pub(crate) struct Cover {
    pub(crate) slot: Box<dyn Slot>,
    pub(crate) socket: usize,
    /// Until when it may not speak.
    waits: Option<Time>,
}

impl Cover {
    pub(crate) fn new(slot: Box<dyn Slot>) -> Cover {
        Cover { slot, socket: 0, waits: None }
    }

    /// Hidden bytes that its next message takes beside those that wait for it.
    pub(crate) fn room(&mut self, now: Time, held: usize) -> usize {
        self.waits = self.slot.wait(now);
        self.slot.room(self.socket).saturating_sub(held)
    }

    /// When it has something to say by itself.
    pub(crate) fn due(&self) -> Option<Time> {
        // What waits for its socket comes with the socket's room.
        let due = self.slot.due().filter(|_| self.socket >= self.slot.needs());
        [self.waits, due].into_iter().flatten().min()
    }

    /// The message that has to be sent now, and whether the exchange is over with it. If `forced`,
    /// there is one even where nothing is to be said.
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

    /// Appends the message with these hidden bytes.
    pub(crate) fn say(&mut self, now: Time, hidden: &[u8], out: &mut Vec<u8>) -> bool {
        let before = out.len();
        let over = self.slot.send(now, hidden, out);
        self.socket = self.socket.saturating_sub(out.len() - before);
        over
    }
}
