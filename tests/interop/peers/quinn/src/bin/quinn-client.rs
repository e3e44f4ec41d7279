//! quinn's client with its defaults. Downloads one path over HTTP/0.9 ("hq-interop") or HTTP/3, and
//! prints the result as one line of JSON. HTTP/3 is supported only as far as one request needs it.
//!
//! Usage: `quinn-client ADDRESS:PORT h3|hq PATH SECONDS`. Certificates are not checked, because
//! servers have self-signed ones; the test compares hashes of the content.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use peer_http::{CONTROL_STREAM, Frames, request};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use sha2::{Digest, Sha256};

type Failure = Box<dyn Error + Send + Sync>;

/// Length and hash of the received part of a body.
#[derive(Default)]
struct Body {
    bytes: u64,
    hash: Sha256,
}

impl Body {
    fn take(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.hash.update(piece);
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, protocol, path, limit] = &arguments[..] else {
        return Err("usage: quinn-client ADDRESS:PORT h3|hq PATH SECONDS".into());
    };
    let (start, mut body) = (Instant::now(), Body::default());
    let limit = Duration::from_secs_f64(limit.parse()?);
    let download = fetch(server.parse()?, protocol == "h3", path, &mut body);
    let error = match tokio::time::timeout(limit, download).await {
        Ok(Ok(())) => String::new(),
        Ok(Err(error)) => error.to_string().replace(['"', '\\'], "'"),
        Err(_) => "out of time".to_owned(),
    };
    let seconds = start.elapsed().as_secs_f64();
    let mbits = body.bytes as f64 * 8e-6 / seconds;
    let hash: String = body.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    println!(
        r#"{{"bytes": {}, "sha256": "{hash}", "seconds": {seconds}, "goodput_mbits": {mbits}, "error": "{error}"}}"#,
        body.bytes
    );
    std::process::exit(i32::from(!error.is_empty()))
}

async fn fetch(server: SocketAddr, h3: bool, path: &str, body: &mut Body) -> Result<(), Failure> {
    let mut endpoint = Endpoint::client("0.0.0.0:0".parse()?)?;
    endpoint.set_default_client_config(configuration(if h3 { "h3" } else { "hq-interop" })?);
    let connection = endpoint.connect(server, "localhost")?.await?;
    // It must stay open as long as the connection (RFC 9114, section 6.2.1).
    let mut control = None;
    if h3 {
        control.insert(connection.open_uni().await?).write_all(&CONTROL_STREAM).await?;
    }
    let (mut send, mut receive) = connection.open_bi().await?;
    let request = match h3 {
        true => request(&server.to_string(), path),
        false => format!("GET {path}\r\n").into_bytes(),
    };
    send.write_all(&request).await?;
    send.finish()?;
    let mut frames = Frames::default();
    while let Some(piece) = receive.read_chunk(1 << 16, true).await? {
        match h3 {
            true => frames.data(&piece.bytes, |data| body.take(data)),
            false => body.take(&piece.bytes),
        }
    }
    connection.close(0_u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}

fn configuration(protocol: &str) -> Result<ClientConfig, Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unchecked(provider)))
        .with_no_client_auth();
    tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Ok(ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?)))
}

/// Verifier that accepts any certificate.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
