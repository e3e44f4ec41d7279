//! A client's bridges. Each bridge has its own schedule of requests for its descriptor, so that a
//! failed bridge does not delay the others.

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::Time;

use crate::wire::extend::{Target, UNKNOWN_RSA};
use crate::wire::netdoc::{Bridge, DocumentError, check_bridge};

/// Path of the HTTP request for a relay's own descriptor, which every relay serves to clients.
pub(super) const PATH: &str = "/tor/server/authority.z";
/// Time after which a descriptor is fetched again (C tor's bridge schedule).
const RENEWAL: Duration = Duration::from_secs(3 * 3600);
/// Pause after a first failure. The pause doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Maximum pause after a failure, for a bridge whose descriptor is unknown.
const LAST_PAUSE: Duration = Duration::from_secs(60);
/// Maximum pause after a failure, for a bridge whose descriptor is known.
const LAST_PAUSE_KNOWN: Duration = Duration::from_secs(3600);
/// Maximum number of times that `FIRST_PAUSE` is doubled.
const MOST_DOUBLINGS: u32 = 13;

/// A bridge as its user configures it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeIdentity {
    /// The bridge's addresses, tried in turn. The addresses in the bridge's descriptor are
    /// ignored, because a pluggable transport may listen at different addresses.
    pub addresses: Vec<SocketAddr>,
    /// The bridge's RSA identity; `None` to accept any identity at these addresses.
    pub rsa: Option<[u8; 20]>,
    /// The bridge's Ed25519 identity, if configured.
    pub ed25519: Option<[u8; 32]>,
}

impl BridgeIdentity {
    /// Returns the target of a link to the bridge.
    #[must_use]
    pub fn target(&self) -> Target {
        let (addresses, rsa) = (self.addresses.clone(), self.rsa.unwrap_or(UNKNOWN_RSA));
        Target { addresses, rsa, ed25519: self.ed25519 }
    }

    /// Checks that the descriptor `text` is the bridge's own, and returns its contents.
    ///
    /// # Errors
    /// Returns a [`DocumentError`] if the descriptor is another relay's, invalid or expired.
    pub fn check(&self, text: &str, unix_now: u64) -> Result<Bridge, DocumentError> {
        let mut bridge = check_bridge(text, unix_now)?;
        let ours = self.rsa.is_none_or(|rsa| rsa == bridge.status.rsa_identity)
            && self.ed25519.is_none_or(|key| key == bridge.microdesc.ed_identity);
        if !ours {
            return Err(DocumentError::WrongIdentity);
        }
        bridge.status.addresses.clone_from(&self.addresses);
        Ok(bridge)
    }
}

/// A client's bridges, in the user's order.
#[derive(Debug)]
pub(super) struct BridgeRequests(Vec<BridgeRequest>);

#[derive(Debug)]
struct BridgeRequest {
    identity: BridgeIdentity,
    known: bool,
    requested: bool,
    failures: u32,
    due: Time,
}

impl BridgeRequests {
    pub(super) fn new(identities: Vec<BridgeIdentity>) -> BridgeRequests {
        let entry = |identity| BridgeRequest {
            identity,
            known: false,
            requested: false,
            failures: 0,
            due: Time::ZERO,
        };
        BridgeRequests(identities.into_iter().map(entry).collect())
    }

    /// Returns true if the descriptor of any bridge is known. Other documents can then be fetched
    /// over that bridge.
    pub(super) fn is_any_known(&self) -> bool {
        self.0.iter().any(|entry| entry.known)
    }

    /// Returns the index of the next bridge to request a descriptor from, and marks the request as
    /// in progress. Returns `None` if no request is due.
    pub(super) fn poll(&mut self, now: Time) -> Option<usize> {
        let place = self.0.iter().position(|entry| !entry.requested && entry.due <= now)?;
        self.0[place].requested = true;
        Some(place)
    }

