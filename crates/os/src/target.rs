//! Servers as users write them: a host and a port.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// A server as the user writes it: `vpn.example.net:51820`, `192.0.2.1:443`, `[2001:db8::1]:443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The host: a name, or an address without brackets.
    pub host: String,
    /// The UDP port, above 0.
    pub port: u16,
}

/// Error: a text is not a host and a port, such as `192.0.2.1:443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetError(String);

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.0.rsplit(':').next().unwrap_or_default();
        let bad_port = port.parse::<u64>().is_ok_and(|port| !(1..=65_535).contains(&port));
        let why = if bad_port { "; ports are 1 to 65535" } else { "" };
        let form = "write HOST:PORT, with an IPv6 address in brackets";
        write!(f, "'{}' is not a server's address: {form}{why}", self.0)
    }
}

impl std::error::Error for TargetError {}

impl Target {
    /// Returns the server's address if the host is an IP address, and `None` if it is a name. An
    /// address with an IPv6 zone counts as a name.
    pub fn literal(&self) -> Option<SocketAddr> {
        let ip: IpAddr = self.host.parse().ok()?;
        Some(SocketAddr::new(ip, self.port))
    }

    /// Resolves the host and returns all of its addresses, at least one, in the resolver's order.
    /// This may take seconds, because name servers are queried.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let found: Vec<_> = (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        if found.is_empty() { Err(io::Error::other("the name has no address")) } else { Ok(found) }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        let error = || TargetError(text.into());
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let port: u16 = port.parse().map_err(|_| error())?;
        let host = bare.unwrap_or(host);
        let good = !host.is_empty() && port > 0 && bare.is_some() == host.contains(':');
        if good { Ok(Target { host: host.into(), port }) } else { Err(error()) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for text in ["vpn.example.net:51820", "192.0.2.1:443", "[2001:db8::1]:443"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_address_needs_no_resolver() {
        let literal = |text: &str| text.parse::<Target>().unwrap().literal();
        assert_eq!(literal("192.0.2.1:443"), "192.0.2.1:443".parse().ok());
        assert_eq!(literal("[2001:db8::1]:443"), "[2001:db8::1]:443".parse().ok());
        assert_eq!(literal("vpn.example.net:443"), None);
        assert_eq!(literal("[fe80::1%eth0]:443"), None);
    }

    #[test]
    fn a_port_out_of_range_is_named() {
        let why = |text: &str| text.parse::<Target>().unwrap_err().to_string();
        assert!(why("vpn:80000").ends_with("in brackets; ports are 1 to 65535"));
        assert!(why("vpn:0").ends_with("; ports are 1 to 65535"));
        assert!(why("vpn:http").ends_with("in brackets"));
    }

    #[test]
    fn a_server_without_host_or_port_is_refused() {
        for text in ["", "vpn", ":1", "vpn:", "vpn:0", "vpn:65536", "2001:db8::1:443", "[vpn]:1"] {
            assert_eq!(text.parse::<Target>(), Err(TargetError(text.into())), "{text}");
        }
    }
}
