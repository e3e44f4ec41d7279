//! Introduction points and rendezvous points. Services and clients meet, whichever shards (cores
//! of the relay) their links reach. Nobody else receives their messages.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_testkit::onion_world as world;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::seed;
use anabranch_onion::channel::{CellOutcome, Channel, Role, Start};
use anabranch_onion::crypto::{ClientLayer, Tor1Client};
use anabranch_onion::handshake::fast;
use anabranch_onion::relay::ServiceParams;
use anabranch_onion::wire::cell::{BODY, Body, CELL, Cells, Command, HEADER, put_fixed};
use anabranch_onion::wire::crypto::Sha256;
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_onion::wire::message::{self, Format, Message, RelayCommand};
use anabranch_onion::wire::rend::IntroLimit;
use anabranch_onion::{CircuitFault, LinkCore, LinkId, LinkInput, Violation};
use anabranch_testkit::onion_service::{establish_intro, introduce1};
use digest::Digest;
use world::{Setting, World};

const COOKIE: [u8; 20] = [9; 20];
/// The seed of a service's key.
const SERVICE: u8 = 3;
const MESSAGE: Violation = Violation::Circuit(CircuitFault::Message);

/// Output that arrived on a circuit.
#[derive(Debug, PartialEq, Eq)]
enum CircuitOutput {
    /// A message from the relay itself.
    Message(RelayCommand, Vec<u8>),
    /// A cell from beyond the relay, after the removal of the relay's layer.
    Cell(Box<Body>),
    Destroyed,
}

/// A link to a shard, with circuits whose cells the test writes.
struct Party {
    node: usize,
    link: LinkId,
    channel: Channel,
    inbox: Vec<u8>,
    circuits: BTreeMap<u32, (Tor1Client, [u8; 20])>,
    rng: seed::Stream,
    last: u32,
}

impl Party {
    /// Connects to a shard directly, as a service does, or a client that does not hide its
    /// address.
    fn direct(world: &mut World, node: usize) -> Party {
        Party::new(world, node, Role::Client, 66)
    }

    /// Connects to a shard as another relay, which forwards for somebody else.
    fn by_relay(world: &mut World, node: usize) -> Party {
        let mut rng = seed::stream(77, node as u64, "a relay before");
        let keys = RelayKeys::generate(&mut rng, world::UNIX).unwrap();
        let credentials = keys.credentials(&mut rng, b"its certificate", world::UNIX).unwrap();
        Party::new(world, node, Role::Initiator(Arc::new(credentials)), 67)
    }

    fn new(world: &mut World, node: usize, role: Role, number: u8) -> Party {
        let peer = IpAddr::from([10, 66, node as u8, number]);
        let link = world.raw_link(node, peer);
        let start = Start {
            peer_certificate: Some(world.relays[node].tls_certificate),
            ..Start::new(world.now, world::UNIX, peer)
        };
        let rng = seed::stream(u64::from(number), node as u64, "party");
        let channel = Channel::new(role, start);
        let (inbox, circuits) = (Vec::new(), BTreeMap::new());
        let mut party = Party { node, link, channel, inbox, circuits, rng, last: 0x8000_0000 };
        (0..4).for_each(|_| drop(party.receive(world)));
        assert!(party.channel.is_open());
        party
    }

    fn send(&self, world: &mut World, bytes: &[u8]) {
        let input = LinkInput::Bytes { link: self.link, bytes };
        world.relays[self.node].core.handle_link(world.now, input);
    }

