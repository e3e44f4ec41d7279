//! Bulk transfers from one host to another. They are the benchmark of the simulator itself.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_tcp::{Config, Stats};

use crate::{
    ConnId, HostId, HostProgram, HostSettings, Io, Latencies, LineSettings, Simulation, TcpEvent,
};

/// Port of the receiving host.
const PORT: u16 = 5001;
/// Number of unsent bytes in a connection at which a sender pauses writing.
const AHEAD: u32 = 64 << 10;

/// A benchmark of several connections from one host to another. The access lines of both hosts
/// have the same rate and queue.
#[derive(Clone, Debug)]
pub struct Flows {
    /// Number of connections, which begin one after another.
    pub count: u32,
    /// Time between the starts of consecutive connections.
    pub apart: Duration,
    /// Rate of the access lines of both hosts, in bits per second.
    pub rate: NonZeroU64,
    /// Size in bytes of the queue of each access line.
    pub queue: usize,
    /// Share of packets that are lost on the receiver's access line, in `0.0..=1.0`.
    pub loss: f64,
    /// One-way delay of the core network.
    pub delay: Duration,
    /// Simulated duration of the benchmark.
    pub span: Duration,
    /// TCP settings of the connections.
    pub tcp: Config,
}

impl Default for Flows {
    /// Returns four CUBIC connections over access lines of 100 Mbit/s and a core network with a
    /// delay of 10 ms. They send for 20 s.
    fn default() -> Flows {
        Flows {
            count: 4,
            apart: Duration::ZERO,
            rate: const { NonZeroU64::new(100_000_000).unwrap() },
            queue: 250_000,
            loss: 0.0,
            delay: Duration::from_millis(10),
            span: Duration::from_secs(20),
            tcp: Config::default(),
        }
    }
}

/// Result of a simulation of [`Flows`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Number of bytes that the receiver has read, by connection.
    pub received: Vec<u64>,
    /// Number of packet transmissions. Each packet is counted once for each access line that
    /// carried it, and once for the core network.
    pub packet_hops: u64,
    /// Hash of all events of the simulation.
    pub hash: u64,
    /// Counters of the sender's connections.
    pub stats: Vec<Stats>,
}

impl Outcome {
    /// Returns the rate in bits per second at which all connections together delivered data within
    /// `span`.
    pub fn goodput(&self, span: Duration) -> f64 {
        self.received.iter().sum::<u64>() as f64 * 8.0 / span.as_secs_f64()
    }

    /// Returns Jain's fairness index of the connections' goodputs: 1 if all are equal.
    pub fn fairness(&self) -> f64 {
        let sum = self.received.iter().map(|&bytes| bytes as f64).sum::<f64>();
        let squares = self.received.iter().map(|&bytes| (bytes as f64).powi(2)).sum::<f64>();
        sum * sum / squares / self.received.len() as f64
    }
}

impl Flows {
    /// Simulates the transfers, with random numbers from `seed`.
    pub fn run(&self, seed: u64) -> Outcome {
        let mut simulation = Simulation::new(Latencies::uniform(self.delay), seed);
        let line = LineSettings { rate: self.rate, queue: self.queue, loss: 0.0 };
        let plain = HostSettings::symmetric(line);
        let lossy = HostSettings { down: LineSettings { loss: self.loss, ..line }, ..plain };
        let sink = simulation.add_host(lossy, self.tcp.clone(), Peer::Sink(BTreeMap::new()));
        let source = Source { sink, flows: self.clone(), conns: Vec::new() };
        let source = simulation.add_host(plain, self.tcp.clone(), Peer::Source(source));
        simulation.run_until(Time::ZERO + self.span);
        outcome(&simulation, [source, sink])
    }
}

fn outcome(simulation: &Simulation<Peer>, hosts: [HostId; 2]) -> Outcome {
    let [source, sink] = hosts;
    let received = match simulation.program(sink) {
        Peer::Sink(received) => received.values().copied().collect(),
        Peer::Source(_) => Vec::new(),
    };
    let conns = match simulation.program(source) {
        Peer::Source(source) => &source.conns[..],
        Peer::Sink(_) => &[],
    };
    let stack = simulation.tcp(source);
    let [up, down] = [0, 1]
        .map(|side| hosts.iter().map(|&host| simulation.stats(host)[side].packets).sum::<u64>());
    Outcome {
        received,
        // Every packet that leaves its sender's line crosses the core.
        packet_hops: 2 * up + down,
        hash: simulation.trace().hash(),
        stats: conns.iter().filter_map(|&conn| stack.stats(conn)).collect(),
    }
}

#[derive(Debug)]
enum Peer {
    Source(Source),
    /// The receiving host. The field is the number of bytes that the host has read, by connection.
    Sink(BTreeMap<ConnId, u64>),
}

#[derive(Debug)]
struct Source {
    sink: HostId,
    flows: Flows,
    conns: Vec<ConnId>,
}

impl Source {
    fn next_start(&self) -> Option<Time> {
        let begun = self.conns.len() as u32;
        (begun < self.flows.count).then(|| Time::ZERO + self.flows.apart * begun)
    }
}

impl HostProgram for Peer {
    fn start(&mut self, io: &mut Io<'_>) {
        if let Peer::Sink(_) = self {
            io.tcp.listen(PORT);
        }
    }

    fn handle(&mut self, io: &mut Io<'_>, event: TcpEvent) {
        let (TcpEvent::Opened { conn }
        | TcpEvent::Accepted { conn, .. }
        | TcpEvent::Progress { conn }) = event
        else {
            return;
        };
        match self {
            Peer::Source(_) => {
                while io.tcp.view(io.now, conn).is_some_and(|view| view.notsent < AHEAD)
                    && io.tcp.write(conn, &[0; 16_384]) > 0
                {}
            }
            Peer::Sink(received) => {
                let mut bytes = Vec::new();
                io.tcp.read_all(conn, &mut bytes);
                *received.entry(conn).or_default() += bytes.len() as u64;
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        match self {
            Peer::Source(source) => source.next_start(),
            Peer::Sink(_) => None,
        }
    }

    fn expire(&mut self, io: &mut Io<'_>) {
        let Peer::Source(source) = self else { return };
        while source.next_start().is_some_and(|start| start <= io.now) {
            source.conns.push(io.tcp.connect(io.now, source.sink, PORT));
        }
    }
}
