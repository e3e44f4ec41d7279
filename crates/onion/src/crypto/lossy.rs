//! Relay crypto of lossy circuits (`docs/spec/lossy-circuits.md`). Each cell is a wide block of
//! its own, so a relay can open it even if earlier cells were lost or reordered. Experimental: no
//! cryptographer has reviewed it.
//!
//! A cell carries a counter. Each layer is [HCTR2](super::hctr2), with counter, command and
//! direction in the tweak. The first 16 bytes of a cell are zeros at its recipient; a cell with
//! other bytes is another hop's. The client encrypts outward cells and decrypts inward ones; a
//! relay does the reverse.
//!
//! * [`LossyClient`] and [`LossyRelay`] are the states of a circuit at the client and at a relay:
//!   layers, the next counter to send, and a replay window for each direction of arrival.
//! * [`LossyRelayLayer`] and [`LossyClientLayer`] are one hop's layer, with the same traits as
//!   those of the ordered constructions. A caller sets the counter of the cell first.
//!
//! Only the circuit's last relay originates cells, so a direction has one sequence of counters.

use aes::{Aes128Dec, Aes128Enc};
use anabranch_multipath::Replay;
use hmac::{Hmac, Mac};
use subtle::ConstantTimeEq;

use super::hctr2::{self, Hctr2};
use super::{ClientLayer, RelayLayer, Tag};
use crate::wire::cell::{Body, Command};
use crate::wire::crypto::Sha256;
use crate::wire::message::Format;

/// Number of bytes of key material for a hop: a secret for each direction.
pub const KEY_BYTES: usize = 2 * SECRET;
/// Number of bytes at the start of a cell that are zeros at its recipient.
pub const ZEROS: usize = 16;
/// Maximum number of cells that one key encrypts: half a gigabyte.
pub const EPOCH: u32 = 1 << 20;
/// Maximum excess of a counter over the greatest that arrived before.
pub const LEAP: u64 = 1 << 16;

const SECRET: usize = 32;
/// Number of counters of an epoch after which the key of the previous epoch is dropped: the length
/// of [`Replay`]'s window.
const OVERLAP: u32 = 16_384;
const _: () = assert!(LEAP < EPOCH as u64 && OVERLAP < EPOCH);

/// Labels of HKDF-Expand (RFC 5869, section 2.3).
const KEY: &[u8] = b"anabranch lossy circuit 1: key";
const NEXT: &[u8] = b"anabranch lossy circuit 1: next epoch";

/// Number of bytes of a tweak: counter, command, direction.
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
    /// Splits key material: first the secret away from the client.
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
    /// The counter arrived before, or is too old to decide. The cell is dropped.
    Replayed,
    /// The counter is more than [`LEAP`] ahead of all others. The cell is dropped.
    TooFarAhead,
    /// The circuit's other end did not send the cell: the last hop does not recognise it, or
    /// another hop does. Links deliver cells unchanged, so an end or a relay of the circuit broke
    /// the protocol. The circuit must be closed.
    Garbage,
}

/// A relay's decision about a cell that goes away from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outward {
    /// The cell is for this relay. Its content follows the zeros.
    Ours,
    /// The cell must be sent to the next relay, with the same counter.
    Onward,
}

/// A relay's state of a circuit.
pub struct LossyRelay {
    layer: LossyRelayLayer,
    sent: Sent,
    outward: Arrivals,
    inward: Arrivals,
}

impl LossyRelay {
    /// Returns the state for the keys of a handshake.
    #[must_use]
    pub fn new(keys: &LossyKeys) -> LossyRelay {
        let [outward, inward] = Default::default();
        LossyRelay { layer: LossyRelayLayer::new(keys), sent: Sent::default(), outward, inward }
    }

    /// Processes a cell that arrived from the client's side. With `is_last` the circuit ends at
    /// this relay.
    ///
    /// # Errors
    /// The [`Refusal`]. The body is then unspecified.
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

    /// Processes a cell that arrived from the next relay, and adds the layer.
    ///
    /// # Errors
    /// [`Refusal::Replayed`] and [`Refusal::TooFarAhead`].
    pub fn inward(
        &mut self,
        (command, counter): (Command, u32),
        body: &mut Body,
    ) -> Result<(), Refusal> {
        self.inward.accept(counter)?;
        self.layer.at(counter).inbound(command, body);
        Ok(())
    }

