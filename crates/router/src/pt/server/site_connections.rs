//! Strangers (peers that are not clients of our transport), and the web site that answers them.
//!
//! An attacker who probes a bridge could distinguish it from a real web site by its replies and by
//! their timing. Therefore each connection is proxied to the site from its first byte, and the
//! site's timeouts close it. Once a client of our transport is recognised, the connection to the
//! site is dropped. If a client's first request arrives in one piece, the request never reaches
//! the site.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anabranch_multipath::Time;
use anabranch_stego::ConnId;

use super::PtServer;
use crate::pt::PtEvent;
use crate::pt::wires::WireNews;

/// Maximum number of bytes queued for one of two wires (TCP connections) that are joined to each
/// other. Above this limit, the other wire is not read.
const SPLICED: usize = 64 << 10;

/// Wires (TCP connections) to the site.
#[derive(Default)]
pub(super) struct SiteConnections {
    /// Pairs of joined wires. Maps the wire of each stranger (a peer that is not a client) to a
    /// wire to the site, and vice versa.
    pairs: BTreeMap<u64, u64>,
    /// Wires (TCP connections) to the site that were opened for peers that may be clients or
    /// strangers. The key is the peer's wire.
    early: BTreeMap<u64, SitePeer>,
    /// For each wire to the site in `early`, the wire of the peer for which it was opened.
    owners: BTreeMap<u64, u64>,
}

struct SitePeer {
    wire: u64,
    /// Number of bytes of the peer's data that were sent to the site.
    sent: usize,
}

impl SiteConnections {
    fn take_early(&mut self, owner: u64) -> Option<SitePeer> {
        let early = self.early.remove(&owner)?;
        self.owners.remove(&early.wire);
        Some(early)
    }
}

impl PtServer {
    /// Opens a wire (TCP connection) to the site for the new peer with the wire `wire`. A failure
    /// is only reported if the peer turns out to be a stranger (not a client).
    pub(super) fn announce(&mut self, wire: u64) {
        let Some(site) = self.site else { return };
        let Ok(to) = self.wires.dial(&self.poller, site) else { return };
        self.site_connections.early.insert(wire, SitePeer { wire: to, sent: 0 });
        self.site_connections.owners.insert(to, wire);
    }

    /// Drops the wire (TCP connection) to the site that was opened for the peer with the wire
    /// `wire`. Called when the peer is gone or is a client of our transport.
    pub(super) fn recall(&mut self, wire: u64) {
        if let Some(early) = self.site_connections.take_early(wire) {
            self.wires.drop_now(early.wire);
        }
    }

    /// Forwards data of the peer with the wire `wire` (TCP connection) to the site. The protocol
    /// core has already processed this data. If the core has recognised a client, drops the wire
    /// to the site instead.
    pub(super) fn pass_on(&mut self, wire: u64) {
        if self.core.is_ours(ConnId(wire)) {
            return self.recall(wire);
        }
        let Some(received) = self.core.unrecognised(ConnId(wire)) else { return };
        if let Some(early) = self.site_connections.early.get_mut(&wire) {
            self.wires.send(early.wire, &received[early.sent..]);
            early.sent = received.len();
        }
    }

    /// Joins the wire (TCP connection) of a peer with a wire to the site, because the peer has
    /// ended its stream without being recognised as a client. Ends the stream to the site, too.
    /// Returns false if there is no site.
    pub(super) fn hand_over_ended(&mut self, now: Time, wire: u64) -> bool {
        if self.site.is_none() {
            return false;
        }
        let Some(received) = self.core.treat_as_stranger(ConnId(wire)) else { return false };
        self.stranger(now, wire, &received);
        let other = self.site_connections.pairs.get(&wire).copied();
        other.into_iter().for_each(|other| self.wires.finish(other));
        other.is_some()
    }

    /// Joins the wire (TCP connection) of a stranger, a peer that is not a client, with a wire to
    /// the site. Sends `received`, the stranger's data, to the site. Without a site, the stranger
    /// gets no answer, and its connection stays open until [`PtServer::make_place`] closes
    /// it.
    pub(super) fn stranger(&mut self, now: Time, wire: u64, received: &[u8]) {
        if !received.is_empty() {
            self.events.push(PtEvent::Stranger);
        }
        let Some(site) = self.site else { return };
        match self.way_to(site, wire) {
            Ok(SitePeer { wire: other, sent }) => {
                self.wires.send(other, &received[sent..]);
                self.site_connections.pairs.extend([(wire, other), (other, wire)]);
            }
            Err(error) => {
                let why = format!(
                    "cannot reach the web server at {site}, which gets the connections that are \
                     not from clients: {error}"
                );
                self.events.push(PtEvent::Trouble(why));
                self.wires.close(now, wire);
                self.forget(now, wire);
            }
        }
    }

