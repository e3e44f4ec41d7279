//! Tests of sets (several circuits that carry the same streams) between a client and an exit of
//! ours. Each circuit has its own guard and middle relay, and its own delay and rate.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_testkit::onion_world as world;

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Core as _, Silence};
use anabranch_onion::client::{CircuitKey, Hop, Input, NoSet, NoStream, Output};
use anabranch_onion::conflux::{Design, LegScheduler};
use anabranch_onion::handshake::extension::HopRequest;
use anabranch_onion::padding::Amount;
use anabranch_onion::wire::cell::CELL;
use anabranch_onion::wire::message::{Begin, EndReason};
use anabranch_onion::{Event, LinkCore, SetNumbers, StreamKey, StreamOutput};
use world::{Server, Setting, World};

const MEGABYTE: usize = 1_000_000;

/// Rate in bits per second, and one-way delay, of the client's link to the guard of a leg (a
/// circuit of the set).
type Line = (u64, Duration);

fn line(megabits: u64, millis: u64) -> Line {
    (megabits * 1_000_000, Duration::from_millis(millis))
}

/// Returns the settings of a world with a leg for each of `lines`. Leg `n` uses line `n` to guard
/// `n`, and middle relay `legs + n`. The last relay is the exit.
fn setting(lines: &[Line]) -> Setting {
    let legs = lines.len();
    let lines: BTreeMap<usize, Line> = lines.iter().copied().enumerate().collect();
    Setting { relays: 2 * legs + 1, lines, ..Setting::default() }
}

/// Returns the hops of `leg`, with the request `wish` for the exit.
fn hops(world: &World, leg: usize, legs: usize, wish: HopRequest) -> Vec<Hop> {
    vec![
        world.hop(leg, HopRequest::Plain),
        world.hop(legs + leg, HopRequest::Plain),
        world.hop(2 * legs, wish),
    ]
}

/// A client with a set of linked legs.
struct Set {
    world: World,
    legs: Vec<CircuitKey>,
}

impl Set {
    fn new(setting: Setting, wish: HopRequest) -> Set {
        let (count, mut world) = (setting.lines.len(), World::new(setting));
        world.client.watch_cells();
        let mut set = Set { world, legs: Vec::new() };
        (0..count).for_each(|leg| set.build(leg, count, wish));
        (0..count).for_each(|leg| set.link(leg));
        set.world.run_for(Duration::from_secs(2));
        let linked = |output: &&Output| matches!(output, Output::Linked { .. });
        assert_eq!(set.world.outputs.iter().filter(linked).count(), count);
        set
    }

    fn build(&mut self, leg: usize, legs: usize, wish: HopRequest) {
        let key = 1 + leg as u64;
        let hops = hops(&self.world, leg, legs, wish);
        assert!(self.world.build(key, hops), "{:?}", self.world.outputs);
        self.legs.push(CircuitKey(key));
    }

    fn link(&mut self, leg: usize) {
        let with = (leg > 0).then(|| self.legs[0]);
        self.world.client.link(self.world.now, self.legs[leg], with).unwrap();
    }

    fn begin(&mut self, host: &str) -> StreamKey {
        let begin = Begin { host: host.into(), port: 80, flags: 0 };
        self.world.client.begin(self.world.now, self.legs[0], &begin).unwrap()
    }

    fn upload(&mut self, stream: StreamKey, bytes: usize) {
        let mut sent = 0;
        while sent < bytes {
            let end = bytes.min(sent + 20_000);
            let piece: Vec<u8> = (sent..end).map(Server::byte).collect();
            let taken = self.world.client.write(self.world.now, stream, &piece);
            sent += taken;
            if taken < piece.len() {
                self.world.run_for(Duration::from_millis(5));
            }
        }
        self.world.client.handle(self.world.now, Input::Ended { stream });
    }

    /// Returns the number of bytes that `stream` has received, and checks each byte.
    fn received(&self, stream: StreamKey) -> usize {
        let received = self.world.received.get(&stream).map_or(&[][..], Vec::as_slice);
        assert!(received.iter().enumerate().all(|(at, found)| *found == Server::byte(at)));
        received.len()
    }

