//! Tests of paths through SOCKS5 proxies: proxies that refuse, that relay, and that fail and
//! return.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod running;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use running::socks::{Manner, Socks};
use running::{PATIENCE, Running};
use serde_json::Value;

/// Returns the message with which a path through the proxy at `proxy` is refused.
fn refusal(proxy: &str, environment: &[(&str, &str)]) -> String {
    let path = format!("prx=socks5:{proxy}");
    let output = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["split", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--path", &path])
        .env_remove("ANABRANCH_SOCKS5_PASSWORD")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert_eq!((output.stdout.len(), message.lines().count()), (0, 1), "{message}");
    assert!(!message.contains("secret") && !message.contains("panicked"), "{message}");
    message
}

/// Returns the message about a proxy with the behaviour `manner`, for a client with the login
/// `login`.
fn refused(manner: Manner, login: &str) -> String {
    let proxy = Socks::start(manner);
    let message = refusal(&format!("{login}{}", proxy.at), &[]);
    let blame = format!("anabranch: path 'prx': the proxy {} ", proxy.at);
    message.trim_end().strip_prefix(&blame).unwrap().to_owned()
}

#[test]
fn a_proxy_that_does_not_serve_us_is_told_with_what_it_said() {
    let refused_udp = "refuses to relay UDP: not allowed by its rules";
    for (manner, login, words) in [
        (Manner::Login, "anna:wrong-secret@", "refuses the user name or the password"),
        (Manner::Login, "", "wants a user name and a password"),
        (Manner::NoUdp, "", "does not relay UDP"),
        (Manner::Few(0), "anna:secret@", refused_udp),
        (Manner::Says(b""), "", "closed the connection during the SOCKS5 handshake"),
        (Manner::Says(b"\x05\0"), "", "closed the connection during the SOCKS5 handshake"),
        (Manner::Says(b"\x05\x02\x01\0\x05\0\0\x01\x7f"), "anna:secret@", "closed the connection"),
        (Manner::Says(b"HTTP/1.0 400 Bad Request\r\n\r\n"), "", "does not speak SOCKS5"),
        (Manner::Says(&[0xa5; 4096]), "", "does not speak SOCKS5"),
        (
            Manner::Says(b"\x05\0\x05\0\0\x09rubbish"),
            "",
            "a SOCKS5 address of the unknown type 0x09",
        ),
        (Manner::Says(b"\x05\0\x05\xee\0\x01\0\0\0\0\0\0"), "", "the unknown reason 0xee"),
    ] {
        let message = refused(manner, login);
        assert!(message.starts_with(words) || message.contains(words), "{manner:?}: {message}");
    }
}

#[test]
fn a_port_where_no_proxy_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    drop(listener);
    let message = refusal(&at.to_string(), &[]);
    assert!(message.contains("does not listen at this address (connection refused)"), "{message}");
}

#[test]
fn a_proxy_that_never_answers_is_not_waited_for() {
    let begin = Instant::now();
    assert_eq!(refused(Manner::Mute, ""), "does not answer in time");
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
}

#[test]
fn a_name_that_does_not_resolve() {
    let message = refusal("proxy.invalid:1080", &[]);
    let words = "the proxy proxy.invalid:1080 has a name that does not resolve: ";
    assert!(message.contains(words), "{message}");
}

#[test]
fn what_is_no_proxy_is_refused_without_its_password() {
    for (path, words) in [
        ("anna:secret@nowhere", "write HOST:PORT"),
        (":secret@127.0.0.1:1", "1 to 255 bytes"),
        ("anna:secret@127.0.0.1:1,ports:4", "'ports' does not work with a proxy"),
        ("anna:@/nowhere/at/all@127.0.0.1:1", "'/nowhere/at/all': No such file"),
    ] {
        let message = refusal(path, &[]);
        assert!(message.contains(words), "{message}");
    }
    let message = refusal("anna@127.0.0.1:1", &[("ANABRANCH_SOCKS5_PASSWORD", "")]);
    assert!(message.contains("a password has 1 to 255 bytes"), "{message}");
    let message = refusal("anna@127.0.0.1:1", &[]);
    assert!(
        message.contains("set the environment variable ANABRANCH_SOCKS5_PASSWORD"),
        "{message}"
    );
}

#[test]
fn two_paths_through_one_proxy_are_one_to_its_observer() {
    let proxy = Socks::start(Manner::Open);
    let path = format!("{},addr:127.0.0.2", proxy.at);
    let twin = format!("b=socks5:{path}");
    let output = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["split", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--path", &twin])
        .args(["--path", &format!("a=socks5:{path}")])
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("path 'a': its packets leave by the same interface"), "{message}");
}

