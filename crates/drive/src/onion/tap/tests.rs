//! Taps on real sockets: what they show of a connection over a line that loses and reorders.
//! Without the capabilities that a tap takes, its tests say so and end.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anabranch_links::EarlyCounts;
use anabranch_links::tls::Context;
use anabranch_links::utls::Origin;
use anabranch_multipath::Time;
use anabranch_onion::wire::extend::Target;

use super::*;
use crate::emulate::{self, Namespace, Network, Topology};
use crate::onion::conn::{Conn, SocketRead, connecting_by};
use crate::onion::newcomers::Entrance;

/// The taps that can be had here.
fn taps() -> Vec<Tap> {
    let filter = Filter::open().map(|filter| Tap(Kind::Filter(filter)));
    let packets = Packets::open().map(|packets| Tap(Kind::Packets(packets)));
    let named = [("socket filter", filter), ("packets", packets)];
    let had = named.into_iter().filter_map(|(name, tap)| {
        tap.inspect_err(|error| eprintln!("skipped: {name}: {error}")).ok()
    });
    had.collect()
}

/// A connection that one of both ends dialled, with the tap on that end or on the other.
struct TappedPair {
    tap: Tap,
    cookie: Cookie,
    near: TcpStream,
    far: TcpStream,
    origin: Option<Origin>,
}

