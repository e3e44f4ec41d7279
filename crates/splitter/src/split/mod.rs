//! The splitter's driver: sockets and a clock around [`anabranch_comps::Core`].
//!
//! [`run`] is the whole program. Its loop is four steps: wait, take what is ready to the core, do
//! what the core says, show the counters. It holds no protocol thought; which path a datagram takes
//! is the core's affair.
//!
//! Between the core and the machine stand five parts, none of which knows the loop: the `door`
//! where clients come in; the `uplinks` that lead out (`ways`, `sockets`, `proxies`,
//! `streams`, `resolver`);
//! the `tunnel` to a far end, if there is one; `control`, what a running splitter is told (signals,
//! new settings, the machine's network); `report`, what it tells (screen, captures, counters). What
//! the loop does with them stands in files of its own: `send`, `relays` (proxies), `by_stream`,
//! `far_end`, `packets` (the interface), `reload`.

mod by_stream;
mod control;
mod door;
mod driver;
mod far_end;
mod lookup;
mod manager;
mod moved;
mod needed;
mod onward;
mod packets;
mod proxies;
mod relays;
mod reload;
mod report;
mod resolver;
mod send;
mod settings;
pub(crate) mod signals;
mod sockets;
mod start;
mod streams;
mod taps;
mod trial;
mod tunnel;
mod uplinks;
mod warnings;
mod ways;

pub use anabranch_os::target::{Target, TargetError};
pub use driver::{run, run_rereading, run_until};
pub(crate) use settings::dealing;
pub use settings::{
    Entrance, Failure, FarEndNews, Listening, Reread, Screen, Settings, fresh_seed,
};
pub use trial::{free_loopback, look_ahead, may_mark};
