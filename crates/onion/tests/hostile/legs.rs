//! Clients that link circuits to sets (circuits that carry the same streams), and violate the
//! protocol of sets. A leg is one circuit of a set.

use super::*;

/// Circuits of one neighbour, each with its encryption layer.
pub(crate) struct Legs {
    neighbour: Neighbour,
    layers: Vec<Tor1Client>,
    /// Data of the last EXTENDED2, if the legs join at the relay.
    extended: Vec<u8>,
    /// Encryption layer of the hop after the relay at which the legs join.
    pub(crate) beyond: Option<Tor1Client>,
}

impl Legs {
    /// Creates `count` circuits with congestion control, which legs of proposal 329 must have.
    pub(crate) fn new(world: &mut World, count: usize) -> Legs {
        Legs::asking(&vec![HopRequest::CongestionControl; count], world)
    }

    /// Creates a circuit for each of `wishes`.
    pub(crate) fn asking(wishes: &[HopRequest], world: &mut World) -> Legs {
        let mut neighbour = Neighbour::new(world);
        let ids = (ID..).zip(wishes);
        let layers = ids.map(|(id, wish)| create_asking(*wish, world, &mut neighbour, id));
        let layers = layers.collect();
        Legs { neighbour, layers, extended: Vec::new(), beyond: None }
    }

    pub(crate) fn send_message(
        &mut self,
        world: &mut World,
        leg: usize,
        command: RelayCommand,
        data: &[u8],
    ) {
        self.say_on(world, leg, command, 0, data);
    }

