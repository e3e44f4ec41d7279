//! Links on which circuits do not wait for each other: Nowlan, Wolinsky and Ford, "Reducing Latency
//! in Tor Circuits with Unordered Delivery" (FOCI 2013), section 6, Figure 3.
//!
//! Three relays, one path, and downloads that begin together, each by a circuit of its own, over
//! lines of 50 ms of which the last one loses segments. And the line alone: a link that carries
//! cells at a steady rate, each timed as it comes, as its circuit's turn comes, and as the kernel
//! gives it out in order.
//!
//! * [`Settings`] and [`plan`]: which measurements, in which order;
//! * [`Bench`]: carries out one of them;
//! * [`Measured`]: what came of it;
//! * [`summary`]: what all of them amount to, beside [`paper`].

mod bench;
mod cells;
pub mod claims;
mod downloads;
mod measured;
pub mod paper;
mod place;
mod plan;
pub mod summary;

pub use bench::Bench;
pub use measured::{CellDelays, Delays, Download, Measured, cell_columns, columns};
pub use place::{DELAY_MS, QUEUE_MS, RATE_MBIT};
pub use plan::{
    Arm, CELL_CIRCUITS, CELL_RATE, Congestion, Direction, Line, SegmentOrder, Settings, Unit,
    lengths, plan,
};
