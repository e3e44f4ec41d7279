//! Parts of SOCKS5 messages that both sides of a dialogue read and write (RFC 1928, RFC 1929).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Version of the SOCKS protocol, which is the first byte of its messages.
pub(crate) const VERSION: u8 = 5;
/// Version of the login protocol, which is the first byte of its messages (RFC 1929, section 2).
pub(crate) const LOGIN_VERSION: u8 = 1;
/// The command CONNECT (RFC 1928, section 4).
pub(crate) const CONNECT: u8 = 1;
/// The command UDP ASSOCIATE (RFC 1928, section 4).
pub(crate) const ASSOCIATE: u8 = 3;

/// Authentication methods (RFC 1928, section 3).
pub(crate) mod method {
    /// No authentication.
    pub(crate) const NONE: u8 = 0;
    /// User name and password (RFC 1929).
    pub(crate) const PASSWORD: u8 = 2;
    /// None of the offered methods is acceptable.
    pub(crate) const NO_ACCEPTABLE: u8 = 0xff;
}

/// Address type of an IPv4 address (RFC 1928, section 5).
const IPV4: u8 = 1;
/// Address type of a host name (RFC 1928, section 5).
const NAME: u8 = 3;
/// Address type of an IPv6 address (RFC 1928, section 5).
const IPV6: u8 = 4;

/// An address in a SOCKS5 message, with its port (RFC 1928, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocksAddress<'m> {
    /// An IP address and a port.
    Socket(SocketAddr),
    /// The bytes of a host name, and a port.
    Name(&'m [u8], u16),
}

/// Error: an address has a type that RFC 1928 does not define.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownType(pub u8);

impl<'m> SocksAddress<'m> {
    /// Parses type, address and port at the front of `bytes`. Returns the address with its port,
    /// and the length of all three fields. Returns `None` while they are incomplete.
    ///
    /// # Errors
    /// RFC 1928 does not define the type of the address.
    pub fn read(bytes: &'m [u8]) -> Result<Option<(SocksAddress<'m>, usize)>, UnknownType> {
        let Some((&kind, rest)) = bytes.split_first() else { return Ok(None) };
        let found = match kind {
            IPV4 => rest
                .split_first_chunk()
                .and_then(|(ip, rest)| socket(IpAddr::from(Ipv4Addr::from(*ip)), rest)),
            IPV6 => rest
                .split_first_chunk()
                .and_then(|(ip, rest)| socket(IpAddr::from(Ipv6Addr::from(*ip)), rest)),
            NAME => named(rest),
            other => return Err(UnknownType(other)),
        };
        Ok(found.map(|(address, rest)| (address, bytes.len() - rest.len())))
    }

    /// Appends type, address and port. A name is truncated to 255 bytes.
    pub fn write(self, out: &mut Vec<u8>) {
        let port = match self {
            SocksAddress::Socket(socket) => {
                match socket.ip() {
                    IpAddr::V4(ip) => out.extend([&[IPV4][..], &ip.octets()].concat()),
                    IpAddr::V6(ip) => out.extend([&[IPV6][..], &ip.octets()].concat()),
                }
                socket.port()
            }
            SocksAddress::Name(name, port) => {
                let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
                out.extend([NAME, length]);
                out.extend(&name[..length.into()]);
                port
            }
        };
        out.extend(port.to_be_bytes());
    }
}

fn socket(ip: IpAddr, rest: &[u8]) -> Option<(SocksAddress<'_>, &[u8])> {
    let (port, rest) = rest.split_first_chunk()?;
    Some((SocksAddress::Socket(SocketAddr::new(ip, u16::from_be_bytes(*port))), rest))
}

fn named(rest: &[u8]) -> Option<(SocksAddress<'_>, &[u8])> {
    let (&length, rest) = rest.split_first()?;
    let (name, rest) = rest.split_at_checked(length.into())?;
    let (port, rest) = rest.split_first_chunk()?;
    Some((SocksAddress::Name(name, u16::from_be_bytes(*port)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_no_part_of_it_is() {
        let socket = |text: &str| SocksAddress::Socket(text.parse().unwrap());
        let name = SocksAddress::Name(b"far.example.net", 443);
        for address in [socket("192.0.2.1:443"), socket("[2001:db8::1]:9"), name] {
            let mut bytes = Vec::new();
            address.write(&mut bytes);
            for length in 0..bytes.len() {
                assert_eq!(SocksAddress::read(&bytes[..length]), Ok(None), "{address:?}");
            }
            let length = bytes.len();
            bytes.extend(b"rest");
            assert_eq!(SocksAddress::read(&bytes), Ok(Some((address, length))));
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_and_an_unknown_type_refused() {
        let mut bytes = Vec::new();
        SocksAddress::Name(&[b'x'; 300], 1).write(&mut bytes);
        assert_eq!(bytes.len(), 2 + 255 + 2);
        assert_eq!(SocksAddress::read(&[7, 0]), Err(UnknownType(7)));
    }
}
