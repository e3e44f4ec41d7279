//! Summary of all measurements of the circuits experiment.

use std::collections::BTreeMap;

use super::super::{Mean, average, spread};
use super::measured::{Measured, Repetition};
use super::paper::{self, Row};
use super::plan::{Design, Layout, Load};

/// Results of one design with one number of circuits in one topology.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Design (protocol and scheduler) that was measured.
    pub design: Design,
    /// Number of circuits over which a stream was split.
    pub legs: u32,
    /// Topology, and the load in percent of the rate of one guard's network line, if the topology
    /// has levels of load.
    pub place: (Layout, Option<u32>),
    /// Number of rounds (measurements, each in its own network), and number of repetitions in all
    /// rounds together.
    pub counts: (usize, usize),
    /// Number of fetches that failed.
    pub failed: u32,
    /// Time to the first byte in seconds: with normal requests, and with the HTTP request sent
    /// together with the SOCKS request. `None` if no such repetition completed.
    pub first_byte: [Option<Mean>; 2],
    /// Time to fetch a page, in seconds; `None` if no repetition completed.
    pub web: Option<Mean>,
    /// Time to fetch a bulk download, in seconds; `None` if no repetition completed.
    pub bulk: Option<Mean>,
    /// CPU time in ms per MB that the network carried: of all guards together, of all middles
    /// together, and of the exit.
    pub per_megabyte: [Option<Mean>; 3],
    /// CPU use of one guard, of one middle and of the exit, in percent of a core.
    pub percent: [Option<Mean>; 3],
    /// Share of the machine's CPU time that any process used: the mean over the rounds.
    pub busy: Option<Mean>,
}

/// Claim of the DBSec 2019 paper. It compares several circuits per stream with one, or the relays
/// of one design with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The claim that the first byte of a page arrives sooner with this design than with one
    /// circuit.
    FirstByte,
    /// The claim that a page takes less time with this design than with one circuit.
    Web,
    /// The claim that a bulk download takes less time with this design than with one circuit.
    Bulk,
    /// The claim that a guard uses less CPU time with this design than with one circuit, for each
    /// byte that the network carries.
    Guard,
    /// The claim that a middle uses less CPU time with this design than with one circuit, for each
    /// byte that the network carries.
    Middle,
    /// The claim that the exit uses the same CPU time for each byte with this design as with one
    /// circuit; up to 6 % difference is allowed.
    Exit,
    /// The claim that, within one design, the entry relays use more CPU than the middles.
    EntriesCostMore,
    /// The claim that, within one design, the exit uses less CPU than all middles together.
    ExitCostsLess,
    /// The claim that a page takes longer with this design than with one circuit.
    WebLater,
    /// The claim that most repetitions, each a page and then a bulk download, do not finish.
    BulkFails,
}

/// Answer of the measurements to a claim of the DBSec 2019 paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The claim holds: the whole interval of the measured ratio satisfies it, and the difference
    /// is not negligible ([`Answer::Alike`]).
    Holds,
    /// The claim fails: the whole interval of the measured ratio contradicts it, and the
    /// difference is not negligible ([`Answer::Alike`]).
    Fails,
    /// The difference is negligible: the whole interval of the measured ratio is within 10 % of 1.
    /// Not used for [`Claim::Exit`], which claims that the ratio is 1.
    Alike,
    /// The claim cannot be judged: the interval of the measured ratio allows both answers, or the
    /// load in this experiment cannot show the effect.
    Open,
}

/// A claim about one design, with the measured ratio and the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Design that the claim is about.
    pub design: Design,
    /// Number of circuits over which a stream was split.
    pub legs: u32,
    /// Topology, and the load in percent of the rate of one guard's network line, if the topology
    /// has levels of load.
    pub place: (Layout, Option<u32>),
    /// The claim of the DBSec 2019 paper.
    pub claim: Claim,
    /// The measured ratio that the claim is about. It compares the design with one circuit in the
    /// same round, or two kinds of relays within the design.
    pub ratio: Mean,
    /// The ratio that the claim is about, in the DBSec 2019 paper.
    pub paper: f64,
    /// Result that follows from the measured ratio.
    pub answer: Answer,
}

/// Maximum relative difference in CPU use that [`Claim::Exit`] allows.
const SAME: f64 = 0.06;
/// Share of failed downloads above which the claim [`Claim::BulkFails`] ("most fail") holds.
const MOST: f64 = 0.5;
/// Tolerance of [`Answer::Alike`]: both ends of a ratio's interval differ from 1 by at most this.
const ALIKE: f64 = 0.1;

