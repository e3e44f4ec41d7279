//! A middlebox that drops connections by the name that their ClientHello asks for, as censors do.
//!
//! It sees IP packets and says of each whether it may pass. Of QUIC (versions 1 and 2) it derives the keys that protect a
//! client's first packets from what everybody on the way can read (RFC 9001, section 5.2; RFC 9369), puts the CRYPTO
//! frames of as many packets as it takes together, and reads the ClientHello. Of TLS over TCP it puts the client's
//! first segments together. Names below a blocked one are blocked, too. Of a connection that it has recognised no further packet passes, in
//! either direction; what came before the name was complete has passed, as it has with real ones.
//!
//! It does no I/O. What it does not do: fragments of IP packets, IP options that hide a header from it, other ports after a
//! migration (its rule is bound to the addresses and ports of the ClientHello).

mod hello;
mod initial;
mod pieces;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use hello::{Said, server_name};
use initial::Crypto;
use pieces::Pieces;

/// Connections that are remembered; one more, and the oldest is forgotten.
const FLOWS: usize = 65_536;

/// Decides of IP packets.
#[derive(Debug)]
pub struct Censor {
    blocked: Vec<String>,
    flows: BTreeMap<Flow, State>,
    oldest: VecDeque<Flow>,
    dropped: u64,
}

/// The ends of a connection, the client's first, and whether it is UDP.
type Flow = (SocketAddr, SocketAddr, bool);

#[derive(Debug)]
enum State {
    /// The start of a TCP connection: the number of its first byte, once it is known, and what came so far.
    Tcp(Option<u32>, Pieces),
    /// The start of a QUIC connection.
    Quic(Crypto),
    /// It asked for something else, or for nothing that can be read.
    Free,
    Blocked,
}

/// What of a packet matters here.
struct Packet<'a> {
    from: SocketAddr,
    to: SocketAddr,
    content: Content<'a>,
}

enum Content<'a> {
    Udp(&'a [u8]),
    Tcp { syn: bool, sequence: u32, payload: &'a [u8] },
}

impl Censor {
    /// One that blocks these names and all below them.
    pub fn new(blocked: impl IntoIterator<Item = String>) -> Censor {
        let blocked = blocked.into_iter().map(|name| name.to_ascii_lowercase()).collect();
        Censor { blocked, flows: BTreeMap::new(), oldest: VecDeque::new(), dropped: 0 }
    }

    /// Whether an IP packet may pass.
    pub fn pass(&mut self, packet: &[u8]) -> bool {
        let Some(packet) = dissect(packet) else { return true };
        let passes = self.judge(&packet);
        self.dropped += u64::from(!passes);
        passes
    }

    /// Packets that did not pass.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn judge(&mut self, packet: &Packet<'_>) -> bool {
        let udp = matches!(packet.content, Content::Udp(_));
        // An answer belongs to the connection that the other side began.
        let back = (packet.to, packet.from, udp);
        if let Some(state) = self.flows.get(&back) {
            return !matches!(state, State::Blocked);
        }
        let flow = (packet.from, packet.to, udp);
        if !self.flows.contains_key(&flow) {
            let Some(state) = State::of_first(&packet.content) else { return true };
            self.remember(flow, state);
        }
        let Some(state) = self.flows.get_mut(&flow) else { return true };
        match state.hear(&packet.content) {
            Said::Name(name) => *state = verdict(&self.blocked, &name),
            Said::None => *state = State::Free,
            Said::NotYet => {}
        }
        !matches!(state, State::Blocked)
    }

    fn remember(&mut self, flow: Flow, state: State) {
        if self.oldest.len() >= FLOWS
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.flows.remove(&oldest);
        }
        self.oldest.push_back(flow);
        self.flows.insert(flow, state);
    }
}

impl State {
    /// What a connection is that begins so; `None` if it is of no interest.
    fn of_first(content: &Content<'_>) -> Option<State> {
        match content {
            Content::Tcp { syn: true, sequence, .. } => {
                Some(State::Tcp(Some(sequence.wrapping_add(1)), Pieces::default()))
            }
            // Its start was missed.
            Content::Tcp { .. } => None,
            Content::Udp(datagram) => {
                initial::is_initial(datagram).then(|| State::Quic(Crypto::default()))
            }
        }
    }

    /// Takes in what the client sent.
    fn hear(&mut self, content: &Content<'_>) -> Said {
        match (self, content) {
            (State::Tcp(first, pieces), Content::Tcp { syn, sequence, payload }) => {
                if *syn {
                    *first = Some(sequence.wrapping_add(1));
                }
                let Some(first) = *first else { return Said::NotYet };
                pieces.take(u64::from(sequence.wrapping_sub(first)), payload);
                hello::of_records(pieces.front()).bounded(pieces)
            }
            (State::Quic(crypto), Content::Udp(datagram)) => {
                crypto.take(datagram);
                server_name(crypto.front()).bounded(crypto.pieces())
            }
            _ => Said::NotYet,
        }
    }
}

impl Said {
    /// Nothing more is expected of a start that has grown too long.
    fn bounded(self, pieces: &Pieces) -> Said {
        match self {
            Said::NotYet if pieces.is_full() => Said::None,
            said => said,
        }
    }
}

fn verdict(blocked: &[String], name: &str) -> State {
    let name = name.to_ascii_lowercase();
    let below = |blocked: &String| {
        name.strip_suffix(blocked.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if blocked.iter().any(below) { State::Blocked } else { State::Free }
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
            let (syn, sequence) = (tcp.syn(), tcp.sequence_number());
            let content = Content::Tcp { syn, sequence, payload: tcp.payload() };
            ((tcp.source_port(), tcp.destination_port()), content)
        }
        _ => return None,
    };
    Some(Packet { from: SocketAddr::new(from, ports.0), to: SocketAddr::new(to, ports.1), content })
}

#[cfg(test)]
mod tests;
