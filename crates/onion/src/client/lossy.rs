//! A client's lossy circuits, whose cells travel in datagrams and may be lost
//! (`docs/spec/lossy-circuits.md`).

use anabranch_multipath::Time;

use super::{Cause, CircuitKey, Client, Hop, HopKey, NoSet, Output};
use crate::channels::Owner;
use crate::conflux::LegScheduler;
use crate::crypto::lossy::{LossyClient, LossyKeys};
use crate::event::CircuitFault;
use crate::handshake::extension::HopRequest;
use crate::node::Timer;
use crate::set::lossy_legs::{LINKING, LossyLegs};
use crate::wire::cell::{Body, Command};
use crate::wire::conflux::SetNonce;
use crate::wire::lossy::LossyLink;
use crate::wire::message::RelayCommand;

/// A client's encryption of the lossy cells (sent in datagrams) of one circuit.
#[derive(Default)]
pub(super) enum LossyLayers {
    /// The circuit carries no lossy cells (sent in datagrams).
    #[default]
    None,
    /// The circuit is being built. These are the keys of the hops built so far, nearest first.
    Building(Vec<LossyKeys>),
    /// The circuit is complete.
    Complete(Box<LossyClient>),
}

impl LossyLayers {
    /// Returns the state of a circuit that will be built over `hops`. Either all hops request
    /// lossy cells (sent in datagrams), or none does.
    pub(super) fn of(hops: &[Hop]) -> LossyLayers {
        let is_lossy = |hop: &Hop| hop.key.wants_lossy();
        match hops.iter().all(is_lossy) && !hops.is_empty() {
            true => LossyLayers::Building(Vec::new()),
            false => LossyLayers::None,
        }
    }

    /// Adds the keys of the next hop. Returns false if the circuit needs lossy cells (sent in
    /// datagrams) and this hop did not accept them.
    pub(super) fn add(&mut self, keys: Option<LossyKeys>, is_last: bool) -> bool {
        let LossyLayers::Building(hops) = self else { return true };
        let Some(keys) = keys else { return false };
        hops.push(keys);
        if is_last {
            *self = LossyLayers::Complete(Box::new(LossyClient::new(hops)));
        }
        true
    }

    /// Returns the encryption layers for lossy cells (sent in datagrams). Returns `None` if the
    /// circuit carries no such cells, or is not complete.
    pub(super) fn layers(&mut self) -> Option<&mut LossyClient> {
        match self {
            LossyLayers::Complete(client) => Some(client),
            LossyLayers::None | LossyLayers::Building(_) => None,
        }
    }
}

impl HopKey {
    /// Returns true if the handshake asks the relay for keys of lossy cells (sent in datagrams).
    #[must_use]
    pub fn wants_lossy(&self) -> bool {
        matches!(self, HopKey::NtorV3 { wish: HopRequest::Lossy, .. })
    }
}

impl Client {
    /// Handles a lossy cell (sent in a datagram), given the cell's counter and its body. `owner`
    /// names the cell's circuit.
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

    /// Makes the complete, unused `circuit`, whose cells travel in datagrams, a leg of a set. The
    /// set is that of the circuit `with`, or a new set if `with` is `None`. When the exit has
    /// linked the leg, [`Output::Linked`] reports this.
    ///
    /// # Errors
    /// Returns [`NoSet`] if the circuit cannot be a leg.
    pub(super) fn link_lossy(
        &mut self,
        now: Time,
        circuit: CircuitKey,
        with: Option<CircuitKey>,
    ) -> Result<(), NoSet> {
        let (index, own) = self.place(circuit).ok_or(NoSet::NotBuilt)?;
        if !self.sets.get_mut(own).is_some_and(|set| set.may_be_linked()) {
            return Err(NoSet::Used);
        }
        let dealing = self.role.dealing.clone().unwrap_or_else(|| LegScheduler::of("round-robin"));
        let id = match with {
            Some(other) => {
                let id = self.set_named(other).ok_or(NoSet::Gone)?;
                if !self.join_lossy_set(index, id, Some(now)) {
                    return Err(NoSet::Full);
                }
                id
            }
            None => {
                let (nonce, seed) = (SetNonce::draw(&mut *self.rng), self.rng.next_u64());
                let legs = LossyLegs::new(nonce, &dealing, seed).ok_or(NoSet::Schedule)?;
                self.start_lossy_set(index, legs, Some(now));
                own
            }
        };
        let legs = self.sets.get_mut(id).and_then(|set| set.lossy_legs.as_ref());
        let nonce = *legs.ok_or(NoSet::Gone)?.nonce();
        let link = LossyLink { nonce, dealing: dealing.to_string() };
        let data = link.write().ok_or(NoSet::Schedule)?;
        self.send_relay_cell(now, index, Command::RELAY, RelayCommand::LOSSY_LINK, &data);
        self.timers.insert((now + LINKING, Timer::LossyLegs(id)));
        Ok(())
    }

    /// Handles the exit's answer to the request to link the circuit `index`.
    ///
    /// # Errors
    /// The client has sent no such request, or the exit has already answered it.
    pub(super) fn lossy_linked(&mut self, now: Time, index: u32) -> Result<(), CircuitFault> {
        let id = self.set_of(index).ok_or(CircuitFault::Message)?;
        let legs = self.sets.get_mut(id).and_then(|set| set.lossy_legs.as_mut());
        let rtt = legs.and_then(|legs| legs.answered(now, index)).ok_or(CircuitFault::Message)?;
        self.update_lossy_legs(id);
        if let Some(circuit) = self.circuits.get(index).map(|circuit| circuit.key) {
            self.put(Output::Linked { circuit, rtt });
        }
        self.pump_lossy(now, id);
        Ok(())
    }

    /// Closes the circuit `index`, because its next relay did not accept lossy cells (sent in
    /// datagrams).
    pub(super) fn not_lossy(&mut self, index: u32) {
        self.tear_down(index, Cause::NoLossyCells);
    }
}
