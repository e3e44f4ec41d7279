//! The library's settings.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{hkdf, hmac};
use quinn_proto::congestion::{BbrConfig, CubicConfig};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt,
};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::Suite;

use super::link::LANES;
use super::lossy;
use super::place::{Place, PlacedIds};
use crate::tls::Context;
use crate::tls::setup::{SetupError, setup};

/// Bytes that may lie unread in a connection, and in each of its streams: what overtook a lost
/// datagram.
const WINDOW: u32 = 4 << 20;
/// A connection of which nothing is heard ends then, and what was on it goes on by another: so long
/// do streams stall where UDP is blocked.
const IDLE: Duration = Duration::from_secs(15);
/// A silent one asks whether the peer is there: three times before it ends.
const KEEP_ALIVE: Duration = Duration::from_secs(4);
/// For how long the answer to a Retry counts.
const RETRY: Duration = Duration::from_secs(15);

/// How fast a link sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438): slows down at every loss.
    #[default]
    Cubic,
    /// BBR, as the library has it, which calls it experimental: goes by the rate that arrives.
    Bbr,
}

/// Settings of a connection, which carries DATAGRAM frames with `datagrams` only.
fn transport(congestion: Congestion, datagrams: bool) -> Result<Arc<TransportConfig>, SetupError> {
    let mut transport = TransportConfig::default();
    match congestion {
        Congestion::Cubic => {
            transport.congestion_controller_factory(Arc::new(CubicConfig::default()))
        }
        Congestion::Bbr => transport.congestion_controller_factory(Arc::new(BbrConfig::default())),
    };
    transport
        .max_concurrent_bidi_streams(LANES.into())
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOW.into())
        .max_idle_timeout(Some(IdleTimeout::try_from(IDLE).map_err(setup)?))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .datagram_receive_buffer_size(datagrams.then_some(lossy::RECEIVING))
        .datagram_send_buffer_size(lossy::SENDING)
        // It would show round-trip times to whoever sees the line.
        .allow_spin(false);
    Ok(Arc::new(transport))
}

/// Settings of an endpoint; from its seed come what it draws and its stateless resets' key.
pub(super) fn endpoint(seed: [u8; 32], place: Place) -> Arc<EndpointConfig> {
    let reset = hmac::Key::new(hmac::HMAC_SHA256, &[&seed[..], b"reset"].concat());
    let mut config = EndpointConfig::new(Arc::new(reset));
    config.rng_seed(Some(seed));
    config.cid_generator(move || Box::new(PlacedIds::new(place)));
    Arc::new(config)
}

/// How links are opened.
pub(super) fn client(
    context: &Context,
    congestion: Congestion,
    datagrams: bool,
) -> Result<ClientConfig, SetupError> {
    let crypto =
        QuicClientConfig::with_initial(context.quic().client, initial()?).map_err(setup)?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport(congestion, datagrams)?);
    Ok(config)
}

/// How links are taken.
pub(super) fn server(
    context: &Context,
    seed: [u8; 32],
    congestion: Congestion,
    datagrams: bool,
) -> Result<ServerConfig, SetupError> {
    let crypto =
        QuicServerConfig::with_initial(context.quic().server, initial()?).map_err(setup)?;
    let token = hkdf::Salt::new(hkdf::HKDF_SHA256, b"retry").extract(&seed);
    let mut config = ServerConfig::new(Arc::new(crypto), Arc::new(token));
    config.transport_config(transport(congestion, datagrams)?);
    config.migration(false).retry_token_lifetime(RETRY);
    Ok(config)
}

/// The keys of Initial packets (RFC 9001, 5.2).
fn initial() -> Result<Suite, SetupError> {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite());
    suite.ok_or_else(|| setup("the library has no suite for QUIC"))
}
