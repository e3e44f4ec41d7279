//! The streams of a set that have something to send, kept up to date as they change: a cell costs
//! the same however many others there are.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use anabranch_multipath::Time;

use crate::stream::Stream;

/// Queues of streams by what they may send, and sums over all of them.
#[derive(Default)]
pub(super) struct Turns {
    /// Streams with bytes that flow control is not known to hold back.
    ready: BTreeSet<u16>,
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
        put(&mut self.ready, id, new.wanting);
        put(&mut self.ending, id, new.ends);
    }

    /// Passes over a stream that may not send, until it changes or `wake` comes.
    pub(super) fn park(&mut self, id: u16, wake: Option<Time>) {
        self.ready.remove(&id);
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
            self.ready.insert(id);
        }
        None
    }

    /// The stream after `turn` that may have data to send.
    pub(super) fn next_ready(&self, turn: u16) -> Option<u16> {
        after(&self.ready, turn).next()
    }

    /// All streams that may have data to send, those after `turn` first.
    pub(super) fn all_ready(&self, turn: u16) -> impl Iterator<Item = u16> {
        after(&self.ready, turn)
    }

    /// The stream after `turn` whose END is due.
    pub(super) fn next_ending(&self, turn: u16) -> Option<u16> {
        after(&self.ending, turn).next()
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

/// How far a stream is from its turn.
pub(super) fn distance(turn: u16, id: u16) -> u16 {
    id.wrapping_sub(turn).wrapping_sub(1)
}

fn after(ids: &BTreeSet<u16>, turn: u16) -> impl Iterator<Item = u16> {
    ids.range((Excluded(turn), Unbounded)).chain(ids.range(..=turn)).copied()
}

fn put(ids: &mut BTreeSet<u16>, id: u16, belongs: bool) {
    if belongs {
        ids.insert(id);
    } else {
        ids.remove(&id);
    }
}
