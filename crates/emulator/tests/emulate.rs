//! Tests of the emulated network with plain sockets. Delay, throughput, loss and cuts must agree
//! with the topology.
//!
//! The tests need root, or `CAP_SYS_ADMIN` and `/dev/net/tun`. Without them, they print that they
//! are skipped, and pass.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

mod emulated;

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use anabranch_emulator::Edit;
use emulated::*;

/// Timeout for events that happen in any case, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends received datagrams back until an empty one arrives.
fn echo(socket: &UdpSocket) {
    let mut buffer = [0; 2048];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        if len == 0 {
            return;
        }
        socket.send_to(&buffer[..len], from).unwrap();
    }
}

/// Returns the round-trip times of `count` datagrams, sorted.
fn round_trips(client: &UdpSocket, server: &UdpSocket, count: usize) -> Vec<Duration> {
    let there_and_back = |_| {
        let start = Instant::now();
        client.send(b"ping").unwrap();
        client.recv(&mut [0; 16]).unwrap();
        start.elapsed()
    };
    thread::scope(|scope| {
        scope.spawn(|| echo(server));
        let mut times: Vec<Duration> = (0..count).map(there_and_back).collect();
        client.send(b"").unwrap();
        times.sort();
        times
    })
}

/// Repeats `measure` until its result is `enough`, at most ten times. Returns all results. On a
/// busy machine, single results may be too small or too late.
fn until_in_time<T>(mut measure: impl FnMut() -> T, enough: impl Fn(&T) -> bool) -> Vec<T> {
    let mut measured = Vec::new();
    while measured.len() < 10 && !measured.last().is_some_and(&enough) {
        measured.push(measure());
    }
    measured
}

/// Checks that round trips between the two sockets take `delay`. None may be shorter, and the
/// shortest must be less than 5 ms longer. Others may be longer, because the machine may be busy;
/// `accuracy.rs` checks the median on an idle machine.
fn take(client: &UdpSocket, server: &UdpSocket, count: usize, delay: Duration) {
    let most = delay + Duration::from_millis(5);
    let least = until_in_time(|| round_trips(client, server, count)[0], |least| *least < most);
    assert!(least.iter().all(|least| *least >= delay), "{least:?}: faster than the links");
    assert!(least.last().is_some_and(|least| *least < most), "{least:?}");
}

#[test]
fn a_round_trip_takes_twice_the_delay() {
    let Some((network, _turn)) = network() else { return };
    let (client, server) = pair(&network, 0, PATIENCE);
    take(&client, &server, 50, Duration::from_millis(20));
}

#[test]
fn ipv6_goes_the_same_way() {
    let Some((network, _turn)) = network() else { return };
    let client = udp(network.host("client").unwrap(), "fd77:1::2", 0, PATIENCE);
    let server = udp(network.host("server").unwrap(), SERVER6, PORT, PATIENCE);
    client.connect((SERVER6, PORT)).unwrap();
    assert!(round_trips(&client, &server, 3)[0] >= Duration::from_millis(20));
}

