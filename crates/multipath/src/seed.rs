//! Random streams derived from the caller's seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// A generator of random numbers for one purpose of one entity, such as a simulated client.
pub type Stream = ChaCha8Rng;

/// Returns the random stream of `entity` (the number of a client, for example) for `purpose`,
/// derived from `seed`.
///
/// The key of a ChaCha8 generator consists of `seed`, `entity` and a hash of `purpose`, so streams
/// are independent. An additional entity does not change the random numbers of other entities. So
/// two simulations that differ in one client can be compared client by client.
pub fn stream(seed: u64, entity: u64, purpose: &str) -> Stream {
    let mut key = [0u8; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&entity.to_le_bytes());
    key[16..24].copy_from_slice(&fnv1a(purpose.as_bytes()).to_le_bytes());
    ChaCha8Rng::from_seed(key)
}

/// Returns the 64-bit FNV-1a hash of a purpose's name, which is the same on every machine.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    fn first(seed: u64, entity: u64, purpose: &str) -> u64 {
        stream(seed, entity, purpose).next_u64()
    }

    #[test]
    fn the_same_three_numbers_give_the_same_stream() {
        assert_eq!(first(7, 3, "weights"), first(7, 3, "weights"));
    }

    #[test]
    fn each_of_the_three_numbers_changes_the_stream() {
        let base = first(7, 3, "weights");
        assert_ne!(base, first(8, 3, "weights"));
        assert_ne!(base, first(7, 4, "weights"));
        assert_ne!(base, first(7, 3, "boundary"));
    }
}
