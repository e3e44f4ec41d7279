//! The egress of a path: the interface, source address and route with which its packets leave this
//! machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::socks::Header;

/// Length of a UDP header, in bytes.
const UDP_HEADER: u32 = 8;
/// Number of bytes that WireGuard adds to a packet: a header of 16 and a tag of 16.
const WIREGUARD: u32 = 32;
/// Maximum bytes of an IP packet that is not a jumbogram. Loopback interfaces report one byte
/// more.
const LARGEST_PACKET: u32 = 65_535;

/// The egress of a path towards one server.
///
/// A driver binds its sockets to [`Egress::device`] and [`Egress::local`] and connects them to
/// [`Egress::remote`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    /// The path's name.
    pub name: String,
    /// The interface to bind to (SO_BINDTODEVICE). `None` if the destination is a non-loopback
    /// address of this machine, because the kernel finds no route to it for a socket bound to
    /// `lo`.
    pub device: Option<String>,
    /// The kernel's index of the outgoing interface.
    pub index: u32,
    /// The source address to bind to. `None` lets the kernel choose, so that the path survives a
    /// change of address.
    pub source: Option<IpAddr>,
    /// The source address that the kernel uses at present for packets on this path; `None` if the
    /// kernel does not report it.
    pub sends_as: Option<IpAddr>,
    /// The server for which the route was looked up.
    pub server: SocketAddr,
    /// The next router; `None` if the server is on the interface's own network.
    pub gateway: Option<IpAddr>,
    /// MTU of the route in bytes, as far as this machine knows the route; `None` if unknown.
    pub mtu: Option<u32>,
    /// Number of source ports that the path uses in turn, at least 1.
    pub ports: u16,
    /// Address of the path's TCP connection: the proxy's. A path that is a stream without a proxy
    /// has the far end's address here. The other fields describe the route to this address.
    /// `None` for datagrams without a proxy, and for a stream through OpenSSH.
    pub proxy: Option<SocketAddr>,
    /// Intermediary of the stream ([`Intermediary`]: a proxy or an ssh host), if the path is a
    /// stream; `None` for a path of datagrams.
    pub stream: Option<Intermediary>,
    /// Warning about a setting that works but is probably a mistake; `None` if there is none.
    pub note: Option<String>,
}

/// Intermediary of a stream: the proxy with our user name on it, or the ssh host. `None` for a
/// direct connection. Two streams on one interface count as different paths if their
/// intermediaries differ, because different observers see the streams.
pub type Intermediary = Option<String>;

impl Egress {
    /// Returns the local address to bind a socket to `server` to, with port 0, so that the kernel
    /// chooses the port.
    pub fn local(&self, server: SocketAddr) -> SocketAddr {
        let unspecified = match server {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        self.scoped(SocketAddr::new(self.source.unwrap_or(unspecified), 0))
    }

    /// Returns the address to connect to for `server`. A link-local address gets the interface of
    /// this path as its zone.
    pub fn remote(&self, server: SocketAddr) -> SocketAddr {
        self.scoped(server)
    }

    /// Returns the destination of this path's packets: the proxy, the first hop, or the server for
    /// which the route was looked up.
    pub fn peer(&self) -> SocketAddr {
        self.proxy.unwrap_or(self.server)
    }

    /// Returns the number of bytes that a proxy's header takes from each datagram to the server
    /// (RFC 1928, section 7); 0 without a proxy.
    pub fn overhead(&self) -> u32 {
        let relay = self.proxy.filter(|_| self.stream.is_none());
        relay.map_or(0, |_| Header::length_to(self.server))
    }

    /// Returns the maximum bytes of UDP payload in a packet to the server on this path; `None` if
    /// the MTU is unknown.
    pub fn udp_payload(&self) -> Option<u32> {
        Some(self.mtu?.min(LARGEST_PACKET).saturating_sub(self.headers()))
    }

    /// Returns the number of bytes in all headers before a datagram's payload, from the IP header
    /// to the proxy's header.
    pub fn headers(&self) -> u32 {
        let ip_header = if self.peer().is_ipv4() { 20 } else { 40 };
        ip_header + UDP_HEADER + self.overhead()
    }

    /// Returns whether datagrams to `server` certainly use this egress. Datagrams through a proxy
    /// or a stream always do. A path that is bound to no interface certainly leads only to the
    /// server for which its route was looked up. The route to another server may use any
    /// interface.
    pub fn leads_to(&self, server: SocketAddr) -> bool {
        if self.proxy.is_some() || self.stream.is_some() {
            return true;
        }
        let alike = server.is_ipv4() == self.server.is_ipv4();
        alike && (self.device.is_some() || server.ip() == self.server.ip())
    }

    fn scoped(&self, address: SocketAddr) -> SocketAddr {
        match address {
            SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
                SocketAddrV6::new(*v6.ip(), v6.port(), v6.flowinfo(), self.index).into()
            }
            other => other,
        }
    }
}

