//! Counters of the process for Prometheus (`docs/formats.md`), on a separate port and in the format
//! that the client requests.
//!
//! A program passes a collector of its counters to a [`Page`], and the page to a [`Server`]. No
//! metric identifies a client or a server: the page contains only numbers, and the names that the
//! user gave to network paths.

mod format;
mod page;
mod process;
mod samples;
mod serve;

pub use self::page::Page;
pub use self::samples::{count, counter_family, counts, level, levels};
pub use self::serve::Server;
