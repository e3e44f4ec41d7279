//! What a core tells the person who runs it.

use std::fmt;

use crate::channel::Fault;
use crate::channels::LinkId;
use crate::handshake::Refused;
use crate::wire::link::Identity;

/// Something worth a line in a log. No payload, no destinations, no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A link's handshake is done.
    LinkOpen {
        /// The link.
        link: LinkId,
        /// Who the neighbour has proved to be; `None` for a client.
        identity: Option<Identity>,
        /// Its clock minus ours in seconds, if it told the time.
        skew: Option<i64>,
        /// Whether we opened the link.
        dialled: bool,
    },
    /// A neighbour did what no honest one does.
    Violation {
        /// The link that it came by.
        link: LinkId,
        /// What it was.
        violation: Violation,
    },
    /// The memory for cells is full: the circuit whose cells waited longest was closed.
    OutOfMemory,
}

/// What a neighbour did. All but the first five close one circuit only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A fault in the link's own handshake.
    Link(Fault),
    /// The handshake was not done in time.
    HandshakeTimeout,
    /// Too many links of one address whose handshake is not done.
    TooManyHalfOpen,
    /// The relay that we reached is not the one that we wanted.
    WrongIdentity,
    /// A cell for a circuit that bears no circuit ID.
    NoCircuit,
    /// A variable-length cell that is too long.
    TooLong,
    /// A circuit ID that is in use, or not the neighbour's to choose.
    CircuitId,
    /// A handshake for a new circuit that is refused.
    Handshake(Refused),
    /// More RELAY_EARLY cells than are allowed, or one towards the client.
    RelayEarly,
    /// A cell that no layer recognises.
    Unrecognised,
    /// A neighbour who makes us answer, and does not read.
    Deaf,
    /// A relay message that cannot be read, or may not come at this point.
    Message,
    /// EXTEND to ourselves, to where the circuit comes from, to a place that is not allowed, or not
    /// in RELAY_EARLY.
    Extend,
    /// A SENDME that is not owed or bears a wrong tag.
    Sendme,
    /// More cells than any window allows.
    Flood,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Violation::Link(fault) => {
                return write!(f, "a fault in the link's handshake: {fault}");
            }
            Violation::Handshake(refused) => return write!(f, "{refused}"),
            Violation::HandshakeTimeout => "a link's handshake that was not done in time",
            Violation::TooManyHalfOpen => "too many half-open links from one address",
            Violation::WrongIdentity => "a relay that is not the one that was wanted",
            Violation::NoCircuit => "a cell without a circuit",
            Violation::TooLong => "a cell that is too long",
            Violation::CircuitId => "a circuit ID that is in use or not the neighbour's to choose",
            Violation::RelayEarly => "a RELAY_EARLY cell where none is allowed",
            Violation::Deaf => "answers that were asked for and not read",
            Violation::Unrecognised => "a relay cell that nobody recognises",
            Violation::Message => "a relay message that cannot be read or is out of place",
            Violation::Extend => "a circuit that may not be extended that way",
            Violation::Sendme => "a SENDME that is not owed",
            Violation::Flood => "more cells than any window allows",
        };
        f.write_str(text)
    }
}
