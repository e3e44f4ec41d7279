//! The streams of a set that have something to send, kept up to date as they change: a cell costs
//! the same however many others there are.
//!
//! Streams take turns as flows do in FQ-CoDel (RFC 8290, section 4.2): a deficit round robin in
//! which each sends a run of cells, and one that had nothing to send goes first once. Runs spare
//! both ends a system call for each cell of 498 bytes; going first keeps a request from waiting for
//! a run of each download.
//!
//! Where streams have a window on each leg, each leg has turns of its own: a stream that one leg
//! does not take is passed over there alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anabranch_multipath::{PathId, Time};

use crate::stream::Stream;

/// Cells of data that a stream sends in one turn: 31.9 kB, half of what it may hold. With 32 cells
/// a client of 500 streams used a twelfth more CPU.
pub(super) const RUN: u16 = 64;

/// Queues of streams by what they may send, and sums over all of them.
#[derive(Default)]
pub(super) struct Turns {
    /// The turns on each leg; only one entry where flow control does not depend on the leg.
    legs: Vec<(PathId, LegTurns)>,
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

/// The turns of streams on one leg.
#[derive(Default)]
struct LegTurns {
    /// Streams that had nothing to send before this turn: they go before the others.
    new: VecDeque<u16>,
    /// Streams that have had a turn.
    old: VecDeque<u16>,
    /// Those of both queues. A stream that is no longer ready leaves its queue when it gets to the
    /// front.
    queued: BTreeMap<u16, Queued>,
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
        self.legs.iter_mut().for_each(|(_, turns)| turns.note(id, new.wanting));
        if new.ends {
            self.ending.insert(id);
        } else {
            self.ending.remove(&id);
        }
    }

    /// The turns on `leg`, in which all streams with bytes take part.
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

    /// A leg is gone.
    pub(super) fn lost(&mut self, leg: PathId) {
        self.legs.retain(|(other, _)| *other != leg);
    }

    /// Passes over a stream that may not send on `leg`, until it changes or `wake` comes.
    pub(super) fn park(&mut self, leg: PathId, id: u16, wake: Option<Time>) {
        self.on(leg).queued.entry(id).and_modify(|queued| queued.ready = false);
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
            self.legs.iter_mut().for_each(|(_, turns)| turns.wake(id));
        }
        None
    }

    /// The stream whose turn it is on `leg` among those that may have data to send.
    pub(super) fn next_ready(&mut self, leg: PathId) -> Option<u16> {
        self.on(leg).next_ready()
    }

    /// A stream sent a cell of data by `leg`.
    pub(super) fn sent(&mut self, leg: PathId, id: u16) {
        let queued = self.on(leg).queued.entry(id);
        queued.and_modify(|queued| queued.left = queued.left.saturating_sub(1));
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

impl LegTurns {
    /// Takes note of a stream that has changed.
    fn note(&mut self, id: u16, wanting: bool) {
        if let Some(queued) = self.queued.get_mut(&id) {
            queued.ready = wanting;
        } else if wanting {
            self.new.push_back(id);
            self.queued.insert(id, Queued { left: RUN, ready: true });
        }
    }

    /// A stream that kept to a rate may send again. It had its turn.
    fn wake(&mut self, id: u16) {
        let LegTurns { queued, old, .. } = self;
        let queued = queued.entry(id).or_insert_with(|| {
            old.push_back(id);
            Queued { left: RUN, ready: true }
        });
        queued.ready = true;
    }

    /// The stream whose turn it is.
    fn next_ready(&mut self) -> Option<u16> {
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
}
