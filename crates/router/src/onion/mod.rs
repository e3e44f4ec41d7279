//! The onion network on a machine: sockets, files and clocks around the cores of `onion` and
//! `links`.
//!
//! * [`store`]: a relay's keys and other state on disk; [`kept`]: how state is read;
//!   [`keyring`]: its keys as time passes; [`families`]: those of its families.
//! * [`authorities`]: whom a user trusts, as torrc names them.
//! * [`relay`] and [`client`]: an event loop around each core: one thread, one `epoll` set. Bytes
//!   of a link come in large reads, and cells leave many to a record and many records to a write;
//!   the kernel holds little that is not sent, so that the core's order among circuits counts. A
//!   relay has as many as it is given threads, joined by rings.
//! * `links`: the carriers of links (TCP, QUIC, rings of memory) behind one trait; `station` has a
//!   core and its carriers.
//! * `mptcp`: links over several paths of the kernel, where a relay wants them.
//! * [`ways`]: how a client reaches its bridges, straight or through transports.
//! * [`authority`]: a directory authority's thread beside its relay.
//! * [`metrics`]: a relay's numbers for Prometheus.
//! * [`tap`]: what shows segments of links that may be unordered before their turn; [`link_pair`]
//!   measures what that brings.
//! * [`dirclient`]: the thread that talks to authorities; what it has to give is in its `library`,
//!   and `compressed` packs what takes long.
//! * [`reload`]: settings that are read again while any of them runs; [`skew`]: whose clock is
//!   wrong.

pub mod answers;
pub mod authorities;
pub mod authority;
pub mod client;
mod compressed;
mod conn;
pub mod dirclient;
mod dns;
pub mod embedded;
pub mod families;
pub mod kept;
pub mod keyring;
mod library;
pub mod link_pair;
mod links;
mod meter;
pub mod metrics;
mod mptcp;
mod newcomers;
mod outside;
pub mod relay;
pub mod reload;
pub mod skew;
pub mod state;
mod station;
pub mod store;
mod store_error;
pub mod tap;
mod tcp_info;
pub mod ways;

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

/// A stream that becomes readable when the program is told to end, by SIGINT or SIGTERM.
///
/// # Errors
/// The kernel's.
pub fn stop_signals() -> std::io::Result<UnixStream> {
    let (stop, signalled) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        pipe::register(signal, signalled.try_clone()?)?;
    }
    Ok(stop)
}

/// What the network's authorities say of congestion control.
fn params(network: &Network) -> Arc<Params> {
    let mut params = Params::default();
    let given = &network.consensus().params;
    given.iter().for_each(|(name, value)| params.set(name, *value));
    Arc::new(params)
}
