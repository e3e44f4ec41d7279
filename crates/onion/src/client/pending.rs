//! A handshake with the next relay of a circuit, from our message to the keys.

use rand_core::CryptoRng;

use super::{Hop, HopKey};
use crate::congestion::Params;
use crate::crypto::Keys;
use crate::handshake::extension::{self, Agreed, Wish};
use crate::handshake::{Kind, Refused, fast, ntor, ntor_v3};

/// A handshake whose answer has not arrived.
pub(super) enum Pending {
    Fast(fast::Client),
    Ntor(ntor::Client),
    NtorV3 { client: ntor_v3::Client, wish: Wish },
}

impl Pending {
    /// Starts a handshake with `hop`. Returns the handshake, its type (none for CREATE_FAST) and
    /// our first message. Returns `None` if the onion key is degenerate.
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
                let said = extension::request(wish);
                let relay = hop.target.ed25519?;
                let verification = ntor_v3::CIRCUIT;
                let (client, message) =
                    ntor_v3::Client::start(rng, relay, onion_key, &said, verification)?;
                Some((Pending::NtorV3 { client, wish }, Some(Kind::NTOR_V3), message))
            }
        }
    }

    pub(super) fn finish(self, reply: &[u8], params: &Params) -> Result<(Keys, Agreed), Refused> {
        match self {
            Pending::Fast(client) => Ok((client.finish(reply)?.into(), Agreed::default())),
            Pending::Ntor(client) => Ok((client.finish(reply)?.into(), Agreed::default())),
            Pending::NtorV3 { client, wish } => {
                let (mut keys, said) = client.finish(reply)?;
                let agreed = extension::read_answer(&said, wish, params.sendme_inc)?;
                Ok((keys.of(agreed), agreed))
            }
        }
    }
}
