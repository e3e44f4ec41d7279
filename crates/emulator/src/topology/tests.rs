//! Tests of the topology parser: valid input, and the messages for errors.

use super::*;
use crate::Expect;
use anabranch_netem::Loss;
use std::time::Duration;

const GOOD: &str = r#"
        seed = 7
        [[host]]
        name = "client"
        [[host]]
        name = "server"
        address = ["10.99.0.1/32", "fd99::1/128"]
        [[link]]
        name = "p0"
        ends = [
            { host = "client", address = ["10.77.0.2/24"], routes = ["10.99.0.1"], metric = 100 },
            { host = "server", routes = ["10.77.0.0/24"], prefsrc = ["10.99.0.1", "fd99::1"] },
        ]
        rate = "100mbit"
        delay = "10ms"
        delay_back = "20ms"
        loss = 0.0
        queue = "250kB"
        mtu = 1500
    "#;

fn mistake(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from));
    Topology::parse(&GOOD.replace(from, to), "t.toml").unwrap_err().to_string()
}

#[test]
fn a_topology_is_read_with_its_units() {
    let topology = Topology::parse(GOOD, "t.toml").unwrap();
    assert_eq!((topology.seed, topology.hosts.len()), (7, 2));
    let cable = &topology.links[0];
    assert_eq!((cable.ends[0].host, cable.ends[1].host, cable.mtu), (0, 1, 1500));
    let route = Route { to: "10.99.0.1/32".parse().unwrap(), via: None, line: 11 };
    assert_eq!(cable.ends[0].routes, [route]);
    assert_eq!(cable.forward.rate.unwrap().get(), 100_000_000);
    assert_eq!(cable.forward.delay, Duration::from_millis(10));
    assert_eq!(cable.back.delay, Duration::from_millis(20));
    assert_eq!((cable.back.queue, &cable.back.loss), (250_000, &Loss::None));
}

#[test]
fn all_hosts_tcp_is_cubic_unless_another_is_named() {
    assert_eq!(Topology::parse(GOOD, "t.toml").unwrap().tcp, TcpControl::Cubic);
    let named = GOOD.replace("seed = 7", "tcp = \"bbr\"");
    assert_eq!(Topology::parse(&named, "t.toml").unwrap().tcp, TcpControl::Bbr);
    assert!(mistake("seed = 7", "tcp = \"fast\"").contains("unknown value `fast`"));
}

#[test]
fn mistyped_keys_are_told_at_every_depth() {
    assert!(mistake("seed =", "sede =").starts_with("t.toml:2: unknown key `sede`"));
    let link = "t.toml:15: unknown key `dleay` in [link]; did you mean `delay`?";
    assert_eq!(mistake("        delay =", "dleay ="), link);
    let end = "t.toml:11: unknown key `route` in [link.ends]; did you mean `routes`?";
    assert_eq!(mistake("routes = [\"10.99.0.1\"]", "route = []"), end);
}

#[test]
fn wrong_values_are_told_with_their_line() {
    assert!(mistake("100mbit", "fast").starts_with("t.toml:14: `rate`: `fast` is not a rate"));
    assert!(
        mistake("loss = 0.0", "loss = 2").starts_with("t.toml:17: `loss`: 2 is not a probability")
    );
    assert!(mistake("10.77.0.2/24", "10.77.0/24").starts_with("t.toml:11: `10.77.0` is not"));
    assert!(
        mistake("mtu = 1500", "mtu = 500")
            .starts_with("t.toml:19: `mtu` is out of range; write 1280")
    );
    assert!(
        mistake("mtu = 1500", "mtu = -5")
            .starts_with("t.toml:19: `mtu` is out of range; write 1280")
    );
    assert!(mistake("\"100mbit\"", "0").starts_with("t.toml:14: `rate`: `0` is not a rate above"));
    assert!(mistake("\"10ms\"", "-5").starts_with("t.toml:15: `delay`: `-5` is not a time from 0"));
    assert!(mistake("\"10ms\"", "'1e18s'").starts_with(
        "t.toml:15: `delay`: `1e18s` is not a \
                                        time"
    ));
    assert!(mistake("\"250kB\"", "250").starts_with("t.toml:18: `queue`: a queue is a size"));
    assert!(mistake("\"p0\"", "\"a/b\"").starts_with("t.toml:9: `a/b` is not an interface name"));
}

