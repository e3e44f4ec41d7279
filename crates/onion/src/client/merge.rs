//! A client's sets whose legs join at a middle relay (`docs/spec/middle-merge.md`). The legs carry
//! the cells of one circuit, the trunk. The trunk continues from the middle relay to the exit, and
//! has the streams.

use anabranch_multipath::Time;

use super::circuit::Circuit;
use super::lossy::LossyLayers;
use super::{Cause, CircuitKey, Client, Hop, NoSet, Output};
use crate::event::CircuitFault;
use crate::table::SetId;
use crate::wire::cell::{Body, Command};

impl Client {
    /// Makes a complete, unused `circuit` the first leg of a set whose legs join at the last relay
    /// of `circuit`. The set continues from that relay over the hops `beyond`, at least one hop.
    /// After [`Output::Linked`], streams can be opened on `circuit`. Further legs end at the same
    /// relay and join the set with [`Client::link`].
    ///
    /// # Errors
    /// Returns [`NoSet`] if the circuit cannot begin such a set.
    pub fn merge(&mut self, now: Time, circuit: CircuitKey, beyond: Vec<Hop>) -> Result<(), NoSet> {
        if beyond.is_empty() || !self.role.design.is_merged() {
            return Err(NoSet::Beyond);
        }
        self.link_leg(now, circuit, None)?;
        let (_, id) = self.place(circuit).ok_or(NoSet::Gone)?;
        let trunk = self.circuits.insert(Circuit {
            key: circuit,
            first_hop: None,
            trunk_of: Some(id),
            wanted: beyond.into(),
            pending: None,
            requested: now,
            layers: Vec::new(),
            lossy: LossyLayers::None,
            leg: None,
            last_id: self.rng.next_u32() as u16,
            cells: [0; 2],
        });
        let trunk_state = self.sets.several(id).and_then(|several| several.trunk_state.as_mut());
        trunk_state.ok_or(NoSet::Gone)?.trunk = Some(trunk);
        self.extend(now, trunk);
        Ok(())
    }

    /// Returns the set that has the streams of the circuit `key`. For a present or former leg of a
    /// set whose legs join at a middle relay, this is the set of the trunk (the circuit that
    /// continues from that relay). Returns `None` if there is no such set.
    pub(super) fn streams_of(&self, key: CircuitKey) -> Option<SetId> {
        let id = self.set_named(key)?;
        match self.sets.get(id)?.is_merged() {
            true => self.streams_set_over(id),
            false => Some(id),
        }
    }

    /// Returns the circuit set of the leg `index`, if the set's legs join at a middle relay.
    pub(super) fn merged_set_of(&self, index: u32) -> Option<SetId> {
        let id = self.set_of(index)?;
        self.sets.get(id)?.is_merged().then_some(id)
    }

    /// Returns the trunk (the circuit that continues where the set's legs join) of the set that
    /// has the circuit `index` as a leg. Returns `None` if there is no such set.
    pub(super) fn trunk_over(&self, index: u32) -> Option<u32> {
        self.sets.trunk_of(self.merged_set_of(index)?)
    }

    /// Returns true if the circuit set `id` continues after it has lost all legs, because new legs
    /// can join it. A set ends if its trunk (the circuit after the joined legs) is incomplete.
    pub(super) fn goes_on(&self, id: SetId) -> bool {
        let trunk = self.sets.trunk_of(id).and_then(|trunk| self.circuits.get(trunk));
        trunk.is_none_or(|trunk| trunk.leg.is_some())
    }

    /// Returns true if the set `id` was begun with the circuit `key`, and its trunk (the circuit
    /// after the joined legs) is incomplete.
    pub(super) fn lacks_trunk(&self, id: SetId, key: CircuitKey) -> bool {
        let trunk = self.sets.trunk_of(id).and_then(|trunk| self.circuits.get(trunk));
        trunk.is_some_and(|trunk| trunk.key == key && trunk.leg.is_none())
    }

    /// Records that a set's trunk (the circuit that continues where the legs join) is complete.
    /// The set was begun with `circuit`.
    pub(super) fn merged(&mut self, circuit: CircuitKey) {
        let several = self.set_named(circuit).and_then(|id| self.sets.several(id));
        let rtt = several.map(|several| several.end.longest_rtt()).unwrap_or_default();
        self.put(Output::Linked { circuit, rtt });
    }

    /// Handles a cell on the circuit `index` that no relay of this circuit sent. The cell may
    /// belong to the trunk (the circuit that continues where the set's legs join).
    pub(super) fn take_unrecognised(&mut self, now: Time, index: u32, body: &mut Body) {
        let set = self.merged_set_of(index).ok_or(CircuitFault::Unrecognised);
        let taken =
            set.and_then(|id| self.take_cell_by_leg(now, id, index, (Command::RELAY, body)));
        if let Err(fault) = taken {
            self.break_off(index, fault);
        }
    }

    /// Ends the circuit set `id` because of an event on its trunk (the circuit that continues
    /// where the set's legs join).
    pub(super) fn end_merged(&mut self, id: SetId, cause: Cause) {
        let circuits = self.forget_set(id);
        circuits.into_iter().for_each(|leg| self.tear_down(leg, cause));
    }

    /// Removes the trunk (the circuit that continues where the set's legs join) of a set that has
    /// ended, and ends the trunk's streams.
    pub(super) fn leave_trunk(&mut self, id: SetId) {
        let trunk_state = self.sets.several(id).and_then(|several| several.trunk_state.as_mut());
        if let Some(trunk) = trunk_state.and_then(|trunk_state| trunk_state.trunk.take()) {
            self.drop_circuit(trunk, Cause::SetEnded);
        }
    }
}
