//! The output of a running splitter: screen, packet captures, one-time warnings, and the counters
//! of the sockets.

use std::time::Duration;

use anabranch_comps::Snapshot;
use anabranch_multipath::Time;
use anabranch_os::udp::{Datagrams, UdpSocket};

use super::Screen;
use super::sockets::{PathSocket, fresh_drops};
use super::streams::StreamBytes;
use super::taps::Taps;
use super::warnings::Warnings;

/// Minimum interval between two snapshots of the counters, even if the screen requests a shorter
/// one.
const LEAST: Duration = Duration::from_millis(10);

/// All output of the splitter except datagrams: screen, packet captures and counters.
pub(super) struct Report<'s> {
    pub(super) screen: &'s mut dyn Screen,
    pub(super) taps: Taps,
    pub(super) warnings: Warnings,
    /// Time at which the counters are shown next.
    pub(super) next_snapshot: Time,
    /// Last reading of the kernel's counter of datagrams dropped at the local port.
    counted: u32,
    /// Number of datagrams that the kernel has dropped at the local port since the start.
    missed: u64,
    /// Number of datagrams to clients that could not be delivered.
    pub(super) not_returned: u64,
    /// Number of datagrams from proxies that were dropped: fragments, malformed datagrams, and
    /// datagrams that the server did not send.
    pub(super) foreign: u64,
    /// Number of packets at the interface that the kernel or programs send on every interface, such
    /// as router solicitations.
    pub(super) housekeeping: u64,
}

impl<'s> Report<'s> {
    /// Creates the output of a splitter, with the screen and the packet captures (`taps`). Nothing
    /// is shown yet.
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

    /// Shows `warning`, unless it is `None`.
    pub(super) fn warn(&mut self, warning: Option<String>) {
        if let Some(warning) = warning {
            self.screen.warn(&warning);
        }
    }

    /// Passes datagrams of a path's socket to the captures. `outward` is true for datagrams sent,
    /// false for datagrams received.
    pub(super) fn see(
        &mut self,
        now: Time,
        socket: &PathSocket,
        outward: bool,
        datagrams: Datagrams<'_>,
    ) {
        self.taps.see(now, socket, outward, datagrams, self.screen);
    }

    /// Passes the bytes that a path's stream has sent and received to the captures.
    pub(super) fn see_stream(&mut self, now: Time, seen: &StreamBytes) {
        self.taps.see_stream(now, seen, self.screen);
    }

    /// Returns whether the counters must be shown now. If so, sets the next time at which they
    /// must be shown.
    pub(super) fn is_due(&mut self, now: Time) -> bool {
        let due = now >= self.next_snapshot;
        if due {
            self.next_snapshot = now + self.screen.interval().max(LEAST);
        }
        due
    }

    /// Writes the captured packets up to `now` to the capture files.
    pub(super) fn flush(&mut self, now: Time) {
        self.taps.flush(now, self.screen);
    }

    /// Adds the counters of the sockets to the counters of the protocol core. `listener` is the
    /// local port, if there is one. `missed` is the number of datagrams dropped by the paths'
    /// sockets.
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
