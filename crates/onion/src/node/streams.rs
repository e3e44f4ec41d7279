//! Streams: the bytes that programs write and read, and the cells that carry these bytes.

use std::collections::VecDeque;

use anabranch_multipath::Time;

use super::{Node, NodeRole, Timer};
use crate::conflux::ConfluxFault;
use crate::crypto::Tag;
use crate::ending::{Carrier, Ending};
use crate::event::CircuitFault;
use crate::io::StreamOutput;
use crate::set::{QUEUE_HIGH, Route, SetLegs};
use crate::stream::StreamKey;
use crate::streams::{FilledMessage, ONLY, OutLeg, StreamEvent};
use crate::table::SetId;
use crate::wire::cell::{BODY, Command};
use crate::wire::message::{EndReason, Message, RelayCommand, put_sendme, read_sendme};

impl<R: NodeRole> Node<R> {
    /// Accepts bytes from a stream's program. Returns the number of bytes accepted.
    pub(crate) fn write_stream(&mut self, now: Time, stream: StreamKey, bytes: &[u8]) -> usize {
        let Some((set, id)) = self.streams.live(stream) else { return bytes.len() };
        if let Some(lossy) = self.sets.lossy_of(set, id, stream) {
            let taken = lossy.write(id, bytes);
            self.sets
                .get_mut(set)
                .into_iter()
                .for_each(|set| set.streams.transferred[1] += taken as u64);
            self.pump_lossy(now, set);
            return taken;
        }
        let set_mut = self.sets.get_mut(set);
        let taken = set_mut.and_then(|set| set.streams.with(id, |stream| stream.write(bytes)));
        let taken = taken.unwrap_or(bytes.len());
        self.pump(now, set);
        taken
    }

    /// Returns the bytes that wait for a stream's program, in two consecutive parts.
    pub(crate) fn read_stream(&self, stream: StreamKey) -> (&[u8], &[u8]) {
        if let Some((set, id)) = self.streams.live(stream) {
            let set = self.sets.get(set);
            let lossy =
                set.and_then(|set| set.lossy.as_ref()).filter(|lossy| lossy.has(id, stream));
            if let Some(lossy) = lossy {
                return lossy.peek(id);
            }
            let stream = set.and_then(|set| set.streams.peek(id));
            return stream.map_or((&[], &[]), |stream| stream.incoming.as_slices());
        }
        self.streams.left(stream).map_or((&[], &[]), VecDeque::as_slices)
    }

    /// Removes the first `bytes` bytes that [`Node::read_stream`] returns, because the program has
    /// consumed them.
    pub(crate) fn consume_stream(&mut self, now: Time, stream: StreamKey, bytes: usize) {
        let Some((key, id)) = self.streams.live(stream) else {
            if let Some(reason) = self.streams.consumed(stream, bytes) {
                self.put(StreamOutput::Ended { stream, reason, refused: None });
            }
            return;
        };
        if let Some(lossy) = self.sets.lossy_of(key, id, stream) {
            lossy.consume(id, bytes);
            self.sets
                .get_mut(key)
                .into_iter()
                .for_each(|set| set.streams.transferred[0] += bytes as u64);
            return self.pump_lossy(now, key);
        }
        if let Some(set) = self.sets.get_mut(key) {
            set.streams.consumed(now, id, bytes);
            self.pump(now, key);
        }
    }

    /// Closes the stream `key` on behalf of its program. Data that the program has written is sent
    /// first.
    pub(crate) fn end(&mut self, now: Time, key: StreamKey, reason: EndReason) {
        let Some((set, id)) = self.streams.live(key) else { return self.streams.remove(key) };
        if let Some(lossy) = self.sets.lossy_of(set, id, key) {
            let failed = lossy.end(id, reason);
            self.streams.remove(key);
            if let (Some(reason), Some(set)) = (failed, self.sets.get_mut(set)) {
                set.streams.queue_control(RelayCommand::END, id, vec![reason.0]);
            }
            return self.pump(now, set);
        }
        if let Some(set) = self.sets.get_mut(set) {
            set.streams.with(id, |stream| stream.end(reason));
        }
        self.pump(now, set);
    }

    /// Returns the set of parallel circuits that `circuit` belongs to; `None` if the circuit does
    /// not exist, or does not end at this node.
    pub(crate) fn set_of(&self, circuit: u32) -> Option<SetId> {
        self.circuits.get(circuit).and_then(R::Circuit::set)
    }

    /// Sends pending cells of the set of `circuit`, because the circuit's queue has room again. If
    /// the set carries the cells of another circuit (its trunk), does so only if cells of the
    /// trunk wait. Otherwise the trunk's streams have already sent everything that their windows
    /// allow.
    pub(super) fn pump_by(&mut self, now: Time, circuit: u32) {
        let Some(id) = self.set_of(circuit) else { return };
        let Some(set) = self.sets.get_mut(id).filter(|set| !set.is_idle()) else { return };
        if !set.is_merged() || set.several().is_some_and(|several| several.has_cells()) {
            self.pump(now, id);
        }
    }

    /// Sends pending cells of the streams of the circuit set `id` until the windows or queues of
    /// all the set's circuits are full.
    pub(crate) fn pump(&mut self, now: Time, id: SetId) {
        match self.sets.get_mut(id).map(|set| &set.route) {
            Some(&Route::One(leg)) => while self.send_by_one(now, id, leg) {},
            Some(Route::Several(_)) => {
                self.deal(now, id);
                self.await_leg_actions(id);
                if let Some(above) = self.streams_set_over(id) {
                    return self.pump(now, above);
                }
            }
            None => return,
        }
        let wake_at = self.sets.get_mut(id).and_then(|set| set.streams.wake_at(now));
        self.timers.extend(wake_at.map(|time| (time, Timer::Streams(id))));
        self.report_room(id);
        self.pump_lossy(now, id);
    }

