//! QUIC links of one core, the protocol state of a client or relay (`docs/spec/quic-links.md`),
//! and the UDP sockets for incoming and outgoing links.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use anabranch_links::quic::{
    Arrival, CellFormat, Congestion, ConnId, Endpoint, EndpointCounts, EndpointInput,
    EndpointOutput, Head, Packets, QuicLink, SocketIndex, WRITTEN,
};
use anabranch_links::tls::Context;
use anabranch_links::{Link as _, State, quic};
use anabranch_multipath::{Core as _, LinkView, Time};
use anabranch_onion::channel::{Capabilities, QuicPreferences};
use anabranch_onion::wire::cell::{CELL, CellHead, NUMBERED_CELL};
use anabranch_onion::wire::extend::Target;
use anabranch_onion::wire::keys::sha256;
use anabranch_onion::wire::link::EXPORT_LABEL;
use anabranch_onion::{CarrierFault, LinkId, LossyCongestion};
use anabranch_os::poller::{Interest, Poller, Ready};
use anabranch_os::udp::{Datagrams, RecvBatch, SendQueue, UdpOptions, UdpSocket};
use libc::EAGAIN;
use rand_core::Rng;

use super::{Carrier, Fetch, LinkEnd, LinkEvent, OpenedLink, PendingEvents, token};
use crate::onion::meter::Meter;
use crate::onion::newcomers::{ConnectionLimits, ConnectionSlot};
pub(in crate::onion) use sockets::{QuicSockets, sockets};

mod sockets;

/// Index of the QUIC carrier, which owns all QUIC links, among the carriers.
pub(in crate::onion) const CARRIER: u8 = 1;
/// Timeout of a QUIC handshake. Until the QUIC link is open, circuits use the TLS link.
const OPENING: Duration = Duration::from_secs(30);
/// Maximum number of messages received per system call. Each may contain several datagrams (UDP
/// GRO).
const MESSAGES: usize = 16;
/// Format of cells on QUIC links without lossy cells (cells in datagrams), which splits streams
/// into cells. `longest` is the length of the longest cell that a channel accepts, including its
/// header.
const FORMAT: CellFormat = CellFormat {
    head,
    end: CellHead::destroy_cell,
    longest: CellHead::LONGEST,
    longest_of_circuit: CELL,
    lossy: 0,
};

fn head(bytes: &[u8], first: bool) -> Option<Head> {
    let CellHead { circuit, length, creates, ends } = CellHead::parse(bytes, first)?;
    Some(Head { circuit, length, creates, ends })
}

/// Conditions under which QUIC links are opened in parallel to TLS links, and the congestion
/// control of these QUIC links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuicLinking {
    /// True if no QUIC link is opened in parallel to an unordered link (a TLS link whose records
    /// are decrypted out of order).
    pub unless_unordered: bool,
    /// Congestion control of the links.
    pub congestion: Congestion,
    /// Congestion control for streams in lossy cells (cells in datagrams, which may get lost). It
    /// applies to circuits that begin or end at this process. `None` if this process neither sends
    /// nor accepts lossy cells. Both ends of a link must support them.
    pub lossy: Option<LossyCongestion>,
}

/// Counters of QUIC links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuicCounts {
    /// Counters of the endpoints, one for each socket.
    pub endpoints: EndpointCounts,
    /// Number of outgoing links that could not be opened, for example because UDP is blocked.
    pub failed: u64,
    /// Number of lossy cells (cells in datagrams) that were dropped because they waited too long
    /// for the congestion window, or because too many waited.
    pub lossy_dropped: u64,
}

impl QuicCounts {
    /// Returns the sums of these counters and those of another event loop of the same relay.
    #[must_use]
    pub fn with(self, other: QuicCounts) -> QuicCounts {
        QuicCounts {
            endpoints: self.endpoints.with(other.endpoints),
            failed: self.failed + other.failed,
            lossy_dropped: self.lossy_dropped + other.lossy_dropped,
        }
    }
}

