//! Streams of clients, and of strangers: accepted, bound to a client by their first packet that
//! opens, closed when they are of no use.
//!
//! A stranger gets nothing: no answer, and no close at the wrong byte. Its bytes are read and
//! dropped until its time is over, or until other strangers need its place.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_os::files;
use anabranch_os::poller::Poller;
use anabranch_tunnel::carrier::{LONGEST, LONGEST_FIRST};
use anabranch_tunnel::{ClientId, Peer};
use socket2::Socket;

use super::settings::{StreamSnapshot, StreamsSnapshot};
use crate::streams::{Connection, Ending, prepare};

/// Set in the token of a stream, with its number.
pub(super) const STREAMS: u64 = 1 << 62;
/// Streams that have not shown a client's packet, at once; one more closes the oldest.
const STRANGERS: usize = 1_024;
/// Time for a first packet that opens: more than a handshake through an onion circuit takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// Streams of one client at once; one more closes its oldest. A session has at most 64 paths, and
/// a path that was dialled again may have two for a while.
const OF_CLIENT: usize = 128;
/// Streams accepted in one turn of the loop.
const AT_ONCE: usize = 64;
/// Bytes read from a stream at once.
const BUFFER: usize = 64 << 10;

/// One stream.
struct Carrier {
    connection: Connection,
    from: SocketAddr,
    owner: Owner,
}

/// Who a stream is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Nobody known, who has until then.
    Stranger(Time),
    /// Nobody known, who sent what no client sends; it has until then.
    Muted(Time),
    /// This client.
    Client(ClientId),
}

