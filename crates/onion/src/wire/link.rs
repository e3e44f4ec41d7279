//! The cells of a link's handshake: VERSIONS, CERTS, AUTH_CHALLENGE, AUTHENTICATE, NETINFO, and
//! what they prove (tor-spec, "Negotiating and initializing channels").

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, UNIX_EPOCH};

use super::x509::is_self_signed;
use digest::Digest;
use tor_bytes::Reader;
use tor_cell::chancell::msg::{
    AuthChallenge, Body as _, Certs, Netinfo, PaddingNegotiate, Versions,
};
use tor_cert::rsa::RsaCrosscert;
use tor_cert::{CertType, Ed25519Cert, UncheckedCert};
use tor_checkable::{ExternallySigned, SelfSigned, TimeBound};
use tor_llcrypto::pk::rsa;
use tor_llcrypto::util::x509_extract_rsa_subject_kludge as rsa_key_of;

use super::cell::BODY;
use super::crypto::{Sha1, Sha256, ed25519};

/// The authentication type that we do: Ed25519-SHA256-RFC5705.
const AUTH_TYPE: u16 = 3;
/// What an AUTHENTICATE cell's content begins with.
const AUTH_MAGIC: &[u8; 8] = b"AUTH0003";
/// Bytes of an authentication without its signature, and the random ones at its end.
const AUTH_BODY: usize = 288;
const AUTH_RANDOM: usize = 24;

/// Reads a VERSIONS cell: the highest version of `ours` that both speak.
pub fn read_versions(body: &[u8], ours: &[u16]) -> Option<u16> {
    let versions = Versions::decode_from_reader(&mut Reader::from_slice(body)).ok()?;
    versions.best_shared_link_protocol(ours)
}

/// The body of a VERSIONS cell.
pub fn put_versions(versions: &[u16]) -> Vec<u8> {
    versions.iter().flat_map(|version| version.to_be_bytes()).collect()
}

/// What an end wants of a link in addition to link protocol 5. Both ends do it if both want it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// Cells have numbers and records one size, so that they can be opened before their turn
    /// (`docs/spec/unordered-links.md`).
    pub early: bool,
    /// The end that was reached may say where QUIC links come in (`docs/spec/quic-links.md`).
    pub beside: bool,
}

impl Extensions {
    /// Bits of the first byte of capabilities.
    const EARLY: u8 = 1;
    const BESIDE: u8 = 2;

    /// Whether there is any.
    pub fn any(self) -> bool {
        self.early || self.beside
    }

    /// Those that both ends want.
    #[must_use]
    pub fn and(self, other: Extensions) -> Extensions {
        Extensions { early: self.early && other.early, beside: self.beside && other.beside }
    }
}

/// The body of a CAPABILITIES cell: the number of bytes, and the bytes.
pub fn put_capabilities(wanted: Extensions) -> [u8; 2] {
    let early = if wanted.early { Extensions::EARLY } else { 0 };
    let beside = if wanted.beside { Extensions::BESIDE } else { 0 };
    [1, early | beside]
}

/// What a CAPABILITIES cell names; bits and bytes that are not known are ignored. `None` if it
/// names no byte, or more than there are.
pub fn read_capabilities(body: &[u8]) -> Option<Extensions> {
    let (length, rest) = body.split_first()?;
    let bits = *rest.get(..usize::from(*length))?.first()?;
    let has = |bit| bits & bit != 0;
    Some(Extensions { early: has(Extensions::EARLY), beside: has(Extensions::BESIDE) })
}

/// What names a TLS link on the QUIC link beside it.
pub type BesideToken = [u8; 16];

/// The body of a QUIC cell: the UDP port at which QUIC links come in, and the token of the link by
/// which it goes; zeros where circuits cannot move to that link.
pub fn put_quic(port: u16, token: &BesideToken) -> [u8; 18] {
    let mut body = [0; 18];
    body[..2].copy_from_slice(&port.to_be_bytes());
    body[2..].copy_from_slice(token);
    body
}

/// The port and the token that a QUIC cell names; `None` if it names no port.
pub fn read_quic(body: &[u8]) -> Option<(u16, BesideToken)> {
    let (port, rest) = body.split_first_chunk()?;
    let port = Some(u16::from_be_bytes(*port)).filter(|port| *port > 0)?;
    Some((port, *rest.first_chunk()?))
}

/// The body of a BESIDE cell: the number of the QUIC link by which it goes among those beside the
/// TLS link of this token. Zeros: it stands beside none. The answer repeats the number, or says 0.
pub fn put_beside(number: u32, token: &BesideToken) -> [u8; 20] {
    let mut body = [0; 20];
    body[..4].copy_from_slice(&number.to_be_bytes());
    body[4..].copy_from_slice(token);
    body
}

