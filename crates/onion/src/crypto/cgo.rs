//! Counter Galois Onion (proposal 359; Degabriele, Melloni, Münch and Stam, "Onion encryption
//! revisited", 2025). A cell is encrypted as one wide block: if a bit is changed, every later
//! relay decrypts the whole cell to noise. A hop's keys change with every cell that the hop itself
//! sends or receives, but not with cells that it forwards.
//!
//! The first 16 bytes of a cell are its tag, and the rest is its content. In both directions, the
//! relay encrypts and the client decrypts. To send a cell, the client "decrypts" it with the nonce
//! as the tag. The relay's encryption restores the nonce, which shows the relay that the cell is
//! addressed to it.

use aes::cipher::consts::U16;
use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit};
use aes::{Aes128Dec, Aes128Enc};
use polyval::Polyval;
use polyval::universal_hash::UniversalHash;
use subtle::ConstantTimeEq;

use super::{ClientLayer, RelayLayer, Tag, counter};
use crate::wire::cell::{BODY, Body, Command};
use crate::wire::message::Format;

/// Length of a cell's tag in bytes.
pub const TAG: usize = 16;
/// Length of the key material for one direction of a hop's layer, in bytes: four keys and the
/// first nonce.
pub const SEED: usize = KEYS + TAG;
/// Length of the key material for a hop's layer, in bytes: first the direction away from the
/// client, then the direction towards it.
pub const KEY_BYTES: usize = 2 * SEED;

const KEYS: usize = 64;
/// Number of bytes in a cell after its tag.
const CONTENT: usize = BODY - TAG;
/// Index of the block in a tag's key stream at which the next keys begin. The blocks before it
/// encrypt the cell.
const NEXT_KEYS: usize = 31;
const _: () = assert!(NEXT_KEYS * TAG >= CONTENT);
/// Number of blocks of a tag's key stream: `NEXT_KEYS` blocks that encrypt the cell, then the next
/// keys and nonce. The maximum is 64: the counter starts at a multiple of 64, and must not carry
/// into its higher bits.
const STREAM: usize = NEXT_KEYS + SEED / TAG;
const _: () = assert!(STREAM <= 64 && SEED.is_multiple_of(TAG));

type Block = [u8; TAG];

/// A relay's layer of encryption by Counter Galois Onion on one circuit.
pub struct CgoRelay {
    out: Direction<Aes128Enc>,
    back: Direction<Aes128Enc>,
}

/// A client's layer of encryption by Counter Galois Onion, for one hop of a circuit.
pub struct CgoClient {
    out: Direction<Aes128Dec>,
    back: Direction<Aes128Dec>,
}

impl CgoRelay {
    /// Returns a layer with the key material `seed` that results from a handshake.
    pub fn new(seed: &[u8; KEY_BYTES]) -> CgoRelay {
        let (out, back) = directions(seed);
        CgoRelay { out, back }
    }
}

impl CgoClient {
    /// Returns a layer with the key material `seed` that results from a handshake.
    pub fn new(seed: &[u8; KEY_BYTES]) -> CgoClient {
        let (out, back) = directions(seed);
        CgoClient { out, back }
    }
}

impl RelayLayer for CgoRelay {
    fn format(&self) -> Format {
        Format::V1
    }

    fn outbound(&mut self, command: Command, body: &mut Body) -> Option<Tag> {
        let received = tag(body);
        self.out.encrypt(command, body);
        self.out.is_ours(body).then(|| {
            self.out.renew();
            Tag::from(received)
        })
    }

    fn inbound(&mut self, command: Command, body: &mut Body) {
        self.back.encrypt(command, body);
    }

    fn originate(&mut self, command: Command, body: &mut Body) -> Tag {
        body[..TAG].copy_from_slice(&self.back.nonce);
        self.back.encrypt(command, body);
        self.back.renew();
        Tag::from(self.back.last)
    }
}

impl ClientLayer for CgoClient {
    fn format(&self) -> Format {
        Format::V1
    }

    fn originate(&mut self, command: Command, body: &mut Body) -> Tag {
        body[..TAG].copy_from_slice(&self.out.nonce);
        self.out.decrypt(command, body);
        self.out.renew();
        Tag::from(tag(body))
    }

    fn outbound(&mut self, command: Command, body: &mut Body) {
        self.out.decrypt(command, body);
    }

