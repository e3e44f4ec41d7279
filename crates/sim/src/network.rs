//! Hosts, each with an access line, and the core network between them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anabranch_multipath::Time;

use crate::latency::Latencies;
use crate::line::{Line, LineDrop, LineSettings, LineStats};
use crate::path::{CoreImpairment, CorePath};
use crate::queue::{EventQueue, HostId};
use crate::trace::{Kind, TraceHash};

/// The access line of a host, and the place (a row and column of the [`Latencies`]) at which it
/// joins the core network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostSettings {
    /// Properties of the access line in the direction from the host to the core network.
    pub up: LineSettings,
    /// Properties of the access line in the direction from the core network to the host.
    pub down: LineSettings,
    /// Place at which the host's access line joins the core network: a row and column of the
    /// [`Latencies`].
    pub place: usize,
    /// Maximum length in bytes of an IPv4 packet on the access line. The host's TCP announces the
    /// maximum segment size that follows from it.
    pub mtu: u16,
}

/// MTU of Ethernet, in bytes.
const ETHERNET: u16 = 1500;

impl HostSettings {
    /// Returns the settings of a host at the first place of the [`Latencies`]. Its access line has
    /// the same properties in both directions, and Ethernet's MTU.
    pub fn symmetric(line: LineSettings) -> HostSettings {
        HostSettings { up: line, down: line, place: 0, mtu: ETHERNET }
    }
}

/// An event at a host.
#[derive(Debug, PartialEq, Eq)]
pub enum HostEvent<P> {
    /// A packet arrived.
    Arrival {
        /// The host that sent the packet.
        from: HostId,
        /// The packet that arrived.
        packet: P,
    },
    /// A timer that the host had set with [`Network::set_timer`] has expired.
    Timer {
        /// Identifier of the timer, as passed to [`Network::set_timer`].
        timer: u32,
    },
}

/// The hosts, their access lines, the core network and future events. Packets may be of any type;
/// the network uses only their length.
#[derive(Debug)]
pub struct Network<P> {
    now: Time,
    seed: u64,
    queue: EventQueue<Event>,
    hosts: Vec<Access>,
    latencies: Latencies,
    /// Impairments of the core network (a shared line, losses or a varying delay), by the places
    /// at which packets enter and leave it.
    paths: BTreeMap<[usize; 2], CorePath>,
    packets: Packets<P>,
    trace: TraceHash,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The packet with this index has left the access line of its sender, and enters a line of the
    /// core network.
    Enter(u32),
    /// The packet with this index has crossed the core network, and reaches the access line of its
    /// destination.
    Reach(u32),
    /// The first packet in transit on the access line to the host has arrived at the host.
    Deliver,
    Timer(u32),
}

#[derive(Debug)]
struct Access {
    up: Line,
    down: Line,
    place: usize,
    /// Packets in transit on the access line to the host, each with its time of arrival and its
    /// index. Only the first packet has an event in the queue of events.
    incoming: VecDeque<(Time, u32)>,
}

#[derive(Debug)]
struct Packet<P> {
    from: HostId,
    bytes: u16,
    load: P,
}

/// The packets in flight, by their index.
#[derive(Debug)]
struct Packets<P> {
    slots: Vec<Option<Packet<P>>>,
    free: Vec<u32>,
}

impl<P> Packets<P> {
    fn add(&mut self, packet: Packet<P>) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(packet);
                slot
            }
            None => {
                self.slots.push(Some(packet));
                (self.slots.len() - 1) as u32
            }
        }
    }

    fn bytes(&self, slot: u32) -> u16 {
        self.slots[slot as usize].as_ref().map_or(0, |packet| packet.bytes)
    }

    fn from(&self, slot: u32) -> Option<HostId> {
        self.slots[slot as usize].as_ref().map(|packet| packet.from)
    }

    fn take(&mut self, slot: u32) -> Option<Packet<P>> {
        let packet = self.slots[slot as usize].take()?;
        self.free.push(slot);
        Some(packet)
    }
}

impl<P> Network<P> {
    /// Creates a network without hosts. `seed` determines which packets are lost at random.
    pub fn new(latencies: Latencies, seed: u64) -> Network<P> {
        Network {
            now: Time::ZERO,
            seed,
            queue: EventQueue::default(),
            hosts: Vec::new(),
            latencies,
            paths: BTreeMap::new(),
            packets: Packets { slots: Vec::new(), free: Vec::new() },
            trace: TraceHash::default(),
        }
    }

