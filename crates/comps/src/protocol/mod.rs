//! Recognition of a session's protocol from its datagrams.
//!
//! [`FAMILIES`] describes each protocol once: its names, how its datagrams are recognised, whether
//! a session can be split, and the text for users. [`Recogniser`] follows one session. It treats a
//! protocol as certain only after a second datagram or an answer has confirmed it.

pub mod dns;
pub mod dtls;
pub mod enet;
pub mod kcp;
pub mod mosh;
pub mod nebula;
mod numbers;
pub mod openvpn;
pub mod quic;
mod recogniser;
pub mod srt;
pub mod stun;
pub mod wireguard;

pub use numbers::PacketNumberSearch;
pub use recogniser::{Confidence, Finding, Recogniser};

/// A protocol that the splitter knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// A WireGuard tunnel: the server answers to the source address of the last authenticated
    /// packet.
    WireGuard,
    /// QUIC version 1 or 2 (RFC 9000, RFC 9369).
    Quic,
    /// The Mosh State Synchronization Protocol.
    Mosh,
    /// DNS queries: each answer goes to the four-tuple that sent the query.
    Dns,
    /// DTLS: VPNs such as AnyConnect and OpenConnect. A server identifies its client by the
    /// client's address.
    Dtls,
    /// DTLS whose client sends a connection ID in each record (RFC 9146), so that the client's
    /// address may change.
    DtlsCid,
    /// STUN: calls (WebRTC) and TURN. Both ends identify each other by their addresses.
    Stun,
    /// Nebula, an overlay network of encrypted tunnels between hosts.
    Nebula,
    /// OpenVPN over UDP.
    OpenVpn,
    /// KCP: a reliable stream over UDP, as used by kcptun and games.
    Kcp,
    /// Secure Reliable Transport, for live video.
    Srt,
    /// ENet, a protocol of games.
    Enet,
    /// Another protocol, whose datagrams are split by the schedule that the user has chosen.
    Other,
}

/// The sender of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client of the session.
    Client,
    /// The server of the session.
    Server,
}

/// The strength of the evidence for a protocol that one datagram of a client gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The datagram shows no feature of the protocol.
    None,
    /// Fewer than 32 fixed bits match, so the datagram may belong to another protocol.
    Weak,
    /// The datagram's fixed fields and lengths match the protocol.
    Strong,
}

impl Mark {
    /// Returns [`Mark::Strong`] if `is_marked`, else [`Mark::None`].
    fn strong(is_marked: bool) -> Mark {
        if is_marked { Mark::Strong } else { Mark::None }
    }

    /// Returns [`Mark::Weak`] if `is_marked`, else [`Mark::None`].
    fn weak(is_marked: bool) -> Mark {
        if is_marked { Mark::Weak } else { Mark::None }
    }
}

/// The result of comparing a later datagram with an earlier datagram of the client, by the rules
/// of the protocol that the earlier datagram suggests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The datagram confirms the protocol: it continues the session of the client's earlier
    /// datagram.
    Agrees,
    /// The datagram neither confirms nor refutes the protocol of the client's earlier datagram.
    Open,
    /// The datagram refutes the protocol: it cannot follow the client's earlier datagram.
    Contradicts,
}

impl Verdict {
    /// Returns `Agrees` if `agrees`, else `Contradicts`.
    fn whether(agrees: bool) -> Verdict {
        if agrees { Verdict::Agrees } else { Verdict::Contradicts }
    }
}

/// Whether a protocol's packets carry an unencrypted packet number, which counts the packets of
/// one direction over all paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Every packet carries an unencrypted packet number.
    Always,
    /// Packets carry an unencrypted packet number only in some versions or settings of the
    /// protocol. [`PacketNumberSearch`] searches each session for it.
    Looked,
    /// No packet carries an unencrypted packet number.
    Never,
}

/// The description of a protocol: how it is recognised, and whether its sessions can be split.
#[derive(Debug)]
pub struct Family {
    /// The protocol.
    pub protocol: Protocol,
    /// Name of the protocol in machine-readable output and options.
    pub name: &'static str,
    /// Name of the protocol in texts for the user.
    pub title: &'static str,
    /// Whether a user can choose the protocol with `--protocol`.
    pub selectable: bool,
    /// Function that returns how strongly a client's datagram suggests this protocol.
    pub mark: fn(&[u8]) -> Mark,
    /// Function that returns whether a later datagram fits an earlier datagram of the client that
    /// suggests this protocol. The arguments are the first [`HEAD`] bytes of the earlier datagram,
    /// the later datagram, and the later datagram's sender.
    pub follow: fn(&[u8], &[u8], Side) -> Verdict,
    /// The reason why a session of this protocol must stay on one path; `None` if it may be split.
    pub one_path: Option<&'static str>,
    /// Whether the protocol's packets have an unencrypted packet number.
    pub counter: Counter,
    /// The page of `docs/guide` about the protocol.
    pub guide: &'static str,
}

/// Number of bytes that are stored of a datagram that suggests a protocol. [`Family::follow`]
/// compares later datagrams with these bytes.
pub const HEAD: usize = 64;

/// All protocols, in the order in which a datagram is compared with them. The first protocol whose
/// mark (fixed fields, [`Family::mark`]) is in the datagram is chosen. OpenVPN and Mosh have
/// hardly any fixed fields in their data packets, so they come last before [`Protocol::Other`],
/// which has no mark.
pub const FAMILIES: &[Family] = &[
    wireguard::FAMILY,
    quic::FAMILY,
    srt::FAMILY,
    kcp::FAMILY,
    enet::FAMILY,
    nebula::FAMILY,
    dtls::FAMILY,
    dtls::WITH_CID,
    stun::FAMILY,
    dns::FAMILY,
    openvpn::FAMILY,
    mosh::FAMILY,
    OTHER,
];

