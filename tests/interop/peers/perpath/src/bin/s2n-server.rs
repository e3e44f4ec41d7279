//! s2n-quic's server with its defaults, speaking HTTP/3 as far as one request needs it, and
//! HTTP/0.9 ("hq-interop"): `GET /bytes/N` answers with the first N bytes of the seeded stream that
//! all test servers share.
//!
//! Usage: `s2n-server ADDRESS:PORT CERTIFICATE KEY SEED`

use std::{error::Error, path::Path};

use bytes::Bytes;
use peer_http::{CONTROL_STREAM, length_asked_for, path_of, pieces, response_head};
use s2n_quic::provider::tls::rustls;
use s2n_quic::stream::BidirectionalStream;
use s2n_quic::{Connection, Server};

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, certificate, key, seed] = &arguments[..] else {
        return Err("usage: s2n-server ADDRESS:PORT CERTIFICATE KEY SEED".into());
    };
    let seed = seed.parse()?;
    let tls = rustls::Server::builder()
        .with_certificate(Path::new(certificate), Path::new(key))?
        .with_application_protocols(["h3", "hq-interop"].iter())?
        .build()?;
    let mut server = Server::builder().with_tls(tls)?.with_io(listen.as_str())?.start()?;
    while let Some(connection) = server.accept().await {
        tokio::spawn(async move {
            if let Err(error) = serve(connection, seed).await {
                eprintln!("connection ended: {error}");
            }
        });
    }
    Ok(())
}

async fn serve(mut connection: Connection, seed: u64) -> Result<(), Failure> {
    let h3 = connection.application_protocol()? == "h3";
    // It must stay open as long as the connection (RFC 9114, section 6.2.1).
    let mut control = None;
    if h3 {
        let stream = control.insert(connection.open_send_stream().await?);
        stream.send(Bytes::from_static(&CONTROL_STREAM)).await?;
    }
    while let Ok(Some(stream)) = connection.accept_bidirectional_stream().await {
        tokio::spawn(async move {
            if let Err(error) = answer(stream, seed, h3).await {
                eprintln!("stream ended: {error}");
            }
        });
    }
    Ok(())
}

async fn answer(mut stream: BidirectionalStream, seed: u64, h3: bool) -> Result<(), Failure> {
    let mut request = Vec::new();
    while let Some(piece) = stream.receive().await? {
        request.extend_from_slice(&piece);
    }
    let path = path_of(&request, h3).ok_or("not a GET")?;
    let length = length_asked_for(&path).ok_or("no such path")?;
    if h3 {
        stream.send(Bytes::from(response_head(length))).await?;
    }
    for piece in pieces(seed, length) {
        stream.send(Bytes::from(piece)).await?;
    }
    stream.close().await?;
    Ok(())
}
