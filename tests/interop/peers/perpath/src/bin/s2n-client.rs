//! s2n-quic's client with its defaults. Downloads one path over HTTP/0.9 ("hq-interop") or HTTP/3,
//! and prints the result as one line of JSON. HTTP/3 is supported only as far as one request needs
//! it.
//!
//! Usage: `s2n-client ADDRESS:PORT h3|hq PATH SECONDS`. Certificates are not checked, because
//! servers have self-signed ones; the test compares hashes of the content.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use peer_http::{CONTROL_STREAM, Frames, request};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use s2n_quic::Client;
use s2n_quic::client::Connect;
use s2n_quic::provider::tls;
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
        return Err("usage: s2n-client ADDRESS:PORT h3|hq PATH SECONDS".into());
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
    let tls = configuration(if h3 { "h3" } else { "hq-interop" })?;
    let client = Client::builder().with_tls(tls)?.with_io("0.0.0.0:0")?.start()?;
    let connect = Connect::new(server).with_server_name("localhost");
    let mut connection = client.connect(connect).await?;
    let _control = match h3 {
        true => {
            let mut stream = connection.open_send_stream().await?;
            stream.send(Bytes::from_static(&CONTROL_STREAM)).await?;
            Some(stream)
        }
        false => None,
    };
    let mut stream = connection.open_bidirectional_stream().await?;
    let asked = match h3 {
        true => request(&server.to_string(), path),
        false => format!("GET {path}\r\n").into_bytes(),
    };
    stream.send(Bytes::from(asked)).await?;
    stream.finish()?;
    let mut frames = Frames::default();
    while let Some(piece) = stream.receive().await? {
        match h3 {
            true => frames.data(&piece, |data| body.take(data)),
            false => body.take(&piece),
        }
    }
    connection.close(0_u32.into());
    Ok(())
}

fn configuration(protocol: &str) -> Result<tls::rustls::Client, Failure> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unchecked(provider)))
        .with_no_client_auth();
    tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Ok(tls.into())
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