    /// Adds a shared line, losses or a varying delay to the core network, in one direction: from
    /// the first to the second of two places (points at which access lines join the core network).
    pub fn set_path(&mut self, places: [usize; 2], settings: CoreImpairment) {
        self.paths.insert(places, CorePath::new(settings, self.seed, places));
    }

    /// Adds a host.
    ///
    /// # Panics
    /// If the latencies do not contain the host's place.
    pub fn add_host(&mut self, settings: HostSettings) -> HostId {
        assert!(settings.place < self.latencies.places(), "place {} of the core", settings.place);
        let host = HostId(self.hosts.len() as u32);
        let line = |settings, side| Line::new(settings, self.seed, u64::from(host.0) * 2 + side);
        self.hosts.push(Access {
            up: line(settings.up, 0),
            down: line(settings.down, 1),
            place: settings.place,
            incoming: VecDeque::new(),
        });
        host
    }

    /// Returns the current time. It is the time of the last event, or the argument of the last
    /// call of [`Network::next`] if that call returned no event.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the hash of all events so far.
    pub fn trace(&self) -> TraceHash {
        self.trace
    }

    /// Returns the counters of a host's access line: first for the direction from the host, then
    /// for the direction to the host.
    pub fn stats(&self, host: HostId) -> [LineStats; 2] {
        let access = &self.hosts[host.index()];
        [access.up.stats(), access.down.stats()]
    }

    /// Returns the one-way delay of the core network between two hosts.
    pub fn latency(&self, from: HostId, to: HostId) -> Duration {
        let place = |host: HostId| self.hosts[host.index()].place;
        self.latencies.between(place(from), place(to))
    }

    /// Sends a packet of `bytes` bytes. It passes the access lines of both hosts and the core
    /// network, and arrives unless one of them drops or loses it.
    pub fn send(&mut self, from: HostId, to: HostId, bytes: u16, load: P) {
        let leaves = match self.hosts[from.index()].up.push(self.now, bytes) {
            Ok(leaves) => leaves,
            Err(dropped) => return self.note_drop(dropped, from, bytes),
        };
        let latency = self.latency(from, to);
        let (event, time) = match self.path(from, to) {
            Some(path) if path.has_line() => (Event::Enter as fn(u32) -> Event, leaves),
            Some(path) => match path.cross(leaves, latency) {
                Some(reaches) => (Event::Reach as fn(u32) -> Event, reaches),
                None => return self.note_drop(LineDrop::Lost, from, bytes),
            },
            None => (Event::Reach as fn(u32) -> Event, leaves + latency),
        };
        let packet = self.packets.add(Packet { from, bytes, load });
        self.queue.push(time, to, event(packet));
    }

    /// Returns the impairments of the core network from one host to another; `None` if the core
    /// network only delays packets between them.
    fn path(&mut self, from: HostId, to: HostId) -> Option<&mut CorePath> {
        if self.paths.is_empty() {
            return None;
        }
        let places = [from, to].map(|host| self.hosts[host.index()].place);
        self.paths.get_mut(&places)
    }

    /// Sends the packet with the index `packet`, whose destination is the host `to`, through the
    /// core network from the place of its sender to the place of `to`. Removes the packet if it is
    /// dropped or lost.
    fn enter(&mut self, to: HostId, packet: u32) {
        let (now, bytes) = (self.now, self.packets.bytes(packet));
        let Some(from) = self.packets.from(packet) else { return };
        let latency = self.latency(from, to);
        let Some(path) = self.path(from, to) else { return };
        let reaches = path
            .enter(now, bytes)
            .and_then(|leaves| path.cross(leaves, latency).ok_or(LineDrop::Lost));
        match reaches {
            Ok(reaches) => self.queue.push(reaches, to, Event::Reach(packet)),
            Err(dropped) => {
                self.packets.take(packet);
                self.note_drop(dropped, from, bytes);
            }
        }
    }

