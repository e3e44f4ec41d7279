//! Checks and restores the rules and tables that route packets with a splitter's firewall marks.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_os::netlink::configure::{self, NewRoute};
use anabranch_os::netlink::policy::{self, DefaultRoute, Family, FoundRoute, Rule};
use anabranch_os::netlink::{self, Prefix};

use super::slot::MASK;
use super::{Exit, Slot};

/// The number of the main routing table.
const MAIN: u32 = 254;
/// Mask with which a routing rule compares all bits of a firewall mark.
const ALL: u32 = u32::MAX;

/// The routing rules and tables that a splitter needs in one namespace. In the machine's
/// namespace, the rules lead to all paths. If the interface has a separate namespace, the rules in
/// that namespace lead only into the interface.
#[derive(Clone, Debug)]
pub(super) struct Routing {
    slot: Slot,
    /// Numbers of the routing tables, which are also the marks of their packets.
    tables: Vec<u32>,
    /// Whether routes of the main table that are more specific than the default route take
    /// precedence over `tables`.
    specific: bool,
}

impl Routing {
    /// Returns the routing rules and tables that lead to the paths' exits (outgoing interfaces and
    /// source addresses).
    pub(super) fn out(slot: Slot, exits: &[Exit]) -> Routing {
        let paths = exits.iter().map(|exit| slot.path(exit.index));
        Routing { slot, tables: paths.chain([slot.nowhere()]).collect(), specific: true }
    }

    /// Returns the routing rules and tables that lead only into the interface.
    pub(super) fn only_in(slot: Slot) -> Routing {
        Routing { slot, tables: vec![slot.tun(), slot.nowhere()], specific: false }
    }

    /// Returns these routing rules and tables, extended by the table that leads into the
    /// interface.
    pub(super) fn and_in(mut self) -> Routing {
        self.tables.push(self.slot.tun());
        self
    }

    /// Restores missing routes and rules, and returns the count of restored ones. The unreachable
    /// routes are set first, so that no packet passes to later rules in the meantime.
    pub(super) fn ensure(&self) -> io::Result<usize> {
        let routes = policy::routes_in(self.slot.tables())?;
        let mut missing = 0;
        for (family, table) in self.pairs() {
            if !has(&routes, family, table, DefaultRoute::Nowhere) {
                policy::set_default(family, table, DefaultRoute::Nowhere)?;
                missing += 1;
            }
        }
        let found = policy::rules()?;
        for rule in self.rules() {
            let is_there = |its: &policy::FoundRule| its.ours && its.stands_for(&rule);
            if !found.iter().any(is_there) {
                policy::add_rule(&rule)?;
                missing += 1;
            }
        }
        Ok(missing)
    }

    /// Removes rules and tables that belong to the splitter's slot (its set of numbers) and are no
    /// longer needed.
    pub(super) fn sweep(&self) -> io::Result<()> {
        let wanted: Vec<Rule> = self.rules().collect();
        let priorities = self.slot.priorities();
        policy::remove_rules_but(priorities, |its| wanted.iter().any(|rule| its.stands_for(rule)))?;
        policy::remove_routes_but(self.slot.tables(), |table| self.tables.contains(&table))
    }

    /// Returns the rules in order: specific routes of the main table, then the routing table of
    /// the packet's mark, then "unreachable". The last rule takes effect only while another
    /// program has emptied the mark's table or removed its rule.
    fn rules(&self) -> impl Iterator<Item = Rule> + '_ {
        let (base, nowhere) = (self.slot.base(), self.slot.nowhere());
        let first = self.slot.priorities().start;
        let rule = move |family, after, mark, table| Rule {
            family,
            priority: first + after,
            mark: Some(mark),
            from: None,
            table,
            only_specific: table == MAIN,
        };
        let specific = Family::BOTH.into_iter().filter(|_| self.specific);
        let specific = specific.map(move |family| rule(family, 0, (base, MASK), MAIN));
        let named = self.pairs().map(move |(family, table)| rule(family, 1, (table, ALL), table));
        let last = self.pairs().map(move |(family, mark)| rule(family, 2, (mark, ALL), nowhere));
        specific.chain(named).chain(last)
    }

    fn pairs(&self) -> impl Iterator<Item = (Family, u32)> + '_ {
        Family::BOTH.into_iter().flat_map(|family| self.tables.iter().map(move |it| (family, *it)))
    }
}

