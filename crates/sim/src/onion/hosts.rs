//! Properties of all hosts of a network that their links need: addresses and certificates.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anabranch_links::tls::Context;
use anabranch_multipath::Time;
use anabranch_onion::channel::Start;

use super::documents::START;
use crate::queue::HostId;
use crate::simulation::Io;

/// Type of the links between relays, and between clients and relays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkLayer {
    /// TLS over TCP. A cell waits for all earlier cells of the link.
    #[default]
    Tls,
    /// TLS over TCP with records that are read as soon as they arrive (uTLS). A cell waits only
    /// for earlier cells of its circuit.
    Utls,
    /// A QUIC link alongside each TLS link. Circuits that are created while the QUIC link is open
    /// use it. A cell waits only for earlier cells of its circuit.
    Quic,
}

/// The node of the onion network that runs on a host: a relay or a client, with its index.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Relay(usize),
    Client(usize),
}

/// Addresses and certificates of all hosts, for the links between them.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    /// Addresses of hosts, indexed by the [`HostId`].
    pub(super) addresses: Vec<IpAddr>,
    /// Hosts, by address.
    pub(super) hosts: BTreeMap<IpAddr, HostId>,
    /// SHA-256 digests of the TLS certificates of relays.
    pub(super) certificates: BTreeMap<HostId, [u8; 32]>,
    /// TLS settings of QUIC links; `None` if the network has no such links.
    pub(super) quic: Option<Context>,
}

impl Hosts {
    pub(super) fn add(&mut self, address: IpAddr, certificate: Option<[u8; 32]>) {
        let host = HostId(self.addresses.len() as u32);
        self.addresses.push(address);
        self.hosts.insert(address, host);
        self.certificates.extend(certificate.map(|certificate| (host, certificate)));
    }

    pub(super) fn address(&self, host: HostId) -> IpAddr {
        self.addresses[host.index()]
    }

    /// Returns the properties of an open link to `peer` that the core (the protocol state machine)
    /// needs. The caller must add the properties that depend on the kind of link. `dialled` is
    /// true if this host opened the link.
    pub(super) fn start(&self, io: &Io<'_>, peer: HostId, dialled: bool) -> Start {
        let is_relay = self.certificates.contains_key(&io.host);
        Start {
            own: is_relay.then(|| self.address(io.host)).into_iter().collect(),
            peer_certificate: self.certificates.get(&peer).copied().filter(|_| dialled),
            ..Start::new(io.now, unix(io.now), self.address(peer))
        }
    }
}

/// Converts a time of the simulation to seconds since 1970.
pub(super) fn unix(now: Time) -> u64 {
    START + now.since(Time::ZERO).as_secs()
}
