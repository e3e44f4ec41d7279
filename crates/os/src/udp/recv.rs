//! Reception of datagrams, with one `recvmmsg` into reusable buffers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::slice;

use super::send::Datagrams;
use super::socket::UdpSocket;
use super::sys::{self, Arrival};

/// Size of one buffer in bytes. It exceeds any UDP payload, even the payload of several datagrams
/// that the kernel has joined (UDP GRO).
const SLOT: usize = 65_536;

/// One or more datagrams from one sender, which the kernel may have joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// Address of the datagrams' sender.
    pub from: SocketAddr,
    /// The local address that the datagrams were sent to. An answer should be sent from this
    /// address. `None` for connected sockets.
    pub to: Option<IpAddr>,
    /// ECN bits of the datagrams (RFC 3168), 0 to 3.
    pub ecn: u8,
    /// Length in bytes of each datagram; the last one may be shorter.
    pub stride: usize,
    /// The datagrams, one directly after the other. Empty if there is one datagram without
    /// payload.
    pub bytes: &'a [u8],
}

impl<'a> Received<'a> {
    /// Returns the number of datagrams, at least 1.
    pub fn count(&self) -> usize {
        self.bytes.len().div_ceil(self.stride.max(1)).max(1)
    }

    /// Returns the datagrams, in order.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (bytes, stride) = (self.bytes, self.stride.max(1));
        (0..self.count()).map(move |i| {
            let start = i * stride;
            &bytes[start..bytes.len().min(start + stride)]
        })
    }

    /// Splits these datagrams into the first `datagrams` and the rest. A part without datagrams is
    /// `None`.
    pub fn split_at(self, datagrams: usize) -> (Option<Self>, Option<Self>) {
        if datagrams == 0 {
            return (None, Some(self));
        }
        match self.bytes.split_at_checked(datagrams.saturating_mul(self.stride)) {
            Some((head, tail)) if !tail.is_empty() => {
                (Some(Self { bytes: head, ..self }), Some(Self { bytes: tail, ..self }))
            }
            _ => (Some(self), None),
        }
    }

    /// Returns these datagrams in the form that [`SendBatch::push`](super::SendBatch::push)
    /// accepts, without addresses, to forward them on a connected socket.
    pub fn onward(&self) -> Datagrams<'a> {
        let Self { bytes, stride, ecn, .. } = *self;
        Datagrams { bytes, stride, ecn, to: None, source: None }
    }
}

/// The reception buffers of one thread.
///
/// Each buffer takes 64 KiB of address space. Memory is used only as far as datagrams have filled
/// it.
#[derive(Debug)]
pub struct RecvBatch {
    buffers: Box<[u8]>,
    arrivals: Vec<Arrival>,
}

impl RecvBatch {
    /// Creates buffers for up to `messages` messages (1 to 64) per call of [`RecvBatch::recv`]. A
    /// message is one datagram, or several datagrams that the kernel has joined.
    #[must_use]
    pub fn new(messages: usize) -> Self {
        let messages = messages.clamp(1, sys::MESSAGES);
        Self {
            buffers: vec![0; messages * SLOT].into_boxed_slice(),
            arrivals: Vec::with_capacity(messages),
        }
    }

    /// Returns the maximum number of messages that one call of [`RecvBatch::recv`] returns. If a
    /// call returns fewer messages, no further ones wait at the socket.
    pub fn capacity(&self) -> usize {
        self.buffers.len() / SLOT
    }

    /// Receives the waiting messages with one system call.
    ///
    /// # Errors
    /// `WouldBlock` if no message waits. On a connected socket, the error may also belong to a
    /// datagram sent earlier; see [`Fault::from_io`](super::Fault::from_io). An error of an
    /// earlier datagram is cleared when it is returned, so call this function again.
    pub fn recv<'a>(&'a mut self, socket: &UdpSocket) -> io::Result<Batch<'a>> {
        sys::receive(socket.as_fd(), &mut self.buffers, SLOT, &mut self.arrivals)?;
        Ok(Batch { arrivals: self.arrivals.iter(), buffers: self.buffers.chunks_exact(SLOT) })
    }
}

/// The messages that one call of [`RecvBatch::recv`] received, in order of arrival.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    arrivals: slice::Iter<'a, Arrival>,
    buffers: slice::ChunksExact<'a, u8>,
}

impl<'a> Iterator for Batch<'a> {
    type Item = Received<'a>;

    fn next(&mut self) -> Option<Received<'a>> {
        let arrival = self.arrivals.next()?;
        let bytes = &self.buffers.next()?[..arrival.len.min(SLOT)];
        let Arrival { from, to, ecn, .. } = *arrival;
        let stride = arrival.segment.filter(|&segment| segment > 0).unwrap_or(bytes.len());
        Some(Received { from, to, ecn, stride, bytes })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.arrivals.size_hint()
    }
}

impl ExactSizeIterator for Batch<'_> {}
