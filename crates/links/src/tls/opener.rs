//! The receiving half of a TLS 1.3 connection. It splits the stream into records and decrypts them
//! in order (RFC 8446, section 5).

use anabranch_multipath::Time;
use rustls::{Error, InvalidMessage, PeerMisbehaved};

use super::keys::{Cipher, HEADER, RecordKeys, TAG};
use super::messages::{
    BAD_RECORD_MAC, DATA, ILLEGAL_PARAMETER, RECORD_OVERFLOW, TlsViolation, UNEXPECTED_MESSAGE,
    refuse,
};
use super::sealer::RECORD;
use super::secrets::Secret;
use crate::utls::{Anchor, RecordLayer};
use crate::{PeerFault, PeerFaultKind};

/// Maximum length in bytes of a record after its header: plain bytes, and up to 256 bytes that
/// encryption may add (RFC 8446, section 5.2).
const LONGEST: usize = RECORD + 256;

/// Decryption of records with the keys of one direction.
pub(super) struct Opener {
    secret: Secret,
    cipher: Cipher,
    keys: RecordKeys,
    /// The next record's number, and the offset in the stream at which it begins.
    next: Anchor,
    /// The layer that decrypts records early, before earlier ones have arrived. `None` if records
    /// are decrypted only in order.
    early: Option<Box<RecordLayer>>,
    /// The received part of an incomplete record.
    partial: Vec<u8>,
}

/// The content of a decrypted record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Data, which was appended to the plain bytes.
    Data,
    /// Content that is not data: the content type of the record, and the bytes.
    Other(u8, Vec<u8>),
}

impl Opener {
    /// Returns an opener that continues after the records that the TLS library has decrypted with
    /// this secret.
    pub(super) fn new(secret: Secret, cipher: Cipher, next: Anchor) -> Opener {
        let keys = RecordKeys::of(&secret, cipher);
        Opener { secret, cipher, keys, next, early: None, partial: Vec::new() }
    }

    /// Requires one size for all later records. From now on, `early` may decrypt records before
    /// earlier ones have arrived.
    pub(super) fn open_early(&mut self, early: RecordLayer) {
        self.early = Some(Box::new(early));
    }

    pub(super) fn early(&self) -> Option<&RecordLayer> {
        self.early.as_deref()
    }

    /// Processes bytes from a tap (a capture of the connection's segments) that begin at `offset`
    /// in the stream. Appends the data of the records that these bytes complete.
    pub(super) fn receive_early(
        &mut self,
        now: Time,
        (offset, bytes): (u64, &[u8]),
        plain: &mut Vec<u8>,
    ) {
        if let Some(early) = &mut self.early {
            early.receive(now, self.next, &self.keys, (offset, bytes), plain);
        }
    }

