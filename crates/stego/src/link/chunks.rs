//! The schedule of chunks (parts of the stream): which connection carries the next chunk, and how
//! long small amounts of data wait for more data.

use std::cmp::Reverse;
use std::time::Duration;

use anabranch_multipath::schedule::{RoundRobin, Spec};
use anabranch_multipath::{Assignment, Boundary, LegView, PathView, Splitter, Time, seed};
use rand_core::CryptoRng;

use super::connections::Connections;
use crate::block;
use crate::frame::DATA_OVERHEAD;
use crate::outbox::Outbox;
use crate::recovery::DEFAULT_RTT;
use crate::slot::Family;

/// Number of waiting bytes from which data are sent at once. Fewer bytes wait for more data to
/// share a message.
const COALESCED_BELOW: usize = 16 << 10;
/// Time for which a few bytes wait for more data to share a message, if the other end has nothing
/// to send.
const DELAY: Duration = Duration::from_millis(5);
/// Time for which a few bytes wait for more data to share a message, if the other end is sending.
/// It is longer, because messages are then frequent anyway.
const DELAY_BUSY: Duration = Duration::from_millis(20);

/// The scheduler of a link's chunks (parts of its stream).
pub(super) struct ChunkSchedule {
    splitter: Splitter,
    /// Maximum length in bytes of a chunk (a part of the stream), the unit of scheduling and
    /// retransmission.
    chunk: usize,
    /// Whether messages are costly and should therefore be few. If so, waiting data go into as few
    /// messages as possible.
    coalesces: bool,
    /// Time since which a small number of bytes has been waiting for more bytes to join the same
    /// message; `None` if no bytes wait.
    waiting_since: Option<Time>,
    /// The state of each path (place of a connection), as the scheduler reads it. The buffer is
    /// reused.
    views: Vec<PathView>,
    /// Paths (places of connections) in the order in which their next messages are filled. The
    /// buffer is reused.
    order: Vec<usize>,
}

impl ChunkSchedule {
    pub(super) fn new(
        schedule: &Spec,
        paths: usize,
        family: &Family,
        rng: &mut impl CryptoRng,
    ) -> ChunkSchedule {
        ChunkSchedule {
            splitter: splitter(schedule, paths, rng),
            chunk: family.chunk,
            coalesces: family.coalesces,
            waiting_since: None,
            views: Vec::new(),
            order: Vec::new(),
        }
    }

    /// Returns the minimum number of bytes that a new message must be able to hide for the waiting
    /// data. Returns `None` if no data wait, or if the data still wait for more to join the same
    /// message. `backlog` is the number of bytes that the other end has to send.
    pub(super) fn wanted_room(
        &mut self,
        now: Time,
        outbox: &Outbox,
        backlog: u64,
    ) -> Option<usize> {
        let least = outbox.least_room()?;
        let since = *self.waiting_since.get_or_insert(now);
        (now >= since + self.delay(outbox, backlog)).then_some(least + block::OVERHEAD)
    }

    /// Returns the time at which the coalescing delay of waiting data ends; `None` if no data
    /// wait.
    pub(super) fn due(&self, outbox: &Outbox, backlog: u64) -> Option<Time> {
        Some(self.waiting_since? + self.delay(outbox, backlog))
    }

    fn delay(&self, outbox: &Outbox, backlog: u64) -> Duration {
        let few = outbox.sendable() < COALESCED_BELOW && !outbox.is_urgent();
        match (self.coalesces && few, backlog) {
            (false, _) => Duration::ZERO,
            (true, 0) => DELAY,
            (true, _) => DELAY_BUSY,
        }
    }

    /// Limits the bytes that chunks may use in each connection's next message: not the bytes that
    /// are reserved for control frames. If messages are costly, chunks may only use as few
    /// messages as the waiting data need.
    pub(super) fn begin(&mut self, connections: &mut Connections, outbox: &Outbox) {
        for connection in connections.iter_mut() {
            let room = &mut connection.room;
            room.bytes = room.bytes.saturating_sub(room.reserved);
        }
        if self.coalesces {
            self.use_few_messages(connections, outbox);
        }
    }

    /// Selects the connections whose messages carry the waiting data, and sets the room of all
    /// others to zero. Connections that have to send a message anyway come first, then those with
    /// the most room.
    fn use_few_messages(&mut self, connections: &mut Connections, outbox: &Outbox) {
        let bytes = outbox.sendable();
        let mut needed = bytes + (bytes / self.chunk + 1) * (block::OVERHEAD + DATA_OVERHEAD);
        let with_room = (0..connections.len()).filter(|&path| connections.room(path) > 0);
        self.order.extend(with_room);
        self.order
            .sort_by_key(|&path| Reverse((connections.sealed(path) > 0, connections.room(path))));
        for path in self.order.drain(..) {
            let Some(connection) = connections.get_mut(path) else { continue };
            let taken = connection.room.bytes.min(needed);
            needed -= taken;
            connection.room.bytes = if taken > 0 { connection.room.bytes } else { 0 };
        }
    }

    /// Returns the path (place of a connection) that the scheduler chooses for the next chunk;
    /// `None` if no chunk waits, or if no path has room.
    pub(super) fn next_path(
        &mut self,
        now: Time,
        connections: &Connections,
        outbox: &Outbox,
    ) -> Option<usize> {
        let least = outbox.least_room()? + block::OVERHEAD;
        self.views.clear();
        for path in 0..connections.len() {
            self.views.push(view(connections, path, least, self.chunk));
        }
        match self.splitter.assign(now, &self.views, outbox.waiting().max(1)) {
            Assignment::Send { path, .. } => Some(path.index()),
            Assignment::Hold | Assignment::Nowhere => None,
        }
    }

    /// Ends the coalescing delay, if all waiting data have been sent.
    pub(super) fn end(&mut self, outbox: &Outbox) {
        self.waiting_since = self.waiting_since.filter(|_| outbox.least_room().is_some());
    }
}

/// Returns the state of a path for the scheduler, with the path's window counted in chunks.
/// `least` is the number of bytes that the next chunk needs in a message.
fn view(connections: &Connections, path: usize, least: usize, chunk: usize) -> PathView {
    let Some(connection) = connections.get(path) else { return PathView::dead() };
    let recovery = &connection.recovery;
    if recovery.silent_since().is_some() {
        return PathView::dead();
    }
    let room = connection.room.bytes;
    let window = if room < least { 0 } else { (room / chunk).max(1) as u64 };
    let rtt = recovery.srtt().or(connections.srtt()).unwrap_or(DEFAULT_RTT);
    PathView::leg(Some(rtt), window, LegView::NOTHING)
}

/// Builds the scheduler (a [`Splitter`] with `schedule`) that chooses one of `paths` paths for
/// each chunk.
fn splitter(schedule: &Spec, paths: usize, rng: &mut impl CryptoRng) -> Splitter {
    let seed = rng.next_u64();
    let stream = |purpose| seed::stream(seed, 0, purpose);
    let scheduler = schedule.build(paths, stream("scheduler"));
    // The configuration's author has checked the schedule for this number of paths.
    let scheduler = scheduler.unwrap_or_else(|_| Box::new(RoundRobin::new()));
    let every = schedule.family().every.unwrap_or("1p").parse();
    let every = every.expect("a test of the crate multipath parses all published run lengths");
    Splitter::new(scheduler, Boundary::new(every, stream("boundary")))
}
