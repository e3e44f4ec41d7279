//! The memory that all links of a process share.

/// Minimum window in bytes, whatever the number of links. A window limits the data of a stream
/// that are in flight or waiting.
pub(crate) const LEAST_WINDOW: usize = 1 << 20;
/// Minimum share of a link in bytes, whatever the number of links.
const LEAST_SHARE: usize = 4 << 10;

/// The memory limit of all links of a process. Each link may buffer [`Budget::share`] bytes to send
/// without using the budget. Windows above [`LEAST_WINDOW`], and buffered data above the share, are
/// charged to the budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: usize,
    share: usize,
}

impl Budget {
    /// Creates a budget of `bytes` for all links together. The shares are not part of it, and are
    /// [`LEAST_WINDOW`] at first.
    pub(crate) fn new(bytes: usize) -> Budget {
        Budget { left: bytes, share: LEAST_WINDOW }
    }

    /// Divides `bytes` evenly among `links`: each gets at least [`LEAST_SHARE`] and at most
    /// [`LEAST_WINDOW`]. Returns whether the share has changed.
    pub(crate) fn divide(&mut self, bytes: usize, links: usize) -> bool {
        let before = self.share;
        self.share = (bytes / links.max(1)).clamp(LEAST_SHARE, LEAST_WINDOW);
        self.share != before
    }

    /// Returns the number of bytes that a link may buffer without using the budget.
    pub(crate) fn share(&self) -> usize {
        self.share
    }

    /// Takes `bytes` from the budget if that many are left. Returns whether they were taken.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let enough = self.left >= bytes;
        self.left -= if enough { bytes } else { 0 };
        enough
    }

    /// Returns to the budget `bytes` that were taken earlier.
    pub(crate) fn give(&mut self, bytes: usize) {
        self.left += bytes;
    }

    /// Returns the number of bytes that can still be taken.
    pub(crate) fn left(&self) -> usize {
        self.left
    }
}
