//! A client's streams to destinations and directories, and its name lookups.

use std::fmt;

use anabranch_multipath::Time;

use super::{CircuitKey, Client, Output};
use crate::conflux::may_carry;
use crate::event::CircuitFault;
use crate::padding::Usage;
use crate::stream::StreamKey;
use crate::wire::message::{
    Begin, Message, RelayCommand, is_connected, put_resolve, read_resolved,
};

/// Reason why a stream cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStream {
    /// The circuit is closed, or not complete.
    NotBuilt,
    /// The host is not a valid name for a BEGIN message.
    BadName,
    /// All of the circuit's stream IDs are in use.
    Full,
    /// The circuit is a leg of a set of parallel circuits, and such sets carry no directory
    /// requests.
    Leg,
}

impl fmt::Display for NoStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoStream::NotBuilt => "the circuit is not complete",
            NoStream::BadName => "the destination is neither a host name nor an address",
            NoStream::Leg => {
                "a circuit that shares streams with other circuits carries no directory requests"
            }
            NoStream::Full => "all stream IDs of the circuit are in use",
        })
    }
}

impl std::error::Error for NoStream {}

impl Client {
    /// Opens a stream to a destination.
    ///
    /// # Errors
    /// Returns [`NoStream`] if the stream cannot be opened.
    pub fn begin(
        &mut self,
        now: Time,
        circuit: CircuitKey,
        begin: &Begin,
    ) -> Result<StreamKey, NoStream> {
        self.begin_with(now, circuit, begin, &[])
    }

    /// Opens a stream to a destination, and writes `first`: at most 64 KiB that the program has
    /// already sent. On a lossy circuit (whose cells travel in datagrams), the stream's first
    /// segment contains as many of these bytes as fit.
    ///
    /// # Errors
    /// Returns [`NoStream`] if the stream cannot be opened.
    pub fn begin_with(
        &mut self,
        now: Time,
        circuit: CircuitKey,
        begin: &Begin,
        first: &[u8],
    ) -> Result<StreamKey, NoStream> {
        let data = begin.write().ok_or(NoStream::BadName)?;
        self.add(now, circuit, (RelayCommand::BEGIN, data), first)
    }

    /// Opens a stream to the directory of the circuit's last relay.
    ///
    /// # Errors
    /// Returns [`NoStream`] if the stream cannot be opened.
    pub fn begin_directory(
        &mut self,
        now: Time,
        circuit: CircuitKey,
    ) -> Result<StreamKey, NoStream> {
        self.add(now, circuit, (RelayCommand::BEGIN_DIR, Vec::new()), &[])
    }

    /// Asks the circuit's last relay for the addresses of `name`. For a name under in-addr.arpa,
    /// asks for the host name of that address (a reverse lookup).
    ///
    /// # Errors
    /// Returns [`NoStream`] if the lookup cannot be begun.
    pub fn resolve(
        &mut self,
        now: Time,
        circuit: CircuitKey,
        name: &str,
    ) -> Result<StreamKey, NoStream> {
        let data = put_resolve(name).ok_or(NoStream::BadName)?;
        self.add(now, circuit, (RelayCommand::RESOLVE, data), &[])
    }

    fn add(
        &mut self,
        now: Time,
        key: CircuitKey,
        (command, data): (RelayCommand, Vec<u8>),
        first: &[u8],
    ) -> Result<StreamKey, NoStream> {
        let set_id = self.streams_of(key).ok_or(NoStream::NotBuilt)?;
        let set = self.sets.get_mut(set_id).ok_or(NoStream::NotBuilt)?;
        if !may_carry(command) && set.several().is_some() {
            return Err(NoStream::Leg);
        }
        let id = set.next_id().ok_or(NoStream::Full)?;
        let stream = self.streams.add(set_id, id);
        match set.lossy.as_mut().filter(|_| command == RelayCommand::BEGIN) {
            Some(lossy) => lossy.connect(now, (id, stream), &data, &mut *self.rng),
            None => {
                set.streams.add(id, stream);
                set.streams.queue_control(command, id, data);
            }
        }
        // Write the bytes before anything is sent, so that the first segment contains as many as
        // fit.
        match set.lossy.as_mut().filter(|lossy| lossy.has(id, stream)) {
            Some(lossy) => set.streams.transferred[1] += lossy.write(id, first) as u64,
            None if first.is_empty() => {}
            None => drop(set.streams.with(id, |stream| stream.write(first))),
        }
        let circuit = self.role.keys.get(&key).and_then(|&index| self.circuits.get(index));
        let built = circuit.filter(|circuit| circuit.layers.len() > 1);
        if let Some(link_circuit) = built.and_then(|circuit| circuit.first_hop) {
            self.mark_link(link_circuit.link, Usage::Streams);
        }
        self.pump(now, set_id);
        Ok(stream)
    }

    /// Handles a message of a stream. All earlier messages of its set or circuit must have been
    /// handled.
    pub(super) fn take_turn(
        &mut self,
        now: Time,
        index: u32,
        message: Message<'_>,
    ) -> Result<(), CircuitFault> {
        let set = self.set_of(index);
        let set = set.and_then(|set| self.sets.get_mut(set)).ok_or(CircuitFault::Message)?;
        match message.command {
            RelayCommand::CONNECTED => {
                // A stream that was closed after its answer was sent has no entry any more.
                let Some(stream) = set.streams.peek(message.stream) else { return Ok(()) };
                if stream.open || !is_connected(message.data) {
                    return Err(CircuitFault::Message);
                }
                let stream = stream.key;
                set.streams.with(message.stream, |stream| stream.open = true);
                self.put(Output::Connected { stream });
            }
            RelayCommand::RESOLVED => {
                let answers = read_resolved(message.data).ok_or(CircuitFault::Message)?;
                let Some(stream) = set.streams.remove(message.stream) else { return Ok(()) };
                self.streams.remove(stream.key);
                self.put(Output::Resolved { stream: stream.key, answers });
            }
            _ => set.take(now, message)?,
        }
        Ok(())
    }
}
