//! The cover `embed`: each connection imitates a recorded traffic pattern, a "shape" (StegoTorus,
//! section 4.1). Each end sends as many bytes as in the recording, after the same pause. All bytes
//! on the wire are encrypted, so no length is visible in clear.
//!
//! A step is a group of bytes that one end sends without a pause. Encrypted blocks do not
//! correspond to steps: a block may begin in one step and end in the next. Padding fills the rest
//! of a step.

mod shape;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;
use aws_lc_rs::hmac;

use super::family::{Family, LITTLE_ACK_ROOM};
use super::{ClientEnd, Hidden, NotCover, RESERVE, ServerEnd, SharedContext, Slot};
use crate::keys::BridgeKey;
use crate::token::TOKEN;
pub(crate) use shape::LoadHint;
pub use shape::{RecordedPacket, Shape, ShapeFault, Shapes, Step};

/// The profile `embed`, whose connections imitate recorded traffic patterns.
pub(super) const FAMILY: Family = Family {
    name: "embed",
    about: "random bytes, with the sizes and pauses of recorded connections",
    connections: 6,
    idle_connections: 1,
    max_bytes: None,
    wants_site: false,
    wants_pictures: false,
    wants_objects: false,
    answer: None,
    coalesces: false,
    streams: false,
    chunk: 4_096,
    padding: 1,
    ack_room: LITTLE_ACK_ROOM,
    pauses: |covers| covers.shapes.longest_pause(),
    client: |_, context, hint, draw| Box::new(ClientSlot::new(Arc::clone(context), hint, draw)),
    server: |_, context| Box::new(ServerSlot::new(Arc::clone(context))),
};

/// Length in bytes of the masked index of a shape (recorded traffic pattern): the index, followed
/// by two zero bytes.
const NUMBER: usize = 4;

/// The key that masks the index of a connection's shape (recorded traffic pattern). The index is
/// XORed with an HMAC of the connection's first hidden bytes, which are random and unique to the
/// connection.
#[derive(Clone, Debug)]
pub(crate) struct ShapeIndexMask(hmac::Key);

impl ShapeIndexMask {
    /// Creates the key that masks shape indices, from the bridge's key and the collection of
    /// shapes (recorded traffic patterns). An end with other shapes cannot read the indices.
    pub(crate) fn of(key: &BridgeKey, shapes: &Shapes) -> ShapeIndexMask {
        let all = [b"anabranch stego shapes", &key.0[..], shapes.digest()].concat();
        ShapeIndexMask(hmac::Key::new(hmac::HMAC_SHA256, &all))
    }

    fn mask(&self, first: &[u8], number: [u8; NUMBER]) -> [u8; NUMBER] {
        let mask = hmac::sign(&self.0, first);
        std::array::from_fn(|place| number[place] ^ mask.as_ref()[place])
    }

    fn write(&self, first: &[u8], number: usize) -> [u8; NUMBER] {
        let [high, low] = u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes();
        self.mask(first, [high, low, 0, 0])
    }

    fn read(&self, first: &[u8], masked: [u8; NUMBER]) -> Option<usize> {
        match self.mask(first, masked) {
            [high, low, 0, 0] => Some(u16::from_be_bytes([high, low]).into()),
            _ => None,
        }
    }
}

/// The progress of a connection through its shape, the recorded traffic pattern that it imitates.
#[derive(Debug)]
struct ShapePosition {
    steps: Arc<[Step]>,
    /// Whether this end is the client.
    up: bool,
    /// Index of the current step of the traffic pattern. A step is a group of bytes that one end
    /// sends without a pause.
    at: usize,
    /// Number of bytes received so far in the current step, which the other end sends.
    received: usize,
    /// Time at which the previous step of the traffic pattern ended; `None` before the first step
    /// ends.
    since: Option<Time>,
    /// Whether the pause before the current step of the traffic pattern is over.
    ready: bool,
    /// Encrypted bytes that did not fit into an earlier step of the traffic pattern, and are sent
    /// in the next one.
    queue: VecDeque<u8>,
}

impl ShapePosition {
    fn new(shape: &Shape, up: bool) -> ShapePosition {
        let (steps, queue) = (shape.shared_steps(), VecDeque::new());
        ShapePosition { steps, up, at: 0, received: 0, since: None, ready: false, queue }
    }

    /// Returns the current step of the traffic pattern if it is this end's turn to send, else
    /// `None`.
    fn own(&self) -> Option<Step> {
        self.steps.get(self.at).copied().filter(|step| step.up == self.up)
    }

