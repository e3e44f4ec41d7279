//! Links between relays on which a lost segment of one circuit does not delay others: Nowlan,
//! Wolinsky and Ford, "Reducing Latency in Tor Circuits with Unordered Delivery" (FOCI 2013),
//! section 6, Figure 3.
//!
//! The network is a path of three relays, connected by emulated network lines of 50 ms. The last
//! line loses TCP segments. Downloads start at the same time, each over its own circuit. A second
//! experiment uses only the last line: an OR link on this line carries cells at a steady rate.
//! This experiment measures three delays of each cell: until the cell arrives, until all earlier
//! cells of its circuit have arrived, and until the kernel delivers the cell in order.
//!
//! * [`Settings`] and [`plan`]: the measurements and their order;
//! * [`Bench`]: executes one measurement; [`Simulator`] does so in virtual time;
//! * [`Measured`]: the result of a measurement;
//! * [`summary`]: all results together, compared with [`paper`].

mod bench;
mod cells;
pub mod claims;
mod downloads;
mod measured;
pub mod paper;
mod place;
mod plan;
mod simulated;
pub mod summary;

pub use bench::Bench;
pub use measured::{CellDelays, Delays, Download, Measured, cell_columns, columns};
pub use place::{DELAY_MS, QUEUE_MS, RATE_MBIT};
pub use plan::{
    Arm, CELL_CIRCUITS, CELL_RATE, Congestion, Direction, Line, SegmentOrder, Settings, Unit,
    lengths, plan,
};
pub use simulated::Simulator;
