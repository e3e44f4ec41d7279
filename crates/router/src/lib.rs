//! The onion network's programs around the cores of `anabranch_onion`, and pluggable transports.
//!
//! * [`onion`] has the loops of client, relay and authority, and their files.
//! * [`pt`] is a pluggable transport of ours: links of [`anabranch_stego`] over sockets.
//! * [`crawl`] makes covers for it of an operator's pages, captures and recordings.
//!
//! To begin reading: [`onion::relay`], then `onion/station.rs`, a core with its links' sockets.

pub mod crawl;
pub mod onion;
pub mod pt;
