//! Notes. A note is the URL path that the client should request next. The server sends it among
//! the hidden bytes of an answer.

use aws_lc_rs::hmac;

use super::super::NotCover;
use super::path_is_plain;
use crate::keys::BridgeKey;

/// Number of hidden bytes before a note (the URL path of the next request). They are random and
/// unique to the answer, so the note's mask depends on them.
const FIRST: usize = 16;

/// The key that masks notes (the URL paths of next requests). Any holder of the bridge line can
/// derive it.
#[derive(Clone, Debug)]
pub(crate) struct Notes(hmac::Key);

impl Notes {
    /// Number of bytes that a note has in addition to the URL path of the next request.
    pub(crate) const LENGTH: usize = 1;

    /// Creates the key that masks notes (URL paths of next requests) for the bridge with this
    /// public key.
    pub(crate) fn of(key: &BridgeKey) -> Notes {
        let all = [b"anabranch stego paths", &key.0[..]].concat();
        Notes(hmac::Key::new(hmac::HMAC_SHA256, &all))
    }

    /// XORs `bytes` with a mask that is derived from the `first` hidden bytes.
    fn mask(&self, first: &[u8], bytes: &mut [u8]) {
        for (number, part) in (0_u8..).zip(bytes.chunks_mut(32)) {
            let mask = hmac::sign(&self.0, &[first, &[number]].concat());
            part.iter_mut().zip(mask.as_ref()).for_each(|(byte, mask)| *byte ^= mask);
        }
    }

    /// Returns the `hidden` bytes of an answer with a note that contains `path`. The note follows
    /// the first 16 hidden bytes. `hidden` must have at least these 16 bytes.
    pub(crate) fn write(&self, hidden: &[u8], path: &str) -> Vec<u8> {
        let (first, rest) = hidden.split_at(FIRST.min(hidden.len()));
        let length = u8::try_from(path.len()).unwrap_or(0);
        let mut note = [&[length], path.as_bytes()].concat();
        self.mask(first, &mut note);
        [first, &note, rest].concat()
    }

    /// Splits the bytes in an answer into the URL path in its note and the other hidden bytes.
    ///
    /// # Errors
    /// The bytes contain no valid note.
    pub(crate) fn read(&self, all: &[u8]) -> Result<(String, Vec<u8>), NotCover> {
        let (first, rest) = all.split_at_checked(FIRST).ok_or(NotCover)?;
        let mut length = [*rest.first().ok_or(NotCover)?];
        self.mask(first, &mut length);
        let (note, rest) = rest.split_at_checked(1 + usize::from(length[0])).ok_or(NotCover)?;
        let mut note = note.to_vec();
        self.mask(first, &mut note);
        let path = String::from_utf8(note.split_off(1)).map_err(|_| NotCover)?;
        let usual = path_is_plain(&path);
        usual.then(|| (path, [first, rest].concat())).ok_or(NotCover)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_by_whoever_has_the_line() {
        let (notes, hidden) = (Notes::of(&BridgeKey([7; 32])), vec![9; 70]);
        for path in ["/", "/a/b.jpg", &format!("/{}", "x".repeat(199))] {
            let all = notes.write(&hidden, path);
            assert_eq!(all.len(), hidden.len() + Notes::LENGTH + path.len());
            assert_eq!(notes.read(&all), Ok((path.to_owned(), hidden.clone())));
            assert!(Notes::of(&BridgeKey([6; 32])).read(&all) != notes.read(&all));
            assert!(notes.read(&all[..16]).is_err());
        }
        for wrong in ["a b", "/a?b", "/a#b", "", &format!("/{}", "x".repeat(200))] {
            assert!(notes.read(&notes.write(&hidden, wrong)).is_err(), "{wrong} is not a path");
        }
    }
}
