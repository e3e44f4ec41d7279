//! Whether our transport costs no more than it may: bars of goodput and bytes for downloads of 1 MB
//! on the paper's line without Tor inside, and of a slow stream through Tor.

use super::claims::{Claim, Judged, Verdict};
use super::measured::{Download, Measured};
use super::plan::{Arm, LONGEST, What};
use super::summary::{Median, crossed, ratios};

/// A median of fewer values than this meets no bar, and misses none.
const LEAST: usize = 5;

/// What is held against a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// kB/s from the connection's begin to the last byte: the making of the link counts, too.
    Goodput,
    /// Bytes of IP packets to the client for each byte of payload.
    Down,
    /// The same from the client.
    Up,
    /// How far a stream of 50 kB/s at a longer round trip is from that at the shortest one.
    Flat,
}

/// A bar, and what was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// Of what.
    pub bar: Bar,
    /// The arm.
    pub arm: Arm,
    /// The bar: the least goodput, the most of all else.
    pub bound: f64,
    /// What was found: the median of downloads; of a stream, the most that its intervals allow.
    pub found: f64,
    /// The median's interval; of a stream, least and most.
    pub interval: Option<[f64; 2]>,
    /// The same through Tor, over what it is by Tor alone: a median, download by download.
    pub to_tor: Option<f64>,
    /// Whether it is met; `None` of too few downloads.
    pub is_met: Option<bool>,
}

/// Bars of goodput, of bytes down and of bytes up; those of an arm that has some.
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
    /// What it is of a download, if it ended.
    fn of(self, one: &Download) -> Option<f64> {
        match self {
            Bar::Goodput => one.goodput(),
            Bar::Down => Some(crossed(1)(one)? / f64::from(LONGEST)),
            Bar::Up => Some(crossed(0)(one)? / f64::from(LONGEST)),
            Bar::Flat => None,
        }
    }

    /// Whether a value meets a bound.
    fn is_met(self, value: f64, bound: f64) -> bool {
        if self == Bar::Goodput { value >= bound } else { value <= bound }
    }
}

/// All bars of what was measured; `judged` are the claims that were judged of it.
#[must_use]
pub fn hold(records: &[Measured], judged: &[Judged]) -> Vec<Held> {
    let all = Arm::ALL.iter().flat_map(|&arm| bounds(arm).into_iter().map(move |b| (arm, b)));
    let downloads = all.filter_map(|(arm, (bar, bound))| of_downloads(records, arm, bar, bound));
    downloads.chain(judged.iter().filter_map(of_stream)).collect()
}

fn of_downloads(records: &[Measured], arm: Arm, bar: Bar, bound: f64) -> Option<Held> {
    let bare = records.iter().filter(|record| (record.what, record.arm) == (What::Bare, arm));
    let values: Vec<f64> =
        bare.flat_map(|record| &record.downloads).filter_map(|one| bar.of(one)).collect();
    let Median { median, interval, count } = Median::of(&values)?;
    let to_tor = Median::of(&ratios(records, [arm, Arm::Tor], |one| bar.of(one)));
    Some(Held {
        bar,
        arm,
        bound,
        found: median,
        interval,
        to_tor: to_tor.map(|ratio| ratio.median),
        is_met: (count >= LEAST).then(|| bar.is_met(median, bound)),
    })
}

/// The slow stream of `http-opaque`, which is judged as the paper's claim is.
fn of_stream(one: &Judged) -> Option<Held> {
    let (bound, _) = one.claim.bound();
    let is_it = (one.claim, one.arm, one.rate) == (Claim::Flat, Arm::Opaque, Some(50));
    let interval = one.found.filter(|_| is_it)?;
    let is_met = match one.verdict {
        Verdict::Holds => Some(true),
        Verdict::Fails => Some(false),
        Verdict::Open => None,
    };
    let (bar, arm) = (Bar::Flat, one.arm);
    Some(Held { bar, arm, bound, found: interval[1], interval: one.found, to_tor: None, is_met })
}

#[cfg(test)]
mod tests {
    use super::super::claims::judge;
    use super::super::measured::tests::{measured, streamed};
    use super::super::summary::boxes;
    use super::*;

    fn bare(arm: Arm, round: u32, each: &[(f64, u64)]) -> Measured {
        Measured { what: What::Bare, ..measured(arm, round, each) }
    }

    #[test]
    fn bars_are_of_downloads_without_tor_and_told_beside_those_with_it() {
        let records = [
            bare(Arm::Opaque, 0, &[(2.0, 1_080_000); 5]),
            bare(Arm::Text, 0, &[(4.0, 1_600_000); 5]),
            bare(Arm::Image, 0, &[(5.0, 4_000_000); 4]),
            measured(Arm::Tor, 0, &[(2.0, 1_100_000); 4]),
            measured(Arm::Opaque, 0, &[(4.0, 1_320_000); 4]),
        ];
        let held = hold(&records, &[]);
        let of = |arm, bar| *held.iter().find(|one| (one.arm, one.bar) == (arm, bar)).unwrap();
        let opaque = of(Arm::Opaque, Bar::Goodput);
        assert_eq!((opaque.found, opaque.to_tor, opaque.is_met), (500.0, Some(0.5), Some(true)));
        assert_eq!(of(Arm::Opaque, Bar::Down).to_tor, Some(1.2));
        assert_eq!(of(Arm::Opaque, Bar::Up).is_met, Some(true));
        assert_eq!(of(Arm::Text, Bar::Goodput).is_met, Some(false));
        assert_eq!(of(Arm::Text, Bar::Down).is_met, Some(false));
        assert_eq!(of(Arm::Image, Bar::Goodput).is_met, None, "four are too few");
        assert_eq!(held.len(), 9, "nothing of what was not measured");
    }

    #[test]
    fn the_slow_stream_is_judged_by_its_intervals() {
        let flat = [100, 450].map(|rtt| streamed(Arm::Opaque, rtt, 50, 50));
        let held = hold(&[], &judge(&flat, &boxes(&flat)));
        assert_eq!(
            held.iter().map(|one| (one.bar, one.is_met)).next(),
            Some((Bar::Flat, Some(true)))
        );
        let steep = [(100, 50), (450, 20)].map(|(rtt, came)| streamed(Arm::Opaque, rtt, 50, came));
        assert_eq!(hold(&[], &judge(&steep, &boxes(&steep)))[0].is_met, Some(false));
    }
}
