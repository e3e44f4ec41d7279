//! Event loops, sockets and files of the onion network's programs and of pluggable transports. The
//! protocols themselves are in cores without I/O, such as those of `anabranch_onion`.
//!
//! * [`onion`]: event loops of the client, the relay and the authority, and their files.
//! * [`pt`]: this project's pluggable transport, which runs links of [`anabranch_stego`] over
//!   sockets.
//! * [`more`]: a node of MORE, for experiments.
//! * [`crawl`]: covers for the transport, from an operator's web pages, captures and HAR files.
//!
//! Start reading at [`onion::relay`], then `onion/station.rs`, which connects a core with the
//! sockets of its links.

pub mod crawl;
pub mod more;
pub mod onion;
pub mod pt;
