//! Sets of parallel circuits (proposal 329, and earlier designs), at the exit.
//!
//! All circuits (legs) of a set are in the shard (parallel core) that has the set's first leg. If
//! a leg arrives at another shard, that shard hands over the leg with its keys. The leg's cells
//! continue on the link between the two shards.

use anabranch_multipath::Time;

use super::Relay;
use super::circuit::{Circuit, Next, Own};
use crate::channels::{LinkCircuit, Owner};
use crate::conflux::{Closes, ConfluxFault, Design, LegScheduler, Limits};
use crate::ending::Ending;
use crate::event::CircuitFault;
use crate::node::CloseCause;
use crate::set::{Route, Set, SetLegs};
use crate::set_table::SetLocation;
use crate::table::SetId;
use crate::wire::ancestors::AncestorLink;
use crate::wire::cell::{BODY, Body, Command};
use crate::wire::conflux::{ConfluxLink, DesiredUx};
use crate::wire::lossy::LossyLink;
use crate::wire::message::{DestroyReason, Message, RelayCommand};
use crate::wire::resilient::{self, ResilientLink};

/// Desired UX sent to clients, which asks them to send on all legs (parallel circuits). Without
/// this request from the exit, C tor's clients send on one leg only.
const UX: DesiredUx = DesiredUx::HighThroughput;

/// A leg (parallel circuit) that one parallel core (shard) of this relay hands over to another.
struct HandedLeg {
    own: Own,
    /// The circuit set that the leg (parallel circuit) had before, with no other circuit in it.
    set: Set,
    by_relay: bool,
    request: Request,
}

/// A client's request to add a circuit to a set, for a circuit that one parallel core (shard) of
/// this relay hands over to another.
pub(super) enum Request {
    Several(LegRequest),
    /// The request for a leg that is a lossy circuit (whose cells travel in datagrams).
    Lossy(LossyLink),
}

/// A client's request to make a circuit a leg (parallel circuit) of a set.
pub(super) struct LegRequest {
    design: Design,
    link: ConfluxLink,
    /// Scheduler that the client requests for messages from this relay; `None` if it requests
    /// none.
    dealing: Option<LegScheduler>,
    /// The serial number of the leg (parallel circuit) in its set, in designs with serial numbers.
    serial: u32,
    /// True if the circuit set must already exist at this relay; false if the request may create
    /// it.
    resumes: bool,
}

impl LegRequest {
    /// Parses a LINK message of any design, for a circuit set of at most `legs` legs (parallel
    /// circuits).
    ///
    /// # Errors
    /// The message is malformed, or asks for an unknown scheduler.
    fn read(
        message: Message<'_>,
        congestion_control: bool,
        legs: usize,
    ) -> Result<LegRequest, ConfluxFault> {
        if message.command == RelayCommand::CONFLUX_LINK {
            let link = ConfluxLink::read(message.data).ok_or(ConfluxFault::Unreadable)?;
            let design = Design::Conflux;
            return Ok(LegRequest { design, link, dealing: None, serial: 0, resumes: false });
        }
        if matches!(message.data.first(), Some(&(resilient::VERSION | resilient::MERGED))) {
            let reply = ResilientLink::read(message.data).ok_or(ConfluxFault::Unreadable)?;
            let ResilientLink { merged, resumes, nonce, serial, dealing } = reply;
            let link = ConfluxLink { nonce, sent: 0, received: 0, ux: UX };
            let design = if merged { Design::Merged } else { Design::Resilient };
            let dealing = read_dealing(&dealing, legs)?;
            return Ok(LegRequest { design, link, dealing, serial, resumes });
        }
        let reply = AncestorLink::read(message.data).ok_or(ConfluxFault::Unreadable)?;
        let AncestorLink { design, nonce, dealing } = reply;
        let design = Design::ancestor_over(design, congestion_control);
        let link = ConfluxLink { nonce, sent: 0, received: 0, ux: DesiredUx::default() };
        let dealing = read_dealing(&dealing, legs)?;
        Ok(LegRequest { design, link, dealing, serial: 0, resumes: false })
    }

    /// Returns the data of the LINKED message that answers this request, in the format of the
    /// circuit set's design. `linked` contains the fields for proposal 329. Other designs use only
    /// the nonce in `linked`.
    fn answer(&self, linked: &ConfluxLink) -> Vec<u8> {
        let (nonce, dealing) = (linked.nonce, String::new());
        let message = match (self.design, self.design.ancestor()) {
            (Design::Resilient | Design::Merged, _) => {
                let LegRequest { serial, resumes, .. } = *self;
                let merged = self.design.is_merged();
                ResilientLink { merged, resumes, nonce, serial, dealing }.write()
            }
            (_, Some(design)) => AncestorLink { design, nonce, dealing }.write(),
            (_, None) => Some(linked.write().to_vec()),
        };
        message.expect("the message is short, because it requests no scheduler")
    }
}

