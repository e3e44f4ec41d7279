//! The TCP connections of a host.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anabranch_multipath::seed::{self, Stream};
use anabranch_multipath::{Core as _, LinkView, Time};
use anabranch_tcp::{Config, Connection, Ending, Flags, Ports, Segment, Seq, Stats};
use rand::Rng;

use crate::queue::HostId;

/// First port of connections that a host opens (RFC 6335, section 6).
const FIRST_DYNAMIC_PORT: u16 = 49_152;

/// Identifier of a connection at its host. Identifiers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u32);

/// An event of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpEvent {
    /// A peer has opened a connection.
    Accepted {
        /// The new connection.
        conn: ConnId,
        /// The peer that opened the connection.
        peer: HostId,
        /// The port of this host that the peer connected to.
        port: u16,
    },
    /// A connection that [`Stack::connect`] opened is established.
    Opened {
        /// The connection.
        conn: ConnId,
    },
    /// A segment of the peer was processed. There may be bytes to read, room to write, or the end
    /// of the peer's stream.
    Progress {
        /// The connection.
        conn: ConnId,
    },
    /// The connection has ended.
    Closed {
        /// The connection.
        conn: ConnId,
        /// The reason why the connection has ended.
        ending: Ending,
    },
}

/// The TCP connections of a host by four-tuple, and the ports on which it listens.
#[derive(Debug)]
pub struct Stack {
    config: Config,
    sockets: Vec<Option<Box<Socket>>>,
    table: BTreeMap<FourTuple, ConnId>,
    listening: BTreeSet<u16>,
    next_port: u16,
    events: VecDeque<TcpEvent>,
    /// Resets to be sent to hosts, for segments that belong to no connection.
    resets: VecDeque<(HostId, Segment)>,
    /// Connections that may have something to send.
    dirty: VecDeque<ConnId>,
    /// Timers that the caller must set, each with its time and connection.
    timers: Vec<(Time, ConnId)>,
    sequence_numbers: Stream,
}

/// The key of a connection at its host: a TCP four-tuple without the host's address, as one
/// integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FourTuple(u64);

impl FourTuple {
    fn new(peer: HostId, local: u16, remote: u16) -> FourTuple {
        FourTuple(u64::from(peer.0) << 32 | u64::from(local) << 16 | u64::from(remote))
    }
}

#[derive(Debug)]
struct Socket {
    tcp: Connection,
    peer: HostId,
    accepted: bool,
    /// True if the event [`TcpEvent::Opened`] or [`TcpEvent::Accepted`] of this connection has
    /// been reported.
    reported: bool,
    is_dirty: bool,
    /// Time for which the timer is set. If the timeout moves to a later time, this value does not
    /// change. `None` if no timer is set.
    armed: Option<Time>,
}

impl Stack {
    /// Creates a host's stack without connections. Its random numbers depend on `seed` and on
    /// `entity`, the host's number.
    pub fn new(config: Config, seed: u64, entity: u64) -> Stack {
        Stack {
            config,
            sockets: Vec::new(),
            table: BTreeMap::new(),
            listening: BTreeSet::new(),
            next_port: FIRST_DYNAMIC_PORT,
            events: VecDeque::new(),
            resets: VecDeque::new(),
            dirty: VecDeque::new(),
            timers: Vec::new(),
            sequence_numbers: seed::stream(seed, entity, "tcp sequence numbers"),
        }
    }

    /// Accepts connections to `port` from now on.
    pub fn listen(&mut self, port: u16) {
        self.listening.insert(port);
    }

    /// Opens a connection to `port` of `peer`.
    ///
    /// # Panics
    /// If all 16,384 dynamic ports are in use for connections to that port of the peer.
    pub fn connect(&mut self, now: Time, peer: HostId, port: u16) -> ConnId {
        let local = self.free_port(peer, port);
        let ports = Ports { local, remote: port };
        let iss = Seq(self.sequence_numbers.next_u32());
        let tcp = Connection::connect(now, &self.config, ports, iss);
        self.add(tcp, peer, false)
    }

