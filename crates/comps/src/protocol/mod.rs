//! What a session carries, recognised from what an observer sees.

pub mod dns;
pub mod dtls;
pub mod mosh;
pub mod quic;
pub mod stun;
pub mod wireguard;

/// A protocol that the splitter knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// A WireGuard tunnel: the server answers to the address of the last authenticated packet.
    WireGuard,
    /// QUIC version 1 or 2 (RFC 9000, RFC 9369).
    Quic,
    /// The Mosh State Synchronization Protocol.
    Mosh,
    /// DNS queries: each is answered to the four-tuple that asked.
    Dns,
    /// DTLS: VPNs such as AnyConnect and OpenConnect. A server knows its client by the address.
    Dtls,
    /// STUN: calls (WebRTC) and TURN. Both ends know each other by their addresses.
    Stun,
    /// Something else: split as the user asked.
    Other,
}

impl Protocol {
    /// The name for people and machines.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::WireGuard => "wireguard",
            Protocol::Quic => "quic",
            Protocol::Mosh => "mosh",
            Protocol::Dns => "dns",
            Protocol::Dtls => "dtls",
            Protocol::Stun => "stun",
            Protocol::Other => "other",
        }
    }

    /// Whether each packet bears, in clear, a number that counts all packets of its direction.
    ///
    /// Whoever sees one path of such a session reads from the gaps how many packets all paths
    /// carried, each way, and when: WireGuard's 8-byte counter (protocol description, 5.4.6) and
    /// Mosh's 8-byte nonce (a direction bit and a sequence number). QUIC masks its packet number
    /// (RFC 9001, 5.4).
    pub fn shows_numbers(self) -> bool {
        matches!(self, Protocol::WireGuard | Protocol::Mosh)
    }

    /// Whether every server answers to the address of the newest packet, at once.
    ///
    /// WireGuard (protocol description, section 2.1, "endpoint") and Mosh ("roaming") do. QUIC
    /// servers validate a new address first, and some ignore it.
    pub fn always_follows(self) -> bool {
        matches!(self, Protocol::WireGuard | Protocol::Mosh)
    }

    /// Whether a session keeps to one path, because its server would not know it by another.
    pub fn keeps_to_one_path(self) -> bool {
        matches!(self, Protocol::Dtls | Protocol::Stun)
    }

    /// The protocol of a session that opens with this datagram of its client.
    ///
    /// The order matters: WireGuard, QUIC, DTLS and STUN have fixed bits, a DNS query parses to its
    /// end, and Mosh, whose only mark is a small counter, comes last.
    pub fn recognise(datagram: &[u8]) -> Protocol {
        if wireguard::Message::of(datagram).is_some() {
            Protocol::WireGuard
        } else if quic::is_first(datagram) {
            Protocol::Quic
        } else if dtls::is_record(datagram) {
            Protocol::Dtls
        } else if stun::is_message(datagram) {
            Protocol::Stun
        } else if dns::is_query(datagram) {
            Protocol::Dns
        } else if mosh::is_from_client(datagram) {
            Protocol::Mosh
        } else {
            Protocol::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_with_a_counter_in_clear_are_known() {
        let known = [Protocol::WireGuard, Protocol::Quic, Protocol::Mosh, Protocol::Dns];
        let shown: Vec<_> = known.into_iter().filter(|protocol| protocol.shows_numbers()).collect();
        assert_eq!(shown, [Protocol::WireGuard, Protocol::Mosh]);
    }

    #[test]
    fn garbage_is_nothing_known() {
        for datagram in [&b""[..], &[0], &[0xff; 40], &[0x55; 1200], b"GET / HTTP/1.1\r\n\r\n"] {
            assert_eq!(Protocol::recognise(datagram), Protocol::Other, "{datagram:?}");
        }
    }
}
