//! The handshake that opens a link (an encrypted byte stream in each direction), in one round trip
//! (`docs/spec/camouflage.md`, "handshake").
//!
//! ```text
//! HELLO  = share (32) · AEAD(version, capabilities, minute, padding) (24) · padding
//! ANSWER = share (32) · AEAD(version, capabilities, padding) (20) · padding
//! ```
//!
//! Shares are Elligator 2 representatives, so every byte of both messages looks random. Only the
//! holder of the server's secret key can open a HELLO. Only a holder of the bridge line, which
//! contains the public key, can make one. The keys of blocks also depend on a Diffie-Hellman
//! secret of the two shares. Both ends discard that secret, so an attacker that later obtains the
//! server's key cannot decrypt recorded blocks.

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rand_core::CryptoRng;

use crate::elligator::{self, HiddenPair, Representative};
use crate::keys::{BridgeKey, ServerKey};
use crate::secrets::{Chain, Key, LinkSecrets};

const NAME: &[u8] = b"anabranch stego 1";
/// Version of the handshake. An end refuses versions that it does not know.
const VERSION: u8 = 1;
/// Capability bit: the sender's machine has hardware support for AES. AES is used only if both
/// ends set this bit.
const AES: u8 = 1;
/// Length of an AEAD tag in bytes.
const TAG: usize = 16;
/// Length of a Diffie-Hellman share in bytes.
const SHARE: usize = 32;
/// Length in bytes of a HELLO's encrypted fields.
const HELLO_TEXT: usize = 8;
/// Length in bytes of an ANSWER's encrypted fields.
const ANSWER_TEXT: usize = 4;
/// Number of bytes in a HELLO before its padding: the key share, the encrypted text, and the
/// text's tag.
pub(crate) const HELLO: usize = SHARE + HELLO_TEXT + TAG;
/// Number of bytes in an ANSWER before its padding: the key share, the encrypted text, and the
/// text's tag.
pub(crate) const ANSWER: usize = SHARE + ANSWER_TEXT + TAG;
/// Maximum difference between the clocks of client and server, in minutes. A HELLO with an older
/// or newer time is refused.
const DRIFT: u32 = 60;
/// Maximum number of HELLOs in the replay cache, which suffices for 500 handshakes a second and
/// takes some 30 MB. At this maximum, handshakes are refused until old entries expire.
const REMEMBERED: usize = 2_000_000;

/// The client's state of a handshake in progress.
pub(crate) struct ClientHandshake {
    pair: HiddenPair,
    chain: Chain,
    aes: bool,
}

impl ClientHandshake {
    /// Appends a HELLO, followed by `padding` random bytes. `minute` is the wall-clock time in
    /// minutes since 1970; `aes` is whether AES is fast on this machine. Returns `None` if the
    /// server's key is a point of low order.
    pub(crate) fn begin(
        server: &BridgeKey,
        minute: u32,
        (aes, padding): (bool, u16),
        rng: &mut impl CryptoRng,
        out: &mut Vec<u8>,
    ) -> Option<ClientHandshake> {
        let pair = HiddenPair::generate(rng);
        let mut chain = Chain::new(NAME, &server.0);
        chain.absorb(&pair.representative);
        chain.learn(&pair.agree(&server.0)?);
        let mut text = [0; HELLO_TEXT];
        text[..2].copy_from_slice(&[VERSION, u8::from(aes) * AES]);
        text[2..6].copy_from_slice(&minute.to_be_bytes());
        text[6..].copy_from_slice(&padding.to_be_bytes());
        out.extend_from_slice(&pair.representative);
        seal(&mut chain, b"hello", &text, out);
        pad(padding, rng, out);
        Some(ClientHandshake { pair, chain, aes })
    }

    /// Processes the first [`ANSWER`] bytes of the answer. Returns the link's keys and the number
    /// of padding bytes that follow; `None` if the answer is not from this server.
    pub(crate) fn finish(&self, answer: &[u8; ANSWER]) -> Option<(LinkSecrets, u16)> {
        let (share, sealed) = answer.split_first_chunk::<SHARE>()?;
        let mut chain = self.chain.clone();
        chain.absorb(share);
        chain.learn(&self.pair.agree(&elligator::public_key(share))?);
        let text: [u8; ANSWER_TEXT] = open(&mut chain, b"answer", sealed)?;
        let [version, capabilities, padding @ ..] = text;
        let aes = self.aes && capabilities & AES != 0;
        let secrets = (version == VERSION).then(|| secrets(&chain, aes))?;
        Some((secrets, u16::from_be_bytes(padding)))
    }
}

