//! Sphinx packets, by the crate `sphinx-packet`: how nodes build, unwrap and answer them.
//!
//! A hop's name in a header is the hop's public key. The packet's last tick is in each hop's delay
//! field. The last hop has no such field, and reads it from the first 8 bytes of the destination.
//! The identifier is 0 in forward packets. In a reply it is that of the reply block.

use rand_core::Rng;
use sphinx_packet::constants::{DESTINATION_ADDRESS_LENGTH, PAYLOAD_KEY_SEED_SIZE};
use sphinx_packet::crypto::{PrivateKey, PublicKey};
use sphinx_packet::header::HEADER_SIZE;
use sphinx_packet::header::delays::Delay;
use sphinx_packet::payload::{PAYLOAD_OVERHEAD_SIZE, Payload};
use sphinx_packet::route::{Destination, DestinationAddressBytes, Node, NodeAddressBytes};
use sphinx_packet::version::CURRENT_VERSION;
use sphinx_packet::{
    ProcessedPacketData, SURB, SURBMaterial, SphinxPacket, SphinxPacketBuilder, SurbReplyRecovery,
};

use crate::counters::DropReason;
use crate::network::{KEY, PREFIX, Peer, prefix};

/// Length in bytes that a packet has in addition to its content.
pub const OVERHEAD: usize = HEADER_SIZE + PAYLOAD_OVERHEAD_SIZE;
/// Length of a reply block in a forward packet in bytes: header, first hop, key.
pub const SURB_LENGTH: usize = HEADER_SIZE + PREFIX + PAYLOAD_KEY_SEED_SIZE;
/// Length of a reply block's identifier in bytes. A client recognises a reply by it.
pub(crate) const IDENTIFIER: usize = 16;
/// Identifier of forward packets.
const FORWARD: [u8; IDENTIFIER] = [0; IDENTIFIER];

/// A node's private key.
#[derive(Clone)]
pub struct SecretKey(PrivateKey);

impl SecretKey {
    /// Returns the key with these bytes, which must be random.
    #[must_use]
    pub fn from_bytes(bytes: [u8; KEY]) -> SecretKey {
        SecretKey(PrivateKey::from(bytes))
    }

    /// Returns the key's bytes, to store them.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; KEY] {
        self.0.to_bytes()
    }

    /// Returns the public key.
    #[must_use]
    pub fn public(&self) -> [u8; KEY] {
        PublicKey::from(&self.0).to_bytes()
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey")
    }
}

/// The content of a packet at its last hop.
pub(crate) enum Content {
    /// The content of a forward packet.
    Forward(Vec<u8>),
    /// A reply to the block with this identifier. Its payload is still encrypted.
    Reply([u8; IDENTIFIER], Payload),
}

/// A packet without the layer of one hop.
pub(crate) struct Unwrapped {
    /// Last tick (period of 30 s) in which the packet is valid.
    pub(crate) expiry: u64,
    /// The first 8 bytes of the packet's tag.
    pub(crate) tag: u64,
    pub(crate) data: Data,
}

/// Destination of an unwrapped packet.
pub(crate) enum Data {
    /// The packet's next hop, and its bytes for that hop.
    Onward([u8; KEY], Vec<u8>),
    /// This node is the last hop.
    Here(Content),
}

/// Removes the layer of the hop with `key` from a packet. `is_known` returns true for the tag of a
/// packet that was accepted before: for such a packet, the payload is not decrypted.
///
/// # Errors
/// The reason to drop the packet.
pub(crate) fn unwrap(
    key: &SecretKey,
    packet: &[u8],
    is_known: impl Fn(u64) -> bool,
) -> Result<Unwrapped, DropReason> {
    let packet = SphinxPacket::from_bytes(packet).map_err(|_| DropReason::Malformed)?;
    let secret = packet.header.compute_expanded_shared_secret(&key.0);
    packet.header.ensure_header_integrity(&secret).map_err(|_| DropReason::Forged)?;
    let tag = first_number(secret.replay_tag());
    if is_known(tag) {
        return Err(DropReason::Replayed);
    }
    let packet = packet.process_with_expanded_secret(&secret).map_err(|_| DropReason::Malformed)?;
    if packet.version != CURRENT_VERSION {
        return Err(DropReason::Malformed);
    }
    let (expiry, data) = match packet.data {
        ProcessedPacketData::ForwardHop { next_hop_packet, next_hop_address, delay } => (
            delay.to_nanos(),
            Data::Onward(next_hop_address.to_bytes(), next_hop_packet.to_bytes()),
        ),
        ProcessedPacketData::FinalHop { destination, identifier, payload } => {
            (first_number(destination.as_bytes_ref()), Data::Here(open(identifier, payload)?))
        }
    };
    Ok(Unwrapped { expiry, tag, data })
}

