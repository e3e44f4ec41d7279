//! Removal of one hop's encryption layer from the header of a Sphinx packet. The result is the
//! same as from `SphinxHeader::process` of the crate `sphinx-packet`. `aws-lc-rs` does the
//! multiplications on the curve, because a relay spends most of its time on them.
//!
//! A header consists of a point of the curve (32 bytes), a MAC (16) and encrypted routing
//! information (300).

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use sphinx_packet::constants::{
    DELAY_LENGTH, DESTINATION_ADDRESS_LENGTH, FLAG_LENGTH, NODE_ADDRESS_LENGTH, VERSION_LENGTH,
};
use sphinx_packet::header::HEADER_SIZE;
use sphinx_packet::header::routing::{FINAL_HOP, FORWARD_HOP};
use sphinx_packet::payload::Payload;
use sphinx_packet::payload::key::derive_payload_key;
use sphinx_packet::version::CURRENT_VERSION;

use crate::network::KEY;
use crate::secrets::{IDENTIFIER, KEY_STREAM, MAC, ROUTING, Secrets};

/// Length in bytes of the first part of a header: a point of the curve.
const POINT: usize = KEY;

/// A hop's private key.
pub(crate) struct Hop {
    bytes: [u8; KEY],
    key: PrivateKey,
}

impl Hop {
    pub(crate) fn new(bytes: [u8; KEY]) -> Hop {
        Hop { bytes, key: private_key(&bytes).expect("any 32 bytes are a valid X25519 key") }
    }

    pub(crate) fn to_bytes(&self) -> [u8; KEY] {
        self.bytes
    }
}

/// The routing information for one hop.
pub(crate) enum RoutingCommand {
    /// The packet has a next hop.
    Forward {
        /// Public key of the next hop.
        next: [u8; KEY],
        /// Last tick (period of 30 s) in which the packet is valid.
        expiry: u64,
        /// The MAC and the routing information of the header for the next hop.
        rest: Box<[u8; MAC + ROUTING]>,
    },
    /// This node is the packet's last hop.
    Deliver { destination: [u8; DESTINATION_ADDRESS_LENGTH], identifier: [u8; IDENTIFIER] },
}

/// The keys that a hop derives for one packet, and the curve point from the packet's header.
pub(crate) struct HopKeys {
    point: [u8; POINT],
    secrets: Secrets,
}

impl HopKeys {
    /// Derives the keys of `hop` for the packet with `header`, and checks the header's MAC.
    /// Returns `None` if the MAC of the header is wrong, or if the header's point is of small
    /// order.
    pub(crate) fn agree(hop: &Hop, header: &[u8; HEADER_SIZE]) -> Option<HopKeys> {
        let (point, rest) = header.split_first_chunk::<POINT>()?;
        let (mac, routing) = rest.split_first_chunk::<MAC>()?;
        let secrets = multiplied(&hop.key, point, Secrets::expand)?;
        let wanted = secrets.mac(routing.first_chunk()?);
        let keys = HopKeys { point: *point, secrets };
        verify_slices_are_equal(&wanted, mac).ok().map(|()| keys)
    }

    /// Returns the first 8 bytes of the packet's tag, a hash that reveals replays.
    pub(crate) fn tag(&self) -> u64 {
        self.secrets.tag()
    }

    /// Decrypts the routing information in `header`. Returns `None` if its version is not
    /// [`CURRENT_VERSION`], or if it is neither for a relay nor for the last hop.
    pub(crate) fn decrypt(&self, header: &[u8; HEADER_SIZE]) -> Option<RoutingCommand> {
        let mut plain = [0; KEY_STREAM];
        plain[..ROUTING].copy_from_slice(&header[HEADER_SIZE - ROUTING..]);
        self.secrets.apply(&mut plain)?;
        let ([flag], rest) = plain.split_first_chunk::<FLAG_LENGTH>()?;
        let ([_, version @ ..], rest) = rest.split_first_chunk::<VERSION_LENGTH>()?;
        if u16::from_be_bytes(*version) != CURRENT_VERSION.value() {
            return None;
        }
        match *flag {
            FORWARD_HOP => {
                let (next, rest) = rest.split_first_chunk::<NODE_ADDRESS_LENGTH>()?;
                let (expiry, rest) = rest.split_first_chunk::<DELAY_LENGTH>()?;
                let (expiry, rest) = (u64::from_be_bytes(*expiry), Box::new(*rest.first_chunk()?));
                Some(RoutingCommand::Forward { next: *next, expiry, rest })
            }
            FINAL_HOP => {
                let (destination, rest) = rest.split_first_chunk::<DESTINATION_ADDRESS_LENGTH>()?;
                let identifier = *rest.first_chunk()?;
                Some(RoutingCommand::Deliver { destination: *destination, identifier })
            }
            _ => None,
        }
    }

