//! The keys that wg(8) and wg-quick(8) know, and those of AmneziaWG's obfuscation, which pass
//! through.

/// The two kinds of section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Interface,
    Peer,
}

/// A key of one kind of section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// As the manuals write it; letter case does not matter.
    pub(super) name: &'static str,
    kind: Kind,
    /// Whether it may stand several times.
    pub(super) repeats: bool,
    /// Whether it is AmneziaWG's alone.
    pub(super) obfuscates: bool,
}

const fn interface(name: &'static str, repeats: bool) -> Key {
    Key { name, kind: Kind::Interface, repeats, obfuscates: false }
}

const fn peer(name: &'static str, repeats: bool) -> Key {
    Key { name, kind: Kind::Peer, repeats, obfuscates: false }
}

const fn amnezia(name: &'static str) -> Key {
    Key { name, kind: Kind::Interface, repeats: false, obfuscates: true }
}

const KEYS: &[Key] = &[
    interface("PrivateKey", false),
    interface("ListenPort", false),
    interface("FwMark", false),
    interface("Address", true),
    interface("DNS", true),
    interface("MTU", false),
    interface("Table", false),
    interface("PreUp", true),
    interface("PostUp", true),
    interface("PreDown", true),
    interface("PostDown", true),
    interface("SaveConfig", false),
    // Packets of noise, or of another protocol's looks, before a handshake.
    amnezia("Jc"),
    amnezia("Jmin"),
    amnezia("Jmax"),
    amnezia("I1"),
    amnezia("I2"),
    amnezia("I3"),
    amnezia("I4"),
    amnezia("I5"),
    // Padding before each kind of message, and the types in place of WireGuard's.
    amnezia("S1"),
    amnezia("S2"),
    amnezia("S3"),
    amnezia("S4"),
    amnezia("H1"),
    amnezia("H2"),
    amnezia("H3"),
    amnezia("H4"),
    // Since version 3.
    amnezia("HeaderProtectionKey"),
    amnezia("ContentPaddingAddition"),
    amnezia("RandomTrailers"),
    amnezia("DisableCookies"),
    amnezia("RekeyAfterTime"),
    amnezia("RekeyTimeout"),
    amnezia("RejectAfterTime"),
    amnezia("KeepaliveTimeout"),
    amnezia("MaxHandshakeAttempts"),
    peer("PublicKey", false),
    peer("PresharedKey", false),
    peer("AllowedIPs", true),
    peer("Endpoint", false),
    peer("PersistentKeepalive", false),
];

impl Kind {
    /// The kind whose header is `line`, which has no blanks around it.
    pub(super) fn of_header(line: &str) -> Option<Kind> {
        [Kind::Interface, Kind::Peer]
            .into_iter()
            .find(|kind| line.eq_ignore_ascii_case(kind.header()))
    }

    pub(super) fn header(self) -> &'static str {
        match self {
            Kind::Interface => "[Interface]",
            Kind::Peer => "[Peer]",
        }
    }

    /// The key of this kind of section that `word` names.
    pub(super) fn key(self, word: &str) -> Option<Key> {
        let keys = KEYS.iter().filter(|key| key.kind == self);
        keys.copied().find(|key| key.name.eq_ignore_ascii_case(word))
    }

    /// The names of this kind's keys that WireGuard knows.
    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        KEYS.iter().filter(move |key| key.kind == self && !key.obfuscates).map(|key| key.name)
    }

    pub(super) fn other(self) -> Kind {
        match self {
            Kind::Interface => Kind::Peer,
            Kind::Peer => Kind::Interface,
        }
    }
}
