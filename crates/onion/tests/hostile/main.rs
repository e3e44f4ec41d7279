//! Neighbours that violate the protocol. The relay closes the circuit or link of the violation,
//! and reports the violation. Other circuits and links are not affected.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod legs;
mod merged;
mod resilient;
use anabranch_testkit::onion_world as world;

use std::net::IpAddr;
use std::time::Duration;

use anabranch_multipath::{Core as _, seed};
use anabranch_onion::channel::{Capabilities, Channel, Fault, HANDSHAKE, Role, Start};
use anabranch_onion::client::CircuitKey;
use anabranch_onion::conflux::ConfluxFault;
use anabranch_onion::congestion::Params;
use anabranch_onion::crypto::{ClientLayer, Keys, Tor1Client};
use anabranch_onion::handshake::extension::{self, HopRequest};
use anabranch_onion::handshake::{Kind, fast, ntor_v3};
use anabranch_onion::relay::{Input, Output};
use anabranch_onion::wire::ancestors::{Ancestor, AncestorLink};
use anabranch_onion::wire::cell::{BODY, Body, Cells, Command, Width, put_fixed};
use anabranch_onion::wire::cell::{put_fixed_as, put_numbered, put_variable};
use anabranch_onion::wire::conflux::{ConfluxLink, DesiredUx, SetNonce, put_switch};
use anabranch_onion::wire::extend::{put_create2, read_created2};
use anabranch_onion::wire::message::{self, Begin, Format, Message, RelayCommand};
use anabranch_onion::wire::resilient::{LegSwitch, Received, ResilientLink, put_gone};
use anabranch_onion::{
    CarrierFault, CircuitFault, LinkCore, LinkFault, LinkId, LinkInput, LinkOutput, StreamKey,
    Violation,
};
use rand::RngExt;
use world::{Setting, World};

/// The first circuit ID of a hostile neighbour.
const ID: u32 = 0x8000_0007;
/// Version of the link protocol in which cells may have numbers if both ends support that.
const UNORDERED: u16 = 103;

/// A neighbour of relay 0 whose cells the test writes.
struct Neighbour {
    link: LinkId,
    channel: Channel,
    inbox: Vec<u8>,
    layer: Option<Tor1Client>,
    rng: seed::Stream,
}

/// A received cell: circuit ID, command and body.
type ReceivedCell = (u32, Command, Vec<u8>);

fn peer() -> IpAddr {
    "10.66.0.1".parse().unwrap()
}

/// Processes the outputs of relay 0. Returns the cells for the neighbour, and whether its link was
/// closed.
fn collect(world: &mut World, neighbour: &mut Neighbour) -> (Vec<ReceivedCell>, bool) {
    let (mut closed, link) = (false, neighbour.link);
    let relay = &mut world.relays[0];
    while let Some(output) = relay.core.poll(world.now) {
        match output {
            Output::Link(LinkOutput::Transmit { link: ready }) if ready == link => {
                relay.core.transmit(world.now, link, &mut neighbour.inbox, usize::MAX);
            }
            Output::Link(LinkOutput::Close { link: other }) if other == link => closed = true,
            Output::Link(LinkOutput::FixRecords { link, .. }) => {
                relay.core.handle_link(world.now, LinkInput::RecordsFixed { link });
            }
            Output::Event(anabranch_onion::Event::Violation { violation, .. }) => {
                relay.violations.push(violation);
            }
            _ => {}
        }
    }
    (neighbour.take(), closed)
}

impl Neighbour {
    /// Opens a client's link to relay 0, and completes its handshake.
    fn new(world: &mut World) -> Neighbour {
        Neighbour::speaking(&[4, 5], world)
    }

