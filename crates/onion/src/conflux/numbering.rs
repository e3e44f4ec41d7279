//! The numbers of messages that go by several legs.

use std::fmt;

use anabranch_multipath::PathId;

use super::fault::ConfluxFault;
use crate::wire::conflux::put_switch;
use crate::wire::message::RelayCommand;
use crate::wire::resilient::LegSwitch;

/// How far a number may be ahead of the next one: more cells are never under way on eight circuits
/// (8 GB), so a larger number is an attack on the queue or an error.
pub const AHEAD: u64 = 1 << 24;

/// Where the numbers of a leg begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bases {
    /// The number of our last message, as this leg counts.
    pub sent: u64,
    /// The number of the other end's last message, as this leg counts.
    pub received: u64,
}

/// What tells the other end a message's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It is clear.
    Nothing,
    /// SWITCH by so many goes before the message, on the same leg.
    Switch(u32),
    /// These bytes stand before the message's data.
    Prefix([u8; 4]),
    /// SWITCH of ours goes before the message: from this number on, the leg's messages follow each
    /// other and bear none.
    Run(u32),
    /// SWITCH of ours goes before the message: from now on each bears its number, and this one
    /// does.
    Singly([u8; 4]),
}

impl Mark {
    /// What stands before the message's data.
    #[must_use]
    pub const fn prefix(&self) -> &[u8] {
        match self {
            Mark::Nothing | Mark::Switch(_) | Mark::Run(_) => &[],
            Mark::Prefix(bytes) | Mark::Singly(bytes) => bytes,
        }
    }

    /// The message that goes before, if one does: its command and its data.
    #[must_use]
    pub fn before(&self) -> Option<(RelayCommand, Vec<u8>)> {
        let switch = |switch: LegSwitch| (RelayCommand::RESILIENT_SWITCH, switch.write().to_vec());
        match *self {
            Mark::Nothing | Mark::Prefix(_) => None,
            Mark::Switch(by) => Some((RelayCommand::CONFLUX_SWITCH, put_switch(by).to_vec())),
            Mark::Run(number) => Some(switch(LegSwitch { singly: false, number })),
            Mark::Singly(number) => {
                Some(switch(LegSwitch { singly: true, number: u32::from_be_bytes(number) }))
            }
        }
    }
}

/// Which number a message has. Each direction counts for itself, from 1.
///
/// A call that fails changes nothing.
pub trait Numbering: fmt::Debug + Send {
    /// What people call it.
    fn name(&self) -> &'static str;

    /// Cells that a change of leg costs.
    fn turn(&self) -> u64;

    /// A leg is added, at a place where there is none.
    ///
    /// # Errors
    /// The other end says that it received what we never sent.
    fn join(&mut self, leg: PathId, bases: Bases) -> Result<(), ConfluxFault>;

    /// A leg is gone.
    fn leave(&mut self, leg: PathId);

    /// Bytes by which the data of each message is shorter.
    fn overhead(&self) -> usize;

    /// A message is sent by this leg, behind what the mark says: both or neither.
    ///
    /// # Errors
    /// The number cannot be told.
    fn send(&mut self, leg: PathId) -> Result<Mark, ConfluxFault>;

    /// SWITCH came by this leg; `next` is the number of the message that is to be delivered next.
    ///
    /// # Errors
    /// It may not come.
    fn switched(&mut self, leg: PathId, by: u32, next: u64) -> Result<(), ConfluxFault>;

    /// A message that went by a leg which is gone is sent again by this one; its data leaves so
    /// many bytes of the cell's free.
    ///
    /// # Errors
    /// Nothing is sent again, or there is no such leg.
    fn again(&mut self, _leg: PathId, _number: u64, _spare: usize) -> Result<Mark, ConfluxFault> {
        Err(ConfluxFault::Role)
    }

    /// SWITCH of ours came by this leg.
    ///
    /// # Errors
    /// It may not come.
    fn renumbered(
        &mut self,
        _leg: PathId,
        _switch: LegSwitch,
        _next: u64,
    ) -> Result<(), ConfluxFault> {
        Err(ConfluxFault::Role)
    }

    /// A message with this data came by this leg: its number, and its data without ours.
    ///
    /// # Errors
    /// It has no number, or one too far ahead of `next`.
    fn received<'d>(
        &mut self,
        leg: PathId,
        data: &'d [u8],
        next: u64,
    ) -> Result<(u64, &'d [u8]), ConfluxFault>;

    /// Whether a number that was there before is no fault: it was sent again.
    fn resends(&self) -> bool;

    /// Whether what this leg alone knows is lost with it: its number of the last message sent, or
    /// received, is above those of all others.
    fn leads(&self, leg: PathId) -> bool;

    /// How far the numbers sent by this leg are behind our last message's, where SWITCH must tell.
    fn behind(&self, leg: PathId) -> u64;

    /// Whether every leg has received this number or a later one: who has not got it yet never
    /// will, because each leg's numbers grow.
    fn passed(&self, number: u64) -> bool;

    /// The number of our last message.
    fn last_sent(&self) -> u64;
}

/// Whether a message has a number (proposal 329, section 3; C tor's `conflux_should_multiplex`, and
/// what `connection_edge_process_relay_cell` drops before it counts).
#[must_use]
pub const fn is_counted(command: RelayCommand, stream: u16) -> bool {
    match command {
        RelayCommand::DATA | RelayCommand::XOFF | RelayCommand::XON => true,
        RelayCommand::BEGIN
        | RelayCommand::END
        | RelayCommand::CONNECTED
        | RelayCommand::RESOLVE
        | RelayCommand::RESOLVED => stream != 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_what_streams_say() {
        let counted: Vec<u8> = (0..=255).filter(|n| is_counted(RelayCommand(*n), 7)).collect();
        assert_eq!(counted, [1, 2, 3, 4, 11, 12, 43, 44]);
        let without: Vec<u8> = (0..=255).filter(|n| is_counted(RelayCommand(*n), 0)).collect();
        assert_eq!(without, [2, 43, 44], "C tor counts these, and drops them then");
    }
}
