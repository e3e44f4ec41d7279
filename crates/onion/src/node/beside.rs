//! QUIC links beside others (`docs/spec/quic-links.md`): a neighbour that has reached us is told
//! where they come in, and one that we have reached tells us. Circuits that are made from then on
//! go by the QUIC link; those that there are stay where they are. Where a QUIC link breaks, its
//! circuits move to the link beside it (`detour`).

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::Time;

use super::{Node, NodeRole, Timer};
use crate::channels::{Beside, LinkId};
use crate::io::LinkOutput;
use crate::wire::extend::Target;
use crate::wire::link::{BesideToken, Identity};

/// How long after a failure the next attempt is made: twice as long after each further one, up to
/// the longest.
const PAUSE: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3_600);

impl<R: NodeRole> Node<R> {
    /// QUIC links come in at this port of a link's neighbour.
    pub(super) fn offered(&mut self, id: LinkId, port: u16, token: BesideToken) {
        if let Some(link) = self.channels.link(id) {
            link.beside = Some(Beside { port, failed: 0, again: None, token, is_opening: false });
            self.open_beside(id);
        }
    }

    /// Has a QUIC link opened beside this one, unless there is one to that relay.
    pub(super) fn open_beside(&mut self, id: LinkId) {
        let Some(link) = self.channels.link(id) else { return };
        let Some(beside) = link.beside.as_mut() else { return };
        beside.again = None;
        let begins = beside.token.first().copied();
        let begins = begins.filter(|_| beside.token != BesideToken::default());
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

    /// Whether a QUIC link to this relay is being opened. One at a time: it names the TLS link that
    /// it was opened for, which may be in another thread of the relay than a second one is.
    fn is_opening(&self, rsa: &[u8; 20]) -> bool {
        let mut links = self.channels.reaching(rsa);
        links.any(|(_, link)| link.beside.is_some_and(|beside| beside.is_opening))
    }

    fn set_opening(&mut self, id: LinkId, is_opening: bool) {
        if let Some(beside) = self.channels.link(id).and_then(|link| link.beside.as_mut()) {
            beside.is_opening = is_opening;
        }
    }

    /// No QUIC link could be opened beside this one: it is tried again later.
    pub(super) fn none_beside(&mut self, now: Time, id: LinkId) {
        self.set_opening(id, false);
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

    /// The time of another attempt has come: it is made where circuits are, and put off where none
    /// are, as a QUIC link that nobody used has been closed for that.
    pub(super) fn beside_due(&mut self, now: Time, id: LinkId) {
        match self.channels.circuits_with_besides(id) {
            0 => self.try_again(id, now + PAUSE),
            _ => self.open_beside(id),
        }
    }

    /// Both ends of a QUIC link know whether it stands beside another: circuits may be made.
    pub(super) fn joined(&mut self, now: Time, id: LinkId) {
        let Some(link) = self.channels.link(id) else { return };
        link.is_joined = true;
        let (identity, wanted) = (link.channel.identity(), link.wanted.clone());
        self.channels.opened(id);
        self.put(LinkOutput::AdmitCircuits { link: id });
        if let Some(target) = wanted {
            self.found(now, &target, id);
        }
        let Some(identity) = identity else { return };
        for id in self.offering(&identity.rsa) {
            if let Some(beside) = self.channels.link(id).and_then(|link| link.beside.as_mut()) {
                (beside.failed, beside.is_opening) = (0, false);
            }
        }
    }

    /// A QUIC link to this relay is gone: another is opened where it was offered, after a while.
    pub(super) fn quic_gone(&mut self, now: Time, rsa: &[u8; 20]) {
        let offering = self.offering(rsa);
        offering.iter().for_each(|id| self.set_opening(*id, false));
        if !self.has_quic(rsa) {
            offering.into_iter().for_each(|id| self.none_beside(now, id));
        }
    }

    /// The links to a relay by which it said where QUIC links come in.
    fn offering(&self, rsa: &[u8; 20]) -> Vec<LinkId> {
        let links = self.channels.reaching(rsa);
        links.filter(|(_, link)| link.beside.is_some()).map(|(id, _)| id).collect()
    }
}
