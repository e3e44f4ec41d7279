//! Simulated bulk transfers in a tunnel like WireGuard's. The transfers use `anabranch-tcp`, which
//! behaves like Linux's TCP. The tunnel's datagrams pass through a near and a far end, or over one
//! plain line.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anabranch_multipath::{Core as _, Time};
use anabranch_netem::{Link, LinkSettings};
use anabranch_tcp::{Config, Connection, Ports, Segment, Seq, Stats};

use super::World;

/// Length of an IPv4 header in bytes.
const IP: usize = 20;
/// Length of the IPv4 and UDP headers around each datagram of the tunnel, in bytes.
const OUTER: usize = 28;
/// Number of bytes that WireGuard adds to a packet: the header of a data message, and its tag.
const WIREGUARD: usize = 32;
/// Padding unit of WireGuard in bytes: packets are padded to a multiple of it, up to the MTU.
const PADDED: usize = 16;
/// Maximum length of an IP packet in the tunnel, in bytes, on lines with an MTU of 1,500 bytes.
pub const MTU: usize = 1_500 - OUTER - WIREGUARD - anabranch_tunnel::OVERHEAD;
/// Length in bytes of a ping (ICMP echo request) and of its answer, including the IP header.
const ECHO: usize = 84;
/// Interval between two echo requests.
const ECHO_EVERY: Duration = Duration::from_millis(50);
/// Source and destination address of all packets inside the tunnel. Only TCP's checksums depend on
/// it.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Time from the end of a transfer to the start of the next one.
const PAUSE: Duration = Duration::from_millis(500);

/// Index of the direction from the client to the server.
pub const UP: usize = 0;
/// Index of the direction from the server to the client.
pub const DOWN: usize = 1;

/// A connection between client and server that carries datagrams: a split tunnel or a plain line.
pub trait DatagramCarrier {
    fn now(&self) -> Time;

    /// Processes the next event. If there is none before `until`, advances the time to `until` and
    /// returns false.
    fn step(&mut self, until: Time) -> bool;

    fn send(&mut self, way: usize, datagram: Vec<u8>);

    /// Returns the datagrams that have arrived in the direction `way` since the last call.
    fn take(&mut self, way: usize) -> Vec<Vec<u8>>;
}

impl DatagramCarrier for World {
    fn now(&self) -> Time {
        self.now
    }

    fn step(&mut self, until: Time) -> bool {
        self.seen.iter_mut().for_each(Vec::clear);
        World::step(self, until)
    }

    fn send(&mut self, way: usize, datagram: Vec<u8>) {
        match way {
            UP => self.send_up(&datagram),
            _ => self.send_down(&datagram),
        };
    }

    fn take(&mut self, way: usize) -> Vec<Vec<u8>> {
        self.out[way].drain(..).map(|(_, datagram)| datagram).collect()
    }
}

/// A plain line between client and server, without a near and a far end.
pub struct Line {
    now: Time,
    ways: [Link<Vec<u8>>; 2],
}

impl Line {
    pub fn new(settings: &LinkSettings, seed: u64) -> Line {
        let ways = [0, 1].map(|way| Link::new(settings.clone(), seed, way));
        Line { now: Time::from_millis(10), ways }
    }
}

impl DatagramCarrier for Line {
    fn now(&self) -> Time {
        self.now
    }

    fn step(&mut self, until: Time) -> bool {
        let next = self.ways.iter().filter_map(Link::next_timeout).min();
        self.now = next.unwrap_or(Time::MAX).max(self.now).min(until);
        next.is_some_and(|next| next <= until)
    }

    fn send(&mut self, way: usize, datagram: Vec<u8>) {
        let length = datagram.len() + OUTER;
        let _ = self.ways[way].push(self.now, datagram, length);
    }

    fn take(&mut self, way: usize) -> Vec<Vec<u8>> {
        let (now, way) = (self.now, &mut self.ways[way]);
        std::iter::from_fn(|| way.pop(now)).collect()
    }
}

/// Content of a datagram of the tunnel.
enum Packet {
    Segment(Segment),
    /// An echo request (in the direction [`UP`]) or its answer, with the time of the request.
    Echo(Time),
}

