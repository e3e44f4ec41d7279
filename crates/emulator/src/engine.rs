//! Transport of packets from interface to interface, through the emulated links.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_netem::{Count, Link};
use anabranch_os::clock::Clock;
use anabranch_os::poller::Poller;
use anabranch_os::tun::Tun;

use super::agenda::Agenda;
use super::edit::Edit;
use super::stats::{DirectionStats, LinkStats, udp_ports};
use super::topology::{Cable, Event};
use crate::censor::Censor;

/// Maximum number of packets read from one interface before the next interface is read.
const BATCH: usize = 64;
/// Maximum size of an IP packet, in bytes.
const PACKET: usize = 65_535;
/// Maximum number of UDP ports that have separate counters, in each direction of a link. Further
/// ports share a counter.
const PORTS: usize = 256;

/// All links of a network, with the interfaces at their ends.
pub(super) struct Engine {
    clock: Clock,
    cables: Vec<LinkState>,
    /// Time of the next arrival in each direction. The index of a direction is also the poller's
    /// token for the interface that feeds this direction.
    agenda: Agenda,
    /// Scheduled changes of links, in order of time.
    script: VecDeque<(Time, Event)>,
    buffer: Vec<u8>,
    /// The censors of the hosts that block connections, by the index of the host.
    censors: BTreeMap<usize, Censor>,
}

/// A link between two interfaces. Direction (`way`) 0 is from the first interface to the second,
/// direction 1 the reverse.
struct LinkState {
    name: String,
    tuns: [Tun; 2],
    ways: [LinkDirection; 2],
}

struct LinkDirection {
    link: Link<Box<[u8]>>,
    /// Index of the host at the end of this direction.
    to: usize,
    refused: Count,
    censored: Count,
    udp: BTreeMap<u16, Count>,
}

impl Engine {
    pub(super) fn new() -> Engine {
        let (cables, script) = (Vec::new(), VecDeque::new());
        let (agenda, censors) = (Agenda::default(), BTreeMap::new());
        Engine { clock: Clock::start(), cables, agenda, script, buffer: vec![0; PACKET], censors }
    }

    /// Makes the host with the index `host` block connections to the servers in `names`.
    pub(super) fn censor(&mut self, host: usize, names: &[String]) {
        self.censors.insert(host, Censor::new(names.iter().cloned()));
    }

    /// Adds a link. Each of the link's directions has its own stream of random numbers.
    pub(super) fn add(&mut self, cable: &Cable, tuns: [Tun; 2], seed: u64) {
        let entity = 2 * self.cables.len() as u64;
        let way = |settings: &anabranch_netem::LinkSettings, end: usize, entity| LinkDirection {
            link: Link::new(settings.clone(), seed, entity),
            to: cable.ends[end].host,
            refused: Count::default(),
            censored: Count::default(),
            udp: BTreeMap::new(),
        };
        self.cables.push(LinkState {
            name: cable.name.clone(),
            tuns,
            ways: [way(&cable.forward, 1, entity), way(&cable.back, 0, entity + 1)],
        });
        self.agenda.add();
        self.agenda.add();
    }

    /// Schedules changes of links. Their times count from the present and must be in ascending
    /// order.
    pub(super) fn play(&mut self, events: &[Event]) {
        let start = self.clock.now();
        self.script = events.iter().map(|event| (start + event.at, event.clone())).collect();
    }

    /// Changes the properties of a link from now on; returns false if no link has this name.
    pub(super) fn change(&mut self, name: &str, edit: &Edit) -> bool {
        let cable = self.cables.iter().position(|cable| cable.name == name);
        cable.map(|cable| self.edit(cable, self.clock.now(), edit)).is_some()
    }

    fn edit(&mut self, cable: usize, now: Time, edit: &Edit) {
        self.cables[cable].change(now, edit);
        self.plan(cable, 0);
        self.plan(cable, 1);
    }

    /// Updates the agenda with the time of the next action in direction `way` of a link. The
    /// caller must do this after each change of the link's state.
    fn plan(&mut self, cable: usize, way: usize) {
        self.agenda.set(2 * cable + way, self.cables[cable].ways[way].link.next_timeout());
    }

    /// Applies the scheduled changes of links whose time has come.
    pub(super) fn follow_script(&mut self) {
        let now = self.clock.now();
        while let Some((_, event)) = self.script.pop_front_if(|(at, _)| *at <= now) {
            self.edit(event.link, now, &event.edit);
        }
    }

