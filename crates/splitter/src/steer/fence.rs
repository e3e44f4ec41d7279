//! The nftables table of a run in one namespace, and whether it is still as the run made it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use anabranch_os::namespace::Namespace;
use anabranch_os::netlink::TableMonitor;

use super::plan::within;
use super::{Slot, nft};

/// A table, looked at whenever the kernel tells of a change to it.
#[derive(Debug)]
pub(super) struct Fence {
    /// Where it is, if not in this process's namespace.
    namespace: Option<Namespace>,
    monitor: TableMonitor,
    /// What it held when it was made, in nft's words.
    listing: Option<String>,
    /// Whether the kernel has told of a change that was not looked at yet.
    touched: bool,
}

impl Fence {
    /// Begins to listen, before there is a table.
    pub(super) fn open(namespace: Option<Namespace>) -> io::Result<Fence> {
        let monitor = within(namespace.as_ref(), TableMonitor::open)?;
        Ok(Fence { namespace, monitor, listing: None, touched: false })
    }

    /// Makes the table, or changes it.
    ///
    /// # Errors
    /// What `nft` says; the table is as it was then, whatever that is.
    pub(super) fn set(&mut self, nft: &Path, slot: Slot, commands: &str) -> io::Result<()> {
        within(self.namespace.as_ref(), || nft::run(nft, commands))?;
        self.listing = self.list(nft, slot)?;
        self.touched = false;
        Ok(())
    }

    /// Whether it is as it was made, as far as the kernel has told of changes.
    pub(super) fn is_whole(&mut self, nft: &Path, slot: Slot) -> io::Result<bool> {
        self.touched |= self.monitor.touched(&slot.ruleset())?;
        if !self.touched {
            return Ok(true);
        }
        let found = self.list(nft, slot)?;
        self.touched = found.is_none() || found != self.listing;
        Ok(!self.touched)
    }

    fn list(&self, nft: &Path, slot: Slot) -> io::Result<Option<String>> {
        within(self.namespace.as_ref(), || nft::list(nft, &slot.ruleset()))
    }
}

impl AsFd for Fence {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}