    /// Sends the output of the channel, and runs the simulation for 100 ms. Returns the outputs
    /// that arrived, with their circuits.
    fn receive(&mut self, world: &mut World) -> Vec<(u32, CircuitOutput)> {
        let bytes = std::mem::take(&mut self.channel.outbox);
        self.send(world, &bytes);
        world.run_for(Duration::from_millis(100));
        let core = &mut world.relays[self.node].core;
        core.transmit(world.now, self.link, &mut self.inbox, usize::MAX);
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut cells = Cells::new(&mut inbox, self.channel.width(), 10_000);
        let mut received = Vec::new();
        while let Some(cell) = cells.next_cell().unwrap() {
            if let CellOutcome::Export(context) = self.channel.take(&mut self.rng, &cell).unwrap() {
                let number = self.link.bits().to_be_bytes();
                let secret = Sha256::new().chain_update(number).chain_update(context).finalize();
                self.channel.exported(&mut self.rng, secret.into()).unwrap();
            }
            cells.set_width(self.channel.width());
            received.push((cell.circuit, cell.command, cell.body.to_vec()));
        }
        received
            .into_iter()
            .filter_map(|(id, command, body)| self.read(id, command, &body))
            .collect()
    }

    fn read(&mut self, id: u32, command: Command, body: &[u8]) -> Option<(u32, CircuitOutput)> {
        if command == Command::DESTROY {
            return Some((id, CircuitOutput::Destroyed));
        }
        let (layer, _) = self.circuits.get_mut(&id).filter(|_| command == Command::RELAY)?;
        let mut body: Body = body.try_into().unwrap();
        Some((
            id,
            match layer.inbound(command, &mut body) {
                Some(_) => {
                    let message = message::read(Format::V0, &body).unwrap();
                    CircuitOutput::Message(message.command, message.data.to_vec())
                }
                None => CircuitOutput::Cell(Box::new(body)),
            },
        ))
    }

    /// Creates a circuit of one hop, and returns its ID.
    fn circuit(&mut self, world: &mut World) -> u32 {
        self.last += 1;
        let (client, create) = fast::Client::start(&mut self.rng);
        self.cell(world, self.last, Command::CREATE_FAST, &create);
        world.run_for(Duration::from_millis(1));
        let core = &mut world.relays[self.node].core;
        core.transmit(world.now, self.link, &mut self.inbox, usize::MAX);
        let head = [&self.last.to_be_bytes()[..], &[Command::CREATED_FAST.0]].concat();
        let place = self.inbox.chunks(CELL).position(|cell| cell.starts_with(&head)).unwrap();
        let cell: Vec<u8> = self.inbox.drain(place * CELL..(place + 1) * CELL).collect();
        let body = &cell[HEADER..];
        let nonce = body[20..40].try_into().unwrap();
        let keys = client.finish(body).unwrap();
        self.circuits.insert(self.last, (Tor1Client::new(&keys), nonce));
        self.last
    }

    fn cell(&self, world: &mut World, id: u32, command: Command, body: &[u8]) {
        let mut bytes = Vec::new();
        put_fixed(&mut bytes, id, command, body);
        self.send(world, &bytes);
    }

    /// Sends a message to the relay.
    fn send_message(&mut self, world: &mut World, id: u32, command: RelayCommand, data: &[u8]) {
        let mut body = [0; BODY];
        let message = Message { command, stream: 0, data };
        message::write(Format::V0, &mut body, message, &mut self.rng);
        let (layer, _) = self.circuits.get_mut(&id).unwrap();
        layer.originate(Command::RELAY, &mut body);
        self.cell(world, id, Command::RELAY, &body);
    }

    /// Sends a cell to a node beyond the relay.
    fn pass(&mut self, world: &mut World, id: u32, command: Command, mut body: Body) {
        self.circuits.get_mut(&id).unwrap().0.outbound(command, &mut body);
        self.cell(world, id, command, &body);
    }

    /// Sends a message to the relay. Returns the outputs that arrive.
    fn ask(
        &mut self,
        world: &mut World,
        id: u32,
        command: RelayCommand,
        data: &[u8],
    ) -> Vec<(u32, CircuitOutput)> {
        self.send_message(world, id, command, data);
        self.receive(world)
    }

    /// Makes a new circuit an introduction point of the service, and returns its ID.
    fn establish(&mut self, world: &mut World, limit: Option<[u64; 2]>) -> u32 {
        let id = self.circuit(world);
        let data = establish_intro(SERVICE, &self.circuits[&id].1, limit);
        let received = self.ask(world, id, RelayCommand::ESTABLISH_INTRO, &data);
        assert_eq!(
            received,
            [(id, CircuitOutput::Message(RelayCommand::INTRO_ESTABLISHED, vec![0]))]
        );
        id
    }

