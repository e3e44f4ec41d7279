//! SOCKS5 UDP associations. An association is a TCP connection to a proxy, and the UDP relay that
//! exists as long as this connection (RFC 1928, section 7).

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anabranch_proxy::client::Credentials;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::dialogue::converse;
use super::fault::ProxyFault;

/// Timeout for opening an association (a UDP relay of a proxy), until the relay's address is
/// known.
const PATIENCE: Duration = Duration::from_secs(8);
/// Idle time before the first TCP keep-alive. Then three probes are sent, 4 s apart, so that the
/// failure of a proxy's machine is detected after 20 s.
const KEEPALIVE: Duration = Duration::from_secs(8);
/// Interval between TCP keep-alives while they are not answered.
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(4);
/// Number of unanswered TCP keep-alives after which the connection fails.
const KEEPALIVES: u32 = 3;

/// Parameters of the TCP connection to a proxy, or to another first hop of a stream.
#[derive(Clone, Debug)]
pub struct ConnectSettings {
    /// TCP address of the proxy or other first hop.
    pub proxy: SocketAddr,
    /// The local address to bind to; with port 0 the kernel chooses the port.
    pub local: SocketAddr,
    /// The interface to bind to; `None` for any interface.
    pub device: Option<String>,
    /// The mark of our packets (SO_MARK); `None` for no mark.
    pub mark: Option<u32>,
}

/// An association with a proxy. The proxy relays UDP for us as long as `control` is open.
#[derive(Debug)]
pub struct Association {
    /// The non-blocking TCP connection to the proxy. It becomes readable when the proxy ends the
    /// association.
    pub control: TcpStream,
    /// Address of the proxy's UDP relay. Each datagram to it begins with a
    /// [`Header`](super::Header).
    pub relay: SocketAddr,
}

impl Association {
    /// Returns whether the proxy has ended the association. Data from the proxy is ignored (RFC
    /// 1928 defines none).
    pub fn is_over(&self) -> bool {
        is_over(&self.control)
    }
}

/// Returns whether the proxy has closed the connection `control` or the connection has failed.
/// Data from the proxy is read and ignored.
pub(crate) fn is_over(mut control: &TcpStream) -> bool {
    match control.read(&mut [0; 64]) {
        Ok(length) => length == 0,
        Err(error) => {
            !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        }
    }
}

/// Connects to a proxy and asks it to relay datagrams. Blocks for at most 8 s.
///
/// # Errors
/// The proxy is not reachable, refuses to relay, or sends an invalid answer.
pub fn associate(
    reach: &ConnectSettings,
    credentials: Option<&Credentials>,
) -> Result<Association, ProxyFault> {
    let until = Instant::now() + PATIENCE;
    let control = connect(reach, PATIENCE).map_err(ProxyFault::of_connecting)?;
    let mut stream = DeadlineStream::new(&control, until);
    let relay = converse(&mut stream, credentials, reach.proxy.is_ipv6())?;
    let control: TcpStream = control.into();
    control.set_nonblocking(true).map_err(ProxyFault::Io)?;
    let ip = relay_at(reach.proxy.ip(), relay.ip());
    Ok(Association { control, relay: SocketAddr::new(ip, relay.port()) })
}

/// Returns the address of a proxy's relay. `named` is the address that the proxy reports. If
/// `named` is unspecified, or has a smaller scope than `proxy` (such as a private address, which a
/// proxy at a NAT may report), returns `proxy`.
fn relay_at(proxy: IpAddr, named: IpAddr) -> IpAddr {
    let named = named.to_canonical();
    let is_narrower = Scope::of(named) < Scope::of(proxy.to_canonical());
    if named.is_unspecified() || is_narrower { proxy } else { named }
}

/// Scope of an address: the part of the Internet in which the address is valid, from the smallest
/// to the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Machine,
    Link,
    Site,
    Global,
}

impl Scope {
    fn of(ip: IpAddr) -> Scope {
        match ip {
            ip if ip.is_loopback() => Scope::Machine,
            IpAddr::V4(ip) if ip.is_link_local() => Scope::Link,
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Scope::Link,
            IpAddr::V4(ip) if ip.is_private() || is_shared(ip) => Scope::Site,
            IpAddr::V6(ip) if ip.is_unique_local() => Scope::Site,
            _ => Scope::Global,
        }
    }
}

/// Returns whether `ip` is in the shared address space of carrier-grade NAT, 100.64.0.0/10 (RFC
/// 6598).
fn is_shared(ip: Ipv4Addr) -> bool {
    let [first, second, ..] = ip.octets();
    first == 100 && second & 0xc0 == 64
}

