//! Replies of a SOCKS5 proxy: in its dialogue, and before each datagram.

use std::io::{self, Cursor, Read, Write};
use std::net::SocketAddr;

use anabranch_os::udp::Received;
use anabranch_splitter::socks::{Credentials, Header, RelayedDatagrams, converse};

/// Checks an input. The first two bytes choose the pieces; the rest is the proxy's replies.
pub fn check(bytes: &[u8]) {
    let [pieces, stride, rest @ ..] = bytes else { return };
    for credentials in [None, Some(anna())] {
        dialogue(rest, usize::from(*pieces).max(1), credentials.as_ref());
    }
    for server in ["192.0.2.1:443", "[2001:db8::1]:443"] {
        let server = server.parse().expect("both are addresses");
        datagrams(rest, usize::from(*stride).max(1), server);
        there_and_back(rest, usize::from(*stride).max(1), server);
    }
}

fn anna() -> Credentials {
    Credentials { user: "anna".into(), password: "secret".into() }
}

/// A proxy that sends a script in pieces.
struct Script<'s> {
    says: Cursor<&'s [u8]>,
    pieces: usize,
    heard: Vec<u8>,
}

impl Read for Script<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.pieces);
        self.says.read(&mut buffer[..length])
    }
}

impl Write for Script<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.heard.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Checks that the dialogue ends, with a relay that has a port or with one plain line without a
/// password. A password is sent only to proxies that ask for it.
fn dialogue(says: &[u8], pieces: usize, credentials: Option<&Credentials>) {
    let mut script = Script { says: Cursor::new(says), pieces, heard: Vec::new() };
    match converse(&mut script, credentials, false) {
        Ok(relay) => assert!(relay.port() > 0),
        Err(fault) => {
            let message = fault.to_string();
            assert!(!message.is_empty() && !message.chars().any(char::is_control), "{message:?}");
            assert!(!message.contains("secret"), "{message}");
        }
    }
    let sends_password = script.heard.windows(6).any(|part| part == b"secret");
    assert!(!sends_password || says.starts_with(&[5, 2]), "the password went to a stranger");
}

fn run(bytes: &[u8], stride: usize) -> Received<'_> {
    let from = SocketAddr::from(([10, 0, 0, 1], 9));
    Received { from, to: None, ecn: 2, stride, bytes }
}

/// Checks that each datagram of a relay is forwarded as the server's or counted, and that none
/// grows.
fn datagrams(bytes: &[u8], stride: usize, server: SocketAddr) {
    let run = run(bytes, stride);
    let mut opened = RelayedDatagrams::default();
    opened.take(&run, server);
    let kept: Vec<&[u8]> = opened.runs(server).flat_map(|run| run.datagrams()).collect();
    assert_eq!(kept.len() as u64 + opened.unfit(), run.count() as u64);
    let least = Header::to(server).len().min(10);
    assert!(kept.iter().all(|payload| payload.len() + least <= stride));
}

/// Checks that a wrapped datagram is opened to the same.
fn there_and_back(bytes: &[u8], stride: usize, server: SocketAddr) {
    let header = Header::to(server);
    let wrapped = header.wrap(bytes, stride);
    let mut opened = RelayedDatagrams::default();
    opened.take(&run(&wrapped, stride.min(bytes.len()) + header.len()), server);
    assert_eq!(opened.unfit(), 0);
    let back: Vec<u8> = opened.runs(server).flat_map(|run| run.bytes.to_vec()).collect();
    assert_eq!(back, bytes);
}
