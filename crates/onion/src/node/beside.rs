//! QUIC links alongside TLS links (`docs/spec/quic-links.md`). The end that accepted a TLS link
//! offers its QUIC port to the end that opened the link. Circuits created after the QUIC link was
//! opened use it; existing circuits stay on the TLS link. If a QUIC link breaks, its circuits move
//! to the TLS link alongside it (`detour`).

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::Time;

use super::{Node, NodeRole, Timer};
use crate::channels::{LinkId, QuicOffer};
use crate::io::LinkOutput;
use crate::wire::extend::Target;
use crate::wire::link::{Identity, TlsLinkToken};

/// Delay after a failed attempt to open a QUIC link, before the next attempt. The delay doubles
/// with each further failure, up to `LONGEST`.
const PAUSE: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3_600);

impl<R: NodeRole> Node<R> {
    /// Handles an offer: the neighbour of the link `id` accepts QUIC links at `port`.
    pub(super) fn offered(&mut self, id: LinkId, port: u16, token: TlsLinkToken) {
        if let Some(link) = self.channels.link(id) {
            link.beside =
                Some(QuicOffer { port, failed: 0, again: None, token, is_opening: false });
            self.open_offered(id);
        }
    }

    /// Requests a QUIC link alongside the link `id`, unless there already is a QUIC link to the
    /// same relay.
    pub(super) fn open_offered(&mut self, id: LinkId) {
        let Some(link) = self.channels.link(id) else { return };
        let Some(beside) = link.beside.as_mut() else { return };
        beside.again = None;
        let begins = beside.token.first().copied();
        let begins = begins.filter(|_| beside.token != TlsLinkToken::default());
        let addresses = vec![SocketAddr::new(link.channel.peer(), beside.port)];
        let Some(identity) = link.channel.identity() else { return };
        if self.has_quic(&identity.rsa) || self.is_opening(&identity.rsa) {
            return;
        }
        self.set_opening(id, true);
        let Identity { rsa, ed25519 } = identity;
        let target = Target { rsa, ed25519: Some(ed25519), addresses };
        self.put(LinkOutput::OpenBeside { link: id, target, begins });
    }

    fn has_quic(&self, rsa: &[u8; 20]) -> bool {
        let mut links = self.channels.reaching(rsa);
        links.any(|(_, link)| link.channel.has_lanes())
    }

    /// Returns true if a QUIC link to the relay `rsa` is being opened. Only one is opened at a
    /// time. If two were opened, each could be paired with the TLS link for which the other was
    /// meant. That TLS link may belong to another thread of the relay, and then the circuits could
    /// not move to it.
    fn is_opening(&self, rsa: &[u8; 20]) -> bool {
        let mut links = self.channels.reaching(rsa);
        links.any(|(_, link)| link.beside.is_some_and(|beside| beside.is_opening))
    }

    fn set_opening(&mut self, id: LinkId, is_opening: bool) {
        if let Some(beside) = self.channels.link(id).and_then(|link| link.beside.as_mut()) {
            beside.is_opening = is_opening;
        }
    }

    /// Handles a failure to open a QUIC link alongside the link `id`, and schedules another
    /// attempt.
    pub(super) fn offer_failed(&mut self, now: Time, id: LinkId) {
        self.set_opening(id, false);
        self.no_lossy_link(id);
        let Some(link) = self.channels.link(id) else { return };
        let Some(beside) = link.beside.as_mut().filter(|beside| beside.again.is_none()) else {
            return;
        };
        let pause = (PAUSE * (1 << beside.failed.min(6))).min(LONGEST);
        beside.failed += 1;
        self.try_again(id, now + pause);
    }

    fn try_again(&mut self, id: LinkId, at: Time) {
        if let Some(beside) = self.channels.link(id).and_then(|link| link.beside.as_mut()) {
            beside.again = Some(at);
            self.timers.insert((at, Timer::Beside(id)));
        }
    }

    /// Attempts again to open a QUIC link alongside the link `id`, if that link or a QUIC link
    /// alongside it has circuits. Otherwise postpones the attempt, because an unused QUIC link
    /// would soon be closed.
    pub(super) fn offer_due(&mut self, now: Time, id: LinkId) {
        match self.channels.circuits_with_quic(id) {
            0 => self.try_again(id, now + PAUSE),
            _ => self.open_offered(id),
        }
    }

    /// Completes the opening of the QUIC link `id`: both ends now know which TLS link it runs
    /// alongside, if any. Circuits may be created on the QUIC link from now on.
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
        let Some(identity) = identity else { return };
        for id in self.offering(&identity.rsa) {
            if let Some(beside) = self.channels.link(id).and_then(|link| link.beside.as_mut()) {
                (beside.failed, beside.is_opening) = (0, false);
            }
        }
    }

    /// Handles the closing of a QUIC link to the relay `rsa`. If no other QUIC link to this relay
    /// is open, schedules an attempt to open one alongside each TLS link on which the relay
    /// offered QUIC.
    pub(super) fn quic_gone(&mut self, now: Time, rsa: &[u8; 20]) {
        let offering = self.offering(rsa);
        offering.iter().for_each(|id| self.set_opening(*id, false));
        if !self.has_quic(rsa) {
            offering.into_iter().for_each(|id| self.offer_failed(now, id));
        }
    }

    /// Returns the links to a relay on which the relay offered QUIC links.
    fn offering(&self, rsa: &[u8; 20]) -> Vec<LinkId> {
        let links = self.channels.reaching(rsa);
        links.filter(|(_, link)| link.beside.is_some()).map(|(id, _)| id).collect()
    }
}
