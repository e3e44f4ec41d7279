//! What all networks of a plan amount to.

use std::collections::BTreeMap;

use super::super::{Mean, average};
use super::measured::{Measured, Repetition};
use super::paper::{self, Row};
use super::plan::{Design, Place};

/// A design over so many circuits in one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The design.
    pub design: Design,
    /// Its circuits.
    pub legs: u32,
    /// The place.
    pub place: Place,
    /// Rounds, and repetitions in all of them.
    pub counts: (usize, usize),
    /// Fetches that failed.
    pub failed: u32,
    /// To the first byte, in seconds: as programs usually ask, and with optimistic data.
    pub first_byte: [Option<Mean>; 2],
    /// A page and a bulk download, in seconds.
    pub web: Option<Mean>,
    /// The same of a bulk download.
    pub bulk: Option<Mean>,
    /// CPU of all guards, all middles and the exit in ms for each MB.
    pub per_megabyte: [Option<Mean>; 3],
    /// CPU of a guard, of a middle and of the exit in per cent of a core.
    pub percent: [Option<Mean>; 3],
    /// The share of the machine that was in use.
    pub busy: Option<Mean>,
}

/// What the paper says of several circuits against one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The first byte comes sooner.
    FirstByte,
    /// A page does.
    Web,
    /// A bulk download does.
    Bulk,
    /// A guard has less to do.
    Guard,
    /// The exit has as much to do: within 6 %.
    Exit,
}

/// Whether a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The whole interval is on the claim's side.
    Holds,
    /// It is on the other side.
    Fails,
    /// It is on both.
    Open,
}

/// A claim, held against what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Of which design.
    pub design: Design,
    /// Over so many circuits.
    pub legs: u32,
    /// Where.
    pub place: Place,
    /// What is claimed.
    pub claim: Claim,
    /// The ratio to one circuit in the same round.
    pub ratio: Mean,
    /// The paper's.
    pub paper: f64,
    /// What follows.
    pub answer: Answer,
}

/// Half the share of the exit's CPU by which it may differ.
const SAME: f64 = 0.06;

/// A round's mean of something of its repetitions.
fn of_round(record: &Measured, of: impl Fn(&Repetition) -> Option<f64>) -> Option<f64> {
    average(&record.repetitions.iter().filter_map(of).collect::<Vec<_>>())
}

/// All designs, in the order of their names' list; each over one circuit first.
#[must_use]
pub fn cells(records: &[Measured]) -> Vec<Cell> {
    let mut keys: Vec<_> = records.iter().map(|r| (r.place, r.design, r.legs)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter().map(|key| cell(records, key)).collect()
}

fn cell(records: &[Measured], key: (Place, Design, u32)) -> Cell {
    let of: Vec<&Measured> =
        records.iter().filter(|r| (r.place, r.design, r.legs) == key).collect();
    let over = |value: &dyn Fn(&Measured) -> Option<f64>| {
        Mean::of(&of.iter().filter_map(|record| value(record)).collect::<Vec<_>>())
    };
    let times = |time: &dyn Fn(&Repetition) -> f64| over(&|r| of_round(r, |one| Some(time(one))));
    let first = |optimistic: bool| {
        over(&|r| of_round(r, |one| (one.optimistic == optimistic).then_some(one.first_byte)))
    };
    let (place, design, legs) = key;
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

/// The share of all times whose interval is as narrow as the paper's.
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

/// The same of intervals over repetitions, all of a cell's rounds together, as the paper's seem to
/// be. Repetitions of a round share circuits, so that these are narrower than what another run
/// would bring.
#[must_use]
pub fn narrow_by_repetitions(records: &[Measured]) -> f64 {
    let mut by_cell = BTreeMap::<_, [Vec<f64>; 4]>::new();
    for record in records {
        let times = by_cell.entry((record.place, record.design, record.legs)).or_default();
        for one in &record.repetitions {
            times[usize::from(one.optimistic)].push(one.first_byte);
            times[2].push(one.web);
            times[3].push(one.bulk);
        }
    }
    share_narrow(by_cell.values().flatten().filter_map(|times| Mean::of(times)))
}

impl Claim {
    /// All there are.
    pub const ALL: [Claim; 5] =
        [Claim::FirstByte, Claim::Web, Claim::Bulk, Claim::Guard, Claim::Exit];

    fn measured(self, record: &Measured) -> Option<f64> {
        match self {
            Claim::FirstByte => of_round(record, |one| Some(one.first_byte)),
            Claim::Web => of_round(record, |one| Some(one.web)),
            Claim::Bulk => of_round(record, |one| Some(one.bulk)),
            Claim::Guard => Some(record.percent()[0]),
            Claim::Exit => Some(record.per_megabyte()[2]),
        }
    }

    fn of_paper(self, row: &Row) -> f64 {
        match self {
            Claim::FirstByte => row.first_byte,
            Claim::Web => row.web,
            Claim::Bulk => row.bulk,
            Claim::Guard => row.cpu[0],
            Claim::Exit => row.cpu[2],
        }
    }

    fn judge(self, ratio: Mean) -> Answer {
        let (low, high) = (ratio.mean - ratio.half, ratio.mean + ratio.half);
        let (holds, fails) = match self {
            Claim::Exit => {
                (low > 1.0 - SAME && high < 1.0 + SAME, low > 1.0 + SAME || high < 1.0 - SAME)
            }
            _ => (high < 1.0, low > 1.0),
        };
        match (holds, fails) {
            (true, _) => Answer::Holds,
            (_, true) => Answer::Fails,
            _ => Answer::Open,
        }
    }
}

/// The paper's claims of its designs over several circuits, each against [`Design::Tor`] in the
/// same place and round. A guard's CPU is that of a guard of the three, which share the network's
/// load with one circuit a client, too: what the paper shows of one on the circuit cannot be seen
/// there.
#[must_use]
pub fn verdicts(records: &[Measured]) -> Vec<Verdict> {
    let mut found = Vec::new();
    for cell in cells(records) {
        let Some(row) = paper::row(cell.design, cell.legs).filter(|row| row.legs > 1) else {
            continue;
        };
        found.extend(
            Claim::ALL.into_iter().filter_map(|claim| verdict(records, &cell, &row, claim)),
        );
    }
    found
}

fn verdict(records: &[Measured], cell: &Cell, row: &Row, claim: Claim) -> Option<Verdict> {
    let of = |design: Design, legs: u32, round: u32| {
        let key = (cell.place, design, legs, round);
        let record = records.iter().find(|r| (r.place, r.design, r.legs, r.round) == key)?;
        claim.measured(record)
    };
    let rounds = records.iter().filter(|r| (r.design, r.legs) == (cell.design, cell.legs));
    let rounds = rounds.filter(|record| record.place == cell.place).map(|record| record.round);
    let ratio = |round| Some(of(cell.design, cell.legs, round)? / of(Design::Tor, 1, round)?);
    let ratio = Mean::of(&rounds.filter_map(ratio).collect::<Vec<_>>())?;
    let paper = claim.of_paper(row) / claim.of_paper(&paper::ONE);
    let Cell { design, legs, place, .. } = *cell;
    Some(Verdict { design, legs, place, claim, ratio, paper, answer: claim.judge(ratio) })
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
        // As much CPU as with one circuit: not less.
        assert_eq!(of(Design::MTor, Claim::Guard).answer, Answer::Open);
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
