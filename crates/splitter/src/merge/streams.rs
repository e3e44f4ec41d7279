//! TCP and TLS streams of clients and of unknown peers. A stream is bound to a client by the first
//! packet that this client's keys authenticate. A stream is closed when it fails, when its
//! client's session ends, or when the client has too many streams.
//!
//! An unknown peer receives no answer. Its stream stays open after an invalid packet: further
//! bytes are read and dropped until the peer's deadline, or until newer streams exceed the limit
//! on unknown peers. Only a TLS error is answered, with an alert, and ends the stream. With
//! `--behind`, an unknown peer's stream is relayed to a web server instead ([`Relay`]). For this
//! relay, the bytes received so far are kept. A stream that was relayed only because of its
//! silence may still belong to a client, because a slow onion circuit may delay the first packet.
//! Until the web server answers, a client's packet still binds the stream to the client.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_os::files;
use anabranch_os::poller::{Interest, Poller};
use anabranch_tunnel::carrier::{LONGEST, LONGEST_FIRST};
use anabranch_tunnel::{ClientId, Peer};
use socket2::Socket;

use super::settings::{StreamSnapshot, StreamsSnapshot};
use super::web_relay::Relay;
use crate::streams::{Connection, Ending, TlsEnd, prepare};

/// Bit that marks a poller token as the token of a stream. The other bits are the stream's number.
pub(super) const STREAMS: u64 = 1 << 62;
/// Bit that marks a poller token as the token of a connection to the web server. The other bits
/// are the number of the unknown peer's stream.
pub(super) const WEB_SERVERS: u64 = 1 << 61;
/// Maximum number of streams that are not bound to a client. If there is a further stream, the
/// oldest unbound stream is closed.
const MAX_UNBOUND: usize = 1_024;
/// Timeout for the first packet of a client if there is no web server. A handshake through an
/// onion circuit takes less time.
const PATIENCE: Duration = Duration::from_secs(20);
/// Timeout for the first packet of a client if there is a web server. After this time, the stream
/// is relayed to the web server, which applies its own, longer timeout.
const HESITATION: Duration = Duration::from_secs(5);
/// Maximum number of streams of one client. If there is a further stream, the client's oldest
/// stream is closed. A session has at most 64 paths, and a redialled path may have two streams for
/// a while.
const OF_CLIENT: usize = 128;
/// Maximum number of streams accepted in one turn of the loop.
const AT_ONCE: usize = 64;
/// Maximum bytes read from a stream at once.
const BUFFER: usize = 64 << 10;

/// A stream, and the client or unknown peer that it belongs to.
struct OwnedStream {
    connection: Connection,
    from: SocketAddr,
    /// Time at which the stream was accepted.
    since: Time,
    owner: Owner,
    /// Bytes received from an unknown peer, and not yet passed to the web server.
    unforwarded: Vec<u8>,
    /// Relay of the stream to the web server; `None` if the stream is not passed to the web
    /// server.
    relay: Option<Box<Relay>>,
}

impl OwnedStream {
    /// Drops the relay and the bytes kept for the web server, because the stream belongs to a
    /// client. `number` is the stream's number.
    fn leave_web(&mut self, number: u64, poller: &Poller) {
        self.unforwarded = Vec::new();
        if self.relay.take().is_some() {
            // The poller may still watch for room, on behalf of the relay. The stream is watched,
            // so this call cannot fail.
            let _ = poller.change(&self.connection, STREAMS | number, Interest::READ);
        }
    }
}

/// A socket that accepts streams.
pub(super) struct Entry {
    listener: TcpListener,
    /// Poller token of the socket.
    token: u64,
    /// TLS settings of the streams that the socket accepts; `None` for streams without TLS.
    tls: Option<Arc<dyn TlsEnd>>,
    /// True if the poller watches the socket. It does not watch the socket while the process has
    /// no file descriptors left.
    is_watched: bool,
}

