//! The path sockets: one for each tuple (a path with one of its source ports) of each session,
//! opened at the tuple's first datagram.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anabranch_comps::{Batch, Input, Renumbering, SessionId, TupleId};
use anabranch_multipath::{PathId, Time};
use anabranch_os::poller::Poller;
use anabranch_os::udp::{UdpOptions, UdpSocket};

use crate::paths::Egress;
use crate::socks::{self, Association, Header};

/// Time for which a retired socket, which no longer sends, still receives answers: several round
/// trips of any usable path.
const LINGER: Duration = Duration::from_secs(3);
/// Maximum number of sockets whose drop counters are read at once.
const LOOKED_AT: usize = 256;
/// Minimum interval between two rounds of reading drop counters. A round reads at most
/// [`LOOKED_AT`] counters.
const BETWEEN_COUNTS: Duration = Duration::from_secs(1);
/// Size of a path socket's receive buffer and of its send buffer, in bytes.
const BUFFER: usize = 2 << 20;

/// Flag in the token of a connection to a proxy. The other bits are the token of the UDP socket
/// that uses this proxy.
pub(super) const CONTROL: u64 = 1 << 63;
/// Maximum generation of a table entry (count of earlier sockets in the entry). The generation has
/// 30 bits, although a token has room for 32. So the two highest bits of a socket's token are 0;
/// in other kinds of token, one of them is 1.
const GENERATIONS: u32 = u32::MAX >> 2;

/// A socket of a path, with the session and the tuple (path and source port) that it sends for.
#[derive(Debug)]
pub(super) struct PathSocket {
    pub(super) udp: UdpSocket,
    pub(super) session: SessionId,
    pub(super) tuple: TupleId,
    pub(super) path: PathId,
    pub(super) local: SocketAddr,
    /// The socket's peer: the server, or the relay of a proxy.
    pub(super) server: SocketAddr,
    /// The proxy's relay; `None` without a proxy.
    pub(super) relay: Option<Relay>,
    /// The index that the path has in packet captures, if the path has been removed; `None` while
    /// the path exists.
    pub(super) removed: Option<u16>,
    /// Last reading of the kernel's counter of datagrams dropped at this socket.
    counted: u32,
}

impl PathSocket {
    /// Returns whether `from` is the socket's peer. Between bind and connect, a socket accepts
    /// datagrams from any sender, so the sender must be checked.
    pub(super) fn is_to(&self, from: SocketAddr) -> bool {
        (self.server.ip(), self.server.port()) == (from.ip(), from.port())
    }

    /// Returns the maximum size in bytes of a packet sent by this socket; `None` if unknown.
    pub(super) fn mtu(&self) -> Option<u32> {
        self.udp.mtu().ok()
    }

    /// Returns the tuple (path and source port) whose answers this socket receives.
    pub(super) fn source(&self) -> Source {
        let (session, tuple) = (self.session, self.tuple);
        Source { session, tuple, removed: self.removed.is_some() }
    }
}

/// The session and the four-tuple on which a batch of the server's datagrams arrived. `removed` is
/// true if the path of this four-tuple has been removed since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    session: SessionId,
    tuple: TupleId,
    removed: bool,
}

impl Source {
    /// Converts `batch`, which arrived from this source, to an input of the protocol core.
    pub(super) fn into_input(self, batch: Batch<'_>) -> Input<'_> {
        let Source { session, tuple, removed } = self;
        match removed {
            false => Input::Server { session, tuple, batch },
            true => Input::Late { session, batch },
        }
    }
}

/// The relay of a proxy to which a socket is connected.
#[derive(Debug)]
pub(super) struct Relay {
    /// The SOCKS5 header that precedes each datagram to the relay.
    pub(super) header: Header,
    /// Time at which the socket's association (a UDP relay of a proxy) was opened.
    pub(super) opened_at: Time,
    /// The TCP connection to the proxy. The proxy relays as long as this connection is open.
    control: TcpStream,
}

impl Relay {
    /// Returns whether the proxy has ended the association (a UDP relay of a proxy).
    pub(super) fn is_over(&self) -> bool {
        socks::is_over(&self.control)
    }
}

/// Returns the options of sockets for the path with this egress (interface, source address and
/// route).
pub(super) fn options(egress: &Egress, fwmark: Option<u32>) -> UdpOptions {
    UdpOptions {
        device: egress.device.clone(),
        mark: fwmark,
        recv_buffer: BUFFER,
        send_buffer: BUFFER,
        ..UdpOptions::default()
    }
}

/// Returns the number of datagrams that a socket has dropped on arrival since the last reading of
/// its drop counter. `counted` is the value last read, which this function updates. The kernel
/// joins consecutive datagrams (`UDP_GRO`). It drops joined datagrams together, and counts them as
/// one, so the result may be too low.
pub(super) fn fresh_drops(udp: &UdpSocket, counted: &mut u32) -> u64 {
    // If the kernel does not report drops, nothing is added.
    let drops = udp.memory().map_or(*counted, |memory| memory.drops);
    u64::from(drops.wrapping_sub(std::mem::replace(counted, drops)))
}

/// An entry of the table of sockets. Entries are reused; `generation` distinguishes the successive
/// sockets of an entry.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    socket: Option<PathSocket>,
}