    pub(crate) fn say_on(
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

    pub(crate) fn link(&mut self, world: &mut World, leg: usize, nonce: u8, received: u64) {
        let nonce = SetNonce::from([nonce; 32]);
        let link = ConfluxLink { nonce, sent: 0, received, ux: DesiredUx::HighThroughput };
        self.send_message(world, leg, RelayCommand::CONFLUX_LINK, &link.write());
    }

    fn link_older(&mut self, world: &mut World, leg: usize, design: Ancestor, dealing: &str) {
        let (nonce, dealing) = (SetNonce::from([7; 32]), dealing.to_owned());
        let link = AncestorLink { design, nonce, dealing }.write().unwrap();
        self.send_message(world, leg, RelayCommand::ANCESTOR_LINK, &link);
    }

    pub(crate) fn link_ours(&mut self, world: &mut World, leg: usize, serial: u32, resumes: bool) {
        let (nonce, dealing) = (SetNonce::from([7; 32]), String::new());
        let link = ResilientLink { merged: false, resumes, nonce, serial, dealing };
        self.send_message(world, leg, RelayCommand::ANCESTOR_LINK, &link.write().unwrap());
    }

    /// Links a leg to the set `nonce`, whose legs join at the relay.
    pub(crate) fn merge(&mut self, world: &mut World, leg: usize, nonce: u8, serial: u32) {
        let (nonce, dealing) = (SetNonce::from([nonce; 32]), String::new());
        let link = ResilientLink { merged: true, resumes: false, nonce, serial, dealing };
        self.send_message(world, leg, RelayCommand::ANCESTOR_LINK, &link.write().unwrap());
    }

    /// Sends a message in a RELAY_EARLY cell.
    pub(crate) fn say_early(
        &mut self,
        world: &mut World,
        leg: usize,
        command: RelayCommand,
        data: &[u8],
    ) {
        let mut body = [0; BODY];
        let message = Message { command, stream: 0, data };
        message::write(Format::V0, &mut body, message, &mut self.neighbour.rng);
        self.layers[leg].originate(Command::RELAY_EARLY, &mut body);
        self.neighbour.cell(world, ID + leg as u32, Command::RELAY_EARLY, &body);
    }

    /// Sends a cell that is meant for a later hop. The relay forwards the cell if that is allowed.
    pub(crate) fn pass(&mut self, world: &mut World, leg: usize, command: Command) {
        self.pass_cell(world, leg, command, [0x5a; BODY]);
    }

    fn pass_cell(&mut self, world: &mut World, leg: usize, command: Command, mut body: Body) {
        self.layers[leg].outbound(command, &mut body);
        self.neighbour.cell(world, ID + leg as u32, command, &body);
    }

    /// Begins a stream at the hop after the relay, over a leg.
    pub(crate) fn begin_beyond(&mut self, world: &mut World, leg: usize, host: &str) {
        let data = Begin { host: host.into(), port: 80, flags: 0 }.write().unwrap();
        let mut body = [0; BODY];
        let message = Message { command: RelayCommand::BEGIN, stream: 3, data: &data };
        message::write(Format::V0, &mut body, message, &mut self.neighbour.rng);
        self.beyond.as_mut().unwrap().originate(Command::RELAY, &mut body);
        self.pass_cell(world, leg, Command::RELAY, body);
    }

    /// Returns the answer to the handshake in the last EXTENDED2.
    pub(crate) fn extended(&self) -> &[u8] {
        read_created2(&self.extended).unwrap()
    }

    /// Closes the neighbour's link with all its circuits.
    pub(crate) fn hang_up(self, world: &mut World) {
        let link = self.neighbour.link;
        world.relays[0].core.handle_link(world.now, LinkInput::Closed { link });
    }

    /// Waits for the answers of other relays. Returns the received commands with their legs, and
    /// the legs that were closed.
    pub(crate) fn wait(&mut self, world: &mut World) -> (Vec<(usize, RelayCommand)>, Vec<usize>) {
        world.run_for(Duration::from_secs(1));
        let (relay, link) = (&mut world.relays[0].core, self.neighbour.link);
        relay.transmit(world.now, link, &mut self.neighbour.inbox, usize::MAX);
        let violations = std::mem::take(&mut world.relays[0].violations);
        let (commands, gone, more) = self.outcome(world);
        world.relays[0].violations = [violations, more].concat();
        (commands, gone)
    }

    /// Returns the received commands with their legs, the legs that were closed, and the
    /// violations that the relay reported.
    pub(crate) fn outcome(
        &mut self,
        world: &mut World,
    ) -> (Vec<(usize, RelayCommand)>, Vec<usize>, Vec<Violation>) {
        let (received, closed) = collect(world, &mut self.neighbour);
        assert!(!closed, "the link stays");
        let (mut reply, mut gone) = (Vec::new(), Vec::new());
        for (id, command, body) in received {
            let leg = (id - ID) as usize;
            if command == Command::DESTROY {
                gone.push(leg);
            } else if command == Command::RELAY {
                let mut body: Body = body.try_into().unwrap();
                let is_said = self.layers[leg].inbound(Command::RELAY, &mut body).is_some();
                assert!(is_said || self.beyond.is_some(), "nothing lies beyond");
                let Some(message) = message::read(Format::V0, &body).filter(|_| is_said) else {
                    continue;
                };
                if message.command == RelayCommand::EXTENDED2 {
                    self.extended = message.data.to_vec();
                }
                reply.push((leg, message.command));
            }
        }
        gone.sort_unstable();
        (reply, gone, std::mem::take(&mut world.relays[0].violations))
    }
}

/// Checks that the legs `closes` are closed with the faults `expected` after the protocol
/// violation `act`, and that an honest client's download completes.
pub(crate) fn breaks_legs(
    closes: &[usize],
    expected: &[ConfluxFault],
    act: impl FnOnce(&mut World, &mut Legs),
) {
    breaks_legs_asking(&[HopRequest::CongestionControl; 10], closes, expected, act);
}

/// Checks like [`breaks_legs`], but with a circuit for each of the requests `wishes`.
pub(crate) fn breaks_legs_asking(
    wishes: &[HopRequest],
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
    let (commands, gone, violations) = legs.outcome(&mut world);
    let linked: Vec<_> = (0..8).map(|leg| (leg, RelayCommand::CONFLUX_LINKED)).collect();
    assert_eq!((commands, gone), (linked, vec![8]));
    assert_eq!(violations, [CircuitFault::Conflux(ConfluxFault::TooManyLegs).into()]);
    let stats = world.relays[0].core.stats();
    assert_eq!((stats.sets, stats.legs), (1, 8));
}

#[test]
fn what_may_not_be_said_of_sets_closes_the_leg_that_says_it() {
    use ConfluxFault as Fault;
    breaks_legs(&[0], &[Fault::Unreadable], |world, legs| {
        legs.send_message(world, 0, RelayCommand::CONFLUX_LINK, &[1; 49]);
    });
    breaks_legs(&[0], &[Fault::Role], |world, legs| {
        legs.send_message(world, 0, RelayCommand::CONFLUX_LINKED, &[1; 50]);
    });
    breaks_legs(&[0], &[Fault::NotLinked], |world, legs| {
        legs.send_message(world, 0, LINKED_ACK, &[])
    });
    breaks_legs(&[0], &[Fault::NotLinked], |world, legs| {
        legs.send_message(world, 0, SWITCH, &put_switch(3));
    });
    breaks_legs(&[0], &[Fault::Twice], |world, legs| {
        legs.link(world, 0, 7, 0);
        legs.link(world, 0, 7, 0);
    });
    for (first, fault) in [(0, Fault::SwitchZero), (1 << 25, Fault::TooFar)] {
        breaks_legs(&[1], &[fault], |world, legs| {
            (0..2).for_each(|leg| legs.link(world, leg, 7, 0));
            legs.send_message(world, 1, SWITCH, &put_switch(first));
        });
    }
    // After the first SWITCH, leg 1 has the highest received number. So the set closes with it.
    breaks_legs(&[0, 1], &[Fault::SwitchTwice], |world, legs| {
        (0..2).for_each(|leg| legs.link(world, leg, 7, 0));
        (0..2).for_each(|_| legs.send_message(world, 1, SWITCH, &put_switch(9)));
    });
    breaks_legs(&[1], &[Fault::Twice], |world, legs| {
        (0..2).for_each(|leg| legs.link(world, leg, 7, 0));
        (0..2).for_each(|_| legs.send_message(world, 1, LINKED_ACK, &[]));
    });
    breaks_legs(&[1], &[Fault::Role], |world, legs| {
        (0..2).for_each(|leg| legs.link(world, leg, 7, 0));
        legs.send_message(world, 1, RelayCommand::EXTEND2, &[0; 60]);
    });
}

#[test]
fn numbers_that_were_before_and_numbers_that_we_never_sent_end_what_they_must() {
    // Leg 1 repeats number 1, and closes. No number is missing, so leg 0 continues.
    breaks_legs(&[1], &[ConfluxFault::Repeated], |world, legs| {
        (0..2).for_each(|leg| legs.link(world, leg, 7, 0));
        (0..2).for_each(|leg| legs.say_on(world, leg, RelayCommand::DATA, 5, &[0; 20]));
    });
    // If a leg claims to have received messages that we never sent, the whole set closes.
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
    let (commands, gone, violations) = legs.outcome(&mut world);
    assert_eq!((commands, gone, violations), (vec![(0, RelayCommand::END)], vec![], vec![]));
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
    legs.send_message(&mut world, 1, SWITCH, &put_switch(9));
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
    world.now += Duration::from_secs(61);
    let (_, gone, violations) = legs.outcome(&mut world);
    assert_eq!((gone, violations), (vec![0, 1], vec![]));
}

/// Checks like [`breaks_legs`], but with circuits without congestion control. Two of the circuits
/// are linked to a set of an older design before `act`.
fn breaks_older_legs(
    closes: &[usize],
    expected: &[ConfluxFault],
    act: impl FnOnce(&mut World, &mut Legs),
) {
    breaks_legs_asking(&[HopRequest::Plain; 3], closes, expected, |world, legs| {
        (0..2).for_each(|leg| legs.link_older(world, leg, Ancestor::Conflux2013, ""));
        let (commands, gone, _) = legs.outcome(world);
        let linked = |leg| (leg, RelayCommand::ANCESTOR_LINKED);
        assert_eq!((commands, gone), (vec![linked(0), linked(1)], vec![]));
        act(world, legs);
    });
}

/// Returns `data` with the message number `number` in front.
pub(crate) fn numbered(number: u32, data: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], data].concat()
}

