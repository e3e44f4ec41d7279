//! Directory documents as plain values: parsed, with verified signatures and checked times.
//!
//! Documents from other computers are checked here before other modules read them. Onion services'
//! descriptors are checked in [`hsdesc`](super::hsdesc). A consensus that is not verified stays
//! inside [`Unproven`]. Only [`Unproven::prove`] and [`Unproven::prove_old`] return a consensus.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use tor_checkable::{ExternallySigned, SelfSigned, Timebound};
use tor_netdoc::AllowAnnotations;
use tor_netdoc::doc::authcert::AuthCert;
use tor_netdoc::doc::microdesc::MicrodescReader;
use tor_netdoc::doc::netstatus::{
    MdConsensus, MdRouterStatus, RelayWeight, UnvalidatedMdConsensus,
};
use tor_netdoc::doc::routerdesc::RouterDesc;
use tor_netdoc::types::policy::PortPolicy;
use tor_netdoc::types::relay_flags::RelayFlag;

pub use plain::{Server, ServerList, check_server, divided, prove_server_list};

mod plain;

/// Time in seconds for which a consensus is still usable after it has expired, because the
/// authorities may be overloaded or down (C tor's "reasonably live").
pub const REASONABLY_LIVE: u64 = 86_400;

/// A consensus that enough authorities signed.
#[derive(Clone, Debug)]
pub struct Consensus {
    /// The time from which the consensus is valid, in seconds since 1970.
    pub valid_after: u64,
    /// The time from which a newer consensus is available, in seconds since 1970.
    pub fresh_until: u64,
    /// The time at which the consensus expires, in seconds since 1970.
    pub valid_until: u64,
    /// All relays, sorted by RSA identity.
    pub relays: Vec<RelayStatus>,
    /// The network's parameters (param-spec).
    pub params: BTreeMap<String, i32>,
    /// The weights with which relays' bandwidths count in each position of a path, in units of
    /// 1/10,000 (dir-spec 3.8.3): `Wgg`, `Wmd`, ….
    pub weights: BTreeMap<String, i32>,
}

impl Consensus {
    /// Returns true if the consensus is valid, or expired less than a day ago. An expired
    /// consensus may be used if there is no valid one.
    #[must_use]
    pub fn is_reasonably_live(&self, unix_now: u64) -> bool {
        unix_now <= self.valid_until.saturating_add(REASONABLY_LIVE)
    }
}

/// A relay's entry in the consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayStatus {
    /// The relay's nickname. It does not identify the relay, because relays choose nicknames
    /// freely.
    pub nickname: String,
    /// The relay's RSA identity.
    pub rsa_identity: [u8; 20],
    /// The SHA-256 digest of the relay's microdescriptor.
    pub microdesc: [u8; 32],
    /// The relay's addresses, IPv4 first.
    pub addresses: Vec<SocketAddr>,
    /// The relay's flags.
    pub flags: Flags,
    /// The relay's bandwidth weight: the number after `Bandwidth=` in the consensus.
    pub bandwidth: u32,
    /// The optional subprotocols that the relay supports.
    pub subprotocols: Subprotocols,
}

/// The flags from a relay's consensus entry, as far as this software uses them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "dir-spec defines these flags as independent of each other"
)]
pub struct Flags {
    /// True if the relay is an authority.
    pub authority: bool,
    /// True if the relay is a bad exit, which is never used as an exit.
    pub bad_exit: bool,
    /// True if the relay is an exit to some of the usual ports.
    pub exit: bool,
    /// True if the relay is fast enough for general circuits.
    pub fast: bool,
    /// True if the relay may be the first hop.
    pub guard: bool,
    /// True if the relay may be neither the first hop nor the last.
    pub middle_only: bool,
    /// True if the relay stays up long enough for long-lived streams.
    pub stable: bool,
    /// True if the relay answers directory requests over `BEGIN_DIR`.
    pub v2dir: bool,
}

