//! Policy routing: rules for packets with a mark (`fwmark`), separate routing tables, and virtual
//! Ethernet pairs between namespaces. All changes need `CAP_NET_ADMIN`.
//!
//! Rules and routes that this module adds have the protocol number [`OURS`]. With this number, the
//! program recognises them after a crash.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};

use super::{Prefix, socket};

/// Protocol number of this program's rules and routes (`proto 171` for `ip`). The registries of
/// iproute2, FRRouting and systemd do not use it.
pub const OURS: u8 = 171;
/// Identifier of the main routing table.
const MAIN: u32 = 254;
/// Metric of the route of last resort in a table. It is larger than the metric of any other route.
const LAST: u32 = u32::MAX - 1;

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    Four,
    /// IPv6.
    Six,
}

impl Family {
    /// Both IP versions.
    pub const BOTH: [Family; 2] = [Family::Four, Family::Six];

    /// Returns the IP version of an address.
    pub fn of(ip: IpAddr) -> Family {
        if ip.is_ipv4() { Family::Four } else { Family::Six }
    }

    fn kernel(self) -> AddressFamily {
        match self {
            Family::Four => AddressFamily::Inet,
            Family::Six => AddressFamily::Inet6,
        }
    }
}

/// A routing rule for packets with a mark, or for packets from an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// IP version of the rule's packets.
    pub family: Family,
    /// Priority of the rule; the rule with the smallest number applies first.
    pub priority: u32,
    /// Mark of the packets, and mask of its significant bits. `None` means that the mark does not
    /// matter.
    pub mark: Option<(u32, u32)>,
    /// The packets' incoming interface, or "lo" for packets of this machine itself. `None`
    /// means any interface.
    pub from: Option<String>,
    /// Identifier of the table in which the route is looked up.
    pub table: u32,
    /// True if a default route in the rule's table is ignored (`suppress_prefixlength 0`).
    pub only_specific: bool,
}

/// A rule that exists in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundRule {
    /// IP version of the rule's packets.
    pub family: Family,
    /// Priority of the rule.
    pub priority: u32,
    /// Mark of the packets, and mask of its significant bits. `None` means that the mark does not
    /// matter.
    pub mark: Option<(u32, u32)>,
    /// Identifier of the table in which the route is looked up.
    pub table: u32,
    /// True if the rule has the protocol number [`OURS`].
    pub ours: bool,
}

impl FoundRule {
    /// Returns whether this rule has the same IP version, priority, mark and table as `rule`.
    pub fn stands_for(&self, rule: &Rule) -> bool {
        let place = (self.family, self.priority, self.table);
        self.mark == rule.mark && place == (rule.family, rule.priority, rule.table)
    }
}

/// Adds a rule. It is not an error if an identical rule exists already.
///
/// # Errors
/// `EPERM` without privilege.
pub fn add_rule(rule: &Rule) -> io::Result<()> {
    let mut message = RuleMessage::default();
    message.header.family = rule.family.kernel();
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Priority(rule.priority),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Protocol(RouteProtocol::Other(OURS)),
    ];
    if let Some((mark, mask)) = rule.mark {
        message.attributes.extend([RuleAttribute::FwMark(mark), RuleAttribute::FwMask(mask)]);
    }
    message.attributes.extend(rule.from.clone().map(RuleAttribute::Iifname));
    if rule.only_specific {
        message.attributes.push(RuleAttribute::SuppressPrefixLen(0));
    }
    match socket::order(Message::NewRule(message), NLM_F_CREATE | NLM_F_EXCL) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Lists all rules of this namespace.
pub fn rules() -> io::Result<Vec<FoundRule>> {
    let mut found = Vec::new();
    for family in Family::BOTH {
        found.extend(rule_messages(family)?.iter().map(|message| found_rule(family, message)));
    }
    Ok(found)
}

/// Removes this program's rules with priorities in `priorities`. Rules of other programs stay.
pub fn remove_rules(priorities: std::ops::Range<u32>) -> io::Result<()> {
    remove_rules_but(priorities, |_| false)
}

