//! Tests of a schedule that uses congestion windows. Datagrams without room wait, keep their order,
//! and sessions are served in turn.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_comps::{Batch, Config, Core, Guess, Input, Output, Payload, Protocol, SessionId};
use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Core as _, LegView, PathView, Time};

fn client(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9_000 + number))
}

/// A core with two paths to a far end. Neither path accepts datagrams yet.
struct World {
    core: Core,
    now: Time,
}

impl World {
    fn new() -> World {
        World::scheduled("lowrtt")
    }

    fn scheduled(schedule: &str) -> World {
        let core = Core::new(Config {
            schedule: Spec::over_windows(schedule).unwrap(),
            every: "1p".parse().unwrap(),
            protocol: Guess::Is(Protocol::Other),
            far_end: true,
            ..Config::of(2)
        });
        World { core: core.unwrap(), now: Time::from_secs(1) }
    }

    /// Sends datagrams of one byte each. Returns the session, the path and the content of each
    /// datagram that left.
    fn send(&mut self, from: u16, bytes: &[u8]) -> Vec<(u64, u16, u8)> {
        let batch = Batch { bytes, stride: 1, ecn: 0 };
        let input = Input::Client { client: client(from), server: None, local: None, batch };
        self.core.handle(self.now, input);
        self.poll(bytes)
    }

    /// Reports that each path has room for the given number of datagrams. The first path has the
    /// shorter round-trip time. Returns the datagrams that left.
    fn room(&mut self, room: [u64; 2]) -> Vec<(u64, u16, u8)> {
        let leg = |ms, room| PathView::leg(Some(Duration::from_millis(ms)), room, LegView::NOTHING);
        self.core.handle(self.now, Input::Windows(&[leg(20, room[0]), leg(40, room[1])]));
        self.poll(&[])
    }

    fn poll(&mut self, live: &[u8]) -> Vec<(u64, u16, u8)> {
        let mut sent = Vec::new();
        while let Some(output) = self.core.poll(self.now) {
            match output {
                Output::Resolve { session, .. } => {
                    let input = Input::Resolved { session, found: true, barred: &[] };
                    self.core.handle(self.now, input);
                }
                Output::Send { session: SessionId(session), path, payload, .. } => {
                    let bytes = match payload {
                        Payload::Live(part) => live[part].to_vec(),
                        Payload::Kept { bytes, .. } => bytes.into_vec(),
                    };
                    sent.extend(bytes.into_iter().map(|byte| (session, path.0, byte)));
                }
                _ => {}
            }
        }
        sent
    }
}

#[test]
fn what_finds_no_room_waits_and_nothing_overtakes_it() {
    let mut world = World::new();
    assert_eq!(world.send(0, &[0, 1, 2, 3, 4]), [], "nothing is known of the paths");
    assert_eq!(world.room([2, 0]), [(0, 0, 0), (0, 0, 1)]);
    assert_eq!(world.send(0, &[5, 6]), [], "behind what waits");
    assert_eq!(world.core.snapshot().waiting, 5);
    let all = [(0, 0, 2), (0, 1, 3), (0, 1, 4), (0, 1, 5), (0, 1, 6)];
    assert_eq!(world.room([1, 9]), all);
    assert_eq!(world.send(0, &[7, 8, 9, 10, 11, 12]).len(), 5, "the rest of that room");
    assert_eq!(world.room([0, 1]), [(0, 1, 12)]);
    assert_eq!(world.core.snapshot().no_path, 0);
}

#[test]
fn sessions_take_turns_in_what_room_there_is() {
    let mut world = World::new();
    world.send(0, &[0; 100]);
    world.send(1, &[1; 20]);
    let sent = world.room([40, 0]);
    let of = |session| sent.iter().filter(|(one, ..)| *one == session).count();
    assert_eq!((of(0), of(1)), (24, 16));
    let sent = world.room([40, 0]);
    assert_eq!(sent.iter().filter(|(session, ..)| *session == 1).count(), 4);
}

#[test]
fn what_waited_too_long_is_dropped_and_counted() {
    let mut world = World::new();
    world.send(0, &[0; 50]);
    world.now += Duration::from_millis(999);
    world.send(0, &[1; 3]);
    world.now += Duration::from_millis(1);
    assert_eq!(world.room([9, 9]).len(), 3);
    let snapshot = world.core.snapshot();
    assert_eq!((snapshot.no_path, snapshot.waiting), (50, 0));
}

#[test]
fn a_burst_is_shared_by_the_rates_of_the_paths_between_two_reports_of_their_windows() {
    let mut world = World::scheduled("eta");
    let leg = |capacity| {
        let least_rtt = Duration::from_millis(40);
        let known =
            LegView { size: 100, bdp: 90, capacity, max_rate: capacity, ..LegView::NOTHING };
        PathView::leg(Some(least_rtt), 100, LegView { least_rtt, ..known })
    };
    world.core.handle(world.now, Input::Windows(&[leg(3_000), leg(1_000)]));
    world.send(0, &[0]);
    let burst = world.send(0, &[0; 80]);
    let fast = burst.iter().filter(|(_, path, _)| *path == 0).count();
    assert!((58..=62).contains(&fast), "{fast} of {} by the path of 3/4 of the rate", burst.len());
}