/// The subprotocols of a relay that decide which features may be used with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subprotocols {
    /// The relay supports ntor-v3 handshakes (`Relay=4`).
    pub ntor_v3: bool,
    /// The relay supports the congestion control of proposal 324 (`FlowCtrl=2`).
    pub congestion_control: bool,
    /// The relay supports Counter Galois Onion, and its negotiation (`Relay=5` and `Relay=6`).
    pub cgo: bool,
    /// The relay can link circuits to sets in two published designs that are older than proposal
    /// 329: Conflux of 2013 and mTor (version 1 of this project's protocol, `Anabranch=1`).
    pub ancestors: bool,
    /// The relay can link this project's resilient sets, which continue when a circuit fails
    /// (`Anabranch=2`).
    pub resilient: bool,
    /// The relay can link this project's sets whose circuits join at a middle hop (`Anabranch=3`).
    pub merged: bool,
    /// The relay supports this project's lossy circuits, whose cells travel in datagrams
    /// (`Anabranch=4`).
    pub lossy: bool,
    /// The relay can link sets of circuits of proposal 329, Conflux (`Conflux=1`).
    pub conflux: bool,
}

/// A microdescriptor: the facts about a relay that a client needs to build a circuit through it.
#[derive(Clone, Debug)]
pub struct Microdesc {
    /// The SHA-256 digest that names the microdescriptor in a consensus.
    pub digest: [u8; 32],
    /// The relay's public key for ntor and ntor-v3.
    pub ntor: [u8; 32],
    /// The relay's Ed25519 master identity.
    pub ed_identity: [u8; 32],
    /// The RSA identities in the relay's declared family.
    pub family: Vec<[u8; 20]>,
    /// The families for which the relay has a certificate (proposal 321).
    pub family_ids: Vec<String>,
    ports: Ports,
}

/// The ports that an exit permits over IPv4, and the ports that it permits over IPv6.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ports {
    ipv4: PortPolicy,
    ipv6: PortPolicy,
}

impl Ports {
    /// Returns whether the relay permits any ports.
    pub(crate) fn are_any(&self) -> bool {
        self.ipv4.allows_some_port() || self.ipv6.allows_some_port()
    }
}

impl Microdesc {
    /// Returns true if the relay's policy permits streams to all or nearly all destinations at
    /// `port`, over IPv6 if `v6` is true, else over IPv4.
    #[must_use]
    pub fn exits_to(&self, port: u16, v6: bool) -> bool {
        if v6 { &self.ports.ipv6 } else { &self.ports.ipv4 }.allows_port(port)
    }

    /// Returns the ports that [`Microdesc::exits_to`] permits over IPv4, as in a microdescriptor:
    /// `accept 80,443`, or `reject 1-65535` if there are none.
    #[must_use]
    pub fn ports_v4(&self) -> String {
        self.ports.ipv4.to_string()
    }

    pub(crate) fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Returns whether the relay permits exits to any port over IPv4.
    #[must_use]
    pub fn exits(&self) -> bool {
        self.ports.ipv4.allows_some_port()
    }
}

/// An authority's verified certificate for its signing key.
#[derive(Clone, Debug)]
pub struct AuthorityCert {
    cert: AuthCert,
    text: String,
}

impl AuthorityCert {
    /// Returns the authority's identity and the certified signing key, as digests of RSA keys.
    #[must_use]
    pub fn keys(&self) -> ([u8; 20], [u8; 20]) {
        let ids = self.cert.key_ids();
        (ids.id_fingerprint.to_bytes(), ids.sk_fingerprint.to_bytes())
    }

    /// Returns the start and the end of the certificate's validity, in seconds since 1970.
    #[must_use]
    pub fn holds(&self) -> (u64, u64) {
        (unix(self.cert.published()), unix(self.cert.expires()))
    }

