//! Descriptors and messages of an onion service and its client, as relays see them. They follow
//! rend-spec-v3 and cert-spec, and share no code with `anabranch_onion`, so they test that crate's
//! parsers. Keys are derived from seeds.

use anabranch_onion::wire::crypto::Sha3_256;
use anabranch_onion::wire::crypto::ed25519::Keypair;
use base64ct::{Base64Unpadded, Encoding};
use digest::Digest;

use crate::netdoc::{line, object};

/// Type number of an Ed25519 key in the messages ESTABLISH_INTRO and INTRODUCE1.
const ED25519: u8 = 2;
/// Type number of the certificate in which an onion service's blinded key certifies its signing
/// key (cert-spec 2.3).
const BLINDED_ID_V_SIGNING: u8 = 8;

/// Returns the public key of an onion service's introduction point. Its secret key is derived from
/// `seed`.
#[must_use]
pub fn auth_key(seed: u8) -> [u8; 32] {
    Keypair::from_bytes(&[seed; 32]).verifying_key().to_bytes()
}

/// Returns the content of an ESTABLISH_INTRO message for the key derived from `seed`, on the
/// circuit with `nonce`. Includes `limit` (rate, burst) if it is given (rend-spec-v3 3.1.1).
#[must_use]
pub fn establish_intro(seed: u8, nonce: &[u8; 20], limit: Option<[u64; 2]>) -> Vec<u8> {
    let mut data = [&[ED25519, 0, 32][..], &auth_key(seed)].concat();
    match limit {
        Some([rate, burst]) => {
            // There is one extension, DOS_PARAMS, of 19 bytes: two parameters of nine bytes each.
            data.extend([1, 1, 19, 2, 1]);
            data.extend(rate.to_be_bytes());
            data.push(2);
            data.extend(burst.to_be_bytes());
        }
        None => data.push(0),
    }
    data.extend(authenticate(nonce, &data));
    let signature = sign(seed, b"Tor establish-intro cell v1", &data);
    [&data[..], &[0, 64], &signature].concat()
}

/// Returns the content of an INTRODUCE1 message for the key derived from `seed`, with an encrypted
/// part (rend-spec-v3 3.2.1).
#[must_use]
pub fn introduce1(seed: u8, encrypted: &[u8]) -> Vec<u8> {
    [&[0; 20][..], &[ED25519, 0, 32], &auth_key(seed), &[0], encrypted].concat()
}

/// Returns the outer layer of an onion service's descriptor around `encrypted` (rend-spec-v3 2.4).
/// The blinded key and the signing key are derived from `seeds`. The certificate expires at
/// `until`, in seconds since 1970.
#[must_use]
pub fn descriptor(seeds: [[u8; 32]; 2], until: u64, revision: u64, encrypted: &[u8]) -> String {
    let mut text = String::with_capacity(encrypted.len() * 3 / 2 + 1000);
    line(&mut text, "hs-descriptor 3");
    line(&mut text, "descriptor-lifetime 180");
    line(&mut text, "descriptor-signing-key-cert");
    object(&mut text, "ED25519 CERT", &certificate(seeds, until));
    line(&mut text, &format!("revision-counter {revision}"));
    line(&mut text, "superencrypted");
    object(&mut text, "MESSAGE", encrypted);
    let signed = [&b"Tor onion service descriptor sig v3"[..], text.as_bytes()].concat();
    let signature = Keypair::from_bytes(&seeds[1]).sign(&signed).to_bytes();
    line(&mut text, &format!("signature {}", Base64Unpadded::encode_string(&signature)));
    text
}

/// Returns a certificate of the second seed's key, signed by the first seed's key (cert-spec 2.1).
/// The certificate expires at `until`, in seconds since 1970.
fn certificate(seeds: [[u8; 32]; 2], until: u64) -> Vec<u8> {
    let [blinded, signing] = seeds.map(|seed| Keypair::from_bytes(&seed));
    let hours = u32::try_from(until.div_ceil(3600)).unwrap();
    let mut cert = vec![1, BLINDED_ID_V_SIGNING];
    cert.extend(hours.to_be_bytes());
    cert.push(1);
    cert.extend(signing.verifying_key().to_bytes());
    // There is one extension of 32 bytes, without flags: the key that signs the certificate.
    cert.extend([1, 0, 32, 4, 0]);
    cert.extend(blinded.verifying_key().to_bytes());
    let signature = blinded.sign(&cert).to_bytes();
    cert.extend(signature);
    cert
}

fn sign(seed: u8, prefix: &[u8], data: &[u8]) -> [u8; 64] {
    Keypair::from_bytes(&[seed; 32]).sign(&[prefix, data].concat()).to_bytes()
}

/// Returns the authenticator of `message`: SHA3-256 over the key's length, the key `nonce` and the
/// message (rend-spec-v3 0.3).
fn authenticate(nonce: &[u8; 20], message: &[u8]) -> [u8; 32] {
    let length = (nonce.len() as u64).to_be_bytes();
    let hash = Sha3_256::new().chain_update(length).chain_update(nonce).chain_update(message);
    hash.finalize().into()
}
