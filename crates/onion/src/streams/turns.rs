//! Scheduler of a set's streams. Its queues are updated whenever a stream changes. The cost of
//! sending a cell therefore does not depend on the number of streams.
//!
//! Streams take turns as flows do in FQ-CoDel (RFC 8290, section 4.2): a deficit round robin in
//! which each stream sends up to [`RUN`] cells in one turn. With long turns, neither end needs a
//! system call for each cell of 498 bytes. A stream that had nothing to send before takes one turn
//! ahead of the others. Otherwise a short request would wait until each download has had a turn.
//!
//! If streams have a window on each leg (circuit of the set), each leg has separate queues. A
//! stream that cannot send on one leg is then skipped only on that leg.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anabranch_multipath::{PathId, Time};

use crate::stream::Stream;

/// Maximum number of data cells that a stream sends in one turn: 31.9 kB, half of a stream's send
/// buffer. With 32 cells, a client with 500 streams used one twelfth more CPU time.
pub(super) const RUN: u16 = 64;

/// Queues of the streams that may send data or END, and totals over all streams.
#[derive(Default)]
pub(super) struct Turns {
    /// Queues for each leg (parallel circuit). If flow control does not depend on the leg, there
    /// is only one entry.
    legs: Vec<(PathId, LegTurns)>,
    /// Streams that must send END now.
    ending: BTreeSet<u16>,
    /// Times at which streams with a limited rate may send again.
    wakes: BTreeSet<(Time, u16)>,
    /// Each stream's contribution to `unsent`, `wanting` and `starved`. Idle streams have no
    /// entry.
    noted: BTreeMap<u16, StreamShare>,
    /// Total number of bytes in all streams that wait to be sent in cells.
    unsent: usize,
    /// Number of streams with bytes to send.
    wanting: usize,
    /// Number of streams whose program waits for room in a full send buffer.
    starved: usize,
}

/// Queues of the streams that take turns on one leg (parallel circuit).
#[derive(Default)]
struct LegTurns {
    /// Streams that had nothing to send until now. They are served before the streams in `old`.
    new: VecDeque<u16>,
    /// Streams that have had at least one turn.
    old: VecDeque<u16>,
    /// The streams in the queues `new` and `old`. A stream that has become unable to send stays in
    /// its queue until it reaches the front.
    queued: BTreeMap<u16, Queued>,
}

/// State of a stream that waits in one of the queues `new` and `old`.
struct Queued {
    /// Number of cells that the stream may send before its turn ends.
    left: u16,
    /// True if the stream has bytes to send, and is not known to be blocked by flow control.
    ready: bool,
}

/// The contribution of one stream to the totals over all streams in [`Turns`].
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct StreamShare {
    unsent: usize,
    wanting: bool,
    starved: bool,
    ends: bool,
    wake: Option<Time>,
}

impl StreamShare {
    fn of(stream: &Stream) -> StreamShare {
        StreamShare {
            unsent: stream.unsent(),
            wanting: stream.is_wanting(),
            starved: stream.has_more(),
            ends: stream.due_end().is_some(),
            wake: None,
        }
    }
}

impl Turns {
    /// Updates the queues and totals after the stream `id` has changed. `stream` is `None` if the
    /// stream is closed.
    pub(super) fn note(&mut self, id: u16, stream: Option<&Stream>) {
        let new = stream.map(StreamShare::of).unwrap_or_default();
        let is_idle = new == StreamShare::default();
        let old = if is_idle { self.noted.remove(&id) } else { self.noted.insert(id, new) };
        let old = old.unwrap_or_default();
        self.unsent = self.unsent - old.unsent + new.unsent;
        self.wanting = self.wanting - usize::from(old.wanting) + usize::from(new.wanting);
        self.starved = self.starved - usize::from(old.starved) + usize::from(new.starved);
        old.wake.map(|wake| self.wakes.remove(&(wake, id)));
        self.legs.iter_mut().for_each(|(_, turns)| turns.note(id, new.wanting));
        if new.ends {
            self.ending.insert(id);
        } else {
            self.ending.remove(&id);
        }
    }

    /// Returns the queues for `leg`. If the leg (parallel circuit) is new, all streams with bytes
    /// to send are added first.
    fn on(&mut self, leg: PathId) -> &mut LegTurns {
        let place = self.legs.iter().position(|(other, _)| *other == leg);
        let place = place.unwrap_or_else(|| {
            let mut turns = LegTurns::default();
            let wanting = self.noted.iter().filter(|(_, noted)| noted.wanting);
            wanting.for_each(|(id, _)| turns.note(*id, true));
            self.legs.push((leg, turns));
            self.legs.len() - 1
        });
        &mut self.legs[place].1
    }

