//! Sets of circuits whose legs (the circuits of the set) may die (`docs/spec/resilient-legs.md`).
//! The legs join at the exit or at a middle (`docs/spec/middle-merge.md`). Whatever breaks, no
//! byte and no stream is lost.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_testkit::onion_world as world;

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_multipath::seed::{self, Stream};
use anabranch_multipath::{Core as _, Time};
use anabranch_onion::client::{Cause, CircuitKey, Input, NoSet, Output};
use anabranch_onion::conflux::{ConfluxFault, Design};
use anabranch_onion::handshake::extension::HopRequest;
use anabranch_onion::wire::cell::{BODY, Command};
use anabranch_onion::wire::conflux::{SetNonce, put_switch};
use anabranch_onion::wire::message::{Begin, DestroyReason, EndReason, Message, RelayCommand};
use anabranch_onion::wire::resilient::{LegSwitch, Received, ResilientLink, put_gone};
use anabranch_onion::{
    CircuitFault, Event, LinkCore, LinkId, SetNumbers, StreamKey, StreamOutput, Violation,
};
use rand::RngExt;
use world::{RelayNode, Server, Setting, World};

/// Number of guards, and of middles. The exit is the relay after them. Legs that join at a middle
/// join at the first one.
const GUARDS: usize = 4;
const JOIN: usize = GUARDS;
const EXIT: usize = 2 * GUARDS;
/// Designs with legs that may die.
const DESIGNS: [Design; 2] = [Design::Resilient, Design::Merged];
/// Time between two checks of a run.
const STEP: Duration = Duration::from_millis(1);
/// Time after which the kernel closes a link that delivers nothing.
const KERNEL: Duration = Duration::from_secs(4);
/// Time after which the client gives up a circuit that is not built.
const BUILD: Duration = Duration::from_secs(1);
/// Mean time between deaths of links in a storm. Some links die silently and swallow data for four
/// seconds. With this mean, about half of the links are out of use.
const STORM: Duration = Duration::from_millis(150);
/// Mean time between deaths of links in the other runs, where few links are out of use at once.
const HALF_SECOND: Duration = Duration::from_millis(500);
/// Round-trip time of a leg to the exit on quiet lines. The delay is 20 ms to the guard and 5 ms
/// on each further link.
const RTT: Duration = Duration::from_millis(60);

/// A link of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LegLink {
    Guard,
    Middle,
    Exit,
}

const PLACES: [LegLink; 3] = [LegLink::Guard, LegLink::Middle, LegLink::Exit];

/// Returns the links that a leg of this design has.
fn places(design: Design) -> &'static [LegLink] {
    if design.is_merged() { &PLACES[..2] } else { &PLACES }
}

/// The way in which a link dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// Both ends of the link notice, and send DESTROY.
    Reset,
    /// Neither end notices.
    Silent,
}

/// A leg of the client, with its state.
struct Leg {
    guard: usize,
    begun: Time,
    built: bool,
    /// Whether the client has reported the leg as silent. Then another leg was begun for it.
    silent: bool,
}

/// A client with one set. It replaces legs that die.
struct Tunnel {
    world: World,
    wanted: usize,
    legs: BTreeMap<CircuitKey, Leg>,
    first: CircuitKey,
    last: u64,
    /// Index of the next leg's guard and middle.
    turn: usize,
    /// Number of outputs that were already processed.
    seen: usize,
    /// Links that swallow data, with the time at which the kernel closes each.
    holes: Vec<(Time, LinkId)>,
    rebuilds: bool,
    was_linked: bool,
    /// Time and cause of each circuit's end.
    closed: Vec<(Time, CircuitKey, Cause)>,
}

fn setting(design: Design) -> Setting {
    let line = (20_000_000, Duration::from_millis(20));
    let lines = (0..GUARDS).map(|guard| (guard, line)).collect();
    Setting { relays: EXIT + 1, lines, design, ..Setting::default() }
}

impl Tunnel {
    fn new(setting: Setting, wanted: usize) -> Tunnel {
        let mut tunnel = Tunnel {
            world: World::new(setting),
            wanted,
            legs: BTreeMap::new(),
            first: CircuitKey(1),
            last: 0,
            turn: 0,
            seen: 0,
            holes: Vec::new(),
            rebuilds: true,
            was_linked: false,
            closed: Vec::new(),
        };
        tunnel.run(Duration::from_secs(2));
        assert_eq!(tunnel.linked(), wanted);
        tunnel
    }

    /// Returns the number of legs that both ends have linked, as the client reports.
    fn linked(&self) -> usize {
        let sets = self.world.client.fullest_sets(9);
        sets.iter().flat_map(|set| &set.legs).filter(|leg| leg.is_linked).count()
    }

