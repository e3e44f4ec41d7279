//! Neighbours that break the rules: what they break is closed, it is counted, and nobody else is
//! harmed.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod world;

use std::net::IpAddr;
use std::time::Duration;

use anabranch_multipath::seed;
use anabranch_onion::channel::{Channel, Fault, HANDSHAKE, Role, Start};
use anabranch_onion::client::CircuitKey;
use anabranch_onion::conflux::ConfluxFault;
use anabranch_onion::crypto::{ClientLayer, Keys, Tor1Client};
use anabranch_onion::handshake::extension::{self, Wish};
use anabranch_onion::handshake::{Kind, fast, ntor_v3};
use anabranch_onion::relay::{Input, Output};
use anabranch_onion::wire::ancestors::{Ancestor, AncestorLink};
use anabranch_onion::wire::cell::{BODY, Cells, Command, put_fixed, put_fixed_as, put_variable};
use anabranch_onion::wire::cell::{Body, Width};
use anabranch_onion::wire::conflux::{ConfluxLink, DesiredUx, SetNonce, put_switch};
use anabranch_onion::wire::extend::{put_create2, read_created2};
use anabranch_onion::wire::message::{self, Begin, Format, Message, RelayCommand};
use anabranch_onion::{
    CircuitFault, Core, LinkFault, LinkId, LinkInput, LinkOutput, StreamKey, Violation,
};
use rand::RngExt;
use world::{Setting, World};

/// The first circuit ID of a hostile neighbour.
const ID: u32 = 0x8000_0007;

/// A neighbour of relay 0 whose cells the test writes.
struct Neighbour {
    link: LinkId,
    channel: Channel,
    inbox: Vec<u8>,
    layer: Option<Tor1Client>,
    rng: seed::Stream,
}

/// A cell that came.
type Came = (u32, Command, Vec<u8>);

fn peer() -> IpAddr {
    "10.66.0.1".parse().unwrap()
}

/// Takes what relay 0 says; the cells for the neighbour, and whether its link was closed.
fn collect(world: &mut World, neighbour: &mut Neighbour) -> (Vec<Came>, bool) {
    let (mut closed, link) = (false, neighbour.link);
    let relay = &mut world.relays[0];
    while let Some(output) = relay.core.poll() {
        match output {
            Output::Link(LinkOutput::Transmit { link: ready }) if ready == link => {
                relay.core.transmit(world.now, link, &mut neighbour.inbox, usize::MAX);
            }
            Output::Link(LinkOutput::Close { link: other }) if other == link => closed = true,
            Output::Event(anabranch_onion::Event::Violation { violation, .. }) => {
                relay.violations.push(violation);
            }
            _ => {}
        }
    }
    (neighbour.take(), closed)
}

impl Neighbour {
    /// A client's link to relay 0 whose handshake is done.
    fn new(world: &mut World) -> Neighbour {
        Neighbour::speaking(&[4, 5], world)
    }

    /// The same by one of these link protocols.
    fn speaking(versions: &'static [u16], world: &mut World) -> Neighbour {
        let link = world.raw_link(0, peer());
        let start = Start {
            now: world.now,
            unix: world::UNIX,
            peer: peer(),
            own: Vec::new(),
            peer_certificate: Some(world.relays[0].tls_certificate),
            own_certificate: None,
            whole: true,
        };
        let rng = seed::stream(1, 0, "neighbour");
        let channel = Channel::speaking(versions, Role::Client, start);
        let mut neighbour = Neighbour { link, channel, inbox: Vec::new(), layer: None, rng };
        for _ in 0..3 {
            let said = std::mem::take(&mut neighbour.channel.outbox);
            neighbour.send(world, &said);
            collect(world, &mut neighbour);
        }
        assert!(neighbour.channel.is_open());
        neighbour
    }

    fn send(&self, world: &mut World, bytes: &[u8]) {
        let input = LinkInput::Bytes { link: self.link, bytes };
        world.relays[0].core.handle_link(world.now, input);
    }

    fn take(&mut self) -> Vec<Came> {
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut cells = Cells::new(&mut inbox, self.channel.width(), 10_000);
        let mut came = Vec::new();
        while let Some(cell) = cells.next_cell().unwrap() {
            came.push((cell.circuit, cell.command, cell.body.to_vec()));
            self.channel.take(&mut self.rng, &cell).unwrap();
            cells.set_width(self.channel.width());
        }
        let taken = cells.taken();
        self.inbox = inbox.split_off(taken);
        came
    }

    fn cell(&self, world: &mut World, circuit: u32, command: Command, body: &[u8]) {
        let mut bytes = Vec::new();
        put_fixed_as(&mut bytes, self.channel.width(), circuit, command, body);
        self.send(world, &bytes);
    }

    /// A circuit of one hop.
    fn create(&mut self, world: &mut World, id: u32) {
        let (client, create) = fast::Client::start(&mut self.rng);
        self.cell(world, id, Command::CREATE_FAST, &create);
        let (came, _) = collect(world, self);
        let created = came.iter().find(|(_, command, _)| *command == Command::CREATED_FAST);
        let keys = client.finish(&created.unwrap().2).unwrap();
        self.layer = Some(Tor1Client::new(&keys));
    }

