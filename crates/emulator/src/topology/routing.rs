//! Validation of a topology's routes, before the network is built.
//!
//! For each address that a host has and a route covers, this module follows a packet from host to
//! host, as the kernels would forward it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anabranch_os::netlink::Prefix;

use super::{Cable, End, Route, Topology};

/// An error in the topology file: its line, counted from 1, and a message.
pub(super) type TopologyError = (usize, String);

/// Checks the ends of all links, and returns the map of routes.
///
/// # Errors
/// * Both hosts of a link have the same address.
/// * A source address does not belong to the host that uses it.
/// * A gateway is not an address at the other end of its link.
/// * Two routes of a host have the same destination and metric.
/// * A destination is unreachable.
/// * A host translates addresses, but does not forward packets.
pub(super) fn check(topology: &Topology) -> Result<Map<'_>, TopologyError> {
    let map = Map::new(topology);
    for link in &topology.links {
        for (end, other) in [(0, 1), (1, 0)] {
            map.check_end(link, &link.ends[end], &link.ends[other])?;
        }
    }
    (0..topology.hosts.len()).try_for_each(|host| map.check_twins(host))?;
    Ok(map)
}

pub(super) struct Map<'t> {
    pub(super) topology: &'t Topology,
    /// Routes of each host, including the implicit routes to the networks of the host's own
    /// interfaces.
    ways: Vec<Vec<HostRoute>>,
}

/// A route of a host.
struct HostRoute {
    to: Prefix,
    metric: u32,
    next: usize,
    /// Line of the route in the topology file; `None` for the route that the kernel adds for an
    /// interface's address.
    line: Option<usize>,
}

/// The result of following a packet from host to host along their routes.
enum Fate {
    Arrives,
    /// The packet loops over the hosts with these indices.
    GoesRound(Vec<usize>),
    /// The packet reaches the host with this index, which is not the destination and does not
    /// forward.
    Refused(usize),
    /// The packet reaches the host with this index, which has no route for the packet.
    Lost(usize),
}

