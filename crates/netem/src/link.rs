//! One direction of a link.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_multipath::seed::{self, Stream};
use rand::RngExt;

use crate::loss::LossState;
use crate::{Count, Counters, LinkSettings};
use anabranch_multipath::codel::{Law, Queue};

/// One direction of a network link that carries units of type `T`.
///
/// Times passed to the link must not decrease. The link's behaviour depends only on its settings,
/// its seed and the calls.
#[derive(Clone, Debug)]
pub struct Link<T> {
    settings: LinkSettings,
    dice: LossState,
    jitter: Stream,
    law: Law,
    /// Size in bytes of the largest unit (such as a packet) that the queue has accepted. CoDel
    /// uses it in place of the MTU if the link has no MTU.
    largest: usize,
    counters: Counters,
    /// Queue of units (such as packets). The first unit is being sent; the others wait.
    queue: VecDeque<Queued<T>>,
    queued_bytes: usize,
    /// Time at which the last bit of the first queued unit (such as a packet) leaves for the wire.
    head_leaves: Time,
    /// Units that have been sent and have not arrived yet, ordered by arrival time and then by the
    /// order of sending.
    flight: BTreeMap<(Time, u64), InFlight<T>>,
    departures: u64,
    last_arrival: Time,
}

/// The reason why a link did not accept a unit (such as a packet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkDrop {
    /// The loss rule selected the unit (such as a packet).
    Lost,
    /// The queue is full.
    QueueFull,
    /// The unit (such as a packet) is larger than the MTU.
    TooBig,
    /// The link is down.
    Down,
}

impl fmt::Display for LinkDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkDrop::Lost => "lost",
            LinkDrop::QueueFull => "the queue is full",
            LinkDrop::TooBig => "larger than the MTU",
            LinkDrop::Down => "the link is down",
        })
    }
}

impl std::error::Error for LinkDrop {}

/// A unit (such as a packet) that has been sent and has not arrived yet.
#[derive(Clone, Debug)]
struct InFlight<T> {
    load: T,
    bytes: usize,
}

/// A unit (such as a packet) that waits to be sent. A unit that the loss rule selected takes as
/// much room in the queue as any other unit, but its `load` is `None`.
#[derive(Clone, Debug)]
struct Queued<T> {
    load: Option<T>,
    bytes: usize,
    queued_at: Time,
    /// The unit's random position in the distribution of delays, in `0.0..1.0`: the share of units
    /// (such as packets) that have a shorter delay.
    jitter: f64,
}

/// The random numbers drawn for a unit (such as a packet). They are drawn for each unit that
/// enters, even if the queue does not accept the unit. Otherwise, the numbers of later units would
/// depend on the state of the queue.
#[derive(Clone, Copy, Debug)]
struct UnitDraws {
    lost: bool,
    jitter: f64,
}