    /// Introduces a client on a new circuit. Returns the status in the relay's answer.
    fn introduce(&mut self, world: &mut World, data: &[u8]) -> u8 {
        let id = self.circuit(world);
        match &self.ask(world, id, RelayCommand::INTRODUCE1, data)[..] {
            [(_, CircuitOutput::Message(RelayCommand::INTRODUCE_ACK, ack))] if ack[0] == 0 => {
                ack[1]
            }
            other => panic!("{other:?}"),
        }
    }

    /// Creates a circuit that waits at the rendezvous point with this cookie. Returns its ID.
    fn wait(&mut self, world: &mut World, cookie: &[u8]) -> u32 {
        let id = self.circuit(world);
        let received = self.ask(world, id, RelayCommand::ESTABLISH_RENDEZVOUS, cookie);
        assert_eq!(
            received,
            [(id, CircuitOutput::Message(RelayCommand::RENDEZVOUS_ESTABLISHED, vec![]))]
        );
        id
    }
}

/// Creates a relay with `shards` shards. A service is connected to the first shard, and a client
/// to the last one.
fn world(shards: usize) -> (World, Party, Party) {
    let mut world = World::new(Setting { relays: 1, shards, ..Setting::default() });
    let service = Party::direct(&mut world, 0);
    let client = Party::by_relay(&mut world, shards - 1);
    (world, service, client)
}

fn violations(world: &mut World) -> Vec<Violation> {
    world.relays.iter_mut().flat_map(|relay| std::mem::take(&mut relay.violations)).collect()
}

fn circuits(world: &World) -> usize {
    world.relays.iter().map(|relay| relay.core.stats().circuits).sum()
}

/// Returns the number of RELAY cells that all shards together passed on.
fn relayed(world: &World) -> u64 {
    world.relays.iter().map(|relay| relay.core.stats().relayed).sum()
}

/// Checks that `count` circuits are left, that each is on one link only, and that no cell waits.
fn only(world: &World, count: usize) {
    let stats = world.relays.iter().map(|relay| relay.core.stats());
    let sum = stats.fold((0, 0, 0), |sum, stats| {
        (sum.0 + stats.circuits, sum.1 + stats.link_circuits, sum.2 + stats.cells)
    });
    assert_eq!(sum, (count, count, 0));
}

#[test]
fn a_client_is_introduced_once_by_each_circuit() {
    for shards in [1, 3] {
        let (mut world, mut service, mut client) = world(shards);
        let point = service.establish(&mut world, None);
        let data = introduce1(SERVICE, b"sealed for the service");
        assert_eq!(client.introduce(&mut world, &data), 0, "{shards} shards");
        let received = service.receive(&mut world);
        assert_eq!(
            received,
            [(point, CircuitOutput::Message(RelayCommand::INTRODUCE2, data.clone()))]
        );
        only(&world, 2);
        // A second INTRODUCE1 on the same circuit is a violation.
        let id = client.last;
        let received = client.ask(&mut world, id, RelayCommand::INTRODUCE1, &data);
        assert_eq!(received, [(id, CircuitOutput::Destroyed)]);
        assert_eq!((service.receive(&mut world), violations(&mut world)), (vec![], vec![MESSAGE]));
    }
}

#[test]
fn an_introduction_that_finds_nobody_or_cannot_be_read_is_told_so() {
    for shards in [1, 2] {
        let (mut world, mut service, mut client) = world(shards);
        let data = introduce1(SERVICE, b"sealed");
        assert_eq!(client.introduce(&mut world, &data), 1, "nobody is there");
        service.establish(&mut world, None);
        assert_eq!(client.introduce(&mut world, &introduce1(SERVICE + 1, b"sealed")), 1);
        assert_eq!(client.introduce(&mut world, &data[..40]), 2);
        assert_eq!(client.introduce(&mut world, &introduce1(SERVICE, b"")), 2);
        assert_eq!((service.receive(&mut world), violations(&mut world)), (vec![], vec![]));
    }
}

