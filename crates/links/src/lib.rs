//! OR links, which carry cells between two neighbours, as cores without sockets.
//!
//! A link takes plain bytes from the channel above it and returns bytes for the network below it,
//! and the reverse. The caller passes the time and asks when to call again. [`Promises`] lists what
//! a link guarantees for its cells. If cells can be lost or reordered, the channel refuses the link
//! unless it can number them.
//!
//! [`Link`] is the interface that all kinds implement. A link over a byte stream is a
//! [`StreamLink`]; [`StreamFamily`] lists these. Links over datagrams share an endpoint.
//!
//! * [`tls`]: TLS 1.2 and 1.3 over a byte stream, as C tor speaks it. Ordered and reliable.
//! * [`quic`]: QUIC with one stream per lane. Cells are ordered within a lane, and no lane waits
//!   for another.
//! * [`utls`]: turns a TLS link into an unordered one, by opening records that arrive out of order.
//!
//! Links are exempt from two rules of our cores: the TLS library draws its own randomness and reads
//! a clock. A simulation replaces a link by a modelled pipe of records.
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
    /// They arrive in the order in which they were written, and all of them, or the link ends. Of a
    /// link that does not promise it arrive whole records, each of `record` bytes.
    pub whole: bool,
    /// Each lane has an order of its own, and waits for no other. Otherwise all bytes have one.
    pub lanes: bool,
    /// The most plain bytes that one record (or datagram) holds. Writes of about this size cost
    /// least.
    pub record: usize,
}

/// Where a link is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The peers agree on keys; what is written waits.
    Handshaking,
    /// Bytes flow both ways.
    Open,
    /// The peer has said its last word, or did what it must not; nothing more arrives.
    Ended,
}

/// Why a link is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer broke the link's protocol.
    Peer(PeerFault),
    /// The link was asked for what it cannot give in its present state.
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

/// Violation of the link's protocol by the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFault {
    /// Which kind of fault it is.
    pub kind: PeerFaultKind,
    /// Description by the code that noticed it: the library's, most often.
    pub what: String,
}

/// Kinds of faults: as few as there are lines about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFaultKind {
    /// It sent an alert: the fault is ours, or happened on the way.
    Alert,
    /// A record that does not open: changed, doubled or left out.
    Unopened,
    /// A record of another length than both have agreed on.
    Length,
    /// New keys again and again, with no data between them.
    KeyUpdates,
    /// Anything else.
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

/// A link to one neighbour: what all kinds of links do, however bytes of the network come to them.
///
/// The owner takes what came out of it ([`Link::read`]) and writes whole cells ([`Link::write`]).
pub trait Link {
    /// Returns the guarantees that the layer above may rely on.
    fn promises(&self) -> Promises;

    /// Where the link is in its life.
    fn state(&self) -> State;

    /// Appends all plain bytes that have arrived, and returns how many there were.
    ///
    /// # Errors
    /// [`Fault::Peer`]: the link is over. Some links find faults before ([`StreamLink::receive`]).
    fn read(&mut self, into: &mut Vec<u8>) -> Result<usize, Fault>;

    /// Takes plain bytes for the peer. Many cells in one call share records.
    ///
    /// # Errors
    /// [`Fault::Misuse`] after [`Link::close`], and for what such a link does not take, or not yet.
    fn write(&mut self, plain: &[u8]) -> Result<(), Fault>;

    /// The DER form of the peer's certificate, once the handshake is done. A client that we
    /// accepted has none: C tor asks for no certificate there either.
    fn peer_certificate(&self) -> Option<&[u8]>;

    /// The DER form of the certificate that we present as a server: a type 5 certificate in CERTS
    /// names its SHA-256 digest.
    fn own_certificate(&self) -> &[u8];

    /// Keying material of this connection (RFC 5705), 32 bytes, the same on both sides.
    ///
    /// # Errors
    /// [`Fault::Misuse`] before the handshake is done.
    fn export(&self, label: &[u8], context: &[u8]) -> Result<[u8; 32], Fault>;

    /// Gives back the room that bursts took, and returns how many bytes that was. To be called when
    /// little has come and gone of late.
    fn rest(&mut self) -> usize;

    /// Says goodbye: the last message notifies the peer that no more data follows.
    fn close(&mut self);
}

/// A link over a byte stream, such as a TCP connection.
///
/// The owner hands it what the network brought ([`StreamLink::receive`]) and sends what
/// [`StreamLink::transmit`] gives. After `receive` there may be something to transmit even if
/// nothing was written: a handshake's answer, or the alert that tells the peer of its fault.
pub trait StreamLink: Link {
    /// Takes any piece of the stream from the network.
    ///
    /// # Errors
    /// [`Fault::Peer`]: the link is over. What [`StreamLink::transmit`] still gives is to be sent
    /// first.
    fn receive(&mut self, now: Time, bytes: &[u8]) -> Result<(), Fault>;

    /// Appends what is to be sent now; false if there is nothing.
    fn transmit(&mut self, now: Time, into: &mut Vec<u8>) -> bool;

    /// When [`StreamLink::transmit`] is to be called though nothing came and nothing was written.
    fn next_timeout(&self) -> Option<Time>;

    /// The link as one whose records may be opened before their turn, if it is of such a kind.
    fn early_records(&self) -> Option<&dyn EarlyRecords> {
        None
    }

    /// The same, to be changed.
    fn early_records_mut(&mut self) -> Option<&mut dyn EarlyRecords> {
        None
    }
}

/// A link whose records can be opened before their turn.
pub trait EarlyRecords: StreamLink {
    /// Whether [`EarlyRecords::unorder`] can be called once the link is open.
    fn can_be_unordered(&self) -> bool;

    /// From now on, both ways, each record has `content` bytes of content: records that
    /// [`EarlyRecords::receive_early`] completes arrive before others that were sent first.
    ///
    /// # Errors
    /// [`Fault::Misuse`] if the link cannot.
    fn unorder(&mut self, now: Time, content: usize) -> Result<(), Fault>;

    /// Takes bytes of the peer's stream, from this offset on, that a tap shows before the stream
    /// brings them. They may be changed, forged or doubled, and come by [`StreamLink::receive`] all
    /// the same. An ordered link has no use for them.
    fn receive_early(&mut self, now: Time, offset: u64, bytes: &[u8]);

    /// How many records were opened before their turn, if any may be.
    fn early_counts(&self) -> Option<EarlyCounts>;
}

/// A new link, or why there is none.
pub type MadeLink = Result<Box<dyn StreamLink + Send>, tls::SetupError>;

/// A kind of link over a byte stream.
#[derive(Debug)]
pub struct StreamFamily {
    /// How users name it.
    pub name: &'static str,
    /// Makes a link that we open.
    pub connect: fn(&Context) -> MadeLink,
    /// Makes a link that a peer opened.
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
    /// All kinds, the usual one first.
    #[rustfmt::skip]
    pub const ALL: &[&StreamFamily] = &[
        &tls::FAMILY,
    ];

    /// The kind of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static StreamFamily> {
        StreamFamily::ALL.iter().find(|family| family.name == name).copied()
    }
}
