//! A host that runs a relay.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anabranch_links::quic::RECEIVING;
use anabranch_multipath::{Core as _, Time, seed};
use anabranch_onion::channel::Role;
use anabranch_onion::conflux::ConfluxParams;
use anabranch_onion::congestion::Params;
use anabranch_onion::padding::PaddingParams;
use anabranch_onion::relay::{Config, Output, Relay, ServiceParams, Stats};
use anabranch_onion::wire::cell::CELL;
use anabranch_onion::wire::crypto::CurveKeys;
use anabranch_onion::{Event, LossyTraffic};

use super::documents::{ORPORT, QUIC_PORT, RelayDocuments};
use super::exits::Exits;
use super::hosts::{Hosts, Side};
use super::links::Links;
use super::{Common, Crypto};
use crate::queue::HostId;
use crate::simulation::{HostProgram, Io};
use crate::stack::{ConnId, TcpEvent};

/// Maximum bytes that a relay processes from one link before it continues with the next link.
const QUANTUM: usize = 16 << 10;

/// Times that a relay's CPU, with a single core, takes for its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Time to process a cell of 514 bytes. For received bytes the time is proportional to their
    /// number.
    pub cell: Duration,
    /// Time to create a circuit.
    pub circuit: Duration,
}

impl Default for Cpu {
    /// Returns values measured on this project's relay. `cell` is computed from the measured 1.05
    /// ms for a megabyte of cells in a middle relay. `circuit` is the time of one side of an
    /// ntor-v3 handshake. It is a sixth of the measured 0.55 ms for both sides of three
    /// handshakes.
    fn default() -> Cpu {
        Cpu { cell: Duration::from_nanos(520), circuit: Duration::from_micros(92) }
    }
}

/// Maximum total bytes of datagrams that wait for a relay's CPU; further datagrams are dropped.
const MOST_DATAGRAMS: usize = RECEIVING;

/// Input that waits for a host's CPU.
#[derive(Debug)]
enum Work {
    /// Received bytes of this connection.
    Conn(ConnId),
    /// A datagram, and the host that sent it.
    Datagram(HostId, Vec<u8>),
}

/// The CPU of a host, and the input that waits for it.
#[derive(Debug)]
struct Processor {
    settings: Option<Cpu>,
    /// Time at which the CPU is free again.
    free: Time,
    busy: Duration,
    waiting: VecDeque<Work>,
    /// Total bytes of the datagrams in `waiting`.
    datagrams: usize,
}

impl Processor {
    fn spend(&mut self, now: Time, bytes: usize, circuits: u64) {
        let Some(cpu) = self.settings else { return };
        let cells = Duration::from_nanos(cpu.cell.as_nanos() as u64 * bytes as u64 / CELL as u64);
        let time = cells + cpu.circuit * u32::try_from(circuits).unwrap_or(u32::MAX);
        self.free = self.free.max(now) + time;
        self.busy += time;
    }
}

/// A host that runs a relay.
pub struct RelayHost {
    core: Relay,
    links: Links,
    exits: Exits,
    processor: Processor,
    violations: u64,
    /// Counts of the bytes received: in datagrams, and over TLS links.
    received: [u64; 2],
    /// True if the relay accepts TCP connections that simulate QUIC links.
    accepts_simulated_quic: bool,
}

impl RelayHost {
    pub(super) fn new(
        common: &Common,
        (place, papers, exit): (usize, &RelayDocuments, bool),
        params: &BTreeMap<String, i32>,
        hosts: &Arc<Hosts>,
    ) -> RelayHost {
        let credentials = &papers.credentials;
        let config = Config {
            identity: credentials.identity,
            onion_keys: vec![CurveKeys::from(papers.onion_secret)],
            params: congestion(params),
            services: ServiceParams::new(params),
            policy: common.policy,
            exit,
            conflux: ConfluxParams::new(params),
            dealing: common.dealing.clone(),
            directory: true,
            allow_private: false,
            max_cells: 1_000_000,
            max_queue: 50_000,
            max_half_open: usize::MAX,
            max_streams: 1_000,
            lossy: common.udp_or.is_some(),
        };
        let responder = Role::Responder(Arc::clone(credentials));
        let initiator = Role::Initiator(Arc::clone(credentials));
        let rng = Box::new(seed::stream(common.seed, place as u64, "relay"));
        let mut core = Relay::new(config, responder, initiator, rng);
        core.set_padding(PaddingParams::new(params));
        if common.crypto == Crypto::Elided {
            core.elide_crypto();
        }
        common.udp_or.into_iter().for_each(|control| core.set_lossy_congestion(control));
        RelayHost {
            core,
            links: Links::new(hosts, common, Side::Relay(place)),
            exits: Exits::new(Arc::clone(hosts)),
            processor: Processor {
                settings: common.cpu,
                free: Time::ZERO,
                busy: Duration::ZERO,
                waiting: VecDeque::new(),
                datagrams: 0,
            },
            violations: 0,
            received: [0; 2],
            accepts_simulated_quic: common.udp_or.is_some() && hosts.quic.is_none(),
        }
    }

