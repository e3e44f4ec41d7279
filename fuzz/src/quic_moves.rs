//! Circuits of QUIC links that move to the TLS link of the same neighbour
//! (`docs/spec/quic-links.md`). Client and relay learn of the loss of a link at any time, and
//! cells arrive in any order that links allow. No circuit ends, and no byte is lost, duplicated or
//! changed. In hostile scripts, cells are also lost, duplicated and forged in both directions.
//! Then nothing panics, buffered data is bounded, nothing is left of closed links, and another
//! client is served meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::{Core as _, Time, seed};
use anabranch_onion::channel::{Capabilities, QuicPreferences, Start};
use anabranch_onion::client::Output as ClientOutput;
use anabranch_onion::client::{Cause, CircuitKey, Client, Config, Hop, HopKey, Input as Wanted};
use anabranch_onion::relay::{Input as RelayInput, Output, Relay};
use anabranch_onion::wire::cell::{CELL, Command, Width, head, put_fixed, put_variable};
use anabranch_onion::wire::extend::Target;
use anabranch_onion::wire::keys::sha256;
use anabranch_onion::wire::link::{TlsLinkToken, put_counts, put_move, put_pairing, read_quic};
use anabranch_onion::{Event, LinkCore, LinkId, LinkInput, LinkOutput, StreamKey, StreamOutput};

use crate::input::Input;
use crate::onion_relay::{CERTIFICATE, MAX_CELLS, NOW, SECRET, keys, relay};

/// Index of the relay among the ends of links.
const RELAY: usize = 0;
/// Index of the client whose links are disturbed.
const CLIENT: usize = 1;
/// Index of the client that is never disturbed.
const OTHER: usize = 2;
/// Maximum queued cells in an honest script: more than windows allow.
const PLENTY: usize = 100_000;
/// Maximum circuits of a client at a time.
const MOST_CIRCUITS: usize = 8;
/// Maximum links that a script may open.
const MOST_LINKS: usize = 24;
/// Maximum QUIC links that an honest client opens. Circuits can move from at most eight QUIC links
/// to one TLS link.
const MOST_QUIC: usize = 6;
/// Maximum time for which an honest neighbour sends nothing.
const SILENCE: Duration = Duration::from_secs(20);

/// Checks a script of events on links and in programs. Its first byte selects whether the script
/// is hostile.
pub fn check(bytes: &[u8]) {
    let play = play(bytes);
    match play.hostile {
        true => play.hang_up(),
        false => play.finish(),
    }
}

fn play(bytes: &[u8]) -> Play {
    let mut input = Input::new(bytes);
    let mut play = Play::new(input.coin());
    while !input.is_empty() {
        play.step(&mut input);
        play.look();
        let waiting = play.clients[CLIENT - 1].waiting()[0] / CELL;
        let cells = play.relay.stats().cells.max(waiting);
        assert!(cells <= play.most, "{cells} cells wait");
    }
    play
}

/// A link, and the cells in flight on it.
struct Wire {
    client: usize,
    is_quic: bool,
    /// Cells to the client, and cells to the relay. The other arrays have the same order of ends.
    ways: [DirectionState; 2],
    /// Whether the core at each end has something to send.
    wants: [bool; 2],
    /// Whether the link has ended, by end.
    gone: [bool; 2],
    /// Whether an end accepts cells of circuits on this QUIC link, by end.
    admitted: [bool; 2],
}

/// Cells in flight to one end. On a QUIC link, the cells of each circuit are in order; on other
/// links, all cells are.
#[derive(Default)]
struct DirectionState {
    begun: bool,
    streams: BTreeMap<u32, VecDeque<Vec<u8>>>,
    /// Number of cells of each circuit so far.
    sent: BTreeMap<u32, u32>,
}

impl DirectionState {
    /// Adds whole cells; returns the token of a QUIC cell among them.
    fn push(&mut self, is_quic: bool, mut bytes: &[u8]) -> Option<TlsLinkToken> {
        let mut token = None;
        while !bytes.is_empty() {
            let width = if self.begun { Width::Four } else { Width::Two };
            let (circuit, command, length) = head(bytes, width).expect("whole cells");
            let (cell, rest) = bytes.split_at(length);
            if command == Command::QUIC {
                token = read_quic(&cell[5..]).map(|(_, token)| token);
            }
            let stream = if is_quic { circuit } else { 0 };
            self.streams.entry(stream).or_default().push_back(cell.to_vec());
            *self.sent.entry(circuit).or_default() += 1;
            (self.begun, bytes) = (true, rest);
        }
        token
    }

