//! The anonymity analysis of "Analysis of Multi-path Onion Routing" (DBSec 2019, section 6). It
//! runs on consensuses of the public Tor network, with the client's own guard selection and path
//! selection.
//!
//! From the input to the results:
//!
//! 1. [`consensus`] reads a consensus: a document of the directory protocol, or a table with one
//!    relay per row.
//! 2. [`hostile`] selects the relays that the adversary runs.
//! 3. [`paths`] computes the probability that a stream over `m` circuits is compromised: by a
//!    formula, and by simulated circuits.
//! 4. [`year`] computes the share of clients that are compromised within a year, with one, two or
//!    three guards. [`population`] is the population of relays over that year, in which relays
//!    join and leave.
//! 5. [`fingerprints`] counts the clients that share a set of `m` guards.
//! 6. [`figures`] computes means and intervals over the random draws.
//!
//! The crate opens no file, reads no clock, starts no thread and draws no entropy. Its results
//! depend only on the input and the seed, and not on the number of [`Workers`].

pub mod consensus;
pub mod figures;
pub mod fingerprints;
pub mod hostile;
pub mod paths;
pub mod population;
mod workers;
pub mod year;

use anabranch_onion::guards::GuardParams;

pub use workers::{ShareOut, Workers};

/// Maximum number of circuits per stream (legs), and thus of a client's entry relays.
pub const MOST_LEGS: usize = 8;

/// An invalid setting of the analysis, described in one line for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSetting(pub String);

impl std::fmt::Display for BadSetting {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for BadSetting {}

/// Checks that `value`, the value of the setting `name`, is a fraction above 0 and below 1.
/// Returns the value.
fn share(name: &str, value: f64) -> Result<f64, BadSetting> {
    match value > 0.0 && value < 1.0 {
        true => Ok(value),
        false => Err(BadSetting(format!("{name} is {value}: expected a number between 0 and 1"))),
    }
}

/// Checks that a client with `legs` circuits per stream uses at most [`MOST_LEGS`] guards, and
/// that the consensus has at least as many guards.
fn enough_guards(guards: usize, params: &GuardParams, legs: usize) -> Result<(), BadSetting> {
    let in_use = params.for_legs(legs).primary_to_use;
    count("the number of guards in use", in_use, MOST_LEGS)?;
    match in_use <= guards {
        true => Ok(()),
        false => Err(BadSetting(format!(
            "a client would use {in_use} guards (entry relays), but the consensus has only \
             {guards}: lower the number of legs (circuits per stream) or of guards in use"
        ))),
    }
}

/// Checks that `value`, the value of the count setting `name`, is from 1 to `most`. Returns the
/// value.
fn count(name: &str, value: usize, most: usize) -> Result<usize, BadSetting> {
    match (1..=most).contains(&value) {
        true => Ok(value),
        false => Err(BadSetting(format!("{name} is {value}: expected a number from 1 to {most}"))),
    }
}
