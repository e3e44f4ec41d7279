//! A client's circuits: handling of cells, and closing.

use anabranch_multipath::Time;

use super::lossy::LossyLayers;
use super::pending::Pending;
use super::{Cause, CircuitKey, Client, Hop, Output};
use crate::channels::{LinkCircuit, LinkId};
use crate::crypto::{ClientLayer, Tag};
use crate::ending::{Carrier, Ending, Seal, SealLossy};
use crate::event::{CircuitFault, LinkFault};
use crate::leg::Leg;
use crate::node::CloseCause;
use crate::table::SetId;
use crate::wire::cell::{Body, Cell, Command};
use crate::wire::message::{self, DestroyReason, Message, RelayCommand, RelayKind};

/// One circuit of a client.
pub struct Circuit {
    pub(super) key: CircuitKey,
    /// The link to the first relay, and the circuit's ID on it; `None` before there is a link.
    pub(super) first_hop: Option<LinkCircuit>,
    /// The set that has this circuit as its trunk, if any. A trunk is a circuit that continues
    /// from the relay at which a set's legs join. The legs carry the trunk's cells.
    pub(super) trunk_of: Option<SetId>,
    /// Hops that are not yet built, nearest first.
    pub(super) wanted: std::collections::VecDeque<Hop>,
    /// The present handshake with the next hop, if any.
    pub(super) pending: Option<Pending>,
    /// Time at which the last handshake with a hop began.
    pub(super) requested: Time,
    /// The layers of encryption, one for each hop built so far.
    pub(super) layers: Vec<Box<dyn ClientLayer>>,
    /// Keys of lossy cells (sent in datagrams; see `docs/spec/lossy-circuits.md`), if the circuit
    /// carries such cells.
    pub(super) lossy: LossyLayers,
    /// The circuit's set, and the circuit's flow control as a leg of that set. `None` until the
    /// circuit's last hop is built.
    pub(super) leg: Option<(SetId, Leg)>,
    /// The most recently assigned stream ID. The search for the next free ID begins after it.
    pub(super) last_id: u16,
    /// Number of the circuit's cells received from the first relay, and number sent to it.
    pub(super) cells: [u64; 2],
}

impl Circuit {
    /// Returns true if the circuit carries lossy cells (sent in datagrams), or will carry them
    /// when it is complete.
    pub(super) fn wants_lossy(&self) -> bool {
        !matches!(self.lossy, LossyLayers::None)
    }
}

impl Ending for Circuit {
    const OUTWARD: bool = true;

    fn carrier(&self) -> Option<Carrier> {
        self.trunk_of.map(Carrier::Legs).or(self.first_hop.map(Carrier::Link))
    }

    fn set(&self) -> Option<SetId> {
        self.leg.as_ref().map(|(set, _)| *set)
    }

    fn leg(&self) -> Option<&Leg> {
        self.leg.as_ref().map(|(_, leg)| leg)
    }

    fn number(&self) -> Option<u64> {
        Some(self.key.0)
    }

    fn cells(&self) -> [u64; 2] {
        self.cells
    }

    fn move_to(&mut self, set: SetId) {
        self.leg.iter_mut().for_each(|(own, _)| *own = set);
    }

    fn is_lossy(&self) -> bool {
        self.wants_lossy()
    }

    fn lossy(&mut self) -> Option<&mut dyn SealLossy> {
        self.lossy.layers().map(|layers| layers as &mut dyn SealLossy)
    }

    fn parts(&mut self) -> Option<(Carrier, Option<&mut Leg>, &mut dyn Seal)> {
        Some((self.carrier()?, self.leg.as_mut().map(|(_, leg)| leg), &mut self.layers))
    }
}

