//! Simulation of programs on hosts with TCP.

use anabranch_multipath::Time;
use anabranch_tcp::{Config, Segment};

use crate::latency::Latencies;
use crate::line::LineStats;
use crate::network::{HostEvent, HostSettings, Network};
use crate::path::CoreImpairment;
use crate::queue::HostId;
use crate::stack::{ConnId, Stack, TcpEvent};
use crate::trace::TraceHash;

/// Length of an IPv4 header, in bytes.
const IP_HEADER: usize = 20;
/// Length of a TCP header without options, in bytes.
const TCP_HEADER: usize = 20;
/// Identifier of the timer of a host's program. All other timers belong to connections of the
/// host.
const PROGRAM_TIMER: u32 = u32::MAX;

/// Length of the headers of IPv4 and UDP, in bytes.
const UDP_HEADERS: usize = IP_HEADER + 8;

/// A packet of a host.
#[derive(Debug)]
enum Packet {
    Segment(Segment),
    /// The content of a UDP datagram.
    Datagram(Vec<u8>),
}

/// The UDP datagrams that a host's program has sent.
#[derive(Debug, Default)]
pub struct UdpOutbox {
    outgoing: Vec<(HostId, u16, Vec<u8>)>,
}

impl UdpOutbox {
    /// Sends `content` to a host. The simulated lines treat the datagram as one with a payload of
    /// `bytes` bytes, which need not be the length of `content`.
    ///
    /// # Panics
    /// If the datagram does not fit into an IP packet.
    pub fn send(&mut self, to: HostId, bytes: usize, content: Vec<u8>) {
        let bytes = u16::try_from(bytes + UDP_HEADERS).expect("a datagram fits into a packet");
        self.outgoing.push((to, bytes, content));
    }
}

