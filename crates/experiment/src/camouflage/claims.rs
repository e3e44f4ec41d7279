//! Verdicts on the StegoTorus paper's claims, based on the confidence intervals of our measured
//! values.

use super::super::{Median, ratio};
use super::measured::Measured;
use super::paper::{BROKEN_FROM, SLOW};
use super::plan::{Arm, MeasurementKind};
use super::summary::{Quantity, StreamBox, counts, ratios};

/// A claim of the StegoTorus paper about one configuration (a method of fetching).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The claim that StegoTorus's chopper (which cuts traffic into blocks), without camouflage,
    /// needs hardly more bytes to the client than Tor (paper's Table 3: 1.008 times).
    LeanDown,
    /// The claim that StegoTorus's chopper (which cuts traffic into blocks), without camouflage,
    /// needs hardly more bytes from the client than Tor (paper's Table 3: 1.031 times).
    LeanUp,
    /// The claim that StegoTorus's chopper (which cuts traffic into blocks), without camouflage,
    /// is as fast as Tor at 1 MB (paper's Figure 7: .97 of Tor's goodput).
    Quick,
    /// The claim that StegoTorus's HTTP camouflage needs many times the bytes to the client of a
    /// direct download (paper's Table 3: 11.6 times).
    HeavyDown,
    /// The claim that StegoTorus's HTTP camouflage needs many times the bytes from the client of a
    /// direct download (paper's Table 3: 41 times).
    HeavyUp,
    /// The claim that StegoTorus's HTTP camouflage has only a small part of Tor's goodput at 1 MB
    /// (paper's Figure 7: .047 of it).
    Slow,
    /// The claim that a stream's bandwidth on the wire does not depend on the round-trip time
    /// (StegoTorus paper's Figure 6, for Tor and for StegoTorus without camouflage).
    Flat,
    /// The claim that a stream of [`SLOW`] kB/s cannot be sustained at round-trip times of
    /// [`BROKEN_FROM`] ms or more (StegoTorus paper's Figure 6, for HTTP camouflage).
    Breaks,
}

/// Verdict on a claim of the StegoTorus paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The claim holds: the whole interval of the measured value satisfies it.
    Holds,
    /// The claim fails: the whole interval of the measured value contradicts it.
    Fails,
    /// The claim cannot be judged: its bound is inside the interval of the measured value, or
    /// there are too few rounds for an interval.
    Open,
}

/// A claim of the StegoTorus paper about one configuration, with the measured value and the
/// verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedClaim {
    /// The claim of the StegoTorus paper.
    pub claim: Claim,
    /// The configuration that the claim is about.
    pub arm: Arm,
    /// Rate of the stream in kB/s, if the claim is about a stream.
    pub rate: Option<u32>,
    /// Confidence interval of the measured value, which is compared with the claim's bound; `None`
    /// if there are too few rounds.
    pub found: Option<[f64; 2]>,
    /// Median of the measured values; `None` if the claim is not about a median.
    pub median: Option<f64>,
    /// Number of rounds (passes over all settings). For a stream, it is the smallest number of
    /// rounds at any round-trip time.
    pub rounds: usize,
    /// Number of this configuration's downloads or streams that were cut off or failed.
    pub cut: usize,
    /// Verdict on the claim.
    pub verdict: Verdict,
}

impl Claim {
    /// All claims about downloads.
    const DOWNLOADS: [Claim; 6] = [
        Claim::LeanDown,
        Claim::LeanUp,
        Claim::Quick,
        Claim::HeavyDown,
        Claim::HeavyUp,
        Claim::Slow,
    ];

    /// Returns the bound that the measured value must reach or respect for the claim to hold, and
    /// whether the bound is a minimum. For the claims that HTTP camouflage needs many times the
    /// bytes, the bound is about half of the StegoTorus paper's factor.
    #[must_use]
    pub fn bound(self) -> (f64, bool) {
        match self {
            Claim::LeanDown => (1.05, false),
            Claim::LeanUp => (1.10, false),
            Claim::Quick => (0.90, true),
            Claim::HeavyDown => (6.0, true),
            Claim::HeavyUp => (20.0, true),
            Claim::Slow => (0.10, false),
            Claim::Flat => (0.25, false),
            Claim::Breaks => (0.90, false),
        }
    }

