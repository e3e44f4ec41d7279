//! Errors of paths, each with a message of one line.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use anabranch_os::netlink::RouteError;
use anabranch_os::target::Target;

use super::{MAX_NAME, MAX_PORTS, PathSpec};
use crate::socks::{ProxyError, ProxyFault};
use crate::wg_quick::invocation;

/// Reason why the text of a path, or a list of paths, is malformed. The check needs no system
/// call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecError {
    /// The text is not of the form `NAME=SETTING`.
    Form(String),
    /// The name is empty, too long or has characters that are not allowed.
    Name(String),
    /// The keyword of a path's setting is unknown.
    Kind(String),
    /// The same setting of a path is given twice.
    Twice(String),
    /// The named path has no setting, such as an interface or an address.
    NoKind(String),
    /// The text cannot be the name of an interface.
    Device(String),
    /// wg-quick would not accept this file name.
    Tunnel(String),
    /// The named path has both an interface (`if:`) and a wg-quick tunnel (`wg:`); only one of
    /// them is allowed.
    Both(String),
    /// The text is not an IP address.
    Address(String),
    /// The text is not a count of source ports, or the count is out of range.
    Ports(String),
    /// The proxy is invalid.
    Proxy(ProxyError),
    /// The path has several source ports and a proxy, which do not work together.
    ProxyPorts,
    /// The setting that makes the path a stream is invalid, for this reason.
    Stream(String),
    /// The named path is a stream, but has a setting that applies only to datagrams.
    StreamAnd(String),
    /// The named path uses OpenSSH and also names an interface or a source address. OpenSSH cannot
    /// be bound to either.
    SshBound(String),
    /// No path is given.
    None,
    /// Two paths have the same name.
    SameName(String),
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::Form(text) => {
                write!(f, "'{text}' is not a path: write NAME=KIND, as in wlan=if:wlan0")
            }
            SpecError::Name(name) => write!(
                f,
                "'{name}' is not a name for a path: use 1 to {MAX_NAME} letters, digits, '_', \
                 '.' and \
                 '-'"
            ),
            SpecError::Kind(kind) => write!(
                f,
                "'{kind}' is not a kind of path: choose one of if:DEVICE, wg:FILE, addr:ADDRESS, \
                 ports:N, socks5:[USER@]HOST:PORT. With --key (a far end of your own) also \
                 tcp:HOST:PORT, tls:HOST:PORT, socks5-tcp:[USER@]HOST:PORT, \
                 http:[USER@]HOST:PORT, ssh:[USER@]HOST[:PORT], onion:N"
            ),
            SpecError::Twice(kind) => {
                write!(f, "the kind '{kind}' is given twice for one path: remove one")
            }
            SpecError::NoKind(name) => write!(
                f,
                "path '{name}' has no interface, address or ports: add if:DEVICE (an interface), \
                 addr:ADDRESS (a local address) or ports:N (N source ports)"
            ),
            SpecError::Device(name) => write!(
                f,
                "no interface can be called '{name}': write 1 to 15 ASCII characters, without \
                 spaces, '/' and ':'"
            ),
            SpecError::Tunnel(file) => write!(
                f,
                "'{file}' is not the name of a wg-quick file: write NAME.conf, where NAME has 1 \
                 to 15 letters, digits or characters of '_=+.-'"
            ),
            SpecError::Both(name) => {
                write!(f, "path '{name}': if: and wg: both name an interface; remove one of them")
            }
            SpecError::Address(text) => write!(f, "'{text}' is not an IP address"),
            SpecError::Ports(text) => {
                write!(f, "'{text}' is not a number of ports: write 1 to {MAX_PORTS}")
            }
            SpecError::Proxy(error) => error.fmt(f),
            SpecError::ProxyPorts => f.write_str(
                "'ports' does not work with a proxy, because the proxy chooses the source ports \
                 that the server sees: remove 'ports', or give several paths through the proxy",
            ),
            SpecError::Stream(why) => f.write_str(why),
            SpecError::StreamAnd(name) => write!(
                f,
                "path '{name}': a TCP path cannot have 'ports' or 'socks5', which are for UDP. To \
                 use TCP through a SOCKS5 proxy, write socks5-tcp:HOST:PORT"
            ),
            SpecError::SshBound(name) => write!(
                f,
                "path '{name}': 'ssh' cannot have 'if', 'wg' or 'addr', because OpenSSH cannot \
                 bind its connection to an interface: remove them. To reach the SSH host over a \
                 certain interface, add a route to this host"
            ),
            SpecError::None => {
                f.write_str("no path is given: give at least one as NAME=KIND, as in wlan=if:wlan0")
            }
            SpecError::SameName(name) => write!(f, "two paths are called '{name}': rename one"),
        }
    }
}

impl std::error::Error for SpecError {}

/// Reason why a path cannot be used to reach the server, with the path's name.
#[derive(Debug)]
pub struct PathError {
    /// Name of the path.
    pub path: String,
    /// The fault of the path.
    pub fault: Fault,
}