    /// Opens a link like [`Neighbour::new`], but with `versions` of the link protocol.
    fn speaking(versions: &'static [u16], world: &mut World) -> Neighbour {
        let unordered = versions.contains(&UNORDERED);
        let link = world.raw_link_that_is([true, unordered], 0, peer());
        let start = Start {
            peer_certificate: Some(world.relays[0].tls_certificate),
            capabilities: Capabilities { unordered, ..Capabilities::ORDERED },
            ..Start::new(world.now, world::UNIX, peer())
        };
        let rng = seed::stream(1, 0, "neighbour");
        let channel = Channel::speaking(versions, Role::Client, start);
        let mut neighbour = Neighbour { link, channel, inbox: Vec::new(), layer: None, rng };
        for _ in 0..3 {
            let bytes = std::mem::take(&mut neighbour.channel.outbox);
            neighbour.send(world, &bytes);
            collect(world, &mut neighbour);
        }
        assert!(neighbour.channel.is_open());
        neighbour
    }

    fn send(&self, world: &mut World, bytes: &[u8]) {
        let input = LinkInput::Bytes { link: self.link, bytes };
        world.relays[0].core.handle_link(world.now, input);
    }

    fn take(&mut self) -> Vec<ReceivedCell> {
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut cells = Cells::new(&mut inbox, self.channel.width(), 10_000);
        self.channel.frame(&mut cells);
        let mut received = Vec::new();
        while let Some(cell) = cells.next_cell().unwrap() {
            received.push((cell.circuit, cell.command, cell.body.to_vec()));
            self.channel.take(&mut self.rng, &cell).unwrap();
            self.channel.frame(&mut cells);
        }
        let taken = cells.taken();
        self.inbox = inbox.split_off(taken);
        received
    }

    fn cell(&self, world: &mut World, circuit: u32, command: Command, body: &[u8]) {
        let mut bytes = Vec::new();
        put_fixed_as(&mut bytes, self.channel.width(), circuit, command, body);
        self.send(world, &bytes);
    }

    /// Creates a circuit of one hop with the circuit ID `id`.
    fn create(&mut self, world: &mut World, id: u32) {
        let (client, create) = fast::Client::start(&mut self.rng);
        self.cell(world, id, Command::CREATE_FAST, &create);
        let (received, _) = collect(world, self);
        let created = received.iter().find(|(_, command, _)| *command == Command::CREATED_FAST);
        let keys = client.finish(&created.unwrap().2).unwrap();
        self.layer = Some(Tor1Client::new(&keys));
    }

    /// Sends `message` to the relay in a cell with `command`.
    fn send_message(&mut self, world: &mut World, command: Command, message: Message<'_>) {
        let mut body = [0; BODY];
        message::write(Format::V0, &mut body, message, &mut self.rng);
        self.layer.as_mut().unwrap().originate(command, &mut body);
        self.cell(world, ID, command, &body);
    }

    fn message(&mut self, world: &mut World, command: RelayCommand, stream: u16, data: &[u8]) {
        self.send_message(world, Command::RELAY, Message { command, stream, data });
    }

    /// Returns whether the circuit was closed, whether the link was closed, and the violations
    /// that relay 0 reported.
    fn outcome(&mut self, world: &mut World) -> (bool, bool, Vec<Violation>) {
        let (received, closed) = collect(world, self);
        let destroyed =
            received.iter().any(|(id, command, _)| *id == ID && *command == Command::DESTROY);
        (destroyed, closed, std::mem::take(&mut world.relays[0].violations))
    }
}

