//! `anabranch split --key` with paths that are TCP connections to `anabranch merge --listen-tcp`:
//! straight, through proxies, mixed with UDP; what ends and comes back, and what strangers get.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod program;

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use program::Program;
use serde_json::Value;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// One test at a time: they are about time.
static TURN: Mutex<()> = Mutex::new(());

fn anabranch(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_anabranch")).args(arguments).output().unwrap()
}

/// A far end with a server that gives everything back, and the keys of a splitter.
struct Far {
    folder: TempDir,
    program: Program,
    udp: SocketAddr,
    tcp: SocketAddr,
    tls: SocketAddr,
    /// The SHA-256 of its certificate.
    fingerprint: String,
    _server: Server,
    _turn: MutexGuard<'static, ()>,
}

/// A UDP server that gives everything back.
struct Server {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start() -> (Server, SocketAddr) {
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
    fn start() -> Far {
        Far::start_with(&[])
    }

    fn start_with(options: &[&str]) -> Far {
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

    fn near(&self, paths: &[&str]) -> Near {
        self.near_with(paths, &[])
    }

    fn near_with(&self, paths: &[&str], options: &[&str]) -> Near {
        self.near_of("home.key", paths, options)
    }

    /// A splitter with the key file of this name.
    fn near_of(&self, key: &str, paths: &[&str], options: &[&str]) -> Near {
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

/// Makes the key file `other` of a second client of the far end with the key file `far`.
fn add_client(far: &str, other: &str) {
    let public = |file: &str| {
        let told = String::from_utf8(anabranch(&["key", file]).stdout).unwrap();
        told.split_whitespace().last().unwrap().to_owned()
    };
    for (file, name, peer) in [(other, "far", far), (far, "other", other)] {
        let peer = format!("{name}={}", public(peer));
        assert!(anabranch(&["key", file, "--peer", &peer]).status.success());
    }
}

impl Near {
    /// A splitter with the settings in `file`.
    fn of(file: &Path) -> Near {
        let mut program = Program::start(&["split", "--json", &file.display().to_string()]);
        let listen = program.next("listening")["listen"].as_str().unwrap().parse().unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        Near { program, listen, client, sent: 0 }
    }
}

/// A splitter and a program that uses it.
struct Near {
    program: Program,
    listen: SocketAddr,
    client: UdpSocket,
    sent: u32,
}

impl Near {
    fn is_up(&mut self) {
        self.program.find("far_end", |event| event["state"] == "up");
    }

    /// Waits until all paths work, as the counters show.
    fn all_work(&mut self) -> Value {
        self.program.find("stats", |stats| {
            stats["paths"].as_array().unwrap().iter().all(|path| path["state"] == "up")
        })
    }

    /// Sends `count` datagrams to the server, one each millisecond. Returns the numbers of those
    /// that came back, in order of arrival.
    fn exchange(&mut self, count: u32) -> Vec<u32> {
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

    fn take(&self, room: &mut [u8]) -> Option<u32> {
        let length = self.client.recv(room).ok()?;
        Some(u32::from_be_bytes(room[..length][..4].try_into().unwrap()))
    }

    /// Everything that is sent comes back, and once.
    fn passes(&mut self, count: u32) {
        let back = self.exchange(count);
        let distinct: BTreeSet<_> = back.iter().collect();
        assert_eq!(distinct.len(), back.len(), "some came twice");
        assert_eq!(back.len(), count as usize, "some did not come");
    }

    /// Everything that is sent comes back again, after a while: one end may not know yet that a path
    /// is down.
    fn passes_at_last(&mut self) {
        assert!((0..20).any(|_| self.exchange(100).len() == 100), "they do not pass again");
    }

    /// Nearly all comes back in order, too. A machine that does not let a thread run when it should
    /// makes some late: such an exchange says nothing, and another one is made.
    fn passes_in_order(&mut self, count: u32) {
        let mut told = Vec::new();
        for _ in 0..5 {
            let back = self.exchange(count);
            assert_eq!(back.len(), count as usize, "some did not come");
            let late = back.windows(2).filter(|two| two[0] > two[1]).count();
            if late <= count as usize / 50 {
                return;
            }
            told.push(late);
        }
        panic!("of {count} came late: {told:?}");
    }

    /// The time of the fastest of many round trips of a lone datagram, one each 10 ms.
    fn fastest(&self) -> Duration {
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

    fn end(mut self) -> Value {
        self.program.signal("-INT");
        self.program.next("summary")
    }
}

/// A proxy's protocol.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Socks,
    Http,
}

/// A proxy that connects whoever asks to one place, and keeps the users' names.
struct Proxy {
    at: SocketAddr,
    over: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    users: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

/// End of the name of a user whose bytes the proxy delays by [`SLOW`] in each direction.
const SLOW_USER: &str = "-slow-1";
const SLOW: Duration = Duration::from_millis(400);

impl Proxy {
    fn start(manner: Manner, at: Option<SocketAddr>) -> Proxy {
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

    /// Ends with all its connections; its port is free then.
    fn stop(mut self) -> SocketAddr {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.at);
        self.thread.take().unwrap().join().unwrap();
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.at
    }
}

fn serve(
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

/// Copies a stream, each part of it this much later.
fn copy_late(from: &mut TcpStream, mut to: TcpStream, delay: Duration) {
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

fn exactly<const LENGTH: usize>(stream: &mut TcpStream) -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    stream.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn text(stream: &mut TcpStream) -> Option<String> {
    let [length] = exactly(stream)?;
    let mut text = vec![0; length.into()];
    stream.read_exact(&mut text).ok()?;
    String::from_utf8(text).ok()
}

/// The destination of a request, and its user, who may have no name.
fn socks(client: &mut TcpStream, users: &Mutex<Vec<String>>) -> Option<(String, String)> {
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

fn http(client: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(exactly::<1>(client)?);
    }
    let head = String::from_utf8(head).ok()?;
    Some(head.strip_prefix("CONNECT ")?.split(' ').next()?.to_owned())
}

fn shares(paths: &Value, field: &str) -> Vec<f64> {
    let counts = paths.as_array().unwrap().iter().map(|path| path[field].as_f64().unwrap());
    let counts: Vec<f64> = counts.collect();
    counts.iter().map(|count| count / counts.iter().sum::<f64>()).collect()
}

const THREE: [&str; 3] =
    ["a=addr:127.0.0.2,tcp:", "b=addr:127.0.0.3,tcp:", "c=addr:127.0.0.4,tcp:"];

#[test]
fn three_streams_carry_all_in_order_and_each_its_share() {
    let mut far = Far::start();
    let mut near = far.near(&THREE);
    near.is_up();
    near.all_work();
    near.passes_in_order(1_500);
    let summary = near.end();
    for field in ["up_packets", "down_packets"] {
        let shares = shares(&summary["paths"], field);
        assert!(shares.iter().all(|share| *share > 0.2), "{field}: {shares:?}");
    }
    for path in summary["paths"].as_array().unwrap() {
        assert_eq!(path["stream"]["kind"], "tcp", "{path}");
    }
    far.program.next("ended");
    far.program.signal("-INT");
    let summary = far.program.next("summary");
    assert_eq!(summary["missed"], 0);
}

#[test]
fn streams_and_datagrams_mix() {
    let far = Far::start();
    let socks = Proxy::start(Manner::Socks, None);
    let http = Proxy::start(Manner::Http, None);
    let (by_socks, by_http) = (format!("s=socks5-tcp:{}", socks.at), format!("h=http:{}", http.at));
    let mut near = far.near(&["u=addr:127.0.0.2", "t=addr:127.0.0.3,tcp:", &by_socks, &by_http]);
    near.is_up();
    near.all_work();
    near.passes(1_000);
    let summary = near.end();
    let kinds: Vec<_> = summary["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| path["stream"]["kind"].as_str().unwrap_or("udp").to_owned())
        .collect();
    assert_eq!(kinds, ["udp", "tcp", "socks5-tcp", "http"]);
    let shares = shares(&summary["paths"], "down_packets");
    assert!(shares.iter().all(|share| *share > 0.1), "{shares:?}");
}

/// Neither Nagle's algorithm, a delayed acknowledgement nor a timer holds a lone datagram back. The
/// fastest of many counts: the machine may be busy, but not each time.
#[test]
fn at_idle_a_stream_takes_hardly_longer_than_datagrams() {
    let far = Far::start();
    let (socks, http) = (Proxy::start(Manner::Socks, None), Proxy::start(Manner::Http, None));
    let fastest = |path: &str| {
        let mut near = far.near_with(&[path], &["--tls-fingerprint", &far.fingerprint]);
        near.is_up();
        near.all_work();
        near.fastest()
    };
    let datagrams = fastest("u=addr:127.0.0.2");
    let kinds = [
        "t=addr:127.0.0.2,tcp:".to_owned(),
        format!("e=addr:127.0.0.2,tls:{}", far.tls),
        format!("s=socks5-tcp:{}", socks.at),
        format!("h=http:{}", http.at),
    ];
    for kind in kinds {
        let stream = fastest(&kind);
        let told = format!("{kind}: {stream:?}, by datagrams {datagrams:?}");
        assert!(stream < datagrams + Duration::from_millis(1), "{told}");
    }
}

#[test]
fn a_proxy_that_is_restarted_takes_its_path_down_and_no_session_is_lost() {
    let far = Far::start();
    let proxy = Proxy::start(Manner::Socks, None);
    let path = format!("s=socks5-tcp:{}", proxy.at);
    let mut near = far.near(&["u=addr:127.0.0.2", &path]);
    near.is_up();
    near.all_work();
    near.passes(300);
    let at = proxy.stop();
    let down = near.program.find("path", |event| event["state"] == "down");
    assert_eq!((&down["path"], &down["reason"]), (&"s".into(), &"dialling".into()));
    let warning = near.program.find("warning", |warning| {
        warning["text"].as_str().unwrap().contains("connection refused")
    });
    let text = warning["text"].as_str().unwrap();
    assert!(text.starts_with("path 's' (socks5-tcp): the proxy "), "{text}");
    near.passes(300);
    let _again = Proxy::start(Manner::Socks, Some(at));
    near.program.find("path", |event| event["state"] == "up" && event["path"] == "s");
    near.passes(300);
    let summary = near.end();
    assert!(summary["paths"][1]["stream"]["ended"].as_u64().unwrap() >= 1, "{summary}");
    assert_eq!(summary["sessions"], 1, "{summary}");
}

#[test]
fn each_onion_circuit_is_a_path_and_a_user_of_its_own() {
    let far = Far::start();
    let tor = Proxy::start(Manner::Socks, None);
    let mut near = far.near_with(&["o=onion:3"], &["--onion-socks", &tor.at.to_string()]);
    near.is_up();
    let stats = near.all_work();
    let names: Vec<_> =
        stats["paths"].as_array().unwrap().iter().map(|path| path["name"].clone()).collect();
    assert_eq!(names, ["o-1", "o-2", "o-3"]);
    near.passes(300);
    let users = tor.users.lock().unwrap().clone();
    assert_eq!(users.iter().collect::<BTreeSet<_>>().len(), 3, "{users:?}");
    assert_eq!(near.end()["paths"][0]["stream"]["kind"], "onion");
}

/// Its round trip of 800 ms is half above what the far end waits for; others carry meanwhile.
#[test]
fn a_slow_circuit_gives_way_to_that_of_a_new_user() {
    let far = Far::start();
    let tor = Proxy::start(Manner::Socks, None);
    let paths = ["u=addr:127.0.0.2", "slow=onion:2"];
    let mut near = far.near_with(&paths, &["--onion-socks", &tor.at.to_string()]);
    near.is_up();
    near.all_work();
    let begun = Instant::now();
    let others = |users: &Mutex<Vec<String>>| {
        let users = users.lock().unwrap();
        users.iter().filter(|user| user.contains('+')).cloned().collect::<Vec<_>>()
    };
    while others(&tor.users).is_empty() {
        near.exchange(200);
        assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", tor.users);
    }
    assert!(begun.elapsed() > Duration::from_secs(10), "{:?}", begun.elapsed());
    let warning = near.program.find("warning", |_| true);
    let text = warning["text"].as_str().unwrap();
    assert!(text.starts_with("path 'slow-1' (onion): its circuit has been "), "{text}");
    near.program.find("stats", |stats| {
        let rtt = stats["paths"][1]["rtt_ms"].as_f64();
        stats["paths"][1]["state"] == "up" && rtt.is_some_and(|rtt| rtt < 200.0)
    });
    near.passes(300);
    let summary = near.end();
    let replaced = |path: usize| summary["paths"][path]["stream"]["replaced"].clone();
    assert_eq!([replaced(1), replaced(2)], [1, 0], "{summary}");
    assert_eq!(others(&tor.users).len(), 1, "{:?}", tor.users);
}

/// A stranger gets no answer, and no close that shows at which byte it went wrong.
#[test]
fn a_stranger_gets_silence_and_hurts_no_session() {
    let mut far = Far::start();
    let mut near = far.near(&THREE);
    near.is_up();
    near.all_work();
    let says: [&[u8]; 6] = [
        b"\0\0",
        b"\xff\xff\0",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        &[&[0, 40][..], &[7; 40]].concat(),
        &[&[0, 200][..], &[7; 100]].concat(),
        b"",
    ];
    let mut strangers: Vec<TcpStream> = says
        .iter()
        .map(|says| {
            let mut stream = TcpStream::connect(far.tcp).unwrap();
            stream.write_all(says).unwrap();
            stream
        })
        .collect();
    thread::sleep(Duration::from_secs(1));
    for (stranger, says) in strangers.iter_mut().zip(says) {
        stranger.set_nonblocking(true).unwrap();
        let heard = stranger.read(&mut [0; 64]).map_err(|error| error.kind());
        assert_eq!(heard, Err(ErrorKind::WouldBlock), "{says:?}");
    }
    near.passes(300);
    far.program.find("stats", |stats| {
        (&stats["streams"]["bound"], &stats["streams"]["strangers"]) == (&3.into(), &6.into())
    });
    // After their time they are closed.
    let closed = |stranger: &mut TcpStream| {
        stranger.set_nonblocking(false).unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        stranger.read(&mut [0; 64]).is_ok_and(|length| length == 0)
    };
    assert!(strangers.iter_mut().all(closed));
    near.passes(300);
}

/// Ten thousand connections without a handshake: the far end keeps 1,024 of them, and serves its
/// client, and one that comes meanwhile.
#[test]
fn ten_thousand_connections_without_a_handshake_hurt_nobody() {
    let mut far = Far::start();
    let at = far.tcp;
    flood(&mut far, at, b"");
}

/// The same with the first half of a ClientHello on each: TLS keeps its state for them too.
#[test]
fn ten_thousand_halves_of_a_tls_hello_hurt_nobody() {
    let mut far = Far::start();
    let at = far.tls;
    flood(&mut far, at, b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03");
}

fn flood(far: &mut Far, at: SocketAddr, says: &[u8]) {
    let mut near = far.near(&THREE[..2]);
    near.is_up();
    let mut held = Vec::new();
    for n in 0..10_000 {
        let mut stranger = TcpStream::connect(at).unwrap();
        // It may be closed already: there are younger ones.
        let _ = stranger.write_all(says);
        held.push(stranger);
        if n % 1_000 == 999 {
            // The limit of open files on this side; the far end has closed all but the last.
            held.drain(..500);
            near.passes(50);
        }
        if held.len() > 600 {
            held.drain(..100);
        }
    }
    far.program.find("stats", |stats| stats["streams"]["strangers"].as_u64().unwrap() <= 1_024);
    let memory = fs::read_to_string(format!("/proc/{}/status", far.program.child.id())).unwrap();
    let line = memory.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 200 << 10, "{line}");
    near.passes(300);
    drop(near);
    let mut other = far.near(&THREE[1..]);
    other.is_up();
    other.passes(300);
}

#[test]
fn streams_in_tls_mix_with_others_and_nothing_of_them_shows() {
    let far = Far::start();
    let paths =
        ["u=addr:127.0.0.2", "t=addr:127.0.0.3,tcp:", &format!("e=addr:127.0.0.4,tls:{}", far.tls)];
    let mut near = far.near_with(&paths, &["--tls-fingerprint", &far.fingerprint]);
    near.is_up();
    near.all_work();
    near.passes(1_500);
    let summary = near.end();
    assert_eq!(summary["paths"][2]["stream"]["kind"], "tls");
    for field in ["up_packets", "down_packets"] {
        let shares = shares(&summary["paths"], field);
        assert!(shares.iter().all(|share| *share > 0.2), "{field}: {shares:?}");
    }
}

/// A path whose far end is another, or none, says so in one line; the others go on.
#[test]
fn a_wrong_certificate_and_a_port_without_tls_are_told_and_other_paths_go_on() {
    let far = Far::start();
    let other = "0".repeat(64);
    let cases = [
        (far.tls, &other, format!("the certificate received has the SHA-256 {}", far.fingerprint)),
        (far.tcp, &far.fingerprint, "it does not answer in time".to_owned()),
    ];
    for (at, pin, words) in cases {
        let path = format!("e=tls:{at}");
        let mut near = far.near_with(&["u=addr:127.0.0.2", &path], &["--tls-fingerprint", pin]);
        let warning = near.program.find("warning", |warning| {
            let starts = "path 'e' (tls): the TLS connection with the far end failed: ";
            warning["text"].as_str().unwrap().starts_with(starts)
        });
        assert!(warning["text"].as_str().unwrap().contains(&words), "{warning}");
        near.passes(200);
        assert_eq!(near.end()["paths"][1]["up_packets"], 0);
    }
}

#[test]
fn a_path_in_tls_needs_a_certificate_to_compare_with() {
    let fixed = ["split", "--check", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"];
    let far = Far::start();
    let key = far.folder.path().join("home.key").display().to_string();
    let output =
        anabranch(&[&fixed[..], &["--key", &key, "--path", "a=tls:127.0.0.1:443"]].concat());
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("--tls-fingerprint") && told.contains("--tls-ca"), "{told}");
}

/// A web server for one client: it says what it was asked for.
fn web() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let serving = thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut room = [0; 4_096];
            let Ok(length) = client.read(&mut room) else { continue };
            let Some(line) = room[..length].split(|&byte| byte == b'\r').next() else { continue };
            if line == b"GET /end HTTP/1.1" {
                return;
            }
            let _ = client.write_all(&[b"HTTP/1.1 200 OK\r\n\r\n", line].concat());
        }
    });
    (at, serving)
}

/// Strangers at both ports see the web site: those who speak HTTP, and those who speak nothing that
/// is known. Who comes in TLS gets it in TLS. A client's recorded bytes are a stranger's.
#[test]
fn strangers_see_the_web_server_behind_and_clients_do_not() {
    let (server, serving) = web();
    let mut far = Far::start_with(&["--behind", &server.to_string()]);
    let tls = format!("e=addr:127.0.0.3,tls:{}", far.tls);
    let recorder = Recorder::start(far.tcp);
    let recorded = format!("r=addr:127.0.0.2,tcp:{}", recorder.at);
    let mut near = far.near_with(&[&recorded, &tls], &["--tls-fingerprint", &far.fingerprint]);
    near.is_up();
    near.all_work();
    near.passes(300);
    let ask = |at: SocketAddr, says: &[u8]| {
        let mut stranger = TcpStream::connect(at).unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        stranger.write_all(says).unwrap();
        let mut heard = Vec::new();
        let _ = stranger.read_to_end(&mut heard);
        String::from_utf8_lossy(&heard).into_owned()
    };
    for at in [far.tcp, far.tls] {
        let heard = ask(at, b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(heard.ends_with("GET /page HTTP/1.1"), "{heard}");
    }
    // What a client has sent, once more: the far end knows each packet once.
    let replayed = recorder.recorded();
    assert!(replayed.len() > 100, "{}", replayed.len());
    let heard = ask(far.tcp, &replayed);
    assert!(heard.starts_with("HTTP/1.1 200 OK"), "{heard}");
    // A lone beginning of a packet waits five seconds for the rest.
    let heard = ask(far.tcp, b"\0\x40hello");
    assert!(heard.starts_with("HTTP/1.1 200 OK"), "{heard}");
    far.program.find("stats", |stats| stats["streams"]["handed"] == 4);
    near.passes(300);
    assert_eq!(far.program.find("stats", |_| true)["streams"]["bound"], 2);
    assert_eq!(near.end()["sessions"], 1);
    ask(server, b"GET /end HTTP/1.1\r\n\r\n");
    serving.join().unwrap();
}

/// A relay to the far end that keeps what the near end sends first.
struct Recorder {
    at: SocketAddr,
    kept: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    fn start(to: SocketAddr) -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, kept) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let record = Arc::clone(&kept);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let far = TcpStream::connect(to).unwrap();
                let ends = [client.try_clone().unwrap(), far.try_clone().unwrap()];
                let record = Arc::clone(&record);
                thread::spawn(move || copy_recorded(client, far, &record));
                let [mut client, mut far] = ends;
                thread::spawn(move || std::io::copy(&mut far, &mut client));
            }
        });
        Recorder { at, kept }
    }