/// The number and the token of a BESIDE cell.
pub fn read_beside(body: &[u8]) -> Option<(u32, BesideToken)> {
    let (number, rest) = body.split_first_chunk()?;
    Some((u32::from_be_bytes(*number), *rest.first_chunk()?))
}

/// Bytes of a circuit ID and a count of cells.
const COUNT: usize = 8;
/// Counts that fit into a fixed-length cell.
pub const COUNTS_IN_CELL: usize = BODY / COUNT;

/// A circuit's ID, and how many of its cells came.
pub type CellCount = (u32, u32);

/// Appends counts.
pub fn put_counts(out: &mut Vec<u8>, counts: impl Iterator<Item = CellCount>) {
    for (circuit, count) in counts {
        out.extend_from_slice(&circuit.to_be_bytes());
        out.extend_from_slice(&count.to_be_bytes());
    }
}

/// The counts in these bytes, up to the first of circuit ID 0.
pub fn read_counts(bytes: &[u8]) -> impl Iterator<Item = CellCount> {
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    let pairs = bytes.chunks_exact(COUNT).map(move |pair| (word(&pair[..4]), word(&pair[4..])));
    pairs.take_while(|(circuit, _)| *circuit != 0)
}

/// What a MOVE cell says: the number of a QUIC link, whether its list ends here, and how many cells
/// of which circuits came by it.
pub fn put_move(number: u32, ends: bool, counts: &[CellCount]) -> Vec<u8> {
    let mut body = number.to_be_bytes().to_vec();
    body.push(u8::from(ends));
    put_counts(&mut body, counts.iter().copied());
    body
}

/// The number, whether the list ends, and the counts of a MOVE cell; `None` if it cannot be read.
pub fn read_move(body: &[u8]) -> Option<(u32, bool, Vec<CellCount>)> {
    let (number, rest) = body.split_first_chunk()?;
    let (&ends, pairs) = rest.split_first()?;
    let counts: Vec<CellCount> = read_counts(pairs).collect();
    let is_whole = ends <= 1 && counts.len() * COUNT == pairs.len();
    is_whole.then_some((u32::from_be_bytes(*number), ends == 1, counts))
}

/// Who a neighbour is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// SHA-1 of its RSA identity key.
    pub rsa: [u8; 20],
    /// Its Ed25519 identity key.
    pub ed25519: [u8; 32],
}

/// An RSA identity key of 1,024 bits with the usual exponent, in DER (PKCS#1): its order is that of
/// the moduli.
pub type RsaKey = [u8; 140];

/// What a CERTS cell says, all of it verified against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certified {
    /// Who the certificates are of.
    pub identity: Identity,
    /// SHA-256 of the RSA identity key.
    pub rsa_sha256: [u8; 32],
    /// The key itself.
    pub rsa: RsaKey,
    /// The key that signs AUTHENTICATE, if there is a certificate for one.
    pub auth_key: Option<[u8; 32]>,
    /// The TLS certificate's SHA-256, if there is a certificate for it.
    pub tls_certificate: Option<[u8; 32]>,
}

/// What is wrong with a CERTS cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCerts {
    /// It cannot be read, or holds a type twice.
    Malformed,
    /// A certificate of this type is missing.
    Missing(u8),
    /// A certificate of this type is malformed, badly signed or out of date.
    Bad(u8),
}

impl fmt::Display for BadCerts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadCerts::Malformed => out.write_str("a malformed CERTS cell"),
            BadCerts::Missing(kind) => write!(out, "no certificate of type {kind}"),
            BadCerts::Bad(kind) => {
                write!(out, "a certificate of type {kind} that is badly signed or out of date")
            }
        }
    }
}

/// The body of a CERTS cell with these certificates by type.
pub fn put_certs(certs: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut body = vec![certs.len() as u8];
    for (kind, cert) in certs {
        body.push(*kind);
        body.extend((cert.len() as u16).to_be_bytes());
        body.extend(cert);
    }
    body
}

