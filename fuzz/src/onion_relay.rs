//! A relay with a neighbour that sends anything: as cells, and as messages encrypted with a
//! circuit's keys. Nothing panics, queued data is bounded, nothing is left of a closed link, and
//! an honest neighbour's circuit survives it all.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anabranch_multipath::seed::{self, Stream};
use anabranch_multipath::{Core as _, Time};
use anabranch_onion::channel::{CellOutcome, Channel, Role, Start};
use anabranch_onion::conflux::ConfluxParams;
use anabranch_onion::crypto::{ClientLayer, Keys, Tor1Client};
use anabranch_onion::handshake::extension::{self, HopRequest};
use anabranch_onion::handshake::{Kind, fast, ntor_v3};
use anabranch_onion::relay::{Config, Input as RelayInput, Output, Relay, ServiceParams};
use anabranch_onion::wire::cell::{BODY, Body, CELL, Cells, Command, put_fixed};
use anabranch_onion::wire::crypto::CurveKeys;
use anabranch_onion::wire::extend::{put_create2, read_created2};
use anabranch_onion::wire::keys::{Credentials, RelayKeys, sha256};
use anabranch_onion::wire::message::{self, Answer, EndReason, Format, Message, RelayCommand};
use anabranch_onion::{LinkCore, LinkId, LinkInput, LinkOutput, StreamKey, circuitmux};

use crate::input::{Input, any_command};

/// Time of all runs in seconds since 1970.
pub const NOW: u64 = 1_800_000_000;
pub(crate) const CERTIFICATE: &[u8] = b"a TLS certificate";
/// Secret that both ends of a link export from its TLS session.
pub(crate) const SECRET: [u8; 32] = [5; 32];
const HONEST: LinkId = LinkId::new(0, 1);
const HOSTILE: LinkId = LinkId::new(0, 2);
/// Circuit IDs of a link's initiator.
pub(crate) const IDS: [u32; 3] = [0x8000_0001, 0x8000_0002, 0x8000_0003];
pub(crate) const MAX_CELLS: usize = 400;

/// Checks a script of the hostile neighbour's actions, and of events at the relay. It is executed
/// twice: exits serve circuits of one hop for relays only, and refuse clients.
pub fn check(input: &[u8]) {
    for hostile in [Role::Client, other_relay()] {
        play(input, hostile).closes();
    }
}

fn play(input: &[u8], hostile: Role) -> World {
    let mut input = Input::new(input);
    let mut world = World::new(hostile);
    while !input.is_empty() && !world.hostile.gone {
        world.step(&mut input);
        assert!(world.relay.stats().cells <= MAX_CELLS, "more waits than may");
    }
    world
}

/// A relay between an honest neighbour and a hostile one.
pub(crate) struct World {
    pub(crate) relay: Relay,
    honest: Neighbour,
    pub(crate) hostile: Neighbour,
    pub(crate) now: Time,
    /// Streams that wait for the answer of a destination or resolver, and those that have one.
    wanted: VecDeque<StreamKey>,
    open: Vec<StreamKey>,
}

impl World {
    /// Creates a relay with a circuit of the honest neighbour; the hostile one is a client, or
    /// another relay.
    pub(crate) fn new(hostile: Role) -> World {
        let mut relay = relay(MAX_CELLS);
        let [honest, hostile] = [(HONEST, Role::Client), (HOSTILE, hostile)]
            .map(|(link, role)| Neighbour::new(&mut relay, link, role));
        let (wanted, open) = (VecDeque::new(), Vec::new());
        let mut world = World { relay, honest, hostile, now: Time::ZERO, wanted, open };
        world.honest.create(&mut world.relay, IDS[0]);
        world.collect();
        world
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let id = IDS[input.below(IDS.len())];
        match input.below(8) {
            0 => {
                let length = input.below(256);
                self.hostile.send(&mut self.relay, self.now, input.take(length));
            }
            1 => self.cell(input),
            2 | 3 => self.message(input, id),
            4 => self.hostile.create(&mut self.relay, id),
            5 => self.answer_stream(input),
            6 => self.bytes(input),
            _ => self.now += Duration::from_millis(1 << input.below(16)),
        }
        self.collect();
    }

    /// Sends a cell of any command, on any circuit.
    fn cell(&mut self, input: &mut Input<'_>) {
        let id = input.pick(&[0, 1, IDS[0], IDS[1]]);
        let (command, length) = (Command(input.byte()), usize::from(input.word()) % BODY);
        let mut cell = Vec::new();
        if !command.is_variable() {
            put_fixed(&mut cell, id, command, input.take(length));
            self.hostile.send(&mut self.relay, self.now, &cell);
        }
    }

