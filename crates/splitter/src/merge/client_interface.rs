//! The TUN interface of a far end (our program in front of servers). Through it, the far end
//! passes clients' IP packets to the kernel, and receives the answers. The kernel routes and
//! filters these packets as on any other interface.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use anabranch_os::netlink::Prefix;
use anabranch_os::netlink::configure::{self, NewRoute};
use anabranch_os::packet;
use anabranch_os::tun::Tun;
use anabranch_tunnel::ClientId;

use super::settings::Failure;
use crate::far_end::keys::PublicKey;
use crate::far_end::{Inner, KeyFile, Peer};

/// MTU of the interface, in bytes. A packet of this size and the tunnel's headers, over IPv6 and
/// with or without padding, fit into 1,500 bytes.
const MTU: u32 = 1_400;
/// Buffer size for one packet, in bytes. No interface of this program has a larger MTU.
const ROOM: usize = 65_536;

/// The TUN interface of the far end (our program in front of the server), and the map from
/// clients' addresses on this interface to clients.
pub(super) struct ClientInterface {
    pub(super) name: String,
    tun: Tun,
    clients: HashMap<IpAddr, ClientId>,
    arena: Arena,
}

/// Packets received from the interface, stored one after the other, and the client of each packet.
#[derive(Default)]
pub(super) struct Arena {
    bytes: Vec<u8>,
    places: Vec<(ClientId, Range<usize>)>,
}

impl Arena {
    /// Returns each packet with its client.
    pub(super) fn packets(&self) -> impl Iterator<Item = (ClientId, &[u8])> {
        self.places.iter().map(|(client, place)| (*client, &self.bytes[place.clone()]))
    }
}

impl ClientInterface {
    /// Creates the interface `name`, with routes to the clients in `keys`.
    ///
    /// # Errors
    /// Two clients have the same address, or the kernel returned an error; the message identifies
    /// the cause.
    pub(super) fn open(name: &str, keys: &KeyFile) -> Result<ClientInterface, Failure> {
        alike(keys)?;
        let far = keys.own.public;
        let cannot = |error| Failure::Interface(name.to_owned(), error);
        let tun = ClientInterface::make(name, Inner::of(&far, &far)).map_err(cannot)?;
        let (clients, arena) = (HashMap::new(), Arena::default());
        let mut interface = ClientInterface { name: name.to_owned(), tun, clients, arena };
        let named = (0..).map(ClientId).zip(&keys.peers);
        interface.lead_to(named, &far).map_err(cannot)?;
        Ok(interface)
    }

    fn make(name: &str, own: Inner) -> io::Result<Tun> {
        let tun = Tun::create(name)?;
        configure::set_mtu(tun.index(), MTU)?;
        configure::set_up(tun.index(), true)?;
        for address in [IpAddr::from(own.four), own.six.into()] {
            configure::add_address(tun.index(), whole(address))?;
        }
        Ok(tun)
    }

    /// Adds routes to the clients in `named`. From now on, packets to all other addresses are
    /// dropped. The route of a removed client remains until the interface is removed.
    ///
    /// # Errors
    /// The kernel cannot add a route.
    pub(super) fn lead_to<'p>(
        &mut self,
        named: impl Iterator<Item = (ClientId, &'p Peer)>,
        far: &PublicKey,
    ) -> io::Result<()> {
        let (own, oif) = (Inner::of(far, far), self.tun.index());
        self.clients.clear();
        for (id, peer) in named {
            for client in addresses(far, peer) {
                self.clients.insert(client, id);
                let (dst, gateway, metric, congestion_control) = (whole(client), None, None, None);
                let prefsrc = Some(if client.is_ipv4() { own.four.into() } else { own.six.into() });
                let route = NewRoute { dst, oif, gateway, prefsrc, metric, congestion_control };
                let added = configure::add_route(route);
                // The route already exists if this client was in the key file before.
                let is_there = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
                added.or_else(|error| if is_there(&error) { Ok(()) } else { Err(error) })?;
            }
        }
        Ok(())
    }

    /// Passes a client's packet to the kernel. Returns false if the packet was dropped: its source
    /// is not the client's own address, or the kernel refuses it.
    pub(super) fn write(&self, client: ClientId, packet: &[u8]) -> bool {
        let from = packet::ends(packet).map(|(from, _)| from);
        let is_own = from.is_some_and(|from| self.clients.get(&from) == Some(&client));
        is_own && self.tun.write(packet).is_ok()
    }

    /// Reads at most `most` packets, and drops the packets to unknown addresses. When the caller
    /// has processed the result, it passes the result to [`ClientInterface::recycle`].
    ///
    /// # Errors
    /// The interface was removed.
    pub(super) fn read(&mut self, most: usize) -> io::Result<Arena> {
        let mut arena = std::mem::take(&mut self.arena);
        let mut start = 0;
        for _ in 0..most {
            if arena.bytes.len() < start + ROOM {
                arena.bytes.resize(start + ROOM, 0);
            }
            let Some(length) = self.tun.read(&mut arena.bytes[start..])? else { break };
            let place = start..start + length;
            let to = packet::ends(&arena.bytes[place.clone()]).map(|(_, to)| to);
            if let Some(client) = to.and_then(|to| self.clients.get(&to)) {
                start = place.end;
                arena.places.push((*client, place));
            }
        }
        Ok(arena)
    }

    /// Keeps the memory of a processed [`Arena`], for reuse by the next read.
    pub(super) fn recycle(&mut self, mut arena: Arena) {
        arena.places.clear();
        self.arena = arena;
    }
}

impl AsFd for ClientInterface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}

/// Returns an error if two clients in `keys` have the same IP address on the interface. Each
/// address is derived from the client's public key.
pub(super) fn alike(keys: &KeyFile) -> Result<(), Failure> {
    let mut known: HashMap<IpAddr, &str> = HashMap::new();
    for peer in &keys.peers {
        for address in addresses(&keys.own.public, peer) {
            if let Some(other) = known.insert(address, &peer.name) {
                return Err(Failure::Alike(other.to_owned(), peer.name.clone()));
            }
        }
    }
    Ok(())
}

fn addresses(far: &PublicKey, peer: &Peer) -> [IpAddr; 2] {
    let Inner { four, six } = Inner::of(far, &peer.public);
    [four.into(), six.into()]
}

fn whole(ip: IpAddr) -> Prefix {
    Prefix { ip, len: if ip.is_ipv4() { Ipv4Addr::BITS as u8 } else { Ipv6Addr::BITS as u8 } }
}
