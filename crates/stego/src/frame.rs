//! Encoding of frames, the protocol's messages. A block, the unit of encryption, contains a
//! sequence of frames.
//!
//! Integers are encoded as variable-length integers of QUIC (RFC 9000, section 16).

use std::ops::Range;

/// Maximum number of ranges of received chunks that one acknowledgement lists.
pub(crate) const RANGES: usize = 32;
/// Maximum number of connections for which one acknowledgement states how many blocks have been
/// received.
pub(crate) const RECEIPTS: usize = 32;
/// Greatest integer that a frame can contain: the limit of QUIC's variable-length integers.
const GREATEST: u64 = (1 << 62) - 1;

/// Type byte of padding, which fills the block up to its end.
const PAD: u8 = 0;
/// Type byte of a frame with a chunk of the stream's data.
const DATA: u8 = 1;
/// Type byte of a frame that ends the stream.
const FIN: u8 = 2;
/// Type byte of a frame that resets the link, and so both streams.
const RESET: u8 = 3;
/// Type byte of an acknowledgement frame.
const ACK: u8 = 4;
/// Type byte of a frame that probes a connection.
const PING: u8 = 5;
/// Type byte of the frame that answers a probe.
const PONG: u8 = 6;
/// Type byte of the frame with which a client gives an index to a connection.
const SLOT: u8 = 7;

/// A decoded frame: one message of the protocol between the two ends of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// A chunk of the stream's data. Chunks are numbered from 0.
    Data { chunk: u64, bytes: &'a [u8] },
    /// The end of the stream. `chunk` is one more than the sequence number of the last chunk.
    Fin { chunk: u64 },
    /// A reset, which aborts the streams of both directions.
    Reset,
    /// An acknowledgement of received chunks of the other direction's stream.
    Ack(Ack),
    /// A probe of the connection, which is answered over the same connection.
    Ping,
    /// The answer to a PING.
    Pong,
    /// The client's index of this connection. If the server still has an older connection with the
    /// same index, the new connection replaces it.
    Slot(u64),
}

/// An acknowledgement of the other end's stream, with the flow-control limit of that stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ack {
    /// Sequence number of the first chunk that has not arrived.
    pub(crate) next: u64,
    /// Ranges of later chunks that have arrived, in ascending order and with gaps between them.
    pub(crate) ranges: Vec<Range<u64>>,
    /// Maximum total bytes that may be sent on the acknowledged stream (flow control).
    pub(crate) limit: u64,
    /// Total bytes written so far to the stream in the other direction, whether sent or not.
    pub(crate) written: u64,
    /// Pairs of a connection's identifier and the number of blocks received over it. The
    /// connection of the handshake has the identifier 0. A later connection has the index of its
    /// token (the bytes with which it joins the link) plus 1.
    pub(crate) receipts: Vec<(u64, u64)>,
}

/// Error: the frames of a block are malformed, so its sender violates the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadFrame;

