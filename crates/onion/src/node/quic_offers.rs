//! QUIC links alongside TLS links (`docs/spec/quic-links.md`). The end that accepted a TLS link
//! offers its QUIC port to the end that opened the link. Circuits created after a QUIC link has
//! opened use it; older circuits stay on the TLS link. If a QUIC link breaks, its circuits move to
//! the TLS link alongside it (`detour`).

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::Time;

use super::{Node, NodeRole, Timer};
use crate::channels::{LinkId, QuicOffer};
use crate::io::LinkOutput;
use crate::wire::extend::Target;
use crate::wire::link::{Identity, TlsLinkToken};

/// Delay before the next attempt to open a QUIC link, after a first failure. The delay doubles
/// with each further failure, up to `LONGEST`.
const PAUSE: Duration = Duration::from_secs(60);
/// Maximum delay before the next attempt to open a QUIC link.
const LONGEST: Duration = Duration::from_secs(3_600);

impl<R: NodeRole> Node<R> {
    /// Handles an offer of QUIC links: the neighbour of the link `id` accepts QUIC links at the
    /// UDP port `port`.
    pub(super) fn offered(&mut self, id: LinkId, port: u16, token: TlsLinkToken) {
        if let Some(link) = self.channels.link(id) {
            link.quic_offer =
                Some(QuicOffer { port, failed: 0, again: None, token, is_opening: false });
            self.open_offered(id);
        }
    }

    /// Requests a QUIC link alongside the link `id`, unless there already is a QUIC link to the
    /// same relay.
    pub(super) fn open_offered(&mut self, id: LinkId) {
        let Some(link) = self.channels.link(id) else { return };
        let Some(quic_offer) = link.quic_offer.as_mut() else { return };
        quic_offer.again = None;
        let first_byte = quic_offer.token.first().copied();
        let first_byte = first_byte.filter(|_| quic_offer.token != TlsLinkToken::default());
        let addresses = vec![SocketAddr::new(link.channel.peer(), quic_offer.port)];
        let Some(identity) = link.channel.identity() else { return };
        if self.channels.has_quic(&identity.rsa) || self.channels.is_opening_quic(&identity.rsa) {
            return;
        }
        self.channels.set_opening_quic(id, true);
        let Identity { rsa, ed25519 } = identity;
        let target = Target { rsa, ed25519: Some(ed25519), addresses };
        self.put(LinkOutput::OpenQuic { link: id, target, first_byte });
    }

    /// Handles a failure to open a QUIC link alongside the link `id`, and schedules another
    /// attempt.
    pub(super) fn offer_failed(&mut self, now: Time, id: LinkId) {
        self.channels.set_opening_quic(id, false);
        self.no_lossy_link(id);
        let Some(link) = self.channels.link(id) else { return };
        let Some(quic_offer) =
            link.quic_offer.as_mut().filter(|quic_offer| quic_offer.again.is_none())
        else {
            return;
        };
        let pause = (PAUSE * (1 << quic_offer.failed.min(6))).min(LONGEST);
        quic_offer.failed += 1;
        self.try_again(id, now + pause);
    }

    fn try_again(&mut self, id: LinkId, at: Time) {
        if let Some(quic_offer) = self.channels.link(id).and_then(|link| link.quic_offer.as_mut()) {
            quic_offer.again = Some(at);
            self.timers.insert((at, Timer::QuicRetry(id)));
        }
    }

    /// Attempts again to open a QUIC link alongside the link `id`, if the link or a QUIC link
    /// alongside it has circuits. Otherwise postpones the attempt, because an unused QUIC link
    /// would soon be closed.
    pub(super) fn offer_due(&mut self, now: Time, id: LinkId) {
        match self.channels.circuits_with_quic(id) {
            0 => self.try_again(id, now + PAUSE),
            _ => self.open_offered(id),
        }
    }

    /// Completes the opening of the QUIC link `id`: both ends now know which TLS link, if any, the
    /// QUIC link accompanies. Circuits may be created on the QUIC link from now on.
    pub(super) fn joined(&mut self, now: Time, id: LinkId) {
        let Some(link) = self.channels.link(id) else { return };
        link.is_joined = true;
        let (identity, wanted) = (link.channel.identity(), link.wanted.clone());
        self.channels.opened(id);
        self.put(LinkOutput::AdmitCircuits { link: id });
        if let Some(target) = wanted {
            self.found(now, &target, id);
        }
        self.lossy_found(now, id);
        if let Some(identity) = identity {
            self.channels.quic_succeeded(&identity.rsa);
        }
    }

    /// Handles the closing of a QUIC link to the relay `rsa`. If no other QUIC link to this relay
    /// is open, schedules an attempt to open one alongside each TLS link on which the relay
    /// offered QUIC links.
    pub(super) fn quic_gone(&mut self, now: Time, rsa: &[u8; 20]) {
        let offering = self.channels.offering(rsa);
        offering.iter().for_each(|id| self.channels.set_opening_quic(*id, false));
        if !self.channels.has_quic(rsa) {
            offering.into_iter().for_each(|id| self.offer_failed(now, id));
        }
    }
}
