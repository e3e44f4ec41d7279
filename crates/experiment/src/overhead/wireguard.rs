//! Measurements with WireGuard: `wireguard-go` at both ends, and one TCP connection in the tunnel.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::super::Programs;
use super::super::stage::Stage;
use super::super::tunnel::{self, PORT, SERVER, Tunnel};
use super::session::Session;
use super::transfer::{Arrival, Limit, Meter};

pub(super) use super::super::tunnel::NEEDS;

/// Port of the TCP server inside the tunnel.
const TCP_PORT: u16 = 5001;
/// Timeout of the first connection through the tunnel, which waits for the WireGuard handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which a waiting read checks whether the transfer is over.
const GLANCE: Duration = Duration::from_millis(50);

/// Starts both ends of a WireGuard tunnel. The client's end sends the tunnel's packets to the
/// splitter.
pub(super) fn serve<'a>(
    stage: &'a Stage,
    programs: &'a Programs,
) -> io::Result<Box<dyn Session + 'a>> {
    Ok(Box::new(Tunnel::open(stage, programs, tunnel::MTU)?))
}

impl Session for Tunnel<'_> {
    fn port(&self) -> u16 {
        PORT
    }

    fn transfer(&mut self, stage: &Stage, limit: Limit, stop: &AtomicBool) -> io::Result<Arrival> {
        let address = SocketAddr::from((SERVER, TCP_PORT));
        let listener = stage.server().run(|| listen(address))?;
        let client = stage.client().run(|| connect(address))?;
        client.set_read_timeout(Some(GLANCE))?;
        let (mut server, _) = listener.accept()?;
        let pen = server.try_clone()?;
        thread::scope(|scope| {
            scope.spawn(move || {
                let piece = vec![0; 1 << 17];
                // The thread ends when the connection is closed.
                while server.write_all(&piece).is_ok() {}
            });
            let arrived = Meter::start(limit, stop).drain(&client);
            // An error means that the connection is already closed.
            let _ = pen.shutdown(Shutdown::Both);
            Ok(arrived)
        })
    }
}

/// Creates a TCP socket with the congestion control `cubic`, which the CoMPS paper used, whatever
/// this machine's default is.
fn tcp() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_tcp_congestion(b"cubic")?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = tcp()?;
    socket.bind(&address.into())?;
    socket.listen(1)?;
    Ok(socket.into())
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = tcp()?;
    let connected = socket.connect_timeout(&address.into(), PATIENCE);
    connected
        .map_err(|e| io::Error::new(e.kind(), format!("cannot connect through the tunnel: {e}")))?;
    Ok(socket.into())
}
