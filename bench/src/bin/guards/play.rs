//! Replays one load with a new client and new relays.

use std::time::Duration;

use anabranch_multipath::{Time, seed};
use anabranch_onion::client::{CircuitKey, Hop, Output};
use anabranch_onion::conflux::{Design, LegScheduler};
use anabranch_onion::handshake::extension::HopRequest;
use anabranch_onion::wire::cell::CELL;
use anabranch_onion::wire::message::{Begin, Format};
use anabranch_onion::{LinkCore, LinkId, StreamKey};
use rand_core::Rng;

use crate::recorded::Load;
use crate::world::{RelayIdentity, Server, Setting, World};

/// Maximum duration of a load after its last recorded cell.
const LIMIT: Duration = Duration::from_secs(300);
/// Pause before a load and after its last byte, so that data in flight arrives.
const REST: Duration = Duration::from_secs(1);

/// Link from the client to a guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// Rate in bits per second.
    pub(crate) rate: u64,
    /// One-way delay.
    pub(crate) delay: Duration,
}

/// A cell on the link between the client and a leg's guard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SeenCell {
    /// Time since the start of the load in seconds, at which the cell arrived at the guard from
    /// the client, or left the guard for the client.
    pub(crate) time: f64,
    /// Leg of the guard.
    pub(crate) leg: usize,
    /// Size in bytes; positive if sent by the client.
    pub(crate) size: i32,
}

/// Settings that all loads share.
pub(crate) struct Stage {
    lines: Vec<Line>,
    design: Design,
    dealing: LegScheduler,
    used: usize,
    seed: u64,
    identities: Vec<RelayIdentity>,
}

impl Stage {
    /// Creates the settings of legs over `lines`. Each leg has its own guard and middle; if legs
    /// merge at a middle, they share one. All share one exit. `used` is the number of bytes that
    /// they carry on the downlink before the load.
    pub(crate) fn new(
        lines: Vec<Line>,
        (design, dealing): (Design, LegScheduler),
        used: usize,
        seed: u64,
    ) -> Stage {
        let identities =
            (0..2 * lines.len() + 1).map(|relay| RelayIdentity::new(seed, relay)).collect();
        Stage { lines, design, dealing, used, seed, identities }
    }

    /// Replays a load. Returns the cells that the guards see, in the order of time.
    ///
    /// # Errors
    /// Legs were not linked, or bytes were lost.
    pub(crate) fn play(&self, load: &Load) -> Result<Vec<SeenCell>, String> {
        let mut play = Play::new(self, self.seed_of(load))?;
        play.all(self, load).map_err(|why| format!("run {}, load {}: {why}", load.run, load.number))
    }

    /// Returns the seed of a load, which does not depend on the other loads.
    fn seed_of(&self, load: &Load) -> u64 {
        let entity = (u64::from(load.run.unsigned_abs()) << 40) ^ load.number.unsigned_abs();
        seed::stream(self.seed, entity, "recorded load").next_u64()
    }

    /// Returns the hops of a leg.
    fn hops(&self, world: &World, leg: usize) -> Vec<Hop> {
        let legs = self.lines.len();
        let (guard, own, exit) = ((leg, HopRequest::Plain), legs + leg, 2 * legs);
        let hops = match self.design.is_merged() {
            true => vec![guard, (legs, HopRequest::CongestionControl)],
            false => vec![guard, (own, HopRequest::Plain), (exit, HopRequest::Cgo)],
        };
        hops.into_iter().map(|(relay, wish)| world.hop(relay, wish)).collect()
    }

    fn world(&self, seed: u64) -> World {
        let lines = self.lines.iter().map(|line| (line.rate, line.delay));
        let setting = Setting {
            seed,
            pieces: false,
            relays: self.identities.len(),
            lines: lines.enumerate().collect(),
            design: self.design,
            dealing: Some(self.dealing.clone()),
            ..Setting::default()
        };
        World::of(setting, &self.identities)
    }
}

/// A linked set with one stream.
struct Play {
    world: World,
    stream: StreamKey,
    exit: usize,
    /// Bytes written on the uplink, and bytes to write on the uplink and on the downlink.
    written: usize,
    up: usize,
    down: usize,
}

impl Play {
    fn new(stage: &Stage, seed: u64) -> Result<Play, String> {
        let mut world = stage.world(seed);
        let legs = stage.lines.len();
        for leg in 0..legs {
            let hops = stage.hops(&world, leg);
            let circuit = CircuitKey(1 + leg as u64);
            if !world.build(circuit.0, hops) {
                return Err(format!("leg {leg} was not built"));
            }
            let with = (leg > 0).then_some(CircuitKey(1));
            let beyond = vec![world.hop(2 * legs, HopRequest::Cgo)];
            let linked = match with {
                None if stage.design.is_merged() => world.client.merge(world.now, circuit, beyond),
                _ => world.client.link(world.now, circuit, with),
            };
            linked.map_err(|error| format!("leg {leg}: {error:?}"))?;
        }
        world.run_for(2 * REST);
        let linked = world.outputs.iter().filter(|output| matches!(output, Output::Linked { .. }));
        if linked.count() < legs {
            return Err("a leg was not linked".to_owned());
        }
        let begin = Begin { host: "fed".to_owned(), port: 80, flags: 0 };
        let stream = world.client.begin(world.now, CircuitKey(1), &begin);
        let stream = stream.map_err(|error| error.to_string())?;
        let mut play = Play { world, stream, exit: 2 * legs, written: 0, up: 0, down: 0 };
        play.advance(play.world.now + 2 * REST);
        Ok(play)
    }