#[test]
fn what_may_not_be_said_of_an_older_set_closes_the_leg_that_says_it() {
    use ConfluxFault as Fault;
    const ACK: RelayCommand = RelayCommand::ANCESTOR_LINKED_ACK;
    let plain = [HopRequest::Plain; 2];
    breaks_legs_asking(&plain, &[0], &[Fault::Unreadable], |world, legs| {
        legs.send_message(world, 0, RelayCommand::ANCESTOR_LINK, &[1; 34]);
    });
    for dealing in ["fastest 1p", "pull", "weights:1,1 1p"] {
        breaks_legs_asking(&plain, &[0], &[Fault::Unreadable], |world, legs| {
            legs.link_older(world, 0, Ancestor::MTor, dealing);
        });
    }
    breaks_legs_asking(&plain, &[0], &[Fault::Role], |world, legs| {
        legs.send_message(world, 0, RelayCommand::ANCESTOR_LINKED, &[1; 50]);
    });
    breaks_legs_asking(&plain, &[0], &[Fault::NotLinked], |world, legs| {
        legs.send_message(world, 0, ACK, &[]);
    });
    breaks_legs_asking(&plain, &[0], &[Fault::Streams], |world, legs| {
        legs.say_on(world, 0, RelayCommand::RESOLVE, 1, b"known\0");
        legs.link_older(world, 0, Ancestor::MTor, "");
    });
    breaks_older_legs(&[1], &[Fault::Twice], |world, legs| {
        legs.link_older(world, 1, Ancestor::Conflux2013, "");
    });
    breaks_older_legs(&[1], &[Fault::Twice], |world, legs| {
        (0..2).for_each(|_| legs.send_message(world, 1, ACK, &[]));
    });
    breaks_older_legs(&[1], &[Fault::Role], |world, legs| {
        legs.send_message(world, 1, SWITCH, &put_switch(9));
    });
    breaks_older_legs(&[1], &[Fault::Role], |world, legs| {
        legs.send_message(world, 1, RelayCommand::EXTEND2, &[0; 60]);
    });
}

