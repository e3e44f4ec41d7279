//! The directory: what relays say of themselves, what authorities say of all relays, and how one
//! and the other is asked for (dir-spec).
//!
//! * [`descriptor`] and [`policy`]: a relay describes itself; [`extra`] and [`bandwidth`]: what it
//!   carried; [`cache`] answers those who ask   it.
//! * [`http`] and [`reply`]: how requests and answers are written.
//! * [`fetch`]: what is to be downloaded next, from whom, and what is made of it; [`bridges`]: who
//!   is asked by whoever enters the network by bridges.
//! * [`mirror`]: what a cache fetches besides; [`hsdir`]: what onion services publish at it.
//! * [`network`]: the relays a client knows, and which of them it takes ([`params`], [`timeouts`]).

pub mod bandwidth;
pub mod bridges;
pub mod cache;
pub mod civil;
pub mod descriptor;
pub mod diff;
pub mod extra;
pub mod fetch;
pub mod hsdir;
pub mod http;
pub mod mirror;
pub mod network;
pub mod params;
pub mod policy;
pub mod reply;
pub mod timeouts;

#[cfg(test)]
pub(crate) mod tests;
