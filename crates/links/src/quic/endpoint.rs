//! The QUIC links of one UDP socket.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anabranch_multipath::{Core, Time};
use bytes::Bytes;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, EcnCodepoint, Incoming, Transmit,
    VarInt,
};
use rustls::pki_types::CertificateDer;

use super::buffers::Buffers;
use super::cells::CellFormat;
use super::config::{self, Congestion};
use super::epoch::{Epoch, TokenClock};
use super::link::{ENDED, QuicLink};
use super::socket_index::{SocketIndex, first_id};
use crate::tls::Context;
use crate::tls::setup::{SetupError, setup};
use crate::{Link as _, State};

/// Minimum number of pending inbound handshakes at which a new peer must first prove its address
/// with a Retry (RFC 9000, section 8.1.2).
const RETRY_FROM: usize = 16;
/// Maximum number of pending inbound handshakes. Further handshakes are refused.
const MOST_HALF_OPEN: usize = 1_024;
/// Maximum number of queued datagrams that belong to no connection, such as Retry packets. Further
/// ones are dropped.
const MOST_ANSWERS: usize = 256;
/// Maximum number of datagrams that [`Endpoint::transmit`] returns at once, for one segmented send
/// (UDP segmentation offload).
const SEGMENTS: usize = 32;

/// Identifier of a link at its endpoint. Identifiers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Source address.
    pub from: SocketAddr,
    /// Our address at which the datagram arrived, if known.
    pub to: Option<IpAddr>,
    /// ECN bits of the datagram (RFC 3168).
    pub ecn: u8,
    /// Bytes of the datagram.
    pub bytes: &'a [u8],
}

/// Input of an [`Endpoint`]: a received datagram, and the rule that admits new peers.
pub struct EndpointInput<'a> {
    /// The datagram.
    pub arrival: Arrival<'a>,
    /// Function that decides whether the peer at an address may open a link. It is called once for
    /// each inbound link. If the peer must first prove its address with a Retry, it is called
    /// after this proof.
    pub admit: &'a mut dyn FnMut(ConnId, SocketAddr) -> bool,
}

impl fmt::Debug for EndpointInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EndpointInput").field(&self.arrival).finish()
    }
}

/// Output of an [`Endpoint`], which the caller must handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointOutput {
    /// A datagram for a peer that has no link: its description and its bytes.
    Answer(Packets, Vec<u8>),
    /// A link whose state may have changed. The link may have opened or ended, have data to read
    /// or to send, or accept more data. The caller, which does the I/O, first handles this link.
    /// Then it sends the datagrams that [`Endpoint::transmit`] returns.
    Touched(ConnId),
}

/// Description of one or more datagrams to send, without their bytes. [`Endpoint::transmit`]
/// writes the bytes to its argument `into`, and [`EndpointOutput::Answer`] contains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    /// Destination address of the datagrams.
    pub to: SocketAddr,
    /// Source address, if one is required.
    pub source: Option<IpAddr>,
    /// ECN bits.
    pub ecn: u8,
    /// Length of each datagram in bytes; the last datagram may be shorter. 0 means a single
    /// datagram.
    pub stride: usize,
}

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounts {
    /// Number of inbound links whose peers had to prove their address.
    pub retried: u64,
    /// Number of inbound links that were refused.
    pub refused: u64,
    /// Number of links that ended without an orderly close.
    pub broken: u64,
}

impl EndpointCounts {
    /// Returns the sums of the counters of two endpoints.
    #[must_use]
    pub fn with(self, other: EndpointCounts) -> EndpointCounts {
        EndpointCounts {
            retried: self.retried + other.retried,
            refused: self.refused + other.refused,
            broken: self.broken + other.broken,
        }
    }
}

