//! Interface to TLS for streams. The calling program implements it: this crate uses no TLS
//! library.

use std::fmt;

use anabranch_os::target::Target;

/// One end of a TLS connection, without I/O.
pub trait TlsStream: Send {
    /// Takes bytes from the wire, and appends the content that they complete.
    ///
    /// # Errors
    /// The peer violates the protocol, or is not the expected one. [`TlsStream::transmit`] then
    /// has the alert for the peer.
    fn receive(&mut self, wire: &[u8], content: &mut Vec<u8>) -> Result<(), TlsError>;

    /// Encrypts `content`. [`TlsStream::transmit`] then has the resulting bytes.
    ///
    /// # Errors
    /// The connection cannot carry content.
    fn seal(&mut self, content: &[u8]) -> Result<(), TlsError>;

    /// Appends the bytes that must be sent to the peer.
    fn transmit(&mut self, wire: &mut Vec<u8>);

    /// Announces to the peer that no content follows. [`TlsStream::transmit`] then has that
    /// message.
    fn close(&mut self);

    /// Returns whether the handshake is complete.
    fn is_open(&self) -> bool;
}

/// Certificates of one side for its TLS connections: the peer's pinned one, or its own.
pub trait TlsEnd: fmt::Debug + Send + Sync {
    /// Begins a TLS connection: to `peer`, or, without it, with a client that has connected to us.
    ///
    /// # Errors
    /// The TLS library refuses.
    fn begin(&self, peer: Option<&Target>) -> Result<Box<dyn TlsStream>, TlsError>;
}

/// Reason why a TLS connection failed, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError(pub String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}
