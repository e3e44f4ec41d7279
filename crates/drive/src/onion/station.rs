//! A core and its links, for either role: one thread's sockets, and the four calls that move bytes
//! between both.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use anabranch_links::tls::Context;
use anabranch_multipath::Time;
use anabranch_onion::channel::Start;
use anabranch_onion::wire::extend::Target;
use anabranch_onion::wire::link::Identity;
use anabranch_onion::{Core, LinkId, LinkInput, LinkOutput, Moment, StreamKey};

use super::dirclient::unix;
use super::links::{LINKS, Links};
use super::outside::{Inside, Outside, OutsideEvent, Stir};
use super::siblings::{SiblingLink, Siblings, is_sibling};
use super::tap::{Tap, save_syns};
use crate::clock::Clock;
use crate::files::Spare;
use crate::poller::{Poller, Ready};

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
    pub(super) listeners: Vec<TcpListener>,
    spare: Spare,
    /// The addresses that neighbours are told are ours; none for a client.
    pub(super) own: Vec<IpAddr>,
    /// The other shards of a relay that has any.
    siblings: Option<Siblings>,
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
    /// A stream's socket, by the role's number.
    Stream(u64),
}

impl Token {
    /// Whose it is.
    pub(super) fn of(token: u64) -> Token {
        match token {
            0..LISTENERS => Token::File(token),
            LISTENERS..LINKS => Token::Listener((token - LISTENERS) as usize),
            LINKS..STREAMS => Token::Link(LinkId(token - LINKS)),
            _ => Token::Stream(token - STREAMS),
        }
    }
}

impl<C: Core> Station<C> {
    /// A core without links that listens at these addresses.
    ///
    /// # Errors
    /// An address cannot be listened on (it is named), or the kernel has no files left.
    pub(super) fn new(
        clock: Clock,
        core: C,
        context: Context,
        at: &[SocketAddr],
        own: Vec<IpAddr>,
    ) -> io::Result<Station<C>> {
        let poller = Poller::new(1024)?;
        let listeners = at.iter().map(listen).collect::<io::Result<Vec<_>>>()?;
        for (token, listener) in (LISTENERS..).zip(&listeners) {
            poller.add(listener, token)?;
        }
        let (links, siblings) = (Links::new(context), None);
        let (swept, rested) = (Time::ZERO, Time::ZERO);
        Ok(Station {
            clock,
            core,
            poller,
            links,
            listeners,
            spare: Spare::new(),
            own,
            siblings,
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

    /// Waits until a file is ready, or the core (or `other`) wants to be called, or a tick has
    /// passed.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn wait(&mut self, other: Option<Time>) -> io::Result<Vec<Ready>> {
        let now = self.clock.now();
        let own = [self.core.next_timeout(), self.links.next_timeout(), other];
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
        let news = self.links.read(now, &self.poller, link, ready);
        if let Some(opened) = news.opened {
            let start = Start {
                now,
                unix,
                peer: opened.peer.ip(),
                own: self.own.clone(),
                peer_certificate: opened.certificate,
                own_certificate: opened.own,
                whole: opened.whole,
                unordered: opened.unordered,
            };
            let target = opened.target;
            self.core.handle_link(now, LinkInput::Opened { link, target, start });
        }
        if !news.bytes.is_empty() {
            self.core.handle_link(now, LinkInput::Bytes { link, bytes: news.bytes });
        }
        let ended = news.ended;
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
                self.links.wants(link);
                self.flush(now, link);
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
            LinkOutput::Export { link, context } => match self.links.export(link, &context) {
                Some(secret) => self.core.handle_link(now, LinkInput::Exported { link, secret }),
                None => self.gone(now, link),
            },
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
        if let Some(siblings) = self.siblings.as_mut().filter(|_| self.links.has(link)) {
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

fn listen(at: &SocketAddr) -> io::Result<TcpListener> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{at}: {error}"));
    let listener = TcpListener::bind(at).map_err(named)?;
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
        assert_eq!(Token::of(LINKS + 5), Token::Link(LinkId(5)));
        assert_eq!(Token::of(STREAMS + 7), Token::Stream(7));
    }
}
