//! What a client's guards see of its circuits, cell by cell, and what is told of its memory.

use anabranch_multipath::Time;

use super::{CircuitKey, Client};
use crate::ending::Ending;
use crate::wire::cell::CELL;

/// A cell of a circuit that went by the link to its guard. (DESTROY that we send is none: the
/// circuit is gone before.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellSeen {
    /// When it came, or was handed to the link.
    pub time: Time,
    /// The circuit.
    pub circuit: CircuitKey,
    /// Whether it went to the guard.
    pub outward: bool,
}

impl Client {
    /// Keeps every cell for [`Client::take_seen`] from now on.
    pub fn watch_cells(&mut self) {
        self.role.seen.get_or_insert_default();
    }

    /// The cells since the last call, in the order of time, if they are kept.
    pub fn take_seen(&mut self) -> Vec<CellSeen> {
        self.role.seen.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Cells of a circuit so far, of all kinds, as its guard sees them: received, sent.
    pub fn cells(&self, circuit: CircuitKey) -> [u64; 2] {
        let circuit = self.role.keys.get(&circuit).and_then(|&index| self.circuits.get(index));
        circuit.map(Ending::cells).unwrap_or_default()
    }

    /// Bytes of queued cells, for links and for those of other legs; the latter alone; and the
    /// most of these that any set ever had.
    pub fn waiting(&self) -> [usize; 3] {
        let waiting = self.channels.used() * CELL + self.reordered;
        [waiting, self.reordered, self.most_reordered()]
    }

    /// A cell of a circuit has come, or has gone.
    pub(super) fn note_cell(&mut self, time: Time, index: u32, outward: bool) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        circuit.cells[usize::from(outward)] += 1;
        let circuit = circuit.key;
        if let Some(seen) = &mut self.role.seen {
            seen.push(CellSeen { time, circuit, outward });
        }
    }
}