/// Opens a directory stream on a circuit whose ID has two bytes. Returns the number of bytes that
/// arrive.
fn bytes_by_a_narrow_link(world: &mut World, neighbour: &mut Neighbour) -> usize {
    neighbour.create(world, ID);
    let begin = Message { command: RelayCommand::BEGIN_DIR, stream: 1, data: &[] };
    neighbour.send_message(world, Command::RELAY, begin);
    let stream = StreamKey(1);
    let core = &mut world.relays[0].core;
    core.handle(world.now, Input::Connected { stream, reached: None });
    core.write(world.now, stream, &[5; 20 * message::DATA]);
    let (received, _) = collect(world, neighbour);
    let mut bytes = 0;
    for (id, _, body) in received.iter().filter(|(_, command, _)| *command == Command::RELAY) {
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

/// Returns a cell with the number `number`. A cell with `circuit` 0 belongs to the link itself.
fn numbered(circuit: u32, command: Command, number: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_numbered(&mut bytes, circuit, command, number, body);
    bytes
}

#[test]
fn cells_of_an_unordered_link_wait_for_the_one_that_makes_their_circuit() {
    let (mut world, _) = honest_world();
    let mut neighbour = Neighbour::speaking(&[4, 5, UNORDERED], &mut world);
    let (_, create) = fast::Client::start(&mut neighbour.rng);
    neighbour.send(&mut world, &numbered(ID, Command::DESTROY, 1, &[0]));
    assert_eq!(collect(&mut world, &mut neighbour).0, []);
    neighbour.send(&mut world, &numbered(ID, Command::CREATE_FAST, 0, &create));
    let (received, closed) = collect(&mut world, &mut neighbour);
    assert_eq!(received.iter().map(|cell| cell.1).collect::<Vec<_>>(), [], "DESTROY leaves none");
    assert!(!closed);
    assert_eq!(neighbour.outcome(&mut world), (false, false, vec![]));
    assert_eq!(world.relays[0].core.stats().circuits_made, 2);
}

#[test]
fn wrong_numbers_end_an_unordered_link_and_nothing_else() {
    let relay = |number| numbered(ID, Command::RELAY, number, &[]);
    let attacks: [(&str, Vec<u8>); 6] = [
        ("passed", [relay(0), relay(1), relay(1)].concat()),
        ("before the first", relay(u32::MAX)),
        ("too far ahead", relay(5_000)),
        ("twice", [relay(2), relay(2)].concat()),
        (
            "many circuits",
            (1..3_000).flat_map(|id| numbered(ID + id, Command::RELAY, 1, &[])).collect(),
        ),
        ("the link's own", numbered(0, Command::PADDING, 9_999, &[])),
    ];
    let (mut world, stream) = honest_world();
    for (name, bytes) in attacks {
        let mut neighbour = Neighbour::speaking(&[4, 5, UNORDERED], &mut world);
        neighbour.send(&mut world, &bytes);
        let (_, closed, violations) = neighbour.outcome(&mut world);
        let is_told = |violation: &Violation| {
            matches!(violation, Violation::Link(LinkFault::Handshake(Fault::WrongNumber(_))))
        };
        assert!(closed && violations.iter().any(is_told), "{name}: {violations:?}");
    }
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.received[&stream].len(), 1_000_000);
}

#[test]
fn cells_of_the_handshake_do_not_come_again_with_numbers() {
    let (mut world, _) = honest_world();
    let handshake = [Command::NETINFO, Command::CERTS, Command::AUTHENTICATE];
    for command in handshake.into_iter().chain([Command::CAPABILITIES]) {
        let mut neighbour = Neighbour::speaking(&[4, 5, UNORDERED], &mut world);
        let mut cell = numbered(0, Command::PADDING, 0, &[]);
        cell[4] = command.0;
        neighbour.send(&mut world, &cell);
        let (_, closed, violations) = neighbour.outcome(&mut world);
        let fault = Fault::OutOfPlace(command);
        assert!(closed && violations == [LinkFault::Handshake(fault).into()], "{command:?}");
    }
}

/// Creates a world in which an honest client downloads through relay 0.
fn honest_world() -> (World, StreamKey) {
    let mut world = World::new(Setting::default());
    let circuit = world.build_through_all(1, HopRequest::CongestionControl);
    let begin = Begin { host: "source-1000000".into(), port: 80, flags: 0 };
    let stream = world.client.begin(world.now, circuit, &begin).unwrap();
    (world, stream)
}

/// Checks that after `act` the circuit is closed, the fault is reported, the link stays open, and
/// the honest client's download completes.
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

/// Checks that after `act` the link is closed, the fault is reported, and the honest client's
/// download completes.
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

/// Reads at least 100 cells of a directory stream. Answers with a SENDME whose tag `tag` derives
/// from the right tag. Returns the outcome.
fn sendme_with(tag: impl Fn([u8; 20]) -> [u8; 20]) -> (bool, bool, Vec<Violation>) {
    let data = |right| [&[1, 0, 20][..], &tag(right)].concat();
    sendme_of(Setting::default(), data)
}

/// Acts like [`sendme_with`], but `data` derives all data of the SENDME from the right tag.
fn sendme_of(setting: Setting, data: impl Fn([u8; 20]) -> Vec<u8>) -> (bool, bool, Vec<Violation>) {
    let mut world = World::new(setting);
    let mut neighbour = Neighbour::new(&mut world);
    neighbour.create(&mut world, ID);
    neighbour.message(&mut world, RelayCommand::BEGIN_DIR, 1, &[]);
    let stream = StreamKey(1);
    let core = &mut world.relays[0].core;
    core.handle(world.now, Input::Connected { stream, reached: None });
    core.write(world.now, stream, &[5; 120 * message::DATA]);
    let (received, _) = collect(&mut world, &mut neighbour);
    let mut data_cells = 0;
    let mut right = [0; 20];
    for (_, _, body) in received.iter().filter(|(_, command, _)| *command == Command::RELAY) {
        let mut body: Body = body.clone().try_into().unwrap();
        let found = neighbour.layer.as_mut().unwrap().inbound(Command::RELAY, &mut body);
        let is_data = message::read(Format::V0, &body).unwrap().command == RelayCommand::DATA;
        data_cells += usize::from(is_data);
        if is_data && data_cells == 100 {
            right = found.unwrap().bytes().try_into().unwrap();
        }
    }
    assert!(data_cells >= 100);
    neighbour.message(&mut world, RelayCommand::SENDME, 0, &data(right));
    neighbour.outcome(&mut world)
}

#[test]
fn a_sendme_of_version_0_is_taken_unless_the_consensus_wants_tags() {
    let strict = |least| Params { sendme_accept_min: least, ..Params::default() };
    let closed = |fault: CircuitFault| (true, false, vec![fault.into()]);
    for bare in [&[][..], &[0]] {
        let outcome_of = |least| {
            sendme_of(Setting { params: strict(least), ..Setting::default() }, |_| bare.to_vec())
        };
        assert_eq!(outcome_of(0), (false, false, vec![]));
        assert_eq!(outcome_of(1), closed(CircuitFault::SendmeBare));
    }
    let unknown = sendme_of(Setting::default(), |_| vec![2, 0, 0]);
    assert_eq!(unknown, closed(CircuitFault::SendmeVersion));
}

#[test]
fn a_sendme_with_the_wrong_tag_closes_the_circuit_and_one_with_the_right_tag_does_not() {
    assert_eq!(sendme_with(|right| right), (false, false, vec![]));
    let bent = |mut tag: [u8; 20]| {
        tag[19] ^= 1;
        tag
    };
    assert_eq!(sendme_with(bent), (true, false, vec![CircuitFault::SendmeTag.into()]));
}

#[test]
fn more_relay_early_cells_than_eight() {
    let drop = Message { command: RelayCommand::DROP, stream: 0, data: &[] };
    breaks_its_circuit_only(CircuitFault::RelayEarly, |world, neighbour| {
        (0..9).for_each(|_| neighbour.send_message(world, Command::RELAY_EARLY, drop));
    });
    let mut world = World::new(Setting::default());
    let mut neighbour = Neighbour::new(&mut world);
    neighbour.create(&mut world, ID);
    (0..8).for_each(|_| neighbour.send_message(&mut world, Command::RELAY_EARLY, drop));
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
    // The next relay refuses an invalid handshake with DESTROY.
    let target = world.relays[1].target.clone();
    let kind = anabranch_onion::handshake::Kind::NTOR;
    let wish = anabranch_onion::wire::extend::Extend { target, kind, handshake: vec![0; 84] };
    let (command, data) = (RelayCommand::EXTEND2, &wish.write()[..]);
    neighbour.send_message(&mut world, Command::RELAY_EARLY, Message { command, stream: 0, data });
    world.run_for(Duration::from_secs(1));
    let (relay, link) = (&mut world.relays[0].core, neighbour.link);
    relay.transmit(world.now, link, &mut neighbour.inbox, usize::MAX);
    let received: Vec<_> = neighbour.take().into_iter().filter(|(id, ..)| *id == ID).collect();
    assert!(matches!(received[..], [(_, Command::DESTROY, _)]), "and no TRUNCATED: {received:?}");
    assert_eq!(world.relays[0].core.stats().link_circuits, 0);
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
        // The relay answers each CREATE (a request for the handshake TAP) with DESTROY.
        for circuit in 1..=300 {
            neighbour.cell(world, 1 << 31 | circuit, Command::CREATE, &[]);
        }
    });
}

