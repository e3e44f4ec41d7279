//! The measurements of the experiment with unordered links, and their order.

use std::time::Duration;

use anabranch_multipath::seed;
use rand_chacha::rand_core::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::named::named;
use super::super::runner;

/// Approximate time to start a network and its circuits, for the estimate of the remaining time:
/// with our programs, and with C tor.
const STARTING: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(60)];
/// Total number of cells per second of all [`CELL_CIRCUITS`] circuits on a single link.
pub const CELL_RATE: u32 = 200;
/// Number of circuits on a single link. Their cells take turns, at [`CELL_RATE`] cells per second
/// in total.
pub const CELL_CIRCUITS: u32 = 10;

/// Kind of link that is measured, and the relays that use it. Ordered links deliver cells in the
/// order of sending; unordered links deliver each cell when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Arm {
    /// Downloads through C tor, with ordered links.
    Stock,
    /// Downloads through our relays, with ordered links.
    Ordered,
    /// Downloads through our relays, with ordered links. A relay keeps cells in its own queue
    /// until the kernel has room (`--circuit-policy kist`).
    OrderedKist,
    /// Downloads through our relays, with unordered links between them.
    Unordered,
    /// Downloads through our relays, with unordered links. A relay keeps cells in its own queue
    /// until the kernel has room (`--circuit-policy kist`).
    UnorderedKist,
    /// Downloads through our relays, with QUIC links between them.
    Quic,
    /// Downloads through our relays, which open an ordered link for each circuit.
    PerCircuit,
    /// Downloads through our relays, with ordered links over MPTCP that use two network lines from
    /// middle to exit.
    Mptcp,
    /// Cells at a steady rate on a single unordered link, without relays.
    Cells,
}

/// Direction in which the last network line of the path loses segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Direction {
    /// From the middle to the exit, as in the FOCI 2013 paper. Lost segments carry requests, and
    /// acknowledgements of downloaded data.
    ToExit,
    /// From the exit to the middle. Lost segments carry downloaded data.
    FromExit,
}

/// TCP congestion control of the sending hosts' kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Congestion {
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR, version 1 in current kernels.
    Bbr,
}

/// Order in which a network line delivers segments whose delays differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SegmentOrder {
    /// The order in which segments were sent, whatever their delays.
    #[default]
    Kept,
    /// The order of arrival times: a segment with a short delay can overtake others, as with
    /// netem's normally distributed delay.
    Reordered,
}

/// Properties of the emulated network lines that connect the relays of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Line {
    /// Loss of TCP segments on the path's last network line, in percent.
    pub loss: u32,
    /// Direction in which the path's last network line loses segments.
    pub direction: Direction,
    /// Standard deviation of each network line's delay, in ms.
    pub deviation: u32,
    /// TCP congestion control of the senders.
    pub congestion: Congestion,
    /// Order in which a network line delivers segments whose delays differ.
    #[serde(default)]
    pub order: SegmentOrder,
}

/// The settings of the experiment with unordered links: kinds of links, network lines and
/// downloads.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Kinds of links, and programs, to measure.
    pub arms: Vec<Arm>,
    /// Losses on the path's last network line to measure, in percent.
    pub losses: Vec<u32>,
    /// Directions in which the path's last network line loses segments.
    pub directions: Vec<Direction>,
    /// Standard deviations of the network lines' delays, in ms.
    pub deviations: Vec<u32>,
    /// TCP congestion controls of the senders.
    pub congestions: Vec<Congestion>,
    /// Orders in which network lines deliver segments, for lines whose delay varies.
    pub orders: Vec<SegmentOrder>,
    /// Number of rounds (passes over all settings), each with its own random numbers.
    pub rounds: u32,
    /// Number of downloads that start at the same time.
    pub downloads: u32,
    /// Bytes of the shortest and of the longest download. The lengths of the other downloads are
    /// between these.
    pub lengths: [u32; 2],
    /// Time after which downloads are cut off, in seconds.
    pub cut: u32,
    /// Duration of the measurement of a single link, in seconds.
    pub seconds: u32,
    /// Seed of the order of measurements and of all random numbers.
    pub seed: u64,
}