/// Opens a TCP connection to a proxy or another first hop, with the parameters `reach`. Fails if
/// this takes longer than `patience`.
pub(crate) fn connect(reach: &ConnectSettings, patience: Duration) -> io::Result<Socket> {
    let domain = Domain::for_address(reach.proxy);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if let Some(device) = &reach.device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    if let Some(mark) = reach.mark {
        socket.set_mark(mark)?;
    }
    socket.bind(&reach.local.into())?;
    socket.connect_timeout(&reach.proxy.into(), patience)?;
    socket.set_tcp_nodelay(true)?;
    let often = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_AGAIN);
    socket.set_tcp_keepalive(&often.with_retries(KEEPALIVES))?;
    Ok(socket)
}

/// A TCP stream with one deadline for all reads and writes together. The deadline holds even if
/// the other side sends byte by byte.
pub(crate) struct DeadlineStream<'s> {
    stream: &'s Socket,
    until: Instant,
}

impl DeadlineStream<'_> {
    pub(crate) fn new(stream: &Socket, until: Instant) -> DeadlineStream<'_> {
        DeadlineStream { stream, until }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for DeadlineStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        let mut stream = self.stream;
        stream.read(buffer)
    }
}

impl Write for DeadlineStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        let mut stream = self.stream;
        stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use anabranch_testkit::silent_port::SilentPort;

    fn reach(proxy: SocketAddr) -> ConnectSettings {
        ConnectSettings { proxy, local: "127.0.0.5:0".parse().unwrap(), device: None, mark: None }
    }

    #[test]
    fn a_relay_without_an_address_is_where_the_proxy_is_and_ends_with_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let proxy = thread::spawn(move || {
            let (mut client, from) = listener.accept().unwrap();
            client.write_all(b"\x05\0\x05\0\0\x01\0\0\0\0\x04\xd2").unwrap();
            (client, from)
        });
        let association = associate(&reach(at), None).unwrap();
        let (mut client, from) = proxy.join().unwrap();
        assert_eq!(from.ip(), reach(at).local.ip(), "the source address is bound");
        assert_eq!(association.relay, SocketAddr::new(at.ip(), 1234));
        assert!(!association.is_over());
        client.write_all(b"chatter").unwrap();
        drop(client);
        let deadline = Instant::now() + PATIENCE;
        while !association.is_over() {
            assert!(Instant::now() < deadline, "the end is not noticed");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_relay_named_by_an_address_that_means_nothing_here_is_where_the_proxy_is() {
        let at = |proxy: &str, named: &str| {
            relay_at(proxy.parse().unwrap(), named.parse().unwrap()).to_string()
        };
        for named in ["10.0.0.5", "172.17.0.2", "192.168.1.9", "100.64.3.4", "169.254.1.1"] {
            assert_eq!(at("203.0.113.5", named), "203.0.113.5", "{named}");
        }
        for named in ["127.0.0.1", "0.0.0.0", "::", "::ffff:10.0.0.5"] {
            assert_eq!(at("203.0.113.5", named), "203.0.113.5", "{named}");
        }
        assert_eq!(at("2001:db8::5", "fd00::1"), "2001:db8::5");
        assert_eq!(at("2001:db8::5", "fe80::1"), "2001:db8::5");
        assert_eq!(at("10.0.0.1", "127.0.0.1"), "10.0.0.1");
        // Another machine of the proxy's network, or of the Internet, may relay for it.
        assert_eq!(at("10.0.0.1", "10.0.0.7"), "10.0.0.7");
        assert_eq!(at("203.0.113.5", "198.51.100.7"), "198.51.100.7");
        assert_eq!(at("127.0.0.1", "192.168.1.9"), "192.168.1.9", "through a tunnel to it");
        assert_eq!(at("203.0.113.5", "100.128.0.1"), "100.128.0.1");
    }

    #[test]
    fn a_port_where_nothing_listens_is_told_as_that() {
        let nobody = SilentPort::new();
        let message = associate(&reach(nobody.at), None).unwrap_err().to_string();
        assert_eq!(message, "does not listen at this address (connection refused)");
    }

    #[test]
    fn a_proxy_that_drips_does_not_outlast_our_patience() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut drip, _) = listener.accept().unwrap();
        let dripping = thread::spawn(move || {
            while drip.write_all(b"\x05").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let until = Instant::now() + Duration::from_millis(200);
        let stream = Socket::from(stream);
        let error = DeadlineStream::new(&stream, until).read_exact(&mut [0; 4096]).unwrap_err();
        assert!(matches!(ProxyFault::of_stream(error), ProxyFault::Timeout));
        assert!(Instant::now() < until + Duration::from_secs(5));
        drop(stream);
        dripping.join().unwrap();
    }
}