/// The reason why a HELLO is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelloRefusal {
    /// The sender of the HELLO does not know the bridge's key.
    Forged,
    /// The key share of the HELLO is a point of low order.
    WeakShare,
    /// The version of the HELLO is unknown to this server.
    Version,
    /// The time in the HELLO differs from the server's by more than [`DRIFT`].
    Clock,
    /// The HELLO was received before.
    Replayed,
    /// The replay cache is full.
    CacheFull,
}

/// An accepted HELLO, which the server has to answer.
pub(crate) struct AcceptedHello {
    chain: Chain,
    share: [u8; 32],
    aes: bool,
    /// Number of padding bytes that follow the HELLO.
    pub(crate) padding: u16,
}

/// A replay cache of HELLOs (clients' handshake messages). An attacker that sends a recorded HELLO
/// again gets no answer.
#[derive(Debug, Default)]
pub(crate) struct ReplayCache {
    /// The first eight bytes of the key share in each HELLO, by the minute that the HELLO states.
    /// These bytes are random, so different HELLOs practically never agree in them.
    seen: BTreeMap<u32, BTreeSet<[u8; 8]>>,
    /// Number of HELLOs in the cache, over all minutes.
    remembered: usize,
}

impl ReplayCache {
    /// Decrypts and checks a HELLO, and adds it to the cache. `minute` is the server's time in
    /// minutes since 1970.
    ///
    /// # Errors
    /// The HELLO is invalid, old, replayed or of an unknown version, or the cache is full. The
    /// server must then send no answer.
    pub(crate) fn read(
        &mut self,
        key: &ServerKey,
        minute: u32,
        hello: &[u8; HELLO],
    ) -> Result<AcceptedHello, HelloRefusal> {
        let (share, sealed) =
            hello.split_first_chunk::<SHARE>().expect("a HELLO is longer than a share");
        let point = elligator::public_key(share);
        let mut chain = Chain::new(NAME, &key.public().0);
        chain.absorb(share);
        chain.learn(&key.agree(&point).ok_or(HelloRefusal::WeakShare)?);
        let text: Option<[u8; HELLO_TEXT]> = open(&mut chain, b"hello", sealed);
        let [version, capabilities, a, b, c, d, e, f] = text.ok_or(HelloRefusal::Forged)?;
        let (stated, padding) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
        if version != VERSION {
            return Err(HelloRefusal::Version);
        }
        if stated.abs_diff(minute) > DRIFT {
            return Err(HelloRefusal::Clock);
        }
        self.remember(share, stated, minute)?;
        Ok(AcceptedHello { chain, share: point, aes: capabilities & AES != 0, padding })
    }

    /// Adds a HELLO to the cache. It is removed once its time, the minute `stated`, is too old to
    /// be accepted anyway.
    ///
    /// # Errors
    /// The HELLO is a replay, or the cache is full.
    fn remember(
        &mut self,
        share: &Representative,
        stated: u32,
        minute: u32,
    ) -> Result<(), HelloRefusal> {
        while let Some(oldest) = self.seen.first_entry()
            && minute > oldest.key().saturating_add(DRIFT)
        {
            self.remembered -= oldest.remove().len();
        }
        if self.remembered >= REMEMBERED {
            return Err(HelloRefusal::CacheFull);
        }
        let prefix = share.first_chunk().expect("a share is longer than the prefix");
        let is_new = self.seen.entry(stated).or_default().insert(*prefix);
        self.remembered += usize::from(is_new);
        is_new.then_some(()).ok_or(HelloRefusal::Replayed)
    }
}

impl AcceptedHello {
    /// Appends the ANSWER and `padding` random bytes, and returns the link's keys. `aes` is
    /// whether AES is fast on this machine.
    ///
    /// # Errors
    /// The key share of the HELLO is a point of low order.
    pub(crate) fn answer(
        mut self,
        (aes, padding): (bool, u16),
        rng: &mut impl CryptoRng,
        out: &mut Vec<u8>,
    ) -> Result<LinkSecrets, HelloRefusal> {
        let (pair, aes) = (HiddenPair::generate(rng), aes && self.aes);
        self.chain.absorb(&pair.representative);
        self.chain.learn(&pair.agree(&self.share).ok_or(HelloRefusal::WeakShare)?);
        let [high, low] = padding.to_be_bytes();
        out.extend_from_slice(&pair.representative);
        seal(&mut self.chain, b"answer", &[VERSION, u8::from(aes) * AES, high, low], out);
        pad(padding, rng, out);
        Ok(secrets(&self.chain, aes))
    }
}

