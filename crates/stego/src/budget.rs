//! Memory that links share.

/// Memory of all links of one process together, beyond what each has for itself: what they promise
/// to take, and what they keep because it has not come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: usize,
}

impl Budget {
    /// So many bytes.
    pub(crate) fn new(bytes: usize) -> Budget {
        Budget { left: bytes }
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
