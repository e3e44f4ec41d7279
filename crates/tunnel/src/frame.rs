//! The decrypted content of a packet (frame): a datagram of the session, or a control message
//! between the ends.
//!
//! ```text
//! frame = kind (1) · [stamp (4)] · [length (2)] · content · [zeros]
//! data  = flow (2) · run (2) · datagram
//! part  = flow (2) · run (2) · place (1) · a part of a datagram
//! ack   = largest (4) · count (4) · ago (4) · span (4)
//! decoy = as data, with zeros for a datagram
//! ```
//!
//! * `stamp`: when the packet was sent, in microseconds of the sender's clock (the lowest 32
//!   bits).
//! * `length`: present if zeros follow, which pad the packet to a common length.
//! * `flow`: identifier of one program at the near end (the user's side). The far end has a port
//!   for each flow, from which it exchanges packets with the server.
//! * `run`: the number of packets sent on the same path directly before this packet, with
//!   consecutive packet numbers. If some of these packets are missing when later packets of the
//!   path have arrived, they are lost.
//! * `ack`: acknowledges data to a sender that limits the data in flight on each path. It is sent
//!   on the path on which the data arrived. [`Receipt`] explains its fields.
//! * `decoy`: a dummy packet, with the length that a packet with data would have. The receiver
//!   drops it.

use std::ops::Range;

use crate::piece::{PLACE, Piece};
use crate::window::Receipt;

/// A parsed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// A datagram of a flow (one program), or a part of a datagram. `stamp` is the time of
    /// sending. `run` is the number of packets sent on the same path directly before this packet,
    /// with consecutive packet numbers. If `counted` is true, the datagram needs an
    /// acknowledgement.
    Data { stamp: u32, flow: u16, run: u16, counted: bool, piece: Piece<'a> },
    /// A probe of a path, which the other end answers with a [`Frame::Pong`] on the same path. If
    /// `deaf` is true, the sender receives nothing on that path. `rtt` is the round-trip time that
    /// the sender measured there, in microseconds, or 0. `room` is the maximum length of a packet
    /// on that path, in bytes, or 0.
    Ping { stamp: u32, deaf: bool, rtt: u32, room: u16 },
    /// The answer to a probe: the timestamp of the probe (`echo`), and the time at which the
    /// answer was sent (`stamp`).
    Pong { echo: u32, stamp: u32 },
    /// An acknowledgement of the datagrams that arrived on the path and need one.
    Ack(Receipt),
    /// A decoy (dummy packet). It is as long as a packet that carries `bytes` bytes of a datagram.
    Decoy { stamp: u32, run: u16, bytes: usize },
    /// The end of the session.
    Close,
}

/// Kind of a frame: a datagram.
const DATA: u8 = 0;
/// Kind of a frame: a probe.
const PING: u8 = 1;
/// Kind of a frame: the answer to a probe.
const PONG: u8 = 2;
/// Kind of a frame: the end of the session.
const CLOSE: u8 = 3;
/// Kind of a frame: an acknowledgement.
const ACK: u8 = 4;
/// Kind of a frame: a part of a datagram.
const PART: u8 = 5;
/// Kind of a frame: a decoy (dummy packet).
const DECOY: u8 = 6;
/// Bits of the first byte that contain the kind.
const KIND: u8 = 0x0f;
/// Bit of the first byte: a time stamp follows.
const STAMPED: u8 = 0x10;
/// Bit of the first byte: the frame has a length and padding.
const PADDED: u8 = 0x20;
/// Bit of the first byte: the datagram needs an acknowledgement.
const COUNTED: u8 = 0x40;

/// Maximum bytes of a datagram's frame in addition to the datagram itself. The frame of a part of
/// a datagram has [`PLACE`] more bytes.
pub(crate) const OVERHEAD: usize = PLAIN + LENGTH;
/// Bytes of a datagram's frame without padding, in addition to the datagram itself: 1 for the
/// kind, 4 for the timestamp, then the fields `flow` and `run`.
pub(crate) const PLAIN: usize = 1 + 4 + FLOW + RUN;
/// Length in bytes of the field `length`.
const LENGTH: usize = 2;
/// Length in bytes of the field `flow`.
const FLOW: usize = 2;
/// Length in bytes of the field `run`.
const RUN: usize = 2;

