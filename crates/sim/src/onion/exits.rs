//! The connections of an exit to the destinations of its streams.

use anabranch_multipath::Core as _;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use anabranch_onion::relay::{Input, Relay};
use anabranch_onion::wire::message::{Begin, EndReason};
use anabranch_onion::{LinkCore, StreamKey, StreamOutput};

use super::hosts::Hosts;
use crate::simulation::Io;
use crate::stack::{ConnId, TcpEvent};

/// Maximum bytes that are read from a destination at once.
const BATCH: usize = 16 << 10;
/// TTL of the destination address in CONNECTED messages, in seconds.
const TTL: u32 = 60;

/// An exit's connections to destinations, by the stream that uses the connection.
#[derive(Debug)]
pub(super) struct Exits {
    hosts: Arc<Hosts>,
    streams: BTreeMap<StreamKey, Destination>,
    conns: BTreeMap<ConnId, StreamKey>,
}

#[derive(Debug)]
struct Destination {
    conn: ConnId,
    address: IpAddr,
    /// Bytes that were received from the destination, and that the stream on the circuit cannot
    /// accept yet.
    held: Vec<u8>,
}

impl Exits {
    pub(super) fn new(hosts: Arc<Hosts>) -> Exits {
        Exits { hosts, streams: BTreeMap::new(), conns: BTreeMap::new() }
    }

    /// Returns whether `conn` is a connection to a destination.
    pub(super) fn has(&self, conn: ConnId) -> bool {
        self.conns.contains_key(&conn)
    }

    /// Connects a stream to its destination. If the destination is not the address of a simulated
    /// host, ends the stream with the reason RESOLVE_FAILED.
    pub(super) fn connect(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Relay,
        (stream, begin): (StreamKey, &Begin),
    ) {
        let address = begin.host.parse().ok();
        let found = address.and_then(|address| Some((address, *self.hosts.hosts.get(&address)?)));
        let Some((address, host)) = found else {
            return core.handle(io.now, Input::Ended { stream, reason: EndReason::RESOLVE_FAILED });
        };
        let conn = io.tcp.connect(io.now, host, begin.port);
        self.streams.insert(stream, Destination { conn, address, held: Vec::new() });
        self.conns.insert(conn, stream);
    }

    /// Handles an event of a connection to a destination.
    pub(super) fn take(&mut self, io: &mut Io<'_>, core: &mut Relay, event: TcpEvent) {
        match event {
            TcpEvent::Opened { conn } => {
                let Some(&stream) = self.conns.get(&conn) else { return };
                let Some(destination) = self.streams.get(&stream) else { return };
                let reached = Some((destination.address, TTL));
                core.handle(io.now, Input::Connected { stream, reached });
            }
            TcpEvent::Progress { conn } => {
                // Destinations send ordered streams, even if links are unordered.
                while io.tcp.read_out_of_order(conn).is_some() {}
                let Some(&stream) = self.conns.get(&conn) else { return };
                self.send(io, core, stream);
                self.receive(io, core, stream);
            }
            TcpEvent::Closed { conn, .. } => {
                let Some(stream) = self.conns.remove(&conn) else { return };
                self.streams.remove(&stream);
                core.handle(io.now, Input::Ended { stream, reason: EndReason::REFUSED });
            }
            TcpEvent::Accepted { .. } => {}
        }
    }

    /// Carries out an action that a stream requests, if the action concerns the stream's
    /// destination.
    pub(super) fn execute(&mut self, io: &mut Io<'_>, core: &mut Relay, output: StreamOutput) {
        match output {
            StreamOutput::Readable { stream } => self.send(io, core, stream),
            StreamOutput::Room { stream } => self.receive(io, core, stream),
            StreamOutput::Ended { stream, .. } => {
                if let Some(destination) = self.remove(stream) {
                    io.tcp.abort(destination.conn);
                }
            }
        }
    }

    fn remove(&mut self, stream: StreamKey) -> Option<Destination> {
        let destination = self.streams.remove(&stream)?;
        self.conns.remove(&destination.conn);
        Some(destination)
    }

    /// Sends a stream's bytes to its destination.
    fn send(&mut self, io: &mut Io<'_>, core: &mut Relay, stream: StreamKey) {
        let Some(destination) = self.streams.get(&stream) else { return };
        let (first, second) = core.read(stream);
        let mut taken = io.tcp.write(destination.conn, first);
        if taken == first.len() {
            taken += io.tcp.write(destination.conn, second);
        }
        core.consume(io.now, stream, taken);
    }

    /// Sends a destination's bytes to its stream.
    fn receive(&mut self, io: &mut Io<'_>, core: &mut Relay, stream: StreamKey) {
        let Some(destination) = self.streams.get_mut(&stream) else { return };
        let (conn, held) = (destination.conn, &mut destination.held);
        loop {
            if held.is_empty() {
                io.tcp.read_into(conn, held, BATCH);
            }
            if held.is_empty() {
                break;
            }
            let taken = core.write(io.now, stream, held);
            held.drain(..taken);
            if !held.is_empty() {
                return;
            }
        }
        if io.tcp.is_finished(conn) {
            self.remove(stream);
            io.tcp.close(conn);
            core.handle(io.now, Input::Ended { stream, reason: EndReason::DONE });
        }
    }
}