/// Reads a CERTS cell and checks every signature in it (cert-spec; C tor demands certificates 2, 4
/// and 7 of any relay). `unix_now` are seconds since 1970.
///
/// # Errors
/// [`BadCerts`]: nothing in it may be believed.
pub fn read_certs(body: &[u8], unix_now: u64) -> Result<Certified, BadCerts> {
    let certs = distinct(body)?;
    let signing = edwards(&certs, CertType::IDENTITY_V_SIGNING, None, unix_now)?;
    let (identity, signing) = signing.ok_or(BadCerts::Missing(4))?;
    let by_signing = |kind| edwards(&certs, kind, Some(&signing), unix_now);
    let tls = by_signing(CertType::SIGNING_V_TLS_CERT)?;
    let auth = by_signing(CertType::SIGNING_V_LINK_AUTH)?;
    let key = rsa_identity(&certs, &identity, unix_now)?;
    let der = key.to_der();
    Ok(Certified {
        identity: Identity { rsa: Sha1::digest(&der).into(), ed25519: identity },
        rsa_sha256: Sha256::digest(&der).into(),
        rsa: der.try_into().map_err(|_| BadCerts::Bad(2))?,
        auth_key: auth.map(|(_, key)| key),
        tls_certificate: tls.map(|(_, digest)| digest),
    })
}

fn distinct(body: &[u8]) -> Result<Certs, BadCerts> {
    let mut rest = body;
    let mut seen = [false; 256];
    let (&count, tail) = rest.split_first().ok_or(BadCerts::Malformed)?;
    rest = tail;
    for _ in 0..count {
        let (&[kind, high, low], tail) = rest.split_first_chunk().ok_or(BadCerts::Malformed)?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        rest = tail.get(length..).ok_or(BadCerts::Malformed)?;
        if std::mem::replace(&mut seen[usize::from(kind)], true) {
            return Err(BadCerts::Malformed);
        }
    }
    Certs::decode_from_reader(&mut Reader::from_slice(body)).map_err(|_| BadCerts::Malformed)
}

/// A certificate's signer and subject.
type Signed = ([u8; 32], [u8; 32]);

/// The signer and the subject of an Ed25519 certificate that is there and sound; `signer` must have
/// signed it, if it is known.
fn edwards(
    certs: &Certs,
    kind: CertType,
    signer: Option<&[u8; 32]>,
    unix_now: u64,
) -> Result<Option<Signed>, BadCerts> {
    let bad = BadCerts::Bad(kind.into());
    let Some(body) = certs.cert_body(kind) else { return Ok(None) };
    let cert = Ed25519Cert::decode(body).map_err(|_| bad)?;
    if cert.peek_cert_type() != kind {
        return Err(bad);
    }
    let signer = signer.map(|key| ed25519::Ed25519Identity::from(*key));
    let cert: UncheckedCert = match &signer {
        Some(signer) => cert.should_be_signed_with(signer),
        None => cert.should_have_signing_key(),
    }
    .map_err(|_| bad)?;
    let signer = (*cert.peek_signing_key()).into();
    let cert = cert.check_signature().map_err(|_| bad)?;
    cert.check_valid_at(&at(unix_now)).map_err(|_| bad)?;
    let cert = cert.dangerously_assume_timely();
    let subject = cert.subject_key().as_bytes().try_into().map_err(|_| bad)?;
    Ok(Some((signer, subject)))
}

/// The RSA identity key, which must have vouched for the Ed25519 one.
fn rsa_identity(
    certs: &Certs,
    identity: &[u8; 32],
    unix_now: u64,
) -> Result<rsa::PublicKey, BadCerts> {
    let x509 = certs.cert_body(CertType::RSA_ID_X509).ok_or(BadCerts::Missing(2))?;
    let key = rsa_key_of(x509).ok_or(BadCerts::Bad(2))?;
    if key.bits() != 1024 || !key.exponent_is(65537) || !is_self_signed(x509, &key, unix_now) {
        return Err(BadCerts::Bad(2));
    }
    let bad = BadCerts::Bad(7);
    let cross = certs.cert_body(CertType::RSA_ID_V_IDENTITY).ok_or(BadCerts::Missing(7))?;
    let cross = RsaCrosscert::decode(cross).map_err(|_| bad)?;
    let cross = cross.check_signature(&key).map_err(|_| bad)?;
    cross.check_valid_at(&at(unix_now)).map_err(|_| bad)?;
    let cross = cross.dangerously_assume_timely();
    if cross.subject_key_matches(&(*identity).into()) { Ok(key) } else { Err(bad) }
}

fn at(unix: u64) -> std::time::SystemTime {
    UNIX_EPOCH + Duration::from_secs(unix)
}

/// The body of an AUTH_CHALLENGE cell that asks for the type that we do.
pub fn put_challenge(challenge: &[u8; 32]) -> Vec<u8> {
    [&challenge[..], &1u16.to_be_bytes(), &AUTH_TYPE.to_be_bytes()].concat()
}

