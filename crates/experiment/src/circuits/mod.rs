//! Several circuits for one stream in a small network: de la Cadena et al. (DBSec 2019), section
//! 5.1, Table 1.
//!
//! Seven relays (three first, three in the middle, one exit), four web servers, 30 clients that
//! load the network and one that measures: the time to the first byte of a page of 320 KiB, to its
//! last one, to that of 1 MiB, and the CPU of every relay. Each measurement is a network of its
//! own, of our relays and clients or of C tor's, on loopback or with lines of different rates and
//! delays before the guards.
//!
//! * [`Settings`] and [`plan`]: which measurements, in which order;
//! * [`Bench`]: carries out one of them;
//! * [`Measured`]: what came of it;
//! * [`summary`]: what all of them amount to, beside [`paper`].

mod bench;
mod load;
mod measured;
mod nodes;
pub mod paper;
mod place;
mod plan;
pub mod summary;

pub use bench::Bench;
pub use measured::{MIB, Measured, Repetition, columns};
pub use place::LINES;
pub use plan::{Design, LOADED, Load, Place, Settings, Unit, WEB, plan};
