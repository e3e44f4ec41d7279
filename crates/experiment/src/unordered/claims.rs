//! Claims of the FOCI 2013 paper about its Figure 3, judged by confidence intervals over rounds.

use super::super::{Median, average, spread};
use super::measured::Measured;
use super::paper;
use super::plan::{Arm, Line};

/// A claim of the FOCI 2013 paper that compares unordered links with ordered links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The claim that, with loss, downloads over unordered links complete earlier. More than half
    /// of these downloads are complete when the share [`paper::ORDERED`] of the downloads over
    /// ordered links is complete.
    HalfDone,
    /// The claim that, without loss, the fastest downloads (the share [`paper::ALIKE`]) take about
    /// the same time over both kinds of links.
    Alike,
    /// The claim that, without loss, the slowest downloads (the share [`paper::SLOWEST`]) take 30
    /// to 40 % less time over unordered links.
    Slowest,
}

/// Answer of the measurements to a claim of the FOCI 2013 paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The claim holds: the whole interval of the measured value satisfies it.
    Holds,
    /// The claim fails: the whole interval of the measured value contradicts it.
    Fails,
    /// The claim cannot be judged: the interval of the measured value allows both answers, or
    /// there are too few rounds for an interval.
    Open,
}

/// A claim about one kind of emulated line, with the measured value and the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JudgedClaim {
    /// The claim of the FOCI 2013 paper.
    pub claim: Claim,
    /// Properties of the emulated network line: loss, delay variation and congestion control.
    pub line: Line,
    /// The measured value that the claim is about: a share of downloads, or a ratio of times.
    pub found: Median,
    /// Result that follows from the measured value.
    pub answer: Answer,
}

/// Tolerance for equal times: a ratio of times that differs from 1 by at most this counts as 1.
const SAME: f64 = 0.1;

impl Claim {
    /// All claims of the FOCI 2013 paper.
    pub const ALL: [Claim; 3] = [Claim::HalfDone, Claim::Alike, Claim::Slowest];

    fn is_about(self, line: Line) -> bool {
        (self == Claim::HalfDone) == (line.loss > 0)
    }

    /// Returns one round's value for the claim, from the measurements with unordered and with
    /// ordered links. Returns `None` if the value is undefined.
    fn of(self, unordered: &Measured, ordered: &Measured) -> Option<f64> {
        match self {
            Claim::HalfDone => Some(unordered.done(ordered.moment(paper::ORDERED)?)),
            Claim::Alike => ratio(unordered, ordered, |all| {
                let fast = (paper::ALIKE * all.len() as f64).round() as usize;
                &all[..fast]
            }),
            Claim::Slowest => ratio(unordered, ordered, |all| {
                let slow = ((paper::SLOWEST * all.len() as f64).round() as usize).max(1);
                &all[all.len() - slow..]
            }),
        }
    }

    fn judge(self, interval: Option<[f64; 2]>) -> Answer {
        let Some([low, high]) = interval else { return Answer::Open };
        let (holds, fails) = match self {
            // The paper's wording is "over 50 %", so exactly half does not count.
            Claim::HalfDone => (low > paper::UNORDERED, high <= paper::UNORDERED),
            Claim::Alike => {
                (low > 1.0 - SAME && high < 1.0 + SAME, high < 1.0 - SAME || low > 1.0 + SAME)
            }
            Claim::Slowest => (high <= paper::SLOWEST_TAKE, low > paper::SLOWEST_TAKE),
        };
        match (holds, fails) {
            (true, _) => Answer::Holds,
            (_, true) => Answer::Fails,
            _ => Answer::Open,
        }
    }
}

/// Returns the mean time of some downloads over unordered links, divided by the corresponding mean
/// time over ordered links, in one round. `some` selects the times from all times in ascending
/// order. Returns `None` if a download did not complete.
fn ratio(unordered: &Measured, ordered: &Measured, some: impl Fn(&[f64]) -> &[f64]) -> Option<f64> {
    let mean = |measured: &Measured| {
        let times = measured.times();
        (times.len() == measured.downloads.len()).then(|| average(some(&times))).flatten()
    };
    spread::ratio(mean(unordered)?, mean(ordered)?)
}

