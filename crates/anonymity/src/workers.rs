//! Distribution of work items (pieces) to threads that the caller provides. The result does not
//! depend on the number of threads.

use std::sync::{Mutex, PoisonError};

/// Function with the arguments `(threads, pieces, work)` that distributes work items (pieces). It
/// calls `work` once with each index from 0 to `pieces - 1`, on at most `threads` threads. It
/// returns after the last call.
pub type ShareOut = fn(usize, usize, &(dyn Fn(usize) + Sync));

/// Threads that the caller provides, because this crate starts none.
#[derive(Clone, Copy, Debug)]
pub struct Workers {
    /// Number of threads to use.
    pub threads: usize,
    /// Function that distributes the work items (pieces) to the threads.
    pub run: ShareOut,
}

impl Default for Workers {
    /// Returns workers that do all work on the caller's own thread.
    fn default() -> Workers {
        Workers { threads: 1, run: |_, pieces, work| (0..pieces).for_each(work) }
    }
}

impl PartialEq for Workers {
    fn eq(&self, other: &Workers) -> bool {
        self.threads == other.threads
    }
}

impl Workers {
    /// Calls `work` with the index of each piece from 0 to `pieces - 1`, and returns the results
    /// in this order.
    pub(crate) fn each<T: Send>(self, pieces: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let done = Mutex::new(Vec::with_capacity(pieces));
        (self.run)(self.threads, pieces, &|piece| {
            let result = work(piece);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((piece, result));
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(piece, _)| *piece);
        done.into_iter().map(|(_, result)| result).collect()
    }
}
