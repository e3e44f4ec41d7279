//! Sequence numbers of messages that are sent over several circuits (legs).

use std::fmt;

use anabranch_multipath::PathId;

use super::fault::ConfluxFault;
use crate::wire::conflux::put_switch;
use crate::wire::message::RelayCommand;
use crate::wire::resilient::LegSwitch;

/// Maximum distance of a received sequence number from the next expected one. Eight circuits never
/// have 2^24 cells (8 GB) in flight, so a larger distance is an error, or an attack on the queue.
pub const AHEAD: u64 = 1 << 24;

/// The sequence numbers from which a new leg (parallel circuit) begins to count its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bases {
    /// Sequence number of the last message sent by this end, as counted on this leg (parallel
    /// circuit).
    pub sent: u64,
    /// Sequence number of the last message sent by the other end, as counted on this leg (parallel
    /// circuit).
    pub received: u64,
}

/// Encoding that conveys a message's sequence number to the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The sequence number is not sent: it is one more than that of the previous message on the
    /// leg (parallel circuit).
    Nothing,
    /// A SWITCH message of proposal 329 precedes the message on the same leg (parallel circuit),
    /// and raises the leg's sequence number by this value.
    Switch(u32),
    /// These bytes, the low 32 bits of the sequence number, precede the message's data.
    Prefix([u8; 4]),
    /// This project's SWITCH message precedes the message, and contains the message's sequence
    /// number. From here on, messages on the leg (parallel circuit) have consecutive sequence
    /// numbers and do not carry them.
    Run(u32),
    /// This project's SWITCH message precedes the message. From this message on, each message
    /// carries its own sequence number.
    Singly([u8; 4]),
}

impl Mark {
    /// Returns the bytes that precede the message's data; empty if there are none.
    #[must_use]
    pub const fn prefix(&self) -> &[u8] {
        match self {
            Mark::Nothing | Mark::Switch(_) | Mark::Run(_) => &[],
            Mark::Prefix(bytes) | Mark::Singly(bytes) => bytes,
        }
    }

    /// Returns the command and data of the SWITCH message that precedes the message; `None` if
    /// there is none.
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

/// A method to assign sequence numbers to messages and to convey them to the other end. Each
/// direction counts separately, from 1.
///
/// A call that fails changes nothing.
pub trait Numbering: fmt::Debug + Send {
    /// Returns the name of this numbering scheme.
    fn name(&self) -> &'static str;

    /// Returns the number of extra cells that a change from one leg (parallel circuit) to another
    /// costs.
    fn turn(&self) -> u64;

    /// Adds a leg (parallel circuit) in the free slot `leg` (its index in the set). The leg's
    /// sequence numbers continue from `bases`.
    ///
    /// # Errors
    /// Returns an error if the other end claims to have received messages that we never sent.
    fn join(&mut self, leg: PathId, bases: Bases) -> Result<(), ConfluxFault>;

    /// Removes the leg `leg` (a parallel circuit).
    fn leave(&mut self, leg: PathId);

    /// Returns the number of bytes that a message's sequence number takes from the space for its
    /// data.
    fn overhead(&self) -> usize;

    /// Assigns a sequence number to a message on `leg` (a parallel circuit). The caller sends the
    /// returned [`Mark`] and then the message, or neither of them.
    ///
    /// # Errors
    /// The sequence number cannot be conveyed.
    fn send(&mut self, leg: PathId) -> Result<Mark, ConfluxFault>;

    /// Handles a SWITCH message of proposal 329, which raises the sequence number of `leg` (a
    /// parallel circuit) by `by`. `next` is the sequence number of the next message to deliver.
    ///
    /// # Errors
    /// SWITCH is not allowed at this point.
    fn switched(&mut self, leg: PathId, by: u32, next: u64) -> Result<(), ConfluxFault>;

    /// Returns the encoding of a message's sequence number, for sending the message again on this
    /// leg (parallel circuit) after it was lost with another leg. The message's data leaves
    /// `spare` bytes of the cell free.
    ///
    /// # Errors
    /// This scheme does not support sending messages again, or there is no such leg.
    fn again(&mut self, _leg: PathId, _number: u64, _spare: usize) -> Result<Mark, ConfluxFault> {
        Err(ConfluxFault::Role)
    }

    /// Handles this project's SWITCH message, received on a leg (parallel circuit).
    ///
    /// # Errors
    /// SWITCH is not allowed at this point.
    fn renumbered(
        &mut self,
        _leg: PathId,
        _switch: LegSwitch,
        _next: u64,
    ) -> Result<(), ConfluxFault> {
        Err(ConfluxFault::Role)
    }

    /// Handles a message with the data `data` that arrived on the leg `leg` (parallel circuit).
    /// Returns the message's sequence number, and the data without it.
    ///
    /// # Errors
    /// The message has no sequence number, or one too far ahead of `next`.
    fn received<'d>(
        &mut self,
        leg: PathId,
        data: &'d [u8],
        next: u64,
    ) -> Result<(u64, &'d [u8]), ConfluxFault>;

    /// Returns true if the same sequence number may arrive twice, because lost messages are sent
    /// again.
    fn resends(&self) -> bool;

    /// Returns true if a higher sequence number was sent or received on `leg` (a parallel circuit)
    /// than on all other legs. If such a leg fails, messages may be lost.
    fn leads(&self, leg: PathId) -> bool;

    /// Returns the lag of `leg` (a parallel circuit): the difference between the sequence number
    /// of our last message on any leg and the last one sent on `leg`. SWITCH conveys this
    /// difference.
    fn backlog(&self, leg: PathId) -> u64;

    /// Returns true if the sequence number `number` or a higher one has arrived on every leg
    /// (parallel circuit). On each leg, sequence numbers only grow. If the message `number` is
    /// missing then, it will never arrive.
    fn passed(&self, number: u64) -> bool;

    /// Returns the sequence number of the last message that this end sent.
    fn last_sent(&self) -> u64;
}

/// Returns true if a message with this command and stream has a sequence number (proposal 329,
/// section 3; C tor's `conflux_should_multiplex`). On stream 0, BEGIN, END, CONNECTED, RESOLVE and
/// RESOLVED have none: C tor's `connection_edge_process_relay_cell` drops such messages before it
/// counts them.
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
