//! Records of cells as a client's guards see them, and the memory use of waiting cells and
//! messages.

use anabranch_multipath::Time;

use super::{CircuitKey, Client};
use crate::ending::Ending;
use crate::wire::cell::CELL;

/// A record of one cell that was sent to a circuit's guard, or received from it. DESTROY cells
/// that this client sends are not recorded, because the circuit is removed before these cells are
/// sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellSeen {
    /// Time at which the cell was received, or passed to the link.
    pub time: Time,
    /// The circuit of the cell.
    pub circuit: CircuitKey,
    /// True if the cell was sent to the guard, false if it was received.
    pub outward: bool,
}

impl Client {
    /// Records every cell for [`Client::take_seen`] from now on.
    pub fn watch_cells(&mut self) {
        self.role.seen.get_or_insert_default();
    }

    /// Returns the cells recorded since the last call, in the order of time. The result is empty
    /// if cells are not recorded.
    pub fn take_seen(&mut self) -> Vec<CellSeen> {
        self.role.seen.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the number of cells of `circuit` received, and the number sent. Both counts include
    /// cells of all kinds, as the circuit's guard sees them.
    pub fn cells(&self, circuit: CircuitKey) -> [u64; 2] {
        let circuit = self.role.keys.get(&circuit).and_then(|&index| self.circuits.get(index));
        circuit.map(Ending::cells).unwrap_or_default()
    }

    /// Returns three sizes in bytes:
    ///
    /// 1. all queued cells and messages;
    /// 2. messages that wait for earlier messages on other legs;
    /// 3. the largest size so far of the messages in one circuit set that waited for earlier
    ///    messages.
    pub fn waiting(&self) -> [usize; 3] {
        let reordered = self.memory.reordered();
        let waiting = self.channels.used() * CELL + reordered;
        [waiting, reordered, self.sets.most_reordered()]
    }

    /// Counts a cell that the circuit `index` received, or sent if `outward` is true. Records the
    /// cell if [`Client::watch_cells`] was called.
    pub(super) fn note_cell(&mut self, time: Time, index: u32, outward: bool) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        circuit.cells[usize::from(outward)] += 1;
        let circuit = circuit.key;
        if let Some(seen) = &mut self.role.seen {
            seen.push(CellSeen { time, circuit, outward });
        }
    }
}
