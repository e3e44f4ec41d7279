//! The connections of a link: at most one for each path (place), and closed connections whose last
//! blocks may still be acknowledged.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_multipath::{SmoothedRtt, Time};

use super::{Opening, Room};
use crate::frame::Frame;
use crate::recovery::Recovery;

/// A connection of a link: the encrypted bytes in both directions, and the state of loss recovery.
pub(super) struct Connection {
    /// Identifier of the connection in receipts (counts of received blocks). The connection of the
    /// handshake has the identifier 0. A later connection has the index of its token (the bytes
    /// with which it joins the link) plus 1.
    pub(super) number: u64,
    /// Received bytes of a block (the unit of encryption) that is not complete yet.
    pub(super) partial: Vec<u8>,
    /// Encrypted blocks that wait to be hidden in the connection's next message.
    pub(super) sealed: Vec<u8>,
    /// How many more bytes the next message can hide, in addition to the encrypted bytes in
    /// `sealed`.
    pub(super) room: Room,
    /// The index that the client has given to the connection; `None` before the client's SLOT
    /// frame.
    slot: Option<u64>,
    /// A control frame that has to be sent over this connection; `None` if there is none.
    pub(super) control: Option<Frame<'static>>,
    pub(super) recovery: Recovery,
}

/// The connections of a link, by path.
pub(super) struct Connections {
    /// The connection of each path. Connections are boxed because most paths of a server have
    /// none.
    paths: Vec<Option<Box<Connection>>>,
    /// Closed connections whose last blocks are not acknowledged yet, by the connections'
    /// identifiers.
    closed: BTreeMap<u64, Recovery>,
    /// Smoothed round-trip time of the link, from samples of all connections.
    rtt: SmoothedRtt,
    /// Time at which the latest of the acknowledged blocks was sent, over any connection.
    latest_arrival: Time,
    /// Maximum time for which an end may be silent although its connection works.
    longest_pause: Duration,
    /// Whether an answer that has begun must go on until its exchange (usually a request and its
    /// answer) ends. If so, a long pause within an answer makes the connection count as silent.
    awaits_end: bool,
    /// Paths whose connections were replaced since the last call of [`Connections::evicted`].
    evicted: Vec<usize>,
}

impl Connections {
    pub(super) fn new(paths: usize, awaits_end: bool) -> Connections {
        Connections {
            paths: (0..paths).map(|_| None).collect(),
            closed: BTreeMap::new(),
            rtt: SmoothedRtt::default(),
            latest_arrival: Time::ZERO,
            longest_pause: Duration::ZERO,
            awaits_end,
            evicted: Vec::new(),
        }
    }

    /// Sets the maximum time for which an end may be silent although its connection works.
    pub(super) fn allow_pauses(&mut self, longest: Duration) {
        self.longest_pause = longest;
    }

    /// Records a sample of the link's round-trip time.
    pub(super) fn measured(&mut self, rtt: Duration) {
        self.rtt.sample(rtt);
    }

    /// Returns the smoothed round-trip time of the link; `None` before the first measurement.
    pub(super) fn srtt(&self) -> Option<Duration> {
        self.rtt.srtt()
    }

    /// Returns the number of paths.
    pub(super) fn len(&self) -> usize {
        self.paths.len()
    }

    /// Returns the connection of `path`; `None` if the path is free.
    pub(super) fn get(&self, path: usize) -> Option<&Connection> {
        self.paths.get(path)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, path: usize) -> Option<&mut Connection> {
        self.paths.get_mut(path)?.as_deref_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.paths.iter().flatten().map(AsRef::as_ref)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.paths.iter_mut().flatten().map(AsMut::as_mut)
    }

    /// Returns how many bytes the next message of `path` can hide, or 0 if the path has no
    /// connection.
    pub(super) fn room(&self, path: usize) -> usize {
        self.get(path).map_or(0, |connection| connection.room.bytes)
    }

    /// Returns the number of encrypted bytes that wait to be hidden in the next message of `path`.
    pub(super) fn sealed(&self, path: usize) -> usize {
        self.get(path).map_or(0, |connection| connection.sealed.len())
    }

    /// Sets how many bytes the next message of each path can hide, for the paths in `rooms`. For
    /// other paths, this becomes 0.
    pub(super) fn set_rooms(&mut self, rooms: impl Iterator<Item = (usize, Room)>) {
        self.iter_mut().for_each(|connection| connection.room = Room::default());
        for (path, room) in rooms {
            if let Some(connection) = self.get_mut(path) {
                let bytes = room.bytes.saturating_sub(connection.sealed.len());
                connection.room = Room { bytes, ..room };
            }
        }
    }

    /// Adds a connection with the identifier `number` to `path`, which has no connection. `first`
    /// contains the bytes to send before all blocks: a token, or the ANSWER of the handshake.
    pub(super) fn add(
        &mut self,
        now: Time,
        path: usize,
        number: u64,
        opening: Opening,
        first: &[u8],
    ) {
        let (control, delay) = match opening {
            Opening::Asks(delay) => (Some(Frame::Slot(path as u64)), delay),
            Opening::Answers => (Some(Frame::Pong), self.longest_pause),
            Opening::Waits => (None, self.longest_pause),
        };
        let mut recovery = Recovery::new(now, self.rtt, delay);
        if matches!(opening, Opening::Asks(_)) {
            recovery.expect_answer(now);
        }
        self.closed.remove(&number);
        self.evicted.retain(|&evicted| evicted != path);
        self.paths[path] = Some(Box::new(Connection {
            number,
            partial: Vec::new(),
            sealed: first.to_vec(),
            room: Room::default(),
            slot: None,
            control,
            recovery,
        }));
    }