    /// Returns the `nth` stream of those with cells that may be delivered.
    fn stream(&self, admitted: bool, nth: u8) -> Option<u32> {
        let may_come = |stream: &u32| admitted || *stream == 0;
        let streams: Vec<u32> = self.streams.keys().copied().filter(may_come).collect();
        streams.get(usize::from(nth) % streams.len().max(1)).copied()
    }

    fn pop(&mut self, stream: u32) -> Option<Vec<u8>> {
        let cells = self.streams.get_mut(&stream)?;
        let cell = cells.pop_front();
        if cells.is_empty() {
            self.streams.remove(&stream);
        }
        cell
    }
}

/// One end of a stream: bytes that its program has written and read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Program {
    written: usize,
    read: usize,
    /// First byte that a relay has read, which identifies the client's circuit.
    named: Option<u8>,
}

/// Returns the byte at a position of any stream, except the client's first.
fn byte(place: usize) -> u8 {
    (place.wrapping_mul(2_654_435_761) >> 13) as u8
}

struct Play {
    hostile: bool,
    /// Maximum queued cells.
    most: usize,
    now: Time,
    /// Time since which something may be in flight.
    settled: Time,
    relay: Relay,
    clients: [Client; 2],
    wires: BTreeMap<LinkId, Wire>,
    links: u64,
    quic: usize,
    circuits: u64,
    /// Circuits that were built, by client and circuit, and streams at the relay.
    built: BTreeMap<(usize, CircuitKey), (StreamKey, Program)>,
    wanted: Vec<(usize, CircuitKey)>,
    served: BTreeMap<StreamKey, Program>,
    /// Token by which QUIC links name the TLS link.
    token: TlsLinkToken,
}

impl Play {
    /// Creates two clients with circuits; the first client also has one on a QUIC link.
    fn new(hostile: bool) -> Play {
        let most = if hostile { MAX_CELLS } else { PLENTY };
        let client = |number| {
            let config = Config {
                params: Arc::default(),
                policy: Default::default(),
                max_cells: most,
                padding: Default::default(),
                design: Default::default(),
                dealing: None,
            };
            Client::new(config, Box::new(seed::stream(number, 0, "client")))
        };
        let mut play = Play {
            hostile,
            most,
            now: Time::ZERO,
            settled: Time::ZERO,
            relay: relay(most),
            clients: [client(1), client(2)],
            wires: BTreeMap::new(),
            links: 0,
            quic: 0,
            circuits: 0,
            built: BTreeMap::new(),
            wanted: Vec::new(),
            served: BTreeMap::new(),
            token: TlsLinkToken::default(),
        };
        for node in [OTHER, CLIENT, CLIENT] {
            play.build(node);
            play.settle();
        }
        assert_eq!(play.clients[CLIENT - 1].quic(), [1, 1]);
        play
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let (what, link, side) = (input.below(12), self.link(input.byte()), input.below(2));
        match what {
            0 | 1 => self.fetch(link, side, CELL << input.below(8)),
            2 | 3 => {
                let nth = input.byte();
                (0..1 << input.below(7)).for_each(|_| self.deliver(link, side, nth));
            }
            4 => self.write(side, input.byte(), usize::from(input.word()) % 8_000),
            5 if input.coin() => self.build(CLIENT),
            5 => {
                let keys: Vec<CircuitKey> = self.of(CLIENT).collect();
                if let Some(&circuit) = keys.get(input.below(MOST_CIRCUITS)) {
                    self.destroy(circuit);
                }
            }
            6 => self.pass(Duration::from_millis(1 << input.below(18))),
            7 => self.lose(link, side),
            8 => self.settle(),
            9 if self.hostile => self.alter(link, side, input),
            10 if self.hostile => {
                let message = self.forge(link, side, input);
                let node = self.node(link, side);
                self.feed(node, LinkInput::Bytes { link, bytes: &message });
            }
            11 if self.hostile && input.byte() == 1 => self.end(link, side),
            _ => self.deliver(link, side, input.byte()),
        }
    }

