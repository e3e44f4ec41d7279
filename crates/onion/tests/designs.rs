//! Tests that every design delivers files of all sizes without errors. They compare each byte.
//! Links with ordinary cells lose records. A lost record is sent again, and arrives after later
//! records. Links with lossy cells (cells in datagrams) lose and delay datagrams.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_testkit::onion_world as world;

use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::LossyCongestion;
use anabranch_onion::client::{CircuitKey, Output};
use anabranch_onion::conflux::LegScheduler;
use anabranch_onion::handshake::extension::HopRequest;
use anabranch_onion::wire::message::{Begin, EndReason};
use anabranch_onion::{StreamKey, StreamOutput};
use world::{Server, Setting, World};

const MS: Duration = Duration::from_millis(1);
/// The longest download, in virtual time. With CUBIC, 200 MiB take hours if packets are lost.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// The place where a design joins its circuits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joins {
    /// The design has only one circuit.
    Never,
    AtExit,
    AtMiddle,
    /// The design joins lossy circuits (whose cells travel in datagrams) at the exit.
    Lossy,
}

/// A configuration to test: a design, and the circuits that it uses.
#[derive(Clone, Copy)]
struct Arm {
    name: &'static str,
    wish: HopRequest,
    joins: Joins,
    legs: usize,
    dealing: Option<&'static str>,
    control: LossyCongestion,
}

const TOR: Arm = Arm {
    name: "tor",
    wish: HopRequest::CongestionControl,
    joins: Joins::Never,
    legs: 1,
    dealing: None,
    control: LossyCongestion::BBR,
};
const CONFLUX: Arm = Arm { name: "conflux", joins: Joins::AtExit, legs: 2, ..TOR };
const FIXED: Arm = Arm { wish: HopRequest::Plain, ..CONFLUX };
const UDP_OR: Arm = Arm { name: "udp-or", wish: HopRequest::Lossy, ..TOR };
const MUDP_OR: Arm =
    Arm { name: "mudp-or", joins: Joins::Lossy, legs: 3, dealing: Some("eta 1p"), ..UDP_OR };

const ARMS: [Arm; 10] = [
    TOR,
    CONFLUX,
    Arm { name: "conflux-2013", ..FIXED },
    Arm { name: "mtor", ..FIXED },
    Arm { name: "merged", joins: Joins::AtMiddle, ..CONFLUX },
    Arm { name: "anabranch", legs: 3, ..CONFLUX },
    UDP_OR,
    Arm { control: LossyCongestion::CUBIC, ..UDP_OR },
    MUDP_OR,
    // This is the published form, with one congestion window for all circuits.
    Arm { dealing: Some("round-robin 1p"), control: LossyCongestion::CUBIC, ..MUDP_OR },
];

/// Impairment of each link: the number of records or datagrams lost per thousand, and the jitter
/// of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Faults {
    lost: u32,
    jitter: Duration,
}

impl Arm {
    fn is_lossy(&self) -> bool {
        self.wish == HopRequest::Lossy
    }

    fn setting(&self, Faults { lost, jitter }: Faults) -> Setting {
        let (relays, design) = (2 * self.legs + 1, self.name.parse().unwrap_or_default());
        let dealing = self.dealing.and_then(|text| LegScheduler::read(text, 8));
        let common = Setting { relays, design, dealing, pieces: false, ..Setting::default() };
        match self.is_lossy() {
            true => Setting {
                quic: true,
                lossy: true,
                lossy_congestion: self.control,
                dropped_per_mille: lost,
                jitter,
                ..common
            },
            false => Setting { unordered: true, late_per_mille: lost, ..common },
        }
    }

    /// Builds the circuits over links with `faults`, and joins them. Returns the first circuit.
    fn build(&self, faults: Faults) -> (World, CircuitKey) {
        let mut world = World::new(self.setting(faults));
        let exit = world.setting.relays - 1;
        // Each relay of a lossy circuit must get the request for lossy cells.
        let inner = if self.is_lossy() { HopRequest::Lossy } else { HopRequest::Plain };
        let keys: Vec<CircuitKey> = (1..=self.legs as u64).map(CircuitKey).collect();
        for (leg, key) in keys.iter().enumerate() {
            let (guard, middle) = (world.hop(2 * leg, inner), world.hop(2 * leg + 1, inner));
            let hops = match self.joins {
                Joins::AtMiddle => vec![guard, world.hop(1, self.wish)],
                _ => vec![guard, middle, world.hop(exit, self.wish)],
            };
            assert!(world.build(key.0, hops), "{}: {:?}", self.name, world.outputs);
        }
        for (leg, key) in keys.iter().enumerate().filter(|_| self.joins != Joins::Never) {
            let with = (leg > 0).then_some(keys[0]);
            let joined = match (self.joins, leg) {
                (Joins::AtMiddle, 0) => {
                    let beyond = vec![world.hop(exit, self.wish)];
                    world.client.merge(world.now, *key, beyond)
                }
                _ => world.client.link(world.now, *key, with),
            };
            assert_eq!(joined, Ok(()), "{}: leg {leg}", self.name);
            world.run_for(Duration::from_secs(2));
        }
        let linked = |output: &&Output| matches!(output, Output::Linked { .. });
        let wanted = if self.joins == Joins::Never { 0 } else { self.legs };
        assert_eq!(world.outputs.iter().filter(linked).count(), wanted, "{}", self.name);
        (world, keys[0])
    }
}

