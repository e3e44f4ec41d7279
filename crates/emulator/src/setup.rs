//! Creation of the hosts (namespaces) and interfaces that a topology describes.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_os::netlink::Prefix;
use anabranch_os::netlink::configure::{self, NewRoute};
use anabranch_os::tun::Tun;

use super::Namespace;
use super::nat;
use super::topology::{Cable, End, Host, Route, TcpControl, Topology};

/// Index of the loopback interface in every namespace, set by the kernel.
const LO: u32 = 1;
/// Path below `/proc/sys/net` of the setting for TCP's congestion control.
const CONGESTION_CONTROL: &str = "ipv4/tcp_congestion_control";
/// Maximum number of packets that an interface queues while this process, which forwards them,
/// gets no CPU time. This number suffices for 100 ms at 500 Mbit/s.
const QUEUE_LEN: u32 = 4096;

/// Error: the machine refused a step in the construction of a network.
#[derive(Debug)]
pub struct SetupError {
    /// Name of the step that failed.
    pub step: String,
    /// The error that the operating system returned for the step.
    pub cause: io::Error,
}

impl SetupError {
    /// Returns whether the step failed because this process is not root.
    pub fn needs_root(&self) -> bool {
        self.cause.kind() == io::ErrorKind::PermissionDenied
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.step, self.cause)?;
        if self.needs_root() {
            f.write_str("; it needs root")?;
        }
        Ok(())
    }
}

impl std::error::Error for SetupError {}

/// Adds the name of the failed step to an error of the operating system.
fn step<T>(result: io::Result<T>, name: impl FnOnce() -> String) -> Result<T, SetupError> {
    result.map_err(|cause| SetupError { step: name(), cause })
}

/// Creates one namespace for each host, with its settings and loopback addresses. Returns the
/// namespaces, and the name of the TCP congestion control that they use.
pub(super) fn hosts(topology: &Topology) -> Result<(Vec<Namespace>, String), SetupError> {
    let hosts: Vec<Namespace> =
        topology.hosts.iter().map(|one| host(one, topology.tcp)).collect::<Result<_, _>>()?;
    let control = hosts.first().map_or(Ok(String::new()), |host| host.run(congestion_control));
    Ok((hosts, step(control, || "read the congestion control".to_owned())?))
}

fn host(host: &Host, tcp: TcpControl) -> Result<Namespace, SetupError> {
    let namespace = step(Namespace::new(), || "make a network namespace".to_owned())?;
    let ready = namespace.run(|| {
        sysctls(host, tcp)?;
        configure::set_up(LO, true)?;
        host.address.iter().try_for_each(|&address| configure::add_address(LO, address))
    });
    step(ready, || format!("set up the host `{}`", host.name))?;
    Ok(namespace)
}

/// Creates the two interfaces of a link, one in each of the link's hosts.
pub(super) fn cable(cable: &Cable, hosts: &[Namespace]) -> Result<[Tun; 2], SetupError> {
    let make = |end: &End| {
        let tun = hosts[end.host].run(|| interface(cable, end));
        step(tun, || format!("set up an end of the link `{}`", cable.name))
    };
    Ok([make(&cable.ends[0])?, make(&cable.ends[1])?])
}

fn interface(cable: &Cable, end: &End) -> io::Result<Tun> {
    let tun = Tun::create(&cable.name)?;
    let index = tun.index();
    configure::set_queue_len(index, QUEUE_LEN)?;
    configure::set_mtu(index, cable.mtu)?;
    end.address.iter().try_for_each(|&address| configure::add_address(index, address))?;
    configure::set_up(index, true)?;
    Ok(tun)
}

/// Adds the routes of a link's two ends. All interfaces of the network must exist before this
/// call, because a route's source address may belong to the interface of another link.
pub(super) fn routes(
    cable: &Cable,
    tuns: &[Tun; 2],
    hosts: &[Namespace],
    tcp: TcpControl,
) -> Result<(), SetupError> {
    for (end, tun) in cable.ends.iter().zip(tuns) {
        let add = |new: &Route| configure::add_route(route(tun.index(), end, new, tcp));
        let added = hosts[end.host].run(|| end.routes.iter().try_for_each(add));
        step(added, || format!("add the routes of the link `{}`", cable.name))?;
    }
    Ok(())
}

