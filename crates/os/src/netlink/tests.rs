//! Tests against the kernel, in a network namespace of their own.

use std::net::IpAddr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::configure::{self, NewRoute};
use super::*;
use crate::namespace::Namespace;
use crate::tun::Tun;

/// Runs `work` in a new namespace. Without the privilege to create one, prints a note and passes.
fn in_namespace(work: impl FnOnce() + Send) {
    match Namespace::new() {
        Ok(namespace) => namespace
            .run(|| {
                work();
                Ok(())
            })
            .unwrap(),
        Err(error) => eprintln!("skipped: no network namespace here ({error})"),
    }
}

/// Runs `work` in a new namespace with a TUN interface, because loopback ignores gateways. The
/// interface is up and has an IPv4 and an IPv6 address.
fn with_interface(work: impl FnOnce(&Tun) + Send) {
    in_namespace(|| match Tun::create("t0") {
        Ok(tun) => {
            configure::set_up(tun.index(), true).unwrap();
            configure::add_address(tun.index(), prefix("10.1.2.3/24")).unwrap();
            configure::add_address(tun.index(), prefix("fd01::3/64")).unwrap();
            work(&tun);
        }
        Err(error) => eprintln!("skipped: no TUN interface here ({error})"),
    });
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn route(tun: &Tun, dst: &str, gateway: &str, metric: u32) -> NewRoute {
    let (oif, gateway) = (tun.index(), Some(ip(gateway)));
    NewRoute {
        dst: prefix(dst),
        oif,
        gateway,
        prefsrc: None,
        metric: Some(metric),
        congestion_control: None,
    }
}

fn wait_for(monitor: &mut Monitor, wanted: impl Fn(&Change) -> bool) -> Vec<Change> {
    let mut seen = Vec::new();
    while !seen.iter().any(&wanted) {
        let mut fds = [PollFd::new(monitor, PollFlags::IN)];
        let ready = poll(&mut fds, Some(&Timespec { tv_sec: 5, tv_nsec: 0 })).unwrap();
        assert_ne!(ready, 0, "no such change within 5 s, only {seen:?}");
        seen.extend(monitor.drain().unwrap());
    }
    seen
}

#[test]
fn a_new_namespace_has_one_link_that_is_down() {
    in_namespace(|| {
        let links = links().unwrap();
        assert_eq!(links.len(), 1);
        assert_eq!((links[0].name.as_str(), links[0].kind), ("lo", LinkKind::Loopback));
        assert!(!links[0].up && !links[0].running);
        assert_eq!(addresses().unwrap(), []);
    });
}

#[test]
fn settings_are_seen_by_queries() {
    with_interface(|tun| {
        configure::set_mtu(tun.index(), 9000).unwrap();
        let link = link_named("t0").unwrap().unwrap();
        assert_eq!((link.index, link.mtu, link.kind), (tun.index(), 9000, LinkKind::Bare));
        assert!(link.up && link.running);
        let held = addresses().unwrap();
        for (address, prefix_len) in [("10.1.2.3", 24), ("fd01::3", 64)] {
            assert!(held.contains(&Address { index: link.index, ip: ip(address), prefix_len }));
        }
    });
}

#[test]
fn an_order_that_the_kernel_refuses_is_an_error() {
    in_namespace(|| {
        let error = configure::set_mtu(77, 1500).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    });
}

#[test]
fn the_route_with_the_smaller_metric_is_found() {
    with_interface(|tun| {
        configure::add_route(route(tun, "10.9.0.0/16", "10.1.2.77", 200)).unwrap();
        configure::add_route(route(tun, "10.9.0.0/16", "10.1.2.99", 100)).unwrap();
        configure::set_mtu(tun.index(), 1400).unwrap();
        let found = route_to(ip("10.9.1.1"), None, None, None).unwrap();
        assert_eq!((found.oif, found.gateway), (tun.index(), Some(ip("10.1.2.99"))));
        assert_eq!((found.prefsrc, found.mtu), (Some(ip("10.1.2.3")), 1400));
        assert!(!found.assumed);
    });
}

#[test]
fn ipv6_routes_are_found_with_their_gateway() {
    with_interface(|tun| {
        configure::add_route(route(tun, "fd09::/32", "fd01::99", 100)).unwrap();
        let oif = Some(tun.index());
        let found = route_to(ip("fd09::1"), Some(ip("fd01::3")), oif, Some(7)).unwrap();
        assert_eq!((found.oif, found.gateway), (tun.index(), Some(ip("fd01::99"))));
        assert_eq!(found.mtu, 1500);
    });
}

#[test]
fn each_cause_of_a_failed_lookup_has_its_own_error() {
    with_interface(|_| {
        for dst in ["192.0.2.1", "2001:db8::1"] {
            let error = route_to(ip(dst), None, None, None).unwrap_err();
            assert!(matches!(error, RouteError::NoRoute), "{dst}: {error:?}");
        }
        let error = route_to(ip("10.1.2.5"), Some(ip("192.0.2.9")), None, None).unwrap_err();
        assert!(matches!(error, RouteError::ForeignSource), "{error:?}");
    });
}

#[test]
fn a_bound_interface_without_a_route_is_only_assumed_to_lead_there() {
    with_interface(|tun| {
        let found = route_to(ip("192.0.2.1"), None, Some(tun.index()), None).unwrap();
        assert!(found.assumed && found.gateway.is_none());
        configure::add_route(route(tun, "192.0.2.0/24", "10.1.2.77", 9)).unwrap();
        let found = route_to(ip("192.0.2.1"), None, Some(tun.index()), None).unwrap();
        assert!(!found.assumed);
    });
}

#[test]
fn the_monitor_tells_of_links_addresses_and_routes() {
    in_namespace(|| {
        let mut monitor = Monitor::open().unwrap();
        assert_eq!(monitor.drain().unwrap(), []);
        let Ok(tun) = Tun::create("t0") else { return eprintln!("skipped: no TUN interface here") };
        let index = tun.index();
        configure::set_up(index, true).unwrap();
        wait_for(&mut monitor, |change| matches!(change, Change::Link(link) if link.up));
        configure::add_address(index, prefix("10.1.2.3/24")).unwrap();
        let address = Address { index, ip: ip("10.1.2.3"), prefix_len: 24 };
        wait_for(&mut monitor, |change| *change == Change::Address(address));
        configure::add_route(route(&tun, "10.9.0.0/16", "10.1.2.77", 5)).unwrap();
        let main = Change::Route { oif: Some(index), table: 254 };
        wait_for(&mut monitor, |change| *change == main);
        let (family, table) = (policy::Family::Six, 0xab_0001);
        policy::set_default(family, table, policy::DefaultRoute::Nowhere).unwrap();
        wait_for(&mut monitor, |change| matches!(change, Change::Route { table: 0xab_0001, .. }));
        let (mark, from) = (Some((table, u32::MAX)), None);
        let rule = policy::Rule { family, priority: 9, mark, from, table, only_specific: false };
        policy::add_rule(&rule).unwrap();
        wait_for(&mut monitor, |change| *change == Change::Rule);
        configure::set_up(index, false).unwrap();
        wait_for(&mut monitor, |change| matches!(change, Change::Link(link) if !link.up));
        drop(tun);
        let seen = wait_for(&mut monitor, |change| *change == Change::LinkGone(index));
        let gone = Change::AddressGone { index, ip: address.ip };
        assert!(seen.contains(&gone), "{seen:?}");
    });
}

#[test]
fn a_prefix_is_read_strictly_and_masked() {
    assert_eq!(prefix("10.1.2.3/20").network(), prefix("10.1.0.0/20"));
    assert_eq!(prefix("10.1.2.3/0").network(), prefix("0.0.0.0/0"));
    assert_eq!(prefix("fd00:1::5/64").network(), prefix("fd00:1::/64"));
    assert_eq!(prefix("fd00::1"), prefix("fd00::1/128"));
    for bad in ["10.0.0.1/33", "10.0.0/8", "fd00::/129", "10.0.0.1/", "/8", ""] {
        assert!(bad.parse::<Prefix>().is_err(), "{bad}");
    }
}
