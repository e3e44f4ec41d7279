//! Splits recorded traces: the lab's interface to the schedulers.
//!
//! A trace is a list of times and signed sizes (+ from client to server, - from server to client).
//! A [`Splitter`] decides on each packet's path, with the same code as `anabranch split`.

mod decoys;
mod delayed;
mod ends;

use std::fmt;
use std::ops::Range;
use std::time::Duration;

pub use decoys::{Decoy, decoys};
pub use delayed::delayed;
pub use ends::{Draw, EndsError, Mode};

use crate::schedule::{Scheduler, Spec, SpecError};
use crate::{Assignment, Boundary, Every, PathView, Splitter, Time, seed};

/// Maximum number of paths that a trace is split over.
pub const MOST_PATHS: usize = 64;

/// The delays that a path adds to its packets, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delay {
    /// Delay from client to server.
    pub up: f64,
    /// Delay from server to client.
    pub down: f64,
}

impl Delay {
    fn of(self, size: i32) -> f64 {
        if size > 0 { self.up } else { self.down }
    }

    fn is_sound(self) -> bool {
        [self.up, self.down].iter().all(|delay| delay.is_finite() && *delay >= 0.0)
    }
}

/// Identification of one split: an assignment of paths to the packets of one recorded page load.
/// Apart from the seed, a split's random numbers depend only on this identification. So an
/// additional load does not change the split of another load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entity {
    /// Identifier of the page load, unique within one repetition of the experiment.
    pub load: i64,
    /// Index of the repetition of the experiment that the page load belongs to.
    pub run: i32,
    /// Index of this split among the splits of the same page load, from 0.
    pub replica: u32,
}

/// Settings with which recorded traces are split over paths: a schedule, run lengths, paths, and a
/// seed. The settings are checked once, and used for any number of traces.
#[derive(Clone, Debug)]
pub struct TraceSplit {
    spec: Spec,
    every: Every,
    mode: Mode,
    draw: Draw,
    seed: u64,
    delays: Vec<Delay>,
    views: Vec<PathView>,
}

impl TraceSplit {
    /// Returns a split over `paths` paths (1 to [`MOST_PATHS`]) without delays.
    pub fn new(
        spec: Spec,
        every: Every,
        paths: usize,
        mode: Mode,
        seed: u64,
    ) -> Result<TraceSplit, TraceError> {
        if !(1..=MOST_PATHS).contains(&paths) {
            return Err(TraceError::Paths(paths));
        }
        // The scheduler is built once as a check, so that no load can fail later.
        spec.build(paths, seed::stream(seed, 0, "check")).map_err(TraceError::Spec)?;
        let views = vec![PathView::open(); paths];
        let (draw, delays) = (Draw::default(), Vec::new());
        Ok(TraceSplit { spec, every, mode, draw, seed, delays, views })
    }

    /// Sets the rule for when the schedule draws new random path probabilities.
    pub fn drawn(self, draw: Draw) -> TraceSplit {
        TraceSplit { draw, ..self }
    }

    /// Sets the delay of each path. The scheduler then knows a path's round-trip time: the sum of
    /// both directions.
    pub fn delayed(self, delays: Vec<Delay>) -> Result<TraceSplit, TraceError> {
        if delays.len() != self.views.len() {
            return Err(TraceError::Delays(delays.len(), self.views.len()));
        }
        let unsound = |delay: &Delay| !delay.is_sound();
        if let Some(path) = delays.iter().position(unsound) {
            return Err(TraceError::Delay(path));
        }
        let rtt = |delay: &Delay| Duration::try_from_secs_f64(delay.up + delay.down).ok();
        let view = |delay| PathView { rtt: rtt(delay), ..PathView::open() };
        let views = delays.iter().map(view).collect();
        Ok(TraceSplit { delays, views, ..self })
    }

    /// Returns the number of paths.
    pub fn paths(&self) -> usize {
        self.views.len()
    }

    /// Returns the delay of each path; empty if no delays are set.
    pub fn delays(&self) -> &[Delay] {
        &self.delays
    }