/// Parses the scheduler that a client requests for our messages on at most `legs` legs (parallel
/// circuits). Returns `None` for an empty text: the design then determines the scheduler.
///
/// # Errors
/// No scheduler of this name supports `legs` legs, or the number of consecutive cells on one leg
/// is invalid.
fn read_dealing(text: &str, legs: usize) -> Result<Option<LegScheduler>, ConfluxFault> {
    if text.is_empty() {
        return Ok(None);
    }
    LegScheduler::read(text, legs).map(Some).ok_or(ConfluxFault::Unreadable)
}

impl Relay {
    /// Handles `message`, which links a circuit to a circuit set or controls the set.
    ///
    /// # Errors
    /// Returns the violation if the client broke the protocol.
    pub(super) fn take_conflux(
        &mut self,
        now: Time,
        index: u32,
        message: Message<'_>,
    ) -> Result<(), CircuitFault> {
        match message.command {
            RelayCommand::CONFLUX_LINK | RelayCommand::ANCESTOR_LINK => {
                self.link(now, index, message)
            }
            RelayCommand::CONFLUX_LINKED_ACK | RelayCommand::ANCESTOR_LINKED_ACK => {
                self.link_acknowledged(now, index, message.command)
            }
            RelayCommand::CONFLUX_SWITCH | RelayCommand::RESILIENT_SWITCH => {
                self.take_switch(now, index, message)
            }
            RelayCommand::RESILIENT_RECEIVED
            | RelayCommand::RESILIENT_GONE
            | RelayCommand::RESILIENT_PROBE => {
                let id = self.set_of(index).ok_or(ConfluxFault::Gone)?;
                self.take_of_legs(now, id, index, message)
            }
            _ => Err(ConfluxFault::Role.into()),
        }
    }

    fn link(&mut self, now: Time, index: u32, message: Message<'_>) -> Result<(), CircuitFault> {
        let circuit = self.circuits.get(index).ok_or(ConfluxFault::Gone)?;
        let is_last = matches!(circuit.next, Next::Nothing);
        let set = circuit.set().and_then(|set| self.sets.get_mut(set));
        let set = set.ok_or(ConfluxFault::Gone)?;
        let (conflux, controlled) =
            (self.role.config.conflux, set.streams.have_congestion_control());
        let linking = LegRequest::read(message, controlled, conflux.max_legs)?;
        if set.several().is_some() {
            return Err(ConfluxFault::Twice.into());
        }
        // The consensus parameter `cfx_enabled` applies to proposal 329 only.
        let is_switched_on = conflux.enabled || linking.design != Design::Conflux;
        let fits = linking.design.has_congestion_control() == controlled;
        if !is_last || !fits || !is_switched_on {
            return Err(ConfluxFault::Role.into());
        }
        if set.streams.were_used() {
            return Err(ConfluxFault::Streams.into());
        }
        self.join(now, index, linking)
    }

    /// Adds the circuit `index` to the set of parallel circuits that the client identifies by a
    /// nonce. Creates the set if it does not exist. If the set belongs to another parallel core
    /// (shard) of this relay, hands the circuit over to that shard.
    fn join(&mut self, now: Time, index: u32, linking: LegRequest) -> Result<(), CircuitFault> {
        let own = self.set_of(index).ok_or(ConfluxFault::Gone)?;
        let here = SetLocation { shard: self.role.shard, set: own.0 };
        if linking.resumes && self.role.sets.find(&linking.link.nonce).is_none() {
            // Not a violation: the set has ended in the meantime.
            self.tear_down(index, DestroyReason::FINISHED);
            return Ok(());
        }
        let circuit = self.circuits.get_mut(index).and_then(Ending::parts);
        let format = circuit.map(|(_, _, layers)| layers.format()).unwrap_or_default();
        let id = match self.role.sets.enter(&linking.link.nonce, here) {
            None => {
                self.allow_several_legs(own, &linking);
                own
            }
            Some(place) if place.shard == self.role.shard => SetId(place.set),
            Some(place) => {
                return self.hand_over(now, index, place.shard, Request::Several(linking));
            }
        };
        let several = self.sets.several(id).ok_or(ConfluxFault::Gone)?;
        if several.design != linking.design || !several.takes_format(format) {
            return Err(ConfluxFault::Design.into());
        }
        if several
            .end
            .retransmitter()
            .is_some_and(|retransmitter| retransmitter.leg(linking.serial).is_some())
        {
            return Err(ConfluxFault::Twice.into());
        }
        let linked = several.end.link(now, &linking.link, true, UX);
        let (leg, linked) = linked.inspect_err(|fault| {
            if id == own || fault.closes() == Closes::Set {
                self.end_set(id, CloseCause::Set);
            }
        })?;
        self.sets.several(id).into_iter().for_each(|several| {
            several.end.name(leg, linking.serial);
            several.add(leg, index);
        });
        if id != own {
            self.sets.remove(own);
            self.circuits.get_mut(index).into_iter().for_each(|circuit| circuit.move_to(id));
        }
        if linking.design.is_merged() {
            self.pass_cells_by(index);
        }
        let [_, command, _] = linking.design.link_commands();
        self.originate(now, index, command, &linking.answer(&linked));
        self.await_links(id);
        if linking.design.is_resilient() {
            self.pump(now, id);
        }
        Ok(())
    }

