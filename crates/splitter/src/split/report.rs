//! What a run tells: its screen and captures, warnings that are given once, and what only sockets
//! count.

use std::time::Duration;

use anabranch_comps::Snapshot;
use anabranch_multipath::Time;
use anabranch_os::udp::{Datagrams, UdpSocket};

use super::Screen;
use super::sockets::{PathSocket, fresh_drops};
use super::taps::Taps;
use super::warnings::Warnings;

/// Between two snapshots at least, whatever the screen asks for.
const LEAST: Duration = Duration::from_millis(10);

/// All that leaves the splitter but datagrams.
pub(super) struct Report<'s> {
    pub(super) screen: &'s mut dyn Screen,
    pub(super) taps: Taps,
    pub(super) warnings: Warnings,
    /// When the next counters are shown.
    pub(super) next_snapshot: Time,
    /// Drops of the listener that are counted, and their sum.
    counted: u32,
    missed: u64,
    /// Datagrams that no client took.
    pub(super) not_returned: u64,
    /// Datagrams of a proxy that are not from the server.
    pub(super) foreign: u64,
    /// Packets at the interface that no route led there.
    pub(super) housekeeping: u64,
}

impl<'s> Report<'s> {
    /// Nothing is told yet.
    pub(super) fn new(screen: &'s mut dyn Screen, taps: Taps, now: Time) -> Report<'s> {
        let next_snapshot = now + screen.interval();
        let (counted, missed, not_returned, foreign, housekeeping) = (0, 0, 0, 0, 0);
        let warnings = Warnings::default();
        Report {
            screen,
            taps,
            warnings,
            next_snapshot,
            counted,
            missed,
            not_returned,
            foreign,
            housekeeping,
        }
    }

    /// Warns of what was not warned of before.
    pub(super) fn warn(&mut self, warning: Option<String>) {
        if let Some(warning) = warning {
            self.screen.warn(&warning);
        }
    }

    /// Shows the captures what went out by (`outward`), or came in at, a path's socket.
    pub(super) fn see(
        &mut self,
        now: Time,
        socket: &PathSocket,
        outward: bool,
        datagrams: Datagrams<'_>,
    ) {
        self.taps.see(now, socket, outward, datagrams, self.screen);
    }

    /// Whether the counters are to be shown; the next time is set if so.
    pub(super) fn is_due(&mut self, now: Time) -> bool {
        let due = now >= self.next_snapshot;
        if due {
            self.next_snapshot = now + self.screen.interval().max(LEAST);
        }
        due
    }

    /// Has the captures written up to `now`.
    pub(super) fn flush(&mut self, now: Time) {
        self.taps.flush(now, self.screen);
    }

    /// Adds to the core's counters what the sockets know. `listener` is the local port, `missed`
    /// what the paths' sockets have dropped.
    pub(super) fn complete(
        &mut self,
        listener: Option<&UdpSocket>,
        missed: u64,
        snapshot: Snapshot,
    ) -> Snapshot {
        self.missed += listener.map_or(0, |port| fresh_drops(port, &mut self.counted));
        Snapshot {
            missed: self.missed + missed,
            not_returned: self.not_returned,
            foreign: self.foreign,
            housekeeping: self.housekeeping,
            ..snapshot
        }
    }
}
