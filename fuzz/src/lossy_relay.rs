//! A relay at the end of lossy circuits, with a neighbour that sends anything in datagrams: cells
//! that are malformed, truncated, replayed, of other circuits or not encrypted for it, and
//! segments of TCP with any content. Nothing panics, the memory of streams is bounded, garbage
//! closes its circuit only, and nothing is left of a closed link.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anabranch_multipath::seed::{self, Stream};
use anabranch_multipath::{Core as _, Time};
use anabranch_onion::channel::{Capabilities, CellOutcome, Channel, Start};
use anabranch_onion::crypto::lossy::{LossyClient, ZEROS};
use anabranch_onion::crypto::{ClientLayer, Keys, Tor1Client};
use anabranch_onion::handshake::extension::{self, HopRequest};
use anabranch_onion::handshake::{Kind, ntor_v3};
use anabranch_onion::relay::{Input as RelayInput, Output, Relay};
use anabranch_onion::wire::cell::{
    BODY, Body, CELL, Cells, Command, NUMBERED_CELL, put_fixed, put_numbered,
};
use anabranch_onion::wire::extend::{put_create2, read_created2};
use anabranch_onion::wire::keys::sha256;
use anabranch_onion::wire::link::put_pairing;
use anabranch_onion::wire::lossy::{put_head, put_segment};
use anabranch_onion::wire::message::{self, EndReason, Format, Message, RelayCommand};
use anabranch_onion::{LinkCore, LinkId, LinkInput, LinkOutput, StreamKey};
use anabranch_tcp::{Flags, Segment, Seq, Timestamps};

use crate::input::Input;
use crate::onion_relay::{CERTIFICATE, IDS, MAX_CELLS, NOW, SECRET, keys, other_relay, relay_with};

const LINK: LinkId = LinkId::new(0, 2);
/// Maximum number of segments that one step sends.
const MOST_TIMES: usize = 64;

/// Checks a script of the hostile neighbour's actions, and of events at the relay.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let mut world = World::new();
    while !input.is_empty() && !world.gone {
        world.step(&mut input);
    }
    world.close();
}

/// The client's end of a circuit of one hop.
struct Circuit {
    id: u32,
    layer: Tor1Client,
    lossy: LossyClient,
}

struct World {
    relay: Relay,
    channel: Channel,
    inbox: Vec<u8>,
    rng: Stream,
    now: Time,
    pending: Vec<(u32, ntor_v3::Client)>,
    circuits: Vec<Circuit>,
    /// Datagrams that were sent, which a step may replay.
    sent: VecDeque<Vec<u8>>,
    wanted: VecDeque<StreamKey>,
    open: Vec<StreamKey>,
    gone: bool,
}

impl World {
    fn new() -> World {
        let mut relay = relay_with(MAX_CELLS, true);
        let peer = IpAddr::from([192, 0, 2, 9]);
        let capabilities = Capabilities { lossy: true, ..Capabilities::STREAM_PER_CIRCUIT };
        let start = |peer_certificate| Start {
            peer_certificate,
            capabilities,
            ..Start::new(Time::ZERO, NOW, peer)
        };
        let opened = LinkInput::Opened { link: LINK, target: None, start: start(None) };
        relay.handle_link(Time::ZERO, opened);
        let mut world = World {
            relay,
            channel: Channel::new(other_relay(), start(Some(sha256(CERTIFICATE)))),
            inbox: Vec::new(),
            rng: seed::stream(2, 0, "neighbour"),
            now: Time::ZERO,
            pending: Vec::new(),
            circuits: Vec::new(),
            sent: VecDeque::new(),
            wanted: VecDeque::new(),
            open: Vec::new(),
            gone: false,
        };
        for _ in 0..3 {
            let bytes = std::mem::take(&mut world.channel.outbox);
            world.send(&bytes);
            world.collect();
        }
        assert!(world.channel.is_open() && world.channel.takes_lossy());
        let mut cell = Vec::new();
        put_fixed(&mut cell, 0, Command::BESIDE, &put_pairing(0, &[0; 16]));
        world.send(&cell);
        for id in &IDS[..2] {
            world.create(*id);
        }
        world.collect();
        assert_eq!(world.circuits.len(), 2, "honest handshakes");
        world
    }

    fn send(&mut self, bytes: &[u8]) {
        self.relay.handle_link(self.now, LinkInput::Bytes { link: LINK, bytes });
    }

