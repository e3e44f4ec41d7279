//! Counters of the packets on the links of an emulated network, as an observer of each link would
//! keep them.

use std::collections::BTreeMap;

use anabranch_netem::{Count, Counters};
use serde::Serialize;

/// Counters of a link since the start of the network, by direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkStats {
    /// Counters of the direction from the first end to the second.
    pub forward: DirectionStats,
    /// Counters of the direction from the second end to the first.
    pub back: DirectionStats,
}

/// Counters of one direction of a link. Units are IP packets; bytes include the IP headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DirectionStats {
    /// Number of packets that entered the link, including those dropped later.
    pub units: u64,
    /// Total bytes of the packets that entered the link.
    pub bytes: u64,
    /// Packets that left at the other end.
    pub delivered: Tally,
    /// Packets that did not leave at the other end, by cause.
    pub dropped: Drops,
    /// UDP packets that entered, by the port at the *second* end of the link: the server's port,
    /// if the client is at the first end. This is the destination port in the forward direction,
    /// and the source port in the reverse direction. IP fragments after the first have no port and
    /// are not counted. At most 256 ports are counted separately; the others share port 0.
    pub udp: BTreeMap<u16, Tally>,
}

/// A number of packets, and the sum of their sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Number of packets.
    pub units: u64,
    /// Total bytes of the packets.
    pub bytes: u64,
}

/// Counts of dropped packets, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// Packets lost by the link's rule of loss.
    pub lost: u64,
    /// Packets dropped because the queue was full.
    pub queue_full: u64,
    /// Packets dropped by CoDel.
    pub codel: u64,
    /// Packets larger than the MTU.
    pub too_big: u64,
    /// Packets dropped because the link was down.
    pub down: u64,
    /// Packets that were not delivered because the interface at the other end was down or deleted.
    pub interface: u64,
    /// Packets that the host at the other end blocked as a censor.
    pub censored: u64,
}

impl From<Count> for Tally {
    fn from(count: Count) -> Tally {
        Tally { units: count.units, bytes: count.bytes }
    }
}

impl DirectionStats {
    /// Returns the statistics of one direction of a link. The interface at the other end refused
    /// the packets in `refused`, and the censor dropped the packets in `censored`. `counters`
    /// still counts both as delivered, so they are subtracted.
    pub(super) fn new(
        counters: &Counters,
        refused: Count,
        censored: Count,
        udp: BTreeMap<u16, Count>,
    ) -> DirectionStats {
        let delivered = Tally {
            units: counters.delivered.units - refused.units - censored.units,
            bytes: counters.delivered.bytes - refused.bytes - censored.bytes,
        };
        let dropped = Drops {
            lost: counters.lost.units,
            queue_full: counters.queue_full.units,
            codel: counters.codel.units,
            too_big: counters.too_big.units,
            down: counters.down.units,
            interface: refused.units,
            censored: censored.units,
        };
        DirectionStats {
            units: counters.entered.units,
            bytes: counters.entered.bytes,
            delivered,
            dropped,
            udp: udp.into_iter().map(|(port, count)| (port, count.into())).collect(),
        }
    }
}

/// Returns the source and destination port of an IP packet that carries UDP. Returns `None` for
/// other packets, and for fragments after the first.
pub(super) fn udp_ports(packet: &[u8]) -> Option<[u16; 2]> {
    let start = match packet.first()? >> 4 {
        4 => ipv4_udp(packet)?,
        6 => (*packet.get(6)? == UDP).then_some(40)?,
        _ => return None,
    };
    let ports = packet.get(start..start + 4)?;
    Some([u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]])])
}

const UDP: u8 = 17;

/// Returns the offset of the UDP header in an IPv4 packet; `None` if the packet has no UDP header.
fn ipv4_udp(packet: &[u8]) -> Option<usize> {
    let offset = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x1fff;
    let header = usize::from(packet[0] & 0x0f) * 4;
    (*packet.get(9)? == UDP && offset == 0).then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(protocol: u8, fragment: u16, options: usize) -> Vec<u8> {
        let mut packet = vec![0u8; 20 + options];
        packet[0] = 0x40 | (5 + options as u8 / 4);
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[9] = protocol;
        packet.extend([0x12, 0x34, 0xca, 0x6c, 0, 8, 0, 0]);
        packet
    }

    #[test]
    fn udp_ports_are_found_behind_options_and_in_ipv6() {
        let ports = Some([0x1234, 51820]);
        assert_eq!(udp_ports(&ipv4(17, 0, 0)), ports);
        assert_eq!(udp_ports(&ipv4(17, 0x2000, 8)), ports);
        let mut v6 = vec![0u8; 40];
        (v6[0], v6[6]) = (0x60, 17);
        v6.extend([0x12, 0x34, 0xca, 0x6c]);
        assert_eq!(udp_ports(&v6), ports);
    }

    #[test]
    fn what_has_no_udp_header_has_no_ports() {
        assert_eq!(udp_ports(&ipv4(6, 0, 0)), None);
        assert_eq!(udp_ports(&ipv4(17, 5, 0)), None);
        assert_eq!(udp_ports(&ipv4(17, 0, 0)[..22]), None);
        assert_eq!(udp_ports(&[0x45]), None);
        assert_eq!(udp_ports(&[]), None);
    }
}
