//! Tests of `anabranch split --key` with paths that are TCP connections to `anabranch merge
//! --listen-tcp`. The paths are direct, go through proxies, or are mixed with UDP. The tests also
//! cover streams that end and return, and recordings.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod program;
mod stream_world;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use stream_world::*;

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

/// Nagle's algorithm, delayed acknowledgements and timers must not delay a single datagram. The
/// fastest of many datagrams counts, because the machine may be busy at times.
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
        let message = format!("{kind}: {stream:?}, by datagrams {datagrams:?}");
        assert!(stream < datagrams + Duration::from_millis(1), "{message}");
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

/// The round trip of the slow circuit is 800 ms. Half of that exceeds the maximum wait of the far
/// end. The other paths carry the traffic meanwhile.
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

/// A path to another far end, or to none, is reported in one line. The other paths continue.
#[test]
fn a_wrong_certificate_and_a_port_without_tls_are_told_and_other_paths_go_on() {
    let far = Far::start();
    let other = "0".repeat(64);
    let cases = [
        (far.tls, &other, format!("the received certificate has the SHA-256 {}", far.fingerprint)),
        (far.tcp, &far.fingerprint, "the far end does not answer in time".to_owned()),
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
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("--tls-fingerprint") && stderr.contains("--tls-ca"), "{stderr}");
}

/// Starts a web server that answers with the request line.
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

/// Strangers at both ports see the web site, both with HTTP and with unknown protocols. A stranger
/// that uses TLS gets the web site over TLS. A replay of a client's bytes counts as a stranger.
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
        let mut received = Vec::new();
        let _ = stranger.read_to_end(&mut received);
        String::from_utf8_lossy(&received).into_owned()
    };
    for at in [far.tcp, far.tls] {
        let received = ask(at, b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(received.ends_with("GET /page HTTP/1.1"), "{received}");
    }
    // The bytes of a client are sent again. The far end accepts each packet only once.
    let replayed = recorder.recorded();
    assert!(replayed.len() > 100, "{}", replayed.len());
    let received = ask(far.tcp, &replayed);
    assert!(received.starts_with("HTTP/1.1 200 OK"), "{received}");
    // The far end waits five seconds for the rest of an incomplete packet.
    let received = ask(far.tcp, b"\0\x40hello");
    assert!(received.starts_with("HTTP/1.1 200 OK"), "{received}");
    far.program.find("stats", |stats| stats["streams"]["handed"] == 4);
    near.passes(300);
    assert_eq!(far.program.find("stats", |_| true)["streams"]["bound"], 2);
    assert_eq!(near.end()["sessions"], 1);
    ask(server, b"GET /end HTTP/1.1\r\n\r\n");
    serving.join().unwrap();
}

/// Starts a relay to `to` that delays the first bytes of each client by `delay`.
fn holding(to: SocketAddr, delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut far = TcpStream::connect(to).unwrap();
            let (mut answers, mut back) = (far.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut answers, &mut back));
            thread::spawn(move || {
                thread::sleep(delay);
                std::io::copy(&mut client, &mut far)
            });
        }
    });
    at
}

/// A slow circuit may delay a client's first packet. The delay may exceed the time after which the
/// far end connects to the web server. The packet must still bind the stream to its session, with
/// and without TLS.
#[test]
fn a_late_first_packet_binds_its_stream_in_front_of_a_web_server() {
    let (server, serving) = web();
    let mut far = Far::start_with(&["--behind", &server.to_string()]);
    let delay = Duration::from_secs(7);
    let tcp = format!("t=addr:127.0.0.3,tcp:{}", holding(far.tcp, delay));
    let tls = format!("e=addr:127.0.0.4,tls:{}", holding(far.tls, delay));
    let paths = ["u=addr:127.0.0.2", &tcp, &tls];
    let mut near = far.near_with(&paths, &["--tls-fingerprint", &far.fingerprint]);
    near.is_up();
    far.program.find("stats", |stats| {
        let counted = &stats["streams"];
        (&counted["bound"], &counted["strangers"]) == (&2.into(), &0.into())
    });
    near.all_work();
    near.passes_at_last();
    let summary = near.end();
    let ended = [1, 2].map(|path: usize| summary["paths"][path]["stream"]["ended"].clone());
    assert_eq!(ended, [0, 0], "{summary}");
    TcpStream::connect(server).unwrap().write_all(b"GET /end HTTP/1.1\r\n\r\n").unwrap();
    serving.join().unwrap();
}

/// A relay to the far end that records the first bytes of the near end.
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

/// Copies a stream, and records its first bytes.
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

/// Returns the packets in a pcapng file with this machine's byte order.
fn captured(file: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(file).unwrap();
    let number = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut packets) = (0, Vec::new());
    while at < bytes.len() {
        // An enhanced packet block consists of type, length, interface, time (two words), captured
        // length, original length, and packet.
        if number(at) == 6 {
            packets.push(bytes[at + 28..][..number(at + 20)].to_vec());
        }
        at += number(at + 4);
    }
    packets
}

/// A trace must have the lengths of a stream's segments, and a capture their bytes, as a relay saw
/// them.
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
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("path 'a' is a TCP connection, which needs a far end"), "{stderr}");
    assert!(stderr.contains("--listen-tcp"), "{stderr}");
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
    let stdout = String::from_utf8(apart.stdout.clone()).unwrap();
    assert!(apart.status.success(), "{apart:?}");
    assert!(stdout.contains("a-1") && stdout.contains("a-2"), "{stdout}");
    assert!(!stdout.contains(":stream@"), "no password shows: {stdout}");
}

/// A path becomes a stream, another stream, and datagrams again. The session continues.
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
    // The far end identifies paths by their positions.
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
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{output:?}");
    for words in ["tcp:127.0.0.1:443", "http:anna:...@127.0.0.1:3128", "c-2", "ssh:anna@relay"] {
        assert!(stdout.contains(words), "{words} in {stdout}");
    }
    fs::write(Path::new(&file), text.replace("address = '127.0.0.2'", "ports = 4")).unwrap();
    let output = anabranch(&["split", "--check", &file]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("cannot have 'ports'"), "{stderr}");
}
