//! A TLS 1.3 connection after its handshake, with this crate's own record layer (RFC 8446, section
//! 5).
//!
//! Each record is encrypted and decrypted in place, and its bytes are copied once. The record
//! layer of the TLS library `rustls` copies them four times on reception and twice on
//! transmission. It also decrypts records only in order, so an unordered link cannot use it.

use anabranch_multipath::Time;

use super::IDLE_CAPACITY;
use super::keys::Cipher;
use super::messages::{Messages, Note, TlsViolation};
use super::opener::{Content, Opener};
use super::sealer::Sealer;
use super::secrets::{Secret, TrafficSecrets};
use crate::PeerFault;
use crate::utls::{Anchor, RecordLayer};

/// Maximum distance, in bytes of the stream, between the next byte to read and a record that is
/// decrypted before earlier ones have arrived. Also the maximum number of buffered bytes from a
/// tap (a capture of the connection's segments). The value is the data in flight at 84 Mbit/s with
/// a round-trip time of 100 ms.
const EARLY: usize = 1 << 20;

/// Both directions of a TLS 1.3 connection after its handshake.
pub(super) struct Records {
    sealer: Sealer,
    opener: Opener,
    messages: Messages,
    exporter: Secret,
    /// True if the peer has asked for a change of our keys, and we have not changed them yet.
    owes_update: bool,
}

/// State of the connection at the point where the record layer of the TLS library stopped.
pub(super) struct Handover {
    pub(super) secrets: TrafficSecrets,
    pub(super) cipher: Cipher,
    pub(super) is_client: bool,
    /// Number of records that the TLS library encrypted with our traffic secret.
    pub(super) sent: u64,
    /// Number of records that the TLS library decrypted with the peer's traffic secret.
    pub(super) received: u64,
    /// Number of bytes of the peer's stream that the TLS library has read.
    pub(super) read: u64,
    /// Bytes that the TLS library has encrypted but not sent yet.
    pub(super) out: Vec<u8>,
}

impl Records {
    pub(super) fn new(handover: Handover) -> Records {
        let Handover { secrets, cipher, is_client, sent, received, read, out } = handover;
        let TrafficSecrets { client, server, exporter } = secrets;
        let (own, peers) = if is_client { (client, server) } else { (server, client) };
        Records {
            sealer: Sealer::new(own, cipher, sent, out),
            opener: Opener::new(peers, cipher, Anchor { offset: read, number: received }),
            messages: Messages::from_server(is_client),
            exporter,
            owes_update: false,
        }
    }

    /// Processes bytes from the network, and appends the decrypted bytes to `plain`. Returns true
    /// once the peer has announced that it sends nothing more.
    ///
    /// # Errors
    /// A violation of the protocol by the peer. The alert that reports it is ready to be sent.
    pub(super) fn receive(
        &mut self,
        mut bytes: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<bool, PeerFault> {
        match self.take(&mut bytes, plain) {
            Ok(closed) => Ok(closed),
            Err(TlsViolation { alert, fault }) => {
                if let Some(description) = alert {
                    self.sealer.fault(description);
                }
                Err(fault)
            }
        }
    }

    fn take(&mut self, bytes: &mut &[u8], plain: &mut Vec<u8>) -> Result<bool, TlsViolation> {
        while let Some(opened) = self.opener.next(bytes, plain)? {
            let note = match opened {
                Content::Data => self.messages.data().map(|()| Note::Nothing)?,
                Content::Other(kind, content) => self.messages.record(kind, &content)?,
            };
            match note {
                Note::Nothing => {}
                Note::Update { requested } => {
                    self.opener.update();
                    self.owes_update |= requested;
                }
                Note::Closed => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Begins to decrypt records before earlier ones have arrived. Each of the peer's records has
    /// `content` bytes of content.
    pub(super) fn open_early(&mut self, now: Time, content: usize) {
        self.opener.open_early(RecordLayer::new(now, content, EARLY));
    }

    /// Returns the layer that decrypts records before earlier ones have arrived; `None` if records
    /// are decrypted only in order.
    pub(super) fn early(&self) -> Option<&RecordLayer> {
        self.opener.early()
    }

    /// Processes bytes from a tap (a capture of the connection's segments), and appends the data
    /// of the records that these bytes complete. `at` contains the offset of the bytes in the
    /// stream, and the bytes.
    pub(super) fn receive_early(&mut self, now: Time, at: (u64, &[u8]), plain: &mut Vec<u8>) {
        self.opener.receive_early(now, at, plain);
    }

    /// Fixes the length of the content of each record that we send from now on to `content` bytes.
    pub(super) fn send_fixed(&mut self, content: usize) {
        self.sealer.send_fixed(content);
    }

    /// Encrypts data for the peer.
    pub(super) fn write(&mut self, plain: &[u8]) {
        self.answer_update();
        self.sealer.data(plain);
    }

    /// Appends to `into` the bytes to send to the peer.
    pub(super) fn transmit(&mut self, into: &mut Vec<u8>) {
        self.answer_update();
        self.sealer.transmit(into);
    }

    /// Changes our keys, and asks the peer to change its keys.
    pub(super) fn refresh(&mut self) {
        self.sealer.update(true);
    }

    /// Notifies the peer that we send nothing more.
    pub(super) fn close(&mut self) {
        self.sealer.close();
    }

    /// Returns 32 bytes of exported keying material (RFC 8446, section 7.5); `None` if the label
    /// is too long.
    pub(super) fn export(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        self.exporter.export(label, context)
    }

    /// Shrinks the buffers, and returns the number of bytes released.
    pub(super) fn shrink_buffers(&mut self) -> usize {
        self.sealer.shrink_buffers(IDLE_CAPACITY) + self.opener.shrink_buffers()
    }

    /// Changes our keys if the peer has requested that. Several requests that arrive while we send
    /// nothing get one answer, sent before any data (RFC 8446, section 4.6.3).
    fn answer_update(&mut self) {
        if std::mem::take(&mut self.owes_update) {
            self.sealer.update(false);
        }
    }
}