    /// Sends a message that the relay can decrypt, of any command and with any data.
    fn message(&mut self, input: &mut Input<'_>, id: u32) {
        let command = any_command(input);
        let stream = input.pick(&[0, 1, 2, 3, u16::MAX]);
        let early = if input.coin() { Command::RELAY_EARLY } else { Command::RELAY };
        let length = usize::from(input.word()) % (message::DATA + 1);
        let times = 1 << input.below(8);
        let data = input.take(length);
        for _ in 0..times {
            let message = Message { command, stream, data };
            self.hostile.send_message(&mut self.relay, self.now, id, early, message);
        }
    }

    /// Answers a stream's request as a destination or resolver, or fails it.
    pub(crate) fn answer_stream(&mut self, input: &mut Input<'_>) {
        let Some(stream) = self.wanted.pop_front() else { return };
        self.relay.handle(
            self.now,
            match input.below(4) {
                0 => {
                    self.open.push(stream);
                    let reached = input.coin().then_some((Ipv4Addr::LOCALHOST.into(), 60));
                    RelayInput::Connected { stream, reached }
                }
                1 => RelayInput::Ended { stream, reason: EndReason(input.byte()) },
                2 => RelayInput::Refused { stream, address: (Ipv4Addr::LOCALHOST.into(), 60) },
                _ => RelayInput::Resolved { stream, answers: vec![(Answer::Later, 1)] },
            },
        );
    }

    /// Sends data of a destination, and reads the data for it.
    pub(crate) fn bytes(&mut self, input: &mut Input<'_>) {
        let which = input.byte();
        let Some(&stream) = self.open.get(usize::from(which) % self.open.len().max(1)) else {
            return;
        };
        let length = usize::from(input.word());
        self.relay.write(self.now, stream, &vec![7; length]);
        let (first, second) = self.relay.read(stream);
        let waiting = first.len() + second.len();
        self.relay.consume(self.now, stream, waiting.min(usize::from(input.word())));
    }

    /// Executes the relay's outputs.
    pub(crate) fn collect(&mut self) {
        while let Some(output) = self.relay.poll(self.now) {
            match output {
                Output::Link(LinkOutput::Transmit { link }) => {
                    let neighbour =
                        if link == HONEST { &mut self.honest } else { &mut self.hostile };
                    neighbour.receive(&mut self.relay, self.now);
                }
                Output::Link(LinkOutput::Close { link }) => {
                    assert_eq!(link, HOSTILE, "the honest neighbour is not to blame");
                    self.hostile.gone = true;
                }
                Output::Link(LinkOutput::Dial { target } | LinkOutput::DialOwn { target }) => {
                    self.relay.handle_link(self.now, LinkInput::Unreachable { target });
                }
                Output::Connect { stream, .. }
                | Output::Resolve { stream, .. }
                | Output::Directory { stream, .. } => self.wanted.push_back(stream),
                Output::Link(LinkOutput::FixRecords { .. }) => unreachable!("no link is unordered"),
                Output::Link(LinkOutput::OpenQuic { .. } | LinkOutput::AdmitCircuits { .. }) => {
                    unreachable!("nobody speaks of QUIC")
                }
                Output::Link(LinkOutput::Export { .. }) | Output::Stream(_) | Output::Event(_) => {}
            }
        }
    }

    /// Closes the hostile neighbour's link: nothing is left of it, and the honest neighbour is
    /// served.
    pub(crate) fn closes(&mut self) {
        self.relay.handle_link(self.now, LinkInput::Closed { link: HOSTILE });
        self.collect();
        let stats = self.relay.stats();
        assert_eq!((stats.circuits, stats.cells), (1, 0), "only the honest circuit is left");
        let drop = Message { command: RelayCommand::BEGIN_DIR, stream: 9, data: &[] };
        let before = self.wanted.len();
        self.honest.send_message(&mut self.relay, self.now, IDS[0], Command::RELAY, drop);
        self.collect();
        assert_eq!(self.wanted.len(), before + 1, "the honest neighbour is heard");
    }
}

/// Handshake of a circuit.
enum Handshake {
    Fast(fast::Client),
    Leg(ntor_v3::Client),
}