/// A UDP socket, and the QUIC endpoint with its links.
struct Port {
    socket: UdpSocket,
    endpoint: Endpoint,
    at: SocketAddr,
    /// True if the socket accepts links that other ends open.
    takes: bool,
    /// Packets for which the socket's send buffer had no room. They are sent before any other
    /// packets. `None` if no packets wait.
    blocked: Option<(Packets, Vec<u8>)>,
    /// Links whose own packets must wait until the packets in `blocked` are sent.
    waiting: BTreeSet<ConnId>,
}

impl Port {
    /// Sends the packets in `blocked`. Returns the number of bytes sent.
    fn send_blocked(&mut self, queue: &mut SendQueue) -> u64 {
        let Some((packets, bytes)) = self.blocked.take() else { return 0 };
        self.send(queue, packets, &bytes)
    }

    /// Sends datagrams, and returns the number of bytes sent. If the socket's buffer is full, the
    /// remaining datagrams wait in `blocked`. Datagrams that fail for another reason are lost,
    /// like packets in a network.
    fn send(&mut self, queue: &mut SendQueue, packets: Packets, bytes: &[u8]) -> u64 {
        let mut batch = queue.batch(&self.socket);
        batch.push(datagrams(&packets, bytes));
        let report = batch.send();
        if let Some(full) = report.failures.iter().find(|failure| failure.errno == EAGAIN) {
            self.blocked = Some((packets, bytes[full.first * packets.stride..].to_vec()));
        }
        report.sent_bytes as u64
    }
}

/// A QUIC link.
struct QuicConn {
    port: usize,
    conn: ConnId,
    peer: SocketAddr,
    /// The relay that we dialled, and the TLS link to it. `None` if the other end opened the QUIC
    /// link.
    target: Option<(Target, LinkId)>,
    admitted: Option<ConnectionSlot>,
    /// Time at which the link was created.
    begun: Time,
    is_reported: bool,
    /// True if the other end violated the rules for QUIC streams of a link
    /// (`docs/spec/quic-links.md`).
    broken: bool,
    /// True if the link has ended although neither end closed it.
    lost: bool,
    /// True if the core (the protocol state of the client or relay) has data to send.
    has_output: bool,
    /// True if the link will be closed once the protocol core's data is sent.
    closing: bool,
    /// Number of lossy cells (cells in datagrams) that the link had dropped at the last count.
    lossy_dropped: u64,
}

/// Carrier of the QUIC links of one core (the protocol state of a client or relay).
pub(in crate::onion) struct QuicLinks {
    context: Context,
    linking: QuicLinking,
    /// Limits on incoming connections, shared with the TCP listeners. `None` if no links are
    /// accepted.
    connection_limits: Option<ConnectionLimits>,
    /// Index of this shard (thread of the relay) among all shards. It determines the first bytes
    /// of connection IDs.
    place: SocketIndex,
    ports: Vec<Port>,
    links: BTreeMap<LinkId, QuicConn>,
    by_conn: BTreeMap<(usize, ConnId), LinkId>,
    slots: BTreeMap<(usize, ConnId), ConnectionSlot>,
    last: u64,
    received: RecvBatch,
    queue: SendQueue,
    packets: Vec<u8>,
    plain: Vec<u8>,
    /// Bytes that were received on the link that was read last, and that have not been passed to
    /// the protocol core.
    arrived: Vec<u8>,
    fresh: Option<PendingEvents>,
    limits: Option<[Meter; 2]>,
    /// True if the sockets are not read at present, because the rate limit is reached.
    paused: bool,
    /// Links that wait until the rate limit allows them to send.
    held: BTreeSet<LinkId>,
    /// True if the poller must be updated, because other socket events must be watched.
    unwatched: bool,
    /// Bytes on the network: received, then sent.
    transferred: [u64; 2],
    failed: u64,
    /// Number of times that other ends violated the rules for QUIC streams of a link
    /// (`docs/spec/quic-links.md`).
    faults: u64,
    /// Number of lossy cells (cells in datagrams) that all links have dropped.
    lossy_dropped: u64,
}