/// Blocks packets from `origin` ("lo" means this machine itself), except on specific routes of the
/// main table. Marked packets do not reach these rules, because earlier rules route them. Without
/// the nftables table no packet is marked, so these rules block all packets.
pub(super) fn block_unmarked(slot: Slot, origin: &str) -> io::Result<()> {
    let first = slot.priorities().start + 3;
    let mut result = Ok(());
    for family in Family::BOTH {
        let from = Some(origin.to_owned());
        let near =
            Rule { family, priority: first, mark: None, from, table: MAIN, only_specific: true };
        let far = Rule {
            priority: first + 1,
            table: slot.nowhere(),
            only_specific: false,
            ..near.clone()
        };
        result = result.and(policy::set_default(family, slot.nowhere(), DefaultRoute::Nowhere));
        result = result.and(policy::add_rule(&near)).and(policy::add_rule(&far));
    }
    result
}

/// Sets missing routes into the interface, if the interface is up. The kernel removes these routes
/// when the interface is switched off.
pub(super) fn set_inbound_routes(slot: Slot, tun: u32) -> io::Result<()> {
    if !netlink::links()?.iter().any(|link| link.index == tun && link.up) {
        return Ok(());
    }
    let found = policy::routes_in(slot.tables())?;
    for family in Family::BOTH {
        let way = DefaultRoute::Out(tun, None);
        if !has(&found, family, slot.tun(), way) {
            policy::set_default(family, slot.tun(), way)?;
        }
    }
    Ok(())
}

/// Sets the default route in the table of each path that has an exit, and removes outdated routes.
/// A route that is already set is not set again, because the kernel reports each change, and each
/// report causes another check.
pub(super) fn set_exit_routes(slot: Slot, exits: &[Exit]) -> io::Result<()> {
    let found = policy::routes_in(slot.tables())?;
    let mut result = Ok(());
    for exit in exits {
        for family in Family::BOTH {
            result = result.and(set_way(slot.path(exit.index), exit, family, &found));
        }
    }
    result
}

fn set_way(table: u32, exit: &Exit, family: Family, found: &[FoundRoute]) -> io::Result<()> {
    let wanted = exit.way(family).map(|out| DefaultRoute::Out(out.oif, out.gateway));
    let is_stale = |route: &&FoundRoute| {
        let its_place = route.ours && (route.family, route.table) == (family, table);
        its_place && route.way != DefaultRoute::Nowhere && Some(route.way) != wanted
    };
    if !has(found, family, table, DefaultRoute::Nowhere) {
        policy::set_default(family, table, DefaultRoute::Nowhere)?;
    }
    if found.iter().any(|route| is_stale(&route)) {
        policy::remove_ways_out(family, table)?;
    }
    match wanted.filter(|way| !has(found, family, table, *way)) {
        Some(way) => policy::set_default(family, table, way),
        None => Ok(()),
    }
}

fn has(found: &[FoundRoute], family: Family, table: u32, way: DefaultRoute) -> bool {
    found.contains(&FoundRoute { family, table, way, ours: true })
}

/// Configures the namespace's end of the virtual Ethernet pair, which has the index `index`. Sets
/// its address `there`, with a prefix of `len` bits, and a default route to the other end, `here`.
pub(super) fn join(index: u32, (here, there, len): (IpAddr, IpAddr, u8)) -> io::Result<()> {
    configure::add_address(index, Prefix { ip: there, len })?;
    let any =
        if here.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    configure::add_route(NewRoute {
        dst: Prefix { ip: any, len: 0 },
        oif: index,
        gateway: Some(here),
        prefsrc: None,
        metric: None,
        congestion_control: None,
    })
}
