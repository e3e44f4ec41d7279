//! Tests of `anabranch up` from its user's view: the destinations that its exits refuse.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
/// SOCKS5's "connection not allowed by ruleset" (RFC 1928, section 6).
const NOT_ALLOWED: u8 = 2;

/// A running `anabranch up`, which is killed at the end of the test.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the lines that are read from `from`.
fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let lines = BufReader::new(from).lines().map_while(Result::ok);
        lines.for_each(|line| drop(sender.send(line)));
    });
    receiver
}

/// Returns the next line that contains `text`.
fn line(lines: &Receiver<String>, text: &str) -> String {
    loop {
        let line = lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no line with {text:?}"));
        if line.contains(text) {
            return line;
        }
    }
}

/// Requests a connection to this address (from RFC 5737, used by nobody). Returns the code of the
/// proxy's answer.
fn connect(socks: &str, to: [u8; 4], port: u16) -> u8 {
    let mut stream = TcpStream::connect(socks).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[5, 1, 0]).unwrap();
    stream.read_exact(&mut [0; 2]).unwrap();
    let request = [&[5, 1, 0, 1][..], &to, &port.to_be_bytes()].concat();
    stream.write_all(&request).unwrap();
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).unwrap();
    answer[1]
}

#[test]
fn an_address_that_its_exits_refuse_is_told_to_the_program_and_in_one_line_with_the_cure() {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.args(["up", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path().join("up"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut up = Up(command.spawn().unwrap());
    let out = lines(up.0.stdout.take().unwrap());
    let errors = lines(up.0.stderr.take().unwrap());
    let listening = line(&out, "SOCKS and HTTP CONNECT proxy on");
    let socks = listening.rsplit(' ').next().unwrap();
    line(&out, "ready: ");
    for _ in 0..2 {
        assert_eq!(connect(socks, [192, 0, 2, 1], 80), NOT_ALLOWED);
    }
    let refusal = line(&errors, "refused");
    let wanted = "anabranch: a stream to port 80 was refused: no exit's policy allows the \
                  destination's address; start 'anabranch up' with --exit RULE to allow more";
    assert_eq!(refusal, wanted);
    let more = errors.recv_timeout(Duration::from_millis(500));
    assert!(more.is_err(), "the same again is told once, no destination: {more:?}");
}
