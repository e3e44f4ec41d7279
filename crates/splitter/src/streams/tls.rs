//! TLS around a stream, which the program brings: this crate knows no TLS library.

use std::fmt;

use anabranch_os::target::Target;

/// One end of a TLS connection, without I/O.
pub trait TlsStream: Send {
    /// Takes bytes from the wire, and appends the content that they complete.
    ///
    /// # Errors
    /// The peer breaks the protocol, or is not the one that was expected. What is to be sent to it
    /// then is in [`TlsStream::transmit`].
    fn receive(&mut self, wire: &[u8], content: &mut Vec<u8>) -> Result<(), TlsError>;

    /// Seals content, which [`TlsStream::transmit`] gives.
    ///
    /// # Errors
    /// The connection cannot carry any.
    fn seal(&mut self, content: &[u8]) -> Result<(), TlsError>;

    /// Appends the bytes that are to go to the wire.
    fn transmit(&mut self, wire: &mut Vec<u8>);

    /// Tells the peer that no content follows: [`TlsStream::transmit`] gives that.
    fn close(&mut self);

    /// Whether the handshake is done.
    fn is_open(&self) -> bool;
}

/// What one side needs for its TLS connections: a pinned certificate, or its own.
pub trait TlsEnd: fmt::Debug + Send + Sync {
    /// A connection that begins: to `peer`, or with whoever has connected to us.
    ///
    /// # Errors
    /// The library refuses.
    fn begin(&self, peer: Option<&Target>) -> Result<Box<dyn TlsStream>, TlsError>;
}

/// Why a TLS connection is of no use, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError(pub String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}
