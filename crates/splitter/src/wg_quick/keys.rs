//! The names of settings (keys) of wg(8) and wg-quick(8), and the additional ones of AmneziaWG,
//! whose lines are left unchanged.

/// The kind of a section in a wg-quick file: `[Interface]` or `[Peer]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Interface,
    Peer,
}

/// A key (the name of a setting) that wg or wg-quick knows in one kind of section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Name of the key as in the manuals. Letter case does not matter in a file.
    pub(super) name: &'static str,
    kind: Kind,
    /// Whether the key may occur several times in a section.
    pub(super) repeats: bool,
    /// Whether only AmneziaWG (an obfuscating variant of WireGuard) has the key.
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
    // These keys add packets of noise, or packets in the form of another protocol, before a
    // handshake.
    amnezia("Jc"),
    amnezia("Jmin"),
    amnezia("Jmax"),
    amnezia("I1"),
    amnezia("I2"),
    amnezia("I3"),
    amnezia("I4"),
    amnezia("I5"),
    // These keys add padding before each kind of message, and replace WireGuard's message types.
    amnezia("S1"),
    amnezia("S2"),
    amnezia("S3"),
    amnezia("S4"),
    amnezia("H1"),
    amnezia("H2"),
    amnezia("H3"),
    amnezia("H4"),
    // These keys exist since version 3.
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
    /// Returns the kind of section with the header `line`, which has no surrounding blanks; `None`
    /// if `line` is not a header.
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

    /// Returns the key with the name `word` in this kind of section; `None` if there is none.
    pub(super) fn key(self, word: &str) -> Option<Key> {
        let keys = KEYS.iter().filter(|key| key.kind == self);
        keys.copied().find(|key| key.name.eq_ignore_ascii_case(word))
    }

    /// Returns the names of the settings that WireGuard knows in this kind of section.
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
