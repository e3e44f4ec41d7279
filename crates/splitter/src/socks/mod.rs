//! SOCKS5 proxies (RFC 1928), with user name and password (RFC 1929): how they are named, how one
//! relays UDP for us, and how datagrams travel to it.
//!
//! * [`Proxy`] is what a user writes: `[USER[:PASSWORD]@]HOST:PORT`.
//! * [`associate`] reaches a proxy and asks it to relay: an [`Association`] is the TCP connection
//!   that keeps the relay alive, and the relay's address. It blocks, so it has a thread of its own.
//! * [`Header`] goes before each datagram to the relay; [`Opened`] takes it off the answers.
//!
//! The messages are those of `anabranch_proxy`: the libraries for clients that relay UDP bring an
//! asynchronous runtime.

mod association;
mod dialogue;
mod fault;
mod packet;
mod proxy;

pub use anabranch_proxy::client::Credentials;
pub use association::{Association, Reach, associate};
pub(crate) use association::{Hasty, connect, is_over};
pub use dialogue::converse;
pub use fault::ProxyFault;
pub use packet::{Header, Opened};
pub use proxy::{Login, PASSWORD_VARIABLE, Password, Proxy, ProxyError};
