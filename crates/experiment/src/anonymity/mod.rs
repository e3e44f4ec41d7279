//! Compromise of multi-path clients by hostile relays: "Analysis of Multi-path Onion Routing"
//! (DBSec 2019), section 6, on consensuses of the public Tor network.
//!
//! This experiment sends no packets. [`anabranch_anonymity`] makes the analysis with the client's
//! own guard and path selection. This module divides the analysis into units that take seconds, so
//! that a run of hours can be stopped and resumed.
//!
//! * [`Settings`] and [`plan`]: consensuses, adversaries and numbers of clients;
//! * [`Bench`]: executes one unit;
//! * [`UnitResult`]: the result of a unit;
//! * [`summary`]: all results together;
//! * [`claims`]: the paper's claims, our results, and whether the claims hold.

mod bench;
pub mod claims;
mod plan;
mod record;
pub mod summary;

pub use bench::{Bench, Reader, open};
pub use plan::{Analysis, NamedConsensus, SHARES, Settings, Unit, VARIANTS, Variant, plan};
pub use record::{Listing, Outcome, UnitResult, columns};
