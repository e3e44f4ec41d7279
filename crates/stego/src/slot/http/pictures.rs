//! Pictures, provided by a server's operator, in which answers hide bytes.

use super::jpeg::{NotPicture, Picture};
use crate::slot::RESERVE;

/// Maximum bytes of a picture's file.
const LONGEST: usize = 120_000;
/// Minimum number of bytes that a picture has to hide: the length of the longest acknowledgement.
const LEAST: usize = 1_536;
/// Number of candidates when a picture is chosen for an answer. With much data, the candidates are
/// the pictures with the lowest cost per hidden byte; otherwise, the shortest pictures that hide
/// enough.
const CHOICE: usize = 4;
/// Cost of an answer in bytes, in addition to its picture: heads, acknowledgements, and the time
/// without traffic until the next request.
const EACH: usize = 4_096;

/// Pictures for hiding bytes in answers: baseline JPEGs of up to 120,000 bytes.
#[derive(Clone, Debug, Default)]
pub struct Pictures {
    /// The pictures, by capacity in ascending order.
    entries: Vec<Entry>,
    /// Indices of the pictures with the lowest cost per hidden byte, in ascending order of this
    /// cost.
    cheapest: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Entry {
    picture: Picture,
    /// Number of bytes that this picture can hide.
    capacity: usize,
    /// Length of the picture's file, in bytes.
    length: usize,
}

impl Entry {
    /// Returns the cost of an answer with this picture per hidden byte. It is multiplied by 2^14
    /// to keep precision.
    fn price(&self) -> usize {
        ((self.length + EACH) << 14) / self.capacity
    }

    /// Returns whether the picture can hide `hidden` bytes. Its capacity must be equal, or leave
    /// room for the shortest padding.
    fn fits(&self, hidden: usize) -> bool {
        self.capacity == hidden || self.capacity >= hidden + RESERVE
    }

    /// Returns whether `hidden` bytes leave less than a quarter of the picture's capacity to
    /// padding.
    fn is_filled(&self, hidden: usize) -> bool {
        hidden + RESERVE >= self.capacity - self.capacity / 4
    }
}

impl Pictures {
    /// Adds a picture's file. Returns the number of bytes that the picture can hide.
    ///
    /// # Errors
    /// The file is not a baseline JPEG of one scan, is too long, or hides fewer than 1,536 bytes.
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

    /// Returns whether there are no pictures.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the index of the picture for an answer when much data waits; `None` without
    /// pictures. `turn` is the count of earlier answers: the cheapest pictures take turns.
    fn usual(&self, turn: usize) -> Option<usize> {
        self.cheapest.get(turn % self.cheapest.len().max(1)).copied()
    }

    /// Returns the maximum number of bytes that the answer with the index `turn` can hide.
    pub(super) fn room(&self, turn: usize) -> usize {
        self.usual(turn).map_or(0, |place| self.entries[place].capacity)
    }

    /// Chooses a picture for `hidden` bytes, at most as many as [`Pictures::room`] returns for
    /// `turn`. Returns the picture's index and its capacity in bytes. Padding fills the capacity
    /// that `hidden` bytes do not need.
    pub(super) fn choose(&self, hidden: usize, turn: usize) -> (usize, usize) {
        let takes = |&place: &usize| {
            let entry = &self.entries[place];
            entry.fits(hidden) && entry.is_filled(hidden)
        };
        let place = self.usual(turn).filter(takes).unwrap_or_else(|| {
            let first = self.entries.partition_point(|one| one.capacity < hidden + RESERVE);
            let mut places: Vec<usize> = (first..self.entries.len()).collect();
            places.sort_by_key(|&place| self.entries[place].length);
            places.truncate(CHOICE);
            // No caller asks for more bytes than fit. Otherwise the largest picture would hide as
            // many of them as it can.
            let last = self.entries.len().saturating_sub(1);
            places.get(turn % places.len().max(1)).copied().unwrap_or(last)
        });
        (place, self.entries.get(place).map_or(0, |one| one.capacity))
    }

    /// Appends the file of the picture with the index `place`, with the bytes `hidden` in it.
    pub(super) fn write(&self, place: usize, hidden: &[u8], out: &mut Vec<u8>) {
        if let Some(entry) = self.entries.get(place) {
            entry.picture.write(hidden, out);
        }
    }
}

#[cfg(test)]
impl Pictures {
    /// Creates stand-ins for pictures. `sizes` has the capacity of each and the length of its
    /// file, in bytes.
    pub(super) fn of(sizes: &[(usize, usize)]) -> Pictures {
        let picture = Picture::read(super::jpeg::tests::COLOUR).unwrap();
        let mut pictures = Pictures::default();
        for &(capacity, length) in sizes {
            pictures.insert(Entry { picture: picture.clone(), capacity, length });
        }
        pictures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_goes_by_what_is_cheap_for_what_it_hides_and_little_by_what_is_short() {
        let none = Pictures::default();
        assert_eq!((none.room(3), none.choose(9, 3)), (0, (0, 0)));
        // The largest and the two smallest pictures have a high cost per hidden byte. One of the
        // small pictures is short for its capacity.
        let pictures = Pictures::of(&[
            (7_000, 22_000),
            (12_000, 45_000),
            (1_700, 5_000),
            (2_000, 9_000),
            (9_000, 36_000),
            (20_000, 99_000),
            (5_000, 16_000),
        ]);
        let rooms: Vec<usize> = (0..5).map(|turn| pictures.room(turn)).collect();
        assert_eq!(rooms, [7_000, 5_000, 12_000, 9_000, 7_000]);
        let chosen = |hidden: usize, turn: usize| pictures.choose(hidden, turn).1;
        for (turn, room) in rooms.into_iter().enumerate() {
            let (place, capacity) = pictures.choose(room - RESERVE, turn);
            assert_eq!((pictures.cheapest[turn % CHOICE], room), (place, capacity));
            // For each number of bytes there is a picture that fits exactly or has room for
            // padding.
            for hidden in RESERVE..=room - RESERVE {
                let capacity = chosen(hidden, turn);
                assert!(capacity == hidden || capacity >= hidden + RESERVE, "{hidden} {capacity}");
            }
            assert_eq!(chosen(30, turn), [1_700, 2_000, 5_000, 7_000][turn % CHOICE]);
        }
        // If the bytes fill three quarters of the picture for this turn, that picture is chosen.
        // Otherwise one of the shortest pictures that hide enough is chosen.
        assert_eq!((chosen(6_750 - RESERVE, 3), chosen(6_749 - RESERVE, 3)), (9_000, 20_000));
        assert_eq!((chosen(9_000 - RESERVE, 2), chosen(8_999 - RESERVE, 2)), (12_000, 20_000));
    }
}
