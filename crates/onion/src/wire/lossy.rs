//! The content of lossy cells (sent in datagrams), and the first message that each direction of a
//! stream sends in them (`docs/spec/lossy-circuits.md#streams`).

use std::net::{IpAddr, Ipv4Addr};

use anabranch_tcp::{Segment, Seq};

use super::cell::{BODY, Body};
use super::conflux::SetNonce;
use super::message::{DATA, RelayCommand};
use crate::crypto::lossy::ZEROS;

/// Size in bytes of the length field that precedes a segment in a cell.
const LENGTH: usize = 2;
/// Maximum length in bytes of a segment with its header: the cell's body, less the zeros at its
/// start and the length field.
const SEGMENT: usize = BODY - ZEROS - LENGTH;
/// Number of bytes of a TCP header without options (RFC 9293, section 3.1).
const TCP_HEADER: usize = 20;
/// Maximum segment size in bytes of TCP inside lossy cells, which are sent in datagrams (RFC 9293,
/// section 3.7.1). As in UDP-OR, a segment must fit into one lossy cell.
pub const MSS: u16 = (SEGMENT - TCP_HEADER) as u16;
/// Length in bytes of the header of a stream's first message in either direction: command and
/// length.
pub const HEAD: usize = 3;
/// IP address that both ends assume in the checksum of TCP segments. Inside a circuit, segments
/// carry no addresses.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Error: the first message of a stream in one direction is longer than a relay message may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Length in bytes of one SACK block after a TCP segment in a lossy cell (sent in a datagram): two
/// sequence numbers.
const BLOCK: usize = 8;

/// Returns the body of a cell that contains `segment`. SACK blocks beyond the limit of TCP's
/// options follow the segment, as far as there is room. The caller encrypts the body.
///
/// # Panics
/// If the segment with its header does not fit into a cell. Without options, up to [`MSS`] bytes
/// of payload fit.
#[must_use]
pub fn put_segment(segment: &Segment) -> Body {
    let mut bytes = Vec::with_capacity(BODY);
    segment.write(NOWHERE, NOWHERE, &mut bytes);
    let mut body = [0; BODY];
    let content = &mut body[ZEROS..];
    content[..LENGTH].copy_from_slice(&(bytes.len() as u16).to_be_bytes());
    let (place, rest) = content[LENGTH..].split_at_mut(bytes.len());
    place.copy_from_slice(&bytes);
    for ((start, end), place) in segment.more_blocks.iter().zip(rest.as_chunks_mut::<BLOCK>().0) {
        let [start, end] = [start, end].map(|seq| seq.0.to_be_bytes());
        place.copy_from_slice(&[start, end].concat());
    }
    body
}

