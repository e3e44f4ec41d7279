//! Relay crypto of lossy circuits, whose cells travel in datagrams
//! (`docs/spec/lossy-circuits.md`). Each cell is encrypted separately, as one wide block. A relay
//! can therefore decrypt a cell even if earlier cells were lost or reordered. Experimental: no
//! cryptographer has reviewed it.
//!
//! A cell carries a counter. Each layer is [HCTR2](super::hctr2), with counter, command and
//! direction in the tweak. After decryption at its recipient, the first 16 bytes of a cell are
//! zeros; otherwise the cell is for another hop. The client encrypts outward cells and decrypts
//! inward ones; a relay does the reverse.
//!
//! * [`LossyClient`] and [`LossyRelay`] are the states of a circuit at the client and at a relay:
//!   layers of encryption, the next counter to send, and a replay window for each direction in
//!   which cells arrive.
//! * [`LossyRelayLayer`] and [`LossyClientLayer`] are one hop's layer. They implement the same
//!   traits as the layers of other circuits. Before a caller encrypts or decrypts a cell, it must
//!   set the cell's counter.
//!
//! Of the relays, only the last one of a circuit originates cells. So in each direction one end
//! numbers all cells.

use aes::{Aes128Dec, Aes128Enc};
use anabranch_multipath::Replay;
use hmac::{Hmac, Mac};
use subtle::ConstantTimeEq;

use super::hctr2::{self, Hctr2};
use super::{ClientLayer, RelayLayer, Tag};
use crate::wire::cell::{Body, Command};
use crate::wire::crypto::Sha256;
use crate::wire::message::Format;

/// Number of bytes of key material for a hop: one secret for each direction.
pub const KEY_BYTES: usize = 2 * SECRET;
/// Number of bytes at the start of a cell that are zeros after decryption at its recipient.
pub const ZEROS: usize = 16;
/// Maximum number of cells that one key encrypts: half a gigabyte of cells.
pub const EPOCH: u32 = 1 << 20;
/// Maximum difference between a counter and the greatest counter received so far. A cell with a
/// larger difference is dropped.
pub const LEAP: u64 = 1 << 16;

const SECRET: usize = 32;
/// Number of counters after the start of an epoch (2^20 consecutive counters) at which the
/// previous epoch's key is dropped. It equals the length of the window of [`Replay`].
const OVERLAP: u32 = 16_384;
const _: () = assert!(LEAP < EPOCH as u64 && OVERLAP < EPOCH);

/// Label of HKDF-Expand (RFC 5869, section 2.3) for the key of an epoch (2^20 consecutive
/// counters, whose cells one key encrypts).
const KEY: &[u8] = b"anabranch lossy circuit 1: key";
/// Label of HKDF-Expand for the secret of the next epoch (2^20 consecutive counters).
const NEXT: &[u8] = b"anabranch lossy circuit 1: next epoch";

/// Length of a tweak in bytes: counter (8), command (1) and direction (1).
const TWEAK: usize = 10;

/// The secrets of one hop that result from a handshake.
#[derive(Clone, PartialEq, Eq)]
pub struct LossyKeys {
    /// Secret for cells that travel away from the client.
    out: [u8; SECRET],
    /// Secret for cells that travel to the client.
    back: [u8; SECRET],
}

impl From<&[u8; KEY_BYTES]> for LossyKeys {
    /// Splits key material into the secret for cells away from the client and the secret for cells
    /// to the client, in this order.
    fn from(bytes: &[u8; KEY_BYTES]) -> LossyKeys {
        let mut keys = LossyKeys { out: [0; SECRET], back: [0; SECRET] };
        keys.out.copy_from_slice(&bytes[..SECRET]);
        keys.back.copy_from_slice(&bytes[SECRET..]);
        keys
    }
}

