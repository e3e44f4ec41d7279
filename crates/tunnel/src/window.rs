//! How much may be under way on one path: a window from what the other end says has arrived.
//!
//! Rate and delay make the window, as in BBR (draft-ietf-ccwg-bbr), and not losses: nothing is sent
//! again between the ends, so every loss that a controller provokes to find its limit is one that
//! the tunnel's own TCP pays for, on each path anew. Delivery rates are taken as
//! draft-cheng-iccrg-delivery-rate-estimation has them. Packets are paced by the
//! path's [`Capacity`], once that is known: a burst must not overflow the path's queue.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::{LegView, PathView, Time};

use crate::capacity::{Capacity, Train};

/// The window before anything is known, in bytes.
const INITIAL: f64 = 32.0 * 1_400.0;
/// The least window, in packets.
const LEAST: f64 = 4.0;
/// The window in products of rate and delay: while it is sought, and round after round afterwards.
/// One round looks for more, the next one lets the queue of that drain.
const SEEK: f64 = 3.0;
const CRUISE: [f64; 8] = [1.25, 0.85, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// A search for more fills a queue of at most this time: shallow queues hold hardly more.
const PROBE: Duration = Duration::from_millis(10);
/// The rate of the best of so many rounds counts.
const ROUNDS: u64 = 10;
/// The search ends after so many rounds in which the rate did not grow by a quarter.
const FLAT: u32 = 3;
/// The search ends, and a rate counts for less, where a round lost more than this.
const LOSSY: f64 = 0.02;
const LESS: f64 = 0.9;
/// The search ends where a round's least delay is longer than the least by a sixteenth and this.
const LONGER: Duration = Duration::from_millis(2);
/// How long a least delay counts, at least; at most twice as long.
const SPAN: Duration = Duration::from_secs(10);
/// What a path's round trip takes as long as nothing is known of it (RFC 9002, 6.2.2).
const UNKNOWN: Duration = Duration::from_millis(333);
/// What nothing was heard of for so long, or for three round trips, is lost.
const GIVE_UP: Duration = Duration::from_secs(1);
/// An acknowledgement is sent after so many packets, or so long after the first of them.
pub(crate) const STEP: u32 = 16;
pub(crate) const DELAY: Duration = Duration::from_millis(5);

/// What the other end says has arrived by a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// The lowest bits of the greatest number.
    pub(crate) largest: u32,
    /// The lowest bits of how many packets came in all.
    pub(crate) count: u32,
    /// How long ago the one with the greatest number came, in microseconds.
    pub(crate) ago: u32,
    /// Microseconds from the first arrival after the last receipt to the one with the greatest
    /// number.
    pub(crate) span: u32,
}

/// A packet under way.
struct Sent {
    number: u64,
    at: Time,
    bytes: u32,
    /// What had been delivered by then, when, and when the last one of that had been sent.
    delivered: f64,
    delivered_at: Time,
    first_at: Time,
    /// Whether the window was full lately: the rate is the path's, not the program's.
    pressed: bool,
}

/// One path's window.
pub(crate) struct Window {
    sent: VecDeque<Sent>,
    inflight: u64,
    /// Packets that arrived, as the other end has counted them.
    count: u32,
    /// Bytes that arrived, when the last did, and when that had been sent.
    delivered: f64,
    delivered_at: Time,
    first_at: Time,
    full_at: Option<Time>,
    rates: VecDeque<(u64, f64)>,
    round: Round,
    srtt: Option<Duration>,
    least: Least,
    /// The search: the best rate and for how many rounds it has not grown; `None` when it is over.
    search: Option<(f64, u32)>,
    /// The round from which a loss counts again.
    cut: u64,
    capacity: Capacity,
}

/// Packets between one that is sent and its acknowledgement.
#[derive(Clone, Copy, Default)]
struct Round {
    number: u64,
    /// It ends with the first packet that was sent when so much had been delivered.
    ends: f64,
    least: Option<Duration>,
    sent: u32,
    lost: i64,
    pressed: bool,
}

/// The least round-trip time of the present span and of the one before.
#[derive(Clone, Copy, Default)]
struct Least {
    spans: [Option<Duration>; 2],
    until: Time,
}

impl Least {
    fn note(&mut self, now: Time, rtt: Duration) {
        if now >= self.until {
            (self.spans, self.until) = ([None, self.spans[0]], now + SPAN);
        }
        self.spans[0] = Some(self.spans[0].map_or(rtt, |least| least.min(rtt)));
    }