    fn recorded(&self) -> Vec<u8> {
        self.kept.lock().unwrap().clone()
    }
}

/// Copies a stream, and keeps its first bytes.
fn copy_recorded(mut from: TcpStream, mut to: TcpStream, kept: &Mutex<Vec<u8>>) {
    let mut room = [0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut room) {
        let mut kept = kept.lock().unwrap();
        if kept.len() < 4_096 {
            kept.extend_from_slice(&room[..length]);
        }
        drop(kept);
        if to.write_all(&room[..length]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn what_is_no_far_end_is_told_in_one_line_and_other_paths_go_on() {
    let far = Far::start();
    let banner = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = banner.local_addr().unwrap();
    thread::spawn(move || {
        for mut client in banner.incoming().map_while(Result::ok) {
            let _ = client.write_all(b"\0\0 this is no far end");
        }
    });
    let wrong = format!("w=tcp:{at}");
    let mut near = far.near(&["u=addr:127.0.0.2", &wrong]);
    let mut warned = None;
    let keep = |event: &Value, warned: &mut Option<Value>| {
        if event["event"] == "warning" {
            warned.get_or_insert(event.clone());
        }
    };
    let state = near.program.until("far_end", |event| keep(event, &mut warned));
    assert_eq!(state["state"], "up", "{state}");
    let warning = warned.unwrap_or_else(|| near.program.next("warning"));
    let text = warning["text"].as_str().unwrap();
    assert!(
        text.starts_with("path 'w' (tcp): the program at the other end is not 'anabranch merge'"),
        "{text}"
    );
    near.passes(300);
}

/// A server that says this to each client that has spoken, and then `again`, without end; or hangs
/// up if that is nothing.
fn hostile(says: &'static [u8], again: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut heard = [0; 1_024];
                // A far end that is none does not wait for a word.
                let _ = client.set_read_timeout(Some(Duration::from_millis(500)));
                let _ = client.read(&mut heard);
                let _ = client.write_all(says);
                while !again.is_empty() && client.write_all(&again.repeat(64)).is_ok() {
                    thread::sleep(Duration::from_millis(20));
                }
                let _ = client.shutdown(Shutdown::Write);
                while client.read(&mut heard).is_ok_and(|length| length > 0) {}
            });
        }
    });
    at
}

