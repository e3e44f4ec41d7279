//! Splitting of datagrams that are too long for a packet on their path.
//!
//! The tunnel's header makes some datagrams too long for the paths. Some programs keep sending
//! long datagrams: a WireGuard interface with its former MTU, or a DNS server with a long answer.
//! These datagrams would be lost, and the program would not learn why. The tunnel therefore sends
//! a long datagram in parts, on one path and with consecutive packet numbers. The other end joins
//! the parts. Each long datagram costs at least one additional packet.

use crate::datagram::Datagram;
use crate::piece::{LAST, PLACE, Piece};
use crate::{epoch, frame};

/// Number of bytes that a padded packet has in addition to its datagram and the padding.
pub const PADDED_OVERHEAD: usize = epoch::OVERHEAD + frame::OVERHEAD;
/// Maximum number of parts of one datagram.
const MOST: usize = LAST as usize;
/// Length of the longest UDP datagram, in bytes.
const LONGEST: usize = 65_527;
/// Lower bound in bytes for a path's maximum packet length; smaller values are raised to it.
/// Packets of this length pass every IPv4 network (RFC 791: 576 bytes with the header).
const LEAST: usize = 548;

/// Splits a datagram into parts of about equal length, so that each packet has at most `room`
/// bytes. The datagram stays whole if it fits, or if `room` is `None`.
pub fn pieces(datagram: &[u8], room: Option<usize>) -> impl Iterator<Item = Piece<'_>> {
    let room = room.map_or(usize::MAX, |room| room.max(LEAST) - PADDED_OVERHEAD);
    // A packet without padding has no length field, so these two bytes are free for the datagram.
    let fits = datagram.len() <= room.saturating_add(2);
    let count = if fits { 1 } else { datagram.len().div_ceil(room - PLACE).min(MOST) };
    let length = datagram.len().div_ceil(count).max(1);
    (0..count).map(move |place| {
        let bytes = datagram.get(place * length..).unwrap_or_default();
        let last = if place + 1 == count { LAST } else { 0 };
        let place = (count > 1).then_some(place as u8 | last);
        Piece { bytes: &bytes[..bytes.len().min(length)], place }
    })
}

/// Reassembler of datagrams whose parts arrive in order.
#[derive(Default)]
pub(crate) struct Joiner {
    /// The datagram that is being reassembled: its parts so far, the index that the next part must
    /// have, and the packet number of the latest part; `None` if no datagram is begun.
    begun: Option<(Datagram, u8, u64)>,
}

impl Joiner {
    /// Processes the next datagram or part. Returns a datagram once it is complete, else `None`. A
    /// datagram with a missing part is dropped.
    pub(crate) fn take(&mut self, datagram: Datagram) -> Option<Datagram> {
        let Some(place) = datagram.part else {
            return Some(datagram);
        };
        let (number, is_last) = (datagram.number + 1, place & LAST != 0);
        let place = place & !LAST;
        let whole = match self.begun.take() {
            _ if place == 0 => datagram,
            Some((mut begun, next, due)) if next == place && due + 1 == number => {
                let length = begun.bytes().len() + datagram.bytes().len();
                if begun.flow != datagram.flow || length > LONGEST {
                    return None;
                }
                begun.append(datagram.bytes());
                begun
            }
            _ => return None,
        };
        if is_last {
            return Some(whole);
        }
        self.begun = Some((whole, place + 1, number));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(datagram: usize, room: Option<usize>) -> Vec<usize> {
        pieces(&vec![0; datagram], room).map(|piece| piece.bytes.len()).collect()
    }

    #[test]
    fn what_fits_stays_whole_and_what_does_not_goes_in_parts_of_one_length() {
        assert_eq!(lengths(0, Some(1_472)), [0]);
        assert_eq!(lengths(1_439, Some(1_472)), [1_439]);
        assert_eq!(lengths(1_440, Some(1_472)), [720, 720]);
        assert_eq!(lengths(1_453, Some(1_472)), [727, 726]);
        assert_eq!(lengths(65_507, None), [65_507]);
    }

    #[test]
    fn every_length_arrives_and_no_packet_is_longer_than_its_room() {
        for room in [0, 548, 600, 1_280, 1_472] {
            for length in (0..65_508).step_by(331) {
                let datagram: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
                let all: Vec<u8> = pieces(&datagram, Some(room))
                    .flat_map(|piece| {
                        let place = if piece.place.is_some() { PLACE } else { 0 };
                        assert!(piece.bytes.len() + place + PADDED_OVERHEAD - 2 <= room.max(LEAST));
                        piece.bytes.to_vec()
                    })
                    .collect();
                assert_eq!(all, datagram, "{length} in {room}");
            }
        }
    }

    fn datagram(number: u64, flow: u16, part: Option<u8>) -> Datagram {
        Datagram::new(flow, number, part, &[number as u8])
    }

    #[test]
    fn parts_are_joined_only_one_behind_the_other() {
        let mut joiner = Joiner::default();
        let mut come = |number, flow, part| {
            joiner.take(datagram(number, flow, part)).map(|whole| whole.bytes().to_vec())
        };
        assert_eq!(come(0, 1, None), Some(vec![0]));
        assert_eq!(come(1, 1, Some(0)), None);
        assert_eq!(come(2, 1, Some(1)), None);
        assert_eq!(come(3, 1, Some(2 | LAST)), Some(vec![1, 2, 3]));
        // A missing part, a part of another flow, a part without its predecessors, and a whole
        // datagram as one part.
        assert_eq!((come(4, 1, Some(0)), come(6, 1, Some(1 | LAST))), (None, None));
        assert_eq!((come(7, 1, Some(0)), come(8, 2, Some(1 | LAST))), (None, None));
        assert_eq!((come(9, 1, Some(1 | LAST)), come(10, 1, Some(LAST))), (None, Some(vec![10])));
        // A first part replaces an earlier first part.
        assert_eq!((come(11, 1, Some(0)), come(12, 1, Some(0))), (None, None));
        assert_eq!(come(13, 1, Some(1 | LAST)), Some(vec![12, 13]));
    }
}
