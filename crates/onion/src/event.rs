//! Events that a client's or relay's protocol state machine (core) reports to its operator.

use std::fmt;
use std::net::SocketAddr;

use crate::channel::Fault;
use crate::channels::LinkId;
use crate::conflux::ConfluxFault;
use crate::handshake::HandshakeError;
use crate::wire::link::Identity;

/// An event for the operator's log. It contains no payload, no destinations and no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A link's handshake is complete.
    LinkOpen {
        /// The link.
        link: LinkId,
        /// Identity that the neighbour has proved; `None` for a client.
        identity: Option<Identity>,
        /// The neighbour's clock minus ours, in seconds; `None` if the neighbour sent no time.
        skew: Option<i64>,
        /// True if we opened the link.
        dialled: bool,
    },
    /// A neighbour violated the protocol.
    Violation {
        /// The link on which the violation arrived.
        link: LinkId,
        /// The neighbour that violated the protocol, as far as it is known.
        neighbour: Neighbour,
        /// The violation.
        violation: Violation,
    },
    /// The memory for cells is full. The circuit whose cells had waited longest was closed.
    OutOfMemory,
}

/// The relay at the other end of a link. Both fields are `None` for a client, which stays
/// anonymous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// The RSA identity that the neighbour proved. If the neighbour proved none, the identity that
    /// we expected when we opened the link; `None` if there was none.
    pub rsa: Option<[u8; 20]>,
    /// First OR address of the relay; `None` if we did not open the link.
    pub address: Option<SocketAddr>,
}

/// A neighbour's violation of the protocol. The variant shows whether the whole link is closed, or
/// only one circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The link and all its circuits are closed.
    Link(LinkFault),
    /// One circuit is closed. The link stays open.
    Circuit(CircuitFault),
}

/// A violation that concerns a whole link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFault {
    /// A violation in the link's carrier, such as TLS.
    Carrier(CarrierFault),
    /// A violation in the handshake of the Tor link protocol.
    Handshake(Fault),
    /// The handshake was not complete in time.
    HandshakeTimeout,
    /// A new link whose transport may lose or reorder bytes. Such links are refused.
    NotWhole,
    /// Too many links from one address have an incomplete handshake.
    TooManyHalfOpen,
    /// The relay at the other end is not the intended one.
    WrongIdentity,
    /// A cell with the circuit ID 0, although its command requires a circuit.
    NoCircuit,
    /// A variable-length cell that is too long.
    TooLong,
    /// The neighbour makes us send answers, but does not read them.
    Deaf,
}

/// A violation in a link's carrier: in its TLS records or QUIC streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierFault {
    /// A TLS record that cannot be decrypted: a record was changed, repeated or left out.
    Unopened,
    /// A TLS record whose length differs from the agreed length.
    Length,
    /// Repeated TLS key updates without data between them.
    KeyUpdates,
    /// A TLS record of a type that is not allowed here.
    Record,
    /// Invalid content of a QUIC link's streams.
    Stream,
}

/// A violation that concerns one circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitFault {
    /// A circuit ID that is in use, or from the half of the IDs that is reserved for this end.
    CircuitId,
    /// A refused handshake for a new circuit.
    Handshake(HandshakeError),
    /// More RELAY_EARLY cells than are allowed, or a RELAY_EARLY cell that travels towards the
    /// client.
    RelayEarly,
    /// A cell that no layer of encryption recognises.
    Unrecognised,
    /// A lossy cell (sent in a datagram) that no hop or the wrong hop recognises. An end or a
    /// relay of the circuit has changed or forged it.
    Garbage,
    /// A relay message that is malformed, or not allowed at this point.
    Message,
    /// An EXTEND message that did not arrive in a RELAY_EARLY cell, or that names a forbidden
    /// target: this relay, the circuit's previous relay, or a forbidden address.
    Extend,
    /// An unexpected SENDME.
    Sendme,
    /// A SENDME whose tag differs from that of the acknowledged cell.
    SendmeTag,
    /// A SENDME without a tag (version 0), although the consensus requires a tag.
    SendmeBare,
    /// A SENDME that is malformed, or of an unknown version.
    SendmeVersion,
    /// More cells than any flow-control window allows.
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
                "a link over a connection that may lose or reorder bytes, which is not accepted"
            }
            LinkFault::TooManyHalfOpen => "too many half-open links from one address",
            LinkFault::WrongIdentity => "a relay whose identity is not the expected one",
            LinkFault::NoCircuit => "a cell that needs a circuit, but has the circuit ID 0",
            LinkFault::TooLong => "a cell that is too long",
            LinkFault::Deaf => "a neighbour that sends requests but does not read the answers",
        })
    }
}

impl fmt::Display for CarrierFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CarrierFault::Unopened => "a TLS record that cannot be decrypted",
            CarrierFault::Length => {
                "a TLS record whose length is not the fixed length that both ends agreed on"
            }
            CarrierFault::KeyUpdates => "repeated changes of a link's keys without data in between",
            CarrierFault::Record => "a TLS record of a type that is not allowed on an open link",
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
                "a circuit ID that is in use, or from the half of the IDs that is reserved for this \
                 end"
            }
            CircuitFault::RelayEarly => "a RELAY_EARLY cell where none is allowed",
            CircuitFault::Unrecognised => {
                "a relay cell that no relay (hop) of its circuit recognises"
            }
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
            CircuitFault::Flood => "more cells than flow control allows",
        })
    }
}
