//! A relay's circuits: creating them, forwarding cells, closing them.

use anabranch_multipath::Time;

use super::Relay;
use crate::bucket::Bucket;
use crate::channels::{LinkCircuit, LinkId, Owner};
use crate::crypto::lossy::{LossyKeys, LossyRelay};
use crate::crypto::{Keys, RelayLayer};
use crate::ending::{Carrier, Ending, Seal, SealLossy};
use crate::event::{CircuitFault, LinkFault};
use crate::handshake::extension::{self, AgreedFeatures, SupportedFeatures};
use crate::handshake::{Accepted, HandshakeError, Kind, fast, ntor, ntor_v3};
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

/// Maximum number of RELAY_EARLY cells of a circuit (tor-spec, "Relay cells").
const MAX_EARLY: u8 = 8;

/// One circuit of a relay.
pub struct Circuit {
    /// The link towards the client, and the circuit's ID on it. It is `NOWHERE` for a trunk: a
    /// circuit whose cells travel on the legs (parallel circuits) of a set.
    pub(super) previous: LinkCircuit,
    /// The set whose legs (parallel circuits) carry this circuit's cells. `None` for a circuit
    /// that is not a trunk.
    pub(super) trunk_of: Option<SetId>,
    pub(super) next: Next,
    /// True if the client on this circuit has requested an introduction to an onion service. Only
    /// one request is allowed.
    pub(super) introduced: bool,
    /// The relay's end of the circuit. `None` if another shard (parallel core) of the relay has
    /// this end, and the circuit only continues on a link of this shard.
    own: Option<Own>,
    /// True if a RELAY cell, which may belong to a user's stream, was forwarded on this circuit.
    /// The padding of the circuit's links depends on this.
    has_forwarded: bool,
    /// True if the circuit's lossy cells (sent in datagrams) are forwarded to another parallel
    /// core (shard) of this relay, which has taken over this relay's end of the circuit.
    passes_lossy: bool,
    /// Identifier under which another parallel core (shard) of this relay takes over our end of
    /// this circuit; `None` if none does.
    pub(super) ticket: Option<u64>,
}

/// A relay's end of a circuit: the layer of encryption, the flow control, and the set of circuits
/// with their streams.
pub(super) struct Own {
    layer: Box<dyn RelayLayer>,
    /// The encryption layers for lossy cells (sent in datagrams); `None` if the circuit carries no
    /// such cells.
    lossy: Option<Box<LossyRelay>>,
    leg: Leg,
    pub(super) set: SetId,
    /// For a circuit that another parallel core (shard) of this relay handed over: true if that
    /// shard received the circuit from a relay, false if from a client. `None` for other circuits.
    pub(super) by_relay: Option<bool>,
    early: u8,
    /// Value from the circuit's handshake that binds messages to the circuit.
    nonce: [u8; NONCE],
}

impl Ending for Circuit {
    const OUTWARD: bool = false;

    fn carrier(&self) -> Option<Carrier> {
        Some(self.trunk_of.map_or(Carrier::Link(self.previous), Carrier::Legs))
    }

    fn set(&self) -> Option<SetId> {
        self.own.as_ref().map(|own| own.set)
    }

    fn leg(&self) -> Option<&Leg> {
        self.own.as_ref().map(|own| &own.leg)
    }

    fn move_to(&mut self, set: SetId) {
        self.own.iter_mut().for_each(|own| own.set = set);
    }

    fn is_lossy(&self) -> bool {
        self.passes_lossy || self.own.as_ref().is_some_and(|own| own.lossy.is_some())
    }

    fn lossy(&mut self) -> Option<&mut dyn SealLossy> {
        self.lossy_layers().map(|lossy| lossy as &mut dyn SealLossy)
    }

    fn parts(&mut self) -> Option<(Carrier, Option<&mut Leg>, &mut dyn Seal)> {
        let own = self.own.as_mut()?;
        Some((Carrier::Link(self.previous), Some(&mut own.leg), &mut own.layer))
    }
}

