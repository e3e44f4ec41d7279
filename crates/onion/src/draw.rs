//! Unbiased random draws.

use rand_core::Rng;

/// Returns a uniformly distributed random number from 0 to `end - 1`; `end` must not be 0. Rejects
/// and repeats draws that would favour small numbers.
pub fn below(end: u64, rng: &mut (impl Rng + ?Sized)) -> u64 {
    let fair = u64::MAX - u64::MAX % end;
    loop {
        let drawn = rng.next_u64();
        if drawn < fair {
            return drawn % end;
        }
    }
}