/// Maximum memory of a program, resident, in KiB.
fn peak_kib(program: &Program) -> u64 {
    let memory = fs::read_to_string(format!("/proc/{}/status", program.child.id())).unwrap();
    let line = memory.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Wrong credentials, garbage, half an answer, a banner without end, a close after one byte, and a
/// far end that is none or that lies: each is one line with the path's name.
#[test]
fn each_hostile_server_is_one_line_with_its_paths_name_and_another_path_goes_on() {
    const ZERO: &[u8] = b"\x05\0\x05\0\0\x01\0\0\0\0\0\0\0\0";
    const MOST: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n\xff\xff\0";
    const HALF: &str = "closed the connection before its answer was complete";
    const SOCKS: &str = "socks5-tcp:";
    let cases: [(&str, &'static [u8], &'static [u8], &str); 15] = [
        ("socks5-tcp:anna:secret@", b"\x05\x02\x01\x01", b"", "refuses the user name"),
        ("http:anna:secret@", b"HTTP/1.1 407 No\r\n\r\n", b"", "refuses the user name"),
        (SOCKS, b"SSH-2.0-OpenSSH_9.2\r\n", b"", "does not speak the protocol"),
        ("http:", b"SSH-2.0-OpenSSH_9.2\r\n", b"", "does not speak the protocol"),
        (SOCKS, b"\x05\0\x05\0\0", b"", HALF),
        ("http:", b"HTTP/1.1 200 OK\r\nVia: a", b"", HALF),
        (SOCKS, b"\x05", b"", HALF),
        ("http:", b"H", b"", HALF),
        (SOCKS, b"", b"\x05", "not offered"),
        ("http:", b"HTTP/1.1 200 OK\r\nVia: a", b"aaaa", "sent more than 8192 bytes"),
        // After the proxy's answer: lengths of 0 and of 65,535, a lie, and packets of nobody.
        (SOCKS, ZERO, b"", "announces a packet of 0 bytes"),
        ("http:", MOST, b"", "announces a packet of 65535 bytes"),
        ("tcp:", b"\0\x64 less than a hundred bytes", b"", "its other end closed it"),
        ("tcp:", b"", b"\0\x20 12345678901234567890123456789 1", "no answer from a far end"),
        (SOCKS, b"", b"", HALF),
    ];
    let far = Far::start();
    let named = cases.iter().enumerate();
    let paths: Vec<String> = named
        .map(|(n, (kind, says, again, _))| format!("bad-{n}={kind}{}", hostile(says, again)))
        .collect();
    let mut all = vec!["u=addr:127.0.0.2"];
    all.extend(paths.iter().map(String::as_str));
    let mut near = far.near_with(&all, &["--same-egress"]);
    let mut told: Vec<String> = Vec::new();
    let mut state = Value::Null;
    while state != "up" {
        let mut keep = |event: &Value| {
            if event["event"] == "warning" {
                told.push(event["text"].as_str().unwrap().to_owned());
            }
        };
        state = near.program.until("far_end", &mut keep)["state"].clone();
    }
    while told.len() < cases.len() {
        told.push(near.program.next("warning")["text"].as_str().unwrap().to_owned());
    }
    near.passes_at_last();
    for (n, (kind, _, _, words)) in cases.iter().enumerate() {
        let word = kind.split(':').next().unwrap();
        let start = format!("path 'bad-{n}' ({word}): ");
        let of: Vec<_> = told.iter().filter(|text| text.starts_with(&start)).collect();
        assert!(of.len() == 1 && of[0].contains(words), "{start}{words}: {told:#?}");
    }
    assert!(!told.iter().any(|text| text.contains("secret") || text.contains(char::is_control)));
    assert!(peak_kib(&near.program) < 100 << 10, "{} KiB", peak_kib(&near.program));
    let summary = near.end();
    assert_eq!(summary["sessions"], 1, "{summary}");
}

/// A relay to the far end that stops to carry its answers as long as it is shut.
struct Valve {
    at: SocketAddr,
    is_shut: Arc<AtomicBool>,
}

impl Valve {
    fn start(to: SocketAddr) -> Valve {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let is_shut: Arc<AtomicBool> = Arc::default();
        let shut = Arc::clone(&is_shut);
        thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                let mut far = TcpStream::connect(to).unwrap();
                let (mut up, mut answers) = (far.try_clone().unwrap(), client.try_clone().unwrap());
                let shut = Arc::clone(&shut);
                thread::spawn(move || std::io::copy(&mut client, &mut up));
                thread::spawn(move || {
                    let mut room = [0; 4_096];
                    while let Ok(length @ 1..) = far.read(&mut room) {
                        while shut.load(Ordering::Relaxed) {
                            thread::sleep(Duration::from_millis(1));
                        }
                        if answers.write_all(&room[..length]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Valve { at, is_shut }
    }
}

/// The far end drops what is too old for a client that does not read; its memory stays, and the
/// session goes on when the client reads again.
#[test]
fn a_client_that_does_not_read_costs_no_memory_and_no_session() {
    let mut far = Far::start();
    let valve = Valve::start(far.tcp);
    let mut near = far.near(&["u=addr:127.0.0.2", &format!("v=tcp:{}", valve.at)]);
    near.is_up();
    near.all_work();
    near.passes(300);
    let before = peak_kib(&far.program);
    valve.is_shut.store(true, Ordering::Relaxed);
    let aged = |stats: &Value| stats["streams"]["aged"].as_u64().unwrap();
    let mut stats = far.program.next("stats");
    let begun = Instant::now();
    while aged(&stats) == 0 {
        // More than the sockets between them hold, before the path is down.
        for _ in 0..4_000 {
            // The number 0, which no later exchange waits for.
            near.client.send_to(&[0; 1_300], near.listen).unwrap();
        }
        thread::sleep(Duration::from_millis(500));
        stats = far.program.next("stats");
        assert!(begun.elapsed() < PATIENCE, "nothing grew too old: {stats}");
    }
    // What comes back late is not taken for a later answer.
    near.client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    while near.client.recv(&mut [0; 2_048]).is_ok() {}
    let grown = peak_kib(&far.program).saturating_sub(before);
    assert!(grown < 20 << 10, "{grown} KiB more");
    near.program.find("path", |event| event["path"] == "v" && event["state"] == "down");
    valve.is_shut.store(false, Ordering::Relaxed);
    near.program.find("path", |event| event["path"] == "v" && event["state"] == "up");
    near.passes_at_last();
    assert_eq!(near.end()["sessions"], 1);
}

/// Two relays to the far end. While they are crossed, the packets of each one's client go on by the
/// stream of the other's.
struct Crossing {
    at: [SocketAddr; 2],
    is_crossed: Arc<AtomicBool>,
}

impl Crossing {
    fn start(to: SocketAddr) -> Crossing {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let at = listeners.each_ref().map(|one| one.local_addr().unwrap());
        let is_crossed: Arc<AtomicBool> = Arc::default();
        let streams: Arc<[Mutex<Option<TcpStream>>; 2]> = Arc::default();
        for (place, listener) in listeners.into_iter().enumerate() {
            let (crossed, streams) = (Arc::clone(&is_crossed), Arc::clone(&streams));
            thread::spawn(move || {
                for client in listener.incoming().map_while(Result::ok) {
                    let mut far = TcpStream::connect(to).unwrap();
                    *streams[place].lock().unwrap() = Some(far.try_clone().unwrap());
                    let mut answers = client.try_clone().unwrap();
                    let (crossed, streams) = (Arc::clone(&crossed), Arc::clone(&streams));
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut far, &mut answers);
                        let _ = answers.shutdown(Shutdown::Both);
                    });
                    thread::spawn(move || cross(client, place, &crossed, &streams));
                }
            });
        }
        Crossing { at, is_crossed }
    }
}

/// Passes whole packets of a client on, by the stream of its place or of the other.
fn cross(
    mut client: TcpStream,
    place: usize,
    crossed: &AtomicBool,
    streams: &[Mutex<Option<TcpStream>>; 2],
) -> Option<()> {
    loop {
        let length = exactly::<2>(&mut client)?;
        let mut packet = vec![0; u16::from_be_bytes(length).into()];
        client.read_exact(&mut packet).ok()?;
        let to = if crossed.load(Ordering::Relaxed) { 1 - place } else { place };
        let mut stream = streams[to].lock().unwrap();
        let _ = stream.as_mut()?.write_all(&[&length[..], &packet].concat());
    }
}

/// The far end closes a stream by which another client's packet comes. Both clients dial again.
#[test]
fn streams_that_are_spliced_to_each_others_sessions_end_and_no_session_does() {
    let far = Far::start();
    let crossing = Crossing::start(far.tcp);
    let mut nears = ["home.key", "other.key"].into_iter().zip(crossing.at).enumerate().map(
        |(place, (key, at))| {
            let address = format!("u=addr:127.0.0.{}", place + 2);
            far.near_of(key, &[&address, &format!("x=tcp:{at}")], &[])
        },
    );
    let mut nears: [Near; 2] = std::array::from_fn(|_| nears.next().unwrap());
    for near in &mut nears {
        near.is_up();
        near.all_work();
        near.passes(200);
    }
    crossing.is_crossed.store(true, Ordering::Relaxed);
    let [one, other] = &mut nears;
    thread::scope(|scope| {
        for near in [one, other] {
            scope.spawn(move || near.exchange(200));
        }
    });
    for near in &mut nears {
        near.program.find("path", |event| event["path"] == "x" && event["state"] == "down");
    }
    crossing.is_crossed.store(false, Ordering::Relaxed);
    for near in &mut nears {
        near.program.find("path", |event| event["path"] == "x" && event["state"] == "up");
        near.passes_at_last();
    }
    for near in nears {
        let summary = near.end();
        assert_eq!(summary["sessions"], 1, "{summary}");
        assert!(summary["paths"][1]["stream"]["ended"].as_u64().unwrap() >= 1, "{summary}");
    }
}

/// The packets in a pcapng file of this machine's byte order.
fn captured(file: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(file).unwrap();
    let number = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut packets) = (0, Vec::new());
    while at < bytes.len() {
        // An enhanced packet block: type, length, interface, time (two words), captured length,
        // original length, packet.
        if number(at) == 6 {
            packets.push(bytes[at + 28..][..number(at + 20)].to_vec());
        }
        at += number(at + 4);
    }
    packets
}

/// A trace has the lengths of a stream's segments, and a capture their bytes, as a relay saw them.
#[test]
fn captures_hold_the_bytes_that_passed_a_stream() {
    const HEADERS: usize = 20 + 32;
    let far = Far::start();
    let recorder = Recorder::start(far.tcp);
    let file = |name: &str| far.folder.path().join(name).display().to_string();
    let (trace, pcap) = (file("trace.parquet"), file("pcap"));
    let options = ["--trace", &trace, "--pcap", &pcap, "--tls-fingerprint", &far.fingerprint];
    let recorded = format!("r=addr:127.0.0.3,tcp:{}", recorder.at);
    let tls = format!("e=addr:127.0.0.4,tls:{}", far.tls);
    let mut near = far.near_with(&["u=addr:127.0.0.2", &recorded, &tls], &options);
    near.is_up();
    near.all_work();
    near.passes(600);
    near.program.signal("-INT");
    near.program.next("summary");
    assert!(near.program.ended().0.success());
    let of = |name: &str, server: SocketAddr| {
        let packets = captured(&Path::new(&pcap).join(format!("{name}.pcapng")));
        let is_up = |packet: &[u8]| packet[22..24] == server.port().to_be_bytes();
        let (up, down): (Vec<_>, Vec<_>) = packets.into_iter().partition(|packet| is_up(packet));
        [up, down]
    };
    let join = |packets: &[Vec<u8>]| {
        packets.iter().flat_map(|packet| &packet[HEADERS..]).copied().collect::<Vec<u8>>()
    };
    let seen = of("r", recorder.at);
    let kept = recorder.recorded();
    assert!(kept.len() > 4_000 && join(&seen[0]).starts_with(&kept), "{}", kept.len());
    let in_tls = of("e", far.tls);
    for bytes in in_tls.each_ref().map(|packets| join(packets)) {
        assert!(bytes.starts_with(&[23, 3, 3]) && bytes.len() > 50_000, "application data");
    }
    let read = anabranch_capture::Trace::open(Path::new(&trace)).unwrap();
    assert_eq!(
        BTreeSet::from_iter(&read.facts().streams),
        ["e", "r"].map(String::from).iter().collect()
    );
    let mut lengths = vec![[0, 0]; 3];
    let add = |row: &anabranch_capture::Row<'_>| {
        lengths[row.path as usize][usize::from(row.size < 0)] += row.size.unsigned_abs() as usize;
    };
    read.for_each(add).unwrap();
    for (path, seen) in [(1, &seen), (2, &in_tls)] {
        let sums = seen.each_ref().map(|packets| packets.iter().map(Vec::len).sum::<usize>());
        assert_eq!(lengths[path], sums, "path {path}");
    }
    assert!(lengths[0].iter().all(|bytes| *bytes > 50_000), "{lengths:?}");
}

