//! Messages for us, and the streams that leave the network here.

use std::collections::VecDeque;
use std::net::IpAddr;

use anabranch_multipath::Time;

use super::{Output, Relay};
use crate::crypto::Tag;
use crate::event::Violation;
use crate::stream::{Broken, StreamKey};
use crate::wire::cell::Command;
use crate::wire::message::{
    Answer, Begin, EndReason, Message, RelayCommand, put_connected, put_resolved, put_sendme,
    read_resolve, read_sendme,
};

impl Relay {
    /// Takes bytes of a stream's destination; returns how many. If not all, [`Output::Room`] follows.
    pub fn write(&mut self, now: Time, stream: StreamKey, bytes: &[u8]) -> usize {
        let Some((index, id)) = self.streams.live(stream) else { return bytes.len() };
        let Some(circuit) = self.circuits.get_mut(index) else { return bytes.len() };
        let taken = circuit.tail.end.stream(id).map_or(bytes.len(), |s| s.write(bytes));
        self.pump(now, index);
        taken
    }

    /// The bytes that wait for a stream's destination: two pieces, in order.
    pub fn read(&self, stream: StreamKey) -> (&[u8], &[u8]) {
        if let Some((index, id)) = self.streams.live(stream) {
            let circuit = self.circuits.get(index);
            let stream = circuit.and_then(|circuit| circuit.tail.end.peek(id));
            return stream.map_or((&[], &[]), |stream| stream.incoming.as_slices());
        }
        self.streams.left(stream).map_or((&[], &[]), VecDeque::as_slices)
    }

    /// The destination took the first `bytes` of [`Relay::read`].
    pub fn consume(&mut self, now: Time, stream: StreamKey, bytes: usize) {
        let Some((index, id)) = self.streams.live(stream) else {
            let reason = self.streams.consumed(stream, bytes);
            self.outputs.extend(reason.map(|reason| Output::Ended { stream, reason }));
            return;
        };
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        circuit.tail.end.consumed(now, id, bytes);
        self.pump(now, index);
    }

    /// Takes a message that is for us.
    pub(super) fn take_message(
        &mut self,
        now: Time,
        index: u32,
        command: Command,
        message: Message<'_>,
        tag: Tag,
    ) {
        match (message.command, message.stream) {
            (RelayCommand::DATA, 0) => self.break_off(index, Violation::Message),
            (RelayCommand::DATA, _) => {
                self.acknowledge(now, index, tag);
                self.take_streams(now, index, message);
            }
            (RelayCommand::SENDME, 0) => self.take_sendme(now, index, message.data),
            (RelayCommand::EXTEND2, 0) => self.extend(now, index, command, message.data),
            (RelayCommand::TRUNCATE, 0) => self.truncate(now, index),
            (RelayCommand::DROP, _) => {}
            (RelayCommand::BEGIN | RelayCommand::BEGIN_DIR | RelayCommand::RESOLVE, 1..) => {
                self.begin(now, index, message);
            }
            (
                RelayCommand::END | RelayCommand::SENDME | RelayCommand::XON | RelayCommand::XOFF,
                1..,
            ) => self.take_streams(now, index, message),
            (RelayCommand(1..=15 | 43 | 44), _) => self.break_off(index, Violation::Message),
            // Commands of later designs, and of onion services, are passed over.
            _ => {}
        }
    }

    fn acknowledge(&mut self, now: Time, index: u32, tag: Tag) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        if let Some(tag) = circuit.tail.leg.received(tag) {
            self.originate(now, index, RelayCommand::SENDME, &put_sendme(&tag));
        }
    }

    fn take_streams(&mut self, now: Time, index: u32, message: Message<'_>) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        match circuit.tail.end.take(now, message) {
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
        let outlet = circuit.tail.outlet(self.hub.waiting(circuit.lane));
        let leg = &mut circuit.tail.leg;
        let sound = read_sendme(data).is_some_and(|tag| leg.acknowledged(now, tag, outlet).is_ok());
        if sound {
            self.pump(now, index);
        } else {
            self.break_off(index, Violation::Sendme);
        }
    }

    fn begin(&mut self, now: Time, index: u32, message: Message<'_>) {
        let (command, id) = (message.command, message.stream);
        let begin = Begin::read(message.data);
        let name = read_resolve(message.data);
        let well_formed = match command {
            RelayCommand::BEGIN => begin.is_some(),
            RelayCommand::RESOLVE => name.is_some(),
            _ => true,
        };
        let refusal = self.refusal(index, command);
        let key = self.streams.add(index, id);
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        if !well_formed || !circuit.tail.end.add(id, key) {
            self.streams.remove(key);
            return self.break_off(index, Violation::Message);
        }
        if let Some(reason) = refusal {
            return self.end(now, key, reason);
        }
        self.outputs.push_back(match (begin, name) {
            (Some(begin), _) if command == RelayCommand::BEGIN => {
                Output::Connect { stream: key, begin }
            }
            (_, Some(name)) if command == RelayCommand::RESOLVE => {
                Output::Resolve { stream: key, name }
            }
            _ => Output::Directory { stream: key },
        });
    }

    /// Why a stream is not let through, if it is not.
    fn refusal(&mut self, index: u32, command: RelayCommand) -> Option<EndReason> {
        let circuit = self.circuits.get(index)?;
        let link = self.hub.link(circuit.lane.link)?;
        let wants_directory = command == RelayCommand::BEGIN_DIR;
        if circuit.tail.end.len() >= self.config.max_streams {
            return Some(EndReason::RESOURCES);
        }
        if wants_directory {
            return (!self.config.directory).then_some(EndReason::NOT_DIRECTORY);
        }
        if !self.config.exit {
            return Some(EndReason::EXIT_POLICY);
        }
        // A client that comes straight to the exit would make it a proxy of one hop.
        link.channel.identity().is_none().then_some(EndReason::PROTOCOL)
    }

    pub(super) fn connected(&mut self, now: Time, key: StreamKey, reached: Option<(IpAddr, u32)>) {
        let Some((index, id)) = self.streams.live(key) else { return };
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let Some(stream) = circuit.tail.end.stream(id) else { return };
        stream.open = true;
        if !stream.incoming.is_empty() {
            self.outputs.push_back(Output::Readable { stream: key });
        }
        circuit.tail.end.say(RelayCommand::CONNECTED, id, put_connected(reached));
        self.pump(now, index);
    }

    pub(super) fn end(&mut self, now: Time, key: StreamKey, reason: EndReason) {
        let Some((index, id)) = self.streams.live(key) else { return self.streams.remove(key) };
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        if let Some(stream) = circuit.tail.end.stream(id) {
            stream.end(reason);
        }
        self.pump(now, index);
    }

    pub(super) fn resolved(&mut self, now: Time, key: StreamKey, answers: &[(Answer, u32)]) {
        let Some((index, id)) = self.streams.live(key) else { return };
        self.streams.remove(key);
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        circuit.tail.end.remove(id);
        circuit.tail.end.say(RelayCommand::RESOLVED, id, put_resolved(answers));
        self.pump(now, index);
    }

    /// A stream's circuit is gone.
    pub(super) fn left(&mut self, stream: StreamKey, reason: EndReason, bytes: VecDeque<u8>) {
        let reason = self.streams.ended(stream, reason, bytes);
        self.outputs.extend(reason.map(|reason| Output::Ended { stream, reason }));
    }
}