/// The table of all path sockets of a splitter.
#[derive(Debug)]
pub(super) struct Sockets {
    slots: Vec<Slot>,
    free: Vec<u32>,
    live: HashMap<(SessionId, TupleId), u32>,
    sessions: HashMap<SessionId, Vec<u32>>,
    retired: Vec<(Time, u32)>,
    fwmark: Option<u32>,
    missed: u64,
    /// Index of the entry whose drop counter is read next, and the earliest time of that reading.
    next_count: (usize, Time),
}

impl Sockets {
    pub(super) fn new(fwmark: Option<u32>) -> Sockets {
        Sockets {
            slots: Vec::new(),
            free: Vec::new(),
            live: HashMap::new(),
            sessions: HashMap::new(),
            retired: Vec::new(),
            fwmark,
            missed: 0,
            next_count: (0, Time::ZERO),
        }
    }

    /// Returns the open socket with this token; `None` if there is none.
    pub(super) fn by_token(&self, token: u64) -> Option<&PathSocket> {
        let slot = self.slots.get(token as u32 as usize)?;
        slot.socket.as_ref().filter(|_| u64::from(slot.generation) == token >> 32)
    }

    /// Returns whether the socket with this token sends for its tuple (path and source port): it
    /// is open and not retired.
    pub(super) fn is_in_use(&self, token: u64) -> bool {
        let index = token as u32;
        self.by_token(token)
            .is_some_and(|socket| self.live.get(&(socket.session, socket.tuple)) == Some(&index))
    }

    /// Returns the socket that sends for a tuple (a path with one of its source ports); `None` if
    /// none is open.
    pub(super) fn of(&self, session: SessionId, tuple: TupleId) -> Option<&PathSocket> {
        let &index = self.live.get(&(session, tuple))?;
        self.slots[index as usize].socket.as_ref()
    }

    /// Returns the token of the socket that sends for a tuple (a path with one of its source
    /// ports); `None` if none is open.
    pub(super) fn token(&self, session: SessionId, tuple: TupleId) -> Option<u64> {
        self.live.get(&(session, tuple)).map(|&index| self.token_of(index))
    }

    /// Opens the socket of a tuple. The socket is bound to the path's interface, watched by
    /// `poller`, and connected to the server. If `by` is given, the socket is connected to the
    /// relay of this association with a proxy instead; `by` also has the time at which the
    /// association was opened. Returns the socket's local address.
    pub(super) fn open(
        &mut self,
        (session, tuple, path): (SessionId, TupleId, PathId),
        egress: &Egress,
        server: SocketAddr,
        by: Option<(Association, Time)>,
        poller: &Poller,
    ) -> io::Result<SocketAddr> {
        let peer = egress.remote(by.as_ref().map_or(server, |(association, _)| association.relay));
        let options = options(egress, self.fwmark);
        let udp = UdpSocket::connect(Some(egress.local(peer)), peer, &options)?;
        let relay = by.map(|(association, opened_at)| Relay {
            header: Header::to(server),
            opened_at,
            control: association.control,
        });
        let (local, server) = (udp.local_addr()?, udp.peer_addr()?);
        let index = self.free_slot();
        let token = self.token_of(index);
        let watched = poller.add(&udp, token).and_then(|()| match &relay {
            Some(relay) => poller.add(&relay.control, token | CONTROL),
            None => Ok(()),
        });
        if let Err(error) = watched {
            self.free.push(index);
            return Err(error);
        }
        self.slots[index as usize].socket = Some(PathSocket {
            udp,
            session,
            tuple,
            path,
            local,
            server,
            relay,
            removed: None,
            counted: 0,
        });
        self.live.insert((session, tuple), index);
        self.sessions.entry(session).or_default().push(index);
        Ok(local)
    }

    /// Returns whether any socket of `path` sends through a proxy's relay.
    pub(super) fn has_relay(&self, path: PathId) -> bool {
        self.live.values().any(|&index| {
            let socket = self.slots[index as usize].socket.as_ref();
            socket.is_some_and(|socket| socket.path == path && socket.relay.is_some())
        })
    }