    /// A message to the relay in a cell of this command.
    fn say(&mut self, world: &mut World, command: Command, message: Message<'_>) {
        let mut body = [0; BODY];
        message::write(Format::V0, &mut body, message, &mut self.rng);
        self.layer.as_mut().unwrap().originate(command, &mut body);
        self.cell(world, ID, command, &body);
    }

    fn message(&mut self, world: &mut World, command: RelayCommand, stream: u16, data: &[u8]) {
        self.say(world, Command::RELAY, Message { command, stream, data });
    }

    /// Whether the circuit was closed, and the link; what relay 0 complained of.
    fn outcome(&mut self, world: &mut World) -> (bool, bool, Vec<Violation>) {
        let (came, closed) = collect(world, self);
        let destroyed =
            came.iter().any(|(id, command, _)| *id == ID && *command == Command::DESTROY);
        (destroyed, closed, std::mem::take(&mut world.relays[0].violations))
    }
}

/// Makes a circuit with a narrow ID, asks for the directory by it, and counts the bytes that come.
fn bytes_by_a_narrow_link(world: &mut World, neighbour: &mut Neighbour) -> usize {
    neighbour.create(world, ID);
    let begin = Message { command: RelayCommand::BEGIN_DIR, stream: 1, data: &[] };
    neighbour.say(world, Command::RELAY, begin);
    let stream = StreamKey(1);
    let core = &mut world.relays[0].core;
    core.handle(world.now, Input::Connected { stream, reached: None });
    core.write(world.now, stream, &[5; 20 * message::DATA]);
    let (came, _) = collect(world, neighbour);
    let mut bytes = 0;
    for (id, _, body) in came.iter().filter(|(_, command, _)| *command == Command::RELAY) {
        assert_eq!(*id, ID & 0xffff);
        let mut body: Body = body.clone().try_into().unwrap();
        neighbour.layer.as_mut().unwrap().inbound(Command::RELAY, &mut body);
        let message = message::read(Format::V0, &body).unwrap();
        let is_data = message.command == RelayCommand::DATA;
        bytes += if is_data { message.data.len() } else { 0 };
    }
    bytes
}

#[test]
fn a_neighbour_of_link_protocol_3_is_served_by_narrow_circuit_ids() {
    let (mut world, stream) = honest_world();
    let mut neighbour = Neighbour::speaking(&[3], &mut world);
    assert_eq!(neighbour.channel.width(), Width::Two);
    let bytes = bytes_by_a_narrow_link(&mut world, &mut neighbour);
    assert_eq!(bytes, 20 * message::DATA);
    assert_eq!(neighbour.outcome(&mut world).2, []);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.received[&stream].len(), 1_000_000, "wide links are as they were");
}

/// A world in which an honest client downloads through relay 0.
fn honest_world() -> (World, StreamKey) {
    let mut world = World::new(Setting::default());
    let circuit = world.build_through_all(1, Wish::CongestionControl);
    let begin = Begin { host: "source-1000000".into(), port: 80, flags: 0 };
    let stream = world.client.begin(world.now, circuit, &begin).unwrap();
    (world, stream)
}

/// The circuit is closed and the fault told, the link stays, and the honest client gets all that it
/// wants.
fn breaks_its_circuit_only(expected: CircuitFault, act: impl FnOnce(&mut World, &mut Neighbour)) {
    let (mut world, stream) = honest_world();
    let mut neighbour = Neighbour::new(&mut world);
    neighbour.create(&mut world, ID);
    act(&mut world, &mut neighbour);
    assert_eq!(neighbour.outcome(&mut world), (true, false, vec![expected.into()]));
    neighbour.create(&mut world, ID);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.received[&stream].len(), 1_000_000);
}

/// The link is closed and the fault told, and the honest client gets all that it wants.
fn breaks_its_link_only(expected: LinkFault, act: impl FnOnce(&mut World, &mut Neighbour)) {
    let (mut world, stream) = honest_world();
    let mut neighbour = Neighbour::new(&mut world);
    act(&mut world, &mut neighbour);
    let (_, closed, violations) = neighbour.outcome(&mut world);
    assert_eq!((closed, violations), (true, vec![expected.into()]));
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.received[&stream].len(), 1_000_000);
    assert!(world.client.window(CircuitKey(1)).is_some());
}

#[test]
fn a_sendme_that_is_not_owed() {
    breaks_its_circuit_only(CircuitFault::Sendme, |world, neighbour| {
        let data = [&[1, 0, 20][..], &[7; 20]].concat();
        neighbour.message(world, RelayCommand::SENDME, 0, &data);
    });
}

/// Reads a directory of more than a hundred cells, and answers with a SENDME of this tag.
fn sendme_with(tag: impl Fn([u8; 20]) -> [u8; 20]) -> (bool, bool, Vec<Violation>) {
    let mut world = World::new(Setting::default());
    let mut neighbour = Neighbour::new(&mut world);
    neighbour.create(&mut world, ID);
    neighbour.message(&mut world, RelayCommand::BEGIN_DIR, 1, &[]);
    let stream = StreamKey(1);
    let core = &mut world.relays[0].core;
    core.handle(world.now, Input::Connected { stream, reached: None });
    core.write(world.now, stream, &[5; 120 * message::DATA]);
    let (came, _) = collect(&mut world, &mut neighbour);
    let mut data_cells = 0;
    let mut right = [0; 20];
    for (_, _, body) in came.iter().filter(|(_, command, _)| *command == Command::RELAY) {
        let mut body: Body = body.clone().try_into().unwrap();
        let found = neighbour.layer.as_mut().unwrap().inbound(Command::RELAY, &mut body);
        let is_data = message::read(Format::V0, &body).unwrap().command == RelayCommand::DATA;
        data_cells += usize::from(is_data);
        if is_data && data_cells == 100 {
            right = found.unwrap().bytes().try_into().unwrap();
        }
    }
    assert!(data_cells >= 100);
    let data = [&[1, 0, 20][..], &tag(right)].concat();
    neighbour.message(&mut world, RelayCommand::SENDME, 0, &data);
    neighbour.outcome(&mut world)
}