    /// Returns the certificate's text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The reason why a document is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentError {
    /// The document is longer than any valid document. Contains its length in bytes.
    TooLong(usize),
    /// The document's format is invalid, or the document is truncated. Contains the parser's
    /// message.
    Malformed(String),
    /// A signature in the document is wrong.
    BadSignature,
    /// Too few known authorities signed the document. Contains the number of signers, and the
    /// number required.
    TooFewSigners(usize, usize),
    /// The document belongs to a relay or an authority other than the requested one.
    WrongIdentity,
    /// The document is not valid yet.
    TooEarly,
    /// The document has expired.
    Expired,
}

impl DocumentError {
    /// Returns true if the document's text itself is damaged. Other errors depend on the time, on
    /// the known authorities, or on the request.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            DocumentError::TooLong(_)
            | DocumentError::Malformed(_)
            | DocumentError::BadSignature => true,
            DocumentError::TooFewSigners(..)
            | DocumentError::WrongIdentity
            | DocumentError::TooEarly
            | DocumentError::Expired => false,
        }
    }
}

/// Checks that no document of a file was skipped as invalid. `bad` is the number of skipped
/// documents.
///
/// # Errors
/// Returns [`DocumentError::Malformed`] with the number of skipped documents if there are any.
pub(crate) fn none_bad(bad: usize) -> Result<(), DocumentError> {
    match bad {
        0 => Ok(()),
        1 => Err(DocumentError::Malformed(
            "1 entry of the file is invalid and was ignored".to_owned(),
        )),
        _ => Err(DocumentError::Malformed(format!(
            "{bad} entries of the file are invalid and were ignored"
        ))),
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DocumentError::TooLong(length) => {
                write!(out, "the document is too long ({length} bytes)")
            }
            DocumentError::Malformed(what) => write!(out, "the document is malformed: {what}"),
            DocumentError::BadSignature => {
                out.write_str("a signature in the directory document is wrong")
            }
            DocumentError::TooFewSigners(did, must) => {
                write!(
                    out,
                    "only {did} of the configured authorities signed the document, but {must} must"
                )
            }
            DocumentError::WrongIdentity => out.write_str(
                "the directory document belongs to another relay or authority than requested",
            ),
            DocumentError::TooEarly => {
                out.write_str("the document is not valid yet: check this machine's clock")
            }
            DocumentError::Expired => out.write_str("the document has expired"),
        }
    }
}

impl std::error::Error for DocumentError {}

/// Maximum accepted length of a consensus, in bytes.
pub const LONGEST_CONSENSUS: usize = 16 << 20;
/// Maximum accepted length of a microdescriptor, of a certificate, or of a descriptor, in bytes.
pub const LONGEST_ITEM: usize = 64 << 10;

/// A consensus whose signatures are not verified.
pub struct Unproven {
    document: UnvalidatedMdConsensus,
}

impl Unproven {
    /// Parses a consensus of the flavour `microdesc`.
    ///
    /// # Errors
    /// Returns a [`DocumentError`] if it is too long or malformed.
    pub fn parse(text: &str) -> Result<Unproven, DocumentError> {
        fits(text, LONGEST_CONSENSUS)?;
        let (_, _, unchecked) = MdConsensus::parse(text).map_err(malformed)?;
        // The times are checked below, where "too early" and "expired" can be distinguished.
        Ok(Unproven { document: unchecked.dangerously_assume_timely() })
    }

    /// Returns the claimed signers, each as the digests of the authority's identity key and
    /// signing key.
    #[must_use]
    pub fn signers(&self) -> Vec<([u8; 20], [u8; 20])> {
        let ids = self.document.signing_cert_ids();
        ids.map(|id| (id.id_fingerprint.to_bytes(), id.sk_fingerprint.to_bytes())).collect()
    }

    /// Verifies the consensus. It must be reasonably live at `unix_now`, and more than half of
    /// `authorities` must have signed it with keys that `certs` certify.
    ///
    /// # Errors
    /// Returns a [`DocumentError`] if the consensus is not valid yet, expired too long ago,
    /// wrongly signed, or signed by too few authorities.
    pub fn prove(
        self,
        authorities: &[[u8; 20]],
        certs: &[AuthorityCert],
        unix_now: u64,
    ) -> Result<Consensus, DocumentError> {
        let consensus = self.prove_old(authorities, certs, unix_now)?;
        if consensus.is_reasonably_live(unix_now) {
            Ok(consensus)
        } else {
            Err(DocumentError::Expired)
        }
    }

