//! TLS links, each over a separate TCP connection.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anabranch_links::tls::Context;
use anabranch_links::{EarlyCounts, EarlyRecords, StreamFamily};
use anabranch_multipath::{LinkView, Time};
use anabranch_onion::LinkId;
use anabranch_onion::channel::Capabilities;
use anabranch_onion::wire::extend::Target;
use anabranch_onion::wire::keys::sha256;
use anabranch_onion::wire::link::EXPORT_LABEL;
use anabranch_os::poller::{Interest, Poller, Ready};

use super::{Carrier, Fetch, LinkEnd, LinkEvent, OpenedLink, PendingEvents, token};
use crate::onion::bridge_routes::BridgeRoutes;
use crate::onion::conn::{Conn, SocketRead};
use crate::onion::meter::Meter;
use crate::onion::mptcp::{MptcpCounts, TcpKind};
use crate::onion::newcomers::ConnectionSlot;
use crate::onion::tap::{Cookie, Tap, TapKind};

/// Index of the TCP carrier, which owns all links over TCP, among the carriers.
pub(in crate::onion) const CARRIER: u8 = 0;
/// Poller token of the [`Tap`]'s file. It differs from every link's token, because links have
/// identifiers from 1.
pub(in crate::onion) const TAP: u64 = token(CARRIER, 0);
/// Timeout for opening a link, TCP and TLS together, and for closing a link.
const OPENING: Duration = Duration::from_secs(60);

/// Carrier of links over TCP: all links by identifier, and their settings.
pub(in crate::onion) struct TcpLinks {
    context: Context,
    /// Protocol of all links over TCP, such as TLS.
    pub(in crate::onion) family: &'static StreamFamily,
    conns: BTreeMap<LinkId, Conn>,
    /// Packet tap: access to TCP segments that the kernel has received but does not deliver yet,
    /// because an earlier segment was lost.
    tap: Tap,
    /// True if links may be unordered. Unordered links decrypt records whose segments arrived
    /// before an earlier, lost segment.
    may_be_unordered: bool,
    /// Links whose connections the packet tap watches. The key is the kernel's identifier of the
    /// socket, which `tap` reports with each segment.
    tapped: BTreeMap<Cookie, LinkId>,
    /// Counts of records that were decrypted out of order, on links that are now closed.
    early: EarlyCounts,
    last: u64,
    buffer: Vec<u8>,
    plain: Vec<u8>,
    /// Events of the link that was read last. [`Carrier::next_news`] returns them one after
    /// another; then the value is `None`.
    fresh: Option<PendingEvents>,
    /// Links for which the packet tap has delivered TCP segments that arrived after a lost
    /// segment.
    tapped_links: BTreeSet<LinkId>,
    /// Timeouts of links, by time.
    timeouts: BTreeSet<(Time, LinkId)>,
    /// Rate limits for all links together; `None` without limits.
    limits: Option<Limits>,
    /// Protocol (TCP or MPTCP) of the sockets of direct connections.
    pub(in crate::onion) tcp: TcpKind,
    /// The routes to the bridges; `None` if no bridges are used. If there are bridges, no other
    /// relays are dialled.
    routes: Option<BridgeRoutes>,
    /// True if cells wait in the protocol core until the kernel's send buffer has room for them.
    by_room: bool,
    /// Bytes on the network since the start: received, then sent.
    transferred: [u64; 2],
    /// Timeout for opening a link, TCP and TLS together, and for closing a link.
    pub(in crate::onion) patience: Duration,
}

/// Rate limits for receiving and for sending, and the links that wait because of them.
struct Limits {
    receive: Meter,
    send: Meter,
    held: BTreeSet<LinkId>,
}

