//! Resolves paths in the user's notation to egresses (interface, source address and route).

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anabranch_os::netlink::{self, Address, Link, LinkKind, Route, RouteError, route_to};
use anabranch_os::target::Target;

use super::{Egress, PathError, PathSpec, StreamKind};
use crate::paths::error::Fault;
use crate::socks::{Proxy, ProxyFault};

/// Function that resolves a host name. It returns at least one address, or an error.
pub type Names<'n> = &'n dyn Fn(&Target) -> io::Result<Vec<SocketAddr>>;

/// Returns the egresses (interface, source address and route) of the paths to the first of
/// `destinations` that all paths lead to. Later destinations are not looked up.
///
/// * `if:` the interface must exist, be up and have a route to the server. If a routing rule
///   limits the route to packets from one of the interface's own addresses (usual for a second
///   uplink), that address becomes the source.
/// * `wg:` has the same effect as `if:` with the interface of the named tunnel.
/// * `addr:` the address must belong to this machine. The route is looked up *with that source*,
///   and the path is bound to the route's interface.
/// * `ports:` alone uses the present route, and the path is bound to the route's interface. An
///   unbound path would follow every change of the default route. For example, a full tunnel that
///   is started later becomes the default route. The datagrams that carry the tunnel would then be
///   routed into the tunnel itself.
/// * If the path uses a proxy or is a stream, these rules apply to the route to its first hop.
///
/// `fwmark` is the firewall mark of our sockets, because routing rules may match it. Without
/// destinations the result is empty.
///
/// # Errors
/// The first path, in the order given, that does not lead to the first destination. Two paths with
/// the same interface and source address are also an error, unless `same_egress` is set.
pub fn resolve(
    specs: &[PathSpec],
    destinations: &[SocketAddr],
    fwmark: Option<u32>,
    same_egress: bool,
) -> Result<Vec<Egress>, PathError> {
    resolve_by(specs, destinations, fwmark, same_egress, &Target::resolve)
}

/// Resolves paths as [`resolve`] does. `lookup` returns the addresses of the names of proxies and
/// other first hops.
///
/// # Errors
/// The errors of [`resolve`].
pub fn resolve_by(
    specs: &[PathSpec],
    destinations: &[SocketAddr],
    fwmark: Option<u32>,
    same_egress: bool,
    lookup: Names<'_>,
) -> Result<Vec<Egress>, PathError> {
    let mut outcome = Ok(Vec::new());
    for &server in destinations {
        let egresses = all_towards(specs, server, fwmark, same_egress, lookup);
        if egresses.is_ok() {
            return egresses;
        }
        outcome = outcome.and(egresses);
    }
    outcome
}

/// Resolves paths again after the machine's network changed, and returns a result for each path,
/// in order. Each path stays on the interface of its egress in `before`. If this interface no
/// longer leads to the server, the result is an error. If [`Fault::is_passing`] is true of an
/// error, only the lookup failed, and the path may work.
///
/// Without the fixed interface, a lookup would move a path to the present route, even with
/// `addr:`. For example, the rules of a full tunnel (wg-quick's `not fwmark`) send every unmarked
/// packet into the tunnel, regardless of its source.
///
/// # Errors
/// The kernel's list of interfaces could not be read, so no path could be resolved.
pub fn again(
    specs: &[PathSpec],
    before: &[Egress],
    fwmark: Option<u32>,
) -> io::Result<Vec<Result<Egress, PathError>>> {
    let machine = Machine::ask()?;
    let look = |(spec, before): (&PathSpec, &Egress)| {
        let device = before.device.clone().or_else(|| spec.device.clone());
        let pinned = PathSpec { device, ..spec.clone() };
        let way = match before.proxy {
            Some(proxy) => machine.way_through(&pinned, before.server, proxy, fwmark),
            None => machine.way(&pinned, before.server, fwmark),
        };
        way.map_err(|fault| PathError { path: spec.name.clone(), fault })
    };
    Ok(specs.iter().zip(before).map(look).collect())
}

/// Returns the new egress (interface, source address and route) of a path whose proxy or first hop
/// now has the addresses `found`. The egress leads to the first of these addresses that the
/// interface of `before` reaches. Returns `None` if the interface reaches none.
pub fn redirect(
    spec: &PathSpec,
    before: &Egress,
    found: &[SocketAddr],
    fwmark: Option<u32>,
) -> Option<Egress> {
    let machine = Machine::ask().ok()?;
    let device = before.device.clone().or_else(|| spec.device.clone());
    let pinned = PathSpec { device, ..spec.clone() };
    found.iter().find_map(|&at| machine.way_through(&pinned, before.server, at, fwmark).ok())
}