    fn inbound(&mut self, command: Command, body: &mut Body) -> Option<Tag> {
        let received = tag(body);
        self.back.decrypt(command, body);
        self.back.is_ours(body).then(|| {
            self.back.renew();
            Tag::from(received)
        })
    }
}

/// One direction of a layer. `C` is AES-128, either for encryption or for decryption.
struct Direction<C> {
    keys: Keys<C>,
    /// Tag that the next cell has if this hop is its sender or receiver. Cells that the hop only
    /// forwards have other tags.
    nonce: Block,
    /// Tag of the last cell, in the form that it has between this hop and the next hop away from
    /// the client.
    last: Block,
    /// Keys and nonce that replace the present ones after a cell that this hop sent or received,
    /// but not after a cell that it only forwarded.
    next: [u8; SEED],
}

impl<C: KeyInit<KeySize = U16>> Direction<C> {
    fn new(seed: &[u8]) -> Direction<C> {
        let (keys, nonce) = seed.split_at(KEYS);
        Direction { keys: Keys::new(keys), nonce: block(nonce), last: [0; TAG], next: [0; SEED] }
    }

    fn is_ours(&self, body: &Body) -> bool {
        body[..TAG].ct_eq(&self.nonce).into()
    }

    /// Replaces the keys and the nonce after a cell that this hop sent or received. The old values
    /// cannot be computed from the new ones (`Update` in proposal 359).
    fn renew(&mut self) {
        let (keys, nonce) = self.next.split_at(KEYS);
        self.keys = Keys::new(keys);
        self.nonce = block(nonce);
        self.next = [0; SEED];
    }
}

impl Direction<Aes128Enc> {
    fn encrypt(&mut self, command: Command, body: &mut Body) {
        let (left, content) = body.split_at_mut(TAG);
        let blind = self.keys.blind(&self.last, command, content);
        let mut whitened = xor(&block(left), &blind);
        self.keys.wide.encrypt_block((&mut whitened).into());
        self.last = xor(&whitened, &blind);
        left.copy_from_slice(&self.last);
        self.next = self.keys.cover(&self.last, content);
    }
}

impl Direction<Aes128Dec> {
    fn decrypt(&mut self, command: Command, body: &mut Body) {
        let (left, content) = body.split_at_mut(TAG);
        let received = block(left);
        self.next = self.keys.cover(&received, content);
        let blind = self.keys.blind(&self.last, command, content);
        let mut whitened = xor(&received, &blind);
        self.keys.wide.decrypt_block((&mut whitened).into());
        left.copy_from_slice(&xor(&whitened, &blind));
        self.last = received;
    }
}

/// The four keys of a direction: two keys of the tweakable block cipher (J), and two keys of the
/// pseudorandom stream (S).
struct Keys<C> {
    wide: C,
    wide_hash: Polyval,
    stream: Aes128Enc,
    stream_hash: Polyval,
}

impl<C: KeyInit<KeySize = U16>> Keys<C> {
    fn new(bytes: &[u8]) -> Keys<C> {
        let key = |at: usize| block(&bytes[at..at + TAG]);
        Keys {
            wide: C::new(&key(0).into()),
            wide_hash: Polyval::new(&key(16).into()),
            stream: Aes128Enc::new(&key(32).into()),
            stream_hash: Polyval::new(&key(48).into()),
        }
    }

    /// Returns the mask for a tag, which is applied before and after the block cipher: POLYVAL
    /// over the last tag, the command, and the content.
    fn blind(&self, last: &Block, command: Command, content: &[u8]) -> Block {
        let mut bytes = [0; (TAG + 1 + CONTENT).next_multiple_of(TAG)];
        bytes[..TAG].copy_from_slice(last);
        bytes[TAG] = command.0;
        bytes[TAG + 1..][..CONTENT].copy_from_slice(content);
        let mut hash = self.wide_hash.clone();
        // A single call is faster, because the library processes four blocks at a time.
        hash.update_padded(&bytes);
        hash.finalize().into()
    }

