//! A client's circuits: cells in, cells out, the end.

use anabranch_multipath::Time;

use super::build::Pending;
use super::{Cause, CircuitKey, Client, Hop, Output, Timer};
use crate::crypto::{ClientLayer, Tag};
use crate::end::{Filled, Happened};
use crate::event::{Event, Violation};
use crate::hub::{Lane, LinkId};
use crate::stream::Broken;
use crate::tail::{QUEUE_HIGH, Tail};
use crate::wire::cell::{BODY, Body, Cell, Command};
use crate::wire::message::{
    self, DestroyReason, EndReason, Message, RelayCommand, put_sendme, read_sendme,
};

/// One circuit.
pub(super) struct Circuit {
    pub(super) key: CircuitKey,
    /// Its place on the link, once there is a link.
    pub(super) lane: Option<Lane>,
    /// Hops that are not reached yet, nearest first.
    pub(super) wanted: std::collections::VecDeque<Hop>,
    /// The handshake that goes on.
    pub(super) pending: Option<Pending>,
    /// The layers of the hops that are reached.
    pub(super) layers: Vec<Box<dyn ClientLayer>>,
    /// Where streams are: at the last hop, once that is reached.
    pub(super) tail: Option<Tail>,
    /// The stream ID given last.
    pub(super) last_id: u16,
}

impl Client {
    /// Takes a cell that the channel left to circuits.
    ///
    /// # Errors
    /// A violation that ends the link.
    pub(super) fn take_cell(
        &mut self,
        now: Time,
        link: LinkId,
        cell: Cell<'_>,
    ) -> Result<(), Violation> {
        if !matches!(cell.command.0, 1..=6 | 9..=11) {
            return Ok(());
        }
        let lane = Lane { link, id: cell.circuit };
        if lane.id == 0 {
            return Err(Violation::NoCircuit);
        }
        let Some(owner) = self.hub.owner(lane) else { return Ok(()) };
        let Ok(body) = <&mut Body>::try_from(cell.body) else { return Ok(()) };
        match cell.command {
            Command::RELAY => self.inbound(now, owner.circuit, body),
            Command::CREATED_FAST | Command::CREATED2 => {
                self.created(now, owner.circuit, cell.command, body);
            }
            Command::DESTROY => {
                let reason = DestroyReason(body[0]);
                self.drop_circuit(owner.circuit, Cause::Destroyed(reason));
            }
            Command::RELAY_EARLY => self.break_off(owner.circuit, Violation::RelayEarly),
            _ => self.break_off(owner.circuit, Violation::Message),
        }
        Ok(())
    }