impl<'t> Map<'t> {
    fn new(topology: &'t Topology) -> Map<'t> {
        let mut ways: Vec<Vec<HostRoute>> = topology.hosts.iter().map(|_| Vec::new()).collect();
        for (end, next) in topology.links.iter().flat_map(both_ends) {
            let connected = end.address.iter().map(|prefix| prefix.network());
            let connected = connected.map(|to| HostRoute {
                to,
                metric: connected_metric(to.ip),
                next,
                line: None,
            });
            let declared = end.routes.iter().map(|route| HostRoute {
                to: route.to.network(),
                metric: metric(end, route),
                next,
                line: Some(route.line),
            });
            ways[end.host].extend(connected.chain(declared));
        }
        Map { topology, ways }
    }

    fn check_end(&self, link: &Cable, end: &End, other: &End) -> Result<(), TopologyError> {
        let (host, name) = (&self.topology.hosts[end.host], &link.name);
        let mine: BTreeSet<IpAddr> = self.addresses(end.host).collect();
        if let Some(twice) = self.addresses(other.host).find(|ip| mine.contains(ip)) {
            let (mine, theirs) = (&host.name, self.name(other.host));
            let message = format!(
                "the hosts `{mine}` and `{theirs}`, which the link `{name}` joins, have the same \
                 address {twice}; give one of them another address"
            );
            return Err((end.line, message));
        }
        if let Some(alien) = end.prefsrc.iter().find(|ip| !mine.contains(ip)) {
            let message = format!(
                "`prefsrc` {alien} is not an address of the host `{}`; give the host this address",
                host.name
            );
            return Err((end.line, message));
        }
        if end.nat && !host.forward {
            let message = format!(
                "`nat` translates only packets that the host forwards; give the host `{}` the key \
                 `forward = true`",
                host.name
            );
            return Err((end.line, message));
        }
        for route in &end.routes {
            check_gateway(name, route, end, other).map_err(|message| (route.line, message))?;
            self.check_way(end.host, other.host, route).map_err(|message| (route.line, message))?;
        }
        Ok(())
    }

    /// Checks that packets on a route of `host` (by the next hop `next`) reach at least one
    /// address in the route's destination. Also checks that none of these packets loops. An
    /// address with a more specific route counts as reached.
    fn check_way(&self, host: usize, next: usize, route: &Route) -> Result<(), String> {
        let to = route.to.network();
        let mut covered =
            self.owners().filter(|&(owner, ip)| owner != host && to.contains(ip)).peekable();
        if covered.peek().is_none() {
            return Err(format!(
                "no other host has an address in {to}; give a host such an address, or remove the \
                 route"
            ));
        }
        let (mut useful, mut dead_end) = (false, None);
        for (_, ip) in covered {
            // A longer prefix takes precedence, so packets to this address use another route.
            if self.best(host, ip).is_some_and(|way| way.to.len > to.len) {
                useful = true;
                continue;
            }
            match self.follow(vec![host], next, ip) {
                Fate::Arrives => useful = true,
                Fate::GoesRound(hosts) => return Err(self.round(&hosts, ip)),
                Fate::Refused(host) => {
                    let hint = format!(
                        "the host `{}` forwards nothing; give it the key `forward = true`",
                        self.name(host)
                    );
                    dead_end.get_or_insert(hint);
                }
                Fate::Lost(host) => {
                    let hint =
                        format!("the host `{}` has no route to {ip}; add one", self.name(host));
                    dead_end.get_or_insert(hint);
                }
            }
        }
        match dead_end {
            Some(hint) if !useful => Err(format!("packets do not reach {to}: {hint}")),
            _ => Ok(()),
        }
    }

    fn follow(&self, mut way: Vec<usize>, mut at: usize, ip: IpAddr) -> Fate {
        loop {
            if self.addresses(at).any(|own| own == ip) {
                return Fate::Arrives;
            }
            if !self.topology.hosts[at].forward {
                return Fate::Refused(at);
            }
            let known = way.contains(&at);
            way.push(at);
            if known {
                return Fate::GoesRound(way);
            }
            let Some(way) = self.best(at, ip) else { return Fate::Lost(at) };
            at = way.next;
        }
    }

    fn round(&self, hosts: &[usize], ip: IpAddr) -> String {
        let way = self.names(hosts);
        format!(
            "packets to {ip} would go round in a loop through the hosts {way}; change a route of \
             one of them"
        )
    }

    /// Returns the host to which `host` forwards packets for `ip`, and the line of the route in
    /// the topology file. Returns `None` if `host` does not forward packets for `ip`, or if the
    /// kernel itself added the route.
    pub(super) fn passes_on(&self, host: usize, ip: IpAddr) -> Option<(usize, usize)> {
        let about = &self.topology.hosts[host];
        let ends_here = about.address.iter().any(|prefix| prefix.contains(ip));
        let way = self.best(host, ip).filter(|_| about.forward && !ends_here)?;
        Some((way.next, way.line?))
    }

    /// Checks that no host has two routes with the same destination and metric. The kernel refuses
    /// the second of two such routes.
    fn check_twins(&self, host: usize) -> Result<(), TopologyError> {
        let mut seen: BTreeSet<(Prefix, u32)> = BTreeSet::new();
        let ends: Vec<&End> = self.ends(host).collect();
        // The kernel adds a route for each address, except for a single IPv4 address.
        let connected = ends.iter().flat_map(|end| &end.address);
        let connected = connected.filter(|prefix| prefix.ip.is_ipv6() || prefix.len < 32);
        seen.extend(connected.map(|prefix| (prefix.network(), connected_metric(prefix.ip))));
        for (end, route) in ends.iter().flat_map(|end| end.routes.iter().map(move |r| (end, r))) {
            let to = route.to.network();
            if !seen.insert((to, metric(end, route))) {
                let name = self.name(host);
                let message = format!(
                    "the host `{name}` has two routes to {to} with the same `metric`; remove one, \
                     or, if they use different links, give these links different metrics at this \
                     host"
                );
                return Err((route.line, message));
            }
        }
        Ok(())
    }

    /// Returns the route that `host` uses for packets to `ip`: the route with the longest prefix,
    /// and among these the one with the smallest metric. Returns `None` if no route leads to `ip`.
    fn best(&self, host: usize, ip: IpAddr) -> Option<&HostRoute> {
        let ways = self.ways[host].iter().filter(|way| way.to.contains(ip));
        ways.min_by_key(|way| (std::cmp::Reverse(way.to.len), way.metric))
    }

    /// Returns the destinations of all routes, and the networks of all loopback interfaces.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        let ways = self.ways.iter().flatten().map(|way| way.to);
        ways.chain(self.topology.hosts.iter().flat_map(|host| host.address.iter().copied()))
    }