impl TappedPair {
    fn new(mut tap: Tap, host: &str, dialled: bool) -> TappedPair {
        let listener = TcpListener::bind(host).unwrap();
        save_syns(&listener).unwrap();
        let peer: SocketAddr = listener.local_addr().unwrap();
        let mut cookie = None;
        let near = connecting_by(peer, |socket| {
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

    /// What the tap shows until nothing more comes, by the offset in the stream.
    fn shown(&mut self, read: u64) -> BTreeMap<u64, Vec<u8>> {
        let (mut shown, until) = (BTreeMap::new(), Instant::now() + Duration::from_millis(50));
        while Instant::now() < until {
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
            std::thread::sleep(Duration::from_millis(1));
        }
        shown
    }
}

#[test]
fn the_beginning_of_a_connection_is_known_at_either_end() {
    for host in ["127.0.0.1:0", "[::1]:0"] {
        for dialled in [true, false] {
            for tap in taps() {
                let kind = tap.kind();
                let mut tapped = TappedPair::new(tap, host, dialled);
                tapped.shown(0);
                assert!(tapped.origin.is_some(), "{kind}, {host}, dialled: {dialled}");
            }
        }
    }
}

#[test]
fn bytes_in_order_are_shown_by_no_socket_filter_and_reach_the_socket() {
    for tap in taps().into_iter().filter(|tap| tap.kind() == TapKind::SocketFilter) {
        let mut tapped = TappedPair::new(tap, "127.0.0.1:0", true);
        tapped.shown(0);
        let origin = tapped.origin.unwrap();
        assert!(tapped.tap.begin(tapped.cookie, origin.number(0)));
        let sent: Vec<u8> = (0..200_000u32).map(|at| at as u8).collect();
        let mut received = Vec::new();
        for piece in sent.chunks(20_000) {
            tapped.far.write_all(piece).unwrap();
            assert_eq!(tapped.shown(received.len() as u64), BTreeMap::new());
            read_all(&mut tapped.near, &mut received);
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
        // As if the 1,000 bytes before what comes were missing.
        let claimed = origin.number(0).wrapping_sub(1_000);
        assert!(tapped.tap.begin(tapped.cookie, claimed), "{kind}");
        // Before it began: none of it.
        tapped.far.write_all(b"early").unwrap();
        let shown = tapped.shown(0);
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
    let told = std::thread::spawn(move || {
        let taps = Tap::open_all(2);
        let after = Tap::open().kind();
        let has = capabilities(None).unwrap();
        // Root may load programs by CAP_SYS_ADMIN as well.
        let root = has.effective.contains(CapabilitySet::SYS_ADMIN);
        let gone = !has.permitted.intersects(NEEDED);
        let mut tapped = taps.into_iter().next().filter(|_| had).map(|tap| {
            assert_eq!(tap.kind(), TapKind::SocketFilter);
            TappedPair::new(tap, "127.0.0.1:0", true)
        });
        let known = tapped.as_mut().is_none_or(|tapped| {
            tapped.shown(0);
            tapped.origin.is_some()
        });
        (root || after == TapKind::None, gone, known)
    });
    assert_eq!(told.join().unwrap(), (true, true, true));
}

/// Bytes of a unit: a cell with a number.
const UNIT: usize = 518;
/// Units that are sent, and the time between two of them.
const UNITS: u32 = 600;
const BETWEEN: Duration = Duration::from_millis(4);

/// Two hosts, and a line of 15 ms between them that loses 4 %.
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

/// Two ends of a link, and the tap that each has.
struct Ends {
    conns: [Conn; 2],
    taps: [Tap; 2],
    begun: Instant,
}

impl Ends {
    /// A link whose handshake is done; the first end dialled, over IPv4.
    fn open(network: &Network, open: impl Fn() -> io::Result<Kind> + Sync) -> Ends {
        let context = Context::new(1_800_000_000).unwrap();
        let [one, two] = ["one", "two"].map(|name| network.host(name).unwrap());
        let made = |host: &Namespace| Tap(host.run(&open).unwrap());
        let mut taps = [made(one), made(two)];
        let listener = two.run(|| TcpListener::bind("10.77.0.2:9001")).unwrap();
        save_syns(&listener).unwrap();
        let addresses = vec![listener.local_addr().unwrap()];
        let target = Target { addresses, ..Target::default() };
        let [tap, other] = &mut taps;
        let link = Box::new(context.connect().unwrap());
        let dialled = one.run(|| Conn::dial(target, 0, link, (tap, None))).unwrap();
        let (socket, peer) = listener.accept().unwrap();
        let place = Entrance::default().admit(Time::ZERO, peer.ip()).unwrap();
        let link = Box::new(context.accept().unwrap());
        let accepted = Conn::accepted(socket, peer, link, place, other).unwrap();
        let mut ends = Ends { conns: [dialled, accepted], taps, begun: Instant::now() };
        while !ends.conns.iter().all(Conn::is_open) {
            ends.turn(&mut [Vec::new(), Vec::new()]);
        }
        // What else the handshake says.
        (0..100).for_each(|_| ends.turn(&mut [Vec::new(), Vec::new()]));
        let now = ends.now();
        for (conn, tap) in ends.conns.iter_mut().zip(&mut ends.taps) {
            conn.unorder(now, UNIT, tap).unwrap();
        }
        ends
    }

    fn now(&self) -> Time {
        Time::ZERO + self.begun.elapsed()
    }

    /// Moves what can be moved; what each end reads is appended.
    fn turn(&mut self, plain: &mut [Vec<u8>; 2]) {
        let now = self.now();
        for end in [0, 1] {
            let (conn, tap) = (&mut self.conns[end], &mut self.taps[end]);
            tap.drain(|segment| {
                if conn.cookie() == Some(segment.cookie) {
                    conn.show(now, segment);
                }
            });
            conn.take_early(&mut plain[end], tap);
            let read = conn.read(now, &mut [0; 16_384], &mut plain[end]);
            assert_eq!(read, SocketRead::Bytes);
            conn.keep_up(tap);
            conn.flush(now).unwrap();
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A unit, with its number and when it was sent.
fn unit(number: u32, now: Time) -> Vec<u8> {
    let mut unit = vec![number as u8; UNIT];
    unit[..4].copy_from_slice(&number.to_be_bytes());
    unit[4..12].copy_from_slice(&now.nanos().to_be_bytes());
    unit
}

/// Sends units from one end to the other: for each, how long it took to come, and how long the
/// kernel took to give it out.
fn delays(ends: &mut Ends, from: usize) -> Vec<[Duration; 2]> {
    let (mut came, mut given) = (BTreeMap::new(), BTreeMap::new());
    let (mut plain, begun) = ([Vec::new(), Vec::new()], ends.now());
    let before = ends.conns[1 - from].carried[0];
    let mut sent = Vec::new();
    while given.len() < UNITS as usize || came.len() < UNITS as usize {
        let (now, number) = (ends.now(), sent.len() as u32);
        assert!(now.since(begun) < Duration::from_secs(60), "{} of {UNITS} came", came.len());
        if number < UNITS && now >= begun + number * BETWEEN {
            ends.conns[from].seal(&unit(number, now));
            sent.push(now);
        }
        ends.turn(&mut plain);
        let now = ends.now();
        for unit in std::mem::take(&mut plain[1 - from]).chunks(UNIT) {
            let number = u32::from_be_bytes(*unit.first_chunk().unwrap());
            assert_eq!(unit, self::unit(number, sent[number as usize]), "as it was sent");
            assert_eq!(came.insert(number, now), None, "it came twice");
        }
        let in_order = (ends.conns[1 - from].carried[0] - before) / RECORD;
        given.extend((given.len() as u32..in_order as u32).map(|number| (number, now)));
    }
    let delay = |number: u32| [&came, &given].map(|at| at[&number].since(sent[number as usize]));
    (0..UNITS).map(delay).collect()
}

/// Bytes of a unit's record on the wire.
const RECORD: u64 = 540;

/// How a tap of a kind is made.
type Open = fn() -> io::Result<Kind>;

/// The hosts and their line, unless this machine cannot have them.
fn lossy() -> Option<Network> {
    for need in emulate::check().into_iter().filter(|need| need.only_for.is_none()) {
        if let Some(why) = need.missing {
            eprintln!("skipped: no {}: {why}", need.what);
            return None;
        }
    }
    Some(Network::start(&Topology::parse(LOSSY, "test").unwrap()).unwrap())
}

#[test]
fn over_a_line_that_loses_units_come_early_and_all_of_them_once() {
    let Some(network) = lossy() else { return };
    let kinds: [(&str, Open); 2] = [
        ("socket filter", || Filter::open().map(Kind::Filter)),
        ("packets", || Packets::open().map(Kind::Packets)),
    ];
    for (name, open) in kinds {
        if let Err(error) = open() {
            eprintln!("skipped: {name}: {error}");
            continue;
        }
        let mut ends = Ends::open(&network, open);
        for from in [0, 1] {
            let delays = delays(&mut ends, from);
            let mean = |place: usize| {
                let all: Duration = delays.iter().map(|delay| delay[place]).sum();
                all.as_secs_f64() * 1e3 / f64::from(UNITS)
            };
            let early = ends.conns[1 - from].link().early_counts().unwrap();
            println!("{name}, from {from}: {:.1} ms, in order {:.1}; {early:?}", mean(0), mean(1));
            assert_eq!(early.failed, 0, "{name}");
            assert!(early.opened > 20, "{name}: {early:?}");
            assert!(mean(0) < 0.97 * mean(1), "{name}: {:.1} of {:.1} ms", mean(0), mean(1));
        }
    }
}

#[test]
fn without_a_tap_the_link_is_in_order_and_whole() {
    let Some(network) = lossy() else { return };
    let mut ends = Ends::open(&network, || Ok(Kind::None));
    assert!(delays(&mut ends, 0).iter().all(|[came, given]| came == given));
    assert_eq!(ends.conns[1].link().early_counts(), Some(EarlyCounts::default()));
}

fn read_all(socket: &mut TcpStream, into: &mut Vec<u8>) {
    match socket.read_to_end(into) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        other => panic!("{other:?}"),
    }
}
