//! The directory: the documents of relays and of authorities, and the protocol for fetching and
//! serving them (dir-spec).
//!
//! * [`descriptor`] and [`policy`]: a relay's own descriptor; [`extra`] and [`bandwidth`]: its
//!   traffic statistics; [`cache`]: answers to requests.
//! * [`http`] and [`reply`]: the format of requests and responses.
//! * [`fetch`]: the next document to download, its source and its processing; [`bridges`]:
//!   downloads from bridges.
//! * [`mirror`]: the additional downloads of a cache; [`hsdir`]: the storage of onion services'
//!   descriptors.
//! * [`network`]: the relays that a client knows, and its choice among them ([`params`],
//!   [`timeouts`]).

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