    /// Writes the path of each packet to `out`, which must be as long as `times`.
    ///
    /// `times` are seconds, not negative and sorted; `sizes` are signed. Delays are not applied:
    /// see [`TraceSplit::delay`].
    pub fn assign(
        &self,
        entity: Entity,
        times: &[f64],
        sizes: &[i32],
        out: &mut [i16],
    ) -> Result<(), TraceError> {
        check(times, sizes)?;
        assert_eq!(times.len(), out.len(), "the output must have a place for each packet");
        match self.mode {
            Mode::Together => self.schedule_packets(entity, "both", times, out),
            Mode::Follow { after } => self.follow(entity, after.as_secs_f64(), (times, sizes), out),
            Mode::Independent => {
                self.direction(entity, "up", |size| size > 0, (times, sizes), out);
                self.direction(entity, "down", |size| size < 0, (times, sizes), out);
            }
        }
        Ok(())
    }

    /// Returns the order in which packets are observed after the delays of their paths, and the
    /// times of observation.
    ///
    /// `order[k]` is the index in the trace of the packet that is observed at position `k`.
    /// Packets observed at the same time keep their order. `paths` is the output of
    /// [`TraceSplit::assign`].
    pub fn delay(&self, times: &[f64], sizes: &[i32], paths: &[i16]) -> (Vec<u32>, Vec<f64>) {
        let added = |packet: usize| {
            self.delays.get(paths[packet] as usize).map_or(0.0, |delay| delay.of(sizes[packet]))
        };
        let seen: Vec<f64> = (0..times.len()).map(|packet| times[packet] + added(packet)).collect();
        let mut order: Vec<u32> = (0..times.len() as u32).collect();
        order.sort_by(|&a, &b| seen[a as usize].total_cmp(&seen[b as usize]));
        let sorted = order.iter().map(|&packet| seen[packet as usize]).collect();
        (order, sorted)
    }

    /// Assigns the client's packets to paths by the schedule. Assigns each of the server's packets
    /// to the path of the newest client packet that has reached it.
    ///
    /// A client packet reaches the server after `after` seconds plus the uplink delay of its path.
    /// Before the first client packet arrives, the server uses that packet's path. If the client
    /// sends nothing, the server uses the first path of the client's schedule.
    fn follow(
        &self,
        entity: Entity,
        after: f64,
        (times, sizes): (&[f64], &[i32]),
        out: &mut [i16],
    ) {
        self.direction(entity, "up", |size| size > 0, (times, sizes), out);
        let added = |path: i16| self.delays.get(path as usize).map_or(0.0, |delay| delay.up);
        let up = (0..sizes.len()).filter(|&packet| sizes[packet] > 0);
        let arrival = |packet: usize| (times[packet] + added(out[packet]) + after, out[packet]);
        let mut arrivals: Vec<(f64, i16)> = up.map(arrival).collect();
        let mut latest = arrivals.first().map_or_else(|| self.first(entity), |first| first.1);
        arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut coming = arrivals.into_iter().peekable();
        for packet in (0..sizes.len()).filter(|&packet| sizes[packet] < 0) {
            while let Some((_, path)) = coming.next_if(|arrival| arrival.0 <= times[packet]) {
                latest = path;
            }
            out[packet] = latest;
        }
    }

    /// Returns the path on which the client would send its first packet, for a trace in which the
    /// client sends nothing.
    fn first(&self, entity: Entity) -> i16 {
        let mut path = [0];
        self.schedule_packets(entity, "up", &[0.0], &mut path);
        path[0]
    }

    /// Assigns paths to the packets of one direction, whose schedule is independent of the other
    /// direction. `belongs` returns true for the sizes of this direction's packets, and `name`
    /// distinguishes the direction's random numbers. `out` gets each packet's path at the packet's
    /// index in the trace.
    fn direction(
        &self,
        entity: Entity,
        name: &str,
        belongs: impl Fn(i32) -> bool,
        (times, sizes): (&[f64], &[i32]),
        out: &mut [i16],
    ) {
        // Each packet writes an entry, regardless of its direction: the CPU cannot predict
        // directions, and a mispredicted branch costs more than the write.
        let mut places = vec![0; sizes.len()];
        let mut count = 0;
        for (place, &size) in (0u32..).zip(sizes) {
            places[count] = place;
            count += usize::from(belongs(size));
        }
        places.truncate(count);
        let times: Vec<f64> = places.iter().map(|&place| times[place as usize]).collect();
        let mut own = vec![0; places.len()];
        self.schedule_packets(entity, name, &times, &mut own);
        for (place, path) in places.into_iter().zip(own) {
            out[place as usize] = path;
        }
    }