    /// Decrypts the next record, from stored bytes followed by `bytes`, and appends its data to
    /// `plain`. Removes the record from the front of `bytes`. Returns `None` once all bytes are
    /// processed and no record is complete.
    ///
    /// # Errors
    /// The bytes are not a record, the record is too long, or the peer did not encrypt it.
    pub(super) fn next(
        &mut self,
        bytes: &mut &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<Option<Content>, TlsViolation> {
        if self.partial.is_empty() {
            let Some(length) = length(bytes)?.filter(|length| *length <= bytes.len()) else {
                self.partial.extend_from_slice(std::mem::take(bytes));
                return Ok(None);
            };
            let (record, rest) = bytes.split_at(length);
            *bytes = rest;
            return self.open(record, plain).map(Some);
        }
        self.complete(HEADER, bytes);
        let Some(length) = length(&self.partial)? else { return Ok(None) };
        self.complete(length, bytes);
        if self.partial.len() < length {
            return Ok(None);
        }
        let mut record = std::mem::take(&mut self.partial);
        let opened = self.open(&record, plain);
        record.clear();
        self.partial = record;
        opened.map(Some)
    }

    /// Moves bytes from the front of `bytes` to the stored bytes, until `length` bytes are stored.
    fn complete(&mut self, length: usize, bytes: &mut &[u8]) {
        let missing = length.saturating_sub(self.partial.len()).min(bytes.len());
        let (taken, rest) = bytes.split_at(missing);
        self.partial.extend_from_slice(taken);
        *bytes = rest;
    }

    fn open(&mut self, record: &[u8], plain: &mut Vec<u8>) -> Result<Content, TlsViolation> {
        let before = plain.len();
        let Some((header, sealed)) = record.split_first_chunk::<HEADER>() else {
            return Err(refuse(BAD_RECORD_MAC, Error::DecryptError));
        };
        let Anchor { offset, number } = self.next;
        self.next = Anchor { offset: offset + record.len() as u64, number: number + 1 };
        if self.early.as_mut().is_some_and(|early| early.is_done(number)) {
            return Ok(Content::Data);
        }
        plain.extend_from_slice(sealed);
        let Some(length) = self.keys.open(number, *header, &mut plain[before..]) else {
            plain.truncate(before);
            return Err(refuse(BAD_RECORD_MAC, Error::DecryptError));
        };
        plain.truncate(before + length);
        match unpadded(&plain[before..]).and_then(|found| self.agreed(found)) {
            Ok((DATA, length)) => {
                plain.truncate(before + length);
                Ok(Content::Data)
            }
            Ok((kind, length)) => {
                let content = plain[before..before + length].to_vec();
                plain.truncate(before);
                Ok(Content::Other(kind, content))
            }
            Err(breach) => {
                plain.truncate(before);
                Err(breach)
            }
        }
    }

    /// Checks that the content of a data record has the fixed length on which both ends agreed, or
    /// is empty. With another length, a record could contain only a part of a cell. Records that
    /// are delivered before earlier ones must contain whole cells.
    fn agreed(&self, (kind, length): (u8, usize)) -> Result<(u8, usize), TlsViolation> {
        let agreed = self.early.as_ref().map(|early| early.content());
        match agreed {
            Some(agreed) if kind == DATA && length != agreed && length > 0 => {
                let what = "a record whose length is not the agreed one".to_owned();
                let fault = PeerFault { kind: PeerFaultKind::Length, what };
                Err(TlsViolation { alert: Some(ILLEGAL_PARAMETER), fault })
            }
            _ => Ok((kind, length)),
        }
    }

    /// Switches to the peer's next keys after the peer's KeyUpdate.
    pub(super) fn update(&mut self) {
        self.secret = self.secret.next();
        self.keys = RecordKeys::of(&self.secret, self.cipher);
        self.next.number = 0;
        if let Some(early) = &mut self.early {
            early.rekeyed();
        }
    }

    /// Shrinks the buffer of the incomplete record to its content. Returns the number of bytes
    /// released.
    pub(super) fn shrink_buffers(&mut self) -> usize {
        let before = self.partial.capacity();
        self.partial.shrink_to_fit();
        before - self.partial.capacity()
    }
}

/// Returns the length of the record at the front of `bytes`, including the header. Returns `None`
/// if the header is incomplete.
fn length(bytes: &[u8]) -> Result<Option<usize>, TlsViolation> {
    let Some(&[kind, _, _, high, low]) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    if kind != DATA {
        return Err(refuse(UNEXPECTED_MESSAGE, InvalidMessage::InvalidContentType));
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > LONGEST {
        return Err(refuse(RECORD_OVERFLOW, Error::PeerSentOversizedRecord));
    }
    if length < TAG {
        return Err(refuse(BAD_RECORD_MAC, Error::DecryptError));
    }
    Ok(Some(HEADER + length))
}

/// Returns the content type of a record, and the length of its content. In the record, the type
/// and padding zeros follow the content (RFC 8446, section 5.4).
fn unpadded(inner: &[u8]) -> Result<(u8, usize), TlsViolation> {
    if inner.len() > RECORD + 1 {
        return Err(refuse(RECORD_OVERFLOW, Error::PeerSentOversizedRecord));
    }
    match inner.iter().rposition(|byte| *byte != 0) {
        Some(length) => Ok((inner[length], length)),
        None => Err(refuse(UNEXPECTED_MESSAGE, PeerMisbehaved::IllegalTlsInnerPlaintext)),
    }
}
