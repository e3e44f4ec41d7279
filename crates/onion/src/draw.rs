//! Draws that favour nobody.

use rand_core::Rng;

/// An even draw below `end`, which is above zero: what would favour small numbers is drawn again.
pub fn below(end: u64, rng: &mut (impl Rng + ?Sized)) -> u64 {
    let fair = u64::MAX - u64::MAX % end;
    loop {
        let drawn = rng.next_u64();
        if drawn < fair {
            return drawn % end;
        }
    }
}
