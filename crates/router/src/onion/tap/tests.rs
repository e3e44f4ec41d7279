//! Taps on real sockets, with loss and reordering on the line. Tests of a tap are skipped, with a
//! message, if its capabilities are missing.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anabranch_emulator::{self as emulate, Network, Topology};
use anabranch_links::EarlyCounts;
use anabranch_links::utls::Origin;
use socket2::Socket;

use super::*;
use crate::onion::conn::connecting_by;
use crate::onion::link_pair::{CellDelays, LinkPair};
use crate::onion::mptcp::TcpKind;

mod wrap_tests;

/// Timeout for events that are certain to occur, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Opens a tap of each kind that this machine allows.
fn taps() -> Vec<Tap> {
    let filter = Filter::open().map(|filter| Tap(Kind::Filter(filter)));
    let packets = Packets::open().map(|packets| Tap(Kind::Packets(packets)));
    let named = [("socket filter", filter), ("packets", packets)];
    let had = named.into_iter().filter_map(|(name, tap)| {
        tap.inspect_err(|error| eprintln!("skipped: {name}: {error}")).ok()
    });
    had.collect()
}

/// The two ends of a connection, with a tap on the end `near`. Either end may have opened the
/// connection.
struct TappedPair {
    tap: Tap,
    cookie: Cookie,
    near: TcpStream,
    far: TcpStream,
    origin: Option<Origin>,
}

impl TappedPair {
    fn new(tap: Tap, host: &str, dialled: bool) -> TappedPair {
        TappedPair::prepared(tap, host, dialled, |_| ())
    }

    /// As [`TappedPair::new`], but calls `prepare` on the dialling socket before it connects.
    fn prepared(
        mut tap: Tap,
        host: &str,
        dialled: bool,
        prepare: impl FnOnce(&Socket),
    ) -> TappedPair {
        let listener = TcpListener::bind(host).unwrap();
        save_syns(&listener).unwrap();
        let peer: SocketAddr = listener.local_addr().unwrap();
        let mut cookie = None;
        let near = connecting_by(peer, TcpKind::Single, |socket| {
            prepare(socket);
            cookie = if dialled { tap.attach(socket.as_fd()) } else { None };
        });
        let near = near.unwrap();
        let (far, from) = listener.accept().unwrap();
        let (near, far) = if dialled { (near, far) } else { (far, near) };
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(false).unwrap();
        let origin = if dialled { None } else { saved_syn(&near).map(Origin::of_syn) };
        let cookie = cookie.or_else(|| tap.attach(near.as_fd())).unwrap();
        tap.connected(cookie, &near, if dialled { peer } else { from });
        TappedPair { tap, cookie, near, far, origin }
    }

    /// Returns the bytes that the tap delivers within 50 ms, by offset in the stream. `read` is
    /// the number of bytes that were read from the socket.
    fn shown(&mut self, read: u64) -> BTreeMap<u64, Vec<u8>> {
        let (mut shown, until) = (BTreeMap::new(), Instant::now() + Duration::from_millis(50));
        while Instant::now() < until {
            self.drain(read, &mut shown);
            std::thread::sleep(Duration::from_millis(1));
        }
        shown
    }

    /// Returns the bytes that the tap delivers until `wanted` is among them, and for 50 ms after.
    fn shows(&mut self, wanted: &[u8]) -> BTreeMap<u64, Vec<u8>> {
        let (mut shown, until) = (BTreeMap::new(), Instant::now() + PATIENCE);
        while !shown.values().any(|bytes| bytes == wanted) {
            assert!(Instant::now() < until, "{shown:?}");
            self.drain(0, &mut shown);
        }
        shown.extend(self.shown(0));
        shown
    }