#[test]
fn check_counts_the_header_and_opens_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let path = format!("prx=socks5:anna:secret@{}", listener.local_addr().unwrap());
    let check = |to: &str, more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_anabranch"))
            .args(["split", "--check", "--listen", "127.0.0.1:0", "--path", &path, "--to", to])
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = check("127.0.0.1:9", &[]);
    assert!(
        text.contains("(SOCKS5, adds 10 bytes to each datagram)") && !text.contains("secret"),
        "{text}"
    );
    assert!(text.contains("the largest UDP payload that fits all paths has 65497 bytes"), "{text}");
    let about: Value = serde_json::from_str(&check("[2001:db8::1]:9", &["--json"])).unwrap();
    let way = &about["paths"][0];
    assert_eq!((&way["overhead"], &about["udp_payload"]), (&22.into(), &65_485.into()));
    assert!(listener.accept().is_err(), "the proxy was spoken to");
}

/// Starts a splitter with one direct path and one path through `proxy`.
fn split_by_proxy(proxy: &Socks, login: &str) -> Running {
    let path = format!("prx=socks5:{login}{}", proxy.at);
    Running::with("127.0.0.1", &["a=addr:127.0.0.2", &path], &["--json"])
}

/// Returns the address at which a splitter listens.
fn listen(running: &mut Running) -> String {
    running.next("listening")["listen"].as_str().unwrap().to_owned()
}

/// Sends datagrams of these sizes to the server and back. Returns the addresses that the server
/// saw.
fn exchange(running: &Running, client: &UdpSocket, to: &str, sizes: &[usize]) -> Vec<SocketAddr> {
    let mut buffer = vec![0; 65_536];
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut seen = Vec::new();
    for (number, &size) in sizes.iter().enumerate() {
        let sent = vec![0xf0 | number as u8; size];
        client.send_to(&sent, to).unwrap();
        let (length, from) = running.server.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], sent, "to the server, by {from}");
        running.server.send_to(&buffer[..length], from).unwrap();
        let (length, _) = client.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], sent, "back to the client, by {from}");
        seen.push(from);
    }
    seen
}

fn client() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

#[test]
fn datagrams_of_all_sizes_pass_by_the_proxy_and_are_counted_without_its_header() {
    let proxy = Socks::start(Manner::Login);
    let mut running = split_by_proxy(&proxy, "anna:secret@");
    let to = listen(&mut running);
    let sizes = [1, 0, 1200, 1472, 3, 60_000, 0, 9];
    let seen = exchange(&running, &client(), &to, &sizes);
    let by_proxy: Vec<_> = seen.iter().skip(1).step_by(2).collect();
    assert!(by_proxy.iter().all(|from| from.ip().to_string() == "127.0.0.9"), "{seen:?}");
    assert!(seen.iter().step_by(2).all(|from| from.ip().to_string() == "127.0.0.2"), "{seen:?}");
    running.interrupt();
    let summary = running.next("summary");
    let path = &summary["paths"][1];
    let bytes: usize = sizes.iter().skip(1).step_by(2).sum();
    for way in ["up", "down"] {
        let counted = (&path[format!("{way}_packets")], &path[format!("{way}_bytes")]);
        assert_eq!(counted, (&4.into(), &bytes.into()), "{path}");
    }
    assert_eq!(summary["foreign"], 0);
}

#[test]
fn each_session_has_an_association_of_its_own() {
    let proxy = Socks::start(Manner::Open);
    let path = format!("prx=socks5:{}", proxy.at);
    let mut running = Running::with("127.0.0.1", &[&path], &["--json"]);
    let to = listen(&mut running);
    let clients: Vec<UdpSocket> = (0..12).map(|_| client()).collect();
    // All clients send at the same time. One finds a spare association, and the others wait for
    // theirs.
    for (number, client) in clients.iter().enumerate() {
        client.send_to(&[0xf0, number as u8], &to).unwrap();
    }
    let mut senders = BTreeSet::new();
    let mut buffer = [0; 16];
    for _ in &clients {
        let (length, from) = running.server.recv_from(&mut buffer).unwrap();
        senders.insert(from);
        running.server.send_to(&buffer[..length], from).unwrap();
    }
    assert_eq!(senders.len(), clients.len(), "an address each");
    assert!(senders.is_subset(&proxy.outer().into_iter().collect()));
    for (number, client) in clients.iter().enumerate() {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), 2);
        assert_eq!(buffer[1], number as u8, "its own answer");
    }
}