    /// Verifies the consensus as [`Unproven::prove`] does, but accepts an expired consensus of any
    /// age, because the relays in it can still serve a newer one.
    ///
    /// # Errors
    /// Returns a [`DocumentError`] for the same reasons as [`Unproven::prove`], except for expiry.
    pub fn prove_old(
        self,
        authorities: &[[u8; 20]],
        certs: &[AuthorityCert],
        unix_now: u64,
    ) -> Result<Consensus, DocumentError> {
        if unix_now < unix(self.document.peek_lifetime().valid_after()) {
            return Err(DocumentError::TooEarly);
        }
        let certs = current(certs, authorities, unix_now);
        let signers = self.signed_by(&certs);
        let must = authorities.len() / 2 + 1;
        if authorities.is_empty() || signers < must {
            return Err(DocumentError::TooFewSigners(signers, must));
        }
        let document = self.document.set_n_authorities(authorities.len());
        document.is_well_signed(&certs).map_err(|_| DocumentError::BadSignature)?;
        Ok(plain(&document.dangerously_assume_wellsigned()))
    }

    /// Returns the number of authorities that the consensus names as signers and that have
    /// certificates in `certs`.
    fn signed_by(&self, certs: &[AuthCert]) -> usize {
        let claimed = self.signers();
        let has = |cert: &&AuthCert| {
            let ids = cert.key_ids();
            claimed.contains(&(ids.id_fingerprint.to_bytes(), ids.sk_fingerprint.to_bytes()))
        };
        let mut signers: Vec<[u8; 20]> =
            certs.iter().filter(has).map(|cert| cert.id_fingerprint().to_bytes()).collect();
        signers.sort_unstable();
        signers.dedup();
        signers.len()
    }
}

/// Parses concatenated certificates of authorities, and verifies their signatures. Malformed or
/// wrongly signed certificates are skipped, and their number is returned.
///
/// # Errors
/// Returns a [`DocumentError`] if the text is too long or does not begin like a document.
pub fn parse_certs(text: &str) -> Result<(Vec<AuthorityCert>, usize), DocumentError> {
    fits(text, LONGEST_CONSENSUS)?;
    let mut good = Vec::new();
    let mut bad = 0;
    for unchecked in AuthCert::parse_multiple(text).map_err(malformed)? {
        let parsed = unchecked.ok().and_then(|unchecked| {
            let own = unchecked.within(text).unwrap_or_default().to_owned();
            let cert = unchecked.check_signature().ok()?.dangerously_assume_timely();
            Some(AuthorityCert { cert, text: own })
        });
        bad += usize::from(parsed.is_none());
        good.extend(parsed);
    }
    Ok((good, bad))
}

/// Microdescriptors with the text of each, and the number of microdescriptors that were skipped.
pub type Microdescs<'a> = (Vec<(Microdesc, &'a str)>, usize);

/// Parses concatenated microdescriptors, each with its own text. Malformed microdescriptors are
/// skipped, and their number is returned.
///
/// # Errors
/// Returns a [`DocumentError`] if the text is too long or does not begin like a document.
pub fn parse_microdescs(text: &str) -> Result<Microdescs<'_>, DocumentError> {
    fits(text, LONGEST_CONSENSUS)?;
    let mut good = Vec::new();
    let mut bad = 0;
    let reader = MicrodescReader::new(text, &AllowAnnotations::AnnotationsNotAllowed);
    for item in reader.map_err(malformed)? {
        let Ok(item) = item else {
            bad += 1;
            continue;
        };
        let own = item.within(text).unwrap_or_default();
        let parsed = item.into_microdesc();
        if own.is_empty() || own.len() > LONGEST_ITEM {
            bad += 1;
            continue;
        }
        let microdesc = Microdesc {
            digest: *parsed.digest(),
            ntor: *parsed.ntor_key().as_bytes(),
            ed_identity: (*parsed.ed25519_id()).into(),
            family: parsed.family().members().map(|id| id.to_bytes()).collect(),
            family_ids: parsed.family_ids().iter().map(ToString::to_string).collect(),
            ports: Ports {
                ipv4: PortPolicy::clone(parsed.ipv4_policy()),
                ipv6: PortPolicy::clone(parsed.ipv6_policy()),
            },
        };
        good.push((microdesc, own));
    }
    Ok((good, bad))
}

