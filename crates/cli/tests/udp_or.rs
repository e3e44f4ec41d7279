//! Tests of `--design udp-or` from its user's view. Real programs on loopback download over lossy
//! circuits, and relays count them. The tests also check the messages if the network does not
//! support the design.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ports;
mod program;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use ports::free_ports;
use program::{PATIENCE, Program};
use serde_json::Value;
use tempfile::TempDir;

/// Lock that lets one network run at a time, because `anabranch up` has fixed addresses.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a file of `bytes` bytes. Its bytes differ by position, and from file to file.
fn file(bytes: usize) -> Vec<u8> {
    let byte = |at: usize| ((at ^ bytes).wrapping_mul(2_654_435_761) >> 13) as u8;
    (0..bytes).map(byte).collect()
}

/// Starts a network in one process with the options `design`. Returns the program, the address of
/// its proxy, and the DirAuthority line.
fn network(folder: &TempDir, design: &[&str]) -> (Program, SocketAddr, String) {
    let data = folder.path().join("up").to_str().unwrap().to_owned();
    let words = ["up", "--json", "--listen", "127.0.0.1:0", "--data", &data];
    let mut up = Program::start(&[&words[..], design].concat());
    let line = up.next("network")["authority"].as_str().unwrap().to_owned();
    let listening = up.next("listening");
    let socks = listening["addresses"][0].as_str().unwrap().parse().unwrap();
    up.next("ready");
    (up, socks, line.trim_start_matches("DirAuthority ").to_owned())
}

/// Requests a connection to a port of this machine from a proxy. Returns the connection and the
/// code of the proxy's answer.
fn connect(socks: SocketAddr, port: u16) -> (TcpStream, u8) {
    let mut stream = TcpStream::connect(socks).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let wish = [&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1][..], &port.to_be_bytes()].concat();
    stream.write_all(&wish).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..2], [5, 0]);
    (stream, answer[3])
}

/// Sends a file to a server, which sends another file back.
fn exchange(socks: SocketAddr, up: usize, down: usize) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let serving = thread::spawn(move || {
        let (mut program, _) = server.accept().unwrap();
        let mut received = vec![0; up];
        program.read_exact(&mut received).unwrap();
        program.write_all(&file(down)).unwrap();
        received
    });
    let (mut stream, code) = connect(socks, port);
    assert_eq!(code, 0, "the stream is open");
    stream.write_all(&file(up)).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert!(got == file(down), "{} of {down} bytes arrived", got.len());
    assert!(serving.join().unwrap() == file(up), "what was sent is what arrived");
}

#[test]
fn files_from_a_byte_to_five_mebibytes_arrive_whole_both_ways() {
    let _turn = turn();
    let folder = TempDir::new().unwrap();
    let (mut up, socks, line) = network(&folder, &["--design", "udp-or"]);
    for bytes in [1, 447, 20_000, 320 << 10, 5 << 20] {
        exchange(socks, 10, bytes);
        exchange(socks, bytes, 1);
    }
    // Concurrent streams share a circuit.
    let spawn = |n: usize| thread::spawn(move || exchange(socks, n, n * 50_000));
    let at_once: Vec<_> = (1..9).map(spawn).collect();
    at_once.into_iter().for_each(|one| one.join().unwrap());
    // Nobody listens on this port. The program receives the exit's reason.
    let [nobody] = free_ports();
    assert_eq!(connect(socks, nobody).1, 5, "refused");
    up.find("numbers", |numbers| numbers["quic_circuits"].as_u64().is_some_and(|count| count > 0));
    // A separate client uses the same network.
    let data = folder.path().join("client").to_str().unwrap().to_owned();
    let words = ["client", "--json", "--listen", "127.0.0.1:0", "--design", "udp-or"];
    let more = ["--authority", &line, "--data", &data];
    let mut client = Program::start(&[&words[..], &more].concat());
    let listening = client.next("listening");
    let socks = listening["addresses"][0].as_str().unwrap().parse().unwrap();
    client.next("ready");
    exchange(socks, 1_000, 300_000);
    // A client without this design uses the same relays.
    let data = folder.path().join("usual").to_str().unwrap().to_owned();
    let words = ["client", "--json", "--listen", "127.0.0.1:0"];
    let mut usual =
        Program::start(&[&words[..], &["--authority", &line, "--data", &data]].concat());
    let listening = usual.next("listening");
    let socks = listening["addresses"][0].as_str().unwrap().parse().unwrap();
    usual.next("ready");
    exchange(socks, 1_000, 300_000);
}

