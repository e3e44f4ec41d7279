//! Sending: the link encrypts blocks that fit into the next messages of its connections.

use anabranch_multipath::Time;

use super::{Link, Room};
use crate::block;
use crate::frame::Frame;
use crate::outbox::Outbox;

/// Maximum length of a control frame, in bytes.
const CONTROL_FRAME: usize = 9;
/// Length in bytes of an encrypted block that contains only a control frame.
const CONTROL_ROOM: usize = block::OVERHEAD + CONTROL_FRAME;

impl Link {
    /// Encrypts the acknowledgements, control frames and chunks of the stream that have to be sent
    /// now. `rooms` lists the paths, each with the number of bytes that the path's next message
    /// can hide.
    pub(crate) fn deal(&mut self, now: Time, rooms: impl Iterator<Item = (usize, Room)>) {
        self.connections.set_rooms(rooms);
        self.deal_ack(now);
        self.deal_control_frames(now);
        self.chunks.begin(&mut self.connections, &self.outbox);
        while self.deal_chunk(now) {}
        self.chunks.end(&self.outbox);
    }

    fn deal_ack(&mut self, now: Time) {
        let rooms = self.connections.iter().map(|connection| connection.room);
        let room = rooms.map(|room| room.bytes.saturating_sub(room.reserved)).sum();
        if !self.acks.is_due(now, &self.inbox, &self.outbox, room) {
            return;
        }
        let Some(path) = self.acks.path(&self.connections) else { return };
        let Some(connection) = self.connections.get_mut(path) else { return };
        // A waiting control frame is put into the same block, because a block of its own would add
        // an overhead of half a request.
        let control = connection.control.take();
        let (number, room) = (connection.number, connection.room.bytes);
        let room = room.saturating_sub(CONTROL_FRAME);
        let ack = Frame::Ack(self.acks.build(&mut self.inbox, &self.outbox, room, number));
        let ack_eliciting = control.as_ref().is_some_and(Frame::is_ack_eliciting);
        self.seal(now, path, ack_eliciting, |_, out| {
            control.iter().for_each(|control| control.write(out));
            ack.write(out);
            None
        });
    }

    fn deal_control_frames(&mut self, now: Time) {
        for path in 0..self.connections.len() {
            let connection = self.connections.get_mut(path);
            let connection = connection.filter(|one| one.room.bytes >= CONTROL_ROOM);
            let Some(frame) = connection.and_then(|one| one.control.take()) else { continue };
            self.seal(now, path, frame.is_ack_eliciting(), |_, out| {
                frame.write(out);
                None
            });
        }
    }

    /// Encrypts one chunk of the stream for a path that the scheduler chooses. Returns false if
    /// there is no chunk to send, or no path for it.
    fn deal_chunk(&mut self, now: Time) -> bool {
        let path = self.chunks.next_path(now, &self.connections, &self.outbox);
        let Some(path) = path else { return false };
        self.active = now;
        let Some(connection) = self.connections.get(path) else { return false };
        let (number, room) = (connection.number, connection.room.bytes - block::OVERHEAD);
        let mut dealt = None;
        self.seal(now, path, true, |outbox, out| {
            dealt = outbox.next(number, room.min(block::MOST), out);
            dealt
        });
        dealt.is_some()
    }

    /// Encrypts a block for `path`, with the frames that `write` appends. `write` returns the
    /// sequence number of the chunk in the block; `None` if the block contains no chunk.
    /// `ack_eliciting` is whether the other end must acknowledge the block.
    fn seal(
        &mut self,
        now: Time,
        path: usize,
        ack_eliciting: bool,
        write: impl FnOnce(&mut Outbox, &mut Vec<u8>) -> Option<u64>,
    ) {
        let Some(connection) = self.connections.get_mut(path) else { return };
        let (outbox, before, mut chunk) = (&mut self.outbox, connection.sealed.len(), None);
        self.sealer.seal(&mut connection.sealed, |out| chunk = write(outbox, out));
        let length = connection.sealed.len() - before;
        connection.room.bytes = connection.room.bytes.saturating_sub(length);
        connection.recovery.record_sent(now, chunk, ack_eliciting);
    }

    /// Returns the number of encrypted bytes that wait to be hidden in the next message of `path`.
    pub(crate) fn sealed(&self, path: usize) -> usize {
        self.connections.sealed(path)
    }

    /// Removes and returns the encrypted bytes that wait on `path`, padded to `length`. The
    /// argument `length` must either be at most [`Link::sealed`], or exceed it by at least
    /// [`block::OVERHEAD`].
    pub(crate) fn take(&mut self, now: Time, path: usize, length: usize) -> Vec<u8> {
        while let Some(connection) = self.connections.get_mut(path) {
            let missing = length.saturating_sub(connection.sealed.len());
            if missing < block::OVERHEAD {
                return std::mem::take(&mut connection.sealed);
            }
            let most = block::MOST + block::OVERHEAD;
            // The remainder has to be long enough for another block.
            let part = if missing > most { most - block::OVERHEAD } else { missing };
            self.seal(now, path, false, |_, out| {
                out.resize(out.len() + part - block::OVERHEAD, 0);
                None
            });
        }
        Vec::new()
    }
}