/// Removes rules like [`remove_rules`], but keeps the rules for which `keep` returns true.
pub fn remove_rules_but(
    priorities: std::ops::Range<u32>,
    keep: impl Fn(&FoundRule) -> bool,
) -> io::Result<()> {
    for family in Family::BOTH {
        for message in rule_messages(family)? {
            let found = found_rule(family, &message);
            if found.ours && priorities.contains(&found.priority) && !keep(&found) {
                gone(socket::order(Message::DelRule(message), 0))?;
            }
        }
    }
    Ok(())
}

fn rule_messages(family: Family) -> io::Result<Vec<RuleMessage>> {
    let mut request = RuleMessage::default();
    request.header.family = family.kernel();
    let answers = socket::dump(Message::GetRule(request))?;
    let rules = answers.into_iter().filter_map(|answer| match answer {
        Message::NewRule(message) => Some(message),
        _ => None,
    });
    Ok(rules.collect())
}

fn found_rule(family: Family, message: &RuleMessage) -> FoundRule {
    let table = u32::from(message.header.table);
    let mut found = FoundRule { family, priority: 0, mark: None, table, ours: false };
    let (mut mark, mut mask) = (None, u32::MAX);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => found.priority = *priority,
            RuleAttribute::Table(table) => found.table = *table,
            RuleAttribute::FwMark(value) => mark = Some(*value),
            RuleAttribute::FwMask(bits) => mask = *bits,
            RuleAttribute::Protocol(protocol) => {
                found.ours = *protocol == RouteProtocol::Other(OURS);
            }
            _ => {}
        }
    }
    FoundRule { mark: mark.map(|mark| (mark, mask)), ..found }
}

/// The target of a table's default route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultRoute {
    /// A route through the interface with this index to the next router. Without a router
    /// (`None`), packets go directly to their destination on the interface's own network.
    Out(u32, Option<IpAddr>),
    /// No target: an `unreachable` route, so that senders get an error. It is the last resort,
    /// because any other route of the table has a smaller metric.
    Nowhere,
}

/// Sets the default route of `table` (256 or more). It replaces the table's default route of the
/// same kind, [`DefaultRoute::Out`] or [`DefaultRoute::Nowhere`]. A route of the other kind stays.
pub fn set_default(family: Family, table: u32, way: DefaultRoute) -> io::Result<()> {
    let mut message = RouteMessage::default();
    message.header.address_family = family.kernel();
    message.header.protocol = RouteProtocol::Other(OURS);
    message.header.scope = RouteScope::Universe;
    message.attributes.push(RouteAttribute::Table(table));
    match way {
        DefaultRoute::Out(oif, gateway) => {
            message.header.kind = RouteType::Unicast;
            if gateway.is_none() && family == Family::Four {
                message.header.scope = RouteScope::Link;
            }
            message.attributes.push(RouteAttribute::Oif(oif));
            message.attributes.extend(gateway.map(|ip| RouteAttribute::Gateway(ip.into())));
            message.attributes.push(RouteAttribute::Priority(1));
        }
        DefaultRoute::Nowhere => {
            message.header.kind = RouteType::Unreachable;
            message.attributes.push(RouteAttribute::Priority(LAST));
        }
    }
    socket::order(Message::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
}

/// A route that exists in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundRoute {
    /// IP version of the route's packets.
    pub family: Family,
    /// Identifier of the table that contains the route.
    pub table: u32,
    /// Target of the route.
    pub way: DefaultRoute,
    /// True if the route has the protocol number [`OURS`].
    pub ours: bool,
}

/// Lists the routes of the tables in `tables`.
pub fn routes_in(tables: std::ops::Range<u32>) -> io::Result<Vec<FoundRoute>> {
    let mut found = Vec::new();
    for family in Family::BOTH {
        for message in route_messages(family)? {
            let (table, way, ours) = (its_table(&message), its_way(&message), is_ours(&message));
            if tables.contains(&table) {
                found.push(FoundRoute { family, table, way, ours });
            }
        }
    }
    Ok(found)
}