    /// Returns the shards (cores) of the exit.
    fn exit(&self) -> impl Iterator<Item = &RelayNode> {
        self.world.relays[EXIT * self.world.setting.shards..].iter()
    }

    fn is_merged(&self) -> bool {
        self.world.setting.design.is_merged()
    }

    /// Returns the relay where the legs end.
    fn joins_at(&self) -> usize {
        if self.is_merged() { JOIN } else { EXIT }
    }

    /// Returns the shards (cores) of the relay where the legs end.
    fn join(&self) -> impl Iterator<Item = &RelayNode> {
        let shards = self.world.setting.shards;
        self.world.relays[self.joins_at() * shards..].iter().take(shards)
    }

    /// Returns the longest round-trip time of the legs, as measured by the end that sends.
    fn round_trip(&self, up: bool) -> Duration {
        let at_relay = self.join().flat_map(|shard| shard.core.fullest_sets(1));
        let sets: Vec<SetNumbers> =
            if up { self.world.client.fullest_sets(1) } else { at_relay.collect() };
        sets.iter().flat_map(|set| &set.legs).filter_map(|leg| leg.rtt).max().unwrap()
    }

    /// Returns the number of legs at the relay where they end.
    fn legs_of_relay(&self) -> usize {
        self.join().map(|shard| shard.core.stats().legs).sum()
    }

    fn begin_leg(&mut self) {
        let guard = self.turn % GUARDS;
        self.turn += 1;
        self.last += 1;
        let key = CircuitKey(self.last);
        let hop = |at, wish| self.world.hop(at, wish);
        let middle = (!self.is_merged()).then(|| hop(GUARDS + guard, HopRequest::Plain));
        let last = hop(self.joins_at(), HopRequest::CongestionControl);
        let hops = [Some(hop(guard, HopRequest::Plain)), middle, Some(last)];
        let hops = hops.into_iter().flatten().collect();
        let begun = self.world.now;
        self.legs.insert(key, Leg { guard, begun, built: false, silent: false });
        self.world.client.handle(begun, Input::Build { circuit: key, hops });
    }

    /// Does the work of a client's owner: builds missing legs, and links them.
    fn look(&mut self) {
        let new: Vec<Output> = self.world.outputs[self.seen..].to_vec();
        self.seen = self.world.outputs.len();
        for output in new {
            match output {
                Output::Built { circuit, .. } => {
                    let linked = self.link(circuit);
                    match self.legs.get_mut(&circuit) {
                        Some(leg) if linked.is_ok() => leg.built = true,
                        _ => self.destroy(circuit),
                    }
                }
                Output::Linked { .. } => self.was_linked = true,
                Output::Silent { circuit } => {
                    self.legs.get_mut(&circuit).into_iter().for_each(|leg| leg.silent = true);
                }
                Output::CircuitClosed { circuit, cause, .. } => {
                    self.legs.remove(&circuit);
                    self.closed.push((self.world.now, circuit, cause));
                }
                _ => {}
            }
        }
        let now = self.world.now;
        let late = |leg: &Leg| !leg.built && now.since(leg.begun) > BUILD;
        let late: Vec<CircuitKey> =
            self.legs.iter().filter(|(_, leg)| late(leg)).map(|(key, _)| *key).collect();
        late.into_iter().for_each(|key| self.destroy(key));
        let counts = |leg: &&Leg| !leg.silent;
        let may_begin = self.rebuilds && (self.last == 0 || self.has_set());
        // The first leg creates the set, and the others wait for it.
        let wanted = if self.last == 0 || !self.was_linked { 1 } else { self.wanted };
        let lacking = wanted.saturating_sub(self.legs.values().filter(counts).count());
        (0..lacking).filter(|_| may_begin).for_each(|_| self.begin_leg());
    }

    fn link(&mut self, circuit: CircuitKey) -> Result<(), NoSet> {
        let with = (circuit != self.first).then_some(self.first);
        let beyond = self.world.hop(EXIT, HopRequest::CongestionControl);
        let (now, client) = (self.world.now, &mut self.world.client);
        match with {
            None if self.world.setting.design.is_merged() => {
                client.merge(now, circuit, vec![beyond])
            }
            _ => client.link(now, circuit, with),
        }
    }

    fn destroy(&mut self, circuit: CircuitKey) {
        self.world.client.handle(self.world.now, Input::Destroy { circuit });
    }

    fn has_set(&self) -> bool {
        !self.was_linked || !self.world.client.fullest_sets(1).is_empty()
    }

