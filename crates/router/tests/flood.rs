//! A relay on real sockets that one address floods with connections.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod lone_relay;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_links::{Context, Link, State, StreamLink};
use anabranch_multipath::Time;
use anabranch_onion::Event;
use anabranch_onion::newcomers::HALF_OPEN;
use anabranch_router::onion::dirclient::unix;
use anabranch_router::onion::relay::{self, Numbers, Settings, Watch};
use socket2::{Domain, Socket, Type};

const PATIENCE: Duration = Duration::from_secs(30);
const FLOOD: usize = 400;

/// Sender of the relay's address, and of the number of refused connections.
struct EventSender(Sender<(Option<SocketAddr>, u64)>);

impl Watch for EventSender {
    fn listening(&mut self, at: &[SocketAddr]) {
        let _ = self.0.send((at.first().copied(), 0));
    }

    fn event(&mut self, _: Time, _: &Event) {}

    fn numbers(&mut self, _: Time, numbers: &Numbers) {
        let _ = self.0.send((None, numbers.refused));
    }

    fn note(&mut self, _: &str) {}
}

/// Opens a connection from the loopback address 127.0.0.`from`.
fn connect(from: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, from], 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

/// Returns whether the other end has closed a connection on which no data arrived.
fn is_closed(socket: &mut TcpStream) -> bool {
    socket.set_nonblocking(true).unwrap();
    match socket.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Returns whether a TLS link can be opened.
fn opens(mut socket: TcpStream) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut link = Context::new(unix()).unwrap().connect().unwrap();
    let end = Instant::now() + PATIENCE;
    let mut buffer = [0; 4096];
    while link.state() == State::Handshaking && Instant::now() < end {
        let mut wire = Vec::new();
        link.transmit(Time::ZERO, &mut wire);
        if socket.write_all(&wire).is_err() {
            return false;
        }
        match socket.read(&mut buffer) {
            Ok(0) => return false,
            Ok(count) => link.receive(Time::ZERO, &buffer[..count]).unwrap(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
    }
    link.state() == State::Open
}

#[test]
fn one_address_takes_no_more_places_than_it_may_and_others_come_in_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let settings = lone_relay::settings(&folder.path().join("relay"));
    let settings = Settings { threads: 2, ..settings };
    let ((mut stop, stopped), (reporter, inbox)) = (UnixStream::pair().unwrap(), channel());
    let work = move || relay::run(settings, &stopped, &mut EventSender(reporter));
    let relay = thread::spawn(work);
    let (at, _) = inbox.recv_timeout(PATIENCE).unwrap();
    let at = at.unwrap();
    let mut flood: Vec<TcpStream> = (0..FLOOD).map(|_| connect(2, at)).collect();
    let refused = (FLOOD - HALF_OPEN) as u64;
    let counted = inbox.iter().find(|(_, count)| *count >= refused);
    assert_eq!(counted, Some((None, refused)), "all beyond the number");
    let closed = flood.iter_mut().map(is_closed).filter(|closed| *closed).count();
    assert_eq!(closed, FLOOD - HALF_OPEN);
    assert!((3..20).all(|from| opens(connect(from, at))), "others are served");
    assert!(!opens(connect(2, at)), "and that one is not");
    // An address that closes its connections can open new ones.
    flood.clear();
    let end = Instant::now() + PATIENCE;
    while !opens(connect(2, at)) {
        assert!(Instant::now() < end, "places were not given back");
    }
    stop.write_all(&[0; 2]).unwrap();
    relay.join().unwrap().unwrap();
}
