//! How exact the emulator is, in numbers: `make accuracy`.
//!
//! Each test prints what it measured, the median and the spread of several rounds, and holds the
//! median against the project's target. They want a machine that does little else, so `make test`
//! leaves them out; the functions themselves are tested in `emulate.rs`.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

mod emulated;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anabranch_emulator::Network;
use anabranch_multipath::Time;
use emulated::*;

const ROUNDS: usize = 5;

/// Prints the sorted values and gives their median.
fn median(what: &str, mut values: Vec<f64>, unit: &str) -> f64 {
    values.sort_by(f64::total_cmp);
    let (least, most) = (values[0], values[values.len() - 1]);
    let middle = values[values.len() / 2];
    println!("{what}: {middle:.3} {unit} (of {} from {least:.3} to {most:.3})", values.len());
    middle
}

#[test]
#[ignore = "measures: make accuracy"]
fn three_paths_carry_100_mbit_in_both_directions_at_once() {
    let Some((network, _turn)) = network() else { return };
    let span = Duration::from_secs(2);
    let mut rates: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    flood_all(&network, 120.0, span * (ROUNDS as u32 + 1), || {
        thread::sleep(span / 2);
        for _ in 0..ROUNDS {
            let (before, start) = (delivered(&network), Instant::now());
            thread::sleep(span);
            let (after, seconds) = (delivered(&network), start.elapsed().as_secs_f64());
            for ((name, after), (_, before)) in after.into_iter().zip(before) {
                rates.entry(name).or_default().push((after - before) as f64 * 8.0 / 1e6 / seconds);
            }
        }
    });
    assert_eq!(rates.len(), 6);
    let medians: Vec<f64> =
        rates.into_iter().map(|(name, rates)| median(&name, rates, "Mbit/s")).collect();
    // No link is faster than it should be; a packet more or less at the window's edges is 0.006.
    assert!(medians.iter().all(|rate| (99.0..=100.1).contains(rate)), "{medians:?}");
}

#[test]
#[ignore = "measures: make accuracy"]
fn the_median_delay_is_less_than_300_us_off() {
    let Some((network, _turn)) = network() else { return };
    let errors = (0..ROUNDS).map(|_| median("delay error", delay_errors(&network, 1000), "ms"));
    let error = median("delay error of the median round", errors.collect(), "ms");
    assert!((0.0..0.3).contains(&error), "{error} ms");
}

/// How much later than 10 ms and the time on the wire each of `count` datagrams arrived, in ms.
fn delay_errors(network: &Network, count: usize) -> Vec<f64> {
    let (client, server) = pair(network, 0, Duration::from_secs(1));
    let epoch = Instant::now();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut buffer = [0; 64];
            let errors = (0..count).map(|_| {
                server.recv(&mut buffer).unwrap();
                let sent = u64::from_le_bytes(buffer[..8].try_into().unwrap());
                let delay = epoch.elapsed() - Duration::from_nanos(sent);
                // 92 bytes at 100 Mbit/s take 7.36 us.
                delay.as_secs_f64() * 1e3 - 10.0 - 0.00736
            });
            errors.collect()
        });
        for _ in 0..count {
            let mut datagram = [0; 64];
            datagram[..8].copy_from_slice(&(epoch.elapsed().as_nanos() as u64).to_le_bytes());
            client.send(&datagram).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        receiver.join().unwrap()
    })
}

#[test]
#[ignore = "measures: make accuracy"]
fn a_tcp_connection_with_cubic_reaches_90_percent() {
    let Some((network, _turn)) = network() else { return };
    for (name, upload) in [("upload", true), ("download", false)] {
        let rates = (0..ROUNDS).map(|_| tcp_rate(&network, upload)).collect();
        let rate = median(&format!("TCP {name}, cubic"), rates, "Mbit/s");
        assert!((90.0..=100.0).contains(&rate), "{rate} Mbit/s");
    }
}

#[test]
#[ignore = "measures: make accuracy"]
fn loss_lies_in_its_binomial_interval() {
    let Some((network, _turn)) = network() else { return };
    for p in [0.001, 0.02, 0.2] {
        let change = format!(r#"{{"loss":{p},"rate":"unlimited","delay":"1ms"}}"#);
        network.change("p0", &edit(&change)).unwrap();
        let before = forward(&network, "p0");
        let (client, server) = pair(&network, 0, Duration::from_secs(2));
        let count = 20_000.0;
        let arrived = send_paced(&network, &client, &server, count as u64, 5) as f64;
        let after = forward(&network, "p0");
        assert_eq!((after.units - before.units) as f64, count, "all entered");
        assert_eq!((after.dropped.lost - before.dropped.lost) as f64, count - arrived);
        let (mean, deviation) = (count * p, (count * p * (1.0 - p)).sqrt());
        println!("loss {p}: {} of {count} lost, {mean} ± {deviation:.1} expected", count - arrived);
        // Four standard deviations: wrong for one seed in 16,000.
        assert!((count - arrived - mean).abs() <= 4.0 * deviation);
    }
}

/// Of which some overtake others.
const UNITS: u32 = 600;
const GAP: Duration = Duration::from_millis(4);
/// Arrivals that are to be closer than this may come in either order: the machine's own noise.
const NOISE: Duration = Duration::from_millis(5);

#[test]
#[ignore = "measures: make accuracy"]
fn the_emulator_does_what_its_link_does_in_virtual_time() {
    let mut wrong = Vec::new();
    for _ in 0..ROUNDS {
        // A new one each time: its dice begin anew.
        let Some((network, _turn)) = network() else { return };
        network.change("p0", &edit(ROUGH)).unwrap();
        let (client, server) = pair(&network, 0, Duration::from_millis(500));
        let (schedule, arrived) = send_numbered(&client, &server, UNITS, GAP);
        let expected = in_virtual_time(&topology(""), ROUGH, &schedule);
        let order: Vec<u32> = expected.iter().map(|&(_, unit)| unit).collect();
        let lost = missing(UNITS, &order);
        assert!(lost.len() > 10);
        assert_eq!(missing(UNITS, &arrived), lost, "the same are lost");
        wrong.push(order_differences(&expected, &arrived) as f64);
    }
    let wrong = median("pairs in another order than in virtual time", wrong, "pairs");
    assert_eq!(wrong, 0.0);
}

/// How many pairs, of those that are to arrive apart, arrived in the other order.
fn order_differences(expected: &[(Time, u32)], arrived: &[u32]) -> usize {
    let place: BTreeMap<u32, usize> =
        arrived.iter().zip(0..).map(|(&unit, at)| (unit, at)).collect();
    let (mut pairs, mut overtakings, mut wrong) = (0, 0, 0);
    for (at, &(early, first)) in expected.iter().enumerate() {
        let apart = expected[at + 1..].iter().filter(|(late, _)| late.since(early) > NOISE);
        for &(_, second) in apart {
            pairs += 1;
            overtakings += usize::from(first > second);
            wrong += usize::from(place[&first] > place[&second]);
        }
    }
    println!("{pairs} pairs, {overtakings} of them overtakings: {wrong} in another order");
    assert!(overtakings > 1000, "the jitter is to reorder");
    wrong
}