    /// Runs for `span`, one step at a time.
    fn run(&mut self, span: Duration) {
        let until = self.world.now + span;
        while self.world.now < until {
            let before = self.world.now;
            self.look();
            let over: Vec<LinkId> =
                self.holes.extract_if(.., |(at, _)| *at <= before).map(|(_, link)| link).collect();
            over.into_iter().for_each(|link| self.world.cut(link));
            self.world.run_for(STEP);
            // The time advances even if no event is left.
            self.world.now = self.world.now.max(before + STEP);
        }
        self.look();
    }

    /// Returns the link of the leg `circuit` at this place.
    fn link_of(&self, circuit: CircuitKey, place: LegLink) -> Option<LinkId> {
        let guard = self.legs.get(&circuit)?.guard;
        let middle = if self.is_merged() { JOIN } else { GUARDS + guard };
        let relays = [None, Some(guard), Some(middle), Some(EXIT)];
        let at = PLACES.iter().position(|other| *other == place)?;
        self.world.link_between([relays[at], relays[at + 1]])
    }

    fn kill(&mut self, circuit: CircuitKey, place: LegLink, death: Death) {
        let Some(link) = self.link_of(circuit, place) else { return };
        match death {
            Death::Reset => self.world.cut(link),
            Death::Silent => {
                self.world.pipes.get_mut(&link).unwrap().swallow();
                self.holes.push((self.world.now + KERNEL, link));
            }
        }
    }

    fn begin(&mut self, host: &str) -> StreamKey {
        let begin = Begin { host: host.into(), port: 80, flags: 0 };
        self.world.client.begin(self.world.now, self.first, &begin).unwrap()
    }

    /// Checks the bytes that arrived for a stream, and returns their number.
    fn received(&self, stream: StreamKey) -> usize {
        let received = self.world.received.get(&stream).map_or(&[][..], Vec::as_slice);
        assert!(received.iter().enumerate().all(|(at, found)| *found == Server::byte(at)));
        received.len()
    }

    /// Returns the reason for a stream's end, or `None` if it is open.
    fn end_of(&self, of: StreamKey) -> Option<EndReason> {
        self.world.outputs.iter().find_map(|output| match output {
            Output::Stream(StreamOutput::Ended { stream, reason, .. }) if *stream == of => {
                Some(*reason)
            }
            _ => None,
        })
    }

    /// Returns the number of bytes that all servers received.
    fn taken(&self) -> usize {
        let servers = self.exit().flat_map(|shard| shard.servers.values());
        servers.map(|server| server.received).sum()
    }

    fn nobody_complained(&self) {
        for relay in &self.world.relays {
            assert!(relay.violations.is_empty(), "{:?}", relay.violations);
        }
        let violation =
            |(_, _, cause): &&(Time, CircuitKey, Cause)| matches!(cause, Cause::Violation(_));
        assert_eq!(self.closed.iter().find(violation), None);
    }
}

/// A transfer in one direction.
enum Transfer {
    Down(StreamKey, usize),
    Up(StreamKey, usize),
}

impl Transfer {
    fn down(tunnel: &mut Tunnel, bytes: usize) -> Transfer {
        Transfer::Down(tunnel.begin(&format!("source-{bytes}")), bytes)
    }

    fn up(tunnel: &mut Tunnel) -> Transfer {
        Transfer::Up(tunnel.begin("sink"), 0)
    }

    /// Writes as much of an upload as possible. Returns the number of bytes that have arrived.
    fn progress(&mut self, tunnel: &mut Tunnel) -> usize {
        match self {
            Transfer::Down(stream, _) => tunnel.world.received.get(stream).map_or(0, Vec::len),
            Transfer::Up(stream, written) => {
                let piece: Vec<u8> = (*written..*written + 20_000).map(Server::byte).collect();
                *written += tunnel.world.client.write(tunnel.world.now, *stream, &piece);
                tunnel.taken()
            }
        }
    }
}

/// Runs until the transfer has carried `more` further bytes. Returns the longest time without
/// progress.
fn longest_stall(tunnel: &mut Tunnel, transfer: &mut Transfer, more: usize) -> Duration {
    let begun = transfer.progress(tunnel);
    let (mut last, mut longest) = ((tunnel.world.now, begun), Duration::ZERO);
    while last.1 < begun + more {
        tunnel.run(STEP);
        let progress = transfer.progress(tunnel);
        if progress > last.1 {
            longest = longest.max(tunnel.world.now.since(last.0));
            last = (tunnel.world.now, progress);
        }
        assert!(tunnel.world.now.since(last.0) < Duration::from_secs(12), "it stalls");
    }
    longest
}

/// Effect of the death of a leg during a transfer.
struct Stall {
    /// Longest time without a byte.
    longest: Duration,
    /// Time from the death of the leg until it was given up.
    closed: Duration,
    /// Longest round-trip time of the legs at the death, as measured by the end that sends. It is
    /// longer on full lines than on quiet lines.
    rtt: Duration,
}

