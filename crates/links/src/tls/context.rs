//! Settings that all TLS links of a process share: the certificate, protocol versions and cipher
//! suites.

use std::fmt;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::crypto::{CryptoProvider, SecureRandom};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use super::Tls;
use super::certificate::{from_seed, hostname, self_signed};
use super::keys::HEADER;
use super::sealer::SENT;
use super::secrets::SecretKeeper;
use super::setup::{SetupError, setup};
use super::verify::HolderOfKey;

/// Length in bytes of the ticket in a NewSessionTicket message. With this value, our message is as
/// long as C tor's, which has a ticket of 32 bytes and a nonce of 8. The TLS library `rustls`
/// always sends a nonce of 32 bytes.
const TICKET: usize = 8;
/// Value of the setting `max_fragment_size` of `rustls`, which includes the record header. Records
/// then have at most [`SENT`] plain bytes.
const FRAGMENT: usize = SENT + HEADER;

/// The settings of all links of one process. Clones share them and need little memory.
#[derive(Clone)]
pub struct Context {
    provider: Arc<CryptoProvider>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    quic_client: Arc<ClientConfig>,
    quic_server: Arc<ServerConfig>,
    own: CertificateDer<'static>,
}

/// TLS settings of QUIC links. The key and the certificate are those of TLS links. The only
/// permitted version is TLS 1.3.
pub(crate) struct QuicTls {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) own: CertificateDer<'static>,
}

impl Context {
    /// Creates a context with a new link key (P-256) and a self-signed certificate for the key.
    /// The certificate is valid for a year around `unix_now` (seconds since 1970). This suffices
    /// for a client, which is never asked for a certificate.
    ///
    /// # Errors
    /// [`SetupError`] if the TLS library refuses the settings.
    pub fn new(unix_now: u64) -> Result<Context, SetupError> {
        let provider = provider();
        let (own, key) = self_signed(&provider, unix_now)?;
        Context::of(provider, own, key)
    }

    /// Creates a context whose key (Ed25519) and certificate depend only on `seed` and `unix_now`.
    /// All its handshakes have the same lengths, so that simulations can be repeated exactly.
    ///
    /// # Errors
    /// [`SetupError`] if the TLS library refuses the settings.
    pub fn from_seed(seed: &[u8; 32], unix_now: u64) -> Result<Context, SetupError> {
        let (own, key) = from_seed(seed, unix_now)?;
        Context::of(provider(), own, key)
    }

    /// Creates a context that presents `certificate` (DER) with its `key` (PKCS#8 in DER). A relay
    /// needs an RSA key here, because C tor closes a link to a relay with another type of TLS key.
    ///
    /// # Errors
    /// [`SetupError`] if key and certificate do not belong together, or if the TLS library refuses
    /// them.
    pub fn with_certificate(certificate: &[u8], key: &[u8]) -> Result<Context, SetupError> {
        let own = CertificateDer::from(certificate.to_vec());
        let key = PrivatePkcs8KeyDer::from(key.to_vec()).into();
        Context::of(provider(), own, key)
    }

