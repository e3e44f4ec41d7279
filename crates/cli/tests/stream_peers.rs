//! Tests of `anabranch split --key` and `anabranch merge --listen-tcp`. The strangers, servers and
//! clients do not follow the protocol of streams.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod program;
mod stream_world;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use program::Program;
use serde_json::Value;
use stream_world::*;

/// A stranger gets no answer. The connection is not closed at once, because that would reveal the
/// first wrong byte.
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
        let received = stranger.read(&mut [0; 64]).map_err(|error| error.kind());
        assert_eq!(received, Err(ErrorKind::WouldBlock), "{says:?}");
    }
    near.passes(300);
    far.program.find("stats", |stats| {
        (&stats["streams"]["bound"], &stats["streams"]["strangers"]) == (&3.into(), &6.into())
    });
    // The connections are closed after their time limit.
    let closed = |stranger: &mut TcpStream| {
        stranger.set_nonblocking(false).unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        stranger.read(&mut [0; 64]).is_ok_and(|length| length == 0)
    };
    assert!(strangers.iter_mut().all(closed));
    near.passes(300);
}

/// There are ten thousand connections without a handshake. The far end keeps 1,024 of them, and
/// serves its client and a client that connects meanwhile.
#[test]
fn ten_thousand_connections_without_a_handshake_hurt_nobody() {
    let mut far = Far::start();
    let at = far.tcp;
    flood(&mut far, at, b"");
}

/// Each of ten thousand connections sends the first half of a ClientHello. TLS keeps state for
/// them, too.
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
        // The connection may already be closed in favour of newer ones.
        let _ = stranger.write_all(says);
        held.push(stranger);
        if n % 1_000 == 999 {
            // This side has a limit of open files. The far end has already closed all connections
            // except the last ones.
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

/// Starts a server that waits for the client's first bytes and answers with the bytes `says`. Then
/// it sends `again` repeatedly. If `again` is empty, it closes the connection.
fn hostile(says: &'static [u8], again: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut received = [0; 1_024];
                // A server that is no far end may not wait for the client.
                let _ = client.set_read_timeout(Some(Duration::from_millis(500)));
                let _ = client.read(&mut received);
                let _ = client.write_all(says);
                while !again.is_empty() && client.write_all(&again.repeat(64)).is_ok() {
                    thread::sleep(Duration::from_millis(20));
                }
                let _ = client.shutdown(Shutdown::Write);
                while client.read(&mut received).is_ok_and(|length| length > 0) {}
            });
        }
    });
    at
}

/// Returns the peak resident memory of a program, in KiB.
fn peak_kib(program: &Program) -> u64 {
    let memory = fs::read_to_string(format!("/proc/{}/status", program.child.id())).unwrap();
    let line = memory.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The servers answer with wrong credentials, garbage, half an answer, an endless banner, a close
/// after one byte, or false data of a far end. Each is reported in one line with the name of its
/// path.
#[test]
fn each_hostile_server_is_one_line_with_its_paths_name_and_another_path_goes_on() {
    const ZERO: &[u8] = b"\x05\0\x05\0\0\x01\0\0\0\0\0\0\0\0";
    const MOST: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n\xff\xff\0";
    const HALF: &str = "closed the connection before its answer was complete";
    const SOCKS: &str = "socks5-tcp:";
    let cases: [(&str, &'static [u8], &'static [u8], &str); 15] = [
        ("socks5-tcp:anna:secret@", b"\x05\x02\x01\x01", b"", "refuses the user name"),
        ("http:anna:secret@", b"HTTP/1.1 407 No\r\n\r\n", b"", "refuses the user name"),
        (SOCKS, b"SSH-2.0-OpenSSH_9.2\r\n", b"", "does not speak the expected"),
        ("http:", b"SSH-2.0-OpenSSH_9.2\r\n", b"", "does not speak the expected"),
        (SOCKS, b"\x05\0\x05\0\0", b"", HALF),
        ("http:", b"HTTP/1.1 200 OK\r\nVia: a", b"", HALF),
        (SOCKS, b"\x05", b"", HALF),
        ("http:", b"H", b"", HALF),
        (SOCKS, b"", b"\x05", "did not offer"),
        ("http:", b"HTTP/1.1 200 OK\r\nVia: a", b"aaaa", "sent more than 8192 bytes"),
        // After the proxy's answer, the server sends lengths of 0 and of 65,535, a false length,
        // and packets without a valid key.
        (SOCKS, ZERO, b"", "announces a packet of 0 bytes"),
        ("http:", MOST, b"", "announces a packet of 65535 bytes"),
        ("tcp:", b"\0\x64 less than a hundred bytes", b"", "the other end closed the connection"),
        ("tcp:", b"", b"\0\x20 12345678901234567890123456789 1", "no answer from a far end"),
        (SOCKS, b"", b"", HALF),
    ];
    let far = Far::start();
    let named = (0..).zip(&cases);
    let paths: Vec<String> = named
        .clone()
        .map(|(n, (kind, says, again, _))| format!("bad-{n}={kind}{}", hostile(says, again)))
        .collect();
    let mut all = vec!["u=addr:127.0.0.2"];
    all.extend(paths.iter().map(String::as_str));
    let begun = Instant::now();
    let mut near = far.near_with(&all, &["--same-egress"]);
    let mut warnings: Vec<String> = Vec::new();
    let mut state = Value::Null;
    while state != "up" {
        let mut keep = |event: &Value| {
            if event["event"] == "warning" {
                warnings.push(event["text"].as_str().unwrap().to_owned());
            }
        };
        state = near.program.until("far_end", &mut keep)["state"].clone();
    }
    // This time suffices for a round trip and a retry, if the machine does not delay this program.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    while warnings.len() < cases.len() {
        warnings.push(near.program.next("warning")["text"].as_str().unwrap().to_owned());
    }
    near.passes_at_last();
    for (n, (kind, _, _, words)) in named {
        let word = kind.split(':').next().unwrap();
        let start = format!("path 'bad-{n}' ({word}): ");
        let of: Vec<_> = warnings.iter().filter(|text| text.starts_with(&start)).collect();
        assert!(of.len() == 1 && of[0].contains(words), "{start}{words}: {warnings:#?}");
    }
    assert!(
        !warnings.iter().any(|text| text.contains("secret") || text.contains(char::is_control))
    );
    assert!(peak_kib(&near.program) < 100 << 10, "{} KiB", peak_kib(&near.program));
    let summary = near.end();
    assert_eq!(summary["sessions"], 1, "{summary}");
}

