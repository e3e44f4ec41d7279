//! Wires: TCP connections between a client and a server of our transport. A link sends its data
//! over one or more wires.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_os::poller::{Interest, Poller, Ready};
use anabranch_pt::Outbound;
use socket2::{SockRef, TcpKeepalive};

use super::backlog::Backlog;
use super::socket_watch::SocketWatch;
use crate::onion::{connecting_from, is_passing};

/// Smallest poller token of a wire (a TCP connection). The token is this value plus the wire's
/// identifier.
pub(super) const WIRES: u64 = 1 << 61;
/// Maximum number of bytes that are queued in this program for a socket. The limit is small,
/// because these bytes are delayed if the connection fails.
const BUFFER: usize = 32 << 10;
/// Maximum number of unsent bytes in the kernel for each socket (`TCP_NOTSENT_LOWAT`). The limit
/// is small, because these bytes are delayed if the connection fails.
const UNSENT: u32 = 16 << 10;
/// Growth of the free room in a wire's queue, in bytes, from which the protocol core is notified.
/// A wire is a TCP connection.
const STEP: usize = 4 << 10;
/// Number of bytes that are read in one call.
const PIECE: usize = 64 << 10;
/// Maximum time from our request to close a wire (TCP connection) until both ends have closed it.
/// After this time, the wire is dropped.
const LINGERS: Duration = Duration::from_secs(5);
/// Time without traffic after which the kernel sends keepalive probes.
const SILENT: Duration = Duration::from_secs(60);

/// A wire: one TCP connection, and the bytes that are queued for it.
struct Wire {
    socket: TcpStream,
    connected: bool,
    waits: Backlog,
    /// Free room in the wire's queue in bytes, as the protocol core knows it: the last reported
    /// room, less the bytes that the core has queued since then.
    believed: usize,
    /// True if we opened the wire (TCP connection).
    dialled: bool,
    /// True if any bytes were queued for the wire (TCP connection) so far.
    has_output: bool,
    /// True if the wire (TCP connection) is not read at present, because its bytes are forwarded
    /// to another wire that has no room.
    paused: bool,
    /// True if the other end has ended its stream.
    ended: bool,
    /// True if our stream will end once the queue is sent.
    finishing: bool,
    /// Time at which closing the wire (TCP connection) was requested; `None` if closing was not
    /// requested. The wire is closed once its queue is sent.
    closing: Option<Time>,
    shut: bool,
    watched: SocketWatch,
}

/// Result of handling an event of the socket of a wire (TCP connection).
#[derive(Debug, Default)]
pub(super) struct WireNews {
    /// True if the wire (TCP connection) has just opened.
    pub(super) opened: bool,
    pub(super) bytes: Vec<u8>,
    /// True if the other end has ended its stream.
    pub(super) ended: bool,
    /// True if the wire (TCP connection) is closed or could not be opened.
    pub(super) gone: bool,
    /// Error of a connection attempt. It is only set if bytes were already queued for the
    /// connection; otherwise `None`.
    pub(super) unreached: Option<io::Error>,
}

/// All wires (TCP connections), by identifier. Identifiers are not reused.
pub(super) struct Wires {
    wires: BTreeMap<u64, Wire>,
    next: u64,
    /// Source addresses of outgoing connections.
    pub(super) outbound: Outbound,
    buffer: Vec<u8>,
    /// Wires (TCP connections) that may have more room than was reported to the protocol core, or
    /// may have to be closed.
    changed: BTreeSet<u64>,
}

impl Wires {
    /// Creates an empty table of wires (TCP connections).
    pub(super) fn new() -> Wires {
        let (wires, changed) = (BTreeMap::new(), BTreeSet::new());
        let outbound = Outbound::default();
        Wires { wires, next: 0, outbound, buffer: vec![0; PIECE], changed }
    }

    /// Returns the number of wires (TCP connections).
    pub(super) fn len(&self) -> usize {
        self.wires.len()
    }

    /// Opens a connection to `peer`. Returns the number of the new wire (TCP connection).
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn dial(&mut self, poller: &Poller, peer: SocketAddr) -> io::Result<u64> {
        let from = self.outbound.towards(peer.ip());
        self.add(poller, (connecting_from(peer, from)?, false))
    }

    /// Adds the incoming connection `socket`. Returns the number of the new wire (TCP connection).
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn accept(&mut self, poller: &Poller, socket: TcpStream) -> io::Result<u64> {
        socket.set_nonblocking(true)?;
        self.add(poller, (socket, true))
    }

