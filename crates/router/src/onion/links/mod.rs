//! Carriers of one core's links. A [`Carrier`] owns sockets (or rings) and the links over them; the
//! station treats all carriers alike.
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

/// Smallest token of a carrier's file: it contains the carrier's number, and below that the file's.
pub(super) const CARRIERS: u64 = 1 << 60;
/// Bits of a file's number in a token.
const FILE: u32 = 52;

/// Returns the token of the file `file` of `carrier`.
pub(super) const fn token(carrier: u8, file: u64) -> u64 {
    debug_assert!(file >> FILE == 0, "a file's number has 52 bits");
    CARRIERS | (carrier as u64) << FILE | file
}

/// Returns the carrier and the file of `token`.
pub(super) const fn file(token: u64) -> (u8, u64) {
    ((token >> FILE) as u8, token & ((1 << FILE) - 1))
}

/// Source of a core's cells: appends cells up to a length, and returns whether there are more.
pub(super) type Fetch<'a> = dyn FnMut(&mut Vec<u8>, usize) -> bool + 'a;

/// An event of a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkNews {
    /// The handshake is complete.
    Opened(LinkId, Opened),
    /// Data may have arrived, and there may be room to send.
    Served(LinkId),
    /// The link is over: the station has to call [`Carrier::end`].
    Ended(LinkId),
}

/// A link whose handshake is complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// The neighbour's address.
    pub(super) peer: SocketAddr,
    /// The relay that we dialled, if we opened it.
    pub(super) target: Option<Target>,
    /// SHA-256 of the neighbour's certificate, if we opened it.
    pub(super) certificate: Option<[u8; 32]>,
    /// SHA-256 of our certificate, if the neighbour opened it.
    pub(super) own: Option<[u8; 32]>,
    /// Capabilities of the link. A second link may be opened alongside it if no proxy is in
    /// between, so that `peer` is the neighbour's own address.
    pub(super) capabilities: Capabilities,
}

/// Result of ending a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkEnd {
    /// The core knew of the link.
    Closed,
    /// The core knew of the link, and the neighbour violated the carrier's protocol.
    Broken(CarrierFault),
    /// The core knew of the link, and neither end has closed it.
    Lost,
    /// It never opened; this new link tries the relay's next address.
    Replaced(LinkId),
    /// It never opened, and the relay has no other address.
    Unreachable(Target),
    /// It never opened; it was to be a second link alongside this one.
    NoneBeside(LinkId),
    /// The core did not know of it.
    Unknown,
}

/// A set of links over one kind of transport.
pub(super) trait Carrier {
    /// Returns whether it has the link `link`.
    fn has(&self, link: LinkId) -> bool;

    /// Returns the number of links, open or not.
    fn len(&self) -> usize;

    /// Returns the bytes on the wire so far: received, sent.
    fn transferred(&self) -> [u64; 2];

    /// Returns links whose handshake or shutdown has timed out. Called about once a second.
    fn stale(&mut self, now: Time) -> Vec<LinkId>;

    /// Returns the time of the next call to [`Carrier::resume`].
    fn next_timeout(&self) -> Option<Time>;

    /// Runs what is due, and returns the links that may send: the caller flushes them, then takes
    /// the news.
    fn resume(&mut self, now: Time, poller: &Poller) -> Vec<LinkId>;

    /// Services the file number `file`, which is ready; the caller then takes the news.
    fn receive(&mut self, now: Time, poller: &Poller, file: u64, ready: Ready);

    /// Returns the next event of a link, after passing received data to `give`, in order.
    fn next_news(&mut self, now: Time, give: &mut dyn FnMut(LinkId, &[u8])) -> Option<LinkNews>;

    /// Notes that the core has something to send on `link`.
    fn wants(&mut self, link: LinkId);