/// The packets of one read, one after the other.
#[derive(Default)]
pub(super) struct Packets {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Packets {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// All streams, and the socket that accepts them.
pub(super) struct Streams {
    listener: TcpListener,
    carriers: BTreeMap<u64, Carrier>,
    /// Streams in the order in which they were accepted; those that are bound or closed since are
    /// left out when their turn comes.
    strangers: VecDeque<u64>,
    /// Strangers among the carriers.
    unbound: usize,
    /// The number of the next one.
    next: u64,
    /// Streams with packets that were not given to the socket yet.
    touched: Vec<u64>,
    /// Streams that ended, and the client of each.
    ended: Vec<(u64, ClientId)>,
    /// Whether the listener is watched; it is not while no file is left.
    is_watched: bool,
    buffer: Vec<u8>,
    /// Packets that waited too long for streams that have ended.
    past: u64,
}

impl Streams {
    /// Accepts streams at `listener`, which the caller watches.
    pub(super) fn new(listener: TcpListener) -> io::Result<Streams> {
        listener.set_nonblocking(true)?;
        Ok(Streams {
            listener,
            carriers: BTreeMap::new(),
            strangers: VecDeque::new(),
            unbound: 0,
            next: 0,
            touched: Vec::new(),
            ended: Vec::new(),
            is_watched: true,
            buffer: vec![0; BUFFER],
            past: 0,
        })
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts what waits. Where no file is left, the listener is left alone until the next
    /// [`Streams::sweep`].
    pub(super) fn accept(&mut self, now: Time, poller: &Poller) {
        for _ in 0..AT_ONCE {
            match self.listener.accept() {
                Ok((stream, from)) => self.admit(now, stream.into(), from, poller),
                Err(error) if files::ran_out(&error) => {
                    if !self.close_oldest_stranger() {
                        let removed = poller.remove(&self.listener);
                        self.is_watched = removed.is_err();
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // One that has gone before it was accepted.
                Err(_) => {}
            }
        }
    }

    /// A stream that cannot be prepared or watched is dropped: its client dials again.
    fn admit(&mut self, now: Time, socket: Socket, from: SocketAddr, poller: &Poller) {
        if self.unbound >= STRANGERS {
            self.close_oldest_stranger();
        }
        let number = self.next;
        let made = prepare(&socket).and_then(|()| Connection::new(socket, LONGEST_FIRST));
        let watched = made.and_then(|connection| {
            poller.add(&connection, STREAMS | number)?;
            Ok(connection)
        });
        let Ok(connection) = watched else { return };
        self.next += 1;
        self.unbound += 1;
        self.strangers.push_back(number);
        let owner = Owner::Stranger(now + PATIENCE);
        self.carriers.insert(number, Carrier { connection, from, owner });
    }

    /// Reads the packets that have arrived by a stream into `packets`; where they come from. `None`
    /// if the stream is none of a client and cannot become one.
    pub(super) fn read(&mut self, number: u64, packets: &mut Packets) -> Option<Peer> {
        packets.clear();
        let carrier = self.carriers.get_mut(&number)?;
        let is_muted = matches!(carrier.owner, Owner::Muted(_));
        let read = match is_muted {
            true => carrier.connection.skip(&mut self.buffer),
            false => carrier.connection.read(&mut self.buffer, |packet| {
                packets.bytes.extend_from_slice(packet);
                packets.ends.push(packets.bytes.len());
            }),
        };
        let peer = Peer { remote: carrier.from, local: None, stream: Some(number) };
        match (read, carrier.owner) {
            (Ok(()), _) => {}
            (Err(Ending::Length(_)), Owner::Stranger(until)) => carrier.owner = Owner::Muted(until),
            (Err(_), _) => self.close(number),
        }
        (!is_muted).then_some(peer)
    }

    /// A packet of `client` arrived by a stream. False if the stream is another client's: it is
    /// closed.
    pub(super) fn bind(&mut self, number: u64, client: ClientId) -> bool {
        let Some(carrier) = self.carriers.get_mut(&number) else { return true };
        match carrier.owner {
            Owner::Client(owner) if owner == client => true,
            Owner::Client(_) => {
                self.close(number);
                false
            }
            Owner::Stranger(_) | Owner::Muted(_) => {
                carrier.owner = Owner::Client(client);
                carrier.connection.allow(LONGEST);
                self.unbound -= 1;
                self.limit(client);
                true
            }
        }
    }

    fn limit(&mut self, client: ClientId) {
        let owned = self.carriers.iter().filter(|(_, one)| one.owner == Owner::Client(client));
        let owned: Vec<u64> = owned.map(|(&number, _)| number).collect();
        if owned.len() > OF_CLIENT {
            self.close(owned[0]);
        }
    }

    /// Appends a packet to a stream. False if the stream has ended, or takes no more.
    pub(super) fn push(&mut self, now: Time, number: u64, packet: &[u8], lasts: bool) -> bool {
        let Some(carrier) = self.carriers.get_mut(&number) else { return false };
        if self.touched.last() != Some(&number) {
            self.touched.push(number);
        }
        carrier.connection.push(now, packet, lasts)
    }

    /// Gives the sockets what was appended.
    pub(super) fn flush(&mut self, now: Time, poller: &Poller) {
        let touched = std::mem::take(&mut self.touched);
        touched.iter().for_each(|&number| self.flush_one(now, number, poller));
        self.touched = touched;
        self.touched.clear();
    }

    /// Gives one socket what it takes.
    pub(super) fn flush_one(&mut self, now: Time, number: u64, poller: &Poller) {
        let Some(carrier) = self.carriers.get_mut(&number) else { return };
        if carrier.connection.flush(now, poller, STREAMS | number).is_err() {
            self.close(number);
        }
    }

    /// Closes the streams of strangers whose time is over, and accepts again.
    pub(super) fn sweep(&mut self, now: Time, poller: &Poller, token: u64) {
        while let Some(&oldest) = self.strangers.front() {
            let owner = self.carriers.get(&oldest).map(|carrier| carrier.owner);
            match owner {
                Some(Owner::Stranger(until) | Owner::Muted(until)) if until > now => break,
                Some(Owner::Stranger(_) | Owner::Muted(_)) => self.close(oldest),
                Some(Owner::Client(_)) | None => {}
            }
            self.strangers.pop_front();
        }
        if !self.is_watched {
            self.is_watched = poller.add(&self.listener, token).is_ok();
        }
    }

    /// Closes all streams of a client.
    pub(super) fn close_all(&mut self, client: ClientId) {
        let owned = |(&number, one): (&u64, &Carrier)| {
            (one.owner == Owner::Client(client)).then_some(number)
        };
        let owned: Vec<u64> = self.carriers.iter().filter_map(owned).collect();
        owned.into_iter().for_each(|number| self.close(number));
    }

    /// A stream of a client that has ended, if there is one that was not reported yet.
    pub(super) fn ended(&mut self) -> Option<(u64, ClientId)> {
        self.ended.pop()
    }

    /// What waits for a stream, and what waited too long.
    pub(super) fn look(&self, number: u64) -> Option<StreamSnapshot> {
        let connection = &self.carriers.get(&number)?.connection;
        let (queued, aged) = (connection.queued() as u64, connection.count().aged);
        Some(StreamSnapshot { queued, aged })
    }

    /// All streams, those that have ended included.
    pub(super) fn snapshot(&self) -> StreamsSnapshot {
        let aged = self.carriers.values().map(|carrier| carrier.connection.count().aged);
        StreamsSnapshot {
            bound: self.carriers.len() - self.unbound,
            strangers: self.unbound,
            aged: self.past + aged.sum::<u64>(),
        }
    }

    fn close_oldest_stranger(&mut self) -> bool {
        while let Some(oldest) = self.strangers.pop_front() {
            let carrier = self.carriers.get(&oldest);
            if carrier.is_some_and(|carrier| !matches!(carrier.owner, Owner::Client(_))) {
                self.close(oldest);
                return true;
            }
        }
        false
    }

    /// The socket leaves the poller's set as it is closed.
    fn close(&mut self, number: u64) {
        let Some(carrier) = self.carriers.remove(&number) else { return };
        self.past += carrier.connection.count().aged;
        match carrier.owner {
            Owner::Client(client) => self.ended.push((number, client)),
            Owner::Stranger(_) | Owner::Muted(_) => self.unbound -= 1,
        }
    }
}

impl AsFd for Streams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    const LISTENER: u64 = u64::MAX;
    const NOW: Time = Time::from_secs(1);

    fn streams() -> (Streams, Poller) {
        let streams = Streams::new(TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
        let poller = Poller::new(8).unwrap();
        poller.add(&streams, LISTENER).unwrap();
        (streams, poller)
    }

    /// A stream from outside, accepted as the next number.
    fn connect(streams: &mut Streams, poller: &Poller) -> TcpStream {
        let (before, at) = (streams.next, streams.local_addr().unwrap());
        let stream = TcpStream::connect(at).unwrap();
        while streams.next == before {
            streams.accept(NOW, poller);
        }
        stream
    }

    /// Reads a stream until something has arrived, or it has ended.
    fn read(streams: &mut Streams, number: u64) -> (Option<Peer>, usize) {
        let mut packets = Packets::default();
        for _ in 0..1_000 {
            let peer = streams.read(number, &mut packets);
            let muted = streams.carriers.get(&number).map(|one| one.owner);
            let is_muted = matches!(muted, None | Some(Owner::Muted(_)));
            if !packets.ends.is_empty() || is_muted {
                return (peer, packets.iter().count());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("nothing has arrived");
    }

    #[test]
    fn a_stream_is_of_the_first_client_that_it_brings_and_no_other() {
        let (mut streams, poller) = streams();
        let mut outside = connect(&mut streams, &poller);
        outside.write_all(&[&[0, 25][..], &[7; 25], &[0, 30], &[8; 30]].concat()).unwrap();
        let (peer, packets) = read(&mut streams, 0);
        assert_eq!(peer.unwrap().stream, Some(0));
        assert!(packets >= 1);
        assert!(streams.bind(0, ClientId(3)) && streams.bind(0, ClientId(3)));
        assert_eq!(streams.snapshot(), StreamsSnapshot { bound: 1, strangers: 0, aged: 0 });
        assert!(streams.push(NOW, 0, &[9; 40], false));
        assert!(!streams.bind(0, ClientId(4)), "a packet of another client closes it");
        assert_eq!(streams.ended(), Some((0, ClientId(3))));
        assert!(!streams.push(NOW, 0, &[9; 40], false));
        assert_eq!(streams.snapshot().bound, 0);
    }

    #[test]
    fn a_wrong_length_mutes_a_stranger_until_its_time_is_over() {
        let (mut streams, poller) = streams();
        let mut outside = connect(&mut streams, &poller);
        outside.write_all(&[0, 0]).unwrap();
        read(&mut streams, 0);
        outside.write_all(&[&[0, 25][..], &[7; 25]].concat()).unwrap();
        assert_eq!(read(&mut streams, 0), (None, 0), "nothing is read from it any more");
        outside.set_nonblocking(true).unwrap();
        let heard = outside.read(&mut [0; 8]).map_err(|error| error.kind());
        assert_eq!(heard, Err(ErrorKind::WouldBlock), "it is open, and silent");
        streams.sweep(NOW + PATIENCE, &poller, LISTENER);
        assert_eq!(streams.snapshot().strangers, 0);
        outside.set_nonblocking(false).unwrap();
        assert_eq!(outside.read(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn strangers_leave_when_their_time_is_over_and_clients_stay() {
        let (mut streams, poller) = streams();
        let _outside: Vec<_> = (0..3).map(|_| connect(&mut streams, &poller)).collect();
        assert!(streams.bind(1, ClientId(0)));
        streams.sweep(NOW + PATIENCE - Duration::from_millis(1), &poller, LISTENER);
        assert_eq!(streams.snapshot(), StreamsSnapshot { bound: 1, strangers: 2, aged: 0 });
        streams.sweep(NOW + PATIENCE, &poller, LISTENER);
        assert_eq!(streams.snapshot(), StreamsSnapshot { bound: 1, strangers: 0, aged: 0 });
        streams.close_all(ClientId(0));
        assert_eq!((streams.ended(), streams.ended()), (Some((1, ClientId(0))), None));
    }

    #[test]
    fn one_more_stranger_than_may_be_closes_the_oldest() {
        files::raise_limit();
        let (mut streams, poller) = streams();
        let mut outside = Vec::new();
        for _ in 0..=STRANGERS {
            outside.push(connect(&mut streams, &poller));
            // This process holds both ends, and its files are few.
            if outside.len() > 100 && streams.unbound < STRANGERS {
                outside.remove(0);
            }
        }
        assert_eq!(streams.snapshot().strangers, STRANGERS);
        assert!(!streams.carriers.contains_key(&0) && streams.carriers.contains_key(&1));
    }
}
