//! A relay's server descriptor, with all the fields that authorities of version 0.4.9 require
//! (dir-spec, "Server descriptor format").

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4, SocketAddrV6};

use base64ct::{Base64, Base64Unpadded, Encoding};

use super::bandwidth::BandwidthHistory;
use super::civil::utc;
pub use super::extra::Transport;
use super::extra::{self, ExtraDigests};
use super::policy::ExitPolicy;
use crate::relay::PROTOCOLS;
use crate::wire::family::FamilyKey;
use crate::wire::keys::{KeyError, RelayKeys};
use crate::wire::text::{SIGNATURE_PREFIX, line, object};

/// The fields of a relay's descriptor, except the keys, which are in [`RelayKeys`].
#[derive(Clone, Debug)]
pub struct Description {
    /// Nickname of 1 to 19 letters and digits.
    pub nickname: String,
    /// The relay's IPv4 address.
    pub address: Ipv4Addr,
    /// The OR port, at which the relay accepts links.
    pub orport: u16,
    /// The port for unencrypted directory requests, which only authorities have; 0 if there is
    /// none.
    pub dir_port: u16,
    /// The relay's IPv6 address, if it has one.
    pub v6: Option<SocketAddrV6>,
    /// Name and version of the software, and the operating system, such as `Anabranch 0.1.0 on
    /// Linux`.
    pub platform: String,
    /// The subprotocols that this software supports, such as `Link=4-5 Relay=2-4`.
    pub protocols: String,
    /// Long-term rate, burst, and maximum observed in the last days, in bytes per second.
    pub bandwidth: [u64; 3],
    /// The bandwidth history for the extra-info document.
    pub history: BandwidthHistory,
    /// Seconds since the relay started.
    pub uptime: u64,
    /// The operator's contact information, in a single line; `None` if the operator gives none.
    pub contact: Option<String>,
    /// Fingerprints of the other relays of the same operator, upper-case hex.
    pub family: Vec<String>,
    /// Keys of the operator's families. They certify this relay.
    pub family_keys: Vec<FamilyKey>,
    /// The exit policy.
    pub policy: ExitPolicy,
    /// True if the relay answers directory requests over `BEGIN_DIR`.
    pub directory_cache: bool,
    /// The pluggable transports of a bridge, in addition to its OR port; `None` for a public
    /// relay.
    pub bridge: Option<Vec<Transport>>,
}

/// The documents that a relay publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayDocuments {
    /// The server descriptor.
    pub server: String,
    /// The extra-info document, whose digests the descriptor contains.
    pub extra: String,
}

/// The reason why a description cannot be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescriptionError {
    /// The nickname has a character that is not a letter or digit, or is not 1 to 19 characters
    /// long.
    Nickname(String),
    /// The value of the named field has more than one line.
    NotOneLine(&'static str),
    /// A signature could not be made.
    Keys(KeyError),
}

