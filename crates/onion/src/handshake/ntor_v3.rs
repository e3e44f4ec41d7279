//! The ntor-v3 handshake (proposal 332): ntor with SHA3 and Ed25519 identities. It also carries an
//! encrypted message in each direction.

use cipher::{KeyIvInit, StreamCipher};
use digest::{Digest, ExtendableOutput, Update, XofReader};
use rand_core::CryptoRng;
use subtle::ConstantTimeEq;

use super::extension::AgreedFeatures;
use super::{HandshakeError, take};
use crate::crypto::lossy::{self, LossyKeys};
use crate::crypto::{KEY_BYTES, KeyMaterial, Keys, cgo};
use crate::wire::crypto::{
    Aes256Ctr, CurveKeys, Sha3_256, Shake256, Shake256Reader, new_curve_keys,
};
use crate::wire::rend::NONCE;

/// Verification string in handshakes that create or extend a circuit.
pub const CIRCUIT: &[u8] = b"circuit extend";

const PROTOID: &[u8] = b"ntor3-curve25519-sha3_256-1";

/// A client's side of the handshake while it waits for the answer.
pub struct Client {
    ours: CurveKeys,
    relay: [u8; 32],
    onion_key: [u8; 32],
    lasting: [u8; 32],
    mac: [u8; 32],
    verification: &'static [u8],
}

impl Client {
    /// Starts a handshake with the relay that has this Ed25519 identity and onion key. Returns the
    /// client's side, and the handshake data of its CREATE2, which contains `message` for the
    /// relay in encrypted form. Returns `None` if the onion key is degenerate.
    pub fn start(
        rng: &mut dyn CryptoRng,
        relay: [u8; 32],
        onion_key: [u8; 32],
        message: &[u8],
        verification: &'static [u8],
    ) -> Option<(Client, Vec<u8>)> {
        Client::with_keys(new_curve_keys(rng), relay, onion_key, message, verification)
    }

    fn with_keys(
        ours: CurveKeys,
        relay: [u8; 32],
        onion_key: [u8; 32],
        message: &[u8],
        verification: &'static [u8],
    ) -> Option<(Client, Vec<u8>)> {
        let lasting = ours.agree(&onion_key)?;
        let first = MessageKeyInput {
            lasting: &lasting,
            relay: &relay,
            client: ours.public(),
            onion: &onion_key,
        };
        let (encrypted, mac) = first.seal(message, verification);
        let handshake = [&relay[..], &onion_key, ours.public(), &encrypted, &mac].concat();
        Some((Client { ours, relay, onion_key, lasting, mac, verification }, handshake))
    }

    /// Handles the handshake data of CREATED2. Returns the key stream and the relay's message.
    ///
    /// # Errors
    /// [`HandshakeError`] if the data does not prove that its sender has the onion key.
    pub fn finish(self, created: &[u8]) -> Result<(KeyStream, Vec<u8>), HandshakeError> {
        let mut rest = created;
        let theirs: [u8; 32] = take(&mut rest)?;
        let proof: [u8; 32] = take(&mut rest)?;
        let ephemeral = self.ours.agree(&theirs).ok_or(HandshakeError::NotAuthentic)?;
        let second = KeyInput {
            ephemeral: &ephemeral,
            lasting: &self.lasting,
            relay: &self.relay,
            onion: &self.onion_key,
            client: self.ours.public(),
            server: &theirs,
        };
        let (expected, mut stream) = second.prove(&self.mac, rest, self.verification);
        if !bool::from(expected.ct_eq(&proof)) {
            return Err(HandshakeError::NotAuthentic);
        }
        let mut message = rest.to_vec();
        stream.decrypt(&mut message);
        Ok((stream, message))
    }
}

/// A client's handshake that a relay has verified but not yet answered.
pub struct Request<'a> {
    /// The client's message.
    pub message: Vec<u8>,
    lasting: [u8; 32],
    client: [u8; 32],
    onion: &'a CurveKeys,
    relay: &'a [u8; 32],
    mac: [u8; 32],
    verification: &'a [u8],
}

