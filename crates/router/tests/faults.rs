//! A relay on real sockets whose neighbours violate TLS once a link is open. The link ends, the
//! relay counts and reports the violation, and other links continue. A relay that is asked to stop
//! ends after its last circuit.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod lone_relay;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_links::{Context, Link, State, StreamLink, Tls};
use anabranch_multipath::Time;
use anabranch_onion::channel::{Capabilities, Channel, Role, Start};
use anabranch_onion::handshake::fast;
use anabranch_onion::wire::cell::{Cells, Command, put_fixed};
use anabranch_onion::wire::keys::sha256;
use anabranch_onion::{CarrierFault, Event, LinkFault, Violation};
use anabranch_router::onion::dirclient::unix;
use anabranch_router::onion::relay::{self, Numbers, Settings, Watch};
use anabranch_router::onion::tap::Tap;

const PATIENCE: Duration = Duration::from_secs(30);
/// Number of key updates without data between them. The relay accepts one less.
const UPDATES: usize = 33;

/// A report from the relay.
enum RelayNews {
    Listens(SocketAddr),
    Violation(Violation),
    Numbers(Box<Numbers>),
}

struct EventSender(Sender<RelayNews>);

impl Watch for EventSender {
    fn listening(&mut self, at: &[SocketAddr]) {
        let _ = self.0.send(RelayNews::Listens(at[0]));
    }

    fn event(&mut self, _: Time, event: &Event) {
        if let Event::Violation { violation, .. } = event {
            let _ = self.0.send(RelayNews::Violation(*violation));
        }
    }

    fn numbers(&mut self, _: Time, numbers: &Numbers) {
        let _ = self.0.send(RelayNews::Numbers(Box::new(numbers.clone())));
    }

    fn note(&mut self, _: &str) {}
}

/// The relay's reports so far.
struct RelayLog {
    events: Receiver<RelayNews>,
    violations: Vec<Violation>,
    numbers: Numbers,
}

impl RelayLog {
    /// Waits until the relay reports numbers that `is_so` accepts. Numbers that were reported
    /// before the call do not count.
    fn until(&mut self, what: &str, is_so: impl Fn(&Numbers) -> bool) {
        let end = Instant::now() + PATIENCE;
        let earlier: Vec<RelayNews> = self.events.try_iter().collect();
        self.violations.extend(earlier.into_iter().filter_map(|news| match news {
            RelayNews::Violation(violation) => Some(violation),
            _ => None,
        }));
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(RelayNews::Violation(violation)) => self.violations.push(violation),
                Ok(RelayNews::Numbers(numbers)) => {
                    self.numbers = *numbers;
                    if is_so(&self.numbers) {
                        return;
                    }
                }
                Ok(RelayNews::Listens(_)) => {}
                Err(_) => panic!("{what}: {:?}, {:?}", self.violations, self.numbers),
            }
        }
    }
}

/// A client's link, with records that the test writes.
struct Peer {
    socket: TcpStream,
    link: Tls,
    channel: Channel,
    inbox: Vec<u8>,
}

impl Peer {
    /// Opens a link, and completes the handshakes of TLS and of the channel.
    fn open(to: SocketAddr, unordered: bool) -> Peer {
        let mut socket = TcpStream::connect(to).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut link = Context::new(unix()).unwrap().connect().unwrap();
        let end = Instant::now() + PATIENCE;
        while link.state() != State::Open {
            assert!(Instant::now() < end, "TLS is not open");
            exchange(&mut link, &mut socket);
        }
        let start = Start {
            peer_certificate: link.peer_certificate().map(sha256),
            capabilities: Capabilities { unordered, ..Capabilities::ORDERED },
            ..Start::new(Time::ZERO, unix(), to.ip())
        };
        let channel = Channel::new(Role::Client, start);
        let mut peer = Peer { socket, link, channel, inbox: Vec::new() };
        while !peer.channel.is_open() {
            assert!(Instant::now() < end, "the channel is not open");
            peer.turn();
        }
        // Sends the last cell of the handshake, NETINFO.
        peer.turn();
        peer
    }