/// State of a circuit that is an introduction or rendezvous point.
pub(super) struct ServicePoint {
    pub(super) point: Point,
    /// Rate limit for INTRODUCE2 messages on this circuit, if the service has one.
    pub(super) limit: Option<Bucket>,
}

/// How a circuit continues at this relay.
pub(super) enum Next {
    /// The circuit does not continue: this relay is the last hop.
    Nothing,
    /// The circuit waits for a link to the next relay, which is being opened.
    Dialling(Box<Extend>),
    /// The circuit waits for the answer to the CREATE2 that was sent on this link and circuit ID.
    Creating(LinkCircuit),
    /// The circuit continues to its next relay on this link and circuit ID.
    Open(LinkCircuit),
    /// The circuit is an introduction or rendezvous point of an onion service.
    Point(Box<ServicePoint>),
    /// The circuit waits for another parallel core (shard) of this relay to forward the client's
    /// introduction to the service. The request was sent on this link and circuit ID.
    Introducing(LinkCircuit),
    /// The circuit is joined, as a rendezvous point, to this circuit of the same parallel core
    /// (shard).
    Joined(u32),
    /// The circuit is joined, as a rendezvous point, to a circuit of another parallel core (shard)
    /// of this relay, over this link and circuit ID.
    Across(LinkCircuit),
}

impl Circuit {
    pub(super) fn new(previous: LinkCircuit, own: Option<Own>) -> Circuit {
        let next = Next::Nothing;
        let (introduced, has_forwarded, passes_lossy) = (false, false, false);
        let (ticket, trunk_of) = (None, None);
        Circuit { previous, trunk_of, next, introduced, own, has_forwarded, passes_lossy, ticket }
    }

    /// Returns the encryption layers for lossy cells (sent in datagrams); `None` if the circuit
    /// carries no such cells.
    pub(super) fn lossy_layers(&mut self) -> Option<&mut LossyRelay> {
        self.own.as_mut()?.lossy.as_deref_mut()
    }

    /// Returns the trunk of `set`: the circuit that continues where the set's legs join.
    pub(super) fn trunk(set: SetId) -> Circuit {
        Circuit { trunk_of: Some(set), ..Circuit::new(LinkCircuit::NOWHERE, None) }
    }

    /// Returns true if this shard has the relay's end of the circuit. Returns false if another
    /// parallel core (shard) of this relay has it, and the circuit only continues on a link of
    /// this shard.
    pub(super) fn is_ours(&self) -> bool {
        self.own.is_some() || self.trunk_of.is_some()
    }

    /// Removes and returns our end of the circuit, to hand it over to another parallel core (shard)
    /// of this relay. The circuit continues to that shard on `link_circuit`. Returns `None` if this
    /// shard does not have our end.
    pub(super) fn give_away(&mut self, link_circuit: LinkCircuit) -> Option<Own> {
        self.next = Next::Open(link_circuit);
        self.passes_lossy = self.is_lossy();
        self.own.take()
    }

    /// Returns true if the circuit's lossy cells (sent in datagrams) are forwarded to another
    /// parallel core (shard) of this relay.
    pub(super) fn passes_lossy(&self) -> bool {
        self.passes_lossy
    }

    /// Returns true if another parallel core (shard) of this relay handed over this circuit and
    /// had received it from a relay; false if that shard had received it from a client. Returns
    /// `None` if no shard handed it over.
    pub(super) fn by_relay(&self) -> Option<bool> {
        self.own.as_ref().and_then(|own| own.by_relay)
    }

    /// Returns the value from the handshake that binds messages to the circuit; `None` if the
    /// circuit does not end here.
    pub(super) fn nonce(&self) -> Option<[u8; NONCE]> {
        self.own.as_ref().map(|own| own.nonce)
    }
}

impl Next {
    /// Returns true if the circuit serves an onion service. Such a circuit is an introduction or
    /// rendezvous point or is joined to another circuit, or its client waits for an introduction
    /// by another parallel core (shard).
    pub(super) fn is_of_services(&self) -> bool {
        matches!(self, Next::Point(_) | Next::Introducing(_) | Next::Joined(_) | Next::Across(_))
    }

