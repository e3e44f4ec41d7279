//! What is inside a packet: a datagram of the session that is carried, or a word between the ends.
//!
//! ```text
//! frame = kind (1) · [stamp (4)] · [length (2)] · content · [zeros]
//! data  = flow (2) · run (2) · datagram
//! ack   = largest (4) · count (4) · ago (4)
//! ```
//!
//! A stamp is when the packet was sent, in microseconds of the sender's clock (the lowest 32
//! bits). A length is there where zeros follow, to make the packet as long as others. A flow is
//! one program of the near end's: the far end speaks to the server from a port of its own for
//! each. A run is how many packets before this one, each numbered one less than the next, went by
//! the same path: what is missing of them is lost, if later ones of the path are here. A sender
//! with windows has its data acknowledged, each path's by that path.

use std::ops::Range;

use crate::window::Receipt;

/// A frame, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// A datagram of a flow, when it was sent, how long the path's run is before it, and whether it
    /// is to be acknowledged.
    Data { stamp: u32, flow: u16, run: u16, counted: bool, datagram: &'a [u8] },
    /// To be answered by a [`Frame::Pong`] by the same path. `deaf` says that nothing comes by that
    /// path to who asks, `rtt` what round-trip time was measured there, in microseconds, or 0.
    Ping { stamp: u32, deaf: bool, rtt: u32 },
    /// The stamp that is answered, and when the answer was sent.
    Pong { echo: u32, stamp: u32 },
    /// What of the path's counted data has come.
    Ack(Receipt),
    /// The other end ends the session.
    Close,
}

const DATA: u8 = 0;
const PING: u8 = 1;
const PONG: u8 = 2;
const CLOSE: u8 = 3;
const ACK: u8 = 4;
const KIND: u8 = 0x0f;
const STAMPED: u8 = 0x10;
const PADDED: u8 = 0x20;
const COUNTED: u8 = 0x40;

/// Bytes that a datagram's frame has more than the datagram, at most.
pub(crate) const OVERHEAD: usize = PLAIN + LENGTH;
/// The same where no zeros follow.
pub(crate) const PLAIN: usize = 1 + 4 + FLOW + RUN;
const LENGTH: usize = 2;
const FLOW: usize = 2;
const RUN: usize = 2;

