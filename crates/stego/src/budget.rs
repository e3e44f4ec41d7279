//! Memory that links share.

use crate::outbox::LEAST_WINDOW;

/// What a link keeps for its other end in any case, however many share the memory.
const LEAST_SHARE: usize = 4 << 10;

/// Memory of all links of one process together: what each may keep for itself, and beyond that what
/// they promise to take, and what they keep because it has not come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: usize,
    share: usize,
}

impl Budget {
    /// So many bytes beyond the least window of each.
    pub(crate) fn new(bytes: usize) -> Budget {
        Budget { left: bytes, share: LEAST_WINDOW }
    }

    /// So many links have these bytes to share, beside what may be taken: each a window at most.
    pub(crate) fn divide(&mut self, bytes: usize, links: usize) {
        self.share = (bytes / links.max(1)).clamp(LEAST_SHARE, LEAST_WINDOW);
    }

    /// Bytes that a link may keep without taking any.
    pub(crate) fn share(&self) -> usize {
        self.share
    }

    /// Takes as many; false if there are fewer, and then none are taken.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let enough = self.left >= bytes;
        self.left -= if enough { bytes } else { 0 };
        enough
    }

    /// Has back what was taken.
    pub(crate) fn give(&mut self, bytes: usize) {
        self.left += bytes;
    }

    /// Bytes that nobody has.
    pub(crate) fn left(&self) -> usize {
        self.left
    }
}