/// Addresses of a root name server, as examples of public addresses that never belong to this
/// machine. Routes to them are looked up, but nothing is sent.
const FAR: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4)), 53),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30)), 53),
];

/// Returns the egresses (interfaces, source addresses and routes) of paths along the default
/// routes: for each path an egress for IPv4 and an egress for IPv6.
///
/// # Errors
/// The kernel's list of interfaces could not be read, so no path could be resolved.
pub fn anywhere(
    specs: &[PathSpec],
    fwmark: Option<u32>,
) -> io::Result<Vec<[Result<Egress, PathError>; 2]>> {
    let machine = Machine::ask()?;
    let blame = |spec: &PathSpec, fault| PathError { path: spec.name.clone(), fault };
    let look = |spec: &PathSpec| {
        FAR.map(|far| machine.way(spec, far, fwmark).map_err(|fault| blame(spec, fault)))
    };
    Ok(specs.iter().map(look).collect())
}

/// Returns a path for each uplink of this machine, named after its interface. An uplink is an
/// interface that is up and has a carrier and a default route. A tunnel does not count, because it
/// uses another uplink.
///
/// # Errors
/// The kernel's list of interfaces could not be read.
pub fn uplinks() -> io::Result<Vec<PathSpec>> {
    let machine = Machine::ask()?;
    let leads_out = |spec: &PathSpec| FAR.iter().any(|&far| machine.way(spec, far, None).is_ok());
    let candidates = machine
        .links
        .iter()
        .filter(|link| link.running && !link.tunnel && link.kind != LinkKind::Loopback);
    Ok(candidates.filter_map(|link| uplink(&link.name)).filter(leads_out).collect())
}

/// Returns a path over the interface `device`, named after it. Characters that a path's name
/// cannot contain become '-'. Returns `None` if the result is not a valid name.
fn uplink(device: &str) -> Option<PathSpec> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' };
    let name: String = device.chars().map(plain).collect();
    PathSpec::new(&name, Some(device), None, None).ok()
}

/// Checks paths without their server: interfaces and addresses must exist and be up, the passwords
/// of proxies must be readable, and no two paths may be equal. [`resolve`] finds the other faults.
///
/// # Errors
/// The first path with one of these faults.
pub fn check(specs: &[PathSpec], same_egress: bool) -> Result<(), PathError> {
    let blame = |spec: &PathSpec, fault| PathError { path: spec.name.clone(), fault };
    let Some(first) = specs.first() else { return Ok(()) };
    let machine = Machine::ask().map_err(|error| blame(first, error.into()))?;
    for (index, spec) in specs.iter().enumerate() {
        machine.check(spec).map_err(|fault| blame(spec, fault))?;
        let intermediary =
            |spec: &PathSpec| spec.stream.as_ref().and_then(StreamKind::intermediary);
        let is_twin = |other: &&PathSpec| {
            (&other.device, other.source, &other.proxy) == (&spec.device, spec.source, &spec.proxy)
                && intermediary(other) == intermediary(spec)
        };
        match specs[..index].iter().find(is_twin) {
            Some(twin) if !same_egress => {
                return Err(blame(spec, Fault::SameEgress(twin.name.clone())));
            }
            _ => {}
        }
    }
    Ok(())
}

fn all_towards(
    specs: &[PathSpec],
    server: SocketAddr,
    fwmark: Option<u32>,
    same_egress: bool,
    lookup: Names<'_>,
) -> Result<Vec<Egress>, PathError> {
    let blame = |spec: &PathSpec, fault| PathError { path: spec.name.clone(), fault };
    let Some(first) = specs.first() else { return Ok(Vec::new()) };
    let machine = Machine::ask().map_err(|error| blame(first, error.into()))?;
    let mut egresses = Vec::new();
    for spec in specs {
        let way = match (&spec.proxy, &spec.stream) {
            (Some(proxy), _) => {
                let found = lookup(&proxy.at);
                to_proxy(&machine, spec, proxy, found, server, fwmark)
            }
            (None, Some(kind)) => to_stream(&machine, spec, kind, server, fwmark, lookup),
            (None, None) => machine.way(spec, server, fwmark),
        };
        egresses.push(way.map_err(|fault| blame(spec, fault))?);
    }
    if !same_egress {
        refuse_same(&egresses)?;
    }
    Ok(egresses)
}

