//! Building of the packets of the streams that end at a node, as client or exit.

use anabranch_multipath::{Core as _, Time};
use anabranch_tcp::Segment;

use super::{MoreNode, Output, Outstanding};
use crate::sphinx::{ReplyBlock, Route, SURB_LENGTH};
use crate::stream::{Role, StreamId};
use crate::tags::{LIFETIME, tick};
use crate::wire::{FORWARD_HEAD, Flow, ForwardContent, ReplyContent};

/// Maximum number of reply blocks that a node remembers until their replies arrive, over all
/// streams. Beyond it, the oldest block is forgotten, because it was probably lost.
const MAX_OUTSTANDING: usize = 1 << 15;

impl MoreNode {
    /// Returns the next packet of the stream `id`. Returns `None` if the stream has nothing to
    /// send now.
    pub(super) fn next_packet(&mut self, now: Time, id: StreamId) -> Option<Output> {
        match self.streams.get(&id)?.role {
            Role::Client(exit, _) => self.forward_packet(now, id, exit),
            Role::Exit(_) => self.reply_packet(now, id),
        }
    }

    /// Returns a client's next packet: a TCP segment, reply blocks for the exit, or both. Returns
    /// `None` if there is nothing to send now.
    fn forward_packet(&mut self, now: Time, id: StreamId, exit: usize) -> Option<Output> {
        let stream = self.streams.get_mut(&id)?;
        let Role::Client(_, supply) = &mut stream.role else { return None };
        let probes = supply.probe(now);
        let segment = stream.tcp.poll(now);
        let length = segment.as_ref().map_or(0, Segment::wire_length);
        let room = self.config.payload.saturating_sub(FORWARD_HEAD);
        let most = room / SURB_LENGTH;
        let deficit = supply.deficit(stream.tcp.view(now).unacked);
        let count = (room.saturating_sub(length) / SURB_LENGTH).min(deficit);
        // Without a segment, send only a packet that is full of blocks, or a probe.
        if segment.is_none() && (count == 0 || count < most && !probes) {
            return None;
        }
        let (number, flow) = (supply.sent(count), stream.flow);
        let blocks: Vec<_> = (0..count).filter_map(|_| self.make_block(now, id, exit)).collect();
        let content = ForwardContent { flow, number, blocks, segment }.write();
        self.send_forward(now, exit, &content)
    }

    /// Builds a packet with `content` to the exit, over a newly drawn random path. Returns `None`
    /// if the network has too few relays for a path, or if `content` is too long.
    fn send_forward(&mut self, now: Time, exit: usize, content: &[u8]) -> Option<Output> {
        let excluded = [self.me, exit];
        let mut path = self.network.draw_path(&mut *self.rng, self.config.hops - 1, &excluded)?;
        path.push(exit);
        let route = route(&self.network, &path, now);
        let to = self.network.peers()[path[0]].address;
        let bytes =
            route.build(&mut self.tables, &mut *self.rng, (content, self.config.payload))?;
        Some(Output::Send { to, bytes })
    }

    /// Makes a reply block for the exit of the stream `id`, with a newly drawn path. Returns
    /// `None` if the network has too few relays for a path.
    fn make_block(&mut self, now: Time, id: StreamId, exit: usize) -> Option<ReplyBlock> {
        let excluded = [self.me, exit];
        let mut path = self.network.draw_path(&mut *self.rng, self.config.hops - 1, &excluded)?;
        path.push(self.me);
        let route = route(&self.network, &path, now);
        let (block, keys) = route.reply_block(&mut self.tables, &mut *self.rng)?;
        let expiry = route.expiry;
        self.forget_old(tick(now));
        self.order.push_back(keys.identifier);
        let sent = Outstanding { stream: id, expiry, keys };
        self.outstanding.insert(sent.keys.identifier, sent);
        self.counters.reply_blocks += 1;
        Some(block)
    }

    /// Forgets reply blocks that have expired or were used. If more than [`MAX_OUTSTANDING`]
    /// remain, also forgets the oldest.
    fn forget_old(&mut self, now: u64) {
        while let Some(first) = self.order.front() {
            let sent = self.outstanding.get(first);
            let is_valid = sent.is_some_and(|sent| sent.expiry >= now);
            if is_valid && self.order.len() < MAX_OUTSTANDING {
                return;
            }
            self.outstanding.remove(first);
            self.order.pop_front();
        }
    }

    /// Returns an exit's next packet to the client. Returns `None` if there is no TCP segment to
    /// send, or no reply block with which to send it.
    fn reply_packet(&mut self, now: Time, id: StreamId) -> Option<Output> {
        let stream = self.streams.get_mut(&id)?;
        let Role::Exit(stock) = &mut stream.role else { return None };
        if stock.is_empty(tick(now)) {
            return None;
        }
        let segment = stream.tcp.poll(now)?;
        let (block, head) = stock.take(&stream.tcp.view(now))?;
        self.seal(&block, &ReplyContent { segment: Some(segment), ..head })
    }

    /// Encrypts `reply` with the reply block `block`. Returns the packet for the block's first
    /// hop; `None` if the network does not list that hop, or if the reply is too long.
    fn seal(&self, block: &ReplyBlock, reply: &ReplyContent) -> Option<Output> {
        let first = self.network.find_prefix(&block.first_hop())?;
        let peer = &self.network.peers()[first];
        let bytes = block.seal(&reply.write(), self.config.payload)?;
        Some(Output::Send { to: peer.address, bytes })
    }

    /// Answers the segment in `forward`, whose stream is unknown, with a TCP reset. The reset uses
    /// a reply block from `forward`.
    pub(super) fn reset(&mut self, forward: &ForwardContent) {
        let reset = forward.segment.as_ref().and_then(Segment::reset);
        let (Some(reset), Some(block)) = (reset, forward.blocks.first()) else { return };
        let seen = forward.number;
        let reply = ReplyContent { serial: 0, seen, wanted: 0, segment: Some(reset) };
        let packet = self.seal(block, &reply).filter(|_| self.packets.len() < super::MAX_QUEUE);
        self.counters.sent += u64::from(packet.is_some());
        self.packets.extend(packet);
    }

    /// Draws a random name ([`Flow`]) for a new stream.
    pub(super) fn draw_flow(&mut self) -> Flow {
        Flow(self.rng.next_u64().to_be_bytes())
    }
}

/// Returns the route over the nodes with the indices `path`, for a packet that is made at `now`.
/// The time determines the packet's expiry.
fn route<'n>(network: &'n crate::Network, path: &[usize], now: Time) -> Route<'n> {
    let hops = path.iter().map(|&at| &network.peers()[at]).collect();
    Route { hops, expiry: tick(now) + LIFETIME }
}
