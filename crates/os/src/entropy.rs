//! Random generators for protocol cores. A protocol core is a state machine without I/O, so it
//! cannot ask the kernel for randomness itself.

use std::io;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use rustix::rand::{GetRandomFlags, getrandom};

/// Creates a random generator for a protocol core, with a seed from the kernel.
///
/// # Errors
/// An error of the kernel, which does not occur on a running machine.
pub fn generator() -> io::Result<ChaCha20Rng> {
    let mut seed = [0; 32];
    let filled = getrandom(&mut seed[..], GetRandomFlags::empty())?;
    debug_assert_eq!(filled, seed.len(), "getrandom returns up to 256 bytes in one call");
    Ok(ChaCha20Rng::from_seed(seed))
}
