//! TLS links over connections whose handshake another program has performed.

use rustls::SupportedCipherSuite;
use rustls::pki_types::CertificateDer;

use super::keys::Cipher;
use super::records::{Handover, Records};
use super::secrets::{Secret, TrafficSecrets};
use super::{Phase, Tls};

/// The secrets that result from a TLS 1.3 handshake (RFC 8446, section 7.1). Each secret has the
/// length of the cipher suite's hash: 32 or 48 bytes.
#[derive(Clone, Copy)]
pub struct AgreedSecrets<'a> {
    /// Cipher suite of the connection.
    pub suite: SupportedCipherSuite,
    /// The secret `client_application_traffic_secret_0`.
    pub client: &'a [u8],
    /// The secret `server_application_traffic_secret_0`.
    pub server: &'a [u8],
    /// The secret `exporter_master_secret`.
    pub exporter: &'a [u8],
}

impl Tls {
    /// Creates the link of a connection for which another program has performed the TLS handshake.
    /// No record may have been encrypted with these secrets before. Secrets may be used for one
    /// connection only, because a second use would repeat nonces.
    ///
    /// The link has no certificates. It changes its keys after `limit` records, or after the
    /// cipher suite's maximum if that is lower (RFC 8446, section 5.5). Returns `None` if the
    /// suite does not belong to TLS 1.3, or if a secret has a wrong length.
    #[must_use]
    pub fn after_handshake(
        agreed: &AgreedSecrets<'_>,
        is_client: bool,
        limit: Option<u64>,
    ) -> Option<Tls> {
        let mut cipher = Cipher::of(agreed.suite)?;
        cipher.limit = limit.unwrap_or(cipher.limit).min(cipher.limit);
        let length = agreed.suite.tls13()?.common.hash_provider.output_len();
        let secret = |bytes: &[u8]| Secret::new(bytes).filter(|_| bytes.len() == length);
        let secrets = TrafficSecrets {
            client: secret(agreed.client)?,
            server: secret(agreed.server)?,
            exporter: secret(agreed.exporter)?,
        };
        let handover =
            Handover { secrets, cipher, is_client, sent: 0, received: 0, read: 0, out: Vec::new() };
        let records = Phase::Records(Box::new(Records::new(handover)));
        Some(Tls::of(records, CertificateDer::from(Vec::new())))
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::cipher_suite::{
        TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384,
    };

    use super::*;
    use crate::{Link, State};

    fn taken(suite: SupportedCipherSuite, lengths: [usize; 3]) -> Option<Tls> {
        let [client, server, exporter] = &lengths.map(|length| vec![7; length]);
        Tls::after_handshake(&AgreedSecrets { suite, client, server, exporter }, true, None)
    }

    #[test]
    fn only_secrets_of_the_suites_own_length_make_a_link() {
        assert!(taken(TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, [32; 3]).is_none(), "of TLS 1.2");
        for (suite, length) in [(TLS13_AES_128_GCM_SHA256, 32), (TLS13_AES_256_GCM_SHA384, 48)] {
            let link = taken(suite, [length; 3]).unwrap();
            assert_eq!(link.state(), State::Open);
            for place in 0..3 {
                for other in [0, 31, 80 - length] {
                    let mut lengths = [length; 3];
                    lengths[place] = other;
                    assert!(taken(suite, lengths).is_none(), "{suite:?}: {lengths:?}");
                }
            }
        }
    }
}
