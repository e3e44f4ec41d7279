//! The content of one data packet: a whole datagram, or a part of one.

/// Length in bytes of the field that contains the index of a part.
pub(crate) const PLACE: usize = 1;
/// Flag in the field with a part's index: this part is the last one of its datagram.
pub(crate) const LAST: u8 = 0x80;

/// A datagram, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    pub(crate) bytes: &'a [u8],
    /// The part's index, from 0, with the flag [`LAST`] if it is the last part. `None` for a whole
    /// datagram.
    pub(crate) place: Option<u8>,
}

impl<'a> From<&'a [u8]> for Piece<'a> {
    fn from(bytes: &'a [u8]) -> Piece<'a> {
        Piece { bytes, place: None }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Piece<'a> {
    fn from(bytes: &'a [u8; N]) -> Piece<'a> {
        Piece { bytes, place: None }
    }
}

impl<'a> Piece<'a> {
    /// Parses a received part; returns `None` if it is empty.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Piece<'a>> {
        let (&place, bytes) = bytes.split_first()?;
        Some(Piece { bytes, place: Some(place) })
    }
}
