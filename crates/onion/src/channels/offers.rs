//! Neighbours' offers of QUIC links, and the QUIC links that are open or being opened
//! (`docs/spec/quic-links.md`).

use super::{Channels, LinkId};

impl Channels {
    /// Returns whether a QUIC link to the relay `rsa` is open.
    pub(crate) fn has_quic(&self, rsa: &[u8; 20]) -> bool {
        let mut links = self.reaching(rsa);
        links.any(|(_, link)| link.channel.has_stream_per_circuit())
    }

    /// Returns whether a QUIC link to the relay `rsa` is being opened. Only one is opened at a
    /// time, so that it is paired with the TLS link for which it was opened. If the QUIC link
    /// fails, its circuits move to the paired TLS link. The circuits could not move to a TLS link
    /// that belongs to another thread of the relay.
    pub(crate) fn is_opening_quic(&self, rsa: &[u8; 20]) -> bool {
        let mut links = self.reaching(rsa);
        links.any(|(_, link)| link.quic_offer.is_some_and(|quic_offer| quic_offer.is_opening))
    }

    /// Records whether a QUIC link alongside the link `id` is being opened.
    pub(crate) fn set_opening_quic(&mut self, id: LinkId, is_opening: bool) {
        if let Some(quic_offer) = self.link(id).and_then(|link| link.quic_offer.as_mut()) {
            quic_offer.is_opening = is_opening;
        }
    }

    /// Returns the links to the relay `rsa` on which the relay offered QUIC links.
    pub(crate) fn offering(&self, rsa: &[u8; 20]) -> Vec<LinkId> {
        let links = self.reaching(rsa);
        links.filter(|(_, link)| link.quic_offer.is_some()).map(|(id, _)| id).collect()
    }

    /// Forgets the failed attempts to open a QUIC link to the relay `rsa`, because such a link is
    /// open now.
    pub(crate) fn quic_succeeded(&mut self, rsa: &[u8; 20]) {
        for id in self.offering(rsa) {
            if let Some(quic_offer) = self.link(id).and_then(|link| link.quic_offer.as_mut()) {
                (quic_offer.failed, quic_offer.is_opening) = (0, false);
            }
        }
    }
}
