//! Tests of the module against the kernel, on loopback.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anabranch_multipath::seed;
use rand::{Rng, RngExt};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::*;
use anabranch_testkit::silent_port::silent_udp;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Opens a connected sender and a bound receiver.
fn pair(ip: IpAddr, sending: &UdpOptions, receiving: &UdpOptions) -> (UdpSocket, UdpSocket) {
    let receiver = UdpSocket::bind((ip, 0).into(), receiving).unwrap();
    let peer = receiver.local_addr().unwrap();
    (UdpSocket::connect(None, peer, sending).unwrap(), receiver)
}

fn both(ip: IpAddr) -> (UdpSocket, UdpSocket) {
    pair(ip, &UdpOptions::default(), &UdpOptions::default())
}

fn plain() -> UdpOptions {
    UdpOptions { offload: false, ..UdpOptions::default() }
}

/// Waits until `socket` is readable or has an error.
fn wait(socket: &UdpSocket) {
    assert!(is_readable(socket), "nothing within 5 s");
}

/// Returns whether `socket` is readable or has an error within 5 s.
fn is_readable(socket: &UdpSocket) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::IN)];
    let limit = Timespec { tv_sec: 5, tv_nsec: 0 };
    poll(&mut polled, Some(&limit)).unwrap() == 1
}

/// A received run: its ECN bits, the address that it was sent to, and its datagrams.
#[derive(Debug, PartialEq)]
struct Run {
    ecn: u8,
    to: Option<IpAddr>,
    datagrams: Vec<Vec<u8>>,
}

/// Receives at least `datagrams` datagrams. Panics if fewer arrive.
fn collect(socket: &UdpSocket, datagrams: usize) -> Vec<Run> {
    let runs = collect_most(socket, datagrams);
    let count: usize = runs.iter().map(|run| run.datagrams.len()).sum();
    assert!(count >= datagrams, "{count} of {datagrams} came, and none for 5 s");
    runs
}

/// Receives until `datagrams` datagrams have arrived, or none for 5 s.
fn collect_most(socket: &UdpSocket, datagrams: usize) -> Vec<Run> {
    let mut buffers = RecvBatch::new(8);
    let (mut runs, mut count) = (Vec::new(), 0);
    while count < datagrams && is_readable(socket) {
        for run in buffers.recv(socket).unwrap() {
            count += run.count();
            assert_eq!(run.datagrams().count(), run.count());
            let datagrams = run.datagrams().map(<[u8]>::to_vec).collect();
            runs.push(Run { ecn: run.ecn, to: run.to, datagrams });
        }
    }
    runs
}

fn flat(runs: Vec<Run>) -> Vec<Vec<u8>> {
    runs.into_iter().flat_map(|run| run.datagrams).collect()
}

fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn send(socket: &UdpSocket, datagrams: Datagrams<'_>) -> (usize, Vec<SendFailure>) {
    let mut queue = SendQueue::new();
    let mut batch = queue.batch(socket);
    batch.push(datagrams);
    let report = batch.send();
    (report.sent, report.failures.to_vec())
}

#[test]
fn a_run_arrives_as_one_run_with_its_boundaries() {
    for ip in [V4, V6] {
        let (sender, receiver) = both(ip);
        let bytes = numbered(10 * 1200 + 333);
        let run = Datagrams { stride: 1200, ecn: 2, ..Datagrams::one(&bytes) };
        assert_eq!(send(&sender, run), (11, vec![]));
        assert!(sender.segments(), "loopback takes segmented sends");
        let runs = collect(&receiver, 11);
        let expected = bytes.chunks(1200).map(<[u8]>::to_vec).collect();
        assert_eq!(runs, [Run { ecn: 2, to: Some(ip), datagrams: expected }]);
    }
}

#[test]
fn a_plain_receiver_gets_the_datagrams_of_a_run_one_by_one() {
    for ip in [V4, V6] {
        let (sender, receiver) = pair(ip, &UdpOptions::default(), &plain());
        let bytes = numbered(3 * 500 + 1);
        send(&sender, Datagrams { stride: 500, ..Datagrams::one(&bytes) });
        let runs = collect(&receiver, 4);
        assert!(runs.iter().all(|run| run.datagrams.len() == 1));
        assert_eq!(flat(runs), bytes.chunks(500).map(<[u8]>::to_vec).collect::<Vec<_>>());
    }
}

