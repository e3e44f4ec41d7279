//! A relay's circuits: made, passed through, torn down.

use anabranch_multipath::Time;

use super::Relay;
use crate::bucket::Bucket;
use crate::channels::{Lane, LinkId, Owner};
use crate::crypto::{Keys, RelayLayer};
use crate::ending::{Carrier, Ending, Seal};
use crate::event::{CircuitFault, LinkFault};
use crate::handshake::extension::{self, Agreed};
use crate::handshake::{Accepted, Kind, Refused, fast, ntor, ntor_v3};
use crate::leg::Leg;
use crate::padding::Usage;
use crate::points::Point;
use crate::set::Set;
use crate::stream::Side;
use crate::table::SetId;
use crate::wire::cell::{BODY, Body, Cell, Command};
use crate::wire::extend::{self, Extend};
use crate::wire::message::{self, DestroyReason, RelayCommand};
use crate::wire::rend::NONCE;

/// RELAY_EARLY cells that a circuit may have (tor-spec, "Relay cells").
const MAX_EARLY: u8 = 8;

/// One circuit.
pub struct Circuit {
    /// Towards the client; nowhere for a trunk.
    pub(super) lane: Lane,
    /// The set whose trunk it is: its cells come and go by the legs of that.
    pub(super) trunk_of: Option<SetId>,
    pub(super) next: Next,
    /// Its client asked for an introduction: once is all it may.
    pub(super) introduced: bool,
    /// What is ours of it; `None` for a circuit of another shard that goes on by a link of this
    /// one.
    own: Option<Own>,
    /// A cell that may be of a stream has gone on.
    carried: bool,
    /// The number by which another shard was to ask for what was ours of it.
    pub(super) ticket: Option<u64>,
}

/// What a relay has of a circuit: a layer, and what it takes to be a leg.
pub(super) struct Own {
    layer: Box<dyn RelayLayer>,
    leg: Leg,
    pub(super) set: SetId,
    /// Whether it came to us from a relay, if it came to another shard.
    pub(super) by_relay: Option<bool>,
    early: u8,
    /// What the handshake left both ends with to bind messages to the circuit.
    nonce: [u8; NONCE],
}

impl Ending for Circuit {
    const OUTWARD: bool = false;

    fn carrier(&self) -> Option<Carrier> {
        Some(self.trunk_of.map_or(Carrier::Link(self.lane), Carrier::Legs))
    }

    fn set(&self) -> Option<SetId> {
        self.own.as_ref().map(|own| own.set)
    }

    fn leg(&self) -> Option<&Leg> {
        self.own.as_ref().map(|own| &own.leg)
    }

    fn parts(&mut self) -> Option<(Carrier, Option<&mut Leg>, &mut dyn Seal)> {
        let own = self.own.as_mut()?;
        Some((Carrier::Link(self.lane), Some(&mut own.leg), &mut own.layer))
    }
}

/// The introduction or rendezvous point that a circuit is.
pub(super) struct ServicePoint {
    pub(super) point: Point,
    /// How many INTRODUCE2 its service takes, if it says.
    pub(super) limit: Option<Bucket>,
}

/// What lies beyond us.
pub(super) enum Next {
    /// We are the last.
    Nothing,
    /// A link to the next relay is being opened.
    Dialling(Box<Extend>),
    /// CREATE2 has gone.
    Creating(Lane),
    /// The circuit goes on.
    Open(Lane),
    /// Services and clients meet here.
    Point(Box<ServicePoint>),
    /// Another shard was asked to introduce the client.
    Introducing(Lane),
    /// The circuit of ours that it met at a rendezvous point.
    Joined(u32),
    /// The lane to the shard whose circuit it met.
    Across(Lane),
}

impl Circuit {
    pub(super) fn new(lane: Lane, own: Option<Own>) -> Circuit {
        let next = Next::Nothing;
        let (introduced, carried, ticket, trunk_of) = (false, false, None, None);
        Circuit { lane, trunk_of, next, introduced, own, carried, ticket }
    }

    /// What goes on from the legs of this set.
    pub(super) fn trunk(set: SetId) -> Circuit {
        Circuit { trunk_of: Some(set), ..Circuit::new(Lane::NOWHERE, None) }
    }

    /// Whether its end is here, and it is no other shard's that passes.
    pub(super) fn is_ours(&self) -> bool {
        self.own.is_some() || self.trunk_of.is_some()
    }