    fn get(&self) -> Option<Duration> {
        self.spans.iter().flatten().min().copied()
    }
}

impl Default for Window {
    fn default() -> Window {
        Window {
            sent: VecDeque::new(),
            inflight: 0,
            count: 0,
            delivered: 0.0,
            delivered_at: Time::ZERO,
            first_at: Time::ZERO,
            full_at: None,
            rates: VecDeque::new(),
            round: Round::default(),
            srtt: None,
            least: Least::default(),
            search: Some((0.0, 0)),
            cut: 0,
            capacity: Capacity::default(),
        }
    }
}

impl Window {
    /// A packet with this number leaves.
    pub(crate) fn sent(&mut self, now: Time, number: u64, bytes: usize) {
        if self.sent.is_empty() {
            (self.delivered_at, self.first_at) = (now, now);
        }
        let bytes = bytes as u32;
        self.inflight += u64::from(bytes);
        self.capacity.sent(now, f64::from(bytes));
        if self.window_room() == 0 {
            self.full_at = Some(now);
        }
        let lately = self.srtt.unwrap_or(GIVE_UP);
        let pressed = self.full_at.is_some_and(|full| now.since(full) <= lately);
        let (delivered, delivered_at) = (self.delivered, self.delivered_at);
        let first_at = self.first_at;
        self.sent.push_back(Sent {
            number,
            at: now,
            bytes,
            delivered,
            delivered_at,
            first_at,
            pressed,
        });
    }

    /// The other end has told what arrived.
    pub(crate) fn acknowledged(&mut self, now: Time, receipt: Receipt) {
        let fresh = receipt.count.wrapping_sub(self.count).cast_signed();
        let place = self.sent.iter().position(|sent| sent.number as u32 == receipt.largest);
        let known = place.map_or(0, |place| place + 1);
        // What was taken for lost may come late, but nothing comes that was not sent.
        if fresh <= 0 || place.is_none() && !self.is_past(receipt.largest) {
            return;
        }
        self.count = receipt.count;
        let Some(last) = place.map(|place| &self.sent[place]) else {
            self.round.lost -= i64::from(fresh);
            return;
        };
        let (at, pressed) = (last.at, last.pressed);
        let began = (last.delivered, last.delivered_at, last.first_at);
        let first = self.sent[known.saturating_sub(fresh as usize)].at;
        let bytes: u64 = self.sent.drain(..known).map(|sent| u64::from(sent.bytes)).sum();
        self.capacity.note(&Train {
            packets: fresh.unsigned_abs(),
            bytes: bytes as f64 / known as f64,
            sent: at.since(first),
            arrived: Duration::from_micros(receipt.span.into()),
        });
        self.inflight -= bytes;
        self.delivered += bytes as f64 * (f64::from(fresh) / known as f64).min(1.0);
        self.round.lost += known as i64 - i64::from(fresh);
        self.round.sent += known as u32;
        let came = Time::from_nanos(now.nanos().saturating_sub(u64::from(receipt.ago) * 1_000));
        (self.delivered_at, self.first_at) = (came.max(self.delivered_at), at);
        self.note_delay(now, came.since(at));
        self.note_rate(began, at, pressed);
        if began.0 >= self.round.ends {
            self.end_round();
        }
    }

    /// Whether a packet with this number is none that is under way, but one before those.
    fn is_past(&self, largest: u32) -> bool {
        let Some(first) = self.sent.front() else { return true };
        largest.wrapping_sub(first.number as u32).cast_signed() < 0
    }

    fn note_delay(&mut self, now: Time, rtt: Duration) {
        self.least.note(now, rtt);
        self.srtt = Some(self.srtt.map_or(rtt, |srtt| (srtt * 7 + rtt) / 8));
        let least = self.round.least;
        self.round.least = Some(least.map_or(rtt, |least| least.min(rtt)));
    }

