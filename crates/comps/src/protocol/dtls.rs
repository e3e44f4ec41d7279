//! Recognition of DTLS by its records (RFC 6347, section 4.1), whose type, version, sequence
//! number and length are not encrypted.
//!
//! A server distinguishes its clients by their addresses, unless the records carry connection IDs
//! (RFC 9146 for 1.2, RFC 9147 section 9 for 1.3). VPNs and Voice over IP rarely use connection
//! IDs; the Internet of Things does.

use super::{Counter, Family, Mark, Protocol, Side, Verdict, be64, goes_on};

/// Description of DTLS in the list of protocols, [`FAMILIES`](super::FAMILIES).
pub const FAMILY: Family = Family {
    protocol: Protocol::Dtls,
    name: "dtls",
    title: "DTLS",
    selectable: false,
    mark,
    follow,
    one_path: Some("its server recognises the client by its address"),
    counter: Counter::Looked,
    guide: "any-program",
};

/// Description of DTLS with connection IDs in the list of protocols,
/// [`FAMILIES`](super::FAMILIES).
pub const WITH_CID: Family = Family {
    protocol: Protocol::DtlsCid,
    name: "dtls-cid",
    title: "DTLS with connection IDs",
    selectable: false,
    mark: |datagram| Mark::weak(is_numbered(datagram)),
    follow,
    one_path: None,
    counter: Counter::Looked,
    guide: "any-program",
};

/// Length of a record's header in bytes: type, version, epoch, sequence number, length.
const HEADER: usize = 1 + 2 + 2 + 6 + 2;
/// Content types: change_cipher_spec, alert, handshake, application_data, heartbeat.
const KINDS: std::ops::RangeInclusive<u8> = 20..=24;
/// Versions in a record's header: DTLS 1.0, DTLS 1.2, and the pre-standard version of AnyConnect.
/// DTLS 1.3 writes version 1.2 into its plaintext records (RFC 9147, section 4).
const VERSIONS: [[u8; 2]; 3] = [[0xfe, 0xff], [0xfe, 0xfd], [0x01, 0x00]];

/// Returns whether `datagram` begins with a complete DTLS record with an unencrypted header.
pub fn is_record(datagram: &[u8]) -> bool {
    let Some((header, rest)) = datagram.split_at_checked(HEADER) else { return false };
    let length = usize::from(u16::from_be_bytes([header[11], header[12]]));
    KINDS.contains(&header[0])
        && VERSIONS.contains(&[header[1], header[2]])
        && (1..=rest.len()).contains(&length)
}

/// Content type of a DTLS 1.2 record with a connection ID (tls12_cid).
const WITH_ID: u8 = 25;
/// Content type of a record with a handshake message.
const HANDSHAKE: u8 = 22;
/// Handshake type of a ClientHello, a client's first handshake message.
const CLIENT_HELLO: u8 = 1;

/// Returns whether a client's record carries a connection ID. If so, the server may accept it from
/// any address, so the session can be split.
///
/// In DTLS 1.3 the bit C of the unified header indicates a connection ID (RFC 9147, section 4).
pub fn names_its_connection(datagram: &[u8]) -> bool {
    is_numbered(datagram) || is_unified(datagram) && datagram[0] & 0x10 != 0
}

/// Returns whether `datagram` begins with a DTLS 1.2 record that carries a connection ID.
fn is_numbered(datagram: &[u8]) -> bool {
    datagram.len() > HEADER && datagram.starts_with(&[WITH_ID, 0xfe, 0xfd])
}

/// Returns whether `datagram` begins with an encrypted DTLS 1.3 record.
fn is_unified(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0xe0 == 0x20)
}

fn mark(datagram: &[u8]) -> Mark {
    match is_record(datagram) {
        true if is_hello(datagram) => Mark::Strong,
        is_record => Mark::weak(is_record),
    }
}

fn is_hello(datagram: &[u8]) -> bool {
    datagram[0] == HANDSHAKE && datagram.get(HEADER) == Some(&CLIENT_HELLO)
}

