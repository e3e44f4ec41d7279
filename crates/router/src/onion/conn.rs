//! One link to a relay over TCP: the connection, and the link protocol (such as TLS) on it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;

use anabranch_links::utls::Origin;
use anabranch_links::{EarlyCounts, EarlyRecords, Fault, PeerFaultKind, State, StreamLink};
use anabranch_multipath::{LinkView, Time};
use anabranch_onion::CarrierFault;
use anabranch_onion::circuitmux::kist;
use anabranch_onion::wire::cell::CELL;
use anabranch_onion::wire::extend::Target;
use socket2::{SockRef, Socket};

use super::bridge_routes::{BridgeRoutes, Greeting};
use super::mptcp::{self, TcpKind};
use super::newcomers::ConnectionSlot;
use super::tap::{Cookie, Segment, Tap, saved_syn};
use super::tcp_info;

/// Maximum number of unsent bytes in the kernel's send buffer (`TCP_NOTSENT_LOWAT`). Further cells
/// wait in the protocol core (a state machine without I/O), which can still change their order.
const UNSENT: u32 = 32 << 10;
/// Number of encrypted bytes in this program's queue for the socket at which encryption pauses.
const SEALED: usize = 64 << 10;
/// Minimum amount of data to fetch from the protocol core at once, in link records (such as TLS
/// records).
const RECORDS: usize = 2;
/// Minimum number of bytes to fetch from the protocol core at once, if the link's records are
/// small. The number is rounded down to whole records.
const SMALL: usize = 32 << 10;
/// Number of bytes that a link must transfer between two checks for idle links; with fewer bytes
/// it is idle. Also the size in bytes of an idle link's buffer, after it has been reduced.
const IDLE_CAPACITY: usize = 4 << 10;

/// A link to a neighbour (relay or client) over TCP, and its socket.
pub(super) struct Conn {
    socket: TcpStream,
    link: Box<dyn StreamLink + Send>,
    pub(super) peer: SocketAddr,
    /// Entry of this connection in the limits on incoming connections; `None` if we opened the
    /// connection.
    pub(super) admitted: Option<ConnectionSlot>,
    /// The relay that we connected to; `None` if the neighbour (a relay or client) opened the
    /// connection.
    pub(super) target: Option<Target>,
    /// Index, among the relay's addresses, of the address that we connected to.
    pub(super) address_index: usize,
    /// SOCKS greeting for the pluggable transport of the connection; `None` once the greeting is
    /// sent, or if there is no transport.
    greeting: Option<Greeting>,
    /// True if the connection uses a pluggable transport. Then the TCP connection ends at the
    /// local transport, and its segments are not the link's segments.
    pub(super) by_transport: bool,
    /// True if the socket is an MPTCP socket. It may still use only one path.
    is_multipath: bool,
    /// Time of the first check that found the link not yet open, from which the handshake's
    /// timeout counts. `None` before that check.
    pub(super) opening: Option<Time>,
    /// True if the protocol core has been notified that the link exists.
    pub(super) is_reported: bool,
    /// The neighbour's violation of the link protocol that has ended the link; `None` if there was
    /// none.
    pub(super) fault: Option<CarrierFault>,
    /// True if the protocol core (a state machine without I/O) has something to send on the link.
    pub(super) has_output: bool,
    /// True if the link will be closed after everything is sent.
    pub(super) closing: bool,
    /// True if the poller reports when the socket can accept more data.
    pub(super) watched: bool,
    /// True if the socket is not read at present, because the rate limit is reached.
    pub(super) paused: bool,
    /// State of the packet tap for this connection; `None` if no tap watches it. The tap delivers
    /// TCP segments before earlier segments have arrived.
    tapped: Option<TapState>,
    /// Number of bytes received from the socket, and number of bytes written to the socket.
    pub(super) transferred: [u64; 2],
    /// Value of `transferred` (both directions added) at the last check for idle links. A
    /// difference shows that the link was in use.
    transferred_before: u64,
    /// The link's next timeout, as registered in [`TcpLinks`](super::links::tcp::TcpLinks); `None`
    /// if none is registered.
    pub(super) due: Option<Time>,
    sealed: Vec<u8>,
    sent: usize,
    /// Time at which the kernel was last asked for `room`; `None` before the first time.
    room_checked: Option<Time>,
    /// Number of further bytes that may be passed to the kernel ([`kist::room`]): the measured
    /// number, less the bytes encrypted since then.
    room: usize,
}

/// State of the packet tap (which delivers TCP segments out of order) for one connection.
#[derive(Clone, Copy, Debug)]
struct TapState {
    cookie: Cookie,
    /// Origin of the TCP sequence numbers, which converts them to offsets in the stream; `None`
    /// until it is known.
    origin: Option<Origin>,
    /// True once the link may decrypt its records out of order.
    wanted: bool,
    /// True if the packet tap (which delivers TCP segments out of order) watches this connection
    /// now.
    is_tapped: bool,
}

