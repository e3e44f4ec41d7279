//! A WireGuard tunnel between two hosts of the emulated network, with `wireguard-go` at both ends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Programs;
use super::stage::{Stage, command, wait_for};
use anabranch_emulator::{GroupProcess, Namespace};
use anabranch_os::netlink::configure::{self, NewRoute};
use anabranch_os::netlink::{Prefix, link_named};

/// Programs that tunnels need, each with the package or project that provides it.
pub(super) const NEEDS: &[(&str, &str)] =
    &[("wireguard-go", "Go module golang.zx2c4.com/wireguard"), ("wg", "package wireguard-tools")];

/// UDP port of both ends of a tunnel. The splitter (`anabranch split`) on the client's host also
/// listens on this port.
pub(super) const PORT: u16 = 51820;
/// Address of the server in the tunnel.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
/// Address of the client in the tunnel.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 2);
/// Address and prefix length of the network inside the tunnel. The client has a route to this
/// network.
const INSIDE: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 8, 0, 0), 16);
/// Names of the tunnel's interfaces, first on the server's host, then on the client's.
const NAMES: [&str; 2] = ["wg0", CLIENT_END];
/// Name of the tunnel's interface at the client.
pub(super) const CLIENT_END: &str = "wg1";
/// MTU in bytes of a tunnel over paths with an MTU of 1500: the kernel's default for WireGuard.
pub(super) const MTU: u32 = 1420;
/// MTU in bytes of a tunnel over paths with an MTU of 1500, if a far end over IPv4 puts the split
/// traffic together. The difference of 93 bytes is for headers; `anabranch split` reports it.
pub(super) const MTU_FAR: u32 = 1407;

/// Parameters of a tunnel from the client's host to another host.
pub(super) struct Route<'a> {
    /// Host on which the tunnel ends.
    pub(super) to: &'a Namespace,
    /// Address to which the client's end sends the tunnel's packets.
    pub(super) endpoint: SocketAddr,
    /// Additional destination that is reached through the tunnel, with the metric of its route;
    /// `None` if there is none. The system uses the route with the smallest metric.
    pub(super) beyond: Option<(Ipv4Addr, u32)>,
    /// MTU of the tunnel's interfaces in bytes.
    pub(super) mtu: u32,
}

/// A running WireGuard tunnel with both ends. It is removed on drop.
pub(super) struct Tunnel<'a> {
    _ends: [GroupProcess<'a>; 2],
}

impl<'a> Tunnel<'a> {
    /// Opens a tunnel with the MTU `mtu` to the server's host. The client's end sends its packets
    /// to the splitter. No packet is sent yet: the handshake starts with the first packet in the
    /// tunnel.
    ///
    /// # Errors
    /// A program cannot be started or fails. The error includes its message.
    pub(super) fn open(
        stage: &'a Stage,
        programs: &'a Programs,
        mtu: u32,
    ) -> io::Result<Tunnel<'a>> {
        let endpoint = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        Tunnel::lay(stage, programs, &Route { to: stage.server(), endpoint, beyond: None, mtu })
    }

    /// Opens a tunnel with the parameters `route`.
    ///
    /// # Errors
    /// The errors of [`Tunnel::open`].
    pub(super) fn lay(
        stage: &'a Stage,
        programs: &'a Programs,
        route: &Route<'_>,
    ) -> io::Result<Tunnel<'a>> {
        let wg = Wg { stage, programs, mtu: route.mtu };
        let (here, there) = (stage.client(), route.to);
        let (server, client) = (wg.keys(there)?, wg.keys(here)?);
        let ends = [
            wg.end(there, NAMES[0], SERVER, &server.private)?,
            wg.end(here, NAMES[1], CLIENT, &client.private)?,
        ];
        there.run(|| lead(NAMES[0], (CLIENT, 32), SERVER, None))?;
        here.run(|| lead(NAMES[1], INSIDE, CLIENT, None))?;
        let mut allowed = format!("{}/{}", INSIDE.0, INSIDE.1);
        if let Some((beyond, metric)) = route.beyond {
            here.run(|| lead(NAMES[1], (beyond, 32), CLIENT, Some(metric)))?;
            allowed += &format!(",{beyond}/32");
        }
        let port = PORT.to_string();
        let peer = ["peer", &client.public, "allowed-ips", &CLIENT.to_string()];
        wg.set(there, NAMES[0], &[&["listen-port", &port][..], &peer].concat())?;
        let endpoint = ["endpoint", &route.endpoint.to_string()];
        let peer = ["peer", &server.public, "allowed-ips", &allowed];
        wg.set(here, NAMES[1], &[&peer[..], &endpoint].concat())?;
        Ok(Tunnel { _ends: ends })
    }
}

