//! A certificate that is identified by its fingerprint.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// The SHA-256 of a certificate (DER).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Returns the fingerprint of `certificate`.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Fingerprint {
        let sum = digest(&SHA256, certificate);
        Fingerprint(sum.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    /// Parses 64 hexadecimal digits. Colons between bytes, which other programs print, are
    /// skipped.
    fn from_str(text: &str) -> Result<Fingerprint, String> {
        let error = || {
            format!(
                "'{text}' is not the SHA-256 of a certificate: write the 64 hexadecimal digits \
                 that 'anabranch merge --listen-tls' prints"
            )
        };
        let digits: String = text.chars().filter(|&letter| letter != ':').collect();
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(error());
        }
        let byte = |place| u8::from_str_radix(&digits[2 * place..2 * place + 2], 16);
        let mut bytes = [0; 32];
        for (place, one) in bytes.iter_mut().enumerate() {
            *one = byte(place).map_err(|_| error())?;
        }
        Ok(Fingerprint(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A verifier that accepts one certificate. Names, dates and issuer are ignored.
#[derive(Debug)]
pub(super) struct Pinned {
    fingerprint: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    pub(super) fn new(fingerprint: Fingerprint, provider: &CryptoProvider) -> Pinned {
        Pinned { fingerprint, algorithms: provider.signature_verification_algorithms }
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = Fingerprint::of(end_entity);
        if shown == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General(format!(
            "the received certificate has the SHA-256 {shown}, which is not the value of \
             --tls-fingerprint: compare the received value with the one that the far end printed. \
             If these two differ, another server answers at the far end's address"
        )))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("the other end does not support TLS 1.3".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_reads_back_with_colons_or_without() {
        let text = "00ff".repeat(16);
        let read: Fingerprint = text.parse().unwrap();
        assert_eq!(read.to_string(), text);
        let pairs: Vec<&str> = (0..32).map(|place| &text[2 * place..2 * place + 2]).collect();
        assert_eq!(pairs.join(":").to_uppercase().parse(), Ok(read));
        for wrong in ["", "00", &"0".repeat(63), &"0".repeat(65), &"é".repeat(32), &"g".repeat(64)]
        {
            let message = wrong.parse::<Fingerprint>().unwrap_err();
            assert!(message.contains("64 hexadecimal digits"), "{message}");
        }
    }
}
