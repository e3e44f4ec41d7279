//! Counts a client's HTTP requests. A browser that loads pages sends only GETs, so a client should
//! send few POSTs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use anabranch_testkit::stego_world as world;

use std::time::Duration;

use anabranch_multipath::Time;

use world::{Fate, Requests, Task, World, all, dsl};

/// Number of bytes with which a program requests an object: a cell of Tor.
const CELL: usize = 514;
const PAGES: usize = 3;
const OBJECTS: usize = 32;
/// Time between two requests of a page. The next constant is the pause after a page.
const BETWEEN: Duration = Duration::from_micros(50);
const THINKS: Duration = Duration::from_secs(2);

/// Returns the length of an object in bytes: 600 to 20,000, and 10,000 on average.
fn length(object: usize) -> usize {
    600 + object * 7_919 % 19_400
}

/// A program at the client that loads pages, and a program at the server that has the pages.
struct Loads {
    world: World,
    task: Task,
    /// Number of requested objects that the server's program has answered.
    answered: usize,
}

impl Loads {
    fn new(profile: &str) -> Loads {
        let mut world = World::new(1, profile, dsl(), all(Fate::Fine));
        let mut task = Task::new(1, 0, 0);
        task.hold_open();
        let until = Time::from_secs(2);
        while world.now < until {
            world.step(&mut task, until);
        }
        Loads { world, task, answered: 0 }
    }

    fn until(&mut self, until: Time) {
        while self.world.now < until {
            self.step(until);
        }
    }

    fn step(&mut self, until: Time) {
        self.world.step(&mut self.task, until);
        while self.task.received[0].len() >= (self.answered + 1) * CELL {
            self.task.add_down(length(self.answered));
            self.answered += 1;
        }
    }

    /// Requests `objects` objects one directly after the other, and waits for all answers.
    fn fetch(&mut self, objects: usize) {
        for _ in 0..objects {
            self.task.add_up(CELL);
            self.until(self.world.now + BETWEEN);
        }
        let limit = self.world.now + Duration::from_secs(60);
        while self.answered * CELL < self.task.up.len() || !self.task.is_whole() {
            assert!(self.world.now < limit, "{} of {} came", self.answered, self.task.up.len());
            // A program notices received bytes within 1 ms.
            self.step(self.world.now + Duration::from_millis(1));
        }
    }
}

/// Loads three pages. Returns the requests, and the duration without the pauses between pages.
fn loaded(profile: &str) -> (Requests, Duration) {
    let mut loads = Loads::new(profile);
    let (before, mut elapsed) = (loads.world.asked, Duration::ZERO);
    for _ in 0..PAGES {
        let began = loads.world.now;
        loads.fetch(1);
        loads.fetch(OBJECTS - 1);
        elapsed += loads.world.now.since(began);
        loads.until(loads.world.now + THINKS);
    }
    (loads.world.asked.since(before), elapsed)
}

/// Results of each profile for the same pages before requests were coalesced: number of POSTs,
/// number of GETs, kB sent by the client, and duration in ms.
const BEFORE: [(&str, usize, usize, usize, u64); 5] = [
    ("http-opaque", 19, 50, 79, 2_606),
    ("http-text", 19, 60, 99, 3_208),
    ("http-image", 11, 538, 271, 10_085),
    ("http-site", 11, 72, 82, 3_417),
    ("http-opaque-short", 73, 102, 125, 2_302),
];

#[test]
fn pages_are_asked_for_in_few_requests_and_as_quickly() {
    // All objects of a page except the first are requested in one POST. A connection of 12,000
    // bytes carries two POSTs.
    for (profile, posts, gets, kilobytes, millis) in BEFORE {
        let (asked, elapsed) = loaded(profile);
        println!("{profile}: {asked:?} in {elapsed:?}");
        let short = profile.ends_with("short");
        assert!(asked.posts <= if short { 7 } else { PAGES } && asked.posts < posts, "{asked:?}");
        assert!(asked.gets < gets && asked.bytes < kilobytes * 1_000, "{profile}: {asked:?}");
        let most = Duration::from_millis(if short { millis * 6 / 5 } else { millis });
        assert!(elapsed <= most, "{profile}: {elapsed:?}");
    }
}

#[test]
fn a_cell_goes_by_a_get_and_two_soon_after_each_other_by_one_post() {
    for profile in ["http-opaque", "http-text", "http-image"] {
        let mut loads = Loads::new(profile);
        let before = loads.world.asked;
        loads.fetch(1);
        let asked = loads.world.asked.since(before);
        assert_eq!((asked.gets > 0, asked.posts), (true, 0), "{profile}: {asked:?}");
        let before = loads.world.asked;
        loads.fetch(2);
        assert_eq!(loads.world.asked.since(before).posts, 1, "{profile}");
    }
}

#[test]
fn nothing_is_asked_for_that_is_not_there_while_a_download_ends() {
    // An answer has the 32 kB that a socket accepts at once. With base64url, it contains 24 kB.
    for (profile, answer) in [("http-opaque", 32_000), ("http-text", 24_000)] {
        let mut world = World::new(1, profile, dsl(), all(Fate::Fine));
        let mut task = Task::new(1, 100, 3_000_000);
        world.carry(&mut task, Duration::from_secs(60));
        let most = 3_000_000usize.div_ceil(answer) + 6;
        let asked = world.asked;
        assert!(task.is_whole() && asked.posts == 0 && asked.gets <= most, "{profile}: {asked:?}");
        // For comparison: in a plain download, TCP's acknowledgements are 4.1 % of the bytes.
        assert!(asked.bytes * 1_000 / 3_000_000 < 18, "{profile}: {asked:?}");
    }
}