impl Packet {
    fn write(&self) -> Vec<u8> {
        let (mut body, length) = match self {
            Packet::Segment(segment) => {
                let mut body = vec![1];
                segment.write(ADDRESS, ADDRESS, &mut body);
                (body, IP + segment.wire_length())
            }
            Packet::Echo(sent) => {
                let body = [2].into_iter().chain(sent.nanos().to_be_bytes()).collect();
                (body, ECHO)
            }
        };
        let end = body.len() as u16;
        body.extend(end.to_be_bytes());
        body.rotate_right(2);
        body.resize(length.next_multiple_of(PADDED).min(MTU.max(length)) + WIREGUARD, 0);
        body
    }

    fn read(datagram: &[u8]) -> Packet {
        let end = 2 + usize::from(u16::from_be_bytes([datagram[0], datagram[1]]));
        let body = &datagram[3..end];
        match datagram[2] {
            1 => Packet::Segment(Segment::parse(body).unwrap()),
            _ => Packet::Echo(Time::from_nanos(u64::from_be_bytes(body.try_into().unwrap()))),
        }
    }
}

/// A TCP connection that sends as much as it can in one direction.
struct Transfer {
    way: usize,
    port: u16,
    sender: Connection,
    receiver: Option<Connection>,
    received: u64,
}

impl Transfer {
    fn new(now: Time, way: usize, port: u16) -> Transfer {
        let ports = Ports { local: port, remote: port };
        let sender = Connection::connect(now, &config(), ports, Seq(7));
        Transfer { way, port, sender, receiver: None, received: 0 }
    }

    fn handle(&mut self, now: Time, way: usize, segment: Segment) {
        match (&mut self.receiver, way == self.way) {
            (_, false) => self.sender.handle(now, segment),
            (Some(receiver), true) => receiver.handle(now, segment),
            (None, true) => {
                self.receiver = Connection::accept(now, &config(), Seq(9), &segment);
            }
        }
    }

    /// Writes to and reads from both ends of the connection. Returns the segments to send, with
    /// their directions.
    fn work(&mut self, now: Time) -> Vec<(usize, Segment)> {
        const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
        while self.sender.write(&ZEROS) > 0 {}
        let mut scratch = Vec::new();
        let mut out: Vec<_> =
            std::iter::from_fn(|| self.sender.poll(now)).map(|one| (self.way, one)).collect();
        if let Some(receiver) = &mut self.receiver {
            receiver.read_all(&mut scratch);
            self.received += scratch.len() as u64;
            out.extend(std::iter::from_fn(|| receiver.poll(now)).map(|one| (1 - self.way, one)));
        }
        out
    }

    fn next_timeout(&self) -> Option<Time> {
        let ends = [Some(&self.sender), self.receiver.as_ref()];
        ends.into_iter().flatten().filter_map(Connection::next_timeout).min()
    }
}

fn config() -> Config {
    Config { mss: (MTU - 40) as u16, ..Config::default() }
}

/// The programs that use a tunnel: a bulk transfer over TCP, and pings (echo requests).
pub struct Bulk<C> {
    pub carrier: C,
    transfers: Vec<Transfer>,
    next_echo: Time,
    port: u16,
    /// Round-trip times of the echo requests since the current measurement began.
    pub echoes: Vec<Duration>,
}

/// Result of one measurement of a bulk transfer.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Goodput in Mbit/s.
    pub rate: f64,
    /// Median of the echo requests' round-trip times under load, minus their minimum without load.
    pub delay: Duration,
    pub stats: Stats,
    pub cwnd: u32,
}

impl<C: DatagramCarrier> Bulk<C> {
    pub fn new(carrier: C) -> Bulk<C> {
        let next_echo = carrier.now();
        Bulk { carrier, transfers: Vec::new(), next_echo, port: 0, echoes: Vec::new() }
    }

    pub fn run_for(&mut self, time: Duration) {
        let end = self.carrier.now() + time;
        while self.carrier.now() < end {
            self.work();
            let now = self.carrier.now();
            let timeouts = self.transfers.iter().filter_map(Transfer::next_timeout);
            let due = timeouts.chain([self.next_echo, end]).min().unwrap_or(end);
            self.carrier.step(due.max(now + Duration::from_micros(1)));
        }
        self.work();
    }

