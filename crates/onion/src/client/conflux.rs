//! Sets of several circuits at the client (proposal 329, and earlier designs).

use std::fmt;

use anabranch_multipath::{PathId, Time};

use super::{CircuitKey, Client, Output};
use crate::conflux::{ConfluxFault, Design, Limits};
use crate::ending::Ending;
use crate::event::CircuitFault;
use crate::set::{Route, SetLegs};
use crate::table::SetId;
use crate::wire::ancestors::{AncestorLink, DEALING};
use crate::wire::cell::Command;
use crate::wire::conflux::{ConfluxLink, DesiredUx, SetNonce};
use crate::wire::message::{Message, RelayCommand};
use crate::wire::resilient::ResilientLink;

/// Desired UX in LINK messages, which asks the relay to send on all legs (parallel circuits).
const UX: DesiredUx = DesiredUx::HighThroughput;

/// Reason why a circuit cannot be a leg of a set of parallel circuits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSet {
    /// The circuit is closed, or not complete.
    NotBuilt,
    /// The set that the circuit was meant to join has ended.
    Gone,
    /// The circuit has or had streams, or already belongs to a set.
    Used,
    /// The circuit's last relay did not accept congestion control.
    NoCongestionControl,
    /// The circuit uses congestion control, but the set's design does not support it.
    CongestionControl,
    /// The circuit set has its maximum number of legs.
    Full,
    /// The caller gave hops that follow the relay at which the legs (parallel circuits) join, but
    /// in this design the legs join at the last relay. Or the design needs such hops, but the
    /// caller gave none.
    Beyond,
    /// The format of the circuit's cells differs from the format in the set. A message that must
    /// be retransmitted on this circuit might not fit into its cells.
    OtherCells,
    /// The scheduler does not support the maximum number of legs of a set. This applies to sets of
    /// lossy circuits, whose cells travel in datagrams.
    Schedule,
}

impl fmt::Display for NoSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoSet::NotBuilt => "the circuit is not complete",
            NoSet::Gone => "the circuit would join a set of circuits that is closed",
            NoSet::Used => {
                "the circuit carries or carried streams, or already belongs to a set of circuits"
            }
            NoSet::NoCongestionControl => {
                "the circuit has no congestion control, which the set's design needs"
            }
            NoSet::CongestionControl => {
                "the circuit has congestion control, which the set's design does not use"
            }
            NoSet::OtherCells => {
                "the circuit and the set it would join have different cell formats"
            }
            NoSet::Beyond => {
                "the set's design does not allow the relays of this circuit after the relay where \
                 the circuits join, or requires more relays there"
            }
            NoSet::Schedule => "the scheduler does not support a set of 8 circuits, the maximum",
            NoSet::Full => "the set has its maximum number of circuits",
        })
    }
}

impl std::error::Error for NoSet {}

impl Client {
    /// Makes a complete, unused circuit a leg of the set of the circuit `with`, or of a new set if
    /// `with` is `None`. Streams that are opened on any leg belong to the set. The cells of these
    /// streams are sent as soon as one leg is linked.
    ///
    /// # Errors
    /// Returns [`NoSet`] if the circuit cannot be a leg.
    pub fn link(
        &mut self,
        now: Time,
        circuit: CircuitKey,
        with: Option<CircuitKey>,
    ) -> Result<(), NoSet> {
        if self.is_lossy(circuit) {
            return self.link_lossy(now, circuit, with);
        }
        if self.role.design.is_merged() && with.is_none() {
            return Err(NoSet::Beyond);
        }
        self.link_leg(now, circuit, with)
    }