type Key = ((Layout, Option<u32>), Design, u32);

fn key(record: &Measured) -> Key {
    ((record.place, record.level), record.design, record.legs)
}

/// Returns the mean, over a round's repetitions, of the value that `of` selects; `None` if no
/// repetition has such a value.
fn of_round(record: &Measured, of: impl Fn(&Repetition) -> Option<f64>) -> Option<f64> {
    average(&record.repetitions.iter().filter_map(of).collect::<Vec<_>>())
}

/// Returns the results of all settings, sorted by topology, load, design and number of circuits.
#[must_use]
pub fn cells(records: &[Measured]) -> Vec<Cell> {
    let mut keys: Vec<Key> = records.iter().map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter().map(|key| cell(records, key)).collect()
}

fn cell(records: &[Measured], wanted: Key) -> Cell {
    let of: Vec<&Measured> = records.iter().filter(|record| key(record) == wanted).collect();
    let over = |value: &dyn Fn(&Measured) -> Option<f64>| {
        Mean::of(&of.iter().filter_map(|record| value(record)).collect::<Vec<_>>())
    };
    let times = |time: &dyn Fn(&Repetition) -> f64| over(&|r| of_round(r, |one| Some(time(one))));
    let first = |optimistic: bool| {
        over(&|r| of_round(r, |one| (one.optimistic == optimistic).then_some(one.first_byte)))
    };
    let (place, design, legs) = wanted;
    Cell {
        design,
        legs,
        place,
        counts: (of.len(), of.iter().map(|record| record.repetitions.len()).sum()),
        failed: of.iter().map(|record| record.failed).sum(),
        first_byte: [first(false), first(true)],
        web: times(&|one| one.web),
        bulk: times(&|one| one.bulk),
        per_megabyte: [0, 1, 2].map(|at| over(&|r| Some(r.per_megabyte()[at]))),
        percent: [0, 1, 2].map(|at| over(&|r| Some(r.percent()[at]))),
        busy: over(&|r| Some(r.busy)),
    }
}

/// Returns the share of measured mean times whose confidence interval is narrow enough: relatively
/// as narrow as the DBSec 2019 paper's intervals ([`Mean::is_narrow`]).
#[must_use]
pub fn narrow(cells: &[Cell]) -> f64 {
    let times = cells
        .iter()
        .flat_map(|cell| cell.first_byte.into_iter().chain([cell.web, cell.bulk]).flatten());
    share_narrow(times)
}

fn share_narrow(means: impl Iterator<Item = Mean>) -> f64 {
    let narrow: Vec<f64> = means.map(|mean| f64::from(u8::from(mean.is_narrow()))).collect();
    average(&narrow).unwrap_or_default()
}

/// Returns the share of mean times whose confidence interval is as narrow as the DBSec 2019
/// paper's intervals, if all repetitions count as independent. The paper seems to assume this
/// independence. But repetitions of a round share circuits, so these intervals are too narrow.
#[must_use]
pub fn narrow_by_repetitions(records: &[Measured]) -> f64 {
    let mut by_cell = BTreeMap::<_, [Vec<f64>; 4]>::new();
    for record in records {
        let times = by_cell.entry(key(record)).or_default();
        for one in &record.repetitions {
            times[usize::from(one.optimistic)].push(one.first_byte);
            times[2].push(one.web);
            times[3].push(one.bulk);
        }
    }
    share_narrow(by_cell.values().flatten().filter_map(|times| Mean::of(times)))
}

impl Claim {
    /// All claims.
    pub const ALL: [Claim; 10] = [
        Claim::FirstByte,
        Claim::Web,
        Claim::Bulk,
        Claim::Guard,
        Claim::Middle,
        Claim::Exit,
        Claim::EntriesCostMore,
        Claim::ExitCostsLess,
        Claim::WebLater,
        Claim::BulkFails,
    ];

    /// Returns whether the claim is about one design alone. Other claims compare a design with one
    /// circuit per stream.
    fn is_within(self) -> bool {
        matches!(self, Claim::EntriesCostMore | Claim::ExitCostsLess | Claim::BulkFails)
    }

    /// Returns whether the claim is about bulk downloads.
    #[must_use]
    pub fn is_about_bulk(self) -> bool {
        matches!(self, Claim::Bulk | Claim::BulkFails)
    }