impl QuicLinks {
    /// Creates a carrier without links.
    pub(in crate::onion) fn new(context: Context, linking: QuicLinking) -> QuicLinks {
        QuicLinks {
            context,
            linking,
            connection_limits: None,
            place: SocketIndex::ONLY,
            ports: Vec::new(),
            links: BTreeMap::new(),
            by_conn: BTreeMap::new(),
            slots: BTreeMap::new(),
            last: 0,
            received: RecvBatch::new(MESSAGES),
            queue: SendQueue::new(),
            packets: Vec::new(),
            plain: Vec::new(),
            arrived: Vec::new(),
            fresh: None,
            limits: None,
            paused: false,
            held: BTreeSet::new(),
            unwatched: false,
            transferred: [0; 2],
            failed: 0,
            faults: 0,
            lossy_dropped: 0,
        }
    }

    /// Accepts links at `sockets`, within the limits of `connection_limits`.
    ///
    /// # Errors
    /// A system call or the QUIC library fails.
    pub(in crate::onion) fn listen(
        &mut self,
        poller: &Poller,
        sockets: QuicSockets,
        connection_limits: ConnectionLimits,
    ) -> io::Result<()> {
        (self.connection_limits, self.place) = (Some(connection_limits), sockets.place);
        let mut sockets = sockets.sockets.into_iter();
        sockets.try_for_each(|socket| self.add_port(poller, socket, true).map(drop))
    }

    fn add_port(&mut self, poller: &Poller, socket: UdpSocket, takes: bool) -> io::Result<usize> {
        let mut seed = [0; 32];
        anabranch_os::entropy::generator()?.fill_bytes(&mut seed);
        let (takes_at, congestion) = (takes.then_some(self.place), self.linking.congestion);
        let lossy = if self.linking.lossy.is_some() { NUMBERED_CELL } else { 0 };
        let format = CellFormat { lossy, ..FORMAT };
        let endpoint = Endpoint::new(&self.context, format, seed, takes_at, congestion);
        let endpoint = endpoint.map_err(io::Error::other)?;
        let (place, at) = (self.ports.len(), socket.local_addr()?);
        poller.add(&socket, token(CARRIER, place as u64))?;
        let (blocked, waiting) = (None, BTreeSet::new());
        self.ports.push(Port { socket, endpoint, at, takes, blocked, waiting });
        Ok(place)
    }

    /// Stops accepting new links. Open links are not affected.
    pub(in crate::onion) fn refuse(&mut self) {
        self.connection_limits = None;
    }

