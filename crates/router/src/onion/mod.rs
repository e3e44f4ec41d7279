//! Tor relays, clients and directory authorities: sockets, files and clocks around the cores of
//! the crates `onion` and `links`, which do no I/O.
//!
//! * [`store`]: a relay's keys and other state on disk; [`kept`]: reading of state files;
//!   [`keyring`]: key rotation; [`families`]: keys of families.
//! * [`authorities`]: the authorities that a user trusts, as in torrc.
//! * [`relay`] and [`client`]: event loops with one core, one thread and one `epoll` set each. A
//!   relay may have several loops, which rings in memory connect. Work is done in batches: a
//!   system call reads or writes many link records, and each record carries many cells. The kernel
//!   holds little unsent data, so that the core decides which circuit sends next.
//! * `links`: links over TCP, QUIC and rings in memory, which all implement the trait `Carrier`;
//!   `station` connects a core with its links.
//! * `mptcp`: links over several network paths, if a relay enables them.
//! * [`bridge_routes`]: a client's routes to its bridges, direct or through transports.
//! * [`authority`]: a directory authority's threads, which run alongside its relay.
//! * [`metrics`]: a relay's counters for Prometheus.
//! * [`tap`]: out-of-order delivery of TCP segments for unordered links; [`link_pair`] measures its
//!   effect.
//! * [`dirclient`]: the thread that fetches documents and publishes descriptors;
//!   `served_documents` serves them, and `compressed` compresses long answers.
//! * [`reload`]: reading settings again at run time; [`skew`]: detection of wrong clocks.

pub mod answers;
pub mod authorities;
pub mod authority;
pub mod bridge_routes;
pub mod client;
mod compressed;
mod conn;
pub mod dirclient;
mod dns;
pub mod embedded;
pub(crate) mod external_socket;
pub mod families;
pub mod kept;
pub mod keyring;
pub mod link_pair;
mod links;
mod meter;
pub mod metrics;
mod mptcp;
mod newcomers;
pub mod relay;
pub mod reload;
mod served_documents;
pub mod skew;
pub mod state;
mod station;
pub mod store;
mod store_error;
pub mod tap;
mod tcp_info;

pub use anabranch_links::StreamFamily;
pub use anabranch_links::quic::Congestion as QuicCongestion;
pub use links::quic::{QuicCounts, QuicLinking};
pub use mptcp::MptcpCounts;

pub(crate) use conn::{connecting_from, is_passing};

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anabranch_onion::congestion::Params;
use anabranch_onion::directory::network::Network;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// Returns a stream that becomes readable when the process receives SIGINT or SIGTERM.
///
/// # Errors
/// A system call fails.
pub fn stop_signals() -> std::io::Result<UnixStream> {
    let (stop, signalled) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        pipe::register(signal, signalled.try_clone()?)?;
    }
    Ok(stop)
}

/// Returns the congestion control parameters that the consensus of `network` sets.
fn params(network: &Network) -> Arc<Params> {
    Arc::new(Params::of(&network.consensus().params))
}