    pub(super) fn link_circuit(&self) -> Option<LinkCircuit> {
        match self {
            Next::Creating(link_circuit)
            | Next::Open(link_circuit)
            | Next::Introducing(link_circuit)
            | Next::Across(link_circuit) => Some(*link_circuit),
            Next::Nothing | Next::Dialling(_) | Next::Point(_) | Next::Joined(_) => None,
        }
    }
}

/// Result of the handshake of a new circuit.
struct Handshake {
    /// Command and body of the cell that answers the handshake.
    answer: (Command, Vec<u8>),
    keys: Keys,
    lossy: Option<LossyKeys>,
    agreed: AgreedFeatures,
    nonce: [u8; NONCE],
}

impl Relay {
    /// Handles a cell of a circuit.
    ///
    /// # Errors
    /// Returns the neighbour's violation of the protocol. The link must then be closed.
    pub(super) fn take_circuit_cell(
        &mut self,
        now: Time,
        link: LinkId,
        cell: Cell<'_>,
    ) -> Result<(), LinkFault> {
        let link_circuit = LinkCircuit { link, id: cell.circuit };
        let known = match cell.command {
            Command::ONWARD
            | Command::INTRODUCE
            | Command::MEET
            | Command::REPLACED
            | Command::ADOPT
            | Command::ACROSS => self.is_sibling(link),
            Command(number) => matches!(number, 1..=6 | 9..=11),
        };
        if !known {
            return Ok(());
        }
        if link_circuit.id == 0 && cell.command != Command::REPLACED {
            return Err(LinkFault::NoCircuit);
        }
        if cell.command == Command::ACROSS {
            self.take_across(now, link_circuit, cell.body);
            return Ok(());
        }
        let Ok(body) = <&mut Body>::try_from(cell.body) else { return Ok(()) };
        match cell.command {
            Command::RELAY | Command::RELAY_EARLY => {
                self.relay(now, link_circuit, cell.command, body)
            }
            Command::CREATE | Command::CREATE_FAST | Command::CREATE2 => {
                self.create(now, link_circuit, cell.command, body);
            }
            Command::CREATED2 => self.created(now, link_circuit, body),
            Command::ONWARD => self.extend_for_shard(now, link_circuit, body),
            Command::INTRODUCE => self.introduce_for_sibling(now, link_circuit, body),
            Command::MEET => self.meet_for_sibling(now, link_circuit, body),
            Command::REPLACED => self.replaced_by_sibling(body),
            Command::ADOPT => self.adopt(now, link_circuit, body),
            Command::DESTROY => self.destroyed(now, link_circuit, DestroyReason(body[0])),
            _ => self.refuse(link_circuit, CircuitFault::Message),
        }
        Ok(())
    }

    fn create(&mut self, now: Time, link_circuit: LinkCircuit, command: Command, body: &Body) {
        let circuit = self.circuits.next_index();
        if !self.channels.accept(link_circuit, Owner { circuit, outward: false }) {
            return self.refuse(link_circuit, CircuitFault::CircuitId);
        }
        match self.agree(command, body) {
            Ok(Handshake { answer: (answer, reply), keys, lossy, agreed, nonce }) => {
                self.role.stats.circuits_made += 1;
                self.role.stats.circuits_lossy += u64::from(agreed.lossy);
                self.role.stats.circuits_cgo += u64::from(agreed.cgo);
                let params = &self.role.config.params;
                let set = Set::new(Side::Exit, agreed, params, circuit)
                    .with_congestion(self.lossy_congestion);
                let own = Own {
                    layer: self.crypto.in_use(keys).relay_layer(),
                    lossy: lossy.map(|keys| Box::new(LossyRelay::new(&keys))),
                    leg: Leg::new(agreed, params),
                    set: self.sets.insert(set),
                    by_relay: None,
                    early: 0,
                    nonce,
                };
                self.circuits.insert(Circuit::new(link_circuit, Some(own)));
                let mut body = [0; BODY];
                body[..reply.len()].copy_from_slice(&reply);
                self.channels.push(now, link_circuit, answer, &body);
            }
            // C tor may also refuse TAP. A request for TAP is not a violation.
            Err(refused) => {
                self.channels.destroy(link_circuit, DestroyReason::PROTOCOL);
                if command != Command::CREATE {
                    self.violated(link_circuit.link, CircuitFault::Handshake(refused));
                }
            }
        }
    }