impl TcpLinks {
    /// Creates a carrier without links.
    pub(in crate::onion) fn new(context: Context) -> TcpLinks {
        let (buffer, plain) = (vec![0; 64 << 10], Vec::new());
        let (conns, transferred) = (BTreeMap::new(), [0; 2]);
        let (limits, patience) = (None, OPENING);
        let timeouts = BTreeSet::new();
        let (tap, tapped, early) = (Tap::none(), BTreeMap::new(), EarlyCounts::default());
        TcpLinks {
            context,
            family: Default::default(),
            conns,
            tap,
            may_be_unordered: false,
            tapped,
            early,
            last: 0,
            buffer,
            plain,
            fresh: None,
            tapped_links: BTreeSet::new(),
            timeouts,
            limits,
            tcp: TcpKind::default(),
            routes: None,
            by_room: false,
            transferred,
            patience,
        }
    }

    /// Allows new links to be unordered, if the other end agrees. `tap` delivers TCP segments that
    /// arrived after a lost segment. The kernel does not deliver these to the sockets yet.
    pub(in crate::onion) fn set_tap(&mut self, tap: Tap) {
        (self.tap, self.may_be_unordered) = (tap, true);
    }

    /// Opens links only to the bridges of `routes` from now on.
    pub(in crate::onion) fn set_routes(&mut self, routes: BridgeRoutes) {
        self.routes = Some(routes);
    }

    /// Returns the kind of the packet tap that delivers TCP segments out of order; `None` if links
    /// may not be unordered.
    pub(in crate::onion) fn tap(&self) -> Option<TapKind> {
        self.may_be_unordered.then(|| self.tap.kind())
    }

    /// Returns the number of MPTCP links, and the number of their subflows; `None` if MPTCP is
    /// disabled.
    pub(in crate::onion) fn mptcp(&self) -> Option<MptcpCounts> {
        let counts = || {
            let mut counts = MptcpCounts::default();
            let open = self.conns.values().filter(|conn| conn.is_reported && !conn.by_transport);
            open.for_each(|conn| counts.note(conn.subflows()));
            counts
        };
        (self.tcp == TcpKind::Multipath).then(counts)
    }

    /// Returns the number of records that were decrypted out of order, and the number of records
    /// for which this failed.
    pub(in crate::onion) fn early(&self) -> EarlyCounts {
        let counts = self.conns.values().filter_map(|conn| conn.early_counts());
        counts.fold(self.early, EarlyCounts::with)
    }

    /// Returns the TLS context of new links, which contains their certificate.
    pub(in crate::onion) fn context(&self) -> &Context {
        &self.context
    }

    /// Sets whether cells wait in the core (the protocol state of the client or relay) until the
    /// kernel has room.
    pub(in crate::onion) fn wait_for_room(&mut self, by_room: bool) {
        self.by_room = by_room;
    }

    fn released(&mut self, now: Time, poller: &Poller) -> Vec<LinkId> {
        let Some(limits) = &mut self.limits else { return Vec::new() };
        if limits.receive.left(now) == 0 || limits.send.left(now) == 0 {
            return Vec::new();
        }
        let held: Vec<LinkId> = std::mem::take(&mut limits.held).into_iter().collect();
        for link in &held {
            if let Some(conn) = self.conns.get_mut(link).filter(|conn| conn.paused) {
                conn.paused = false;
                // This does not fail, because each connection in the table is registered with the
                // poller.
                let _ = poller.change(conn.socket(), token(CARRIER, link.number()), interest(conn));
            }
        }
        held
    }

    /// Adds a connection that the other end opened. `by_transport` is true if it arrived through a
    /// pluggable transport.
    ///
    /// # Errors
    /// A system call or the TLS library fails.
    pub(in crate::onion) fn accept(
        &mut self,
        poller: &Poller,
        (socket, peer): (TcpStream, SocketAddr),
        address_index: ConnectionSlot,
        by_transport: bool,
    ) -> io::Result<()> {
        let link = (self.family.accept)(&self.context).map_err(io::Error::other)?;
        let mut none = Tap::none();
        let tap = if by_transport { &mut none } else { &mut self.tap };
        let mut conn = Conn::accepted(socket, peer, link, address_index, tap)?;
        conn.by_transport = by_transport;
        self.add(poller, conn, Interest::READ).map(drop)
    }

