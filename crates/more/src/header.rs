//! Building of Sphinx packet headers, in the format of `SphinxHeader` of the crate
//! `sphinx-packet`, but faster.
//!
//! For each hop, that crate multiplies the hop's public key by the sender's secret and by the
//! blinding factors of all earlier hops. It does so one factor at a time: six multiplications for
//! three hops. This module first multiplies the factors with each other, modulo the order of the
//! group. Each hop then needs only one multiplication of its key. A precomputed table of the key's
//! multiples makes this multiplication fast.
//!
//! The product of the factors is reduced modulo the order of the group. The keys must therefore be
//! X25519 keys, which are in the group of the base point.

use std::collections::BTreeMap;

use curve25519_dalek::edwards::{EdwardsBasepointTable, EdwardsPoint};
use curve25519_dalek::montgomery::MontgomeryPoint;
use curve25519_dalek::scalar::{Scalar, clamp_integer};
use curve25519_dalek::traits::BasepointTable;
use rand_core::Rng;
use sphinx_packet::constants::DESTINATION_ADDRESS_LENGTH;
use sphinx_packet::header::HEADER_SIZE;
use sphinx_packet::header::routing::{FINAL_HOP, FORWARD_HOP};
use sphinx_packet::payload::key::PayloadKeySeed;
use sphinx_packet::version::CURRENT_VERSION;

use crate::config::MAX_HOPS;
use crate::network::{KEY, Peer};
use crate::secrets::{IDENTIFIER, KEY_STREAM, MAC, ROUTING, Secrets};

/// Maximum number of public keys for which [`KeyTables`] stores a table of multiples. A table has
/// 30 KiB.
const MAX_TABLES: usize = 256;
/// Length in bytes of one hop's part of the routing information in a header. The key stream is
/// longer than the routing information by this length.
const STEP: usize = KEY_STREAM - ROUTING;

/// Precomputed tables of multiples of public keys, by key. They accelerate scalar multiplication,
/// the slowest part of building a header.
#[derive(Default)]
pub(crate) struct KeyTables(BTreeMap<[u8; KEY], Box<EdwardsBasepointTable>>);

impl KeyTables {
    /// Returns the product of the public `key` and `scalar`. Adds a table of multiples for a new
    /// key, up to [`MAX_TABLES`]. Returns `None` if `key` is not a point of the curve.
    fn multiply(&mut self, key: &[u8; KEY], scalar: &Scalar) -> Option<[u8; KEY]> {
        let point = MontgomeryPoint(*key);
        if !self.0.contains_key(key) && self.0.len() < MAX_TABLES {
            let table = EdwardsBasepointTable::create(&point.to_edwards(0)?);
            self.0.insert(*key, Box::new(table));
        }
        let product = match self.0.get(key) {
            Some(table) => table.mul_base(scalar).to_montgomery(),
            None => point * scalar,
        };
        Some(product.to_bytes())
    }
}

/// Routing information in the header that only a packet's last hop can read.
#[derive(Clone, Copy)]
pub(crate) struct Last {
    pub(crate) destination: [u8; DESTINATION_ADDRESS_LENGTH],
    pub(crate) identifier: [u8; IDENTIFIER],
}

/// A complete packet header, and the seeds of the keys with which the sender encrypts the payload
/// for each hop.
pub(crate) struct Header {
    pub(crate) bytes: [u8; HEADER_SIZE],
    pub(crate) seeds: Vec<PayloadKeySeed>,
}

impl Header {
    /// Builds the header of a packet over `hops` that is valid until the end of the tick (period
    /// of 30 s) `expiry`. Returns `None` if there is no hop or more than [`MAX_HOPS`], or if a key
    /// is not a point of the curve.
    pub(crate) fn build(
        tables: &mut KeyTables,
        rng: &mut dyn Rng,
        (hops, expiry): (&[&Peer], u64),
        last: &Last,
    ) -> Option<Header> {
        if !(1..=MAX_HOPS).contains(&hops.len()) {
            return None;
        }
        let mut secret = [0; KEY];
        rng.fill_bytes(&mut secret);
        let mut factor = Scalar::from_bytes_mod_order(clamp_integer(secret));
        let point = EdwardsPoint::mul_base(&factor).to_montgomery().to_bytes();
        let mut secrets = Vec::with_capacity(hops.len());
        for hop in hops {
            let keys = Secrets::expand(&tables.multiply(&hop.key, &factor)?)?;
            factor *= Scalar::from_bytes_mod_order(clamp_integer(keys.blinding_factor()));
            secrets.push(keys);
        }
        let mut routing = last_routing(rng, last, &secrets)?;
        let mut mac = secrets.last()?.mac(&routing);
        for (keys, next) in secrets.iter().zip(&hops[1..]).rev() {
            routing = forward_routing(&next.key, expiry, (&mac, &routing), keys)?;
            mac = keys.mac(&routing);
        }
        let mut bytes = [0; HEADER_SIZE];
        bytes[..KEY].copy_from_slice(&point);
        bytes[KEY..KEY + MAC].copy_from_slice(&mac);
        bytes[KEY + MAC..].copy_from_slice(&routing);
        Some(Header { bytes, seeds: secrets.iter().map(Secrets::payload_seed).collect() })
    }
}

