//! quinn's server with its defaults, speaking HTTP/0.9 ("hq-interop"): `GET /bytes/N` answers with
//! the first N bytes of the seeded stream that all test servers share.
//!
//! Usage: `quinn-server ADDRESS:PORT SEED`

use std::{error::Error, net::SocketAddr, sync::Arc};

use quinn::{Connection, Endpoint, Incoming, SendStream, crypto::rustls::QuicServerConfig};
use rustls::pki_types::PrivateKeyDer;
use sha2::{Digest, Sha256};

type Failure = Box<dyn Error + Send + Sync>;

/// Number of digests in a write, which thus has 16 KiB.
const DIGESTS_IN_A_WRITE: u64 = 512;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let listen: SocketAddr = arguments.next().ok_or("no address given")?.parse()?;
    let seed: u64 = arguments.next().ok_or("no seed given")?.parse()?;
    let endpoint = Endpoint::server(configuration()?, listen)?;
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            if let Err(error) = serve(incoming, seed).await {
                eprintln!("connection ended: {error}");
            }
        });
    }
    Ok(())
}

/// Returns quinn's default configuration with our ALPN and a self-signed certificate, which clients
/// do not check.
fn configuration() -> Result<quinn::ServerConfig, Failure> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    tls.alpn_protocols = vec![b"hq-interop".to_vec()];
    let crypto = QuicServerConfig::try_from(tls)?;
    Ok(quinn::ServerConfig::with_crypto(Arc::new(crypto)))
}

async fn serve(incoming: Incoming, seed: u64) -> Result<(), Failure> {
    let connection: Connection = incoming.await?;
    loop {
        let (mut send, mut receive) = match connection.accept_bi().await {
            Err(quinn::ConnectionError::ApplicationClosed(_)) => return Ok(()),
            accepted => accepted?,
        };
        let request = receive.read_to_end(1024).await?;
        tokio::spawn(async move {
            match length_asked_for(&request) {
                Some(length) => drop(send_bytes(&mut send, seed, length).await),
                None => drop(send.reset(1_u32.into())),
            }
        });
    }
}

/// Returns the N of `GET /bytes/N`.
fn length_asked_for(request: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(request).ok()?.trim_end();
    line.strip_prefix("GET /bytes/")?.parse().ok()
}

async fn send_bytes(send: &mut SendStream, seed: u64, length: u64) -> Result<(), Failure> {
    let mut left = length;
    let mut block = 0;
    while left > 0 {
        let mut piece = digests(seed, block);
        piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        send.write_all(&piece).await?;
        left -= piece.len() as u64;
        block += DIGESTS_IN_A_WRITE;
    }
    send.finish()?;
    send.stopped().await?;
    Ok(())
}

/// Returns SHA-256("anabranch" || seed || i) for the next `DIGESTS_IN_A_WRITE` values of i,
/// concatenated.
fn digests(seed: u64, first: u64) -> Vec<u8> {
    (first..first + DIGESTS_IN_A_WRITE)
        .flat_map(|block| {
            let input = [b"anabranch".as_slice(), &seed.to_be_bytes(), &block.to_be_bytes()].concat();
            Sha256::digest(input)
        })
        .collect()
}
