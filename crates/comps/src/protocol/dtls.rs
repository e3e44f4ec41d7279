//! DTLS records (RFC 6347, section 4.1): a type, a version, a number and a length in clear.
//!
//! A server tells its clients apart by their addresses. Connection IDs (RFC 9146) would let one
//! move; VPNs and telephones hardly use them.

/// Type, version, epoch, sequence number, length.
const HEADER: usize = 1 + 2 + 2 + 6 + 2;
/// change_cipher_spec, alert, handshake, application_data, heartbeat.
const KINDS: std::ops::RangeInclusive<u8> = 20..=24;
/// DTLS 1.0, 1.2, and the one of AnyConnect, which is older than both. 1.3 begins as 1.2.
const VERSIONS: [[u8; 2]; 3] = [[0xfe, 0xff], [0xfe, 0xfd], [0x01, 0x00]];

/// Whether `datagram` begins with a whole record.
pub fn is_record(datagram: &[u8]) -> bool {
    let Some((header, rest)) = datagram.split_at_checked(HEADER) else { return false };
    let length = usize::from(u16::from_be_bytes([header[11], header[12]]));
    KINDS.contains(&header[0])
        && VERSIONS.contains(&[header[1], header[2]])
        && (1..=rest.len()).contains(&length)
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
}
