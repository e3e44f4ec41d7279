//! The TCP connections that carry links.

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

/// The least token of a wire: its number added to this.
pub(super) const WIRES: u64 = 1 << 61;
/// Bytes that wait here for a socket at most; and those that the kernel holds unsent. More would be
/// lost time if the connection is dead.
const BUFFER: usize = 32 << 10;
const UNSENT: u32 = 16 << 10;
/// A core is told of room that has grown by so much.
const STEP: usize = 4 << 10;
/// Bytes read at once.
const PIECE: usize = 64 << 10;
/// How long a connection that we have closed may take to close the other way.
const LINGERS: Duration = Duration::from_secs(5);
/// The kernel asks after a connection that is silent for so long.
const SILENT: Duration = Duration::from_secs(60);

/// One connection.
struct Wire {
    socket: TcpStream,
    connected: bool,
    waits: Backlog,
    /// What the core believes that the socket takes.
    believed: usize,
    /// Whether we have opened it; whether we have sent anything by it.
    dialled: bool,
    spoke: bool,
    /// It is not read until the wire that its bytes go to has room.
    paused: bool,
    /// The other end has said its last word; ours was said, or is to be behind what waits.
    ended: bool,
    finishing: bool,
    /// Since when it is to be closed behind what waits, or was.
    closing: Option<Time>,
    shut: bool,
    watched: SocketWatch,
}

/// What a wire's socket brought.
#[derive(Debug, Default)]
pub(super) struct WireNews {
    /// It is open now.
    pub(super) opened: bool,
    pub(super) bytes: Vec<u8>,
    /// The other end says nothing more.
    pub(super) ended: bool,
    /// It is gone, or came to nothing.
    pub(super) gone: bool,
    /// Why it came to nothing, where something waits for it.
    pub(super) unreached: Option<io::Error>,
}

/// All of them, by numbers that are not used again.
pub(super) struct Wires {
    wires: BTreeMap<u64, Wire>,
    next: u64,
    /// Where those that we open come from.
    pub(super) outbound: Outbound,
    buffer: Vec<u8>,
    /// Those that may have more room than their core knows of.
    changed: BTreeSet<u64>,
}

impl Wires {
    /// None.
    pub(super) fn new() -> Wires {
        let (wires, changed) = (BTreeMap::new(), BTreeSet::new());
        let outbound = Outbound::default();
        Wires { wires, next: 0, outbound, buffer: vec![0; PIECE], changed }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.wires.len()
    }

    /// Opens a connection: its number.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn dial(&mut self, poller: &Poller, peer: SocketAddr) -> io::Result<u64> {
        let from = self.outbound.towards(peer.ip());
        self.add(poller, (connecting_from(peer, from)?, false))
    }

    /// Takes a connection that was opened to us: its number.
    ///
    /// # Errors
    /// The kernel's.
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
            spoke: false,
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

    /// A wire's socket is ready: what it brought. Nothing is told of one that was closed.
    pub(super) fn take(&mut self, poller: &Poller, number: u64, ready: Ready) -> WireNews {
        let Some(wire) = self.wires.get_mut(&number) else { return WireNews::default() };
        let news = wire.take(&mut self.buffer, ready).unwrap_or_else(|error| wire.gone(error));
        self.changed.insert(number);
        let told = wire.closing.is_none();
        if news.gone {
            self.wires.remove(&number);
        } else {
            self.watch(poller, number);
        }
        if told { news } else { WireNews::default() }
    }

    /// Sends bytes by a wire.
    pub(super) fn send(&mut self, number: u64, bytes: &[u8]) {
        let Some(wire) = self.wires.get_mut(&number) else { return };
        wire.waits.push(bytes);
        wire.believed = wire.believed.saturating_sub(bytes.len());
        wire.spoke = true;
        self.changed.insert(number);
    }

    /// Closes a wire behind what waits for it. Nothing of it is told any more.
    pub(super) fn close(&mut self, now: Time, number: u64) {
        if let Some(wire) = self.wires.get_mut(&number) {
            wire.closing = Some(now);
            self.changed.insert(number);
        }
    }

    /// Writes what waits. Those that have more room now than their core knows of, or by which the
    /// last word was said, and how much room; `None` if they are gone.
    pub(super) fn settle(&mut self, poller: &Poller) -> Vec<(u64, Option<usize>)> {
        let mut told = Vec::new();
        for number in std::mem::take(&mut self.changed) {
            let Some(wire) = self.wires.get_mut(&number) else { continue };
            let (was_shut, written) = (wire.shut, wire.flush());
            let core_knows = wire.closing.is_none();
            if written.is_err() {
                self.wires.remove(&number);
                told.extend(core_knows.then_some((number, None)));
                continue;
            }
            // The kernel would tell of it without an end, though there is nothing to wait for.
            if wire.closing.is_some() && wire.ended && wire.shut {
                self.wires.remove(&number);
                continue;
            }
            let finished = core_knows && wire.shut && !was_shut;
            let room = wire.grown().or(finished.then_some(BUFFER));
            told.extend(room.map(|room| (number, Some(room))));
            self.watch(poller, number);
        }
        told
    }

    /// Drops those that were closed, and do not end the other way.
    pub(super) fn sweep(&mut self, now: Time) {
        let late = |wire: &Wire| wire.closing.is_some_and(|since| now.since(since) >= LINGERS);
        self.wires.retain(|_, wire| !late(wire));
    }

    /// Those whose sockets have taken nothing of what waits for them for a minute. It is asked for
    /// now and then, and counts from the first time.
    pub(super) fn stuck(&mut self, now: Time) -> Vec<u64> {
        let stuck = |(&number, wire): (&u64, &mut Wire)| wire.waits.is_stuck(now).then_some(number);
        self.wires.iter_mut().filter_map(stuck).collect()
    }

    /// The oldest that was opened to us, by which we have never said anything.
    pub(super) fn oldest_unanswered(&self) -> Option<u64> {
        let silent = |wire: &Wire| !wire.spoke && !wire.dialled;
        self.wires.iter().find(|(_, wire)| silent(wire)).map(|(&number, _)| number)
    }

    /// Bytes that wait for a wire's socket.
    pub(super) fn waits(&self, number: u64) -> usize {
        self.wires.get(&number).map_or(0, |wire| wire.waits.len())
    }

    /// Reads nothing of a wire any more, or again.
    pub(super) fn pause(&mut self, poller: &Poller, number: u64, paused: bool) {
        if let Some(wire) = self.wires.get_mut(&number) {
            wire.paused = paused;
            self.watch(poller, number);
        }
    }

    /// Says the last word by a wire behind what waits, and goes on to listen.
    pub(super) fn finish(&mut self, number: u64) {
        if let Some(wire) = self.wires.get_mut(&number) {
            wire.finishing = true;
            self.changed.insert(number);
        }
    }

    /// Whether both ends of a wire have said their last words.
    pub(super) fn is_over(&self, number: u64) -> bool {
        self.wires.get(&number).is_none_or(|wire| wire.ended && wire.shut)
    }

    /// Drops a wire at once.
    pub(super) fn drop_now(&mut self, number: u64) {
        self.wires.remove(&number);
    }

    fn watch(&mut self, poller: &Poller, number: u64) {
        if let Some(wire) = self.wires.get_mut(&number) {
            // Where that is refused, it is watched for what it was.
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

    /// Its room, if that has grown since the core was told.
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

    /// Two ends of a connection: ours by its number.
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
        // They end first, and then we close.
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