    /// Converts the set `id`, which has one circuit so far, so that other circuits can join it.
    fn allow_several_legs(&mut self, id: SetId, linking: &LegRequest) {
        let (design, seed) = (linking.design, self.rng.next_u64());
        let dealing = self.role.config.dealing.clone().or_else(|| linking.dealing.clone());
        let limits = Limits { legs: self.role.config.conflux.max_legs, ..Limits::default() };
        let end = design.exit_end(linking.link.nonce, limits);
        if let Some(set) = self.sets.get_mut(id) {
            set.streams.adopt(design);
            set.route = Route::Several(Box::new(SetLegs::new(end, design, dealing, seed)));
        }
    }

    fn take_switch(
        &mut self,
        now: Time,
        index: u32,
        message: Message<'_>,
    ) -> Result<(), CircuitFault> {
        let id = self.set_of(index).ok_or(ConfluxFault::Gone)?;
        if self.sets.several(id).is_none() {
            return Err(ConfluxFault::NotLinked.into());
        }
        self.take_by_leg(now, id, index, message)
    }

    /// Returns true if the circuit `index` is a leg of a set that may have several legs (parallel
    /// circuits). Directory requests, extending the circuit, and introduction or rendezvous points
    /// are forbidden on legs.
    pub(super) fn is_leg(&mut self, index: u32) -> bool {
        self.set_of(index).is_some_and(|set| self.sets.several(set).is_some())
    }

    fn link_acknowledged(
        &mut self,
        now: Time,
        index: u32,
        command: RelayCommand,
    ) -> Result<(), CircuitFault> {
        let id = self.set_of(index).ok_or(ConfluxFault::Gone)?;
        let several = self.sets.several(id).ok_or(ConfluxFault::NotLinked)?;
        let [.., acknowledgement] = several.design.link_commands();
        if command != acknowledgement {
            return Err(ConfluxFault::Design.into());
        }
        let leg = several.leg(index).ok_or(ConfluxFault::NotLinked)?;
        several.end.acknowledged(now, leg)?;
        self.pump(now, id);
        Ok(())
    }

    /// Hands the leg `index` (parallel circuit) over to the parallel core (shard) that has its
    /// set. From now on this shard only forwards the leg's cells.
    pub(super) fn hand_over(
        &mut self,
        now: Time,
        index: u32,
        shard: usize,
        request: Request,
    ) -> Result<(), CircuitFault> {
        let by_relay = self.is_from_relay(index);
        let sibling = self.channels.sibling(shard).ok_or(ConfluxFault::Gone)?;
        let owner = Owner { circuit: index, outward: true };
        let link_circuit =
            self.channels.make(sibling, owner, &mut *self.rng).ok_or(ConfluxFault::Gone)?;
        let circuit = self.circuits.get_mut(index).ok_or(ConfluxFault::Gone)?;
        let own = circuit.give_away(link_circuit).ok_or(ConfluxFault::Gone)?;
        let set = self.sets.remove(own.set).ok_or(ConfluxFault::Gone)?;
        let number = self.role.sets.hand_over(Box::new(HandedLeg { own, set, by_relay, request }));
        self.circuits.get_mut(index).into_iter().for_each(|circuit| circuit.ticket = Some(number));
        let mut body = [0; BODY];
        body[..8].copy_from_slice(&number.to_be_bytes());
        self.channels.push(now, link_circuit, Command::ADOPT, &body);
        Ok(())
    }

    /// Takes over a leg (parallel circuit) that arrived at another parallel core (shard) of this
    /// relay, for a set of this shard.
    pub(super) fn adopt(&mut self, now: Time, link_circuit: LinkCircuit, body: &Body) {
        let number = body.first_chunk().map(|number| u64::from_be_bytes(*number));
        let orphan = number.and_then(|number| self.role.sets.take_over(number));
        let orphan = orphan.and_then(|orphan| orphan.downcast::<HandedLeg>().ok());
        let circuit = self.circuits.next_index();
        let accepted = self.channels.accept(link_circuit, Owner { circuit, outward: false });
        let Some(orphan) = orphan.filter(|_| accepted) else {
            return self.refuse(link_circuit, CircuitFault::Message);
        };
        let HandedLeg { mut own, mut set, by_relay, request } = *orphan;
        set.route = Route::One(circuit);
        own.set = self.sets.insert(set);
        own.by_relay = Some(by_relay);
        self.circuits.insert(Circuit::new(link_circuit, Some(own)));
        let joined = match request {
            Request::Several(linking) => self.join(now, circuit, linking),
            Request::Lossy(link) => self.join_lossy(now, circuit, link),
        };
        if let Err(fault) = joined {
            self.break_off(circuit, fault);
        }
    }
}
