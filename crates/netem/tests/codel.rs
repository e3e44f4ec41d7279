//! Tests of CoDel on a link: the delay of a standing queue, and which units are dropped.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_netem::{Codel, Link, LinkSettings, Loss};

/// 1,000 units of 1,000 bytes a second.
const RATE: u64 = 8_000_000;
const UNIT: usize = 1_000;
const MS: Duration = Duration::from_millis(1);

fn settings(codel: Option<Codel>) -> LinkSettings {
    LinkSettings { codel, mtu: 1_500, queue: 1_000_000, ..LinkSettings::with_rate(RATE) }
}

/// Offers `per_second` units a second at equal intervals, for `seconds`. Returns the delay in the
/// queue of each unit that arrived, with the second of its arrival.
fn overload(link: &mut Link<Time>, per_second: u64, seconds: u64) -> Vec<(u64, Duration)> {
    let mut waits = Vec::new();
    for number in 0..per_second * seconds {
        let now = Time::from_nanos(number * 1_000_000_000 / per_second);
        while let Some(at) = link.next_timeout().filter(|&at| at <= now) {
            // A unit spends its last millisecond on the wire.
            waits.extend(
                link.pop(at).map(|received| (at.nanos() / 1_000_000_000, at.since(received) - MS)),
            );
        }
        let _ = link.push(now, now, UNIT);
    }
    waits
}

fn median(mut waits: Vec<Duration>) -> Duration {
    waits.sort();
    waits[waits.len() / 2]
}

#[test]
fn a_standing_queue_settles_near_the_target() {
    let median_of = |codel, per_second| {
        let mut link = Link::new(settings(codel), 1, 0);
        let late =
            overload(&mut link, per_second, 60).into_iter().filter(|&(second, _)| second >= 20);
        (median(late.map(|(_, wait)| wait).collect()), link)
    };
    for (per_second, bound) in [(1_010, 10 * MS), (1_050, 15 * MS)] {
        let (wait, link) = median_of(Some(Codel::default()), per_second);
        let dropped = link.counters().codel.units;
        println!("{per_second}/s on 1,000/s: median wait {wait:?}, {dropped} dropped");
        assert!((2 * MS..bound).contains(&wait), "{per_second}/s: {wait:?}");
        // Units beyond the rate have to be dropped. Any further drop leaves the wire idle.
        let excess = (per_second - 1_000) * 60;
        assert!((excess * 9 / 10..excess * 12 / 10).contains(&dropped), "{dropped} of {excess}");
        assert_eq!(link.counters().queue_full.units, 0);
        // Without CoDel, the queue grows to its limit of one second, or to all excess units.
        let (bloated, _) = median_of(None, per_second);
        assert!(bloated > 20 * wait, "{bloated:?}");
    }
}

#[test]
fn nothing_is_dropped_where_nobody_waits_for_the_target() {
    // A burst of five units drains in 5 ms, so the last unit waits for 4 ms.
    let mut link = Link::new(settings(Some(Codel::default())), 1, 0);
    let bursts = (0..2_000).flat_map(|burst| [Time::from_millis(burst * 10); 5]);
    for now in bursts {
        link.push(now, now, UNIT).unwrap();
    }
    link.pop(Time::from_secs(30));
    assert_eq!(link.counters().codel.units, 0);
}

#[test]
fn a_burst_shorter_than_the_interval_passes_whole() {
    let mut link = Link::new(settings(Some(Codel::default())), 1, 0);
    (0..100).for_each(|_| link.push(Time::ZERO, Time::ZERO, UNIT).unwrap());
    let arrived = std::iter::from_fn(|| link.pop(Time::from_secs(1))).count();
    assert_eq!((arrived, link.counters().codel.units), (100, 0));
    // In a burst of 300 ms, the units that reach the wire 105, 205 and 276 ms later are dropped.
    (0..300).for_each(|_| link.push(Time::from_secs(1), Time::ZERO, UNIT).unwrap());
    let arrived = std::iter::from_fn(|| link.pop(Time::from_secs(2))).count();
    assert_eq!((arrived, link.counters().codel.units), (297, 3));
}

#[test]
fn the_drops_of_a_link_are_as_far_apart_as_the_law_says() {
    let mut link = Link::new(settings(Some(Codel::default())), 1, 0);
    (0..1_000).for_each(|_| link.push(Time::ZERO, Time::ZERO, UNIT).unwrap());
    let mut drops = Vec::new();
    for ms in 0..900 {
        link.pop(Time::from_millis(ms));
        let all = link.counters().codel.units as usize;
        drops.resize(all, ms);
    }
    // From 5 ms on, the queue is above the target. The first drop is at 105 ms. The next drops
    // follow after 100/√1, 100/√2, ... ms, each at the next full millisecond, when the wire is
    // free.
    let mut due = 105.0;
    for (number, at) in (1..).zip(&drops) {
        assert_eq!(*at, f64::ceil(due - 1e-6) as u64, "drop {number} of {drops:?}");
        due += 100.0 / f64::from(number).sqrt();
    }
    assert!(drops.len() > 15, "{drops:?}");
}

#[test]
fn every_unit_is_accounted_for_whatever_drops_it() {
    let loss = Loss::Bernoulli(0.1);
    let mut link = Link::new(LinkSettings { loss, ..settings(Some(Codel::default())) }, 1, 0);
    overload(&mut link, 1_300, 20);
    while let Some(at) = link.next_timeout() {
        link.pop(at);
    }
    let all = link.counters();
    assert!(all.codel.units > 100 && all.lost.units > 2_000);
    let sum = [all.delivered, all.lost, all.codel, all.queue_full, all.too_big, all.down];
    assert_eq!(sum.iter().map(|count| count.units).sum::<u64>(), all.entered.units);
    assert_eq!(sum.iter().map(|count| count.bytes).sum::<u64>(), all.entered.bytes);
    assert_eq!(link.backlog(), 0);
}

#[test]
fn codel_can_be_switched_on_and_off() {
    let mut link = Link::new(settings(None), 1, 0);
    (0..900).for_each(|_| link.push(Time::ZERO, Time::ZERO, UNIT).unwrap());
    link.pop(Time::from_millis(300));
    link.change(Time::from_millis(300), |settings| settings.codel = Some(Codel::default()));
    link.pop(Time::from_millis(600));
    let dropped = link.counters().codel.units;
    // Drops are due at 401, 501, 572, 630 ... ms.
    assert_eq!(dropped, 3);
    link.change(Time::from_millis(600), |settings| settings.codel = None);
    link.pop(Time::from_secs(2));
    assert_eq!(link.counters().codel.units, dropped);
}
