//! One suite that every scheduler passes.
//!
//! Call [`check`] from a scheduler's test. It panics with the name of the rule that was broken.

use std::time::Duration;

use crate::schedule::Scheduler;
use crate::{Assignment, Boundary, PathView, Splitter, Time, seed};

const PATHS: usize = 3;

/// Runs every rule on the schedulers that `make` builds for three paths from a seed.
///
/// # Panics
/// If a rule is broken.
pub fn check(make: impl Fn(u64) -> Box<dyn Scheduler>) {
    names_only_usable_paths(&make);
    names_none_when_none_is_usable(&make);
    is_a_function_of_its_seed(&make);
    tolerates_a_path_that_comes_back(&make);
    if make(1).load_aware() {
        passes_over_full_paths(&make);
    } else {
        ignores_windows(&make);
        holds_for_the_path_it_chose(&make);
    }
}

/// The views of three paths, each usable or not by one bit of `mask`.
fn views(mask: usize) -> Vec<PathView> {
    let view = |index| if mask >> index & 1 == 1 { PathView::open() } else { PathView::dead() };
    (0..PATHS).map(view).collect()
}

fn choices(scheduler: &mut dyn Scheduler, paths: &[PathView], n: u64) -> Vec<Option<usize>> {
    let choice = |step| scheduler.choose(Time::from_millis(step), paths).map(|path| path.index());
    (0..n).map(choice).collect()
}

fn names_only_usable_paths(make: &impl Fn(u64) -> Box<dyn Scheduler>) {
    for mask in 1..1 << PATHS {
        let paths = views(mask);
        for choice in choices(&mut *make(1), &paths, 200) {
            let named = choice.expect("rule: names a path while one is usable");
            assert!(
                paths[named].usable,
                "rule: names only usable paths (mask {mask:b}, named {named})"
            );
        }
    }
}

fn names_none_when_none_is_usable(make: &impl Fn(u64) -> Box<dyn Scheduler>) {
    assert_eq!(
        choices(&mut *make(1), &views(0), 1),
        [None],
        "rule: names none when none is usable"
    );
    assert_eq!(choices(&mut *make(1), &[], 1), [None], "rule: an empty list is no error");
}

fn is_a_function_of_its_seed(make: &impl Fn(u64) -> Box<dyn Scheduler>) {
    for seed in 0..8 {
        let (first, second) =
            (choices(&mut *make(seed), &views(7), 500), choices(&mut *make(seed), &views(7), 500));
        assert_eq!(first, second, "rule: the same seed gives the same choices (seed {seed})");
    }
}

fn tolerates_a_path_that_comes_back(make: &impl Fn(u64) -> Box<dyn Scheduler>) {
    let mut scheduler = make(1);
    for step in 0..600u64 {
        let paths = views(1 + (step as usize / 7) % 7);
        let named = scheduler.choose(Time::from_millis(step), &paths);
        let named = named.expect("rule: names a path while one is usable");
        assert!(
            paths[named.index()].usable,
            "rule: names only usable paths while they come and go"
        );
    }
}

fn ignores_windows(make: &impl Fn(u64) -> Box<dyn Scheduler>) {
    let open = views(7);
    let full: Vec<_> = open.iter().map(|view| PathView { window: Some(0), ..*view }).collect();
    assert_eq!(
        choices(&mut *make(3), &open, 500),
        choices(&mut *make(3), &full, 500),
        "rule: a load-blind scheduler makes the same choices whatever the windows"
    );
}

/// A saturated sender: each path takes one unit in so many ticks. The split must be that of an idle
/// one.
fn holds_for_the_path_it_chose(make: &impl Fn(u64) -> Box<dyn Scheduler>) {
    let boundary =
        || Boundary::new("1p".parse().expect("a literal"), seed::stream(1, 0, "boundary"));
    let mut free = Splitter::new(make(5), boundary());
    let mut tight = Splitter::new(make(5), boundary());
    let expected: Vec<_> = (0..300).map(|_| free.assign(Time::ZERO, &views(7), 1)).collect();
    let mut got = Vec::new();
    for tick in 0usize.. {
        let open = |index: usize| u64::from(tick.is_multiple_of(index * 3 + 1));
        let paths: Vec<_> = views(7)
            .iter()
            .enumerate()
            .map(|(i, view)| PathView { window: Some(open(i)), ..*view })
            .collect();
        let sent = tight.assign(Time::ZERO + Duration::from_micros(tick as u64), &paths, 1);
        if sent != Assignment::Hold {
            got.push(path_of(sent));
        }
        if got.len() == expected.len() {
            break;
        }
    }
    let expected: Vec<_> = expected.into_iter().map(path_of).collect();
    assert_eq!(
        got, expected,
        "rule: windows delay a load-blind scheduler's choices, they do not change them"
    );
}

fn path_of(assignment: Assignment) -> usize {
    match assignment {
        Assignment::Send { path, .. } => path.index(),
        other => panic!("rule: a run with room is sent, not {other:?}"),
    }
}

fn passes_over_full_paths(make: &impl Fn(u64) -> Box<dyn Scheduler>) {
    for open in 0..PATHS {
        let window = |index| Some(u64::from(index == open));
        let paths: Vec<_> = views(7)
            .iter()
            .enumerate()
            .map(|(i, view)| PathView { window: window(i), ..*view })
            .collect();
        for choice in choices(&mut *make(1), &paths, 50) {
            assert_eq!(choice, Some(open), "rule: a load-aware scheduler takes the path with room");
        }
    }
}
