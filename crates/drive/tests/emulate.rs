//! The emulated network against plain sockets: delay, throughput, loss and cuts are what the
//! topology says.
//!
//! Needs root (or `CAP_SYS_ADMIN` and `/dev/net/tun`); says so and passes without.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_drive::emulate::{self, Edit, Namespace, Network, Topology, WayStats};

const SERVER: &str = "10.99.0.1";
const SERVER6: &str = "fd99::1";
const PORT: u16 = 7777;

/// A client and a server, joined by three links of 100 Mbit/s and 10 ms each way.
fn topology(more: &str) -> Topology {
    let mut text = String::from(
        "seed = 3\n[[host]]\nname = 'client'\n\
         [[host]]\nname = 'server'\naddress = ['10.99.0.1/32', 'fd99::1/128']\n",
    );
    for i in 0..3 {
        text += &format!(
            "[[link]]\nname = 'p{i}'\nrate = '100mbit'\ndelay = '10ms'\nqueue = '250kB'\nends = [\n\
             {{ host = 'client', address = ['10.77.{i}.2/24', 'fd77:{i}::2/64'], metric = 10{i},\n\
             routes = ['10.99.0.1/32', 'fd99::1/128'] }},\n\
             {{ host = 'server', prefsrc = ['10.99.0.1', 'fd99::1'],\n\
             routes = ['10.77.{i}.0/24', 'fd77:{i}::/64'] }} ]\n"
        );
    }
    Topology::parse(&(text + more), "test").unwrap()
}

/// Starts the network, unless this machine cannot. The tests measure time, so they take turns.
fn network() -> Option<(Network, MutexGuard<'static, ()>)> {
    network_with("")
}

/// The same with some further tables in its topology.
fn network_with(more: &str) -> Option<(Network, MutexGuard<'static, ()>)> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for need in emulate::check().into_iter().filter(|need| need.only_for.is_none()) {
        if let Some(why) = need.missing {
            eprintln!("skipped: no {}: {why}", need.what);
            return None;
        }
    }
    Some((Network::start(&topology(more)).unwrap(), turn))
}

fn edit(json: &str) -> Edit {
    serde_json::from_str(json).unwrap()
}

/// A UDP socket inside a host that gives up reading after `patience`.
fn udp(host: &Namespace, address: &str, port: u16, patience: Duration) -> UdpSocket {
    let address: IpAddr = address.parse().unwrap();
    let socket = host.run(|| UdpSocket::bind(SocketAddr::new(address, port))).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket
}

/// A client's socket on link `i`'s address, connected to the server, and the server's.
fn pair(network: &Network, i: usize, patience: Duration) -> (UdpSocket, UdpSocket) {
    let client = udp(network.host("client").unwrap(), &format!("10.77.{i}.2"), 0, patience);
    let server = udp(network.host("server").unwrap(), SERVER, PORT, patience);
    client.connect((SERVER, PORT)).unwrap();
    (client, server)
}

fn forward(network: &Network, link: &str) -> WayStats {
    network.stats()[link].forward.clone()
}

/// Receives until nothing comes for the socket's patience; how many came.
fn count_arrivals(socket: &UdpSocket) -> usize {
    let mut buffer = [0; 2048];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count()
}

/// Sends back what comes until the socket's patience ends.
fn echo(socket: &UdpSocket) {
    let mut buffer = [0; 2048];
    while let Ok((len, from)) = socket.recv_from(&mut buffer) {
        socket.send_to(&buffer[..len], from).unwrap();
    }
}

/// Round-trip times of `count` datagrams, sorted.
fn round_trips(client: &UdpSocket, count: usize) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..count)
        .map(|_| {
            let start = Instant::now();
            client.send(b"ping").unwrap();
            client.recv(&mut [0; 16]).unwrap();
            start.elapsed()
        })
        .collect();
    times.sort();
    times
}

#[test]
fn a_round_trip_takes_twice_the_delay() {
    let Some((network, _turn)) = network() else { return };
    let (client, server) = pair(&network, 0, Duration::from_secs(1));
    let times = thread::scope(|scope| {
        scope.spawn(|| echo(&server));
        round_trips(&client, 50)
    });
    let (least, median) = (times[0], times[times.len() / 2]);
    assert!(least >= Duration::from_millis(20), "{least:?} is faster than the links");
    assert!(median < Duration::from_millis(25), "median {median:?}, {times:?}");
}

