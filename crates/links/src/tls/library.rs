//! The part of a connection that the TLS library `rustls` handles: the handshake, and all of TLS
//! 1.2.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{Connection, Error, ProtocolVersion};

use super::keys::{Cipher, HEADER};
use super::records::Handover;
use super::secrets::SecretKeeper;

/// A connection of the TLS library `rustls`, and the object that stores the connection's secrets.
pub(super) struct Library {
    connection: Connection,
    keeper: Arc<SecretKeeper>,
    records: RecordReader,
    /// Number of bytes of the peer's stream that `rustls` has read.
    read: u64,
}

impl Library {
    /// Wraps `connection`. `keeper` is the store for the secrets of this connection alone.
    pub(super) fn new(mut connection: Connection, keeper: Arc<SecretKeeper>) -> Library {
        // The channel above limits the bytes that it writes. A limit here would split a batch.
        connection.set_buffer_limit(None);
        Library { connection, keeper, records: RecordReader::default(), read: 0 }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub(super) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.connection.peer_certificates()?.first()
    }

    /// Processes bytes from the network, and appends the decrypted bytes to `plain`. Bytes after
    /// the last record of the handshake stay in `bytes`. Returns true once the peer has announced
    /// that it sends nothing more.
    ///
    /// # Errors
    /// An error of the TLS library, which ends the connection.
    pub(super) fn receive(
        &mut self,
        bytes: &mut &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        // The library must not read any records after the handshake, because the bytes that it has
        // read cannot be recovered.
        let count = match self.is_handshaking() {
            true => self.records.within(bytes),
            false => bytes.len(),
        };
        let (mut taken, rest) = bytes.split_at(count);
        *bytes = rest;
        self.read += count as u64;
        while !taken.is_empty() {
            let read = self.connection.read_tls(&mut taken);
            if read.map_err(|error| Error::General(error.to_string()))? == 0 {
                break;
            }
            if self.process(plain)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn process(&mut self, plain: &mut Vec<u8>) -> Result<bool, Error> {
        let io = self.connection.process_new_packets()?;
        let before = plain.len();
        plain.resize(before + io.plaintext_bytes_to_read(), 0);
        self.connection
            .reader()
            .read_exact(&mut plain[before..])
            .expect("the library has reported this number of bytes");
        Ok(io.peer_has_closed())
    }

    pub(super) fn write(&mut self, plain: &[u8]) {
        let written = self.connection.writer().write_all(plain);
        written.expect("writing to a writer without a limit does not fail");
    }

    pub(super) fn transmit(&mut self, into: &mut Vec<u8>) {
        while self.connection.wants_write() {
            let written = self.connection.write_tls(&mut AppendWriter(into));
            written.expect("writing to a vector does not fail");
        }
    }

    pub(super) fn close(&mut self) {
        self.connection.send_close_notify();
    }

    pub(super) fn export(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        self.connection.export_keying_material([0; 32], label, Some(context)).ok()
    }

    /// Returns true if the handshake is done and has negotiated TLS 1.3.
    pub(super) fn can_hand_over(&self) -> bool {
        let version = self.connection.protocol_version();
        !self.is_handshaking() && version == Some(ProtocolVersion::TLSv1_3)
    }

    /// Ends the use of `rustls` for the connection, and returns the state that this crate's record
    /// layer needs. Returns `None` if `rustls` has no secrets for us, or if this crate does not
    /// support the cipher suite. The settings of [`Context`](super::Context) exclude such suites.
    pub(super) fn hand_over(mut self) -> Option<Handover> {
        let mut out = Vec::new();
        self.transmit(&mut out);
        let cipher = Cipher::of(self.connection.negotiated_cipher_suite()?)?;
        let is_client = matches!(self.connection, Connection::Client(_));
        let secrets = self.keeper.take()?;
        let extracted = self.connection.dangerous_extract_secrets().ok()?;
        let (sent, received) = (extracted.tx.0, extracted.rx.0);
        Some(Handover { secrets, cipher, is_client, sent, received, read: self.read, out })
    }
}

/// A reader of record headers, which finds the end of each record in a stream.
#[derive(Default)]
struct RecordReader {
    header: Vec<u8>,
    missing: usize,
}

impl RecordReader {
    /// Returns the number of bytes at the front of `bytes` that belong to the current record.
    /// `bytes` must follow the bytes of the last call.
    fn within(&mut self, bytes: &[u8]) -> usize {
        let of_header = match self.missing {
            0 => (HEADER - self.header.len()).min(bytes.len()),
            _ => 0,
        };
        self.header.extend_from_slice(&bytes[..of_header]);
        if let &[_, _, _, high, low] = &self.header[..] {
            self.missing = usize::from(u16::from_be_bytes([high, low]));
            self.header.clear();
        }
        let of_body = self.missing.min(bytes.len() - of_header);
        self.missing -= of_body;
        of_header + of_body
    }
}

/// A writer that appends many slices to a vector in one call. A batch of records is thus copied
/// once.
struct AppendWriter<'a>(&'a mut Vec<u8>);

impl Write for AppendWriter<'_> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_cut_at_the_ends_of_records_however_it_comes() {
        let lengths = [0usize, 1, 300, 5, 0, 70_000 % 65_536];
        let record = |length: &usize| {
            let [high, low] = (*length as u16).to_be_bytes();
            [&[22, 3, 3, high, low][..], &vec![9; *length]].concat()
        };
        let stream: Vec<u8> = lengths.iter().flat_map(record).collect();
        for piece in [1, 2, 4, 5, 6, 7, 100, stream.len()] {
            let (mut cutter, mut at, mut ends) = (RecordReader::default(), 0, Vec::new());
            while at < stream.len() {
                let count = cutter.within(&stream[at..stream.len().min(at + piece)]);
                assert!(count > 0, "bytes are taken");
                at += count;
                if cutter.missing == 0 && cutter.header.is_empty() {
                    ends.push(at);
                }
            }
            let mut end = 0;
            let wanted: Vec<usize> = lengths
                .iter()
                .map(|n| {
                    end += HEADER + n;
                    end
                })
                .collect();
            assert_eq!(ends, wanted, "pieces of {piece}");
        }
    }
}
