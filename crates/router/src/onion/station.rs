//! A protocol core and its links, for a client or a relay: the sockets of one thread, and the
//! calls that move bytes between sockets and core.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use anabranch_links::tls::Context;
use anabranch_multipath::{Core, Time};
use anabranch_onion::channel::{Capabilities, Start};
use anabranch_onion::wire::extend::Target;
use anabranch_onion::wire::link::Identity;
use anabranch_onion::{LinkCore, LinkId, LinkInput, LinkOutput, Moment, StreamKey};
use anabranch_os::clock::Clock;
use anabranch_os::files::SpareDescriptor;
use anabranch_os::poller::{Poller, Ready};

use super::dirclient::unix;
use super::external_socket::{CoreStream, ExternalEvent, ExternalSocket, IoEvent};
use super::links::quic::{QuicCounts, QuicLinking, QuicLinks, QuicSockets};
use super::links::ring::{ShardClaims, ShardRings, SiblingLink, WAKER};
use super::links::tcp::TAP;
use super::links::{CARRIERS, Carrier, Carriers, LinkEnd, LinkEvent, OpenedLink, file};
use super::mptcp::TcpKind;
use super::newcomers::ConnectionLimits;
use super::tap::{Tap, save_syns};
use anabranch_os::holders::{self, Transport};

/// Smallest poller token of a listening socket; the socket's index is added. Smaller tokens belong
/// to files of the client or relay itself.
pub(super) const LISTENERS: u64 = 16;
/// Smallest poller token of a stream's socket. The token is this value plus the identifier of the
/// socket.
pub(super) const STREAMS: u64 = 1 << 61;
/// Interval between periodic checks, such as for links whose handshake takes too long.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// Interval between checks for idle links.
const REST: Duration = Duration::from_secs(10);

/// A protocol core (of a client or a relay) with its links and listening sockets.
pub(super) struct CoreDriver<C> {
    pub(super) clock: Clock,
    pub(super) core: C,
    pub(super) poller: Poller,
    pub(super) carriers: Carriers,
    pub(super) listeners: Vec<TcpListener>,
    spare: SpareDescriptor,
    /// Our addresses, which the other end of a link learns in the link handshake; empty for a
    /// client.
    pub(super) own: Vec<IpAddr>,
    /// Table of neighbouring relays and the event loop that has the link to each. All event loops
    /// of this relay share it. `None` if there is only one event loop.
    claims: Option<ShardClaims>,
    /// True if each circuit gets its own new link, even if another event loop has a link to the
    /// same relay.
    dedicates_links: bool,
    /// Time of the last check for links whose handshake takes too long.
    swept: Time,
    /// Time of the last check for idle links.
    rested: Time,
    /// Buffer for lossy cells (cells that may get lost) on their way between a link and the
    /// protocol core.
    lossy: Vec<u8>,
}

/// Meaning of a poller token: the file that it identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A file of the client or relay itself, with this token.
    File(u64),
    /// The listening socket with this index.
    Listener(usize),
    /// A file (a socket or a waker) of a carrier, such as the QUIC carrier. The fields are the
    /// carrier's index and the file's identifier, for [`CoreDriver::receive`].
    Carrier(u8, u64),
    /// The stream's socket with this identifier.
    Stream(u64),
}

impl Token {
    /// Returns the file that the poller token `token` identifies.
    pub(super) fn of(token: u64) -> Token {
        match token {
            0..LISTENERS => Token::File(token),
            LISTENERS..CARRIERS => Token::Listener((token - LISTENERS) as usize),
            CARRIERS..STREAMS => {
                let (carrier, file) = file(token);
                Token::Carrier(carrier, file)
            }
            _ => Token::Stream(token - STREAMS),
        }
    }
}

