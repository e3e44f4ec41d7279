//! Tests with servers that accept data from one address only. Datagrams on the other paths are
//! lost.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_testkit::comps_world as world;

use std::time::Duration;

use anabranch_comps::{Config, DownReason, Event};
use anabranch_multipath::Time;
use anabranch_netem::LinkSettings;
use world::holding::{Accepts, FASTD, OneAddressServer, TunnelLoad, TunnelRun, begin, tunnel};
use world::{World, config};

const MS: Duration = Duration::from_millis(1);

fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn line(delay: u32, queue: usize) -> LinkSettings {
    LinkSettings { delay: delay * MS, queue, ..LinkSettings::with_rate(20_000_000) }
}

/// Returns the changes of the paths' states, each with its time; `None` means that the path is up.
fn changes(world: &World<OneAddressServer>) -> Vec<(Time, u16, Option<DownReason>)> {
    let change = |(time, event): &(Time, Event)| match event {
        Event::Down { path, reason, .. } => Some((*time, path.0, Some(*reason))),
        Event::Up { path, .. } => Some((*time, path.0, None)),
        _ => None,
    };
    world.events.iter().filter_map(change).collect()
}

/// Runs the server with typical loads and paths of a tunnel for `seconds` seconds. Returns each run
/// with its description.
fn worlds(accepts: Accepts, seconds: u64) -> impl Iterator<Item = (String, TunnelRun)> {
    let loads = [TunnelLoad::Pings, TunnelLoad::Download, TunnelLoad::Upload];
    let shapes =
        [(2, 10, 500_000), (3, 10, 50_000), (3, 10, 250_000), (3, 40, 250_000), (5, 1, 50_000)];
    loads.into_iter().flat_map(move |load| {
        shapes.into_iter().enumerate().map(move |(seed, (paths, delay, queue))| {
            let schedule = ["round-robin", "uniform"][seed % 2];
            let settings = Config { seed: seed as u64, ..config(paths, schedule, "100ms") };
            let links = vec![line(delay, queue); paths];
            let about = format!("{accepts:?}, {load:?}, {paths} paths, {delay} ms, {queue} B");
            (about, tunnel(settings, (accepts, load), &links, seconds))
        })
    })
}

#[test]
fn paths_whose_data_earns_no_answer_are_left_though_handshakes_arrive_on_them() {
    // Between two handshakes, each path must be used for a second. With five paths, an interval of
    // 5 s is too short.
    for (pause, most) in [(FASTD, 5), (FASTD / 3, 3)] {
        for (about, outcome) in worlds(Accepts::LastHandshake(pause), 40) {
            let changes = changes(&outcome.world);
            let others = outcome.world.up.len() - 1;
            if others >= most {
                continue;
            }
            assert_eq!(changes.len(), others, "{about}: {changes:?}");
            let is_unanswered = |change: &(_, _, _)| change.2 == Some(DownReason::DataUnanswered);
            assert!(changes.iter().all(is_unanswered), "{about}: {changes:?}");
            assert!(changes.iter().all(|change| change.0 <= ms(7000)), "{about}: {changes:?}");
            let lost = outcome.lost_since(changes[others - 1].0);
            assert!(lost <= 0.02, "{about}: {lost} of the pings lost afterwards");
        }
    }
}

#[test]
fn a_server_that_never_answers_another_address_is_left_undecided() {
    for accepts in [Accepts::First, Accepts::All] {
        for (about, outcome) in worlds(accepts, 12) {
            let changes = changes(&outcome.world);
            let never = |change: &(_, _, _)| change.2 == Some(DownReason::NeverAnswered);
            assert_eq!(changes.len(), outcome.world.up.len() - 1, "{about}: {changes:?}");
            assert!(changes.iter().all(never), "{about}: {changes:?}");
            assert_eq!(outcome.lost_since(ms(10_000)), 0.0, "{about}");
        }
    }
}

#[test]
fn when_the_only_path_dies_the_others_are_used_again() {
    let settings = config(3, "round-robin", "100ms");
    let mut outcome = begin(
        settings,
        (Accepts::LastHandshake(FASTD), TunnelLoad::Pings),
        &vec![line(10, 50_000); 3],
    );
    outcome.run_until(ms(20_000));
    assert_eq!(changes(&outcome.world).len(), 2);
    outcome.world.cut(0, true);
    outcome.run_until(ms(60_000));
    let lost = outcome.lost_since(ms(45_000));
    assert!(lost <= 0.02, "{lost}, {:?}", changes(&outcome.world));
}
