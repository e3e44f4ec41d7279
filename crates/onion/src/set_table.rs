//! The table of sets (parallel circuits) that clients have linked at a relay, with the shard of
//! each set. Shards are the parallel cores of a relay.

use std::any::Any;
use std::collections::BTreeMap;

use digest::Digest;

use crate::wire::conflux::SetNonce;
use crate::wire::crypto::Sha256;

/// Location of a circuit set: the parallel core (shard) that owns it, and its identifier in that
/// shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetLocation {
    /// The parallel core (shard) that owns the circuit set.
    pub shard: usize,
    /// The set's identifier in the parallel core (shard).
    pub set: u32,
}

/// A leg (one circuit of a set) that one parallel core (shard) of a relay transfers to another.
/// Only the relay's cores know the actual type of the `Any` value.
pub type OpaqueLeg = Box<dyn Any + Send>;

/// The sets of all shards (parallel cores) of a relay, and the legs (parallel circuits) that one
/// shard transfers to another. All shards share one table, which the caller passes to each core.
pub trait SetTable: Send {
    /// Adds the circuit set with `nonce` at `place`. If a set with this nonce exists, changes
    /// nothing and returns the location of that set. Otherwise returns `None`.
    fn enter(&mut self, nonce: &SetNonce, place: SetLocation) -> Option<SetLocation>;

    /// Returns the location of the circuit set with `nonce`; `None` if there is none.
    fn find(&self, nonce: &SetNonce) -> Option<SetLocation>;

    /// Removes the circuit set with `nonce` at `place`, because it has ended.
    fn leave(&mut self, nonce: &SetNonce, place: SetLocation);

    /// Stores a leg (one circuit of a set) for another parallel core (shard) of this relay.
    /// Returns an identifier for [`SetTable::take_over`], with which the other shard fetches the
    /// leg.
    fn hand_over(&mut self, leg: OpaqueLeg) -> u64;

    /// Removes and returns the leg (parallel circuit) that [`SetTable::hand_over`] stored under
    /// `number`; `None` if there is none.
    fn take_over(&mut self, number: u64) -> Option<OpaqueLeg>;
}

/// The table of a relay's circuit sets. The key of a set is the digest of its nonce. The nonce is
/// secret, and the duration of a look-up by digest reveals nothing about the nonce.
#[derive(Default)]
pub struct Sets {
    places: BTreeMap<[u8; 32], SetLocation>,
    handed: BTreeMap<u64, OpaqueLeg>,
    last: u64,
}

fn digest(nonce: &SetNonce) -> [u8; 32] {
    Sha256::digest(nonce.bytes()).into()
}

impl SetTable for Sets {
    fn enter(&mut self, nonce: &SetNonce, place: SetLocation) -> Option<SetLocation> {
        let taken = self.find(nonce);
        if taken.is_none() {
            self.places.insert(digest(nonce), place);
        }
        taken
    }

    fn find(&self, nonce: &SetNonce) -> Option<SetLocation> {
        self.places.get(&digest(nonce)).copied()
    }

    fn leave(&mut self, nonce: &SetNonce, place: SetLocation) {
        if self.find(nonce) == Some(place) {
            self.places.remove(&digest(nonce));
        }
    }

    fn hand_over(&mut self, leg: OpaqueLeg) -> u64 {
        self.last += 1;
        self.handed.insert(self.last, leg);
        self.last
    }

    fn take_over(&mut self, number: u64) -> Option<OpaqueLeg> {
        self.handed.remove(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_its_first_sets_until_that_ends() {
        let (mut sets, nonce) = (Sets::default(), SetNonce::from([7; 32]));
        let (one, two) = (SetLocation { shard: 0, set: 3 }, SetLocation { shard: 1, set: 3 });
        assert_eq!((sets.find(&nonce), sets.enter(&nonce, one)), (None, None));
        assert_eq!(sets.enter(&nonce, two), Some(one));
        sets.leave(&nonce, two);
        assert_eq!(sets.find(&nonce), Some(one));
        sets.leave(&nonce, one);
        assert_eq!(sets.enter(&nonce, two), None);
    }
}