    /// Returns the ends of links that are at `host`.
    fn ends(&self, host: usize) -> impl Iterator<Item = &End> {
        let ends = self.topology.links.iter().flat_map(|link| &link.ends);
        ends.filter(move |end| end.host == host)
    }

    fn addresses(&self, host: usize) -> impl Iterator<Item = IpAddr> {
        let own = self.topology.hosts[host].address.iter();
        own.chain(self.ends(host).flat_map(|end| &end.address)).map(|prefix| prefix.ip)
    }

    /// Returns all addresses in the topology, each with the index of its host.
    pub(super) fn owners(&self) -> impl Iterator<Item = (usize, IpAddr)> {
        let hosts = 0..self.topology.hosts.len();
        hosts.flat_map(|host| self.addresses(host).map(move |ip| (host, ip)))
    }

    fn name(&self, host: usize) -> &str {
        &self.topology.hosts[host].name
    }

    pub(super) fn names(&self, hosts: &[usize]) -> String {
        let names: Vec<&str> = hosts.iter().map(|&host| self.name(host)).collect();
        names.join(" → ")
    }
}

/// Returns the two ends of a link, each with the index of the host at the other end.
fn both_ends(link: &Cable) -> [(&End, usize); 2] {
    let [first, second] = &link.ends;
    [(first, second.host), (second, first.host)]
}

/// Checks that the gateway of a route is an address of the link's other end and lies in a network
/// of this end, as the kernel requires.
fn check_gateway(link: &str, route: &Route, end: &End, other: &End) -> Result<(), String> {
    let Some(via) = route.via else { return Ok(()) };
    if via.is_ipv4() != route.to.ip.is_ipv4() {
        return Err(format!(
            "`via` {via} and the route's destination {} must both be IPv4 or both be IPv6; change \
             one",
            route.to
        ));
    }
    let theirs: Vec<String> = other.address.iter().map(|prefix| prefix.ip.to_string()).collect();
    if !other.address.iter().any(|prefix| prefix.ip == via) {
        let there = if theirs.is_empty() { "none".to_owned() } else { theirs.join(", ") };
        return Err(format!(
            "`via` {via} is not an address of the other end of `{link}`; addresses there: \
             {there}"
        ));
    }
    if !end.address.iter().any(|prefix| prefix.contains(via)) {
        return Err(format!(
            "`via` {via} is in no network of this end of the link; give this end an address in the \
             same network"
        ));
    }
    Ok(())
}

/// Returns the metric that the kernel uses for a route. A metric of 0 for an IPv6 route means the
/// kernel's default.
fn metric(end: &End, route: &Route) -> u32 {
    match end.metric {
        None | Some(0) if route.to.ip.is_ipv6() => 1024,
        metric => metric.unwrap_or(0),
    }
}

/// Returns the metric of the kernel's own route to the network of an address.
fn connected_metric(ip: IpAddr) -> u32 {
    if ip.is_ipv4() { 0 } else { 256 }
}

#[cfg(test)]
mod tests {
    use crate::Topology;

    /// A client, a router and a server in a row. Each test case replaces the `{...}`.
    const ROW: &str = "\
[[host]]
name = 'client'
[[host]]
name = 'router'
forward = true
[[host]]
name = 'server'
[[link]]
name = 'in'
ends = [
  { host = 'client', address = ['10.1.0.2/24'], routes = [{ to = '10.2.0.0/24', via = '10.1.0.1' }] },
  { host = 'router', address = ['10.1.0.1/24'] },
]
[[link]]
name = 'out'
ends = [
  { host = 'router', address = ['10.2.0.1/24'], nat = true },
  { host = 'server', address = ['10.2.0.2/24'] },
]
";

