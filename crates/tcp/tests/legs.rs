//! Connections over several legs, and random losses, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::num::NonZeroU64;
use std::time::Duration;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::seed::stream;
use anabranch_multipath::{Assignment, Core as _, Every, PathView, Splitter, Time};
use anabranch_netem::{Link, LinkSettings, Loss};
use anabranch_tcp::{Config, Congestion, Connection, MAX_LEGS, Ports, Segment, Seq, Stats};

const MS: Duration = Duration::from_millis(1);
/// Bytes of an IPv4 header.
const IP: usize = 20;

/// A connection that downloads from its peer. Each leg is a link in each direction.
struct Net {
    now: Time,
    /// The sender and the receiver.
    ends: [Option<Connection>; 2],
    config: Config,
    links: [Vec<Link<Segment>>; 2],
    /// Number of segments with data that each leg has carried from the sender.
    carried: [u64; MAX_LEGS],
    schedule: Splitter,
    /// Legs on which nothing arrives any more.
    dead: u8,
    total: u64,
    written: u64,
    received: Vec<u8>,
}

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u8
}

impl Net {
    fn new(congestion: Congestion, legs: &[LinkSettings], seed: u64) -> Net {
        let config = Config {
            mss: 471,
            congestion,
            legs: legs.len(),
            paws: false,
            initial_window: 20,
            receive_buffer: 2 << 20,
            send_buffer: 2 << 20,
            ..Config::default()
        };
        let now = Time::from_secs(1);
        let ports = Ports { local: 1, remote: 2 };
        let link =
            |place: usize, side: u64| Link::new(legs[place].clone(), seed, place as u64 * 2 + side);
        let links = [0, 1].map(|side| (0..legs.len()).map(|place| link(place, side)).collect());
        let eta = Spec::over_windows("eta").unwrap();
        let dice = move |purpose: &str| stream(seed, 0, purpose);
        let every: Every = "1p".parse().unwrap();
        Net {
            now,
            ends: [Some(Connection::connect(now, &config, ports, Seq(7))), None],
            config,
            links,
            carried: [0; MAX_LEGS],
            schedule: Splitter::drawn(&eta, legs.len(), every, None, dice).unwrap(),
            dead: 0,
            total: 0,
            written: 0,
            received: Vec::new(),
        }
    }

    fn send(&mut self, end: usize) {
        let (now, schedule) = (self.now, &mut self.schedule);
        let mut choose =
            |views: &[PathView], waiting: u64| match schedule.assign(now, views, waiting) {
                Assignment::Send { path, .. } => Some(path.index()),
                _ => None,
            };
        while let Some(tcp) = &mut self.ends[end]
            && let Some((leg, segment)) = tcp.poll_by(now, &mut choose)
        {
            let length = segment.wire_length() + IP;
            if end == 0 && !segment.payload.is_empty() {
                self.carried[leg] += 1;
            }
            let _ = self.links[end][leg].push(now, segment, length);
        }
    }

    fn turn(&mut self) {
        for end in 0..2 {
            for leg in 0..self.links[end].len() {
                while let Some(segment) = self.links[end][leg].pop(self.now) {
                    if self.dead >> leg & 1 == 1 {
                        continue;
                    }
                    match &mut self.ends[1 - end] {
                        Some(tcp) => tcp.handle_by(self.now, leg, segment),
                        none => {
                            *none = Connection::accept(self.now, &self.config, Seq(9), &segment)
                        }
                    }
                }
            }
        }
        if let Some(tcp) = &mut self.ends[0] {
            while self.written < self.total {
                let piece = (self.total - self.written).min(16_384).min(tcp.room() as u64);
                let bytes: Vec<u8> = (self.written..self.written + piece).map(byte).collect();
                let taken = tcp.write(&bytes) as u64;
                self.written += taken;
                if taken == 0 {
                    break;
                }
            }
        }
        if let Some(tcp) = &mut self.ends[1] {
            tcp.read_all(&mut self.received);
        }
        (0..2).for_each(|end| self.send(end));
    }

    /// Runs for `span`, or until everything has arrived. Returns the duration.
    fn run(&mut self, span: Duration) -> Duration {
        let begun = self.now;
        self.turn();
        while self.received.len() < self.total as usize && self.now.since(begun) < span {
            let links = self.links.iter().flatten().filter_map(Link::next_timeout);
            let ends = self.ends.iter().flatten().filter_map(Connection::next_timeout);
            let next = links.chain(ends).min().expect("a transfer that is not over");
            self.now = self.now.max(next);
            self.turn();
        }
        assert!(self.received.iter().zip(0..).all(|(have, at)| *have == byte(at)));
        self.now.since(begun)
    }

    /// Downloads `total` bytes. Returns the duration.
    fn download(&mut self, total: u64) -> Duration {
        self.total = total;
        let elapsed = self.run(Duration::from_secs(600));
        assert_eq!(self.received.len() as u64, total, "after {elapsed:?}");
        elapsed
    }

    fn stats(&self) -> Stats {
        self.ends[0].as_ref().unwrap().stats()
    }

    fn rtt(&self) -> Duration {
        self.ends[0].as_ref().unwrap().view(self.now).rtt
    }
}

fn leg(megabits: u64, delay: u32, loss: f64) -> LinkSettings {
    let loss = if loss > 0.0 { Loss::Bernoulli(loss) } else { Loss::None };
    let rate = NonZeroU64::new(megabits * 1_000_000);
    let queue = (megabits * 1_000_000 / 8 / 1_000 * u64::from(delay) * 2) as usize;
    LinkSettings {
        rate,
        delay: MS * delay,
        queue: queue.max(20_000),
        loss,
        ..LinkSettings::default()
    }
}