/// Result of reading a link's socket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SocketRead {
    /// Decrypted bytes were read, perhaps none.
    Bytes,
    /// The link has ended. The text is the error; `None` if the link was closed in an orderly way.
    End(Option<String>),
}

impl Conn {
    /// Wraps a TCP connection that the neighbour at `peer` opened.
    pub(super) fn accepted(
        socket: TcpStream,
        peer: SocketAddr,
        link: Box<dyn StreamLink + Send>,
        address_index: ConnectionSlot,
        tap: &mut Tap,
    ) -> io::Result<Conn> {
        let cookie = tap.attach(socket.as_fd());
        if let Some(cookie) = cookie {
            tap.connected(cookie, &socket, peer);
        }
        let origin = cookie.and_then(|_| saved_syn(&socket)).map(Origin::of_syn);
        let mut conn = Conn::new(socket, peer, link, None)?;
        conn.admitted = Some(address_index);
        conn.tapped = cookie.map(|cookie| TapState { origin, ..TapState::new(cookie) });
        Ok(conn)
    }

    /// Connects to the address of `target` with the index `address_index`. The socket has the kind
    /// `tcp` (TCP or MPTCP). A connection to a pluggable transport always uses plain TCP, and no
    /// packet tap.
    pub(super) fn dial(
        target: Target,
        address_index: usize,
        link: Box<dyn StreamLink + Send>,
        (tap, routes, tcp): (&mut Tap, Option<&BridgeRoutes>, TcpKind),
    ) -> io::Result<Conn> {
        let address = *target.addresses.get(address_index).ok_or(ErrorKind::NotFound)?;
        let (to, greeting) = routes.map_or(Ok((address, None)), |routes| routes.to(address))?;
        if greeting.is_some() {
            let mut conn = Conn::new(connecting(to)?, address, link, Some(target))?;
            (conn.address_index, conn.greeting, conn.by_transport) =
                (address_index, greeting, true);
            return Ok(conn);
        }
        let mut cookie = None;
        // The tap is attached before the socket connects, so that it sees the SYN of the answer.
        let socket = connecting_by(address, tcp, |socket| cookie = tap.attach(socket.as_fd()))?;
        if let Some(cookie) = cookie {
            tap.connected(cookie, &socket, address);
        }
        let mut conn = Conn::new(socket, address, link, Some(target))?;
        (conn.address_index, conn.tapped) = (address_index, cookie.map(TapState::new));
        Ok(conn)
    }