    /// Assigns paths to packets that all follow one schedule. `out` gets the path of each packet
    /// in `times`. `name` distinguishes the random numbers of different schedules of one split.
    fn schedule_packets(&self, entity: Entity, name: &str, times: &[f64], out: &mut [i16]) {
        let mut splitter = self.splitter(entity, name);
        // Packets that are assigned together must have no pause between them.
        for packets in stretches(times, splitter.silence().least()) {
            self.stretch(&mut splitter, &times[packets.clone()], &mut out[packets]);
        }
    }

    /// Assigns paths to the packets between two pauses in the traffic.
    fn stretch(&self, splitter: &mut Splitter, times: &[f64], out: &mut [i16]) {
        let mut done = 0;
        while done < times.len() {
            let units = within(splitter.ends(), &times[done..]);
            let run = splitter.assign(time(times[done]), &self.views, units as u64);
            let Assignment::Send { path, units, .. } = run else {
                unreachable!(
                    "there is at least one path, and all paths are usable and have no window"
                )
            };
            let end = done + units as usize;
            out[done..end].fill(path.0 as i16);
            splitter.on_arrival(time(times[end - 1]));
            done = end;
        }
    }

    fn splitter(&self, entity: Entity, name: &str) -> Splitter {
        let Draw::Silence(least) = self.draw else {
            let (scheduler, boundary) = self.draw(entity, name);
            return Splitter::new(scheduler, boundary);
        };
        let (plan, name) = (self.clone(), name.to_owned());
        let draw = move |draws: u64| match draws {
            0 => plan.draw(entity, &name),
            draws => plan.draw(entity, &format!("{name} {draws}")),
        };
        Splitter::redrawing(least, Box::new(draw))
    }

    /// Builds one schedule of the split `entity`: the scheduler, and the state that determines
    /// when its runs end. `name` distinguishes the random numbers of different schedules of one
    /// split.
    fn draw(&self, entity: Entity, name: &str) -> (Box<dyn Scheduler>, Boundary) {
        let Entity { load, run, replica } = entity;
        let stream = |what: &str| {
            let purpose = format!("trace {name} {what}, run {run}, replica {replica}");
            seed::stream(self.seed, load.cast_unsigned(), &purpose)
        };
        let build = |stream| {
            let built = self.spec.build(self.paths(), stream);
            built.expect("the schedule was already built for this number of paths")
        };
        let scheduler = match self.draw {
            Draw::Session(loads) => {
                let session = load.div_euclid(loads.into()).cast_unsigned();
                let purpose = format!("trace {name} session, run {run}, replica {replica}");
                let mut scheduler = build(seed::stream(self.seed, session, &purpose));
                scheduler.reseed(stream("scheduler"));
                scheduler
            }
            Draw::Load | Draw::Silence(_) => build(stream("scheduler")),
        };
        (scheduler, Boundary::new(self.every, stream("boundary")))
    }
}

/// Returns the index ranges of the packets between pauses of at least `least`.
fn stretches(times: &[f64], least: Duration) -> impl Iterator<Item = Range<usize>> {
    let mut begin = 0;
    let after_silence = move |end: &usize| time(times[*end]).since(time(times[*end - 1])) >= least;
    let ends = (1..times.len()).filter(after_silence).chain([times.len()]);
    ends.map(move |end| std::mem::replace(&mut begin, end)..end).filter(|part| !part.is_empty())
}

/// Returns the number of packets before `ends`, the end of the present run (consecutive packets on
/// one path). If the run is over, returns 1, for the first packet of the next run.
fn within(ends: Time, times: &[f64]) -> usize {
    if ends == Time::MAX {
        return times.len();
    }
    times.iter().take_while(|&&seconds| time(seconds) < ends).count().max(1)
}

/// Returns `seconds` rounded to the nearest nanosecond (halves upwards), at most 292 years. In
/// contrast to `f64::round` on x86-64 without SSE4.1, this rounding needs no function call.
fn time(seconds: f64) -> Time {
    let nanos = seconds * 1e9;
    let whole = nanos as i64;
    let half = nanos - whole as f64 >= 0.5;
    Time::from_nanos(whole.cast_unsigned() + u64::from(half))
}