    fn create(&mut self, id: u32) {
        let (identity, onion_key) = (keys().ed_identity(), keys().ntor().1);
        let reply = extension::request(HopRequest::Lossy);
        let begun =
            ntor_v3::Client::start(&mut self.rng, identity, onion_key, &reply, ntor_v3::CIRCUIT);
        let (client, message) = begun.expect("a sound onion key");
        self.pending.push((id, client));
        let mut cell = Vec::new();
        put_fixed(&mut cell, id, Command::CREATE2, &put_create2(Kind::NTOR_V3, &message));
        self.send(&cell);
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(12) {
            0 => self.raw(input),
            1 | 2 => self.content(input),
            3..=6 => self.segment(input),
            7 => self.again(input),
            8 => self.message(input),
            9 => self.answer_stream(input),
            10 => self.bytes(input),
            _ => self.now += Duration::from_millis(1 << input.below(18)),
        }
        self.collect();
        let stats = self.relay.stats();
        assert!(stats.cells <= MAX_CELLS, "more cells wait than may");
        assert!(stats.streams <= 2 * 3, "more streams than may be");
        let kept = stats.cells * CELL + stats.lossy_kept;
        assert!(kept <= MAX_CELLS * CELL, "cells and streams keep {kept} bytes");
    }

    /// Sends a datagram of any content, which need not consist of whole cells.
    fn raw(&mut self, input: &mut Input<'_>) {
        let mut cell = Vec::new();
        let (id, command) = (input.pick(&[0, 1, IDS[0], IDS[1], IDS[2]]), Command(input.byte()));
        let command = if input.coin() || command.is_variable() { Command(76) } else { command };
        let counter = u32::from(input.word()) << input.below(16);
        put_numbered(&mut cell, id, command, counter, input.piece(64));
        let count = usize::from(!input.coin()) + 1;
        self.datagram(&cell.repeat(count));
    }

    /// Delivers the cells of a datagram.
    fn datagram(&mut self, cells: &[u8]) {
        self.relay.handle_link(self.now, LinkInput::Lossy { link: LINK, cells });
        self.sent.push_back(cells.to_vec());
        self.sent.truncate(200);
    }

    /// Sends a cell that the relay can decrypt.
    fn encrypted(&mut self, which: usize, mut body: Body) {
        let count = self.circuits.len().max(1);
        let Some(circuit) = self.circuits.get_mut(which % count) else { return };
        let counter = circuit.lossy.originate(Command::RELAY_LOSSY, &mut body);
        let (counter, id) = (counter.expect("few cells"), circuit.id);
        let mut cell = Vec::new();
        put_numbered(&mut cell, id, Command::RELAY_LOSSY, counter, &body);
        self.datagram(&cell);
    }

    /// Sends an encrypted cell with any content. Its first bytes may differ from the required
    /// zeros.
    fn content(&mut self, input: &mut Input<'_>) {
        let (which, mut body) = (input.below(2), [0; BODY]);
        let from = if input.below(8) == 0 { 0 } else { ZEROS };
        let length = usize::from(input.word()) % (BODY - from);
        let content = input.take(length);
        body[from..][..content.len()].copy_from_slice(content);
        self.encrypted(which, body);
    }

    /// Sends segments of a stream with any fields, some of which are plausible.
    fn segment(&mut self, input: &mut Input<'_>) {
        let which = input.below(2);
        let port = input.pick(&[1, 2, 3, 4, u16::MAX]);
        let flags = [Flags::SYN, Flags::ACK, Flags::FIN, Flags::RST, Flags::PSH];
        let bits = input.byte();
        let chosen = flags.into_iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
        let flags = chosen.fold(Flags::default(), |flags, (_, flag)| flags | flag);
        let mut segment = Segment {
            source: port,
            destination: port,
            seq: Seq(7) + u32::from(input.word()) % 2_000,
            ack: Seq(u32::from(input.word()) << input.below(17)),
            flags,
            window: input.word(),
            ..Segment::default()
        };
        segment.options.sack_permitted = flags.has(Flags::SYN);
        segment.options.mss = flags.has(Flags::SYN).then(|| input.word());
        segment.options.timestamps =
            input.coin().then(|| Timestamps { value: input.word().into(), echo: 0 });
        let begin = put_head(RelayCommand::BEGIN, b"192.0.2.1:80\0");
        segment.payload = match input.below(3) {
            0 => begin,
            1 => vec![input.byte(); usize::from(input.word()) % 400],
            _ => input.piece(200).to_vec(),
        };
        let room = 491 - 20 - segment.options.length();
        segment.payload.truncate(room);
        let step = segment.payload.len() as u32 + u32::from(input.byte());
        for _ in 0..1 + input.below(MOST_TIMES) {
            self.encrypted(which, put_segment(&segment));
            segment.seq = segment.seq + step;
        }
    }

