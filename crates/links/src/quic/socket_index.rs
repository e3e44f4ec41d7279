//! Selection of a connection's socket if several sockets, each with its own endpoint, share one
//! address.

use std::time::Duration;

use quinn_proto::{
    ConnectionId, ConnectionIdGenerator, HashedConnectionIdGenerator, InvalidCid,
    RandomConnectionIdGenerator,
};

/// Length in bytes of the destination connection ID in a client's first packet. The client chooses
/// this ID; 20 is the maximum length of connection IDs (RFC 9000).
const FIRST: usize = 20;

/// Index of a socket among several sockets at one address. The first byte of a packet's
/// destination connection ID determines which socket receives the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketIndex {
    nth: u8,
    of: u8,
}

impl SocketIndex {
    /// Index of a socket that is the only one at its address.
    pub const ONLY: SocketIndex = SocketIndex { nth: 0, of: 1 };

    /// Returns the index of the socket number `nth` among `of` sockets. Returns
    /// [`SocketIndex::ONLY`] if one byte cannot distinguish `of` sockets.
    #[must_use]
    pub fn new(nth: usize, of: usize) -> SocketIndex {
        match (u8::try_from(nth), u8::try_from(of)) {
            (Ok(nth), Ok(of)) if nth < of => SocketIndex { nth, of },
            _ => SocketIndex::ONLY,
        }
    }

    /// Returns a first byte for connection IDs. Packets whose connection ID begins with this byte
    /// arrive at this socket. The byte is derived from the random byte `chance`.
    #[must_use]
    pub fn first(self, chance: u8) -> u8 {
        (chance - chance % self.of).checked_add(self.nth).unwrap_or(self.nth)
    }

    /// Returns true if packets whose connection ID begins with the byte `first` arrive at this
    /// socket.
    #[must_use]
    pub fn has(self, first: u8) -> bool {
        first % self.of == self.nth
    }
}

/// Generator of random connection IDs for one socket. It draws IDs until the first byte of one
/// selects this socket.
pub(super) struct SocketIndexIds {
    place: SocketIndex,
    ids: HashedConnectionIdGenerator,
}

impl SocketIndexIds {
    pub(super) fn new(place: SocketIndex) -> SocketIndexIds {
        SocketIndexIds { place, ids: HashedConnectionIdGenerator::new() }
    }
}

impl ConnectionIdGenerator for SocketIndexIds {
    fn generate_cid(&mut self) -> ConnectionId {
        loop {
            let id = self.ids.generate_cid();
            if id.first().is_some_and(|first| self.place.has(*first)) {
                return id;
            }
        }
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        self.ids.validate(id)
    }

    fn cid_len(&self) -> usize {
        self.ids.cid_len()
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        self.ids.cid_lifetime()
    }
}

/// Returns the destination connection ID of a client's first packet: `first_byte`, and then random
/// bytes.
pub(super) fn first_id(first_byte: u8) -> ConnectionId {
    let mut id = RandomConnectionIdGenerator::new(FIRST).generate_cid().to_vec();
    id.iter_mut().take(1).for_each(|first| *first = first_byte);
    ConnectionId::new(&id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_of_one_place_and_ids_are_of_theirs() {
        for of in [1, 2, 3, 7, 255] {
            let places: Vec<SocketIndex> = (0..of).map(|nth| SocketIndex::new(nth, of)).collect();
            for byte in 0..=u8::MAX {
                assert_eq!(places.iter().filter(|place| place.has(byte)).count(), 1);
                assert!(places.iter().all(|place| place.has(place.first(byte))));
            }
            for place in places.into_iter().take(9) {
                let id = SocketIndexIds::new(place).generate_cid();
                assert!(place.has(id[0]));
            }
        }
        assert_eq!([SocketIndex::new(1, 256), SocketIndex::new(3, 3)], [SocketIndex::ONLY; 2]);
        assert_eq!((first_id(9)[0], first_id(9).len()), (9, FIRST));
        assert_ne!(first_id(9), first_id(9));
    }
}
