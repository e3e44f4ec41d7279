//! The digest of all that one side of a handshake has said, which AUTHENTICATE signs.

use digest::Digest;

use crate::wire::crypto::Sha256;

/// A running digest, until it is closed.
#[derive(Clone, Default)]
pub(super) struct Transcript {
    running: Sha256,
    closed: Option<[u8; 32]>,
}

impl Transcript {
    /// Adds the bytes of a cell, unless the transcript is closed.
    pub(super) fn add(&mut self, head: &[u8], body: &[u8]) {
        if self.closed.is_none() {
            self.running.update(head);
            self.running.update(body);
        }
    }

    /// Nothing that follows counts.
    pub(super) fn close(&mut self) {
        if self.closed.is_none() {
            self.closed = Some(self.running.clone().finalize().into());
        }
    }

    /// The digest of what counts.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.closed.unwrap_or_else(|| self.running.clone().finalize().into())
    }
}
