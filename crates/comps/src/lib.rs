//! wip
mod config;
mod event;
mod stats;
mod protocol;
pub use config::{Config, Guess};
pub use event::{CloseReason, DownReason, Event, SessionId};
pub use stats::{Drops, Flow, PathCounters, Snapshot};
pub use protocol::Protocol;