/// The QUIC links of one UDP socket.
///
/// The result of [`Core::next_timeout`] is correct only after [`Endpoint::transmit`] has returned
/// `None` for each link that [`EndpointOutput::Touched`] reported.
pub struct Endpoint {
    inner: quinn_proto::Endpoint,
    epoch: Epoch,
    clock: Arc<TokenClock>,
    context: Context,
    client: ClientConfig,
    own: CertificateDer<'static>,
    format: CellFormat,
    seed: [u8; 32],
    takes: bool,
    congestion: Congestion,
    links: BTreeMap<ConnId, Entry>,
    by_handle: BTreeMap<usize, ConnId>,
    due: BTreeSet<(Time, ConnId)>,
    touched: BTreeSet<ConnId>,
    answers: VecDeque<(Packets, Vec<u8>)>,
    buffers: Buffers,
    last: u64,
    /// Number of inbound handshakes in progress.
    half_open: usize,
    counts: EndpointCounts,
}

struct Entry {
    link: QuicLink,
    handle: ConnectionHandle,
    due: Option<Time>,
    /// True while the link's inbound handshake is in progress.
    is_half_open: bool,
    /// True if the owner has closed the link. The endpoint then only sends the link's closing
    /// packets.
    is_closed: bool,
}

impl Endpoint {
    /// Returns an endpoint without links. If `takes` is given, peers may open links, and `takes`
    /// is the index of this endpoint's socket among the sockets at the same address. Random
    /// choices are derived from `seed`, except the TLS library's random numbers and the connection
    /// IDs.
    ///
    /// # Errors
    /// [`SetupError`] if the TLS or QUIC library refuses the settings.
    pub fn new(
        context: &Context,
        format: CellFormat,
        seed: [u8; 32],
        takes: Option<SocketIndex>,
        congestion: Congestion,
    ) -> Result<Endpoint, SetupError> {
        let datagrams = format.lossy > 0;
        let clock = Arc::new(TokenClock::default());
        let tokens = (seed, Arc::clone(&clock));
        let server =
            takes.map(|_| config::server(context, tokens, congestion, datagrams)).transpose()?;
        let server = server.map(Arc::new);
        let inner = quinn_proto::Endpoint::new(
            config::endpoint(seed, takes.unwrap_or(SocketIndex::ONLY)),
            server,
            true,
            None,
        );
        Ok(Endpoint {
            inner,
            epoch: Epoch::new(),
            clock,
            client: config::client(context, congestion, datagrams)?,
            own: context.quic().own,
            context: context.clone(),
            format,
            seed,
            takes: takes.is_some(),
            congestion,
            links: BTreeMap::new(),
            by_handle: BTreeMap::new(),
            due: BTreeSet::new(),
            touched: BTreeSet::new(),
            answers: VecDeque::new(),
            buffers: Buffers::default(),
            last: 0,
            half_open: 0,
            counts: EndpointCounts::default(),
        })
    }

    /// Sets the certificate that later links present.
    ///
    /// # Errors
    /// [`SetupError`] if the TLS or QUIC library refuses the settings. The previous certificate
    /// then stays in use.
    pub fn set_context(&mut self, context: &Context) -> Result<(), SetupError> {
        let datagrams = self.format.lossy > 0;
        if self.takes {
            let tokens = (self.seed, Arc::clone(&self.clock));
            let server = config::server(context, tokens, self.congestion, datagrams)?;
            self.inner.set_server_config(Some(Arc::new(server)));
        }
        self.client = config::client(context, self.congestion, datagrams)?;
        (self.context, self.own) = (context.clone(), context.quic().own);
        Ok(())
    }

    /// Opens a link to the address `to`. If several sockets share this address, `first_byte`
    /// selects the socket: the one whose connection IDs begin with this byte.
    ///
    /// # Errors
    /// [`SetupError`] if the address cannot be a destination.
    pub fn connect(
        &mut self,
        now: Time,
        to: SocketAddr,
        first_byte: Option<u8>,
    ) -> Result<ConnId, SetupError> {
        let (now, name) = (self.epoch.instant(now), self.context.hostname()?);
        let mut client = self.client.clone();
        if let Some(first_byte) = first_byte {
            client.initial_dst_cid_provider(Arc::new(move || first_id(first_byte)));
        }
        let dialled = self.inner.connect(now, client, to, &name);
        let (handle, connection) = dialled.map_err(setup)?;
        Ok(self.add(handle, connection, true))
    }