    /// Continues a circuit on a link of this shard, at the request of another parallel core (shard)
    /// of this relay, which has the relay's end of the circuit. `link_circuit` leads to that shard.
    /// `body` is the data of EXTEND2.
    fn extend_for_shard(&mut self, now: Time, link_circuit: LinkCircuit, body: &Body) {
        let circuit = self.circuits.next_index();
        let Some(wish) = Extend::read(body) else {
            return self.refuse(link_circuit, CircuitFault::Message);
        };
        if !self.channels.accept(link_circuit, Owner { circuit, outward: false }) {
            return self.refuse(link_circuit, CircuitFault::CircuitId);
        }
        self.circuits.insert(Circuit::new(link_circuit, None));
        self.head_for(now, circuit, wish);
    }

    fn agree(&mut self, command: Command, body: &Body) -> Result<Handshake, HandshakeError> {
        let (keys, rng) = (&self.role.config.onion_keys, &mut *self.rng);
        if command == Command::CREATE_FAST {
            let Accepted { reply, keys, nonce } = fast::accept(rng, body)?;
            let (answer, agreed) = ((Command::CREATED_FAST, reply), AgreedFeatures::default());
            return Ok(Handshake { answer, keys: keys.into(), lossy: None, agreed, nonce });
        }
        if command != Command::CREATE2 {
            return Err(HandshakeError::Unsupported);
        }
        let (kind, handshake) = extend::read_create2(body).ok_or(HandshakeError::Malformed)?;
        let (reply, keys, lossy, agreed, nonce) = match kind {
            Kind::NTOR => {
                let rsa = &self.role.config.identity.rsa;
                let Accepted { reply, keys, nonce } = ntor::accept(rng, rsa, keys, handshake)?;
                (reply, keys.into(), None, AgreedFeatures::default(), nonce)
            }
            Kind::NTOR_V3 => {
                let identity = &self.role.config.identity.ed25519;
                let request = ntor_v3::read(identity, keys, ntor_v3::CIRCUIT, handshake)?;
                let params = &self.role.config.params;
                let sendme_inc = params.enabled.then_some(params.sendme_inc);
                let offered = SupportedFeatures { sendme_inc, lossy: self.role.config.lossy };
                let (answer, agreed) = extension::answer(&request.message, offered)?;
                let (reply, mut stream) = request.answer(rng, &answer)?;
                let (keys, nonce) = (stream.of(agreed), stream.nonce());
                let lossy = agreed.lossy.then(|| stream.lossy());
                (reply, keys, lossy, agreed, nonce)
            }
            _ => return Err(HandshakeError::Unsupported),
        };
        let answer = (Command::CREATED2, extend::put_created2(&reply));
        Ok(Handshake { answer, keys, lossy, agreed, nonce })
    }

