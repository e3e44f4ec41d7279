//! CPU cost of a cell at a rendezvous point, compared with a cell that the relay forwards as a
//! middle. Only the core is measured, with links like those between shards.

use std::io;
use std::time::Instant;

use anabranch_multipath::{Core as _, Time, seed};
use anabranch_onion::channel::Role;
use anabranch_onion::conflux::ConfluxParams;
use anabranch_onion::crypto::{ClientLayer, Tor1Client};
use anabranch_onion::handshake::{Kind, fast};
use anabranch_onion::relay::{Config, Output, Relay, ServiceParams};
use anabranch_onion::wire::cell::{BODY, Body, CELL, Command, HEADER, put_fixed};
use anabranch_onion::wire::crypto::CurveKeys;
use anabranch_onion::wire::extend::{Extend, Target, put_created2};
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_onion::wire::link::Identity;
use anabranch_onion::wire::message::{self, Format, Message, RelayCommand};
use anabranch_onion::{LinkCore, LinkId, LinkInput, LinkOutput, circuitmux};
use clap::Parser;

/// Link over which circuits are created, and link of the next hop or of the other circuit.
const LINKS: [LinkId; 2] = [LinkId::new(0, 1), LinkId::new(0, 2)];
/// A circuit ID of the links' initiator.
const ID: u32 = 1 << 31 | 7;
const UNIX: u64 = 1_800_000_000;
const COOKIE: [u8; 20] = [9; 20];
/// Number of cells passed to the relay at once, as a link does.
const BATCH: usize = 32;

/// Forward cells as a middle and as a rendezvous point, and print the CPU time of a cell.
#[derive(Parser)]
struct Arguments {
    /// Forward CELLS cells in each run.
    #[arg(long, default_value_t = 100_000)]
    cells: usize,
    /// Repeat each measurement RUNS times; the measurements take turns.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let mut costs = [Vec::new(), Vec::new()];
    for run in 0..arguments.runs {
        for (joined, costs) in [false, true].into_iter().zip(&mut costs) {
            costs.push(measure(run, joined, arguments.cells)?);
        }
    }
    for (name, costs) in ["middle", "rendezvous point"].iter().zip(&mut costs) {
        costs.sort_by(f64::total_cmp);
        let (least, most) = (costs[0], costs[costs.len() - 1]);
        let median = costs[costs.len() / 2];
        println!("{name:<16} {median:>6.0} ns a cell ({least:.0}-{most:.0})");
    }
    Ok(())
}

/// Returns the time for a cell in nanoseconds.
fn measure(run: u64, joined: bool, cells: usize) -> io::Result<f64> {
    let mut bench = Bench::new(run)?;
    let from = if joined { bench.join() } else { bench.extend() };
    let mut bytes = Vec::with_capacity(cells * CELL);
    for _ in 0..cells {
        let mut body = [7; BODY];
        bench.layers[from].outbound(Command::RELAY, &mut body);
        put_fixed(&mut bytes, ID, Command::RELAY, &body);
    }
    let (begun, mut went) = (Instant::now(), 0);
    for batch in bytes.chunks(BATCH * CELL) {
        went += bench.give(LINKS[from], batch).iter().map(Vec::len).sum::<usize>();
    }
    let nanos = begun.elapsed().as_nanos() as f64 / cells as f64;
    let all = went == cells * CELL;
    if all { Ok(nanos) } else { Err(io::Error::other(format!("{went} bytes went on"))) }
}

struct Bench {
    relay: Relay,
    rng: seed::Stream,
    layers: Vec<Tor1Client>,
}

