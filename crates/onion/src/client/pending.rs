//! The client's side of a handshake with the next relay of a circuit, from the first message to
//! the agreed keys.

use rand_core::CryptoRng;

use super::{Hop, HopKey};
use crate::congestion::Params;
use crate::crypto::Keys;
use crate::crypto::lossy::LossyKeys;
use crate::handshake::extension::{self, AgreedFeatures, HopRequest};
use crate::handshake::{HandshakeError, Kind, fast, ntor, ntor_v3};

/// Result of a completed handshake.
pub(super) struct Agreement {
    pub(super) keys: Keys,
    /// Secrets for lossy cells (sent in datagrams), if the relay accepted such cells.
    pub(super) lossy: Option<LossyKeys>,
    pub(super) agreed: AgreedFeatures,
}

impl From<Keys> for Agreement {
    /// Returns the result of a handshake without extensions.
    fn from(keys: Keys) -> Agreement {
        Agreement { keys, lossy: None, agreed: AgreedFeatures::default() }
    }
}

/// A handshake whose answer has not arrived yet.
pub(super) enum Pending {
    Fast(fast::Client),
    Ntor(ntor::Client),
    NtorV3 { client: ntor_v3::Client, wish: HopRequest },
}

impl Pending {
    /// Starts a handshake with `hop`. Returns the handshake, its type (`None` for CREATE_FAST) and
    /// our first message. Returns `None` if the relay's onion key is invalid.
    pub(super) fn start(
        rng: &mut dyn CryptoRng,
        hop: &Hop,
    ) -> Option<(Pending, Option<Kind>, Vec<u8>)> {
        match hop.key {
            HopKey::Fast => {
                let (client, message) = fast::Client::start(rng);
                Some((Pending::Fast(client), None, message))
            }
            HopKey::Ntor(onion_key) => {
                let (client, message) = ntor::Client::start(rng, hop.target.rsa, onion_key);
                Some((Pending::Ntor(client), Some(Kind::NTOR), message))
            }
            HopKey::NtorV3 { onion_key, wish } => {
                let reply = extension::request(wish);
                let relay = hop.target.ed25519?;
                let verification = ntor_v3::CIRCUIT;
                let (client, message) =
                    ntor_v3::Client::start(rng, relay, onion_key, &reply, verification)?;
                Some((Pending::NtorV3 { client, wish }, Some(Kind::NTOR_V3), message))
            }
        }
    }

    pub(super) fn finish(self, reply: &[u8], params: &Params) -> Result<Agreement, HandshakeError> {
        match self {
            Pending::Fast(client) => Ok(Keys::from(client.finish(reply)?).into()),
            Pending::Ntor(client) => Ok(Keys::from(client.finish(reply)?).into()),
            Pending::NtorV3 { client, wish } => {
                let (mut stream, message) = client.finish(reply)?;
                let agreed = extension::read_answer(&message, wish, params.sendme_inc)?;
                let keys = stream.of(agreed);
                // The key stream yields the keys, then a nonce, then the secrets for lossy cells.
                let _ = stream.nonce();
                let lossy = agreed.lossy.then(|| stream.lossy());
                Ok(Agreement { keys, lossy, agreed })
            }
        }
    }
}
