//! OR links, which carry cells between two neighbours. Each link is a core: a state machine
//! without I/O.
//!
//! A link turns plain bytes from the channel above it into bytes for the network, and received
//! bytes into plain bytes. The caller passes the time and asks when it must call again.
//! [`Promises`] lists what a link guarantees for its cells. A channel refuses a link that may lose
//! or reorder cells, unless both ends number their cells.
//!
//! [`Link`] is the interface that all types of links implement. A link over a byte stream is a
//! [`StreamLink`], and [`StreamFamily`] describes a type of such links. Links over datagrams share
//! an endpoint.
//!
//! * [`tls`]: TLS 1.2 and 1.3 over a byte stream, as in C tor. Cells arrive in order and reliably.
//! * [`quic`]: QUIC with one stream per circuit: cells are ordered within a circuit, and no circuit
//!   waits for another.
//! * [`utls`]: an extension that makes a TLS link unordered. Its records are decrypted even if
//!   they arrive out of order.
//!
//! Links break two rules of this project's cores: the TLS library draws its own random numbers and
//! reads a clock. A simulation therefore uses a modelled pipe of records instead of a link.
//!
//! The design and its reasons: `docs/design/links.md`.

use std::fmt;

use anabranch_multipath::Time;
use rustls::PeerMisbehaved;

pub mod quic;
pub mod tls;
pub mod utls;

pub use tls::{Context, Tls};
pub use utls::EarlyCounts;

/// Guarantees of a link for the bytes that it transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// True if all bytes arrive in the order in which they were written, as long as the link is
    /// open. If false, records of `record` bytes arrive complete, but in any order.
    pub in_order: bool,
    /// True if each circuit has a stream of its own: bytes are ordered only within a circuit, so
    /// that no circuit waits for another. If false, all bytes share one order.
    pub stream_per_circuit: bool,
    /// Maximum number of plain bytes in one record or datagram. Writes of about this size have the
    /// least overhead.
    pub record: usize,
}

/// Life cycle state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The two ends are agreeing on keys. Bytes that are written in the meantime are queued.
    Handshaking,
    /// Data can be sent and received.
    Open,
    /// The peer closed the link or broke its protocol. Nothing more arrives.
    Ended,
}

/// Reason why a link can no longer be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer broke the link's protocol.
    Peer(PeerFault),
    /// The caller requested something that the link cannot do in its present state.
    Misuse(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Peer(fault) => write!(out, "the peer broke the link's protocol: {}", fault.what),
            Fault::Misuse(what) => out.write_str(what),
        }
    }
}

impl std::error::Error for Fault {}

/// A violation of the link's protocol by the peer, or an alert that the peer sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFault {
    /// Kind of the fault.
    pub kind: PeerFaultKind,
    /// Description of the fault from the code that detected it, usually the TLS library `rustls`
    /// or the QUIC library `quinn-proto`.
    pub what: String,
}

/// Kinds of faults, which are counted or reported separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFaultKind {
    /// An alert from the peer, which received something invalid. Either this end sent the invalid
    /// data, or somebody on the path changed it.
    Alert,
    /// A record that could not be decrypted. It or an earlier record was changed, duplicated or
    /// dropped on the path.
    Unopened,
    /// A record whose length differs from the fixed length on which both ends agreed.
    Length,
    /// Too many key changes by the peer without data in between (TLS KeyUpdate).
    KeyUpdates,
    /// Another violation of the protocol by the peer.
    Other,
}

impl PeerFault {
    /// Returns the fault for an error of the TLS library.
    pub(crate) fn of(error: &rustls::Error) -> PeerFault {
        let kind = match error {
            rustls::Error::AlertReceived(_) => PeerFaultKind::Alert,
            rustls::Error::DecryptError => PeerFaultKind::Unopened,
            rustls::Error::PeerMisbehaved(PeerMisbehaved::TooManyKeyUpdateRequests) => {
                PeerFaultKind::KeyUpdates
            }
            _ => PeerFaultKind::Other,
        };
        PeerFault { kind, what: error.to_string() }
    }
}

/// A link to one neighbouring relay or client, with the operations that all types of links have.
///
/// The link's owner, the code that uses it, gets received bytes with [`Link::read`] and writes
/// whole cells with [`Link::write`].
pub trait Link {
    /// Returns the guarantees that the layer above may rely on.
    fn promises(&self) -> Promises;

    /// Returns the link's life cycle state.
    fn state(&self) -> State;

    /// Appends all plain bytes that have arrived to `into`, and returns their number.
    ///
    /// # Errors
    /// [`Fault::Peer`]: the link is over. Some links report faults earlier
    /// ([`StreamLink::receive`]).
    fn read(&mut self, into: &mut Vec<u8>) -> Result<usize, Fault>;

    /// Accepts plain bytes to send to the peer. Cells that are passed in one call may be sent in
    /// the same record.
    ///
    /// # Errors
    /// [`Fault::Misuse`] after [`Link::close`], and for data that this link does not accept in its
    /// present state.
    fn write(&mut self, plain: &[u8]) -> Result<(), Fault>;

