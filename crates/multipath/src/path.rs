//! The state of a path as a scheduler sees it.

use std::fmt;
use std::time::Duration;

/// Identifier of a path: its index in the user's list of paths, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u16);

impl PathId {
    /// Returns the path's index in a slice of [`PathView`]s.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the path at position `index` of a slice.
    ///
    /// # Panics
    /// `index` exceeds 65,535: no schedule has that many paths.
    pub fn at(index: usize) -> PathId {
        PathId(u16::try_from(index).expect("a schedule has fewer than 65,536 paths"))
    }
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The state of a path, as a scheduler sees it. A scheduler receives a slice of these states; a
/// path's index in the slice is its [`PathId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// True if the scheduler may choose the path. False for a dead path, and for a path with a
    /// window whose round-trip time is unmeasured ([`PathView::leg`]).
    pub usable: bool,
    /// The round-trip time; `None` before it was measured.
    pub rtt: Option<Duration>,
    /// Number of units (such as packets) that the path can take now. `None` if the path has no
    /// window (UDP). If its socket is full, the socket then drops units.
    pub window: Option<u64>,
    /// Further state of a path with a window. All fields are 0 for a path without a window.
    pub leg: LegView,
}

/// The state of a path with a window (a *leg*, such as a circuit), except for the window's room.
/// All counts of units are counts of cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LegView {
    /// The minimum round-trip time until now.
    pub least_rtt: Duration,
    /// The window's size: the number of units (cells) that may be in flight at once.
    pub size: u64,
    /// Number of units (cells) in flight: sent, and not acknowledged.
    pub inflight: u64,
    /// Number of units (cells) that one acknowledgement covers.
    pub step: u64,
    /// Number of units (cells) that the path can hold without a queue, as estimated by congestion
    /// control; 0 before the first acknowledgement.
    pub bdp: u64,
    /// Number of this circuit's units (cells) that are queued for the first hop's link.
    pub queued: u64,
    /// True if the window still grows in slow start.
    pub slow_start: bool,
    /// True if this path carried the most recent unit (cell).
    pub current: bool,
    /// Cost, in units (cells), of a change from another path to this path.
    pub switch_cost: u64,
    /// Lower bound of the units (cells) per second that the path forwards; 0 if unknown.
    pub capacity: u64,
    /// Upper bound of the units (cells) per second that the path forwards; 0 if unknown.
    pub max_rate: u64,
    /// The first hop's link; `None` if the system does not report its state.
    pub link: Option<LinkView>,
}

/// A TCP connection as its sender's kernel sees it (Linux `TCP_INFO` and `SIOCOUTQNSD`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkView {
    /// The congestion window, in segments.
    pub snd_cwnd: u32,
    /// Number of segments in flight.
    pub unacked: u32,
    /// Maximum size of a segment, in bytes.
    pub mss: u32,
    /// Number of bytes in the socket that have not been sent yet.
    pub notsent: u32,
    /// The round-trip time of the link.
    pub rtt: Duration,
    /// Recent delivery rate, in bytes per second; 0 if unknown.
    pub delivery_rate: u64,
    /// This circuit's share of the cells that the link carried recently, in thousandths; 0 if
    /// unknown.
    pub share: u16,
    /// Time since the peer's last acknowledgement.
    pub since_ack: Duration,
    /// Time since the kernel reported this state.
    pub age: Duration,
}

/// Time without an acknowledgement after which a link counts as stuck, in round-trip times of the
/// link.
const STUCK: u32 = 3;

impl LinkView {
    /// Returns whether segments are in flight and the peer has acknowledged nothing for `STUCK`
    /// round-trip times.
    pub fn is_stuck(&self) -> bool {
        self.unacked > 0 && self.since_ack + self.age > self.rtt * STUCK
    }
}

impl PathView {
    /// Returns the state of a usable path whose round-trip time is unknown, and which has no
    /// window.
    pub const fn open() -> PathView {
        PathView { usable: true, rtt: None, window: None, leg: LegView::NOTHING }
    }

    /// Returns the state of a path that schedulers must not choose.
    pub const fn dead() -> PathView {
        PathView { usable: false, ..PathView::open() }
    }

    /// Returns the state of a path whose window has room for `room` units (such as packets) now.
    /// If `rtt` is `None`, the path is not usable, because a leg without a measured round-trip
    /// time carries no data (Tor proposal 329, as implemented in C tor).
    pub const fn leg(rtt: Option<Duration>, room: u64, leg: LegView) -> PathView {
        PathView { usable: rtt.is_some(), rtt, window: Some(room), leg }
    }

    /// Updates this state after `units` units (such as packets) were sent on the path: less room
    /// in the window, more units in flight. So a caller can send several runs with one state.
    pub const fn sent(&mut self, units: u64) {
        if let Some(room) = self.window {
            self.window = Some(room.saturating_sub(units));
            self.leg.inflight = self.leg.inflight.saturating_add(units);
        }
    }

    /// Returns whether the path can take at least one unit (such as a packet) now.
    pub const fn has_room(&self) -> bool {
        !matches!(self.window, Some(0))
    }
}

impl LegView {
    /// Value for a path without a window: all fields are 0.
    pub const NOTHING: LegView = LegView {
        least_rtt: Duration::ZERO,
        size: 0,
        inflight: 0,
        step: 0,
        bdp: 0,
        queued: 0,
        slow_start: false,
        current: false,
        switch_cost: 0,
        capacity: 0,
        max_rate: 0,
        link: None,
    };
}

/// Returns the indices of the usable paths.
pub(crate) fn usable(paths: &[PathView]) -> impl Iterator<Item = usize> + '_ {
    paths.iter().enumerate().filter(|(_, view)| view.usable).map(|(index, _)| index)
}

/// Returns the indices of the usable paths that can take a unit (such as a packet) now.
pub(crate) fn ready(paths: &[PathView]) -> impl Iterator<Item = usize> + '_ {
    usable(paths).filter(|&index| paths[index].has_room())
}

/// Returns the index of the path with the lowest round-trip time among the usable paths that can
/// take a unit (such as a packet) now. If none can, chooses among all usable paths. Returns `None`
/// if no path is usable.
pub(crate) fn quickest_ready(paths: &[PathView]) -> Option<usize> {
    quickest(paths, ready(paths)).or_else(|| quickest(paths, usable(paths)))
}

/// Returns the index of the path with the lowest round-trip time among the indices in `places`;
/// the first one if several are equal, and `None` if `places` is empty.
pub(crate) fn quickest(paths: &[PathView], places: impl Iterator<Item = usize>) -> Option<usize> {
    places.min_by_key(|&index| paths[index].rtt.unwrap_or(Duration::MAX))
}
