//! Limits on the connections that clients and other relays open to a relay. All of the relay's
//! threads share them.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_multipath::Time;
use anabranch_onion::directory::network::Network;
use anabranch_onion::newcomers::{Admission, DosParams, Newcomers};

/// Counters of incoming connections, and the limits that apply to them.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionLimits(Arc<Mutex<Newcomers>>);

/// Entry of one incoming connection in the counters of [`ConnectionLimits`]. The connection counts
/// until this value is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    connection_limits: ConnectionLimits,
    peer: IpAddr,
    is_open: bool,
    /// True if the connection is counted. It is not counted if the table of source addresses was
    /// full when it arrived.
    counts: bool,
}

impl ConnectionLimits {
    /// Checks the limits for a new connection from `peer`. Returns the connection's entry in the
    /// counters, or `None` if the connection must be refused.
    pub(super) fn admit(&self, now: Time, peer: IpAddr) -> Option<ConnectionSlot> {
        let admission = self.newcomers().admit(now, peer);
        let counts = admission == Admission::Counted;
        let place =
            ConnectionSlot { connection_limits: self.clone(), peer, is_open: false, counts };
        (admission != Admission::Refused).then_some(place)
    }

    /// Updates the limits, and the list of known relays, from the new consensus in `network`.
    pub(super) fn set_network(&self, network: &Network) {
        let consensus = network.consensus();
        let addresses = consensus.relays.iter().flat_map(|relay| &relay.addresses);
        let relays = addresses.map(|address| address.ip()).collect();
        self.newcomers().set_network(DosParams::new(&consensus.params), relays);
    }

    /// Returns the number of incoming connections that were refused since the start.
    pub(super) fn refused(&self) -> u64 {
        self.newcomers().refused()
    }

    fn newcomers(&self) -> MutexGuard<'_, Newcomers> {
        // Poisoning is ignored, because each change is complete before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// Records that the TLS handshake of the connection is complete.
    pub(super) fn opened(&mut self) {
        if self.counts && !std::mem::replace(&mut self.is_open, true) {
            self.connection_limits.newcomers().opened(self.peer);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if self.counts {
            self.connection_limits.newcomers().left(self.peer, self.is_open);
        }
    }
}