    /// Removes the queues of a lost leg (parallel circuit).
    pub(super) fn lost(&mut self, leg: PathId) {
        self.legs.retain(|(other, _)| *other != leg);
    }

    /// Skips the stream `id`, which may not send on `leg` (a parallel circuit) now. The stream is
    /// skipped until its state changes or, if `wake` is not `None`, until that time.
    pub(super) fn park(&mut self, leg: PathId, id: u16, wake: Option<Time>) {
        self.on(leg).queued.entry(id).and_modify(|queued| queued.ready = false);
        if let (Some(wake), Some(noted)) = (wake, self.noted.get_mut(&id)) {
            noted.wake = Some(wake);
            self.wakes.insert((wake, id));
        }
    }

    /// Marks the streams with a limited rate that may send again at `now` as ready. Returns the
    /// time at which the next stream with a limited rate may send; `None` if none waits.
    pub(super) fn wake(&mut self, now: Time) -> Option<Time> {
        while let Some(&(wake, id)) = self.wakes.first() {
            if wake > now {
                return Some(wake);
            }
            self.wakes.pop_first();
            self.noted.entry(id).and_modify(|noted| noted.wake = None);
            self.legs.iter_mut().for_each(|(_, turns)| turns.wake(id));
        }
        None
    }

    /// Returns the ID of the next stream to send on `leg` (a parallel circuit); `None` if there is
    /// none. Streams that are known to have nothing to send are skipped.
    pub(super) fn next_ready(&mut self, leg: PathId) -> Option<u16> {
        self.on(leg).next_ready()
    }

    /// Counts a data cell that the stream `id` sent on `leg` (a parallel circuit).
    pub(super) fn sent(&mut self, leg: PathId, id: u16) {
        let queued = self.on(leg).queued.entry(id);
        queued.and_modify(|queued| queued.left = queued.left.saturating_sub(1));
    }

    /// Returns the ID of a stream that must send END now; `None` if there is none.
    pub(super) fn next_ending(&self) -> Option<u16> {
        self.ending.first().copied()
    }

    /// Returns true if a stream has bytes to send.
    pub(super) fn is_wanting(&self) -> bool {
        self.wanting > 0
    }

    /// Returns the number of bytes that wait to be sent in cells. Returns `None` if a program has
    /// more bytes to write than fit into a stream's send buffer.
    pub(super) fn unsent(&self) -> Option<usize> {
        (self.starved == 0).then_some(self.unsent)
    }
}

impl LegTurns {
    /// Updates the queue entry of the stream `id`, after the stream has changed. `wanting` is true
    /// if the stream has bytes to send.
    fn note(&mut self, id: u16, wanting: bool) {
        if let Some(queued) = self.queued.get_mut(&id) {
            queued.ready = wanting;
        } else if wanting {
            self.new.push_back(id);
            self.queued.insert(id, Queued { left: RUN, ready: true });
        }
    }

    /// Marks the stream `id`, which has a limited rate, as ready. Adds the stream to the queue
    /// `old`, because it has had a turn before.
    fn wake(&mut self, id: u16) {
        let LegTurns { queued, old, .. } = self;
        let queued = queued.entry(id).or_insert_with(|| {
            old.push_back(id);
            Queued { left: RUN, ready: true }
        });
        queued.ready = true;
    }

    /// Returns the ID of the stream that may send next on this leg (parallel circuit); `None` if
    /// no stream can.
    fn next_ready(&mut self) -> Option<u16> {
        while let Some(&id) = self.new.front() {
            let queued = self.queued.get_mut(&id)?;
            if queued.ready && queued.left > 0 {
                return Some(id);
            }
            // A stream that has nothing more to send also joins `old`. Otherwise it could be new
            // again before the others have had their turns.
            queued.left = RUN;
            self.new.pop_front();
            self.old.push_back(id);
        }
        while let Some(&id) = self.old.front() {
            let queued = self.queued.get_mut(&id)?;
            if queued.ready && queued.left > 0 {
                return Some(id);
            }
            self.old.pop_front();
            if queued.ready {
                queued.left = RUN;
                self.old.push_back(id);
            } else {
                self.queued.remove(&id);
            }
        }
        None
    }
}
