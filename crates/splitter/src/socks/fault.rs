//! Faults of proxies.

use std::fmt;
use std::io;

use anabranch_proxy::client::ClientFault;

/// A fault of a proxy. The message continues a sentence that begins with the proxy's name, as in
/// "the proxy 192.0.2.1:1080 does not answer in time".
#[derive(Debug)]
pub enum ProxyFault {
    /// The proxy's name does not resolve.
    Name(io::Error),
    /// The password for the proxy cannot be used, for this reason.
    Password(String),
    /// The TCP connection to the proxy could not be established.
    Connect(io::Error),
    /// The proxy does not answer in time.
    Timeout,
    /// The proxy's answer begins with this byte, which is not SOCKS's version.
    NotSocks(u8),
    /// The proxy requires a user name and a password, and none were given.
    LoginWanted,
    /// The proxy accepts no authentication method that we support.
    NoMethod,
    /// The proxy refuses the user name or the password.
    LoginRefused,
    /// The proxy does not relay UDP at all.
    NoUdp,
    /// The proxy refuses to relay for us, for this reason.
    Refused(String),
    /// The proxy closed the connection during the SOCKS dialogue.
    HungUp,
    /// The proxy sent an answer that RFC 1928 does not allow. The field describes it.
    Garbage(String),
    /// The connection to the proxy broke.
    Io(io::Error),
    /// The proxy closed the connection that keeps the relay alive, or the relay's port is closed.
    Lost,
}

impl ProxyFault {
    /// Converts an I/O error of the connection to the proxy during the SOCKS dialogue.
    pub(crate) fn of_stream(error: io::Error) -> ProxyFault {
        use io::ErrorKind;
        match error.kind() {
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::WriteZero => ProxyFault::HungUp,
            ErrorKind::TimedOut | ErrorKind::WouldBlock => ProxyFault::Timeout,
            _ => ProxyFault::Io(error),
        }
    }

    /// Converts an I/O error of an attempt to connect to a proxy.
    pub(crate) fn of_connecting(error: io::Error) -> ProxyFault {
        match error.kind() {
            io::ErrorKind::TimedOut => ProxyFault::Timeout,
            _ => ProxyFault::Connect(error),
        }
    }
}

impl From<ClientFault> for ProxyFault {
    fn from(fault: ClientFault) -> ProxyFault {
        match fault {
            ClientFault::Foreign(byte) => ProxyFault::NotSocks(byte),
            ClientFault::LoginWanted => ProxyFault::LoginWanted,
            ClientFault::NoMethod => ProxyFault::NoMethod,
            ClientFault::LoginRefused => ProxyFault::LoginRefused,
            ClientFault::NoCommand => ProxyFault::NoUdp,
            ClientFault::Refused(why) => ProxyFault::Refused(why),
            ClientFault::Garbage(what) => ProxyFault::Garbage(what),
            other => ProxyFault::Password(other.to_string()),
        }
    }
}

impl fmt::Display for ProxyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProxyFault::Name(error) => write!(f, "has a name that does not resolve: {error}"),
            ProxyFault::Password(what) => write!(f, "has no password: {what}"),
            ProxyFault::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                f.write_str("does not listen at this address (connection refused)")
            }
            ProxyFault::Connect(error) => write!(f, "cannot be reached: {error}"),
            ProxyFault::Timeout => f.write_str("does not answer in time"),
            ProxyFault::NotSocks(byte) => {
                write!(
                    f,
                    "does not speak SOCKS5 (its answer begins with 0x{byte:02x}): check its \
                     address and port"
                )
            }
            ProxyFault::LoginWanted => f.write_str(
                "wants a user name and a password: write socks5:USER@HOST:PORT, or 'user' and \
                 'password' in the settings file",
            ),
            ProxyFault::NoMethod => f.write_str(
                "accepts neither a user name with a password nor clients without a login (it may \
                 require GSSAPI, which is not supported)",
            ),
            ProxyFault::LoginRefused => {
                f.write_str("refuses the user name or the password: check both")
            }
            ProxyFault::NoUdp => {
                f.write_str("does not relay UDP (no UDP ASSOCIATE): use another proxy")
            }
            ProxyFault::Refused(why) => write!(f, "refuses to relay UDP: {why}"),
            ProxyFault::HungUp => f.write_str("closed the connection during the SOCKS5 handshake"),
            ProxyFault::Garbage(what) => {
                write!(f, "sent an answer that SOCKS5 does not allow: {what}")
            }
            ProxyFault::Io(error) => write!(f, "closed the connection: {error}"),
            ProxyFault::Lost => {
                f.write_str("closed its control connection, or no longer relays UDP")
            }
        }
    }
}

impl std::error::Error for ProxyFault {}
