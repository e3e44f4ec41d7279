//! Decryption of a client's first QUIC packets. Any observer on the path can do this, because the
//! keys depend only on public data (RFC 9001, section 5.2; RFC 9369).

use std::fmt;

use rustls::Side;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{DirectionalKeys, Keys, Version};

/// Header form bit of a long header (RFC 9000, section 17.2).
const LONG: u8 = 0x80;
/// The "fixed bit", which is set in every QUIC packet (RFC 9000, section 17.2).
const FIXED: u8 = 0x40;
/// Maximum length of a QUIC connection ID in bytes (RFC 9000, section 17.2).
const LONGEST_ID: usize = 20;
/// Length in bytes of the sample of ciphertext for QUIC header protection (RFC 9001, section
/// 5.4.2).
const SAMPLE: usize = 16;

/// The keys that protect a client's Initial packets. They are derived from the destination
/// connection ID of the client's first packet.
pub(super) struct ClientKeys(DirectionalKeys);

/// An Initial packet of the client or the server.
pub(super) struct Initial<'a> {
    packet: &'a [u8],
    header: Header<'a>,
}

/// The unencrypted parts of a packet's long header.
struct Header<'a> {
    kind: Kind,
    version: Version,
    /// Destination connection ID. The receiver chooses it, except in a client's first packets,
    /// where the client chooses it.
    destination: &'a [u8],
    /// Offset of the packet number in the datagram.
    number_at: usize,
    /// Offset in the datagram of the first byte after the packet.
    end: usize,
}

/// Types of QUIC packets whose long header contains the packet's length.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Initial,
    /// A 0-RTT or Handshake packet.
    Other,
}

/// Returns the QUIC Initial packets of a datagram. Skips other packets before and between them.
pub(super) fn packets(mut datagram: &[u8]) -> impl Iterator<Item = Initial<'_>> {
    let next = move || {
        let header = header(datagram)?;
        let (packet, rest) = datagram.split_at(header.end);
        datagram = rest;
        Some(Initial { packet, header })
    };
    std::iter::from_fn(next).filter(|packet| packet.header.kind == Kind::Initial)
}

impl Initial<'_> {
    /// Derives the keys of the QUIC connection from this packet, which must be a client's first
    /// packet. Returns `None` if the TLS library lacks the cipher suite of Initial packets.
    pub(super) fn keys(&self) -> Option<ClientKeys> {
        let suite = TLS13_AES_128_GCM_SHA256.tls13()?;
        let Header { version, destination, .. } = self.header;
        Some(ClientKeys(
            Keys::initial(version, suite, suite.quic?, destination, Side::Server).remote,
        ))
    }

    /// Decrypts the packet, and returns its frames. Returns `None` if the packet is not from the
    /// client that `keys` belong to.
    pub(super) fn open(&self, keys: &ClientKeys) -> Option<Vec<u8>> {
        open(self.packet, &self.header, &keys.0)
    }
}

impl fmt::Debug for ClientKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientKeys").finish_non_exhaustive()
    }
}

/// Parses the header of the first packet of a datagram. Returns `None` if the header is malformed,
/// or if the type of the packet is not in [`Kind`].
fn header(datagram: &[u8]) -> Option<Header<'_>> {
    let first = *datagram.first()?;
    let version = u32::from_be_bytes(datagram.get(1..5)?.try_into().ok()?);
    // Version 2 assigns other numbers to the packet types (RFC 9369, section 3.2).
    let (version, initial) = match version {
        1 => (Version::V1, 0b00),
        0x6b33_43cf => (Version::V2, 0b01),
        _ => return None,
    };
    if first & (LONG | FIXED) != LONG | FIXED {
        return None;
    }
    let kind = match (first >> 4).wrapping_sub(initial) & 0b11 {
        0 => Kind::Initial,
        1 | 2 => Kind::Other,
        _ => return None,
    };
    let (destination, at) = counted(datagram, 5)?;
    let (source, at) = counted(datagram, at)?;
    if destination.len() > LONGEST_ID || source.len() > LONGEST_ID {
        return None;
    }
    let at = if kind == Kind::Initial { behind_token(datagram, at)? } else { at };
    let (length, number_at) = number(datagram, at)?;
    let end = number_at.checked_add(usize::try_from(length).ok()?)?;
    let enough = end <= datagram.len() && end - number_at >= 4 + SAMPLE;
    enough.then_some(Header { kind, version, destination, number_at, end })
}

fn behind_token(datagram: &[u8], at: usize) -> Option<usize> {
    let (length, at) = number(datagram, at)?;
    at.checked_add(usize::try_from(length).ok()?)
}

/// Decrypts a packet; returns `None` if `keys` are not those of the packet's connection.
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
    // The first packet numbers are sent either in full, or shortened only by leading zero bytes.
    Some(keys.packet.decrypt_in_place(number, &head, &mut body[length..]).ok()?.to_vec())
}

/// Passes each CRYPTO frame of a packet to `take`, with the frame's offset in the stream. Skips
/// the other types of frames that an Initial packet may contain.
pub(super) fn crypto_frames(frames: &[u8], mut take: impl FnMut(u64, &[u8])) {
    let mut at = 0;
    while let Some(next) = frame(frames, at, &mut take) {
        at = next;
    }
}

/// Parses the QUIC frame at offset `at`, and passes a CRYPTO frame to `take`. Returns the offset
/// of the next frame. Returns `None` at the end of the packet, or if the frame is malformed or of
/// an unknown type.
fn frame(frames: &[u8], at: usize, take: &mut impl FnMut(u64, &[u8])) -> Option<usize> {
    match *frames.get(at)? {
        0 | 1 => Some(at + 1),
        kind @ (2 | 3) => {
            let (_, at) = number(frames, at + 1)?;
            let (_, at) = number(frames, at)?;
            let (ranges, mut at) = number(frames, at)?;
            // An ACK frame has a first range, then pairs of gap and range, and for type 3 the
            // three ECN counts.
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
            take(offset, frames.get(start..end)?);
            Some(end)
        }
        _ => None,
    }
}

/// Parses a byte string that follows a one-byte length at offset `at`. Returns the string and the
/// offset after it; `None` if `bytes` is too short.
fn counted(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let end = at + 1 + usize::from(*bytes.get(at)?);
    Some((bytes.get(at + 1..end)?, end))
}

/// Parses the variable-length integer of QUIC (RFC 9000, section 16) at offset `at`. Returns the
/// integer and the offset after it; `None` if `bytes` is too short.
fn number(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let first = *bytes.get(at)?;
    let end = at + (1 << (first >> 6));
    let rest = bytes.get(at + 1..end)?;
    let whole = rest.iter().fold(u64::from(first & 0x3f), |n, &byte| n << 8 | u64::from(byte));
    Some((whole, end))
}
