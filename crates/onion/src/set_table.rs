//! Sets of several circuits that clients have linked at a relay: in which shard each is.

use std::any::Any;
use std::collections::BTreeMap;

use digest::Digest;

use crate::wire::conflux::SetNonce;
use crate::wire::crypto::Sha256;

/// A set of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetPlace {
    /// The shard that has it.
    pub shard: usize,
    /// Its number there.
    pub set: u32,
}

/// A leg on its way from one shard to another: what it is, only a relay's core knows.
pub type Orphan = Box<dyn Any + Send>;

/// The sets of all shards of a relay, and legs on their way from one shard to another. A relay's
/// core is lent one, as it is lent a generator: who runs several shards lends each the same.
pub trait SetTable: Send {
    /// A set begins. Gives the place of the one that has this nonce already.
    fn enter(&mut self, nonce: &SetNonce, place: SetPlace) -> Option<SetPlace>;

    /// Where a set is.
    fn find(&self, nonce: &SetNonce) -> Option<SetPlace>;

    /// A set has ended.
    fn leave(&mut self, nonce: &SetNonce, place: SetPlace);

    /// A leg is to be another shard's, which asks for it by this number.
    fn hand_over(&mut self, orphan: Orphan) -> u64;

    /// The leg of this number. It is given once.
    fn take_over(&mut self, number: u64) -> Option<Orphan>;
}

/// The sets of a relay. A nonce is a secret, so it is looked up by its digest: how long that takes
/// tells nothing.
#[derive(Default)]
pub struct Sets {
    places: BTreeMap<[u8; 32], SetPlace>,
    orphans: BTreeMap<u64, Orphan>,
    last: u64,
}

fn digest(nonce: &SetNonce) -> [u8; 32] {
    Sha256::digest(nonce.bytes()).into()
}

impl SetTable for Sets {
    fn enter(&mut self, nonce: &SetNonce, place: SetPlace) -> Option<SetPlace> {
        let taken = self.find(nonce);
        if taken.is_none() {
            self.places.insert(digest(nonce), place);
        }
        taken
    }

    fn find(&self, nonce: &SetNonce) -> Option<SetPlace> {
        self.places.get(&digest(nonce)).copied()
    }

    fn leave(&mut self, nonce: &SetNonce, place: SetPlace) {
        if self.find(nonce) == Some(place) {
            self.places.remove(&digest(nonce));
        }
    }

    fn hand_over(&mut self, orphan: Orphan) -> u64 {
        self.last += 1;
        self.orphans.insert(self.last, orphan);
        self.last
    }

    fn take_over(&mut self, number: u64) -> Option<Orphan> {
        self.orphans.remove(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_its_first_sets_until_that_ends() {
        let (mut sets, nonce) = (Sets::default(), SetNonce::from([7; 32]));
        let (one, two) = (SetPlace { shard: 0, set: 3 }, SetPlace { shard: 1, set: 3 });
        assert_eq!((sets.find(&nonce), sets.enter(&nonce, one)), (None, None));
        assert_eq!(sets.enter(&nonce, two), Some(one));
        sets.leave(&nonce, two);
        assert_eq!(sets.find(&nonce), Some(one));
        sets.leave(&nonce, one);
        assert_eq!(sets.enter(&nonce, two), None);
    }
}
