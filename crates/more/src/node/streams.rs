//! The streams that end at a node.

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::{Core as _, Time};
use anabranch_tcp::{Flags, State};

use super::{MoreNode, OpenError};
use crate::counters::DropReason;
use crate::stream::{Ending, Event, Refusal, Role, Stream, StreamId};
use crate::supply::Stock;
use crate::tags::tick;
use crate::wire::{Flow, ForwardContent, ReplyContent};

/// Number of recently ended flows (random names of streams) that an exit remembers, to refuse late
/// packets that would open them again.
const RECENT: usize = 4_096;
/// Time without a packet from the client after which an exit ends a stream. A client sends reply
/// blocks at least every 16 s.
const IDLE: Duration = Duration::from_secs(120);

impl MoreNode {
    /// Opens a stream to the destination `target`. Draws an exit, with a probability proportional
    /// to its weight. Bytes that are written before the next poll are sent in the stream's first
    /// packet if they fit.
    ///
    /// # Errors
    /// [`OpenError`] if no exit is available, or if too many streams are open.
    pub fn open(&mut self, now: Time, target: SocketAddr) -> Result<StreamId, OpenError> {
        if self.streams.len() >= self.config.streams {
            return Err(OpenError::TooMany);
        }
        let exit = self.network.draw_exit(&mut *self.rng, self.me).ok_or(OpenError::NoExit)?;
        let flow = self.draw_flow();
        let stream = Stream::connect(now, &self.config, (flow, exit), target, &mut *self.rng);
        Ok(self.insert(stream))
    }

    fn insert(&mut self, stream: Stream) -> StreamId {
        let id = StreamId(self.next_stream);
        self.next_stream += 1;
        self.streams.insert(id, stream);
        self.wake(id);
        id
    }

    /// Records, at an exit, that the connection to the destination of the stream `id` is open. The
    /// client is informed, and bytes may flow.
    pub fn connected(&mut self, id: StreamId) {
        self.answer(id, None);
    }

    /// Records, at an exit, that no connection to the destination of the stream `id` was opened.
    /// Closes the stream with this reason.
    pub fn refuse(&mut self, id: StreamId, refusal: Refusal) {
        self.answer(id, Some(refusal));
    }

    fn answer(&mut self, id: StreamId, refusal: Option<Refusal>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.answer(refusal);
        let wakes = !stream.left && !stream.peek().0.is_empty();
        self.events.extend(wakes.then_some(Event::Readable(id)));
        self.settle(id);
        self.wake(id);
    }

    /// Appends `bytes` to the send buffer of the stream `id`, and returns the number of bytes that
    /// were accepted. If the buffer became full, [`Event::Writable`] follows later. If the stream
    /// is unknown, all bytes are dropped and count as accepted.
    pub fn write(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        let Some(stream) = self.streams.get_mut(&id) else { return bytes.len() };
        let taken = stream.write(bytes);
        self.wake(id);
        taken
    }

    /// Returns the received bytes of the stream `id` that were not consumed yet, in two
    /// consecutive parts.
    #[must_use]
    pub fn peek(&self, id: StreamId) -> (&[u8], &[u8]) {
        self.streams.get(&id).map_or((&[], &[]), Stream::peek)
    }