    fn taken(&self) -> usize {
        let servers = self.world.relays.iter().flat_map(|relay| relay.servers.values());
        servers.map(|server| server.received).sum()
    }

    /// Returns the number of bytes that the client's link to each guard has carried in both
    /// directions.
    fn transferred(&self) -> Vec<u64> {
        let links = self.world.links_of(0);
        links.iter().map(|link| self.world.pipes[link].bytes_sent).collect()
    }

    fn nothing_is_left_and_nobody_complained(&self) {
        assert!(self.world.relays.iter().all(|relay| relay.violations.is_empty()));
        assert!(self.world.relays.iter().all(|relay| relay.core.stats().cells == 0));
    }
}

/// Sends 10 MB in each direction of a set at once. Returns the hash of the trace.
fn ten_megabytes_both_ways(setting: Setting, wish: HopRequest) -> u64 {
    let mut set = Set::new(setting, wish);
    let down = set.begin(&format!("source-{}", 10 * MEGABYTE));
    let up = set.begin("sink");
    set.upload(up, 10 * MEGABYTE);
    set.world.run_for(Duration::from_secs(200));
    let (relays, legs) = (&set.world.relays, set.legs.len());
    let faults: Vec<_> = relays.iter().flat_map(|relay| &relay.violations).collect();
    assert_eq!(set.received(down), 10 * MEGABYTE, "{legs} legs: {faults:?}");
    assert_eq!(set.taken(), 10 * MEGABYTE);
    assert!(set.world.outputs.contains(&Output::Stream(StreamOutput::Ended {
        stream: down,
        reason: EndReason::DONE,
        refused: None
    })));
    set.nothing_is_left_and_nobody_complained();
    set.world.trace
}

/// Returns the lines of `legs` unequal legs. Each leg is slower than the leg before it.
fn lines(legs: u64) -> Vec<Line> {
    (0..legs).map(|leg| line(100 / (leg + 1), 5 + 7 * leg)).collect()
}

#[test]
fn ten_megabytes_both_ways_over_one_to_eight_unequal_legs() {
    for legs in 1..=8 {
        ten_megabytes_both_ways(setting(&lines(legs)), HopRequest::CongestionControl);
    }
}

#[test]
fn a_seed_replays_with_counter_galois_onion() {
    let run = || ten_megabytes_both_ways(setting(&lines(3)), HopRequest::Cgo);
    assert_eq!(run(), run());
}

#[test]
fn ten_megabytes_both_ways_whoever_deals() {
    for (name, every) in [
        ("round-robin", "1p"),
        ("uniform", "50p"),
        ("weighted:4", "100ms"),
        ("minrtt", "1p"),
        ("cwndrtt", "1p"),
        ("conflux-2013", "1p"),
        ("pull", "1p"),
        ("mix:0.5", "20p"),
        ("eta", "1p"),
    ] {
        let schedule = Spec::over_windows(name).unwrap();
        let dealing = Some(LegScheduler { schedule, every: every.parse().unwrap(), redraw: None });
        let setting = Setting { dealing, ..setting(&lines(3)) };
        ten_megabytes_both_ways(setting, HopRequest::CongestionControl);
    }
}

/// Returns the request that the last relay gets in sets of `design`.
fn wish(design: Design) -> HopRequest {
    if design.has_congestion_control() { HopRequest::CongestionControl } else { HopRequest::Plain }
}

/// Returns the designs that are older than proposal 329 (today's Conflux).
fn older() -> impl Iterator<Item = Design> {
    Design::ALL.into_iter().filter(|design| design.ancestor().is_some())
}

#[test]
fn older_designs_carry_ten_megabytes_both_ways_over_two_to_eight_unequal_legs() {
    for design in older() {
        for legs in [2, 3, 8] {
            let setting = Setting { design, ..setting(&lines(legs)) };
            ten_megabytes_both_ways(setting, wish(design));
        }
    }
}