impl<'a> Frame<'a> {
    /// Parses a frame. Returns `None` for malformed frames, and for kinds that only later versions
    /// know.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Frame<'a>> {
        let (&kind, rest) = bytes.split_first()?;
        let (stamp, rest) = match kind & STAMPED {
            0 => (None, rest),
            _ => {
                let (stamp, rest) = rest.split_first_chunk()?;
                (Some(u32::from_be_bytes(*stamp)), rest)
            }
        };
        let content = match kind & PADDED {
            0 => rest,
            _ => {
                let (length, rest) = rest.split_first_chunk()?;
                rest.get(..usize::from(u16::from_be_bytes(*length)))?
            }
        };
        let (counted, carries) = (kind & COUNTED != 0, matches!(kind & KIND, DATA | PART));
        if kind & !(KIND | STAMPED | PADDED | COUNTED) != 0 || counted && !carries {
            return None;
        }
        match kind & KIND {
            kind @ (DATA | PART) => {
                let (flow, rest) = content.split_first_chunk::<FLOW>()?;
                let (run, rest) = rest.split_first_chunk::<RUN>()?;
                let [flow, run] = [*flow, *run].map(u16::from_be_bytes);
                let piece = if kind == DATA { rest.into() } else { Piece::read(rest)? };
                Some(Frame::Data { stamp: stamp?, flow, run, counted, piece })
            }
            PING => {
                let (deaf, rest) = content.split_first()?;
                let (rtt, rest) = rest.split_first_chunk()?;
                // A peer of an earlier version does not send this field.
                let room = rest.first_chunk().map_or(0, |room| u16::from_be_bytes(*room));
                let (deaf, rtt) = (*deaf == 1, u32::from_be_bytes(*rtt));
                Some(Frame::Ping { stamp: stamp?, deaf, rtt, room })
            }
            PONG => {
                let echo = u32::from_be_bytes(content.try_into().ok()?);
                Some(Frame::Pong { echo, stamp: stamp? })
            }
            ACK => {
                let fields: &[u8; 16] = content.try_into().ok()?;
                let word = |place: usize| {
                    let four = std::array::from_fn(|byte| fields[4 * place + byte]);
                    u32::from_be_bytes(four)
                };
                let [largest, count, ago, span] = [0, 1, 2, 3].map(word);
                Some(Frame::Ack(Receipt { largest, count, ago, span }))
            }
            DECOY => {
                let (_, rest) = content.split_first_chunk::<FLOW>()?;
                let (run, rest) = rest.split_first_chunk::<RUN>()?;
                let run = u16::from_be_bytes(*run);
                Some(Frame::Decoy { stamp: stamp?, run, bytes: rest.len() })
            }
            CLOSE => Some(Frame::Close),
            _ => None,
        }
    }

    /// Returns the time at which the frame was sent; `None` if the frame has no timestamp.
    pub(crate) fn stamp(self) -> Option<u32> {
        match self {
            Frame::Data { stamp, .. }
            | Frame::Decoy { stamp, .. }
            | Frame::Ping { stamp, .. }
            | Frame::Pong { stamp, .. } => Some(stamp),
            Frame::Ack(_) | Frame::Close => None,
        }
    }

    /// Returns the number of packets sent on the same path directly before this frame's packet,
    /// with consecutive packet numbers. It is 0 for control messages.
    pub(crate) fn run(self) -> u16 {
        if let Frame::Data { run, .. } | Frame::Decoy { run, .. } = self { run } else { 0 }
    }

    /// Returns the bytes that precede the datagram in the frame, and the zeros that follow it. The
    /// zeros pad the frame to the smallest of `sizes` that is large enough.
    pub(crate) fn parts(&self, sizes: &[usize]) -> Parts {
        let (kind, stamp, field, datagram) = match self {
            Frame::Data { stamp, flow, run, counted, piece } => {
                let kind = if piece.place.is_some() { PART } else { DATA };
                let kind = if *counted { kind | COUNTED } else { kind };
                let field = Field::default().with(&flow.to_be_bytes()).with(&run.to_be_bytes());
                let field = field.with(piece.place.as_slice());
                (kind, Some(*stamp), field, piece.bytes.len())
            }
            Frame::Ping { stamp, deaf, rtt, room } => {
                let field = Field::default().with(&[u8::from(*deaf)]).with(&rtt.to_be_bytes());
                (PING, Some(*stamp), field.with(&room.to_be_bytes()), 0)
            }
            Frame::Pong { echo, stamp } => {
                (PONG, Some(*stamp), Field::default().with(&echo.to_be_bytes()), 0)
            }
            Frame::Ack(Receipt { largest, count, ago, span }) => {
                let words = [largest, count, ago, span].map(|word| word.to_be_bytes());
                let field = words.iter().fold(Field::default(), |field, word| field.with(word));
                (ACK, None, field, 0)
            }
            Frame::Decoy { stamp, run, bytes } => {
                let field = Field::default().with(&[0; FLOW]).with(&run.to_be_bytes());
                (DECOY, Some(*stamp), field, *bytes)
            }
            Frame::Close => (CLOSE, None, Field::default(), 0),
        };
        let length = field.bytes().len() + datagram;
        let plain = 1 + stamp.map_or(0, |_| 4) + length;
        let size = sizes.iter().copied().filter(|size| *size >= plain + LENGTH).min();
        let padded = size.zip(u16::try_from(length).ok());
        let flags = stamp.map_or(0, |_| STAMPED) | padded.map_or(0, |_| PADDED);
        let zeros = padded.map_or(0, |(size, _)| size - plain - LENGTH);
        let mut parts = Parts { head: [0; HEAD], length: 0, zeros };
        parts.push(&[kind | flags]);
        stamp.into_iter().for_each(|stamp| parts.push(&stamp.to_be_bytes()));
        padded.into_iter().for_each(|(_, length)| parts.push(&length.to_be_bytes()));
        parts.push(field.bytes());
        parts
    }

    /// Returns the range of `bytes`, a data frame, that contains `datagram`.
    pub(crate) fn place(bytes: &[u8], datagram: &[u8]) -> Range<usize> {
        let is_padded = bytes.first().is_some_and(|kind| kind & PADDED != 0);
        let is_part = bytes.first().is_some_and(|kind| kind & KIND == PART);
        let start = PLAIN + if is_padded { LENGTH } else { 0 } + if is_part { PLACE } else { 0 };
        start..start + datagram.len()
    }
}

