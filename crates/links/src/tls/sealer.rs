//! The sending half of a TLS 1.3 connection: it encrypts records in order (RFC 8446, section 5).

use super::keys::{Cipher, HEADER, RecordKeys, TAG};
use super::messages::{ALERT, CLOSE_NOTIFY, DATA, FATAL, HANDSHAKE, KEY_UPDATE, WARNING};
use super::secrets::Secret;

/// Maximum plain bytes in a record (RFC 8446, section 5.1).
pub(super) const RECORD: usize = 1 << 14;
/// Maximum number of plain bytes in a record that we send, unless `Sealer::send_fixed` sets the
/// number. C tor has the same maximum, because it writes each chunk of its buffers separately
/// (4,096 bytes, less a header). Longer records break some clients: torpy reads at most 4,094
/// bytes at a time, and loses the rest of a longer record.
pub const SENT: usize = 4_048;

/// Encryption of records with the keys of one direction. It changes the keys before they reach
/// their maximum number of records.
pub(super) struct Sealer {
    secret: Secret,
    cipher: Cipher,
    keys: RecordKeys,
    number: u64,
    /// Number of content bytes in every record; shorter content is padded. `None` if records vary
    /// in size.
    content: Option<usize>,
    /// True after a close_notify or a fatal alert was sent. No record may follow.
    finished: bool,
    /// Encrypted bytes to send.
    out: Vec<u8>,
}

impl Sealer {
    /// Returns a sealer that continues after the `number` records that the TLS library has
    /// encrypted with this secret. `out` may still contain the last of these records.
    pub(super) fn new(secret: Secret, cipher: Cipher, number: u64, out: Vec<u8>) -> Sealer {
        let keys = RecordKeys::of(&secret, cipher);
        Sealer { secret, cipher, keys, number, content: None, finished: false, out }
    }

    /// Fixes the length of the content of each later record to `content` bytes. Shorter content is
    /// padded.
    pub(super) fn send_fixed(&mut self, content: usize) {
        self.content = Some(content);
    }

    /// Encrypts data in as few records of at most [`SENT`] bytes as possible.
    pub(super) fn data(&mut self, plain: &[u8]) {
        let most = self.content.unwrap_or(SENT);
        let records = plain.len().div_ceil(most);
        self.out.reserve(plain.len() + records * (HEADER + 1 + TAG));
        for content in plain.chunks(most) {
            // The last record that the key may encrypt is the KeyUpdate itself.
            if self.number + 1 >= self.cipher.limit && self.number > 0 {
                self.update(true);
            }
            self.record(DATA, content);
        }
    }

    /// Notifies the peer that our keys change, and changes them (RFC 8446, section 4.6.3).
    /// `requested` is true if the peer must change its keys too.
    pub(super) fn update(&mut self, requested: bool) {
        self.record(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, u8::from(requested)]);
        self.secret = self.secret.next();
        self.keys = RecordKeys::of(&self.secret, self.cipher);
        self.number = 0;
    }

    /// Reports a fault of the peer with an alert, which is the last record.
    pub(super) fn fault(&mut self, description: u8) {
        self.record(ALERT, &[FATAL, description]);
        self.finished = true;
    }

    /// Notifies the peer that we send nothing more.
    pub(super) fn close(&mut self) {
        self.record(ALERT, &[WARNING, CLOSE_NOTIFY]);
        self.finished = true;
    }

    /// Encrypts one record of the type `kind`. `content` has at most [`RECORD`] bytes.
    fn record(&mut self, kind: u8, content: &[u8]) {
        let padding = self.content.map_or(0, |fixed| fixed.saturating_sub(content.len()));
        self.padded(kind, content, padding);
    }

    /// Encrypts one record with `padding` zeros after the type (RFC 8446, section 5.4). Content
    /// and padding together have at most [`RECORD`] bytes.
    pub(super) fn padded(&mut self, kind: u8, content: &[u8], padding: usize) {
        if self.finished {
            return;
        }
        let [high, low] = ((content.len() + 1 + padding + TAG) as u16).to_be_bytes();
        let header = [DATA, 3, 3, high, low];
        self.out.extend_from_slice(&header);
        let start = self.out.len();
        self.out.extend_from_slice(content);
        self.out.push(kind);
        self.out.resize(self.out.len() + padding, 0);
        let tag = self.keys.seal(self.number, header, &mut self.out[start..]);
        self.out.extend_from_slice(tag.as_ref());
        self.number += 1;
    }

    /// Appends to `into` all encrypted bytes.
    pub(super) fn transmit(&mut self, into: &mut Vec<u8>) {
        if into.is_empty() {
            std::mem::swap(into, &mut self.out);
        } else {
            into.append(&mut self.out);
        }
    }

    /// Shrinks the buffer to a capacity of `room` bytes, and returns the number of bytes released.
    pub(super) fn shrink_buffers(&mut self, room: usize) -> usize {
        let before = self.out.capacity();
        self.out.shrink_to(room);
        before - self.out.capacity()
    }
}
