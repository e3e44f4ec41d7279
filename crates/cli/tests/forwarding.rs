//! Tests of datagrams through a running splitter: address families, sizes, ECN, and clients that
//! misbehave.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod running;

use std::fs;
use std::net::{SocketAddr, UdpSocket as PlainSocket};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_os::udp::{Datagrams, RecvBatch, SendQueue, UdpOptions, UdpSocket};
use running::{PATIENCE, Running};

/// Receives one datagram. Returns its bytes, its ECN bits and its sender.
fn receive(socket: &UdpSocket, buffers: &mut RecvBatch) -> (Vec<u8>, u8, SocketAddr) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(mut runs) = buffers.recv(socket)
            && let Some(run) = runs.next()
        {
            return (run.bytes.to_vec(), run.ecn, run.from);
        }
        assert!(Instant::now() < deadline, "nothing came");
        thread::sleep(Duration::from_micros(200));
    }
}

fn send(socket: &UdpSocket, bytes: &[u8], ecn: u8, to: Option<SocketAddr>) {
    let mut queue = SendQueue::new();
    let mut batch = queue.batch(socket);
    batch.push(Datagrams { ecn, to, ..Datagrams::one(bytes) });
    assert_eq!(batch.send().sent, 1);
}

/// Checks that datagrams pass unchanged in both directions, over both paths. They have every ECN
/// value, and sizes from 0 to a full datagram.
fn passes_unchanged(host: &str, paths: &[&str]) {
    let mut running = Running::with(host, paths, &["--json"]);
    let listen: SocketAddr = running.next("listening")["listen"].as_str().unwrap().parse().unwrap();
    let server = running.server.local_addr().unwrap();
    // A socket that reports ECN bits replaces the server.
    running.server = PlainSocket::bind(SocketAddr::new(host.parse().unwrap(), 0)).unwrap();
    let server = UdpSocket::bind(server, &UdpOptions::default()).unwrap();
    let client = UdpSocket::connect(None, listen, &UdpOptions::default()).unwrap();
    let mut buffers = RecvBatch::new(4);
    for (number, size) in [0, 1, 1200, 1472, 9000, 60_000, 3, 0].into_iter().enumerate() {
        let (ecn, sent) = (number as u8 % 4, vec![0xf0 | number as u8; size]);
        send(&client, &sent, ecn, None);
        let (bytes, seen, from) = receive(&server, &mut buffers);
        assert_eq!((bytes.len(), seen), (size, ecn), "to the server");
        send(&server, &bytes, 3 - ecn, Some(from));
        let (bytes, seen, _) = receive(&client, &mut buffers);
        assert_eq!((bytes == sent, seen), (true, 3 - ecn), "back to the client, {size} bytes");
    }
    running.interrupt();
    let summary = running.next("summary");
    for path in summary["paths"].as_array().unwrap() {
        assert_eq!((&path["up_packets"], &path["down_packets"]), (&4.into(), &4.into()), "{path}");
    }
}

#[test]
fn sizes_and_ecn_bits_pass_unchanged_over_ipv4() {
    passes_unchanged("127.0.0.1", &["a=addr:127.0.0.2", "b=addr:127.0.0.3"]);
}

#[test]
fn sizes_and_ecn_bits_pass_unchanged_over_ipv6() {
    if PlainSocket::bind("[::1]:0").is_err() {
        println!("skipped: no IPv6 on this machine");
        return;
    }
    passes_unchanged("::1", &["a=addr:::1", "b=ports:1"]);
}

#[test]
fn a_client_that_floods_with_garbage_stops_nobody_else() {
    let mut running = Running::start();
    let listen = running.next("listening")["listen"].as_str().unwrap().to_owned();
    let client = PlainSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    running.exchange(&client, &listen);
    let server = running.server.try_clone().unwrap();
    let echo = thread::spawn(move || answer_known(&server));
    let end = running.server.local_addr().unwrap();
    // A burst is small enough for the buffers of a server that is not scheduled. So only the
    // splitter can be the cause of a loss.
    let (stranger, garbage) = (PlainSocket::bind("127.0.0.1:0").unwrap(), garbage());
    for round in 0..FLOOD / BURST {
        for number in round * BURST..(round + 1) * BURST {
            stranger.send_to(&garbage[..number % 1400], &listen).unwrap();
        }
        let known = [b'K', round as u8, (round >> 8) as u8];
        client.send_to(&known, &listen).unwrap();
        let mut answer = [0; 64];
        let length = client.recv(&mut answer).unwrap_or_else(|error| panic!("{round}: {error}"));
        assert_eq!(answer[..length], known, "{round}");
    }
    let memory = resident_kib(running.child.id());
    assert!(memory < 100 * 1024, "{memory} KiB");
    client.send_to(b"E", end).unwrap();
    echo.join().unwrap();
    running.interrupt();
    assert_eq!(running.next("summary")["sessions"], 2);
}

/// Answers datagrams that begin with K, until a datagram that begins with E arrives.
fn answer_known(server: &PlainSocket) {
    let mut buffer = [0; 2048];
    loop {
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        match buffer[..length].first() {
            Some(b'K') => drop(server.send_to(&buffer[..length], from).unwrap()),
            Some(b'E') => return,
            _ => {}
        }
    }
}

/// Number of datagrams in a flood. `BURST` is the number of datagrams sent at a time.
const FLOOD: usize = 100_000;
const BURST: usize = 40;

/// Returns bytes with which no protocol begins.
fn garbage() -> Vec<u8> {
    (0..1400u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 | 1).collect()
}

fn resident_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
