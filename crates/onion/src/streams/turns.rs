//! The streams of a set that have something to send, kept up to date as they change: a cell costs
//! the same however many others there are.
//!
//! Streams take turns as flows do in FQ-CoDel (RFC 8290, section 4.2): a deficit round robin in
//! which each sends a run of cells, and one that had nothing to send goes first once. Runs spare
//! both ends a system call for each cell of 498 bytes; going first keeps a request from waiting for
//! a run of each download.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anabranch_multipath::Time;

use crate::stream::Stream;

/// Cells of data that a stream sends in one turn: 31.9 kB, half of what it may hold. With 32 cells
/// a client of 500 streams used a twelfth more CPU.
pub(super) const RUN: u16 = 64;

/// Queues of streams by what they may send, and sums over all of them.
#[derive(Default)]
pub(super) struct Turns {
    /// Streams that had nothing to send before this turn: they go before the others.
    new: VecDeque<u16>,
    /// Streams that have had a turn.
    old: VecDeque<u16>,
    /// Those of both queues. A stream that is no longer ready leaves its queue when it gets to the
    /// front.
    queued: BTreeMap<u16, Queued>,
    /// Streams whose END is due.
    ending: BTreeSet<u16>,
    /// When streams that keep to a rate may send again.
    wakes: BTreeSet<(Time, u16)>,
    /// Contributions of streams that are not idle.
    noted: BTreeMap<u16, Noted>,
    /// Bytes that wait for cells.
    unsent: usize,
    /// Streams with bytes to send; streams whose program has more than there was room for.
    wanting: usize,
    starved: usize,
}

/// A stream in a queue.
struct Queued {
    /// Cells that it may send before its turn ends.
    left: u16,
    /// Whether it has bytes that flow control is not known to hold back.
    ready: bool,
}

/// One stream's contribution to [`Turns`].
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Noted {
    unsent: usize,
    wanting: bool,
    starved: bool,
    ends: bool,
    wake: Option<Time>,
}

impl Noted {
    fn of(stream: &Stream) -> Noted {
        Noted {
            unsent: stream.unsent(),
            wanting: stream.is_wanting(),
            starved: stream.has_more(),
            ends: stream.due_end().is_some(),
            wake: None,
        }
    }
}

impl Turns {
    /// Takes note of a stream that has changed, or is gone.
    pub(super) fn note(&mut self, id: u16, stream: Option<&Stream>) {
        let new = stream.map(Noted::of).unwrap_or_default();
        let is_idle = new == Noted::default();
        let old = if is_idle { self.noted.remove(&id) } else { self.noted.insert(id, new) };
        let old = old.unwrap_or_default();
        self.unsent = self.unsent - old.unsent + new.unsent;
        self.wanting = self.wanting - usize::from(old.wanting) + usize::from(new.wanting);
        self.starved = self.starved - usize::from(old.starved) + usize::from(new.starved);
        old.wake.map(|wake| self.wakes.remove(&(wake, id)));
        if let Some(queued) = self.queued.get_mut(&id) {
            queued.ready = new.wanting;
        } else if new.wanting {
            self.new.push_back(id);
            self.queued.insert(id, Queued { left: RUN, ready: true });
        }
        if new.ends {
            self.ending.insert(id);
        } else {
            self.ending.remove(&id);
        }
    }

    /// Passes over a stream that may not send, until it changes or `wake` comes.
    pub(super) fn park(&mut self, id: u16, wake: Option<Time>) {
        self.queued.entry(id).and_modify(|queued| queued.ready = false);
        if let (Some(wake), Some(noted)) = (wake, self.noted.get_mut(&id)) {
            noted.wake = Some(wake);
            self.wakes.insert((wake, id));
        }
    }

    /// Puts streams whose time has come back into the queue; returns when the next one's comes.
    pub(super) fn wake(&mut self, now: Time) -> Option<Time> {
        while let Some(&(wake, id)) = self.wakes.first() {
            if wake > now {
                return Some(wake);
            }
            self.wakes.pop_first();
            self.noted.entry(id).and_modify(|noted| noted.wake = None);
            let Turns { queued, old, .. } = self;
            let queued = queued.entry(id).or_insert_with(|| {
                old.push_back(id);
                Queued { left: RUN, ready: true }
            });
            queued.ready = true;
        }
        None
    }

    /// The stream whose turn it is among those that may have data to send.
    pub(super) fn next_ready(&mut self) -> Option<u16> {
        while let Some(&id) = self.new.front() {
            let queued = self.queued.get_mut(&id)?;
            if queued.ready && queued.left > 0 {
                return Some(id);
            }
            // One that has nothing more to send goes there as well: it is not new again before the
            // others have had their turns.
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

    /// A stream sent a cell of data.
    pub(super) fn sent(&mut self, id: u16) {
        self.queued.entry(id).and_modify(|queued| queued.left = queued.left.saturating_sub(1));
    }

    /// All streams that may have data to send, in the order of their turns.
    pub(super) fn all_ready(&mut self) -> impl Iterator<Item = u16> {
        // Ends the turns that are over.
        self.next_ready();
        let is_ready = |id: &u16| self.queued.get(id).is_some_and(|queued| queued.ready);
        self.new.iter().chain(&self.old).copied().filter(is_ready)
    }

    /// A stream whose END is due.
    pub(super) fn next_ending(&self) -> Option<u16> {
        self.ending.first().copied()
    }

    /// Whether a stream has bytes to send.
    pub(super) fn is_wanting(&self) -> bool {
        self.wanting > 0
    }

    /// Bytes that wait for cells; `None` if a program has more than there is room for.
    pub(super) fn unsent(&self) -> Option<usize> {
        (self.starved == 0).then_some(self.unsent)
    }
}