#[test]
fn a_sendme_with_the_wrong_tag_closes_the_circuit_and_one_with_the_right_tag_does_not() {
    assert_eq!(sendme_with(|right| right), (false, false, vec![]));
    let bent = |mut tag: [u8; 20]| {
        tag[19] ^= 1;
        tag
    };
    assert_eq!(sendme_with(bent), (true, false, vec![CircuitFault::Sendme.into()]));
}

#[test]
fn more_relay_early_cells_than_eight() {
    let drop = Message { command: RelayCommand::DROP, stream: 0, data: &[] };
    breaks_its_circuit_only(CircuitFault::RelayEarly, |world, neighbour| {
        (0..9).for_each(|_| neighbour.say(world, Command::RELAY_EARLY, drop));
    });
    let mut world = World::new(Setting::default());
    let mut neighbour = Neighbour::new(&mut world);
    neighbour.create(&mut world, ID);
    (0..8).for_each(|_| neighbour.say(&mut world, Command::RELAY_EARLY, drop));
    assert_eq!(neighbour.outcome(&mut world), (false, false, vec![]));
}

#[test]
fn an_extend_in_a_cell_that_is_not_early() {
    breaks_its_circuit_only(CircuitFault::Extend, |world, neighbour| {
        let target = world.relays[1].target.clone();
        let kind = anabranch_onion::handshake::Kind::NTOR;
        let wish = anabranch_onion::wire::extend::Extend { target, kind, handshake: vec![0; 84] };
        neighbour.message(world, RelayCommand::EXTEND2, 0, &wish.write());
    });
}

#[test]
fn what_lies_beyond_a_relay_ends_the_circuit_with_it() {
    let mut world = World::new(Setting::default());
    let mut neighbour = Neighbour::new(&mut world);
    neighbour.create(&mut world, ID);
    // The next relay refuses what proves nothing, by DESTROY.
    let target = world.relays[1].target.clone();
    let kind = anabranch_onion::handshake::Kind::NTOR;
    let wish = anabranch_onion::wire::extend::Extend { target, kind, handshake: vec![0; 84] };
    let (command, data) = (RelayCommand::EXTEND2, &wish.write()[..]);
    neighbour.say(&mut world, Command::RELAY_EARLY, Message { command, stream: 0, data });
    world.run_for(Duration::from_secs(1));
    let (relay, link) = (&mut world.relays[0].core, neighbour.link);
    relay.transmit(world.now, link, &mut neighbour.inbox, usize::MAX);
    let came: Vec<_> = neighbour.take().into_iter().filter(|(id, ..)| *id == ID).collect();
    assert!(matches!(came[..], [(_, Command::DESTROY, _)]), "and no TRUNCATED: {came:?}");
    assert_eq!(world.relays[0].core.stats().lanes, 0);
}

#[test]
fn a_flood_beyond_the_streams_window() {
    breaks_its_circuit_only(CircuitFault::Flood, |world, neighbour| {
        neighbour.message(world, RelayCommand::BEGIN_DIR, 1, &[]);
        for _ in 0..501 {
            neighbour.message(world, RelayCommand::DATA, 1, &[0; 498]);
        }
    });
}

#[test]
fn a_circuit_id_that_is_in_use() {
    breaks_its_circuit_only(CircuitFault::CircuitId, |world, neighbour| {
        neighbour.cell(world, ID, Command::CREATE_FAST, &[1; 20]);
    });
}

#[test]
fn a_circuit_id_of_our_half() {
    let (mut world, _) = honest_world();
    let mut neighbour = Neighbour::new(&mut world);
    neighbour.cell(&mut world, 7, Command::CREATE_FAST, &[1; 20]);
    let (_, closed, violations) = neighbour.outcome(&mut world);
    assert_eq!((closed, violations), (false, vec![CircuitFault::CircuitId.into()]));
}

#[test]
fn a_relay_cell_that_nobody_recognises() {
    breaks_its_circuit_only(CircuitFault::Unrecognised, |world, neighbour| {
        neighbour.cell(world, ID, Command::RELAY, &[3; BODY]);
    });
}

#[test]
fn messages_that_only_relays_send() {
    for command in [RelayCommand::CONNECTED, RelayCommand::EXTENDED2, RelayCommand::TRUNCATED] {
        breaks_its_circuit_only(CircuitFault::Message, |world, neighbour| {
            neighbour.message(world, command, 0, &[0; 4]);
        });
    }
}