    /// XORs `content` with the key stream of `tag`. Returns the stream's blocks from `NEXT_KEYS`
    /// on, which are the next keys and nonce.
    fn cover(&self, tag: &Block, content: &mut [u8]) -> [u8; SEED] {
        let mut hash = self.stream_hash.clone();
        hash.update(&[(*tag).into()]);
        let mut start: Block = hash.finalize().into();
        start[TAG - 1] &= 0xc0;
        let mut stream = [aes::Block::from(start); STREAM];
        for (number, counter) in (0..).zip(&mut stream) {
            counter[TAG - 1] |= number;
        }
        self.stream.encrypt_blocks(&mut stream);
        counter::xor_blocks(content, &stream);
        let mut next = [0; SEED];
        let pairs = next.chunks_exact_mut(TAG).zip(&stream[NEXT_KEYS..]);
        pairs.for_each(|(bytes, block)| bytes.copy_from_slice(block));
        next
    }
}

fn directions<C: KeyInit<KeySize = U16>>(seed: &[u8; KEY_BYTES]) -> (Direction<C>, Direction<C>) {
    let (out, back) = seed.split_at(SEED);
    (Direction::new(out), Direction::new(back))
}

fn tag(body: &Body) -> Block {
    block(&body[..TAG])
}

/// Returns 16 bytes as a block.
fn block(bytes: &[u8]) -> Block {
    bytes.try_into().expect("the slice has 16 bytes")
}

