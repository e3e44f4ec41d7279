//! Violations by the other end of a set of circuits, and the part of the set that each violation
//! closes.

use std::fmt;

/// The part of a set of circuits that a violation closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closes {
    /// The leg (parallel circuit) on which the message arrived. [`Fate`](super::Fate) is the
    /// consequence for the whole set.
    Leg,
    /// The whole set of circuits: all its legs, whether linked or not.
    Set,
}

/// A violation by the other end of a set of circuits (C tor's `conflux_pool.c` and `conflux.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfluxFault {
    /// A message that only the other role (client or exit) may send.
    Role,
    /// A message that cannot be parsed.
    Unreadable,
    /// A second LINK, LINKED or LINKED_ACK on the same circuit.
    Twice,
    /// LINK on a circuit that has or had streams.
    Streams,
    /// LINKED with the nonce of another set of circuits.
    Nonce,
    /// A circuit whose traffic-splitting design or flow control differs from that of its set.
    Design,
    /// More legs (circuits) than a set may have.
    TooManyLegs,
    /// LINKED, LINKED_ACK or a message with a sequence number, on a circuit that is not a leg of a
    /// set.
    NotLinked,
    /// The set of circuits has ended.
    Gone,
    /// The other end claims to have sent messages that we never received, or to have received
    /// messages that we never sent.
    DataLoss,
    /// A message of ours whose sequence number cannot be conveyed, because its leg (parallel
    /// circuit) lags the other legs by 2^32 - 1 messages or more. Also a sequence number that was
    /// assigned although no message could be sent with it.
    Incoherent,
    /// SWITCH with the value 0. Such a message would not change the sequence number of its leg
    /// (parallel circuit).
    SwitchZero,
    /// SWITCH directly after another SWITCH.
    SwitchTwice,
    /// A sequence number that is farther ahead than any window allows.
    TooFar,
    /// A sequence number that was received before.
    Repeated,
    /// The queue of messages that wait for a missing one is full.
    Full,
    /// An acknowledgement of messages that were never sent, or of no new messages.
    Unsent,
}

impl ConfluxFault {
    /// Returns the part that must be closed: the leg (parallel circuit), or the set if its streams
    /// cannot continue without loss.
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
            ConfluxFault::Role => {
                "a message about a set of circuits from the end that may not send it"
            }
            ConfluxFault::Unreadable => "an unreadable message about a set of circuits",
            ConfluxFault::Twice => "a circuit that joins a set of circuits twice",
            ConfluxFault::Streams => {
                "a circuit that joins a set of circuits although it carries streams already"
            }
            ConfluxFault::Nonce => "a circuit that joins a second set of circuits",
            ConfluxFault::Design => "a circuit that joins a set of circuits of another design",
            ConfluxFault::TooManyLegs => "too many circuits in a set",
            ConfluxFault::NotLinked => {
                "a message about a set of circuits, on a circuit that belongs to none"
            }
            ConfluxFault::Gone => "a message about a set of circuits that is closed",
            ConfluxFault::DataLoss => {
                "two ends of a set of circuits that disagree about the number of sent messages"
            }
            ConfluxFault::Incoherent => "a set of circuits whose next message cannot be numbered",
            ConfluxFault::SwitchZero => "a switch to another circuit after 0 messages",
            ConfluxFault::SwitchTwice => {
                "two switches to another circuit without a message between them"
            }
            ConfluxFault::TooFar => {
                "a message with a sequence number farther ahead than the sender's windows allow"
            }
            ConfluxFault::Repeated => "a message with a sequence number that was received before",
            ConfluxFault::Unsent => {
                "an acknowledgement of messages that were never sent or are acknowledged already"
            }
            ConfluxFault::Full => {
                "too many cells in a set of circuits that wait for an earlier cell"
            }
        })
    }
}

impl std::error::Error for ConfluxFault {}