impl<C: Core + LinkCore> CoreDriver<C> {
    /// Wraps a core that has no links yet, and listens on the addresses in `at`. `tcp` is the
    /// transport protocol (TCP or MPTCP) of listening sockets and outgoing links.
    ///
    /// # Errors
    /// The process cannot listen on an address, which the error names, or file descriptors run
    /// out.
    pub(super) fn new(
        clock: Clock,
        core: C,
        context: Context,
        (tcp, at): (TcpKind, &[SocketAddr]),
        own: Vec<IpAddr>,
    ) -> io::Result<CoreDriver<C>> {
        let poller = Poller::new(1024)?;
        let listeners = at.iter().map(|at| listen(tcp, *at)).collect::<io::Result<Vec<_>>>()?;
        for (token, listener) in (LISTENERS..).zip(&listeners) {
            poller.add(listener, token)?;
        }
        let mut carriers = Carriers::new(context);
        carriers.tcp.tcp = tcp;
        let (swept, rested) = (Time::ZERO, Time::ZERO);
        Ok(CoreDriver {
            clock,
            core,
            poller,
            carriers,
            listeners,
            spare: SpareDescriptor::new(),
            own,
            claims: None,
            dedicates_links: false,
            swept,
            rested,
            lossy: Vec::new(),
        })
    }

