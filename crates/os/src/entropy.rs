//! Randomness for the cores, which have no source of their own.

use std::io;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use rustix::rand::{GetRandomFlags, getrandom};

/// Creates a generator for a core, seeded by the kernel.
///
/// # Errors
/// The kernel's; a running kernel has none.
pub fn generator() -> io::Result<ChaCha20Rng> {
    let mut seed = [0; 32];
    let filled = getrandom(&mut seed[..], GetRandomFlags::empty())?;
    debug_assert_eq!(filled, seed.len(), "up to 256 bytes come whole");
    Ok(ChaCha20Rng::from_seed(seed))
}