#[test]
fn a_tcp_connection_fills_a_link_in_either_direction() {
    let Some((network, _turn)) = network() else { return };
    // A busy machine can carry this rate. `accuracy.rs` fills a link of 100 Mbit/s.
    network.change("p0", &edit(r#"{"rate":"10mbit","queue":"50kB"}"#)).unwrap();
    for upload in [true, false] {
        // The rate can exceed the link's rate only if the receiver was not scheduled and packets
        // waited for it.
        let is_full = |rate: &f64| (9.0..=10.0).contains(rate);
        let rates = until_in_time(|| tcp_rate(&network, upload), is_full);
        assert!(rates.last().is_some_and(is_full), "upload {upload}: {rates:.1?} Mbit/s");
    }
}

#[test]
fn three_links_carry_their_full_rate_in_both_directions_at_once() {
    let Some((network, _turn)) = network() else { return };
    // A busy machine can carry this rate. `accuracy.rs` tests 100 Mbit/s on each link.
    for link in ["p0", "p1", "p2"] {
        network.change(link, &edit(r#"{"rate":"10mbit","queue":"25kB"}"#)).unwrap();
    }
    let flood = || {
        let before = delivered(&network);
        flood_all(&network, 12.0, Duration::from_secs(2), || {});
        thread::sleep(Duration::from_millis(50));
        let after = delivered(&network).into_iter().map(|(_, bytes)| bytes);
        after.zip(before).map(|(after, (_, before))| (after - before) as f64).collect::<Vec<_>>()
    };
    // In 2 s, 10 Mbit/s carry 2.5 MB. The delay takes 10 ms at the beginning and at the end.
    let is_full = |bytes: &Vec<f64>| bytes.iter().all(|bytes| (2.2e6..2.65e6).contains(bytes));
    let floods = until_in_time(flood, is_full);
    assert!(floods.last().is_some_and(|bytes| bytes.len() == 6 && is_full(bytes)), "{floods:?}");
}

#[test]
fn loss_is_within_the_binomial_interval_and_counted() {
    let Some((network, _turn)) = network() else { return };
    network.change("p0", &edit(r#"{"loss":0.02,"rate":"unlimited"}"#)).unwrap();
    let (client, server) = pair(&network, 0, Duration::from_secs(2));
    let (arrived, sent) = (send_paced(&network, &client, &server, 5000, 20), 5000.0);
    let stats = forward(&network, "p0");
    assert_eq!((stats.units, stats.udp[&PORT].units), (5000, 5000));
    assert_eq!(stats.udp[&PORT].bytes, 5000 * (100 + 28));
    assert_eq!(stats.dropped.lost + arrived, 5000);
    // Four standard deviations: (5000 * 0.02 * 0.98)^0.5 = 9.9.
    let lost = sent - arrived as f64;
    assert!((lost - 100.0).abs() <= 40.0, "{lost} of {sent} lost");
}

#[test]
fn the_same_packets_are_lost_as_in_virtual_time() {
    let Some((network, _turn)) = network() else { return };
    network.change("p0", &edit(ROUGH)).unwrap();
    let (client, server) = pair(&network, 0, Duration::from_secs(2));
    let (schedule, arrived) = send_numbered(&client, &server, 1000, Duration::from_millis(1));
    let expected = in_virtual_time(&topology(""), ROUGH, &schedule);
    let expected: Vec<u32> = expected.into_iter().map(|(_, unit)| unit).collect();
    let lost = missing(1000, &expected);
    assert!((20..80).contains(&lost.len()), "{} lost", lost.len());
    assert_eq!(missing(1000, &arrived), lost);
}

#[test]
fn a_cut_is_silent_and_can_be_mended() {
    let Some((network, _turn)) = network() else { return };
    let (client, server) = pair(&network, 0, Duration::from_millis(200));
    network.change("p0", &edit(r#"{"down":true}"#)).unwrap();
    client.send(b"lost").unwrap();
    let end = Instant::now() + PATIENCE;
    while forward(&network, "p0").dropped.down == 0 {
        assert!(Instant::now() < end, "it never came to the link");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(server.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(forward(&network, "p0").dropped.down, 1);
    network.change("p0", &edit(r#"{"down":false}"#)).unwrap();
    client.send(b"here").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(server.recv(&mut [0; 16]).unwrap(), 4);
}

#[test]
fn a_change_of_the_delay_holds_at_once_and_only_for_its_direction() {
    let Some((network, _turn)) = network() else { return };
    network.change("p0", &edit(r#"{"delay_back":"60ms"}"#)).unwrap();
    let (client, server) = pair(&network, 0, PATIENCE);
    take(&client, &server, 9, Duration::from_millis(70));
}

#[test]
fn a_scripted_change_happens_at_its_time() {
    // The cut lasts a third of the time, if the sender was scheduled during the cut.
    let is_third = |share: &Option<f64>| share.is_none_or(|it| (0.2..0.45).contains(&it));
    let shares = until_in_time(share_of_a_scripted_cut, is_third);
    assert!(shares.last().is_some_and(is_third), "{shares:.2?} dropped");
}

/// Returns the share of datagrams that a cut from 300 ms to 600 ms drops, of one datagram each
/// millisecond for 900 ms.
fn share_of_a_scripted_cut() -> Option<f64> {
    let events = "[[event]]\nat = '300ms'\nlink = 'p0'\ndown = true\n\
                  [[event]]\nat = '600ms'\nlink = 'p0'\ndown = false\n";
    let (network, _turn) = network_with(events)?;
    let start = Instant::now();
    let (client, server) = pair(&network, 0, PATIENCE);
    let arrived = thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut arrived = 0;
            while let Ok(length) = server.recv(&mut [0; 128]) {
                arrived += 1;
                if length == 0 {
                    break;
                }
            }
            arrived
        });
        while start.elapsed() < Duration::from_millis(900) {
            client.send(&[0; 100]).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        // This datagram arrives last, long after the cut.
        client.send(b"").unwrap();
        receiver.join().unwrap()
    });
    let stats = forward(&network, "p0");
    assert_eq!(stats.dropped.down + arrived, stats.units);
    Some(stats.dropped.down as f64 / stats.units as f64)
}

#[test]
fn an_unknown_link_is_an_error() {
    let Some((network, _turn)) = network() else { return };
    let error = network.change("p9", &Edit::default()).unwrap_err();
    let wanted = "the topology has no link `p9`; use a name of one of its [[link]] tables";
    assert_eq!(error.to_string(), wanted);
}

#[test]
fn an_interface_deleted_from_outside_does_not_disturb_the_others() {
    let Some((network, _turn)) = network() else { return };
    let host = network.host("client").unwrap();
    let delete = || std::process::Command::new("ip").args(["link", "del", "p1"]).status();
    match host.run(delete) {
        Ok(status) => assert!(status.success()),
        Err(error) => return eprintln!("skipped: no `ip` here ({error})"),
    }
    let (client, server) = pair(&network, 0, PATIENCE);
    client.send(b"here").unwrap();
    assert_eq!(server.recv(&mut [0; 16]).unwrap(), 4);
}