/// Transfers data over two legs. The link `case.place` of the leg `case.died` dies after 2 MB. A
/// download has 6 MB.
fn dies_under_way(case: Case, death: Death) -> Stall {
    let Case { design, up, place, died } = case;
    let mut tunnel = Tunnel::new(setting(design), 2);
    let mut transfer =
        if up { Transfer::up(&mut tunnel) } else { Transfer::down(&mut tunnel, 6_000_000) };
    let before = longest_stall(&mut tunnel, &mut transfer, 2_000_000);
    assert!(before < Duration::from_millis(200), "{before:?} before anything died");
    let rtt = tunnel.round_trip(up);
    let at = tunnel.world.now;
    tunnel.kill(died, place, death);
    let longest = longest_stall(&mut tunnel, &mut transfer, 3_000_000);
    let closed = tunnel.closed.iter().find(|(_, circuit, _)| *circuit == died).unwrap().0;
    tunnel.run(Duration::from_secs(2));
    assert_eq!((tunnel.linked(), tunnel.legs_of_relay()), (2, 2), "another took its place");
    if let Transfer::Down(stream, bytes) = transfer {
        tunnel.run(Duration::from_secs(5));
        assert_eq!(
            (tunnel.received(stream), tunnel.end_of(stream)),
            (bytes, Some(EndReason::DONE))
        );
    }
    tunnel.nobody_complained();
    Stall { longest, closed: closed.since(at), rtt }
}

/// The design, the direction of the transfer, and the link that dies.
#[derive(Clone, Copy, Debug)]
struct Case {
    design: Design,
    up: bool,
    place: LegLink,
    died: CircuitKey,
}

/// Returns a case for each link of each of two legs, with each design and in both directions. In a
/// download, one leg also carries the client's messages, such as XOFF.
fn all_cases() -> impl Iterator<Item = Case> {
    let legs = [CircuitKey(1), CircuitKey(2)];
    let ways = DESIGNS.into_iter().flat_map(|design| [(design, false), (design, true)]);
    let links =
        ways.flat_map(|(design, up)| places(design).iter().map(move |place| (design, up, *place)));
    links.flat_map(move |(design, up, place)| legs.map(|died| Case { design, up, place, died }))
}

/// Checks `docs/spec/resilient-legs.md#death`: at most two round trips pass without a byte.
#[test]
fn a_leg_that_dies_by_a_reset_or_destroy_stalls_its_set_for_two_round_trips_at_most() {
    for case in all_cases() {
        let Stall { longest, rtt, .. } = dies_under_way(case, Death::Reset);
        println!("{case:?}: {longest:?}; round trip {rtt:?}");
        assert!(longest <= 2 * rtt, "{case:?}: {longest:?}, {rtt:?}");
    }
}

/// Checks `docs/spec/resilient-legs.md#silence`: silence is noticed after a second, or after three
/// round trips if they are longer. At most two more round trips pass without a byte.
#[test]
fn a_leg_that_falls_silent_is_noticed_within_a_second() {
    for case in all_cases() {
        let Stall { longest, closed, rtt } = dies_under_way(case, Death::Silent);
        println!("{case:?}: {longest:?}, closed after {closed:?}; round trip {rtt:?}");
        let second = Duration::from_secs(1);
        assert!(longest <= second + 2 * rtt, "{case:?}: {longest:?}, {rtt:?}");
        // The end that notices the silence notifies the other end.
        assert!(closed <= second + RTT + STEP, "{case:?}: {closed:?}");
    }
}

/// Checks that no message is refused while a slow leg is silent. This is not noticed for a second,
/// and a fast leg continues. The streams pause, and the message that requests the pause uses the
/// leg that works.
#[test]
fn what_waits_for_a_silent_leg_is_bounded_by_rest() {
    for (design, up) in DESIGNS.into_iter().flat_map(|design| [(design, false), (design, true)]) {
        let mut setting = setting(design);
        let [near, far] = [10, 30].map(Duration::from_millis);
        setting.lines.extend([(0, (4_000_000, near)), (1, (80_000_000, far))]);
        let mut tunnel = Tunnel::new(setting, 2);
        let mut transfer =
            if up { Transfer::up(&mut tunnel) } else { Transfer::down(&mut tunnel, 40_000_000) };
        longest_stall(&mut tunnel, &mut transfer, 8_000_000);
        tunnel.kill(CircuitKey(1), LegLink::Guard, Death::Silent);
        let longest = longest_stall(&mut tunnel, &mut transfer, 16_000_000);
        assert!(longest < Duration::from_secs(1), "{design}, up {up}: {longest:?}");
        tunnel.nobody_complained();
    }
}

