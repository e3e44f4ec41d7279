//! TLS 1.3 for paths of the splitter (`tls:`, `merge --listen-tls`), implemented with rustls. The
//! splitter itself uses only the traits [`TlsEnd`] and [`TlsStream`].

mod certificate;
mod pin;

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anabranch_os::target::Target;
use anabranch_splitter::streams::{TlsEnd, TlsError, TlsStream};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, Error, InvalidMessage, RootCertStore, ServerConfig,
    ServerConnection,
};

use certificate::Certificate;
use pin::Pinned;

pub(crate) use pin::Fingerprint;

/// Protocol that both ends negotiate (ALPN, RFC 7301). It is HTTP/1.1, because connections of
/// browsers to the same port may be forwarded to a web server.
const ALPN: &[u8] = b"http/1.1";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// TLS settings of the near end (the splitter). With them it accepts only a far end whose
/// certificate has a known fingerprint, or is signed by a known CA.
pub(crate) struct Near(Arc<ClientConfig>);

impl Near {
    /// Returns TLS settings of a splitter that accept only the certificate with `fingerprint`,
    /// whatever names and dates are in the certificate.
    pub(crate) fn pinned(fingerprint: Fingerprint) -> Near {
        let provider = provider();
        let verifier = Arc::new(Pinned::new(fingerprint, &provider));
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the library's own provider has the suites of TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        Near::of(config.with_no_client_auth())
    }

    /// Returns TLS settings of a splitter that accept a certificate for the far end's name if a CA
    /// in the PEM file `path` has signed it.
    ///
    /// # Errors
    /// The file cannot be read, or has no certificate of a CA.
    pub(crate) fn by_ca(path: &Path) -> Result<Near, String> {
        let name = path.display();
        let mut roots = RootCertStore::empty();
        let found = CertificateDer::pem_file_iter(path);
        for certificate in found.map_err(|error| format!("cannot read '{name}': {error}"))? {
            let certificate = certificate.map_err(|error| format!("'{name}': {error}"))?;
            roots.add(certificate).map_err(|error| format!("'{name}': {error}"))?;
        }
        if roots.is_empty() {
            return Err(format!(
                "the file '{name}' contains no certificate: choose a PEM file with the certificate \
                 of a CA"
            ));
        }
        let provider = provider();
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
        let verifier = verifier.build().map_err(|error| format!("'{name}': {error}"))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the library's own provider has the suites of TLS 1.3")
            .with_webpki_verifier(verifier);
        Ok(Near::of(config.with_no_client_auth()))
    }

    fn of(mut config: ClientConfig) -> Near {
        config.alpn_protocols = vec![ALPN.to_vec()];
        // A ticket would let an observer recognise a client that connects again.
        config.resumption = rustls::client::Resumption::disabled();
        Near(Arc::new(config))
    }
}

impl fmt::Debug for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Near")
    }
}

impl TlsEnd for Near {
    fn begin(&self, peer: Option<&Target>) -> Result<Box<dyn TlsStream>, TlsError> {
        let host = peer.map(|peer| peer.host.clone()).unwrap_or_default();
        let name = ServerName::try_from(host.clone());
        let name = name.map_err(|_| {
            TlsError(format!(
                "'{host}' is not a valid host name, and TLS needs one to check the certificate"
            ))
        })?;
        let connection = ClientConnection::new(Arc::clone(&self.0), name);
        Ok(Stream::boxed(connection.map_err(|error| TlsError(error.to_string()))?))
    }
}

/// TLS settings of the far end (`anabranch merge`): its certificate and key.
pub(crate) struct Far {
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
}

impl Far {
    /// Returns TLS settings of a far end, with the certificate and key in these PEM files.
    ///
    /// # Errors
    /// A file cannot be read, or certificate and key do not belong together.
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Far, String> {
        Far::of(Certificate::read(certificate, key)?)
    }

