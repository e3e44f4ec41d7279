//! Events that a core reports to its operator.

use std::fmt;
use std::net::SocketAddr;

use crate::channel::Fault;
use crate::channels::LinkId;
use crate::conflux::ConfluxFault;
use crate::handshake::Refused;
use crate::wire::link::Identity;

/// An event to report in a log. It contains no payload, no destinations and no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A link's handshake is complete.
    LinkOpen {
        /// The link.
        link: LinkId,
        /// Proved identity of the neighbour; `None` for a client.
        identity: Option<Identity>,
        /// The neighbour's clock minus ours in seconds; `None` if it sent no time.
        skew: Option<i64>,
        /// True if we opened the link.
        dialled: bool,
    },
    /// A neighbour violated the protocol.
    Violation {
        /// The link on which the violation arrived.
        link: LinkId,
        /// The neighbour, as far as it is known.
        neighbour: Neighbour,
        /// The violation.
        violation: Violation,
    },
    /// The memory for cells is full: the circuit whose cells waited longest was closed.
    OutOfMemory,
}

/// The relay at the other end of a link. Both fields are `None` for a client, which stays
/// anonymous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// The RSA identity that the neighbour proved, or else the dialled identity.
    pub rsa: Option<[u8; 20]>,
    /// First OR address of the relay that we dialled.
    pub address: Option<SocketAddr>,
}

/// A neighbour's violation of the protocol. The variants differ in what is closed: the link, or one
/// circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The link is closed, with all its circuits.
    Link(LinkFault),
    /// One circuit is closed; the link stays.
    Circuit(CircuitFault),
}

/// A fault of a whole link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFault {
    /// A fault in the link's carrier.
    Carrier(CarrierFault),
    /// A fault in the link's own handshake.
    Handshake(Fault),
    /// The handshake was not complete in time.
    HandshakeTimeout,
    /// A new link that may lose or reorder cells, which we do not accept.
    NotWhole,
    /// Too many links from one address with an incomplete handshake.
    TooManyHalfOpen,
    /// The relay that we reached is not the intended one.
    WrongIdentity,
    /// A cell that requires a circuit ID, but has the ID 0.
    NoCircuit,
    /// A variable-length cell that is too long.
    TooLong,
    /// The neighbour makes us send answers and does not read them.
    Deaf,
}

/// A fault in a link's carrier: TLS records or QUIC streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierFault {
    /// A record that cannot be decrypted, because one was changed, repeated or left out.
    Unopened,
    /// A record whose length differs from the agreed length.
    Length,
    /// Repeated key updates without data between them.
    KeyUpdates,
    /// A record of a type that is not allowed here.
    Record,
    /// Invalid content of a QUIC link's streams.
    Stream,
}

/// A fault of one circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitFault {
    /// A circuit ID that is in use, or not the neighbour's to choose.
    CircuitId,
    /// A handshake for a new circuit that was refused.
    Handshake(Refused),
    /// More RELAY_EARLY cells than are allowed, or a RELAY_EARLY cell towards the client.
    RelayEarly,
    /// A cell that no layer of encryption recognises.
    Unrecognised,
    /// A lossy cell that no hop recognises, or a hop other than its recipient. An end or a relay of
    /// the circuit has changed or forged it.
    Garbage,
    /// A relay message that is malformed, or not allowed at this point.
    Message,
    /// EXTEND to ourselves, to the circuit's previous relay, to a forbidden address, or not in
    /// RELAY_EARLY.
    Extend,
    /// An unexpected SENDME.
    Sendme,
    /// A SENDME whose tag differs from that of the acknowledged cell.
    SendmeTag,
    /// A SENDME without a tag (version 0), although the consensus requires a tag.
    SendmeBare,
    /// A SENDME that is malformed, or of an unknown version.
    SendmeVersion,
    /// More cells than any window allows.
    Flood,
    /// A violation of conflux (proposal 329).
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
            LinkFault::NotWhole => {
                "a link that may lose or reorder cells, which is not allowed here"
            }
            LinkFault::TooManyHalfOpen => "too many half-open links from one address",
            LinkFault::WrongIdentity => "a relay with another identity than expected",
            LinkFault::NoCircuit => "a cell that needs a circuit, but has the circuit ID 0",
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
                "a circuit ID that is in use, or that the neighbour may not choose"
            }
            CircuitFault::RelayEarly => "a RELAY_EARLY cell where none is allowed",
            CircuitFault::Unrecognised => "a relay cell that is for no relay (hop) of its circuit",
            CircuitFault::Garbage => {
                "a lossy cell (cell in a datagram) that was not encrypted by the other end of \
                 its circuit"
            }
            CircuitFault::Message => {
                "a relay message that is unreadable or not allowed at this point"
            }
            CircuitFault::Extend => "a request to extend a circuit in a way that is not allowed",
            CircuitFault::Sendme => "an unexpected SENDME (acknowledgement)",
            CircuitFault::SendmeTag => {
                "a SENDME (acknowledgement) whose tag belongs to another cell"
            }
            CircuitFault::SendmeBare => {
                "a SENDME (acknowledgement) of version 0, which the consensus does not allow \
                 (sendme_accept_min_version)"
            }
            CircuitFault::SendmeVersion => "a SENDME (acknowledgement) of an unknown version",
            CircuitFault::Flood => "more cells than the congestion window allows",
        })
    }
}