    /// Removes the first `bytes` bytes that [`MoreNode::peek`] returns, because they were read.
    pub fn consume(&mut self, id: StreamId, bytes: usize) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.tcp.consume(bytes);
        self.settle(id);
        self.wake(id);
    }

    /// Closes the stream `id`. The caller must not use it afterwards. Bytes that were written
    /// before are sent first.
    pub fn close(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.leave();
        self.wake(id);
    }

    /// Ends the stream `id` at once, because the program that uses it, or its destination, has
    /// failed.
    pub fn abort(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.abort();
        self.wake(id);
    }

    /// Handles the content of a forward packet whose last hop is this node.
    pub(super) fn take_forward(
        &mut self,
        now: Time,
        mut forward: ForwardContent,
    ) -> Result<(), DropReason> {
        // Drop blocks with an unknown first hop. Each of them would waste a segment.
        let network = &self.network;
        forward.blocks.retain(|block| network.find_prefix(&block.first_hop()).is_some());
        if let Some(&id) = self.flows.get(&forward.flow) {
            let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
            if let Role::Exit(stock) = &mut stream.role {
                stock.add(tick(now), forward.number, forward.blocks);
            }
            stream.last_arrival = now;
            let events = forward.segment.map(|segment| stream.arrive(now, id, segment));
            self.events.extend(events.into_iter().flatten().flatten());
            self.settle(id);
            self.wake(id);
            return Ok(());
        }
        self.begin(now, forward)
    }

    /// Opens, at the exit, the stream that a client's first packet requests.
    fn begin(&mut self, now: Time, forward: ForwardContent) -> Result<(), DropReason> {
        let may_begin = self.network.peers()[self.me].is_exit
            && self.streams.len() < self.config.streams
            && !self.recent.0.contains(&forward.flow);
        let syn = forward.segment.as_ref().filter(|segment| segment.flags.has(Flags::SYN));
        let Some(segment) = syn.filter(|_| may_begin).cloned() else {
            self.reset(&forward);
            return Err(DropReason::UnknownStream);
        };
        let mut stock = Stock::default();
        stock.add(tick(now), forward.number, forward.blocks);
        let ends = (forward.flow, stock);
        let stream = Stream::accept(now, &self.config, ends, &segment, &mut *self.rng);
        let stream = stream.ok_or(DropReason::Malformed)?;
        let id = self.insert(stream);
        self.flows.insert(forward.flow, id);
        self.progress(id);
        Ok(())
    }

    /// Handles the bytes that arrived with the SYN. They begin with the stream's destination,
    /// which may still be incomplete.
    fn progress(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let events = stream.progress(id, true);
        self.events.extend(events.into_iter().flatten());
    }

    /// Handles a reply to the stream `id`.
    pub(super) fn take_reply(
        &mut self,
        now: Time,
        id: StreamId,
        reply: ReplyContent,
    ) -> Result<(), DropReason> {
        let stream = self.streams.get_mut(&id).ok_or(DropReason::UnknownStream)?;
        let Role::Client(_, supply) = &mut stream.role else { return Ok(()) };
        supply.report(now, &reply);
        stream.last_arrival = now;
        let events = reply.segment.map(|segment| stream.arrive(now, id, segment));
        self.events.extend(events.into_iter().flatten().flatten());
        self.settle(id);
        self.wake(id);
        Ok(())
    }

    /// Reports, if this has happened, that the send buffer of the stream `id` has room again, or
    /// that the stream has ended.
    fn settle(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let events = stream.settle(id);
        self.events.extend(events.into_iter().flatten());
    }

    /// Sets the timer of the stream `id`, which has nothing to send now, to its TCP connection's
    /// next timeout. If the stream has ended, removes the stream.
    pub(super) fn rest(&mut self, id: StreamId) {
        self.settle(id);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let has_ended = matches!(stream.tcp.state(), State::Closed | State::TimeWait);
        if has_ended && stream.left {
            return self.remove(id);
        }
        let tcp = stream.tcp.next_timeout();
        let next = match &stream.role {
            Role::Client(_, supply) => tcp.into_iter().chain([supply.next_timeout()]).min(),
            // An exit can send nothing without a reply block.
            Role::Exit(stock) => {
                let can_send = !stock.is_spent();
                let idle = stream.last_arrival + IDLE;
                tcp.filter(|_| can_send).into_iter().chain([idle]).min()
            }
        };
        if let Some(before) = std::mem::replace(&mut stream.timer, next) {
            self.timers.remove(&(before, id));
        }
        self.timers.extend(next.map(|time| (time, id)));
    }

    /// Ends the exit's stream `id` if its client has been silent for [`IDLE`]. Returns whether the
    /// stream was ended.
    pub(super) fn expire(&mut self, now: Time, id: StreamId) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return true };
        let is_exit = matches!(stream.role, Role::Exit(_));
        if !is_exit || now < stream.last_arrival + IDLE {
            return false;
        }
        if !stream.left && stream.is_known() {
            self.events.push_back(Event::Ended(id, Ending::TimedOut));
        }
        self.remove(id);
        true
    }

    fn remove(&mut self, id: StreamId) {
        let Some(stream) = self.streams.remove(&id) else { return };
        if let Some(time) = stream.timer {
            self.timers.remove(&(time, id));
        }
        if self.flows.remove(&stream.flow).is_some() {
            self.retire(stream.flow);
        }
    }

    /// Remembers the random name of an ended stream, so that a late SYN does not open the stream
    /// again.
    fn retire(&mut self, flow: Flow) {
        let (known, order) = &mut self.recent;
        known.insert(flow);
        order.push_back(flow);
        if order.len() > RECENT {
            order.pop_front().map(|oldest| known.remove(&oldest));
        }
    }
}
