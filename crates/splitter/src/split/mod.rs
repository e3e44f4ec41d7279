//! The splitter's driver: sockets and a clock around [`anabranch_comps::Core`].
//!
//! [`run`] runs a splitter. Its loop has four steps: wait, pass ready input to the core (a
//! protocol state machine without I/O), execute the core's outputs, report the counters. The loop
//! has no protocol logic; the core selects the path of each datagram.
//!
//! Five parts connect the core with the machine. None of them depends on the loop:
//!
//! * `ingress`: the place at which clients' datagrams arrive.
//! * `uplinks`: the connections to the servers (`egress_table`, `sockets`, `proxies`, `streams`,
//!   `resolver`).
//! * `tunnel`: the near end of a tunnel to a far end, if there is one.
//! * `control`: external events of a running splitter (signals, new settings, the machine's
//!   network).
//! * `report`: the output of the run (screen, captures, counters).
//!
//! The loop's code for these parts is in separate files: `send`, `relays` (proxies), `by_stream`,
//! `far_end`, `packets` (the interface), `reload`.

mod by_stream;
mod control;
mod driver;
mod egress_table;
mod far_end;
mod ingress;
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

pub use anabranch_os::target::{Target, TargetError};
pub use driver::{run, run_rereading, run_until};
pub(crate) use settings::dealing;
pub use settings::{
    ActiveSettings, Entrance, Failure, FarEndNews, Reread, Screen, Settings, fresh_seed,
};
pub use trial::{free_loopback, look_ahead, may_mark};