    fn inbound(&mut self, now: Time, index: u32, body: &mut Body) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let mut layers = circuit.layers.iter_mut().enumerate();
        let found = layers
            .find_map(|(hop, layer)| layer.inbound(Command::RELAY, body).map(|tag| (hop, tag)));
        let is_last = found.is_some_and(|(hop, _)| hop + 1 == circuit.layers.len());
        match (found, message::read(body)) {
            (None, _) => self.break_off(index, Violation::Unrecognised),
            (_, None) => self.break_off(index, Violation::Message),
            (Some((_, tag)), Some(message)) => {
                self.take_message(now, index, is_last, message, tag);
            }
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
                self.tear_down(index, Cause::Destroyed(DestroyReason(reason)));
            }
            _ if !is_last => self.break_off(index, Violation::Message),
            (RelayCommand::EXTENDED2, 0) => self.extended(now, index, message.data),
            (RelayCommand::SENDME, 0) => self.take_sendme(now, index, message.data),
            (RelayCommand::DATA, 1..) => {
                self.acknowledge(now, index, tag);
                self.take_streams(now, index, message);
            }
            (RelayCommand::CONNECTED, 1..) => self.connected(now, index, message),
            (RelayCommand::RESOLVED, 1..) => self.resolved(index, message),
            (
                RelayCommand::END | RelayCommand::SENDME | RelayCommand::XON | RelayCommand::XOFF,
                1..,
            ) => self.take_streams(now, index, message),
            _ => self.break_off(index, Violation::Message),
        }
    }

    fn acknowledge(&mut self, now: Time, index: u32, tag: Tag) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let Some(tail) = &mut circuit.tail else { return };
        if let Some(tag) = tail.leg.received(tag) {
            self.say(now, index, Command::RELAY, RelayCommand::SENDME, &put_sendme(&tag));
        }
    }

    fn take_streams(&mut self, now: Time, index: u32, message: Message<'_>) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let Some(tail) = &mut circuit.tail else {
            return self.break_off(index, Violation::Message);
        };
        match tail.end.take(now, message) {
            Ok(()) => self.pump(now, index),
            Err(Broken::Flood) => self.break_off(index, Violation::Flood),
            Err(_) if message.command == RelayCommand::SENDME => {
                self.break_off(index, Violation::Sendme);
            }
            Err(_) => self.break_off(index, Violation::Message),
        }
    }

    fn take_sendme(&mut self, now: Time, index: u32, data: &[u8]) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let waiting = circuit.lane.map_or(0, |lane| self.hub.waiting(lane));
        let sound = circuit.tail.as_mut().zip(read_sendme(data)).is_some_and(|(tail, tag)| {
            let outlet = tail.outlet(waiting);
            tail.leg.acknowledged(now, tag, outlet).is_ok()
        });
        if sound {
            self.pump(now, index);
        } else {
            self.break_off(index, Violation::Sendme);
        }
    }

    /// Sends a message of the circuit itself to the last hop.
    pub(super) fn say(
        &mut self,
        now: Time,
        index: u32,
        command: Command,
        what: RelayCommand,
        data: &[u8],
    ) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let Some(lane) = circuit.lane else { return };
        let mut body = [0; BODY];
        message::write(&mut body, Message { command: what, stream: 0, data }, &mut *self.rng);
        originate(&mut circuit.layers, command, &mut body);
        self.hub.push(now, lane, command, &body);
    }

    /// Sends what the circuit's streams have, as far as window and queue allow.
    pub(super) fn pump(&mut self, now: Time, index: u32) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let (Some(lane), Some(tail)) = (circuit.lane, &mut circuit.tail) else { return };
        let waiting = self.hub.waiting(lane);
        for _ in waiting..QUEUE_HIGH {
            let mut body = [0; BODY];
            let room = tail.leg.has_room();
            let Some(filled) = tail.end.fill(now, room, &mut body, &mut *self.rng) else { break };
            let tag = originate(&mut circuit.layers, Command::RELAY, &mut body);
            if let (Filled::Data, Some(tag)) = (filled, tag) {
                tail.leg.sent(now, tag);
            }
            self.hub.push(now, lane, Command::RELAY, &body);
        }
        self.timers.extend(tail.end.wake_at().map(|time| (time, Timer::Streams(index))));
        self.tell(index);
    }

    fn tell(&mut self, index: u32) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let Some(tail) = &mut circuit.tail else { return };
        while let Some(happened) = tail.end.happened() {
            match happened {
                Happened::Readable(stream) => self.outputs.push_back(Output::Readable { stream }),
                Happened::Room(stream) => self.outputs.push_back(Output::Room { stream }),
                Happened::Finished(stream) => self.streams.remove(stream),
                Happened::Ended(stream, reason, bytes) => {
                    if let Some(reason) = self.streams.ended(stream, reason, bytes) {
                        self.outputs.push_back(Output::Ended { stream, reason });
                    }
                }
            }
        }
    }

    /// Closes a circuit on which a relay broke the rules.
    pub(super) fn break_off(&mut self, index: u32, violation: Violation) {
        let Some(circuit) = self.circuits.get(index) else { return };
        if let Some(lane) = circuit.lane {
            let event = Event::Violation { link: lane.link, violation };
            self.outputs.push_back(Output::Event(event));
        }
        self.tear_down(index, Cause::Violation(violation));
    }

    /// Closes a circuit. What a client says of why is nothing (tor-spec, "Tearing down circuits").
    pub(super) fn tear_down(&mut self, index: u32, cause: Cause) {
        let Some(circuit) = self.circuits.get(index) else { return };
        if let Some(lane) = circuit.lane {
            self.hub.destroy(lane, DestroyReason::NONE);
        }
        self.drop_circuit(index, cause);
    }

    /// Forgets a circuit that the first relay has forgotten.
    pub(super) fn drop_circuit(&mut self, index: u32, cause: Cause) {
        let Some(mut circuit) = self.circuits.remove(index) else { return };
        if let Some(lane) = circuit.lane {
            self.hub.leave(lane);
        }
        self.keys.remove(&circuit.key);
        self.dialling.iter_mut().for_each(|(_, waiting)| waiting.retain(|&other| other != index));
        let streams = circuit.tail.iter_mut().flat_map(|tail| tail.end.take_all());
        for stream in streams {
            let (key, reason) = (stream.key, EndReason::DESTROY);
            let reason = self.streams.ended(key, reason, stream.incoming);
            self.outputs.extend(reason.map(|reason| Output::Ended { stream: key, reason }));
        }
        let hops = circuit.layers.len();
        self.outputs.push_back(Output::CircuitClosed { circuit: circuit.key, hops, cause });
    }
}

/// Puts all layers on a cell for the last hop.
fn originate(
    layers: &mut [Box<dyn ClientLayer>],
    command: Command,
    body: &mut Body,
) -> Option<Tag> {
    let (last, before) = layers.split_last_mut()?;
    let tag = last.originate(command, body);
    before.iter_mut().rev().for_each(|layer| layer.outbound(command, body));
    Some(tag)
}