const OTHER: Family = Family {
    protocol: Protocol::Other,
    name: "other",
    title: "a protocol that the splitter does not know",
    selectable: false,
    mark: |_| Mark::None,
    follow: |_, _, _| Verdict::Open,
    one_path: None,
    counter: Counter::Looked,
    guide: "any-program",
};

impl Protocol {
    /// Returns the protocol's entry in [`FAMILIES`].
    pub fn family(self) -> &'static Family {
        let found = FAMILIES.iter().find(|family| family.protocol == self);
        found.expect("the table has an entry for each protocol")
    }

    /// Returns the protocol's name in machine-readable output and options.
    pub fn name(self) -> &'static str {
        self.family().name
    }

    /// Returns whether every server of this protocol answers at once to the source address of the
    /// newest packet.
    ///
    /// This is true for WireGuard servers (protocol description, section 2.1, "endpoint") and Mosh
    /// servers ("roaming"). QUIC servers validate a new address first, and some ignore it.
    pub fn always_follows(self) -> bool {
        matches!(self, Protocol::WireGuard | Protocol::Mosh)
    }

    /// Returns whether sessions stay on one path, because servers would not recognise a client
    /// that changes to another path.
    pub fn keeps_to_one_path(self) -> bool {
        self.family().one_path.is_some()
    }

    /// Returns whether each packet carries, in clear, a number that counts all packets of its
    /// direction.
    ///
    /// From the gaps in the numbers, the observer of one path learns how many packets all paths
    /// carried, in each direction, and when. Such numbers are WireGuard's 8-byte counter (protocol
    /// description, 5.4.6), Mosh's 8-byte nonce (a direction bit and a sequence number), and
    /// Nebula's 8-byte counter. QUIC masks its packet number (RFC 9001, 5.4).
    pub fn shows_numbers(self) -> bool {
        self.family().counter == Counter::Always
    }

    /// Compares a client's datagram with the marks (fixed fields) of all protocols in
    /// [`FAMILIES`]. Returns the first protocol that matches, and how strong the evidence is;
    /// [`Protocol::Other`] if no protocol matches.
    pub fn recognise(datagram: &[u8]) -> (Protocol, Mark) {
        let marked = FAMILIES.iter().map(|family| (family.protocol, (family.mark)(datagram)));
        let found = marked.into_iter().find(|(_, mark)| *mark != Mark::None);
        found.unwrap_or((Protocol::Other, Mark::None))
    }
}

/// Returns the four bytes from offset `at` as a big-endian number; `None` if there are fewer
/// bytes.
fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

/// Returns the eight bytes from offset `at` as a big-endian number; `None` if there are fewer
/// bytes.
fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_be_bytes(*word))
}

/// Returns whether a packet counter has increased from `before` to `now`, and by at most [`FEW`].
fn goes_on(before: u64, now: u64) -> bool {
    (1..=FEW).contains(&now.wrapping_sub(before))
}

/// Maximum increase of a packet counter between two datagrams that count as consecutive. It is
/// small because few datagrams are lost between a client on this machine and the splitter.
const FEW: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_has_one_entry_and_a_name_of_its_own() {
        for family in FAMILIES {
            let same = |other: &&Family| {
                other.protocol == family.protocol
                    || other.name == family.name
                    || other.title == family.title
            };
            assert_eq!(FAMILIES.iter().filter(same).count(), 1, "{}", family.name);
            assert_eq!(family.protocol.name(), family.name);
        }
        assert_eq!(FAMILIES.last().map(|family| family.protocol), Some(Protocol::Other));
    }

    #[test]
    fn the_documents_name_each_protocol_and_its_guide_exists() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let formats = std::fs::read_to_string(docs.join("formats.md")).unwrap();
        let (_, section) = formats.split_once("### Protocol of a session").unwrap();
        let (_, listed) = section.split_once("* `protocol`: ").unwrap();
        let (listed, _) = listed.split_once("\n* `confidence`").unwrap();
        // Every second part between backticks is a name.
        let mut listed: Vec<&str> = listed.split('`').skip(1).step_by(2).collect();
        let mut known: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
        for family in FAMILIES {
            let guide = docs.join("guide").join(family.guide).with_extension("md");
            assert!(guide.is_file(), "{}: {}", family.name, guide.display());
        }
    }

    #[test]
    fn tunnels_with_a_counter_in_clear_are_known() {
        let shown = FAMILIES.iter().map(|family| family.protocol).filter(|p| p.shows_numbers());
        let known = [Protocol::WireGuard, Protocol::Nebula, Protocol::Mosh];
        assert_eq!(shown.collect::<Vec<_>>(), known);
    }

    #[test]
    fn garbage_is_nothing_known() {
        for datagram in [&b""[..], &[0], &[0xff; 40], &[0x55; 1200], b"GET / HTTP/1.1\r\n\r\n"] {
            let nothing = (Protocol::Other, Mark::None);
            assert_eq!(Protocol::recognise(datagram), nothing, "{datagram:?}");
        }
    }

    #[test]
    fn a_counter_goes_on_by_a_few() {
        assert!(goes_on(0, 1) && goes_on(7, 7 + FEW) && goes_on(u64::MAX, 0));
        assert!(!goes_on(3, 3) && !goes_on(3, 2) && !goes_on(3, 4 + FEW));
    }
}
