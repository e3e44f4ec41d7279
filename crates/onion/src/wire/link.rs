//! The cells of a link's handshake, and their verification. The cells are VERSIONS, CERTS,
//! AUTH_CHALLENGE, AUTHENTICATE and NETINFO (tor-spec, "Negotiating and initializing channels").

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

/// The supported authentication type: Ed25519-SHA256-RFC5705.
const AUTH_TYPE: u16 = 3;
/// Prefix of an AUTHENTICATE cell's content.
const AUTH_MAGIC: &[u8; 8] = b"AUTH0003";
/// Length in bytes of the signed part of an AUTHENTICATE cell.
const AUTH_BODY: usize = 288;
/// Number of random bytes at the end of the signed part of an AUTHENTICATE cell.
const AUTH_RANDOM: usize = 24;

/// Parses a VERSIONS cell. Returns the highest link protocol version in `ours` that the other end
/// supports too; `None` if there is none.
pub fn read_versions(body: &[u8], ours: &[u16]) -> Option<u16> {
    let versions = Versions::decode_from_reader(&mut Reader::from_slice(body)).ok()?;
    versions.best_shared_link_protocol(ours)
}

/// Returns the body of a VERSIONS cell.
pub fn put_versions(versions: &[u16]) -> Vec<u8> {
    versions.iter().flat_map(|version| version.to_be_bytes()).collect()
}

/// Extensions to link protocol 5 that an end requests. An extension is used only if both ends
/// request it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// Cells have sequence numbers and all TLS records have the same size, so that records can be
    /// decrypted out of order (`docs/spec/unordered-links.md`).
    pub unordered: bool,
    /// The responder may announce its port for QUIC links (`docs/spec/quic-links.md`).
    pub parallel_quic: bool,
    /// On a QUIC link: datagrams carry the cells of lossy circuits, which may be lost
    /// (`docs/spec/lossy-circuits.md`).
    pub lossy: bool,
}

impl Extensions {
    /// Bit for the extension `unordered` in the first capability byte of a CAPABILITIES cell.
    const UNORDERED: u8 = 1;
    /// Bit for the extension `parallel_quic` in the first capability byte of a CAPABILITIES cell.
    const PARALLEL_QUIC: u8 = 2;
    /// Bit for the extension `lossy` (cells in datagrams) in the first capability byte of a
    /// CAPABILITIES cell.
    const LOSSY: u8 = 4;

    /// Returns whether any extension is set.
    pub fn any(self) -> bool {
        self.unordered || self.parallel_quic || self.lossy
    }

    /// Returns the extensions that are set in both `self` and `other`.
    #[must_use]
    pub fn and(self, other: Extensions) -> Extensions {
        Extensions {
            unordered: self.unordered && other.unordered,
            parallel_quic: self.parallel_quic && other.parallel_quic,
            lossy: self.lossy && other.lossy,
        }
    }
}

/// Returns the body of a CAPABILITIES cell: the number of capability bytes, followed by these
/// bytes.
pub fn put_capabilities(wanted: Extensions) -> [u8; 2] {
    let unordered = if wanted.unordered { Extensions::UNORDERED } else { 0 };
    let parallel_quic = if wanted.parallel_quic { Extensions::PARALLEL_QUIC } else { 0 };
    let lossy = if wanted.lossy { Extensions::LOSSY } else { 0 };
    [1, unordered | parallel_quic | lossy]
}

/// Parses a CAPABILITIES cell. Ignores unknown bits and bytes. Returns `None` if the cell has no
/// capability byte, or has fewer of them than its length field gives.
pub fn read_capabilities(body: &[u8]) -> Option<Extensions> {
    let (length, rest) = body.split_first()?;
    let bits = *rest.get(..usize::from(*length))?.first()?;
    let has = |bit| bits & bit != 0;
    Some(Extensions {
        unordered: has(Extensions::UNORDERED),
        parallel_quic: has(Extensions::PARALLEL_QUIC),
        lossy: has(Extensions::LOSSY),
    })
}

