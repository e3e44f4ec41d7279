//! Ports for tests at which nobody listens, and that nobody else is given meanwhile: a port that
//! was free a moment ago may be another test's by now, or still be held by a child that it has just
//! forked.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use socket2::{Domain, Socket, Type};

/// A TCP port that refuses connections, as long as this is kept.
pub(crate) struct SilentPort {
    pub(crate) at: SocketAddr,
    _socket: Socket,
}

impl SilentPort {
    /// One on loopback.
    pub(crate) fn new() -> SilentPort {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        let at = socket.local_addr().unwrap().as_socket().unwrap();
        SilentPort { at, _socket: socket }
    }
}

/// A UDP port of this address that refuses what anybody sends: its socket hears one other alone.
pub(crate) fn silent_udp(ip: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    socket.connect((ip, 9)).unwrap();
    socket
}