/// Lets all legs die at once. Returns the longest time without progress.
fn all_die(design: Design, up: bool, death: Death) -> Duration {
    let mut tunnel = Tunnel::new(setting(design), 2);
    let mut transfer =
        if up { Transfer::up(&mut tunnel) } else { Transfer::down(&mut tunnel, 5_000_000) };
    longest_stall(&mut tunnel, &mut transfer, 2_000_000);
    for circuit in [1, 2] {
        tunnel.kill(CircuitKey(circuit), LegLink::Guard, death);
    }
    let stall = longest_stall(&mut tunnel, &mut transfer, 2_000_000);
    if let Transfer::Down(stream, bytes) = transfer {
        tunnel.run(Duration::from_secs(10));
        assert_eq!(
            (tunnel.received(stream), tunnel.end_of(stream)),
            (bytes, Some(EndReason::DONE))
        );
    }
    tunnel.nobody_complained();
    stall
}

#[test]
fn a_set_that_loses_all_legs_goes_on_by_new_ones_within_ten_seconds() {
    for (design, up) in DESIGNS.into_iter().flat_map(|design| [(design, false), (design, true)]) {
        for (death, most) in [(Death::Reset, 1), (Death::Silent, 4)] {
            let stall = all_die(design, up, death);
            println!("{design}, up {up}, {death:?}: {stall:?}");
            assert!(stall < Duration::from_secs(most), "{design}, up {up}, {death:?}: {stall:?}");
        }
    }
}

#[test]
fn a_set_that_gets_no_leg_any_more_ends_with_an_error_after_ten_seconds_at_both_ends() {
    for (design, death) in
        DESIGNS.into_iter().flat_map(|design| [(design, Death::Reset), (design, Death::Silent)])
    {
        let mut tunnel = Tunnel::new(setting(design), 2);
        let stream = tunnel.begin("source-5000000");
        tunnel.run(Duration::from_millis(600));
        tunnel.rebuilds = false;
        let at = tunnel.world.now;
        let before = tunnel.received(stream);
        for circuit in [1, 2] {
            tunnel.kill(CircuitKey(circuit), LegLink::Guard, death);
        }
        while tunnel.end_of(stream).is_none() {
            tunnel.run(STEP);
            assert!(tunnel.world.now.since(at) < Duration::from_secs(13), "{death:?}");
        }
        assert!(tunnel.world.now.since(at) >= Duration::from_secs(10), "{death:?}");
        assert_eq!(tunnel.end_of(stream), Some(EndReason::DESTROY), "an error, never a short file");
        assert!(before > 0 && tunnel.received(stream) < 5_000_000);
        // A leg that is built too late finds no set.
        tunnel.begin_leg();
        tunnel.world.run_for(Duration::from_secs(1));
        let late = CircuitKey(tunnel.last);
        let gone = tunnel.world.client.link(tunnel.world.now, late, Some(tunnel.first));
        assert_eq!(gone, Err(NoSet::Gone));
        tunnel.world.run_for(Duration::from_secs(15));
        let stats = tunnel.world.relays[tunnel.joins_at()].core.stats();
        assert_eq!((stats.sets, stats.legs, stats.streams, stats.reordered), (0, 0, 0, 0));
        assert_eq!(tunnel.world.client.fullest_sets(1), [], "{death:?}");
    }
}

#[test]
fn a_set_that_nobody_uses_goes_with_its_last_leg_and_the_exits_after_twenty_seconds() {
    for design in DESIGNS {
        goes_with_its_last_leg(design);
    }
}

fn goes_with_its_last_leg(design: Design) {
    let mut tunnel = Tunnel::new(setting(design), 2);
    let stream = tunnel.begin("source-100000");
    tunnel.run(Duration::from_secs(2));
    assert_eq!(tunnel.received(stream), 100_000);
    tunnel.rebuilds = false;
    for circuit in [1, 2] {
        tunnel.destroy(CircuitKey(circuit));
    }
    tunnel.world.run_for(Duration::from_millis(200));
    assert_eq!(tunnel.world.client.fullest_sets(1), []);
    let at = tunnel.joins_at();
    let stats = tunnel.world.relays[at].core.stats();
    assert_eq!((stats.sets, stats.legs), (1, 0), "a stream may be on its way");
    tunnel.world.run_for(Duration::from_secs(20));
    assert_eq!(tunnel.world.relays[at].core.stats().sets, 0);
    assert_eq!(tunnel.world.relays[EXIT].core.stats().circuits, 0);
}

/// An upload in progress.
struct Upload {
    stream: StreamKey,
    written: usize,
    bytes: usize,
    /// Number of bytes that the servers had received when the upload began.
    before: usize,
}

