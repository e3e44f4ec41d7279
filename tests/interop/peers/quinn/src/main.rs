//! quinn's server with its defaults, speaking HTTP/3 as far as one request needs it, and HTTP/0.9
//! ("hq-interop"): `GET /bytes/N` answers with the first N bytes of the seeded stream that all test
//! servers share.
//!
//! Usage: `quinn-server ADDRESS:PORT SEED`

use std::{error::Error, net::SocketAddr, sync::Arc};

use peer_http::{CONTROL_STREAM, length_asked_for, path_of, pieces, response_head};
use quinn::crypto::rustls::{HandshakeData, QuicServerConfig};
use quinn::{Connection, Endpoint, Incoming, SendStream};
use rustls::pki_types::PrivateKeyDer;

type Failure = Box<dyn Error + Send + Sync>;

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
    tls.alpn_protocols = vec![b"h3".to_vec(), b"hq-interop".to_vec()];
    let crypto = QuicServerConfig::try_from(tls)?;
    Ok(quinn::ServerConfig::with_crypto(Arc::new(crypto)))
}

async fn serve(incoming: Incoming, seed: u64) -> Result<(), Failure> {
    let connection: Connection = incoming.await?;
    let h3 = speaks_h3(&connection);
    // It must stay open as long as the connection (RFC 9114, section 6.2.1).
    let mut control = None;
    if h3 {
        control.insert(connection.open_uni().await?).write_all(&CONTROL_STREAM).await?;
    }
    loop {
        let (mut send, mut receive) = match connection.accept_bi().await {
            Err(quinn::ConnectionError::ApplicationClosed(_)) => return Ok(()),
            accepted => accepted?,
        };
        let request = receive.read_to_end(1024).await?;
        let length = path_of(&request, h3).as_deref().and_then(length_asked_for);
        tokio::spawn(async move {
            match length {
                Some(length) => drop(send_bytes(&mut send, seed, length, h3).await),
                None => drop(send.reset(1_u32.into())),
            }
        });
    }
}

fn speaks_h3(connection: &Connection) -> bool {
    let data = connection.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    data.and_then(|data| data.protocol).as_deref() == Some(b"h3")
}

async fn send_bytes(
    send: &mut SendStream,
    seed: u64,
    length: u64,
    h3: bool,
) -> Result<(), Failure> {
    if h3 {
        send.write_all(&response_head(length)).await?;
    }
    for piece in pieces(seed, length) {
        send.write_all(&piece).await?;
    }
    send.finish()?;
    send.stopped().await?;
    Ok(())
}
