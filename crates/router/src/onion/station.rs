//! A core and its links, for either role: one thread's sockets, and the four calls that move bytes
//! between both.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use anabranch_links::tls::Context;
use anabranch_multipath::Time;
use anabranch_onion::channel::{LinkKind, Start};
use anabranch_onion::wire::extend::Target;
use anabranch_onion::wire::link::Identity;
use anabranch_onion::{CarrierFault, Core, LinkId, LinkInput, LinkOutput, Moment, StreamKey};
use anabranch_os::clock::Clock;
use anabranch_os::files::Spare;
use anabranch_os::poller::{Poller, Ready};

use super::dirclient::unix;
use super::links::{LINKS, Links, TCP};
use super::meter::Meter;
use super::mptcp::TcpKind;
use super::newcomers::Entrance;
use super::outside::{Inside, Outside, OutsideEvent, Stir};
use super::quic::{QUIC, QuicCounts, QuicEnd, QuicLinking, QuicLinks, QuicSockets, is_quic};
use super::siblings::{SiblingLink, Siblings, is_sibling};
use super::tap::{Tap, save_syns};
use anabranch_os::holders::{self, Transport};

/// The least token of a listener: its place added to this. Smaller ones are single files, of the
/// role but for one.
pub(super) const LISTENERS: u64 = 16;
/// The token of the bell that siblings ring: then [`Station::take_siblings`] is to be called.
pub(super) const BELL: u64 = LISTENERS - 1;
/// The token of what shows segments before their turn: then [`Station::look_ahead`] is to be
/// called.
pub(super) const TAP: u64 = LISTENERS - 2;
/// The least token of a stream's socket; what is added to it is for the role to say.
pub(super) const STREAMS: u64 = 1 << 61;
/// Between two looks at what is not told by any file.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// Between two looks at which links rest.
const REST: Duration = Duration::from_secs(10);

/// A core, its links, and where others come in.
pub(super) struct Station<C> {
    pub(super) clock: Clock,
    pub(super) core: C,
    pub(super) poller: Poller,
    pub(super) links: Links,
    /// QUIC links, if there may be any.
    pub(super) quic: Option<QuicLinks>,
    pub(super) listeners: Vec<TcpListener>,
    spare: Spare,
    /// The addresses that neighbours are told are ours; none for a client.
    pub(super) own: Vec<IpAddr>,
    /// Bytes that a QUIC link brought.
    plain: Vec<u8>,
    /// The other shards of a relay that has any.
    siblings: Option<Siblings>,
    /// Links are opened for one circuit each, whatever siblings have.
    dedicates_links: bool,
    /// When links were last looked through for those that do not open, and for those that rest.
    swept: Time,
    rested: Time,
}

/// Whose a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// One of the role's single files.
    File(u64),
    /// The listener at this place.
    Listener(usize),
    /// A link.
    Link(LinkId),
    /// The QUIC socket at this place.
    Quic(usize),
    /// A stream's socket, by the role's number.
    Stream(u64),
}

impl Token {
    /// Whose it is.
    pub(super) fn of(token: u64) -> Token {
        match token {
            0..LISTENERS => Token::File(token),
            LISTENERS..QUIC => Token::Listener((token - LISTENERS) as usize),
            QUIC..LINKS => Token::Quic((token - QUIC) as usize),
            LINKS..STREAMS => Token::Link(LinkId::new(TCP, token - LINKS)),
            _ => Token::Stream(token - STREAMS),
        }
    }
}

impl<C: Core> Station<C> {
    /// A core without links that listens at these addresses; `tcp` is the kind of its listeners
    /// and of the links that it opens.
    ///
    /// # Errors
    /// An address cannot be listened on (it is named), or the kernel has no files left.
    pub(super) fn new(
        clock: Clock,
        core: C,
        context: Context,
        (tcp, at): (TcpKind, &[SocketAddr]),
        own: Vec<IpAddr>,
    ) -> io::Result<Station<C>> {
        let poller = Poller::new(1024)?;
        let listeners = at.iter().map(|at| listen(tcp, *at)).collect::<io::Result<Vec<_>>>()?;
        for (token, listener) in (LISTENERS..).zip(&listeners) {
            poller.add(listener, token)?;
        }
        let (mut links, siblings) = (Links::new(context), None);
        links.tcp = tcp;
        let (swept, rested) = (Time::ZERO, Time::ZERO);
        Ok(Station {
            clock,
            core,
            poller,
            links,
            quic: None,
            listeners,
            spare: Spare::new(),
            own,
            plain: Vec::new(),
            siblings,
            dedicates_links: false,
            swept,
            rested,
        })
    }

