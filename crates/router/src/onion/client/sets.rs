//! Table of the sets of circuits. The circuits of a set carry the same streams. The set is
//! identified by the identifier of its first circuit, even after that circuit is closed.

use std::collections::BTreeMap;

use anabranch_onion::client::CircuitKey;

/// The set that a circuit belongs to, and the circuit's index in the set. A circuit that shares
/// its streams with no other circuit is a set of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SetLeg {
    /// Identifier of the set: the identifier of its first circuit.
    pub(super) set: u64,
    /// Index of the circuit within its set, from 0. After the circuit is closed, a new circuit of
    /// the set may get the same index.
    pub(super) leg: usize,
}

/// The circuits that carry programs' streams. Each has its set (the circuits that carry the same
/// streams) and its index in the set.
#[derive(Default)]
pub(super) struct SetBook(BTreeMap<CircuitKey, SetLeg>);

impl SetBook {
    /// Adds `circuit`, which is being built. If `head` is given, `circuit` joins the set of the
    /// circuit `head`. Otherwise it is the first circuit of a new set.
    pub(super) fn begin(&mut self, circuit: CircuitKey, head: Option<CircuitKey>) {
        // If the set has lost all its circuits, `head` is closed too. In that case `head` was the
        // set's first circuit.
        let of = |head: CircuitKey| self.get(head).map_or(head.0, |place| place.set);
        let set = head.map_or(circuit.0, of);
        let is_taken =
            |leg: &usize| self.0.values().any(|other| *other == SetLeg { set, leg: *leg });
        let leg = (0..).find(|leg| !is_taken(leg)).expect("there are more numbers than circuits");
        self.0.insert(circuit, SetLeg { set, leg });
    }

    /// Removes `circuit`, which was closed.
    pub(super) fn end(&mut self, circuit: CircuitKey) {
        self.0.remove(&circuit);
    }

    /// Returns the set of `circuit` and its index there; `None` if the circuit does not carry
    /// programs' streams.
    pub(super) fn get(&self, circuit: CircuitKey) -> Option<SetLeg> {
        self.0.get(&circuit).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(book: &SetBook, circuit: u64) -> Option<(u64, usize)> {
        book.get(CircuitKey(circuit)).map(|SetLeg { set, leg }| (set, leg))
    }

    #[test]
    fn a_set_keeps_its_number_without_its_head_and_a_place_is_used_again() {
        let mut book = SetBook::default();
        book.begin(CircuitKey(4), None);
        book.begin(CircuitKey(5), Some(CircuitKey(4)));
        book.begin(CircuitKey(6), None);
        book.begin(CircuitKey(7), Some(CircuitKey(4)));
        assert_eq!(
            [4, 5, 6, 7].map(|n| place(&book, n).unwrap()),
            [(4, 0), (4, 1), (6, 0), (4, 2)]
        );
        book.end(CircuitKey(4));
        assert_eq!(place(&book, 4), None);
        // The circuit with the key 5 is the head of the set now.
        book.begin(CircuitKey(8), Some(CircuitKey(5)));
        assert_eq!((place(&book, 5), place(&book, 8)), (Some((4, 1)), Some((4, 0))));
    }
}
