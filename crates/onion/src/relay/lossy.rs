//! A relay's lossy circuits, whose cells travel in datagrams (`docs/spec/lossy-circuits.md`):
//! forwarded cells, and streams from here to destinations. All parallel circuits (legs) of a set
//! are in the shard (parallel core) that has the set's first leg.

use std::net::IpAddr;

use anabranch_multipath::Time;

use super::circuit::Next;
use super::conflux::Request;
use super::{Output, Relay};
use crate::channels::{LinkCircuit, Owner};
use crate::conflux::{ConfluxFault, LegScheduler};
use crate::crypto::lossy::Outward;
use crate::event::CircuitFault;
use crate::padding::Usage;
use crate::set::lossy_legs::{LossyLegs, MOST_LEGS};
use crate::set_table::SetLocation;
use crate::stream::StreamKey;
use crate::table::SetId;
use crate::wire::cell::{Body, Command, read_across};
use crate::wire::lossy::LossyLink;
use crate::wire::message::{
    ADDRESS_TTL, Begin, EndReason, RelayCommand, put_connected, put_refusal,
};

impl Relay {
    /// Handles a lossy cell (sent in a datagram) of the circuit of `owner`, given the cell's
    /// counter and its body.
    pub(super) fn take_lossy_cell(
        &mut self,
        now: Time,
        owner: Owner,
        (counter, body): (u32, &mut Body),
    ) {
        let cell = (Command::RELAY_LOSSY, counter);
        let Some(circuit) = self.circuits.get_mut(owner.circuit) else { return };
        let (back, onward) = (circuit.previous, circuit.next.link_circuit());
        if circuit.passes_lossy() {
            let link_circuit = if owner.outward { Some(back) } else { onward };
            link_circuit
                .into_iter()
                .for_each(|link_circuit| self.send_lossy(now, link_circuit, (counter, &*body)));
            return;
        }
        let is_last = !matches!(circuit.next, Next::Open(_));
        let Some(lossy) = circuit.lossy_layers() else {
            return self.break_off(owner.circuit, CircuitFault::Message);
        };
        let taken = match owner.outward {
            true => lossy.inward(cell, body).map(|()| Some(back)),
            false => lossy.outward(cell, body, is_last).map(|whose| match whose {
                Outward::Ours => None,
                Outward::Onward => onward,
            }),
        };
        match taken {
            Ok(Some(link_circuit)) => self.send_lossy(now, link_circuit, (counter, &*body)),
            Ok(None) => {
                let most = self.role.config.max_streams;
                self.take_content(now, owner.circuit, body, most);
            }
            Err(refusal) => self.refuse_lossy(owner.circuit, refusal),
        }
    }

    /// Connects the stream `id` to the destination in `data`, the data of a BEGIN message. Ends
    /// the stream if the exit refuses it.
    pub(super) fn begin_lossy(&mut self, now: Time, index: u32, id: u16, data: &[u8]) {
        let Some(begin) = Begin::read(data) else {
            return self.break_off(index, CircuitFault::Message);
        };
        let refusal = self.refusal(index, RelayCommand::BEGIN);
        let Some(set_id) = self.set_of(index) else { return };
        let key = self.streams.add(set_id, id);
        if let Some(lossy) = self.sets.get_mut(set_id).and_then(|set| set.lossy.as_mut()) {
            lossy.name(id, key);
        }
        let address = begin.host.parse().ok();
        match (refusal, address) {
            (Some(EndReason::EXIT_POLICY), Some(address)) => {
                self.refused(now, key, (address, ADDRESS_TTL));
            }
            (Some(reason), _) => self.end(now, key, reason),
            (None, _) => {
                self.mark_circuit(index, Usage::Streams);
                self.put(Output::Connect { stream: key, begin });
            }
        }
    }

