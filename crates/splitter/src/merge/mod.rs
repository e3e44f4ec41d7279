//! The far end's driver: sockets and a clock around [`anabranch_tunnel::FarSide`], in front of
//! unmodified UDP servers.
//!
//! [`run`] runs a far end. UDP packets of all clients and paths arrive at one socket. Each path
//! that is a stream has its own connection (`streams`). An *unknown peer* (`stranger` in the code)
//! is a peer that no client's key authenticates; its stream may be passed to a web server
//! (`behind`). Each flow of a client has its own socket to the server. Each client has its own
//! schedule, which assigns the server's answers to the client's paths.

mod client_interface;
mod client_states;
mod driver;
mod flows;
mod metrics;
mod outbox;
mod reload;
mod settings;
mod streams;
mod web_relay;

pub use driver::{run, run_rereading, run_until};
pub use metrics::Metered;
pub use settings::{
    ActiveSettings, ClientSnapshot, Failure, News, PathSnapshot, Reread, Screen, Server, Settings,
    Snapshot, StreamSnapshot, StreamsSnapshot,
};
