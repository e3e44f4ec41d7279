//! Packets to clients, collected so that one system call sends consecutive packets for one path.

use std::ops::Range;

use anabranch_multipath::{PathId, Time};
use anabranch_tunnel::{ClientId, FarSide, Peer, pieces};
use rand_chacha::ChaCha20Rng;

use anabranch_os::udp::{Datagrams, SendQueue, UdpSocket};

use super::streams::Streams;

/// The collected packets that wait to be sent.
#[derive(Default)]
pub(super) struct Outbox {
    /// The packets, stored one after the other.
    pub(super) bytes: Vec<u8>,
    pieces: Vec<Piece>,
}

/// Consecutive packets to one peer. All have the same length; only the last may be shorter.
struct Piece {
    to: Peer,
    part: Range<usize>,
    stride: usize,
}

impl Outbox {
    /// Encrypts `datagram` of the flow `flow` into packets to `client` on `path`, and collects
    /// these packets. Returns false if the datagram, or a part of it, cannot be sent.
    pub(super) fn seal(
        &mut self,
        now: Time,
        far: &mut FarSide<ChaCha20Rng>,
        (client, path): (ClientId, PathId),
        (flow, datagram): (u16, &[u8]),
    ) -> bool {
        let room = far.session(client).and_then(|session| session.room(path));
        let mut all = true;
        for piece in pieces(datagram, room) {
            let start = self.bytes.len();
            match far.seal(now, client, path, (flow, piece), &mut self.bytes) {
                Some(to) => self.add(to, start),
                None => all = false,
            }
        }
        all
    }

    /// Adds one packet for `to`: the bytes of the field `bytes` from the offset `start` to the
    /// end.
    pub(super) fn add(&mut self, to: Peer, start: usize) {
        let (end, length) = (self.bytes.len(), self.bytes.len() - start);
        match self.pieces.last_mut().filter(|last| last.takes(to, length)) {
            Some(last) => last.part.end = end,
            None => self.pieces.push(Piece { to, part: start..end, stride: length }),
        }
    }

    /// Moves the packets for streams to `streams`. Returns the number of packets that did not fit
    /// into a stream's queue.
    pub(super) fn share(&mut self, now: Time, streams: &mut Streams) -> u64 {
        let mut failed = 0;
        for Piece { to, part, stride } in &self.pieces {
            let Some(stream) = to.stream else { continue };
            let packets = self.bytes[part.clone()].chunks(*stride);
            failed +=
                packets.filter(|packet| !streams.push(now, stream, packet, false)).count() as u64;
        }
        self.pieces.retain(|piece| piece.to.stream.is_none());
        failed
    }

    /// Sends the packets that are not for a stream. Returns the number of packets that could not
    /// be sent.
    pub(super) fn send(&mut self, socket: &UdpSocket, queue: &mut SendQueue) -> u64 {
        let mut failed = 0;
        if !self.pieces.is_empty() {
            let mut batch = queue.batch(socket);
            for Piece { to, part, stride } in &self.pieces {
                let bytes = &self.bytes[part.clone()];
                let (to, source) = (Some(to.remote), to.local);
                batch.push(Datagrams { bytes, stride: *stride, ecn: 0, to, source });
            }
            failed = batch.send().failed() as u64;
        }
        self.pieces.clear();
        self.bytes.clear();
        failed
    }
}

impl Piece {
    fn takes(&self, to: Peer, length: usize) -> bool {
        self.to == to && length <= self.stride && self.part.len().is_multiple_of(self.stride)
    }
}