/// Adds the IP addresses `all` to the server's end of the tunnel. They must differ from [`SERVER`]
/// and from the client's address.
///
/// # Errors
/// The kernel refuses an address.
pub(super) fn add_addresses(
    stage: &Stage,
    all: impl Iterator<Item = Ipv4Addr> + Send,
) -> io::Result<()> {
    stage.server().run(|| {
        let index = interface(NAMES[0])?;
        let mut all =
            all.map(|ip| configure::add_address(index, Prefix { ip: IpAddr::V4(ip), len: 32 }));
        all.try_for_each(|added| added)
    })
}

/// Adds a route into the tunnel through the interface `name`. TCP connections over this route use
/// the congestion control `cubic`, whatever the machine's default is.
fn lead(
    name: &str,
    (ip, len): (Ipv4Addr, u8),
    from: Ipv4Addr,
    metric: Option<u32>,
) -> io::Result<()> {
    configure::add_route(NewRoute {
        dst: Prefix { ip: IpAddr::V4(ip), len },
        oif: interface(name)?,
        gateway: None,
        prefsrc: Some(IpAddr::V4(from)),
        metric,
        congestion_control: Some("cubic"),
    })
}

/// Returns the index of an interface in the calling thread's network namespace.
fn interface(name: &str) -> io::Result<u32> {
    let link = link_named(name)?;
    link.map(|link| link.index).ok_or_else(|| io::Error::other(format!("no interface {name}")))
}

/// A WireGuard key pair in base64.
struct Keys {
    private: String,
    public: String,
}

/// The program `wg`, which configures tunnels.
struct Wg<'a> {
    stage: &'a Stage,
    programs: &'a Programs,
    mtu: u32,
}

impl<'a> Wg<'a> {
    fn run(&self, host: &Namespace, words: &[&str], input: &str) -> io::Result<String> {
        let mut command = command(self.programs, "wg");
        let output = self.stage.processes.run(host, command.args(words), input.as_bytes())?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn keys(&self, host: &Namespace) -> io::Result<Keys> {
        let private = self.run(host, &["genkey"], "")?;
        Ok(Keys { public: self.run(host, &["pubkey"], &private)?, private })
    }

    fn set(&self, host: &Namespace, name: &str, words: &[&str]) -> io::Result<()> {
        self.run(host, &[&["set", name][..], words].concat(), "").map(drop)
    }

    /// Starts one end of a tunnel on `host`: a process and its interface `name`.
    fn end(
        &self,
        host: &Namespace,
        name: &str,
        address: Ipv4Addr,
        private: &str,
    ) -> io::Result<GroupProcess<'a>> {
        let mut command = command(self.programs, "wireguard-go");
        command.args(["-f", name]).env("LOG_LEVEL", "error");
        let process = self.stage.processes.start(host, &mut command)?;
        let socket = format!("wireguard/{name}.sock");
        wait_for(&format!("wireguard-go's {name}"), || {
            self.stage.processes.among_files(|folder| Ok(folder.join(&socket).exists()))
        })?;
        self.run(host, &["set", name, "private-key", "/dev/stdin"], private)?;
        host.run(|| {
            let index = interface(name)?;
            configure::add_address(index, Prefix { ip: IpAddr::V4(address), len: 32 })?;
            configure::set_mtu(index, self.mtu)?;
            configure::set_up(index, true)
        })?;
        Ok(process)
    }
}