    /// Of a packet sent at `at`, when so much had been delivered, the last of it then and then.
    fn note_rate(&mut self, (delivered, came, sent): (f64, Time, Time), at: Time, pressed: bool) {
        let took = self.delivered_at.since(came).max(at.since(sent));
        if took < self.least.get().unwrap_or_default() / 2 || took.is_zero() {
            return;
        }
        let rate = (self.delivered - delivered) / took.as_secs_f64();
        self.round.pressed |= pressed;
        if !pressed && rate < self.rate() {
            return;
        }
        while self.rates.back().is_some_and(|(_, before)| *before <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round.number, rate));
        while self.rates.front().is_some_and(|(round, _)| round + ROUNDS < self.round.number) {
            self.rates.pop_front();
        }
    }

    fn end_round(&mut self) {
        let round = std::mem::take(&mut self.round);
        let number = round.number + u64::from(round.pressed);
        self.round = Round { number, ends: self.delivered, ..Round::default() };
        let lossy = round.lost as f64 > f64::from(round.sent) * LOSSY + 2.0;
        // Once in a cycle, so that losses by chance do not close it.
        if lossy && number >= self.cut {
            self.cut = number + CRUISE.len() as u64;
            self.rates.iter_mut().for_each(|(_, rate)| *rate *= LESS);
        }
        self.go_on_searching(&round, lossy);
    }

    fn go_on_searching(&mut self, round: &Round, lossy: bool) {
        let (rate, Some((best, flat))) = (self.rate(), self.search) else { return };
        let least = self.least.get().unwrap_or_default();
        let queued = round.least.is_some_and(|rtt| rtt > least + least / 16 + LONGER);
        // Losses by chance: paced packets that do not use the capacity up overflow no queue.
        let below = self.capacity.limit().is_some_and(|limit| rate < 0.9 * limit);
        self.search = match () {
            () if queued || lossy && !below => None,
            () if rate >= best * 1.25 => Some((rate, 0)),
            () if !round.pressed => Some((best, flat)),
            () if flat + 1 >= FLAT => None,
            () => Some((best, flat + 1)),
        };
    }

    /// Bytes a second.
    fn rate(&self) -> f64 {
        self.rates.front().map_or(0.0, |(_, rate)| *rate)
    }

    /// Bytes that the path holds without a queue.
    fn product(&self) -> Option<f64> {
        let product = self.rate() * self.least.get()?.as_secs_f64();
        (product > 0.0).then_some(product)
    }

    /// The least round-trip time of the last 10 to 20 s.
    pub(crate) fn least_rtt(&self) -> Option<Duration> {
        self.least.get()
    }

    /// Bytes that may be under way.
    fn size(&self) -> f64 {
        let unit = self.unit();
        let Some(product) = self.product() else { return INITIAL };
        // Acknowledgements come late: what they stand for is under way as well.
        let late = (self.rate() * DELAY.as_secs_f64()).min(f64::from(STEP) * unit);
        if self.search.is_some() {
            let sought = (SEEK * product + late).max(INITIAL);
            let bound = self.bound().map(|bound| (bound + late + 2.0 * unit).max(INITIAL));
            return bound.map_or(sought, |bound| sought.min(bound));
        }
        let gain = CRUISE[(self.round.number % CRUISE.len() as u64) as usize];
        let probed = ((gain - 1.0) * product).min(self.rate() * PROBE.as_secs_f64());
        (product + probed + late + 2.0 * unit).max(LEAST * unit)
    }

    /// Bytes that the path takes during the search: what it holds at its capacity, and a queue of a
    /// quarter of that, at most [`PROBE`].
    fn bound(&self) -> Option<f64> {
        let (rate, least) = self.capacity.limit().zip(self.least.get())?;
        Some(rate * (least + (least / 4).min(PROBE)).as_secs_f64())
    }

    /// Bytes of a packet, on average.
    fn unit(&self) -> f64 {
        let packets = self.sent.len() as f64;
        if packets < 1.0 { 1_400.0 } else { self.inflight as f64 / packets }
    }

    /// Packets that the window has room for.
    fn window_room(&self) -> u64 {
        ((self.size() - self.inflight as f64) / self.unit()).max(0.0) as u64
    }

    /// Packets that may leave now.
    fn room(&self, now: Time) -> u64 {
        let unit = self.unit();
        self.window_room().min((self.capacity.room(now, unit) / unit) as u64)
    }

    /// As a scheduler sees it; `rtt` is what else is known of the path's delay.
    pub(crate) fn view(&self, now: Time, rtt: Option<Duration>, current: bool) -> PathView {
        let (unit, rtt) = (self.unit(), self.srtt.or(rtt).unwrap_or(UNKNOWN));
        let leg = LegView {
            least_rtt: self.least.get().unwrap_or(rtt),
            size: (self.size() / unit) as u64,
            inflight: self.sent.len() as u64,
            step: STEP.into(),
            bdp: (self.product().unwrap_or_default() / unit) as u64,
            queued: 0,
            slow_start: self.search.is_some(),
            current,
            turn: 0,
            capacity: self.capacity.rate().map_or(0, |rate| (rate / unit) as u64),
            limit: self.capacity.limit().map_or(0, |rate| (rate / unit) as u64),
            link: None,
        };
        PathView::leg(Some(rtt), self.room(now), leg)
    }

    /// Gives up what nothing is heard of. Whether there was such.
    pub(crate) fn expire(&mut self, now: Time) -> bool {
        self.capacity.on_time(now);
        let over = self.given_up_at().is_some_and(|due| now >= due);
        if over {
            // The count goes on: it is the other end's.
            *self = Window { count: self.count, srtt: self.srtt, ..Window::default() };
        }
        over
    }

    /// When [`Window::expire`] has something to do, or pacing allows packets again.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        [self.given_up_at(), self.capacity.opens()].into_iter().flatten().min()
    }

    fn given_up_at(&self) -> Option<Time> {
        let heard = self.sent.front()?.at.max(self.delivered_at);
        Some(heard + GIVE_UP.max(self.srtt.unwrap_or_default() * 3))
    }
}