impl Bench {
    /// Creates a relay with one circuit on each of two links.
    fn new(run: u64) -> io::Result<Bench> {
        let mut rng = seed::stream(run, 0, "joined circuits");
        let keys = RelayKeys::generate(&mut rng, UNIX).map_err(io::Error::other)?;
        let identity = Identity { rsa: keys.rsa_identity(), ed25519: keys.ed_identity() };
        let config = config(identity, CurveKeys::from(keys.ntor().0));
        let own = Box::new(seed::stream(run, 1, "joined circuits"));
        let relay = Relay::new(config, Role::Client, Role::Client, own);
        let mut bench = Bench { relay, rng, layers: Vec::new() };
        for (shard, link) in (1..).zip(LINKS) {
            bench.feed(LinkInput::Sibling { link, first: false, shard });
            let (client, create) = fast::Client::start(&mut bench.rng);
            let reply = bench.cell(link, ID, Command::CREATE_FAST, &create);
            let keys = client.finish(&reply[HEADER..]).map_err(io::Error::other)?;
            bench.layers.push(Tor1Client::new(&keys));
        }
        Ok(bench)
    }

    /// Extends the first circuit over the second link; returns the link on which cells are to
    /// arrive.
    fn extend(&mut self) -> usize {
        let target = Target {
            addresses: vec![([192, 0, 2, 7], 9001).into()],
            rsa: [3; 20],
            ed25519: Some([4; 32]),
        };
        let wish = Extend { target: target.clone(), kind: Kind::NTOR, handshake: vec![5; 84] };
        self.send_message(0, Command::RELAY_EARLY, RelayCommand::EXTEND2, &wish.write());
        self.feed(LinkInput::Elsewhere { target, link: LINKS[1] });
        let asked = self.fetch();
        let id = u32::from_be_bytes(*asked[1].first_chunk().expect("it goes on"));
        self.cell(LINKS[1], id, Command::CREATED2, &put_created2(&[6; 64]));
        0
    }

    /// Joins both circuits; returns the link on which cells are to arrive.
    fn join(&mut self) -> usize {
        self.send_message(0, Command::RELAY, RelayCommand::ESTABLISH_RENDEZVOUS, &COOKIE);
        self.send_message(
            1,
            Command::RELAY,
            RelayCommand::RENDEZVOUS1,
            &[&COOKIE[..], &[1; 64]].concat(),
        );
        1
    }

    fn send_message(&mut self, circuit: usize, command: Command, what: RelayCommand, data: &[u8]) {
        let mut body: Body = [0; BODY];
        let message = Message { command: what, stream: 0, data };
        message::write(Format::V0, &mut body, message, &mut self.rng);
        self.layers[circuit].originate(command, &mut body);
        self.cell(LINKS[circuit], ID, command, &body);
    }

    /// Delivers a cell, and returns the reply on the same link.
    fn cell(&mut self, link: LinkId, id: u32, command: Command, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_fixed(&mut bytes, id, command, body);
        let [first, second] = self.give(link, &bytes);
        if link == LINKS[0] { first } else { second }
    }

    fn give(&mut self, link: LinkId, bytes: &[u8]) -> [Vec<u8>; 2] {
        self.feed(LinkInput::Bytes { link, bytes });
        self.fetch()
    }

    fn feed(&mut self, input: LinkInput<'_>) {
        self.relay.handle_link(Time::ZERO, input);
    }

    /// Returns the relay's output for each link.
    fn fetch(&mut self) -> [Vec<u8>; 2] {
        let mut out = [Vec::new(), Vec::new()];
        while let Some(output) = self.relay.poll(Time::ZERO) {
            if let Output::Link(LinkOutput::Transmit { link }) = output {
                let place = usize::from(link == LINKS[1]);
                self.relay.transmit(Time::ZERO, link, &mut out[place], usize::MAX);
            }
        }
        out
    }
}

fn config(identity: Identity, onion_key: CurveKeys) -> Config {
    Config {
        identity,
        onion_keys: vec![onion_key],
        params: Default::default(),
        services: ServiceParams::default(),
        policy: circuitmux::Kind::default(),
        exit: false,
        conflux: ConfluxParams::default(),
        dealing: None,
        directory: false,
        allow_private: true,
        max_cells: 1_000_000,
        max_queue: 50_000,
        max_half_open: 64,
        max_streams: 10_000,
        lossy: false,
    }
}