#[test]
fn a_seed_replays_with_older_designs_and_with_counter_galois_onion_under_one() {
    for (design, wish) in [
        ("conflux-2013", HopRequest::Plain),
        ("mtor", HopRequest::Plain),
        ("conflux-2013-vegas", HopRequest::Cgo),
    ] {
        let design = design.parse().unwrap();
        let run = || ten_megabytes_both_ways(Setting { design, ..setting(&lines(3)) }, wish);
        assert_eq!(run(), run(), "{design}");
    }
}

#[test]
fn our_design_carries_ten_megabytes_both_ways_over_unequal_legs_shards_and_cells() {
    let design = "anabranch".parse().unwrap();
    for (legs, shards, wish) in [
        (1, 1, HopRequest::CongestionControl),
        (2, 1, HopRequest::Cgo),
        (3, 3, HopRequest::CongestionControl),
        (8, 1, HopRequest::CongestionControl),
    ] {
        let run = || {
            let setting = Setting { design, shards, ..setting(&lines(legs)) };
            ten_megabytes_both_ways(setting, wish)
        };
        let trace = run();
        assert!(legs != 3 || trace == run(), "a seed replays");
    }
    let schedule = Spec::over_windows("round-robin").unwrap();
    for every in ["1p", "300p"] {
        let dealing = Some(LegScheduler {
            schedule: schedule.clone(),
            every: every.parse().unwrap(),
            redraw: None,
        });
        let setting = Setting { design, dealing, ..setting(&lines(3)) };
        ten_megabytes_both_ways(setting, HopRequest::CongestionControl);
    }
}

#[test]
fn legs_of_older_designs_that_come_to_different_shards_are_one_set() {
    for design in older() {
        let setting = Setting { design, shards: 3, ..setting(&lines(4)) };
        ten_megabytes_both_ways(setting, wish(design));
    }
}

/// Downloads 10 MB over a set of `design`. Returns the number of bytes that the link of each leg
/// has carried in both directions.
fn carried_of_ten_megabytes(design: &str, lines: &[Line], dealing: Option<&str>) -> Vec<u64> {
    let client_dealing = dealing.and_then(|text| LegScheduler::read(text, 8));
    let design = design.parse().unwrap();
    let setting = Setting { design, client_dealing, ..setting(lines) };
    let mut set = Set::new(setting, wish(design));
    let stream = set.begin(&format!("source-{}", 10 * MEGABYTE));
    set.world.run_for(Duration::from_secs(60));
    assert_eq!(set.received(stream), 10 * MEGABYTE);
    set.nothing_is_left_and_nobody_complained();
    set.transferred()
}

#[test]
fn legs_pull_what_they_can_carry_and_sendmes_weigh_them() {
    let lines = [line(20, 10), line(5, 10)];
    let [fast, slow] = carried_of_ten_megabytes("mtor", &lines, None)[..] else { panic!() };
    let share = slow as f64 / (fast + slow) as f64;
    assert!((0.15..0.25).contains(&share), "mTor: a fifth of the rate, {share:.3} of the bytes");
    let lines = [line(50, 10), line(50, 40)];
    let [near, far] = carried_of_ten_megabytes("conflux-2013", &lines, None)[..] else { panic!() };
    let share = far as f64 / (near + far) as f64;
    assert!((0.2..0.45).contains(&share), "Conflux of 2013: {share:.3} by the leg of 2.5 RTTs");
}

#[test]
fn an_exit_deals_as_the_client_of_an_older_design_asks() {
    let lines = [line(20, 10), line(20, 10)];
    for design in ["conflux-2013", "mtor"] {
        let transferred =
            carried_of_ten_megabytes(design, &lines, Some("weights:1,0,0,0,0,0,0,0 1p"));
        assert!(
            transferred[1] < 100_000 && transferred[0] > 10_000_000,
            "{design}: {transferred:?}"
        );
        let transferred = carried_of_ten_megabytes(design, &lines, Some("round-robin 1p"));
        let apart = transferred[0].abs_diff(transferred[1]);
        // The client sends the SENDMEs of streams on only one of the legs.
        assert!(apart < transferred[0] / 20, "{design}: {transferred:?}");
    }
}

