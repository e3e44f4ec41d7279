//! The bytes that both ends send, and their times, against recorded hashes. A change of the wire
//! shows here first. If it is intended, record the hashes that the failing test prints.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use anabranch_testkit::stego_world as world;

use std::time::Duration;

use rand::RngExt as _;

use world::{Fate, Fates, Task, World, all, dsl};

/// Hashes of each profile: over a network without failures, and over a network that kills and
/// freezes connections.
const RECORDED: [(&str, [u64; 2]); 10] = [
    ("nosteg", [0x796b_6ccf_125e_0b9a, 0xba2f_b0df_3668_84f0]),
    ("nosteg-short", [0x0914_f3ef_0088_6e2a, 0x8470_fa7b_5055_36d2]),
    ("nosteg-rr", [0x8337_cce7_69df_541c, 0x5eeb_17e5_7bb7_8f5d]),
    ("embed", [0x1039_924e_9c57_9667, 0xf143_9fbd_bc4c_9355]),
    ("http-opaque", [0xa51b_f5ac_1c76_e336, 0x77cd_d72e_b28e_3fb7]),
    ("http-opaque-short", [0x6d75_e157_80f6_f2fb, 0xcb04_b52b_425e_0846]),
    ("http-image", [0x993e_5f6f_1bc8_17b9, 0xe8ed_ecbd_741e_999a]),
    ("http-site", [0xc5b7_e7bb_6fa0_105d, 0xa542_1878_bd61_f293]),
    ("http-text", [0x6e4a_882c_279b_8c31, 0x4926_a46c_3ffa_cafd]),
    ("http-text-short", [0x7a43_601a_e498_869c, 0x41b1_f565_24fa_d0d6]),
];

/// Returns the hash of a link that carries 40 kB up and 150 kB down.
fn trace(profile: &str, fates: Fates) -> u64 {
    let mut world = World::new(11, profile, dsl(), fates);
    let mut task = Task::new(11, 40_000, 150_000);
    world.carry(&mut task, Duration::from_secs(600));
    assert!(task.is_whole(), "{profile}");
    world.trace
}

/// Returns the fates of connections: two thirds are killed or frozen.
fn hostile() -> Fates {
    Box::new(|conn, _, dice| match conn % 3 {
        0 => Fate::Killed(Duration::from_millis(dice.random_range(50..800))),
        1 => Fate::Frozen(dice.random_range(9_000..60_000)),
        _ => Fate::Fine,
    })
}

#[test]
fn each_profile_sends_the_recorded_bytes_at_the_recorded_times() {
    let traces = RECORDED.map(|(profile, _)| {
        (profile, [trace(profile, all(Fate::Fine)), trace(profile, hostile())])
    });
    assert_eq!(traces, RECORDED, "{traces:#x?}");
}
