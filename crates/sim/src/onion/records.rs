//! The overhead of TLS on a link, without encryption: records have the same lengths as in TLS, and
//! the handshake takes one round trip (RFC 8446, sections 2 and 5).

use anabranch_links::tls::HEADER;
/// Maximum bytes of content in the records of relays and clients.
pub(super) use anabranch_links::tls::SENT as RECORD;

use super::early::EarlyRecords;

/// Number of bytes in a record in addition to its header and content: the content's type, and the
/// AEAD tag.
const OVERHEAD: usize = 17;

/// Content type of a record with handshake messages.
const HANDSHAKE: u8 = 22;
/// Content type of a record with application data.
const APPLICATION: u8 = 23;

/// Length in bytes of a client's first handshake messages. It is the length of Firefox's
/// ClientHello, which links imitate.
pub(super) const CLIENT_HELLO: usize = 512;
/// Length in bytes of a server's handshake messages: hello, certificate with a 2,048-bit RSA key,
/// signature, Finished.
pub(super) const SERVER_FLIGHT: usize = 1_400;
/// Length in bytes of a client's Finished message.
pub(super) const FINISHED: usize = 58;

/// Returns the total length of the records that carry `content` bytes, with up to `most` bytes of
/// content in each record.
pub(super) fn sealed_length(content: usize, most: usize) -> usize {
    content + content.div_ceil(most) * (HEADER + OVERHEAD)
}

/// Appends `content` to `out` as records of application data with up to `most` bytes of content.
pub(super) fn seal_in(content: &[u8], most: usize, out: &mut Vec<u8>) {
    for content in content.chunks(most) {
        header(APPLICATION, content.len() + OVERHEAD, out);
        out.extend_from_slice(content);
        out.resize(out.len() + OVERHEAD, 0);
    }
}

/// Appends a handshake record with a payload of `length` bytes: `content`, padded with zeros.
pub(super) fn handshake(content: &[u8], length: usize, out: &mut Vec<u8>) {
    header(HANDSHAKE, length, out);
    out.extend_from_slice(content);
    out.resize(out.len() + length - content.len(), 0);
}

fn header(kind: u8, length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&[kind, 3, 3]);
    out.extend_from_slice(&(length as u16).to_be_bytes());
}

/// A reader of received records.
#[derive(Debug, Default)]
pub(super) struct Reader {
    bytes: Vec<u8>,
    /// Number of bytes of complete records that were read.
    read: u64,
    /// Records that may be read before earlier records; `None` on ordered links.
    early: Option<EarlyRecords>,
}

/// The records that were read in one call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadRecords {
    /// A handshake record with its payload.
    Handshake(Vec<u8>),
    /// One or more records of application data, whose content was appended to `plain`.
    Data,
}

impl Reader {
    /// Returns the buffer that the caller must append received bytes to.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Expects records with `content` bytes of content from now on. They may be read before
    /// earlier records have arrived.
    pub(super) fn fix(&mut self, content: usize) {
        self.early = Some(EarlyRecords::new(self.read, [HEADER, content, OVERHEAD]));
    }

    /// Reads the records in `bytes`, a part of the stream that arrived before earlier parts and
    /// begins at `offset`. Appends the content of the records to `plain`.
    pub(super) fn open_early(&mut self, offset: u64, bytes: &[u8], plain: &mut Vec<u8>) {
        if let Some(early) = &mut self.early {
            early.insert(offset, bytes, plain);
        }
    }

    /// Removes complete records from the front of the buffer: one handshake record, or all
    /// consecutive records of application data. Appends the content of application data to
    /// `plain`, except for records that were already read early. Returns `None` if no record is
    /// complete.
    pub(super) fn next(&mut self, plain: &mut Vec<u8>) -> Option<ReadRecords> {
        let (mut at, mut read) = (0, None);
        while let Some((kind, content)) = record(&self.bytes[at..]) {
            let end = at + HEADER + content.len();
            if kind == HANDSHAKE {
                if read.is_none() {
                    read = Some(ReadRecords::Handshake(content.to_vec()));
                    at = end;
                }
                break;
            }
            let early = self.early.as_mut();
            if !early.is_some_and(|early| early.reached(self.read + at as u64)) {
                plain.extend_from_slice(&content[..content.len().saturating_sub(OVERHEAD)]);
            }
            (at, read) = (end, Some(ReadRecords::Data));
        }
        self.bytes.drain(..at);
        self.read += at as u64;
        read
    }
}

/// Returns the type and the content of the first record; `None` if it is not complete.
fn record(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    Some((header[0], rest.get(..length)?))
}

#[cfg(test)]
mod tests {
    use anabranch_links::Link as _;
    use anabranch_links::tls::Context;

    use super::*;

    #[test]
    fn content_comes_back_from_pieces_of_any_length() {
        let content: Vec<u8> = (0..40_000u32).map(|byte| byte as u8).collect();
        let mut sent = Vec::new();
        handshake(b"hello", CLIENT_HELLO, &mut sent);
        assert_eq!(sent.len(), CLIENT_HELLO + HEADER);
        let before = sent.len();
        seal_in(&content, RECORD, &mut sent);
        assert_eq!(sent.len() - before, sealed_length(content.len(), RECORD));
        for piece in [1, 7, 1448, 100_000] {
            let (mut reader, mut plain, mut hellos) = (Reader::default(), Vec::new(), 0);
            for piece in sent.chunks(piece) {
                reader.buffer().extend_from_slice(piece);
                while let Some(read) = reader.next(&mut plain) {
                    if let ReadRecords::Handshake(hello) = read {
                        assert!(hello.starts_with(b"hello") && hello.len() == CLIENT_HELLO);
                        hellos += 1;
                    }
                }
            }
            assert!(plain == content && hellos == 1, "pieces of {piece}");
            assert!(reader.buffer().is_empty());
        }
    }

    #[test]
    fn records_are_as_long_as_those_of_tls_links() {
        let link = Context::new(0).unwrap().connect().unwrap();
        assert_eq!(link.promises().record, RECORD);
    }

    #[test]
    fn a_record_has_22_bytes_more_than_its_content() {
        let length = |content| sealed_length(content, RECORD);
        assert_eq!(length(RECORD), RECORD + 22);
        assert_eq!(length(RECORD + 1), RECORD + 1 + 44);
        assert_eq!(length(0), 0);
    }
}
