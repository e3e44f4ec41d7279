//! Carriers of the links of one protocol core (the protocol state of a client or relay). A
//! [`Carrier`] owns all links over one type of transport, with their sockets or shared-memory
//! rings. The event loop (`station`) uses all carriers through the same interface.
//!
//! * [`tcp`]: TLS links, each over a separate TCP connection.
//! * [`quic`]: QUIC links, which share UDP sockets.
//! * [`ring`]: links to the other shards (threads) of a relay, through shared memory.

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

/// Smallest poller token of a file (a socket or a waker) of a carrier. A carrier owns all links
/// over one type of transport. A token contains the carrier's index and, in the lower bits, the
/// file's identifier within the carrier.
pub(super) const CARRIERS: u64 = 1 << 60;
/// Number of bits of a poller token that contain the identifier of a file (a socket or a waker).
/// The higher bits contain the index of its carrier.
const FILE: u32 = 52;

/// Returns the poller token of the file with the identifier `file`, which belongs to the carrier
/// with the index `carrier`.
pub(super) const fn token(carrier: u8, file: u64) -> u64 {
    debug_assert!(file >> FILE == 0, "the number of a file has at most 52 bits");
    CARRIERS | (carrier as u64) << FILE | file
}

/// Splits the poller token `token` into the index of a carrier and the identifier of one of the
/// carrier's files.
pub(super) const fn file(token: u64) -> (u8, u64) {
    ((token >> FILE) as u8, token & ((1 << FILE) - 1))
}

/// Function that fetches data to send from a core (the protocol state of a client or relay). It
/// appends cells to a vector until the vector has the given length, and returns whether there are
/// more cells.
pub(super) type Fetch<'a> = dyn FnMut(&mut Vec<u8>, usize) -> bool + 'a;

/// An event of a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkEvent {
    /// Completion of a link's handshake.
    Opened(LinkId, OpenedLink),
    /// Event of a link on which data may have arrived, or which may have room to send again.
    Served(LinkId),
    /// End of a link. The event loop must call [`Carrier::end`].
    Ended(LinkId),
}

/// A link whose handshake is complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OpenedLink {
    /// The address of the relay or client at the other end.
    pub(super) peer: SocketAddr,
    /// Relay that we dialled; `None` if the other end opened the link.
    pub(super) target: Option<Target>,
    /// SHA-256 of the certificate of the other end; `None` if the other end opened the link.
    pub(super) certificate: Option<[u8; 32]>,
    /// SHA-256 of our certificate; `None` if we opened the link.
    pub(super) own: Option<[u8; 32]>,
    /// Properties of the link for the protocol core. A second, parallel link is permitted only if
    /// there is no proxy between the ends, because `peer` would otherwise be the proxy's address.
    pub(super) capabilities: Capabilities,
}

/// Reason why a link has ended, as far as the protocol core must know it. The core learns of a
/// link only once the link is open.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkEnd {
    /// End of an open link without a violation of the protocol. Over TCP, this includes a lost
    /// connection.
    Closed,
    /// Violation of the carrier's protocol by the other end of an open link.
    Broken(CarrierFault),
    /// Loss of the connection of an open QUIC link, for example by a timeout. Neither end has
    /// closed it.
    Lost,
    /// Failure to connect to one of a relay's addresses. The field is a new link, which tries the
    /// next address.
    Replaced(LinkId),
    /// Failure to connect to the relay in the field. All of its addresses have been tried.
    Unreachable(Target),
    /// Failure to open a QUIC link parallel to the TLS link in the field.
    QuicFailed(LinkId),
    /// End of a link that the protocol core does not know: the other end began to open it, or the
    /// carrier has no such link.
    Unknown,
}

/// All links of one core over one type of transport: TCP, QUIC or memory.
pub(super) trait Carrier {
    /// Returns whether `link` belongs to this carrier.
    fn has(&self, link: LinkId) -> bool;

    /// Returns the number of links, including links that are not open yet.
    fn len(&self) -> usize;

    /// Returns the numbers of bytes on the network since the start: received, then sent.
    fn transferred(&self) -> [u64; 2];

    /// Returns the links whose handshake or shutdown has timed out. The caller must call this
    /// function about once a second.
    fn stale(&mut self, now: Time) -> Vec<LinkId>;

    /// Returns the time at which [`Carrier::resume`] must be called next; `None` if nothing is
    /// due.
    fn next_timeout(&self) -> Option<Time>;

    /// Handles rate limits and timeouts that have passed, and returns the links that may send now.
    /// The caller must then flush these links and take the events with [`Carrier::next_news`].
    fn resume(&mut self, now: Time, poller: &Poller) -> Vec<LinkId>;

    /// Reads from or writes to the file `file`, which is ready. The caller must then take the
    /// events with [`Carrier::next_news`].
    fn receive(&mut self, now: Time, poller: &Poller, file: u64, ready: Ready);

    /// Returns the next event of any link; `None` if there is none. First passes the data that the
    /// link has received to `give`, in order.
    fn next_news(&mut self, now: Time, give: &mut dyn FnMut(LinkId, &[u8])) -> Option<LinkEvent>;

    /// Notes that the core (the protocol state of the client or relay) has data to send on `link`.
    fn wants(&mut self, link: LinkId);

