//! The ntor handshake (tor-spec, "The 'ntor' handshake"). The client combines a new curve25519 key
//! for this circuit with two keys of the relay: a new key and the onion key.

use hmac::{Hmac, Mac};
use rand_core::CryptoRng;
use subtle::ConstantTimeEq;

use super::{Accepted, HandshakeError, take};
use crate::crypto::{KEY_BYTES, KeyMaterial};
use crate::wire::crypto::{CurveKeys, Sha256, new_curve_keys};
use crate::wire::rend::NONCE;

/// Name of the handshake, which is part of the hashed input (tor-spec, "The ntor handshake").
const PROTOID: &[u8] = b"ntor-curve25519-sha256-1";
/// Key of the hash that yields AUTH (tor-spec, "The ntor handshake").
const T_MAC: &[u8] = b"ntor-curve25519-sha256-1:mac";
/// Key of the hash that yields KEY_SEED (tor-spec, "The ntor handshake").
const T_KEY: &[u8] = b"ntor-curve25519-sha256-1:key_extract";
/// Key of the hash that yields `verify` (tor-spec, "The ntor handshake").
const T_VERIFY: &[u8] = b"ntor-curve25519-sha256-1:verify";
/// Label of the key expansion: its input `info` in RFC 5869 (tor-spec, "KDF-RFC5869").
const M_EXPAND: &[u8] = b"ntor-curve25519-sha256-1:key_expand";

/// A client's side of the handshake while it waits for the answer.
pub struct Client {
    ours: CurveKeys,
    relay: [u8; 20],
    onion_key: [u8; 32],
}

impl Client {
    /// Starts a handshake with the relay that has this RSA fingerprint and onion key. Returns the
    /// client's side, and the handshake data of its CREATE2.
    pub fn start(
        rng: &mut dyn CryptoRng,
        relay: [u8; 20],
        onion_key: [u8; 32],
    ) -> (Client, Vec<u8>) {
        Client { ours: new_curve_keys(rng), relay, onion_key }.begin()
    }

    fn begin(self) -> (Client, Vec<u8>) {
        let message = [&self.relay[..], &self.onion_key, self.ours.public()].concat();
        (self, message)
    }

    /// Handles the handshake data of CREATED2.
    ///
    /// # Errors
    /// [`HandshakeError`] if the data does not prove that its sender has the onion key.
    pub fn finish(self, created: &[u8]) -> Result<KeyMaterial, HandshakeError> {
        let mut rest = created;
        let theirs: [u8; 32] = take(&mut rest)?;
        let proof: [u8; 32] = take(&mut rest)?;
        let ephemeral = self.ours.agree(&theirs).ok_or(HandshakeError::NotAuthentic)?;
        let lasting = self.ours.agree(&self.onion_key).ok_or(HandshakeError::NotAuthentic)?;
        let keys = [&self.onion_key, self.ours.public(), &theirs];
        let (expected, (material, _)) = derive(&ephemeral, &lasting, &self.relay, keys);
        if bool::from(expected.ct_eq(&proof)) {
            Ok(material)
        } else {
            Err(HandshakeError::NotAuthentic)
        }
    }
}

/// Performs the relay's side of the handshake. `onion_keys` contains the present onion key and
/// older keys that are still accepted.
///
/// # Errors
/// [`HandshakeError`] if the client's message is truncated, is for another relay or onion key, or
/// contains a degenerate key.
pub fn accept(
    rng: &mut dyn CryptoRng,
    relay: &[u8; 20],
    onion_keys: &[CurveKeys],
    create: &[u8],
) -> Result<Accepted, HandshakeError> {
    accept_with(new_curve_keys(rng), relay, onion_keys, create)
}

fn accept_with(
    ours: CurveKeys,
    relay: &[u8; 20],
    onion_keys: &[CurveKeys],
    create: &[u8],
) -> Result<Accepted, HandshakeError> {
    let mut rest = create;
    let for_whom: [u8; 20] = take(&mut rest)?;
    let for_key: [u8; 32] = take(&mut rest)?;
    let theirs: [u8; 32] = take(&mut rest)?;
    let onion = onion_keys.iter().find(|keys| *keys.public() == for_key);
    let onion = onion.filter(|_| for_whom == *relay).ok_or(HandshakeError::WrongRelay)?;
    let ephemeral = ours.agree(&theirs).ok_or(HandshakeError::NotAuthentic)?;
    let lasting = onion.agree(&theirs).ok_or(HandshakeError::NotAuthentic)?;
    let publics = [onion.public(), &theirs, ours.public()];
    let (proof, (keys, nonce)) = derive(&ephemeral, &lasting, relay, publics);
    Ok(Accepted { reply: [*ours.public(), proof].concat(), keys, nonce })
}

/// A circuit's keys, and the value that binds messages to this circuit.
type Derived = (KeyMaterial, [u8; NONCE]);

