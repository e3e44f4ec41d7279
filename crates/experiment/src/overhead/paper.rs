//! What the paper says about the same runs.

use super::Kind;

/// A statement of CoMPS, section 6, about the throughput that splitting costs. The figure's own
/// points are not given as numbers anywhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// About what.
    pub kind: Kind,
    /// The intervals in milliseconds that it speaks of, both included.
    pub every: (u32, u32),
    /// The shares of the throughput that are lost, from and to.
    pub loss: (f64, f64),
    /// In the paper's words, nearly.
    pub words: &'static str,
}

/// All of them.
pub fn claims() -> &'static [Claim] {
    &[
        Claim {
            kind: Kind::WireGuard,
            every: (40, 1000),
            loss: (0.05, 0.10),
            words: "as little as 5-10 % at reasonable intervals (4-6 % at best); less throughput below 40 ms",
        },
        Claim {
            kind: Kind::Mosh,
            every: (10, 1000),
            loss: (0.0, 0.05),
            words: "less than 5 % on average even at 10 ms (4-6 % at reasonable intervals)",
        },
        Claim {
            kind: Kind::Quic,
            every: (30, 1000),
            loss: (0.10, 0.25),
            words: "10-25 % at intervals that protect; below 30 ms too many timeouts by path validation",
        },
    ]
}

/// What is wanted at 100 ms on the equal network over three paths: the share of the unsplit goodput
/// that is kept at least; and what the paper's abstract says is lost.
pub(super) fn target(kind: Kind) -> (f64, &'static str) {
    match kind {
        Kind::WireGuard => (0.98, "5-6 % lost"),
        Kind::Mosh => (0.99, "4-5 % lost"),
        Kind::Quic => (0.80, "10-20 % lost"),
    }
}