    /// Returns whether the DBSec 2019 paper makes this claim about `design` with `legs` circuits.
    /// Claims that compare a design with Tor's one circuit apply to designs with several circuits,
    /// and the claims about times also to UDP-OR. The paper makes three claims about MORE:
    /// [`Claim::FirstByte`], [`Claim::WebLater`] and [`Claim::BulkFails`]. It makes no claim about
    /// C tor without Conflux.
    fn is_about(self, design: Design, legs: u32) -> bool {
        match (self, design) {
            (_, Design::Stock) => false,
            (Claim::FirstByte, Design::More) => true,
            (Claim::FirstByte | Claim::Web | Claim::Bulk, Design::UdpOr) => true,
            (Claim::WebLater | Claim::BulkFails, _) => design == Design::More,
            (_, Design::More) => false,
            _ => legs > 1 || self.is_within(),
        }
    }

    fn measured(self, record: &Measured) -> Option<f64> {
        match self {
            Claim::FirstByte => of_round(record, |one| Some(one.first_byte)),
            Claim::Web | Claim::WebLater => of_round(record, |one| Some(one.web)),
            Claim::Bulk => of_round(record, |one| Some(one.bulk)),
            Claim::Guard => Some(record.of_one().unwrap_or(record.per_megabyte())[0]),
            Claim::Middle => Some(record.of_one().unwrap_or(record.per_megabyte())[1]),
            Claim::Exit => Some(record.per_megabyte()[2]),
            Claim::EntriesCostMore => {
                let [guards, middles, _] = record.per_megabyte();
                spread::ratio(guards, middles)
            }
            Claim::ExitCostsLess => {
                let [_, middles, exit] = record.per_megabyte();
                spread::ratio(exit, middles)
            }
            Claim::BulkFails => {
                let failed = f64::from(record.failed);
                spread::ratio(failed, failed + record.repetitions.len() as f64)
            }
        }
    }

    /// Returns the value in the DBSec 2019 paper's `row` that the claim is about; `None` if there
    /// is none.
    fn of_paper(self, row: &Row) -> Option<f64> {
        Some(match self {
            Claim::FirstByte => row.first_byte,
            Claim::Web | Claim::WebLater => row.web,
            Claim::Bulk => row.bulk?,
            Claim::Guard => row.cpu[0],
            Claim::Middle => row.cpu[1],
            Claim::Exit => row.cpu[2],
            Claim::EntriesCostMore => row.cpu[0] / row.cpu[1],
            // The paper's value is for one of the `legs` middles. All middles together use `legs`
            // times as much CPU.
            Claim::ExitCostsLess => row.cpu[2] / row.cpu[1] / f64::from(row.legs),
            Claim::BulkFails => f64::from(u8::from(row.bulk.is_none())),
        })
    }

    /// Returns the ratio in the DBSec 2019 paper's `row` that the claim is about: between the
    /// design and one circuit, or between two kinds of relays of the design. Returns `None` if the
    /// row lacks a value.
    fn ratio_of_paper(self, row: &Row) -> Option<f64> {
        match self.is_within() {
            true => self.of_paper(row),
            false => Some(self.of_paper(row)? / self.of_paper(&paper::ONE)?),
        }
    }

    /// Returns whether measurements with the load rule `load` can test this claim. Claims about
    /// the CPU use of one guard or middle need [`Load::ClientRelays`], with which the load clients
    /// use the same relays as the measuring client. All other claims can be tested with any rule.
    fn can_show(self, load: Load) -> bool {
        load == Load::ClientRelays || !matches!(self, Claim::Guard | Claim::Middle)
    }

    fn judge(self, ratio: Mean) -> Answer {
        let (low, high) = (ratio.mean - ratio.half, ratio.mean + ratio.half);
        let (holds, fails) = match self {
            Claim::Exit => {
                (low > 1.0 - SAME && high < 1.0 + SAME, low > 1.0 + SAME || high < 1.0 - SAME)
            }
            Claim::EntriesCostMore | Claim::WebLater => (low > 1.0, high < 1.0),
            Claim::BulkFails => (low > MOST, high < MOST),
            _ => (high < 1.0, low > 1.0),
        };
        let has_alike = !matches!(self, Claim::Exit | Claim::BulkFails);
        let alike = has_alike && low >= 1.0 - ALIKE && high <= 1.0 + ALIKE;
        match (holds, fails) {
            _ if alike => Answer::Alike,
            (true, _) => Answer::Holds,
            (_, true) => Answer::Fails,
            _ => Answer::Open,
        }
    }
}

