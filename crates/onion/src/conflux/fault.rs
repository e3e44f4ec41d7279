//! Faults of the other end of a set, and what they close.

use std::fmt;

/// Scope of the closing that a fault causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closes {
    /// The leg on which the message arrived. The consequence for the set is separate
    /// ([`Fate`](super::Fate)).
    Leg,
    /// The whole set: all its legs, linked or not.
    Set,
}

/// A violation by the other end of a set (C tor's `conflux_pool.c` and `conflux.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfluxFault {
    /// A message that only the other role may send.
    Role,
    /// A malformed message.
    Unreadable,
    /// A repeated LINK, LINKED or LINKED_ACK.
    Twice,
    /// LINK on a circuit that has or had streams.
    Streams,
    /// LINKED with the nonce of another set.
    Nonce,
    /// A circuit of a design other than its set's, or with another kind of windows.
    Design,
    /// More legs than a set may have.
    TooManyLegs,
    /// LINKED, LINKED_ACK or a numbered message on a circuit that is no leg.
    NotLinked,
    /// The set has ended.
    Gone,
    /// The other end claims to have sent messages that we never received, or to have received
    /// messages that we never sent.
    DataLoss,
    /// Our next message cannot be sent. Its leg lags the others by 2^32 - 1 messages or more, or no
    /// cell could be filled after a number was assigned.
    Incoherent,
    /// SWITCH with the value 0, which does not change the leg's number.
    SwitchZero,
    /// SWITCH directly after another SWITCH.
    SwitchTwice,
    /// A number farther ahead than any window allows.
    TooFar,
    /// A repeated number.
    Repeated,
    /// The queue of messages that wait for a missing one is full.
    Full,
    /// An acknowledgement of messages that were never sent, or of nothing new.
    Unsent,
}

impl ConfluxFault {
    /// Returns the scope to close: the leg, or the set if its streams cannot continue without loss.
    #[must_use]
    pub const fn closes(self) -> Closes {
        match self {
            ConfluxFault::DataLoss | ConfluxFault::Incoherent => Closes::Set,
            _ => Closes::Leg,
        }
    }
}

impl fmt::Display for ConfluxFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ConfluxFault::Role => "a message for a set of circuits that this end may not send",
            ConfluxFault::Unreadable => "an unreadable message for a set of circuits",
            ConfluxFault::Twice => "a circuit that joins a set of circuits twice",
            ConfluxFault::Streams => {
                "a circuit that joins a set of circuits although it carries streams already"
            }
            ConfluxFault::Nonce => "a circuit that joins a second set of circuits",
            ConfluxFault::Design => "a circuit that joins a set of circuits of another design",
            ConfluxFault::TooManyLegs => "too many circuits in a set",
            ConfluxFault::NotLinked => {
                "a message for a set of circuits, on a circuit that belongs to none"
            }
            ConfluxFault::Gone => "a message for a set of circuits that is closed",
            ConfluxFault::DataLoss => {
                "a set of circuits whose two ends count different numbers of sent messages"
            }
            ConfluxFault::Incoherent => "a set of circuits whose next message cannot be numbered",
            ConfluxFault::SwitchZero => "a switch to another circuit after 0 messages",
            ConfluxFault::SwitchTwice => {
                "two switches to another circuit without a message between them"
            }
            ConfluxFault::TooFar => "a message whose number in its set of circuits is too high",
            ConfluxFault::Repeated => "a message whose number in its set of circuits is repeated",
            ConfluxFault::Unsent => {
                "an acknowledgement of messages that were never sent, or a second one"
            }
            ConfluxFault::Full => {
                "too many messages of a set of circuits that wait for an earlier message"
            }
        })
    }
}

impl std::error::Error for ConfluxFault {}
