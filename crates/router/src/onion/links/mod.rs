//! Carriers of the links of one core (a client's or relay's protocol state). A [`Carrier`] owns
//! sockets or shared-memory rings, and the links over them. The event loop (`station`) treats all
//! carriers alike.
//!
//! * [`tcp`]: TLS links, each with its own TCP connection.
//! * [`quic`]: QUIC links, which share UDP sockets.
//! * [`ring`]: links to the other shards of a relay, through shared memory.

use std::io;
use std::net::{IpAddr, SocketAddr};

use anabranch_links::tls::Context;
use anabranch_multipath::{LinkView, Time};
use anabranch_onion::channel::{Capabilities, QuicPreferences};
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

/// Smallest poller token of a carrier's file. A token contains the carrier's number, and the
/// file's number in the lower bits.
pub(super) const CARRIERS: u64 = 1 << 60;
/// Number of bits for a file's number in a token.
const FILE: u32 = 52;

/// Returns the poller token of the file `file` of the carrier `carrier`.
pub(super) const fn token(carrier: u8, file: u64) -> u64 {
    debug_assert!(file >> FILE == 0, "a file's number has 52 bits");
    CARRIERS | (carrier as u64) << FILE | file
}

/// Returns the numbers of the carrier and of the file in `token`.
pub(super) const fn file(token: u64) -> (u8, u64) {
    ((token >> FILE) as u8, token & ((1 << FILE) - 1))
}

/// Source of a core's cells. It appends cells to a vector up to the given length of the vector, and
/// returns whether there are more.
pub(super) type Fetch<'a> = dyn FnMut(&mut Vec<u8>, usize) -> bool + 'a;

/// An event of a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkEvent {
    /// The handshake of the link is complete.
    Opened(LinkId, Opened),
    /// Data may have arrived on the link, or there may be room to send again.
    Served(LinkId),
    /// The link has ended: the station has to call [`Carrier::end`].
    Ended(LinkId),
}

/// A link whose handshake is complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// The neighbour's address.
    pub(super) peer: SocketAddr,
    /// Relay that we dialled; `None` if the neighbour opened the link.
    pub(super) target: Option<Target>,
    /// SHA-256 of the neighbour's certificate; `None` if the neighbour opened the link.
    pub(super) certificate: Option<[u8; 32]>,
    /// SHA-256 of our certificate; `None` if we opened the link.
    pub(super) own: Option<[u8; 32]>,
    /// Capabilities of the link. They allow a second link alongside only if no proxy is in between,
    /// because otherwise `peer` is not the neighbour's own address.
    pub(super) capabilities: Capabilities,
}

/// Reason why a link has ended, as far as it matters to the core.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkEnd {
    /// The link was closed in an orderly way. The core knew of the link.
    Closed,
    /// The neighbour violated the carrier's protocol. The core knew of the link.
    Broken(CarrierFault),
    /// The connection was lost: neither end has closed it. The core knew of the link.
    Lost,
    /// The link was never open. The field is a new link, which tries the relay's next address.
    Replaced(LinkId),
    /// The link was never open, and the relay has no other address.
    Unreachable(Target),
    /// A second link alongside the link in the field could not be opened.
    NoneBeside(LinkId),
    /// The core did not know of the link.
    Unknown,
}

/// A set of links over one kind of transport: TCP, QUIC or memory.
pub(super) trait Carrier {
    /// Returns whether the carrier has `link`.
    fn has(&self, link: LinkId) -> bool;

    /// Returns the number of links, open or not yet open.
    fn len(&self) -> usize;

    /// Returns the bytes on the wire since the start: received, sent.
    fn transferred(&self) -> [u64; 2];

    /// Returns the links whose handshake or shutdown has timed out. Must be called about once a
    /// second.
    fn stale(&mut self, now: Time) -> Vec<LinkId>;

    /// Returns the time at which [`Carrier::resume`] is to be called next; `None` if nothing is
    /// due.
    fn next_timeout(&self) -> Option<Time>;

    /// Does the work that is due, and returns the links that may send. The caller then has to flush
    /// these links and take the events with [`Carrier::next_news`].
    fn resume(&mut self, now: Time, poller: &Poller) -> Vec<LinkId>;

    /// Services the file `file`, which is ready. The caller then has to take the events with
    /// [`Carrier::next_news`].
    fn receive(&mut self, now: Time, poller: &Poller, file: u64, ready: Ready);

    /// Passes received data to `give`, in order, and returns the next event of any link; `None` if
    /// there is none.
    fn next_news(&mut self, now: Time, give: &mut dyn FnMut(LinkId, &[u8])) -> Option<LinkEvent>;

    /// Notes that the core has something to send on `link`.
    fn wants(&mut self, link: LinkId);