/// The fields of a checked server descriptor that this crate uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The relay's RSA identity.
    pub rsa_identity: [u8; 20],
    /// The relay's Ed25519 master identity.
    pub ed_identity: [u8; 32],
    /// The relay's public key for ntor and ntor-v3.
    pub ntor: [u8; 32],
    /// The relay's addresses.
    pub addresses: Vec<SocketAddr>,
    /// The time at which the descriptor was published, in seconds since 1970.
    pub published: u64,
    /// The families for which the relay has a certificate (proposal 321).
    pub family_ids: Vec<String>,
}

/// Parses a server descriptor, verifies all its signatures, and checks that it is valid at
/// `unix_now`.
///
/// # Errors
/// Returns a [`DocumentError`] if the descriptor is too long, malformed, wrongly signed, or not
/// valid now.
pub fn check_descriptor(text: &str, unix_now: u64) -> Result<Described, DocumentError> {
    let descriptor = descriptor(text, unix_now)?;
    Ok(Described {
        rsa_identity: descriptor.rsa_identity().to_bytes(),
        ed_identity: (*descriptor.ed_identity()).into(),
        ntor: *descriptor.ntor_onion_key().as_bytes(),
        addresses: descriptor.or_ports().collect(),
        published: unix(descriptor.published()),
        family_ids: family_ids(&descriptor),
    })
}

fn descriptor(text: &str, unix_now: u64) -> Result<RouterDesc, DocumentError> {
    fits(text, LONGEST_ITEM)?;
    let unchecked = RouterDesc::parse(text).map_err(malformed)?;
    let signed = unchecked.check_signature().map_err(|_| DocumentError::BadSignature)?;
    let now = super::keys::at(unix_now);
    if signed.check_valid_at(&now).is_err() {
        let early = unix(signed.dangerously_peek().published()) > unix_now;
        return Err(if early { DocumentError::TooEarly } else { DocumentError::Expired });
    }
    Ok(signed.dangerously_assume_timely())
}

fn family_ids(descriptor: &RouterDesc) -> Vec<String> {
    AsRef::<Vec<_>>::as_ref(&descriptor.family_ids()).iter().map(ToString::to_string).collect()
}

/// A bridge. Its status and its microdescriptor are derived from its server descriptor, because
/// consensuses do not list bridges.
#[derive(Clone, Debug)]
pub struct Bridge {
    /// The equivalent of a consensus entry, with the addresses of the descriptor.
    pub status: RelayStatus,
    /// The equivalent of a microdescriptor, without a digest. It permits no exits.
    pub microdesc: Microdesc,
}

/// Parses a bridge's server descriptor, and checks it as [`check_descriptor`] does.
///
/// # Errors
/// Returns a [`DocumentError`] if the descriptor is too long, malformed, wrongly signed, or not
/// valid now.
pub fn check_bridge(text: &str, unix_now: u64) -> Result<Bridge, DocumentError> {
    let descriptor = descriptor(text, unix_now)?;
    let none = PortPolicy::new_reject_all;
    let status = RelayStatus {
        nickname: descriptor.router.nickname.to_string(),
        rsa_identity: descriptor.rsa_identity().to_bytes(),
        microdesc: [0; 32],
        addresses: descriptor.or_ports().collect(),
        flags: Flags::default(),
        bandwidth: 0,
        subprotocols: subprotocols_of(|kind, version| {
            descriptor.protocols().supports_subver(kind, version)
        }),
    };
    let microdesc = Microdesc {
        digest: [0; 32],
        ntor: *descriptor.ntor_onion_key().as_bytes(),
        ed_identity: (*descriptor.ed_identity()).into(),
        family: descriptor.family().members().map(|id| id.to_bytes()).collect(),
        family_ids: family_ids(&descriptor),
        ports: Ports { ipv4: none(), ipv6: none() },
    };
    Ok(Bridge { status, microdesc })
}