#[test]
fn a_fault_in_what_carries_a_link_ends_it_and_is_told_once() {
    let mut world = World::new(Setting::default());
    let mut neighbour = Neighbour::new(&mut world);
    neighbour.create(&mut world, ID);
    assert_eq!(world.relays[0].core.stats().circuits, 1);
    let (link, fault) = (neighbour.link, CarrierFault::Unopened);
    for _ in 0..2 {
        let relay = &mut world.relays[0].core;
        relay.handle_link(world.now, LinkInput::Broken { link, fault });
        relay.handle_link(world.now, LinkInput::Closed { link });
    }
    let (_, _, violations) = neighbour.outcome(&mut world);
    assert_eq!(violations, [LinkFault::Carrier(fault).into()]);
    let stats = world.relays[0].core.stats();
    assert_eq!((stats.violations, stats.circuits), (1, 0));
}

#[test]
fn a_link_on_which_cells_may_be_lost_is_refused() {
    let mut world = World::new(Setting::default());
    world.raw_link_that_is([false, false], 0, peer());
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
    core.shrink_buffers(link);
    let mut cells = Vec::new();
    for _ in 0..200 {
        put_fixed(&mut cells, 0, Command::PADDING, &[0; BODY]);
    }
    core.handle_link(world.now, LinkInput::Bytes { link, bytes: &cells });
    assert!(core.shrink_buffers(link) > 90_000);
    assert_eq!(core.shrink_buffers(link), 0, "there is no more");
}

