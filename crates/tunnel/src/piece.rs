//! The share of a datagram that a packet carries: all of it, or a part.

/// Bytes of a part's position.
pub(crate) const PLACE: usize = 1;
/// Flag in a part's position: no other part follows.
pub(crate) const LAST: u8 = 0x80;

/// A datagram, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    pub(crate) bytes: &'a [u8],
    /// A part's position: its index, from 0, and whether it is the last ([`LAST`]). `None` for a
    /// whole datagram.
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
    /// Parses a part that arrived.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Piece<'a>> {
        let (&place, bytes) = bytes.split_first()?;
        Some(Piece { bytes, place: Some(place) })
    }
}
