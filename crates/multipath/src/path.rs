//! What a scheduler may know of a path.

use std::fmt;
use std::time::Duration;

/// A path of one schedule: its position in the list that the user gave, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u16);

impl PathId {
    /// The path's place in a slice of [`PathView`]s.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The path at place `index` of a slice.
    ///
    /// # Panics
    /// If `index` exceeds 65,535: no schedule has so many paths.
    pub fn at(index: usize) -> PathId {
        PathId(u16::try_from(index).expect("a schedule has fewer than 65,536 paths"))
    }
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One path as a scheduler sees it. Its place in the slice is its [`PathId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// Whether the path is a candidate: a dead path is not, and the weights of the others are
    /// renormalised. A path with a window is none before its round-trip time has been measured
    /// ([`PathView::leg`]).
    pub usable: bool,
    /// The round-trip time, once measured.
    pub rtt: Option<Duration>,
    /// How many units the path takes now. `None` where the path has no window (UDP): there a full
    /// socket drops.
    pub window: Option<u64>,
    /// What is known besides of a path with a window; all 0 where there is none.
    pub leg: LegView,
}

/// What a path with a window tells a scheduler beyond its room. Units are cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LegView {
    /// The least round-trip time so far.
    pub least_rtt: Duration,
    /// The window's size: what may be under way at once.
    pub size: u64,
    /// Units under way: sent, and not acknowledged.
    pub inflight: u64,
    /// Units that one acknowledgement stands for.
    pub step: u64,
    /// Units that the path holds by itself, without a queue, as congestion control estimates it; 0
    /// before an acknowledgement has come.
    pub bdp: u64,
    /// Units of ours that wait for the first hop's link.
    pub queued: u64,
    /// Whether the window still grows as slow start has it.
    pub slow_start: bool,
    /// Whether it carried the last unit.
    pub current: bool,
    /// Units that a change to this path from another costs.
    pub turn: u64,
    /// Units per second that the path passes on, at least; 0 where that is not known.
    pub capacity: u64,
    /// The same once it is known that the path passes on no more; 0 before.
    pub limit: u64,
    /// The first hop's link, where the system tells of it.
    pub link: Option<LinkView>,
}

/// A TCP connection as its sender's kernel sees it (Linux `TCP_INFO` and `SIOCOUTQNSD`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkView {
    /// The congestion window, in segments.
    pub snd_cwnd: u32,
    /// Segments under way.
    pub unacked: u32,
    /// Bytes of a segment.
    pub mss: u32,
    /// Bytes in the socket that have not been sent yet.
    pub notsent: u32,
    /// The round-trip time of that hop.
    pub rtt: Duration,
    /// Bytes a second that were delivered lately; 0 where that is not known.
    pub delivery_rate: u64,
    /// How many of 1,000 cells that the link carried lately were of this circuit; 0 where that is
    /// not known.
    pub share: u16,
    /// How long ago the peer acknowledged anything.
    pub quiet: Duration,
    /// How old this sample is.
    pub age: Duration,
}

/// Round-trip times of a first hop without an acknowledgement after which it counts as stuck.
const STUCK: u32 = 3;

impl LinkView {
    /// Whether something is under way and nothing has been acknowledged for three round trips.
    pub fn is_stuck(&self) -> bool {
        self.unacked > 0 && self.quiet + self.age > self.rtt * STUCK
    }
}

impl PathView {
    /// A live path of unknown round-trip time and without a window.
    pub const fn open() -> PathView {
        PathView { usable: true, rtt: None, window: None, leg: LegView::NOTHING }
    }

    /// A path that is not a candidate.
    pub const fn dead() -> PathView {
        PathView { usable: false, ..PathView::open() }
    }

    /// A path that takes `room` units now. Unmeasured (`rtt` is `None`), it is no candidate: a leg
    /// of unknown delay carries no data (Tor proposal 329, as C tor has it).
    pub const fn leg(rtt: Option<Duration>, room: u64, leg: LegView) -> PathView {
        PathView { usable: rtt.is_some(), rtt, window: Some(room), leg }
    }

    /// Whether the path takes at least one unit now.
    pub const fn has_room(&self) -> bool {
        !matches!(self.window, Some(0))
    }
}

impl LegView {
    /// Of a path without a window.
    pub const NOTHING: LegView = LegView {
        least_rtt: Duration::ZERO,
        size: 0,
        inflight: 0,
        step: 0,
        bdp: 0,
        queued: 0,
        slow_start: false,
        current: false,
        turn: 0,
        capacity: 0,
        limit: 0,
        link: None,
    };
}

/// The places of the usable paths.
pub(crate) fn usable(paths: &[PathView]) -> impl Iterator<Item = usize> + '_ {
    paths.iter().enumerate().filter(|(_, view)| view.usable).map(|(index, _)| index)
}

/// The places of the usable paths that take a unit now.
pub(crate) fn ready(paths: &[PathView]) -> impl Iterator<Item = usize> + '_ {
    usable(paths).filter(|&index| paths[index].has_room())
}

/// The quickest path that takes a unit now; the quickest of all where none does.
pub(crate) fn quickest_ready(paths: &[PathView]) -> Option<usize> {
    quickest(paths, ready(paths)).or_else(|| quickest(paths, usable(paths)))
}

/// Of some places the one with the lowest round-trip time, the first of equals.
pub(crate) fn quickest(paths: &[PathView], places: impl Iterator<Item = usize>) -> Option<usize> {
    places.min_by_key(|&index| paths[index].rtt.unwrap_or(Duration::MAX))
}