fn open(identifier: [u8; IDENTIFIER], payload: Payload) -> Result<Content, DropReason> {
    if identifier != FORWARD {
        return Ok(Content::Reply(identifier, payload));
    }
    payload.recover_plaintext().map(Content::Forward).map_err(|_| DropReason::Garbled)
}

fn first_number(bytes: &[u8; 32]) -> u64 {
    bytes.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The route of a packet, and the last tick (period of 30 s) in which the packet is valid.
pub(crate) struct Route<'p> {
    pub(crate) hops: Vec<&'p Peer>,
    pub(crate) expiry: u64,
}

impl Route<'_> {
    fn nodes(&self) -> Vec<Node> {
        let node = |peer: &&Peer| {
            Node::new(NodeAddressBytes::from_bytes(peer.key), PublicKey::from(peer.key))
        };
        self.hops.iter().map(node).collect()
    }

    fn delays(&self) -> Vec<Delay> {
        vec![Delay::new_from_nanos(self.expiry); self.hops.len()]
    }

    fn destination(&self, identifier: [u8; IDENTIFIER]) -> Destination {
        let mut address = [0; DESTINATION_ADDRESS_LENGTH];
        address[..8].copy_from_slice(&self.expiry.to_be_bytes());
        Destination::new(DestinationAddressBytes::from_bytes(address), identifier)
    }

    /// Returns a forward packet with `content`, in a payload with room for `size` bytes of it.
    /// Returns `None` if the content is longer, or the route has no hop or more than 5.
    pub(crate) fn build(&self, rng: &mut dyn Rng, content: &[u8], size: usize) -> Option<Vec<u8>> {
        let secret = draw_secret(rng);
        let builder = SphinxPacketBuilder::new()
            .with_payload_size(size + PAYLOAD_OVERHEAD_SIZE)
            .with_initial_secret(&secret);
        let destination = self.destination(FORWARD);
        let packet = builder.build_packet(content, &self.nodes(), &destination, &self.delays());
        packet.ok().map(|packet| packet.to_bytes())
    }

    /// Returns a reply block with a random identifier, and the keys that decrypt its reply. The
    /// last hop of the route must be this node. Returns `None` if the route has no hop or more than
    /// 5.
    pub(crate) fn reply_block(&self, rng: &mut dyn Rng) -> Option<(ReplyBlock, ReplyKeys)> {
        let mut identifier = [0; IDENTIFIER];
        rng.fill_bytes(&mut identifier);
        let destination = self.destination(identifier);
        let (nodes, delays) = (self.nodes(), self.delays());
        let material = SURBMaterial::new(nodes, delays, destination, CURRENT_VERSION);
        let (surb, recovery) = SURB::new_recoverable(draw_secret(rng), material).ok()?;
        let bytes = surb.to_bytes();
        let (header, rest) = bytes.split_at_checked(HEADER_SIZE)?;
        let (first, seed) = rest.split_first_chunk::<KEY>()?;
        let packed = [header, &prefix(first), seed].concat();
        Some((ReplyBlock(packed.into_boxed_slice()), ReplyKeys { identifier, recovery }))
    }
}

fn draw_secret(rng: &mut dyn Rng) -> PrivateKey {
    let mut secret = [0; KEY];
    rng.fill_bytes(&mut secret);
    PrivateKey::from(secret)
}

/// A single-use reply block as it is in forward packets, where the first hop's key is shortened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyBlock(pub(crate) Box<[u8]>);

impl ReplyBlock {
    /// Returns the beginning of the first hop's key.
    pub(crate) fn first_hop(&self) -> [u8; PREFIX] {
        let mut prefix = [0; PREFIX];
        prefix.copy_from_slice(&self.0[HEADER_SIZE..HEADER_SIZE + PREFIX]);
        prefix
    }

    /// Returns a reply with `content`, in a payload with room for `size` bytes of it. `first` is
    /// the whole key of the first hop. Returns `None` if the content is longer.
    pub(crate) fn seal(&self, first: &[u8; KEY], content: &[u8], size: usize) -> Option<Vec<u8>> {
        let (header, seed) = (&self.0[..HEADER_SIZE], &self.0[HEADER_SIZE + PREFIX..]);
        let surb = SURB::from_bytes(&[header, first, seed].concat()).ok()?;
        let (packet, _) = surb.use_surb(content, size + PAYLOAD_OVERHEAD_SIZE).ok()?;
        Some(packet.to_bytes())
    }
}

/// The keys that decrypt the reply to a reply block.
pub(crate) struct ReplyKeys {
    pub(crate) identifier: [u8; IDENTIFIER],
    recovery: SurbReplyRecovery,
}

impl ReplyKeys {
    /// Decrypts the payload of the reply.
    ///
    /// # Errors
    /// [`DropReason::Garbled`]: it was changed on its way.
    pub(crate) fn open(&self, payload: Payload) -> Result<Vec<u8>, DropReason> {
        self.recovery.recover_plaintext(payload).map_err(|_| DropReason::Garbled)
    }
}