#[test]
fn a_client_that_hides_nothing_is_not_introduced() {
    let (mut world, mut service, _) = world(1);
    service.establish(&mut world, None);
    let id = service.circuit(&mut world);
    let received =
        service.ask(&mut world, id, RelayCommand::INTRODUCE1, &introduce1(SERVICE, b"x"));
    assert_eq!(
        (received, violations(&mut world)),
        (vec![(id, CircuitOutput::Destroyed)], vec![MESSAGE])
    );
}

#[test]
fn a_service_that_wants_few_introductions_gets_few() {
    for (wish, consensus) in [
        (Some([1, 3]), IntroLimit::None),
        (None, IntroLimit::Rate { rate: 1, burst: 3 }),
        (Some([0, 0]), IntroLimit::Rate { rate: 1, burst: 3 }),
    ] {
        let services = ServiceParams { intro_limit: consensus, refuse_single_hop: false };
        let mut world =
            World::new(Setting { relays: 1, shards: 2, services, ..Setting::default() });
        let mut service = Party::direct(&mut world, 0);
        let mut client = Party::by_relay(&mut world, 1);
        service.establish(&mut world, wish);
        let data = introduce1(SERVICE, b"sealed");
        let mut introduce = |world: &mut World| client.introduce(world, &data);
        let statuses: Vec<u8> = (0..6).map(|_| introduce(&mut world)).collect();
        let limited = wish != Some([0, 0]);
        assert_eq!(statuses, if limited { [0, 0, 0, 1, 1, 1] } else { [0; 6] }, "{wish:?}");
        world.now += Duration::from_secs(1);
        assert_eq!(introduce(&mut world), 0, "another second");
    }
}

#[test]
fn a_flood_of_introductions_for_a_service_that_does_not_read_is_bounded() {
    for shards in [1, 2] {
        let (mut world, mut service, mut client) = world(shards);
        let point = service.establish(&mut world, None);
        let data = introduce1(SERVICE, &[5; 400]);
        let mut statuses = Vec::new();
        for _ in 0..400 {
            // The test does not fetch the cells for the service's link, as if the service did not
            // read.
            let id = client.circuit(&mut world);
            client.send_message(&mut world, id, RelayCommand::INTRODUCE1, &data);
        }
        for (_, output) in client.receive(&mut world) {
            let CircuitOutput::Message(RelayCommand::INTRODUCE_ACK, ack) = output else {
                panic!("{output:?}")
            };
            statuses.push(ack[1]);
        }
        assert_eq!(statuses.len(), 400);
        let accepted = statuses.iter().filter(|&&status| status == 0).count();
        assert_eq!((accepted, statuses[399]), (256, 3), "{shards} shards");
        assert!(world.relays[0].core.stats().cells <= 256);
        let received = service.receive(&mut world);
        assert!(received.iter().all(|(id, _)| *id == point) && received.len() == 256);
        assert_eq!(client.introduce(&mut world, &data), 0, "it reads again");
        assert_eq!(violations(&mut world), []);
    }
}

#[test]
fn establish_intro_is_for_one_circuit_and_the_newest_counts() {
    for shards in [1, 2] {
        let (mut world, mut service, mut client) = world(shards);
        let first = service.establish(&mut world, None);
        // Another client cannot use the service's message on its own circuit.
        let input = establish_intro(SERVICE, &service.circuits[&first].1, None);
        let mut thief = Party::by_relay(&mut world, 0);
        let id = thief.circuit(&mut world);
        let received = thief.ask(&mut world, id, RelayCommand::ESTABLISH_INTRO, &input);
        assert_eq!(received, [(id, CircuitOutput::Destroyed)]);
        assert_eq!(violations(&mut world), [MESSAGE]);
        // The service connects again, to another shard if there is one.
        let mut again = Party::direct(&mut world, shards - 1);
        let second = again.establish(&mut world, None);
        let data = introduce1(SERVICE, b"sealed");
        assert_eq!(client.introduce(&mut world, &data), 0);
        let received = again.receive(&mut world);
        assert_eq!(
            received,
            [(second, CircuitOutput::Message(RelayCommand::INTRODUCE2, data.clone()))]
        );
        assert_eq!(
            service.receive(&mut world),
            [(first, CircuitOutput::Destroyed)],
            "{shards} shards"
        );
        again.cell(&mut world, second, Command::DESTROY, &[9]);
        assert_eq!(client.introduce(&mut world, &data), 1, "it is gone");
    }
}

