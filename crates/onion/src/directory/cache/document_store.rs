//! Storage for documents of one type: server descriptors, or extra-info documents. A relay's
//! present document is found by the relay's identity, and older documents by their digests.
//! Clients may request older documents, because older consensuses list them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{NOT_FOUND, Refusal, items};
use crate::wire::text::twenty;

/// Number of new consensuses after which a replaced document is removed. By then, every consensus
/// that lists the document has expired.
const TURNS: u8 = 3;
/// Maximum number of old documents of one relay.
const MOST_OLD: usize = 4;

/// All relays' documents of one type: server descriptors, or extra-info documents.
#[derive(Clone, Debug, Default)]
pub(super) struct DocumentStore {
    by_relay: BTreeMap<[u8; 20], RelayVersions>,
    by_digest: BTreeMap<[u8; 20], Arc<str>>,
}

/// One relay's documents, identified by digest.
#[derive(Clone, Debug, Default)]
struct RelayVersions {
    present: Option<[u8; 20]>,
    /// Old documents, newest first, each with the number of consensuses since it was replaced.
    old: VecDeque<([u8; 20], u8)>,
}

impl RelayVersions {
    /// Marks the relay's present document as old.
    fn retire(&mut self) {
        if let Some(digest) = self.present.take() {
            self.old.push_front((digest, 0));
        }
    }

    /// Removes the oldest documents of the relay if it has more than `MOST_OLD` old ones. Returns
    /// their digests.
    fn beyond(&mut self) -> Vec<[u8; 20]> {
        let kept = self.old.len().min(MOST_OLD);
        self.old.drain(kept..).map(|(digest, _)| digest).collect()
    }
}

impl DocumentStore {
    /// Replaces the present document of the relay `id`. Returns whether the new document differs
    /// from the previous one.
    pub(super) fn put(&mut self, id: [u8; 20], (text, digest): (&str, [u8; 20])) -> bool {
        let pile = self.by_relay.entry(id).or_default();
        if pile.present == Some(digest) {
            return false;
        }
        pile.retire();
        // A relay may publish an old document again.
        pile.old.retain(|(old, _)| *old != digest);
        pile.present = Some(digest);
        let beyond = pile.beyond();
        self.drop(&beyond);
        self.by_digest.insert(digest, text.into());
        true
    }

    /// Adds a document that the relay has already replaced. Clients can still request it by its
    /// digest. Returns true if the document was missing.
    pub(super) fn put_old(&mut self, id: [u8; 20], (text, digest): (&str, [u8; 20])) -> bool {
        if self.by_digest.contains_key(&digest) {
            return false;
        }
        let pile = self.by_relay.entry(id).or_default();
        pile.old.push_front((digest, 0));
        let beyond = pile.beyond();
        self.drop(&beyond);
        self.by_digest.insert(digest, text.into());
        true
    }

    /// Removes a relay's documents. Returns whether the relay had any.
    pub(super) fn remove(&mut self, id: &[u8; 20]) -> bool {
        let Some(pile) = self.by_relay.remove(id) else { return false };
        let digests: Vec<[u8; 20]> =
            pile.old.iter().map(|(digest, _)| *digest).chain(pile.present).collect();
        self.drop(&digests);
        true
    }

    /// Marks the present documents of relays that are not in `known` as old. Returns true if any
    /// document was marked.
    pub(super) fn keep(&mut self, known: &BTreeSet<[u8; 20]>) -> bool {
        let others = self.by_relay.iter_mut().filter(|(id, _)| !known.contains(*id));
        let present = others.filter(|(_, pile)| pile.present.is_some());
        present.map(|(_, pile)| pile.retire()).count() > 0
    }

    /// Records that there is a new consensus, and removes documents that were replaced more than
    /// [`TURNS`] consensuses ago.
    pub(super) fn turn(&mut self) {
        let mut over = Vec::new();
        for pile in self.by_relay.values_mut() {
            pile.old.iter_mut().for_each(|(_, turns)| *turns += 1);
            over.extend(pile.old.iter().filter(|(_, turns)| *turns > TURNS).map(|(old, _)| *old));
            pile.old.retain(|(_, turns)| *turns <= TURNS);
        }
        self.by_relay.retain(|_, pile| pile.present.is_some() || !pile.old.is_empty());
        self.drop(&over);
    }

    /// Returns the present document of the relay `id`; `None` if there is none.
    pub(super) fn of(&self, id: &[u8; 20]) -> Option<&Arc<str>> {
        self.by_digest.get(&self.by_relay.get(id)?.present?)
    }