    pub(super) fn stats(&self) -> BTreeMap<String, LinkStats> {
        let stats = |cable: &LinkState| {
            let [forward, back] = [0, 1].map(|way: usize| cable.ways[way].stats());
            (cable.name.clone(), LinkStats { forward, back })
        };
        self.cables.iter().map(stats).collect()
    }

    /// Registers all interfaces with `poller`. The poller reports an interface by the token that
    /// [`take_in`](Engine::take_in) expects.
    pub(super) fn watch(&self, poller: &Poller) -> io::Result<()> {
        let tuns = self.cables.iter().flat_map(|cable| &cable.tuns);
        tuns.zip(0..).try_for_each(|(tun, token)| poller.add(tun, token))
    }

    /// Reads a batch of waiting packets from the interface that `token` identifies.
    pub(super) fn take_in(&mut self, token: u64) -> io::Result<()> {
        let (cable, way) = (token as usize / 2, token as usize % 2);
        let taken = self.cables[cable].take_in(way, &self.clock, &mut self.buffer);
        self.plan(cable, way);
        taken
    }

    /// Removes an interface from `poller`.
    pub(super) fn forget(&self, token: u64, poller: &Poller) -> io::Result<()> {
        poller.remove(&self.cables[token as usize / 2].tuns[token as usize % 2])
    }

    /// Delivers the due packets of all links in the order of their arrival, across all links, even
    /// after a late wake-up. Otherwise packets of different paths could overtake each other, and a
    /// server that answers on the path of the newest packet would choose a wrong path.
    pub(super) fn hand_out(&mut self) {
        let mut now = self.clock.now();
        while let Some((due, index)) = self.agenda.first() {
            if due > now {
                now = self.clock.now();
                if due > now {
                    return;
                }
            }
            let (cable, way) = (index / 2, index % 2);
            self.cables[cable].hand_out(way, now, &mut self.censors);
            self.plan(cable, way);
        }
    }

    /// Returns the time until a packet or a change is due, at most `longest`.
    pub(super) fn until_due(&self, longest: Duration) -> Duration {
        let packet = self.agenda.first().map_or(Time::MAX, |first| first.0);
        let change = self.script.front().map_or(Time::MAX, |first| first.0);
        packet.min(change).since(self.clock.now()).min(longest)
    }
}

impl LinkState {
    fn change(&mut self, now: Time, edit: &Edit) {
        for (way, back) in self.ways.iter_mut().zip([false, true]) {
            way.link.change(now, |settings| edit.apply(settings, back));
        }
    }

    fn take_in(&mut self, way: usize, clock: &Clock, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..BATCH {
            let Some(len) = self.tuns[way].read(buffer)? else { break };
            self.ways[way].enter(clock.now(), &buffer[..len], way);
        }
        Ok(())
    }

    /// Delivers the next packet of direction `way`, if it has arrived by `now`.
    fn hand_out(&mut self, way: usize, now: Time, censors: &mut BTreeMap<usize, Censor>) {
        let LinkDirection { link, to, refused, censored, .. } = &mut self.ways[way];
        let Some(packet) = link.pop(now) else { return };
        if censors.get_mut(to).is_some_and(|censor| !censor.pass(&packet)) {
            censored.add(packet.len());
        } else if self.tuns[1 - way].write(&packet).is_err() {
            refused.add(packet.len());
        }
    }
}

impl LinkDirection {
    fn enter(&mut self, now: Time, packet: &[u8], way: usize) {
        if let Some(ports) = udp_ports(packet) {
            self.count_udp(ports[1 - way], packet.len());
        }
        // The link itself counts dropped packets, and the sender must not notice the drops.
        let _ = self.link.push(now, packet.into(), packet.len());
    }

    /// Counts a UDP packet under its port. Once [`PORTS`] ports have counters, packets of further
    /// ports are counted under port 0, so that a port scan cannot exhaust memory.
    fn count_udp(&mut self, port: u16, bytes: usize) {
        let full = self.udp.len() >= PORTS && !self.udp.contains_key(&port);
        self.udp.entry(if full { 0 } else { port }).or_default().add(bytes);
    }

    fn stats(&self) -> DirectionStats {
        DirectionStats::new(self.link.counters(), self.refused, self.censored, self.udp.clone())
    }
}
