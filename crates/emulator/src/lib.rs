//! An emulated network on one machine. Its hosts are network namespaces, and its links are
//! [`anabranch_netem::Link`]s between two TUN interfaces.
//!
//! ```text
//!  host (namespace)             this process               host (namespace)
//!  sockets ─ p0 (TUN) ──▶ read ─▶ netem::Link ─▶ write ──▶ p0 (TUN) ─ sockets
//!                     ◀── write ◀─ netem::Link ◀─ read ◀──
//! ```
//!
//! A [`Topology`] is parsed from TOML. A [`Network`] is built from it and runs on one thread, and
//! [`Programs`] run in its hosts. Namespaces have no names, interfaces are not persistent, and the
//! programs' PID namespace depends on a pipe from this process. Therefore everything vanishes with
//! this process, even if the process is killed. The emulator changes nothing outside those
//! namespaces. A host may be a middlebox that blocks connections ([`censor`]).
//!
//! The precision depends on how idle the machine is. It suffices for functional tests and for
//! throughput of some 100 Mbit/s per link, but not for measurements of single milliseconds.

mod agenda;
pub mod censor;
mod check;
mod edit;
mod engine;
mod nat;
mod network;
mod process_group;
mod program;
mod programs;
mod setup;
mod stats;
mod topology;
mod units;

pub use anabranch_os::namespace::{Namespace, enter_user_namespace_if_needed};
pub use check::{Need, check};
pub use edit::{EDIT_KEYS, Edit, IMPAIRMENTS, Impairment};
pub use network::{Network, UnknownLink};
pub use process_group::{GroupProcess, ProcessGroup};
pub use program::{Expect, Program, ProgramEnd};
pub use programs::{Job, Notice, Output, Programs};
pub use setup::SetupError;
pub use stats::{DirectionStats, Drops, LinkStats, Tally};
pub use topology::{Cable, End, Event, Host, Route, TcpControl, Topology};
pub use units::{LawRule, LossRule, QueueRule, Rate, Size, Span};