/// Returns the egress (interface, source address and route) to the first of the proxy's addresses
/// `found` that this machine has a route to.
fn to_proxy(
    machine: &Machine,
    spec: &PathSpec,
    proxy: &Proxy,
    found: io::Result<Vec<SocketAddr>>,
    server: SocketAddr,
    fwmark: Option<u32>,
) -> Result<Egress, Fault> {
    let blame = |fault| Fault::Proxy(proxy.at.clone(), fault);
    proxy.credentials().map_err(blame)?;
    let found = found.map_err(|error| blame(ProxyFault::Name(error)))?;
    to_first(machine, spec, &found, server, fwmark)
}

fn to_first(
    machine: &Machine,
    spec: &PathSpec,
    found: &[SocketAddr],
    server: SocketAddr,
    fwmark: Option<u32>,
) -> Result<Egress, Fault> {
    let mut ways = found.iter().map(|&at| machine.way_through(spec, server, at, fwmark));
    let first = ways.next().expect("a name that resolves has an address");
    first.or_else(|fault| ways.find_map(Result::ok).ok_or(fault))
}

/// Returns the egress (interface and route) towards the first hop of a stream. The first hop of a
/// direct stream is the far end (our program in front of the server). For OpenSSH, returns the
/// egress towards the server, although OpenSSH chooses its own route.
fn to_stream(
    machine: &Machine,
    spec: &PathSpec,
    kind: &StreamKind,
    server: SocketAddr,
    fwmark: Option<u32>,
    lookup: Names<'_>,
) -> Result<Egress, Fault> {
    if let Some(proxy) = kind.proxy() {
        return to_proxy(machine, spec, proxy, lookup(&proxy.at), server, fwmark);
    }
    match kind {
        StreamKind::Tcp(Some(at)) | StreamKind::Tls(at) => {
            let found = lookup(at).map_err(|error| Fault::Name(at.clone(), error))?;
            to_first(machine, spec, &found, server, fwmark)
        }
        StreamKind::Tcp(None) => machine.way_through(spec, server, server, fwmark),
        _ => machine.way(spec, server, fwmark),
    }
}

/// Returns an error if two paths have the same interface and source address, because one observer
/// sees both. Paths through different proxies count as different, because different observers see
/// them.
pub(crate) fn refuse_same<'e>(
    egresses: impl IntoIterator<Item = &'e Egress>,
) -> Result<(), PathError> {
    let mut seen = BTreeMap::new();
    for egress in egresses {
        if let Some(other) = seen.insert(seen_as(egress), &egress.name) {
            let fault = Fault::SameEgress(other.clone());
            return Err(PathError { path: egress.name.clone(), fault });
        }
    }
    Ok(())
}

/// Returns the path's interface, source address, proxy and intermediary. Paths that are equal in
/// these have the same observer. A stream without a proxy is observed at its interface, regardless
/// of the address that it connects to.
fn seen_as(egress: &Egress) -> (u32, Option<IpAddr>, Option<SocketAddr>, Option<&str>) {
    let proxy = egress.proxy.filter(|_| egress.stream != Some(None));
    let intermediary = egress.stream.as_ref().and_then(Option::as_deref);
    (egress.index, egress.sends_as, proxy, intermediary)
}

/// Interfaces and addresses of this machine at one moment.
struct Machine {
    links: Vec<Link>,
    addresses: Vec<Address>,
}

impl Machine {
    fn ask() -> io::Result<Machine> {
        Ok(Machine { links: netlink::links()?, addresses: netlink::addresses()? })
    }

    /// Checks that the path's interface is up, and that its source address is on an interface that
    /// is up. Also checks that the password of the path's proxy can be read.
    fn check(&self, spec: &PathSpec) -> Result<(), Fault> {
        if let Some(name) = &spec.device {
            self.device(name).map_err(|fault| fault.of_tunnel(spec))?;
        }
        if let Some(source) = spec.source {
            self.holder_up(source)?;
        }
        let by_stream = spec.stream.as_ref().and_then(StreamKind::proxy);
        let Some(proxy) = spec.proxy.as_ref().or(by_stream) else { return Ok(()) };
        let had = proxy.credentials().map(drop);
        had.map_err(|fault| Fault::Proxy(proxy.at.clone(), fault))
    }