/// Parses and verifies a client's handshake. `onion_keys` are the present onion key and older keys
/// that are still accepted.
///
/// # Errors
/// [`HandshakeError`] if the handshake is truncated, is for another relay or onion key, or is not
/// authentic.
pub fn read<'a>(
    relay: &'a [u8; 32],
    onion_keys: &'a [CurveKeys],
    verification: &'a [u8],
    create: &[u8],
) -> Result<Request<'a>, HandshakeError> {
    let mut rest = create;
    let for_whom: [u8; 32] = take(&mut rest)?;
    let for_key: [u8; 32] = take(&mut rest)?;
    let client: [u8; 32] = take(&mut rest)?;
    let (encrypted, mac) = rest.split_last_chunk::<32>().ok_or(HandshakeError::Malformed)?;
    let onion = onion_keys.iter().find(|keys| *keys.public() == for_key);
    let onion = onion.filter(|_| for_whom == *relay).ok_or(HandshakeError::WrongRelay)?;
    let lasting = onion.agree(&client).ok_or(HandshakeError::NotAuthentic)?;
    let first =
        MessageKeyInput { lasting: &lasting, relay, client: &client, onion: onion.public() };
    let message = first.open(encrypted, mac, verification).ok_or(HandshakeError::NotAuthentic)?;
    Ok(Request { message, lasting, client, onion, relay, mac: *mac, verification })
}

impl Request<'_> {
    /// Answers the handshake with `message`. Returns the handshake data of CREATED2, and the key
    /// stream.
    ///
    /// # Errors
    /// [`HandshakeError::NotAuthentic`] if the client's key is degenerate.
    pub fn answer(
        self,
        rng: &mut dyn CryptoRng,
        message: &[u8],
    ) -> Result<(Vec<u8>, KeyStream), HandshakeError> {
        self.reply(&new_curve_keys(rng), message)
    }

    fn reply(
        self,
        ours: &CurveKeys,
        message: &[u8],
    ) -> Result<(Vec<u8>, KeyStream), HandshakeError> {
        let ephemeral = ours.agree(&self.client).ok_or(HandshakeError::NotAuthentic)?;
        let second = KeyInput {
            ephemeral: &ephemeral,
            lasting: &self.lasting,
            relay: self.relay,
            onion: self.onion.public(),
            client: &self.client,
            server: ours.public(),
        };
        let (seed, verify) = second.seeds(self.verification);
        let mut stream = KeyStream::new(&seed);
        let mut encrypted = message.to_vec();
        stream.decrypt(&mut encrypted);
        let proof = second.proof(&verify, &self.mac, &encrypted);
        Ok(([&ours.public()[..], &proof, &encrypted].concat(), stream))
    }
}

/// Input from which the encryption key and the MAC key of the client's message are derived.
struct MessageKeyInput<'a> {
    lasting: &'a [u8; 32],
    relay: &'a [u8; 32],
    client: &'a [u8; 32],
    onion: &'a [u8; 32],
}

impl MessageKeyInput<'_> {
    fn seal(&self, message: &[u8], verification: &[u8]) -> (Vec<u8>, [u8; 32]) {
        let (encryption, authentication) = self.keys(verification);
        let mut encrypted = message.to_vec();
        aes256(&encryption).apply_keystream(&mut encrypted);
        let mac = self.mac(&authentication, &encrypted);
        (encrypted, mac)
    }

    fn open(&self, encrypted: &[u8], mac: &[u8; 32], verification: &[u8]) -> Option<Vec<u8>> {
        let (encryption, authentication) = self.keys(verification);
        if !bool::from(self.mac(&authentication, encrypted).ct_eq(mac)) {
            return None;
        }
        let mut message = encrypted.to_vec();
        aes256(&encryption).apply_keystream(&mut message);
        Some(message)
    }

    fn keys(&self, verification: &[u8]) -> ([u8; 32], [u8; 32]) {
        let mut reader = kdf(
            b":kdf_phase1",
            &[
                self.lasting,
                self.relay,
                self.client,
                self.onion,
                PROTOID,
                &length(verification),
                verification,
            ],
        );
        let (mut encryption, mut authentication) = ([0; 32], [0; 32]);
        reader.read(&mut encryption);
        reader.read(&mut authentication);
        (encryption, authentication)
    }

    fn mac(&self, key: &[u8; 32], encrypted: &[u8]) -> [u8; 32] {
        hash(b":msg_mac", &[&length(key), key, self.relay, self.onion, self.client, encrypted])
    }
}