#[test]
fn without_a_far_end_a_stream_is_refused_with_what_to_do() {
    let fixed = ["split", "--check", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"];
    let output = anabranch(&[&fixed[..], &["--path", "a=tcp:"]].concat());
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("path 'a' is a TCP connection, which needs a far end"), "{told}");
    assert!(told.contains("--listen-tcp"), "{told}");
}

#[test]
fn streams_through_one_interface_are_one_path_unless_proxies_set_them_apart() {
    let far = Far::start();
    let key = far.folder.path().join("home.key").display().to_string();
    let check = |paths: &[&str]| {
        let fixed = ["split", "--check", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--key"];
        let paths: Vec<_> = paths.iter().flat_map(|path| ["--path", *path]).collect();
        anabranch(&[&fixed[..], &[&key], &paths].concat())
    };
    let same = check(&["a=addr:127.0.0.2,tcp:", "b=addr:127.0.0.2"]);
    assert_eq!(same.status.code(), Some(2), "{same:?}");
    let apart = check(&["a=onion:2", "b=http:127.0.0.1:3128", "c=tcp:"]);
    let told = String::from_utf8(apart.stdout.clone()).unwrap();
    assert!(apart.status.success(), "{apart:?}");
    assert!(told.contains("a-1") && told.contains("a-2"), "{told}");
    assert!(!told.contains(":stream@"), "no password shows: {told}");
}

/// A path becomes a stream, another one, and datagrams again, and the session goes on.
#[test]
fn a_path_changes_its_kind_when_the_file_is_read_again() {
    let far = Far::start();
    let proxy = Proxy::start(Manner::Socks, None);
    let (key, file) = (far.folder.path().join("home.key"), far.folder.path().join("home.toml"));
    let write = |second: &str| {
        let fixed = format!(
            "listen = '127.0.0.1:0'\nto = '{}'\nto-tcp = '{}'\nkey = '{}'\nseed = 7\n\
             every = '7p'\n[[path]]\nname = 'u'\naddress = '127.0.0.2'\n\
             [[path]]\nname = 'b'\n",
            far.udp,
            far.tcp,
            key.display()
        );
        fs::write(&file, format!("{fixed}{second}")).unwrap();
    };
    write("address = '127.0.0.3'\n");
    let mut near = Near::of(&file);
    near.is_up();
    near.passes(200);
    let socks = format!("socks5-tcp = '{}'\n", proxy.at);
    for (second, kind) in [
        ("address = '127.0.0.3'\ntcp = ''\n", "tcp"),
        (&*socks, "socks5-tcp"),
        ("ports = 2\n", "udp"),
    ] {
        write(second);
        near.program.signal("-HUP");
        near.program.next("reloaded");
        near.program.find("stats", |stats| {
            let path = &stats["paths"][1];
            let is_kind = path["stream"]["kind"].as_str().unwrap_or("udp") == kind;
            is_kind && path["state"] == "up" && path["rtt_ms"].is_number()
        });
        let before = near.program.next("stats")["paths"][1]["down_packets"].as_u64().unwrap();
        near.passes(300);
        let after = near.program.find("stats", |stats| {
            stats["paths"][1]["down_packets"].as_u64().unwrap() > before + 50
        });
        assert_eq!(after["paths"][0]["state"], "up", "{kind}");
    }
    // The far end knows paths by their places.
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("'b'", "'c'")).unwrap();
    near.program.signal("-HUP");
    let warning = near.program.next("warning");
    assert!(warning["text"].as_str().unwrap().contains("cannot change"), "{warning}");
    near.passes(100);
    assert_eq!(near.end()["sessions"], 1);
}