#[test]
fn ipv6_goes_the_same_way() {
    let Some((network, _turn)) = network() else { return };
    let patience = Duration::from_secs(1);
    let client = udp(network.host("client").unwrap(), "fd77:1::2", 0, patience);
    let server = udp(network.host("server").unwrap(), SERVER6, PORT, patience);
    client.connect((SERVER6, PORT)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| echo(&server));
        assert!(round_trips(&client, 3)[0] >= Duration::from_millis(20));
    });
}

#[test]
fn a_tcp_connection_fills_a_link_in_either_direction() {
    let Some((network, _turn)) = network() else { return };
    for upload in [true, false] {
        let rate = tcp_rate(&network, upload);
        assert!((90.0..=100.0).contains(&rate), "upload {upload}: {rate:.1} Mbit/s");
    }
}

/// Mbit/s of one TCP connection's payload in seconds 2 to 4 after its start.
fn tcp_rate(network: &Network, upload: bool) -> f64 {
    let listen = || TcpListener::bind((SERVER, PORT));
    let listener = network.host("server").unwrap().run(listen).unwrap();
    let connect = || TcpStream::connect((SERVER, PORT));
    let client = network.host("client").unwrap().run(connect).unwrap();
    let (server, _) = listener.accept().unwrap();
    let (mut from, mut to) = if upload { (client, server) } else { (server, client) };
    let sender = thread::spawn(move || while from.write_all(&[0; 65_536]).is_ok() {});
    receive_for(&mut to, Duration::from_secs(2));
    let start = Instant::now();
    let bytes = receive_for(&mut to, Duration::from_secs(2));
    let rate = bytes as f64 * 8.0 / 1e6 / start.elapsed().as_secs_f64();
    drop(to);
    sender.join().unwrap();
    rate
}

fn receive_for(stream: &mut TcpStream, span: Duration) -> usize {
    let (end, mut buffer, mut bytes) = (Instant::now() + span, vec![0; 1 << 16], 0);
    while Instant::now() < end {
        bytes += stream.read(&mut buffer).unwrap();
    }
    bytes
}

#[test]
fn three_links_carry_their_full_rate_in_both_directions_at_once() {
    let Some((network, _turn)) = network() else { return };
    let delivered = flood_all(&network, Duration::from_secs(2));
    // 100 Mbit/s for 2 s is 25 MB; the first and last 10 ms are lost to the delay.
    for (name, bytes) in delivered {
        assert!((22e6..26.5e6).contains(&(bytes as f64)), "{name}: {bytes} bytes in 2 s");
    }
}

/// Offers 120 Mbit/s of UDP to each link in each direction; what came out of each.
fn flood_all(network: &Network, span: Duration) -> Vec<(String, u64)> {
    thread::scope(|scope| {
        for i in 0..3 {
            let client = format!("10.77.{i}.2");
            let up = udp(network.host("client").unwrap(), &client, 0, span);
            let down = udp(network.host("server").unwrap(), SERVER, PORT + 1 + i, span);
            up.connect((SERVER, PORT)).unwrap();
            down.connect((client.as_str(), PORT)).unwrap();
            bind_device(&up, i);
            scope.spawn(move || flood(&up, span));
            scope.spawn(move || flood(&down, span));
        }
    });
    thread::sleep(Duration::from_millis(50));
    let stats = network.stats();
    let both = |(name, link): (&String, &emulate::LinkStats)| {
        [("forward", &link.forward), ("back", &link.back)]
            .map(|(way, stats)| (format!("{name} {way}"), stats.delivered.bytes))
    };
    stats.iter().flat_map(both).collect()
}

/// The routes prefer link 0 for every source address; a bound socket takes its own.
fn bind_device(socket: &UdpSocket, link: u16) {
    let name = format!("p{link}");
    socket2::SockRef::from(socket).bind_device(Some(name.as_bytes())).unwrap();
}

