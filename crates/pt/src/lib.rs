#![doc = include_str!("../README.md")]
//!
//! # Tour
//!
//! Pluggable transports, version 1 (Tor's pt-spec): what a transport and the program that manages
//! it say to each other, as texts and bytes. No I/O: `router::pt` starts processes and opens
//! sockets.
//!
//! * [`Environment`]: what a transport is told by environment variables, and [`Line`]: what it
//!   answers on its standard output;
//! * [`Manager`]: the other side of that, for a transport of somebody else's;
//! * [`Args`]: keys and values of a bridge, as bridge lines, SOCKS requests, `SMETHOD` lines and
//!   torrc's `ServerTransportOptions` write them;
//! * [`BridgeLine`]: a bridge as users have it; [`PluginLine`]: which program has which transports;
//!   [`OfferLine`]: a transport of a bridge as its operator has it;
//! * [`SocksClient`]: how a client has a transport lead it to a bridge;
//! * [`ExtOrClient`] and [`ExtOrServer`]: the Extended ORPort (Tor's ext-orport-spec), by which a
//!   transport tells a relay whose connection it brings.

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