    /// Allows links to deliver cells out of order. `tap` delivers the TCP segments of these links.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn unorder(&mut self, tap: Tap) -> io::Result<()> {
        tap.file().map(|file| self.poller.add(file, TAP)).transpose()?;
        // If the kernel does not save SYN packets, incoming links stay ordered.
        self.listeners.iter().for_each(|listener| drop(save_syns(listener)));
        self.carriers.tcp.set_tap(tap);
        Ok(())
    }

    /// Starts to open QUIC links in addition to TLS links, under the conditions in `linking`.
    pub(super) fn open_quic(&mut self, linking: QuicLinking) {
        let context = self.carriers.tcp.context().clone();
        self.carriers.quic = Some(QuicLinks::new(context, linking));
    }

    /// Starts to accept QUIC links at `sockets`. `connection_limits` limits their number together
    /// with that of TCP connections.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn listen_quic(
        &mut self,
        sockets: QuicSockets,
        connection_limits: ConnectionLimits,
    ) -> io::Result<()> {
        let Some(quic) = &mut self.carriers.quic else { return Ok(()) };
        quic.listen(&self.poller, sockets, connection_limits)
    }

    /// Stops accepting QUIC links; open QUIC links continue.
    pub(super) fn refuse_quic(&mut self) {
        self.carriers.quic.iter_mut().for_each(QuicLinks::refuse);
    }

    /// Uses another TLS certificate for new links.
    ///
    /// # Errors
    /// The TLS library fails. QUIC links keep the old certificate then.
    pub(super) fn set_context(&mut self, context: &Context) -> io::Result<()> {
        self.carriers.set_context(context)
    }

    /// Returns the number of links, including those being opened.
    pub(super) fn link_count(&self) -> usize {
        self.carriers.iter().map(Carrier::len).sum()
    }

    /// Returns the bytes received and sent on links since the start.
    pub(super) fn transferred(&self) -> [u64; 2] {
        let all = self.carriers.iter().map(Carrier::transferred);
        all.fold([0; 2], |sum, some| [sum[0] + some[0], sum[1] + some[1]])
    }

    /// Returns the counters of QUIC links; `None` if QUIC is disabled.
    pub(super) fn quic_counts(&self) -> Option<QuicCounts> {
        self.carriers.quic.as_ref().map(QuicLinks::counts)
    }

    /// Returns whether QUIC links carry lossy cells (cells that may get lost), provided that the
    /// other end of the link supports them, too.
    pub(super) fn grants_lossy(&self) -> bool {
        self.carriers.quic.as_ref().is_some_and(QuicLinks::carries_lossy)
    }

    /// Processes the event `ready` of a file of `carrier`. Then moves data between the carrier's
    /// links and the protocol core.
    pub(super) fn receive(&mut self, now: Time, (carrier, file): (u8, u64), ready: Ready) {
        if let Some(links) = self.carriers.get_mut(carrier) {
            links.receive(now, &self.poller, file, ready);
        }
        self.take_news(now, carrier);
    }

    /// Processes the events of the links of `carrier`, and sends data on each of these links.
    fn take_news(&mut self, now: Time, carrier: u8) {
        loop {
            let Some(links) = self.carriers.get_mut(carrier) else { return };
            let core = &mut self.core;
            let mut give =
                |link, bytes: &[u8]| core.handle_link(now, LinkInput::Bytes { link, bytes });
            match links.next_news(now, &mut give) {
                Some(LinkEvent::Opened(link, opened)) => self.link_opened(now, link, opened),
                Some(LinkEvent::Served(link)) => match self.take_lossy(now, link) {
                    true => self.flush(now, link),
                    false => self.gone(now, link),
                },
                Some(LinkEvent::Ended(link)) => self.gone(now, link),
                None => return,
            }
        }
    }

    /// Reports to the protocol core that the handshake of `link` is complete.
    fn link_opened(&mut self, now: Time, link: LinkId, opened: OpenedLink) {
        let (peer, can) = (opened.peer.ip(), opened.capabilities);
        let preferences = can.parallel_quic.then(|| self.carriers.quic_preferences(peer)).flatten();
        let start = Start {
            own: self.own.clone(),
            peer_certificate: opened.certificate,
            own_certificate: opened.own,
            capabilities: Capabilities { parallel_quic: preferences.is_some(), ..can },
            quic_preferences: preferences.unwrap_or_default(),
            ..Start::new(now, self.unix(now), peer)
        };
        let target = opened.target;
        self.core.handle_link(now, LinkInput::Opened { link, target, start });
    }

    /// Opens a QUIC link parallel to `link`. `target` is the relay at the other end, and the first
    /// byte of the connection ID; `None` for a random byte.
    fn open_quic_alongside(&mut self, now: Time, link: LinkId, target: (Target, Option<u8>)) {
        match self.carriers.open_quic_alongside(now, &self.poller, link, target) {
            Ok(carrier) => self.take_news(now, carrier),
            Err(_) => self.core.handle_link(now, LinkInput::QuicFailed { link }),
        }
    }

    /// Connects the protocol core with the cores of the relay's other event loops.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn join(&mut self, siblings: ShardRings) -> io::Result<()> {
        let ShardRings { rings, claims, .. } = siblings;
        self.poller.add(rings.waker(), WAKER)?;
        for SiblingLink { link, first, shard } in rings.links() {
            let input = LinkInput::Sibling { link, first, shard };
            self.core.handle_link(self.clock.now(), input);
        }
        (self.carriers.rings, self.claims) = (Some(rings), Some(claims));
        Ok(())
    }

    /// Makes the protocol core open a separate link for each circuit from now on.
    pub(super) fn dedicate_links(&mut self) {
        self.dedicates_links = true;
    }

    /// Returns whether each circuit gets its own link.
    pub(super) fn dedicates_links(&self) -> bool {
        self.dedicates_links
    }

    /// Makes the poller watch `file`, which belongs to the client or relay itself, with the token
    /// `token`.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn watch(&self, file: impl AsFd, token: u64) -> io::Result<()> {
        debug_assert!(token < LISTENERS, "larger tokens belong to listeners");
        self.poller.add(file, token)
    }

    /// Returns the addresses on which this core's sockets listen.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Accepts the next connection at the listening socket with the index `place`. Returns `None`
    /// if there is none. If file descriptors run out, uses a reserved descriptor to accept the
    /// connection, and closes the connection at once.
    pub(super) fn accept(&mut self, place: usize) -> Option<(TcpStream, SocketAddr)> {
        self.spare.accept(self.listeners.get(place)?)
    }

    /// Returns the number of connections that were closed because file descriptors had run out.
    pub(super) fn turned_away(&self) -> u64 {
        self.spare.turned_away()
    }

    /// Waits until a file is ready, until the next timeout of the protocol core or of a link, or
    /// until the time `other` if it is given, but for at most [`TICK`]. Returns the events of the
    /// files that are ready.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn wait(&mut self, other: Option<Time>) -> io::Result<Vec<Ready>> {
        let now = self.clock.now();
        let links = self.carriers.iter().filter_map(Carrier::next_timeout).min();
        let next = [self.core.next_timeout(), links, other].into_iter().flatten().min();
        let pause = next.map_or(TICK, |time| time.since(now).min(TICK));
        Ok(self.poller.wait(Some(pause))?.collect())
    }

    /// Resumes links that waited for the rate limit, closes links whose handshake takes too long,
    /// and releases the buffers of idle links.
    pub(super) fn resume(&mut self, now: Time) {
        let sweeps = now.since(self.swept) >= TICK;
        if sweeps {
            self.swept = now;
        }
        let rests = now.since(self.rested) >= REST;
        if rests {
            self.rested = now;
        }
        for carrier in 0..Carriers::COUNT {
            self.resume_links(now, carrier, [sweeps, rests]);
        }
    }

    fn resume_links(&mut self, now: Time, carrier: u8, [sweeps, rests]: [bool; 2]) {
        let Some(links) = self.carriers.get_mut(carrier) else { return };
        if rests {
            for link in links.shrink_buffers() {
                self.core.shrink_buffers(link);
            }
        }
        let stale = if sweeps { links.stale(now) } else { Vec::new() };
        let is_due = links.next_timeout().is_some_and(|time| time <= now);
        let ready = if is_due { links.resume(now, &self.poller) } else { Vec::new() };
        stale.into_iter().for_each(|link| self.gone(now, link));
        ready.into_iter().for_each(|link| self.flush(now, link));
        if is_due {
            self.take_news(now, carrier);
        }
    }

    /// Executes an output of the protocol core that concerns a link, for example opens or closes
    /// it.
    pub(super) fn execute(&mut self, now: Time, output: LinkOutput) {
        match output {
            LinkOutput::Dial { target } => self.dial(now, target),
            LinkOutput::DialOwn { target } => self.dial_own(now, target),
            LinkOutput::Transmit { link } => {
                self.with(link, |links| links.wants(link));
                self.flush(now, link);
            }
            LinkOutput::OpenQuic { link, target, first_byte } => {
                self.open_quic_alongside(now, link, (target, first_byte));
            }
            LinkOutput::AdmitCircuits { link } => {
                self.with(link, |links| links.admit_circuits(link));
                self.take_news(now, link.carrier());
            }
            LinkOutput::Close { link } => {
                self.with(link, |links| links.close(link));
                self.flush(now, link);
            }
            LinkOutput::FixRecords { link, content } => {
                match self.with(link, |links| links.fix_records(now, link, content)) {
                    Some(true) => self.core.handle_link(now, LinkInput::RecordsFixed { link }),
                    _ => self.gone(now, link),
                }
            }
            LinkOutput::Export { link, context } => {
                match self.with(link, |links| links.export(link, &context)).flatten() {
                    Some(secret) => {
                        self.core.handle_link(now, LinkInput::Exported { link, secret });
                    }
                    None => self.gone(now, link),
                }
            }
        }
    }

    /// Calls `act` on the carrier (TCP, QUIC or ring in memory) of `link`. Returns `None` if there
    /// is no such carrier.
    fn with<T>(&mut self, link: LinkId, act: impl FnOnce(&mut dyn Carrier) -> T) -> Option<T> {
        self.carriers.get_mut(link.carrier()).map(act)
    }

    /// Moves bytes between a stream in the protocol core and its socket `external`. `number` is
    /// the identifier of the socket. Returns the event that the caller must process.
    pub(super) fn service(
        &mut self,
        now: Time,
        number: u64,
        external: &mut ExternalSocket,
        what: IoEvent,
    ) -> ExternalEvent {
        let result = external.service(what, &mut StreamAccess { core: &mut self.core, now });
        // The socket stays registered with the poller until its owner drops it.
        external.watch(&self.poller, STREAMS + number);
        result
    }

    /// Returns the seconds since 1970 according to the machine's clock. Unlike this program's own
    /// clock, the machine's clock can be set, and continues while the machine sleeps.
    pub(super) fn unix(&self, _: Time) -> u64 {
        unix()
    }

    /// Returns the time `now` together with the time of the machine's clock.
    pub(super) fn moment(&self, now: Time) -> Moment {
        Moment { now, unix: self.unix(now) }
    }

    /// Records that `link` to the relay with this identity is open.
    pub(super) fn opened(&mut self, link: LinkId, identity: &Identity) {
        // The link may have been closed already.
        let is_there = self.carriers.has(link);
        if let Some(claims) = self.claims.as_mut().filter(|_| is_there) {
            claims.opened(link, identity.rsa);
        }
    }

    fn dial(&mut self, now: Time, target: Target) {
        if self.dedicates_links {
            return self.dial_own(now, target);
        }
        let rsa = target.rsa;
        if let Some(link) = self.claims.as_ref().and_then(|claims| claims.claim(rsa)) {
            return self.core.handle_link(now, LinkInput::Elsewhere { target, link });
        }
        let dialled = self.carriers.tcp.dial(&self.poller, target.clone());
        if let Some(claims) = &mut self.claims {
            match &dialled {
                Ok(link) => claims.count(*link, rsa),
                Err(_) => claims.failed(rsa),
            }
        }
        if dialled.is_err() {
            self.core.handle_link(now, LinkInput::Unreachable { target });
        }
    }

    /// Opens a link to a relay for this event loop alone, even if another event loop has a link to
    /// the relay. Other event loops can use the new link once it is open.
    fn dial_own(&mut self, now: Time, target: Target) {
        if self.carriers.tcp.dial(&self.poller, target.clone()).is_err() {
            self.core.handle_link(now, LinkInput::Unreachable { target });
        }
    }

    /// Moves to the protocol core the lossy cells (cells that may get lost) that have arrived on
    /// `link`. Returns false if the other end of the link has violated the link protocol.
    fn take_lossy(&mut self, now: Time, link: LinkId) -> bool {
        let Some(links) = self.carriers.get_mut(link.carrier()) else { return true };
        self.lossy.clear();
        let is_sound = links.read_lossy(link, &mut self.lossy);
        if !self.lossy.is_empty() {
            self.core.handle_link(now, LinkInput::Lossy { link, cells: &self.lossy });
        }
        is_sound
    }

    fn flush(&mut self, now: Time, link: LinkId) {
        let core = &mut self.core;
        self.lossy.clear();
        core.transmit_lossy(link, &mut self.lossy);
        let mut fetch = |out: &mut Vec<u8>, limit| core.transmit(now, link, out, limit);
        let Some(links) = self.carriers.get_mut(link.carrier()) else { return };
        if !self.lossy.is_empty() {
            links.write_lossy(now, link, &self.lossy);
        }
        if !links.flush(now, &self.poller, link, &mut fetch) {
            return self.gone(now, link);
        }
        // The kernel's state is read after a flush, because the kernel's queue then does not
        // change for a while.
        if self.core.wants_look(link)
            && let Some(view) = links.look(link)
        {
            self.core.handle_link(now, LinkInput::Seen { link, view });
        }
    }

    fn gone(&mut self, now: Time, link: LinkId) {
        let Some(links) = self.carriers.get_mut(link.carrier()) else { return };
        let input = match links.end(now, &self.poller, link) {
            LinkEnd::Replaced(by) => {
                self.claims.iter_mut().for_each(|claims| claims.replaced(link, by));
                return;
            }
            LinkEnd::Unreachable(target) => Some(LinkInput::Unreachable { target }),
            LinkEnd::QuicFailed(link) => Some(LinkInput::QuicFailed { link }),
            LinkEnd::Broken(fault) => Some(LinkInput::Broken { link, fault }),
            LinkEnd::Lost => Some(LinkInput::Lost { link }),
            LinkEnd::Closed => Some(LinkInput::Closed { link }),
            LinkEnd::Unknown => None,
        };
        self.claims.iter_mut().for_each(|claims| claims.gone(link));
        input.into_iter().for_each(|input| self.core.handle_link(now, input));
    }
}