/// Whether an AUTH_CHALLENGE cell lets us authenticate; `None` if it is malformed.
pub fn read_challenge(body: &[u8]) -> Option<bool> {
    let challenge = AuthChallenge::decode_from_reader(&mut Reader::from_slice(body)).ok()?;
    Some(challenge.methods().contains(&AUTH_TYPE))
}

/// What both sides of a link know, and an AUTHENTICATE cell binds itself to.
#[derive(Clone, Debug, Default)]
pub struct Binding {
    /// SHA-256 of the RSA identity keys: initiator's, responder's.
    pub rsa: [[u8; 32]; 2],
    /// Ed25519 identities: initiator's, responder's.
    pub ed25519: [[u8; 32]; 2],
    /// SHA-256 of all that the responder sent, up to and with AUTH_CHALLENGE.
    pub responder_log: [u8; 32],
    /// SHA-256 of all that the initiator sent, up to AUTHENTICATE and without it.
    pub initiator_log: [u8; 32],
    /// SHA-256 of the responder's TLS certificate.
    pub tls_certificate: [u8; 32],
    /// The TLS session's exported secret.
    pub secret: [u8; 32],
}

/// The label under which the TLS session exports its secret; the context is SHA-256 of the
/// initiator's RSA identity key.
pub const EXPORT_LABEL: &[u8] = b"EXPORTER FOR TOR TLS CLIENT BINDING AUTH0003";

impl Binding {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = AUTH_MAGIC.to_vec();
        self.rsa.iter().chain(&self.ed25519).for_each(|part| bytes.extend(part));
        for part in [&self.responder_log, &self.initiator_log, &self.tls_certificate, &self.secret]
        {
            bytes.extend(part);
        }
        bytes
    }

    /// The body of the AUTHENTICATE cell, signed with the certified key.
    pub fn sign(&self, key: &ed25519::Keypair, random: [u8; AUTH_RANDOM]) -> Vec<u8> {
        let mut signed = self.bytes();
        signed.extend(random);
        let signature = key.sign(&signed).to_bytes();
        let length = (signed.len() + signature.len()) as u16;
        [&AUTH_TYPE.to_be_bytes()[..], &length.to_be_bytes(), &signed, &signature].concat()
    }

    /// Whether an AUTHENTICATE cell proves that its sender has the certified key and is at this
    /// link's other end.
    pub fn proves(&self, body: &[u8], key: &[u8; 32]) -> bool {
        let Some((&[t0, t1, l0, l1], rest)) = body.split_first_chunk() else { return false };
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let typed = u16::from_be_bytes([t0, t1]) == AUTH_TYPE;
        let Some(content) = rest.get(..length).filter(|_| typed) else { return false };
        let Some((signed, signature)) = content.split_at_checked(AUTH_BODY) else { return false };
        let Ok(signature) = <[u8; 64]>::try_from(signature) else { return false };
        let Ok(key) = ed25519::PublicKey::from_bytes(key) else { return false };
        signed[..AUTH_BODY - AUTH_RANDOM] == self.bytes()[..]
            && key.verify(signed, &ed25519::Signature::from_bytes(&signature)).is_ok()
    }
}

/// What a NETINFO cell says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The sender's clock in seconds since 1970; `None` from clients.
    pub unix: Option<u64>,
    /// The address at which the sender sees us.
    pub seen: Option<IpAddr>,
    /// The addresses that the sender says are its own.
    pub own: Vec<IpAddr>,
}

/// Reads a NETINFO cell.
pub fn read_netinfo(body: &[u8]) -> Option<Info> {
    let netinfo = Netinfo::decode_from_reader(&mut Reader::from_slice(body)).ok()?;
    let unix = netinfo.timestamp().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Some(Info {
        unix: unix.map(|since| since.as_secs()),
        seen: netinfo.their_addr().copied(),
        own: netinfo.my_addrs().to_vec(),
    })
}

/// The body of a NETINFO cell.
pub fn put_netinfo(info: &Info) -> Vec<u8> {
    let clock = info.unix.map_or(0, |unix| u32::try_from(unix).unwrap_or(u32::MAX));
    let mut body = Vec::new();
    Netinfo::from_relay(clock, info.seen, info.own.clone())
        .encode_onto(&mut body)
        .expect("a few addresses always fit");
    body
}

/// What a neighbour asked for by PADDING_NEGOTIATE (padding-spec, "Padding negotiation").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// No such cell came.
    #[default]
    Nothing,
    /// None is to be sent.
    Stop,
    /// It is to be sent after a silence between these milliseconds.
    Start(u16, u16),
}

