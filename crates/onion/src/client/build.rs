//! Building circuits, hop by hop.

use anabranch_multipath::Time;

use super::circuit::Circuit;
use super::lossy::LossyLayers;
use super::pending::{Agreement, Pending};
use super::{Cause, CircuitKey, Client, Hop, Output};
use crate::channels::{LinkId, Owner};
use crate::event::CircuitFault;
use crate::leg::Leg;
use crate::padding::Usage;
use crate::set::Set;
use crate::stream::Side;
use crate::wire::cell::{BODY, Body, Command};
use crate::wire::extend::{self, Extend};
use crate::wire::message::RelayCommand;

impl Client {
    pub(super) fn build(&mut self, now: Time, key: CircuitKey, hops: Vec<Hop>) {
        let Some(target) = hops.first().map(|hop| hop.target.clone()) else {
            let cause = Cause::Violation(CircuitFault::Extend.into());
            return self.put(Output::CircuitClosed { circuit: key, hops: 0, cause });
        };
        let lossy = LossyLayers::of(&hops);
        let is_lossy = !matches!(lossy, LossyLayers::None);
        let index = self.circuits.insert(Circuit {
            key,
            first_hop: None,
            trunk_of: None,
            wanted: hops.into(),
            pending: None,
            requested: now,
            layers: Vec::new(),
            lossy,
            leg: None,
            last_id: self.rng.next_u32() as u16,
            cells: [0; 2],
        });
        self.role.keys.insert(key, index);
        let link = match is_lossy {
            true => self.channels.to_lossy(&target),
            false => self.channels.to(&target),
        };
        match link {
            Some(link) => self.create(now, index, link),
            None if is_lossy => self.reach_lossy(now, target, index),
            None => self.dial(target, index),
        }
    }

    pub(super) fn create(&mut self, now: Time, index: u32, link: LinkId) {
        let owner = Owner { circuit: index, outward: true };
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let Some(hop) = circuit.wanted.front() else { return };
        let started = Pending::start(&mut *self.rng, hop);
        let link_circuit = self.channels.make(link, owner, &mut *self.rng);
        let (Some((pending, kind, message)), Some(link_circuit)) = (started, link_circuit) else {
            return self.tear_down(index, Cause::Violation(CircuitFault::CircuitId.into()));
        };
        circuit.first_hop = Some(link_circuit);
        (circuit.pending, circuit.requested) = (Some(pending), now);
        let (command, content) = match kind {
            Some(kind) => (Command::CREATE2, extend::put_create2(kind, &message)),
            None => (Command::CREATE_FAST, message),
        };
        let mut body = [0; BODY];
        body[..content.len()].copy_from_slice(&content);
        self.channels.push(now, link_circuit, command, &body);
    }

    /// Handles CREATED2 or CREATED_FAST from the first relay.
    pub(super) fn created(&mut self, now: Time, index: u32, command: Command, body: &Body) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let fits = match circuit.pending {
            Some(Pending::Fast(_)) => command == Command::CREATED_FAST,
            Some(_) => command == Command::CREATED2,
            None => false,
        };
        let reply = match command {
            Command::CREATED_FAST => Some(&body[..]),
            _ => extend::read_created2(body),
        };
        match reply.filter(|_| fits && circuit.layers.is_empty()) {
            Some(reply) => self.finish(now, index, reply),
            None => self.break_off(index, CircuitFault::Message),
        }
    }

    /// Handles EXTENDED2: a relay after the first one has accepted the circuit.
    pub(super) fn extended(&mut self, now: Time, index: u32, data: &[u8]) {
        let Some(circuit) = self.circuits.get(index) else { return };
        let is_begun = !circuit.layers.is_empty() || circuit.trunk_of.is_some();
        let expected = circuit.pending.is_some() && is_begun;
        match extend::read_created2(data).filter(|_| expected) {
            Some(reply) => self.finish(now, index, reply),
            None => self.break_off(index, CircuitFault::Message),
        }
    }

    fn finish(&mut self, now: Time, index: u32, reply: &[u8]) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let Some(pending) = circuit.pending.take() else { return };
        let Agreement { keys, lossy, agreed } = match pending.finish(reply, &self.role.params) {
            Ok(agreement) => agreement,
            Err(refused) => return self.break_off(index, CircuitFault::Handshake(refused)),
        };
        circuit.wanted.pop_front();
        if !circuit.lossy.add(lossy, circuit.wanted.is_empty()) {
            return self.not_lossy(index);
        }
        circuit.layers.push(self.crypto.in_use(keys).client_layer());
        let (key, hops, is_complete) =
            (circuit.key, circuit.layers.len(), circuit.wanted.is_empty());
        let is_trunk = circuit.trunk_of.is_some();
        if is_complete {
            let mut set = Set::new(Side::Client, agreed, &self.role.params, index)
                .with_congestion(self.lossy_congestion);
            set.streams.number_from(circuit.last_id);
            let lossy = set.lossy.iter_mut();
            lossy.for_each(|lossy| lossy.expect_rtt(now.since(circuit.requested)));
            let set = self.sets.insert(set);
            circuit.leg = Some((set, Leg::new(agreed, &self.role.params)));
        }
        if let Some(link_circuit) = circuit.first_hop.filter(|_| is_complete && hops > 1) {
            self.mark_link(link_circuit.link, Usage::Circuits);
        }
        if is_trunk {
            return if is_complete { self.merged(key) } else { self.extend(now, index) };
        }
        self.put(Output::Extended { circuit: key, hops });
        if is_complete {
            self.put(Output::Built { circuit: key, cgo: agreed.cgo });
        } else {
            self.extend(now, index);
        }
    }

    pub(super) fn extend(&mut self, now: Time, index: u32) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let Some(hop) = circuit.wanted.front() else { return };
        let started = Pending::start(&mut *self.rng, hop);
        let Some((pending, Some(kind), handshake)) = started else {
            return self.tear_down(index, Cause::Violation(CircuitFault::Extend.into()));
        };
        let data = Extend { target: hop.target.clone(), kind, handshake }.write();
        (circuit.pending, circuit.requested) = (Some(pending), now);
        // The first EXTEND2 of a trunk is sent on a leg, to the relay where the legs join.
        let trunk_of = circuit.trunk_of.filter(|_| circuit.layers.is_empty());
        let by = trunk_of.map_or(Some(index), |set| self.sets.several(set)?.circuits().next());
        let Some(by) = by else { return };
        self.send_relay_cell(now, by, Command::RELAY_EARLY, RelayCommand::EXTEND2, &data);
    }
}