    /// Replays a datagram, even of a closed circuit: unchanged, truncated, with a changed bit, or
    /// with the ID of another circuit.
    fn again(&mut self, input: &mut Input<'_>) {
        let place = input.below(self.sent.len().clamp(1, 256));
        let Some(mut cells) = self.sent.get(place).cloned() else { return };
        match input.below(4) {
            0 => cells.truncate(usize::from(input.word()) % cells.len().max(1)),
            1 => {
                let bit = usize::from(input.word()) % (8 * cells.len().max(1));
                cells.get_mut(bit / 8).into_iter().for_each(|byte| *byte ^= 1 << (bit % 8));
            }
            2 => {
                let id = input.pick(&IDS).to_be_bytes();
                cells.get_mut(..4).into_iter().for_each(|at| at.copy_from_slice(&id));
            }
            _ => {}
        }
        self.relay.handle_link(self.now, LinkInput::Lossy { link: LINK, cells: &cells });
    }

    /// Sends a message in an ordinary cell of a circuit, or closes or creates a circuit.
    fn message(&mut self, input: &mut Input<'_>) {
        let (which, kind) = (input.below(2), input.below(6));
        let id = IDS[which];
        let mut cell = Vec::new();
        match kind {
            0 => put_fixed(&mut cell, id, Command::DESTROY, &[input.byte()]),
            1 if self.circuits.iter().all(|circuit| circuit.id != id) => return self.create(id),
            _ => {
                let Some(circuit) = self.circuits.iter_mut().find(|it| it.id == id) else { return };
                let schedule =
                    input.pick(&[&b"eta 1p"[..], b"round-robin 2p", b"uniform 1p", b"pull 5p"]);
                let mut nonce = [0; 32];
                nonce[0] = input.byte() & 1;
                let link = [&nonce[..], schedule].concat();
                let (command, data) = match kind {
                    2 | 3 => (167, &link[..]),
                    4 => (167, input.piece(64)),
                    _ => (input.pick(&[1, 2, 3, 11, 13, 168]), input.piece(64)),
                };
                let stream = if command == 167 { 0 } else { input.pick(&[0, 1, 2]) };
                let message = Message { command: RelayCommand(command), stream, data };
                let mut body = [0; BODY];
                message::write(Format::V0, &mut body, message, &mut self.rng);
                circuit.layer.originate(Command::RELAY, &mut body);
                put_fixed(&mut cell, id, Command::RELAY, &body);
            }
        }
        self.send(&cell);
    }

    /// Answers a stream's request as a destination or resolver, or fails it.
    fn answer_stream(&mut self, input: &mut Input<'_>) {
        let Some(stream) = self.wanted.pop_front() else { return };
        let address = (Ipv4Addr::LOCALHOST.into(), 60);
        let answer = match input.below(4) {
            0 | 1 => {
                self.open.push(stream);
                RelayInput::Connected { stream, reached: input.coin().then_some(address) }
            }
            2 => RelayInput::Ended { stream, reason: EndReason(input.byte()) },
            _ => RelayInput::Refused { stream, address },
        };
        self.relay.handle(self.now, answer);
    }

    /// Sends data of a destination and reads the data for it, or ends its stream.
    fn bytes(&mut self, input: &mut Input<'_>) {
        let which = input.below(self.open.len().clamp(1, 256));
        let Some(&stream) = self.open.get(which) else { return };
        if input.below(16) == 0 {
            let reason = EndReason(input.byte());
            self.open.remove(which);
            return self.relay.handle(self.now, RelayInput::Ended { stream, reason });
        }
        self.relay.write(self.now, stream, &vec![7; usize::from(input.word()) * 9]);
        let (first, second) = self.relay.read(stream);
        let waiting = first.len() + second.len();
        self.relay.consume(self.now, stream, waiting.min(usize::from(input.word())));
    }

    fn collect(&mut self) {
        while let Some(output) = self.relay.poll(self.now) {
            match output {
                Output::Link(LinkOutput::Transmit { .. }) => self.receive(),
                Output::Link(LinkOutput::Close { .. }) => self.gone = true,
                Output::Link(LinkOutput::Export { link, .. }) => {
                    let input = LinkInput::Exported { link, secret: SECRET };
                    self.relay.handle_link(self.now, input);
                }
                Output::Link(LinkOutput::Dial { target } | LinkOutput::DialOwn { target }) => {
                    self.relay.handle_link(self.now, LinkInput::Unreachable { target });
                }
                Output::Connect { stream, .. }
                | Output::Resolve { stream, .. }
                | Output::Directory { stream, .. } => self.wanted.push_back(stream),
                Output::Link(_) | Output::Stream(_) | Output::Event(_) => {}
            }
        }
    }

