//! Recognition of KCP. A datagram consists of segments, each a header of 24 bytes followed by
//! data. kcp-go can put a header of 8 bytes for error correction before the segments.
//!
//! Encrypted segments, which kcptun and some games send, are not recognised.

use super::{Counter, Family, Mark, Protocol, Side, Verdict};

/// Description of KCP in the list of protocols, [`FAMILIES`](super::FAMILIES).
pub const FAMILY: Family = Family {
    protocol: Protocol::Kcp,
    name: "kcp",
    title: "KCP",
    selectable: false,
    mark: |datagram| Mark::strong(conversation(datagram).is_some()),
    follow,
    one_path: Some(
        "its server opens another session for each address of the client, and the first session \
         stalls",
    ),
    counter: Counter::Looked,
    guide: "any-program",
};

const HEADER: usize = 24;
/// Range of command numbers: push, acknowledgement, window request, window answer.
const COMMANDS: std::ops::RangeInclusive<u8> = 81..=84;
/// Length in bytes of kcp-go's header for error correction: sequence number, type, size.
const CORRECTION: usize = 4 + 2 + 2;
/// Type field of kcp-go's header for error correction, in a packet with data.
const CORRECTED: [u8; 2] = [0xf1, 0];
/// Type field of kcp-go's header for error correction, in a packet with parity.
const PARITY: [u8; 2] = [0xf2, 0];

/// Returns the conversation number that all segments in `datagram` share; `None` if `datagram`
/// does not consist of such segments.
pub fn conversation(datagram: &[u8]) -> Option<[u8; 4]> {
    let segments = match datagram.get(4..6) == Some(&CORRECTED[..]) {
        true => corrected(datagram)?,
        false => datagram,
    };
    let number = *segments.first_chunk()?;
    let mut rest = segments;
    while !rest.is_empty() {
        rest = after_segment(number, rest)?;
    }
    Some(number)
}

/// Returns the segments after an error correction header; `None` if there is no such header. The
/// header's size field counts its own two bytes, too.
fn corrected(datagram: &[u8]) -> Option<&[u8]> {
    let (header, segments) = datagram.split_at_checked(CORRECTION)?;
    let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
    (size == segments.len() + 2).then_some(segments)
}

/// Returns the bytes after the first segment; `None` if that segment does not belong to
/// conversation `number`.
fn after_segment(number: [u8; 4], segments: &[u8]) -> Option<&[u8]> {
    let (header, rest) = segments.split_at_checked(HEADER)?;
    let length = u32::from_le_bytes(*header[20..].first_chunk()?);
    let is_segment = header[..4] == number && COMMANDS.contains(&header[4]);
    is_segment.then(|| rest.get(usize::try_from(length).ok()?..)).flatten()
}

fn follow(first: &[u8], next: &[u8], _: Side) -> Verdict {
    let at = if first.get(4..6) == Some(&CORRECTED[..]) { CORRECTION } else { 0 };
    match conversation(next) {
        Some(number) => Verdict::whether(first[at..].starts_with(&number)),
        None if next.get(4..6) == Some(&PARITY[..]) => Verdict::Open,
        None => Verdict::Contradicts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a segment with `data` bytes of data.
    fn segment(command: u8, data: u8) -> Vec<u8> {
        let head = [0x59, 0x2b, 0x0a, 0xb9, command, 0, 32, 0];
        let mut bytes = [&head[..], &[0; 12], &[data, 0, 0, 0]].concat();
        bytes.resize(HEADER + usize::from(data), b'h');
        bytes
    }

    fn with_correction(segments: &[u8]) -> Vec<u8> {
        let size = (segments.len() + 2) as u16;
        [&[0, 0, 0, 0, 0xf1, 0][..], &size.to_le_bytes(), segments].concat()
    }

    #[test]
    fn segments_that_fill_a_datagram_are_known() {
        let both = [segment(82, 0), segment(81, 7)].concat();
        assert_eq!(conversation(&both), Some([0x59, 0x2b, 0x0a, 0xb9]));
        assert_eq!(conversation(&with_correction(&both)), Some([0x59, 0x2b, 0x0a, 0xb9]));
        for other in [&both[..both.len() - 1], &segment(80, 0), &[], &[&both[..], &[0]].concat()] {
            assert_eq!(conversation(other), None, "{other:02x?}");
        }
    }

    #[test]
    fn the_same_conversation_agrees() {
        let first = segment(81, 7);
        assert_eq!(follow(&first, &segment(82, 0), Side::Server), Verdict::Agrees);
        let mut other = segment(81, 7);
        other[0] = 0;
        assert_eq!(follow(&first, &other, Side::Client), Verdict::Contradicts);
        let corrected = with_correction(&first);
        assert_eq!(follow(&corrected, &with_correction(&first), Side::Client), Verdict::Agrees);
        assert_eq!(follow(&corrected, &[1, 0, 0, 0, 0xf2, 0, 9], Side::Client), Verdict::Open);
    }
}