    /// Opens a connection to the relay `target`, and returns the new link. The relay's first
    /// address is dialled now. If this attempt fails, the next addresses are dialled later
    /// ([`TcpLinks::dial_again`]).
    ///
    /// # Errors
    /// A system call or the TLS library fails. `NotFound` if the relay has no address.
    pub(in crate::onion) fn dial(&mut self, poller: &Poller, target: Target) -> io::Result<LinkId> {
        self.dial_from(poller, &target, 0)
    }

    /// Opens a connection to an address of `target`, beginning with the address at the index
    /// `first`. Addresses that cannot be dialled are skipped.
    fn dial_from(&mut self, poller: &Poller, target: &Target, first: usize) -> io::Result<LinkId> {
        let mut failed = io::ErrorKind::NotFound.into();
        for address_index in first..target.addresses.len() {
            let link = (self.family.connect)(&self.context).map_err(io::Error::other)?;
            let how = (&mut self.tap, self.routes.as_ref(), self.tcp);
            match Conn::dial(target.clone(), address_index, link, how) {
                Ok(mut conn) => {
                    conn.watched = true;
                    return self.add(poller, conn, Interest { read: true, write: true });
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn add(&mut self, poller: &Poller, conn: Conn, interest: Interest) -> io::Result<LinkId> {
        self.last += 1;
        let id = LinkId::new(CARRIER, self.last);
        poller.add_for(conn.socket(), token(CARRIER, id.number()), interest)?;
        self.tapped.extend(conn.cookie().map(|cookie| (cookie, id)));
        self.conns.insert(id, conn);
        Ok(id)
    }

    fn forget(&mut self, link: LinkId) -> Option<Conn> {
        let conn = self.conns.remove(&link)?;
        if let Some(time) = conn.due {
            self.timeouts.remove(&(time, link));
        }
        if let Some(cookie) = conn.cookie() {
            self.tap.end(cookie);
            self.tapped.remove(&cookie);
        }
        self.early = self.early.with(conn.early_counts().unwrap_or_default());
        Some(conn)
    }

    /// Reads TCP segments from the packet tap, and passes them to their links. Adds each link that
    /// could use a segment to `tapped_links`, for [`TcpLinks::take_early`].
    fn look_ahead(&mut self, now: Time) {
        let (conns, tapped, tapped_links) = (&mut self.conns, &self.tapped, &mut self.tapped_links);
        self.tap.drain(|segment| {
            let link = tapped.get(&segment.cookie);
            let Some((link, conn)) = link.and_then(|link| Some((link, conns.get_mut(link)?)))
            else {
                return;
            };
            if conn.show(now, segment) {
                tapped_links.insert(*link);
            }
        });
    }

    /// Passes to `give` the decrypted bytes of a link for which the packet tap has delivered data.
    /// Returns that link; `None` if there is no such link.
    fn take_early(&mut self, give: &mut dyn FnMut(LinkId, &[u8])) -> Option<LinkId> {
        while let Some(link) = self.tapped_links.pop_first() {
            let Some(conn) = self.conns.get_mut(&link) else { continue };
            self.plain.clear();
            conn.take_early(&mut self.plain, &mut self.tap);
            if !self.plain.is_empty() {
                give(link, &self.plain);
                self.plain.clear();
                return Some(link);
            }
        }
        None
    }

    /// Reads from `link`, which is ready, and stores the resulting events.
    fn read(&mut self, now: Time, poller: &Poller, link: LinkId, ready: Ready) {
        self.plain.clear();
        let Some(conn) = self.conns.get_mut(&link) else { return };
        let was_open = conn.is_reported;
        let mut ended = false;
        let allowed = match &self.limits {
            Some(limits) => limits.receive.left(now).min(self.buffer.len() as u64) as usize,
            None => self.buffer.len(),
        };
        if (ready.read || ready.error) && allowed > 0 {
            let before = conn.transferred[0];
            let buffer = &mut self.buffer[..allowed];
            ended = conn.read(now, buffer, &mut self.plain) != SocketRead::Bytes;
            let bytes = conn.transferred[0] - before;
            conn.keep_up(&mut self.tap);
            self.transferred[0] += bytes;
            if let Some(limits) = &self.limits {
                limits.receive.take(now, bytes);
            }
        } else if ready.read
            && let Some(limits) = &mut self.limits
        {
            limits.held.insert(link);
            conn.paused = true;
            let _ = poller.change(conn.socket(), token(CARRIER, link.number()), interest(conn));
        }
        conn.is_reported |= conn.is_open();
        if let Some(address_index) = conn.admitted.as_mut().filter(|_| conn.is_reported) {
            address_index.opened();
        }
        let opened = (conn.is_reported && !was_open).then(|| OpenedLink {
            peer: conn.peer,
            target: conn.target.clone(),
            certificate: conn.target.as_ref().and(conn.link().peer_certificate()).map(sha256),
            own: conn.target.is_none().then(|| sha256(conn.link().own_certificate())),
            capabilities: Capabilities {
                stream_per_circuit: conn.link().promises().stream_per_circuit,
                reliable: conn.link().promises().in_order,
                unordered: self.may_be_unordered
                    && !conn.by_transport
                    && conn.link().early_records().is_some_and(EarlyRecords::can_be_unordered),
                parallel_quic: !conn.by_transport && self.routes.is_none(),
                lossy: false,
            },
        });
        self.fresh = Some(PendingEvents::new(link, opened, ended));
    }

    /// Replaces `link`, which could not be opened, by a link to the relay's next address. Returns
    /// the new link; the protocol core is not notified of it yet. Returns `None` if `link` was
    /// open before, or if there is no other address.
    fn dial_again(&mut self, poller: &Poller, link: LinkId) -> Option<LinkId> {
        let conn = self.conns.get(&link).filter(|conn| !conn.is_reported)?;
        let (target, next) = (conn.target.clone()?, conn.address_index + 1);
        let again = self.dial_from(poller, &target, next).ok()?;
        self.forget(link);
        Some(again)
    }
}

impl Carrier for TcpLinks {
    fn has(&self, link: LinkId) -> bool {
        self.conns.contains_key(&link)
    }

    fn len(&self) -> usize {
        self.conns.len()
    }

    fn transferred(&self) -> [u64; 2] {
        self.transferred
    }

    fn stale(&mut self, now: Time) -> Vec<LinkId> {
        let stale = |conn: &mut Conn| now.since(*conn.opening.get_or_insert(now)) >= self.patience;
        let opening = self.conns.iter_mut().filter(|(_, conn)| !conn.is_reported || conn.closing);
        opening.filter_map(|(link, conn)| stale(conn).then_some(*link)).collect()
    }

    fn next_timeout(&self) -> Option<Time> {
        let limits = self.limits.as_ref().filter(|limits| !limits.held.is_empty());
        let free = limits.map(|limits| limits.receive.some_at().max(limits.send.some_at()));
        let due = self.timeouts.first().map(|&(time, _)| time);
        free.into_iter().chain(due).min()
    }

    fn resume(&mut self, now: Time, poller: &Poller) -> Vec<LinkId> {
        let mut links = self.released(now, poller);
        while let Some((_, link)) = self.timeouts.first().filter(|(time, _)| *time <= now).copied()
        {
            self.timeouts.pop_first();
            links.push(link);
            if let Some(conn) = self.conns.get_mut(&link) {
                conn.due = None;
            }
        }
        links
    }

    fn receive(&mut self, now: Time, poller: &Poller, file: u64, ready: Ready) {
        match token(CARRIER, file) {
            TAP => self.look_ahead(now),
            _ => self.read(now, poller, LinkId::new(CARRIER, file), ready),
        }
    }

    fn next_news(&mut self, _now: Time, give: &mut dyn FnMut(LinkId, &[u8])) -> Option<LinkEvent> {
        PendingEvents::next(&mut self.fresh, &mut self.plain, give)
            .or_else(|| self.take_early(give).map(LinkEvent::Served))
    }

    fn wants(&mut self, link: LinkId) {
        if let Some(conn) = self.conns.get_mut(&link) {
            conn.has_output = true;
        }
    }

    fn flush(&mut self, now: Time, poller: &Poller, link: LinkId, fetch: &mut Fetch<'_>) -> bool {
        let Some(conn) = self.conns.get_mut(&link) else { return true };
        let before = conn.transferred[1];
        let done = loop {
            let flushed = conn.flush(now);
            if !flushed.as_ref().is_ok_and(|&all| all) || !conn.is_open() {
                break flushed;
            }
            if !conn.has_output {
                break Ok(true);
            }
            if let Some(limits) = &mut self.limits
                && limits.send.left(now) == 0
            {
                limits.held.insert(link);
                break Ok(true);
            }
            let room = if self.by_room { conn.room(now) } else { usize::MAX };
            if room == 0 {
                break Ok(true);
            }
            self.plain.clear();
            let batch = conn.batch().min(room);
            while self.plain.len() < batch && conn.has_output && conn.has_room() {
                conn.has_output = fetch(&mut self.plain, batch);
            }
            conn.seal(&self.plain);
            if let Some(limits) = &self.limits {
                limits.send.take(now, self.plain.len() as u64);
            }
        };
        self.transferred[1] += conn.transferred[1] - before;
        let due = conn.next_timeout();
        if due != conn.due {
            self.timeouts.extend(due.map(|time| (time, link)));
            if let Some(time) = std::mem::replace(&mut conn.due, due) {
                self.timeouts.remove(&(time, link));
            }
        }
        let over = done.is_err() || conn.closing && done.as_ref().is_ok_and(|&all| all);
        if over {
            return false;
        }
        // While a link is being opened, the poller already watches its socket for writing.
        let blocked = !done.unwrap_or(true);
        if conn.watched != blocked {
            conn.watched = blocked;
            let token = token(CARRIER, link.number());
            return poller.change(conn.socket(), token, interest(conn)).is_ok();
        }
        true
    }

    fn export(&mut self, link: LinkId, context: &[u8; 32]) -> Option<[u8; 32]> {
        self.conns.get(&link)?.link().export(EXPORT_LABEL, context).ok()
    }

    fn look(&mut self, link: LinkId) -> Option<LinkView> {
        self.conns.get(&link)?.view().ok()
    }

    fn limit(&mut self, [receive, send]: [Meter; 2]) {
        self.limits = Some(Limits { receive, send, held: BTreeSet::new() });
    }

    fn set_context(&mut self, context: &Context) -> io::Result<()> {
        self.context = context.clone();
        Ok(())
    }

    fn close(&mut self, link: LinkId) {
        if let Some(conn) = self.conns.get_mut(&link) {
            conn.send_close();
            (conn.closing, conn.opening) = (true, None);
        }
    }

    fn end(&mut self, _now: Time, poller: &Poller, link: LinkId) -> LinkEnd {
        if let Some(again) = self.dial_again(poller, link) {
            return LinkEnd::Replaced(again);
        }
        let Some(conn) = self.forget(link) else { return LinkEnd::Unknown };
        match (conn.is_reported, conn.target, conn.fault) {
            (false, Some(target), _) => LinkEnd::Unreachable(target),
            (false, None, _) => LinkEnd::Unknown,
            (true, _, Some(fault)) => LinkEnd::Broken(fault),
            (true, _, None) => LinkEnd::Closed,
        }
    }

    fn shrink_buffers(&mut self) -> Vec<LinkId> {
        let shrunk = |(link, conn): (&LinkId, &mut Conn)| conn.shrink_buffers().map(|_| *link);
        self.conns.iter_mut().filter_map(shrunk).collect()
    }

    fn fix_records(&mut self, now: Time, link: LinkId, content: usize) -> bool {
        let Some(conn) = self.conns.get_mut(&link) else { return false };
        conn.unorder(now, content, &mut self.tap).is_ok()
    }
}

fn interest(conn: &Conn) -> Interest {
    Interest { read: !conn.paused, write: conn.watched }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    use anabranch_onion::circuitmux::kist;
    use anabranch_pt::BridgeLine;
    use anabranch_testkit::mock_link::MockLink;
    use anabranch_testkit::silent_port::SilentPort;
    use socket2::SockRef;

    use super::*;
    use crate::onion::bridge_routes::Transports;
    use crate::onion::dirclient::unix;

    #[test]
    fn a_link_that_has_a_clock_is_called_when_it_wants() {
        let poller = Poller::new(16).unwrap();
        let mut links = TcpLinks::new(Context::new(unix()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = vec![listener.local_addr().unwrap()];
        let target = Target { addresses, ..Target::default() };
        let due = Time::from_millis(30);
        let conn = Conn::dial(
            target,
            0,
            Box::new(MockLink::late(due, 7)),
            (&mut Tap::none(), None, TcpKind::Single),
        )
        .unwrap();
        let link = links.add(&poller, conn, Interest::READ).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        assert!(links.flush(Time::ZERO, &poller, link, &mut |_, _| false));
        assert_eq!(links.next_timeout(), Some(due));
        assert_eq!(links.resume(Time::ZERO, &poller), []);
        assert_eq!(links.resume(due, &poller), [link]);
        assert!(links.flush(due, &poller, link, &mut |_, _| false));
        let mut received = [0];
        far.read_exact(&mut received).unwrap();
        assert_eq!((received, links.next_timeout()), ([7], None));
    }

    #[test]
    fn a_bridges_transport_is_greeted_before_the_links_first_byte_and_hears_nothing_else_before() {
        let mut poller = Poller::new(16).unwrap();
        let mut links = TcpLinks::new(Context::new(unix()).unwrap());
        let transport = TcpListener::bind("127.0.0.1:0").unwrap();
        let transports = Transports::new().unwrap();
        let lines = [BridgeLine::parse("x 192.0.2.1:443 k=v").unwrap()];
        links.set_routes(BridgeRoutes::new(&lines, transports.clone()).unwrap());
        let to = |at: &str| Target { addresses: vec![at.parse().unwrap()], ..Target::default() };
        let refused = links.dial(&poller, to("192.0.2.1:443")).map_err(|error| error.kind());
        assert_eq!(refused, Err(io::ErrorKind::NotConnected), "the transport is not up");
        transports.ready("x", transport.local_addr().unwrap());
        assert!(links.dial(&poller, to("192.0.2.2:443")).is_err(), "no bridge is there");
        let link = links.dial(&poller, to("192.0.2.1:443")).unwrap();
        let (mut far, _) = transport.accept().unwrap();
        let mut turn = |links: &mut TcpLinks| {
            let ready: Vec<Ready> = poller.wait(Some(Duration::from_secs(10))).unwrap().collect();
            let ready = ready
                .into_iter()
                .find(|ready| ready.token == token(CARRIER, link.number()))
                .unwrap();
            links.receive(Time::ZERO, &poller, link.number(), ready);
            let ended = LinkEvent::Ended(link);
            let mut news = || links.next_news(Time::ZERO, &mut |_, _| ());
            assert!(std::iter::from_fn(&mut news).all(|news| news != ended));
            assert!(links.flush(Time::ZERO, &poller, link, &mut |_, _| false));
        };
        let mut received = [0; 3];
        let mut login = [0; 7];
        let mut request = [0; 10];
        turn(&mut links);
        far.read_exact(&mut received).unwrap();
        far.write_all(&[5, 2]).unwrap();
        turn(&mut links);
        far.read_exact(&mut login).unwrap();
        far.write_all(&[1, 0]).unwrap();
        turn(&mut links);
        far.read_exact(&mut request).unwrap();
        assert_eq!((received, &login, request[4]), ([5, 1, 2], b"\x01\x03k=v\x01\0", 192));
        far.set_nonblocking(true).unwrap();
        assert!(
            far.read(&mut received).is_err(),
            "nothing is said to a transport that has not opened"
        );
        far.set_nonblocking(false).unwrap();
        far.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        turn(&mut links);
        far.read_exact(&mut received[..1]).unwrap();
        assert_eq!(received[0], 22, "the link's own handshake begins");
    }

    #[test]
    fn cells_wait_for_room_in_the_kernel_if_they_are_told_to() {
        /// Maximum segment size of the connections. It is small so that the first window is small
        /// too.
        const SEGMENT: u32 = 536;
        for by_room in [false, true] {
            let poller = Poller::new(16).unwrap();
            let mut links = TcpLinks::new(Context::new(unix()).unwrap());
            links.wait_for_room(by_room);
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            SockRef::from(&listener).set_tcp_mss(SEGMENT).unwrap();
            let addresses = vec![listener.local_addr().unwrap()];
            let target = Target { addresses, ..Target::default() };
            let conn = Conn::dial(
                target,
                0,
                Box::new(MockLink::new(16_384)),
                (&mut Tap::none(), None, TcpKind::Single),
            )
            .unwrap();
            let link = links.add(&poller, conn, Interest::READ).unwrap();
            let (_far, _) = listener.accept().unwrap();
            let window = links.look(link).map(|view| view.snd_cwnd * view.mss).unwrap() as usize;
            links.wants(link);
            let mut fetched = 0;
            let mut flush = |links: &mut TcpLinks, now| {
                links.flush(now, &poller, link, &mut |into, most| {
                    fetched += most;
                    into.resize(into.len() + most, 0);
                    true
                });
                fetched
            };
            let first = flush(&mut links, Time::ZERO);
            assert_eq!(first <= 2 * window, by_room, "{first} bytes, window {window}");
            let again = links.next_timeout();
            assert_eq!(again, by_room.then_some(Time::ZERO + kist::INTERVAL));
            if let Some(again) = again {
                assert_eq!(flush(&mut links, Time::from_millis(9)), first, "no second look");
                assert_eq!(links.resume(again, &poller), [link]);
                assert!(flush(&mut links, again) > first, "the far end has taken some");
            }
        }
    }

    #[test]
    fn a_relay_whose_first_address_fails_is_dialled_at_its_second() {
        let mut poller = Poller::new(16).unwrap();
        let mut links = TcpLinks::new(Context::new(unix()).unwrap());
        let somebody = TcpListener::bind("127.0.0.1:0").unwrap();
        let nobody = SilentPort::new();
        let addresses = vec![nobody.at, somebody.local_addr().unwrap()];
        let target = Target { addresses, ..Target::default() };
        let first = links.dial(&poller, target.clone()).unwrap();
        let patience = Some(Duration::from_secs(10));
        let ready: Vec<Ready> = poller.wait(patience).unwrap().collect();
        let refused =
            ready.into_iter().find(|ready| ready.token == token(CARRIER, first.number())).unwrap();
        links.receive(Time::ZERO, &poller, first.number(), refused);
        let mut news = || links.next_news(Time::ZERO, &mut |_, _| ());
        assert!(std::iter::from_fn(&mut news).any(|news| news == LinkEvent::Ended(first)));
        let end = links.end(Time::ZERO, &poller, first);
        let LinkEnd::Replaced(second) = end else { panic!("{end:?}") };
        somebody.accept().unwrap();
        assert_eq!((links.len(), links.conns[&second].peer), (1, target.addresses[1]));
        let end = links.end(Time::ZERO, &poller, second);
        assert_eq!(end, LinkEnd::Unreachable(target), "there is no third address");
    }
}
