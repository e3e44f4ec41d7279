//! Tests of the setup in a namespace: what the kernel lists while a splitter runs, and after it
//! has ended or was killed.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::time::{Duration, Instant};

use anabranch_os::namespace::Namespace;
use anabranch_os::netlink::policy::{self, Family};
use anabranch_os::netlink::{self, Prefix, configure};
use anabranch_os::tun::Tun;

use super::*;

/// Timeout for an expected state on a busy machine. The next constant is the polling interval.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(30);

/// Runs `work` in a namespace with two uplinks, p0 and p1, each with a router. If a namespace or
/// `nft` is not available, prints the reason and returns, so that the test passes.
fn machine(work: impl FnOnce(&[Tun; 2]) + Send) {
    if super::nft::find().is_none() || !std::path::Path::new("/run").is_dir() {
        return println!("skipped: no nft");
    }
    let outcome = Namespace::new().and_then(|namespace| {
        namespace.run(|| {
            configure::set_up(1, true)?;
            let uplinks = [uplink(0)?, uplink(1)?];
            work(&uplinks);
            Ok(())
        })
    });
    if let Err(error) = outcome {
        println!("skipped: {error}");
    }
}

/// Runs `work` as [`machine`] does, and checks that the machine's state is then as before.
fn undone(work: impl FnOnce(&[Tun; 2]) + Send) {
    machine(|uplinks| {
        let before = settled();
        work(uplinks);
        becomes(&before, state);
    });
}

/// Waits until `look` returns `wanted`: addresses and routes follow a change of an interface with
/// a delay.
fn becomes<T: PartialEq + std::fmt::Debug>(wanted: &T, look: impl Fn() -> T) {
    let end = Instant::now() + PATIENCE;
    loop {
        let found = look();
        if found == *wanted {
            return;
        }
        assert!(Instant::now() < end, "{found:?} instead of {wanted:?}");
        std::thread::sleep(PAUSE);
    }
}

/// Sets up the routes and rules of a splitter, and leaves them in place, as after SIGKILL. Returns
/// the splitter's slot.
fn killed(uplinks: &[Tun; 2]) -> Slot {
    let (steering, tun, _) = Steering::raise(plan(uplinks, None)).unwrap();
    let slot = steering.plan().slot;
    steering.kill();
    drop(tun);
    slot
}

fn uplink(number: u8) -> std::io::Result<Tun> {
    let tun = Tun::create(&format!("p{number}"))?;
    configure::set_up(tun.index(), true)?;
    configure::add_address(tun.index(), Prefix { ip: [10, 77, number, 2].into(), len: 24 })?;
    Ok(tun)
}

fn exits(uplinks: &[Tun; 2]) -> Vec<Exit> {
    let exit = |index: usize| {
        let gateway: IpAddr = [10, 77, index as u8, 1].into();
        let out = PathExit { oif: uplinks[index].index(), gateway: Some(gateway), source: None };
        Exit { index, device: format!("p{index}"), four: Some(out), six: None }
    };
    vec![exit(0), exit(1)]
}

fn plan(uplinks: &[Tun; 2], netns: Option<&str>) -> Plan {
    let request = Request {
        tun: "any0".into(),
        netns: netns.map(str::to_owned),
        route: true,
        ports: Ports::with(&[]),
        dns: vec![[10, 77, 0, 53].into()],
        inner: None,
    };
    Plan::look(request, exits(uplinks), 1400, None).unwrap()
}

