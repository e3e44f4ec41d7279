//! Lines for a reader who may leave.

use std::io::Write;

use signal_hook::consts::SIGTERM;
use signal_hook::low_level::raise;

/// Writes lines, each at once. When the reader is gone (EPIPE), the run is told to end as SIGTERM
/// would tell it, so that captures are completed.
pub(super) struct Lines<W> {
    out: W,
    gone: bool,
}

impl<W: Write> Lines<W> {
    pub(super) fn new(out: W) -> Lines<W> {
        Lines { out, gone: false }
    }

    /// Writes `text` as one line or, where it has line ends, several.
    pub(super) fn say(&mut self, text: &str) {
        if self.gone {
            return;
        }
        let written = self.out.write_all(format!("{text}\n").as_bytes());
        if written.and_then(|()| self.out.flush()).is_err() {
            self.gone = true;
            // Can only fail for a signal that does not exist.
            let _ = raise(SIGTERM);
        }
    }

    #[cfg(test)]
    pub(super) fn into_inner(self) -> W {
        self.out
    }
}