/// Judges the DBSec 2019 paper's claims about all measured designs. Compares each design with
/// [`Design::Tor`] in the same topology, at the same load and in the same round. Claims about the
/// relays of one design are also judged for Tor's one circuit.
///
/// The CPU use of one guard or middle is judged per byte that the network carried. It is judged
/// only if the load clients (clients that only create load) use the same relays as the measuring
/// client ([`Load::ClientRelays`]).
#[must_use]
pub fn verdicts(records: &[Measured]) -> Vec<Verdict> {
    let mut found = Vec::new();
    for cell in cells(records) {
        let Some(row) = paper::row(cell.design, cell.legs) else { continue };
        let claims = Claim::ALL.into_iter().filter(|claim| claim.is_about(cell.design, row.legs));
        found.extend(claims.filter_map(|claim| verdict(records, &cell, &row, claim)));
    }
    found
}

fn verdict(records: &[Measured], cell: &Cell, row: &Row, claim: Claim) -> Option<Verdict> {
    let own = (cell.place, cell.design, cell.legs);
    let of = |wanted: Key, round: u32| {
        let found = records.iter().find(|r| (key(r), r.round) == (wanted, round))?;
        claim.measured(found)
    };
    let one = |round| match claim.is_within() {
        true => Some(1.0),
        false => of((cell.place, Design::Tor, 1), round),
    };
    let mine: Vec<&Measured> = records.iter().filter(|record| key(record) == own).collect();
    let ratio = |record: &&Measured| spread::ratio(of(own, record.round)?, one(record.round)?);
    let ratio = Mean::of(&mine.iter().filter_map(ratio).collect::<Vec<_>>())?;
    let paper = claim.ratio_of_paper(row)?;
    let answer = match mine.iter().all(|record| claim.can_show(record.load)) {
        true => claim.judge(ratio),
        false => Answer::Open,
    };
    let Cell { design, legs, place, .. } = *cell;
    Some(Verdict { design, legs, place, claim, ratio, paper, answer })
}

#[cfg(test)]
mod tests {
    use super::super::measured::tests::measured;
    use super::*;

    #[test]
    fn claims_are_judged_by_whole_intervals_against_the_same_round() {
        let mut records = Vec::new();
        for (round, web) in (0..).zip([0.10, 0.20, 0.15]) {
            records.push(measured(Design::Tor, 1, round, web));
            let noise = 1.0 + f64::from(round) / 100.0;
            records.push(measured(Design::MTor, 2, round, web * 0.8 * noise));
            records.push(measured(
                Design::Conflux2013,
                2,
                round,
                web * [0.7, 1.0, 1.4][round as usize],
            ));
        }
        let all = verdicts(&records);
        let of = |design, claim| {
            all.iter().find(|v| (v.design, v.claim) == (design, claim)).unwrap().clone()
        };
        let faster = of(Design::MTor, Claim::Web);
        assert_eq!(faster.answer, Answer::Holds);
        assert!((faster.ratio.mean - 0.808).abs() < 1e-9, "{:?}", faster.ratio);
        assert!((faster.paper - 55.0 / 59.0).abs() < 1e-9);
        assert_eq!(of(Design::Conflux2013, Claim::Bulk).answer, Answer::Open);
        assert_eq!(of(Design::MTor, Claim::Exit).answer, Answer::Holds);
        // All guards together use as much CPU as with one circuit. Under spread load, the CPU use
        // of a single guard shows nothing.
        assert_eq!(of(Design::MTor, Claim::Guard).answer, Answer::Open);
        assert_eq!(of(Design::MTor, Claim::EntriesCostMore).answer, Answer::Holds);
    }

    /// Returns three rounds with one circuit and three with two circuits, under
    /// [`Load::ClientRelays`]. `cpu` has the CPU seconds with two circuits.
    fn employed(cpu: [f64; 7]) -> Vec<Measured> {
        let at = |design, legs, round, cpu| Measured {
            load: Load::ClientRelays,
            level: Some(58),
            place: Layout::Line,
            cpu,
            ..measured(design, legs, round, 0.1)
        };
        let one = [2.0, 0.0, 0.0, 1.5, 0.0, 0.0, 1.0];
        let both = |round| [at(Design::Tor, 1, round, one), at(Design::MTor, 2, round, cpu)];
        (0..3).flat_map(both).collect()
    }