    /// Sets the host's timer with the identifier `timer` to expire at `time`. A host may set the
    /// same timer several times; the timer then expires once for each setting.
    pub fn set_timer(&mut self, host: HostId, time: Time, timer: u32) {
        self.queue.push(time.max(self.now), host, Event::Timer(timer));
    }

    /// Returns the next event at or before `until`; `None` if there is none. Afterwards,
    /// [`Network::now`] is the time of the returned event, or `until`.
    pub fn next(&mut self, until: Time) -> Option<(HostId, HostEvent<P>)> {
        while let Some((time, host, event)) = self.queue.pop(until) {
            self.now = time;
            match event {
                Event::Enter(packet) => self.enter(host, packet),
                Event::Reach(packet) => self.reach(host, packet),
                Event::Deliver => {
                    if let Some(packet) = self.deliver(host) {
                        let Packet { from, load, .. } = packet;
                        return Some((host, HostEvent::Arrival { from, packet: load }));
                    }
                }
                Event::Timer(timer) => {
                    self.trace.note(time, Kind::Timer, host, [timer.into(), 0]);
                    return Some((host, HostEvent::Timer { timer }));
                }
            }
        }
        self.now = self.now.max(until);
        None
    }

    /// Puts a packet that has crossed the core network on the access line of its destination.
    fn reach(&mut self, host: HostId, packet: u32) {
        let bytes = self.packets.bytes(packet);
        let access = &mut self.hosts[host.index()];
        match access.down.push(self.now, bytes) {
            Ok(arrives) => {
                access.incoming.push_back((arrives, packet));
                if access.incoming.len() == 1 {
                    self.queue.push(arrives, host, Event::Deliver);
                }
            }
            Err(dropped) => {
                self.packets.take(packet);
                self.note_drop(dropped, host, bytes);
            }
        }
    }

    fn deliver(&mut self, host: HostId) -> Option<Packet<P>> {
        let incoming = &mut self.hosts[host.index()].incoming;
        let (_, packet) = incoming.pop_front()?;
        if let Some(&(arrives, _)) = incoming.front() {
            self.queue.push(arrives, host, Event::Deliver);
        }
        let packet = self.packets.take(packet)?;
        let facts = [packet.from.0.into(), packet.bytes.into()];
        self.trace.note(self.now, Kind::Arrival, host, facts);
        Some(packet)
    }

