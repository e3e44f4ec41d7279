//! A client's streams: to destinations, to directories, and questions for names.

use std::fmt;

use anabranch_multipath::Time;

use super::{CircuitKey, Client, Output};
use crate::ending::Ending;
use crate::event::CircuitFault;
use crate::padding::Usage;
use crate::stream::StreamKey;
use crate::wire::message::{
    Begin, Message, RelayCommand, is_connected, put_resolve, read_resolved,
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

    /// Asks the circuit's last relay for a name's addresses, or by in-addr.arpa for an address'
    /// name.
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

    fn add(
        &mut self,
        now: Time,
        key: CircuitKey,
        command: RelayCommand,
        data: Vec<u8>,
    ) -> Result<StreamKey, NoStream> {
        let index = *self.role.keys.get(&key).ok_or(NoStream::NotBuilt)?;
        let circuit = self.circuits.get(index).ok_or(NoStream::NotBuilt)?;
        let set_id = circuit.set().ok_or(NoStream::NotBuilt)?;
        let set = self.sets.get_mut(set_id.0).ok_or(NoStream::NotBuilt)?;
        let id = set.streams.next_id().ok_or(NoStream::Full)?;
        let stream = self.streams.add(set_id, id);
        set.streams.add(id, stream);
        set.streams.say(command, id, data);
        if let Some(lane) = circuit.lane.filter(|_| circuit.layers.len() > 1) {
            self.mark_link(lane.link, Usage::Streams);
        }
        self.pump(now, set_id);
        Ok(stream)
    }

    pub(super) fn connected(&mut self, now: Time, index: u32, message: Message<'_>) {
        let id = self.circuits.get(index).and_then(Ending::set);
        let Some((id, set)) = id.and_then(|id| Some((id, self.set_mut(id)?))) else {
            return self.break_off(index, CircuitFault::Message);
        };
        // A stream that we have ended since: the answer was under way.
        let Some(stream) = set.streams.stream(message.stream) else { return };
        if stream.open || !is_connected(message.data) {
            return self.break_off(index, CircuitFault::Message);
        }
        stream.open = true;
        let stream = stream.key;
        self.put(Output::Connected { stream });
        self.pump(now, id);
    }

    pub(super) fn resolved(&mut self, index: u32, message: Message<'_>) {
        let id = self.circuits.get(index).and_then(Ending::set);
        let Some(set) = id.and_then(|id| self.set_mut(id)) else {
            return self.break_off(index, CircuitFault::Message);
        };
        let Some(answers) = read_resolved(message.data) else {
            return self.break_off(index, CircuitFault::Message);
        };
        let Some(stream) = set.streams.remove(message.stream) else { return };
        self.streams.remove(stream.key);
        self.put(Output::Resolved { stream: stream.key, answers });
    }
}