/// A token with which a QUIC link identifies the TLS link parallel to it.
pub type TlsLinkToken = [u8; 16];

/// Returns the body of a QUIC cell: the UDP port for QUIC links, and the token of the TLS link
/// that carries the cell. A token of zeros means that circuits cannot move to this TLS link.
pub fn put_quic(port: u16, token: &TlsLinkToken) -> [u8; 18] {
    let mut body = [0; 18];
    body[..2].copy_from_slice(&port.to_be_bytes());
    body[2..].copy_from_slice(token);
    body
}

/// Parses the port and the token of a QUIC cell, as [`put_quic`] writes them. Returns `None` if
/// the port is 0.
pub fn read_quic(body: &[u8]) -> Option<(u16, TlsLinkToken)> {
    let (port, rest) = body.split_first_chunk()?;
    let port = Some(u16::from_be_bytes(*port)).filter(|port| *port > 0)?;
    Some((port, *rest.first_chunk()?))
}

/// Returns the body of a BESIDE cell: the number of the QUIC link, and the token of the TLS link
/// parallel to it. The number counts the QUIC links parallel to this TLS link. A token of zeros
/// means that there is no TLS link. The answer repeats the number, or contains 0 if circuits of
/// the QUIC link cannot move to the TLS link.
pub fn put_pairing(number: u32, token: &TlsLinkToken) -> [u8; 20] {
    let mut body = [0; 20];
    body[..4].copy_from_slice(&number.to_be_bytes());
    body[4..].copy_from_slice(token);
    body
}

/// Parses the QUIC link's number and the token of a BESIDE cell; `None` if the cell is truncated.
pub fn read_pairing(body: &[u8]) -> Option<(u32, TlsLinkToken)> {
    let (number, rest) = body.split_first_chunk()?;
    Some((u32::from_be_bytes(*number), *rest.first_chunk()?))
}

/// Length in bytes of one entry in a list of cell counts: a circuit ID and a number of cells.
const COUNT: usize = 8;
/// Maximum number of cell counts in a fixed-length cell.
pub const COUNTS_IN_CELL: usize = BODY / COUNT;

/// A circuit ID, and the number of cells of that circuit that arrived.
pub type CellCount = (u32, u32);

/// Appends the cell counts `counts` to `out`, 8 bytes for each count.
pub fn put_counts(out: &mut Vec<u8>, counts: impl Iterator<Item = CellCount>) {
    for (circuit, count) in counts {
        out.extend_from_slice(&circuit.to_be_bytes());
        out.extend_from_slice(&count.to_be_bytes());
    }
}

/// Parses the cell counts in `bytes`. Stops at the first entry with circuit ID 0.
pub fn read_counts(bytes: &[u8]) -> impl Iterator<Item = CellCount> {
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    let pairs = bytes.chunks_exact(COUNT).map(move |pair| (word(&pair[..4]), word(&pair[4..])));
    pairs.take_while(|(circuit, _)| *circuit != 0)
}

/// Returns the body of a MOVE cell: the number of a QUIC link, a flag, and counts. Each count is
/// the number of cells of one circuit that arrived on that link. The flag `ends` is set in the
/// last MOVE cell of the QUIC link.
pub fn put_move(number: u32, ends: bool, counts: &[CellCount]) -> Vec<u8> {
    let mut body = number.to_be_bytes().to_vec();
    body.push(u8::from(ends));
    put_counts(&mut body, counts.iter().copied());
    body
}

/// Parses a MOVE cell. Returns the number of the QUIC link, the counts of arrived cells, and
/// between them a flag: true if this is the last MOVE cell of the QUIC link. Returns `None` if the
/// cell is malformed.
pub fn read_move(body: &[u8]) -> Option<(u32, bool, Vec<CellCount>)> {
    let (number, rest) = body.split_first_chunk()?;
    let (&ends, pairs) = rest.split_first()?;
    let counts: Vec<CellCount> = read_counts(pairs).collect();
    let is_whole = ends <= 1 && counts.len() * COUNT == pairs.len();
    is_whole.then_some((u32::from_be_bytes(*number), ends == 1, counts))
}

