//! A far end that accepts TCP and TLS connections, its clients, and proxies between them.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::program::Program;
use serde_json::Value;
use tempfile::TempDir;

pub const PATIENCE: Duration = Duration::from_secs(30);

/// Lock that lets one test run at a time, because the tests measure time.
pub static TURN: Mutex<()> = Mutex::new(());

pub fn anabranch(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_anabranch")).args(arguments).output().unwrap()
}

/// A far end with an echo server, and the keys of a splitter.
pub struct Far {
    pub folder: TempDir,
    pub program: Program,
    pub udp: SocketAddr,
    pub tcp: SocketAddr,
    pub tls: SocketAddr,
    /// SHA-256 digest of the far end's certificate.
    pub fingerprint: String,
    pub _server: Server,
    pub _turn: MutexGuard<'static, ()>,
}

/// A UDP echo server.
pub struct Server {
    pub over: Arc<AtomicBool>,
    pub thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start() -> (Server, SocketAddr) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (at, over) = (socket.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let until = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 2_048];
            while !until.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    socket.send_to(&buffer[..length], from).unwrap();
                }
            }
        });
        (Server { over, thread: Some(thread) }, at)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

impl Far {
    pub fn start() -> Far {
        Far::start_with(&[])
    }

    pub fn start_with(options: &[&str]) -> Far {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = TempDir::new().unwrap();
        let files = ["far.key", "home.key"].map(|name| folder.path().join(name));
        let [far, home] = files.each_ref().map(|file| file.display().to_string());
        assert!(anabranch(&["key", &far, &home]).status.success());
        add_client(&far, &folder.path().join("other.key").display().to_string());
        let (server, to) = Server::start();
        let to = to.to_string();
        let mut arguments = vec!["merge", "--json", "--to", &to, "--key", &far];
        for listen in ["--listen", "--listen-tcp", "--listen-tls"] {
            arguments.extend([listen, "127.0.0.1:0"]);
        }
        arguments.extend(["--schedule", "uniform", "--seed", "7"]);
        arguments.extend(options);
        let mut program = Program::start(&arguments);
        let about = program.next("listening");
        let address = |key: &str| about[key].as_str().unwrap().parse().unwrap();
        let [udp, tcp, tls] = ["listen", "listen_tcp", "listen_tls"].map(address);
        let fingerprint = about["tls_fingerprint"].as_str().unwrap().to_owned();
        Far { folder, program, udp, tcp, tls, fingerprint, _server: server, _turn: turn }
    }

    pub fn near(&self, paths: &[&str]) -> Near {
        self.near_with(paths, &[])
    }

    pub fn near_with(&self, paths: &[&str], options: &[&str]) -> Near {
        self.near_of("home.key", paths, options)
    }

    /// Starts a splitter with the key file `key`.
    pub fn near_of(&self, key: &str, paths: &[&str], options: &[&str]) -> Near {
        let key = self.folder.path().join(key).display().to_string();
        let (to, tcp) = (self.udp.to_string(), self.tcp.to_string());
        let mut arguments = vec![
            "split",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--to",
            &to,
            "--to-tcp",
            &tcp,
            "--key",
            &key,
            "--schedule",
            "uniform",
            "--every",
            "7p",
            "--seed",
            "7",
        ];
        arguments.extend(paths.iter().flat_map(|path| ["--path", *path]));
        arguments.extend(options);
        let mut program = Program::start(&arguments);
        let listen = program.next("listening")["listen"].as_str().unwrap().parse().unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Near { program, listen, client, sent: 0 }
    }
}

/// Creates the key file `other` for a second client of the far end whose key file is `far`.
pub fn add_client(far: &str, other: &str) {
    let public = |file: &str| {
        let stdout = String::from_utf8(anabranch(&["key", file]).stdout).unwrap();
        stdout.split_whitespace().last().unwrap().to_owned()
    };
    for (file, name, peer) in [(other, "far", far), (far, "other", other)] {
        let peer = format!("{name}={}", public(peer));
        assert!(anabranch(&["key", file, "--peer", &peer]).status.success());
    }
}

impl Near {
    /// Starts a splitter with the settings in `file`.
    pub fn of(file: &Path) -> Near {
        let mut program = Program::start(&["split", "--json", &file.display().to_string()]);
        let listen = program.next("listening")["listen"].as_str().unwrap().parse().unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        Near { program, listen, client, sent: 0 }
    }
}

