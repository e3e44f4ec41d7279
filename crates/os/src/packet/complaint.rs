//! ICMP messages about undeliverable packets (RFC 792, RFC 4443).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::icmpv6::DestUnreachableCode;
use etherparse::{Icmpv4Type, Icmpv6Type, IpSlice, PacketBuilder};

use super::write::{HOPS, write};

/// Maximum bytes of the undeliverable packet that an ICMPv4 message quotes, followed by the
/// maximum for ICMPv6. Messages have at most 576 bytes over IPv4 (RFC 1812, section 4.3.2.3) and
/// 1,280 bytes over IPv6 (RFC 4443, section 2.4), including 28 or 48 bytes for the IP and ICMP
/// headers.
const QUOTED: (usize, usize) = (576 - 28, 1280 - 48);
/// Minimum MTU that is reported for an IPv4 path, followed by the minimum for IPv6 (RFC 791, RFC
/// 8200). A router's claim of a smaller MTU may be forged, and would block the session if it were
/// passed on.
const NARROWEST: (u32, u32) = (576, 1280);

/// The reason why a packet is undeliverable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// The packet exceeds the MTU of the path, given in bytes of an IP packet.
    TooBig(u32),
    /// No program listens at the destination's port.
    Port,
    /// No path leads to the destination.
    Unreachable,
    /// The splitter (the program that spreads sessions over several paths) does not carry this
    /// kind of packet.
    Prohibited,
}

/// Appends to `out` the ICMP message that reports `complaint` to the sender of `packet`. The
/// message's source address is `here4` for an IPv4 packet and `here6` for an IPv6 packet. Returns
/// whether a message was appended. ICMP errors, truncated packets and packets from a non-unicast
/// address get no message (RFC 1122, section 3.2.2).
///
/// # Errors
/// The message cannot be built. This never happens for a packet from the kernel.
pub fn complain(
    out: &mut Vec<u8>,
    (here4, here6): (Ipv4Addr, Ipv6Addr),
    complaint: Complaint,
    packet: &[u8],
) -> io::Result<bool> {
    match IpSlice::from_slice(packet) {
        Ok(IpSlice::Ipv4(ip)) => {
            let header = ip.header();
            let (to, number) = (header.source_addr(), ip.payload().ip_number.0);
            if !is_one4(to) || !deserves(number, ip.payload().payload) {
                return Ok(false);
            }
            let quoted = &packet[..packet.len().min(QUOTED.0)];
            PacketBuilder::ipv4(here4.octets(), to.octets(), HOPS)
                .icmpv4(kind4(complaint))
                .write(out, quoted)
                .map_err(io::Error::other)?;
        }
        Ok(IpSlice::Ipv6(ip)) => {
            let to = ip.header().source_addr();
            let number = ip.payload().ip_number.0;
            if to.is_multicast() || to.is_unspecified() || !deserves(number, ip.payload().payload) {
                return Ok(false);
            }
            let quoted = &packet[..packet.len().min(QUOTED.1)];
            PacketBuilder::ipv6(here6.octets(), to.octets(), HOPS)
                .icmpv6(kind6(complaint))
                .write(out, quoted)
                .map_err(io::Error::other)?;
        }
        Err(_) => return Ok(false),
    }
    Ok(true)
}

/// Builds a packet to quote in an ICMP message about a session, when the packet itself is not
/// available. It has the headers of a datagram from `client` to `server`, and eight zero bytes as
/// payload. An ICMPv4 message must quote eight bytes after the IP header (RFC 792).
///
/// # Errors
/// The addresses have different IP versions.
pub fn quote(client: SocketAddr, server: SocketAddr) -> io::Result<Vec<u8>> {
    let mut packet = Vec::with_capacity(56);
    write(&mut packet, client, server, 0, &[0; 8])?;
    Ok(packet)
}

fn is_one4(ip: Ipv4Addr) -> bool {
    !(ip.is_multicast() || ip.is_unspecified() || ip.is_broadcast())
}

/// Returns whether an ICMP error may be sent about a packet with the IP protocol number `number`
/// and `payload`. Among ICMP packets, only echo requests may get an ICMP error.
fn deserves(number: u8, payload: &[u8]) -> bool {
    match (number, payload.first()) {
        (1, Some(&kind)) => kind == 8,
        (58, Some(&kind)) => kind == 128,
        (1 | 58, None) => false,
        _ => true,
    }
}

