//! MPTCP connections over two links between network namespaces. Tests are skipped, with a message,
//! if the machine has no namespaces or no MPTCP.

use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use anabranch_emulator::{Edit, Network, Topology};

use super::*;
use crate::onion::conn::connecting_by;

/// Two hosts with two links between them.
const LINES: &str = "
[[host]]
name = 'one'
[[host]]
name = 'two'
[[link]]
name = 'first'
ends = [{ host = 'one', address = ['10.1.0.1/24'] }, { host = 'two', address = ['10.1.0.2/24'] }]
delay = '5ms'
[[link]]
name = 'second'
ends = [{ host = 'one', address = ['10.2.0.1/24'] }, { host = 'two', address = ['10.2.0.2/24'] }]
delay = '5ms'
";
const FIRST: &str = "10.1.0.2:5000";
const SECOND: &str = "10.2.0.2:5000";
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts the hosts, whose kernels announce their second addresses to each other. Prints the
/// reason and returns `None` if that fails.
fn lines() -> Option<Network> {
    let topology = Topology::parse(LINES, "test").unwrap();
    let started = Network::start(&topology);
    let network = started.inspect_err(|error| eprintln!("skipped: {error}")).ok()?;
    for (host, address) in [("one", "10.2.0.1"), ("two", "10.2.0.2")] {
        let announced = network.host(host).unwrap().run(|| {
            if !is_there() {
                return Err(io::Error::other("the kernel has no MPTCP"));
            }
            ip("limits set subflows 2 add_addr_accepted 2")?;
            ip(&format!("endpoint add {address} signal"))
        });
        announced.inspect_err(|error| eprintln!("skipped: {error}")).ok()?;
    }
    Some(network)
}

fn ip(words: &str) -> io::Result<()> {
    let output = Command::new("ip").arg("mptcp").args(words.split(' ')).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(io::Error::other(stderr)) }
}

/// Connects the first host, with a socket of kind `dials`, to the first address of the second
/// host. Both addresses of the second host have listeners of kind `listens`. Returns both ends of
/// the connection, and the listener at the second address.
fn connection(
    network: &Network,
    listens: TcpKind,
    dials: TcpKind,
) -> ([TcpStream; 2], TcpListener) {
    let [one, two] = ["one", "two"].map(|name| network.host(name).unwrap());
    let listen = |at: &str| listens.listen(at.parse().unwrap());
    let listener = two.run(|| listen(FIRST)).unwrap();
    // A subflow needs a listener, like any other incoming connection.
    let second = two.run(|| listen(SECOND)).unwrap();
    let address = FIRST.parse().unwrap();
    let near = one.run(|| connecting_by(address, dials, |_| ())).unwrap();
    let (far, _) = listener.accept().unwrap();
    for socket in [&near, &far] {
        socket.set_nonblocking(false).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    ([near, far], second)
}

/// Sends `bytes` bytes, and checks that they arrive unchanged.
fn carry(mut from: &TcpStream, mut to: &TcpStream, bytes: usize) {
    let sent: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
    let mut received = vec![0; bytes];
    std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(&sent).unwrap());
        to.read_exact(&mut received).unwrap();
    });
    assert_eq!(received, sent);
}

#[test]
fn a_connection_goes_by_both_lines_and_lives_on_by_one() {
    let Some(network) = lines() else { return };
    let kind = TcpKind::Multipath;
    let ([near, far], _listener) = connection(&network, kind, kind);
    assert!([&near, &far].iter().all(|socket| is_multipath(socket)));
    carry(&near, &far, 10_000);
    carry(&far, &near, 10_000);
    let until = Instant::now() + PATIENCE;
    while [&near, &far].iter().any(|socket| subflows(socket) != Some(2)) {
        assert!(Instant::now() < until, "{:?}", [&near, &far].map(subflows));
        std::thread::sleep(Duration::from_millis(10));
    }
    // The kernel chooses paths by their measured speeds, which a busy machine distorts.
    let transferred = || {
        let before = network.stats();
        carry(&near, &far, 3_000_000);
        let after = network.stats();
        ["first", "second"].map(|line| {
            let [then, now] = [&before, &after].map(|stats| stats[line].forward.delivered.bytes);
            now - then
        })
    };
    let by_both = |lines: &[u64; 2]| lines.iter().all(|line| *line > 300_000);
    let mut samples = vec![transferred()];
    while samples.len() < 10 && !samples.last().is_some_and(by_both) {
        samples.push(transferred());
    }
    assert!(samples.last().is_some_and(by_both), "{samples:?}");
    network.change("first", &Edit { down: Some(true), ..Edit::default() }).unwrap();
    carry(&near, &far, 100_000);
    carry(&far, &near, 100_000);
}

#[test]
fn a_neighbour_without_it_gets_tcp() {
    let Some(network) = lines() else { return };
    let kinds = [TcpKind::Single, TcpKind::Multipath];
    for [listens, dials] in [[kinds[0], kinds[1]], [kinds[1], kinds[0]]] {
        let ([near, far], _) = connection(&network, listens, dials);
        carry(&near, &far, 10_000);
        let sockets = [&near, &far];
        assert_eq!(sockets.map(subflows), [None, None], "{dials:?} to {listens:?}");
        assert_eq!(is_multipath(&near), dials == TcpKind::Multipath);
        assert!(!is_multipath(&far));
    }
}

#[test]
fn where_the_kernel_has_none_sockets_are_of_tcp() {
    let Some(network) = lines() else { return };
    let off = network.host("one").unwrap().run(|| {
        std::fs::write("/proc/sys/net/mptcp/enabled", "0")?;
        let socket = TcpKind::Multipath.socket(FIRST.parse().unwrap())?;
        Ok((is_there(), socket.protocol()?))
    });
    assert_eq!(off.unwrap(), (false, Some(Protocol::TCP)));
}

#[test]
fn links_are_counted_by_what_became_of_them() {
    let mut counts = MptcpCounts::default();
    [Some(2), None, Some(1)].into_iter().for_each(|subflows| counts.note(subflows));
    assert_eq!(counts, MptcpCounts { links: 2, subflows: 3, fell_back: 1 });
    assert_eq!(counts.with(counts), MptcpCounts { links: 4, subflows: 6, fell_back: 2 });
}
