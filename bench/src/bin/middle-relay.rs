//! CPU time of a cell through a middle relay, without sockets: its TLS records are opened, the core
//! passes it on, and it is sealed in records of the next link.

use std::io;
use std::time::Duration;

use anabranch_links::{Context, Link, State, StreamLink, Tls};
use anabranch_multipath::Time;
use anabranch_onion::handshake::extension::HopRequest;
use anabranch_onion::relay::{Output, Relay};
use anabranch_onion::wire::cell::{BODY, CELL, Command, put_fixed};
use anabranch_onion::wire::message::{Message, RelayCommand};
use anabranch_onion::{Core, LinkId, LinkInput, LinkOutput};
use anabranch_testkit::onion_world::{Setting, UNIX, World};
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};

/// Bytes of cells that a relay seals at once.
const BATCH: usize = 32 << 10;
/// Time between two reads of a link.
const STEP: Duration = Duration::from_micros(100);
/// Index of the middle relay in the world.
const MIDDLE: usize = 1;

/// Pass cells through a middle relay, and print the CPU time of a cell in nanoseconds.
#[derive(Parser)]
struct Arguments {
    /// Pass CELLS cells in each run.
    #[arg(long, default_value_t = 100_000)]
    cells: usize,
    /// Repeat each measurement RUNS times, in turn.
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// Receive PIECE bytes at once.
    #[arg(long, default_value_t = 22_000)]
    piece: usize,
    /// Alternate the cells of CIRCUITS circuits.
    #[arg(long, default_values_t = [1, 4])]
    circuits: Vec<u64>,
}

fn main() -> io::Result<()> {
    let Arguments { cells, runs, piece, circuits } = Arguments::parse();
    for circuits in circuits {
        let mut middle = Middle::new(circuits)?;
        let mut found = [Vec::new(), Vec::new()];
        for _ in 0..runs.max(1) {
            for (from, found) in found.iter_mut().enumerate() {
                found.push(middle.pass(from, cells, piece)? / cells as f64);
            }
        }
        for (way, found) in ["away from the client", "towards the client"].iter().zip(found) {
            println!("{circuits} circuit(s), {way}: {} ns a cell", spread(found));
        }
    }
    Ok(())
}

/// A middle relay, and its links and circuits. Index 0 is the side of the client.
struct Middle {
    world: World,
    now: Time,
    links: [LinkId; 2],
    /// IDs of each circuit on both links.
    circuits: Vec<[u32; 2]>,
    /// Both ends of each link: the neighbour's, and the relay's.
    tls: [[Tls; 2]; 2],
}

impl Middle {
    fn new(circuits: u64) -> io::Result<Middle> {
        let mut world = World::new(Setting { pieces: false, ..Setting::default() });
        for key in 1..=circuits {
            world.build_through_all(key, HopRequest::Plain);
        }
        let between = |ends: [usize; 2]| world.link_between(ends.map(Some));
        let (Some(back), Some(on)) = (between([0, MIDDLE]), between([MIDDLE, 2])) else {
            return Err(io::Error::other("the circuit uses no links"));
        };
        let (now, links, tls) = (world.now, [back, on], [pair()?, pair()?]);
        let mut middle = Middle { world, now, links, circuits: Vec::new(), tls };
        for nth in 0..circuits as usize {
            let ids = middle.ids(nth);
            middle.circuits.push(ids);
        }
        Ok(middle)
    }

    fn relay(&mut self) -> &mut Relay {
        &mut self.world.relays[MIDDLE].core
    }

    /// Returns the IDs of the circuit `nth` on both links.
    fn ids(&mut self, nth: usize) -> [u32; 2] {
        let (now, [back, on]) = (self.now, self.links);
        let message = Message { command: RelayCommand::DROP, stream: 0, data: &[] };
        self.relay().send_message(now, nth, message);
        let id = id_of(self.relay(), now, back);
        let mut cell = Vec::new();
        put_fixed(&mut cell, id, Command::RELAY, &[7; BODY]);
        self.relay().handle_link(now, LinkInput::Bytes { link: back, bytes: &cell });
        [id, id_of(self.relay(), now, on)]
    }

