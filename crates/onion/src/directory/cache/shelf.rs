//! One kind of document, one for each relay: found by the relay's identity and by its own digest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{NOT_FOUND, Refusal, items};
use crate::directory::descriptor::twenty;

/// The documents.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelf {
    by_relay: BTreeMap<[u8; 20], ([u8; 20], Arc<str>)>,
    /// Whose document has this digest.
    by_digest: BTreeMap<[u8; 20], [u8; 20]>,
}

impl Shelf {
    /// Puts a document and its digest in the place of the relay's last one; whether it is another.
    pub(super) fn put(&mut self, id: [u8; 20], (text, digest): (&str, [u8; 20])) -> bool {
        if self.by_digest.get(&digest) == Some(&id) {
            return false;
        }
        self.remove(&id);
        self.by_relay.insert(id, (digest, text.into()));
        self.by_digest.insert(digest, id);
        true
    }

    /// Forgets a relay's document; whether there was one.
    pub(super) fn remove(&mut self, id: &[u8; 20]) -> bool {
        let old = self.by_relay.remove(id);
        if let Some((digest, _)) = &old {
            self.by_digest.remove(digest);
        }
        old.is_some()
    }

    /// Forgets the documents of relays that are not among these; whether there were any.
    pub(super) fn keep(&mut self, known: &BTreeSet<[u8; 20]>) -> bool {
        let before = self.by_relay.len();
        self.by_relay.retain(|id, _| known.contains(id));
        self.by_digest.retain(|_, id| known.contains(id));
        self.by_relay.len() != before
    }

    /// What `all`, `fp/…+…` or `d/…+…` names.
    pub(super) fn find(&self, rest: &str) -> Result<Vec<&str>, Refusal> {
        let of_relay = |id: &[u8; 20]| self.by_relay.get(id).map(|(_, text)| &**text);
        match rest.split_once('/') {
            None if rest == "all" => Ok(self.by_relay.values().map(|(_, text)| &**text).collect()),
            Some(("fp", list)) => {
                let ids = items(list, '+')?.into_iter().filter_map(twenty);
                Ok(ids.filter_map(|id| of_relay(&id)).collect())
            }
            Some(("d", list)) => {
                let digests = items(list, '+')?.into_iter().filter_map(twenty);
                let ids = digests.filter_map(|digest| self.by_digest.get(&digest));
                Ok(ids.filter_map(of_relay).collect())
            }
            _ => Err(NOT_FOUND),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_found_by_relay_and_by_digest_until_the_next() {
        let mut shelf = Shelf::default();
        assert!(shelf.put([1; 20], ("one", [11; 20])));
        assert!(!shelf.put([1; 20], ("one", [11; 20])), "it is the same");
        shelf.put([2; 20], ("two", [12; 20]));
        let hex = |byte: u8| format!("{byte:02x}").repeat(20);
        let find = |shelf: &Shelf, rest: &str| shelf.find(rest).unwrap().concat();
        assert_eq!(find(&shelf, "all"), "onetwo");
        assert_eq!(find(&shelf, &format!("fp/{}+{}", hex(2), hex(9))), "two");
        assert_eq!(find(&shelf, &format!("d/{}", hex(11))), "one");
        shelf.put([1; 20], ("newer", [13; 20]));
        assert_eq!(find(&shelf, &format!("d/{}", hex(11))), "");
        assert_eq!(find(&shelf, &format!("d/{}+{}", hex(13).to_uppercase(), hex(12))), "newertwo");
        assert!(shelf.keep(&BTreeSet::from([[2; 20]])) && !shelf.remove(&[1; 20]));
        assert_eq!(find(&shelf, "all"), "two");
        assert!(shelf.find("x").is_err() && shelf.find("fp/é").unwrap().is_empty());
        let flood = format!("d/{}", ["A"; 501].join("+"));
        assert_eq!(shelf.find(&flood).unwrap_err().0, 400);
    }
}
