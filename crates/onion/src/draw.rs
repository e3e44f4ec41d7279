//! Unbiased random draws.

use rand_core::Rng;

/// Returns a uniform draw below `end`, which must be above zero: values that would favour small
/// numbers are drawn again.
pub fn below(end: u64, rng: &mut (impl Rng + ?Sized)) -> u64 {
    let fair = u64::MAX - u64::MAX % end;
    loop {
        let drawn = rng.next_u64();
        if drawn < fair {
            return drawn % end;
        }
    }
}
