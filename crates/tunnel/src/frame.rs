//! What is inside a packet: a datagram of the session that is carried, or a word between the ends.
//!
//! ```text
//! frame = kind (1) · [stamp (4)] · [length (2)] · content · [zeros]
//! ```
//!
//! A stamp is when the packet was sent, in microseconds of the sender's clock (the lowest 32 bits).
//! A length is there where zeros follow, to make the packet as long as others.

/// A frame, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// A datagram; when it was sent, if it begins a run.
    Data { stamp: Option<u32>, datagram: &'a [u8] },
    /// To be answered by a [`Frame::Pong`] by the same path.
    Ping { stamp: u32 },
    /// The stamp that is answered, and when the answer was sent.
    Pong { echo: u32, stamp: u32 },
    /// The other end ends the session.
    Close,
}

const DATA: u8 = 0;
const PING: u8 = 1;
const PONG: u8 = 2;
const CLOSE: u8 = 3;
const KIND: u8 = 0x0f;
const STAMPED: u8 = 0x10;
const PADDED: u8 = 0x20;

/// Bytes that a datagram's frame has more than the datagram, at most.
pub(crate) const OVERHEAD: usize = 1 + 4 + 2;

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
        if kind & !(KIND | STAMPED | PADDED) != 0 {
            return None;
        }
        match kind & KIND {
            DATA => Some(Frame::Data { stamp, datagram: content }),
            PING => Some(Frame::Ping { stamp: stamp? }),
            PONG => {
                let echo = u32::from_be_bytes(content.try_into().ok()?);
                Some(Frame::Pong { echo, stamp: stamp? })
            }
            CLOSE => Some(Frame::Close),
            _ => None,
        }
    }

    /// What stands before the content, the content, and the zeros that make the whole as long as
    /// the least of `sizes` that it fits into.
    pub(crate) fn parts(&self, sizes: &[usize], parts: &mut Parts) {
        let (kind, stamp, content): (u8, Option<u32>, &[u8]) = match self {
            Frame::Data { stamp, datagram } => (DATA, *stamp, datagram),
            Frame::Ping { stamp } => (PING, Some(*stamp), &[]),
            Frame::Pong { echo, stamp } => {
                parts.echo = echo.to_be_bytes();
                (PONG, Some(*stamp), &[])
            }
            Frame::Close => (CLOSE, None, &[]),
        };
        let length = if kind == PONG { parts.echo.len() } else { content.len() };
        parts.head.clear();
        parts.head.push(kind);
        if let Some(stamp) = stamp {
            parts.head[0] |= STAMPED;
            parts.head.extend_from_slice(&stamp.to_be_bytes());
        }
        let plain = parts.head.len() + length;
        let size = sizes.iter().copied().filter(|size| *size >= plain + 2).min();
        parts.zeros = size.map_or(0, |size| size - plain - 2);
        if let (Some(_), Ok(length)) = (size, u16::try_from(length)) {
            parts.head[0] |= PADDED;
            parts.head.extend_from_slice(&length.to_be_bytes());
        }
        parts.is_pong = kind == PONG;
    }
}

/// A frame as it is written, but for a datagram itself, which is not copied for that.
#[derive(Default)]
pub(crate) struct Parts {
    head: Vec<u8>,
    echo: [u8; 4],
    is_pong: bool,
    zeros: usize,
}

static ZEROS: [u8; 65_536] = [0; 65_536];

impl Parts {
    /// The pieces, one behind the other.
    pub(crate) fn around<'a>(&'a self, datagram: &'a [u8]) -> [&'a [u8]; 3] {
        let content = if self.is_pong { &self.echo[..] } else { datagram };
        [&self.head, content, &ZEROS[..self.zeros.min(ZEROS.len())]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(frame: &Frame<'_>, sizes: &[usize]) -> Vec<u8> {
        let mut parts = Parts::default();
        frame.parts(sizes, &mut parts);
        let datagram = if let Frame::Data { datagram, .. } = frame { datagram } else { &[][..] };
        parts.around(datagram).concat()
    }

    #[test]
    fn what_is_written_is_read() {
        let frames = [
            Frame::Data { stamp: None, datagram: b"x" },
            Frame::Data { stamp: Some(7), datagram: b"" },
            Frame::Ping { stamp: u32::MAX },
            Frame::Pong { echo: 1, stamp: 2 },
            Frame::Close,
        ];
        for frame in frames {
            for sizes in [&[][..], &[64, 1200], &[3]] {
                let bytes = written(&frame, sizes);
                assert_eq!(Frame::read(&bytes), Some(frame), "{sizes:?}");
            }
        }
    }

    #[test]
    fn padding_leaves_a_few_sizes_alone() {
        for length in 0..300 {
            let bytes =
                written(&Frame::Data { stamp: None, datagram: &vec![1; length] }, &[64, 256]);
            let size = [64, 256].into_iter().find(|size| length + 3 <= *size);
            assert_eq!(bytes.len(), size.unwrap_or(length + 1));
        }
    }

    #[test]
    fn frames_of_later_versions_and_short_ones_are_none() {
        for bytes in
            [&[][..], &[4], &[0x40], &[PING], &[PONG | STAMPED, 0, 0, 0, 0], &[PADDED, 0, 9]]
        {
            assert_eq!(Frame::read(bytes), None, "{bytes:?}");
        }
    }
}
