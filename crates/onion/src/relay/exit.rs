//! Messages for this relay, and the streams from here to destinations outside the network.

use std::net::IpAddr;

use anabranch_multipath::Time;

use super::{Output, Relay};
use crate::crypto::Tag;
use crate::event::CircuitFault;
use crate::io::StreamOutput;
use crate::padding::Usage;
use crate::stream::StreamKey;
use crate::wire::cell::Command;
use crate::wire::message::{
    ADDRESS_TTL, Answer, Begin, EndReason, Message, RelayCommand, RelayKind, put_connected,
    put_refusal, put_resolved, read_resolve,
};

impl Relay {
    /// Handles a message that is addressed to this relay.
    pub(super) fn take_message(
        &mut self,
        now: Time,
        index: u32,
        command: Command,
        message: Message<'_>,
        tag: Tag,
    ) {
        match (message.command, message.stream) {
            (RelayCommand::EXTEND2, 0) if self.is_leg(index) => {
                if let Err(fault) = self.extend_set(now, index, command, message.data) {
                    self.break_off(index, fault);
                }
            }
            (RelayCommand::EXTEND2, 0) => self.extend(now, index, command, message.data),
            (RelayCommand::TRUNCATE, 0) => self.truncate(now, index),
            (RelayCommand::DROP, _) => {}
            (RelayCommand::SENDME, _)
            | (
                RelayCommand::BEGIN
                | RelayCommand::BEGIN_DIR
                | RelayCommand::RESOLVE
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
            (RelayCommand::LOSSY_LINK, 0) => {
                if let Err(fault) = self.link_lossy(now, index, message.data) {
                    self.break_off(index, fault);
                }
            }
            (command, _) => match command.kind() {
                RelayKind::Conflux => {
                    if let Err(fault) = self.take_conflux(now, index, message) {
                        self.break_off(index, fault);
                    }
                }
                RelayKind::Service => self.take_service_message(now, index, message),
                RelayKind::Stream | RelayKind::Circuit => {
                    self.break_off(index, CircuitFault::Message);
                }
                // Commands of later protocol versions are ignored.
                RelayKind::Lossy | RelayKind::Unknown => {}
            },
        }
    }

    /// Handles a message of a stream. The caller must have handled all earlier messages of the
    /// stream's circuit or circuit set.
    pub(super) fn take_turn(
        &mut self,
        now: Time,
        index: u32,
        message: Message<'_>,
    ) -> Result<(), CircuitFault> {
        match message.command {
            RelayCommand::BEGIN | RelayCommand::BEGIN_DIR | RelayCommand::RESOLVE => {
                self.begin(now, index, message)
            }
            _ => {
                let set = self.set_of(index);
                let set =
                    set.and_then(|set| self.sets.get_mut(set)).ok_or(CircuitFault::Message)?;
                set.take(now, message)
            }
        }
    }

    fn begin(&mut self, now: Time, index: u32, message: Message<'_>) -> Result<(), CircuitFault> {
        let (command, id) = (message.command, message.stream);
        let begin = Begin::read(message.data);
        let name = read_resolve(message.data);
        let well_formed = match command {
            RelayCommand::BEGIN => begin.is_some(),
            RelayCommand::RESOLVE => name.is_some(),
            _ => true,
        };
        let refusal = self.refusal(index, command);
        let set = self.set_of(index).ok_or(CircuitFault::Message)?;
        let key = self.streams.add(set, id);
        let added = self.sets.get_mut(set).is_some_and(|set| set.streams.add(id, key));
        if !well_formed || !added {
            self.streams.remove(key);
            return Err(CircuitFault::Message);
        }
        if let Some(reason) = refusal {
            let address = begin.and_then(|begin| begin.host.parse().ok());
            match address.filter(|_| reason == EndReason::EXIT_POLICY) {
                Some(address) => self.refused(now, key, (address, ADDRESS_TTL)),
                None => self.end(now, key, reason),
            }
            return Ok(());
        }
        if command != RelayCommand::BEGIN_DIR {
            self.mark_circuit(index, Usage::Streams);
        }
        let by_relay = self.is_from_relay(index);
        self.put(match (begin, name) {
            (Some(begin), _) if command == RelayCommand::BEGIN => {
                Output::Connect { stream: key, begin }
            }
            (_, Some(name)) if command == RelayCommand::RESOLVE => {
                Output::Resolve { stream: key, name }
            }
            _ => Output::Directory { stream: key, by_relay },
        });
        Ok(())
    }

    /// Returns the reason for refusing a stream; `None` if the stream is accepted.
    pub(super) fn refusal(&mut self, index: u32, command: RelayCommand) -> Option<EndReason> {
        let by_relay = self.is_from_relay(index);
        let wants_directory = command == RelayCommand::BEGIN_DIR;
        let set = self.set_of(index)?;
        let set = self.sets.get_mut(set)?;
        if set.streams.len() >= self.role.config.max_streams {
            return Some(EndReason::RESOURCES);
        }
        if wants_directory {
            // Legs carry exit streams only (C tor's TROVE-2026-008).
            let is_leg = set.several().is_some();
            return (is_leg || !self.role.config.directory).then_some(EndReason::NOT_DIRECTORY);
        }
        if !self.role.config.exit {
            return Some(EndReason::EXIT_POLICY);
        }
        // For a directly connected client, the exit would be a one-hop proxy.
        (!by_relay).then_some(EndReason::PROTOCOL)
    }

    /// Returns true if the circuit `index` comes to this relay from another relay, and false if it
    /// comes directly from a client.
    pub(super) fn is_from_relay(&mut self, index: u32) -> bool {
        let Some(circuit) = self.circuits.get(index) else { return false };
        let link = self.channels.link(circuit.previous.link);
        let here = || link.is_some_and(|link| link.channel.identity().is_some());
        circuit.by_relay().unwrap_or_else(here)
    }

    pub(super) fn connected(&mut self, now: Time, key: StreamKey, reached: Option<(IpAddr, u32)>) {
        if self.lossy_connected(now, key, reached) {
            return;
        }
        let Some((set_id, id)) = self.streams.live(key) else { return };
        let Some(set) = self.sets.get_mut(set_id) else { return };
        let opened = set.streams.with(id, |stream| {
            stream.open = true;
            !stream.incoming.is_empty()
        });
        let Some(has_more) = opened else { return };
        set.streams.queue_control(RelayCommand::CONNECTED, id, put_connected(reached));
        if has_more {
            self.put(StreamOutput::Readable { stream: key });
        }
        self.pump(now, set_id);
    }

    pub(super) fn refused(&mut self, now: Time, key: StreamKey, (address, ttl): (IpAddr, u32)) {
        if !self.lossy_refused(now, key, (address, ttl)) {
            self.end_by(now, key, RelayCommand::END, put_refusal(address, ttl));
        }
    }

    pub(super) fn resolved(&mut self, now: Time, key: StreamKey, answers: &[(Answer, u32)]) {
        self.end_by(now, key, RelayCommand::RESOLVED, put_resolved(answers));
    }

    /// Sends `command` with `data` as the only answer on the stream `key`, then ends the stream.
    fn end_by(&mut self, now: Time, key: StreamKey, command: RelayCommand, data: Vec<u8>) {
        let place = self.streams.live(key);
        self.streams.remove(key);
        let Some((set_id, id)) = place else { return };
        let Some(set) = self.sets.get_mut(set_id) else { return };
        set.streams.remove(id);
        set.streams.queue_control(command, id, data);
        self.pump(now, set_id);
    }
}