fn current(certs: &[AuthorityCert], authorities: &[[u8; 20]], unix_now: u64) -> Vec<AuthCert> {
    let holds = |cert: &&AuthorityCert| {
        let (from, until) = cert.holds();
        authorities.contains(&cert.keys().0) && from <= unix_now && unix_now <= until
    };
    certs.iter().filter(holds).map(|cert| cert.cert.clone()).collect()
}

fn plain(document: &MdConsensus) -> Consensus {
    let lifetime = document.lifetime();
    let values = |params: &tor_netdoc::doc::netstatus::NetParams<i32>| {
        params.iter().map(|(name, &value)| (name.clone(), value)).collect()
    };
    let mut relays: Vec<RelayStatus> = document.relays().iter().map(status).collect();
    // Relays are looked up by identity, with a binary search.
    relays.sort_by_key(|relay| relay.rsa_identity);
    Consensus {
        valid_after: unix(lifetime.valid_after()),
        fresh_until: unix(lifetime.fresh_until()),
        valid_until: unix(lifetime.valid_until()),
        relays,
        params: values(document.params()),
        weights: values(document.bandwidth_weights()),
    }
}

fn status(relay: &MdRouterStatus) -> RelayStatus {
    let has = |flag| relay.flags().contains(flag);
    // An unknown kind of weight counts as 0.
    let bandwidth = match *relay.weight() {
        RelayWeight::Measured(bandwidth) | RelayWeight::Unmeasured(bandwidth) => bandwidth,
        _ => 0,
    };
    RelayStatus {
        nickname: relay.nickname().to_owned(),
        rsa_identity: relay.rsa_identity().to_bytes(),
        microdesc: *relay.md_digest(),
        addresses: relay.addrs().collect(),
        flags: Flags {
            authority: has(RelayFlag::Authority),
            bad_exit: has(RelayFlag::BadExit),
            exit: has(RelayFlag::Exit),
            fast: has(RelayFlag::Fast),
            guard: has(RelayFlag::Guard),
            middle_only: has(RelayFlag::MiddleOnly),
            stable: has(RelayFlag::Stable),
            v2dir: has(RelayFlag::V2Dir),
        },
        bandwidth,
        subprotocols: subprotocols_of(|kind, version| {
            relay.protovers().supports_subver(kind, version)
        }),
    }
}

fn subprotocols_of(supports: impl Fn(&str, u8) -> bool) -> Subprotocols {
    Subprotocols {
        ntor_v3: supports("Relay", 4),
        congestion_control: supports("FlowCtrl", 2),
        cgo: supports("Relay", 5) && supports("Relay", 6),
        ancestors: supports("Anabranch", 1),
        resilient: supports("Anabranch", 2),
        merged: supports("Anabranch", 3),
        lossy: supports("Anabranch", 4),
        conflux: supports("Conflux", 1),
    }
}

fn fits(text: &str, longest: usize) -> Result<(), DocumentError> {
    if text.len() > longest { Err(DocumentError::TooLong(text.len())) } else { Ok(()) }
}

fn malformed(error: impl fmt::Display) -> DocumentError {
    DocumentError::Malformed(error.to_string())
}

