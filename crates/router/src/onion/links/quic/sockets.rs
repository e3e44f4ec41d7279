//! UDP sockets for a relay's incoming QUIC links: one socket for each address and each shard
//! (thread of the relay). The kernel distributes packets among the shards' sockets by destination
//! connection ID. So a QUIC link arrives at the shard of its TLS link, and stays at that shard
//! even if a NAT changes the other end's port.

use std::io;
use std::net::SocketAddr;

use anabranch_os::udp::{UdpOptions, UdpSocket};
use libc::{BPF_ABS, BPF_ALU, BPF_B, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_MOD, BPF_RET};

use super::SocketIndex;

/// Flag `BPF_A` of `linux/bpf_common.h` for the return instruction of a packet filter: the
/// accumulator is the filter's result.
const A: u32 = 0x10;
/// Bit of a packet's first byte that marks a long header (RFC 8999).
const LONG: u32 = 0x80;
/// Offset of the destination connection ID in a packet with a long header, after the version and
/// the length of the ID.
const ID_IN_LONG: u32 = 6;
/// Offset of the destination connection ID in a packet with a short header.
const ID_IN_SHORT: u32 = 1;

/// The sockets of one shard (thread of the relay), one for each address, and the index of the
/// shard.
pub(in crate::onion) struct QuicSockets {
    pub(super) sockets: Vec<UdpSocket>,
    pub(super) place: SocketIndex,
}

/// Creates the sockets of `shards` shards (threads of the relay) at the addresses `at`. A kernel
/// that cannot distribute packets by connection ID distributes them by address. A QUIC link may
/// then arrive at a different shard than its TLS link.
///
/// # Errors
/// An address cannot be bound. The error contains the address.
pub(in crate::onion) fn sockets(at: &[SocketAddr], shards: usize) -> io::Result<Vec<QuicSockets>> {
    let place = |nth| QuicSockets { sockets: Vec::new(), place: SocketIndex::new(nth, shards) };
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

/// Creates one socket for each shard (thread of the relay) at the address `at`, in the order of
/// the shards.
fn group(mut at: SocketAddr, shards: usize) -> io::Result<Vec<UdpSocket>> {
    let options = UdpOptions { share_port: true, error_queue: false, ..UdpOptions::default() };
    let mut group = Vec::new();
    for _ in 0..shards {
        let socket = UdpSocket::bind(at, &options)?;
        at = socket.local_addr()?;
        group.push(socket);
    }
    if let (Some(first), Ok(of @ 2..)) = (group.first(), u8::try_from(shards)) {
        // If this fails, the kernel is old and distributes packets by address.
        let _ = first.choose_by(&program(of));
    }
    Ok(group)
}

/// Returns the packet filter with which the kernel selects a socket, by the same rule as
/// [`SocketIndex::has`]. The rule takes the first byte of the connection ID modulo `of`, the
/// number of sockets. A packet without a connection ID goes to the first socket.
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
