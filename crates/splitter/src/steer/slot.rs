//! The slot of a splitter, which determines the numbers and names of its marks, routing tables,
//! rule priorities, nftables tables and virtual Ethernet pair.
//!
//! For each slot, the numbers and names are fixed. So a later splitter recognises the objects of a
//! killed splitter, and detects other programs' objects with the same numbers.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Maximum number of simultaneous splitters in one network namespace.
pub(crate) const SLOTS: u8 = 16;
/// Maximum number of paths with `--route`.
pub(crate) const MOST_PATHS: usize = 200;
/// The bits of a mark that identify its splitter. The other bits identify the path or purpose.
pub(crate) const MASK: u32 = 0xffff_ff00;
/// The first of this program's marks, which are also the numbers of routing tables. 0x00AB stands
/// for "anabranch".
const FIRST: u32 = 0x00ab_0000;
/// Lowest 8 bits of the mark of the splitter's own packets.
const OWN: u32 = 0xfe;
/// The first of this program's rule priorities. The kernel consults rules in ascending order.
/// Rules without an explicit priority get numbers just below 32,766, so they come later.
const PRIORITY: u32 = 1_000;
/// Number of rule priorities per splitter.
const PRIORITIES: u32 = 10;

/// A slot number that no running splitter has.
pub(crate) const NOBODY: Slot = Slot(u8::MAX);
/// Prefix of the names of this program's virtual Ethernet interfaces on the machine's side.
pub(crate) const CABLES: &str = "anabranch-";

/// Index of a running splitter in its network namespace. It determines the numbers of the
/// splitter's marks, tables and rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub(crate) u8);

impl Slot {
    /// Value and mask that match the mark of any splitter's own packets.
    pub(crate) const OWN_OF_ANY: (u32, u32) = (FIRST | OWN, !(0xff << 8));

    /// Returns the splitter's mark with zeros in the bits that identify a path or purpose.
    pub(crate) fn base(self) -> u32 {
        FIRST | u32::from(self.0) << 8
    }

    /// Returns the mark of connections that are kept on the path `index`, which is also the number
    /// of their routing table.
    pub(crate) fn path(self, index: usize) -> u32 {
        self.base() + 1 + u32::try_from(index).expect("a splitter has at most 200 paths")
    }

    /// Returns the mark of packets that go into the interface, which is also the number of their
    /// routing table.
    pub(crate) fn tun(self) -> u32 {
        self.base() + 0xff
    }

    /// Returns the mark of the splitter's own packets.
    pub fn own(self) -> u32 {
        self.base() + OWN
    }

    /// Returns the mark of packets that must not leave, which is also the number of their routing
    /// table.
    pub(crate) fn nowhere(self) -> u32 {
        self.base() + 0xfd
    }

    /// Returns the range of the splitter's routing tables.
    pub(crate) fn tables(self) -> Range<u32> {
        self.base()..self.base() + 0x100
    }

    /// Returns the range of the splitter's rule priorities.
    pub(crate) fn priorities(self) -> Range<u32> {
        let first = PRIORITY + u32::from(self.0) * PRIORITIES;
        first..first + PRIORITIES
    }

    /// Returns the name of the splitter's nftables table (family `inet`).
    pub(crate) fn ruleset(self) -> String {
        format!("anabranch_{}", self.0)
    }

    /// Returns the name of the guard, an nftables table that no other process can flush while the
    /// splitter runs.
    pub(crate) fn guard(self) -> String {
        format!("{}_guard", self.ruleset())
    }

    /// Returns the name of the virtual Ethernet pair's end on the machine's side.
    pub(crate) fn cable(self) -> String {
        format!("{CABLES}{}", self.0)
    }

    /// Returns the IPv4 addresses of the virtual Ethernet pair: on the machine's side, and on the
    /// namespace's side. They form a /30 network in 198.18.0.0/15, which is reserved for benchmarks
    /// (RFC 2544) and not used on the Internet.
    pub(crate) fn ends4(self) -> (Ipv4Addr, Ipv4Addr) {
        let at = |last| Ipv4Addr::new(198, 18, 171, 4 * self.0 + last);
        (at(1), at(2))
    }

    /// Returns the interface's own IPv4 and IPv6 address. Without own addresses, Linux would check
    /// source addresses on the interface in strict mode. It would then drop the answers, which may
    /// have any source address.
    pub(crate) fn own_addresses(self) -> (Ipv4Addr, Ipv6Addr) {
        let six = Ipv6Addr::new(0xfd61, 0x6e61, 0x6272, 0xff00 | u16::from(self.0), 0, 0, 0, 1);
        (Ipv4Addr::new(198, 18, 172, 1 + self.0), six)
    }

    /// Returns the IPv6 addresses of the virtual Ethernet pair: on the machine's side, and on the
    /// namespace's side. They form a /64 network of unique local addresses (RFC 4193).
    pub(crate) fn ends6(self) -> (Ipv6Addr, Ipv6Addr) {
        let at = |last| Ipv6Addr::new(0xfd61, 0x6e61, 0x6272, self.0.into(), 0, 0, 0, last);
        (at(1), at(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_belongs_to_two_runs_or_two_uses() {
        let mut marks = Vec::new();
        let mut priorities = Vec::new();
        for slot in (0..SLOTS).map(Slot) {
            marks.extend((0..MOST_PATHS).map(|index| slot.path(index)));
            marks.extend([slot.tun(), slot.own(), slot.nowhere()]);
            priorities.extend(slot.priorities());
            let (own, mask) = Slot::OWN_OF_ANY;
            assert!(slot.own() & mask == own && slot.tun() & mask != own);
            assert!(marks.iter().rev().take(203).all(|mark| slot.tables().contains(mark)));
            assert!(slot.cable().len() < 16, "an interface name");
        }
        let count = (marks.len(), priorities.len());
        marks.sort_unstable();
        marks.dedup();
        priorities.sort_unstable();
        priorities.dedup();
        assert_eq!((marks.len(), priorities.len()), count);
    }
}