/// Removes this program's default routes from `table`, except the `unreachable` route of last
/// resort.
pub fn remove_ways_out(family: Family, table: u32) -> io::Result<()> {
    for message in route_messages(family)? {
        let leads_out = is_ours(&message)
            && its_table(&message) == table
            && its_way(&message) != DefaultRoute::Nowhere;
        if leads_out {
            gone(socket::order(Message::DelRoute(message), 0))?;
        }
    }
    Ok(())
}

/// Returns whether a route in the main table, other than a default route, leads to `ip`.
pub fn leads_directly(ip: IpAddr) -> io::Result<bool> {
    let family = Family::of(ip);
    let contains = |message: &RouteMessage| {
        let len = message.header.destination_prefix_length;
        len > 0 && destination(message).is_some_and(|to| Prefix { ip: to, len }.contains(ip))
    };
    let messages = route_messages(family)?;
    Ok(messages.iter().any(|message| its_table(message) == MAIN && contains(message)))
}

/// Removes this program's routes from the tables in `tables`.
pub fn remove_routes(tables: std::ops::Range<u32>) -> io::Result<()> {
    remove_routes_but(tables, |_| false)
}

/// Removes routes like [`remove_routes`], but keeps the routes of tables for which `keep` returns
/// true.
pub fn remove_routes_but(
    tables: std::ops::Range<u32>,
    keep: impl Fn(u32) -> bool,
) -> io::Result<()> {
    for family in Family::BOTH {
        for message in route_messages(family)? {
            let table = its_table(&message);
            if is_ours(&message) && tables.contains(&table) && !keep(table) {
                gone(socket::order(Message::DelRoute(message), 0))?;
            }
        }
    }
    Ok(())
}

fn route_messages(family: Family) -> io::Result<Vec<RouteMessage>> {
    let mut request = RouteMessage::default();
    request.header.address_family = family.kernel();
    let answers = socket::dump(Message::GetRoute(request))?;
    let routes = answers.into_iter().filter_map(|answer| match answer {
        Message::NewRoute(message) => Some(message),
        _ => None,
    });
    Ok(routes.collect())
}

fn destination(message: &RouteMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some(IpAddr::from(*ip)),
        RouteAttribute::Destination(RouteAddress::Inet6(ip)) => Some(IpAddr::from(*ip)),
        _ => None,
    })
}

fn its_way(message: &RouteMessage) -> DefaultRoute {
    let (mut oif, mut gateway) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => oif = Some(*index),
            RouteAttribute::Gateway(RouteAddress::Inet(ip)) => gateway = Some(IpAddr::from(*ip)),
            RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => gateway = Some(IpAddr::from(*ip)),
            _ => {}
        }
    }
    let leads_out = message.header.kind == RouteType::Unicast;
    oif.filter(|_| leads_out).map_or(DefaultRoute::Nowhere, |oif| DefaultRoute::Out(oif, gateway))
}

pub(super) fn its_table(message: &RouteMessage) -> u32 {
    let attribute = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    attribute.unwrap_or(message.header.table.into())
}

fn is_ours(message: &RouteMessage) -> bool {
    message.header.protocol == RouteProtocol::Other(OURS)
}

/// Adds a virtual Ethernet pair. The interface `here` is in this namespace, and the interface
/// `there` is in `namespace`. Both have the MTU `mtu` in bytes.
///
/// # Errors
/// `EEXIST` if a name is already used.
pub fn add_cable(here: &str, there: &str, namespace: BorrowedFd<'_>, mtu: u32) -> io::Result<()> {
    let mut peer = LinkMessage::default();
    peer.attributes = vec![
        LinkAttribute::IfName(there.to_owned()),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::NetNsFd(namespace.as_raw_fd()),
    ];
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(here.to_owned()),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]),
    ];
    socket::order(Message::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
}

