//! A splitter's nftables table in one network namespace, and the check that no other program has
//! changed it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use anabranch_os::namespace::Namespace;
use anabranch_os::netlink::TableMonitor;

use super::plan::within;
use super::{Slot, nft};

/// An nftables table that is checked whenever the kernel reports a change of the nftables rules.
#[derive(Debug)]
pub(super) struct Fence {
    /// The table's namespace; `None` if that is this process's namespace.
    namespace: Option<Namespace>,
    monitor: TableMonitor,
    /// Content of the table after the last [`Fence::set`], as `nft` lists it; `None` before the
    /// first.
    listing: Option<String>,
    /// Whether the kernel has reported a change of the table since the table was last known to be
    /// intact.
    touched: bool,
}

impl Fence {
    /// Starts to watch for changes of the nftables rules in `namespace`, or in this process's
    /// namespace if that is `None`. The table need not exist yet.
    pub(super) fn open(namespace: Option<Namespace>) -> io::Result<Fence> {
        let monitor = within(namespace.as_ref(), TableMonitor::open)?;
        Ok(Fence { namespace, monitor, listing: None, touched: false })
    }

    /// Makes or changes the table by `commands` for `nft`, and records its new content.
    ///
    /// # Errors
    /// The error of `nft`; the table is left in an unknown state.
    pub(super) fn set(&mut self, nft: &Path, slot: Slot, commands: &str) -> io::Result<()> {
        within(self.namespace.as_ref(), || nft::run(nft, commands))?;
        self.listing = self.list(nft, slot)?;
        self.touched = false;
        Ok(())
    }

    /// Returns whether the table has the content that [`Fence::set`] gave it. Reads the table only
    /// if the kernel has reported a change.
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
