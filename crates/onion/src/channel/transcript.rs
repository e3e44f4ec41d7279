//! The digest of one side's handshake cells. AUTHENTICATE signs it.

use digest::Digest;

use crate::wire::crypto::Sha256;

/// A SHA-256 digest over cells. It accepts cells until it is closed.
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

    /// Closes the transcript. Cells that are added later are ignored.
    pub(super) fn close(&mut self) {
        if self.closed.is_none() {
            self.closed = Some(self.running.clone().finalize().into());
        }
    }

    /// Returns the digest of the cells before `close`, or of all cells so far if it is not closed.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.closed.unwrap_or_else(|| self.running.clone().finalize().into())
    }
}