fn ended(world: &World, stream: StreamKey) -> Option<EndReason> {
    world.outputs.iter().find_map(|output| match output {
        Output::Stream(StreamOutput::Ended { stream: ended, reason, .. }) if *ended == stream => {
            Some(*reason)
        }
        _ => None,
    })
}

/// Downloads a file of `bytes` bytes, and compares each byte. Returns the time of the download.
fn download(world: &mut World, circuit: CircuitKey, bytes: usize) -> Duration {
    let begin = Begin { host: format!("source-{bytes}"), port: 80, flags: 0 };
    let began: Time = world.now;
    let stream = world.client.begin(world.now, circuit, &begin).unwrap();
    while ended(world, stream).is_none() && world.now.since(began) < LONGEST {
        world.run_for(5 * MS);
    }
    let received = world.received.remove(&stream).unwrap_or_default();
    assert_eq!((ended(world, stream), received.len()), (Some(EndReason::DONE), bytes));
    assert!(received.iter().enumerate().all(|(at, byte)| *byte == Server::byte(at)));
    world.now.since(began)
}

/// Downloads files of `sizes` in each of the designs `arms`, over links with each of `faults`.
fn matrix(arms: impl IntoIterator<Item = Arm>, sizes: &[usize], faults: &[Faults]) {
    for arm in arms {
        // Jitter affects only lossy cells, so other designs need no run with jitter.
        let seen = |faults: &&Faults| arm.is_lossy() || faults.jitter.is_zero();
        for &faults in faults.iter().filter(seen) {
            let (mut world, circuit) = arm.build(faults);
            for &bytes in sizes {
                let elapsed = download(&mut world, circuit, bytes);
                println!("{}, {:?}, {faults:?}, {bytes} bytes: {elapsed:?}", arm.name, arm.control);
            }
            let violations = world.relays.iter().map(|relay| relay.violations.len());
            assert_eq!(violations.sum::<usize>(), 0, "{}", arm.name);
        }
    }
}

/// Returns all combinations of the losses `lost` and the jitters `jitter`.
fn faults(lost: &[u32], jitter: &[Duration]) -> Vec<Faults> {
    let mixed = lost.iter().flat_map(|&lost| jitter.iter().map(move |&jitter| (lost, jitter)));
    mixed.map(|(lost, jitter)| Faults { lost, jitter }).collect()
}

#[test]
fn small_files_arrive_whole_in_each_design_over_lines_that_lose_and_reorder() {
    matrix(ARMS, &[1, 498, 100_000], &faults(&[0, 10, 50], &[Duration::ZERO, 30 * MS]));
}

#[test]
fn a_mebibyte_arrives_whole_in_each_design_over_lines_that_lose_and_reorder() {
    matrix(ARMS, &[1 << 20], &faults(&[0, 50], &[Duration::ZERO, 30 * MS]));
}

/// Downloads 200 MiB in each design whose congestion control is (or is not) CUBIC over lossy cells,
/// with `lost` packets lost per thousand. Start these tests with
/// `cargo test --release -p anabranch-onion --test designs -- --ignored --nocapture`.
fn large(cubic: bool, lost: u32) {
    let slow = |arm: &Arm| arm.is_lossy() && arm.control == LossyCongestion::CUBIC;
    let arms = ARMS.into_iter().filter(|arm| slow(arm) == cubic);
    matrix(arms, &[200 << 20], &faults(&[lost], &[Duration::ZERO, 30 * MS]));
}

#[test]
#[ignore = "takes long: 2 GB through three relays"]
fn two_hundred_mebibytes_arrive_whole_in_each_design() {
    large(false, 0);
    large(true, 0);
}

#[test]
#[ignore = "takes long: 2 GB through three relays"]
fn two_hundred_mebibytes_arrive_whole_over_lines_that_lose_one_percent() {
    large(false, 10);
}

#[test]
#[ignore = "takes long: 2 GB through three relays"]
fn two_hundred_mebibytes_arrive_whole_over_lines_that_lose_five_percent() {
    large(false, 50);
}

#[test]
#[ignore = "takes long: hours of virtual time"]
fn two_hundred_mebibytes_arrive_whole_with_cubic_over_lines_that_lose_one_percent() {
    large(true, 10);
}

#[test]
#[ignore = "takes long: hours of virtual time"]
fn two_hundred_mebibytes_arrive_whole_with_cubic_over_lines_that_lose_five_percent() {
    large(true, 50);
}
