//! Observer that reports wrong clocks, of this machine or of neighbouring relays. It passes all
//! events to another observer.

use std::net::SocketAddr;

use anabranch_multipath::Time;
use anabranch_onion::Event;
use anabranch_onion::clocks::{Clocks, PeerTime};
use anabranch_onion::wire::text::hex;

use super::{Numbers, Watch};
use crate::onion::authorities::Authority;
use crate::onion::dirclient::unix;
use crate::onion::reload::Outcome;
use crate::onion::skew::Skew;

/// A [`Watch`] that compares this machine's clock with the clocks of the relays at the other ends
/// of this relay's links. It passes all events to another observer.
pub(super) struct Clocked<'w> {
    inner: &'w mut dyn Watch,
    clocks: Clocks,
    authorities: Vec<Authority>,
}

impl<'w> Clocked<'w> {
    /// Creates an observer that passes events to `inner`. `authorities` are the directory
    /// authorities, whose clocks are trusted.
    pub(super) fn new(inner: &'w mut dyn Watch, authorities: &[Authority]) -> Clocked<'w> {
        let mut clocked = Clocked { inner, clocks: Clocks::default(), authorities: Vec::new() };
        clocked.trust(authorities);
        clocked
    }

    /// Replaces the authorities, whose clocks are trusted and whose names appear in messages.
    pub(super) fn trust(&mut self, authorities: &[Authority]) {
        self.clocks.trust(authorities.iter().map(|one| one.fingerprint));
        self.authorities = authorities.to_vec();
    }

    fn name(&self, relay: &[u8; 20]) -> String {
        let known = self.authorities.iter().find(|one| one.fingerprint == *relay);
        known.map_or_else(|| hex(relay), |one| one.name.clone())
    }
}

impl Watch for Clocked<'_> {
    fn listening(&mut self, at: &[SocketAddr]) {
        self.inner.listening(at);
    }

    fn event(&mut self, now: Time, event: &Event) {
        self.inner.event(now, event);
        let &Event::LinkOpen { identity: Some(identity), skew: Some(skew), dialled, .. } = event
        else {
            return;
        };
        let peer_time = PeerTime { relay: identity.rsa, skew, dialled };
        if let Some(verdict) = self.clocks.note(now, unix(), peer_time) {
            let skew = Skew::new(verdict, |relay| self.name(relay));
            self.inner.clock(&skew);
        }
    }

    fn numbers(&mut self, now: Time, numbers: &Numbers) {
        self.inner.numbers(now, numbers);
    }

    fn note(&mut self, text: &str) {
        self.inner.note(text);
    }

    fn reloaded(&mut self, outcome: &Outcome) {
        self.inner.reloaded(outcome);
    }

    fn clock(&mut self, skew: &Skew) {
        self.inner.clock(skew);
    }
}

#[cfg(test)]
mod tests {
    use anabranch_onion::LinkId;
    use anabranch_onion::wire::link::Identity;

    use super::*;

    /// Watch that stores notes.
    #[derive(Default)]
    struct StoredNotes(Vec<String>);

    impl Watch for StoredNotes {
        fn listening(&mut self, _: &[SocketAddr]) {}
        fn event(&mut self, _: Time, _: &Event) {}
        fn numbers(&mut self, _: Time, _: &Numbers) {}
        fn note(&mut self, text: &str) {
            self.0.push(text.to_owned());
        }
    }

    #[test]
    fn what_an_authority_says_of_our_clock_when_a_link_opens_is_told_by_its_name() {
        let id = "22".repeat(20);
        let line = format!("dam orport=1 no-v2 v3ident={id} 127.0.0.1:1 {id}");
        let (mut kept, authority) = (StoredNotes::default(), Authority::parse(&line).unwrap());
        let mut clocked = Clocked::new(&mut kept, &[authority]);
        let identity = Some(Identity { rsa: [0x22; 20], ed25519: [0; 32] });
        let (link, dialled) = (LinkId::new(0, 1), false);
        for skew in [None, Some(2), Some(-7200)] {
            clocked.event(Time::ZERO, &Event::LinkOpen { link, identity, skew, dialled });
        }
        let message = "this machine's clock is 2 h ahead of the clock of authority dam: correct \
                       this machine's clock";
        assert_eq!(kept.0, [message]);
    }
}