    /// Links a leg (parallel circuit) by the rules of [`Client::link`], with one exception: the
    /// first leg of a set may also end at the relay at which the legs join. Merged designs need a
    /// further hop there, and [`Client::link`] refuses such a leg.
    pub(super) fn link_leg(
        &mut self,
        now: Time,
        circuit: CircuitKey,
        with: Option<CircuitKey>,
    ) -> Result<(), NoSet> {
        let design = self.role.design;
        let (index, own) = self.place(circuit).ok_or(NoSet::NotBuilt)?;
        let set = self.sets.get_mut(own).ok_or(NoSet::NotBuilt)?;
        if set.several().is_some() || set.streams.were_used() {
            return Err(NoSet::Used);
        }
        match (set.streams.have_congestion_control(), design.has_congestion_control()) {
            (false, true) => return Err(NoSet::NoCongestionControl),
            (true, false) => return Err(NoSet::CongestionControl),
            (true, true) | (false, false) => {}
        }
        let id = match with {
            Some(other) => self.set_named(other).ok_or(NoSet::Gone)?,
            None => {
                self.allow_several_legs(own);
                own
            }
        };
        let format = self.circuits.get_mut(index).and_then(Ending::parts);
        let format = format.map(|(_, _, layers)| layers.format()).unwrap_or_default();
        let several = self.sets.several(id).ok_or(NoSet::Gone)?;
        if !several.takes_format(format) {
            return Err(NoSet::OtherCells);
        }
        let (leg, link) = several.end.launch(now, UX).map_err(|_| NoSet::Full)?;
        several.add(leg, index);
        let message = self.link_message(id, leg, &link);
        if design.is_merged() {
            let leg = self.circuits.get_mut(index).and_then(|circuit| circuit.leg.as_mut());
            leg.into_iter().for_each(|(_, leg)| leg.pass_cells(&self.role.params));
        }
        if design.is_resilient() {
            self.role.names.insert(circuit, id);
        }
        if id != own {
            self.sets.remove(own);
            let circuit = self.circuits.get_mut(index).and_then(|circuit| circuit.leg.as_mut());
            circuit.into_iter().for_each(|(set, _)| *set = id);
        }
        let [command, ..] = design.link_commands();
        self.send_relay_cell(now, index, Command::RELAY, command, &message);
        self.await_links(id);
        self.await_leg_actions(id);
        Ok(())
    }

    /// Returns the data of the LINK message for `leg` (a parallel circuit): `link`, followed by
    /// the fields that the design adds.
    fn link_message(&mut self, id: SetId, leg: PathId, link: &ConfluxLink) -> Vec<u8> {
        let scheduler = self.role.dealing.as_ref().map(ToString::to_string);
        let dealing = scheduler.filter(|text| text.len() <= DEALING).unwrap_or_default();
        let nonce = link.nonce;
        let message = match (self.role.design, self.role.design.ancestor()) {
            (Design::Resilient | Design::Merged, _) => {
                let merged = self.role.design.is_merged();
                let retransmitter =
                    self.sets.several(id).and_then(|several| several.end.retransmitter_mut());
                let resumes =
                    retransmitter.as_ref().is_some_and(|retransmitter| retransmitter.was_linked());
                let serial = retransmitter
                    .and_then(|retransmitter| retransmitter.serial(leg))
                    .unwrap_or_default();
                ResilientLink { merged, resumes, nonce, serial, dealing }.write()
            }
            (_, Some(design)) => AncestorLink { design, nonce, dealing }.write(),
            (_, None) => Some(link.write().to_vec()),
        };
        message.expect("a request that is too long for the message was left out before")
    }

    /// Returns the set that has the circuit `key` as a leg. For a set that can continue without
    /// legs, `key` may also be a leg that has closed. Returns `None` if there is no such set.
    pub(super) fn set_named(&self, key: CircuitKey) -> Option<SetId> {
        let living = self.place(key).map(|(_, id)| id);
        living.or_else(|| self.role.names.get(&key).copied())
    }

    /// Returns the index and the set of the circuit `key`; `None` if the circuit is unknown or not
    /// complete.
    pub(super) fn place(&self, key: CircuitKey) -> Option<(u32, SetId)> {
        let index = *self.role.keys.get(&key)?;
        Some((index, self.circuits.get(index)?.set()?))
    }

    /// Converts the set `id`, which has one circuit, so that it can have several legs.
    fn allow_several_legs(&mut self, id: SetId) {
        let (nonce, seed) = (SetNonce::draw(&mut *self.rng), self.rng.next_u64());
        let design = self.role.design;
        let end = design.client_end(nonce, Limits::default());
        let several = SetLegs::new(end, design, self.role.dealing.clone(), seed);
        if let Some(set) = self.sets.get_mut(id) {
            set.streams.adopt(design);
            set.route = Route::Several(Box::new(several));
        }
    }

