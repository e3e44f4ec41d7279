//! The kernel's links (network interfaces), addresses and routes, over rtnetlink (RFC 3549).
//!
//! Every function opens its own socket in the network namespace of the *calling thread*, sends its
//! request, and closes the socket. [`Monitor`] keeps its socket open and reports later changes.
//!
//! * [`links`], [`addresses`], [`route_to`]: queries, which need no privilege;
//! * [`Monitor`]: changes of links, addresses and routes, from a non-blocking file descriptor that
//!   is polled;
//! * [`TableMonitor`]: changes of nftables tables, in the same way;
//! * [`configure`]: settings of links, and routes of the main table;
//! * [`policy`]: rules for packets with a mark (`fwmark`), and separate routing tables.

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
