//! Detection of routing loops for addresses that no host has. Packets in such a loop would congest
//! the network.
//!
//! The boundaries of all prefixes divide the addresses into intervals. All routes treat the
//! addresses of an interval alike. This module therefore follows a packet to only one address of
//! each interval, from host to host.
//!
//! The module follows a packet no further than a host with an interface (of a link, or loopback)
//! whose own network contains the packet's address. Packets do not loop there: no host has the
//! address, or a program adds the address to a host later.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_os::netlink::Prefix;

use super::routing::{Map, TopologyError};

/// Addresses reserved for documentation (RFC 5737, RFC 3849). They are checked first, so that an
/// error message names one of them if possible: a user knows that no host has such an address.
const SHOWN: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// Prefixes whose packets no kernel forwards: "this network", loopback and multicast.
const NEVER: [Prefix; 5] = [
    Prefix { ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 8 },
    Prefix { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), len: 8 },
    Prefix { ip: IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), len: 4 },
    Prefix { ip: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 127 },
    Prefix { ip: IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), len: 8 },
];

/// Checks that packets to an address that no host has never enter a routing loop.
///
/// # Errors
/// There is a loop. The error contains the loop's hosts, and the line of a route in the loop.
pub(super) fn check(map: &Map<'_>) -> Result<(), TopologyError> {
    let owned: BTreeSet<IpAddr> = map.owners().map(|(_, ip)| ip).collect();
    let samples = SHOWN.into_iter().chain(edges(map, &owned));
    let possible = |ip: &IpAddr| !owned.contains(ip) && !NEVER.iter().any(|to| to.contains(*ip));
    let round = samples.filter(possible).find_map(|ip| Some((ip, find_loop(map, ip)?)));
    let Some((ip, (way, line))) = round else { return Ok(()) };
    let way = map.names(&way);
    let message = format!(
        "no host has the address {ip}, and packets to it would go round in a loop through the \
         hosts {way}; remove a route of one of them, or limit the route to fewer addresses"
    );
    Err((line, message))
}

/// Returns the first address of each interval of addresses that all hosts route alike. Each
/// address in `owned` (the hosts' addresses) is an interval of its own.
fn edges(map: &Map<'_>, owned: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
    let single = |&ip: &IpAddr| Prefix { ip, len: if ip.is_ipv4() { 32 } else { 128 } };
    let prefixes = map.prefixes().chain(owned.iter().map(single)).chain(NEVER);
    prefixes.flat_map(|prefix| [Some(prefix.network().ip), after(prefix)]).flatten().collect()
}

/// Returns the first address after the last address of a prefix; `None` if there is none.
fn after(prefix: Prefix) -> Option<IpAddr> {
    let len = prefix.len.into();
    match prefix.network().ip {
        IpAddr::V4(ip) => {
            let last = ip.to_bits() | u32::MAX.checked_shr(len).unwrap_or(0);
            last.checked_add(1).map(|bits| Ipv4Addr::from_bits(bits).into())
        }
        IpAddr::V6(ip) => {
            let last = ip.to_bits() | u128::MAX.checked_shr(len).unwrap_or(0);
            last.checked_add(1).map(|bits| Ipv6Addr::from_bits(bits).into())
        }
    }
}