    fn of(
        provider: Arc<CryptoProvider>,
        own: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Context, SetupError> {
        let client = client(&provider)?;
        let quic_client = quic_client(&provider)?;
        let quic_server = quic_server(&provider, own.clone(), key.clone_key())?;
        let builder = ServerConfig::builder_with_provider(server_provider(&provider))
            .with_protocol_versions(rustls::ALL_VERSIONS)
            .map_err(setup)?
            .with_no_client_auth();
        let mut server = builder.with_single_cert(vec![own.clone()], key).map_err(setup)?;
        // As in C tor, the server's order of preference counts, because clients choose their order
        // to look like other programs. C tor does not set OpenSSL's option PRIORITIZE_CHACHA. A
        // client that lists ChaCha20 first gets it only if it does not offer AES-256-GCM.
        server.ignore_client_order = true;
        // As in C tor, two tickets follow a TLS 1.3 handshake. No client uses them.
        server.send_tls13_tickets = 2;
        // This crate processes the records after the handshake.
        server.enable_secret_extraction = true;
        server.max_fragment_size = Some(FRAGMENT);
        server.ticketer = Arc::new(EmptyTickets(provider.secure_random));
        server.session_storage = Arc::new(NoServerSessionStorage {});
        let (client, server) = (Arc::new(client), Arc::new(server));
        let (quic_client, quic_server) = (Arc::new(quic_client), Arc::new(quic_server));
        Ok(Context { provider, client, server, quic_client, quic_server, own })
    }

    /// Returns the TLS settings of QUIC links.
    pub(crate) fn quic(&self) -> QuicTls {
        QuicTls {
            client: Arc::clone(&self.quic_client),
            server: Arc::clone(&self.quic_server),
            own: self.own.clone(),
        }
    }

    /// Returns a random host name for the ClientHello of a link that we open.
    pub(crate) fn hostname(&self) -> Result<String, SetupError> {
        hostname(&self.provider)
    }

    /// Creates the link for a connection that we open.
    ///
    /// # Errors
    /// [`SetupError`] if the TLS library refuses the settings.
    pub fn connect(&self) -> Result<Tls, SetupError> {
        // Like C tor, send a random name, so that the ClientHello has the usual shape.
        let name = hostname(&self.provider)?;
        let name = ServerName::try_from(name).map_err(setup)?;
        let keeper = Arc::new(SecretKeeper::default());
        let mut config = ClientConfig::clone(&self.client);
        config.key_log = keeper.clone();
        let connection = ClientConnection::new(Arc::new(config), name).map_err(setup)?;
        Ok(Tls::new(connection, keeper, self.own.clone()))
    }

    /// Creates the link for a connection that a peer opened.
    ///
    /// # Errors
    /// [`SetupError`] if the TLS library refuses the settings.
    pub fn accept(&self) -> Result<Tls, SetupError> {
        let keeper = Arc::new(SecretKeeper::default());
        let mut config = ServerConfig::clone(&self.server);
        config.key_log = keeper.clone();
        let connection = ServerConnection::new(Arc::new(config)).map_err(setup)?;
        Ok(Tls::new(connection, keeper, self.own.clone()))
    }

    /// Returns the DER form of the certificate that all accepted links present.
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        &self.own
    }

    /// Restricts the links that we open to TLS 1.2, for tests with peers that support no newer
    /// version.
    ///
    /// # Errors
    /// [`SetupError`] if the TLS library refuses the settings.
    pub fn only_tls12(mut self) -> Result<Context, SetupError> {
        let versions = [&rustls::version::TLS12];
        self.client = Arc::new(client_of(&self.provider, &versions)?);
        Ok(self)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Context").finish_non_exhaustive()
    }
}

/// Returns AWS-LC's cryptographic primitives. On processors with AVX-512, its AES-GCM takes half
/// of the time of the library `ring`. The post-quantum group is omitted: OpenSSL 3.0, which
/// Debian's tor uses, does not support it, so it would let an observer distinguish our links from
/// tor's.
pub(super) fn provider() -> Arc<CryptoProvider> {
    let kx_groups = vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
    Arc::new(CryptoProvider { kx_groups, ..aws_lc_rs::default_provider() })
}

/// Returns the cryptographic primitives for inbound links. Like C tor, they prefer P-256 to X25519
/// and, in TLS 1.3, ChaCha20-Poly1305 to AES-128-GCM.
fn server_provider(provider: &Arc<CryptoProvider>) -> Arc<CryptoProvider> {
    let kx_groups = vec![kx_group::SECP256R1, kx_group::X25519];
    let cipher_suites = vec![
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ];
    Arc::new(CryptoProvider { kx_groups, cipher_suites, ..(**provider).clone() })
}