    /// Sends the protocol core's data on `link` until the link has no more room. `fetch` takes the
    /// data from the core. Returns false once the link has ended; the caller must then call
    /// [`Carrier::end`].
    fn flush(&mut self, now: Time, poller: &Poller, link: LinkId, fetch: &mut Fetch<'_>) -> bool;

    /// Returns the secret that is exported from the TLS session of `_link` with the context value
    /// `_context` (RFC 5705), for AUTHENTICATE cells. Returns `None` if there is no TLS session.
    fn export(&mut self, _link: LinkId, _context: &[u8; 32]) -> Option<[u8; 32]> {
        None
    }

    /// Returns the state of the network connection under a link (round-trip time, congestion
    /// window and others); `None` if it is unknown.
    fn look(&mut self, _link: LinkId) -> Option<LinkView> {
        None
    }

    /// Limits the total rate of all links by two token buckets: the first of `_meters` for
    /// receiving, the second for sending.
    fn limit(&mut self, _meters: [Meter; 2]) {}

    /// Uses another certificate for new links.
    ///
    /// # Errors
    /// The TLS library fails. New links then use the old certificate.
    fn set_context(&mut self, _context: &Context) -> io::Result<()> {
        Ok(())
    }

    /// Closes `link` after one more [`Carrier::flush`], which sends the remaining data.
    fn close(&mut self, link: LinkId);

    /// Removes `link`, and returns the reason why it has ended.
    fn end(&mut self, now: Time, poller: &Poller, link: LinkId) -> LinkEnd;

    /// Releases the buffers of links that were idle since the last call. Returns these links.
    fn shrink_buffers(&mut self) -> Vec<LinkId> {
        Vec::new()
    }

    /// Makes every record on `_link` have exactly `_content` bytes of content from now on, in both
    /// directions. Records can then be decrypted out of order. Returns false if the link does not
    /// support this.
    fn fix_records(&mut self, _now: Time, _link: LinkId, _content: usize) -> bool {
        false
    }

    /// Accepts cells of circuits on a link from now on, because the identity of the other end has
    /// been proved.
    fn admit_circuits(&mut self, _link: LinkId) {}

    /// Appends to `_into` the lossy cells (cells in datagrams, which may get lost) that have
    /// arrived on `_link`. Returns false if the other end has violated the protocol; the caller
    /// must then call [`Carrier::end`].
    fn read_lossy(&mut self, _link: LinkId, _into: &mut Vec<u8>) -> bool {
        true
    }

    /// Passes lossy cells (cells in datagrams, which may get lost) to a link. The link may drop
    /// cells. The caller must then call [`Carrier::flush`].
    fn write_lossy(&mut self, _now: Time, _link: LinkId, _cells: &[u8]) {}
}

/// All carriers of the links of one core (the protocol state of a client or relay).
pub(super) struct Carriers {
    pub(super) tcp: TcpLinks,
    /// Carrier of QUIC links; `None` if QUIC is disabled.
    pub(super) quic: Option<QuicLinks>,
    /// Carrier of links to the relay's other shards (threads); `None` if there are none.
    pub(super) rings: Option<Rings>,
}

impl Carriers {
    /// Number of types of carriers. The indices of carriers are smaller.
    pub(super) const COUNT: u8 = 3;

    /// Creates the carrier of TCP links, and no other carriers.
    pub(super) fn new(context: Context) -> Carriers {
        Carriers { tcp: TcpLinks::new(context), quic: None, rings: None }
    }

    /// Returns the carrier with the index `carrier`; `None` if there is none.
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

    /// Returns whether `link` belongs to any carrier.
    pub(super) fn has(&self, link: LinkId) -> bool {
        self.iter().any(|carrier| carrier.has(link))
    }

    /// Limits the total rate of all links by two token buckets: the first of `meters` for
    /// receiving, the second for sending.
    pub(super) fn limit(&mut self, meters: &[Meter; 2]) {
        for carrier in 0..Carriers::COUNT {
            self.get_mut(carrier).into_iter().for_each(|links| links.limit(meters.clone()));
        }
    }

    /// Uses another certificate for new links.
    ///
    /// # Errors
    /// The error of the first carrier that fails. The carriers that did not fail use the new
    /// certificate.
    pub(super) fn set_context(&mut self, context: &Context) -> io::Result<()> {
        let set =
            |carrier| self.get_mut(carrier).map_or(Ok(()), |links| links.set_context(context));
        let shown: Vec<io::Result<()>> = (0..Carriers::COUNT).map(set).collect();
        shown.into_iter().collect()
    }

    /// Returns our offer to the relay at `peer` of a second link over QUIC: our UDP port and our
    /// conditions. Returns `None` if QUIC is disabled.
    pub(super) fn quic_preferences(&self, peer: IpAddr) -> Option<QuicPreferences> {
        self.quic.as_ref().map(|quic| quic.quic_preferences(peer))
    }

    /// Opens a QUIC link parallel to `link`. `target` is the relay at the other end, and the first
    /// byte of the connection ID; `None` for a random byte. Returns the index of the carrier that
    /// will report the new link's events.
    ///
    /// # Errors
    /// A system call or the QUIC library fails, or QUIC is disabled.
    pub(super) fn open_quic_alongside(
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

/// Events of one link that are not returned yet, in the order in which they will be returned.
#[derive(Debug)]
struct PendingEvents {
    link: LinkId,
    opened: Option<OpenedLink>,
    /// True if there are received bytes that have not been passed to the protocol core yet.
    is_unread: bool,
    ended: bool,
}

impl PendingEvents {
    fn new(link: LinkId, opened: Option<OpenedLink>, ended: bool) -> PendingEvents {
        PendingEvents { link, opened, is_unread: true, ended }
    }

    /// Returns the next event in `fresh`; `None` if there is none. Before it returns
    /// [`LinkEvent::Served`], passes the link's received bytes in `plain` to `give`, and empties
    /// `plain`.
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