    /// Returns one of the first client's links.
    fn link(&self, nth: u8) -> LinkId {
        let links: Vec<LinkId> = self
            .wires
            .iter()
            .filter(|(_, wire)| wire.client == CLIENT)
            .map(|(id, _)| *id)
            .collect();
        links.get(usize::from(nth) % links.len().max(1)).copied().unwrap_or(LinkId::new(0, 0))
    }

    /// Returns the node at an end of a link.
    fn node(&self, link: LinkId, side: usize) -> usize {
        let client = self.wires.get(&link).map_or(CLIENT, |wire| wire.client);
        [client, RELAY][side]
    }

    fn core(&mut self, node: usize) -> &mut dyn LinkCore {
        match node {
            RELAY => &mut self.relay,
            client => &mut self.clients[client - 1],
        }
    }

    fn feed(&mut self, node: usize, input: LinkInput<'_>) {
        let now = self.now;
        self.core(node).handle_link(now, input);
    }

    /// Returns the circuits of a client that were built.
    fn of(&self, node: usize) -> impl Iterator<Item = CircuitKey> {
        self.built.keys().filter(move |(of, _)| *of == node).map(|(_, circuit)| *circuit)
    }

    fn build(&mut self, node: usize) {
        if self.wanted.len() + self.built.len() > MOST_CIRCUITS {
            return;
        }
        self.circuits += 1;
        let target = Target {
            addresses: vec![SocketAddr::from(([192, 0, 2, 100], 9001))],
            rsa: keys().rsa_identity(),
            ed25519: Some(keys().ed_identity()),
        };
        let (circuit, hops) = (CircuitKey(self.circuits), vec![Hop { target, key: HopKey::Fast }]);
        self.wanted.push((node, circuit));
        self.clients[node - 1].handle(self.now, Wanted::Build { circuit, hops });
    }

    fn destroy(&mut self, circuit: CircuitKey) {
        self.built.remove(&(CLIENT, circuit));
        self.clients[CLIENT - 1].handle(self.now, Wanted::Destroy { circuit });
    }

    /// Lets a stream's program write: the client's, or the relay's.
    fn write(&mut self, side: usize, nth: u8, bytes: usize) {
        let streams: Vec<StreamKey> = match side {
            0 => {
                // The first byte is sent once the relay has answered.
                let of = |((node, _), (stream, program)): (&(usize, _), &(StreamKey, Program))| {
                    (*node == CLIENT && program.written > 0).then_some(*stream)
                };
                self.built.iter().filter_map(of).collect()
            }
            _ => self.served.keys().copied().collect(),
        };
        let Some(&stream) = streams.get(usize::from(nth) % streams.len().max(1)) else { return };
        let now = self.now;
        let (core, program): (&mut dyn LinkCore, _) = match side {
            0 => {
                let mut programs = self.built.iter_mut();
                let found = programs.find(|((node, _), (of, _))| *node == CLIENT && *of == stream);
                (&mut self.clients[CLIENT - 1], found.map(|(_, (_, program))| program))
            }
            _ => (&mut self.relay, self.served.get_mut(&stream)),
        };
        if let Some(program) = program {
            let bytes: Vec<u8> = (program.written..program.written + bytes).map(byte).collect();
            program.written += core.write(now, stream, &bytes);
        }
    }

    /// Fetches the output of an end.
    fn fetch(&mut self, link: LinkId, side: usize, limit: usize) {
        let (node, now, mut out) = (self.node(link, side), self.now, Vec::new());
        let Some(wire) = self.wires.get(&link).filter(|wire| wire.wants[side]) else { return };
        if wire.gone[side] {
            return;
        }
        let more = self.core(node).transmit(now, link, &mut out, limit);
        let Some(wire) = self.wires.get_mut(&link) else { return };
        wire.wants[side] = more;
        let (client, is_quic, other) = (wire.client, wire.is_quic, 1 - side);
        if !wire.gone[other]
            && let Some(token) = wire.ways[other].push(is_quic, &out).filter(|_| client == CLIENT)
        {
            self.token = token;
        }
    }