impl<T> Link<T> {
    /// Creates one direction of a link. The direction's random numbers depend on `seed` and on the
    /// identifier `entity`. The two directions of a link must have different identifiers.
    pub fn new(settings: LinkSettings, seed: u64, entity: u64) -> Link<T> {
        Link {
            dice: LossState::new(settings.loss.clone(), seed, entity),
            jitter: seed::stream(seed, entity, "link jitter"),
            law: Law::default(),
            largest: 0,
            settings,
            counters: Counters::default(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            head_leaves: Time::ZERO,
            flight: BTreeMap::new(),
            departures: 0,
            last_arrival: Time::ZERO,
        }
    }

    /// Sends `load`, which has `bytes` bytes.
    ///
    /// # Errors
    /// [`LinkDrop`] if it is already certain that the unit will not arrive. This includes a unit
    /// that the loss rule selects, although that unit still takes room in the queue and time to be
    /// sent. If CoDel drops the unit later, the link only counts the drop.
    pub fn push(&mut self, now: Time, load: T, bytes: usize) -> Result<(), LinkDrop> {
        self.advance(now);
        self.counters.entered.add(bytes);
        let draws = self.draw();
        let admitted = self.admit(bytes, draws);
        if let Err(cause) = admitted {
            self.counter_of(cause).add(bytes);
        }
        let load = match admitted {
            Ok(()) => Some(load),
            Err(LinkDrop::Lost) => None,
            Err(_) => return admitted,
        };
        self.enqueue(Queued { load, bytes, queued_at: now, jitter: draws.jitter });
        admitted
    }

    /// Removes and returns the unit (such as a packet) with the earliest arrival time. Returns
    /// `None` if no unit has arrived by `now`.
    pub fn pop(&mut self, now: Time) -> Option<T> {
        self.advance(now);
        let first = self.flight.first_entry().filter(|entry| entry.key().0 <= now)?;
        let unit = first.remove();
        self.counters.delivered.add(unit.bytes);
        Some(unit.load)
    }

    /// Returns the time at which to call [`pop`](Link::pop) again; `None` if nothing is in
    /// transit. The returned time is a lower bound: it is not later than the next arrival. If the
    /// time is earlier than the arrival, `pop` returns `None`, and this function must be called
    /// again.
    pub fn next_timeout(&self) -> Option<Time> {
        let flying = self.flight.first_key_value().map(|(&(arrival, _), _)| arrival);
        let shortest = self.delay(0.0);
        let queued = self.queue.front().map(|_| self.head_leaves + shortest);
        flying.into_iter().chain(queued).min()
    }

    /// Changes the settings from `now` on. A unit (such as a packet) that is being sent keeps the
    /// old rate, and units that were sent keep the old delay. If the link goes down, everything in
    /// transit is dropped.
    pub fn change(&mut self, now: Time, edit: impl FnOnce(&mut LinkSettings)) {
        self.advance(now);
        let codel = self.settings.codel;
        edit(&mut self.settings);
        if self.settings.codel != codel {
            self.law = Law::default();
        }
        self.dice.change(self.settings.loss.clone());
        if self.settings.down {
            self.cut();
        }
    }

    /// Returns the present settings.
    pub fn settings(&self) -> &LinkSettings {
        &self.settings
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the number of bytes in the queue, including the unit (such as a packet) that is
    /// being sent. The number is valid for the time that was last passed to the link.
    pub fn backlog(&self) -> usize {
        self.queued_bytes
    }

    fn draw(&mut self) -> UnitDraws {
        UnitDraws { lost: self.dice.loses_next(), jitter: self.jitter.random() }
    }

    fn admit(&self, bytes: usize, draws: UnitDraws) -> Result<(), LinkDrop> {
        if self.settings.down {
            return Err(LinkDrop::Down);
        }
        if bytes > self.settings.mtu {
            return Err(LinkDrop::TooBig);
        }
        let full = self.queued_bytes.saturating_add(bytes) > self.settings.queue;
        if full && !self.queue.is_empty() {
            return Err(LinkDrop::QueueFull);
        }
        if draws.lost { Err(LinkDrop::Lost) } else { Ok(()) }
    }

    fn counter_of(&mut self, cause: LinkDrop) -> &mut Count {
        match cause {
            LinkDrop::Lost => &mut self.counters.lost,
            LinkDrop::QueueFull => &mut self.counters.queue_full,
            LinkDrop::TooBig => &mut self.counters.too_big,
            LinkDrop::Down => &mut self.counters.down,
        }
    }

    fn enqueue(&mut self, queued: Queued<T>) {
        if self.queue.is_empty() {
            // The queue is empty, so the unit reaches the wire at once, and no unit waits too
            // long.
            self.law.empty();
            self.head_leaves = queued.queued_at + self.settings.serialization(queued.bytes);
        }
        self.largest = self.largest.max(queued.bytes);
        self.queued_bytes += queued.bytes;
        self.queue.push_back(queued);
    }

    /// Moves the units (such as packets) that have been sent completely by `now` from the queue to
    /// the units in flight.
    fn advance(&mut self, now: Time) {
        while self.head_leaves <= now {
            let Some(queued) = self.take_head() else { return };
            self.depart(queued);
            self.drop_old();
            if let Some(next) = self.queue.front() {
                self.head_leaves += self.settings.serialization(next.bytes);
            }
        }
    }

    fn take_head(&mut self) -> Option<Queued<T>> {
        let queued = self.queue.pop_front()?;
        self.queued_bytes -= queued.bytes;
        Some(queued)
    }

    /// Drops queued units (such as packets) as CoDel prescribes, at the time at which the previous
    /// unit left the queue.
    fn drop_old(&mut self) {
        let Some(rule) = &self.settings.codel else { return };
        let backlog = Queue {
            units: self.queue.iter().map(|queued| (queued.queued_at, queued.bytes)),
            bytes: self.queued_bytes,
            max_unit: if self.settings.mtu == usize::MAX {
                self.largest
            } else {
                self.settings.mtu
            },
        };
        let drops = self.law.drops(rule, self.head_leaves, backlog);
        for queued in (0..drops).map_while(|_| self.take_head()).collect::<Vec<_>>() {
            // A unit lost by the loss rule was already counted when it entered.
            if queued.load.is_some() {
                self.counters.codel.add(queued.bytes);
            }
        }
    }

    fn depart(&mut self, queued: Queued<T>) {
        let Some(load) = queued.load else { return };
        let mut arrival = self.head_leaves + self.delay(queued.jitter);
        if !self.settings.reorder {
            arrival = arrival.max(self.last_arrival);
        }
        self.last_arrival = self.last_arrival.max(arrival);
        self.flight.insert((arrival, self.departures), InFlight { load, bytes: queued.bytes });
        self.departures += 1;
    }

    fn delay(&self, place: f64) -> Duration {
        let LinkSettings { delay, jitter, law, .. } = self.settings;
        law.delay(delay, jitter, place)
    }

    fn cut(&mut self) {
        let queued = self.queue.drain(..).filter(|queued| queued.load.is_some());
        let flying = std::mem::take(&mut self.flight);
        for bytes in queued.map(|q| q.bytes).chain(flying.into_values().map(|unit| unit.bytes)) {
            self.counters.down.add(bytes);
        }
        self.queued_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loss;

    const MS: Duration = Duration::from_millis(1);

    fn link(settings: LinkSettings) -> Link<u32> {
        Link::new(settings, 5, 0)
    }

    /// Pushes unit `i` of `bytes` bytes at `i * gap`. Returns the arrivals: (time in ns, unit).
    fn trace(link: &mut Link<u32>, units: u32, bytes: usize, gap: Duration) -> Vec<(u64, u32)> {
        let mut seen = Vec::new();
        let mut next = Time::ZERO;
        for unit in 0..units {
            drain(link, next, &mut seen);
            let _ = link.push(next, unit, bytes);
            next += gap;
        }
        drain(link, Time::MAX, &mut seen);
        seen
    }

    fn drain(link: &mut Link<u32>, until: Time, seen: &mut Vec<(u64, u32)>) {
        while let Some(time) = link.next_timeout().filter(|&time| time <= until) {
            seen.extend(link.pop(time).map(|unit| (time.nanos(), unit)));
        }
    }

    fn on_the_way(link: &Link<u32>) -> u64 {
        let c = link.counters();
        let dropped = [c.lost, c.queue_full, c.too_big, c.down].map(|count| count.units);
        c.entered.units - c.delivered.units - dropped.iter().sum::<u64>()
    }

    #[test]
    fn units_follow_each_other_at_the_rate_and_arrive_after_the_delay() {
        let mut link =
            link(LinkSettings { delay: 10 * MS, ..LinkSettings::with_rate(100_000_000) });
        let seen = trace(&mut link, 4, 1500, Duration::ZERO);
        let expected = [10_120_000, 10_240_000, 10_360_000, 10_480_000];
        assert_eq!(seen.iter().map(|&(t, _)| t).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_idle_wire_does_not_save_up_credit() {
        let mut link = link(LinkSettings::with_rate(8_000_000));
        let seen = trace(&mut link, 3, 1000, 5 * MS);
        assert_eq!(seen, [(1_000_000, 0), (6_000_000, 1), (11_000_000, 2)]);
    }

    #[test]
    fn without_a_rate_the_delay_is_exact() {
        let mut link = link(LinkSettings { delay: 3 * MS, ..LinkSettings::default() });
        let seen = trace(&mut link, 3, 1000, MS);
        assert_eq!(seen, [(3_000_000, 0), (4_000_000, 1), (5_000_000, 2)]);
    }

    #[test]
    fn the_queue_holds_its_bytes_and_drops_the_tail() {
        let mut link = link(LinkSettings { queue: 3000, ..LinkSettings::with_rate(8_000_000) });
        let results = [0, 1, 2, 3].map(|unit| link.push(Time::ZERO, unit, 1000));
        assert_eq!(results, [Ok(()), Ok(()), Ok(()), Err(LinkDrop::QueueFull)]);
        // One unit has left after 1 ms, so there is room for one.
        assert_eq!(link.push(Time::from_millis(1), 4, 1000), Ok(()));
        assert_eq!(link.push(Time::from_millis(1), 5, 1000), Err(LinkDrop::QueueFull));
        assert_eq!(link.counters().queue_full, Count { units: 2, bytes: 2000 });
    }

    #[test]
    fn an_idle_link_takes_a_unit_larger_than_its_queue() {
        let mut link = link(LinkSettings { queue: 10, ..LinkSettings::with_rate(8_000_000) });
        assert_eq!(link.push(Time::ZERO, 0, 1000), Ok(()));
        assert_eq!(link.push(Time::ZERO, 1, 1), Err(LinkDrop::QueueFull));
    }

    #[test]
    fn only_units_up_to_the_mtu_pass() {
        let mut link = link(LinkSettings { mtu: 1500, ..LinkSettings::default() });
        assert_eq!(link.push(Time::ZERO, 0, 1500), Ok(()));
        assert_eq!(link.push(Time::ZERO, 1, 1501), Err(LinkDrop::TooBig));
    }

    #[test]
    fn jitter_stays_in_its_bounds_and_in_order() {
        let settings = LinkSettings { delay: 10 * MS, jitter: 4 * MS, ..LinkSettings::default() };
        let seen = trace(&mut link(settings), 2000, 100, MS);
        assert!(seen.iter().map(|&(_, unit)| unit).eq(0..2000));
        for (arrival, unit) in seen {
            let delay = arrival - u64::from(unit) * 1_000_000;
            assert!((6_000_000..=14_000_000).contains(&delay), "unit {unit}: {delay} ns");
        }
    }

    #[test]
    fn jitter_that_may_reorder_is_uniform_and_does_reorder() {
        let settings = LinkSettings {
            delay: 10 * MS,
            jitter: 4 * MS,
            reorder: true,
            ..LinkSettings::default()
        };
        let seen = trace(&mut link(settings), 20_000, 100, MS);
        let overtaken = seen.windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
        assert!(overtaken > 5_000, "{overtaken}");
        let delays = seen.iter().map(|&(t, unit)| (t - u64::from(unit) * 1_000_000) as f64 / 1e6);
        let mean = delays.sum::<f64>() / 20_000.0;
        // The standard error of the mean is 4 / sqrt(3 * 20,000) = 0.016 ms.
        assert!((mean - 10.0).abs() < 0.07, "{mean} ms");
    }

    #[test]
    fn lost_units_take_their_time_on_the_wire() {
        let loss = Loss::Script([0].into());
        let mut link = link(LinkSettings { loss, ..LinkSettings::with_rate(8_000_000) });
        assert_eq!(link.push(Time::ZERO, 0, 1000), Err(LinkDrop::Lost));
        assert_eq!(link.push(Time::ZERO, 1, 1000), Ok(()));
        assert_eq!(link.pop(Time::from_micros(1_999)), None);
        assert_eq!(link.pop(Time::from_micros(2_000)), Some(1));
        assert_eq!(link.counters().lost.units, 1);
    }

    #[test]
    fn a_unit_has_its_luck_whatever_became_of_those_before_it() {
        let loss = Loss::Bernoulli(0.2);
        let calm = LinkSettings {
            delay: 50 * MS,
            jitter: 40 * MS,
            reorder: true,
            loss,
            ..LinkSettings::default()
        };
        // For a second, four times as many units arrive as a slow wire takes. Some more units
        // arrive later, when the link is idle.
        let late = |trouble: LinkSettings| {
            let mut link = link(trouble);
            trace(&mut link, 4000, 1000, MS / 4);
            link.change(Time::from_secs(10), |settings| *settings = calm.clone());
            let after = (0..100).map(|unit| link.push(Time::from_secs(10), unit, 1000).is_ok());
            let lost: Vec<bool> = after.collect();
            let mut seen = Vec::new();
            drain(&mut link, Time::MAX, &mut seen);
            (lost, seen, *link.counters())
        };
        let slow = LinkSettings { rate: LinkSettings::with_rate(8_000_000).rate, ..calm.clone() };
        let codel = Some(crate::Codel::default());
        let (lost, seen, before) = late(calm.clone());
        assert_eq!(before.entered.units, before.delivered.units + before.lost.units);
        for (trouble, dropped) in [
            (
                LinkSettings { queue: 5_000, ..slow.clone() },
                (|c| c.queue_full) as fn(&Counters) -> Count,
            ),
            (LinkSettings { codel, ..slow }, |c| c.codel),
            (LinkSettings { mtu: 500, ..calm.clone() }, |c| c.too_big),
            (LinkSettings { down: true, ..calm.clone() }, |c| c.down),
            (LinkSettings { loss: Loss::None, jitter: Duration::ZERO, ..calm.clone() }, |c| {
                c.delivered
            }),
        ] {
            let (other_lost, other_seen, counters) = late(trouble);
            assert!(dropped(&counters).units > 20, "{counters:?}");
            assert_eq!((&other_lost, &other_seen), (&lost, &seen));
        }
    }

    #[test]
    fn a_cut_drops_what_is_on_the_way_and_what_comes_until_it_is_mended() {
        let mut link = link(LinkSettings { delay: 5 * MS, ..LinkSettings::with_rate(8_000_000) });
        assert!((0..3).all(|unit| link.push(Time::ZERO, unit, 1000).is_ok()));
        link.change(Time::from_millis(2), |settings| settings.down = true);
        assert_eq!(link.next_timeout(), None);
        assert_eq!(link.push(Time::from_millis(3), 3, 1000), Err(LinkDrop::Down));
        assert_eq!(link.counters().down, Count { units: 4, bytes: 4000 });
        link.change(Time::from_millis(9), |settings| settings.down = false);
        assert_eq!(link.push(Time::from_millis(9), 4, 1000), Ok(()));
        assert_eq!(link.pop(Time::from_millis(15)), Some(4));
    }

    #[test]
    fn a_new_rate_and_delay_hold_from_the_next_unit_on() {
        let mut link = link(LinkSettings { delay: 10 * MS, ..LinkSettings::with_rate(8_000_000) });
        assert!((0..2).all(|unit| link.push(Time::ZERO, unit, 1000).is_ok()));
        link.change(Time::from_micros(500), |settings| {
            settings.rate = LinkSettings::with_rate(80_000_000).rate;
            settings.delay = 2 * MS;
        });
        let mut seen = Vec::new();
        drain(&mut link, Time::MAX, &mut seen);
        // The first unit leaves at 1 ms, and the second unit 0.1 ms later.
        assert_eq!(seen, [(3_000_000, 0), (3_100_000, 1)]);
    }

    #[test]
    fn a_shorter_delay_does_not_reorder() {
        let mut link = link(LinkSettings { delay: 10 * MS, ..LinkSettings::default() });
        link.push(Time::ZERO, 0, 10).unwrap();
        link.change(Time::from_millis(1), |settings| settings.delay = MS);
        link.push(Time::from_millis(1), 1, 10).unwrap();
        let mut seen = Vec::new();
        drain(&mut link, Time::MAX, &mut seen);
        assert_eq!(seen, [(10_000_000, 0), (10_000_000, 1)]);
    }

    #[test]
    fn every_unit_is_accounted_for() {
        let loss = Loss::Bernoulli(0.1);
        let settings =
            LinkSettings { loss, queue: 5000, mtu: 900, ..LinkSettings::with_rate(8_000_000) };
        let mut link = link(settings);
        for unit in 0..1000u32 {
            let now = Time::from_micros(u64::from(unit) * 300);
            let _ = link.push(now, unit, (unit % 10) as usize * 100);
            link.pop(now);
        }
        assert!(on_the_way(&link) > 0);
        drain(&mut link, Time::MAX, &mut Vec::new());
        assert_eq!(on_the_way(&link), 0);
        assert_eq!(link.counters().entered, Count { units: 1000, bytes: 450_000 });
    }

    #[test]
    fn a_run_is_a_function_of_its_seed() {
        let settings = LinkSettings {
            delay: 5 * MS,
            jitter: 2 * MS,
            reorder: true,
            loss: Loss::Bernoulli(0.2),
            ..LinkSettings::with_rate(1_000_000)
        };
        let run =
            |seed, entity| trace(&mut Link::new(settings.clone(), seed, entity), 500, 300, MS);
        assert_eq!(run(1, 0), run(1, 0));
        assert_ne!(run(1, 0), run(2, 0));
        assert_ne!(run(1, 0), run(1, 1));
    }
}
