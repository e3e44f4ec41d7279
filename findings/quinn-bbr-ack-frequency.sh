#!/bin/sh
# The extension "QUIC Acknowledgment Frequency" (draft-ietf-quic-ack-frequency) lets a sender ask
# for fewer acknowledgements. One expects fewer packets on the way back, and a sender whose
# congestion control finds the same rate as before. With quinn's CUBIC this holds. With quinn's BBR, over a
# line of 5 Mbit/s with a queue of 16 packets, the goodput stays the same, but the sender overfills
# the queue: with one acknowledgement for 100 packets the line drops several times as many packets
# as without the extension, often more than the transfer needs.
# Exit status: 0 as found, 1 if that changes, 2 if it cannot be run.
set -eu
quinn=0.11.19 rustls=0.23.35 rcgen=0.13.2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
mkdir -p src
cat >Cargo.toml <<TOML
[package]
name = "finding"
version = "0.1.0"
edition = "2021"

[dependencies]
bytes = "1"
quinn-proto = { version = "=$quinn", default-features = false, features = ["rustls-ring"] }
rcgen = "=$rcgen"
rustls = { version = "=$rustls", default-features = false, features = ["ring", "std"] }

[workspace]
TOML
cat >src/main.rs <<'RUST'
//! Two ends of a QUIC connection in one process and in virtual time. The packets of each direction
//! pass through a line with a rate, a delay and a queue that drops what does not fit.

use bytes::BytesMut;
use quinn_proto::{
    congestion::{BbrConfig, ControllerFactory, CubicConfig},
    AckFrequencyConfig, ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    Event, ServerConfig, StreamEvent, TransportConfig,
};
use rustls::pki_types::PrivateKeyDer;
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// Bytes of the transfer, and properties of the line: bits per second, one-way delay, queue in
/// packets of 1,500 bytes.
const BYTES: usize = 3_000_000;
const RATE: u64 = 5_000_000;
const DELAY: Duration = Duration::from_millis(20);
const QUEUE: u64 = 16;

struct End {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    address: SocketAddr,
}

impl End {
    fn new(config: Option<Arc<ServerConfig>>, address: &str) -> Self {
        let endpoint = Endpoint::new(Arc::default(), config, true, None);
        Self { endpoint, connection: None, address: address.parse().unwrap() }
    }

    /// Returns the packets that this end sends now.
    fn packets(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let Some((handle, connection)) = &mut self.connection else { return Vec::new() };
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        let mut packets = Vec::new();
        loop {
            let mut packet = Vec::new();
            let Some(sent) = connection.poll_transmit(now, 1, &mut packet) else { return packets };
            packet.truncate(sent.size);
            packets.push(packet);
        }
    }

    fn receive(&mut self, now: Instant, from: SocketAddr, packet: &[u8]) {
        let mut answer = Vec::new();
        match self.endpoint.handle(now, from, None, None, BytesMut::from(packet), &mut answer) {
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.connection = self.endpoint.accept(incoming, now, &mut answer, None).ok();
            }
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                self.connection.as_mut().unwrap().1.handle_event(event);
            }
            _ => {}
        }
    }
}

fn transport(bbr: bool, threshold: Option<u32>) -> Arc<TransportConfig> {
    let control: Arc<dyn ControllerFactory + Send + Sync> = match bbr {
        true => Arc::new(BbrConfig::default()),
        false => Arc::new(CubicConfig::default()),
    };
    let mut config = TransportConfig::default();
    config.congestion_controller_factory(control);
    config.ack_frequency_config(threshold.map(|threshold| {
        let mut frequency = AckFrequencyConfig::default();
        frequency.ack_eliciting_threshold(threshold.into());
        frequency
    }));
    Arc::new(config)
}