impl Upload {
    fn begin(tunnel: &mut Tunnel, bytes: usize) -> Upload {
        let before = tunnel.taken();
        Upload { stream: tunnel.begin("sink"), written: 0, bytes, before }
    }

    /// Writes as much as possible. Returns true once all bytes have arrived, and then ends the
    /// stream.
    fn goes_on(&mut self, tunnel: &mut Tunnel) -> bool {
        let (now, stream) = (tunnel.world.now, self.stream);
        let piece: Vec<u8> = (self.written..self.bytes).map(Server::byte).collect();
        self.written += tunnel.world.client.write(now, stream, &piece);
        let is_whole = tunnel.taken() == self.before + self.bytes;
        if is_whole {
            tunnel.world.client.handle(now, Input::Ended { stream });
        }
        is_whole
    }
}

impl Tunnel {
    /// Kills a random link of a random leg, in one of the two ways.
    fn kill_one(&mut self, dice: &mut Stream) {
        let legs: Vec<CircuitKey> = self.legs.keys().copied().collect();
        let places = places(self.world.setting.design);
        let place = places[dice.random_range(0..places.len())];
        let death = if dice.random_range(0..4) == 0 { Death::Silent } else { Death::Reset };
        if !legs.is_empty() {
            self.kill(legs[dice.random_range(0..legs.len())], place, death);
        }
    }

    /// Creates another set if the old one has ended. An unused set ends with its last leg.
    fn have_set(&mut self) {
        if self.has_set() {
            return;
        }
        let left: Vec<CircuitKey> = self.legs.keys().copied().collect();
        left.into_iter().for_each(|circuit| self.destroy(circuit));
        self.was_linked = false;
        while !self.was_linked {
            self.run(STEP);
            if !self.legs.contains_key(&self.first) {
                self.first = CircuitKey(self.last);
            }
        }
    }

    /// Returns the streams that have ended since the last call.
    fn ended(&mut self) -> Vec<(StreamKey, EndReason)> {
        // Processing an output may close a circuit, which causes another output.
        while self.seen < self.world.outputs.len() {
            self.look();
        }
        self.seen = 0;
        let ended = |output| match output {
            Output::Stream(StreamOutput::Ended { stream, reason, .. }) => Some((stream, reason)),
            _ => None,
        };
        self.world.outputs.drain(..).filter_map(ended).collect()
    }
}

/// Results of the streams while links were killed.
#[derive(Debug, PartialEq, Eq)]
struct StreamOutcomes {
    /// Numbers of downloads and uploads that were complete and ended without an error.
    whole: [usize; 2],
    trace: u64,
}

/// Kills `kills` random links of legs, with the mean time `pause` between them, while streams run
/// in both directions. The test fails if a stream ends with an error.
fn killed_at_random(
    design: Design,
    kills: usize,
    pause: Duration,
    seed: u64,
    shards: usize,
) -> StreamOutcomes {
    let mut tunnel = Tunnel::new(Setting { seed, shards, ..setting(design) }, 3);
    let mut dice = seed::stream(seed, 0, "kills");
    let (mut killed, mut whole) = (0, [0; 2]);
    let mut down: Option<(StreamKey, usize)> = None;
    let mut up: Option<Upload> = None;
    while killed < kills || down.is_some() || up.is_some() {
        if killed < kills {
            tunnel.kill_one(&mut dice);
            killed += 1;
            tunnel.have_set();
            down.get_or_insert_with(|| {
                let bytes = dice.random_range(1..300_000);
                (tunnel.begin(&format!("source-{bytes}")), bytes)
            });
            let bytes = dice.random_range(1..300_000);
            up.get_or_insert_with(|| Upload::begin(&mut tunnel, bytes));
        }
        let least = pause.as_millis() as u64 / 30;
        tunnel.run(Duration::from_millis(dice.random_range(least..60 * least)));
        let most = 3 * pause * u32::try_from(kills).unwrap() + Duration::from_secs(100);
        assert!(tunnel.world.now < Time::ZERO + most, "it stalls after {killed} kills");
        for (stream, reason) in tunnel.ended() {
            assert_eq!(reason, EndReason::DONE, "after {killed} kills");
            let (_, bytes) = down.take_if(|(of, _)| *of == stream).unwrap();
            assert_eq!(tunnel.received(stream), bytes, "after {killed} kills");
            tunnel.world.received.remove(&stream);
            whole[0] += 1;
        }
        if up.take_if(|up| up.goes_on(&mut tunnel)).is_some() {
            whole[1] += 1;
        }
    }
    // An exit keeps a set without legs for 20 seconds.
    tunnel.run(Duration::from_secs(25));
    let mut servers = tunnel.exit().flat_map(|shard| shard.servers.values());
    assert!(servers.all(|server| server.received == 0 || server.ended.is_some()));
    tunnel.nobody_complained();
    StreamOutcomes { whole, trace: tunnel.world.trace }
}

