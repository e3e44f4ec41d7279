//! Queries for network interfaces and their addresses.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};

use super::socket;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The kernel's index of the interface, unique in its namespace.
    pub index: u32,
    /// Name of the interface, as `ip link` shows it.
    pub name: String,
    /// Maximum bytes of an IP packet that the interface accepts.
    pub mtu: u32,
    /// True if the interface is switched on (`IFF_UP`).
    pub up: bool,
    /// True if the interface is switched on and has a carrier (`IFF_RUNNING`), so that packets can
    /// leave.
    pub running: bool,
    /// Link layer of the interface.
    pub kind: LinkKind,
    /// True if the interface is a tunnel (WireGuard or TUN), whose packets leave through another
    /// interface.
    pub tunnel: bool,
}

/// The link layer of an interface (`ARPHRD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// The loopback of this machine.
    Loopback,
    /// Ethernet, or similar to it: Wi-Fi, veth, bridges.
    Ether,
    /// No link layer, as for TUN and WireGuard interfaces (`ARPHRD_NONE`).
    Bare,
    /// Another link layer, with this `ARPHRD_*` number.
    Other(u16),
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Index of the interface that has the address.
    pub index: u32,
    /// The local address.
    pub ip: IpAddr,
    /// Number of leading bits that identify the network.
    pub prefix_len: u8,
}

/// Lists all interfaces of this namespace.
pub fn links() -> io::Result<Vec<Link>> {
    let answers = socket::dump(Message::GetLink(LinkMessage::default()))?;
    Ok(answers.iter().filter_map(as_link).collect())
}

/// Returns the interface called `name`; `None` if there is none.
pub fn link_named(name: &str) -> io::Result<Option<Link>> {
    Ok(links()?.into_iter().find(|link| link.name == name))
}

/// Lists all addresses of this namespace, IPv4 and IPv6.
pub fn addresses() -> io::Result<Vec<Address>> {
    let answers = socket::dump(Message::GetAddress(AddressMessage::default()))?;
    Ok(answers.iter().filter_map(as_address).collect())
}

fn as_link(answer: &Message) -> Option<Link> {
    match answer {
        Message::NewLink(message) => Some(Link::from(message)),
        _ => None,
    }
}

fn as_address(answer: &Message) -> Option<Address> {
    match answer {
        Message::NewAddress(message) => Address::parse(message),
        _ => None,
    }
}

impl From<&LinkMessage> for Link {
    fn from(message: &LinkMessage) -> Link {
        let mut link = Link {
            index: message.header.index,
            name: String::new(),
            mtu: 0,
            up: message.header.flags.contains(LinkFlags::Up),
            running: message.header.flags.contains(LinkFlags::Running),
            kind: message.header.link_layer_type.into(),
            tunnel: false,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::LinkInfo(infos) => link.tunnel = infos.iter().any(is_tunnel),
                _ => {}
            }
        }
        link
    }
}

fn is_tunnel(info: &LinkInfo) -> bool {
    matches!(info, LinkInfo::Kind(InfoKind::Wireguard | InfoKind::Tun))
}

impl From<LinkLayerType> for LinkKind {
    fn from(layer: LinkLayerType) -> LinkKind {
        match layer {
            LinkLayerType::Loopback => LinkKind::Loopback,
            LinkLayerType::Ether => LinkKind::Ether,
            LinkLayerType::None => LinkKind::Bare,
            other => LinkKind::Other(other.into()),
        }
    }
}

impl Address {
    /// Parses an address; `None` if the message contains none. `IFA_LOCAL` is used if it is
    /// present, because on point-to-point links `IFA_ADDRESS` is the other end's address.
    pub(super) fn parse(message: &AddressMessage) -> Option<Address> {
        let (mut local, mut address) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Local(ip) => local = Some(*ip),
                AddressAttribute::Address(ip) => address = Some(*ip),
                _ => {}
            }
        }
        let (index, prefix_len) = (message.header.index, message.header.prefix_len);
        local.or(address).map(|ip| Address { index, ip, prefix_len })
    }
}
