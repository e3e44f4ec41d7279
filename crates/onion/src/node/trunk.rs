//! Sets of parallel circuits (legs) that join at a middle relay: distribution of the trunk's cells
//! among the legs, and handling of cells received on the legs (`docs/spec/middle-merge.md`).
//!
//! The *trunk* is the circuit that continues from the relay at which the legs join. It is an
//! ordinary circuit, except that the legs of a set carry its cells. At the client, the trunk has
//! the streams, and the encryption layers of the hops after the joining relay. At the joining
//! relay, it has the link and circuit ID to the next hop.

use anabranch_multipath::{PathId, Time};

use super::several::Port;
use super::{CloseCause, Node, NodeRole, Timer};
use crate::conflux::{Acknowledged, Arrival, Closes, ConfluxFault};
use crate::ending::{Carrier, Ending};
use crate::event::CircuitFault;
use crate::set::QUEUE_HIGH;
use crate::set::trunk::{TrunkState, as_cell, as_message};
use crate::table::SetId;
use crate::wire::cell::{Body, Command};
use crate::wire::message::{DestroyReason, RelayCommand};

impl<R: NodeRole> Node<R> {
    /// Queues a cell of the trunk (the circuit that continues where the set's legs join), to be
    /// sent on a leg of the set `id`.
    pub(crate) fn send_on_legs(&mut self, now: Time, id: SetId, command: Command, body: &Body) {
        self.sets.several(id).into_iter().for_each(|several| several.push_cell(command, body));
        self.deal_cells(now, id);
        self.await_leg_actions(id);
    }

    /// Queues several cells of the trunk (the circuit that continues where the set's legs join),
    /// to be sent on legs of the set `id`.
    pub(super) fn send_all_on_legs(&mut self, now: Time, id: SetId, cells: &[Body]) {
        if let Some(several) = self.sets.several(id) {
            cells.iter().for_each(|body| several.push_cell(Command::RELAY, body));
        }
        self.deal_cells(now, id);
        self.await_leg_actions(id);
    }

    /// Postpones the distribution of queued cells among the parallel circuits (legs) of the set
    /// `id` until all cells that were received together have been handled. Distribution after
    /// every cell would cost more time than handling the cell.
    pub(crate) fn deal_later(&mut self, id: SetId) {
        let trunk_state = self.sets.several(id).and_then(|several| several.trunk_state.as_mut());
        if trunk_state.is_some_and(TrunkState::becomes_undealt) {
            self.undealt.push(id);
        }
    }

    /// Distributes the queued cells of all circuit sets for which [`Node::deal_later`] was called.
    pub(super) fn deal_undealt(&mut self, now: Time) {
        while let Some(id) = self.undealt.pop() {
            let trunk_state =
                self.sets.several(id).and_then(|several| several.trunk_state.as_mut());
            trunk_state.into_iter().for_each(TrunkState::sees_dealing);
            self.deal_cells(now, id);
            self.recount(id);
            self.await_leg_actions(id);
            // The queue has room again, so the streams on the trunk may send more.
            if let Some(above) = self.streams_set_over(id) {
                self.pump(now, above);
            }
        }
    }

    /// Returns the number of queued cells of `circuit`. These cells wait for the circuit's link,
    /// or for the legs (parallel circuits) that carry the circuit's cells. Returns `None` if there
    /// is no such circuit.
    pub(crate) fn waiting_of(&mut self, circuit: u32) -> Option<usize> {
        let (carrier, ..) = self.circuits.get_mut(circuit).and_then(R::Circuit::parts)?;
        match carrier {
            Carrier::Link(link_circuit) => Some(self.channels.waiting(link_circuit)),
            Carrier::Legs(legs) => Some(
                self.sets
                    .several(legs)?
                    .trunk_state
                    .as_ref()
                    .map_or(0, |trunk_state| trunk_state.len()),
            ),
        }
    }

    /// Returns the circuit set whose streams use the trunk of the set `id`. The trunk is the
    /// circuit that continues where the legs of `id` join. Returns `None` if `id` has no trunk, or
    /// if the streams of the trunk do not end at this node.
    pub(crate) fn streams_set_over(&self, id: SetId) -> Option<SetId> {
        self.set_of(self.sets.trunk_of(id)?)
    }