impl<'a> Frame<'a> {
    /// Reads a frame; `None` for kinds of later versions and what is malformed.
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
        let counted = kind & COUNTED != 0;
        if kind & !(KIND | STAMPED | PADDED | COUNTED) != 0 || counted && kind & KIND != DATA {
            return None;
        }
        match kind & KIND {
            DATA => {
                let (flow, rest) = content.split_first_chunk::<FLOW>()?;
                let (run, datagram) = rest.split_first_chunk::<RUN>()?;
                let [flow, run] = [*flow, *run].map(u16::from_be_bytes);
                Some(Frame::Data { stamp: stamp?, flow, run, counted, datagram })
            }
            PING => {
                let (deaf, rest) = content.split_first()?;
                let rtt = u32::from_be_bytes(*rest.first_chunk()?);
                Some(Frame::Ping { stamp: stamp?, deaf: *deaf == 1, rtt })
            }
            PONG => {
                let echo = u32::from_be_bytes(content.try_into().ok()?);
                Some(Frame::Pong { echo, stamp: stamp? })
            }
            ACK => {
                let fields: &[u8; 12] = content.try_into().ok()?;
                let word = |place: usize| {
                    let four = std::array::from_fn(|byte| fields[4 * place + byte]);
                    u32::from_be_bytes(four)
                };
                let [largest, count, ago] = [0, 1, 2].map(word);
                Some(Frame::Ack(Receipt { largest, count, ago }))
            }
            CLOSE => Some(Frame::Close),
            _ => None,
        }
    }

    /// When it was sent, if it says so.
    pub(crate) fn stamp(self) -> Option<u32> {
        match self {
            Frame::Data { stamp, .. } | Frame::Ping { stamp, .. } | Frame::Pong { stamp, .. } => {
                Some(stamp)
            }
            Frame::Ack(_) | Frame::Close => None,
        }
    }

    /// So many packets before it, numbered without a gap, went by the same path; words do not say.
    pub(crate) fn run(self) -> u16 {
        if let Frame::Data { run, .. } = self { run } else { 0 }
    }

    /// What stands before the datagram, and the zeros that make the whole as long as the least of
    /// `sizes` that it fits into.
    pub(crate) fn parts(&self, sizes: &[usize]) -> Parts {
        let (kind, stamp, field, datagram) = match self {
            Frame::Data { stamp, flow, run, counted, datagram } => {
                let ([a, b], [c, d]) = (flow.to_be_bytes(), run.to_be_bytes());
                let kind = if *counted { DATA | COUNTED } else { DATA };
                (kind, Some(*stamp), Field::Data([a, b, c, d]), datagram.len())
            }
            Frame::Ping { stamp, deaf, rtt } => {
                let [a, b, c, d] = rtt.to_be_bytes();
                (PING, Some(*stamp), Field::Ping([u8::from(*deaf), a, b, c, d]), 0)
            }
            Frame::Pong { echo, stamp } => (PONG, Some(*stamp), Field::Echo(echo.to_be_bytes()), 0),
            Frame::Ack(Receipt { largest, count, ago }) => {
                let mut fields = [0; 12];
                let words = [largest, count, ago].into_iter().flat_map(|word| word.to_be_bytes());
                fields.iter_mut().zip(words).for_each(|(field, byte)| *field = byte);
                (ACK, None, Field::Ack(fields), 0)
            }
            Frame::Close => (CLOSE, None, Field::None, 0),
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

    /// Where the datagram of a data frame lies in the bytes that it was read from.
    pub(crate) fn place(bytes: &[u8], datagram: &[u8]) -> Range<usize> {
        let is_padded = bytes.first().is_some_and(|kind| kind & PADDED != 0);
        let start = PLAIN + if is_padded { LENGTH } else { 0 };
        start..start + datagram.len()
    }
}

/// What stands first in a content.
enum Field {
    None,
    Data([u8; FLOW + RUN]),
    Echo([u8; 4]),
    Ping([u8; 5]),
    Ack([u8; 12]),
}

impl Field {
    fn bytes(&self) -> &[u8] {
        match self {
            Field::None => &[],
            Field::Data(both) => both,
            Field::Echo(echo) => echo,
            Field::Ping(both) => both,
            Field::Ack(fields) => fields,
        }
    }
}

/// Bytes before a datagram, or of a word, at most.
const HEAD: usize = 1 + 4 + LENGTH + 12;

/// A frame as it is written, but for a datagram itself, which is not copied for that.
pub(crate) struct Parts {
    head: [u8; HEAD],
    length: usize,
    zeros: usize,
}

static ZEROS: [u8; 65_536] = [0; 65_536];

impl Parts {
    fn push(&mut self, bytes: &[u8]) {
        self.head[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// The pieces, one behind the other.
    pub(crate) fn around<'a>(&'a self, datagram: &'a [u8]) -> [&'a [u8]; 3] {
        [&self.head[..self.length], datagram, &ZEROS[..self.zeros.min(ZEROS.len())]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(frame: &Frame<'_>, sizes: &[usize]) -> Vec<u8> {
        let datagram = if let Frame::Data { datagram, .. } = frame { datagram } else { &[][..] };
        frame.parts(sizes).around(datagram).concat()
    }

    #[test]
    fn what_is_written_is_read() {
        let frames = [
            Frame::Data { stamp: 0, flow: 0, run: 0, counted: false, datagram: b"x" },
            Frame::Data { stamp: 7, flow: 0xfffe, run: 513, counted: true, datagram: b"" },
            Frame::Ack(Receipt { largest: 1, count: u32::MAX, ago: 70_000 }),
            Frame::Ping { stamp: u32::MAX, deaf: false, rtt: 0 },
            Frame::Ping { stamp: 3, deaf: true, rtt: 20_000 },
            Frame::Pong { echo: 1, stamp: 2 },
            Frame::Close,
        ];
        for frame in frames {
            for sizes in [&[][..], &[64, 1200], &[3]] {
                let bytes = written(&frame, sizes);
                assert_eq!(Frame::read(&bytes), Some(frame), "{sizes:?}");
                if let Frame::Data { datagram, .. } = frame {
                    assert_eq!(&bytes[Frame::place(&bytes, datagram)], datagram);
                }
            }
        }
    }

    #[test]
    fn padding_leaves_a_few_sizes_alone() {
        for length in 0..300 {
            let datagram = &vec![1; length];
            let data = Frame::Data { stamp: 1, flow: 2, run: 3, counted: true, datagram };
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
            &[5],
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