/// What came by one path, to be told.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    count: u32,
    largest: u64,
    came: Time,
    untold: u32,
    /// When the first of the untold ones came.
    first: Time,
    due: Option<Time>,
}

impl Tally {
    /// A packet came that is to be acknowledged.
    pub(crate) fn note(&mut self, now: Time, number: u64) {
        self.count = self.count.wrapping_add(1);
        if number >= self.largest {
            (self.largest, self.came) = (number, now);
        }
        if self.untold == 0 {
            self.first = now;
        }
        self.untold += 1;
        self.due.get_or_insert(now + DELAY);
        if self.untold >= STEP {
            self.due = Some(now);
        }
    }

    /// What is to be told now.
    pub(crate) fn take(&mut self, now: Time) -> Option<Receipt> {
        self.due.take_if(|due| *due <= now)?;
        self.untold = 0;
        let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let (ago, span) = (micros(now.since(self.came)), micros(self.came.since(self.first)));
        Some(Receipt { largest: self.largest as u32, count: self.count, ago, span })
    }

    /// When [`Tally::take`] gives something.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const BYTES: usize = 1_400;

    /// A path of 28 Mbit/s (a packet each 400 µs) and 20 ms each way, with a queue of so many
    /// packets, whose window is always used up.
    struct Path {
        window: Window,
        tally: Tally,
        now: Time,
        number: u64,
        /// When each packet that is under way comes, and acknowledgements.
        forth: VecDeque<(Time, u64)>,
        back: VecDeque<(Time, Receipt)>,
        free: Time,
        queue: u64,
        arrived: u64,
        lost: u64,
        /// Both ends share a core: they take turns of this length. `None`: a core for each.
        shift: Option<Duration>,
    }

    const EACH: Duration = Duration::from_micros(400);

    impl Path {
        fn new(queue: u64) -> Path {
            Path {
                window: Window::default(),
                tally: Tally::default(),
                now: Time::from_secs(1),
                number: 0,
                forth: VecDeque::new(),
                back: VecDeque::new(),
                free: Time::ZERO,
                queue,
                arrived: 0,
                lost: 0,
                shift: None,
            }
        }

        /// Whether the sending (0) or the receiving end (1) runs now.
        fn runs(&self, end: u128) -> bool {
            let at = Duration::from_nanos(self.now.nanos());
            self.shift.is_none_or(|shift| at.as_micros() / shift.as_micros() % 2 == end)
        }

        /// For so long; one packet in `lossy` is lost on the way (0: none).
        fn run(&mut self, time: Duration, lossy: u64) {
            let end = self.now + time;
            while self.now < end {
                if self.runs(0) {
                    while self.window.room(self.now) > 0 {
                        self.send(lossy);
                    }
                }
                if self.runs(1) {
                    self.receive();
                }
                if self.runs(0) {
                    self.hear();
                }
                self.now += MS / 10;
            }
        }

        fn receive(&mut self) {
            while let Some((_, number)) = self.forth.pop_front_if(|(at, _)| *at <= self.now) {
                self.arrived += 1;
                self.tally.note(self.now, number);
            }
            if let Some(receipt) = self.tally.take(self.now) {
                self.back.push_back((self.now + MS * 20, receipt));
            }
        }

        fn hear(&mut self) {
            while let Some((_, receipt)) = self.back.pop_front_if(|(at, _)| *at <= self.now) {
                self.window.acknowledged(self.now, receipt);
            }
            self.window.expire(self.now);
        }

