//! Carriers of the bytes of one core's links. A [`Carrier`] has sockets (or rings) and the links
//! that go by them; the station asks all of them alike.
//!
//! * [`tcp`]: TLS links, each with a TCP connection of its own.
//! * [`quic`]: QUIC links, which share UDP sockets.
//! * [`ring`]: links to the other shards of a relay, which share memory.

use std::io;
use std::net::{IpAddr, SocketAddr};

use anabranch_links::tls::Context;
use anabranch_multipath::{LinkView, Time};
use anabranch_onion::channel::{Capabilities, QuicWish};
use anabranch_onion::wire::extend::Target;
use anabranch_onion::{CarrierFault, LinkId};
use anabranch_os::poller::{Poller, Ready};

use super::meter::Meter;
use quic::QuicLinks;
use ring::Rings;
use tcp::TcpLinks;

pub(in crate::onion) mod quic;
pub(in crate::onion) mod ring;
pub(in crate::onion) mod tcp;

/// The least token of a carrier's file. The carrier's number stands above its file's.
pub(super) const CARRIERS: u64 = 1 << 60;
/// Bits of a file's number in a token.
const FILE: u32 = 52;

/// The token of a carrier's file.
pub(super) const fn token(carrier: u8, file: u64) -> u64 {
    debug_assert!(file >> FILE == 0, "a file's number has 52 bits");
    CARRIERS | (carrier as u64) << FILE | file
}

/// The carrier and the file of a token.
pub(super) const fn file(token: u64) -> (u8, u64) {
    ((token >> FILE) as u8, token & ((1 << FILE) - 1))
}

/// Source of a core's cells: appends cells up to a length, and returns whether there are more.
pub(super) type Fetch<'a> = dyn FnMut(&mut Vec<u8>, usize) -> bool + 'a;

/// An event of a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkNews {
    /// Its handshake is done.
    Opened(LinkId, Opened),
    /// Something may have been received, and there may be room to send.
    Served(LinkId),
    /// Nothing comes by it any more: [`Carrier::end`] is to be called.
    Ended(LinkId),
}

/// A link whose handshake is done.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// The neighbour's address.
    pub(super) peer: SocketAddr,
    /// The relay that it was to lead to, if we opened it.
    pub(super) target: Option<Target>,
    /// SHA-256 of the certificate that the neighbour showed, if we opened it.
    pub(super) certificate: Option<[u8; 32]>,
    /// SHA-256 of the certificate that we showed, if the neighbour opened it.
    pub(super) own: Option<[u8; 32]>,
    /// Capabilities of the link. Another may stand beside it where nothing is between, so that the
    /// neighbour's address is the neighbour's.
    pub(super) capabilities: Capabilities,
}

/// How a link ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkEnd {
    /// The core knew of it.
    Closed,
    /// The core knew of it, and the neighbour broke the protocol of what carries it.
    Broken(CarrierFault),
    /// The core knew of it, and neither end has closed it.
    Lost,
    /// It never opened, and another one tries the relay's next address.
    Replaced(LinkId),
    /// It never opened, and the relay has no other address.
    Unreachable(Target),
    /// It never opened, and was to stand beside this one.
    NoneBeside(LinkId),
    /// Nobody knew of it.
    Unknown,
}

/// Links that share what carries them.
pub(super) trait Carrier {
    /// Whether there is such a link.
    fn has(&self, link: LinkId) -> bool;

    /// The number of links, open or not.
    fn len(&self) -> usize;

    /// Bytes that went over the wire so far: received, sent.
    fn transferred(&self) -> [u64; 2];

    /// Links whose handshake, or whose end, takes too long. Asked about once a second.
    fn stale(&mut self, now: Time) -> Vec<LinkId>;

    /// When [`Carrier::resume`] is to be called.
    fn next_timeout(&self) -> Option<Time>;

    /// Does what is due, and returns the links that may send: the caller flushes them, then takes
    /// the news.
    fn resume(&mut self, now: Time, poller: &Poller) -> Vec<LinkId>;

    /// Takes what a file of this number has; the caller then takes the news.
    fn receive(&mut self, now: Time, poller: &Poller, file: u64, ready: Ready);

    /// The next news of a link; what was received by it is given to `give`, in order.
    fn next_news(&mut self, now: Time, give: &mut dyn FnMut(LinkId, &[u8])) -> Option<LinkNews>;

    /// Notes that the core has something to send on a link.
    fn wants(&mut self, link: LinkId);

