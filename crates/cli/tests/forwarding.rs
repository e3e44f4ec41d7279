//! Datagrams through a running splitter: families, sizes, ECN, and clients that misbehave.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod running;

use std::fs;
use std::net::{SocketAddr, UdpSocket as PlainSocket};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_drive::udp::{Datagrams, RecvBatch, SendQueue, UdpOptions, UdpSocket};
use running::{PATIENCE, Running};

/// Receives one datagram: (bytes, ECN bits, sender).
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

/// There and back by both paths: every ECN value, and sizes from nothing to a full datagram.
fn passes_unchanged(host: &str, paths: &[&str]) {
    let mut running = Running::with(host, paths, &["--json"]);
    let listen: SocketAddr = running.next("listening")["listen"].as_str().unwrap().parse().unwrap();
    let server = running.server.local_addr().unwrap();
    // The server's place is taken by a socket that sees ECN bits.
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
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    running.exchange(&client, &listen);
    let server = running.server.try_clone().unwrap();
    let echo = thread::spawn(move || answer_known(&server));
    let flood = thread::spawn({
        let listen = listen.clone();
        move || flood(&listen, 200_000, Duration::from_secs(2))
    });
    let answered = (0..200u8).filter(|&number| {
        thread::sleep(Duration::from_millis(10));
        client.send_to(&[b'K', number], &listen).unwrap();
        matches!(client.recv(&mut [0; 64]), Ok(2))
    });
    // The flood fills the server's own buffer now and then: that loss is the server's, not the
    // splitter's.
    let answered = answered.count();
    let flooded = flood.join().unwrap();
    assert!(
        answered >= 190,
        "{answered} of 200 answered while {flooded} datagrams of garbage came"
    );
    assert!(flooded >= 100_000, "{flooded} in two seconds are no flood");
    let memory = resident_kib(running.child.id());
    assert!(memory < 100 * 1024, "{memory} KiB");
    running.interrupt();
    assert_eq!(running.next("summary")["sessions"], 2);
    echo.join().unwrap();
}

/// Answers what begins with K until nothing came for a while.
fn answer_known(server: &PlainSocket) {
    server.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut buffer = [0; 2048];
    while let Ok((length, from)) = server.recv_from(&mut buffer) {
        if buffer[0] == b'K' {
            server.send_to(&buffer[..length], from).unwrap();
        }
    }
}

/// Sends garbage of all lengths at a pace for a while; returns how much.
fn flood(to: &str, per_second: u64, span: Duration) -> u64 {
    let socket = PlainSocket::bind("127.0.0.1:0").unwrap();
    let garbage: Vec<u8> =
        (0..1400u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 | 1).collect();
    let (start, mut sent) = (Instant::now(), 0u64);
    while start.elapsed() < span {
        let due = (start.elapsed().as_secs_f64() * per_second as f64) as u64;
        while sent < due {
            let _ = socket.send_to(&garbage[..sent as usize % 1400], to);
            sent += 1;
        }
        thread::sleep(Duration::from_micros(100));
    }
    sent
}

fn resident_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