/// Returns the loop that packets to `ip` enter; `None` if they enter none. The first value lists
/// the hosts of the loop, with the first host again at the end. The second value is the line of
/// the first host's route in the topology file.
fn find_loop(map: &Map<'_>, ip: IpAddr) -> Option<(Vec<usize>, usize)> {
    let mut seen = vec![false; map.topology.hosts.len()];
    for start in 0..seen.len() {
        let (mut way, mut at) = (Vec::new(), start);
        while let Some((next, line)) = map.passes_on(at, ip) {
            if seen[at] {
                let Some(first) = way.iter().position(|&(host, _)| host == at) else { break };
                let hosts = way[first..].iter().map(|&(host, _)| host).chain([at]).collect();
                return Some((hosts, way[first].1));
            }
            seen[at] = true;
            way.push((at, line));
            at = next;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::Topology;

    /// Parses a topology with these hosts and links. Returns the error message, or `good` without
    /// an error. A `*` marks a host that forwards. A link consists of two hosts, each with its
    /// routes.
    fn verdict(hosts: &[&str], links: &[[(&str, &str); 2]]) -> String {
        let mut text = String::new();
        for name in hosts {
            let forward = name.ends_with('*');
            text += &format!(
                "[[host]]\nname = '{}'\nforward = {forward}\n",
                name.trim_end_matches('*')
            );
        }
        for (number, ends) in links.iter().enumerate() {
            text += &format!("[[link]]\nname = 'l{number}'\nends = [\n");
            for ((host, routes), end) in ends.iter().zip(1..) {
                let address = format!("'10.{number}.0.{end}/24', 'fd0{number}::{end}/64'");
                text += &format!(
                    "{{ host = '{host}', address = [{address}], routes = [{routes}] }},\n"
                );
            }
            text += "]\n";
        }
        let read = Topology::parse(&text, "t.toml");
        read.map_or_else(|error| error.to_string(), |_| "good".to_owned())
    }

    #[test]
    fn default_routes_that_face_each_other_are_told() {
        let hosts = ["c", "a*", "b*"];
        let links = |from_b: &'static str| {
            [[("c", "'0.0.0.0/0'"), ("a", "")], [("a", "'0.0.0.0/0'"), ("b", from_b)]]
        };
        assert_eq!(
            verdict(&hosts, &links("'0.0.0.0/0'")),
            "t.toml:19: no host has the address 192.0.2.1, and packets to it would go round in a \
             loop through the hosts a → b → a; remove a route of one of them, or limit the route \
             to fewer addresses"
        );
        assert_eq!(verdict(&hosts, &links("'10.0.0.0/24'")), "good");
        // Counterexample: a host that does not forward ends the loop.
        assert_eq!(verdict(&["c", "a*", "b"], &links("'0.0.0.0/0'")), "good");
        let six = [[("c", "'::/0'"), ("a", "")], [("a", "'::/0'"), ("b", "'::/0'")]];
        assert!(verdict(&hosts, &six).contains("no host has the address 2001:db8::1"));
    }

    #[test]
    fn a_ring_of_default_routes_is_told() {
        let all = "'0.0.0.0/0'";
        let ring = [[("a", all), ("b", "")], [("b", all), ("c", "")], [("c", all), ("a", "")]];
        let message = verdict(&["a*", "b*", "c*"], &ring);
        assert!(message.contains("in a loop through the hosts a → b → c → a"), "{message}");
        assert_eq!(verdict(&["a*", "b*", "c"], &ring), "good");
    }

    #[test]
    fn what_is_left_of_a_wide_route_beside_narrower_ones_is_followed() {
        // Within 10.1.0.0/16, only the link's own network exists.
        let wide = [[("a", "'10.1.0.0/16'"), ("b", "'0.0.0.0/0'")], [("b", ""), ("c", "")]];
        let message = verdict(&["a*", "b*", "c"], &wide);
        assert!(message.contains("no host has the address 10.1.1.0"), "{message}");
        let narrow = [[("a", "'10.1.0.0/24'"), ("b", "'0.0.0.0/0'")], [("b", ""), ("c", "")]];
        assert_eq!(verdict(&["a*", "b*", "c"], &narrow), "good");
    }

    #[test]
    fn a_loopback_network_is_where_a_way_ends() {
        let text = |address: &str| {
            format!(
                "[[host]]\nname = 'a'\nforward = true\naddress = \
                 ['10.9.0.1/{address}']\n[[host]]\nname = 'b'\nforward = true\n[[link]]\nname = \
                 'l'\nends = [\n{{ host = 'a', address = ['10.0.0.1/24'], routes = ['10.9.0.0/16'] \
                 }},\n{{ host = 'b', address = ['10.0.0.2/24', '10.9.0.2/32'], routes = \
                 ['10.9.0.0/16'] }} ]\n"
            )
        };
        assert!(Topology::parse(&text("16"), "t.toml").is_ok());
        let message = Topology::parse(&text("32"), "t.toml").unwrap_err().to_string();
        assert!(message.starts_with("t.toml:11: no host has the address 10.9.0.0"), "{message}");
    }
}
