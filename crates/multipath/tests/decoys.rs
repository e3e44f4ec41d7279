//! Tests of decoy runs alongside each scheduler for paths without windows.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_multipath::schedule::{Spec, without_windows};
use anabranch_multipath::seed::stream;
use anabranch_multipath::{Assignment, Decoys, PathView, Splitter, Time};

const PATHS: usize = 3;

/// Bytes of real packets and of decoys, and their paths.
#[derive(Default)]
struct Load {
    carried: usize,
    decoys: usize,
    paths: [usize; PATHS],
}

/// Returns a load of 30 s: a packet every 2 ms, with one pause of three seconds.
fn load(spec: &Spec, every: &str) -> Load {
    let every = every.parse().unwrap();
    let mut splitter =
        Splitter::drawn(spec, PATHS, every, None, |purpose| stream(1, 0, purpose)).unwrap();
    let mut decoys = Decoys::new("20%".parse().unwrap(), stream(1, 0, "decoys"));
    let (views, mut load) = ([PathView::open(); PATHS], Load::default());
    let mut current = None;
    for packet in 0..13_500_u64 {
        let pause = if packet > 6_000 { 3_000 } else { 0 };
        let now = Time::from_millis(2 * packet + pause);
        while let Some(due) = decoys.next_due().filter(|due| *due <= now) {
            let (path, bytes) = decoys.poll(due).unwrap();
            assert_ne!(Some(path), current, "{spec}: a decoy where the schedule is");
            load.decoys += bytes;
            load.paths[path.index()] += bytes;
            assert!(5 * load.decoys <= load.carried, "{spec}: more than the budget has");
        }
        let Assignment::Send { path, .. } = splitter.assign(now, &views, 1) else { panic!() };
        decoys.on_sent(now, (path, 1_200), PATHS, |_| true);
        (load.carried, current) = (load.carried + 1_200, Some(path));
    }
    load
}

#[test]
fn beside_every_schedule_they_go_by_paths_that_rest_and_keep_the_budget() {
    let mut families = 0;
    for family in without_windows() {
        let spec: Spec = match family.name {
            "weights" => "weights:0.6,0.3,0.1".parse().unwrap(),
            name => name.parse().unwrap(),
        };
        let load = load(&spec, family.every.unwrap_or("20ms"));
        // Two schedulers seldom change the path, so few runs end. One has drawn a probability with
        // this effect. The other chooses the lowest round-trip time.
        let seldom = ["hywf", "lowest-rtt"].contains(&family.name);
        assert!(seldom || load.paths.iter().all(|bytes| *bytes > 0), "{spec}: {:?}", load.paths);
        families += 1;
    }
    assert!(families >= 7, "{families}");
}

#[test]
fn runs_that_never_end_have_no_decoys() {
    let load = load(&"uniform".parse().unwrap(), "never");
    assert_eq!((load.decoys, load.paths), (0, [0; PATHS]));
}
