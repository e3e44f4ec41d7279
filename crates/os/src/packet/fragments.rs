//! Reassembly of datagrams from fragments.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::Time;
use etherparse::IpNumber;
use etherparse::defrag::IpDefragBuf;

use super::{Fragment, FragmentId};

/// Maximum number of incomplete datagrams in memory. At this maximum, a new datagram replaces the
/// oldest one.
const AT_ONCE: usize = 64;
/// Time after which an incomplete datagram is dropped. RFC 8200, section 4.5, specifies 60 s, but
/// fragments from this machine itself arrive together.
const PATIENCE: Duration = Duration::from_secs(5);
/// Length of a UDP header, in bytes.
const HEADER: usize = 8;

/// Reassembler of fragmented UDP datagrams. It stores at most 64 incomplete datagrams, each with
/// at most 64 KiB.
#[derive(Debug, Default)]
pub struct Fragments {
    incomplete: BTreeMap<FragmentId, (Time, u8, IpDefragBuf)>,
}

/// A reassembled datagram.
#[derive(Debug, PartialEq, Eq)]
pub struct ReassembledDatagram {
    /// Address of the datagram's sender.
    pub from: SocketAddr,
    /// Address of the datagram's recipient.
    pub to: SocketAddr,
    /// ECN bits of the fragments: "congestion experienced" if any fragment has it (RFC 3168,
    /// section 5.3).
    pub ecn: u8,
    /// The whole datagram: the UDP header and the payload.
    bytes: Vec<u8>,
}

impl ReassembledDatagram {
    /// Returns the UDP payload.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[HEADER..]
    }
}

impl Fragments {
    /// Adds a fragment that arrived at `now`. Returns the datagram if this fragment completes it,
    /// else `None`. If the fragment contradicts earlier fragments of a datagram, the datagram is
    /// dropped.
    pub fn take(&mut self, now: Time, part: &Fragment<'_>) -> Option<ReassembledDatagram> {
        self.make_room(now, part.id);
        let fresh = || (now, part.ecn, IpDefragBuf::new(IpNumber::UDP, Vec::new(), Vec::new()));
        let (_, ecn, buffer) = self.incomplete.entry(part.id).or_insert_with(fresh);
        *ecn = if part.ecn == 0b11 { 0b11 } else { *ecn };
        let offset = part.offset.try_into().ok()?;
        if buffer.add(offset, part.more, part.bytes).is_err() {
            self.incomplete.remove(&part.id);
            return None;
        }
        if !buffer.is_complete() {
            return None;
        }
        let (_, ecn, buffer) = self.incomplete.remove(&part.id)?;
        whole(part.id, ecn, buffer.take_bufs().0)
    }

    fn make_room(&mut self, now: Time, id: FragmentId) {
        self.incomplete.retain(|_, (since, ..)| now.since(*since) < PATIENCE);
        if self.incomplete.len() >= AT_ONCE && !self.incomplete.contains_key(&id) {
            let oldest = self.incomplete.iter().min_by_key(|(_, (since, ..))| *since);
            let oldest = oldest.map(|(id, _)| *id);
            oldest.and_then(|id| self.incomplete.remove(&id));
        }
    }
}

fn whole(id: FragmentId, ecn: u8, mut bytes: Vec<u8>) -> Option<ReassembledDatagram> {
    let at = |index: usize| Some(u16::from_be_bytes([*bytes.get(index)?, *bytes.get(index + 1)?]));
    let (from, to, length) = (at(0)?, at(2)?, usize::from(at(4)?));
    if length < HEADER || length > bytes.len() {
        return None;
    }
    bytes.truncate(length);
    let (from, to) = (SocketAddr::new(id.from, from), SocketAddr::new(id.to, to));
    Some(ReassembledDatagram { from, to, ecn, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> FragmentId {
        FragmentId { from: [192, 0, 2, 1].into(), to: [192, 0, 2, 2].into(), number }
    }

    /// Returns a UDP datagram from port 1000 to port 443 with `length` bytes of payload.
    fn udp(length: u16) -> Vec<u8> {
        let mut bytes = [1000u16, 443, length + 8, 0].map(u16::to_be_bytes).concat();
        bytes.extend((0..length).map(|n| n as u8));
        bytes
    }

    fn parts(number: u32, bytes: &[u8]) -> Vec<Fragment<'_>> {
        let pieces = bytes.chunks(16).enumerate();
        pieces
            .map(|(index, bytes_)| Fragment {
                id: id(number),
                offset: 2 * index as u16,
                more: 16 * (index + 1) < bytes.len(),
                ecn: if index == 1 { 0b11 } else { 0b10 },
                bytes: bytes_,
            })
            .collect()
    }

    #[test]
    fn parts_in_any_order_make_the_datagram() {
        let bytes = udp(50);
        for rotation in 0..4 {
            let mut fragments = Fragments::default();
            let mut parts = parts(1, &bytes);
            parts.rotate_left(rotation);
            let mut wholes: Vec<_> =
                parts.iter().filter_map(|part| fragments.take(Time::ZERO, part)).collect();
            let whole = wholes.pop().unwrap();
            assert_eq!(whole.payload(), &bytes[8..]);
            assert_eq!((whole.to.port(), whole.ecn, wholes.len()), (443, 0b11, 0));
            assert!(fragments.incomplete.is_empty());
        }
    }

    #[test]
    fn what_stays_incomplete_is_forgotten_and_bounded() {
        let bytes = udp(50);
        let mut fragments = Fragments::default();
        for number in 0..200 {
            let now = Time::from_millis(number.into());
            assert_eq!(fragments.take(now, &parts(number, &bytes)[0]), None);
        }
        assert_eq!(fragments.incomplete.len(), AT_ONCE);
        let rest = parts(199, &bytes);
        let late = Time::from_millis(199) + PATIENCE;
        assert!(rest[1..].iter().all(|part| fragments.take(late, part).is_none()));
        assert_eq!(fragments.incomplete.len(), 1, "the first part was too old");
    }

    #[test]
    fn a_length_beyond_the_parts_is_no_datagram() {
        let mut bytes = udp(50);
        bytes[4..6].copy_from_slice(&100u16.to_be_bytes());
        let mut fragments = Fragments::default();
        assert!(parts(1, &bytes).iter().all(|part| fragments.take(Time::ZERO, part).is_none()));
    }
}
