//! IP addresses with a prefix length.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An IP address and the number of leading bits that identify its network, written `10.0.0.2/24`.
///
/// The host bits are preserved, so the type can represent an interface's address as well as a
/// route's destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The address, including its host bits.
    pub ip: IpAddr,
    /// Number of leading bits that identify the network: at most 32 for IPv4, 128 for IPv6.
    pub len: u8,
}

impl Prefix {
    /// Returns the number of bits in an address of the IP version of `ip`.
    fn width(ip: IpAddr) -> u8 {
        if ip.is_ipv4() { 32 } else { 128 }
    }

    /// Returns whether `ip` lies in the network.
    pub fn contains(self, ip: IpAddr) -> bool {
        let alike = ip.is_ipv4() == self.ip.is_ipv4();
        alike && Prefix { ip, len: self.len }.network() == self.network()
    }

    /// Returns the network: the address with its host bits cleared.
    pub fn network(self) -> Prefix {
        let spare = u32::from(Self::width(self.ip) - self.len);
        let ip = match self.ip {
            IpAddr::V4(v4) => IpAddr::from(
                (v4.to_bits().checked_shr(spare).unwrap_or(0).checked_shl(spare).unwrap_or(0))
                    .to_be_bytes(),
            ),
            IpAddr::V6(v6) => IpAddr::from(
                (v6.to_bits().checked_shr(spare).unwrap_or(0).checked_shl(spare).unwrap_or(0))
                    .to_be_bytes(),
            ),
        };
        Prefix { ip, len: self.len }
    }
}

/// Error: a text is not an IP address with an optional prefix length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrefixError {
    /// The part before the slash is not an IPv4 or IPv6 address.
    Address(String),
    /// The part after the slash is not a number, or exceeds the bits of the address.
    Length(String),
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrefixError::Address(text) => write!(f, "`{text}` is not an IP address"),
            PrefixError::Length(text) => write!(
                f,
                "the prefix length of `{text}`, after the slash, is not a number from 0 to 32 (for \
                 IPv6 to 128)"
            ),
        }
    }
}

impl std::error::Error for PrefixError {}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// Parses a prefix. An address without a slash has the full length.
    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        let (address, len) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let ip = address.parse().map_err(|_| PrefixError::Address(address.to_owned()))?;
        let width = Self::width(ip);
        let len = len.map_or(Ok(width), str::parse).ok().filter(|&len: &u8| len <= width);
        len.map(|len| Prefix { ip, len }).ok_or_else(|| PrefixError::Length(text.to_owned()))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.len)
    }
}