/// Returns a world in which a client and a service have met, and both ends with the IDs of their
/// circuits.
fn joined(shards: usize) -> (World, [(Party, u32); 2]) {
    let (mut world, mut service, mut client) = world(shards);
    let waits = client.wait(&mut world, &COOKIE);
    let comes = service.circuit(&mut world);
    let data = [&COOKIE[..], b"for the client"].concat();
    assert_eq!(service.ask(&mut world, comes, RelayCommand::RENDEZVOUS1, &data), []);
    let expected = CircuitOutput::Message(RelayCommand::RENDEZVOUS2, b"for the client".to_vec());
    assert_eq!(client.receive(&mut world), [(waits, expected)]);
    (world, [(client, waits), (service, comes)])
}

#[test]
fn joined_circuits_carry_cells_both_ways_in_order() {
    for shards in [1, 2, 4] {
        let (mut world, mut ends) = joined(shards);
        let before = relayed(&world);
        for (from, to) in [(0, 1), (1, 0)] {
            let bodies: Vec<Body> = (0..600u16).map(|n| [n as u8 ^ 0x5a; BODY]).collect();
            let (sender, id) = &mut ends[from];
            for (n, body) in bodies.iter().enumerate() {
                // The first cells of a circuit are RELAY_EARLY cells.
                let command = if n < 5 { Command::RELAY_EARLY } else { Command::RELAY };
                sender.pass(&mut world, *id, command, *body);
            }
            let (receiver, id) = &mut ends[to];
            let mut received = Vec::new();
            (0..20).for_each(|_| received.extend(receiver.receive(&mut world)));
            let wanted: Vec<_> =
                bodies.into_iter().map(|body| (*id, CircuitOutput::Cell(Box::new(body)))).collect();
            assert!(received == wanted, "{} cells came over {shards} shards", received.len());
        }
        assert_eq!(relayed(&world) - before, 2 * 600, "each counts once");
        assert_eq!(violations(&mut world), []);
    }
}

#[test]
fn what_ends_one_of_two_joined_circuits_ends_both() {
    for shards in [1, 2] {
        for (leaves, stays) in [(0, 1), (1, 0)] {
            let (mut world, mut ends) = joined(shards);
            let (party, id) = &mut ends[leaves];
            party.cell(&mut world, *id, Command::DESTROY, &[9]);
            party.receive(&mut world);
            let (party, id) = &mut ends[stays];
            assert_eq!(party.receive(&mut world), [(*id, CircuitOutput::Destroyed)]);
            only(&world, 0);
            // The cookie is not valid any more.
            let again = party.circuit(&mut world);
            let received = party.ask(&mut world, again, RelayCommand::RENDEZVOUS1, &COOKIE);
            assert_eq!(received, [(again, CircuitOutput::Destroyed)]);
            assert_eq!(violations(&mut world), []);
        }
    }
}