/// The identity of a relay at one end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// SHA-1 of the relay's RSA identity key.
    pub rsa: [u8; 20],
    /// The relay's Ed25519 identity key.
    pub ed25519: [u8; 32],
}

/// An RSA identity key of 1,024 bits with exponent 65,537, in DER (PKCS#1). In link protocol 3, a
/// comparison of moduli decides the choice of circuit IDs; comparing these bytes gives the same
/// result.
pub type RsaKey = [u8; 140];

/// The contents of a CERTS cell, after verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedCerts {
    /// The identity that the certificates prove.
    pub identity: Identity,
    /// SHA-256 of the RSA identity key.
    pub rsa_sha256: [u8; 32],
    /// The RSA identity key.
    pub rsa: RsaKey,
    /// The key that signs AUTHENTICATE; `None` if no certificate for it is present.
    pub auth_key: Option<[u8; 32]>,
    /// SHA-256 of the TLS certificate; `None` if no certificate for it is present.
    pub tls_certificate: Option<[u8; 32]>,
}

/// The reason why a CERTS cell is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCerts {
    /// The cell cannot be parsed, or contains two certificates of one type.
    Malformed,
    /// A certificate of this type is missing.
    Missing(u8),
    /// A certificate of this type is malformed, wrongly signed or expired.
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

/// Returns the body of a CERTS cell with the certificates `certs`, each given as its type and its
/// bytes.
pub fn put_certs(certs: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut body = vec![certs.len() as u8];
    for (kind, cert) in certs {
        body.push(*kind);
        body.extend((cert.len() as u16).to_be_bytes());
        body.extend(cert);
    }
    body
}