/// Transfers BYTES from the client to the server. Returns the goodput in Mbit/s, and the number of
/// packets that the client's line dropped.
fn transfer(bbr: bool, threshold: Option<u32>) -> (f64, u64) {
    let own = rcgen::generate_simple_self_signed(["server.test".into()]).unwrap();
    let key = PrivateKeyDer::try_from(own.key_pair.serialize_der()).unwrap();
    let certificate = own.cert.der().clone();
    let mut serving = ServerConfig::with_single_cert(vec![certificate.clone()], key).unwrap();
    serving.transport_config(transport(bbr, threshold));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut asking = ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
    asking.transport_config(transport(bbr, threshold));

    let start = Instant::now();
    let mut now = start;
    let mut server = End::new(Some(Arc::new(serving)), "127.0.0.1:1");
    let mut client = End::new(None, "127.0.0.1:2");
    let connected = client.endpoint.connect(now, asking, server.address, "server.test").unwrap();
    client.connection = Some(connected);

    let on_line = |bytes: u64| Duration::from_nanos(bytes * 8 * 1_000_000_000 / RATE);
    let mut flying: BinaryHeap<Reverse<(Instant, u64, bool, Vec<u8>)>> = BinaryHeap::new();
    let (mut count, mut dropped, mut free) = (0, 0, [now; 2]);
    let (mut sending, mut receiving) = (None, None);
    let (mut sent, mut received) = (0, 0);
    let data = vec![7; 65_536];
    while received < BYTES {
        let connection = &mut client.connection.as_mut().unwrap().1;
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected => sending = connection.streams().open(Dir::Uni),
                Event::ConnectionLost { reason } => panic!("{reason}"),
                _ => {}
            }
        }
        while let Some(id) = sending.filter(|_| sent < BYTES) {
            let room = data.len().min(BYTES - sent);
            match connection.send_stream(id).write(&data[..room]) {
                Ok(written) => sent += written,
                Err(_) => break,
            }
        }
        if let Some((_, connection)) = &mut server.connection {
            while let Some(event) = connection.poll() {
                if let Event::Stream(StreamEvent::Opened { .. }) = event {
                    receiving = connection.streams().accept(Dir::Uni);
                }
            }
            if let Some(id) = receiving {
                let mut stream = connection.recv_stream(id);
                if let Ok(mut chunks) = stream.read(true) {
                    while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                        received += chunk.bytes.len();
                    }
                    let _ = chunks.finalize();
                };
            }
        }
        for (index, end) in [&mut client, &mut server].into_iter().enumerate() {
            for packet in end.packets(now) {
                let begins = free[index].max(now);
                if begins - now > on_line(QUEUE * 1500) {
                    dropped += u64::from(index == 0);
                    continue;
                }
                free[index] = begins + on_line(packet.len() as u64 + 28);
                count += 1;
                flying.push(Reverse((free[index] + DELAY, count, index == 0, packet)));
            }
        }
        let arrival = flying.peek().map(|next| next.0 .0);
        let ends = [&mut client, &mut server];
        let timers = ends.map(|end| end.connection.as_mut()?.1.poll_timeout());
        now = arrival.into_iter().chain(timers.into_iter().flatten()).min().unwrap().max(now);
        assert!(now - start < Duration::from_secs(600), "{received} bytes in ten minutes");
        while flying.peek().is_some_and(|next| next.0 .0 <= now) {
            let Reverse((_, _, to_server, packet)) = flying.pop().unwrap();
            match to_server {
                true => server.receive(now, client.address, &packet),
                false => client.receive(now, server.address, &packet),
            }
        }
    }
    (BYTES as f64 * 8.0 / (now - start).as_secs_f64() / 1e6, dropped)
}

fn main() {
    let mut drops = Vec::new();
    for (name, bbr) in [("CUBIC", false), ("BBR", true)] {
        for threshold in [None, Some(10), Some(100)] {
            let mut runs: Vec<_> = (0..3).map(|_| transfer(bbr, threshold)).collect();
            runs.sort_by_key(|run| run.1);
            let (goodput, dropped) = runs[1];
            let case = match threshold {
                Some(count) => format!("threshold {count}"),
                None => "no extension".to_owned(),
            };
            println!("{name}, {case}: {goodput:.1} Mbit/s, {dropped} packets dropped");
            drops.push(dropped);
        }
    }
    let is_as_found = drops[5] >= 5 * drops[3] && drops[2] <= 2 * drops[0];
    std::process::exit(i32::from(!is_as_found));
}
RUST
export CARGO_TARGET_DIR="$work/target"
timeout 400 cargo build --quiet 2>log || { tail -3 log; exit 2; }
echo "quinn-proto $quinn, three transfers of 3 MB each, medians"
echo "guess: fewer acknowledgements, and no more drops than without the extension; outcome:"
timeout 60 target/debug/finding