    fn all(&mut self, stage: &Stage, load: &Load) -> Result<Vec<SeenCell>, String> {
        self.feed(stage.used);
        self.finish()?;
        let begin = self.world.now + REST;
        let links = self.watch(stage.lines.len())?;
        for (time, up) in self.moments(begin, load) {
            self.advance(time);
            let bytes = Format::V1.data();
            if up {
                self.up += bytes
            } else {
                self.feed(bytes)
            }
            self.write();
        }
        self.finish()?;
        let mut seen: Vec<SeenCell> = Vec::new();
        for (leg, link) in links.into_iter().enumerate() {
            let pipe = self.world.pipes.get_mut(&link).ok_or("a guard's link is gone")?;
            seen.extend(cells(leg, begin, &pipe.seen.take().unwrap_or_default()));
        }
        seen.sort_by(|one, other| one.time.total_cmp(&other.time));
        Ok(seen)
    }

    /// Starts to record each leg's link to its guard.
    fn watch(&mut self, legs: usize) -> Result<Vec<LinkId>, String> {
        let link_to = |leg: usize| {
            let mut pipes = self.world.pipes.iter_mut();
            let (link, pipe) = pipes.find(|(_, pipe)| pipe.nodes == [0, leg + 1])?;
            pipe.seen = Some(Vec::new());
            Some(*link)
        };
        let links: Option<Vec<LinkId>> = (0..legs).map(link_to).collect();
        links.ok_or("a guard has no link".to_owned())
    }

    /// Returns the times at which the bytes of each cell are written, and whether it is an uplink
    /// cell. On the fastest leg, a cell then passes the guard at its recorded time.
    fn moments(&self, begin: Time, load: &Load) -> Vec<(Time, bool)> {
        let setting = &self.world.setting;
        let guards = setting.lines.values().map(|(_, delay)| *delay);
        let (above, below) = (2 * setting.delay, guards.min().unwrap_or_default());
        let moment = |&(time, up): &(f64, bool)| {
            (begin + Duration::from_secs_f64(time) - if up { below } else { above }, up)
        };
        let mut moments: Vec<(Time, bool)> = load.cells.iter().map(moment).collect();
        moments.sort_by_key(|(time, _)| *time);
        moments
    }

    fn advance(&mut self, until: Time) {
        if until > self.world.now {
            self.world.run_for(until.since(self.world.now));
            self.world.now = until;
        }
    }

    /// Lets the destination send `bytes` more bytes.
    fn feed(&mut self, bytes: usize) {
        self.down += bytes;
        let (now, node) = (self.world.now, &mut self.world.relays[self.exit]);
        if let Some((stream, server)) = node.servers.iter_mut().next() {
            server.feed(now, &mut node.core, *stream, bytes);
        }
    }

    /// Writes the bytes that the client has not written yet.
    fn write(&mut self) {
        let bytes: Vec<u8> = (self.written..self.up).map(Server::byte).collect();
        self.written += self.world.client.write(self.world.now, self.stream, &bytes);
    }

    /// Runs until all bytes have arrived.
    fn finish(&mut self) -> Result<(), String> {
        let limit = self.world.now + LIMIT;
        while !self.is_done() {
            if self.world.now > limit {
                return Err(format!("{} s were not enough", LIMIT.as_secs()));
            }
            self.write();
            self.advance(self.world.now + REST / 50);
        }
        let whole = |bytes: &Vec<u8>| (0..).zip(bytes).all(|(at, byte)| *byte == Server::byte(at));
        if !self.world.received.get(&self.stream).is_none_or(whole) {
            return Err("bytes came in another order".to_owned());
        }
        self.advance(self.world.now + REST);
        Ok(())
    }

    fn is_done(&self) -> bool {
        let received = self.world.received.get(&self.stream).map_or(0, Vec::len);
        let mut servers = self.world.relays[self.exit].servers.values();
        (received, servers.next().map_or(0, |server| server.received)) == (self.down, self.up)
    }
}

