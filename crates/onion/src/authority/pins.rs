//! Pairs of RSA and Ed25519 identities of relays (dir-spec 3.4, "key pinning"). The authority
//! keeps the first pair that it receives for an identity. The pair becomes permanent once the
//! relay has answered a probe under both identities.

use std::collections::BTreeMap;

/// Maximum number of pairs of identities. At this number, no new pair is accepted.
const MOST: usize = 500_000;

/// The known pairs of a relay's RSA identity and its Ed25519 identity.
#[derive(Clone, Debug, Default)]
pub(super) struct Pins {
    by_rsa: BTreeMap<[u8; 20], [u8; 32]>,
    by_edwards: BTreeMap<[u8; 32], [u8; 20]>,
}

impl Pins {
    /// Returns true unless one of the two identities is already paired with a different identity.
    pub(super) fn agree(&self, rsa: &[u8; 20], edwards: &[u8; 32]) -> bool {
        self.by_rsa.get(rsa).is_none_or(|known| known == edwards)
            && self.by_edwards.get(edwards).is_none_or(|known| known == rsa)
    }

    /// Records a pair of identities. Returns false if it contradicts a known pair.
    pub(super) fn pin(&mut self, rsa: [u8; 20], edwards: [u8; 32]) -> bool {
        let agree = self.agree(&rsa, &edwards);
        if agree {
            self.by_rsa.insert(rsa, edwards);
            self.by_edwards.insert(edwards, rsa);
        }
        agree
    }

    /// Removes the pair of identities of a relay that has never answered a probe.
    pub(super) fn unpin(&mut self, rsa: &[u8; 20]) {
        if let Some(edwards) = self.by_rsa.remove(rsa) {
            self.by_edwards.remove(&edwards);
        }
    }

    /// Returns true if a pair of identities with `rsa` can be kept: it is known already, or there
    /// is room for another pair.
    pub(super) fn has_place(&self, rsa: &[u8; 20]) -> bool {
        self.by_rsa.len() < MOST || self.by_rsa.contains_key(rsa)
    }

    /// Returns all pairs of identities, in the order of their RSA identities.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8; 20], &[u8; 32])> {
        self.by_rsa.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_identity_comes_with_another() {
        let mut pins = Pins::default();
        assert!(pins.pin([1; 20], [1; 32]) && pins.pin([1; 20], [1; 32]));
        assert!(!pins.pin([1; 20], [2; 32]) && !pins.pin([2; 20], [1; 32]));
        assert!(pins.pin([2; 20], [2; 32]) && pins.pin([3; 20], [3; 32]));
        pins.unpin(&[3; 20]);
        assert!(pins.agree(&[3; 20], &[4; 32]) && pins.agree(&[4; 20], &[3; 32]));
        assert_eq!(pins.iter().count(), 2);
    }

    #[test]
    fn when_there_is_no_room_those_who_are_known_stay() {
        let name = |number: usize| {
            let mut name = [0; 32];
            name[..8].copy_from_slice(&number.to_be_bytes());
            name
        };
        let rsa = |number: usize| <[u8; 20]>::try_from(&name(number)[..20]).unwrap();
        let mut pins = Pins::default();
        assert!((0..MOST).all(|number| pins.pin(rsa(number), name(number))));
        assert!(pins.has_place(&rsa(7)) && !pins.has_place(&rsa(MOST)));
    }
}
