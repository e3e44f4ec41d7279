//! Receiving: blocks (units of encryption) are decrypted, and their frames are passed to the parts
//! of the link.

use anabranch_multipath::{PathId, Time};

use super::{Link, LinkViolation, Reset, Side};
use crate::frame::{Ack, Frame};

impl Link {
    /// Decrypts and processes the bytes received on `path`. Returns the number of blocks that
    /// these bytes complete.
    ///
    /// # Errors
    /// The other end violates the protocol, or did not send the bytes. The connection is unusable.
    pub(crate) fn receive(
        &mut self,
        now: Time,
        path: usize,
        bytes: &[u8],
    ) -> Result<usize, LinkViolation> {
        self.connections.note_activity(now, path);
        let Some(connection) = self.connections.get_mut(path) else { return Ok(0) };
        let mut partial = std::mem::take(&mut connection.partial);
        partial.extend_from_slice(bytes);
        let (mut start, mut blocks) = (0, 0);
        while let Some(length) = self.opener.open(&partial[start..], &mut self.frames)? {
            start += length;
            blocks += 1;
            self.receive_block(now, path)?;
        }
        partial.drain(..start);
        if let Some(connection) = self.connections.get_mut(path) {
            connection.partial = partial;
        }
        Ok(blocks)
    }

    /// Processes the frames of the block that was just decrypted.
    fn receive_block(&mut self, now: Time, path: usize) -> Result<(), LinkViolation> {
        let frames = std::mem::take(&mut self.frames);
        let (mut rest, mut ack_eliciting) = (&frames[..], false);
        while let Some(frame) = Frame::read(&mut rest)? {
            ack_eliciting |= frame.is_ack_eliciting();
            self.receive_frame(now, path, &frame)?;
        }
        self.frames = frames;
        let Some(connection) = self.connections.get_mut(path) else { return Ok(()) };
        let blocks = connection.recovery.count_received();
        if ack_eliciting {
            self.inbox.count_blocks(now, connection.number, blocks);
            self.acks.prefer(path);
        }
        Ok(())
    }

    fn receive_frame(
        &mut self,
        now: Time,
        path: usize,
        frame: &Frame<'_>,
    ) -> Result<(), LinkViolation> {
        match frame {
            Frame::Data { chunk, bytes } => {
                self.active = now;
                self.inbox.chunk(now, PathId::at(path), *chunk, Some(bytes))?;
            }
            Frame::Fin { chunk } => self.inbox.chunk(now, PathId::at(path), *chunk, None)?,
            Frame::Reset => self.reset = Reset::Theirs,
            Frame::Ack(ack) => self.receive_ack(now, ack)?,
            Frame::Ping => {
                if let Some(connection) = self.connections.get_mut(path) {
                    connection.control.get_or_insert(Frame::Pong);
                }
            }
            Frame::Pong => {}
            Frame::Slot(_) if self.side == Side::Client => {
                return Err(LinkViolation::SlotFromServer);
            }
            Frame::Slot(slot) => {
                if let Some(stale) = self.connections.set_slot(path, *slot) {
                    self.lost(now, stale);
                }
            }
        }
        Ok(())
    }

    fn receive_ack(&mut self, now: Time, ack: &Ack) -> Result<(), LinkViolation> {
        if !self.outbox.acknowledged(ack) {
            return Err(LinkViolation::AckOfUnsent);
        }
        self.inbox.advertised(ack.written);
        for &(number, blocks) in &ack.receipts {
            self.connections.acknowledge(now, number, blocks);
        }
        Ok(())
    }
}
