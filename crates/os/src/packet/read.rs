//! Parsing of IP packets.

use std::net::{IpAddr, SocketAddr};

use etherparse::{
    IpNumber, IpSlice, Ipv4Slice, Ipv6ExtensionSlice, Ipv6Slice, NetSlice, SlicedPacket,
    TransportSlice,
};

/// The content of an IP packet, as far as the splitter (the program that spreads sessions over
/// several paths) needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A complete UDP datagram.
    Datagram(Datagram<'a>),
    /// A fragment of a UDP datagram.
    Fragment(Fragment<'a>),
    /// Any other packet, including malformed ones.
    Other,
}

/// A UDP datagram with its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Address of the datagram's sender.
    pub from: SocketAddr,
    /// Address of the datagram's recipient.
    pub to: SocketAddr,
    /// The two ECN bits of the IP header (RFC 3168).
    pub ecn: u8,
    /// The UDP payload.
    pub payload: &'a [u8],
}

/// Identification of the datagram that a fragment belongs to (RFC 791, RFC 8200 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FragmentId {
    /// Source address of the packet.
    pub from: IpAddr,
    /// Destination address of the packet.
    pub to: IpAddr,
    /// Identification number that the sender chose.
    pub number: u32,
}

/// A fragment of a UDP datagram. The bytes of the datagram include the UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Identification of the datagram that the fragment belongs to.
    pub id: FragmentId,
    /// Position of the fragment in the datagram, in units of 8 bytes.
    pub offset: u16,
    /// True if further fragments follow this one.
    pub more: bool,
    /// The two ECN bits of the packet's IP header.
    pub ecn: u8,
    /// Bytes of the fragment.
    pub bytes: &'a [u8],
}

/// Parses `packet`, which begins with its IP header. Padding after the packet is ignored.
pub fn read(packet: &[u8]) -> Content<'_> {
    let Ok(sliced) = SlicedPacket::from_ip(packet) else { return Content::Other };
    let Some(net) = &sliced.net else { return Content::Other };
    let Some((from, to, ecn)) = ends_and_ecn(net) else { return Content::Other };
    match (&sliced.transport, fragment(net, (from, to), ecn)) {
        (Some(TransportSlice::Udp(udp)), None) => Content::Datagram(Datagram {
            from: SocketAddr::new(from, udp.source_port()),
            to: SocketAddr::new(to, udp.destination_port()),
            ecn,
            payload: udp.payload(),
        }),
        (_, Some(fragment)) => Content::Fragment(fragment),
        _ => Content::Other,
    }
}

/// Returns whether the destination of `packet` is link-local, multicast or broadcast. No router
/// forwards packets to these destinations by default.
pub fn is_for_link(packet: &[u8]) -> bool {
    match IpSlice::from_slice(packet).map(|ip| ip.destination_addr()) {
        Ok(IpAddr::V4(to)) => to.is_multicast() || to.is_broadcast() || to.is_link_local(),
        Ok(IpAddr::V6(to)) => to.is_multicast() || to.is_unicast_link_local(),
        Err(_) => false,
    }
}

/// Returns whether `packet` has a link-local, multicast or broadcast destination, has a link-local
/// source, or is an ICMP error (RFC 792, RFC 4443 section 2.1). The kernel and programs send these
/// packets on every interface, even on an interface that no route of the user uses.
pub fn is_housekeeping(packet: &[u8]) -> bool {
    is_for_link(packet) || is_from_link(packet) || is_icmp_error(packet)
}

/// Returns whether the source address of `packet` is link-local. Routers do not forward such
/// packets.
fn is_from_link(packet: &[u8]) -> bool {
    match IpSlice::from_slice(packet).map(|ip| ip.source_addr()) {
        Ok(IpAddr::V4(from)) => from.is_link_local(),
        Ok(IpAddr::V6(from)) => from.is_unicast_link_local(),
        Err(_) => false,
    }
}

fn is_icmp_error(packet: &[u8]) -> bool {
    match SlicedPacket::from_ip(packet).ok().and_then(|sliced| sliced.transport) {
        // The types are Destination Unreachable, Source Quench, Redirect, Time Exceeded and
        // Parameter Problem.
        Some(TransportSlice::Icmpv4(icmp)) => matches!(icmp.type_u8(), 3 | 4 | 5 | 11 | 12),
        Some(TransportSlice::Icmpv6(icmp)) => icmp.type_u8() < 128,
        _ => false,
    }
}