    fn add(&mut self, poller: &Poller, (socket, connected): (TcpStream, bool)) -> io::Result<u64> {
        socket.set_nodelay(true)?;
        let options = SockRef::from(&socket);
        options.set_tcp_notsent_lowat(UNSENT)?;
        options.set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENT))?;
        self.next += 1;
        let mut wire = Wire {
            socket,
            connected,
            waits: Backlog::default(),
            believed: 0,
            dialled: !connected,
            has_output: false,
            paused: false,
            ended: false,
            finishing: false,
            closing: None,
            shut: false,
            watched: SocketWatch::default(),
        };
        wire.watch(poller, self.next)?;
        self.wires.insert(self.next, wire);
        self.changed.insert(self.next);
        Ok(self.next)
    }

    /// Handles an event of the wire (TCP connection) `number`, whose socket is ready. Returns an
    /// empty result for a wire that we have closed.
    pub(super) fn take(&mut self, poller: &Poller, number: u64, ready: Ready) -> WireNews {
        let Some(wire) = self.wires.get_mut(&number) else { return WireNews::default() };
        let news = wire.take(&mut self.buffer, ready).unwrap_or_else(|error| wire.gone(error));
        self.changed.insert(number);
        let is_open = wire.closing.is_none();
        if news.gone {
            self.wires.remove(&number);
        } else {
            self.watch(poller, number);
        }
        if is_open { news } else { WireNews::default() }
    }

    /// Queues `bytes` for sending on the wire (TCP connection) `number`.
    pub(super) fn send(&mut self, number: u64, bytes: &[u8]) {
        let Some(wire) = self.wires.get_mut(&number) else { return };
        wire.waits.push(bytes);
        wire.believed = wire.believed.saturating_sub(bytes.len());
        wire.has_output = true;
        self.changed.insert(number);
    }

    /// Closes the wire (TCP connection) `number` once its queue is sent. Nothing more is reported
    /// about that wire.
    pub(super) fn close(&mut self, now: Time, number: u64) {
        if let Some(wire) = self.wires.get_mut(&number) {
            wire.closing = Some(now);
            self.changed.insert(number);
        }
    }

    /// Writes queued bytes. Returns the wires (TCP connections) whose room has grown, or on which
    /// our stream has just ended. Each entry has the wire's number and its room in bytes, or
    /// `None` if the wire is gone.
    pub(super) fn settle(&mut self, poller: &Poller) -> Vec<(u64, Option<usize>)> {
        let mut rooms = Vec::new();
        for number in std::mem::take(&mut self.changed) {
            let Some(wire) = self.wires.get_mut(&number) else { continue };
            let (was_shut, written) = (wire.shut, wire.flush());
            let core_knows = wire.closing.is_none();
            if written.is_err() {
                self.wires.remove(&number);
                rooms.extend(core_knows.then_some((number, None)));
                continue;
            }
            // Both streams of the wire have ended. Without removal, the kernel would report its
            // connection again and again.
            if wire.closing.is_some() && wire.ended && wire.shut {
                self.wires.remove(&number);
                continue;
            }
            let finished = core_knows && wire.shut && !was_shut;
            let room = wire.grown().or(finished.then_some(BUFFER));
            rooms.extend(room.map(|room| (number, Some(room))));
            self.watch(poller, number);
        }
        rooms
    }

    /// Drops wires (TCP connections) that have not been closed by both ends within [`LINGERS`]
    /// after closing was requested.
    pub(super) fn sweep(&mut self, now: Time) {
        let late = |wire: &Wire| wire.closing.is_some_and(|since| now.since(since) >= LINGERS);
        self.wires.retain(|_, wire| !late(wire));
    }

    /// Returns the wires (TCP connections) whose sockets have accepted none of their queued bytes
    /// for a minute. The time counts from the first call without progress.
    pub(super) fn stuck(&mut self, now: Time) -> Vec<u64> {
        let stuck = |(&number, wire): (&u64, &mut Wire)| wire.waits.is_stuck(now).then_some(number);
        self.wires.iter_mut().filter_map(stuck).collect()
    }

    /// Returns the oldest incoming wire (TCP connection) on which we have sent nothing; `None` if
    /// there is none.
    pub(super) fn oldest_unanswered(&self) -> Option<u64> {
        let silent = |wire: &Wire| !wire.has_output && !wire.dialled;
        self.wires.iter().find(|(_, wire)| silent(wire)).map(|(&number, _)| number)
    }

    /// Returns the number of bytes queued for the wire (TCP connection) `number`.
    pub(super) fn waits(&self, number: u64) -> usize {
        self.wires.get(&number).map_or(0, |wire| wire.waits.len())
    }

    /// Stops reading from the wire (TCP connection) `number` if `paused` is true; otherwise
    /// resumes reading.
    pub(super) fn pause(&mut self, poller: &Poller, number: u64, paused: bool) {
        if let Some(wire) = self.wires.get_mut(&number) {
            wire.paused = paused;
            self.watch(poller, number);
        }
    }

    /// Ends our stream on the wire (TCP connection) `number` once its queue is sent. The wire is
    /// still read.
    pub(super) fn finish(&mut self, number: u64) {
        if let Some(wire) = self.wires.get_mut(&number) {
            wire.finishing = true;
            self.changed.insert(number);
        }
    }

    /// Returns whether both ends of the wire (TCP connection) `number` have ended their streams.
    pub(super) fn is_over(&self, number: u64) -> bool {
        self.wires.get(&number).is_none_or(|wire| wire.ended && wire.shut)
    }

    /// Drops the wire (TCP connection) `number` at once.
    pub(super) fn drop_now(&mut self, number: u64) {
        self.wires.remove(&number);
    }

    fn watch(&mut self, poller: &Poller, number: u64) {
        if let Some(wire) = self.wires.get_mut(&number) {
            // If this fails, the old events stay in use.
            let _ = wire.watch(poller, number);
        }
    }
}

