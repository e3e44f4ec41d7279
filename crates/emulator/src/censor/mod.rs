//! A middlebox that drops connections by the name that their ClientHello asks for, as censors do.
//!
//! It sees IP packets and says of each whether it may pass. Of QUIC (versions 1 and 2) it derives
//! the keys that protect a client's first packets from what everybody on the way can read (RFC
//! 9001, section 5.2; RFC 9369), puts the CRYPTO frames of as many packets as it takes together,
//! and reads the ClientHello. Of TLS over TCP it puts the client's first segments together. Names
//! below a blocked one are blocked, too. Of a connection that it has recognised no further packet
//! passes, in either direction; what came before the name was complete has passed, as it has with
//! real ones.
//!
//! Addresses and ports may serve many connections. Of TCP one follows the other: a SYN that is not
//! the last one sent again begins anew. Of QUIC several may be there at once (`quic.rs`), and each
//! is judged by its own ClientHello.
//!
//! It does no I/O. What it does not do: fragments of IP packets, IP options that hide a header from
//! it, other ports after a migration (its rule is bound to the addresses and ports of the
//! ClientHello).

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

/// Pairs of ports that are remembered; one more, and the oldest is forgotten.
const FLOWS: usize = 65_536;

/// Decides of IP packets.
#[derive(Debug)]
pub struct Censor {
    blocked: Names,
    flows: BTreeMap<Flow, State>,
    oldest: VecDeque<Flow>,
    dropped: u64,
}

/// Two ends, the smaller first, and whether they speak UDP.
type Flow = (SocketAddr, SocketAddr, bool);

#[derive(Debug)]
enum State {
    Tcp(Tcp),
    Quic(Quic),
}

/// What of a packet matters here.
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
    /// One that blocks these names and all below them.
    pub fn new(blocked: impl IntoIterator<Item = String>) -> Censor {
        let blocked = Names::new(blocked);
        Censor { blocked, flows: BTreeMap::new(), oldest: VecDeque::new(), dropped: 0 }
    }

    /// Whether an IP packet may pass.
    pub fn pass(&mut self, packet: &[u8]) -> bool {
        let Some(packet) = dissect(packet) else { return true };
        let passes = match &packet.content {
            Content::Udp(datagram) => self.pass_udp(packet.flow(), datagram),
            Content::Tcp(segment) => self.pass_tcp(packet.flow(), packet.from, segment),
        };
        self.dropped += u64::from(!passes);
        passes
    }

    /// Packets that did not pass.
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
        // Without an entry its start was missed.
        let Some(State::Tcp(tcp)) = self.flows.get_mut(&flow) else { return true };
        tcp.pass(from, segment, &self.blocked)
    }

    /// What was known of these ports gives way.
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

/// Addresses, ports and content of a UDP or TCP packet that is whole.
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