fn check(times: &[f64], sizes: &[i32]) -> Result<(), TraceError> {
    if times.len() != sizes.len() {
        return Err(TraceError::Lengths(times.len(), sizes.len()));
    }
    if u32::try_from(times.len()).is_err() {
        return Err(TraceError::Long(times.len()));
    }
    // The compiler vectorises loops without an early exit.
    let sound = |seconds: f64| (0.0..=f64::MAX).contains(&seconds);
    let in_order = |pair: &[f64]| pair[0] <= pair[1];
    if !times.iter().fold(true, |all, &seconds| all & sound(seconds)) {
        let packet = times.iter().position(|&seconds| !sound(seconds));
        return Err(TraceError::Time(packet.expect("an invalid packet was found above")));
    }
    if !times.windows(2).fold(true, |all, pair| all & in_order(pair)) {
        let before = times.windows(2).position(|pair| !in_order(pair));
        return Err(TraceError::Unsorted(before.expect("an invalid packet was found above") + 1));
    }
    if sizes.contains(&0) {
        let packet = sizes.iter().position(|&size| size == 0);
        return Err(TraceError::Size(packet.expect("an invalid packet was found above")));
    }
    Ok(())
}

/// Error of splitting a trace.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TraceError {
    /// The number of paths is 0, or above [`MOST_PATHS`].
    Paths(usize),
    /// The schedule does not fit this number of paths.
    Spec(SpecError),
    /// The number of delays differs from the number of paths: (delays, paths).
    Delays(usize, usize),
    /// The delay of the path with this index is negative or not finite.
    Delay(usize),
    /// The number of times and the number of sizes differ: (times, sizes).
    Lengths(usize, usize),
    /// The trace has more packets than 32 bits can count.
    Long(usize),
    /// The time of the packet with this index is negative or not finite.
    Time(usize),
    /// The packet with this index is earlier than the packet before it.
    Unsorted(usize),
    /// The size of the packet with this index is 0, so the packet has no direction.
    Size(usize),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Paths(paths) => write!(f, "{paths} paths: give 1 to {MOST_PATHS}"),
            TraceError::Spec(error) => error.fmt(f),
            TraceError::Delays(delays, paths) => {
                write!(f, "{delays} delays for {paths} paths: give one for each path")
            }
            TraceError::Delay(path) => {
                write!(f, "the delay of path {path} is negative or not a finite number")
            }
            TraceError::Lengths(times, sizes) => write!(f, "{times} times but {sizes} sizes"),
            TraceError::Long(packets) => {
                write!(
                    f,
                    "one page load has {packets} packets, but at most 4,294,967,295 are allowed"
                )
            }
            TraceError::Time(packet) => {
                write!(f, "packet {packet} has a time that is negative or not a finite number")
            }
            TraceError::Unsorted(packet) => {
                write!(f, "times are not sorted: packet {packet} is earlier than the one before")
            }
            TraceError::Size(packet) => write!(
                f,
                "the size of packet {packet} is 0: write a positive number of bytes for a packet \
                 to the server, a negative number for one to the client"
            ),
        }
    }
}

