//! The keys of a server. A bridge line contains the public key.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64UrlUnpadded, Encoding};
use rand_core::CryptoRng;

use crate::elligator;

/// Number of characters of a key in a bridge line.
const CHARACTERS: usize = 43;

/// A server's public key, which a client needs in order to connect. In a bridge line it has 43
/// characters of base64url.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BridgeKey(pub [u8; 32]);

/// Error: a text is not a server's public key, 43 characters of base64url.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeKeyError;

/// A server's key pair.
#[derive(Clone)]
pub struct ServerKey {
    secret: [u8; 32],
    public: BridgeKey,
}

impl ServerKey {
    /// Generates a random key pair.
    #[must_use]
    pub fn generate(rng: &mut impl CryptoRng) -> ServerKey {
        let mut secret = [0; 32];
        rng.fill_bytes(&mut secret);
        ServerKey::of(secret)
    }

    /// Returns the key pair that belongs to the secret key `secret`.
    #[must_use]
    pub fn of(secret: [u8; 32]) -> ServerKey {
        ServerKey { secret, public: BridgeKey(elligator::public_of(&secret)) }
    }

    /// Returns the secret key, for storage.
    #[must_use]
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// Returns the public key, for clients.
    #[must_use]
    pub fn public(&self) -> BridgeKey {
        self.public
    }

    /// Computes X25519 with a client's key share. Returns `None` if the share is a point of low
    /// order.
    pub(crate) fn agree(&self, share: &[u8; 32]) -> Option<[u8; 32]> {
        elligator::agree(&self.secret, share)
    }
}

impl fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerKey").finish_non_exhaustive()
    }
}

impl fmt::Display for BridgeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Base64UrlUnpadded::encode_string(&self.0))
    }
}

impl fmt::Debug for BridgeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, ..] = self.0;
        write!(f, "BridgeKey({a:02x}{b:02x}…)")
    }
}

impl FromStr for BridgeKey {
    type Err = BridgeKeyError;

    fn from_str(text: &str) -> Result<BridgeKey, BridgeKeyError> {
        let mut key = [0; 32];
        let read = Base64UrlUnpadded::decode(text, &mut key).map_err(|_| BridgeKeyError)?;
        (read.len() == key.len() && key != [0; 32]).then_some(BridgeKey(key)).ok_or(BridgeKeyError)
    }
}

impl fmt::Display for BridgeKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a bridge's key has {CHARACTERS} characters of A-Z, a-z, 0-9, - and _")
    }
}

impl std::error::Error for BridgeKeyError {}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;

    use super::*;

    #[test]
    fn a_key_is_written_and_read_and_none_is_shown() {
        let key = ServerKey::generate(&mut stream(1, 0, "keys"));
        let text = key.public().to_string();
        assert_eq!(text.len(), CHARACTERS);
        assert_eq!(text.parse(), Ok(key.public()));
        assert_eq!(ServerKey::of(*key.secret()).public(), key.public());
        assert!(!format!("{key:?} {:?}", key.public()).contains(&text[..6]));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "AAAA", &"A".repeat(43), &"x".repeat(44), &"=".repeat(43), "ä"] {
            assert_eq!(text.parse::<BridgeKey>(), Err(BridgeKeyError), "{text}");
        }
    }
}
