//! Notifications of changes to nftables tables.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NetlinkBuffer, NlasIterator};
use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};

use super::monitor::DATAGRAM;
use super::socket;

/// The multicast group `NFNLGRP_NFTABLES`.
const GROUP: u32 = 7;
/// Upper byte of the message type of nftables messages: `NFNL_SUBSYS_NFTABLES`.
const NFTABLES: u16 = 10;
/// Lower byte of the message type at the end of a transaction: `NFT_MSG_NEWGEN`. Messages of this
/// type name no table.
const GENERATION: u16 = 15;
/// Number of bytes in the header before the attributes (`struct nfgenmsg`).
const HEADER: usize = 4;
/// The attribute with the table's name, in messages of any type (`NFTA_TABLE_NAME`,
/// `NFTA_CHAIN_TABLE`, …).
const TABLE: u16 = 1;

/// A monitor of changes of nftables tables, by any program, in the namespace of the thread that
/// opened the monitor.
///
/// The monitor does not block: poll its file descriptor for readability, and then call
/// [`TableMonitor::touched`].
#[derive(Debug)]
pub struct TableMonitor {
    socket: Socket,
    buffer: Vec<u8>,
}

impl TableMonitor {
    /// Subscribes to changes of nftables tables.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn open() -> io::Result<TableMonitor> {
        let socket = socket::open_for(NETLINK_NETFILTER)?;
        socket.add_membership(GROUP)?;
        socket.set_non_blocking(true)?;
        Ok(TableMonitor { socket, buffer: vec![0; DATAGRAM] })
    }

    /// Returns whether `table`, or an object in it, was created, changed or removed since the last
    /// call. Also returns true if more changes happened than the kernel could queue.
    pub fn touched(&mut self, table: &str) -> io::Result<bool> {
        let mut touched = false;
        loop {
            match socket::receive(&self.socket, &mut self.buffer) {
                Ok(datagram) => touched |= names(datagram, table),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(touched),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => touched = true,
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for TableMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns whether a message in `datagram` is about `table`.
fn names(mut datagram: &[u8], table: &str) -> bool {
    while let Ok(message) = NetlinkBuffer::new_checked(&datagram) {
        let (kind, length) = (message.message_type(), message.length() as usize);
        if kind >> 8 == NFTABLES && kind & 0xff != GENERATION {
            let attributes = message.payload().get(HEADER..).unwrap_or_default();
            let named = NlasIterator::new(attributes).filter_map(Result::ok);
            let mut tables = named.filter(|attribute| attribute.kind() == TABLE);
            let is_it = |name: &[u8]| name.strip_suffix(&[0]).unwrap_or(name) == table.as_bytes();
            if tables.next().is_some_and(|attribute| is_it(attribute.value())) {
                return true;
            }
        }
        // Messages begin at multiples of four bytes.
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::namespace::Namespace;

    fn nft(commands: &str) -> bool {
        Command::new("nft").arg(commands).status().is_ok_and(|status| status.success())
    }

    #[test]
    fn changes_to_one_table_are_told_from_those_to_others() {
        let outcome = Namespace::new().and_then(|namespace| {
            namespace.run(|| {
                let mut monitor = TableMonitor::open()?;
                if !nft("add table inet one; add table inet two") {
                    return Err(io::Error::other("no nft"));
                }
                assert!(monitor.touched("one").unwrap());
                assert!(!monitor.touched("one").unwrap(), "told once");
                assert!(nft("add chain inet two c; add table inet one_more"));
                assert!(!monitor.touched("one").unwrap());
                assert!(nft("add chain inet one c"));
                assert!(monitor.touched("one").unwrap());
                assert!(nft("flush ruleset"));
                assert!(monitor.touched("one").unwrap());
                Ok(())
            })
        });
        if let Err(error) = outcome {
            println!("skipped: {error}");
        }
    }

    #[test]
    fn what_is_cut_short_names_nothing() {
        let whole = [32, 0, 0, 0, 0, NFTABLES as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
            .into_iter()
            .chain([1, 0, 0, 0, 8, 0, TABLE as u8, 0])
            .chain(*b"one\0\0\0\0\0")
            .collect::<Vec<u8>>();
        assert!(names(&whole, "one") && !names(&whole, "on") && !names(&whole, "two"));
        for length in 0..whole.len() {
            assert!(!names(&whole[..length], "one"), "{length}");
        }
    }
}
