//! Batches of datagrams as the four protocols send them, and others.

use anabranch_comps::Batch;
use anabranch_comps::protocol::quic::{VERSION_1, VERSION_2};

use crate::input::Input;

/// Maximum datagrams in one batch: enough to cross several runs.
const MOST: usize = 12;
/// Lengths that distinguish the protocols, and unusual ones.
const LENGTHS: [usize; 10] = [1200, 1350, 148, 92, 64, 32, 80, 38, 29, 1];

/// Owned datagrams of equal length, except the last.
pub(super) struct Datagrams {
    bytes: Vec<u8>,
    stride: usize,
    ecn: u8,
}

impl Datagrams {
    /// Reads a batch of the client, or an answer of the server.
    pub(super) fn read(script: &mut Input<'_>, is_answer: bool) -> Datagrams {
        let stride = script.pick(&LENGTHS);
        let count = 1 + script.below(MOST);
        let mut bytes = Vec::with_capacity(stride * count);
        for _ in 0..count {
            let mut datagram = datagram(script, stride, is_answer);
            datagram.resize(stride, 0);
            bytes.extend(datagram);
        }
        if script.below(4) == 3 {
            bytes.truncate(bytes.len() - script.below(stride.min(256)));
        }
        if script.below(32) == 31 {
            bytes.clear();
        }
        Datagrams { bytes, stride, ecn: script.byte() & 3 }
    }

    pub(super) fn batch(&self) -> Batch<'_> {
        Batch { bytes: &self.bytes, stride: self.stride, ecn: self.ecn }
    }
}

fn datagram(script: &mut Input<'_>, length: usize, is_answer: bool) -> Vec<u8> {
    let kind = script.byte();
    let mark = script.byte();
    match kind % 10 {
        0 => script.take(usize::from(mark)).to_vec(),
        1 => quic_long(0, mark, length, is_answer),
        2 => quic_long(2, mark, length, is_answer),
        3 | 4 => quic_short(mark, is_answer),
        5 => coalesced(mark, length, is_answer),
        6 => vec![1 + mark % 4, 0, 0, 0, mark],
        7 => vec![4, 0, 0, 0, mark],
        8 => dns(mark, length),
        _ => mosh(mark, is_answer),
    }
}

/// Returns destination and source ID of a packet on one of four connections. Half of the clients
/// have an empty ID, as is common.
fn ids(mark: u8, is_answer: bool) -> (Vec<u8>, Vec<u8>) {
    let client = if mark & 2 == 0 { vec![0xc0 | mark & 1; 4] } else { Vec::new() };
    let server = vec![0x50 | mark & 3; 8];
    if is_answer { (client, server) } else { (server, client) }
}

/// Returns a packet of `length` bytes, as far as it fits.
fn quic_long(bits: u8, mark: u8, length: usize, is_answer: bool) -> Vec<u8> {
    let version = if mark & 0x80 == 0 { VERSION_1 } else { VERSION_2 };
    let (to, from) = ids(mark, is_answer);
    let turned = if version == VERSION_2 { (bits + 1) % 4 } else { bits };
    let mut packet = vec![0xc0 | turned << 4];
    packet.extend(version.to_be_bytes());
    for id in [to, from] {
        packet.push(id.len() as u8);
        packet.extend(id);
    }
    packet.extend((bits == 0).then_some(0));
    let left = length.saturating_sub(packet.len() + 2) as u16;
    packet.extend((0x4000 | left & 0x3fff).to_be_bytes());
    packet.push(mark);
    packet
}

fn quic_short(mark: u8, is_answer: bool) -> Vec<u8> {
    [&[0x40 | mark & 0x1f], &ids(mark, is_answer).0[..], &[mark; 20]].concat()
}

fn coalesced(mark: u8, length: usize, is_answer: bool) -> Vec<u8> {
    let mut datagram = quic_long(0, mark, length / 2, is_answer);
    datagram.resize(length / 2, 0);
    datagram.extend(quic_long(2, mark, length / 4, is_answer));
    datagram.resize(length / 2 + length / 4, 0);
    datagram.extend(quic_short(mark, is_answer));
    datagram
}

/// Returns a query whose name fills `length` bytes, as far as names can.
fn dns(mark: u8, length: usize) -> Vec<u8> {
    let mut query = vec![mark, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let label = length.saturating_sub(query.len() + 6).min(63) as u8;
    query.push(label);
    query.resize(query.len() + usize::from(label), b'a');
    query.extend([0, 0, 1, 0, 1]);
    query
}

fn mosh(mark: u8, is_answer: bool) -> Vec<u8> {
    vec![u8::from(is_answer) << 7, 0, 0, 0, 0, 0, 0, mark, 0xa5, 0x5a]
}
