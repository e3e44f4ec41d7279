//! TLS as Tor uses it (tor-spec, "Negotiating and initializing channels").
//!
//! Certificates prove nothing by themselves: each side presents a self-signed one, and the CERTS
//! cell, sent inside, ties its digest to the relay's identity. So the peer's certificate is
//! accepted as it is, provided that the peer holds its key; [`Link::peer_certificate`] gives it to
//! whoever checks CERTS, and [`Link::export`] the keying material that AUTHENTICATE signs (RFC
//! 5705, RFC 8446 7.5).

use std::fmt;
use std::io::{self, Read, Write};

use anabranch_multipath::Time;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConnection, Connection, ServerConnection};

use crate::{Fault, Link, Promises, State};

mod certificate;
mod context;
mod setup;
mod verify;

pub use context::Context;
pub use setup::SetupError;

/// Plain bytes in a full TLS record (RFC 8446, section 5.1).
const RECORD: usize = 16_384;
/// Room that a link keeps when it rests.
const TRICKLE: usize = 4 << 10;

/// One TLS connection, of either role, over memory.
pub struct Tls {
    connection: Connection,
    own: CertificateDer<'static>,
    arrived: Vec<u8>,
    ended: bool,
    closed: bool,
}

impl Tls {
    fn client(connection: ClientConnection, own: CertificateDer<'static>) -> Tls {
        Tls::new(connection.into(), own)
    }

    fn server(connection: ServerConnection, own: CertificateDer<'static>) -> Tls {
        Tls::new(connection.into(), own)
    }

    fn new(mut connection: Connection, own: CertificateDer<'static>) -> Tls {
        // The channel above bounds what it writes; a limit here would cut a batch in two.
        connection.set_buffer_limit(None);
        Tls { connection, own, arrived: Vec::new(), ended: false, closed: false }
    }

    /// Decrypts what is whole and keeps the plain bytes.
    fn process(&mut self) -> Result<(), Fault> {
        let outcome = self.connection.process_new_packets();
        let io = match outcome {
            Ok(io) => io,
            Err(error) => {
                self.ended = true;
                return Err(Fault::Peer(error.to_string()));
            }
        };
        let before = self.arrived.len();
        let wanted = io.plaintext_bytes_to_read();
        self.arrived.resize(before + wanted, 0);
        self.connection
            .reader()
            .read_exact(&mut self.arrived[before..])
            .expect("the library said that so many bytes are there");
        self.ended |= io.peer_has_closed();
        Ok(())
    }
}

impl Link for Tls {
    fn promises(&self) -> Promises {
        Promises { whole: true, record: RECORD }
    }

    fn state(&self) -> State {
        match (self.ended, self.connection.is_handshaking()) {
            (true, _) => State::Ended,
            (false, true) => State::Handshaking,
            (false, false) => State::Open,
        }
    }

    fn receive(&mut self, _: Time, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() && !self.ended {
            match self.connection.read_tls(&mut bytes) {
                Ok(0) => break,
                Ok(_) => self.process()?,
                Err(error) => {
                    self.ended = true;
                    return Err(Fault::Peer(error.to_string()));
                }
            }
        }
        Ok(())
    }

    /// TLS over a stream waits for nothing but bytes.
    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        self.connection.peer_certificates()?.first().map(AsRef::as_ref)
    }

    fn own_certificate(&self) -> &[u8] {
        &self.own
    }

    fn export(&self, label: &[u8], context: &[u8]) -> Result<[u8; 32], Fault> {
        self.connection
            .export_keying_material([0; 32], label, Some(context))
            .map_err(|_| Fault::Misuse("a link exports no keys before its handshake is done"))
    }

    fn read(&mut self, into: &mut Vec<u8>) -> usize {
        let count = self.arrived.len();
        into.append(&mut self.arrived);
        count
    }

    fn write(&mut self, plain: &[u8]) -> Result<(), Fault> {
        if self.closed {
            return Err(Fault::Misuse("nothing can be written to a link that was closed"));
        }
        let written = self.connection.writer().write_all(plain);
        written.expect("a writer without a limit takes everything");
        Ok(())
    }

    fn transmit(&mut self, _: Time, into: &mut Vec<u8>) -> bool {
        let before = into.len();
        while self.connection.wants_write() {
            let written = self.connection.write_tls(&mut Appended(into));
            written.expect("a vector takes everything");
        }
        into.len() > before
    }

    fn rest(&mut self) -> usize {
        // The library's own buffers shrink by themselves.
        let before = self.arrived.capacity();
        self.arrived.shrink_to(TRICKLE);
        before - self.arrived.capacity()
    }

    fn close(&mut self) {
        if !self.closed {
            self.closed = true;
            self.connection.send_close_notify();
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys and payload have no business in a log.
        out.debug_struct("Tls").field("state", &self.state()).finish_non_exhaustive()
    }
}

/// A vector that takes many slices in one call, so that a batch of records is one copy.
struct Appended<'a>(&'a mut Vec<u8>);

impl Write for Appended<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        slices.iter().for_each(|slice| self.0.extend_from_slice(slice));
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