#[test]
fn a_plain_sender_splits_a_run_itself() {
    let (sender, receiver) = pair(V4, &plain(), &UdpOptions::default());
    let bytes = numbered(5 * 100 + 20);
    assert_eq!(send(&sender, Datagrams { stride: 100, ..Datagrams::one(&bytes) }), (6, vec![]));
    let expected: Vec<Vec<u8>> = bytes.chunks(100).map(<[u8]>::to_vec).collect();
    assert_eq!(flat(collect(&receiver, 6)), expected);
}

#[test]
fn runs_longer_than_a_segmented_send_are_split() {
    for (stride, len) in [(10, 10 * 200 + 3), (1400, 1400 * 120), (40_000, 120_001), (1, 130)] {
        let (sender, receiver) = both(V4);
        let bytes = numbered(len);
        let count = len.div_ceil(stride);
        assert_eq!(send(&sender, Datagrams { stride, ..Datagrams::one(&bytes) }).0, count);
        let runs = collect(&receiver, count);
        assert!(runs.iter().all(|run| run.datagrams.len() <= MAX_SEGMENTS));
        assert_eq!(flat(runs), bytes.chunks(stride).map(<[u8]>::to_vec).collect::<Vec<_>>());
    }
}

#[test]
fn every_ecn_value_arrives() {
    for ip in [V4, V6] {
        let (sender, receiver) = both(ip);
        for ecn in 0..4 {
            send(&sender, Datagrams { ecn, ..Datagrams::one(b"one") });
            send(&sender, Datagrams { ecn, stride: 2, ..Datagrams::one(b"several") });
            assert!(collect(&receiver, 5).iter().all(|run| run.ecn == ecn));
        }
    }
}

#[test]
fn adjacent_datagrams_of_one_size_leave_as_one_run() {
    for ip in [V4, V6] {
        let (sender, receiver) = both(ip);
        let datagrams: Vec<Vec<u8>> = (0..20).map(|i| vec![i; 700]).collect();
        let mut queue = SendQueue::new();
        let mut batch = queue.batch(&sender);
        datagrams.iter().for_each(|datagram| batch.push(Datagrams::one(datagram)));
        batch.push(Datagrams::one(b"shorter, closes the run"));
        batch.push(Datagrams::one(b"behind"));
        assert_eq!(batch.send().sent, 22);
        let runs = collect(&receiver, 22);
        let lengths: Vec<usize> = runs.iter().map(|run| run.datagrams.len()).collect();
        assert_eq!(lengths, [21, 1]);
        assert_eq!(flat(runs)[..20], datagrams);
    }
}

#[test]
fn joined_datagrams_stay_within_a_segmented_send() {
    for (size, most) in [(100, MAX_SEGMENTS), (9000, MAX_BYTES / 9000)] {
        let (sender, receiver) = both(V4);
        let bytes = numbered(size);
        let mut queue = SendQueue::new();
        let mut batch = queue.batch(&sender);
        (0..most * 2 + 1).for_each(|_| batch.push(Datagrams::one(&bytes)));
        assert_eq!((batch.send().failures, sender.segments()), (&[][..], true));
        let runs = collect(&receiver, most * 2 + 1);
        let lengths: Vec<usize> = runs.iter().map(|run| run.datagrams.len()).collect();
        assert_eq!(lengths, [most, most, 1]);
    }
}

#[test]
fn what_differs_in_ecn_or_destination_is_not_joined() {
    let (first, second) = (StdSocket::bind((V4, 0)).unwrap(), StdSocket::bind((V4, 0)).unwrap());
    let to = [first.local_addr().unwrap(), second.local_addr().unwrap()];
    let sender = UdpSocket::bind((V4, 0).into(), &UdpOptions::default()).unwrap();
    let mut queue = SendQueue::new();
    let mut batch = queue.batch(&sender);
    for i in [0u8, 1, 1, 0] {
        let bytes: &[u8] = if i == 0 { b"first" } else { b"secnd" };
        batch.push(Datagrams { to: Some(to[usize::from(i)]), ..Datagrams::one(bytes) });
    }
    assert_eq!(batch.send().sent, 4);
    for (socket, expected) in [(first, b"first"), (second, b"secnd")] {
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut buffer = [0; 32];
        for _ in 0..2 {
            assert_eq!(socket.recv(&mut buffer).unwrap(), 5);
            assert_eq!(&buffer[..5], expected);
        }
    }
}