    fn new(
        socket: TcpStream,
        peer: SocketAddr,
        link: Box<dyn StreamLink + Send>,
        target: Option<Target>,
    ) -> io::Result<Conn> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let is_multipath = mptcp::is_multipath(&socket);
        match SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT) {
            // Old kernels do not support this option on MPTCP sockets.
            Err(_) if is_multipath => {}
            set => set?,
        }
        Ok(Conn {
            socket,
            link,
            peer,
            admitted: None,
            target,
            address_index: 0,
            greeting: None,
            by_transport: false,
            is_multipath,
            opening: None,
            is_reported: false,
            fault: None,
            has_output: false,
            closing: false,
            watched: false,
            paused: false,
            tapped: None,
            transferred: [0; 2],
            transferred_before: 0,
            due: None,
            sealed: Vec::new(),
            sent: 0,
            room_checked: None,
            room: usize::MAX,
        })
    }

    /// Returns the socket, for the poller.
    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Returns the link protocol on the socket.
    pub(super) fn link(&self) -> &dyn StreamLink {
        &*self.link
    }

    /// Returns whether the handshake of the link protocol is complete.
    pub(super) fn is_open(&self) -> bool {
        self.link.state() == State::Open
    }

    /// Returns the number of plaintext bytes to fetch from the protocol core at once. The number
    /// is a multiple of the cell size, so that the cells almost fill whole link records.
    pub(super) fn batch(&self) -> usize {
        let record = self.link.promises().record;
        (RECORDS * record).max(SMALL / record * record) / CELL * CELL
    }

    /// Returns the number of further bytes that may be passed to the kernel ([`kist::room`]). The
    /// kernel is asked once per [`kist::INTERVAL`]; bytes encrypted since then are subtracted. The
    /// result is `usize::MAX` if the kernel does not report the connection's state.
    pub(super) fn room(&mut self, now: Time) -> usize {
        if self.room_checked.is_none_or(|at| now.since(at) >= kist::INTERVAL) {
            self.room_checked = Some(now);
            self.room = self.view().map_or(usize::MAX, |view| kist::room(&view));
        }
        self.room
    }

    /// Returns the state of the TCP connection.
    ///
    /// # Errors
    /// A system call fails, or the connection uses MPTCP, for which the kernel reports only the
    /// first subflow.
    pub(super) fn view(&self) -> io::Result<LinkView> {
        match self.subflows() {
            Some(_) => Err(ErrorKind::Unsupported.into()),
            None => tcp_info::look(&self.socket),
        }
    }

    /// Returns the number of MPTCP subflows; `None` if the connection uses TCP.
    pub(super) fn subflows(&self) -> Option<usize> {
        if self.is_multipath { mptcp::subflows(&self.socket) } else { None }
    }

    /// Returns the earlier of two times: the link's timeout, and the next measurement of the
    /// kernel's room if data waits for room. Returns `None` if neither time is set.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let room = self.room_checked.filter(|_| self.has_output && self.room == 0);
        let room = room.map(|room_checked| room_checked + kist::INTERVAL);
        self.link.next_timeout().into_iter().chain(room).min()
    }

    /// Returns counts of the records that were decrypted out of order; `None` if the link does not
    /// support that.
    pub(super) fn early_counts(&self) -> Option<EarlyCounts> {
        self.link.early_records().and_then(EarlyRecords::early_counts)
    }

    /// Returns the packet tap's identifier of the connection; `None` if no tap watches it.
    pub(super) fn cookie(&self) -> Option<Cookie> {
        self.tapped.map(|tapped| tapped.cookie)
    }

    /// Switches to records with `content` bytes of content each, so that the neighbour can decrypt
    /// our records out of order. From now on, this end may also decrypt the neighbour's records
    /// out of order.
    ///
    /// # Errors
    /// The link does not support that.
    pub(super) fn unorder(
        &mut self,
        now: Time,
        content: usize,
        tap: &mut Tap,
    ) -> Result<(), Fault> {
        let early = self.link.early_records_mut();
        early
            .ok_or(Fault::Misuse("the records of this kind of link cannot be read out of order"))?
            .unorder(now, content)?;
        if let Some(tapped) = &mut self.tapped {
            tapped.wanted = true;
            tapped.keep_up(self.transferred[0], tap);
        }
        Ok(())
    }

    /// Processes a TCP segment that the packet tap delivered. Returns whether the segment could be
    /// used. If so, [`Conn::take_early`] may return decrypted bytes.
    pub(super) fn show(&mut self, now: Time, segment: Segment<'_>) -> bool {
        let Some(tapped) = &mut self.tapped else { return false };
        let Some(bytes) = segment.bytes else {
            tapped.origin.get_or_insert(Origin::of_syn(segment.number));
            return true;
        };
        let origin = tapped.origin.filter(|_| tapped.wanted && !self.paused);
        let offset = origin.and_then(|origin| origin.offset(segment.number, self.transferred[0]));
        if let (Some(offset), Some(link)) = (offset, self.link.early_records_mut()) {
            link.receive_early(now, offset, bytes);
        }
        offset.is_some()
    }

    /// Appends to `plain` the decrypted content of records that arrived out of order.
    pub(super) fn take_early(&mut self, plain: &mut Vec<u8>, tap: &mut Tap) {
        self.keep_up(tap);
        // Errors are ignored here, because the same records also arrive in the stream, where
        // errors are reported.
        let _ = self.link.read(plain);
    }

    /// Reports to the packet tap how many bytes of the TCP stream were read so far. The tap need
    /// not deliver these bytes.
    pub(super) fn keep_up(&mut self, tap: &mut Tap) {
        if let Some(tapped) = &mut self.tapped {
            tapped.keep_up(self.transferred[0], tap);
        }
    }

    /// Reads once from the socket, and appends the decrypted bytes to `plain`.
    pub(super) fn read(&mut self, now: Time, buffer: &mut [u8], plain: &mut Vec<u8>) -> SocketRead {
        let count = match self.socket.read(buffer) {
            Ok(0) => return SocketRead::End(None),
            Ok(count) => count,
            Err(error) if is_passing(&error) => return SocketRead::Bytes,
            Err(error) => return SocketRead::End(Some(error.to_string())),
        };
        self.transferred[0] += count as u64;
        let mut arrived = &buffer[..count];
        let rest;
        if let Some(greeting) = &mut self.greeting {
            match greeting.take(arrived) {
                Err(refusal) => return SocketRead::End(Some(refusal.to_string())),
                Ok(None) => return SocketRead::Bytes,
                Ok(Some(tail)) => rest = tail,
            }
            (self.greeting, arrived) = (None, &rest);
        }
        let result = self.link.receive(now, arrived);
        let read = self.link.read(plain);
        match result.and(read.map(drop)) {
            Err(Fault::Peer(fault)) => {
                self.fault = carrier_fault(fault.kind);
                SocketRead::End(Some(fault.what))
            }
            Err(Fault::Misuse(text)) => SocketRead::End(Some(text.to_owned())),
            Ok(()) if self.link.state() == State::Ended => SocketRead::End(None),
            Ok(()) => SocketRead::Bytes,
        }
    }

    /// Returns whether more bytes may be encrypted, because few encrypted bytes wait for the
    /// socket.
    pub(super) fn has_room(&self) -> bool {
        self.sealed.len() - self.sent < SEALED
    }

    /// Releases the buffers that grew in bursts, if the link was idle since the last call. Returns
    /// the number of released bytes; `None` if the link was in use.
    pub(super) fn shrink_buffers(&mut self) -> Option<usize> {
        let transferred = self.transferred.iter().sum();
        let since = transferred - std::mem::replace(&mut self.transferred_before, transferred);
        if since >= IDLE_CAPACITY as u64 {
            return None;
        }
        let before = self.sealed.capacity();
        self.sealed.shrink_to(IDLE_CAPACITY);
        Some(before - self.sealed.capacity() + self.link.shrink_buffers())
    }

    /// Encrypts the bytes `plain`, and queues them for the socket.
    pub(super) fn seal(&mut self, plain: &[u8]) {
        // An error means that the link was closed, so nothing more is to be sent.
        let _ = self.link.write(plain);
        self.room = self.room.saturating_sub(plain.len());
    }

    /// Queues the protocol's closing message (`close_notify` in TLS) after the bytes encrypted so
    /// far.
    pub(super) fn send_close(&mut self) {
        self.link.close();
    }

    /// Writes encrypted bytes to the socket. Returns whether all of them are sent.
    ///
    /// # Errors
    /// The socket reports an error: the link has ended.
    pub(super) fn flush(&mut self, now: Time) -> io::Result<bool> {
        if let Some(greeting) = &mut self.greeting {
            return greeting.flush(&self.socket);
        }
        self.link.transmit(now, &mut self.sealed);
        while self.sent < self.sealed.len() {
            match self.socket.write(&self.sealed[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    self.transferred[1] += count as u64;
                }
                Err(error) if is_passing(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.sealed.clear();
        self.sent = 0;
        Ok(true)
    }
}

impl TapState {
    fn new(cookie: Cookie) -> TapState {
        TapState { cookie, origin: None, wanted: false, is_tapped: false }
    }

    /// Reports to the packet tap that `read` bytes of the TCP stream were read in total.
    fn keep_up(&mut self, read: u64, tap: &mut Tap) {
        let Some(origin) = self.origin.filter(|_| self.wanted) else { return };
        if self.is_tapped {
            tap.advance(self.cookie, origin.number(read));
        } else {
            self.is_tapped = tap.begin(self.cookie, origin.number(read));
        }
    }
}

/// Begins to open a TCP connection to `address`, without blocking.
pub(super) fn connecting(address: SocketAddr) -> io::Result<TcpStream> {
    connecting_by(address, TcpKind::Single, |_| ())
}

/// Begins to open a connection to `address` with a socket of kind `tcp`, without blocking. Calls
/// `prepare` on the socket before it connects.
pub(super) fn connecting_by(
    address: SocketAddr,
    tcp: TcpKind,
    prepare: impl FnOnce(&Socket),
) -> io::Result<TcpStream> {
    let socket = tcp.socket(address)?;
    prepare(&socket);
    begin(socket, address)
}

/// Begins to open a TCP connection to `address`, without blocking. The local address is `from`, if
/// that is given.
pub(crate) fn connecting_from(address: SocketAddr, from: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = TcpKind::Single.socket(address)?;
    from.map_or(Ok(()), |from| socket.bind(&SocketAddr::new(from, 0).into()))?;
    begin(socket, address)
}

fn begin(socket: Socket, address: SocketAddr) -> io::Result<TcpStream> {
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// Converts a fault of the neighbour into a violation to report. Returns `None` for a TLS alert,
/// because with an alert the neighbour reports a fault of this end.
fn carrier_fault(kind: PeerFaultKind) -> Option<CarrierFault> {
    Some(match kind {
        PeerFaultKind::Alert => return None,
        PeerFaultKind::Unopened => CarrierFault::Unopened,
        PeerFaultKind::Length => CarrierFault::Length,
        PeerFaultKind::KeyUpdates => CarrierFault::KeyUpdates,
        PeerFaultKind::Other => CarrierFault::Record,
    })
}

/// Returns whether `error` is transient, so that the operation can be tried again.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    let early = error.raw_os_error() == Some(libc::ENOTCONN);
    early || matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
