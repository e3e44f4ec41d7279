//! Shared random values (srv-spec). After every 24 consensuses there is a new, unpredictable
//! value. Clients and onion services derive from it which relays store an onion service's
//! descriptor. A single authority need not commit itself to other authorities. It generates and
//! reveals the value at once.

use base64ct::{Base64, Encoding};
use digest::Digest;

use crate::wire::crypto::Sha3_256;
use crate::wire::text::hex;

/// Number of consensuses in one round of the shared random protocol. Each round has a new value.
const ROUNDS: u64 = 24;
/// Version of the shared random protocol (srv-spec).
const VERSION: u32 = 1;
/// Number of authorities that revealed a random value for each shared value. It is 1, because this
/// authority is the only one.
const REVEALED: u64 = 1;
/// Keyword of the previous shared random value (dir-spec, "Consensus").
const PREVIOUS: &str = "shared-rand-previous-value";
/// Keyword of the current shared random value (dir-spec, "Consensus").
const CURRENT: &str = "shared-rand-current-value";

/// The shared random values during one round (24 consensuses) of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedRandom {
    /// Index of the shared random protocol's round (24 consensuses), counted from 1970.
    run: u64,
    current: [u8; 32],
    /// The value of the previous round, if it is known.
    previous: Option<[u8; 32]>,
}

impl SharedRandom {
    /// Returns the values for the consensus that is valid from `valid_after`. If a new round of
    /// the protocol has begun since `last`, or if `last` is `None`, derives a fresh value from
    /// `random`. Returns a copy of `last` if the round is the same or `random` is `None`.
    /// `valid_after` and `interval`, the time between two consensuses, are in seconds.
    pub(super) fn of(
        last: Option<&SharedRandom>,
        [valid_after, interval]: [u64; 2],
        identity: &[u8; 20],
        random: Option<[u8; 32]>,
    ) -> Option<SharedRandom> {
        let run = run(valid_after, interval);
        let Some(random) = random.filter(|_| last.is_none_or(|last| last.run < run)) else {
            return last.cloned();
        };
        let previous = last.filter(|last| last.run + 1 == run).map(|last| last.current);
        let current = value(valid_after, identity, random, previous.unwrap_or_default());
        Some(SharedRandom { run, current, previous })
    }

    /// Returns the lines of the consensus that contain the values.
    pub(super) fn lines(&self) -> String {
        let line = |keyword: &str, value: &[u8; 32]| {
            format!("{keyword} {REVEALED} {}\n", Base64::encode_string(value))
        };
        let previous = self.previous.as_ref().map(|value| line(PREVIOUS, value));
        previous.unwrap_or_default() + &line(CURRENT, &self.current)
    }

    /// Parses the values from this authority's own consensus, valid from `valid_after`. Returns
    /// `None` if the consensus has no current value.
    pub(super) fn read(text: &str, [valid_after, interval]: [u64; 2]) -> Option<SharedRandom> {
        let find = |keyword: &str| -> Option<[u8; 32]> {
            let mut lines = text.lines();
            let rest = lines.find_map(|line| line.strip_prefix(keyword)?.strip_prefix(' '))?;
            let (_, value) = rest.split_once(' ')?;
            Base64::decode_vec(value).ok()?.try_into().ok()
        };
        let run = run(valid_after, interval);
        Some(SharedRandom { run, current: find(CURRENT)?, previous: find(PREVIOUS) })
    }
}

/// Returns the index of the shared random protocol's round, counted from 1970. A round begins at
/// each consensus whose index is divisible by 24: at midnight, if there is one consensus per hour.
fn run(valid_after: u64, interval: u64) -> u64 {
    valid_after / interval.max(1) / ROUNDS
}

/// Computes a shared value from the random value that a single authority reveals (srv-spec 3.3.1
/// and 4.1.1).
fn value(time: u64, identity: &[u8; 20], random: [u8; 32], previous: [u8; 32]) -> [u8; 32] {
    let hash = |parts: &[&[u8]]| -> [u8; 32] {
        let mut hash = Sha3_256::new();
        parts.iter().for_each(|part| hash.update(part));
        hash.finalize().into()
    };
    // Hash the value, so that no raw bytes of the generator are published.
    let hidden = hash(&[&hash(&[&random])]);
    let reveal = Base64::encode_string(&[&time.to_be_bytes()[..], &hidden].concat());
    let reveals = hash(&[hex(identity).as_bytes(), reveal.as_bytes()]);
    let (number, version) = (REVEALED.to_be_bytes(), VERSION.to_be_bytes());
    hash(&[b"shared-random", &number, &version, &reveals, &previous])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: [u8; 20] = [7; 20];
    const MIDNIGHT: u64 = 1_800_057_600;
    const HOUR: u64 = 3600;

    fn of(last: Option<&SharedRandom>, at: u64, random: u8) -> SharedRandom {
        SharedRandom::of(last, [at, HOUR], &ID, Some([random; 32])).unwrap()
    }

    #[test]
    fn a_value_lasts_a_day_and_is_the_previous_one_for_another() {
        assert_eq!(MIDNIGHT % (24 * HOUR), 0);
        let first = of(None, MIDNIGHT + 7 * HOUR, 1);
        assert_eq!(of(Some(&first), MIDNIGHT + 23 * HOUR, 2), first);
        let second = of(Some(&first), MIDNIGHT + 24 * HOUR, 3);
        assert_eq!(second.previous, Some(first.current));
        assert_ne!(second.current, of(Some(&first), MIDNIGHT + 24 * HOUR, 4).current);
        let late = of(Some(&second), MIDNIGHT + 72 * HOUR, 5);
        assert_eq!(late.previous, None, "there was none of the day before");
        assert_eq!(of(Some(&late), MIDNIGHT, 6), late, "a clock that went back changes nothing");
        assert_eq!(SharedRandom::of(None, [MIDNIGHT, HOUR], &ID, None), None);
    }

    #[test]
    fn what_is_written_is_read() {
        let first = of(None, MIDNIGHT, 1);
        let second = of(Some(&first), MIDNIGHT + 24 * HOUR, 2);
        assert!(second.lines().starts_with("shared-rand-previous-value 1 "));
        let text = format!("network-status-version 3\n{}r x\n", second.lines());
        assert_eq!(SharedRandom::read(&text, [MIDNIGHT + 30 * HOUR, HOUR]), Some(second));
        let text = first.lines();
        assert_eq!((text.lines().count(), text.len()), (1, 73));
        assert_eq!(SharedRandom::read(&text, [MIDNIGHT, HOUR]), Some(first));
        assert_eq!(SharedRandom::read("r x\n", [MIDNIGHT, HOUR]), None);
    }
}