/// Input from which all other keys are derived.
struct KeyInput<'a> {
    ephemeral: &'a [u8; 32],
    lasting: &'a [u8; 32],
    relay: &'a [u8; 32],
    onion: &'a [u8; 32],
    client: &'a [u8; 32],
    server: &'a [u8; 32],
}

impl KeyInput<'_> {
    fn prove(
        &self,
        mac: &[u8; 32],
        encrypted: &[u8],
        verification: &[u8],
    ) -> ([u8; 32], KeyStream) {
        let (seed, verify) = self.seeds(verification);
        (self.proof(&verify, mac, encrypted), KeyStream::new(&seed))
    }

    /// Returns the seed of the key stream, and the key with which the relay proves its identity.
    fn seeds(&self, verification: &[u8]) -> ([u8; 32], [u8; 32]) {
        let length = length(verification);
        let input: [&[u8]; 9] = [
            self.ephemeral,
            self.lasting,
            self.relay,
            self.onion,
            self.client,
            self.server,
            PROTOID,
            &length,
            verification,
        ];
        (hash(b":key_seed", &input), hash(b":verify", &input))
    }

    fn proof(&self, verify: &[u8; 32], mac: &[u8; 32], encrypted: &[u8]) -> [u8; 32] {
        hash(
            b":auth_final",
            &[
                verify,
                self.relay,
                self.onion,
                self.server,
                self.client,
                mac,
                &length(encrypted),
                encrypted,
                PROTOID,
                b"Server",
            ],
        )
    }
}

/// The key stream that results from a handshake. Its length is unlimited. The caller must read its
/// parts in order: keys, nonce, and the secrets for lossy cells (sent in datagrams).
pub struct KeyStream {
    cipher: Aes256Ctr,
    reader: Shake256Reader,
}

impl KeyStream {
    fn new(seed: &[u8; 32]) -> KeyStream {
        let mut reader = kdf(b":kdf_final", &[seed]);
        let mut encryption = [0; 32];
        reader.read(&mut encryption);
        KeyStream { cipher: aes256(&encryption), reader }
    }

    /// Encrypts or decrypts the relay's message.
    fn decrypt(&mut self, message: &mut [u8]) {
        self.cipher.apply_keystream(message);
    }

    /// Returns the circuit's keys, for the negotiated relay encryption.
    #[must_use]
    pub fn of(&mut self, agreed: AgreedFeatures) -> Keys {
        if agreed.cgo {
            let mut seed = Box::new([0; cgo::KEY_BYTES]);
            self.reader.read(&mut *seed);
            return Keys::Cgo(seed);
        }
        let mut bytes = [0; KEY_BYTES];
        self.reader.read(&mut bytes);
        Keys::Tor1(KeyMaterial::from(&bytes))
    }

    /// Returns the value that binds messages to the circuit. Must be called after
    /// [`KeyStream::of`].
    #[must_use]
    pub fn nonce(&mut self) -> [u8; NONCE] {
        let mut nonce = [0; NONCE];
        self.reader.read(&mut nonce);
        nonce
    }

    /// Returns the secrets of the hop's lossy cells (sent in datagrams; see
    /// `docs/spec/lossy-circuits.md`, "Keys"). Must be called after [`KeyStream::nonce`].
    #[must_use]
    pub fn lossy(&mut self) -> LossyKeys {
        let mut bytes = [0; lossy::KEY_BYTES];
        self.reader.read(&mut bytes);
        LossyKeys::from(&bytes)
    }
}

fn aes256(key: &[u8; 32]) -> Aes256Ctr {
    Aes256Ctr::new(&(*key).into(), &[0; 16].into())
}

/// Returns the length of `bytes` in the encoding of proposal 332: 8 bytes.
fn length(bytes: &[u8]) -> [u8; 8] {
    (bytes.len() as u64).to_be_bytes()
}

fn hash(tweak: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha3_256::new();
    Digest::update(&mut hash, ((PROTOID.len() + tweak.len()) as u64).to_be_bytes());
    Digest::update(&mut hash, PROTOID);
    Digest::update(&mut hash, tweak);
    parts.iter().for_each(|part| Digest::update(&mut hash, part));
    hash.finalize().into()
}

