//! CPU time of a cell through a middle relay: the cell arrives on a link, the core passes it on,
//! and the next link sends it. TLS links, QUIC links and lossy cells (in datagrams of QUIC links)
//! are measured in turn, in memory or through sockets. Without sockets the result leaves out the
//! kernel's work.

mod datagrams;
mod quic;
mod tls;

use std::io;
use std::time::Duration;

use anabranch_multipath::{Core, Time};
use anabranch_onion::handshake::extension::HopRequest;
use anabranch_onion::relay::Relay;
use anabranch_onion::wire::cell::{BODY, CELL, Command, NUMBERED_CELL, put_fixed, put_numbered};
use anabranch_onion::wire::message::{Message, RelayCommand};
use anabranch_onion::{LinkCore, LinkId, LinkInput};
use anabranch_testkit::onion_world::{Setting, World};
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};

/// Time between two reads of a link.
const STEP: Duration = Duration::from_micros(100);
/// Time that the nodes need to open QUIC links and to acknowledge all cells.
const OPENING: Duration = Duration::from_secs(10);
/// Number of turns without any progress after which a measurement has failed.
const MOST_IDLE: usize = 100_000;
/// Number of turns without any progress after which the remaining lossy cells count as lost.
const LAST_TURNS: usize = 100;
/// Index of the middle relay in the world.
const MIDDLE: usize = 1;
/// Kinds of links, in the order in which they are measured.
const KINDS: [Kind; 3] = [Kind::Tls, Kind::Quic, Kind::Lossy];
/// Kinds that are compared: the first with the second.
const COMPARED: [(Kind, Kind); 2] = [(Kind::Quic, Kind::Tls), (Kind::Lossy, Kind::Quic)];

/// Pass cells through a middle relay, and print the CPU time of a cell in nanoseconds.
#[derive(Parser)]
struct Arguments {
    /// Pass CELLS cells in each run.
    #[arg(long, default_value_t = 100_000)]
    cells: usize,
    /// Repeat each measurement RUNS times; the kinds of links take turns.
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// Let the relay receive PIECE bytes at a time.
    #[arg(long, default_value_t = 22_000)]
    piece: usize,
    /// Send the cells of CIRCUITS circuits in turn.
    #[arg(long, default_values_t = [1, 4])]
    circuits: Vec<u64>,
    /// Send the links' bytes through sockets on loopback, and count the kernel's time.
    #[arg(long)]
    sockets: bool,
    /// Measure only links of these KINDs.
    #[arg(long, value_enum)]
    kind: Vec<Kind>,
}

/// Kind of a link.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Tls,
    Quic,
    /// Lossy cells, in datagrams of QUIC links.
    Lossy,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Tls => "TLS",
            Kind::Quic => "QUIC",
            Kind::Lossy => "lossy",
        }
    }
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    for &circuits in &arguments.circuits {
        measure(circuits, &arguments)?;
    }
    Ok(())
}

/// Measures all kinds of links in turn, and prints the results.
fn measure(circuits: u64, arguments: &Arguments) -> io::Result<()> {
    let Arguments { cells, runs, piece, sockets, ref kind, .. } = *arguments;
    let kinds = KINDS.into_iter().filter(|one| kind.is_empty() || kind.contains(one));
    let mut middles = Vec::new();
    for kind in kinds {
        let mut middle = Middle::new(kind, circuits, piece, sockets)?;
        // The congestion windows of QUIC and TCP grow before the measurement.
        (0..2).try_for_each(|from| middle.pass(from, cells.min(20_000)).map(drop))?;
        middles.push((kind, middle, [Vec::new(), Vec::new()]));
    }
    for _ in 0..runs.max(1) {
        for (_, middle, found) in &mut middles {
            for (from, found) in found.iter_mut().enumerate() {
                found.push(middle.pass(from, cells)?);
            }
        }
    }
    for (from, way) in ["away from the client", "towards the client"].iter().enumerate() {
        for (kind, _, found) in &middles {
            let found = spread(found[from].clone(), 0);
            println!("{circuits} circuit(s), {way}, {}: {found} ns a cell", kind.name());
        }
        for (one, other) in COMPARED {
            let found = |kind| middles.iter().find(|(of, ..)| *of == kind).map(|(.., found)| found);
            let (Some(these), Some(those)) = (found(one), found(other)) else { continue };
            let ratios = these[from].iter().zip(&those[from]).map(|(one, other)| one / other);
            let (ratios, names) = (spread(ratios.collect(), 2), [one, other].map(Kind::name));
            println!("{circuits} circuit(s), {way}, {}: {ratios}", names.join(" : "));
        }
    }
    Ok(())
}

/// The links of the middle relay to its two neighbours. Index 0 is the side of the client.
trait Links {
    /// Sends the first cells of `plain` from the neighbour `from`, as far as there is room.
    /// Returns their length in bytes.
    fn send(&mut self, now: Time, from: usize, plain: &[u8]) -> io::Result<usize>;

    /// Does what an event loop of the relay does when bytes have arrived on its links.
    fn turn(&mut self, now: Time, relay: &mut Relay) -> io::Result<()>;

    /// Lets the neighbours receive what the relay has sent. Returns the number of bytes of
    /// circuits' cells.
    fn settle(&mut self, now: Time) -> io::Result<usize>;
}

