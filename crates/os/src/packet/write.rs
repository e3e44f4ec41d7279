//! Builds the IP packet around a datagram or a TCP segment, from the information that a socket
//! reports.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use etherparse::{
    IpEcn, IpHeaders, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder,
    TcpOptionElement, ip_number,
};

use super::invalid;

/// Hop limit in the IP headers that this module builds. The packet's original hop limit is
/// unknown, because a socket does not report it.
pub(super) const HOPS: u8 = 64;
/// Receive window in TCP headers that are built here: the maximum without window scaling.
const WINDOW: u16 = u16::MAX;
/// TCP options of segments that are built here: timestamps (RFC 7323, appendix A) with values of 0.
const OPTIONS: [TcpOptionElement; 3] =
    [TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(0, 0)];

/// The numbers in the TCP header of a segment (RFC 9293, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentNumbers {
    /// Sequence number of the first byte.
    pub sequence: u32,
    /// Sequence number that the sender expects next from the other side.
    pub acknowledged: u32,
}

/// Appends to `out` the IP packet that contains a UDP datagram from `from` to `to` with `payload`.
///
/// Lengths and checksums are correct. IPv4 packets have the "don't fragment" bit and identification
/// 0 (RFC 6864). An IPv4 address in IPv6 form is written as IPv4.
///
/// # Errors
/// The addresses have different IP versions, or the payload is too long for a datagram.
pub fn write(
    out: &mut Vec<u8>,
    from: SocketAddr,
    to: SocketAddr,
    ecn: u8,
    payload: &[u8],
) -> io::Result<()> {
    let headers = headers((from, to), ecn, ip_number::UDP)?;
    let builder = PacketBuilder::ip(headers).udp(from.port(), to.port());
    builder.write(out, payload).map_err(|e| invalid(e.to_string()))
}

/// Appends to `out` the IP packet that contains a TCP segment with `payload`. `ends` are the
/// source and the destination. The segment has the flags ACK and PSH and no ECN bits. It has the
/// timestamps option, as a segment from Linux does, but with values of 0.
///
/// # Errors
/// The errors of [`write()`].
pub fn write_segment(
    out: &mut Vec<u8>,
    ends: (SocketAddr, SocketAddr),
    SegmentNumbers { sequence, acknowledged }: SegmentNumbers,
    payload: &[u8],
) -> io::Result<()> {
    let headers = headers(ends, 0, ip_number::TCP)?;
    let tcp = PacketBuilder::ip(headers).tcp(ends.0.port(), ends.1.port(), sequence, WINDOW);
    let tcp = tcp.ack(acknowledged).psh().options(&OPTIONS);
    let tcp = tcp.map_err(|e| invalid(format!("{e:?}")))?;
    tcp.write(out, payload).map_err(|e| invalid(e.to_string()))
}

fn headers(ends: (SocketAddr, SocketAddr), ecn: u8, protocol: IpNumber) -> io::Result<IpHeaders> {
    let ecn = IpEcn::try_new(ecn & 0b11).map_err(|e| invalid(e.to_string()))?;
    match (ends.0.ip().to_canonical(), ends.1.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ipv4(from, to, ecn, protocol),
        (IpAddr::V6(from), IpAddr::V6(to)) => Ok(ipv6(from, to, ecn)),
        _ => Err(invalid(format!("{} and {} are not both IPv4 or both IPv6", ends.0, ends.1))),
    }
}

fn ipv4(from: Ipv4Addr, to: Ipv4Addr, ecn: IpEcn, protocol: IpNumber) -> io::Result<IpHeaders> {
    let header = Ipv4Header::new(0, HOPS, protocol, from.octets(), to.octets());
    let mut header = header.map_err(|e| invalid(e.to_string()))?;
    header.ecn = ecn;
    Ok(IpHeaders::Ipv4(header, Default::default()))
}

