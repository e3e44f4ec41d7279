//! OR links: what carries cells between two neighbours, as cores without sockets.
//!
//! A link takes plain bytes from the channel above and gives bytes for the network below, and the
//! other way round. It is told the time, and says when it wants to be called. It promises certain
//! things of what it carries ([`Promises`]): the channel above refuses a link on which cells may
//! be lost or overtake each other, unless it knows how to number them.
//!
//! * [`tls`]: TLS 1.2 and 1.3 over a byte stream, as C tor speaks it: ordered and reliable.
//! * [`quic`]: QUIC, a stream for each lane: ordered within a lane, and no lane waits for another.
//! * [`utls`]: what makes an unordered link of it, whose records are opened before their turn.
//!
//! Links are exempt from two rules of our cores: the TLS library draws its own randomness and reads
//! a clock. A simulation puts a modelled record pipe in a link's place.
//!
//! The design, with its reasons: `docs/design/links.md`.

use std::fmt;

use anabranch_multipath::Time;
use rustls::PeerMisbehaved;

pub mod quic;
pub mod tls;
pub mod utls;

pub use tls::{Context, Tls};
pub use utls::EarlyCounts;

/// What a link promises of the bytes that it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// They arrive in the order in which they were written, and all of them, or the link ends. Of a
    /// link that does not promise it arrive whole records, each of `record` bytes.
    pub whole: bool,
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

/// What a peer did that it must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFault {
    /// Which kind of fault it is.
    pub kind: PeerFaultKind,
    /// What it is, in the words of whoever noticed it: the library's, most often.
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
    /// What the TLS library found.
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

/// A link to one neighbour.
///
/// The owner hands it what the network brought ([`Link::receive`]), takes what came out of it
/// ([`Link::read`]), writes whole cells ([`Link::write`]) and sends what [`Link::transmit`] gives.
/// After `receive` there may be something to transmit even if nothing was written: a handshake's
/// answer, or the alert that tells the peer of its fault.
pub trait Link {
    /// What the layer above may rely on.
    fn promises(&self) -> Promises;

    /// Where the link is in its life.
    fn state(&self) -> State;

    /// Takes bytes from the network: any piece of a stream, or one whole datagram.
    ///
    /// # Errors
    /// [`Fault::Peer`]: the link is over. What [`Link::transmit`] still gives is to be sent first.
    fn receive(&mut self, now: Time, bytes: &[u8]) -> Result<(), Fault>;

    /// Takes bytes of the peer's stream, from this offset on, that a tap shows before the stream
    /// brings them. They may be changed, forged or doubled, and come by [`Link::receive`] all the
    /// same. An ordered link has no use for them.
    fn receive_early(&mut self, _now: Time, _offset: u64, _bytes: &[u8]) {}

    /// Whether [`Link::unorder`] can be called once the link is open.
    fn can_be_unordered(&self) -> bool {
        false
    }

    /// From now on, both ways, each record has so many bytes of content: records that
    /// [`Link::receive_early`] completes arrive before others that were sent first.
    ///
    /// # Errors
    /// [`Fault::Misuse`] if the link cannot.
    fn unorder(&mut self, _now: Time, _content: usize) -> Result<(), Fault> {
        Err(Fault::Misuse("such a link stays in order"))
    }

    /// How many records were opened before their turn, if any may be.
    fn early_counts(&self) -> Option<EarlyCounts> {
        None
    }

    /// When [`Link::transmit`] is to be called though nothing came and nothing was written.
    fn next_timeout(&self) -> Option<Time>;

    /// Appends all plain bytes that have arrived, and returns how many there were.
    fn read(&mut self, into: &mut Vec<u8>) -> usize;

    /// Takes plain bytes for the peer. Many cells in one call share records.
    ///
    /// # Errors
    /// [`Fault::Misuse`] after [`Link::close`].
    fn write(&mut self, plain: &[u8]) -> Result<(), Fault>;

    /// Appends what is to be sent now (of a datagram link: one datagram); false if there is
    /// nothing.
    fn transmit(&mut self, now: Time, into: &mut Vec<u8>) -> bool;

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

    /// Little has come and gone of late: gives back the room that bursts took. How many bytes that
    /// was.
    fn rest(&mut self) -> usize;

    /// Says goodbye: the last that [`Link::transmit`] gives tells the peer that no more will come.
    fn close(&mut self);
}