    /// Returns TLS settings of a far end, with the certificate and key in the file at `path`. If
    /// the file does not exist, creates it.
    ///
    /// # Errors
    /// Those of [`Far::read`], or the file cannot be created.
    pub(crate) fn read_or_make(path: &Path) -> Result<Far, String> {
        if !path.exists() {
            certificate::make(path).map_err(|error| {
                format!("cannot make the certificate '{}': {error}", path.display())
            })?;
        }
        Far::read(path, path)
    }

    fn of(Certificate { chain, key, name }: Certificate) -> Result<Far, String> {
        let fingerprint = Fingerprint::of(&chain[0]);
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("the library's own provider has the suites of TLS 1.3")
            .with_no_client_auth()
            .with_single_cert(chain, key);
        let mut config = config.map_err(|error| {
            format!("'{name}': the private key does not belong to the certificate ({error})")
        })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Far { config: Arc::new(config), fingerprint })
    }

    /// Returns the SHA-256 of the certificate, with which splitters identify the far end.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

impl fmt::Debug for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Far({})", self.fingerprint)
    }
}

impl TlsEnd for Far {
    fn begin(&self, _: Option<&Target>) -> Result<Box<dyn TlsStream>, TlsError> {
        let connection = ServerConnection::new(Arc::clone(&self.config));
        Ok(Stream::boxed(connection.map_err(|error| TlsError(error.to_string()))?))
    }
}

/// A TLS connection between splitter and far end.
struct Stream(Connection);

impl Stream {
    fn boxed(connection: impl Into<Connection>) -> Box<dyn TlsStream> {
        let mut connection = connection.into();
        // There is no limit, because sealed bytes are passed on at once. The caller stores the
        // bytes for which the socket has no room.
        connection.set_buffer_limit(None);
        Box::new(Stream(connection))
    }
}

impl TlsStream for Stream {
    fn receive(&mut self, mut wire: &[u8], content: &mut Vec<u8>) -> Result<(), TlsError> {
        while !wire.is_empty() {
            let read = self.0.read_tls(&mut wire);
            read.map_err(|error| TlsError(error.to_string()))?;
            self.0.process_new_packets().map_err(|error| TlsError(words(error)))?;
            // All content is read here. An error means only that nothing is left to read, or that
            // the stream has ended.
            let _ = self.0.reader().read_to_end(content);
        }
        Ok(())
    }

    fn seal(&mut self, content: &[u8]) -> Result<(), TlsError> {
        let written = std::io::Write::write_all(&mut self.0.writer(), content);
        written.map_err(|error| TlsError(error.to_string()))
    }

    fn transmit(&mut self, wire: &mut Vec<u8>) {
        while self.0.wants_write() {
            if self.0.write_tls(wire).is_err() {
                return;
            }
        }
    }

    fn close(&mut self) {
        self.0.send_close_notify();
    }

    fn is_open(&self) -> bool {
        !self.0.is_handshaking()
    }
}