/// One measurement of the experiment with unordered links.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    /// Kind of link that is measured, and the programs that use it. Ordered links deliver cells in
    /// the order of sending; unordered links deliver each cell when it arrives.
    pub arm: Arm,
    /// Properties of the emulated network lines that connect the relays of the path.
    pub line: Line,
    /// Index of the round (a pass over all settings), from 0.
    pub round: u32,
    lasts: Duration,
}

named!(Arm: Stock "stock", Ordered "tls", OrderedKist "tls-kist", Unordered "utls",
    UnorderedKist "utls-kist", Quic "quic", PerCircuit "tls-per-circuit", Mptcp "mptcp",
    Cells "cells");
named!(Direction: ToExit "to-exit", FromExit "from-exit");
named!(Congestion: Cubic "cubic", Bbr "bbr");
named!(SegmentOrder: Kept "kept", Reordered "reordered");

impl Arm {
    /// All kinds of links that are measured with downloads.
    pub const DOWNLOADS: [Arm; 8] = [
        Arm::Stock,
        Arm::Ordered,
        Arm::OrderedKist,
        Arm::Unordered,
        Arm::UnorderedKist,
        Arm::Quic,
        Arm::PerCircuit,
        Arm::Mptcp,
    ];
}

impl Line {
    /// Returns the name of this kind of network line in the plan. The name of a line that loses
    /// nothing does not contain a direction of loss.
    #[must_use]
    pub fn name(&self) -> String {
        let Line { loss, direction, deviation, congestion, order } = self;
        let order = if *order == SegmentOrder::Reordered { "-reordered" } else { "" };
        match loss {
            0 => format!("0/{deviation}{order}/{congestion}"),
            _ => format!("{loss}-{direction}/{deviation}{order}/{congestion}"),
        }
    }
}

impl Settings {
    /// Returns the settings that must not change when the experiment is resumed. Other settings,
    /// such as the number of rounds, may be increased.
    #[must_use]
    pub fn header(&self) -> Value {
        json!({
            "experiment": "unordered",
            "version": 1,
            "seed": self.seed,
            "downloads": self.downloads,
            "lengths": self.lengths,
            "cut": self.cut,
            "seconds": self.seconds,
        })
    }

    /// Returns all combinations of network line properties to measure, sorted.
    fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        for &congestion in &self.congestions {
            for &deviation in &self.deviations {
                for &order in &self.orders {
                    // With equal delays, no segment overtakes another.
                    if order == SegmentOrder::Reordered && deviation == 0 {
                        continue;
                    }
                    for &loss in &self.losses {
                        let ways = self.directions.iter().take(if loss == 0 { 1 } else { 2 });
                        let line =
                            |&direction| Line { loss, direction, deviation, congestion, order };
                        lines.extend(ways.map(line));
                    }
                }
            }
        }
        lines
    }

    /// Returns the measurement of `arm` (a kind of link) over the network line `line`. Returns
    /// `None` for [`Arm::Cells`] if the line would lose only acknowledgements, which is not
    /// measured.
    fn unit(&self, arm: Arm, line: Line, round: u32) -> Option<Unit> {
        let lasts = match arm {
            Arm::Cells if line.loss > 0 && line.direction == Direction::ToExit => return None,
            Arm::Cells => Duration::from_secs(u64::from(self.seconds) + 5),
            Arm::Stock => STARTING[1] + expected_duration(line),
            _ => STARTING[0] + expected_duration(line),
        };
        Some(Unit { arm, line, round, lasts })
    }
}

/// Returns the approximate duration of all downloads over the network line `line`.
fn expected_duration(line: Line) -> Duration {
    Duration::from_secs(match (line.loss, line.congestion) {
        (0..=1, _) | (_, Congestion::Bbr) => 15,
        _ => 100,
    })
}

impl Unit {
    /// Returns the seed of this measurement's random numbers, derived from `seed`. The seed
    /// differs between kinds of network lines and between rounds. All kinds of links have the same
    /// seed, and therefore equal downloads and the same random losses.
    #[must_use]
    pub fn seed(&self, seed: u64) -> u64 {
        seed::stream(seed, self.round.into(), &self.line.name()).next_u64()
    }