    /// Returns whether the claim applies to `arm`: the StegoTorus paper makes it about this method
    /// or a corresponding one, or our transport must satisfy it.
    fn is_about(self, arm: Arm) -> bool {
        match self {
            Claim::LeanDown | Claim::LeanUp | Claim::Quick => {
                matches!(arm, Arm::Nosteg | Arm::NostegRr)
            }
            Claim::HeavyDown | Claim::HeavyUp | Claim::Slow | Claim::Breaks => arm.is_http(),
            // The claim requires a constant bandwidth also of our `http-opaque`, although the
            // paper's HTTP did not have it.
            Claim::Flat => matches!(arm, Arm::Tor | Arm::Nosteg | Arm::NostegRr | Arm::Opaque),
        }
    }

    /// Returns the ratios that are compared with the claim's bound, one for each round. A ratio is
    /// the quantity for `arm`, divided by the same quantity for Tor or for a direct download.
    /// Claims about streams have no ratios.
    fn ratios(self, records: &[Measured], arm: Arm) -> Vec<f64> {
        let (other, quantity) = match self {
            Claim::LeanDown => (Arm::Tor, Quantity::Down),
            Claim::LeanUp => (Arm::Tor, Quantity::Up),
            Claim::HeavyDown => (Arm::Direct, Quantity::Down),
            Claim::HeavyUp => (Arm::Direct, Quantity::Up),
            Claim::Quick | Claim::Slow => (Arm::Tor, Quantity::Goodput),
            Claim::Flat | Claim::Breaks => return Vec::new(),
        };
        ratios(records, [arm, other], quantity)
    }

    /// Returns the verdict on the claim. `interval` is the confidence interval of the measured
    /// value, or `None` if there are too few rounds for an interval.
    fn verdict(self, interval: Option<[f64; 2]>) -> Verdict {
        let (bound, is_least) = self.bound();
        match interval {
            Some([low, high]) if (is_least && low >= bound) || (!is_least && high <= bound) => {
                Verdict::Holds
            }
            Some([low, high]) if (is_least && high < bound) || (!is_least && low > bound) => {
                Verdict::Fails
            }
            _ => Verdict::Open,
        }
    }
}

/// Judges all claims about all measured configurations. `boxes` are the summaries of the streams
/// in `records`.
#[must_use]
pub fn judge(records: &[Measured], boxes: &[StreamBox]) -> Vec<JudgedClaim> {
    let downloads = Claim::DOWNLOADS.into_iter().flat_map(|claim| {
        let about = Arm::ALL.iter().filter(move |arm| claim.is_about(**arm));
        about.filter_map(move |&arm| of_downloads(claim, arm, records))
    });
    let streams = [Claim::Flat, Claim::Breaks].into_iter().flat_map(|claim| {
        let about = Arm::ALL.iter().filter(move |arm| claim.is_about(**arm));
        about.flat_map(move |&arm| of_streams(claim, arm, boxes))
    });
    downloads.chain(streams).collect()
}

fn of_downloads(claim: Claim, arm: Arm, records: &[Measured]) -> Option<JudgedClaim> {
    let Median { median, interval, count } = Median::of(&claim.ratios(records, arm))?;
    Some(JudgedClaim {
        claim,
        arm,
        rate: None,
        found: interval,
        median: Some(median),
        rounds: count,
        cut: counts(records, (MeasurementKind::Downloads, arm)).1,
        verdict: claim.verdict(interval),
    })
}