/// Generator of meaningless session tickets: [`TICKET`] random bytes. No link resumes a session.
#[derive(Debug)]
struct EmptyTickets(&'static dyn SecureRandom);

impl ProducesTickets for EmptyTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        7200
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        let mut ticket = vec![0; TICKET];
        self.0.fill(&mut ticket).ok().map(|()| ticket)
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

fn client(provider: &Arc<CryptoProvider>) -> Result<ClientConfig, SetupError> {
    client_of(provider, rustls::ALL_VERSIONS)
}

/// The application protocol of QUIC links (RFC 9001, 8.1, requires one).
const ALPN: &[u8] = b"anabranch-or/1";

/// Returns the cryptographic primitives for QUIC links. They prefer AES-128-GCM: encryption is the
/// largest part of a QUIC link's CPU time, and QUIC links imitate no other program.
fn quic_provider(provider: &Arc<CryptoProvider>) -> Arc<CryptoProvider> {
    let cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(CryptoProvider { cipher_suites, ..(**provider).clone() })
}

fn quic_client(provider: &Arc<CryptoProvider>) -> Result<ClientConfig, SetupError> {
    let mut config = client_of(&quic_provider(provider), &[&rustls::version::TLS13])?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_secret_extraction = false;
    Ok(config)
}

fn quic_server(
    provider: &Arc<CryptoProvider>,
    own: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, SetupError> {
    let builder = ServerConfig::builder_with_provider(quic_provider(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(setup)?
        .with_no_client_auth();
    let mut config = builder.with_single_cert(vec![own], key).map_err(setup)?;
    // A client of an earlier version prefers AES-256-GCM, so the client's order does not count.
    // `rustls` has no exception for a client that lists ChaCha20 first.
    config.ignore_client_order = true;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

fn client_of(
    provider: &Arc<CryptoProvider>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Result<ClientConfig, SetupError> {
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(setup)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(HolderOfKey::new(provider)))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.enable_secret_extraction = true;
    config.max_fragment_size = Some(FRAGMENT);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use rustls::quic::{self, Version};
    use rustls::{CipherSuite, SupportedCipherSuite};

    use super::*;

    /// Returns the cipher suite of a QUIC connection between a client with `config` and our server.
    fn negotiated(context: &Context, mut config: ClientConfig) -> Option<CipherSuite> {
        config.alpn_protocols = vec![ALPN.to_vec()];
        let name = ServerName::try_from("relay.example").unwrap();
        let (config, server) = (Arc::new(config), context.quic().server);
        let mut client =
            quic::ClientConnection::new(config, Version::V1, name, Vec::new()).unwrap();
        let mut server = quic::ServerConnection::new(server, Version::V1, Vec::new()).unwrap();
        let mut hello = Vec::new();
        client.write_hs(&mut hello);
        server.read_hs(&hello).unwrap();
        server.negotiated_cipher_suite().map(|suite| suite.suite())
    }

    /// Returns a client's cryptographic primitives that prefer `suites` in this order.
    fn preferring(suites: &[SupportedCipherSuite]) -> Arc<CryptoProvider> {
        Arc::new(CryptoProvider { cipher_suites: suites.to_vec(), ..(*provider()).clone() })
    }

    /// C tor chooses by its own order, whatever the client prefers (`tortls_openssl.c`).
    #[test]
    fn tls_links_use_the_order_of_c_tor_and_not_that_of_the_client() {
        let context = Context::new(1_800_000_000).unwrap();
        let chosen = |suites: &[SupportedCipherSuite]| {
            let client = client_of(&preferring(suites), rustls::ALL_VERSIONS).unwrap();
            let name = ServerName::try_from("relay.example").unwrap();
            let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
            let mut server = ServerConnection::new(Arc::clone(&context.server)).unwrap();
            let mut hello = Vec::new();
            client.write_tls(&mut hello).unwrap();
            server.read_tls(&mut hello.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            server.negotiated_cipher_suite().map(|suite| suite.suite())
        };
        let [chacha, aes_128, aes_256] = [
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
        ];
        assert_eq!(chosen(&[chacha, aes_128, aes_256]), Some(aes_256.suite()));
        assert_eq!(chosen(&[aes_128, chacha]), Some(chacha.suite()));
    }

    #[test]
    fn quic_links_use_aes_128_whatever_the_order_of_the_client() {
        let context = Context::new(1_800_000_000).unwrap();
        let ours = ClientConfig::clone(&context.quic().client);
        let others = client_of(&provider(), &[&rustls::version::TLS13]).unwrap();
        let versions = [&rustls::version::TLS13];
        let chacha =
            [cipher_suite::TLS13_CHACHA20_POLY1305_SHA256, cipher_suite::TLS13_AES_128_GCM_SHA256];
        let chacha = client_of(&preferring(&chacha), &versions).unwrap();
        for config in [ours, others, chacha] {
            let suite = negotiated(&context, config);
            assert_eq!(suite, Some(CipherSuite::TLS13_AES_128_GCM_SHA256));
        }
    }
}
