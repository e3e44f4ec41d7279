//! Assignment of each neighbouring relay to one shard (parallel worker, with its own thread) of
//! this relay. That shard holds the *claim* on the neighbour: it has the link to the neighbour,
//! and circuits of other shards use this link too. Two relays thus need only one link.

use std::collections::BTreeMap;

/// Links of all shards (parallel workers of this relay) to other relays, by the neighbour's RSA
/// identity. For each neighbour, the table lists the shards in the order of their first link. Each
/// entry consists of a shard and the number of its links to the neighbour that are open or being
/// opened.
///
/// The first shard in the list holds the claim on the neighbour: other shards must use this
/// shard's link. When its last link closes, the next shard gets the claim.
#[derive(Debug, Default)]
pub struct Claims {
    held: BTreeMap<[u8; 20], Vec<(usize, usize)>>,
}

impl Claims {
    /// Returns the shard (parallel worker of this relay) that holds the claim on `neighbour`. The
    /// shard `shard` must use the link of the returned shard. Call this before `shard` opens a
    /// link to `neighbour`.
    ///
    /// If the result is `shard` itself, that shard opens the link, and calls [`Claims::gone`]
    /// after the link has closed.
    pub fn claim(&mut self, neighbour: [u8; 20], shard: usize) -> usize {
        match self.held.get(&neighbour).and_then(|shards| shards.first()) {
            Some(&(other, _)) if other != shard => other,
            _ => {
                self.link_opened(neighbour, shard);
                shard
            }
        }
    }

    /// Records that `neighbour` opened a link to the shard `shard` (a parallel worker of this
    /// relay). [`Claims::gone`] must be called when the link closes.
    pub fn link_opened(&mut self, neighbour: [u8; 20], shard: usize) {
        let shards = self.held.entry(neighbour).or_default();
        match shards.iter_mut().find(|(other, _)| *other == shard) {
            Some((_, links)) => *links += 1,
            None => shards.push((shard, 1)),
        }
    }

    /// Records that a link from the shard `shard` (a parallel worker of this relay) to `neighbour`
    /// is closed, or could not be opened.
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
        claims.link_opened(ANN, 1);
        claims.gone(ANN, 1);
        assert_eq!(claims.claim(ANN, 0), 1, "one of two is left");
        claims.gone(ANN, 1);
        assert_eq!(claims.claim(ANN, 0), 0);
    }

    #[test]
    fn a_second_link_counts_when_the_first_is_gone() {
        let mut claims = Claims::default();
        claims.link_opened(ANN, 0);
        claims.link_opened(ANN, 1);
        claims.link_opened(ANN, 1);
        claims.gone(ANN, 1);
        assert_eq!(claims.claim(ANN, 1), 0);
        claims.gone(ANN, 0);
        assert_eq!(claims.claim(ANN, 2), 1);
        claims.gone(ANN, 1);
        assert_eq!(claims.claim(ANN, 2), 2);
    }
}