fn of_streams(claim: Claim, arm: Arm, boxes: &[StreamBox]) -> Vec<JudgedClaim> {
    let mut rates: Vec<u32> = boxes.iter().filter(|one| one.arm == arm).map(|b| b.rate).collect();
    rates.dedup();
    let of_rate = |rate: u32| {
        let of: Vec<&StreamBox> =
            boxes.iter().filter(|one| (one.arm, one.rate) == (arm, rate)).collect();
        let found = match claim {
            Claim::Breaks if rate == SLOW && of.iter().any(|one| one.rtt >= BROKEN_FROM) => {
                held(&of)
            }
            Claim::Flat if of.len() > 1 => deviation(&of),
            _ => return None,
        };
        let cut = of.iter().map(|one| one.counts.1).sum();
        let verdict = match claim {
            Claim::Flat if cut > 0 => Verdict::Fails,
            _ => claim.verdict(found),
        };
        let rounds = of.iter().map(|one| one.counts.0).min().unwrap_or_default();
        let (rate, median) = (Some(rate), None);
        Some(JudgedClaim { claim, arm, rate, found, median, rounds, cut, verdict })
    };
    rates.into_iter().filter_map(of_rate).collect()
}

/// Returns the largest relative deviation of the bandwidth from the bandwidth at the shortest
/// round-trip time, as two values: the minimum and the maximum that the 95 % intervals of the
/// bandwidths allow. Returns `None` if there are too few rounds, or if nothing arrived at the
/// shortest round-trip time.
fn deviation(boxes: &[&StreamBox]) -> Option<[f64; 2]> {
    let (first, others) = boxes.split_first()?;
    let [least, most] = first.level?.interval?;
    let mut worst: Option<[f64; 2]> = None;
    for other in others {
        let [low, high] = other.level?.interval?;
        // These are the smallest and the largest ratio that the intervals allow, as distances from
        // 1.
        let (down, up) = (ratio(low, most)? - 1.0, ratio(high, least)? - 1.0);
        let nearest = if down <= 0.0 && up >= 0.0 { 0.0 } else { down.abs().min(up.abs()) };
        let farthest = down.abs().max(up.abs());
        let [a, b] = worst.unwrap_or([0.0; 2]);
        worst = Some([a.max(nearest), b.max(farthest)]);
    }
    worst
}

/// Returns the share of a stream's rate that arrives as payload, at round-trip times of
/// [`BROKEN_FROM`] ms or more. The two values are the minimum and the maximum that the 95 %
/// intervals allow. Returns `None` if there are too few rounds, or no such measurements.
fn held(boxes: &[&StreamBox]) -> Option<[f64; 2]> {
    let far = boxes.iter().filter(|one| one.rtt >= BROKEN_FROM);
    let intervals: Vec<[f64; 2]> =
        far.map(|one| one.held.and_then(|held| held.interval)).collect::<Option<_>>()?;
    let least = intervals.iter().map(|[low, _]| *low).reduce(f64::min)?;
    let most = intervals.iter().map(|[_, high]| *high).reduce(f64::max)?;
    Some([least, most])
}

#[cfg(test)]
mod tests {
    use super::super::measured::tests::{measured, streamed};
    use super::super::summary::boxes;
    use super::*;

    fn verdicts(judged: &[JudgedClaim], claim: Claim) -> Vec<(Arm, Verdict)> {
        let of = judged.iter().filter(|one| one.claim == claim);
        of.map(|one| (one.arm, one.verdict)).collect()
    }

