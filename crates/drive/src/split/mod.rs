//! The splitter's driver: sockets and a clock around [`anabranch_comps::Core`].
//!
//! [`run`] is the whole program. Its loop is four steps: wait, take what is ready to the core, do
//! what the core says, show the counters. It holds no protocol thought; which path a datagram takes
//! is the core's affair.

mod door;
mod driver;
mod lookup;
mod manager;
mod needed;
mod onward;
mod proxies;
mod relays;
mod reload;
mod resolver;
mod send;
mod settings;
pub(crate) mod signals;
mod sockets;
mod start;
mod taps;
mod told;
mod trial;
mod tunnel;
mod ways;

pub use crate::target::{Target, TargetError};
pub use driver::{run, run_rereading, run_until};
pub use reload::Reread;
pub use settings::{Entrance, Failure, FarEndNews, Listening, Screen, Settings, fresh_seed};
pub use trial::{free_loopback, look_ahead, may_mark};
