//! One link: a TCP connection and what makes a link of it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;

use anabranch_links::utls::Origin;
use anabranch_links::{EarlyCounts, EarlyRecords, Fault, PeerFaultKind, State, StreamLink};
use anabranch_multipath::{LinkView, Time};
use anabranch_onion::CarrierFault;
use anabranch_onion::circuitmux::kist;
use anabranch_onion::wire::extend::Target;
use socket2::{SockRef, Socket};

use super::mptcp::{self, TcpKind};
use super::newcomers::ConnectionSlot;
use super::tap::{Cookie, Segment, Tap, saved_syn};
use super::tcp_info;
use super::ways::{BridgeWays, Greeting};

/// Bytes that the kernel may hold unsent: the rest waits in the core, where its order may still
/// change.
const UNSENT: u32 = 32 << 10;
/// Sealed bytes that may wait for the socket.
const SEALED: usize = 64 << 10;
/// Full records fetched at once, and bytes of small ones.
const RECORDS: usize = 2;
const SMALL: usize = 32 << 10;
/// A link rests if it carried less than this since it was last asked; the room that it keeps is for
/// as much.
const TRICKLE: usize = 4 << 10;

/// A link and its socket.
pub(super) struct Conn {
    socket: TcpStream,
    link: Box<dyn StreamLink + Send>,
    pub(super) peer: SocketAddr,
    /// Its place among those that others opened.
    pub(super) admitted: Option<ConnectionSlot>,
    /// Whom it is to lead to, if we opened it.
    pub(super) target: Option<Target>,
    /// By which of its addresses.
    pub(super) place: usize,
    /// What is said first to the transport that leads there, if one does.
    greeting: Option<Greeting>,
    /// A transport stands between, so that segments are not the link's.
    pub(super) by_transport: bool,
    /// Its socket is of MPTCP, though it may go by one path.
    is_multipath: bool,
    /// Since when it is seen not to be open.
    pub(super) opening: Option<Time>,
    /// The core knows of it.
    pub(super) told: bool,
    /// What the neighbour did that ended the link, if it broke the link's protocol.
    pub(super) fault: Option<CarrierFault>,
    /// The core has something to send.
    pub(super) wants: bool,
    /// To be closed once all is sent.
    pub(super) closing: bool,
    /// Watched for room to write.
    pub(super) watched: bool,
    /// Not watched for something to read, until bytes may pass again.
    pub(super) paused: bool,
    /// Tap that shows segments before their turn, if anything does.
    tapped: Option<TapState>,
    /// Bytes that went over the wire: received, sent.
    pub(super) carried: [u64; 2],
    /// Both, when it was last asked whether it rests.
    asked: u64,
    /// When the link wants to be called, as [`TcpLinks`](super::links::tcp::TcpLinks) has noted it.
    pub(super) due: Option<Time>,
    sealed: Vec<u8>,
    sent: usize,
    /// When it was last looked for room, and what is left of it.
    looked: Option<Time>,
    room: usize,
}

/// How a connection is tapped.
#[derive(Clone, Copy, Debug)]
struct TapState {
    cookie: Cookie,
    /// Where its sequence numbers begin, once that is known.
    origin: Option<Origin>,
    /// Records may come before their turn.
    wanted: bool,
    /// Segments are shown.
    shown: bool,
}

/// What a link's socket brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SocketRead {
    /// Plain bytes, maybe none.
    Bytes,
    /// The end, and why if it was not in order.
    End(Option<String>),
}

impl Conn {
    /// A connection that a neighbour opened.
    pub(super) fn accepted(
        socket: TcpStream,
        peer: SocketAddr,
        link: Box<dyn StreamLink + Send>,
        place: ConnectionSlot,
        tap: &mut Tap,
    ) -> io::Result<Conn> {
        let cookie = tap.attach(socket.as_fd());
        if let Some(cookie) = cookie {
            tap.connected(cookie, &socket, peer);
        }
        let origin = cookie.and_then(|_| saved_syn(&socket)).map(Origin::of_syn);
        let mut conn = Conn::new(socket, peer, link, None)?;
        conn.admitted = Some(place);
        conn.tapped = cookie.map(|cookie| TapState { origin, ..TapState::new(cookie) });
        Ok(conn)
    }

