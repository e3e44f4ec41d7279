//! Simulates one TCP connection in a tunnel whose paths have different rates and delays, in
//! virtual time. Prints the state every quarter of a second.
//!
//! `cargo run -p anabranch-tunnel --example unlike_lines -- SCHEDULE RATES DELAYS WAY [SEED]
//! [busy]`, such as `eta 50,30,10 20,20,20 down`. Rates are in Mbit/s, delays in ms; queues have
//! 100 kB. With `busy`, both ends have to wait for a CPU core at times.

#![allow(clippy::unwrap_used, reason = "a report that cannot be made ends")]

use std::time::Duration;

use anabranch_multipath::PathView;
use anabranch_netem::{Link, LinkSettings};
use anabranch_testkit::tunnel_world::World;
use anabranch_testkit::tunnel_world::bulk::{Bulk, DOWN, Line, Outcome, UP, lines};

const TIMES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(6));

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = "SCHEDULE RATES DELAYS up|down [SEED] [busy]";
    let [schedule, rates, delays, way, rest @ ..] = &words[..] else { panic!("write {usage}") };
    let numbers = |text: &str| -> Vec<u64> {
        text.split(',').map(|number| number.parse().unwrap()).collect()
    };
    let links = lines(&numbers(rates), &numbers(delays));
    let seed = rest.first().map_or(1, |seed| seed.parse().unwrap());
    let mut alone = [0.0; 2];
    for link in &links {
        let outcomes =
            Bulk::new(Line::new(link, seed)).up_then_down(seed, TIMES, &mut |_, _, _| {});
        let shown = outcomes.each_ref().map(shown);
        println!("alone, {} Mbit/s: up {}, down {}", mbits(link), shown[0], shown[1]);
        [UP, DOWN].into_iter().for_each(|way| alone[way] += outcomes[way].rate);
    }
    let mut world = World::scheduled(seed, &links, schedule, "1p");
    if rest.iter().any(|word| word == "busy") {
        world = world.on_busy_cores(seed);
    }
    let watched = if way == "up" { UP } else { DOWN };
    let mut before = vec![0; links.len()];
    let outcomes = Bulk::new(world).up_then_down(seed, TIMES, &mut |bulk, way, rate| {
        if way == watched {
            look(bulk, way, rate, &mut before);
        }
    });
    for (way, name) in [(UP, "up"), (DOWN, "down")] {
        let share = outcomes[way].rate / alone[way];
        println!("{schedule} {name}: {}, {share:.2} of the sum", shown(&outcomes[way]));
    }
}

fn mbits(link: &LinkSettings) -> f64 {
    link.rate.map_or(f64::INFINITY, |rate| rate.get() as f64 / 1e6)
}

fn shown(outcome: &Outcome) -> String {
    let Outcome { rate, delay, stats, cwnd } = outcome;
    let (again, cuts) = (stats.retransmitted, stats.recoveries + stats.timeouts);
    format!(
        "{rate:.1} Mbit/s, +{} ms, {again} retransmitted, {cuts} recoveries ({} undone), cwnd {cwnd}",
        delay.as_millis(),
        stats.undone
    )
}

/// Prints the state of the transfer and of each path.
fn look(bulk: &mut Bulk<World>, way: usize, rate: f64, before: &mut [u64]) {
    let (cwnd, unacked, stats) = bulk.inner();
    let world = &mut bulk.carrier;
    let views = match way {
        UP => world.views_up(),
        _ => world.client.map(|client| world.views_down(client)).unwrap_or_default(),
    };
    println!(
        "{:6.2} s {rate:5.1} Mbit/s, cwnd {cwnd:4}, out {unacked:4}, again {:3}, cuts {}, waiting {}",
        world.now.nanos() as f64 / 1e9,
        stats.retransmitted,
        stats.recoveries + stats.timeouts,
        world.backlogs[way].len(),
    );
    let wires = if way == UP { &world.up } else { &world.down };
    for (place, (view, wire)) in views.iter().zip(wires).enumerate() {
        println!("           {}", path(view, wire, &mut before[place]));
    }
}

fn path(view: &PathView, wire: &Link<Vec<u8>>, before: &mut u64) -> String {
    let counters = wire.counters();
    let bytes = counters.delivered.bytes - std::mem::replace(before, counters.delivered.bytes);
    let used = bytes as f64 * 8.0 * 4.0 / 1e6 / mbits(wire.settings());
    let leg = view.leg;
    format!(
        "used {:3.0} %, queue {:6} bytes, dropped {:3}; window {:3}, out {:3}, bdp {:3}, capacity \
         {:5}/{:5}, rtt {:5.1}/{:5.1} ms{}",
        used * 100.0,
        wire.backlog(),
        counters.queue_full.units,
        leg.size,
        leg.inflight,
        leg.bdp,
        leg.capacity,
        leg.max_rate,
        view.rtt.unwrap_or_default().as_secs_f64() * 1e3,
        leg.least_rtt.as_secs_f64() * 1e3,
        if leg.slow_start { ", searching" } else { "" },
    )
}
