//! The profiles `nosteg`: encrypted bytes are sent as they are, without a cover (ordinary-looking
//! traffic). All bytes look random, from the first byte on. Censors have blocked connections for
//! that reason (Wu et al., USENIX Security 2023). This module is for comparison, and for use
//! inside another transport that hides the bytes.

use std::time::Duration;

use anabranch_multipath::Time;

use super::family::{ACK_ROOM, Family, MANY};
use super::{ClientEnd, Hidden, NotCover, ServerEnd, Slot, family};

/// Profile without a cover, with few and persistent connections.
pub(super) const FAMILY: Family = Family {
    name: "nosteg",
    about: "random bytes",
    connections: 6,
    idle_connections: 2,
    max_bytes: None,
    wants_site: false,
    wants_pictures: false,
    wants_objects: false,
    answer: None,
    coalesces: false,
    streams: true,
    chunk: 4_096,
    padding: 512,
    ack_room: ACK_ROOM,
    pauses: |_| Duration::ZERO,
    client: |family, _, _, _| Box::new(NoSteg::new(family.max_bytes)),
    server: |family, _| Box::new(NoSteg::new(family.max_bytes)),
};
/// Profile without a cover, with many short connections.
pub(super) const SHORT: Family = Family {
    name: "nosteg-short",
    about: "random bytes, in many short connections",
    connections: MANY,
    max_bytes: family::SHORT,
    chunk: 3_900,
    ..FAMILY
};

/// A connection without a cover: it carries hidden bytes as they are.
#[derive(Debug)]
pub(super) struct NoSteg {
    /// Number of bytes that may still be sent, and number of bytes that may still arrive; `None`
    /// without a limit.
    left: Option<[usize; 2]>,
}

/// Minimum remaining volume of a connection in bytes, in each direction. A connection with less is
/// not used any more.
const LEAST: usize = 2_000;
/// Part of a connection's volume in bytes that is reserved for acknowledgements. Without this
/// reserve, the last of several connections might have no room to acknowledge the received data.
const SPARE: usize = 1_700;

impl NoSteg {
    /// Creates a connection. It may carry `most` bytes in each direction, or any number if `most`
    /// is `None`.
    pub(super) fn new(most: Option<usize>) -> NoSteg {
        NoSteg { left: most.map(|most| [most; 2]) }
    }
}

impl Slot for NoSteg {
    fn receive(
        &mut self,
        _now: Time,
        bytes: &[u8],
        each: &mut dyn FnMut(Hidden<'_>),
    ) -> Result<(), NotCover> {
        if let Some([_, left]) = &mut self.left {
            *left = left.saturating_sub(bytes.len());
        }
        each(Hidden::Bytes(bytes));
        Ok(())
    }

    fn room(&self, socket: usize) -> usize {
        match self.left {
            None => socket,
            Some([left, _]) => left.min(socket),
        }
    }

    fn spare(&self) -> usize {
        match self.left {
            None => 0,
            // The client closes the connection once all of its blocks are acknowledged.
            Some(_) if self.is_spent() => usize::MAX,
            Some(_) => SPARE,
        }
    }

    fn fit(&mut self, hidden: usize) -> usize {
        hidden
    }

    fn send(&mut self, _now: Time, hidden: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(hidden);
        if let Some([left, _]) = &mut self.left {
            *left = left.saturating_sub(hidden.len());
        }
    }

    fn is_spent(&self) -> bool {
        self.left.is_some_and(|left| left.into_iter().any(|left| left < LEAST))
    }
}

impl ClientEnd for NoSteg {
    fn begins(&self) -> bool {
        true
    }
}

impl ServerEnd for NoSteg {
    fn has_answered(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_until_the_connection_has_had_its_share() {
        let (mut slot, mut out) = (NoSteg::new(Some(5_000)), Vec::new());
        assert_eq!((slot.room(9_000), slot.room(300), slot.spare()), (5_000, 300, SPARE));
        slot.send(Time::ZERO, &[7; 3_000], &mut out);
        assert!(!slot.has_answered() && !slot.is_spent());
        assert_eq!((out.len(), slot.room(9_000)), (3_000, 2_000));
        slot.send(Time::ZERO, &[7; 100], &mut out);
        assert!(!slot.has_answered() && slot.is_spent());
        assert_eq!((slot.room(9_000), slot.spare()), (1_900, usize::MAX));
        let mut seen = Vec::new();
        let mut each = |hidden: Hidden<'_>| match hidden {
            Hidden::Bytes(bytes) => seen.extend_from_slice(bytes),
            _ => panic!("one exchange"),
        };
        slot.receive(Time::ZERO, b"ab", &mut each).unwrap();
        slot.receive(Time::ZERO, b"c", &mut each).unwrap();
        assert_eq!(seen, b"abc");
    }
}