/// Returns the encrypted routing information for the last hop. Its unused part has random bytes
/// instead of zeros (Kuhn et al., "Breaking and (Partially) Fixing Provably Secure Onion Routing",
/// 2020). Returns `None` if `secrets` is empty, or if the crate `aws-lc-rs` fails.
fn last_routing(rng: &mut dyn Rng, last: &Last, secrets: &[Secrets]) -> Option<[u8; ROUTING]> {
    let (keys, others) = secrets.split_last()?;
    let mut routing = [0; ROUTING];
    rng.fill_bytes(&mut routing);
    put(&mut routing, &[&[FINAL_HOP], &version(), &last.destination, &last.identifier]);
    let own = ROUTING - others.len() * STEP;
    keys.apply(&mut routing[..own])?;
    routing[own..].copy_from_slice(&filler(others)?);
    Some(routing)
}

/// Returns the bytes with which the last hop's routing information must end (Sphinx's filler).
/// Each relay appends zeros and then encrypts; these bytes are the result of all relays, whose
/// keys are in `secrets`. Returns `None` if the crate `aws-lc-rs` fails.
fn filler(secrets: &[Secrets]) -> Option<Vec<u8>> {
    let mut filler = Vec::new();
    for keys in secrets {
        filler.extend([0; STEP]);
        let mut stream = [0; KEY_STREAM];
        keys.apply(&mut stream)?;
        let end = &stream[KEY_STREAM - filler.len()..];
        filler.iter_mut().zip(end).for_each(|(byte, key)| *byte ^= key);
    }
    Some(filler)
}

/// Returns the encrypted routing information for the relay with `keys`. The next hop has the
/// public key `next` and receives `mac` and `routing`. Returns `None` if the crate `aws-lc-rs`
/// fails.
fn forward_routing(
    next: &[u8; KEY],
    expiry: u64,
    (mac, routing): (&[u8; MAC], &[u8; ROUTING]),
    keys: &Secrets,
) -> Option<[u8; ROUTING]> {
    let mut plain = [0; ROUTING];
    let expiry = expiry.to_be_bytes();
    put(&mut plain, &[&[FORWARD_HOP], &version(), next, &expiry, mac, &routing[..ROUTING - STEP]]);
    keys.apply(&mut plain)?;
    Some(plain)
}

fn version() -> [u8; 3] {
    CURRENT_VERSION.to_bytes()
}

/// Writes `parts` one after the other into the beginning of `bytes`.
fn put(bytes: &mut [u8; ROUTING], parts: &[&[u8]]) {
    let mut at = 0;
    for part in parts {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::sphinx::SecretKey;

    fn draw(rng: &mut ChaCha20Rng) -> [u8; KEY] {
        let mut bytes = [0; KEY];
        rng.fill_bytes(&mut bytes);
        bytes
    }

    #[test]
    fn a_product_is_the_same_with_and_without_a_table_and_tables_are_bounded() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut tables = KeyTables::default();
        for _ in 0..MAX_TABLES + 5 {
            let key = SecretKey::from_bytes(draw(&mut rng)).public();
            let scalar = Scalar::from_bytes_mod_order(draw(&mut rng));
            let wanted = (MontgomeryPoint(key) * scalar).to_bytes();
            assert_eq!(tables.multiply(&key, &scalar), Some(wanted));
            assert_eq!(tables.multiply(&key, &scalar), Some(wanted), "again");
        }
        assert_eq!(tables.0.len(), MAX_TABLES);
    }

    #[test]
    fn a_key_that_is_no_point_of_the_curve_makes_no_header() {
        // The coordinate 2 belongs to a point of the twist, and to no point of the curve.
        let mut key = [0; KEY];
        key[0] = 2;
        assert_eq!(KeyTables::default().multiply(&key, &Scalar::ONE), None);
    }
}
