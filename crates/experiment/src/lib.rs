//! Experiments: plans of many measurements that take hours, on emulated networks or by
//! computation. A stopped experiment can be resumed where it stopped.
//!
//! All experiments share these parts, one per file:
//!
//! * [`Journal`] stores the results so far, one line per unit (measurement), and survives a power
//!   failure.
//! * [`carry_out`] runs one unit after another until all are done or the experiment is stopped. A
//!   failed unit has a second attempt.
//! * [`carry_out_together`] distributes the units among workers. It also stores failed attempts.
//! * [`Progress`] counts finished units and estimates the remaining time.
//! * [`Probe`] measures how busy the machine was during a unit.
//! * [`Origin`] identifies the build, the third-party programs and the machine of a journal's
//!   results, so that results of different origins are never mixed.
//! * [`Programs`] finds third-party software, or explains how to install it.
//! * [`Spread`] is a median with its minimum and maximum. [`quartiles`], [`Mean`] and [`Median`]
//!   summarise rounds.
//! * [`table`] writes rows as Parquet.
//! * [`simulated`] runs a simulated onion network; [`sweep`] runs many simulations.
//!
//! An experiment is a plan (its units in a seeded order), a function that runs one unit, and a
//! summary of the records. [`overhead`], [`pages`] and [`circumvention`] run on a network of a
//! client, a server and a few paths, with a `wireguard-go` tunnel where needed. [`circuits`],
//! [`unordered`] and [`camouflage`] run on small onion networks (`onions`). [`anonymity`] only
//! computes, without any network; [`wide`] only simulates. [`validation`] measures and simulates
//! the same network.
//!
//! The design and its reasons: `docs/design/experiments.md`.

pub mod anonymity;
pub mod camouflage;
mod certificates;
pub mod circuits;
pub mod circumvention;
mod journal;
mod machine;
mod named;
mod onions;
mod origin;
pub mod overhead;
pub mod pages;
mod programs;
mod progress;
mod quic;
mod runner;
pub mod simulated;
mod spread;
mod stage;
pub mod sweep;
pub mod table;
mod together;
mod tunnel;
pub mod unordered;
pub mod validation;
pub mod wide;

pub use journal::{Journal, JournalError};
pub use machine::{Disturbance, Probe};
pub use origin::Origin;
pub use programs::{Missing, Programs, built, cache};
pub use progress::Progress;
pub use runner::{Event, Incomplete, Record, Unit, carry_out};
pub use spread::{
    Mean, Median, Spread, average, by_round, median_interval, middle, quartiles, ratio,
};
pub use together::{Attempt, Turns, carry_out_together};
