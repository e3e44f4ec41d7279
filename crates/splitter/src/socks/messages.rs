//! The messages of SOCKS5 (RFC 1928) as bytes, and from a blocking stream.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::fault::ProxyFault;

/// The protocol's version, first in its messages.
const VERSION: u8 = 5;
/// The command UDP ASSOCIATE (section 4).
const UDP_ASSOCIATE: u8 = 3;
/// Types of addresses (section 5).
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Replies to a request, by their numbers (section 6).
const REPLIES: [&str; 9] = [
    "succeeded",
    "general failure",
    "not allowed by its rules",
    "network unreachable",
    "host unreachable",
    "connection refused",
    "TTL expired",
    "command not supported",
    "address type not supported",
];
const SUCCEEDED: u8 = 0;
const COMMAND_NOT_SUPPORTED: u8 = 7;

/// Methods of logging in (section 3).
pub(super) mod method {
    /// No authentication.
    pub(in crate::socks) const NONE: u8 = 0;
    /// User name and password (RFC 1929).
    pub(in crate::socks) const PASSWORD: u8 = 2;
    /// The proxy accepts no method that it was offered.
    pub(in crate::socks) const NO_ACCEPTABLE: u8 = 0xff;
}

/// An address in a message.
#[derive(Debug)]
pub(super) enum Address {
    /// An IP address and a port.
    Socket(SocketAddr),
    /// A host's name, which is of no use to us.
    Name,
}

/// Why no address can be read.
#[derive(Debug)]
pub(super) enum AddressError {
    /// The stream's own error.
    Stream(io::Error),
    /// The address is of this unknown type.
    Type(u8),
}

impl From<io::Error> for AddressError {
    fn from(error: io::Error) -> AddressError {
        AddressError::Stream(error)
    }
}

impl From<AddressError> for ProxyFault {
    fn from(error: AddressError) -> ProxyFault {
        match error {
            AddressError::Stream(error) => ProxyFault::of_stream(error),
            AddressError::Type(kind) => {
                ProxyFault::Garbage(format!("an address of the unknown type 0x{kind:02x}"))
            }
        }
    }
}

/// Returns the message that offers `methods`.
pub(super) fn hello(methods: &[u8]) -> Vec<u8> {
    let count = u8::try_from(methods.len()).expect("there are not 256 methods");
    [&[VERSION, count], methods].concat()
}

/// Reads the proxy's choice among the methods that it was offered.
///
/// # Errors
/// The answer is not SOCKS5, or ends early.
pub(super) fn read_method(stream: &mut impl Read) -> Result<u8, ProxyFault> {
    read_version(stream)?;
    let [method] = take(stream).map_err(ProxyFault::of_stream)?;
    Ok(method)
}

/// Returns the request to relay UDP from `address`.
pub(super) fn associate(address: SocketAddr) -> Vec<u8> {
    let mut message = vec![VERSION, UDP_ASSOCIATE, 0];
    write_address(&mut message, address);
    message
}

/// Reads the reply to a request: the relay's address.
///
/// # Errors
/// The proxy refuses, or the reply is malformed or ends early.
pub(super) fn read_reply(stream: &mut impl Read) -> Result<Address, ProxyFault> {
    read_version(stream)?;
    let [reply, reserved] = take(stream).map_err(ProxyFault::of_stream)?;
    if reserved != 0 {
        return Err(ProxyFault::Garbage("a malformed message".into()));
    }
    let Some(words) = REPLIES.get(usize::from(reply)) else {
        return Err(ProxyFault::Refused(format!("for the unknown reason 0x{reply:02x}")));
    };
    let address = read_address(stream)?;
    match reply {
        SUCCEEDED => Ok(address),
        COMMAND_NOT_SUPPORTED => Err(ProxyFault::NoUdp),
        _ => Err(ProxyFault::Refused((*words).into())),
    }
}

/// Appends `address` to a message: type, address, port.
pub(super) fn write_address(message: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            message.push(IPV4);
            message.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            message.push(IPV6);
            message.extend(ip.octets());
        }
    }
    message.extend(address.port().to_be_bytes());
}

/// Reads an address: type, address, port.
///
/// # Errors
/// The stream's, or the type is unknown.
pub(super) fn read_address(stream: &mut impl Read) -> Result<Address, AddressError> {
    let [kind] = take(stream)?;
    let ip = match kind {
        IPV4 => Some(IpAddr::V4(Ipv4Addr::from(take::<4>(stream)?))),
        IPV6 => Some(IpAddr::V6(Ipv6Addr::from(take::<16>(stream)?))),
        NAME => {
            let [length] = take(stream)?;
            stream.read_exact(&mut vec![0; usize::from(length)])?;
            None
        }
        other => return Err(AddressError::Type(other)),
    };
    let port = u16::from_be_bytes(take(stream)?);
    Ok(ip.map_or(Address::Name, |ip| Address::Socket(SocketAddr::new(ip, port))))
}

fn read_version(stream: &mut impl Read) -> Result<(), ProxyFault> {
    match take(stream).map_err(ProxyFault::of_stream)? {
        [VERSION] => Ok(()),
        [other] => Err(ProxyFault::NotSocks(other)),
    }
}

fn take<const LENGTH: usize>(stream: &mut impl Read) -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}