#[test]
fn a_stream_number_that_is_in_use() {
    breaks_its_circuit_only(CircuitFault::Message, |world, neighbour| {
        neighbour.message(world, RelayCommand::BEGIN_DIR, 1, &[]);
        neighbour.message(world, RelayCommand::BEGIN_DIR, 1, &[]);
    });
}

#[test]
fn a_created_cell_that_nobody_waits_for() {
    breaks_its_circuit_only(CircuitFault::Message, |world, neighbour| {
        neighbour.cell(world, ID, Command::CREATED_FAST, &[0; 40]);
    });
}

#[test]
fn a_handshake_that_proves_nothing_makes_no_circuit() {
    let (mut world, _) = honest_world();
    let mut neighbour = Neighbour::new(&mut world);
    let body = anabranch_onion::wire::extend::put_create2(
        anabranch_onion::handshake::Kind::NTOR,
        &[1; 84],
    );
    neighbour.cell(&mut world, ID, Command::CREATE2, &body);
    let (destroyed, closed, violations) = neighbour.outcome(&mut world);
    assert!(destroyed && !closed);
    assert!(matches!(violations[..], [Violation::Circuit(CircuitFault::Handshake(_))]));
}

#[test]
fn a_client_that_wants_out_over_one_hop_is_refused_that_stream_only() {
    let (mut world, _) = honest_world();
    let mut neighbour = Neighbour::new(&mut world);
    neighbour.create(&mut world, ID);
    let begin = Begin { host: "sink".into(), port: 80, flags: 0 };
    neighbour.message(&mut world, RelayCommand::BEGIN, 1, &begin.write().unwrap());
    assert_eq!(neighbour.outcome(&mut world), (false, false, vec![]));
    assert_eq!(world.relays[0].core.stats().streams, 0);
}

#[test]
fn a_circuit_cell_without_a_circuit() {
    breaks_its_link_only(LinkFault::NoCircuit, |world, neighbour| {
        neighbour.cell(world, 0, Command::RELAY, &[0; BODY]);
    });
}

#[test]
fn a_cell_that_is_too_long() {
    breaks_its_link_only(LinkFault::TooLong, |world, neighbour| {
        neighbour.send(world, &[0, 0, 0, 0, 128, 0xff, 0xff]);
    });
}

#[test]
fn a_second_netinfo() {
    breaks_its_link_only(
        LinkFault::Handshake(Fault::OutOfPlace(Command::NETINFO)),
        |world, neighbour| {
            neighbour.cell(world, 0, Command::NETINFO, &[0; 20]);
        },
    );
}

#[test]
fn a_link_that_begins_with_something_else() {
    let mut world = World::new(Setting::default());
    let link = world.raw_link(0, peer());
    let mut bytes = Vec::new();
    put_variable(&mut bytes, Width::Two, Command::CERTS, &[0]);
    world.relays[0].core.handle_link(world.now, LinkInput::Bytes { link, bytes: &bytes });
    world.run_for(Duration::from_secs(1));
    let fault = Fault::OutOfPlace(Command::CERTS);
    assert_eq!(world.relays[0].violations, [LinkFault::Handshake(fault).into()]);
}

#[test]
fn a_neighbour_who_makes_us_answer_and_does_not_read_is_left() {
    breaks_its_link_only(LinkFault::Deaf, |world, neighbour| {
        // TAP is refused, each time with a DESTROY.
        for circuit in 1..=300 {
            neighbour.cell(world, 1 << 31 | circuit, Command::CREATE, &[]);
        }
    });
}

#[test]
fn a_link_on_which_cells_may_be_lost_is_refused() {
    let mut world = World::new(Setting::default());
    world.raw_link_that_is(false, 0, peer());
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.relays[0].violations, [LinkFault::NotWhole.into()]);
}

#[test]
fn half_open_links_are_few_for_each_address_and_do_not_last() {
    let mut world = World::new(Setting::default());
    let other: IpAddr = "10.66.0.2".parse().unwrap();
    (0..10).for_each(|_| {
        world.raw_link(0, peer());
    });
    world.raw_link(0, other);
    world.run_for(Duration::from_secs(1));
    let refused = vec![LinkFault::TooManyHalfOpen.into(); 6];
    assert_eq!(std::mem::take(&mut world.relays[0].violations), refused);
    world.run_for(HANDSHAKE);
    assert_eq!(world.relays[0].violations, [LinkFault::HandshakeTimeout.into(); 5]);
    world.raw_link(0, peer());
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.relays[0].violations.len(), 5, "there is room again");
}

#[test]
fn a_link_that_rests_gives_back_the_room_of_a_burst() {
    let mut world = World::new(Setting::default());
    let link = Neighbour::new(&mut world).link;
    let core = &mut world.relays[0].core;
    core.rest(link);
    let mut cells = Vec::new();
    for _ in 0..200 {
        put_fixed(&mut cells, 0, Command::PADDING, &[0; BODY]);
    }
    core.handle_link(world.now, LinkInput::Bytes { link, bytes: &cells });
    assert!(core.rest(link) > 90_000);
    assert_eq!(core.rest(link), 0, "there is no more");
}

#[test]
fn links_that_come_and_go_leave_no_timers() {
    let mut world = World::new(Setting::default());
    for _ in 0..20 {
        let link = Neighbour::new(&mut world).link;
        world.relays[0].core.handle_link(world.now, LinkInput::Closed { link });
    }
    // Those of their handshakes have passed by then; that of an open link would stay for minutes.
    world.run_for(HANDSHAKE);
    assert_eq!(world.relays[0].core.next_timeout(), None);
}

