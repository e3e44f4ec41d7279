//! A middlebox that, like a censor, drops connections by the server name in their ClientHello.
//!
//! The module decides for each IP packet whether it may pass. For QUIC (versions 1 and 2), the
//! keys of a client's first packets are derived from data that any observer on the path can read
//! (RFC 9001, section 5.2; RFC 9369). The CRYPTO frames of several packets are reassembled until
//! the ClientHello is readable. For TLS over TCP, the client's first segments are reassembled. A
//! blocked name also blocks all of its subdomains. Once a connection is blocked, all of its
//! packets are dropped in both directions. As with real censors, the packets before the block have
//! passed.
//!
//! A pair of addresses with ports may serve several connections. TCP connections follow one
//! another: a SYN begins a new connection, unless it is a retransmission of the last SYN. QUIC
//! connections may exist at the same time (`quic.rs`), and each is judged by its own ClientHello.
//!
//! The module does no I/O. It does not handle fragments of IP packets, nor IP options that hide a
//! header. It does not follow QUIC connections that migrate to other ports either: a block applies
//! to the addresses and ports of the ClientHello.

mod hello;
mod initial;
mod pieces;
mod quic;
mod start;
mod tcp;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use quic::Quic;
use start::Names;
use tcp::{Segment, Tcp};

/// Maximum number of flows (combinations of two addresses, two ports and a protocol) that are
/// remembered. If there are more, the oldest flow is evicted.
const FLOWS: usize = 65_536;

/// A filter that blocks connections by their server name.
#[derive(Debug)]
pub struct Censor {
    blocked: Names,
    flows: BTreeMap<Flow, State>,
    oldest: VecDeque<Flow>,
    dropped: u64,
}

/// The addresses and ports of a flow's two ends, in ascending order, and whether the protocol is
/// UDP.
type Flow = (SocketAddr, SocketAddr, bool);

#[derive(Debug)]
enum State {
    Tcp(Tcp),
    Quic(Quic),
}

/// The parsed fields of an IP packet that carries UDP or TCP.
struct Packet<'a> {
    from: SocketAddr,
    to: SocketAddr,
    content: Content<'a>,
}

enum Content<'a> {
    Udp(&'a [u8]),
    Tcp(Segment<'a>),
}

impl Censor {
    /// Creates a filter that blocks the server names in `blocked` and all of their subdomains.
    pub fn new(blocked: impl IntoIterator<Item = String>) -> Censor {
        let blocked = Names::new(blocked);
        Censor { blocked, flows: BTreeMap::new(), oldest: VecDeque::new(), dropped: 0 }
    }

    /// Returns whether an IP packet may pass.
    pub fn pass(&mut self, packet: &[u8]) -> bool {
        let Some(packet) = dissect(packet) else { return true };
        let passes = match &packet.content {
            Content::Udp(datagram) => self.pass_udp(packet.flow(), datagram),
            Content::Tcp(segment) => self.pass_tcp(packet.flow(), packet.from, segment),
        };
        self.dropped += u64::from(!passes);
        passes
    }

    /// Returns the number of dropped packets.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn pass_udp(&mut self, flow: Flow, datagram: &[u8]) -> bool {
        if let Some(State::Quic(known)) = self.flows.get_mut(&flow) {
            return known.pass(datagram, &self.blocked);
        }
        let mut quic = Quic::default();
        let passes = quic.pass(datagram, &self.blocked);
        if !quic.is_empty() {
            self.remember(flow, State::Quic(quic));
        }
        passes
    }

    fn pass_tcp(&mut self, flow: Flow, from: SocketAddr, segment: &Segment<'_>) -> bool {
        if let Some(begun) = segment.begun(from) {
            let known = self.flows.get(&flow);
            if !matches!(known, Some(State::Tcp(known)) if known.is(&begun)) {
                self.remember(flow, State::Tcp(begun));
            }
        }
        // A connection without an entry began before this filter saw it, so it passes.
        let Some(State::Tcp(tcp)) = self.flows.get_mut(&flow) else { return true };
        tcp.pass(from, segment, &self.blocked)
    }

    /// Stores the state of the latest connection of `flow`, in place of the state of an earlier
    /// connection. Evicts the oldest flow if there are more than [`FLOWS`].
    fn remember(&mut self, flow: Flow, state: State) {
        if self.flows.insert(flow, state).is_some() {
            return;
        }
        self.oldest.push_back(flow);
        if self.oldest.len() > FLOWS
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.flows.remove(&oldest);
        }
    }
}

impl Packet<'_> {
    fn flow(&self) -> Flow {
        let udp = matches!(self.content, Content::Udp(_));
        (self.from.min(self.to), self.from.max(self.to), udp)
    }
}

/// Parses the addresses, ports and content of a complete UDP or TCP packet. Returns `None` for
/// other packets.
fn dissect(packet: &[u8]) -> Option<Packet<'_>> {
    let sliced = SlicedPacket::from_ip(packet).ok()?;
    let (from, to): (IpAddr, IpAddr) = match sliced.net? {
        NetSlice::Ipv4(ip) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        NetSlice::Ipv6(ip) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        NetSlice::Arp(_) => return None,
    };
    let (ports, content) = match sliced.transport? {
        TransportSlice::Udp(udp) => {
            ((udp.source_port(), udp.destination_port()), Content::Udp(udp.payload()))
        }
        TransportSlice::Tcp(tcp) => {
            let begins = tcp.syn() && !tcp.ack();
            let segment =
                Segment { begins, sequence: tcp.sequence_number(), payload: tcp.payload() };
            ((tcp.source_port(), tcp.destination_port()), Content::Tcp(segment))
        }
        _ => return None,
    };
    Some(Packet { from: SocketAddr::new(from, ports.0), to: SocketAddr::new(to, ports.1), content })
}

#[cfg(test)]
mod tests;