/// Checks that this machine has the program for address translation (`nft`), if the topology needs
/// it.
pub(super) fn find_translator(topology: &Topology) -> Result<(), SetupError> {
    let wanted = topology.links.iter().flat_map(|link| &link.ends).any(|end| end.nat);
    let found = if wanted { nat::find().map(drop) } else { Ok(()) };
    step(found, || "translate addresses (`nat = true`)".to_owned())
}

/// Checks that the running kernel supports IPv6, if the topology has IPv6 addresses.
pub(super) fn find_ipv6(topology: &Topology) -> Result<(), SetupError> {
    let missing = || {
        let cure = "this kernel has no IPv6: remove these addresses and routes, or use a kernel \
                    with IPv6";
        io::Error::new(io::ErrorKind::Unsupported, cure)
    };
    let found = if has_ipv6() || !uses_ipv6(topology) { Ok(()) } else { Err(missing()) };
    step(found, || "set up the topology's IPv6 addresses and routes".to_owned())
}

/// Returns whether a topology has IPv6 addresses. Each route leads to the address of a host, so
/// routes need no check of their own.
fn uses_ipv6(topology: &Topology) -> bool {
    let hosts = topology.hosts.iter().flat_map(|host| &host.address);
    let ends = topology.links.iter().flat_map(|link| &link.ends).flat_map(|end| &end.address);
    hosts.chain(ends).any(|prefix| prefix.ip.is_ipv6())
}

/// Sets up address translation in the hosts that need it.
pub(super) fn translation(topology: &Topology, hosts: &[Namespace]) -> Result<(), SetupError> {
    for (host, (about, namespace)) in topology.hosts.iter().zip(hosts).enumerate() {
        let wants = |link: &&Cable| link.ends.iter().any(|end| end.nat && end.host == host);
        let links: Vec<&str> =
            topology.links.iter().filter(wants).map(|link| link.name.as_str()).collect();
        if !links.is_empty() {
            let done = namespace.run(|| nat::masquerade(&links));
            step(done, || format!("translate addresses in the host `{}`", about.name))?;
        }
    }
    Ok(())
}

fn route(oif: u32, end: &End, route: &Route, tcp: TcpControl) -> NewRoute {
    let dst = route.to;
    let same_family = |ip: &&IpAddr| ip.is_ipv4() == dst.ip.is_ipv4();
    let prefsrc = end.prefsrc.iter().find(same_family).copied();
    NewRoute {
        dst,
        oif,
        gateway: route.via,
        prefsrc,
        metric: end.metric,
        // The route's congestion control takes precedence over the machine's default.
        congestion_control: Some(tcp.name()),
    }
}

/// Sets the sysctls of the calling thread's namespace. Interfaces that are created later inherit
/// the defaults.
///
/// * The reverse-path filter is off, because a server's answer may arrive at an interface that did
///   not send the request.
/// * The kernel must send no packets of its own on the links, because observers would count them.
///   IPv6 forwarding is set for the namespace, not for its interfaces. An interface with
///   forwarding would join the routers' multicast groups and report that on its link (RFC 3810).
///   IPv4 redirects are switched off for all interfaces. IPv6 redirects need a link-local address,
///   which no interface has.
/// * IPv6 addresses remain when an interface is switched off, as IPv4 addresses do.
fn sysctls(host: &Host, tcp: TcpControl) -> io::Result<()> {
    let chosen = sysctl(CONGESTION_CONTROL, tcp.name());
    // If cubic is not the kernel's default, it may be "restricted", and a namespace cannot choose
    // it. The routes of the links set it in any case, so this failure is ignored.
    if tcp != TcpControl::Cubic {
        chosen?;
    }
    let forward = if host.forward { "1" } else { "0" };
    for (name, value) in [
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv4/conf/all/send_redirects", "0"),
        ("ipv4/conf/default/send_redirects", "0"),
        ("ipv4/ip_forward", forward),
    ] {
        sysctl(name, value)?;
    }
    if has_ipv6() { ipv6_sysctls(forward) } else { Ok(()) }
}

