//! Counters of the links of an emulated network, as an observer at each link would count.

use std::collections::BTreeMap;

use anabranch_netem::{Count, Counters};
use serde::Serialize;

/// Counters of both directions of a link since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkStats {
    /// From the first end to the second.
    pub forward: WayStats,
    /// From the second end to the first.
    pub back: WayStats,
}

/// Counters of one direction. Units are IP packets; bytes include their IP headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WayStats {
    /// Packets that entered the link, the dropped ones included.
    pub units: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that left at the other end.
    pub delivered: Tally,
    /// Packets that did not, by cause.
    pub dropped: Drops,
    /// UDP packets that entered, by the port at the *second* end of the link (the server's, if the
    /// client is the first end): destination port forward, source port back. Fragments after the
    /// first have no port and are left out. At most 256 ports; the rest is under port 0.
    pub udp: BTreeMap<u16, Tally>,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Packets.
    pub units: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Dropped packets by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// The link's rule of loss.
    pub lost: u64,
    /// The queue was full.
    pub queue_full: u64,
    /// CoDel.
    pub codel: u64,
    /// Larger than the MTU.
    pub too_big: u64,
    /// The link was down.
    pub down: u64,
    /// The interface at the other end refused it: it was down, or deleted.
    pub interface: u64,
    /// The host at the other end is a censor and blocked it.
    pub censored: u64,
}

impl From<Count> for Tally {
    fn from(count: Count) -> Tally {
        Tally { units: count.units, bytes: count.bytes }
    }
}

impl WayStats {
    /// Converts a link's counters. Of the packets that the link delivered, the interface refused
    /// `refused`, and the censor dropped `censored`.
    pub(super) fn new(
        counters: &Counters,
        refused: Count,
        censored: Count,
        udp: BTreeMap<u16, Count>,
    ) -> WayStats {
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
        WayStats {
            units: counters.entered.units,
            bytes: counters.entered.bytes,
            delivered,
            dropped,
            udp: udp.into_iter().map(|(port, count)| (port, count.into())).collect(),
        }
    }
}

/// Returns the source and destination port of an IP packet that carries UDP, unless it is a
/// fragment after the first.
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

/// Returns the offset of the UDP header in an IPv4 packet.
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