    fn note_drop(&mut self, dropped: LineDrop, host: HostId, bytes: u16) {
        let kind = match dropped {
            LineDrop::QueueFull => Kind::QueueFull,
            LineDrop::Lost => Kind::Lost,
        };
        self.trace.note(self.now, kind, host, [bytes.into(), 0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;

    const MS: Duration = Duration::from_millis(1);

    fn line(rate: u64) -> LineSettings {
        LineSettings { rate: NonZeroU64::new(rate).unwrap(), queue: 10_000, loss: 0.0 }
    }

    fn network(rates: &[u64]) -> Network<u32> {
        let mut network = Network::new(Latencies::uniform(10 * MS), 1);
        for &rate in rates {
            network.add_host(HostSettings::symmetric(line(rate)));
        }
        network
    }

    /// Returns the packets that arrive, each as time in microseconds, host and packet.
    fn arrivals(network: &mut Network<u32>) -> Vec<(u64, u32, u32)> {
        let mut seen = Vec::new();
        while let Some((host, happening)) = network.next(Time::MAX) {
            if let HostEvent::Arrival { packet, .. } = happening {
                seen.push((network.now().nanos() / 1000, host.0, packet));
            }
        }
        seen
    }

    #[test]
    fn a_packet_takes_both_lines_and_the_core() {
        // 1,000 bytes take 1 ms at 8 Mbit/s, and 0.1 ms at 80 Mbit/s.
        let mut network = network(&[8_000_000, 80_000_000]);
        network.send(HostId(0), HostId(1), 1000, 7);
        network.send(HostId(0), HostId(1), 1000, 8);
        network.send(HostId(1), HostId(0), 1000, 9);
        let seen = arrivals(&mut network);
        assert_eq!(seen, [(11_100, 0, 9), (11_100, 1, 7), (12_100, 1, 8)]);
    }

    #[test]
    fn packets_of_several_hosts_queue_before_the_receivers_line() {
        let mut network = network(&[80_000_000, 80_000_000, 8_000_000]);
        for (from, packet) in [(1, 4), (0, 1), (0, 2), (1, 5)] {
            network.send(HostId(from), HostId(2), 1000, packet);
        }
        // Two packets reach the line at the same time. The packet that was sent first is queued
        // first.
        let order = [(11_100, 2, 4), (12_100, 2, 1), (13_100, 2, 2), (14_100, 2, 5)];
        assert_eq!(arrivals(&mut network), order);
    }

    #[test]
    fn hosts_of_a_place_share_the_line_to_another_place() {
        // The line takes 1 ms for 1,000 bytes. Hosts 0 and 1 are at one place, host 2 at the
        // other.
        let latencies = Latencies::matrix(&[vec![10 * MS; 2], vec![10 * MS; 2]]).unwrap();
        let shared = CoreImpairment { line: Some(line(8_000_000)), ..CoreImpairment::default() };
        let network = || {
            let mut network = Network::new(latencies.clone(), 1);
            for place in [0, 0, 1] {
                let host = HostSettings::symmetric(line(8_000_000_000));
                network.add_host(HostSettings { place, ..host });
            }
            network.set_path([0, 1], shared);
            network
        };
        let mut some = network();
        for (from, to, packet) in [(0, 2, 1), (1, 2, 2), (0, 1, 3), (2, 0, 4)] {
            some.send(HostId(from), HostId(to), 1000, packet);
        }
        // Packets 3 and 4 pass no shared line. Each access line takes a microsecond.
        let order = [(10_002, 0, 4), (10_003, 1, 3), (11_002, 2, 1), (12_002, 2, 2)];
        assert_eq!(arrivals(&mut some), order);
        // The queue of the line has room for ten.
        let mut many = network();
        (0..11).for_each(|packet| many.send(HostId(packet % 2), HostId(2), 1000, packet));
        assert_eq!(arrivals(&mut many).len(), 10);
        assert_eq!(many.packets.free.len(), many.packets.slots.len());
    }

    #[test]
    fn the_receivers_queue_drops_its_tail() {
        let mut network = network(&[800_000_000, 8_000_000]);
        (0..10).for_each(|packet| network.send(HostId(0), HostId(1), 1000, packet));
        assert!(network.now() == Time::ZERO && network.stats(HostId(0))[0].packets == 10);
        network.send(HostId(0), HostId(1), 1000, 10);
        assert_eq!(network.stats(HostId(0))[0].queue_full, 1, "the sender's queue is full");
        // The next ten reach the other line before more than one has left it.
        network.set_timer(HostId(0), Time::from_millis(1), 3);
        assert_eq!(network.next(Time::MAX), Some((HostId(0), HostEvent::Timer { timer: 3 })));
        (11..21).for_each(|packet| network.send(HostId(0), HostId(1), 1000, packet));
        assert_eq!(arrivals(&mut network).len(), 11);
        assert_eq!(network.stats(HostId(1))[1].queue_full, 9);
        assert_eq!(network.packets.free.len(), network.packets.slots.len());
    }

    #[test]
    fn time_stops_at_the_limit_and_a_timer_of_the_past_expires_now() {
        let mut network = network(&[8_000_000, 8_000_000]);
        network.send(HostId(0), HostId(1), 1000, 1);
        assert_eq!(network.next(Time::from_millis(5)), None);
        assert_eq!(network.now(), Time::from_millis(5));
        network.set_timer(HostId(1), Time::ZERO, 8);
        assert_eq!(network.next(Time::MAX), Some((HostId(1), HostEvent::Timer { timer: 8 })));
        assert_eq!(network.now(), Time::from_millis(5));
    }

    #[test]
    fn the_trace_is_a_function_of_the_seed() {
        let run = |seed: u64| {
            let mut network = Network::new(Latencies::uniform(MS), seed);
            let lossy = LineSettings { loss: 0.3, ..line(8_000_000) };
            for line in [lossy, lossy] {
                network.add_host(HostSettings::symmetric(line));
            }
            for packet in 0..100u32 {
                network.send(HostId(0), HostId(1), 100 + packet as u16, packet);
                network.next(Time::from_millis(u64::from(packet)));
            }
            let seen = arrivals(&mut network).len();
            (seen, network.trace().hash())
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
