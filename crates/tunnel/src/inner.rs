//! The addresses of both ends of a tunnel that carries IP packets. They are derived from the ends'
//! public keys, so the ends need not negotiate them.

use std::net::{Ipv4Addr, Ipv6Addr};

use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};

use crate::disguise::derived;
use crate::keys::PublicKey;

/// Label with which a near end (client) requests the far end's network interface instead of a
/// server. The session's datagrams are then IP packets.
pub const INTERFACE: &str = "*";

/// The prefix 100.64.0.0/10 (shared address space, RFC 6598), as an integer.
const SHARED: u32 = 0x6440_0000;
/// Mask of the address bits after the prefix 100.64.0.0/10.
const HOSTS: u32 = (1 << 22) - 1;

/// The addresses of one end inside the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    /// IPv4 address in 100.64.0.0/10.
    pub four: Ipv4Addr,
    /// IPv6 address in the unique local network (RFC 4193) that follows from the far end's public
    /// key.
    pub six: Ipv6Addr,
}

impl Inner {
    /// Returns the addresses of `end` in the network of the far end with the public key `far`.
    /// `end` may be the far end itself.
    #[must_use]
    pub fn of(far: &PublicKey, end: &PublicKey) -> Inner {
        let prk = Salt::new(HKDF_SHA256, b"anabranch far end addresses").extract(&far.0);
        let network: [u8; 5] = derived(&prk, b"network");
        let host: [u8; 12] = derived(&prk, &end.0);
        let (four, six) = host.split_first_chunk::<4>().expect("the host part has 12 bytes");
        // The first and the last address are excluded, because they are the network's own and its
        // broadcast address.
        let four = (u32::from_be_bytes(*four) & HOSTS).clamp(1, HOSTS - 1);
        let mut octets = [0; 16];
        octets[0] = 0xfd;
        octets[1..6].copy_from_slice(&network);
        octets[8..].copy_from_slice(six);
        Inner { four: Ipv4Addr::from(SHARED | four), six: Ipv6Addr::from(octets) }
    }

    /// Returns whether `address` is one of this end's two addresses.
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