    /// Returns the number of streams whose cells travel on the legs (parallel circuits) of the
    /// circuit set `id`.
    pub(super) fn streams_over(&self, id: SetId) -> usize {
        let of = self.streams_set_over(id).unwrap_or(id);
        self.sets.get(of).map_or(0, |set| set.streams.len())
    }

    /// Returns the number of stream bytes received over the legs (parallel circuits) of the
    /// circuit set `id`, and the number sent.
    pub(super) fn carried_over(&self, id: SetId) -> [u64; 2] {
        let of = self.streams_set_over(id).unwrap_or(id);
        self.sets.get(of).map_or([0; 2], |set| set.streams.transferred)
    }

    /// Notes that the trunk of the set `id` (the circuit that continues where its legs join) is
    /// closed. The closing is reported to the other end later, by TRUNCATED on every leg. DESTROY
    /// would report only the closing of one leg.
    pub(crate) fn note_trunk_closed(&mut self, id: SetId, reason: DestroyReason) {
        let trunk_state = self.sets.several(id).and_then(|several| several.trunk_state.as_mut());
        trunk_state.into_iter().for_each(|trunk_state| trunk_state.close(reason));
        self.recount(id);
        self.timers.insert((Time::ZERO, Timer::LegActions(id)));
    }

    /// Reports the closing of the trunk (the circuit that continues where the set's legs join) to
    /// the other end on every leg, once.
    pub(super) fn report_trunk_closed(&mut self, now: Time, id: SetId) {
        let Some(several) = self.sets.several(id) else { return };
        let circuits: Vec<u32> = several.circuits().collect();
        let reason =
            several.trunk_state.as_mut().and_then(|trunk_state| trunk_state.take_close_reason());
        if let Some(reason) = reason {
            let send = |at| {
                self.send_relay_cell(now, at, Command::RELAY, RelayCommand::TRUNCATED, &[reason.0])
            };
            circuits.iter().copied().for_each(send);
        }
    }

    /// Sends queued cells of the trunk (the circuit that continues where the set's legs join) on
    /// the legs that the scheduler of the set `id` chooses.
    pub(super) fn deal_cells(&mut self, now: Time, id: SetId) {
        let Some(several) = self.sets.get_mut(id).and_then(|set| set.several()) else { return };
        if !several.has_cells() {
            return;
        }
        several.look(now, &self.circuits, &mut self.channels);
        while let Some((leg, cells)) =
            self.sets.several(id).and_then(|several| several.choose_cells(now))
        {
            if self.send_cells(now, id, leg, cells).is_err() {
                return self.end_set(id, CloseCause::Set);
            }
        }
        self.recount(id);
    }

    fn send_cells(
        &mut self,
        now: Time,
        id: SetId,
        leg: PathId,
        cells: u64,
    ) -> Result<(), ConfluxFault> {
        let several = self.sets.get_mut(id).and_then(|set| set.several());
        let several = several.ok_or(ConfluxFault::Gone)?;
        let index = several.circuit(leg).ok_or(ConfluxFault::NotLinked)?;
        let mut port = Port::of(&mut self.circuits, &mut self.channels, &mut *self.rng, index)?;
        for _ in 0..cells {
            let Some(cell) = several.next_cell() else { break };
            let (command, body) = (cell.command, cell.body.first_chunk());
            let mut body: Body = *body.ok_or(ConfluxFault::Incoherent)?;
            let mark = several.send_cell(now, leg, cell)?;
            port.send_before(now, &mark);
            port.send_trunk_cell(now, command, &mut body);
        }
        self.look_again(now, id, leg, index);
        Ok(())
    }