/// Returns the error message for `error`: rustls's own message, or a message with a remedy, if one
/// is known.
fn words(error: Error) -> String {
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the program at this address does not speak TLS: use the port of the far end's \
             --listen-tls"
                .into()
        }
        Error::General(text) => text,
        Error::InvalidCertificate(why) => {
            format!(
                "the far end's certificate is not valid ({why:?}): check --tls-ca and the host \
                 name in --path"
            )
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    /// Passes the output of each end to the other end until nothing is left. Returns the content
    /// that each end received.
    fn exchange(ends: &mut [Box<dyn TlsStream>; 2]) -> Result<[Vec<u8>; 2], TlsError> {
        let mut got = [Vec::new(), Vec::new()];
        loop {
            let mut is_still = true;
            for (from, to) in [(0, 1), (1, 0)] {
                let mut wire = Vec::new();
                ends[from].transmit(&mut wire);
                is_still &= wire.is_empty();
                // The parts are shorter than records.
                for part in wire.chunks(700) {
                    ends[to].receive(part, &mut got[to])?;
                }
            }
            if is_still {
                return Ok(got);
            }
        }
    }

    fn made(folder: &TempDir) -> Far {
        Far::read_or_make(&folder.path().join("far.key.tls.pem")).unwrap()
    }

    fn pair(near: &Near, far: &Far) -> [Box<dyn TlsStream>; 2] {
        let at = "far.example.net:443".parse().unwrap();
        [near.begin(Some(&at)).unwrap(), far.begin(None).unwrap()]
    }

    #[test]
    fn a_pinned_certificate_opens_a_stream_and_another_does_not() {
        let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
        let [far, other] = folders.each_ref().map(made);
        let near = Near::pinned(far.fingerprint());
        let mut ends = pair(&near, &far);
        exchange(&mut ends).unwrap();
        assert!(ends.iter().all(|end| end.is_open()));
        ends[0].seal(&[7; 100_000]).unwrap();
        ends[1].seal(b"answer").unwrap();
        assert_eq!(exchange(&mut ends).unwrap(), [b"answer".to_vec(), vec![7; 100_000]]);
        let message = exchange(&mut pair(&near, &other)).unwrap_err().to_string();
        assert!(message.contains(&other.fingerprint().to_string()), "{message}");
        assert!(message.contains("--tls-fingerprint"), "{message}");
    }

    #[test]
    fn a_made_certificate_is_kept_for_its_owner_alone_and_read_again() {
        let folder = TempDir::new().unwrap();
        let fingerprint = made(&folder).fingerprint();
        assert_eq!(made(&folder).fingerprint(), fingerprint);
        let file = folder.path().join("far.key.tls.pem");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&file, "nothing").unwrap();
        let message = Far::read_or_make(&file).unwrap_err();
        assert!(message.contains("contains no certificate"), "{message}");
    }

    /// A CA is trusted for the names that it has signed. In this test, a certificate signs itself.
    #[test]
    fn a_ca_is_trusted_for_the_names_that_it_signs() {
        let folder = TempDir::new().unwrap();
        let (own, key) = certificate::tests::signed_for("far.example.net");
        let [cert_file, key_file] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
        fs::write(&cert_file, own).unwrap();
        fs::write(&key_file, key).unwrap();
        let far = Far::read(&cert_file, &key_file).unwrap();
        let near = Near::by_ca(&cert_file).unwrap();
        exchange(&mut pair(&near, &far)).unwrap();
        let elsewhere = "other.example.net:443".parse().unwrap();
        let mut ends = [near.begin(Some(&elsewhere)).unwrap(), far.begin(None).unwrap()];
        let message = exchange(&mut ends).unwrap_err().to_string();
        assert!(message.contains("--tls-ca"), "{message}");
        let other = made(&folder);
        assert!(exchange(&mut pair(&near, &other)).is_err());
        assert!(Near::by_ca(&key_file).unwrap_err().contains("contains no certificate"));
        assert!(Near::by_ca(&folder.path().join("none")).unwrap_err().contains("cannot read"));
        let swapped = folder.path().join("far.key.tls.pem");
        let message = Far::read(&cert_file, &swapped).unwrap_err();
        assert!(message.contains("does not belong to the certificate"), "{message}");
    }

    #[test]
    fn what_is_not_tls_is_told_and_half_a_hello_waits() {
        let folder = TempDir::new().unwrap();
        let far = made(&folder);
        let mut end = far.begin(None).unwrap();
        let error = end.receive(b"GET / HTTP/1.1\r\n\r\n", &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("does not speak TLS"), "{error}");
        let near = Near::pinned(far.fingerprint());
        let [mut client, mut server] = pair(&near, &far);
        let (mut hello, mut answer) = (Vec::new(), Vec::new());
        client.transmit(&mut hello);
        let (first, rest) = hello.split_at(hello.len() / 2);
        server.receive(first, &mut Vec::new()).unwrap();
        server.transmit(&mut answer);
        assert!(answer.is_empty() && !server.is_open());
        server.receive(rest, &mut Vec::new()).unwrap();
        server.transmit(&mut answer);
        assert!(!answer.is_empty());
    }
}
