//! Tests of clients and servers of our transport over loopback, with programs that use them and
//! proxies between them.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_multipath::schedule::Spec;
use anabranch_stego::ServerKey;
use rand_core::Rng;

use super::*;
use anabranch_os::entropy::generator;
use anabranch_testkit::silent_port::SilentPort;

const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a server that echoes each connection's bytes and its end. Returns its address.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut writer = socket.try_clone().unwrap();
                let _ = std::io::copy(&mut { socket }, &mut writer);
                let _ = writer.shutdown(Shutdown::Write);
            });
        }
    });
    at
}

/// A client or server that runs on a separate thread. The thread ends when this value is dropped.
struct Running {
    stop: UnixStream,
    events: Arc<Mutex<Vec<PtEvent>>>,
}

impl Running {
    /// Waits until the client or server has reported an event for which `wanted` returns true.
    fn expect_event(&self, wanted: impl Fn(&PtEvent) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !self.events.lock().unwrap().iter().any(&wanted) {
            assert!(Instant::now() < deadline, "{:?}", self.events);
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop.write_all(b"x");
    }
}

fn running(
    run: impl FnOnce(&StopConditions<'_, UnixStream>, &mut dyn FnMut(PtEvent)) + Send + 'static,
) -> Running {
    let (stop, stopped) = UnixStream::pair().unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&events);
    thread::spawn(move || {
        let mut note = |event| noted.lock().unwrap().push(event);
        run(&StopConditions { stop: &stopped, with_input: false }, &mut note);
    });
    Running { stop, events }
}

fn schedule() -> Spec {
    Spec::over_windows(SCHEDULE).unwrap()
}

fn server(profile: &str, onward: Onward) -> (Running, Bridge) {
    server_before(profile, onward, echo())
}

fn server_before(profile: &str, onward: Onward, site: SocketAddr) -> (Running, Bridge) {
    server_with((profile, Covers::default()), onward, site)
}

fn server_with(
    (profile, covers): (&str, Covers),
    onward: Onward,
    site: SocketAddr,
) -> (Running, Bridge) {
    let profile: Profile = profile.parse().unwrap();
    let settings = ServerSettings {
        listen: "127.0.0.1:0".parse().unwrap(),
        key: ServerKey::generate(&mut generator().unwrap()),
        profile,
        onward,
        site: profile.family().wants_site.then_some(site),
        schedule: schedule(),
        memory: 64 << 20,
        links: 100,
        covers,
    };
    let (reporter, inbox) = channel();
    let running = running(move |conditions, note| {
        let mut station = PtServer::new(settings).unwrap();
        reporter.send(station.bridge().clone()).unwrap();
        station.run(conditions, note).unwrap();
    });
    (running, inbox.recv().unwrap())
}

fn client(kind: ListenerKind) -> (Running, SocketAddr) {
    let listen = vec![("127.0.0.1:0".parse().unwrap(), kind)];
    let settings = ClientSettings { listen, schedule: schedule(), shapes: Shapes::default() };
    let (reporter, inbox) = channel();
    let running = running(move |conditions, note| {
        let mut station = PtClient::new(settings).unwrap();
        reporter.send(station.addresses().unwrap()[0]).unwrap();
        station.run(conditions, note).unwrap();
    });
    (running, inbox.recv().unwrap())
}

fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    generator().unwrap().fill_bytes(&mut bytes);
    bytes
}