impl std::error::Error for TraceError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::without_windows;

    const LOAD: Entity = Entity { load: 7, run: 2, replica: 0 };

    fn plan(schedule: &str, every: &str, paths: usize, mode: Mode) -> TraceSplit {
        let (spec, every) = (schedule.parse().unwrap(), every.parse().unwrap());
        TraceSplit::new(spec, every, paths, mode, 1).unwrap()
    }

    /// Returns the times and sizes of a trace with bursts, ties and pauses.
    fn sample() -> (Vec<f64>, Vec<i32>) {
        let gap = |packet: usize| [0.0, 0.003, 0.0, 0.011, 0.0, 0.25][packet % 6];
        let times = (0..1_000).scan(0.0, |now, packet| {
            *now += gap(packet);
            Some(*now)
        });
        (
            times.collect(),
            (0..1_000).map(|packet| if packet % 4 == 1 { 100 } else { -1500 }).collect(),
        )
    }

    fn assigned(plan: &TraceSplit, entity: Entity) -> Vec<i16> {
        let (times, sizes) = sample();
        let mut out = vec![-1; times.len()];
        plan.assign(entity, &times, &sizes, &mut out).unwrap();
        out
    }

    /// Reference implementation: calls the splitter for each packet.
    fn one_by_one(plan: &TraceSplit, name: &str, times: &[f64]) -> Vec<i16> {
        let mut splitter = plan.splitter(LOAD, name);
        let path = |&seconds| match splitter.assign(time(seconds), &plan.views, 1) {
            Assignment::Send { path, .. } => path.0 as i16,
            other => panic!("{other:?}"),
        };
        times.iter().map(path).collect()
    }

    #[test]
    fn whole_runs_at_once_are_assigned_as_packets_one_by_one_would_be() {
        for family in without_windows() {
            let name = family.example;
            for every in ["1p", "50p", "~20p", "50-70p", "30ms", "~30ms", "10-50ms", "never"] {
                let plan = plan(name, every, 3, Mode::Together);
                let expected = one_by_one(&plan, "both", &sample().0);
                assert_eq!(assigned(&plan, LOAD), expected, "{name} {every}");
            }
        }
    }

    #[test]
    fn independent_directions_are_two_splits_that_know_nothing_of_each_other() {
        let plan = plan("uniform", "~20p", 3, Mode::Independent);
        let (times, sizes) = sample();
        let all = assigned(&plan, LOAD);
        for (name, belongs) in [("up", [true, false]), ("down", [false, true])] {
            let of = |packet: &usize| belongs[usize::from(sizes[*packet] < 0)];
            let own: Vec<usize> = (0..times.len()).filter(of).collect();
            let own_times: Vec<f64> = own.iter().map(|&packet| times[packet]).collect();
            let paths: Vec<i16> = own.iter().map(|&packet| all[packet]).collect();
            assert_eq!(paths, one_by_one(&plan, name, &own_times), "{name}");
        }
    }

    #[test]
    fn a_server_follows_the_client_a_round_trip_late_and_only_when_it_sent() {
        let after = Duration::from_millis(20);
        let plan = plan("round-robin", "1p", 3, Mode::Follow { after });
        let times = [0.0, 0.001, 0.010, 0.015, 0.020, 0.029, 0.030, 0.2, 0.3, 0.4];
        let sizes = [1, -1, 1, -1, -1, -1, -1, 1, -1, -1];
        let mut out = [9; 10];
        plan.assign(LOAD, &times, &sizes, &mut out).unwrap();
        // The client's three packets take the paths 0, 1 and 2. The server uses the path of the
        // third packet from 0.22 s on.
        assert_eq!(out, [0, 0, 1, 0, 0, 0, 1, 2, 2, 2]);
    }

    #[test]
    fn a_server_follows_the_packet_that_came_last_not_the_one_sent_last() {
        let after = Duration::from_millis(20);
        let delays = vec![Delay { up: 0.1, down: 0.0 }, Delay::default()];
        let plan = plan("round-robin", "1p", 2, Mode::Follow { after }).delayed(delays).unwrap();
        let mut out = [9; 4];
        plan.assign(LOAD, &[0.0, 0.01, 0.05, 0.13], &[1, 1, -1, -1], &mut out).unwrap();
        assert_eq!(out, [0, 1, 1, 0]);
    }

    #[test]
    fn a_silent_client_leaves_the_server_where_it_is() {
        let plan = plan("uniform", "1p", 8, Mode::default());
        let mut out = [9; 50];
        let times: Vec<f64> = (0..50).map(f64::from).collect();
        plan.assign(LOAD, &times, &[-1; 50], &mut out).unwrap();
        assert!(out.iter().all(|path| *path == out[0]) && (0..8).contains(&out[0]), "{out:?}");
    }

    #[test]
    fn the_client_is_split_as_where_both_ends_are() {
        let (follow, both) = [Mode::default(), Mode::Independent]
            .map(|mode| assigned(&plan("uniform", "~20p", 3, mode), LOAD))
            .into();
        let up = |packet: &usize| sample().1[*packet] > 0;
        assert!((0..1_000).filter(up).all(|packet| follow[packet] == both[packet]));
    }

    /// Returns the share of packets on path 0 in each of many loads.
    fn shares(plan: &TraceSplit) -> Vec<f64> {
        let share = |load| {
            let paths = assigned(plan, Entity { load, ..LOAD });
            paths.iter().filter(|path| **path == 0).count() as f64 / paths.len() as f64
        };
        (0..40).map(share).collect()
    }

    #[test]
    fn a_session_keeps_its_chances_and_not_its_dice() {
        let plan = plan("weighted", "1p", 3, Mode::Together);
        let session = plan.clone().drawn(Draw::Session(20));
        let spread = |shares: &[f64]| {
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / shares.len() as f64
        };
        let (each, same) = (shares(&plan), shares(&session));
        assert!(spread(&same[..20]) < 0.05 * spread(&each[..20]), "{same:?} {each:?}");
        assert!((same[0] - same[20]).abs() > 0.02, "another session has other chances");
        let [first, second] = [0, 1].map(|load| assigned(&session, Entity { load, ..LOAD }));
        assert_ne!(first, second);
    }

    #[test]
    fn a_silence_redraws_the_chances() {
        let plan = plan("weighted:0.1", "1p", 8, Mode::Together);
        let redrawn = plan.clone().drawn(Draw::Silence("250ms".parse().unwrap()));
        let (before, after) = (assigned(&plan, LOAD), assigned(&redrawn, LOAD));
        // The first pause of the sample comes after six packets, and the next pause after six
        // more.
        assert_eq!(before[..5], after[..5]);
        let distinct =
            |paths: &[i16]| paths.iter().collect::<std::collections::BTreeSet<_>>().len();
        assert!(distinct(&after) > distinct(&before), "{after:?}");
        let long = plan.clone().drawn(Draw::Silence("9s".parse().unwrap()));
        assert_eq!(assigned(&long, LOAD), before, "no silence is that long");
    }

    #[test]
    fn loads_runs_and_replicas_have_dice_of_their_own() {
        let plan = plan("uniform", "1p", 3, Mode::Together);
        let first = assigned(&plan, LOAD);
        assert_eq!(first, assigned(&plan, LOAD));
        for other in
            [Entity { load: 8, ..LOAD }, Entity { run: 3, ..LOAD }, Entity { replica: 1, ..LOAD }]
        {
            assert_ne!(first, assigned(&plan, other), "{other:?}");
        }
    }

    #[test]
    fn a_slow_path_is_seen_later_and_ties_keep_their_order() {
        let delays = [Delay::default(), Delay { up: 0.0, down: 0.02 }];
        let plan = plan("round-robin", "1p", 2, Mode::Together).delayed(delays.into()).unwrap();
        let (times, sizes) = ([0.0, 0.01, 0.02, 0.03], [1, -1, -1, -1]);
        let mut paths = [0; 4];
        plan.assign(LOAD, &times, &sizes, &mut paths).unwrap();
        assert_eq!(paths, [0, 1, 0, 1]);
        let (order, seen) = plan.delay(&times, &sizes, &paths);
        assert_eq!(order, [0, 2, 1, 3]);
        assert_eq!(seen, [0.0, 0.02, 0.03, 0.05]);
    }

    #[test]
    fn a_schedule_by_round_trip_time_knows_the_delays() {
        let delays = [0.03, 0.01, 0.02].map(|delay| Delay { up: delay, down: delay });
        let plan = plan("lowest-rtt", "1p", 3, Mode::Together).delayed(delays.into()).unwrap();
        assert!(assigned(&plan, LOAD).iter().all(|&path| path == 1));
    }

    #[test]
    fn each_mistake_has_its_own_error() {
        let new = |schedule: &str, paths| {
            let split = (schedule.parse().unwrap(), "1p".parse().unwrap());
            TraceSplit::new(split.0, split.1, paths, Mode::Together, 1).map(drop)
        };
        assert_eq!(new("uniform", 0), Err(TraceError::Paths(0)));
        assert_eq!(new("weights:0,0", 2), Err(TraceError::Spec(SpecError::NoWeight)));
        let plan = plan("uniform", "1p", 2, Mode::Together);
        let slow = |up| Delay { up, down: 0.0 };
        let delayed = |delays: &[Delay]| plan.clone().delayed(delays.into()).map(drop);
        assert_eq!(delayed(&[slow(0.0)]), Err(TraceError::Delays(1, 2)));
        assert_eq!(delayed(&[slow(0.0), slow(-1.0)]), Err(TraceError::Delay(1)));
        let assign = |times: &[f64], sizes: &[i32]| {
            plan.assign(LOAD, times, sizes, &mut vec![0; times.len()])
        };
        assert_eq!(assign(&[0.0], &[]), Err(TraceError::Lengths(1, 0)));
        assert_eq!(assign(&[0.0, f64::NAN], &[1, 1]), Err(TraceError::Time(1)));
        assert_eq!(assign(&[1.0, 0.5], &[1, 1]), Err(TraceError::Unsorted(1)));
        assert_eq!(assign(&[1.0, 1.5], &[1, 0]), Err(TraceError::Size(1)));
        assert_eq!(assign(&[], &[]), Ok(()));
    }
}