    /// Returns our preferences for a QUIC link parallel to a TLS link to the relay at `peer`.
    pub(in crate::onion) fn quic_preferences(&self, peer: IpAddr) -> QuicPreferences {
        let takes = |port: &&Port| port.takes && self.connection_limits.is_some();
        let (v6, any) = (peer.to_canonical().is_ipv6(), IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        let reached = |port: &&Port| port.at.is_ipv6() == v6 || port.at.ip() == any;
        let mut open = self.ports.iter().filter(takes).filter(reached);
        let port = open.next().map_or(0, |port| port.at.port());
        QuicPreferences {
            port,
            first_byte: self.first_byte(),
            unless_unordered: self.linking.unless_unordered,
        }
    }

    /// Returns a first byte for connection IDs. The kernel delivers packets with this byte to the
    /// sockets of this shard (thread of the relay).
    fn first_byte(&self) -> u8 {
        let mut chance = [0];
        // Any byte of this shard works. A random byte reveals nothing to observers.
        if let Ok(mut generator) = anabranch_os::entropy::generator() {
            generator.fill_bytes(&mut chance);
        }
        self.place.first(chance[0])
    }

    /// Opens a QUIC link to a relay in parallel to the TLS link `alongside`. If `first_byte` is
    /// given, it is the first byte of the initial destination connection ID, and selects the
    /// relay's shard (thread).
    ///
    /// # Errors
    /// A system call or the QUIC library fails.
    pub(in crate::onion) fn connect(
        &mut self,
        now: Time,
        poller: &Poller,
        alongside: LinkId,
        (target, first_byte): (Target, Option<u8>),
    ) -> io::Result<LinkId> {
        let to = *target.addresses.first().ok_or(io::ErrorKind::NotFound)?;
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        let ours: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let of_family = |port: &Port| !port.takes && port.at.is_ipv6() == to.is_ipv6();
        let port = match self.ports.iter().position(of_family) {
            Some(port) => port,
            None => {
                let options = UdpOptions { error_queue: false, ..UdpOptions::default() };
                let socket = UdpSocket::bind(SocketAddr::new(ours, 0), &options)?;
                self.add_port(poller, socket, false)?
            }
        };
        let conn =
            self.ports[port].endpoint.connect(now, to, first_byte).map_err(io::Error::other)?;
        Ok(self.add(now, (port, conn), to, Some((target, alongside))))
    }

    fn add(
        &mut self,
        begun: Time,
        (port, conn): (usize, ConnId),
        peer: SocketAddr,
        target: Option<(Target, LinkId)>,
    ) -> LinkId {
        self.last += 1;
        let id = LinkId::new(CARRIER, self.last);
        let admitted = self.slots.remove(&(port, conn));
        let link = QuicConn {
            port,
            conn,
            peer,
            target,
            admitted,
            begun,
            is_reported: false,
            broken: false,
            lost: false,
            has_output: false,
            closing: false,
            lossy_dropped: 0,
        };
        self.links.insert(id, link);
        self.by_conn.insert((port, conn), id);
        id
    }

    /// Returns whether links carry lossy cells (cells in datagrams), provided that the other end
    /// of the link supports lossy cells, too.
    pub(in crate::onion) fn carries_lossy(&self) -> bool {
        self.linking.lossy.is_some()
    }

    /// Returns the counters of all links.
    pub(in crate::onion) fn counts(&self) -> QuicCounts {
        let counts = self.ports.iter().map(|port| port.endpoint.counts());
        let mut endpoints = counts.fold(EndpointCounts::default(), EndpointCounts::with);
        endpoints.broken += self.faults;
        QuicCounts { endpoints, failed: self.failed, lossy_dropped: self.lossy_dropped }
    }

    fn watch(&mut self, poller: &Poller) {
        self.unwatched = false;
        for (place, port) in self.ports.iter().enumerate() {
            let interest = Interest { read: !self.paused, write: port.blocked.is_some() };
            // This cannot fail, because each socket is registered with the poller.
            let _ = poller.change(port.socket.as_fd(), token(CARRIER, place as u64), interest);
        }
    }

    /// Sends the packets that wait for room in the send buffer of the UDP socket with the index
    /// `place`. If all of them are sent, marks the links that had to wait for them as ready to
    /// send.
    fn unblock(&mut self, now: Time, poller: &Poller, place: usize) {
        let Some(port) = self.ports.get_mut(place).filter(|port| port.blocked.is_some()) else {
            return;
        };
        let sent = port.send_blocked(&mut self.queue);
        if port.blocked.is_none() {
            let Port { endpoint, waiting, .. } = port;
            std::mem::take(waiting).into_iter().for_each(|conn| endpoint.touch(conn));
            self.watch(poller);
        }
        self.count_sent(now, sent);
    }

    /// Counts the lossy cells (cells in datagrams) that `link` has dropped since the last call.
    fn count_dropped(&mut self, link: LinkId) {
        let Some(conn) = self.links.get_mut(&link) else { return };
        let Some(quic) = self.ports[conn.port].endpoint.link(conn.conn) else { return };
        let dropped = quic.lossy_counts().dropped;
        self.lossy_dropped += dropped - std::mem::replace(&mut conn.lossy_dropped, dropped);
    }

    fn count_sent(&mut self, now: Time, sent: u64) {
        self.transferred[1] += sent;
        if let Some([_, send]) = &self.limits {
            send.take(now, sent);
        }
    }

    /// Returns a link whose state may have changed, for [`QuicLinks::read`]; `None` if there is
    /// none. Adds the link to the table of links if it is new.
    fn next_touched(&mut self, now: Time) -> Option<LinkId> {
        for place in 0..self.ports.len() {
            while let Some(output) = self.ports[place].endpoint.poll(now) {
                let conn = match output {
                    EndpointOutput::Touched(conn) => conn,
                    EndpointOutput::Answer(packets, bytes) => {
                        self.answer(now, place, &packets, &bytes);
                        continue;
                    }
                };
                if let Some(&id) = self.by_conn.get(&(place, conn)) {
                    return Some(id);
                }
                let peer = self.ports[place].endpoint.link(conn).map(|link| link.peer());
                if let Some(peer) = peer {
                    return Some(self.add(now, (place, conn), peer, None));
                }
                // The connection is closed, and has only its closing packets to send.
                self.transmit(now, place, conn);
            }
        }
        None
    }

    fn quic(&mut self, link: LinkId) -> Option<&mut quic::QuicLink> {
        let conn = self.links.get(&link)?;
        self.ports[conn.port].endpoint.link(conn.conn)
    }

    /// Writes about [`WRITTEN`] bytes of the protocol core's data to `link`, or less if there is
    /// less data or room. Returns whether any bytes were written.
    fn fill(&mut self, now: Time, link: LinkId, fetch: &mut Fetch<'_>) -> bool {
        let mut written = 0;
        while let Some(conn) = self.links.get_mut(&link).filter(|conn| conn.has_output)
            && let Port { endpoint, blocked: None, .. } = &mut self.ports[conn.port]
            && let Some(quic) = endpoint.link(conn.conn)
            && written < WRITTEN
            && quic.room() >= CELL
        {
            if self.limits.as_ref().is_some_and(|[_, send]| send.left(now) == 0) {
                self.held.insert(link);
                break;
            }
            self.plain.clear();
            conn.has_output = fetch(&mut self.plain, quic.room());
            // An error means that the link has ended, so nothing more is to be sent.
            let _ = quic.write(&self.plain);
            written += self.plain.len();
        }
        written > 0
    }

    /// Sends the pending datagrams of the connection `conn`, through the socket with the index
    /// `place`, until the socket's send buffer is full.
    fn transmit(&mut self, now: Time, place: usize, conn: ConnId) {
        let Some(port) = self.ports.get_mut(place) else { return };
        let mut sent = 0;
        while port.blocked.is_none()
            && let Some(packets) = port.endpoint.transmit(now, conn, &mut self.packets)
        {
            sent += port.send(&mut self.queue, packets, &self.packets);
        }
        if port.blocked.is_some() {
            self.unwatched |= port.waiting.is_empty();
            port.waiting.insert(conn);
        }
        self.count_sent(now, sent);
    }

    /// Sends the QUIC endpoint's reply to a packet that belongs to no link, through the socket
    /// with the index `place`.
    fn answer(&mut self, now: Time, place: usize, packets: &Packets, bytes: &[u8]) {
        let mut batch = self.queue.batch(&self.ports[place].socket);
        batch.push(datagrams(packets, bytes));
        // A reply for which the socket has no room is lost, like a packet in a network.
        let sent = batch.send().sent_bytes as u64;
        self.count_sent(now, sent);
    }

    /// Reads from `link`, and stores the resulting events in `fresh`, for the next call of
    /// [`Carrier::next_news`].
    fn read(&mut self, link: LinkId) {
        self.arrived.clear();
        let Some(conn) = self.links.get_mut(&link) else { return };
        let Some(quic) = self.ports[conn.port].endpoint.link(conn.conn) else {
            self.fresh = Some(PendingEvents::new(link, None, true));
            return;
        };
        let is_at_fault = quic.read(&mut self.arrived).is_err();
        self.faults += u64::from(is_at_fault);
        let ended = is_at_fault || quic.state() == State::Ended;
        conn.broken |= is_at_fault;
        conn.lost = ended && !is_at_fault && quic.fault().is_some();
        let is_open = quic.state() == State::Open;
        let opened = (is_open && !conn.is_reported).then(|| OpenedLink {
            peer: conn.peer,
            target: conn.target.as_ref().map(|(target, _)| target.clone()),
            certificate: quic.peer_certificate().map(sha256),
            own: conn.target.is_none().then(|| sha256(quic.own_certificate())),
            capabilities: Capabilities {
                lossy: quic.takes_lossy(),
                ..Capabilities::STREAM_PER_CIRCUIT
            },
        });
        conn.is_reported |= is_open;
        if let Some(slot) = conn.admitted.as_mut().filter(|_| is_open) {
            slot.opened();
        }
        self.fresh = Some(PendingEvents::new(link, opened, ended));
    }
}

impl Carrier for QuicLinks {
    fn has(&self, link: LinkId) -> bool {
        self.links.contains_key(&link)
    }