/// Sends `bytes` on `socket`, ends the sent stream, and returns all bytes that are received.
fn sent_and_read(socket: TcpStream, bytes: &[u8]) -> Vec<u8> {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut writer, bytes) = (socket.try_clone().unwrap(), bytes.to_vec());
    let writing = thread::spawn(move || {
        writer.write_all(&bytes).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    { socket }.read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    received
}

#[test]
fn streams_of_any_length_come_back_whole_by_every_profile() {
    for profile in ["nosteg", "nosteg-short", "nosteg-rr", "http-opaque", "http-text-short"] {
        let (_server, bridge) = server(profile, Onward::Plain(echo()));
        let (_client, at) = client(ListenerKind::Bridge(Box::new(bridge)));
        let lengths: &[usize] = match profile {
            "nosteg" => &[0, 1, 514, 100_000, 8_000_000],
            "nosteg-rr" => &[1, 20_000],
            _ => &[1, 2_000_000],
        };
        for &length in lengths {
            let bytes = noise(length);
            let received = sent_and_read(TcpStream::connect(at).unwrap(), &bytes);
            assert!(received == bytes, "{profile}: {} of {length} bytes came back", received.len());
        }
    }
}

/// Sends bytes of the given lengths through a client and a server with this profile, and checks
/// that they are echoed.
fn come_back((profile, covers): (&str, Covers), lengths: &[usize]) {
    let (_server, bridge) = server_with((profile, covers), Onward::Plain(echo()), echo());
    let (_client, at) = client(ListenerKind::Bridge(Box::new(bridge)));
    for &length in lengths {
        let bytes = noise(length);
        let received = sent_and_read(TcpStream::connect(at).unwrap(), &bytes);
        assert!(received == bytes, "{profile}: {} of {length} bytes came back", received.len());
    }
}

#[test]
fn streams_come_back_whole_in_the_shapes_of_recorded_connections() {
    come_back(("embed", Covers::default()), &[0, 1, 514, 300_000]);
}

#[test]
fn streams_come_back_whole_by_the_objects_of_a_crawled_site() {
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let list = format!("[{}1]", format!("\"{}\",", "aB3_".repeat(90)).repeat(60));
    for (name, body) in [
        ("index.html", &b"<img src=a.jpg><img src=/broken.jpg>"[..]),
        ("a.jpg", include_bytes!("../../../stego/testdata/colour.jpg")),
        ("broken.jpg", b"\xff\xd8 no picture"),
        ("list.json", list.as_bytes()),
        ("one.ts", &noise(60_000)),
    ] {
        fs::write(folder.path().join(name), body).unwrap();
    }
    let found = crate::crawl::crawl(folder.path(), None).unwrap();
    let judged = crate::crawl::judge(&found);
    assert_eq!((judged.kept.len(), judged.refused["not a baseline JPEG of one scan"]), (3, 1));
    let made = out.path().join("covers");
    crate::crawl::write(&made, &found, &judged, false).unwrap();
    let site = crate::crawl::site(&made).unwrap();
    come_back(("http-site", Covers { site, ..Covers::default() }), &[0, 1, 514, 2_000_000]);
}

/// Starts a proxy to `to`. It closes each connection after `bytes` bytes were returned on it.
/// Returns the proxy's address.
fn killer(to: SocketAddr, bytes: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let far = TcpStream::connect(to).unwrap();
            let (mut up, mut down) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            let mut onward = far.try_clone().unwrap();
            thread::spawn(move || std::io::copy(&mut up, &mut onward));
            thread::spawn(move || {
                let mut back = near.try_clone().unwrap();
                let _ = std::io::copy(&mut Read::by_ref(&mut down).take(bytes as u64), &mut back);
                let _ = (near.shutdown(Shutdown::Both), far.shutdown(Shutdown::Both));
            });
        }
    });
    at
}

#[test]
fn connections_that_are_killed_cost_no_byte() {
    let (_server, bridge) = server("nosteg", Onward::Plain(echo()));
    let bridge = Bridge { address: killer(bridge.address, 100_000), ..bridge };
    let (_client, at) = client(ListenerKind::Bridge(Box::new(bridge)));
    let bytes = noise(3_000_000);
    let received = sent_and_read(TcpStream::connect(at).unwrap(), &bytes);
    assert!(received == bytes, "{} of {} bytes came back", received.len(), bytes.len());
}

