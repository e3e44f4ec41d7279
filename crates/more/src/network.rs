//! The nodes of a network, and paths through them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use rand_core::Rng;

/// Length of a node's key in bytes.
pub const KEY: usize = 32;
/// Length in bytes of the beginning of a node's key, with which reply blocks identify their first
/// hop.
pub const PREFIX: usize = 8;

/// A node, as the list of the network's nodes describes it. Packets identify a node by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Public X25519 key, used to build Sphinx packets.
    pub key: [u8; KEY],
    /// Address of the node's UDP socket.
    pub address: SocketAddr,
    /// Weight of the node in random draws of relays and exits. The node's probability is
    /// proportional to its weight; a node with weight 0 is never drawn.
    pub weight: u32,
    /// True if streams may leave the network at this node.
    pub is_exit: bool,
}

/// The reason why a list of nodes is not a valid network. The fields are the indices of the two
/// nodes in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkError {
    /// Two nodes have the same key, or keys that begin with the same [`PREFIX`] bytes.
    SameKey(usize, usize),
    /// Two nodes have the same address.
    SameAddress(usize, usize),
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, first, second) = match self {
            NetworkError::SameKey(first, second) => ("keys", first, second),
            NetworkError::SameAddress(first, second) => ("addresses", first, second),
        };
        write!(
            f,
            "nodes {first} and {second} of the network have equal {what}, but each node \
                   needs its own"
        )
    }
}

impl std::error::Error for NetworkError {}

/// The nodes of a network. Every node knows all others and may send packets to each of them.
#[derive(Clone, Debug)]
pub struct Network {
    peers: Vec<Peer>,
    by_prefix: BTreeMap<[u8; PREFIX], usize>,
    by_address: BTreeMap<SocketAddr, usize>,
}

impl Network {
    /// Returns the network of `peers`.
    ///
    /// # Errors
    /// [`NetworkError`]: two nodes have equal addresses or key prefixes.
    pub fn new(peers: Vec<Peer>) -> Result<Network, NetworkError> {
        let (mut by_prefix, mut by_address) = (BTreeMap::new(), BTreeMap::new());
        for (at, peer) in peers.iter().enumerate() {
            if let Some(before) = by_prefix.insert(prefix(&peer.key), at) {
                return Err(NetworkError::SameKey(before, at));
            }
            if let Some(before) = by_address.insert(peer.address, at) {
                return Err(NetworkError::SameAddress(before, at));
            }
        }
        Ok(Network { peers, by_prefix, by_address })
    }

    /// Returns all nodes, in the order of the list.
    #[must_use]
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Returns the index in the list of the node with the public key `key`; `None` if there is no
    /// such node.
    #[must_use]
    pub fn find(&self, key: &[u8; KEY]) -> Option<usize> {
        let at = self.find_prefix(&prefix(key))?;
        (self.peers[at].key == *key).then_some(at)
    }

    /// Returns the index in the list of the node whose public key begins with `prefix`; `None` if
    /// there is no such node.
    pub(crate) fn find_prefix(&self, prefix: &[u8; PREFIX]) -> Option<usize> {
        self.by_prefix.get(prefix).copied()
    }

    /// Returns the index in the list of the node with `address`; `None` if there is no such node.
    pub(crate) fn find_address(&self, address: SocketAddr) -> Option<usize> {
        self.by_address.get(&address).copied()
    }

    /// Returns the number of nodes that may be drawn as relays: those with a weight above 0.
    pub(crate) fn relays(&self) -> usize {
        self.peers.iter().filter(|peer| peer.weight > 0).count()
    }

    /// Draws a random exit other than the node `me`, with a probability proportional to the exit's
    /// weight. Returns its index; `None` if there is no such exit.
    pub(crate) fn draw_exit(&self, rng: &mut dyn Rng, me: usize) -> Option<usize> {
        self.draw(rng, |at, peer| peer.is_exit && at != me)
    }