    fn way(
        &self,
        spec: &PathSpec,
        server: SocketAddr,
        fwmark: Option<u32>,
    ) -> Result<Egress, Fault> {
        let device = spec.device.as_deref().map(|name| self.device(name)).transpose();
        let device = device.map_err(|fault| fault.of_tunnel(spec))?;
        if let Some(source) = spec.source {
            self.check_source(source, server.ip())?;
        }
        let asked = zone(device, server)?.or(device.map(|link| link.index));
        let question = Question { server: server.ip(), source: spec.source, oif: asked, fwmark };
        let (route, source) = match device {
            Some(link) => self.by(link, question)?,
            None => (question.ask()?, spec.source),
        };
        Ok(self.egress(spec, server, route, source))
    }

    /// Returns the egress (interface, source address and route) to `proxy`, which forwards to
    /// `server`.
    fn way_through(
        &self,
        spec: &PathSpec,
        server: SocketAddr,
        proxy: SocketAddr,
        fwmark: Option<u32>,
    ) -> Result<Egress, Fault> {
        let egress = self.way(spec, proxy, fwmark)?;
        Ok(Egress { server, proxy: Some(proxy), ..egress })
    }

    fn device(&self, name: &str) -> Result<&Link, Fault> {
        let link = self.links.iter().find(|link| link.name == name);
        let link = link.ok_or_else(|| Fault::NoDevice(name.into(), self.names()))?;
        if link.up { Ok(link) } else { Err(Fault::DeviceDown(name.into())) }
    }

    /// Returns the names of all interfaces, for the message about a mistyped name.
    fn names(&self) -> Vec<String> {
        self.links.iter().map(|link| link.name.clone()).collect()
    }

    fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// Returns the interface that has the address `ip`. Returns `None` if the address does not
    /// belong to this machine. All of 127.0.0.0/8 is local, although only 127.0.0.1 is listed.
    fn holder(&self, ip: IpAddr) -> Option<&Link> {
        let listed = self.addresses.iter().find(|address| address.ip == ip);
        match listed {
            Some(address) => self.link(address.index),
            None if ip.is_loopback() => {
                self.links.iter().find(|link| link.kind == LinkKind::Loopback)
            }
            None => None,
        }
    }

    /// Returns the interface that has the address `source`; an error if there is none, or if it is
    /// down.
    fn holder_up(&self, source: IpAddr) -> Result<&Link, Fault> {
        let holder = self.holder(source).ok_or(Fault::ForeignAddress(source))?;
        if holder.up { Ok(holder) } else { Err(Fault::DeviceDown(holder.name.clone())) }
    }

    fn check_source(&self, source: IpAddr, server: IpAddr) -> Result<(), Fault> {
        let holder = self.holder_up(source)?;
        if source.is_ipv4() != server.is_ipv4() {
            return Err(Fault::Family(source, server));
        }
        let confined = source.is_loopback() && self.holder(server).is_none();
        if confined { Err(Fault::Outward(server, holder.name.clone())) } else { Ok(()) }
    }

    /// Returns the route over `link` to the server in `question`, and the source address to bind
    /// to. The address is `None` if the kernel may choose it.
    fn by(&self, link: &Link, question: Question) -> Result<(Route, Option<IpAddr>), Fault> {
        let (server, name) = (question.server, || link.name.clone());
        match (self.holder(server).is_some(), link.kind == LinkKind::Loopback) {
            (true, false) => return Err(Fault::Inward(server, name())),
            (false, true) => return Err(Fault::Outward(server, name())),
            _ => {}
        }
        let plain = question.ask();
        if let Ok(route) = &plain
            && !route.assumed
        {
            return Ok((*route, question.source));
        }
        if let Some((route, ip)) = self.by_own_address(link, question)? {
            return Ok((route, Some(ip)));
        }
        match plain {
            Err(unanswered) if unanswered.is_passing() => Err(unanswered),
            // On links without neighbour discovery (PPP, raw IP modems), a route "on the link" is
            // as good as another route.
            Ok(route) if link.kind != LinkKind::Ether => Ok((route, question.source)),
            Err(forbidden @ Fault::Route(_, RouteError::Forbidden)) => Err(forbidden),
            _ => Err(Fault::NoRouteBy(server, name())),
        }
    }