/// Judges all claims for all kinds of emulated lines that were measured both with unordered and
/// with ordered links.
#[must_use]
pub fn judge(records: &[Measured]) -> Vec<JudgedClaim> {
    let mut lines: Vec<Line> = records.iter().map(|record| record.line).collect();
    lines.sort_unstable();
    lines.dedup();
    let of = |arm: Arm, line: Line| {
        records.iter().filter(move |record| (record.arm, record.line) == (arm, line))
    };
    let judged = |claim: Claim, line: Line| {
        let pairs = of(Arm::Unordered, line).filter_map(|one| {
            of(Arm::Ordered, line).find(|other| other.round == one.round).map(|other| (one, other))
        });
        let rounds: Vec<f64> = pairs.filter_map(|(one, other)| claim.of(one, other)).collect();
        let found = Median::of(&rounds)?;
        Some(JudgedClaim { claim, line, found, answer: claim.judge(found.interval) })
    };
    let about = lines.into_iter().flat_map(|line| {
        Claim::ALL.into_iter().filter(move |claim| claim.is_about(line)).map(move |c| (c, line))
    });
    about.filter_map(|(claim, line)| judged(claim, line)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::measured::tests::{LINE, measured};
    use super::*;

    /// Returns six rounds of 40 downloads over both kinds of links. The times over unordered links
    /// are multiples of the times over ordered links. The factor is `fast` for the fastest 34
    /// downloads, and `slow` for the slowest six.
    fn records(line: Line, [fast, slow]: [f64; 2]) -> Vec<Measured> {
        let both = |round: u32| {
            let time = |at: u32| f64::from(at) * (1.0 + f64::from(round) / 100.0);
            let ordered: Vec<f64> = (1..=40).map(time).collect();
            let part = |(at, time): (usize, &f64)| time * if at < 34 { fast } else { slow };
            let unordered: Vec<f64> = ordered.iter().enumerate().map(part).collect();
            let at_line = |arm, times: &[f64]| {
                let mut one = Measured { line, ..measured(arm, round, times) };
                one.downloads.retain(|download| download.whole.is_some());
                one
            };
            [at_line(Arm::Ordered, &ordered), at_line(Arm::Unordered, &unordered)]
        };
        (0..6).flat_map(both).collect()
    }

    fn answers(records: &[Measured]) -> Vec<(Claim, Answer)> {
        judge(records).into_iter().map(|one| (one.claim, one.answer)).collect()
    }

    #[test]
    fn without_loss_most_downloads_are_alike_and_the_slowest_take_less() {
        let line = Line { loss: 0, ..LINE };
        let found = answers(&records(line, [1.0, 0.95]));
        assert_eq!(found, [(Claim::Alike, Answer::Holds), (Claim::Slowest, Answer::Fails)]);
        // All downloads have the same factor. With different factors, the slowest downloads could
        // change ranks with others.
        let found = answers(&records(line, [0.62, 0.62]));
        assert_eq!(found, [(Claim::Alike, Answer::Fails), (Claim::Slowest, Answer::Holds)]);
    }

    #[test]
    fn with_loss_a_share_of_half_is_not_over_half() {
        let done = |part| answers(&records(LINE, [part, part]));
        // The 12th of 40 ordered downloads (30 %) sets the time. If unordered downloads take half
        // as long, 24 of them are complete at this time.
        assert_eq!(done(0.5), [(Claim::HalfDone, Answer::Holds)]);
        assert_eq!(done(0.59), [(Claim::HalfDone, Answer::Fails)], "20 of 40");
        assert_eq!(done(1.0), [(Claim::HalfDone, Answer::Fails)]);
    }

    #[test]
    fn few_rounds_and_downloads_that_were_cut_judge_nothing() {
        let line = Line { loss: 0, ..LINE };
        let mut all = records(line, [1.0, 0.6]);
        all.retain(|record| record.round < 5);
        assert!(answers(&all).iter().all(|(_, answer)| *answer == Answer::Open));
        all.iter_mut().for_each(|record| record.downloads[0].whole = None);
        assert_eq!(judge(&all), []);
    }
}