/// Returns the protocol of `packet`, with its port if it has one, as in "TCP to port 443".
pub fn describe(packet: &[u8]) -> String {
    match SlicedPacket::from_ip(packet).ok().and_then(|sliced| sliced.transport) {
        Some(TransportSlice::Udp(udp)) => format!("UDP to port {}", udp.destination_port()),
        Some(TransportSlice::Tcp(tcp)) => format!("TCP to port {}", tcp.destination_port()),
        Some(TransportSlice::Icmpv4(_) | TransportSlice::Icmpv6(_)) => "ICMP (ping)".to_owned(),
        _ => match IpSlice::from_slice(packet).map(|ip| ip.payload_ip_number().0) {
            Ok(number) => format!("IP protocol {number}"),
            Err(_) => "data without a valid IP header".to_owned(),
        },
    }
}

/// Returns the source and the destination of `packet`; `None` if it is not an IP packet.
pub fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let ip = IpSlice::from_slice(packet).ok()?;
    Some((ip.source_addr(), ip.destination_addr()))
}

/// Returns the source, the destination and the ECN bits of a packet; `None` if it is not an IP
/// packet. Also returns `None` for an IPv6 packet with an IPv4-mapped address, because only forged
/// packets have these addresses.
fn ends_and_ecn(net: &NetSlice<'_>) -> Option<(IpAddr, IpAddr, u8)> {
    match net {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            let ecn = header.ecn().value();
            Some((header.source_addr().into(), header.destination_addr().into(), ecn))
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            let ecn = header.traffic_class() & 0b11;
            let (from, to) = (header.source_addr(), header.destination_addr());
            // IPv4 addresses in IPv6 form are used only inside programs. On a link they are forged
            // (RFC 4942, section 2.2).
            let mapped = from.to_ipv4_mapped().or(to.to_ipv4_mapped()).is_some();
            (!mapped).then(|| (from.into(), to.into(), ecn))
        }
        _ => None,
    }
}

fn fragment<'a>(net: &NetSlice<'a>, ends: (IpAddr, IpAddr), ecn: u8) -> Option<Fragment<'a>> {
    match net {
        NetSlice::Ipv4(ip) => fragment4(ip, ends, ecn),
        NetSlice::Ipv6(ip) => fragment6(ip, ends, ecn),
        _ => None,
    }
}

fn fragment4<'a>(
    ip: &Ipv4Slice<'a>,
    (from, to): (IpAddr, IpAddr),
    ecn: u8,
) -> Option<Fragment<'a>> {
    let (header, payload) = (ip.header(), ip.payload());
    if !header.is_fragmenting_payload() || payload.ip_number != IpNumber::UDP {
        return None;
    }
    let id = FragmentId { from, to, number: header.identification().into() };
    let (offset, more) = (header.fragments_offset().value(), header.more_fragments());
    Some(Fragment { id, offset, more, ecn, bytes: payload.payload })
}

