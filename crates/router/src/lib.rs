//! The programs of the onion network, built around the cores of `anabranch_onion`; and pluggable
//! transports.
//!
//! * [`onion`] has the event loops of client, relay and authority, and their files.
//! * [`pt`] is this project's pluggable transport: links of [`anabranch_stego`] over sockets.
//! * [`more`] is a node of MORE, for experiments.
//! * [`crawl`] makes covers for the transport from an operator's web pages, captures and
//!   recordings.
//!
//! Start reading at [`onion::relay`], then `onion/station.rs`, which connects a core with the
//! sockets of its links.

pub mod crawl;
pub mod more;
pub mod onion;
pub mod pt;
