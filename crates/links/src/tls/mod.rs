//! TLS as Tor uses it (tor-spec, "Negotiating and initializing channels").
//!
//! Certificates prove nothing by themselves. Each side presents a self-signed certificate. The
//! CERTS cell, sent through the link, binds the certificate's digest to the relay's identity. Any
//! certificate is therefore accepted, provided that the peer holds the certificate's key.
//! [`Link::peer_certificate`] returns the certificate to the code that checks CERTS.
//! [`Link::export`] returns the keying material that AUTHENTICATE signs (RFC 5705, RFC 8446
//! section 7.5).
//!
//! The TLS library `rustls` does the handshake (module `library`), and all of TLS 1.2. After a TLS
//! 1.3 handshake this crate uses its own record layer. `secrets` receives the connection's secrets
//! from `rustls` and derives `keys` from them. A `sealer` and an `opener` handle one direction
//! each. `messages` checks which messages may arrive between data, and `records` combines these
//! parts.

use std::fmt;
use std::sync::Arc;

use anabranch_multipath::Time;
use rustls::Connection;
use rustls::pki_types::CertificateDer;

use crate::utls::EarlyCounts;
use crate::{
    EarlyRecords, Fault, Link, PeerFault, PeerFaultKind, Promises, State, StreamFamily, StreamLink,
};

mod agreed;
mod certificate;
pub(crate) mod context;
pub(crate) mod keys;
mod library;
pub(crate) mod messages;
mod opener;
mod records;
mod sealer;
mod secrets;
pub(crate) mod setup;
mod verify;

use library::Library;
use records::Records;
use sealer::RECORD;
use secrets::SecretKeeper;

pub use agreed::AgreedSecrets;
pub use context::Context;
pub use keys::HEADER;
pub use sealer::SENT;
pub use setup::SetupError;

/// TLS, a type of link over a byte stream.
pub const FAMILY: StreamFamily = StreamFamily {
    name: "tls",
    connect: |context| Ok(Box::new(context.connect()?)),
    accept: |context| Ok(Box::new(context.accept()?)),
};

/// Minimum number of content bytes in a record if all records have the same size. It is the length
/// of a KeyUpdate message, which must fit into one record.
const LEAST: usize = 5;
/// Maximum total size of the buffers that a link keeps after [`Link::shrink_buffers`], in bytes.
const IDLE_CAPACITY: usize = 4 << 10;

/// A TLS link, as client or server.
pub struct Tls {
    phase: Phase,
    own: CertificateDer<'static>,
    peers: Option<CertificateDer<'static>>,
    /// Plain bytes that were written before the handshake was done. They are sent after it.
    waiting: Vec<u8>,
    arrived: Vec<u8>,
    ended: bool,
    closed: bool,
    /// Bytes of content in each record that we send; `None` if their sizes vary.
    fixed: Option<usize>,
}

/// Phase of a connection, with the code that processes its records in this phase.
enum Phase {
    Library(Box<Library>),
    Records(Box<Records>),
    /// No code processes records, because the TLS library did not release the secrets. The
    /// connection cannot continue.
    Lost,
}

impl Tls {
    /// Wraps `connection`. `keeper` is the store for the secrets of this connection alone.
    fn new(
        connection: impl Into<Connection>,
        keeper: Arc<SecretKeeper>,
        own: CertificateDer<'static>,
    ) -> Tls {
        Tls::of(Phase::Library(Box::new(Library::new(connection.into(), keeper))), own)
    }

    fn of(phase: Phase, own: CertificateDer<'static>) -> Tls {
        Tls {
            phase,
            own,
            peers: None,
            waiting: Vec::new(),
            arrived: Vec::new(),
            ended: false,
            closed: false,
            fixed: None,
        }
    }

    /// Changes our keys now, and asks the peer to change its keys (RFC 8446, section 4.6.3). Keys
    /// also change automatically before they have encrypted their maximum number of records.
    ///
    /// # Errors
    /// [`Fault::Misuse`] unless the link is open, uses TLS 1.3, and was not closed by us.
    pub fn refresh_keys(&mut self) -> Result<(), Fault> {
        match &mut self.phase {
            Phase::Records(records) if !self.closed && !self.ended => {
                records.refresh();
                Ok(())
            }
            _ => Err(Fault::Misuse(
                "the keys of this link cannot be changed: the link is closed or does not use TLS \
                 1.3",
            )),
        }
    }