/// Returns the relay's proof, the circuit's keys, and the value that binds messages to the
/// circuit. `keys` contains the onion key, the client's key and the relay's key.
fn derive(
    ephemeral: &[u8; 32],
    lasting: &[u8; 32],
    relay: &[u8; 20],
    keys: [&[u8; 32]; 3],
) -> ([u8; 32], Derived) {
    let [onion, client, server] = keys;
    let input = [&ephemeral[..], lasting, relay, onion, client, server, PROTOID].concat();
    let seed = hash(&[&input], T_KEY);
    let verify = hash(&[&input], T_VERIFY);
    let proof = hash(&[&verify, relay, onion, server, client, PROTOID, b"Server"], T_MAC);
    (proof, expand(&seed))
}

/// Expands the seed with the second step of HKDF (RFC 5869) and ntor's label.
fn expand(seed: &[u8; 32]) -> Derived {
    let mut stream = [0; 96];
    let mut last: [u8; 32] = hash(&[M_EXPAND, &[1]], seed);
    for (counter, block) in (2u8..).zip(stream.chunks_mut(32)) {
        block.copy_from_slice(&last);
        last = hash(&[&last, M_EXPAND, &[counter]], seed);
    }
    let (keys, rest) =
        stream.split_first_chunk::<KEY_BYTES>().expect("96 bytes are enough for the keys");
    (KeyMaterial::from(keys), *rest.first_chunk().expect("enough bytes follow the keys"))
}

/// Returns HMAC-SHA256 over the concatenated parts.
fn hash(parts: &[&[u8]], key: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_multipath::seed;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The vectors were computed by an implementation in Python, based on RFC 7748 and RFC 5869,
    /// because tor-spec contains no vectors.
    #[test]
    fn the_vectors_of_another_implementation() {
        let keys = |byte: u8| CurveKeys::from([byte; 32]);
        let (onion, relay) = (keys(0x11), [0x44; 20]);
        let client = Client { ours: keys(0x22), relay, onion_key: *onion.public() };
        let (client, create) = client.begin();
        let expected = "44".repeat(20)
            + "7b4e909bbe7ffe44c465a220037d608ee35897d31ef972f07f74892cb0f73f13"
            + "0faa684ed28867b97f4a6a2dee5df8ce974e76b7018e3f22a1c4cf2678570f20";
        assert_eq!(hex(&create), expected);
        let accepted = accept_with(keys(0x33), &relay, &[onion], &create).unwrap();
        let expected = "7b0d47d93427f8311160781c7c733fd89f88970aef490d8aa0ee19a4cb8a1b14"
            .to_owned()
            + "1b45acef32171e1f04c172e0718db9cf113d2df1e34495295b6cf3a88e1f4d31";
        assert_eq!(hex(&accepted.reply), expected);
        let keys = client.finish(&accepted.reply).unwrap();
        let all = [&keys.digest_out[..], &keys.digest_in, &keys.key_out, &keys.key_in].concat();
        let expected = "62a4bfd557a973361d3b9b079e86bc98459c8b0288a36d44918a0bf7b04e023e"
            .to_owned()
            + "95cd9d703abd731032cfe2bf9db8c9a94a0fffa9182dce628643c050af3c1e05"
            + "ffbdee017388e116";
        assert_eq!(hex(&all), expected);
    }

    #[test]
    fn both_sides_agree_by_any_honoured_key() {
        let mut rng = seed::stream(1, 0, "ntor");
        let keys = [new_curve_keys(&mut rng), new_curve_keys(&mut rng)];
        for key in &keys {
            let (client, create) = Client::start(&mut rng, [7; 20], *key.public());
            assert_eq!(create.len(), 84);
            let accepted = accept(&mut rng, &[7; 20], &keys, &create).unwrap();
            assert!(client.finish(&accepted.reply).unwrap() == accepted.keys);
        }
    }

    #[test]
    fn a_handshake_for_another_relay_or_key_is_refused() {
        let mut rng = seed::stream(2, 0, "ntor");
        let (ours, theirs) = (new_curve_keys(&mut rng), new_curve_keys(&mut rng));
        let refusal = |rng: &mut seed::Stream, relay, key: &CurveKeys| {
            let (_, create) = Client::start(rng, relay, *key.public());
            accept(rng, &[7; 20], std::slice::from_ref(&ours), &create).err()
        };
        assert_eq!(refusal(&mut rng, [8; 20], &ours), Some(HandshakeError::WrongRelay));
        assert_eq!(refusal(&mut rng, [7; 20], &theirs), Some(HandshakeError::WrongRelay));
    }

    #[test]
    fn who_lacks_the_onion_key_convinces_nobody() {
        let mut rng = seed::stream(3, 0, "ntor");
        let (real, mut forged) = (new_curve_keys(&mut rng), new_curve_keys(&mut rng));
        let (client, create) = Client::start(&mut rng, [7; 20], *real.public());
        forged.public = *real.public();
        let reply = accept(&mut rng, &[7; 20], &[forged], &create).unwrap().reply;
        assert!(client.finish(&reply).is_err_and(|e| e == HandshakeError::NotAuthentic));
    }

    #[test]
    fn a_degenerate_key_is_refused() {
        let mut rng = seed::stream(4, 0, "ntor");
        let ours = new_curve_keys(&mut rng);
        let create = [&[7; 20][..], ours.public(), &[0; 32]].concat();
        let refused = accept(&mut rng, &[7; 20], &[ours], &create).err();
        assert_eq!(refused, Some(HandshakeError::NotAuthentic));
    }
}