    /// Sends as much of the core's data on `link` as there is room for. `fetch` is the source of
    /// the data. Returns false once the link has ended: the caller then has to call
    /// [`Carrier::end`].
    fn flush(&mut self, now: Time, poller: &Poller, link: LinkId, fetch: &mut Fetch<'_>) -> bool;

    /// Returns the secret that is exported from the TLS session of `_link` (RFC 5705) for
    /// AUTHENTICATE cells. `None` if the link has none.
    fn export(&mut self, _link: LinkId, _context: &[u8; 32]) -> Option<[u8; 32]> {
        None
    }

    /// Returns the state of a link's connection; `None` if it is unknown.
    fn look(&mut self, _link: LinkId) -> Option<LinkView> {
        None
    }

    /// Limits the total rate of all links by `_meters`: the first for receiving, the second for
    /// sending.
    fn limit(&mut self, _meters: [Meter; 2]) {}

    /// Uses another certificate for new links.
    ///
    /// # Errors
    /// The TLS library fails. The old certificate stays in use then.
    fn set_context(&mut self, _context: &Context) -> io::Result<()> {
        Ok(())
    }

    /// Closes `link` after one more [`Carrier::flush`], which sends the remaining data.
    fn close(&mut self, link: LinkId);

    /// Removes `link`, and returns why it has ended.
    fn end(&mut self, now: Time, poller: &Poller, link: LinkId) -> LinkEnd;

    /// Releases the buffers of links that were idle since the last call. Returns these links.
    fn rest(&mut self) -> Vec<LinkId> {
        Vec::new()
    }

    /// Limits the content of each record on a link to `_content` bytes from now on, so that
    /// records can be opened out of order. Returns false if the link does not support that.
    fn fix_records(&mut self, _now: Time, _link: LinkId, _content: usize) -> bool {
        false
    }

    /// Accepts cells of circuits on a link from now on, because its neighbour is authenticated.
    fn admit_circuits(&mut self, _link: LinkId) {}

    /// Appends the lossy cells that have arrived on `_link` to `_into`. Returns false if the
    /// neighbour has violated the protocol: the caller then has to call [`Carrier::end`].
    fn read_lossy(&mut self, _link: LinkId, _into: &mut Vec<u8>) -> bool {
        true
    }

    /// Passes lossy cells to a link, which may drop them. The caller then has to call
    /// [`Carrier::flush`].
    fn write_lossy(&mut self, _now: Time, _link: LinkId, _cells: &[u8]) {}
}

/// All carriers of one core.
pub(super) struct Carriers {
    pub(super) tcp: TcpLinks,
    /// Carrier of QUIC links; `None` if they are disabled.
    pub(super) quic: Option<QuicLinks>,
    /// Carrier of links to the relay's other shards; `None` if there are none.
    pub(super) rings: Option<Rings>,
}

impl Carriers {
    /// Number of kinds of carriers: one more than the largest carrier number.
    pub(super) const COUNT: u8 = 3;

    /// Creates the carrier of TCP links, and no others.
    pub(super) fn new(context: Context) -> Carriers {
        Carriers { tcp: TcpLinks::new(context), quic: None, rings: None }
    }

    /// Returns the carrier with the number `carrier`; `None` if there is none.
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

    /// Limits the total rate of all links by `meters`: the first for receiving, the second for
    /// sending.
    pub(super) fn limit(&mut self, meters: &[Meter; 2]) {
        for carrier in 0..Carriers::COUNT {
            self.get_mut(carrier).into_iter().for_each(|links| links.limit(meters.clone()));
        }
    }

    /// Uses another certificate for new links.
    ///
    /// # Errors
    /// The error of the first carrier that fails. The other carriers use the new certificate.
    pub(super) fn set_context(&mut self, context: &Context) -> io::Result<()> {
        let set =
            |carrier| self.get_mut(carrier).map_or(Ok(()), |links| links.set_context(context));
        let shown: Vec<io::Result<()>> = (0..Carriers::COUNT).map(set).collect();
        shown.into_iter().collect()
    }

    /// Returns our preferences for a second link over QUIC with the neighbour at `peer`; `None` if
    /// QUIC is disabled.
    pub(super) fn wish(&self, peer: IpAddr) -> Option<QuicPreferences> {
        self.quic.as_ref().map(|quic| quic.wish(peer))
    }

    /// Opens a second link alongside `link`. Returns the number of the carrier that will report the
    /// new link's events.
    ///
    /// # Errors
    /// A system call or the QUIC library fails, or QUIC is disabled.
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

/// Pending events of one link, in the order in which they are returned.
#[derive(Debug)]
struct PendingEvents {
    link: LinkId,
    opened: Option<Opened>,
    /// Whether received bytes have not been passed on yet.
    is_unread: bool,
    ended: bool,
}

impl PendingEvents {
    fn new(link: LinkId, opened: Option<Opened>, ended: bool) -> PendingEvents {
        PendingEvents { link, opened, is_unread: true, ended }
    }

    /// Returns the next event in `fresh`. Passes the received bytes in `plain` to `give` when their
    /// event is due.
    fn next(
        fresh: &mut Option<PendingEvents>,
        plain: &mut Vec<u8>,
        give: &mut dyn FnMut(LinkId, &[u8]),
    ) -> Option<LinkEvent> {
        let news = fresh.as_mut()?;
        if let Some(opened) = news.opened.take() {
            return Some(LinkEvent::Opened(news.link, opened));
        }
        if std::mem::take(&mut news.is_unread) {
            if !plain.is_empty() {
                give(news.link, plain);
                plain.clear();
            }
            return Some(LinkEvent::Served(news.link));
        }
        fresh.take().filter(|news| news.ended).map(|news| LinkEvent::Ended(news.link))
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
