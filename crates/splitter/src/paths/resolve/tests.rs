//! Tests on loopback, and in a network namespace made for them.

use std::io;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anabranch_os::namespace::Namespace;
use anabranch_os::tun::Tun;

use super::*;

fn specs(texts: &[&str]) -> Vec<PathSpec> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn resolved(texts: &[&str], server: &str) -> Result<Vec<Egress>, PathError> {
    resolve(&specs(texts), &[server.parse().unwrap()], None, false)
}

fn error(texts: &[&str], server: &str) -> String {
    resolved(texts, server).unwrap_err().to_string()
}

#[test]
fn loopback_addresses_that_are_not_listed_are_paths_of_their_own() {
    let ways =
        resolved(&["a=addr:127.0.0.2", "b=addr:127.0.0.3", "c=ports:4"], "127.0.0.1:9").unwrap();
    assert!(ways.iter().all(|way| way.device.as_deref() == Some("lo") && way.mtu.unwrap() > 1500));
    assert_eq!(ways[1].source, Some("127.0.0.3".parse().unwrap()));
    assert_eq!((ways[2].source, ways[2].ports), (None, 4));
    assert!(ways.iter().all(|way| way.note.is_none()));
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let text = error(&["a=if:nowhere0"], "127.0.0.1:9");
    assert!(text.starts_with("path 'a': there is no interface 'nowhere0'; there are "), "{text}");
    assert!(text.contains("lo"), "{text}");
}

#[test]
fn an_address_of_another_machine_is_refused() {
    let text = error(&["a=addr:192.0.2.7"], "127.0.0.1:9");
    assert_eq!(
        text,
        "path 'a': 192.0.2.7 is not an address of this machine: \
                      'ip address' lists this machine's addresses"
    );
}

#[test]
fn source_and_server_must_be_of_one_family() {
    let text = error(&["a=addr:127.0.0.2"], "[::1]:9");
    assert_eq!(
        text,
        "path 'a': 127.0.0.2 cannot reach the server ::1, because one is IPv4 and the other \
         IPv6: use addresses of the same kind"
    );
}

#[test]
fn the_next_address_of_the_server_is_tried_where_the_first_does_not_suit() {
    let servers = ["[::1]:9".parse().unwrap(), "127.0.0.1:9".parse().unwrap()];
    let ways = resolve(&specs(&["a=addr:127.0.0.2"]), &servers, None, false).unwrap();
    assert_eq!(ways[0].server, servers[1]);
}

#[test]
fn one_egress_for_two_paths_is_refused_unless_asked_for() {
    let same = ["a=addr:127.0.0.2", "b=if:lo,addr:127.0.0.2"];
    assert!(
        error(&same, "127.0.0.1:9").starts_with("path 'b': its packets leave by the same"),
        "two names, one interface, one address"
    );
    let server = "127.0.0.1:9".parse().unwrap();
    assert_eq!(resolve(&specs(&same), &[server], None, true).unwrap().len(), 2);
    assert!(resolved(&["a=ports:2", "b=ports:3"], "127.0.0.1:9").is_err(), "ports count too");
}

#[test]
fn a_link_local_server_needs_an_interface() {
    assert!(
        error(&["a=ports:1"], "[fe80::1]:9")
            .contains("write after it the interface of this machine")
    );
    assert!(error(&["a=if:lo"], "[fe80::1%4000]:9").contains("not on the network of 'lo'"));
}

/// Runs `work` in a namespace with three interfaces. `t0` (10.1.0.2) has the default route. `t1`
/// (10.2.0.2) and the Ethernet interface `v0` (10.3.0.2) have only the routes of their own
/// networks. If the namespace cannot be made, prints the reason and returns, so that the test
/// passes.
fn with_three_interfaces(work: impl FnOnce() + Send) {
    let outcome = Namespace::new().and_then(|namespace| {
        namespace.run(|| {
            let tuns = [Tun::create("t0")?, Tun::create("t1")?];
            ip("link set lo up")?;
            ip("link add v0 type veth peer name v1")?;
            for (number, name) in [(1, "t0"), (2, "t1"), (3, "v0")] {
                ip(&format!("link set {name} up"))?;
                ip(&format!("address add 10.{number}.0.2/24 dev {name}"))?;
            }
            ip("link set v1 up")?;
            ip("address add fd01::2/64 dev t0 nodad")?;
            ip("route add default via 10.1.0.1 dev t0")?;
            work();
            drop(tuns);
            Ok(())
        })
    });
    if let Err(error) = outcome {
        eprintln!("skipped: no namespace with interfaces here ({error})");
    }
}