/// 120 Mbit/s in packets of 1428 bytes, in bursts of a millisecond (12 packets are 137 kbit).
fn flood(socket: &UdpSocket, span: Duration) {
    let start = Instant::now();
    let mut sent = 0.0;
    while start.elapsed() < span {
        let due = start.elapsed().as_secs_f64() * 120e6 / 8.0;
        while sent < due {
            // Nobody listens: the answer is an ICMP error at some later call.
            let _ = socket.send(&[0; 1400]);
            sent += 1428.0;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn loss_is_within_the_binomial_interval_and_counted() {
    let Some((network, _turn)) = network() else { return };
    network.change("p0", &edit(r#"{"loss":0.02,"rate":"unlimited"}"#)).unwrap();
    let (client, server) = pair(&network, 0, Duration::from_millis(500));
    let (arrived, sent) = (send_paced(&client, &server, 5000), 5000.0);
    let stats = forward(&network, "p0");
    assert_eq!((stats.units, stats.udp[&PORT].units), (5000, 5000));
    assert_eq!(stats.udp[&PORT].bytes, 5000 * (100 + 28));
    assert_eq!(stats.dropped.lost + arrived, 5000);
    // Four standard deviations: (5000 * 0.02 * 0.98)^0.5 = 9.9.
    let lost = sent - arrived as f64;
    assert!((lost - 100.0).abs() <= 40.0, "{lost} of {sent} lost");
}

/// Sends so slowly that no socket buffer overflows; how many datagrams arrived.
fn send_paced(client: &UdpSocket, server: &UdpSocket, count: usize) -> u64 {
    thread::scope(|scope| {
        let receiver = scope.spawn(|| count_arrivals(server));
        for i in 0..count {
            client.send(&[0; 100]).unwrap();
            if i % 20 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        receiver.join().unwrap() as u64
    })
}

#[test]
fn a_cut_is_silent_and_can_be_mended() {
    let Some((network, _turn)) = network() else { return };
    let (client, server) = pair(&network, 0, Duration::from_millis(200));
    network.change("p0", &edit(r#"{"down":true}"#)).unwrap();
    client.send(b"lost").unwrap();
    assert_eq!(server.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(forward(&network, "p0").dropped.down, 1);
    network.change("p0", &edit(r#"{"down":false}"#)).unwrap();
    client.send(b"here").unwrap();
    assert_eq!(server.recv(&mut [0; 16]).unwrap(), 4);
}

#[test]
fn a_change_of_the_delay_holds_at_once_and_only_for_its_direction() {
    let Some((network, _turn)) = network() else { return };
    network.change("p0", &edit(r#"{"delay_back":"60ms"}"#)).unwrap();
    let (client, server) = pair(&network, 0, Duration::from_millis(500));
    let median = thread::scope(|scope| {
        scope.spawn(|| echo(&server));
        round_trips(&client, 9)[4]
    });
    let bounds = Duration::from_millis(70)..Duration::from_millis(75);
    assert!(bounds.contains(&median), "{median:?}");
}

#[test]
fn a_scripted_change_happens_at_its_time() {
    let events = "[[event]]\nat = '300ms'\nlink = 'p0'\ndown = true\n\
                  [[event]]\nat = '600ms'\nlink = 'p0'\ndown = false\n";
    let Some((network, _turn)) = network_with(events) else { return };
    let start = Instant::now();
    let (client, server) = pair(&network, 0, Duration::from_millis(400));
    let arrived = thread::scope(|scope| {
        let receiver = scope.spawn(|| count_arrivals(&server));
        while start.elapsed() < Duration::from_millis(900) {
            client.send(&[0; 100]).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        receiver.join().unwrap() as u64
    });
    let stats = forward(&network, "p0");
    assert_eq!(stats.dropped.down + arrived, stats.units);
    // A third of the time, however unevenly the datagrams were sent.
    let share = stats.dropped.down as f64 / stats.units as f64;
    assert!((0.2..0.45).contains(&share), "{share:.2} of {} dropped", stats.units);
}

#[test]
fn an_unknown_link_is_an_error() {
    let Some((network, _turn)) = network() else { return };
    let error = network.change("p9", &Edit::default()).unwrap_err();
    assert_eq!(error.to_string(), "no link `p9`");
}

#[test]
fn an_interface_deleted_from_outside_does_not_disturb_the_others() {
    let Some((network, _turn)) = network() else { return };
    let host = network.host("client").unwrap();
    let delete = || std::process::Command::new("ip").args(["link", "del", "p1"]).status();
    match host.run(delete) {
        Ok(status) => assert!(status.success()),
        Err(error) => return eprintln!("skipped: no `ip` here ({error})"),
    }
    let (client, server) = pair(&network, 0, Duration::from_millis(500));
    client.send(b"here").unwrap();
    assert_eq!(server.recv(&mut [0; 16]).unwrap(), 4);
}