impl Handshake {
    /// Returns the circuit's layer from the relay's answer.
    fn finish(self, body: &[u8]) -> Option<Tor1Client> {
        let client = match self {
            Handshake::Fast(client) => {
                return client.finish(body).ok().map(|keys| Tor1Client::new(&keys));
            }
            Handshake::Leg(client) => client,
        };
        let created = Body::try_from(body).ok()?;
        let (mut keys, message) = client.finish(read_created2(&created)?).ok()?;
        match keys.of(extension::read_answer(&message, HopRequest::CongestionControl, 31).ok()?) {
            Keys::Tor1(keys) => Some(Tor1Client::new(&keys)),
            _ => None,
        }
    }
}

/// The client side of a link.
pub(crate) struct Neighbour {
    link: LinkId,
    channel: Channel,
    inbox: Vec<u8>,
    rng: Stream,
    /// Handshakes in progress and open circuits, by ID.
    pending: Vec<(u32, Handshake)>,
    layers: Vec<(u32, Tor1Client)>,
    pub(crate) gone: bool,
}

impl Neighbour {
    /// Creates a link whose handshake is done.
    fn new(relay: &mut Relay, link: LinkId, role: Role) -> Neighbour {
        let peer = IpAddr::from([192, 0, 2, link.number() as u8]);
        let start =
            |peer_certificate| Start { peer_certificate, ..Start::new(Time::ZERO, NOW, peer) };
        relay.handle_link(Time::ZERO, LinkInput::Opened { link, target: None, start: start(None) });
        let mut neighbour = Neighbour {
            link,
            channel: Channel::new(role, start(Some(sha256(CERTIFICATE)))),
            inbox: Vec::new(),
            rng: seed::stream(link.bits(), 0, "neighbour"),
            pending: Vec::new(),
            layers: Vec::new(),
            gone: false,
        };
        for _ in 0..3 {
            let bytes = std::mem::take(&mut neighbour.channel.outbox);
            neighbour.send(relay, Time::ZERO, &bytes);
            neighbour.receive(relay, Time::ZERO);
            answer_exports(relay);
        }
        assert!(neighbour.channel.is_open());
        neighbour
    }

    fn send(&self, relay: &mut Relay, now: Time, bytes: &[u8]) {
        relay.handle_link(now, LinkInput::Bytes { link: self.link, bytes });
    }

    /// Begins a circuit.
    fn create(&mut self, relay: &mut Relay, id: u32) {
        let (client, create) = fast::Client::start(&mut self.rng);
        self.pending.push((id, Handshake::Fast(client)));
        let mut cell = Vec::new();
        put_fixed(&mut cell, id, Command::CREATE_FAST, &create);
        self.send(relay, Time::ZERO, &cell);
    }

    /// Begins a circuit with congestion control, which a leg of a set has.
    pub(crate) fn create_leg(&mut self, relay: &mut Relay, now: Time, id: u32) {
        let (identity, onion_key) = (keys().ed_identity(), keys().ntor().1);
        let reply = extension::request(HopRequest::CongestionControl);
        let rng = &mut self.rng;
        let (client, message) =
            ntor_v3::Client::start(rng, identity, onion_key, &reply, ntor_v3::CIRCUIT)
                .expect("a sound onion key");
        self.pending.push((id, Handshake::Leg(client)));
        let mut cell = Vec::new();
        put_fixed(&mut cell, id, Command::CREATE2, &put_create2(Kind::NTOR_V3, &message));
        self.send(relay, now, &cell);
    }

    /// Sends the relay a message encrypted with a circuit's keys.
    pub(crate) fn send_message(
        &mut self,
        relay: &mut Relay,
        now: Time,
        id: u32,
        command: Command,
        message: Message<'_>,
    ) {
        let Some((_, layer)) = self.layers.iter_mut().find(|(other, _)| *other == id) else {
            return;
        };
        let mut body = [0; BODY];
        message::write(Format::V0, &mut body, message, &mut self.rng);
        layer.originate(command, &mut body);
        let mut cell = Vec::new();
        put_fixed(&mut cell, id, command, &body);
        self.send(relay, now, &cell);
    }

    /// Sends a cell that is not for the relay.
    pub(crate) fn pass(&mut self, relay: &mut Relay, now: Time, id: u32, command: Command) {
        let Some((_, layer)) = self.layers.iter_mut().find(|(other, _)| *other == id) else {
            return;
        };
        let mut body = [0x5a; BODY];
        layer.outbound(command, &mut body);
        let mut cell = Vec::new();
        put_fixed(&mut cell, id, command, &body);
        self.send(relay, now, &cell);
    }