/// Checks `docs/spec/resilient-legs.md#death`: one of three legs dies every half second.
#[test]
fn a_thousand_random_deaths_cost_no_stream() {
    let fates = killed_at_random(Design::Resilient, 1_000, HALF_SECOND, 1, 1);
    println!("streams that came and went: {:?}", fates.whole);
    assert!(fates.whole.iter().all(|streams| *streams > 200), "{fates:?}");
}

/// Checks `docs/spec/middle-merge.md#death`: the exit does not notice the deaths of legs.
#[test]
fn a_thousand_random_deaths_of_merged_legs_cost_no_stream() {
    let fates = killed_at_random(Design::Merged, 1_000, HALF_SECOND, 1, 1);
    println!("streams that came and went: {:?}", fates.whole);
    assert!(fates.whole.iter().all(|streams| *streams > 150), "{fates:?}");
}

/// Checks streams while about half of all links swallow data at any time.
#[test]
fn a_storm_of_deaths_costs_no_stream_either() {
    let storms = DESIGNS.into_iter().flat_map(|design| [(design, 1), (design, 10)]);
    let fates: Vec<StreamOutcomes> =
        storms.map(|(design, seed)| killed_at_random(design, 500, STORM, seed, 1)).collect();
    println!("in four storms: {fates:?}");
    assert!(fates.iter().all(|fates| fates.whole.iter().all(|streams| *streams > 30)));
}

#[test]
fn random_deaths_replay_and_legs_of_different_shards_are_as_good() {
    for design in DESIGNS {
        let twice = [(); 2].map(|()| killed_at_random(design, 60, STORM, 2, 1));
        assert_eq!(twice[0], twice[1]);
        let fates = killed_at_random(design, 200, HALF_SECOND, 3, 3);
        assert!(fates.whole.iter().all(|streams| *streams > 40), "{design}: {fates:?}");
    }
}

/// Downloads over two legs. The relay sends the messages `reply` on one of them. Checks that this
/// leg closes with `fault`, that another leg replaces it, and that the download is complete.
fn relay_breaks(design: Design, fault: CircuitFault, reply: &[(RelayCommand, u16, Vec<u8>)]) {
    let mut tunnel = Tunnel::new(setting(design), 2);
    let mut transfer = Transfer::down(&mut tunnel, 1_500_000);
    longest_stall(&mut tunnel, &mut transfer, 500_000);
    let at = tunnel.joins_at();
    for (command, stream, data) in reply {
        let message = Message { command: *command, stream: *stream, data };
        assert!(tunnel.world.relays[at].core.send_message(tunnel.world.now, 1, message));
    }
    tunnel.run(Duration::from_secs(2));
    let broken = Cause::Violation(Violation::Circuit(fault));
    let causes: Vec<Cause> = tunnel.closed.iter().map(|(_, _, cause)| *cause).collect();
    assert_eq!(causes, [broken], "{design}, {reply:?}");
    assert_eq!((tunnel.linked(), tunnel.legs_of_relay()), (2, 2), "{design}, {reply:?}");
    let Transfer::Down(stream, bytes) = transfer else { unreachable!() };
    assert_eq!((tunnel.received(stream), tunnel.end_of(stream)), (bytes, Some(EndReason::DONE)));
}

