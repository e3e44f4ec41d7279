//! Replay protection: a record of the packet numbers received. Each packet number is accepted
//! once. Packet numbers too old to be checked are refused.

/// Size of the replay window: the count of packet numbers, up to the greatest received one, that
/// can still be checked. If the paths' delays differ by 50 ms, 100,000 packets per second need
/// 5,000.
const WINDOW: u64 = 16_384;
/// Number of 64-bit words in the bit set of received packet numbers.
const WORDS: usize = (WINDOW / 64) as usize;

/// A sliding window that records which packet numbers were received.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The greatest received packet number plus 1; 0 before the first packet.
    next: u64,
    bits: Box<[u64; WORDS]>,
}

impl Default for Replay {
    fn default() -> Replay {
        Replay::new()
    }
}

impl Replay {
    /// Returns a window in which no packet number is recorded.
    #[must_use]
    pub fn new() -> Replay {
        Replay { next: 0, bits: Box::new([0; WORDS]) }
    }

    /// Returns the greatest received packet number plus 1; 0 before the first packet.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Records the packet number `number`. Returns false if the number was received before, or is
    /// too old to be checked.
    pub fn accept(&mut self, number: u64) -> bool {
        if number + WINDOW < self.next {
            return false;
        }
        // The numbers between the previous greatest number and the new greatest number have not
        // been received.
        let fresh = self.next.max(number.saturating_sub(WINDOW - 1))..number;
        fresh.for_each(|number| self.set(number, false));
        if number >= self.next {
            self.next = number + 1;
            self.set(number, true);
            return true;
        }
        let known = self.get(number);
        self.set(number, true);
        !known
    }

    fn get(&self, number: u64) -> bool {
        self.bits[(number / 64) as usize % WORDS] >> (number % 64) & 1 == 1
    }

    fn set(&mut self, number: u64, received: bool) {
        let word = &mut self.bits[(number / 64) as usize % WORDS];
        *word = *word & !(1 << (number % 64)) | u64::from(received) << (number % 64);
    }
}

#[cfg(test)]
mod tests {
    use crate::seed::stream;
    use rand::RngExt as _;

    use super::*;

    #[test]
    fn a_number_counts_once_in_any_order() {
        let mut replay = Replay::new();
        for number in [5, 3, 4, 0, 9] {
            assert!(replay.accept(number), "{number}");
            assert!(!replay.accept(number), "{number} again");
        }
        assert_eq!(replay.next(), 10);
    }

    #[test]
    fn a_number_behind_the_window_does_not_count() {
        let mut replay = Replay::new();
        assert!(replay.accept(WINDOW + 10));
        assert!(!replay.accept(10));
        assert!(replay.accept(11));
    }

    #[test]
    fn a_leap_forgets_all_that_is_behind_it() {
        let mut replay = Replay::new();
        (0..100).for_each(|number| assert!(replay.accept(number)));
        assert!(replay.accept(10 * WINDOW + 5));
        assert!(replay.accept(9 * WINDOW + 70), "a bit of before must not stand for it");
    }

    #[test]
    fn it_says_what_a_set_of_all_numbers_says() {
        let (mut replay, mut rng) = (Replay::new(), stream(1, 0, "replay"));
        let mut seen = std::collections::BTreeSet::new();
        let mut greatest = 0u64;
        for _ in 0..200_000 {
            let back = rng.random_range(0..2 * WINDOW);
            let number = (greatest + rng.random_range(0..200)).saturating_sub(back);
            let old = number + WINDOW < replay.next();
            assert_eq!(replay.accept(number), !old && seen.insert(number), "{number}");
            greatest = greatest.max(number);
        }
    }
}
