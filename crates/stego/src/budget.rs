//! Memory that links share.

/// The least window: bytes of a stream that are under way or wait, for whoever there is.
pub(crate) const LEAST_WINDOW: usize = 1 << 20;
/// A link's share, however many there are.
const LEAST_SHARE: usize = 4 << 10;

/// Memory that all links of a process share. Each may keep [`Budget::share`] bytes of what it
/// sends; windows and bytes beyond that are taken from here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: usize,
    share: usize,
}

impl Budget {
    /// `bytes` for all links, beside the share of each: the least window.
    pub(crate) fn new(bytes: usize) -> Budget {
        Budget { left: bytes, share: LEAST_WINDOW }
    }

    /// Divides `bytes` evenly among `links`: a least window each at most, [`LEAST_SHARE`] at least.
    /// Whether the shares are others than before.
    pub(crate) fn divide(&mut self, bytes: usize, links: usize) -> bool {
        let before = self.share;
        self.share = (bytes / links.max(1)).clamp(LEAST_SHARE, LEAST_WINDOW);
        self.share != before
    }

    /// Bytes that a link may keep without taking any.
    pub(crate) fn share(&self) -> usize {
        self.share
    }

    /// Takes `bytes` if there are as many left; whether there were.
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