fn unix(time: SystemTime) -> u64 {
    // Times before 1970 count as 0.
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use anabranch_multipath::seed::stream;
    use anabranch_testkit::authority::{
        Authority, TestRelay, exit_microdescriptor, unsigned_consensus,
    };

    use super::*;
    use crate::test_keys::relay_keys;
    use crate::wire::keys::RelayKeys;

    const NOW: u64 = 1_800_000_000;
    const TIMES: [u64; 3] = [NOW - 60, NOW + 60, NOW + 120];

    struct World {
        authorities: &'static [Authority],
        certs: Vec<AuthorityCert>,
        unsigned: String,
        relay: &'static RelayKeys,
        microdesc: String,
    }

    /// Five authorities that list a single relay.
    fn world() -> World {
        static AUTHORITIES: OnceLock<Vec<Authority>> = OnceLock::new();
        let authorities = AUTHORITIES.get_or_init(|| five("world"));
        let texts =
            authorities.iter().map(|one| one.certificate(NOW - 1000, NOW + 2 * REASONABLY_LIVE));
        let (certs, bad) = parse_certs(&texts.collect::<String>()).unwrap();
        assert_eq!((certs.len(), bad), (5, 0));
        let relay = relay_keys(1, "listed");
        let (tap, ntor, ed) = (relay.tap_public(), relay.ntor().1, relay.ed_identity());
        let microdesc = exit_microdescriptor(&tap, &ntor, &ed);
        let listed = TestRelay::exit("one", relay.rsa_identity(), microdesc.clone());
        let unsigned = unsigned_consensus(authorities, &[listed], TIMES, "circwindow=900");
        World { authorities, certs, unsigned, relay, microdesc }
    }

    fn five(purpose: &str) -> Vec<Authority> {
        let mut rng = stream(1, 0, purpose);
        (0..5).map(|n| Authority::generate(&format!("auth{n}"), &mut rng)).collect()
    }

    impl World {
        fn ids(&self) -> Vec<[u8; 20]> {
            self.authorities.iter().map(Authority::identity).collect()
        }

        /// Returns the consensus, signed by the authorities with the indices `by`.
        fn signed(&self, by: &[usize]) -> String {
            let signatures = by.iter().map(|&n| self.authorities[n].signature(&self.unsigned));
            self.unsigned.clone() + &signatures.collect::<String>()
        }

        fn prove(&self, text: &str, now: u64) -> Result<Consensus, DocumentError> {
            Unproven::parse(text)?.prove(&self.ids(), &self.certs, now)
        }
    }

    #[test]
    fn what_a_majority_signed_is_proven_and_says_what_was_meant() {
        let world = world();
        for by in [&[0, 1, 2, 3, 4][..], &[0, 2, 4], &[4, 3, 2]] {
            let consensus = world.prove(&world.signed(by), NOW).unwrap();
            assert_eq!(
                [consensus.valid_after, consensus.fresh_until, consensus.valid_until],
                TIMES
            );
            assert_eq!(consensus.params["circwindow"], 900);
            assert_eq!(consensus.weights["Wmm"], 10_000);
            let relay = &consensus.relays[0];
            assert_eq!(relay.rsa_identity, world.relay.rsa_identity());
            assert_eq!(relay.addresses, ["192.0.2.1:9001".parse().unwrap()]);
            assert_eq!(relay.bandwidth, 77);
            let flags = relay.flags;
            assert!(flags.exit && flags.fast && flags.guard && flags.stable && flags.v2dir);
            assert!(!flags.authority && !flags.bad_exit);
            assert!(
                relay.subprotocols.ntor_v3
                    && relay.subprotocols.congestion_control
                    && !relay.subprotocols.conflux
            );
        }
    }

    #[test]
    fn a_consensus_signed_by_too_few_is_refused() {
        let world = world();
        for by in [&[][..], &[0], &[0, 1], &[1, 1, 1]] {
            let answer = world.prove(&world.signed(by), NOW);
            match answer {
                Err(DocumentError::TooFewSigners(_, 3) | DocumentError::Malformed(_)) => {}
                other => panic!("{by:?}: {other:?}"),
            }
        }
        let none =
            Unproven::parse(&world.signed(&[0, 1, 2])).unwrap().prove(&[], &world.certs, NOW);
        assert!(matches!(none, Err(DocumentError::TooFewSigners(0, 1))), "{none:?}");
    }

    #[test]
    fn strangers_signatures_do_not_count() {
        let (world, strangers) = (world(), five("strangers"));
        let signed = world.unsigned.clone()
            + &strangers.iter().map(|one| one.signature(&world.unsigned)).collect::<String>();
        let texts = strangers.iter().map(|one| one.certificate(NOW - 1000, NOW + 1000));
        let (certs, _) = parse_certs(&texts.collect::<String>()).unwrap();
        let answer = Unproven::parse(&signed).unwrap().prove(&world.ids(), &certs, NOW);
        assert!(matches!(answer, Err(DocumentError::TooFewSigners(0, 3))), "{answer:?}");
    }

    #[test]
    fn a_changed_consensus_is_refused() {
        let world = world();
        let signed = world.signed(&[0, 1, 2]);
        for (from, to) in [("Bandwidth=77", "Bandwidth=78"), ("192.0.2.1", "192.0.2.2")] {
            let answer = world.prove(&signed.replacen(from, to, 1), NOW);
            assert!(matches!(answer, Err(DocumentError::BadSignature)), "{answer:?}");
        }
    }

    #[test]
    fn a_consensus_of_another_time_is_refused() {
        let world = world();
        let signed = world.signed(&[0, 1, 2]);
        let late = TIMES[2] + REASONABLY_LIVE;
        assert!(matches!(world.prove(&signed, late + 1), Err(DocumentError::Expired)));
        assert!(matches!(world.prove(&signed, TIMES[0] - 1), Err(DocumentError::TooEarly)));
        assert!(world.prove(&signed, late).is_ok(), "a day late is better than none");
    }

    #[test]
    fn an_expired_certificate_certifies_nothing() {
        let mut world = world();
        let texts = world.authorities.iter().map(|one| one.certificate(NOW - 1000, NOW - 1));
        world.certs = parse_certs(&texts.collect::<String>()).unwrap().0;
        let answer = world.prove(&world.signed(&[0, 1, 2, 3, 4]), NOW);
        assert!(matches!(answer, Err(DocumentError::TooFewSigners(0, 3))), "{answer:?}");
    }

    #[test]
    fn documents_that_are_cut_or_too_long_are_refused() {
        let world = world();
        let signed = world.signed(&[0, 1, 2]);
        for length in (0..signed.len() - 1).step_by(41) {
            assert!(world.prove(&signed[..length], NOW).is_err(), "{length}");
        }
        let long = format!("{signed}{}", "x".repeat(LONGEST_CONSENSUS));
        assert!(matches!(Unproven::parse(&long), Err(DocumentError::TooLong(_))));
    }

    #[test]
    fn a_forged_certificate_is_left_out_and_counted() {
        let world = world();
        let good = world.authorities[0].certificate(NOW - 1000, NOW + 1000);
        let other = world.authorities[1].certificate(NOW - 1000, NOW + 1000);
        let at = |text: &str| text.find("dir-key-certification").unwrap();
        let forged = format!("{}{}", &good[..at(&good)], &other[at(&other)..]);
        let (certs, bad) = parse_certs(&format!("{good}{forged}{other}")).unwrap();
        assert_eq!((certs.len(), bad), (2, 1));
        assert_eq!(certs[0].text(), good);
    }

    #[test]
    fn a_microdescriptor_says_what_a_circuit_needs() {
        let world = world();
        let twice = world.microdesc.repeat(2);
        let (parsed, bad) = parse_microdescs(&twice).unwrap();
        assert_eq!((parsed.len(), bad), (2, 0));
        let (one, text) = &parsed[0];
        assert_eq!(*text, world.microdesc);
        assert_eq!((one.ntor, one.ed_identity), (world.relay.ntor().1, world.relay.ed_identity()));
        assert!(one.exits() && one.exits_to(80, false) && !one.exits_to(25, false));
        assert!(!one.exits_to(80, true));
        let consensus = world.prove(&world.signed(&[0, 1, 2]), NOW).unwrap();
        assert_eq!(consensus.relays[0].microdesc, one.digest);
    }
}