    fn len(&self) -> usize {
        self.links.len()
    }

    fn transferred(&self) -> [u64; 2] {
        self.transferred
    }

    fn stale(&mut self, now: Time) -> Vec<LinkId> {
        let late = |conn: &QuicConn| !conn.is_reported && now.since(conn.begun) >= OPENING;
        self.links.iter().filter(|(_, conn)| late(conn)).map(|(link, _)| *link).collect()
    }

    fn next_timeout(&self) -> Option<Time> {
        let [receive, send] = self.limits.as_ref().map_or([None, None], |limits| {
            let [receive, send] = limits.each_ref().map(Meter::some_at);
            [self.paused.then_some(receive), (!self.held.is_empty()).then_some(send)]
        });
        let ends = self.ports.iter().filter_map(|port| port.endpoint.next_timeout());
        let watch = self.unwatched.then_some(Time::ZERO);
        ends.chain(receive).chain(send).chain(watch).min()
    }

    fn resume(&mut self, now: Time, poller: &Poller) -> Vec<LinkId> {
        let has_room = |meter: &Meter| meter.left(now) > 0;
        let [may_read, may_send] =
            self.limits.as_ref().map_or([true; 2], |limits| limits.each_ref().map(has_room));
        self.unwatched |= self.paused && may_read;
        self.paused &= !may_read;
        if self.unwatched {
            self.watch(poller);
        }
        match may_send {
            true => std::mem::take(&mut self.held).into_iter().collect(),
            false => Vec::new(),
        }
    }

