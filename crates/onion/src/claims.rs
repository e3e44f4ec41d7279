//! Which shard of a relay has the link to a neighbour: circuits of the others go on by that one, so that two relays need but one link.

use std::collections::BTreeMap;

/// The links of all shards to other relays, by the neighbour's RSA identity. Of a neighbour to whom several shards have links the first
/// one counts.
#[derive(Debug, Default)]
pub struct Claims {
    held: BTreeMap<[u8; 20], Claim>,
}

#[derive(Debug)]
struct Claim {
    shard: usize,
    /// Links that are open, or being opened.
    links: usize,
}

impl Claims {
    /// A shard wants to open a link: the shard by whose link to go on. If that is the asker, it is to open one, and to say when that
    /// is gone ([`Claims::gone`]).
    pub fn claim(&mut self, neighbour: [u8; 20], shard: usize) -> usize {
        let claim = self.held.entry(neighbour).or_insert(Claim { shard, links: 0 });
        claim.links += usize::from(claim.shard == shard);
        claim.shard
    }

    /// A neighbour opened a link to a shard. When it is gone, [`Claims::gone`] is to be told.
    pub fn came(&mut self, neighbour: [u8; 20], shard: usize) {
        self.claim(neighbour, shard);
    }

    /// A shard's link is gone, or could not be opened.
    pub fn gone(&mut self, neighbour: [u8; 20], shard: usize) {
        let Some(claim) = self.held.get_mut(&neighbour).filter(|claim| claim.shard == shard) else {
            return;
        };
        claim.links = claim.links.saturating_sub(1);
        if claim.links == 0 {
            self.held.remove(&neighbour);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: [u8; 20] = [1; 20];
    const BOB: [u8; 20] = [2; 20];

    #[test]
    fn the_first_shard_has_the_link_until_its_last_is_gone() {
        let mut claims = Claims::default();
        assert_eq!(claims.claim(ANN, 1), 1);
        assert_eq!(claims.claim(ANN, 0), 1);
        assert_eq!(claims.claim(BOB, 0), 0);
        claims.came(ANN, 1);
        claims.gone(ANN, 1);
        assert_eq!(claims.claim(ANN, 0), 1, "one of two is left");
        claims.gone(ANN, 1);
        assert_eq!(claims.claim(ANN, 0), 0);
    }

    #[test]
    fn a_link_that_counts_for_nothing_takes_nothing_away() {
        let mut claims = Claims::default();
        claims.came(ANN, 0);
        claims.came(ANN, 1);
        claims.gone(ANN, 1);
        assert_eq!(claims.claim(ANN, 1), 0);
    }
}