/// Checks how a client treats the violations in `docs/spec/resilient-legs.md#violations` and
/// `docs/spec/middle-merge.md#hostile-ends`.
#[test]
fn a_relay_that_breaks_the_rules_loses_the_leg_by_which_it_does() {
    use ConfluxFault as Fault;
    use RelayCommand as Say;
    let switch = |singly, number| LegSwitch { singly, number }.write().to_vec();
    let own = |count| Received { answers_probe: false, count }.write().to_vec();
    let answer = Received { answers_probe: true, count: 9 }.write().to_vec();
    let run = |number| (Say::RESILIENT_SWITCH, 0, switch(false, number));
    for design in DESIGNS {
        let (merged, nonce) = (design.is_merged(), SetNonce::from([7; 32]));
        let linked = |merged| {
            let link =
                ResilientLink { merged, resumes: true, nonce, serial: 2, dealing: "".into() };
            link.write().unwrap()
        };
        for (fault, command, data) in [
            (Fault::TooFar, Say::RESILIENT_SWITCH, switch(false, 1 << 28)),
            (Fault::Unreadable, Say::RESILIENT_SWITCH, vec![0; 4]),
            (Fault::Unreadable, Say::RESILIENT_SWITCH, vec![2, 0, 0, 0, 1]),
            (Fault::Role, Say::CONFLUX_SWITCH, put_switch(9).to_vec()),
            (Fault::Unsent, Say::RESILIENT_RECEIVED, own(0)),
            (Fault::Unsent, Say::RESILIENT_RECEIVED, own(u32::MAX)),
            (Fault::Unsent, Say::RESILIENT_RECEIVED, answer.clone()),
            (Fault::Unreadable, Say::RESILIENT_RECEIVED, vec![9; 5]),
            (Fault::NotLinked, Say::RESILIENT_GONE, put_gone(2).to_vec()),
            (Fault::NotLinked, Say::RESILIENT_GONE, put_gone(900).to_vec()),
            (Fault::Unreadable, Say::RESILIENT_GONE, vec![0; 3]),
            (Fault::Role, Say::RESILIENT_PROBE, vec![]),
            (Fault::Role, Say::ANCESTOR_LINK, vec![2; 40]),
            (Fault::Unreadable, Say::ANCESTOR_LINKED, vec![2; 40]),
            (Fault::Nonce, Say::ANCESTOR_LINKED, linked(merged)),
            (Fault::Nonce, Say::ANCESTOR_LINKED, linked(!merged)),
            (Fault::Role, Say::ANCESTOR_LINKED_ACK, vec![]),
        ] {
            relay_breaks(design, fault.into(), &[(command, 0, data)]);
        }
        relay_breaks(design, Fault::SwitchTwice.into(), &[run(1 << 20), run(1 << 21)]);
    }
    let singly = (Say::RESILIENT_SWITCH, 0, switch(true, 1 << 20));
    relay_breaks(Design::Merged, Fault::Unreadable.into(), &[singly]);
    for command in [Say::CONNECTED, Say::DATA, Say::END, Say::XOFF] {
        relay_breaks(Design::Merged, Fault::Role.into(), &[(command, 3, vec![0; 20])]);
    }
    relay_breaks(Design::Merged, Fault::Role.into(), &[(Say::SENDME, 0, vec![1, 0, 20])]);
    relay_breaks(Design::Merged, CircuitFault::Message, &[(Say::BEGIN, 3, vec![0; 20])]);
}

/// Calls `act`, which lets the joining relay (where the legs join) violate the protocol of the
/// circuit beyond it. Checks that the set ends, that its stream ends with an error, and that a
/// `fault` is counted once.
fn breaks_beyond(fault: Option<CircuitFault>, act: impl FnOnce(&mut World)) {
    let mut tunnel = Tunnel::new(setting(Design::Merged), 2);
    let mut transfer = Transfer::down(&mut tunnel, 1_500_000);
    longest_stall(&mut tunnel, &mut transfer, 500_000);
    let Transfer::Down(stream, bytes) = transfer else { unreachable!() };
    act(&mut tunnel.world);
    tunnel.run(Duration::from_secs(1));
    assert_eq!(tunnel.end_of(stream), Some(EndReason::DESTROY), "{fault:?}");
    assert!(tunnel.received(stream) < bytes);
    let cause = fault.map_or(Cause::Destroyed(DestroyReason::NONE), |fault| {
        Cause::Violation(Violation::Circuit(fault))
    });
    let causes: Vec<Cause> = tunnel.closed.iter().map(|(_, _, cause)| *cause).collect();
    assert_eq!(causes, [cause; 2]);
    let is_counted = |output: &&Output| matches!(output, Output::Event(Event::Violation { .. }));
    let counted = tunnel.world.outputs.iter().filter(is_counted).count();
    assert_eq!(counted, usize::from(fault.is_some()), "{fault:?}");
    assert_eq!(tunnel.world.client.fullest_sets(1), []);
}

/// Checks `docs/spec/middle-merge.md#hostile-ends`: a second EXTENDED2, a TRUNCATED, and cells
/// without an owner.
#[test]
fn a_joining_relay_that_breaks_what_lies_beyond_ends_the_set() {
    let send = |world: &mut World, command| {
        let message = Message { command, stream: 0, data: &[0; 60] };
        assert!(world.relays[JOIN].core.send_message(world.now, 1, message));
    };
    breaks_beyond(Some(CircuitFault::Message), |world| send(world, RelayCommand::EXTENDED2));
    breaks_beyond(None, |world| send(world, RelayCommand::TRUNCATED));
    breaks_beyond(Some(CircuitFault::Unrecognised), |world| {
        let link = world.link_between([Some(JOIN), Some(EXIT)]).unwrap();
        let circuit = world.pipes[&link].last_circuit.unwrap().to_be_bytes();
        let cell = [&circuit[..], &[Command::RELAY.0], &[0x5a; BODY]].concat();
        world.forge(JOIN + 1, link, &cell.repeat(3));
    });
}