    /// Fixes the length of the content of all records that we send from now on, of any type, to
    /// `content` bytes (5 to 16,384). The peer can then decrypt a record even if earlier ones have
    /// not arrived. The length of each write must then be a multiple of `content` bytes.
    ///
    /// # Errors
    /// [`Fault::Misuse`] under the conditions of [`Tls::refresh_keys`], and if `content` is out of
    /// range.
    pub fn send_fixed(&mut self, content: usize) -> Result<(), Fault> {
        let records = self.records_of(content)?;
        records.send_fixed(content);
        self.fixed = Some(content);
        Ok(())
    }

    /// Expects exactly `content` bytes of content in each later record of the peer, as agreed with
    /// the peer. Records that [`EarlyRecords::receive_early`] completes are then decrypted even if
    /// earlier ones have not arrived, and the link is no longer [in order](Promises::in_order). All
    /// earlier records must have been read.
    ///
    /// # Errors
    /// [`Fault::Misuse`] under the conditions of [`Tls::send_fixed`].
    pub fn open_early(&mut self, now: Time, content: usize) -> Result<(), Fault> {
        self.records_of(content)?.open_early(now, content);
        Ok(())
    }

    /// Returns the record layer of an open link, after checking that `content` is a valid length.
    fn records_of(&mut self, content: usize) -> Result<&mut Records, Fault> {
        match &mut self.phase {
            Phase::Records(records) if !self.closed && !self.ended => {
                match (LEAST..=RECORD).contains(&content) {
                    true => Ok(records),
                    false => {
                        Err(Fault::Misuse("TLS records cannot have the requested fixed length"))
                    }
                }
            }
            _ => Err(Fault::Misuse("only an open TLS 1.3 link can have records of one size")),
        }
    }

    /// Marks the link as ended because of `fault`.
    fn end(&mut self, fault: PeerFault) -> Fault {
        self.ended = true;
        Fault::Peer(fault)
    }

    /// Sends the bytes that were written before the handshake was done. With TLS 1.3, this crate's
    /// record layer takes over from the TLS library.
    fn open(&mut self) -> Result<(), Fault> {
        let Phase::Library(library) = &mut self.phase else { return Ok(()) };
        self.peers = library.peer_certificate().cloned();
        // If a close notification was sent before the handshake was done, the library must send it
        // as the last record.
        if library.can_hand_over() && !self.closed {
            let Phase::Library(library) = std::mem::replace(&mut self.phase, Phase::Lost) else {
                return Ok(());
            };
            let Some(handover) = library.hand_over() else {
                let what = "the handshake produced no keys".to_owned();
                return Err(self.end(PeerFault { kind: PeerFaultKind::Other, what }));
            };
            self.phase = Phase::Records(Box::new(Records::new(handover)));
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.pass(&waiting);
        Ok(())
    }

    fn pass(&mut self, plain: &[u8]) {
        match &mut self.phase {
            Phase::Library(library) if !self.closed => library.write(plain),
            Phase::Records(records) => records.write(plain),
            Phase::Library(_) | Phase::Lost => {}
        }
    }
}

impl Link for Tls {
    fn promises(&self) -> Promises {
        let early = match &self.phase {
            Phase::Records(records) => records.early(),
            _ => None,
        };
        let in_order = early.is_none();
        Promises { in_order, stream_per_circuit: false, record: self.fixed.unwrap_or(SENT) }
    }

    fn state(&self) -> State {
        match &self.phase {
            _ if self.ended => State::Ended,
            Phase::Library(library) if library.is_handshaking() => State::Handshaking,
            Phase::Library(_) | Phase::Records(_) => State::Open,
            Phase::Lost => State::Ended,
        }
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        self.peers.as_deref()
    }

    fn own_certificate(&self) -> &[u8] {
        &self.own
    }

