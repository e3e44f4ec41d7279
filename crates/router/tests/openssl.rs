//! TLS links with `openssl` as the other end, on loopback, in both roles and with both versions.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anabranch_links::{Context, Link, State, StreamLink, Tls};
use anabranch_multipath::Time;

const NOW: u64 = 1_800_000_000;
const PATIENCE: Duration = Duration::from_secs(20);
const LABEL: &str = "EXPORTER FOR TOR TLS CLIENT BINDING AUTH0003";

/// A child process that is killed at the end of the test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn there() -> bool {
    let found = Command::new("openssl").arg("version").output().is_ok();
    if !found {
        println!("skipped: openssl is not installed");
    }
    found
}

/// Passes bytes between the link and the socket until `done` returns true, but at most for
/// [`PATIENCE`].
fn carry(link: &mut Tls, socket: &mut TcpStream, mut done: impl FnMut(&mut Tls) -> bool) {
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let end = Instant::now() + PATIENCE;
    let mut buffer = [0; 4096];
    while !done(link) {
        assert!(Instant::now() < end, "nothing more came: {:?}", link.state());
        let mut wire = Vec::new();
        link.transmit(Time::ZERO, &mut wire);
        socket.write_all(&wire).unwrap();
        match socket.read(&mut buffer) {
            Ok(count) => link.receive(Time::ZERO, &buffer[..count]).unwrap(),
            Err(error) => assert!(error.kind() == std::io::ErrorKind::WouldBlock, "{error}"),
        }
    }
}

fn arrives(link: &mut Tls, socket: &mut TcpStream, wanted: &[u8]) {
    let mut plain = Vec::new();
    carry(link, socket, |link| {
        link.read(&mut plain).unwrap();
        plain.ends_with(wanted)
    });
}

/// Creates a key and a self-signed certificate of the kind that C tor makes: RSA with 2,048 bits.
fn rsa_certificate(folder: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=www.example.net"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn connected(port: u16) -> TcpStream {
    let end = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(socket) => return socket,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the exported keying material from the output of `openssl`.
fn keying_material(output: &str) -> Option<String> {
    let line = output.lines().find_map(|line| line.trim().strip_prefix("Keying material: "))?;
    Some(line.to_lowercase())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn our_client_and_openssls_server_agree() {
    if !there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    rsa_certificate(folder.path());
    for version in ["-tls1_2", "-tls1_3"] {
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let server = Command::new("openssl")
            .args(["s_server", "-accept", &address, "-key", "key.pem", "-cert", "cert.pem"])
            .args([version, "-rev", "-quiet"])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let _server = KillOnDrop(server.unwrap());
        let mut socket = connected(port);
        let mut link = Context::new(NOW).unwrap().connect().unwrap();
        // With `-rev`, the server returns every line with its letters in reverse order.
        link.write(b"stranger\n").unwrap();
        arrives(&mut link, &mut socket, b"regnarts\n");
        assert_eq!(link.state(), State::Open, "{version}");
        assert!(link.peer_certificate().is_some_and(|der| der.len() > 500), "an RSA certificate");
    }
}

#[test]
fn openssls_client_and_our_server_agree_on_bytes_and_keys() {
    if !there() {
        return;
    }
    let context = Context::new(NOW).unwrap();
    for version in ["-tls1_2", "-tls1_3"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let client = Command::new("openssl")
            .args(["s_client", "-connect", &address, version, "-ign_eof"])
            .args(["-keymatexport", LABEL, "-keymatexportlen", "32"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut client = KillOnDrop(client.unwrap());
        let (mut socket, _) = listener.accept().unwrap();
        let mut link = context.accept().unwrap();
        client.0.stdin.as_mut().unwrap().write_all(b"hello\n").unwrap();
        arrives(&mut link, &mut socket, b"hello\n");
        // `openssl` exports without a context. In TLS 1.2, this differs from an empty context.
        let key: Option<[u8; 32]> =
            (version == "-tls1_3").then(|| link.export(LABEL.as_bytes(), b"").unwrap());
        link.write(b"bye\n").unwrap();
        link.close();
        let mut wire = Vec::new();
        link.transmit(Time::ZERO, &mut wire);
        socket.write_all(&wire).unwrap();
        drop(socket);
        let mut output = String::new();
        client.0.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        assert!(output.contains("bye\n"), "{version}: {output}");
        let theirs = keying_material(&output).expect("openssl prints what it exported");
        assert!(key.is_none_or(|key| hex(&key) == theirs), "{version}: {theirs}");
    }
}