    /// Handles a lossy cell (a cell for datagrams) from another parallel core (shard) of this
    /// relay. That shard has either the circuit's link or this relay's end of the circuit.
    pub(super) fn take_across(&mut self, now: Time, link_circuit: LinkCircuit, content: &mut [u8]) {
        let Some(cell) = read_across(content) else {
            return self.refuse(link_circuit, CircuitFault::Message);
        };
        match self.channels.owner(link_circuit) {
            Some(owner) => self.take_lossy_cell(now, owner, cell),
            None => self.lossy.unknown += 1,
        }
    }

    /// Adds the circuit `index`, whose cells travel in datagrams, to a set of parallel circuits.
    /// `data` is the data of LOSSY_LINK, and identifies the set. Creates the set if it does not
    /// exist. If the set belongs to another parallel core (shard) of this relay, transfers the
    /// circuit to that shard.
    ///
    /// # Errors
    /// The circuit cannot join a set, or the set is full.
    pub(super) fn link_lossy(
        &mut self,
        now: Time,
        index: u32,
        data: &[u8],
    ) -> Result<(), CircuitFault> {
        let link = LossyLink::read(data).ok_or(CircuitFault::Message)?;
        self.join_lossy(now, index, link)
    }

    /// Adds the circuit `index`, whose cells travel in datagrams, to a set of parallel circuits,
    /// given the parsed fields of LOSSY_LINK. See [`Relay::link_lossy`].
    pub(super) fn join_lossy(
        &mut self,
        now: Time,
        index: u32,
        link: LossyLink,
    ) -> Result<(), CircuitFault> {
        let own = self.set_of(index).ok_or(CircuitFault::Message)?;
        if !self.sets.get_mut(own).is_some_and(|set| set.may_be_linked()) {
            return Err(CircuitFault::Message);
        }
        let place = SetLocation { shard: self.role.shard, set: own.0 };
        match self.role.sets.enter(&link.nonce, place) {
            None => {
                let (seed, dealing) =
                    (self.rng.next_u64(), LegScheduler::read(&link.dealing, MOST_LEGS));
                let legs = dealing.and_then(|dealing| LossyLegs::new(link.nonce, &dealing, seed));
                let Some(legs) = legs else {
                    self.role.sets.leave(&link.nonce, place);
                    return Err(CircuitFault::Message);
                };
                self.start_lossy_set(index, legs, None);
            }
            Some(found) if found.shard != self.role.shard => {
                return self.hand_over(now, index, found.shard, Request::Lossy(link));
            }
            Some(found) => {
                if !self.join_lossy_set(index, SetId(found.set), None) {
                    return Err(ConfluxFault::Full.into());
                }
            }
        }
        self.originate(now, index, RelayCommand::LOSSY_LINKED, &[]);
        Ok(())
    }

    /// Notifies the client that the stream `key` is connected to `reached`. Returns false if the
    /// stream does not use lossy cells (sent in datagrams).
    pub(super) fn lossy_connected(
        &mut self,
        now: Time,
        key: StreamKey,
        reached: Option<(IpAddr, u32)>,
    ) -> bool {
        self.answer_lossy(now, key, RelayCommand::CONNECTED, &put_connected(reached))
    }

    /// Notifies the client that the exit policy does not allow `address`, the destination of the
    /// stream `key`. Returns false if the stream does not use lossy cells (sent in datagrams).
    pub(super) fn lossy_refused(
        &mut self,
        now: Time,
        key: StreamKey,
        (address, ttl): (IpAddr, u32),
    ) -> bool {
        let is_lossy = self.answer_lossy(now, key, RelayCommand::END, &put_refusal(address, ttl));
        if is_lossy {
            self.streams.remove(key);
        }
        is_lossy
    }

    fn answer_lossy(
        &mut self,
        now: Time,
        key: StreamKey,
        command: RelayCommand,
        data: &[u8],
    ) -> bool {
        let Some((set, id)) = self.streams.live(key) else { return false };
        let Some(lossy) = self.sets.lossy_of(set, id, key) else { return false };
        lossy.answer(id, command, data);
        self.pump_lossy(now, set);
        true
    }
}
