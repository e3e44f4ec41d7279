//! IP packets as the interface of `--tun` hands them over and takes them: read, written, complained
//! about.
//!
//! * [`read`] tells what a packet is, and [`Fragments`] puts together those that came in parts;
//! * [`write()`] builds the packet around a datagram;
//! * [`complain`] builds the ICMP message that tells its sender why a packet went nowhere.
//!
//! Nothing here does I/O. Checksums of what is read are not checked: the kernel made the packet a
//! moment ago, and what it carries is authenticated by its own protocol.

mod complaint;
mod fragments;
mod read;
mod write;

use std::io;

pub use complaint::{Complaint, complain, quote};
pub use fragments::{Fragments, Whole};
pub use read::{
    Content, Datagram, Fragment, FragmentId, describe, ends, is_for_link, is_housekeeping, read,
};
pub use write::write;

/// An error of the caller's making.
fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.into())
}