    /// Returns a route that exists only for packets from one of the interface's own addresses (`ip
    /// rule from ADDRESS`), and that address. Returns `None` if there is no such route, or if
    /// `question` already has a source address.
    fn by_own_address(
        &self,
        link: &Link,
        question: Question,
    ) -> Result<Option<(Route, IpAddr)>, Fault> {
        let own = self.addresses.iter().filter(|address| {
            let free = question.source.is_none() && address.index == link.index;
            free && address.ip.is_ipv4() == question.server.is_ipv4()
        });
        for ip in own.map(|address| address.ip) {
            match (Question { source: Some(ip), ..question }.ask()) {
                Ok(route) if route.oif == link.index && !route.assumed => {
                    return Ok(Some((route, ip)));
                }
                Err(unanswered) if unanswered.is_passing() => return Err(unanswered),
                _ => {}
            }
        }
        Ok(None)
    }

    fn egress(
        &self,
        spec: &PathSpec,
        server: SocketAddr,
        route: Route,
        source: Option<IpAddr>,
    ) -> Egress {
        let link = self.link(route.oif);
        let inward = link.is_some_and(|link| link.kind == LinkKind::Loopback);
        let bindable = link.filter(|_| !inward || server.ip().is_loopback());
        Egress {
            name: spec.name.clone(),
            device: bindable.map(|link| link.name.clone()),
            index: route.oif,
            source,
            sends_as: source.or(route.prefsrc),
            server,
            gateway: route.gateway,
            mtu: Some(route.mtu),
            ports: spec.ports,
            proxy: None,
            stream: spec.stream.as_ref().map(StreamKind::intermediary),
            note: self.note(spec, route, link, source.filter(|_| !inward)),
        }
    }

    /// Returns a warning about a path that works but is probably a mistake; `None` if there is
    /// nothing to warn about.
    fn note(
        &self,
        spec: &PathSpec,
        route: Route,
        link: Option<&Link>,
        source: Option<IpAddr>,
    ) -> Option<String> {
        let leaves = link.map_or("?", |link| &link.name);
        if route.assumed {
            return Some(format!(
                "the interface '{leaves}' has no route to the server: the splitter assumes that \
                 the server is on the same network"
            ));
        }
        if let Some((ip, home)) = source.and_then(|ip| Some((ip, self.stray(ip, route)?))) {
            return Some(format!(
                "packets from {ip}, an address of the interface '{home}', leave by the interface \
                 '{leaves}': add a routing rule for that address"
            ));
        }
        let chosen = spec.device.is_some();
        let tunnel = link.is_some_and(|link| link.kind == LinkKind::Bare);
        (tunnel && !chosen).then(|| {
            format!(
                "its packets leave by the tunnel '{leaves}'. If this is the tunnel that you \
                 split, the packets come back to the splitter in a loop: choose the interface \
                 below the tunnel (if:DEVICE), or set --fwmark to the tunnel's firewall mark"
            )
        })
    }

    /// Returns the name of the interface that has the source address `ip`, if packets from this
    /// address leave by another interface (according to `route`). Otherwise returns `None`.
    fn stray(&self, ip: IpAddr, route: Route) -> Option<&str> {
        let home = self.holder(ip)?;
        let stray = home.index != route.oif && home.kind != LinkKind::Loopback;
        stray.then_some(home.name.as_str())
    }
}

/// Returns the index of the interface on which a link-local server is: the zone in its address, or
/// else `device`, the path's interface. Returns `None` for other servers.
///
/// # Errors
/// There is neither a zone nor a `device`, or they differ.
fn zone(device: Option<&Link>, server: SocketAddr) -> Result<Option<u32>, Fault> {
    let SocketAddr::V6(v6) = server else { return Ok(None) };
    if !v6.ip().is_unicast_link_local() {
        return Ok(None);
    }
    match (v6.scope_id(), device) {
        (0, None) => Err(Fault::NoZone(server.ip())),
        (0, Some(link)) => Ok(Some(link.index)),
        (zone, Some(link)) if zone != link.index => {
            Err(Fault::WrongZone(server.ip(), link.name.clone()))
        }
        (zone, _) => Ok(Some(zone)),
    }
}

/// Parameters of a route lookup.
#[derive(Clone, Copy)]
struct Question {
    server: IpAddr,
    source: Option<IpAddr>,
    oif: Option<u32>,
    fwmark: Option<u32>,
}

impl Question {
    fn ask(self) -> Result<Route, Fault> {
        let answer = route_to(self.server, self.source, self.oif, self.fwmark);
        answer.map_err(|error| Fault::Route(self.server, error))
    }
}

#[cfg(test)]
mod tests;
