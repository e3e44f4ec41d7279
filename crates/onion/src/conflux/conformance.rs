//! Tests that every implementation of `Numbering` (sequence numbers of messages) must pass. They
//! run two connected ends of a set of circuits in memory.
//!
//! Call [`check`] from a test, or drive a [`Pair`] directly, as the fuzz target `conflux` does.

use std::collections::VecDeque;

use anabranch_multipath::{PathId, Time, seed};
use rand_core::Rng as _;

use super::fault::ConfluxFault;
use super::{Arrival, ConfluxEnd, Fate, Limits, Numbering};
use crate::wire::conflux::{ConfluxLink, DesiredUx, SetNonce};
use crate::wire::message::{Message, RelayCommand};

/// A function that creates the sequence-numbering scheme for one end of a set of circuits.
pub type Make = fn() -> Box<dyn Numbering>;

/// One of the two ends of a [`Pair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that builds the circuits of the set.
    Client,
    /// The end at the exit, which answers the client.
    Exit,
}

impl Side {
    /// Returns the other end.
    #[must_use]
    pub const fn other(self) -> Side {
        match self {
            Side::Client => Side::Exit,
            Side::Exit => Side::Client,
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// A message in transit on a leg (parallel circuit).
#[derive(Clone, Debug)]
enum LegMessage {
    Link(ConfluxLink),
    Linked(ConfluxLink),
    Acknowledged,
    Message(RelayCommand, u16, Vec<u8>),
}

/// A leg (parallel circuit): its slot (index in the set) at each end, and the messages in transit
/// to each end.
#[derive(Debug, Default)]
struct Wire {
    places: [Option<PathId>; 2],
    to: [VecDeque<LegMessage>; 2],
}

/// The client's end and the exit's end of a set, with any number of circuits (legs) between them.
/// Each message carries its sequence number in its data, so that the receiver can check the order.
#[derive(Debug)]
pub struct Pair {
    ends: [ConfluxEnd; 2],
    wires: Vec<Wire>,
    sent: [u64; 2],
    delivered: [u64; 2],
    in_order: bool,
}

impl Pair {
    /// Returns both ends of a new set of circuits, which has no legs yet.
    #[must_use]
    pub fn new(make: Make) -> Pair {
        let nonce = SetNonce::from([7; 32]);
        let client = ConfluxEnd::client(nonce, make(), Limits::default());
        let exit = ConfluxEnd::exit(nonce, make(), Limits::default());
        let (ends, wires) = ([client, exit], Vec::new());
        Pair { ends, wires, sent: [0; 2], delivered: [0; 2], in_order: true }
    }

    /// Stops checking the order of messages. Used after an end has accepted a message that a
    /// correct end never sends.
    pub fn distrust(&mut self) {
        self.in_order = false;
    }

    /// Returns the client's or the exit's end.
    pub fn end(&mut self, side: Side) -> &mut ConfluxEnd {
        &mut self.ends[side.index()]
    }

    /// Returns the slot (index in the set) that a leg (parallel circuit) has at the given end, or
    /// `None` if it has none there yet.
    #[must_use]
    pub fn place(&self, side: Side, wire: usize) -> Option<PathId> {
        self.wires.get(wire)?.places[side.index()]
    }

    /// Returns the number of legs (parallel circuits) launched so far.
    #[must_use]
    pub fn legs(&self) -> usize {
        self.wires.len()
    }

    /// Returns two counts: the messages sent to the end `to`, and the messages delivered there.
    #[must_use]
    pub fn transferred(&self, to: Side) -> (u64, u64) {
        (self.sent[to.other().index()], self.delivered[to.index()])
    }

    /// Returns the number of messages in transit towards `to` (client or exit) on the leg
    /// (parallel circuit) with the index `wire`.
    #[must_use]
    pub fn under_way(&self, to: Side, wire: usize) -> usize {
        self.wires[wire].to[to.index()].len()
    }

    /// Launches another leg (parallel circuit) at the client, and returns its index.
    ///
    /// # Errors
    /// See [`ConfluxEnd::launch`].
    pub fn launch(&mut self, now: Time) -> Result<usize, ConfluxFault> {
        let client = &mut self.ends[Side::Client.index()];
        let (place, link) = client.launch(now, DesiredUx::HighThroughput)?;
        let mut wire = Wire { places: [Some(place), None], ..Wire::default() };
        wire.to[Side::Exit.index()].push_back(LegMessage::Link(link));
        self.wires.push(wire);
        Ok(self.wires.len() - 1)
    }

    /// Sends a message from the end `from` on a leg (parallel circuit).
    ///
    /// # Errors
    /// See [`ConfluxEnd::send`]. Also fails if this end does not have the leg.
    pub fn send(&mut self, from: Side, wire: usize) -> Result<(), ConfluxFault> {
        let place = self.place(from, wire).ok_or(ConfluxFault::NotLinked)?;
        let mark = self.ends[from.index()].send(place)?;
        let number = self.sent[from.index()] + 1;
        self.sent[from.index()] = number;
        let queue = &mut self.wires[wire].to[from.other().index()];
        let mut data = number.to_be_bytes().to_vec();
        let before = mark.before();
        queue.extend(before.map(|(command, switch)| LegMessage::Message(command, 0, switch)));
        data.splice(..0, mark.prefix().iter().copied()).for_each(drop);
        queue.push_back(LegMessage::Message(RelayCommand::DATA, 1, data));
        Ok(())
    }

    /// Injects a message that a correct end never sends. It arrives on its leg (parallel circuit)
    /// after the messages that are already in transit.
    pub fn inject(&mut self, to: Side, wire: usize, command: RelayCommand, data: &[u8]) {
        let queue = &mut self.wires[wire].to[to.index()];
        queue.push_back(LegMessage::Message(command, 1, data.to_vec()));
    }

    /// Delivers the next message in transit on a leg (parallel circuit) to the end `to`. Returns
    /// false if there is none.
    ///
    /// # Errors
    /// The errors of the receiving end.
    ///
    /// # Panics
    /// If a message is delivered out of order.
    pub fn deliver(&mut self, now: Time, to: Side, wire: usize) -> Result<bool, ConfluxFault> {
        let Some(reply) = self.wires[wire].to[to.index()].pop_front() else { return Ok(false) };
        let end = &mut self.ends[to.index()];
        let place = self.wires[wire].places[to.index()];
        match reply {
            LegMessage::Link(link) => {
                let (place, linked) = end.link(now, &link, true, DesiredUx::HighThroughput)?;
                self.wires[wire].places[to.index()] = Some(place);
                self.answer(to, wire, LegMessage::Linked(linked));
            }
            LegMessage::Linked(linked) => {
                end.linked(now, place.ok_or(ConfluxFault::NotLinked)?, &linked)?;
                self.answer(to, wire, LegMessage::Acknowledged);
            }
            LegMessage::Acknowledged => {
                end.acknowledged(now, place.ok_or(ConfluxFault::NotLinked)?)?;
            }
            LegMessage::Message(command, stream, data) => {
                let place = place.ok_or(ConfluxFault::NotLinked)?;
                let message = Message { command, stream, data: &data };
                if let Arrival::Now(data) = end.receive(place, message)? {
                    self.take(to, data);
                }
            }
        }
        Ok(true)
    }

    fn answer(&mut self, from: Side, wire: usize, message: LegMessage) {
        self.wires[wire].to[from.other().index()].push_back(message);
    }

    /// Delivers a message that is next in order, and then the stored messages that waited for it.
    fn take(&mut self, to: Side, data: &[u8]) {
        self.count(to, data);
        while let Some(held) = self.ends[to.index()].pop() {
            self.count(to, &held.data);
        }
    }

    fn count(&mut self, to: Side, data: &[u8]) {
        let delivered = &mut self.delivered[to.index()];
        *delivered += 1;
        let in_order = data == delivered.to_be_bytes();
        assert!(in_order || !self.in_order, "rule: messages are delivered in their order");
    }

    /// Breaks a leg (parallel circuit): the messages in transit on it are lost. `unacknowledged`
    /// is true for each end that had many cells in flight on the leg, as in [`ConfluxEnd::lose`].
    /// Returns the consequence for each end.
    pub fn cut(&mut self, wire: usize, unacknowledged: [bool; 2]) -> [Fate; 2] {
        self.wires[wire].to.iter_mut().for_each(VecDeque::clear);
        let places = std::mem::take(&mut self.wires[wire].places);
        [Side::Client, Side::Exit].map(|side| {
            let at = side.index();
            match places[at] {
                Some(place) => self.ends[at].lose(place, unacknowledged[at]),
                None => Fate::Lives,
            }
        })
    }

    /// Launches `legs` legs (parallel circuits) at the same time and links them.
    ///
    /// # Panics
    /// If an end refuses a message from the other end.
    pub fn link(&mut self, now: Time, legs: usize) {
        for _ in 0..legs {
            let wire = self.launch(now).expect("rule: a leg (circuit) can join the set");
            for to in [Side::Exit, Side::Client, Side::Exit] {
                self.deliver(now, to, wire).expect("rule: messages of an honest end are accepted");
            }
        }
    }
}

/// Runs every test of this module on the sequence-numbering scheme that `make` creates.
///
/// # Panics
/// If the scheme fails a test.
pub fn check(make: Make) {
    for legs in 1..=8 {
        for seed in 0..8 {
            delivers_in_order(make, legs, seed);
        }
    }
    takes_legs_that_join_late(make);
    is_not_moved_by_what_it_refuses(make);
    refuses_legs_that_are_none(make);
}

/// Returns a random number below `n`.
fn draw(stream: &mut seed::Stream, n: usize) -> usize {
    stream.next_u32() as usize % n
}

/// Delivers all messages in transit, one leg (parallel circuit) after another.
fn drain(pair: &mut Pair) {
    for wire in 0..pair.legs() {
        for to in [Side::Client, Side::Exit] {
            while pair
                .deliver(Time::ZERO, to, wire)
                .expect("rule: messages of an honest end are accepted")
            {}
        }
    }
}

fn delivers_in_order(make: Make, legs: usize, seed: u64) {
    let mut pair = Pair::new(make);
    pair.link(Time::ZERO, legs);
    let mut stream = seed::stream(seed, legs as u64, "interleaving");
    for _ in 0..2_000 {
        let wire = draw(&mut stream, legs);
        let side = if draw(&mut stream, 2) == 0 { Side::Client } else { Side::Exit };
        match draw(&mut stream, 2) {
            0 => pair.send(side, wire).expect("rule: a linked leg can carry messages"),
            _ => {
                let delivered = pair.deliver(Time::ZERO, side, wire);
                delivered.expect("rule: messages of an honest end are accepted");
            }
        }
    }
    drain(&mut pair);
    for to in [Side::Client, Side::Exit] {
        let (sent, delivered) = pair.transferred(to);
        assert_eq!(sent, delivered, "rule: every message is delivered ({legs} legs, seed {seed})");
        assert_eq!(pair.end(to).bytes(), 0, "rule: no message waits in the end");
    }
}

fn takes_legs_that_join_late(make: Make) {
    let mut pair = Pair::new(make);
    for legs in 1..=8 {
        pair.link(Time::ZERO, 1);
        for turn in 0..300 {
            for from in [Side::Client, Side::Exit] {
                pair.send(from, turn % legs)
                    .expect("rule: a leg that joined late carries messages");
            }
        }
        drain(&mut pair);
    }
    for to in [Side::Exit, Side::Client] {
        assert_eq!(pair.transferred(to), (2_400, 2_400), "rule: every message is delivered");
    }
}

fn is_not_moved_by_what_it_refuses(make: Make) {
    let mut pair = Pair::new(make);
    pair.link(Time::ZERO, 3);
    let hostile = [
        (RelayCommand::CONFLUX_SWITCH, vec![0; 4]),
        (RelayCommand::CONFLUX_SWITCH, vec![255; 4]),
        (RelayCommand::CONFLUX_SWITCH, vec![0; 3]),
    ];
    for turn in 0..300 {
        pair.send(Side::Client, turn % 3).expect("rule: a linked leg can carry messages");
        let (command, data) = &hostile[turn % hostile.len()];
        // This leaves only the hostile message in transit on its leg.
        drain(&mut pair);
        pair.inject(Side::Exit, (turn + 1) % 3, *command, data);
        let refused = pair.deliver(Time::ZERO, Side::Exit, (turn + 1) % 3);
        assert!(refused.is_err(), "rule: an impossible message is refused");
    }
    assert_eq!(
        pair.transferred(Side::Exit),
        (300, 300),
        "rule: a refused message changes no counter"
    );
}

fn refuses_legs_that_are_none(make: Make) {
    let mut numbering = make();
    let (none, other) = (PathId(3), PathId(0));
    numbering.join(other, super::Bases::default()).expect("rule: a leg (circuit) can join the set");
    numbering.leave(other);
    for leg in [none, other] {
        assert_eq!(
            numbering.send(leg),
            Err(ConfluxFault::NotLinked),
            "rule: a circuit that is not a leg has no message numbers"
        );
        assert!(
            numbering.received(leg, &[0; 9], 1).is_err(),
            "rule: a circuit that is not a leg has no message numbers"
        );
        assert!(
            numbering.switched(leg, 1, 1).is_err(),
            "rule: a circuit that is not a leg receives no SWITCH"
        );
        assert!(
            !numbering.leads(leg),
            "rule: a circuit that is not a leg is never the leading one"
        );
    }
    assert_eq!(numbering.last_sent(), 0, "rule: a refused message changes no counter");
}
