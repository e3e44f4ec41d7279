//! The UDP sockets at which a relay's QUIC links come in: at each address one for each shard, among
//! which the kernel shares packets out by the connection IDs to which they are sent. So a QUIC link
//! comes to the shard that has the TLS link beside it, and stays there whatever a NAT does to the
//! neighbour's port.

use std::io;
use std::net::SocketAddr;

use anabranch_os::udp::{UdpOptions, UdpSocket};
use libc::{BPF_ABS, BPF_ALU, BPF_B, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_MOD, BPF_RET};

use super::Place;

/// BPF_A of `linux/bpf_common.h`: what is given back is in the accumulator.
const A: u32 = 0x10;
/// Of a packet's first byte (RFC 8999): its header is long.
const LONG: u32 = 0x80;
/// Where the connection ID begins to which a packet is sent: in a long header, behind the version
/// and its length; in a short one.
const ID_IN_LONG: u32 = 6;
const ID_IN_SHORT: u32 = 1;

/// A shard's sockets at all addresses, and its place among the others of each.
pub(in crate::onion) struct QuicSockets {
    pub(super) sockets: Vec<UdpSocket>,
    pub(super) place: Place,
}

/// The sockets of each of so many shards. Where the kernel cannot share packets out as said, it
/// goes by their addresses, and QUIC links may come to another shard than the link beside them.
///
/// # Errors
/// An address cannot be had (it is named).
pub(in crate::onion) fn sockets(at: &[SocketAddr], shards: usize) -> io::Result<Vec<QuicSockets>> {
    let place = |nth| QuicSockets { sockets: Vec::new(), place: Place::new(nth, shards) };
    let mut all: Vec<QuicSockets> = (0..shards).map(place).collect();
    for address in at {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("UDP {address}: {error}"));
        for (socket, of) in group(*address, shards).map_err(named)?.into_iter().zip(&mut all) {
            of.sockets.push(socket);
        }
    }
    Ok(all)
}

/// Sockets at one address, in the order of shards.
fn group(mut at: SocketAddr, shards: usize) -> io::Result<Vec<UdpSocket>> {
    let options = UdpOptions { share_port: true, error_queue: false, ..UdpOptions::default() };
    let mut group = Vec::new();
    for _ in 0..shards {
        let socket = UdpSocket::bind(at, &options)?;
        at = socket.local_addr()?;
        group.push(socket);
    }
    if let (Some(first), Ok(of @ 2..)) = (group.first(), u8::try_from(shards)) {
        // An old kernel goes by addresses.
        let _ = first.choose_by(&program(of));
    }
    Ok(group)
}

/// As [`Place::has`]: the rest of the connection ID's first byte, divided by the number of sockets.
/// A packet that is too short for one goes to the first.
fn program(of: u8) -> [libc::sock_filter; 7] {
    let load = BPF_LD | BPF_B | BPF_ABS;
    [
        step(load, 0, [0, 0]),
        step(BPF_JMP | BPF_JSET | BPF_K, LONG, [0, 2]),
        step(load, ID_IN_LONG, [0, 0]),
        step(BPF_JMP, 1, [0, 0]),
        step(load, ID_IN_SHORT, [0, 0]),
        step(BPF_ALU | BPF_MOD | BPF_K, u32::from(of), [0, 0]),
        step(BPF_RET | A, 0, [0, 0]),
    ]
}

fn step(code: u32, k: u32, [jt, jf]: [u8; 2]) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}
