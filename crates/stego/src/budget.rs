//! The memory limit that all links (byte streams between a client and a server) of a process
//! share.

/// Minimum window in bytes, whatever the number of links (byte streams between a client and a
/// server). A window limits the data of a stream that are in flight or buffered.
pub(crate) const LEAST_WINDOW: usize = 1 << 20;
/// Minimum free share in bytes: the data that each link (a client's byte stream) may buffer
/// without counting towards the memory limit, however many links there are.
const LEAST_SHARE: usize = 4 << 10;

/// The memory limit of all links (byte streams between a client and a server) of a process. Each
/// link may buffer [`Budget::share`] bytes to send without counting towards the limit. Only
/// windows above [`LEAST_WINDOW`] and buffered data above this share count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: usize,
    share: usize,
}

impl Budget {
    /// Creates a memory limit of `bytes` for all links together. Each link may buffer its free
    /// share in addition, which is [`LEAST_WINDOW`] at first.
    pub(crate) fn new(bytes: usize) -> Budget {
        Budget { left: bytes, share: LEAST_WINDOW }
    }

    /// Divides `bytes` evenly among `links` links, as their free shares: each gets at least
    /// [`LEAST_SHARE`] and at most [`LEAST_WINDOW`]. Returns whether the share has changed.
    pub(crate) fn divide(&mut self, bytes: usize, links: usize) -> bool {
        let before = self.share;
        self.share = (bytes / links.max(1)).clamp(LEAST_SHARE, LEAST_WINDOW);
        self.share != before
    }

    /// Returns each link's free share: the number of bytes that it may buffer without counting
    /// towards the memory limit.
    pub(crate) fn share(&self) -> usize {
        self.share
    }

    /// Reserves `bytes` of the memory budget if it has at least this number left. Returns whether
    /// they were reserved.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let enough = self.left >= bytes;
        self.left -= if enough { bytes } else { 0 };
        enough
    }

    /// Gives back to the memory budget `bytes` that were reserved earlier.
    pub(crate) fn give(&mut self, bytes: usize) {
        self.left += bytes;
    }

    /// Returns the number of bytes of the memory budget that are not reserved.
    pub(crate) fn left(&self) -> usize {
        self.left
    }
}