/// Reason why a path cannot be used at present, as found on this machine.
#[derive(Debug)]
pub enum Fault {
    /// No interface has this name. The second field has the names of the existing interfaces.
    NoDevice(String, Vec<String>),
    /// The interface is down.
    DeviceDown(String),
    /// The tunnel of a wg-quick file is not up. The fields are the tunnel's interface and the
    /// file.
    NoTunnel(String, String),
    /// Neither the wg-quick file nor its tunnel exists. The fields are the tunnel's interface and
    /// the file.
    NoTunnelFile(String, String),
    /// None of this machine's interfaces has the address.
    ForeignAddress(IpAddr),
    /// The source address and the server have different IP versions. The fields are the two
    /// addresses.
    Family(IpAddr, IpAddr),
    /// The server's address is link-local, and neither the address nor the path names an
    /// interface.
    NoZone(IpAddr),
    /// The server's link-local address is on an interface other than the path's. The fields are
    /// the server and the path's interface.
    WrongZone(IpAddr, String),
    /// The server is this machine itself, and the interface has no route to this machine. The
    /// fields are the server and the interface.
    Inward(IpAddr, String),
    /// The server is another machine, but the interface, or the source address on it, reaches only
    /// this machine. The fields are the server and the interface.
    Outward(IpAddr, String),
    /// The interface has no route to the server. The fields are the server and the interface.
    NoRouteBy(IpAddr, String),
    /// The path uses the same interface and source address as another path. The field is the name
    /// of the other path.
    SameEgress(String),
    /// The name of the far end (our program in front of the server) does not resolve.
    Name(Target, io::Error),
    /// The proxy cannot be used, for this reason.
    Proxy(Target, ProxyFault),
    /// The kernel returned no route to this address, for this reason.
    Route(IpAddr, RouteError),
    /// The list of this machine's interfaces or addresses could not be read.
    Io(io::Error),
}

impl Fault {
    /// Converts a fault of a tunnel's interface to the fault that is reported for a path with this
    /// wg-quick tunnel. If the interface is missing or down, the message names the remedy:
    /// wg-quick has to start the tunnel.
    pub(super) fn of_tunnel(self, spec: &PathSpec) -> Fault {
        match (self, &spec.tunnel) {
            (Fault::NoDevice(device, _), Some(file)) if !Path::new(file).exists() => {
                Fault::NoTunnelFile(device, file.clone())
            }
            (Fault::NoDevice(device, _) | Fault::DeviceDown(device), Some(file)) => {
                Fault::NoTunnel(device, file.clone())
            }
            (fault, _) => fault,
        }
    }

    /// Returns whether only the lookup failed, for example because no memory was left. The path
    /// itself may work, and the lookup can be repeated.
    pub fn is_passing(&self) -> bool {
        matches!(self, Fault::Io(_) | Fault::Route(_, RouteError::Io(_)))
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "path '{}': {}", self.path, self.fault)
    }
}

impl std::error::Error for PathError {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NoDevice(device, others) => {
                write!(f, "there is no interface '{device}'; there are {}", others.join(", "))
            }
            Fault::DeviceDown(device) => {
                write!(f, "the interface '{device}' is down: connect it, or remove the path")
            }
            Fault::NoTunnel(device, file) => {
                let file = invocation(Path::new(file));
                write!(f, "the tunnel '{device}' is not up; start it: wg-quick up {file}")
            }
            Fault::NoTunnelFile(device, file) => {
                write!(
                    f,
                    "there is no file '{file}', and no tunnel '{device}' is up: correct the \
                     file's name"
                )
            }
            Fault::ForeignAddress(ip) => write!(
                f,
                "{ip} is not an address of this machine: 'ip address' lists this machine's \
                 addresses"
            ),
            Fault::Family(source, server) => {
                write!(
                    f,
                    "{source} cannot reach the server {server}, because one is IPv4 and the \
                     other IPv6: use addresses of the same kind"
                )
            }
            Fault::NoZone(server) => write!(
                f,
                "{server} is a link-local address: write after it the interface of this machine \
                 that leads to the server, as in [{server}%eth0]:PORT"
            ),
            Fault::WrongZone(server, device) => {
                write!(
                    f,
                    "the server has the link-local address {server}, which is not on the network \
                     of '{device}': give this path the interface that is on the server's network"
                )
            }
            Fault::Inward(server, device) => {
                write!(
                    f,
                    "'{device}' has no route to {server}, because this address belongs to this \
                     machine itself: use if:lo"
                )
            }
            Fault::Outward(server, device) => {
                write!(
                    f,
                    "'{device}' reaches only this machine itself, not the server {server}: use \
                     another interface"
                )
            }
            Fault::NoRouteBy(server, device) => write!(
                f,
                "'{device}' has no route to {server}: add one, such as \
                 'ip route add default via GATEWAY dev {device} metric 900'"
            ),
            Fault::Name(at, error) => write!(f, "the name '{}' does not resolve: {error}", at.host),
            Fault::Proxy(at, fault) => write!(f, "the proxy {at} {fault}"),
            Fault::SameEgress(other) => write!(
                f,
                "its packets leave by the same interface and address as those of path '{other}', \
                 so one observer sees both paths: remove one path, or allow this with \
                 --same-egress"
            ),
            Fault::Route(server, RouteError::Forbidden) => {
                write!(
                    f,
                    "a routing rule of this machine forbids packets to {server} ('ip rule show' \
                     lists the rules)"
                )
            }
            Fault::Route(server, error) => write!(f, "{error} to {server}"),
            Fault::Io(error) => write!(f, "cannot list this machine's interfaces: {error}"),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Io(error)
    }
}
