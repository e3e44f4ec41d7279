//! Sphinx packets of the crate `sphinx-packet`: building, unwrapping and answering them. That
//! crate handles payloads and the keys of replies; `header` and `layer` handle headers.
//!
//! A header identifies a hop by the hop's public key. Each hop's delay field contains the last
//! tick (period of 30 s) in which the packet is valid. The last hop has no delay field, and reads
//! this tick from the first 8 bytes of the destination. The identifier is 0 in a forward packet.
//! In a reply, it is the identifier of the reply block.

use std::sync::Arc;

use rand_core::Rng;
use sphinx_packet::SurbReplyRecovery;
use sphinx_packet::constants::{DESTINATION_ADDRESS_LENGTH, PAYLOAD_KEY_SEED_SIZE};
use sphinx_packet::crypto::{PrivateKey, PublicKey};
use sphinx_packet::header::HEADER_SIZE;
use sphinx_packet::payload::key::PayloadKeySeed;
use sphinx_packet::payload::{PAYLOAD_OVERHEAD_SIZE, Payload};

use crate::counters::DropReason;
use crate::header::{Header, KeyTables, Last};
use crate::layer::{Hop, HopKeys, RoutingCommand};
use crate::network::{KEY, PREFIX, Peer, prefix};
use crate::secrets::IDENTIFIER;

/// Overhead of a packet in bytes: its length without the content.
pub const OVERHEAD: usize = HEADER_SIZE + PAYLOAD_OVERHEAD_SIZE;
/// Length in bytes of a reply block within a forward packet: header, beginning of the first hop's
/// key, and the seed of the payload key.
pub const SURB_LENGTH: usize = HEADER_SIZE + PREFIX + PAYLOAD_KEY_SEED_SIZE;
/// Identifier in the headers of forward packets: zeros, because only replies need an identifier.
const FORWARD: [u8; IDENTIFIER] = [0; IDENTIFIER];

/// A node's private X25519 key.
#[derive(Clone)]
pub struct SecretKey(Arc<Hop>);

impl SecretKey {
    /// Creates a private key from these bytes, which must be random.
    #[must_use]
    pub fn from_bytes(bytes: [u8; KEY]) -> SecretKey {
        SecretKey(Arc::new(Hop::new(bytes)))
    }

    /// Returns the key's bytes for storage.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; KEY] {
        self.0.to_bytes()
    }

    /// Returns the public key.
    #[must_use]
    pub fn public(&self) -> [u8; KEY] {
        PublicKey::from(&PrivateKey::from(self.0.to_bytes())).to_bytes()
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey")
    }
}

/// The content of a packet that has reached its last hop: a forward packet or a reply.
pub(crate) enum Content {
    /// The content of a forward packet.
    Forward(Vec<u8>),
    /// A reply, whose payload is still encrypted. The reply block has this identifier.
    Reply([u8; IDENTIFIER], Payload),
}

/// A packet after a hop has removed its encryption layer.
pub(crate) struct Unwrapped {
    /// Last tick (period of 30 s) in which the packet is valid.
    pub(crate) expiry: u64,
    /// The first 8 bytes of the packet's tag, a hash that reveals replays.
    pub(crate) tag: u64,
    pub(crate) data: Data,
}

/// The next step for a packet after the removal of this hop's layer: to the next hop, or to this
/// node.
pub(crate) enum Data {
    /// The packet must be sent to this next hop. Contains the next hop's key, and the packet's
    /// bytes.
    Onward([u8; KEY], Vec<u8>),
    /// This node is the packet's last hop. Contains the packet's content.
    Here(Content),
}