impl<'a> Frame<'a> {
    /// Reads the first frame of `bytes` and removes it from `bytes`. Returns `None` if only
    /// padding follows.
    ///
    /// # Errors
    /// The bytes are not a frame.
    pub(crate) fn read(bytes: &mut &'a [u8]) -> Result<Option<Frame<'a>>, BadFrame> {
        let Some((&kind, rest)) = bytes.split_first() else { return Ok(None) };
        *bytes = rest;
        Frame::read_kind(kind, bytes).ok_or(BadFrame)
    }

    #[allow(clippy::option_option, reason = "padding is neither an error nor a frame")]
    fn read_kind(kind: u8, bytes: &mut &'a [u8]) -> Option<Option<Frame<'a>>> {
        let frame = match kind {
            PAD => return bytes.iter().all(|&byte| byte == 0).then_some(None),
            DATA => {
                let (chunk, length) = (take_number(bytes)?, take_number(bytes)?);
                let data = bytes.split_off(..usize::try_from(length).ok()?)?;
                Frame::Data { chunk, bytes: data }
            }
            FIN => Frame::Fin { chunk: take_number(bytes)? },
            RESET => Frame::Reset,
            ACK => Frame::Ack(Ack::read(bytes)?),
            PING => Frame::Ping,
            PONG => Frame::Pong,
            SLOT => Frame::Slot(take_number(bytes)?),
            _ => return None,
        };
        Some(Some(frame))
    }

    /// Returns whether the receiver must acknowledge the block that contains the frame.
    pub(crate) fn is_ack_eliciting(&self) -> bool {
        matches!(self, Frame::Data { .. } | Frame::Fin { .. } | Frame::Ping)
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Data { chunk, bytes } => {
                out.push(DATA);
                put_number(*chunk, out);
                put_number(bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
            Frame::Fin { chunk } => {
                out.push(FIN);
                put_number(*chunk, out);
            }
            Frame::Reset => out.push(RESET),
            Frame::Ack(ack) => ack.write(out),
            Frame::Ping => out.push(PING),
            Frame::Pong => out.push(PONG),
            Frame::Slot(slot) => {
                out.push(SLOT);
                put_number(*slot, out);
            }
        }
    }
}

/// Maximum overhead of a DATA frame in bytes: 1 for the type, 8 for the chunk's sequence number, 4
/// for its length.
pub(crate) const DATA_OVERHEAD: usize = 1 + 8 + 4;

impl Ack {
    fn read(bytes: &mut &[u8]) -> Option<Ack> {
        let (next, limit, written) =
            (take_number(bytes)?, take_number(bytes)?, take_number(bytes)?);
        let count = usize::from(take_byte(bytes)?);
        let (mut ranges, mut end) = (Vec::new(), next);
        (count <= RANGES).then_some(())?;
        for _ in 0..count {
            let (gap, length) = (take_number(bytes)?, take_number(bytes)?);
            let start = end.checked_add(gap)?;
            (gap > 0 && length > 0).then_some(())?;
            end = start.checked_add(length).filter(|&end| end <= GREATEST)?;
            ranges.push(start..end);
        }
        let count = usize::from(take_byte(bytes)?);
        (count <= RECEIPTS).then_some(())?;
        let receipt = |_| Some((take_number(bytes)?, take_number(bytes)?));
        let receipts = (0..count).map(receipt).collect::<Option<_>>()?;
        Some(Ack { next, ranges, limit, written, receipts })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(ACK);
        [self.next, self.limit, self.written].into_iter().for_each(|one| put_number(one, out));
        let count = self.ranges.len().min(RANGES);
        out.push(count as u8);
        let mut end = self.next;
        for range in &self.ranges[..count] {
            put_number(range.start - end, out);
            put_number(range.end - range.start, out);
            end = range.end;
        }
        let count = self.receipts.len().min(RECEIPTS);
        out.push(count as u8);
        for (connection, blocks) in &self.receipts[..count] {
            put_number(*connection, out);
            put_number(*blocks, out);
        }
    }
}

fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    bytes.split_off_first().copied()
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    let taken = bytes.split_off(..1 << (first >> 6))?;
    let rest = taken.iter().skip(1);
    Some(rest.fold(u64::from(first & 0x3f), |number, &byte| number << 8 | u64::from(byte)))
}

fn put_number(number: u64, out: &mut Vec<u8>) {
    let number = number.min(GREATEST);
    let bytes = number.to_be_bytes();
    let (length, form) = match number {
        0..0x40 => (1, 0),
        0x40..0x4000 => (2, 0x40),
        0x4000..0x4000_0000 => (4, 0x80),
        _ => (8, 0xc0),
    };
    let start = out.len();
    out.extend_from_slice(&bytes[8 - length..]);
    out[start] |= form;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack() -> Ack {
        Ack {
            next: 70,
            ranges: vec![72..80, 90..91, 100_000..1 << 40],
            limit: 1 << 20,
            written: 17,
            receipts: vec![(0, 3), (300, 1 << 33)],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let frames = [
            Frame::Data { chunk: GREATEST, bytes: b"bytes" },
            Frame::Data { chunk: 0, bytes: b"" },
            Frame::Fin { chunk: 5 },
            Frame::Reset,
            Frame::Ack(ack()),
            Frame::Ack(Ack::default()),
            Frame::Ping,
            Frame::Pong,
            Frame::Slot(70),
        ];
        let mut out = Vec::new();
        frames.iter().for_each(|frame| frame.write(&mut out));
        out.extend([0; 9]);
        let (mut rest, mut read) = (&out[..], Vec::new());
        while let Some(frame) = Frame::read(&mut rest).unwrap() {
            read.push(frame);
        }
        assert_eq!(read, frames);
    }

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        for (number, length) in
            [(0, 1), (63, 1), (64, 2), (16_383, 2), (16_384, 4), (1 << 30, 8), (GREATEST, 8)]
        {
            let mut out = Vec::new();
            put_number(number, &mut out);
            assert_eq!(out.len(), length);
            assert_eq!(take_number(&mut &out[..]), Some(number));
        }
    }

    #[test]
    fn what_is_cut_or_senseless_is_malformed() {
        let mut whole = Vec::new();
        Frame::Ack(ack()).write(&mut whole);
        for cut in 1..whole.len() {
            assert_eq!(Frame::read(&mut &whole[..cut]), Err(BadFrame), "{cut}");
        }
        let cases: [&[u8]; 7] = [
            &[9],
            &[DATA, 0, 4, 1, 2, 3],
            &[PAD, 0, 1],
            &[ACK, 0, 0, 0, 33],
            // A range without a gap before it, an empty range, and too many receipts.
            &[ACK, 0, 0, 0, 1, 0, 1, 0],
            &[ACK, 0, 0, 0, 1, 1, 0, 0],
            &[ACK, 0, 0, 0, 0, 33],
        ];
        for bytes in cases {
            assert_eq!(Frame::read(&mut { bytes }), Err(BadFrame), "{bytes:?}");
        }
    }
}