    /// Sends pending cells of the streams on `leg`, the only circuit of the circuit set `id`. If
    /// another set's circuits carry the cells of `leg` (a trunk), returns true if cells were sent.
    /// The caller must then call this function again, because there may be room for more.
    fn send_by_one(&mut self, now: Time, id: SetId, leg: u32) -> bool {
        let Some(waiting) = self.waiting_of(leg) else { return false };
        let Some(set) = self.sets.get_mut(id) else { return false };
        let parts = self.circuits.get_mut(leg).and_then(R::Circuit::parts);
        let Some((carrier, Some(leg), layers)) = parts else { return false };
        let format = layers.format();
        let mut cells = Vec::new();
        for _ in waiting..QUEUE_HIGH {
            let onto = OutLeg { by: ONLY, format, has_room: leg.has_room(), prefix: &[] };
            let mut body = [0; BODY];
            let filled = set.streams.fill(now, onto, &mut body, &mut *self.rng);
            let Some(filled) = filled else { break };
            let tag = layers.seal(Command::RELAY, &mut body);
            if let (FilledMessage::Data, Some(tag)) = (filled, tag) {
                leg.sent(now, tag);
            }
            match carrier {
                Carrier::Link(link_circuit) => {
                    self.channels.push(now, link_circuit, Command::RELAY, &body);
                }
                Carrier::Legs(_) => cells.push(body),
            }
        }
        match carrier {
            Carrier::Legs(legs) if !cells.is_empty() => {
                self.send_all_on_legs(now, legs, &cells);
                true
            }
            _ => false,
        }
    }

    /// Outputs the events of the streams of the circuit set `id`.
    fn report_room(&mut self, id: SetId) {
        while let Some(happened) = self.sets.get_mut(id).and_then(|set| set.streams.happened()) {
            self.report(happened);
        }
    }

    /// Outputs the event `happened` of a stream, and removes the stream if it has ended.
    pub(super) fn report(&mut self, happened: StreamEvent) {
        let output = match happened {
            StreamEvent::Readable(stream) => Some(StreamOutput::Readable { stream }),
            StreamEvent::Room(stream) => Some(StreamOutput::Room { stream }),
            StreamEvent::Ended(stream, reason, refused, bytes) => {
                let reason = self.streams.ended(stream, reason, bytes);
                reason.map(|reason| StreamOutput::Ended { stream, reason, refused })
            }
            StreamEvent::Finished(stream) => {
                self.streams.remove(stream);
                None
            }
        };
        self.outputs.extend(output.map(R::Output::from));
    }

    /// Removes the circuit set `id`, whose only circuit is closed, and the set's streams.
    pub(crate) fn dissolve(&mut self, id: SetId) {
        let Some(mut set) = self.sets.remove(id) else { return };
        let counted = set.lossy.as_mut().map_or(0, |lossy| lossy.recount()[0]);
        self.memory.recount_lossy([counted, 0]);
        let lossy = set.lossy.map(|mut lossy| lossy.take_all()).unwrap_or_default();
        let streams = set.streams.take_all().map(|stream| (stream.key, stream.incoming));
        for (key, unread) in streams.chain(lossy) {
            if let Some(reason) = self.streams.ended(key, EndReason::DESTROY, unread) {
                self.put(StreamOutput::Ended { stream: key, reason, refused: None });
            }
        }
    }

    /// Handles a message that arrived on the circuit `index` and ends here. It is either a message
    /// of a stream, or a SENDME for the circuit.
    ///
    /// # Errors
    /// Returns the violation if the other end broke the protocol.
    pub(crate) fn take_stream_message(
        &mut self,
        now: Time,
        index: u32,
        message: Message<'_>,
        tag: Tag,
    ) -> Result<(), CircuitFault> {
        let queued = self.waiting_of(index).ok_or(CircuitFault::Message)?;
        let circuit = self.circuits.get_mut(index).ok_or(CircuitFault::Message)?;
        let id = circuit.set().ok_or(CircuitFault::Message)?;
        let Some((_, Some(leg), _)) = circuit.parts() else { return Err(CircuitFault::Message) };
        let Some(set) = self.sets.get_mut(id) else { return Err(CircuitFault::Message) };
        if set.is_merged() {
            return Err(ConfluxFault::Role.into());
        }
        if (message.command, message.stream) == (RelayCommand::SENDME, 0) {
            let outlet = set.outlet(queued);
            let sendme = read_sendme(message.data).ok_or(CircuitFault::SendmeVersion)?;
            leg.acknowledged(now, sendme, outlet)?;
            set.several().into_iter().for_each(SetLegs::note_acknowledgement);
            self.pump(now, id);
            return Ok(());
        }
        let is_data = message.command == RelayCommand::DATA;
        let due = if is_data { leg.received(tag) } else { None };
        let taken = match set.route {
            Route::One(_) => R::take_set_message(self, now, index, message),
            Route::Several(_) => self.take_by_leg(now, id, index, message),
        };
        if let Some(tag) = due {
            self.send_relay_cell(
                now,
                index,
                Command::RELAY,
                RelayCommand::SENDME,
                &put_sendme(&tag),
            );
        }
        self.pump(now, id);
        taken
    }
}