/// Downloads 5 MB over `legs` legs of 20 Mbit/s each. Returns the time in seconds.
fn seconds_for_five_megabytes(legs: usize) -> f64 {
    seconds_for_five_megabytes_of(Design::Conflux, legs)
}

/// Measures like [`seconds_for_five_megabytes`], with a set of `design`.
fn seconds_for_five_megabytes_of(design: Design, legs: usize) -> f64 {
    let setting = Setting { design, ..setting(&vec![line(20, 20); legs]) };
    let mut set = Set::new(setting, wish(design));
    let begun = set.world.now;
    let stream = set.begin(&format!("source-{}", 5 * MEGABYTE));
    while set.received(stream) < 5 * MEGABYTE {
        set.world.run_for(Duration::from_millis(10));
        assert!(set.world.now.since(begun) < Duration::from_secs(60));
    }
    set.world.now.since(begun).as_secs_f64()
}

#[test]
fn two_bottlenecks_carry_1_8_times_one_and_three_2_6_times() {
    let [one, two, three] = [1, 2, 3].map(seconds_for_five_megabytes);
    println!("5 MB over 1, 2, 3 legs of 20 Mbit/s: {one:.2}, {two:.2}, {three:.2} s");
    assert!(one / two >= 1.8, "{one} and {two} s");
    assert!(one / three >= 2.6, "{one} and {three} s");
}

#[test]
fn with_a_window_on_each_leg_mtor_adds_legs_up_and_conflux_of_2013_has_500_cells_in_all() {
    let [old, mtor] = ["conflux-2013", "mtor"].map(|design| {
        let design = design.parse().unwrap();
        [1, 2, 3].map(|legs| seconds_for_five_megabytes_of(design, legs))
    });
    println!("5 MB over 1, 2, 3 legs of 20 Mbit/s: {old:.2?} s, mTor {mtor:.2?} s");
    assert!(mtor[0] / mtor[1] >= 1.8 && mtor[0] / mtor[2] >= 2.6, "{mtor:?} s");
    assert!(old[0] / old[1] >= 1.3 && old[0] / old[2] < 2.6, "{old:?} s");
}

#[test]
fn legs_that_come_to_different_shards_are_one_set() {
    for (shards, wish) in [(2, HopRequest::CongestionControl), (4, HopRequest::Cgo)] {
        let setting = Setting { shards, ..setting(&lines(4)) };
        ten_megabytes_both_ways(setting, wish);
    }
}

/// Breaks the client's link to the guard of `leg`, so that the leg fails.
fn cut(set: &mut Set, leg: usize) {
    let link = set.world.links_of(0)[leg];
    set.world.cut(link);
}

#[test]
fn a_leg_that_dies_in_mid_download_ends_the_set_at_both_ends_and_the_next_works() {
    let mortal = Design::ALL.into_iter().filter(|design| !design.is_resilient());
    mortal.for_each(dies_in_mid_download);
}

fn dies_in_mid_download(design: Design) {
    let setting = Setting { design, ..setting(&lines(2)) };
    let mut set = Set::new(setting, wish(design));
    let stream = set.begin(&format!("source-{}", 50 * MEGABYTE));
    set.world.run_for(Duration::from_secs(2));
    cut(&mut set, 1);
    set.world.run_for(Duration::from_secs(2));
    let received = set.received(stream);
    assert!(received > MEGABYTE && received < 50 * MEGABYTE);
    let ended = StreamOutput::Ended { stream, reason: EndReason::DESTROY, refused: None };
    assert!(set.world.outputs.contains(&Output::Stream(ended)), "an error, never a short file");
    let closed = |output: &&Output| matches!(output, Output::CircuitClosed { .. });
    assert_eq!(set.world.outputs.iter().filter(closed).count(), 2);
    assert!(
        set.world.relays.iter().all(|relay| relay.core.stats().link_circuits == 0),
        "no leg is left"
    );
    assert_eq!(set.world.relays[4].core.stats().streams, 0);
    set.nothing_is_left_and_nobody_complained();
    let hops = hops(&set.world, 0, 2, wish(design));
    assert!(set.world.build(9, hops));
    set.legs = vec![CircuitKey(9)];
    set.link(0);
    let stream = set.begin("source-1000000");
    set.world.run_for(Duration::from_secs(10));
    assert_eq!(set.received(stream), MEGABYTE);
}

