//! Cells of a set's trunk, the one circuit that continues from the middle relay at which the set's
//! legs (parallel circuits) join. The legs carry these cells unchanged
//! (`docs/spec/middle-merge.md`).

use std::collections::VecDeque;

use crate::wire::cell::{BODY, Body, Command};
use crate::wire::message::{DestroyReason, Message, RelayCommand};

/// Maximum number of RELAY_EARLY cells that are forwarded for the whole circuit set, not for each
/// of its circuits (tor-spec, "Relay cells").
const MOST_EARLY: u8 = 8;

/// State of a set of parallel circuits (legs) that join at a middle relay.
#[derive(Debug, Default)]
pub(crate) struct TrunkState {
    /// The trunk: the circuit that continues from the relay at which the legs join. The client's
    /// trunk has the encryption layers of the hops after that relay. `None` before the trunk
    /// exists.
    pub(crate) trunk: Option<u32>,
    /// Cells of the trunk (the circuit that continues where the set's legs join) that wait until a
    /// leg has room, oldest first.
    waiting: VecDeque<(Command, Vec<u8>)>,
    early: u8,
    /// True if arrived cells are not yet distributed among the legs (parallel circuits).
    undealt: bool,
    /// Reason for the closing of the trunk (the circuit that continues where the set's legs join);
    /// `None` while the trunk is open.
    close_reason: Option<DestroyReason>,
    /// True if the client has been notified of `close_reason`.
    is_notified: bool,
}

impl TrunkState {
    /// Notes that the trunk (the circuit that continues where the set's legs join) is closed for
    /// `reason`, so that no further cells are forwarded.
    pub(crate) fn close(&mut self, reason: DestroyReason) {
        self.close_reason.get_or_insert(reason);
        self.clear();
    }

    /// Drops all waiting cells.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Returns true if the trunk (the circuit that continues where the set's legs join) is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.close_reason.is_some()
    }

    /// Returns the reason for the closing of the trunk (the circuit that continues where the set's
    /// legs join). Returns `None` if the trunk is open, or if the reason was already returned.
    pub(crate) fn take_close_reason(&mut self) -> Option<DestroyReason> {
        self.close_reason.filter(|_| !std::mem::replace(&mut self.is_notified, true))
    }

    /// Queues a cell of the trunk (the circuit that continues where the set's legs join), to be
    /// sent on a leg.
    pub(crate) fn push(&mut self, command: Command, body: Vec<u8>) {
        self.waiting.push_back((command, body));
    }

    /// Notes that cells have arrived that must be distributed among the legs (parallel circuits).
    /// Returns true if this is the first call since the last distribution began.
    pub(crate) fn becomes_undealt(&mut self) -> bool {
        !std::mem::replace(&mut self.undealt, true)
    }

    /// Notes that the distribution of the queued cells among the legs (parallel circuits) begins.
    pub(crate) fn sees_dealing(&mut self) {
        self.undealt = false;
    }

    /// Removes and returns the cell that has waited longest; `None` if no cell waits.
    pub(crate) fn pop(&mut self) -> Option<(Command, Vec<u8>)> {
        self.waiting.pop_front()
    }

    /// Returns the number of waiting cells.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the total bytes of waiting cells.
    pub(crate) fn bytes(&self) -> usize {
        self.waiting.len() * BODY
    }

    /// Returns true if a cell with `command` may be forwarded. A RELAY_EARLY cell counts towards
    /// the limit [`MOST_EARLY`].
    pub(crate) fn may_go_on(&mut self, command: Command) -> bool {
        self.early = self.early.saturating_add(u8::from(command == Command::RELAY_EARLY));
        self.early <= MOST_EARLY
    }
}

/// Converts a cell of the trunk (the circuit that continues where the set's legs join) to a
/// message of its set. The cell's command becomes the message's command, and the whole body its
/// data. These messages exist only in memory, and are never sent.
pub(crate) fn as_message(command: Command, body: &[u8]) -> Message<'_> {
    Message { command: RelayCommand(command.0), stream: 0, data: body }
}

/// Converts a message that [`as_message`] made back to its cell. Returns `None` if the data has
/// the wrong length.
pub(crate) fn as_cell(command: RelayCommand, data: &[u8]) -> Option<(Command, Body)> {
    Some((Command(command.0), data.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_cells_of_a_set_go_on_as_relay_early() {
        let mut trunk_state = TrunkState::default();
        assert!((0..8).all(|_| trunk_state.may_go_on(Command::RELAY_EARLY)));
        assert!(trunk_state.may_go_on(Command::RELAY));
        assert!(!trunk_state.may_go_on(Command::RELAY_EARLY));
    }

    #[test]
    fn a_cell_goes_as_a_message_and_comes_back() {
        let mut trunk_state = TrunkState::default();
        let body = [7; BODY];
        trunk_state.push(Command::RELAY_EARLY, body.to_vec());
        assert_eq!((trunk_state.len(), trunk_state.bytes()), (1, BODY));
        let (command, kept) = trunk_state.pop().unwrap();
        let message = as_message(command, &kept);
        assert_eq!(as_cell(message.command, message.data), Some((Command::RELAY_EARLY, body)));
        assert_eq!(as_cell(message.command, &kept[1..]), None);
        assert!(trunk_state.pop().is_none());
    }
}
