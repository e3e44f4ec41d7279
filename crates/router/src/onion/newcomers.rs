//! Places of connections that others open to a relay, counted for all of its threads together.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_multipath::Time;
use anabranch_onion::directory::network::Network;
use anabranch_onion::newcomers::{Admission, DosParams, Newcomers};

/// Who comes in.
#[derive(Clone, Debug, Default)]
pub(super) struct Entrance(Arc<Mutex<Newcomers>>);

/// A connection's place, as long as it has it.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    entrance: Entrance,
    peer: IpAddr,
    is_open: bool,
    /// Whether it counts.
    counts: bool,
}

impl Entrance {
    /// Somebody opened a connection: its place, if it may have one.
    pub(super) fn admit(&self, now: Time, peer: IpAddr) -> Option<ConnectionSlot> {
        let admission = self.newcomers().come(now, peer);
        let counts = admission == Admission::Counted;
        let place = ConnectionSlot { entrance: self.clone(), peer, is_open: false, counts };
        (admission != Admission::Refused).then_some(place)
    }

    /// The consensus is this now.
    pub(super) fn set_network(&self, network: &Network) {
        let consensus = network.consensus();
        let addresses = consensus.relays.iter().flat_map(|relay| &relay.addresses);
        let relays = addresses.map(|address| address.ip()).collect();
        self.newcomers().set_network(DosParams::new(&consensus.params), relays);
    }

    /// How many were refused since the beginning.
    pub(super) fn refused(&self) -> u64 {
        self.newcomers().refused()
    }

    fn newcomers(&self) -> MutexGuard<'_, Newcomers> {
        // Numbers are sound, whatever happened to who held them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// The TLS handshake is done.
    pub(super) fn opened(&mut self) {
        if self.counts && !std::mem::replace(&mut self.is_open, true) {
            self.entrance.newcomers().opened(self.peer);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if self.counts {
            self.entrance.newcomers().left(self.peer, self.is_open);
        }
    }
}
