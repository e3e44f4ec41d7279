//! quinn's client with its defaults. Downloads one path over HTTP/0.9 ("hq-interop") or HTTP/3, and
//! prints the result as one line of JSON. HTTP/3 is supported only as far as one request needs it.
//!
//! Usage: `quinn-client ADDRESS:PORT h3|hq PATH SECONDS`. Certificates are not checked, because
//! servers have self-signed ones; the test compares hashes of the content.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, RecvStream};
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
    // The control stream of HTTP/3 with empty SETTINGS (RFC 9114, 6.2.1 and 7.2.4).
    let mut control = connection.open_uni().await?;
    if h3 {
        control.write_all(&[0, 4, 0]).await?;
    }
    let (mut send, mut receive) = connection.open_bi().await?;
    let request = match h3 {
        true => request(&server.to_string(), path),
        false => format!("GET {path}\r\n").into_bytes(),
    };
    send.write_all(&request).await?;
    send.finish()?;
    if h3 { take_frames(&mut receive, body).await? } else { take_all(&mut receive, body).await? }
    connection.close(0_u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}

/// Returns a HEADERS frame with only static names and literal values (RFC 9204, section 4.5 and
/// appendix A).
fn request(authority: &str, path: &str) -> Vec<u8> {
    // Indexed: ":method: GET" is 17, ":scheme: https" 23; named: ":authority" is 0, ":path" 1.
    let mut fields = vec![0, 0, 0xc0 | 17, 0xc0 | 23];
    for (name, value) in [(0x50, authority), (0x51, path)] {
        fields.extend([name, value.len() as u8]);
        fields.extend(value.as_bytes());
    }
    assert!(fields.len() < 64, "a length of one byte");
    [&[1, fields.len() as u8][..], &fields].concat()
}

/// Reads the payloads of DATA frames, and skips other frames.
async fn take_frames(receive: &mut RecvStream, body: &mut Body) -> Result<(), Failure> {
    while let Some(kind) = varint(receive).await? {
        let mut left = varint(receive).await?.ok_or("a frame without a length")?;
        while left > 0 {
            let most = usize::try_from(left.min(1 << 16))?;
            let piece = receive.read_chunk(most, true).await?.ok_or("a frame that is cut off")?;
            left -= piece.bytes.len() as u64;
            if kind == 0 {
                body.take(&piece.bytes);
            }
        }
    }
    Ok(())
}

async fn take_all(receive: &mut RecvStream, body: &mut Body) -> Result<(), Failure> {
    while let Some(piece) = receive.read_chunk(1 << 16, true).await? {
        body.take(&piece.bytes);
    }
    Ok(())
}

/// Reads a variable-length integer (RFC 9000, section 16). Returns `None` at the end of the stream.
async fn varint(receive: &mut RecvStream) -> Result<Option<u64>, Failure> {
    let Some(first) = receive.read_chunk(1, true).await? else { return Ok(None) };
    let first = first.bytes[0];
    let mut rest = [0; 7];
    let rest = &mut rest[..(1 << (first >> 6)) - 1];
    receive.read_exact(rest).await?;
    let value = rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Ok(Some(value))
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