fn secrets(chain: &Chain, aes: bool) -> LinkSecrets {
    let [up, down, tokens] = [&b"up"[..], b"down", b"tokens"].map(|name| chain.derive(name));
    LinkSecrets { up, down, tokens, aes }
}

fn pad(count: u16, rng: &mut impl CryptoRng, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + usize::from(count), 0);
    rng.fill_bytes(&mut out[start..]);
}

/// Returns the cipher for one of the handshake's two encrypted texts. Each key is used once, so
/// the nonce is zero.
fn cipher(key: &Key) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).expect("a key of 32 bytes"))
}

/// Draws a uniformly distributed random integer from 0 to `end - 1`.
pub(crate) fn draw(rng: &mut impl CryptoRng, end: u16) -> u16 {
    ((u64::from(rng.next_u32()) * u64::from(end)) >> 32) as u16
}

fn seal(chain: &mut Chain, purpose: &[u8], text: &[u8], out: &mut Vec<u8>) {
    let (start, aad) = (out.len(), Aad::from(*chain.transcript()));
    out.extend_from_slice(text);
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    let cipher = cipher(&chain.derive(purpose));
    let tag = cipher.seal_in_place_separate_tag(nonce, aad, &mut out[start..]);
    out.extend_from_slice(tag.expect("the text is shorter than the limit of the AEAD").as_ref());
    chain.absorb(&out[start..]);
}

