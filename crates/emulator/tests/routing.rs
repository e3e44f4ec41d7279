//! Tests of routes through forwarding hosts, and of address translation, in an emulated network.
//!
//! The tests need root (or `CAP_SYS_ADMIN` and `/dev/net/tun`), and `nft`. Without them, they print
//! that they are skipped, and pass.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_emulator::{self as emulate, Network, Topology};

/// Timeout for events that happen in any case, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client, a router and a server. The server has no route to the client's network, unless
/// `SERVER` adds one.
const TOPOLOGY: &str = "\
[[host]]
name = 'client'
[[host]]
name = 'router'
forward = true
[[host]]
name = 'server'
address = ['10.99.0.1/32', 'fd99::1/128']
[[link]]
name = 'in'
delay = '1ms'
ends = [
  { host = 'client', address = ['192.168.7.2/24', 'fd07::2/64'], routes = [
    { to = '0.0.0.0/0', via = '192.168.7.1' }, { to = '::/0', via = 'fd07::1' } ] },
  { host = 'router', address = ['192.168.7.1/24', 'fd07::1/64'] },
]
[[link]]
name = 'out'
delay = '1ms'
ends = [
  { host = 'router', address = ['203.0.113.1/24', 'fd03::1/64'], routes = ['10.99.0.1', 'fd99::1'] ROUTER },
  { host = 'server', address = ['203.0.113.9/24', 'fd03::9/64'] SERVER },
]
";

fn network(router: &str, server: &str) -> Option<Network> {
    network_of(&TOPOLOGY.replace("ROUTER", router).replace("SERVER", server))
}

fn network_of(text: &str) -> Option<Network> {
    for need in emulate::check() {
        if let Some(why) = need.missing.filter(|_| need.only_for != Some("[[program]]")) {
            eprintln!("skipped: no {}: {why}", need.what);
            return None;
        }
    }
    Some(Network::start(&Topology::parse(text, "test").unwrap()).unwrap())
}

fn socket(network: &Network, host: &str, address: &str) -> UdpSocket {
    let address: SocketAddr = address.parse().unwrap();
    let socket = network.host(host).unwrap().run(|| UdpSocket::bind(address)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends a question from the client to the server at `to`. Returns the client's address as the
/// server saw it, if an answer came back.
fn ask(network: &Network, from: &str, to: &str) -> io::Result<SocketAddr> {
    ask_for(network, from, to, PATIENCE)
}

/// Asks as `ask` does, and waits at most `patience` for the answer.
fn ask_for(network: &Network, from: &str, to: &str, patience: Duration) -> io::Result<SocketAddr> {
    let (client, server) = (socket(network, "client", from), socket(network, "server", to));
    client.set_read_timeout(Some(patience))?;
    client.send_to(b"who am I?", to)?;
    let (_, seen) = server.recv_from(&mut [0; 64])?;
    server.send_to(b"answer", seen)?;
    let (_, answered) = client.recv_from(&mut [0; 64])?;
    assert_eq!(answered, to.parse().unwrap(), "the answer comes from whom was asked");
    Ok(seen)
}

#[test]
fn a_translating_host_hides_the_network_behind_it() {
    let Some(network) = network(", nat = true", "") else { return };
    let seen = ask(&network, "192.168.7.2:0", "10.99.0.1:7000").unwrap();
    assert_eq!(seen.ip().to_string(), "203.0.113.1");
    let seen = ask(&network, "[fd07::2]:0", "[fd99::1]:7000").unwrap();
    assert_eq!(seen.ip().to_string(), "fd03::1");
}

#[test]
fn without_translation_the_server_needs_a_route_back() {
    let back = ", routes = [{ to = '192.168.7.0/24', via = '203.0.113.1' }, { to = 'fd07::/64', via = 'fd03::1' }]";
    let Some(with_route) = network("", back) else { return };
    let seen = ask(&with_route, "192.168.7.2:0", "10.99.0.1:7000").unwrap();
    assert_eq!(seen.ip().to_string(), "192.168.7.2");
    let seen = ask(&with_route, "[fd07::2]:0", "[fd99::1]:7000").unwrap();
    assert_eq!(seen.ip().to_string(), "fd07::2");
    let Some(without) = network("", "") else { return };
    let short = Duration::from_millis(500);
    assert!(ask_for(&without, "192.168.7.2:0", "10.99.0.1:7000", short).is_err());
}

/// Two hosts that forward packets, one after the other.
const ROUTERS: &str = "\
[[host]]
name = 'client'
[[host]]
name = 'near'
forward = true
[[host]]
name = 'far'
forward = true
[[link]]
name = 'in'
ends = [
  { host = 'client', address = ['10.1.0.2/24'], routes = ['10.2.0.0/24'] },
  { host = 'near', address = ['10.1.0.1/24'] },
]
[[link]]
name = 'out'
ends = [{ host = 'near', address = ['10.2.0.1/24'] }, { host = 'far', address = ['10.2.0.2/24'] }]
";

fn entered(network: &Network) -> BTreeMap<String, [u64; 2]> {
    let stats = network.stats().into_iter();
    stats.map(|(name, link)| (name, [link.forward.units, link.back.units])).collect()
}

#[test]
fn nothing_enters_the_links_of_an_idle_network() {
    let six = ROUTERS
        .replace("'10.1.0.2/24'", "'10.1.0.2/24', 'fd01::2/64'")
        .replace("'10.1.0.1/24'", "'10.1.0.1/24', 'fd01::1/64'");
    for text in [ROUTERS, &six] {
        let Some(network) = network_of(text) else { return };
        // By default, the kernel would report its multicast groups twice within a second.
        thread::sleep(Duration::from_secs(3));
        let silent = [("in", [0, 0]), ("out", [0, 0])].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(entered(&network), silent.into());
    }
}

#[test]
fn a_packet_that_goes_back_where_it_came_from_is_no_cause_for_advice() {
    let Some(network) = network_of(ROUTERS) else { return };
    let client = socket(&network, "client", "10.1.0.2:0");
    // Nobody has this address of the first link. The router returns the packet to the client, which
    // drops it.
    client.send_to(b"to nobody", "10.1.0.9:7000").unwrap();
    let end = Instant::now() + PATIENCE;
    while entered(&network)["in"] != [1, 1] {
        assert!(Instant::now() < end, "{:?}", entered(&network));
        thread::sleep(Duration::from_millis(10));
    }
    // The router returns it only once.
    thread::sleep(Duration::from_millis(200));
    assert_eq!(entered(&network)["in"], [1, 1]);
}