/// A program that runs on a host.
pub trait HostProgram {
    /// Starts the program on its host.
    fn start(&mut self, io: &mut Io<'_>);

    /// Handles an event of a connection of the host. The program may then use all of the host's
    /// connections.
    fn handle(&mut self, io: &mut Io<'_>, event: TcpEvent);

    /// Handles a UDP datagram that the host `_from` has sent. A program that expects none ignores
    /// it.
    fn datagram(&mut self, _io: &mut Io<'_>, _from: HostId, _content: Vec<u8>) {}

    /// Returns the time at which [`HostProgram::expire`] must be called; `None` if there is no
    /// timeout.
    fn next_timeout(&self) -> Option<Time>;

    /// Handles the timeout that [`HostProgram::next_timeout`] has returned.
    fn expire(&mut self, io: &mut Io<'_>);
}

/// The interface between a program and its host.
#[derive(Debug)]
pub struct Io<'a> {
    /// Current time.
    pub now: Time,
    /// Host of the program.
    pub host: HostId,
    /// Connections of the host.
    pub tcp: &'a mut Stack,
    /// UDP datagrams that the host sends.
    pub udp: &'a mut UdpOutbox,
}

/// A simulation of hosts in virtual time. Each host runs a program. The events depend only on the
/// hosts, their programs, the latencies and the seed.
#[derive(Debug)]
pub struct Simulation<P> {
    network: Network<Packet>,
    seed: u64,
    hosts: Vec<Host<P>>,
}

#[derive(Debug)]
struct Host<P> {
    tcp: Stack,
    udp: UdpOutbox,
    program: P,
    /// Time at which the timer of the program will expire; `None` if it is not set.
    armed: Option<Time>,
}

impl<P: HostProgram> Simulation<P> {
    /// Creates a simulation without hosts.
    pub fn new(latencies: Latencies, seed: u64) -> Simulation<P> {
        Simulation { network: Network::new(latencies, seed), seed, hosts: Vec::new() }
    }

    /// Adds a shared line, losses or a varying delay to the core network, in one direction: from
    /// the first to the second of two places (points at which access lines join the core network).
    pub fn set_path(&mut self, places: [usize; 2], settings: CoreImpairment) {
        self.network.set_path(places, settings);
    }

    /// Adds a host that runs `program`. The maximum segment size in `tcp` is replaced by the value
    /// that follows from the host's MTU.
    ///
    /// # Panics
    /// If the latencies do not contain the host's place.
    pub fn add_host(&mut self, settings: HostSettings, tcp: Config, program: P) -> HostId {
        let host = self.network.add_host(settings);
        let mss = settings.mtu.saturating_sub((IP_HEADER + TCP_HEADER) as u16);
        let tcp = Stack::new(Config { mss, ..tcp }, self.seed, host.0.into());
        self.hosts.push(Host { tcp, udp: UdpOutbox::default(), program, armed: None });
        self.act(host, P::start);
        host
    }

    /// Returns the current time.
    pub fn now(&self) -> Time {
        self.network.now()
    }

    /// Returns the hash of all events so far.
    pub fn trace(&self) -> TraceHash {
        self.network.trace()
    }

    /// Returns the program of a host.
    pub fn program(&self, host: HostId) -> &P {
        &self.hosts[host.index()].program
    }

    /// Returns the connections of a host.
    pub fn tcp(&self, host: HostId) -> &Stack {
        &self.hosts[host.index()].tcp
    }

    /// Returns the programs, in the order of their hosts.
    pub fn programs(&self) -> impl Iterator<Item = &P> {
        self.hosts.iter().map(|host| &host.program)
    }

    /// Returns the counters of a host's access line: first for the direction from the host, then
    /// for the direction to the host.
    pub fn stats(&self, host: HostId) -> [LineStats; 2] {
        self.network.stats(host)
    }

    /// Calls `act` with a host's program and its interface to the host.
    pub fn act<T>(&mut self, host: HostId, act: impl FnOnce(&mut P, &mut Io<'_>) -> T) -> T {
        let done = self.with(host, act);
        self.settle(host);
        done
    }

    /// Simulates the hosts until the time `until`.
    pub fn run_until(&mut self, until: Time) {
        while let Some((host, happening)) = self.network.next(until) {
            let now = self.network.now();
            let at = &mut self.hosts[host.index()];
            match happening {
                HostEvent::Arrival { from, packet: Packet::Segment(segment) } => {
                    at.tcp.handle(now, from, segment);
                }
                HostEvent::Arrival { from, packet: Packet::Datagram(content) } => {
                    self.with(host, |program, io| program.datagram(io, from, content));
                }
                // Nothing has changed since the host was last settled if the timer is obsolete.
                HostEvent::Timer { timer: PROGRAM_TIMER } => {
                    if !self.expire(host) {
                        continue;
                    }
                }
                HostEvent::Timer { timer } => {
                    if !at.tcp.expire(now, ConnId(timer)) {
                        continue;
                    }
                }
            }
            self.settle(host);
        }
    }

    fn with<T>(&mut self, host: HostId, act: impl FnOnce(&mut P, &mut Io<'_>) -> T) -> T {
        let at = &mut self.hosts[host.index()];
        let (now, tcp, udp) = (self.network.now(), &mut at.tcp, &mut at.udp);
        act(&mut at.program, &mut Io { now, host, tcp, udp })
    }

    /// Calls a host's program because its timer has expired. Returns false if the timer is
    /// obsolete.
    fn expire(&mut self, host: HostId) -> bool {
        let (now, at) = (self.network.now(), &mut self.hosts[host.index()]);
        if at.armed.is_none_or(|armed| armed > now) {
            // An earlier one was set after it.
            return false;
        }
        at.armed = None;
        if at.program.next_timeout().is_some_and(|due| due <= now) {
            self.with(host, |program, io| program.expire(io));
        }
        true
    }

    /// Passes TCP events to a host's program, and the host's segments and datagrams to the
    /// network, until none are left.
    fn settle(&mut self, host: HostId) {
        let now = self.network.now();
        loop {
            while let Some(event) = self.hosts[host.index()].tcp.poll_event() {
                self.with(host, |program, io| program.handle(io, event));
            }
            let at = &mut self.hosts[host.index()];
            for (to, bytes, content) in at.udp.outgoing.drain(..) {
                self.network.send(host, to, bytes, Packet::Datagram(content));
            }
            let Some((to, segment)) = at.tcp.poll_transmit(now) else { break };
            let bytes = segment.wire_length() + IP_HEADER;
            let bytes = u16::try_from(bytes).expect("the MSS is 16 bits, headers included");
            self.network.send(host, to, bytes, Packet::Segment(segment));
        }
        self.arm(host);
    }

    fn arm(&mut self, host: HostId) {
        let at = &mut self.hosts[host.index()];
        while let Some((time, ConnId(timer))) = at.tcp.poll_timer() {
            self.network.set_timer(host, time, timer);
        }
        let Some(due) = at.program.next_timeout() else { return };
        if at.armed.is_none_or(|armed| due < armed) {
            at.armed = Some(due);
            self.network.set_timer(host, due, PROGRAM_TIMER);
        }
    }
}
