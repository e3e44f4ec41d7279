//! Connections whose TCP sequence numbers wrap at 2^32 while a tap watches them.

use anabranch_links::tls::Context;
use anabranch_multipath::Time;
use anabranch_os::socket_option;
use socket2::Socket;

use super::*;
use crate::onion::conn::Conn;
use crate::onion::link_pair::{MADE, RECORD};
use crate::onion::newcomers::ConnectionLimits;

/// `TCP_SEND_QUEUE` of `linux/tcp.h`: the option `TCP_QUEUE_SEQ` applies to bytes to be sent.
const SEND_QUEUE: i32 = 2;

/// Sets the sequence number of the first byte that `socket` will send. The kernel allows this,
/// with CAP_NET_ADMIN, for programs that restore connections (`TCP_REPAIR`).
fn number_from(socket: &Socket, first: u32) -> io::Result<()> {
    let set = |option, value: u32| {
        socket_option::set(socket.as_fd(), [libc::IPPROTO_TCP, option], &value.to_ne_bytes())
    };
    set(libc::TCP_REPAIR, 1)?;
    set(libc::TCP_REPAIR_QUEUE, SEND_QUEUE as u32)?;
    // The SYN has the number before `first`.
    set(libc::TCP_QUEUE_SEQ, first.wrapping_sub(1))?;
    set(libc::TCP_REPAIR, 0)
}

/// Sends 60 bytes to the tapped end, reads them there, and advances the tap. Returns what the tap
/// has delivered of them, by offset in the stream.
fn sent_in_order(tapped: &mut TappedPair, read: &mut Vec<u8>) -> BTreeMap<u64, Vec<u8>> {
    let (wanted, until) = (read.len() + 60, Instant::now() + PATIENCE);
    tapped.far.write_all(&[7; 60]).unwrap();
    while read.len() < wanted {
        assert!(Instant::now() < until, "{} bytes came", read.len());
        read_all(&mut tapped.near, read);
    }
    let shown = tapped.shown(read.len() as u64);
    // The socket filter follows the stream by itself.
    if tapped.tap.kind() == TapKind::Packets {
        let number = tapped.origin.unwrap().number(read.len() as u64);
        tapped.tap.advance(tapped.cookie, number);
    }
    shown
}

#[test]
fn what_is_ahead_and_what_has_passed_are_told_apart_where_numbers_wrap() {
    for tap in taps() {
        let kind = tap.kind();
        // 100 bytes before the wrap.
        let first = 0_u32.wrapping_sub(100);
        let mut numbered = Ok(());
        let mut tapped = TappedPair::prepared(tap, "127.0.0.1:0", false, |socket| {
            numbered = number_from(socket, first);
        });
        if let Err(error) = numbered {
            eprintln!("skipped: no sequence number can be chosen: {error}");
            return;
        }
        let (origin, cookie, mut read) = (tapped.origin.unwrap(), tapped.cookie, Vec::new());
        assert_eq!(origin.number(0), first, "{kind}");
        let nothing = BTreeMap::new();
        // The reading position is after the wrap, and the data are before it, so they were read
        // already.
        assert!(tapped.tap.begin(cookie, origin.number(150)));
        assert_eq!(sent_in_order(&mut tapped, &mut read), nothing, "{kind}: passed");
        // These bytes are in order across the wrap, and after it.
        assert!(tapped.tap.begin(cookie, origin.number(60)));
        for end in [120, 180] {
            assert_eq!(sent_in_order(&mut tapped, &mut read), nothing, "{kind}: up to {end}");
        }
        // The reading position is before the wrap, and the data are after it, so bytes are
        // missing.
        assert!(tapped.tap.begin(cookie, origin.number(50)));
        let ahead = sent_in_order(&mut tapped, &mut read);
        assert_eq!(ahead, BTreeMap::from([(180, vec![7; 60])]), "{kind}: ahead");
        // The missing bytes were read: the position moves across the wrap, but never back.
        tapped.tap.advance(cookie, origin.number(240));
        if kind == TapKind::SocketFilter {
            tapped.tap.advance(cookie, origin.number(50));
        }
        assert_eq!(sent_in_order(&mut tapped, &mut read), nothing, "{kind}: in order again");
    }
}