    /// Encrypts a cell that this relay, the circuit's last, sends to the client. The content
    /// starts at [`ZEROS`]. Returns the cell's counter. Returns `None` once all counters are used;
    /// the circuit must then be closed.
    pub fn originate(&mut self, command: Command, body: &mut Body) -> Option<u32> {
        let counter = self.sent.next()?;
        self.layer.at(counter).originate(command, body);
        Some(counter)
    }
}

/// The client's state of a circuit.
pub struct LossyClient {
    hops: Vec<LossyClientLayer>,
    sent: Sent,
    arrived: Arrivals,
}

impl LossyClient {
    /// Returns the state for the keys of the circuit's hops, the nearest first.
    #[must_use]
    pub fn new(hops: &[LossyKeys]) -> LossyClient {
        let hops = hops.iter().map(LossyClientLayer::new).collect();
        LossyClient { hops, sent: Sent::default(), arrived: Arrivals::default() }
    }

    /// Encrypts a cell for the last hop. The content starts at [`ZEROS`]. Returns the cell's
    /// counter. Returns `None` once all counters are used, or without a hop; the circuit must then
    /// be closed.
    pub fn originate(&mut self, command: Command, body: &mut Body) -> Option<u32> {
        let (last, others) = self.hops.split_last_mut()?;
        let counter = self.sent.next()?;
        last.at(counter).originate(command, body);
        others.iter_mut().rev().for_each(|hop| hop.at(counter).outbound(command, body));
        Some(counter)
    }

    /// Decrypts a cell that arrived. Only the last hop may have sent it.
    ///
    /// # Errors
    /// The [`Refusal`]. The body is then unspecified.
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

/// A relay's layer. [`LossyRelayLayer::at`] sets the counter of the cell that the next call of
/// [`RelayLayer`] processes.
pub struct LossyRelayLayer {
    out: Ratchet<Aes128Dec>,
    back: Ratchet<Aes128Enc>,
    counter: u32,
}

impl LossyRelayLayer {
    /// Returns the layer of these keys, at counter 0.
    #[must_use]
    pub fn new(keys: &LossyKeys) -> LossyRelayLayer {
        let (out, back) = (Ratchet::new(keys.out), Ratchet::new(keys.back));
        LossyRelayLayer { out, back, counter: 0 }
    }

    /// Sets the counter of the next cell.
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
        let came = tag(body);
        self.out.of(self.counter).decrypt(&tweak(self.counter, command, CellDirection::Out), body);
        is_ours(body).then_some(came)
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

/// A client's layer for one hop. [`LossyClientLayer::at`] sets the counter of the cell that the
/// next call of [`ClientLayer`] processes.
pub struct LossyClientLayer {
    out: Ratchet<Aes128Enc>,
    back: Ratchet<Aes128Dec>,
    counter: u32,
}

impl LossyClientLayer {
    /// Returns the layer of these keys, at counter 0.
    #[must_use]
    pub fn new(keys: &LossyKeys) -> LossyClientLayer {
        let (out, back) = (Ratchet::new(keys.out), Ratchet::new(keys.back));
        LossyClientLayer { out, back, counter: 0 }
    }

    /// Sets the counter of the next cell.
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
        let came = tag(body);
        self.back
            .of(self.counter)
            .decrypt(&tweak(self.counter, command, CellDirection::Back), body);
        is_ours(body).then_some(came)
    }
}

/// Keys of one hop and direction: those of the present epoch, and for a while those of the
/// previous one.
struct Ratchet<C> {
    /// The secret of the next epoch.
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

    /// Returns the cipher for `counter`. If the counter is in a later epoch, advances to that
    /// epoch. If the key of the counter was dropped, returns the cipher of another epoch, so that
    /// the cell becomes garbage; no replay window accepts such a counter.
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

/// Derives the cipher of an epoch's secret, and the next epoch's secret.
fn step<C: From<Aes128Enc>>(secret: &[u8; SECRET]) -> (Hctr2<C>, [u8; SECRET]) {
    let key = expand(secret, KEY);
    let key = key.first_chunk::<{ hctr2::KEY }>().expect("32 bytes begin with 16");
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
    Tag::from(*body.first_chunk::<ZEROS>().expect("a cell is longer"))
}

/// Next counter to send in a direction.
#[derive(Default)]
struct Sent {
    next: u64,
}

impl Sent {
    /// Returns the next counter, which was not used before; `None` once all are used.
    fn next(&mut self) -> Option<u32> {
        let counter = u32::try_from(self.next).ok()?;
        self.next += 1;
        Some(counter)
    }
}

/// Replay window of the counters received in a direction. It is created at the first cell, because
/// most circuits receive none.
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
