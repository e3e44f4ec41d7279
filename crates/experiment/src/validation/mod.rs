//! A wide onion network that is measured on emulated lines, and simulations of the same network.
//! The experiment compares both, to validate the simulator.
//!
//! The network has 24 relays, some web servers, 60 clients that load web pages with pauses, and a
//! few clients that download one file after another. Each of them is a host with an access line of
//! its own. The rates and delays of the lines are drawn from the tables of the simulator. The
//! relays and clients are our programs or C tor.
//!
//! * [`Settings`] and [`plan`]: the runs and their order;
//! * [`WideNetwork`]: the lines of all hosts, and the relays that each client uses;
//! * [`Bench`]: executes a run, in the emulator or in the simulator;
//! * [`Measured`]: the result of a run;
//! * [`summary`]: measured and simulated times, compared.

mod bench;
mod measured;
mod nodes;
mod place;
mod plan;
mod scenario;
mod simulated;
pub mod summary;

pub use bench::Bench;
pub use measured::{Measured, RelayUse, Transfer, columns, relay_columns};
pub use plan::{Refused, RunSource, Settings, Unit, plan};
pub use scenario::{Counts, SCALE, WideNetwork};