    fn verdict(changes: &[(&str, &str)]) -> String {
        let change = |text: String, (from, to): &(&str, &str)| {
            assert!(text.contains(from), "no `{from}`");
            text.replacen(from, to, 1)
        };
        let text = changes.iter().fold(ROW.to_owned(), change);
        Topology::parse(&text, "t.toml")
            .map_or_else(|error| error.to_string(), |_| "good".to_owned())
    }

    #[test]
    fn a_way_through_a_forwarding_host_is_good() {
        assert_eq!(verdict(&[]), "good");
        assert_eq!(verdict(&[("10.2.0.0/24', via", "0.0.0.0/0', via")]), "good");
        // Without a gateway, the next host is the one at the other end.
        assert_eq!(
            verdict(&[("{ to = '10.2.0.0/24', via = '10.1.0.1' }", "'10.2.0.0/24'")]),
            "good"
        );
    }

    #[test]
    fn a_destination_without_a_way_is_told_with_the_host_where_it_ends() {
        assert_eq!(
            verdict(&[
                ("forward = true", ""),
                (", nat = true", ""),
                ("10.2.0.0/24', via", "10.2.0.2/32', via")
            ]),
            "t.toml:11: packets do not reach 10.2.0.2/32: the host `router` forwards nothing; give \
             it the key `forward = true`"
        );
        let nobody = "t.toml:11: no other host has an address in 10.9.0.0/24; give a host such \
                      an address, or remove the route";
        assert_eq!(verdict(&[("10.2.0.0/24', via", "10.9.0.7/24', via")]), nobody);
        let lost = [
            ("name = 'server'", "name = 'server'\naddress = ['10.3.0.1/32']"),
            ("10.2.0.0/24', via", "10.3.0.1', via"),
        ];
        let message = "t.toml:12: packets do not reach 10.3.0.1/32: the host `router` has no route \
                       to 10.3.0.1; add one";
        assert_eq!(verdict(&lost), message);
        let mended = [lost[0], lost[1], ("nat = true", "nat = true, routes = ['10.3.0.1']")];
        assert_eq!(verdict(&mended), "good");
    }

    #[test]
    fn routes_that_lead_in_a_circle_are_told_with_the_way() {
        let circle = [
            ("name = 'client'", "name = 'client'\nforward = true"),
            ("name = 'server'", "name = 'server'\naddress = ['10.3.0.1/32']"),
            ("10.2.0.0/24', via", "10.3.0.0/16', via"),
            ("['10.1.0.1/24'] }", "['10.1.0.1/24'], routes = ['10.3.0.0/16'] }"),
        ];
        assert_eq!(
            verdict(&circle),
            "t.toml:13: packets to 10.3.0.1 would go round in a loop through the hosts client → \
             router → client; change a route of one of them"
        );
        // A client that does not forward ends the loop and the route.
        let end = "t.toml:12: packets do not reach 10.3.0.0/16: the host `client` forwards \
                   nothing; give it the key `forward = true`";
        assert_eq!(verdict(&circle[1..]), end);
    }

    #[test]
    fn a_gateway_is_an_address_of_the_other_end() {
        let other = "t.toml:11: `via` 10.1.0.9 is not an address of the other end of `in`; \
                     addresses there: 10.1.0.1";
        assert_eq!(verdict(&[("via = '10.1.0.1'", "via = '10.1.0.9'")]), other);
        let apart = "t.toml:11: `via` 10.1.0.1 is in no network of this end of the link; give \
                     this end an address in the same network";
        assert_eq!(verdict(&[("'10.1.0.2/24'", "'10.5.0.2/24'")]), apart);
        let family = "t.toml:11: `via` fd00::1 and the route's destination 10.2.0.0/24 must \
                      both be IPv4 or both be IPv6; change one";
        assert_eq!(verdict(&[("via = '10.1.0.1'", "via = 'fd00::1'")]), family);
        let text = "t.toml:11: `10.1` is not an IP address";
        assert_eq!(verdict(&[("via = '10.1.0.1'", "via = '10.1'")]), text);
        let key = "t.toml:11: unknown key `viaa` in [link.ends.routes]; did you mean `via`?";
        assert_eq!(verdict(&[("via =", "viaa =")]), key);
        let form = verdict(&[("{ to = '10.2.0.0/24', via = '10.1.0.1' }", "7")]);
        assert!(
            form.starts_with("t.toml:11: this is not a route; write `\"10.0.0.0/8\"`"),
            "{form}"
        );
    }