        fn send(&mut self, lossy: u64) {
            self.window.sent(self.now, self.number, BYTES);
            self.number += 3;
            let waits = self.free.since(self.now).as_micros() / EACH.as_micros();
            let is_lost = lossy > 0 && self.number.is_multiple_of(lossy * 3);
            if is_lost || waits as u64 >= self.queue {
                self.lost += 1;
                return;
            }
            self.free = self.free.max(self.now) + EACH;
            self.forth.push_back((self.free + MS * 20, self.number - 3));
        }

        /// Packets a second that arrive in so long.
        fn rate(&mut self, time: Duration, lossy: u64) -> f64 {
            let before = self.arrived;
            self.run(time, lossy);
            (self.arrived - before) as f64 / time.as_secs_f64()
        }
    }

    #[test]
    fn it_finds_the_rate_of_a_path_and_leaves_its_queue_alone() {
        let mut path = Path::new(100);
        path.run(MS * 1_500, 0);
        path.lost = 0;
        let rate = path.rate(MS * 8_000, 0);
        assert!(rate > 2_500.0 * 0.97, "{rate} of 2,500");
        assert_eq!(path.lost, 0);
        let view = path.window.view(path.now, None, false);
        assert!((95..=110).contains(&view.leg.bdp), "{view:?}");
        assert!(view.rtt.unwrap() < MS * 60, "{view:?}");
    }

    #[test]
    fn losses_by_chance_do_not_close_it() {
        for (one_in, least) in [(100, 0.9), (20, 0.7)] {
            let mut path = Path::new(100);
            path.run(MS * 2_000, one_in);
            let rate = path.rate(MS * 5_000, one_in) / (1.0 - 1.0 / one_in as f64);
            assert!(rate > 2_500.0 * least, "one in {one_in}: {rate} of 2,500");
        }
    }

    #[test]
    fn ends_that_have_to_wait_for_a_core_do_not_close_it() {
        for shift in [2, 5, 10, 15] {
            let mut path = Path::new(100);
            path.shift = Some(MS * shift);
            path.run(MS * 3_000, 0);
            let rate = path.rate(MS * 8_000, 0);
            assert!(rate > 2_500.0 * 0.9, "{shift} ms each: {rate} of 2,500");
        }
    }

    #[test]
    fn nothing_heard_opens_it_again_after_a_second() {
        let mut path = Path::new(100);
        path.run(MS * 500, 0);
        path.forth.clear();
        path.run(MS * 900, 1);
        let receipts = path.window.count;
        assert_eq!(path.window.room(path.now), 0);
        path.run(MS * 200, 1);
        assert_eq!(path.window.count, receipts);
        assert_eq!(path.window.sent.len(), 32, "what was under way is given up");
        path.run(MS * 1_500, 0);
        assert!(path.rate(MS * 1_000, 0) > 2_400.0, "and it goes on");
    }

    #[test]
    fn receipts_that_cannot_be_are_not_believed() {
        let mut window = Window::default();
        (0..5).for_each(|number| window.sent(Time::from_secs(1), number, BYTES));
        let now = Time::from_secs(2);
        for receipt in [
            Receipt { largest: 9, count: 1, ago: 0, span: 0 },
            Receipt { largest: 4, count: 0, ago: 0, span: 0 },
            Receipt { largest: 4, count: u32::MAX, ago: 0, span: 0 },
        ] {
            window.acknowledged(now, receipt);
            assert_eq!(window.sent.len(), 5, "{receipt:?}");
        }
        window.acknowledged(now, Receipt { largest: 4, count: 1 << 30, ago: u32::MAX, span: 0 });
        assert!(window.size().is_finite() && window.size() < 1e6, "{}", window.size());
    }

    #[test]
    fn a_tally_is_told_after_sixteen_packets_or_five_milliseconds() {
        let (mut tally, start) = (Tally::default(), Time::from_secs(1));
        tally.note(start, 7);
        assert_eq!((tally.take(start + MS * 4), tally.due()), (None, Some(start + DELAY)));
        let told = tally.take(start + MS * 6);
        assert_eq!(told, Some(Receipt { largest: 7, count: 1, ago: 6_000, span: 0 }));
        (0..16).for_each(|number| tally.note(start + MS * 7, 10 + number));
        assert!(tally.take(start + MS * 7).is_some_and(|told| told.count == 17));
        assert_eq!(tally.due(), None);
    }
}