    /// Handles a RELAY or RELAY_EARLY cell that arrived on `link_circuit`.
    pub(super) fn relay(
        &mut self,
        now: Time,
        link_circuit: LinkCircuit,
        command: Command,
        body: &mut Body,
    ) {
        // The cell was in transit when its circuit was closed.
        let Some(owner) = self.channels.owner(link_circuit) else { return };
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

    /// Forwards a cell that is not addressed to this relay.
    pub(super) fn pass_on(&mut self, now: Time, index: u32, command: Command, body: &mut Body) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        match circuit.next {
            // From here on the cell goes towards a client, where RELAY_EARLY is not allowed.
            Next::Joined(other) => self.inbound(now, other, Command::RELAY, body),
            Next::Across(next) => {
                if self.channels.push(now, next, Command::RELAY, body) > self.role.config.max_queue
                {
                    self.break_off(index, CircuitFault::Flood);
                }
            }
            Next::Open(next) => {
                if command == Command::RELAY && !std::mem::replace(&mut circuit.has_forwarded, true)
                {
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
        // If the cell comes from a joined circuit, that circuit has counted it already.
        let comes_by_link = matches!(circuit.next, Next::Open(_));
        if let Some(own) = &mut circuit.own {
            self.role.stats.relayed += u64::from(comes_by_link);
            own.layer.inbound(command, body);
        }
        if self.channels.push(now, circuit.previous, command, body) > self.role.config.max_queue {
            self.break_off(index, CircuitFault::Flood);
        }
    }

    /// Records `usage` for both links of the circuit `index`, unless a higher [`Usage`] is
    /// recorded.
    pub(super) fn mark_circuit(&mut self, index: u32, usage: Usage) {
        let Some(circuit) = self.circuits.get(index) else { return };
        let both = [Some(circuit.previous), circuit.next.link_circuit()];
        both.into_iter()
            .flatten()
            .for_each(|link_circuit| self.mark_link(link_circuit.link, usage));
    }

    /// Sends a message of this relay to the client.
    pub(super) fn originate(&mut self, now: Time, index: u32, command: RelayCommand, data: &[u8]) {
        self.send_relay_cell(now, index, Command::RELAY, command, data);
    }

    fn destroyed(&mut self, now: Time, link_circuit: LinkCircuit, reason: DestroyReason) {
        let Some(owner) = self.channels.owner(link_circuit) else { return };
        self.channels.leave(link_circuit);
        self.left_by(now, owner, reason);
    }

    /// Handles the closing of the circuit on one of its two links. Closes the circuit on the other
    /// link for the same `reason`.
    pub(super) fn left_by(&mut self, now: Time, owner: Owner, reason: DestroyReason) {
        if owner.outward {
            self.cut_off(now, owner.circuit, reason);
        } else {
            self.drop_circuit(owner.circuit, reason);
        }
    }

    /// Closes the circuit `index` after its continuation (the next link or circuit) has closed. C
    /// tor does the same since 0.4.7.11 (its issue 40623), because TRUNCATED would leave queued
    /// cells at the relays between the client and this one. The circuit stays open if another
    /// parallel core (shard) closed the continuation to report the outcome of an introduction.
    fn cut_off(&mut self, now: Time, index: u32, reason: DestroyReason) {
        if !self.introduced_by_sibling(now, index, reason) {
            self.tear_down(index, reason);
        }
    }

    /// Closes the circuit `index` towards the client and towards the next relay.
    pub(super) fn tear_down(&mut self, index: u32, reason: DestroyReason) {
        let Some(circuit) = self.circuits.get(index) else { return };
        if let Some(set) = circuit.trunk_of {
            self.leave_trunk(set, reason);
            return self.note_trunk_closed(set, reason);
        }
        let link_circuit = circuit.previous;
        self.channels.destroy(link_circuit, reason);
        self.drop_circuit(index, reason);
    }

    /// Removes the circuit `index` after the client's side closed it, and closes its continuation.
    pub(super) fn drop_circuit(&mut self, index: u32, reason: DestroyReason) {
        let Some(circuit) = self.circuits.remove(index) else { return };
        self.channels.leave(circuit.previous);
        if let Some(next) = circuit.next.link_circuit() {
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

    /// Rejects a cell because of `fault`. Closes the circuit with the cell's ID, if there is one.
    pub(super) fn refuse(&mut self, link_circuit: LinkCircuit, fault: CircuitFault) {
        self.violated(link_circuit.link, fault);
        match self.channels.owner(link_circuit) {
            Some(owner) => self.tear_down(owner.circuit, DestroyReason::PROTOCOL),
            None => self.channels.send_control_cell(
                link_circuit,
                Command::DESTROY,
                &[DestroyReason::PROTOCOL.0],
            ),
        }
    }
}