impl Entry {
    /// Creates an entry that accepts streams at `listener`. The caller makes the poller watch
    /// `listener` under the token `token`.
    pub(super) fn new(
        listener: TcpListener,
        token: u64,
        tls: Option<Arc<dyn TlsEnd>>,
    ) -> io::Result<Entry> {
        listener.set_nonblocking(true)?;
        Ok(Entry { listener, token, tls, is_watched: true })
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Owner of a stream: a client, or a peer that is not known to be a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// An unknown peer. The field is the deadline for a packet that identifies the peer as a
    /// client.
    Stranger(Time),
    /// An unknown peer that has sent bytes that no client sends. Further bytes are dropped. The
    /// field is the time at which the stream is closed.
    Discarding(Time),
    /// A peer whose handshake was valid and was answered. Valid handshakes need our public key.
    /// The field is the time by which the peer must send a packet of its session.
    Greeted(Time),
    /// An unknown peer that has sent no whole packet in time. Its stream is relayed to the web
    /// server. Until the web server answers, a client's packet still binds the stream to the
    /// client.
    Late,
    /// An unknown peer whose stream is relayed to the web server until it closes.
    Handed,
    /// The stream belongs to this client.
    Client(ClientId),
}

/// The packets that one call read from a stream, in order.
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

/// All TCP and TLS streams of clients and unknown peers, and the sockets that accept streams.
pub(super) struct Streams {
    entries: Vec<Entry>,
    /// Address of the web server that answers unknown peers; `None` if there is none.
    web_server: Option<SocketAddr>,
    /// Maximum time for which a packet waits for room in a stream before it is dropped.
    age: Duration,
    owned_streams: BTreeMap<u64, OwnedStream>,
    /// Numbers of streams without a client, in the order of their arrival. Streams that were bound
    /// to a client or closed meanwhile may still be listed, and are skipped.
    strangers: VecDeque<u64>,
    /// Number of streams without a client.
    unbound: usize,
    /// Identifier that the next accepted stream gets.
    next: u64,
    /// Streams with queued packets that the next [`Streams::flush`] writes to the sockets.
    touched: Vec<u64>,
    /// Streams that ended and belonged to a client, until the method `ended` returns them.
    ended: Vec<(u64, ClientId)>,
    buffer: Vec<u8>,
    /// Number of streams that were passed to the web server.
    handed: u64,
    /// Number of packets that were dropped because they waited too long for room, on streams that
    /// have ended.
    past: u64,
}

impl Streams {
    /// Creates the table of streams, which accepts new ones at `entries`. The web server
    /// `web_server`, if given, answers unknown peers. Packets wait at most `age` for room.
    ///
    /// # Errors
    /// The poller cannot watch one of the accepting sockets.
    pub(super) fn new(
        entries: Vec<Entry>,
        (web_server, age): (Option<SocketAddr>, Duration),
        poller: &Poller,
    ) -> io::Result<Streams> {
        entries.iter().try_for_each(|entry| poller.add(&entry.listener, entry.token))?;
        Ok(Streams {
            entries,
            web_server,
            age,
            owned_streams: BTreeMap::new(),
            strangers: VecDeque::new(),
            unbound: 0,
            next: 0,
            touched: Vec::new(),
            ended: Vec::new(),
            buffer: vec![0; BUFFER],
            handed: 0,
            past: 0,
        })
    }

    /// Returns the local address of the accepting socket with `token`; `None` if there is no such
    /// socket.
    pub(super) fn local_addr(&self, token: u64) -> Option<SocketAddr> {
        self.entries.iter().find(|entry| entry.token == token)?.local_addr().ok()
    }

    /// Replaces the web server that answers unknown peers; with `None`, no server answers them. If
    /// `tls` is given, also replaces the certificate of future TLS streams. So certificates can be
    /// renewed while the program runs.
    pub(super) fn replace(
        &mut self,
        web_server: Option<SocketAddr>,
        tls: Option<&Arc<dyn TlsEnd>>,
    ) {
        self.web_server = web_server;
        let entries = self.entries.iter_mut().filter_map(|entry| entry.tls.as_mut());
        entries.zip(tls).for_each(|(own, tls)| *own = Arc::clone(tls));
    }