#[test]
fn an_idle_leg_may_die_and_a_late_one_join_a_set_in_use() {
    let lines = [line(10, 5), line(10, 12), line(10, 19)];
    let mut set = Set::new(setting(&lines), HopRequest::CongestionControl);
    let stream = set.begin("source-2000");
    set.world.run_for(Duration::from_secs(2));
    assert_eq!(set.received(stream), 2_000);
    cut(&mut set, 2);
    set.world.run_for(Duration::from_secs(1));
    let stream = set.begin(&format!("source-{}", 20 * MEGABYTE));
    set.world.run_for(Duration::from_secs(1));
    let hops = hops(&set.world, 2, 3, HopRequest::CongestionControl);
    assert!(set.world.build(9, hops), "while the others carry");
    set.world.client.link(set.world.now, CircuitKey(9), Some(set.legs[0])).unwrap();
    set.world.run_for(Duration::from_secs(60));
    assert_eq!(set.received(stream), 20 * MEGABYTE);
    assert!(*set.transferred().last().unwrap() > MEGABYTE as u64 / 2, "{:?}", set.transferred());
    set.nothing_is_left_and_nobody_complained();
}

#[test]
fn a_stream_begins_by_the_leg_that_takes_its_data_so_that_silence_is_noticed() {
    let lines = [line(10, 40), line(10, 5)];
    let mut world = World::new(setting(&lines));
    world.client.watch_cells();
    let mut set = Set { world, legs: Vec::new() };
    set.build(0, 2, HopRequest::CongestionControl);
    set.link(0);
    set.world.run_for(Duration::from_secs(2));
    // The slower leg carries data while it is the only leg.
    let stream = set.begin("source-2000");
    set.world.run_for(Duration::from_secs(2));
    assert_eq!(set.received(stream), 2_000);
    set.build(1, 2, HopRequest::CongestionControl);
    set.link(1);
    set.world.run_for(Duration::from_secs(2));
    // Everything that the client sends on the quicker leg gets lost from now on.
    let quicker = set.world.link_between([None, Some(1)]).unwrap();
    let side = set.world.pipes[&quicker].nodes.iter().position(|node| *node != 0).unwrap();
    set.world.pipes.get_mut(&quicker).unwrap().swallow_to(side);
    let stream = set.begin("sink");
    set.world.run_for(Duration::from_secs(5));
    let reached = set.world.outputs.contains(&Output::Connected { stream });
    assert!(!reached, "its bytes would get lost all the same");
}

/// Returns the only element of `sets`, and checks that there is no other.
fn only(sets: Vec<SetNumbers>) -> SetNumbers {
    assert_eq!(sets.len(), 1, "{sets:?}");
    sets.into_iter().next().unwrap()
}

#[test]
fn what_is_told_of_each_leg_is_what_its_guard_sees_cell_by_cell() {
    let setting = Setting { amount: Amount::Off, ..setting(&lines(2)) };
    let mut set = Set::new(setting, HopRequest::CongestionControl);
    let stream = set.begin(&format!("source-{}", 2 * MEGABYTE));
    set.world.run_for(Duration::from_secs(20));
    assert_eq!(set.received(stream), 2 * MEGABYTE);
    let seen = set.world.client.take_seen();
    assert!(seen.is_sorted_by_key(|cell| cell.time), "in the order of time");
    let report = only(set.world.client.fullest_sets(9));
    assert_eq!((report.design, report.schedule.as_str()), ("conflux", "lowrtt --every 1p"));
    assert_eq!((report.streams, report.transferred), (0, [2 * MEGABYTE as u64, 0]));
    for (leg, link) in report.legs.iter().zip(set.world.links_of(0)) {
        let way = |outward: bool| {
            let of = |cell: &&anabranch_onion::client::CellSeen| {
                Some(cell.circuit.0) == leg.circuit && cell.outward == outward
            };
            seen.iter().filter(of).count() as u64
        };
        assert_eq!(leg.cells, [way(false), way(true)]);
        assert!(leg.is_linked && leg.cells[0] > 500, "{leg:?}");
        // The link carried its handshake in addition to the leg's cells.
        let alongside = set.world.pipes[&link].bytes_sent - leg.total() * CELL as u64;
        assert!((1..8_000).contains(&alongside), "{alongside} bytes");
    }
    let shares = report.shares();
    for way in [0, 1] {
        assert!((shares[0][way] + shares[1][way] - 1.0).abs() < 1e-9, "{shares:?}");
    }
    assert!(report.most_reordered > 0 && report.most_reordered <= report.budget, "{report:?}");
    assert_eq!(report.reordered, 0);
}