/// A middle relay, and its links and circuits. Index 0 is the side of the client.
struct Middle {
    world: World,
    now: Time,
    /// IDs of each circuit on both links.
    circuits: Vec<[u32; 2]>,
    links: Box<dyn Links>,
    lossy: bool,
    /// Counter of the next lossy cell in each direction.
    counters: [u32; 2],
}

impl Middle {
    fn new(kind: Kind, circuits: u64, piece: usize, sockets: bool) -> io::Result<Middle> {
        let (quic, lossy) = (kind != Kind::Tls, kind == Kind::Lossy);
        let mut world = World::new(Setting { pieces: false, quic, lossy, ..Setting::default() });
        let request = if lossy { HopRequest::Lossy } else { HopRequest::Plain };
        if quic {
            // QUIC links are opened alongside the TLS links of this circuit.
            world.build_through_all(0, HopRequest::Plain);
            world.run_for(OPENING);
        }
        for key in 1..=circuits {
            let hops = (0..world.setting.relays).map(|relay| world.hop(relay, request)).collect();
            if !world.build(key, hops) {
                return Err(io::Error::other("a circuit could not be built"));
            }
        }
        world.run_for(OPENING);
        // Node 0 is the client, and node `n` is the relay `n - 1`.
        let between = |ends: [usize; 2]| {
            let (nodes, is_kind) =
                (ends.map(|relay| relay + 1), |id| world.quic.contains(id) == quic);
            let mut found = world.pipes.iter().filter(|(id, _)| is_kind(*id));
            found.find(|(_, pipe)| pipe.nodes == nodes).map(|(id, _)| *id)
        };
        let (Some(back), Some(on)) = (between([0, MIDDLE]), between([MIDDLE, 2])) else {
            return Err(io::Error::other("the circuit uses no links"));
        };
        let (ids, now) = ([back, on], world.now);
        let first = usize::from(quic);
        let relay = &mut world.relays[MIDDLE].core;
        let circuits: Vec<[u32; 2]> =
            (0..circuits as usize).map(|nth| circuit_ids(relay, now, ids, first + nth)).collect();
        let links: Box<dyn Links> = match kind {
            Kind::Tls => Box::new(tls::TlsLinks::new(ids, piece, sockets)?),
            Kind::Quic | Kind::Lossy => {
                let how = (piece, sockets, lossy);
                Box::new(quic::QuicLinks::new(now, ids, &circuits, how)?)
            }
        };
        Ok(Middle { world, now, circuits, links, lossy, counters: [0; 2] })
    }

    /// Passes `cells` cells that arrive on the link of the side `from`. Returns the relay's CPU
    /// time in nanoseconds for each cell that the next neighbour has received.
    fn pass(&mut self, from: usize, cells: usize) -> io::Result<f64> {
        let mut plain = Vec::with_capacity(cells * NUMBERED_CELL);
        for (cell, circuit) in (0..cells).zip(self.circuits.iter().cycle()) {
            let body = [cell as u8; BODY];
            match self.lossy {
                true => {
                    let (counter, command) = (self.counters[from], Command::RELAY_LOSSY);
                    put_numbered(&mut plain, circuit[from], command, counter, &body);
                    self.counters[from] += 1;
                }
                false => put_fixed(&mut plain, circuit[from], Command::RELAY, &body),
            }
        }
        let (mut rest, mut passed, mut spent, mut idle) = (&plain[..], 0, 0.0, 0);
        while passed < plain.len() {
            self.now += STEP;
            let sent = self.links.send(self.now, from, rest)?;
            rest = &rest[sent..];
            let begun = cpu();
            self.links.turn(self.now, &mut self.world.relays[MIDDLE].core)?;
            spent += cpu() - begun;
            let received = self.links.settle(self.now)?;
            passed += received;
            idle = if sent + received == 0 { idle + 1 } else { 0 };
            // The lossy cells that have not arrived by now are lost.
            if self.lossy && rest.is_empty() && idle > LAST_TURNS && passed > plain.len() / 2 {
                break;
            }
            if idle > MOST_IDLE {
                return Err(io::Error::other(format!("{passed} of {} bytes passed", plain.len())));
            }
        }
        Ok(spent * plain.len() as f64 / (passed * cells) as f64)
    }
}

/// Returns the IDs of the relay's circuit `nth` on both links.
fn circuit_ids(relay: &mut Relay, now: Time, [back, on]: [LinkId; 2], nth: usize) -> [u32; 2] {
    let message = Message { command: RelayCommand::DROP, stream: 0, data: &[] };
    relay.send_message(now, nth, message);
    let id = id_of(relay, now, back);
    let mut cell = Vec::new();
    put_fixed(&mut cell, id, Command::RELAY, &[7; BODY]);
    relay.handle_link(now, LinkInput::Bytes { link: back, bytes: &cell });
    [id, id_of(relay, now, on)]
}

/// Returns the circuit ID of the next cell of a circuit for `link`.
fn id_of(relay: &mut Relay, now: Time, link: LinkId) -> u32 {
    let mut out = Vec::new();
    while relay.poll(now).is_some() {}
    relay.transmit(now, link, &mut out, usize::MAX);
    let ids = out.chunks(CELL).filter_map(|cell| cell.first_chunk());
    ids.map(|id| u32::from_be_bytes(*id)).find(|id| *id != 0).expect("a cell waits")
}

/// Returns the CPU time of this thread in nanoseconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Returns the median, the smallest and the largest value as text.
fn spread(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    let (least, most) = (values[0], values[values.len() - 1]);
    format!("{:.digits$} ({least:.digits$}-{most:.digits$})", values[values.len() / 2])
}