/// Parses the segment in a decrypted cell. Returns `None` if there is none, or if the segment's
/// two ports are not the same stream ID.
#[must_use]
pub fn read_segment(body: &Body) -> Option<Segment> {
    let (length, rest) = body[ZEROS..].split_first_chunk()?;
    let (bytes, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let mut segment = Segment::parse(bytes).ok()?;
    if !segment.options.sack.as_slice().is_empty() {
        segment.more_blocks = rest.as_chunks().0.iter().map_while(read_block).collect();
    }
    (segment.source != 0 && segment.source == segment.destination).then_some(segment)
}

/// Parses one of the SACK blocks after a segment in a cell. Returns `None` for an empty block,
/// which ends the list.
fn read_block(bytes: &[u8; BLOCK]) -> Option<(Seq, Seq)> {
    let number = |from: usize| Some(Seq(u32::from_be_bytes(*bytes[from..].first_chunk()?)));
    let block = (number(0)?, number(4)?);
    (block.0 != block.1).then_some(block)
}

/// Returns the first message of a stream in one direction: `command`, the length of `data`, and
/// `data`.
///
/// # Panics
/// If `data` is longer than 65,535 bytes.
#[must_use]
pub fn put_head(command: RelayCommand, data: &[u8]) -> Vec<u8> {
    let length =
        u16::try_from(data.len()).expect("the data of a relay message is shorter than 64 KiB");
    [&[command.0][..], &length.to_be_bytes(), data].concat()
}

/// Parses the first message of a stream in one direction. `front` and `back` are the bytes
/// received so far, in two consecutive parts. Returns `None` if the message has not arrived
/// completely.
///
/// # Errors
/// Returns [`TooLong`] if the message is longer than a relay message.
pub fn read_head(
    (front, back): (&[u8], &[u8]),
) -> Result<Option<(RelayCommand, Vec<u8>)>, TooLong> {
    let bytes: Vec<u8> = front.iter().chain(back).take(HEAD + DATA).copied().collect();
    let Some((&[command, high, low], rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > DATA {
        return Err(TooLong);
    }
    Ok(rest.get(..length).map(|data| (RelayCommand(command), data.to_vec())))
}

/// Maximum length in bytes of the text [`LossyLink::dealing`].
const DEALING: usize = 200;

/// The data of LOSSY_LINK, which makes a lossy circuit (whose cells travel in datagrams) part of a
/// set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossyLink {
    /// The nonce of the set of circuits.
    pub nonce: SetNonce,
    /// The scheduler that the client requests for the cells that it receives on a set of circuits,
    /// and the number of consecutive cells on one circuit, such as `round-robin 1p`.
    pub dealing: String,
}

impl LossyLink {
    /// Parses the data of LOSSY_LINK: the nonce, followed by the text [`LossyLink::dealing`].
    /// Returns `None` if the data is truncated, or the text is too long or not UTF-8.
    #[must_use]
    pub fn read(data: &[u8]) -> Option<LossyLink> {
        let (&nonce, text) = data.split_first_chunk::<32>()?;
        let text = str::from_utf8(text).ok().filter(|text| text.len() <= DEALING)?;
        Some(LossyLink { nonce: nonce.into(), dealing: text.to_owned() })
    }

    /// Returns the data of LOSSY_LINK; `None` if the text in `dealing` is too long.
    #[must_use]
    pub fn write(&self) -> Option<Vec<u8>> {
        let text = Some(self.dealing.as_bytes()).filter(|text| text.len() <= DEALING)?;
        Some([self.nonce.bytes(), text].concat())
    }
}

#[cfg(test)]
mod tests {
    use anabranch_tcp::Flags;

    use super::*;

    fn segment(payload: usize) -> Segment {
        Segment {
            source: 7,
            destination: 7,
            seq: Seq(u32::MAX),
            flags: Flags::ACK,
            payload: vec![9; payload],
            ..Segment::default()
        }
    }

    #[test]
    fn a_segment_of_the_largest_size_fits_and_comes_back() {
        for payload in [0, 1, MSS.into()] {
            let body = put_segment(&segment(payload));
            assert_eq!(body[..ZEROS], [0; ZEROS]);
            assert_eq!(read_segment(&body), Some(segment(payload)));
        }
        assert_eq!(MSS, 471);
    }

    #[test]
    fn sack_blocks_beyond_the_options_follow_the_segment() {
        let block = |n: u32| (Seq(10 * n), Seq(10 * n + 5));
        let mut acknowledges = segment(0);
        acknowledges.options.sack.push(block(1).0, block(1).1);
        acknowledges.more_blocks = (2..30).map(block).collect();
        assert_eq!(read_segment(&put_segment(&acknowledges)), Some(acknowledges.clone()));
        acknowledges.more_blocks = (2..90).map(block).collect();
        let read = read_segment(&put_segment(&acknowledges)).unwrap();
        let kept = (SEGMENT - acknowledges.wire_length()) / BLOCK;
        assert_eq!(read.more_blocks, acknowledges.more_blocks[..kept]);
        // If the TCP options contain no SACK blocks, the rest of the cell is ignored.
        let mut body = put_segment(&segment(3));
        body[BODY - 2 * BLOCK..].fill(7);
        assert_eq!(read_segment(&body), Some(segment(3)));
    }

    #[test]
    fn a_length_beyond_the_cell_or_unequal_ports_are_no_segment() {
        let mut body = put_segment(&segment(3));
        body[ZEROS] = 2;
        assert_eq!(read_segment(&body), None);
        assert_eq!(read_segment(&[0; BODY]), None);
        let mut body = put_segment(&segment(3));
        body[ZEROS + LENGTH + 1] = 8;
        assert_eq!(read_segment(&body), None);
        let nobodys = Segment { source: 0, destination: 0, ..segment(3) };
        assert_eq!(read_segment(&put_segment(&nobodys)), None);
    }

    #[test]
    fn a_request_to_link_is_read_as_it_was_written() {
        let nonce = SetNonce::from([5; 32]);
        let link = LossyLink { nonce, dealing: "round-robin 1p".to_owned() };
        let data = link.write().unwrap();
        assert_eq!(LossyLink::read(&data), Some(link));
        assert!((0..32).all(|cut| LossyLink::read(&data[..cut]).is_none()));
        assert_eq!(LossyLink::read(&[0xff; 40]), None, "no UTF-8");
        let long = LossyLink { nonce, dealing: "x".repeat(DEALING + 1) };
        assert_eq!(long.write(), None);
        assert_eq!(LossyLink::read(&[b'x'; 32 + DEALING + 1]), None);
    }

    #[test]
    fn a_first_message_is_read_wherever_it_is_cut() {
        let mut bytes = put_head(RelayCommand::BEGIN, b"data");
        bytes.extend(b"more");
        for cut in 0..bytes.len() {
            for whole in 0..=bytes.len() {
                let (front, back) = bytes[..whole].split_at(cut.min(whole));
                let wanted = (whole >= HEAD + 4).then(|| (RelayCommand::BEGIN, b"data".to_vec()));
                assert_eq!(read_head((front, back)), Ok(wanted), "{cut} of {whole}");
            }
        }
        let longest = put_head(RelayCommand::BEGIN, &[0; DATA]);
        assert!(read_head((&longest, &[])).unwrap().is_some());
        let longer = put_head(RelayCommand::BEGIN, &[0; DATA + 1]);
        assert_eq!(read_head((&longer, &[])), Err(TooLong));
    }
}
