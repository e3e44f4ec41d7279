//! The path that a session uses, and whether the session used other paths before.

use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use super::kept::PathStay;
use crate::{Renumbering, TupleId};

/// Record of the paths that the client's datagrams have used: the last path, and whether there
/// were several.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// Time, path and source port (tuple) of the last datagram; `None` if nothing was sent.
    last: Option<(Time, PathId, TupleId)>,
    /// Whether more than one path has carried the client's datagrams.
    split: bool,
    /// The traffic since the session last changed its path.
    pub(super) stay: PathStay,
}

/// The datagrams being sent, compared with the datagrams sent before: a change of path, and the
/// time between.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The path and the source port of the datagrams sent last; `None` if nothing was sent before.
    pub(super) before: Option<(PathId, TupleId)>,
    /// Time since the previous datagrams.
    pub(super) pause: Duration,
    /// Whether the path differs from the path of the previous datagrams. True also if there were
    /// none.
    pub(super) moves: bool,
}

impl Usage {
    /// Returns whether a single path carried all datagrams of the client.
    pub(super) fn is_unsplit(&self) -> bool {
        self.last.is_some() && !self.split
    }

    /// Returns whether anything was sent.
    pub(super) fn has_sent(&self) -> bool {
        self.last.is_some()
    }

    /// Returns when the last datagram was sent; `None` if nothing was sent.
    pub(super) fn last_sent(&self) -> Option<Time> {
        self.last.map(|(at, ..)| at)
    }

    /// Returns the path of the last datagram; `None` if nothing was sent.
    pub(super) fn path(&self) -> Option<PathId> {
        self.last.map(|(_, path, _)| path)
    }

    /// Records that `count` datagrams were sent on a path, from one of its source ports (tuple).
    pub(super) fn on_sent(
        &mut self,
        now: Time,
        (path, tuple): (PathId, TupleId),
        count: u64,
    ) -> Step {
        let last = self.last.replace((now, path, tuple));
        let moves = last.is_none_or(|(_, before, _)| before != path);
        self.split |= moves && last.is_some();
        let pause = last.map_or(Duration::ZERO, |(since, ..)| now.since(since));
        self.stay.on_sent(path, count, pause);
        Step { before: last.map(|(_, path, tuple)| (path, tuple)), pause, moves }
    }

    /// Adopts changed settings.
    pub(super) fn renumber(&mut self, numbers: &Renumbering) {
        self.stay = self.stay.restarted();
        self.last = self
            .last
            .and_then(|(at, _, tuple)| numbers.tuple(tuple).map(|(path, tuple)| (at, path, tuple)));
    }
}