/// A message that no honest client would think of, but that is well authenticated.
fn odd_message(rng: &mut seed::Stream) -> (Command, RelayCommand, u16, Vec<u8>) {
    let commands = [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 13, 14, 15, 19, 43, 44, 200];
    let command = RelayCommand(commands[rng.random_range(0..commands.len())]);
    let cell = if rng.random_bool(0.1) { Command::RELAY_EARLY } else { Command::RELAY };
    let mut data = vec![0; rng.random_range(0..=message::DATA)];
    rng.fill(&mut data[..]);
    if rng.random_bool(0.3) {
        data = b"example.com:80\0".to_vec();
    }
    (cell, command, rng.random_range(0..4), data)
}

#[test]
fn no_script_of_messages_harms_anybody() {
    let (mut world, stream) = honest_world();
    for case in 0..60 {
        let mut rng = seed::stream(case, 0, "odd messages");
        let mut neighbour = Neighbour::new(&mut world);
        neighbour.create(&mut world, ID);
        for _ in 0..40 {
            let (cell, command, stream, data) = odd_message(&mut rng);
            neighbour.say(&mut world, cell, Message { command, stream, data: &data });
            let (destroyed, closed, _) = neighbour.outcome(&mut world);
            assert!(!closed, "case {case}: a circuit's fault is not the link's");
            if destroyed {
                neighbour.create(&mut world, ID);
            }
        }
        world.relays[0].core.handle_link(world.now, LinkInput::Closed { link: neighbour.link });
        assert_eq!(world.relays[0].core.stats().circuits, 1, "case {case}: only the honest one");
    }
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.received[&stream].len(), 1_000_000);
    let stats = world.relays[0].core.stats();
    assert_eq!((stats.streams, stats.cells), (0, 0), "nothing is left of them");
}

#[test]
fn noise_after_the_handshake_harms_nobody() {
    let (mut world, stream) = honest_world();
    let mut neighbour = Neighbour::new(&mut world);
    let mut rng = seed::stream(3, 0, "noise");
    for _ in 0..200 {
        let mut noise = [0u8; 700];
        rand_core::Rng::fill_bytes(&mut rng, &mut noise);
        neighbour.send(&mut world, &noise);
    }
    collect(&mut world, &mut neighbour);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.received[&stream].len(), 1_000_000);
}

/// A circuit of one hop that asks for this.
fn create_asking(wish: Wish, world: &mut World, neighbour: &mut Neighbour, id: u32) -> Tor1Client {
    let (identity, onion_key) =
        (world.relays[0].target.ed25519.unwrap(), world.relays[0].onion_key);
    let said = extension::request(wish);
    let rng = &mut neighbour.rng;
    let (client, message) =
        ntor_v3::Client::start(rng, identity, onion_key, &said, ntor_v3::CIRCUIT).unwrap();
    neighbour.cell(world, id, Command::CREATE2, &put_create2(Kind::NTOR_V3, &message));
    let (came, _) = collect(world, neighbour);
    let created = came.iter().find(|(_, command, _)| *command == Command::CREATED2).unwrap();
    let body: &Body = (&created.2[..]).try_into().unwrap();
    let (mut keys, said) = client.finish(read_created2(body).unwrap()).unwrap();
    let agreed = extension::read_answer(&said, wish, 31).unwrap();
    match keys.of(agreed) {
        Keys::Tor1(keys) => Tor1Client::new(&keys),
        Keys::Cgo(_) => panic!("nobody asked for it"),
    }
}

/// Circuits of one neighbour, each with its layer.
struct Legs {
    neighbour: Neighbour,
    layers: Vec<Tor1Client>,
}

impl Legs {
    /// With congestion control, as legs of proposal 329 have it.
    fn new(world: &mut World, count: usize) -> Legs {
        Legs::asking(&vec![Wish::CongestionControl; count], world)
    }

    /// Each with what is asked for.
    fn asking(wishes: &[Wish], world: &mut World) -> Legs {
        let mut neighbour = Neighbour::new(world);
        let ids = (ID..).zip(wishes);
        let layers = ids.map(|(id, wish)| create_asking(*wish, world, &mut neighbour, id));
        let layers = layers.collect();
        Legs { neighbour, layers }
    }

    fn say(&mut self, world: &mut World, leg: usize, command: RelayCommand, data: &[u8]) {
        self.say_on(world, leg, command, 0, data);
    }

    fn say_on(
        &mut self,
        world: &mut World,
        leg: usize,
        command: RelayCommand,
        stream: u16,
        data: &[u8],
    ) {
        let mut body = [0; BODY];
        let message = Message { command, stream, data };
        message::write(Format::V0, &mut body, message, &mut self.neighbour.rng);
        self.layers[leg].originate(Command::RELAY, &mut body);
        self.neighbour.cell(world, ID + leg as u32, Command::RELAY, &body);
    }

    fn link(&mut self, world: &mut World, leg: usize, nonce: u8, received: u64) {
        let nonce = SetNonce::from([nonce; 32]);
        let link = ConfluxLink { nonce, sent: 0, received, ux: DesiredUx::HighThroughput };
        self.say(world, leg, RelayCommand::CONFLUX_LINK, &link.write());
    }

