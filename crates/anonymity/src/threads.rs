//! Work in pieces on several threads; what comes of it does not depend on how many.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What `work` makes of each piece from 0 to `pieces`, in their order.
pub(crate) fn each<T: Send>(
    pieces: usize,
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(pieces));
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, pieces.max(1)) {
            scope.spawn(|| {
                loop {
                    let piece = next.fetch_add(1, Ordering::Relaxed);
                    if piece >= pieces {
                        return;
                    }
                    let result = work(piece);
                    done.lock().expect("no piece panics").push((piece, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no piece panics");
    done.sort_by_key(|(piece, _)| *piece);
    done.into_iter().map(|(_, result)| result).collect()
}