#[test]
fn names_that_the_kernel_uses_are_no_links() {
    for name in ["all", "default", "lo", ".."] {
        let error = mistake("\"p0\"", &format!("\"{name}\""));
        let message = format!("t.toml:9: the kernel reserves the name `{name}`, so no");
        assert!(error.starts_with(&message), "{error}");
    }
}

#[test]
fn addresses_that_cannot_be_are_told_with_their_line() {
    let twice = mistake("[\"10.77.0.2/24\"]", "[\"10.77.0.2/24\",\n\"10.77.0.2/24\"]");
    assert_eq!(
        twice,
        "t.toml:12: the address `10.77.0.2` is listed twice for one interface; remove one"
    );
    let many = mistake("10.77.0.2/24", "224.0.0.1/24");
    assert!(many.starts_with("t.toml:11: `224.0.0.1/24` is a multicast address"), "{many}");
    let own = mistake("10.99.0.1/32", "127.0.0.1/8");
    assert!(own.starts_with("t.toml:7: `127.0.0.1/8` is a loopback address"), "{own}");
    let sources = mistake("prefsrc = [\"10.99.0.1\"", "prefsrc = [\"10.99.0.1\", \"10.99.0.2\"");
    let message = "t.toml:12: `prefsrc` has two addresses of the same kind (IPv4 or IPv6), \
                   10.99.0.1 and 10.99.0.2; remove one";
    assert_eq!(sources, message);
    let source = mistake("prefsrc = [\"10.99.0.1\"", "prefsrc = [\"10.99\"");
    assert!(source.starts_with("t.toml:12: `10.99` is not an IP address; write"), "{source}");
}

