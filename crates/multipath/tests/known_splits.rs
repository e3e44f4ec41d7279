//! Checks that splits are the same on every machine, in every version, in Rust and through the
//! Python binding.
//!
//! The lab's tests also read `known_splits.txt`. A change of this table changes the meaning of a
//! seed, so published results can no longer be reproduced. On failure, the test prints the whole
//! new table. Examine it before you put it into the file.

#![allow(clippy::unwrap_used, reason = "a test")]

use anabranch_multipath::trace::{Entity, Mode, TraceSplit};

const TABLE: &str = include_str!("known_splits.txt");

/// Returns the trace of the table: packet k is at k / 128 seconds, and every third packet is from
/// the client.
fn sample() -> (Vec<f64>, Vec<i32>) {
    let size = |packet: u32| if packet.is_multiple_of(3) { 100 } else { -1500 };
    ((0..60u32).map(|packet| f64::from(packet) / 128.0).collect(), (0..60).map(size).collect())
}

/// Returns the paths of a case, one digit per packet. A case is "schedule every paths mode seed
/// load run replica".
fn split(case: &str) -> String {
    let fields: Vec<&str> = case.split_whitespace().collect();
    let [schedule, every, paths, mode, seed, load, run, replica] = fields[..] else {
        panic!("eight fields: {case}")
    };
    let mode: Mode = mode.parse().unwrap();
    let number = |text: &str| text.parse::<u32>().unwrap();
    let (spec, every) = (schedule.parse().unwrap(), every.parse().unwrap());
    let plan =
        TraceSplit::new(spec, every, number(paths) as usize, mode, number(seed).into()).unwrap();
    let entity = Entity {
        load: number(load).into(),
        run: number(run).cast_signed(),
        replica: number(replica),
    };
    let (times, sizes) = sample();
    let mut out = vec![0; times.len()];
    plan.assign(entity, &times, &sizes, &mut out).unwrap();
    out.iter().map(i16::to_string).collect()
}

#[test]
fn a_seed_means_today_what_it_meant_when_the_table_was_written() {
    let cases = TABLE.lines().filter(|line| !line.starts_with('#'));
    let now: Vec<String> = cases
        .map(|line| line.split(" = ").next().unwrap_or(line))
        .map(|case| format!("{case} = {}", split(case)))
        .collect();
    let comments = TABLE.lines().filter(|line| line.starts_with('#'));
    let expected: Vec<&str> = TABLE.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(expected.len() >= 12, "the table is there");
    assert_eq!(
        expected,
        now,
        "now:\n{}\n{}",
        comments.collect::<Vec<_>>().join("\n"),
        now.join("\n")
    );
}