    /// Handles `message`, which links a circuit or controls a set.
    ///
    /// # Errors
    /// Returns the violation if the last relay broke the protocol.
    pub(super) fn take_conflux(
        &mut self,
        now: Time,
        index: u32,
        message: Message<'_>,
    ) -> Result<(), CircuitFault> {
        let id = self.set_of(index).ok_or(ConfluxFault::NotLinked)?;
        let several = self.sets.several(id).ok_or(ConfluxFault::NotLinked)?;
        match message.command {
            RelayCommand::CONFLUX_LINKED | RelayCommand::ANCESTOR_LINKED => {
                let leg = several.leg(index).ok_or(ConfluxFault::NotLinked)?;
                let serial =
                    several.end.retransmitter().and_then(|retransmitter| retransmitter.serial(leg));
                let linked = read_linked(several.design, serial, message)?;
                several.end.linked(now, leg, &linked)?;
                let (rtt, design) = (several.end.rtt(leg).unwrap_or_default(), several.design);
                let [.., acknowledgement] = design.link_commands();
                self.send_relay_cell(now, index, Command::RELAY, acknowledgement, &[]);
                let linked = self.circuits.get(index).map(|circuit| circuit.key);
                if let Some(circuit) = linked.filter(|key| !self.lacks_trunk(id, *key)) {
                    self.put(Output::Linked { circuit, rtt });
                }
                self.pump(now, id);
                Ok(())
            }
            RelayCommand::CONFLUX_SWITCH | RelayCommand::RESILIENT_SWITCH => {
                self.take_by_leg(now, id, index, message)
            }
            RelayCommand::RESILIENT_RECEIVED
            | RelayCommand::RESILIENT_GONE
            | RelayCommand::RESILIENT_PROBE => self.take_of_legs(now, id, index, message),
            _ => Err(ConfluxFault::Role.into()),
        }
    }
}

/// Parses a LINKED message for the leg with the serial number `serial` of a circuit set of
/// `design`.
///
/// # Errors
/// The message is malformed, or it belongs to another design or leg.
fn read_linked(
    design: Design,
    serial: Option<u32>,
    message: Message<'_>,
) -> Result<ConfluxLink, ConfluxFault> {
    let [_, command, _] = design.link_commands();
    if message.command != command {
        return Err(ConfluxFault::Design);
    }
    if design.is_resilient() {
        let reply = ResilientLink::read(message.data).ok_or(ConfluxFault::Unreadable)?;
        let fits = serial == Some(reply.serial) && reply.merged == design.is_merged();
        let link = ConfluxLink { nonce: reply.nonce, sent: 0, received: 0, ux: UX };
        return if fits { Ok(link) } else { Err(ConfluxFault::Nonce) };
    }
    let Some(ancestor) = design.ancestor() else {
        return ConfluxLink::read(message.data).ok_or(ConfluxFault::Unreadable);
    };
    let reply = AncestorLink::read(message.data).ok_or(ConfluxFault::Unreadable)?;
    if reply.design != ancestor {
        return Err(ConfluxFault::Design);
    }
    Ok(ConfluxLink { nonce: reply.nonce, sent: 0, received: 0, ux: UX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ancestors::Ancestor;

    #[test]
    fn a_set_takes_linked_of_its_own_design_alone() {
        let (nonce, command) = (SetNonce::from([7; 32]), RelayCommand::ANCESTOR_LINKED);
        let encode = |design| AncestorLink { design, nonce, dealing: String::new() }.write();
        let [old, mtor] = [Ancestor::Conflux2013, Ancestor::MTor].map(|one| encode(one).unwrap());
        let link = ConfluxLink { nonce, sent: 0, received: 0, ux: UX };
        let read = |design: &str, command, data: &[u8]| {
            let message = Message { command, stream: 0, data };
            read_linked(design.parse().unwrap(), Some(3), message)
        };
        let ours = |serial| {
            let dealing = String::new();
            let merged = false;
            ResilientLink { merged, resumes: false, nonce, serial, dealing }.write().unwrap()
        };
        assert_eq!(read("merged", command, &ours(3)), Err(ConfluxFault::Nonce));
        assert_eq!(read("anabranch", command, &ours(3)), Ok(link));
        assert_eq!(read("anabranch", command, &ours(4)), Err(ConfluxFault::Nonce));
        assert_eq!(read("anabranch", command, &old), Err(ConfluxFault::Unreadable));
        assert_eq!(read("mtor", command, &ours(3)), Err(ConfluxFault::Unreadable));
        assert_eq!(read("conflux-2013", command, &old), Ok(link));
        assert_eq!(read("mtor-vegas", command, &mtor), Ok(link));
        assert_eq!(read("mtor", command, &old), Err(ConfluxFault::Design));
        assert_eq!(read("mtor", command, &mtor[..34]), Err(ConfluxFault::Unreadable));
        assert_eq!(read("conflux", command, &link.write()), Err(ConfluxFault::Design));
        let stock = RelayCommand::CONFLUX_LINKED;
        assert_eq!(read("conflux", stock, &link.write()), Ok(link));
        assert_eq!(read("mtor", stock, &mtor), Err(ConfluxFault::Design));
    }
}