    fn order(&self, seed: u64) -> u64 {
        seed::stream(seed, 0, &runner::Unit::id(self)).next_u64()
    }
}

impl runner::Unit for Unit {
    fn id(&self) -> String {
        format!("{}/{}/{}", self.arm, self.line.name(), self.round)
    }

    fn lasts(&self) -> Duration {
        self.lasts
    }
}

/// Returns all measurements in the order of execution: round by round, each round shuffled.
/// Without the shuffle, a temporarily busy machine could disturb the same setting in all rounds.
#[must_use]
pub fn plan(settings: &Settings) -> Vec<Unit> {
    let (lines, mut units) = (settings.lines(), Vec::new());
    for round in 0..settings.rounds {
        let pairs = lines.iter().flat_map(|line| settings.arms.iter().map(move |arm| (arm, line)));
        let unit = |(&arm, &line): (&Arm, &Line)| settings.unit(arm, line, round);
        let mut of_round: Vec<Unit> = pairs.filter_map(unit).collect();
        // Each measurement has its own random number, so that adding settings does not change the
        // order of the others.
        of_round.sort_by_cached_key(|unit| unit.order(settings.seed));
        units.extend(of_round);
    }
    units
}

/// Returns the lengths in bytes of `count` downloads: a geometric progression from the shortest to
/// the longest.
#[must_use]
pub fn lengths(count: u32, [shortest, longest]: [u32; 2]) -> Vec<u32> {
    let ratio = f64::from(longest) / f64::from(shortest);
    let steps = f64::from(count.max(2) - 1);
    let length = |at| (f64::from(shortest) * ratio.powf(f64::from(at) / steps)).round() as u32;
    (0..count).map(length).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use super::super::super::runner::Unit as _;
    use super::*;

    pub(in super::super) fn settings() -> Settings {
        Settings {
            arms: Arm::ALL.to_vec(),
            losses: vec![0, 1, 5],
            directions: Direction::ALL.to_vec(),
            deviations: vec![0, 5, 10],
            congestions: Congestion::ALL.to_vec(),
            orders: vec![SegmentOrder::Kept],
            rounds: 10,
            downloads: 40,
            lengths: [10_000, 400_000],
            cut: 300,
            seconds: 60,
            seed: 1,
        }
    }

    #[test]
    fn the_usual_plan_has_every_arm_over_every_line_in_every_round() {
        let units = plan(&settings());
        // Lines without loss have no direction, and a single link loses in one direction only.
        assert_eq!(units.len(), 10 * 2 * 3 * (5 * 8 + 3));
        let ids: BTreeSet<_> = units.iter().map(|unit| unit.id()).collect();
        assert_eq!(ids.len(), units.len(), "each id once");
        assert!(units.is_sorted_by_key(|unit| unit.round));
        let one = plan(&Settings { arms: vec![Arm::Ordered], ..settings() });
        let mut all = units;
        all.retain(|unit| unit.arm == Arm::Ordered);
        assert_eq!(all, one, "the order of one arm does not depend on other arms");
    }

    #[test]
    fn arms_share_the_dice_of_a_line_and_round_and_no_two_lines_or_rounds_do() {
        let units = plan(&settings());
        let seeds: BTreeSet<_> = units.iter().map(|unit| unit.seed(1)).collect();
        assert_eq!(seeds.len(), 10 * 2 * 3 * 5);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for arm in Arm::ALL {
            assert_eq!(arm.name().parse(), Ok(*arm));
        }
        assert_eq!("from-exit".parse(), Ok(Direction::FromExit));
        let error = "reno".parse::<Congestion>().unwrap_err();
        assert_eq!(error, "`reno` is unknown; expected one of cubic, bbr");
    }

    #[test]
    fn lengths_grow_evenly_from_the_shortest_to_the_longest() {
        let all = lengths(40, [10_000, 400_000]);
        assert_eq!((all.len(), all[0], all[39]), (40, 10_000, 400_000));
        assert!(all.is_sorted() && (4_000_000..4_500_000).contains(&all.iter().sum::<u32>()));
        assert_eq!(lengths(1, [5, 9]), [5]);
    }
}