#[test]
fn empty_datagrams_are_sent_and_received() {
    for ip in [V4, V6] {
        let (sender, receiver) = both(ip);
        let mut queue = SendQueue::new();
        let mut batch = queue.batch(&sender);
        for bytes in [&b""[..], b"", b"x", b"", b"yy", b"yy"] {
            batch.push(Datagrams::one(bytes));
        }
        assert_eq!(batch.send().sent, 6);
        let lengths: Vec<usize> = flat(collect(&receiver, 6)).iter().map(Vec::len).collect();
        assert_eq!(lengths, [0, 0, 1, 0, 2, 2]);
    }
}

/// On IPv6, loopback's MTU of 65,536 bytes includes 48 bytes of headers. The largest datagram is
/// therefore smaller than [`MAX_BYTES`].
#[test]
fn the_largest_datagram_passes_and_a_larger_one_is_counted() {
    for (ip, largest) in [(V4, MAX_BYTES), (V6, 65_536 - 48)] {
        let (sender, receiver) = both(ip);
        assert_eq!(sender.max_datagram().unwrap() as usize, largest);
        let bytes = numbered(largest + 1);
        let (sent, failures) = send(&sender, Datagrams::one(&bytes));
        let failed =
            SendFailure { errno: libc::EMSGSIZE, first: 0, datagrams: 1, bytes: largest + 1 };
        assert_eq!((sent, failures), (0, vec![failed]));
        while let Some(error) = sender.take_error().unwrap() {
            assert_eq!(error.fault, Fault::TooBig);
            // The datagram is one byte too long for IPv4, but not for loopback's MTU. The IP layer
            // then sends an ICMP message to itself.
            assert!(ip == V4 || error.origin == Origin::Local, "{error:?}");
        }
        assert_eq!(send(&sender, Datagrams::one(&bytes[..largest])), (1, vec![]));
        assert_eq!(flat(collect(&receiver, 1)), [&bytes[..largest]]);
        assert!(sender.segments());
    }
}

#[test]
fn one_message_too_big_does_not_hold_up_those_around_it() {
    let (sender, receiver) = both(V4);
    let big = numbered(65_600);
    let mut queue = SendQueue::new();
    let mut batch = queue.batch(&sender);
    for bytes in [&b"before"[..], &big, &big, b"behind"] {
        batch.push(Datagrams::one(bytes));
    }
    let report = batch.send();
    assert_eq!((report.sent, report.sent_bytes), (2, 12));
    assert_eq!(
        (report.failed(), report.failed_by(Fault::TooBig), report.failures.len()),
        (2, 2, 1)
    );
    assert_eq!(flat(collect(&receiver, 2)), [b"before", b"behind"]);
}

#[test]
fn a_report_tells_which_datagrams_went_out() {
    let (sender, receiver) = both(V4);
    let big = numbered(65_600);
    let mut queue = SendQueue::new();
    let mut batch = queue.batch(&sender);
    batch.push(Datagrams::one(&big));
    batch.push(Datagrams { stride: 100, ..Datagrams::one(&big[..250]) });
    batch.push(Datagrams::one(&big));
    batch.push(Datagrams::one(b"behind"));
    let report = batch.send();
    assert_eq!((report.sent, report.failed(), report.failures.len()), (4, 2, 2));
    let gone =
        |within| report.accepted(within).map(|gone| (gone.start, gone.end)).collect::<Vec<_>>();
    assert_eq!(gone(0..6), [(1, 4), (5, 6)]);
    assert_eq!((gone(0..1), gone(4..5)), (vec![], vec![]));
    assert_eq!((gone(1..4), gone(5..6)), (vec![(1, 4)], vec![(5, 6)]));
    assert_eq!(gone(2..5), [(2, 4)]);
    assert_eq!(flat(collect(&receiver, 4)).len(), 4);
}