#[test]
fn a_cookie_leads_to_who_waits_by_it_and_once() {
    for shards in [1, 2] {
        let (mut world, mut service, mut client) = world(shards);
        let waits = client.wait(&mut world, &COOKIE);
        let mut thief = Party::by_relay(&mut world, 0);
        // A wrong cookie closes its circuit. This is no violation, because the client that chose
        // the cookie may have given up.
        for guess in 0..50u8 {
            let id = thief.circuit(&mut world);
            let received = thief.ask(&mut world, id, RelayCommand::RENDEZVOUS1, &[guess | 128; 60]);
            assert_eq!(received, [(id, CircuitOutput::Destroyed)]);
        }
        // A cookie that is in use cannot be used by a second client.
        let id = thief.circuit(&mut world);
        let received = thief.ask(&mut world, id, RelayCommand::ESTABLISH_RENDEZVOUS, &COOKIE);
        assert_eq!(
            (received, violations(&mut world)),
            (vec![(id, CircuitOutput::Destroyed)], vec![MESSAGE])
        );
        let comes = service.circuit(&mut world);
        assert_eq!(service.ask(&mut world, comes, RelayCommand::RENDEZVOUS1, &COOKIE), []);
        let expected = CircuitOutput::Message(RelayCommand::RENDEZVOUS2, Vec::new());
        assert_eq!(client.receive(&mut world), [(waits, expected)]);
        // A circuit that arrives later with the same cookie is closed.
        let id = thief.circuit(&mut world);
        let received = thief.ask(&mut world, id, RelayCommand::RENDEZVOUS1, &COOKIE);
        assert_eq!(received, [(id, CircuitOutput::Destroyed)]);
        assert_eq!((client.receive(&mut world), service.receive(&mut world)), (vec![], vec![]));
        service.pass(&mut world, comes, Command::RELAY, [7; BODY]);
        assert_eq!(client.receive(&mut world), [(waits, CircuitOutput::Cell(Box::new([7; BODY])))]);
        assert_eq!(violations(&mut world), []);
    }
}

#[test]
fn a_circuit_that_is_a_point_or_joined_is_nothing_else() {
    let breaks = |act: &dyn Fn(&mut World, &mut Party, u32)| {
        let (mut world, mut ends) = joined(2);
        let (client, id) = &mut ends[0];
        act(&mut world, client, *id);
        assert!(client.receive(&mut world).contains(&(*id, CircuitOutput::Destroyed)));
        assert_eq!(violations(&mut world).len(), 1);
        let (service, id) = &mut ends[1];
        assert_eq!(service.receive(&mut world), [(*id, CircuitOutput::Destroyed)]);
        only(&world, 0);
    };
    for command in [
        RelayCommand::ESTABLISH_RENDEZVOUS,
        RelayCommand::RENDEZVOUS1,
        RelayCommand::INTRODUCE1,
        RelayCommand::TRUNCATE,
        RelayCommand::EXTEND2,
    ] {
        breaks(&|world, party, id| party.send_message(world, id, command, &[8; 20]));
    }
    let (mut world, mut service, _) = world(1);
    let point = service.establish(&mut world, None);
    service.pass(&mut world, point, Command::RELAY, [7; BODY]);
    assert_eq!(
        service.receive(&mut world),
        [(point, CircuitOutput::Destroyed)],
        "nobody is beyond it"
    );
    only(&world, 0);
}

#[test]
fn messages_that_are_cut_or_too_long_end_their_circuit() {
    for (command, data) in [
        (RelayCommand::ESTABLISH_RENDEZVOUS, &[1; 21][..]),
        (RelayCommand::ESTABLISH_RENDEZVOUS, &[1; 19]),
        (RelayCommand::RENDEZVOUS1, &[1; 19]),
        (RelayCommand::ESTABLISH_INTRO, &[]),
        (RelayCommand::ESTABLISH_INTRO, &[2; 200]),
    ] {
        let (mut world, mut service, _) = world(1);
        let id = service.circuit(&mut world);
        assert_eq!(service.ask(&mut world, id, command, data), [(id, CircuitOutput::Destroyed)]);
        assert_eq!((violations(&mut world), circuits(&world)), (vec![MESSAGE], 0));
    }
}

#[test]
fn where_the_consensus_says_so_who_comes_straight_to_us_does_not_wait_here() {
    let services = ServiceParams { refuse_single_hop: true, ..ServiceParams::default() };
    let mut world = World::new(Setting { relays: 1, services, ..Setting::default() });
    let mut direct = Party::direct(&mut world, 0);
    let id = direct.circuit(&mut world);
    assert_eq!(direct.ask(&mut world, id, RelayCommand::ESTABLISH_RENDEZVOUS, &COOKIE), []);
    let mut hidden = Party::by_relay(&mut world, 0);
    hidden.wait(&mut world, &COOKIE);
}