/// Removes the encryption layer of the hop with `key` from a packet. `is_known` returns true for
/// the tag of a packet that was accepted before. The payload of a packet with a known tag is not
/// decrypted.
///
/// # Errors
/// The reason to drop the packet.
pub(crate) fn unwrap(
    key: &SecretKey,
    packet: &[u8],
    is_known: impl Fn(u64) -> bool,
) -> Result<Unwrapped, DropReason> {
    let (header, payload) =
        packet.split_first_chunk::<HEADER_SIZE>().ok_or(DropReason::Malformed)?;
    let keys = HopKeys::agree(&key.0, header).ok_or(DropReason::Forged)?;
    let tag = keys.tag();
    if is_known(tag) {
        return Err(DropReason::Replayed);
    }
    let routing = keys.decrypt(header).ok_or(DropReason::Malformed)?;
    let payload = keys.unwrap_payload(payload).ok_or(DropReason::Malformed)?;
    let (expiry, data) = match routing {
        RoutingCommand::Forward { next, expiry, rest } => {
            let header = keys.blind(&rest).ok_or(DropReason::Malformed)?;
            (expiry, Data::Onward(next, [&header[..], payload.as_bytes()].concat()))
        }
        RoutingCommand::Deliver { destination, identifier } => {
            (first_number(&destination), Data::Here(open(identifier, payload)?))
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
    /// Builds the header of a packet for this route. Returns `None` if the route has no hop or
    /// more than 5.
    fn header(
        &self,
        tables: &mut KeyTables,
        rng: &mut dyn Rng,
        identifier: [u8; IDENTIFIER],
    ) -> Option<Header> {
        let mut destination = [0; DESTINATION_ADDRESS_LENGTH];
        destination[..8].copy_from_slice(&self.expiry.to_be_bytes());
        Header::build(tables, rng, (&self.hops, self.expiry), &Last { destination, identifier })
    }

    /// Builds a forward packet (from client to exit) with `content`, padded to `size` bytes.
    /// Returns `None` if the content is longer, or if the route has no hop or more than 5.
    pub(crate) fn build(
        &self,
        tables: &mut KeyTables,
        rng: &mut dyn Rng,
        (content, size): (&[u8], usize),
    ) -> Option<Vec<u8>> {
        let Header { bytes, seeds } = self.header(tables, rng, FORWARD)?;
        let size = size + PAYLOAD_OVERHEAD_SIZE;
        let payload = Payload::encapsulate_message(content, &seeds, size).ok()?;
        Some([&bytes[..], payload.as_bytes()].concat())
    }

    /// Returns a reply block with a random identifier, and the keys that decrypt its reply. This
    /// node must be the last hop of the route. Returns `None` if the route has no hop or more than
    /// 5.
    pub(crate) fn reply_block(
        &self,
        tables: &mut KeyTables,
        rng: &mut dyn Rng,
    ) -> Option<(ReplyBlock, ReplyKeys)> {
        let mut identifier = [0; IDENTIFIER];
        rng.fill_bytes(&mut identifier);
        let Header { bytes, seeds } = self.header(tables, rng, identifier)?;
        let (first, seed) = (prefix(&self.hops.first()?.key), seeds.last()?);
        let packed = [&bytes[..], &first, seed].concat();
        let kept = [&identifier[..], &seeds.concat()].concat();
        let recovery = SurbReplyRecovery::from_bytes(&kept).ok()?;
        Some((ReplyBlock(packed.into_boxed_slice()), ReplyKeys { identifier, recovery }))
    }
}

/// A single-use reply block: a prepared header with which an exit can send one reply to a client
/// that it does not know. The first hop's key is shortened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyBlock(pub(crate) Box<[u8]>);

impl ReplyBlock {
    /// Returns the beginning of the first hop's key, which identifies this hop.
    pub(crate) fn first_hop(&self) -> [u8; PREFIX] {
        let mut prefix = [0; PREFIX];
        prefix.copy_from_slice(&self.0[HEADER_SIZE..HEADER_SIZE + PREFIX]);
        prefix
    }

    /// Builds the reply packet that uses this reply block, with `content` padded to `size` bytes.
    /// Returns `None` if the content is longer.
    pub(crate) fn seal(&self, content: &[u8], size: usize) -> Option<Vec<u8>> {
        let (header, seed) = self.0.split_first_chunk::<HEADER_SIZE>()?;
        let seed: &PayloadKeySeed = seed.last_chunk()?;
        let size = size + PAYLOAD_OVERHEAD_SIZE;
        let payload = Payload::encapsulate_message(content, &[seed], size).ok()?;
        Some([&header[..], payload.as_bytes()].concat())
    }
}

/// The keys with which a client decrypts the reply that uses a certain reply block.
pub(crate) struct ReplyKeys {
    pub(crate) identifier: [u8; IDENTIFIER],
    recovery: SurbReplyRecovery,
}

impl ReplyKeys {
    /// Decrypts the payload of the reply.
    ///
    /// # Errors
    /// [`DropReason::Garbled`]: the payload was changed on its way.
    pub(crate) fn open(&self, payload: Payload) -> Result<Vec<u8>, DropReason> {
        self.recovery.recover_plaintext(payload).map_err(|_| DropReason::Garbled)
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng;
    use sphinx_packet::SURB;

    use super::*;

    #[test]
    fn a_reply_is_that_of_the_librarys_reply_block() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let keys: Vec<_> = (1..=3).map(|number| SecretKey::from_bytes([number; KEY])).collect();
        let peer = |key: &SecretKey| Peer {
            key: key.public(),
            address: ([10, 0, 0, 1], 9).into(),
            weight: 1,
            is_exit: false,
        };
        let peers: Vec<Peer> = keys.iter().map(peer).collect();
        let route = Route { hops: peers.iter().collect(), expiry: 7 };
        let (block, kept) = route.reply_block(&mut KeyTables::default(), &mut rng).expect("hops");
        assert_eq!((block.0.len(), block.first_hop()), (SURB_LENGTH, prefix(&peers[0].key)));
        let sealed = block.seal(b"an answer", 795).expect("it fits");

        let (header, seed) = (&block.0[..HEADER_SIZE], &block.0[HEADER_SIZE + PREFIX..]);
        let surb = SURB::from_bytes(&[header, &peers[0].key, seed].concat()).expect("a block");
        let used = surb.use_surb(b"an answer", 795 + PAYLOAD_OVERHEAD_SIZE).expect("it fits");
        assert!(used.0.to_bytes() == sealed);

        let mut bytes = sealed;
        for (place, key) in keys.iter().enumerate() {
            match unwrap(key, &bytes, |_| false).expect("the packet is valid").data {
                Data::Onward(next, onward) => {
                    assert_eq!(next, peers[place + 1].key);
                    bytes = onward;
                }
                Data::Here(Content::Reply(identifier, payload)) => {
                    assert_eq!((place, identifier), (2, kept.identifier));
                    assert_eq!(kept.open(payload).ok().as_deref(), Some(&b"an answer"[..]));
                }
                Data::Here(Content::Forward(_)) => panic!("a reply is no forward packet"),
            }
        }
    }
}
