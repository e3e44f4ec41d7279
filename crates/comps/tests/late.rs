//! Tests with delays of machines and networks. A server that follows its client must not be
//! reported as staying on one path.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_testkit::comps_world as world;

use std::ops::RangeInclusive;
use std::time::Duration;

use anabranch_comps::{Config, Event};
use anabranch_multipath::Time;
use anabranch_netem::LinkSettings;
use world::moving::{MigrationRule, Moving, ServerTraffic, StalledPart, late_session};
use world::{DELAY, World, config, link};

const MS: Duration = Duration::from_millis(1);
const EACH_LATE: [StalledPart; 3] = [StalledPart::Host, StalledPart::Server, StalledPart::Program];
/// Range of the time between two delays, in milliseconds.
const OFTEN: RangeInclusive<u32> = 300..=2_500;
const ONCE: RangeInclusive<u32> = 20_000..=20_000;

/// Returns a fast line, and a line whose queue is full after 25 ms.
fn lines(jitter: Duration) -> [LinkSettings; 2] {
    let slow = LinkSettings { queue: 30_000, ..LinkSettings::with_rate(10_000_000) };
    let fast = LinkSettings { queue: 1 << 20, ..link() };
    [fast, slow].map(|line| LinkSettings { delay: DELAY, jitter, ..line })
}

fn skewed(world: &World<Moving>) -> Option<Time> {
    let is_skewed = |(_, event): &&(Time, Event)| matches!(event, Event::Skewed { .. });
    world.events.iter().find(is_skewed).map(|(time, _)| *time)
}

/// Runs sessions over three paths, with servers that follow their client and whose answers are
/// late. `cut` is a path that discards everything. Returns descriptions of the sessions whose
/// server was wrongly reported, and the number of sessions.
fn accused(cut: Option<usize>) -> (Vec<String>, usize) {
    let (mut accused, mut runs) = (Vec::new(), 0);
    for late in EACH_LATE {
        for line in [30, 80].into_iter().flat_map(|jitter| lines(jitter * MS)) {
            for says in [ServerTraffic::Echo, ServerTraffic::Bulk] {
                for moves in
                    [MigrationRule::Always, MigrationRule::Validated, MigrationRule::Revalidated]
                {
                    for seed in 0..4 {
                        let schedule = ["weighted:4", "round-robin"][seed as usize % 2];
                        let settings = Config { seed, ..config(3, schedule, "100ms") };
                        let server = Moving::new(moves, says);
                        let mut world = World::with_links(settings, server, &vec![line.clone(); 3]);
                        cut.into_iter().for_each(|path| world.cut(path, true));
                        late_session(&mut world, 4, (late, OFTEN), seed);
                        let about = format!("{late:?}, {says:?}, {moves:?}, {schedule}, {seed}");
                        accused.extend(skewed(&world).map(|at| format!("{about}: {at:?}")));
                        runs += 1;
                    }
                }
            }
        }
    }
    (accused, runs)
}

#[test]
fn a_server_that_follows_is_not_accused_however_late_someone_is() {
    let (accused, runs) = accused(None);
    assert!(runs >= 200);
    assert!(accused.is_empty(), "{} of {runs}: {accused:#?}", accused.len());
}

#[test]
fn nor_is_it_where_a_path_discards_everything_meanwhile() {
    let (accused, runs) = accused(Some(1));
    assert!(runs >= 200);
    assert!(accused.is_empty(), "{} of {runs}: {accused:#?}", accused.len());
}

#[test]
fn a_server_that_stays_is_named_though_someone_was_late() {
    for late in EACH_LATE {
        for says in [ServerTraffic::Echo, ServerTraffic::Bulk] {
            for (paths, moves) in [(3, MigrationRule::Times(2)), (2, MigrationRule::EachTwoSeconds)]
            {
                for seed in 0..20 {
                    let settings = Config { seed, ..config(paths, "uniform", "100ms") };
                    let [fast, _] = lines(Duration::ZERO);
                    let server = Moving::new(moves, says);
                    let mut world = World::with_links(settings, server, &vec![fast; paths]);
                    late_session(&mut world, 10, (late, ONCE), seed);
                    let about = format!("{late:?}, {says:?}, {paths} paths, {moves:?}, {seed}");
                    assert!(skewed(&world).is_some(), "{about}: not named within 10 s");
                }
            }
        }
    }
}