    /// Accepts the streams that wait at the socket with `token`. If no file descriptor is left,
    /// the socket is not watched until the next [`Streams::sweep`].
    pub(super) fn accept(&mut self, now: Time, poller: &Poller, token: u64) {
        let place = self.entries.iter().position(|entry| entry.token == token);
        let Some(place) = place else { return };
        for _ in 0..AT_ONCE {
            match self.entries[place].listener.accept() {
                Ok((stream, from)) => self.admit(now, (stream.into(), place), from, poller),
                Err(error) if files::ran_out(&error) => {
                    if !self.close_oldest_stranger() {
                        let removed = poller.remove(&self.entries[place].listener);
                        self.entries[place].is_watched = removed.is_err();
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The peer closed the stream before it was accepted.
                Err(_) => {}
            }
        }
    }

    /// Adds an accepted stream. If the socket's options cannot be set, or the poller cannot watch
    /// it, the stream is closed, and its client connects again.
    fn admit(
        &mut self,
        now: Time,
        (socket, place): (Socket, usize),
        from: SocketAddr,
        poller: &Poller,
    ) {
        if self.unbound >= MAX_UNBOUND {
            self.close_oldest_stranger();
        }
        let number = self.next;
        let tls = self.entries[place].tls.as_ref().map(|end| end.begin(None));
        let Ok(tls) = tls.transpose() else { return };
        let limits = (LONGEST_FIRST, self.age);
        let made = prepare(&socket).and_then(|()| Connection::new(socket, tls, limits));
        let watched = made.and_then(|connection| {
            poller.add(&connection, STREAMS | number)?;
            Ok(connection)
        });
        let Ok(connection) = watched else { return };
        self.next += 1;
        self.unbound += 1;
        self.strangers.push_back(number);
        let patience = if self.web_server.is_some() { HESITATION } else { PATIENCE };
        let owner = Owner::Stranger(now + patience);
        let (unforwarded, relay) = (Vec::new(), None);
        let owned = OwnedStream { connection, from, since: now, owner, unforwarded, relay };
        self.owned_streams.insert(number, owned);
    }

    /// Reads the packets that have arrived on a stream into `packets`, and returns their source.
    /// Returns `None` if the stream cannot belong to a client any more.
    pub(super) fn read(
        &mut self,
        number: u64,
        packets: &mut Packets,
        poller: &Poller,
    ) -> Option<Peer> {
        packets.clear();
        let owned = self.owned_streams.get_mut(&number)?;
        let is_stranger = matches!(owned.owner, Owner::Stranger(_) | Owner::Late);
        let read = match owned.owner {
            Owner::Handed => {
                self.pump(number, poller);
                return None;
            }
            Owner::Discarding(_) => owned.connection.skip(&mut self.buffer),
            Owner::Stranger(_) | Owner::Late | Owner::Greeted(_) | Owner::Client(_) => {
                owned.connection.read(&mut self.buffer, |packet| {
                    packets.bytes.extend_from_slice(packet);
                    packets.ends.push(packets.bytes.len());
                })
            }
        };
        if is_stranger && self.web_server.is_some() {
            owned.unforwarded.extend_from_slice(owned.connection.last_read());
        }
        let peer = Peer { remote: owned.from, local: None, stream: Some(number) };
        let is_discarding = matches!(owned.owner, Owner::Discarding(_));
        match (read, owned.owner) {
            (Ok(()), Owner::Late) if packets.ends.is_empty() => self.pass_on(number, poller),
            (Ok(()), _) => {}
            (Err(Ending::Length(_) | Ending::Closed), Owner::Late) => self.doubt(number, poller),
            (Err(Ending::Length(_)), Owner::Stranger(until) | Owner::Greeted(until)) => {
                owned.owner = match self.web_server {
                    Some(_) => Owner::Stranger(until),
                    None => Owner::Discarding(until),
                };
                self.doubt(number, poller);
            }
            (Err(_), _) => self.close(number),
        }
        (!is_discarding).then_some(peer)
    }

    /// Relays an unknown peer's stream to the web server, if there is one. Called after a packet
    /// that belongs to no client.
    pub(super) fn doubt(&mut self, number: u64, poller: &Poller) {
        let Some(owned) = self.owned_streams.get_mut(&number) else { return };
        match owned.owner {
            Owner::Stranger(_) => self.hand_over(number, Owner::Handed, poller),
            Owner::Late => {
                owned.owner = Owner::Handed;
                self.pass_on(number, poller);
            }
            Owner::Discarding(_) | Owner::Greeted(_) | Owner::Handed | Owner::Client(_) => {}
        }
    }

    /// Begins to relay an unknown peer's stream to the web server, if there is one. Sets the
    /// stream's owner to `owner`.
    fn hand_over(&mut self, number: u64, owner: Owner, poller: &Poller) {
        let (Some(server), Some(owned)) = (self.web_server, self.owned_streams.get_mut(&number))
        else {
            return;
        };
        let unforwarded = std::mem::take(&mut owned.unforwarded);
        match Relay::new(server, unforwarded, [STREAMS | number, WEB_SERVERS | number], poller) {
            Ok(relay) => {
                self.handed += 1;
                (owned.owner, owned.relay) = (owner, Some(Box::new(relay)));
                self.pump(number, poller);
            }
            Err(_) => self.close(number),
        }
    }

    /// Relays the bytes that were read from an unknown peer to the web server.
    fn pass_on(&mut self, number: u64, poller: &Poller) {
        let Some(owned) = self.owned_streams.get_mut(&number) else { return };
        let unforwarded = std::mem::take(&mut owned.unforwarded);
        owned.relay.iter_mut().for_each(|relay| relay.add(&unforwarded));
        self.pump(number, poller);
    }

    /// Records that a handshake on the stream was answered, so that the stream is not relayed to
    /// the web server.
    pub(super) fn trust(&mut self, now: Time, number: u64, poller: &Poller) {
        if let Some(owned) = self.owned_streams.get_mut(&number)
            && matches!(owned.owner, Owner::Stranger(_) | Owner::Late)
        {
            owned.owner = Owner::Greeted(now + PATIENCE);
            owned.leave_web(number, poller);
        }
    }

    /// Relays bytes between an unknown peer and the web server.
    pub(super) fn pump(&mut self, number: u64, poller: &Poller) {
        let Some(owned) = self.owned_streams.get_mut(&number) else { return };
        let Some(relay) = &mut owned.relay else { return };
        let (is_late, wire) = (owned.owner == Owner::Late, owned.connection.wire());
        let pumped = relay.pump((wire, !is_late), &mut self.buffer, poller);
        if is_late && relay.has_answered() {
            owned.owner = Owner::Handed;
        }
        if pumped.is_err() {
            owned.connection.wire().end();
            self.close(number);
        }
    }

    /// Binds a stream to `client`, whose packet has arrived on it. If the stream belongs to
    /// another client, it is closed and false is returned.
    pub(super) fn bind(&mut self, number: u64, client: ClientId, poller: &Poller) -> bool {
        let Some(owned) = self.owned_streams.get_mut(&number) else { return true };
        match owned.owner {
            Owner::Client(owner) if owner == client => true,
            Owner::Client(_) => {
                self.close(number);
                false
            }
            Owner::Handed => true,
            Owner::Stranger(_) | Owner::Late | Owner::Discarding(_) | Owner::Greeted(_) => {
                owned.owner = Owner::Client(client);
                owned.leave_web(number, poller);
                owned.connection.allow(LONGEST);
                self.unbound -= 1;
                self.limit(client);
                true
            }
        }
    }

    fn limit(&mut self, client: ClientId) {
        let owned = self.owned_streams.iter().filter(|(_, one)| one.owner == Owner::Client(client));
        let owned: Vec<u64> = owned.map(|(&number, _)| number).collect();
        if owned.len() > OF_CLIENT {
            self.close(owned[0]);
        }
    }

    /// Appends a packet to a stream. If `lasts` is true, the packet is not dropped, however long
    /// it waits for room. Returns false if the stream has ended or its queue is full.
    pub(super) fn push(&mut self, now: Time, number: u64, packet: &[u8], lasts: bool) -> bool {
        let Some(owned) = self.owned_streams.get_mut(&number) else { return false };
        if self.touched.last() != Some(&number) {
            self.touched.push(number);
        }
        owned.connection.push(now, packet, lasts)
    }

    /// Writes the queued packets of all streams to the sockets.
    pub(super) fn flush(&mut self, now: Time, poller: &Poller) {
        let touched = std::mem::take(&mut self.touched);
        touched.iter().for_each(|&number| self.flush_one(now, number, poller));
        self.touched = touched;
        self.touched.clear();
    }

    /// Writes packets of one stream to its socket until the socket is full.
    pub(super) fn flush_one(&mut self, now: Time, number: u64, poller: &Poller) {
        let Some(owned) = self.owned_streams.get_mut(&number) else { return };
        if owned.relay.is_some() {
            return self.pump(number, poller);
        }
        if owned.connection.flush(now, poller, STREAMS | number).is_err() {
            self.close(number);
        }
    }

    /// Handles unknown peers whose deadline has passed: closes their streams, or relays them to
    /// the web server. Watches all accepting sockets again.
    pub(super) fn sweep(&mut self, now: Time, poller: &Poller) {
        let strangers = std::mem::take(&mut self.strangers);
        for number in strangers {
            let Some(owned) = self.owned_streams.get_mut(&number) else { continue };
            match owned.owner {
                Owner::Client(_) => continue,
                Owner::Stranger(until) if until <= now => self.give_up(now, number, poller),
                Owner::Discarding(until) | Owner::Greeted(until) if until <= now => {
                    self.close(number)
                }
                Owner::Stranger(_)
                | Owner::Late
                | Owner::Discarding(_)
                | Owner::Greeted(_)
                | Owner::Handed => {}
            }
            self.strangers.push_back(number);
        }
        for entry in self.entries.iter_mut().filter(|entry| !entry.is_watched) {
            entry.is_watched = poller.add(&entry.listener, entry.token).is_ok();
        }
    }

    /// Handles an unknown peer that has sent no valid packet in time. Closes the peer's stream, or
    /// relays the stream to the web server if there is one. If a TLS handshake is incomplete, the
    /// web server cannot answer. The peer then gets as much time as without a web server.
    fn give_up(&mut self, now: Time, number: u64, poller: &Poller) {
        let Some(owned) = self.owned_streams.get_mut(&number) else { return };
        let last = owned.since + PATIENCE;
        match self.web_server {
            Some(_) if owned.connection.is_open() => self.hand_over(number, Owner::Late, poller),
            Some(_) if now < last => owned.owner = Owner::Stranger(last),
            _ => self.close(number),
        }
    }

    /// Closes all streams of `client`.
    pub(super) fn close_all(&mut self, client: ClientId) {
        let owned = |(&number, one): (&u64, &OwnedStream)| {
            (one.owner == Owner::Client(client)).then_some(number)
        };
        let owned: Vec<u64> = self.owned_streams.iter().filter_map(owned).collect();
        owned.into_iter().for_each(|number| self.close(number));
    }

    /// Returns the number and the client of a stream that has ended. Returns each such stream
    /// once; then `None`.
    pub(super) fn ended(&mut self) -> Option<(u64, ClientId)> {
        self.ended.pop()
    }

    /// Returns the counters of the stream `number`; `None` if it has ended.
    pub(super) fn look(&self, number: u64) -> Option<StreamSnapshot> {
        let connection = &self.owned_streams.get(&number)?.connection;
        let (queued, aged) = (connection.queued() as u64, connection.count().aged);
        Some(StreamSnapshot { queued, aged })
    }

    /// Returns the counters of all streams, including those that have ended.
    pub(super) fn snapshot(&self) -> StreamsSnapshot {
        let aged = self.owned_streams.values().map(|owned| owned.connection.count().aged);
        StreamsSnapshot {
            bound: self.owned_streams.len() - self.unbound,
            strangers: self.unbound,
            handed: self.handed,
            aged: self.past + aged.sum::<u64>(),
        }
    }

    fn close_oldest_stranger(&mut self) -> bool {
        while let Some(oldest) = self.strangers.pop_front() {
            let owned = self.owned_streams.get(&oldest);
            if owned.is_some_and(|owned| !matches!(owned.owner, Owner::Client(_))) {
                self.close(oldest);
                return true;
            }
        }
        false
    }

    /// Closes a stream, and updates the counters. Closing the socket also removes it from the
    /// poller.
    fn close(&mut self, number: u64) {
        let Some(owned) = self.owned_streams.remove(&number) else { return };
        self.past += owned.connection.count().aged;
        match owned.owner {
            Owner::Client(client) => self.ended.push((number, client)),
            Owner::Stranger(_)
            | Owner::Late
            | Owner::Discarding(_)
            | Owner::Greeted(_)
            | Owner::Handed => self.unbound -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::streams::AGE;

    const LISTENER: u64 = u64::MAX;
    const NOW: Time = Time::from_secs(1);

    fn streams() -> (Streams, Poller) {
        streams_with_web_server(None)
    }

    /// Returns streams as `streams` does, with a web server that answers unknown peers.
    fn streams_with_web_server(server: Option<SocketAddr>) -> (Streams, Poller) {
        let poller = Poller::new(8).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let entry = Entry::new(listener, LISTENER, None).unwrap();
        let streams = Streams::new(vec![entry], (server, AGE), &poller).unwrap();
        (streams, poller)
    }

    /// Opens a TCP connection to the listener, and waits until it is accepted. It becomes the
    /// stream with the next unused number. Returns the connecting end.
    fn connect(streams: &mut Streams, poller: &Poller) -> TcpStream {
        let (before, at) = (streams.next, streams.local_addr(LISTENER).unwrap());
        let stream = TcpStream::connect(at).unwrap();
        while streams.next == before {
            streams.accept(NOW, poller, LISTENER);
        }
        stream
    }

    /// Reads the stream `number` until a packet has arrived, or the stream has ended or its bytes
    /// are discarded. Returns the packets' source, and the number of packets from the last read.
    fn read(streams: &mut Streams, poller: &Poller, number: u64) -> (Option<Peer>, usize) {
        let mut packets = Packets::default();
        for _ in 0..1_000 {
            let peer = streams.read(number, &mut packets, poller);
            let owner = streams.owned_streams.get(&number).map(|one| one.owner);
            let is_discarding = matches!(owner, None | Some(Owner::Discarding(_)));
            if !packets.ends.is_empty() || is_discarding {
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
        let (peer, packets) = read(&mut streams, &poller, 0);
        assert_eq!(peer.unwrap().stream, Some(0));
        assert!(packets >= 1);
        assert!(streams.bind(0, ClientId(3), &poller) && streams.bind(0, ClientId(3), &poller));
        assert_eq!(
            streams.snapshot(),
            StreamsSnapshot { bound: 1, strangers: 0, handed: 0, aged: 0 }
        );
        assert!(streams.push(NOW, 0, &[9; 40], false));
        assert!(!streams.bind(0, ClientId(4), &poller), "a packet of another client closes it");
        assert_eq!(streams.ended(), Some((0, ClientId(3))));
        assert!(!streams.push(NOW, 0, &[9; 40], false));
        assert_eq!(streams.snapshot().bound, 0);
    }

    #[test]
    fn a_wrong_length_mutes_a_stranger_until_its_time_is_over() {
        let (mut streams, poller) = streams();
        let mut outside = connect(&mut streams, &poller);
        outside.write_all(&[0, 0]).unwrap();
        read(&mut streams, &poller, 0);
        outside.write_all(&[&[0, 25][..], &[7; 25]].concat()).unwrap();
        assert_eq!(read(&mut streams, &poller, 0), (None, 0), "nothing is read from it any more");
        outside.set_nonblocking(true).unwrap();
        let received = outside.read(&mut [0; 8]).map_err(|error| error.kind());
        assert_eq!(received, Err(ErrorKind::WouldBlock), "it is open, and silent");
        streams.sweep(NOW + PATIENCE, &poller);
        assert_eq!(streams.snapshot().strangers, 0);
        outside.set_nonblocking(false).unwrap();
        assert_eq!(outside.read(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn strangers_leave_when_their_time_is_over_and_clients_stay() {
        let (mut streams, poller) = streams();
        let _outside: Vec<_> = (0..3).map(|_| connect(&mut streams, &poller)).collect();
        assert!(streams.bind(1, ClientId(0), &poller));
        streams.sweep(NOW + PATIENCE - Duration::from_millis(1), &poller);
        assert_eq!(
            streams.snapshot(),
            StreamsSnapshot { bound: 1, strangers: 2, handed: 0, aged: 0 }
        );
        streams.sweep(NOW + PATIENCE, &poller);
        assert_eq!(
            streams.snapshot(),
            StreamsSnapshot { bound: 1, strangers: 0, handed: 0, aged: 0 }
        );
        streams.close_all(ClientId(0));
        assert_eq!((streams.ended(), streams.ended()), (Some((1, ClientId(0))), None));
    }

    #[test]
    fn one_more_stranger_than_may_be_closes_the_oldest() {
        files::raise_limit();
        let (mut streams, poller) = streams();
        let mut outside = Vec::new();
        for _ in 0..=MAX_UNBOUND {
            outside.push(connect(&mut streams, &poller));
            // This process holds both ends of each stream, and may have only a limited number of
            // files.
            if outside.len() > 100 && streams.unbound < MAX_UNBOUND {
                outside.remove(0);
            }
        }
        assert_eq!(streams.snapshot().strangers, MAX_UNBOUND);
        assert!(!streams.owned_streams.contains_key(&0) && streams.owned_streams.contains_key(&1));
    }

    /// Starts a web server that reads `reads` bytes, and sends them back with the text "the
    /// server".
    fn web_server(reads: usize) -> (SocketAddr, std::thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut received = vec![0; reads];
            client.read_exact(&mut received).unwrap();
            client.write_all(&received).unwrap();
            client.write_all(b"the server").unwrap();
            received
        });
        (at, serving)
    }

    /// Relays as the loop does until the stream has ended. Returns the bytes that the unknown peer
    /// received.
    fn relay(streams: &mut Streams, poller: &mut Poller, outside: &mut TcpStream) -> Vec<u8> {
        let mut received = Vec::new();
        outside.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        while streams.owned_streams.contains_key(&0) {
            let ready: Vec<_> = poller.wait(Some(Duration::from_millis(5))).unwrap().collect();
            for event in ready.iter().filter(|event| event.token != LISTENER) {
                match event.token & WEB_SERVERS {
                    0 => _ = streams.read(0, &mut Packets::default(), poller),
                    _ => streams.pump(0, poller),
                }
            }
            let mut room = vec![0; 64 << 10];
            let length = outside.read(&mut room).unwrap_or(0);
            received.extend_from_slice(&room[..length]);
        }
        outside.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        outside.read_to_end(&mut received).unwrap();
        received
    }

    #[test]
    fn a_stranger_gets_the_web_servers_answer_with_all_that_it_has_sent() {
        // The first bytes announce a packet of 16,740 bytes. The other bytes are more than the
        // relay stores at once.
        let message = [b"Ad".to_vec(), vec![7; 200_000]].concat();
        let (server, serving) = web_server(message.len());
        let (mut streams, mut poller) = streams_with_web_server(Some(server));
        let mut outside = connect(&mut streams, &poller);
        let mut writer = outside.try_clone().unwrap();
        let spoken = message.clone();
        let talking = std::thread::spawn(move || writer.write_all(&spoken).unwrap());
        let received = relay(&mut streams, &mut poller, &mut outside);
        assert!(received == [&message[..], b"the server"].concat(), "{} bytes", received.len());
        assert!(serving.join().unwrap() == message);
        talking.join().unwrap();
        let snapshot = streams.snapshot();
        assert_eq!((snapshot.handed, snapshot.strangers, snapshot.bound), (1, 0, 0));
    }

    #[test]
    fn a_stranger_that_hesitates_or_sends_a_foreign_packet_is_handed_over_and_a_client_never() {
        let whole = [&[0, 25][..], &[7; 25]].concat();
        for (says, doubts) in [(&whole[..10], false), (&whole[..], true)] {
            let (server, serving) = web_server(says.len());
            let (mut streams, mut poller) = streams_with_web_server(Some(server));
            let mut outside = connect(&mut streams, &poller);
            outside.write_all(says).unwrap();
            while streams.owned_streams[&0].unforwarded.len() < says.len() {
                streams.read(0, &mut Packets::default(), &poller);
            }
            streams.sweep(NOW + HESITATION - Duration::from_millis(1), &poller);
            assert_eq!(streams.snapshot().handed, 0);
            match doubts {
                true => streams.doubt(0, &poller),
                false => streams.sweep(NOW + HESITATION, &poller),
            }
            let received = relay(&mut streams, &mut poller, &mut outside);
            assert_eq!(received, [says, b"the server"].concat());
            assert_eq!(serving.join().unwrap(), says);
        }
        let (mut streams, poller) = streams_with_web_server(Some("127.0.0.1:1".parse().unwrap()));
        let mut outside = connect(&mut streams, &poller);
        outside.write_all(&whole).unwrap();
        read(&mut streams, &poller, 0);
        assert!(streams.bind(0, ClientId(3), &poller));
        assert!(streams.owned_streams[&0].unforwarded.is_empty());
        streams.doubt(0, &poller);
        streams.sweep(NOW + PATIENCE, &poller);
        assert_eq!((streams.snapshot().handed, streams.snapshot().bound), (0, 1));
    }

    /// A circuit may delay a client's first packet until its stream is relayed to the web server.
    /// Once the whole packet arrives, the stream must return to the client. The test covers
    /// streams on which none of the packet, or a part of it, has arrived in time.
    #[test]
    fn a_late_packet_of_a_client_takes_its_stream_back_from_the_web_server() {
        let whole = [&[0, 25][..], &[7; 25]].concat();
        for early in [0, 10] {
            let (server, serving) = web_server(1_000);
            let (mut streams, poller) = streams_with_web_server(Some(server));
            let mut outside = connect(&mut streams, &poller);
            outside.write_all(&whole[..early]).unwrap();
            while streams.owned_streams[&0].unforwarded.len() < early {
                streams.read(0, &mut Packets::default(), &poller);
            }
            streams.sweep(NOW + HESITATION, &poller);
            assert_eq!((streams.snapshot().handed, streams.snapshot().strangers), (1, 1));
            outside.write_all(&whole[early..]).unwrap();
            assert_eq!(read(&mut streams, &poller, 0).1, 1);
            assert!(streams.bind(0, ClientId(3), &poller));
            assert_eq!((streams.snapshot().bound, streams.snapshot().strangers), (1, 0));
            // The web server's connection is closed before its answer.
            assert!(serving.join().is_err());
            assert!(streams.push(NOW, 0, &[9; 40], false));
            streams.flush(NOW, &poller);
            let mut received = [0; 42];
            outside.read_exact(&mut received).unwrap();
            assert_eq!(received[..2], [0, 40]);
        }
    }

    #[test]
    fn a_late_stranger_stays_with_the_web_server_once_it_has_answered() {
        let whole = [&[0, 25][..], &[7; 25]].concat();
        let (server, serving) = web_server(1);
        let (mut streams, mut poller) = streams_with_web_server(Some(server));
        let mut outside = connect(&mut streams, &poller);
        outside.write_all(&whole[..1]).unwrap();
        while streams.owned_streams[&0].unforwarded.is_empty() {
            streams.read(0, &mut Packets::default(), &poller);
        }
        streams.sweep(NOW + HESITATION, &poller);
        let received = relay(&mut streams, &mut poller, &mut outside);
        assert_eq!(received, [&whole[..1], b"the server"].concat());
        serving.join().unwrap();
    }

    #[test]
    fn a_web_server_that_is_not_there_ends_the_strangers_stream() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (mut streams, mut poller) = streams_with_web_server(Some(closed));
        let mut outside = connect(&mut streams, &poller);
        outside.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(relay(&mut streams, &mut poller, &mut outside), b"");
        assert_eq!(streams.snapshot().strangers, 0);
    }
}