/// Reason why a cell is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The counter is a duplicate, or too old to check for duplicates. The cell is dropped.
    Replayed,
    /// The counter is more than [`LEAP`] ahead of all counters received before. The cell is
    /// dropped.
    TooFarAhead,
    /// The circuit's other end did not send the cell: the last hop does not recognise the cell, or
    /// an earlier hop recognises it. Links deliver cells unchanged, so an end or a relay of the
    /// circuit broke the protocol. The circuit must be closed.
    Garbage,
}

/// A relay's decision about a cell that travels away from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outward {
    /// The cell is for this relay. The cell's content follows the zeros at its start.
    Ours,
    /// The cell must be forwarded to the next relay, with the same counter.
    Onward,
}

/// A relay's state of a lossy circuit (whose cells travel in datagrams).
pub struct LossyRelay {
    layer: LossyRelayLayer,
    sent: Sent,
    outward: Arrivals,
    inward: Arrivals,
}

impl LossyRelay {
    /// Returns the state with the keys that resulted from a handshake.
    #[must_use]
    pub fn new(keys: &LossyKeys) -> LossyRelay {
        let [outward, inward] = Default::default();
        LossyRelay { layer: LossyRelayLayer::new(keys), sent: Sent::default(), outward, inward }
    }

    /// Processes a cell from the client's side. `is_last` is true if the circuit ends at this
    /// relay.
    ///
    /// # Errors
    /// Returns a [`Refusal`]. The body of the cell is then unspecified.
    pub fn outward(
        &mut self,
        (command, counter): (Command, u32),
        body: &mut Body,
        is_last: bool,
    ) -> Result<Outward, Refusal> {
        self.outward.accept(counter)?;
        match (self.layer.at(counter).outbound(command, body), is_last) {
            (Some(_), true) => Ok(Outward::Ours),
            (None, false) => Ok(Outward::Onward),
            // Clients send only to the last relay.
            _ => Err(Refusal::Garbage),
        }
    }

    /// Processes a cell from the next relay, and adds this relay's layer of encryption.
    ///
    /// # Errors
    /// [`Refusal::Replayed`] or [`Refusal::TooFarAhead`], because of the cell's counter.
    pub fn inward(
        &mut self,
        (command, counter): (Command, u32),
        body: &mut Body,
    ) -> Result<(), Refusal> {
        self.inward.accept(counter)?;
        self.layer.at(counter).inbound(command, body);
        Ok(())
    }

    /// Encrypts a cell that this relay, the circuit's last one, sends to the client. In `body`,
    /// the content starts at index [`ZEROS`]. Returns the cell's counter. Returns `None` once all
    /// counters are used; the circuit must then be closed.
    pub fn originate(&mut self, command: Command, body: &mut Body) -> Option<u32> {
        let counter = self.sent.next()?;
        self.layer.at(counter).originate(command, body);
        Some(counter)
    }
}

/// The client's state of a lossy circuit (whose cells travel in datagrams).
pub struct LossyClient {
    hops: Vec<LossyClientLayer>,
    sent: Sent,
    arrived: Arrivals,
}

impl LossyClient {
    /// Returns the state with the keys of the circuit's hops, the hop nearest to the client first.
    #[must_use]
    pub fn new(hops: &[LossyKeys]) -> LossyClient {
        let hops = hops.iter().map(LossyClientLayer::new).collect();
        LossyClient { hops, sent: Sent::default(), arrived: Arrivals::default() }
    }

    /// Encrypts a cell for the last hop. In `body`, the content starts at index [`ZEROS`]. Returns
    /// the cell's counter. Returns `None` once all counters are used, or if the circuit has no
    /// hop. The circuit must then be closed.
    pub fn originate(&mut self, command: Command, body: &mut Body) -> Option<u32> {
        let (last, others) = self.hops.split_last_mut()?;
        let counter = self.sent.next()?;
        last.at(counter).originate(command, body);
        others.iter_mut().rev().for_each(|hop| hop.at(counter).outbound(command, body));
        Some(counter)
    }

