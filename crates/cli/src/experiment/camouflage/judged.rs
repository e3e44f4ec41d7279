//! Texts about the verdicts: whether the cost of each camouflage profile is below its limit, and
//! whether the claims of the paper (Weinberg et al., CCS 2012) hold.

use anabranch_experiment::camouflage::bars::{Bar, CostComparison};
use anabranch_experiment::camouflage::claims::{Claim, JudgedClaim, Verdict};

use super::super::numbers::{NONE, span, value};
use super::words::{ReportData, times, title};

/// Column headings of the table that compares the cost of each camouflage profile with its limit.
pub(super) const BAR_HEAD: [&str; 7] =
    ["quantity", "connection", "limit", "measured", "verdict", "rounds", "through Tor / Tor alone"];

/// Returns the text that explains the limits for the cost of camouflage profiles, and how a cost
/// is judged.
pub(super) fn held() -> &'static str {
    "Each limit is the most that one of our profiles (forms of camouflage) may cost. Goodput and \
     bytes are those of downloads of 1 MB without Tor. The row \"stream of 50 kB/s\" is about a \
     steady stream through Tor. For each round (repetition) the median of its downloads is taken; \
     a measured value is the median of these values. From six rounds on it has a 95 % interval \
     (by ranks). The last column is a ratio: the value of this download through our profile and \
     Tor, divided by that of Tor alone in the same round. Goodput is measured from the start of \
     the connection, so it includes the time to open the link. A limit is met if our profile \
     costs no more, and missed if it costs more, or if any download was aborted or failed. With \
     fewer than five rounds a limit cannot be judged."
}

/// Returns the rows of the table that compares the cost of each camouflage profile with its limit.
/// Missed limits come first. The headings are [`BAR_HEAD`].
pub(super) fn bar_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    let mut bars: Vec<&CostComparison> = report_data.bars.iter().collect();
    bars.sort_by_key(|one| [Some(false), None, Some(true)].iter().position(|is| *is == one.is_met));
    bars.into_iter().map(bar_row).collect()
}

fn bar_row(one: &CostComparison) -> Vec<String> {
    let (text, digits) = match one.bar {
        Bar::Goodput => ("goodput, kB/s", 0),
        Bar::Down => ("bytes down / payload", 3),
        Bar::Up => ("bytes up / payload", 3),
        Bar::Flat => (
            "stream of 50 kB/s: change of its bandwidth from that at the shortest round-trip time",
            3,
        ),
    };
    let sign = if one.bar == Bar::Goodput { "≥" } else { "≤" };
    let found = match one.bar {
        // The measured value is the upper end of the interval, which is printed below.
        Bar::Flat => None,
        _ => Some(value(one.found, digits)),
    };
    let interval = one.interval.map(|interval| span(interval, digits));
    let found = found.into_iter().chain(interval).collect::<Vec<_>>().join(" ");
    vec![
        text.to_owned(),
        title(one.arm).to_owned(),
        format!("{sign} {}", one.bound),
        if found.is_empty() { NONE.to_owned() } else { found },
        bar_verdict(one),
        one.rounds.to_string(),
        times(one.to_tor),
    ]
}

/// Describes whether a measured cost is within its limit, and by how many per cent of the limit it
/// differs.
fn bar_verdict(one: &CostComparison) -> String {
    // The distance is in per cent of the limit, and may exceed 100.
    let spare = one.spare() * 100.0;
    match (one.is_met, one.cut) {
        (None, _) => "cannot be judged: too few rounds".to_owned(),
        (Some(_), cut) if cut > 0 => {
            format!("limit missed, because {cut} downloads or streams were aborted or failed")
        }
        (Some(true), _) => format!("met, with a margin of {spare:.1} %"),
        (Some(false), _) => format!("missed by {:.1} %", -spare),
    }
}

/// Column headings of the table of the claims of the paper (Weinberg et al., CCS 2012).
pub(super) const CLAIM_HEAD: [&str; 6] =
    ["claim of the paper", "paper's value", "connection", "holds if", "measured", "verdict"];

fn claim(claim: Claim) -> (&'static str, &'static str) {
    match claim {
        Claim::LeanDown => (
            "StegoTorus without a cover protocol sends little more than Tor, to the client",
            "1.008 × Tor's",
        ),
        Claim::LeanUp => (
            "StegoTorus without a cover protocol sends little more than Tor, to the server",
            "1.031 × Tor's",
        ),
        Claim::Quick => {
            ("StegoTorus without a cover protocol is as fast as Tor", "553 of 573 kB/s")
        }
        Claim::HeavyDown => (
            "StegoTorus over HTTP sends many times the bytes of a direct \
                              download, to the client",
            "12 × direct",
        ),
        Claim::HeavyUp => (
            "StegoTorus over HTTP sends many times the bytes of a direct download, \
                            to the server",
            "41 × direct",
        ),
        Claim::Slow => ("StegoTorus over HTTP is slow", "27 of 573 kB/s"),
        Claim::Flat => {
            ("the bandwidth of a stream does not depend on the round-trip time", "flat to 450 ms")
        }
        Claim::Breaks => (
            "StegoTorus over HTTP does not sustain 50 kB/s at round-trip times of \
                           200 ms or more",
            "44 to 23 kB/s from 250 ms on",
        ),
    }
}

/// Explains how the verdict about each claim of the paper is reached.
pub(super) fn judged() -> &'static str {
    "A claim is judged by the 95 % interval of a measured value. The claim holds if the whole \
     interval satisfies its bound, and does not hold if no part of it does. Otherwise the claim \
     cannot be judged. The bounds are ours, because the paper (StegoTorus, CCS 2012) gives \
     numbers without intervals. For a claim that a connection sends many times the bytes, the \
     bound is about half of the paper's factor. Downloads over two kinds of connection are \
     compared by the ratio of their medians in each round. The interval is computed from the \
     ranks of these ratios, and needs six rounds. For a stream of constant bandwidth, the medians \
     at the worst and at the shortest round-trip time are compared, within their intervals. A \
     stream that was aborted is not constant. For a sustained stream, the share of 50 kB/s that \
     arrives in a second is judged, at all round-trip times from 200 ms on. If a claim about the \
     cost of HTTP does not hold for our profile, our profile costs less than the paper's. A \
     constant bandwidth of http-opaque is not a claim of the paper; it is a target for our \
     profile."
}

/// Returns the paper's claims as rows of a table. The headings are [`CLAIM_HEAD`].
pub(super) fn claim_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    let row = |one: &JudgedClaim| {
        let ((text, number), (bound, is_least)) = (claim(one.claim), one.claim.bound());
        let about = match one.rate {
            Some(rate) => format!("{}, {rate} kB/s", title(one.arm)),
            None => title(one.arm).to_owned(),
        };
        let verdict = match one.verdict {
            Verdict::Holds => "holds",
            Verdict::Fails => "does not hold",
            Verdict::Open => "cannot be judged",
        };
        vec![
            text.to_owned(),
            number.to_owned(),
            about,
            format!("{} {bound:.2}", if is_least { "≥" } else { "≤" }),
            found(one),
            verdict.to_owned(),
        ]
    };
    report_data.claims.iter().map(row).collect()
}

fn found(one: &JudgedClaim) -> String {
    let median = one.median.map(|median| value(median, 3));
    let interval = one.found.map(|interval| span(interval, 3));
    let cut = (one.cut > 0).then(|| format!("({} were aborted)", one.cut));
    let all = [median, interval, cut, Some(format!("(of {})", one.rounds))];
    all.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