    /// Passes `cells` cells that arrive on the link of the side `from`, `piece` bytes at a time.
    /// Returns the CPU time in nanoseconds.
    fn pass(&mut self, from: usize, cells: usize, piece: usize) -> io::Result<f64> {
        let mut plain = Vec::with_capacity(cells * CELL);
        for (cell, circuit) in (0..cells).zip(self.circuits.iter().cycle()) {
            let body = [cell as u8; BODY];
            put_fixed(&mut plain, circuit[from], Command::RELAY, &body);
        }
        let neighbour = &mut self.tls[from][0];
        neighbour.write(&plain).map_err(io::Error::other)?;
        let mut wire = Vec::new();
        neighbour.transmit(Time::ZERO, &mut wire);
        let (mut turns, mut spent) = (Turns::default(), 0.0);
        for piece in wire.chunks(piece.max(1)) {
            self.now += STEP;
            let (now, link) = (self.now, self.links[from]);
            let relay = &mut self.world.relays[MIDDLE].core;
            let [first, second] = &mut self.tls;
            let (into, out) = if from == 0 { (first, second) } else { (second, first) };
            let begun = cpu();
            turns.turn(now, relay, (link, piece), [&mut into[1], &mut out[1]])?;
            spent += cpu() - begun;
        }
        match turns.passed == cells * CELL {
            true => Ok(spent),
            false => Err(io::Error::other(format!("{} bytes passed", turns.passed))),
        }
    }
}

/// Buffers of an event loop, and the bytes of cells that it has passed on.
#[derive(Default)]
struct Turns {
    plain: Vec<u8>,
    sealed: Vec<u8>,
    passed: usize,
}

impl Turns {
    /// Does what an event loop does with bytes that have arrived on a link.
    #[inline(never)]
    fn turn(
        &mut self,
        now: Time,
        relay: &mut Relay,
        (link, bytes): (LinkId, &[u8]),
        [into, out]: [&mut Tls; 2],
    ) -> io::Result<()> {
        self.plain.clear();
        into.receive(now, bytes).map_err(io::Error::other)?;
        into.read(&mut self.plain).map_err(io::Error::other)?;
        relay.handle_link(now, LinkInput::Bytes { link, bytes: &self.plain });
        while let Some(output) = relay.poll() {
            let Output::Link(LinkOutput::Transmit { link }) = output else { continue };
            let mut more = true;
            while more {
                self.plain.clear();
                more = relay.transmit(now, link, &mut self.plain, BATCH);
                self.passed += self.plain.len();
                out.write(&self.plain).map_err(io::Error::other)?;
                self.sealed.clear();
                out.transmit(now, &mut self.sealed);
            }
        }
        Ok(())
    }
}

/// Returns the circuit ID of the next cell for `link`.
fn id_of(relay: &mut Relay, now: Time, link: LinkId) -> u32 {
    let mut out = Vec::new();
    while relay.poll().is_some() {}
    relay.transmit(now, link, &mut out, usize::MAX);
    u32::from_be_bytes(*out.first_chunk().expect("a cell waits"))
}

/// Returns both ends of an open TLS connection: the client's, and the server's.
fn pair() -> io::Result<[Tls; 2]> {
    let context = Context::new(UNIX).map_err(io::Error::other)?;
    let mut ends =
        [context.connect().map_err(io::Error::other)?, context.accept().map_err(io::Error::other)?];
    while ends.iter().any(|end| end.state() != State::Open) {
        for from in [0, 1] {
            let mut wire = Vec::new();
            ends[from].transmit(Time::ZERO, &mut wire);
            ends[1 - from].receive(Time::ZERO, &wire).map_err(io::Error::other)?;
        }
    }
    // Session tickets.
    let mut wire = Vec::new();
    ends[1].transmit(Time::ZERO, &mut wire);
    ends[0].receive(Time::ZERO, &wire).map_err(io::Error::other)?;
    Ok(ends)
}

/// Returns the CPU time of this thread in nanoseconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Returns the median, the smallest and the largest value as text.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let (least, most) = (values[0], values[values.len() - 1]);
    format!("{:.0} ({least:.0}-{most:.0})", values[values.len() / 2])
}