fn open<const N: usize>(chain: &mut Chain, purpose: &[u8], sealed: &[u8]) -> Option<[u8; N]> {
    let (body, tag) = sealed.split_last_chunk::<TAG>()?;
    let (mut text, aad) = ([0; N], Aad::from(*chain.transcript()));
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    (body.len() == N).then_some(())?;
    let cipher = cipher(&chain.derive(purpose));
    cipher.open_separate_gather(nonce, aad, body, tag, &mut text).ok()?;
    chain.absorb(sealed);
    Some(text)
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::{Stream, stream};

    use super::*;

    const MINUTE: u32 = 29_000_000;

    fn key() -> ServerKey {
        ServerKey::of([5; 32])
    }

    fn dice(entity: u64) -> Stream {
        stream(1, entity, "handshake")
    }

    fn client_handshake(minute: u32, aes: bool) -> (ClientHandshake, Vec<u8>) {
        let mut out = Vec::new();
        let key = key().public();
        let begun = ClientHandshake::begin(&key, minute, (aes, 11), &mut dice(1), &mut out);
        (begun.unwrap(), out)
    }

    fn first<const N: usize>(bytes: &[u8]) -> &[u8; N] {
        bytes.first_chunk().unwrap()
    }

    #[test]
    fn both_ends_come_to_the_same_keys_in_one_round_trip() {
        for (near, far) in [(true, true), (true, false), (false, true)] {
            let (client_handshake, hello) = client_handshake(MINUTE, near);
            assert_eq!(hello.len(), HELLO + 11);
            let mut replay_cache = ReplayCache::default();
            let accepted_hello = replay_cache.read(&key(), MINUTE + 5, first(&hello)).unwrap();
            assert_eq!(accepted_hello.padding, 11);
            let mut answer = Vec::new();
            let theirs = accepted_hello.answer((far, 7), &mut dice(2), &mut answer).unwrap();
            assert_eq!(answer.len(), ANSWER + 7);
            let (ours, padding) = client_handshake.finish(first(&answer)).unwrap();
            assert!(ours == theirs && padding == 7);
            assert_eq!(ours.aes, near && far);
            assert!(ours.up != ours.down && ours.up != ours.tokens);
        }
    }

    #[test]
    fn who_does_not_know_the_key_changes_or_repeats_is_nobody() {
        let (_, hello) = client_handshake(MINUTE, true);
        let mut replay_cache = ReplayCache::default();
        let mut changed = *first::<HELLO>(&hello);
        for place in 0..HELLO {
            changed[place] ^= 0x40;
            let read = replay_cache.read(&key(), MINUTE, &changed).err();
            assert_eq!(read, Some(HelloRefusal::Forged), "byte {place}");
            changed[place] ^= 0x40;
        }
        let mut read =
            |key: [u8; 32], minute| replay_cache.read(&ServerKey::of(key), minute, &changed).err();
        assert_eq!(read([6; 32], MINUTE), Some(HelloRefusal::Forged));
        assert_eq!(read([5; 32], MINUTE), None);
        assert_eq!(read([5; 32], MINUTE), Some(HelloRefusal::Replayed));
        assert_eq!(read([5; 32], MINUTE + 2 * DRIFT), Some(HelloRefusal::Clock), "an old replay");
    }

    /// Returns the HELLO of a client that speaks another version of the handshake.
    fn hello_of_version(version: u8) -> Vec<u8> {
        let (server, pair) = (key().public().0, HiddenPair::generate(&mut dice(1)));
        let mut chain = Chain::new(NAME, &server);
        chain.absorb(&pair.representative);
        chain.learn(&pair.agree(&server).unwrap());
        let mut text = [version, 0, 0, 0, 0, 0, 0, 0];
        text[2..6].copy_from_slice(&MINUTE.to_be_bytes());
        let mut hello = pair.representative.to_vec();
        seal(&mut chain, b"hello", &text, &mut hello);
        hello
    }

    #[test]
    fn an_unknown_version_a_weak_share_and_a_full_cache_are_refused_with_their_causes() {
        let full = || ReplayCache { remembered: REMEMBERED, ..ReplayCache::default() };
        let (known, other) = (hello_of_version(VERSION), hello_of_version(VERSION + 1));
        for (mut replay_cache, hello, expected) in [
            (ReplayCache::default(), &known[..], None),
            (ReplayCache::default(), &other[..], Some(HelloRefusal::Version)),
            // Zero represents the point of order two.
            (ReplayCache::default(), &[0; HELLO][..], Some(HelloRefusal::WeakShare)),
            (full(), &known[..], Some(HelloRefusal::CacheFull)),
        ] {
            assert_eq!(replay_cache.read(&key(), MINUTE, first(hello)).err(), expected);
        }
    }

    #[test]
    fn clocks_may_differ_by_an_hour() {
        let late = Some(HelloRefusal::Clock);
        for (minute, refusal) in
            [(MINUTE - 61, late), (MINUTE - 60, None), (MINUTE + 60, None), (MINUTE + 61, late)]
        {
            let (_, hello) = client_handshake(minute, true);
            let read = ReplayCache::default().read(&key(), MINUTE, first(&hello));
            assert_eq!(read.err(), refusal, "{minute}");
        }
    }

    #[test]
    fn an_answer_of_somebody_else_is_none() {
        let (client_handshake, hello) = client_handshake(MINUTE, true);
        let accepted_hello = ReplayCache::default().read(&key(), MINUTE, first(&hello)).unwrap();
        let mut answer = Vec::new();
        accepted_hello.answer((true, 0), &mut dice(2), &mut answer).unwrap();
        for place in 0..ANSWER {
            let mut changed = *first::<ANSWER>(&answer);
            changed[place] ^= 1;
            assert!(client_handshake.finish(&changed).is_none(), "byte {place}");
        }
    }

    #[test]
    fn memory_of_handshakes_is_bounded_and_forgets_what_clocks_refuse() {
        let mut replay_cache = ReplayCache::default();
        let share = |n: u64| std::array::from_fn(|at| n.to_be_bytes()[at % 8]);
        let mut remember = |n, stated, minute| replay_cache.remember(&share(n), stated, minute);
        let most = REMEMBERED as u64;
        (0..most).for_each(|n| assert_eq!(remember(n, MINUTE, MINUTE), Ok(())));
        let full = Err(HelloRefusal::CacheFull);
        assert_eq!(remember(most, MINUTE + 60, MINUTE + 60), full);
        assert_eq!(remember(most, MINUTE + 61, MINUTE + 61), Ok(()));
        // A replay is recognised as long as its minute is accepted.
        assert_eq!(remember(most, MINUTE + 61, MINUTE + 121), Err(HelloRefusal::Replayed));
        assert_eq!((replay_cache.seen.len(), replay_cache.remembered), (1, 1));
    }

    #[test]
    fn five_hundred_links_a_second_are_served_for_two_hours() {
        let mut replay_cache = ReplayCache::default();
        let share = |n: u64| std::array::from_fn(|at| n.to_be_bytes()[at % 8]);
        for n in 0..500 * 7_200 {
            // The minute that a client with a correct clock states.
            let minute = MINUTE + (n / 500 / 60) as u32;
            let remembered = replay_cache.remember(&share(n), minute, minute);
            assert_eq!(remembered, Ok(()), "link {n}");
        }
    }
}
