//! A client's sets of several circuits (proposal 329).

use std::fmt;

use anabranch_multipath::Time;

use super::{CircuitKey, Client, Output};
use crate::conflux::{ConfluxEnd, ConfluxFault, Counted, Limits};
use crate::ending::Ending;
use crate::event::CircuitFault;
use crate::set::{Route, SetId, Several};
use crate::wire::cell::Command;
use crate::wire::conflux::{ConfluxLink, DesiredUx, SetNonce};
use crate::wire::message::{Message, RelayCommand};

/// We want to be sent to by all legs.
const UX: DesiredUx = DesiredUx::HighThroughput;

/// Why a circuit cannot be a leg of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSet {
    /// The circuit is gone, or not complete.
    NotBuilt,
    /// The set that it was to join is gone.
    Gone,
    /// It has or had streams, or is in a set already.
    Used,
    /// Its last relay did not grant congestion control.
    NoCongestionControl,
    /// The set has as many legs as it may have.
    Full,
}

impl fmt::Display for NoSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoSet::NotBuilt => "the circuit is not complete",
            NoSet::Gone => "the set is gone",
            NoSet::Used => "the circuit is in use",
            NoSet::NoCongestionControl => "the circuit has no congestion control",
            NoSet::Full => "the set has no room for a further circuit",
        })
    }
}

impl std::error::Error for NoSet {}

impl Client {
    /// Makes a complete circuit that was never used a leg: of a new set, or of the set of which
    /// `with` is one. Streams begun on any leg are the set's; they go as soon as one leg is linked.
    ///
    /// # Errors
    /// [`NoSet`]
    pub fn link(
        &mut self,
        now: Time,
        circuit: CircuitKey,
        with: Option<CircuitKey>,
    ) -> Result<(), NoSet> {
        let (index, own) = self.place(circuit).ok_or(NoSet::NotBuilt)?;
        let set = self.set_mut(own).ok_or(NoSet::NotBuilt)?;
        if set.several().is_some() || set.streams.were_used() {
            return Err(NoSet::Used);
        }
        if !set.streams.have_congestion_control() {
            return Err(NoSet::NoCongestionControl);
        }
        let id = match with {
            Some(other) => self.place(other).ok_or(NoSet::Gone)?.1,
            None => self.found_set(own),
        };
        let several = self.several(id).ok_or(NoSet::Gone)?;
        let (leg, link) = several.end.launch(now, UX).map_err(|_| NoSet::Full)?;
        several.add(leg, index);
        if id != own {
            self.sets.remove(own.0);
            let circuit = self.circuits.get_mut(index).and_then(|circuit| circuit.leg.as_mut());
            circuit.into_iter().for_each(|(set, _)| *set = id);
        }
        self.say(now, index, Command::RELAY, RelayCommand::CONFLUX_LINK, &link.write());
        self.await_links(id);
        Ok(())
    }

    /// Number and set of a circuit that is complete.
    fn place(&self, key: CircuitKey) -> Option<(u32, SetId)> {
        let index = *self.role.keys.get(&key)?;
        Some((index, self.circuits.get(index)?.set()?))
    }

    /// A circuit's set may have several legs from now on.
    fn found_set(&mut self, id: SetId) -> SetId {
        let (nonce, seed) = (SetNonce::draw(&mut *self.rng), self.rng.next_u64());
        let end = ConfluxEnd::client(nonce, Box::new(Counted::new()), Limits::default());
        let several = Several::new(end, self.role.dealing.clone(), seed);
        if let Some(set) = self.set_mut(id) {
            set.route = Route::Several(Box::new(several));
        }
        id
    }

    /// Takes a message about sets.
    ///
    /// # Errors
    /// What the last relay may not say.
    pub(super) fn take_conflux(
        &mut self,
        now: Time,
        index: u32,
        message: Message<'_>,
    ) -> Result<(), CircuitFault> {
        let id = self.set_of(index).ok_or(ConfluxFault::NotLinked)?;
        let several = self.several(id).ok_or(ConfluxFault::NotLinked)?;
        match message.command {
            RelayCommand::CONFLUX_LINKED => {
                let leg = several.leg(index).ok_or(ConfluxFault::NotLinked)?;
                let linked = ConfluxLink::read(message.data).ok_or(ConfluxFault::Unreadable)?;
                several.end.linked(now, leg, &linked)?;
                let rtt = several.end.rtt(leg).unwrap_or_default();
                self.say(now, index, Command::RELAY, RelayCommand::CONFLUX_LINKED_ACK, &[]);
                if let Some(circuit) = self.circuits.get(index).map(|circuit| circuit.key) {
                    self.put(Output::Linked { circuit, rtt });
                }
                self.pump(now, id);
                Ok(())
            }
            RelayCommand::CONFLUX_SWITCH => self.take_by_leg(now, id, index, message),
            _ => Err(ConfluxFault::Role.into()),
        }
    }
}