impl std::fmt::Display for DescriptionError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DescriptionError::Nickname(name) => {
                let name = name.escape_debug();
                write!(out, "nickname '{name}': write 1 to 19 letters (A-Z, a-z) and digits")
            }
            DescriptionError::NotOneLine(field) => write!(out, "{field} must be one line"),
            DescriptionError::Keys(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for DescriptionError {}

/// Rate of a relay without a configured limit, in bytes per second (C tor's value).
const RATE: u64 = 1 << 30;

impl Description {
    /// Creates the description of a relay at address `at`. The relay supports all our
    /// subprotocols, answers directory requests, has no bandwidth limits, and permits no exits.
    #[must_use]
    pub fn new(nickname: String, at: SocketAddrV4, platform: String) -> Description {
        Description {
            nickname,
            address: *at.ip(),
            orport: at.port(),
            dir_port: 0,
            v6: None,
            platform,
            protocols: PROTOCOLS.to_owned(),
            bandwidth: [RATE, RATE, 0],
            history: BandwidthHistory::default(),
            uptime: 0,
            contact: None,
            family: Vec::new(),
            family_keys: Vec::new(),
            policy: ExitPolicy::reject_all(),
            directory_cache: true,
            bridge: None,
        }
    }

    /// Returns the descriptor, signed and dated `unix_now`, without a reference to an extra-info
    /// document.
    ///
    /// # Errors
    /// Returns a [`DescriptionError`] if a field is invalid or the keys cannot sign.
    pub fn sign(&self, keys: &RelayKeys, unix_now: u64) -> Result<String, DescriptionError> {
        self.sign_with(keys, unix_now, None)
    }

    /// Returns the signed descriptor, and the signed extra-info document that the descriptor
    /// names.
    ///
    /// # Errors
    /// Returns a [`DescriptionError`] if a field is invalid or the keys cannot sign.
    pub fn publish(
        &self,
        keys: &RelayKeys,
        unix_now: u64,
    ) -> Result<RelayDocuments, DescriptionError> {
        self.check()?;
        let [rate, ..] = self.bandwidth;
        let contents = (&self.history, self.bridge.as_deref().unwrap_or_default());
        let extra = extra::sign(&self.nickname, contents, rate, keys, unix_now);
        let extra = extra.map_err(DescriptionError::Keys)?;
        let server = self.sign_with(keys, unix_now, Some(ExtraDigests::of(&extra)))?;
        Ok(RelayDocuments { server, extra })
    }

    fn sign_with(
        &self,
        keys: &RelayKeys,
        unix_now: u64,
        extra: Option<ExtraDigests>,
    ) -> Result<String, DescriptionError> {
        self.check()?;
        let mut text = String::new();
        self.write_head(&mut text, keys, unix_now, extra);
        self.write_keys(&mut text, keys, unix_now).map_err(DescriptionError::Keys)?;
        self.write_rest(&mut text);
        self.write_families(&mut text, keys, unix_now).map_err(DescriptionError::Keys)?;
        text.push_str("router-sig-ed25519 ");
        let signature = keys.sign_digest(SIGNATURE_PREFIX, text.as_bytes());
        line(&mut text, &Base64Unpadded::encode_string(&signature));
        text.push_str("router-signature\n");
        let signature = keys.sign_sha1(text.as_bytes()).map_err(DescriptionError::Keys)?;
        object(&mut text, "SIGNATURE", &signature);
        Ok(text)
    }

    /// Returns true if the description differs from `other` so that the relay must upload it
    /// (dir-spec, "Uploading server descriptors"). Different uptimes do not count, and neither do
    /// small differences of the observed bandwidth.
    #[must_use]
    pub fn differs_from(&self, other: &Description) -> bool {
        let plain = |one: &Description| {
            let mut text = String::new();
            Description { uptime: 0, bandwidth: [0; 3], ..one.clone() }.write_rest(&mut text);
            (text, one.nickname.clone(), one.address, one.orport, one.protocols.clone())
        };
        // Every change of the configured bandwidth counts. A change of the observed bandwidth
        // counts if it more than doubles or halves.
        let far = |a: u64, b: u64| a > b.saturating_mul(2) || b > a.saturating_mul(2);
        let ([rate, burst, observed], before) = (self.bandwidth, other.bandwidth);
        let moved = plain(self) != plain(other)
            || self.bridge != other.bridge
            || self.family_keys != other.family_keys;
        moved || [rate, burst] != before[..2] || far(observed, before[2])
    }

    /// Returns true if the descriptor announces exits to IPv6. This is the case if a rule accepts
    /// IPv6 explicitly, or if the relay has an IPv6 address and the policy accepts IPv6. A relay
    /// without an IPv6 address must not announce such exits only because of a rule for all
    /// addresses: it would refuse streams to hosts that also have IPv4 addresses.
    #[must_use]
    pub fn exits_to_v6(&self) -> bool {
        let (some, none) = (self.v6.is_some(), "reject 1-65535");
        self.policy.names_v6() || (some && self.policy.summary_v6() != none)
    }

    fn check(&self) -> Result<(), DescriptionError> {
        let letters = self.nickname.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !letters || !(1..=19).contains(&self.nickname.len()) {
            return Err(DescriptionError::Nickname(self.nickname.clone()));
        }
        let contact = self.contact.as_deref().unwrap_or("");
        let fields = [
            ("platform", &self.platform[..]),
            ("protocols", &self.protocols),
            ("contact", contact),
        ];
        let args = self.bridge.iter().flatten().map(|one| ("transport", &*one.args));
        let mut fields = fields.into_iter().chain(args);
        match fields.find(|(_, text)| text.contains(char::is_control)) {
            Some((name, _)) => Err(DescriptionError::NotOneLine(name)),
            None => Ok(()),
        }
    }

    fn write_head(
        &self,
        text: &mut String,
        keys: &RelayKeys,
        now: u64,
        extra: Option<ExtraDigests>,
    ) {
        let (name, address, or, dir) = (&self.nickname, self.address, self.orport, self.dir_port);
        line(text, &format!("router {name} {address} {or} 0 {dir}"));
        line(text, "identity-ed25519");
        object(text, "ED25519 CERT", keys.signing_cert());
        let master = Base64Unpadded::encode_string(&keys.ed_identity());
        line(text, &format!("master-key-ed25519 {master}"));
        line(text, &format!("platform {}", self.platform));
        line(text, &format!("proto {}", self.protocols));
        line(text, &format!("published {}", utc(now)));
        line(text, &format!("fingerprint {}", in_fours(&keys.rsa_identity())));
        line(text, &format!("uptime {}", self.uptime));
        let [rate, burst, observed] = self.bandwidth;
        line(text, &format!("bandwidth {rate} {burst} {observed}"));
        if let Some(extra) = extra {
            line(text, &extra.line());
            if self.directory_cache {
                line(text, "caches-extra-info");
            }
        }
    }

    fn write_keys(&self, text: &mut String, keys: &RelayKeys, now: u64) -> Result<(), KeyError> {
        line(text, "onion-key");
        object(text, "RSA PUBLIC KEY", &keys.tap_public());
        line(text, "signing-key");
        object(text, "RSA PUBLIC KEY", &keys.rsa_public());
        line(text, "onion-key-crosscert");
        object(text, "CROSSCERT", &keys.tap_cross_cert()?);
        let (bit, cert) = keys.ntor_cross_cert(now)?;
        line(text, &format!("ntor-onion-key-crosscert {bit}"));
        object(text, "ED25519 CERT", &cert);
        // This key is padded, unlike the others, as in the specification and in C tor.
        line(text, &format!("ntor-onion-key {}", Base64::encode_string(&keys.ntor().1)));
        Ok(())
    }

    fn write_families(
        &self,
        text: &mut String,
        keys: &RelayKeys,
        now: u64,
    ) -> Result<(), KeyError> {
        for family in &self.family_keys {
            line(text, "family-cert");
            object(text, "FAMILY CERT", &family.certify(keys.ed_identity(), now)?);
        }
        Ok(())
    }

    fn write_rest(&self, text: &mut String) {
        if let Some(v6) = self.v6 {
            line(text, &format!("or-address [{}]:{}", v6.ip(), v6.port()));
        }
        if !self.family.is_empty() {
            let members: Vec<String> = self.family.iter().map(|id| format!("${id}")).collect();
            line(text, &format!("family {}", members.join(" ")));
        }
        if let Some(contact) = &self.contact {
            line(text, &format!("contact {contact}"));
        }
        self.policy.rules().for_each(|rule| line(text, &rule));
        if self.exits_to_v6() {
            line(text, &format!("ipv6-policy {}", self.policy.summary_v6()));
        }
        if self.directory_cache {
            line(text, "hidden-service-dir");
            line(text, "tunnelled-dir-server");
        }
        if self.bridge.is_some() {
            // The operator distributes the bridge line.
            line(text, "bridge-distribution-request none");
        }
    }
}

/// Returns the upper-case hex of `bytes` in groups of four digits.
fn in_fours(bytes: &[u8]) -> String {
    bytes.chunks(2).enumerate().fold(String::new(), |mut text, (place, pair)| {
        let space = if place == 0 { "" } else { " " };
        let _ = write!(text, "{space}{:02X}{:02X}", pair[0], pair[1]);
        text
    })
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::test_keys::relay_keys;
    use crate::wire::family::file_of;
    use crate::wire::netdoc::{DocumentError, check_descriptor};
    use crate::wire::text::hex;

    const NOW: u64 = 1_800_000_000;

    fn keys(seed: u64) -> &'static RelayKeys {
        relay_keys(seed, "keys")
    }

    fn description() -> Description {
        Description {
            nickname: "anabranch1".to_owned(),
            address: Ipv4Addr::new(192, 0, 2, 1),
            orport: 9001,
            dir_port: 0,
            v6: None,
            platform: "Anabranch 0.1.0 on Linux".to_owned(),
            protocols: "Cons=2 Desc=2 DirCache=2 FlowCtrl=1 Link=4-5 Relay=2-4".to_owned(),
            bandwidth: [1 << 20, 1 << 21, 1 << 19],
            history: BandwidthHistory::default(),
            uptime: 10,
            contact: Some("somebody@example.net".to_owned()),
            family: vec!["0123456789ABCDEF0123456789ABCDEF01234567".to_owned()],
            family_keys: Vec::new(),
            policy: ExitPolicy::parse(&["reject private:*", "accept *:80"]).unwrap(),
            directory_cache: true,
            bridge: None,
        }
    }

    #[test]
    fn an_address_of_ipv6_is_told_and_is_news() {
        let v6 = Some("[2001:db8::1]:9002".parse().unwrap());
        let both = Description { v6, ..description() };
        let text = both.sign(keys(1), NOW).unwrap();
        assert!(text.lines().any(|line| line == "or-address [2001:db8::1]:9002"), "{text}");
        assert!(both.differs_from(&description()) && !both.differs_from(&both));
    }

    #[test]
    fn an_exit_tells_which_ports_of_ipv6_it_lets_out_to_if_it_has_an_address_there() {
        let policy = |rules: &[&str]| ExitPolicy::parse(rules).unwrap();
        let v6 = Some("[2001:db8::1]:9002".parse().unwrap());
        let policy_line = |v6, rules: &[&str]| {
            let text = Description { v6, policy: policy(rules), ..description() };
            let text = text.sign(keys(1), NOW).unwrap();
            check_descriptor(&text, NOW).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("ipv6-policy "));
            line.map(str::to_owned)
        };
        assert_eq!(policy_line(v6, &["reject *:25", "accept *:*"]).as_deref(), Some("reject 25"));
        assert_eq!(policy_line(None, &["accept *:*"]), None);
        assert_eq!(
            policy_line(None, &["accept *6:443", "accept *:*"]).as_deref(),
            Some("accept 1-65535")
        );
        assert_eq!(policy_line(v6, &["reject *:*"]), None);
        assert_eq!(policy_line(v6, &["accept *4:*"]), None);
    }

    #[test]
    fn a_family_certifies_each_of_its_relays_and_a_new_one_is_news() {
        let family = |seed| FamilyKey::from_file(&file_of(seed)).unwrap();
        let both = Description { family_keys: vec![family(1), family(2)], ..description() };
        let text = both.sign(keys(1), NOW).unwrap();
        let described = check_descriptor(&text, NOW + 5).unwrap();
        let ids = [1, 2].map(|seed| format!("ed25519:{}", family(seed).id()));
        assert_eq!(described.family_ids, ids);
        assert!(both.differs_from(&description()) && !both.differs_from(&both));
        // A family certificate is valid for one relay only.
        let lone = description().sign(keys(2), NOW).unwrap();
        assert!(check_descriptor(&lone, NOW).unwrap().family_ids.is_empty());
    }

    #[test]
    fn a_strangers_parser_finds_every_signature_right() {
        for seed in 0..4 {
            let keys = keys(seed);
            let text = description().sign(keys, NOW).unwrap();
            let described = check_descriptor(&text, NOW + 5).unwrap();
            assert_eq!(described.rsa_identity, keys.rsa_identity());
            assert_eq!(described.ed_identity, keys.ed_identity());
            assert_eq!(described.ntor, keys.ntor().1);
            assert_eq!(described.addresses, ["192.0.2.1:9001".parse().unwrap()]);
            assert_eq!(described.published, NOW);
        }
    }

    #[test]
    fn an_extra_info_document_is_named_by_the_descriptor_and_tells_of_days_that_are_over() {
        let (keys, day) = (keys(1), crate::directory::bandwidth::PERIOD_S);
        let mut history = BandwidthHistory::default();
        history.note(anabranch_multipath::Time::ZERO, NOW, [0; 2]);
        history.note(anabranch_multipath::Time::from_millis(1), NOW + 1, [4096, 8192]);
        history.note(anabranch_multipath::Time::from_millis(2), NOW + day, [4096, 8192]);
        let RelayDocuments { server, extra } =
            Description { history, ..description() }.publish(keys, NOW + day).unwrap();
        check_descriptor(&server, NOW + day).unwrap();
        let named = server.lines().find_map(|line| line.strip_prefix("extra-info-digest "));
        assert!(ExtraDigests::named(named.unwrap()).unwrap().fit(&extra));
        assert!(server.contains("\ncaches-extra-info\n"));
        assert!(!description().sign(keys, NOW).unwrap().contains("extra-info"));
        let id = hex(&keys.rsa_identity());
        assert!(extra.starts_with(&format!("extra-info anabranch1 {id}\nidentity-ed25519\n-----")));
        let expected = "\npublished 2027-01-16 08:00:00\n\
            write-history 2027-01-16 08:00:00 (86400 s) 8192\n\
            read-history 2027-01-16 08:00:00 (86400 s) 4096\nrouter-sig-ed25519 ";
        assert!(extra.contains(expected), "{extra}");
        assert!(extra.ends_with("-----END SIGNATURE-----\n"));
    }

    #[test]
    fn a_bridge_is_for_no_distributor_and_tells_its_transports_where_they_are_looked_for() {
        let address = "192.0.2.1:443".parse().unwrap();
        let transport = Transport {
            name: "anabranch".to_owned(),
            address,
            args: "key=a\\=b,profile=x".to_owned(),
        };
        let bridge = Description { bridge: Some(vec![transport.clone()]), ..description() };
        let RelayDocuments { server, extra } = bridge.publish(keys(1), NOW).unwrap();
        check_descriptor(&server, NOW).unwrap();
        assert!(server.contains("\nbridge-distribution-request none\n"), "{server}");
        let expected = "\ntransport anabranch 192.0.2.1:443 key=a\\=b,profile=x\nrouter-sig";
        assert!(extra.contains(expected), "{extra}");
        let bare = Description { bridge: Some(Vec::new()), ..description() };
        assert!(bridge.differs_from(&bare) && bare.differs_from(&description()));
        let usual = description().publish(keys(1), NOW).unwrap();
        assert!(!usual.server.contains("bridge-") && !usual.extra.contains("transport "));
        let injected = Transport { args: "k=v\nread-history x".to_owned(), ..transport };
        let injected = Description { bridge: Some(vec![injected]), ..description() };
        assert!(injected.publish(keys(1), NOW).unwrap_err().to_string().contains("transport"));
    }

    #[test]
    fn a_changed_word_or_a_wrong_signature_is_refused() {
        let text = description().sign(keys(1), NOW).unwrap();
        for (from, to) in [
            ("accept *:80", "accept *:81"),
            ("router anabranch1", "router anabranch2"),
            ("uptime 10", "uptime 11"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_eq!(check_descriptor(&changed, NOW), Err(DocumentError::BadSignature), "{to}");
        }
        let other = description().sign(keys(2), NOW).unwrap();
        let cut = |text: &str| text.find("router-sig-ed25519").unwrap();
        let mixed = format!("{}{}", &text[..cut(&text)], &other[cut(&other)..]);
        assert_eq!(check_descriptor(&mixed, NOW), Err(DocumentError::BadSignature));
    }

    #[test]
    fn a_descriptor_that_is_cut_too_long_or_of_another_time_is_refused() {
        let text = description().sign(keys(1), NOW).unwrap();
        for length in (0..text.len() - 1).step_by(37) {
            let answer = check_descriptor(&text[..length], NOW);
            assert!(matches!(answer, Err(DocumentError::Malformed(_))), "{length}: {answer:?}");
        }
        let long = format!("{}\n{text}", "@annotation".repeat(10_000));
        assert!(matches!(check_descriptor(&long, NOW), Err(DocumentError::TooLong(_))));
        assert_eq!(check_descriptor(&text, NOW - 3 * 86_400), Err(DocumentError::TooEarly));
        assert_eq!(check_descriptor(&text, NOW + 400 * 86_400), Err(DocumentError::Expired));
    }

    #[test]
    fn what_does_not_fit_its_line_is_refused() {
        let with = |change: fn(&mut Description)| {
            let mut one = description();
            change(&mut one);
            one.sign(keys(1), NOW).unwrap_err().to_string()
        };
        assert!(with(|one| one.nickname = "two words".to_owned()).contains("two words"));
        assert!(with(|one| one.nickname = String::new()).contains("1 to 19"));
        let injected = |one: &mut Description| one.contact = Some("me\nreject *:*".to_owned());
        assert!(with(injected).contains("contact"));
    }

    #[test]
    fn only_what_matters_is_news() {
        let one = description();
        let later =
            Description { uptime: 9_999, bandwidth: [1 << 20, 1 << 21, 1 << 20], ..one.clone() };
        assert!(!one.differs_from(&later));
        let slower = Description { bandwidth: [900_000, 1 << 21, 1 << 19], ..one.clone() };
        assert!(one.differs_from(&slower), "the operator allows less");
        assert!(one.differs_from(&Description { orport: 9002, ..one.clone() }));
        assert!(one.differs_from(&Description { bandwidth: [1 << 22; 3], ..one.clone() }));
        assert!(one.differs_from(&Description { policy: ExitPolicy::reject_all(), ..one.clone() }));
        let unseen = Description { bandwidth: [1 << 20, 1 << 21, 0], ..one.clone() };
        assert!(one.differs_from(&unseen), "the first that was observed");
    }
}