    /// Draws `length` different relays, with probabilities proportional to their weights, except
    /// the nodes in `excluded`. Returns their indices; `None` if there are too few.
    pub(crate) fn draw_path(
        &self,
        rng: &mut dyn Rng,
        length: usize,
        excluded: &[usize],
    ) -> Option<Vec<usize>> {
        let mut path = Vec::with_capacity(length);
        while path.len() < length {
            path.push(self.draw(rng, |at, _| !excluded.contains(&at) && !path.contains(&at))?);
        }
        Some(path)
    }

    /// Draws a random node for which `may` returns true, with a probability proportional to the
    /// node's weight. Returns its index; `None` if no such node has a weight above 0.
    fn draw(&self, rng: &mut dyn Rng, may: impl Fn(usize, &Peer) -> bool) -> Option<usize> {
        let candidates = || {
            let all = self.peers.iter().enumerate().filter(|(at, peer)| may(*at, peer));
            all.map(|(at, peer)| (at, u64::from(peer.weight)))
        };
        let total: u64 = candidates().map(|(_, weight)| weight).sum();
        // Uniform from 0 to `total - 1`, with a bias below 2^-20.
        let mut left = ((u128::from(rng.next_u64()) * u128::from(total)) >> 64) as u64;
        candidates().filter(|(_, weight)| *weight > 0).find_map(|(at, weight)| {
            let hit = left < weight;
            left = left.saturating_sub(weight);
            hit.then_some(at)
        })
    }
}

/// Returns the beginning of a node's `key`, with which reply blocks identify the node.
pub(crate) fn prefix(key: &[u8; KEY]) -> [u8; PREFIX] {
    let mut prefix = [0; PREFIX];
    prefix.copy_from_slice(&key[..PREFIX]);
    prefix
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    fn peer(number: u8, weight: u32) -> Peer {
        let address = SocketAddr::from(([10, 0, 0, number], 9));
        Peer { key: [number; KEY], address, weight, is_exit: number.is_multiple_of(2) }
    }

    #[test]
    fn paths_have_different_relays_in_proportion_to_their_weights() {
        let network = Network::new(vec![peer(0, 1), peer(1, 2), peer(2, 3), peer(3, 0)]).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut first = [0u32; 4];
        for _ in 0..6_000 {
            let path = network.draw_path(&mut rng, 3, &[]).unwrap();
            let mut sorted = path.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2], "{path:?}");
            first[path[0]] += 1;
        }
        // Four standard deviations of a binomial distribution are at most 155.
        for (seen, weight) in first.into_iter().zip([1, 2, 3, 0]) {
            assert!(seen.abs_diff(1_000 * weight) < 155, "{first:?}");
        }
        assert_eq!(network.draw_path(&mut rng, 3, &[1]), None, "too few are left");
        assert!((0..50).all(|_| network.draw_exit(&mut rng, 0) == Some(2)));
    }

    #[test]
    fn nodes_that_could_be_taken_for_each_other_are_refused() {
        let mut twin = peer(2, 1);
        twin.key[..PREFIX].fill(1);
        let list = vec![peer(1, 1), twin];
        assert_eq!(Network::new(list).unwrap_err(), NetworkError::SameKey(0, 1));
        let twin = Peer { address: peer(1, 1).address, ..peer(2, 1) };
        let list = vec![peer(1, 1), peer(3, 1), twin];
        assert_eq!(Network::new(list).unwrap_err(), NetworkError::SameAddress(0, 2));
    }

    #[test]
    fn a_node_is_found_by_its_whole_key_only() {
        let network = Network::new(vec![peer(1, 1), peer(2, 1)]).unwrap();
        assert_eq!(network.find(&[2; KEY]), Some(1));
        let mut other = [2; KEY];
        other[KEY - 1] = 0;
        assert_eq!(network.find(&other), None);
    }
}
