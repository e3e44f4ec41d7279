//! Messages from services and clients to introduction points and rendezvous points (rend-spec-v3 3
//! and 4), as far as a relay reads them. The data between client and service is encrypted end to
//! end.

use digest::Digest;
use subtle::ConstantTimeEq;
use tor_bytes::Reader;

use super::crypto::Sha3_256;
use super::crypto::ed25519::{PublicKey, Signature};

/// Length in bytes of a rendezvous cookie.
pub const COOKIE: usize = 20;
/// Length in bytes of the value from a circuit's handshake that binds ESTABLISH_INTRO to the
/// circuit.
pub const NONCE: usize = 20;
/// The type of Ed25519 keys in ESTABLISH_INTRO and INTRODUCE1.
const ED25519: u8 = 2;
/// Prefix of the signed bytes of ESTABLISH_INTRO.
const SIGNED_FOR: &[u8] = b"Tor establish-intro cell v1";
/// The type of the extension of ESTABLISH_INTRO that limits INTRODUCE2 messages.
const DOS_PARAMS: u8 = 1;
/// The type of the parameter with the maximum rate, in the extension `DOS_PARAMS`.
const DOS_RATE: u8 = 1;
/// The type of the parameter with the maximum burst, in the extension `DOS_PARAMS`.
const DOS_BURST: u8 = 2;

/// A service's limit on the INTRODUCE2 messages that its introduction point sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntroLimit {
    /// The limit that the consensus sets.
    #[default]
    Consensus,
    /// No limit.
    None,
    /// A maximum rate and a maximum burst.
    Rate {
        /// Maximum number of messages per second.
        rate: u32,
        /// Maximum number of messages at once after a pause.
        burst: u32,
    },
}

impl IntroLimit {
    /// Creates the limit from the rate and burst in a message. A rate of 0, a value of more than
    /// 31 bits, or a burst below the rate means no limit (C tor, proposal 305).
    #[must_use]
    pub fn new(rate: u64, burst: u64) -> IntroLimit {
        match (i32::try_from(rate), i32::try_from(burst)) {
            (Ok(rate @ 1..), Ok(burst)) if burst >= rate => {
                IntroLimit::Rate { rate: rate.unsigned_abs(), burst: burst.unsigned_abs() }
            }
            _ => IntroLimit::None,
        }
    }
}

/// ESTABLISH_INTRO: a service's request to receive introductions on the circuit that carries the
/// message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstablishIntro {
    /// The key that identifies the introduction point to clients.
    pub auth_key: [u8; 32],
    /// The limit that the service requests.
    pub limit: IntroLimit,
}

impl EstablishIntro {
    /// Parses and verifies the data of ESTABLISH_INTRO that arrived on a circuit with the nonce
    /// `nonce`. Returns `None` if the data is malformed, bound to another circuit, or not signed
    /// with the key in it.
    #[must_use]
    pub fn check(data: &[u8], nonce: &[u8; NONCE]) -> Option<EstablishIntro> {
        let mut reader = Reader::from_slice(data);
        let auth_key = read_auth_key(&mut reader)?;
        let mut limit = IntroLimit::Consensus;
        for _ in 0..reader.take_u8().ok()? {
            let (kind, length) = (reader.take_u8().ok()?, reader.take_u8().ok()?);
            let field = reader.take(usize::from(length)).ok()?;
            if kind == DOS_PARAMS {
                limit = read_limit(field).unwrap_or(limit);
            }
        }
        let authenticated = &data[..reader.consumed()];
        let mac = reader.take(32).ok()?;
        let signed = &data[..reader.consumed()];
        let (length, signature) = (reader.take_u16().ok()?, reader.take(64).ok()?);
        let is_ours = bool::from(mac.ct_eq(&authenticate(nonce, authenticated)));
        let signature = Signature::from_bytes(signature.try_into().ok()?);
        let key = PublicKey::from_bytes(&auth_key).ok()?;
        let is_signed = key.verify(&[SIGNED_FOR, signed].concat(), &signature).is_ok();
        (is_ours && length == 64 && is_signed).then_some(EstablishIntro { auth_key, limit })
    }
}

/// Parses the limit on INTRODUCE2 messages in `field`, the body of the extension `DOS_PARAMS`.
/// Returns `None` if the extension is malformed or has unknown parameters.
fn read_limit(field: &[u8]) -> Option<IntroLimit> {
    let mut reader = Reader::from_slice(field);
    let (mut rate, mut burst) = (0, 0);
    for _ in 0..reader.take_u8().ok()? {
        let (kind, value) = (reader.take_u8().ok()?, reader.take_u64().ok()?);
        match kind {
            DOS_RATE => rate = value,
            DOS_BURST => burst = value,
            _ => return None,
        }
    }
    Some(IntroLimit::new(rate, burst))
}

/// Returns the MAC of `message` with the key `nonce`: the SHA3-256 of the key's length, the key
/// and the message (rend-spec-v3 0.3).
fn authenticate(nonce: &[u8; NONCE], message: &[u8]) -> [u8; 32] {
    let length = (NONCE as u64).to_be_bytes();
    let hash = Sha3_256::new().chain_update(length).chain_update(nonce).chain_update(message);
    hash.finalize().into()
}

fn read_auth_key(reader: &mut Reader<'_>) -> Option<[u8; 32]> {
    let (kind, length) = (reader.take_u8().ok()?, reader.take_u16().ok()?);
    let key = reader.take(32).ok()?.try_into().ok()?;
    (kind == ED25519 && length == 32).then_some(key)
}

