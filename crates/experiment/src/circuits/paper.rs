//! Table 1 of de la Cadena, Kaiser, Mitseva, Panchenko and Engel, Analysis of Multi-path Onion
//! Routing-Based Anonymization Networks (DBSec 2019), as far as its designs are here: all round
//! robin, at its greatest number of clients.

use super::plan::Design;

/// A row: seconds, and CPU in per cent of a core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Circuits.
    pub legs: u32,
    /// To the first byte.
    pub first_byte: f64,
    /// A page of 320 KiB.
    pub web: f64,
    /// A download of 1 MiB.
    pub bulk: f64,
    /// A guard's, a middle's and the exit's.
    pub cpu: [f64; 3],
}

/// Of Tor, and of Conflux and mTor with one circuit.
pub const ONE: Row =
    Row { legs: 1, first_byte: 0.027, web: 0.059, bulk: 0.113, cpu: [57.87, 49.85, 31.74] };
const CONFLUX: [Row; 2] = [
    Row { legs: 2, first_byte: 0.016, web: 0.052, bulk: 0.082, cpu: [33.22, 31.01, 31.51] },
    Row { legs: 3, first_byte: 0.014, web: 0.049, bulk: 0.079, cpu: [27.24, 22.78, 32.94] },
];
const MTOR: [Row; 2] = [
    Row { legs: 2, first_byte: 0.012, web: 0.055, bulk: 0.079, cpu: [25.10, 23.19, 32.51] },
    Row { legs: 3, first_byte: 0.017, web: 0.049, bulk: 0.081, cpu: [13.45, 14.62, 32.90] },
];

/// What the paper has for a design over so many circuits.
#[must_use]
pub fn row(design: Design, legs: u32) -> Option<Row> {
    let rows: &[Row] = match design {
        Design::Tor | Design::Stock => return Some(ONE),
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
