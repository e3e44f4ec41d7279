//! SOCKS5 proxies (RFC 1928), with user name and password (RFC 1929): the user's notation, UDP
//! associations, and the headers of relayed datagrams.
//!
//! * [`Proxy`] is the user's notation: `[USER[:PASSWORD]@]HOST:PORT`.
//! * [`associate`] connects to a proxy and asks it to relay datagrams. An [`Association`] is the
//!   TCP connection that keeps the relay alive, and the relay's address. The call blocks, so the
//!   caller uses a separate thread.
//! * [`Header`] precedes each datagram to the relay; [`RelayedDatagrams`] removes it from the
//!   answers.
//!
//! The dialogue uses the messages of `anabranch_proxy`, because SOCKS libraries that support UDP
//! require an asynchronous runtime.

mod association;
mod dialogue;
mod fault;
mod packet;
mod proxy;

pub use anabranch_proxy::client::Credentials;
pub use association::{Association, ConnectSettings, associate};
pub(crate) use association::{DeadlineStream, connect, is_over};
pub use dialogue::converse;
pub use fault::ProxyFault;
pub use packet::{Header, RelayedDatagrams};
pub use proxy::{Login, PASSWORD_VARIABLE, Password, Proxy, ProxyError};
