//! Division of work among several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Calls `work` once with each index below `pieces`, on at most `threads` threads. Returns after
/// the last call has ended.
///
/// # Panics
/// Panics if any call of `work` panics.
pub fn share_out(threads: usize, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    let take = || {
        let piece = next.fetch_add(1, Ordering::Relaxed);
        (piece < pieces).then_some(piece)
    };
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, pieces.max(1)) {
            scope.spawn(|| std::iter::from_fn(take).for_each(work));
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn each_piece_is_taken_once_whatever_the_number_of_threads() {
        for threads in [0, 1, 3, 64] {
            let taken = Mutex::new(Vec::new());
            share_out(threads, 10, &|piece| taken.lock().unwrap().push(piece));
            let mut taken = taken.into_inner().unwrap();
            taken.sort_unstable();
            assert_eq!(taken, (0..10).collect::<Vec<_>>(), "{threads} threads");
        }
        share_out(2, 0, &|piece| panic!("there is no piece {piece}"));
    }
}