    /// Returns the origin of the sequence numbers of the stream to `near`. If `near` has opened
    /// the connection, waits for the tap to deliver the SYN.
    fn begins(&mut self) -> Origin {
        let until = Instant::now() + PATIENCE;
        loop {
            self.drain(0, &mut BTreeMap::new());
            if let Some(origin) = self.origin {
                return origin;
            }
            assert!(Instant::now() < until, "no SYN is shown by {}", self.tap.kind());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn drain(&mut self, read: u64, shown: &mut BTreeMap<u64, Vec<u8>>) {
        let (origin, cookie) = (&mut self.origin, self.cookie);
        self.tap.drain(|segment| {
            assert_eq!(segment.cookie, cookie);
            match (segment.bytes, *origin) {
                (None, _) => *origin = Some(Origin::of_syn(segment.number)),
                (Some(bytes), Some(origin)) => {
                    let offset = origin.offset(segment.number, read).unwrap();
                    shown.insert(offset, bytes.to_vec());
                }
                (Some(_), None) => panic!("bytes of a stream without a beginning"),
            }
        });
    }
}

#[test]
fn the_beginning_of_a_connection_is_known_at_either_end() {
    for host in ["127.0.0.1:0", "[::1]:0"] {
        for dialled in [true, false] {
            for tap in taps() {
                println!("{}, {host}, dialled: {dialled}", tap.kind());
                TappedPair::new(tap, host, dialled).begins();
            }
        }
    }
}

#[test]
fn bytes_in_order_are_shown_by_no_socket_filter_and_reach_the_socket() {
    for tap in taps().into_iter().filter(|tap| tap.kind() == TapKind::SocketFilter) {
        let mut tapped = TappedPair::new(tap, "127.0.0.1:0", true);
        let origin = tapped.begins();
        assert!(tapped.tap.begin(tapped.cookie, origin.number(0)));
        let sent: Vec<u8> = (0..200_000u32).map(|at| at as u8).collect();
        let mut received = Vec::new();
        for piece in sent.chunks(20_000) {
            tapped.far.write_all(piece).unwrap();
            assert_eq!(tapped.shown(received.len() as u64), BTreeMap::new());
            let until = Instant::now() + PATIENCE;
            let wanted = received.len() + piece.len();
            while received.len() < wanted && Instant::now() < until {
                read_all(&mut tapped.near, &mut received);
            }
        }
        assert_eq!(received, sent);
    }
}

#[test]
fn what_is_behind_the_number_that_was_read_is_shown_until_the_connection_ends() {
    for tap in taps() {
        let kind = tap.kind();
        let mut tapped = TappedPair::new(tap, "127.0.0.1:0", false);
        let origin = tapped.origin.unwrap();
        // Makes the tap expect 1,000 bytes before the first one, as if these were missing.
        let claimed = origin.number(0).wrapping_sub(1_000);
        assert!(tapped.tap.begin(tapped.cookie, claimed), "{kind}");
        tapped.far.write_all(b"early").unwrap();
        let shown = tapped.shows(b"early");
        assert_eq!(shown.get(&0).map(Vec::as_slice), Some(&b"early"[..]), "{kind}");
        tapped.tap.advance(tapped.cookie, origin.number(5));
        if kind == TapKind::SocketFilter {
            tapped.far.write_all(b" now in order").unwrap();
            assert_eq!(tapped.shown(5), BTreeMap::new());
        }
        let (cookie, other) = (tapped.cookie, Cookie(tapped.cookie.0 + 7));
        tapped.tap.end(other);
        tapped.tap.begin(cookie, claimed);
        tapped.tap.end(cookie);
        tapped.far.write_all(b"nobody looks").unwrap();
        assert_eq!(tapped.shown(5), BTreeMap::new(), "{kind}");
    }
}

#[test]
fn a_place_in_the_table_is_one_sockets() {
    let Ok(filter) = Filter::open().inspect_err(|error| eprintln!("skipped: {error}")) else {
        return;
    };
    let (one, other) = (Cookie(77), Cookie(77 + program::SOCKETS as u64));
    assert!(filter.begin(one, 5) && filter.begin(one, 6));
    assert!(!filter.begin(other, 5));
    filter.end(other);
    assert!(!filter.begin(other, 5), "it is not its to free");
    filter.end(one);
    assert!(filter.begin(other, 5));
}

#[test]
fn a_thread_that_gave_the_capabilities_up_opens_no_tap_and_uses_the_one_it_has() {
    let had = Filter::open().is_ok();
    let worker = std::thread::spawn(move || {
        let taps = Tap::open_all(2);
        let after = Tap::open().kind();
        let has = capabilities(None).unwrap();
        // CAP_SYS_ADMIN also allows loading programs, so root can still open a tap.
        let root = has.effective.contains(CapabilitySet::SYS_ADMIN);
        let gone = !has.permitted.intersects(NEEDED);
        let mut tapped = taps.into_iter().next().filter(|_| had).map(|tap| {
            assert_eq!(tap.kind(), TapKind::SocketFilter);
            TappedPair::new(tap, "127.0.0.1:0", true)
        });
        if let Some(tapped) = &mut tapped {
            tapped.begins();
        }
        (root || after == TapKind::None, gone)
    });
    assert_eq!(worker.join().unwrap(), (true, true));
}

/// Number of cells to send.
const CELLS: u32 = 600;
/// Interval between two cells.
const BETWEEN: Duration = Duration::from_millis(4);

/// Two hosts, with a line between them that has a delay of 15 ms and loses 4 % of packets.
const LOSSY: &str = "seed = 5
[[host]]
name = 'one'
[[host]]
name = 'two'
[[link]]
name = 'line'
rate = '100mbit'
delay = '15ms'
queue = '250kB'
loss = 0.04
ends = [{ host = 'one', address = ['10.77.0.1/24'] }, { host = 'two', address = ['10.77.0.2/24'] }]
";

/// Opens a link over IPv4 from the first host to the second. `open` creates the tap of each end.
fn pair(network: &Network, open: impl Fn() -> io::Result<Kind> + Sync) -> LinkPair {
    let hosts = ["one", "two"].map(|name| network.host(name).unwrap());
    let taps = hosts.map(|host| Tap(host.run(&open).unwrap()));
    LinkPair::open(hosts, "10.77.0.2:9001".parse().unwrap(), taps).unwrap()
}

/// Sends [`CELLS`] cells from the end `from` to the other, and returns the delays of each cell.
fn transferred(pair: &mut LinkPair, from: usize) -> Vec<CellDelays> {
    let received =
        pair.carry(from, (CELLS, BETWEEN), 3 * PATIENCE, &AtomicBool::new(false)).unwrap();
    assert!(received.keys().copied().eq(0..CELLS), "{} came", received.len());
    received.into_values().collect()
}

/// Function that opens a tap of one kind.
type Open = fn() -> io::Result<Kind>;

/// Returns the kinds of taps that this machine allows, by name.
fn openers() -> Vec<(&'static str, Open)> {
    let kinds: [(&str, Open); 2] = [
        ("socket filter", || Filter::open().map(Kind::Filter)),
        ("packets", || Packets::open().map(Kind::Packets)),
    ];
    let had = kinds.into_iter().filter(|(name, open)| {
        open().inspect_err(|error| eprintln!("skipped: {name}: {error}")).is_ok()
    });
    had.collect()
}

/// Starts the hosts and the line of [`LOSSY`]; `None` if this machine does not allow it.
fn lossy() -> Option<Network> {
    network(LOSSY)
}

fn network(text: &str) -> Option<Network> {
    for need in emulate::check().into_iter().filter(|need| need.only_for.is_none()) {
        if let Some(why) = need.missing {
            eprintln!("skipped: no {}: {why}", need.what);
            return None;
        }
    }
    Some(Network::start(&Topology::parse(text, "test").unwrap()).unwrap())
}

#[test]
fn over_a_line_that_loses_cells_come_early_and_all_of_them_once() {
    let Some(network) = lossy() else { return };
    for (name, open) in openers() {
        let mut pair = pair(&network, open);
        for from in [0, 1] {
            let cells = transferred(&mut pair, from);
            let mean = |of: fn(&CellDelays) -> Duration| {
                let all: Duration = cells.iter().map(of).sum();
                all.as_secs_f64() * 1e3 / f64::from(CELLS)
            };
            let (received, in_order) = (mean(|cell| cell.received), mean(|cell| cell.in_order));
            let early = pair.early_counts(1 - from);
            println!("{name}, from {from}: {received:.1} ms, in order {in_order:.1}; {early:?}");
            assert_eq!(early.failed, 0, "{name}");
            assert!(early.opened > 20, "{name}: {early:?}");
            assert!(received < 0.97 * in_order, "{name}: {received:.1} of {in_order:.1} ms");
        }
    }
}

#[test]
fn without_a_tap_the_link_is_in_order_and_whole() {
    let Some(network) = lossy() else { return };
    let mut pair = pair(&network, || Ok(Kind::None));
    assert!(transferred(&mut pair, 0).iter().all(|cell| cell.received == cell.in_order));
    assert_eq!(pair.early_counts(1), EarlyCounts::default());
}

fn read_all(socket: &mut TcpStream, into: &mut Vec<u8>) {
    match socket.read_to_end(into) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        other => panic!("{other:?}"),
    }
}
