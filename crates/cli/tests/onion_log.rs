//! What client, relays and exits of one network tell at the default level: no destination, no payload,
//! no key.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A network of RSA keys that are made anew takes its time on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);
const PAYLOAD: &[u8] = b"payload-that-is-nobodys-business";
const USER: &str = "user-of-the-test";
const NAME: &str = "destination-of-the-test.invalid";

/// Ends the network with the test, however that ends.
struct Network(Child);

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines of a stream, as they come.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (told, lines) = channel();
    thread::spawn(move || {
        BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| told.send(line))
    });
    lines
}

/// Asks the client for a destination: the reply's code, and the connection.
fn ask(proxy: SocketAddr, address: &[u8], port: u16) -> (u8, TcpStream) {
    let mut socket = TcpStream::connect(proxy).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut login = vec![5, 1, 2, 1, USER.len() as u8];
    login.extend_from_slice(USER.as_bytes());
    login.extend_from_slice(&[1, b'p']);
    socket.write_all(&login).unwrap();
    let mut chosen = [0; 4];
    socket.read_exact(&mut chosen).unwrap();
    assert_eq!(chosen, [5, 2, 1, 0], "user and password are taken");
    let request = [&[5, 1, 0], address, &port.to_be_bytes()].concat();
    socket.write_all(&request).unwrap();
    let mut reply = [0; 10];
    socket.read_exact(&mut reply).unwrap();
    (reply[1], socket)
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// What of a key file would give it away in a log: lines of PEM, and hex and base64 of raw bytes.
fn tells(content: &[u8]) -> Vec<String> {
    if let Ok(text) = std::str::from_utf8(content) {
        return text.lines().filter(|line| line.len() >= 40).map(str::to_owned).collect();
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    content.windows(16).step_by(8).map(hex).collect()
}

#[test]
fn no_destination_payload_or_key_is_told_at_the_default_level() {
    let data = tempfile::tempdir().unwrap();
    let server = TcpListener::bind("127.0.0.77:0").unwrap();
    let there = server.local_addr().unwrap();
    let echo = thread::spawn(move || {
        let (mut visitor, _) = server.accept().unwrap();
        let mut said = vec![0; PAYLOAD.len()];
        visitor.read_exact(&mut said).unwrap();
        visitor.write_all(&said).unwrap();
    });
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut network = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    network.args(["up", "--listen", &proxy.to_string(), "--data"]).arg(data.path().join("up"));
    network.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut network = Network(network.spawn().unwrap());
    let out = lines(network.0.stdout.take().unwrap());
    let err = lines(network.0.stderr.take().unwrap());

    let begun = Instant::now();
    let (code, mut socket) = loop {
        // Before it is up nobody listens, or a stream is refused in the end.
        if TcpStream::connect(proxy).is_ok() {
            let asked = ask(proxy, &[1, 127, 0, 0, 77], there.port());
            if asked.0 == 0 || begun.elapsed() > PATIENCE {
                break asked;
            }
        }
        if begun.elapsed() > PATIENCE || network.0.try_wait().unwrap().is_some() {
            drop(network);
            panic!("no network: {:?} {:?}", out.iter().last(), err.iter().last());
        }
        thread::sleep(Duration::from_millis(300));
    };
    assert_eq!(code, 0, "the stream is open");
    socket.write_all(PAYLOAD).unwrap();
    let mut answer = vec![0; PAYLOAD.len()];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(answer, PAYLOAD);
    echo.join().unwrap();
    drop(socket);
    // What fails tempts a program into telling more: a name that is none, an address that no exit lets
    // out to, a port where nobody listens.
    let name = [&[3, NAME.len() as u8], NAME.as_bytes()].concat();
    assert_ne!(ask(proxy, &name, 80).0, 0);
    assert_ne!(ask(proxy, &[1, 192, 0, 2, 77], 80).0, 0);
    assert_ne!(ask(proxy, &[1, 127, 0, 0, 77], there.port()).0, 0);
    thread::sleep(Duration::from_secs(2));

    let keys: Vec<Vec<u8>> = files(data.path())
        .into_iter()
        .filter(|path| path.to_string_lossy().contains("key"))
        .map(|path| fs::read(path).unwrap())
        .collect();
    assert!(keys.len() >= 8, "each node has keys");
    drop(network);
    let told: Vec<String> = out.iter().chain(err.iter()).collect();
    let told = told.join("\n");
    assert!(told.contains("127.0.0.1"), "the log says where programs come in: {told}");
    let payload: String = PAYLOAD.iter().map(|byte| format!("{byte:02x}")).collect();
    let plain = std::str::from_utf8(PAYLOAD).unwrap();
    for secret in ["127.0.0.77", "192.0.2.77", NAME, USER, plain, &payload] {
        assert!(!told.contains(secret), "{secret} is told:\n{told}");
    }
    let lower = told.to_lowercase();
    for secret in keys.iter().flat_map(|content| tells(content)) {
        assert!(!lower.contains(&secret.to_lowercase()), "a key is told:\n{told}");
    }
}