    fn way_to(&mut self, site: SocketAddr, wire: u64) -> std::io::Result<SitePeer> {
        if let Some(early) = self.site_connections.take_early(wire) {
            return Ok(early);
        }
        Ok(SitePeer { wire: self.wires.dial(&self.poller, site)?, sent: 0 })
    }

    /// Returns whether `wire` (a TCP connection) belongs to a stranger (a peer that is not a
    /// client), or leads to the site. Each wire to the site counts, even if it was opened for a
    /// peer that may still prove to be a client.
    pub(super) fn is_stranger_or_site(&self, wire: u64) -> bool {
        self.is_strangers(wire) || self.site_connections.owners.contains_key(&wire)
    }

    /// Returns whether `wire` (a TCP connection) belongs to a stranger (a peer that is not a
    /// client), or leads to the site for a stranger.
    pub(super) fn is_strangers(&self, wire: u64) -> bool {
        self.site_connections.pairs.contains_key(&wire)
    }

    /// Drops `wire` (a TCP connection) at once. If it is joined to another wire, drops that wire,
    /// too.
    pub(super) fn dismiss(&mut self, now: Time, wire: u64) {
        self.wires.drop_now(wire);
        let Some(&other) = self.site_connections.pairs.get(&wire) else {
            return self.forget(now, wire);
        };
        self.wires.drop_now(other);
        self.part(now, wire, other);
    }

    /// Processes data from `wire` (a TCP connection), which belongs to a stranger (a peer that is
    /// not a client) or leads to the site.
    pub(super) fn on_stranger_or_site_data(&mut self, now: Time, wire: u64, news: &WireNews) {
        if let Some(&owner) = self.site_connections.owners.get(&wire) {
            return self.on_site_data(now, owner, news);
        }
        if let Some(&other) = self.site_connections.pairs.get(&wire) {
            self.splice(now, (wire, other), news);
        }
    }

    /// Processes data from the site, or the end of the site's stream, for a peer that is not
    /// recognised yet. `owner` is the peer's wire (TCP connection). The peer then counts as a
    /// stranger (not a client). Does nothing if the connection to the site has failed.
    fn on_site_data(&mut self, now: Time, owner: u64, news: &WireNews) {
        if news.gone {
            self.site_connections.take_early(owner);
            return;
        }
        if news.bytes.is_empty() && !news.ended {
            return;
        }
        let Some(received) = self.core.treat_as_stranger(ConnId(owner)) else {
            return self.recall(owner);
        };
        self.stranger(now, owner, &received);
        if let Some(&other) = self.site_connections.pairs.get(&owner) {
            self.splice(now, (other, owner), news);
        }
    }

    /// Forwards data from `wire` to `other`, the wire (TCP connection) that is joined to `wire`.
    /// Pauses reading from `wire` if too much data is queued for `other`.
    fn splice(&mut self, now: Time, (wire, other): (u64, u64), news: &WireNews) {
        self.wires.send(other, &news.bytes);
        if news.ended {
            self.wires.finish(other);
        }
        if self.wires.waits(other) > SPLICED {
            self.wires.pause(&self.poller, wire, true);
        }
        if let (Some(error), Some(site)) = (&news.unreached, self.site) {
            let why = format!(
                "cannot reach the web server at {site}, which gets the connections that are not \
                 from clients: {error}"
            );
            self.events.push(PtEvent::Trouble(why));
        }
        if news.gone {
            self.wires.close(now, other);
            self.part(now, wire, other);
        }
    }

    /// Ends the forwarding between the joined wires (TCP connections) `wire` and `other`.
    fn part(&mut self, now: Time, wire: u64, other: u64) {
        for one in [wire, other] {
            self.site_connections.pairs.remove(&one);
            self.forget(now, one);
        }
    }

    /// Handles progress on `wire` (a TCP connection), which belongs to a stranger (a peer that is
    /// not a client) or leads to the site. Either the wire's queue was sent, or the wire is
    /// `gone`.
    pub(super) fn visit_moved(&mut self, now: Time, wire: u64, gone: bool) {
        if let Some(&owner) = self.site_connections.owners.get(&wire) {
            if gone {
                self.site_connections.take_early(owner);
            }
            return;
        }
        let Some(&other) = self.site_connections.pairs.get(&wire) else { return };
        if gone {
            self.wires.close(now, other);
            self.part(now, wire, other);
        } else if self.wires.is_over(wire) && self.wires.is_over(other) {
            self.dismiss(now, wire);
        } else {
            self.wires.pause(&self.poller, other, false);
        }
    }
}