/// Sets the IPv6 sysctls of the calling thread's namespace. Switches IPv6 on, even if it is off
/// outside the namespace. `forward` is the value of the sysctl for forwarding.
fn ipv6_sysctls(forward: &str) -> io::Result<()> {
    for (name, value) in [
        ("ipv6/conf/all/disable_ipv6", "0"),
        ("ipv6/conf/default/disable_ipv6", "0"),
        ("ipv6/conf/default/accept_ra", "0"),
        ("ipv6/conf/default/router_solicitations", "0"),
        ("ipv6/conf/default/addr_gen_mode", "1"),
        ("ipv6/conf/default/keep_addr_on_down", "1"),
        ("ipv6/conf/all/forwarding", forward),
        // This setting must follow the one above, which changes it, too.
        ("ipv6/conf/default/forwarding", "0"),
    ] {
        sysctl(name, value)?;
    }
    Ok(())
}

/// Returns the default congestion control of TCP sockets in the calling thread's namespace. A
/// route can override it.
fn congestion_control() -> io::Result<String> {
    let text = fs::read_to_string(format!("/proc/sys/net/{CONGESTION_CONTROL}"))?;
    Ok(text.trim().to_owned())
}

fn sysctl(name: &str, value: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/net/{name}"), value)
        .map_err(|error| io::Error::new(error.kind(), format!("net/{name} = {value}: {error}")))
}

/// Returns whether the running kernel supports IPv6.
fn has_ipv6() -> bool {
    fs::exists("/proc/sys/net/ipv6/conf").unwrap_or(false)
}

/// Checks that an interface can be created in the calling thread's namespace.
pub(super) fn try_interface() -> io::Result<()> {
    Tun::create("probe").map(drop)
}

/// Checks that a route with the congestion control CUBIC can be added in the calling thread's
/// namespace.
pub(super) fn try_cubic() -> io::Result<()> {
    configure::set_up(LO, true)?;
    let dst = Prefix { ip: Ipv4Addr::new(192, 0, 2, 1).into(), len: 32 };
    configure::add_route(NewRoute {
        dst,
        oif: LO,
        gateway: None,
        prefsrc: None,
        metric: None,
        congestion_control: Some(TcpControl::Cubic.name()),
    })
}

/// Checks that an interface in the calling thread's namespace can have an IPv6 address.
pub(super) fn try_ipv6() -> io::Result<()> {
    if !has_ipv6() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel has no IPv6"));
    }
    ipv6_sysctls("0")?;
    configure::set_up(LO, true)?;
    let ip = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into();
    configure::add_address(LO, Prefix { ip, len: 128 })
}

/// Checks that addresses can be translated in the calling thread's namespace.
pub(super) fn try_translation() -> io::Result<()> {
    nat::masquerade(&["lo"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_hosts_and_of_links_show_whether_a_topology_needs_ipv6() {
        let uses = |host: &str, end: &str| {
            let text = format!(
                "[[host]]\nname = 'a'\naddress = ['10.1.0.1/32', {host}]\n[[host]]\nname = 'b'\n\
                 [[link]]\nname = 'l'\nends = [\n\
                 {{ host = 'a', address = ['10.0.0.1/24', {end}] }},\n\
                 {{ host = 'b', address = ['10.0.0.2/24'] }} ]\n"
            );
            uses_ipv6(&Topology::parse(&text, "t.toml").unwrap())
        };
        assert!(!uses("", ""));
        assert!(uses("'fd01::1/128'", "") && uses("", "'fd00::1/64'"));
    }
}