    /// It is a leg of this set from now on.
    pub(super) fn move_to(&mut self, set: SetId) {
        self.own.iter_mut().for_each(|own| own.set = set);
    }

    /// Another shard takes what was ours of it, and it goes on to there.
    pub(super) fn give_away(&mut self, lane: Lane) -> Option<Own> {
        self.next = Next::Open(lane);
        self.own.take()
    }

    /// Whether it came to us from a relay, if it came to another shard.
    pub(super) fn by_relay(&self) -> Option<bool> {
        self.own.as_ref().and_then(|own| own.by_relay)
    }

    /// What binds messages to the circuit, if it is ours.
    pub(super) fn nonce(&self) -> Option<[u8; NONCE]> {
        self.own.as_ref().map(|own| own.nonce)
    }
}

impl Next {
    /// Whether services and clients meet there, or have met.
    pub(super) fn is_of_services(&self) -> bool {
        matches!(self, Next::Point(_) | Next::Introducing(_) | Next::Joined(_) | Next::Across(_))
    }

    pub(super) fn lane(&self) -> Option<Lane> {
        match self {
            Next::Creating(lane)
            | Next::Open(lane)
            | Next::Introducing(lane)
            | Next::Across(lane) => Some(*lane),
            Next::Nothing | Next::Dialling(_) | Next::Point(_) | Next::Joined(_) => None,
        }
    }
}

/// What a new circuit's handshake ended in.
struct Handshake {
    /// The answer's command and body.
    answer: (Command, Vec<u8>),
    keys: Keys,
    agreed: Agreed,
    nonce: [u8; NONCE],
}

impl Relay {
    /// Takes a cell that the channel left to circuits.
    ///
    /// # Errors
    /// A violation that ends the link.
    pub(super) fn take_circuit_cell(
        &mut self,
        now: Time,
        link: LinkId,
        cell: Cell<'_>,
    ) -> Result<(), LinkFault> {
        let lane = Lane { link, id: cell.circuit };
        let known = match cell.command {
            Command::ONWARD
            | Command::INTRODUCE
            | Command::MEET
            | Command::REPLACED
            | Command::ADOPT => self.is_sibling(link),
            Command(number) => matches!(number, 1..=6 | 9..=11),
        };
        if !known {
            return Ok(());
        }
        if lane.id == 0 && cell.command != Command::REPLACED {
            return Err(LinkFault::NoCircuit);
        }
        let Ok(body) = <&mut Body>::try_from(cell.body) else { return Ok(()) };
        match cell.command {
            Command::RELAY | Command::RELAY_EARLY => self.relay(now, lane, cell.command, body),
            Command::CREATE | Command::CREATE_FAST | Command::CREATE2 => {
                self.create(now, lane, cell.command, body);
            }
            Command::CREATED2 => self.created(now, lane, body),
            Command::ONWARD => self.bridge(now, lane, body),
            Command::INTRODUCE => self.introduce_for_sibling(now, lane, body),
            Command::MEET => self.meet_for_sibling(now, lane, body),
            Command::REPLACED => self.replaced_by_sibling(body),
            Command::ADOPT => self.adopt(now, lane, body),
            Command::DESTROY => self.destroyed(now, lane, DestroyReason(body[0])),
            _ => self.refuse(lane, CircuitFault::Message),
        }
        Ok(())
    }

    fn create(&mut self, now: Time, lane: Lane, command: Command, body: &Body) {
        let circuit = self.circuits.next_index();
        if !self.channels.accept(lane, Owner { circuit, outward: false }) {
            return self.refuse(lane, CircuitFault::CircuitId);
        }
        match self.agree(command, body) {
            Ok(Handshake { answer: (answer, reply), keys, agreed, nonce }) => {
                self.role.stats.circuits_made += 1;
                self.role.stats.circuits_cgo += u64::from(agreed.cgo);
                let params = &self.role.config.params;
                let set = Set::new(Side::Exit, agreed, params, circuit);
                let own = Own {
                    layer: self.crypto.in_use(keys).relay_layer(),
                    leg: Leg::new(agreed, params),
                    set: SetId(self.sets.insert(set)),
                    by_relay: None,
                    early: 0,
                    nonce,
                };
                self.circuits.insert(Circuit::new(lane, Some(own)));
                let mut body = [0; BODY];
                body[..reply.len()].copy_from_slice(&reply);
                self.channels.push(now, lane, answer, &body);
            }
            // TAP is refused as C tor may; that alone is no violation.
            Err(refused) => {
                self.channels.destroy(lane, DestroyReason::PROTOCOL);
                if command != Command::CREATE {
                    self.violated(lane.link, CircuitFault::Handshake(refused));
                }
            }
        }
    }