/// Starts a client in the network with the DirAuthority line `line`. Returns the client and the
/// address of its proxy.
fn client(folder: &TempDir, line: &str, design: &[&str]) -> (Program, SocketAddr) {
    let name = design.concat().replace('-', "");
    let data = folder.path().join(name).to_str().unwrap().to_owned();
    let words =
        ["client", "--json", "--listen", "127.0.0.1:0", "--authority", line, "--data", &data];
    let mut client = Program::start(&[&words[..], design].concat());
    let listening = client.next("listening");
    let socks = listening["addresses"][0].as_str().unwrap().parse().unwrap();
    client.next("ready");
    (client, socks)
}

#[test]
fn files_arrive_whole_over_several_circuits_by_each_schedule() {
    let _turn = turn();
    let folder = TempDir::new().unwrap();
    let (_up, socks, line) = network(&folder, &["--design", "mudp-or"]);
    let everything = |socks: SocketAddr| {
        for bytes in [1, 447, 20_000, 320 << 10, 5 << 20] {
            exchange(socks, 10, bytes);
            exchange(socks, bytes, 1);
        }
        let spawn = |n: usize| thread::spawn(move || exchange(socks, n, n * 50_000));
        let at_once: Vec<_> = (1..9).map(spawn).collect();
        at_once.into_iter().for_each(|one| one.join().unwrap());
    };
    everything(socks);
    for schedule in [
        &["--schedule", "eta"][..],
        &["--schedule", "uniform"],
        &["--schedule", "round-robin", "--every", "5p", "--udp-or-congestion", "cubic"],
    ] {
        let design = [&["--design", "mudp-or"][..], schedule].concat();
        let (_client, socks) = client(&folder, &line, &design);
        everything(socks);
    }
}

#[test]
fn an_unsound_mix_names_the_layer_that_lacks_something() {
    let design = ["--design", "mudp-or", "--schedule", "eta", "--udp-or-congestion", "cubic"];
    let words = ["client", "--listen", "127.0.0.1:0", "--authority", program::NOBODY];
    let (status, message) = Program::start(&[&words[..], &design].concat()).ended();
    assert_eq!(status.code(), Some(2), "{message}");
    assert!(message.contains("cubic has one window for all circuits"), "{message}");
    assert!(message.contains("--udp-or-congestion bbr"), "{message}");
}

#[test]
fn a_network_without_such_relays_is_named_and_programs_are_refused() {
    let _turn = turn();
    let folder = TempDir::new().unwrap();
    let (_up, _, line) = network(&folder, &[]);
    let data = folder.path().join("client").to_str().unwrap().to_owned();
    let words = ["client", "--json", "--listen", "127.0.0.1:0", "--design", "udp-or"];
    let more = ["--authority", &line, "--data", &data];
    let mut client = Program::start(&[&words[..], &more].concat());
    let listening = client.next("listening");
    let socks: SocketAddr = listening["addresses"][0].as_str().unwrap().parse().unwrap();
    let is_about_udp_or =
        |object: &Value| object["what"].as_str().is_some_and(|text| text.contains("UDP-OR"));
    let trouble = client.find("trouble", is_about_udp_or);
    assert!(trouble["what"].as_str().unwrap().contains("--udp-or"), "{trouble}");
    assert_ne!(connect(socks, 9).1, 0, "the program is refused");
}

#[test]
fn a_relay_counts_its_lossy_circuits_and_says_what_it_lacks() {
    let _turn = turn();
    let folder = TempDir::new().unwrap();
    let [port, metrics] = free_ports();
    let (listen, metrics) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{metrics}"));
    let data = folder.path().join("relay").to_str().unwrap().to_owned();
    let words = ["relay", "--json", "--nickname", "river", "--address", "127.0.0.1"];
    let more = ["--listen", &listen, "--data", &data, "--authority", program::NOBODY];
    let usual = [&words[..], &more, &["--allow-private"]].concat();
    let mut relay = Program::start(&[&usual[..], &["--udp-or", "--metrics", &metrics]].concat());
    let numbers = relay.next("numbers");
    for key in ["circuits_made", "received", "sent", "dropped", "replayed", "unknown", "garbage"] {
        assert_eq!(numbers["lossy"][key], 0, "{key}: {numbers}");
    }
    let mut page = TcpStream::connect(&metrics).unwrap();
    page.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    page.read_to_string(&mut text).unwrap();
    assert!(text.contains("anabranch_relay_lossy_garbage_total 0"), "{text}");
    drop(relay);
    let mut relay = Program::start(&[&usual[..], &["--udp-or", "--link", "tls"]].concat());
    let (status, message) = relay.ended();
    assert_eq!(status.code(), Some(2), "{message}");
    assert!(message.contains("--udp-or needs QUIC: add quic to --link"), "{message}");
}