    #[test]
    fn the_two_hosts_of_a_link_share_no_address() {
        let both = "t.toml:17: the hosts `router` and `server`, which the link `out` joins, have \
                    the same address 10.2.0.1; give one of them another address";
        assert_eq!(verdict(&[("'10.2.0.2/24'", "'10.2.0.1/24'")]), both);
        // An address of the host itself counts like an address of the link.
        let inside = verdict(&[("name = 'client'", "name = 'client'\naddress = ['10.2.0.1/32']")]);
        assert!(inside.contains("`client` and `router`, which the link `in` joins"), "{inside}");
        // Two hosts without a link between them may have equal networks.
        assert_eq!(
            verdict(&[("name = 'client'", "name = 'client'\naddress = ['10.2.0.2/32']")]),
            "good"
        );
    }

    #[test]
    fn source_addresses_and_translation_must_make_sense() {
        let alien = "t.toml:11: `prefsrc` 10.9.9.9 is not an address of the host `client`; give \
                     the host this address";
        assert_eq!(verdict(&[("'10.1.0.1' }]", "'10.1.0.1' }], prefsrc = ['10.9.9.9']")]), alien);
        let idle = verdict(&[("forward = true", "")]);
        let router = "t.toml:17: `nat` translates only packets that the host forwards; give the \
                      host `router` the key `forward = true`";
        assert_eq!(idle, router);
        let server = "t.toml:18: `nat` translates only packets that the host forwards; give the \
                      host `server` the key `forward = true`";
        assert_eq!(verdict(&[("'10.2.0.2/24']", "'10.2.0.2/24'], nat = true")]), server);
    }

    #[test]
    fn routes_that_the_kernel_cannot_tell_apart_are_refused() {
        let twice = [("via = '10.1.0.1' }]", "via = '10.1.0.1' }, '10.2.0.0/24']")];
        let message = "t.toml:11: the host `client` has two routes to 10.2.0.0/24 with the same \
                       `metric`; remove one, or, if they use different links, give these links \
                       different metrics at this host";
        assert_eq!(verdict(&twice), message);
        let connected = verdict(&[("'10.2.0.2/24']", "'10.2.0.2/24'], routes = ['10.2.0.0/24']")]);
        assert!(
            connected.starts_with("t.toml:18: the host `server` has two routes to 10.2.0.0/24"),
            "{connected}"
        );
    }

    #[test]
    fn metrics_of_ipv6_are_compared_as_the_kernel_takes_them() {
        let link = |name: &str, address: &str, metric: &str| {
            format!(
                "[[link]]\nname = '{name}'\nends = [\n{{ host = 'a', address = [{address}], routes \
                 = ['fd09::/64']{metric} }}, {{ host = 'b' }} ]\n"
            )
        };
        let parse = |first: [&str; 2], second: [&str; 2]| {
            let hosts = "[[host]]\nname = 'a'\n[[host]]\nname = 'b'\naddress = ['fd09::1/128']\n";
            let text = [hosts, &link("l", first[0], first[1]), &link("m", second[0], second[1])];
            Topology::parse(&text.concat(), "t.toml").map_err(|error| error.to_string())
        };
        assert!(parse(["", ""], ["", ", metric = 7"]).is_ok());
        // A metric of 0, or none, means 1024. An address adds a route with the metric 256.
        for (first, second) in [
            (["", ""], ["", ", metric = 0"]),
            (["", ""], ["", ", metric = 1024"]),
            (["'fd09::9/64'", ", metric = 3"], ["", ", metric = 256"]),
        ] {
            let error = parse(first, second).unwrap_err();
            assert!(
                error.starts_with("t.toml:13: the host `a` has two routes to fd09::/64"),
                "{error}"
            );
        }
        assert!(parse(["'fd09::9/64'", ", metric = 3"], ["", ", metric = 0"]).is_ok());
    }
}