#[test]
fn links_that_come_and_go_leave_no_timers() {
    let mut world = World::new(Setting::default());
    for _ in 0..20 {
        let link = Neighbour::new(&mut world).link;
        world.relays[0].core.handle_link(world.now, LinkInput::Closed { link });
    }
    // The timers of the handshakes expire in this time. The timer of an open link lasts for
    // minutes.
    world.run_for(HANDSHAKE);
    assert_eq!(world.relays[0].core.next_timeout(), None);
}

/// Returns a random message. It is authenticated, but no honest client would send it.
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
            neighbour.send_message(&mut world, cell, Message { command, stream, data: &data });
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

/// Creates a circuit of one hop with the request `wish`.
fn create_asking(
    wish: HopRequest,
    world: &mut World,
    neighbour: &mut Neighbour,
    id: u32,
) -> Tor1Client {
    let (identity, onion_key) =
        (world.relays[0].target.ed25519.unwrap(), world.relays[0].onion_key);
    let reply = extension::request(wish);
    let rng = &mut neighbour.rng;
    let (client, message) =
        ntor_v3::Client::start(rng, identity, onion_key, &reply, ntor_v3::CIRCUIT).unwrap();
    neighbour.cell(world, id, Command::CREATE2, &put_create2(Kind::NTOR_V3, &message));
    let (received, _) = collect(world, neighbour);
    let created = received.iter().find(|(_, command, _)| *command == Command::CREATED2).unwrap();
    let body: &Body = (&created.2[..]).try_into().unwrap();
    agreed_layer(client, read_created2(body).unwrap(), wish)
}

/// Completes a handshake with `reply`. Returns the encryption layer that it has negotiated.
fn agreed_layer(client: ntor_v3::Client, reply: &[u8], wish: HopRequest) -> Tor1Client {
    let (mut keys, message) = client.finish(reply).unwrap();
    let agreed = extension::read_answer(&message, wish, 31).unwrap();
    match keys.of(agreed) {
        Keys::Tor1(keys) => Tor1Client::new(&keys),
        _ => panic!("nobody asked for it"),
    }
}