/// Waits for the link-local route of `device`, which the kernel adds up to a second after the
/// carrier is up.
fn wait_for_the_local_route_of(device: &str) {
    let found = || {
        let show = ["-6", "route", "show", "fe80::/64", "dev", device];
        let output = Command::new("ip").args(show).output().unwrap();
        !output.stdout.is_empty()
    };
    let end = Instant::now() + Duration::from_secs(10);
    while !found() && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
}

fn ip(arguments: &str) -> io::Result<()> {
    let status = Command::new("ip").args(arguments.split(' ')).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("ip {arguments}"))) }
}

const FAR: &str = "198.51.100.1:9";

#[test]
fn each_kind_of_path_is_bound_to_the_interface_that_it_leaves_by() {
    with_three_interfaces(|| {
        ip("route add 198.51.100.0/24 via 10.1.0.1 dev t0 mtu 1300").unwrap();
        ip("route add 198.51.100.0/24 via 10.3.0.1 dev v0 metric 900").unwrap();
        let ways = resolved(&["a=ports:4", "b=if:v0"], FAR).unwrap();
        assert_eq!((ways[0].device.as_deref(), ways[0].mtu), (Some("t0"), Some(1300)));
        assert_eq!((ways[1].device.as_deref(), ways[1].mtu), (Some("v0"), Some(1500)));
        assert_eq!(ways[1].gateway, Some("10.3.0.1".parse().unwrap()));
        assert_eq!((ways[1].source, ways[1].sends_as), (None, Some("10.3.0.2".parse().unwrap())));
        assert!(error(&["a=ports:4", "b=if:t0"], FAR).contains("as those of path 'a'"));
    });
}

#[test]
fn an_interface_without_a_route_is_refused_where_neighbours_must_answer() {
    with_three_interfaces(|| {
        assert!(error(&["a=if:v0"], FAR).starts_with("path 'a': 'v0' has no route to"));
        let ways = resolved(&["a=if:t1"], FAR).unwrap();
        assert!(ways[0].note.as_ref().unwrap().contains("'t1' has no route to the server"));
        ip("link set v0 down").unwrap();
        assert_eq!(
            error(&["a=if:v0"], FAR),
            "path 'a': the interface 'v0' is down: connect it, or remove the path"
        );
        assert_eq!(
            error(&["a=addr:10.3.0.2"], FAR),
            "path 'a': the interface 'v0' is down: connect it, or remove the path"
        );
    });
}

#[test]
fn a_route_that_only_a_rule_for_the_interfaces_address_gives_is_found() {
    with_three_interfaces(|| {
        ip("route add default via 10.3.0.1 dev v0 table 100").unwrap();
        let ways = resolved(&["a=addr:10.3.0.2"], FAR).unwrap();
        assert_eq!(ways[0].device.as_deref(), Some("t0"), "Linux lets it out there");
        let note = ways[0].note.as_ref().unwrap();
        assert!(note.contains("of the interface 'v0', leave by the interface 't0'"), "{note}");
        ip("rule add from 10.3.0.2 lookup 100").unwrap();
        for path in ["a=addr:10.3.0.2", "a=if:v0"] {
            let ways = resolved(&[path], FAR).unwrap();
            let source = Some("10.3.0.2".parse().unwrap());
            assert_eq!((ways[0].device.as_deref(), ways[0].source), (Some("v0"), source), "{path}");
            assert_eq!(ways[0].note, None, "{path}");
        }
    });
}