    /// Decrypts a received cell, which only the circuit's last hop may have sent.
    ///
    /// # Errors
    /// Returns a [`Refusal`]. The body of the cell is then unspecified.
    pub fn inward(
        &mut self,
        (command, counter): (Command, u32),
        body: &mut Body,
    ) -> Result<(), Refusal> {
        self.arrived.accept(counter)?;
        let (last, others) = self.hops.split_last_mut().ok_or(Refusal::Garbage)?;
        // Hops before the last never originate cells, so a cell that one of them recognises is
        // forged.
        let is_ours = |hop: &mut LossyClientLayer| hop.at(counter).inbound(command, body).is_some();
        if others.iter_mut().any(is_ours) {
            return Err(Refusal::Garbage);
        }
        last.at(counter).inbound(command, body).map(drop).ok_or(Refusal::Garbage)
    }
}

/// A relay's layer of encryption. [`LossyRelayLayer::at`] sets the counter of the cell that the
/// next call of [`RelayLayer`] processes.
pub struct LossyRelayLayer {
    out: Ratchet<Aes128Dec>,
    back: Ratchet<Aes128Enc>,
    counter: u32,
}

impl LossyRelayLayer {
    /// Returns the layer with these keys, at counter 0.
    #[must_use]
    pub fn new(keys: &LossyKeys) -> LossyRelayLayer {
        let (out, back) = (Ratchet::new(keys.out), Ratchet::new(keys.back));
        LossyRelayLayer { out, back, counter: 0 }
    }

    /// Sets the counter of the next cell that this layer processes.
    pub fn at(&mut self, counter: u32) -> &mut LossyRelayLayer {
        self.counter = counter;
        self
    }
}

impl RelayLayer for LossyRelayLayer {
    fn format(&self) -> Format {
        Format::V1
    }

    fn outbound(&mut self, command: Command, body: &mut Body) -> Option<Tag> {
        let received = tag(body);
        self.out.of(self.counter).decrypt(&tweak(self.counter, command, CellDirection::Out), body);
        is_ours(body).then_some(received)
    }

    fn inbound(&mut self, command: Command, body: &mut Body) {
        self.back
            .of(self.counter)
            .encrypt(&tweak(self.counter, command, CellDirection::Back), body);
    }

    fn originate(&mut self, command: Command, body: &mut Body) -> Tag {
        body[..ZEROS].fill(0);
        self.inbound(command, body);
        tag(body)
    }
}

/// A client's layer of encryption for one hop. [`LossyClientLayer::at`] sets the counter of the
/// cell that the next call of [`ClientLayer`] processes.
pub struct LossyClientLayer {
    out: Ratchet<Aes128Enc>,
    back: Ratchet<Aes128Dec>,
    counter: u32,
}

impl LossyClientLayer {
    /// Returns the layer with these keys, at counter 0.
    #[must_use]
    pub fn new(keys: &LossyKeys) -> LossyClientLayer {
        let (out, back) = (Ratchet::new(keys.out), Ratchet::new(keys.back));
        LossyClientLayer { out, back, counter: 0 }
    }

    /// Sets the counter of the next cell that this layer processes.
    pub fn at(&mut self, counter: u32) -> &mut LossyClientLayer {
        self.counter = counter;
        self
    }
}

impl ClientLayer for LossyClientLayer {
    fn format(&self) -> Format {
        Format::V1
    }

    fn originate(&mut self, command: Command, body: &mut Body) -> Tag {
        body[..ZEROS].fill(0);
        self.outbound(command, body);
        tag(body)
    }

    fn outbound(&mut self, command: Command, body: &mut Body) {
        self.out.of(self.counter).encrypt(&tweak(self.counter, command, CellDirection::Out), body);
    }

    fn inbound(&mut self, command: Command, body: &mut Body) -> Option<Tag> {
        let received = tag(body);
        self.back
            .of(self.counter)
            .decrypt(&tweak(self.counter, command, CellDirection::Back), body);
        is_ours(body).then_some(received)
    }
}

