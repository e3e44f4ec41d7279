//! How a client and a relay agree on a circuit's keys: CREATE_FAST, ntor, ntor-v3 (tor-spec,
//! "CREATE and CREATED cells").
//!
//! Each is a pair of pure functions: randomness comes in as a generator, nothing else is drawn.

use std::fmt;

use crate::crypto::KeyMaterial;
pub use crate::wire::extend::Kind;
use crate::wire::rend::NONCE;

pub mod extension;
pub mod fast;
pub mod ntor;
pub mod ntor_v3;

/// What a relay answers, and what it has agreed to.
pub struct Accepted {
    /// The body of CREATED2 (or CREATED_FAST).
    pub reply: Vec<u8>,
    /// The circuit's keys.
    pub keys: KeyMaterial,
    /// What binds messages to the circuit (tor-spec's KH).
    pub nonce: [u8; NONCE],
}

/// A handshake that failed: malformed, for another relay, or not authentic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not of the form that its type says.
    Malformed,
    /// Not for this relay, or for a key that it no longer has.
    WrongRelay,
    /// The peer did not prove what it must, or chose a degenerate key.
    NotAuthentic,
    /// Asks for something that we do not do.
    Unsupported,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Malformed => "a malformed handshake",
            Refused::WrongRelay => "a handshake for another relay or key",
            Refused::NotAuthentic => "a handshake that does not prove the relay's identity",
            Refused::Unsupported => "a handshake that asks for an unsupported feature",
        })
    }
}

impl std::error::Error for Refused {}

/// Cuts `N` bytes off the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Refused> {
    let (head, rest) = bytes.split_first_chunk().ok_or(Refused::Malformed)?;
    *bytes = rest;
    Ok(*head)
}
