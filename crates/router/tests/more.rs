//! Nodes of MORE on loopback, and programs that fetch through them with SOCKS.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_os::entropy::generator;
use anabranch_router::more::files::NetworkFile;
use anabranch_router::more::{self, Config, MoreEvent, NodeCounters, Settings};

const NODES: usize = 7;
const PATIENCE: Duration = Duration::from_secs(120);

/// A running network. Node 0 is the client's node, and the last node is the exit.
struct Net {
    proxy: SocketAddr,
    nodes: Vec<(UnixStream, JoinHandle<NodeCounters>)>,
}

impl Net {
    fn start(payload: usize, policy: &str) -> Net {
        let free = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let sockets: Vec<UdpSocket> = (0..NODES).map(|_| free()).collect();
        let addresses: Vec<SocketAddr> =
            sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        drop(sockets);
        let config = Config { payload, ..Config::default() };
        let begins = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - 1;
        let mut rng = generator().unwrap();
        let (file, keys) = NetworkFile::draw(begins, &config, &addresses, 1, &mut rng);
        let network = Arc::new(file.network().unwrap());
        let (ready, listening) = mpsc::channel();
        let mut nodes = Vec::new();
        for (at, key) in keys.into_iter().enumerate() {
            let (end, stop) = UnixStream::pair().unwrap();
            let rules: &[&str] = if at + 1 == NODES { &[policy] } else { &["reject *:*"] };
            let settings = Settings {
                network: network.clone(),
                begins,
                config: config.clone(),
                key,
                listen: (at == 0).then(|| "127.0.0.1:0".parse().unwrap()),
                policy: ExitPolicy::parse(rules).unwrap(),
            };
            let ready = ready.clone();
            let run = move || {
                let mut last = NodeCounters::default();
                let mut watch = |event| match event {
                    MoreEvent::Listening(_, proxy) => ready.send(proxy).unwrap(),
                    MoreEvent::Ended(counters) => last = counters,
                };
                more::run(settings, generator().unwrap(), &stop, &mut watch).unwrap();
                last
            };
            nodes.push((end, thread::spawn(run)));
        }
        let proxies: Vec<_> =
            (0..NODES).filter_map(|_| listening.recv_timeout(PATIENCE).unwrap()).collect();
        let proxy = *proxies.last().expect("the client's node has a SOCKS port");
        Net { proxy, nodes }
    }

    fn stop(self) -> Vec<NodeCounters> {
        let end = |(stop, thread): (UnixStream, JoinHandle<NodeCounters>)| {
            drop(stop);
            thread.join().unwrap()
        };
        self.nodes.into_iter().map(end).collect()
    }

    /// Requests a connection to `target`, and sends `request` with it. Returns the reply code and
    /// the connection.
    fn connect(&self, target: SocketAddr, request: &[u8]) -> (u8, TcpStream) {
        let SocketAddr::V4(target) = target else { panic!("the tests use IPv4") };
        let mut socket = TcpStream::connect(self.proxy).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(&[5, 1, 0]).unwrap();
        let mut greeted = [0; 2];
        socket.read_exact(&mut greeted).unwrap();
        assert_eq!(greeted, [5, 0]);
        let (ip, port) = (target.ip().octets(), target.port().to_be_bytes());
        socket.write_all(&[&[5, 1, 0, 1][..], &ip, &port, request].concat()).unwrap();
        let mut answer = [0; 10];
        socket.read_exact(&mut answer).unwrap();
        (answer[1], socket)
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u8).collect()
}

/// Starts a server that reads a number from 8 bytes, and answers with this number of bytes. It
/// does this once per connection.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            thread::spawn(move || {
                let (mut socket, mut length) = (socket.unwrap(), [0; 8]);
                socket.read_exact(&mut length).unwrap();
                socket.write_all(&bytes(u64::from_be_bytes(length) as usize)).unwrap();
            });
        }
    });
    address
}

fn fetch(net: &Net, server: SocketAddr, length: usize) -> Duration {
    let began = Instant::now();
    let (code, mut socket) = net.connect(server, &(length as u64).to_be_bytes());
    assert_eq!(code, 0);
    let mut received = Vec::new();
    socket.read_to_end(&mut received).unwrap();
    assert!(received == bytes(length), "{} of {length} bytes", received.len());
    began.elapsed()
}

#[test]
fn programs_fetch_through_every_node() {
    let (net, server) = (Net::start(more::PAYLOAD, "accept 127.0.0.1:*"), server());
    for length in [1, 320 << 10, 1 << 20] {
        let elapsed = fetch(&net, server, length);
        println!("{length} bytes: {elapsed:?}");
    }
    thread::scope(|scope| {
        for number in 1..6 {
            let net = &net;
            scope.spawn(move || fetch(net, server, 10_000 * number));
        }
    });
    let counters = net.stop();
    let relayed: Vec<u64> = counters.iter().map(|node| node.relayed).collect();
    // On this client's paths, the client and the exit are only at the ends.
    assert!(relayed[1..NODES - 1].iter().all(|count| *count > 500), "{relayed:?}");
    assert!(counters[0].reply_blocks > 1_500, "{:?}", counters[0]);
}

#[test]
fn cells_of_tors_size_carry_a_page() {
    let (net, server) = (Net::start(more::CELL_PAYLOAD, "accept 127.0.0.1:*"), server());
    let elapsed = fetch(&net, server, 320 << 10);
    println!("320 KiB with 498 bytes a packet: {elapsed:?}");
    net.stop();
}

#[test]
fn refusals_have_their_reply_codes() {
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let net = Net::start(more::PAYLOAD, "accept 127.0.0.1:*");
    // The codes of RFC 1928, section 6, are 5 for a refused connection, and 2 for a connection
    // that the ruleset forbids.
    assert_eq!(net.connect(closed, &[]).0, 5);
    assert_eq!(net.connect("127.0.0.2:80".parse().unwrap(), &[]).0, 2);
    net.stop();
}

#[test]
fn a_program_that_closes_early_ends_its_stream() {
    let (net, server) = (Net::start(more::PAYLOAD, "accept 127.0.0.1:*"), server());
    let (code, mut socket) = net.connect(server, &(1u64 << 20).to_be_bytes());
    assert_eq!(code, 0);
    socket.read_exact(&mut [0; 100]).unwrap();
    drop(socket);
    fetch(&net, server, 50_000);
    net.stop();
}