    fn add(&mut self, handle: ConnectionHandle, connection: Connection, dialled: bool) -> ConnId {
        self.last += 1;
        let id = ConnId(self.last);
        let link = QuicLink::new(connection, self.format, self.own.clone(), dialled);
        self.half_open += usize::from(!dialled);
        let entry = Entry { link, handle, due: None, is_half_open: !dialled, is_closed: false };
        self.links.insert(id, entry);
        self.by_handle.insert(handle.0, id);
        self.touched.insert(id);
        id
    }

    /// Answers an inbound link with a Retry if the peer must first prove its address
    /// ([`RETRY_FROM`]). Otherwise accepts the link, or refuses it if `admit` returns false or
    /// [`MOST_HALF_OPEN`] is reached.
    fn meet(
        &mut self,
        now: Time,
        incoming: Incoming,
        admit: &mut dyn FnMut(ConnId, SocketAddr) -> bool,
    ) {
        let mut answer = Vec::new();
        let is_proven = incoming.remote_address_validated();
        if self.half_open >= RETRY_FROM && !is_proven {
            self.counts.retried += 1;
            if let Ok(transmit) = self.inner.retry(incoming, &mut answer) {
                self.respond(&transmit, answer);
            }
            return;
        }
        let next = ConnId(self.last + 1);
        if self.half_open >= MOST_HALF_OPEN || !admit(next, incoming.remote_address()) {
            self.counts.refused += 1;
            let transmit = self.inner.refuse(incoming, &mut answer);
            return self.respond(&transmit, answer);
        }
        match self.inner.accept(incoming, self.epoch.instant(now), &mut answer, None) {
            Ok((handle, connection)) => drop(self.add(handle, connection, false)),
            Err(error) => {
                self.counts.refused += 1;
                if let Some(transmit) = error.response {
                    self.respond(&transmit, answer);
                }
            }
        }
    }

    fn respond(&mut self, transmit: &Transmit, mut bytes: Vec<u8>) {
        if self.answers.len() < MOST_ANSWERS {
            bytes.truncate(transmit.size);
            self.answers.push_back((packets(transmit), bytes));
        }
    }

