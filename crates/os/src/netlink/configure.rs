//! Functions that change the settings of links (network interfaces), and the routes of the main
//! routing table. All of them need `CAP_NET_ADMIN`.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};

use super::{Prefix, socket};

/// A route to add with [`add_route`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewRoute {
    /// Destination of the route.
    pub dst: Prefix,
    /// Index of the interface through which packets leave.
    pub oif: u32,
    /// The next router. `None` if the destination is on the interface's own network.
    pub gateway: Option<IpAddr>,
    /// Source address for sockets that chose none; `None` lets the kernel choose.
    pub prefsrc: Option<IpAddr>,
    /// Metric of the route; the route with the smallest is preferred. `None` means the kernel's
    /// default (0 for IPv4, 1024 for IPv6).
    pub metric: Option<u32>,
    /// TCP congestion control of connections over this route. `None` means the namespace's
    /// default.
    pub congestion_control: Option<&'static str>,
}

/// Switches the interface `index` on if `up` is true, otherwise off.
pub fn set_up(index: u32, up: bool) -> io::Result<()> {
    let mut message = link(index);
    message.header.change_mask = LinkFlags::Up;
    message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
    socket::order(Message::SetLink(message), 0)
}

/// Sets the MTU of the interface `index` in bytes.
pub fn set_mtu(index: u32, mtu: u32) -> io::Result<()> {
    let mut message = link(index);
    message.attributes.push(LinkAttribute::Mtu(mtu));
    socket::order(Message::SetLink(message), 0)
}

/// Sets the transmit queue length (`txqueuelen`) of the interface `index`, in packets.
pub fn set_queue_len(index: u32, packets: u32) -> io::Result<()> {
    let mut message = link(index);
    message.attributes.push(LinkAttribute::TxQueueLen(packets));
    socket::order(Message::SetLink(message), 0)
}

/// Adds an address to the interface `index`. An IPv6 address is usable at once, because duplicate
/// address detection is skipped (`IFA_F_NODAD`).
pub fn add_address(index: u32, address: Prefix) -> io::Result<()> {
    let mut message = AddressMessage::default();
    message.header.family = family(address.ip);
    message.header.prefix_len = address.len;
    message.header.scope = AddressScope::Universe;
    message.header.index = index;
    message.header.flags = AddressHeaderFlags::Nodad;
    message.attributes.push(AddressAttribute::Local(address.ip));
    message.attributes.push(AddressAttribute::Address(address.ip));
    socket::order(Message::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
}

/// Adds `route` to the main table.
///
/// # Errors
/// `EEXIST` if the table already has a route with the same destination and metric (IPv4), or an
/// identical route (IPv6).
pub fn add_route(route: NewRoute) -> io::Result<()> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(route.dst.ip);
    message.header.destination_prefix_length = route.dst.len;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope =
        if route.gateway.is_none() { RouteScope::Link } else { RouteScope::Universe };
    message.header.kind = RouteType::Unicast;
    message.attributes.push(RouteAttribute::Destination(route.dst.network().ip.into()));
    message.attributes.push(RouteAttribute::Oif(route.oif));
    message.attributes.extend(route.gateway.map(|ip| RouteAttribute::Gateway(ip.into())));
    message.attributes.extend(route.prefsrc.map(|ip| RouteAttribute::PrefSource(ip.into())));
    message.attributes.extend(route.metric.map(RouteAttribute::Priority));
    let control = route.congestion_control.map(|name| RouteMetric::CcAlgo(name.to_owned()));
    message.attributes.extend(control.map(|metric| RouteAttribute::Metrics(vec![metric])));
    socket::order(Message::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
}

fn link(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