    /// Receives the relay's output: circuits that are created or destroyed.
    fn receive(&mut self, relay: &mut Relay, now: Time) {
        relay.transmit(now, self.link, &mut self.inbox, usize::MAX);
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut cells = Cells::new(&mut inbox, self.channel.width(), 10_000);
        while let Ok(Some(cell)) = cells.next_cell() {
            let id = cell.circuit;
            match cell.command {
                Command::CREATED_FAST | Command::CREATED2 => {
                    let place = self.pending.iter().position(|(other, _)| *other == id);
                    let layer =
                        place.and_then(|place| self.pending.remove(place).1.finish(cell.body));
                    self.layers.retain(|(other, _)| *other != id);
                    self.layers.extend(layer.map(|layer| (id, layer)));
                }
                Command::DESTROY => {
                    self.layers.retain(|(other, _)| *other != id);
                    self.pending.retain(|(other, _)| *other != id);
                }
                Command::RELAY => self.read(id, cell.body),
                _ => {}
            }
            if let Ok(CellOutcome::Export(_)) = self.channel.take(&mut self.rng, &cell) {
                self.channel.exported(&mut self.rng, SECRET).expect("an honest handshake");
            }
            cells.set_width(self.channel.width());
        }
        let taken = cells.taken();
        assert!(inbox.len() - taken < CELL, "whole cells come");
        self.inbox = inbox.split_off(taken);
    }

    /// Decrypts a cell; our layer must process every cell that arrives.
    fn read(&mut self, id: u32, body: &[u8]) {
        let layer = self.layers.iter_mut().find(|(other, _)| *other == id);
        if let (Some((_, layer)), Ok(mut body)) = (layer, Body::try_from(body)) {
            assert!(layer.inbound(Command::RELAY, &mut body).is_some(), "the relay's own cells");
        }
    }
}

/// Answers the export of the secret; nothing else happens while links are opened.
fn answer_exports(relay: &mut Relay) {
    while let Some(output) = relay.poll(Time::ZERO) {
        if let Output::Link(LinkOutput::Export { link, .. }) = output {
            relay.handle_link(Time::ZERO, LinkInput::Exported { link, secret: SECRET });
        }
    }
}

/// Returns the role of another relay that begins a link.
pub(crate) fn other_relay() -> Role {
    static CREDENTIALS: OnceLock<Arc<Credentials>> = OnceLock::new();
    let credentials = CREDENTIALS.get_or_init(|| {
        let mut rng = seed::stream(2, 0, "keys");
        let keys = RelayKeys::generate(&mut rng, NOW).expect("keys can be made");
        Arc::new(keys.credentials(&mut rng, b"another certificate", NOW).expect("sound keys"))
    });
    Role::Initiator(Arc::clone(credentials))
}

pub(crate) fn keys() -> &'static RelayKeys {
    static KEYS: OnceLock<RelayKeys> = OnceLock::new();
    KEYS.get_or_init(|| {
        RelayKeys::generate(&mut seed::stream(1, 0, "keys"), NOW).expect("keys can be made")
    })
}

/// Creates a relay in which at most `max_cells` cells may wait.
pub(crate) fn relay(max_cells: usize) -> Relay {
    relay_with(max_cells, false)
}

/// Returns a relay that grants lossy cells if `lossy` is true.
pub(crate) fn relay_with(max_cells: usize, lossy: bool) -> Relay {
    let keys = keys();
    let mut rng = seed::stream(1, 0, "credentials");
    let credentials = keys.credentials(&mut rng, CERTIFICATE, NOW).expect("sound keys");
    let config = Config {
        identity: credentials.identity,
        onion_keys: vec![CurveKeys::from(keys.ntor().0)],
        params: Arc::default(),
        policy: circuitmux::Kind::default(),
        exit: true,
        conflux: ConfluxParams::default(),
        dealing: None,
        directory: true,
        allow_private: false,
        max_cells,
        max_queue: 1000,
        services: ServiceParams::default(),
        max_half_open: 4,
        max_streams: 3,
        lossy,
    };
    let credentials = Arc::new(credentials);
    let responder = Role::Responder(Arc::clone(&credentials));
    let rng = Box::new(seed::stream(1, 0, "relay"));
    Relay::new(config, responder, Role::Initiator(credentials), rng)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_of_a_download_opens_a_stream_for_a_relay_and_none_for_a_client() {
        let seed = include_bytes!("../corpus/onion_relay/download");
        let streams = |hostile| play(seed, hostile).relay.stats().streams;
        assert_eq!((streams(Role::Client), streams(other_relay())), (0, 1));
    }
}
