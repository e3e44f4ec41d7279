//! Sets of parallel circuits (legs) that join at this relay. One circuit, the *trunk*, continues
//! from here (`docs/spec/middle-merge.md`). The later relays treat the trunk as an ordinary
//! circuit.

use anabranch_multipath::Time;

use super::Relay;
use super::circuit::Circuit;
use crate::conflux::ConfluxFault;
use crate::ending::Ending;
use crate::event::CircuitFault;
use crate::table::SetId;
use crate::wire::cell::{Body, Command};
use crate::wire::extend::Extend;
use crate::wire::message::{DestroyReason, RelayCommand};

impl Relay {
    /// Handles the client's request to extend a circuit set to the relay after this one.
    ///
    /// # Errors
    /// The set's legs (parallel circuits) do not join here, the set is already extended, or it may
    /// not be extended to the requested relay.
    pub(super) fn extend_set(
        &mut self,
        now: Time,
        index: u32,
        command: Command,
        data: &[u8],
    ) -> Result<(), CircuitFault> {
        let id = self.merged_set_of(index).ok_or(ConfluxFault::Role)?;
        let wish = Extend::read(data).filter(|_| command == Command::RELAY_EARLY);
        let wish = wish.filter(|wish| self.may_extend(index, &wish.target));
        let wish = wish.ok_or(CircuitFault::Extend)?;
        if !self.is_allowed(&wish.target) {
            self.tear_down(index, DestroyReason::CONNECT_FAILED);
            return Ok(());
        }
        let trunk = self.circuits.next_index();
        let trunk_state = self.sets.several(id).and_then(|several| several.trunk_state.as_mut());
        let trunk_state = trunk_state
            .filter(|trunk_state| trunk_state.trunk.is_none() && !trunk_state.is_closed());
        trunk_state.ok_or(CircuitFault::Extend)?.trunk = Some(trunk);
        self.circuits.insert(Circuit::trunk(id));
        self.head_for(now, trunk, wish);
        Ok(())
    }

    /// Lets the leg `index` carry cells of the trunk (the circuit that continues where the set's
    /// legs join) from now on. The leg's initial window is large, because the trunk has its own
    /// window.
    pub(super) fn pass_cells_by(&mut self, index: u32) {
        let parts = self.circuits.get_mut(index).and_then(Ending::parts);
        if let Some((_, Some(leg), _)) = parts {
            leg.pass_cells(&self.role.config.params);
        }
    }

    /// Returns the circuit set that the circuit `index` belongs to, if the set's circuits join at
    /// this relay.
    fn merged_set_of(&self, index: u32) -> Option<SetId> {
        let id = self.set_of(index)?;
        self.sets.get(id)?.is_merged().then_some(id)
    }

    /// Sends EXTENDED2 for the trunk of the set `id` (the circuit that continues where its legs
    /// join) to the client, on any one leg.
    pub(super) fn send_trunk_answer(&mut self, now: Time, id: SetId, data: &[u8]) {
        let leg = self.sets.several(id).and_then(|several| several.preferred());
        self.send_control_by(now, id, leg, RelayCommand::EXTENDED2, data);
    }

    /// Handles a cell that arrived on the leg `index` and is not addressed to this relay. The cell
    /// must belong to the trunk (the circuit that continues where the set's legs join). Any other
    /// cell is a violation.
    pub(super) fn pass_by_leg(&mut self, now: Time, index: u32, command: Command, body: &mut Body) {
        let set = self.merged_set_of(index).ok_or(CircuitFault::Unrecognised);
        let taken = set.and_then(|id| self.take_cell_by_leg(now, id, index, (command, body)));
        if let Err(fault) = taken {
            self.break_off(index, fault);
        }
    }

    /// Queues a cell of the trunk of the set `id` (the circuit that continues where its legs
    /// join), to be sent to the client.
    pub(super) fn pass_back(&mut self, id: SetId, command: Command, body: &Body) {
        self.role.stats.relayed += 1;
        let most = self.role.config.max_queue;
        let Some(several) = self.sets.several(id) else { return };
        if several.trunk_state.as_ref().is_some_and(|trunk_state| trunk_state.len() >= most) {
            return self.break_set(id, CircuitFault::Flood);
        }
        several.push_cell(command, body);
        self.deal_later(id);
    }

    /// Closes the trunk of the set `id` (the circuit that continues where its legs join), if there
    /// is one.
    pub(super) fn leave_trunk(&mut self, id: SetId, reason: DestroyReason) {
        let trunk_state = self.sets.several(id).and_then(|several| several.trunk_state.as_mut());
        if let Some(trunk) = trunk_state.and_then(|trunk_state| trunk_state.trunk.take()) {
            self.drop_circuit(trunk, reason);
        }
    }
}
