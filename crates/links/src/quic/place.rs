//! Several sockets at one address, an endpoint each: which of them a connection's packets are for.

use std::time::Duration;

use quinn_proto::{
    ConnectionId, ConnectionIdGenerator, HashedConnectionIdGenerator, InvalidCid,
    RandomConnectionIdGenerator,
};

/// Bytes of the first connection ID of who opens a connection, which is no endpoint's: all that
/// there may be.
const FIRST: usize = 20;

/// Which of so many sockets at one address this one is. A packet is for it if the first byte of
/// the connection ID that it is sent to says so: whoever shares packets out goes by that byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    nth: u8,
    of: u8,
}

impl Place {
    /// The only socket.
    pub const ONLY: Place = Place { nth: 0, of: 1 };

    /// The `nth` of `of` sockets; the only one where a byte cannot tell so many apart.
    #[must_use]
    pub fn new(nth: usize, of: usize) -> Place {
        match (u8::try_from(nth), u8::try_from(of)) {
            (Ok(nth), Ok(of)) if nth < of => Place { nth, of },
            _ => Place::ONLY,
        }
    }

    /// A byte with which this one's connection IDs may begin, made of any byte.
    #[must_use]
    pub fn first(self, chance: u8) -> u8 {
        (chance - chance % self.of).checked_add(self.nth).unwrap_or(self.nth)
    }

    /// Whether connection IDs that begin with this byte are this one's.
    #[must_use]
    pub fn has(self, first: u8) -> bool {
        first % self.of == self.nth
    }
}

/// The IDs of connections at a place. They are drawn until one is of the place.
pub(super) struct PlacedIds {
    place: Place,
    ids: HashedConnectionIdGenerator,
}

impl PlacedIds {
    pub(super) fn new(place: Place) -> PlacedIds {
        PlacedIds { place, ids: HashedConnectionIdGenerator::new() }
    }
}

impl ConnectionIdGenerator for PlacedIds {
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

/// The first ID of a connection to the place that has this byte.
pub(super) fn first_id(begins: u8) -> ConnectionId {
    let mut id = RandomConnectionIdGenerator::new(FIRST).generate_cid().to_vec();
    id.iter_mut().take(1).for_each(|first| *first = begins);
    ConnectionId::new(&id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_of_one_place_and_ids_are_of_theirs() {
        for of in [1, 2, 3, 7, 255] {
            let places: Vec<Place> = (0..of).map(|nth| Place::new(nth, of)).collect();
            for byte in 0..=u8::MAX {
                assert_eq!(places.iter().filter(|place| place.has(byte)).count(), 1);
                assert!(places.iter().all(|place| place.has(place.first(byte))));
            }
            for place in places.into_iter().take(9) {
                let id = PlacedIds::new(place).generate_cid();
                assert!(place.has(id[0]));
            }
        }
        assert_eq!([Place::new(1, 256), Place::new(3, 3)], [Place::ONLY; 2]);
        assert_eq!((first_id(9)[0], first_id(9).len()), (9, FIRST));
        assert_ne!(first_id(9), first_id(9));
    }
}
