//! WireGuard: wireguard-go at both ends, and one TCP connection in the tunnel.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::super::Programs;
use super::bench::Session;
use super::stage::{Stage, command, wait_for};
use super::transfer::{Arrived, Limit, Meter};
use crate::emulate::{Member, Namespace};
use crate::netlink::{configure, link_named};

/// What it takes, and what gives it.
pub(super) const NEEDS: &[(&str, &str)] =
    &[("wireguard-go", "Go module golang.zx2c4.com/wireguard"), ("wg", "package wireguard-tools")];

const PORT: u16 = 51820;
const INSIDE_SERVER: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
const INSIDE_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 2);
/// In the tunnel.
const TCP_PORT: u16 = 5001;
/// What fits through paths of 1500 bytes: the kernel's own choice for WireGuard.
const MTU: u32 = 1420;
/// The first connection waits for the tunnel's handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// A read that waits looks up so often.
const GLANCE: Duration = Duration::from_millis(50);

/// A tunnel.
struct Tunnel<'a> {
    _ends: [Member<'a>; 2],
}

/// Both ends of a tunnel; the client's end speaks to the splitter.
pub(super) fn serve<'a>(
    stage: &'a Stage,
    programs: &'a Programs,
) -> io::Result<Box<dyn Session + 'a>> {
    let wg = Wg { stage, programs };
    let (server, client) = (wg.keys(stage.server())?, wg.keys(stage.client())?);
    let ends = [
        wg.end(stage.server(), "wg0", INSIDE_SERVER, &server.private)?,
        wg.end(stage.client(), "wg1", INSIDE_CLIENT, &client.private)?,
    ];
    let port = PORT.to_string();
    let peer = ["peer", &client.public, "allowed-ips", &INSIDE_CLIENT.to_string()];
    wg.set(stage.server(), "wg0", &[&["listen-port", &port][..], &peer].concat())?;
    let endpoint = ["endpoint", &format!("127.0.0.1:{PORT}")];
    let peer = ["peer", &server.public, "allowed-ips", &INSIDE_SERVER.to_string()];
    wg.set(stage.client(), "wg1", &[&peer[..], &endpoint].concat())?;
    Ok(Box::new(Tunnel { _ends: ends }))
}

impl Session for Tunnel<'_> {
    fn port(&self) -> u16 {
        PORT
    }

    fn transfer(&mut self, stage: &Stage, limit: Limit, stop: &AtomicBool) -> io::Result<Arrived> {
        let address = SocketAddr::from((INSIDE_SERVER, TCP_PORT));
        let listener = stage.server().run(|| listen(address))?;
        let client = stage.client().run(|| connect(address))?;
        client.set_read_timeout(Some(GLANCE))?;
        let (mut server, _) = listener.accept()?;
        let pen = server.try_clone()?;
        thread::scope(|scope| {
            scope.spawn(move || {
                let piece = vec![0; 1 << 17];
                // It ends when the connection does.
                while server.write_all(&piece).is_ok() {}
            });
            let arrived = Meter::start(limit, stop).drain(&client);
            // Errors mean that it is closed.
            let _ = pen.shutdown(Shutdown::Both);
            Ok(arrived)
        })
    }
}

/// A socket that controls congestion as the machines of the paper did, whatever this machine prefers.
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
    connected.map_err(|e| io::Error::new(e.kind(), format!("no connection in the tunnel: {e}")))?;
    Ok(socket.into())
}

/// A key pair in base64.
struct Keys {
    private: String,
    public: String,
}

/// The tool that configures tunnels.
struct Wg<'a> {
    stage: &'a Stage,
    programs: &'a Programs,
}

impl<'a> Wg<'a> {
    fn run(&self, host: &Namespace, words: &[&str], input: &str) -> io::Result<String> {
        let mut command = command(self.programs, "wg");
        let output = self.stage.crew.run(host, command.args(words), input.as_bytes())?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn keys(&self, host: &Namespace) -> io::Result<Keys> {
        let private = self.run(host, &["genkey"], "")?;
        Ok(Keys { public: self.run(host, &["pubkey"], &private)?, private })
    }

    fn set(&self, host: &Namespace, name: &str, words: &[&str]) -> io::Result<()> {
        self.run(host, &[&["set", name][..], words].concat(), "").map(drop)
    }

    /// One end of a tunnel: a process and its interface.
    fn end(
        &self,
        host: &Namespace,
        name: &str,
        address: Ipv4Addr,
        private: &str,
    ) -> io::Result<Member<'a>> {
        let mut command = command(self.programs, "wireguard-go");
        command.args(["-f", name]).env("LOG_LEVEL", "error");
        let process = self.stage.crew.start(host, &mut command)?;
        let socket = format!("wireguard/{name}.sock");
        wait_for(&format!("wireguard-go's {name}"), || {
            self.stage.crew.among_files(|folder| Ok(folder.join(&socket).exists()))
        })?;
        self.run(host, &["set", name, "private-key", "/dev/stdin"], private)?;
        host.run(|| {
            let link = link_named(name)?.ok_or_else(|| io::Error::other("no such interface"))?;
            let prefix = format!("{address}/24").parse().expect("an address and its length");
            configure::add_address(link.index, prefix)?;
            configure::set_mtu(link.index, MTU)?;
            configure::set_up(link.index, true)
        })?;
        Ok(process)
    }
}
