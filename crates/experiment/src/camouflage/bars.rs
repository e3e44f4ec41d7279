//! Limits for the cost of our camouflage transport. They apply to goodput and bytes of 1 MB
//! downloads through our transport without Tor. The client's access line is emulated with the
//! rates and the round-trip time of the StegoTorus paper. One more limit applies to a slow stream
//! through Tor and our transport: its bandwidth on the wire must not depend on the round-trip
//! time.

use super::super::Median;
use super::claims::{Claim, JudgedClaim, Verdict};
use super::measured::Measured;
use super::plan::{Arm, LONGEST, MeasurementKind};
use super::summary::{Quantity, counts, ratios, rounds};

/// Minimum number of rounds (passes over all settings) for a verdict on downloads. With fewer
/// rounds, there is no verdict, unless a download failed.
const LEAST: usize = 5;

/// Quantity that measures the cost of our transport, and for which a limit is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// Goodput in kB/s, from the start of the connection to the last byte, including link set-up.
    Goodput,
    /// Bytes of all IP packets to the client, divided by the bytes of payload.
    Down,
    /// Bytes of all IP packets from the client, divided by the bytes of payload.
    Up,
    /// Largest relative deviation of a 50 kB/s stream's bandwidth on the wire from its bandwidth
    /// at the shortest round-trip time.
    Flat,
}

/// Comparison of a measured cost with its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostComparison {
    /// The quantity that has the limit.
    pub bar: Bar,
    /// The configuration (profile) of our transport whose cost is limited.
    pub arm: Arm,
    /// The limit: a minimum for goodput, a maximum for all other quantities.
    pub bound: f64,
    /// Measured value: the median over rounds. For [`Bar::Flat`], it is the upper end of
    /// `interval`, or NaN if there are too few rounds.
    pub found: f64,
    /// The 95 % confidence interval of the median. For [`Bar::Flat`], it has the smallest and the
    /// largest deviation that the 95 % intervals of the bandwidths allow. `None` if there are too
    /// few rounds.
    pub interval: Option<[f64; 2]>,
    /// Number of rounds (passes over all settings). For [`Bar::Flat`], it is the smallest number
    /// of rounds at any round-trip time.
    pub rounds: usize,
    /// Number of downloads or streams that were cut off or failed. If this number is not 0, the
    /// limit is missed, whatever the median is.
    pub cut: usize,
    /// The quantity for downloads by Tor through our transport, divided by the quantity for
    /// downloads by Tor alone: the median over rounds. `None` if it was not measured.
    pub to_tor: Option<f64>,
    /// True if the limit is met. `None` if there is no verdict: nothing failed, but there are too
    /// few rounds or, for [`Bar::Flat`], the limit is inside `interval`.
    pub is_met: Option<bool>,
}

impl CostComparison {
    /// Returns the margin between the measured value and the limit, as a fraction of the limit.
    /// The margin is negative if the limit is missed.
    #[must_use]
    pub fn spare(&self) -> f64 {
        let more = self.found / self.bound - 1.0;
        if self.bar == Bar::Goodput { more } else { -more }
    }
}

/// Returns the limits of goodput, bytes down and bytes up for the configuration `arm`. The result
/// is empty if `arm` has no limits.
fn bounds(arm: Arm) -> Vec<(Bar, f64)> {
    let (goodput, down) = match arm {
        Arm::Nosteg => (None, 1.076),
        Arm::Opaque => (Some(400.0), 1.1),
        Arm::Text => (Some(300.0), 1.5),
        Arm::Image => (Some(60.0), 8.0),
        _ => return Vec::new(),
    };
    let goodput = goodput.map(|bound| (Bar::Goodput, bound));
    goodput.into_iter().chain([(Bar::Down, down), (Bar::Up, 0.06)]).collect()
}

impl Bar {
    /// Returns the download quantity that this limit applies to, and a divisor. The measured
    /// quantity divided by the divisor is compared with the limit.
    fn quantity(self) -> (Quantity, f64) {
        match self {
            Bar::Down => (Quantity::Down, f64::from(LONGEST)),
            Bar::Up => (Quantity::Up, f64::from(LONGEST)),
            Bar::Goodput | Bar::Flat => (Quantity::Goodput, 1.0),
        }
    }

    /// Returns whether `value` meets the limit `bound`.
    fn is_met(self, value: f64, bound: f64) -> bool {
        if self == Bar::Goodput { value >= bound } else { value <= bound }
    }
}

/// Compares all measured configurations with their limits. `judged` has the verdicts on the
/// StegoTorus paper's claims. They contain the measured bandwidth deviations of streams.
#[must_use]
pub fn hold(records: &[Measured], judged: &[JudgedClaim]) -> Vec<CostComparison> {
    let all = Arm::ALL.iter().flat_map(|&arm| bounds(arm).into_iter().map(move |b| (arm, b)));
    let downloads = all.filter_map(|(arm, (bar, bound))| of_downloads(records, arm, bar, bound));
    downloads.chain(judged.iter().filter_map(of_stream)).collect()
}