#[test]
fn a_file_names_streams_by_their_own_keys() {
    let far = Far::start();
    let path = |name: &str| far.folder.path().join(name).display().to_string();
    let (key, file) = (path("home.key"), path("home.toml"));
    let text = format!(
        "listen = '127.0.0.1:0'\nto = '127.0.0.1:9'\nkey = '{key}'\nonion-socks = '127.0.0.1:1'\n\
         [[path]]\nname = 'a'\ntcp = '127.0.0.1:443'\naddress = '127.0.0.2'\n\
         [[path]]\nname = 'b'\nhttp = '127.0.0.1:3128'\nuser = 'anna'\npassword = 'secret'\n\
         [[path]]\nname = 'c'\nonion = 2\n[[path]]\nname = 'd'\nssh = 'anna@relay'\n"
    );
    fs::write(Path::new(&file), &text).unwrap();
    let output = anabranch(&["split", "--check", &file]);
    let told = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{output:?}");
    for words in ["tcp:127.0.0.1:443", "http:anna:...@127.0.0.1:3128", "c-2", "ssh:anna@relay"] {
        assert!(told.contains(words), "{words} in {told}");
    }
    fs::write(Path::new(&file), text.replace("address = '127.0.0.2'", "ports = 4")).unwrap();
    let output = anabranch(&["split", "--check", &file]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("cannot have 'ports'"), "{told}");
}
