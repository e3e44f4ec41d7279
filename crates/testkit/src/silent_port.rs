//! Ports without a listener, each reserved for one test. It is not enough to choose a free port,
//! because another test or a child process may take the port in the meantime.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use socket2::{Domain, Socket, Type};

/// A TCP port that refuses connections while this value exists.
#[derive(Debug)]
pub struct SilentPort {
    /// Address of the port.
    pub at: SocketAddr,
    _socket: Socket,
}

impl SilentPort {
    /// Reserves a TCP port on loopback on which nobody listens.
    ///
    /// # Panics
    /// The kernel gives no socket.
    #[allow(clippy::new_without_default, reason = "it opens a socket")]
    #[must_use]
    pub fn new() -> SilentPort {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        let at = socket.local_addr().unwrap().as_socket().unwrap();
        SilentPort { at, _socket: socket }
    }
}

/// Reserves a UDP port of `ip` that refuses all datagrams: its socket is connected to another
/// port.
///
/// # Panics
/// The kernel gives no socket.
#[must_use]
pub fn silent_udp(ip: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    socket.connect((ip, 9)).unwrap();
    socket
}