/// Requests the bridge `to` at a SOCKS port. Returns the connection, and the reply's code.
fn asked(at: SocketAddr, to: SocketAddr, args: &anabranch_pt::Args) -> (TcpStream, u8) {
    let mut socket = TcpStream::connect(at).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let (user, password) = args.to_socks().unwrap();
    socket.write_all(&[5, 1, 2, 1]).unwrap();
    for field in [user, password] {
        socket.write_all(&[field.len() as u8]).unwrap();
        socket.write_all(&field).unwrap();
    }
    let SocketAddr::V4(to) = to else { panic!("loopback is an IPv4 address here") };
    socket.write_all(&[5, 1, 0, 1]).unwrap();
    socket.write_all(&to.ip().octets()).unwrap();
    socket.write_all(&to.port().to_be_bytes()).unwrap();
    let mut answer = [0; 4 + 10];
    socket.read_exact(&mut answer).unwrap();
    (socket, answer[5])
}

#[test]
fn a_program_names_its_bridge_by_socks_and_hears_of_mistakes() {
    let (server, bridge) = server("nosteg", Onward::Plain(echo()));
    let (client, at) = client(ListenerKind::Socks);
    let (socket, code) = asked(at, bridge.address, &bridge.args());
    assert_eq!(code, 0);
    assert_eq!(sent_and_read(socket, b"words"), b"words");
    let (_, code) = asked(at, bridge.address, &anabranch_pt::Args::default());
    assert_eq!(code, 1, "the key is missing");
    let named = format!("bridge {}: the bridge line lacks key=", bridge.address);
    client.expect_event(|event| matches!(event, PtEvent::Trouble(why) if why.starts_with(&named)));
    client.expect_event(|event| *event == PtEvent::Up(Some(bridge.address)));
    server.expect_event(|event| *event == PtEvent::Up(None));
}

#[test]
fn what_the_machines_clock_said_at_first_is_no_matter() {
    let (wrong, now) = (UNIX_EPOCH + Duration::from_secs(77), SystemTime::now());
    let now = now.duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(wall(Clock::start_at(wrong)).abs_diff(now) <= 1);
}

