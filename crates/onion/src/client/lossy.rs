//! A client's lossy circuits (`docs/spec/lossy-circuits.md`).

use anabranch_multipath::Time;

use super::circuit::Circuit;
use super::{Cause, Client, Hop, HopKey};
use crate::channels::Owner;
use crate::crypto::lossy::{LossyClient, LossyKeys};
use crate::event::CircuitFault;
use crate::handshake::extension::Wish;
use crate::wire::cell::{Body, Command};

/// Lossy cells of a circuit at the client.
#[derive(Default)]
pub(super) enum LossyLayers {
    /// The circuit has no lossy cells.
    #[default]
    None,
    /// The circuit is being built; these are the keys of the hops so far, nearest first.
    Building(Vec<LossyKeys>),
    /// The circuit is complete.
    Complete(Box<LossyClient>),
}

impl LossyLayers {
    /// Returns the state of a circuit that is to be built over `hops`. Either all hops are asked
    /// for lossy cells, or none is.
    pub(super) fn of(hops: &[Hop]) -> LossyLayers {
        let is_lossy = |hop: &Hop| hop.key.wants_lossy();
        match hops.iter().all(is_lossy) && !hops.is_empty() {
            true => LossyLayers::Building(Vec::new()),
            false => LossyLayers::None,
        }
    }

    /// Adds the keys of the next hop. Returns false if that hop did not grant lossy cells although
    /// the circuit needs them.
    pub(super) fn add(&mut self, keys: Option<LossyKeys>, is_last: bool) -> bool {
        let LossyLayers::Building(hops) = self else { return true };
        let Some(keys) = keys else { return false };
        hops.push(keys);
        if is_last {
            *self = LossyLayers::Complete(Box::new(LossyClient::new(hops)));
        }
        true
    }

    /// Returns the layers; `None` if the circuit has no lossy cells, or is not complete.
    pub(super) fn layers(&mut self) -> Option<&mut LossyClient> {
        match self {
            LossyLayers::Complete(client) => Some(client),
            LossyLayers::None | LossyLayers::Building(_) => None,
        }
    }
}

impl HopKey {
    /// Returns true if the relay is asked for keys of lossy cells.
    #[must_use]
    pub fn wants_lossy(&self) -> bool {
        matches!(self, HopKey::NtorV3 { wish: Wish::Lossy, .. })
    }
}

impl Circuit {
    /// Returns true if the circuit has lossy cells, or will have.
    pub(super) fn wants_lossy(&self) -> bool {
        !matches!(self.lossy, LossyLayers::None)
    }
}

impl Client {
    /// Handles a lossy cell of a circuit: its counter and its body.
    pub(super) fn take_lossy_cell(
        &mut self,
        now: Time,
        owner: Owner,
        (counter, body): (u32, &mut Body),
    ) {
        self.note_cell(now, owner.circuit, false);
        let circuit = self.circuits.get_mut(owner.circuit);
        let Some(lossy) = circuit.and_then(|circuit| circuit.lossy.layers()) else {
            return self.break_off(owner.circuit, CircuitFault::Message);
        };
        match lossy.inward((Command::RELAY_LOSSY, counter), body) {
            Ok(()) => self.take_content(now, owner.circuit, body, usize::MAX),
            Err(refusal) => self.refuse_lossy(owner.circuit, refusal),
        }
    }

    /// Closes the circuit `index`, whose next relay did not grant lossy cells.
    pub(super) fn not_lossy(&mut self, index: u32) {
        self.tear_down(index, Cause::NoLossyCells);
    }
}