/// A buffer for the fields of a frame that depend on its kind, such as `flow` and `run`.
#[derive(Clone, Copy, Default)]
struct Field {
    bytes: [u8; FIELD],
    length: usize,
}

/// Maximum length of a [`Field`] in bytes. It is the length of an acknowledgement.
const FIELD: usize = 16;

impl Field {
    fn with(mut self, bytes: &[u8]) -> Field {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
        self
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Maximum number of bytes of a frame before its datagram: 1 for the kind, 4 for the timestamp,
/// then the length field and a [`Field`]. It is also the maximum length of a control message.
const HEAD: usize = 1 + 4 + LENGTH + FIELD;

/// The bytes of a frame before and after its datagram. The datagram itself is not copied.
pub(crate) struct Parts {
    head: [u8; HEAD],
    length: usize,
    zeros: usize,
}

/// Zeros for the content of decoys (dummy packets) and the padding of packets.
pub(crate) static ZEROS: [u8; 65_536] = [0; 65_536];

impl Parts {
    fn push(&mut self, bytes: &[u8]) {
        self.head[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Returns the pieces of the frame around `datagram`, in the order in which they are sent.
    pub(crate) fn around<'a>(&'a self, datagram: &'a [u8]) -> [&'a [u8]; 3] {
        [&self.head[..self.length], datagram, &ZEROS[..self.zeros.min(ZEROS.len())]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(frame: &Frame<'_>, sizes: &[usize]) -> Vec<u8> {
        let datagram = match frame {
            Frame::Data { piece, .. } => piece.bytes,
            Frame::Decoy { bytes, .. } => &ZEROS[..*bytes],
            _ => &[],
        };
        frame.parts(sizes).around(datagram).concat()
    }

    #[test]
    fn what_is_written_is_read() {
        let part = Piece { bytes: b"part", place: Some(0x82) };
        let frames = [
            Frame::Data { stamp: 0, flow: 0, run: 0, counted: false, piece: b"x".into() },
            Frame::Data { stamp: 7, flow: 0xfffe, run: 513, counted: true, piece: b"".into() },
            Frame::Data { stamp: 7, flow: 9, run: 513, counted: true, piece: part },
            Frame::Ack(Receipt { largest: 1, count: u32::MAX, ago: 70_000, span: 900 }),
            Frame::Ping { stamp: u32::MAX, deaf: false, rtt: 0, room: 0 },
            Frame::Ping { stamp: 3, deaf: true, rtt: 20_000, room: 1_472 },
            Frame::Pong { echo: 1, stamp: 2 },
            Frame::Decoy { stamp: 9, run: 3, bytes: 0 },
            Frame::Decoy { stamp: 9, run: 513, bytes: 1_200 },
            Frame::Close,
        ];
        for frame in frames {
            for sizes in [&[][..], &[64, 1200], &[3]] {
                let bytes = written(&frame, sizes);
                assert_eq!(Frame::read(&bytes), Some(frame), "{sizes:?}");
                if let Frame::Data { piece, .. } = frame {
                    assert_eq!(&bytes[Frame::place(&bytes, piece.bytes)], piece.bytes);
                }
            }
        }
    }

    #[test]
    fn a_decoy_is_as_long_as_the_datagram_that_it_stands_for() {
        for length in [0, 1, 60, 200, 1_300] {
            for (place, more) in [(None, 0), (Some(0x81), PLACE)] {
                let piece = Piece { bytes: &vec![1; length], place };
                let data = Frame::Data { stamp: 1, flow: 2, run: 3, counted: false, piece };
                let decoy = Frame::Decoy { stamp: 1, run: 3, bytes: length + more };
                for sizes in [&[][..], &[64, 256]] {
                    assert_eq!(written(&decoy, sizes).len(), written(&data, sizes).len());
                }
            }
        }
    }

    #[test]
    fn a_question_of_an_earlier_version_says_nothing_of_room() {
        let bytes = [PING | STAMPED, 0, 0, 0, 7, 1, 0, 0, 0, 9];
        let ping = Frame::Ping { stamp: 7, deaf: true, rtt: 9, room: 0 };
        assert_eq!(Frame::read(&bytes), Some(ping));
    }

    #[test]
    fn padding_leaves_a_few_sizes_alone() {
        for length in 0..300 {
            let piece = Piece { bytes: &vec![1; length], place: None };
            let data = Frame::Data { stamp: 1, flow: 2, run: 3, counted: true, piece };
            let bytes = written(&data, &[64, 256]);
            let size = [64, 256].into_iter().find(|size| length + OVERHEAD <= *size);
            assert_eq!(bytes.len(), size.unwrap_or(length + PLAIN));
        }
    }

    #[test]
    fn frames_of_later_versions_and_short_ones_are_none() {
        let data_without_run = &[DATA | STAMPED, 0, 0, 0, 0, 1, 2, 3];
        assert_eq!(Frame::read(data_without_run), None);
        for bytes in [
            &[][..],
            &[7],
            &[DECOY | STAMPED, 0, 0, 0, 0, 1, 2, 3],
            &[DECOY, 0, 0, 0, 0],
            &[COUNTED | DECOY | STAMPED, 0, 0, 0, 0, 1, 2, 3, 4],
            &[PART | STAMPED, 0, 0, 0, 0, 1, 2, 3, 4],
            &[0x80],
            &[PING | STAMPED, 0, 0, 0, 0, 1, 0, 0, 0],
            &[COUNTED | PING | STAMPED, 0, 0, 0, 0, 1, 0, 0, 0, 0],
            &[ACK, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[PING],
            &[PONG | STAMPED, 0, 0, 0, 0],
            &[PADDED, 0, 9],
            &[0; 9],
        ] {
            assert_eq!(Frame::read(bytes), None, "{bytes:?}");
        }
    }
}
