//! A verifier that accepts any certificate if the peer holds the certificate's key. The peer's
//! identity is checked later, by the CERTS cell.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// Verifier of the handshake's signature. It does not check the certificate's names, dates or
/// issuer.
#[derive(Debug)]
pub(super) struct HolderOfKey(WebPkiSupportedAlgorithms);

impl HolderOfKey {
    pub(super) fn new(provider: &Arc<CryptoProvider>) -> HolderOfKey {
        HolderOfKey(provider.signature_verification_algorithms)
    }
}

impl ServerCertVerifier for HolderOfKey {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::Time;
    use rustls::sign::{CertifiedKey, SingleCertAndKey};
    use rustls::{ServerConfig, ServerConnection};

    use super::super::certificate::self_signed;
    use super::super::context::provider;
    use super::super::secrets::SecretKeeper;
    use super::super::{Context, Tls};
    use super::*;
    use crate::{Fault, Link, State, StreamLink};

    const NOW: u64 = 1_800_000_000;

    /// Returns a server. If `honest` is false, it presents one certificate but signs with the key
    /// of another.
    fn server(honest: bool) -> Tls {
        let provider = provider();
        let (shown, own) = self_signed(&provider, NOW).unwrap();
        let (_, foreign) = self_signed(&provider, NOW).unwrap();
        let key =
            provider.key_provider.load_private_key(if honest { own } else { foreign }).unwrap();
        let certified = CertifiedKey::new(vec![shown.clone()], key);
        let keeper = Arc::new(SecretKeeper::default());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.key_log = keeper.clone();
        config.enable_secret_extraction = true;
        Tls::new(ServerConnection::new(Arc::new(config)).unwrap(), keeper, shown)
    }

    fn handshake(context: &Context, mut server: Tls) -> Result<State, Fault> {
        let mut client = context.connect().unwrap();
        for _ in 0..4 {
            let mut wire = Vec::new();
            client.transmit(Time::ZERO, &mut wire);
            server.receive(Time::ZERO, &wire)?;
            wire.clear();
            server.transmit(Time::ZERO, &mut wire);
            client.receive(Time::ZERO, &wire)?;
        }
        Ok(client.state())
    }

    #[test]
    fn a_server_that_does_not_hold_its_certificates_key_is_refused() {
        let context = Context::new(NOW).unwrap();
        for context in [context.clone(), context.only_tls12().unwrap()] {
            assert_eq!(handshake(&context, server(true)), Ok(State::Open));
            assert!(matches!(handshake(&context, server(false)), Err(Fault::Peer(_))));
        }
    }
}