    /// Removes the closed connection of `path`. Remembers its unacknowledged blocks, which may
    /// still have arrived.
    pub(super) fn close(&mut self, path: usize) {
        let Some(mut connection) = self.remove(path) else { return };
        connection.recovery.close();
        self.closed.insert(connection.number, connection.recovery);
    }

    /// Removes and returns the connection of `path`; `None` if the path had no connection.
    pub(super) fn remove(&mut self, path: usize) -> Option<Connection> {
        self.paths.get_mut(path)?.take().map(|connection| *connection)
    }

    /// Returns the path whose connection has been silent for the longest time; `None` without
    /// connections.
    pub(super) fn longest_silent(&self) -> Option<usize> {
        let received = |(path, connection): (usize, &Option<Box<Connection>>)| {
            Some((connection.as_ref()?.recovery.last_received(), path))
        };
        self.paths.iter().enumerate().filter_map(received).min().map(|(_, path)| path)
    }

    /// Records that bytes were received over the connection of `path`, whether they hide data or
    /// not.
    pub(super) fn note_activity(&mut self, now: Time, path: usize) {
        let more = self.awaits_end.then_some(self.longest_pause);
        if let Some(connection) = self.get_mut(path) {
            connection.recovery.note_activity(now, more);
        }
    }

    /// Stores the index that the client has given to the connection of `path`. Returns the path of
    /// an earlier connection with the same index, if there is one; the caller has to remove that
    /// connection. The client may have closed the earlier connection without notice.
    pub(super) fn set_slot(&mut self, path: usize, slot: u64) -> Option<usize> {
        let has_seat = |connection: &Option<Box<Connection>>| {
            connection.as_ref().is_some_and(|connection| connection.slot == Some(slot))
        };
        let stale = self.paths.iter().position(has_seat).filter(|&stale| stale != path);
        if let Some(connection) = self.get_mut(path) {
            connection.slot = Some(slot);
        }
        self.evicted.extend(stale);
        stale
    }

    /// Removes and returns the list of paths whose connections were replaced, and now have to be
    /// closed.
    pub(super) fn evicted(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.evicted)
    }

    /// Processes a receipt: the other end has received the first `blocks` blocks of the connection
    /// with the identifier `number`.
    pub(super) fn acknowledge(&mut self, now: Time, number: u64, blocks: u64) {
        let open = self.paths.iter_mut().flatten().find(|open| open.number == number);
        let recovery = match open {
            Some(connection) => Some(&mut connection.recovery),
            None => self.closed.get_mut(&number),
        };
        if let Some(sent) = recovery.and_then(|recovery| recovery.acknowledge(now, blocks)) {
            self.rtt.sample(now.since(sent));
            self.latest_arrival = self.latest_arrival.max(sent);
        }
    }

    /// Stops waiting for acknowledgements of blocks whose chunks (parts of the stream) have
    /// arrived over another connection.
    pub(super) fn remove_arrived(&mut self, now: Time, has_arrived: impl Fn(u64) -> bool) {
        let open = self.paths.iter_mut().flatten().map(|open| &mut open.recovery);
        for recovery in open.chain(self.closed.values_mut()) {
            let sent = recovery.remove_arrived(now, &has_arrived);
            self.latest_arrival = self.latest_arrival.max(sent.unwrap_or(Time::ZERO));
        }
    }

    /// Calls `silent` with the identifier and the recovery state of each connection that has
    /// become silent. Then forgets closed connections that are silent or have no blocks in flight.
    pub(super) fn detect_silence(&mut self, now: Time, mut silent: impl FnMut(u64, &Recovery)) {
        let open = self.paths.iter_mut().flatten();
        let open = open.map(|open| (open.number, &mut open.recovery));
        let closed = self.closed.iter_mut().map(|(&number, recovery)| (number, recovery));
        for (number, recovery) in open.chain(closed) {
            if recovery.detect_silence(now, self.latest_arrival) {
                silent(number, recovery);
            }
        }
        self.closed.retain(|_, closed| closed.has_in_flight() && closed.silent_since().is_none());
    }

    /// Returns the earliest time at which a connection will count as silent; `None` if there is
    /// none.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let open = self.iter().map(|open| &open.recovery);
        let all = open.chain(self.closed.values());
        all.filter_map(|recovery| recovery.deadline(self.latest_arrival)).min()
    }

    /// Returns how many bytes are buffered: received bytes of incomplete blocks, and encrypted
    /// bytes that wait to be sent.
    pub(super) fn buffered(&self) -> (usize, usize) {
        let partial = self.iter().map(|connection| connection.partial.len()).sum();
        (partial, self.iter().map(|connection| connection.sealed.len()).sum())
    }

    /// Frees the unused memory of all connections' buffers.
    pub(super) fn shrink(&mut self) {
        for connection in self.iter_mut() {
            connection.partial.shrink_to_fit();
            connection.sealed.shrink_to_fit();
        }
    }
}
