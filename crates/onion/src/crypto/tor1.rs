//! Tor's original relay encryption (tor-spec, "Routing relay cells"): AES-128 in counter mode, and
//! a running SHA-1 digest over all cells for a hop.

use digest::Digest;
use subtle::ConstantTimeEq;

use super::counter::KeyStream;
use super::{ClientLayer, KeyMaterial, RelayLayer, Tag};
use crate::wire::cell::{Body, Command};
use crate::wire::crypto::Sha1;
use crate::wire::message::{DIGEST, RECOGNISED};

/// A relay's layer of Tor's original encryption (tor1) on one circuit.
pub struct Tor1Relay {
    out: Direction,
    back: Direction,
}

/// A client's layer of Tor's original encryption (tor1), for one hop of a circuit.
pub struct Tor1Client {
    out: Direction,
    back: Direction,
}

impl Tor1Relay {
    /// Returns the layer with the keys that resulted from a handshake.
    pub fn new(keys: &KeyMaterial) -> Tor1Relay {
        let (out, back) = directions(keys);
        Tor1Relay { out, back }
    }
}

impl Tor1Client {
    /// Returns the layer with the keys that resulted from a handshake.
    pub fn new(keys: &KeyMaterial) -> Tor1Client {
        let (out, back) = directions(keys);
        Tor1Client { out, back }
    }
}

impl RelayLayer for Tor1Relay {
    fn outbound(&mut self, _command: Command, body: &mut Body) -> Option<Tag> {
        self.out.cipher.apply(body);
        self.out.recognise(body)
    }

    fn inbound(&mut self, _command: Command, body: &mut Body) {
        self.back.cipher.apply(body);
    }

    fn originate(&mut self, _command: Command, body: &mut Body) -> Tag {
        let tag = self.back.authenticate(body);
        self.back.cipher.apply(body);
        tag
    }
}

impl ClientLayer for Tor1Client {
    fn originate(&mut self, _command: Command, body: &mut Body) -> Tag {
        let tag = self.out.authenticate(body);
        self.out.cipher.apply(body);
        tag
    }

    fn outbound(&mut self, _command: Command, body: &mut Body) {
        self.out.cipher.apply(body);
    }

    fn inbound(&mut self, _command: Command, body: &mut Body) -> Option<Tag> {
        self.back.cipher.apply(body);
        self.back.recognise(body)
    }
}

/// Key stream and running digest of a layer of encryption, for one direction.
struct Direction {
    cipher: KeyStream,
    digest: Sha1,
}

fn directions(keys: &KeyMaterial) -> (Direction, Direction) {
    let direction = |key: &[u8; 16], seed: &[u8; 20]| Direction {
        cipher: KeyStream::new(key),
        digest: Sha1::new_with_prefix(seed),
    };
    (direction(&keys.key_out, &keys.digest_out), direction(&keys.key_in, &keys.digest_in))
}

impl Direction {
    /// Computes the digest of all cells so far, including this one, and writes it into the cell's
    /// digest field. For the computation, that field counts as zero.
    fn authenticate(&mut self, body: &mut Body) -> Tag {
        body[DIGEST].fill(0);
        self.digest.update(&body[..]);
        let digest: [u8; 20] = self.digest.clone().finalize().into();
        body[DIGEST].copy_from_slice(&digest[..4]);
        Tag::from(digest)
    }

    /// Returns the tag if the cell is the next one for this hop, else `None`. Computes the digest
    /// only if the field "recognised" is zero: in cells for other hops, the field nearly always
    /// has another value.
    fn recognise(&mut self, body: &mut Body) -> Option<Tag> {
        if body[RECOGNISED] != [0, 0] {
            return None;
        }
        let mut claimed = [0; 4];
        claimed.copy_from_slice(&body[DIGEST]);
        body[DIGEST].fill(0);
        let mut digest = self.digest.clone();
        digest.update(&body[..]);
        let whole: [u8; 20] = digest.clone().finalize().into();
        body[DIGEST].copy_from_slice(&claimed);
        if !bool::from(whole[..4].ct_eq(&claimed)) {
            return None;
        }
        self.digest = digest;
        Some(Tag::from(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::cell::BODY;

    fn keys(first: u8) -> KeyMaterial {
        KeyMaterial::from(&std::array::from_fn(|i| first.wrapping_add(i as u8)))
    }

    /// Returns both sides of a circuit of three hops: the client's layers, and the layers of the
    /// relays.
    fn circuit() -> (Vec<Tor1Client>, Vec<Tor1Relay>) {
        let keys: Vec<KeyMaterial> = [1, 80, 160].into_iter().map(keys).collect();
        (keys.iter().map(Tor1Client::new).collect(), keys.iter().map(Tor1Relay::new).collect())
    }

    fn cell(byte: u8) -> Body {
        let mut body = [byte; BODY];
        body[RECOGNISED].fill(0);
        body
    }

    fn content(body: &Body) -> Vec<u8> {
        [&body[..DIGEST.start], &body[DIGEST.end..]].concat()
    }

    #[test]
    fn each_hop_recognises_its_own_cells_only() {
        let (mut client, mut relays) = circuit();
        for (round, hop) in [2, 0, 1, 2, 2].into_iter().enumerate() {
            let mut body = cell(round as u8);
            let sent = client[hop].originate(Command::RELAY, &mut body);
            client[..hop].iter_mut().rev().for_each(|c| c.outbound(Command::RELAY, &mut body));
            for (i, relay) in relays[..=hop].iter_mut().enumerate() {
                let found = relay.outbound(Command::RELAY, &mut body);
                assert_eq!(found, (i == hop).then_some(sent), "round {round}, relay {i}");
            }
            assert_eq!(content(&body), content(&cell(round as u8)));
        }
    }

    #[test]
    fn the_client_knows_which_hop_spoke() {
        let (mut client, mut relays) = circuit();
        for hop in [2, 1, 0, 2] {
            let mut body = cell(9);
            let sent = relays[hop].originate(Command::RELAY, &mut body);
            relays[..hop].iter_mut().rev().for_each(|r| r.inbound(Command::RELAY, &mut body));
            for (i, layer) in client[..=hop].iter_mut().enumerate() {
                let found = layer.inbound(Command::RELAY, &mut body);
                assert_eq!(found, (i == hop).then_some(sent), "layer {i}");
            }
        }
    }

    #[test]
    fn a_changed_cell_is_not_recognised_and_ruins_nothing_after_it_but_itself() {
        let (mut client, mut relays) = circuit();
        let mut body = cell(1);
        client[0].originate(Command::RELAY, &mut body);
        let mut bent = body;
        bent[100] ^= 1;
        let mut copy = Tor1Relay::new(&keys(1));
        assert_eq!(copy.outbound(Command::RELAY, &mut bent), None);
        assert!(relays[0].outbound(Command::RELAY, &mut body).is_some());
    }
}