fn kind4(complaint: Complaint) -> Icmpv4Type {
    let header = match complaint {
        Complaint::TooBig(mtu) => {
            let mtu = u16::try_from(mtu.max(NARROWEST.0)).unwrap_or(u16::MAX);
            DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu }
        }
        Complaint::Port => DestUnreachableHeader::Port,
        Complaint::Unreachable => DestUnreachableHeader::Network,
        Complaint::Prohibited => DestUnreachableHeader::FilterProhibited,
    };
    Icmpv4Type::DestinationUnreachable(header)
}

fn kind6(complaint: Complaint) -> Icmpv6Type {
    match complaint {
        Complaint::TooBig(mtu) => Icmpv6Type::PacketTooBig { mtu: mtu.max(NARROWEST.1) },
        Complaint::Port => Icmpv6Type::DestinationUnreachable(DestUnreachableCode::Port),
        Complaint::Unreachable => Icmpv6Type::DestinationUnreachable(DestUnreachableCode::NoRoute),
        Complaint::Prohibited => {
            Icmpv6Type::DestinationUnreachable(DestUnreachableCode::Prohibited)
        }
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    use super::*;

    const HERE: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(192, 0, 2, 9), Ipv6Addr::LOCALHOST);

    fn about(from: &str, to: &str, complaint: Complaint) -> Option<Vec<u8>> {
        let mut packet = Vec::new();
        write(&mut packet, from.parse().unwrap(), to.parse().unwrap(), 0, &[7; 1400]).unwrap();
        let mut out = Vec::new();
        complain(&mut out, HERE, complaint, &packet).unwrap().then_some(out)
    }

    #[test]
    fn an_ipv4_sender_learns_the_mtu_and_sees_his_packet() {
        let out = about("192.0.2.1:7", "192.0.2.2:443", Complaint::TooBig(1400)).unwrap();
        assert!(out.len() <= 576);
        let sliced = SlicedPacket::from_ip(&out).unwrap();
        let Some(TransportSlice::Icmpv4(icmp)) = &sliced.transport else { panic!("no ICMP") };
        let wanted = DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1400 };
        assert_eq!(icmp.icmp_type(), Icmpv4Type::DestinationUnreachable(wanted));
        assert_eq!(icmp.header().checksum, icmp.icmp_type().calc_checksum(icmp.payload()));
        let Some(NetSlice::Ipv4(ip)) = &sliced.net else { panic!("no IPv4") };
        assert_eq!(ip.header().destination_addr(), Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(&icmp.payload()[12..16], [192, 0, 2, 1]);
    }

    #[test]
    fn an_ipv6_sender_learns_it_too_and_never_less_than_the_least() {
        let out = about("[2001:db8::1]:7", "[2001:db8::2]:443", Complaint::TooBig(600)).unwrap();
        let sliced = SlicedPacket::from_ip(&out).unwrap();
        let Some(TransportSlice::Icmpv6(icmp)) = &sliced.transport else { panic!("no ICMPv6") };
        assert_eq!(icmp.icmp_type(), Icmpv6Type::PacketTooBig { mtu: 1280 });
        assert!(out.len() <= 1280);
    }

    #[test]
    fn nobody_complains_about_a_complaint_or_to_many() {
        let complaint = about("192.0.2.1:7", "192.0.2.2:443", Complaint::Port).unwrap();
        let mut out = Vec::new();
        assert!(!complain(&mut out, HERE, Complaint::Port, &complaint).unwrap());
        assert_eq!(about("224.0.0.1:7", "192.0.2.2:443", Complaint::Port), None);
        assert!(!complain(&mut out, HERE, Complaint::Port, b"garbage").unwrap());
        assert!(out.is_empty());
    }

    #[test]
    fn a_packet_that_is_gone_is_quoted_by_its_ends() {
        let (client, server) = ("192.0.2.1:7".parse().unwrap(), "192.0.2.2:443".parse().unwrap());
        let packet = quote(client, server).unwrap();
        let mut out = Vec::new();
        assert!(complain(&mut out, HERE, Complaint::Port, &packet).unwrap());
        assert_eq!(&out[28 + 20..28 + 24], [0, 7, 1, 187], "the ports");
    }
}