    /// Returns the documents that `rest`, the last part of a request's path, names. The result has
    /// no duplicates. `rest` is `all`, `fp/…+…` (fingerprints) or `d/…+…` (digests).
    pub(super) fn find(&self, rest: &str) -> Result<Vec<&Arc<str>>, Refusal> {
        match rest.split_once('/') {
            None if rest == "all" => Ok(self.present().collect()),
            Some(("fp", list)) => Ok(named(list)?.iter().filter_map(|id| self.of(id)).collect()),
            Some(("d", list)) => {
                Ok(named(list)?.iter().filter_map(|digest| self.by_digest.get(digest)).collect())
            }
            _ => Err(NOT_FOUND),
        }
    }

    /// Returns the newest document of each relay.
    pub(super) fn present(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_relay.keys().filter_map(|id| self.of(id))
    }

    fn drop(&mut self, digests: &[[u8; 20]]) {
        digests.iter().for_each(|digest| drop(self.by_digest.remove(digest)));
    }
}

/// Returns the digests in `list`, without duplicates. Invalid items are skipped.
fn named(list: &str) -> Result<BTreeSet<[u8; 20]>, Refusal> {
    Ok(items(list, '+')?.into_iter().filter_map(twenty).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(byte: u8) -> String {
        format!("{byte:02x}").repeat(20)
    }

    fn find(store: &DocumentStore, rest: &str) -> String {
        store.find(rest).unwrap().into_iter().map(|text| &**text).collect()
    }

    #[test]
    fn documents_are_found_by_relay_and_by_digest() {
        let mut store = DocumentStore::default();
        assert!(store.put([1; 20], ("one", [11; 20])));
        assert!(!store.put([1; 20], ("one", [11; 20])), "it is the same");
        store.put([2; 20], ("two", [12; 20]));
        assert_eq!(find(&store, "all"), "onetwo");
        assert_eq!(find(&store, &format!("fp/{}+{}", hex(2), hex(9))), "two");
        assert_eq!(find(&store, &format!("d/{0}+{0}", hex(11))), "one", "once");
        assert_eq!(find(&store, &format!("d/{}+{}", hex(12).to_uppercase(), hex(11))), "onetwo");
        assert!(store.find("x").is_err() && store.find("fp/é").unwrap().is_empty());
        let flood = format!("d/{}", ["A"; 501].join("+"));
        assert_eq!(store.find(&flood).unwrap_err().0, 400);
        assert!(store.remove(&[1; 20]) && !store.remove(&[1; 20]));
        assert_eq!(find(&store, &format!("d/{}", hex(11))), "");
    }

    #[test]
    fn who_has_an_older_consensus_finds_what_it_names() {
        let mut store = DocumentStore::default();
        store.put([1; 20], ("one", [11; 20]));
        store.put([1; 20], ("newer", [13; 20]));
        store.put([2; 20], ("two", [12; 20]));
        assert!(store.keep(&BTreeSet::from([[1; 20]])), "the second has gone");
        assert!(!store.keep(&BTreeSet::from([[1; 20]])));
        let by_digest = format!("d/{}+{}", hex(11), hex(12));
        for _ in 0..=TURNS {
            assert_eq!(find(&store, "all"), "newer");
            assert_eq!(find(&store, &format!("fp/{}", hex(2))), "");
            assert_eq!(find(&store, &by_digest), "onetwo");
            store.turn();
        }
        assert_eq!(find(&store, &by_digest), "");
        assert_eq!((store.by_relay.len(), store.by_digest.len()), (1, 1));
    }

    #[test]
    fn of_a_relay_that_publishes_all_the_time_few_documents_stay() {
        let mut store = DocumentStore::default();
        (0..50).for_each(|n| assert!(store.put([1; 20], ("text", [n; 20]))));
        assert!(store.put_old([1; 20], ("older", [99; 20])));
        assert!(!store.put_old([1; 20], ("older", [99; 20])));
        assert_eq!(store.by_digest.len(), 1 + MOST_OLD);
        assert_eq!(find(&store, &format!("fp/{}", hex(1))), "text");
        assert_eq!(find(&store, &format!("d/{}", hex(99))), "older");
        // The relay publishes its old document again.
        assert!(store.put([1; 20], ("older", [99; 20])));
        assert_eq!(find(&store, "all"), "older");
        assert_eq!(store.by_digest.len(), 1 + MOST_OLD);
    }
}