    fn link_older(&mut self, world: &mut World, leg: usize, design: Ancestor, dealing: &str) {
        let (nonce, dealing) = (SetNonce::from([7; 32]), dealing.to_owned());
        let link = AncestorLink { design, nonce, dealing }.write().unwrap();
        self.say(world, leg, RelayCommand::ANCESTOR_LINK, &link);
    }

    /// Commands that came by each leg, and the legs that were closed; what the relay complained of.
    fn outcome(
        &mut self,
        world: &mut World,
    ) -> (Vec<(usize, RelayCommand)>, Vec<usize>, Vec<Violation>) {
        let (came, closed) = collect(world, &mut self.neighbour);
        assert!(!closed, "the link stays");
        let (mut said, mut gone) = (Vec::new(), Vec::new());
        for (id, command, body) in came {
            let leg = (id - ID) as usize;
            if command == Command::DESTROY {
                gone.push(leg);
            } else if command == Command::RELAY {
                let mut body: Body = body.try_into().unwrap();
                self.layers[leg].inbound(Command::RELAY, &mut body).unwrap();
                said.push((leg, message::read(Format::V0, &body).unwrap().command));
            }
        }
        gone.sort_unstable();
        (said, gone, std::mem::take(&mut world.relays[0].violations))
    }
}

/// What a client does with linked legs that no honest one does: which legs close, with which fault.
/// An honest client's download goes on.
fn breaks_legs(
    closes: &[usize],
    expected: &[ConfluxFault],
    act: impl FnOnce(&mut World, &mut Legs),
) {
    breaks_legs_asking(&[Wish::CongestionControl; 10], closes, expected, act);
}

/// The same with circuits that ask for this.
fn breaks_legs_asking(
    wishes: &[Wish],
    closes: &[usize],
    expected: &[ConfluxFault],
    act: impl FnOnce(&mut World, &mut Legs),
) {
    let (mut world, stream) = honest_world();
    let mut legs = Legs::asking(wishes, &mut world);
    act(&mut world, &mut legs);
    let (_, gone, violations) = legs.outcome(&mut world);
    let faults: Vec<Violation> =
        expected.iter().map(|fault| CircuitFault::Conflux(*fault).into()).collect();
    assert_eq!((&gone[..], violations), (closes, faults));
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.received[&stream].len(), 1_000_000);
}

const LINKED_ACK: RelayCommand = RelayCommand::CONFLUX_LINKED_ACK;
const SWITCH: RelayCommand = RelayCommand::CONFLUX_SWITCH;

#[test]
fn legs_are_linked_and_a_ninth_is_refused_alone() {
    let (mut world, _) = honest_world();
    let mut legs = Legs::new(&mut world, 10);
    (0..9).for_each(|leg| legs.link(&mut world, leg, 7, 0));
    let (said, gone, violations) = legs.outcome(&mut world);
    let linked: Vec<_> = (0..8).map(|leg| (leg, RelayCommand::CONFLUX_LINKED)).collect();
    assert_eq!((said, gone), (linked, vec![8]));
    assert_eq!(violations, [CircuitFault::Conflux(ConfluxFault::TooManyLegs).into()]);
    let stats = world.relays[0].core.stats();
    assert_eq!((stats.sets, stats.legs), (1, 8));
}

#[test]
fn what_may_not_be_said_of_sets_closes_the_leg_that_says_it() {
    use ConfluxFault as Fault;
    breaks_legs(&[0], &[Fault::Unreadable], |world, legs| {
        legs.say(world, 0, RelayCommand::CONFLUX_LINK, &[1; 49]);
    });
    breaks_legs(&[0], &[Fault::Role], |world, legs| {
        legs.say(world, 0, RelayCommand::CONFLUX_LINKED, &[1; 50]);
    });
    breaks_legs(&[0], &[Fault::NotLinked], |world, legs| legs.say(world, 0, LINKED_ACK, &[]));
    breaks_legs(&[0], &[Fault::NotLinked], |world, legs| {
        legs.say(world, 0, SWITCH, &put_switch(3));
    });
    breaks_legs(&[0], &[Fault::Twice], |world, legs| {
        legs.link(world, 0, 7, 0);
        legs.link(world, 0, 7, 0);
    });
    for (first, fault) in [(0, Fault::SwitchZero), (1 << 25, Fault::TooFar)] {
        breaks_legs(&[1], &[fault], |world, legs| {
            (0..2).for_each(|leg| legs.link(world, leg, 7, 0));
            legs.say(world, 1, SWITCH, &put_switch(first));
        });
    }
    // By its first SWITCH it leads, so the set goes with it.
    breaks_legs(&[0, 1], &[Fault::SwitchTwice], |world, legs| {
        (0..2).for_each(|leg| legs.link(world, leg, 7, 0));
        (0..2).for_each(|_| legs.say(world, 1, SWITCH, &put_switch(9)));
    });
    breaks_legs(&[1], &[Fault::Twice], |world, legs| {
        (0..2).for_each(|leg| legs.link(world, leg, 7, 0));
        (0..2).for_each(|_| legs.say(world, 1, LINKED_ACK, &[]));
    });
    breaks_legs(&[1], &[Fault::Role], |world, legs| {
        (0..2).for_each(|leg| legs.link(world, leg, 7, 0));
        legs.say(world, 1, RelayCommand::EXTEND2, &[0; 60]);
    });
}