fn ipv6(from: Ipv6Addr, to: Ipv6Addr, ecn: IpEcn) -> IpHeaders {
    let mut header = Ipv6Header {
        hop_limit: HOPS,
        flow_label: Ipv6FlowLabel::ZERO,
        source: from.octets(),
        destination: to.octets(),
        ..Default::default()
    };
    header.set_ecn(ecn);
    IpHeaders::Ipv6(header, Default::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetHeaders, PacketHeaders, TransportHeader};

    fn packet(from: &str, to: &str, payload: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        write(&mut out, from.parse().unwrap(), to.parse().unwrap(), 0b10, payload)?;
        Ok(out)
    }

    #[test]
    fn an_ipv4_packet_is_well_formed() {
        let bytes = packet("192.0.2.1:1000", "[::ffff:192.0.2.2]:53", b"query").unwrap();
        assert_eq!(bytes.len(), 20 + 8 + 5);
        let parsed = PacketHeaders::from_ip_slice(&bytes).unwrap();
        let Some(NetHeaders::Ipv4(ip, _)) = parsed.net else { panic!("no IPv4") };
        let Some(TransportHeader::Udp(udp)) = parsed.transport else { panic!("no UDP") };
        assert_eq!((ip.source, ip.destination), ([192, 0, 2, 1], [192, 0, 2, 2]));
        assert_eq!((ip.time_to_live, ip.ecn, ip.dont_fragment), (64, IpEcn::Ect0, true));
        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        assert_eq!((udp.source_port, udp.destination_port, udp.length), (1000, 53, 13));
        assert_eq!(udp.checksum, udp.calc_checksum_ipv4(&ip, b"query").unwrap());
        assert_eq!(parsed.payload.slice(), b"query");
    }

    #[test]
    fn an_ipv6_packet_is_well_formed() {
        let bytes = packet("[2001:db8::1]:1000", "[2001:db8::2]:53", b"").unwrap();
        assert_eq!(bytes.len(), 40 + 8);
        let parsed = PacketHeaders::from_ip_slice(&bytes).unwrap();
        let Some(NetHeaders::Ipv6(ip, _)) = parsed.net else { panic!("no IPv6") };
        let Some(TransportHeader::Udp(udp)) = parsed.transport else { panic!("no UDP") };
        assert_eq!((ip.hop_limit, ip.ecn(), ip.payload_length), (64, IpEcn::Ect0, 8));
        assert_eq!(udp.checksum, udp.calc_checksum_ipv6(&ip, b"").unwrap());
    }

    #[test]
    fn a_segment_is_well_formed() {
        let segment = SegmentNumbers { sequence: 7, acknowledged: 9 };
        for (from, to, header) in [
            ("192.0.2.1:1000", "192.0.2.2:443", 20),
            ("[2001:db8::1]:1000", "[2001:db8::2]:443", 40),
        ] {
            let (mut bytes, ends) = (Vec::new(), (from.parse().unwrap(), to.parse().unwrap()));
            write_segment(&mut bytes, ends, segment, b"bytes").unwrap();
            assert_eq!(bytes.len(), header + 32 + 5);
            let parsed = PacketHeaders::from_ip_slice(&bytes).unwrap();
            let Some(TransportHeader::Tcp(tcp)) = parsed.transport else { panic!("no TCP") };
            assert_eq!((tcp.source_port, tcp.destination_port), (1000, 443));
            assert_eq!((tcp.sequence_number, tcp.acknowledgment_number), (7, 9));
            assert!(tcp.ack && tcp.psh && !tcp.syn && !tcp.fin);
            let sum = match parsed.net {
                Some(NetHeaders::Ipv4(ip, _)) => tcp.calc_checksum_ipv4(&ip, b"bytes"),
                Some(NetHeaders::Ipv6(ip, _)) => tcp.calc_checksum_ipv6(&ip, b"bytes"),
                other => panic!("{other:?}"),
            };
            assert_eq!(tcp.checksum, sum.unwrap());
            assert_eq!(parsed.payload.slice(), b"bytes");
        }
    }

    #[test]
    fn the_largest_datagrams_fit_and_larger_ones_are_refused() {
        assert_eq!(packet("192.0.2.1:1", "192.0.2.2:1", &[7; 65_507]).unwrap().len(), 65_535);
        assert!(packet("192.0.2.1:1", "192.0.2.2:1", &[7; 65_508]).is_err());
        assert_eq!(packet("[::1]:1", "[::1]:1", &[7; 65_527]).unwrap().len(), 65_575);
        assert!(packet("[::1]:1", "[::1]:1", &[7; 65_528]).is_err());
    }

    #[test]
    fn mixed_families_are_refused() {
        let error = packet("192.0.2.1:1", "[2001:db8::2]:53", b"").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