    #[test]
    fn downloads_are_judged_on_either_side_of_a_bound_and_not_by_few() {
        let mut records = Vec::new();
        for round in 0..6 {
            records.push(measured(Arm::Direct, round, &[(1.5, 1_000_000); 4]));
            records.push(measured(Arm::Tor, round, &[(2.0, 1_100_000); 4]));
            records.push(measured(Arm::Nosteg, round, &[(2.1, 1_120_000); 4]));
            records.push(measured(Arm::Opaque, round, &[(40.0, 11_000_000); 4]));
            records.push(measured(Arm::Text, round, &[(3.0, 1_600_000); 4]));
        }
        let few = (0..5).map(|round| measured(Arm::Image, round, &[(3.0, 1_600_000); 4]));
        records.extend(few);
        let judged = judge(&records, &[]);
        assert_eq!(verdicts(&judged, Claim::LeanDown), [(Arm::Nosteg, Verdict::Holds)]);
        assert_eq!(verdicts(&judged, Claim::Quick), [(Arm::Nosteg, Verdict::Holds)]);
        let by_arm = |first, second| {
            [(Arm::Opaque, first), (Arm::Text, second), (Arm::Image, Verdict::Open)]
        };
        let expected = by_arm(Verdict::Holds, Verdict::Fails);
        assert_eq!(verdicts(&judged, Claim::HeavyDown), expected);
        assert_eq!(verdicts(&judged, Claim::Slow), expected);
        assert!(judged.iter().all(|one| one.cut == 0 && one.rounds >= 5));
    }

    #[test]
    fn downloads_that_were_cut_hold_no_claim() {
        let mut records = Vec::new();
        for round in 0..6 {
            records.push(measured(Arm::Tor, round, &[(2.0, 1_100_000); 4]));
            records.push(measured(Arm::Nosteg, round, &[(2.0, 1_100_000); 4]));
        }
        records.iter_mut().filter(|record| record.arm == Arm::Nosteg).for_each(|record| {
            record.downloads[1..].iter_mut().for_each(|one| one.whole = None);
        });
        let judged = judge(&records, &[]);
        assert_eq!(verdicts(&judged, Claim::Quick), [(Arm::Nosteg, Verdict::Fails)]);
        assert_eq!(verdicts(&judged, Claim::LeanDown), [(Arm::Nosteg, Verdict::Fails)]);
        assert!(judged.iter().all(|one| one.cut == 18));
    }

    /// Returns six rounds of a stream at the round trip `rtt`. `received` kB of it arrive each
    /// second.
    fn rounds(arm: Arm, rate: u32, (rtt, received): (u32, u64)) -> Vec<Measured> {
        (0..6).map(|round| streamed(arm, (rtt, round), rate, received)).collect()
    }

    #[test]
    fn streams_are_flat_or_they_break() {
        let flat = [100, 200, 450].map(|rtt| rounds(Arm::Opaque, 50, (rtt, 50))).concat();
        let broken = [(100, 50), (200, 20), (450, 10)];
        let broken = broken.map(|point| rounds(Arm::Text, 50, point)).concat();
        let judged = judge(&[], &boxes(&[flat.clone(), broken].concat()));
        assert_eq!(verdicts(&judged, Claim::Flat), [(Arm::Opaque, Verdict::Holds)]);
        let expected = [(Arm::Opaque, Verdict::Fails), (Arm::Text, Verdict::Holds)];
        assert_eq!(verdicts(&judged, Claim::Breaks), expected);
        // A stream that was cut off never counts as flat, whatever its bandwidth was before.
        let mut cut = flat;
        cut[7].streams[0].whole = None;
        let judged = judge(&[], &boxes(&cut));
        assert_eq!(verdicts(&judged, Claim::Flat), [(Arm::Opaque, Verdict::Fails)]);
    }

    #[test]
    fn a_claim_of_flatness_wants_round_trips_and_rounds() {
        assert_eq!(judge(&[], &boxes(&rounds(Arm::Tor, 50, (100, 50)))), []);
        let once = [100, 450].map(|rtt| streamed(Arm::Tor, (rtt, 0), 50, 50));
        let judged = judge(&[], &boxes(&once));
        assert_eq!(verdicts(&judged, Claim::Flat), [(Arm::Tor, Verdict::Open)]);
    }

    #[test]
    fn a_stream_that_falls_is_not_flat() {
        let falling = [(100, 300), (200, 300), (450, 150)];
        let falling = falling.map(|point| rounds(Arm::Nosteg, 300, point)).concat();
        let judged = judge(&[], &boxes(&falling));
        assert_eq!(verdicts(&judged, Claim::Flat), [(Arm::Nosteg, Verdict::Fails)]);
    }
}