/// A splitter and a program that uses it.
pub struct Near {
    pub program: Program,
    pub listen: SocketAddr,
    pub client: UdpSocket,
    pub sent: u32,
}

impl Near {
    pub fn is_up(&mut self) {
        self.program.find("far_end", |event| event["state"] == "up");
    }

    /// Waits until all paths work, as the counters show.
    pub fn all_work(&mut self) -> Value {
        self.program.find("stats", |stats| {
            stats["paths"].as_array().unwrap().iter().all(|path| path["state"] == "up")
        })
    }

    /// Sends `count` datagrams to the server, one each millisecond. Returns the numbers of those
    /// that came back, in order of arrival.
    pub fn exchange(&mut self, count: u32) -> Vec<u32> {
        let (mut back, mut room) = (Vec::new(), [0; 2_048]);
        let first = self.sent;
        self.client.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        for number in first..first + count {
            let mut datagram = vec![7; 600];
            datagram[..4].copy_from_slice(&number.to_be_bytes());
            self.client.send_to(&datagram, self.listen).unwrap();
            back.extend(self.take(&mut room).filter(|number| *number >= first));
        }
        self.sent += count;
        let mut last = Instant::now();
        while back.len() < count as usize && last.elapsed() < Duration::from_secs(2) {
            if let Some(number) = self.take(&mut room).filter(|number| *number >= first) {
                back.push(number);
                last = Instant::now();
            }
        }
        back.retain(|number| (first..self.sent).contains(number));
        back
    }

    pub fn take(&self, room: &mut [u8]) -> Option<u32> {
        let length = self.client.recv(room).ok()?;
        Some(u32::from_be_bytes(room[..length][..4].try_into().unwrap()))
    }

    /// Checks that every datagram returns exactly once.
    pub fn passes(&mut self, count: u32) {
        let back = self.exchange(count);
        let distinct: BTreeSet<_> = back.iter().collect();
        assert_eq!(distinct.len(), back.len(), "some came twice");
        assert_eq!(back.len(), count as usize, "some did not come");
    }

    /// Waits until every datagram of an exchange returns. At first one end may not have noticed
    /// yet that a path is down.
    pub fn passes_at_last(&mut self) {
        assert!((0..20).any(|_| self.exchange(100).len() == 100), "they do not pass again");
    }

    /// Checks that nearly all datagrams return in order. Repeats an exchange in which a busy
    /// machine has delayed some datagrams.
    pub fn passes_in_order(&mut self, count: u32) {
        let mut late_counts = Vec::new();
        for _ in 0..5 {
            let back = self.exchange(count);
            assert_eq!(back.len(), count as usize, "some did not come");
            let late = back.windows(2).filter(|two| two[0] > two[1]).count();
            if late <= count as usize / 50 {
                return;
            }
            late_counts.push(late);
        }
        panic!("of {count} came late: {late_counts:?}");
    }

    /// Returns the minimum round-trip time of many single datagrams, one every 10 ms.
    pub fn fastest(&self) -> Duration {
        self.client.set_read_timeout(Some(PATIENCE)).unwrap();
        let trip = |_| {
            thread::sleep(Duration::from_millis(10));
            let begun = Instant::now();
            self.client.send_to(&[7; 100], self.listen).unwrap();
            self.client.recv(&mut [0; 2_048]).unwrap();
            begun.elapsed()
        };
        (0..100).map(trip).min().unwrap()
    }

    pub fn end(mut self) -> Value {
        self.program.signal("-INT");
        self.program.next("summary")
    }
}

/// A proxy's protocol.
#[derive(Clone, Copy, PartialEq)]
pub enum Manner {
    Socks,
    Http,
}

/// A proxy that connects all clients to one address, and records the users' names.
pub struct Proxy {
    pub at: SocketAddr,
    pub over: Arc<AtomicBool>,
    pub open: Arc<Mutex<Vec<TcpStream>>>,
    pub users: Arc<Mutex<Vec<String>>>,
    pub thread: Option<JoinHandle<()>>,
}

/// End of the name of a user whose bytes the proxy delays by [`SLOW`] in each direction.
pub const SLOW_USER: &str = "-slow-1";
pub const SLOW: Duration = Duration::from_millis(400);