    /// Delivers the next cell of a stream to an end.
    fn deliver(&mut self, link: LinkId, side: usize, nth: u8) {
        let node = self.node(link, side);
        let Some(wire) = self.wires.get_mut(&link).filter(|wire| !wire.gone[side]) else { return };
        let way = &mut wire.ways[side];
        let cell = way.stream(wire.admitted[side], nth).and_then(|stream| way.pop(stream));
        if let Some(bytes) = cell {
            self.feed(node, LinkInput::Bytes { link, bytes: &bytes });
            self.look();
        }
    }

    /// Delivers everything until nothing is in flight. An end that does not know of the loss of a
    /// QUIC link learns of it.
    fn settle(&mut self) {
        self.settled = self.now;
        loop {
            self.look();
            let mut moved = false;
            for link in self.wires.keys().copied().collect::<Vec<_>>() {
                for side in [0, 1] {
                    self.fetch(link, side, 64 * CELL);
                    moved |= self.deliver_all(link, 1 - side);
                }
            }
            if moved {
                continue;
            }
            let half = |wire: &Wire| [0, 1].into_iter().find(|&side| wire.gone[1 - side]);
            let lost = self.wires.iter().find_map(|(link, wire)| Some((*link, half(wire)?)));
            match lost {
                Some((link, side)) => self.lose(link, side),
                None => return,
            }
        }
    }

    fn deliver_all(&mut self, link: LinkId, side: usize) -> bool {
        let mut moved = false;
        while let Some(wire) = self.wires.get(&link).filter(|wire| !wire.gone[side])
            && wire.ways[side].stream(wire.admitted[side], 0).is_some()
        {
            self.deliver(link, side, 0);
            moved = true;
        }
        moved
    }

    /// Advances the time. Honest ends get data from each other before they time out.
    fn pass(&mut self, mut span: Duration) {
        while !span.is_zero() {
            let step = span.min(SILENCE);
            span -= step;
            if !self.hostile && self.now.since(self.settled) + step > SILENCE {
                self.settle();
            }
            self.now += step;
            self.look();
        }
    }

    /// Reports the loss of a QUIC link to one end.
    fn lose(&mut self, link: LinkId, side: usize) {
        if self.wires.get(&link).is_some_and(|wire| wire.is_quic) {
            self.leave(link, side, |link| LinkInput::Lost { link });
        }
    }

    /// Reports the end of a link to both ends, one first.
    fn end(&mut self, link: LinkId, side: usize) {
        self.leave(link, side, |link| LinkInput::Closed { link });
        self.leave(link, 1 - side, |link| LinkInput::Closed { link });
    }

    fn leave(&mut self, link: LinkId, side: usize, report: fn(LinkId) -> LinkInput<'static>) {
        let node = self.node(link, side);
        let Some(wire) = self.wires.get_mut(&link).filter(|wire| !wire.gone[side]) else { return };
        wire.gone[side] = true;
        if wire.gone == [true; 2] {
            self.wires.remove(&link);
        }
        self.feed(node, report(link));
        self.look();
    }

    /// Closes a link at one end.
    fn closes(&mut self, link: LinkId, node: usize) {
        let Some(wire) = self.wires.get_mut(&link) else { return };
        let side = usize::from(node == RELAY);
        wire.gone[side] = true;
        if wire.gone == [true; 2] {
            self.wires.remove(&link);
        }
        self.leave(link, 1 - side, |link| LinkInput::Closed { link });
    }

    fn connect(&mut self, node: usize, is_quic: bool, target: Target) {
        self.links += 1;
        let link = LinkId::new(0, self.links);
        let made = if is_quic { Capabilities::STREAM_PER_CIRCUIT } else { Capabilities::ORDERED };
        let start = |peer, peer_certificate, port| Start {
            peer_certificate,
            capabilities: Capabilities { parallel_quic: true, ..made },
            quic_preferences: QuicPreferences { port, first_byte: 9, unless_unordered: false },
            ..Start::new(self.now, NOW, IpAddr::from([192, 0, 2, peer]))
        };
        let ours = start(100, Some(sha256(CERTIFICATE)), 0);
        let theirs = start(node as u8, None, 9001);
        let is_tls = !is_quic;
        let wire = Wire {
            client: node,
            is_quic,
            ways: Default::default(),
            wants: [false; 2],
            gone: [false; 2],
            admitted: [is_tls; 2],
        };
        self.wires.insert(link, wire);
        self.feed(node, LinkInput::Opened { link, target: Some(target), start: ours });
        self.feed(RELAY, LinkInput::Opened { link, target: None, start: theirs });
    }