    fn receive(&mut self, now: Time, poller: &Poller, file: u64, _ready: Ready) {
        let place = file as usize;
        self.unblock(now, poller, place);
        if self.limits.as_ref().is_some_and(|[receive, _]| receive.left(now) == 0) {
            self.paused = true;
            return self.watch(poller);
        }
        let Some(Port { socket, endpoint, .. }) = self.ports.get_mut(place) else { return };
        // An error here comes from an earlier datagram, and does not concern the waiting
        // datagrams.
        let Ok(batch) = self.received.recv(socket) else { return };
        let (connection_limits, slots, mut bytes) = (&self.connection_limits, &mut self.slots, 0);
        let mut admit = |conn: ConnId, peer: SocketAddr| {
            let slot = connection_limits
                .as_ref()
                .and_then(|connection_limits| connection_limits.admit(now, peer.ip()));
            slot.map(|slot| slots.insert((place, conn), slot)).is_some()
        };
        for run in batch {
            bytes += run.bytes.len() as u64;
            for datagram in run.datagrams() {
                let (from, to, ecn) = (run.from, run.to, run.ecn);
                let arrival = Arrival { from, to, ecn, bytes: datagram };
                endpoint.handle(now, EndpointInput { arrival, admit: &mut admit });
            }
        }
        self.transferred[0] += bytes;
        if let Some([receive, _]) = &self.limits {
            receive.take(now, bytes);
        }
    }

    fn next_news(&mut self, now: Time, give: &mut dyn FnMut(LinkId, &[u8])) -> Option<LinkEvent> {
        loop {
            if let Some(news) = PendingEvents::next(&mut self.fresh, &mut self.arrived, give) {
                return Some(news);
            }
            let link = self.next_touched(now)?;
            self.read(link);
        }
    }