/// The kernel refuses segmented sends with `EINVAL`, because the socket sends no UDP checksums
/// (`SO_NO_CHECK`).
#[test]
fn a_refused_segmented_send_goes_out_as_single_datagrams_and_is_not_tried_again() {
    let (sender, receiver) = both(V4);
    sys::set(sender.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let bytes = numbered(100 * 70 + 5);
    let expected: Vec<Vec<u8>> = bytes.chunks(100).map(<[u8]>::to_vec).collect();
    for _ in 0..2 {
        let run = Datagrams { stride: 100, ..Datagrams::one(&bytes) };
        assert_eq!(send(&sender, run), (71, vec![]));
        assert_eq!(flat(collect(&receiver, 71)), expected);
        assert!(!sender.segments());
    }
}

/// Returns a socket to a closed port, after the ICMP answer to a datagram has arrived.
fn closed_port(ip: IpAddr, options: &UdpOptions) -> UdpSocket {
    let closed = silent_udp(ip);
    let socket = UdpSocket::connect(None, closed.local_addr().unwrap(), options).unwrap();
    assert_eq!(send(&socket, Datagrams::one(b"anyone?")), (1, vec![]));
    wait(&socket);
    socket
}

#[test]
fn a_closed_port_surfaces_with_its_origin() {
    for (ip, kind, code) in [(V4, 3, 3), (V6, 1, 4)] {
        let socket = closed_port(ip, &UdpOptions::default());
        let error = socket.take_error().unwrap().unwrap();
        assert_eq!(error.fault, Fault::Refused);
        assert_eq!(error.origin, Origin::Icmp { kind, code });
        assert_eq!(error.offender, Some(ip));
        assert_eq!(error.about, Some(socket.peer_addr().unwrap()));
        assert_eq!(socket.take_error().unwrap(), None);
    }
}

#[test]
fn a_closed_port_surfaces_in_reception_and_is_over_once_told() {
    for ip in [V4, V6] {
        let socket = closed_port(ip, &UdpOptions { error_queue: false, ..UdpOptions::default() });
        let mut buffers = RecvBatch::new(1);
        let error = buffers.recv(&socket).unwrap_err();
        assert_eq!(Fault::from_io(&error), Fault::Refused);
        assert_eq!(buffers.recv(&socket).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn an_earlier_error_does_not_cost_the_datagram_at_hand() {
    let socket = closed_port(V4, &UdpOptions { error_queue: false, ..UdpOptions::default() });
    let mut queue = SendQueue::new();
    let mut batch = queue.batch(&socket);
    batch.push(Datagrams::one(b"again"));
    let report = batch.send();
    assert_eq!((report.sent, report.failed()), (1, 0));
    assert_eq!(report.earlier, Some(libc::ECONNREFUSED));
}

#[test]
fn no_route_is_reported_for_each_datagram() {
    let socket = UdpSocket::bind((V4, 0).into(), &UdpOptions::default()).unwrap();
    // A socket bound to 127.0.0.1 cannot send to an address outside of this machine.
    let to = Some("192.0.2.1:9".parse().unwrap());
    let (sent, failures) = send(&socket, Datagrams { to, stride: 2, ..Datagrams::one(b"abcdef") });
    assert_eq!((sent, failures.len(), failures[0].datagrams), (0, 1, 3));
    assert_ne!(Fault::of(failures[0].errno), Fault::Full);
}

#[test]
fn an_answer_leaves_from_the_address_that_was_spoken_to() {
    let listener =
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0).into(), &UdpOptions::default()).unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = StdSocket::bind((V4, 0)).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let spoken_to: SocketAddr = (Ipv4Addr::new(127, 0, 0, 2), port).into();
    client.send_to(b"hello", spoken_to).unwrap();
    answer(&listener);
    let mut buffer = [0; 16];
    assert_eq!(client.recv_from(&mut buffer).unwrap(), (5, spoken_to));
}

/// Sends the next datagram back to its sender.
fn answer(listener: &UdpSocket) {
    wait(listener);
    let (mut buffers, mut queue) = (RecvBatch::new(4), SendQueue::new());
    let mut batch = queue.batch(listener);
    for run in buffers.recv(listener).unwrap() {
        batch.push(Datagrams { to: Some(run.from), source: run.to, ..run.onward() });
    }
    let report = batch.send();
    assert_eq!((report.sent, report.failed()), (1, 0));
}

#[test]
fn a_dual_stack_listener_speaks_ipv4_as_ipv4() {
    let listener =
        UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0).into(), &UdpOptions::default()).unwrap();
    let port = listener.local_addr().unwrap().port();
    let spoken_to: SocketAddr = (Ipv4Addr::new(127, 0, 0, 3), port).into();
    let client = UdpSocket::connect(None, spoken_to, &UdpOptions::default()).unwrap();
    send(&client, Datagrams { ecn: 1, ..Datagrams::one(b"hello") });
    wait(&listener);
    let mut buffers = RecvBatch::new(4);
    let run = buffers.recv(&listener).unwrap().next().unwrap();
    assert_eq!((run.from, run.to), (client.local_addr().unwrap(), Some(spoken_to.ip())));
    assert_eq!(run.ecn, 1);
    let back = Datagrams { to: Some(run.from), source: run.to, ecn: 3, ..run.onward() };
    assert_eq!(send(&listener, back), (1, vec![]));
    // The client is connected, so only an answer from 127.0.0.3 reaches it.
    assert_eq!(collect(&client, 1)[0].ecn, 3);
}

