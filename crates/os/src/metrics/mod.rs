//! A run's counters for Prometheus (`docs/formats.md`), on a port of their own, in the format that
//! the client asks for.
//!
//! A program hands a [`Page`] a collector of its counters and a [`Server`] the page. No metric
//! identifies a client or a server: numbers, and the names that the user gave to paths.

mod format;
mod page;
mod process;
mod samples;
mod serve;

pub use self::page::Page;
pub use self::samples::{count, counter_family, counts, level, levels};
pub use self::serve::Server;
