//! A table for keys that are looked up very often, such as the link and the circuit of each cell.
//!
//! Values are stored in slots, and a tree maps each key to its slot. A cache of the slots of a few
//! recent keys makes most searches of the tree unnecessary. A hostile neighbour may choose
//! unfavourable circuit IDs. In this table, they only cause searches of the tree. In a hash table,
//! they would cause long chains.

use std::cell::Cell;
use std::collections::BTreeMap;

/// Number of entries in the cache that contains the slots of recently used keys.
const RECENT: usize = 16;

/// A key of a [`SlotTable`].
pub(crate) trait SlotKey: Copy + Ord {
    /// Returns bits that are likely to differ between keys in use at the same time. They select
    /// the key's entry in the cache.
    fn hint(self) -> u32;
}

impl SlotKey for u32 {
    fn hint(self) -> u32 {
        self
    }
}

/// A map from `K` to `V` with fast look-ups of recently used keys. Its iterators follow the order
/// of the keys unless they state otherwise.
pub(crate) struct SlotTable<K, V> {
    slots: Vec<Option<(K, V)>>,
    free: Vec<u32>,
    index: BTreeMap<K, u32>,
    /// Slots of recently used keys, indexed by the keys' hints. Such a slot may contain another
    /// key by now, so each look-up compares the key.
    recent: [Cell<u32>; RECENT],
}

impl<K, V> Default for SlotTable<K, V> {
    fn default() -> SlotTable<K, V> {
        SlotTable {
            slots: Vec::new(),
            free: Vec::new(),
            index: BTreeMap::new(),
            recent: [const { Cell::new(0) }; RECENT],
        }
    }
}

impl<K: SlotKey, V> SlotTable<K, V> {
    /// Returns the slot of `key`; `None` if the table has no such key.
    fn slot(&self, key: K) -> Option<usize> {
        let recent = &self.recent[key.hint() as usize % RECENT];
        let slot = recent.get() as usize;
        let is_it = |entry: &Option<(K, V)>| entry.as_ref().is_some_and(|(other, _)| *other == key);
        if self.slots.get(slot).is_some_and(is_it) {
            return Some(slot);
        }
        let found = *self.index.get(&key)?;
        recent.set(found);
        Some(found as usize)
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.slots[self.slot(*key)?].as_ref().map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let slot = self.slot(*key)?;
        self.slots[slot].as_mut().map(|(_, value)| value)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.slot(*key).is_some()
    }

    /// Adds a value. A value with the same key is replaced.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if let Some(slot) = self.slot(key) {
            self.slots[slot] = Some((key, value));
            return;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some((key, value));
        self.index.insert(key, slot);
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let slot = self.index.remove(key)?;
        self.free.push(slot);
        self.slots[slot as usize].take().map(|(_, value)| value)
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = K> {
        self.index.keys().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        let entry = |slot: &u32| self.slots[*slot as usize].as_ref();
        self.index.values().filter_map(entry).map(|(key, value)| (*key, value))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Iterates over the values, in no particular order.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.slots.iter_mut().flatten().map(|(_, value)| value)
    }

    pub(crate) fn into_values(mut self) -> impl Iterator<Item = V> {
        let index = std::mem::take(&mut self.index);
        let entry = move |slot: u32| self.slots[slot as usize].take().map(|(_, value)| value);
        index.into_values().filter_map(entry)
    }
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed;
    use rand::RngExt;

    use super::*;

    #[test]
    fn a_table_has_what_a_tree_has_after_any_changes() {
        let mut rng = seed::stream(1, 0, "slots");
        let (mut table, mut tree) = (SlotTable::default(), BTreeMap::new());
        for step in 0..20_000u32 {
            // Some of these keys have the same hint.
            let key = rng.random_range(0..64u32) * 8;
            match rng.random_range(0..4) {
                0 => {
                    table.insert(key, step);
                    tree.insert(key, step);
                }
                1 => assert_eq!(table.remove(&key), tree.remove(&key)),
                2 => {
                    table.values_mut().for_each(|value| *value += 1);
                    tree.values_mut().for_each(|value| *value += 1);
                }
                _ => assert_eq!(table.get_mut(&key), tree.get_mut(&key)),
            }
            assert_eq!((table.get(&key), table.len()), (tree.get(&key), tree.len()));
            assert_eq!(table.contains_key(&key), tree.contains_key(&key));
        }
        assert!(table.keys().eq(tree.keys().copied()) && table.slots.len() <= 64);
        assert!(table.values().eq(tree.values()));
        assert!(table.into_values().eq(tree.into_values()));
    }

    #[test]
    fn a_slot_that_another_key_took_over_is_not_found_by_the_first() {
        let mut table = SlotTable::default();
        table.insert(1, 'a');
        assert_eq!(table.get(&1), Some(&'a'));
        assert_eq!(table.remove(&1), Some('a'));
        table.insert(1 + RECENT as u32, 'b');
        assert_eq!((table.get(&1), table.get(&17)), (None, Some(&'b')));
    }
}
