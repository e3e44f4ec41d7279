//! Lookups of routes.

use std::fmt;
use std::io;
use std::net::IpAddr;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};

use super::{query, socket};

/// The result of a route lookup by [`route_to`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Index of the outgoing interface.
    pub oif: u32,
    /// The next router; `None` if the destination is on the interface's own network.
    pub gateway: Option<IpAddr>,
    /// The source address that the kernel would choose. For IPv6, it is `None` if neither the
    /// route nor the lookup specified a source address.
    pub prefsrc: Option<IpAddr>,
    /// Maximum bytes of an IP packet: the route's own value (path MTU discovery, `ip route ...
    /// mtu`), or otherwise the interface's.
    pub mtu: u32,
    /// True if the kernel only *assumes* that the destination is on the network of the interface,
    /// because no table has a route. Linux assumes this for IPv4 if the lookup specifies an
    /// interface. Packets on an assumed route rarely reach a host.
    pub assumed: bool,
}

/// The reason why a packet could not be sent.
#[derive(Debug)]
pub enum RouteError {
    /// There is no route to the destination (`ENETUNREACH`, `EHOSTUNREACH`), or only an
    /// `unreachable` one.
    NoRoute,
    /// A rule or a route forbids the packet (`prohibit`, `blackhole`).
    Forbidden,
    /// The source address is not one of this machine's.
    ForeignSource,
    /// The lookup itself failed.
    Io(io::Error),
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouteError::NoRoute => f.write_str("no route"),
            RouteError::Forbidden => f.write_str("a routing rule forbids it"),
            RouteError::ForeignSource => f.write_str(
                "the source address does not belong to this machine, so there is no route",
            ),
            RouteError::Io(error) => write!(f, "route lookup failed: {error}"),
        }
    }
}

impl std::error::Error for RouteError {}

impl From<io::Error> for RouteError {
    fn from(error: io::Error) -> RouteError {
        RouteError::Io(error)
    }
}

/// Looks up the route to `dst`, like `ip route get DST [from SRC] [oif OIF] [mark MARK]`, with
/// rules, marks and source routing.
///
/// # Errors
/// [`RouteError`] names the cause: the destination, the policy or the source address.
pub fn route_to(
    dst: IpAddr,
    src: Option<IpAddr>,
    oif: Option<u32>,
    mark: Option<u32>,
) -> Result<Route, RouteError> {
    check_source(src)?;
    let request = Message::GetRoute(question(dst, src, oif, mark));
    let answers = socket::ask(request).map_err(blame)?;
    let found = answers.iter().find_map(|answer| match answer {
        Message::NewRoute(message) => Some(message),
        _ => None,
    });
    read(found.ok_or(RouteError::NoRoute)?)
}

/// Checks that the source address `src`, if given, belongs to this machine. The kernel does not
/// check an IPv6 source, and reports an invalid IPv4 source only as `EINVAL`.
fn check_source(src: Option<IpAddr>) -> Result<(), RouteError> {
    let Some(src) = src else { return Ok(()) };
    if src.is_loopback() || query::addresses()?.iter().any(|address| address.ip == src) {
        return Ok(());
    }
    Err(RouteError::ForeignSource)
}

fn question(dst: IpAddr, src: Option<IpAddr>, oif: Option<u32>, mark: Option<u32>) -> RouteMessage {
    let bits = if dst.is_ipv4() { 32 } else { 128 };
    let mut message = RouteMessage::default();
    message.header.address_family =
        if dst.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.destination_prefix_length = bits;
    message.header.source_prefix_length = src.map_or(0, |_| bits);
    message.header.flags = RouteFlags::LookupTable;
    message.attributes.push(RouteAttribute::Destination(dst.into()));
    message.attributes.extend(src.map(|ip| RouteAttribute::Source(ip.into())));
    message.attributes.extend(oif.map(RouteAttribute::Oif));
    message.attributes.extend(mark.map(RouteAttribute::Mark));
    message
}

fn blame(error: io::Error) -> RouteError {
    match error.raw_os_error() {
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ESRCH) => RouteError::NoRoute,
        Some(libc::EACCES | libc::EINVAL) => RouteError::Forbidden,
        _ => RouteError::Io(error),
    }
}

fn read(message: &RouteMessage) -> Result<Route, RouteError> {
    match message.header.kind {
        RouteType::Unreachable => return Err(RouteError::NoRoute),
        RouteType::Prohibit | RouteType::BlackHole => return Err(RouteError::Forbidden),
        _ => {}
    }
    let mut route = Route { oif: 0, gateway: None, prefsrc: None, mtu: 0, assumed: false };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => route.oif = *index,
            RouteAttribute::Gateway(address) => route.gateway = as_ip(address),
            RouteAttribute::PrefSource(address) => route.prefsrc = as_ip(address),
            RouteAttribute::Metrics(metrics) => route.mtu = mtu_of(metrics).unwrap_or(0),
            RouteAttribute::Table(table) => route.assumed = *table == 0,
            _ => {}
        }
    }
    with_link_mtu(route)
}

/// Copies the interface's MTU into `route`, if the route itself has none.
fn with_link_mtu(mut route: Route) -> Result<Route, RouteError> {
    if route.mtu == 0 {
        let link = query::links()?.into_iter().find(|link| link.index == route.oif);
        route.mtu = link.ok_or(RouteError::NoRoute)?.mtu;
    }
    Ok(route)
}

fn mtu_of(metrics: &[RouteMetric]) -> Option<u32> {
    metrics.iter().find_map(|metric| match metric {
        RouteMetric::Mtu(mtu) => Some(*mtu),
        _ => None,
    })
}

fn as_ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}
