//! Chance for the cores, which draw none of their own.

use std::io;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use rustix::rand::{GetRandomFlags, getrandom};

/// A generator seeded by the kernel, for a core.
///
/// # Errors
/// The kernel's, which has none as long as it runs.
pub fn generator() -> io::Result<ChaCha20Rng> {
    let mut seed = [0; 32];
    let filled = getrandom(&mut seed[..], GetRandomFlags::empty())?;
    debug_assert_eq!(filled, seed.len(), "up to 256 bytes come whole");
    Ok(ChaCha20Rng::from_seed(seed))
}
