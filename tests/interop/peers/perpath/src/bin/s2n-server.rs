//! s2n-quic's server with its defaults, speaking HTTP/0.9 ("hq-interop"): `GET /bytes/N` answers
//! with the first N bytes of the seeded stream that all test servers share.
//!
//! Usage: `s2n-server ADDRESS:PORT CERTIFICATE KEY SEED`

use std::{error::Error, path::Path};

use bytes::Bytes;
use perpath_servers::{length_asked_for, pieces};
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
        .with_application_protocols(["hq-interop"].iter())?
        .build()?;
    let mut server = Server::builder().with_tls(tls)?.with_io(listen.as_str())?.start()?;
    while let Some(connection) = server.accept().await {
        tokio::spawn(serve(connection, seed));
    }
    Ok(())
}

async fn serve(mut connection: Connection, seed: u64) {
    while let Ok(Some(stream)) = connection.accept_bidirectional_stream().await {
        tokio::spawn(async move {
            if let Err(error) = answer(stream, seed).await {
                eprintln!("stream ended: {error}");
            }
        });
    }
}

async fn answer(mut stream: BidirectionalStream, seed: u64) -> Result<(), Failure> {
    let mut request = Vec::new();
    while let Some(piece) = stream.receive().await? {
        request.extend_from_slice(&piece);
    }
    let path = std::str::from_utf8(&request)?.strip_prefix("GET ").ok_or("not a GET")?;
    for piece in pieces(seed, length_asked_for(path).ok_or("no such path")?) {
        stream.send(Bytes::from(piece)).await?;
    }
    stream.close().await?;
    Ok(())
}