    /// Closes the socket with this token. Returns its local address; `None` if there is no such
    /// socket.
    pub(super) fn discard(&mut self, token: u64) -> Option<SocketAddr> {
        self.by_token(token)?;
        let index = token as u32;
        self.retired.retain(|retired| retired.1 != index);
        self.close_slot(index)
    }

    /// Retires the sockets of `path`: they send nothing more, but still receive for [`LINGER`].
    /// Later datagrams open new sockets.
    pub(super) fn retire(&mut self, now: Time, path: PathId) {
        let slots = &self.slots;
        let is_of_path = |index: u32| {
            slots[index as usize].socket.as_ref().is_some_and(|socket| socket.path == path)
        };
        let of_path = self.live.extract_if(|_, index| is_of_path(*index));
        self.retired.extend(of_path.map(|(_, index)| (now + LINGER, index)));
    }

    /// Retires the sockets of `session`, as [`Sockets::retire`] does for a path.
    pub(super) fn retire_session(&mut self, now: Time, session: SessionId) {
        let of_session = self.live.extract_if(|(own, _), _| *own == session);
        self.retired.extend(of_session.map(|(_, index)| (now + LINGER, index)));
    }

    /// Gives sockets the new indices of their paths and tuples after a reload. The sockets of
    /// removed paths and tuples send nothing more, but still receive for [`LINGER`]. `in_captures`
    /// returns the index of a removed path in captures, for datagrams that it still receives.
    pub(super) fn renumber(
        &mut self,
        now: Time,
        numbers: &Renumbering,
        in_captures: impl Fn(PathId) -> u16,
    ) {
        self.live.clear();
        let retired: HashSet<u32> = self.retired.iter().map(|retired| retired.1).collect();
        for (index, slot) in (0..).zip(&mut self.slots) {
            let Some(socket) = slot.socket.as_mut().filter(|socket| socket.removed.is_none())
            else {
                continue;
            };
            match numbers.tuple(socket.tuple) {
                Some((path, tuple)) => (socket.path, socket.tuple) = (path, tuple),
                None => socket.removed = Some(in_captures(socket.path)),
            }
            match (retired.contains(&index), socket.removed) {
                (true, _) => {}
                (false, Some(_)) => self.retired.push((now + LINGER, index)),
                (false, None) => _ = self.live.insert((socket.session, socket.tuple), index),
            }
        }
    }