/// Keys of one hop for one direction: the keys of the present epoch (2^20 consecutive counters),
/// and for some time also the keys of the previous epoch.
struct Ratchet<C> {
    /// The secret from which the key of the next epoch (2^20 consecutive counters) is derived.
    secret: [u8; SECRET],
    epoch: u32,
    current: Hctr2<C>,
    previous: Option<Hctr2<C>>,
}

impl<C: From<Aes128Enc>> Ratchet<C> {
    fn new(secret: [u8; SECRET]) -> Ratchet<C> {
        let (current, secret) = step(&secret);
        Ratchet { secret, epoch: 0, current, previous: None }
    }

    /// Returns the cipher for `counter`. Advances to a later epoch (2^20 consecutive counters) if
    /// the counter belongs to it. If the key for the counter was dropped, returns the cipher of
    /// another epoch, which decrypts the cell to garbage. The replay window rejects such an old
    /// counter in any case.
    fn of(&mut self, counter: u32) -> &Hctr2<C> {
        while self.epoch < counter / EPOCH {
            let (next, secret) = step(&self.secret);
            self.previous = Some(std::mem::replace(&mut self.current, next));
            self.secret = secret;
            self.epoch += 1;
        }
        if self.epoch == counter / EPOCH && counter % EPOCH > OVERLAP {
            self.previous = None;
        }
        let previous = self.previous.as_ref().filter(|_| counter / EPOCH < self.epoch);
        previous.unwrap_or(&self.current)
    }
}

/// Derives the cipher of an epoch (2^20 consecutive counters), and the secret of the next epoch,
/// from the epoch's secret.
fn step<C: From<Aes128Enc>>(secret: &[u8; SECRET]) -> (Hctr2<C>, [u8; SECRET]) {
    let key = expand(secret, KEY);
    let key =
        key.first_chunk::<{ hctr2::KEY }>().expect("a digest of 32 bytes is longer than the key");
    (Hctr2::new(key), expand(secret, NEXT))
}

/// Computes HKDF-Expand with SHA-256, for at most 32 bytes (RFC 5869, section 2.3).
fn expand(secret: &[u8; SECRET], label: &[u8]) -> [u8; SECRET] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(label);
    mac.update(&[1]);
    mac.finalize().into_bytes().into()
}

/// Direction of a cell.
#[derive(Clone, Copy)]
enum CellDirection {
    Out = 0,
    Back = 1,
}

fn tweak(counter: u32, command: Command, way: CellDirection) -> [u8; TWEAK] {
    let mut tweak = [0; TWEAK];
    tweak[..8].copy_from_slice(&u64::from(counter).to_be_bytes());
    tweak[8..].copy_from_slice(&[command.0, way as u8]);
    tweak
}

fn is_ours(body: &Body) -> bool {
    body[..ZEROS].ct_eq(&[0; ZEROS]).into()
}

fn tag(body: &Body) -> Tag {
    Tag::from(*body.first_chunk::<ZEROS>().expect("a cell is longer than the tag"))
}

/// State of the counters of the cells that were sent in one direction.
#[derive(Default)]
struct Sent {
    next: u64,
}

impl Sent {
    /// Returns the next unused counter; `None` once all are used.
    fn next(&mut self) -> Option<u32> {
        let counter = u32::try_from(self.next).ok()?;
        self.next += 1;
        Some(counter)
    }
}

/// Replay window of the counters received in one direction. It is created when the first cell
/// arrives, because most circuits never receive one.
#[derive(Default)]
struct Arrivals {
    window: Option<Replay>,
}

impl Arrivals {
    fn accept(&mut self, counter: u32) -> Result<(), Refusal> {
        let window = self.window.get_or_insert_default();
        let counter = u64::from(counter);
        if counter >= window.next() + LEAP {
            return Err(Refusal::TooFarAhead);
        }
        if window.accept(counter) { Ok(()) } else { Err(Refusal::Replayed) }
    }
}

#[cfg(test)]
mod tests;
