//! Simulation of the larger network in "Analysis of Multi-path Onion Routing" (DBSec 2019),
//! section 5: Figures 2, 3 and 4.
//!
//! * [`Settings`] and [`plan`]: designs, schedules, numbers of clients, networks and seeds;
//! * [`Bench`]: runs simulations;
//! * [`Measured`]: the results of a simulation;
//! * [`summary`]: all simulations together;
//! * [`claims`]: the paper's claims, and whether they hold here.

mod bench;
pub mod claims;
mod measured;
mod plan;
pub mod summary;

pub use bench::Bench;
pub use measured::{Class, Measured, SHARES, columns};
pub use plan::{ARMS_GROWN, Arm, MOST_CLIENTS, STEPS, Schedule, Settings, Unit, arms, plan};