    fn answers(records: &[Measured], design: Design) -> Vec<(Claim, Answer)> {
        let all = verdicts(records);
        let of = all.iter().filter(|verdict| verdict.design == design);
        of.map(|verdict| (verdict.claim, verdict.answer)).collect()
    }

    #[test]
    fn an_employed_guard_is_judged_by_its_own_cpu_for_each_byte() {
        // Each of the two guards uses half the CPU of the single guard, and both together use 4 %
        // more.
        let found = answers(&employed([1.04, 1.04, 0.0, 0.78, 0.78, 0.0, 1.0]), Design::MTor);
        let of = |claim| found.iter().find(|(of, _)| *of == claim).unwrap().1;
        assert_eq!(of(Claim::Guard), Answer::Holds);
        assert_eq!(of(Claim::Middle), Answer::Holds);
        assert_eq!(of(Claim::Exit), Answer::Holds);
        assert_eq!(of(Claim::EntriesCostMore), Answer::Holds);
        assert_eq!(of(Claim::ExitCostsLess), Answer::Holds);
        // A page takes the same time with two circuits, which counts as alike. If two circuits use
        // more CPU, the claim fails.
        assert_eq!(of(Claim::Web), Answer::Alike);
        let more = answers(&employed([2.5, 2.5, 0.0, 1.5, 1.5, 0.0, 1.5]), Design::MTor);
        assert!(more.contains(&(Claim::Guard, Answer::Fails)), "{more:?}");
        assert!(more.contains(&(Claim::Middle, Answer::Alike)), "{more:?}");
        assert!(more.contains(&(Claim::Exit, Answer::Fails)), "{more:?}");
    }

    #[test]
    fn of_one_circuit_only_its_positions_are_compared() {
        let found = answers(&employed([1.0; 7]), Design::Tor);
        let expected =
            [(Claim::EntriesCostMore, Answer::Holds), (Claim::ExitCostsLess, Answer::Holds)];
        assert_eq!(found, expected);
    }

    #[test]
    fn more_is_judged_by_its_times_and_by_what_finishes() {
        let mut records = Vec::new();
        for round in 0..3 {
            records.push(measured(Design::Tor, 1, round, 0.1));
            records.push(measured(Design::More, 1, round, 0.7 + f64::from(round) / 100.0));
        }
        let found = answers(&records, Design::More);
        let expected = [
            (Claim::FirstByte, Answer::Fails),
            (Claim::WebLater, Answer::Holds),
            (Claim::BulkFails, Answer::Fails),
        ];
        assert_eq!(found, expected);
        let failed = |one: Measured| Measured { failed: 9, repetitions: Vec::new(), ..one };
        let records: Vec<_> =
            records.into_iter().filter(|one| one.design == Design::More).map(failed).collect();
        assert_eq!(answers(&records, Design::More), [(Claim::BulkFails, Answer::Holds)]);
    }

    #[test]
    fn loads_of_a_line_are_judged_apart() {
        let mut records = employed([1.0, 1.0, 0.0, 0.8, 0.8, 0.0, 1.0]);
        let idle = records.clone().into_iter().map(|one| Measured { level: Some(0), ..one });
        records.extend(idle.collect::<Vec<_>>());
        assert_eq!(cells(&records).len(), 4);
        let levels: Vec<_> = verdicts(&records).iter().map(|one| one.place.1).collect();
        assert_eq!(levels.iter().filter(|level| **level == Some(0)).count(), levels.len() / 2);
    }

    #[test]
    fn cells_tell_optimistic_data_apart_and_how_many_are_narrow() {
        let records: Vec<_> = (0..3).map(|round| measured(Design::Tor, 1, round, 0.1)).collect();
        let cells = cells(&records);
        assert_eq!((cells.len(), cells[0].counts), (1, (3, 6)));
        assert!(cells[0].first_byte.iter().all(Option::is_some));
        assert_eq!(narrow(&cells), 1.0);
        assert_eq!(narrow(&[]), 0.0);
        let alike = [0, 1].map(|round| measured(Design::Tor, 1, round, 0.1));
        assert_eq!(narrow_by_repetitions(&alike), 1.0);
        let unlike = [measured(Design::Tor, 1, 0, 0.1), measured(Design::Tor, 1, 1, 0.3)];
        assert_eq!(narrow_by_repetitions(&unlike), 0.0);
        assert_eq!(narrow_by_repetitions(&[]), 0.0);
    }
}