/// Returns the cells of a link since `begin`, each with the time of its last byte.
fn cells(leg: usize, begin: Time, seen: &[(Time, i64)]) -> Vec<SeenCell> {
    let mut bytes = [0; 2];
    let mut cells = Vec::new();
    for &(time, length) in seen {
        let way = usize::from(length > 0);
        let size = CELL as i32 * if length > 0 { 1 } else { -1 };
        let before = bytes[way] / CELL;
        bytes[way] += length.unsigned_abs() as usize;
        let cell = SeenCell { time: time.secs_f64() - begin.secs_f64(), leg, size };
        cells.extend(std::iter::repeat_n(cell, bytes[way] / CELL - before));
    }
    cells.retain(|cell| cell.time >= 0.0);
    cells
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use anabranch_multipath::schedule::Spec;

    use super::*;

    const LEG: Line = Line { rate: 20_000_000, delay: Duration::from_millis(20) };
    /// Number of downlink cells of [`load`].
    const DOWN: usize = 300;
    /// Number of uplink cells of [`load`].
    const UP: usize = 6;

    /// Returns a load of three bursts, half a second apart. In each, a request of two cells is
    /// followed by 100 downlink cells after 100 ms.
    fn load(number: i64) -> Load {
        let bursts = [0.0, 0.5, 1.0].into_iter().flat_map(|at| {
            let request = std::iter::repeat_n((at, true), UP / 3);
            request.chain(std::iter::repeat_n((at + 0.1, false), DOWN / 3))
        });
        let cells = bursts.collect();
        Load { number, label: "page".to_owned(), monitored: true, run: 1, cells }
    }

    fn stage(schedule: &str, every: &str, used: usize) -> Stage {
        static PAPERS: LazyLock<Vec<RelayIdentity>> =
            LazyLock::new(|| (0..5).map(|relay| RelayIdentity::new(1, relay)).collect());
        let schedule = Spec::over_windows(schedule).unwrap();
        let dealing = LegScheduler { schedule, every: every.parse().unwrap(), redraw: None };
        let identities = PAPERS.clone();
        Stage { lines: vec![LEG; 2], design: Design::Conflux, dealing, used, seed: 1, identities }
    }

    fn by_leg(seen: &[SeenCell]) -> [usize; 2] {
        [0, 1].map(|leg| seen.iter().filter(|cell| cell.leg == leg && cell.size < 0).count())
    }

    #[test]
    fn all_cells_are_seen_in_order_of_time_and_when_they_were_recorded() {
        let seen = stage("lowrtt", "1p", 0).play(&load(1)).unwrap();
        assert!(seen.is_sorted_by_key(|cell| cell.time));
        let up = seen.iter().filter(|cell| cell.size > 0).count();
        let down = seen.len() - up;
        // In addition to data, there is a SENDME for every 31 cells, and a SWITCH for each change
        // of leg.
        assert!((UP + DOWN / 31 - 1..UP + DOWN / 31 + 8).contains(&up), "{up}");
        assert!((DOWN..DOWN + 30).contains(&down), "{down}");
        let first = |up: bool| seen.iter().find(|cell| (cell.size > 0) == up).unwrap().time;
        assert!(first(true) < 0.005 && (0.1..0.105).contains(&first(false)), "{seen:?}");
    }

    #[test]
    fn lowrtt_gives_one_guard_the_first_window_and_round_robin_gives_each_its_part() {
        let seen = stage("lowrtt", "1p", 0).play(&load(1)).unwrap();
        let first: Vec<SeenCell> = seen.into_iter().filter(|cell| cell.time < 0.45).collect();
        assert_eq!(*by_leg(&first).iter().min().unwrap(), 0);
        let seen = stage("round-robin", "1p", 0).play(&load(1)).unwrap();
        let [one, other] = by_leg(&seen);
        assert!(one.abs_diff(other) * 20 < one + other, "{one} and {other}");
    }

    #[test]
    fn legs_in_use_carry_before_the_load_what_nobody_counts() {
        let seen = stage("round-robin", "16p", 100 << 10).play(&load(1)).unwrap();
        let [one, other] = by_leg(&seen);
        assert!((DOWN..DOWN + DOWN / 16 + 30).contains(&(one + other)), "{one} and {other}");
    }

    #[test]
    fn legs_that_join_at_a_middle_show_each_guard_its_part_of_all_cells() {
        let merged = Stage { design: Design::Merged, ..stage("round-robin", "16p", 100 << 10) };
        let [one, other] = by_leg(&merged.play(&load(1)).unwrap());
        assert!((DOWN..DOWN + DOWN / 16 + 30).contains(&(one + other)), "{one} and {other}");
        assert!(one.abs_diff(other) <= 40, "{one} and {other}");
    }

    #[test]
    fn a_seed_gives_the_same_cells_whatever_was_played_before() {
        let again = stage("weighted:4", "10p", 0);
        let other = again.play(&load(2)).unwrap();
        let one = again.play(&load(1)).unwrap();
        assert_eq!(one, stage("weighted:4", "10p", 0).play(&load(1)).unwrap());
        assert_ne!(one, other);
    }
}