fn kdf(tweak: &[u8], parts: &[&[u8]]) -> Shake256Reader {
    let mut hash = Shake256::default();
    Update::update(&mut hash, &((PROTOID.len() + tweak.len()) as u64).to_be_bytes());
    Update::update(&mut hash, PROTOID);
    Update::update(&mut hash, tweak);
    parts.iter().for_each(|part| Update::update(&mut hash, part));
    hash.finalize_xof()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_multipath::seed;

    fn hex(text: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digit).collect()
    }

    fn array(text: &str) -> [u8; 32] {
        hex(text).try_into().unwrap()
    }

    /// Checks the test vectors of proposal 332, appendix X.2.
    #[test]
    fn the_proposals_vectors() {
        let onion = CurveKeys::from(array(
            "4051daa5921cfa2a1c27b08451324919538e79e788a81b38cbed097a5dff454a",
        ));
        let client = CurveKeys::from(array(
            "b825a3719147bcbe5fb1d0b0fcb9c09e51948048e2e3283d2ab7b45b5ef38b49",
        ));
        let server = CurveKeys::from(array(
            "4865a5b7689dafd978f529291c7171bc159be076b92186405d13220b80e2a053",
        ));
        let relay = array("9fad2af287ef942632833d21f946c6260c33fae6172b60006e86e4a6911753a2");
        let (client, create) =
            Client::with_keys(client, relay, *onion.public(), b"hello world", b"xyzzy").unwrap();
        assert_eq!(
            create[96..],
            hex(
                "3bebd9151fd3b47c180abc9e044d53565f04d82bbb3bebed3d06cea65db8be9c72b68cd461942088502f67"
            )
        );
        let keys = [onion];
        let request = read(&relay, &keys, b"xyzzy", &create).unwrap();
        assert_eq!(request.message, b"hello world");
        let (reply, mut stream) = request.reply(&server, b"Hola Mundo").unwrap();
        assert_eq!(
            reply,
            hex(
                "4bf4814326fdab45ad5184f5518bd7fae25dc59374062698201a50a22954246d2fc5f8773ca824542bc6cf6f57c7c29bbf4e5476461ab130c5b18ab0a91276651202c3e1e87c0d32054c"
            )
        );
        let expected = hex(
            "9c19b631fd94ed86a817e01f6c80b0743a43f5faebd39cfaa8b00fa8bcc65c3bfeaa403d91acbd68a821bf6ee8504602b094a254392a07737d5662768c7a9fb1b2814bb34780eaee",
        );
        let expected = KeyMaterial::from(expected.first_chunk::<KEY_BYTES>().unwrap());
        let expected = Keys::Tor1(expected);
        assert!(stream.of(AgreedFeatures::default()) == expected);
        let (mut keys, message) = client.finish(&reply).unwrap();
        assert!(keys.of(AgreedFeatures::default()) == expected);
        assert_eq!(message, b"Hola Mundo");
        assert_eq!(keys.nonce(), stream.nonce());
        assert!(keys.lossy() == stream.lossy());
    }

    #[test]
    fn a_changed_byte_anywhere_is_refused() {
        let mut rng = seed::stream(5, 0, "ntor v3");
        let keys = [new_curve_keys(&mut rng)];
        for at in [0, 40, 70, 100, 110] {
            let (_, mut create) =
                Client::start(&mut rng, [3; 32], *keys[0].public(), b"message", CIRCUIT).unwrap();
            create[at] ^= 1;
            assert!(read(&[3; 32], &keys, CIRCUIT, &create).is_err(), "byte {at}");
        }
        for at in [0, 40, 66] {
            let (client, create) =
                Client::start(&mut rng, [3; 32], *keys[0].public(), b"message", CIRCUIT).unwrap();
            let request = read(&[3; 32], &keys, CIRCUIT, &create).unwrap();
            let mut reply = request.answer(&mut rng, b"answer").unwrap().0;
            reply[at] ^= 1;
            assert!(client.finish(&reply).is_err(), "byte {at}");
        }
    }
}
