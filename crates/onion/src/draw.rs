//! Unbiased random draws.

use rand_core::Rng;

/// Returns a uniformly distributed number below `end`, which must be above zero. Values that would
/// favour small numbers are rejected and drawn again.
pub fn below(end: u64, rng: &mut (impl Rng + ?Sized)) -> u64 {
    let fair = u64::MAX - u64::MAX % end;
    loop {
        let drawn = rng.next_u64();
        if drawn < fair {
            return drawn % end;
        }
    }
}