#[test]
fn a_source_port_and_an_interface_are_kept() {
    let (_, receiver) = both(V4);
    let peer = receiver.local_addr().unwrap();
    let source: SocketAddr = (Ipv4Addr::new(127, 0, 0, 4), 0).into();
    let options = UdpOptions { device: Some("lo".into()), ..UdpOptions::default() };
    let path = UdpSocket::connect(Some(source), peer, &options).unwrap();
    send(&path, Datagrams::one(b"x"));
    wait(&receiver);
    let mut buffers = RecvBatch::new(1);
    let from = buffers.recv(&receiver).unwrap().next().unwrap().from;
    assert_eq!(from, path.local_addr().unwrap());
    assert_eq!(from.ip(), source.ip());
    // Loopback's MTU is 65,536 bytes, and an IPv4 packet can use all but one of them.
    assert_eq!(path.mtu().unwrap(), 65_535);
}

#[test]
fn the_interface_alone_limits_datagrams_and_nothing_is_fragmented() {
    let options = UdpOptions::default();
    let v4 = UdpSocket::bind((V4, 0).into(), &options).unwrap();
    let mode = sys::option::<1>(v4.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER).unwrap();
    assert_eq!(mode, [libc::IP_PMTUDISC_PROBE as u32]);
    let v6 = UdpSocket::bind((V6, 0).into(), &options).unwrap();
    let mode = sys::option::<1>(v6.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER).unwrap();
    assert_eq!(mode, [libc::IPV6_PMTUDISC_PROBE as u32]);
}

#[test]
fn what_cannot_be_opened_says_why() {
    let holder = StdSocket::bind((V4, 0)).unwrap();
    let taken = holder.local_addr().unwrap();
    let kind = |result: std::io::Result<UdpSocket>| result.unwrap_err().kind();
    let options = UdpOptions::default();
    assert_eq!(kind(UdpSocket::bind(taken, &options)), ErrorKind::AddrInUse);
    let foreign = "192.0.2.1:0".parse().unwrap();
    assert_eq!(kind(UdpSocket::bind(foreign, &options)), ErrorKind::AddrNotAvailable);
    let mixed = UdpSocket::connect(Some((V6, 0).into()), taken, &options);
    assert_eq!(kind(mixed), ErrorKind::InvalidInput);
    let nowhere = UdpOptions { device: Some("no-such-dev0".into()), ..options };
    let error = UdpSocket::bind((V4, 0).into(), &nowhere).unwrap_err();
    assert_eq!(Fault::from_io(&error), Fault::Gone);
}

#[test]
fn drops_on_arrival_are_told() {
    let small = UdpOptions { recv_buffer: 4096, ..plain() };
    let (sender, receiver) = pair(V4, &plain(), &small);
    let bytes = numbered(1000);
    let sent: usize = (0..100).map(|_| send(&sender, Datagrams::one(&bytes)).0).sum();
    assert_eq!(sent, 100);
    let memory = receiver.memory().unwrap();
    assert!(memory.receive > 0 && memory.receive_limit < 20_000, "{memory:?}");
    let mut buffers = RecvBatch::new(64);
    let received = buffers.recv(&receiver).unwrap().count();
    assert_eq!(received + memory.drops as usize, 100);
    assert_eq!(receiver.memory().unwrap().receive, 0);
}