    /// Handles an acknowledgement of cells that were sent on the leg `index` (a parallel circuit).
    /// The cells belong to the trunk, the circuit that continues where the set's legs join.
    pub(super) fn cells_acknowledged(&mut self, id: SetId, index: u32, report: Acknowledged) {
        let Some(set) = self.sets.get_mut(id).filter(|set| set.is_merged()) else { return };
        let wanting = set.several().is_some_and(|several| several.held() > 0);
        let parts = self.circuits.get_mut(index).and_then(R::Circuit::parts);
        let Some((Carrier::Link(link_circuit), Some(leg), _)) = parts else { return };
        let queued = self.channels.waiting(link_circuit);
        let blocked = queued >= QUEUE_HIGH;
        let outlet = crate::congestion::Outlet { queued: queued as u64, blocked, wanting };
        leg.settled(report.messages, report.rtt, outlet);
    }

    /// Handles a cell of the trunk (the circuit that continues where the set's legs join) that was
    /// received on a leg. If the cell is the next one in order, forwards it and the stored cells
    /// that follow it.
    ///
    /// # Errors
    /// Returns the violation if the other end broke the protocol.
    pub(crate) fn take_cell_by_leg(
        &mut self,
        now: Time,
        id: SetId,
        index: u32,
        (command, body): (Command, &mut Body),
    ) -> Result<(), CircuitFault> {
        let taken = self.take_cell_in_turn(now, id, index, (command, body));
        let leg = self.sets.several(id).and_then(|several| several.leg_that_owes(index));
        leg.into_iter().for_each(|leg| self.send_received(now, id, leg, false));
        self.deal_later(id);
        taken
    }

    fn take_cell_in_turn(
        &mut self,
        now: Time,
        id: SetId,
        index: u32,
        (command, body): (Command, &mut Body),
    ) -> Result<(), CircuitFault> {
        let several = self.sets.several(id).ok_or(CircuitFault::Unrecognised)?;
        let leg = several.leg(index).ok_or(ConfluxFault::NotLinked)?;
        match &several.trunk_state {
            // The client sent these cells before it knew that the trunk is closed: no violation.
            Some(trunk_state) if trunk_state.is_closed() => return Ok(()),
            Some(trunk_state) if trunk_state.trunk.is_some() => {}
            _ => return Err(CircuitFault::Unrecognised),
        }
        let arrival = several.end.receive_cell(leg, as_message(command, &body[..]));
        if let Some(retransmitter) = several.end.retransmitter_mut().filter(|_| arrival.is_ok()) {
            retransmitter.note_received(now, leg);
        }
        let parts = self.circuits.get_mut(index).and_then(R::Circuit::parts);
        if let Some((_, Some(leg), _)) = parts {
            leg.counted();
        }
        match arrival {
            Ok(Arrival::Now(_)) => {
                self.take_cell_of_trunk(now, id, command, body)?;
                self.take_cells_that_waited(now, id)
            }
            Ok(Arrival::Later | Arrival::Known) => Ok(()),
            Err(fault) => {
                if fault.closes() == Closes::Set {
                    self.sets.several(id).into_iter().for_each(|several| several.end.die());
                }
                Err(fault.into())
            }
        }
    }

    /// Handles stored cells of the trunk (the circuit that continues where the set's legs join) in
    /// order, until one is missing or a cell has ended the set `id`.
    fn take_cells_that_waited(&mut self, now: Time, id: SetId) -> Result<(), CircuitFault> {
        while let Some(held) = self.sets.several(id).and_then(|several| several.end.pop()) {
            if let Some((command, mut body)) = as_cell(held.command, &held.data) {
                self.take_cell_of_trunk(now, id, command, &mut body)?;
            }
        }
        Ok(())
    }

    fn take_cell_of_trunk(
        &mut self,
        now: Time,
        id: SetId,
        command: Command,
        body: &mut Body,
    ) -> Result<(), CircuitFault> {
        let Some(several) = self.sets.several(id) else { return Ok(()) };
        // Only cells in order count towards the window. Otherwise a peer could enlarge the queue's
        // limit by sending only cells that must wait.
        several.count_received(now);
        let Some(trunk_state) = &mut several.trunk_state else { return Ok(()) };
        if !trunk_state.may_go_on(command) {
            several.end.die();
            return Err(CircuitFault::RelayEarly);
        }
        if let Some(trunk) = trunk_state.trunk {
            R::take_trunk_cell(self, now, trunk, command, body);
        }
        Ok(())
    }
}
