//! Table 1 of de la Cadena, Kaiser, Mitseva, Panchenko and Engel, "Analysis of Multi-path Onion
//! Routing-Based Anonymization Networks" (DBSec 2019), for the designs that this experiment
//! measures. All rows are for the round-robin scheduler and the paper's largest number of clients.

use super::plan::Design;

/// A row of Table 1 in the DBSec 2019 paper: times in seconds, and CPU use in percent of a core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Number of circuits over which a stream is split.
    pub legs: u32,
    /// Time to the first byte of a web page, in seconds.
    pub first_byte: f64,
    /// Time to fetch a web page of 320 KiB, in seconds.
    pub web: f64,
    /// Time to fetch 1 MiB, in seconds; `None` if the fetches in the DBSec 2019 paper did not
    /// finish.
    pub bulk: Option<f64>,
    /// CPU use of a guard, of a middle and of the exit, in percent of a core.
    pub cpu: [f64; 3],
}

/// The row of the DBSec 2019 paper's Table 1 for Tor, which has one circuit. Conflux and mTor with
/// one circuit are also compared with this row.
pub const ONE: Row =
    Row { legs: 1, first_byte: 0.027, web: 0.059, bulk: Some(0.113), cpu: [57.87, 49.85, 31.74] };
/// The rows of the DBSec 2019 paper's Table 1 for Conflux with two and three circuits.
const CONFLUX: [Row; 2] = [
    Row { legs: 2, first_byte: 0.016, web: 0.052, bulk: Some(0.082), cpu: [33.22, 31.01, 31.51] },
    Row { legs: 3, first_byte: 0.014, web: 0.049, bulk: Some(0.079), cpu: [27.24, 22.78, 32.94] },
];
/// The rows of the DBSec 2019 paper's Table 1 for mTor with two and three circuits.
const MTOR: [Row; 2] = [
    Row { legs: 2, first_byte: 0.012, web: 0.055, bulk: Some(0.079), cpu: [25.10, 23.19, 32.51] },
    Row { legs: 3, first_byte: 0.017, web: 0.049, bulk: Some(0.081), cpu: [13.45, 14.62, 32.90] },
];
/// The rows of the DBSec 2019 paper's Table 1 for mUDP-OR with one to three circuits.
const MUDP_OR: [Row; 3] = [
    Row { legs: 1, first_byte: 0.002, web: 0.031, bulk: Some(0.076), cpu: [88.31, 86.89, 71.33] },
    Row { legs: 2, first_byte: 0.002, web: 0.034, bulk: Some(0.081), cpu: [36.75, 32.67, 73.48] },
    Row { legs: 3, first_byte: 0.0024, web: 0.035, bulk: Some(0.113), cpu: [22.73, 24.45, 75.30] },
];
/// Times and CPU use that Table 1 of the DBSec 2019 paper has for MORE (onion routing with a new
/// path for each packet) with one path. The table's values for two and three paths are about the
/// same.
const MORE: Row =
    Row { legs: 1, first_byte: 0.014, web: 1.41, bulk: None, cpu: [6.73, 6.93, 75.92] };

/// Returns the row of the DBSec 2019 paper's Table 1 for `design` with `legs` circuits; `None` if
/// the table has no such row.
#[must_use]
pub fn row(design: Design, legs: u32) -> Option<Row> {
    let rows: &[Row] = match design {
        Design::Tor | Design::Stock => return Some(ONE),
        Design::UdpOr | Design::MudpOr | Design::MudpOrTurns => &MUDP_OR,
        Design::More => &[MORE],
        Design::Conflux2013 | Design::Conflux2013Turns => &CONFLUX,
        Design::MTor | Design::MTorTurns => &MTOR,
        Design::Conflux
        | Design::StockConflux
        | Design::Ours
        | Design::OursTurns
        | Design::Merged
        | Design::MergedBatches => &[],
    };
    rows.iter().copied().find(|row| row.legs == legs)
}
