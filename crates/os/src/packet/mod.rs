//! IP packets at the TUN interface of the option `--tun`: parsing them, building them, and
//! answering undeliverable ones.
//!
//! * [`read`] parses a packet, and [`Fragments`] reassembles datagrams from fragments;
//! * [`write()`] builds the packet around a datagram, and [`write_segment`] builds the packet
//!   around a TCP segment;
//! * [`complain`] builds the ICMP message that reports an undeliverable packet to its sender.
//!
//! This module does no I/O. It does not verify the checksums of parsed packets: the local kernel
//! has built them, and the protocols that they carry authenticate their content.

mod complaint;
mod fragments;
mod read;
mod write;

use std::io;

pub use complaint::{Complaint, complain, quote};
pub use fragments::{Fragments, ReassembledDatagram};
pub use read::{
    Content, Datagram, Fragment, FragmentId, describe, ends, is_for_link, is_housekeeping, read,
};
pub use write::{SegmentNumbers, write, write_segment};

/// Creates an `InvalidInput` error with the description `why`.
fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.into())
}