    /// Returns the header for the next hop, with a newly blinded curve point. `rest` contains the
    /// MAC and the routing information of that header. Returns `None` if the new point cannot be
    /// computed.
    pub(crate) fn blind(&self, rest: &[u8; MAC + ROUTING]) -> Option<[u8; HEADER_SIZE]> {
        let mut header = [0; HEADER_SIZE];
        let (point, tail) = header.split_at_mut(POINT);
        tail.copy_from_slice(rest);
        let factor = private_key(&self.secrets.blinding_factor())?;
        multiplied(&factor, &self.point, |next| {
            point.copy_from_slice(next);
            Some(())
        })?;
        Some(header)
    }

    /// Removes this hop's encryption layer from the payload of the packet. Returns `None` if the
    /// payload is too short.
    pub(crate) fn unwrap_payload(&self, payload: &[u8]) -> Option<Payload> {
        let key = derive_payload_key(&self.secrets.payload_seed());
        Payload::from_bytes(payload).and_then(|payload| payload.unwrap(key)).ok()
    }
}

fn private_key(bytes: &[u8; KEY]) -> Option<PrivateKey> {
    PrivateKey::from_private_key(&X25519, bytes).ok()
}

/// Multiplies `point` by `key` (X25519), and passes the product to `use_product`. Returns that
/// function's result; `None` if the product is the neutral element.
fn multiplied<R>(
    key: &PrivateKey,
    point: &[u8; POINT],
    use_product: impl FnOnce(&[u8]) -> Option<R>,
) -> Option<R> {
    let used = |product: &[u8]| use_product(product).ok_or(());
    agree(key, UnparsedPublicKey::new(&X25519, point), (), used).ok()
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::{Rng as _, SeedableRng};
    use sphinx_packet::crypto::PrivateKey as LibraryKey;
    use sphinx_packet::header::delays::Delay;
    use sphinx_packet::payload::PAYLOAD_OVERHEAD_SIZE;
    use sphinx_packet::route::{Destination, DestinationAddressBytes, Node, NodeAddressBytes};
    use sphinx_packet::{ProcessedPacketData, SphinxPacket, SphinxPacketBuilder};

    use super::*;
    use crate::counters::DropReason;
    use crate::header::KeyTables;
    use crate::network::Peer;
    use crate::sphinx::{Content, Data, Route, SecretKey, Unwrapped, unwrap};

    const CONTENT: usize = 795;

    fn peers(count: u8) -> Vec<(SecretKey, Peer)> {
        let peer = |number| {
            let key = SecretKey::from_bytes([number; KEY]);
            let address = ([10, 0, 0, number], 9).into();
            let peer = Peer { key: key.public(), address, weight: 1, is_exit: true };
            (key, peer)
        };
        (1..=count).map(peer).collect()
    }

    fn packet(rng: &mut ChaCha20Rng, peers: &[(SecretKey, Peer)], expiry: u64) -> Vec<u8> {
        let route = Route { hops: peers.iter().map(|(_, peer)| peer).collect(), expiry };
        let mut content = vec![0; CONTENT];
        rng.fill_bytes(&mut content);
        let mut tables = KeyTables::default();
        let packet = route.build(&mut tables, rng, (&content, CONTENT));
        packet.expect("the route has 1 to 5 hops")
    }

    /// Builds a packet with the crate `sphinx-packet`, without our own code.
    fn packet_of_the_library(peers: &[(SecretKey, Peer)], expiry: u64) -> Vec<u8> {
        let node = |(_, peer): &(SecretKey, Peer)| {
            Node::new(NodeAddressBytes::from_bytes(peer.key), peer.key.into())
        };
        let nodes: Vec<Node> = peers.iter().map(node).collect();
        let mut address = [0; DESTINATION_ADDRESS_LENGTH];
        address[..8].copy_from_slice(&expiry.to_be_bytes());
        let address = DestinationAddressBytes::from_bytes(address);
        let destination = Destination::new(address, [0; IDENTIFIER]);
        let delays = vec![Delay::new_from_nanos(expiry); nodes.len()];
        let builder = SphinxPacketBuilder::new().with_payload_size(CONTENT + PAYLOAD_OVERHEAD_SIZE);
        let packet = builder.build_packet(vec![5; CONTENT], &nodes, &destination, &delays);
        packet.expect("the route has 1 to 5 hops").to_bytes()
    }

    /// Unwraps a packet with the crate `sphinx-packet`, without our own code.
    fn by_the_library(key: &SecretKey, packet: &[u8]) -> Option<Unwrapped> {
        let packet = SphinxPacket::from_bytes(packet).ok()?;
        let secret =
            packet.header.compute_expanded_shared_secret(&LibraryKey::from(key.to_bytes()));
        let tag = u64::from_be_bytes(*secret.replay_tag().first_chunk()?);
        let packet = packet.process_with_expanded_secret(&secret).ok()?;
        assert_eq!(packet.version, CURRENT_VERSION);
        let (expiry, data) = match packet.data {
            ProcessedPacketData::ForwardHop { next_hop_packet, next_hop_address, delay } => {
                let data = Data::Onward(next_hop_address.to_bytes(), next_hop_packet.to_bytes());
                (delay.to_nanos(), data)
            }
            ProcessedPacketData::FinalHop { destination, payload, .. } => {
                let expiry = u64::from_be_bytes(*destination.as_bytes_ref().first_chunk()?);
                (expiry, Data::Here(Content::Forward(payload.recover_plaintext().ok()?)))
            }
        };
        Some(Unwrapped { expiry, tag, data })
    }

    #[test]
    fn each_layer_is_removed_as_the_library_removes_it() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        for (round, hops) in (0..40).zip([1, 2, 3, 4, 5].into_iter().cycle()) {
            let peers = peers(hops);
            let mut bytes = match round % 2 {
                0 => packet(&mut rng, &peers, round),
                _ => packet_of_the_library(&peers, round),
            };
            let mut passed = 0;
            for (place, (key, _)) in peers.iter().enumerate() {
                let ours = unwrap(key, &bytes, |_| false).expect("the packet is valid");
                let theirs = by_the_library(key, &bytes).expect("the packet is valid");
                assert_eq!((ours.expiry, ours.tag), (theirs.expiry, theirs.tag));
                assert_eq!(ours.expiry, round);
                match (ours.data, theirs.data) {
                    (Data::Onward(next, onward), Data::Onward(expected, library)) => {
                        assert_eq!((next, next), (expected, peers[place + 1].1.key));
                        assert!(onward == library, "hop {place} of {hops}");
                        (bytes, passed) = (onward, passed + 1);
                    }
                    (Data::Here(Content::Forward(ours)), Data::Here(Content::Forward(theirs))) => {
                        assert!(ours == theirs && ours.len() == CONTENT);
                    }
                    _ => panic!("hop {place} of {hops}: one ends here, the other goes on"),
                }
            }
            assert_eq!(passed + 1, hops);
        }
    }

    #[test]
    fn a_changed_bit_of_the_header_is_found_as_the_library_finds_it() {
        let mut rng = ChaCha20Rng::seed_from_u64(2);
        let peers = peers(3);
        let whole = packet(&mut rng, &peers, 7);
        for at in (0..HEADER_SIZE).step_by(7).chain([POINT - 1]) {
            let mut changed = whole.clone();
            changed[at] ^= 1 << (at % 8);
            // The highest bit of a point is ignored (RFC 7748, section 5).
            let is_ignored = at == POINT - 1 && at % 8 == 7;
            let ours = unwrap(&peers[0].0, &changed, |_| false);
            assert_eq!(ours.is_ok(), is_ignored, "{at}");
            assert_eq!(by_the_library(&peers[0].0, &changed).is_some(), is_ignored, "{at}");
        }
    }

    #[test]
    fn a_point_of_small_order_is_refused() {
        let mut rng = ChaCha20Rng::seed_from_u64(3);
        let peers = peers(2);
        for order in [0, 1] {
            let mut bytes = packet(&mut rng, &peers, 7);
            bytes[..POINT].fill(0);
            bytes[0] = order;
            let refused = unwrap(&peers[0].0, &bytes, |_| false);
            assert!(matches!(refused, Err(DropReason::Forged)));
        }
    }
}
