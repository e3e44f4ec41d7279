//! Several circuits for one stream in a small network: de la Cadena et al. (DBSec 2019), section
//! 5.1, Table 1.
//!
//! The network has seven relays (three guards, three middles, one exit), four web servers, 30
//! clients that create load, and one client that measures. This client fetches a page of 320 KiB
//! and a download of 1 MiB. The experiment measures the times to the first byte of the page, to
//! its last byte, and to the last byte of the download. It also measures the CPU time of every
//! relay. Each measurement has its own network of our relays and clients, of C tor's, or of MORE's
//! nodes. The network is on loopback, or has emulated lines of different rates and delays between
//! the guards and the other hosts.
//!
//! * [`Settings`] and [`plan`]: the measurements and their order;
//! * [`Bench`]: executes one measurement;
//! * [`Measured`]: the result of a measurement;
//! * [`summary`]: all results together, compared with [`paper`].
//! * [`simulated`]: the same network in simulation, compared with the measurements.

mod bench;
pub(super) mod load;
mod measured;
pub(super) mod nodes;
pub mod paper;
mod place;
mod plan;
pub mod simulated;
pub mod summary;

pub use bench::Bench;
pub use measured::{MIB, Measured, Repetition, columns};
pub use place::LINES;
pub(super) use plan::Pace;
pub use plan::{Design, LOADED, Layout, Load, MORE_PAUSES, Settings, Unit, WEB, plan};