impl Proxy {
    pub fn start(manner: Manner, at: Option<SocketAddr>) -> Proxy {
        let listener = TcpListener::bind(at.unwrap_or("127.0.0.1:0".parse().unwrap())).unwrap();
        let at = listener.local_addr().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let (open, users) = (Arc::default(), Arc::default());
        let mut proxy = Proxy { at, over, open, users, thread: None };
        let (over, open, users) =
            (Arc::clone(&proxy.over), Arc::clone(&proxy.open), Arc::clone(&proxy.users));
        proxy.thread = Some(thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (open, users) = (Arc::clone(&open), Arc::clone(&users));
                thread::spawn(move || serve(manner, client, &open, &users));
            }
        }));
        proxy
    }

    /// Stops the proxy with all its connections. Returns its address, whose port is free then.
    pub fn stop(mut self) -> SocketAddr {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.at);
        self.thread.take().unwrap().join().unwrap();
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.at
    }
}

pub fn serve(
    manner: Manner,
    mut client: TcpStream,
    open: &Mutex<Vec<TcpStream>>,
    users: &Mutex<Vec<String>>,
) -> Option<()> {
    let (to, delay) = match manner {
        Manner::Socks => {
            let (to, user) = socks(&mut client, users)?;
            (to, if user.ends_with(SLOW_USER) { SLOW } else { Duration::ZERO })
        }
        Manner::Http => (http(&mut client)?, Duration::ZERO),
    };
    let far = TcpStream::connect(to).ok()?;
    let granted: &[u8] = match manner {
        Manner::Socks => b"\x05\0\0\x01\0\0\0\0\0\0",
        Manner::Http => b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n",
    };
    client.write_all(granted).ok()?;
    let ends = [client, far];
    open.lock().unwrap().extend(ends.iter().map(|end| end.try_clone().unwrap()));
    for (from, to) in [(0, 1), (1, 0)] {
        let (mut from, mut to) = (ends[from].try_clone().unwrap(), ends[to].try_clone().unwrap());
        thread::spawn(move || {
            match delay.is_zero() {
                true => _ = std::io::copy(&mut from, &mut to),
                false => copy_late(&mut from, to.try_clone().unwrap(), delay),
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Some(())
}

/// Copies a stream, and delays each part by `delay`.
pub fn copy_late(from: &mut TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, parts) = mpsc::channel::<(Instant, Vec<u8>)>();
    let writing = thread::spawn(move || {
        for (due, part) in parts {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&part).is_err() {
                return;
            }
        }
    });
    let mut room = [0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut room) {
        if sender.send((Instant::now() + delay, room[..length].to_vec())).is_err() {
            break;
        }
    }
    drop(sender);
    let _ = writing.join();
}

pub fn exactly<const LENGTH: usize>(stream: &mut TcpStream) -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    stream.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

pub fn text(stream: &mut TcpStream) -> Option<String> {
    let [length] = exactly(stream)?;
    let mut text = vec![0; length.into()];
    stream.read_exact(&mut text).ok()?;
    String::from_utf8(text).ok()
}

/// Reads a SOCKS request. Returns its destination and its user name, which may be empty.
pub fn socks(client: &mut TcpStream, users: &Mutex<Vec<String>>) -> Option<(String, String)> {
    let [_, count] = exactly(client)?;
    let mut methods = vec![0; count.into()];
    client.read_exact(&mut methods).ok()?;
    let mut name = String::new();
    if methods.contains(&2) {
        client.write_all(&[5, 2]).ok()?;
        let [_] = exactly(client)?;
        let (user, _password) = (text(client)?, text(client)?);
        users.lock().unwrap().push(user.clone());
        name = user;
        client.write_all(&[1, 0]).ok()?;
    } else {
        client.write_all(&[5, 0]).ok()?;
    }
    let [_, _, _, kind] = exactly(client)?;
    assert_eq!(kind, 1, "the test's far end is an IPv4 address");
    let [a, b, c, d, high, low] = exactly(client)?;
    Some((format!("{a}.{b}.{c}.{d}:{}", u16::from_be_bytes([high, low])), name))
}

pub fn http(client: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(exactly::<1>(client)?);
    }
    let head = String::from_utf8(head).ok()?;
    Some(head.strip_prefix("CONNECT ")?.split(' ').next()?.to_owned())
}

pub fn shares(paths: &Value, field: &str) -> Vec<f64> {
    let counts = paths.as_array().unwrap().iter().map(|path| path[field].as_f64().unwrap());
    let counts: Vec<f64> = counts.collect();
    counts.iter().map(|count| count / counts.iter().sum::<f64>()).collect()
}

pub const THREE: [&str; 3] =
    ["a=addr:127.0.0.2,tcp:", "b=addr:127.0.0.3,tcp:", "c=addr:127.0.0.4,tcp:"];