#[test]
fn numbers_that_were_before_and_numbers_that_we_never_sent_end_what_they_must() {
    // Leg 1 repeats number 1: it closes, and leg 0, which leads, lives on.
    breaks_legs(&[1], &[ConfluxFault::Repeated], |world, legs| {
        (0..2).for_each(|leg| legs.link(world, leg, 7, 0));
        (0..2).for_each(|leg| legs.say_on(world, leg, RelayCommand::DATA, 5, &[0; 20]));
    });
    // Who says to have received what we never sent is not of this set: all of it goes.
    breaks_legs(&[0, 1, 2], &[ConfluxFault::DataLoss], |world, legs| {
        (0..2).for_each(|leg| legs.link(world, leg, 7, 0));
        legs.link(world, 2, 7, 1 << 63);
    });
}

#[test]
fn a_circuit_that_had_a_stream_is_no_leg() {
    for command in [RelayCommand::BEGIN_DIR, RelayCommand::RESOLVE] {
        breaks_legs(&[0], &[ConfluxFault::Streams], |world, legs| {
            legs.say_on(world, 0, command, 1, b"known\0");
            legs.say_on(world, 0, RelayCommand::END, 1, &[6]);
            legs.link(world, 0, 7, 0);
        });
    }
}

#[test]
fn a_directory_request_on_a_leg_is_refused_and_the_leg_stays() {
    let (mut world, _) = honest_world();
    let mut legs = Legs::new(&mut world, 1);
    legs.link(&mut world, 0, 7, 0);
    legs.outcome(&mut world);
    legs.say_on(&mut world, 0, RelayCommand::BEGIN_DIR, 3, &[]);
    let (said, gone, violations) = legs.outcome(&mut world);
    assert_eq!((said, gone, violations), (vec![(0, RelayCommand::END)], vec![], vec![]));
}

#[test]
fn a_fixed_window_is_no_leg() {
    breaks_its_circuit_only(CircuitFault::Conflux(ConfluxFault::Role), |world, neighbour| {
        let nonce = SetNonce::from([7; 32]);
        let link = ConfluxLink { nonce, sent: 0, received: 0, ux: DesiredUx::None };
        neighbour.message(world, RelayCommand::CONFLUX_LINK, 0, &link.write());
    });
}

#[test]
fn messages_far_ahead_fill_a_bounded_queue_and_then_their_leg_closes() {
    let (mut world, stream) = honest_world();
    let mut legs = Legs::new(&mut world, 3);
    (0..3).for_each(|leg| legs.link(&mut world, leg, 7, 0));
    legs.outcome(&mut world);
    legs.say(&mut world, 1, SWITCH, &put_switch(9));
    let mut most = 0;
    let closed = (0..100_000).find(|_| {
        legs.say_on(&mut world, 1, RelayCommand::DATA, 5, &[0; 498]);
        most = most.max(world.relays[0].core.stats().reordered);
        let (_, gone, _) = legs.outcome(&mut world);
        !gone.is_empty()
    });
    assert!(closed.is_some() && most > 1 << 19, "{closed:?}, {most} bytes");
    assert!(most <= 4 * 594 * closed.unwrap().max(442), "{most} bytes");
    let stats = world.relays[0].core.stats();
    assert_eq!((stats.reordered, stats.sets), (0, 0), "what it held went with it");
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.received[&stream].len(), 1_000_000);
}

#[test]
fn legs_that_never_acknowledge_are_closed_after_a_minute() {
    let (mut world, _) = honest_world();
    let mut legs = Legs::new(&mut world, 2);
    (0..2).for_each(|leg| legs.link(&mut world, leg, 7, 0));
    legs.outcome(&mut world);
    world.relays[0].core.handle(world.now + Duration::from_secs(61), Input::Timeout);
    let (_, gone, violations) = legs.outcome(&mut world);
    assert_eq!((gone, violations), (vec![0, 1], vec![]));
}

/// Two circuits without congestion control, linked to a set of an older design.
fn breaks_older_legs(
    closes: &[usize],
    expected: &[ConfluxFault],
    act: impl FnOnce(&mut World, &mut Legs),
) {
    breaks_legs_asking(&[Wish::Plain; 3], closes, expected, |world, legs| {
        (0..2).for_each(|leg| legs.link_older(world, leg, Ancestor::Conflux2013, ""));
        let (said, gone, _) = legs.outcome(world);
        let linked = |leg| (leg, RelayCommand::ANCESTOR_LINKED);
        assert_eq!((said, gone), (vec![linked(0), linked(1)], vec![]));
        act(world, legs);
    });
}

/// The data of a message with this number.
fn numbered(number: u32, data: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], data].concat()
}