#[test]
fn events_come_in_the_order_of_time() {
    let events = "[[event]]\nat = '3s'\nlink = 'p0'\ndown = true\n\
                  [[event]]\nat = '500ms'\nlink = 'p0'\nrate = '1mbit'\nqueue = '5kB'\n";
    let topology = Topology::parse(&format!("{GOOD}{events}"), "t.toml").unwrap();
    let times: Vec<_> = topology.events.iter().map(|event| event.at.as_millis()).collect();
    assert_eq!(times, [500, 3000]);
    assert_eq!((topology.events[1].link, topology.events[1].edit.down), (0, Some(true)));
    for (from, to, message) in [
        ("'p0'\ndown", "'p9'\ndown", "t.toml:22: there is no link `p9`; choose one of p0"),
        ("\ndown = true", "", "t.toml:22: this [[event]] changes nothing"),
        ("'3s'", "'-3s'", "t.toml:21: `at`: `-3s` is not a time"),
        ("down", "mtu", "t.toml:23: unknown key `mtu` in [event]"),
    ] {
        let text = format!("{GOOD}{}", events.replacen(from, to, 1));
        let error = Topology::parse(&text, "t.toml").unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

const PROGRAMS: &str = r#"
        [[program]]
        host = "server"
        command = ["/usr/bin/iperf3", "-s"]
        background = true
        [[program]]
        name = "load"
        host = "client"
        command = ["iperf3", "-c", "10.99.0.1"]
        environment = { LC_ALL = "C" }
        directory = "/tmp"
        start = "500ms"
        expect = "any"
    "#;

#[test]
fn a_network_of_an_earlier_program_is_read() {
    let text = include_str!("../../../../tests/formats/0e0b824b/emulated.toml");
    let network = Topology::parse(text, "emulated.toml").unwrap();
    let hosts: Vec<&str> = network.hosts.iter().map(|host| &host.name[..]).collect();
    assert_eq!((network.seed, hosts), (7, vec!["client", "router", "server"]));
    let dsl = &network.links[1];
    assert_eq!((&dsl.name[..], dsl.forward.delay.as_millis()), ("dsl", 12));
    assert!(dsl.ends[0].nat && !dsl.ends[1].nat && dsl.forward.codel.is_some());
    let at: Vec<u128> = network.events.iter().map(|event| event.at.as_millis()).collect();
    assert_eq!((at, network.programs.len()), (vec![1_500, 2_000], 3));
}

fn with_programs(from: &str, to: &str) -> Result<Topology, String> {
    assert!(PROGRAMS.contains(from));
    let text = format!("{GOOD}{}", PROGRAMS.replacen(from, to, 1));
    Topology::parse(&text, "t.toml").map_err(|error| error.to_string())
}

#[test]
fn programs_are_read_with_their_defaults() {
    let [server, load] = <[Program; 2]>::try_from(with_programs("", "").unwrap().programs).unwrap();
    assert_eq!((server.name.as_str(), server.host, server.line), ("iperf3", 1, 23));
    assert_eq!((server.background, server.expect), (true, Expect::Running));
    assert_eq!((load.name.as_str(), load.host, load.background), ("load", 0, false));
    assert_eq!((load.start.as_millis(), load.expect), (500, Expect::Any));
    assert_eq!(load.environment["LC_ALL"], "C");
    let plain = with_programs("expect = \"any\"", "").unwrap();
    assert_eq!(plain.programs[1].expect, Expect::Success);
}

#[test]
fn mistakes_in_programs_are_told_with_their_line() {
    for (from, to, message) in [
        (
            "\"client\"",
            "\"clinet\"",
            "t.toml:27: there is no host `clinet`; did you mean `client`?",
        ),
        (
            "\"load\"",
            "\"iperf3\"",
            "t.toml:26: a second program is called `iperf3`; give it another `name`",
        ),
        ("\"load\"", "\"../load\"", "t.toml:26: `../load` cannot be the name of a log"),
        (
            "[\"/usr/bin/iperf3\", \"-s\"]",
            "[]",
            "t.toml:23: `command` is empty; write [\"PROGRAM\"",
        ),
        (
            "LC_ALL",
            "\"A=B\"",
            "t.toml:29: `A=B` cannot be the name of an environment variable; write one without \
             `=`",
        ),
        ("500ms", "-500ms", "t.toml:31: `start`: `-500ms` is not a time"),
        ("\"any\"", "\"running\"", "t.toml:32: the emulation waits until this program ends"),
        ("\"any\"", "\"runing\"", "t.toml:32: `expect`: unknown value"),
        ("directory", "dir", "t.toml:30: unknown key `dir` in [program]; did you mean"),
    ] {
        let error = with_programs(from, to).unwrap_err();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn hosts_and_ends_must_fit() {
    let unknown = "t.toml:11: there is no host `clinet`; did you mean `client`?";
    assert_eq!(mistake("host = \"client\"", "host = \"clinet\""), unknown);
    let ends = "t.toml:10: a link needs two `ends`, on two different hosts";
    assert_eq!(mistake("host = \"client\"", "host = \"server\""), ends);
    let second = "t.toml:6: a second host is called `client`; give each host its own name";
    assert_eq!(mistake("name = \"server\"", "name = \"client\""), second);
    assert!(Topology::parse("", "t.toml").unwrap_err().to_string().contains("no [[host]]"));
}

#[test]
fn a_censor_has_names_of_hosts_and_something_to_see() {
    let text = |host: &str| {
        format!(
            "[[host]]\nname = 'a'\n{host}\n[[host]]\nname = 'b'\n[[link]]\nname = 'l'\nends = \
             [{{ host = 'a' }}, {{ host = 'b' }}]\n"
        )
    };
    let read = |host: &str| Topology::parse(&text(host), "t.toml").map_err(|e| e.to_string());
    let good = read("forward = true\ncensor = ['blocked.example', 'localhost']").unwrap();
    assert_eq!(good.hosts[0].censor, ["blocked.example", "localhost"]);
    assert!(good.hosts[1].censor.is_empty());
    for (bad, message) in [
        ("censor = ['blocked.example']", "t.toml:3: `censor` blocks only packets that"),
        ("forward = true\ncensor = ['*.example']", "t.toml:4: `*.example` is not a host name"),
        ("forward = true\ncensor = ['']", "t.toml:4: `` is not a host name"),
        ("forward = true\ncensor = ['a..b']", "t.toml:4: `a..b` is not a host name"),
    ] {
        let error = read(bad).unwrap_err();
        assert!(error.starts_with(message), "{error}");
    }
}