    fn work(&mut self) {
        let now = self.carrier.now();
        for way in [UP, DOWN] {
            for datagram in self.carrier.take(way) {
                self.handle(now, way, Packet::read(&datagram));
            }
        }
        let work = self.transfers.iter_mut().flat_map(|transfer| transfer.work(now));
        for (way, segment) in work.collect::<Vec<_>>() {
            self.carrier.send(way, Packet::Segment(segment).write());
        }
        if now >= self.next_echo {
            self.next_echo = now + ECHO_EVERY;
            self.carrier.send(UP, Packet::Echo(now).write());
        }
    }

    fn handle(&mut self, now: Time, way: usize, packet: Packet) {
        match packet {
            Packet::Segment(segment) => {
                let of = |transfer: &&mut Transfer| transfer.port == segment.destination;
                let transfer = self.transfers.iter_mut().find(of);
                transfer.into_iter().for_each(|one| one.handle(now, way, segment.clone()));
            }
            Packet::Echo(sent) if way == UP => {
                self.carrier.send(DOWN, Packet::Echo(sent).write());
            }
            Packet::Echo(sent) => self.echoes.push(now.since(sent)),
        }
    }

    /// Transfers data in the direction `way` for `skip` plus `time`, and measures only `time`,
    /// like `iperf3 --omit`. Calls `look` every 250 ms with the rate in that interval, in Mbit/s.
    pub fn transfer(
        &mut self,
        way: usize,
        (skip, time): (Duration, Duration),
        look: &mut dyn FnMut(&mut Bulk<C>, f64),
    ) -> Outcome {
        self.echoes.clear();
        self.run_for(PAUSE);
        let idle = self.echoes.iter().min().copied().unwrap_or_default();
        self.port += 1;
        self.transfers.push(Transfer::new(self.carrier.now(), way, self.port));
        self.run_looking(skip, look);
        let before = self.transfers[0].received;
        self.echoes.clear();
        self.run_looking(time, look);
        let transfer = self.transfers.pop().unwrap();
        let rate = (transfer.received - before) as f64 * 8.0 / 1e6 / time.as_secs_f64();
        self.echoes.sort_unstable();
        let loaded = self.echoes.get(self.echoes.len() / 2).copied().unwrap_or_default();
        Outcome {
            rate,
            delay: loaded.saturating_sub(idle),
            stats: transfer.sender.stats(),
            cwnd: transfer.sender.view(self.carrier.now()).snd_cwnd,
        }
    }

    fn run_looking(&mut self, time: Duration, look: &mut dyn FnMut(&mut Bulk<C>, f64)) {
        const SLICE: Duration = Duration::from_millis(250);
        let end = self.carrier.now() + time;
        while self.carrier.now() < end {
            let before = self.transfers[0].received;
            self.run_for(SLICE.min(end.since(self.carrier.now())));
            let bytes = self.transfers[0].received - before;
            look(self, bytes as f64 * 8.0 / 1e6 / SLICE.as_secs_f64());
        }
    }

    /// Returns the current transfer's congestion window and number of segments in flight (both in
    /// segments), and its counters.
    pub fn inner(&self) -> (u32, u32, Stats) {
        let sender = &self.transfers[0].sender;
        let view = sender.view(self.carrier.now());
        (view.snd_cwnd, view.unacked, sender.stats())
    }
}

impl<C: DatagramCarrier> Bulk<C> {
    /// Transfers up and then down in the same session, as `bench/far_end.py` does. `round` delays
    /// the start, so that each repetition begins at another time. Calls `look` as
    /// [`Bulk::transfer`] does, and also passes the direction.
    pub fn up_then_down(
        &mut self,
        round: u64,
        times: (Duration, Duration),
        look: &mut dyn FnMut(&mut Bulk<C>, usize, f64),
    ) -> [Outcome; 2] {
        self.run_for(Duration::from_millis(1_500 + 137 * round));
        [UP, DOWN].map(|way| self.transfer(way, times, &mut |bulk, rate| look(bulk, way, rate)))
    }
}

/// Returns settings of lines with `rates` in Mbit/s and one-way `delays` in ms. Each line has a
/// queue of 100 kB.
pub fn lines(rates: &[u64], delays: &[u64]) -> Vec<LinkSettings> {
    let line = |(mbits, delay): (&u64, &u64)| LinkSettings {
        delay: Duration::from_millis(*delay),
        queue: 100_000,
        ..LinkSettings::with_rate(mbits * 1_000_000)
    };
    rates.iter().zip(delays).map(line).collect()
}