    fn is_over(&self) -> bool {
        self.at == self.steps.len()
    }

    fn due(&self) -> Option<Time> {
        let pause = self.own()?.pause;
        Some(self.since? + pause)
    }

    fn wait(&mut self, now: Time) -> Option<Time> {
        let due = self.due()?;
        self.ready = now >= due;
        (!self.ready).then_some(due)
    }

    fn next(&mut self, now: Time) {
        (self.at, self.received, self.ready) = (self.at + 1, 0, false);
        self.since = Some(now);
    }

    /// Returns how many hidden bytes the current step can still carry, in addition to the queued
    /// bytes. `taken` bytes of the step are used for the index of the shape (traffic pattern).
    fn wants(&self, taken: usize) -> usize {
        self.own().map_or(0, |step| step.bytes.saturating_sub(taken + self.queue.len()))
    }

    fn room(&self, socket: usize, taken: usize) -> usize {
        match self.own() {
            // Queued bytes may fill the step without new ones, but the step has to be sent anyway.
            Some(step) if self.ready && socket >= step.bytes => self.wants(taken).max(1),
            _ => 0,
        }
    }

    fn fit(&self, hidden: usize, taken: usize) -> usize {
        match self.wants(taken) {
            wants if hidden >= wants => hidden,
            // If the padding is too short for a block, it extends into the next step.
            wants => wants.max(hidden + RESERVE),
        }
    }

    fn send(&mut self, now: Time, hidden: &[u8], out: &mut Vec<u8>) {
        self.queue.extend(hidden);
        let bytes = self.own().map_or(0, |step| step.bytes).min(self.queue.len());
        out.extend(self.queue.drain(..bytes));
        self.next(now);
    }

    /// Processes received bytes: advances through the steps of the traffic pattern that the other
    /// end sends.
    fn receive(&mut self, now: Time, mut bytes: usize) -> Result<(), NotCover> {
        while bytes > 0 {
            let step = self.steps.get(self.at).filter(|step| step.up != self.up);
            let left = step.ok_or(NotCover)?.bytes - self.received;
            let part = left.min(bytes);
            (self.received, bytes) = (self.received + part, bytes - part);
            if part == left {
                self.next(now);
            }
        }
        Ok(())
    }
}

/// The client's end of a connection that imitates a recorded traffic pattern (sizes and pauses).
#[derive(Debug)]
pub(super) struct ClientSlot {
    context: Arc<SharedContext>,
    number: usize,
    position: ShapePosition,
    hold: Duration,
}

impl ClientSlot {
    /// Creates the client's end of a connection. `hint` (expected load) and `draw` (a random
    /// number) choose one of the shapes (recorded traffic patterns) in `context`.
    pub(super) fn new(context: Arc<SharedContext>, hint: LoadHint, draw: u16) -> ClientSlot {
        let number = context.covers.shapes.choose(hint, draw);
        let (position, hold) = (
            ShapePosition::new(&context.covers.shapes.all()[number], true),
            context.covers.shapes.longest_pause(),
        );
        ClientSlot { context, number, position, hold }
    }

    /// Returns how many bytes of the current step carry the masked index of the shape (recorded
    /// traffic pattern). Only the first step carries it.
    fn taken(&self) -> usize {
        if self.begins() { NUMBER } else { 0 }
    }
}

impl Slot for ClientSlot {
    fn receive(
        &mut self,
        now: Time,
        bytes: &[u8],
        each: &mut dyn FnMut(Hidden<'_>),
    ) -> Result<(), NotCover> {
        self.position.receive(now, bytes.len())?;
        each(Hidden::Bytes(bytes));
        if self.position.is_over() {
            each(Hidden::End);
        }
        Ok(())
    }

    fn room(&self, socket: usize) -> usize {
        self.position.room(socket, self.taken())
    }

    fn fit(&mut self, hidden: usize) -> usize {
        self.position.fit(hidden, self.taken())
    }

    fn send(&mut self, now: Time, hidden: &[u8], out: &mut Vec<u8>) {
        let Some((first, rest)) = hidden.split_at_checked(TOKEN).filter(|_| self.begins()) else {
            return self.position.send(now, hidden, out);
        };
        let number = self.context.shape_mask.write(first, self.number);
        self.position.send(now, &[first, &number, rest].concat(), out);
    }

    fn wait(&mut self, now: Time) -> Option<Time> {
        if self.begins() {
            self.position.ready = true;
            return None;
        }
        self.position.wait(now)
    }

    fn due(&self) -> Option<Time> {
        self.position.due()
    }

    fn is_spent(&self) -> bool {
        self.position.is_over()
    }
}

impl ClientEnd for ClientSlot {
    fn begins(&self) -> bool {
        self.position.at == 0
    }

