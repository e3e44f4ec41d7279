//! A client's streams: to destinations, to directories, and questions for names.

use std::collections::VecDeque;
use std::fmt;

use anabranch_multipath::Time;

use super::{CircuitKey, Client, Output};
use crate::event::Violation;
use crate::stream::StreamKey;
use crate::wire::message::{
    Begin, EndReason, Message, RelayCommand, is_connected, put_resolve, read_resolved,
};

/// Why a stream cannot be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStream {
    /// The circuit is gone, or not complete.
    NotBuilt,
    /// The host is no name that Tor carries.
    BadName,
    /// All of the circuit's stream IDs are in use.
    Full,
}

impl fmt::Display for NoStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoStream::NotBuilt => "the circuit is not complete",
            NoStream::BadName => "not a host name or an address",
            NoStream::Full => "the circuit has no stream number left",
        })
    }
}

impl std::error::Error for NoStream {}

impl Client {
    /// Opens a stream to a destination.
    ///
    /// # Errors
    /// [`NoStream`]
    pub fn begin(
        &mut self,
        now: Time,
        circuit: CircuitKey,
        begin: &Begin,
    ) -> Result<StreamKey, NoStream> {
        let data = begin.write().ok_or(NoStream::BadName)?;
        self.add(now, circuit, RelayCommand::BEGIN, data)
    }

    /// Opens a stream to the directory of the circuit's last relay.
    ///
    /// # Errors
    /// [`NoStream`]
    pub fn begin_directory(
        &mut self,
        now: Time,
        circuit: CircuitKey,
    ) -> Result<StreamKey, NoStream> {
        self.add(now, circuit, RelayCommand::BEGIN_DIR, Vec::new())
    }

    /// Asks the circuit's last relay for a name's addresses, or by in-addr.arpa for an address' name.
    ///
    /// # Errors
    /// [`NoStream`]
    pub fn resolve(
        &mut self,
        now: Time,
        circuit: CircuitKey,
        name: &str,
    ) -> Result<StreamKey, NoStream> {
        let data = put_resolve(name).ok_or(NoStream::BadName)?;
        self.add(now, circuit, RelayCommand::RESOLVE, data)
    }

    /// Takes bytes of a stream's program; returns how many. If not all, [`Output::Room`] follows.
    pub fn write(&mut self, now: Time, stream: StreamKey, bytes: &[u8]) -> usize {
        let Some((index, id)) = self.streams.live(stream) else { return bytes.len() };
        let Some(circuit) = self.circuits.get_mut(index) else { return bytes.len() };
        let Some(tail) = &mut circuit.tail else { return bytes.len() };
        let taken = tail.end.stream(id).map_or(bytes.len(), |stream| stream.write(bytes));
        self.pump(now, index);
        taken
    }

    /// The bytes that wait for a stream's program: two pieces, in order.
    pub fn read(&self, stream: StreamKey) -> (&[u8], &[u8]) {
        if let Some((index, id)) = self.streams.live(stream) {
            let tail = self.circuits.get(index).and_then(|circuit| circuit.tail.as_ref());
            let stream = tail.and_then(|tail| tail.end.peek(id));
            return stream.map_or((&[], &[]), |stream| stream.incoming.as_slices());
        }
        self.streams.left(stream).map_or((&[], &[]), VecDeque::as_slices)
    }

    /// The program took the first `bytes` of [`Client::read`].
    pub fn consume(&mut self, now: Time, stream: StreamKey, bytes: usize) {
        let Some((index, id)) = self.streams.live(stream) else {
            let reason = self.streams.consumed(stream, bytes);
            self.outputs.extend(reason.map(|reason| Output::Ended { stream, reason }));
            return;
        };
        let tail = self.circuits.get_mut(index).and_then(|circuit| circuit.tail.as_mut());
        if let Some(tail) = tail {
            tail.end.consumed(now, id, bytes);
            self.pump(now, index);
        }
    }

    fn add(
        &mut self,
        now: Time,
        key: CircuitKey,
        command: RelayCommand,
        data: Vec<u8>,
    ) -> Result<StreamKey, NoStream> {
        let index = *self.keys.get(&key).ok_or(NoStream::NotBuilt)?;
        let circuit = self.circuits.get_mut(index).ok_or(NoStream::NotBuilt)?;
        let tail = circuit.tail.as_mut().ok_or(NoStream::NotBuilt)?;
        let id = tail.end.free_id(circuit.last_id).ok_or(NoStream::Full)?;
        circuit.last_id = id;
        let stream = self.streams.add(index, id);
        tail.end.add(id, stream);
        tail.end.say(command, id, data);
        self.pump(now, index);
        Ok(stream)
    }

    pub(super) fn end(&mut self, now: Time, key: StreamKey) {
        let Some((index, id)) = self.streams.live(key) else { return self.streams.remove(key) };
        let tail = self.circuits.get_mut(index).and_then(|circuit| circuit.tail.as_mut());
        if let Some(stream) = tail.and_then(|tail| tail.end.stream(id)) {
            // What a client says of why is nothing (tor-spec, "Closing streams").
            stream.end(EndReason::MISC);
            self.pump(now, index);
        }
    }

    pub(super) fn connected(&mut self, now: Time, index: u32, message: Message<'_>) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let Some(tail) = &mut circuit.tail else {
            return self.break_off(index, Violation::Message);
        };
        // A stream that we have ended since: the answer was under way.
        let Some(stream) = tail.end.stream(message.stream) else { return };
        if stream.open || !is_connected(message.data) {
            return self.break_off(index, Violation::Message);
        }
        stream.open = true;
        let stream = stream.key;
        self.outputs.push_back(Output::Connected { stream });
        self.pump(now, index);
    }

    pub(super) fn resolved(&mut self, index: u32, message: Message<'_>) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        let Some(tail) = &mut circuit.tail else {
            return self.break_off(index, Violation::Message);
        };
        let Some(answers) = read_resolved(message.data) else {
            return self.break_off(index, Violation::Message);
        };
        let Some(stream) = tail.end.remove(message.stream) else { return };
        self.streams.remove(stream.key);
        self.outputs.push_back(Output::Resolved { stream: stream.key, answers });
    }
}
