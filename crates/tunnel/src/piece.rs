//! What a packet carries of a datagram: all of it, or a part.

/// Bytes that say which part of a datagram this is.
pub(crate) const PLACE: usize = 1;
/// Of a part's place: no other follows.
pub(crate) const LAST: u8 = 0x80;

/// A datagram, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    pub(crate) bytes: &'a [u8],
    /// Of a part: which one it is, from 0, and whether it is the last ([`LAST`]).
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
    /// A part that came.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Piece<'a>> {
        let (&place, bytes) = bytes.split_first()?;
        Some(Piece { bytes, place: Some(place) })
    }
}