/// Returns the goodput of a download of 4 MiB, in Mbit/s.
fn goodput(net: &mut Net) -> f64 {
    let bytes = 4 << 20;
    bytes as f64 * 8.0 / 1e6 / net.download(bytes).as_secs_f64()
}

#[test]
fn random_losses_do_not_slow_bbr_down_as_they_do_cubic() {
    // Loss rates, and the minimum share of the rate that BBR gets. Headers take 12 % of each
    // packet.
    for (loss, share) in [(0.0, 0.7), (0.01, 0.65), (0.03, 0.6), (0.14, 0.4)] {
        let of = |congestion| goodput(&mut Net::new(congestion, &[leg(20, 20, loss)], 4)) / 20.0;
        let (bbr, cubic) = (of(Congestion::BBR), of(Congestion::CUBIC));
        println!("{loss}: BBR {bbr:.3}, CUBIC {cubic:.3} of the rate");
        assert!(bbr > share, "{loss}: {bbr}");
        assert!(loss < 0.02 || bbr > 4.0 * cubic, "{loss}: {bbr} and {cubic}");
    }
}

#[test]
fn bbr_leaves_the_queue_short() {
    let mut net = Net::new(Congestion::BBR, &[leg(10, 20, 0.0)], 1);
    net.total = 64 << 20;
    net.run(Duration::from_secs(8));
    // A full queue would add 40 ms.
    let rtt = net.rtt();
    assert!(rtt < 62 * MS, "{rtt:?}");
    assert!(net.stats().retransmitted < net.stats().sent / 20, "{:?}", net.stats());
}

#[test]
fn legs_together_have_the_sum_of_their_rates() {
    for (second, third) in [((10, 20), None), ((5, 60), None), ((10, 5), Some((10, 50)))] {
        let legs = [Some((10, 20)), Some(second), third];
        let legs: Vec<_> = legs.into_iter().flatten().collect();
        let sum: u64 = legs.iter().map(|(rate, _)| rate).sum();
        let settings: Vec<_> = legs.iter().map(|(rate, delay)| leg(*rate, *delay, 0.0)).collect();
        let mut net = Net::new(Congestion::BBR, &settings, 1);
        let share = goodput(&mut net) / sum as f64;
        println!("{legs:?}: {share:.3} of the rates, {:?}, {:?}", net.carried, net.stats());
        assert!(share > 0.6, "{legs:?}: {share} of the rates");
        let stats = net.stats();
        assert!(stats.retransmitted < stats.sent / 25, "delays do not look like losses: {stats:?}");
    }
}

#[test]
fn losses_on_one_leg_do_not_slow_the_other_down() {
    let settings = [leg(10, 20, 0.0), leg(10, 20, 0.05)];
    let share = goodput(&mut Net::new(Congestion::BBR, &settings, 1)) / 20.0;
    assert!(share > 0.6, "{share} of the rates");
}

#[test]
fn a_leg_that_closes_takes_nothing_with_it() {
    let settings = [leg(10, 20, 0.0), leg(10, 40, 0.0)];
    for closed in [0, 1] {
        let mut net = Net::new(Congestion::BBR, &settings, 1);
        net.total = 4 << 20;
        net.run(MS * 900);
        net.dead = 1 << closed;
        for end in net.ends.iter_mut().flatten() {
            end.set_legs(3 & !net.dead);
            end.answer_by(1 - closed);
        }
        let before = net.carried[closed];
        let elapsed = net.download(4 << 20);
        assert_eq!(net.carried[closed], before);
        assert!(elapsed < Duration::from_secs(6), "{closed}: {elapsed:?}");
    }
}

#[test]
fn a_leg_that_falls_silent_is_left_alone() {
    let settings = [leg(10, 20, 0.0), leg(10, 40, 0.0)];
    for silent in [0, 1] {
        let mut net = Net::new(Congestion::BBR, &settings, 1);
        net.total = 4 << 20;
        net.run(MS * 900);
        net.dead = 1 << silent;
        let elapsed = net.download(4 << 20);
        println!("{silent} silent: {elapsed:?}, {:?}", net.stats());
        assert!(elapsed < Duration::from_secs(15), "{silent}: {elapsed:?}");
    }
}

#[test]
fn segments_that_a_retransmission_overtook_count_without_paws() {
    let jitter = LinkSettings { jitter: MS * 15, reorder: true, ..leg(20, 20, 0.02) };
    let retransmitted = |paws| {
        let mut net = Net::new(Congestion::CUBIC, std::slice::from_ref(&jitter), 5);
        net.config.paws = paws;
        net.download(2 << 20);
        net.stats().retransmitted
    };
    let (without, with) = (retransmitted(false), retransmitted(true));
    println!("retransmitted: {without} without PAWS, {with} with it");
    assert!(without < with, "{without} and {with}");
}

#[test]
fn the_copy_of_a_first_segment_takes_another_leg() {
    let mut net = Net::new(Congestion::BBR, &[leg(10, 20, 0.0), leg(10, 30, 0.0)], 1);
    net.config.doubled = 400;
    let ports = Ports { local: 1, remote: 2 };
    net.ends[0] = Some(Connection::connect(net.now, &net.config, ports, Seq(7)));
    net.total = 400;
    net.run(MS * 60);
    assert_eq!((net.carried[0], net.carried[1]), (1, 1));
    assert_eq!((net.stats().copies, net.stats().retransmitted), (1, 0));
}
