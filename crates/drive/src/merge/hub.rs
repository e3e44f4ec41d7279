//! An interface by which clients' IP packets go on, and the answers come back: the kernel routes and
//! filters them as it does those of any other interface.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use anabranch_tunnel::ClientId;

use super::settings::Failure;
use crate::far_end::{Inner, KeyFile};
use crate::netlink::Prefix;
use crate::netlink::configure::{self, NewRoute};
use crate::packet;
use crate::tun::Tun;

/// What fits into a packet of 1,500 bytes with IPv6's header outside, padded or not.
const MTU: u32 = 1_400;
/// Room for a packet: no interface of ours has a larger MTU.
const ROOM: usize = 65_536;

/// The interface, and whose each address in its network is.
pub(super) struct Hub {
    pub(super) name: String,
    tun: Tun,
    clients: HashMap<IpAddr, ClientId>,
    room: Vec<u8>,
}

impl Hub {
    /// Makes the interface `name`, which leads to the clients of these keys.
    ///
    /// # Errors
    /// Two clients have one address; or the kernel's, which says what is missing.
    pub(super) fn open(name: &str, keys: &KeyFile) -> Result<Hub, Failure> {
        let far = keys.own.public;
        let mut clients = HashMap::new();
        for (id, peer) in (0..).map(ClientId).zip(&keys.peers) {
            let Inner { four, six } = Inner::of(&far, &peer.public);
            for address in [IpAddr::from(four), six.into()] {
                if let Some(ClientId(other)) = clients.insert(address, id) {
                    let other = keys.peers[other as usize].name.clone();
                    return Err(Failure::Alike(other, peer.name.clone()));
                }
            }
        }
        let opened = Hub::make(name, Inner::of(&far, &far), clients.keys().copied());
        let tun = opened.map_err(|error| Failure::Interface(name.to_owned(), error))?;
        Ok(Hub { name: name.to_owned(), tun, clients, room: vec![0; ROOM] })
    }

    fn make(name: &str, own: Inner, clients: impl Iterator<Item = IpAddr>) -> io::Result<Tun> {
        let tun = Tun::create(name)?;
        let oif = tun.index();
        configure::set_mtu(oif, MTU)?;
        configure::set_up(oif, true)?;
        for address in [IpAddr::from(own.four), own.six.into()] {
            configure::add_address(oif, whole(address))?;
        }
        for client in clients {
            let (dst, gateway, metric, congestion_control) = (whole(client), None, None, None);
            let prefsrc = Some(if client.is_ipv4() { own.four.into() } else { own.six.into() });
            let route = NewRoute { dst, oif, gateway, prefsrc, metric, congestion_control };
            configure::add_route(route)?;
        }
        Ok(tun)
    }

    /// Hands a client's packet to the kernel. False, and nothing is handed over, if it does not
    /// bear the client's own address.
    pub(super) fn write(&self, client: ClientId, packet: &[u8]) -> bool {
        let from = packet::ends(packet).map(|(from, _)| from);
        let is_own = from.is_some_and(|from| self.clients.get(&from) == Some(&client));
        is_own && self.tun.write(packet).is_ok()
    }

    /// Packets that wait for clients, at most so many; those for nobody are dropped.
    ///
    /// # Errors
    /// The interface is gone.
    pub(super) fn read(&mut self, most: usize) -> io::Result<Vec<(ClientId, Vec<u8>)>> {
        let mut packets = Vec::new();
        for _ in 0..most {
            let Some(length) = self.tun.read(&mut self.room)? else { break };
            let packet = &self.room[..length];
            let to = packet::ends(packet).map(|(_, to)| to);
            let client = to.and_then(|to| self.clients.get(&to));
            packets.extend(client.map(|client| (*client, packet.to_vec())));
        }
        Ok(packets)
    }
}

impl AsFd for Hub {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}

fn whole(ip: IpAddr) -> Prefix {
    Prefix { ip, len: if ip.is_ipv4() { Ipv4Addr::BITS as u8 } else { Ipv6Addr::BITS as u8 } }
}
