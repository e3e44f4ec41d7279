//! The far end's driver: sockets and a clock around [`anabranch_tunnel::Far`], in front of UDP
//! servers that know nothing of it.
//!
//! [`run`] is the whole program. Clients' packets arrive at one socket on all paths, or on streams
//! (`streams`). A stranger's stream may be passed to a web server (`behind`). Each flow of a
//! client has its own socket to the server. Each client has its own schedule, which assigns
//! answers to the client's paths.

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