    /// Returns when the next retired socket is to be closed; `None` if there is none.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.retired.first().map(|retired| retired.0)
    }

    /// Closes the sockets that were retired at least [`LINGER`] ago. Returns their local
    /// addresses.
    pub(super) fn close_retired(&mut self, now: Time) -> Vec<SocketAddr> {
        let due = self.retired.partition_point(|retired| retired.0 <= now);
        let closed: Vec<u32> = self.retired.drain(..due).map(|retired| retired.1).collect();
        closed.into_iter().filter_map(|index| self.close_slot(index)).collect()
    }

    /// Closes all sockets of a session. Returns their local addresses.
    pub(super) fn close(&mut self, session: SessionId) -> Vec<SocketAddr> {
        let indices = self.sessions.remove(&session).unwrap_or_default();
        self.retired.retain(|retired| !indices.contains(&retired.1));
        indices.into_iter().filter_map(|index| self.close_slot(index)).collect()
    }

    /// Returns the number of datagrams that closed and open sockets have dropped on arrival. Each
    /// reading of an open socket's counter costs a system call. Therefore each call reads at most
    /// [`LOOKED_AT`] counters, in rotation, and at most once per [`BETWEEN_COUNTS`].
    pub(super) fn missed(&mut self, now: Time) -> u64 {
        let (first, due) = self.next_count;
        if now >= due && !self.slots.is_empty() {
            let count = self.slots.len().min(LOOKED_AT);
            (first..first + count).for_each(|index| self.count_drops(index % self.slots.len()));
            self.next_count = ((first + count) % self.slots.len(), now + BETWEEN_COUNTS);
        }
        self.missed
    }

    /// Returns the result of [`Sockets::missed`] after reading the counters of all sockets.
    pub(super) fn missed_by_all(&mut self) -> u64 {
        (0..self.slots.len()).for_each(|index| self.count_drops(index));
        self.missed
    }

    fn count_drops(&mut self, index: usize) {
        if let Some(socket) = &mut self.slots[index].socket {
            self.missed += fresh_drops(&socket.udp, &mut socket.counted);
        }
    }

    fn token_of(&self, index: u32) -> u64 {
        u64::from(self.slots[index as usize].generation) << 32 | u64::from(index)
    }

    fn free_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        })
    }

    fn close_slot(&mut self, index: u32) -> Option<SocketAddr> {
        self.count_drops(index as usize);
        let slot = &mut self.slots[index as usize];
        let socket = slot.socket.take()?;
        slot.generation = slot.generation.wrapping_add(1) & GENERATIONS;
        self.free.push(index);
        if self.live.get(&(socket.session, socket.tuple)) == Some(&index) {
            self.live.remove(&(socket.session, socket.tuple));
        }
        if let Some(indices) = self.sessions.get_mut(&socket.session) {
            indices.retain(|&other| other != index);
        }
        Some(socket.local)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket as PlainSocket;

    use super::*;
    use crate::paths;

    const TUPLE: (SessionId, TupleId, PathId) = (SessionId(3), TupleId(0), PathId(0));

    /// Returns a server, the egress to it, and a poller for the sockets.
    fn world() -> (PlainSocket, Egress, Poller) {
        let server = PlainSocket::bind("127.0.0.1:0").unwrap();
        let specs = ["a=addr:127.0.0.2".parse().unwrap()];
        let to = [server.local_addr().unwrap()];
        let egress = paths::resolve(&specs, &to, None, false).unwrap().remove(0);
        (server, egress, Poller::new(8).unwrap())
    }

    /// Returns the tokens of the sockets that are readable.
    fn spoken(poller: &mut Poller) -> Vec<u64> {
        poller.wait(Some(Duration::from_secs(5))).unwrap().map(|ready| ready.token).collect()
    }

    #[test]
    fn a_retired_socket_listens_for_a_while_but_is_not_in_use() {
        let (server, egress, mut poller) = world();
        let mut sockets = Sockets::new(None);
        let mut open = |sockets: &mut Sockets| {
            let local = sockets.open(TUPLE, &egress, egress.server, None, &poller).unwrap();
            server.send_to(b"x", local).unwrap();
            let token = spoken(&mut poller)[0];
            let mut buffers = anabranch_os::udp::RecvBatch::new(1);
            assert_eq!(buffers.recv(&sockets.by_token(token).unwrap().udp).unwrap().len(), 1);
            token
        };
        let old = open(&mut sockets);
        assert!(sockets.is_in_use(old));
        sockets.retire(Time::ZERO, TUPLE.2);
        assert!(!sockets.is_in_use(old) && sockets.by_token(old).is_some());
        let new = open(&mut sockets);
        assert!(sockets.is_in_use(new) && !sockets.is_in_use(old) && new != old);
        assert_eq!(sockets.close_retired(Time::ZERO + LINGER).len(), 1);
        assert!(sockets.by_token(old).is_none() && sockets.is_in_use(new));
    }

    #[test]
    fn drops_on_arrival_are_counted_once_and_at_the_latest_when_a_socket_closes() {
        let (server, egress, poller) = world();
        let mut sockets = Sockets::new(None);
        let local = sockets.open(TUPLE, &egress, egress.server, None, &poller).unwrap();
        let limit = sockets.of(TUPLE.0, TUPLE.1).unwrap().udp.memory().unwrap().receive_limit;
        // The kernel charges a datagram with more than its bytes, so not all of these datagrams
        // fit.
        let flood = || (0..limit / 8_000).for_each(|_| _ = server.send_to(&[0; 8_000], local));
        flood();
        flood();
        let missed = sockets.missed(Time::ZERO);
        assert!(missed > 0);
        flood();
        assert_eq!(sockets.missed(Time::from_millis(500)), missed, "not twice a second");
        let more = missed + u64::from(limit / 8_000);
        assert_eq!(sockets.missed(Time::from_secs(1)), more, "the buffer was full");
        assert_eq!(sockets.missed_by_all(), more);
        flood();
        sockets.close(TUPLE.0);
        assert_eq!(sockets.missed(Time::from_secs(1)), more + u64::from(limit / 8_000));
    }

    #[test]
    fn only_the_server_is_heard() {
        let (_server, egress, poller) = world();
        let mut sockets = Sockets::new(None);
        sockets.open(TUPLE, &egress, egress.server, None, &poller).unwrap();
        let socket = sockets.of(TUPLE.0, TUPLE.1).unwrap();
        assert!(socket.is_to(egress.server));
        let port = egress.server.port();
        assert!(!socket.is_to(SocketAddr::new(egress.server.ip(), port ^ 1)));
        assert!(!socket.is_to(SocketAddr::new("127.0.0.9".parse().unwrap(), port)));
    }
}