fn xor(a: &Block, b: &Block) -> Block {
    std::array::from_fn(|i| a[i] ^ b[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of the specification's reference implementation. The head of the file
    /// describes them.
    const VECTORS: &str = include_str!("../../testdata/cgo.txt");

    /// Returns the lines of one type, each split into fields.
    fn vectors(kind: &str) -> Vec<Vec<&'static str>> {
        let fields = |line: &'static str| line.split_whitespace().collect::<Vec<_>>();
        let of_kind = VECTORS.lines().map(fields).filter(|line| line.first() == Some(&kind));
        let found: Vec<_> = of_kind.map(|line| line[1..].to_vec()).collect();
        assert!(!found.is_empty(), "{kind}");
        found
    }

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        assert_eq!(hex.len(), 2 * N, "{hex}");
        std::array::from_fn(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
    }

    /// Returns the encryption state of one direction of a circuit, from three hexadecimal fields
    /// of a test vector: keys, nonce and last tag.
    fn direction<C: KeyInit<KeySize = U16>>(fields: &[&str]) -> Direction<C> {
        let seed: [u8; SEED] = bytes(&[fields[0], fields[1]].concat());
        Direction { last: bytes(fields[2]), ..Direction::new(&seed) }
    }

    fn command(hex: &str) -> Command {
        Command(bytes::<1>(hex)[0])
    }

    /// Checks that two directions have the same state: they produce the same cell, recognize the
    /// same cells, and have the same keys afterwards.
    fn assert_same<C: KeyInit<KeySize = U16>>(
        mut one: Direction<C>,
        mut other: Direction<C>,
        apply: fn(&mut Direction<C>, Command, &mut Body),
    ) {
        assert_eq!((one.nonce, one.last), (other.nonce, other.last));
        let [mut a, mut b] = [[0x5a; BODY]; 2];
        for _ in 0..2 {
            apply(&mut one, Command::RELAY, &mut a);
            apply(&mut other, Command::RELAY, &mut b);
            assert_eq!(a, b);
            one.renew();
            other.renew();
        }
    }

    fn relay(back: Direction<Aes128Enc>, out: Direction<Aes128Enc>) -> CgoRelay {
        CgoRelay { out, back }
    }

    #[test]
    fn a_relay_passes_cells_on_as_the_specification_computes() {
        for fields in vectors("relay") {
            let (way, ad, mut cell) = (fields[0], command(fields[4]), bytes(fields[5]));
            let mut layer = relay(direction(&fields[1..4]), direction(&fields[1..4]));
            let end = match way {
                "in" => {
                    layer.inbound(ad, &mut cell);
                    layer.back
                }
                _ => {
                    assert_eq!(layer.outbound(ad, &mut cell), None, "it is for another relay");
                    layer.out
                }
            };
            assert_eq!(cell, bytes(fields[9]));
            assert_same(end, direction(&fields[6..9]), Direction::encrypt);
        }
    }

    #[test]
    fn a_relay_speaks_as_the_specification_computes() {
        for fields in vectors("relay-originate") {
            let mut layer = relay(direction(&fields[0..3]), direction(&fields[0..3]));
            let mut cell = [0; BODY];
            cell[TAG..].copy_from_slice(&bytes::<CONTENT>(fields[4]));
            let sent = layer.originate(command(fields[3]), &mut cell);
            assert_eq!(cell, bytes(fields[8]));
            assert_eq!(sent.bytes(), &cell[..TAG]);
            assert_same(layer.back, direction(&fields[5..8]), Direction::encrypt);
        }
    }

    #[test]
    fn a_client_speaks_as_the_specification_computes() {
        for fields in vectors("client-originate") {
            let layer = |at: usize| CgoClient {
                out: direction(&fields[at..at + 3]),
                back: direction(&fields[at..at + 3]),
            };
            let mut layers: Vec<CgoClient> = [0, 3, 6].into_iter().map(layer).collect();
            let (hop, ad) = (fields[9].parse::<usize>().unwrap() - 1, command(fields[10]));
            let mut cell = [0; BODY];
            cell[TAG..].copy_from_slice(&bytes::<CONTENT>(fields[11]));
            layers[hop].originate(ad, &mut cell);
            layers[..hop].iter_mut().rev().for_each(|layer| layer.outbound(ad, &mut cell));
            assert_eq!(cell, bytes(fields[21]));
            for (layer, at) in layers.into_iter().zip([12, 15, 18]) {
                assert_same(layer.out, direction(&fields[at..at + 3]), Direction::decrypt);
            }
        }
    }

    /// Returns both sides of a circuit of three hops.
    fn circuit() -> (Vec<CgoClient>, Vec<CgoRelay>) {
        let seed = |hop: u8| std::array::from_fn(|i| hop.wrapping_mul(67).wrapping_add(i as u8));
        let seeds: Vec<[u8; KEY_BYTES]> = (1..=3).map(seed).collect();
        (seeds.iter().map(CgoClient::new).collect(), seeds.iter().map(CgoRelay::new).collect())
    }

    #[test]
    fn each_hop_knows_its_own_cells_both_ways() {
        let (mut client, mut relays) = circuit();
        for (round, hop) in [2, 0, 1, 2, 2, 0].into_iter().enumerate() {
            let mut body = [round as u8; BODY];
            let sent = client[hop].originate(Command::RELAY, &mut body);
            client[..hop].iter_mut().rev().for_each(|c| c.outbound(Command::RELAY, &mut body));
            for (i, relay) in relays[..=hop].iter_mut().enumerate() {
                let found = relay.outbound(Command::RELAY, &mut body);
                assert_eq!(found, (i == hop).then_some(sent), "round {round}, relay {i}");
            }
            assert_eq!(body[TAG..], [round as u8; CONTENT]);
            let answer = relays[hop].originate(Command::RELAY, &mut body);
            relays[..hop].iter_mut().rev().for_each(|r| r.inbound(Command::RELAY, &mut body));
            for (i, layer) in client[..=hop].iter_mut().enumerate() {
                let found = layer.inbound(Command::RELAY, &mut body);
                assert_eq!(found, (i == hop).then_some(answer), "round {round}, layer {i}");
            }
            assert_eq!(body[TAG..], [round as u8; CONTENT]);
        }
    }

    #[test]
    fn a_changed_bit_or_command_leaves_noise_and_ruins_the_rest_of_the_circuit() {
        for change in [0, TAG, BODY - 1] {
            let (mut client, mut relays) = circuit();
            let mut body = [0; BODY];
            client[1].originate(Command::RELAY, &mut body);
            client[0].outbound(Command::RELAY, &mut body);
            body[change] ^= 1;
            assert_eq!(relays[0].outbound(Command::RELAY, &mut body), None);
            assert_eq!(relays[1].outbound(Command::RELAY, &mut body), None);
            assert!(body[TAG..].iter().filter(|&&byte| byte == 0).count() < CONTENT / 8);
            client[1].originate(Command::RELAY, &mut body);
            client[0].outbound(Command::RELAY, &mut body);
            relays[0].outbound(Command::RELAY, &mut body);
            assert_eq!(relays[1].outbound(Command::RELAY, &mut body), None, "and the next one");
        }
        let (mut client, mut relays) = circuit();
        let mut body = [0; BODY];
        client[0].originate(Command::RELAY_EARLY, &mut body);
        assert_eq!(relays[0].outbound(Command::RELAY, &mut body), None);
    }
}
