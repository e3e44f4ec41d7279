//! quiche's HTTP/3 server (tokio-quiche) with its defaults, except for one. The last argument is
//! the number of connection IDs, and thus of paths, that a client may have (quiche's default is 2).
//! `/bytes/N` answers with the first N bytes of the seeded stream that all test servers share.
//!
//! Usage: `quiche-server ADDRESS:PORT CERTIFICATE KEY SEED PATHS`

use std::error::Error;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use peer_http::{length_asked_for, pieces};
use tokio::net::UdpSocket;
use tokio_quiche::http3::driver::{IncomingH3Headers, OutboundFrame, ServerH3Event};
use tokio_quiche::http3::settings::Http3Settings;
use tokio_quiche::metrics::DefaultMetrics;
use tokio_quiche::quiche::h3::{Header, NameValue};
use tokio_quiche::settings::{CertificateKind, Hooks, QuicSettings, TlsCertificatePaths};
use tokio_quiche::{ConnectionParams, ServerH3Controller, ServerH3Driver, listen};

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, certificate, key, seed, paths] = &arguments[..] else {
        return Err("usage: quiche-server ADDRESS:PORT CERTIFICATE KEY SEED PATHS".into());
    };
    let seed = seed.parse()?;
    let mut settings = QuicSettings::default();
    settings.active_connection_id_limit = paths.parse()?;
    let identity =
        TlsCertificatePaths { cert: certificate, private_key: key, kind: CertificateKind::X509 };
    let parameters = ConnectionParams::new_server(settings, identity, Hooks::default());
    let mut listeners = listen([UdpSocket::bind(address).await?], parameters, DefaultMetrics)?;
    while let Some(connection) = listeners[0].next().await {
        let (driver, controller) = ServerH3Driver::new(Http3Settings::default());
        connection?.start(driver);
        tokio::spawn(serve(controller, seed));
    }
    Ok(())
}

async fn serve(mut controller: ServerH3Controller, seed: u64) {
    while let Some(event) = controller.event_receiver_mut().recv().await {
        if let ServerH3Event::Headers { incoming_headers, .. } = event {
            tokio::spawn(answer(incoming_headers, seed));
        }
    }
}

/// Answers a request. It is no error if the client closes the connection meanwhile.
async fn answer(mut request: IncomingH3Headers, seed: u64) {
    let path = request.headers.iter().find(|header| header.name() == b":path");
    let length =
        path.and_then(|header| std::str::from_utf8(header.value()).ok()).and_then(length_asked_for);
    let status: &[u8] = if length.is_some() { b"200" } else { b"404" };
    let head = OutboundFrame::Headers(vec![Header::new(b":status", status)], None);
    let mut open = request.send.send(head).await.is_ok();
    for piece in pieces(seed, length.unwrap_or(0)) {
        let body = OutboundFrame::Body(Bytes::from(piece), false);
        open = open && request.send.send(body).await.is_ok();
    }
    if open {
        drop(request.send.send(OutboundFrame::Body(Bytes::new(), true)).await);
    }
}
