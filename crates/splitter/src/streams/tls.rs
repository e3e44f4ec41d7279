//! Interface to TLS for streams. The calling program implements it, because this crate uses no TLS
//! library.

use std::fmt;

use anabranch_os::target::Target;

/// One end of a TLS connection, without I/O.
pub trait TlsStream: Send {
    /// Processes bytes received from the peer, and appends the decrypted content to `content`.
    ///
    /// # Errors
    /// The peer violates the protocol, or is not the expected peer. [`TlsStream::transmit`] then
    /// has the alert for the peer.
    fn receive(&mut self, wire: &[u8], content: &mut Vec<u8>) -> Result<(), TlsError>;

    /// Encrypts `content`. [`TlsStream::transmit`] then has the resulting bytes.
    ///
    /// # Errors
    /// The connection is not ready for content, or has failed.
    fn seal(&mut self, content: &[u8]) -> Result<(), TlsError>;

    /// Appends to `wire` the bytes that must be sent to the peer.
    fn transmit(&mut self, wire: &mut Vec<u8>);

    /// Ends the connection with a close_notify alert (RFC 8446, section 6.1), which
    /// [`TlsStream::transmit`] then has.
    fn close(&mut self);

    /// Returns whether the handshake is complete.
    fn is_open(&self) -> bool;
}

/// TLS settings of one end. A near end has the certificates or CAs that it accepts. A far end has
/// its own certificate.
pub trait TlsEnd: fmt::Debug + Send + Sync {
    /// Begins a TLS connection: as a client to `peer`, or as a server if `peer` is `None`.
    ///
    /// # Errors
    /// The TLS library returned an error.
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