impl Client {
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
        if !matches!(cell.command.0, 1..=6 | 9..=11) {
            return Ok(());
        }
        let link_circuit = LinkCircuit { link, id: cell.circuit };
        if link_circuit.id == 0 {
            return Err(LinkFault::NoCircuit);
        }
        let Some(owner) = self.channels.owner(link_circuit) else { return Ok(()) };
        let Ok(body) = <&mut Body>::try_from(cell.body) else { return Ok(()) };
        self.note_cell(now, owner.circuit, false);
        match cell.command {
            Command::RELAY => self.inbound(now, owner.circuit, body),
            Command::CREATED_FAST | Command::CREATED2 => {
                self.created(now, owner.circuit, cell.command, body);
            }
            Command::DESTROY => {
                let reason = DestroyReason(body[0]);
                self.drop_circuit(owner.circuit, Cause::Destroyed(reason));
            }
            Command::RELAY_EARLY => self.break_off(owner.circuit, CircuitFault::RelayEarly),
            _ => self.break_off(owner.circuit, CircuitFault::Message),
        }
        Ok(())
    }

    /// Handles a RELAY cell that arrived on `link_circuit`.
    pub(super) fn take_relay_cell(
        &mut self,
        now: Time,
        link_circuit: LinkCircuit,
        body: &mut Body,
    ) {
        let Some(owner) = self.channels.owner(link_circuit) else { return };
        self.note_cell(now, owner.circuit, false);
        self.inbound(now, owner.circuit, body);
    }

    pub(super) fn inbound(&mut self, now: Time, index: u32, body: &mut Body) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let mut layers = circuit.layers.iter_mut().enumerate();
        let found = layers.find_map(|(hop, layer)| {
            let tag = layer.inbound(Command::RELAY, body)?;
            Some((hop, layer.format(), tag))
        });
        let Some((hop, format, tag)) = found else {
            return self.take_unrecognised(now, index, body);
        };
        let is_last = hop + 1 == circuit.layers.len();
        match message::read(format, body) {
            Some(message) => self.take_message(now, index, is_last, message, tag),
            None => self.break_off(index, CircuitFault::Message),
        }
    }

    fn take_message(
        &mut self,
        now: Time,
        index: u32,
        is_last: bool,
        message: Message<'_>,
        tag: Tag,
    ) {
        match (message.command, message.stream) {
            (RelayCommand::DROP, _) => {}
            (RelayCommand::TRUNCATED, 0) => {
                let reason = message.data.first().copied().unwrap_or_default();
                let cause = Cause::Destroyed(DestroyReason(reason));
                match self.merged_set_of(index).filter(|_| is_last) {
                    Some(set) => self.end_merged(set, cause),
                    None => self.tear_down(index, cause),
                }
            }
            _ if !is_last => self.break_off(index, CircuitFault::Message),
            (RelayCommand::EXTENDED2, 0) => {
                let of = self.trunk_over(index).unwrap_or(index);
                self.extended(now, of, message.data);
            }
            (RelayCommand::SENDME, _)
            | (
                RelayCommand::CONNECTED
                | RelayCommand::RESOLVED
                | RelayCommand::DATA
                | RelayCommand::END
                | RelayCommand::XON
                | RelayCommand::XOFF,
                1..,
            ) => {
                if let Err(fault) = self.take_stream_message(now, index, message, tag) {
                    self.break_off(index, fault);
                }
            }
            (RelayCommand::LOSSY_LINKED, 0) => {
                if let Err(fault) = self.lossy_linked(now, index) {
                    self.break_off(index, fault);
                }
            }
            (command, _) if command.kind() == RelayKind::Conflux => {
                if let Err(fault) = self.take_conflux(now, index, message) {
                    self.break_off(index, fault);
                }
            }
            _ => self.break_off(index, CircuitFault::Message),
        }
    }

    /// Closes the circuit `index`. The DESTROY cell of a client contains no reason (tor-spec,
    /// "Tearing down circuits").
    pub(super) fn tear_down(&mut self, index: u32, cause: Cause) {
        let Some(circuit) = self.circuits.get(index) else { return };
        if let Some(set) = circuit.trunk_of {
            return self.end_merged(set, cause);
        }
        if let Some(link_circuit) = circuit.first_hop {
            self.channels.destroy(link_circuit, DestroyReason::NONE);
        }
        self.drop_circuit(index, cause);
    }

    /// Removes the circuit `index` without sending DESTROY.
    pub(super) fn drop_circuit(&mut self, index: u32, cause: Cause) {
        let Some(circuit) = self.circuits.remove(index) else { return };
        if let Some(link_circuit) = circuit.first_hop {
            self.channels.leave(link_circuit);
        }
        if circuit.trunk_of.is_some() {
            let streams = circuit.leg.map(|(streams, _)| streams);
            return streams.into_iter().for_each(|streams| self.dissolve(streams));
        }
        self.role.keys.remove(&circuit.key);
        self.dialling.forget(index);
        if let Some((set, leg)) = circuit.leg {
            self.leave_set(set, index, leg.has_unacknowledged());
            let is_alone =
                self.sets.several(set).is_some_and(|several| several.circuits().next().is_none());
            if is_alone && (cause == Cause::Wanted || !self.goes_on(set)) {
                self.end_set(set, CloseCause::Set);
            }
        }
        let hops = circuit.layers.len();
        self.put(Output::CircuitClosed { circuit: circuit.key, hops, cause });
    }
}
