//! Measurements of the emulator's accuracy (`make accuracy`).
//!
//! Each test prints the median and the range of several rounds, and compares the median with the
//! project's target. The tests need an idle machine, so `make test` leaves them out. `emulate.rs`
//! tests the functions themselves.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

mod emulated;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_emulator::{Network, Topology};
use anabranch_multipath::Time;
use emulated::*;

const ROUNDS: usize = 5;

/// Prints the sorted values. Returns their median.
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
    // No link may exceed its rate. One packet more or less at an end of the window is 0.006.
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

/// Returns how late each of `count` datagrams arrived, in ms, beyond the delay of 10 ms and the
/// time of sending.
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
        // The limit is four standard deviations, which one seed in 16,000 exceeds.
        assert!((count - arrived - mean).abs() <= 4.0 * deviation);
    }
}

/// Number of packets that are sent. Some overtake others.
const UNITS: u32 = 600;
const GAP: Duration = Duration::from_millis(4);
/// Minimum time between two arrivals whose order is checked. The machine's own delays may exchange
/// closer arrivals.
const NOISE: Duration = Duration::from_millis(5);

#[test]
#[ignore = "measures: make accuracy"]
fn the_emulator_does_what_its_link_does_in_virtual_time() {
    let mut wrong = Vec::new();
    for _ in 0..ROUNDS {
        // Each round has a new network, whose random choices begin again.
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

/// Returns the number of pairs of packets that arrived in the wrong order. Pairs that should arrive
/// at nearly the same time are not counted.
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

/// Numbers of links of the stars that are compared. [`FLOWS`] is the number of TCP connections
/// through each star.
const STARS: [usize; 3] = [11, 61, 301];
const FLOWS: usize = 10;

#[test]
#[ignore = "measures: make accuracy"]
fn ten_flows_cost_as_much_in_stars_of_61_and_301_links_as_in_one_of_11() {
    let Some((network, _turn)) = network() else { return };
    drop(network);
    let mut results = Vec::new();
    for round in 0..ROUNDS {
        let mut result = STARS.map(|_| StarResult::default());
        // The order of the stars changes, so that a drift of the machine favours none of them.
        for turn in 0..STARS.len() {
            let at = (round + turn) % STARS.len();
            result[at] = star_result(STARS[at]);
        }
        results.push(result);
    }
    let mut missed = Vec::new();
    for (at, links) in STARS.into_iter().enumerate() {
        let up = results.iter().map(|result| result[at].up).fold(0.0, f64::max);
        println!("{links} links: up after {up:.2} s in the slowest round");
        if up > MOST_START {
            missed.push(format!("{links} links took {up:.1} s to start"));
        }
        if at == 0 {
            continue;
        }
        let ratios = |of: fn(StarResult) -> f64| {
            results.iter().map(|result| of(result[at]) / of(result[0])).collect()
        };
        let goodput =
            median(&format!("goodput, {links} links : 11"), ratios(|one| one.rate), "times");
        let cost =
            median(&format!("CPU a packet, {links} links : 11"), ratios(|one| one.cost), "times");
        if goodput < 0.95 || cost > 1.1 {
            missed
                .push(format!("{links} links: {goodput:.3} of the goodput, {cost:.3} of the CPU"));
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// Maximum seconds that a star takes to start, in any round.
const MOST_START: f64 = 10.0;

/// Measurements of one star.
#[derive(Clone, Copy, Default)]
struct StarResult {
    /// Seconds until all links are up.
    up: f64,
    /// Total rate of all connections in Mbit/s.
    rate: f64,
    /// CPU time of the links' thread in µs per packet.
    cost: f64,
}

fn star_result(links: usize) -> StarResult {
    let start = Instant::now();
    let network = Network::start(&star(links)).unwrap();
    let up = start.elapsed().as_secs_f64();
    let (before, cpu) = (packets(&network), links_cpu());
    let rate = flows(&network, [Duration::from_secs(1), Duration::from_secs(4)]);
    let (units, cpu) = (packets(&network) - before, links_cpu() - cpu);
    let cost = cpu.as_secs_f64() * 1e6 / units as f64;
    println!("{links} links: up in {up:.2} s, {rate:.0} Mbit/s, {cost:.2} us a packet");
    StarResult { up, rate, cost }
}

/// Returns a star: a hub that forwards, a server on link 0, and a client on each other link. The
/// rates exceed the capacity of one CPU core, so the emulator limits the connections.
fn star(links: usize) -> Topology {
    let mut text = String::from("seed = 3\n[[host]]\nname = 'hub'\nforward = true\n");
    for i in 0..links {
        let (high, low) = (i / 256, i % 256);
        let _ = write!(
            text,
            "[[host]]\nname = 'h{i}'\n\
             [[link]]\nname = 's{i}'\nrate = '10gbit'\ndelay = '5ms'\nqueue = '4MB'\nends = [\n\
             {{ host = 'h{i}', address = ['10.1{high}.{low}.2/32'], routes = ['10.0.0.0/8'] }},\n\
             {{ host = 'hub', address = ['10.2{high}.{low}.1/32'],\n\
             routes = ['10.1{high}.{low}.2/32'] }} ]\n"
        );
    }
    Topology::parse(&text, "star").unwrap()
}

/// Returns the rate in Mbit/s at which [`FLOWS`] clients together upload to the server in the
/// second of two spans.
fn flows(network: &Network, spans: [Duration; 2]) -> f64 {
    let listen = || TcpListener::bind(("10.10.0.2", PORT));
    let listener = network.host("h0").unwrap().run(listen).unwrap();
    let pairs: Vec<_> = (1..=FLOWS)
        .map(|i| {
            let connect = || TcpStream::connect(("10.10.0.2", PORT));
            let client = network.host(&format!("h{i}")).unwrap().run(connect).unwrap();
            (client, listener.accept().unwrap().0)
        })
        .collect();
    thread::scope(|scope| {
        let received: Vec<_> = pairs
            .into_iter()
            .map(|(client, server)| scope.spawn(move || transfer(client, server, spans)))
            .collect();
        received.into_iter().map(|flow| flow.join().unwrap()).sum()
    })
}

/// Returns the number of packets that have left all links so far, in both directions.
fn packets(network: &Network) -> u64 {
    let stats = network.stats();
    stats.values().map(|l| l.forward.delivered.units + l.back.delivered.units).sum()
}

/// Returns the CPU time so far of the thread that carries packets, to a hundredth of a second.
fn links_cpu() -> Duration {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_links = |task: &std::path::PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "emulated links")
    };
    let stat = fs::read_to_string(tasks.into_iter().find(is_links).unwrap().join("stat")).unwrap();
    // Fields 14 and 15 of proc(5), counted after the name, which may contain spaces.
    let ticks = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2);
    Duration::from_millis(ticks.map(|field| field.parse::<u64>().unwrap() * 10).sum())
}
