//! What a running splitter tells machines, and how it ends.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

/// A splitter over two loopback paths, in front of a server that gives everything back.
struct Running {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
    server: UdpSocket,
}

impl Running {
    fn start() -> Running {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let to = server.local_addr().unwrap().to_string();
        let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
            .args(["split", "--json", "--listen", "127.0.0.1:0", "--to", &to, "--seed", "7"])
            .args(["--path", "a=addr:127.0.0.2", "--path", "b=addr:127.0.0.3"])
            .args(["--schedule", "round-robin", "--every", "1p"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = child.stdout.take().map(BufReader::new);
        Running { child, lines, server }
    }

    /// The next object whose event is `name`.
    fn next(&mut self, name: &str) -> Value {
        loop {
            let mut line = String::new();
            let length = self.lines.as_mut().unwrap().read_line(&mut line).unwrap();
            assert_ne!(length, 0, "ended without '{name}'");
            let object: Value = serde_json::from_str(&line).unwrap();
            if object["event"] == name {
                return object;
            }
        }
    }

    /// A datagram there and back.
    fn exchange(&self, client: &UdpSocket, splitter: &str) {
        client.send_to(b"\xf0nothing known", splitter).unwrap();
        let mut buffer = [0; 64];
        let (length, from) = self.server.recv_from(&mut buffer).unwrap();
        self.server.send_to(&buffer[..length], from).unwrap();
        assert_eq!(client.recv_from(&mut buffer).unwrap().0, length);
    }

    fn interrupt(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    }

    fn ended(&mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the splitter does not end");
            sleep(Duration::from_millis(10));
        }
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap(), errors)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_session_is_told_from_its_opening_to_the_summary() {
    let mut running = Running::start();
    let about = running.next("listening");
    assert_eq!((&about["seed"], &about["paths"][1]["source"]), (&7.into(), &"127.0.0.3".into()));
    let splitter = about["listen"].as_str().unwrap().to_owned();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..10 {
        running.exchange(&client, &splitter);
    }
    let address = client.local_addr().unwrap().to_string();
    assert_eq!(running.next("opened")["client"], address);
    let session = running.next("session");
    assert_eq!((&session["client"], &session["protocol"]), (&address.into(), &"other".into()));
    assert_eq!(running.next("stats")["sessions"], 1);
    running.interrupt();
    let closed = running.next("closed");
    assert_eq!(closed["reason"], "shutdown");
    let summary = running.next("summary");
    for path in summary["paths"].as_array().unwrap() {
        assert_eq!((&path["up_packets"], &path["down_packets"]), (&5.into(), &5.into()), "{path}");
    }
    let (status, errors) = running.ended();
    assert_eq!((status.code(), errors.as_str()), (Some(0), ""));
}

#[test]
fn a_reader_who_leaves_ends_the_run_quietly() {
    let mut running = Running::start();
    running.next("listening");
    // Our end closes, so its next line fails with EPIPE.
    running.lines = None;
    let (status, errors) = running.ended();
    assert_eq!((status.code(), errors.as_str()), (Some(0), ""));
}