#[test]
fn an_empty_socket_would_block_at_once() {
    let (_, receiver) = both(V4);
    let start = Instant::now();
    assert_eq!(RecvBatch::new(1).recv(&receiver).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(start.elapsed() < Duration::from_secs(1));
    let flags = rustix::fs::fcntl_getfl(receiver.as_fd()).unwrap();
    assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
    let closing = rustix::io::fcntl_getfd(receiver.as_fd()).unwrap();
    assert!(closing.contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn a_run_is_split_at_datagrams() {
    let bytes = numbered(25);
    let from: SocketAddr = (V4, 1).into();
    let run = Received { from, to: None, ecn: 0, stride: 10, bytes: &bytes };
    let lengths = |side: Option<Received<'_>>| {
        side.map_or(vec![], |run| run.datagrams().map(<[u8]>::len).collect())
    };
    for (at, head, tail) in [
        (0, vec![], vec![10, 10, 5]),
        (1, vec![10], vec![10, 5]),
        (2, vec![10, 10], vec![5]),
        (3, vec![10, 10, 5], vec![]),
        (usize::MAX, vec![10, 10, 5], vec![]),
    ] {
        let (first, second) = run.split_at(at);
        assert_eq!((lengths(first), lengths(second)), (head, tail));
    }
    let empty = Received { stride: 0, bytes: &[], ..run };
    assert_eq!(lengths(empty.split_at(1).0), [0]);
}

/// Receive buffer in bytes of an unprivileged process on most systems (`net.core.rmem_max`).
const USUAL_BUFFER: usize = 212_992;

/// Returns a random sequence of runs and single datagrams that fits into [`USUAL_BUFFER`]. There
/// are few sizes, so that many datagrams are combined.
fn sequence(random: &mut seed::Stream) -> Vec<(Vec<u8>, usize, u8)> {
    let sizes = [0, 1, 40, 700, 700, 1200, 1200, 1350, 9000];
    let (mut sequence, mut cost) = (Vec::new(), 0);
    while cost < USUAL_BUFFER / 2 {
        let stride = sizes[random.random_range(0..sizes.len())];
        let full = if random.random_bool(0.5) { random.random_range(1..20) } else { 1 };
        let odd = if stride > 1 && full > 1 { random.random_range(0..stride) } else { 0 };
        let mut bytes = vec![0; stride * full + odd];
        random.fill_bytes(&mut bytes);
        // The kernel charges a datagram with more than its payload. This is an upper estimate.
        cost += full * (2 * stride + 1000);
        sequence.push((bytes, stride, if random.random_bool(0.8) { 0 } else { 2 }));
    }
    sequence
}

fn expected(sequence: &[(Vec<u8>, usize, u8)]) -> Vec<(Vec<u8>, u8)> {
    let datagrams = |(bytes, stride, ecn): &(Vec<u8>, usize, u8)| match bytes.is_empty() {
        true => vec![(vec![], *ecn)],
        false => bytes.chunks(*stride).map(|datagram| (datagram.to_vec(), *ecn)).collect(),
    };
    sequence.iter().flat_map(datagrams).collect()
}

#[test]
fn any_sequence_arrives_as_it_was_sent() {
    let mut random = seed::stream(7, 0, "udp sequences");
    let ways = [(true, true), (true, false), (false, true), (false, false)];
    for round in 0..400 {
        let (offload_out, offload_in) = ways[round % 4];
        let sending = UdpOptions { offload: offload_out, ..UdpOptions::default() };
        let receiving =
            UdpOptions { offload: offload_in, recv_buffer: USUAL_BUFFER, ..UdpOptions::default() };
        let sequence = sequence(&mut random);
        let expected = expected(&sequence);
        let carried = || {
            let (sender, receiver) = pair([V4, V6][round / 4 % 2], &sending, &receiving);
            let mut queue = SendQueue::new();
            let mut batch = queue.batch(&sender);
            for (bytes, stride, ecn) in &sequence {
                batch.push(Datagrams { stride: *stride, ecn: *ecn, ..Datagrams::one(bytes) });
            }
            let report = batch.send();
            assert_eq!((report.sent, report.failed()), (expected.len(), 0), "round {round}");
            let runs = collect_most(&receiver, expected.len());
            let tagged = |run: Run| run.datagrams.into_iter().map(move |bytes| (bytes, run.ecn));
            runs.into_iter().flat_map(tagged).collect::<Vec<(Vec<u8>, u8)>>()
        };
        // All programs share a core's loopback queue: while others flood it, the kernel drops
        // datagrams of this test. Datagrams that this module loses would be lost in each try.
        let mut tries = (0..3).map(|_| carried());
        let whole = |arrived: &Vec<_>| arrived.len() >= expected.len();
        let arrived = tries.find(whole).expect("all datagrams, in one of three tries");
        assert_eq!(arrived, expected, "round {round}");
    }
}
