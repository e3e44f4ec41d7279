//! Tests of a relay without free file descriptors, and of warnings at the start: about a client
//! with an open proxy, and about a relay on a private address.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ports;
mod program;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ports::free_ports;
use program::{NOBODY, PATIENCE, Program};

/// Maximum number of files that the relay may have open. It is below 100, the number of
/// connections from one address that may have an open handshake, so that this limit is reached
/// first.
const FILES: u32 = 96;
/// Number of connections that are opened to the relay at the same time.
const NEWCOMERS: u8 = 150;

fn connection(to: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", to)).unwrap()
}

/// Returns whether the relay has closed a connection.
fn is_closed(mut connection: &TcpStream) -> bool {
    connection.set_nonblocking(true).unwrap();
    match connection.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Returns the value of the counter `name` on the page of metrics.
fn counter(port: u16, name: &str) -> f64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name}: {page}")).parse().unwrap()
}

/// Starts a relay that may have [`FILES`] open files.
fn relay(data: &Path, port: u16, metrics: u16) -> Program {
    let script = format!("ulimit -n {FILES}; exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_anabranch")]);
    shell.args(["relay", "--json", "--nickname", "river", "--address", "127.0.0.1"]);
    shell.args(["--allow-private", "--threads", "1", "--authority", NOBODY]);
    shell.args(["--listen", &format!("127.0.0.1:{port}"), "--data", data.to_str().unwrap()]);
    shell.args(["--metrics", &format!("127.0.0.1:{metrics}")]);
    Program::of(&mut shell)
}

#[test]
#[cfg_attr(not(feature = "onion"), ignore = "no onion network in this build")]
fn a_relay_without_file_descriptors_says_so_counts_whom_it_turns_away_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let [port, metrics] = free_ports();
    let mut relay = relay(&folder.path().join("river"), port, metrics);
    relay.next("listening");
    let newcomers: Vec<_> = (0..NEWCOMERS).map(|_| connection(port)).collect();
    let ran_out = "out of file descriptors: ";
    let note = relay.find("note", |note| note["what"].as_str().unwrap().starts_with(ran_out));
    let note = note["what"].as_str().unwrap().to_owned();
    assert!(note.contains(&format!("may have {FILES} open files: raise the limit")), "{note}");
    let turned_away = || newcomers.iter().filter(|one| is_closed(one)).count();
    let before = turned_away();
    assert!(before > 0 && before < usize::from(NEWCOMERS), "{before} were closed");
    // The relay has accepted all connections, so none waits in the listener's queue.
    let name = "anabranch_relay_connections_without_file_total";
    let closed = {
        let end = Instant::now() + PATIENCE;
        let mut closed = before;
        loop {
            sleep(Duration::from_millis(200));
            let now = turned_away();
            if now == closed {
                break closed;
            }
            closed = now;
            assert!(Instant::now() < end, "connections are still being closed");
        }
    };
    drop(newcomers);
    // A page of metrics needs a file, too.
    let (end, mut later) = (Instant::now() + PATIENCE, 0);
    let counted = loop {
        let stream = connection(port);
        sleep(Duration::from_millis(200));
        if !is_closed(&stream) {
            break counter(metrics, name);
        }
        later += 1;
        assert!(Instant::now() < end, "nobody is let in again");
    };
    assert_eq!(counted, (closed + later) as f64, "{closed} closed, then {later}");
    relay.signal("-TERM");
    assert!(relay.ended().0.success());
}

#[test]
#[cfg_attr(not(feature = "onion"), ignore = "no onion network in this build")]
fn a_client_whose_proxy_is_open_to_others_warns_and_one_on_loopback_does_not() {
    let folder = tempfile::tempdir().unwrap();
    for (at, warns) in [("0.0.0.0:0", true), ("127.0.0.1:0", false)] {
        let data = folder.path().join(at);
        let words = ["client", "--json", "--authority", NOBODY, "--listen", at, "--data"];
        let mut client = Program::start(&[&words[..], &[data.to_str().unwrap()]].concat());
        let mut warned = false;
        let listening = client.until("listening", |event| {
            let what = event["what"].as_str().unwrap_or_default();
            warned |= what.starts_with("--listen 0.0.0.0:") && what.contains("in your name");
        });
        assert_eq!(warned, warns, "{at}");
        let address = listening["addresses"][0].as_str().unwrap();
        assert!(address.starts_with(at.trim_end_matches('0')), "{address}");
    }
}

#[test]
#[cfg_attr(not(feature = "onion"), ignore = "no onion network in this build")]
fn a_relay_on_a_private_address_warns_that_it_extends_to_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&str, &[&str], bool); 4] = [
        ("10.1.2.3", &[], true),
        ("127.0.0.1", &[], true),
        ("10.1.2.3", &["--allow-private"], false),
        ("192.0.2.1", &[], false),
    ];
    for (number, (address, more, warns)) in cases.into_iter().enumerate() {
        let data = folder.path().join(number.to_string());
        let [port] = free_ports();
        let listen = format!("127.0.0.1:{port}");
        let words = ["relay", "--json", "--nickname", "river", "--authority", NOBODY];
        let words = [&words[..], &["--address", address, "--listen", &listen], more];
        let data = ["--data", data.to_str().unwrap()];
        let mut relay = Program::start(&[&words.concat()[..], &data].concat());
        let start = format!("this relay's address {address} is private");
        let mut warned = false;
        let mut look = |event: &serde_json::Value| {
            let what = event["what"].as_str().unwrap_or_default();
            warned |= what.starts_with(&start) && what.ends_with("add --allow-private");
        };
        // The warning follows the event `listening`. The events that SIGTERM causes follow the
        // warning.
        relay.until("listening", &mut look);
        relay.signal("-TERM");
        let is_stopping = |event: &serde_json::Value| {
            event["what"].as_str().is_some_and(|what| what.starts_with("stopping: "))
        };
        loop {
            let note = relay.next("note");
            if is_stopping(&note) {
                break;
            }
            look(&note);
        }
        assert_eq!(warned, warns, "{address} {more:?}");
        assert!(relay.ended().0.success());
    }
}
