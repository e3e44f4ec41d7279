//! Cells that go by the legs of a set whole: the legs join at a middle, and the circuit beyond is
//! one (`docs/spec/middle-merge.md`).

use std::collections::VecDeque;

use crate::wire::cell::{BODY, Body, Command};
use crate::wire::message::{DestroyReason, Message, RelayCommand};

/// RELAY_EARLY cells that may go on (tor-spec, "Relay cells"): they are the set's, not a leg's.
const MOST_EARLY: u8 = 8;

/// What a set has besides its legs when they join at a middle.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    /// The circuit beyond: at a client the one whose layers are the set's, at the relay the one
    /// that goes on. `None` until there is one.
    pub(crate) trunk: Option<u32>,
    /// Cells that wait for a leg with room, oldest first.
    waiting: VecDeque<(Command, Vec<u8>)>,
    early: u8,
    /// Cells came: somebody is to see to the legs.
    undealt: bool,
    /// Why the circuit beyond is gone, and whether the client has been told.
    cut: Option<DestroyReason>,
    told: bool,
}

impl Passing {
    /// The circuit beyond is gone: nothing passes any more.
    pub(crate) fn cut(&mut self, reason: DestroyReason) {
        self.cut.get_or_insert(reason);
        self.clear();
    }

    /// No cell waits any more.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Whether the circuit beyond was there, and is gone.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Why it is gone, once.
    pub(crate) fn tell_cut(&mut self) -> Option<DestroyReason> {
        self.cut.filter(|_| !std::mem::replace(&mut self.told, true))
    }

    /// A cell is to go by a leg.
    pub(crate) fn push(&mut self, command: Command, body: Vec<u8>) {
        self.waiting.push_back((command, body));
    }

    /// Cells came; whether these are the first since somebody saw to the legs.
    pub(crate) fn becomes_undealt(&mut self) -> bool {
        !std::mem::replace(&mut self.undealt, true)
    }

    /// Somebody sees to the legs.
    pub(crate) fn sees_dealing(&mut self) {
        self.undealt = false;
    }

    /// The cell that waits longest.
    pub(crate) fn pop(&mut self) -> Option<(Command, Vec<u8>)> {
        self.waiting.pop_front()
    }

    /// Cells that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.waiting.len() * BODY
    }

    /// A cell goes on with this command: whether it may.
    pub(crate) fn may_go_on(&mut self, command: Command) -> bool {
        self.early = self.early.saturating_add(u8::from(command == Command::RELAY_EARLY));
        self.early <= MOST_EARLY
    }
}

/// A cell as a message of its set: its command stands where that of a message does, and all of it
/// is data. On the wire there is nothing of this.
pub(crate) fn as_message(command: Command, body: &[u8]) -> Message<'_> {
    Message { command: RelayCommand(command.0), stream: 0, data: body }
}

/// The cell that [`as_message`] was made of; `None` if it is none.
pub(crate) fn as_cell(command: RelayCommand, data: &[u8]) -> Option<(Command, Body)> {
    Some((Command(command.0), data.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_cells_of_a_set_go_on_as_relay_early() {
        let mut passing = Passing::default();
        assert!((0..8).all(|_| passing.may_go_on(Command::RELAY_EARLY)));
        assert!(passing.may_go_on(Command::RELAY));
        assert!(!passing.may_go_on(Command::RELAY_EARLY));
    }

    #[test]
    fn a_cell_goes_as_a_message_and_comes_back() {
        let mut passing = Passing::default();
        let body = [7; BODY];
        passing.push(Command::RELAY_EARLY, body.to_vec());
        assert_eq!((passing.len(), passing.bytes()), (1, BODY));
        let (command, kept) = passing.pop().unwrap();
        let message = as_message(command, &kept);
        assert_eq!(as_cell(message.command, message.data), Some((Command::RELAY_EARLY, body)));
        assert_eq!(as_cell(message.command, &kept[1..]), None);
        assert!(passing.pop().is_none());
    }
}