    /// A connection that is being opened, to the relay's address at this place; by a transport it
    /// is of TCP.
    pub(super) fn dial(
        target: Target,
        place: usize,
        link: Box<dyn StreamLink + Send>,
        (tap, ways, tcp): (&mut Tap, Option<&BridgeWays>, TcpKind),
    ) -> io::Result<Conn> {
        let address = *target.addresses.get(place).ok_or(ErrorKind::NotFound)?;
        let (to, greeting) = ways.map_or(Ok((address, None)), |ways| ways.to(address))?;
        if greeting.is_some() {
            let mut conn = Conn::new(connecting(to)?, address, link, Some(target))?;
            (conn.place, conn.greeting, conn.by_transport) = (place, greeting, true);
            return Ok(conn);
        }
        let mut cookie = None;
        // Before it connects, so that the answer's SYN is shown.
        let socket = connecting_by(address, tcp, |socket| cookie = tap.attach(socket.as_fd()))?;
        if let Some(cookie) = cookie {
            tap.connected(cookie, &socket, address);
        }
        let mut conn = Conn::new(socket, address, link, Some(target))?;
        (conn.place, conn.tapped) = (place, cookie.map(TapState::new));
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
            // Kernels have learnt it for such sockets late.
            Err(_) if is_multipath => {}
            set => set?,
        }
        Ok(Conn {
            socket,
            link,
            peer,
            admitted: None,
            target,
            place: 0,
            greeting: None,
            by_transport: false,
            is_multipath,
            opening: None,
            told: false,
            fault: None,
            wants: false,
            closing: false,
            watched: false,
            paused: false,
            tapped: None,
            carried: [0; 2],
            asked: 0,
            due: None,
            sealed: Vec::new(),
            sent: 0,
            looked: None,
            room: usize::MAX,
        })
    }

    /// The socket, for watching.
    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// What carries bytes over the socket.
    pub(super) fn link(&self) -> &dyn StreamLink {
        &*self.link
    }

    /// Whether the link's own handshake is done.
    pub(super) fn is_open(&self) -> bool {
        self.link.state() == State::Open
    }

    /// Plain bytes to fetch at once.
    pub(super) fn batch(&self) -> usize {
        let record = self.link.promises().record;
        (RECORDS * record).max(SMALL / record * record)
    }

    /// Bytes that the kernel has room for: looked at once in each interval, and what was sealed
    /// since is taken off. A connection that does not tell has all.
    pub(super) fn room(&mut self, now: Time) -> usize {
        if self.looked.is_none_or(|at| now.since(at) >= kist::INTERVAL) {
            self.looked = Some(now);
            self.room = self.view().map_or(usize::MAX, |view| kist::room(&view));
        }
        self.room
    }

    /// How the connection is doing.
    ///
    /// # Errors
    /// The kernel's; of several subflows it tells of the first alone, which is not enough.
    pub(super) fn view(&self) -> io::Result<LinkView> {
        match self.subflows() {
            Some(_) => Err(ErrorKind::Unsupported.into()),
            None => tcp_info::look(&self.socket),
        }
    }

    /// By how many subflows of MPTCP it goes, if it does.
    pub(super) fn subflows(&self) -> Option<usize> {
        if self.is_multipath { mptcp::subflows(&self.socket) } else { None }
    }

    /// When the link wants to be called, or may have room again if that was what it lacked.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let room = self.looked.filter(|_| self.wants && self.room == 0);
        let room = room.map(|looked| looked + kist::INTERVAL);
        self.link.next_timeout().into_iter().chain(room).min()
    }

    /// How many records were opened before their turn, if any may be.
    pub(super) fn early_counts(&self) -> Option<EarlyCounts> {
        self.link.early_records().and_then(EarlyRecords::early_counts)
    }

    /// By which name the tap knows it.
    pub(super) fn cookie(&self) -> Option<Cookie> {
        self.tapped.map(|tapped| tapped.cookie)
    }

    /// From now on records have so many bytes of content, and may come before their turn.
    ///
    /// # Errors
    /// The link cannot.
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
            tapped.keep_up(self.carried[0], tap);
        }
        Ok(())
    }

    /// Takes what the tap shows of the connection; the plain bytes are for [`Conn::take_early`].
    pub(super) fn show(&mut self, now: Time, segment: Segment<'_>) -> bool {
        let Some(tapped) = &mut self.tapped else { return false };
        let Some(bytes) = segment.bytes else {
            tapped.origin.get_or_insert(Origin::of_syn(segment.number));
            return true;
        };
        let origin = tapped.origin.filter(|_| tapped.wanted && !self.paused);
        let offset = origin.and_then(|origin| origin.offset(segment.number, self.carried[0]));
        if let (Some(offset), Some(link)) = (offset, self.link.early_records_mut()) {
            link.receive_early(now, offset, bytes);
        }
        offset.is_some()
    }

    /// Appends the plain bytes that came before their turn.
    pub(super) fn take_early(&mut self, plain: &mut Vec<u8>, tap: &mut Tap) {
        self.keep_up(tap);
        // What it finds wrong is told by the stream, which brings these records again.
        let _ = self.link.read(plain);
    }

    /// Tells the tap how far the stream was read.
    pub(super) fn keep_up(&mut self, tap: &mut Tap) {
        if let Some(tapped) = &mut self.tapped {
            tapped.keep_up(self.carried[0], tap);
        }
    }

    /// Reads once, and appends the plain bytes.
    pub(super) fn read(&mut self, now: Time, buffer: &mut [u8], plain: &mut Vec<u8>) -> SocketRead {
        let count = match self.socket.read(buffer) {
            Ok(0) => return SocketRead::End(None),
            Ok(count) => count,
            Err(error) if is_passing(&error) => return SocketRead::Bytes,
            Err(error) => return SocketRead::End(Some(error.to_string())),
        };
        self.carried[0] += count as u64;
        let mut came = &buffer[..count];
        let rest;
        if let Some(greeting) = &mut self.greeting {
            match greeting.take(came) {
                Err(refusal) => return SocketRead::End(Some(refusal.to_string())),
                Ok(None) => return SocketRead::Bytes,
                Ok(Some(behind)) => rest = behind,
            }
            (self.greeting, came) = (None, &rest);
        }
        let received = self.link.receive(now, came);
        let read = self.link.read(plain);
        match received.and(read.map(drop)) {
            Err(Fault::Peer(fault)) => {
                self.fault = carrier_fault(fault.kind);
                SocketRead::End(Some(fault.what))
            }
            Err(Fault::Misuse(text)) => SocketRead::End(Some(text.to_owned())),
            Ok(()) if self.link.state() == State::Ended => SocketRead::End(None),
            Ok(()) => SocketRead::Bytes,
        }
    }

    /// Whether more plain bytes may be sealed.
    pub(super) fn has_room(&self) -> bool {
        self.sealed.len() - self.sent < SEALED
    }

    /// If little has come and gone since the last call, gives back the room that bursts took: how
    /// many bytes that was.
    pub(super) fn rest(&mut self) -> Option<usize> {
        let carried = self.carried.iter().sum();
        let since = carried - std::mem::replace(&mut self.asked, carried);
        if since >= TRICKLE as u64 {
            return None;
        }
        let before = self.sealed.capacity();
        self.sealed.shrink_to(TRICKLE);
        Some(before - self.sealed.capacity() + self.link.rest())
    }

    /// Seals plain bytes.
    pub(super) fn seal(&mut self, plain: &[u8]) {
        // Misuse: the link was closed, and what was to be said is moot.
        let _ = self.link.write(plain);
        self.room = self.room.saturating_sub(plain.len());
    }

    /// Says goodbye, behind what was sealed.
    pub(super) fn say_goodbye(&mut self) {
        self.link.close();
    }

    /// Writes what is sealed; true if all of it has gone.
    ///
    /// # Errors
    /// The socket's: the link is over.
    pub(super) fn flush(&mut self, now: Time) -> io::Result<bool> {
        if let Some(greeting) = &mut self.greeting {
            return greeting.flush(&self.socket);
        }
        self.link.transmit(now, &mut self.sealed);
        while self.sent < self.sealed.len() {
            match self.socket.write(&self.sealed[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    self.carried[1] += count as u64;
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
        TapState { cookie, origin: None, wanted: false, shown: false }
    }

    /// So many bytes of the stream were read.
    fn keep_up(&mut self, read: u64, tap: &mut Tap) {
        let Some(origin) = self.origin.filter(|_| self.wanted) else { return };
        if self.shown {
            tap.advance(self.cookie, origin.number(read));
        } else {
            self.shown = tap.begin(self.cookie, origin.number(read));
        }
    }
}

/// A TCP connection that is on its way.
pub(super) fn connecting(address: SocketAddr) -> io::Result<TcpStream> {
    connecting_by(address, TcpKind::Single, |_| ())
}

/// The same by a socket of this kind, to which something is done before.
pub(super) fn connecting_by(
    address: SocketAddr,
    tcp: TcpKind,
    prepare: impl FnOnce(&Socket),
) -> io::Result<TcpStream> {
    let socket = tcp.socket(address)?;
    prepare(&socket);
    begin(socket, address)
}

/// The same from this address of ours, where one is named.
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

/// What a neighbour of a TLS link did that it must not: nothing, where it tells of a fault of ours.
fn carrier_fault(kind: PeerFaultKind) -> Option<CarrierFault> {
    Some(match kind {
        PeerFaultKind::Alert => return None,
        PeerFaultKind::Unopened => CarrierFault::Unopened,
        PeerFaultKind::Length => CarrierFault::Length,
        PeerFaultKind::KeyUpdates => CarrierFault::KeyUpdates,
        PeerFaultKind::Other => CarrierFault::Record,
    })
}

/// Whether an error says no more than "not now".
pub(crate) fn is_passing(error: &io::Error) -> bool {
    let early = error.raw_os_error() == Some(libc::ENOTCONN);
    early || matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