/// Access to a stream in the protocol core, for the socket that carries the stream's data.
struct StreamAccess<'a, C> {
    core: &'a mut C,
    now: Time,
}

impl<C: LinkCore> CoreStream for StreamAccess<'_, C> {
    fn waiting(&self, stream: StreamKey) -> (&[u8], &[u8]) {
        self.core.read(stream)
    }

    fn accepted(&mut self, stream: StreamKey, bytes: usize) {
        self.core.consume(self.now, stream, bytes);
    }

    fn give(&mut self, stream: StreamKey, bytes: &[u8]) -> usize {
        self.core.write(self.now, stream, bytes)
    }
}

fn listen(tcp: TcpKind, at: SocketAddr) -> io::Result<TcpListener> {
    let named = |error: io::Error| {
        let why = holders::unbindable(Transport::Tcp, at, &error);
        io::Error::new(error.kind(), format!("{at}: {why}"))
    };
    let listener = tcp.listen(at).map_err(named)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onion::links;

    #[test]
    fn tokens_tell_their_owners_apart() {
        assert_eq!(Token::of(3), Token::File(3));
        assert_eq!(Token::of(LISTENERS + 2), Token::Listener(2));
        assert_eq!(Token::of(WAKER), Token::Carrier(2, 0));
        assert_eq!(Token::of(links::token(1, 5)), Token::Carrier(1, 5));
        assert_eq!(Token::of(STREAMS + 7), Token::Stream(7));
    }
}
