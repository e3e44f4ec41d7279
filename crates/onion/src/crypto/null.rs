//! Layers of a circuit without encryption, for simulations of large networks. They need hardly any
//! computing time, and have the same interface as layers with encryption.
//!
//! No handshake results in these layers. Only the simulator calls
//! [`Node::elide_crypto`](crate::Node::elide_crypto), which replaces the layers that a handshake
//! agreed on.
//!
//! A cell stays readable. The field "recognised" of Tor's original relay encryption (tor1)
//! contains the number of remaining layers. The digest field contains the cell's sequence number
//! among all cells for the same hop in the same direction.

use super::{ClientLayer, RelayLayer, Tag};
use crate::wire::cell::{Body, Command};
use crate::wire::message::{DIGEST, Format, RECOGNISED};

/// A relay's layer without encryption.
pub struct NullRelay(Layer);

/// A client's layer without encryption, for one hop.
pub struct NullClient(Layer);

/// State of a layer without encryption, at the client or at the relay.
struct Layer {
    cgo: bool,
    /// Number of cells that this end has sent.
    originated: u32,
    /// Number of cells that this end has received.
    recognised: u32,
}

impl Layer {
    /// Returns a layer that replaces Counter Galois Onion if `cgo` is true, or else Tor's original
    /// relay encryption (tor1). The format of cells and the length of tags are those of the
    /// replaced layer.
    fn new(cgo: bool) -> Layer {
        Layer { cgo, originated: 0, recognised: 0 }
    }

    fn format(&self) -> Format {
        if self.cgo { Format::V1 } else { Format::V0 }
    }

    fn tag(&self, number: u32) -> Tag {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        match self.cgo {
            true => Tag::from(
                *bytes.first_chunk::<16>().expect("an array of 20 bytes is longer than the tag"),
            ),
            false => Tag::from(bytes),
        }
    }

    fn originate(&mut self, body: &mut Body) -> Tag {
        self.originated += 1;
        body[RECOGNISED].copy_from_slice(&1u16.to_be_bytes());
        body[DIGEST].copy_from_slice(&self.originated.to_be_bytes());
        self.tag(self.originated)
    }

    fn cover(body: &mut Body) {
        let layers = u16::from_be_bytes([body[1], body[2]]).wrapping_add(1);
        body[RECOGNISED].copy_from_slice(&layers.to_be_bytes());
    }

    /// Removes a layer from a cell. Returns the cell's tag if this was the cell's last layer and
    /// the cell has the next sequence number, else `None`.
    fn open(&mut self, body: &mut Body) -> Option<Tag> {
        let layers = u16::from_be_bytes([body[1], body[2]]).wrapping_sub(1);
        body[RECOGNISED].copy_from_slice(&layers.to_be_bytes());
        let next = self.recognised.wrapping_add(1);
        if layers > 0 || body[DIGEST] != next.to_be_bytes() {
            return None;
        }
        self.recognised = next;
        Some(self.tag(next))
    }
}

impl NullRelay {
    /// Returns a relay's layer that replaces Counter Galois Onion if `cgo` is true, or else Tor's
    /// original relay encryption (tor1).
    pub fn new(cgo: bool) -> NullRelay {
        NullRelay(Layer::new(cgo))
    }
}

impl NullClient {
    /// Returns the client's layer for one hop: see [`NullRelay::new`].
    pub fn new(cgo: bool) -> NullClient {
        NullClient(Layer::new(cgo))
    }
}

impl RelayLayer for NullRelay {
    fn format(&self) -> Format {
        self.0.format()
    }

    fn outbound(&mut self, _: Command, body: &mut Body) -> Option<Tag> {
        self.0.open(body)
    }

    fn inbound(&mut self, _: Command, body: &mut Body) {
        Layer::cover(body);
    }

    fn originate(&mut self, _: Command, body: &mut Body) -> Tag {
        self.0.originate(body)
    }
}

impl ClientLayer for NullClient {
    fn format(&self) -> Format {
        self.0.format()
    }

    fn originate(&mut self, _: Command, body: &mut Body) -> Tag {
        self.0.originate(body)
    }

    fn outbound(&mut self, _: Command, body: &mut Body) {
        Layer::cover(body);
    }

    fn inbound(&mut self, _: Command, body: &mut Body) -> Option<Tag> {
        self.0.open(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::cell::BODY;

    const RELAY: Command = Command::RELAY;

    /// Returns both sides of a circuit of three hops. Cells of the last hop have the format of
    /// Counter Galois Onion.
    fn circuit() -> ([NullClient; 3], [NullRelay; 3]) {
        let newer = [false, false, true];
        (newer.map(NullClient::new), newer.map(NullRelay::new))
    }

    /// Sends a cell to `hop`. Returns the client's tag, and for each relay on the way whether it
    /// recognised the cell.
    fn out(client: &mut [NullClient], relays: &mut [NullRelay], hop: usize) -> (Tag, Vec<bool>) {
        let mut body = [7; BODY];
        let tag = client[hop].originate(RELAY, &mut body);
        (0..hop).rev().for_each(|nearer| client[nearer].outbound(RELAY, &mut body));
        let passing = &mut relays[..=hop];
        let found: Vec<Option<Tag>> =
            passing.iter_mut().map(|relay| relay.outbound(RELAY, &mut body)).collect();
        assert_eq!(found.last().copied().flatten(), Some(tag));
        (tag, found.iter().map(Option::is_some).collect())
    }

    #[test]
    fn each_cell_is_recognised_by_its_hop_alone() {
        let (mut client, mut relays) = circuit();
        for hop in [0, 2, 1, 2, 0] {
            let (tag, found) = out(&mut client, &mut relays, hop);
            assert_eq!(found.iter().position(|&found| found), Some(hop));
            assert_eq!(tag.bytes().len(), if hop == 2 { 16 } else { 20 });
        }
    }

    #[test]
    fn cells_to_the_client_are_recognised_there() {
        let (mut client, mut relays) = circuit();
        for hop in [2, 0, 2, 1] {
            let mut body = [9; BODY];
            let tag = relays[hop].originate(RELAY, &mut body);
            (0..hop).rev().for_each(|nearer| relays[nearer].inbound(RELAY, &mut body));
            let mut layers = client.iter_mut().enumerate();
            let found = layers.find_map(|(at, layer)| Some((at, layer.inbound(RELAY, &mut body)?)));
            assert_eq!(found, Some((hop, tag)));
        }
    }

    #[test]
    fn a_lost_cell_shows_at_the_next() {
        let (mut client, mut relays) = circuit();
        let mut body = [1; BODY];
        client[0].originate(RELAY, &mut body);
        client[0].originate(RELAY, &mut body);
        assert_eq!(relays[0].outbound(RELAY, &mut body), None);
    }
}