    /// Handles the expired timers of links at `now`.
    fn expire(&mut self, now: Time) {
        while let Some(&(at, id)) = self.due.first().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, id));
            if let Some(entry) = self.links.get_mut(&id) {
                entry.due = None;
                entry.link.connection.handle_timeout(self.epoch.instant(now.max(at)));
                self.touched.insert(id);
            }
        }
    }

    fn next_touched(&mut self) -> Option<ConnId> {
        loop {
            let id = self.touched.pop_first()?;
            self.settle(id);
            if self.links.contains_key(&id) {
                return Some(id);
            }
        }
    }

    /// Makes the endpoint return [`EndpointOutput::Touched`] for a link, for example because the
    /// link may send now.
    pub fn touch(&mut self, id: ConnId) {
        if self.links.contains_key(&id) {
            self.touched.insert(id);
        }
    }

    /// Passes the pending events of the link `id` to the endpoint of `quinn-proto`, and passes the
    /// endpoint's answers back. Then updates the link, the counters and the tables of links.
    fn settle(&mut self, id: ConnId) {
        let Some(entry) = self.links.get_mut(&id) else { return };
        while let Some(event) = entry.link.connection.poll_endpoint_events() {
            if let Some(answer) = self.inner.handle_event(entry.handle, event) {
                entry.link.connection.handle_event(answer);
            }
        }
        let was_over = entry.link.state() == State::Ended;
        entry.link.work();
        let is_over = entry.link.state() == State::Ended;
        if is_over && !was_over && entry.link.fault().is_some() {
            self.counts.broken += 1;
        }
        if entry.is_half_open && entry.link.state() != State::Handshaking {
            entry.is_half_open = false;
            self.half_open -= 1;
        }
        if entry.link.connection.is_drained() {
            self.by_handle.remove(&entry.handle.0);
            if entry.is_closed {
                self.remove(id);
            }
        }
    }

    /// Returns the link with the identifier `id`. Returns `None` if there is no such link, or if
    /// the owner has closed it.
    pub fn link(&mut self, id: ConnId) -> Option<&mut QuicLink> {
        self.links.get_mut(&id).filter(|entry| !entry.is_closed).map(|entry| &mut entry.link)
    }

    /// Replaces the content of `into` with datagrams that a link must send. Returns their
    /// description. Returns `None` if the link has none to send.
    pub fn transmit(&mut self, now: Time, id: ConnId, into: &mut Vec<u8>) -> Option<Packets> {
        into.clear();
        let at = self.epoch.instant(now);
        let entry = self.links.get_mut(&id)?;
        if entry.link.state() == State::Open {
            entry.link.flush(now);
        }
        if entry.link.is_to_close() {
            entry.link.connection.close(at, ENDED, Bytes::new());
        }
        let transmit = entry.link.connection.poll_transmit(at, SEGMENTS, into);
        self.note_due(id);
        let transmit = transmit?;
        into.truncate(transmit.size);
        Some(packets(&transmit))
    }

    /// Updates the time of a link's next timer, which may have changed, in the table of timers.
    fn note_due(&mut self, id: ConnId) {
        let Some(entry) = self.links.get_mut(&id) else { return };
        let due = entry.link.connection.poll_timeout().map(|at| self.epoch.time(at));
        if due != entry.due {
            if let Some(at) = std::mem::replace(&mut entry.due, due) {
                self.due.remove(&(at, id));
            }
            self.due.extend(due.map(|at| (at, id)));
        }
    }

    /// Closes a link. Its owner can no longer access it, but its closing packets are still sent.
    pub fn close(&mut self, now: Time, id: ConnId) {
        let now = self.epoch.instant(now);
        let Some(entry) = self.links.get_mut(&id) else { return };
        entry.is_closed = true;
        if entry.link.connection.is_drained() {
            return self.remove(id);
        }
        entry.link.connection.close(now, VarInt::from_u32(0), Bytes::new());
        self.touched.insert(id);
    }

    fn remove(&mut self, id: ConnId) {
        let Some(entry) = self.links.remove(&id) else { return };
        self.half_open -= usize::from(entry.is_half_open);
        if let Some(at) = entry.due {
            self.due.remove(&(at, id));
        }
        self.touched.remove(&id);
    }

    /// Returns the number of links, including links that are being closed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Returns whether there are no links.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Returns the counters since the endpoint was created.
    #[must_use]
    pub fn counts(&self) -> EndpointCounts {
        self.counts
    }
}

impl Core for Endpoint {
    type In<'a> = EndpointInput<'a>;
    type Out = EndpointOutput;

    fn handle(&mut self, now: Time, input: EndpointInput<'_>) {
        self.clock.set(now);
        let at = self.epoch.instant(now);
        let EndpointInput { arrival: Arrival { from, to, ecn, bytes }, admit } = input;
        let (ecn, mut answer) = (EcnCodepoint::from_bits(ecn), Vec::new());
        let bytes = self.buffers.copy(bytes);
        match self.inner.handle(at, from, to, ecn, bytes, &mut answer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(&id) = self.by_handle.get(&handle.0)
                    && let Some(entry) = self.links.get_mut(&id)
                {
                    entry.link.connection.handle_event(event);
                    self.touched.insert(id);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.meet(now, incoming, admit),
            Some(DatagramEvent::Response(transmit)) => self.respond(&transmit, answer),
            None => {}
        }
    }

    fn poll(&mut self, now: Time) -> Option<EndpointOutput> {
        self.expire(now);
        let answer = self.answers.pop_front().map(|(to, bytes)| EndpointOutput::Answer(to, bytes));
        answer.or_else(|| self.next_touched().map(EndpointOutput::Touched))
    }

    fn next_timeout(&self) -> Option<Time> {
        self.due.first().map(|&(at, _)| at)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Endpoint").field("links", &self.links.len()).finish_non_exhaustive()
    }
}

fn packets(transmit: &Transmit) -> Packets {
    Packets {
        to: transmit.destination,
        source: transmit.src_ip,
        ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
        stride: transmit.segment_size.unwrap_or(0),
    }
}
