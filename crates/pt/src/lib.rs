#![doc = include_str!("../README.md")]
//!
//! # Tour
//!
//! Both sides of Tor's pluggable transports, version 1 (pt-spec): the text and the bytes that a
//! transport exchanges with its manager, the program that starts it. The crate does no I/O;
//! `router::pt` starts processes and opens sockets.
//!
//! * [`Environment`] is the set of environment variables that a transport receives. [`Line`] is a
//!   line of a transport's standard output.
//! * [`Manager`] is the managing side, for any transport.
//! * [`Args`] are the key-value pairs of a bridge, as in bridge lines, SOCKS requests, `SMETHOD`
//!   lines and torrc's `ServerTransportOptions`.
//! * [`BridgeLine`] is a bridge line. [`PluginLine`] names the program of each transport.
//!   [`OfferLine`] is a transport that a bridge's operator offers.
//! * [`SocksClient`] asks a transport for a connection to a bridge.
//! * [`ExtOrClient`] and [`ExtOrServer`] speak the Extended ORPort protocol (ext-orport-spec), in
//!   which a transport reports the client's address to its relay.

mod args;
mod bridge;
mod environment;
mod ext_or;
mod line;
mod manager;
mod offer;
mod plugin;
mod socks;

pub use args::{Args, ArgsError};
pub use bridge::{BridgeError, BridgeLine};
pub use environment::{
    Client, Environment, EnvironmentError, Outbound, Server, ServerMethod, Side,
};
pub use ext_or::{COOKIE_FILE, ConnectionInfo, ExtOrClient, ExtOrError, ExtOrServer};
pub use line::{Line, Protocol, Severity, is_name};
pub use manager::{Failure, Manager, Method};
pub use offer::{OfferError, OfferLine};
pub use plugin::{PluginError, PluginLine, PluginPlace};
pub use socks::{SocksClient, SocksRefusal};