    /// Links may be unordered from now on, with this to show segments before their turn.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn unorder(&mut self, tap: Tap) -> io::Result<()> {
        tap.file().map(|file| self.watch(file, TAP)).transpose()?;
        // Where a kernel keeps no SYNs, links that come stay in order.
        self.listeners.iter().for_each(|listener| drop(save_syns(listener)));
        self.links.set_tap(tap);
        Ok(())
    }

    /// QUIC links may be opened beside others from now on. They are held to the same meters as
    /// others, if there are any.
    pub(super) fn open_quic(&mut self, linking: QuicLinking, meters: Option<[Meter; 2]>) {
        let mut quic = QuicLinks::new(self.links.context().clone(), linking);
        meters.into_iter().for_each(|meters| quic.limit(meters));
        self.quic = Some(quic);
    }

    /// QUIC links come in at these sockets from now on, and are counted with others.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn listen_quic(
        &mut self,
        sockets: QuicSockets,
        entrance: Entrance,
    ) -> io::Result<()> {
        let Some(quic) = &mut self.quic else { return Ok(()) };
        quic.listen(&self.poller, sockets, entrance)
    }

    /// Takes no QUIC links any more; those that there are go on.
    pub(super) fn refuse_quic(&mut self) {
        self.quic.iter_mut().for_each(QuicLinks::refuse);
    }

    /// Links that are opened from now on show another certificate.
    ///
    /// # Errors
    /// The TLS library's: QUIC links show the former one then.
    pub(super) fn set_context(&mut self, context: Context) -> io::Result<()> {
        let shown = self.quic.iter_mut().try_for_each(|quic| quic.set_context(&context));
        self.links.set_context(context);
        shown
    }

    /// Links that are there, open or not.
    pub(super) fn link_count(&self) -> usize {
        self.links.len() + self.quic.as_ref().map_or(0, QuicLinks::len)
    }

    /// Bytes that links received and sent since the beginning.
    pub(super) fn carried(&self) -> [u64; 2] {
        let quic = self.quic.as_ref().map_or([0; 2], QuicLinks::carried);
        let tls = self.links.carried();
        [tls[0] + quic[0], tls[1] + quic[1]]
    }

    /// What came of QUIC links so far, if there may be any.
    pub(super) fn quic_counts(&self) -> Option<QuicCounts> {
        self.quic.as_ref().map(QuicLinks::counts)
    }

    /// Takes what a QUIC socket brought to the core.
    pub(super) fn take_quic(&mut self, now: Time, place: usize) {
        if let Some(quic) = &mut self.quic {
            quic.receive(now, &self.poller, place);
        }
        self.look_at_quic(now);
    }

    /// Looks at all QUIC links at which something may have changed.
    fn look_at_quic(&mut self, now: Time) {
        while let Some(link) = self.quic.as_mut().and_then(|quic| quic.next_touched(now)) {
            self.look_at(now, link);
        }
    }

    /// Takes what a QUIC link brought to the core, and what waits for it to the socket.
    fn look_at(&mut self, now: Time, link: LinkId) {
        let Some(quic) = &mut self.quic else { return };
        let mut plain = std::mem::take(&mut self.plain);
        let news = quic.look(link, &mut plain);
        if let Some(opened) = news.opened {
            let start = Start {
                now,
                unix: self.unix(now),
                peer: opened.peer.ip(),
                own: self.own.clone(),
                peer_certificate: opened.certificate,
                own_certificate: opened.own,
                kind: LinkKind::Quic,
                whole: true,
                unordered: false,
                beside: None,
            };
            let target = opened.target;
            self.core.handle_link(now, LinkInput::Opened { link, target, start });
        }
        if !plain.is_empty() {
            self.core.handle_link(now, LinkInput::Bytes { link, bytes: &plain });
        }
        plain.clear();
        self.plain = plain;
        match news.ended {
            true => self.quic_gone(now, link),
            false => self.flush(now, link),
        }
    }

    /// A QUIC link is over.
    fn quic_gone(&mut self, now: Time, link: LinkId) {
        let Some(quic) = &mut self.quic else { return };
        let end = quic.close(now, link);
        if let Some(siblings) = &mut self.siblings {
            siblings.gone(link);
        }
        match end {
            QuicEnd::Lost => self.core.handle_link(now, LinkInput::Lost { link }),
            QuicEnd::Broken => {
                let fault = CarrierFault::Stream;
                self.core.handle_link(now, LinkInput::Broken { link, fault });
            }
            QuicEnd::Closed => self.core.handle_link(now, LinkInput::Closed { link }),
            QuicEnd::Unopened(link) => self.core.handle_link(now, LinkInput::NoneBeside { link }),
            QuicEnd::Unknown => {}
        }
    }

    /// Opens a QUIC link beside another.
    fn open_beside(&mut self, now: Time, link: LinkId, target: (Target, Option<u8>)) {
        let quic = self.quic.as_mut();
        let opened = quic.map(|quic| quic.connect(now, &self.poller, link, target));
        match opened {
            Some(Ok(_)) => self.look_at_quic(now),
            _ => self.core.handle_link(now, LinkInput::NoneBeside { link }),
        }
    }

    /// Takes what came before its turn to the core.
    pub(super) fn look_ahead(&mut self, now: Time) {
        for link in self.links.look_ahead(now) {
            let bytes = self.links.take_early(link);
            if !bytes.is_empty() {
                self.core.handle_link(now, LinkInput::Bytes { link, bytes });
                self.flush(now, link);
            }
        }
    }

    /// Joins the core with others of the same relay.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn join(&mut self, siblings: Siblings) -> io::Result<()> {
        self.watch(&**siblings.bell(), BELL)?;
        for SiblingLink { link, first, shard } in siblings.links() {
            let input = LinkInput::Sibling { link, first, shard };
            self.core.handle_link(self.clock.now(), input);
        }
        self.siblings = Some(siblings);
        Ok(())
    }

    /// The core opens a link for each circuit from now on.
    pub(super) fn dedicate_links(&mut self) {
        self.dedicates_links = true;
    }

    /// Whether it does.
    pub(super) fn dedicates_links(&self) -> bool {
        self.dedicates_links
    }

    /// Watches one of the role's single files.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn watch(&self, file: impl AsFd, token: u64) -> io::Result<()> {
        debug_assert!(token < LISTENERS, "larger ones are listeners'");
        self.poller.add(file, token)
    }

    /// The addresses that are listened at.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Accepts the next connection of the listener `place`; `None` if there is none. Where file
    /// descriptors run out, a connection is accepted on a spare one and closed at once.
    pub(super) fn accept(&mut self, place: usize) -> Option<(TcpStream, SocketAddr)> {
        self.spare.accept(self.listeners.get(place)?)
    }

    /// Connections that were closed at once for want of file descriptors.
    pub(super) fn turned_away(&self) -> u64 {
        self.spare.turned_away()
    }

    /// Waits until a file is ready, or the core (or `other`) wants to be called, or a tick has
    /// passed.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn wait(&mut self, other: Option<Time>) -> io::Result<Vec<Ready>> {
        let now = self.clock.now();
        let quic = self.quic.as_ref().and_then(QuicLinks::next_timeout);
        let own = [self.core.next_timeout(), self.links.next_timeout(), quic, other];
        let next = own.into_iter().flatten().min();
        let pause = next.map_or(TICK, |time| time.since(now).min(TICK));
        Ok(self.poller.wait(Some(pause))?.collect())
    }

    /// Whether the core wants to be told the time.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.core.next_timeout().is_some_and(|time| time <= now)
    }

    /// Takes what a link's socket brought to the core, and what waits for it to the socket.
    pub(super) fn take_link(&mut self, now: Time, link: LinkId, ready: Ready) {
        let unix = self.unix(now);
        let quic = self.quic.as_ref();
        let news = self.links.read(now, &self.poller, link, ready);
        if let Some(opened) = news.opened {
            let start = Start {
                now,
                unix,
                peer: opened.peer.ip(),
                own: self.own.clone(),
                peer_certificate: opened.certificate,
                own_certificate: opened.own,
                kind: LinkKind::Tls,
                whole: opened.whole,
                unordered: opened.unordered,
                beside: quic.filter(|_| opened.straight).map(|quic| quic.wish(opened.peer.ip())),
            };
            let target = opened.target;
            self.core.handle_link(now, LinkInput::Opened { link, target, start });
        }
        if !news.bytes.is_empty() {
            self.core.handle_link(now, LinkInput::Bytes { link, bytes: news.bytes });
        }
        let (ended, fault) = (news.ended, news.fault);
        if let Some(fault) = fault {
            // The socket may be gone as well, which is found when the alert goes.
            self.core.handle_link(now, LinkInput::Broken { link, fault });
        }
        self.flush(now, link);
        if ended {
            self.gone(now, link);
        }
    }

    /// Lets links go on that were held back, if they may, gives up those that do not open, and has
    /// those that rest take less room.
    pub(super) fn resume(&mut self, now: Time) {
        if now.since(self.swept) >= TICK {
            self.swept = now;
            self.links.stale(now).into_iter().for_each(|link| self.gone(now, link));
            let late = self.quic.as_ref().map(|quic| quic.stale(now)).unwrap_or_default();
            late.into_iter().for_each(|link| self.quic_gone(now, link));
        }
        if now.since(self.rested) >= REST {
            self.rested = now;
            for link in self.links.rest() {
                self.core.rest(link);
            }
        }
        let due = self.links.next_timeout().is_some_and(|time| time <= now);
        let links = if due { self.links.resume(now, &self.poller) } else { Vec::new() };
        links.into_iter().for_each(|link| self.flush(now, link));
        if let Some(quic) = &mut self.quic
            && quic.next_timeout().is_some_and(|time| time <= now)
        {
            let links = quic.resume(now, &self.poller);
            links.into_iter().for_each(|link| self.flush(now, link));
            self.look_at_quic(now);
        }
    }

    /// Does what the core wants done with a link.
    pub(super) fn obey(&mut self, now: Time, output: LinkOutput) {
        match output {
            LinkOutput::Dial { target } => self.dial(now, target),
            LinkOutput::Transmit { link } if is_sibling(link) => {
                if let Some(siblings) = &mut self.siblings {
                    siblings.wants(link);
                }
                self.flush_siblings(now);
            }
            LinkOutput::Transmit { link } => {
                match self.quic.as_mut().filter(|_| is_quic(link)) {
                    Some(quic) => quic.wants(link),
                    None => self.links.wants(link),
                }
                self.flush(now, link);
            }
            LinkOutput::OpenBeside { link, target, begins } => {
                self.open_beside(now, link, (target, begins));
            }
            LinkOutput::AdmitCircuits { link } => {
                if let Some(quic) = &mut self.quic {
                    quic.admit(link);
                }
                self.look_at(now, link);
            }
            LinkOutput::Close { link } if is_quic(link) => {
                self.flush(now, link);
                self.quic_gone(now, link);
            }
            LinkOutput::Close { link } => {
                self.links.close(link);
                self.flush(now, link);
            }
            LinkOutput::FixRecords { link, content } => {
                match self.links.unorder(now, link, content) {
                    true => self.core.handle_link(now, LinkInput::RecordsFixed { link }),
                    false => self.gone(now, link),
                }
            }
            LinkOutput::Export { link, context } => {
                let secret = match self.quic.as_mut().filter(|_| is_quic(link)) {
                    Some(quic) => quic.export(link, &context),
                    None => self.links.export(link, &context),
                };
                match secret {
                    Some(secret) => {
                        self.core.handle_link(now, LinkInput::Exported { link, secret });
                    }
                    None if is_quic(link) => self.quic_gone(now, link),
                    None => self.gone(now, link),
                }
            }
        }
    }

    /// Moves bytes between a stream in the core and its socket outside, which has this number; what
    /// the role is to do about it.
    pub(super) fn stir(
        &mut self,
        now: Time,
        number: u64,
        outside: &mut Outside,
        what: Stir,
    ) -> OutsideEvent {
        let told = outside.stir(what, &mut Within { core: &mut self.core, now });
        // It is watched as long as it is in its role's table.
        let _ = self.poller.change(outside.socket(), STREAMS + number, outside.interest());
        told
    }

    /// Seconds since 1970, as the machine's clock has them now: it may have been set since we
    /// began, and goes on while the machine sleeps, which ours does not.
    pub(super) fn unix(&self, _: Time) -> u64 {
        unix()
    }

    /// That, and our own clock.
    pub(super) fn moment(&self, now: Time) -> Moment {
        Moment { now, unix: self.unix(now) }
    }

    /// A link leads to this relay now.
    pub(super) fn opened(&mut self, link: LinkId, identity: &Identity) {
        // It may be gone before this is told.
        let quic = self.quic.as_ref().is_some_and(|quic| quic.has(link));
        if let Some(siblings) = self.siblings.as_mut().filter(|_| quic || self.links.has(link)) {
            siblings.opened(link, identity.rsa);
        }
    }

    /// Takes what siblings sent to the core, and sends what waited for room.
    pub(super) fn take_siblings(&mut self, now: Time) {
        let Some(siblings) = &mut self.siblings else { return };
        let core = &mut self.core;
        siblings.take(|link, bytes| core.handle_link(now, LinkInput::Bytes { link, bytes }));
        self.flush_siblings(now);
    }

    fn flush_siblings(&mut self, now: Time) {
        let Some(siblings) = &mut self.siblings else { return };
        let core = &mut self.core;
        siblings.flush(|link, out, limit| core.transmit(now, link, out, limit));
    }

    fn dial(&mut self, now: Time, target: Target) {
        if self.dedicates_links {
            // It counts with siblings once it is open.
            if self.links.dial(&self.poller, target.clone()).is_err() {
                self.core.handle_link(now, LinkInput::Unreachable { target });
            }
            return;
        }
        let rsa = target.rsa;
        if let Some(link) = self.siblings.as_ref().and_then(|siblings| siblings.claim(rsa)) {
            return self.core.handle_link(now, LinkInput::Elsewhere { target, link });
        }
        let dialled = self.links.dial(&self.poller, target.clone());
        if let Some(siblings) = &mut self.siblings {
            match &dialled {
                Ok(link) => siblings.count(*link, rsa),
                Err(_) => siblings.failed(rsa),
            }
        }
        if dialled.is_err() {
            self.core.handle_link(now, LinkInput::Unreachable { target });
        }
    }

    fn flush(&mut self, now: Time, link: LinkId) {
        let core = &mut self.core;
        let fetch = |out: &mut Vec<u8>, limit| core.transmit(now, link, out, limit);
        if let Some(quic) = self.quic.as_mut().filter(|_| is_quic(link)) {
            quic.flush(now, link, fetch);
            if self.core.wants_look(link)
                && let Some(view) = quic.view(link)
            {
                self.core.handle_link(now, LinkInput::Seen { link, view });
            }
            return;
        }
        if !self.links.flush(now, &self.poller, link, fetch) {
            return self.gone(now, link);
        }
        // Behind a flush, when the queue in the kernel is as it will stay for a while.
        if self.core.wants_look(link)
            && let Some(view) = self.links.look(link)
        {
            self.core.handle_link(now, LinkInput::Seen { link, view });
        }
    }

    fn gone(&mut self, now: Time, link: LinkId) {
        if let Some(again) = self.links.dial_again(&self.poller, link) {
            if let Some(siblings) = &mut self.siblings {
                siblings.replaced(link, again);
            }
            return;
        }
        if let Some(siblings) = &mut self.siblings {
            siblings.gone(link);
        }
        let input = match self.links.remove(link) {
            Some(target) => LinkInput::Unreachable { target },
            None => LinkInput::Closed { link },
        };
        self.core.handle_link(now, input);
    }
}

/// The core's side of a stream.
struct Within<'a, C> {
    core: &'a mut C,
    now: Time,
}

impl<C: Core> Inside for Within<'_, C> {
    fn waiting(&self, stream: StreamKey) -> (&[u8], &[u8]) {
        self.core.read(stream)
    }

    fn took(&mut self, stream: StreamKey, bytes: usize) {
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

    #[test]
    fn tokens_tell_their_owners_apart() {
        assert_eq!(Token::of(3), Token::File(3));
        assert_eq!(Token::of(LISTENERS + 2), Token::Listener(2));
        assert_eq!(Token::of(QUIC + 1), Token::Quic(1));
        assert_eq!(Token::of(LINKS + 5), Token::Link(LinkId::new(TCP, 5)));
        assert_eq!(Token::of(STREAMS + 7), Token::Stream(7));
    }
}
