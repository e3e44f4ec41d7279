//! The pictures of a server's operator.

use super::jpeg::{NotPicture, Picture};
use crate::slot::RESERVE;

/// Bytes of a file at most, and what it has to hide at least: the longest acknowledgement.
const LONGEST: usize = 120_000;
const LEAST: usize = 1_536;
/// An answer takes one of so many: where there is much to say, of those that are shortest for what
/// they hide, else of those that hide not much more than it needs.
const CHOICE: usize = 4;

/// Pictures that answers hide bytes in: baseline JPEGs of up to 120,000 bytes.
#[derive(Clone, Debug, Default)]
pub struct Pictures {
    /// By what they hide.
    entries: Vec<Entry>,
    /// Places of those that are shortest for what they hide, the best first.
    cheapest: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Entry {
    picture: Picture,
    /// Bytes that it hides, and those of its file.
    capacity: usize,
    length: usize,
}

impl Entry {
    /// Bytes of the file for those that it hides, in parts of 2^14 (a length has 17 bits).
    fn price(&self) -> usize {
        (self.length << 14) / self.capacity
    }
}

impl Pictures {
    /// Adds a picture's file: how many bytes it hides.
    ///
    /// # Errors
    /// It is no baseline JPEG of one scan, too long, or hides fewer than 1,536 bytes.
    pub fn add(&mut self, file: &[u8]) -> Result<usize, NotPicture> {
        let picture = Picture::read(file)?;
        let (capacity, length) = (picture.capacity(), file.len());
        if length > LONGEST || capacity < LEAST {
            return Err(NotPicture);
        }
        self.insert(Entry { picture, capacity, length });
        Ok(capacity)
    }

    fn insert(&mut self, entry: Entry) {
        let place = self.entries.partition_point(|other| other.capacity < entry.capacity);
        self.entries.insert(place, entry);
        self.cheapest = (0..self.entries.len()).collect();
        self.cheapest.sort_by_key(|&place| self.entries[place].price());
        self.cheapest.truncate(CHOICE);
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The picture of the answer of this `turn` where there is much to say.
    fn usual(&self, turn: usize) -> Option<(usize, usize)> {
        let place = *self.cheapest.get(turn % self.cheapest.len().max(1))?;
        Some((place, self.entries[place].capacity))
    }

    /// Bytes that the answer of this `turn` hides at most.
    pub(super) fn room(&self, turn: usize) -> usize {
        self.usual(turn).map_or(0, |(_, capacity)| capacity)
    }

    /// A picture for so many bytes, no more than [`Pictures::room`] said of this `turn`, and how
    /// many it hides: as many, or enough more for padding.
    pub(super) fn choose(&self, hidden: usize, turn: usize) -> (usize, usize) {
        let fits = |capacity: usize| capacity == hidden || capacity >= hidden + RESERVE;
        let is_full = |&(_, capacity): &(usize, usize)| {
            fits(capacity) && hidden + RESERVE >= capacity - capacity / 4
        };
        if let Some(usual) = self.usual(turn).filter(is_full) {
            return usual;
        }
        let first = self.entries.partition_point(|one| one.capacity < hidden + RESERVE);
        let choice = (self.entries.len() - first).clamp(1, CHOICE);
        let place = (first + turn % choice).min(self.entries.len().saturating_sub(1));
        (place, self.entries.get(place).map_or(0, |one| one.capacity))
    }

    /// Appends the file of a picture, with these bytes hidden in it.
    pub(super) fn write(&self, place: usize, hidden: &[u8], out: &mut Vec<u8>) {
        if let Some(entry) = self.entries.get(place) {
            entry.picture.write(hidden, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::jpeg::tests::COLOUR;
    use super::*;

    #[test]
    fn much_goes_by_what_is_short_for_what_it_hides_and_little_by_what_hides_little() {
        let mut pictures = Pictures::default();
        assert_eq!((pictures.room(3), pictures.choose(9, 3)), (0, (0, 0)));
        let picture = Picture::read(COLOUR).unwrap();
        // The largest is dear, as are the two smallest.
        let files = [(2_000, 9_000), (9_000, 36_000), (20_000, 99_000), (5_000, 16_000)];
        for (capacity, length) in [(7_000, 22_000), (12_000, 45_000), (1_700, 8_000)] {
            pictures.insert(Entry { picture: picture.clone(), capacity, length });
        }
        for (capacity, length) in files {
            pictures.insert(Entry { picture: picture.clone(), capacity, length });
        }
        let rooms: Vec<usize> = (0..5).map(|turn| pictures.room(turn)).collect();
        assert_eq!(rooms, [7_000, 5_000, 12_000, 9_000, 7_000]);
        for (turn, room) in rooms.into_iter().enumerate() {
            let (place, capacity) = pictures.choose(room - RESERVE, turn);
            assert_eq!((pictures.cheapest[turn % CHOICE], room), (place, capacity));
            // Whatever there is finds a picture, and room for padding or no need of it.
            for hidden in RESERVE..=room - RESERVE {
                let (_, capacity) = pictures.choose(hidden, turn);
                assert!(capacity == hidden || capacity >= hidden + RESERVE, "{hidden} {capacity}");
            }
            let few = pictures.choose(30, turn);
            assert_eq!(few.1, [1_700, 2_000, 5_000, 7_000][turn % CHOICE]);
        }
    }
}
