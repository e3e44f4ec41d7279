//! The far end's driver: sockets and a clock around [`anabranch_tunnel::Far`], in front of UDP
//! servers that know nothing of it.
//!
//! [`run`] is the whole program. Clients' packets come to one socket, whichever path they take, or
//! by streams (`streams`); strangers' streams may go on to a web server (`behind`). Each flow of a
//! client has a socket of its own to the server. Answers are dealt to the client's paths by a
//! schedule of its own.

mod behind;
mod driver;
mod flows;
mod guests;
mod hub;
mod metrics;
mod outbox;
mod reload;
mod settings;
mod streams;

pub use driver::{run, run_rereading, run_until};
pub use metrics::Metered;
pub use settings::{
    ClientSnapshot, Failure, Listening, News, PathSnapshot, Reread, Screen, Server, Settings,
    Snapshot, StreamSnapshot, StreamsSnapshot,
};
