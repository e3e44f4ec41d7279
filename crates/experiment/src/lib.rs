//! Experiments: plans of many measurements that take hours, on emulated networks or of what is
//! computed, and go on where they were stopped.
//!
//! What every experiment shares is here, each in its file:
//!
//! * [`Journal`]: what was measured so far, a line for each unit, safe against a power cut;
//! * [`carry_out`]: unit after unit, with a second try, until all are done or somebody says stop;
//! * [`carry_out_together`]: units shared out among workers; attempts that fail are stored too;
//! * [`Progress`]: how many are done and how long the rest will take;
//! * [`Probe`]: how disturbed the machine was meanwhile;
//! * [`Origin`]: which build, peers and machine a journal's results are of, so that no two are
//!   mixed;
//! * [`Programs`]: where strangers' software is, or how to get it;
//! * [`Spread`]: median, least and most; [`quartiles`]; [`Mean`] and [`Median`] of rounds;
//! * [`table`]: rows as Parquet.
//!
//! An experiment itself is a plan (its units, in a seeded order), a way to carry out one unit, and
//! what its records amount to: [`overhead`], [`pages`], [`circumvention`], which stand on a network
//! of a client, a server and a few paths, with a tunnel by wireguard-go where one is wanted;
//! [`circuits`], [`unordered`] and [`camouflage`], on small onion networks (`onions`); and
//! [`anonymity`], which computes and sends nothing.
//!
//! The design, with its reasons: `docs/design/experiments.md`.

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
mod spread;
mod stage;
pub mod table;
mod together;
mod tunnel;
pub mod unordered;

pub use journal::{Journal, JournalError};
pub use machine::{Disturbance, Probe};
pub use origin::Origin;
pub use programs::{Missing, Programs, built, cache};
pub use progress::Progress;
pub use runner::{Event, Gone, Record, Unit, carry_out};
pub use spread::{Mean, Median, Spread, average, by_round, median_interval, middle, quartiles};
pub use together::{Attempt, Turns, carry_out_together};