/// Returns everything that a splitter could leave behind, as the kernel lists it.
fn state() -> String {
    let show = |words: &[&str]| {
        let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    [
        show(&["nft", "--stateless", "list", "ruleset"]),
        show(&["ip", "rule"]),
        show(&["ip", "-6", "rule"]),
        show(&["ip", "route", "show", "table", "all"]),
        show(&["ip", "-6", "route", "show", "table", "all"]),
        show(&["ip", "-o", "link"]),
        ["all/src_valid_mark", "p0/forwarding", "p1/forwarding", "all/forwarding"]
            .map(|name| sysctl::value(&format!("ipv4/conf/{name}")).unwrap_or_default())
            .join(" "),
        sysctl::value("ipv6/conf/all/forwarding").unwrap(),
    ]
    .join("\n")
}

/// Returns the routes in a table.
fn ways_of(table: u32) -> Vec<(Family, policy::DefaultRoute)> {
    let found = policy::routes_in(table..table + 1).unwrap();
    found.iter().map(|route| (route.family, route.way)).collect()
}

fn run(words: &str) {
    let mut words = words.split(' ');
    let done = Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(done.success());
}

/// Checks that no file has the name of the namespace.
fn assert_no_trace(name: &str) {
    assert!(!named::file(name).exists());
    assert!(!std::path::Path::new("/etc/netns").join(name).exists());
}

/// Returns the state once it has been unchanged for three polling intervals.
fn settled() -> String {
    let (end, mut last, mut same) = (Instant::now() + PATIENCE, state(), 0);
    while same < 3 {
        assert!(Instant::now() < end, "it changes all the time: {last}");
        std::thread::sleep(PAUSE);
        let now = state();
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    last
}

#[test]
fn the_whole_machine_is_steered_and_set_free_again() {
    undone(|uplinks| {
        let (steering, tun, warnings) = Steering::raise(plan(uplinks, None)).unwrap();
        assert_eq!(warnings, [] as [String; 0]);
        let slot = steering.plan().slot;
        let link = netlink::link_named("any0").unwrap().unwrap();
        assert_eq!((link.mtu, link.up, link.index), (1400, true, tun.index()));
        let during = settled();
        for text in ["numgen inc mod 2", "masquerade", "type route hook output"] {
            assert!(during.contains(text), "{text} in {during}");
        }
        let ways = ways_of(slot.path(1));
        let router = Some([10, 77, 1, 1].into());
        assert!(
            ways.contains(&(Family::Four, policy::DefaultRoute::Out(uplinks[1].index(), router)))
        );
        assert!(ways.contains(&(Family::Six, policy::DefaultRoute::Nowhere)), "no IPv6, no leak");
        drop(tun);
        steering.lower().unwrap();
    });
}

#[test]
fn a_namespace_is_made_and_everything_of_it_goes() {
    undone(|uplinks| {
        let name = format!("anabranch-steer-{}", std::process::id());
        let (steering, tun, _) = Steering::raise(plan(uplinks, Some(&name))).unwrap();
        assert_eq!(netlink::link_named("any0").unwrap(), None, "it lives elsewhere");
        let inside = Namespace::open(&named::file(&name)).unwrap();
        let rules = inside.run(|| Ok(state())).unwrap();
        for text in ["any0", "uplink", "default via 198.18.171."] {
            assert!(rules.contains(text), "{text} in {rules}");
        }
        let made = steering.plan().resolver().unwrap();
        assert_eq!(std::fs::read_to_string(made.path).unwrap(), "nameserver 10.77.0.53\n");
        assert_eq!(sysctl::value("ipv4/conf/p0/forwarding").unwrap(), "1");
        drop((tun, inside));
        steering.lower().unwrap();
        assert_no_trace(&name);
    });
}

#[test]
fn a_run_that_panics_is_undone() {
    undone(|uplinks| {
        let uplinks = AssertUnwindSafe(uplinks);
        let panicked = std::panic::catch_unwind(move || {
            let _run = Steering::raise(plan(uplinks.0, None)).unwrap();
            panic!("on purpose");
        });
        assert!(panicked.is_err());
    });
}

#[test]
fn what_a_killed_run_left_leads_nowhere_and_is_undone_by_the_next() {
    undone(|uplinks| {
        let name = format!("anabranch-killed-{}", std::process::id());
        let (steering, tun, _) = Steering::raise(plan(uplinks, Some(&name))).unwrap();
        steering.kill();
        drop(tun);
        assert!(settled().contains("numgen inc"), "it is still closed");
        let strange = Tun::create("any0").unwrap();
        let error = plan(uplinks, None).check_obstacles().unwrap_err();
        assert!(matches!(error, SteerError::Interface(_)), "{error}");
        let error = Steering::raise(plan(uplinks, None)).unwrap_err();
        assert!(matches!(error, SteerError::Interface(_)), "{error}");
        drop(strange);
        assert!(settled().contains("numgen inc"), "who cannot start opens nothing");
        plan(uplinks, Some(&name)).check_obstacles().unwrap();
        let (steering, tun, warnings) = Steering::raise(plan(uplinks, None)).unwrap();
        assert!(warnings.len() == 1 && warnings[0].contains("--tun any0"), "{warnings:?}");
        let closed = closed_state();
        steering.kill();
        drop(tun);
        assert_eq!(closed_state(), closed);
        assert_eq!(restore().unwrap(), ["any0"]);
        assert_eq!(restore().unwrap(), [] as [String; 0]);
        assert_no_trace(&name);
    });
}

/// Returns the rules that block packets after a splitter was killed.
fn closed_state() -> Vec<String> {
    let show = |words: &[&str]| {
        let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let table = show(&["nft", "list", "table", "inet", "anabranch_0"]);
    assert!(table.contains("hook"), "{table}");
    vec![table, show(&["ip", "rule"]), show(&["ip", "-6", "rule"])]
}

#[test]
fn a_start_takes_over_what_a_killed_run_left_and_sweeps_what_it_does_not_need() {
    undone(|uplinks| {
        let slot = killed(uplinks);
        let narrow = Plan { exits: exits(uplinks)[..1].to_vec(), ..plan(uplinks, None) };
        let monitor = &mut netlink::Monitor::open().unwrap();
        let (second, tun, warnings) = Steering::raise(narrow).unwrap();
        assert_eq!((second.plan().slot, warnings.len()), (slot, 1));
        let rules = monitor.drain().unwrap();
        let count = rules.iter().filter(|change| **change == netlink::Change::Rule).count();
        assert_eq!(count, 4, "two of the path that is no more, in two families");
        assert_eq!(ways_of(slot.path(1)), []);
        assert_eq!(ways_of(slot.path(0)).len(), 3);
        drop(tun);
        second.lower().unwrap();
    });
}

#[test]
fn who_cannot_start_leaves_closed_what_a_killed_run_left() {
    undone(|uplinks| {
        let slot = killed(uplinks);
        let mut lame = plan(uplinks, None);
        lame.nft = Some("/bin/false".into());
        Steering::raise(lame).unwrap_err();
        assert!(ways_of(slot.nowhere()).len() == 2 && state().contains("numgen inc mod 2"));
        assert_eq!(restore().unwrap(), ["any0"]);
    });
}

#[test]
fn what_others_take_away_is_set_again() {
    for netns in [None, Some(format!("anabranch-kept-{}", std::process::id()))] {
        machine(|uplinks| {
            let (mut steering, _tun, _) = Steering::raise(plan(uplinks, netns.as_deref())).unwrap();
            steering.keep().unwrap();
            let lines =
                |state: String| -> BTreeSet<String> { state.lines().map(str::to_owned).collect() };
            let sorted = || lines(state());
            let (slot, during) = (steering.plan().slot, lines(settled()));
            run("nft flush ruleset");
            assert!(state().contains("_guard"), "the guard stays");
            let kept = steering.keep().unwrap();
            assert!(kept.messages[0].contains("nftables") && kept.messages.len() == 1, "{kept:?}");
            policy::remove_rules(slot.priorities()).unwrap();
            policy::remove_routes_but(slot.tables(), |table| table != slot.nowhere()).unwrap();
            let kept = steering.keep().unwrap();
            assert!(kept.messages[0].contains("routing rules"), "{kept:?}");
            becomes(&during, sorted);
            assert_eq!(steering.keep().unwrap(), Upkeep::default());
            run(&format!("nft add rule inet {} addresses drop", slot.ruleset()));
            assert_eq!(steering.keep().unwrap().messages.len(), 1, "something was added");
            becomes(&during, sorted);
        });
    }
}

#[test]
fn what_cannot_be_set_again_is_shut() {
    undone(|uplinks| {
        let (mut steering, tun, _) = Steering::raise(plan(uplinks, None)).unwrap();
        steering.plan.nft = Some("/bin/false".into());
        run("nft flush ruleset");
        let error = steering.keep().unwrap_err();
        assert!(error.to_string().contains("--restore") && !error.is_misuse(), "{error}");
        drop((steering, tun));
        let far = "198.41.0.4".parse().unwrap();
        let found = netlink::route_to(far, None, None, None);
        assert!(matches!(found, Err(netlink::RouteError::NoRoute)), "{found:?}");
        let near = "10.77.0.9".parse().unwrap();
        assert!(netlink::route_to(near, None, None, None).is_ok(), "the local network");
        assert_eq!(restore().unwrap(), ["any0"]);
    });
}

#[test]
fn runs_beside_each_other_share_what_they_change_on_the_machine() {
    undone(|uplinks| {
        let name = |number| format!("anabranch-two-{number}-{}", std::process::id());
        let raise = |number| Steering::raise(plan(uplinks, Some(&name(number)))).unwrap();
        let forwards = || sysctl::value("ipv4/conf/p0/forwarding").unwrap();
        let (first, tun, _) = raise(0);
        let (second, other_tun, _) = raise(1);
        for fence in ["anabranch_0", "anabranch_1"] {
            let listed = super::nft::list(&super::nft::find().unwrap(), fence).unwrap().unwrap();
            let spares = "iifname { \"p0\", \"p1\" } oifname != \"anabranch-*\" drop";
            assert!(listed.contains(spares), "{listed}");
        }
        drop(tun);
        first.lower().unwrap();
        assert_eq!(forwards(), "1", "the other needs it");
        drop(other_tun);
        second.lower().unwrap();
    });
}

#[test]
fn strangers_are_kept_out_of_the_family_that_forwards_because_of_us() {
    machine(|uplinks| {
        let fence = |plan: Plan| {
            let (run, _tun, _) = Steering::raise(plan).unwrap();
            let nft = super::nft::find().unwrap();
            let listed = super::nft::list(&nft, &run.plan().slot.ruleset()).unwrap().unwrap();
            run.lower().unwrap();
            ["ipv4", "ipv6"].map(|family| {
                listed.lines().any(|line| line.contains(family) && line.contains("anabranch-*"))
            })
        };
        let name = format!("anabranch-lent-{}", std::process::id());
        let mut both = plan(uplinks, Some(&name));
        let out = PathExit { oif: uplinks[0].index(), gateway: None, source: None };
        both.exits[0].six = Some(out);
        assert_eq!(fence(both.clone()), [true, true]);
        let set = |name: &str| sysctl::Setting::new(name.into(), "1").set().unwrap();
        set("ipv4/conf/all/forwarding");
        assert_eq!(fence(both.clone()), [false, true], "it forwards IPv4 by itself");
        set("ipv6/conf/all/forwarding");
        assert_eq!(fence(both), [false, false]);
    });
}

#[test]
fn a_name_that_somebody_else_has_taken_since_is_left_to_them() {
    machine(|uplinks| {
        let name = format!("anabranch-owner-{}", std::process::id());
        let (run, tun, _) = Steering::raise(plan(uplinks, Some(&name))).unwrap();
        let file = run.plan().resolver().unwrap().path;
        run.kill();
        drop(tun);
        named::remove(&name).unwrap();
        let theirs = Namespace::new().unwrap();
        named::give(&name, &theirs).unwrap();
        std::fs::write(&file, "nameserver 192.0.2.1\n").unwrap();
        let error = plan(uplinks, Some(&name)).check_obstacles().unwrap_err();
        assert!(matches!(error, SteerError::Namespace(_)), "{error}");
        assert_eq!(restore().unwrap(), ["any0"]);
        assert!(named::file(&name).exists() && file.exists());
        named::remove(&name).unwrap();
        std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
    });
}

#[test]
fn what_is_there_already_and_not_ours_is_left_alone_and_told() {
    machine(|uplinks| {
        let refused = |text: &str| {
            let before = settled();
            let error = Steering::raise(plan(uplinks, None)).unwrap_err();
            assert!(error.is_misuse() && error.to_string().contains(text), "{error}");
            becomes(&before, state);
        };
        let strange = Tun::create("any0").unwrap();
        refused("an interface with this name");
        drop(strange);
        let ip = |words: &str| run(&format!("ip {words}"));
        ip("rule add fwmark 7 lookup 77 priority 1001");
        refused("a routing rule of priority 1001 already exists");
        ip("rule del priority 1001");
        ip("route add default dev p0 table 11206657");
        refused("the routing table 0xab0001 already contains a route");
        ip("route del default dev p0 table 11206657");
        let (running, _tun, _) = Steering::raise(plan(uplinks, None)).unwrap();
        refused("already uses this interface");
        running.lower().unwrap();
    });
}

#[test]
fn a_path_that_goes_leads_nowhere_and_comes_back() {
    machine(|uplinks| {
        let (mut steering, _tun, _) = Steering::raise(plan(uplinks, None)).unwrap();
        let slot = steering.plan().slot;
        let all = exits(uplinks);
        let gone = vec![all[0].clone(), Exit { four: None, ..all[1].clone() }];
        steering.follow(gone).unwrap();
        let (four, six) = (Family::Four, Family::Six);
        let nowhere = [(four, policy::DefaultRoute::Nowhere), (six, policy::DefaultRoute::Nowhere)];
        assert_eq!(ways_of(slot.path(1)), nowhere);
        assert!(!state().contains("numgen"), "one path is left to choose");
        steering.follow(all).unwrap();
        assert_eq!(ways_of(slot.path(1)).len(), 3);
        assert!(state().contains("numgen inc mod 2"));
    });
}
