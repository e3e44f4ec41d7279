//! The keys of one direction between two KeyUpdates. The nonce of each record is derived from the
//! record's number (RFC 8446, sections 5.2 and 5.3).

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag,
    UnboundKey,
};
use rustls::{CipherSuite, SupportedCipherSuite};

use super::secrets::Secret;

/// Length of a record's header in bytes: type, version, length.
pub const HEADER: usize = 5;
/// Length in bytes of the authentication tag at the end of a record. All cipher suites used here
/// have the same length.
pub(crate) const TAG: usize = 16;

/// The AEAD algorithm of a cipher suite, and the number of records that one key may encrypt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cipher {
    algorithm: &'static Algorithm,
    /// Maximum records per key (RFC 8446, section 5.5).
    pub(super) limit: u64,
}

impl Cipher {
    /// Returns the AEAD algorithm of a TLS 1.3 cipher suite, or `None` for an unknown suite.
    pub(super) fn of(suite: SupportedCipherSuite) -> Option<Cipher> {
        let limit = suite.tls13()?.common.confidentiality_limit;
        let algorithm = match suite.suite() {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => &AES_128_GCM,
            CipherSuite::TLS13_AES_256_GCM_SHA384 => &AES_256_GCM,
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => &CHACHA20_POLY1305,
            _ => return None,
        };
        Some(Cipher { algorithm, limit })
    }
}

/// An AEAD key, and the IV from which the nonce of each record is derived.
pub(crate) struct RecordKeys {
    key: LessSafeKey,
    iv: [u8; 12],
}

impl RecordKeys {
    /// Derives the keys from a traffic secret (RFC 8446, section 7.3).
    pub(super) fn of(secret: &Secret, cipher: Cipher) -> RecordKeys {
        let key: UnboundKey = secret.derive(b"key", &[], cipher.algorithm);
        let mut iv = [0; 12];
        secret.fill(b"iv", &[], &mut iv);
        RecordKeys { key: LessSafeKey::new(key), iv }
    }

    /// Encrypts `inner`, the bytes between the record's header and its tag, in place. Returns the
    /// tag.
    pub(super) fn seal(&self, number: u64, header: [u8; HEADER], inner: &mut [u8]) -> Tag {
        let sealed =
            self.key.seal_in_place_separate_tag(self.nonce(number), Aad::from(header), inner);
        sealed.expect("a record is much shorter than the limit of an AEAD")
    }

    /// Decrypts `sealed`, the bytes after the header, in place. Returns the number of plain bytes
    /// at the front of `sealed`. Returns `None` if `sealed` was not encrypted with this key under
    /// this record number; the content of `sealed` is then undefined.
    pub(crate) fn open(
        &self,
        number: u64,
        header: [u8; HEADER],
        sealed: &mut [u8],
    ) -> Option<usize> {
        let opened = self.key.open_in_place(self.nonce(number), Aad::from(header), sealed);
        opened.ok().map(|plain| plain.len())
    }

    /// Returns the nonce of a record: the IV XOR `number`.
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, of_number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= of_number;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vector of RFC 8448, section 3: the client's traffic secret, and its first record of
    /// data.
    const SECRET: &str = "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5";
    const RECORD: &str = "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b\
        9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292a2977014bd1e3deae63aeebb21694915e4";

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    }

    fn keys() -> RecordKeys {
        let cipher = Cipher { algorithm: &AES_128_GCM, limit: 1 };
        RecordKeys::of(&Secret::new(&bytes(SECRET)).unwrap(), cipher)
    }

    #[test]
    fn the_rfcs_record_opens_and_is_sealed_the_same() {
        let record = bytes(RECORD);
        let (header, sealed) = record.split_first_chunk::<HEADER>().unwrap();
        let mut plain = sealed.to_vec();
        let length = keys().open(0, *header, &mut plain).unwrap();
        let wanted: Vec<u8> = (0..50).chain([23]).collect();
        assert_eq!(plain[..length], wanted);
        let tag = keys().seal(0, *header, &mut plain[..length]);
        assert_eq!([&plain[..length], tag.as_ref()].concat(), sealed);
    }

    #[test]
    fn another_number_header_or_byte_opens_nothing() {
        let record = bytes(RECORD);
        let (header, sealed) = record.split_first_chunk::<HEADER>().unwrap();
        assert_eq!(keys().open(1, *header, &mut sealed.to_vec()), None);
        let mut another = *header;
        another[2] ^= 1;
        assert_eq!(keys().open(0, another, &mut sealed.to_vec()), None);
        for place in 0..sealed.len() {
            let mut changed = sealed.to_vec();
            changed[place] ^= 0x80;
            assert_eq!(keys().open(0, *header, &mut changed), None, "byte {place}");
        }
        for length in 0..sealed.len() {
            assert_eq!(keys().open(0, *header, &mut sealed[..length].to_vec()), None, "{length}");
        }
    }
}
