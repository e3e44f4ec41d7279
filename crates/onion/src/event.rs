//! What a core tells the person who runs it.

use std::fmt;
use std::net::SocketAddr;

use crate::channel::Fault;
use crate::channels::LinkId;
use crate::conflux::ConfluxFault;
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
        /// The neighbour, as far as it is known.
        neighbour: Neighbour,
        /// What it was.
        violation: Violation,
    },
    /// The memory for cells is full: the circuit whose cells waited longest was closed.
    OutOfMemory,
}

/// The relay at the other end of a link. Both are `None` for a client, which stays nameless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// The RSA identity that it proved, or else the one that we dialled.
    pub rsa: Option<[u8; 20]>,
    /// The first OR address of the relay that we dialled.
    pub address: Option<SocketAddr>,
}

/// What a neighbour did that no honest one does, by what it costs: its link, or one circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The link is closed, and all that is on it.
    Link(LinkFault),
    /// One circuit is closed; the link stays.
    Circuit(CircuitFault),
}

/// A fault of a whole link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFault {
    /// A fault in what carries the link.
    Carrier(CarrierFault),
    /// A fault in the link's own handshake.
    Handshake(Fault),
    /// The handshake was not done in time.
    HandshakeTimeout,
    /// Cells may be lost on it, or overtake each other.
    NotWhole,
    /// Too many links of one address whose handshake is not done.
    TooManyHalfOpen,
    /// The relay that we reached is not the one that we wanted.
    WrongIdentity,
    /// A cell for a circuit that bears no circuit ID.
    NoCircuit,
    /// A variable-length cell that is too long.
    TooLong,
    /// A neighbour who makes us answer, and does not read.
    Deaf,
}

/// A fault in what carries a link: TLS records or QUIC streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierFault {
    /// A record that does not open: changed, doubled or left out.
    Unopened,
    /// A record of another length than both have agreed on.
    Length,
    /// New keys again and again, with no data between them.
    KeyUpdates,
    /// Another record that must not come.
    Record,
    /// What a QUIC link's streams must not carry.
    Stream,
}

/// A fault of one circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitFault {
    /// A circuit ID that is in use, or not the neighbour's to choose.
    CircuitId,
    /// A handshake for a new circuit that is refused.
    Handshake(Refused),
    /// More RELAY_EARLY cells than are allowed, or one towards the client.
    RelayEarly,
    /// A cell that no layer recognises.
    Unrecognised,
    /// A relay message that cannot be read, or may not come at this point.
    Message,
    /// EXTEND to ourselves, to where the circuit comes from, to a place that is not allowed, or not
    /// in RELAY_EARLY.
    Extend,
    /// A SENDME that is not owed.
    Sendme,
    /// A SENDME that bears the tag of another cell than the one that it acknowledges.
    SendmeTag,
    /// A SENDME without a tag (version 0), where the consensus wants one.
    SendmeBare,
    /// A SENDME that cannot be read, or of a version that nobody knows.
    SendmeVersion,
    /// More cells than any window allows.
    Flood,
    /// What a set of several circuits does not allow.
    Conflux(ConfluxFault),
}

impl From<ConfluxFault> for CircuitFault {
    fn from(fault: ConfluxFault) -> CircuitFault {
        CircuitFault::Conflux(fault)
    }
}

impl From<LinkFault> for Violation {
    fn from(fault: LinkFault) -> Violation {
        Violation::Link(fault)
    }
}

impl From<CircuitFault> for Violation {
    fn from(fault: CircuitFault) -> Violation {
        Violation::Circuit(fault)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Link(fault) => fault.fmt(f),
            Violation::Circuit(fault) => fault.fmt(f),
        }
    }
}

impl fmt::Display for LinkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkFault::Carrier(fault) => return fault.fmt(f),
            LinkFault::Handshake(fault) => {
                return write!(f, "a fault in the link's handshake: {fault}");
            }
            LinkFault::HandshakeTimeout => "a link's handshake that was not completed in time",
            LinkFault::NotWhole => "a link that may lose or reorder cells",
            LinkFault::TooManyHalfOpen => "too many half-open links from one address",
            LinkFault::WrongIdentity => "a relay with another identity than expected",
            LinkFault::NoCircuit => "a cell without a circuit",
            LinkFault::TooLong => "a cell that is too long",
            LinkFault::Deaf => "a neighbour that requests answers and does not read them",
        })
    }
}

impl fmt::Display for CarrierFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CarrierFault::Unopened => "a TLS record that cannot be decrypted",
            CarrierFault::Length => "a TLS record of another length than agreed",
            CarrierFault::KeyUpdates => "repeated changes of a link's keys without data in between",
            CarrierFault::Record => "a TLS record that is not allowed there",
            CarrierFault::Stream => "a QUIC stream that breaks the link's protocol",
        })
    }
}

impl fmt::Display for CircuitFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CircuitFault::Handshake(refused) => return write!(f, "{refused}"),
            CircuitFault::Conflux(fault) => return write!(f, "{fault}"),
            CircuitFault::CircuitId => {
                "a circuit ID that is in use or not the neighbour's to choose"
            }
            CircuitFault::RelayEarly => "a RELAY_EARLY cell where none is allowed",
            CircuitFault::Unrecognised => "a relay cell that belongs to no hop of its circuit",
            CircuitFault::Message => {
                "a relay message that is unreadable or not allowed at this point"
            }
            CircuitFault::Extend => "a circuit that may not be extended that way",
            CircuitFault::Sendme => "an unexpected SENDME (acknowledgement)",
            CircuitFault::SendmeTag => "a SENDME with the tag of another cell",
            CircuitFault::SendmeBare => {
                "a SENDME of version 0, which the consensus does not allow \
                 (sendme_accept_min_version)"
            }
            CircuitFault::SendmeVersion => "a SENDME of an unknown version",
            CircuitFault::Flood => "more cells than the congestion window allows",
        })
    }
}
