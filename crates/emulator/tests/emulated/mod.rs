//! An emulated network of three equal links, and load for it.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_emulator::{
    self as emulate, DirectionStats, Edit, Namespace, Need, Network, Topology,
};
use anabranch_multipath::Time;
use anabranch_netem::Link;

pub const SERVER: &str = "10.99.0.1";
pub const SERVER6: &str = "fd99::1";
pub const PORT: u16 = 7777;

/// Returns a topology with a client and a server, joined by three links of 100 Mbit/s and 10 ms in
/// each direction.
pub fn topology(more: &str) -> Topology {
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

/// Starts the network. Returns `None` if this machine cannot. The guard lets one test run at a
/// time, because the tests measure time.
pub fn network() -> Option<(Network, MutexGuard<'static, ()>)> {
    network_with("")
}

/// Starts the network with the further tables `more` in its topology.
pub fn network_with(more: &str) -> Option<(Network, MutexGuard<'static, ()>)> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let concerns = |need: &Need| need.only_for.is_none_or(|only| only == "IPv6 addresses");
    for need in emulate::check().into_iter().filter(concerns) {
        if let Some(why) = need.missing {
            eprintln!("skipped: no {}: {why}", need.what);
            return None;
        }
    }
    Some((Network::start(&topology(more)).unwrap(), turn))
}

pub fn edit(json: &str) -> Edit {
    serde_json::from_str(json).unwrap()
}

/// Returns a UDP socket inside a host, with the read timeout `patience`.
pub fn udp(host: &Namespace, address: &str, port: u16, patience: Duration) -> UdpSocket {
    let address: IpAddr = address.parse().unwrap();
    let socket = host.run(|| UdpSocket::bind(SocketAddr::new(address, port))).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket
}

/// Returns a client's socket at the address of link `i`, connected to the server, and the server's
/// socket.
pub fn pair(network: &Network, i: usize, patience: Duration) -> (UdpSocket, UdpSocket) {
    let client = udp(network.host("client").unwrap(), &format!("10.77.{i}.2"), 0, patience);
    let server = udp(network.host("server").unwrap(), SERVER, PORT, patience);
    client.connect((SERVER, PORT)).unwrap();
    (client, server)
}

pub fn forward(network: &Network, link: &str) -> DirectionStats {
    network.stats()[link].forward.clone()
}

/// Receives datagrams until the socket's read timeout, which may be none. Returns their number.
pub fn count_arrivals(socket: &UdpSocket) -> usize {
    let mut buffer = [0; 2048];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count()
}

/// Returns the payload rate of one TCP connection in Mbit/s, in seconds 2 to 4 after its start.
pub fn tcp_rate(network: &Network, upload: bool) -> f64 {
    let listen = || TcpListener::bind((SERVER, PORT));
    let listener = network.host("server").unwrap().run(listen).unwrap();
    let connect = || TcpStream::connect((SERVER, PORT));
    let client = network.host("client").unwrap().run(connect).unwrap();
    let (server, _) = listener.accept().unwrap();
    let (from, to) = if upload { (client, server) } else { (server, client) };
    let start_up = Duration::from_secs(2);
    transfer(from, to, [start_up, Duration::from_secs(2)])
}

/// Sends data from `from` to `to`. Returns the rate in Mbit/s in the second of two spans.
pub fn transfer(mut from: TcpStream, mut to: TcpStream, [before, span]: [Duration; 2]) -> f64 {
    let sender = thread::spawn(move || while from.write_all(&[0; 65_536]).is_ok() {});
    receive_for(&mut to, before);
    let start = Instant::now();
    let bytes = receive_for(&mut to, span);
    let rate = bytes as f64 * 8.0 / 1e6 / start.elapsed().as_secs_f64();
    drop(to);
    sender.join().unwrap();
    rate
}

pub fn receive_for(stream: &mut TcpStream, span: Duration) -> usize {
    let (end, mut buffer, mut bytes) = (Instant::now() + span, vec![0; 1 << 16], 0);
    while Instant::now() < end {
        bytes += stream.read(&mut buffer).unwrap();
    }
    bytes
}

/// Sends `rate` Mbit/s of UDP on each link in each direction for `span`, and runs `meanwhile` at
/// the same time.
pub fn flood_all<R>(
    network: &Network,
    rate: f64,
    span: Duration,
    meanwhile: impl FnOnce() -> R,
) -> R {
    thread::scope(|scope| {
        for i in 0..3 {
            let client = format!("10.77.{i}.2");
            let up = udp(network.host("client").unwrap(), &client, 0, span);
            let down = udp(network.host("server").unwrap(), SERVER, PORT + 1 + i, span);
            up.connect((SERVER, PORT)).unwrap();
            down.connect((client.as_str(), PORT)).unwrap();
            bind_device(&up, i);
            scope.spawn(move || flood(&up, rate, span));
            scope.spawn(move || flood(&down, rate, span));
        }
        meanwhile()
    })
}

/// Returns the bytes that each direction of each link has delivered so far.
pub fn delivered(network: &Network) -> Vec<(String, u64)> {
    let stats = network.stats();
    let both = |(name, link): (&String, &emulate::LinkStats)| {
        [("forward", &link.forward), ("back", &link.back)]
            .map(|(way, stats)| (format!("{name} {way}"), stats.delivered.bytes))
    };
    stats.iter().flat_map(both).collect()
}

/// Binds a socket to the interface of `link`. Without that, the routes use link 0 for every source
/// address.
pub fn bind_device(socket: &UdpSocket, link: u16) {
    let name = format!("p{link}");
    socket2::SockRef::from(socket).bind_device(Some(name.as_bytes())).unwrap();
}

/// Sends `rate` Mbit/s in packets of 1,428 bytes, in one burst per millisecond. At 120 Mbit/s a
/// burst has 12 packets or 137 kbit.
pub fn flood(socket: &UdpSocket, rate: f64, span: Duration) {
    let start = Instant::now();
    let mut sent = 0.0;
    while start.elapsed() < span {
        let due = start.elapsed().as_secs_f64() * rate * 1e6 / 8.0;
        while sent < due {
            // No socket listens, so a later call may report an ICMP error.
            let _ = socket.send(&[0; 1400]);
            sent += 1428.0;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Sends datagrams over the first link in bursts. A burst follows when the previous one has entered
/// the link and few datagrams are queued, so that a busy machine drops none outside the link.
/// Returns the number of datagrams that arrived.
pub fn send_paced(
    network: &Network,
    client: &UdpSocket,
    server: &UdpSocket,
    count: u64,
    burst: u64,
) -> u64 {
    let start = forward(network, "p0");
    server.set_nonblocking(true).unwrap();
    let (mut sent, mut arrived) = (0, 0);
    while sent < count {
        let next = count.min(sent + burst);
        (sent..next).for_each(|_| assert_eq!(client.send(&[0; 100]).unwrap(), 100));
        sent = next;
        let few = if sent == count { 0 } else { 5 * burst };
        let patience = Instant::now() + Duration::from_secs(10);
        loop {
            arrived += count_arrivals(server) as u64;
            let now = forward(network, "p0");
            let (entered, lost) = (now.units - start.units, now.dropped.lost - start.dropped.lost);
            let settled = entered >= sent && entered <= lost + arrived + few;
            if settled || Instant::now() > patience {
                break;
            }
            thread::sleep(Duration::from_micros(500));
        }
    }
    server.set_nonblocking(false).unwrap();
    arrived
}

/// Settings with which a link loses and reorders packets.
pub const ROUGH: &str = r#"{"loss":0.05,"delay":"60ms","jitter":"40ms","reorder":true}"#;

/// Returns the numbers below `units` that did not arrive.
pub fn missing(units: u32, arrived: &[u32]) -> Vec<u32> {
    (0..units).filter(|unit| !arrived.contains(unit)).collect()
}

/// Sends `units` numbered datagrams, one every `gap`. Returns the time at which each was sent, and
/// the numbers of those that arrived, in the order of arrival.
pub fn send_numbered(
    client: &UdpSocket,
    server: &UdpSocket,
    units: u32,
    gap: Duration,
) -> (Vec<Time>, Vec<u32>) {
    let start = Instant::now();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut buffer = [0; 4];
            std::iter::from_fn(|| server.recv(&mut buffer).ok().map(|_| u32::from_le_bytes(buffer)))
                .collect()
        });
        let send = |unit: u32| {
            let due = start + gap * unit;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let now = Time::ZERO + start.elapsed();
            client.send(&unit.to_le_bytes()).unwrap();
            now
        };
        ((0..units).map(send).collect(), receiver.join().unwrap())
    })
}

/// Simulates the topology's first link with the same schedule, seed and change. Returns the
/// arrivals in order.
pub fn in_virtual_time(topology: &Topology, change: &str, schedule: &[Time]) -> Vec<(Time, u32)> {
    let mut settings = topology.links[0].forward.clone();
    edit(change).apply(&mut settings, false);
    // The first direction of the first link has the first stream of random numbers.
    let mut link = Link::new(settings, topology.seed, 0);
    for (&now, unit) in schedule.iter().zip(0..) {
        // 4 bytes and the headers of UDP and IPv4.
        let _ = link.push(now, unit, 32);
    }
    let mut arrivals = Vec::new();
    while let Some(at) = link.next_timeout() {
        arrivals.extend(link.pop(at).map(|unit| (at, unit)));
    }
    arrivals
}