#[test]
fn fragments_and_strangers_behind_the_proxy_are_dropped_and_counted() {
    let proxy = Socks::start(Manner::Noisy);
    let mut running = split_by_proxy(&proxy, "");
    let to = listen(&mut running);
    exchange(&running, &client(), &to, &[100; 20]);
    running.interrupt();
    let summary = running.next("summary");
    assert_eq!(summary["foreign"], 30, "three for each of ten answers; {summary}");
    assert_eq!(summary["paths"][1]["down_packets"], 10);
}

/// Waits until the path has the state `state`. Returns the event.
fn wait_for(running: &mut Running, state: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let event = running.next("path");
        if event["path"] == "prx" && event["state"] == state {
            return event;
        }
    }
    panic!("path 'prx' did not go {state}");
}

#[test]
fn the_death_of_a_proxy_is_its_paths_and_its_return_brings_the_path_back() {
    let proxy = Socks::start(Manner::Login);
    let mut running = split_by_proxy(&proxy, "anna:secret@");
    let (to, client) = (listen(&mut running), client());
    exchange(&running, &client, &to, &[100; 4]);
    let at = proxy.at;
    drop(proxy);
    let event = wait_for(&mut running, "down");
    assert_eq!((&event["reason"], &event["session"]), (&"proxy".into(), &Value::Null));
    let seen = exchange(&running, &client, &to, &[100; 6]);
    assert!(seen.iter().all(|from| from.ip().to_string() == "127.0.0.2"), "{seen:?}");
    let warning = running.next("warning")["text"].as_str().unwrap().to_owned();
    assert!(
        warning.contains(&format!("the proxy {at} does not listen at this address")),
        "{warning}"
    );
    let _proxy = Socks::start_at(at, Manner::Login);
    wait_for(&mut running, "up");
    let seen = exchange(&running, &client, &to, &[100; 4]);
    assert!(seen.iter().any(|from| from.ip().to_string() == "127.0.0.9"), "{seen:?}");
}

#[test]
fn with_its_only_proxy_dead_nothing_leaves_by_another_way() {
    let proxy = Socks::start(Manner::Open);
    let path = format!("prx=socks5:{}", proxy.at);
    let mut running = Running::with("127.0.0.1", &[&path], &["--json"]);
    let (to, client) = (listen(&mut running), client());
    exchange(&running, &client, &to, &[100; 2]);
    drop(proxy);
    wait_for(&mut running, "down");
    for _ in 0..20 {
        client.send_to(b"\xf0secret", &to).unwrap();
        sleep(Duration::from_millis(10));
    }
    running.server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(running.server.recv_from(&mut [0; 64]).is_err(), "something left");
}

#[test]
fn a_proxy_that_grants_few_associations_serves_those_and_no_other_session() {
    let proxy = Socks::start(Manner::Few(1));
    let mut running = split_by_proxy(&proxy, "");
    let to = listen(&mut running);
    let (first, second) = (client(), client());
    let by_proxy = |seen: &[SocketAddr]| {
        seen.iter().filter(|from| from.ip().to_string() == "127.0.0.9").count()
    };
    assert_eq!(by_proxy(&exchange(&running, &first, &to, &[100; 4])), 2);
    // The datagrams of the second session that waited for an association are lost.
    second.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut buffer = [0; 64];
    for _ in 0..4 {
        second.send_to(b"\xf0second", &to).unwrap();
        sleep(Duration::from_millis(50));
    }
    let mut seen = vec![running.server.recv_from(&mut buffer).unwrap().1];
    running.server.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    while let Ok((_, from)) = running.server.recv_from(&mut buffer) {
        seen.push(from);
    }
    assert_eq!(by_proxy(&seen), 0, "{seen:?}");
    running.server.set_read_timeout(Some(PATIENCE)).unwrap();
    let event = wait_for(&mut running, "down");
    assert_eq!((&event["reason"], &event["session"]), (&"proxy".into(), &1.into()));
    assert_eq!(by_proxy(&exchange(&running, &first, &to, &[100; 4])), 2, "the first goes on");
}

#[test]
fn a_server_with_ipv6_is_reached_through_a_proxy_with_ipv4() {
    let Ok(server) = UdpSocket::bind("[::1]:0") else {
        println!("skipped: no IPv6 on this machine");
        return;
    };
    let proxy = Socks::start(Manner::Open);
    let path = format!("prx=socks5:{}", proxy.at);
    let mut running = Running::towards(server, "127.0.0.1:0", &[&path], &["--json"]);
    let to = listen(&mut running);
    let seen = exchange(&running, &client(), &to, &[100, 1400]);
    assert!(seen.iter().all(SocketAddr::is_ipv6), "{seen:?}");
}
