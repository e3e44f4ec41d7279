//! Which shard of a relay has the link to a neighbour: circuits of the others go on by that one, so
//! that two relays need but one link.

use std::collections::BTreeMap;

/// The links of all shards to other relays, by the neighbour's RSA identity: shards in the order in
/// which they came to have one, and how many each has, open or being opened. The first one's
/// counts, and when it has none any more the next one's.
#[derive(Debug, Default)]
pub struct Claims {
    held: BTreeMap<[u8; 20], Vec<(usize, usize)>>,
}

impl Claims {
    /// Call this before `shard` dials `neighbour`. Returns the shard whose link it is to use. If
    /// that is `shard` itself, it dials, and calls [`Claims::gone`] when the link has ended.
    pub fn claim(&mut self, neighbour: [u8; 20], shard: usize) -> usize {
        match self.held.get(&neighbour).and_then(|shards| shards.first()) {
            Some(&(other, _)) if other != shard => other,
            _ => {
                self.came(neighbour, shard);
                shard
            }
        }
    }

    /// A shard has a link to this neighbour, who opened it. When it is gone, [`Claims::gone`] is to
    /// be told.
    pub fn came(&mut self, neighbour: [u8; 20], shard: usize) {
        let shards = self.held.entry(neighbour).or_default();
        match shards.iter_mut().find(|(other, _)| *other == shard) {
            Some((_, links)) => *links += 1,
            None => shards.push((shard, 1)),
        }
    }

    /// A shard's link is gone, or could not be opened.
    pub fn gone(&mut self, neighbour: [u8; 20], shard: usize) {
        let Some(shards) = self.held.get_mut(&neighbour) else { return };
        for (_, links) in shards.iter_mut().filter(|(other, _)| *other == shard) {
            *links = links.saturating_sub(1);
        }
        shards.retain(|(_, links)| *links > 0);
        if shards.is_empty() {
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
    fn a_second_link_counts_when_the_first_is_gone() {
        let mut claims = Claims::default();
        claims.came(ANN, 0);
        claims.came(ANN, 1);
        claims.came(ANN, 1);
        claims.gone(ANN, 1);
        assert_eq!(claims.claim(ANN, 1), 0);
        claims.gone(ANN, 0);
        assert_eq!(claims.claim(ANN, 2), 1);
        claims.gone(ANN, 1);
        assert_eq!(claims.claim(ANN, 2), 2);
    }
}