    fn free_port(&mut self, peer: HostId, remote: u16) -> u16 {
        for _ in FIRST_DYNAMIC_PORT..=u16::MAX {
            let local = self.next_port;
            self.next_port = local.checked_add(1).unwrap_or(FIRST_DYNAMIC_PORT);
            if !self.table.contains_key(&FourTuple::new(peer, local, remote)) {
                return local;
            }
        }
        panic!("no port is left for a connection to host {}", peer.0);
    }

    fn add(&mut self, tcp: Connection, peer: HostId, accepted: bool) -> ConnId {
        let conn = ConnId(self.sockets.len() as u32);
        let Ports { local, remote } = tcp.ports();
        self.table.insert(FourTuple::new(peer, local, remote), conn);
        let socket = Socket { tcp, peer, accepted, reported: false, is_dirty: false, armed: None };
        self.sockets.push(Some(Box::new(socket)));
        self.mark(conn);
        conn
    }

    fn socket(&mut self, conn: ConnId) -> Option<&mut Socket> {
        self.sockets.get_mut(conn.0 as usize)?.as_deref_mut()
    }

    /// Adds a connection to the queue of connections that may have segments to send.
    fn mark(&mut self, conn: ConnId) {
        if let Some(socket) = self.socket(conn).filter(|socket| !socket.is_dirty) {
            socket.is_dirty = true;
            self.dirty.push_back(conn);
        }
    }

    /// Calls `act` with a connection, and then adds the connection to the queue of connections
    /// that may have segments to send.
    fn with<T: Default>(&mut self, conn: ConnId, act: impl FnOnce(&mut Connection) -> T) -> T {
        let Some(socket) = self.socket(conn) else { return T::default() };
        let done = act(&mut socket.tcp);
        self.mark(conn);
        done
    }

    /// Appends bytes to the stream of a connection. Returns the number of accepted bytes, which is
    /// 0 if the connection has ended.
    pub fn write(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        self.with(conn, |tcp| tcp.write(bytes))
    }

    /// Appends all received bytes of a connection to `into`.
    pub fn read_all(&mut self, conn: ConnId, into: &mut Vec<u8>) {
        self.with(conn, |tcp| tcp.read_all(into));
    }

    /// Moves up to `limit` received bytes of a connection to the end of `into`, and returns their
    /// number.
    pub fn read_into(&mut self, conn: ConnId, into: &mut Vec<u8>, limit: usize) -> usize {
        self.with(conn, |tcp| {
            let (front, back) = tcp.peek();
            let first = front.len().min(limit);
            let second = back.len().min(limit - first);
            into.extend_from_slice(&front[..first]);
            into.extend_from_slice(&back[..second]);
            tcp.consume(first + second);
            first + second
        })
    }

    /// Returns the next part of a connection's stream that arrived out of order, with its offset
    /// in the stream; `None` if there is none. Parts that arrive out of order are kept only if
    /// [`Config::out_of_order`] is set.
    pub fn read_out_of_order(&mut self, conn: ConnId) -> Option<(u64, Vec<u8>)> {
        self.socket(conn)?.tcp.read_out_of_order()
    }

    /// Closes this host's side of a connection.
    pub fn close(&mut self, conn: ConnId) {
        self.with(conn, Connection::close);
    }

    /// Ends a connection with a reset.
    pub fn abort(&mut self, conn: ConnId) {
        self.with(conn, Connection::abort);
    }

    fn peek(&self, conn: ConnId) -> Option<&Connection> {
        Some(&self.sockets.get(conn.0 as usize)?.as_ref()?.tcp)
    }

    /// Returns the number of bytes that can be read from a connection.
    pub fn readable(&self, conn: ConnId) -> usize {
        self.peek(conn).map_or(0, Connection::readable)
    }

    /// Returns the number of bytes that [`Stack::write`] accepts now.
    pub fn room(&self, conn: ConnId) -> usize {
        self.peek(conn).map_or(0, Connection::room)
    }

    /// Returns whether the peer has closed its side of a connection, and all of the peer's bytes
    /// were received.
    pub fn is_finished(&self, conn: ConnId) -> bool {
        self.peek(conn).is_none_or(Connection::is_finished)
    }

    /// Returns the state of a connection as `TCP_INFO` would report it; `None` if it has ended.
    pub fn view(&self, now: Time, conn: ConnId) -> Option<LinkView> {
        Some(self.peek(conn)?.view(now))
    }

