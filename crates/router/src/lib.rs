//! The programs of the onion network, built around the cores of `anabranch_onion`; and pluggable
//! transports.
//!
//! * [`onion`] has the loops of client, relay and authority, and their files.
//! * [`pt`] is our pluggable transport: links of [`anabranch_stego`] over sockets.
//! * [`crawl`] makes the transport's covers from an operator's web pages, captures and recordings.
//!
//! Start reading at [`onion::relay`], then `onion/station.rs`, which joins a core and the sockets
//! of its links.

pub mod crawl;
pub mod onion;
pub mod pt;