#[test]
fn an_exit_tells_windows_and_round_trip_times_of_legs_and_not_whose_they_are() {
    let mut set = Set::new(setting(&lines(2)), HopRequest::CongestionControl);
    let stream = set.begin(&format!("source-{}", 2 * MEGABYTE));
    set.world.run_for(Duration::from_secs(20));
    assert_eq!(set.received(stream), 2 * MEGABYTE);
    let (client, exit) = (only(set.world.client.fullest_sets(9)), &set.world.relays[4].core);
    let (report, stats) = (only(exit.fullest_sets(9)), exit.stats());
    assert_eq!(report.transferred, [client.transferred[1], client.transferred[0]]);
    assert!(report.legs.iter().all(|leg| leg.circuit.is_none()), "{report:?}");
    let data: u64 = report.legs.iter().map(|leg| leg.cells[1]).sum();
    // The last cell of a write may be partly empty, so there are more cells than full ones.
    let full = 2 * MEGABYTE as u64 / 498;
    assert!((full..full + 100).contains(&data), "{report:?}");
    let rtts: Vec<u64> =
        report.legs.iter().map(|leg| leg.rtt.unwrap().as_micros() as u64).collect();
    assert!(rtts[0] > 20_000 && rtts[1] > rtts[0], "{rtts:?}");
    assert!(report.legs.iter().all(|leg| leg.least_rtt <= leg.rtt && leg.window >= 124));
    assert_eq!(stats.leg_rtts, rtts.into_iter().collect());
    assert_eq!(stats.leg_windows, report.legs.iter().map(|leg| leg.window).collect());
    assert!(exit.fullest_sets(0).is_empty());
}

/// Downloads 5 MB over two unequal legs in turns. The client's memory holds at most `max_cells`
/// cells. Returns whether the set ever paused its streams, and how often the memory was full.
fn download_in(max_cells: usize) -> (bool, usize) {
    let schedule = Spec::over_windows("round-robin").unwrap();
    let dealing = Some(LegScheduler { schedule, every: "1p".parse().unwrap(), redraw: None });
    let lines = [line(100, 5), line(5, 150)];
    let mut set = Set::new(Setting { dealing, ..setting(&lines) }, HopRequest::CongestionControl);
    set.world.client.set_max_cells(max_cells);
    let stream = set.begin(&format!("source-{}", 5 * MEGABYTE));
    let mut rested = false;
    for _ in 0..1_000 {
        set.world.run_for(Duration::from_millis(50));
        rested |= set.world.client.fullest_sets(1).iter().any(|report| report.paused);
        let [waiting, reordered, _] = set.world.client.waiting();
        assert!(reordered <= waiting && waiting <= max_cells * CELL, "{waiting} bytes");
    }
    let full = |output: &&Output| matches!(output, Output::Event(Event::OutOfMemory));
    let full = set.world.outputs.iter().filter(full).count();
    assert_eq!(set.received(stream) == 5 * MEGABYTE, full == 0, "whole, or ended with an error");
    (rested, full)
}

/// Checks the effect of the client's memory limit alone. At most about 280 kB wait, which is less
/// than half of the set's own limit.
#[test]
fn sets_rest_from_half_of_memory_on_and_the_fullest_goes_where_that_is_not_enough() {
    assert_eq!(download_in(100_000), (false, 0));
    assert_eq!(download_in(1_000), (true, 0), "half are 257 kB");
    assert_eq!(download_in(200).1, 1, "all are 103 kB");
}

