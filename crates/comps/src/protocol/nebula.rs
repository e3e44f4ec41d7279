//! Recognition of Nebula by the 16-byte header of its packets: version and type, subtype, two
//! reserved bytes, the receiver's index, and a packet counter. No field is encrypted.

use super::{Counter, Family, Mark, Protocol, Side, Verdict, be32, be64, goes_on};

/// Description of Nebula in the list of protocols, [`FAMILIES`](super::FAMILIES).
pub const FAMILY: Family = Family {
    protocol: Protocol::Nebula,
    name: "nebula",
    title: "Nebula",
    selectable: false,
    mark,
    follow,
    one_path: None,
    counter: Counter::Always,
    guide: "any-program",
};

const HEADER: usize = 16;
/// First bytes of a packet of version 1, by type: handshake, message, error, lighthouse, test,
/// close, control.
const KINDS: std::ops::RangeInclusive<u8> = 0x10..=0x16;
/// First byte of a handshake packet of version 1.
const HANDSHAKE: u8 = 0x10;
/// Packet counter that no session reaches, 2^40. A datagram with a counter this high is not
/// Nebula's.
const OLD: u64 = 1 << 40;

/// Returns whether `datagram` may be a Nebula packet: it has a known type, zero reserved bytes and
/// a counter below [`OLD`].
fn is_packet(datagram: &[u8]) -> bool {
    datagram.len() >= HEADER
        && KINDS.contains(&datagram[0])
        && datagram[1] < 8
        && datagram[2..4] == [0, 0]
        && counter(datagram) < OLD
}

fn mark(datagram: &[u8]) -> Mark {
    let begins = |bytes: &[u8]| bytes[0] == HANDSHAKE && index(bytes) == 0 && counter(bytes) == 1;
    match is_packet(datagram) {
        true if begins(datagram) => Mark::Strong,
        true => Mark::weak(datagram[0] != HANDSHAKE && index(datagram) != 0),
        false => Mark::None,
    }
}

/// Returns whether `next` belongs to the same Nebula tunnel as `first`. A client's datagram of one
/// byte is no evidence, because it only keeps NAT mappings alive.
fn follow(first: &[u8], next: &[u8], side: Side) -> Verdict {
    let counts = index(first) == index(next) && goes_on(counter(first), counter(next));
    match side {
        Side::Client if next.len() == 1 => Verdict::Open,
        Side::Client if first[0] != HANDSHAKE => Verdict::whether(is_packet(next) && counts),
        _ => Verdict::whether(is_packet(next)),
    }
}

fn index(datagram: &[u8]) -> u32 {
    be32(datagram, 4).unwrap_or_default()
}

fn counter(datagram: &[u8]) -> u64 {
    be64(datagram, 8).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: u8, index: u32, counter: u64) -> Vec<u8> {
        let mut bytes = vec![kind, 0, 0, 0];
        bytes.extend(index.to_be_bytes());
        bytes.extend(counter.to_be_bytes());
        bytes.resize(116, 0xa5);
        bytes
    }

    #[test]
    fn the_first_handshake_is_strong_and_messages_are_weak() {
        assert_eq!(mark(&packet(0x10, 0, 1)), Mark::Strong);
        assert_eq!(mark(&packet(0x11, 0xb5a9_b830, 3)), Mark::Weak);
        for other in [packet(0x11, 0, 3), packet(0x17, 5, 3), packet(0x11, 5, 1 << 40), vec![1]] {
            assert_eq!(mark(&other), Mark::None, "{other:02x?}");
        }
    }

    #[test]
    fn messages_count_on_and_a_handshake_is_followed_by_any_packet() {
        let (hello, first) = (packet(0x10, 0, 1), packet(0x11, 5, 3));
        assert_eq!(follow(&hello, &packet(0x11, 5, 3), Side::Client), Verdict::Agrees);
        assert_eq!(follow(&hello, &packet(0x10, 9, 2), Side::Server), Verdict::Agrees);
        assert_eq!(follow(&first, &packet(0x11, 5, 4), Side::Client), Verdict::Agrees);
        assert_eq!(follow(&first, &packet(0x11, 6, 4), Side::Client), Verdict::Contradicts);
        assert_eq!(follow(&first, &packet(0x11, 5, 3), Side::Client), Verdict::Contradicts);
        assert_eq!(follow(&first, &[1], Side::Client), Verdict::Open);
        assert_eq!(follow(&first, b"other", Side::Server), Verdict::Contradicts);
    }
}