    /// Sends the core's data for a link, as far as there is room. Returns false once the link is
    /// over: the caller then calls [`Carrier::end`].
    fn flush(&mut self, now: Time, poller: &Poller, link: LinkId, fetch: &mut Fetch<'_>) -> bool;

    /// Returns the exported secret that AUTHENTICATE signs.
    fn export(&mut self, _link: LinkId, _context: &[u8; 32]) -> Option<[u8; 32]> {
        None
    }

    /// Returns the state of a link's connection, if it is known.
    fn look(&mut self, _link: LinkId) -> Option<LinkView> {
        None
    }

    /// Limits all links by these shared meters: for receiving and for sending.
    fn limit(&mut self, _meters: [Meter; 2]) {}

    /// Uses another certificate for new links.
    ///
    /// # Errors
    /// The TLS library's: the old certificate stays.
    fn set_context(&mut self, _context: &Context) -> io::Result<()> {
        Ok(())
    }

    /// Closes a link, once a last [`Carrier::flush`] has sent the remaining data.
    fn close(&mut self, link: LinkId);

    /// Removes `link`, and returns how it ended.
    fn end(&mut self, now: Time, poller: &Poller, link: LinkId) -> LinkEnd;

    /// Releases the buffers of links that were idle since the last call, and returns those links.
    fn rest(&mut self) -> Vec<LinkId> {
        Vec::new()
    }

    /// Gives each record of a link `content` bytes from now on, so that records can be opened out
    /// of order. Returns false if the link does not support that.
    fn fix_records(&mut self, _now: Time, _link: LinkId, _content: usize) -> bool {
        false
    }

    /// Accepts cells of circuits on a link whose neighbour is now known.
    fn admit_circuits(&mut self, _link: LinkId) {}
}

/// The carriers of one core.
pub(super) struct Carriers {
    pub(super) tcp: TcpLinks,
    /// QUIC links, if enabled.
    pub(super) quic: Option<QuicLinks>,
    /// Links to the relay's other shards, if it has any.
    pub(super) rings: Option<Rings>,
}

impl Carriers {
    /// One more than the largest carrier number.
    pub(super) const COUNT: u8 = 3;

    /// Creates carriers with only TCP links.
    pub(super) fn new(context: Context) -> Carriers {
        Carriers { tcp: TcpLinks::new(context), quic: None, rings: None }
    }

    /// Returns the carrier with a number, if there is one.
    pub(super) fn get_mut(&mut self, carrier: u8) -> Option<&mut dyn Carrier> {
        match carrier {
            tcp::CARRIER => Some(&mut self.tcp),
            quic::CARRIER => self.quic.as_mut().map(|quic| quic as &mut dyn Carrier),
            ring::CARRIER => self.rings.as_mut().map(|rings| rings as &mut dyn Carrier),
            _ => None,
        }
    }

    /// Returns all carriers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &dyn Carrier> {
        let tcp = std::iter::once(&self.tcp as &dyn Carrier);
        let quic = self.quic.iter().map(|quic| quic as &dyn Carrier);
        tcp.chain(quic).chain(self.rings.iter().map(|rings| rings as &dyn Carrier))
    }

    /// Returns whether any carrier has `link`.
    pub(super) fn has(&self, link: LinkId) -> bool {
        self.iter().any(|carrier| carrier.has(link))
    }

    /// Limits all links by `meters`: for receiving and for sending.
    pub(super) fn limit(&mut self, meters: &[Meter; 2]) {
        for carrier in 0..Carriers::COUNT {
            self.get_mut(carrier).into_iter().for_each(|links| links.limit(meters.clone()));
        }
    }

    /// Uses another certificate for new links.
    ///
    /// # Errors
    /// That of the first carrier that fails; the others use the new certificate.
    pub(super) fn set_context(&mut self, context: &Context) -> io::Result<()> {
        let set =
            |carrier| self.get_mut(carrier).map_or(Ok(()), |links| links.set_context(context));
        let shown: Vec<io::Result<()>> = (0..Carriers::COUNT).map(set).collect();
        shown.into_iter().collect()
    }

    /// Returns the parameters for a second link to the neighbour at `peer`, over QUIC, if that is
    /// enabled.
    pub(super) fn wish(&self, peer: IpAddr) -> Option<QuicWish> {
        self.quic.as_ref().map(|quic| quic.wish(peer))
    }

    /// Opens a second link alongside `link`; returns the carrier that will have its events.
    ///
    /// # Errors
    /// The kernel's or the library's, or no carrier supports that.
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
    /// Received bytes have not been delivered yet.
    is_unread: bool,
    ended: bool,
}

impl Fresh {
    fn new(link: LinkId, opened: Option<Opened>, ended: bool) -> Fresh {
        Fresh { link, opened, is_unread: true, ended }
    }

    /// Returns the next event in `fresh`, whose received bytes are in `plain`.
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