    /// Sends pending data, and receives data. Returns the circuit IDs and commands of the received
    /// cells.
    fn turn(&mut self) -> Vec<(u32, Command)> {
        let bytes = std::mem::take(&mut self.channel.outbox);
        self.link.write(&bytes).unwrap();
        exchange(&mut self.link, &mut self.socket);
        self.link.read(&mut self.inbox).unwrap();
        let mut rng = anabranch_os::entropy::generator().unwrap();
        let mut cells = Cells::new(&mut self.inbox, self.channel.width(), self.channel.longest());
        self.channel.frame(&mut cells);
        let mut received = Vec::new();
        while let Some(cell) = cells.next_cell().unwrap() {
            received.push((cell.circuit, cell.command));
            self.channel.take(&mut rng, &cell).unwrap();
            self.channel.frame(&mut cells);
        }
        let taken = cells.taken();
        self.inbox.drain(..taken);
        received
    }

    /// Returns whether the relay creates the circuit `id`.
    fn has_a_circuit(&mut self, id: u32) -> bool {
        let mut rng = anabranch_os::entropy::generator().unwrap();
        let (_, create) = fast::Client::start(&mut rng);
        put_fixed(&mut self.channel.outbox, id, Command::CREATE_FAST, &create);
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if self.turn().contains(&(id, Command::CREATED_FAST)) {
                return true;
            }
        }
        false
    }

    /// Returns the encrypted bytes that are ready to be sent.
    fn sealed(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        self.link.transmit(Time::ZERO, &mut wire);
        wire
    }

    /// Sends bytes. Returns whether the relay closes the connection then.
    fn is_closed_for(&mut self, wire: &[u8]) -> bool {
        self.socket.write_all(wire).unwrap();
        let end = Instant::now() + PATIENCE;
        let mut buffer = [0; 4096];
        while Instant::now() < end {
            match self.socket.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return error.kind() == ErrorKind::ConnectionReset,
            }
        }
        false
    }
}

/// Sends the pending bytes of a link, and passes received bytes to it.
fn exchange(link: &mut Tls, socket: &mut TcpStream) {
    let (mut wire, mut buffer) = (Vec::new(), [0; 16_384]);
    link.transmit(Time::ZERO, &mut wire);
    socket.write_all(&wire).unwrap();
    match socket.read(&mut buffer) {
        Ok(0) => panic!("the relay has closed the link"),
        Ok(count) => link.receive(Time::ZERO, &buffer[..count]).unwrap(),
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
    }
}

/// Returns a record with one changed byte.
fn a_changed_record(peer: &mut Peer) -> Vec<u8> {
    put_fixed(&mut peer.channel.outbox, 0, Command::PADDING, &[]);
    let cell = std::mem::take(&mut peer.channel.outbox);
    peer.link.write(&cell).unwrap();
    let mut wire = peer.sealed();
    *wire.last_mut().unwrap() ^= 1;
    wire
}