impl Wire {
    fn watch(&mut self, poller: &Poller, number: u64) -> io::Result<()> {
        let write = !self.connected || !self.waits.is_empty();
        let wanted = Interest { read: !self.paused && !self.ended, write };
        self.watched.set(poller, (&self.socket, WIRES + number), wanted)
    }

    fn take(&mut self, buffer: &mut [u8], ready: Ready) -> io::Result<WireNews> {
        let mut news = WireNews::default();
        if !self.connected {
            if let Some(error) = self.socket.take_error()? {
                return Err(error);
            }
            self.connected = ready.write;
            news.opened = ready.write;
        }
        if !self.connected || !ready.read || self.paused || self.ended {
            return Ok(news);
        }
        match self.socket.read(buffer) {
            Ok(0) => (self.ended, news.ended) = (true, true),
            Ok(count) => news.bytes = buffer[..count].to_vec(),
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(news)
    }

    fn gone(&self, error: io::Error) -> WireNews {
        let unreached = (!self.connected && !self.waits.is_empty()).then_some(error);
        WireNews { gone: true, unreached, ..WireNews::default() }
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.connected {
            return Ok(());
        }
        self.waits.flush(&self.socket)?;
        let last = self.closing.is_some() || self.finishing;
        if last && self.waits.is_empty() && !self.shut {
            self.shut = true;
            self.socket.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }

    /// Returns the free room in the wire's queue in bytes, if it has grown by at least [`STEP`]
    /// since it was last reported, or if the queue is empty again. Returns `None` otherwise.
    fn grown(&mut self) -> Option<usize> {
        if !self.connected || self.closing.is_some() {
            return None;
        }
        let room = BUFFER.saturating_sub(self.waits.len());
        let grown = room >= self.believed + STEP || room == BUFFER && self.believed < BUFFER;
        grown.then(|| std::mem::replace(&mut self.believed, room))?;
        Some(room)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Returns the two ends of a connection: ours by its wire number, the other as a socket.
    fn joined() -> (Poller, Wires, u64, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (poller, mut wires) = (Poller::new(8).unwrap(), Wires::new());
        let number = wires.accept(&poller, listener.accept().unwrap().0).unwrap();
        wires.settle(&poller);
        (poller, wires, number, peer)
    }

    #[test]
    fn a_wire_is_gone_once_both_ends_have_said_their_last_words() {
        let (poller, mut wires, number, peer) = joined();
        // The other end ends its stream first, and then this end closes the wire.
        drop(peer);
        let readable = Ready { token: 0, read: true, write: false, error: false };
        while !wires.take(&poller, number, readable).ended {}
        wires.settle(&poller);
        assert_eq!(wires.len(), 1);
        wires.close(Time::ZERO, number);
        wires.settle(&poller);
        assert_eq!(wires.len(), 0);
    }

    #[test]
    fn a_wire_that_is_not_read_keeps_no_station_busy_when_it_dies() {
        let (mut poller, mut wires, number, peer) = joined();
        wires.pause(&poller, number, true);
        SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
        drop(peer);
        assert_eq!(poller.wait(Some(Duration::from_millis(100))).unwrap().count(), 0);
        wires.pause(&poller, number, false);
        let ready = poller.wait(Some(Duration::from_secs(9))).unwrap().next().unwrap();
        assert!(wires.take(&poller, number, ready).gone);
    }

    #[test]
    fn a_wire_whose_other_end_takes_nothing_is_stuck() {
        let (poller, mut wires, number, mut peer) = joined();
        let at = Time::from_secs;
        assert!(wires.stuck(at(100)).is_empty());
        wires.send(number, &vec![7; 64 << 20]);
        wires.settle(&poller);
        assert!(wires.waits(number) > 0);
        assert!(wires.stuck(at(300)).is_empty(), "it was not looked at since it had all");
        assert!(wires.stuck(at(359)).is_empty());
        assert_eq!(wires.stuck(at(360)), [number]);
        peer.set_nonblocking(true).unwrap();
        while peer.read(&mut [0; PIECE]).is_ok_and(|count| count > 0) {}
        wires.send(number, b"more");
        wires.settle(&poller);
        assert!(wires.stuck(at(361)).is_empty(), "it has taken something");
        assert_eq!(wires.stuck(at(421)), [number]);
    }
}