/// Parses the data of INTRODUCE1, and returns the key of the requested introduction point. The
/// relay forwards all of the data to the service. Returns `None` if the data is malformed, or of
/// the obsolete version 2.
#[must_use]
pub fn read_introduce1(data: &[u8]) -> Option<[u8; 32]> {
    let mut reader = Reader::from_slice(data);
    // Version 2, which is obsolete, named services in this field.
    let is_new = reader.take(20).ok()?.iter().all(|&byte| byte == 0);
    let auth_key = read_auth_key(&mut reader)?;
    for _ in 0..reader.take_u8().ok()? {
        reader.take_u8().ok()?;
        let length = reader.take_u8().ok()?;
        reader.advance(usize::from(length)).ok()?;
    }
    (is_new && reader.remaining() > 0).then_some(auth_key)
}

/// Parses the data of ESTABLISH_RENDEZVOUS, which is only a cookie. Returns `None` if the data has
/// another length.
#[must_use]
pub fn read_establish_rendezvous(data: &[u8]) -> Option<[u8; COOKIE]> {
    data.try_into().ok()
}

/// Parses the data of RENDEZVOUS1. Returns the cookie, and the data for the client; `None` if the
/// cookie is truncated.
#[must_use]
pub fn read_rendezvous1(data: &[u8]) -> Option<(&[u8; COOKIE], &[u8])> {
    data.split_first_chunk()
}

/// The result of INTRODUCE1 (rend-spec-v3 3.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntroStatus {
    /// The INTRODUCE1 message was forwarded to the service.
    Success,
    /// No service has an introduction point with this key at this relay, or the point's rate limit
    /// is exceeded.
    Unknown,
    /// The INTRODUCE1 message cannot be parsed.
    Malformed,
    /// The INTRODUCE1 message cannot be forwarded.
    CannotRelay,
}

impl IntroStatus {
    /// Returns the data of INTRODUCE_ACK, without extensions.
    #[must_use]
    pub fn put(self) -> [u8; 3] {
        [0, self.code(), 0]
    }

    /// Returns the status code of INTRODUCE_ACK.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the status that the code of INTRODUCE_ACK stands for. Unknown codes count as
    /// [`IntroStatus::CannotRelay`].
    #[must_use]
    pub fn of(code: u8) -> IntroStatus {
        match code {
            0 => IntroStatus::Success,
            1 => IntroStatus::Unknown,
            2 => IntroStatus::Malformed,
            _ => IntroStatus::CannotRelay,
        }
    }
}

/// The data of INTRO_ESTABLISHED: no extensions.
pub const INTRO_ESTABLISHED: [u8; 1] = [0];

#[cfg(test)]
mod tests {
    use anabranch_testkit::onion_service::{auth_key, establish_intro, introduce1};

    use super::*;

    const MINE: [u8; NONCE] = [7; NONCE];

    #[test]
    fn a_service_asks_with_limits_or_without() {
        let limit = |asked| EstablishIntro::check(&establish_intro(3, &MINE, asked), &MINE);
        let of = |limit| Some(EstablishIntro { auth_key: auth_key(3), limit });
        assert_eq!(limit(None), of(IntroLimit::Consensus));
        assert_eq!(limit(Some([25, 200])), of(IntroLimit::Rate { rate: 25, burst: 200 }));
        for none in [[0, 200], [25, 0], [25, 24], [1 << 31, 1 << 32], [u64::MAX, u64::MAX]] {
            assert_eq!(limit(Some(none)), of(IntroLimit::None), "{none:?}");
        }
    }

    #[test]
    fn what_is_for_another_circuit_changed_or_cut_is_refused() {
        let data = establish_intro(3, &MINE, Some([25, 200]));
        assert_eq!(EstablishIntro::check(&data, &[8; NONCE]), None, "replayed");
        for place in 0..data.len() {
            let mut changed = data.clone();
            changed[place] ^= 1;
            assert_eq!(EstablishIntro::check(&changed, &MINE), None, "byte {place}");
            assert_eq!(EstablishIntro::check(&data[..place], &MINE), None, "{place} bytes");
        }
    }

    #[test]
    fn limits_that_are_not_known_leave_the_consensus() {
        let known = [&[1, DOS_RATE][..], &9u64.to_be_bytes()].concat();
        assert_eq!(read_limit(&known), Some(IntroLimit::None));
        assert_eq!(read_limit(&[&[1, 77][..], &9u64.to_be_bytes()].concat()), None);
        assert_eq!(read_limit(&known[..5]), None);
    }

    #[test]
    fn a_client_names_the_key_of_an_introduction_point() {
        let data = introduce1(3, b"sealed");
        assert_eq!(read_introduce1(&data), Some(auth_key(3)));
        assert_eq!(read_introduce1(&introduce1(3, b"")), None, "nothing for the service");
        let old = [&[1; 20][..], &data[20..]].concat();
        assert_eq!(read_introduce1(&old), None, "an older kind");
        for length in 0..data.len() - b"sealed".len() {
            assert_eq!(read_introduce1(&data[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn cookies_have_their_length() {
        assert_eq!(read_establish_rendezvous(&[1; 20]), Some([1; 20]));
        assert_eq!(read_establish_rendezvous(&[1; 21]), None);
        assert_eq!(read_rendezvous1(&[1; 19]), None);
        assert_eq!(read_rendezvous1(&[1; 23]), Some((&[1; 20], &[1, 1, 1][..])));
        for code in 0..4 {
            assert_eq!(IntroStatus::of(code).put(), [0, code, 0]);
        }
    }
}
