//! A censor's inspection of any packets, any start of a TLS connection, and any frames in a
//! client's first QUIC packet.

use std::net::SocketAddr;

use anabranch_emulator::censor::Censor;
use anabranch_os::packet::write;
use rustls::Side;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{Keys, Version};

const ID: &[u8; 8] = b"a client";

/// Checks an input. The first byte selects its form: packets, each preceded by its length; a TCP
/// stream in pieces; or frames.
pub fn check(input: &[u8]) {
    let Some((&kind, rest)) = input.split_first() else { return };
    let mut censor = Censor::new(["blocked.example".to_owned()]);
    match kind % 3 {
        0 => pieces(rest).for_each(|packet| {
            censor.pass(packet);
        }),
        1 => {
            assert!(censor.pass(&tcp(6, true, &[])), "a connection may begin");
            let mut next = 7u32;
            for piece in pieces(rest) {
                censor.pass(&tcp(next, false, piece));
                next = next.wrapping_add(piece.len() as u32);
            }
        }
        _ => {
            let datagram = initial(rest);
            let (from, to): (SocketAddr, SocketAddr) = ends();
            let mut packet = Vec::new();
            if write(&mut packet, from, to, 0, &datagram).is_ok() {
                censor.pass(&packet);
            }
        }
    }
}

fn ends() -> (SocketAddr, SocketAddr) {
    (([10, 0, 0, 2], 4000).into(), ([10, 0, 0, 1], 443).into())
}

/// Returns the pieces of a script, each preceded by its length in two bytes.
fn pieces(mut script: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = script.split_first_chunk()?;
        let (piece, tail) = rest.split_at(usize::from(u16::from_be_bytes(*length)).min(rest.len()));
        script = tail;
        Some(piece)
    })
}

/// Returns a TCP segment in an IPv4 packet; checksums are not verified here.
fn tcp(sequence: u32, syn: bool, payload: &[u8]) -> Vec<u8> {
    let length = (40 + payload.len()).min(65_535) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1, 0x0f, 0xa0, 0x01, 0xbb]);
    packet.extend(sequence.to_be_bytes());
    packet.extend([0, 0, 0, 0, 0x50, if syn { 2 } else { 16 }, 0xff, 0xff, 0, 0, 0, 0]);
    packet.extend(&payload[..usize::from(length) - 40]);
    packet
}

/// Returns a client's Initial packet with these frames (RFC 9001, section 5).
fn initial(frames: &[u8]) -> Vec<u8> {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().expect("a suite of TLS 1.3");
    let quic = suite.quic.expect("ring's suites can be QUIC's");
    let keys = Keys::initial(Version::V1, suite, quic, ID, Side::Client).local;
    let mut frames = frames[..frames.len().min(1200)].to_vec();
    frames.resize(frames.len().max(64), 0);
    let length = (4 + frames.len() + keys.packet.tag_len()) as u32 | 0x8000_0000;
    let mut packet =
        [&[0xc3, 0, 0, 0, 1, 8][..], ID, &[0, 0], &length.to_be_bytes(), &[0; 4]].concat();
    let number_at = packet.len() - 4;
    let tag =
        keys.packet.encrypt_in_place(0, &packet, &mut frames).expect("any frames can be sealed");
    packet.extend(frames);
    packet.extend(tag.as_ref());
    let sample = packet[number_at + 4..number_at + 20].to_vec();
    let (first, rest) = packet.split_first_mut().expect("it has a header");
    let number = &mut rest[number_at - 1..number_at + 3];
    keys.header.encrypt_in_place(&sample, first, number).expect("a sample of the right length");
    packet
}
