//! The kernel's links, addresses and routes, over rtnetlink (RFC 3549).
//!
//! Every function opens its own socket, sends its request, and closes the socket. So it refers to
//! the network namespace of the *calling thread*. [`Monitor`] keeps its socket and reports later
//! changes.
//!
//! * [`links`], [`addresses`], [`route_to`]: queries, which need no privilege;
//! * [`Monitor`]: a non-blocking file descriptor to poll, drained into [`Change`]s;
//! * [`TableMonitor`]: the same for nftables;
//! * [`configure`]: settings of links, and routes of the main table;
//! * [`policy`]: rules by mark, and separate routing tables.

pub mod configure;
mod lookup;
mod monitor;
pub mod policy;
mod prefix;
mod query;
mod socket;
mod tables;

pub use lookup::{Route, RouteError, route_to};
pub use monitor::{Change, Monitor};
pub use prefix::{Prefix, PrefixError};
pub use query::{Address, Link, LinkKind, addresses, link_named, links};
pub use tables::TableMonitor;

#[cfg(test)]
mod tests;