    /// Executes the cores' outputs, and transfers the other client's cells.
    fn look(&mut self) {
        loop {
            let mut moved = false;
            while let Some(output) = self.relay.poll(self.now) {
                self.on_relay_output(output);
                moved = true;
            }
            for node in [CLIENT, OTHER] {
                while let Some(output) = self.clients[node - 1].poll(self.now) {
                    self.on_client_output(node, output);
                    moved = true;
                }
            }
            let of_other = |(link, wire): (&LinkId, &Wire)| (wire.client == OTHER).then_some(*link);
            for link in self.wires.iter().filter_map(of_other).collect::<Vec<_>>() {
                for side in [0, 1] {
                    self.fetch(link, side, usize::MAX);
                    moved |= self.deliver_all(link, 1 - side);
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn on_relay_output(&mut self, output: Output) {
        match output {
            Output::Link(output) => self.on_link_output(RELAY, output),
            Output::Directory { stream, .. } => {
                self.relay.handle(self.now, RelayInput::Connected { stream, reached: None });
                self.served.insert(stream, Program::default());
            }
            Output::Stream(StreamOutput::Readable { stream }) => {
                let mut program = self.served.get(&stream).copied().unwrap_or_default();
                read(&mut self.relay, self.now, stream, &mut program, true);
                self.served.insert(stream, program);
            }
            Output::Stream(StreamOutput::Ended { stream, .. }) => drop(self.served.remove(&stream)),
            Output::Event(event) => self.heard(&event),
            Output::Stream(StreamOutput::Room { .. }) => {}
            Output::Connect { .. } | Output::Resolve { .. } => {
                unreachable!("clients ask for the directory, and have the keys of their circuits")
            }
        }
    }

    fn on_client_output(&mut self, node: usize, output: ClientOutput) {
        let client = &mut self.clients[node - 1];
        match output {
            ClientOutput::Link(output) => self.on_link_output(node, output),
            ClientOutput::Built { circuit, .. } => {
                self.wanted.retain(|wanted| *wanted != (node, circuit));
                let stream = client.begin_directory(self.now, circuit).expect("a circuit");
                self.built.insert((node, circuit), (stream, Program::default()));
            }
            ClientOutput::Connected { stream } => {
                let of = |((of, _), (key, _)): &(&(usize, _), &mut (StreamKey, _))| {
                    *of == node && *key == stream
                };
                if let Some(((_, circuit), (_, program))) = self.built.iter_mut().find(of) {
                    program.written += client.write(self.now, stream, &[circuit.0 as u8]);
                }
            }
            ClientOutput::Stream(StreamOutput::Readable { stream }) => {
                let mut unknown = Program::default();
                let mut programs = self.built.iter_mut();
                let found = programs.find(|((of, _), (key, _))| *of == node && *key == stream);
                let program = found.map_or(&mut unknown, |(_, (_, program))| program);
                read(client, self.now, stream, program, false);
            }
            ClientOutput::CircuitClosed { circuit, cause, .. } => {
                self.wanted.retain(|wanted| *wanted != (node, circuit));
                let was_built = self.built.remove(&(node, circuit)).is_some();
                let may_end = !was_built || cause == Cause::Wanted;
                assert!(may_end || self.hostile && node == CLIENT, "{circuit:?}: {cause}");
            }
            ClientOutput::Event(event) => self.heard(&event),
            _ => {}
        }
    }

    fn heard(&self, event: &Event) {
        let is_violation = matches!(event, Event::Violation { .. });
        assert!(self.hostile || !is_violation, "nobody breaks the rules: {event:?}");
    }

    fn on_link_output(&mut self, node: usize, output: LinkOutput) {
        let side = usize::from(node == RELAY);
        match output {
            LinkOutput::Dial { target } if self.links < MOST_LINKS as u64 => {
                self.connect(node, false, target);
            }
            LinkOutput::Dial { target } | LinkOutput::DialOwn { target } => {
                self.feed(node, LinkInput::Unreachable { target });
            }
            LinkOutput::OpenQuic { link, target, first_byte } => {
                let may = node == CLIENT && self.links < MOST_LINKS as u64;
                assert!(first_byte == Some(9) || self.hostile);
                self.quic += 1;
                match may && (self.hostile || self.quic <= MOST_QUIC) {
                    true => self.connect(node, true, target),
                    false => self.feed(node, LinkInput::QuicFailed { link }),
                }
            }
            LinkOutput::Transmit { link } => {
                self.wires.get_mut(&link).into_iter().for_each(|wire| wire.wants[side] = true);
            }
            LinkOutput::AdmitCircuits { link } => {
                self.wires.get_mut(&link).into_iter().for_each(|wire| wire.admitted[side] = true);
            }
            LinkOutput::Close { link } => {
                assert_ne!(self.node(link, 0), OTHER, "the other client is not to blame");
                self.closes(link, node);
            }
            LinkOutput::Export { link, .. } => {
                self.feed(node, LinkInput::Exported { link, secret: SECRET });
            }
            LinkOutput::FixRecords { .. } => unreachable!("no link is unordered"),
        }
    }

    /// Loses the next cell of a stream, duplicates it, or swaps it with the one after it.
    fn alter(&mut self, link: LinkId, side: usize, input: &mut Input<'_>) {
        let Some(wire) = self.wires.get_mut(&link) else { return };
        let way = &mut wire.ways[side];
        let Some(stream) = way.stream(true, input.byte()) else { return };
        let Some(cell) = way.pop(stream) else { return };
        let cells = way.streams.entry(stream).or_default();
        match input.below(3) {
            0 => {}
            1 => [cell.clone(), cell].into_iter().for_each(|cell| cells.push_front(cell)),
            _ => cells.insert(cells.len().min(1), cell),
        }
        way.streams.retain(|_, cells| !cells.is_empty());
    }

    /// Returns a cell about moving links as the neighbour of an end might send it, true or not.
    fn forge(&self, link: LinkId, side: usize, input: &mut Input<'_>) -> Vec<u8> {
        let ids: Vec<u32> = self.circuits(side).keys().copied().collect();
        let mut id = || match ids.len() {
            0 => 0x8000_0001,
            most => ids[input.below(most.min(256))] | u32::from(input.byte() == 9),
        };
        let (first, second) = (id(), id());
        let number = input.pick(&[1, 1, 1, 2, 3, 0, 9]);
        let command = input.pick(&[
            Command::RELAY,
            Command::DESTROY,
            Command::CREATE_FAST,
            Command::CREATED_FAST,
            Command::PADDING,
            Command::BESIDE,
        ]);
        let counts = [first, second].map(|id| (id, self.count(link, side, id, input)));
        let counts = &counts[..input.below(3)];
        let mut out = Vec::new();
        match input.below(8) {
            0 => put_long(&mut out, Command::MOVE, &put_move(number, input.coin(), counts)),
            1 => {
                let mut body = number.to_be_bytes().to_vec();
                put_fixed(&mut body, first, command, &[input.byte(); 20]);
                body.truncate(if input.byte() == 7 { input.below(256) } else { usize::MAX });
                put_long(&mut out, Command::DETOUR, &body);
            }
            2 => put_long(&mut out, Command::MOVE_OVER, &number.to_be_bytes()),
            3 => {
                let mut body = Vec::new();
                put_counts(&mut body, counts.iter().copied());
                put_fixed(&mut out, 0, Command::ARRIVED, &body);
            }
            4 => {
                let token = if input.coin() { self.token } else { [7; 16] };
                put_fixed(&mut out, 0, Command::BESIDE, &put_pairing(number, &token));
            }
            5 => put_fixed(&mut out, first, command, &[input.byte(); 20]),
            6 => {
                let command = input.pick(&[Command::MOVE, Command::DETOUR, Command::MOVE_OVER]);
                let length = input.below(64);
                put_long(&mut out, command, input.take(length));
            }
            _ => {
                let length = input.below(256);
                out.extend_from_slice(input.take(length));
            }
        }
        out
    }

    /// Returns the number of cells that an end has sent by QUIC links, for each circuit.
    fn circuits(&self, side: usize) -> BTreeMap<u32, u32> {
        let quic = self.wires.values().filter(|wire| wire.is_quic);
        quic.flat_map(|wire| wire.ways[1 - side].sent.clone()).collect()
    }

    /// Returns the number of received cells of a circuit to report to its sender, true or not.
    fn count(&self, link: LinkId, side: usize, id: u32, input: &mut Input<'_>) -> u32 {
        let sent = self.wires.get(&link).and_then(|wire| wire.ways[1 - side].sent.get(&id));
        let sent = sent.copied().or_else(|| self.circuits(side).get(&id).copied()).unwrap_or(0);
        match input.below(6) {
            0 => sent + 1,
            1 => u32::MAX,
            2 => sent / 2,
            3 => u32::from(input.byte()),
            _ => sent,
        }
    }

    /// Delivers everything in flight, and checks that the two ends of each stream have seen the
    /// same.
    fn finish(mut self) {
        for _ in 0..3 {
            self.settle();
            self.pass(Duration::from_secs(2));
        }
        self.settle();
        for ((node, circuit), (_, ours)) in &self.built {
            let named = |program: &&Program| program.named == Some(circuit.0 as u8);
            let theirs = self.served.values().find(named).copied().unwrap_or_default();
            let read = (theirs.read, ours.read);
            assert_eq!(read, (ours.written, theirs.written), "{node}: {circuit:?}");
        }
        let waiting = [self.relay.stats().cells, self.clients[CLIENT - 1].waiting()[0] / CELL];
        assert_eq!(waiting, [0, 0], "copies are kept until it is said that they came");
    }

    /// Ends the first client's links: nothing is left of them, and the other client is served.
    fn hang_up(mut self) {
        while let Some(link) = Some(self.link(0)).filter(|link| link.number() > 0) {
            self.end(link, 0);
        }
        let stats = self.relay.stats();
        assert_eq!((stats.link_circuits, stats.cells, stats.quic_links), (1, 0, 0), "{stats:?}");
        let client = &self.clients[CLIENT - 1];
        assert_eq!((client.links().count(), client.waiting()[0]), (0, 0));
        let (stream, program) = *self.built.values().last().expect("the other's circuit");
        let before = self.served.values().map(|program| program.read).sum::<usize>();
        let bytes: Vec<u8> = (program.written..program.written + 1_000).map(byte).collect();
        let written = self.clients[OTHER - 1].write(self.now, stream, &bytes);
        self.look();
        let after = self.served.values().map(|program| program.read).sum::<usize>();
        assert_eq!((written, after - before), (1_000, 1_000), "the other client is heard");
    }
}

fn put_long(out: &mut Vec<u8>, command: Command, body: &[u8]) {
    put_variable(out, Width::Four, command, body);
}

/// Reads everything for a program, and checks that it is what was written, in order.
fn read(core: &mut dyn LinkCore, now: Time, stream: StreamKey, program: &mut Program, names: bool) {
    let (first, second) = core.read(stream);
    for found in first.iter().chain(second) {
        match names && program.read == 0 {
            true => program.named = Some(*found),
            false => assert_eq!(*found, byte(program.read), "byte {}", program.read),
        }
        program.read += 1;
    }
    let bytes = first.len() + second.len();
    core.consume(now, stream, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_move_circuits() {
        let moved = |seed| play(seed).clients[CLIENT - 1].moved_circuits();
        assert_eq!(moved(include_bytes!("../corpus/quic_moves/upload")), 1);
        assert_eq!(moved(include_bytes!("../corpus/quic_moves/download")), 1);
        assert_eq!(moved(include_bytes!("../corpus/quic_moves/again")), 2);
    }

    #[test]
    fn any_scripts_keep_the_promises() {
        let (mut state, mut moved) = (1u64, 0);
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        for run in 0..200 {
            let mut script: Vec<u8> = (0..40 + run * 4).map(|_| noise()).collect();
            script[0] = run as u8;
            moved += play(&script).clients[CLIENT - 1].moved_circuits();
            check(&script);
        }
        assert!(moved > 100, "{moved} circuits moved");
    }
}