/// Returns whether `next` is evidence for DTLS. Any record with an unencrypted header is evidence
/// ([`Verdict::Agrees`]) if it follows a ClientHello or comes from the server. If the first
/// datagram was not a ClientHello, a client's record is evidence only if it has the same version
/// and the next sequence number. A unified header of DTLS 1.3 is no evidence, because it has only
/// three fixed bits.
fn follow(first: &[u8], next: &[u8], side: Side) -> Verdict {
    let is_ours = is_record(next) || is_numbered(next);
    if !is_ours && is_unified(next) {
        return Verdict::Open;
    }
    if is_hello(first) || side == Side::Server {
        return Verdict::whether(is_ours);
    }
    // Epoch and sequence number.
    let number = |bytes| be64(bytes, 3).unwrap_or_default();
    Verdict::whether(is_ours && next[1..3] == first[1..3] && goes_on(number(first), number(next)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, version: [u8; 2], length: u16, body: usize) -> Vec<u8> {
        let [high, low] = length.to_be_bytes();
        let mut bytes = vec![kind, version[0], version[1], 0, 0, 0, 0, 0, 0, 0, 0, high, low];
        bytes.resize(HEADER + body, 0xa5);
        bytes
    }

    #[test]
    fn whole_records_are_known() {
        for version in VERSIONS {
            assert!(is_record(&record(22, version, 50, 50)));
            assert!(is_record(&record(23, version, 50, 200)), "several in one datagram");
        }
    }

    #[test]
    fn what_is_cut_or_of_tls_or_empty_is_none() {
        let sound = record(22, [0xfe, 0xfd], 50, 50);
        assert!((0..sound.len()).all(|length| !is_record(&sound[..length])));
        assert!(!is_record(&record(22, [3, 3], 50, 50)), "TLS");
        assert!(!is_record(&record(19, [0xfe, 0xfd], 50, 50)));
        assert!(!is_record(&record(22, [0xfe, 0xfd], 0, 50)));
    }

    /// Returns a DTLS 1.2 record of the type `kind` with the sequence number `number`.
    fn data(kind: u8, number: u8) -> Vec<u8> {
        let mut bytes = record(kind, [0xfe, 0xfd], 30, 30);
        (bytes[4], bytes[10]) = (1, number);
        bytes
    }

    #[test]
    fn a_hello_is_strong_and_data_in_mid_session_are_weak() {
        let mut hello = record(HANDSHAKE, [0xfe, 0xfd], 50, 50);
        assert_eq!(mark(&hello), Mark::Weak);
        hello[HEADER] = CLIENT_HELLO;
        assert_eq!(mark(&hello), Mark::Strong);
        assert_eq!(follow(&hello, &data(23, 0), Side::Client), Verdict::Agrees);
        assert_eq!(follow(&hello, &[0x2f, 1, 2, 3], Side::Client), Verdict::Open, "1.3");
        assert_eq!(follow(&hello, &[0x55; 40], Side::Client), Verdict::Contradicts);
    }

    #[test]
    fn in_mid_session_the_next_number_or_a_record_of_the_server_agrees() {
        let first = data(23, 7);
        assert_eq!(follow(&first, &data(23, 8), Side::Client), Verdict::Agrees);
        assert_eq!(follow(&first, &data(23, 7), Side::Client), Verdict::Contradicts);
        assert_eq!(follow(&first, &data(23, 99), Side::Server), Verdict::Agrees);
        assert_eq!(follow(&first, &[0x55; 40], Side::Server), Verdict::Contradicts);
    }

    #[test]
    fn records_that_name_their_connection_are_known() {
        assert!(names_its_connection(&data(WITH_ID, 1)));
        assert!(names_its_connection(&[0x3e, 1, 2, 3]), "DTLS 1.3, C bit");
        for other in [&data(23, 1)[..], &[0x2e, 1, 2], &[WITH_ID, 3, 3, 0], &[]] {
            assert!(!names_its_connection(other), "{other:02x?}");
        }
    }
}
