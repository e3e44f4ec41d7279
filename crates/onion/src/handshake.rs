//! Key agreement between client and relay for a circuit: CREATE_FAST, ntor, ntor-v3 (tor-spec,
//! "CREATE and CREATED cells").
//!
//! Each handshake is a pair of pure functions; the generator `rng` is the only source of
//! randomness.

use std::fmt;

use crate::crypto::KeyMaterial;
pub use crate::wire::extend::Kind;
use crate::wire::rend::NONCE;

pub mod extension;
pub mod fast;
pub mod ntor;
pub mod ntor_v3;

/// A relay's answer to a handshake, and the resulting keys.
pub struct Accepted {
    /// The body of CREATED2 (or CREATED_FAST).
    pub reply: Vec<u8>,
    /// The circuit's keys.
    pub keys: KeyMaterial,
    /// The value that binds messages to the circuit (called KH in tor-spec).
    pub nonce: [u8; NONCE],
}

/// Reason why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// The message is malformed for its type of handshake.
    Malformed,
    /// The message is for another relay, or for an onion key that this relay no longer has.
    WrongRelay,
    /// The peer did not prove its identity, or sent a key that makes the shared secret
    /// predictable.
    NotAuthentic,
    /// The message requests a feature that is not supported.
    Unsupported,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HandshakeError::Malformed => "a malformed handshake",
            HandshakeError::WrongRelay => "a handshake for another relay or key",
            HandshakeError::NotAuthentic => "a handshake that does not prove the relay's identity",
            HandshakeError::Unsupported => "a handshake that asks for an unsupported feature",
        })
    }
}

impl std::error::Error for HandshakeError {}

/// Removes and returns the first `N` bytes.
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], HandshakeError> {
    let (head, rest) = bytes.split_first_chunk().ok_or(HandshakeError::Malformed)?;
    *bytes = rest;
    Ok(*head)
}
