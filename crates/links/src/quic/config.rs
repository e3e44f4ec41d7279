//! Settings of the QUIC library `quinn-proto`.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{hkdf, hmac};
use quinn_proto::congestion::{BbrConfig, CubicConfig};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    AckFrequencyConfig, ClientConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig,
    ServerConfig, TransportConfig, VarInt,
};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::Suite;

use super::epoch::TokenClock;
use super::link::STREAMS;
use super::lossy;
use super::socket_index::{SocketIndex, SocketIndexIds};
use crate::tls::Context;
use crate::tls::setup::{SetupError, setup};

/// Receive window in bytes of a connection, and of each of its streams. It limits the data that
/// the QUIC library buffers while data of a lost datagram is missing.
const WINDOW: u32 = 4 << 20;
/// Idle timeout of a QUIC connection. After it, the connection's circuits continue on another
/// link. If UDP becomes blocked, streams stall for this time.
const IDLE: Duration = Duration::from_secs(15);
/// Interval of keep-alive packets on an idle connection. Three of these packets are sent before
/// `IDLE` ends the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(4);
/// Lifetime of a Retry token.
const RETRY: Duration = Duration::from_secs(15);

/// Largest UDP payload in bytes that path MTU discovery (RFC 8899) tries: Ethernet's MTU without
/// the headers of IPv4 and UDP.
pub(super) const LARGEST_DATAGRAM: u16 = 1_472;
/// Smallest increase in bytes that path MTU discovery still tries. With `quinn-proto`'s default of
/// 20, a path over IPv6 would get 1,438 bytes, although it carries 1,452.
const SEARCH_STEP: u16 = 5;

/// Number of datagrams that the peer may receive before it must acknowledge them
/// (draft-ietf-quic-ack-frequency). The default of `quinn-proto` is 1.
const UNACKNOWLEDGED: u32 = 10;
/// Maximum delay of an acknowledgement if at most [`UNACKNOWLEDGED`] datagrams wait for it. It is
/// the shortest delay that `quinn-proto` accepts. If the congestion window has at most
/// [`UNACKNOWLEDGED`] datagrams, this delay lengthens each round trip.
const ACK_DELAY: Duration = Duration::from_millis(1);

/// Congestion control of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438), which reduces the rate at every loss.
    #[default]
    Cubic,
    /// BBR as implemented by `quinn-proto`, which calls it experimental. It sends at the estimated
    /// delivery rate.
    Bbr,
}

/// Returns the settings of a connection. It accepts DATAGRAM frames (RFC 9221) only if `datagrams`
/// is true.
fn transport(congestion: Congestion, datagrams: bool) -> Result<Arc<TransportConfig>, SetupError> {
    let mut transport = TransportConfig::default();
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(LARGEST_DATAGRAM).minimum_change(SEARCH_STEP);
    match congestion {
        // The library's BBR needs all acknowledgements: with fewer, transfers at 5 Mbit/s stalled.
        Congestion::Cubic => transport
            .congestion_controller_factory(Arc::new(CubicConfig::default()))
            .ack_frequency_config(Some(acknowledgements())),
        Congestion::Bbr => transport.congestion_controller_factory(Arc::new(BbrConfig::default())),
    };
    transport
        .max_concurrent_bidi_streams(STREAMS.into())
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOW.into())
        .max_idle_timeout(Some(IdleTimeout::try_from(IDLE).map_err(setup)?))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .mtu_discovery_config(Some(discovery))
        .datagram_receive_buffer_size(datagrams.then_some(lossy::RECEIVING))
        .datagram_send_buffer_size(lossy::SENDING)
        // The spin bit would reveal round-trip times to an observer (RFC 9000, section 17.4).
        .allow_spin(false);
    Ok(Arc::new(transport))
}

/// Returns the frequency of acknowledgements that we request from the peer.
fn acknowledgements() -> AckFrequencyConfig {
    let mut frequency = AckFrequencyConfig::default();
    frequency.ack_eliciting_threshold(UNACKNOWLEDGED.into()).max_ack_delay(Some(ACK_DELAY));
    frequency
}

/// Returns the settings of an endpoint whose socket has the index `place` among the sockets at one
/// address. Random choices and the stateless reset key are derived from `seed`.
pub(super) fn endpoint(seed: [u8; 32], place: SocketIndex) -> Arc<EndpointConfig> {
    let reset = hmac::Key::new(hmac::HMAC_SHA256, &[&seed[..], b"reset"].concat());
    let mut config = EndpointConfig::new(Arc::new(reset));
    config.rng_seed(Some(seed));
    config.cid_generator(move || Box::new(SocketIndexIds::new(place)));
    Arc::new(config)
}

/// Returns the settings for links that we open.
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

/// Returns the settings for links that peers open. `seed` is the secret of Retry tokens, and
/// `clock` determines their age.
pub(super) fn server(
    context: &Context,
    (seed, clock): ([u8; 32], Arc<TokenClock>),
    congestion: Congestion,
    datagrams: bool,
) -> Result<ServerConfig, SetupError> {
    let crypto =
        QuicServerConfig::with_initial(context.quic().server, initial()?).map_err(setup)?;
    let token = hkdf::Salt::new(hkdf::HKDF_SHA256, b"retry").extract(&seed);
    let mut config = ServerConfig::new(Arc::new(crypto), Arc::new(token));
    config.transport_config(transport(congestion, datagrams)?);
    config.migration(false).retry_token_lifetime(RETRY).time_source(clock);
    Ok(config)
}

/// Returns the cipher suite of Initial packets (RFC 9001, 5.2).
fn initial() -> Result<Suite, SetupError> {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite());
    suite.ok_or_else(|| setup("the TLS library has no cipher suite for QUIC"))
}