    /// Receives the relay's cells. Checks that those in datagrams belong to our circuits and are
    /// unchanged.
    fn receive(&mut self) {
        let mut lossy = Vec::new();
        self.relay.transmit_lossy(LINK, &mut lossy);
        for cell in lossy.chunks_mut(NUMBERED_CELL) {
            let (head, body) = cell.split_at_mut(NUMBERED_CELL - BODY);
            let id = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            let counter = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let circuit = self.circuits.iter_mut().find(|circuit| circuit.id == id);
            if let (Some(circuit), Ok(body)) = (circuit, <&mut Body>::try_from(body)) {
                let opened = circuit.lossy.inward((Command::RELAY_LOSSY, counter), body);
                assert_eq!(opened, Ok(()), "a cell of the relay");
            }
        }
        self.relay.transmit(self.now, LINK, &mut self.inbox, usize::MAX);
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut cells = Cells::new(&mut inbox, self.channel.width(), 10_000);
        while let Ok(Some(cell)) = cells.next_cell() {
            let id = cell.circuit;
            match cell.command {
                Command::CREATED2 => {
                    let place = self.pending.iter().position(|(other, _)| *other == id);
                    let client = place.map(|place| self.pending.remove(place).1);
                    let circuit = client.and_then(|client| finish(id, client, cell.body));
                    self.circuits.retain(|other| other.id != id);
                    self.circuits.extend(circuit);
                }
                Command::DESTROY => {
                    self.circuits.retain(|other| other.id != id);
                    self.pending.retain(|(other, _)| *other != id);
                }
                Command::RELAY => {
                    let circuit = self.circuits.iter_mut().find(|circuit| circuit.id == id);
                    if let (Some(circuit), Ok(mut body)) = (circuit, Body::try_from(&*cell.body)) {
                        let known = circuit.layer.inbound(Command::RELAY, &mut body);
                        assert!(known.is_some(), "the relay's own cells");
                    }
                }
                _ => {}
            }
            if let Ok(CellOutcome::Export(_)) = self.channel.take(&mut self.rng, &cell) {
                self.channel.exported(&mut self.rng, SECRET).expect("an honest handshake");
            }
            cells.set_width(self.channel.width());
        }
        let taken = cells.taken();
        self.inbox = inbox.split_off(taken);
    }

    fn close(mut self) {
        self.relay.handle_link(self.now, LinkInput::Closed { link: LINK });
        self.collect();
        let stats = self.relay.stats();
        assert_eq!((stats.circuits, stats.streams, stats.cells), (0, 0, 0), "nothing is left");
        assert_eq!(stats.lossy_kept, 0, "no stream keeps anything");
    }
}

/// Returns the circuit whose handshake the relay's answer completes.
fn finish(id: u32, client: ntor_v3::Client, body: &[u8]) -> Option<Circuit> {
    let created = Body::try_from(body).ok()?;
    let (mut keys, message) = client.finish(read_created2(&created)?).ok()?;
    let agreed = extension::read_answer(&message, HopRequest::Lossy, 31).ok()?;
    assert!(agreed.lossy, "the relay grants lossy cells");
    let Keys::Tor1(material) = keys.of(agreed) else { return None };
    let _ = keys.nonce();
    let lossy = LossyClient::new(&[keys.lossy()]);
    Some(Circuit { id, layer: Tor1Client::new(&material), lossy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_begins() {
        let mut world = World::new();
        let begin = put_head(RelayCommand::BEGIN, b"192.0.2.1:80\0");
        let mut syn = Segment { source: 1, destination: 1, seq: Seq(7), ..Segment::default() };
        (syn.flags, syn.payload, syn.window) = (Flags::SYN, begin, 60_000);
        world.encrypted(0, put_segment(&syn));
        world.collect();
        assert_eq!(world.wanted.len(), 1, "the stream wants its destination");
        world.answer_stream(&mut Input::new(&[0, 1]));
        world.bytes(&mut Input::new(&[0, 1, 255, 255]));
        world.collect();
        assert!(world.relay.stats().lossy.sent > 10);
        world.close();
    }
}
