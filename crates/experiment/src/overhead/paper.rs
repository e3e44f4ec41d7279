//! Statements of the CoMPS paper about the throughput cost of splitting.

use super::Kind;

/// A statement of CoMPS, section 6, about the throughput cost of splitting. The paper does not give
/// the points of its figure as numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Protocol that the statement is about.
    pub kind: Kind,
    /// Smallest and largest switching interval that the statement is about, in milliseconds.
    pub every: (u32, u32),
    /// Smallest and largest share of the throughput that splitting costs, according to the
    /// statement.
    pub loss: (f64, f64),
    /// Wording of the CoMPS paper, adapted so that it can be read alone.
    pub words: &'static str,
}

/// Returns all statements of the CoMPS paper.
pub fn claims() -> &'static [Claim] {
    &[
        Claim {
            kind: Kind::WireGuard,
            every: (40, 1000),
            loss: (0.05, 0.10),
            words: "costs 5-10 % of the throughput (4-6 % at best) if each path is used for at least \
                    40 ms, and more if it is used for less",
        },
        Claim {
            kind: Kind::Mosh,
            every: (10, 1000),
            loss: (0.0, 0.05),
            words: "costs less than 5 % of the throughput on average, even if paths change every 10 ms (and \
                    4-6 % if they change less often)",
        },
        Claim {
            kind: Kind::Quic,
            every: (30, 1000),
            loss: (0.10, 0.25),
            words: "costs 10-25 % of the throughput if paths change often enough to protect; below 30 ms, \
                    path validation causes too many timeouts",
        },
    ]
}

/// Returns this project's target for splitting traffic of the protocol `kind`: a new choice every
/// 100 ms among three paths with equal round-trip times. The returned number is the minimum share
/// of the unsplit goodput. The text is the loss of throughput that the abstract of the CoMPS paper
/// states.
pub(super) fn target(kind: Kind) -> (f64, &'static str) {
    match kind {
        Kind::WireGuard => (0.98, "5-6 % lost"),
        Kind::Mosh => (0.99, "4-5 % lost"),
        Kind::Quic => (0.80, "10-20 % lost"),
    }
}