fn of_downloads(records: &[Measured], arm: Arm, bar: Bar, bound: f64) -> Option<CostComparison> {
    let (which, (quantity, unit)) = ((MeasurementKind::Bare, arm), bar.quantity());
    let rounds = rounds(records, which, quantity).into_values().map(|value| value / unit);
    let Median { median, interval, count } = Median::of(&rounds.collect::<Vec<_>>())?;
    let (_, cut) = counts(records, which);
    let is_met = match cut {
        0 => (count >= LEAST).then(|| bar.is_met(median, bound)),
        _ => Some(false),
    };
    let to_tor = Median::of(&ratios(records, [arm, Arm::Tor], quantity));
    let to_tor = to_tor.map(|ratio| ratio.median);
    Some(CostComparison {
        bar,
        arm,
        bound,
        found: median,
        interval,
        rounds: count,
        cut,
        to_tor,
        is_met,
    })
}

/// Compares the bandwidth of the 50 kB/s stream through `http-opaque` with its limit. The measured
/// value is in `one`, a verdict on a claim of the StegoTorus paper. Returns `None` if `one` is
/// about another stream or another claim.
fn of_stream(one: &JudgedClaim) -> Option<CostComparison> {
    let (bound, _) = one.claim.bound();
    let is_it = (one.claim, one.arm, one.rate) == (Claim::Flat, Arm::Opaque, Some(50));
    if !is_it {
        return None;
    }
    let is_met = match one.verdict {
        Verdict::Holds => Some(true),
        Verdict::Fails => Some(false),
        Verdict::Open => None,
    };
    Some(CostComparison {
        bar: Bar::Flat,
        arm: one.arm,
        bound,
        found: one.found.map_or(f64::NAN, |[_, most]| most),
        interval: one.found,
        rounds: one.rounds,
        cut: one.cut,
        to_tor: None,
        is_met,
    })
}

#[cfg(test)]
mod tests {
    use super::super::claims::judge;
    use super::super::measured::tests::{measured, streamed};
    use super::super::summary::boxes;
    use super::*;

    fn bare(arm: Arm, round: u32, each: &[(f64, u64)]) -> Measured {
        Measured { what: MeasurementKind::Bare, ..measured(arm, round, each) }
    }

    /// Returns five rounds of four downloads through our transport alone, without Tor. `each` has
    /// the time of each download, and its bytes to the client.
    fn bares(arm: Arm, each: (f64, u64)) -> Vec<Measured> {
        (0..5).map(|round| bare(arm, round, &[each; 4])).collect()
    }

    #[test]
    fn bars_are_of_rounds_without_tor_and_told_beside_those_with_it() {
        let mut records = bares(Arm::Opaque, (2.0, 1_080_000));
        records.extend(bares(Arm::Text, (4.0, 1_600_000)));
        records.extend(bares(Arm::Image, (5.0, 4_000_000)).split_off(1));
        records.push(measured(Arm::Tor, 0, &[(2.0, 1_100_000); 4]));
        records.push(measured(Arm::Opaque, 0, &[(4.0, 1_320_000); 4]));
        let held = hold(&records, &[]);
        let of = |arm, bar| *held.iter().find(|one| (one.arm, one.bar) == (arm, bar)).unwrap();
        let opaque = of(Arm::Opaque, Bar::Goodput);
        assert_eq!((opaque.found, opaque.to_tor, opaque.is_met), (500.0, Some(0.5), Some(true)));
        assert_eq!((opaque.spare(), opaque.rounds), (0.25, 5));
        assert_eq!(of(Arm::Opaque, Bar::Down).to_tor, Some(1.2));
        assert_eq!(of(Arm::Opaque, Bar::Up).is_met, Some(true));
        assert_eq!(of(Arm::Text, Bar::Goodput).is_met, Some(false));
        let down = of(Arm::Text, Bar::Down);
        assert!(down.is_met == Some(false) && (down.spare() + 0.067).abs() < 0.001, "{down:?}");
        assert_eq!(of(Arm::Image, Bar::Goodput).is_met, None, "four rounds are too few");
        assert_eq!(held.len(), 9, "nothing of what was not measured");
    }

    #[test]
    fn a_bar_is_missed_where_a_download_was_cut() {
        let mut records = bares(Arm::Opaque, (2.0, 1_080_000));
        records[3].downloads[0].whole = None;
        for one in hold(&records, &[]) {
            assert_eq!((one.cut, one.is_met), (1, Some(false)), "{one:?}");
        }
    }

    #[test]
    fn the_slow_stream_is_judged_by_its_intervals() {
        let at = |rtt, received| {
            (0..6).map(move |round| streamed(Arm::Opaque, (rtt, round), 50, received))
        };
        let flat: Vec<_> = at(100, 50).chain(at(450, 50)).collect();
        let held = hold(&[], &judge(&flat, &boxes(&flat)));
        assert_eq!((held[0].bar, held[0].is_met, held[0].rounds), (Bar::Flat, Some(true), 6));
        let steep: Vec<_> = at(100, 50).chain(at(450, 20)).collect();
        assert_eq!(hold(&[], &judge(&steep, &boxes(&steep)))[0].is_met, Some(false));
    }
}