    /// Returns the counters of a connection; `None` if it has ended.
    pub fn stats(&self, conn: ConnId) -> Option<Stats> {
        Some(self.peek(conn)?.stats())
    }

    /// Returns the number of connections that have not ended.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Handles a segment that `peer` has sent.
    pub fn handle(&mut self, now: Time, peer: HostId, segment: Segment) {
        let tuple = FourTuple::new(peer, segment.destination, segment.source);
        let Some(&conn) = self.table.get(&tuple) else {
            return self.handle_stranger(now, peer, &segment);
        };
        self.with(conn, |tcp| tcp.handle(now, segment));
        self.report(conn);
    }

    /// Handles a segment that belongs to no connection. A SYN may open a new connection; other
    /// segments are refused.
    fn handle_stranger(&mut self, now: Time, peer: HostId, segment: &Segment) {
        let listens = self.listening.contains(&segment.destination);
        if listens && segment.flags.has(Flags::SYN) {
            let iss = Seq(self.sequence_numbers.next_u32());
            if let Some(tcp) = Connection::accept(now, &self.config, iss, segment) {
                self.add(tcp, peer, true);
                return;
            }
        }
        self.resets.extend(segment.reset().map(|reset| (peer, reset)));
    }

    /// Reports, as events, the changes that a segment has caused.
    fn report(&mut self, conn: ConnId) {
        let Some(socket) = self.socket(conn) else { return };
        if !socket.reported && socket.tcp.is_open() {
            socket.reported = true;
            let (peer, port) = (socket.peer, socket.tcp.ports().local);
            let event = match socket.accepted {
                true => TcpEvent::Accepted { conn, peer, port },
                false => TcpEvent::Opened { conn },
            };
            self.events.push_back(event);
        } else if socket.reported {
            self.events.push_back(TcpEvent::Progress { conn });
        }
    }

    /// Removes a connection that has ended.
    fn reap(&mut self, conn: ConnId) {
        let Some(socket) = self.socket(conn) else { return };
        let Some(ending) = socket.tcp.ending() else { return };
        let Ports { local, remote } = socket.tcp.ports();
        let tuple = FourTuple::new(socket.peer, local, remote);
        self.table.remove(&tuple);
        self.sockets[conn.0 as usize] = None;
        self.events.push_back(TcpEvent::Closed { conn, ending });
    }

    /// Returns the next event; `None` if there is none.
    pub fn poll_event(&mut self) -> Option<TcpEvent> {
        self.events.pop_front()
    }

    /// Returns the next segment to send, and its destination. Call this function until it returns
    /// `None`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(HostId, Segment)> {
        if let Some(reset) = self.resets.pop_front() {
            return Some(reset);
        }
        while let Some(&conn) = self.dirty.front() {
            if let Some(socket) = self.socket(conn) {
                let peer = socket.peer;
                if let Some(segment) = socket.tcp.poll(now) {
                    return Some((peer, segment));
                }
                socket.is_dirty = false;
                self.arm(conn);
                self.reap(conn);
            }
            self.dirty.pop_front();
        }
        None
    }

    fn arm(&mut self, conn: ConnId) {
        let Some(socket) = self.socket(conn) else { return };
        let Some(due) = socket.tcp.next_timeout() else { return };
        if socket.armed.is_none_or(|armed| due < armed) {
            socket.armed = Some(due);
            self.timers.push((due, conn));
        }
    }

    /// Returns the next timer to set: its time and its connection; `None` if there is none. The
    /// caller must call [`Stack::expire`] at the returned time.
    pub fn poll_timer(&mut self) -> Option<(Time, ConnId)> {
        self.timers.pop()
    }

    /// Handles the expiry of a timer that [`Stack::poll_timer`] returned. Returns false if the
    /// timer is obsolete, because an earlier one was set after it.
    pub fn expire(&mut self, now: Time, conn: ConnId) -> bool {
        let Some(socket) = self.socket(conn) else { return false };
        let is_due = socket.armed.is_some_and(|armed| armed <= now);
        if is_due {
            socket.armed = None;
            self.mark(conn);
        }
        is_due
    }
}