    fn hold(&self) -> Duration {
        self.hold
    }
}

/// The server's end of a connection that imitates a recorded traffic pattern (sizes and pauses).
#[derive(Debug)]
pub(super) struct ServerSlot {
    context: Arc<SharedContext>,
    /// Bytes received before it is known which shape (recorded traffic pattern) the client has
    /// chosen.
    first: Vec<u8>,
    position: Option<ShapePosition>,
}

impl ServerSlot {
    /// Creates the server's end of a connection. The client will choose one of the shapes
    /// (recorded traffic patterns) in `context`.
    pub(super) fn new(context: Arc<SharedContext>) -> ServerSlot {
        ServerSlot { context, first: Vec::new(), position: None }
    }

    /// Reads the index of the connection's shape (recorded traffic pattern) once it has arrived.
    /// Returns the hidden bytes that have arrived before and after the index; `None` if the index
    /// has not arrived.
    fn begin(&mut self, now: Time) -> Result<Option<Vec<u8>>, NotCover> {
        let Some((number, rest)) = self.first[TOKEN.min(self.first.len())..].split_first_chunk()
        else {
            return Ok(None);
        };
        let number = self.context.shape_mask.read(&self.first[..TOKEN], *number);
        let shape = number.and_then(|number| self.context.covers.shapes.all().get(number));
        let mut position = ShapePosition::new(shape.ok_or(NotCover)?, false);
        position.receive(now, self.first.len())?;
        self.position = Some(position);
        Ok(Some([&self.first[..TOKEN], rest].concat()))
    }
}

impl Slot for ServerSlot {
    fn receive(
        &mut self,
        now: Time,
        bytes: &[u8],
        each: &mut dyn FnMut(Hidden<'_>),
    ) -> Result<(), NotCover> {
        if let Some(position) = &mut self.position {
            position.receive(now, bytes.len())?;
            each(Hidden::Bytes(bytes));
            return Ok(());
        }
        self.first.extend_from_slice(bytes);
        if let Some(hidden) = self.begin(now)? {
            self.first = Vec::new();
            each(Hidden::Bytes(&hidden));
        }
        Ok(())
    }

    fn room(&self, socket: usize) -> usize {
        self.position.as_ref().map_or(0, |position| position.room(socket, 0))
    }

    fn fit(&mut self, hidden: usize) -> usize {
        self.position.as_ref().map_or(hidden, |position| position.fit(hidden, 0))
    }

    fn send(&mut self, now: Time, hidden: &[u8], out: &mut Vec<u8>) {
        if let Some(position) = &mut self.position {
            position.send(now, hidden, out);
        }
    }

    fn wait(&mut self, now: Time) -> Option<Time> {
        self.position.as_mut()?.wait(now)
    }

    fn due(&self) -> Option<Time> {
        self.position.as_ref()?.due()
    }

    fn is_spent(&self) -> bool {
        self.position.as_ref().is_some_and(ShapePosition::is_over)
    }
}

impl ServerEnd for ServerSlot {
    fn has_answered(&self) -> bool {
        self.is_spent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::Covers;

    const NOW: Time = Time::from_secs(7);
    const TEXT: &str = "shape a\nup 700 0\ndown 20 3\ndown 90 0\nup 10 5\ndown 5000 1000\n";

    fn context(text: &str) -> Arc<SharedContext> {
        let covers = Covers { shapes: Shapes::parse(text).unwrap(), ..Covers::default() };
        Arc::new(SharedContext::new(&BridgeKey([7; 32]), String::new(), 0, covers))
    }

    fn ends() -> (ClientSlot, ServerSlot) {
        let near = ClientSlot::new(context(TEXT), LoadHint::Quiet, 0);
        (near, ServerSlot::new(context(TEXT)))
    }

    /// Passes `bytes` to an end of a connection in pieces of 7 bytes. Returns the hidden bytes
    /// that it extracts, and whether the other end has finished.
    fn found(slot: &mut dyn Slot, now: Time, bytes: &[u8]) -> Result<(Vec<u8>, bool), NotCover> {
        let (mut hidden, mut over) = (Vec::new(), false);
        for piece in bytes.chunks(7) {
            slot.receive(now, piece, &mut |one| match one {
                Hidden::Bytes(bytes) => hidden.extend_from_slice(bytes),
                Hidden::End => over = true,
            })?;
        }
        Ok((hidden, over))
    }

    /// Returns the message with which an end sends the `hidden` bytes at `now`, its turn to send.
    fn message_of(slot: &mut dyn Slot, now: Time, hidden: &[u8]) -> Vec<u8> {
        assert_eq!(slot.wait(now), None);
        assert!(slot.room(STEP) > 0 && slot.room(4) == 0);
        let (length, mut out) = (slot.fit(hidden.len()), Vec::new());
        assert!(length == hidden.len() || length >= hidden.len() + RESERVE);
        let mut padded = hidden.to_vec();
        padded.resize(length, 9);
        slot.send(now, &padded, &mut out);
        out
    }

    const STEP: usize = 16 << 10;

    #[test]
    fn both_ends_say_what_was_recorded_when_it_was() {
        let ((mut near, mut far), mut now) = (ends(), NOW);
        let hello: Vec<u8> = (0..80).collect();
        assert!(near.begins() && near.due().is_none());
        let out = message_of(&mut near, now, &hello);
        assert_eq!(out.len(), 700);
        let (hidden, over) = found(&mut far, now, &out).unwrap();
        assert!(hidden.starts_with(&hello) && hidden.len() == 696 && !over);
        assert!(hidden[80..].iter().all(|&byte| byte == 9), "padding, and nothing else");
        // 52 bytes of an answer do not fit into a step of 20 bytes. They continue in the next
        // step.
        let mut received = Vec::new();
        for (bytes, pause) in [(20, 3), (90, 0)] {
            assert_eq!(far.due(), Some(now + Duration::from_millis(pause)));
            assert!(pause == 0 || far.wait(now).is_some() && far.room(STEP) == 0);
            now += Duration::from_millis(pause);
            let out = message_of(&mut far, now, if bytes == 20 { &[5; 52] } else { &[] });
            assert_eq!(out.len(), bytes);
            received.extend(found(&mut near, now, &out).unwrap().0);
        }
        assert!(received.starts_with(&[5; 52]) && received.len() == 110);
        now = near.due().unwrap();
        let out = message_of(&mut near, now, b"");
        assert_eq!(out.len(), 10);
        found(&mut far, now, &out).unwrap();
        assert_eq!(far.due(), Some(now + Duration::from_secs(1)));
        now += Duration::from_secs(1);
        let out = message_of(&mut far, now, &[3; 4_000]);
        assert_eq!(out.len(), 5_000);
        assert!(found(&mut near, now, &out).unwrap().1 && near.is_spent() && far.is_spent());
        assert_eq!((near.hold(), near.room(STEP), far.room(STEP)), (ms(1_005), 0, 0));
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_shape_is_told_to_whoever_has_the_line_and_the_set_alone() {
        let numbers =
            |key, text| ShapeIndexMask::of(&BridgeKey([key; 32]), &Shapes::parse(text).unwrap());
        let (ours, first) = (numbers(7, TEXT), [8; TOKEN]);
        let masked = ours.write(&first, 300);
        assert_eq!(ours.read(&first, masked), Some(300));
        assert_ne!(ours.write(&[9; TOKEN], 300), masked);
        assert_eq!(numbers(6, TEXT).read(&first, masked), None);
        assert_eq!(numbers(7, &TEXT.replace("5000", "5001")).read(&first, masked), None);
    }

    #[test]
    fn what_is_of_no_shape_is_no_cover() {
        let (mut near, mut far) = ends();
        assert!(found(&mut near, NOW, b"too soon").is_err());
        assert!(found(&mut far, NOW, &[1; 28]).is_err(), "no number");
        let (mut near, mut far) = ends();
        let out = message_of(&mut near, NOW, &[1; 56]);
        assert_eq!(found(&mut far, NOW, &[&out[..], b"x"].concat()), Err(NotCover), "out of turn");
        assert!(found(&mut near, NOW, &[0; 111]).is_err(), "more than the step has");
        let (_, mut far) = ends();
        assert_eq!(found(&mut far, NOW, &out[..TOKEN + NUMBER - 1]), Ok((Vec::new(), false)));
        assert_eq!((far.room(STEP), far.due(), far.is_spent()), (0, None, false));
    }
}