/// Size limits for datagrams, from the path with the smallest MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mtu {
    /// Maximum bytes of UDP payload.
    pub udp_payload: u32,
    /// The MTU in bytes that the user should set on a WireGuard interface whose packets use the
    /// paths.
    pub tunnel: u32,
}

/// Returns the size limits for datagrams, from the path with the smallest MTU; `None` if no path's
/// MTU is known.
pub fn recommended(egresses: &[Egress]) -> Option<Mtu> {
    let udp_payload = egresses.iter().filter_map(Egress::udp_payload).min()?;
    Some(Mtu { udp_payload, tunnel: udp_payload.saturating_sub(WIREGUARD) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn egress(server: &str, mtu: u32) -> Egress {
        Egress {
            name: "p".into(),
            device: Some("eth0".into()),
            index: 3,
            source: None,
            sends_as: None,
            server: server.parse().unwrap(),
            gateway: None,
            mtu: Some(mtu),
            ports: 1,
            proxy: None,
            stream: None,
            note: None,
        }
    }

    #[test]
    fn the_narrowest_path_sets_the_tunnels_mtu() {
        let paths = [egress("192.0.2.1:1", 1500), egress("192.0.2.1:1", 1400)];
        assert_eq!(recommended(&paths), Some(Mtu { udp_payload: 1372, tunnel: 1340 }));
        let six = [egress("[2001:db8::1]:1", 1500)];
        assert_eq!(recommended(&six), Some(Mtu { udp_payload: 1452, tunnel: 1420 }));
        assert_eq!(recommended(&[]), None);
    }

    #[test]
    fn a_proxys_header_counts() {
        let proxied = |server, proxy: &str| Egress {
            proxy: Some(proxy.parse().unwrap()),
            ..egress(server, 1500)
        };
        let four = proxied("192.0.2.1:1", "198.51.100.1:1080");
        let wide = egress("192.0.2.1:1", 1500);
        let mtu = recommended(&[wide, four.clone()]);
        assert_eq!(mtu, Some(Mtu { udp_payload: 1462, tunnel: 1430 }));
        let six = proxied("[2001:db8::1]:1", "198.51.100.1:1080");
        assert_eq!(six.udp_payload(), Some(1500 - 28 - 22), "IPv6 behind a proxy with IPv4");
        assert!(four.leads_to(six.server), "a proxy takes datagrams to anywhere");
    }

    #[test]
    fn a_stream_takes_nothing_from_a_datagram() {
        let by = "198.51.100.1:1080".parse().ok();
        let stream = Egress { proxy: by, stream: Some(None), ..egress("192.0.2.1:1", 1500) };
        assert_eq!(stream.udp_payload(), Some(1472));
    }

    #[test]
    fn no_packet_is_larger_than_ip_allows_even_on_loopback() {
        let limit = recommended(&[egress("127.0.0.1:1", 65_536)]).unwrap();
        assert_eq!(limit.udp_payload, 65_507);
    }

    #[test]
    fn a_way_without_an_interface_leads_to_one_server_only() {
        let bound = egress("192.0.2.1:1", 1500);
        let unbound = Egress { device: None, ..bound.clone() };
        let other = "198.51.100.1:1".parse().unwrap();
        assert!(
            bound.leads_to(other) && !unbound.leads_to(other) && unbound.leads_to(bound.server)
        );
        assert!(!bound.leads_to("[2001:db8::1]:1".parse().unwrap()));
    }

    #[test]
    fn link_local_addresses_get_the_number_of_the_paths_link() {
        let mut path = egress("[fe80::1]:7", 1500);
        path.source = Some("fe80::2".parse().unwrap());
        assert_eq!(path.remote(path.server), "[fe80::1%3]:7".parse().unwrap());
        assert_eq!(path.local(path.server), "[fe80::2%3]:0".parse().unwrap());
        let global: SocketAddr = "[2001:db8::1]:7".parse().unwrap();
        assert_eq!(path.remote(global), global);
    }
}