/// A relay to the far end. While it is shut, it does not forward the far end's answers.
struct PausableRelay {
    at: SocketAddr,
    is_shut: Arc<AtomicBool>,
}

impl PausableRelay {
    fn start(to: SocketAddr) -> PausableRelay {
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
        PausableRelay { at, is_shut }
    }
}

/// The far end drops packets that are too old for a client that does not read. Its memory does not
/// grow, and the session continues when the client reads again.
#[test]
fn a_client_that_does_not_read_costs_no_memory_and_no_session() {
    let mut far = Far::start();
    let valve = PausableRelay::start(far.tcp);
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
        // The datagrams exceed the buffers of all sockets, before the path is down.
        for _ in 0..4_000 {
            // The datagram has the number 0, which no later exchange waits for.
            near.client.send_to(&[0; 1_300], near.listen).unwrap();
        }
        thread::sleep(Duration::from_millis(500));
        stats = far.program.next("stats");
        assert!(begun.elapsed() < PATIENCE, "nothing grew too old: {stats}");
    }
    // Late answers are read now, so that they are not mistaken for later ones.
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

/// Datagrams of another path wait for datagrams in a stalled stream, but only for the maximum of
/// 250 ms.
#[test]
fn a_stream_that_stalls_does_not_hold_up_what_comes_by_another_path() {
    let far = Far::start();
    let valve = PausableRelay::start(far.tcp);
    let mut near = far.near(&["u=addr:127.0.0.2", &format!("v=tcp:{}", valve.at)]);
    near.is_up();
    near.all_work();
    near.passes(300);
    near.client.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    valve.is_shut.store(true, Ordering::Relaxed);
    let (first, mut sent, mut delays) = (near.sent, Vec::new(), Vec::new());
    let mut room = [0; 2_048];
    // Until the path counts as silent, half of all answers are delayed.
    for number in first..first + 600 {
        let mut datagram = vec![7; 600];
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        near.client.send_to(&datagram, near.listen).unwrap();
        sent.push(Instant::now());
        let received = near.take(&mut room).filter(|number| *number >= first);
        delays.extend(received.map(|number| sent[(number - first) as usize].elapsed()));
    }
    near.sent += 600;
    let longest = delays.iter().max().unwrap();
    assert!(delays.len() > 200, "{} of 600 came", delays.len());
    // A busy machine may delay the programs, too.
    assert!(*longest < Duration::from_millis(250 + 150), "{longest:?}");
    valve.is_shut.store(false, Ordering::Relaxed);
    near.passes_at_last();
    assert_eq!(near.end()["sessions"], 1);
}

/// Two relays to the far end. While they are crossed, each one forwards its client's packets on
/// the other one's stream.
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

/// Forwards whole packets of a client, on its own stream or on the other one.
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

/// If a packet of another client arrives on a stream, the far end closes the stream. Both clients
/// connect again.
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
