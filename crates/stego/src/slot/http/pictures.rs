//! The pictures of a server's operator.

use super::jpeg::{NotPicture, Picture};
use crate::slot::RESERVE;

/// Bytes of a file at most, and what it has to hide at least: the longest acknowledgement.
const LONGEST: usize = 120_000;
const LEAST: usize = 1_536;
/// An answer takes one of so many that are not much larger than it needs.
const CHOICE: usize = 4;

/// Pictures that answers hide bytes in: baseline JPEGs of up to 120,000 bytes.
#[derive(Clone, Debug, Default)]
pub struct Pictures(Vec<Picture>);

impl Pictures {
    /// Adds a picture's file: how many bytes it hides.
    ///
    /// # Errors
    /// It is no baseline JPEG of one scan, too long, or hides fewer than 1,536 bytes.
    pub fn add(&mut self, file: &[u8]) -> Result<usize, NotPicture> {
        let picture = Picture::read(file)?;
        let capacity = picture.capacity();
        if file.len() > LONGEST || capacity < LEAST {
            return Err(NotPicture);
        }
        let place = self.0.partition_point(|other| other.capacity() < capacity);
        self.0.insert(place, picture);
        Ok(capacity)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that the largest hides.
    pub(super) fn most(&self) -> usize {
        self.0.last().map_or(0, Picture::capacity)
    }

    /// A picture for so many bytes, and how many it hides: as many, or enough more for padding; one
    /// by `turn` of those that are not much larger than others.
    pub(super) fn choose(&self, hidden: usize, turn: usize) -> (usize, usize) {
        let first = self.0.partition_point(|one| one.capacity() < hidden + RESERVE);
        let choice = (self.0.len() - first).clamp(1, CHOICE);
        let place = (first + turn % choice).min(self.0.len().saturating_sub(1));
        (place, self.0.get(place).map_or(0, Picture::capacity))
    }

    /// Appends the file of a picture, with these bytes hidden in it.
    pub(super) fn write(&self, place: usize, hidden: &[u8], out: &mut Vec<u8>) {
        if let Some(picture) = self.0.get(place) {
            picture.write(hidden, out);
        }
    }
}