/// Makes twelve uploads with three seconds of silence after each. The scheduler gives the two legs
/// random weights that differ much. If `redraw` is given, it draws them again after a silence of
/// that length. Returns the first leg's share of the cells of each upload.
fn shares_of_uploads(redraw: Option<Silence>) -> Vec<f64> {
    let schedule = Spec::over_windows("weighted:0.3").unwrap();
    let dealing = Some(LegScheduler { schedule, every: "1p".parse().unwrap(), redraw });
    let setting = Setting { client_dealing: dealing, ..setting(&[line(20, 10), line(20, 10)]) };
    let mut set = Set::new(setting, HopRequest::CongestionControl);
    let mut shares = Vec::new();
    let cells = |set: &Set| -> Vec<u64> {
        let legs = &set.world.client.fullest_sets(1)[0].legs;
        legs.iter().map(|leg| leg.cells[1]).collect()
    };
    for _ in 0..12 {
        let before = cells(&set);
        let stream = set.begin("sink");
        set.upload(stream, 150_000);
        set.world.run_for(Duration::from_secs(3));
        let after = cells(&set);
        let sent: Vec<f64> =
            after.iter().zip(&before).map(|(after, before)| (after - before) as f64).collect();
        shares.push(sent[0] / sent.iter().sum::<f64>());
    }
    assert_eq!(set.taken(), 12 * 150_000);
    shares
}

#[test]
fn a_client_draws_its_chances_anew_behind_silences_if_asked_to() {
    let apart = |shares: &[f64]| {
        shares.iter().copied().fold(0.0, f64::max) - shares.iter().copied().fold(1.0, f64::min)
    };
    let (kept, drawn) =
        (shares_of_uploads(None), shares_of_uploads(Silence::new(Duration::from_secs(1))));
    println!("kept {kept:.2?}, drawn anew {drawn:.2?}");
    assert!(apart(&kept) < 0.25, "{kept:?}");
    assert!(apart(&drawn) > 0.5, "{drawn:?}");
}

#[test]
fn a_client_refuses_what_cannot_be_a_leg() {
    let mut world = World::new(setting(&lines(2)));
    for (key, wish) in
        [(1, HopRequest::Plain), (2, HopRequest::CongestionControl), (3, HopRequest::Cgo)]
    {
        let hops = hops(&world, 0, 2, wish);
        assert!(world.build(key, hops));
    }
    let key = CircuitKey;
    let now = world.now;
    assert_eq!(world.client.link(now, key(1), None), Err(NoSet::NoCongestionControl));
    assert_eq!(world.client.link(now, key(7), None), Err(NoSet::NotBuilt));
    assert_eq!(world.client.link(now, key(2), Some(key(3))), Err(NoSet::Gone), "no set yet");
    let begin = Begin { host: "sink".into(), port: 80, flags: 0 };
    world.client.begin(now, key(2), &begin).unwrap();
    assert_eq!(world.client.link(now, key(2), None), Err(NoSet::Used));
    world.client.link(now, key(3), None).unwrap();
    assert_eq!(world.client.link(now, key(3), None), Err(NoSet::Used));
    assert_eq!(world.client.begin_directory(now, key(3)), Err(NoStream::Leg));
}

#[test]
fn a_client_links_circuits_with_the_windows_of_its_design_alone() {
    let design = "mtor".parse().unwrap();
    let mut world = World::new(Setting { design, ..setting(&lines(2)) });
    for (key, wish) in [(1, HopRequest::Plain), (2, HopRequest::CongestionControl)] {
        let hops = hops(&world, 0, 2, wish);
        assert!(world.build(key, hops));
    }
    let (now, key) = (world.now, CircuitKey);
    assert_eq!(world.client.link(now, key(2), None), Err(NoSet::CongestionControl));
    assert_eq!(world.client.link(now, key(1), None), Ok(()));
}