#[test]
fn legs_of_another_design_or_with_other_windows_do_not_join() {
    use ConfluxFault as Fault;
    breaks_older_legs(&[2], &[Fault::Design], |world, legs| {
        legs.link_older(world, 2, Ancestor::MTor, "");
    });
    breaks_older_legs(&[2], &[Fault::Role], |world, legs| legs.link(world, 2, 7, 0));
    breaks_older_legs(&[1], &[Fault::Design], |world, legs| {
        legs.send_message(world, 1, LINKED_ACK, &[])
    });
    let mixed = [HopRequest::Plain, HopRequest::CongestionControl, HopRequest::CongestionControl];
    breaks_legs_asking(&mixed, &[1, 2], &[Fault::Design; 2], |world, legs| {
        legs.link_older(world, 0, Ancestor::MTor, "");
        legs.link_older(world, 1, Ancestor::MTor, "");
        legs.link(world, 2, 7, 0);
    });
    breaks_legs(&[0], &[Fault::Design], |world, legs| {
        (0..2).for_each(|leg| legs.link(world, leg, 7, 0));
        legs.send_message(world, 0, RelayCommand::ANCESTOR_LINKED_ACK, &[]);
    });
}

#[test]
fn numbers_that_were_before_are_far_ahead_or_cut_close_the_leg_that_brings_them() {
    use ConfluxFault as Fault;
    breaks_older_legs(&[1], &[Fault::Repeated], |world, legs| {
        let data = numbered(1, &[0; 20]);
        (0..2).for_each(|leg| legs.say_on(world, leg, RelayCommand::DATA, 5, &data));
    });
    // Half of all numbers count as ahead of the next one. The other half count as received before.
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
    let mut legs = Legs::asking(&[HopRequest::Plain; 2], &mut world);
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