/// Removes the interface `index`; it is not an error if it no longer exists.
pub fn remove_link(index: u32) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    gone(socket::order(Message::DelLink(message), 0))
}

/// Converts the `result` of a removal: the error that the object no longer exists becomes success.
/// Returns all other results unchanged.
fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV | libc::ENOENT)) =>
        {
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::namespace::Namespace;
    use crate::netlink::{configure, link_named};
    use crate::tun::Tun;

    /// Runs `work` in a new namespace. If no namespace can be created, prints a note and passes.
    fn alone(work: impl FnOnce() + Send) {
        let outcome = Namespace::new().and_then(|namespace| {
            namespace.run(|| {
                work();
                Ok(())
            })
        });
        if let Err(error) = outcome {
            println!("skipped: {error}");
        }
    }

    #[test]
    fn our_rules_are_told_from_others_and_removed_alone() {
        alone(|| {
            let before = rules().unwrap();
            assert!(before.iter().all(|rule| !rule.ours));
            for family in Family::BOTH {
                let (table, mark) = (0xab_0001, Some((0xab_0001, 0xffff_ffff)));
                let (from, only_specific) = (None, false);
                let rule = Rule { family, priority: 1001, mark, from, table, only_specific };
                for _ in 0..2 {
                    add_rule(&rule).unwrap();
                }
                let main = Rule { table: 254, only_specific: true, ..rule.clone() };
                add_rule(&Rule { priority: 1000, ..main }).unwrap();
                add_rule(&Rule { priority: 2000, from: Some("lo".into()), mark: None, ..rule })
                    .unwrap();
            }
            let ours: Vec<_> = rules().unwrap().into_iter().filter(|rule| rule.ours).collect();
            assert_eq!(ours.len(), 6, "the same twice is one");
            assert!(ours.iter().any(|rule| (rule.priority, rule.table) == (1001, 0xab_0001)));
            remove_rules_but(1000..1010, |rule| rule.table == 254).unwrap();
            assert_eq!(rules().unwrap().len(), before.len() + 4);
            remove_rules(1000..1010).unwrap();
            remove_rules(1000..1010).unwrap();
            assert_eq!(rules().unwrap().len(), before.len() + 2);
        });
    }

    #[test]
    fn a_table_has_one_way_out_and_a_last_resort() {
        alone(|| {
            let tun = Tun::create("wide").unwrap();
            configure::set_up(tun.index(), true).unwrap();
            for family in Family::BOTH {
                set_default(family, 0xab_0001, DefaultRoute::Nowhere).unwrap();
                for _ in 0..2 {
                    set_default(family, 0xab_0001, DefaultRoute::Out(tun.index(), None)).unwrap();
                }
            }
            let tables = 0xab_0000..0xab_0100;
            let found = routes_in(tables.clone()).unwrap();
            assert!(found.len() == 4 && found.iter().all(|it| it.ours && it.table == 0xab_0001));
            set_default(Family::Six, 0xab_0002, DefaultRoute::Nowhere).unwrap();
            remove_routes_but(tables.clone(), |table| table == 0xab_0001).unwrap();
            assert_eq!(routes_in(tables.clone()).unwrap(), found);
            drop(tun);
            assert_eq!(routes_in(tables.clone()).unwrap().len(), 2, "nothing leads out any more");
            remove_routes(tables.clone()).unwrap();
            assert_eq!(routes_in(tables).unwrap(), []);
        });
    }

    #[test]
    fn a_cable_joins_two_namespaces_and_goes_with_one_end() {
        alone(|| {
            let there = Namespace::new().unwrap();
            add_cable("here0", "there0", there.as_fd(), 1400).unwrap();
            let link = link_named("here0").unwrap().unwrap();
            assert_eq!(link.mtu, 1400);
            assert!(there.run(|| link_named("there0")).unwrap().is_some());
            remove_link(link.index).unwrap();
            remove_link(link.index).unwrap();
            assert!(there.run(|| link_named("there0")).unwrap().is_none());
        });
    }
}
