//! Settings of a splitter from a script: every kind of path, handshake and schedule.

use std::time::Duration;

use anabranch_comps::{Config, Guess, Protocol};
use anabranch_multipath::Silence;

use crate::input::Input;

const SCHEDULES: [&str; 5] = ["round-robin", "uniform", "weighted", "lowest-rtt", "weighted:0.01"];
const EVERY: [&str; 8] = ["1p", "3p", "~2p", "10ms", "~10ms", "1s", "never", "24h"];
const GUESSES: [Guess; 4] =
    [Guess::Look, Guess::Look, Guess::Is(Protocol::Quic), Guess::Is(Protocol::Other)];

/// Reads settings that the command line could produce.
pub(super) fn read(script: &mut Input<'_>) -> Config {
    let paths = 1 + script.below(4);
    let (handshake, handshake_scheduled) = match script.below(3) {
        0 => (None, true),
        1 => (Some(script.below(paths)), true),
        // A separate handshake path is the last one. At least one path remains for the schedule.
        _ if paths > 1 => (Some(paths - 1), false),
        _ => (None, true),
    };
    let config = Config {
        ports: (0..paths).map(|_| 1 + script.below(3) as u16).collect(),
        handshake,
        handshake_scheduled,
        schedule: script.pick(&SCHEDULES).parse().expect("a schedule that exists"),
        every: script.pick(&EVERY).parse().expect("an interval above zero"),
        redraw: None,
        jitter: None,
        seed: u64::from(script.byte()),
        quic_tuples: 1 + script.below(6),
        in_order: None,
        idle: Duration::from_secs(script.pick(&[1, 30, 180])),
        sessions: 1 + script.below(4),
        protocol: script.pick(&GUESSES),
        far_end: false,
        keep_silent_paths: false,
    };
    // These depend on a byte that was read already, so that older scripts keep their meaning.
    let far_end = config.seed >= 240;
    let in_order = (config.seed % 2 == 1).then_some(Duration::from_millis(30));
    let keep_silent_paths = config.seed % 4 == 2;
    let config = Config { in_order, far_end, keep_silent_paths, ..config };
    match config.seed {
        208..240 => of_loads(config),
        _ => config,
    }
}

/// Returns `config` with all settings that make loads differ: redraws, growing runs, delays.
fn of_loads(config: Config) -> Config {
    Config {
        redraw: Some(Silence::USUAL),
        jitter: config.seed.is_multiple_of(2).then(|| "0-20ms".parse().expect("a range")),
        schedule: "evened".parse().expect("a schedule that exists"),
        every: "grow:1-50ms".parse().expect("an interval above zero"),
        ..config
    }
}
