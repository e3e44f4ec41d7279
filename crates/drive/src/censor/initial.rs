//! A client's first QUIC packets, opened as anybody on the way can (RFC 9001, section 5.2; RFC 9369).

use std::fmt;

use rustls::Side;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{DirectionalKeys, Keys, Version};

use super::pieces::Pieces;

const LONG: u8 = 0x80;
const FIXED: u8 = 0x40;
const LONGEST_ID: usize = 20;
const SAMPLE: usize = 16;

/// The handshake of a client, as far as its Initial packets have shown it.
#[derive(Default)]
pub(super) struct Crypto {
    /// Derived from the destination of the client's first packet; a Retry makes another.
    keys: Option<DirectionalKeys>,
    pieces: Pieces,
}

/// The parts of a long header that lie open.
struct Header<'a> {
    version: Version,
    /// The connection ID that the client chose for the server.
    destination: &'a [u8],
    /// Where the packet number begins, and where the packet ends.
    number_at: usize,
    end: usize,
}

/// Whether a datagram begins with an Initial packet of a version that is known here.
pub(super) fn is_initial(datagram: &[u8]) -> bool {
    header(datagram).is_some()
}

impl Crypto {
    /// Opens the Initial packets of a datagram; what cannot be opened is left out.
    pub(super) fn take(&mut self, mut datagram: &[u8]) {
        while let Some(header) = header(datagram) {
            let (packet, rest) = datagram.split_at(header.end);
            let known = self.keys.as_ref().and_then(|keys| open(packet, &header, keys));
            let opened = known.or_else(|| {
                let keys = client_keys(header.version, header.destination)?;
                let frames = open(packet, &header, &keys)?;
                self.keys = Some(keys);
                Some(frames)
            });
            crypto_frames(&opened.unwrap_or_default(), &mut self.pieces);
            datagram = rest;
        }
    }

    /// The handshake's bytes from the first to the first gap.
    pub(super) fn front(&self) -> &[u8] {
        self.pieces.front()
    }

    pub(super) fn pieces(&self) -> &Pieces {
        &self.pieces
    }
}

impl fmt::Debug for Crypto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crypto").field("pieces", &self.pieces).finish_non_exhaustive()
    }
}

/// Reads the header of an Initial packet; `None` for all else.
fn header(datagram: &[u8]) -> Option<Header<'_>> {
    let first = *datagram.first()?;
    let version = u32::from_be_bytes(datagram.get(1..5)?.try_into().ok()?);
    let (version, initial) = match version {
        1 => (Version::V1, 0b00),
        0x6b33_43cf => (Version::V2, 0b01),
        _ => return None,
    };
    if first & (LONG | FIXED) != LONG | FIXED || first >> 4 & 0b11 != initial {
        return None;
    }
    let (destination, at) = counted(datagram, 5)?;
    let (source, at) = counted(datagram, at)?;
    if destination.len() > LONGEST_ID || source.len() > LONGEST_ID {
        return None;
    }
    let (token, at) = number(datagram, at)?;
    let at = at.checked_add(usize::try_from(token).ok()?)?;
    let (length, number_at) = number(datagram, at)?;
    let end = number_at.checked_add(usize::try_from(length).ok()?)?;
    let enough = end <= datagram.len() && end - number_at >= 4 + SAMPLE;
    enough.then_some(Header { version, destination, number_at, end })
}

/// What protects the packets of a client that chose `destination` for its server.
fn client_keys(version: Version, destination: &[u8]) -> Option<DirectionalKeys> {
    let suite = TLS13_AES_128_GCM_SHA256.tls13()?;
    Some(Keys::initial(version, suite, suite.quic?, destination, Side::Server).remote)
}

/// The frames of a packet, if `keys` are its own.
fn open(packet: &[u8], header: &Header<'_>, keys: &DirectionalKeys) -> Option<Vec<u8>> {
    let (mut head, mut body) =
        (packet[..header.number_at + 4].to_vec(), packet[header.number_at..].to_vec());
    let sample = body.get(4..4 + SAMPLE)?;
    let (first, rest) = head.split_first_mut()?;
    let number = &mut rest[header.number_at - 1..];
    keys.header.decrypt_in_place(sample, first, number).ok()?;
    let length = usize::from(*first & 0b11) + 1;
    let number = number[..length].iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
    head.truncate(header.number_at + length);
    // The first few packets' numbers are sent whole, or short of nothing but zeroes.
    Some(keys.packet.decrypt_in_place(number, &head, &mut body[length..]).ok()?.to_vec())
}

/// Takes the CRYPTO frames out of a packet; all others that may stand there are passed over.
fn crypto_frames(frames: &[u8], pieces: &mut Pieces) {
    let mut at = 0;
    while let Some(next) = frame(frames, at, pieces) {
        at = next;
    }
}

/// Takes in the frame at this place; where the next one begins.
fn frame(frames: &[u8], at: usize, pieces: &mut Pieces) -> Option<usize> {
    match *frames.get(at)? {
        0 | 1 => Some(at + 1),
        kind @ (2 | 3) => {
            let (_, at) = number(frames, at + 1)?;
            let (_, at) = number(frames, at)?;
            let (ranges, mut at) = number(frames, at)?;
            // The first range, pairs of gap and range, and with 3 three counts of ECN.
            let numbers = ranges.checked_mul(2)?.checked_add(if kind == 3 { 4 } else { 1 })?;
            for _ in 0..numbers {
                at = number(frames, at)?.1;
            }
            Some(at)
        }
        6 => {
            let (offset, start) = number(frames, at + 1)?;
            let (length, start) = number(frames, start)?;
            let end = start.checked_add(usize::try_from(length).ok()?)?;
            pieces.take(offset, frames.get(start..end)?);
            Some(end)
        }
        _ => None,
    }
}

/// Bytes behind their length in one byte, and what comes after.
fn counted(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let end = at + 1 + usize::from(*bytes.get(at)?);
    Some((bytes.get(at + 1..end)?, end))
}

/// A number of variable length (RFC 9000, section 16), and what comes after.
fn number(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let first = *bytes.get(at)?;
    let end = at + (1 << (first >> 6));
    let rest = bytes.get(at + 1..end)?;
    let whole = rest.iter().fold(u64::from(first & 0x3f), |n, &byte| n << 8 | u64::from(byte));
    Some((whole, end))
}
