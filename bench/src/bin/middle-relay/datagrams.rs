//! Datagrams between the relay and a neighbour: in memory, or through sockets.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use anabranch_links::quic::{Arrival, Packets};
use anabranch_os::udp::{Datagrams, RecvBatch, SendQueue, UdpOptions, UdpSocket};

/// Maximum number of messages received with one system call, as in the relay.
const MESSAGES: usize = 16;

/// A line between a neighbour (end 0) and the relay (end 1).
pub(super) enum Line {
    /// Datagrams on their way to each end, and empty buffers.
    Memory { ways: [VecDeque<(Packets, Vec<u8>)>; 2], spare: Vec<Vec<u8>> },
    /// A socket of each end.
    Sockets { sockets: [UdpSocket; 2], received: RecvBatch, queue: SendQueue },
}

impl Line {
    pub(super) fn in_memory() -> Line {
        Line::Memory { ways: Default::default(), spare: Vec::new() }
    }

    pub(super) fn through_sockets() -> io::Result<Line> {
        let options = UdpOptions { error_queue: false, ..UdpOptions::default() };
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), &options);
        let sockets = [bind()?, bind()?];
        Ok(Line::Sockets { sockets, received: RecvBatch::new(MESSAGES), queue: SendQueue::new() })
    }

    /// Returns the address of an end.
    pub(super) fn address(&self, end: usize) -> io::Result<SocketAddr> {
        match self {
            Line::Memory { .. } => Ok(in_memory(end)),
            Line::Sockets { sockets, .. } => sockets[end].local_addr(),
        }
    }

    /// Returns the socket of an end; `None` in memory.
    pub(super) fn socket(&self, end: usize) -> Option<&UdpSocket> {
        match self {
            Line::Memory { .. } => None,
            Line::Sockets { sockets, .. } => Some(&sockets[end]),
        }
    }

    /// Returns whether datagrams wait at an end in memory.
    pub(super) fn holds(&self, end: usize) -> bool {
        matches!(self, Line::Memory { ways, .. } if !ways[end].is_empty())
    }

    /// Sends datagrams from an end. In memory, `bytes` is replaced by an empty buffer. Datagrams
    /// for which a socket has no room are lost.
    pub(super) fn send(&mut self, end: usize, packets: Packets, bytes: &mut Vec<u8>) {
        match self {
            Line::Memory { ways, spare } => {
                let empty = spare.pop().unwrap_or_default();
                ways[1 - end].push_back((packets, std::mem::replace(bytes, empty)));
            }
            Line::Sockets { sockets, queue, .. } => {
                let Packets { to, source, ecn, stride } = packets;
                let mut batch = queue.batch(&sockets[end]);
                batch.push(Datagrams { bytes, stride, ecn, to: Some(to), source });
                batch.send();
            }
        }
    }

    /// Passes the datagrams that wait at an end to `take`. The datagrams of a call have one source
    /// and one length; the last may be shorter.
    pub(super) fn receive(&mut self, end: usize, mut take: impl FnMut(Arrival<'_>, usize)) {
        match self {
            Line::Memory { ways, spare } => {
                while let Some((packets, bytes)) = ways[end].pop_front() {
                    let stride = if packets.stride == 0 { bytes.len() } else { packets.stride };
                    let (from, ecn) = (in_memory(1 - end), packets.ecn);
                    take(Arrival { from, to: None, ecn, bytes: &bytes }, stride);
                    spare.push(bytes);
                }
            }
            Line::Sockets { sockets, received, .. } => {
                let Ok(batch) = received.recv(&sockets[end]) else { return };
                for run in batch {
                    let (from, to, ecn, bytes) = (run.from, run.to, run.ecn, run.bytes);
                    take(Arrival { from, to, ecn, bytes }, run.stride);
                }
            }
        }
    }
}

/// Returns the address of an end in memory.
fn in_memory(end: usize) -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, 1 + end as u8), 9001).into()
}