fn fragment6<'a>(
    ip: &Ipv6Slice<'a>,
    (from, to): (IpAddr, IpAddr),
    ecn: u8,
) -> Option<Fragment<'a>> {
    let mut extensions = ip.extensions().clone().into_iter();
    let header = extensions.find_map(|extension| match extension {
        Ipv6ExtensionSlice::Fragment(fragment) => Some(fragment),
        _ => None,
    })?;
    let payload = ip.payload();
    if !header.is_fragmenting_payload() || payload.ip_number != IpNumber::UDP {
        return None;
    }
    let id = FragmentId { from, to, number: header.identification() };
    let (offset, more) = (header.fragment_offset().value(), header.more_fragments());
    Some(Fragment { id, offset, more, ecn, bytes: payload.payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::write;

    fn packet(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, from.parse().unwrap(), to.parse().unwrap(), 0b01, payload).unwrap();
        out
    }

    #[test]
    fn what_is_written_reads_back() {
        for (from, to) in [("192.0.2.1:1000", "192.0.2.2:443"), ("[2001:db8::1]:7", "[::2]:443")] {
            for payload in [&b"query"[..], b""] {
                let bytes = packet(from, to, payload);
                let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
                let datagram = Datagram { from, to, ecn: 0b01, payload };
                assert_eq!(read(&bytes), Content::Datagram(datagram));
                assert_eq!(ends(&bytes), Some((from.ip(), to.ip())));
            }
        }
    }

    #[test]
    fn padding_behind_a_packet_is_not_payload() {
        let mut bytes = packet("192.0.2.1:1000", "192.0.2.2:443", b"query");
        bytes.extend([0; 13]);
        let Content::Datagram(datagram) = read(&bytes) else { panic!("no datagram") };
        assert_eq!(datagram.payload, b"query");
    }

    #[test]
    fn what_is_cut_short_and_what_is_no_udp_is_nothing() {
        let whole = packet("[2001:db8::1]:7", "[2001:db8::2]:443", b"query");
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), Content::Other, "{end}");
            assert_eq!(ends(&whole[..end]), None, "{end}");
        }
        let mut tcp = packet("192.0.2.1:1000", "192.0.2.2:443", &[0; 20]);
        tcp[9] = 6;
        assert_eq!(read(&tcp), Content::Other);
        assert_eq!(read(&[]), Content::Other);
    }

    #[test]
    fn a_part_of_a_datagram_tells_which_and_where() {
        let mut first = packet("192.0.2.1:1000", "192.0.2.2:443", &[7; 64]);
        first[4..8].copy_from_slice(&[0xab, 0xcd, 0x20, 0x02]);
        let Content::Fragment(fragment) = read(&first) else { panic!("no fragment") };
        assert_eq!((fragment.offset, fragment.more, fragment.id.number), (2, true, 0xabcd));
        assert_eq!((fragment.bytes.len(), fragment.ecn), (72, 0b01));
        assert_eq!(fragment.id.to, "192.0.2.2".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn a_part_of_an_ipv6_datagram_is_found_behind_its_header() {
        let mut bytes = packet("[2001:db8::1]:7", "[2001:db8::2]:443", &[7; 16]);
        bytes[6] = 44;
        bytes[4..6].copy_from_slice(&32u16.to_be_bytes());
        bytes.splice(40..40, [17, 0, 0, 0x09, 0, 0, 0, 5]);
        let Content::Fragment(fragment) = read(&bytes) else { panic!("no fragment") };
        assert_eq!((fragment.offset, fragment.more, fragment.id.number), (1, true, 5));
        assert_eq!(fragment.bytes.len(), 24);
    }

    #[test]
    fn what_the_kernel_sends_by_itself_is_told_from_what_a_route_led_here() {
        use etherparse::{Icmpv4Type, Icmpv6Type, PacketBuilder, icmpv4, icmpv6};
        let written = |built: etherparse::PacketBuilderStep<etherparse::Icmpv4Header>| {
            let mut packet = Vec::new();
            built.write(&mut packet, &[0; 28]).unwrap();
            packet
        };
        let four = || PacketBuilder::ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64);
        let port = icmpv4::DestUnreachableHeader::Port;
        let unreachable = written(four().icmpv4(Icmpv4Type::DestinationUnreachable(port)));
        let ping = written(four().icmpv4_echo_request(1, 1));
        assert!(is_housekeeping(&unreachable) && !is_housekeeping(&ping));
        let six = |kind: Icmpv6Type, from: &str, to: &str| {
            let [from, to] =
                [from, to].map(|at| at.parse::<std::net::Ipv6Addr>().unwrap().octets());
            let mut packet = Vec::new();
            PacketBuilder::ipv6(from, to, 64).icmpv6(kind).write(&mut packet, &[0; 48]).unwrap();
            packet
        };
        let port = Icmpv6Type::DestinationUnreachable(icmpv6::DestUnreachableCode::Port);
        let solicitation = Icmpv6Type::RouterSolicitation;
        let echo = Icmpv6Type::EchoRequest(etherparse::IcmpEchoHeader { id: 1, seq: 1 });
        assert!(is_housekeeping(&six(port, "2001:db8::1", "2001:db8::2")));
        assert!(is_housekeeping(&six(solicitation, "::", "ff02::2")));
        assert!(is_housekeeping(&six(solicitation, "fe80::1", "2001:db8::2")));
        assert!(!is_housekeeping(&six(echo, "2001:db8::1", "2001:db8::2")));
        let group = packet("10.0.0.1:5353", "224.0.0.251:5353", b"mdns");
        assert!(is_housekeeping(&group));
        let other = packet("10.0.0.1:1", "192.0.2.1:5000", b"x");
        assert!(!is_housekeeping(&other) && !is_housekeeping(b"x"));
        assert_eq!([describe(&other), describe(&ping)], ["UDP to port 5000", "ICMP (ping)"]);
        let mut tcp = Vec::new();
        four().tcp(1, 443, 0, 0).write(&mut tcp, b"").unwrap();
        assert_eq!(describe(&tcp), "TCP to port 443");
    }

    #[test]
    fn what_is_for_a_link_is_told_from_what_goes_on() {
        let four = |to: &str| {
            let to = to.parse::<std::net::Ipv4Addr>().unwrap();
            let mut packet = Vec::new();
            let built = etherparse::PacketBuilder::ipv4([10, 0, 0, 1], to.octets(), 1).udp(1, 2);
            built.write(&mut packet, b"x").unwrap();
            is_for_link(&packet)
        };
        let six = |to: &str| {
            let to = to.parse::<std::net::Ipv6Addr>().unwrap();
            let mut packet = Vec::new();
            let built = etherparse::PacketBuilder::ipv6([0; 16], to.octets(), 1).udp(1, 2);
            built.write(&mut packet, b"x").unwrap();
            is_for_link(&packet)
        };
        assert!(four("224.0.0.22") && four("255.255.255.255") && four("169.254.1.1"));
        assert!(six("ff02::16") && six("ff02::2") && six("fe80::1"));
        assert!(!four("192.0.2.1") && !six("2001:db8::1") && !is_for_link(b""));
    }
}