#[test]
fn a_neighbour_that_breaks_tls_loses_its_link_and_is_counted_and_told_of_once() {
    let folder = tempfile::tempdir().unwrap();
    // The links of this relay may be unordered.
    let settings = lone_relay::settings(&folder.path().join("relay"));
    let settings = Settings { taps: vec![Tap::none()], ..settings };
    let ((mut stop, stopped), (reporter, inbox)) = (UnixStream::pair().unwrap(), channel());
    let work = move || relay::run(settings, &stopped, &mut EventSender(reporter));
    let relay = thread::spawn(work);
    let at = match inbox.recv_timeout(PATIENCE) {
        Ok(RelayNews::Listens(at)) => at,
        _ => panic!("it does not listen"),
    };
    let (violations, numbers) = (Vec::new(), Numbers::default());
    let mut log = RelayLog { events: inbox, violations, numbers };
    let mut other = Peer::open(at, false);
    assert!(other.has_a_circuit(0x8000_0001));

    // These events are no violations: a stranger's request, an end with or without a close
    // message, and an alert.
    let mut stranger = TcpStream::connect(at).unwrap();
    stranger.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut polite = Peer::open(at, false);
    polite.link.close();
    let goodbye = polite.sealed();
    assert!(polite.is_closed_for(&goodbye));
    let gone = Peer::open(at, false);
    gone.socket.shutdown(Shutdown::Both).unwrap();
    let mut alerting = Peer::open(at, false);
    alerting.link.receive(Time::ZERO, &[23, 3, 3, 0, 17, 0]).unwrap();
    alerting.link.receive(Time::ZERO, &[0; 16]).unwrap_err();
    let alert = alerting.sealed();
    assert!(!alert.is_empty() && alerting.is_closed_for(&alert));
    log.until("only one is left", |numbers| numbers.links == 1);
    assert_eq!((log.numbers.stats.violations, &log.violations[..]), (0, &[][..]));

    let mut peer = Peer::open(at, false);
    let wire = a_changed_record(&mut peer);
    assert!(peer.is_closed_for(&wire));
    log.until("it is counted", |numbers| numbers.stats.violations == 1);
    assert!(other.has_a_circuit(0x8000_0002));

    let mut peer = Peer::open(at, true);
    // The relay's records have a fixed size after its NETINFO, at most a second later.
    for _ in 0..2 {
        log.until("it is unordered", |numbers| numbers.stats.unordered_links == 1);
    }
    peer.link.write(&[0; 100]).unwrap();
    let wire = peer.sealed();
    assert!(peer.is_closed_for(&wire));
    log.until("it is counted", |numbers| numbers.stats.violations == 2);
    assert!(other.has_a_circuit(0x8000_0003));

    let mut peer = Peer::open(at, false);
    (0..UPDATES).for_each(|_| peer.link.refresh_keys().unwrap());
    let wire = peer.sealed();
    assert!(peer.is_closed_for(&wire));
    log.until("it is counted", |numbers| numbers.stats.violations == 3);
    assert!(other.has_a_circuit(0x8000_0004));

    // A further violation of the same kind is counted, but reported only a minute later.
    let mut peer = Peer::open(at, false);
    let wire = a_changed_record(&mut peer);
    assert!(peer.is_closed_for(&wire));
    log.until("it is counted", |numbers| numbers.stats.violations == 4);
    log.until("the links are gone", |numbers| numbers.links == 1);
    assert_eq!(log.numbers.stats.violations, 4, "each once");
    let faults = [CarrierFault::Unopened, CarrierFault::Length, CarrierFault::KeyUpdates];
    let expected = faults.map(|fault| Violation::Link(LinkFault::Carrier(fault)));
    assert_eq!(log.violations, expected);

    stop.write_all(&[0; 2]).unwrap();
    relay.join().unwrap().unwrap();
}

/// Returns the time that a relay with `threads` threads takes to end, once it is asked to stop and
/// has no circuits left. At first it has `circuits` circuits, each from a different neighbour.
fn time_to_end(threads: usize, circuits: u32) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = lone_relay::settings(&folder.path().join("relay"));
    settings.threads = threads;
    settings.live.grace = Duration::from_secs(600);
    let ((mut stop, stopped), (reporter, inbox)) = (UnixStream::pair().unwrap(), channel());
    let work = move || relay::run(settings, &stopped, &mut EventSender(reporter));
    let relay = thread::spawn(work);
    let at = match inbox.recv_timeout(PATIENCE) {
        Ok(RelayNews::Listens(at)) => at,
        _ => panic!("it does not listen"),
    };
    let mut neighbours: Vec<_> = (0..circuits).map(|_| Peer::open(at, false)).collect();
    for neighbour in &mut neighbours {
        assert!(neighbour.has_a_circuit(0x8000_0001));
    }
    stop.write_all(&[0]).unwrap();
    let mut told_to = Instant::now();
    while let Some(neighbour) = neighbours.pop() {
        thread::sleep(Duration::from_millis(100));
        assert!(!relay.is_finished(), "{} circuits are left", neighbours.len() + 1);
        told_to = Instant::now();
        drop(neighbour);
    }
    relay.join().unwrap().unwrap();
    told_to.elapsed()
}

#[test]
fn a_relay_ends_at_once_when_no_thread_has_a_circuit() {
    for threads in [1, 4] {
        for circuits in [0, 4] {
            // Other programs use the machine too, so the fastest of up to five ends counts.
            let mut ends = (0..5).map(|_| time_to_end(threads, circuits));
            let quickest = ends.find(|time| *time < Duration::from_millis(500));
            assert!(quickest.is_some(), "{threads} threads, at first {circuits} circuits");
        }
    }
}