#[test]
fn the_mark_decides_the_way_as_it_will_for_the_sockets() {
    with_three_interfaces(|| {
        ip("route add default via 10.3.0.1 dev v0 table 100").unwrap();
        ip("rule add fwmark 7 lookup 100").unwrap();
        let marked = |mark| resolve(&specs(&["a=ports:1"]), &[FAR.parse().unwrap()], mark, false);
        assert_eq!(marked(Some(7)).unwrap()[0].device.as_deref(), Some("v0"));
        assert_eq!(marked(None).unwrap()[0].device.as_deref(), Some("t0"));
    });
}

#[test]
fn a_full_tunnel_that_comes_up_later_moves_no_path() {
    with_three_interfaces(|| {
        let specs = specs(&["a=ports:2", "b=addr:10.1.0.2"]);
        let before = resolve(&specs, &[FAR.parse().unwrap()], None, true).unwrap();
        assert!(before.iter().all(|way| way.device.as_deref() == Some("t0")));
        // As with wg-quick, all packets without a mark use a table that leads into the tunnel.
        ip("route add default dev t1 table 51820").unwrap();
        ip("rule add not fwmark 51820 lookup 51820").unwrap();
        let afresh = resolve(&specs, &[FAR.parse().unwrap()], None, true).unwrap();
        assert!(afresh.iter().all(|way| way.device.as_deref() == Some("t1")), "the trap");
        for (way, found) in before.iter().zip(again(&specs, &before, None).unwrap()) {
            assert!(way.note.as_ref().unwrap().contains("leave by the tunnel 't0'"));
            let kept = Egress { note: None, ..way.clone() };
            assert_eq!(found.unwrap(), kept, "the same way, now chosen");
        }
        ip("link set t0 down").unwrap();
        let looks = again(&specs, &before, None).unwrap();
        let text = looks.into_iter().next().unwrap().unwrap_err().to_string();
        assert_eq!(text, "path 'a': the interface 't0' is down: connect it, or remove the path");
    });
}

#[test]
fn a_server_on_this_machine_is_not_reached_by_other_interfaces() {
    with_three_interfaces(|| {
        let ways = resolved(&["a=addr:10.3.0.2"], "10.1.0.2:9").unwrap();
        assert_eq!(ways[0].device, None, "bound to lo, the kernel finds no route");
        assert!(error(&["a=if:v0"], "10.1.0.2:9").contains("belongs to this machine itself"));
        assert!(error(&["a=if:v0"], "127.0.0.1:9").contains("belongs to this machine itself"));
    });
}

#[test]
fn loopback_leads_to_no_other_machine() {
    with_three_interfaces(|| {
        for path in ["a=if:lo", "a=addr:127.0.0.2", "a=if:lo,addr:127.0.0.2"] {
            assert!(error(&[path], FAR).contains("reaches only this machine itself"), "{path}");
        }
        // The path is not bound, because the kernel's route to this address always leads to this
        // machine.
        assert_eq!(resolved(&["a=if:lo"], "10.1.0.2:9").unwrap()[0].device, None);
    });
}

#[test]
fn ipv6_link_local_servers_are_reached_by_the_paths_own_link() {
    with_three_interfaces(|| {
        wait_for_the_local_route_of("v0");
        let ways = resolved(&["a=if:v0"], "[fe80::9]:9").unwrap();
        let zone = ways[0].index;
        assert_eq!(ways[0].device.as_deref(), Some("v0"));
        assert_eq!(ways[0].remote(ways[0].server), format!("[fe80::9%{zone}]:9").parse().unwrap());
        let ways = resolved(&["a=ports:1"], &format!("[fe80::9%{zone}]:9")).unwrap();
        assert_eq!(ways[0].device.as_deref(), Some("v0"));
        assert!(error(&["a=if:t0"], &format!("[fe80::9%{zone}]:9")).contains("not on the network"));
        let ways = resolved(&["a=addr:fd01::2"], "[fd01::1]:9").unwrap();
        assert_eq!(ways[0].device.as_deref(), Some("t0"));
    });
}