/// What a PADDING_NEGOTIATE cell asks for.
pub fn read_padding(body: &[u8]) -> Option<Padding> {
    PaddingNegotiate::decode_from_reader(&mut Reader::from_slice(body)).ok()?;
    let &[_, command, low0, low1, high0, high1] = body.first_chunk()?;
    let (low, high) = (u16::from_be_bytes([low0, low1]), u16::from_be_bytes([high0, high1]));
    match command {
        1 => Some(Padding::Stop),
        2 => Some(Padding::Start(low, high.max(low))),
        _ => None,
    }
}

/// The body of a PADDING_NEGOTIATE cell; without wishes it asks for what the consensus says.
pub fn put_padding(wanted: Padding) -> [u8; 6] {
    let (command, low, high) = match wanted {
        Padding::Stop => (1, 0, 0),
        Padding::Nothing => (2, 0, 0),
        Padding::Start(low, high) => (2, low, high),
    };
    let ([l0, l1], [h0, h1]) = (u16::to_be_bytes(low), u16::to_be_bytes(high));
    [0, command, l0, l1, h0, h1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_as_far_as_they_are_known() {
        for early in [false, true] {
            for beside in [false, true] {
                let wanted = Extensions { early, beside };
                let body = put_capabilities(wanted);
                assert_eq!(read_capabilities(&body), Some(wanted));
                let later = [&[3, body[1] | 0xf0, 0xff, 0xff][..], &[0; 9]].concat();
                assert_eq!(read_capabilities(&later), Some(wanted), "of a later build");
            }
        }
        for cut in [&[][..], &[0], &[0, 3], &[1], &[3, 3, 3]] {
            assert_eq!(read_capabilities(cut), None, "{cut:?}");
        }
    }

    #[test]
    fn the_highest_common_version_is_taken() {
        assert_eq!(read_versions(&put_versions(&[3, 4, 5]), &[4, 5]), Some(5));
        assert_eq!(read_versions(&put_versions(&[3, 4, 9]), &[4, 5]), Some(4));
        assert_eq!(read_versions(&put_versions(&[3]), &[4, 5]), None);
        assert_eq!(read_versions(&[0, 4, 0], &[4, 5]), None);
    }

    #[test]
    fn netinfo_comes_back_as_it_was_put() {
        let info = Info {
            unix: Some(1_700_000_000),
            seen: Some("192.0.2.1".parse().unwrap()),
            own: vec!["2001:db8::1".parse().unwrap(), "192.0.2.9".parse().unwrap()],
        };
        assert_eq!(read_netinfo(&put_netinfo(&info)), Some(info));
        let silent = Info { unix: None, seen: None, own: Vec::new() };
        assert_eq!(read_netinfo(&put_netinfo(&silent)), Some(silent));
    }

    #[test]
    fn padding_is_asked_for_and_forgone() {
        for wanted in [Padding::Stop, Padding::Start(1500, 9500)] {
            assert_eq!(read_padding(&put_padding(wanted)), Some(wanted));
        }
        assert_eq!(read_padding(&put_padding(Padding::Nothing)), Some(Padding::Start(0, 0)));
        assert_eq!(read_padding(&[0, 7, 0, 0, 0, 0]), None);
    }

    #[test]
    fn an_authentication_holds_for_its_own_link_only() {
        let key = ed25519::Keypair::from_bytes(&[9; 32]);
        let public = key.verifying_key().to_bytes();
        let body = Binding::default().sign(&key, [1; 24]);
        assert!(Binding::default().proves(&body, &public));
        let elsewhere = Binding { secret: [9; 32], ..Binding::default() };
        assert!(!elsewhere.proves(&body, &public));
        let other = ed25519::Keypair::from_bytes(&[8; 32]).verifying_key().to_bytes();
        assert!(!Binding::default().proves(&body, &other));
        for at in 0..body.len() {
            let mut bent = body.clone();
            bent[at] ^= 1;
            assert!(!Binding::default().proves(&bent, &public), "byte {at}");
        }
    }

    #[test]
    fn certificates_may_not_come_twice_nor_be_missing() {
        let twice = put_certs(&[(4, vec![0; 10]), (4, vec![0; 10])]);
        assert_eq!(read_certs(&twice, 0), Err(BadCerts::Malformed));
        assert_eq!(read_certs(&put_certs(&[]), 0), Err(BadCerts::Missing(4)));
        assert_eq!(read_certs(&[1, 4, 0, 9], 0), Err(BadCerts::Malformed));
    }
}