#[test]
fn a_program_that_wants_no_bridge_is_hung_up_on() {
    let listen = vec![("127.0.0.1:0".parse().unwrap(), ListenerKind::Socks)];
    let settings = ClientSettings { listen, schedule: schedule(), shapes: Shapes::default() };
    let mut station = PtClient::new(settings).unwrap();
    let mut program = TcpStream::connect(station.addresses().unwrap()[0]).unwrap();
    let ready: Vec<Ready> = station.poller().wait(Some(PATIENCE)).unwrap().collect();
    let now = station.clock().now();
    station.take(now, ready[0]);
    station.sweep(now + Duration::from_secs(29));
    program.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert_eq!(program.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    station.sweep(now + Duration::from_secs(30));
    program.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(program.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_server_that_leads_nowhere_cuts_the_programs_off() {
    let nobody = SilentPort::new();
    let (server, bridge) = server("nosteg", Onward::Plain(nobody.at));
    let (_client, at) = client(ListenerKind::Bridge(Box::new(bridge)));
    let mut socket = TcpStream::connect(at).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let error = socket.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    server.expect_event(|event| matches!(event, PtEvent::Trouble(_)));
}

#[test]
fn a_stranger_hears_nothing_and_others_are_served() {
    let (server, bridge) = server("nosteg", Onward::Plain(echo()));
    let mut stranger = TcpStream::connect(bridge.address).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: example.net\r\nAccept: */*\r\n\r\n").unwrap();
    stranger.write_all(&noise(200)).unwrap();
    let (_client, at) = client(ListenerKind::Bridge(Box::new(bridge)));
    assert_eq!(sent_and_read(TcpStream::connect(at).unwrap(), b"words"), b"words");
    stranger.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let error = stranger.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "no byte, and no end");
    server.expect_event(|event| *event == PtEvent::Stranger);
}

#[test]
fn a_relay_is_told_whose_connection_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let cookie = folder.path().join("cookie");
    std::fs::write(&cookie, [&anabranch_pt::COOKIE_FILE[..], &[7; 32]].concat()).unwrap();
    let relay = TcpListener::bind("127.0.0.1:0").unwrap();
    let onward = Onward::Extended(relay.local_addr().unwrap(), cookie);
    let (_server, bridge) = server("nosteg", onward);
    let (_client, at) = client(ListenerKind::Bridge(Box::new(bridge)));
    let program = TcpStream::connect(at).unwrap();
    let talking = thread::spawn(move || sent_and_read(program, b"words"));
    let (mut socket, _) = relay.accept().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut out = Vec::new();
    let mut dialogue = anabranch_pt::ExtOrServer::new([7; 32], [1; 32], &mut out);
    let info = loop {
        socket.write_all(&std::mem::take(&mut out)).unwrap();
        let mut buffer = [0; 256];
        let count = socket.read(&mut buffer).unwrap();
        if let Some(info) = dialogue.take(&buffer[..count], &mut out).unwrap() {
            break info;
        }
    };
    socket.write_all(&out).unwrap();
    assert_eq!(info.transport.as_deref(), Some(TRANSPORT));
    assert!(info.user.is_some_and(|user| user.ip().is_loopback()));
    let mut words = dialogue.rest();
    while words.len() < 5 {
        let mut buffer = [0; 256];
        let count = socket.read(&mut buffer).unwrap();
        words.extend_from_slice(&buffer[..count]);
    }
    socket.write_all(&words).unwrap();
    drop(socket);
    assert_eq!(talking.join().unwrap(), b"words");
}

/// Starts a web server that answers the first request of each connection and then closes it.
/// Returns its address.
fn site(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                match socket.read(&mut byte) {
                    Ok(1) => request.extend(byte),
                    _ => break,
                }
            }
            let reply = if request.starts_with(b"GET / HTTP") { answer } else { b"400" };
            socket.write_all(reply).unwrap();
        }
    });
    at
}

#[test]
fn visitors_get_the_bytes_of_the_site_and_clients_a_link() {
    let page = Vec::leak(noise(700_000));
    let (server, bridge) = server_before("http-opaque", Onward::Plain(echo()), site(page));
    let visit = |message: &[u8], ends: bool| {
        let mut visitor = TcpStream::connect(bridge.address).unwrap();
        visitor.set_read_timeout(Some(PATIENCE)).unwrap();
        visitor.write_all(message).unwrap();
        if ends {
            visitor.shutdown(Shutdown::Write).unwrap();
        }
        let mut received = Vec::new();
        visitor.read_to_end(&mut received).unwrap();
        received
    };
    let request = b"GET / HTTP/1.1\r\nHost: example.net\r\n\r\n";
    assert!(visit(request, false) == page);
    assert_eq!(visit(b"TRACE / HTTP/1.1\r\n\r\n", false), b"400");
    assert_eq!(visit(&noise(300), true), b"400");
    let (_client, at) = client(ListenerKind::Bridge(Box::new(bridge.clone())));
    assert_eq!(sent_and_read(TcpStream::connect(at).unwrap(), b"words"), b"words");
    server.expect_event(|event| *event == PtEvent::Stranger);
    // A visitor that sends the request in pieces receives the same page.
    let mut slow = TcpStream::connect(bridge.address).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    slow.write_all(&request[..9]).unwrap();
    thread::sleep(2 * TICK);
    slow.write_all(&request[9..]).unwrap();
    let mut received = Vec::new();
    slow.read_to_end(&mut received).unwrap();
    assert!(received == page);
}

/// Starts a web server that answers "early" to the first `\n` of a connection, and "late" if a
/// read times out before that. The timeout of each read is `patience` once `length` bytes of the
/// first connection were read. Otherwise it is [`PATIENCE`]. Returns the server's address, and all
/// bytes that the server has received.
fn timing_out_server(patience: Duration, length: usize) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, input) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let received = Arc::clone(&input);
    thread::spawn(move || {
        for (number, mut socket) in listener.incoming().map_while(Result::ok).enumerate() {
            let received = Arc::clone(&received);
            thread::spawn(move || {
                for place in 0.. {
                    // On a busy machine, a visitor's bytes or a client's request may arrive late.
                    let is_due = number == 0 && place >= length;
                    let limit = if is_due { patience } else { PATIENCE };
                    socket.set_read_timeout(Some(limit)).unwrap();
                    let mut byte = [0];
                    let Ok(1) = socket.read(&mut byte) else { break };
                    received.lock().unwrap().extend(byte);
                    if byte == *b"\n" {
                        return socket.write_all(b"early").unwrap();
                    }
                }
                // If the peer was a client of our transport, the connection is closed by now.
                let _ = socket.write_all(b"late");
            });
        }
    });
    (at, input)
}

#[test]
fn who_says_nothing_or_half_has_the_sites_patience_and_clients_do_not_reach_it() {
    let short = Duration::from_millis(300);
    for (message, patience, expected) in [
        (&b""[..], short, &b"late"[..]),
        (b"GET / HT", short, b"late"),
        // After a complete request, the site answers before any timeout.
        (b"GET /\r\n", PATIENCE, b"early"),
    ] {
        let (at, input) = timing_out_server(patience, message.len());
        let (_server, bridge) = server_before("http-opaque", Onward::Plain(echo()), at);
        let began = Instant::now();
        let mut visitor = TcpStream::connect(bridge.address).unwrap();
        visitor.set_read_timeout(Some(PATIENCE)).unwrap();
        visitor.write_all(message).unwrap();
        let mut received = Vec::new();
        visitor.read_to_end(&mut received).unwrap();
        assert_eq!(received, expected, "{message:?}");
        assert!(expected == b"early" || began.elapsed() >= patience);
        assert!(began.elapsed() < PATIENCE / 2);
        assert_eq!(*input.lock().unwrap(), message);
        let (_client, at) = client(ListenerKind::Bridge(Box::new(bridge.clone())));
        assert_eq!(sent_and_read(TcpStream::connect(at).unwrap(), b"words"), b"words");
        assert_eq!(*input.lock().unwrap(), message, "a client's requests are its own");
    }
}

#[test]
fn an_operator_hears_of_a_site_that_is_not_there() {
    let nobody = SilentPort::new();
    let (server, bridge) = server_before("http-opaque", Onward::Plain(echo()), nobody.at);
    let mut visitor = TcpStream::connect(bridge.address).unwrap();
    visitor.set_read_timeout(Some(PATIENCE)).unwrap();
    visitor.write_all(b"TRACE / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(visitor.read(&mut [0]).unwrap(), 0);
    let message = format!(
        "cannot reach the web server at {}, which gets the connections that are not from clients: \
         Connection refused",
        nobody.at
    );
    server
        .expect_event(|event| matches!(event, PtEvent::Trouble(why) if why.starts_with(&message)));
}

#[test]
fn a_relay_whose_cookie_is_not_there_is_told_with_its_file() {
    let onward = Onward::Extended(echo(), "/nowhere/cookie".into());
    let (server, bridge) = server("nosteg", onward);
    let (_client, at) = client(ListenerKind::Bridge(Box::new(bridge)));
    let mut program = TcpStream::connect(at).unwrap();
    program.set_read_timeout(Some(PATIENCE)).unwrap();
    program.read(&mut [0]).unwrap_err();
    let message = "/nowhere/cookie: No such file";
    server.expect_event(|event| matches!(event, PtEvent::Trouble(why) if why.contains(message)));
}

#[test]
fn a_profile_of_the_web_wants_a_site() {
    let settings = ServerSettings {
        listen: "127.0.0.1:0".parse().unwrap(),
        key: ServerKey::generate(&mut generator().unwrap()),
        profile: "http-text".parse().unwrap(),
        onward: Onward::Plain("127.0.0.1:9".parse().unwrap()),
        site: None,
        schedule: schedule(),
        memory: 1 << 20,
        links: 1,
        covers: Covers::default(),
    };
    let error = PtServer::new(settings).err().unwrap().to_string();
    assert!(error.contains("http-text needs a web server"), "{error}");
}