/// Parses a CERTS cell and verifies every signature in it (cert-spec; C tor requires certificates
/// 2, 4 and 7 from every relay). `unix_now` is in seconds since 1970.
///
/// # Errors
/// Returns [`BadCerts`] if any part is invalid. Nothing in the cell can be trusted then.
pub fn read_certs(body: &[u8], unix_now: u64) -> Result<VerifiedCerts, BadCerts> {
    let certs = distinct(body)?;
    let signing = edwards(&certs, CertType::IDENTITY_V_SIGNING, None, unix_now)?;
    let (identity, signing) = signing.ok_or(BadCerts::Missing(4))?;
    let by_signing = |kind| edwards(&certs, kind, Some(&signing), unix_now);
    let tls = by_signing(CertType::SIGNING_V_TLS_CERT)?;
    let auth = by_signing(CertType::SIGNING_V_LINK_AUTH)?;
    let key = rsa_identity(&certs, &identity, unix_now)?;
    let der = key.to_der();
    Ok(VerifiedCerts {
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

/// An Ed25519 certificate's signer, and the certified key.
type Signed = ([u8; 32], [u8; 32]);

/// Verifies the Ed25519 certificate of type `kind`, if present. Returns the certificate's signer
/// and the certified key; `None` if the certificate is absent. If `signer` is given, this key must
/// have signed the certificate.
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

/// Returns the RSA identity key, after checking that this key signed a certificate for the Ed25519
/// identity `identity`.
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

/// Returns the body of an AUTH_CHALLENGE cell that requests the supported authentication type.
pub fn put_challenge(challenge: &[u8; 32]) -> Vec<u8> {
    [&challenge[..], &1u16.to_be_bytes(), &AUTH_TYPE.to_be_bytes()].concat()
}

/// Parses an AUTH_CHALLENGE cell. Returns true if the cell permits our authentication type, and
/// `None` if the cell is malformed.
pub fn read_challenge(body: &[u8]) -> Option<bool> {
    let challenge = AuthChallenge::decode_from_reader(&mut Reader::from_slice(body)).ok()?;
    Some(challenge.methods().contains(&AUTH_TYPE))
}

/// Values that bind an AUTHENTICATE cell to one link. Both ends of the link know them.
#[derive(Clone, Debug, Default)]
pub struct Binding {
    /// SHA-256 of the RSA identity keys: the initiator's, then the responder's.
    pub rsa: [[u8; 32]; 2],
    /// Ed25519 identities: the initiator's, then the responder's.
    pub ed25519: [[u8; 32]; 2],
    /// SHA-256 of everything that the responder sent, up to and including AUTH_CHALLENGE.
    pub responder_log: [u8; 32],
    /// SHA-256 of everything that the initiator sent before AUTHENTICATE.
    pub initiator_log: [u8; 32],
    /// SHA-256 of the responder's TLS certificate.
    pub tls_certificate: [u8; 32],
    /// The secret exported from the TLS session.
    pub secret: [u8; 32],
}

/// Label for exporting the secret from the TLS session. The context of the export is the SHA-256
/// of the initiator's RSA identity key.
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

    /// Returns the body of the AUTHENTICATE cell, signed with `key`. Our certificate of type 6
    /// certifies this key.
    pub fn sign(&self, key: &ed25519::Keypair, random: [u8; AUTH_RANDOM]) -> Vec<u8> {
        let mut signed = self.bytes();
        signed.extend(random);
        let signature = key.sign(&signed).to_bytes();
        let length = (signed.len() + signature.len()) as u16;
        [&AUTH_TYPE.to_be_bytes()[..], &length.to_be_bytes(), &signed, &signature].concat()
    }

    /// Returns true if an AUTHENTICATE cell proves that its sender has the secret half of `key`
    /// and is the other end of this link.
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

/// The contents of a NETINFO cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The sender's clock in seconds since 1970; `None` from clients.
    pub unix: Option<u64>,
    /// Our address as the sender sees it; `None` if the sender's cell has no such address.
    pub seen: Option<IpAddr>,
    /// The addresses that the sender lists as its own.
    pub own: Vec<IpAddr>,
}

/// Parses a NETINFO cell; `None` if the cell is malformed.
pub fn read_netinfo(body: &[u8]) -> Option<Info> {
    let netinfo = Netinfo::decode_from_reader(&mut Reader::from_slice(body)).ok()?;
    let unix = netinfo.timestamp().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Some(Info {
        unix: unix.map(|since| since.as_secs()),
        seen: netinfo.their_addr().copied(),
        own: netinfo.my_addrs().to_vec(),
    })
}

/// Returns the body of a NETINFO cell.
pub fn put_netinfo(info: &Info) -> Vec<u8> {
    let clock = info.unix.map_or(0, |unix| u32::try_from(unix).unwrap_or(u32::MAX));
    let mut body = Vec::new();
    Netinfo::from_relay(clock, info.seen, info.own.clone())
        .encode_onto(&mut body)
        .expect("a few addresses fit into a cell");
    body
}

/// A request about padding, which one end of a link sends to the other in PADDING_NEGOTIATE
/// (padding-spec, "Padding negotiation").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// No PADDING_NEGOTIATE cell was received. In [`put_padding`], this value requests the limits
    /// in the consensus.
    #[default]
    Nothing,
    /// Do not send padding.
    Stop,
    /// Send padding after a random idle time between these two limits, in milliseconds.
    Start(u16, u16),
}

/// Parses a PADDING_NEGOTIATE cell; `None` if the cell is malformed or its command is unknown.
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

/// Returns the body of a PADDING_NEGOTIATE cell. [`Padding::Nothing`] requests the limits in the
/// consensus.
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
        for bits in 0..8 {
            let [unordered, parallel_quic, lossy] = [0, 1, 2].map(|bit| bits >> bit & 1 == 1);
            let wanted = Extensions { unordered, parallel_quic, lossy };
            let body = put_capabilities(wanted);
            assert_eq!(body, [1, bits]);
            assert_eq!(read_capabilities(&body), Some(wanted));
            let later = [&[3, body[1] | 0xf0, 0xff, 0xff][..], &[0; 9]].concat();
            assert_eq!(read_capabilities(&later), Some(wanted), "of a later build");
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
