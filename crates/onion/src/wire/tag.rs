//! Authentication tags of cells. A SENDME message returns the tag of the cell that it
//! acknowledges.

use subtle::ConstantTimeEq;

/// The authentication tag of a received cell. The receiver returns the tag to the cell's sender in
/// a SENDME message, which acknowledges the cell (proposals 289 and 359). The tag has 20 bytes, or
/// 16 with Counter Galois Onion.
#[derive(Clone, Copy, Debug)]
pub struct Tag {
    bytes: [u8; 20],
    length: u8,
}

impl Tag {
    /// Returns the bytes of the tag.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Parses the tag in a SENDME. Returns `None` if its length is invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Tag> {
        let whole = bytes.try_into().ok().map(|bytes: [u8; 20]| Tag::from(bytes));
        whole.or_else(|| bytes.try_into().ok().map(|bytes: [u8; 16]| Tag::from(bytes)))
    }
}

impl From<[u8; 20]> for Tag {
    fn from(bytes: [u8; 20]) -> Tag {
        Tag { bytes, length: 20 }
    }
}

impl From<[u8; 16]> for Tag {
    fn from(short: [u8; 16]) -> Tag {
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(&short);
        Tag { bytes, length: 16 }
    }
}

impl PartialEq for Tag {
    /// Compares two tags in constant time.
    fn eq(&self, other: &Tag) -> bool {
        self.bytes().ct_eq(other.bytes()).into()
    }
}

impl Eq for Tag {}