    /// Returns the time at which the next request to a bridge is due; `None` if requests to all
    /// bridges are in progress.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.0.iter().filter(|entry| !entry.requested).map(|entry| entry.due).min()
    }

    /// Makes the requests to all bridges without a known descriptor due at once. The caller does
    /// this when the network may be reachable again.
    pub(super) fn ask_now(&mut self) {
        for entry in self.0.iter_mut().filter(|entry| !entry.known) {
            (entry.failures, entry.due) = (0, Time::ZERO);
        }
    }

    /// Processes `text`, the descriptor that the bridge with index `place` sent.
    ///
    /// # Errors
    /// Returns a [`DocumentError`] if `text` is not the bridge's valid descriptor.
    pub(super) fn receive(
        &mut self,
        now: Time,
        place: usize,
        text: &str,
        unix_now: u64,
    ) -> Result<Bridge, DocumentError> {
        let bridge = self.0[place].identity.check(text, unix_now)?;
        let entry = &mut self.0[place];
        // Accept only this identity from now on.
        entry.identity.rsa = Some(bridge.status.rsa_identity);
        (entry.known, entry.requested, entry.failures, entry.due) = (true, false, 0, now + RENEWAL);
        Ok(bridge)
    }

    /// Records that a request to the bridge with index `place` failed, and schedules the next one.
    pub(super) fn failed(&mut self, now: Time, place: usize) {
        let entry = &mut self.0[place];
        let last = if entry.known { LAST_PAUSE_KNOWN } else { LAST_PAUSE };
        let pause = FIRST_PAUSE * (1 << entry.failures.min(MOST_DOUBLINGS));
        (entry.requested, entry.due) = (false, now + pause.min(last));
        entry.failures += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV4;

    use super::*;
    use crate::directory::descriptor::Description;
    use crate::test_keys::relay_keys;
    use crate::wire::keys::RelayKeys;

    const NOW: u64 = 1_800_000_000;
    const AT: &str = "192.0.2.7:443";

    fn keys() -> &'static RelayKeys {
        relay_keys(1, "bridge")
    }

    fn text(keys: &RelayKeys) -> String {
        let at: SocketAddrV4 = "198.51.100.1:9001".parse().unwrap();
        Description::new("river".to_owned(), at, "ours".to_owned()).sign(keys, NOW).unwrap()
    }

    fn identity(rsa: Option<[u8; 20]>, ed25519: Option<[u8; 32]>) -> BridgeIdentity {
        BridgeIdentity { addresses: vec![AT.parse().unwrap()], rsa, ed25519 }
    }

    #[test]
    fn a_descriptor_counts_if_it_is_the_bridges_own_and_is_reached_where_its_line_says() {
        let keys = keys();
        let (rsa, ed25519) = (keys.rsa_identity(), keys.ed_identity());
        for (rsa, ed25519) in [(Some(rsa), Some(ed25519)), (Some(rsa), None), (None, None)] {
            let bridge = identity(rsa, ed25519).check(&text(keys), NOW).unwrap();
            assert_eq!(bridge.status.addresses, [AT.parse().unwrap()]);
            assert_eq!((&*bridge.status.nickname, bridge.microdesc.ntor), ("river", keys.ntor().1));
            assert!(bridge.status.subprotocols.ntor_v3 && !bridge.microdesc.exits());
        }
        for (rsa, ed25519) in [(Some([1; 20]), None), (Some(rsa), Some([1; 32]))] {
            let refused = identity(rsa, ed25519).check(&text(keys), NOW);
            assert_eq!(refused.map(drop), Err(DocumentError::WrongIdentity));
        }
        let changed = text(keys).replacen("router river", "router rover", 1);
        let refused = identity(Some(rsa), None).check(&changed, NOW);
        assert_eq!(refused.map(drop), Err(DocumentError::BadSignature));
    }

    #[test]
    fn who_answered_without_a_name_is_held_to_the_one_he_gave() {
        let keys = keys();
        let mut bridges = BridgeRequests::new(vec![identity(None, None)]);
        assert_eq!(bridges.poll(Time::ZERO), Some(0));
        assert_eq!(bridges.0[0].identity.target().rsa, UNKNOWN_RSA);
        bridges.receive(Time::ZERO, 0, &text(keys), NOW).unwrap();
        assert_eq!(bridges.0[0].identity.target().rsa, keys.rsa_identity());
        let other = relay_keys(2, "bridge");
        assert!(bridges.receive(Time::ZERO, 0, &text(other), NOW).is_err());
    }

    #[test]
    fn one_that_is_away_is_asked_more_and_more_seldom_and_keeps_no_other_waiting() {
        let mut bridges =
            BridgeRequests::new(vec![identity(Some([1; 20]), None), identity(None, None)]);
        let mut now = Time::ZERO;
        assert_eq!(
            (bridges.poll(now), bridges.poll(now), bridges.poll(now)),
            (Some(0), Some(1), None)
        );
        bridges.receive(now, 1, &text(keys()), NOW).unwrap();
        let mut pauses = Vec::new();
        for _ in 0..10 {
            bridges.failed(now, 0);
            let next = bridges.next_timeout().unwrap();
            pauses.push(next.since(now).as_millis());
            now = next;
            assert_eq!(bridges.poll(now), Some(0));
        }
        assert_eq!(pauses[..3], [500, 1000, 2000]);
        assert_eq!(pauses[9], 60_000);
        bridges.failed(now, 0);
        bridges.ask_now();
        assert_eq!(bridges.poll(now), Some(0));
        assert!(bridges.is_any_known() && bridges.poll(now + RENEWAL) == Some(1));
    }
}