    /// A circuit of another shard is to go on by a link of ours.
    fn bridge(&mut self, now: Time, lane: Lane, body: &Body) {
        let circuit = self.circuits.next_index();
        let Some(wish) = Extend::read(body) else {
            return self.refuse(lane, CircuitFault::Message);
        };
        if !self.channels.accept(lane, Owner { circuit, outward: false }) {
            return self.refuse(lane, CircuitFault::CircuitId);
        }
        self.circuits.insert(Circuit::new(lane, None));
        self.head_for(now, circuit, wish);
    }

    fn agree(&mut self, command: Command, body: &Body) -> Result<Handshake, Refused> {
        let (keys, rng) = (&self.role.config.onion_keys, &mut *self.rng);
        if command == Command::CREATE_FAST {
            let Accepted { reply, keys, nonce } = fast::accept(rng, body)?;
            let (answer, agreed) = ((Command::CREATED_FAST, reply), Agreed::default());
            return Ok(Handshake { answer, keys: keys.into(), agreed, nonce });
        }
        if command != Command::CREATE2 {
            return Err(Refused::Unsupported);
        }
        let (kind, handshake) = extend::read_create2(body).ok_or(Refused::Malformed)?;
        let (reply, keys, agreed, nonce) = match kind {
            Kind::NTOR => {
                let rsa = &self.role.config.identity.rsa;
                let Accepted { reply, keys, nonce } = ntor::accept(rng, rsa, keys, handshake)?;
                (reply, keys.into(), Agreed::default(), nonce)
            }
            Kind::NTOR_V3 => {
                let identity = &self.role.config.identity.ed25519;
                let request = ntor_v3::read(identity, keys, ntor_v3::CIRCUIT, handshake)?;
                let params = &self.role.config.params;
                let offered = params.enabled.then_some(params.sendme_inc);
                let (answer, agreed) = extension::answer(&request.message, offered)?;
                let (reply, mut stream) = request.answer(rng, &answer)?;
                let keys = stream.of(agreed);
                (reply, keys, agreed, stream.nonce())
            }
            _ => return Err(Refused::Unsupported),
        };
        let answer = (Command::CREATED2, extend::put_created2(&reply));
        Ok(Handshake { answer, keys, agreed, nonce })
    }

    fn relay(&mut self, now: Time, lane: Lane, command: Command, body: &mut Body) {
        // A cell of a circuit that is gone: it was under way.
        let Some(owner) = self.channels.owner(lane) else { return };
        if owner.outward {
            self.inbound(now, owner.circuit, command, body);
        } else {
            self.outbound(now, owner.circuit, command, body);
        }
    }