    /// Sends what the core has for a link, as long as there is room. Returns false once the link is
    /// over: [`Carrier::end`] is to be called.
    fn flush(&mut self, now: Time, poller: &Poller, link: LinkId, fetch: &mut Fetch<'_>) -> bool;

    /// The secret that AUTHENTICATE signs.
    fn export(&mut self, _link: LinkId, _context: &[u8; 32]) -> Option<[u8; 32]> {
        None
    }

    /// How a link's connection is doing, where that is known.
    fn look(&mut self, _link: LinkId) -> Option<LinkView> {
        None
    }

    /// Holds all links to these meters, which others share: what is received, and what is sent.
    fn limit(&mut self, _meters: [Meter; 2]) {}

    /// Shows another certificate on links that are opened from now on.
    ///
    /// # Errors
    /// The TLS library's: links show the former one then.
    fn set_context(&mut self, _context: &Context) -> io::Result<()> {
        Ok(())
    }

    /// Closes a link, once a last [`Carrier::flush`] has sent what there is.
    fn close(&mut self, link: LinkId);

    /// Forgets a link, and returns how it ended.
    fn end(&mut self, now: Time, poller: &Poller, link: LinkId) -> LinkEnd;

    /// Has links that transferred next to nothing since the last call give back the room that
    /// bursts took, and returns them.
    fn rest(&mut self) -> Vec<LinkId> {
        Vec::new()
    }

    /// Gives each record of a link `content` bytes from now on, so that it can be opened before its
    /// turn. Returns false if the link has no such records.
    fn fix_records(&mut self, _now: Time, _link: LinkId, _content: usize) -> bool {
        false
    }

    /// Reads cells of circuits on a link from now on: its neighbour is known.
    fn admit_circuits(&mut self, _link: LinkId) {}
}

/// The carriers of one core.
pub(super) struct Carriers {
    pub(super) tcp: TcpLinks,
    /// QUIC links, if there may be any.
    pub(super) quic: Option<QuicLinks>,
    /// The other shards of a relay that has any.
    pub(super) rings: Option<Rings>,
}

impl Carriers {
    /// One past the largest number of a carrier.
    pub(super) const COUNT: u8 = 3;

    /// Links over TCP alone.
    pub(super) fn new(context: Context) -> Carriers {
        Carriers { tcp: TcpLinks::new(context), quic: None, rings: None }
    }

    /// The carrier of a number, if there is one.
    pub(super) fn get_mut(&mut self, carrier: u8) -> Option<&mut dyn Carrier> {
        match carrier {
            tcp::CARRIER => Some(&mut self.tcp),
            quic::CARRIER => self.quic.as_mut().map(|quic| quic as &mut dyn Carrier),
            ring::CARRIER => self.rings.as_mut().map(|rings| rings as &mut dyn Carrier),
            _ => None,
        }
    }

    /// All carriers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &dyn Carrier> {
        let tcp = std::iter::once(&self.tcp as &dyn Carrier);
        let quic = self.quic.iter().map(|quic| quic as &dyn Carrier);
        tcp.chain(quic).chain(self.rings.iter().map(|rings| rings as &dyn Carrier))
    }

    /// Whether there is such a link.
    pub(super) fn has(&self, link: LinkId) -> bool {
        self.iter().any(|carrier| carrier.has(link))
    }

    /// Holds all links to these meters: what is received, and what is sent.
    pub(super) fn limit(&mut self, meters: &[Meter; 2]) {
        for carrier in 0..Carriers::COUNT {
            self.get_mut(carrier).into_iter().for_each(|links| links.limit(meters.clone()));
        }
    }

    /// Shows another certificate on links that are opened from now on.
    ///
    /// # Errors
    /// The first carrier's that cannot; the others show it.
    pub(super) fn set_context(&mut self, context: &Context) -> io::Result<()> {
        let set =
            |carrier| self.get_mut(carrier).map_or(Ok(()), |links| links.set_context(context));
        let shown: Vec<io::Result<()>> = (0..Carriers::COUNT).map(set).collect();
        shown.into_iter().collect()
    }

    /// How a second link is wanted beside one to this neighbour, if one is.
    pub(super) fn wish(&self, peer: IpAddr) -> Option<QuicWish> {
        self.quic.as_ref().map(|quic| quic.wish(peer))
    }

    /// Opens a link beside another: the carrier that has news of it.
    ///
    /// # Errors
    /// The kernel's or the library's, or no carrier opens such links.
    pub(super) fn open_beside(
        &mut self,
        now: Time,
        poller: &Poller,
        link: LinkId,
        target: (Target, Option<u8>),
    ) -> io::Result<u8> {
        let quic = self.quic.as_mut().ok_or(io::ErrorKind::Unsupported)?;
        quic.connect(now, poller, link, target).map(LinkId::carrier)
    }
}

/// Events of a link that were not returned yet.
#[derive(Debug)]
struct Fresh {
    link: LinkId,
    opened: Option<Opened>,
    /// Received bytes wait to be given.
    is_unread: bool,
    ended: bool,
}

impl Fresh {
    fn new(link: LinkId, opened: Option<Opened>, ended: bool) -> Fresh {
        Fresh { link, opened, is_unread: true, ended }
    }

    /// The next news of what is kept in `fresh`, whose bytes are `plain`.
    fn next(
        fresh: &mut Option<Fresh>,
        plain: &mut Vec<u8>,
        give: &mut dyn FnMut(LinkId, &[u8]),
    ) -> Option<LinkNews> {
        let news = fresh.as_mut()?;
        if let Some(opened) = news.opened.take() {
            return Some(LinkNews::Opened(news.link, opened));
        }
        if std::mem::take(&mut news.is_unread) {
            if !plain.is_empty() {
                give(news.link, plain);
                plain.clear();
            }
            return Some(LinkNews::Served(news.link));
        }
        fresh.take().filter(|news| news.ended).map(|news| LinkNews::Ended(news.link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_a_carriers_file() {
        let largest = (1 << FILE) - 1;
        for (carrier, number) in [(0, 0), (1, 7), (2, largest), (u8::MAX, 1)] {
            let token = token(carrier, number);
            assert!((CARRIERS..2 * CARRIERS).contains(&token));
            assert_eq!(file(token), (carrier, number));
        }
    }
}