    fn wants(&mut self, link: LinkId) {
        if let Some(conn) = self.links.get_mut(&link) {
            conn.has_output = true;
        }
    }

    /// Sends the protocol core's data until the congestion window or the socket's send buffer is
    /// full.
    fn flush(&mut self, now: Time, _poller: &Poller, link: LinkId, fetch: &mut Fetch<'_>) -> bool {
        let Some(conn) = self.links.get(&link) else { return true };
        if conn.broken {
            return true;
        }
        let (place, id, closing) = (conn.port, conn.conn, conn.closing);
        self.transmit(now, place, id);
        while self.fill(now, link, fetch) {
            self.transmit(now, place, id);
        }
        if self.linking.lossy.is_some() {
            self.count_dropped(link);
        }
        !closing
    }

    fn export(&mut self, link: LinkId, context: &[u8; 32]) -> Option<[u8; 32]> {
        self.quic(link)?.export(EXPORT_LABEL, context).ok()
    }

    fn look(&mut self, link: LinkId) -> Option<LinkView> {
        Some(self.quic(link)?.view())
    }

    fn limit(&mut self, meters: [Meter; 2]) {
        self.limits = Some(meters);
    }

    fn set_context(&mut self, context: &Context) -> io::Result<()> {
        self.context = context.clone();
        let mut ports = self.ports.iter_mut();
        ports.try_for_each(|port| port.endpoint.set_context(context)).map_err(io::Error::other)
    }

    fn close(&mut self, link: LinkId) {
        if let Some(conn) = self.links.get_mut(&link) {
            conn.closing = true;
        }
    }

    /// Closes and removes `link`. Sends the closing packets of the link only if the socket's send
    /// buffer has room.
    fn end(&mut self, now: Time, _poller: &Poller, link: LinkId) -> LinkEnd {
        let Some(conn) = self.links.remove(&link) else { return LinkEnd::Unknown };
        self.by_conn.remove(&(conn.port, conn.conn));
        self.held.remove(&link);
        self.ports[conn.port].endpoint.close(now, conn.conn);
        self.transmit(now, conn.port, conn.conn);
        match conn.target {
            Some((_, alongside)) if !conn.is_reported => {
                self.failed += 1;
                LinkEnd::QuicFailed(alongside)
            }
            _ if conn.is_reported && conn.broken => LinkEnd::Broken(CarrierFault::Stream),
            _ if conn.is_reported && conn.lost => LinkEnd::Lost,
            _ if conn.is_reported => LinkEnd::Closed,
            _ => LinkEnd::Unknown,
        }
    }

    fn admit_circuits(&mut self, link: LinkId) {
        let Some(conn) = self.links.get(&link) else { return };
        let endpoint = &mut self.ports[conn.port].endpoint;
        endpoint.link(conn.conn).into_iter().for_each(QuicLink::admit_circuits);
        // Cells of circuits may have arrived already. They are read now.
        endpoint.touch(conn.conn);
    }

    fn read_lossy(&mut self, link: LinkId, into: &mut Vec<u8>) -> bool {
        let Some(quic) = self.quic(link) else { return true };
        let is_sound = quic.read_lossy(into).is_ok();
        if let Some(conn) = self.links.get_mut(&link).filter(|_| !is_sound) {
            conn.broken = true;
            self.faults += 1;
        }
        is_sound
    }

    fn write_lossy(&mut self, now: Time, link: LinkId, cells: &[u8]) {
        // An error means that the link has ended, or that its path MTU no longer has room for a
        // cell.
        let _ = self.quic(link).map(|quic| quic.write_lossy(now, cells));
    }
}

fn datagrams<'a>(packets: &Packets, bytes: &'a [u8]) -> Datagrams<'a> {
    let Packets { to, source, ecn, stride } = *packets;
    Datagrams { bytes, stride, ecn, to: Some(to), source }
}

#[cfg(test)]
mod tests;