#[test]
fn what_may_not_be_said_of_an_older_set_closes_the_leg_that_says_it() {
    use ConfluxFault as Fault;
    const ACK: RelayCommand = RelayCommand::ANCESTOR_LINKED_ACK;
    let plain = [Wish::Plain; 2];
    breaks_legs_asking(&plain, &[0], &[Fault::Unreadable], |world, legs| {
        legs.say(world, 0, RelayCommand::ANCESTOR_LINK, &[1; 34]);
    });
    for dealing in ["fastest 1p", "pull", "weights:1,1 1p"] {
        breaks_legs_asking(&plain, &[0], &[Fault::Unreadable], |world, legs| {
            legs.link_older(world, 0, Ancestor::MTor, dealing);
        });
    }
    breaks_legs_asking(&plain, &[0], &[Fault::Role], |world, legs| {
        legs.say(world, 0, RelayCommand::ANCESTOR_LINKED, &[1; 50]);
    });
    breaks_legs_asking(&plain, &[0], &[Fault::NotLinked], |world, legs| {
        legs.say(world, 0, ACK, &[]);
    });
    breaks_legs_asking(&plain, &[0], &[Fault::Streams], |world, legs| {
        legs.say_on(world, 0, RelayCommand::RESOLVE, 1, b"known\0");
        legs.link_older(world, 0, Ancestor::MTor, "");
    });
    breaks_older_legs(&[1], &[Fault::Twice], |world, legs| {
        legs.link_older(world, 1, Ancestor::Conflux2013, "");
    });
    breaks_older_legs(&[1], &[Fault::Twice], |world, legs| {
        (0..2).for_each(|_| legs.say(world, 1, ACK, &[]));
    });
    breaks_older_legs(&[1], &[Fault::Role], |world, legs| {
        legs.say(world, 1, SWITCH, &put_switch(9));
    });
    breaks_older_legs(&[1], &[Fault::Role], |world, legs| {
        legs.say(world, 1, RelayCommand::EXTEND2, &[0; 60]);
    });
}

#[test]
fn legs_of_another_design_or_with_other_windows_do_not_join() {
    use ConfluxFault as Fault;
    breaks_older_legs(&[2], &[Fault::Design], |world, legs| {
        legs.link_older(world, 2, Ancestor::MTor, "");
    });
    breaks_older_legs(&[2], &[Fault::Role], |world, legs| legs.link(world, 2, 7, 0));
    breaks_older_legs(&[1], &[Fault::Design], |world, legs| legs.say(world, 1, LINKED_ACK, &[]));
    let mixed = [Wish::Plain, Wish::CongestionControl, Wish::CongestionControl];
    breaks_legs_asking(&mixed, &[1, 2], &[Fault::Design; 2], |world, legs| {
        legs.link_older(world, 0, Ancestor::MTor, "");
        legs.link_older(world, 1, Ancestor::MTor, "");
        legs.link(world, 2, 7, 0);
    });
    breaks_legs(&[0], &[Fault::Design], |world, legs| {
        (0..2).for_each(|leg| legs.link(world, leg, 7, 0));
        legs.say(world, 0, RelayCommand::ANCESTOR_LINKED_ACK, &[]);
    });
}

#[test]
fn numbers_that_were_before_are_far_ahead_or_cut_close_the_leg_that_brings_them() {
    use ConfluxFault as Fault;
    breaks_older_legs(&[1], &[Fault::Repeated], |world, legs| {
        let data = numbered(1, &[0; 20]);
        (0..2).for_each(|leg| legs.say_on(world, leg, RelayCommand::DATA, 5, &data));
    });
    // Half of all numbers are ahead of the one that is next; the others are taken to be before it.
    for far in [(1 << 24) + 2, (1 << 31) - 1] {
        breaks_older_legs(&[1], &[Fault::TooFar], |world, legs| {
            legs.say_on(world, 1, RelayCommand::DATA, 5, &numbered(far, &[0; 20]));
        });
    }
    breaks_older_legs(&[1], &[Fault::Repeated], |world, legs| {
        legs.say_on(world, 1, RelayCommand::DATA, 5, &numbered(u32::MAX, &[0; 20]));
    });
    breaks_older_legs(&[1], &[Fault::Unreadable], |world, legs| {
        legs.say_on(world, 1, RelayCommand::END, 5, &[0; 3]);
    });
}

#[test]
fn a_number_on_a_circuit_that_is_no_leg_is_no_number() {
    breaks_its_circuit_only(CircuitFault::Message, |world, neighbour| {
        let begin = Begin { host: "sink".into(), port: 80, flags: 0 }.write().unwrap();
        neighbour.message(world, RelayCommand::BEGIN, 3, &numbered(1, &begin));
    });
}

#[test]
fn older_sets_hold_a_bounded_number_of_bytes_and_then_a_leg_closes() {
    let (mut world, stream) = honest_world();
    let mut legs = Legs::asking(&[Wish::Plain; 2], &mut world);
    (0..2).for_each(|leg| legs.link_older(&mut world, leg, Ancestor::MTor, "round-robin 1p"));
    legs.outcome(&mut world);
    let mut most = 0;
    let closed = (2..100_000).find(|number| {
        legs.say_on(&mut world, 1, RelayCommand::DATA, 5, &numbered(*number, &[0; 494]));
        most = most.max(world.relays[0].core.stats().reordered);
        let (_, gone, _) = legs.outcome(&mut world);
        !gone.is_empty()
    });
    assert!(closed.is_some() && most > 1 << 20, "{closed:?}, {most} bytes");
    assert!(most <= 4 * 594 * closed.unwrap() as usize, "{most} bytes");
    let stats = world.relays[0].core.stats();
    assert_eq!((stats.reordered, stats.sets), (0, 0), "what it held went with it");
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.received[&stream].len(), 1_000_000);
}
