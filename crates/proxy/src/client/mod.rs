//! The client's side of a dialogue with a proxy, for programs that connect through a proxy.
//!
//! [`SocksDialogue`] and [`HttpDialogue`] append the bytes to send to a buffer, and accept the
//! proxy's bytes in pieces of any length. They buffer at most one answer of bounded length. Their
//! errors describe the behaviour of the proxy.

mod http;
mod socks;

use std::fmt;
use std::net::IpAddr;

pub use http::HttpDialogue;
pub use socks::{SocksDialogue, SocksGrant, SocksRequest};

use crate::names::name;

/// A user name and a password, each of 1 to 255 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The host and port that a proxy is asked to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    host: String,
    port: u16,
}

impl Destination {
    /// Creates a destination. `host` is a name or an address without brackets. Returns `None` if
    /// `host` is not valid, or if the port is 0.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Option<Destination> {
        let is_address = host.parse::<IpAddr>().is_ok();
        let host = name(host.as_bytes()).filter(|host| is_address || !host.contains(':'))?;
        (port != 0).then_some(Destination { host, port })
    }

    fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Destination { host, port } = self;
        match self.address() {
            Some(IpAddr::V6(_)) => write!(f, "[{host}]:{port}"),
            _ => write!(f, "{host}:{port}"),
        }
    }
}

/// Error: a proxy cannot be used, for one of these reasons. The message of the error continues a
/// sentence that begins with the proxy's name, as in "the proxy 192.0.2.1:1080 wants …".
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientFault {
    /// The proxy's answer begins with this byte, which the protocol does not allow.
    Foreign(u8),
    /// The proxy requires a user name and a password, and none were given.
    LoginWanted,
    /// The proxy accepts none of the authentication methods of this client: no authentication, or
    /// user name and password.
    NoMethod,
    /// The proxy refuses the user name or the password.
    LoginRefused,
    /// The user name or the password cannot be sent in this protocol.
    UnfitLogin,
    /// The proxy does not support the command of the request (SOCKS5).
    NoCommand,
    /// The proxy refuses the request, for this reason.
    Refused(String),
    /// The proxy's answer is malformed. The text describes how.
    Garbage(String),
    /// The proxy's answer is not complete after this number of bytes.
    Endless(usize),
}

impl fmt::Display for ClientFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientFault::Foreign(byte) => {
                write!(
                    f,
                    "does not speak the expected proxy protocol (its answer begins with \
                     0x{byte:02x}): check its address and port"
                )
            }
            ClientFault::LoginWanted => f.write_str("wants a user name and a password"),
            ClientFault::NoMethod => f.write_str(
                "accepts neither a user name with a password nor clients without a login",
            ),
            ClientFault::LoginRefused => {
                f.write_str("refuses the user name or the password: check both")
            }
            ClientFault::UnfitLogin => f.write_str(
                "cannot receive the given user name and password: each needs 1 to 255 bytes, and \
                 an HTTP proxy's user name must not contain a colon",
            ),
            ClientFault::NoCommand => f.write_str("does not support the requested SOCKS5 command"),
            ClientFault::Refused(why) => write!(f, "refuses: {why}"),
            ClientFault::Garbage(what) => write!(f, "sent a malformed answer: {what}"),
            ClientFault::Endless(bytes) => {
                write!(f, "sent more than {bytes} bytes without completing its answer")
            }
        }
    }
}

impl std::error::Error for ClientFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_shows_as_an_authority() {
        let shown = |host: &str, port| Destination::new(host, port).map(|to| to.to_string());
        assert_eq!(shown("far.example.net", 443).as_deref(), Some("far.example.net:443"));
        assert_eq!(shown("2001:db8::1", 9).as_deref(), Some("[2001:db8::1]:9"));
        assert_eq!(shown("192.0.2.1", 1).as_deref(), Some("192.0.2.1:1"));
        for host in ["", "a b", "a\r\nHost: b", "a:b", "ä", &"x".repeat(256)] {
            assert_eq!(shown(host, 443), None, "{host}");
        }
        assert_eq!(shown("a", 0), None);
    }

    #[test]
    fn a_password_shows_nowhere() {
        let login = Credentials { user: "anna".into(), password: "secret".into() };
        assert!(!format!("{login:?}").contains("secret"));
    }
}
