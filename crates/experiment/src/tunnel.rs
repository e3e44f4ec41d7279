//! A tunnel between two of a stage's hosts: wireguard-go at both ends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Programs;
use super::stage::{Stage, command, wait_for};
use anabranch_emulator::{Member, Namespace};
use anabranch_os::netlink::configure::{self, NewRoute};
use anabranch_os::netlink::{Prefix, link_named};

/// What it takes, and what gives it.
pub(super) const NEEDS: &[(&str, &str)] =
    &[("wireguard-go", "Go module golang.zx2c4.com/wireguard"), ("wg", "package wireguard-tools")];

/// Of both ends; at the client the splitter listens there.
pub(super) const PORT: u16 = 51820;
/// The server in the tunnel.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
/// The client in the tunnel.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 2);
/// All that the tunnel leads to, seen from the client.
const INSIDE: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 8, 0, 0), 16);
/// The interfaces at server and client.
const NAMES: [&str; 2] = ["wg0", CLIENT_END];
/// The client's interface.
pub(super) const CLIENT_END: &str = "wg1";
/// What fits through paths of 1500 bytes: the kernel's own choice for WireGuard.
pub(super) const MTU: u32 = 1420;
/// What fits through such paths by way of a far end over IPv4, as `anabranch split` says: 93 bytes
/// less.
pub(super) const MTU_FAR: u32 = 1407;

/// Where a tunnel leads from the stage's client.
pub(super) struct Route<'a> {
    /// The host of its other end.
    pub(super) to: &'a Namespace,
    /// Where the client's end sends its packets.
    pub(super) endpoint: SocketAddr,
    /// What it leads to beside what is inside, and with which metric: the smaller is preferred.
    pub(super) beyond: Option<(Ipv4Addr, u32)>,
    /// The longest packet that it takes.
    pub(super) mtu: u32,
}

/// Both ends of a tunnel. Dropped, it is gone.
pub(super) struct Tunnel<'a> {
    _ends: [Member<'a>; 2],
}

impl<'a> Tunnel<'a> {
    /// A tunnel to the stage's server for packets of this length at most; the client's end speaks
    /// to the splitter. Nothing travels yet: the handshake comes with the first packet.
    ///
    /// # Errors
    /// A program cannot be started or refuses, which the error tells.
    pub(super) fn open(
        stage: &'a Stage,
        programs: &'a Programs,
        mtu: u32,
    ) -> io::Result<Tunnel<'a>> {
        let endpoint = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        Tunnel::lay(stage, programs, &Route { to: stage.server(), endpoint, beyond: None, mtu })
    }

    /// A tunnel that leads where it is told.
    ///
    /// # Errors
    /// As for [`Tunnel::open`].
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

/// Gives the server further addresses in the tunnel; none of [`SERVER`] or the client.
///
/// # Errors
/// The kernel's.
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

/// Leads `to` into the tunnel, with cubic for TCP whatever this machine prefers.
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

/// The index of an interface of the calling thread's namespace.
fn interface(name: &str) -> io::Result<u32> {
    let link = link_named(name)?;
    link.map(|link| link.index).ok_or_else(|| io::Error::other(format!("no interface {name}")))
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
    mtu: u32,
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
            let index = interface(name)?;
            configure::add_address(index, Prefix { ip: IpAddr::V4(address), len: 32 })?;
            configure::set_mtu(index, self.mtu)?;
            configure::set_up(index, true)
        })?;
        Ok(process)
    }
}
