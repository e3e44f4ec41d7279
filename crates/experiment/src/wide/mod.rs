//! The larger network of "Analysis of Multi-path Onion Routing" (DBSec 2019), section 5, in
//! simulation: Figures 2, 3 and 4.
//!
//! * [`Settings`] and [`plan`]: designs, schedules, numbers of clients, networks and seeds;
//! * [`Bench`]: carries out runs;
//! * [`Measured`]: the results of a run;
//! * [`summary`]: all runs together;
//! * [`claims`]: the paper's claims, and whether they hold here.

mod bench;
pub mod claims;
mod measured;
mod plan;
pub mod summary;

pub use bench::Bench;
pub use measured::{Class, Measured, SHARES, columns};
pub use plan::{ARMS_GROWN, Arm, MOST_CLIENTS, STEPS, Schedule, Settings, Unit, arms, plan};