    fn outbound(&mut self, now: Time, index: u32, command: Command, body: &mut Body) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let Some(own) = &mut circuit.own else { return self.pass_on(now, index, command, body) };
        self.role.stats.relayed += 1;
        if command == Command::RELAY_EARLY {
            own.early += 1;
            if own.early > MAX_EARLY {
                return self.break_off(index, CircuitFault::RelayEarly);
            }
        }
        let Some(tag) = own.layer.outbound(command, body) else {
            return self.pass_on(now, index, command, body);
        };
        match message::read(own.layer.format(), body) {
            Some(message) => self.take_message(now, index, command, message, tag),
            None => self.break_off(index, CircuitFault::Message),
        }
    }

    /// A cell that is not for us goes on.
    pub(super) fn pass_on(&mut self, now: Time, index: u32, command: Command, body: &mut Body) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        match circuit.next {
            // Cells of either client go towards the other, where none is RELAY_EARLY.
            Next::Joined(other) => self.inbound(now, other, Command::RELAY, body),
            Next::Across(next) => {
                if self.channels.push(now, next, Command::RELAY, body) > self.role.config.max_queue
                {
                    self.break_off(index, CircuitFault::Flood);
                }
            }
            Next::Open(next) => {
                if command == Command::RELAY && !std::mem::replace(&mut circuit.carried, true) {
                    self.mark_circuit(index, Usage::Streams);
                }
                if self.channels.push(now, next, command, body) > self.role.config.max_queue {
                    self.break_off(index, CircuitFault::Flood);
                }
            }
            _ => self.pass_by_leg(now, index, command, body),
        }
    }

    pub(super) fn inbound(&mut self, now: Time, index: u32, command: Command, body: &mut Body) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let goes_on = matches!(circuit.next, Next::Open(_) | Next::Joined(_) | Next::Across(_));
        if command == Command::RELAY_EARLY || !goes_on {
            return self.break_off(index, CircuitFault::RelayEarly);
        }
        if let Some(set) = circuit.trunk_of {
            return self.pass_back(set, command, body);
        }
        // What comes from a circuit that it met was counted there.
        let comes_by_link = matches!(circuit.next, Next::Open(_));
        if let Some(own) = &mut circuit.own {
            self.role.stats.relayed += u64::from(comes_by_link);
            own.layer.inbound(command, body);
        }
        if self.channels.push(now, circuit.lane, command, body) > self.role.config.max_queue {
            self.break_off(index, CircuitFault::Flood);
        }
    }

    /// A circuit's links are used for this.
    pub(super) fn mark_circuit(&mut self, index: u32, usage: Usage) {
        let Some(circuit) = self.circuits.get(index) else { return };
        let lanes = [Some(circuit.lane), circuit.next.lane()];
        lanes.into_iter().flatten().for_each(|lane| self.mark_link(lane.link, usage));
    }

    /// Sends a message of ours to the client.
    pub(super) fn originate(&mut self, now: Time, index: u32, command: RelayCommand, data: &[u8]) {
        self.say(now, index, Command::RELAY, command, data);
    }

    fn destroyed(&mut self, now: Time, lane: Lane, reason: DestroyReason) {
        let Some(owner) = self.channels.owner(lane) else { return };
        self.channels.leave(lane);
        self.left_by(now, owner, reason);
    }

    /// A lane is gone. If it was the client's, what the client says of why is passed on.
    pub(super) fn left_by(&mut self, now: Time, owner: Owner, reason: DestroyReason) {
        if owner.outward {
            self.cut_off(now, owner.circuit, reason);
        } else {
            self.drop_circuit(owner.circuit, reason);
        }
    }

    /// What was beyond us is gone, and so is the circuit: a client that was told by TRUNCATED would
    /// leave relays before us queueing cells (C tor since 0.4.7.11, its issue 40623).
    fn cut_off(&mut self, now: Time, index: u32, reason: DestroyReason) {
        if !self.introduced_by_sibling(now, index, reason) {
            self.tear_down(index, reason);
        }
    }

    /// Tears a circuit down on both sides.
    pub(super) fn tear_down(&mut self, index: u32, reason: DestroyReason) {
        let Some(circuit) = self.circuits.get(index) else { return };
        if let Some(set) = circuit.trunk_of {
            self.leave_trunk(set, reason);
            return self.cut_trunk(set, reason);
        }
        let lane = circuit.lane;
        self.channels.destroy(lane, reason);
        self.drop_circuit(index, reason);
    }

    /// Forgets a circuit whose lane to the client is gone, and tells the next relay.
    pub(super) fn drop_circuit(&mut self, index: u32, reason: DestroyReason) {
        let Some(circuit) = self.circuits.remove(index) else { return };
        self.channels.leave(circuit.lane);
        if let Some(next) = circuit.next.lane() {
            self.channels.destroy(next, reason);
        }
        if let Some(ticket) = circuit.ticket {
            self.role.sets.take_over(ticket);
        }
        self.dialling.forget(index);
        self.unjoin(index, &circuit.next, reason);
        if let (Some(set), Some(leg)) = (circuit.set(), circuit.leg()) {
            self.leave_set(set, index, leg.has_unacknowledged());
        }
    }

    /// Refuses a cell: the circuit of its ID, if there is one, is closed.
    pub(super) fn refuse(&mut self, lane: Lane, fault: CircuitFault) {
        self.violated(lane.link, fault);
        match self.channels.owner(lane) {
            Some(owner) => self.tear_down(owner.circuit, DestroyReason::PROTOCOL),
            None => self.channels.say(lane, Command::DESTROY, &[DestroyReason::PROTOCOL.0]),
        }
    }
}