    fn export(&self, label: &[u8], context: &[u8]) -> Result<[u8; 32], Fault> {
        let exported = match &self.phase {
            Phase::Library(library) => library.export(label, context),
            Phase::Records(records) => records.export(label, context),
            Phase::Lost => None,
        };
        exported.ok_or(Fault::Misuse(
            "a link's keys cannot be exported before its handshake is \
                                      done",
        ))
    }

    fn read(&mut self, into: &mut Vec<u8>) -> Result<usize, Fault> {
        let count = self.arrived.len();
        // Short data is copied. Otherwise a link with little data would keep the buffer of a link
        // with much data.
        match into.is_empty() && count > IDLE_CAPACITY {
            true => std::mem::swap(into, &mut self.arrived),
            false => into.append(&mut self.arrived),
        }
        Ok(count)
    }

    fn write(&mut self, plain: &[u8]) -> Result<(), Fault> {
        if self.closed {
            return Err(Fault::Misuse("nothing can be written to a link that was closed"));
        }
        if self.fixed.is_some_and(|content| !plain.len().is_multiple_of(content)) {
            return Err(Fault::Misuse(
                "a link with records of a fixed length refused data that does not fill whole \
                 records",
            ));
        }
        match self.state() {
            State::Handshaking => self.waiting.extend_from_slice(plain),
            State::Open | State::Ended => self.pass(plain),
        }
        Ok(())
    }

    fn shrink_buffers(&mut self) -> usize {
        let before = self.arrived.capacity();
        self.arrived.shrink_to(IDLE_CAPACITY);
        let given = before - self.arrived.capacity();
        match &mut self.phase {
            Phase::Records(records) => given + records.shrink_buffers(),
            // The library's own buffers shrink by themselves.
            Phase::Library(_) | Phase::Lost => given,
        }
    }

    fn close(&mut self) {
        if !self.closed {
            self.closed = true;
            match &mut self.phase {
                Phase::Library(library) => library.close(),
                Phase::Records(records) => records.close(),
                Phase::Lost => {}
            }
        }
    }
}

impl StreamLink for Tls {
    fn receive(&mut self, _: Time, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() && !self.ended {
            let handshaking = self.state() == State::Handshaking;
            let outcome = match &mut self.phase {
                Phase::Library(library) => {
                    let received = library.receive(&mut bytes, &mut self.arrived);
                    received.map_err(|error| PeerFault::of(&error))
                }
                Phase::Records(records) => {
                    records.receive(std::mem::take(&mut bytes), &mut self.arrived)
                }
                Phase::Lost => Ok(true),
            };
            self.ended = outcome.map_err(|fault| self.end(fault))?;
            if handshaking && self.state() != State::Handshaking {
                self.open()?;
            }
        }
        Ok(())
    }

    fn transmit(&mut self, _: Time, into: &mut Vec<u8>) -> bool {
        let before = into.len();
        match &mut self.phase {
            Phase::Library(library) => library.transmit(into),
            Phase::Records(records) => records.transmit(into),
            Phase::Lost => {}
        }
        into.len() > before
    }

    /// Returns `None`: TLS over a stream has no timers.
    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn early_records(&self) -> Option<&dyn EarlyRecords> {
        Some(self)
    }

    fn early_records_mut(&mut self) -> Option<&mut dyn EarlyRecords> {
        Some(self)
    }
}

impl EarlyRecords for Tls {
    fn can_be_unordered(&self) -> bool {
        matches!(self.phase, Phase::Records(_)) && !self.ended && !self.closed
    }

    fn unorder(&mut self, now: Time, content: usize) -> Result<(), Fault> {
        self.send_fixed(content)?;
        self.open_early(now, content)
    }

    fn early_counts(&self) -> Option<EarlyCounts> {
        match &self.phase {
            Phase::Records(records) => records.early().map(|early| early.counts()),
            _ => None,
        }
    }

    fn receive_early(&mut self, now: Time, offset: u64, bytes: &[u8]) {
        if let Phase::Records(records) = &mut self.phase
            && !self.ended
        {
            records.receive_early(now, (offset, bytes), &mut self.arrived);
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys and payload must not appear in logs.
        out.debug_struct("Tls").field("state", &self.state()).finish_non_exhaustive()
    }
}