/// Opens a link as [`pair`] does, but only the second end has a tap, and the sequence numbers from
/// the first end to the second begin at `first`. Returns `None` if they cannot be chosen.
fn pair_from(network: &Network, first: u32, open: Open) -> Option<LinkPair> {
    let [one, two] = ["one", "two"].map(|name| network.host(name).unwrap());
    let listener = two.run(|| TcpListener::bind("10.77.0.2:9001")).unwrap();
    save_syns(&listener).unwrap();
    let address = listener.local_addr().unwrap();
    let mut numbered = Ok(());
    let mut prepare = |socket: &Socket| numbered = number_from(socket, first);
    let near = one.run(|| connecting_by(address, TcpKind::Single, &mut prepare)).unwrap();
    if let Err(error) = numbered {
        eprintln!("skipped: no sequence number can be chosen: {error}");
        return None;
    }
    let (far, from) = listener.accept().unwrap();
    let mut taps = [Tap::none(), Tap(two.run(open).unwrap())];
    let context = Context::new(MADE).unwrap();
    let links = [context.connect().unwrap(), context.accept().unwrap()].map(Box::new);
    let ends = [(near, address), (far, from)].into_iter().zip(links).zip(&mut taps);
    let conns = ends.map(|(((socket, peer), link), tap)| {
        let place = ConnectionLimits::default().admit(Time::ZERO, peer.ip()).unwrap();
        Conn::accepted(socket, peer, link, place, tap).unwrap()
    });
    let conns: Vec<Conn> = conns.collect();
    Some(LinkPair::of(conns.try_into().ok().unwrap(), taps).unwrap())
}

#[test]
fn cells_come_early_before_and_behind_the_wrap_and_all_of_them_once() {
    let Some(network) = lossy() else { return };
    // The numbers wrap in the middle of the cells. The handshake takes about 2,000 bytes.
    let first = 0_u32.wrapping_sub(RECORD as u32 * CELLS / 2 + 2_000);
    for (name, open) in openers() {
        let Some(mut pair) = pair_from(&network, first, open) else { return };
        let cells = transferred(&mut pair, 0);
        let is_early = |cell: &&CellDelays| cell.received < cell.in_order;
        let (before, tail) = cells.split_at(CELLS as usize / 2 - 4);
        let early = [before, &tail[8..]].map(|some| some.iter().filter(is_early).count());
        let counts = pair.early_counts(1);
        println!("{name}: {early:?} cells early before and behind the wrap; {counts:?}");
        assert_eq!(counts.failed, 0, "{name}");
        assert!(early.iter().all(|count| *count > 10), "{name}: {early:?}");
    }
}

/// Changes to [`LOSSY`] for a fast line. Few packets are lost, because each loss halves the
/// window.
const FAST: [(&str, &str); 4] = [
    ("rate = '100mbit'", "rate = '2gbit'"),
    ("delay = '15ms'", "delay = '1ms'"),
    ("queue = '250kB'", "queue = '2MB'"),
    ("loss = 0.04", "loss = 0.00002"),
];

#[test]
#[ignore = "minutes, of both cores: 4 GiB and more through one connection, by each tap"]
fn more_than_the_numbers_of_tcp_goes_through_one_connection() {
    let cells = ((4_400_u64 << 20) / RECORD) as u32;
    let text = FAST.iter().fold(LOSSY.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "{old}");
        text.replace(old, new)
    });
    for (name, open) in openers() {
        let Some(network) = network(&text) else { return };
        let mut pair = pair(&network, open);
        let begun = Instant::now();
        let bytes = pair.pour(0, cells, Duration::from_secs(3_000)).unwrap();
        let elapsed = begun.elapsed().as_secs_f64();
        let counts = pair.early_counts(1);
        println!(
            "{name}: {bytes} bytes in {elapsed:.0} s, {:.0} MB/s; {cells} cells, {counts:?}",
            bytes as f64 / elapsed / 1e6
        );
        assert!(bytes > 1 << 32, "{name}: {bytes}");
        assert_eq!(counts.failed, 0, "{name}");
        assert!(counts.opened > 1_000, "{name}: {counts:?}");
    }
}