    /// Returns the counters of the relay.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Returns the counters of lossy cells (cells in datagrams, which may get lost) that streams
    /// of this relay, as an exit, have sent.
    pub fn lossy_traffic(&self) -> LossyTraffic {
        self.core.lossy_traffic()
    }

    /// Returns the number of the relay's links.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Returns the counts of the bytes that the relay received: in datagrams, and over TLS links.
    pub fn received(&self) -> [u64; 2] {
        self.received
    }

    /// Returns the number of bytes of cells that the relay read before earlier cells of the same
    /// link had arrived.
    pub fn early(&self) -> u64 {
        self.links.early()
    }

    /// Returns the CPU time that the relay has used.
    pub fn busy(&self) -> Duration {
        self.processor.busy
    }

    /// Returns the number of protocol violations by the relays and clients that have links with
    /// this relay.
    pub fn violations(&self) -> u64 {
        self.violations
    }

    /// Queues a link's received bytes for the CPU, unless they are already queued.
    fn wait(&mut self, conn: ConnId) {
        let waits = |work: &Work| matches!(work, Work::Conn(waiting) if *waiting == conn);
        if !self.processor.waiting.iter().any(waits) {
            self.processor.waiting.push_back(Work::Conn(conn));
        }
    }

    /// Processes queued input while the CPU is free.
    fn serve(&mut self, io: &mut Io<'_>) {
        while self.processor.free <= io.now {
            let Some(work) = self.processor.waiting.pop_front() else { return };
            let before = self.core.circuits_made();
            let bytes = match &work {
                Work::Conn(conn) => {
                    let bytes = self.links.receive(io, &mut self.core, (*conn, QUANTUM));
                    self.received[1] += bytes as u64;
                    bytes
                }
                Work::Datagram(from, content) => {
                    self.processor.datagrams -= content.len();
                    self.received[0] += content.len() as u64;
                    self.links.receive_datagram(io, &mut self.core, (*from, content))
                }
            };
            self.execute(io);
            self.processor.spend(io.now, bytes, self.core.circuits_made() - before);
            if let Work::Conn(conn) = work
                && io.tcp.readable(conn) > 0
                && self.links.has(conn)
            {
                self.wait(conn);
            }
        }
    }

    /// Carries out the actions that the relay's core (its protocol state machine) requests, until
    /// none is left.
    fn execute(&mut self, io: &mut Io<'_>) {
        let RelayHost { core, links, exits, violations, .. } = self;
        while let Some(output) = core.poll(io.now) {
            match output {
                Output::Link(output) => links.execute(io, core, output),
                Output::Stream(output) => exits.execute(io, core, output),
                Output::Connect { stream, begin } => exits.connect(io, core, (stream, &begin)),
                Output::Event(Event::Violation { .. }) => *violations += 1,
                // Clients in a simulation do not use the directory or resolve names.
                Output::Directory { .. } | Output::Resolve { .. } | Output::Event(_) => {}
            }
        }
    }
}

impl HostProgram for RelayHost {
    fn start(&mut self, io: &mut Io<'_>) {
        io.tcp.listen(ORPORT);
        if self.accepts_simulated_quic {
            io.tcp.listen(QUIC_PORT);
        }
    }

    fn handle(&mut self, io: &mut Io<'_>, event: TcpEvent) {
        let (TcpEvent::Accepted { conn, .. }
        | TcpEvent::Opened { conn }
        | TcpEvent::Progress { conn }
        | TcpEvent::Closed { conn, .. }) = event;
        if self.exits.has(conn) {
            self.exits.take(io, &mut self.core, event);
        } else {
            self.links.take(io, &mut self.core, event);
            let may_have_early = self.links.are_unordered() && self.links.has(conn);
            if io.tcp.readable(conn) > 0 || io.tcp.is_finished(conn) || may_have_early {
                self.wait(conn);
            }
        }
        self.execute(io);
        self.serve(io);
    }

    fn datagram(&mut self, io: &mut Io<'_>, from: HostId, content: Vec<u8>) {
        let waiting = self.processor.datagrams + content.len();
        if waiting <= MOST_DATAGRAMS {
            self.processor.datagrams = waiting;
            self.processor.waiting.push_back(Work::Datagram(from, content));
        }
        self.serve(io);
    }

    fn next_timeout(&self) -> Option<Time> {
        let served = (!self.processor.waiting.is_empty()).then_some(self.processor.free);
        [self.core.next_timeout(), self.links.next_timeout(), served].into_iter().flatten().min()
    }

    fn expire(&mut self, io: &mut Io<'_>) {
        self.links.expire(io, &mut self.core);
        self.execute(io);
        self.serve(io);
    }
}

/// Returns the congestion control parameters in the `params` of a consensus.
pub(super) fn congestion(params: &BTreeMap<String, i32>) -> Arc<Params> {
    Arc::new(Params::of(params))
}
