//! Addresses of the ends of a tunnel that carries IP packets. They are derived from the ends'
//! public keys, so nothing has to be agreed.

use std::net::{Ipv4Addr, Ipv6Addr};

use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};

use crate::disguise::derived;
use crate::keys::PublicKey;

/// Label with which a near end asks for the far end's interface in place of a server. Its
/// datagrams then are IP packets.
pub const INTERFACE: &str = "*";

/// 100.64.0.0/10, which no public network has (RFC 6598).
const SHARED: u32 = 0x6440_0000;
/// Mask of the bits after that prefix.
const HOSTS: u32 = (1 << 22) - 1;

/// An end's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    /// An address of 100.64.0.0/10.
    pub four: Ipv4Addr,
    /// An address of the far end's own local network (RFC 4193).
    pub six: Ipv6Addr,
}

impl Inner {
    /// Returns the addresses of `end` in the network of the far end `far`. The far end itself has
    /// some, too.
    #[must_use]
    pub fn of(far: &PublicKey, end: &PublicKey) -> Inner {
        let prk = Salt::new(HKDF_SHA256, b"anabranch far end addresses").extract(&far.0);
        let network: [u8; 5] = derived(&prk, b"network");
        let host: [u8; 12] = derived(&prk, &end.0);
        let (four, six) = host.split_first_chunk::<4>().expect("it has 12 bytes");
        // Neither the first nor the last address: they name the network and its broadcast.
        let four = (u32::from_be_bytes(*four) & HOSTS).clamp(1, HOSTS - 1);
        let mut octets = [0; 16];
        octets[0] = 0xfd;
        octets[1..6].copy_from_slice(&network);
        octets[8..].copy_from_slice(six);
        Inner { four: Ipv4Addr::from(SHARED | four), six: Ipv6Addr::from(octets) }
    }

    /// Returns whether `address` is one of these.
    #[must_use]
    pub fn has(&self, address: std::net::IpAddr) -> bool {
        address == self.four || address == self.six
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_one_far_end_share_a_network_and_have_addresses_of_their_own() {
        let key = |n: u8| PublicKey([n; 32]);
        let (one, other) = (Inner::of(&key(1), &key(2)), Inner::of(&key(1), &key(3)));
        assert_eq!(one, Inner::of(&key(1), &key(2)));
        assert!(one.four != other.four && one.six != other.six);
        assert_eq!(one.six.octets()[..8], other.six.octets()[..8]);
        assert_eq!((one.four.octets()[0], one.four.octets()[1] & 0xc0), (100, 64));
        assert_eq!(one.six.octets()[0], 0xfd);
        assert_ne!(Inner::of(&key(9), &key(2)).six.octets()[..8], one.six.octets()[..8]);
        assert!(one.has(one.four.into()) && one.has(one.six.into()) && !one.has(other.six.into()));
    }
}