    /// Returns the peer's certificate in DER once the handshake is done. Returns `None` if the
    /// peer is a client: like C tor, we do not ask clients for a certificate.
    fn peer_certificate(&self) -> Option<&[u8]>;

    /// Returns the certificate that we present as a server, in DER. The type 5 certificate in a
    /// CERTS cell contains the SHA-256 digest of this certificate.
    fn own_certificate(&self) -> &[u8];

    /// Returns 32 bytes of keying material of this connection (RFC 5705). Both sides compute the
    /// same bytes.
    ///
    /// # Errors
    /// [`Fault::Misuse`] before the handshake is done.
    fn export(&self, label: &[u8], context: &[u8]) -> Result<[u8; 32], Fault>;

    /// Releases buffers that grew in a burst of traffic, and returns the number of bytes released.
    /// The owner calls this when the link has transferred little recently.
    fn shrink_buffers(&mut self) -> usize;

    /// Closes the link, and notifies the peer that no more data follows.
    fn close(&mut self);
}

/// A link over a byte stream, such as a TCP connection.
///
/// The owner passes received network bytes to [`StreamLink::receive`] and sends the bytes that
/// [`StreamLink::transmit`] returns. After `receive` there may be bytes to transmit even if
/// nothing was written: an answer of the handshake, or the alert that reports the peer's fault.
pub trait StreamLink: Link {
    /// Processes received bytes of the stream, in pieces of any length.
    ///
    /// # Errors
    /// [`Fault::Peer`]: the link is over. The owner must first send the bytes that
    /// [`StreamLink::transmit`] still returns.
    fn receive(&mut self, now: Time, bytes: &[u8]) -> Result<(), Fault>;

    /// Appends the bytes to send now to `into`. Returns false if there are none.
    fn transmit(&mut self, now: Time, into: &mut Vec<u8>) -> bool;

    /// Returns the time at which to call [`StreamLink::transmit`] even if nothing was received or
    /// written. Returns `None` if no such call is needed.
    fn next_timeout(&self) -> Option<Time>;

    /// Returns this link with the operations of [`EarlyRecords`]. Returns `None` if the link
    /// cannot decrypt records before earlier ones have arrived.
    fn early_records(&self) -> Option<&dyn EarlyRecords> {
        None
    }

    /// Returns this link, mutable, with the operations of [`EarlyRecords`]. Returns `None` if the
    /// link cannot decrypt records before earlier ones have arrived.
    fn early_records_mut(&mut self) -> Option<&mut dyn EarlyRecords> {
        None
    }
}

/// A link that can be made unordered. An unordered link decrypts records even before earlier
/// records have arrived ([`utls`]).
pub trait EarlyRecords: StreamLink {
    /// Returns whether this link supports [`EarlyRecords::unorder`]. The caller may make the link
    /// unordered once it is open.
    fn can_be_unordered(&self) -> bool;

    /// Makes the link unordered. From now on every record, in both directions, has `content` bytes
    /// of content. Records that [`EarlyRecords::receive_early`] completes are delivered at once,
    /// even if earlier records have not arrived.
    ///
    /// # Errors
    /// [`Fault::Misuse`] if the link cannot be unordered.
    fn unorder(&mut self, now: Time, content: usize) -> Result<(), Fault>;

    /// Processes bytes that begin at `offset` in the peer's stream, before the stream delivers
    /// them. The bytes come from a tap, a capture of the connection's TCP segments ([`utls`]), and
    /// may be changed, forged or duplicated. The caller also passes the stream's own bytes to
    /// [`StreamLink::receive`]. An ordered link ignores bytes from a tap.
    fn receive_early(&mut self, now: Time, offset: u64, bytes: &[u8]);

    /// Returns how many records were decrypted before earlier records had arrived, and how many
    /// such attempts failed. Returns `None` if the link is ordered.
    fn early_counts(&self) -> Option<EarlyCounts>;
}

/// A new link, or the error that prevented it.
pub type MadeLink = Result<Box<dyn StreamLink + Send>, tls::SetupError>;

/// A type of link over a byte stream that users can choose by name.
#[derive(Debug)]
pub struct StreamFamily {
    /// Name that users enter.
    pub name: &'static str,
    /// Creates the link for a connection that we open.
    pub connect: fn(&Context) -> MadeLink,
    /// Creates the link for a connection that a peer opened.
    pub accept: fn(&Context) -> MadeLink,
}

impl PartialEq for StreamFamily {
    fn eq(&self, other: &StreamFamily) -> bool {
        self.name == other.name
    }
}

impl Eq for StreamFamily {}

impl Default for &StreamFamily {
    fn default() -> Self {
        &tls::FAMILY
    }
}

impl StreamFamily {
    /// All types of links over a byte stream. The first is the default.
    #[rustfmt::skip]
    pub const ALL: &[&StreamFamily] = &[
        &tls::FAMILY,
    ];

    /// Returns the type of link with the name `name`; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static StreamFamily> {
        StreamFamily::ALL.iter().find(|family| family.name == name).copied()
    }
}
